// Models: a list of layers with names, weights and a summary.
#include "model/model.h"

#include <muster/ops.h>

static void model_destroy(void *object)
{
    mu_model *model = object;
    for (int i = 0; i < model->n_layers; i++)
        mu_release(model->layers[i]);
    for (int i = 0; i < model->n_metrics; i++)
        mu_release(model->metrics[i]);
    mu_release(model->train_function);
    mu_release(model->test_function);
    mu_release(model->predict_function);
    mu_release(model->optimizer);
    mu_release(model->loss);
    mu_release(model->strategy);
    mu__free(model->layers);
    mu__free(model->metrics);
}

static mu_type model_type = {.name = "model", .destroy = model_destroy};

// The index of another layer with this name; -1 if there is none.
static int layer_named(const mu_model *model, const char *name, int except)
{
    for (int i = 0; i < model->n_layers; i++)
        if (i != except && model->layers[i]->name && strcmp(model->layers[i]->name, name) == 0)
            return i;
    return -1;
}

// The first of "dense", "dense_1", … that no other layer has.
static mu_status name_layer(const mu_model *model, int at)
{
    mu_layer *layer = model->layers[at];
    if (layer->name) {
        int other = layer_named(model, layer->name, at);
        return other < 0 ? MU_OK
                         : mu__error(MU_INVALID_ARGUMENT,
                                     "mu_sequential: layers %d and %d are both named '%s'; names "
                                     "must differ, as weights are saved under them",
                                     MU_MIN(other, at), MU_MAX(other, at), layer->name);
    }
    for (int before = 0; !layer->name; before++) {
        char *name = before ? mu__sprintf("%s_%d", layer->ops->name, before) : mu__strdup(layer->ops->name);
        if (!name)
            return MU_RESOURCE_EXHAUSTED;
        if (layer_named(model, name, at) < 0)
            layer->name = name;
        else
            mu__free(name);
    }
    return MU_OK;
}

static mu_status check_layers(mu_layer *const *layers, int *n)
{
    for (*n = 0; (const void *)layers[*n] != MU_END; ++*n) {
        if (!layers[*n])
            return mu__error(MU_INVALID_ARGUMENT, "mu_sequential: layer %d is NULL", *n);
        for (int i = 0; i < *n; i++)
            if (layers[i] == layers[*n])
                return mu__error(MU_INVALID_ARGUMENT, "mu_sequential: layers %d and %d are the same object", i, *n);
    }
    return *n > 0 ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "mu_sequential: there are no layers");
}

mu_model *mu_sequential_of(mu_layer *const *layers)
{
    int n;
    if (mu__pending() || mu__need(layers, "mu_sequential_of: the list") != MU_OK || check_layers(layers, &n) != MU_OK)
        return NULL;
    mu_model *model = mu__new(&model_type, sizeof *model);
    if (!model)
        return NULL;
    model->strategy = mu_retain(mu_get_strategy());
    model->layers = mu__calloc((size_t)n, sizeof *model->layers);
    mu_status status = model->layers ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n; i++)
        model->layers[model->n_layers++] = mu_retain(layers[i]);
    for (int i = 0; status == MU_OK && i < n; i++)
        status = name_layer(model, i);
    if (status == MU_OK)
        return mu__give(model);
    mu_release(model);
    return NULL;
}

// Converts the input to the model's type, unless the first layer takes integers.
static mu_tensor *as_input(const mu_model *model, mu_tensor *x)
{
    const mu_dtype dtype = mu_tensor_dtype(x);
    int first = 0;
    while (first < model->n_layers - 1 && model->layers[first]->ops->moves_only)
        first++;
    if (model->layers[first]->ops->takes_integers && (dtype == MU_I32 || dtype == MU_I64))
        return x;
    return mu_cast(x, mu__floatx());
}

