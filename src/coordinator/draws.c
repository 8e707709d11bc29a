// Draws elements for calls: see draws.h.
#include "coordinator/coordinator.h"

mu_status mu__draws_init(mu_draws *draws) { return mu__monitor_init(&draws->monitor, "coordinator"); }

void mu__draws_free(mu_draws *draws) { mu__monitor_free(&draws->monitor); }

// Waits for the calls before, and for another attempt at the same call that draws now. Returns whether the elements are
// still to be drawn, which the caller must do then, and end.
static bool begin(mu_draws *draws, int64_t order)
{
    pthread_mutex_lock(&draws->monitor.lock);
    while (draws->n_ended < order - 1 || (draws->n_ended == order - 1 && draws->drawing))
        mu__monitor_wait(&draws->monitor, MU_FOREVER);
    const bool mine = draws->n_ended == order - 1;
    draws->drawing |= mine;
    pthread_mutex_unlock(&draws->monitor.lock);
    return mine;
}

static void end(mu_draws *draws, int64_t order)
{
    pthread_mutex_lock(&draws->monitor.lock);
    draws->n_ended = order;
    draws->drawing = false;
    pthread_cond_broadcast(&draws->monitor.changed);
    pthread_mutex_unlock(&draws->monitor.lock);
}

static mu_value *draw_leaf(const mu_value *leaf, const void *arg)
{
    mu_per_worker_resource *per_worker = (mu_per_worker_resource *)leaf->leaf;
    if (leaf->kind != MU_VALUE_PER_WORKER || !per_worker->drawn_here)
        return (mu_value *)leaf;
    return mu__per_worker_drawn(((const mu_coordinator *)arg)->strategy, per_worker);
}

static void draw(const mu_coordinator *c, mu_call *call)
{
    call->drawn = call->arguments ? mu_retain(mu__map_parts(call->arguments, true, draw_leaf, c)) : NULL;
    if (!mu__pending())
        return;
    mu_error_value error;
    mu__error_move(&error);
    call->not_drawn = mu__alloc(sizeof error);
    if (call->not_drawn)
        *call->not_drawn = error;
    mu__error_move(&error);
}

mu_value *mu__draws_arguments(mu_coordinator *c, mu_call *call)
{
    const int64_t order = call->closure.order;
    if (begin(&c->draws, order)) {
        draw(c, call);
        end(&c->draws, order);
    }
    if (call->not_drawn)
        mu__error_raise(call->not_drawn);
    else if (call->arguments && !call->drawn)
        mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the elements of a call");
    return call->drawn;
}

void mu__draws_pass(mu_coordinator *c, const mu_call *call)
{
    if (begin(&c->draws, call->closure.order))
        end(&c->draws, call->closure.order);
}
