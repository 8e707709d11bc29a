// Losses that layers add to that of the model: mu_layer_add_loss, activity regularizers, penalties on weights.
//
// Those of a call are in a list of the thread that made the call, because replicas call one layer at the same time. The
// list belongs to the pool in which the first of them was added, like the tensors themselves.
#include "model/core/losses_added.h"
#include "model/models/model.h"

#include <muster/ops.h>

typedef struct layer_loss {
    const mu_layer *layer;
    mu_tensor *loss; // retained
    bool activity;   // a penalty on an output
} layer_loss;

typedef struct added_list {
    mu_object object;
    struct {
        layer_loss *items;
        size_t n, capacity;
    } losses;
} added_list;

static void destroy_list(void *object)
{
    added_list *list = object;
    for (size_t i = 0; i < list->losses.n; i++)
        mu_release(list->losses.items[i].loss);
    mu__free(list->losses.items);
    if (mu__context()->added_losses == list)
        mu__context()->added_losses = NULL;
}

static mu_type list_type = {.name = "added losses", .destroy = destroy_list};

static mu_status add(const mu_layer *layer, mu_tensor *loss, bool activity)
{
    added_list *list = mu__context()->added_losses;
    if (!list && !(list = mu__context()->added_losses = mu__give(mu__new(&list_type, sizeof *list))))
        return mu_error_code();
    MU_TRY(MU_PUSH(&list->losses, ((layer_loss){layer, loss, activity})));
    mu_retain(loss);
    return MU_OK;
}

static bool is_in(const mu_layer *layer, const mu_layer *whole)
{
    bool found = layer == whole;
    for (size_t i = 0; !found && i < whole->sublayers.n; i++)
        found = is_in(layer, whole->sublayers.items[i]);
    return found;
}

void mu__losses_begin(const mu_layer *layer)
{
    added_list *list = mu__context()->added_losses;
    size_t kept = 0;
    for (size_t i = 0; list && i < list->losses.n; i++)
        if (is_in(list->losses.items[i].layer, layer))
            mu_release(list->losses.items[i].loss);
        else
            list->losses.items[kept++] = list->losses.items[i];
    if (list)
        list->losses.n = kept;
}

// The penalty on an output, for each sample.
static mu_tensor *activity_of(const mu_layer *layer, mu_tensor *output)
{
    mu_tensor *loss = mu__weight_option_apply(&layer->activity->option, output);
    if (!loss || mu_tensor_rank(output) == 0)
        return loss;
    return mu_divide_no_nan(loss, mu_cast(mu_dim_size(output, 0), mu_tensor_dtype(loss)));
}

mu_status mu__losses_activity(mu_layer *layer, const mu_value *outputs)
{
    const int n = mu__value_flatten(outputs, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_status status = leaves ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (leaves)
        mu__value_flatten(outputs, leaves, n);
    for (int i = 0; status == MU_OK && i < n; i++) {
        mu_tensor *loss = activity_of(layer, (mu_tensor *)leaves[i]);
        status = loss ? add(layer, loss, true) : mu_error_code();
    }
    mu__free(leaves);
    return status;
}

size_t mu__losses_count(void)
{
    const added_list *list = mu__context()->added_losses;
    return list ? list->losses.n : 0;
}

mu_status mu__losses_times(size_t first, mu_tensor *steps)
{
    added_list *list = mu__context()->added_losses;
    for (size_t i = first; list && i < list->losses.n; i++) {
        layer_loss *added = &list->losses.items[i];
        mu_tensor *all =
            added->activity ? mu_multiply(added->loss, mu_cast(steps, mu_tensor_dtype(added->loss))) : NULL;
        if (!all)
            continue;
        mu_release(added->loss);
        added->loss = mu_retain(all);
    }
    return mu_error_code();
}

mu_status mu_layer_add_loss(mu_layer *layer, mu_tensor *loss)
{
    char text[MU_SHAPE_TEXT];
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_layer_add_loss: the layer"));
    MU_TRY(mu__need(loss, "mu_layer_add_loss: the loss"));
    if (mu_tensor_rank(loss) != 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_layer_add_loss: the loss of layer '%s' has shape %s; it must be a scalar, such as its "
                         "mean (mu_reduce_mean)",
                         mu_layer_name(layer), mu__shape_text(&loss->shape, text));
    return add(layer, mu_cast(loss, mu__floatx()), false);
}

// ---- All of a model -----------------------------------------------------------------------------

typedef struct loss_list {
    mu_tensor **items; // borrowed
    size_t n, capacity;
} loss_list;

static mu_status collect_added(const mu_model *model, loss_list *out)
{
    const added_list *list = mu__context()->added_losses;
    for (size_t i = 0; list && i < list->losses.n; i++)
        if (is_in(list->losses.items[i].layer, model))
            MU_TRY(MU_PUSH(out, list->losses.items[i].loss));
    return MU_OK;
}

// Whether a weight has a penalty that is not among those of the variables in `seen`.
static bool is_penalized(const mu_layer *layer, const mu_weight *weight, const mu_variable_list *seen)
{
    if (!weight->regularizer || layer->frozen || !mu_variable_is_trainable(weight->variable))
        return false;
    for (size_t i = 0; i < seen->n; i++)
        if (seen->items[i] == weight->variable)
            return false;
    return true;
}

// A layer may be part of several models within this one, and its weights have one penalty.
static mu_status collect_penalties(const mu_layer *layer, mu_variable_list *seen, loss_list *out)
{
    for (size_t i = 0; i < layer->weights.n; i++) {
        const mu_weight *weight = &layer->weights.items[i];
        if (!is_penalized(layer, weight, seen))
            continue;
        MU_TRY(MU_PUSH(seen, weight->variable));
        mu_tensor *penalty = mu__weight_option_apply(&weight->regularizer->option, mu_variable_read(weight->variable));
        MU_TRY(penalty ? MU_PUSH(out, penalty) : mu_error_code());
    }
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(collect_penalties(layer->sublayers.items[i], seen, out));
    return MU_OK;
}

static mu_status collect_all_penalties(const mu_model *model, loss_list *out)
{
    mu_variable_list seen = {0};
    const mu_status status = model->frozen ? MU_OK : collect_penalties(model, &seen, out);
    mu__free(seen.items);
    return status;
}

static mu_tensor *sum_of(const loss_list *list)
{
    mu_tensor *sum = NULL;
    for (size_t i = 0; i < list->n; i++)
        sum = sum ? mu_add(sum, list->items[i]) : list->items[i];
    return sum;
}

mu_status mu__added_losses(const mu_model *model, mu_tensor **added, mu_tensor **penalty)
{
    loss_list calls = {0}, weights = {0};
    if (collect_added(model, &calls) == MU_OK && collect_all_penalties(model, &weights) == MU_OK) {
        *added = sum_of(&calls);
        *penalty = sum_of(&weights);
    }
    mu__free(calls.items);
    mu__free(weights.items);
    return mu_error_code();
}

mu_value *mu_model_losses(mu_model *model)
{
    loss_list list = {0};
    mu_value *losses = NULL;
    if (mu__pending() || mu__need(model, "mu_model_losses: the model") != MU_OK)
        return NULL;
    mu_value **values = NULL;
    if (collect_added(model, &list) == MU_OK && collect_all_penalties(model, &list) == MU_OK &&
        (values = mu__calloc(list.n + 1, sizeof *values))) {
        for (size_t i = 0; i < list.n; i++)
            values[i] = mu_of(list.items[i]);
        losses = mu_list_of((int)list.n, values);
    }
    mu__free(values);
    mu__free(list.items);
    return losses;
}
