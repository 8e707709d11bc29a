// Singular values from LAPACK, which is opened when an op first needs it.
#ifndef MU_SRC_OPS_LAPACK_H
#define MU_SRC_OPS_LAPACK_H

#include "ops/core/op.h"

// The operands of one decomposition, dense and row-major, and LAPACK's working memory, all in `block`.
typedef struct mu_svd_memory {
    int64_t m, n;
    double *x;      // [m, n]; overwritten
    double *values; // [k], descending, k = min(m, n)
    double *left;   // [m, k]; NULL: the values alone
    double *right;  // [k, n], the transpose of the right vectors; NULL: the values alone
    double *work;
    int work_length, *integers;
    void *block; // mu__free frees it
} mu_svd_memory;

// mu__lapack_open fails with UNAVAILABLE, naming `op` and Debian's package, if there is no LAPACK. The functions below
// may be called after it succeeded, on any thread; they record no error of their own.
mu_status mu__lapack_open(const char *op);

// mu__lapack_memory allocates the memory for matrices [m, n], which the caller has set. Returns false if there is none.
bool mu__lapack_memory(mu_svd_memory *memory, bool vectors);

// mu__lapack_svd decomposes memory->x. Returns false if the iteration did not converge.
bool mu__lapack_svd(const mu_svd_memory *memory);

#endif
