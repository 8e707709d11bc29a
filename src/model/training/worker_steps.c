// Steps on the workers of a coordinator, under a parameter-server strategy.
//
// A data set is read here, and each batch goes to the worker that is free next: so each is used once, whatever happens
// to workers. A data-set creator makes a data set for each worker, as in Keras; where elements belong to calls those
// are read here too (worker_data.h). A step returns what its batch adds to
// the metrics; the sums are kept here, so a step that was tried again counts once.
#include "coordinator/coordinator.h"
#include "distribute/servers/aggregation.h"
#include "model/training/pass.h"
#include "model/training/progress.h"
#include "model/training/samples.h"
#include "model/training/training.h"

// The coordinator that is kept for all calls of fit, evaluate and predict.
static mu_coordinator *coordinator_of(const mu_model *model)
{
    mu_trainer *trainer = model->trainer;
    if (!trainer->coordinator)
        trainer->coordinator = mu_retain(mu_coordinator_new(model->strategy));
    return trainer->coordinator;
}

// ---- Data ---------------------------------------------------------------------------------------

static mu_status begin(const mu_model *model, const mu_step_data *data, mu_object **opened)
{
    if (*opened)
        return MU_OK;
    mu_coordinator *c = coordinator_of(model);
    if (c && data->creator)
        *opened = mu_retain(mu_create_per_worker_dataset(c, mu__creator_call, data->creator));
    else if (c)
        *opened = (mu_object *)mu__dataset_iterate(data->dataset);
    return *opened ? MU_OK : mu_error_code();
}

// The next batch, or what each worker has in its place.
static mu_value *next_batch(mu_pass *p)
{
    if (mu__is(p->opened, &mu__value_type))
        return (mu_value *)p->opened;
    mu_value *batch = mu_next((mu_iterator *)p->opened);
    if (batch)
        p->samples += mu__step_rows(p->model->strategy, batch);
    return batch;
}

// What the n calls of a step get, owned: parts of a batch, divided as among so many replicas; or a batch each, without
// rows where the data have ended. Returns whether there is a step.
static bool next_parts(mu_pass *p, int n, mu_value **parts)
{
    mu_value *first = next_batch(p);
    if (!first)
        return false;
    if (!p->batch_each)
        return mu__split_rows(first, n, parts) == MU_OK;
    parts[0] = mu_retain(first);
    for (int i = 1; i < n && !mu__pending(); i++) {
        parts[i] = mu_retain(next_batch(p));
        if (!parts[i] && !mu__pending())
            parts[i] = mu__empty_like(first);
    }
    return !mu__pending();
}

// ---- Steps --------------------------------------------------------------------------------------

// The calls of a step, each with its share of the step's rows.
static mu_value *schedule_parts(const mu_pass *p, mu_coordinator *c, int n, mu_value *const *parts, mu_value **results)
{
    int64_t rows = 0;
    for (int i = 0; i < n; i++)
        rows += mu__step_rows(c->strategy, parts[i]);
    for (int i = 0; i < n && !mu__pending(); i++) {
        const int64_t own = mu__step_rows(c->strategy, parts[i]);
        results[i] = mu__schedule(c, p->function, parts[i], own > 0 ? (double)rows / (double)own : 0);
    }
    return mu__pending() ? NULL : mu_list_of(n, results);
}

static mu_value *start_parts(mu_pass *p, mu_coordinator *c, int n)
{
    mu_value **parts = mu__calloc(2 * (size_t)n, sizeof *parts), *step = NULL;
    if (parts && next_parts(p, n, parts) && mu__pass_begin_batch(p) == MU_OK)
        step = schedule_parts(p, c, n, parts, parts + n);
    for (int i = 0; parts && i < n; i++)
        mu_release(parts[i]);
    mu__free(parts);
    return step;
}

// Waits until few calls wait for a worker: batches must not pile up here.
static void *start(mu_pass *p)
{
    mu_coordinator *c = p->model->trainer->coordinator;
    if (mu__closures_wait_space(c->queue, c->n_workers) != MU_OK)
        return NULL;
    const mu_aggregation *aggregation = p->model->strategy->servers->aggregation;
    if (p->training && aggregation)
        return mu_retain(start_parts(p, c, aggregation->n));
    mu_value *batch = next_batch(p);
    return batch && mu__pass_begin_batch(p) == MU_OK ? mu_retain(mu_schedule(c, p->function, batch)) : NULL;
}

