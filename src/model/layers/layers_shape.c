// Layers that only move or repeat elements: flatten, reshape, permute, repeat_vector.

#include "model/core/layer.h"

#include <muster/ops.h>

// ---- Flatten ------------------------------------------------------------------------------------

static const mu_field flatten_fields[] = {MU_LAYER_FIELDS(mu_flatten_args), {0}};

static mu_status flatten_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    return mu__need_input_rank(layer, input, 1, MU_MAX_RANK);
}

static mu_value *flatten_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)layer;
    (void)context;
    mu_tensor *x = mu_at(inputs, 0);
    const mu_shape shape = mu_tensor_shape(x);
    int64_t features = 1;
    for (int i = 1; i < shape.rank; i++)
        features = shape.dims[i] == MU_UNKNOWN || features == MU_UNKNOWN ? MU_UNKNOWN : features * shape.dims[i];
    // The batch axis is -1, so that an empty batch keeps its shape.
    return mu_of(features > 0 ? mu_reshape(x, 2, (int64_t[]){-1, features})
                              : mu_reshape(x, 2, (int64_t[]){shape.dims[0], -1}));
}

MU_LAYER_CLASS(flatten, "flatten", "Flatten", mu_flatten_args, flatten_fields, NULL, .keeps_type = true,
               .build = flatten_build, .call = flatten_call)

// ---- Reshape ------------------------------------------------------------------------------------

static const mu_field reshape_fields[] = {
    MU_FIELD(mu_reshape_layer_args, shape, DIMS, .keras = "target_shape"),
    MU_LAYER_FIELDS(mu_reshape_layer_args),
    {0},
};

static mu_value *reshape_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_reshape_layer_args *args = layer->args;
    const mu_shape input = mu_tensor_shape(mu_at(inputs, 0));
    int64_t dims[MU_MAX_RANK] = {-1}, known = 1, elements = mu__elements_between(&input, 1, input.rank);
    int rank = 1, open = 0;
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && args->shape[i] != 0; i++, rank++) {
        dims[rank] = args->shape[i];
        if (dims[rank] == MU_UNKNOWN)
            open = open ? -1 : rank;
        else
            known *= dims[rank];
    }
    if (open < 0 || (open > 0 ? elements % known : elements - known) != 0) {
        char text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT,
                  "layer '%s': a sample of %s has %lld elements, which do not fill the target shape; one of its "
                  "dimensions may be MU_UNKNOWN",
                  mu_layer_name(layer), mu__shape_text(&input, text), (long long)elements);
        return NULL;
    }
    if (open > 0)
        dims[open] = elements / known;
    return mu_of(mu_reshape(mu_at(inputs, 0), rank, dims));
}

static mu_status reshape_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    MU_TRY(mu__need_input_rank(layer, input, 1, MU_MAX_RANK));
    for (int i = 1; i < input->rank; i++)
        if (input->dims[i] == MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs to know every axis of its input but the batch axis",
                             mu_layer_name(layer));
    return MU_OK;
}

const mu_layer_ops mu__reshape_ops = {
    .class = {"reshape", "Reshape", "mu_reshape_layer", MU_OPTIONS(mu_reshape_layer_args), reshape_fields, NULL},
    .keeps_type = true,
    .build = reshape_build,
    .call = reshape_call,
};

mu_layer *mu_reshape_layer_with(const mu_reshape_layer_args *args) { return mu__layer_make(&mu__reshape_ops, args); }

// ---- Permute ------------------------------------------------------------------------------------

static const mu_field permute_fields[] = {
    MU_FIELD(mu_permute_args, dims, DIMS),
    MU_LAYER_FIELDS(mu_permute_args),
    {0},
};

static mu_status permute_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    const mu_permute_args *args = layer->args;
    unsigned seen = 1;
    int count = 0;
    while (count < MU_MAX_SAMPLE_RANK && args->dims[count] > 0 && args->dims[count] < MU_MAX_RANK)
        seen |= 1u << args->dims[count++];
    if (count + 1 == input->rank && seen == (1u << input->rank) - 1)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "layer '%s': dims has %d axes for a sample of rank %d; give each of 1 to %d once",
                     mu_layer_name(layer), count, input->rank - 1, input->rank - 1);
}

static mu_value *permute_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_permute_args *args = layer->args;
    int axes[MU_MAX_RANK] = {0};
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && args->dims[i] > 0; i++)
        axes[i + 1] = (int)args->dims[i];
    return mu_of(mu_transpose(mu_at(inputs, 0), axes));
}

const mu_layer_ops mu__permute_ops = {
    .class = {"permute", "Permute", "mu_permute", MU_OPTIONS(mu_permute_args), permute_fields, NULL},
    .keeps_type = true,
    .build = permute_build,
    .call = permute_call,
};

mu_layer *mu_permute_with(const mu_permute_args *args) { return mu__layer_make(&mu__permute_ops, args); }

// ---- Repeat -------------------------------------------------------------------------------------

static const mu_field repeat_vector_fields[] = {
    MU_FIELD(mu_repeat_vector_args, n, INT, .limit = MU_POSITIVE),
    MU_LAYER_FIELDS(mu_repeat_vector_args),
    {0},
};

static mu_status repeat_vector_build(mu_layer *layer, int n, const mu_shape *input)
{
    (void)n;
    return mu__need_input_rank(layer, input, 2, 2);
}

static mu_value *repeat_vector_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const int64_t multiples[] = {1, ((const mu_repeat_vector_args *)layer->args)->n, 1};
    return mu_of(mu_tile(mu_expand_dims(mu_at(inputs, 0), 1), multiples));
}

const mu_layer_ops mu__repeat_vector_ops = {
    .class = {"repeat_vector", "RepeatVector", "mu_repeat_vector", MU_OPTIONS(mu_repeat_vector_args),
              repeat_vector_fields, NULL},
    .keeps_type = true,
    .build = repeat_vector_build,
    .call = repeat_vector_call,
};

mu_layer *mu_repeat_vector_with(const mu_repeat_vector_args *args)
{
    return mu__layer_make(&mu__repeat_vector_ops, args);
}
