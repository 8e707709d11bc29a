// ParameterServerStrategy: its constructor, and the round-robin placement of its variables on the servers.
//
// A server in this process is a lock that is held for one effect on its variables (served_run.c); remote_servers.c
// has those in other processes. The coordinator decides which function runs on which worker.
#include "distribute/strategies/parameter_server.h"

#include "cluster/cluster.h"
#include "distribute/servers/aggregation.h"
#include "distribute/variables/sharded_variable.h"
#include "rpc/services/service.h"

static const char constructor[] = "mu_parameter_server_strategy";

// ---- Variables ----------------------------------------------------------------------------------

int mu__variable_server(const mu_variable *variable)
{
    const mu_strategy *strategy = variable->owner;
    const mu_servers *servers = strategy ? strategy->servers : NULL;
    for (int i = 0; servers && i < servers->n; i++)
        if (servers->remote ? variable->resource.home == servers->servers[i].client
                            : variable->resource.lock == &servers->servers[i].lock)
            return i;
    return -1;
}

// The partitioner was asked, and is not asked again.
static mu_variable *make_parts(int64_t parts, const mu_variable_args *args)
{
    mu_partitioner *chosen = mu_fixed_shards_partitioner(parts);
    return mu_retain(mu_sharded_variable_new(
        args->initial_value, args->name, .partitioner = chosen, .not_trainable = args->not_trainable,
        .trainable = args->trainable, .synchronization = args->synchronization, .aggregation = args->aggregation));
}

static mu_variable *make_whole(mu_strategy *strategy, const mu_variable_args *args, int server)
{
    mu_servers *servers = strategy->servers;
    if (servers->remote && server >= 0)
        return mu__make_remote_variable(strategy, args, server);
    mu_variable *variable = mu__make_plain_variable(strategy, args);
    if (variable)
        variable->resource.lock = server >= 0 ? &servers->servers[server].lock : NULL;
    return variable;
}

mu_variable *mu__make_served_variable(mu_strategy *strategy, const mu_variable_args *args)
{
    mu_servers *servers = strategy->servers;
    const mu_strategy_scope *scope = (const mu_strategy_scope *)mu__context()->scope;
    const bool colocated = scope && scope->colocated, whole = colocated || (scope && scope->part);
    const mu_spec spec = mu__spec_of(args->initial_value);
    const int64_t parts =
        whole ? 1 : mu__partition_count(servers->partitioner, &spec, args->name ? args->name : "Variable");
    if (parts != 1)
        return parts > 1 ? make_parts(parts, args) : NULL;
    const int server = colocated ? scope->server : (int)(atomic_fetch_add(&servers->n_placed, 1) % servers->n);
    mu_variable *variable = make_whole(strategy, args, server);
    if (variable && servers->aggregation)
        variable->rules = &mu__deferred_rules;
    return variable;
}

// Each counts as a variable in the order of the servers. Those of servers in this process have locks of their own.
mu_accumulator *mu__make_served_accumulator(mu_strategy *strategy, const mu_conditional_accumulator_args *args,
                                            bool sparse)
{
    mu_servers *servers = strategy->servers;
    const int server = (int)(atomic_fetch_add(&servers->n_placed, 1) % servers->n);
    if (!servers->remote)
        return NULL;
    const char *wanted = args->shared_name ? args->shared_name : args->name ? args->name : "conditional_accumulator";
    const char *name = mu__new_name(servers, wanted);
    return name ? mu__remote_accumulator_new(servers->servers[server].client, name, args, sparse) : NULL;
}

const char *mu_variable_device(const mu_variable *variable)
{
    if (mu__need(variable, "mu_variable_device: the variable") != MU_OK)
        return NULL;
    char name[64];
    const int server = mu__variable_server(variable);
    snprintf(name, sizeof name, "/job:ps/replica:0/task:%d/device:CPU:0", server);
    return server >= 0 ? mu__text_give(name) : NULL;
}

mu_read_cache_guard mu_cache_variable_reads_open(void)
{
    return (mu_read_cache_guard){.cache = mu__pending() ? NULL : mu__read_cache_open(), .once = true};
}

void mu_cache_variable_reads_close(mu_read_cache_guard *guard)
{
    if (!guard)
        return;
    mu__read_cache_close(guard->cache);
    guard->cache = NULL;
    guard->once = false;
}

// ---- Making the strategy ------------------------------------------------------------------------

void mu__servers_free(mu_servers *servers)
{
    if (!servers)
        return;
    mu__served_copies_end(servers);
    for (int i = 0; i < servers->n_made; i++) {
        pthread_mutex_destroy(&servers->servers[i].lock);
        mu_release(servers->servers[i].client);
    }
    for (size_t i = 0; i < servers->names.n; i++)
        mu__free(servers->names.items[i]);
    mu__free(servers->names.items);
    pthread_mutex_destroy(&servers->outside);
    pthread_mutex_destroy(&servers->coordinator_lock);
    pthread_mutex_destroy(&servers->names_lock);
    for (int i = 0; servers->workers && i < servers->n_workers; i++)
        mu_release(servers->workers[i]);
    mu__free(servers->workers);
    mu__aggregation_free(servers->aggregation);
    mu_release(servers->partitioner);
    mu__free(servers->servers);
    mu__free(servers->worker_devices);
    mu__free(servers);
}

