// Ops that change the shape: reshape and similar ops, which share the buffer; transpose and broadcasting, which read
// the input with other strides.
//
// A shape that is known only at run time comes from a second tensor, of which only the shape is used (…_like).
// Gradients need this for unknown batch axes.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"

#include <muster/ops.h>

enum { STRIP = 64 }; // least rows of a transposed matrix per thread

#define T        uint8_t
#define FN(name) name##_8
#include "ops/array/move_loops.inc.c"
#define T        uint16_t
#define FN(name) name##_16
#include "ops/array/move_loops.inc.c"
#define T        uint32_t
#define FN(name) name##_32
#include "ops/array/move_loops.inc.c"
#define T        uint64_t
#define FN(name) name##_64
#include "ops/array/move_loops.inc.c"

typedef struct transpose_job {
    const mu_kernel *kernel;
    const mu_walk *walk;
} transpose_job;

// A walk over blocks of `length` elements that are contiguous in the input too.
typedef struct block_job {
    const mu_kernel *kernel;
    size_t bytes; // of an element
    int64_t length;
} block_job;

static void move_blocks(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const block_job *job = arg;
    const size_t block = (size_t)job->length * job->bytes;
    mu__copy_blocks((char *)job->kernel->out[0].data + (size_t)out_at * block, block,
                    (const char *)job->kernel->in[0].data + (size_t)at[0] * job->bytes,
                    (size_t)walk->strides[0][walk->rank - 1] * job->bytes, block, n);
}

static mu_status run_moves(const mu_kernel *k, const mu_walk *walk)
{
    const size_t bytes = mu_dtype_bytes(k->in[0].dtype);
    const int inner = walk->rank - 1;
    if (inner > 0 && walk->strides[0][inner] == 1) {
        block_job job = {.kernel = k, .bytes = bytes, .length = walk->dims[inner]};
        mu_walk outer = *walk;
        outer.rank--;
        mu__walk_blocks(&outer, k->team, job.length, move_blocks, &job);
        return MU_OK;
    }
    mu__walk_run(walk, k->team, bytes == 1 ? move_8 : bytes == 2 ? move_16 : bytes == 4 ? move_32 : move_64, (void *)k);
    return MU_OK;
}

// The kernel of a view op, used if an engine gave the output its own memory.
static mu_status same_bytes_ref(const mu_kernel *k)
{
    size_t bytes = (size_t)mu__elements(&k->in[0].shape) * mu_dtype_bytes(k->in[0].dtype);
    if (k->out[0].data != k->in[0].data && bytes)
        memcpy(k->out[0].data, k->in[0].data, bytes);
    return MU_OK;
}

// ---- Views; their gradients reshape back to the input's shape -----------------------------------

#define VIEW1(text, rule) \
    .name = text, .n_in = 1, .n_out = 1, .flags = MU_OP_VIEW, .in_place = 1, .infer = rule, .ref = same_bytes_ref

static mu_tensor *view_grad(mu_grad *g, int i) { return i == 0 ? mu_reshape_like(g->dy, g->x[0]) : NULL; }

static mu_status reshape_error(const mu_infer *infer, const mu_shape *wanted)
{
    char from[MU_SHAPE_TEXT], to[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT, "%s: shape %s cannot become %s: the numbers of elements differ",
                     infer->op->name, mu__shape_text(&infer->in[0].shape, from), mu__shape_text(wanted, to));
}

static mu_status reshape_infer(mu_infer *infer)
{
    const mu_shape *in = &infer->in[0].shape, *wanted = &((const mu_shape_attrs *)infer->attrs)->shape;
    mu_shape shape = *wanted;
    int64_t known = 1, n = mu__elements(in), open = -1;
    MU_TRY(mu__shape_check(wanted, infer->op->name));
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dims[i] != MU_UNKNOWN) {
            known *= shape.dims[i];
            continue;
        }
        if (open >= 0)
            return mu__error(MU_INVALID_ARGUMENT, "%s: dimensions %d and %d are both -1; one can follow from the rest",
                             infer->op->name, (int)open, i);
        open = i;
    }
    if (n != MU_UNKNOWN && (open < 0 ? known != n : known == 0 ? n != 0 : n % known != 0))
        return reshape_error(infer, wanted);
    if (n != MU_UNKNOWN && open >= 0)
        shape.dims[open] = known == 0 ? 0 : n / known;
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = shape};
    return MU_OK;
}

