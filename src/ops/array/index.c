// Ops that read and write slices at positions given by another tensor: gather, scatter, one-hot.
//
// An index outside its axis is an error that names the index, never a read out of bounds. Writes happen in the order of
// the indices, so duplicate indices have one defined result. The gradient of a gather adds slices into zeros.
#include "ops/core/attrs.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/array/index.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"

#include <muster/ops.h>

// Indices, or rows of indices, converted to offsets at a time.
enum { ROWS = 512 };

mu_status mu__need_indices(const mu_infer *infer, int i)
{
    mu_dtype dtype = infer->in[i].dtype;
    if (dtype == MU_I32 || dtype == MU_I64)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the indices have type %s; they must be int32 or int64", infer->op->name,
                     mu_dtype_name(dtype));
}

mu_tensor *mu__wide_indices(mu_tensor *indices)
{
    const unsigned narrow = MU_DTYPE_BIT(MU_I8) | MU_DTYPE_BIT(MU_I16);
    return indices && narrow & MU_DTYPE_BIT(indices->dtype) ? mu_cast(indices, MU_I32) : indices;
}

// ---- gather: [batch, outer, n, inner] read at indices [batch, m] --------------------------------

typedef struct gather_shape {
    int64_t batch, outer, n, inner, m;
} gather_shape;

static gather_shape gather_shape_of(const mu_gather_attrs *attrs, const mu_shape *x, const mu_shape *indices)
{
    int axis = (int)attrs->axis, batch = (int)attrs->batch_dims;
    return (gather_shape){
        .batch = mu__elements_between(x, 0, batch),
        .outer = mu__elements_between(x, batch, axis),
        .n = x->dims[axis],
        .inner = mu__elements_between(x, axis + 1, x->rank),
        .m = mu__elements_between(indices, batch, indices->rank),
    };
}

static mu_status gather_result(const mu_infer *infer, const mu_shape *x, const mu_shape *indices, mu_shape *out)
{
    const mu_gather_attrs *attrs = infer->attrs;
    int axis = (int)attrs->axis, batch = (int)attrs->batch_dims;
    if (attrs->axis < 0 || attrs->axis >= x->rank || attrs->batch_dims < 0 || attrs->batch_dims > axis ||
        batch > indices->rank || x->rank + indices->rank - 1 - batch > MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "%s: axis %lld and %lld batch axes for ranks %d and %d", infer->op->name,
                         (long long)attrs->axis, (long long)attrs->batch_dims, x->rank, indices->rank);
    *out = (mu_shape){.rank = 0};
    for (int i = 0; i < axis; i++) {
        if (i < batch && x->dims[i] != indices->dims[i] && x->dims[i] != MU_UNKNOWN && indices->dims[i] != MU_UNKNOWN) {
            char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
            return mu__error(MU_INVALID_ARGUMENT, "%s: shapes %s and %s differ in batch axis %d", infer->op->name,
                             mu__shape_text(x, a), mu__shape_text(indices, b), i);
        }
        out->dims[out->rank++] = i < batch && x->dims[i] == MU_UNKNOWN ? indices->dims[i] : x->dims[i];
    }
    for (int i = batch; i < indices->rank; i++)
        out->dims[out->rank++] = indices->dims[i];
    for (int i = axis + 1; i < x->rank; i++)
        out->dims[out->rank++] = x->dims[i];
    return MU_OK;
}

static mu_status gather_infer(mu_infer *infer)
{
    MU_TRY(mu__need_indices(infer, 1));
    infer->out[0].dtype = infer->in[0].dtype;
    return gather_result(infer, &infer->in[0].shape, &infer->in[1].shape, &infer->out[0].shape);
}

// Slice number j, counted over [batch, outer, m], of a gather's result, and the slice of x that it reads.
static int64_t slice_read(const gather_shape *s, const mu_view *indices, int64_t j)
{
    const int64_t batch = j / (s->outer * s->m);
    return j / s->m * s->n + mu__index_at(indices, batch * s->m + j % s->m);
}

static mu_status check_all_indices(const mu_kernel *k, const gather_shape *s)
{
    return mu__check_each_index(k, &k->in[1], 0, s->outer * s->inner > 0 ? s->batch * s->m : 0, s->n);
}

