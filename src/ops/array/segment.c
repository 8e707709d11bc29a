// Segment reductions: rows with the same segment number are reduced together. Sums, products, minima, maxima and sorted
// float means are op definitions; the other means are composed of sums.
//
// The unsorted ops get the number of segments as an attribute. The sorted ones derive it from the last number, so their
// output shape depends on data. Rows are combined in order, so the rounding is deterministic. Ties share the gradient
// of a minimum or maximum.
#include "ops/core/attrs.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/array/index.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/ops.h>

static bool is_sorted_row(const mu_op *op) { return op->measure != NULL; }

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status segment_infer(mu_infer *infer)
{
    const bool sorted = is_sorted_row(infer->op);
    const int64_t n = sorted ? MU_UNKNOWN : ((const mu_segment_attrs *)infer->attrs)->n;
    const mu_shape *x = &infer->in[0].shape, *segments = &infer->in[1].shape;
    mu_shape head = *x, out = {.rank = 1, .dims = {n}};
    head.rank = segments->rank;
    MU_TRY(mu__need_indices(infer, 1));
    if (segments->rank > x->rank || !mu__shape_compatible(&head, segments) || (sorted && segments->rank != 1) ||
        (!sorted && n < 0)) {
        char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT, "%s: segments of shape %s for shape %s; they must be %s", infer->op->name,
                         mu__shape_text(segments, a), mu__shape_text(x, b),
                         sorted ? "a vector as long as its first axis"
                                : "its first axes, and their number not negative");
    }
    for (int i = segments->rank; i < x->rank; i++)
        out.dims[out.rank++] = x->dims[i];
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = out};
    return MU_OK;
}

static mu_status sorted_measure(const mu_kernel *k, mu_spec *out)
{
    const int64_t rows = k->in[1].shape.dims[0];
    int64_t last = -1;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t segment = mu__index_at(&k->in[1], i);
        if (segment < 0 || segment < last || segment >= INT32_MAX)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: segment %lld (element %lld) follows %lld; they must ascend from 0 on", k->op->name,
                             (long long)segment, (long long)i, (long long)last);
        last = segment;
    }
    out[0].shape.dims[0] = last + 1;
    return MU_OK;
}

// ---- Kernel -------------------------------------------------------------------------------------

static double lowest_of(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return -0x1.fffffffffffffp1023;
    case MU_F16: return -65504;
    case MU_BF16: return -0x1.fep127;
    case MU_F32: return -0x1.fffffep127;
    default: return -INFINITY; // conversion to integers saturates
    }
}

static double highest_of(mu_dtype dtype) { return -lowest_of(dtype); }

double mu__segment_neutral(const mu_op *op, mu_dtype dtype)
{
    switch (op->variant) {
    case MU_COMBINE_MULTIPLY: return 1;
    case MU_COMBINE_MAX: return is_sorted_row(op) ? 0 : lowest_of(dtype);
    case MU_COMBINE_MIN: return is_sorted_row(op) ? 0 : highest_of(dtype);
    default: return 0;
    }
}

// Indices checked at once.
enum { BLOCK = 512 };

// Fills rows [begin, end) of the result with the neutral element.
static void fill_neutral(const mu_kernel *k, int64_t begin, int64_t end, size_t bytes)
{
    const mu_dtype dtype = k->out[0].dtype;
    const double neutral = mu__segment_neutral(k->op, dtype);
    char element[sizeof(double)], *to = (char *)k->out[0].data + (size_t)begin * bytes;
    const size_t all = (size_t)(end - begin) * bytes;
    if (all == 0)
        return;
    if (neutral == 0) {
        memset(to, 0, all);
        return;
    }
    mu__write_element(dtype, element, 0, neutral);
    mu__fill(to, element, mu_dtype_bytes(dtype), (int64_t)(all / mu_dtype_bytes(dtype)));
}

