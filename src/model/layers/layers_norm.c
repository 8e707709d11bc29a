// Layers that normalize: over the batch, the last axis, its root mean square, groups of channels, or to unit length.
#include "distribute/servers/aggregation.h"
#include "model/core/layer.h"
#include "ops/nn/nn.h"

#include <muster/nn.h>
#include <muster/ops.h>

// Scale and shift: which weights there are, and how they start.
#define AFFINE_FIELDS(type)                                                                             \
    MU_FIELD(type, no_center, NOT, .keras = "center"), MU_FIELD(type, no_scale, NOT, .keras = "scale"), \
        MU_FIELD_WEIGHT(type, beta, "zeros"), MU_FIELD_WEIGHT(type, gamma, "ones")
// The same in `build`: gamma and beta, in Keras's order.
#define AFFINE_WEIGHTS(layer, args, shape)                                         \
    do {                                                                           \
        if (!(args)->no_scale)                                                     \
            MU_TRY(mu__weight(layer, "gamma", shape, MU_OPTIONS_OF(args, gamma))); \
        if (!(args)->no_center)                                                    \
            MU_TRY(mu__weight(layer, "beta", shape, MU_OPTIONS_OF(args, beta)));   \
    } while (0)

// These layers compute half types in float32, as Keras's do, and return what the layer's policy computes in.
static mu_tensor *widened(mu_tensor *x) { return x && mu__dtype_is_half(x->dtype) ? mu_cast(x, MU_F32) : x; }

static mu_tensor *weight(const mu_layer *layer, const char *name) { return widened(mu__weight_read(layer, name)); }

static mu_value *narrowed(const mu_layer *layer, mu_tensor *y) { return mu_of(mu_cast(y, layer->policy.compute)); }

// ---- Axes ---------------------------------------------------------------------------------------

// Axes that are counted from the front, in increasing order.
typedef struct axis_list {
    int n, items[MU_MAX_RANK];
} axis_list;

// The axes of a class's options, for an input of this rank; no axes are the last one.
static axis_list axes_of(int rank, int n, const int *axes)
{
    axis_list list = {.n = n > 0 ? n : 1, .items = {rank - 1}};
    for (int i = 0; i < n && i < MU_MAX_RANK; i++)
        list.items[i] = axes[i] < 0 ? axes[i] + rank : axes[i];
    return list;
}

// The sizes of the axes, which weights have.
static mu_status sizes_of(const mu_layer *layer, const mu_shape *input, int n, const int *axes, mu_shape *out)
{
    MU_TRY(mu__need_input_rank(layer, input, 2, MU_MAX_RANK));
    char text[MU_SHAPE_TEXT];
    const axis_list list = axes_of(input->rank, n, axes);
    *out = (mu_shape){.rank = list.n};
    for (int i = 0, before = 0; i < n; before = list.items[i++])
        if (n >= MU_MAX_RANK || list.items[i] <= before || list.items[i] >= input->rank)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': axis %d of those to normalize is %d; they must lie from 1 to %d, or be "
                             "negative and count from the end, and increase",
                             mu_layer_name(layer), i, axes[i], input->rank - 1);
    for (int i = 0; i < list.n; i++)
        if ((out->dims[i] = input->dims[list.items[i]]) == MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s' needs to know axis %d to make its weights; it was given %s",
                             mu_layer_name(layer), list.items[i], mu__shape_text(input, text));
    return MU_OK;
}

// The number of channels, which the weights of a class with an .axis have.
static mu_status channels_of(const mu_layer *layer, const mu_shape *input, int axis, mu_shape *out)
{
    MU_TRY(mu__need_input_rank(layer, input, 2, MU_MAX_RANK));
    const int at = axis < 0 ? axis + input->rank : axis;
    if (at < 1 || at >= input->rank)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': .axis is %d; it must lie from 1 to %d, or be negative and count from the end, as "
                         "it is the axis of the channels",
                         mu_layer_name(layer), axis, input->rank - 1);
    return sizes_of(layer, input, 1, &axis, out);
}