static mu_status gather_ref(const mu_kernel *k)
{
    const gather_shape s = gather_shape_of(k->attrs, &k->in[0].shape, &k->in[1].shape);
    MU_TRY(check_all_indices(k, &s));
    for (int64_t i = 0; i < mu__elements(&k->out[0].shape); i++)
        mu__copy_element(&k->out[0], i, &k->in[0], slice_read(&s, &k->in[1], i / s.inner) * s.inner + i % s.inner);
    return MU_OK;
}

static mu_status gather_fast(const mu_kernel *k)
{
    gather_shape s = gather_shape_of(k->attrs, &k->in[0].shape, &k->in[1].shape);
    size_t bytes = (size_t)s.inner * mu_dtype_bytes(k->in[0].dtype);
    const char *x = k->in[0].data;
    char *out = k->out[0].data;
    const int64_t all = mu__elements(&k->out[0].shape);
    if (all == 0)
        return MU_OK;
    for (int64_t b = 0; b < s.batch; b++) {
        MU_TRY(mu__check_indices(k, &k->in[1], b * s.m, s.m, s.n));
        mu__gather_rows(&k->in[1], b * s.m, x, s.n, bytes, out, s.m, s.outer);
        x += (size_t)(s.outer * s.n) * bytes;
        out += (size_t)(s.outer * s.m) * bytes;
    }
    return MU_OK;
}

static mu_tensor *gather_rule(mu_grad *g, int i)
{
    return i == 0 ? mu__apply3(&mu_op_gather_grad, g->attrs, g->dy, g->x[1], g->x[0]) : NULL;
}

bool mu__gather_slices(const mu_grad *g, int i, mu_tensor **values, mu_tensor **indices)
{
    const mu_gather_attrs *attrs = g->attrs;
    if (g->op != &mu_op_gather || i != 0 || attrs->axis != 0 || attrs->batch_dims != 0)
        return false;
    mu_shape rows = g->x[0]->shape;
    if (mu__elements_between(&rows, 1, rows.rank) == 0)
        return false;
    rows.dims[0] = -1;
    *values = mu_reshape(g->dy, rows.rank, rows.dims);
    *indices = mu_reshape(g->x[1], 1, rows.dims);
    return true;
}

static const mu_attr_spec gather_attrs[] = {
    {"axis", MU_ATTR_INT, offsetof(mu_gather_attrs, axis)},
    {"batch_dims", MU_ATTR_INT, offsetof(mu_gather_attrs, batch_dims)},
    {0},
};
static const mu_gather_attrs plain_0 = {0, 0}, plain_1 = {1, 0}, batched = {2, 1};
static const mu_sample samples_gather[] = {
    {.n_in = 2, .in = {MU_DIMS(5, 3), MU_DIMS(2, 4)}, .dtypes = {0, MU_I32}, .high = {0, 5}, .attrs = &plain_0},
    {.n_in = 2, .in = {MU_DIMS(2, 3, 2), MU_NO_DIMS}, .dtypes = {0, MU_I64}, .high = {0, 3}, .attrs = &plain_1},
    {.n_in = 2, .in = {MU_DIMS(2, 2, 5), MU_DIMS(2, 3)}, .dtypes = {0, MU_I32}, .high = {0, 5}, .attrs = &batched},
    {.n_in = 2, .in = {MU_DIMS(5, 3), MU_DIMS(0)}, .dtypes = {0, MU_I32}, .high = {0, 5}, .attrs = &plain_0},
    {0},
};
const mu_op mu_op_gather = {
    .name = "gather",
    .n_in = 2,
    .n_out = 1,
    .fails_for = MU_ALL_DTYPES,
    .attrs_bytes = sizeof(mu_gather_attrs),
    .attrs = gather_attrs,
    .infer = gather_infer,
    .grad = gather_rule,
    .ref = gather_ref,
    .cpu = {.run = gather_fast},
    .samples = samples_gather,
    .lower = mu__lower_gather,
};
mu_tensor *mu_gather(mu_tensor *x, mu_tensor *indices, int axis, int batch_dims)
{
    mu_gather_attrs attrs = {.axis = axis < 0 && x ? axis + x->shape.rank : axis,
                             .batch_dims = batch_dims < 0 && indices ? batch_dims + indices->shape.rank : batch_dims};
    return mu__apply2(&mu_op_gather, &attrs, x, mu__wide_indices(indices));
}

