// Common to all layers: names, building on first use, weights, activations.
#include "model/model.h"

#include <muster/nn.h>
#include <muster/ops.h>

static void **field(const mu_layer *layer, size_t offset)
{
    return (void **)(void *)((char *)layer->args + offset);
}

static void forget_weights(mu_layer *layer)
{
    for (int i = 0; i < layer->n_weights; i++) {
        mu_release(layer->weights[i]);
        mu_release(layer->regularizers[i]);
    }
    layer->n_weights = 0;
}

static void layer_destroy(void *object)
{
    mu_layer *layer = object;
    const mu_layer_ops *ops = layer->ops;
    forget_weights(layer);
    for (size_t i = 0; layer->args && i < MU_COUNT(ops->texts) && ops->texts[i]; i++)
        mu__free(*field(layer, ops->texts[i]));
    for (size_t i = 0; layer->args && i < MU_COUNT(ops->objects) && ops->objects[i]; i++)
        mu_release(*field(layer, ops->objects[i]));
    mu_release(layer->generator);
    mu__free(layer->name);
    mu__free(layer->args);
}

mu_type mu__layer_type = {.name = "layer", .destroy = layer_destroy};

// Copies the caller's struct and what it points to, because the layer is built later.
static mu_status keep_args(mu_layer *layer, const void *args)
{
    const mu_layer_ops *ops = layer->ops;
    mu_status status = MU_OK;
    if (!(layer->args = mu__alloc(ops->args_bytes)))
        return MU_RESOURCE_EXHAUSTED;
    memcpy(layer->args, args, ops->args_bytes);
    for (size_t i = 0; i < MU_COUNT(ops->texts) && ops->texts[i]; i++) {
        void **text = field(layer, ops->texts[i]);
        if (*text && !(*text = mu__strdup(*text)))
            status = MU_RESOURCE_EXHAUSTED;
    }
    for (size_t i = 0; i < MU_COUNT(ops->objects) && ops->objects[i]; i++)
        mu_retain(*field(layer, ops->objects[i]));
    return status;
}

mu_layer *mu__layer_new(const mu_layer_ops *ops, const void *args, const char *name)
{
    mu_layer *layer = mu__new(&mu__layer_type, sizeof *layer);
    if (!layer)
        return NULL;
    layer->ops = ops;
    layer->name = name ? mu__strdup(name) : NULL;
    if (keep_args(layer, args) != MU_OK || (name && !layer->name)) {
        mu_release(layer);
        return NULL;
    }
    return mu__give(layer);
}

const char *mu_layer_name(const mu_layer *layer)
{
    return layer ? layer->name ? layer->name : layer->ops->name : NULL;
}

mu_variable *mu__layer_weight(mu_layer *layer, const char *name, mu_shape shape, const char *initializer,
                              bool trainable, mu_regularizer *regularizer)
{
    mu_variable *variable = NULL;
    char *full = mu__sprintf("%s/%s", mu_layer_name(layer), name);
    assert(layer->n_weights < MU_MAX_LAYER_WEIGHTS);
    // Weights are made eagerly, also while a function is being traced.
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *value = full ? mu__initial_value(initializer, mu__floatx(), &shape) : NULL;
    mu__trace_resume(suspended);
    if (value)
        variable = mu_variable_new(value, full, .not_trainable = !trainable,
                                   .aggregation = trainable ? MU_AGGREGATION_NONE : MU_AGGREGATION_MEAN);
    mu__free(full);
    if (!variable)
        return NULL;
    layer->regularizers[layer->n_weights] = mu_retain(regularizer);
    layer->weights[layer->n_weights++] = mu_retain(variable);
    return variable;
}

static mu_status build(mu_layer *layer, const mu_tensor *x)
{
    layer->input = x->shape;
    if (x->shape.rank > 0)
        layer->input.dims[0] = MU_UNKNOWN;
    mu_status status = layer->ops->build ? layer->ops->build(layer, &layer->input) : MU_OK;
    if (status != MU_OK)
        forget_weights(layer);
    layer->built = status == MU_OK;
    return status;
}

mu_tensor *mu__layer_call(mu_layer *layer, mu_tensor *x, bool training)
{
    if (mu__pending() || !x)
        return NULL;
    if (!layer->built && build(layer, x) != MU_OK) {
        mu__error_context("while building layer '%s'", mu_layer_name(layer));
        return NULL;
    }
    mu_site site = mu__line();
    site.layer = mu_layer_name(layer);
    mu__line_push(mu__context(), site);
    mu_tensor *y = layer->ops->call(layer, x, training);
    mu__line_pop(mu__context());
    if (!y) {
        mu__error_context("in layer '%s'", mu_layer_name(layer));
        return NULL;
    }
    layer->output = y->shape;
    if (y->shape.rank > 0)
        layer->output.dims[0] = MU_UNKNOWN;
    return y;
}

// ---- Activations --------------------------------------------------------------------------------

static mu_tensor *softmax_last(mu_tensor *x)
{
    return mu_nn_softmax(x, -1);
}

static const struct {
    const char *name;
    mu_tensor *(*call)(mu_tensor *x);
} activations[] = {
    {"relu", mu_nn_relu},      {"sigmoid", mu_sigmoid}, {"tanh", mu_tanh},
    {"softmax", softmax_last}, {"exponential", mu_exp},
};

static mu_tensor *(*find_activation(const char *name))(mu_tensor *)
{
    for (size_t i = 0; i < MU_COUNT(activations); i++)
        if (strcmp(activations[i].name, name) == 0)
            return activations[i].call;
    return NULL;
}

static bool is_linear(const char *activation)
{
    return !activation || strcmp(activation, "linear") == 0;
}

mu_status mu__activation_known(const char *activation, const char *layer)
{
    if (is_linear(activation) || find_activation(activation))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: no activation is named '%s'; there are linear, relu, sigmoid, tanh, softmax and "
                     "exponential",
                     layer, activation);
}

mu_tensor *mu__activate(const char *activation, mu_tensor *x)
{
    return is_linear(activation) || !x ? x : find_activation(activation)(x);
}