// Combines rows [first, first + count), some of which may have a negative segment number, which means that they are
// skipped.
static mu_status combine_some(const mu_kernel *k, int64_t first, int64_t count, int64_t inner)
{
    const int64_t n = k->out[0].shape.dims[0];
    const size_t bytes = (size_t)inner * mu_dtype_bytes(k->in[0].dtype);
    for (int64_t i = first; i < first + count; i++) {
        const int64_t segment = mu__index_at(&k->in[1], i);
        if (segment >= n)
            return mu__index_error(k, i, segment, n);
        if (segment >= 0)
            mu__accumulate((mu_combine)k->op->variant, k->in[0].dtype, (char *)k->out[0].data + (size_t)segment * bytes,
                           (const char *)k->in[0].data + (size_t)i * bytes, inner);
    }
    return MU_OK;
}

// Rows of one element: checks each segment number while combining, up to the first one outside.
static mu_status combine_unsorted_numbers(const mu_kernel *k, int64_t rows)
{
    const mu_view *x = &k->in[0], *segments = &k->in[1];
    const bool wide = segments->dtype == MU_I64;
    for (int64_t i = 0, some; i < rows; i += some) {
        const mu_scatter_indices indices = {
            .kind = wide ? MU_INDICES_I64 : MU_INDICES_I32,
            .dims = {(uint64_t)k->out[0].shape.dims[0]},
            .indices = (const char *)segments->data + (size_t)i * mu_dtype_bytes(segments->dtype),
        };
        i += mu__scatter_numbers(k->op->variant, x->dtype, k->out[0].data, &indices,
                                 (const char *)x->data + (size_t)i * mu_dtype_bytes(x->dtype), rows - i);
        some = MU_MIN((int64_t)BLOCK, rows - i);
        MU_TRY(combine_some(k, i, some, 1));
    }
    return MU_OK;
}

// Combines rows into their segments, a block at a time if no row of the block is skipped.
static mu_status combine_unsorted(const mu_kernel *k, int64_t rows, int64_t inner)
{
    int64_t copied[BLOCK];
    const mu_view *segments = &k->in[1];
    const mu_dtype dtype = k->in[0].dtype;
    for (int64_t i = 0; i < rows; i += BLOCK) {
        const int64_t n = MU_MIN((int64_t)BLOCK, rows - i);
        if (mu__indices_inside(segments, i, n, k->out[0].shape.dims[0]))
            mu__accumulate_at((mu_combine)k->op->variant, dtype, k->out[0].data,
                              mu__indices_in_place(segments, i, n, copied),
                              (const char *)k->in[0].data + (size_t)(i * inner) * mu_dtype_bytes(dtype), inner, n);
        else
            MU_TRY(combine_some(k, i, n, inner));
    }
    return MU_OK;
}

MU_PER_ISA(divide_f32, (float *y, float count, int64_t n), (y, count, n))
{
    for (int64_t i = 0; i < n; i++)
        y[i] /= count;
}

MU_PER_ISA(divide_f64, (double *y, double count, int64_t n), (y, count, n))
{
    for (int64_t i = 0; i < n; i++)
        y[i] /= count;
}

// Divides 16-bit floats as float32, because more counts are exact in float32.
static void divide_float16(mu_dtype dtype, uint16_t *y, float count, int64_t n)
{
    float wide[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t some = MU_MIN((int64_t)BLOCK, n - at);
        mu__convert(MU_F32, wide, dtype, y + at, some);
        divide_f32(wide, count, some);
        mu__convert(dtype, y + at, MU_F32, wide, some);
    }
}

// For means: divides y, the sums of `rows` rows of n elements, while it is in the cache.
static void finish_segment(const mu_kernel *k, void *y, int64_t rows, int64_t n)
{
    const mu_dtype dtype = k->out[0].dtype;
    if (k->op != &mu_op_segment_mean || rows < 2)
        return;
    if (dtype == MU_F32)
        divide_f32(y, (float)rows, n);
    else if (dtype == MU_F64)
        divide_f64(y, (double)rows, n);
    else
        divide_float16(dtype, y, (float)rows, n);
}

