// Ops that sort elements: sort, top_k.
//
// Elements are converted to words that hold key and index (sort_keys.h), so one sort serves all types and is stable.
// NaNs come last in both directions. The team shares the rows, which are along the last axis; other axes are transposed
// first.
#include "ops/core/attrs.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/array/sort_keys.h"

#include <muster/ops.h>

static int64_t last_dim(const mu_shape *shape) { return shape->dims[shape->rank - 1]; }

// One thread's part: the first `count` elements of each row, with their indices.
typedef struct sort_job {
    const mu_kernel *kernel;
    int64_t n, count;
    bool descending;
    _Atomic bool exhausted;
} sort_job;

static void sort_rows(void *arg, int64_t begin, int64_t end)
{
    sort_job *job = arg;
    const mu_view *x = &job->kernel->in[0], *values = &job->kernel->out[0];
    const size_t bytes = mu_dtype_bytes(x->dtype);
    const bool search = mu__sort_keys_can_search(x->dtype, job->n, job->count);
    mu_sort_keys words;
    if (mu__sort_keys_open(&words, x->dtype, job->n, job->descending) != MU_OK) {
        job->exhausted = true;
        return;
    }
    for (int64_t row = begin, rows; row < end; row += rows) {
        const char *from = (const char *)x->data + (size_t)(row * job->n) * bytes;
        rows = search ? 1 : MU_MIN(words.batch, end - row);
        if (search)
            mu__sort_keys_first(&words, from, job->count);
        else
            mu__sort_keys_sort(&words, from, rows);
        mu__sort_keys_take(&words, from, rows, job->count, (char *)values->data + (size_t)(row * job->count) * bytes,
                           (int32_t *)job->kernel->out[1].data + row * job->count);
    }
    mu__sort_keys_close(&words);
}

static mu_status write_first(const mu_kernel *k, bool descending, int64_t count)
{
    const mu_shape *shape = &k->in[0].shape;
    const int64_t n = last_dim(shape), work = mu__elements(shape);
    sort_job job = {.kernel = k, .n = n, .count = count, .descending = descending};
    if (n > INT32_MAX)
        return mu__error(MU_OUT_OF_RANGE, "%s: a row has %lld elements; the limit of int32 indices is %d", k->op->name,
                         (long long)n, INT32_MAX);
    if (work > 0 && count > 0)
        mu__share_range(k->team, work / n, 1, work, sort_rows, &job);
    return job.exhausted ? mu__error(MU_RESOURCE_EXHAUSTED, "%s: no memory to order rows of %lld elements", k->op->name,
                                     (long long)n)
                         : MU_OK;
}

// Whether element i of a row must come before element j, which is in front of it. NaNs come last.
static bool comes_before(const mu_view *x, int64_t i, int64_t j, bool descending)
{
    if (!mu__dtype_is_float(x->dtype)) {
        const int64_t a = mu__read_whole(x, i), b = mu__read_whole(x, j);
        return descending ? a > b : a < b;
    }
    const double a = mu__read_real(x, i), b = mu__read_real(x, j);
    return (descending ? a > b : a < b) || (a == a && b != b);
}

// A stable insertion sort of each row, which keeps the first `count` elements.
static mu_status write_first_plainly(const mu_kernel *k, bool descending, int64_t count)
{
    const mu_view *x = &k->in[0];
    const int64_t n = last_dim(&x->shape), rows = n > 0 ? mu__elements(&x->shape) / n : 0;
    int32_t *order = mu__alloc((size_t)n * sizeof *order);
    if (!order)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0, at; i < n; i++) {
            for (at = i; at > 0 && comes_before(x, row * n + i, row * n + order[at - 1], descending); at--)
                order[at] = order[at - 1];
            order[at] = (int32_t)i;
        }
        for (int64_t i = 0; i < count; i++) {
            mu__copy_element(&k->out[0], row * count + i, x, row * n + order[i]);
            ((int32_t *)k->out[1].data)[row * count + i] = order[i];
        }
    }
    mu__free(order);
    return MU_OK;
}

