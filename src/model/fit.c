// compile, fit, evaluate, predict.
//
// The three steps are ordinary functions over the public interface, traced once and run on the replicas. Each batch is
// split among them. Losses are scaled by the total number of samples, so N replicas compute the same as one. Two steps
// are in progress at a time: while devices compute, the next batch is prepared.
#include "data/dataset.h"
#include "model/model.h"

#include <math.h>
#include <muster/ops.h>

#define MAX_LOGS 64

// ---- compile ------------------------------------------------------------------------------------

static void forget_compiled(mu_model *model)
{
    for (int i = 0; i < model->n_metrics; i++)
        mu_release(model->metrics[i]);
    mu__free(model->metrics);
    model->metrics = NULL;
    model->n_metrics = 0;
    mu_release(model->train_function);
    mu_release(model->test_function);
    mu_release(model->optimizer);
    mu_release(model->loss);
    model->train_function = model->test_function = NULL;
    model->optimizer = NULL;
    model->loss = NULL;
}

static mu_status keep_metrics(mu_model *model, mu_metric *const *metrics, int n)
{
    if (2 * (n + 1) > MAX_LOGS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: %d metrics; at most %d are supported", n, MAX_LOGS / 2 - 1);
    mu_metric *loss = mu_mean_metric("loss");
    model->metrics = loss ? mu__calloc((size_t)n + 1, sizeof *model->metrics) : NULL;
    if (!model->metrics)
        return mu_error_code();
    model->metrics[model->n_metrics++] = mu_retain(loss);
    for (int i = 0; i < n; i++)
        model->metrics[model->n_metrics++] = mu_retain(metrics[i]);
    return MU_OK;
}

static mu_value *train_step(mu_value *batch, void *arg);
static mu_value *test_step(mu_value *batch, void *arg);
static mu_value *predict_step(mu_value *batch, void *arg);

mu_status mu_compile_with(const mu_compile_args *given)
{
    mu_compile_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_compile"));
    if (!args.model || !args.loss)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: %s", args.model ? "give a loss" : "the model is NULL");
    MU_TRY(mu__model_need_idle(args.model, "mu_compile"));
    mu_model *model = args.model;
    mu_loss *loss = mu__loss_argument(args.loss, "mu_compile");
    mu_optimizer *optimizer = mu__pending() ? NULL : mu__optimizer_argument(args.optimizer, "mu_compile");
    mu_metric **metrics = NULL;
    int n = 0;
    if (mu__pending() || mu__metrics_argument(args.metrics, "mu_compile", &metrics, &n) != MU_OK)
        return mu_error_code();
    forget_compiled(model);
    const mu_status status = keep_metrics(model, metrics, n);
    mu__free(metrics);
    if (status != MU_OK)
        return status;
    model->loss = mu_retain(loss);
    model->optimizer = mu_retain(optimizer);
    model->train_function = mu_retain(mu_function_new(train_step, model));
    model->test_function = mu_retain(mu_function_new(test_step, model));
    return mu_error_code();
}

// ---- The steps ----------------------------------------------------------------------------------

// After a step: every metric's total and count on this replica.
static mu_value *metric_states(const mu_model *model)
{
    mu_value *items[2 * MAX_LOGS];
    for (int i = 0; i < model->n_metrics; i++) {
        mu_tensor *total = mu_variable_read(model->metrics[i]->total),
                  *count = mu_variable_read(model->metrics[i]->count);
        items[2 * i] = total ? mu_of(total) : NULL;
        items[2 * i + 1] = count ? mu_of(count) : NULL;
        if (!items[2 * i] || !items[2 * i + 1])
            return NULL;
    }
    return mu_list_of(2 * model->n_metrics, items);
}

static mu_status update_metrics(const mu_model *model, mu_tensor *losses, mu_tensor *penalty, mu_tensor *y_true,
                                mu_tensor *y_pred)
{
    mu_tensor *count = mu_cast(mu_dim_size(losses, MU_ALL_AXES), mu__floatx());
    mu_tensor *total = mu_reduce_sum(losses, MU_ALL_AXES);
    if (penalty)
        total = mu_add(total, mu_multiply(penalty, count));
    if (!total || mu__metric_add(model->metrics[0], total, count) != MU_OK)
        return mu_error_code();
    for (int i = 1; i < model->n_metrics; i++)
        MU_TRY(mu_metric_update(model->metrics[i], y_true, y_pred));
    return MU_OK;
}

static mu_status need_labels(const mu_value *batch)
{
    const int n = mu_value_count(batch);
    return n > 1 ? MU_OK
                 : mu__error(MU_INVALID_ARGUMENT, "an element of the dataset has %d part%s; expected a list of inputs "
                             "and labels", n, n == 1 ? "" : "s");
}

// Endless data needs a limit on the number of steps.
static mu_status need_end(const mu_dataset *dataset, int64_t steps, const char *function, const char *argument)
{
    return !dataset || steps > 0 || mu_dataset_cardinality(dataset) != MU_INFINITE
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: the dataset repeats for ever; say with .%s when to stop", function,
                           argument);
}

