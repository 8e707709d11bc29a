// Watches the calls that run: see watch.h.
#include "coordinator/coordinator.h"

enum { LEFT_TEXT = MU_CALL_NAME + 100 };
enum { TIMES_USUAL = 10 };       // a call that takes so many times the usual time makes its worker slow,
static const double LEAST_S = 1; // but not before it has taken so many seconds

void mu__watch_call_begun(mu_dispatcher *d, const char *name)
{
    mu_monitor *monitor = &d->coordinator->watch.monitor;
    pthread_mutex_lock(&monitor->lock);
    snprintf(d->called, sizeof d->called, "%s", name);
    pthread_mutex_unlock(&monitor->lock);
    d->begun_ns = mu__now_ns();
}

void mu__watch_call_ended(mu_dispatcher *d) { d->begun_ns = 0; }

bool mu__watch_found_slow(mu_dispatcher *d, int64_t begun_ns)
{
    return atomic_exchange(&d->slow_ns, begun_ns) != begun_ns && d->begun_ns == begun_ns;
}

bool mu__watch_is_slow(const mu_dispatcher *d)
{
    const int64_t begun = d->begun_ns;
    return begun > 0 && d->slow_ns == begun;
}

double mu__watch_call_age(const mu_dispatcher *d)
{
    const int64_t begun = d->begun_ns;
    return begun > 0 ? (double)(mu__now_ns() - begun) / 1e9 : 0;
}

static void look_at_worker(mu_dispatcher *d, double usual)
{
    const int64_t begun = d->begun_ns;
    const double age = begun > 0 ? (double)(mu__now_ns() - begun) / 1e9 : 0;
    if (usual == 0 || d->lost || age < MU_MAX(TIMES_USUAL * usual, LEAST_S) || !mu__watch_found_slow(d, begun))
        return;
    mu__log(MU_LOG_WARNING,
            "worker %d is slow: it has run its call for %.1f s, and calls usually take %.3g s. It is alive; see "
            "whether something else uses its machine",
            d->worker, age, usual);
}

// TensorFlow's watchdog: says what runs when nothing has ended for so long.
static void look_at_all(mu_coordinator *c, double limit)
{
    int64_t waiting, in_flight;
    const int64_t now = mu__now_ns();
    mu__closures_count(c->queue, &waiting, &in_flight);
    if (waiting + in_flight == 0)
        c->watch.last_done_ns = now;
    if ((double)(now - c->watch.last_done_ns) / 1e9 < limit)
        return;
    mu__log(MU_LOG_WARNING,
            "no call has ended for %g s (MUSTER_WATCHDOG): %lld run, %lld wait, %d of %d workers are lost", limit,
            (long long)in_flight, (long long)waiting, (int)c->n_lost, c->n_workers);
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].begun_ns > 0)
            mu__log(MU_LOG_WARNING, "worker %d has run its call for %.1f s%s", i, mu__watch_call_age(&c->workers[i]),
                    c->workers[i].lost ? ", and is lost" : "");
    c->watch.last_done_ns = now;
}

// A worker's thread that has not ended, and what it does: its call, or, where it runs none, what comes after one.
static bool is_left(const mu_dispatcher *d, char *text, size_t size)
{
    if (!d->begun || d->ended)
        return false;
    if (d->begun_ns > 0)
        snprintf(text, size, "its call of '%s', begun %.1f s ago, was cancelled and still runs", d->called,
                 mu__watch_call_age(d));
    else
        snprintf(text, size, "it runs no call, but still applies a step, or waits for a server");
    return true;
}

// A coordinator ends with its threads, which may run functions of the program. Which call holds that up is said once in
// each heartbeat.
static void look_at_end(mu_coordinator *c)
{
    char text[LEFT_TEXT];
    const int64_t now = mu__now_ns();
    c->watch.stopped_ns = c->watch.stopped_ns > 0 ? c->watch.stopped_ns : now;
    if ((double)(now - c->watch.stopped_ns) / 1e9 < mu__setting_real(MU_SETTING_HEARTBEAT))
        return;
    for (int i = 0; i < c->n_workers; i++)
        if (is_left(&c->workers[i], text, sizeof text))
            mu__log(MU_LOG_WARNING, "the end of the coordinator waits for worker %d: %s%s", i, text,
                    c->workers[i].begun_ns > 0 ? "; see what in its function does not end" : "");
    c->watch.stopped_ns = now;
}

void mu__watch_name_left(mu_coordinator *c)
{
    char text[LEFT_TEXT];
    for (int i = 0; i < c->n_workers; i++)
        if (is_left(&c->workers[i], text, sizeof text))
            mu__log(MU_LOG_ERROR,
                    "the coordinator has ended without worker %d: %s after %g s (MUSTER_TIMEOUT). Its memory in the "
                    "library is not freed; keep the objects that its function uses, or let it end",
                    i, text, mu__setting_real(MU_SETTING_TIMEOUT));
}

static void watch(void *arg)
{
    mu_coordinator *c = arg;
    const double limit = mu__setting_real(MU_SETTING_WATCHDOG);
    const double every = limit > 0 ? MU_MIN(limit / 10, LEAST_S / 4) : LEAST_S / 4;
    pthread_mutex_lock(&c->watch.monitor.lock);
    while (!c->watch.ending) {
        const int64_t deadline = mu__deadline_ns(every);
        while (!c->watch.ending && mu__now_ns() < deadline)
            (void)mu__monitor_wait(&c->watch.monitor, deadline);
        const double usual = (double)mu__closures_usual_ns(c->queue) / 1e9;
        for (int i = 0; i < c->n_workers; i++)
            look_at_worker(&c->workers[i], usual);
        if (mu__closures_stopped(c->queue))
            look_at_end(c);
        else if (limit > 0)
            look_at_all(c, limit);
    }
    pthread_mutex_unlock(&c->watch.monitor.lock);
}

mu_status mu__watch_begin(mu_coordinator *c)
{
    c->watch.last_done_ns = mu__now_ns();
    MU_TRY(mu__monitor_init(&c->watch.monitor, "coordinator"));
    c->watch.thread = mu__worker_new("watch", NULL, 0, c->strategy->runtime);
    return c->watch.thread ? mu__worker_post(c->watch.thread, watch, c) : mu_error_code();
}

void mu__watch_end(mu_coordinator *c)
{
    if (!c->watch.monitor.made)
        return;
    pthread_mutex_lock(&c->watch.monitor.lock);
    c->watch.ending = true;
    pthread_cond_broadcast(&c->watch.monitor.changed);
    pthread_mutex_unlock(&c->watch.monitor.lock);
    if (c->watch.thread)
        mu__worker_free(c->watch.thread);
    mu__monitor_free(&c->watch.monitor);
}