mu_tensor *mu_call_with(const mu_call_args *given)
{
    mu_call_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_call") != MU_OK)
        return NULL;
    if (!args.model || !args.x) {
        mu__error(MU_INVALID_ARGUMENT, "mu_call: %s is NULL", args.model ? "x" : "model");
        return NULL;
    }
    // Weights made here belong to the model's strategy, even if its scope is closed.
    mu_scope_guard scope = {0};
    bool inside = mu__context()->replica != NULL;
    if (!inside)
        scope = mu_scope_open(args.model->strategy);
    mu_tensor *x = as_input(args.model, args.x);
    for (int i = 0; i < args.model->n_layers && x; i++)
        x = mu__layer_call(args.model->layers[i], x, args.training);
    if (!inside)
        mu_scope_close(&scope);
    return x;
}

typedef struct build_job {
    mu_model *model;
} build_job;

static mu_value *build_trace(mu_value *arguments, void *arg)
{
    mu_tensor *y = mu_call(((build_job *)arg)->model, mu_at(arguments, 0));
    return y ? mu_of(y) : NULL;
}

// Traces the model once, only for shapes and weights.
mu_status mu_model_build(mu_model *model, int rank, const int64_t *dims)
{
    if (mu__pending())
        return mu_error_code();
    if (!model || rank < 0 || rank >= MU_MAX_RANK || (rank > 0 && !dims))
        return mu__error(MU_INVALID_ARGUMENT, "mu_model_build: %s", !model ? "the model is NULL"
                         : rank > 0 && rank < MU_MAX_RANK ? "dims is NULL" : "the rank must be from 0 to 7");
    for (int i = 0; i < rank; i++)
        if (dims[i] < 1 && dims[i] != MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_model_build: dimension %d is %lld; it must be positive, or MU_UNKNOWN", i,
                             (long long)dims[i]);
    mu_spec spec = {.dtype = mu__floatx(), .shape = {.rank = rank + 1, .dims = {MU_UNKNOWN}}};
    for (int i = 0; i < rank; i++)
        spec.shape.dims[i + 1] = dims[i];
    build_job job = {.model = model};
    mu_traced traced = {0};
    mu_tensor *stand_in = mu_constant(spec.dtype, 0);
    mu_value *like = stand_in ? mu_of(stand_in) : NULL;
    mu_scope_guard scope = mu_scope_open(model->strategy);
    mu_status status = like ? mu__trace_run("build", build_trace, &job, like, &spec, true, &traced) : mu_error_code();
    mu_scope_close(&scope);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    return status;
}

// ---- Weights ------------------------------------------------------------------------------------

mu_status mu__model_variables(const mu_model *model, bool trainable_only, int *n, mu_variable ***variables)
{
    int capacity = model->n_layers * MU_MAX_LAYER_WEIGHTS;
    *n = 0;
    *variables = mu__calloc((size_t)capacity + 1, sizeof **variables);
    if (!*variables)
        return MU_RESOURCE_EXHAUSTED;
    for (int l = 0; l < model->n_layers; l++)
        for (int w = 0; w < model->layers[l]->n_weights; w++)
            if (!trainable_only || mu_variable_is_trainable(model->layers[l]->weights[w]))
                (*variables)[(*n)++] = model->layers[l]->weights[w];
    return MU_OK;
}

static mu_value *variables_value(const mu_model *model, bool trainable_only, const char *function)
{
    int n;
    mu_variable **variables;
    if (mu__pending())
        return NULL;
    if (!model) {
        mu__error(MU_INVALID_ARGUMENT, "%s: the model is NULL", function);
        return NULL;
    }
    if (mu__model_variables(model, trainable_only, &n, &variables) != MU_OK)
        return NULL;
    mu_value *value = mu_variables_of(n, variables);
    mu__free(variables);
    return value;
}

mu_value *mu_trainable_variables(mu_model *model)
{
    return variables_value(model, true, "mu_trainable_variables");
}

mu_value *mu_model_weights(mu_model *model)
{
    return variables_value(model, false, "mu_model_weights");
}

