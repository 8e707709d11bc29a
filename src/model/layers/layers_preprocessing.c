// Layers that prepare numbers and categories: rescaling, normalisation by the moments of data, encodings of integers.

#include "model/core/layer.h"

#include <math.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

// ---- Rescaling ----------------------------------------------------------------------------------

static const mu_field rescaling_fields[] = {
    MU_FIELD(mu_rescaling_args, scale, DOUBLE, .or_next = true),
    MU_FIELD(mu_rescaling_args, scales, DOUBLES, .second = offsetof(mu_rescaling_args, n_scales), .internal = true),
    MU_FIELD(mu_rescaling_args, offset, DOUBLE, .or_next = true),
    MU_FIELD(mu_rescaling_args, offsets, DOUBLES, .second = offsetof(mu_rescaling_args, n_offsets), .internal = true),
    MU_LAYER_FIELDS(mu_rescaling_args),
    {0},
};

static mu_status rescaling_complete(void *arguments)
{
    const mu_rescaling_args *args = arguments;
    const bool scales = args->scales && MU_GIVEN(args, scale), offsets = args->offsets && MU_GIVEN(args, offset);
    return !scales && !offsets
               ? MU_OK
               : mu__error(
                     MU_INVALID_ARGUMENT,
                     "mu_rescaling: .%s and .%ss are both given; give one number, or a list with one for each channel",
                     scales ? "scale" : "offset", scales ? "scale" : "offset");
}

// A number for all channels, or one for each.
static mu_tensor *per_channel(mu_dtype dtype, double number, const double *list, int n)
{
    return list ? mu_cast(mu_tensor_new(MU_F64, 1, (int64_t[]){n}, list), dtype) : mu_constant(dtype, number);
}

static mu_value *rescaling_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_rescaling_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0);
    if (!x)
        return NULL;
    mu_tensor *scale = per_channel(x->dtype, args->scale, args->scales, args->n_scales);
    mu_tensor *y = mu_add(mu_multiply(x, scale), per_channel(x->dtype, args->offset, args->offsets, args->n_offsets));
    return y ? mu_of(y) : NULL;
}

MU_LAYER_CLASS(rescaling, "rescaling", "Rescaling", mu_rescaling_args, rescaling_fields, rescaling_complete,
               .passes_mask = true, .call = rescaling_call)

// ---- Normalisation ------------------------------------------------------------------------------

static const mu_field normalization_fields[] = {
    MU_FIELD(mu_normalization_args, invert, FLAG),
    MU_FIELD(mu_normalization_args, mean, DOUBLES, .second = offsetof(mu_normalization_args, n_mean), .single = true),
    MU_FIELD(mu_normalization_args, variance, DOUBLES, .second = offsetof(mu_normalization_args, n_variance),
             .limit = MU_NOT_NEGATIVE, .single = true),
    MU_FIELD(mu_normalization_args, axes, INTS, .keras = "axis", .second = offsetof(mu_normalization_args, n_axes),
             .empty = offsetof(mu_normalization_args, whole)),
    MU_FIELD(mu_normalization_args, whole, FLAG, .internal = true),
    MU_LAYER_FIELDS(mu_normalization_args),
    {0},
};

static mu_status normalization_complete(void *arguments)
{
    static const int last[] = {-1};
    mu_normalization_args *args = arguments;
    if (args->whole && args->n_axes > 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_normalization: .whole is true and .axes has %d; give one of them",
                         args->n_axes);
    args->axes = args->whole || args->n_axes > 0 ? args->axes : last;
    args->n_axes = args->axes == last ? 1 : args->n_axes;
    return args->n_mean == args->n_variance ? MU_OK
                                            : mu__error(MU_INVALID_ARGUMENT,
                                                        "mu_normalization: there are %d numbers in .mean and %d in "
                                                        ".variance; give both, with as many numbers",
                                                        args->n_mean, args->n_variance);
}

// Which axes of inputs of a rank have moments of their own: their number, in ascending order. The others are averaged
// over.
static int kept_axes(const mu_normalization_args *args, int rank, bool kept[MU_MAX_RANK])
{
    int n = 0;
    memset(kept, 0, MU_MAX_RANK * sizeof *kept);
    for (int i = 0; i < args->n_axes; i++) {
        const int axis = args->axes[i] < 0 ? args->axes[i] + rank : args->axes[i];
        if (axis < 1 || axis >= rank || kept[axis])
            return -1;
        kept[axis] = true;
        n++;
    }
    return n;
}

