// A server: its options, its node and the thread that drives it, its clients, its end.
#include "rpc/server/server.h"

#include "base/system.h"

#include <strings.h>

#define START_SECONDS   60.0
#define GOODBYE_NS      1000000000
#define GOODBYE_POLL_NS 500000
#define LISTEN_NS       5000000
#define DRAIN_POLL_NS   2000000
#define DEFAULT_BYTES   ((int64_t)4 << 30)
enum { DEFAULT_CLIENTS = 256, DEFAULT_THREADS = 64, DEFAULT_CREDITS = 256, MOST_LIMIT = 65536 };

// ---- Clients: the membership policy -------------------------------------------------------------

static int admit(mu_node *node, const mu_hello *hello, mu_failure *why, int64_t now)
{
    mu_rpc_server *server = mu__server_of(node);
    mu_rpc_greeting theirs;
    (void)now;
    why->code = MU_FAILED_PRECONDITION;
    if (hello->stream[0] != '\0' || !mu__rpc_greeted(hello->greeting, &theirs))
        snprintf(why->message, sizeof why->message, "this is an RPC server; it takes RPC clients");
    else {
        for (int i = 0; i < node->n_members && !server->stopping && !server->draining; i++)
            if (!mu__session_is_open(&node->members[i]->session))
                return i;
        why->code = server->stopping || server->draining ? MU_UNAVAILABLE : MU_RESOURCE_EXHAUSTED;
        snprintf(why->message, sizeof why->message, "%s",
                 server->stopping || server->draining ? "the server is stopping"
                                                      : "the server has as many clients as it takes");
    }
    return -1;
}

static void joined(mu_node *node, int member, const mu_hello *hello)
{
    mu_rpc_server *server = mu__server_of(node);
    mu_connection *connection = &server->connections[member];
    (void)hello;
    connection->number = ++server->n_clients;
    connection->n_calls = 0;
    mu__channel_begin(&connection->channel, node, member, &server->budget);
    mu__owner_joined(server, connection);
}

static void left(mu_node *node, int member)
{
    mu_rpc_server *server = mu__server_of(node);
    if (node->members[member]->session.closed_there)
        server->closed[server->n_closed++ % (size_t)node->n_members] = server->connections[member].number;
    mu__owner_left(server, &server->connections[member]);
    mu__server_cancel_of(server, server->connections[member].number);
    mu__channel_end(&server->connections[member].channel);
}

static void lost(mu_node *node, int member, const char *why)
{
    mu__log(MU_LOG_INFO, "RPC server %s: a client is gone: %s", mu__server_of(node)->address, why);
    left(node, member);
}

static int64_t on_step(mu_node *node, int64_t now)
{
    mu_rpc_server *server = mu__server_of(node);
    for (int i = 0; i < node->n_members; i++)
        if (mu__session_is_open(&node->members[i]->session))
            mu__channel_pump(&server->connections[i].channel);
    return mu__server_overdue(server, now);
}

static const mu_membership clients = {.name = "RPC clients",
                                      .admit = admit,
                                      .joined = joined,
                                      .asked = mu__server_asked,
                                      .left = left,
                                      .lost = lost,
                                      .on_step = on_step};

// ---- The thread that drives the node ------------------------------------------------------------

static int64_t continue_goodbye(mu_rpc_server *server, int64_t next)
{
    const int64_t now = mu__now_ns();
    if (!server->said_goodbye) {
        server->said_goodbye = true;
        server->goodbye_ns = now + GOODBYE_NS;
        mu__listener_close(&server->node.listener);
        mu__incoming_end(&server->node);
        mu__node_leave(&server->node);
    }
    server->ended = mu__node_all_sent(&server->node) || now >= server->goodbye_ns;
    return MU_MIN(next, now + GOODBYE_POLL_NS);
}

int64_t mu__server_step(mu_rpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    const int64_t due_ns = mu__node_step(&server->node, 0);
    mu__server_run_waiting(server);
    pthread_mutex_unlock(&server->lock);
    return due_ns;
}

static void drive(void *arg)
{
    mu_rpc_server *server = arg;
    pthread_mutex_lock(&server->lock);
    for (int64_t until_ns = 0; !server->ended;) {
        until_ns = mu__node_step(&server->node, until_ns);
        if (server->stopping && server->n_threads == 0)
            until_ns = continue_goodbye(server, until_ns);
    }
    pthread_mutex_unlock(&server->lock);
}

// ---- Starting -----------------------------------------------------------------------------------