static const mu_attr_spec shape_attrs[] = {{"shape", MU_ATTR_SHAPE, offsetof(mu_shape_attrs, shape)}, {0}};
static const mu_shape_attrs to_5x3 = {MU_DIMS(5, -1)}, to_scalar = {MU_NO_DIMS}, to_0x7 = {MU_DIMS(0, 7)};
static const mu_sample samples_reshape[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &to_5x3},
    {.n_in = 1, .in = {MU_DIMS(1, 1)}, .attrs = &to_scalar},
    {.n_in = 1, .in = {MU_DIMS(2, 0)}, .attrs = &to_0x7},
    {0},
};
const mu_op mu_op_reshape = {VIEW1("reshape", reshape_infer),
                             .attrs_bytes = sizeof(mu_shape_attrs),
                             .attrs = shape_attrs,
                             .grad = view_grad,
                             .samples = samples_reshape,
                             .lower = mu__lower_reshape};
mu_tensor *mu_reshape(mu_tensor *x, int rank, const int64_t *dims)
{
    mu_shape_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = mu_shape_make(rank, dims);
    return mu__apply1(&mu_op_reshape, &attrs, x);
}

static mu_status expand_dims_infer(mu_infer *infer)
{
    const mu_shape *in = &infer->in[0].shape;
    int64_t axis = ((const mu_axis_attrs *)infer->attrs)->axis;
    if (axis < 0 || axis > in->rank || in->rank == MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "expand_dims: axis %lld of the result, which has rank %d (at most %d)",
                         (long long)axis, in->rank + 1, MU_MAX_RANK);
    mu_shape shape = {.rank = in->rank + 1};
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = i == axis ? 1 : in->dims[i - (i > axis)];
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = shape};
    return MU_OK;
}

static const mu_attr_spec axis_attrs[] = {{"axis", MU_ATTR_INT, offsetof(mu_axis_attrs, axis)}, {0}};
static const mu_axis_attrs axis_0 = {0}, axis_1 = {1};
static const mu_sample samples_expand[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &axis_1},
    {.n_in = 1, .in = {MU_NO_DIMS}, .attrs = &axis_0},
    {0},
};
const mu_op mu_op_expand_dims = {VIEW1("expand_dims", expand_dims_infer),
                                 .attrs_bytes = sizeof(mu_axis_attrs),
                                 .attrs = axis_attrs,
                                 .grad = view_grad,
                                 .samples = samples_expand,
                                 .lower = mu__lower_reshape};
mu_tensor *mu_expand_dims(mu_tensor *x, int axis)
{
    mu_axis_attrs attrs = {.axis = axis};
    if (x && !mu__pending() && (attrs.axis = mu__axis(axis, x->shape.rank + 1, "mu_expand_dims, of the result,")) < 0)
        return NULL;
    return mu__apply1(&mu_op_expand_dims, &attrs, x);
}

static mu_status squeeze_infer(mu_infer *infer)
{
    const mu_shape *in = &infer->in[0].shape;
    const mu_ints *axes = &((const mu_axes_attrs *)infer->attrs)->axes;
    mu_shape shape = {.rank = 0};
    int64_t next = 0;
    for (int i = 0; i < in->rank; i++) {
        if (next >= axes->n || axes->at[next] != i) {
            shape.dims[shape.rank++] = in->dims[i];
            continue;
        }
        next++;
        if (in->dims[i] != 1 && in->dims[i] != MU_UNKNOWN) {
            char text[MU_SHAPE_TEXT];
            return mu__error(MU_INVALID_ARGUMENT, "squeeze: axis %d of shape %s does not have size 1", i,
                             mu__shape_text(in, text));
        }
    }
    if (next != axes->n)
        return mu__error(MU_INVALID_ARGUMENT, "squeeze: the axes must be ascending and below rank %d", in->rank);
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = shape};
    return MU_OK;
}

static const mu_attr_spec axes_attrs[] = {{"axes", MU_ATTR_INTS, offsetof(mu_axes_attrs, axes)}, {0}};
static const mu_axes_attrs axes_02 = {{2, {0, 2}}};
static const mu_sample samples_squeeze[] = {{.n_in = 1, .in = {MU_DIMS(1, 5, 1)}, .attrs = &axes_02}, {0}};
const mu_op mu_op_squeeze = {VIEW1("squeeze", squeeze_infer),
                             .attrs_bytes = sizeof(mu_axes_attrs),
                             .attrs = axes_attrs,
                             .grad = view_grad,
                             .samples = samples_squeeze,
                             .lower = mu__lower_reshape};
