// Ops that put tensors together along an axis and take them apart: concat, stack, split, unstack.
//
// Only concat and concat_part are op definitions. concat_part is the gradient of one input of concat and uses only the
// shapes of the inputs. The other functions are composed of them, of slices and of reshapes.
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"

#include <muster/ops.h>

// ---- concat -------------------------------------------------------------------------------------

static mu_status concat_mismatch(const mu_infer *infer, int i)
{
    char first[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: inputs 0 and %d are %s %s and %s %s; types must be equal, and shapes except along the axis",
                     infer->op->name, i, mu_dtype_name(infer->in[0].dtype), mu__shape_text(&infer->in[0].shape, first),
                     mu_dtype_name(infer->in[i].dtype), mu__shape_text(&infer->in[i].shape, other));
}

static mu_status concat_infer(mu_infer *infer)
{
    int64_t axis = ((const mu_axis_attrs *)infer->attrs)->axis, sum = 0;
    mu_spec result = infer->in[0];
    if (axis < 0 || axis >= result.shape.rank)
        return mu__error(MU_INVALID_ARGUMENT, "concat: axis %lld for rank %d", (long long)axis, result.shape.rank);
    for (int i = 0; i < infer->n_in; i++) {
        mu_shape shape = infer->in[i].shape;
        if (infer->in[i].dtype != result.dtype || shape.rank != result.shape.rank)
            return concat_mismatch(infer, i);
        sum = sum == MU_UNKNOWN || shape.dims[axis] == MU_UNKNOWN ? MU_UNKNOWN : sum + shape.dims[axis];
        shape.dims[axis] = result.shape.dims[axis];
        if (!mu__shape_compatible(&shape, &result.shape))
            return concat_mismatch(infer, i);
        for (int a = 0; a < shape.rank; a++)
            if (result.shape.dims[a] == MU_UNKNOWN)
                result.shape.dims[a] = shape.dims[a];
    }
    result.shape.dims[axis] = sum;
    infer->out[0] = result;
    return MU_OK;
}

// Interleaves two inputs.
#define INTERLEAVE(T, bits)                                                                                      \
    MU_PER_ISA(zip_##bits, (const void *first, const void *second, void *to, int64_t n), (first, second, to, n)) \
    {                                                                                                            \
        const T *a = first, *b = second;                                                                         \
        T *restrict out = to;                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            out[2 * i] = a[i];                                                                                   \
            out[2 * i + 1] = b[i];                                                                               \
        }                                                                                                        \
    }
INTERLEAVE(uint8_t, 8)
INTERLEAVE(uint16_t, 16)
INTERLEAVE(uint32_t, 32)
INTERLEAVE(uint64_t, 64)

static void interleave(const mu_kernel *k, size_t bytes, int64_t n)
{
    (bytes == 1   ? zip_8
     : bytes == 2 ? zip_16
     : bytes == 4 ? zip_32
                  : zip_64)(k->in[0].data, k->in[1].data, k->out[0].data, n);
}

static mu_status concat_ref(const mu_kernel *k)
{
    const int axis = (int)((const mu_axis_attrs *)k->attrs)->axis;
    const mu_view *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&out->shape); i++) {
        int64_t index[MU_MAX_RANK];
        int from = 0;
        mu__index_of(&out->shape, i, index);
        for (; index[axis] >= k->in[from].shape.dims[axis]; from++)
            index[axis] -= k->in[from].shape.dims[axis];
        mu__copy_element(out, i, &k->in[from], mu__element_at(&k->in[from].shape, index));
    }
    return MU_OK;
}

static mu_status concat_fast(const mu_kernel *k)
{
    int axis = (int)((const mu_axis_attrs *)k->attrs)->axis;
    const mu_shape *shape = &k->out[0].shape;
    int64_t outer = mu__elements_between(shape, 0, axis);
    size_t inner = (size_t)mu__elements_between(shape, axis + 1, shape->rank) * mu_dtype_bytes(k->out[0].dtype);
    size_t stride = (size_t)shape->dims[axis] * inner;
    char *out = k->out[0].data;
    const bool one_each = k->n_in == 2 && k->in[0].shape.dims[axis] == 1 && k->in[1].shape.dims[axis] == 1;
    if (one_each && inner == mu_dtype_bytes(k->out[0].dtype)) {
        interleave(k, inner, outer);
        return MU_OK;
    }
    for (int i = 0; i < k->n_in; i++) {
        size_t bytes = (size_t)k->in[i].shape.dims[axis] * inner;
        mu__copy_blocks(out, stride, k->in[i].data, bytes, bytes, outer);
        out += bytes;
    }
    return MU_OK;
}

