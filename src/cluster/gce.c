// Clusters of Google Compute Engine machines: asks its API for the running instances of an instance group.
//
// Each query asks: a token at the machine's metadata server, the instances page by page, the address of each. Answers
// are untrusted until checked: their size, the number of pages and instances, each name and each address. Reference:
// the Compute Engine API v1, instanceGroups.listInstances and instances.get; "View and query VM metadata".
#include "cluster/cluster.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <stdlib.h>

enum { DEFAULT_PORT = 8470, MAX_PAGES = 1024, MAX_TOKEN = 8192 };
static const double default_seconds = 30, most_seconds = 86400, metadata_seconds = 5;

// What the resolver was given; owned.
typedef struct gce {
    char *project, *zone, *group, *job, *rpc_layer, *token, *api, *metadata_address;
    int port, task_id;
    double seconds;
} gce;

// One query of the resolver.
typedef struct gce_query {
    const gce *g;
    char *zone_url, *header; // where the zone's resources are; the line with the token
    int64_t end_ns;          // the deadline of all requests together
    mu_hosts addresses;
} gce_query;

static void gce_free(void *object)
{
    gce *g = object;
    if (g == NULL)
        return;
    char *const texts[] = {g->project, g->zone, g->group, g->job, g->rpc_layer, g->token, g->api, g->metadata_address};
    for (size_t i = 0; i < MU_COUNT(texts); i++)
        mu__free(texts[i]);
    mu__free(g);
}

// ---- Requests -----------------------------------------------------------------------------------

// A name of the API, which may become a part of a path: of a project (an old one: "example.com:name"), zone, ...
static bool is_name(const char *text)
{
    static const char *const first = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const size_t length = strnlen(text, MU_MAX_NAME + 1);
    if (length == 0 || length > MU_MAX_NAME || strchr(first, text[0]) == NULL)
        return false;
    for (size_t i = 1; i < length; i++)
        if (strchr(first, text[i]) == NULL && strchr("-_.:", text[i]) == NULL)
            return false;
    return true;
}

// A token becomes a part of a header line, where white space and control characters would end it.
static bool is_token(const char *text)
{
    const size_t length = strnlen(text, MAX_TOKEN + 1);
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return length > 0 && length <= MAX_TOKEN;
}

// The seconds that are left to a query; 0 with an error if there are none.
static double seconds_left(const gce_query *q)
{
    const double left = (double)(q->end_ns - mu__now_ns()) / 1e9;
    if (left >= 1e-3)
        return left;
    mu__error(MU_DEADLINE_EXCEEDED,
              "Compute Engine did not name all instances within %g s; a large group needs more (.timeout_seconds)",
              q->g->seconds);
    return 0;
}

// Asks the API; post: the request's body, NULL for a GET. The caller owns the object; NULL with an error.
static json_t *ask(const gce_query *q, const char *url, const char *post)
{
    const double seconds = url != NULL ? seconds_left(q) : 0;
    char *answer =
        seconds > 0
            ? mu__https_request(&(mu_https_request){.url = url, .header = q->header, .post = post, .seconds = seconds})
            : NULL;
    json_t *json = answer != NULL ? mu__json_parse(answer, "Compute Engine's answer") : NULL;
    mu__free(answer);
    return json;
}

static char *header_of(const char *token) { return mu__sprintf("Authorization: Bearer %s", token); }

// The header line with the token of this machine's service account. The caller owns it; NULL with an error.
static char *ask_authorization(const gce_query *q)
{
    const char *host = q->g->metadata_address ? q->g->metadata_address : mu__environment("GCE_METADATA_HOST");
    char *answer = mu__metadata_get(host != NULL ? host : "metadata.google.internal", "service-accounts/default/token",
                                    MU_MIN(metadata_seconds, q->g->seconds));
    json_t *json = answer != NULL ? mu__json_parse(answer, "the metadata server's answer") : NULL;
    const char *token = json_string_value(json_object_get(json, "access_token"));
    char *header = token != NULL && is_token(token) ? header_of(token) : NULL;
    if (header == NULL && !mu__pending())
        mu__error(MU_DATA_LOSS, "the metadata server's answer has no usable access_token (1 to %d visible characters)",
                  (int)MAX_TOKEN);
    if (header == NULL)
        mu__error_append("; the token of this machine's service account was asked for: on a machine that has none "
                         "give .token (gcloud auth print-access-token prints one)");
    json_decref(json);
    mu__free(answer);
    return header;
}

// ---- Answers ------------------------------------------------------------------------------------

