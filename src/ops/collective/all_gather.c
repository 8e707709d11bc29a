// all_gather: every replica gets the concatenation of all replicas' tensors along an axis.
//
// The tensors may differ in size along the axis. Shapes are exchanged first, so that the total size is known before
// memory is allocated; plans break here if the trace does not know the size (a batch axis). The second output holds
// every replica's size, from which the gradient finds this replica's part. Independent of transports.
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

enum { SHAPE_INTS = MU_MAX_RANK + 1 }; // a rank and its dimensions, as exchanged

static mu_status all_gather_infer(mu_infer *infer)
{
    const mu_all_gather_attrs *attrs = infer->attrs;
    const mu_shape *shape = &infer->in[0].shape;
    if (attrs->axis < 0 || attrs->axis >= shape->rank)
        return mu__error(MU_INVALID_ARGUMENT,
                         "all_gather: axis %lld of a tensor of rank %d; the axis must be one of its own",
                         (long long)attrs->axis, shape->rank);
    if (attrs->ranks < 1 || attrs->ranks > INT64_MAX / MU_MAX(shape->dims[attrs->axis], 1))
        return mu__error(MU_INVALID_ARGUMENT,
                         "all_gather: %lld replicas; there is at least one, and their parts together can be counted",
                         (long long)attrs->ranks);
    infer->out[0] = infer->in[0];
    if (attrs->uneven)
        infer->out[0].shape.dims[attrs->axis] = MU_UNKNOWN;
    else if (shape->dims[attrs->axis] != MU_UNKNOWN)
        infer->out[0].shape.dims[attrs->axis] *= attrs->ranks;
    infer->out[1] = (mu_spec){.dtype = MU_I64, .shape = {.rank = 1, .dims = {attrs->ranks}}};
    return MU_OK;
}

// Reads every replica's shape into `shapes`, [ranks][SHAPE_INTS].
static mu_status exchange_shapes(const mu_kernel *kernel, int64_t *shapes)
{
    const mu_shape *own = &kernel->in[0].shape;
    int64_t mine[SHAPE_INTS] = {own->rank}, few[64] = {0}, *counts = few;
    memcpy(mine + 1, own->dims, sizeof *mine * (size_t)own->rank);
    const int ranks = kernel->collective ? kernel->collective->size : 1;
    if (ranks == 1) {
        memcpy(shapes, mine, sizeof mine);
        return MU_OK;
    }
    if (ranks > (int)MU_COUNT(few) && !(counts = mu__alloc(sizeof *counts * (size_t)ranks)))
        return MU_RESOURCE_EXHAUSTED;
    for (int r = 0; r < ranks; r++)
        counts[r] = SHAPE_INTS;
    const mu_all_gather_attrs *attrs = kernel->attrs;
    mu__form_said(kernel->collective, 1, &kernel->in[0], (int)attrs->axis);
    const mu_status status = kernel->collective->all_gather(kernel->collective, kernel->number, attrs->name, MU_I64,
                                                            mine, SHAPE_INTS, shapes, counts);
    if (counts != few)
        mu__free(counts);
    return status;
}

// Validates shapes received from other replicas. The communicator has compared shapes, but these numbers arrived
// separately.
static bool can_be(const int64_t *ints, const mu_view *own, int64_t axis, mu_shape *out)
{
    if (ints[0] != own->shape.rank)
        return false;
    *out = mu_shape_make(own->shape.rank, ints + 1);
    for (int a = 0; a < out->rank; a++)
        if (out->dims[a] < 0 || (a != axis && out->dims[a] != own->shape.dims[a]))
            return false;
    return true;
}

// Writes the sizes along the axis; the other dimensions must be equal.
static mu_status check_shapes(const mu_kernel *kernel, int ranks, const int64_t *shapes, int64_t *extents,
                              int64_t *whole)
{
    const mu_all_gather_attrs *attrs = kernel->attrs;
    const mu_view *own = &kernel->in[0];
    mu_shape all = own->shape, shape;
    char text[MU_SHAPE_TEXT], theirs[MU_SHAPE_TEXT];
    *whole = 0;
    for (int r = 0; r < ranks; r++) {
        const int64_t *ints = shapes + r * SHAPE_INTS;
        if (!can_be(ints, own, attrs->axis, &shape)) {
            shape = mu_shape_make(ints[0] >= 0 && ints[0] <= MU_MAX_RANK ? (int)ints[0] : 0, ints + 1);
            return mu__error(MU_INVALID_ARGUMENT,
                             "all_gather: this replica's tensor has the shape %s, replica %d's %s; they may differ "
                             "only along axis %lld",
                             mu__shape_text(&own->shape, text), r, mu__shape_text(&shape, theirs),
                             (long long)attrs->axis);
        }
        extents[r] = shape.dims[attrs->axis];
        if (extents[r] > INT64_MAX - *whole)
            return mu__error(MU_INVALID_ARGUMENT, "all_gather: the replicas' parts have more rows than can be counted");
        *whole += extents[r];
    }
    all.dims[attrs->axis] = *whole;
    return mu__shape_check(&all, "all_gather: the whole of all replicas");
}