mu_tensor *mu_squeeze(mu_tensor *x, int axis)
{
    mu_axes_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (axis == MU_ALL_AXES) {
        for (int i = 0; x && i < x->shape.rank; i++)
            if (x->shape.dims[i] == 1)
                attrs.axes.at[attrs.axes.n++] = i;
    } else if (x && !mu__pending()) {
        attrs.axes.n = 1;
        attrs.axes.at[0] = mu__axis(axis, x->shape.rank, "mu_squeeze");
        if (attrs.axes.at[0] < 0)
            return NULL;
    }
    return mu__apply1(&mu_op_squeeze, &attrs, x);
}

static mu_tensor *identity_grad(mu_grad *g, int i)
{
    (void)i;
    return g->dy;
}
static const mu_sample samples_any[] = {{.n_in = 1, .in = {MU_DIMS(3, 5)}}, {.n_in = 1, .in = {MU_DIMS(0)}}, {0}};
const mu_op mu_op_identity = {VIEW1("identity", mu__infer_same), .grad = identity_grad, .samples = samples_any,
                              .lower = mu__lower_reshape};
const mu_op mu_op_stop_gradient = {VIEW1("stop_gradient", mu__infer_same), .samples = samples_any,
                                   .lower = mu__lower_reshape};
// inner_read(a, b): a is what a function body read of a variable that it also writes; b is a read of the variable
// outside the body. Returns a's value, but its gradient goes to b. So a gradient with respect to the variable leaves
// the body.
static mu_status inner_read_infer(mu_infer *infer)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    const mu_spec *value = &infer->in[0], *outside = &infer->in[1];
    if (value->dtype != outside->dtype || !mu__shape_compatible(&value->shape, &outside->shape))
        return mu__error(MU_INVALID_ARGUMENT,
                         "inner_read: the value is %s%s and the read around it %s%s; they must be of one variable",
                         mu_dtype_name(value->dtype), mu__shape_text(&value->shape, seen),
                         mu_dtype_name(outside->dtype), mu__shape_text(&outside->shape, wanted));
    return mu__infer_same(infer);
}
static mu_tensor *inner_read_grad(mu_grad *g, int i) { return i == 1 ? g->dy : NULL; }
static const mu_sample samples_inner_read[] = {{.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .no_grad = 3}, {0}};
const mu_op mu_op_inner_read = {
    .name = "inner_read",
    .n_in = 2,
    .n_out = 1,
    .flags = MU_OP_VIEW,
    .in_place = 1,
    .infer = inner_read_infer,
    .grad = inner_read_grad,
    .ref = same_bytes_ref,
    .samples = samples_inner_read,
    .lower = mu__lower_reshape,
};

static mu_status reshape_like_infer(mu_infer *infer)
{
    int64_t from = mu__elements(&infer->in[0].shape), to = mu__elements(&infer->in[1].shape);
    if (from != MU_UNKNOWN && to != MU_UNKNOWN && from != to)
        return reshape_error(infer, &infer->in[1].shape);
    return mu__infer_like(infer);
}
static const mu_sample samples_reshape_like[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(5, 3)}, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(0, 5), MU_DIMS(0)}, .no_grad = 2},
    {0},
};
const mu_op mu_op_reshape_like = {
    .name = "reshape_like",
    .n_in = 2,
    .n_out = 1,
    .flags = MU_OP_VIEW,
    .shape_only = 2,
    .in_place = 1,
    .infer = reshape_like_infer,
    .grad = view_grad,
    .ref = same_bytes_ref,
    .samples = samples_reshape_like,
    .lower = mu__lower_reshape,
};
mu_tensor *mu_reshape_like(mu_tensor *x, mu_tensor *like)
{
    if (x && like && mu__shape_equal(&x->shape, &like->shape) && mu__shape_known(&x->shape))
        return x;
    return mu__apply2(&mu_op_reshape_like, NULL, x, like);
}

// ---- Transpose ----------------------------------------------------------------------------------

