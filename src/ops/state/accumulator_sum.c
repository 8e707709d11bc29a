// Sums of gradients in accumulators: the checks that a gradient must pass, and the arithmetic.
//
// The first gradient is copied, later ones are added, in the order in which they arrive. A sparse sum merges two lists
// of rows by ascending index; unsorted lists are sorted first. Rows that have the same index within one gradient stay
// apart, as in TensorFlow. Division is in the element type, as there.
#include "ops/state/accumulator.h"

#include <stdlib.h>

// ---- Elements -----------------------------------------------------------------------------------

MU_PER_ISA(add_f32, (float *restrict sum, const float *restrict x, int64_t n), (sum, x, n))
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

MU_PER_ISA(add_f64, (double *restrict sum, const double *restrict x, int64_t n), (sum, x, n))
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

// float32 holds every sum and quotient of two 16-bit floats exactly enough to be rounded once.
static void add_f16(mu_dtype dtype, uint16_t *sum, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = dtype == MU_F16 ? mu__f32_to_f16(mu__f16_to_f32(sum[i]) + mu__f16_to_f32(x[i]))
                                 : mu__f32_to_bf16(mu__bf16_to_f32(sum[i]) + mu__bf16_to_f32(x[i]));
}

void mu__add_elements(mu_dtype dtype, void *sum, const void *x, int64_t n)
{
    if (dtype == MU_F32)
        add_f32(sum, x, n);
    else if (dtype == MU_F64)
        add_f64(sum, x, n);
    else
        add_f16(dtype, sum, x, n);
}

MU_PER_ISA(divide_f32, (float *out, const float *x, int64_t n, float count), (out, x, n, count))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] / count;
}

MU_PER_ISA(divide_f64, (double *out, const double *x, int64_t n, double count), (out, x, n, count))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] / count;
}

static void divide_f16(mu_dtype dtype, uint16_t *out, const uint16_t *x, int64_t n, float count)
{
    const float f16 = mu__f16_to_f32(mu__f32_to_f16(count)), bf16 = mu__bf16_to_f32(mu__f32_to_bf16(count));
    for (int64_t i = 0; i < n; i++)
        out[i] = dtype == MU_F16 ? mu__f32_to_f16(mu__f16_to_f32(x[i]) / f16)
                                 : mu__f32_to_bf16(mu__bf16_to_f32(x[i]) / bf16);
}

void mu__divide_elements(mu_dtype dtype, void *out, const void *x, int64_t n, int64_t count)
{
    if (dtype == MU_F32)
        divide_f32(out, x, n, (float)count);
    else if (dtype == MU_F64)
        divide_f64(out, x, n, (double)count);
    else
        divide_f16(dtype, out, x, n, (float)count);
}

void mu__accumulator_result(const mu_accumulator *a, const mu_gradient_sum *sum, void *out)
{
    const mu_dtype dtype = a->resource.spec.dtype;
    if (!a->mean) {
        if (out != sum->values && sum->bytes > 0)
            memcpy(out, sum->values, sum->bytes);
        return;
    }
    if (!a->sparse) {
        mu__divide_elements(dtype, out, sum->values, mu__elements(&sum->shape), sum->n);
        return;
    }
    const int64_t inner = mu__elements_between(&sum->shape, 1, sum->shape.rank);
    const size_t row = (size_t)inner * mu_dtype_bytes(dtype);
    for (int64_t i = 0; i < sum->shape.dims[0]; i++)
        mu__divide_elements(dtype, (char *)out + (size_t)i * row, (const char *)sum->values + (size_t)i * row, inner,
                            sum->counts[i]);
}

// ---- Dense gradients ----------------------------------------------------------------------------

static mu_status wrong_shape(const mu_accumulator *a, const mu_shape *seen, const mu_shape *wanted, const char *why)
{
    char seen_text[MU_SHAPE_TEXT], wanted_text[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT, "accumulator '%s': the gradient has the shape %s; expected %s, as %s",
                     a->resource.name, mu__shape_text(seen, seen_text), mu__shape_text(wanted, wanted_text), why);
}

