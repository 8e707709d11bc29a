// Calls on a server: taken from a client, run on a thread, answered, cancelled.
#include "base/callback.h"
#include "rpc/server/server.h"

#include "base/system.h"

enum { MOST_TEXT = 900 };

// ---- Answering ----------------------------------------------------------------------------------

static bool is_connected(const mu_server_call *call)
{
    return call->connection->number == call->client && mu__session_is_open(&call->connection->member.session);
}

static void call_free(mu_server_call *call)
{
    mu_server_call **at = &call->server->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    call->server->budget.used -= call->held;
    if (call->connection->number == call->client)
        call->connection->n_calls--;
    mu_release(call->message);
    mu_release(call->reply);
    mu__free(call);
}

// Answers and ends a call. If memory is too short to queue the answer, the client's deadline ends the call.
static void answer(mu_server_call *call, mu_reply reply)
{
    mu_error_value ignored;
    mu_connection *connection = call->connection;
    mu__span_request("serve", call->entry != NULL ? call->entry->name : "muster.methods", mu__request_of(call->id),
                     call->begun_ns, mu__now_ns());
    if (call->entry != NULL)
        mu__metrics_count(&call->entry->metrics, mu__now_ns() - call->begun_ns, reply.code != MU_OK,
                          call->message != NULL ? call->message->bytes : 0,
                          call->reply != NULL ? call->reply->bytes : 0);
    if (is_connected(call)) {
        reply.id = call->request;
        if (mu__session_reply(&connection->member.session, &reply) != MU_OK)
            mu__error_move(&ignored);
        mu__session_flush(&call->server->node, (int)(connection - call->server->connections));
    }
    call_free(call);
}

static void answer_error(mu_server_call *call, mu_status code, const char *message)
{
    answer(call, (mu_reply){.code = code, .data = (const uint8_t *)message, .bytes = strnlen(message, MOST_TEXT)});
}

// How the function failed.
static void answer_failure(mu_server_call *call, const mu_error_value *error)
{
    answer(call, (mu_reply){.code = error->code,
                            .of_caller = error->of_caller,
                            .data = (const uint8_t *)error->message,
                            .bytes = strnlen(error->message, MOST_TEXT)});
}

static void reply_sent(void *arg, uint64_t transfer, mu_status code, const char *why)
{
    mu_server_call *call = arg;
    uint8_t number[8];
    mu__put_number(number, transfer, 8);
    if (code != MU_OK)
        answer_error(call, code, why);
    else
        answer(call, (mu_reply){.code = MU_OK, .data = number, .bytes = sizeof number});
}

static mu_status answer_inline(mu_server_call *call)
{
    uint8_t *data = mu__alloc(8 + call->reply->bytes);
    if (data == NULL)
        return MU_RESOURCE_EXHAUSTED;
    uint8_t *end = mu__put_number(data, 0, 8);
    mu__message_copy(call->reply, 0, end, call->reply->bytes);
    end += call->reply->bytes;
    answer(call, (mu_reply){.code = MU_OK, .data = data, .bytes = (size_t)(end - data)});
    mu__free(data);
    return MU_OK;
}

static mu_status answer_in_parts(mu_server_call *call)
{
    mu_channel *channel = &call->connection->channel;
    if (!is_connected(call)) {
        call_free(call);
        return MU_OK;
    }
    if (mu__channel_send(channel, call->reply, reply_sent, call) == 0)
        return mu_error_code();
    mu_rpc_server *server = call->server;
    const int member = (int)(call->connection - server->connections);
    mu__channel_pump(channel); // the call may end here
    mu__session_flush(&server->node, member);
    return MU_OK;
}

// ---- Running ------------------------------------------------------------------------------------

static _Thread_local mu_server_call *running; // the call whose method this thread runs

bool mu__server_runs_here(const mu_rpc_server *server) { return running != NULL && running->server == server; }

static mu_value *text_value(const char *text)
{
    const int64_t bytes = (int64_t)strlen(text);
    return mu_of(mu_tensor_new(MU_U8, 1, &bytes, text));
}

