// The server of a task: chooses the task, and is an RPC server with the services that a coordinator uses.
#include "base/system.h"
#include "cluster/cluster.h"
#include "comm/sessions/net.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"

#include <muster/cancellation.h>
#include <muster/server.h>

#include <pthread.h>

#define PAUSE_NS 50000000

struct mu_server {
    mu_object object;
    mu_rpc_server *rpc; // retained
    mu_cluster_spec *spec;
    char *target;
    bool started;
    atomic_bool stopped, drained; // drained: a client has asked it to end
};

static void server_destroy(void *object)
{
    mu_server *server = object;
    mu_release(server->rpc);
    mu_release(server->spec);
    mu__free(server->target);
}

static mu_type server_type = {.name = "server", .destroy = server_destroy};

// ---- Which task ---------------------------------------------------------------------------------

static const mu_job *choose_job(const mu_cluster_spec *spec, const char *name)
{
    if (name == NULL && spec->n == 1)
        return &spec->items[0];
    const mu_job *job = name != NULL ? mu__spec_find(spec, name) : NULL;
    if (name == NULL)
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_server_new: the cluster has %zu jobs, and this process's is not known; give .job_name", spec->n);
    else if (job == NULL)
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_server_new: the cluster has no job \"%s\": %s; correct .job_name or add the job", name,
                  mu_cluster_spec_json(spec));
    return job;
}

static const mu_task *choose_task(const mu_job *job, int index)
{
    if (index < 0 && job->n == 1)
        return &job->items[0];
    const mu_task *task = index >= 0 ? mu__job_find(job, index) : NULL;
    if (index < 0)
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_server_new: the job %s has %zu tasks, and this process's is not known; give .task_index",
                  job->name, job->n);
    else if (task == NULL)
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_server_new: the job %s has no task %d, but %zu others; correct .task_index or the cluster",
                  job->name, index, job->n);
    return task;
}

// The arguments count more than what the cluster says of this process.
static const mu_task *own_task(const mu_server_args *args, const mu_cluster_view *view, const mu_job **out)
{
    const bool own_job =
        args->job_name == NULL || (view->task_type != NULL && strcmp(args->job_name, view->task_type) == 0);
    const mu_job *job = choose_job(view->spec, args->job_name != NULL ? args->job_name : view->task_type);
    const int index = MU_GIVEN(args, task_index) ? args->task_index : own_job ? view->task_id : -1;
    if (MU_GIVEN(args, task_index) && index < 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_server_new: task_index is %d; it cannot be negative", index);
        return NULL;
    }
    *out = job;
    return job != NULL ? choose_task(job, index) : NULL;
}

// ---- Making -------------------------------------------------------------------------------------

// Does what SIGTERM does, for a client with the cluster's key: the server takes no new calls from here on, and
// mu_server_join ends it.
static mu_value *drain(mu_value *arguments, void *arg)
{
    mu_server *server = arg;
    (void)arguments;
    mu__log(MU_LOG_INFO, "a client asks this server to end");
    mu__server_drain(server->rpc, 0);
    atomic_store(&server->drained, true);
    return NULL;
}

static mu_status make_rpc(mu_server *server, const mu_server_args *args)
{
    mu_cluster_view view = {0};
    const mu_job *job = NULL;
    mu_status status = mu__cluster_read(args->cluster, &view);
    const mu_task *task = status == MU_OK ? own_task(args, &view, &job) : NULL;
    mu_pool *pool = mu_pool_open();
    if (task != NULL && mu__key_suits_task(job->name, task->index) == MU_OK) {
        server->spec = mu__spec_copy(view.spec);
        server->rpc = mu_retain(mu_rpc_server_new("muster", task->address));
    }
    mu_pool_close(pool);
    mu__view_clear(&view);
    if (server->spec == NULL || server->rpc == NULL)
        return mu_error_code();
    mu__server_accept_workers(server->rpc);
    return MU_OK;
}

