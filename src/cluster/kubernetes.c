// Clusters of Kubernetes pods: asks the API server for the pods that have a job's labels.
//
// The response is untrusted until checked: its size and the type of every field. Nothing is cached, because pods come
// and go. Reference: the Kubernetes API, "List all pods" (core/v1).
#include "cluster/cluster.h"

#include <jansson.h>
#include <stdlib.h>

enum { MAX_SELECTORS = 64, MAX_SECRET = 1 << 20 };
static const double seconds_to_wait = 30;

// A label selector, and the job that its pods form.
typedef struct selector {
    char *job, *labels;
} selector;

typedef struct kubernetes {
    size_t n;
    selector selectors[MAX_SELECTORS];
    int port;
    bool off_cluster;
    char *rpc_layer, *namespace_name, *api_server, *credentials;
} kubernetes;

typedef struct pod {
    const char *name, *host; // borrowed from the response
} pod;

static void kubernetes_free(void *object)
{
    kubernetes *k = object;
    if (k == NULL)
        return;
    for (size_t i = 0; i < k->n; i++) {
        mu__free(k->selectors[i].job);
        mu__free(k->selectors[i].labels);
    }
    char *const texts[] = {k->rpc_layer, k->namespace_name, k->api_server, k->credentials};
    for (size_t i = 0; i < MU_COUNT(texts); i++)
        mu__free(texts[i]);
    mu__free(k);
}

// ---- The request --------------------------------------------------------------------------------

// The API server's URL: given, or from the variables that every pod has. The caller owns it.
static char *server_of(const kubernetes *k)
{
    if (k->api_server != NULL)
        return mu__strdup(k->api_server);
    if (k->off_cluster)
        return mu__strdup("http://127.0.0.1:8001");
    const char *host = mu__environment("KUBERNETES_SERVICE_HOST"), *port = mu__environment("KUBERNETES_SERVICE_PORT");
    if (host != NULL && port != NULL)
        return mu__sprintf(strchr(host, ':') != NULL ? "https://[%s]:%s" : "https://%s:%s", host, port);
    mu__error(MU_FAILED_PRECONDITION,
              "mu_kubernetes_cluster_resolver: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so "
              "this is not a pod; give .location = MU_OFF_CLUSTER and run kubectl proxy, or .api_server");
    return NULL;
}

// The header line that proves the service account: its token, without the file's final newline. The caller owns it.
static char *read_authorization(const char *folder)
{
    char *path = mu__sprintf("%s/token", folder), *header = NULL;
    void *data = NULL;
    size_t bytes = 0;
    if (path != NULL && mu__file_read(path, MAX_SECRET, &data, &bytes) == MU_OK)
        header = mu__sprintf("Authorization: Bearer %.*s", (int)strcspn(data, "\r\n"), (const char *)data);
    mu__free(data);
    mu__free(path);
    return header;
}

// Requests the pods of one selector. The caller owns the response.
static char *ask(const kubernetes *k, const char *server, const char *labels)
{
    char *selector_text = mu__url_encode(labels),
         *space = k->namespace_name != NULL ? mu__url_encode(k->namespace_name) : NULL;
    char *url = NULL, *header = NULL, *ca_file = NULL, *answer = NULL;
    if (selector_text != NULL && space != NULL)
        url = mu__sprintf("%s/api/v1/namespaces/%s/pods?labelSelector=%s", server, space, selector_text);
    else if (selector_text != NULL)
        url = mu__sprintf("%s/api/v1/pods?labelSelector=%s", server, selector_text);
    if (url != NULL && k->credentials != NULL) {
        header = read_authorization(k->credentials);
        ca_file = mu__sprintf("%s/ca.crt", k->credentials);
    }
    if (url != NULL && (k->credentials == NULL || (header != NULL && ca_file != NULL)))
        answer = mu__https_request(
            &(mu_https_request){.url = url, .header = header, .ca_file = ca_file, .seconds = seconds_to_wait});
    mu__free(selector_text);
    mu__free(space);
    mu__free(url);
    mu__free(header);
    mu__free(ca_file);
    return answer;
}

// ---- The response -------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) { return strcmp(((const pod *)a)->name, ((const pod *)b)->name); }

static mu_status read_pod(const json_t *item, const char *labels, pod *out)
{
    const char *phase = NULL;
    *out = (pod){0};
    if (json_unpack((json_t *)item, "{s:{s:s}, s:{s:s}}", "metadata", "name", &out->name, "status", "phase", &phase) !=
        0)
        return mu__error(MU_DATA_LOSS, "the Kubernetes API's list of pods for \"%s\" has one without name or phase",
                         labels);
    if (strcmp(phase, "Running") != 0)
        return mu__error(MU_FAILED_PRECONDITION,
                         "pod \"%.200s\" of \"%s\" is %.40s; every pod of the cluster must be Running (kubectl "
                         "describe pod says why it is not)",
                         out->name, labels, phase);
    const json_t *host = json_object_get(json_object_get(item, "status"), "hostIP");
    out->host = json_string_value(host);
    if (out->host == NULL)
        return mu__error(MU_DATA_LOSS, "the Kubernetes API says that pod \"%.200s\" runs, but not on which host",
                         out->name);
    return MU_OK;
}