static bool is_last(const axis_list *axes, int rank) { return axes->n == 1 && axes->items[0] == rank - 1; }

// A tensor with the sizes of these axes of x, in a shape that broadcasts to x.
static mu_tensor *along(mu_tensor *x, const axis_list *axes, mu_tensor *sizes)
{
    const int rank = mu_tensor_rank(x);
    int64_t dims[MU_MAX_RANK];
    if (!sizes || is_last(axes, rank))
        return sizes;
    for (int i = 0; i < rank; i++)
        dims[i] = 1;
    for (int i = 0; i < axes->n; i++)
        dims[axes->items[i]] = mu_tensor_dim(x, axes->items[i]);
    return mu_reshape(sizes, rank, dims);
}

// x divided by the root of the mean of its squares along the axes.
static mu_tensor *over_root(mu_tensor *x, const axis_list *axes, double epsilon)
{
    mu_tensor *squares = mu_reduce_mean(mu_square(x), .axes = axes->items, .n_axes = axes->n, .keep_dims = true);
    return squares ? mu_multiply(x, mu_rsqrt(mu_add(squares, mu_constant(mu_tensor_dtype(squares), epsilon)))) : NULL;
}

static mu_tensor *scaled(mu_tensor *x, const axis_list *axes, mu_tensor *scale)
{
    return scale ? mu_multiply(x, along(x, axes, scale)) : x;
}

// ---- Batch normalisation ------------------------------------------------------------------------

static const mu_field batch_fields[] = {
    MU_FIELD(mu_batch_normalization_args, momentum, DOUBLE, .limit = MU_FRACTION, .number = .99),
    MU_FIELD(mu_batch_normalization_args, epsilon, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-3),
    MU_FIELD(mu_batch_normalization_args, axis, INT, .number = -1),
    MU_FIELD(mu_batch_normalization_args, synchronized, FLAG),
    AFFINE_FIELDS(mu_batch_normalization_args),
    MU_FIELD(mu_batch_normalization_args, moving_mean_initializer, INITIALIZER, .text = "zeros"),
    MU_FIELD(mu_batch_normalization_args, moving_variance_initializer, INITIALIZER, .text = "ones"),
    MU_FIELD_ONLY("renorm_momentum", .number = .99),
    MU_LAYER_FIELDS(mu_batch_normalization_args),
    {0},
};

static mu_status batch_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_batch_normalization_args *args = layer->args;
    mu_shape shape;
    MU_TRY(channels_of(layer, input, args->axis, &shape));
    AFFINE_WEIGHTS(layer, args, shape);
    MU_TRY(mu__weight(layer, "moving_mean", shape,
                      MU_WEIGHT_OPTIONS(.initializer = args->moving_mean_initializer, .not_trainable = true)));
    return mu__weight(layer, "moving_variance", shape,
                      MU_WEIGHT_OPTIONS(.initializer = args->moving_variance_initializer, .not_trainable = true));
}

// Sums over all axes but that of the channels.
static mu_tensor *sum_to_channels(mu_tensor *x, const axis_list *channels)
{
    int axes[MU_MAX_RANK], n = 0;
    for (int i = 0; i < mu_tensor_rank(x); i++)
        if (i != channels->items[0])
            axes[n++] = i;
    return mu_reduce_sum(x, .axes = axes, .n_axes = n);
}

static mu_tensor *rows_of(mu_tensor *x, const axis_list *channels)
{
    mu_dtype dtype = mu_tensor_dtype(x);
    mu_tensor *elements = mu_cast(mu_dim_size(x, MU_ALL_AXES), dtype);
    return mu_divide(elements, mu_constant(dtype, (double)mu_tensor_dim(x, channels->items[0])));
}