static mu_value *train_step(mu_value *batch, void *arg)
{
    mu_model *model = arg;
    if (need_labels(batch) != MU_OK)
        return NULL;
    mu_tensor *x = mu_at(batch, 0), *y_true = mu_at(batch, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y_pred = mu_call(model, x, .training = true);
    mu_tensor *losses = y_pred ? model->loss->call(model->loss, y_true, y_pred) : NULL;
    mu_tensor *loss = mu_compute_average_loss(losses), *penalty = mu__regularization(model);
    if (penalty)  // each replica adds its share, so that the sum includes it once
        loss = mu_add(loss, mu_divide(penalty, mu_constant(mu__floatx(), mu_replica_count())));
    mu_value *gradients = mu_gradients(tape, loss, mu_trainable_variables(model));
    mu_tape_close(tape);
    if (mu_apply_gradients(model->optimizer, gradients) != MU_OK ||
        update_metrics(model, losses, penalty, y_true, y_pred) != MU_OK)
        return NULL;
    return metric_states(model);
}

static mu_value *test_step(mu_value *batch, void *arg)
{
    mu_model *model = arg;
    if (need_labels(batch) != MU_OK)
        return NULL;
    mu_tensor *x = mu_at(batch, 0), *y_true = mu_at(batch, 1);
    mu_tensor *y_pred = mu_call(model, x);
    mu_tensor *losses = y_pred ? model->loss->call(model->loss, y_true, y_pred) : NULL;
    if (!losses || update_metrics(model, losses, mu__regularization(model), y_true, y_pred) != MU_OK)
        return NULL;
    return metric_states(model);
}

static mu_value *predict_step(mu_value *batch, void *arg)
{
    mu_tensor *y = mu_call((mu_model *)arg, mu_at(batch, 0));
    return y ? mu_of(y) : NULL;
}

// ---- One pass over data -------------------------------------------------------------------------

typedef struct pass {
    mu_model *model;
    mu_function *function;
    mu_iterator *iterator;         // over the replicas' parts of batches
    int64_t limit;                 // steps; -1: until the data ends
    bool training;
    mu_progress *progress;         // NULL: nothing is shown
    mu_callback *const *callbacks;
    bool in_step;                  // a callback runs after every batch, so only one step may be in progress
    bool *told_of_nan;             // for one warning per call of fit or evaluate; NULL: no metrics
    int epoch;
    // results
    int64_t steps, samples;
    double input_before;           // the devices' waiting time for input at the start, in seconds
    mu_value *unread;              // totals and counts after the last step, until they are read
    int64_t read_before;           // step after which they were last read; 0: none
    const char *names[MAX_LOGS];
    double values[MAX_LOGS];
    mu_tensor **outputs;           // predict: the outputs of every batch, in order
    size_t n_outputs, outputs_capacity;
} pass;

static mu_logs pass_logs(const pass *p)
{
    return (mu_logs){.model = p->model, .epoch = p->epoch, .step = p->steps, .n = p->model->n_metrics,
                     .names = p->names, .values = p->values};
}

static double on_replica(const mu_value *value, int r)
{
    return mu_scalar(value->kind == MU_VALUE_PER_REPLICA ? value->items[r] : value);
}

// A NaN stays in all later sums, so only the first step with one is reported.
static void warn_of_nan(pass *p)
{
    const mu_strategy *strategy = p->model->strategy;
    int i = 0;
    while (i < p->model->n_metrics && isfinite(p->values[i]))
        i++;
    if (i == p->model->n_metrics || *p->told_of_nan || !mu_strategy_should_checkpoint(strategy))
        return;
    *p->told_of_nan = true;
    if (p->progress)
        mu__progress_abandon(p->progress);
    const bool every_step = p->read_before == p->steps - 1;
    mu__log(MU_LOG_WARNING,
            "%s: '%s' became %s %s step %lld of epoch %d%s. Look for such numbers in the data, or lower the learning "
            "rate "
            "or clip the gradients (.global_clipnorm of the optimizer)",
            p->model->use->function, p->names[i], isnan(p->values[i]) ? "nan" : "infinite",
            every_step ? "in" : "before or in",
            (long long)p->steps, p->epoch + 1, p->training ? "" : " of the measured data");
}

static mu_status read_metrics(pass *p)
{
    const mu_value *states = p->unread;
    mu_strategy *strategy = p->model->strategy;
    const int n = 2 * p->model->n_metrics;
    double sums[2 * MAX_LOGS], *parts = mu__calloc((size_t)strategy->n_local * (size_t)n, sizeof *parts);
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    for (int r = 0; r < strategy->n_local; r++)
        for (int i = 0; i < n; i++)
            parts[r * n + i] = on_replica(states->items[i], r);
    const mu_status status = mu__workers_sum(strategy, "metrics", n, parts, sums);
    mu__free(parts);
    for (int i = 0; status == MU_OK && i < p->model->n_metrics; i++) {
        p->names[i] = p->model->metrics[i]->name;
        p->values[i] = sums[2 * i + 1] > 0 ? sums[2 * i] / sums[2 * i + 1] : sums[2 * i];
    }
    mu_release(p->unread);
    p->unread = NULL;
    if (status == MU_OK)
        warn_of_nan(p);
    p->read_before = p->steps;
    return status;
}

// Workers sum their metrics only when needed: callbacks at each step, the chief's progress bar from time to time. The
// progress bar's request travels with the agreement on the next batch, so that all workers do the same.
static bool values_are_due(const pass *p)
{
    return p->in_step || p->model->strategy->progress_agreed;
}

static void note_input(pass *p)
{
    if (!p->progress)
        return;
    const double elapsed = (double)(mu__now_ns() - p->progress->begin_ns) / 1e9;
    p->progress->input_share = (mu__strategy_input_seconds(p->model->strategy) - p->input_before) / elapsed;
}

static mu_status take_metrics(pass *p, mu_value *states)
{
    mu_release(p->unread);
    p->unread = mu_retain(states);
    if (p->progress)
        p->progress->step = p->steps;
    if (!values_are_due(p))
        return MU_OK;
    MU_TRY(read_metrics(p));
    note_input(p);
    if (p->progress)
        mu__progress_step(p->progress, p->steps, p->model->n_metrics, p->names, p->values);
    return MU_OK;
}

static mu_status keep_outputs(pass *p, mu_value *value)
{
    mu_value *whole = mu_strategy_gather(p->model->strategy, value, 0);
    mu_tensor *tensor = whole ? mu_value_tensor(whole) : NULL;
    if (!tensor)
        return mu_error_code();
    MU_TRY(mu__grow((void **)&p->outputs, &p->outputs_capacity, p->n_outputs + 1, sizeof *p->outputs));
    p->outputs[p->n_outputs++] = mu_retain(tensor);
    return MU_OK;
}

static void count_step(pass *p)
{
    p->steps++;
    if (p->training)
        p->model->use->position->step = p->steps;
}

static mu_status check_stop(const mu_strategy *strategy)
{
    return strategy->ops->cross_worker->check_stop(strategy);
}

static mu_status finish_step(pass *p, mu_running *running)
{
    mu_value *result = mu__run_wait(running);
    if (!result)
        return mu_error_code();
    count_step(p);
    if (p->function == p->model->predict_function)
        return keep_outputs(p, result);
    MU_TRY(take_metrics(p, result));
    if (p->training) {
        mu_logs logs = pass_logs(p);
        MU_TRY(mu__call_hooks(p->callbacks, MU_HOOK_BATCH_END, &logs));
    }
    return check_stop(p->model->strategy);
}

// Takes the next batch and starts its step; NULL at the end or on error.
static mu_running *start_step(pass *p)
{
    p->model->strategy->progress_due = p->progress && mu__progress_due(p->progress);
    mu_value *batch = mu_next(p->iterator);
    if (!batch)
        return NULL;
    p->samples += mu__distributed_rows(p->iterator);
    return mu__run_start(p->model->strategy, p->function, batch);
}

// An iterator over the local replicas' parts of a dataset's batches. Owned.
static mu_iterator *iterate_parts(const mu_model *model, mu_dataset *dataset)
{
    mu_distributed_dataset *parts = mu_distribute_dataset(model->strategy, dataset);
    return parts ? mu__distributed_iterate(parts) : NULL;
}

// With several workers only the chief shows the progress, unless the user asked for lines.
static mu_verbose verbose_on(const mu_model *model, mu_verbose verbose)
{
    return mu_strategy_should_checkpoint(model->strategy) || verbose == MU_VERBOSE_LINES ? verbose : MU_VERBOSE_SILENT;
}

static mu_status run_steps(pass *p)
{
    mu_running *before = NULL;
    mu_status status = check_stop(p->model->strategy);
    if (status != MU_OK)
        return status;
    for (int64_t started = p->steps;; started++) {
        mu_pool *pool = mu_pool_open();
        if (before && p->in_step) {
            status = finish_step(p, before);
            before = NULL;
        }
        bool more = pool && (p->limit < 0 || started < p->limit) && !(p->training && p->model->stop);
        mu_running *running = more && status == MU_OK ? start_step(p) : NULL;
        if (before)
            status = finish_step(p, before);
        before = running;
        mu_pool_close(pool);
        if (!running || status != MU_OK || mu__pending())
            break;
    }
    if (before) {  // the step in progress when another failed
        mu_error_value first;
        mu__error_move(&first);
        mu_pool *pool = mu_pool_open();
        if (mu__run_wait(before))
            count_step(p);
        mu_error_take();
        mu_pool_close(pool);
        mu__error_raise(&first);
    }
    return mu_error_code();
}

static mu_status run_pass(pass *p)
{
    const mu_cross_worker_ops *workers = p->model->strategy->ops->cross_worker;
    workers->hold_stop(true);
    p->input_before = mu__strategy_input_seconds(p->model->strategy);
    mu_status status = run_steps(p);
    if (status == MU_OK && p->unread)
        status = read_metrics(p);
    note_input(p);
    mu_release(p->unread);
    p->unread = NULL;
    workers->hold_stop(false);
    return status;
}

static mu_status reset_metrics(const mu_model *model)
{
    mu_pool *pool = mu_pool_open();
    mu_scope_guard scope = mu_scope_open(model->strategy);
    for (int i = 0; i < model->n_metrics && !mu__pending(); i++)
        mu_metric_reset(model->metrics[i]);
    mu_scope_close(&scope);
    mu_pool_close(pool);
    return mu_error_code();
}

// ---- evaluate and predict -----------------------------------------------------------------------

static mu_status need_compiled(const mu_model *model, const void *x, const char *function)
{
    if (!model || !x)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %s is NULL", function, model ? "the dataset" : "the model");
    return model->loss
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION, "%s: the model is not compiled; call mu_compile first", function);
}

