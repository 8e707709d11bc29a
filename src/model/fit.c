// fit, evaluate, predict.
//
// The steps (step.c) are traced once and run on the replicas; each batch is split among them. Two steps are in progress
// at a time: while devices compute, the next batch is prepared.
#include "data/dataset.h"
#include "model/model.h"

#include <math.h>
#include <muster/ops.h>
#include <muster/parameter_server.h>

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
    mu_value *unread;              // the metrics' states after the last step, until they are read
    double *sums;                  // the states as they were last read, summed over replicas; owned
    int64_t read_before;           // step after which they were last read; 0: none
    const char *names[MU_MAX_LOGS];
    double values[MU_MAX_LOGS];
    mu_tensor **outputs;           // predict: the outputs of every batch, in order
    size_t n_outputs, outputs_capacity;
} pass;

// The hooks of a kind of pass.
typedef struct pass_hooks {
    mu_hook batch_begin, batch_end;
} pass_hooks;

static pass_hooks hooks_of(const pass *p)
{
    const mu_trainer *trainer = p->model->trainer;
    if (p->training)
        return (pass_hooks){MU_HOOK_BATCH_BEGIN, MU_HOOK_BATCH_END};
    return p->function == trainer->predict_function
               ? (pass_hooks){MU_HOOK_PREDICT_BATCH_BEGIN, MU_HOOK_PREDICT_BATCH_END}
               : (pass_hooks){MU_HOOK_TEST_BATCH_BEGIN, MU_HOOK_TEST_BATCH_END};
}

static mu_logs pass_logs(const pass *p)
{
    return (mu_logs){.model = p->model, .epoch = p->epoch, .step = p->steps, .n = p->model->trainer->n_metrics,
                     .names = p->names, .values = p->values};
}

// Writes the numbers of a state on replica r; returns how many there are.
static int64_t on_replica(const mu_value *value, int r, double *out)
{
    const mu_value *own = value->kind == MU_VALUE_PER_REPLICA ? value->items[r] : value;
    const mu_tensor *state = mu_value_tensor(own);
    const int64_t n = state ? mu_tensor_elements(state) : 0;
    const void *data = state ? mu_tensor_data(state) : NULL;
    for (int64_t i = 0; data && i < n; i++)
        out[i] = mu__read_element(state->dtype, data, i);
    return n;
}

static int64_t count_numbers(const mu_trainer *trainer)
{
    int64_t n = 0;
    for (int i = 0; i < trainer->n_metrics; i++)
        n += mu__metric_numbers(trainer->metrics[i]);
    return n;
}

