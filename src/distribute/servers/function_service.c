// The worker's end of functions that a coordinator sends: keeps them, finds the servers of their variables, runs them.
//
// Everything that arrives is hostile until verified: mu__graph_read checks the graph, variables are reached only at the
// servers that the coordinator names, and inputs must fit the graph.
#include "distribute/servers/function_service.h"

#include "distribute/servers/input_service.h"
#include "distribute/strategies/parameter_server.h"
#include "engine/engine.h"
#include "rpc/server/call_metrics.h"
#include "rpc/remote/remote_table.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"
#include "rpc/stores/store.h"

enum { MOST_FUNCTIONS = 65536, MOST_SERVERS = 4096, MOST_CLUSTERS = 64 };

// One function. Of `concrete` only graph, lock and plans are used.
typedef struct function {
    mu_object object;
    int64_t number;
    mu_device *device;
    mu_concrete concrete;
    bool has_lock;
    mu_store_client *stores; // retained: through which its resources' clients go; NULL: they go there themselves
} function;

// The servers of a cluster whose stores have copies.
typedef struct cluster {
    mu_store_client *client; // owned
    int n;
    mu_rpc_client **servers; // [n] retained
} cluster;

typedef struct service {
    mu_object object;
    mu_rpc_server *server; // which keeps this
    pthread_mutex_t lock;  // of the lists
    bool has_lock;
    int64_t next_number;      // of the function that is registered next
    int next_device;          // likewise, among the worker's
    mu_worker_inputs *inputs; // retained by the server
    struct {
        function **items;
        size_t n, capacity;
    } functions; // retained
    struct {
        mu_rpc_client **items;
        size_t n, capacity;
    } servers; // clients of them, retained
    struct {
        cluster *items;
        size_t n, capacity;
    } clusters;
} service;

static void function_destroy(void *object)
{
    function *f = object;
    if (f->concrete.plans != NULL)
        f->concrete.free_plans(f->concrete.plans);
    mu_release(f->concrete.graph);
    mu_release(f->stores);
    if (f->has_lock)
        pthread_mutex_destroy(&f->concrete.lock);
}

static mu_type function_type = {.name = "remote function", .destroy = function_destroy};

static void free_cluster(cluster *c)
{
    mu_release(c->client);
    for (int i = 0; c->servers != NULL && i < c->n; i++)
        mu_release(c->servers[i]);
    mu__free(c->servers);
}

// What a coordinator has sent, and the connections that it was for: those of a coordinator before know of epochs that
// the next one need not know of. What runs keeps what it uses.
static void free_all(void *arg)
{
    service *s = arg;
    pthread_mutex_lock(&s->lock);
    service gone = *s;
    memset(&s->functions, 0, sizeof s->functions);
    memset(&s->clusters, 0, sizeof s->clusters);
    memset(&s->servers, 0, sizeof s->servers);
    pthread_mutex_unlock(&s->lock);
    while (gone.functions.n > 0)
        mu_release(gone.functions.items[--gone.functions.n]);
    while (gone.clusters.n > 0)
        free_cluster(&gone.clusters.items[--gone.clusters.n]);
    while (gone.servers.n > 0)
        mu_release(gone.servers.items[--gone.servers.n]);
    mu__free(gone.functions.items);
    mu__free(gone.clusters.items);
    mu__free(gone.servers.items);
}

static void service_destroy(void *object)
{
    service *s = object;
    if (!s->has_lock)
        return;
    free_all(s);
    pthread_mutex_destroy(&s->lock);
}

static mu_type service_type = {.name = "function service", .destroy = service_destroy};

// ---- The servers of variables -------------------------------------------------------------------

// A server that is away makes a function fail at once, so that the coordinator hears of it, or is tried again.
static mu_rpc_client *new_client(const char *address)
{
    return mu__client_of_task(address, NULL, MU_ROLE_WORKER, MU_BEARER_ALL);
}