mu_tensor *mu_batch_gather(mu_tensor *x, mu_tensor *indices)
{
    const int batches = indices ? indices->shape.rank - 1 : 0;
    if (mu__pending())
        return NULL;
    if (batches < 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "batch_gather: the indices are a scalar; their last axis must select what to take");
        return NULL;
    }
    return mu__composed2("batch_gather", x, indices, mu_gather(x, indices, batches, batches));
}

// gather_grad: (dy, indices, x) to the sum of dy's slices at their indices, in zeros shaped like x.
static mu_status gather_grad_infer(mu_infer *infer)
{
    mu_shape wanted;
    MU_TRY(mu__need_indices(infer, 1));
    MU_TRY(gather_result(infer, &infer->in[2].shape, &infer->in[1].shape, &wanted));
    if (!mu__shape_compatible(&wanted, &infer->in[0].shape)) {
        char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT, "gather_grad: the gradient has shape %s; it must have %s",
                         mu__shape_text(&infer->in[0].shape, a), mu__shape_text(&wanted, b));
    }
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = infer->in[2].shape};
    return MU_OK;
}

static mu_status gather_grad_ref(const mu_kernel *k)
{
    const gather_shape s = gather_shape_of(k->attrs, &k->in[2].shape, &k->in[1].shape);
    mu_totals sums;
    MU_TRY(check_all_indices(k, &s));
    memset(k->out[0].data, 0, (size_t)mu__elements(&k->out[0].shape) * mu_dtype_bytes(k->out[0].dtype));
    MU_TRY(mu__totals_open(&sums, &k->out[0]));
    for (int64_t i = 0; i < mu__elements(&k->in[0].shape); i++)
        mu__totals_combine(&sums, MU_COMBINE_ADD, slice_read(&s, &k->in[1], i / s.inner) * s.inner + i % s.inner,
                           &k->in[0], i);
    mu__totals_close(&sums);
    return MU_OK;
}

// Adds the slices of each row of dy into a row of zeros. Each row is zeroed just before it is used, so that it is in
// the cache.
static mu_status gather_grad_fast(const mu_kernel *k)
{
    gather_shape s = gather_shape_of(k->attrs, &k->in[2].shape, &k->in[1].shape);
    mu_dtype dtype = k->in[0].dtype;
    const size_t bytes = (size_t)s.inner * mu_dtype_bytes(dtype), row = (size_t)s.n * bytes;
    const char *dy = k->in[0].data;
    char *out = k->out[0].data;
    for (int64_t b = 0; b < s.batch && bytes > 0; b++) {
        MU_TRY(mu__check_indices(k, &k->in[1], b * s.m, s.outer > 0 ? s.m : 0, s.n));
        for (int64_t o = 0; o < s.outer; o++, out += row) {
            memset(out, 0, row);
            for (int64_t j = 0; j < s.m; j += ROWS) {
                int64_t copied[ROWS];
                const int64_t n = MU_MIN((int64_t)ROWS, s.m - j);
                mu__accumulate_at(MU_COMBINE_ADD, dtype, out, mu__indices_in_place(&k->in[1], b * s.m + j, n, copied),
                                  dy, s.inner, n);
                dy += (size_t)n * bytes;
            }
        }
    }
    return MU_OK;
}

static mu_tensor *gather_grad_rule(mu_grad *g, int i)
{
    return i == 0 ? mu__apply2(&mu_op_gather, g->attrs, g->dy, g->x[1]) : NULL;
}

static const mu_sample samples_gather_grad[] = {
    {.n_in = 3,
     .in = {MU_DIMS(2, 4, 3), MU_DIMS(2, 4), MU_DIMS(5, 3)},
     .dtypes = {0, MU_I32},
     .high = {0, 5},
     .attrs = &plain_0,
     .no_grad = 4},
    {.n_in = 3,
     .in = {MU_DIMS(2, 2, 3), MU_DIMS(2, 3), MU_DIMS(2, 2, 5)},
     .dtypes = {0, MU_I32},
     .high = {0, 5},
     .attrs = &batched,
     .no_grad = 4},
    {0},
};
const mu_op mu_op_gather_grad = {
    .name = "gather_grad",
    .n_in = 3,
    .n_out = 1,
    .dtypes = MU_NUMBERS,
    .fails_for = MU_NUMBERS,
    .shape_only = 4,
    .attrs_bytes = sizeof(mu_gather_attrs),
    .attrs = gather_attrs,
    .infer = gather_grad_infer,
    .grad = gather_grad_rule,
    .ref = gather_grad_ref,
    .cpu = {.run = gather_grad_fast},
    .samples = samples_gather_grad,
    .lower = mu__lower_gather_grad,
};

