// Layers around another layer: a recurrent layer in both directions, and a layer whose kernel has the spectral norm 1.
#include "distribute/servers/aggregation.h"
#include "model/core/layer.h"
#include "model/layers/recurrent.h"

#include <muster/nn.h>
#include <muster/ops.h>

// ---- Bidirectional ------------------------------------------------------------------------------

static const char *const merge_modes[] = {"concat", "sum", "mul", "ave", "none", NULL};

static const mu_field bidirectional_fields[] = {
    MU_FIELD(mu_bidirectional_args, layer, LAYER),
    MU_FIELD(mu_bidirectional_args, backward_layer, LAYER),
    MU_FIELD(mu_bidirectional_args, merge_mode, CHOICE, .text = "concat", .choices = merge_modes,
             .null_choice = "none"),
    MU_LAYER_FIELDS(mu_bidirectional_args),
    {0},
};

static mu_status need_recurrent(const mu_layer *layer, const char *what)
{
    if (mu__recurrent_of(layer))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_bidirectional: %s '%s' is not a recurrent layer; give one such as mu_lstm", what,
                     mu_layer_name(layer));
}

static mu_status bidirectional_complete(void *arguments)
{
    const mu_bidirectional_args *args = arguments;
    MU_TRY(mu__need(args->layer, "mu_bidirectional: the layer"));
    MU_TRY(need_recurrent(args->layer, "layer"));
    return args->backward_layer ? need_recurrent(args->backward_layer, "backward_layer") : MU_OK;
}

// A layer with the same options, whose name begins with `prefix`. Belongs to the pool; NULL on error.
static mu_layer *copy_of(const mu_layer *layer, const char *prefix, bool backwards)
{
    json_t *json = mu__layer_json(layer), *config = json ? json_object_get(json, "config") : NULL;
    const char *name = mu_layer_name(layer);
    char *full = strncmp(name, prefix, strlen(prefix)) == 0 ? mu__strdup(name) : mu__sprintf("%s%s", prefix, name);
    mu_layer *copy = NULL;
    if (config && full && mu__json_member(config, "name", json_string(full)) == MU_OK &&
        (!backwards || mu__json_member(config, "go_backwards", json_true()) == MU_OK))
        copy = mu__layer_from_json(json, 0);
    mu__free(full);
    json_decref(json);
    return copy;
}

static mu_status need_opposite(const mu_layer *layer, const mu_layer *forward, const mu_layer *backward)
{
    const mu_recurrent *a = mu__recurrent_of(forward), *b = mu__recurrent_of(backward);
    const char *what = a->backwards == b->backwards       ? "go in the same direction; set go_backwards of one of them"
                       : a->sequences != b->sequences     ? "differ in return_sequences"
                       : a->last_states != b->last_states ? "differ in return_state"
                                                          : NULL;
    if (!what)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_bidirectional: the forward layer '%s' and the backward layer '%s' of '%s' %s",
                     mu_layer_name(forward), mu_layer_name(backward), mu_layer_name(layer), what);
}

// Puts another layer into an option.
static void exchange(mu_layer **option, mu_layer *layer)
{
    mu_retain(layer);
    mu_release(*option);
    *option = layer;
}

// As in Keras, masked steps of all outputs are zero, so that the sum of both directions is.
static mu_status bidirectional_make(mu_layer *layer)
{
    mu_bidirectional_args *args = layer->args;
    mu_layer *forward = copy_of(args->layer, "forward_", false);
    mu_layer *backward = args->backward_layer ? args->backward_layer : copy_of(args->layer, "backward_", true);
    if (!forward || !backward)
        return mu__pending() ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
    exchange(&args->layer, forward);
    exchange(&args->backward_layer, backward);
    MU_TRY(need_opposite(layer, forward, backward));
    mu_recurrent *a = mu__recurrent_of(forward), *b = mu__recurrent_of(backward);
    a->zero_for_mask = b->zero_for_mask = a->sequences;
    b->in_time_order = b->backwards;
    MU_TRY(mu__layer_adopt(layer, forward));
    MU_TRY(mu__layer_adopt(layer, backward));
    return mu__layer_name_sublayers(layer, "mu_bidirectional");
}

static mu_status bidirectional_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    (void)n;
    MU_TRY(mu__layer_build(layer->sublayers.items[0], 1, inputs));
    return mu__layer_build(layer->sublayers.items[1], 1, inputs);
}