// Adds "ip:port" of an instance, whose name the API has sent.
static mu_status add_address(gce_query *q, const char *name, const char *ip)
{
    unsigned char binary[sizeof(struct in6_addr)];
    if (ip == NULL)
        return mu__error(MU_DATA_LOSS,
                         "Compute Engine says that instance \"%s\" runs, but not its address "
                         "(networkInterfaces[0].networkIP); give it an internal IPv4 address",
                         name);
    const bool v6 = inet_pton(AF_INET6, ip, binary) == 1;
    if (!v6 && inet_pton(AF_INET, ip, binary) != 1)
        return mu__error(MU_DATA_LOSS,
                         "Compute Engine says that the address of instance \"%s\" is \"%.80s\", which is "
                         "no IP address",
                         name, ip);
    if (q->addresses.n >= MU_MAX_TASKS)
        return mu__error(MU_DATA_LOSS, "Compute Engine lists more than %d instances", MU_MAX_TASKS);
    char *address = mu__sprintf(v6 ? "[%s]:%d" : "%s:%d", ip, q->g->port);
    const mu_status status = address != NULL ? MU_PUSH(&q->addresses, address) : MU_RESOURCE_EXHAUSTED;
    if (status != MU_OK)
        mu__free(address);
    return status;
}

// One item of the list: its URL ends with the instance's name.
static mu_status add_instance(gce_query *q, const json_t *item)
{
    const char *resource = json_string_value(json_object_get(item, "instance"));
    const char *slash = resource != NULL ? strrchr(resource, '/') : NULL, *name = slash != NULL ? slash + 1 : resource;
    if (name == NULL || !is_name(name))
        return mu__error(MU_DATA_LOSS, "Compute Engine lists an instance as \"%.200s\"; expected …/instances/NAME",
                         resource != NULL ? resource : "");
    char *url = mu__sprintf("%s/instances/%s", q->zone_url, name);
    json_t *details = ask(q, url, NULL);
    mu__free(url);
    if (details == NULL)
        return mu_error_code();
    const json_t *interface = json_array_get(json_object_get(details, "networkInterfaces"), 0);
    const mu_status status = add_address(q, name, json_string_value(json_object_get(interface, "networkIP")));
    json_decref(details);
    return status;
}

// Asks for one page and the addresses on it. *next: the next page's token, owned by the caller; NULL after the last.
static mu_status read_page(gce_query *q, const char *page, char **next)
{
    char *encoded = mu__url_encode(page);
    char *url = encoded != NULL ? mu__sprintf("%s/instanceGroups/%s/listInstances?orderBy=name%s%s", q->zone_url,
                                              q->g->group, page[0] != '\0' ? "&pageToken=" : "", encoded)
                                : NULL;
    json_t *list = ask(q, url, "{\"instanceState\": \"RUNNING\"}");
    mu__free(url);
    mu__free(encoded);
    if (list == NULL)
        return mu_error_code();
    const json_t *items = json_object_get(list, "items"), *token = json_object_get(list, "nextPageToken");
    mu_status status = MU_OK;
    if ((items != NULL && !json_is_array(items)) || (token != NULL && !json_is_string(token)))
        status = mu__error(MU_DATA_LOSS, "Compute Engine's answer is not a list of instances");
    for (size_t i = 0; status == MU_OK && i < json_array_size(items); i++)
        status = add_instance(q, json_array_get(items, i));
    if (status == MU_OK && token != NULL && json_string_length(token) > 0)
        status = mu__text_set(next, json_string_value(token));
    json_decref(list);
    return status;
}

static mu_status read_pages(gce_query *q)
{
    char *page = mu__strdup("");
    mu_status status = page != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int n = 0; status == MU_OK && page != NULL; n++) {
        char *next = NULL;
        status = n < MAX_PAGES ? read_page(q, page, &next)
                               : mu__error(MU_DATA_LOSS, "Compute Engine's list has more than %d pages", MAX_PAGES);
        mu__free(page);
        page = next;
    }
    mu__free(page);
    return status;
}

// ---- The resolver -------------------------------------------------------------------------------

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// Without instances the job is there, and has no tasks: an empty cluster would mean that this process is alone.
static mu_status fill_spec(gce_query *q, mu_cluster_spec *spec)
{
    const gce *g = q->g;
    q->header = g->token != NULL ? header_of(g->token) : ask_authorization(q);
    q->zone_url = mu__sprintf("%s/projects/%s/zones/%s", g->api, g->project, g->zone);
    if (q->header == NULL || q->zone_url == NULL || mu__spec_job(spec, g->job) == NULL)
        return mu_error_code();
    MU_TRY(read_pages(q));
    if (q->addresses.n > 0)
        qsort(q->addresses.items, q->addresses.n, sizeof *q->addresses.items, by_text);
    for (size_t i = 0; i < q->addresses.n; i++)
        MU_TRY(mu_cluster_spec_add(spec, g->job, -1, q->addresses.items[i]));
    return MU_OK;
}