// ---- gather_nd and tensor_scatter_*: indices [..., k] name slices of the first k axes -----------

// The shape of the slices that indices select: indices without the last axis, then the remaining axes of x.
static mu_status slices_shape(const mu_infer *infer, const mu_shape *x, const mu_shape *indices, mu_shape *out)
{
    int64_t depth = indices->rank > 0 ? indices->dims[indices->rank - 1] : MU_UNKNOWN;
    if (depth < 0 || depth > x->rank || indices->rank - 1 + x->rank - depth > MU_MAX_RANK) {
        char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the last axis of the indices, %s, must name 0 to %d axes of shape %s", infer->op->name,
                         mu__shape_text(indices, a), x->rank, mu__shape_text(x, b));
    }
    *out = (mu_shape){.rank = 0};
    for (int i = 0; i < indices->rank - 1; i++)
        out->dims[out->rank++] = indices->dims[i];
    for (int i = (int)depth; i < x->rank; i++)
        out->dims[out->rank++] = x->dims[i];
    return MU_OK;
}

// Writes the offsets, in slices of x, that n rows of indices select; returns false if one of them is outside.
#define POSITIONS(index_type, name)                                                                               \
    static inline bool name##_of(const index_type *indices, int depth, const int64_t *dims, int64_t n,            \
                                 int64_t *positions)                                                              \
    {                                                                                                             \
        uint64_t outside = 0;                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                         \
            uint64_t at = 0;                                                                                      \
            for (int d = 0; d < depth; d++) {                                                                     \
                const uint64_t index = (uint64_t)indices[i * depth + d], dim = (uint64_t)dims[d];                 \
                outside |= index >= dim;                                                                          \
                at = at * dim + index;                                                                            \
            }                                                                                                     \
            positions[i] = (int64_t)at;                                                                           \
        }                                                                                                         \
        return !outside;                                                                                          \
    }                                                                                                             \
                                                                                                                  \
    MU_PER_ISA_RESULT(bool, name,                                                                                 \
                      (const index_type *indices, int depth, const int64_t *dims, int64_t n, int64_t *positions), \
                      (indices, depth, dims, n, positions))                                                       \
    {                                                                                                             \
        return depth == 1   ? name##_of(indices, 1, dims, n, positions)                                           \
               : depth == 2 ? name##_of(indices, 2, dims, n, positions)                                           \
                            : name##_of(indices, depth, dims, n, positions);                                      \
    }
POSITIONS(int64_t, positions_by_i64)
POSITIONS(int32_t, positions_by_i32)

// Offsets of the slices of rows [first, first + n); the error names the first index that is outside x.
static mu_status slice_positions(const mu_kernel *k, const mu_view *indices, const mu_shape *x, int64_t first,
                                 int64_t n, int64_t *positions)
{
    const int depth = (int)indices->shape.dims[indices->shape.rank - 1];
    const char *data = (const char *)indices->data + (size_t)(first * depth) * mu_dtype_bytes(indices->dtype);
    if (indices->dtype == MU_I64 ? positions_by_i64((const void *)data, depth, x->dims, n, positions)
                                 : positions_by_i32((const void *)data, depth, x->dims, n, positions))
        return MU_OK;
    for (int64_t i = first * depth; i < (first + n) * depth; i++)
        if (mu__index_at(indices, i) < 0 || mu__index_at(indices, i) >= x->dims[i % depth])
            return mu__index_error(k, i, mu__index_at(indices, i), x->dims[i % depth]);
    return MU_OK;
}

// The offset, in slices of x, that row i of the indices selects.
static mu_status slice_at(const mu_kernel *k, const mu_view *indices, const mu_shape *x, int64_t i, int64_t *slice)
{
    const int64_t depth = indices->shape.dims[indices->shape.rank - 1];
    *slice = 0;
    for (int64_t d = 0; d < depth; d++) {
        const int64_t index = mu__index_at(indices, i * depth + d);
        if (index < 0 || index >= x->dims[d])
            return mu__index_error(k, i * depth + d, index, x->dims[d]);
        *slice = *slice * x->dims[d] + index;
    }
    return MU_OK;
}

