// A layer for each step of a sequence: time_distributed.
//
// The steps go through the layer inside as rows of one larger batch, unless the order of the steps matters: because
// they go on with the states of the step before, or because a call in training changes weights. Of a layer of the
// program's own that is known only when its function has run, as this may build other layers.
#include "graph/trace.h"
#include "model/core/layer.h"
#include "model/core/losses_added.h"
#include "model/layers/recurrent.h"
#include "model/models/functional.h"

#include <muster/ops.h>

// What is known of the layer inside.
typedef struct time_distributed {
    bool asked;  // a call in training has built those of its layers that it calls
    bool failed; // that call did not succeed without values
} time_distributed;

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
    layer->state = mu__calloc(1, sizeof(time_distributed));
    MU_TRY(layer->state ? MU_OK : MU_RESOURCE_EXHAUSTED);
    MU_TRY(mu__layer_adopt(layer, ((const mu_time_distributed_args *)layer->args)->layer));
    return mu__layer_name_sublayers(layer, "mu_time_distributed");
}

static void time_distributed_release(mu_layer *layer) { mu__free(layer->state); }

static mu_status time_distributed_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    char text[MU_SHAPE_TEXT];
    mu_shape step = {.rank = inputs->rank - 1, .dims = {MU_UNKNOWN}};
    MU_TRY(mu__need_input_rank(layer, inputs, 2, MU_MAX_RANK));
    for (int i = 1; i < step.rank; i++) {
        step.dims[i] = inputs->dims[i + 1];
        if (step.dims[i] == MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT, "layer '%s' needs known dimensions after the steps; it was given %s",
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
    // Batch and steps are unknown: a tensor of the result's shape provides both.
    mu_tensor *steps = mu_zeros_like(mu_slice(x, begin, size));
    if (mu_tensor_rank(x) > 2)
        steps = mu_reduce_sum(steps, .axes = axes, .n_axes = mu_tensor_rank(x) - 2);
    for (int i = 2; i < rank; i++)
        steps = mu_expand_dims(steps, -1);
    mu_tensor *like = steps ? mu_add(steps, mu_zeros(steps->dtype, rank, shape.dims)) : NULL;
    return mu_reshape_like(y, like);
}

// Whether a call in training has effects, other than drawing random numbers, that make the order of the steps matter. A
// frozen batch normalization keeps its statistics; a frozen spectral normalization goes on.
static bool has_effects(const mu_layer *layer)
{
    const bool fixed = layer->frozen && layer->ops == &mu__batch_normalization_ops;
    bool has = false;
    for (size_t i = 0; i < layer->weights.n && !has && !fixed; i++)
        has = !layer->weights.items[i].uncounted && !mu_variable_is_trainable(layer->weights.items[i].variable);
    for (size_t i = 0; i < layer->sublayers.n && !has; i++)
        has = has_effects(layer->sublayers.items[i]);
    return has;
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

// Calls the layer inside in the mode of `outer_call`.
static mu_tensor *call_once(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, const mu_call_context *outer_call)
{
    const mu_call_context context = {.training = outer_call->training,
                                     .mask = mask ? mu_of(mask) : NULL,
                                     .training_left_out = outer_call->training_left_out};
    const mu_tensor *outer = mu__row_mask_set(mu_tensor_rank(mask) == 1 ? mask : NULL);
    mu_value *y = x ? mu__layer_call(layer->sublayers.items[0], mu_of(x), &context, NULL) : NULL;
    mu__row_mask_set(outer);
    return y ? mu_value_tensor(y) : NULL;
}

static mu_tensor *refuse_unknown_steps(const mu_layer *layer)
{
    const mu_layer *inner = layer->sublayers.items[0];
    mu__error(MU_INVALID_ARGUMENT,
              "layer '%s': '%s' has %s, so the number of steps must be known; give the shape of the input",
              mu_layer_name(layer), mu_layer_name(inner),
              is_stateful(inner) ? "states that go on from step to step" : "weights that its calls change");
    return NULL;
}

// Steps one after the other, in the order of time.
static mu_tensor *call_steps(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, const mu_call_context *context)
{
    const int64_t n = mu_tensor_dim(x, 1);
    if (n == MU_UNKNOWN)
        return refuse_unknown_steps(layer);
    mu_tensor **steps = mu__calloc(2 * (size_t)n + 1, sizeof *steps), **masks = steps ? steps + n : NULL, *y = NULL;
    mu_status status = steps ? mu_unstack(x, (int)n, 1, steps) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && mask)
        status = mu_unstack(mask, (int)n, 1, masks);
    for (int64_t i = 0; status == MU_OK && i < n; i++)
        status = (steps[i] = call_once(layer, steps[i], masks[i], context)) ? MU_OK : mu_error_code();
    if (status == MU_OK)
        y = mu_stack((int)n, steps, 1);
    mu__free(steps);
    return y;
}

// Whether axis i of a mask is one of x that y has too. A size that is not known is taken for the other one.
static bool goes_on(const mu_tensor *mask, const mu_tensor *x, const mu_tensor *y, int i)
{
    const int64_t dim = mu_tensor_dim(mask, i), of_x = mu_tensor_dim(x, i);
    return i < mu_tensor_rank(x) && i < mu_tensor_rank(y) - 1 && of_x == mu_tensor_dim(y, i) &&
           (dim == of_x || dim == MU_UNKNOWN || of_x == MU_UNKNOWN);
}

// The mask of the outputs y of steps of x: behind the steps, it has the axes that y has too. Of others, a step counts
// that has any element that does.
static mu_tensor *mask_of_outputs(mu_tensor *mask, const mu_tensor *x, const mu_tensor *y)
{
    const int rank = mu_tensor_rank(mask);
    int axes[MU_MAX_RANK], n = 0, kept = 2;
    while (kept < rank && goes_on(mask, x, y, kept))
        kept++;
    for (int i = kept; i < rank; i++)
        axes[n++] = i;
    return n > 0 ? mu_reduce_any(mu_cast(mask, MU_BOOL), .axes = axes, .n_axes = n) : mask;
}

static mu_value *ask_call(mu_value *arguments, void *layer)
{
    mu_tensor *x = mu_at(arguments, 0), *mask = mu_value_count(arguments) > 1 ? mu_at(arguments, 1) : NULL;
    return mu_of(call_once(layer, fold(x), mask ? fold(mask) : NULL, &(mu_call_context){.training = true}));
}

// Calls the layer inside for a step of training in a trace of its own, which nothing runs: so it builds all layers that
// it calls. A function that fails without values, such as one that looks at numbers, is asked by the steps themselves.
static mu_status ask(const mu_layer *layer, mu_tensor *x, mu_tensor *mask)
{
    time_distributed *state = layer->state;
    const mu_spec specs[] = {mu__spec_of(x), mask ? mu__spec_of(mask) : (mu_spec){0}};
    mu_value *arguments = mask ? mu_list(x, mask, MU_END) : mu_list(x, MU_END);
    mu_traced traced = {0};
    mu_context *thread = mu__context();
    void *losses = thread->added_losses;
    if (!arguments)
        return mu_error_code();
    thread->added_losses = NULL; // those of the trace end with it
    const mu_status status = mu__trace_run(mu_layer_name(layer), ask_call, (void *)(uintptr_t)layer, arguments, specs,
                                           mu__trace_may_make_variables(), &traced);
    thread->added_losses = losses;
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    if (status == MU_RESOURCE_EXHAUSTED)
        return status;
    state->asked = true;
    state->failed = status != MU_OK;
    mu_error_take();
    return MU_OK;
}

static mu_tensor *refuse_new_weights(const mu_layer *layer)
{
    mu__error(MU_FAILED_PRECONDITION,
              "layer '%s': this call of '%s' made weights that its calls change, unlike the calls before, so its steps "
              "must be called one after the other; call the model once more",
              mu_layer_name(layer), mu_layer_name(layer->sublayers.items[0]));
    return NULL;
}

// All steps at once where that is the same.
static mu_tensor *call_all(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, const mu_call_context *context)
{
    const mu_layer *inner = layer->sublayers.items[0];
    const time_distributed *state = layer->state;
    const bool open = context->training && !mu__layer_is_built(inner); // the call may build layers
    if (open && !state->asked && ask(layer, x, mask) != MU_OK)
        return NULL;
    const bool trains = context->training || (context->training_left_out && mu__calls_in_training(inner));
    const bool in_order = has_effects(inner) || (open && state->failed && mu_tensor_dim(x, 1) != MU_UNKNOWN);
    if ((in_order && trains) || is_stateful(inner))
        return call_steps(layer, x, mask, context);
    const size_t losses = mu__losses_count();
    mu_tensor *y = unfold(call_once(layer, fold(x), mask ? fold(mask) : NULL, context), x);
    if (y && mu__losses_count() > losses && mu__losses_times(losses, mu_dim_size(x, 1)) != MU_OK)
        return NULL;
    return y && open && has_effects(inner) ? refuse_new_weights(layer) : y;
}

// Of a mask [batch, steps] a step has the rows that count. A mask of the rows that this layer is given counts for each
// of its steps.
static mu_value *time_distributed_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    mu_tensor *x = mu_at(inputs, 0), *mask = mu__mask_at(context->mask, 0);
    if (mu__is_row_mask(mask))
        mask = mu_expand_dims(mask, -1);
    mask = mu__mask_for_steps(layer, x, mask);
    if (mu__pending())
        return NULL;
    const bool deep = mu_tensor_rank(mask) > 2, passes_mask = deep || asks_for_rows(layer->sublayers.items[0]);
    mu_tensor *y = call_all(layer, x, passes_mask ? mask : NULL, context);
    if (y && deep)
        mu_call_set_mask(context, mu_of(mask_of_outputs(mask, x, y)));
    return mu_of(y);
}

const mu_layer_ops mu__time_distributed_ops = {
    .class = {"time_distributed", "TimeDistributed", "mu_time_distributed", MU_OPTIONS(mu_time_distributed_args),
              time_distributed_fields, time_distributed_complete},
    .asks_sublayer = true,
    .passes_mask = true,
    .make = time_distributed_make,
    .build = time_distributed_build,
    .call = time_distributed_call,
    .release = time_distributed_release,
};

mu_layer *mu_time_distributed_with(const mu_time_distributed_args *args)
{
    return mu__layer_make(&mu__time_distributed_ops, args);
}