static mu_status need_sums(pass *p)
{
    if (!p->sums)
        p->sums = mu__calloc((size_t)count_numbers(p->model->trainer) + 1, sizeof *p->sums);
    return p->sums ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void forget_sums(pass *p)
{
    mu__free(p->sums);
    p->sums = NULL;
}

static void compute_values(pass *p)
{
    const double *sums = p->sums;
    for (int i = 0; i < p->model->trainer->n_metrics; i++) {
        const mu_metric *metric = p->model->trainer->metrics[i];
        p->names[i] = metric->name;
        p->values[i] = mu__metric_value(metric, sums);
        sums += mu__metric_numbers(metric);
    }
}

// A NaN stays in all later sums, so only the first step with one is reported.
static void warn_of_nan(pass *p)
{
    const mu_strategy *strategy = p->model->strategy;
    int i = 0;
    while (i < p->model->trainer->n_metrics && isfinite(p->values[i]))
        i++;
    if (i == p->model->trainer->n_metrics || *p->told_of_nan || !mu_strategy_should_checkpoint(strategy))
        return;
    *p->told_of_nan = true;
    if (p->progress)
        mu__progress_abandon(p->progress);
    const bool every_step = p->read_before == p->steps - 1;
    mu__log(MU_LOG_WARNING,
            "%s: '%s' became %s %s step %lld of epoch %d%s. Look for such numbers in the data, or lower the learning "
            "rate "
            "or clip the gradients (.global_clipnorm of the optimizer)",
            p->model->trainer->use->function, p->names[i], isnan(p->values[i]) ? "nan" : "infinite",
            every_step ? "in" : "before or in",
            (long long)p->steps, p->epoch + 1, p->training ? "" : " of the measured data");
}

static mu_status read_metrics(pass *p)
{
    mu_strategy *strategy = p->model->strategy;
    const int64_t n = count_numbers(p->model->trainer);
    forget_sums(p);  // of a restored epoch, before metrics knew the number of columns
    MU_TRY(need_sums(p));
    double *parts = mu__calloc((size_t)(strategy->n_local * n) + 1, sizeof *parts);
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    for (int r = 0; r < strategy->n_local; r++)
        for (int64_t i = 0, at = r * n; i < p->unread->n; i++)
            at += on_replica(p->unread->items[i], r, parts + at);
    const mu_status status = mu__workers_sum(strategy, "metrics", (int)n, parts, p->sums);
    mu__free(parts);
    if (status == MU_OK)
        compute_values(p);
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
        mu__progress_step(p->progress, p->steps, p->model->trainer->n_metrics, p->names, p->values);
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
        p->model->trainer->use->position->step = p->steps;
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
    mu_logs logs = pass_logs(p);
    if (p->function == p->model->trainer->predict_function) {
        logs.n = 0;
        MU_TRY(keep_outputs(p, result));
        return mu__call_hooks(p->callbacks, MU_HOOK_PREDICT_BATCH_END, &logs);
    }
    MU_TRY(take_metrics(p, result));
    MU_TRY(mu__call_hooks(p->callbacks, hooks_of(p).batch_end, &logs));
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
    mu_logs logs = pass_logs(p);
    logs.n = 0;
    if (mu__call_hooks(p->callbacks, hooks_of(p).batch_begin, &logs) != MU_OK)
        return NULL;
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

// Steps that were started and not yet finished, the oldest first.
enum { MOST_STARTED = 64 };
typedef struct steps_under_way {
    mu_running *items[MOST_STARTED];
    int n;
} steps_under_way;

static mu_running *take_oldest(steps_under_way *steps)
{
    mu_running *oldest = steps->items[0];
    memmove(steps->items, steps->items + 1, sizeof steps->items[0] * (size_t)--steps->n);
    return oldest;
}

// How many steps stay under way while the next batch is prepared: with parameter servers one for each worker.
static int steps_beside(const pass *p)
{
    const int workers = mu_strategy_num_workers(p->model->strategy);
    return p->in_step ? 0 : MU_MIN(MU_MAX(workers, 1), MOST_STARTED - 1);
}

// Waits for the steps under way when another one failed; the error stays that of the first.
static void abandon_steps(pass *p, steps_under_way *steps)
{
    mu_error_value first;
    mu__error_move(&first);
    while (steps->n > 0) {
        mu_pool *pool = mu_pool_open();
        if (mu__run_wait(take_oldest(steps)))
            count_step(p);
        mu_error_take();
        mu_pool_close(pool);
    }
    mu__error_raise(&first);
}

static mu_status run_steps(pass *p)
{
    steps_under_way steps = {.n = 0};
    const int beside = steps_beside(p);
    mu_status status = check_stop(p->model->strategy);
    bool more = status == MU_OK;
    for (int64_t started = p->steps; more; started++) {
        mu_pool *pool = mu_pool_open();
        more = pool && (p->limit < 0 || started < p->limit) && !(p->training && p->model->trainer->stop);
        mu_running *running = more ? start_step(p) : NULL;
        if (running)
            steps.items[steps.n++] = running;
        while (!mu__pending() && steps.n > (running ? beside : 0))
            status = finish_step(p, take_oldest(&steps));
        mu_pool_close(pool);
        more = running && status == MU_OK && !mu__pending();
    }
    abandon_steps(p, &steps);
    return mu_error_code();
}

// Steps of several workers end in any order, so the states that one of them returned may lack what others added.
static void read_last_states(pass *p)
{
    if (mu_strategy_num_workers(p->model->strategy) < 2 || p->function == p->model->trainer->predict_function)
        return;
    mu_pool *pool = mu_pool_open();
    mu_value *states = mu_retain(mu__metric_states(p->model->trainer));
    mu_pool_close(pool);
    mu_release(p->unread);
    p->unread = states;
}

static mu_status run_pass(pass *p)
{
    const mu_cross_worker_ops *workers = p->model->strategy->ops->cross_worker;
    workers->hold_stop(true);
    p->input_before = mu__strategy_input_seconds(p->model->strategy);
    p->in_step = mu__watches(p->callbacks, hooks_of(p).batch_begin) || mu__watches(p->callbacks, hooks_of(p).batch_end);
    mu_status status = run_steps(p);
    if (status == MU_OK)
        read_last_states(p);
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
    for (int i = 0; i < model->trainer->n_metrics && !mu__pending(); i++)
        mu_metric_reset(model->trainer->metrics[i]);
    mu_scope_close(&scope);
    mu_pool_close(pool);
    return mu_error_code();
}

// Endless data needs a limit on the number of steps.
static mu_status need_end(const mu_dataset *dataset, int64_t steps, const char *function, const char *argument)
{
    return !dataset || steps > 0 || mu_dataset_cardinality(dataset) != MU_INFINITE
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: the dataset repeats for ever; say with .%s when to stop", function,
                           argument);
}

// ---- evaluate and predict -----------------------------------------------------------------------

static mu_status need_compiled(const mu_model *model, const void *x, const char *function)
{
    MU_TRY(mu__need_model(model, function));
    if (!x)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the dataset is NULL", function);
    return model->trainer->n_losses > 0
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION, "%s: the model is not compiled; call mu_compile first", function);
}

