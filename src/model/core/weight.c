// The variables of a layer: how they are made, named and found again.
#include "model/core/layer.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>
#include <muster/random.h>

// Makes a variable "PATH/NAME" with this value. Retained by the caller's list.
static mu_variable *make_variable(const mu_layer *layer, const char *name, mu_tensor *value,
                                  const mu_weight_options *options)
{
    char *full = mu__weight_path(layer, name);
    mu_variable *variable = NULL;
    if (value && full)
        variable = mu_variable_new(value, full, .not_trainable = options->not_trainable,
                                   .aggregation = !options->not_trainable ? MU_AGGREGATION_NONE
                                                  : options->state        ? MU_AGGREGATION_ONLY_FIRST_REPLICA
                                                                          : MU_AGGREGATION_MEAN);
    mu__free(full);
    return variable;
}

static mu_status keep(mu_layer *layer, mu_weight weight)
{
    if (!weight.variable)
        return mu_error_code();
    if (layer->has_rate_factor && !weight.seed && !weight.shared) {
        weight.variable->has_rate_factor = true;
        weight.variable->rate_factor = layer->rate_factor;
    }
    if (!(weight.name = mu__strdup(weight.name)) || MU_PUSH(&layer->weights, weight) != MU_OK) {
        mu__free(weight.name);
        return MU_RESOURCE_EXHAUSTED;
    }
    mu_retain(weight.variable);
    mu_retain(weight.regularizer);
    return MU_OK;
}

mu_status mu__weight_as(mu_layer *layer, const char *name, mu_shape shape, mu_shape drawn,
                        const mu_weight_options *options)
{
    const mu_weight_option *initializer = mu__weight_option_argument(&mu__initializer_kind, options->initializer,
                                                                     mu_layer_name(layer)),
                           *constraint = mu__weight_option_argument(&mu__constraint_kind, options->constraint,
                                                                    mu_layer_name(layer));
    mu_weight weight = {.name = (char *)(uintptr_t)name, .uncounted = options->state};
    weight.regularizer = mu__weight_option_argument(&mu__regularizer_kind, options->regularizer, mu_layer_name(layer));
    MU_TRY(mu_error_code());
    // Weights are made eagerly, also while a function is being traced.
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *value = mu__weight_option_draw(initializer, layer->policy.variable, &drawn);
    if (value && !mu__shape_equal(&shape, &drawn))
        value = mu_reshape(value, shape.rank, shape.dims);
    if (value && options->adapt)
        value = options->adapt(layer, value);
    mu__trace_resume(suspended);
    weight.variable = make_variable(layer, name, value, options);
    if (weight.variable)
        weight.variable->autocast = !options->no_autocast;
    if (weight.variable && constraint)
        weight.variable->constraint = mu_retain((void *)(uintptr_t)constraint);
    return keep(layer, weight);
}

mu_status mu__weight(mu_layer *layer, const char *name, mu_shape shape, const mu_weight_options *options)
{
    return mu__weight_as(layer, name, shape, shape, options);
}

mu_status mu__weight_constant(mu_layer *layer, const char *name, mu_dtype dtype, double value)
{
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *tensor = mu_constant(dtype, value);
    mu__trace_resume(suspended);
    return keep(layer,
                (mu_weight){.name = (char *)(uintptr_t)name,
                            .variable = make_variable(layer, name, tensor, MU_WEIGHT_OPTIONS(.not_trainable = true))});
}

mu_status mu__weight_seed(mu_layer *layer, const uint64_t *seed)
{
    static char name[] = "seed_generator_state";
    char *full = mu__weight_path(layer, name);
    mu_variable *generator = !full ? NULL : seed ? mu__generator_new(*seed, full) : mu_generator_new(0, full);
    mu__free(full);
    return keep(layer, (mu_weight){.name = name, .variable = generator, .seed = true, .uncounted = true});
}

mu_status mu__weight_share(mu_layer *layer, const char *name, mu_variable *variable)
{
    return keep(layer, (mu_weight){.name = (char *)(uintptr_t)name, .variable = variable, .shared = true});
}

mu_variable *mu__weight_named(const mu_layer *layer, const char *name)
{
    for (size_t i = 0; i < layer->weights.n; i++)
        if (strcmp(layer->weights.items[i].name, name) == 0)
            return layer->weights.items[i].variable;
    return NULL;
}

mu_tensor *mu__weight_read(const mu_layer *layer, const char *name)
{
    mu_variable *variable = mu__weight_named(layer, name);
    return variable ? mu_variable_read(variable) : NULL;
}

mu_tensor *mu__weight_next_seed(const mu_layer *layer)
{
    for (size_t i = 0; i < layer->weights.n; i++)
        if (layer->weights.items[i].seed)
            return mu__generator_next(&layer->weights.items[i].variable->resource);
    return NULL;
}

// ---- For layers of the user's own ---------------------------------------------------------------

mu_variable *mu_layer_add_weight_with(const mu_layer_add_weight_args *given)
{
    mu_layer_add_weight_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_layer_add_weight") != MU_OK)
        return NULL;
    if (!args.layer || !args.name) {
        mu__error(MU_INVALID_ARGUMENT, "mu_layer_add_weight: the %s is NULL", args.layer ? "name" : "layer");
        return NULL;
    }
    if (mu__weight_named(args.layer, args.name)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_layer_add_weight: layer '%s' has a weight '%s' already; give each a name",
                  mu_layer_name(args.layer), args.name);
        return NULL;
    }
    const mu_weight_options options = {.initializer = args.initializer ? args.initializer : "glorot_uniform",
                                       .regularizer = args.regularizer,
                                       .constraint = args.constraint,
                                       .not_trainable = args.not_trainable};
    if (mu__shape_check(&args.shape, "mu_layer_add_weight") != MU_OK ||
        mu__weight(args.layer, args.name, args.shape, &options) != MU_OK)
        return NULL;
    return mu__weight_named(args.layer, args.name);
}

mu_variable *mu_layer_weight(const mu_layer *layer, const char *name)
{
    if (mu__pending() || mu__need(layer, "mu_layer_weight: the layer") != MU_OK ||
        mu__need(name, "mu_layer_weight: the name") != MU_OK)
        return NULL;
    mu_variable *variable = mu__weight_named(layer, name);
    if (!variable)
        mu__error(MU_NOT_FOUND, "mu_layer_weight: layer '%s' has no weight '%s'%s", mu_layer_name(layer), name,
                  layer->built ? "" : "; its weights are made by its first call");
    return variable;
}
