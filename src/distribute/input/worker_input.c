// Steps of several workers: they read one sequence in one order, and agree before each step whether there is one.
//
// If any worker has data, all take part, the others with empty batches, whose structure they learn at the first step.
#include "distribute/distribute.h"

// Workers that take parts of one sequence must read it in one order: all use the chief's shuffle seeds.
mu_status mu__take_order(mu_strategy *strategy, mu_iterator *iterator)
{
    const char *own = mu_iterator_state(iterator);
    char *order = own ? mu__workers_take_text(strategy, "order of the data", own, 0) : NULL;
    mu_status status = order ? MU_OK : mu_error_code();
    if (order && strcmp(own, order) != 0 && (status = mu_iterator_restore(iterator, order)) != MU_OK) {
        mu_error_take();
        mu__error(status,
                  "worker %d begins to read a pipeline in the state %.100s, the chief one in the state %.100s, so they "
                  "are at different places of the program or read different datasets; all must run the same",
                  strategy->worker, own, order);
    }
    mu__free(order);
    return status;
}

// The empty batch of each local replica. Owned.
static mu_value *empty_batches(const mu_strategy *strategy, const mu_value *like)
{
    const int n = strategy->n_local;
    mu_value *one = mu__empty_like(like), *values[MU_MAX_REPLICAS];
    for (int r = 0; r < n; r++)
        values[r] = one;
    mu_value *all = one ? mu__regroup_as(MU_VALUE_PER_REPLICA, n > 1, n, values) : NULL;
    mu_release(one);
    return all;
}

// Learns the structure of a replica's batch; a worker without data gets it from the first worker that has some. Owned.
static mu_value *learn_like(mu_strategy *strategy, const mu_value *own, bool all_have)
{
    mu_value *one = own ? mu__select(own, 0) : NULL, *like = NULL;
    char *text = one ? mu__element_text(one) : NULL;
    if (!all_have) {
        int64_t first = own ? strategy->worker : strategy->n_workers;
        char *mine = text;
        text = mu__workers_least(strategy, "first batch", &first) == MU_OK
                   ? mu__workers_take_text(strategy, "first batch", mine, (int)first)
                   : NULL;
        mu__free(mine);
    }
    if (text)
        like = mu__element_from_text(text);
    mu__free(text);
    mu_release(one);
    return like;
}

static mu_value *step_of_all(mu_strategy *strategy, mu_step_input *input, mu_value *own)
{
    int64_t step[] = {own != NULL, own ? mu__step_rows(strategy, own) : 0};
    if (mu__workers_agree(strategy, "next batch", step) == MU_OK && step[0] > 0 && !input->like)
        input->like = learn_like(strategy, own, step[0] == strategy->n_workers);
    input->rows = step[1];
    if (!mu__pending() && step[0] > 0)
        return own ? own : empty_batches(strategy, input->like);
    mu_release(own);
    return NULL;
}

// A batch for a single replica is not wrapped, but counts as that replica's component.
mu_value *mu__next_step_workers(mu_strategy *strategy, mu_step_input *input, mu_value *own)
{
    mu_value *batch = step_of_all(strategy, input, own);
    if (!batch || strategy->n_local > 1)
        return batch;
    mu_value *component = mu__own_component(batch);
    mu_release(batch);
    return component;
}