// A step is the result of a call, or a list of them.
static bool is_ready(const mu_value *step)
{
    bool ready =
        step->kind != MU_VALUE_REMOTE || mu__remote_value_state((mu_remote_value *)step->leaf) != MU_REMOTE_NOT_READY;
    for (int i = 0; i < step->n && ready; i++)
        ready = is_ready(step->items[i]);
    return ready;
}

// Outputs of mu_predict stay in the order of the batches; other steps are finished as they end.
static int next(const mu_pass *p, bool all)
{
    const bool in_order = p->function == p->model->trainer->predict_function;
    for (size_t i = 0; i < (in_order ? 1 : p->started.n); i++)
        if (is_ready(p->started.items[i]))
            return (int)i;
    return all || p->in_step ? 0 : -1;
}

static mu_value *wait(mu_pass *p, void *step)
{
    (void)p;
    mu_value *result = mu_fetch(step);
    mu_release(step);
    return result;
}

// What a failed step left in the queue was raised here. After a signal the metrics are saved with the model.
static void abandon(mu_pass *p, const mu_error_value *error)
{
    if (mu_join(p->model->trainer->coordinator) != MU_OK)
        mu_error_take();
    if (error->code == MU_CANCELLED && mu__pass_write(p) != MU_OK)
        mu_error_take();
}

// ---- Metrics ------------------------------------------------------------------------------------

static mu_status add(mu_pass *p, mu_value *result)
{
    for (int i = 0; result->n > 0 && result->items[0]->kind == MU_VALUE_LIST && i < result->n; i++)
        MU_TRY(add(p, result->items[i]));
    if (result->n > 0 && result->items[0]->kind == MU_VALUE_LIST)
        return MU_OK;
    double *own = mu__calloc((size_t)mu__pass_numbers(p->model->trainer) + 1, sizeof *own);
    const mu_status status = own ? mu__pass_need_sums(p) : MU_RESOURCE_EXHAUSTED;
    int64_t n = 0;
    for (int i = 0; status == MU_OK && i < result->n; i++)
        n += mu__state_numbers(result->items[i], 0, own + n);
    for (int64_t i = 0; i < n; i++)
        p->sums[i] += own[i];
    mu__free(own);
    return status;
}

// Callbacks, and code that saves the model, find the metrics in their variables.
static mu_status read(mu_pass *p, bool last)
{
    if (last && mu__is(p->opened, &mu__value_type) && p->sums)
        p->samples = (int64_t)p->sums[1]; // of the mean loss: this process has not seen the batches of a creator
    return p->sums && (last || p->in_step) ? mu__pass_write(p) : MU_OK;
}

// The steps that each worker has done, "12+11+9"; of many workers the least and the most, "9 to 12 each".
static void write_done(const mu_coordinator *c, size_t bytes, char *text)
{
    enum { MOST_SHOWN = 8 };
    long long least = INT64_MAX, most = 0;
    size_t used = 0;
    for (int i = 0; i < c->n_workers; i++) {
        const long long done = c->workers[i].done;
        least = MU_MIN(least, done);
        most = MU_MAX(most, done);
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i > 0 ? "+" : "", done);
    }
    if (c->n_workers > MOST_SHOWN)
        snprintf(text, bytes, "%lld to %lld each", least, most);
}

static void note(const mu_pass *p, mu_progress *progress)
{
    const mu_coordinator *c = p->model->trainer->coordinator;
    long long retried = 0, in_flight = 0;
    int slow = 0;
    char done[80], again[40] = "", lost[40] = "", late[40] = "";
    for (int i = 0; i < c->n_workers; i++) {
        retried += c->workers[i].retried;
        in_flight += c->workers[i].in_flight;
        slow += mu__watch_is_slow(&c->workers[i]);
    }
    write_done(c, sizeof done, done);
    if (retried > 0)
        snprintf(again, sizeof again, ", %lld tried again", retried);
    if (c->n_lost > 0)
        snprintf(lost, sizeof lost, ", %d workers lost", c->n_lost);
    if (slow > 0)
        snprintf(late, sizeof late, ", %d workers slow", slow);
    snprintf(progress->workers, sizeof progress->workers, "%s done, %lld in flight%s%s%s", done, in_flight, again, lost,
             late);
}

const mu_step_runner mu__worker_steps = {.begin = begin,
                                         .start = start,
                                         .next = next,
                                         .wait = wait,
                                         .abandon = abandon,
                                         .add = add,
                                         .read = read,
                                         .note = note};