static mu_tensor *merge(const char *mode, mu_tensor *a, mu_tensor *b)
{
    mu_tensor *both[] = {a, b};
    if (mu__pending() || !a || !b)
        return NULL;
    if (strcmp(mode, "concat") == 0)
        return mu_concat(2, both, -1);
    if (strcmp(mode, "mul") == 0)
        return mu_multiply(a, b);
    mu_tensor *sum = mu_add(a, b);
    return strcmp(mode, "sum") == 0 ? sum : mu_divide(sum, mu_constant(a->dtype, 2));
}

// The inputs of one direction: the sequence, and its half of the first states.
static mu_value *inputs_of(mu_value *inputs, int direction)
{
    mu_value *part[MU_MAX_CELL_STATES + 1] = {mu_value_at(inputs, 0)};
    const int half = (mu_value_count(inputs) - 1) / 2;
    if (half == 0)
        return inputs;
    for (int i = 0; i < half && i < MU_MAX_CELL_STATES; i++)
        part[i + 1] = mu_value_at(inputs, 1 + direction * half + i);
    return mu_list_of(MU_MIN(half, MU_MAX_CELL_STATES) + 1, part);
}

enum { MAX_OUTPUTS = 2 + 2 * MU_MAX_CELL_STATES };

// The merged outputs, or both, then the states of both directions.
static mu_value *outputs_of(const mu_layer *layer, mu_value *forward, mu_value *backward)
{
    const char *mode = ((const mu_bidirectional_args *)layer->args)->merge_mode;
    const mu_recurrent *a = mu__recurrent_of(layer->sublayers.items[0]);
    const mu_recurrent *b = mu__recurrent_of(layer->sublayers.items[1]);
    mu_value *values[MAX_OUTPUTS];
    int n = 0;
    mu_tensor *y = mu_at(forward, 0), *back = mu_at(backward, 0);
    if (b->sequences && !b->backwards)
        back = mu_reverse(back, 1);
    if (strcmp(mode, "none") == 0) {
        values[n++] = mu_of(y);
        values[n++] = mu_of(back);
    } else
        values[n++] = mu_of(merge(mode, y, back));
    for (int i = 1; a->last_states && i < mu_value_count(forward); i++)
        values[n++] = mu_value_at(forward, i);
    for (int i = 1; b->last_states && i < mu_value_count(backward); i++)
        values[n++] = mu_value_at(backward, i);
    return n == 1 ? values[0] : mu_list_of(n, values);
}

// The outputs of all steps have the input's mask; states have none.
static void set_mask(const mu_layer *layer, const mu_value *outputs, const mu_call_context *context)
{
    const bool both = strcmp(((const mu_bidirectional_args *)layer->args)->merge_mode, "none") == 0;
    const bool sequences = mu__recurrent_of(layer->sublayers.items[0])->sequences;
    mu_tensor *mask = sequences ? mu__mask_at(context->mask, 0) : NULL;
    const int n = mu_value_kind_of(outputs) == MU_VALUE_LIST ? mu_value_count(outputs) : 1;
    mu_value *masks[MAX_OUTPUTS];
    for (int i = 0; i < n; i++)
        masks[i] = mask && i < (both ? 2 : 1) ? mu_of(mask) : mu_list_of(0, NULL);
    if (mask)
        mu_call_set_mask(context, n == 1 ? masks[0] : mu_list_of(n, masks));
}

static mu_value *bidirectional_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    mu_tensor *mask = mu__mask_at(context->mask, 0);
    const mu_call_context inner = {.training = context->training,
                                   .mask = mask ? mu_of(mask) : NULL,
                                   .training_left_out = context->training_left_out};
    const int given = mu_value_count(inputs) - 1;
    const mu_recurrent *a = mu__recurrent_of(layer->sublayers.items[0]);
    if (given != 0 && given != 2 * a->n_states) {
        mu__error(MU_INVALID_ARGUMENT,
                  "layer '%s' takes a sequence, or a list of a sequence and %d states; it was given %d tensors",
                  mu_layer_name(layer), 2 * a->n_states, given + 1);
        return NULL;
    }
    mu_value *forward = mu__layer_call(layer->sublayers.items[0], inputs_of(inputs, 0), &inner, NULL);
    mu_value *backward = mu__layer_call(layer->sublayers.items[1], inputs_of(inputs, 1), &inner, NULL);
    mu_value *outputs = forward && backward ? outputs_of(layer, forward, backward) : NULL;
    if (outputs)
        set_mask(layer, outputs, context);
    return outputs;
}

const mu_layer_ops mu__bidirectional_ops = {
    .class = {"bidirectional", "Bidirectional", "mu_bidirectional", MU_OPTIONS(mu_bidirectional_args),
              bidirectional_fields, bidirectional_complete},
    .takes_several = true,
    .make = bidirectional_make,
    .build = bidirectional_build,
    .call = bidirectional_call,
};