static mu_tensor *concat_part(const mu_grad *g, int i)
{
    mu_part_attrs attrs = {.axis = ((const mu_axis_attrs *)g->attrs)->axis, .index = i};
    mu_tensor **in = mu__alloc((size_t)(g->n_in + 1) * sizeof in[0]);
    if (!in)
        return NULL;
    in[0] = g->dy;
    memcpy(in + 1, g->x, (size_t)g->n_in * sizeof in[0]);
    mu_tensor *part = mu__apply_n(&mu_op_concat_part, &attrs, g->n_in + 1, in);
    mu__free(in);
    return part;
}

// A slice of dy. If a trace does not know its offset, concat_part finds it from the inputs' shapes.
static mu_tensor *concat_grad(mu_grad *g, int i)
{
    const int64_t axis = ((const mu_axis_attrs *)g->attrs)->axis;
    int64_t begin[MU_MAX_RANK] = {0}, size[MU_MAX_RANK];
    for (int j = 0; j <= i; j++) {
        const int64_t dim = g->x[j]->shape.dims[axis];
        if (dim == MU_UNKNOWN)
            return concat_part(g, i);
        begin[axis] += j < i ? dim : 0;
    }
    for (int a = 0; a < MU_MAX_RANK; a++)
        size[a] = a == axis ? g->x[i]->shape.dims[axis] : -1;
    return mu_slice(g->dy, begin, size);
}

static const mu_attr_spec axis_attrs[] = {{"axis", MU_ATTR_INT, offsetof(mu_axis_attrs, axis)}, {0}};
static const mu_axis_attrs axis_0 = {0}, axis_1 = {1};
static const mu_sample samples_concat[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(3, 2)}, .attrs = &axis_1},
    {.n_in = 3, .in = {MU_DIMS(1, 5), MU_DIMS(0, 5), MU_DIMS(2, 5)}, .attrs = &axis_0},
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &axis_1},
    {0},
};
const mu_op mu_op_concat = {
    .name = "concat",
    .n_in = 1,
    .max_in = MU_VARIADIC,
    .n_out = 1,
    .attrs_bytes = sizeof(mu_axis_attrs),
    .attrs = axis_attrs,
    .infer = concat_infer,
    .grad = concat_grad,
    .ref = concat_ref,
    .cpu = {.run = concat_fast},
    .samples = samples_concat,
    .lower = mu__lower_concat,
};
mu_tensor *mu_concat(int n, mu_tensor *const *tensors, int axis)
{
    mu_axis_attrs attrs = {.axis = axis};
    if (n > 0 && mu__need(tensors, "mu_concat: the list") != MU_OK)
        return NULL;
    if (n > 0 && tensors[0] && !mu__pending() && (attrs.axis = mu__axis(axis, tensors[0]->shape.rank, "mu_concat")) < 0)
        return NULL;
    return mu__apply_n(&mu_op_concat, &attrs, n, tensors);
}

// ---- concat_part: (dy, x…) to the part of dy that came from x[index] ----------------------------

static mu_status concat_part_infer(mu_infer *infer)
{
    const mu_part_attrs *attrs = infer->attrs;
    const mu_shape *dy = &infer->in[0].shape;
    if (attrs->index < 0 || attrs->index >= infer->n_in - 1 || attrs->axis < 0 || attrs->axis >= dy->rank)
        return mu__error(MU_INVALID_ARGUMENT, "concat_part: part %lld along axis %lld of %d inputs of rank %d",
                         (long long)attrs->index, (long long)attrs->axis, infer->n_in - 1, dy->rank);
    int64_t sum = 0;
    for (int i = 1; i < infer->n_in; i++) {
        mu_shape shape = infer->in[i].shape;
        if (shape.rank != dy->rank)
            return concat_mismatch(infer, i);
        int64_t dim = shape.dims[attrs->axis];
        sum = sum == MU_UNKNOWN || dim == MU_UNKNOWN ? MU_UNKNOWN : sum + dim;
        shape.dims[attrs->axis] = dy->dims[attrs->axis];
        if (!mu__shape_compatible(&shape, dy))
            return concat_mismatch(infer, i);
    }
    if (sum != MU_UNKNOWN && dy->dims[attrs->axis] != MU_UNKNOWN && sum != dy->dims[attrs->axis])
        return concat_mismatch(infer, 1);
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = infer->in[attrs->index + 1].shape};
    return MU_OK;
}