static mu_status no_batches(const char *function)
{
    return mu__error(MU_INVALID_ARGUMENT, "%s: the dataset gave no batch; it is empty, or a stage such as take, "
        "filter or "
                     ".drop_remainder leaves nothing", function);
}

// Evaluates a dataset; the pass then holds names and values.
static mu_status measure(pass *p, mu_dataset *dataset)
{
    mu_logs logs = {.model = p->model, .epoch = p->epoch};
    MU_TRY(reset_metrics(p->model));
    MU_TRY(mu__call_hooks(p->callbacks, MU_HOOK_TEST_BEGIN, &logs));
    p->function = p->model->trainer->test_function;
    p->iterator = iterate_parts(p->model, dataset);
    mu_status status = p->iterator ? run_pass(p) : mu_error_code();
    mu_release(p->iterator);
    p->iterator = NULL;
    if (status == MU_OK && p->steps == 0)
        return no_batches("mu_evaluate");
    logs = pass_logs(p);
    return status == MU_OK ? mu__call_hooks(p->callbacks, MU_HOOK_TEST_END, &logs) : status;
}

static mu_status add_epoch(mu_history *history, const pass *train, const pass *validation)
{
    double values[2 * MU_MAX_LOGS];
    char name[128];
    int n = 0;
    for (int i = 0; train && i < train->model->trainer->n_metrics; i++, n++) {
        values[n] = train->values[i];
        if (mu__history_name(history, train->names[i]) < 0)
            return mu_error_code();
    }
    for (int i = 0; validation && i < validation->model->trainer->n_metrics; i++, n++) {
        values[n] = validation->values[i];
        snprintf(name, sizeof name, "%s%s", train ? "val_" : "", validation->names[i]);
        if (mu__history_name(history, name) < 0)
            return mu_error_code();
    }
    return mu__history_add(history, n, values);
}

static mu_history *evaluate(const mu_evaluate_args *args, mu_dataset *data, mu_callback *const *callbacks)
{
    mu_progress progress;
    bool told_of_nan = false;
    pass p = {.model = args->model, .limit = args->steps > 0 ? args->steps : -1, .progress = &progress,
              .callbacks = callbacks, .told_of_nan = &told_of_nan};
    int64_t target = p.limit > 0 ? p.limit : mu_dataset_cardinality(data);
    int64_t begin = mu__now_ns();
    mu__progress_begin(&progress, verbose_on(args->model, args->verbose), 0, 0, target);
    const mu_status status = measure(&p, data);
    forget_sums(&p);
    if (status != MU_OK) {
        mu__progress_abandon(&progress);
        return NULL;
    }
    mu__progress_end(&progress, p.steps, args->model->trainer->n_metrics, p.names, p.values);
    mu_history *history = mu__history_new();
    if (history && add_epoch(history, NULL, &p) == MU_OK) {
        history->seconds = (double)(mu__now_ns() - begin) / 1e9;
        history->samples = p.samples;
        return mu__give(history);
    }
    mu_release(history);
    return NULL;
}

// The callbacks of an argument, for mu__free, also after an error.
static mu_status take_callbacks(const mu_evaluate_args *args, const char *function, mu_callback ***callbacks)
{
    MU_TRY(mu__callbacks_argument(args->callbacks, function, callbacks));
    return mu__need_callbacks(*callbacks, function);
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
    mu_callback **callbacks = NULL;
    mu_history *history = NULL;
    if (take_callbacks(&args, "mu_evaluate", &callbacks) == MU_OK &&
        mu__model_enter(args.model, &use, "mu_evaluate") == MU_OK) {
        history = evaluate(&args, data, callbacks);
        mu__model_leave(args.model);
    }
    mu__free(callbacks);
    return history;
}

static mu_tensor *predict(const mu_evaluate_args *args, mu_dataset *data, mu_callback *const *callbacks)
{
    mu_model *model = args->model;
    mu_logs logs = {.model = model};
    if (mu__call_hooks(callbacks, MU_HOOK_PREDICT_BEGIN, &logs) != MU_OK)
        return NULL;
    if (!model->trainer->predict_function)
        model->trainer->predict_function = mu_retain(mu_function_new(mu__predict_step, model));
    pass p = {.model = model, .function = model->trainer->predict_function,
              .limit = args->steps > 0 ? args->steps : -1, .callbacks = callbacks};
    p.iterator = iterate_parts(model, data);
    mu_status status = p.iterator ? run_pass(&p) : mu_error_code();
    mu_release(p.iterator);
    if (status == MU_OK && p.n_outputs == 0)
        status = no_batches("mu_predict");
    mu_tensor *all = status == MU_OK ? mu_concat((int)p.n_outputs, p.outputs, 0) : NULL;
    for (size_t i = 0; i < p.n_outputs; i++)
        mu_release(p.outputs[i]);
    mu__free(p.outputs);
    logs.step = p.steps;
    return all && mu__call_hooks(callbacks, MU_HOOK_PREDICT_END, &logs) == MU_OK ? all : NULL;
}