static mu_status no_batches(const char *function)
{
    return mu__error(MU_INVALID_ARGUMENT, "%s: the dataset gave no batch", function);
}

// Evaluates a dataset; the pass then holds names and values.
static mu_status measure(pass *p, mu_dataset *dataset)
{
    MU_TRY(reset_metrics(p->model));
    p->function = p->model->test_function;
    p->iterator = iterate_parts(p->model, dataset);
    mu_status status = p->iterator ? run_pass(p) : mu_error_code();
    mu_release(p->iterator);
    p->iterator = NULL;
    if (status == MU_OK && p->steps == 0)
        return no_batches("mu_evaluate");
    return status;
}

static mu_status add_epoch(mu_history *history, const pass *train, const pass *validation)
{
    double values[2 * MAX_LOGS];
    char name[128];
    int n = 0;
    for (int i = 0; train && i < train->model->n_metrics; i++, n++) {
        values[n] = train->values[i];
        if (mu__history_name(history, train->names[i]) < 0)
            return mu_error_code();
    }
    for (int i = 0; validation && i < validation->model->n_metrics; i++, n++) {
        values[n] = validation->values[i];
        snprintf(name, sizeof name, "%s%s", train ? "val_" : "", validation->names[i]);
        if (mu__history_name(history, name) < 0)
            return mu_error_code();
    }
    return mu__history_add(history, n, values);
}