// A list [name, input, output] for each method, as bytes.
static mu_value *list_methods(const mu_rpc_server *server)
{
    mu_value **rows = mu__calloc(server->methods.n + 1, sizeof *rows);
    for (size_t i = 0; i < server->methods.n && rows != NULL; i++) {
        const mu_rpc_entry *entry = &server->methods.items[i];
        rows[i] = mu_list(text_value(entry->name), text_value(entry->input != NULL ? entry->input : "?"),
                          text_value(entry->output != NULL ? entry->output : "?"), MU_END);
    }
    mu_value *list = rows != NULL ? mu_list_of((int)server->methods.n, rows) : NULL;
    mu__free(rows);
    return list;
}

static mu_value *run_entry(mu_server_call *call, mu_value *arguments)
{
    const mu_rpc_entry *entry = call->entry;
    if (entry == NULL)
        return list_methods(call->server);
    if (entry->input != NULL && mu__signature_check(entry->input, arguments) != MU_OK)
        return NULL;
    mu_value *value;
    if (entry->function == NULL) {
        MU_CALLBACK("a method of an RPC server", value = entry->fn(arguments, entry->arg));
        return value;
    }
    pthread_mutex_lock(&call->server->function_lock);
    value = mu_function_call(entry->function, arguments != NULL ? arguments : mu_list(MU_END));
    pthread_mutex_unlock(&call->server->function_lock);
    return value;
}

static mu_status write_reply(mu_server_call *call, const mu_value *value)
{
    size_t bytes = 0;
    MU_TRY(mu__message_bytes(value, "the result", &bytes));
    MU_TRY(mu__call_reserve_for(call, bytes));
    call->reply = mu__message_to_send(value, "the result");
    return call->reply != NULL ? MU_OK : mu_error_code();
}

// Makes call->reply.
static mu_status run_function(mu_server_call *call)
{
    mu_value *arguments = NULL;
    MU_TRY(mu__message_value(call->message, call->offset, &arguments));
    arguments = mu__give(arguments);
    if (mu__pending())
        return mu_error_code();
    running = call;
    mu_value *value = NULL;
    if (call->entry != NULL && call->entry->writer != NULL)
        call->reply = call->entry->writer(arguments, call->entry->arg);
    else
        value = run_entry(call, arguments);
    running = NULL;
    if (mu__pending() || call->deferred || call->reply != NULL)
        return mu_error_code();
    return write_reply(call, value);
}

// Lets others cancel the call while its function runs. False: it was cancelled before.
static bool let_cancel(mu_server_call *call, mu_cancellation *cancellation)
{
    pthread_mutex_lock(&call->server->lock);
    call->cancellation = cancellation;
    const bool cancelled = call->cancelled;
    pthread_mutex_unlock(&call->server->lock);
    return !cancelled;
}

// Runs the function in a context of its own; `error` receives how it ended.
static void run_call(mu_server_call *call, mu_error_value *error)
{
    mu_context context = {0};
    if (mu__context_enter(&context, mu__context()) != MU_OK) {
        mu__error_move(error);
        return;
    }
    context.request = mu__request_of(call->id);
    mu_cancellation *cancellation = mu_cancellation_new();
    mu_cancellation_use(cancellation);
    if (cancellation != NULL && !let_cancel(call, cancellation))
        mu__error(MU_CANCELLED, "the call was cancelled before it began");
    else if (cancellation != NULL)
        run_function(call);
    running = NULL;
    let_cancel(call, NULL);
    mu_cancellation_use(NULL);
    mu__context_leave(&context, NULL, error);
}

// An answer to a client that does not read waits as a message, which counts in the budget.
static bool is_inline(const mu_server_call *call)
{
    return mu__channel_fits_inline(&call->connection->channel, call->reply->bytes) &&
           !mu__session_is_full(&call->server->node, &call->connection->member.session);
}

// With the lock held: sends what run_call made.
static void finish_call(mu_server_call *call, const mu_error_value *error)
{
    mu_error_value late = *error;
    if (late.code == MU_OK && mu__call_reserve_locked(call, call->reply->bytes)) {
        if ((is_inline(call) ? answer_inline(call) : answer_in_parts(call)) == MU_OK)
            return;
        mu__error_move(&late);
    } else if (late.code == MU_OK) {
        late.code = MU_RESOURCE_EXHAUSTED;
        mu__call_no_room(call->server, call->reply->bytes, late.message, sizeof late.message);
    }
    if (call->overdue && late.code == MU_CANCELLED)
        answer_error(call, MU_DEADLINE_EXCEEDED, "no result in time; its waits were ended");
    else if (call->server->stopping && late.code == MU_CANCELLED) // not what the client asked for: it tries elsewhere
        answer_error(call, MU_UNAVAILABLE, "the server is stopping");
    else
        answer_failure(call, &late);
}

