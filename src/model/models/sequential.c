// Sequential models: layers that are called one after the other.
#include "model/models/functional.h"
#include "model/models/model.h"

typedef struct sequential_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
} sequential_args;

static const mu_field sequential_fields[] = {MU_FIELD(sequential_args, name, NAME), {0}};

static mu_value *sequential_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    mu_value *value = inputs, *mask = context->mask;
    for (size_t i = 0; i < layer->sublayers.n && value; i++) {
        const mu_call_context inner = {
            .training = context->training, .mask = mask, .training_left_out = context->training_left_out};
        value = mu__layer_call(layer->sublayers.items[i], value, &inner, &mask);
    }
    mu_call_set_mask(context, mask);
    return value;
}

const mu_layer_ops mu__sequential_ops = {
    .class = {"sequential", "Sequential", "mu_sequential", MU_OPTIONS(sequential_args), sequential_fields, NULL},
    .takes_several = true,
    .call = sequential_call,
    .release = mu__sequential_release,
};

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

// A model that begins with its input's shape has its weights at once.
static mu_status build_known(mu_model *model)
{
    const mu_layer *first = model->sublayers.items[0];
    if (first->ops != &mu__input_layer_ops)
        return MU_OK;
    const mu_shape shape = mu__input_shape(first->args);
    return mu__model_build(model, &shape);
}

mu_model *mu_sequential_of(mu_layer *const *layers)
{
    int n;
    if (mu__pending() || mu__need(layers, "mu_sequential_of: the list") != MU_OK || check_layers(layers, &n) != MU_OK)
        return NULL;
    mu_model *model = mu__model_make(&mu__sequential_ops, NULL);
    if (!model)
        return NULL;
    for (int i = 0; i < n; i++)
        if (mu__layer_adopt(model, layers[i]) != MU_OK)
            return NULL;
    return mu__layer_name_sublayers(model, "mu_sequential") == MU_OK && build_known(model) == MU_OK ? model : NULL;
}
