// The cluster of a TPU: this host's own, workers at given addresses, or one that is looked up by name.
//
// Names are looked up in the environment that Google Kubernetes Engine and TPU virtual machines set, then at the
// metadata server. Its answers are untrusted: their length, the number of workers and each address are checked.
// Reference: Google Cloud, "View and query VM metadata"; the attributes instance-id and worker-network-endpoints of
// TPU machines.
#include "cluster/cluster.h"
#include "comm/sessions/net.h"
#include "engine/engine.h"

#include <arpa/inet.h>

enum { WORKER_PORT = 8470, LONGEST_ADDRESS = 300 };
static const double metadata_seconds = 5;

// What the resolver was given; owned.
typedef struct tpu_source {
    char *tpu, *job_name, *coordinator_name, *coordinator_address, *metadata_address;
} tpu_source;

static void source_free(void *object)
{
    tpu_source *source = object;
    if (source == NULL)
        return;
    char *const texts[] = {source->tpu, source->job_name, source->coordinator_name, source->coordinator_address,
                           source->metadata_address};
    for (size_t i = 0; i < MU_COUNT(texts); i++)
        mu__free(texts[i]);
    mu__free(source);
}

static bool is_local(const char *tpu) { return tpu[0] == '\0' || strcmp(tpu, "local") == 0; }

static bool is_address_list(const char *tpu) { return strchr(tpu, ':') != NULL; }

// ---- Lists of workers ---------------------------------------------------------------------------

// One worker of a list: "grpc://10.0.0.2:8470" or "10.0.0.2:8470"; with default_port also a host alone.
static mu_status add_worker(mu_cluster_spec *spec, const char *job, const char *text, size_t length, bool default_port)
{
    char address[LONGEST_ADDRESS];
    if (length >= 7 && strncmp(text, "grpc://", 7) == 0) {
        text += 7;
        length -= 7;
    }
    const bool port = memchr(text, ':', length) != NULL;
    if (length == 0 || length + 8 > sizeof address || (!port && !default_port))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tpu_cluster_resolver: \"%.*s\" is not the address of a worker; expected host:port, as in "
                         "grpc://10.0.0.2:%d",
                         (int)MU_MIN(length, (size_t)80), text, (int)WORKER_PORT);
    if (port)
        snprintf(address, sizeof address, "%.*s", (int)length, text);
    else
        snprintf(address, sizeof address, "%.*s:%d", (int)length, text, (int)WORKER_PORT);
    return mu_cluster_spec_add(spec, job, -1, address);
}

static mu_status add_workers(mu_cluster_spec *spec, const char *job, const char *list, bool default_port)
{
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        MU_TRY(add_worker(spec, job, at, length, default_port));
        at += length;
        if (*at == '\0')
            return MU_OK;
    }
}

// ---- Names --------------------------------------------------------------------------------------

// An attribute of this machine. The caller owns it; NULL with an error. `name`: the TPU, for messages.
static char *ask_metadata(const char *address, const char *attribute, const char *name)
{
    char *answer = mu__metadata_get(address, attribute, metadata_seconds);
    if (!answer)
        mu__error_append("; it is the metadata server, which knows the hosts of the TPU \"%.80s\". Other hosts wait "
                         "for this one: start it again, or give all of them the hosts' addresses (grpc://host:%d)",
                         name, (int)WORKER_PORT);
    return answer;
}

// The attribute lists the workers as "id:port:address", separated by commas.
static mu_status add_endpoints(mu_cluster_spec *spec, const char *job, const char *list)
{
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",\r\n");
        const char *port = memchr(at, ':', length);
        const char *host = port ? memchr(port + 1, ':', length - (size_t)(port + 1 - at)) : NULL;
        if (host == NULL)
            return mu__error(MU_DATA_LOSS,
                             "the metadata server describes a TPU worker as \"%.*s\"; expected id:port:address",
                             (int)MU_MIN(length, (size_t)80), at);
        MU_TRY(add_worker(spec, job, host + 1, length - (size_t)(host + 1 - at), true));
        at += length;
        if (*at != ',')
            return MU_OK;
    }
}