// Calls a function with every replica's size along the axis, then frees the sizes.
static mu_status with_extents(const mu_kernel *kernel, mu_spec *measured,
                              mu_status (*then)(const mu_kernel *kernel, int ranks, int64_t *extents))
{
    const int ranks = kernel->collective ? kernel->collective->size : 1;
    int64_t *shapes = mu__calloc((size_t)ranks, (SHAPE_INTS + 1) * sizeof *shapes), whole;
    if (!shapes)
        return MU_RESOURCE_EXHAUSTED;
    int64_t *extents = shapes + ranks * SHAPE_INTS;
    mu_status status = exchange_shapes(kernel, shapes);
    if (status == MU_OK)
        status = check_shapes(kernel, ranks, shapes, extents, &whole);
    if (status == MU_OK && measured) {
        measured[0].shape.dims[((const mu_all_gather_attrs *)kernel->attrs)->axis] = whole;
        measured[1].shape.dims[0] = ranks;
    }
    if (status == MU_OK && then)
        status = then(kernel, ranks, extents);
    mu__free(shapes);
    return status;
}

static mu_status all_gather_measure(const mu_kernel *kernel, mu_spec *out) { return with_extents(kernel, out, NULL); }

// Interleaves the replicas' blocks into one tensor.
static void place_blocks(const mu_kernel *kernel, int ranks, const int64_t *extents, int64_t outer, size_t inner,
                         const char *blocks)
{
    const mu_all_gather_attrs *attrs = kernel->attrs;
    const size_t stride = (size_t)kernel->out[0].shape.dims[attrs->axis] * inner;
    char *to = kernel->out[0].data;
    for (int r = 0; r < ranks; r++) {
        const size_t bytes = (size_t)extents[r] * inner;
        for (int64_t o = 0; o < outer; o++, blocks += bytes)
            memcpy(to + (size_t)o * stride, blocks, bytes);
        to += bytes;
    }
}

static mu_status gather_parts(const mu_kernel *kernel, int ranks, int64_t *extents)
{
    const mu_all_gather_attrs *attrs = kernel->attrs;
    const mu_view *in = &kernel->in[0], *out = &kernel->out[0];
    const int axis = (int)attrs->axis;
    int64_t whole = 0, outer = 1, inner = 1;
    memcpy(kernel->out[1].data, extents, sizeof *extents * (size_t)ranks);
    for (int r = 0; r < ranks; r++)
        whole += extents[r];
    if (whole != out->shape.dims[axis] || ranks != out[1].shape.dims[0])
        return mu__error(MU_UNIMPLEMENTED,
                         "all_gather: the replicas' parts have %lld rows in all, %lld were planned for %lld replicas; "
                         "run this step eagerly with mu_run_callback",
                         (long long)whole, (long long)out->shape.dims[axis], (long long)attrs->ranks);
    for (int a = 0; a < in->shape.rank; a++)
        *(a < axis ? &outer : &inner) *= a == axis ? 1 : in->shape.dims[a];
    const size_t element = mu_dtype_bytes(in->dtype), bytes = (size_t)mu__elements(&out->shape) * element;
    if (!kernel->collective || ranks == 1) {
        memcpy(out->data, in->data, bytes);
        return MU_OK;
    }
    char *blocks = outer == 1 ? out->data : mu__alloc_data(bytes);
    int64_t *counts = mu__alloc(sizeof *counts * (size_t)ranks);
    mu_status status = blocks && counts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int r = 0; counts && r < ranks; r++)
        counts[r] = outer * inner * extents[r];
    if (status == MU_OK)
        status = kernel->collective->all_gather(kernel->collective, kernel->number, attrs->name, in->dtype, in->data,
                                                mu__elements(&in->shape), blocks, counts);
    if (status == MU_OK && outer != 1)
        place_blocks(kernel, ranks, extents, outer, (size_t)inner * element, blocks);
    mu__free(counts);
    if (blocks && outer != 1)
        mu__free_data(blocks, bytes);
    return status;
}

static mu_status all_gather_ref(const mu_kernel *kernel) { return with_extents(kernel, NULL, gather_parts); }

// Sums all replicas' gradients, then takes this replica's part.
static mu_tensor *all_gather_grad(mu_grad *g, int i)
{
    (void)i;
    const mu_all_gather_attrs *attrs = g->attrs;
    mu_all_reduce_attrs sum;
    memset(&sum, 0, sizeof sum);
    snprintf(sum.name, sizeof sum.name, "all_gather_grad");
    const mu_axis_attrs axis = {.axis = attrs->axis};
    mu_tensor *dy = attrs->ranks == 1 ? g->dy : mu__apply1(&mu_op_all_reduce, &sum, mu__grad_of(g, 0));
    return mu__apply3(&mu_op_all_gather_part, &axis, dy, g->x[0], g->y[1]);
}

