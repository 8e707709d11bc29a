// The steps of fit, evaluate and predict: ordinary functions over the public interface, traced once and run on the
// replicas.
//
// Losses are scaled by the total number of samples, so N replicas compute the same as one. A step returns the state of
// every metric on this replica.
#include "distribute/aggregation.h"
#include "model/pass.h"

#include <muster/ops.h>

// An element of the data in its parts.
typedef struct example {
    mu_value *x, *y;       // inputs and labels, nests of tensors
    mu_tensor *weights;    // of the samples; NULL: none
} example;

static mu_status take_apart(mu_value *batch, example *out)
{
    const int n = mu_value_count(batch);
    if (n < 2)
        return mu__error(MU_INVALID_ARGUMENT, "an element of the dataset has %d part%s; expected a list of inputs "
                         "and labels", n, n == 1 ? "" : "s");
    *out = (example){.x = mu_value_at(batch, 0), .y = mu_value_at(batch, 1),
                     .weights = n > 2 ? mu_at(batch, 2) : NULL};
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
    tensors labels, outputs;
    mu_tensor *masks[MU_MAX_MODEL_INPUTS];  // of the outputs; NULL: none
    mu_tensor *loss;           // this replica's share
    mu_tensor *total, *count;  // for the mean loss
} forward;

static mu_status need_pairs(const mu_trainer *trainer, const forward *f)
{
    if (f->outputs.n != trainer->n_losses)
        return mu__error(MU_INVALID_ARGUMENT, "the model has %d outputs and was compiled with %d losses; give "
                         "mu_compile .losses with one for each output", f->outputs.n, trainer->n_losses);
    if (f->labels.n != f->outputs.n)
        return mu__error(MU_INVALID_ARGUMENT, "the data have %d labels for %d outputs of the model; give a list of "
                         "labels in the order of the outputs", f->labels.n, f->outputs.n);
    return MU_OK;
}

static mu_tensor *scaled(mu_tensor *x, double factor)
{
    return factor == 1 || !x ? x : mu_multiply(x, mu_constant(mu_tensor_dtype(x), factor));
}

static mu_tensor *plus(mu_tensor *sum, mu_tensor *x)
{
    return sum ? mu_add(sum, x) : x;
}

static mu_status add_losses(const mu_trainer *trainer, mu_tensor *weights, forward *f)
{
    for (int i = 0; i < f->outputs.n; i++) {
        const mu_loss_inputs in = {.y_true = f->labels.items[i], .y_pred = f->outputs.items[i], .weights = weights,
                                   .mask = f->masks[i]};
        mu_loss_share share;
        MU_TRY(mu__loss_share(trainer->losses[i], &in, &share));
        f->loss = plus(f->loss, scaled(share.share, trainer->loss_weights[i]));
        f->count = i == 0 ? share.count : f->count;
        if (i > 0)  // an output with a loss for each step counts as often as the first one
            share.total = mu_multiply(share.total, mu_divide_no_nan(f->count, share.count));
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
        mu_tensor *all = mu_replica_count() > 1 ? mu_all_reduce(MU_SUM, f->count) : mu__over_step(f->count);
        f->loss = mu_add(f->loss, mu_multiply(added, mu_divide_no_nan(f->count, all)));
        f->total = mu_add(f->total, mu_multiply(added, f->count));
    }
    return mu_error_code();
}