static mu_history *evaluate(const mu_evaluate_args *args, mu_dataset *data)
{
    mu_progress progress;
    bool told_of_nan = false;
    pass p = {.model = args->model, .limit = args->steps > 0 ? args->steps : -1, .progress = &progress,
              .told_of_nan = &told_of_nan};
    int64_t target = p.limit > 0 ? p.limit : mu_dataset_cardinality(data);
    int64_t begin = mu__now_ns();
    mu__progress_begin(&progress, verbose_on(args->model, args->verbose), 0, 0, target);
    if (measure(&p, data) != MU_OK) {
        mu__progress_abandon(&progress);
        return NULL;
    }
    mu__progress_end(&progress, p.steps, args->model->n_metrics, p.names, p.values);
    mu_history *history = mu__history_new();
    if (history && add_epoch(history, NULL, &p) == MU_OK) {
        history->seconds = (double)(mu__now_ns() - begin) / 1e9;
        history->samples = p.samples;
        return mu__give(history);
    }
    mu_release(history);
    return NULL;
}

mu_history *mu_evaluate_with(const mu_evaluate_args *given)
{
    mu_evaluate_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_evaluate") != MU_OK)
        return NULL;
    mu_dataset *data = mu__samples_dataset(&(mu_samples){args.x, args.y, args.batch_size, false}, "mu_evaluate");
    if (mu__pending() || mu__args_positive(&args, "steps", args.steps, "mu_evaluate") != MU_OK ||
        need_compiled(args.model, data, "mu_evaluate") != MU_OK ||
        need_end(data, args.steps, "mu_evaluate", "steps") != MU_OK)
        return NULL;
    mu_model_use use;
    if (mu__model_enter(args.model, &use, "mu_evaluate") != MU_OK)
        return NULL;
    mu_history *history = evaluate(&args, data);
    mu__model_leave(args.model);
    return history;
}
static mu_tensor *predict(const mu_evaluate_args *args, mu_dataset *data)
{
    mu_model *model = args->model;
    if (!model->predict_function)
        model->predict_function = mu_retain(mu_function_new(predict_step, model));
    pass p = {.model = model, .function = model->predict_function, .limit = args->steps > 0 ? args->steps : -1};
    p.iterator = iterate_parts(model, data);
    mu_status status = p.iterator ? run_pass(&p) : mu_error_code();
    mu_release(p.iterator);
    if (status == MU_OK && p.n_outputs == 0)
        status = no_batches("mu_predict");
    mu_tensor *all = status == MU_OK ? mu_concat((int)p.n_outputs, p.outputs, 0) : NULL;
    for (size_t i = 0; i < p.n_outputs; i++)
        mu_release(p.outputs[i]);
    mu__free(p.outputs);
    return all;
}

