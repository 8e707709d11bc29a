// Runs oneDNN's parallel regions on Muster's teams.
//
// Debian's oneDNN uses OpenMP and calls libgomp, whose threads spin for milliseconds while other programs need the
// processor; libgomp cannot be reconfigured once it is loaded. So this file replaces the entries for libgomp in
// oneDNN's own table of imported functions. Only oneDNN's parallel regions are affected; other OpenMP code of the
// program still uses libgomp. If the table is not found, oneDNN uses libgomp too.
#include "ops/onednn/onednn.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

extern void GOMP_parallel(void (*body)(void *), void *data, unsigned n_threads, unsigned flags);
extern void GOMP_barrier(void);
extern int omp_get_max_threads(void);
extern int omp_get_num_threads(void);
extern int omp_get_thread_num(void);
extern int omp_in_parallel(void);

// ---- Replacements of libgomp's functions --------------------------------------------------------

typedef struct region {
    void (*body)(void *);
    void *data;
} region;

static void run_region(void *arg, int index, int count)
{
    const region *own = arg;
    (void)index, (void)count;
    own->body(own->data);
}

// A nested region runs on one thread. Regions inside libgomp's own regions, and regions that need more threads than the
// team has, are passed to libgomp.
static void parallel(void (*body)(void *), void *data, unsigned n_threads, unsigned flags)
{
    region own = {.body = body, .data = data};
    const int count = mu__team_count() > 0 ? 1 : n_threads > 0 ? (int)n_threads : omp_get_max_threads();
    if (omp_in_parallel() || !mu__team_try(count, run_region, &own))
        GOMP_parallel(body, data, n_threads, flags);
}

static void barrier(void)
{
    if (mu__team_count() > 0)
        mu__team_barrier();
    else
        GOMP_barrier();
}

static int num_threads(void) { return mu__team_count() > 0 ? mu__team_count() : omp_get_num_threads(); }

static int thread_num(void) { return mu__team_count() > 0 ? mu__team_index() : omp_get_thread_num(); }

static int in_parallel(void) { return mu__team_count() > 0 || omp_in_parallel(); }

// ---- The table of imported functions ------------------------------------------------------------

typedef void function(void);

static const struct {
    const char *name;
    function *ours;
} replaced[] = {
    {"GOMP_parallel", (function *)parallel},          {"GOMP_barrier", (function *)barrier},
    {"omp_get_num_threads", (function *)num_threads}, {"omp_get_thread_num", (function *)thread_num},
    {"omp_in_parallel", (function *)in_parallel},
};

// The parts of a loaded library that locate its imports.
typedef struct imports {
    uintptr_t inside;                             // an address inside the library to find
    uintptr_t base, constant_begin, constant_end; // constant_begin, _end: read-only after loading
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * tables[2];
    size_t n[2];
} imports;

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    imports *out = arg;
    bool found = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        found |= part->p_type == PT_LOAD && out->inside >= begin && out->inside - begin < part->p_memsz;
    }
    for (int i = 0; found && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_DYNAMIC)
            out->dynamic = (const void *)begin;
        if (part->p_type == PT_GNU_RELRO) {
            out->constant_begin = begin;
            out->constant_end = begin + part->p_memsz;
        }
    }
    out->base = info->dlpi_addr;
    return found;
}

static void read_dynamic(imports *out)
{
    for (const ElfW(Dyn) *entry = out->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        // The loader has relocated these addresses, except in C libraries that leave them as in the file.
        const uintptr_t value = entry->d_un.d_ptr, at = value < out->base ? value + out->base : value;
        switch (entry->d_tag) {
        case DT_SYMTAB: out->symbols = (const void *)at; break;
        case DT_STRTAB: out->names = (const void *)at; break;
        case DT_JMPREL: out->tables[0] = (const void *)at; break;
        case DT_PLTRELSZ: out->n[0] = value / sizeof(ElfW(Rela)); break;
        case DT_RELA: out->tables[1] = (const void *)at; break;
        case DT_RELASZ: out->n[1] = value / sizeof(ElfW(Rela)); break;
        default: break;
        }
    }
}

static bool is_import(unsigned long type)
{
#if defined(__x86_64__)
    return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
    return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
#else
    (void)type;
    return false;
#endif
}

static bool set_import(const imports *in, uintptr_t slot, function *ours)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = slot / page * page;
    const bool constant = slot >= in->constant_begin && slot < in->constant_end;
    if (constant && mprotect((void *)first, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    __atomic_store_n((uintptr_t *)slot, (uintptr_t)ours, __ATOMIC_RELEASE);
    if (constant)
        mprotect((void *)first, page, PROT_READ);
    return true;
}

// Address of a function's entry in the table; 0 if it is not imported.
static uintptr_t import_of(const imports *in, const char *name)
{
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; in->tables[t] && i < in->n[t]; i++) {
            const ElfW(Rela) *entry = &in->tables[t][i];
            const ElfW(Sym) *symbol = &in->symbols[ELF64_R_SYM(entry->r_info)];
            if (is_import(ELF64_R_TYPE(entry->r_info)) && strcmp(in->names + symbol->st_name, name) == 0)
                return in->base + entry->r_offset;
        }
    return 0;
}

bool mu__dnnl_use_teams(void)
{
    imports in = {.inside = (uintptr_t)dnnl_version()};
    uintptr_t slots[MU_COUNT(replaced)];
    dl_iterate_phdr(find_library, &in);
    read_dynamic(&in);
    imports own = {.inside = (uintptr_t)parallel};
    dl_iterate_phdr(find_library, &own);
    bool whole = in.symbols && in.names && in.base != own.base; // linked into one file, they would call each other
    for (size_t i = 0; whole && i < MU_COUNT(replaced); i++)
        whole = (slots[i] = import_of(&in, replaced[i].name)) != 0;
    for (size_t i = MU_COUNT(replaced);
         whole && i-- > 0;) // the region last, when its members can already query their number
        whole = set_import(&in, slots[i], replaced[i].ours);
    if (!whole)
        mu__log(MU_LOG_INFO, "oneDNN keeps libgomp's threads, which spin between calls; OMP_WAIT_POLICY=passive makes "
                             "them sleep where the processors are shared with other programs");
    return whole;
}
