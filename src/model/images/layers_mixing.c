// Layers that mix each image of a batch with another one, and the labels likewise.
#include "model/core/layer.h"
#include "model/core/names.h"
#include "model/images/augment.h"

#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

// What such a layer is given, images alone or a map of images and labels, and where both are in the map.
typedef struct batch {
    mu_tensor *images, *labels; // labels NULL: none
    int image_index, label_index;
} batch;

static mu_status check_batch(const mu_layer *layer, const batch *b, bool mixes)
{
    char text[MU_SHAPE_TEXT], labels_text[MU_SHAPE_TEXT];
    if (!b->images)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' is given a map without 'images'; give it images alone, or a map with the keys "
                         "'images' and 'labels'",
                         mu_layer_name(layer));
    MU_TRY(mu__need_input_rank(layer, &b->images->shape, 4, 4));
    if (mixes && b->images->shape.dims[0] == MU_UNKNOWN)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' mixes the images of a batch, whose number is not known in this trace; call it in "
                         "a function of mu_dataset_map behind mu_dataset_batch",
                         mu_layer_name(layer));
    const int64_t rows = b->images->shape.dims[0], labels = b->labels ? b->labels->shape.dims[0] : rows;
    if (!b->labels || (b->labels->shape.rank == 2 && (labels == rows || labels == MU_UNKNOWN || rows == MU_UNKNOWN)))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "layer '%s' is given labels of shape %s for images of shape %s; expected a row of numbers for "
                     "each image, as mu_one_hot makes of classes",
                     mu_layer_name(layer), mu__shape_text(&b->labels->shape, labels_text),
                     mu__shape_text(&b->images->shape, text));
}

// `mixes`: the call is in training.
static mu_status find_batch(const mu_layer *layer, mu_value *inputs, bool mixes, batch *b)
{
    *b = (batch){0};
    const int n = mu__value_flatten(inputs, NULL, 0);
    if (!mu__is_flat_map(inputs) && n != 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "layer '%s' is given %d tensors in another form than it takes; give it images alone, or "
                         "mu_map(\"images\", images, \"labels\", labels, MU_END)",
                         mu_layer_name(layer), n);
    if (!mu__is_flat_map(inputs))
        b->images = mu_at(inputs, 0);
    for (int i = 0; mu__is_flat_map(inputs) && i < inputs->n; i++) {
        const bool images = strcmp(inputs->keys[i], "images") == 0;
        if (!images && strcmp(inputs->keys[i], "labels") != 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s' is given a map with the key '%.60s'; it takes 'images' and 'labels'",
                             mu_layer_name(layer), inputs->keys[i]);
        *(images ? &b->images : &b->labels) = mu_at(inputs, i);
        *(images ? &b->image_index : &b->label_index) = i;
    }
    return mu__pending() ? mu_error_code() : check_batch(layer, b, mixes);
}

// The changed batch in the structure of what was given.
static mu_value *packed(mu_value *inputs, const batch *b, mu_tensor *images, mu_tensor *labels)
{
    mu_value *items[2];
    if (!images || (b->labels && !labels))
        return NULL;
    if (!mu__is_flat_map(inputs))
        return mu_of(images);
    items[b->image_index] = mu_of(images);
    if (labels)
        items[b->label_index] = mu_of(labels);
    return mu_map_of(inputs->n, (const char *const *)inputs->keys, items);
}

// Numbers of Beta(alpha, alpha), one for each image.
static mu_tensor *shares(const mu_layer *layer, const mu_tensor *images, mu_tensor *alpha)
{
    const int64_t n = images->shape.dims[0];
    mu_tensor *a = mu_stateless_random_gamma(mu__weight_next_seed(layer), alpha, NULL, 1, &n);
    mu_tensor *b = mu_stateless_random_gamma(mu__weight_next_seed(layer), alpha, NULL, 1, &n);
    return mu_divide_no_nan(a, mu_add(a, b));
}

static mu_tensor *shuffled(const mu_layer *layer, const mu_tensor *images)
{
    return mu_stateless_permutation(mu__weight_next_seed(layer), images->shape.dims[0]);
}

// A number for each sample as one that broadcasts to its elements.
static mu_tensor *for_each(mu_tensor *numbers, const mu_tensor *like)
{
    int64_t dims[MU_MAX_RANK] = {like->shape.dims[0], 1, 1, 1, 1, 1, 1, 1};
    return numbers ? mu_reshape(numbers, like->shape.rank, dims) : NULL;
}

// share · x + (1 - share) · another one of the batch.
static mu_tensor *mixed(mu_tensor *x, mu_tensor *share, mu_tensor *order)
{
    mu_tensor *other = x && order ? mu_gather(x, order, 0, 0) : NULL, *part = x ? for_each(share, x) : NULL;
    return part ? mu_add(other, mu_multiply(mu_cast(part, x->dtype), mu_subtract(x, other))) : NULL;
}

