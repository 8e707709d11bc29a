// Several steps of training as one run: a loop on the device (mu_compile's steps_per_execution).
//
// The function takes as many batches as a run has steps, and scans over them; on an XLA device that is one program
// with a loop inside. Steps that cannot be joined run one by one: the first ever, which makes the variables, those of
// batches with other shapes than the first, and what is left at the end. Several workers take as many batches as each
// other and agree on whether they join them, since a worker does not see the shapes of the others' parts.
#include "distribute/distribute.h"
#include "model/training/pass.h"
#include "model/training/training.h"

#include <muster/control.h>
#include <muster/ops.h>

// ---- The function -------------------------------------------------------------------------------

static mu_value *one_step(mu_value *state, mu_value *batch, void *model)
{
    return mu__train_step(batch, model) ? state : NULL;
}

// The batches' tensors, stacked along a new first axis, in the structure of the first batch.
static mu_value *stacked(const mu_value *batches)
{
    const int n = batches->n, n_leaves = mu__value_flatten(batches->items[0], NULL, 0);
    mu_object **leaves = mu__calloc((size_t)(n * n_leaves) + 1, sizeof *leaves);
    mu_tensor *column[MU_MOST_LOOPED_STEPS];
    mu_value *whole = NULL;
    for (int i = 0; leaves && i < n; i++)
        mu__value_flatten(batches->items[i], leaves + i * n_leaves, n_leaves);
    for (int k = 0; leaves && k < n_leaves && !mu__pending(); k++) {
        for (int i = 0; i < n; i++)
            column[i] = (mu_tensor *)leaves[i * n_leaves + k];
        leaves[k] = (mu_object *)mu_stack(n, column, 0);
    }
    if (leaves && !mu__pending())
        whole = mu__give(mu__value_pack(batches->items[0], leaves, n_leaves));
    mu__free(leaves);
    return whole;
}

mu_value *mu__train_steps(mu_value *batches, void *arg)
{
    mu_model *model = arg;
    mu_value *all = stacked(batches), *begin = all ? mu_of(mu_constant(MU_F32, 0)) : NULL;
    if (!begin || !mu_scan(one_step, all, begin, model))
        return NULL;
    return mu__metric_states(model->trainer);
}

// ---- The runner ---------------------------------------------------------------------------------

typedef struct execution {
    mu_running *running;
    int n_steps;
} execution;

static bool same_shapes(const mu_value *a, const mu_value *b)
{
    mu_object *left[64], *right[64];
    const int n = mu__value_flatten(a, left, 64);
    if (n > 64 || mu__value_flatten(b, right, 64) != n || !mu__value_same_structure(a, b))
        return false;
    for (int i = 0; i < n; i++)
        if (!mu__is(left[i], &mu__tensor_type) ||
            !mu__shape_equal(&((mu_tensor *)left[i])->shape, &((mu_tensor *)right[i])->shape))
            return false;
    return true;
}

// Takes batches until there are `wanted` or the data ends; those that wait come first.
static mu_status take(mu_pass *p, size_t wanted)
{
    mu_iterator *iterator = (mu_iterator *)p->opened;
    while (p->waiting.n < wanted) {
        mu_value *batch = mu_next(iterator);
        if (!batch)
            return mu_error_code();
        p->samples += mu__distributed_rows(iterator);
        MU_TRY(MU_PUSH(&p->waiting, batch));
        mu_retain(batch);
    }
    return MU_OK;
}

static size_t wanted_steps(const mu_pass *p)
{
    const mu_trainer *trainer = p->model->trainer;
    const int64_t left = p->limit < 0 ? trainer->steps_per_execution : p->limit - p->begun;
    const bool first = mu_function_trace_count(trainer->train_function) == 0;
    return first ? 1 : (size_t)MU_MIN(left, (int64_t)trainer->steps_per_execution);
}

// The number of steps of the next run: all that are wanted if their batches have the same shapes on every worker, or
// one. 0 on error.
static int joined_steps(const mu_pass *p, size_t wanted)
{
    int64_t same = p->waiting.n >= wanted;
    for (size_t i = 1; same && i < wanted; i++)
        same = same_shapes(p->waiting.items[0], p->waiting.items[i]);
    if (wanted > 1 && mu__workers_least(p->model->strategy, "whether steps are joined", &same) != MU_OK)
        return 0;
    return same ? (int)wanted : 1;
}

// Starts the first `n` of the waiting batches.
static mu_running *run(mu_pass *p, size_t n)
{
    mu_trainer *trainer = p->model->trainer;
    mu_value *batch = n == 1 ? p->waiting.items[0] : mu_list_of((int)n, p->waiting.items);
    mu_function *function = n == 1 ? p->function : trainer->loop_function;
    mu_running *running = batch ? mu__run_start(p->model->strategy, function, batch) : NULL;
    for (size_t i = 0; i < n; i++)
        mu_release(p->waiting.items[i]);
    p->waiting.n -= n;
    memmove(p->waiting.items, p->waiting.items + n, sizeof(mu_value *) * p->waiting.n);
    return running;
}

static void *start(mu_pass *p)
{
    const size_t wanted = wanted_steps(p);
    if (take(p, wanted) != MU_OK || p->waiting.n == 0 || mu__pass_begin_batch(p) != MU_OK)
        return NULL;
    const int n_steps = joined_steps(p, wanted);
    execution *e = n_steps > 0 ? mu__calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    e->n_steps = n_steps;
    if (!(e->running = run(p, (size_t)e->n_steps))) {
        mu__free(e);
        return NULL;
    }
    p->begun += e->n_steps - 1;
    return e;
}

static mu_value *wait(mu_pass *p, void *step)
{
    execution *e = step;
    p->waited = e->n_steps;
    mu_value *result = mu__run_wait(e->running);
    mu__free(e);
    return result;
}

bool mu__loops_steps(const mu_pass *p)
{
    const mu_trainer *trainer = p->model->trainer;
    return p->training && !trainer->run_eagerly && trainer->steps_per_execution > 1 &&
           mu__strategy_launches(p->model->strategy);
}

const mu_step_runner mu__looped_steps = {
    .start = start, .next = mu__replica_next, .wait = wait, .add = mu__replica_add, .read = mu__replica_read};
