// Layers around another layer: a recurrent layer in both directions, a layer for each step of a sequence, and one whose
// kernel has the spectral norm 1.
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
    return mu__error(MU_INVALID_ARGUMENT, "mu_bidirectional: %s '%s' is not a recurrent layer; give one such as "
                     "mu_lstm", what, mu_layer_name(layer));
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
    const char *what = a->backwards == b->backwards ? "go in the same direction; set go_backwards of one of them"
                     : a->sequences != b->sequences ? "differ in return_sequences"
                     : a->last_states != b->last_states ? "differ in return_state"
                                                        : NULL;
    if (!what)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "mu_bidirectional: the forward layer '%s' and the backward layer '%s' of "
                     "'%s' %s", mu_layer_name(forward), mu_layer_name(backward), mu_layer_name(layer), what);
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
    const mu_call_context inner = {.training = context->training, .mask = mask ? mu_of(mask) : NULL};
    const int given = mu_value_count(inputs) - 1;
    const mu_recurrent *a = mu__recurrent_of(layer->sublayers.items[0]);
    if (given != 0 && given != 2 * a->n_states) {
        mu__error(MU_INVALID_ARGUMENT, "layer '%s' takes a sequence, or a list of a sequence and %d states; it was "
                  "given %d tensors", mu_layer_name(layer), 2 * a->n_states, given + 1);
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
    .make = bidirectional_make, .build = bidirectional_build, .call = bidirectional_call,
};

mu_layer *mu_bidirectional_with(const mu_bidirectional_args *args)
{
    return mu__layer_make(&mu__bidirectional_ops, args);
}

// ---- Time distributed ---------------------------------------------------------------------------

static const mu_field time_distributed_fields[] = {
    MU_FIELD(mu_time_distributed_args, layer, LAYER),
    MU_LAYER_FIELDS(mu_time_distributed_args),
    {0},
};

static mu_status time_distributed_complete(void *arguments)
{
    return mu__need(((const mu_time_distributed_args *)arguments)->layer, "mu_time_distributed: the layer");
}

static mu_status time_distributed_make(mu_layer *layer)
{
    MU_TRY(mu__layer_adopt(layer, ((const mu_time_distributed_args *)layer->args)->layer));
    return mu__layer_name_sublayers(layer, "mu_time_distributed");
}

static mu_status time_distributed_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    char text[MU_SHAPE_TEXT];
    mu_shape step = {.rank = inputs->rank - 1, .dims = {MU_UNKNOWN}};
    MU_TRY(mu__need_input_rank(layer, inputs, 2, MU_MAX_RANK));
    for (int i = 1; i < step.rank; i++) {
        step.dims[i] = inputs->dims[i + 1];
        if (step.dims[i] == MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs known dimensions behind the steps; it was given %s",
                             mu_layer_name(layer), mu__shape_text(inputs, text));
    }
    if (n != 1)
        return mu__error(MU_INVALID_ARGUMENT, "layer '%s' takes one tensor; it was given %d", mu_layer_name(layer), n);
    return mu__layer_build(layer->sublayers.items[0], 1, &step);
}

// Puts the steps into the batch: [batch, steps, …] becomes [batch · steps, …].
static mu_tensor *fold(mu_tensor *x)
{
    int64_t dims[MU_MAX_RANK] = {MU_UNKNOWN};
    for (int i = 1; i < mu_tensor_rank(x) - 1; i++)
        dims[i] = mu_tensor_dim(x, i + 1);
    return x ? mu_reshape(x, mu_tensor_rank(x) - 1, dims) : NULL;
}

