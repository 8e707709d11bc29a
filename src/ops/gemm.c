// Plain matrix products for every type: the oracle of matmul and of the convolutions, and their fallback.
//
// gemm.inc.c holds the body; integers wrap around, hence unsigned arithmetic. Knows nothing of ops.
#include "ops/loops.h"
#include "ops/nn.h"

// VECTOR: bytes of the widest vector. DEPTH: rows of a panel of b, 32 KB. ROWS of a that it meets before the next one.
// SUMS: that one product of vectors runs beside each other. NEAR: rows so many panels wide lie close enough together to
// be used where they are.
enum { VECTOR = 64, DEPTH = 256, ROWS = 256, SUMS = 64, NEAR = 8 };

#define T float
#define FN(name) f32_##name
#include "ops/gemm.inc.c"

#define T double
#define FN(name) f64_##name
#include "ops/gemm.inc.c"

#define T uint32_t
#define FN(name) i32_##name
#include "ops/gemm.inc.c"

#define T uint64_t
#define FN(name) i64_##name
#include "ops/gemm.inc.c"

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