// The shape of the moments for inputs of a shape.
static mu_status moments_shape(const mu_layer *layer, const mu_shape *input, mu_shape *out)
{
    char text[MU_SHAPE_TEXT];
    bool kept[MU_MAX_RANK];
    const mu_normalization_args *args = layer->args;
    MU_TRY(mu__need_input_rank(layer, input, args->whole ? 1 : 2, MU_MAX_RANK));
    *out = (mu_shape){0};
    if (kept_axes(args, input->rank, kept) < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': for inputs of rank %d, .axes must be distinct axes from 1 to %d; negative ones "
                         "count from the end",
                         mu_layer_name(layer), input->rank, input->rank - 1);
    for (int axis = 1; axis < input->rank; axis++)
        if (kept[axis] && (out->dims[out->rank++] = input->dims[axis]) == MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s' needs to know axis %d to make its weights; it was given %s",
                             mu_layer_name(layer), axis, mu__shape_text(input, text));
    return MU_OK;
}

// `count` is a weight that Keras's files have; neither side uses it.
static mu_status normalization_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_normalization_args *args = layer->args;
    char text[MU_SHAPE_TEXT];
    mu_shape shape;
    MU_TRY(moments_shape(layer, input, &shape));
    const int64_t features = mu__elements(&shape);
    if (args->n_mean > 1 && args->n_mean != features)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s': .mean has %d numbers, and the input %s has %lld along .axes (default: the last); "
                         "give one for each of these, or one for all",
                         mu_layer_name(layer), args->n_mean, mu__shape_text(input, text), (long long)features);
    if (args->n_mean > 0)
        return MU_OK;
    MU_TRY(mu__weight(layer, "mean", shape, MU_WEIGHT_OPTIONS(.initializer = "zeros", .not_trainable = true)));
    MU_TRY(mu__weight(layer, "variance", shape, MU_WEIGHT_OPTIONS(.initializer = "ones", .not_trainable = true)));
    return mu__weight_constant(layer, "count", MU_I64, 0);
}

// A moment that was given to the layer, or that it has learned, in a shape that broadcasts to x.
static mu_tensor *moment(const mu_layer *layer, const char *name, int n, const double *given, mu_tensor *x)
{
    const int64_t size = n;
    bool kept[MU_MAX_RANK];
    int64_t dims[MU_MAX_RANK];
    const int rank = mu_tensor_rank(x);
    mu_tensor *y =
        n > 0 ? mu_cast(mu_tensor_new(MU_F64, 1, &size, given), layer->policy.compute) : mu__weight_read(layer, name);
    if (n == 1 || kept_axes(layer->args, rank, kept) < 0)
        return y;
    for (int axis = 0; axis < rank; axis++)
        dims[axis] = kept[axis] ? mu_tensor_dim(x, axis) : 1;
    return mu_reshape(y, rank, dims);
}

static mu_value *normalization_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_normalization_args *args = layer->args;
    mu_tensor *x = mu_at(inputs, 0), *mean = moment(layer, "mean", args->n_mean, args->mean, x);
    mu_tensor *deviation = mu_sqrt(moment(layer, "variance", args->n_variance, args->variance, x));
    if (!x || !mean || !deviation)
        return NULL;
    deviation = mu_maximum(deviation, mu_constant(x->dtype, 1e-7));
    return mu_of(args->invert ? mu_add(mean, mu_multiply(x, deviation)) : mu_divide(mu_subtract(x, mean), deviation));
}

// Mean and variance of each feature over the batches so far; retained.
typedef struct moments {
    mu_tensor *mean, *variance;
    double rows;
} moments;