// End of the run of rows with the same segment number as row i.
static int64_t segment_end(const mu_kernel *k, int64_t i, int64_t rows)
{
    const int64_t segment = mu__index_at(&k->in[1], i);
    while (++i < rows && mu__index_at(&k->in[1], i) == segment)
        continue;
    return i;
}

// The first row of a sorted segment is copied, and the others are combined with it. Only empty segments are filled.
static void combine_sorted_rows(const mu_kernel *k, int64_t rows, int64_t inner)
{
    const size_t bytes = (size_t)inner * mu_dtype_bytes(k->in[0].dtype);
    const char *from = k->in[0].data;
    for (int64_t i = 0, next, done = 0; i < rows; i = next) {
        const int64_t segment = mu__index_at(&k->in[1], i);
        char *to = (char *)k->out[0].data + (size_t)segment * bytes;
        next = segment_end(k, i, rows);
        fill_neutral(k, done, segment, bytes);
        memcpy(to, from + (size_t)i * bytes, bytes);
        for (int64_t j = i + 1; j < next; j++)
            mu__accumulate((mu_combine)k->op->variant, k->in[0].dtype, to, from + (size_t)j * bytes, inner);
        finish_segment(k, to, next - i, inner);
        done = segment + 1;
    }
}

// The same for rows of one element: first copies the rows that begin segments, then combines the others.
static void combine_sorted_numbers(const mu_kernel *k, int64_t rows)
{
    const mu_dtype dtype = k->in[0].dtype;
    const size_t bytes = mu_dtype_bytes(dtype);
    const char *from = k->in[0].data;
    char others[BLOCK * sizeof(int64_t)], *out = k->out[0].data;
    int64_t segments[BLOCK], last = -1;
    fill_neutral(k, 0, k->out[0].shape.dims[0], bytes);
    for (int64_t i = 0; i < rows; i += BLOCK) {
        const int64_t n = MU_MIN((int64_t)BLOCK, rows - i);
        int64_t left = 0;
        mu__indices_of(&k->in[1], i, n, segments);
        for (int64_t j = 0; j < n; j++) {
            const int64_t segment = segments[j];
            const bool begins = segment != last;
            memcpy(begins ? out + (size_t)segment * bytes : others + (size_t)left * bytes,
                   from + (size_t)(i + j) * bytes, bytes);
            segments[left] = segment;
            left += !begins;
            last = segment;
        }
        mu__accumulate_at((mu_combine)k->op->variant, dtype, out, segments, others, 1, left);
    }
    if (k->op == &mu_op_segment_mean)
        for (int64_t i = 0, next; i < rows; i = next) {
            next = segment_end(k, i, rows);
            finish_segment(k, out + (size_t)mu__index_at(&k->in[1], i) * bytes, next - i, 1);
        }
}

// In the order of the rows. A sorted segment starts from its first row, an unsorted one from the neutral element.
static mu_status combine_plainly(const mu_kernel *k, const mu_totals *totals, int64_t inner, int64_t *counts)
{
    const mu_view *x = &k->in[0], *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&x->shape); i++) {
        const int64_t segment = mu__index_at(&k->in[1], i / inner), to = segment * inner + i % inner;
        if (segment >= out->shape.dims[0])
            return mu__index_error(k, i / inner, segment, out->shape.dims[0]);
        if (segment < 0)
            continue;
        const bool first = counts[segment] == 0;
        counts[segment] += i % inner == inner - 1;
        if (!first || !is_sorted_row(k->op))
            mu__totals_combine(totals, (mu_combine)k->op->variant, to, x, i);
        else if (totals->reals)
            totals->reals[to] = mu__read_real(x, i);
        else
            mu__copy_element(out, to, x, i);
    }
    for (int64_t i = 0; k->op == &mu_op_segment_mean && i < mu__elements(&out->shape); i++)
        totals->reals[i] /= (double)MU_MAX(counts[i / inner], 1);
    return MU_OK;
}