static mu_status gather_nd_infer(mu_infer *infer)
{
    MU_TRY(mu__need_indices(infer, 1));
    infer->out[0].dtype = infer->in[0].dtype;
    return slices_shape(infer, &infer->in[0].shape, &infer->in[1].shape, &infer->out[0].shape);
}

static mu_status gather_nd_ref(const mu_kernel *k)
{
    const mu_shape *x = &k->in[0].shape, *indices = &k->in[1].shape;
    const int64_t inner = mu__elements_between(x, (int)indices->dims[indices->rank - 1], x->rank);
    for (int64_t i = 0; i < mu__elements(&k->out[0].shape); i++) {
        int64_t slice = 0;
        MU_TRY(slice_at(k, &k->in[1], x, i / inner, &slice));
        mu__copy_element(&k->out[0], i, &k->in[0], slice * inner + i % inner);
    }
    return MU_OK;
}

static mu_status gather_nd_fast(const mu_kernel *k)
{
    const mu_shape *x = &k->in[0].shape, *indices = &k->in[1].shape;
    int64_t rows = mu__elements_between(indices, 0, indices->rank - 1), positions[ROWS];
    int64_t inner = mu__elements_between(x, (int)indices->dims[indices->rank - 1], x->rank);
    const size_t bytes = (size_t)inner * mu_dtype_bytes(k->in[0].dtype);
    const mu_view chosen = {.dtype = MU_I64, .data = positions};
    for (int64_t row = 0; row < rows && inner > 0; row += ROWS) {
        const int64_t n = MU_MIN((int64_t)ROWS, rows - row);
        MU_TRY(slice_positions(k, &k->in[1], x, row, n, positions));
        mu__gather_rows(&chosen, 0, k->in[0].data, 0, bytes, (char *)k->out[0].data + (size_t)row * bytes, n, 1);
    }
    return MU_OK;
}

static mu_tensor *gather_nd_grad(mu_grad *g, int i)
{
    return i == 0 ? mu_tensor_scatter_add(mu_zeros_like(g->x[0]), g->x[1], g->dy) : NULL;
}

static const mu_sample samples_gather_nd[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 3, 2), MU_DIMS(4, 2)}, .dtypes = {0, MU_I32}, .high = {0, 3}},
    {.n_in = 2, .in = {MU_DIMS(3, 2), MU_DIMS(2, 2, 1)}, .dtypes = {0, MU_I64}, .high = {0, 3}},
    {0},
};
const mu_op mu_op_gather_nd = {
    .name = "gather_nd",
    .n_in = 2,
    .n_out = 1,
    .fails_for = MU_ALL_DTYPES,
    .infer = gather_nd_infer,
    .grad = gather_nd_grad,
    .ref = gather_nd_ref,
    .cpu = {.run = gather_nd_fast},
    .samples = samples_gather_nd,
    .lower = mu__lower_gather_nd,
};
mu_tensor *mu_gather_nd(mu_tensor *x, mu_tensor *indices)
{
    return mu__apply2(&mu_op_gather_nd, NULL, x, mu__wide_indices(indices));
}

static mu_status scatter_infer(mu_infer *infer)
{
    mu_shape wanted;
    MU_TRY(mu__need_indices(infer, 1));
    MU_TRY(mu__need_same_dtype(infer, 0, 2));
    MU_TRY(slices_shape(infer, &infer->in[0].shape, &infer->in[1].shape, &wanted));
    if (!mu__shape_compatible(&wanted, &infer->in[2].shape)) {
        char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT, "%s: the updates have shape %s; the indices name slices of shape %s",
                         infer->op->name, mu__shape_text(&infer->in[2].shape, a), mu__shape_text(&wanted, b));
    }
    return mu__infer_same(infer);
}