// Joins the moments of two sets of rows (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances", 1979), in f64.
static mu_status add_batch(const mu_layer *layer, moments *all, mu_tensor *x)
{
    int axes[MU_MAX_RANK], n = 0;
    bool kept[MU_MAX_RANK];
    const int rank = mu_tensor_rank(x);
    kept_axes(layer->args, rank, kept);
    for (int i = 0; i < rank; i++)
        if (!kept[i])
            axes[n++] = i;
    x = mu_cast(x, MU_F64);
    mu_tensor *mean = mu_reduce_mean(x, .axes = axes, .n_axes = n);
    mu_tensor *variance = mu_reduce_variance(x, .axes = axes, .n_axes = n);
    if (!mean || !variance)
        return mu_error_code();
    const double rows = (double)mu_tensor_elements(x) / (double)MU_MAX(mu_tensor_elements(mean), 1);
    if (rows == 0)
        return MU_OK;
    const double share = rows / (rows + all->rows);
    mu_tensor *new = mu_constant(MU_F64, share), *old = mu_constant(MU_F64, 1 - share);
    mu_tensor *apart = all->mean ? mu_subtract(mean, all->mean) : NULL;
    if (apart) {
        variance = mu_add(mu_add(mu_multiply(variance, new), mu_multiply(all->variance, old)),
                          mu_multiply(mu_square(apart), mu_constant(MU_F64, share * (1 - share))));
        mean = mu_add(all->mean, mu_multiply(apart, new));
    }
    if (mu__pending())
        return mu_error_code();
    mu_release(all->mean);
    mu_release(all->variance);
    *all = (moments){.mean = mu_retain(mean), .variance = mu_retain(variance), .rows = all->rows + rows};
    return MU_OK;
}

static mu_status add_inputs(mu_layer *layer, mu_tensor *x, void *all)
{
    const mu_call_context context = {0};
    const bool whole = ((const mu_normalization_args *)layer->args)->whole;
    if (mu_tensor_rank(x) < (whole ? 1 : 2))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_adapt: layer '%s' learns from batches of rows; the data have rank %d; batch the dataset "
                         "(mu_dataset_batch)%s",
                         mu_layer_name(layer), mu_tensor_rank(x),
                         whole ? "" : ", or give the layer .whole = true, for one mean of all numbers");
    if (!layer->built && !mu__layer_call(layer, mu_of(x), &context, NULL))
        return mu_error_code();
    char text[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    const mu_shape *weights = &mu__weight_named(layer, "mean")->resource.spec.shape;
    mu_shape seen;
    MU_TRY(moments_shape(layer, &x->shape, &seen));
    if (!mu__shape_equal(&seen, weights))
        return mu__error(MU_INVALID_ARGUMENT, "mu_adapt: layer '%s' has moments of shape %s; those of the data have %s",
                         mu_layer_name(layer), mu__shape_text(weights, wanted), mu__shape_text(&seen, text));
    return add_batch(layer, all, x);
}

static mu_status take_moments(mu_layer *layer, const moments *all)
{
    if (!all->mean)
        return mu__adapt_empty(layer);
    const double *mean = mu_tensor_data(all->mean), *variance = mu_tensor_data(all->variance);
    for (int64_t i = 0; mean && variance && i < mu_tensor_elements(all->mean); i++)
        if (!isfinite(mean[i]) || !isfinite(variance[i]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_adapt: feature %lld of the data for layer '%s' has NaN or infinity, of which there is "
                             "no mean; leave such rows out of the data",
                             (long long)i, mu_layer_name(layer));
    MU_TRY(mu_variable_assign(mu__weight_named(layer, "mean"), mu_cast(all->mean, mu__floatx())));
    return mu_variable_assign(mu__weight_named(layer, "variance"), mu_cast(all->variance, mu__floatx()));
}

static mu_status normalization_adapt(mu_layer *layer, mu_dataset *data)
{
    if (((const mu_normalization_args *)layer->args)->n_mean > 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_adapt: layer '%s' was given its .mean and .variance; leave them out for a layer that learns them",
            mu_layer_name(layer));
    moments all = {0};
    mu_status status = mu__adapt_each(layer, data, add_inputs, &all);
    if (status == MU_OK)
        status = take_moments(layer, &all);
    mu_release(all.mean);
    mu_release(all.variance);
    return status;
}

MU_LAYER_CLASS(normalization, "normalization", "Normalization", mu_normalization_args, normalization_fields,
               normalization_complete, .passes_mask = true, .build = normalization_build, .call = normalization_call,
               .adapt = normalization_adapt)

mu_status mu_normalization_adapt(mu_layer *layer, mu_dataset *data)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_normalization_adapt: the layer"));
    MU_TRY(mu__need(data, "mu_normalization_adapt: the dataset"));
    if (layer->ops != &mu__normalization_ops)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_normalization_adapt: layer '%s' is of class %s; give one of mu_normalization",
                         mu_layer_name(layer), layer->ops->class.keras);
    return mu_adapt(layer, data);
}

