// One pass over data: starts steps, finishes them in the order that the runner chooses, and keeps the metrics.
#include "model/metrics/metric.h"
#include "model/training/hooks.h"
#include "model/training/pass.h"
#include "model/training/progress.h"
#include "model/training/training.h"

#include <math.h>

const mu_step_runner *mu__step_runner(const mu_model *model)
{
    if (model->strategy->ops->scheduled)
        return &mu__worker_steps;
    return model->trainer->run_eagerly ? &mu__eager_steps : &mu__replica_steps;
}

// The hooks of a kind of pass.
typedef struct pass_hooks {
    mu_hook batch_begin, batch_end;
} pass_hooks;

static pass_hooks hooks_of(const mu_pass *p)
{
    const mu_trainer *trainer = p->model->trainer;
    if (p->training)
        return (pass_hooks){MU_HOOK_BATCH_BEGIN, MU_HOOK_BATCH_END};
    return p->function == trainer->predict_function
               ? (pass_hooks){MU_HOOK_PREDICT_BATCH_BEGIN, MU_HOOK_PREDICT_BATCH_END}
               : (pass_hooks){MU_HOOK_TEST_BATCH_BEGIN, MU_HOOK_TEST_BATCH_END};
}

mu_logs mu__pass_logs(const mu_pass *p)
{
    return (mu_logs){.model = p->model,
                     .epoch = p->epoch,
                     .step = p->steps,
                     .n = p->model->trainer->n_metrics,
                     .names = p->names,
                     .values = p->values};
}

mu_status mu__pass_begin_batch(const mu_pass *p)
{
    mu_logs logs = mu__pass_logs(p);
    logs.n = 0;
    return mu__call_hooks(p->callbacks, hooks_of(p).batch_begin, &logs);
}

static mu_status check_stop(const mu_strategy *strategy) { return strategy->ops->cross_worker->check_stop(strategy); }

// ---- Metrics ------------------------------------------------------------------------------------

int64_t mu__state_numbers(const mu_value *state, int r, double *out)
{
    const mu_value *own = state->kind == MU_VALUE_PER_REPLICA ? state->items[r] : state;
    const mu_tensor *tensor = mu_value_tensor(own);
    const int64_t n = tensor ? mu_tensor_elements(tensor) : 0;
    const void *data = tensor ? mu_tensor_data(tensor) : NULL;
    for (int64_t i = 0; data && i < n; i++)
        out[i] = mu__read_element(tensor->dtype, data, i);
    return n;
}

int64_t mu__pass_numbers(const mu_trainer *trainer)
{
    int64_t n = 0;
    for (int i = 0; i < trainer->n_metrics; i++)
        n += mu__metric_numbers(trainer->metrics[i]);
    return n;
}