static mu_status run_forward(mu_model *model, const example *e, bool training, forward *f)
{
    const mu_call_context context = {.training = training};
    mu_value *mask = NULL;
    mu_value *outputs = mu__layer_call(model, e->x, &context, &mask);
    *f = (forward){0};
    if (!outputs)
        return mu_error_code();
    MU_TRY(tensors_of(outputs, "outputs", &f->outputs));
    MU_TRY(tensors_of(e->y, "labels", &f->labels));
    mu__mask_leaves(outputs, mask, f->masks, MU_MAX_MODEL_INPUTS);
    MU_TRY(need_pairs(model->trainer, f));
    MU_TRY(add_losses(model->trainer, e->weights, f));
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

// Adds the batch to the metrics; outputs and labels of each are those that it compares.
static mu_status update_metrics(const mu_model *model, const forward *f, mu_tensor *sample_weights)
{
    const mu_trainer *trainer = model->trainer;
    if (mu_metric_add(trainer->metrics[0], 0, f->total) != MU_OK ||
        mu_metric_add(trainer->metrics[0], 1, f->count) != MU_OK)
        return mu_error_code();
    for (int i = 1; i < trainer->n_metrics; i++) {
        const int k = trainer->metric_outputs[i];
        if (k >= f->outputs.n)
            return mu__error(MU_INVALID_ARGUMENT, "metric '%s' compares output %d of a model that has %d",
                             mu_metric_name(trainer->metrics[i]), k, f->outputs.n);
        mu_tensor *weights = weights_of(trainer, i, f->masks[k], sample_weights);
        MU_TRY(mu_metric_update_weighted(trainer->metrics[i], f->labels.items[k], f->outputs.items[k], weights));
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
    struct { mu_value **items; size_t n, capacity; } list = {0};
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

// Adds a batch to the metrics and returns the result of the step.
static mu_value *measured(const mu_model *model, const forward *f, mu_tensor *weights)
{
    collect(model, true);
    mu_value *states = update_metrics(model, f, weights) == MU_OK ? mu__metric_states(model->trainer) : NULL;
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
                             : mu__error(MU_INVALID_ARGUMENT, "mu_compile: the step of '%s' returned NULL without an "
                                         "error; return its loss, or NULL after mu_fail(code, reason)",
                                         mu_layer_name(model));
    if (mu_tensor_rank(loss) != 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: the step of '%s' returned a tensor of rank %d; return the "
                         "mean loss, a scalar", mu_layer_name(model), mu_tensor_rank(loss));
    MU_TRY(tensors_of(batch, "tensors in a batch", &all));
    mu_tensor *rows = mu_cast(mu_dim_size(all.items[0], 0), mu__floatx());
    mu_tensor *total = mu_multiply(mu_cast(loss, mu__floatx()), rows);
    MU_TRY(total ? mu_metric_add(mean, 0, total) : mu_error_code());
    return mu_metric_add(mean, 1, rows);
}

static mu_value *own_step(mu_model *model, mu_value *batch,
                          mu_tensor *(*step)(mu_model *model, mu_value *batch, void *arg))
{
    collect(model, true);
    mu_tensor *loss = step(model, batch, model->trainer->step_arg);
    mu_value *states = add_own_loss(model, batch, loss) == MU_OK ? mu__metric_states(model->trainer) : NULL;
    collect(model, false);
    return states;
}

mu_value *mu__train_step(mu_value *batch, void *arg)
{
    mu_model *model = arg;
    if (model->trainer->train_step)
        return own_step(model, batch, model->trainer->train_step);
    example e;
    forward f;
    if (take_apart(batch, &e) != MU_OK)
        return NULL;
    mu_tape *tape = mu_tape_open();
    mu_status status = run_forward(model, &e, true, &f);
    mu_tensor *scaled_loss = status == MU_OK ? mu_scale_loss(model->trainer->optimizer, f.loss) : NULL;
    mu_value *gradients = mu_gradients(tape, scaled_loss, mu_trainable_variables(model));
    mu_tape_close(tape);
    return mu_apply_gradients(model->trainer->optimizer, gradients) == MU_OK ? measured(model, &f, e.weights) : NULL;
}

mu_value *mu__test_step(mu_value *batch, void *arg)
{
    mu_model *model = arg;
    if (model->trainer->test_step)
        return own_step(model, batch, model->trainer->test_step);
    example e;
    forward f;
    if (take_apart(batch, &e) != MU_OK || run_forward(model, &e, false, &f) != MU_OK)
        return NULL;
    return measured(model, &f, e.weights);
}

mu_value *mu__predict_step(mu_value *batch, void *model)
{
    const mu_call_context context = {0};
    mu_value *inputs = mu_value_at(batch, 0);
    return inputs ? mu__layer_call(model, inputs, &context, NULL) : NULL;
}