// Combines single elements of one type. Returns the number of rows done, up to the first index outside; 0 if there is
// no loop for the type or the number of axes.
static int64_t scatter_numbers(const mu_kernel *k, mu_dtype dtype, int64_t rows)
{
    const mu_shape *x = &k->in[0].shape, *indices = &k->in[1].shape;
    const int64_t depth = indices->dims[indices->rank - 1];
    const bool wide = k->in[1].dtype == MU_I64;
    if (depth != 1 && depth != 2)
        return 0;
    const mu_scatter_indices positions = {
        .kind = depth == 1 ? (wide ? MU_INDICES_I64 : MU_INDICES_I32) : (wide ? MU_INDICES_I64_2 : MU_INDICES_I32_2),
        .indices = k->in[1].data,
        .dims = {(uint64_t)x->dims[0], depth == 2 ? (uint64_t)x->dims[1] : 0},
    };
    return mu__scatter_numbers(k->op->variant, dtype, k->out[0].data, &positions, k->in[2].data, rows);
}

// The same for n slices of any size at offsets that are checked already.
static void scatter_slices(const mu_kernel *k, mu_dtype dtype, const int64_t *positions, const char *from,
                           int64_t inner, int64_t n)
{
    const size_t bytes = (size_t)inner * mu_dtype_bytes(dtype);
    const mu_scatter_indices checked = {.kind = MU_INDICES_CHECKED, .indices = positions};
    char *out = k->out[0].data;
    if (k->op->variant != MU_SCATTER_PUT)
        mu__accumulate_at((mu_combine)k->op->variant, dtype, out, positions, from, inner, n);
    else if (inner == 1)
        mu__scatter_numbers(MU_SCATTER_PUT, dtype, out, &checked, from, n);
    else
        for (int64_t i = 0; i < n; i++)
            mu__copy_blocks(out + (size_t)positions[i] * bytes, 0, from + (size_t)i * bytes, 0, bytes, 1);
}

static mu_status scatter_ref(const mu_kernel *k)
{
    const mu_shape *x = &k->in[0].shape, *indices = &k->in[1].shape;
    const int64_t inner = mu__elements_between(x, (int)indices->dims[indices->rank - 1], x->rank);
    const size_t all = (size_t)mu__elements(x) * mu_dtype_bytes(k->in[0].dtype);
    mu_totals totals;
    mu_status status = MU_OK;
    if (k->out[0].data != k->in[0].data && all)
        memcpy(k->out[0].data, k->in[0].data, all);
    MU_TRY(mu__totals_open(&totals, &k->out[0]));
    for (int64_t i = 0; i < mu__elements(&k->in[2].shape) && status == MU_OK; i++) {
        int64_t slice = 0;
        status = slice_at(k, &k->in[1], x, i / inner, &slice);
        const int64_t to = slice * inner + i % inner;
        if (status == MU_OK && k->op->variant != MU_SCATTER_PUT)
            mu__totals_combine(&totals, (mu_combine)k->op->variant, to, &k->in[2], i);
        else if (status == MU_OK && totals.reals)
            totals.reals[to] = mu__read_real(&k->in[2], i);
        else if (status == MU_OK)
            mu__copy_element(&k->out[0], to, &k->in[2], i);
    }
    mu__totals_close(&totals);
    return status;
}

static mu_status scatter_fast(const mu_kernel *k)
{
    static const mu_dtype whole[] = {[1] = MU_I8, [2] = MU_I16, [4] = MU_I32, [8] = MU_I64};
    const mu_shape *x = &k->in[0].shape, *indices = &k->in[1].shape;
    mu_dtype dtype = k->in[0].dtype;
    int64_t rows = mu__elements_between(indices, 0, indices->rank - 1), positions[ROWS];
    int64_t inner = mu__elements_between(x, (int)indices->dims[indices->rank - 1], x->rank);
    const size_t bytes = (size_t)inner * mu_dtype_bytes(dtype), all = (size_t)mu__elements(x) * mu_dtype_bytes(dtype);
    if (k->out[0].data != k->in[0].data && all)
        memcpy(k->out[0].data, k->in[0].data, all);
    // Overwriting copies bytes, so any type can be handled as one of the same size.
    if (k->op->variant == MU_SCATTER_PUT && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) {
        dtype = whole[bytes];
        inner = 1;
    }
    for (int64_t row = inner == 1 ? scatter_numbers(k, dtype, rows) : 0; row < rows && inner > 0; row += ROWS) {
        const int64_t n = MU_MIN((int64_t)ROWS, rows - row);
        MU_TRY(slice_positions(k, &k->in[1], x, row, n, positions));
        scatter_slices(k, dtype, positions, (const char *)k->in[2].data + (size_t)row * bytes, inner, n);
    }
    return MU_OK;
}