mu_tensor *mu_predict_with(const mu_evaluate_args *given)
{
    mu_evaluate_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_predict") != MU_OK)
        return NULL;
    mu_dataset *data = mu__samples_dataset(&(mu_samples){args.x, args.y, args.batch_size, false}, "mu_predict");
    if (mu__pending() || mu__args_positive(&args, "steps", args.steps, "mu_predict") != MU_OK)
        return NULL;
    if (!args.model || !data) {
        mu__error(MU_INVALID_ARGUMENT, "mu_predict: %s is NULL", args.model ? "the dataset" : "the model");
        return NULL;
    }
    if (need_end(data, args.steps, "mu_predict", "steps") != MU_OK)
        return NULL;
    mu_model_use use;
    if (mu__model_enter(args.model, &use, "mu_predict") != MU_OK)
        return NULL;
    mu_tensor *outputs = predict(&args, data);
    mu__model_leave(args.model);
    return outputs;
}
// ---- fit ----------------------------------------------------------------------------------------

typedef struct fitting {
    mu_fit_args args;
    mu_dataset *data, *validation;
    mu_callback **callbacks;  // ends with MU_END
    mu_history *history;
    mu_iterator *iterator;  // kept over epochs if steps_per_epoch is set
    mu_fit_position position;
    mu_progress progress;
    int64_t known_steps;    // steps of a complete epoch, if the dataset's length is unknown; 0: none yet
    bool told_of_nan;
} fitting;