static mu_status transpose_infer(mu_infer *infer)
{
    const mu_shape *in = &infer->in[0].shape;
    const mu_ints *axes = &((const mu_axes_attrs *)infer->attrs)->axes;
    unsigned seen = 0;
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = {.rank = in->rank}};
    for (int i = 0; i < in->rank && axes->n == in->rank; i++) {
        int64_t axis = axes->at[i];
        if (axis < 0 || axis >= in->rank)
            break;
        seen |= 1u << axis;
        infer->out[0].shape.dims[i] = in->dims[axis];
    }
    if (axes->n == in->rank && seen == (1u << in->rank) - 1)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "transpose: the axes must be a permutation of 0 to %d: each once",
                     in->rank - 1);
}

static int64_t strips_of(const mu_walk *walk) { return (walk->dims[walk->rank - 2] + STRIP - 1) / STRIP; }

// Transposes strips of the innermost matrices of a walk whose input has stride 1 along their rows' axis.
static void transpose_range(void *arg, int64_t begin, int64_t end)
{
    const transpose_job *job = arg;
    const mu_walk *walk = job->walk;
    const size_t bytes = mu_dtype_bytes(job->kernel->in[0].dtype);
    const int64_t rows = walk->dims[walk->rank - 2], columns = walk->dims[walk->rank - 1], strips = strips_of(walk);
    while (begin < end) {
        const int64_t matrix = begin / strips, first = begin % strips, last = MU_MIN(first + end - begin, strips);
        int64_t at = 0, rest = matrix;
        for (int axis = walk->rank - 3; axis >= 0; axis--) {
            at += rest % walk->dims[axis] * walk->strides[0][axis];
            rest /= walk->dims[axis];
        }
        mu__kernels()->transpose((const char *)job->kernel->in[0].data + (size_t)at * bytes,
                                 walk->strides[0][walk->rank - 1],
                                 (char *)job->kernel->out[0].data + (size_t)(matrix * rows * columns) * bytes, columns,
                                 (int)bytes, first * STRIP, MU_MIN(last * STRIP, rows));
        begin += last - first;
    }
}

static mu_status transpose_ref(const mu_kernel *k)
{
    const mu_ints *axes = &((const mu_axes_attrs *)k->attrs)->axes;
    for (int64_t i = 0; i < mu__elements(&k->out[0].shape); i++) {
        int64_t index[MU_MAX_RANK], from[MU_MAX_RANK];
        mu__index_of(&k->out[0].shape, i, index);
        for (int axis = 0; axis < axes->n; axis++)
            from[axes->at[axis]] = index[axis];
        mu__copy_element(&k->out[0], i, &k->in[0], mu__element_at(&k->in[0].shape, from));
    }
    return MU_OK;
}

static mu_status transpose_fast(const mu_kernel *k)
{
    const mu_shape *in = &k->in[0].shape;
    const mu_ints *axes = &((const mu_axes_attrs *)k->attrs)->axes;
    int64_t steps[MU_MAX_RANK], strides[1][MU_MAX_RANK] = {{0}}, step = 1;
    for (int i = in->rank - 1; i >= 0; i--) {
        steps[i] = step;
        step *= in->dims[i];
    }
    for (int i = 0; i < in->rank; i++)
        strides[0][i] = steps[axes->at[i]];
    mu_walk walk;
    mu__walk_strided(&walk, &k->out[0].shape, 1, (const int64_t(*)[MU_MAX_RANK])strides);
    if (walk.rank < 2 || walk.strides[0][walk.rank - 2] != 1)
        return run_moves(k, &walk);
    transpose_job job = {.kernel = k, .walk = &walk};
    int64_t n = mu__elements(in), matrix = walk.dims[walk.rank - 2] * walk.dims[walk.rank - 1];
    mu__share_range(k->team, matrix > 0 ? n / matrix * strips_of(&walk) : 0, 1, n, transpose_range, &job);
    return MU_OK;
}

static mu_tensor *transpose_grad(mu_grad *g, int i)
{
    const mu_ints *axes = &((const mu_axes_attrs *)g->attrs)->axes;
    int back[MU_MAX_RANK] = {0};
    (void)i;
    for (int a = 0; a < axes->n; a++)
        back[axes->at[a]] = a;
    return mu_transpose(g->dy, back);
}

static const mu_axes_attrs swap_2 = {{2, {1, 0}}}, last_3 = {{3, {0, 2, 1}}}, transpose_3 = {{3, {2, 0, 1}}},
                           keep_3 = {{3, {1, 0, 2}}};
