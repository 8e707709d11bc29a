// Parameter servers in other processes: reaches them, and makes variables there.
//
// A variable's value is on its server only. Its resource names the server (mu_resource.home), so every op on it becomes
// one request (rpc/remote/remote_variable.c), whether this process applies the op or a worker does.
#include "base/system.h"
#include "cluster/cluster.h"
#include "distribute/strategies/parameter_server.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"

#define PAUSE_NS 50000000

// ---- Reaching them ------------------------------------------------------------------------------

// A call fails at once while a task is unreachable; the caller decides what that means. A worker may have only its own
// key; a parameter server has the cluster's.
static mu_rpc_client *client_of(const mu_cluster_spec *spec, const char *job, int i)
{
    char name[64];
    const bool worker = strcmp(job, "worker") == 0;
    snprintf(name, sizeof name, "%s %d", worker ? "worker" : "parameter server", i);
    return mu__client_of_task(mu__spec_find(spec, job)->items[i].address, name, MU_ROLE_COORDINATOR,
                              worker ? i + 1 : MU_BEARER_ALL);
}

// Tries until the server has answered.
static mu_status try_to_clear(mu_rpc_client *client, int64_t deadline)
{
    while (mu__remote_variables_clear(client) != MU_OK) {
        if (mu_error_code() != MU_UNAVAILABLE)
            return mu_error_code();
        if (mu__now_ns() >= deadline) {
            mu__error_append("; start this parameter server (muster serve), or allow more time (MUSTER_TIMEOUT)");
            return mu_error_code();
        }
        mu_error_take();
        MU_TRY(mu__check_stop());
        mu__sleep_ns(PAUSE_NS);
    }
    return MU_OK;
}

static mu_status clear_server(mu_rpc_client *client, int i, int64_t deadline)
{
    char text[80];
    snprintf(text, sizeof text, "mu_parameter_server_strategy: parameter server %d: ", i);
    if (try_to_clear(client, deadline) == MU_OK)
        mu__client_keep(client);
    else
        mu__error_begin(0, text);
    return mu_error_code();
}

mu_status mu__servers_reach(mu_servers *servers, const mu_cluster_spec *spec)
{
    const int64_t deadline = mu__deadline_ns(mu__setting_real(MU_SETTING_TIMEOUT));
    if (!(servers->workers = mu__calloc((size_t)servers->n_workers, sizeof(mu_rpc_client *))))
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < servers->n_workers; i++)
        if (!(servers->workers[i] = client_of(spec, "worker", i)))
            return mu_error_code();
    for (int i = 0; i < servers->n; i++) {
        if (!(servers->servers[i].client = client_of(spec, "ps", i)))
            return mu_error_code();
        MU_TRY(clear_server(servers->servers[i].client, i, deadline));
    }
    return MU_OK;
}

// ---- Variables ----------------------------------------------------------------------------------

static bool is_taken(const mu_servers *servers, const char *name)
{
    for (size_t i = 0; i < servers->names.n; i++)
        if (strcmp(servers->names.items[i], name) == 0)
            return true;
    return false;
}

const char *mu__new_name(mu_servers *servers, const char *wanted)
{
    pthread_mutex_lock(&servers->names_lock);
    char *name = mu__strdup(wanted);
    for (int number = 1; name && is_taken(servers, name); number++) {
        mu__free(name);
        name = mu__sprintf("%s_%d", wanted, number);
    }
    if (name && MU_PUSH(&servers->names, name) != MU_OK) {
        mu__free(name);
        name = NULL;
    }
    pthread_mutex_unlock(&servers->names_lock);
    return name;
}

// From here on the server has the value, and this process none.
static mu_status move_to_server(mu_variable *variable, mu_rpc_client *client)
{
    MU_TRY(mu__remote_variable_create(client, variable->resource.name, variable->components[0]));
    mu__variable_empty(variable);
    variable->components = NULL;
    variable->poisoned = NULL;
    variable->residences = NULL;
    variable->resource.kind = &mu__remote_variable_kind;
    variable->resource.home = mu_retain(client);
    return MU_OK;
}

mu_variable *mu__make_remote_variable(mu_strategy *strategy, const mu_variable_args *given, int server)
{
    mu_servers *servers = strategy->servers;
    mu_variable_args args = *given;
    args.name = mu__new_name(servers, given->name ? given->name : "Variable");
    mu_variable *variable = args.name ? mu__make_plain_variable(strategy, &args) : NULL;
    if (variable && move_to_server(variable, servers->servers[server].client) == MU_OK)
        return variable;
    mu_release(variable);
    return NULL;
}