// Opens an epoch's data: a new iteration, or the position where the last epoch or a restored run stopped.
static mu_status open_data(fitting *f)
{
    mu_fit_position *at = &f->position;
    if (!at->iterator) {
        mu_release(f->iterator);
        at->iterator = f->iterator = iterate_parts(f->args.model, f->data);
        if (f->iterator && at->restored)
            MU_TRY(mu_iterator_restore(f->iterator, at->restored));
        mu__free(at->restored);
        at->restored = NULL;
    }
    return f->iterator ? MU_OK : mu_error_code();
}

char *mu__fit_data_state(const mu_model *model)
{
    const mu_fit_position *at = model->use->position;
    mu_iterator *next = at->iterator ? mu_retain(at->iterator) : mu__dataset_iterate(at->data);
    const char *state = next ? mu_iterator_state(next) : NULL;
    char *copy = state ? mu__strdup(state) : NULL;
    mu_release(next);
    return copy;
}

static void warn_of_early_end(const pass *p)
{
    mu__log(MU_LOG_WARNING,
            "mu_fit: the data ended after %lld of %lld steps of epoch %d; repeat the dataset or give fewer "
            "steps_per_epoch",
            (long long)p->steps, (long long)p->limit, p->epoch + 1);
}

// A run restored within an epoch has values so far, and no further steps if all were done.
static mu_status read_restored(pass *p)
{
    for (int i = 0; i < p->model->n_metrics; i++) {
        p->names[i] = p->model->metrics[i]->name;
        p->values[i] = mu_metric_result(p->model->metrics[i]);
    }
    return mu_error_code();
}

static mu_status train_epoch(fitting *f, int epoch, pass *p)
{
    mu_model *model = f->args.model;
    int64_t limit = f->args.steps_per_epoch > 0 ? f->args.steps_per_epoch : -1;
    int64_t target = limit > 0 ? limit : mu_dataset_cardinality(f->data);
    if (target < 0)
        target = f->known_steps;
    *p = (pass){.model = model,
                .function = model->train_function,
                .limit = limit,
                .training = true,
                .progress = &f->progress,
                .callbacks = f->callbacks,
                .in_step = mu__watches_batches(f->callbacks),
                .told_of_nan = &f->told_of_nan,
                .epoch = epoch,
                .steps = f->position.step};
    MU_TRY(open_data(f));
    MU_TRY(p->steps == 0 ? reset_metrics(model) : read_restored(p));
    p->iterator = f->iterator;
    mu_logs logs = pass_logs(p);
    logs.n = 0;
    MU_TRY(mu__call_hooks(f->callbacks, MU_HOOK_EPOCH_BEGIN, &logs));
    mu__progress_begin(&f->progress, verbose_on(model, f->args.verbose), epoch + 1, f->args.epochs, target);
    int64_t begin = mu__now_ns();
    MU_TRY(run_pass(p));
    f->history->seconds += (double)(mu__now_ns() - begin) / 1e9;
    f->history->samples += p->samples;
    if (p->steps == 0 && epoch == f->args.initial_epoch)
        return no_batches("mu_fit");
    if (limit > 0 && p->steps < limit && !model->stop)
        warn_of_early_end(p);
    if (limit < 0 && !model->stop)
        f->known_steps = p->steps;
    return MU_OK;
}