static mu_status need_an_axis(const mu_infer *infer)
{
    if (infer->in[0].shape.rank > 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: a scalar has no axis to sort along", infer->op->name);
}

static mu_status sort_infer(mu_infer *infer)
{
    MU_TRY(need_an_axis(infer));
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->out[1].dtype = MU_I32;
    return MU_OK;
}

static mu_status sort_ref(const mu_kernel *k)
{
    return write_first_plainly(k, ((const mu_sort_attrs *)k->attrs)->descending, last_dim(&k->in[0].shape));
}

static mu_status sort_fast(const mu_kernel *k)
{
    return write_first(k, ((const mu_sort_attrs *)k->attrs)->descending, last_dim(&k->in[0].shape));
}

// Scatters the gradient back to the positions of the values.
static mu_tensor *ordered_grad(mu_grad *g, int i)
{
    int last = g->x[0]->shape.rank - 1;
    mu_gather_attrs attrs = {.axis = last, .batch_dims = last};
    (void)i;
    return mu__apply3(&mu_op_gather_grad, &attrs, g->dy, g->y[1], g->x[0]);
}

static const mu_attr_spec sort_attrs[] = {{"descending", MU_ATTR_BOOL, offsetof(mu_sort_attrs, descending)}, {0}};
static const mu_sort_attrs up = {false}, down = {true};
static const mu_sample samples_sort[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 7)}, .attrs = &up},
    {.n_in = 1, .in = {MU_DIMS(7)}, .attrs = &down},
    {.n_in = 1, .in = {MU_DIMS(3, 0)}, .attrs = &down},
    {0},
};
const mu_op mu_op_sort = {
    .name = "sort",
    .n_in = 1,
    .n_out = 2,
    .dtypes = MU_NUMBERS,
    .attrs_bytes = sizeof(mu_sort_attrs),
    .attrs = sort_attrs,
    .infer = sort_infer,
    .grad = ordered_grad,
    .ref = sort_ref,
    .cpu = {.run = sort_fast},
    .samples = samples_sort,
    .lower = mu__lower_sort,
};

// Sorts along any axis and returns output `which`, in x's order of axes. Errors name `function`.
static mu_tensor *sorted(mu_tensor *x, int axis, bool descending, int which, const char *function)
{
    mu_tensor *out[2];
    mu_sort_attrs attrs;
    int axes[MU_MAX_RANK], at = !x || mu__pending() ? 0 : mu__axis(axis, x->shape.rank, function);
    memset(&attrs, 0, sizeof attrs);
    attrs.descending = descending;
    int last = x ? x->shape.rank - 1 : 0;
    for (int i = 0; i < MU_MAX_RANK; i++)
        axes[i] = i == at ? last : i == last ? at : i;
    bool transposed = x && at >= 0 && at != last;
    mu_tensor *in = transposed ? mu_transpose(x, axes) : x;
    if (mu__apply(&mu_op_sort, &attrs, 1, &in, 0, NULL, out) != MU_OK)
        return mu__called(function, &mu_op_sort, NULL);
    return transposed ? mu_transpose(out[which], axes) : out[which];
}

mu_tensor *mu_sort(mu_tensor *x, int axis, bool descending) { return sorted(x, axis, descending, 0, "sort"); }

mu_tensor *mu_argsort(mu_tensor *x, int axis, bool descending) { return sorted(x, axis, descending, 1, "argsort"); }

static mu_status top_k_infer(mu_infer *infer)
{
    int64_t k = ((const mu_top_k_attrs *)infer->attrs)->k;
    MU_TRY(need_an_axis(infer));
    mu_shape shape = infer->in[0].shape;
    int64_t n = last_dim(&shape);
    if (k < 0 || (n != MU_UNKNOWN && k > n))
        return mu__error(MU_INVALID_ARGUMENT, "top_k: the %lld largest of an axis of size %lld", (long long)k,
                         (long long)n);
    shape.dims[shape.rank - 1] = k;
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = shape};
    infer->out[1] = (mu_spec){.dtype = MU_I32, .shape = shape};
    return MU_OK;
}

static mu_status top_k_ref(const mu_kernel *k)
{
    return write_first_plainly(k, true, ((const mu_top_k_attrs *)k->attrs)->k);
}

static mu_status top_k_fast(const mu_kernel *k) { return write_first(k, true, ((const mu_top_k_attrs *)k->attrs)->k); }

static const mu_attr_spec top_k_attrs[] = {{"k", MU_ATTR_INT, offsetof(mu_top_k_attrs, k)}, {0}};
static const mu_top_k_attrs three = {3}, none = {0};
static const mu_sample samples_top_k[] = {
    {.n_in = 1, .in = {MU_DIMS(2, 7)}, .attrs = &three},
    {.n_in = 1, .in = {MU_DIMS(2, 3)}, .attrs = &none},
    {0},
};
const mu_op mu_op_top_k = {
    .name = "top_k",
    .n_in = 1,
    .n_out = 2,
    .dtypes = MU_NUMBERS,
    .attrs_bytes = sizeof(mu_top_k_attrs),
    .attrs = top_k_attrs,
    .infer = top_k_infer,
    .grad = ordered_grad,
    .ref = top_k_ref,
    .cpu = {.run = top_k_fast},
    .samples = samples_top_k,
    .lower = mu__lower_sort,
};

static mu_status apply_pair(const mu_op *op, const void *attrs, mu_tensor *x, mu_tensor **first, mu_tensor **second)
{
    mu_tensor *out[2];
    mu_status status = mu__apply(op, attrs, 1, &x, 0, NULL, out);
    if (first)
        *first = out[0];
    if (second)
        *second = out[1];
    return status;
}

mu_status mu_top_k(mu_tensor *x, int64_t k, mu_tensor **values, mu_tensor **indices)
{
    mu_top_k_attrs attrs = {.k = k};
    return apply_pair(&mu_op_top_k, &attrs, x, values, indices);
}