static mu_status make_servers(mu_servers *servers, int n_servers, int n_workers)
{
    const int n_devices = mu__device_count(mu__runtime());
    servers->servers = mu__calloc((size_t)n_servers, sizeof *servers->servers);
    servers->worker_devices = mu__calloc((size_t)n_workers, sizeof *servers->worker_devices);
    if (n_devices < 1 || !servers->servers || !servers->worker_devices)
        return mu_error_code();
    servers->n = n_servers;
    servers->n_workers = n_workers;
    for (; servers->n_made < n_servers; servers->n_made++)
        if (pthread_mutex_init(&servers->servers[servers->n_made].lock, NULL) != 0)
            return mu__error(MU_RESOURCE_EXHAUSTED, "%s: the system cannot make the locks of %d servers; free memory",
                             constructor, n_servers);
    for (int i = 0; i < n_workers; i++) {
        char name[32];
        snprintf(name, sizeof name, "CPU:%d", i % n_devices);
        if (!(servers->worker_devices[i] = mu__device_by_name(mu__runtime(), name)))
            return mu_error_code();
    }
    return MU_OK;
}

static mu_status reach(mu_servers *servers, const mu_cluster_spec *spec, const mu_parameter_server_strategy_args *args)
{
    if (!servers->remote)
        return MU_OK;
    MU_TRY(mu__servers_reach(servers, spec));
    return mu__served_copies_begin(servers, args);
}

static mu_servers *new_servers(mu_cluster *cluster, const mu_parameter_server_strategy_args *args)
{
    mu_cluster_view view = {0};
    mu_servers *servers = NULL;
    if (mu__cluster_read(cluster, &view) == MU_OK && (servers = mu__calloc(1, sizeof *servers))) {
        pthread_mutex_init(&servers->outside, NULL);
        pthread_mutex_init(&servers->coordinator_lock, NULL);
        pthread_mutex_init(&servers->names_lock, NULL);
        servers->partitioner = mu_retain(args->partitioner);
        servers->remote = !args->in_process;
        if (make_servers(servers, mu__spec_count(view.spec, "ps"), mu__spec_count(view.spec, "worker")) != MU_OK ||
            reach(servers, view.spec, args) != MU_OK) {
            mu__servers_free(servers);
            servers = NULL;
        }
    }
    mu__view_clear(&view);
    return servers;
}

static mu_status add_aggregation(mu_servers *servers, const mu_parameter_server_strategy_args *args)
{
    const bool synchronous = MU_GIVEN(args, replicas_to_aggregate);
    if (!synchronous && !args->visitation_guarantee)
        return MU_OK;
    servers->aggregation = mu__aggregation_new(synchronous ? args->replicas_to_aggregate : 1, synchronous);
    return servers->aggregation ? MU_OK : mu_error_code();
}

static mu_status check_args(const mu_parameter_server_strategy_args *args)
{
    if (args->replicas < 0 || args->replicas > 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: replicas is %d; give 0 or 1", constructor, args->replicas);
    if (!(args->snapshot_every >= 0))
        return mu__error(MU_INVALID_ARGUMENT, "%s: snapshot_every is %g s; it cannot be negative", constructor,
                         args->snapshot_every);
    if (args->snapshot_every > 0 && !args->snapshot_folder)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: snapshot_every is given without snapshot_folder; give the folder where servers write snapshots",
            constructor);
    if (args->in_process && (args->replicas > 0 || args->snapshot_every > 0))
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: servers in this process end with it: leave replicas and snapshot_every out, and save checkpoints",
            constructor);
    if ((args->replicas_to_aggregate > 0 || args->visitation_guarantee) && args->snapshot_every > 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: going back to a snapshot undoes steps whose data counts as used, so replicas_to_aggregate and "
            "visitation_guarantee cannot be combined with snapshot_every; give replicas instead",
            constructor);
    return MU_OK;
}

mu_strategy *mu_parameter_server_strategy_with(const mu_parameter_server_strategy_args *given)
{
    mu_parameter_server_strategy_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, constructor) != MU_OK)
        return NULL;
    mu_cluster *cluster = args.cluster_resolver ? args.cluster_resolver : mu_cluster_from_environment();
    if (!cluster || mu__check_parameter_servers(cluster) != MU_OK ||
        mu__args_positive(&args, "replicas_to_aggregate", args.replicas_to_aggregate, constructor) != MU_OK)
        return NULL;
    mu_servers *servers = check_args(&args) == MU_OK ? new_servers(cluster, &args) : NULL;
    mu_strategy *strategy = servers && add_aggregation(servers, &args) == MU_OK
                                ? mu__strategy_new(&mu__parameter_server_ops, 1, servers->worker_devices)
                                : NULL;
    if (!strategy) {
        mu__servers_free(servers);
        return NULL;
    }
    strategy->servers = servers;
    strategy->cluster = mu_retain(cluster);
    return mu__give(mu__strategy_announce(strategy));
}

int mu_strategy_ps_count(const mu_strategy *strategy)
{
    return strategy && strategy->servers ? strategy->servers->n : 0;
}

int mu_strategy_ps_worker_count(const mu_strategy *strategy)
{
    return strategy && strategy->servers ? strategy->servers->n_workers : 0;
}
