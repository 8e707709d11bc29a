// What every model has: calls, building from a shape, and its variables.
#include "model/models/functional.h"
#include "model/models/host_part.h"
#include "model/models/model.h"
#include "model/training/training.h"

#include <muster/ops.h>

mu_model *mu__model_make(const mu_layer_ops *ops, const void *args)
{
    mu_model *model = mu__layer_make(ops, args);
    if (!model)
        return NULL;
    model->strategy = mu_retain(mu_get_strategy());
    model->trainer = mu__calloc(1, sizeof *model->trainer);
    return model->trainer ? model : NULL;
}

mu_status mu__need_model(const mu_model *model, const char *function)
{
    if (!model)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the model is NULL", function);
    return model->trainer
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "%s: '%s' is a layer, not a model; put it into a model with mu_sequential or mu_model_new",
                           function, mu_layer_name(model));
}

// ---- Calls --------------------------------------------------------------------------------------

static mu_value *inputs_of(const mu_call_args *args, const char *function)
{
    if (!args->model || (!args->x && !args->inputs)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: %s is NULL", function, args->model ? "x" : "model");
        return NULL;
    }
    if (args->x && args->inputs) {
        mu__error(MU_INVALID_ARGUMENT, "%s: x and .inputs are both given; give one of them", function);
        return NULL;
    }
    if (args->mask && args->masks) {
        mu__error(MU_INVALID_ARGUMENT, "%s: mask and .masks are both given; give one of them", function);
        return NULL;
    }
    return args->x ? mu_of(args->x) : args->inputs;
}

// Left out, the masks are those that came with the inputs, as in Keras, where operands of attention with heads are
// arguments with a mask each.
static mu_value *mask_of(const mu_call_args *args, const mu_value *inputs)
{
    mu_value *given = args->mask ? mu_of(args->mask) : args->masks;
    if (given && !mu__takes_operands(args->model->ops))
        return given;
    mu_value *carried = mu__pending() ? NULL : mu__masks_kept(inputs);
    return given ? mu__masks_complete(given, carried, inputs->n) : carried;
}

static mu_value *call(const mu_call_args *given, const char *function)
{
    mu_call_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK)
        return NULL;
    mu_value *inputs = inputs_of(&args, function);
    const bool inside = mu__context()->n_layers > 0, left_out = !MU_GIVEN(&args, training);
    if (!inputs || mu__pending())
        return NULL;
    // A call inside a layer's function that is given no mode has that of the layer, or none like it, as in Keras.
    mu_call_context context = {.training = left_out && inside ? mu__context()->training : args.training,
                               .mask = mask_of(&args, inputs),
                               .reverse = args.reverse,
                               .training_left_out = left_out};
    if (mu__pending())
        return NULL;
    if (mu__has_layer_tensor(inputs) || (context.mask && mu__has_layer_tensor(context.mask)))
        return mu__layer_connect(args.model, inputs, &context);
    context.training_left_out = left_out && (!inside || mu__context()->training_left_out);
    // Weights made here belong to the model's strategy, even if its scope is closed.
    mu_scope_guard scope = {0};
    const bool opens = mu__context()->replica == NULL && args.model->strategy;
    if (opens)
        scope = mu_scope_open(args.model->strategy);
    mu_value *outputs = mu__layer_call(args.model, inputs, &context, NULL);
    if (opens)
        mu_scope_close(&scope);
    return outputs;
}

mu_value *mu_call_values_with(const mu_call_args *args) { return call(args, "mu_call_values"); }

mu_tensor *mu_call_with(const mu_call_args *args)
{
    mu_value *outputs = call(args, "mu_call");
    const int n = outputs ? mu__value_flatten(outputs, NULL, 0) : 1;
    if (n == 1)
        return outputs ? mu_value_tensor(outputs) : NULL;
    mu__error(MU_INVALID_ARGUMENT, "mu_call: '%s' returns %d tensors; call it with mu_call_values",
              mu_layer_name(args->model), n);
    return NULL;
}

typedef struct build_job {
    mu_model *model;
} build_job;

static mu_value *build_trace(mu_value *arguments, void *arg)
{
    const mu_call_context context = {0};
    return mu__layer_call(((build_job *)arg)->model, arguments, &context, NULL);
}

// Traces the model once, only for shapes and weights.
mu_status mu__model_build(mu_model *model, const mu_shape *input)
{
    const mu_spec spec = {.dtype = mu__host_input_dtype(model, mu__floatx()), .shape = *input};
    build_job job = {.model = model};
    mu_traced traced = {0};
    mu_tensor *placeholder = mu_constant(mu__floatx(), 0);
    mu_value *like = placeholder ? mu_of(placeholder) : NULL;
    mu_scope_guard scope = mu_scope_open(model->strategy);
    mu_host_results shapes, *outer = mu__host_shapes_begin(&shapes);
    mu_status status = like ? mu__trace_run("build", build_trace, &job, like, &spec, true, &traced) : mu_error_code();
    mu__host_shapes_end(outer);
    mu_scope_close(&scope);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    return status;
}

mu_status mu_model_build(mu_model *model, int rank, const int64_t *dims)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need_model(model, "mu_model_build"));
    if (rank < 0 || rank >= MU_MAX_RANK || (rank > 0 && !dims))
        return mu__error(MU_INVALID_ARGUMENT, "mu_model_build: %s",
                         rank > 0 && rank < MU_MAX_RANK ? "dims is NULL" : "the rank must be from 0 to 7");
    mu_shape shape = {.rank = rank + 1, .dims = {MU_UNKNOWN}};
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1 && dims[i] != MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_model_build: dimension %d is %lld; it must be positive, or MU_UNKNOWN", i,
                             (long long)dims[i]);
        shape.dims[i + 1] = dims[i];
    }
    return mu__model_build(model, &shape);
}

mu_layer *mu_model_layer(mu_model *model, const char *name)
{
    if (mu__pending() || mu__need_model(model, "mu_model_layer") != MU_OK ||
        mu__need(name, "mu_model_layer: the name") != MU_OK)
        return NULL;
    char known[256] = "";
    for (size_t i = 0; i < model->sublayers.n; i++) {
        const size_t used = strlen(known);
        if (strcmp(mu_layer_name(model->sublayers.items[i]), name) == 0)
            return model->sublayers.items[i];
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", mu_layer_name(model->sublayers.items[i]));
    }
    mu__error(MU_NOT_FOUND, "mu_model_layer: no layer of '%s' is named '%.60s'; there are %s", mu_layer_name(model),
              name, known);
    return NULL;
}

// ---- Weights ------------------------------------------------------------------------------------

static mu_value *variables_value(const mu_model *model, mu_weight_choice choice, const char *function)
{
    mu_variable_list list = {0};
    mu_value *value = NULL;
    if (mu__pending())
        return NULL;
    if (!model) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the model is NULL", function);
        return NULL;
    }
    if (mu__layer_collect(model, choice, &list) == MU_OK)
        value = mu_variables_of((int)list.n, list.items);
    mu__free(list.items);
    return value;
}

mu_value *mu_trainable_variables(mu_model *model)
{
    return variables_value(model, MU_WEIGHTS_TRAINABLE, "mu_trainable_variables");
}

mu_value *mu_model_weights(mu_model *model) { return variables_value(model, MU_WEIGHTS_ALL, "mu_model_weights"); }

int64_t mu_model_parameters(const mu_model *model) { return model ? mu__layer_parameters(model, false) : 0; }