static mu_status check_not_started(const mu_rpc_server *server, const char *function)
{
    return !server->started
               ? MU_OK
               : mu__error(MU_FAILED_PRECONDITION, "%s: the server at %s was started before", function, server->wanted);
}

// What clients use. A node that chooses its port listens on the loopback alone without a key (listen.c), whatever host
// was requested.
static char *address_of(const mu_rpc_server *server, bool any_port)
{
    const int host = (int)(strrchr(server->wanted, ':') - server->wanted), port = server->node.listener.port;
    if (any_port && !server->node.open && strcasecmp(server->wanted, "localhost:0") != 0)
        return mu__sprintf("127.0.0.1:%d", port);
    return mu__sprintf("%.*s:%d", host, server->wanted, port);
}

// Listens; the name of the address may have to be looked up, and the port become free.
static mu_status listen_now(mu_rpc_server *server)
{
    mu_node *node = &server->node;
    const bool any_port = strcmp(strrchr(server->wanted, ':'), ":0") == 0;
    const int64_t deadline_ns = mu__deadline_ns(START_SECONDS);
    MU_TRY(mu__node_listen(node, any_port ? "" : server->wanted));
    while (!node->listens && node->failure.code == MU_OK && mu__now_ns() < deadline_ns)
        mu__node_step(node, mu__now_ns() + LISTEN_NS);
    MU_TRY(mu__error_raise(&node->failure));
    if (!node->listens)
        return mu__error(MU_DEADLINE_EXCEEDED,
                         "the server cannot listen at %s after %g s; look at the name's resolution on this host",
                         server->wanted, START_SECONDS);
    server->address = address_of(server, any_port);
    return server->address != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_status begin(mu_rpc_server *server)
{
    const mu_rpc_greeting own = {.credits = server->credits,
                                 .heartbeat = server->node.heartbeat_seconds,
                                 .most_bytes = (int64_t)server->budget.limit};
    mu__rpc_greet(&own, server->node.own.greeting, sizeof server->node.own.greeting);
    MU_TRY(mu__node_start(&server->node));
    MU_TRY(listen_now(server));
    if (!mu__system->threads)
        return MU_OK;
    server->driver = mu__worker_new("rpc server", NULL, 1, server->runtime);
    return server->driver != NULL ? mu__worker_post(server->driver, drive, server) : mu_error_code();
}

// ---- Numbers ------------------------------------------------------------------------------------

static mu_status put_gauges(mu_rpc_server *server, mu_text *out)
{
    int connections = 0, waiting = 0, calls = 0;
    for (int i = 0; i < server->node.n_members; i++)
        connections += mu__session_is_open(&server->node.members[i]->session);
    for (const mu_server_call *call = server->calls; call != NULL; call = call->next, calls++)
        waiting += call->list != NULL;
    MU_TRY(mu__metrics_gauge(out, "connections", connections));
    MU_TRY(mu__metrics_gauge(out, "calls_waiting", waiting));
    MU_TRY(mu__metrics_gauge(out, "calls_running", calls - waiting));
    MU_TRY(mu__metrics_gauge(out, "message_bytes", (double)server->budget.used));
    return mu__metrics_gauge(out, "draining", server->draining);
}

static mu_status put_methods(mu_rpc_server *server, mu_text *out)
{
    for (int family = 0; family < MU_METRIC_FAMILIES; family++) {
        MU_TRY(mu__metrics_begin(out, family));
        for (size_t i = 0; i < server->methods.n; i++)
            MU_TRY(mu__metrics_put(out, family, server->methods.items[i].name, &server->methods.items[i].metrics));
    }
    return MU_OK;
}

static mu_status write_metrics(void *arg, mu_text *out)
{
    mu_rpc_server *server = arg;
    pthread_mutex_lock(&server->lock);
    mu_status status = put_gauges(server, out);
    if (status == MU_OK)
        status = put_methods(server, out);
    pthread_mutex_unlock(&server->lock);
    for (size_t i = 0; i < server->gauges.n && status == MU_OK; i++)
        status = server->gauges.items[i].writer(server->gauges.items[i].arg, out);
    return status;
}

static mu_status serve_metrics(mu_rpc_server *server)
{
    const int port = mu__setting_int(MU_SETTING_METRICS_PORT);
    if (port < 0)
        return MU_OK;
    server->metrics = mu__metrics_http_new(port, write_metrics, server, server->runtime);
    return server->metrics != NULL ? MU_OK : mu_error_code();
}

mu_status mu__server_add_metrics(mu_rpc_server *server, mu_metrics_writer *writer, void *arg)
{
    MU_TRY(mu__grow((void **)&server->gauges.items, &server->gauges.capacity, server->gauges.n + 1,
                    sizeof *server->gauges.items));
    server->gauges.items[server->gauges.n].writer = writer;
    server->gauges.items[server->gauges.n++].arg = arg;
    return MU_OK;
}

int mu__server_metrics_port(const mu_rpc_server *server)
{
    return server->metrics != NULL ? mu__metrics_http_port(server->metrics) : -1;
}

mu_status mu_rpc_server_start(mu_rpc_server *server)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(server, "mu_rpc_server_start: the server"));
    MU_TRY(check_not_started(server, "mu_rpc_server_start"));
    server->started = true;
    pthread_mutex_lock(&server->lock);
    mu_status status = begin(server);
    pthread_mutex_unlock(&server->lock);
    return status == MU_OK ? serve_metrics(server) : status;
}

