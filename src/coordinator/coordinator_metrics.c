// The numbers of a coordinator, as Prometheus reads them: calls that wait and run, what became of them on each worker,
// how long they took, and what became of lost servers.
#include "coordinator/coordinator.h"

#include "rpc/server/call_metrics.h"

static mu_status put_counter(mu_text *out, const mu_coordinator *c, const char *name,
                             int64_t (*of)(const mu_dispatcher *worker))
{
    MU_TRY(mu__text_put(out, "# TYPE muster_%s_total counter\n", name));
    for (int i = 0; i < c->n_workers; i++)
        MU_TRY(mu__text_put(out, "muster_%s_total{worker=\"%d\"} %lld\n", name, i, (long long)of(&c->workers[i])));
    return MU_OK;
}

static int64_t done_by(const mu_dispatcher *d) { return d->done; }
static int64_t failed_by(const mu_dispatcher *d) { return d->failed; }
static int64_t retried_by(const mu_dispatcher *d) { return d->retried; }
static int64_t dropped_by(const mu_dispatcher *d) { return d->dropped; }

static mu_status put_workers(mu_text *out, const mu_coordinator *c)
{
    MU_TRY(put_counter(out, c, "worker_calls_done", done_by));
    MU_TRY(put_counter(out, c, "worker_calls_failed", failed_by));
    MU_TRY(put_counter(out, c, "worker_calls_retried", retried_by));
    MU_TRY(put_counter(out, c, "worker_calls_dropped", dropped_by));
    MU_TRY(mu__text_put(out, "# TYPE muster_worker_lost gauge\n"));
    for (int i = 0; i < c->n_workers; i++)
        MU_TRY(mu__text_put(out, "muster_worker_lost{worker=\"%d\"} %d\n", i, (int)c->workers[i].lost));
    MU_TRY(mu__text_put(out, "# TYPE muster_worker_slow gauge\n"));
    for (int i = 0; i < c->n_workers; i++)
        MU_TRY(mu__text_put(out, "muster_worker_slow{worker=\"%d\"} %d\n", i, (int)mu__watch_is_slow(&c->workers[i])));
    MU_TRY(mu__text_put(out, "# TYPE muster_worker_call_seconds gauge\n"));
    for (int i = 0; i < c->n_workers; i++)
        MU_TRY(mu__text_put(out, "muster_worker_call_seconds{worker=\"%d\"} %.3f\n", i,
                            mu__watch_call_age(&c->workers[i])));
    return MU_OK;
}

static mu_status put_time(mu_text *out, const char *name, const mu_coordinator_times *times)
{
    MU_TRY(mu__text_put(out, "# TYPE muster_%s_seconds summary\nmuster_%s_seconds_sum %.9g\n", name, name, times->sum));
    return mu__text_put(out, "muster_%s_seconds_count %lld\n", name, (long long)times->n);
}

static mu_status put_times(mu_text *out, mu_coordinator *c)
{
    static const char *const names[MU_TIMED_KINDS] = {"function_tracing", "closure_execution", "remote_value_fetch"};
    mu_coordinator_times times[MU_TIMED_KINDS];
    pthread_mutex_lock(&c->times.lock);
    memcpy(times, c->times.of, sizeof times);
    pthread_mutex_unlock(&c->times.lock);
    for (int i = 0; i < MU_TIMED_KINDS; i++)
        MU_TRY(put_time(out, names[i], &times[i]));
    return MU_OK;
}

static mu_status put_recovery(mu_text *out, mu_coordinator *c)
{
    mu_ps_recovery recovery;
    MU_TRY(mu_parameter_server_recovery(c->strategy, &recovery));
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"failovers", recovery.failovers},
                {"restores", recovery.restores},
                {"snapshots", recovery.snapshots},
                {"failed_snapshots", recovery.failed_snapshots},
                {"updates_lost", recovery.updates_lost}};
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        MU_TRY(mu__text_put(out, "# TYPE muster_%s_total counter\nmuster_%s_total %lld\n", rows[i].name, rows[i].name,
                            (long long)rows[i].value));
    return mu__metrics_gauge(out, "copies_behind", recovery.copies_behind);
}

static mu_status write_metrics(void *arg, mu_text *out)
{
    mu_coordinator *c = arg;
    int64_t waiting, running;
    mu__closures_count(c->queue, &waiting, &running);
    MU_TRY(mu__metrics_gauge(out, "calls_queued", (double)waiting));
    MU_TRY(mu__metrics_gauge(out, "calls_in_flight", (double)running));
    MU_TRY(mu__metrics_gauge(out, "workers_lost", c->n_lost));
    MU_TRY(put_workers(out, c));
    MU_TRY(put_times(out, c));
    return put_recovery(out, c);
}

mu_status mu__coordinator_serve_metrics(mu_coordinator *c)
{
    const int port = (int)mu__setting_int(MU_SETTING_METRICS_PORT);
    if (port < 0)
        return MU_OK;
    c->metrics = mu__metrics_http_new(port, write_metrics, c, c->strategy->runtime);
    if (!c->metrics)
        return mu_error_code();
    mu__log(MU_LOG_INFO, "the coordinator's numbers are at http://127.0.0.1:%d/metrics",
            mu__metrics_http_port(c->metrics));
    return MU_OK;
}

int mu__coordinator_metrics_port(const mu_coordinator *c)
{
    return c->metrics ? mu__metrics_http_port(c->metrics) : -1;
}
