// Orthogonal initial values: the factor Q of a normal matrix, with a positive diagonal of R, as Keras has it.
//
// R is the transposed Cholesky factor of AᵀA, so Q = A R⁻¹. What rounding leaves of it is removed by a second round.
// Yamamoto et al., "Roundoff error analysis of the CholeskyQR2 algorithm", 2015.
#include "model/core/layer.h"

#include <muster/nn.h>
#include <muster/ops.h>

// Qᵀ for Aᵀ; both are [columns, rows], with no more columns than rows.
static mu_tensor *transposed_q(mu_tensor *transposed)
{
    mu_tensor *lower = mu_cholesky(mu_matmul_transposed(transposed, transposed, false, true));
    return mu_triangular_solve(lower, transposed, true, false);
}

mu_tensor *mu__orthogonal(mu_tensor *seed, mu_dtype dtype, const mu_shape *shape)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < shape->rank; i++)
        rows *= shape->dims[i];
    if (shape->rank < 2) {
        mu__error(
            MU_INVALID_ARGUMENT,
            "the initializer 'orthogonal' makes matrices, and a weight has %d ax%ss; choose another initializer for it",
            shape->rank, shape->rank == 1 ? "i" : "e");
        return NULL;
    }
    const int64_t columns = shape->dims[shape->rank - 1];
    const int64_t dims[] = {MU_MAX(rows, columns), MU_MIN(rows, columns)};
    mu_tensor *normal = mu_cast(mu_stateless_random_normal(seed, dtype, 2, dims), MU_F64);
    mu_tensor *q = transposed_q(transposed_q(mu_transpose(normal, (int[]){1, 0})));
    if (rows >= columns)
        q = mu_transpose(q, (int[]){1, 0});
    return mu_cast(mu_reshape(q, shape->rank, shape->dims), dtype);
}
