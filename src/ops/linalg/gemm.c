// Matrix products that the compiler vectorises, for every type: of matmul and of the convolutions that oneDNN does not
// take.
//
// gemm.inc.c holds the body. Integers use unsigned arithmetic, because they wrap around.
#include "ops/core/loops.h"
#include "ops/nn/nn.h"

// DEPTH: rows of a panel of b, which is 32 KB with vectors of 64 bytes. ROWS: rows of a per panel. SUMS:
// parallel running sums of a dot product. NEAR: rows of b of at most this many panels are used in place, without
// copying.
enum { DEPTH = 256, ROWS = 256, SUMS = 64, NEAR = 8 };

#define T float
#define FN(name) f32_##name
#include "ops/linalg/gemm.inc.c"

#define T double
#define FN(name) f64_##name
#include "ops/linalg/gemm.inc.c"

#define T uint32_t
#define FN(name) i32_##name
#include "ops/linalg/gemm.inc.c"

#define T uint64_t
#define FN(name) i64_##name
#include "ops/linalg/gemm.inc.c"

mu_outer *mu__outer_for(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F32: return f32_outer;
    case MU_F64: return f64_outer;
    case MU_I32: return i32_outer;
    case MU_I64: return i64_outer;
    default: return NULL;
    }
}

mu_gemm *mu__gemm_for(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F32: return f32_gemm;
    case MU_F64: return f64_gemm;
    case MU_I32: return i32_gemm;
    case MU_I64: return i64_gemm;
    default: return NULL;
    }
}