static mu_status concat_part_ref(const mu_kernel *k)
{
    const mu_part_attrs *attrs = k->attrs;
    const mu_view *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&out->shape); i++) {
        int64_t index[MU_MAX_RANK];
        mu__index_of(&out->shape, i, index);
        for (int64_t before = 0; before < attrs->index; before++)
            index[attrs->axis] += k->in[before + 1].shape.dims[attrs->axis];
        mu__copy_element(out, i, &k->in[0], mu__element_at(&k->in[0].shape, index));
    }
    return MU_OK;
}

static mu_status concat_part_fast(const mu_kernel *k)
{
    const mu_part_attrs *attrs = k->attrs;
    int axis = (int)attrs->axis;
    const mu_shape *shape = &k->in[0].shape;
    size_t inner = (size_t)mu__elements_between(shape, axis + 1, shape->rank) * mu_dtype_bytes(k->out[0].dtype);
    size_t stride = (size_t)shape->dims[axis] * inner, bytes = (size_t)k->out[0].shape.dims[axis] * inner;
    int64_t outer = mu__elements_between(shape, 0, axis), before = 0;
    for (int64_t i = 0; i < attrs->index; i++)
        before += k->in[i + 1].shape.dims[axis];
    const char *in = (const char *)k->in[0].data + (size_t)before * inner;
    mu__copy_blocks(k->out[0].data, bytes, in, stride, bytes, outer);
    return MU_OK;
}

// The part is a view if it is contiguous in dy.
static bool concat_part_view(const void *attributes, const mu_spec *in, const mu_spec *out, size_t *offset)
{
    const mu_part_attrs *attrs = attributes;
    const int axis = (int)attrs->axis;
    const int64_t inner = mu__elements_between(&out->shape, axis + 1, out->shape.rank);
    int64_t before = 0;
    if (mu__elements(&out->shape) == 0 || mu__elements_between(&out->shape, 0, axis) != 1)
        return false;
    for (int64_t i = 0; i < attrs->index; i++)
        before += in[i + 1].shape.dims[axis];
    *offset = (size_t)(before * inner) * mu_dtype_bytes(out->dtype);
    return true;
}

// Pads with zeros back to the part's position.
static mu_tensor *concat_part_grad(mu_grad *g, int i)
{
    const mu_part_attrs *attrs = g->attrs;
    if (i != 0)
        return NULL;
    mu_tensor **parts = mu__alloc((size_t)g->n_in * sizeof parts[0]);
    if (!parts)
        return NULL;
    for (int j = 1; j < g->n_in; j++)
        parts[j - 1] = j == attrs->index + 1 ? g->dy : mu_zeros_like(g->x[j]);
    mu_tensor *whole = mu_concat(g->n_in - 1, parts, (int)attrs->axis);
    mu__free(parts);
    return whole;
}

static const mu_attr_spec part_attrs[] = {
    {"axis", MU_ATTR_INT, offsetof(mu_part_attrs, axis)},
    {"index", MU_ATTR_INT, offsetof(mu_part_attrs, index)},
    {0},
};
static const mu_part_attrs sample_part = {.axis = 1, .index = 1};
static const mu_sample samples_part[] = {
    {.n_in = 3, .in = {MU_DIMS(3, 7), MU_DIMS(3, 5), MU_DIMS(3, 2)}, .attrs = &sample_part, .no_grad = 6},
    {0},
};
const mu_op mu_op_concat_part = {
    .name = "concat_part",
    .n_in = 2,
    .max_in = MU_VARIADIC,
    .n_out = 1,
    .shape_only = ~1u,
    .attrs_bytes = sizeof(mu_part_attrs),
    .attrs = part_attrs,
    .infer = concat_part_infer,
    .view_at = concat_part_view,
    .grad = concat_part_grad,
    .ref = concat_part_ref,
    .cpu = {.run = concat_part_fast},
    .samples = samples_part,
    .lower = mu__lower_concat_part,
};

// ---- Composed functions -------------------------------------------------------------------------

static mu_status need_alike(int n, mu_tensor *const *tensors)
{
    char first[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    for (int i = 1; i < n; i++)
        if (tensors[i] &&
            (tensors[i]->dtype != tensors[0]->dtype || !mu__shape_compatible(&tensors[i]->shape, &tensors[0]->shape)))
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_stack: tensors 0 and %d are %s%s and %s%s; types and shapes must be equal", i,
                             mu_dtype_name(tensors[0]->dtype), mu__shape_text(&tensors[0]->shape, first),
                             mu_dtype_name(tensors[i]->dtype), mu__shape_text(&tensors[i]->shape, other));
    return MU_OK;
}