static mu_tensor *scatter_add_grad(mu_grad *g, int i)
{
    return i == 0 ? g->dy : i == 2 ? mu_gather_nd(g->dy, g->x[1]) : NULL;
}

static mu_tensor *scatter_update_grad(mu_grad *g, int i)
{
    if (i == 0)
        return mu_tensor_scatter_update(g->dy, g->x[1], mu_zeros_like(g->x[2]));
    return i == 2 ? mu_gather_nd(g->dy, g->x[1]) : NULL;
}

// Ties share the gradient.
static mu_tensor *scatter_minmax_grad(mu_grad *g, int i)
{
    if (i == 1)
        return NULL;
    mu_tensor *indices = g->x[1];
    mu_tensor *from_x = mu_cast(mu_equal(g->x[0], g->y[0]), g->dy->dtype);
    mu_tensor *from_update = mu_cast(mu_equal(g->x[2], mu_gather_nd(g->y[0], indices)), g->dy->dtype);
    mu_tensor *count = mu_tensor_scatter_add(from_x, indices, from_update);
    mu_tensor *share = mu_divide_no_nan(g->dy, count);
    return i == 0 ? mu_multiply(share, from_x) : mu_multiply(mu_gather_nd(share, indices), from_update);
}

static const mu_sample samples_scatter[] = {
    {.n_in = 3, .in = {MU_DIMS(5, 2), MU_DIMS(1, 1), MU_DIMS(1, 2)}, .dtypes = {0, MU_I32}, .high = {0, 5}},
    {.n_in = 3, .in = {MU_DIMS(30, 31), MU_DIMS(3, 2), MU_DIMS(3)}, .dtypes = {0, MU_I64}, .high = {0, 30}},
    {0},
};
#define SCATTER(text, which)                                                                              \
    .name = text, .variant = which, .n_in = 3, .n_out = 1, .dtypes = MU_NUMBERS, .fails_for = MU_NUMBERS, \
    .in_place = 1, .infer = scatter_infer, .ref = scatter_ref, .cpu = {.run = scatter_fast},              \
    .samples = samples_scatter, .lower = mu__lower_scatter

const mu_op mu_op_tensor_scatter_update = {SCATTER("tensor_scatter_update", MU_SCATTER_PUT),
                                           .grad = scatter_update_grad};
mu_tensor *mu_tensor_scatter_update(mu_tensor *x, mu_tensor *indices, mu_tensor *updates)
{
    if (x && updates && x->dtype == MU_BOOL && updates->dtype == MU_BOOL)
        return mu_cast(mu_tensor_scatter_update(mu_cast(x, MU_U8), indices, mu_cast(updates, MU_U8)), MU_BOOL);
    return mu__apply3(&mu_op_tensor_scatter_update, NULL, x, indices, updates);
}

const mu_op mu_op_tensor_scatter_add = {SCATTER("tensor_scatter_add", MU_COMBINE_ADD), .grad = scatter_add_grad};
mu_tensor *mu_tensor_scatter_add(mu_tensor *x, mu_tensor *indices, mu_tensor *updates)
{
    return mu__apply3(&mu_op_tensor_scatter_add, NULL, x, indices, updates);
}

const mu_op mu_op_tensor_scatter_min = {SCATTER("tensor_scatter_min", MU_COMBINE_MIN), .grad = scatter_minmax_grad};
mu_tensor *mu_tensor_scatter_min(mu_tensor *x, mu_tensor *indices, mu_tensor *updates)
{
    return mu__apply3(&mu_op_tensor_scatter_min, NULL, x, indices, updates);
}

const mu_op mu_op_tensor_scatter_max = {SCATTER("tensor_scatter_max", MU_COMBINE_MAX), .grad = scatter_minmax_grad};
mu_tensor *mu_tensor_scatter_max(mu_tensor *x, mu_tensor *indices, mu_tensor *updates)
{
    return mu__apply3(&mu_op_tensor_scatter_max, NULL, x, indices, updates);
}