static mu_status segment_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0], *out = &k->out[0];
    const int64_t inner = mu__elements_between(&x->shape, k->in[1].shape.rank, x->shape.rank);
    int64_t *counts = mu__calloc((size_t)out->shape.dims[0], sizeof *counts);
    mu_totals totals = {0};
    mu_status status = counts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    MU_GO(status);
    for (int64_t i = 0; i < mu__elements(&out->shape); i++)
        mu__write_real(out, i, mu__segment_neutral(k->op, out->dtype));
    MU_GO(mu__totals_open(&totals, out));
    status = combine_plainly(k, &totals, inner, counts);
    mu__totals_close(&totals);
out:
    mu__free(counts);
    return status;
}

static mu_status segment_fast(const mu_kernel *k)
{
    const mu_shape *x = &k->in[0].shape, *segments = &k->in[1].shape;
    const int64_t n = k->out[0].shape.dims[0], rows = mu__elements(segments);
    const int64_t inner = mu__elements_between(x, segments->rank, x->rank);
    if (is_sorted_row(k->op)) {
        if (inner == 1)
            combine_sorted_numbers(k, rows);
        else if (inner > 0)
            combine_sorted_rows(k, rows, inner);
        return MU_OK;
    }
    // Sums and products of many 16-bit floats are too inexact in 16 bits.
    if (mu_dtype_bytes(k->in[0].dtype) == 2 && mu__dtype_is_float(k->in[0].dtype) && k->op->variant != MU_COMBINE_MAX &&
        k->op->variant != MU_COMBINE_MIN)
        return mu__run_as_f32(k, segment_fast);
    fill_neutral(k, 0, n, (size_t)inner * mu_dtype_bytes(k->in[0].dtype));
    return inner == 1 ? combine_unsorted_numbers(k, rows) : combine_unsorted(k, rows, inner);
}

// ---- Gradients ----------------------------------------------------------------------------------

// True where a row is not skipped, with axes of size 1 up to x's rank.
static mu_tensor *takes_part(mu_tensor *segments, const mu_tensor *x)
{
    mu_tensor *counts = mu_greater_equal(segments, mu__scalar_like(segments, 0));
    for (int axis = segments->shape.rank; counts && axis < x->shape.rank; axis++)
        counts = mu_expand_dims(counts, -1);
    return counts;
}

// For each row, its segment's entry of the table; entry 0 for skipped rows.
static mu_tensor *spread(mu_tensor *table, mu_tensor *segments, const mu_tensor *x)
{
    mu_tensor *taken = mu_gather(table, mu_maximum(segments, mu__scalar_like(segments, 0)), 0, 0);
    return taken ? mu_where(takes_part(segments, x), taken, mu__scalar_like(taken, 0)) : NULL;
}

static mu_tensor *sum_like(const mu_grad *g, mu_tensor *x)
{
    return is_sorted_row(g->op) ? mu_segment_sum(x, g->x[1])
                                : mu__apply2(&mu_op_unsorted_segment_sum, g->attrs, x, g->x[1]);
}

static mu_tensor *sum_grad(mu_grad *g, int i) { return i == 0 ? spread(g->dy, g->x[1], g->x[0]) : NULL; }

// The number of rows per segment (at least 1), with axes of size 1 up to the sums' rank.
static mu_tensor *at_least_one(mu_tensor *counts, const mu_tensor *sums)
{
    counts = counts ? mu_maximum(counts, mu__scalar_like(counts, 1)) : NULL;
    for (int axis = 1; counts && sums && axis < sums->shape.rank; axis++)
        counts = mu_expand_dims(counts, -1);
    return counts;
}

static mu_tensor *ones_for(mu_tensor *x, mu_tensor *segments)
{
    return x && segments ? mu_cast(mu_ones_like(segments), x->dtype) : NULL;
}

