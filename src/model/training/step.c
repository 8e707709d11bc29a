// The steps of fit, evaluate and predict: ordinary functions over the public interface, traced once and run on the
// replicas.
//
// Losses are scaled by the total number of samples, so N replicas compute the same as one. A step returns the state of
// every metric on this replica.
#include "distribute/servers/aggregation.h"
#include "model/core/names.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "model/models/host_part.h"
#include "model/models/model.h"
#include "model/training/training.h"

#include <muster/ops.h>

// An element of the data in its parts, nests of tensors: inputs, labels, and weights of the samples (NULL: none).
typedef struct example {
    mu_value *x, *y, *weights;
} example;

static mu_status take_apart(mu_value *batch, example *out)
{
    const int n = mu_value_count(batch);
    if (batch && mu_value_kind_of(batch) == MU_VALUE_MAP)
        return mu__error(MU_INVALID_ARGUMENT,
                         "an element of the dataset is a map, whose first key is '%s'; expected a list of inputs and "
                         "labels, each of which may be a map",
                         n > 0 ? mu_value_key(batch, 0) : "");
    if (n < 2)
        return mu__error(MU_INVALID_ARGUMENT,
                         "an element of the dataset has %d part%s; expected a list of inputs and labels. Beside inputs "
                         "in an array, give the labels as y",
                         n, n == 1 ? "" : "s");
    *out = (example){
        .x = mu_value_at(batch, 0), .y = mu_value_at(batch, 1), .weights = n > 2 ? mu_value_at(batch, 2) : NULL};
    return mu_error_code();
}

// The tensors of a nest, in order.
typedef struct tensors {
    int n;
    mu_tensor *items[MU_MAX_MODEL_INPUTS];
} tensors;

static mu_status tensors_of(const mu_value *nest, const char *what, tensors *out)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    out->n = mu__value_flatten(nest, leaves, MU_MAX_MODEL_INPUTS);
    if (out->n > MU_MAX_MODEL_INPUTS)
        return mu__error(MU_INVALID_ARGUMENT, "%d %s; at most %d are supported", out->n, what, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < out->n; i++)
        out->items[i] = (mu_tensor *)leaves[i];
    return MU_OK;
}

// A forward pass with its losses.
typedef struct forward {
    tensors outputs;
    mu_tensor *labels[MU_MAX_MODEL_INPUTS];                               // of each output; NULL: none
    mu_tensor *weights[MU_MAX_MODEL_INPUTS];                              // of the samples, for each output; NULL: none
    mu_tensor *masks[MU_MAX_MODEL_INPUTS];                                // of the outputs; NULL: none
    mu_tensor *loss;                                                      // this replica's share
    mu_tensor *total, *count;                                             // for the mean loss
    mu_tensor *totals[MU_MAX_MODEL_INPUTS], *counts[MU_MAX_MODEL_INPUTS]; // likewise of each output's loss
} forward;

// ---- Labels and weights of each output ----------------------------------------------------------

static mu_status by_name(const mu_name_list *names, const mu_value *map, const char *what, mu_tensor **out)
{
    int indices[MU_MAX_MODEL_INPUTS];
    MU_TRY(mu__indices_by_name(map, names, MU_NAMES_KNOWN, what, indices));
    for (size_t i = 0; i < names->n; i++)
        out[i] = indices[i] >= 0 ? mu_at(map, indices[i]) : NULL;
    return mu_error_code();
}

static mu_status need_names(const forward *f, const mu_name_list *names, const char *what)
{
    return (int)names->n == f->outputs.n ? MU_OK
                                         : mu__error(MU_INVALID_ARGUMENT,
                                                     "the %s are a map, and the names of the model's %d outputs are "
                                                     "not known; give a list in their order",
                                                     what, f->outputs.n);
}

static bool has_loss(const mu_trainer *trainer, int output) { return trainer->losses[output] != NULL; }