bool mu__server_drain(mu_rpc_server *server, double seconds)
{
    const int64_t deadline_ns = mu__deadline_ns(seconds);
    for (bool running = true;; mu__sleep_ns(DRAIN_POLL_NS)) {
        pthread_mutex_lock(&server->lock);
        server->draining = true;
        running = server->calls != NULL;
        pthread_mutex_unlock(&server->lock);
        if (!running || mu__now_ns() >= deadline_ns)
            return !running;
    }
}

mu_status mu_rpc_server_stop(mu_rpc_server *server)
{
    MU_TRY(mu__need(server, "mu_rpc_server_stop: the server"));
    if (server->stopping)
        return MU_OK;
    if (mu__server_runs_here(server))
        return mu__error(MU_FAILED_PRECONDITION,
                         "mu_rpc_server_stop: a function that the server at %s runs calls it, but it waits until that "
                         "has returned; call it on another thread",
                         server->wanted);
    server->started = true;
    if (server->at_stop != NULL)
        server->at_stop(server->at_stop_arg);
    mu__metrics_http_free(server->metrics);
    server->metrics = NULL;
    mu__server_stop_calls(server);
    if (server->driver != NULL) {
        mu__node_wake(&server->node);
        mu__worker_free(server->driver);
        server->driver = NULL;
    }
    for (int i = 0; i < server->node.n_members; i++) {
        mu__session_close(&server->node.members[i]->session);
        mu__channel_end(&server->connections[i].channel);
    }
    return MU_OK;
}

const char *mu_rpc_server_address(mu_rpc_server *server)
{
    if (mu__need(server, "mu_rpc_server_address: the server") != MU_OK)
        return NULL;
    if (server->address == NULL)
        mu__error(MU_FAILED_PRECONDITION, "mu_rpc_server_address: the server at %s was not started", server->wanted);
    return server->address;
}

// ---- Making -------------------------------------------------------------------------------------

static void server_destroy(void *object)
{
    mu_rpc_server *server = object;
    if (server->has_lock) {
        mu_error_value before;
        mu__error_move(&before);
        mu_rpc_server_stop(server);
        mu__error_raise(&before);
    }
    mu__node_end(&server->node);
    mu_release(server->node.keyring);
    for (size_t i = 0; i < server->methods.n; i++) {
        mu_rpc_entry *entry = &server->methods.items[i];
        mu__free(entry->name);
        mu__free(entry->input);
        mu__free(entry->output);
        mu_release(entry->function);
        mu_release(entry->queue);
        mu__free(entry->once);
    }
    for (size_t i = 0; i < server->kept.n; i++)
        mu_release(server->kept.items[i]);
    mu__free(server->kept.items);
    mu__free(server->gauges.items);
    mu__free(server->owned.items);
    mu__free(server->methods.items);
    mu__free(server->node.members);
    mu__free(server->connections);
    mu__free(server->closed);
    mu__free(server->threads);
    mu__free(server->wanted);
    mu__free(server->address);
    if (!server->has_lock)
        return;
    pthread_cond_destroy(&server->work);
    pthread_mutex_destroy(&server->function_lock);
    pthread_mutex_destroy(&server->owned.lock);
    pthread_mutex_destroy(&server->lock);
}

static mu_type server_type = {.name = "rpc server", .destroy = server_destroy};

// "host:0" is an address too; it leaves the port to the system.
static mu_status check_address(const char *address, const char *function)
{
    char host[MU_MAX_HOST + 1], text[MU_MAX_ADDRESS + 2];
    int port;
    MU_TRY(mu__need(address, function));
    const size_t n = strlen(address);
    const bool any = n > 2 && n < MU_MAX_ADDRESS && strcmp(address + n - 2, ":0") == 0;
    snprintf(text, sizeof text, "%s%s", any ? address : "", any ? "1" : ""); // port 01
    return mu__address_split(any ? text : address, host, &port);
}