static mu_status gce_read(mu_cluster *cluster, mu_cluster_view *out)
{
    const gce *g = cluster->state;
    gce_query q = {.g = g, .end_ns = mu__now_ns() + (int64_t)(g->seconds * 1e9)};
    out->spec = mu__spec_new();
    out->task_id = g->task_id;
    if (out->spec == NULL)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(mu__text_set(&out->task_type, g->job));
    MU_TRY(mu__text_set(&out->rpc_layer, g->rpc_layer));
    const mu_status status = fill_spec(&q, out->spec);
    if (status != MU_OK)
        mu__error_append("; this was to find the instances of group \"%s\" in zone \"%s\" of project \"%s\"", g->group,
                         g->zone, g->project);
    mu__hosts_free(&q.addresses);
    mu__free(q.zone_url);
    mu__free(q.header);
    return status;
}

static const mu_resolver_ops gce_ops = {
    .source = "the Compute Engine API", .read = gce_read, .free_state = gce_free, .task_type_is_fixed = true};

// ---- Creation -----------------------------------------------------------------------------------

static mu_status keep_name(char **out, const char *option, const char *name)
{
    if (name == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_gce_cluster_resolver: .%s is missing; project, zone and "
                         "instance_group are needed",
                         option);
    if (!is_name(name))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_gce_cluster_resolver: %s is \"%.80s\"; expected 1 to %d letters, digits, -, _, . and :, "
                         "the first a letter or digit",
                         option, name, (int)MU_MAX_NAME);
    return mu__text_set(out, name);
}

static mu_status keep_numbers(gce *g, const mu_gce_cluster_resolver_args *args)
{
    g->port = args->port != 0 || mu__args_text(args, "port", 3) != NULL ? args->port : DEFAULT_PORT;
    g->task_id = args->task_id;
    g->seconds = MU_GIVEN(args, timeout_seconds) ? args->timeout_seconds : default_seconds;
    if (g->port < 1 || g->port > 65535)
        return mu__error(MU_INVALID_ARGUMENT, "mu_gce_cluster_resolver: port is %d; expected 1 to 65535", g->port);
    if (g->task_id < 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_gce_cluster_resolver: task_id is %d; expected 0 or more", g->task_id);
    if (!(g->seconds >= 1e-3 && g->seconds <= most_seconds))
        return mu__error(MU_INVALID_ARGUMENT, "mu_gce_cluster_resolver: timeout_seconds is %g; expected 0.001 to %g",
                         g->seconds, most_seconds);
    return MU_OK;
}

static mu_status fill(gce *g, const mu_gce_cluster_resolver_args *args)
{
    MU_TRY(keep_name(&g->project, "project", args->project));
    MU_TRY(keep_name(&g->zone, "zone", args->zone));
    MU_TRY(keep_name(&g->group, "instance_group", args->instance_group));
    MU_TRY(keep_numbers(g, args));
    if (args->token != NULL && !is_token(args->token))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_gce_cluster_resolver: the token is empty, has more than %d characters, or white space or "
                         "control characters in it",
                         (int)MAX_TOKEN);
    MU_TRY(mu__text_set(&g->job, args->task_type != NULL ? args->task_type : "worker"));
    MU_TRY(mu__text_set(&g->rpc_layer, args->rpc_layer != NULL ? args->rpc_layer : "grpc"));
    MU_TRY(mu__text_set(&g->token, args->token));
    MU_TRY(mu__text_set(&g->api, args->api != NULL ? args->api : "https://compute.googleapis.com/compute/v1"));
    MU_TRY(mu__text_set(&g->metadata_address, args->metadata_address));
    mu_cluster_spec *trial = mu__spec_new();
    const bool usable = trial != NULL && mu__spec_job(trial, g->job) != NULL;
    mu_release(trial);
    return usable ? MU_OK : mu_error_code();
}

mu_cluster *mu_gce_cluster_resolver_with(const mu_gce_cluster_resolver_args *given)
{
    mu_gce_cluster_resolver_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_gce_cluster_resolver") != MU_OK)
        return NULL;
    mu_cluster *cluster = mu__cluster_new(&gce_ops);
    if (cluster == NULL)
        return NULL;
    gce *g = cluster->state = mu__calloc(1, sizeof *g);
    if (g == NULL || fill(g, &args) != MU_OK) {
        mu_release(cluster);
        return NULL;
    }
    return mu__give(cluster);
}