// Labels in order are those of all outputs, or of those that have a loss.
static mu_status labels_in_order(const mu_trainer *trainer, const mu_value *y, forward *f)
{
    tensors given;
    int n_losses = 0;
    MU_TRY(tensors_of(y, "labels", &given));
    for (int i = 0; i < trainer->n_losses; i++)
        n_losses += has_loss(trainer, i);
    if (given.n != f->outputs.n && given.n != n_losses)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the data have %d label%s for %d output%s of the model; give a list of labels in the order of "
                         "the outputs, or a map with their names as keys",
                         given.n, given.n == 1 ? "" : "s", f->outputs.n, f->outputs.n == 1 ? "" : "s");
    for (int i = 0, k = 0; i < f->outputs.n; i++)
        f->labels[i] = given.n == f->outputs.n || has_loss(trainer, i) ? given.items[k++] : NULL;
    return MU_OK;
}

static mu_status weights_in_order(const mu_value *weights, forward *f)
{
    tensors given;
    MU_TRY(tensors_of(weights, "sample weights", &given));
    if (given.n != 1 && given.n != f->outputs.n)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the data have %d tensors of sample weights for %d output%s of the model; give one for all, a "
                         "list in their order, or a map with their names as keys",
                         given.n, f->outputs.n, f->outputs.n == 1 ? "" : "s");
    for (int i = 0; i < f->outputs.n; i++)
        f->weights[i] = given.items[given.n == 1 ? 0 : i];
    return MU_OK;
}

static mu_status need_label(const mu_name_list *names, int output)
{
    return mu__error(
        MU_INVALID_ARGUMENT,
        "the data have no labels for the output '%s', which has a loss or a metric; give them under this key",
        (size_t)output < names->n ? names->items[output] : "?");
}

// Finds the label and the weights of each output.
static mu_status pair(const mu_trainer *trainer, const mu_value *outputs, const example *e, forward *f)
{
    mu_name_list keys = {0};
    if (f->outputs.n != trainer->n_losses)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the model has %d outputs and was compiled with %d losses; give mu_compile .loss = "
                         "MU_LOSSES(…) with one for each output",
                         f->outputs.n, trainer->n_losses);
    if (trainer->outputs.n == 0 && mu__is_flat_map(outputs))
        MU_TRY(mu__name_list_copy(&keys, (size_t)outputs->n, outputs->keys));
    const mu_name_list *names = trainer->outputs.n > 0 ? &trainer->outputs : &keys;
    const bool y_map = mu__is_flat_map(e->y), weight_map = e->weights && mu__is_flat_map(e->weights);
    mu_status status = y_map || weight_map ? need_names(f, names, y_map ? "labels" : "sample weights") : MU_OK;
    if (status == MU_OK)
        status = y_map ? by_name(names, e->y, "labels", f->labels) : labels_in_order(trainer, e->y, f);
    if (status == MU_OK && e->weights)
        status =
            weight_map ? by_name(names, e->weights, "sample weights", f->weights) : weights_in_order(e->weights, f);
    for (int i = 0; status == MU_OK && i < f->outputs.n; i++)
        if (has_loss(trainer, i) && !f->labels[i])
            status = need_label(names, i);
    mu__name_list_free(&keys);
    return status;
}

// ---- Losses -------------------------------------------------------------------------------------

static mu_tensor *scaled(mu_tensor *x, double factor)
{
    return factor == 1 || !x ? x : mu_multiply(x, mu_constant(mu_tensor_dtype(x), factor));
}

static mu_tensor *plus(mu_tensor *sum, mu_tensor *x) { return sum ? mu_add(sum, x) : x; }