// With the lock held.
static mu_rpc_client *server_at(service *s, const char *address)
{
    for (size_t i = 0; i < s->servers.n; i++)
        if (strcmp(mu__client_address(s->servers.items[i]), address) == 0)
            return s->servers.items[i];
    if (s->servers.n == MOST_SERVERS) {
        mu__error(MU_RESOURCE_EXHAUSTED, "this worker knows %d servers; no more are accepted", MOST_SERVERS);
        return NULL;
    }
    mu_rpc_client *client = new_client(address);
    if (client != NULL && MU_PUSH(&s->servers, client) == MU_OK)
        return client;
    mu_release(client);
    return NULL;
}

// ---- Servers whose stores have copies -----------------------------------------------------------

static bool is_cluster(const cluster *c, const mu_value *addresses)
{
    bool same = c->n == mu_value_count(addresses);
    for (int i = 0; i < c->n && same; i++) {
        char *address = NULL;
        same = mu__value_text(mu_value_at(addresses, i), "the address of a server", &address) == MU_OK &&
               strcmp(mu__client_address(c->servers[i]), address) == 0;
        mu__free(address);
    }
    return same;
}

static mu_status fill_cluster(cluster *c, const mu_value *addresses)
{
    const int n = mu_value_count(addresses);
    c->servers = mu__calloc((size_t)n, sizeof(mu_rpc_client *));
    for (; c->servers != NULL && c->n < n; c->n++) {
        char *address = NULL;
        if (mu__value_text(mu_value_at(addresses, c->n), "the address of a server", &address) == MU_OK)
            c->servers[c->n] = new_client(address);
        mu__free(address);
        if (c->servers[c->n] == NULL)
            return mu_error_code();
    }
    c->client = c->servers != NULL ? mu__store_client_new(n, c->servers) : NULL;
    return c->client != NULL ? MU_OK : mu_error_code();
}

// With the lock held. The clients of a cluster's servers in the order of its stores.
static const cluster *cluster_of(service *s, const mu_value *addresses)
{
    const int n = mu_value_count(addresses);
    cluster fresh = {0};
    for (size_t i = 0; i < s->clusters.n; i++)
        if (is_cluster(&s->clusters.items[i], addresses))
            return &s->clusters.items[i];
    if (mu__pending())
        return NULL;
    if (n < 1 || n > MOST_SERVERS || s->clusters.n == MOST_CLUSTERS)
        mu__error(MU_RESOURCE_EXHAUSTED,
                  "the function's cluster has %d servers (at most %d), and this worker knows %zu clusters (at most "
                  "%d); start the worker again",
                  n, MOST_SERVERS, s->clusters.n, MOST_CLUSTERS);
    else if (fill_cluster(&fresh, addresses) == MU_OK && MU_PUSH(&s->clusters, fresh) == MU_OK)
        return &s->clusters.items[s->clusters.n - 1];
    free_cluster(&fresh);
    return NULL;
}

// Where the variables of a graph that is read are: the list that came with it.
typedef struct homes {
    service *service;
    const mu_value *list;
    const mu_value *addresses; // of all servers, whose stores have copies; NULL: they have none
    mu_store_client *stores;   // retained: of that cluster, once it was needed
    struct {
        mu_resource **items;
        size_t n, capacity;
    } made; // of the pool: bodies have the resources around them
} homes;

// With the service's lock held; borrowed from the service.
static mu_rpc_client *client_of(homes *h, const char *address)
{
    const cluster *c = h->addresses != NULL ? cluster_of(h->service, h->addresses) : NULL;
    if (c != NULL && h->stores == NULL)
        h->stores = mu_retain(c->client);
    for (int i = 0; c != NULL && i < c->n; i++)
        if (strcmp(mu__client_address(c->servers[i]), address) == 0)
            return c->servers[i];
    return mu__pending() ? NULL : server_at(h->service, address); // none of the cluster: this worker's own values
}

// The client of the server whose address is element i of a list; of the pool.
static mu_rpc_client *client_at(homes *h, const mu_value *pair, int i)
{
    char *address = NULL;
    if (mu__value_text(mu_value_at(pair, i), "the address of a server", &address) != MU_OK)
        return NULL;
    pthread_mutex_lock(&h->service->lock);
    mu_rpc_client *client = mu_retain(client_of(h, address));
    pthread_mutex_unlock(&h->service->lock);
    mu__free(address);
    return mu__give(client);
}