// Takes the steps of x out of the batch of y again.
static mu_tensor *unfold(mu_tensor *y, mu_tensor *x)
{
    const int rank = mu_tensor_rank(y) + 1;
    mu_shape shape = {.rank = rank, .dims = {1, 1}};
    int64_t begin[MU_MAX_RANK] = {0}, size[MU_MAX_RANK] = {-1, -1};
    int axes[MU_MAX_RANK];
    if (!y || rank > MU_MAX_RANK)
        return NULL;
    for (int i = 2; i < MU_MAX_RANK; i++) {
        size[i] = 1;
        axes[i - 2] = i;
        shape.dims[i] = i < rank ? mu_tensor_dim(y, i - 1) : 0;
    }
    if (mu_tensor_dim(x, 1) != MU_UNKNOWN) {
        shape.dims[0] = mu_tensor_dim(x, 0);
        shape.dims[1] = mu_tensor_dim(x, 1);
        return mu_reshape(y, rank, shape.dims);
    }
    // Batch and steps are unknown: a tensor of the result's shape tells both.
    mu_tensor *steps = mu_zeros_like(mu_slice(x, begin, size));
    if (mu_tensor_rank(x) > 2)
        steps = mu_reduce_sum(steps, .axes = axes, .n_axes = mu_tensor_rank(x) - 2);
    for (int i = 2; i < rank; i++)
        steps = mu_expand_dims(steps, -1);
    mu_tensor *like = steps ? mu_add(steps, mu_zeros(steps->dtype, rank, shape.dims)) : NULL;
    return mu_reshape_like(y, like);
}

// Whether a call in training has effects, other than drawing random numbers, that make the order of the steps matter.
static mu_status has_effects(const mu_layer *layer, bool *out)
{
    mu_variable_list all = {0}, trainable = {0};
    mu_status status = mu__layer_collect(layer, MU_WEIGHTS_ALL, &all);
    if (status == MU_OK)
        status = mu__layer_collect(layer, MU_WEIGHTS_TRAINABLE, &trainable);
    *out = all.n != trainable.n;
    mu__free(all.items);
    mu__free(trainable.items);
    return status;
}

// Whether each step begins with the states that the step before left, in training or not.
static bool is_stateful(const mu_layer *layer)
{
    const mu_recurrent *options = mu__recurrent_of(layer);
    bool stateful = options && options->stateful;
    for (size_t i = 0; i < layer->sublayers.n && !stateful; i++)
        stateful = is_stateful(layer->sublayers.items[i]);
    return stateful;
}

// Whether the layer, or one inside of it, computes with all rows of a batch.
static bool asks_for_rows(const mu_layer *layer)
{
    bool asks = layer->ops->asks_for_rows;
    for (size_t i = 0; i < layer->sublayers.n && !asks; i++)
        asks = asks_for_rows(layer->sublayers.items[i]);
    return asks;
}

static mu_tensor *call_once(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, bool training)
{
    const mu_call_context context = {.training = training, .mask = mask ? mu_of(mask) : NULL};
    const mu_tensor *outer = mu__row_mask_set(mu_tensor_rank(mask) == 1 ? mask : NULL);
    mu_value *y = x ? mu__layer_call(layer->sublayers.items[0], mu_of(x), &context, NULL) : NULL;
    mu__row_mask_set(outer);
    return y ? mu_value_tensor(y) : NULL;
}

static mu_tensor *refuse_unknown_steps(const mu_layer *layer)
{
    const mu_layer *inner = layer->sublayers.items[0];
    mu__error(MU_INVALID_ARGUMENT, "layer '%s': '%s' has %s, so the number of steps must be known; give the shape of "
              "the input", mu_layer_name(layer), mu_layer_name(inner),
              is_stateful(inner) ? "states that go on from step to step" : "weights that its calls change");
    return NULL;
}

// Steps one after the other, in the order of time.
static mu_tensor *call_steps(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, bool training)
{
    const int64_t n = mu_tensor_dim(x, 1);
    if (n == MU_UNKNOWN)
        return refuse_unknown_steps(layer);
    mu_tensor **steps = mu__calloc(2 * (size_t)n + 1, sizeof *steps), **masks = steps ? steps + n : NULL, *y = NULL;
    mu_status status = steps ? mu_unstack(x, (int)n, 1, steps) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && mask)
        status = mu_unstack(mask, (int)n, 1, masks);
    for (int64_t i = 0; status == MU_OK && i < n; i++)
        status = (steps[i] = call_once(layer, steps[i], masks[i], training)) ? MU_OK : mu_error_code();
    if (status == MU_OK)
        y = mu_stack((int)n, steps, 1);
    mu__free(steps);
    return y;
}