static mu_status add_losses(const mu_trainer *trainer, forward *f)
{
    for (int i = 0; i < f->outputs.n; i++) {
        const mu_loss_inputs in = {
            .y_true = f->labels[i], .y_pred = f->outputs.items[i], .weights = f->weights[i], .mask = f->masks[i]};
        mu_loss_share share;
        if (!has_loss(trainer, i))
            continue;
        MU_TRY(mu__loss_share(trainer->losses[i], &in, &share));
        f->totals[i] = share.total;
        f->counts[i] = share.count;
        f->loss = plus(f->loss, scaled(share.share, trainer->loss_weights[i]));
        if (f->count) // an output with a loss for each step counts as often as the first one
            share.total = mu_multiply(share.total, mu_divide_no_nan(f->count, share.count));
        f->count = f->count ? f->count : share.count;
        f->total = plus(f->total, scaled(share.total, trainer->loss_weights[i]));
    }
    return mu_error_code();
}

// Adds the losses of layers. Each replica adds its share of the penalties on weights, so that the sum includes them
// once, and of what its call added, which is the mean of its samples.
static mu_status add_layer_losses(const mu_model *model, forward *f)
{
    mu_tensor *added, *penalty;
    MU_TRY(mu__added_losses(model, &added, &penalty));
    if (penalty) {
        f->loss = mu_add(f->loss, scaled(penalty, 1.0 / mu__step_shares()));
        f->total = mu_add(f->total, mu_multiply(penalty, f->count));
    }
    if (added) {
        // A replica without a row of the batch has the mean of nothing, which is NaN.
        mu_tensor *none = mu_zeros_like(added);
        added = mu_where(mu_greater(mu_cast(f->count, mu_tensor_dtype(added)), none), added, none);
        mu_tensor *all = mu_replica_count() > 1 ? mu_all_reduce(MU_SUM, f->count) : mu__over_step(f->count);
        f->loss = mu_add(f->loss, mu_multiply(added, mu_divide_no_nan(f->count, all)));
        f->total = mu_add(f->total, mu_multiply(added, f->count));
    }
    return mu_error_code();
}

// A model that is a function in C may return its outputs under their names in another order than mu_compile was given.
static mu_status order_by_name(const mu_name_list *names, const mu_value *outputs, forward *f)
{
    const forward as_returned = *f;
    int indices[MU_MAX_MODEL_INPUTS];
    if ((int)names->n != f->outputs.n || !mu__is_flat_map(outputs))
        return MU_OK;
    MU_TRY(mu__indices_by_name(outputs, names, MU_NAMES_ALL, "model's outputs", indices));
    for (int i = 0; i < f->outputs.n; i++) {
        f->outputs.items[i] = as_returned.outputs.items[indices[i]];
        f->masks[i] = as_returned.masks[indices[i]];
    }
    return MU_OK;
}

static mu_status run_forward(mu_model *model, const example *e, bool training, forward *f)
{
    const mu_call_context context = {.training = training};
    mu_value *mask = NULL;
    mu_value *outputs = mu__host_model_call(model, e->x, &context, &mask);
    *f = (forward){0};
    if (!outputs)
        return mu_error_code();
    MU_TRY(tensors_of(outputs, "outputs", &f->outputs));
    mu__mask_leaves(outputs, mask, f->masks, MU_MAX_MODEL_INPUTS);
    MU_TRY(order_by_name(&model->trainer->outputs, outputs, f));
    MU_TRY(pair(model->trainer, outputs, e, f));
    MU_TRY(add_losses(model->trainer, f));
    return add_layer_losses(model, f);
}

// What counts a metric's samples; NULL: each once.
static mu_tensor *weights_of(const mu_trainer *trainer, int metric, mu_tensor *mask, mu_tensor *weights)
{
    mu_tensor *valid = mask ? mu_cast(mask, mu__floatx()) : NULL;
    if (metric < trainer->first_weighted || !weights)
        return valid;
    return valid ? mu_multiply(mu__weights_like(weights, valid), valid) : weights;
}

static mu_status add_mean(mu_metric *mean, mu_tensor *total, mu_tensor *count)
{
    return mu_metric_add(mean, 0, total) == MU_OK ? mu_metric_add(mean, 1, count) : mu_error_code();
}