// A variable or an accumulator, which has one server.
static mu_resource *make_single(homes *h, const mu_value *pair, const mu_resource_kind *kind, const mu_spec *spec,
                                const char *name)
{
    mu_rpc_client *client = client_at(h, pair, 1);
    return client != NULL ? mu__give(mu__remote_resource(client, kind, name, spec)) : NULL;
}

static mu_resource *make_table(homes *h, const mu_value *pair, const mu_spec *spec, const char *name)
{
    const int n = mu_value_count(pair) - 2;
    if (n < 1 || n > MOST_SERVERS || spec->dtype != MU_F32 || spec->shape.rank != 1) {
        mu__error(MU_INVALID_ARGUMENT, "embedding table '%.200s' needs 1 to %d servers, and rows of float32", name,
                  MOST_SERVERS);
        return NULL;
    }
    mu_rpc_client **clients = mu__calloc((size_t)n, sizeof *clients);
    for (int i = 0; clients != NULL && i < n; i++)
        clients[i] = client_at(h, pair, i + 2);
    mu_resource *table =
        clients != NULL && !mu__pending() ? mu__give(mu__remote_table(n, clients, name, spec->shape.dims[0])) : NULL;
    mu__free(clients);
    return table;
}

// Whether an element of the list is about this name, and about a table: then an empty text follows the name.
static bool is_about(const mu_value *pair, const char *name, bool table)
{
    char *text = NULL, *next = NULL;
    bool found = mu__value_text(mu_value_at(pair, 0), "a variable's name", &text) == MU_OK &&
                 mu__value_text(mu_value_at(pair, 1), "the address of a variable's server", &next) == MU_OK;
    found = found && strcmp(text, name) == 0 && (*next == '\0') == table;
    mu__free(text);
    mu__free(next);
    return found;
}

static mu_resource *resolve(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    homes *h = arg;
    for (size_t i = 0; i < h->made.n; i++)
        if (strcmp(h->made.items[i]->name, name) == 0 && strcmp(h->made.items[i]->kind->name, kind) == 0)
            return h->made.items[i];
    const bool table = strcmp(kind, MU_TABLE_KIND) == 0;
    const mu_resource_kind *known = table ? &mu__remote_table_kind : mu__remote_kind(kind);
    const int n = known != NULL ? mu_value_count(h->list) : 0;
    for (int i = 0; i < n && !mu__pending(); i++)
        if (is_about(mu_value_at(h->list, i), name, table)) {
            mu_resource *resource = table ? make_table(h, mu_value_at(h->list, i), spec, name)
                                          : make_single(h, mu_value_at(h->list, i), known, spec, name);
            return resource != NULL && MU_PUSH(&h->made, resource) == MU_OK ? resource : NULL;
        }
    return NULL;
}

// ---- Registering --------------------------------------------------------------------------------

static function *make_function(const mu_tensor *bytes, homes h)
{
    function *f = mu__new(&function_type, sizeof *f);
    if (f == NULL)
        return NULL;
    f->has_lock = pthread_mutex_init(&f->concrete.lock, NULL) == 0;
    if (bytes->dtype != MU_U8 || bytes->shape.rank != 1)
        mu__error(MU_INVALID_ARGUMENT, "the graph of a function must be a vector of uint8");
    else if (f->has_lock)
        f->concrete.graph = mu__graph_read(mu__host_read(bytes), (size_t)bytes->shape.dims[0], resolve, &h);
    mu__free(h.made.items);
    f->stores = h.stores;
    if (f->concrete.graph != NULL)
        return f;
    mu_release(f);
    return NULL;
}

static mu_status add(service *s, function *f)
{
    mu_runtime *runtime = mu__runtime();
    const int n_devices = mu__device_count(runtime);
    if (n_devices < 1)
        return mu_error_code();
    if (s->functions.n == MOST_FUNCTIONS)
        return mu__error(MU_RESOURCE_EXHAUSTED, "this worker has %d functions; delete some first", MOST_FUNCTIONS);
    f->number = s->next_number;
    f->device = mu__device_at(runtime, s->next_device);
    if (f->device == NULL)
        return mu_error_code();
    MU_TRY(MU_PUSH(&s->functions, f));
    s->next_number++;
    s->next_device = (s->next_device + 1) % n_devices;
    mu_retain(f);
    return MU_OK;
}