// ---- Calls that end later -----------------------------------------------------------------------

mu_server_call *mu__call_defer(void)
{
    running->deferred = true;
    return running;
}

mu_status mu__call_reserve(size_t bytes) { return mu__call_reserve_for(running, bytes); }

uint64_t mu__call_client(void) { return running->client; }

mu_status mu__call_may(const char *method) { return mu__permission_check(running->role, running->version, method); }

// With the lock held, once the method has returned and the answer is there. An answer that could not be encoded runs
// into the client's deadline, as one that cannot be queued.
static void finish_deferred(mu_server_call *call)
{
    mu_error_value error = {.code = call->refused > 0 ? MU_RESOURCE_EXHAUSTED : MU_OK};
    if (call->refused > 0)
        mu__call_no_room(call->server, call->refused, error.message, sizeof error.message);
    if (call->reply != NULL || call->refused > 0)
        finish_call(call, &error);
    else
        call_free(call);
}

static void end_deferred(mu_server_call *call)
{
    call->returned = true;
    if (call->answered)
        finish_deferred(call);
}

static mu_message *write_deferred(mu_server_call *call, const mu_value *value)
{
    size_t bytes = 0;
    mu_error_value ignored;
    mu_message *reply = NULL;
    if (mu__message_bytes(value, "the result", &bytes) == MU_OK && mu__call_reserve_for(call, bytes) != MU_OK)
        call->refused = bytes;
    else if (!mu__pending())
        reply = mu__message_of(value, "the result");
    mu__error_move(&ignored);
    return reply;
}

void mu__call_answer(mu_server_call *call, const mu_value *value)
{
    mu_rpc_server *server = call->server;
    mu_message *reply = write_deferred(call, value);
    pthread_mutex_lock(&server->lock);
    call->reply = reply;
    call->answered = true;
    if (call->returned)
        finish_deferred(call);
    pthread_mutex_unlock(&server->lock);
}

bool mu__call_cancelled(mu_server_call *call)
{
    pthread_mutex_lock(&call->server->lock);
    const bool cancelled = call->cancelled;
    pthread_mutex_unlock(&call->server->lock);
    return cancelled;
}

static void append(mu_call_list *list, mu_server_call *call)
{
    *(list->first != NULL ? &list->last->next_waiting : &list->first) = call;
    list->last = call;
    list->n++;
    call->list = list;
}

static void take_out(mu_server_call *call)
{
    mu_call_list *list = call->list;
    mu_server_call *before = NULL;
    for (mu_server_call *at = list->first; at != call; at = at->next_waiting)
        before = at;
    *(before != NULL ? &before->next_waiting : &list->first) = call->next_waiting;
    if (list->last == call)
        list->last = before;
    list->n--;
    call->list = NULL;
}

static mu_server_call *take_first(mu_call_list *list)
{
    mu_server_call *call = list->first;
    if (call != NULL)
        take_out(call);
    return call;
}

static mu_server_call *next_call(mu_rpc_server *server)
{
    while (server->waiting.first == NULL && !server->stopping) {
        server->n_idle++;
        pthread_cond_wait(&server->work, &server->lock);
        server->n_idle--;
    }
    return take_first(&server->waiting);
}

// With the lock held, which it releases while the method runs.
static void run_and_finish(mu_rpc_server *server, mu_server_call *call)
{
    mu_error_value error = {.code = MU_OK};
    pthread_mutex_unlock(&server->lock);
    run_call(call, &error);
    pthread_mutex_lock(&server->lock);
    if (call->deferred)
        end_deferred(call);
    else
        finish_call(call, &error);
}

static void run_calls(void *arg)
{
    mu_rpc_server *server = arg;
    mu_server_call *call;
    pthread_mutex_lock(&server->lock);
    while ((call = next_call(server)) != NULL)
        run_and_finish(server, call);
    pthread_mutex_unlock(&server->lock);
}