// What the statistics of a batch are taken over.
typedef struct batch_rows {
    mu_tensor *x;
    axis_list channels;
    mu_tensor *valid;  // 1 where an element of x counts, else 0; NULL: all count
    mu_tensor *rows;   // how many do: of each channel if there is a mask
    bool synchronized; // together with the other replicas
} batch_rows;

// A mask has one number for all channels. Keras's masks leave the last axis out; one of rows, all but the first.
static mu_status take_mask(const mu_layer *layer, mu_tensor *mask, batch_rows *b)
{
    if (mask && !mu__is_row_mask(mask) && mu_tensor_rank(mask) != mu_tensor_rank(b->x) - 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': its input has rank %d and the mask rank %d; a mask has an axis less, as it "
                         "leaves out whole steps",
                         mu_layer_name(layer), mu_tensor_rank(b->x), mu_tensor_rank(mask));
    mu_tensor *steps = mask ? mu_cast(mask, MU_BOOL) : NULL;
    for (int i = mu_tensor_rank(mask); steps && i < mu_tensor_rank(b->x); i++)
        steps = mu_expand_dims(steps, -1);
    b->valid = mask ? mu_broadcast_like(mu_cast(steps, mu_tensor_dtype(b->x)), b->x) : NULL;
    b->rows = mask ? sum_to_channels(b->valid, &b->channels) : rows_of(b->x, &b->channels);
    return mu_error_code();
}

typedef struct moments {
    mu_tensor *mean, *variance;
} moments;

static mu_tensor *over_replicas(const batch_rows *b, mu_tensor *sum)
{
    return b->synchronized ? mu_all_reduce(MU_SUM, sum) : sum;
}

// The sum of what counts.
static mu_tensor *sum_of(const batch_rows *b, mu_tensor *x)
{
    return over_replicas(
        b, sum_to_channels(b->valid ? mu_where(mu_cast(b->valid, MU_BOOL), x, mu_zeros_like(x)) : x, &b->channels));
}

// Statistics of this replica's rows, or of all replicas' if synchronized; an empty part has mean 0. Keras divides by a
// little more than the number of steps that a mask leaves.
static moments batch_moments(const batch_rows *b)
{
    const mu_dtype dtype = mu_tensor_dtype(b->x);
    mu_tensor *n = over_replicas(b, b->rows);
    n = b->valid ? mu_add(n, mu_constant(dtype, 1e-7)) : mu_maximum(n, mu_constant(dtype, 1));
    mu_tensor *mean = mu_divide(sum_of(b, b->x), n);
    mu_tensor *squares = sum_of(b, mu_square(mu_subtract(b->x, along(b->x, &b->channels, mean))));
    return (moments){.mean = mean, .variance = mu_divide(squares, n)};
}

// Moves the statistic towards the mean of `sums`: of means times their rows, and of rows.
static mu_status move(mu_variable *variable, mu_tensor *const *sums, mu_tensor *calls, double momentum)
{
    (void)calls;
    const mu_dtype dtype = mu_tensor_dtype(sums[0]);
    mu_tensor *mean = mu_divide(sums[0], mu_maximum(sums[1], mu_constant(dtype, 1)));
    mu_tensor *old = widened(mu_variable_read(variable));
    mu_tensor *moved =
        mu_add(mu_multiply(old, mu_constant(dtype, momentum)), mu_multiply(mean, mu_constant(dtype, 1 - momentum)));
    moved = mu_cast(moved, mu_variable_dtype(variable));
    return moved ? mu__variable_update(variable, MU_UPDATE_ASSIGN, moved) : mu_error_code();
}

