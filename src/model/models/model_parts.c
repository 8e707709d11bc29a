// What a model is made of, for models that are made of others: its layers by their numbers, and the layer tensors of
// its inputs, its outputs and the outputs of its layers.
//
// A functional model has these tensors. A sequential one gets them on first use, by calling its layers on an input;
// they are its state.
#include "model/models/functional.h"
#include "model/models/host_part.h"
#include "model/models/model.h"

// ---- Layers -------------------------------------------------------------------------------------

typedef struct layer_list {
    mu_layer **items;
    size_t n, capacity;
} layer_list;

// In Keras's order, without inputs.
static mu_status list_layers(const mu_model *model, layer_list *out)
{
    mu_operation_list operations = {0};
    bool unknown;
    mu_status status = model->ops == &mu__functional_ops ? mu__model_operations(model, &operations, &unknown) : MU_OK;
    for (size_t i = 0; status == MU_OK && i < operations.n; i++)
        if (operations.items[i].layer)
            status = MU_PUSH(out, operations.items[i].layer);
    mu__free(operations.items);
    for (size_t i = 0; model->ops != &mu__functional_ops && status == MU_OK && i < model->sublayers.n; i++)
        if (model->sublayers.items[i]->ops != &mu__input_layer_ops)
            status = MU_PUSH(out, model->sublayers.items[i]);
    return status;
}

int mu_model_layer_count(const mu_model *model)
{
    layer_list list = {0};
    if (mu__need_model(model, "mu_model_layer_count") != MU_OK)
        return 0;
    const int n = list_layers(model, &list) == MU_OK ? (int)list.n : 0;
    mu__free(list.items);
    return n;
}

mu_layer *mu_model_layer_at(mu_model *model, int i)
{
    layer_list list = {0};
    mu_layer *layer = NULL;
    if (mu__pending() || mu__need_model(model, "mu_model_layer_at") != MU_OK)
        return NULL;
    if (list_layers(model, &list) == MU_OK) {
        const int n = (int)list.n;
        if (i >= -n && i < n)
            layer = list.items[i < 0 ? n + i : i];
        else
            mu__error(MU_OUT_OF_RANGE, "mu_model_layer_at: '%s' has %d layers, so there is no layer %d",
                      mu_layer_name(model), n, i);
    }
    mu__free(list.items);
    return layer;
}

// ---- Layer tensors ------------------------------------------------------------------------------

// The input of a sequential model, as a new layer tensor.
static mu_tensor *new_input(const mu_model *model)
{
    const mu_layer *first = model->sublayers.items[0];
    if (first->ops == &mu__input_layer_ops)
        return mu_input_with(first->args);
    mu_input_args args = {.size = sizeof args,
                          .dtype =
                              mu__host_input_dtype(model, mu__layer_takes_integers(model) ? MU_I32 : mu__floatx())};
    for (int d = 1; d < model->input.rank; d++)
        args.shape[d - 1] = model->input.dims[d];
    return mu_input_with(&args);
}

// A list with the input and the outputs of each layer but an input layer.
static mu_value *chain_layers(const mu_model *model)
{
    const mu_call_context context = {.training_left_out = true};
    struct {
        mu_value **items;
        size_t n, capacity;
    } values = {0};
    mu_tensor *input = new_input(model);
    mu_value *value = input ? mu_of(input) : NULL, *list = NULL;
    bool whole = value && MU_PUSH(&values, value) == MU_OK;
    for (size_t i = 0; whole && i < model->sublayers.n; i++)
        if (model->sublayers.items[i]->ops != &mu__input_layer_ops) {
            value = mu__layer_connect(model->sublayers.items[i], value, &context);
            whole = value && MU_PUSH(&values, value) == MU_OK;
        }
    if (whole)
        list = mu_list_of((int)values.n, values.items);
    mu__free(values.items);
    return list;
}

void mu__sequential_release(mu_layer *model) { mu_release(model->state); }