static mu_status make_values(mu_gradient_sum *sum, mu_dtype dtype, const mu_shape *shape)
{
    sum->shape = *shape;
    sum->bytes = mu__spec_bytes(&(mu_spec){.dtype = dtype, .shape = *shape});
    sum->buffer = mu__buffer_new(sum->bytes);
    sum->values = sum->buffer ? sum->buffer->data : NULL;
    return sum->buffer ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status copy_dense(mu_accumulator *a, const mu_view *gradient)
{
    mu_gradient_sum *sum = &a->sum;
    const size_t bytes = mu__spec_bytes(&(mu_spec){.dtype = gradient->dtype, .shape = gradient->shape});
    MU_TRY(mu__accumulator_reserve(a, bytes));
    if (make_values(sum, gradient->dtype, &gradient->shape) != MU_OK) {
        mu__holder_give(&a->holder, bytes);
        *sum = (mu_gradient_sum){0};
        return MU_RESOURCE_EXHAUSTED;
    }
    if (bytes > 0)
        memcpy(sum->values, gradient->data, bytes);
    return MU_OK;
}

mu_status mu__dense_add(mu_accumulator *a, const mu_view *gradient)
{
    if (a->sum.n > 0 && !mu__shape_equal(&gradient->shape, &a->sum.shape))
        return wrong_shape(a, &gradient->shape, &a->sum.shape, "the first gradient after the last take had");
    if (a->declared_rank >= 0 && !mu__shape_compatible(&gradient->shape, &a->declared))
        return wrong_shape(a, &gradient->shape, &a->declared, "the accumulator was made with");
    if (a->sum.n == 0)
        return copy_dense(a, gradient);
    mu__add_elements(gradient->dtype, a->sum.values, gradient->data, mu__elements(&gradient->shape));
    return MU_OK;
}

// ---- Checks of sparse gradients -----------------------------------------------------------------

static mu_status check_form(const mu_accumulator *a, const mu_view *values, const mu_view *indices)
{
    char text[MU_SHAPE_TEXT];
    if (indices->shape.rank != 1)
        return mu__error(MU_INVALID_ARGUMENT, "accumulator '%s': the indices have the shape %s; they must be a vector",
                         a->resource.name, mu__shape_text(&indices->shape, text));
    if (values->shape.rank < 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "accumulator '%s': the values are a scalar; they must have one row for each index",
                         a->resource.name);
    if (values->shape.dims[0] != indices->shape.dims[0])
        return mu__error(
            MU_INVALID_ARGUMENT,
            "accumulator '%s': there are %lld indices, but %lld rows of values; give one row for each index",
            a->resource.name, (long long)indices->shape.dims[0], (long long)values->shape.dims[0]);
    return MU_OK;
}

static mu_status check_given_shape(const mu_accumulator *a, const mu_view *shape)
{
    const int64_t n = mu__elements(&shape->shape), *dims = shape->data;
    if (n < a->declared_rank)
        return mu__error(MU_INVALID_ARGUMENT,
                         "accumulator '%s': the gradient's shape has rank %lld; expected rank %d or more, as the "
                         "accumulator was made with",
                         a->resource.name, (long long)n, a->declared_rank);
    for (int i = 0; i < a->declared_rank; i++)
        if (a->declared.dims[i] != MU_UNKNOWN && a->declared.dims[i] != dims[i])
            return mu__error(MU_INVALID_ARGUMENT,
                             "accumulator '%s': dimension %d of the gradient's shape is %lld; expected %lld, as the "
                             "accumulator was made with",
                             a->resource.name, i, (long long)dims[i], (long long)a->declared.dims[i]);
    return MU_OK;
}

static mu_status check_indices(const mu_accumulator *a, const mu_view *indices)
{
    const int64_t *at = indices->data, n = indices->shape.dims[0];
    const int64_t rows = a->declared_rank > 0 && a->declared.dims[0] != MU_UNKNOWN ? a->declared.dims[0] : INT64_MAX;
    for (int64_t i = 0; i < n; i++)
        if (at[i] < 0 || at[i] >= rows)
            return mu__error(
                MU_INVALID_ARGUMENT,
                "accumulator '%s': index %lld (element %lld) is not in [0, %lld), the rows of the gradient",
                a->resource.name, (long long)at[i], (long long)i, (long long)rows);
    return MU_OK;
}

// The rows must look like those of the sum so far, or like the declared shape if there are none.
static mu_status check_rows(const mu_accumulator *a, const mu_shape *values)
{
    mu_shape wanted = a->sum.n > 0 ? a->sum.shape : a->declared;
    const int rank = a->sum.n > 0 ? wanted.rank : MU_MAX(a->declared_rank, 0);
    bool fits = a->sum.n > 0 ? values->rank == rank : values->rank >= rank;
    for (int i = 1; i < rank && fits; i++)
        fits = wanted.dims[i] == MU_UNKNOWN || wanted.dims[i] == values->dims[i];
    if (fits)
        return MU_OK;
    wanted.dims[0] = MU_UNKNOWN;
    return wrong_shape(a, values, &wanted,
                       a->sum.n > 0 ? "the values of the first gradient after the last take had"
                                    : "the accumulator was made with");
}

// ---- Merging sparse gradients -------------------------------------------------------------------

// A row of one list: its index, and where it is.
typedef struct indexed_row {
    int64_t index, at;
} indexed_row;

static int by_index(const void *a, const void *b)
{
    const indexed_row *p = a, *q = b;
    return p->index != q->index ? (p->index < q->index ? -1 : 1) : p->at < q->at ? -1 : p->at > q->at;
}

// Lists the rows by ascending index; rows with equal indices keep their order. The caller frees the list.
static indexed_row *sorted_rows(const int64_t *indices, int64_t n)
{
    indexed_row *rows = mu__calloc((size_t)n + 1, sizeof *rows);
    bool ascending = true;
    for (int64_t i = 0; rows && i < n; i++) {
        rows[i] = (indexed_row){.index = indices[i], .at = i};
        ascending &= i == 0 || indices[i - 1] <= indices[i];
    }
    if (rows && !ascending)
        qsort(rows, (size_t)n, sizeof *rows, by_index);
    return rows;
}

typedef struct merging {
    const mu_gradient_sum *before;
    const mu_view *values;
    const indexed_row *a, *b; // rows of the sum, and of the gradient
    int64_t n_a, n_b;
    size_t row_bytes;
    int64_t row_elements;
} merging;

// Merges both lists; with `out` NULL it only counts the rows of the result. Equal indices are paired one to one.
static int64_t merge(const merging *m, mu_gradient_sum *out)
{
    int64_t i = 0, k = 0, n = 0;
    for (; i < m->n_a || k < m->n_b; n++) {
        const bool from_a = i < m->n_a && (k == m->n_b || m->a[i].index <= m->b[k].index),
                   from_b = k < m->n_b && (i == m->n_a || m->b[k].index <= m->a[i].index);
        if (out) {
            char *row = (char *)out->values + (size_t)n * m->row_bytes;
            const void *added = (const char *)m->values->data + (size_t)(from_b ? m->b[k].at : 0) * m->row_bytes;
            const void *had = (const char *)m->before->values + (size_t)(from_a ? m->a[i].at : 0) * m->row_bytes;
            memcpy(row, from_a ? had : added, m->row_bytes);
            if (from_a && from_b)
                mu__add_elements(m->values->dtype, row, added, m->row_elements);
            out->indices[n] = from_a ? m->a[i].index : m->b[k].index;
            out->counts[n] = (from_a ? m->before->counts[m->a[i].at] : 0) + from_b;
        }
        i += from_a;
        k += from_b;
    }
    return n;
}

// Room for a sum of n rows in the place of the accumulator's; on failure there is nothing to free.
static mu_status make_room(mu_accumulator *a, mu_gradient_sum *sum, const mu_shape *row, int64_t n, mu_dtype dtype)
{
    mu_shape shape = *row;
    shape.dims[0] = n;
    const size_t had = mu__gradient_sum_bytes(&a->sum);
    const size_t needs = mu__spec_bytes(&(mu_spec){.dtype = dtype, .shape = shape}) +
                         (size_t)n * (sizeof *sum->indices + sizeof *sum->counts);
    const size_t more = needs - MU_MIN(had, needs); // rows never become fewer
    MU_TRY(mu__accumulator_reserve(a, more));
    if (make_values(sum, dtype, &shape) == MU_OK) {
        sum->indices = mu__calloc((size_t)n + 1, sizeof *sum->indices);
        sum->counts = mu__calloc((size_t)n + 1, sizeof *sum->counts);
    }
    if (sum->indices && sum->counts)
        return MU_OK;
    mu__gradient_sum_free(sum);
    mu__holder_give(&a->holder, more);
    return MU_RESOURCE_EXHAUSTED;
}

static mu_status copy_sparse(mu_accumulator *a, const mu_view *values, const mu_view *indices)
{
    const int64_t n = indices->shape.dims[0];
    mu_gradient_sum copy = {0};
    MU_TRY(make_room(a, &copy, &values->shape, n, values->dtype));
    if (copy.bytes > 0)
        memcpy(copy.values, values->data, copy.bytes);
    for (int64_t i = 0; i < n; i++) {
        copy.indices[i] = ((const int64_t *)indices->data)[i];
        copy.counts[i] = 1;
    }
    a->sum = copy;
    return MU_OK;
}

static mu_status merge_sparse(mu_accumulator *accumulator, const mu_view *values, const mu_view *indices)
{
    mu_gradient_sum *sum = &accumulator->sum;
    mu_gradient_sum merged = {.n = sum->n};
    indexed_row *a = sorted_rows(sum->indices, sum->shape.dims[0]);
    indexed_row *b = sorted_rows(indices->data, indices->shape.dims[0]);
    merging m = {.before = sum,
                 .values = values,
                 .a = a,
                 .b = b,
                 .n_a = sum->shape.dims[0],
                 .n_b = indices->shape.dims[0],
                 .row_elements = mu__elements_between(&values->shape, 1, values->shape.rank)};
    m.row_bytes = (size_t)m.row_elements * mu_dtype_bytes(values->dtype);
    const mu_status status = a && b ? make_room(accumulator, &merged, &values->shape, merge(&m, NULL), values->dtype)
                                    : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK) {
        merge(&m, &merged);
        mu__gradient_sum_free(sum);
        *sum = merged;
    }
    mu__free(a);
    mu__free(b);
    return status;
}

mu_status mu__sparse_add(mu_accumulator *a, const mu_view *values, const mu_view *indices, const mu_view *shape)
{
    MU_TRY(check_form(a, values, indices));
    if (shape)
        MU_TRY(check_given_shape(a, shape));
    MU_TRY(check_indices(a, indices));
    MU_TRY(check_rows(a, &values->shape));
    return a->sum.n > 0 ? merge_sparse(a, values, indices) : copy_sparse(a, values, indices);
}
