// Matrix products that the compiler vectorises, for every type: of matmul and of the convolutions that oneDNN does not
// take.
//
// gemm.inc.c holds the body. Integers use unsigned arithmetic, because they wrap around.
#include "dispatch.h"
#include "gemm.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// DEPTH: rows of a panel of b, which is 32 KB with vectors of 64 bytes. ROWS: rows of a per panel. SUMS:
// parallel running sums of a dot product. NEAR: rows of b of at most this many panels are used in place, without
// copying.
enum { DEPTH = 256, ROWS = 256, SUMS = 64, NEAR = 8 };

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#define T        float
#define FN(name) f32_##name
#include "gemm.inc.c"

#define T        double
#define FN(name) f64_##name
#include "gemm.inc.c"

#define T        uint32_t
#define FN(name) i32_##name
#include "gemm.inc.c"

#define T        uint64_t
#define FN(name) i64_##name
#include "gemm.inc.c"

mu_outer *mu__outer_of(mu_gemm_type type)
{
    static mu_outer *const loops[] = {
        [MU_GEMM_F32] = f32_outer, [MU_GEMM_F64] = f64_outer, [MU_GEMM_I32] = i32_outer, [MU_GEMM_I64] = i64_outer};
    return loops[type];
}

mu_gemm *mu__gemm_of(mu_gemm_type type)
{
    static mu_gemm *const loops[] = {
        [MU_GEMM_F32] = f32_gemm, [MU_GEMM_F64] = f64_gemm, [MU_GEMM_I32] = i32_gemm, [MU_GEMM_I64] = i64_gemm};
    return loops[type];
}