// ---- MixUp --------------------------------------------------------------------------------------

static const mu_field mix_up_fields[] = {
    MU_FIELD(mu_mix_up_args, alpha, DOUBLE, .limit = MU_POSITIVE, .number = .2),
    MU_FIELD(mu_mix_up_args, seed, SEED),
    MU_LAYER_FIELDS(mu_mix_up_args),
    {0},
};

static mu_status mix_up_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const mu_mix_up_args *args = layer->args;
    (void)n;
    (void)inputs;
    return mu__weight_seed(layer, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

static mu_value *mix_up_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    batch b;
    if (find_batch(layer, inputs, context->training, &b) != MU_OK || !context->training)
        return mu__pending() ? NULL : inputs;
    mu_tensor *alpha = mu_constant(MU_F32, ((const mu_mix_up_args *)layer->args)->alpha);
    mu_tensor *share = shares(layer, b.images, alpha), *order = shuffled(layer, b.images);
    return packed(inputs, &b, mixed(b.images, share, order), b.labels ? mixed(b.labels, share, order) : NULL);
}

MU_LAYER_CLASS(mix_up, "mix_up", "MixUp", mu_mix_up_args, mix_up_fields, NULL, .takes_several = true, .axes = 2,
               .build = mix_up_build, .call = mix_up_call)

// ---- CutMix -------------------------------------------------------------------------------------

static const mu_field cut_mix_fields[] = {
    MU_FIELD(mu_cut_mix_args, factor, RANGE, .number = 0, .high = 1),
    MU_FIELD(mu_cut_mix_args, seed, SEED),
    MU_LAYER_FIELDS(mu_cut_mix_args),
    {0},
};

static mu_status cut_mix_complete(void *args)
{
    return mu__in_order(((const mu_cut_mix_args *)args)->factor, 0, 1, "mu_cut_mix", "factor");
}

static mu_status cut_mix_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const mu_cut_mix_args *args = layer->args;
    (void)n;
    (void)inputs;
    return mu__weight_seed(layer, MU_GIVEN(args, seed) ? &args->seed : NULL);
}

// The number of which Beta(alpha, alpha) is drawn, itself drawn for the batch. As in Keras it is above 0.
static mu_tensor *drawn_alpha(const mu_layer *layer, const double factor[2])
{
    mu_tensor *u = mu_stateless_random_uniform(mu__weight_next_seed(layer), MU_F32, 0, NULL);
    return mu_add(mu_multiply(u, mu_constant(MU_F32, factor[1] - factor[0])), mu_constant(MU_F32, factor[0] + 1e-6));
}

// Which positions along an axis are inside of intervals of these parts of the axis, one for each image.
static mu_tensor *inside(const mu_layer *layer, const mu_tensor *images, int axis, mu_tensor *part)
{
    const int64_t n = images->shape.dims[axis], rows = images->shape.dims[0];
    mu_shape shape = MU_SHAPE(1, 1, 1, 1);
    shape.dims[axis] = n;
    mu_tensor *positions = mu_reshape(mu_range(MU_F32, 0, (double)n, 1), shape.rank, shape.dims);
    mu_tensor *length = mu_multiply(part, mu_constant(MU_F32, (double)n));
    mu_tensor *first = mu_multiply(mu_stateless_random_uniform(mu__weight_next_seed(layer), MU_F32, 1, &rows),
                                   mu_subtract(mu_constant(MU_F32, (double)n), length));
    mu_tensor *begin = for_each(first, images), *end = for_each(mu_add(first, length), images);
    return mu_logical_and(mu_greater_equal(positions, begin), mu_less(positions, end));
}

static mu_value *cut_mix_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    batch b;
    if (find_batch(layer, inputs, context->training, &b) != MU_OK || !context->training)
        return mu__pending() ? NULL : inputs;
    mu_tensor *share = shares(layer, b.images, drawn_alpha(layer, ((const mu_cut_mix_args *)layer->args)->factor));
    mu_tensor *part = share ? mu_sqrt(mu_subtract(mu_constant(MU_F32, 1), share)) : NULL;
    mu_tensor *across = inside(layer, b.images, 2, part), *down = inside(layer, b.images, 1, part);
    mu_tensor *order = shuffled(layer, b.images), *other = order ? mu_gather(b.images, order, 0, 0) : NULL;
    mu_tensor *images = other ? mu_where(mu_logical_and(across, down), other, b.images) : NULL;
    return packed(inputs, &b, images, b.labels ? mixed(b.labels, share, order) : NULL);
}

MU_LAYER_CLASS(cut_mix, "cut_mix", "CutMix", mu_cut_mix_args, cut_mix_fields, cut_mix_complete, .takes_several = true,
               .axes = 2, .build = cut_mix_build, .call = cut_mix_call)