// Over all replicas, or all calls of a step.
static mu_status move_statistic(const mu_layer *layer, const char *name, mu_tensor *batch, mu_tensor *rows)
{
    const mu_batch_normalization_args *args = layer->args;
    mu_variable *variable = mu__weight_named(layer, name);
    mu_tensor *parts[] = {mu_multiply(mu_stop_gradient(batch), rows), rows}, *sums[2] = {NULL};
    if (!parts[0])
        return mu_error_code();
    if (mu__attempt_number())
        return mu__defer_change(
            variable,
            &(mu_deferred_change){.what = "moved", .n = 2, .values = parts, .update = move, .number = args->momentum});
    MU_TRY(mu__all_reduce_list(MU_REDUCTION_SUM, 2, parts, sums, NULL, 0));
    return move(variable, sums, NULL, args->momentum);
}

// Calls of a step run when workers are free, so none can wait for the others' statistics.
static mu_status need_replicas(const mu_layer *layer)
{
    char what[160];
    snprintf(what, sizeof what, "layer '%s' is synchronized", mu_layer_name(layer));
    return mu__refuse_in_calls(false, what,
                               "it needs the statistics of all calls of the step while they run; use "
                               "mu_batch_normalization without .synchronized, or MirroredStrategy");
}

static mu_value *batch_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_batch_normalization_args *args = layer->args;
    mu_tensor *x = widened(mu_cast(mu_at(inputs, 0), layer->policy.compute));
    if (!x)
        return NULL;
    const mu_dtype dtype = mu_tensor_dtype(x);
    const axis_list channels = axes_of(mu_tensor_rank(x), 1, &args->axis);
    batch_rows b = {.x = x, .channels = channels, .synchronized = args->synchronized && mu_replica_count() > 1};
    moments m;
    if (context->training && !layer->frozen) {
        if ((args->synchronized && need_replicas(layer) != MU_OK) ||
            take_mask(layer, mu__mask_at(context->mask, 0), &b) != MU_OK)
            return NULL;
        m = batch_moments(&b);
        if (move_statistic(layer, "moving_mean", m.mean, b.rows) != MU_OK ||
            move_statistic(layer, "moving_variance", m.variance, b.rows) != MU_OK)
            return NULL;
    } else {
        m = (moments){.mean = weight(layer, "moving_mean"), .variance = weight(layer, "moving_variance")};
    }
    mu_tensor *scale = mu_rsqrt(mu_add(m.variance, mu_constant(dtype, args->epsilon)));
    if (!args->no_scale)
        scale = mu_multiply(scale, weight(layer, "gamma"));
    mu_tensor *y = scaled(mu_subtract(x, along(x, &channels, m.mean)), &channels, scale);
    return narrowed(layer, args->no_center ? y : mu_add(y, along(x, &channels, weight(layer, "beta"))));
}

const mu_layer_ops mu__batch_normalization_ops = {
    .class = {"batch_normalization", "BatchNormalization", "mu_batch_normalization",
              MU_OPTIONS(mu_batch_normalization_args), batch_fields, NULL},
    .passes_mask = true,
    .asks_for_rows = true,
    .no_autocast = true,
    .build = batch_build,
    .call = batch_call,
};

mu_layer *mu_batch_normalization_with(const mu_batch_normalization_args *args)
{
    return mu__layer_make(&mu__batch_normalization_ops, args);
}

// ---- Layer normalisation ------------------------------------------------------------------------

// No axes are the last one, which Keras writes.
#define LAST_UNLESS_GIVEN(word)                             \
    static mu_status word##_complete(void *arguments)       \
    {                                                       \
        static const int last[] = {-1};                     \
        mu_##word##_normalization_args *args = arguments;   \
        args->axes = args->n_axes > 0 ? args->axes : last;  \
        args->n_axes = args->n_axes > 0 ? args->n_axes : 1; \
        return MU_OK;                                       \
    }
#define AXES(type) MU_FIELD(type, axes, INTS, .keras = "axis", .second = offsetof(type, n_axes), .single = true)
LAST_UNLESS_GIVEN(layer)
LAST_UNLESS_GIVEN(rms)