static mu_status check_limits(const mu_rpc_server_args *args)
{
    const int limits[] = {args->max_clients, args->max_threads, args->credits};
    MU_TRY(mu__args_positive(args, "max_clients", args->max_clients, "mu_rpc_server_new"));
    MU_TRY(mu__args_positive(args, "max_threads", args->max_threads, "mu_rpc_server_new"));
    MU_TRY(mu__args_positive(args, "credits", args->credits, "mu_rpc_server_new"));
    MU_TRY(mu__args_positive(args, "max_bytes", args->max_bytes, "mu_rpc_server_new"));
    for (size_t i = 0; i < MU_COUNT(limits); i++)
        if (limits[i] > MOST_LIMIT)
            return mu__error(MU_INVALID_ARGUMENT, "mu_rpc_server_new: a limit is %d; at most %d is possible", limits[i],
                             MOST_LIMIT);
    return MU_OK;
}

static int or_default(int given, int initial) { return given > 0 ? given : initial; }

static mu_status make_lists(mu_rpc_server *server, int n_clients)
{
    mu_node *node = &server->node;
    server->connections = mu__calloc((size_t)n_clients, sizeof *server->connections);
    node->members = mu__calloc((size_t)n_clients, sizeof *node->members);
    server->closed = mu__calloc((size_t)n_clients, sizeof *server->closed);
    server->threads = mu__calloc((size_t)server->max_threads + MU_MOST_BLOCKED, sizeof *server->threads);
    if (server->connections == NULL || node->members == NULL || server->closed == NULL || server->threads == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (; node->n_members < n_clients; node->n_members++)
        node->members[node->n_members] = &server->connections[node->n_members].member;
    return MU_OK;
}

static mu_status fill(mu_rpc_server *server, const mu_rpc_server_args *args)
{
    server->runtime = mu__runtime();
    server->has_lock =
        pthread_mutex_init(&server->lock, NULL) == 0 && pthread_mutex_init(&server->function_lock, NULL) == 0 &&
        pthread_mutex_init(&server->owned.lock, NULL) == 0 && pthread_cond_init(&server->work, NULL) == 0;
    if (!server->has_lock)
        return mu__error(MU_RESOURCE_EXHAUSTED, "mu_rpc_server_new: the system cannot make a lock; free memory");
    server->wanted = mu__strdup(args->address);
    server->max_threads = or_default(args->max_threads, DEFAULT_THREADS);
    server->credits = or_default(args->credits, DEFAULT_CREDITS);
    server->budget.limit = (size_t)(args->max_bytes > 0 ? args->max_bytes : DEFAULT_BYTES);
    server->orphaned_ns = MU_FOREVER;
    server->node.membership = &clients;
    server->node.most_unsent = MU_MOST_UNSENT;
    if (server->wanted == NULL || server->runtime == NULL)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(make_lists(server, or_default(args->max_clients, DEFAULT_CLIENTS)));
    return mu__rpc_prepare(&server->node, MU_ROLE_NONE, &server->lock);
}

mu_rpc_server *mu_rpc_server_new_with(const mu_rpc_server_args *given)
{
    mu_rpc_server_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_rpc_server_new") != MU_OK ||
        mu__rpc_check_layer(args.rpc_layer, "mu_rpc_server_new: the RPC layer") != MU_OK ||
        check_address(args.address, "mu_rpc_server_new: the address") != MU_OK || check_limits(&args) != MU_OK)
        return NULL;
    mu_rpc_server *server = mu__new(&server_type, sizeof *server);
    if (server == NULL)
        return NULL;
    server->node.poller = server->node.waker = -1;
    if (fill(server, &args) == MU_OK)
        return mu__give(server);
    mu_release(server);
    return NULL;
}

// ---- Methods ------------------------------------------------------------------------------------

mu_rpc_entry *mu__server_method(const mu_rpc_server *server, const char *name)
{
    for (size_t i = 0; i < server->methods.n; i++)
        if (strcmp(server->methods.items[i].name, name) == 0)
            return &server->methods.items[i];
    return NULL;
}