// ---- Category encoding --------------------------------------------------------------------------

static const char *const encodings[] = {"multi_hot", "one_hot", "count", NULL};

static const mu_field category_fields[] = {
    MU_FIELD(mu_category_encoding_args, num_tokens, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_category_encoding_args, output_mode, CHOICE, .text = "multi_hot", .choices = encodings),
    MU_LAYER_FIELDS(mu_category_encoding_args),
    {0},
};

static mu_status category_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const bool one_hot = strcmp(((const mu_category_encoding_args *)layer->args)->output_mode, "one_hot") == 0;
    return mu__need_input_rank(layer, input, one_hot ? 1 : 2, MU_MAX_RANK);
}

// Tokens of an output mode other than "int": a one for each token, or for each sample which there are or how many.
mu_tensor *mu__encode_tokens(mu_tensor *tokens, int64_t depth, const char *mode)
{
    const bool one_hot = strcmp(mode, "one_hot") == 0;
    if (one_hot && mu_tensor_rank(tokens) > 1 && mu_tensor_dim(tokens, -1) == 1)
        tokens = mu_squeeze(tokens, -1);
    mu_tensor *hot = mu_one_hot(tokens, depth, mu__floatx());
    return one_hot ? hot : strcmp(mode, "count") == 0 ? mu_reduce_sum(hot, -2) : mu_reduce_max(hot, -2);
}

// Tokens, or in mode "count" tokens and a weight for each.
static mu_status check_category_inputs(const mu_layer *layer, const mu_tensor *tokens, int n, const mu_tensor *weights)
{
    char text[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    const bool counts = strcmp(((const mu_category_encoding_args *)layer->args)->output_mode, "count") == 0;
    if (n > (counts ? 2 : 1))
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' was given %d tensors; give it tokens, and behind them, only with .output_mode = "
                         "\"count\", a weight for each",
                         mu_layer_name(layer), n);
    return !weights || mu__shape_compatible(&tokens->shape, &weights->shape)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "layer '%s' was given tokens %s and weights %s; give each token a weight",
                           mu_layer_name(layer), mu__shape_text(&tokens->shape, text),
                           mu__shape_text(&weights->shape, other));
}

// The sum of the weights of each token in a sample.
static mu_tensor *weigh_tokens(mu_tensor *tokens, int64_t depth, mu_tensor *weights)
{
    mu_tensor *hot = weights ? mu_one_hot(tokens, depth, weights->dtype) : NULL;
    return mu_reduce_sum(mu_multiply(hot, mu_expand_dims(weights, -1)), -2);
}

static mu_value *category_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_category_encoding_args *args = layer->args;
    const int n = mu__value_flatten(inputs, NULL, 0);
    mu_tensor *x = mu_at(inputs, 0), *weights = n > 1 ? mu_at(inputs, 1) : NULL;
    if (!x || check_category_inputs(layer, x, n, weights) != MU_OK)
        return NULL;
    mu_tensor *tokens = x->dtype == MU_I32 || x->dtype == MU_I64 ? x : mu_cast(x, MU_I32);
    if (!tokens)
        return NULL;
    mu_tensor *known = mu_logical_and(mu_greater_equal(tokens, mu_constant(tokens->dtype, 0)),
                                      mu_less(tokens, mu_constant(tokens->dtype, args->num_tokens)));
    if (mu_assert(mu_reduce_all(known, MU_ALL_AXES),
                  "category_encoding: tokens are integers from 0 to below num_tokens") != MU_OK)
        return NULL;
    return mu_of(weights ? weigh_tokens(tokens, args->num_tokens, mu_cast(weights, layer->policy.compute))
                         : mu__encode_tokens(tokens, args->num_tokens, args->output_mode));
}

MU_LAYER_CLASS(category_encoding, "category_encoding", "CategoryEncoding", mu_category_encoding_args, category_fields,
               NULL, .takes_integers = true, .takes_several = true, .build = category_build, .call = category_call)
