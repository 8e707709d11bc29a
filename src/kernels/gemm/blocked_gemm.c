// Matrix products of float64, int32 and int64, which oneDNN lacks. A block of b and a few rows of a are packed in the
// order in which they are read: the block stays in the second-level cache, the rows in the first. Tiles of c fill the
// registers. The loops are in blocked_gemm.inc.c. Integers wrap around, so the code uses unsigned arithmetic.
#include "kernel_slots.h"
#include "simd.h"

// A tile of c has HIGH rows of SIDES vectors, which leaves registers for SIDES vectors of b and one element of a.
// DEPTH: rows of a block of b. BLOCK_ROWS: rows of c that are multiplied with all blocks before the next rows are, so
// that their part of a stays in the third-level cache. PREFETCH: prefetch distance in rows of a panel of b.
#if MU_LANES == 16
enum { HIGH = 8, SIDES = 3 };
#else
enum { HIGH = 6, SIDES = 2 };
#endif
enum { DEPTH = 256, BLOCK_ROWS = 1024, PREFETCH = 8 };

#define T        double
#define FN(name) name##_f64
#include "blocked_gemm.inc.c"

#define T        uint32_t
#define FN(name) name##_i32
#include "blocked_gemm.inc.c"

#define T        uint64_t
#define FN(name) name##_i64
#include "blocked_gemm.inc.c"

void MU_KERNEL(product_f64)(const mu_product_shape *shape, const double *a, const double *b, double *c, void *scratch,
                            int64_t begin, int64_t end)
{
    multiply_f64(shape, a, b, c, scratch, begin, end);
}

void MU_KERNEL(product_i32)(const mu_product_shape *shape, const uint32_t *a, const uint32_t *b, uint32_t *c,
                            void *scratch, int64_t begin, int64_t end)
{
    multiply_i32(shape, a, b, c, scratch, begin, end);
}

void MU_KERNEL(product_i64)(const mu_product_shape *shape, const uint64_t *a, const uint64_t *b, uint64_t *c,
                            void *scratch, int64_t begin, int64_t end)
{
    multiply_i64(shape, a, b, c, scratch, begin, end);
}