static const mu_field layer_fields[] = {
    AXES(mu_layer_normalization_args),
    MU_FIELD(mu_layer_normalization_args, epsilon, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-3),
    AFFINE_FIELDS(mu_layer_normalization_args),
    MU_LAYER_FIELDS(mu_layer_normalization_args),
    {0},
};

static mu_status layer_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_layer_normalization_args *args = layer->args;
    mu_shape shape;
    MU_TRY(sizes_of(layer, input, args->n_axes, args->axes, &shape));
    AFFINE_WEIGHTS(layer, args, shape);
    return MU_OK;
}

static mu_value *layer_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_layer_normalization_args *args = layer->args;
    mu_tensor *x = widened(mu_at(inputs, 0)), *gamma = weight(layer, "gamma"), *beta = weight(layer, "beta");
    if (mu__pending())
        return NULL;
    const axis_list axes = axes_of(mu_tensor_rank(x), args->n_axes, args->axes);
    if (is_last(&axes, mu_tensor_rank(x)))
        return narrowed(layer, mu_nn_layer_normalization(x, gamma, beta, args->epsilon));
    mu_tensor *mean = mu_reduce_mean(x, .axes = axes.items, .n_axes = axes.n, .keep_dims = true);
    mu_tensor *y = scaled(over_root(mu_subtract(x, mean), &axes, args->epsilon), &axes, gamma);
    return narrowed(layer, beta ? mu_add(y, along(x, &axes, beta)) : y);
}

const mu_layer_ops mu__layer_normalization_ops = {
    .class = {"layer_normalization", "LayerNormalization", "mu_layer_normalization",
              MU_OPTIONS(mu_layer_normalization_args), layer_fields, layer_complete},
    .passes_mask = true,
    .no_autocast = true,
    .build = layer_build,
    .call = layer_call,
};

mu_layer *mu_layer_normalization_with(const mu_layer_normalization_args *args)
{
    return mu__layer_make(&mu__layer_normalization_ops, args);
}

// ---- Root mean square ---------------------------------------------------------------------------

static const mu_field rms_fields[] = {
    AXES(mu_rms_normalization_args),
    MU_FIELD(mu_rms_normalization_args, epsilon, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-6),
    MU_LAYER_FIELDS(mu_rms_normalization_args),
    {0},
};

static mu_status rms_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_rms_normalization_args *args = layer->args;
    mu_shape shape;
    MU_TRY(sizes_of(layer, input, args->n_axes, args->axes, &shape));
    return mu__weight(layer, "scale", shape, MU_WEIGHT_OPTIONS(.initializer = "ones"));
}

static mu_value *rms_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_rms_normalization_args *args = layer->args;
    mu_tensor *x = widened(mu_at(inputs, 0)), *scale = weight(layer, "scale");
    if (mu__pending())
        return NULL;
    const axis_list axes = axes_of(mu_tensor_rank(x), args->n_axes, args->axes);
    if (is_last(&axes, mu_tensor_rank(x)))
        return narrowed(layer, mu_nn_rms_normalization(x, scale, args->epsilon));
    return narrowed(layer, scaled(over_root(x, &axes, args->epsilon), &axes, scale));
}

const mu_layer_ops mu__rms_normalization_ops = {
    .class = {"rms_normalization", "RMSNormalization", "mu_rms_normalization", MU_OPTIONS(mu_rms_normalization_args),
              rms_fields, rms_complete},
    .passes_mask = true,
    .build = rms_build,
    .call = rms_call,
};

mu_layer *mu_rms_normalization_with(const mu_rms_normalization_args *args)
{
    return mu__layer_make(&mu__rms_normalization_ops, args);
}

// ---- Groups of channels -------------------------------------------------------------------------

static const mu_field group_fields[] = {
    MU_FIELD(mu_group_normalization_args, groups, INT, .number = 32),
    MU_FIELD(mu_group_normalization_args, axis, INT, .number = -1),
    MU_FIELD(mu_group_normalization_args, epsilon, DOUBLE, .limit = MU_NOT_NEGATIVE, .number = 1e-3),
    AFFINE_FIELDS(mu_group_normalization_args),
    MU_LAYER_FIELDS(mu_group_normalization_args),
    {0},
};

