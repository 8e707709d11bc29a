// Picks the best table of kernels for this processor. The list of required instructions must match the compiler flags
// in the build file. This file does not read the environment: a caller that wants another table selects it by name.
#include "kernels.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

extern const mu_kernels mu__table_base;

#if MU_KERNELS_X86
#include <cpuid.h>

extern const mu_kernels mu__table_avx512, mu__table_avx2;

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("fma");
}

// clang 14's __builtin_cpu_supports does not know this feature.
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
#endif

static bool has_base(void)
{
    return true;
}

static const struct candidate {
    bool (*supported)(void);
    const mu_kernels *table;
} candidates[] = {
#if MU_KERNELS_X86
    {has_avx512, &mu__table_avx512},
    {has_avx2, &mu__table_avx2},
#endif
    {has_base, &mu__table_base},
};

static const mu_kernels *first_supported(const char *isa)
{
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const struct candidate *c = &candidates[i];
        if ((isa == NULL || strcmp(isa, c->table->isa) == 0) && c->supported())
            return c->table;
    }
    return NULL;
}

static _Atomic(const mu_kernels *) used;  // cached: querying the processor is slow, above all in virtual machines

const mu_kernels *mu__kernels(void)
{
    const mu_kernels *table = atomic_load_explicit(&used, memory_order_relaxed);
    if (table == NULL) {
        table = first_supported(NULL);
        atomic_store_explicit(&used, table, memory_order_relaxed);
    }
    return table;
}

bool mu__kernels_use(const char *isa)
{
    const mu_kernels *table = first_supported(isa);
    if (table != NULL)
        atomic_store_explicit(&used, table, memory_order_relaxed);
    return table != NULL;
}

const mu_kernels *mu__kernels_for(const char *isa)
{
    return isa == NULL ? NULL : first_supported(isa);
}
