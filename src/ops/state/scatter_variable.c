// scatter_variable: updates rows of a variable in place, one after the other, by indices and values.
//
// One op for all seven kinds (add, sub, mul, div, min, max, update). An index that occurs twice is applied twice.
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

static mu_status scatter_infer(mu_infer *infer)
{
    const mu_spec *variable = &infer->resources[0], *indices = &infer->in[0], *values = &infer->in[1];
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    mu_shape shape = variable->shape;
    if ((indices->dtype != MU_I32 && indices->dtype != MU_I64) || indices->shape.rank != 1)
        return mu__error(MU_INVALID_ARGUMENT, "scatter: the indices are %s%s; they must be a vector of int32 or int64",
                         mu_dtype_name(indices->dtype), mu__shape_text(&indices->shape, seen));
    if (shape.rank < 1)
        return mu__error(MU_INVALID_ARGUMENT, "scatter: the variable is a scalar; it needs an axis for the indices");
    shape.dims[0] = indices->shape.dims[0];
    if (values->dtype != variable->dtype || !mu__shape_compatible(&shape, &values->shape))
        return mu__error(MU_INVALID_ARGUMENT,
                         "scatter: the values are %s%s; for these indices and this variable they must be %s%s",
                         mu_dtype_name(values->dtype), mu__shape_text(&values->shape, seen),
                         mu_dtype_name(variable->dtype), mu__shape_text(&shape, wanted));
    return MU_OK;
}

// Integer division is C's; all other kinds match the plain op.
static void divide_row(mu_dtype dtype, void *row, const void *by, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == MU_I64 && ((const int64_t *)by)[i] != 0)
            ((int64_t *)row)[i] /= ((const int64_t *)by)[i];
        else
            mu__write_element(dtype, row, i, mu__read_element(dtype, row, i) / mu__read_element(dtype, by, i));
    }
}

static mu_status change_row(const mu_kernel *kernel, void *row, void *values, int64_t n)
{
    static const mu_op *const ops[] = {[MU_SCATTER_ADD] = &mu_op_add, [MU_SCATTER_SUB] = &mu_op_subtract,
                                       [MU_SCATTER_MUL] = &mu_op_multiply, [MU_SCATTER_MIN] = &mu_op_minimum,
                                       [MU_SCATTER_MAX] = &mu_op_maximum};
    const mu_scatter kind = (mu_scatter)((const mu_scatter_attrs *)kernel->attrs)->kind;
    const mu_dtype dtype = kernel->resources[0].dtype;
    const mu_shape shape = {.rank = 1, .dims = {n}};
    const mu_view in[] = {{.dtype = dtype, .shape = shape, .data = row},
                          {.dtype = dtype, .shape = shape, .data = values}};
    if (kind == MU_SCATTER_UPDATE) {
        memcpy(row, values, (size_t)n * mu_dtype_bytes(dtype));
        return MU_OK;
    }
    if (kind == MU_SCATTER_DIV) {
        divide_row(dtype, row, values, n);
        return MU_OK;
    }
    mu_kernel inner = {.op = ops[kind], .n_in = 2, .in = in, .n_out = 1, .out = in, .team = kernel->team};
    return mu__run_direct(&inner);
}

static int64_t index_at(const mu_view *indices, int64_t i)
{
    return indices->dtype == MU_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
}

static mu_status scatter_ref(const mu_kernel *kernel)
{
    const mu_view *variable = &kernel->resources[0], *indices = &kernel->in[0];
    const int64_t rows = variable->shape.dims[0], n = indices->shape.dims[0];
    int64_t inner = 1;
    for (int a = 1; a < variable->shape.rank; a++)
        inner *= variable->shape.dims[a];
    for (int64_t i = 0; i < n; i++)
        if (index_at(indices, i) < 0 || index_at(indices, i) >= rows)
            return mu__error(MU_INVALID_ARGUMENT, "scatter: index %lld (element %lld), but the variable has %lld rows",
                             (long long)index_at(indices, i), (long long)i, (long long)rows);
    const size_t bytes = (size_t)inner * mu_dtype_bytes(variable->dtype);
    for (int64_t i = 0; i < n; i++)
        MU_TRY(change_row(kernel, (char *)variable->data + (size_t)index_at(indices, i) * bytes,
                          (char *)kernel->in[1].data + (size_t)i * bytes, inner));
    return MU_OK;
}

static const mu_attr_spec scatter_fields[] = {{"kind", MU_ATTR_INT, offsetof(mu_scatter_attrs, kind)}, {0}};

const mu_op mu_op_scatter_variable = {
    .name = "scatter_variable", .n_in = 2, .n_resources = 1, .flags = MU_OP_READS | MU_OP_WRITES,
    .attrs_bytes = sizeof(mu_scatter_attrs), .attrs = scatter_fields, .infer = scatter_infer, .ref = scatter_ref,
    .lower = mu__lower_scatter_variable,
};