static mu_status refuse_name(const char *name, const char *known)
{
    return mu__error(MU_NOT_FOUND,
                     "mu_tpu_cluster_resolver: no TPU named \"%.80s\" is known: %s. On a machine that has the TPU give "
                     ".tpu = \"local\"; else give the workers' addresses (grpc://host:%d), or .metadata_address",
                     name, known, (int)WORKER_PORT);
}

static mu_status look_up_metadata(const tpu_source *source, const char *name, mu_cluster_spec *spec)
{
    char known[160];
    const char *address = source->metadata_address ? source->metadata_address : mu__environment("GCE_METADATA_HOST");
    if (address == NULL || address[0] == '\0')
        return refuse_name(name, "TPU_NAME is not its name, and no metadata server is set");
    char *own = ask_metadata(address, "attributes/instance-id", name);
    if (own == NULL)
        return mu_error_code();
    own[strcspn(own, "\r\n")] = '\0';
    mu_status status = MU_OK;
    if (strcmp(own, name) == 0) {
        char *list = ask_metadata(address, "attributes/worker-network-endpoints", name);
        status = list ? add_endpoints(spec, source->job_name, list) : mu_error_code();
        mu__free(list);
    } else {
        snprintf(known, sizeof known, "the TPU of this machine is \"%.80s\"", own);
        status = refuse_name(name, known);
    }
    mu__free(own);
    return status;
}