// Ends an epoch with the values of training and validation together, for the progress bar and on_epoch_end.
static mu_status end_epoch(fitting *f, const pass *train, const pass *validation)
{
    static const char *const prefix = "val_";
    const char *names[2 * MAX_LOGS];
    double values[2 * MAX_LOGS];
    char val_names[MAX_LOGS][72];
    int n = 0;
    for (int i = 0; i < train->model->n_metrics; i++, n++) {
        names[n] = train->names[i];
        values[n] = train->values[i];
    }
    for (int i = 0; validation && i < validation->model->n_metrics; i++, n++) {
        snprintf(val_names[i], sizeof val_names[i], "%s%s", prefix, validation->names[i]);
        names[n] = val_names[i];
        values[n] = validation->values[i];
    }
    mu__progress_end(&f->progress, train->steps, n, names, values);
    MU_TRY(add_epoch(f->history, train, validation));
    mu_logs logs = pass_logs(train);
    logs.n = n;
    logs.names = names;
    logs.values = values;
    return mu__call_hooks(f->callbacks, MU_HOOK_EPOCH_END, &logs);
}

// Validation uses the metrics of training: if it is interrupted, their values are restored.
static void put_back_metrics(const pass *train)
{
    mu_error_value first;
    mu__error_move(&first);
    mu_pool *pool = mu_pool_open();
    mu_scope_guard scope = mu_scope_open(train->model->strategy);
    for (int i = 0; i < train->model->n_metrics; i++) {
        const mu_metric *metric = train->model->metrics[i];
        mu_variable_assign(metric->total, mu_constant(mu_variable_dtype(metric->total), train->values[i]));
        mu_variable_assign(metric->count, mu_constant(mu_variable_dtype(metric->count), 1));
    }
    mu_scope_close(&scope);
    mu_pool_close(pool);
    mu_error_take();
    mu__error_raise(&first);
}

static mu_status fit_epoch(fitting *f, int epoch)
{
    pass train,
        validation = {.model = f->args.model, .limit = f->args.validation_steps > 0 ? f->args.validation_steps : -1,
                      .epoch = epoch, .told_of_nan = &f->told_of_nan};
    MU_TRY(train_epoch(f, epoch, &train));
    if (train.steps == 0) {
        f->args.model->stop = true;
        return MU_OK;
    }
    if (f->validation && measure(&validation, f->validation) != MU_OK) {
        put_back_metrics(&train);
        return mu_error_code();
    }
    f->position.epoch = epoch + 1;
    f->position.step = 0;
    if (f->args.steps_per_epoch <= 0)
        f->position.iterator = NULL;
    return end_epoch(f, &train, f->validation ? &validation : NULL);
}

// After a signal ended fit, callbacks save backups. Their failures are reported; the exit code stays the signal's.
static void call_interrupt_hooks(fitting *f)
{
    mu_error_value first;
    mu__error_move(&first);
    const mu_logs logs = {.model = f->args.model, .epoch = f->position.epoch, .step = f->position.step};
    for (int i = 0; f->callbacks && (const void *)f->callbacks[i] != MU_END; i++) {
        const mu_callback *callback = f->callbacks[i];
        if (callback && callback->on_interrupt && callback->on_interrupt(&logs, callback->hooks.arg) != MU_OK) {
            mu_error_value error;
            mu__error_move(&error);
            mu__log(MU_LOG_ERROR, "mu_fit was stopped, and its state could not be saved: %s", error.message);
        }
    }
    mu__error_raise(&first);
}

