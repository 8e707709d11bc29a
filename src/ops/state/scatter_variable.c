// scatter_variable: updates rows of a variable in place, one after the other, by indices and values.
//
// One op for all seven kinds (add, sub, mul, div, min, max, update). An index that occurs twice is applied twice. A
// variable whose rows are divided among several servers is changed by one op on all its parts, so that all servers are
// asked at the same time (rpc/remote/remote_rows.c).
#include "ops/array/index.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

static mu_status scatter_infer(mu_infer *infer)
{
    const mu_spec *variable = &infer->resources[0], *indices = &infer->in[0], *values = &infer->in[1];
    const int64_t kind = ((const mu_scatter_attrs *)infer->attrs)->kind;
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    MU_TRY(mu__infer_parts(infer));
    mu_shape shape = variable->shape;
    if (kind < 0 || kind > MU_SCATTER_UPDATE) // of a graph that another process sent
        return mu__error(MU_INVALID_ARGUMENT, "scatter: the kind is %lld; it must be 0 to %d", (long long)kind,
                         MU_SCATTER_UPDATE);
    if (variable->dtype == MU_BOOL && kind != MU_SCATTER_UPDATE)
        return mu__error(MU_INVALID_ARGUMENT,
                         "scatter: the variable is bool, whose rows can only be replaced (mu_variable_scatter_update); "
                         "for sums, products and extremes make it of a number type");
    if ((indices->dtype != MU_I32 && indices->dtype != MU_I64) || indices->shape.rank != 1)
        return mu__error(MU_INVALID_ARGUMENT, "scatter: the indices are %s%s; they must be a vector of int32 or int64",
                         mu_dtype_name(indices->dtype), mu__shape_text(&indices->shape, seen));
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
    static const mu_op *const ops[] = {[MU_SCATTER_ADD] = &mu_op_add,
                                       [MU_SCATTER_SUB] = &mu_op_subtract,
                                       [MU_SCATTER_MUL] = &mu_op_multiply,
                                       [MU_SCATTER_MIN] = &mu_op_minimum,
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

// Rows of the variable, in all parts.
static int64_t rows_of_parts(const mu_kernel *kernel)
{
    int64_t rows = 0;
    for (int i = 0; i < kernel->n_resources; i++)
        rows += kernel->resources[i].shape.dims[0];
    return rows;
}

static mu_status check_each_row(const mu_kernel *kernel)
{
    const mu_view *indices = &kernel->in[0];
    const int64_t rows = rows_of_parts(kernel);
    for (int64_t i = 0; i < indices->shape.dims[0]; i++)
        if (mu__index_at(indices, i) < 0 || mu__index_at(indices, i) >= rows)
            return mu__row_error("scatter", i, mu__index_at(indices, i), rows);
    return MU_OK;
}

static mu_status check_rows(const mu_kernel *kernel)
{
    const mu_view *indices = &kernel->in[0];
    return mu__indices_inside(indices, 0, indices->shape.dims[0], rows_of_parts(kernel)) ? MU_OK
                                                                                         : check_each_row(kernel);
}

static int64_t row_elements(const mu_kernel *kernel)
{
    return mu__elements_between(&kernel->resources[0].shape, 1, kernel->resources[0].shape.rank);
}

static double changed_real(mu_scatter kind, double old, double by)
{
    switch (kind) {
    case MU_SCATTER_ADD: return old + by;
    case MU_SCATTER_SUB: return old - by;
    case MU_SCATTER_MUL: return old * by;
    case MU_SCATTER_MIN: return old < by || old != old ? old : by;
    default: return old > by || old != old ? old : by;
    }
}

// Integers wrap around.
static int64_t changed_whole(mu_scatter kind, int64_t old, int64_t by)
{
    switch (kind) {
    case MU_SCATTER_ADD: return (int64_t)((uint64_t)old + (uint64_t)by);
    case MU_SCATTER_SUB: return (int64_t)((uint64_t)old - (uint64_t)by);
    case MU_SCATTER_MUL: return (int64_t)((uint64_t)old * (uint64_t)by);
    case MU_SCATTER_MIN: return MU_MIN(old, by);
    default: return MU_MAX(old, by);
    }
}

static void change_element(mu_scatter kind, const mu_view *variable, int64_t i, const mu_view *values, int64_t j)
{
    const size_t bytes = mu_dtype_bytes(variable->dtype);
    if (kind == MU_SCATTER_UPDATE)
        mu__copy_element(variable, i, values, j);
    else if (kind == MU_SCATTER_DIV)
        divide_row(variable->dtype, (char *)variable->data + (size_t)i * bytes,
                   (const char *)values->data + (size_t)j * bytes, 1);
    else if (mu__dtype_is_float(variable->dtype))
        mu__write_real(variable, i, changed_real(kind, mu__read_real(variable, i), mu__read_real(values, j)));
    else
        mu__write_whole(variable, i, changed_whole(kind, mu__read_whole(variable, i), mu__read_whole(values, j)));
}

static mu_status scatter_ref(const mu_kernel *kernel)
{
    const mu_scatter kind = (mu_scatter)((const mu_scatter_attrs *)kernel->attrs)->kind;
    const mu_view *indices = &kernel->in[0], *values = &kernel->in[1];
    const int64_t inner = row_elements(kernel);
    MU_TRY(check_each_row(kernel));
    for (int64_t j = 0; j < mu__elements(&values->shape); j++) {
        const mu_view *part = kernel->resources;
        int64_t row = mu__index_at(indices, j / inner);
        for (; row >= part->shape.dims[0]; part++)
            row -= part->shape.dims[0];
        change_element(kind, part, row * inner + j % inner, values, j);
    }
    return MU_OK;
}

static mu_status scatter_rows(const mu_kernel *kernel)
{
    const mu_view *indices = &kernel->in[0];
    const int64_t inner = row_elements(kernel);
    const size_t bytes = (size_t)inner * mu_dtype_bytes(kernel->resources[0].dtype);
    MU_TRY(check_rows(kernel));
    for (int64_t i = 0; i < indices->shape.dims[0]; i++) {
        const mu_view *part = kernel->resources;
        int64_t at = mu__index_at(indices, i);
        for (; at >= part->shape.dims[0]; part++)
            at -= part->shape.dims[0];
        MU_TRY(change_row(kernel, (char *)part->data + (size_t)at * bytes,
                          (char *)kernel->in[1].data + (size_t)i * bytes, inner));
    }
    return MU_OK;
}

// What has a loop for whole runs of rows; the other kinds and the half types go row by row.
static bool has_combine(const mu_kernel *kernel, mu_combine *out)
{
    static const int combines[] = {[MU_SCATTER_ADD] = MU_COMBINE_ADD,
                                   [MU_SCATTER_SUB] = MU_COMBINE_SUBTRACT,
                                   [MU_SCATTER_MUL] = MU_COMBINE_MULTIPLY,
                                   [MU_SCATTER_DIV] = -1,
                                   [MU_SCATTER_MIN] = MU_COMBINE_MIN,
                                   [MU_SCATTER_MAX] = MU_COMBINE_MAX,
                                   [MU_SCATTER_UPDATE] = -1};
    const int combine = combines[((const mu_scatter_attrs *)kernel->attrs)->kind];
    const mu_dtype dtype = kernel->resources[0].dtype;
    *out = (mu_combine)combine;
    return combine >= 0 && dtype != MU_F16 && dtype != MU_BF16 && dtype != MU_BOOL;
}

static mu_status scatter_fast(const mu_kernel *kernel)
{
    enum { AT_ONCE = 1024 };
    const mu_view *variable = &kernel->resources[0], *indices = &kernel->in[0];
    const int64_t inner = row_elements(kernel);
    const size_t bytes = (size_t)inner * mu_dtype_bytes(variable->dtype);
    int64_t copied[AT_ONCE];
    mu_combine combine;
    if (kernel->n_resources != 1 || !has_combine(kernel, &combine))
        return scatter_rows(kernel);
    MU_TRY(check_rows(kernel));
    for (int64_t i = 0; i < indices->shape.dims[0]; i += AT_ONCE) {
        const int64_t n = MU_MIN(indices->shape.dims[0] - i, (int64_t)AT_ONCE);
        mu__accumulate_at(combine, variable->dtype, variable->data, mu__indices_in_place(indices, i, n, copied),
                          (const char *)kernel->in[1].data + (size_t)i * bytes, inner, n);
    }
    return MU_OK;
}

static const mu_attr_spec scatter_fields[] = {{"kind", MU_ATTR_INT, offsetof(mu_scatter_attrs, kind)}, {0}};

// Inputs: indices, values. Resources: the variable, or its parts in the order of their rows.
const mu_op mu_op_scatter_variable = {
    .name = "scatter_variable",
    .n_in = 2,
    .n_resources = MU_VARIADIC,
    .flags = MU_OP_READS | MU_OP_WRITES,
    .fails_for = MU_INTS,
    .attrs_bytes = sizeof(mu_scatter_attrs),
    .attrs = scatter_fields,
    .infer = scatter_infer,
    .ref = scatter_ref,
    .cpu = {.run = scatter_fast},
    .lower = mu__lower_scatter_variable,
};