mu_tensor *mu_stack(int n, mu_tensor *const *tensors, int axis)
{
    if (n > 0 && mu__need(tensors, "mu_stack: the list") != MU_OK)
        return NULL;
    if (mu__pending() || n < 1 || !tensors[0])
        return mu__apply_n(&mu_op_concat, &axis_0, n, tensors);
    const int at = mu__axis(axis, tensors[0]->shape.rank + 1, "mu_stack, of the result,");
    mu_tensor **rows = at >= 0 && need_alike(n, tensors) == MU_OK ? mu__alloc((size_t)n * sizeof rows[0]) : NULL;
    if (!rows)
        return NULL;
    for (int i = 0; i < n; i++)
        rows[i] = mu_expand_dims(tensors[i], at);
    mu_tensor *result = mu_concat(n, rows, at);
    mu__free(rows);
    return result;
}

static mu_status split(mu_tensor *x, int n, const int64_t *sizes, int axis, mu_tensor **out, const char *function)
{
    int64_t begin[MU_MAX_RANK] = {0}, size[MU_MAX_RANK], sum = 0;
    for (int i = 0; i < n; i++) {
        out[i] = NULL;
        sum = sizes[i] > INT64_MAX - sum ? INT64_MAX : sum + MU_MAX(sizes[i], 0);
    }
    if (mu__pending())
        return mu_error_code();
    if (!x)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the tensor is NULL", function);
    int at = mu__axis(axis, x->shape.rank, function);
    if (at < 0)
        return MU_INVALID_ARGUMENT;
    int64_t dim = x->shape.dims[at];
    for (int i = 0; i < MU_MAX_RANK; i++)
        size[i] = -1;
    for (int i = 0; i < n; i++) {
        const int64_t left = dim - begin[at];
        size[at] = sizes[i] >= 0 ? sizes[i] : dim - sum;
        if (sizes[i] < -1 || size[at] < 0 || size[at] > left || (i == n - 1 && size[at] != left))
            return mu__error(MU_INVALID_ARGUMENT, "%s: %d parts that sum to %lld do not make up axis %d of size %lld",
                             function, n, (long long)sum, at, (long long)dim);
        out[i] = mu_slice(x, begin, size);
        begin[at] += size[at];
    }
    return mu_error_code();
}

mu_status mu_split_sizes(mu_tensor *x, int n, const int64_t *sizes, int axis, mu_tensor **out)
{
    if (!mu__pending() && n < 1)
        return mu__error(MU_INVALID_ARGUMENT, "mu_split_sizes: %d sizes of parts of axis %d; give 1 or more", n, axis);
    if (n > 0)
        MU_TRY(mu__need(sizes, "mu_split_sizes: the list of sizes"));
    if (n > 0)
        MU_TRY(mu__need(out, "mu_split_sizes: out"));
    return split(x, n, sizes, axis, out, "mu_split_sizes");
}

mu_status mu_split(mu_tensor *x, int n, int axis, mu_tensor **out)
{
    if (mu__pending() || !x)
        return split(x, 0, NULL, axis, out, "mu_split");
    if (n < 1)
        return mu__error(MU_INVALID_ARGUMENT, "mu_split: %d parts asked of axis %d; it takes 1 or more", n, axis);
    MU_TRY(mu__need(out, "mu_split: out"));
    int at = mu__axis(axis, x->shape.rank, "mu_split");
    if (at < 0)
        return MU_INVALID_ARGUMENT;
    if (x->shape.dims[at] < 0 || x->shape.dims[at] % n != 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_split: axis %d has size %lld, which %d parts do not divide", at,
                         (long long)x->shape.dims[at], n);
    int64_t *sizes = mu__alloc((size_t)n * sizeof sizes[0]);
    if (!sizes)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++)
        sizes[i] = x->shape.dims[at] / n;
    mu_status status = split(x, n, sizes, at, out, "mu_split");
    mu__free(sizes);
    return status;
}

mu_status mu_unstack(mu_tensor *x, int n, int axis, mu_tensor **out)
{
    const int at = !mu__pending() && x ? mu__axis(axis, x->shape.rank, "mu_unstack") : 0;
    if (!mu__pending() && x && n != x->shape.dims[at])
        return mu__error(MU_INVALID_ARGUMENT, "mu_unstack: %d slices asked of axis %d of size %lld", n, axis,
                         (long long)x->shape.dims[at]);
    if (x && n == 0)
        return mu_error_code();
    MU_TRY(mu_split(x, n, axis, out));
    for (int i = 0; i < n; i++)
        out[i] = mu_squeeze(out[i], axis);
    return mu_error_code();
}