mu_status mu__pass_need_sums(mu_pass *p)
{
    if (!p->sums)
        p->sums = mu__calloc((size_t)mu__pass_numbers(p->model->trainer) + 1, sizeof *p->sums);
    return p->sums ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

void mu__pass_values(mu_pass *p)
{
    const double *sums = p->sums;
    for (int i = 0; i < p->model->trainer->n_metrics; i++) {
        const mu_metric *metric = p->model->trainer->metrics[i];
        p->names[i] = mu__metric_label(metric);
        p->values[i] = mu__metric_value(metric, sums);
        sums += mu__metric_numbers(metric);
    }
}

mu_status mu__pass_write(const mu_pass *p)
{
    mu_pool *pool = mu_pool_open();
    mu_scope_guard scope = mu_scope_open(p->model->strategy);
    const double *sums = p->sums;
    for (int i = 0; i < p->model->trainer->n_metrics && sums && !mu__pending(); i++) {
        mu_metric *metric = p->model->trainer->metrics[i];
        mu__metric_write(metric, sums);
        sums += mu__metric_numbers(metric);
    }
    mu_scope_close(&scope);
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__pass_reset(const mu_model *model)
{
    mu_pool *pool = mu_pool_open();
    mu_scope_guard scope = mu_scope_open(model->strategy);
    for (int i = 0; i < model->trainer->n_metrics && !mu__pending(); i++)
        mu_metric_reset(model->trainer->metrics[i]);
    mu_scope_close(&scope);
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__pass_read(mu_pass *p)
{
    MU_TRY(mu__pass_need_sums(p));
    double *sums = p->sums;
    for (int i = 0; i < p->model->trainer->n_metrics; i++) {
        MU_TRY(mu__metric_read(p->model->trainer->metrics[i], sums));
        sums += mu__metric_numbers(p->model->trainer->metrics[i]);
    }
    mu__pass_values(p);
    return mu_error_code();
}

// A NaN stays in all later sums, so only the first step with one is reported.
static void warn_of_nan(const mu_pass *p)
{
    const mu_strategy *strategy = p->model->strategy;
    int i = 0;
    while (i < p->model->trainer->n_metrics && isfinite(p->values[i]))
        i++;
    if (i == p->model->trainer->n_metrics || *p->warned_of_nan || !mu_strategy_should_checkpoint(strategy))
        return;
    *p->warned_of_nan = true;
    if (p->progress)
        mu__progress_abandon(p->progress);
    const bool every_step = p->read_before == p->steps - 1;
    mu__log(MU_LOG_WARNING,
            "%s: '%s' became %s %s step %lld of epoch %d%s. Look for such numbers in the data, or lower the learning "
            "rate or clip the gradients (.global_clipnorm of the optimizer)",
            p->model->trainer->use->function, p->names[i], isnan(p->values[i]) ? "nan" : "infinite",
            every_step ? "in" : "before or in", (long long)p->steps, p->epoch + 1,
            p->training ? "" : " of the measured data");
}

static mu_status read_metrics(mu_pass *p, bool last)
{
    MU_TRY(p->runner->read(p, last));
    if (!p->sums)
        return MU_OK;
    mu__pass_values(p);
    warn_of_nan(p);
    p->read_before = p->steps;
    return MU_OK;
}

// Workers sum their metrics only when needed: callbacks at each step, the chief's progress bar from time to time. The
// progress bar's request travels with the agreement on the next batch, so that all workers do the same.
static bool values_are_due(const mu_pass *p) { return p->in_step || p->model->strategy->progress_agreed; }

static void note_input(mu_pass *p)
{
    if (!p->progress)
        return;
    const double elapsed = (double)(mu__now_ns() - p->progress->begin_ns) / 1e9;
    p->progress->input_share = (mu__strategy_input_seconds(p->model->strategy) - p->input_before) / elapsed;
    if (p->runner->note)
        p->runner->note(p, p->progress);
}

static mu_status take_metrics(mu_pass *p, mu_value *result)
{
    MU_TRY(p->runner->add(p, result));
    if (p->progress)
        p->progress->step = p->steps;
    if (!values_are_due(p))
        return MU_OK;
    MU_TRY(read_metrics(p, false));
    note_input(p);
    if (p->progress)
        mu__progress_step(p->progress, p->steps, p->model->trainer->n_metrics, p->names, p->values);
    return MU_OK;
}

// ---- Steps --------------------------------------------------------------------------------------

static mu_status keep_outputs(mu_pass *p, mu_value *value)
{
    mu_value *whole = mu_strategy_gather(p->model->strategy, value, 0);
    if (!whole || MU_PUSH(&p->outputs, whole) != MU_OK)
        return mu_error_code();
    mu_retain(whole);
    return MU_OK;
}

static void count_steps(mu_pass *p)
{
    p->steps += p->waited;
    if (p->training)
        p->model->trainer->use->position->step = p->steps;
}

static void *take_started(mu_pass *p, int i)
{
    void *taken = p->started.items[i];
    p->started.n--;
    memmove(p->started.items + i, p->started.items + i + 1, sizeof taken * (p->started.n - (size_t)i));
    return taken;
}

static mu_value *wait_for(mu_pass *p, int i)
{
    p->waited = 1;
    return p->runner->wait(p, take_started(p, i));
}

static mu_status finish_step(mu_pass *p, int i)
{
    mu_value *result = wait_for(p, i);
    if (!result)
        return mu_error_code();
    count_steps(p);
    mu_logs logs = mu__pass_logs(p);
    if (p->function == p->model->trainer->predict_function) {
        logs.n = 0;
        MU_TRY(keep_outputs(p, result));
        return mu__call_hooks(p->callbacks, MU_HOOK_PREDICT_BATCH_END, &logs);
    }
    MU_TRY(take_metrics(p, result));
    MU_TRY(mu__call_hooks(p->callbacks, hooks_of(p).batch_end, &logs));
    return check_stop(p->model->strategy);
}

// Finishes steps until another can start; `all`: every one.
static mu_status finish_steps(mu_pass *p, bool all)
{
    mu_status status = MU_OK;
    for (int i; status == MU_OK && p->started.n > 0 && (i = p->runner->next(p, all)) >= 0;)
        status = finish_step(p, i);
    return mu__pending() ? mu_error_code() : status;
}

// Waits for the steps under way when another one failed; the error stays that of the first.
static void abandon_steps(mu_pass *p)
{
    mu_error_value first, later;
    mu__error_move(&first);
    while (p->started.n > 0) {
        mu_pool *pool = mu_pool_open();
        mu_value *result = wait_for(p, 0);
        if (result)
            count_steps(p);
        if (result && p->function != p->model->trainer->predict_function)
            p->runner->add(p, result);
        mu__error_move(&later);
        mu_pool_close(pool);
    }
    if (first.code != MU_OK && p->runner->abandon)
        p->runner->abandon(p, &first);
    mu__error_raise(&first);
}

// Returns whether there was another step to start.
static bool start_step(mu_pass *p)
{
    p->model->strategy->progress_due = p->progress && mu__progress_due(p->progress);
    void *step = p->runner->start(p);
    if (step && MU_PUSH(&p->started, step) != MU_OK) {
        (void)p->runner->wait(p, step);
        step = NULL;
    }
    return step != NULL;
}

static mu_status run_steps(mu_pass *p)
{
    mu_status status = check_stop(p->model->strategy);
    bool more = status == MU_OK;
    for (p->begun = p->steps; more; p->begun++) {
        mu_pool *pool = mu_pool_open();
        more = pool && (p->limit < 0 || p->begun < p->limit) && !(p->training && p->model->trainer->stop);
        more = more && start_step(p);
        if (!mu__pending())
            status = finish_steps(p, !more);
        mu_pool_close(pool);
        more = more && status == MU_OK && !mu__pending();
    }
    abandon_steps(p);
    return mu_error_code();
}

mu_status mu__pass_run(mu_pass *p)
{
    const mu_cross_worker_ops *workers = p->model->strategy->ops->cross_worker;
    workers->hold_stop(true);
    p->runner = mu__loops_steps(p) ? &mu__looped_steps : mu__step_runner(p->model);
    p->input_before = mu__strategy_input_seconds(p->model->strategy);
    p->in_step = mu__watches(p->callbacks, hooks_of(p).batch_begin) || mu__watches(p->callbacks, hooks_of(p).batch_end);
    mu_status status = run_steps(p);
    if (status == MU_OK && p->function != p->model->trainer->predict_function)
        status = read_metrics(p, true);
    note_input(p);
    workers->hold_stop(false);
    return status;
}

void mu__pass_end(mu_pass *p)
{
    mu_release(p->unread);
    mu__free(p->sums);
    for (size_t i = 0; i < p->outputs.n; i++)
        mu_release(p->outputs.items[i]);
    mu__free(p->outputs.items);
    mu__free(p->started.items);
    for (size_t i = 0; i < p->waiting.n; i++)
        mu_release(p->waiting.items[i]);
    mu__free(p->waiting.items);
    *p = (mu_pass){0};
}