// The state of a sequential model; NULL on error.
static mu_value *chain_of(mu_model *model, const char *function)
{
    if (model->state)
        return model->state;
    if (!model->built) {
        mu__error(MU_FAILED_PRECONDITION,
                  "%s: the shape of the input of '%s' is not known yet; call mu_model_build, or let the model begin "
                  "with mu_input_layer",
                  function, mu_layer_name(model));
        return NULL;
    }
    mu_pool *pool = mu_pool_open();
    mu_scope_guard scope = mu_scope_open(model->strategy);
    mu_value *chain = pool ? chain_layers(model) : NULL;
    mu_scope_close(&scope);
    model->state = chain ? mu_retain(chain) : NULL;
    mu_pool_close(pool);
    return model->state;
}

static mu_tensor *leaf(const mu_value *value, int i, const mu_layer *of, const char *function, const char *what)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    const int n = value ? mu__value_flatten(value, leaves, MU_MAX_MODEL_INPUTS) : 0;
    if (value && i >= 0 && i < MU_MIN(n, MU_MAX_MODEL_INPUTS))
        return mu__give(mu_retain(leaves[i]));
    if (value)
        mu__error(MU_OUT_OF_RANGE, "%s: '%s' has %d %s%s, so there is no number %d", function, mu_layer_name(of), n,
                  what, n == 1 ? "" : "s", i);
    return NULL;
}

static bool is_usable(const mu_model *model, const char *function)
{
    if (mu__pending() || mu__need_model(model, function) != MU_OK)
        return false;
    if (model->ops != &mu__functional_ops && model->ops != &mu__sequential_ops)
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: the calls of '%s' are made in C, so it has no layer tensors; make such models with mu_model_new "
                  "or mu_sequential",
                  function, mu_layer_name(model));
    return !mu__pending();
}

mu_tensor *mu_model_input(mu_model *model, int i)
{
    static const char function[] = "mu_model_input";
    if (!is_usable(model, function))
        return NULL;
    const mu_functional *f = model->ops == &mu__functional_ops ? model->state : NULL;
    const mu_value *chain = f ? NULL : chain_of(model, function);
    return leaf(f ? f->inputs : chain ? chain->items[0] : NULL, i, model, function, "input");
}

mu_tensor *mu_model_output(mu_model *model, int i)
{
    static const char function[] = "mu_model_output";
    if (!is_usable(model, function))
        return NULL;
    const mu_functional *f = model->ops == &mu__functional_ops ? model->state : NULL;
    const mu_value *chain = f ? NULL : chain_of(model, function);
    return leaf(f ? f->outputs : chain ? chain->items[chain->n - 1] : NULL, i, model, function, "output");
}

// The output i of a call, as one of its layer tensors.
static mu_tensor *output_of(const mu_layer_call *call, int i)
{
    const int n = (int)call->graph->inputs.n;
    if (i >= 0 && i < n) {
        mu_node *node = call->graph->inputs.items[i];
        return mu__give(mu__tensor_symbolic(node, 0, &node->out[0], (mu_object *)(uintptr_t)&call->object));
    }
    mu__error(MU_OUT_OF_RANGE, "mu_model_layer_output: '%s' has %d output%s, so there is no number %d",
              mu_layer_name(call->layer), n, n == 1 ? "" : "s", i);
    return NULL;
}

mu_tensor *mu_model_layer_output(mu_model *model, const char *layer, int i)
{
    static const char function[] = "mu_model_layer_output";
    if (!is_usable(model, function))
        return NULL;
    mu_layer *found = mu_model_layer(model, layer);
    if (!found)
        return NULL;
    if (model->ops == &mu__functional_ops)
        return output_of(mu__nth_call(model->state, found, 0), i);
    const mu_value *chain = chain_of(model, function);
    for (int k = 0; chain && k < chain->n; k++) {
        mu_object *first = NULL;
        mu__value_flatten(chain->items[k], &first, 1);
        const mu_layer_call *call = first ? mu__call_of((mu_tensor *)first) : NULL;
        if (call && (call->layer == found || (k == 0 && found->ops == &mu__input_layer_ops)))
            return output_of(call, i);
    }
    return NULL;
}
