// gather_variable: rows of a variable by index, without a copy of the variable.
//
// For variables that a server keeps (graph/variable.c): the op is one request that carries indices and rows. The
// gradient is slices, which the tape makes (graph/gradient.c).
#include "ops/array/index.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

static mu_status gather_variable_infer(mu_infer *infer)
{
    const mu_shape *variable = &infer->resources[0].shape, *indices = &infer->in[0].shape;
    MU_TRY(mu__need_indices(infer, 0));
    if (variable->rank < 1 || indices->rank + variable->rank - 1 > MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "gather_variable: a variable of rank %d and indices of rank %d; the "
                         "variable needs an axis, and the result has at most %d", variable->rank, indices->rank,
                         MU_MAX_RANK);
    infer->out[0] = (mu_spec){.dtype = infer->resources[0].dtype, .shape = *indices};
    for (int a = 1; a < variable->rank; a++)
        infer->out[0].shape.dims[infer->out[0].shape.rank++] = variable->dims[a];
    return MU_OK;
}

static mu_status gather_variable_ref(const mu_kernel *k)
{
    const mu_view *variable = &k->resources[0], *indices = &k->in[0];
    const int64_t n = mu__elements(&indices->shape), rows = variable->shape.dims[0];
    const int64_t inner = mu__elements_between(&variable->shape, 1, variable->shape.rank);
    if (n == 0 || inner == 0)
        return MU_OK;
    MU_TRY(mu__check_indices(k, indices, 0, n, rows));
    mu__gather_rows(indices, 0, variable->data, rows, (size_t)inner * mu_dtype_bytes(variable->dtype), k->out[0].data,
                    n, 1);
    return MU_OK;
}

// Input: indices. Resource: the variable.
const mu_op mu_op_gather_variable = {
    .name = "gather_variable", .n_in = 1, .n_out = 1, .n_resources = 1, .flags = MU_OP_READS,
    .infer = gather_variable_infer, .ref = gather_variable_ref, .lower = mu__lower_gather_variable,
};