// Adds the batch to the metrics; outputs and labels of each are those that it compares.
static mu_status update_metrics(const mu_model *model, const forward *f)
{
    const mu_trainer *trainer = model->trainer;
    MU_TRY(add_mean(trainer->metrics[0], f->total, f->count));
    for (int i = 1; i < trainer->first_metric; i++) {
        const int k = trainer->metric_outputs[i];
        MU_TRY(add_mean(trainer->metrics[i], f->totals[k], f->counts[k]));
    }
    for (int i = trainer->first_metric; i < trainer->first_of_layers; i++) {
        const int k = trainer->metric_outputs[i];
        if (k >= f->outputs.n)
            return mu__error(MU_INVALID_ARGUMENT, "metric '%s' compares output %d of a model that has %d",
                             mu_metric_name(trainer->metrics[i]), k, f->outputs.n);
        if (!f->labels[k])
            return need_label(&trainer->outputs, k);
        mu_tensor *weights = weights_of(trainer, i, f->masks[k], f->weights[k]);
        MU_TRY(mu_metric_update_weighted(trainer->metrics[i], f->labels[k], f->outputs.items[k], weights));
    }
    return MU_OK;
}

// What a step on a worker has added to a state.
static mu_tensor *added(const mu_metric *metric, size_t k)
{
    const mu_shape *shape = &metric->states.items[k]->resource.spec.shape;
    return metric->added[k] ? metric->added[k] : mu_zeros(mu__floatx(), shape->rank, shape->dims);
}

// Every state of every metric on this replica, in order; of steps on workers what the step adds.
mu_value *mu__metric_states(const mu_trainer *trainer)
{
    struct {
        mu_value **items;
        size_t n, capacity;
    } list = {0};
    mu_value *states = NULL;
    mu_status status = MU_OK;
    for (int i = 0; i < trainer->n_metrics && status == MU_OK; i++)
        for (size_t k = 0; k < trainer->metrics[i]->states.n && status == MU_OK; k++) {
            const mu_metric *metric = trainer->metrics[i];
            mu_tensor *value = metric->collects ? added(metric, k) : mu_variable_read(metric->states.items[k]);
            mu_value *leaf = value ? mu_of(value) : NULL;
            status = leaf ? MU_PUSH(&list, leaf) : mu_error_code();
        }
    if (status == MU_OK)
        states = mu_list_of((int)list.n, list.items);
    mu__free(list.items);
    return states;
}

// Begins or ends a step that changes metrics. Workers change none: the coordinator adds up what their steps return.
static void collect(const mu_model *model, bool begins)
{
    const mu_trainer *trainer = model->trainer;
    const bool collects = begins && mu__step_runner(model) == &mu__worker_steps;
    for (int i = 0; i < trainer->n_metrics; i++) {
        trainer->metrics[i]->collects = collects;
        if (begins)
            memset(trainer->metrics[i]->added, 0, sizeof trainer->metrics[i]->added);
    }
}

// The metrics of layers that this step has built.
static mu_status find_metrics(mu_model *model)
{
    const int before = model->trainer->n_metrics;
    MU_TRY(mu__adopt_metrics(model));
    return model->trainer->n_metrics == before || mu__step_runner(model) != &mu__worker_steps
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION,
                           "layers of '%s' have metrics that they made in its first step, on a worker; call "
                           "mu_model_build before mu_fit",
                           mu_layer_name(model));
}

// Ends a step that began with collect(model, true), and returns its result.
static mu_value *result_of(mu_model *model, mu_status status)
{
    if (status == MU_OK)
        status = find_metrics(model);
    mu_value *states = status == MU_OK ? mu__metric_states(model->trainer) : NULL;
    collect(model, false);
    return states;
}