void mu__server_run_waiting(mu_rpc_server *server)
{
    mu_server_call *call;
    while ((call = take_first(&server->waiting)) != NULL)
        run_and_finish(server, call);
}

static void run_queued(void *arg);

// Has the queue's thread take a call, if it was not asked to. However many calls are cancelled while the thread is
// busy, it is asked once.
static mu_status post(mu_call_queue *queue)
{
    if (queue->posted)
        return MU_OK;
    const mu_status status = mu__worker_post(queue->thread, run_queued, mu_retain(queue));
    queue->posted = status == MU_OK;
    if (status != MU_OK)
        mu_release(queue);
    return status;
}

// On the thread of a queue: the next of its calls, unless it was cancelled.
static void run_queued(void *arg)
{
    mu_call_queue *queue = arg;
    mu_error_value ignored;
    pthread_mutex_lock(&queue->lock);
    mu_rpc_server *server = queue->server;
    if (server != NULL) {
        pthread_mutex_lock(&server->lock);
        server->n_queued++;
    }
    pthread_mutex_unlock(&queue->lock);
    if (server != NULL) {
        mu_server_call *call = take_first(&queue->waiting);
        queue->posted = false;
        if (queue->waiting.first != NULL && post(queue) != MU_OK)
            mu__error_move(&ignored); // the next call that comes asks again
        if (call != NULL)
            run_and_finish(server, call);
        if (--server->n_queued == 0 && server->stopping)
            pthread_cond_broadcast(&server->work);
        pthread_mutex_unlock(&server->lock);
    }
    mu_release(queue);
}

static mu_status add_thread(mu_rpc_server *server)
{
    mu_worker *thread = mu__worker_new("rpc", NULL, 1, server->runtime);
    if (thread == NULL)
        return mu_error_code();
    server->threads[server->n_threads++] = thread;
    return mu__worker_post(thread, run_calls, server);
}

// Whether another thread may run calls: those that wait for other calls do not count.
static bool may_add_thread(const mu_rpc_server *server)
{
    return server->n_threads - server->n_blocked < server->max_threads;
}

mu_status mu__call_wait_begin(void)
{
    mu_rpc_server *server = running->server;
    mu_error_value ignored;
    mu_status status = MU_OK;
    pthread_mutex_lock(&server->lock);
    if (server->n_blocked == MU_MOST_BLOCKED)
        status = mu__error(
            MU_RESOURCE_EXHAUSTED,
            "%d calls wait at the server at %s, which is the limit; let fewer calls wait at a time, or add servers",
            MU_MOST_BLOCKED, server->address);
    else
        server->n_blocked++;
    if (status == MU_OK && server->waiting.n > server->n_idle && !server->stopping && may_add_thread(server) &&
        add_thread(server) != MU_OK)
        mu__error_move(&ignored); // the other threads continue
    pthread_mutex_unlock(&server->lock);
    return status;
}

void mu__call_wait_end(void)
{
    mu_rpc_server *server = running->server;
    pthread_mutex_lock(&server->lock);
    server->n_blocked--;
    pthread_mutex_unlock(&server->lock);
}

// ---- Taking requests ----------------------------------------------------------------------------

static mu_status refuse(mu_rpc_server *server, int member, uint64_t request, const mu_error_value *error)
{
    return mu__session_reply(&server->connections[member].member.session,
                             &(mu_reply){.id = request,
                                         .code = error->code,
                                         .data = (const uint8_t *)error->message,
                                         .bytes = strnlen(error->message, MOST_TEXT)});
}