static int64_t layer_parameters(const mu_layer *layer, bool trainable_only)
{
    int64_t sum = 0;
    for (int w = 0; w < layer->n_weights; w++)
        if (!trainable_only || mu_variable_is_trainable(layer->weights[w]))
            sum += mu__elements(&layer->weights[w]->resource.spec.shape);
    return sum;
}

int64_t mu_model_parameters(const mu_model *model)
{
    int64_t sum = 0;
    for (int i = 0; model && i < model->n_layers; i++)
        sum += layer_parameters(model->layers[i], false);
    return sum;
}

// ---- Summary ------------------------------------------------------------------------------------

static void shape_as_keras(const mu_shape *shape, char text[MU_SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(text, MU_SHAPE_TEXT, "(");
    for (int i = 0; i < shape->rank && used < MU_SHAPE_TEXT; i++) {
        const char *comma = i ? ", " : "";
        if (shape->dims[i] == MU_UNKNOWN)
            used += (size_t)snprintf(text + used, MU_SHAPE_TEXT - used, "%sNone", comma);
        else
            used += (size_t)snprintf(text + used, MU_SHAPE_TEXT - used, "%s%lld", comma, (long long)shape->dims[i]);
    }
    if (used < MU_SHAPE_TEXT)
        snprintf(text + used, MU_SHAPE_TEXT - used, ")");
}

enum { TITLE_BYTES = MU_PRINTABLE_BYTES + 64 };

// "name (type)"; returns its columns.
static int title_of(const mu_layer *layer, char title[TITLE_BYTES])
{
    char name[MU_PRINTABLE_BYTES];
    snprintf(title, TITLE_BYTES, "%s (%s)", mu__printable_copy(layer->name, name), layer->ops->name);
    return mu__columns(title);
}

// Columns are as wide as their contents, and at least this wide.
enum { TITLE_COLUMN = 34, SHAPE_COLUMN = 24, COUNT_COLUMN = 12 };

static void shape_of_output(const mu_layer *layer, char text[MU_SHAPE_TEXT])
{
    snprintf(text, MU_SHAPE_TEXT, "?");
    if (layer->built)
        shape_as_keras(&layer->output, text);
}

static void measure_columns(const mu_model *model, int *title, int *shape)
{
    char text[MU_SHAPE_TEXT], name[TITLE_BYTES];
    *title = TITLE_COLUMN;
    *shape = SHAPE_COLUMN;
    for (int i = 0; i < model->n_layers; i++) {
        const mu_layer *layer = model->layers[i];
        shape_of_output(layer, text);
        *title = MU_MAX(*title, title_of(layer, name));
        *shape = MU_MAX(*shape, (int)strlen(text));
    }
}

mu_status mu_summary(mu_model *model, FILE *out)
{
    if (mu__pending())
        return mu_error_code();
    if (!model || !out)
        return mu__error(MU_INVALID_ARGUMENT, "mu_summary: %s is NULL", model ? "out" : "the model");
    int64_t trainable = 0, all = mu_model_parameters(model);
    char shape[MU_SHAPE_TEXT], title[TITLE_BYTES];
    int title_width, shape_width;
    measure_columns(model, &title_width, &shape_width);
    fprintf(out, "%-*s %-*s %*s\n", title_width, "Layer (type)", shape_width, "Output Shape", COUNT_COLUMN, "Param #");
    for (int i = 0; i < model->n_layers; i++) {
        const mu_layer *layer = model->layers[i];
        shape_of_output(layer, shape);
        const int used = title_of(layer, title);
        fprintf(out, "%s%*s %-*s %*lld\n", title, title_width - used, "", shape_width, shape, COUNT_COLUMN,
                (long long)layer_parameters(layer, false));
        trainable += layer_parameters(layer, true);
    }
    fprintf(out, "Total params: %lld\nTrainable params: %lld\nNon-trainable params: %lld\n", (long long)all,
            (long long)trainable, (long long)(all - trainable));
    return MU_OK;
}
