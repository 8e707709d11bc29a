// Layers and models of the program's own, whose build and call are C functions: what Keras's users make by subclassing
// Layer and Model. A model of this kind is such a layer with a trainer.
#include "base/callback.h"
#include "model/layers/operation.h"
#include "model/models/model.h"

// What both structs of options say, under the same names.
#define OWN_FIELDS(type)                                                                 \
    {                                                                                    \
        MU_FIELD(type, class_name, TEXT, .internal = true), MU_LAYER_FIELDS(type), { 0 } \
    }
static const mu_field layer_fields[] = OWN_FIELDS(mu_layer_args), model_fields[] = OWN_FIELDS(mu_model_subclass_args);

#define SAME(member) offsetof(mu_layer_args, member) == offsetof(mu_model_subclass_args, member)
_Static_assert(SAME(class_name) && SAME(only_) && SAME(build) && SAME(call) && SAME(arg) && SAME(name) && SAME(dtype) &&
                   SAME(clone) && sizeof(mu_layer_args) == sizeof(mu_model_subclass_args),
               "both kinds are read as mu_layer_args");

static bool is_own_model(const mu_layer *layer) { return layer->ops == &mu__subclassed_ops; }

bool mu__layer_is_own(const mu_layer *layer) { return layer->ops == &mu__own_layer_ops || is_own_model(layer); }

static const char *kind_of(const mu_layer *layer) { return is_own_model(layer) ? "model" : "layer"; }

static mu_status own_build(mu_layer *layer, int n, const mu_shape *inputs)
{
    const mu_layer_args *args = layer->args;
    mu_status status = MU_OK;
    if (args->build)
        MU_CALLBACK("the build function of a layer", status = args->build(layer, n, inputs, args->arg));
    return mu__pending() || status == MU_OK
               ? mu_error_code()
               : mu__error(status,
                           "%s '%s': its build function returned %s without an error; return mu_fail(code, reason)",
                           kind_of(layer), mu_layer_name(layer), mu_status_name(status));
}

static mu_value *own_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const mu_layer_args *args = layer->args;
    mu_value *outputs;
    MU_CALLBACK("the call function of a layer", outputs = args->call(layer, inputs, context, args->arg));
    if (!outputs && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT,
                  "%s '%s': its call function returned NULL without an error; return the output, or NULL after "
                  "mu_fail(code, reason)",
                  kind_of(layer), mu_layer_name(layer));
    return outputs;
}

static mu_status need_call(const void *arguments, const char *function)
{
    const mu_layer_args *args = arguments;
    return args->call ? MU_OK
                      : mu__error(MU_INVALID_ARGUMENT, "%s: .call is NULL; give the function that computes the output",
                                  function);
}

static mu_status complete_layer(void *args) { return need_call(args, "mu_layer_new"); }

static mu_status complete_model(void *args) { return need_call(args, "mu_model_subclass"); }

// Integers stay as they are: the user's function decides on their type.
const mu_layer_ops mu__own_layer_ops = {
    .class = {.name = "layer",
              .keras = "Layer",
              .function = "mu_layer_new",
              .args_bytes = sizeof(mu_layer_args),
              .only = offsetof(mu_layer_args, only_),
              .fields = layer_fields,
              .complete = complete_layer},
    .takes_integers = true,
    .takes_several = true,
    .takes_reverse = true,
    .asks_for_rows = true,
    .build = own_build,
    .call = own_call,
};

const mu_layer_ops mu__subclassed_ops = {
    .class = {.name = "model",
              .keras = "Model",
              .function = "mu_model_subclass",
              .args_bytes = sizeof(mu_model_subclass_args),
              .only = offsetof(mu_model_subclass_args, only_),
              .fields = model_fields,
              .complete = complete_model},
    .takes_integers = true,
    .takes_several = true,
    .takes_reverse = true,
    .asks_for_rows = true,
    .build = own_build,
    .call = own_call,
};

const char *mu__layer_class(const mu_layer *layer)
{
    const mu_layer_args *own = mu__layer_is_own(layer) ? layer->args : NULL;
    return own && own->class_name ? own->class_name : layer->ops->class.name;
}

const char *mu__layer_keras_class(const mu_layer *layer)
{
    if (layer->ops == &mu__operation_ops)
        return mu__operation_class(layer);
    return mu__layer_is_own(layer) ? mu__layer_class(layer) : layer->ops->class.keras;
}

mu_layer *mu__own_like(const mu_layer *layer)
{
    const mu_layer_args *args = layer->args;
    if (is_own_model(layer))
        return mu_model_subclass(args->class_name, .build = args->build, .call = args->call, .arg = args->arg);
    return mu_layer_new(args->class_name, .build = args->build, .call = args->call, .arg = args->arg);
}

mu_layer *mu_layer_new_with(const mu_layer_args *args) { return mu__layer_make(&mu__own_layer_ops, args); }

mu_model *mu_model_subclass_with(const mu_model_subclass_args *args)
{
    return mu__model_make(&mu__subclassed_ops, args);
}

void mu_call_set_mask(const mu_call_context *context, mu_value *mask)
{
    if (context && context->output_mask)
        *context->output_mask = mask;
}
