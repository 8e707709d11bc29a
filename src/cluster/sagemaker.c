// SageMaker: SM_HOSTS, a JSON list of names, and SM_CURRENT_HOST, one of them. Every host is a worker.
//
// The resolver reads the variables again for every query and treats them as untrusted.
#include "cluster/cluster.h"

#include <jansson.h>
#include <stdlib.h>

enum { DEFAULT_PORT = 2223, MAX_HOST = 255 };

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static mu_status check_list(const json_t *list, const json_error_t *error)
{
    if (list == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "SM_HOSTS is not JSON: %s (column %d); expected a list of names, [\"algo-1\", \"algo-2\"]",
                         error->text, error->column);
    if (!json_is_array(list) || json_array_size(list) > MU_MAX_TASKS)
        return mu__error(MU_INVALID_ARGUMENT, "SM_HOSTS is not a list of at most %d names, [\"algo-1\", \"algo-2\"]",
                         MU_MAX_TASKS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const size_t bytes = json_string_length(json_array_get(list, i));
        if (bytes < 1 || bytes > MAX_HOST)
            return mu__error(MU_INVALID_ARGUMENT, "SM_HOSTS: entry %zu is no name of 1 to %d bytes", i, MAX_HOST);
    }
    return MU_OK;
}

// The workers in the order of their names; this process is the one on `own`.
static mu_status add_workers(const json_t *list, const char *own, int port, mu_cluster_view *out)
{
    const size_t n = json_array_size(list);
    char address[MAX_HOST + 16];
    mu_status status = MU_OK;
    const char **names = mu__calloc(n + 1, sizeof *names);
    if (names == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        names[i] = json_string_value(json_array_get(list, i));
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = n; i-- > 0;)
        out->task_id = strcmp(names[i], own) == 0 ? (int)i : out->task_id;
    for (size_t i = 0; i < n && out->task_id >= 0 && status == MU_OK; i++) {
        snprintf(address, sizeof address, "%s:%d", names[i], port);
        status = mu_cluster_spec_add(out->spec, "worker", -1, address);
    }
    mu__free(names);
    return status;
}

static mu_status sagemaker_read(mu_cluster *cluster, mu_cluster_view *out)
{
    const char *hosts = mu__environment("SM_HOSTS"), *own = mu__environment("SM_CURRENT_HOST");
    json_error_t error;
    out->task_id = -1;
    if (hosts == NULL || own == NULL)
        return mu__error(MU_FAILED_PRECONDITION,
                         "mu_sagemaker_cluster_resolver: %s is not set; SageMaker sets it for training jobs, elsewhere "
                         "choose another source of the cluster",
                         hosts == NULL ? "SM_HOSTS" : "SM_CURRENT_HOST");
    if ((out->spec = mu__spec_new()) == NULL)
        return mu_error_code();
    if (strnlen(hosts, MU_MAX_CLUSTER_TEXT + 1) > MU_MAX_CLUSTER_TEXT)
        return mu__error(MU_INVALID_ARGUMENT, "SM_HOSTS is longer than %d bytes", MU_MAX_CLUSTER_TEXT);
    json_t *list = json_loads(hosts, 0, &error);
    mu_status status = check_list(list, &error);
    if (status == MU_OK)
        status = add_workers(list, own, *(const int *)cluster->state, out);
    json_decref(list);
    if (status == MU_OK && out->task_id < 0)
        mu__log(MU_LOG_WARNING, "SM_CURRENT_HOST is \"%.80s\", which is not among SM_HOSTS; this process runs alone",
                own);
    if (status == MU_OK && out->task_id >= 0 && (out->task_type = mu__strdup("worker")) == NULL)
        status = MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && cluster->fixed.environment != NULL &&
        (out->environment = mu__strdup(cluster->fixed.environment)) == NULL)
        status = MU_RESOURCE_EXHAUSTED;
    return status;
}

static const mu_resolver_ops sagemaker_ops = {.source = "SM_HOSTS and SM_CURRENT_HOST",
                                              .read = sagemaker_read,
                                              .free_state = mu__free,
                                              .lone_task_is_local = true};

mu_cluster *mu_sagemaker_cluster_resolver_with(const mu_sagemaker_cluster_resolver_args *given)
{
    mu_sagemaker_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_sagemaker_cluster_resolver") != MU_OK)
        return NULL;
    const int port = args.port != 0 ? args.port : DEFAULT_PORT;
    if (port < 1 || port > UINT16_MAX) {
        mu__error(MU_INVALID_ARGUMENT, "mu_sagemaker_cluster_resolver: port is %d; expected 1 to 65535", port);
        return NULL;
    }
    mu_cluster *cluster = mu__cluster_new(&sagemaker_ops);
    int *state = cluster != NULL ? mu__alloc(sizeof *state) : NULL;
    if (state != NULL)
        *state = port;
    if (cluster != NULL)
        cluster->state = state;
    const int *id = MU_GIVEN(&args, task_id) ? &args.task_id : NULL;
    if (state == NULL || mu__cluster_override(cluster, args.task_type, id, args.rpc_layer) != MU_OK ||
        (args.environment != NULL && (cluster->fixed.environment = mu__strdup(args.environment)) == NULL)) {
        mu_release(cluster);
        return NULL;
    }
    return mu__give(cluster);
}