static const mu_sample samples_transpose[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &swap_2},
    {.n_in = 1, .in = {MU_DIMS(3, 1, 4)}, .attrs = &transpose_3},
    {.n_in = 1, .in = {MU_DIMS(2, 35, 33)}, .attrs = &last_3},
    {.n_in = 1, .in = {MU_DIMS(3, 2, 4)}, .attrs = &keep_3},
    {.n_in = 1, .in = {MU_DIMS(3, 0)}, .attrs = &swap_2},
    {0},
};
const mu_op mu_op_transpose = {
    .name = "transpose",
    .n_in = 1,
    .n_out = 1,
    .attrs_bytes = sizeof(mu_axes_attrs),
    .attrs = axes_attrs,
    .infer = transpose_infer,
    .grad = transpose_grad,
    .ref = transpose_ref,
    .cpu = {.run = transpose_fast},
    .samples = samples_transpose,
    .lower = mu__lower_transpose,
};
mu_tensor *mu_transpose(mu_tensor *x, const int *axes)
{
    mu_axes_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.axes.n = x ? x->shape.rank : 0;
    for (int i = 0; i < attrs.axes.n; i++) {
        int axis = axes ? axes[i] : (int)attrs.axes.n - 1 - i;
        attrs.axes.at[i] = axis < 0 ? axis + attrs.axes.n : axis;
    }
    return mu__apply1(&mu_op_transpose, &attrs, x);
}

// ---- Broadcasting -------------------------------------------------------------------------------

static mu_status broadcast_ref(const mu_kernel *k)
{
    const mu_view *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&out->shape); i++)
        mu__copy_element(out, i, &k->in[0], mu__broadcast_at(&out->shape, &k->in[0].shape, i));
    return MU_OK;
}

static mu_status broadcast_fast(const mu_kernel *k)
{
    mu_walk walk;
    mu__walk_make(&walk, &k->out[0].shape, 1, k->in);
    return run_moves(k, &walk);
}

static mu_tensor *broadcast_grad(mu_grad *g, int i) { return i == 0 ? mu__unbroadcast(g, g->dy, 0) : NULL; }

// The input must broadcast to the requested shape.
static mu_status broadcast_into(const mu_infer *infer, const mu_shape *wanted, mu_spec *out)
{
    mu_shape result;
    MU_TRY(mu__broadcast(&infer->in[0].shape, wanted, &result, infer->op->name));
    if (!mu__shape_compatible(&result, wanted)) {
        char from[MU_SHAPE_TEXT], to[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT, "%s: shape %s does not broadcast to %s", infer->op->name,
                         mu__shape_text(&infer->in[0].shape, from), mu__shape_text(wanted, to));
    }
    *out = (mu_spec){.dtype = infer->in[0].dtype, .shape = *wanted};
    return MU_OK;
}

static mu_status broadcast_to_infer(mu_infer *infer)
{
    const mu_shape *wanted = &((const mu_shape_attrs *)infer->attrs)->shape;
    char text[MU_SHAPE_TEXT];
    MU_TRY(mu__shape_check(wanted, infer->op->name));
    if (!mu__shape_known(wanted))
        return mu__error(MU_INVALID_ARGUMENT,
                         "broadcast_to: shape %s is not known; give every dimension, or take it from another tensor "
                         "(broadcast_like)",
                         mu__shape_text(wanted, text));
    return broadcast_into(infer, wanted, &infer->out[0]);
}
static const mu_shape_attrs to_435 = {MU_DIMS(4, 3, 5)}, to_0x3 = {MU_DIMS(0, 3)};
static const mu_sample samples_broadcast_to[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 1)}, .attrs = &to_435},
    {.n_in = 1, .in = {MU_NO_DIMS}, .attrs = &to_435},
    {.n_in = 1, .in = {MU_DIMS(1, 3)}, .attrs = &to_0x3},
    {0},
};
const mu_op mu_op_broadcast_to = {
    .name = "broadcast_to",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_VIEW_IF_SAME,
    .attrs_bytes = sizeof(mu_shape_attrs),
    .attrs = shape_attrs,
    .infer = broadcast_to_infer,
    .grad = broadcast_grad,
    .ref = broadcast_ref,
    .cpu = {.run = broadcast_fast},
    .samples = samples_broadcast_to,
    .lower = mu__lower_broadcast,
};
mu_tensor *mu_broadcast_to(mu_tensor *x, int rank, const int64_t *dims)
{
    mu_shape_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = mu_shape_make(rank, dims);
    return mu__apply1(&mu_op_broadcast_to, &attrs, x);
}