// Adds the loss that a step of the program's own returned, by the samples of the batch.
static mu_status add_own_loss(const mu_model *model, mu_value *batch, mu_tensor *loss)
{
    mu_metric *mean = model->trainer->metrics[0];
    tensors all;
    if (!loss)
        return mu__pending() ? mu_error_code()
                             : mu__error(MU_INVALID_ARGUMENT,
                                         "mu_compile: the step of '%s' returned NULL without an error; return its "
                                         "loss, or NULL after mu_fail(code, reason)",
                                         mu_layer_name(model));
    if (mu_tensor_rank(loss) != 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_compile: the step of '%s' returned a tensor of rank %d; return the mean loss, a scalar",
                         mu_layer_name(model), mu_tensor_rank(loss));
    MU_TRY(tensors_of(batch, "tensors in a batch", &all));
    mu_tensor *rows = mu_cast(mu_dim_size(all.items[0], 0), mu__floatx());
    // The mean of a replica without samples is NaN.
    mu_tensor *zero = mu_constant(mu__floatx(), 0), *total = mu_multiply(mu_cast(loss, mu__floatx()), rows);
    total = mu_where(mu_greater(rows, zero), total, zero);
    MU_TRY(total ? mu_metric_add(mean, 0, total) : mu_error_code());
    return mu_metric_add(mean, 1, rows);
}

static mu_value *own_step(mu_model *model, mu_value *batch,
                          mu_tensor *(*step)(mu_model *model, mu_value *batch, void *arg))
{
    mu_host_results results;
    batch = mu__host_step_begin(model, batch, &results);
    if (!batch)
        return NULL;
    collect(model, true);
    mu_tensor *loss = step(model, batch, model->trainer->step_arg);
    mu__host_step_end(&results);
    return result_of(model, add_own_loss(model, batch, loss));
}

// Keras warns too.
static void warn_of_frozen(mu_model *model, const mu_value *variables)
{
    if (variables && mu_value_count(variables) == 0 && !atomic_exchange(&model->trainer->warned_of_frozen, true))
        mu__log(MU_LOG_WARNING,
                "'%s' has no trainable weights, so training changes none; mu_layer_set_trainable(layer, true) lets a "
                "layer learn again",
                mu_layer_name(model));
}

static mu_status train_on(mu_model *model, const example *e)
{
    forward f;
    mu_tape *tape = mu_tape_open();
    mu_status status = run_forward(model, e, true, &f);
    mu_tensor *scaled_loss = status == MU_OK ? mu_scale_loss(model->trainer->optimizer, f.loss) : NULL;
    mu_value *variables = mu_trainable_variables(model), *gradients = mu_gradients(tape, scaled_loss, variables);
    mu_tape_close(tape);
    warn_of_frozen(model, variables);
    MU_TRY(mu_apply_gradients(model->trainer->optimizer, gradients));
    return update_metrics(model, &f);
}

mu_value *mu__loss_step(mu_value *batch, void *model)
{
    example e;
    forward f;
    if (take_apart(batch, &e) != MU_OK || run_forward(model, &e, false, &f) != MU_OK)
        return NULL;
    return f.loss ? mu_of(f.loss) : e.y;
}

static mu_status test_on(mu_model *model, const example *e)
{
    forward f;
    MU_TRY(run_forward(model, e, false, &f));
    return update_metrics(model, &f);
}

static mu_value *fit_step(mu_model *model, mu_value *batch, mu_status (*step)(mu_model *model, const example *e))
{
    example e;
    if (take_apart(batch, &e) != MU_OK)
        return NULL;
    collect(model, true);
    return result_of(model, step(model, &e));
}

mu_value *mu__train_step(mu_value *batch, void *arg)
{
    mu_model *model = arg;
    return model->trainer->train_step ? own_step(model, batch, model->trainer->train_step)
                                      : fit_step(model, batch, train_on);
}

mu_value *mu__test_step(mu_value *batch, void *arg)
{
    mu_model *model = arg;
    return model->trainer->test_step ? own_step(model, batch, model->trainer->test_step)
                                     : fit_step(model, batch, test_on);
}

mu_value *mu__predict_step(mu_value *batch, void *model)
{
    const mu_call_context context = {0};
    mu_value *inputs = mu_value_kind_of(batch) == MU_VALUE_MAP ? batch : mu_value_at(batch, 0);
    return inputs ? mu__host_model_call(model, inputs, &context, NULL) : NULL;
}