// -1 is Keras's spelling of a group for each channel: instance normalization.
static mu_status group_complete(void *arguments)
{
    const int groups = ((const mu_group_normalization_args *)arguments)->groups;
    if (groups >= 1 || groups == -1)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_group_normalization: groups is %d; it must be 1 or more, or -1 for a group of each channel",
                     groups);
}

static int64_t groups_of(const mu_layer *layer, int64_t channels)
{
    const int groups = ((const mu_group_normalization_args *)layer->args)->groups;
    return groups == -1 ? channels : groups;
}

static mu_status group_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_group_normalization_args *args = layer->args;
    mu_shape shape;
    MU_TRY(channels_of(layer, input, args->axis, &shape));
    const int64_t channels = shape.dims[0];
    if (channels % groups_of(layer, channels))
        return mu__error(MU_INVALID_ARGUMENT, "layer '%s': %lld channels cannot be divided into %d equal groups",
                         mu_layer_name(layer), (long long)channels, args->groups);
    AFFINE_WEIGHTS(layer, args, shape);
    return MU_OK;
}

// The axis of the channels changes places with the last one; done twice, the tensor is as it was.
static mu_tensor *swapped_with_last(mu_tensor *x, const axis_list *channels)
{
    if (!x || is_last(channels, mu_tensor_rank(x)))
        return x;
    int order[MU_MAX_RANK], last = mu_tensor_rank(x) - 1;
    for (int i = 0; i <= last; i++)
        order[i] = i == channels->items[0] ? last : i == last ? channels->items[0] : i;
    return mu_transpose(x, order);
}

static mu_value *group_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_group_normalization_args *args = layer->args;
    mu_tensor *x = widened(mu_at(inputs, 0));
    if (!x)
        return NULL;
    const axis_list channels = axes_of(mu_tensor_rank(x), 1, &args->axis);
    x = swapped_with_last(x, &channels);
    mu_tensor *y = mu_nn_group_normalization(x, groups_of(layer, mu_tensor_dim(x, -1)), weight(layer, "gamma"),
                                             weight(layer, "beta"), args->epsilon);
    return narrowed(layer, swapped_with_last(y, &channels));
}

const mu_layer_ops mu__group_normalization_ops = {
    .class = {"group_normalization", "GroupNormalization", "mu_group_normalization",
              MU_OPTIONS(mu_group_normalization_args), group_fields, group_complete},
    .passes_mask = true,
    .no_autocast = true,
    .build = group_build,
    .call = group_call,
};

mu_layer *mu_group_normalization_with(const mu_group_normalization_args *args)
{
    return mu__layer_make(&mu__group_normalization_ops, args);
}

// ---- Unit length --------------------------------------------------------------------------------

static const mu_field unit_fields[] = {
    MU_FIELD(mu_unit_normalization_args, axis, INT, .number = -1),
    MU_LAYER_FIELDS(mu_unit_normalization_args),
    {0},
};

mu_tensor *mu__unit_norm(mu_tensor *x, int axis)
{
    mu_tensor *squares = mu_reduce_sum(mu_square(x), axis, .keep_dims = true);
    mu_tensor *most = x ? mu_constant(x->dtype, 1e12) : NULL;
    return mu_multiply(x, mu_minimum(mu_rsqrt(squares), most));
}

static mu_value *unit_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    return mu_of(mu__unit_norm(mu_at(inputs, 0), ((const mu_unit_normalization_args *)layer->args)->axis));
}

MU_LAYER_CLASS(unit_normalization, "unit_normalization", "UnitNormalization", mu_unit_normalization_args, unit_fields,
               NULL, .passes_mask = true, .call = unit_call)
