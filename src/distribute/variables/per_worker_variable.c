// Per-worker variables: each worker has a value of its own, and so has this process.
//
// Workers in this process have a component each, after that of the process. A worker in another process is a server
// too: it keeps its value under the variable's name, and a function that runs there reaches it as it reaches any
// variable of a server, with the worker itself as the server. Here component 1 is then the initial value, from which a
// worker's value is made when the worker gets the first function that uses it.
#include "base/system.h"
#include "distribute/strategies/parameter_server.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"

#define PAUSE_NS 10000000

static const char no_name[] = "Variable";

// ---- Making one ---------------------------------------------------------------------------------

static mu_status check(const mu_strategy *strategy, const mu_variable_args *args)
{
    const char *name = args->name ? args->name : no_name;
    if (!strategy->servers)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s': per_worker_variable is for parameter servers, and this is a %s; leave it out",
                         name, mu_strategy_name(strategy));
    if (args->trainable)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s': a per-worker variable is not trainable; leave trainable out", name);
    return MU_OK;
}

// The kind of variables; when the last handle is released, workers in other processes are informed.
static mu_resource_kind kind;
static pthread_once_t kind_once = PTHREAD_ONCE_INIT;

static void forget(mu_resource *resource)
{
    const mu_strategy *strategy = ((const mu_variable *)resource)->owner;
    const mu_servers *servers = strategy ? strategy->servers : NULL;
    for (int i = 0; servers && servers->workers && i < servers->n_workers; i++)
        mu__client_forget(servers->workers[i], MU_RELEASED_VALUE, resource->name);
}

static void make_kind(void)
{
    kind = mu__variable_kind;
    kind.forget = forget;
}

mu_variable *mu__make_per_worker_variable(mu_strategy *strategy, const mu_variable_args *given)
{
    mu_variable_args args = *given;
    if (check(strategy, &args) != MU_OK)
        return NULL;
    args.not_trainable = true;
    args.name = mu__new_name(strategy->servers, args.name ? args.name : no_name);
    const int n = strategy->servers->remote ? 2 : 1 + strategy->servers->n_workers;
    mu_variable *variable = args.name ? mu__variable_make(&args, args.initial_value, n) : NULL;
    if (!variable)
        return NULL;
    pthread_once(&kind_once, make_kind);
    variable->resource.kind = &kind;
    variable->resource.per_worker = true;
    variable->owner = mu_retain(strategy);
    return variable;
}

// ---- Values in other processes ------------------------------------------------------------------

static mu_status make_on(mu_rpc_client *worker, const mu_variable *variable)
{
    mu_error_value error = {0};
    if (mu__remote_variable_create(worker, variable->resource.name, variable->components[1]) == MU_OK)
        return MU_OK;
    mu__error_move(&error);
    return error.code == MU_ALREADY_EXISTS ? MU_OK : mu__error_raise(&error);
}

mu_status mu__per_worker_values_make(mu_rpc_client *worker, const mu_graph *graph)
{
    for (size_t i = 0; i < graph->resources.n; i++)
        if (graph->resources.items[i]->per_worker)
            MU_TRY(make_on(worker, (const mu_variable *)graph->resources.items[i]));
    return MU_OK;
}

// Makes the value if the worker has run nothing yet that uses it.
static mu_tensor *read_on(mu_rpc_client *worker, const mu_variable *variable)
{
    mu_resource *there = mu__give(mu__remote_variable(worker, variable->resource.name, &variable->resource.spec));
    mu_tensor *value = NULL;
    if (there && mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &there, &value) == MU_NOT_FOUND) {
        mu_error_take();
        if (make_on(worker, variable) == MU_OK)
            mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &there, &value);
    }
    return mu__pending() ? NULL : value;
}

// A worker that is away may come back. One that has just come back is cleared by the coordinator, which may be between
// the two halves of read_on: then the value is made again.
static bool may_come(mu_status code) { return code == MU_UNAVAILABLE || code == MU_NOT_FOUND; }

static mu_tensor *wait_for(mu_rpc_client *worker, const mu_variable *variable)
{
    const int64_t deadline = mu__deadline_ns(mu__setting_real(MU_SETTING_TIMEOUT));
    mu_tensor *value = NULL;
    while (!(value = read_on(worker, variable)) && may_come(mu_error_code()) && mu__now_ns() < deadline) {
        mu_error_take();
        if (mu__check_stop() != MU_OK)
            return NULL;
        mu__sleep_ns(PAUSE_NS);
    }
    return value;
}

// ---- All values ---------------------------------------------------------------------------------

static mu_tensor *read_of(mu_variable *variable, int worker)
{
    const mu_servers *servers = ((const mu_strategy *)variable->owner)->servers;
    return servers->remote ? wait_for(servers->workers[worker], variable)
                           : mu__variable_component(variable, 1 + worker);
}

mu_value *mu_variable_read_all(mu_variable *variable)
{
    if (mu__pending() || mu__need(variable, "mu_variable_read_all: the variable") != MU_OK)
        return NULL;
    if (!variable->resource.per_worker) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_variable_read_all: '%s' has one value for all workers; read it with mu_variable_read",
                  variable->resource.name);
        return NULL;
    }
    const int n = mu_strategy_ps_worker_count(variable->owner);
    mu_value **values = mu__calloc((size_t)n, sizeof *values);
    for (int i = 0; values && i < n && !mu__pending(); i++)
        values[i] = mu_of(read_of(variable, i));
    mu_value *all = values && !mu__pending() ? mu_list_of(n, values) : NULL;
    mu__free(values);
    return all;
}
