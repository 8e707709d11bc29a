// The machine's limits for the op benchmark. Measures the bytes per second of seven ways of moving memory, which
// differ in their ratio of reads to writes, with plain and with streaming stores, and takes the faster. Loops are
// timed like the ops, in memory that has been written before, as the ops' memory has. Also measures oneDNN's best
// matrix product, called without Muster. The data are random numbers like the ops' inputs, because some processors
// write zeros twice as fast.
#include "calls.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { HUGE_PAGE = 2 << 20, MAX_LOOPS = 3 };
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef struct arrays {
    vec *from, *to;
    size_t n; // vectors of each array
} arrays;
typedef void loop(const arrays *x);
static vec sink;

static void put(vec *to, vec value, int stream)
{
#if defined(__clang__) || defined(__x86_64__)
    if (stream) {
#if defined(__clang__)
        __builtin_nontemporal_store(value, to);
#elif defined(__AVX512F__)
        __builtin_ia32_movntps512((float *)to, value);
#elif defined(__AVX__)
        __builtin_ia32_movntps256((float *)to, value);
#else
        *to = value;
#endif
        return;
    }
#endif
    *to = value;
}

static void read_all(const arrays *x)
{
    vec sums[8] = {{0}};
    for (size_t i = 0; i + 8 <= x->n; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += x->from[i + k];
    for (size_t k = 0; k < 8; k++)
        sink += sums[k];
}

// Adds `read` arrays and writes the sum `written` times; both are compile-time constants.
static inline __attribute__((always_inline)) void move(const arrays *x, size_t read, size_t written, int stream)
{
    const vec first = x->from[0];
    for (size_t i = 0; i < x->n; i++) {
        vec sum = read > 0 ? x->from[i] : first;
        for (size_t k = 1; k < read; k++)
            sum += x->from[i + k * x->n];
        for (size_t k = 0; k < written; k++)
            put(&x->to[i * written + k], sum, stream);
    }
}

#define WAY(name, read, written)                                             \
    static void name##_plain(const arrays *x) { move(x, read, written, 0); } \
    static void name##_stream(const arrays *x) { move(x, read, written, 1); }
WAY(four_to_one, 4, 1)
WAY(two_to_one, 2, 1)
WAY(one_to_one, 1, 1)
WAY(one_to_two, 1, 2)
WAY(one_to_four, 1, 4)
WAY(fill, 0, 1)

static void copy_library(const arrays *x) { memcpy(x->to, x->from, x->n * sizeof *x->to); }

typedef struct way {
    size_t read, written;
    loop *loops[MAX_LOOPS];
} way;
static const way ways[] = {
    {1, 0, {read_all}},
    {4, 1, {four_to_one_plain, four_to_one_stream}},
    {2, 1, {two_to_one_plain, two_to_one_stream}},
    {1, 1, {one_to_one_plain, one_to_one_stream, copy_library}},
    {1, 2, {one_to_two_plain, one_to_two_stream}},
    {1, 4, {one_to_four_plain, one_to_four_stream}},
    {0, 1, {fill_plain, fill_stream}},
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

// Numbers between 1 and 2, with no two equal neighbours.
static void make_numbers(char *memory, size_t bytes)
{
    uint32_t *words = (uint32_t *)(void *)memory, state = 1;
    for (size_t i = 0; i < bytes / sizeof words[0]; i++) {
        state = state * 1664525u + 1013904223u;
        words[i] = 0x3f800000u | state >> 9;
    }
}

// The memory that the loops use, cached for the next call; NULL if there is none.
static char *memory_of(size_t bytes)
{
    static char *memory;
    static size_t have;
    if (have >= bytes)
        return memory;
    free(memory);
    memory = aligned_alloc(HUGE_PAGE, bytes);
    have = memory ? bytes : 0;
    if (memory) {
        madvise(memory, bytes, MADV_HUGEPAGE);
        make_numbers(memory, bytes);
    }
    return memory;
}

typedef struct pass {
    loop *run;
    arrays x;
} pass;

static void run_pass(const void *arg)
{
    const pass *p = arg;
    p->run(&p->x);
    __asm__ volatile("" ::: "memory");
}

// For 4:1 and 1:4 the larger side has operand_bytes bytes, as in casts and pools. Small inputs and outputs lie close
// together, as an allocator would place them.
void print_limit(int number, size_t operand_bytes, double wanted_s)
{
    const size_t whole = (operand_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const size_t apart = operand_bytes < HUGE_PAGE ? (2 * operand_bytes + 255) / 256 * 256 : 2 * whole;
    char *memory = memory_of(4 * whole);
    if (number < 0 || number >= N_WAYS) {
        printf("error there is no way %d of moving memory, only 0 to %d\n", number, N_WAYS - 1);
        return;
    }
    if (!memory) {
        printf("error no memory for operands of %zu bytes\n", operand_bytes);
        return;
    }
    const way *w = &ways[number];
    const size_t bytes = w->read == 4 || w->written == 4 ? operand_bytes / 4 : operand_bytes;
    pass p = {.x = {(vec *)(void *)memory, (vec *)(void *)(memory + apart), bytes / sizeof(vec)}};
    double best = 1e9;
    for (size_t i = 0; i < MAX_LOOPS && w->loops[i]; i++) {
        p.run = w->loops[i];
        const double took = seconds_per_call(run_pass, &p, wanted_s);
        best = took < best ? took : best;
    }
    printf("ok %.4g\n", (double)((w->read + w->written) * bytes) / best);
}

enum { SIDE = 1024 };

static void run_product(const void *arg)
{
    float *const *x = arg;
    dnnl_sgemm('N', 'N', SIDE, SIDE, SIDE, 1, x[0], SIDE, x[1], SIDE, 0, x[2], SIDE);
}

void print_peak(void)
{
    float *all = aligned_alloc(64, 3 * SIDE * SIDE * sizeof *all);
    if (!all) {
        printf("error no memory for a matrix product\n");
        return;
    }
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        all[i] = 1.0f / (float)(1 + i % 97);
    float *const x[] = {all, all + SIDE * SIDE, all + 2 * SIDE * SIDE};
    printf("ok %.4g\n", 2.0 * SIDE * SIDE * SIDE / seconds_per_call(run_product, x, 0.25));
    free(all);
}
