// The one place that chooses an instruction set, for the tables of kernels and for the loops of dispatch.h. The lists
// of required instructions must match the compiler flags in the build file and the targets in dispatch.h. This file
// does not read the environment: a caller that wants another set selects it by name.
#include "dispatch.h"
#include "kernels.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

extern const mu_kernels mu__table_base;

#if MU_KERNELS_X86
#include <cpuid.h>

extern const mu_kernels mu__table_avx512, mu__table_avx2;

// clang 14's __builtin_cpu_supports does not know this feature.
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

static bool has_base(void) { return true; }

// In ascending order, as mu_isa numbers them.
static const struct candidate {
    bool (*supported)(void);
    const mu_kernels *table;
} candidates[] = {
    [MU_ISA_BASE] = {has_base, &mu__table_base},
#if MU_KERNELS_X86
    [MU_ISA_AVX2] = {has_avx2, &mu__table_avx2},
    [MU_ISA_AVX512] = {has_avx512, &mu__table_avx512},
#endif
};

// The best set of this name (NULL: of all) that the processor has, or -1.
static int best_supported(const char *isa)
{
    for (int i = (int)(sizeof candidates / sizeof candidates[0]) - 1; i >= 0; i--) {
        const struct candidate *c = &candidates[i];
        if ((isa == NULL || strcmp(isa, c->table->isa) == 0) && c->supported())
            return i;
    }
    return -1;
}

atomic_int mu__isa_in_use = -1; // cached: querying the processor is slow, above all in virtual machines

mu_isa mu__isa_choose(void)
{
    int isa = -1;
    const int best = best_supported(NULL);
    return atomic_compare_exchange_strong(&mu__isa_in_use, &isa, best) ? (mu_isa)best : (mu_isa)isa;
}

const mu_kernels *mu__kernels(void) { return candidates[mu__isa()].table; }

bool mu__kernels_use(const char *isa)
{
    const int found = best_supported(isa);
    if (found >= 0)
        atomic_store_explicit(&mu__isa_in_use, found, memory_order_relaxed);
    return found >= 0;
}

const mu_kernels *mu__kernels_for(const char *isa)
{
    const int found = isa == NULL ? -1 : best_supported(isa);
    return found < 0 ? NULL : candidates[found].table;
}
