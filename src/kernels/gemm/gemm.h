// Products of matrices with any strides, for the types and shapes that oneDNN and blocked_gemm.c do not take. Loops
// that the compiler vectorises, compiled per instruction set by dispatch.h.
#ifndef MU_SRC_KERNELS_GEMM_H
#define MU_SRC_KERNELS_GEMM_H

#include <stdint.h>

typedef enum mu_gemm_type { MU_GEMM_F32, MU_GEMM_F64, MU_GEMM_I32, MU_GEMM_I64 } mu_gemm_type;

// c[m, n] += a[m, k] b[k, n] for arrays with any strides, in elements; rows of c are contiguous.
typedef void mu_gemm(void *c, int64_t c_row, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
                     int64_t b_col, int64_t m, int64_t n, int64_t k);
mu_gemm *mu__gemm_of(mu_gemm_type type);

// c[m, n] = a[m] b[n], rows [begin, end) of c.
typedef void mu_outer(void *c, const void *a, const void *b, int64_t n, int64_t begin, int64_t end);
mu_outer *mu__outer_of(mu_gemm_type type);

#endif