mu_tensor *mu_predict_with(const mu_evaluate_args *given)
{
    mu_evaluate_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_predict") != MU_OK)
        return NULL;
    mu_dataset *data = mu__samples_dataset(&(mu_samples){args.x, args.y, args.batch_size, false}, "mu_predict");
    if (mu__pending() || mu__args_positive(&args, "steps", args.steps, "mu_predict") != MU_OK)
        return NULL;
    if (mu__need_model(args.model, "mu_predict") != MU_OK || mu__need(data, "mu_predict: the dataset") != MU_OK)
        return NULL;
    if (need_end(data, args.steps, "mu_predict", "steps") != MU_OK)
        return NULL;
    mu_model_use use;
    mu_callback **callbacks = NULL;
    mu_tensor *outputs = NULL;
    if (take_callbacks(&args, "mu_predict", &callbacks) == MU_OK &&
        mu__model_enter(args.model, &use, "mu_predict") == MU_OK) {
        outputs = predict(&args, data, callbacks);
        mu__model_leave(args.model);
    }
    mu__free(callbacks);
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
    const mu_fit_position *at = model->trainer->use->position;
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
    MU_TRY(need_sums(p));
    double *sums = p->sums;
    for (int i = 0; i < p->model->trainer->n_metrics; i++) {
        MU_TRY(mu__metric_read(p->model->trainer->metrics[i], sums));
        sums += mu__metric_numbers(p->model->trainer->metrics[i]);
    }
    compute_values(p);
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
                .function = model->trainer->train_function,
                .limit = limit,
                .training = true,
                .progress = &f->progress,
                .callbacks = f->callbacks,
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
    if (limit > 0 && p->steps < limit && !model->trainer->stop)
        warn_of_early_end(p);
    if (limit < 0 && !model->trainer->stop)
        f->known_steps = p->steps;
    return MU_OK;
}

// Ends an epoch with the values of training and validation together, for the progress bar and on_epoch_end.
static mu_status end_epoch(fitting *f, const pass *train, const pass *validation)
{
    static const char *const prefix = "val_";
    const char *names[2 * MU_MAX_LOGS];
    double values[2 * MU_MAX_LOGS];
    char val_names[MU_MAX_LOGS][72];
    int n = 0;
    for (int i = 0; i < train->model->trainer->n_metrics; i++, n++) {
        names[n] = train->names[i];
        values[n] = train->values[i];
    }
    for (int i = 0; validation && i < validation->model->trainer->n_metrics; i++, n++) {
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
    const double *sums = train->sums;
    for (int i = 0; i < train->model->trainer->n_metrics && sums; i++) {
        mu_metric *metric = train->model->trainer->metrics[i];
        if (mu__metric_write(metric, sums) != MU_OK)
            break;
        sums += mu__metric_numbers(metric);
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
                      .epoch = epoch, .callbacks = f->callbacks, .told_of_nan = &f->told_of_nan};
    mu_status status = train_epoch(f, epoch, &train);
    if (status == MU_OK && train.steps > 0 && f->validation &&
        (status = measure(&validation, f->validation)) != MU_OK)
        put_back_metrics(&train);
    forget_sums(&train);
    forget_sums(&validation);
    MU_TRY(status);
    if (train.steps == 0) {
        f->args.model->trainer->stop = true;
        return MU_OK;
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
    if (!args->model->trainer->optimizer)
        return mu__error(MU_FAILED_PRECONDITION,
                         "mu_fit: the model was compiled without an optimizer; give mu_compile one, such as "
                         ".optimizer = \"adam\"");
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
    model->trainer->stop = false;
    model->trainer->use->position = &f->position;
    f->position.epoch = f->args.initial_epoch;
    f->position.data = f->data;
    mu_logs logs = {.model = model};
    mu_status status = mu__call_hooks(f->callbacks, MU_HOOK_TRAIN_BEGIN, &logs);
    for (int epoch = f->position.epoch; status == MU_OK && epoch < f->args.epochs && !model->trainer->stop; epoch++)
        status = fit_epoch(f, epoch);
    if (status == MU_OK && f->args.epochs > 0)
        status = mu_optimizer_finalize_variable_values(model->trainer->optimizer);
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
