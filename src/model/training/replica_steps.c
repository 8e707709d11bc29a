// Steps on the replicas of this process's strategy. Two are in progress at a time: while devices compute, the next
// batch is prepared.
#include "distribute/distribute.h"
#include "model/metrics/metric.h"
#include "model/training/pass.h"
#include "model/training/training.h"

static mu_status begin(const mu_model *model, const mu_step_data *data, mu_object **opened)
{
    if (*opened)
        return MU_OK;
    mu_distributed_dataset *parts =
        data->creator ? mu_distribute_datasets_from_function(model->strategy, data->creator->fn, data->creator->arg)
                      : mu_distribute_dataset(model->strategy, data->dataset);
    *opened = parts ? (mu_object *)mu__distributed_iterate(parts) : NULL;
    return *opened ? MU_OK : mu_error_code();
}

// The next batch; NULL at the end or on error.
static mu_value *take_batch(mu_pass *p)
{
    mu_iterator *iterator = (mu_iterator *)p->opened;
    mu_value *batch = mu_next(iterator);
    if (!batch)
        return NULL;
    p->samples += mu__distributed_rows(iterator);
    return mu__pass_begin_batch(p) == MU_OK ? batch : NULL;
}

static void *start(mu_pass *p)
{
    mu_value *batch = take_batch(p);
    return batch ? mu__run_start(p->model->strategy, p->function, batch) : NULL;
}

int mu__replica_next(const mu_pass *p, bool all) { return all || p->in_step || p->started.n > 1 ? 0 : -1; }

static mu_value *wait(mu_pass *p, void *step)
{
    (void)p;
    return mu__run_wait(step);
}

// A step returns the metrics' states.
mu_status mu__replica_add(mu_pass *p, mu_value *states)
{
    mu_release(p->unread);
    p->unread = mu_retain(states);
    return MU_OK;
}

// What replica r adds to the states of all metrics. Replicas with central storage share each state, which has what all
// of them have added, so only the first of them counts.
static void take_states(const mu_pass *p, int r, double *out)
{
    const mu_trainer *trainer = p->model->trainer;
    int state = 0;
    for (int i = 0; i < trainer->n_metrics; i++)
        for (size_t k = 0; k < trainer->metrics[i]->states.n && state < p->unread->n; k++) {
            const int64_t n = mu__state_numbers(p->unread->items[state++], r, out);
            if (r > 0 && trainer->metrics[i]->states.items[k]->resource.shared)
                memset(out, 0, (size_t)n * sizeof *out);
            out += n;
        }
}

// A collective of the workers, if there are several.
mu_status mu__replica_read(mu_pass *p, bool last)
{
    (void)last;
    mu_strategy *strategy = p->model->strategy;
    const int64_t n = mu__pass_numbers(p->model->trainer);
    if (!p->unread)
        return MU_OK;
    mu__free(p->sums); // of a restored epoch, before metrics knew the number of columns
    p->sums = NULL;
    MU_TRY(mu__pass_need_sums(p));
    double *parts = mu__calloc((size_t)(strategy->n_local * n) + 1, sizeof *parts);
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    for (int r = 0; r < strategy->n_local; r++)
        take_states(p, r, parts + r * n);
    const mu_status status = mu__workers_sum(strategy, "metrics", (int)n, parts, p->sums);
    mu__free(parts);
    mu_release(p->unread);
    p->unread = NULL;
    return status;
}

const mu_step_runner mu__replica_steps = {.begin = begin,
                                          .start = start,
                                          .next = mu__replica_next,
                                          .wait = wait,
                                          .add = mu__replica_add,
                                          .read = mu__replica_read};

// ---- Steps that are not traced ------------------------------------------------------------------

static void *start_eagerly(mu_pass *p)
{
    mu_value *batch = take_batch(p);
    const bool predicts = p->function == p->model->trainer->predict_function;
    mu_value *(*const step)(mu_value *, void *) = p->training ? mu__train_step
                                                  : predicts  ? mu__predict_step
                                                              : mu__test_step;
    return batch ? mu_retain(mu_run_callback(p->model->strategy, step, p->model, batch)) : NULL;
}

static int next_at_once(const mu_pass *p, bool all)
{
    (void)p, (void)all;
    return 0;
}

static mu_value *its_result(mu_pass *p, void *step)
{
    (void)p;
    return mu__give(step);
}

const mu_step_runner mu__eager_steps = {.begin = begin,
                                        .start = start_eagerly,
                                        .next = next_at_once,
                                        .wait = its_result,
                                        .add = mu__replica_add,
                                        .read = mu__replica_read};
