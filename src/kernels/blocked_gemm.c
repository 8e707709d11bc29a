// Products of float64, int32 and int64, which oneDNN has not. Main idea: a block of b and a few rows of a are made
// contiguous in the order in which they are read, the block to stay in the second cache, the rows in the first; a tile
// of c as large as the registers hold meets each number of both once. The loops are in blocked_gemm.inc.c. Integers
// wrap around, hence unsigned arithmetic.
#include "kernel_slots.h"
#include "simd.h"

// Tiles of c: HIGH rows of SIDES vectors, which leaves registers for SIDES vectors of b and a number of a. DEPTH: rows
// of b's block. BLOCK_ROWS: of c, which meet all blocks before the next ones do, so that a stays in the third cache.
// AHEAD: rows of a panel of b that are asked for before they are read.
#if MU_LANES == 16
enum { HIGH = 8, SIDES = 3 };
#else
enum { HIGH = 6, SIDES = 2 };
#endif
enum { DEPTH = 256, BLOCK_ROWS = 1024, PREFETCH = 8 };

#define T double
#define FN(name) name##_f64
#include "blocked_gemm.inc.c"

#define T uint32_t
#define FN(name) name##_i32
#include "blocked_gemm.inc.c"

#define T uint64_t
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