static mu_status take_message(mu_connection *connection, uint64_t transfer, mu_cursor *rest, mu_server_call *call)
{
    mu_budget *budget = connection->channel.budget;
    const size_t bytes = mu__cursor_left(rest);
    if (transfer != 0) {
        call->message = bytes == 0 ? mu__channel_take(&connection->channel, transfer) : NULL;
        if (call->message == NULL)
            return mu__error(MU_DATA_LOSS, "the parts of the arguments did not arrive");
        call->held = call->message->bytes;
        return MU_OK;
    }
    if (!mu__budget_take(budget, bytes))
        return mu__error(MU_RESOURCE_EXHAUSTED,
                         "the server holds %zu of at most %zu bytes; call less at one time, or raise max_bytes",
                         budget->used, budget->limit);
    call->held = bytes;
    call->message = mu__message_new(bytes);
    if (call->message == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu__put_bytes(call->message->data, rest->at, bytes);
    return MU_OK;
}

static mu_status check_room(const mu_rpc_server *server, const mu_connection *connection)
{
    if (server->stopping || server->draining)
        return mu__error(MU_UNAVAILABLE, "the server at %s is %s", server->address,
                         server->stopping ? "stopping" : "being drained: it takes no new calls");
    // A call that the client no longer waits for has given its credit back, although the function may still run here.
    if (connection->n_calls > 2 * server->credits)
        return mu__error(MU_RESOURCE_EXHAUSTED, "the server at %s takes %d calls of one client at one time",
                         server->address, server->credits);
    return MU_OK;
}

static mu_status check_method(const mu_rpc_server *server, const mu_server_call *call, const char *name, bool first)
{
    char copy[MU_PRINTABLE_BYTES];
    MU_TRY(mu__permission_check(call->role, call->version, name));
    if (call->entry == NULL && strcmp(name, "muster.methods") != 0)
        return mu__error(MU_INVALID_ARGUMENT, "the server at %s has no method \"%s\"; it has %zu others",
                         server->address, mu__printable_copy(name, copy), server->methods.n);
    if (!first)
        return mu__error(MU_FAILED_PRECONDITION,
                         "this request has come before, as call %016llx; a call of \"%s\" is done once, so give each a "
                         "number of its own",
                         (unsigned long long)call->id, name);
    return MU_OK;
}

static mu_status read_call(mu_rpc_server *server, int member, const mu_request *request, mu_server_call *call)
{
    mu_connection *connection = &server->connections[member];
    mu_cursor cursor = mu__cursor(request->data, request->bytes);
    char name[MU_RPC_NAME + 1] = "";
    call->id = mu__cursor_u64_little(&cursor);
    const uint64_t transfer = mu__cursor_u64_little(&cursor);
    const size_t n = mu__cursor_u8(&cursor);
    const uint8_t *text = n <= MU_RPC_NAME ? mu__cursor_bytes(&cursor, n) : NULL;
    if (cursor.bad || text == NULL || memchr(text, '\0', n) != NULL)
        return mu__error(MU_DATA_LOSS, "a call is damaged");
    memcpy(name, text, n);
    call->entry = mu__server_method(server, name);
    // A call that is refused below has its number taken all the same: when its request comes again there may be room,
    // and whoever made the call has its error. Who may not call the method takes none.
    const bool first = call->entry == NULL || !mu__is_permitted(call->role, call->version, name) ||
                       mu__once_take(call->entry, call->id);
    // Taken before all checks, so that a refused call leaves no parts behind.
    MU_TRY(take_message(connection, transfer, &cursor, call));
    MU_TRY(check_room(server, connection));
    return check_method(server, call, name, first);
}

// Gives a call to the thread of its method.
static mu_status append_queued(mu_call_queue *queue, mu_server_call *call)
{
    append(&queue->waiting, call);
    const mu_status status = post(queue);
    if (status != MU_OK)
        take_out(call);
    return status;
}

// Queues a call for a thread, and adds one if none is idle.
static mu_status enqueue(mu_rpc_server *server, mu_server_call *call)
{
    mu_error_value ignored;
    if (call->entry != NULL && call->entry->queue != NULL)
        return append_queued(call->entry->queue, call);
    if (mu__system->threads && server->waiting.n >= server->n_idle && may_add_thread(server) &&
        add_thread(server) != MU_OK) {
        if (server->n_threads == 0)
            return mu_error_code();
        mu__error_move(&ignored); // the other threads take it
    }
    append(&server->waiting, call);
    pthread_cond_signal(&server->work);
    return MU_OK;
}

static mu_status take_call(mu_rpc_server *server, int member, const mu_request *request)
{
    mu_connection *connection = &server->connections[member];
    mu_server_call *call = mu__calloc(1, sizeof *call);
    if (call == NULL)
        return MU_RESOURCE_EXHAUSTED;
    const int64_t now = mu__now_ns();
    const bool endless = request->patience_ns > (uint64_t)(MU_FOREVER - now);
    const mu_session *session = &connection->member.session;
    *call = (mu_server_call){.server = server,
                             .connection = connection,
                             .client = connection->number,
                             .role = session->role,
                             .version = session->version,
                             .request = request->id,
                             .begun_ns = now,
                             .next = server->calls,
                             .deadline_ns = endless ? MU_FOREVER : now + (int64_t)request->patience_ns};
    server->calls = call;
    connection->n_calls++;
    mu_status status = read_call(server, member, request, call);
    status = status == MU_OK ? enqueue(server, call) : status;
    if (status != MU_OK)
        call_free(call);
    return status;
}

// A call that waits is answered at once: the thread that it waits for may be busy for long.
static void cancel(mu_server_call *call)
{
    const mu_error_value error = {.code = MU_CANCELLED, .message = "the call was cancelled before it began"};
    call->cancelled = true;
    call->deadline_ns = MU_FOREVER;
    if (call->cancellation != NULL)
        mu_cancellation_cancel(call->cancellation);
    if (call->list == NULL)
        return;
    take_out(call);
    finish_call(call, &error);
}

static mu_status take_cancel(mu_rpc_server *server, int member, const mu_request *request)
{
    mu_cursor cursor = mu__cursor(request->data, request->bytes);
    const uint64_t id = mu__cursor_u64_little(&cursor), client = server->connections[member].number;
    for (mu_server_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->next;
        if (call->client == client && call->id == id)
            cancel(call);
    }
    return mu__session_reply(&server->connections[member].member.session,
                             &(mu_reply){.id = request->id, .code = MU_OK});
}

void mu__server_asked(mu_node *node, int member, const mu_request *request)
{
    mu_rpc_server *server = mu__server_of(node);
    mu_error_value error;
    mu_status status = MU_UNIMPLEMENTED;
    if (mu__channel_asked(&server->connections[member].channel, request))
        return;
    if (strcmp(request->method, "rpc.call") == 0)
        status = take_call(server, member, request);
    else if (strcmp(request->method, "rpc.cancel") == 0)
        status = take_cancel(server, member, request);
    else
        mu__error(MU_UNIMPLEMENTED, "this server does not know the request \"%s\"", request->method);
    if (status == MU_OK)
        return;
    mu__error_move(&error);
    if (refuse(server, member, request->id, &error) != MU_OK)
        mu__error_move(&error); // the client's deadline passes
}

// ---- Ending -------------------------------------------------------------------------------------

void mu__server_cancel_of(mu_rpc_server *server, uint64_t client)
{
    for (mu_server_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->next;
        if (call->client == client)
            cancel(call);
    }
}

int64_t mu__server_overdue(mu_rpc_server *server, int64_t now)
{
    int64_t due = MU_FOREVER;
    for (mu_server_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->next;
        mu__sooner(&due, now >= call->deadline_ns ? MU_FOREVER : call->deadline_ns);
        if (now < call->deadline_ns)
            continue;
        call->overdue = true;
        cancel(call);
    }
    return due;
}

static void end_queue(mu_call_queue *queue)
{
    if (queue == NULL)
        return;
    pthread_mutex_lock(&queue->lock);
    queue->server = NULL;
    pthread_mutex_unlock(&queue->lock);
}

void mu__server_stop_calls(mu_rpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    for (mu_server_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->next;
        cancel(call);
    }
    pthread_cond_broadcast(&server->work);
    pthread_mutex_unlock(&server->lock);
    for (int i = 0; i < server->n_threads; i++)
        mu__worker_free(server->threads[i]);
    for (size_t i = 0; i < server->methods.n; i++)
        end_queue(server->methods.items[i].queue);
    pthread_mutex_lock(&server->lock);
    while (server->n_queued > 0)
        pthread_cond_wait(&server->work, &server->lock);
    server->n_threads = 0;
    for (mu_server_call *call = server->calls, *next; call != NULL; call = next) {
        next = call->next;
        if (call->deferred && !call->answered)
            call_free(call);
    }
    pthread_mutex_unlock(&server->lock);
}