// The mask of the outputs y of steps of x: behind the steps, it has the axes that y has too. Of others, a step counts
// that has any element that does.
static mu_tensor *mask_of_outputs(mu_tensor *mask, const mu_tensor *x, const mu_tensor *y)
{
    const int rank = mu_tensor_rank(mask);
    int axes[MU_MAX_RANK], n = 0, kept = 2;
    while (kept < rank && kept < mu_tensor_rank(y) - 1 && mu_tensor_dim(x, kept) == mu_tensor_dim(y, kept))
        kept++;
    for (int i = kept; i < rank; i++)
        axes[n++] = i;
    return n > 0 ? mu_reduce_any(mu_cast(mask, MU_BOOL), .axes = axes, .n_axes = n) : mask;
}

// All steps at once where that is the same. Layers inside of one of the program's own may be built by its first call,
// which goes step by step if it can, as only then it is known whether the order matters.
static mu_tensor *call_all(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, bool training)
{
    const mu_layer *inner = layer->sublayers.items[0];
    const bool first = training && !mu__layer_is_built(inner);
    bool in_order = false;
    if (has_effects(inner, &in_order) != MU_OK)
        return NULL;
    if ((in_order && training) || (first && mu_tensor_dim(x, 1) != MU_UNKNOWN) || is_stateful(inner))
        return call_steps(layer, x, mask, training);
    mu_tensor *y = unfold(call_once(layer, fold(x), mask ? fold(mask) : NULL, training), x);
    if (!y || !first || has_effects(inner, &in_order) != MU_OK)
        return y;
    return in_order ? refuse_unknown_steps(layer) : y;
}

// Of a mask [batch, steps] a step has the rows that count. A mask of the rows that this layer is given counts for each
// of its steps.
static mu_value *time_distributed_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    mu_tensor *x = mu_at(inputs, 0), *mask = mu__mask_at(context->mask, 0);
    if (mu__is_row_mask(mask))
        mask = mu_expand_dims(mask, -1);
    mask = mu__step_mask(layer, x, mask, MU_MAX(mu_tensor_rank(mask), 2));
    if (mu__pending())
        return NULL;
    const bool deep = mu_tensor_rank(mask) > 2, passes_mask = deep || asks_for_rows(layer->sublayers.items[0]);
    mu_tensor *y = call_all(layer, x, passes_mask ? mask : NULL, context->training);
    if (y && deep)
        mu_call_set_mask(context, mu_of(mask_of_outputs(mask, x, y)));
    return mu_of(y);
}

const mu_layer_ops mu__time_distributed_ops = {
    .class = {"time_distributed", "TimeDistributed", "mu_time_distributed", MU_OPTIONS(mu_time_distributed_args),
              time_distributed_fields, time_distributed_complete},
    .asks_sublayer = true, .passes_mask = true, .make = time_distributed_make, .build = time_distributed_build,
    .call = time_distributed_call,
};

mu_layer *mu_time_distributed_with(const mu_time_distributed_args *args)
{
    return mu__layer_make(&mu__time_distributed_ops, args);
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
    MU_TRY(mu__refuse_in_calls(true, mu_layer_name(layer), "spectral normalization assigns the kernel that the call "
                               "computes with; use MirroredStrategy"));
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
    const mu_call_context inner = {.training = context->training, .mask = context->mask};
    if (context->training && normalize(layer) != MU_OK)
        return NULL;
    return mu__layer_call(layer->sublayers.items[0], inputs, &inner, NULL);
}

MU_LAYER_CLASS(spectral_normalization, "spectral_normalization", "SpectralNormalization",
               mu_spectral_normalization_args, spectral_fields, spectral_complete, .asks_sublayer = true,
               .make = spectral_make, .build = spectral_build, .call = spectral_call)
