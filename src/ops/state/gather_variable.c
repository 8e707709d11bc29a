// gather_variable: rows of a variable by index, without a copy of the variable.
//
// For variables that a server keeps (variable.c): the op is one request that carries indices and rows. A variable
// whose rows are divided among several parts is read by one op, so that all servers are asked at the same time. The
// gradient is slices, which the tape makes (graph/gradients/gradient.c).
#include "ops/array/index.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

static mu_status check_part(const mu_op *op, const mu_spec *first, const mu_spec *part, int number)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    bool fits = part->dtype == first->dtype && part->shape.rank == first->shape.rank && part->shape.rank > 0;
    for (int a = 1; fits && a < first->shape.rank; a++)
        fits = part->shape.dims[a] == first->shape.dims[a];
    if (fits)
        return MU_OK;
    if (part->shape.rank == 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the variable is a scalar; it needs an axis for the indices",
                         op->name);
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: part %d of the variable is %s%s, part 0 is %s%s; all parts must have the same type and the "
                     "same axes after the first",
                     op->name, number, mu_dtype_name(part->dtype), mu__shape_text(&part->shape, seen),
                     mu_dtype_name(first->dtype), mu__shape_text(&first->shape, wanted));
}

mu_status mu__infer_parts(const mu_infer *infer)
{
    if (infer->n_resources < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: it needs a variable, or all parts of one", infer->op->name);
    for (int i = 0; i < infer->n_resources; i++)
        MU_TRY(check_part(infer->op, &infer->resources[0], &infer->resources[i], i));
    return MU_OK;
}

static mu_status gather_variable_infer(mu_infer *infer)
{
    MU_TRY(mu__need_indices(infer, 0));
    MU_TRY(mu__infer_parts(infer));
    const mu_shape *variable = &infer->resources[0].shape, *indices = &infer->in[0].shape;
    if (indices->rank + variable->rank - 1 > MU_MAX_RANK)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "gather_variable: a variable of rank %d and indices of rank %d; the result has at most %d axes",
            variable->rank, indices->rank, MU_MAX_RANK);
    infer->out[0] = (mu_spec){.dtype = infer->resources[0].dtype, .shape = *indices};
    for (int a = 1; a < variable->rank; a++)
        infer->out[0].shape.dims[infer->out[0].shape.rank++] = variable->dims[a];
    return MU_OK;
}

static mu_status gather_variable_ref(const mu_kernel *k)
{
    const mu_view *indices = &k->in[0];
    const int64_t n = mu__elements(&indices->shape);
    const mu_shape *row = &k->resources[0].shape;
    const size_t bytes = (size_t)mu__elements_between(row, 1, row->rank) * mu_dtype_bytes(k->resources[0].dtype);
    int64_t rows = 0;
    for (int i = 0; i < k->n_resources; i++)
        rows += k->resources[i].shape.dims[0];
    MU_TRY(mu__check_indices(k, indices, 0, n, rows));
    for (int64_t j = 0; j < n && bytes > 0; j++) {
        int64_t at = mu__index_at(indices, j);
        int part = 0;
        for (; at >= k->resources[part].shape.dims[0]; part++)
            at -= k->resources[part].shape.dims[0];
        memcpy((char *)k->out[0].data + (size_t)j * bytes, (char *)k->resources[part].data + (size_t)at * bytes, bytes);
    }
    return MU_OK;
}

// Input: indices. Resources: the variable, or its parts in the order of their rows.
const mu_op mu_op_gather_variable = {
    .name = "gather_variable",
    .n_in = 1,
    .n_out = 1,
    .n_resources = MU_VARIADIC,
    .flags = MU_OP_READS,
    .fails_for = MU_INTS,
    .infer = gather_variable_infer,
    .ref = gather_variable_ref,
    .lower = mu__lower_gather_variable,
};
