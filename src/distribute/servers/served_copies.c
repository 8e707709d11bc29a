// Variables of a strategy that survive their servers: the thread that repeats the steps of the placement (store.h), and
// the numbers that it reports.
#include "distribute/strategies/parameter_server.h"
#include "rpc/stores/store.h"

typedef struct mu_served_copies {
    mu_placement *placement; // owned
    mu_store_client *client; // owned
    mu_monitor wake;         // its lock is taken last
    pthread_mutex_t lock;    // of the placement
    bool has_lock, woken, ending;
    bool ready; // under `wake`: every store has what it is to have
    mu_worker *thread;
} mu_served_copies;

// ---- The thread ---------------------------------------------------------------------------------

static void wake(void *arg)
{
    mu_served_copies *copies = arg;
    pthread_mutex_lock(&copies->wake.lock);
    copies->woken = true;
    pthread_cond_broadcast(&copies->wake.changed);
    pthread_mutex_unlock(&copies->wake.lock);
}

static int64_t step(mu_served_copies *copies, bool *ready)
{
    pthread_mutex_lock(&copies->lock);
    const int64_t due_ns = mu__placement_step(copies->placement);
    *ready = mu__placement_ready(copies->placement);
    pthread_mutex_unlock(&copies->lock);
    return due_ns;
}

static void watch(void *arg)
{
    mu_served_copies *copies = arg;
    pthread_mutex_lock(&copies->wake.lock);
    while (!copies->ending) {
        bool ready;
        copies->woken = false;
        pthread_mutex_unlock(&copies->wake.lock);
        const int64_t due_ns = step(copies, &ready);
        pthread_mutex_lock(&copies->wake.lock);
        if (ready && !copies->ready)
            pthread_cond_broadcast(&copies->wake.changed);
        copies->ready = ready;
        while (!copies->woken && !copies->ending && mu__monitor_wait(&copies->wake, due_ns))
            ;
    }
    pthread_mutex_unlock(&copies->wake.lock);
}

// ---- Beginning and end --------------------------------------------------------------------------

static mu_status start(mu_served_copies *copies, const mu_servers *servers,
                       const mu_parameter_server_strategy_args *args)
{
    mu_rpc_client **clients = mu__calloc((size_t)servers->n, sizeof(mu_rpc_client *));
    for (int i = 0; clients != NULL && i < servers->n; i++)
        clients[i] = servers->servers[i].client;
    copies->client = clients != NULL ? mu__store_client_new(servers->n, clients) : NULL;
    if (copies->client != NULL)
        copies->placement =
            mu__placement_new(&(mu_placement_options){.n = servers->n,
                                                      .servers = clients,
                                                      .client = copies->client,
                                                      .replicas = args->replicas,
                                                      .snapshot_seconds = args->snapshot_every,
                                                      .folder = args->snapshot_folder,
                                                      .heartbeat = mu__setting_real(MU_SETTING_HEARTBEAT)});
    mu__free(clients);
    if (copies->placement == NULL)
        return mu_error_code();
    mu__placement_on_change(copies->placement, wake, copies);
    copies->thread = mu__worker_new("copies", NULL, 1, mu__runtime());
    return copies->thread != NULL ? mu__worker_post(copies->thread, watch, copies) : mu_error_code();
}

static mu_status wait_until_ready(mu_served_copies *copies)
{
    const double limit = mu__setting_real(MU_SETTING_TIMEOUT);
    const int64_t deadline_ns = mu__deadline_ns(limit);
    mu_status status = MU_OK;
    pthread_mutex_lock(&copies->wake.lock);
    while (!copies->ready && status == MU_OK && mu__monitor_wait(&copies->wake, deadline_ns))
        status = mu__check_stop();
    const bool ready = copies->ready;
    pthread_mutex_unlock(&copies->wake.lock);
    if (status != MU_OK || ready)
        return status;
    return mu__error(MU_UNAVAILABLE,
                     "the parameter servers have no complete copies after %g s (MUSTER_TIMEOUT); look at their logs",
                     limit);
}

mu_status mu__served_copies_begin(mu_servers *servers, const mu_parameter_server_strategy_args *args)
{
    if (args->replicas == 0 && args->snapshot_every <= 0)
        return MU_OK;
    if (args->replicas >= servers->n)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_parameter_server_strategy: a copy is on another server, and the cluster has %d; add one, "
                         "or leave replicas out",
                         servers->n);
    mu_served_copies *copies = mu__calloc(1, sizeof *copies);
    if (copies == NULL)
        return MU_RESOURCE_EXHAUSTED;
    servers->copies = copies;
    MU_TRY(mu__monitor_init(&copies->wake, "copies"));
    copies->has_lock = mu__lock_init(&copies->lock, "the copies of servers");
    if (!copies->has_lock)
        return mu_error_code();
    MU_TRY(start(copies, servers, args));
    return wait_until_ready(copies);
}

void mu__served_copies_end(mu_servers *servers)
{
    mu_served_copies *copies = servers->copies;
    if (copies == NULL)
        return;
    if (copies->thread != NULL) {
        pthread_mutex_lock(&copies->wake.lock);
        copies->ending = true;
        pthread_cond_broadcast(&copies->wake.changed);
        pthread_mutex_unlock(&copies->wake.lock);
        mu__worker_free(copies->thread);
    }
    mu_release(copies->placement);
    mu_release(copies->client);
    mu__monitor_free(&copies->wake);
    if (copies->has_lock)
        pthread_mutex_destroy(&copies->lock);
    mu__free(copies);
    servers->copies = NULL;
}

// ---- Numbers ------------------------------------------------------------------------------------

mu_status mu_parameter_server_recovery(mu_strategy *strategy, mu_ps_recovery *out)
{
    MU_TRY(mu__need(strategy, "mu_parameter_server_recovery: the strategy"));
    MU_TRY(mu__need(out, "mu_parameter_server_recovery: the result"));
    if (strategy->servers == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_parameter_server_recovery: the strategy is %s; give one of mu_parameter_server_strategy",
                         mu_strategy_name(strategy));
    *out = (mu_ps_recovery){0};
    mu_served_copies *copies = strategy->servers->copies;
    if (copies == NULL)
        return MU_OK;
    pthread_mutex_lock(&copies->lock);
    const mu_placement_numbers numbers = mu__placement_numbers(copies->placement);
    pthread_mutex_unlock(&copies->lock);
    *out = (mu_ps_recovery){.failovers = numbers.failovers,
                            .restores = numbers.restores,
                            .snapshots = numbers.snapshots,
                            .failed_snapshots = numbers.failed_snapshots,
                            .updates_lost = numbers.updates_lost,
                            .copies_behind = numbers.behind};
    return MU_OK;
}