static const mu_attr_spec all_gather_fields[] = {
    {"axis", MU_ATTR_INT, offsetof(mu_all_gather_attrs, axis)},
    {"ranks", MU_ATTR_INT, offsetof(mu_all_gather_attrs, ranks)},
    {"uneven", MU_ATTR_BOOL, offsetof(mu_all_gather_attrs, uneven)},
    {"name", MU_ATTR_TEXT, offsetof(mu_all_gather_attrs, name)},
    {0},
};

const mu_op mu_op_all_gather = {
    .name = "all_gather",
    .n_in = 1,
    .n_out = 2,
    .flags = MU_OP_COLLECTIVE,
    .dtypes = MU_ALL_DTYPES,
    .attrs_bytes = sizeof(mu_all_gather_attrs),
    .attrs = all_gather_fields,
    .infer = all_gather_infer,
    .grad = all_gather_grad,
    .ref = all_gather_ref,
    .measure = all_gather_measure,
    .lower = mu__lower_all_gather,
};

// ---- all_gather_part: (dy, x, extents) to this replica's part of dy -----------------------------

static mu_status part_infer(mu_infer *infer)
{
    const mu_axis_attrs *attrs = infer->attrs;
    if (infer->in[0].shape.rank != infer->in[1].shape.rank || attrs->axis < 0 ||
        attrs->axis >= infer->in[0].shape.rank || infer->in[2].shape.rank != 1 || infer->in[2].dtype != MU_I64)
        return mu__error(MU_INVALID_ARGUMENT,
                         "all_gather_part: axis %lld of ranks %d and %d; the extents must be an int64 vector",
                         (long long)attrs->axis, infer->in[0].shape.rank, infer->in[1].shape.rank);
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = infer->in[1].shape};
    return MU_OK;
}

static mu_status part_ref(const mu_kernel *kernel)
{
    const int axis = (int)((const mu_axis_attrs *)kernel->attrs)->axis;
    const mu_view *dy = &kernel->in[0], *out = &kernel->out[0];
    const int64_t *extents = kernel->in[2].data, ranks = kernel->in[2].shape.dims[0];
    const int rank = kernel->collective ? kernel->collective->rank : 0;
    int64_t outer = 1, inner = 1, before = 0;
    for (int r = 0; r < rank && r < ranks; r++)
        before += extents[r];
    for (int a = 0; a < dy->shape.rank; a++)
        *(a < axis ? &outer : &inner) *= a == axis ? 1 : dy->shape.dims[a];
    const size_t row = (size_t)inner * mu_dtype_bytes(dy->dtype);
    const size_t stride = (size_t)dy->shape.dims[axis] * row, bytes = (size_t)out->shape.dims[axis] * row;
    if (before + out->shape.dims[axis] > dy->shape.dims[axis])
        return mu__error(MU_INVALID_ARGUMENT, "all_gather_part: rows %lld to %lld of %lld", (long long)before,
                         (long long)(before + out->shape.dims[axis]), (long long)dy->shape.dims[axis]);
    for (int64_t o = 0; o < outer; o++)
        memcpy((char *)out->data + (size_t)o * bytes,
               (const char *)dy->data + (size_t)o * stride + (size_t)before * row, bytes);
    return MU_OK;
}

mu_status mu__lower_all_gather_part(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const int axis = (int)((const mu_axis_attrs *)l->attrs)->axis;
    const mu_hlo extents = l->in[2];
    const mu_shape *ranks = &extents.spec.shape;
    const mu_ints all = {.n = 1};
    const mu_hlo own = mu__hlo_broadcast_to(e, mu__hlo_replica(e, MU_I64), ranks);
    const mu_hlo earlier = mu__hlo_compare(e, "LT", mu__hlo_iota(e, MU_I64, ranks, 0), own);
    const mu_hlo sizes = mu__hlo_select(e, earlier, extents, mu__hlo_fill(e, MU_I64, ranks, 0));
    const mu_hlo begin = mu__hlo_reduce(e, "stablehlo.add", sizes, mu__hlo_number(e, MU_I64, 0), &all);
    return mu__lowered(l, 0, mu__hlo_part(e, l->in[0], axis, begin, l->out[0].spec.shape.dims[axis]));
}

static const mu_attr_spec part_fields[] = {{"axis", MU_ATTR_INT, offsetof(mu_axis_attrs, axis)}, {0}};

const mu_op mu_op_all_gather_part = {
    .name = "all_gather_part",
    .n_in = 3,
    .n_out = 1,
    .shape_only = 1u << 1,
    .attrs_bytes = sizeof(mu_axis_attrs),
    .attrs = part_fields,
    .infer = part_infer,
    .ref = part_ref,
    .lower = mu__lower_all_gather_part,
};