static mu_status check_fit(const fitting *f)
{
    const mu_fit_args *args = &f->args;
    MU_TRY(need_compiled(args->model, f->data, "mu_fit"));
    if (!args->model->optimizer)
        return mu__error(MU_FAILED_PRECONDITION, "mu_fit: the model was compiled without an optimizer");
    if (args->epochs < 0 || args->initial_epoch < 0 || args->steps_per_epoch < 0 || args->validation_steps < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_fit: epochs %d, initial_epoch %d, steps_per_epoch %lld, validation_steps %lld; "
                         "none may be negative",
                         args->epochs, args->initial_epoch, (long long)args->steps_per_epoch,
                         (long long)args->validation_steps);
    MU_TRY(mu__args_positive(args, "steps_per_epoch", args->steps_per_epoch, "mu_fit"));
    MU_TRY(mu__args_positive(args, "validation_steps", args->validation_steps, "mu_fit"));
    MU_TRY(mu__check_callbacks(f->callbacks, args->model, f->validation != NULL));
    MU_TRY(need_end(f->validation, args->validation_steps, "mu_fit", "validation_steps"));
    return need_end(f->data, args->steps_per_epoch, "mu_fit", "steps_per_epoch");
}

static mu_status fit(fitting *f)
{
    mu_model *model = f->args.model;
    model->strategy->ops->cross_worker->hold_stop(true);
    model->stop = false;
    model->use->position = &f->position;
    f->position.epoch = f->args.initial_epoch;
    f->position.data = f->data;
    mu_logs logs = {.model = model};
    mu_status status = mu__call_hooks(f->callbacks, MU_HOOK_TRAIN_BEGIN, &logs);
    for (int epoch = f->position.epoch; status == MU_OK && epoch < f->args.epochs && !model->stop; epoch++)
        status = fit_epoch(f, epoch);
    if (status == MU_OK)
        status = mu__call_hooks(f->callbacks, MU_HOOK_TRAIN_END, &logs);
    else
        mu__progress_abandon(&f->progress);
    if (status == MU_CANCELLED && mu__stop_signal() != 0)
        call_interrupt_hooks(f);
    model->strategy->ops->cross_worker->hold_stop(false);
    return status;
}

// Makes datasets and callbacks of the arguments.
static mu_status resolve(fitting *f)
{
    const mu_fit_args *args = &f->args;
    const mu_samples samples = {args->x, args->y, args->batch_size, !args->no_shuffle};
    f->data = mu__samples_dataset(&samples, "mu_fit");
    if (mu__pending())
        return mu_error_code();
    const bool batched = mu__is(args->validation_data, &mu__dataset_type);
    const mu_samples validation = {.x = args->validation_data, .batch_size = batched ? 0 : args->batch_size};
    f->validation = mu__samples_dataset(&validation, "mu_fit");
    return mu__pending() ? mu_error_code() : mu__callbacks_argument(args->callbacks, "mu_fit", &f->callbacks);
}

mu_history *mu_fit_with(const mu_fit_args *given)
{
    fitting f = {0};
    mu_model_use use;
    if (mu__pending() || mu__args_copy(&f.args, sizeof f.args, given, "mu_fit") != MU_OK)
        return NULL;
    f.args.epochs = MU_GIVEN(&f.args, epochs) ? f.args.epochs : 1;
    if (resolve(&f) != MU_OK || check_fit(&f) != MU_OK || mu__model_enter(f.args.model, &use, "mu_fit") != MU_OK) {
        mu__free(f.callbacks);
        return NULL;
    }
    f.history = mu__history_new();
    const mu_status status = f.history ? fit(&f) : mu_error_code();
    mu__model_leave(f.args.model);
    mu__free(f.position.restored);
    mu__free(f.callbacks);
    mu_release(f.iterator);
    if (status == MU_OK)
        return mu__give(f.history);
    mu_release(f.history);
    return NULL;
}