static mu_status fill(mu_server *server, const mu_server_args *args)
{
    MU_TRY(make_rpc(server, args));
    mu_kept *kept = mu__kept_new(args->max_bytes > 0 ? (size_t)args->max_bytes : SIZE_MAX);
    mu_status added = kept != NULL ? mu__service_add(server->rpc, kept) : mu_error_code();
    if (added == MU_OK)
        added = mu__stores_add(server->rpc, kept);
    if (added == MU_OK)
        added = mu__function_service_add(server->rpc, kept);
    mu_release(kept);
    if (added == MU_OK)
        added = mu__server_add(
            server->rpc, &(mu_rpc_server_register_args){.name = "muster.server.drain", .fn = drain, .arg = server});
    return added;
}

mu_server *mu_server_new_with(const mu_server_args *given)
{
    static const char function[] = "mu_server_new";
    mu_server_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, function) != MU_OK ||
        mu__need(args.cluster, "mu_server_new: the cluster") != MU_OK ||
        mu__args_positive(&args, "max_bytes", args.max_bytes, function) != MU_OK)
        return NULL;
    if (args.protocol != NULL && strcmp(args.protocol, "muster") != 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_server_new: the protocol \"%.60s\" does not exist here; use \"muster\"",
                  args.protocol);
        return NULL;
    }
    mu_server *server = mu__new(&server_type, sizeof *server);
    if (server == NULL)
        return NULL;
    if (fill(server, &args) == MU_OK && (args.no_start || mu_server_start(server) == MU_OK))
        return mu__give(server);
    mu_release(server);
    return NULL;
}

mu_server *mu_server_create_local_server(bool start)
{
    if (mu__pending())
        return NULL;
    mu_cluster *cluster = mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"local\": [\"localhost:0\"]}"));
    return cluster != NULL ? mu_server_new(cluster, .no_start = !start) : NULL;
}

// ---- Serving ------------------------------------------------------------------------------------

mu_status mu_server_start(mu_server *server)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(server, "mu_server_start: the server"));
    if (server->started)
        return MU_OK;
    MU_TRY(mu_rpc_server_start(server->rpc));
    server->target = mu__sprintf("muster://%s", mu_rpc_server_address(server->rpc));
    server->started = server->target != NULL;
    return server->started ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

const char *mu_server_target(mu_server *server)
{
    if (mu__need(server, "mu_server_target: the server") != MU_OK)
        return NULL;
    if (server->target == NULL)
        mu__error(MU_FAILED_PRECONDITION, "mu_server_target: the server was not started (mu_server_start)");
    return server->target;
}

mu_cluster_spec *mu_server_spec(mu_server *server)
{
    if (mu__pending() || mu__need(server, "mu_server_spec: the server") != MU_OK)
        return NULL;
    return mu__give(mu__spec_copy(server->spec));
}

static mu_status wait_for_end(mu_server *server)
{
    while (!atomic_load(&server->stopped)) {
        const bool asked = atomic_load(&server->drained);
        if (asked || mu__stopped() != MU_OK) {
            mu__server_drain(server->rpc, mu__setting_real(MU_SETTING_DRAIN));
            return mu_error_code();
        }
        if (mu_cancellation_is_cancelled(mu__context()->cancellation))
            return mu__error(MU_CANCELLED, "mu_server_join: this thread was cancelled");
        mu__sleep_ns(PAUSE_NS);
    }
    return MU_OK;
}

mu_status mu_server_join(mu_server *server)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(server, "mu_server_join: the server"));
    if (!server->started)
        return mu__error(MU_FAILED_PRECONDITION, "mu_server_join: the server was not started (mu_server_start)");
    mu__stop_hold(); // a signal does not stop the calls that run
    const mu_status status = wait_for_end(server);
    mu__stop_let_go();
    return status;
}

mu_status mu_server_stop(mu_server *server)
{
    MU_TRY(mu__need(server, "mu_server_stop: the server"));
    atomic_store(&server->stopped, true);
    return mu_rpc_server_stop(server->rpc);
}

int mu__server_metrics(const mu_server *server) { return mu__server_metrics_port(server->rpc); }

int mu_server_main(mu_cluster *cluster)
{
    mu_stop_on_signals();
    mu_server *server = mu_server_new(cluster);
    if (server == NULL)
        return mu_exit(false);
    mu__log(MU_LOG_INFO, "serving at %s", mu_server_target(server));
    if (mu_server_join(server) == MU_CANCELLED)
        mu_error_take(); // it was asked to end
    return mu_exit(true);
}