// A worker with one device runs all functions on that device's thread.
static mu_status run_on_only_device(service *s, mu_device *device)
{
    mu_worker *thread = mu__device_count(mu__runtime()) == 1 ? mu__served_thread(device) : NULL;
    return thread != NULL ? mu__server_run_on(s->server, "muster.function.run", thread) : mu_error_code();
}

static mu_value *register_function(mu_value *arguments, void *arg)
{
    service *s = arg;
    mu_tensor *bytes = mu_at(arguments, 0);
    const mu_value *list = bytes != NULL ? mu_value_at(arguments, 1) : NULL;
    const mu_value *addresses = list != NULL && mu_value_count(arguments) > 2 ? mu_value_at(arguments, 2) : NULL;
    function *f =
        list != NULL ? make_function(bytes, (homes){.service = s, .list = list, .addresses = addresses}) : NULL;
    mu_status status = f != NULL ? MU_OK : mu_error_code();
    pthread_mutex_lock(&s->lock);
    if (status == MU_OK)
        status = add(s, f);
    pthread_mutex_unlock(&s->lock);
    if (status == MU_OK)
        status = run_on_only_device(s, f->device);
    const int64_t number = status == MU_OK ? f->number : -1;
    mu_release(f);
    return status == MU_OK ? mu_of(mu_tensor_new(MU_I64, 0, NULL, &number)) : NULL;
}

// ---- Running and deleting -----------------------------------------------------------------------

// Returns the position of the function that the first argument names, with the lock held; n: there is none.
static size_t find(const service *s, int64_t number)
{
    size_t i = 0;
    while (i < s->functions.n && s->functions.items[i]->number != number)
        i++;
    return i;
}

// The coordinator takes the worker for lost, and sends it everything again: TensorFlow's "function not registered".
static mu_status no_function(int64_t number)
{
    return mu__error(MU_UNAVAILABLE,
                     "this worker has no function number %lld: it has freed what it had, or another coordinator came",
                     (long long)number);
}

static function *find_retained(service *s, int64_t number)
{
    pthread_mutex_lock(&s->lock);
    const size_t i = find(s, number);
    function *f = i < s->functions.n ? mu_retain(s->functions.items[i]) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (f == NULL)
        no_function(number);
    return f;
}

static mu_status take_inputs(const function *f, const mu_value *inputs, mu_tensor **in, mu_spec *specs)
{
    const int n = (int)f->concrete.graph->inputs.n;
    if (mu_value_count(inputs) != n)
        return mu__error(MU_INVALID_ARGUMENT, "'%s' takes %d tensors; %d were sent", f->concrete.graph->name, n,
                         mu_value_count(inputs));
    for (int i = 0; i < n; i++) {
        in[i] = mu_at(inputs, i);
        if (in[i] == NULL)
            return mu_error_code();
        specs[i] = mu__spec_of(in[i]);
    }
    return mu__check_inputs(f->concrete.graph, specs, n);
}

static mu_value *run_with(function *f, mu_tensor **in, mu_tensor **out)
{
    const int n_out = (int)f->concrete.graph->outputs.n;
    if (mu__served_run(f->device, &f->concrete, in, out) != MU_OK)
        return NULL;
    mu_value **values = mu__calloc((size_t)n_out + 1, sizeof *values);
    for (int i = 0; i < n_out; i++) {
        mu_tensor *result = mu__give(out[i]);
        if (values != NULL)
            values[i] = mu_of(result);
    }
    mu_value *list = values != NULL ? mu_list_of(n_out, values) : NULL;
    mu__free(values);
    return list;
}

// With inputs that this worker keeps the result is [[outputs]], or [] if the next elements are others than the graph
// takes: then nothing has happened, and the coordinator asks for their specs.
static mu_value *run_on_inputs(service *s, function *f, mu_value *arguments, mu_tensor **in, mu_tensor **out)
{
    bool fits = false;
    if (mu__worker_inputs_take(s->inputs, f->concrete.graph, mu_value_at(arguments, 1), mu_value_at(arguments, 2), in,
                               &fits) != MU_OK)
        return NULL;
    mu_value *outputs = fits ? run_with(f, in, out) : NULL;
    return outputs != NULL ? mu_list(outputs, MU_END) : fits ? NULL : mu_list(MU_END);
}