// A TPU whose only worker is named by this machine's own environment or metadata is this machine's.
static mu_status look_up_name(const tpu_source *source, const char *name, mu_cluster_spec **spec)
{
    const char *own = mu__environment("TPU_NAME"), *hosts = mu__environment("TPU_WORKER_HOSTNAMES");
    const bool here = own != NULL && hosts != NULL && hosts[0] != '\0' && strcmp(own, name) == 0;
    MU_TRY(here ? add_workers(*spec, source->job_name, hosts, true) : look_up_metadata(source, name, *spec));
    if (mu__spec_count(*spec, source->job_name) > 1)
        return MU_OK;
    mu_release(*spec);
    return (*spec = mu__spec_new()) ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// ---- The resolver -------------------------------------------------------------------------------

static mu_status fill_spec(const tpu_source *source, mu_cluster_spec **spec)
{
    const char *endpoints = source->tpu ? NULL : mu__environment("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS");
    const char *tpu = source->tpu ? source->tpu : endpoints ? endpoints : mu__environment("TPU_NAME");
    if (tpu == NULL)
        return mu__error(MU_NOT_FOUND,
                         "mu_tpu_cluster_resolver: the environment names no TPU (KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS and "
                         "TPU_NAME are not set); give .tpu = \"local\" for the one of this host, or a name or address");
    if (is_local(tpu))
        return MU_OK;
    MU_TRY(is_address_list(tpu) ? add_workers(*spec, source->job_name, tpu, false) : look_up_name(source, tpu, spec));
    if (source->coordinator_address == NULL || mu__spec_count(*spec, source->job_name) == 0)
        return MU_OK;
    return mu_cluster_spec_add(*spec, source->coordinator_name ? source->coordinator_name : "coordinator", -1,
                               source->coordinator_address);
}

// The worker that this machine says it is; -1: it does not say.
static mu_status read_worker_id(int workers, int *out)
{
    *out = -1;
    return workers > 0 ? mu__environment_int("TPU_WORKER_ID", 0, workers - 1, out) : MU_OK;
}

static mu_status tpu_read(mu_cluster *cluster, mu_cluster_view *out)
{
    const tpu_source *source = cluster->state;
    int own;
    out->spec = mu__spec_new();
    if (out->spec == NULL)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(fill_spec(source, &out->spec));
    const int workers = mu__spec_count(out->spec, source->job_name);
    const bool local = workers == 0;
    MU_TRY(read_worker_id(cluster->task_id < 0 ? workers : 0, &own)); // a number set by hand needs none
    out->task_type = local ? NULL : mu__strdup(source->job_name);
    out->task_id = local ? -1 : MU_MAX(own, 0);
    out->rpc_layer = local ? NULL : mu__strdup("grpc");
    out->environment = mu__strdup("");
    out->accelerator_type = mu__strdup("TPU");
    out->num_accelerators = mu__tpu_core_count(mu__runtime());
    const bool whole = out->environment && out->accelerator_type && (local || (out->task_type && out->rpc_layer));
    return whole ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static const mu_resolver_ops tpu_ops = {
    .source = "the TPU", .read = tpu_read, .free_state = source_free, .no_master_without_task = true};

// ---- Which worker this process is ---------------------------------------------------------------

static bool is_endpoint(const mu_endpoint *endpoint, const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    const int family = endpoint->address.ss_family;
    if (family == AF_INET && inet_pton(AF_INET, host, &v4) == 1)
        return memcmp(&((const struct sockaddr_in *)&endpoint->address)->sin_addr, &v4, sizeof v4) == 0;
    return family == AF_INET6 && inet_pton(AF_INET6, host, &v6) == 1 &&
           memcmp(&((const struct sockaddr_in6 *)&endpoint->address)->sin6_addr, &v6, sizeof v6) == 0;
}

// The worker whose address an interface of this machine has; -1: none, or several have one.
static mu_status find_own_address(const mu_cluster_spec *spec, const char *job, int *out)
{
    mu_endpoints own;
    const mu_job *workers = mu__spec_find(spec, job);
    int found = 0;
    *out = -1;
    MU_TRY(mu__network_endpoints(&own));
    for (size_t i = 0; workers && i < workers->n; i++) {
        char host[MU_MAX_HOST + 1];
        int port;
        bool here = false;
        MU_TRY(mu__address_split(workers->items[i].address, host, &port));
        for (int k = 0; k < own.n; k++)
            here |= is_endpoint(&own.items[k], host);
        found += here;
        *out = here ? workers->items[i].index : *out;
    }
    *out = found == 1 ? *out : -1;
    return MU_OK;
}

mu_status mu__cluster_own_task(mu_cluster *cluster, const mu_cluster_spec *spec, const char *job, int *out)
{
    if (cluster->ops != &tpu_ops || cluster->task_id >= 0) {
        *out = mu_cluster_task_id(cluster);
        return mu_error_code();
    }
    MU_TRY(read_worker_id(mu__spec_count(spec, job), out));
    return *out >= 0 ? MU_OK : find_own_address(spec, job, out);
}

// ---- Making a resolver --------------------------------------------------------------------------

static mu_status keep_source(const mu_tpu_cluster_resolver_args *args, tpu_source *source)
{
    MU_TRY(mu__text_set(&source->tpu, args->tpu));
    MU_TRY(mu__text_set(&source->job_name, args->job_name ? args->job_name : "worker"));
    MU_TRY(mu__text_set(&source->coordinator_name, args->coordinator_name));
    MU_TRY(mu__text_set(&source->coordinator_address, args->coordinator_address));
    MU_TRY(mu__text_set(&source->metadata_address, args->metadata_address));
    if (source->coordinator_name && !source->coordinator_address)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_tpu_cluster_resolver: the coordinator \"%.80s\" has no address; give .coordinator_address too",
            source->coordinator_name);
    if (!source->tpu || !is_address_list(source->tpu))
        return MU_OK;
    mu_cluster_spec *trial = mu__spec_new();
    const mu_status status = trial ? add_workers(trial, source->job_name, source->tpu, false) : MU_RESOURCE_EXHAUSTED;
    mu_release(trial);
    return status;
}

mu_cluster *mu_tpu_cluster_resolver_with(const mu_tpu_cluster_resolver_args *given)
{
    mu_tpu_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_tpu_cluster_resolver") != MU_OK)
        return NULL;
    mu_cluster *cluster = mu__cluster_new(&tpu_ops);
    if (cluster == NULL)
        return NULL;
    tpu_source *source = cluster->state = mu__calloc(1, sizeof *source);
    if (source == NULL || keep_source(&args, source) != MU_OK) {
        mu_release(cluster);
        return NULL;
    }
    return mu__give(cluster);
}