static mu_tensor *mean_grad(mu_grad *g, int i)
{
    if (i != 0)
        return NULL;
    mu_tensor *counts = at_least_one(mu_segment_sum(ones_for(g->dy, g->x[1]), g->x[1]), g->dy);
    return spread(mu_divide(g->dy, counts), g->x[1], g->x[0]);
}

static mu_tensor *minmax_grad(mu_grad *g, int i)
{
    if (i != 0)
        return NULL;
    mu_tensor *chosen = mu_equal(g->x[0], spread(g->y[0], g->x[1], g->x[0]));
    chosen = chosen ? mu_cast(mu_logical_and(chosen, takes_part(g->x[1], g->x[0])), g->dy->dtype) : NULL;
    mu_tensor *share = mu_divide_no_nan(g->dy, sum_like(g, chosen));
    return mu_multiply(spread(share, g->x[1], g->x[0]), chosen);
}

// The product of the other rows: the product divided by the row, or the product without zeros for a segment with one
// zero. With more than one zero the gradient is 0.
static mu_tensor *product_grad(mu_grad *g, int i)
{
    if (i != 0)
        return NULL;
    mu_tensor *x = g->x[0], *zero = mu__scalar_like(x, 0), *one = mu__scalar_like(x, 1), *is_zero = mu_equal(x, zero);
    mu_tensor *zeros = is_zero ? sum_like(g, mu_cast(is_zero, x->dtype)) : NULL,
              *in[] = {mu_where(is_zero, one, x), g->x[1]};
    mu_tensor *others = mu__apply_n(g->op, g->attrs, 2, in);
    mu_tensor *dy = mu_where(mu_greater(zeros, one), zero, g->dy);
    mu_tensor *by_division = mu_divide_no_nan(spread(g->y[0], g->x[1], x), x);
    mu_tensor *derivative = mu_where(is_zero, spread(others, g->x[1], x), by_division);
    return mu_multiply(spread(dy, g->x[1], x), derivative);
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attr_spec segment_attrs[] = {{"n", MU_ATTR_INT, offsetof(mu_segment_attrs, n)}, {0}};
static const mu_segment_attrs four_segments = {4};
static const mu_sample samples_segment[] = {
    {.n_in = 2,
     .in = {MU_DIMS(5, 3), MU_DIMS(5)},
     .dtypes = {0, MU_I32},
     .low = {0, -1},
     .high = {0, 4},
     .attrs = &four_segments},
    {.n_in = 2, .in = {MU_DIMS(2, 3), MU_DIMS(2, 3)}, .dtypes = {0, MU_I64}, .high = {0, 4}, .attrs = &four_segments},
    {.n_in = 2,
     .in = {MU_DIMS(9), MU_DIMS(9)},
     .dtypes = {0, MU_I32},
     .low = {0, -1},
     .high = {0, 4},
     .attrs = &four_segments},
    {0},
};
// The maximum of an empty segment is the lowest value of its type, which overflows in sums; in this sample no segment
// is empty.
static const mu_segment_attrs one_segment = {1};
static const mu_sample samples_minmax[] = {
    {.n_in = 2,
     .in = {MU_DIMS(5, 3), MU_DIMS(5)},
     .dtypes = {0, MU_I32},
     .low = {0, -1},
     .high = {0, 1},
     .attrs = &one_segment},
    {.n_in = 2, .in = {MU_DIMS(2, 3), MU_DIMS(2, 3)}, .dtypes = {0, MU_I64}, .high = {0, 1}, .attrs = &one_segment},
    {0},
};
static const mu_sample samples_sorted[] = {
    {.n_in = 2, .in = {MU_DIMS(5, 3), MU_DIMS(5)}, .dtypes = {0, MU_I32}, .high = {0, 1}},
    {0},
};

#define UNSORTED(text, which, rule, some)                                                                      \
    {                                                                                                          \
        .name = text, .variant = which, .n_in = 2, .n_out = 1, .dtypes = MU_NUMBERS, .fails_for = MU_NUMBERS,  \
        .attrs_bytes = sizeof(mu_segment_attrs), .attrs = segment_attrs, .infer = segment_infer, .grad = rule, \
        .ref = segment_ref, .cpu = {.run = segment_fast}, .samples = some, .lower = mu__lower_segment          \
    }
#define SORTED_REASON                                                                                                \
    "the last segment's number determines how many segments there are; use the unsorted form, which is given their " \
    "number"
#define SORTED(text, which, types, rule)                                                                       \
    {                                                                                                          \
        .name = text, .variant = which, .n_in = 2, .n_out = 1, .dtypes = types, .flags = MU_OP_DATA_DEPENDENT, \
        .infer = segment_infer, .grad = rule, .ref = segment_ref, .cpu = {.run = segment_fast},                \
        .measure = sorted_measure, .samples = samples_sorted, .no_lowering = SORTED_REASON                     \
    }

const mu_op mu_op_unsorted_segment_sum = UNSORTED("unsorted_segment_sum", MU_COMBINE_ADD, sum_grad, samples_segment);
const mu_op mu_op_unsorted_segment_prod =
    UNSORTED("unsorted_segment_prod", MU_COMBINE_MULTIPLY, product_grad, samples_segment);
const mu_op mu_op_unsorted_segment_max = UNSORTED("unsorted_segment_max", MU_COMBINE_MAX, minmax_grad, samples_minmax);
const mu_op mu_op_unsorted_segment_min = UNSORTED("unsorted_segment_min", MU_COMBINE_MIN, minmax_grad, samples_minmax);
const mu_op mu_op_segment_sum = SORTED("segment_sum", MU_COMBINE_ADD, MU_NUMBERS, sum_grad);
const mu_op mu_op_segment_mean = SORTED("segment_mean", MU_COMBINE_ADD, MU_FLOATS, mean_grad);
const mu_op mu_op_segment_prod = SORTED("segment_prod", MU_COMBINE_MULTIPLY, MU_NUMBERS, product_grad);
const mu_op mu_op_segment_max = SORTED("segment_max", MU_COMBINE_MAX, MU_NUMBERS, minmax_grad);
const mu_op mu_op_segment_min = SORTED("segment_min", MU_COMBINE_MIN, MU_NUMBERS, minmax_grad);

// ---- Public functions ---------------------------------------------------------------------------

static mu_tensor *unsorted(const mu_op *op, mu_tensor *x, mu_tensor *segments, int64_t n)
{
    mu_segment_attrs attrs = {.n = n};
    return mu__apply2(op, &attrs, x, mu__wide_indices(segments));
}

mu_tensor *mu_unsorted_segment_sum(mu_tensor *x, mu_tensor *segments, int64_t n)
{
    return unsorted(&mu_op_unsorted_segment_sum, x, segments, n);
}

mu_tensor *mu_unsorted_segment_prod(mu_tensor *x, mu_tensor *segments, int64_t n)
{
    return unsorted(&mu_op_unsorted_segment_prod, x, segments, n);
}

mu_tensor *mu_unsorted_segment_max(mu_tensor *x, mu_tensor *segments, int64_t n)
{
    return unsorted(&mu_op_unsorted_segment_max, x, segments, n);
}

mu_tensor *mu_unsorted_segment_min(mu_tensor *x, mu_tensor *segments, int64_t n)
{
    return unsorted(&mu_op_unsorted_segment_min, x, segments, n);
}

mu_tensor *mu_unsorted_segment_mean(mu_tensor *x, mu_tensor *segments, int64_t n)
{
    if (mu__pending())
        return NULL;
    mu_tensor *sums = mu_unsorted_segment_sum(x, segments, n);
    mu_tensor *counts = at_least_one(mu_unsorted_segment_sum(ones_for(x, segments), segments, n), sums);
    return mu__composed2("unsorted_segment_mean", x, segments, mu_divide(sums, counts));
}

mu_tensor *mu_unsorted_segment_sqrt_n(mu_tensor *x, mu_tensor *segments, int64_t n)
{
    if (mu__pending())
        return NULL;
    mu_tensor *sums = mu_unsorted_segment_sum(x, segments, n);
    mu_tensor *counts = at_least_one(mu_unsorted_segment_sum(ones_for(x, segments), segments, n), sums);
    return mu__composed2("unsorted_segment_sqrt_n", x, segments, mu_divide(sums, mu_sqrt(counts)));
}

// Means of integers are integers, rounded towards 0. Their sums need not fit the type.
static mu_tensor *whole_segment_mean(mu_tensor *x, mu_tensor *segments)
{
    mu_tensor *wide = mu_cast(x, MU_I64), *sums = mu_segment_sum(wide, segments);
    mu_tensor *counts = at_least_one(mu_segment_sum(ones_for(wide, segments), segments), sums);
    mu_tensor *none = mu__scalar_like(sums, 0);
    mu_tensor *up = mu_logical_and(mu_less(sums, none), mu_not_equal(mu_mod(sums, counts), none));
    return mu_cast(mu_add(mu_floor_divide(sums, counts), mu_cast(up, MU_I64)), x->dtype);
}

mu_tensor *mu_segment_mean(mu_tensor *x, mu_tensor *segments)
{
    if (mu__pending())
        return NULL;
    if (x && segments && mu__dtype_is_integer(x->dtype))
        return mu__composed2("segment_mean", x, segments, whole_segment_mean(x, segments));
    return mu__apply2(&mu_op_segment_mean, NULL, x, segments);
}

// ---- Indexed slices -----------------------------------------------------------------------------

mu_value *mu_indexed_slices(mu_tensor *values, mu_tensor *indices, int rank, const int64_t *dims)
{
    if (mu__pending())
        return NULL;
    indices = mu__wide_indices(indices);
    const bool given = values && indices && dims && rank >= 1 && rank <= MU_MAX_RANK;
    if (!given || indices->shape.rank != 1 || (indices->dtype != MU_I32 && indices->dtype != MU_I64) ||
        values->shape.rank != rank) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_indexed_slices: values must have the rank of the shape, indices must be a vector of int8 to "
                  "int64, and the shape must have rank 1 to %d",
                  MU_MAX_RANK);
        return NULL;
    }
    mu_shape wanted = mu_shape_make(rank, dims);
    wanted.dims[0] = indices->shape.dims[0];
    if (!mu__shape_compatible(&wanted, &values->shape)) {
        char seen[MU_SHAPE_TEXT], text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_indexed_slices: the values have shape %s; for these indices and this shape they must have %s",
                  mu__shape_text(&values->shape, seen), mu__shape_text(&wanted, text));
        return NULL;
    }
    const int64_t rows = rank;
    mu_value *parts[] = {mu_of(values), mu_of(indices), mu_of(mu_tensor_new(MU_I64, 1, &rows, dims))};
    return mu__pending() ? NULL : mu__give(mu__value_container(MU_VALUE_SLICES, 3, parts, NULL));
}

mu_tensor *mu_convert_to_tensor(const mu_value *value)
{
    if (mu__pending())
        return NULL;
    if (!value || value->kind != MU_VALUE_SLICES) {
        if (!value)
            mu__error(MU_INVALID_ARGUMENT, "mu_convert_to_tensor: the value is NULL");
        return mu_value_tensor(value);
    }
    const mu_tensor *shape = mu_at(value, 2);
    if (!shape || shape->node) {
        mu__error(MU_UNIMPLEMENTED, "mu_convert_to_tensor: the shape of these slices is an argument of the function "
                                    "that is traced, so the result would have no known shape; make the slices inside");
        return NULL;
    }
    mu_tensor *values = mu_at(value, 0), *indices = mu_at(value, 1);
    const int64_t *rows = mu__host_read(shape);
    return rows ? mu__composed2("convert_to_tensor", values, indices, mu_unsorted_segment_sum(values, indices, rows[0]))
                : NULL;
}