static mu_status check_name(const mu_rpc_server *server, const char *name)
{
    MU_TRY(mu__need(name, "mu_rpc_server_register: the name"));
    if (*name == '\0' || strlen(name) > MU_RPC_NAME || strncmp(name, "muster.", 7) == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_rpc_server_register: \"%.60s\" cannot be a method's name: it needs 1 to %d bytes and may "
                         "not begin with \"muster.\"",
                         name, MU_RPC_NAME);
    if (mu__server_method(server, name) != NULL)
        return mu__error(MU_INVALID_ARGUMENT, "mu_rpc_server_register: \"%s\" is registered already", name);
    return MU_OK;
}

static mu_status check_method(const mu_rpc_server_register_args *args)
{
    MU_TRY(mu__need(args->server, "mu_rpc_server_register: the server"));
    MU_TRY(check_not_started(args->server, "mu_rpc_server_register"));
    MU_TRY(check_name(args->server, args->name));
    if ((args->fn == NULL) == (args->function == NULL))
        return mu__error(MU_INVALID_ARGUMENT, "mu_rpc_server_register: \"%s\" has %s; give one of the two", args->name,
                         args->fn != NULL ? ".fn and .function" : "neither .fn nor .function");
    if (args->input_signature != NULL)
        MU_TRY(mu__signature_valid(args->input_signature));
    return args->output_signature != NULL ? mu__signature_valid(args->output_signature) : MU_OK;
}

mu_status mu__server_add(mu_rpc_server *server, const mu_rpc_server_register_args *args)
{
    MU_TRY(MU_PUSH(&server->methods, ((mu_rpc_entry){.fn = args->fn, .arg = args->arg})));
    mu_rpc_entry *entry = &server->methods.items[server->methods.n - 1];
    entry->name = mu__strdup(args->name);
    entry->input = args->input_signature != NULL ? mu__strdup(args->input_signature) : NULL;
    entry->output = args->output_signature != NULL ? mu__strdup(args->output_signature) : NULL;
    entry->function = mu_retain(args->function);
    return mu_error_code();
}

mu_status mu__server_add_writer(mu_rpc_server *server, const char *name, mu_rpc_writer *writer, void *arg)
{
    MU_TRY(mu__server_add(server, &(mu_rpc_server_register_args){.name = name, .arg = arg}));
    server->methods.items[server->methods.n - 1].writer = writer;
    return MU_OK;
}

static void queue_destroy(void *object)
{
    mu_call_queue *queue = object;
    if (queue->has_lock)
        pthread_mutex_destroy(&queue->lock);
}

static mu_type queue_type = {.name = "queue of calls", .destroy = queue_destroy};

static mu_call_queue *queue_new(mu_rpc_server *server, mu_worker *thread)
{
    mu_call_queue *queue = mu__new(&queue_type, sizeof *queue);
    if (queue == NULL)
        return NULL;
    queue->has_lock = mu__lock_init(&queue->lock, "calls of a server");
    queue->server = server;
    queue->thread = thread;
    if (queue->has_lock)
        return queue;
    mu_release(queue);
    return NULL;
}

mu_status mu__server_run_on(mu_rpc_server *server, const char *method, mu_worker *thread)
{
    mu_status status = MU_OK;
    if (!mu__system->threads)
        return MU_OK;
    pthread_mutex_lock(&server->lock);
    mu_rpc_entry *entry = mu__server_method(server, method);
    if (entry != NULL && entry->queue == NULL)
        status = (entry->queue = queue_new(server, thread)) != NULL ? MU_OK : mu_error_code();
    pthread_mutex_unlock(&server->lock);
    return status;
}

void mu__server_accept_workers(mu_rpc_server *server) { server->node.accepts = MU_BEARER_ANY_WORKER; }

void mu__server_at_stop(mu_rpc_server *server, void (*stop)(void *arg), void *arg)
{
    server->at_stop = stop;
    server->at_stop_arg = arg;
}

mu_client_state mu__server_client(mu_rpc_server *server, uint64_t client)
{
    mu_client_state state = MU_CLIENT_SILENT;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < server->node.n_members; i++) {
        const mu_connection *connection = &server->connections[i];
        if (connection->number == client && mu__session_is_open(&connection->member.session))
            state = MU_CLIENT_OPEN;
        else if (client != 0 && server->closed[i] == client)
            state = MU_CLIENT_CLOSED;
    }
    pthread_mutex_unlock(&server->lock);
    return state;
}

mu_status mu__server_keep(mu_rpc_server *server, void *object)
{
    MU_TRY(MU_PUSH(&server->kept, object));
    mu_retain(object);
    return MU_OK;
}

mu_status mu_rpc_server_register_with(const mu_rpc_server_register_args *given)
{
    mu_rpc_server_register_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_rpc_server_register"));
    MU_TRY(check_method(&args));
    return mu__server_add(args.server, &args);
}