// The function that the first argument names; retained. The last cut that the coordinator knows may follow its number.
static function *function_of(service *s, const mu_value *arguments)
{
    const mu_tensor *numbers = mu_at(arguments, 0);
    function *f = numbers != NULL ? find_retained(s, mu_tensor_item_int(numbers, 0)) : NULL;
    if (f != NULL && f->stores != NULL && numbers->dtype == MU_I64 && mu__elements(&numbers->shape) > 1)
        mu__store_client_hear(f->stores, mu_tensor_item_int(numbers, 1));
    return f;
}

static mu_value *run(mu_value *arguments, void *arg)
{
    function *f = function_of(arg, arguments);
    const mu_value *inputs = f != NULL ? mu_value_at(arguments, 1) : NULL;
    const size_t n_in = f != NULL ? f->concrete.graph->inputs.n : 0;
    const size_t n_out = f != NULL ? f->concrete.graph->outputs.n : 0;
    mu_tensor **tensors = inputs != NULL ? mu__calloc(n_in + n_out + 1, sizeof *tensors) : NULL;
    mu_spec *specs = tensors != NULL ? mu__calloc(n_in + 1, sizeof *specs) : NULL;
    mu_value *result = NULL;
    if (specs != NULL && mu_value_count(arguments) > 2)
        result = run_on_inputs(arg, f, arguments, tensors, tensors + n_in);
    else if (specs != NULL && take_inputs(f, inputs, tensors, specs) == MU_OK)
        result = run_with(f, tensors, tensors + n_in);
    mu__free(tensors);
    mu__free(specs);
    mu_release(f);
    return result;
}

static mu_value *delete_function(mu_value *arguments, void *arg)
{
    service *s = arg;
    const int64_t number = mu_tensor_item_int(mu_at(arguments, 0), 0);
    pthread_mutex_lock(&s->lock);
    const size_t i = find(s, number);
    function *gone = i < s->functions.n ? s->functions.items[i] : NULL;
    if (gone != NULL)
        s->functions.items[i] = s->functions.items[--s->functions.n];
    pthread_mutex_unlock(&s->lock);
    if (gone == NULL)
        no_function(number);
    mu_release(gone);
    return NULL;
}

static mu_status write_metrics(void *arg, mu_text *out)
{
    service *s = arg;
    pthread_mutex_lock(&s->lock);
    const size_t n = s->functions.n;
    pthread_mutex_unlock(&s->lock);
    return mu__metrics_gauge(out, "functions", (double)n);
}

// ---- The service --------------------------------------------------------------------------------

mu_status mu__function_service_add(mu_rpc_server *server, mu_kept *kept)
{
    service *s = mu__new(&service_type, sizeof *s);
    if (s == NULL)
        return MU_RESOURCE_EXHAUSTED;
    s->server = server;
    s->has_lock = mu__lock_init(&s->lock, "functions of a server");
    mu_status status = s->has_lock ? mu__random(&s->next_number, sizeof s->next_number) : mu_error_code();
    s->next_number &= INT64_MAX >> 1; // those of another process name nothing here
    if (status == MU_OK)
        status = mu__server_keep(server, s);
    if (status == MU_OK)
        status = mu__server_owned(server, free_all, s);
    if (status == MU_OK)
        status = mu__server_add_metrics(server, write_metrics, s);
    if (status == MU_OK)
        status = (s->inputs = mu__worker_inputs_add(server, kept)) != NULL ? MU_OK : mu_error_code();
    mu_release(s->inputs); // the server keeps both
    mu_release(s);
    const mu_rpc_server_register_args methods[] = {
        {.name = "muster.function.register", .fn = register_function, .arg = s},
        {.name = "muster.function.run", .fn = run, .arg = s},
        {.name = "muster.function.delete", .fn = delete_function, .arg = s, .input_signature = "(int64[])"}};
    for (size_t i = 0; i < MU_COUNT(methods) && status == MU_OK; i++)
        status = mu__server_add(server, &methods[i]);
    // The updates that a run sends to servers are new ones each time.
    return status == MU_OK ? mu__server_once(server, "muster.function.run") : status;
}