// Whether each index [1] selects a row of a tensor with these dims, and updates are such rows.
static bool names_rows(const mu_tensor *indices, const mu_tensor *updates, int rank, const int64_t *dims)
{
    bool right = indices->shape.rank == 2 && indices->shape.dims[1] == 1 && updates->shape.rank == rank && rank > 0 &&
                 updates->shape.dims[0] == indices->shape.dims[0];
    for (int i = 1; right && i < rank; i++)
        right = updates->shape.dims[i] == dims[i];
    return right;
}

mu_tensor *mu_scatter_nd(mu_tensor *indices, mu_tensor *updates, int rank, const int64_t *dims)
{
    if (mu__pending())
        return NULL;
    if (updates && updates->dtype == MU_BOOL) // true where any update is true
        return mu_cast(mu_scatter_nd(indices, mu_cast(updates, MU_I32), rank, dims), MU_BOOL);
    // In eager mode sums over rows start from implicit zeros, which need not be written and copied first.
    if (indices && updates && dims && !mu__context()->trace && names_rows(indices, updates, rank, dims)) {
        mu_tensor *like = mu__tensor_unset(updates->dtype, rank, dims);
        mu_tensor *sum = mu__apply3(&mu_op_gather_grad, &plain_0, updates, mu_squeeze(indices, 1), like);
        return mu__called("scatter_nd", &mu_op_gather_grad, sum);
    }
    mu_tensor *zeros = updates ? mu_zeros(updates->dtype, rank, dims) : NULL;
    return mu__composed2("scatter_nd", indices, updates, mu_tensor_scatter_add(zeros, indices, updates));
}

// ---- one_hot ------------------------------------------------------------------------------------

static mu_status one_hot_infer(mu_infer *infer)
{
    const mu_one_hot_attrs *attrs = infer->attrs;
    mu_shape shape = infer->in[0].shape;
    if (attrs->depth < 0 || shape.rank == MU_MAX_RANK || !mu__dtype_ok(attrs->dtype))
        return mu__error(MU_INVALID_ARGUMENT, "one_hot: depth %lld for indices of rank %d", (long long)attrs->depth,
                         shape.rank);
    shape.dims[shape.rank++] = attrs->depth;
    infer->out[0] = (mu_spec){.dtype = attrs->dtype, .shape = shape};
    return MU_OK;
}

static mu_status one_hot_ref(const mu_kernel *k)
{
    const mu_one_hot_attrs *attrs = k->attrs;
    mu_view indices = k->in[0];
    int64_t n = mu__elements(&indices.shape);
    memset(k->out[0].data, 0, (size_t)(n * attrs->depth) * mu_dtype_bytes(attrs->dtype));
    for (int64_t i = 0; i < n; i++) {
        int64_t index = indices.dtype == MU_U8 ? ((const uint8_t *)indices.data)[i] : mu__index_at(&indices, i);
        if (index >= 0 && index < attrs->depth)
            mu__write_element(attrs->dtype, k->out[0].data, i * attrs->depth + index, 1);
    }
    return MU_OK;
}

static const mu_attr_spec one_hot_attrs[] = {
    {"depth", MU_ATTR_INT, offsetof(mu_one_hot_attrs, depth)},
    {"dtype", MU_ATTR_DTYPE, offsetof(mu_one_hot_attrs, dtype)},
    {0},
};
static const mu_one_hot_attrs four_f32 = {4, MU_F32};
static const mu_sample samples_one_hot[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &four_f32, .low = {-1}, .high = {6}, .no_grad = 1},
    {.n_in = 1, .in = {MU_NO_DIMS}, .attrs = &four_f32, .low = {-1}, .high = {6}, .no_grad = 1},
    {0},
};
const mu_op mu_op_one_hot = {
    .name = "one_hot",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64) | MU_DTYPE_BIT(MU_U8),
    .attrs_bytes = sizeof(mu_one_hot_attrs),
    .attrs = one_hot_attrs,
    .infer = one_hot_infer,
    .ref = one_hot_ref,
    .samples = samples_one_hot,
    .lower = mu__lower_one_hot,
};
mu_tensor *mu_one_hot(mu_tensor *indices, int64_t depth, mu_dtype dtype)
{
    mu_one_hot_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.depth = depth;
    attrs.dtype = dtype;
    return mu__apply1(&mu_op_one_hot, &attrs, mu__wide_indices(indices));
}