mu_layer *mu_bidirectional_with(const mu_bidirectional_args *args)
{
    return mu__layer_make(&mu__bidirectional_ops, args);
}

// ---- Spectral normalization ---------------------------------------------------------------------

static const mu_field spectral_fields[] = {
    MU_FIELD(mu_spectral_normalization_args, layer, LAYER),
    MU_FIELD(mu_spectral_normalization_args, power_iterations, INT, .limit = MU_POSITIVE, .number = 1),
    MU_LAYER_FIELDS(mu_spectral_normalization_args),
    {0},
};

static mu_status spectral_complete(void *arguments)
{
    return mu__need(((const mu_spectral_normalization_args *)arguments)->layer, "mu_spectral_normalization: the layer");
}

static mu_status spectral_make(mu_layer *layer)
{
    MU_TRY(mu__layer_adopt(layer, ((const mu_spectral_normalization_args *)layer->args)->layer));
    return mu__layer_name_sublayers(layer, "mu_spectral_normalization");
}

static mu_status spectral_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    mu_layer *inner = layer->sublayers.items[0];
    MU_TRY(mu__layer_build(inner, n, inputs));
    mu_variable *kernel = mu__weight_named(inner, "kernel");
    if (!kernel && !(kernel = mu__weight_named(inner, "embeddings")))
        return mu__error(MU_INVALID_ARGUMENT, "layer '%s': '%s' has neither a kernel nor embeddings to normalize",
                         mu_layer_name(layer), mu_layer_name(inner));
    const mu_shape *shape = &kernel->resource.spec.shape;
    MU_TRY(mu__weight_share(layer, "kernel", kernel));
    mu_initializer *initializer = mu_truncated_normal_initializer(.stddev = .02);
    return mu__weight(layer, "vector_u", (mu_shape){.rank = 2, .dims = {1, shape->dims[shape->rank - 1]}},
                      MU_WEIGHT_OPTIONS(.initializer = initializer, .not_trainable = true));
}

// Divides the kernel by its largest singular value, whose vectors the power iteration approaches from call to call. All
// replicas compute the same.
static mu_status normalize(const mu_layer *layer)
{
    mu_variable *kernel = mu__weight_named(layer, "kernel"), *vector = mu__weight_named(layer, "vector_u");
    MU_TRY(mu__refuse_in_calls(
        true, mu_layer_name(layer),
        "spectral normalization assigns the kernel that the call computes with; use MirroredStrategy"));
    mu_tensor *value = mu_variable_read(kernel), *u = mu_variable_read(vector), *v = NULL, *old = u;
    mu_tensor *matrix = mu_reshape(value, 2, (int64_t[]){MU_UNKNOWN, mu_tensor_dim(u, 1)});
    mu_tensor *transposed = mu_transpose(matrix, (int[]){1, 0});
    for (int i = 0; i < ((const mu_spectral_normalization_args *)layer->args)->power_iterations; i++) {
        v = mu__unit_norm(mu_matmul(u, transposed), -1);
        u = mu__unit_norm(mu_matmul(v, matrix), -1);
    }
    mu_tensor *sigma = mu_reduce_sum(mu_multiply(mu_matmul(v, matrix), u), MU_ALL_AXES);
    // A kernel of zeros stays.
    mu_tensor *zero = u ? mu_constant(u->dtype, 0) : NULL, *one = u ? mu_constant(u->dtype, 1) : NULL;
    mu_tensor *empty = mu_reduce_all(mu_equal(value, zero), MU_ALL_AXES);
    mu_tensor *normal = mu_divide(value, mu_where(empty, one, sigma));
    u = mu_where(empty, old, u);
    if (!normal || !u)
        return mu_error_code();
    MU_TRY(mu__variable_update(vector, MU_UPDATE_ASSIGN, u));
    return mu__variable_update(kernel, MU_UPDATE_ASSIGN, normal);
}

static mu_value *spectral_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_call_context inner = {
        .training = context->training, .mask = context->mask, .training_left_out = context->training_left_out};
    if (context->training && normalize(layer) != MU_OK)
        return NULL;
    return mu__layer_call(layer->sublayers.items[0], inputs, &inner, NULL);
}

MU_LAYER_CLASS(spectral_normalization, "spectral_normalization", "SpectralNormalization",
               mu_spectral_normalization_args, spectral_fields, spectral_complete, .asks_sublayer = true,
               .takes_several = true, .make = spectral_make, .build = spectral_build, .call = spectral_call)
