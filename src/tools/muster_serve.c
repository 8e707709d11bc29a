// `muster serve`: a worker or a parameter server of a cluster, until it is asked to end; or it asks another one to end.
#include "base/system.h"
#include "comm/sessions/net.h"
#include "rpc/services/service.h"
#include "tools/tools.h"

#include <muster/server.h>

enum { JOB, TASK, ADDRESS, MAX_BYTES, DRAIN };
#define POLL_NS 20000000
#define GRACE_S 10.0 // that a server needs to end beside its calls

static const char *const jobs[] = {"worker", "ps", NULL};

static const mu_tool_option options[] = {
    [JOB] = {.name = "job",
             .value = "JOB",
             .choices = jobs,
             .text = "job of this task; default: as in the cluster's description"},
    [TASK] = {.name = "task",
              .value = "N",
              .text = "index of this task in its job; default: as in the cluster's description"},
    [ADDRESS] = {.name = "address",
                 .value = "HOST:PORT",
                 .text = "where to listen, port 0: the system chooses; then no other description of the cluster is "
                         "needed; default: the task's in the cluster"},
    [MAX_BYTES] = {.name = "max-bytes",
                   .value = "BYTES",
                   .initial = "0",
                   .text = "most bytes of all its variables together, copies of others' among them; 0: no limit"},
    [DRAIN] = {.name = "drain",
               .value = "HOST:PORT",
               .text = "serve nothing: ask the server at this address to end, and wait until it has"},
    {.text = NULL},
};

// The cluster of the environment, or of the options alone.
static mu_cluster *find_cluster(const mu_tool_arguments *a, const char *job, int task)
{
    if (a->values[ADDRESS] == NULL)
        return mu_cluster_from_environment();
    mu_cluster_spec *spec = mu_cluster_spec_parse("{}");
    if (mu_cluster_spec_add(spec, job != NULL ? job : "worker", task, a->values[ADDRESS]) != MU_OK)
        return NULL;
    return mu_simple_cluster_resolver(spec, .task_type = job != NULL ? job : "worker", .task_id = task);
}

static mu_server *make_server(const mu_tool_arguments *a)
{
    const char *job = a->values[JOB];
    int task = 0;
    double max_bytes = 0;
    if ((a->values[TASK] != NULL && mu__tool_whole(a, TASK, 0, 65535, &task) != MU_OK) ||
        mu__tool_number(a, MAX_BYTES, "bytes", 0, 1e15, &max_bytes) != MU_OK)
        return NULL;
    mu_cluster *cluster = find_cluster(a, job, task);
    if (cluster == NULL)
        return NULL;
    mu_server_args args = {.size = sizeof args,
                           .cluster = cluster,
                           .job_name = job,
                           .task_index = task,
                           .given = a->values[TASK] != NULL ? ".task_index" : NULL,
                           .max_bytes = (int64_t)max_bytes};
    const bool named = job != NULL || mu_cluster_task_type(cluster) != NULL;
    mu_server *server = mu_server_new_with(&args);
    if (server == NULL && !named && mu_error_code() == MU_INVALID_ARGUMENT)
        mu__error_context("muster serve takes the task as --job and --task, and without a description of the cluster "
                          "--address HOST:PORT");
    return server;
}

// ---- Another server's end -----------------------------------------------------------------------

static const char *address_of(const char *text)
{
    static const char layer[] = "muster://";
    return strncmp(text, layer, sizeof layer - 1) == 0 ? text + sizeof layer - 1 : text;
}

// A server that is gone has closed the connection.
static mu_status wait_for_end(mu_rpc_client *client, const char *address)
{
    const double most = mu__setting_real(MU_SETTING_DRAIN) + GRACE_S;
    const int64_t deadline_ns = mu__deadline_ns(most);
    while (mu_rpc_client_server(client) != 0 && mu__now_ns() < deadline_ns) {
        MU_TRY(mu__check_stop());
        mu__sleep_ns(POLL_NS);
    }
    if (mu_rpc_client_server(client) == 0)
        return MU_OK;
    return mu__error(MU_DEADLINE_EXCEEDED,
                     "the server at %s takes no new calls, but has not ended after %g s; see what it does "
                     "(MUSTER_LOG=info), or raise MUSTER_DRAIN, which both processes read",
                     address, most);
}

static int drain_main(const char *text)
{
    const char *address = address_of(text);
    mu_rpc_client *client = mu_init() == MU_OK && mu_stop_on_signals() == MU_OK
                                ? mu__give(mu__client_of_task(address, NULL, MU_ROLE_NONE, MU_BEARER_ANY_WORKER))
                                : NULL;
    if (client == NULL)
        return mu_exit(false);
    mu__remote_call(client, "muster.server.drain", mu__remote_subject(NULL, "draining a server", NULL), NULL);
    if (mu__pending() || wait_for_end(client, address) != MU_OK)
        return mu_exit(false);
    printf("%s has ended\n", address);
    return mu_exit(mu__tool_flush());
}

static int serve_main(const mu_tool_arguments *a)
{
    if (a->values[DRAIN] != NULL)
        return drain_main(a->values[DRAIN]);
    mu_server *server = mu_init() == MU_OK && mu_stop_on_signals() == MU_OK ? make_server(a) : NULL;
    if (server == NULL)
        return mu_exit(false);
    printf("%s\n", mu_server_target(server));
    if (mu__server_metrics(server) >= 0)
        printf("http://127.0.0.1:%d/metrics\n", mu__server_metrics(server));
    const bool flushed = mu__tool_flush();
    if (mu_server_join(server) == MU_CANCELLED)
        mu_error_take(); // it was asked to end
    return mu_exit(flushed);
}

const mu_tool_command mu__tool_serve = {
    .name = "muster serve",
    .usage = "[OPTION]...",
    .summary = "be a worker or a parameter server of a cluster",
    .description = "Serves a coordinator: keeps variables, and applies to them what the coordinator and the workers "
                   "send. Its task and the addresses come from TF_CONFIG or another source that `muster config` lists, "
                   "or from the options.\n\n"
                   "Prints the address at which it listens, \"muster://HOST:PORT\", and serves until SIGTERM or "
                   "SIGINT. Then it refuses new calls, waits up to MUSTER_DRAIN seconds for those that run, and ends "
                   "with the exit code 0. `muster serve --drain HOST:PORT` requests the same from another machine, "
                   "with the cluster's key, and returns when the server has ended. With MUSTER_METRICS_PORT it answers "
                   "GET /metrics on the loopback. Between hosts, all processes need the same MUSTER_CLUSTER_KEY; a "
                   "worker may use a key of its own instead, which `muster key --for worker:N` derives from it.",
    .example = "muster serve --job ps --address 127.0.0.1:2222\nmuster serve --drain 127.0.0.1:2222\n",
    .options = options,
    .needs = "it takes no operands",
    .main = serve_main,
};