static mu_status broadcast_like_infer(mu_infer *infer)
{
    return broadcast_into(infer, &infer->in[1].shape, &infer->out[0]);
}
static const mu_sample samples_broadcast_like[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 1), MU_DIMS(4, 3, 5)}, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .no_grad = 2},
    {.n_in = 2, .in = {MU_NO_DIMS, MU_DIMS(0)}, .no_grad = 2},
    {0},
};
const mu_op mu_op_broadcast_like = {
    .name = "broadcast_like",
    .n_in = 2,
    .n_out = 1,
    .shape_only = 2,
    .flags = MU_OP_VIEW_IF_SAME,
    .infer = broadcast_like_infer,
    .grad = broadcast_grad,
    .ref = broadcast_ref,
    .cpu = {.run = broadcast_fast},
    .samples = samples_broadcast_like,
    .lower = mu__lower_broadcast,
};
mu_tensor *mu_broadcast_like(mu_tensor *x, mu_tensor *like)
{
    if (x && like && mu__shape_equal(&x->shape, &like->shape) && mu__shape_known(&x->shape))
        return x;
    return mu__apply2(&mu_op_broadcast_like, NULL, x, like);
}

// ---- Sizes --------------------------------------------------------------------------------------

static mu_status dim_size_infer(mu_infer *infer)
{
    const mu_ints *axes = &((const mu_axes_attrs *)infer->attrs)->axes;
    for (int64_t i = 0; i < axes->n; i++)
        if (axes->at[i] < 0 || axes->at[i] >= infer->in[0].shape.rank)
            return mu__error(MU_INVALID_ARGUMENT, "dim_size: axis %lld for rank %d", (long long)axes->at[i],
                             infer->in[0].shape.rank);
    infer->out[0] = (mu_spec){.dtype = MU_I64, .shape = mu__scalar_shape};
    return MU_OK;
}

static mu_status dim_size_ref(const mu_kernel *k)
{
    const mu_ints *axes = &((const mu_axes_attrs *)k->attrs)->axes;
    int64_t n = 1;
    for (int64_t i = 0; i < axes->n; i++)
        n *= k->in[0].shape.dims[axes->at[i]];
    *(int64_t *)k->out[0].data = n;
    return MU_OK;
}

static const mu_sample samples_dim_size[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5, 7)}, .attrs = &axes_02, .no_grad = 1},
    {0},
};
const mu_op mu_op_dim_size = {
    .name = "dim_size",
    .n_in = 1,
    .n_out = 1,
    .shape_only = 1,
    .attrs_bytes = sizeof(mu_axes_attrs),
    .attrs = axes_attrs,
    .infer = dim_size_infer,
    .ref = dim_size_ref,
    .samples = samples_dim_size,
    .lower = mu__lower_dim_size,
};
mu_tensor *mu_dim_size(mu_tensor *x, int axis)
{
    if (!x || mu__pending())
        return mu__apply1(&mu_op_dim_size, NULL, x);
    mu_axes_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    int at = axis == MU_ALL_AXES ? 0 : mu__axis(axis, x->shape.rank, "mu_dim_size");
    if (at < 0)
        return NULL;
    attrs.axes.n = axis == MU_ALL_AXES ? x->shape.rank : 1;
    for (int i = 0; i < attrs.axes.n; i++)
        attrs.axes.at[i] = at + i;
    return mu__dim_product(x, &attrs.axes);
}

mu_tensor *mu__dim_product(mu_tensor *x, const mu_ints *axes)
{
    mu_axes_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.axes = *axes;
    int64_t n = 1;
    for (int64_t i = 0; x && i < axes->n && n != MU_UNKNOWN; i++)
        n = x->shape.dims[axes->at[i]] == MU_UNKNOWN ? MU_UNKNOWN : n * x->shape.dims[axes->at[i]];
    return x && n != MU_UNKNOWN ? mu_tensor_new(MU_I64, 0, NULL, &n) : mu__apply1(&mu_op_dim_size, &attrs, x);
}