static mu_status add_pods(const kubernetes *k, const selector *s, const json_t *list, mu_cluster_spec *spec)
{
    const json_t *items = json_object_get(list, "items");
    const size_t n = json_array_size(items);
    if (!json_is_array(items) || n > MU_MAX_TASKS)
        return mu__error(MU_DATA_LOSS, "the Kubernetes API's answer for \"%s\" is not a list of at most %d pods",
                         s->labels, MU_MAX_TASKS);
    pod *pods = mu__calloc(n + 1, sizeof *pods);
    // Without pods the job is there, and has no tasks: an empty cluster would mean that this process is alone.
    mu_status status = pods != NULL && mu__spec_job(spec, s->job) != NULL ? MU_OK : mu_error_code();
    for (size_t i = 0; status == MU_OK && i < n; i++)
        status = read_pod(json_array_get(items, i), s->labels, &pods[i]);
    if (status == MU_OK)
        qsort(pods, n, sizeof *pods, by_name);
    for (size_t i = 0; status == MU_OK && i < n; i++) {
        char *address = mu__sprintf(strchr(pods[i].host, ':') != NULL ? "[%s]:%d" : "%s:%d", pods[i].host, k->port);
        status = address != NULL ? mu_cluster_spec_add(spec, s->job, -1, address) : MU_RESOURCE_EXHAUSTED;
        mu__free(address);
    }
    mu__free(pods);
    return status;
}

static mu_status kubernetes_read(mu_cluster *cluster, mu_cluster_view *out)
{
    const kubernetes *k = cluster->state;
    mu_status status = MU_OK;
    char *server = server_of(k);
    out->spec = mu__spec_new();
    out->rpc_layer = mu__strdup(k->rpc_layer);
    if (server == NULL || out->spec == NULL || out->rpc_layer == NULL)
        status = mu_error_code();
    for (size_t i = 0; status == MU_OK && i < k->n; i++) {
        char *answer = ask(k, server, k->selectors[i].labels);
        json_t *list = answer != NULL ? mu__json_parse(answer, "the Kubernetes API's answer") : NULL;
        status = list != NULL ? add_pods(k, &k->selectors[i], list, out->spec) : mu_error_code();
        json_decref(list);
        mu__free(answer);
    }
    mu__free(server);
    return status;
}

// ---- Creation -----------------------------------------------------------------------------------

static const mu_resolver_ops kubernetes_ops = {.source = "the Kubernetes API",
                                               .read = kubernetes_read,
                                               .free_state = kubernetes_free,
                                               .no_master_without_task = true};

static mu_status add_selectors(kubernetes *k, const mu_job_labels *jobs)
{
    for (; jobs->job != NULL; jobs++)
        for (const char *const *labels = jobs->labels; labels != NULL && !mu__texts_end(*labels); labels++) {
            if (k->n == MAX_SELECTORS)
                return mu__error(MU_INVALID_ARGUMENT, "mu_kubernetes_cluster_resolver: more than %d label selectors",
                                 MAX_SELECTORS);
            selector *s = &k->selectors[k->n++];
            s->job = mu__strdup(jobs->job);
            s->labels = mu__strdup(*labels);
            if (s->job == NULL || s->labels == NULL)
                return MU_RESOURCE_EXHAUSTED;
        }
    return k->n > 0 ? MU_OK
                    : mu__error(MU_INVALID_ARGUMENT, "mu_kubernetes_cluster_resolver: no label selector is given; "
                                                     "leave .jobs out for \"job-name=tensorflow\"");
}

static mu_status fill(kubernetes *k, const mu_kubernetes_cluster_resolver_args *args)
{
    static const char *const labels[] = {"job-name=tensorflow", NULL};
    static const mu_job_labels worker[] = {{"worker", labels}, {NULL, NULL}};
    if (args->location != MU_WITHIN_CLUSTER && args->location != MU_OFF_CLUSTER)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_kubernetes_cluster_resolver: location is %d; expected MU_WITHIN_CLUSTER or MU_OFF_CLUSTER",
                         (int)args->location);
    if (args->port < 0 || args->port > 65535)
        return mu__error(MU_INVALID_ARGUMENT, "mu_kubernetes_cluster_resolver: port is %d; expected 1 to 65535",
                         args->port);
    k->port = args->port != 0 ? args->port : 8470;
    k->off_cluster = args->location == MU_OFF_CLUSTER;
    MU_TRY(add_selectors(k, args->jobs != NULL ? args->jobs : worker));
    MU_TRY(mu__text_set(&k->rpc_layer, args->rpc_layer != NULL ? args->rpc_layer : "grpc"));
    MU_TRY(mu__text_set(&k->namespace_name, args->namespace_name));
    MU_TRY(mu__text_set(&k->api_server, args->api_server));
    const bool in_pod = !k->off_cluster && args->api_server == NULL;
    return mu__text_set(&k->credentials, args->credentials != NULL ? args->credentials
                                         : in_pod                  ? "/var/run/secrets/kubernetes.io/serviceaccount"
                                                                   : NULL);
}

mu_cluster *mu_kubernetes_cluster_resolver_with(const mu_kubernetes_cluster_resolver_args *given)
{
    mu_kubernetes_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_kubernetes_cluster_resolver") != MU_OK)
        return NULL;
    mu_cluster *cluster = mu__cluster_new(&kubernetes_ops);
    kubernetes *k = cluster != NULL ? cluster->state = mu__calloc(1, sizeof *k) : NULL;
    if (k == NULL || fill(k, &args) != MU_OK) {
        mu_release(cluster);
        return NULL;
    }
    return mu__give(cluster);
}
