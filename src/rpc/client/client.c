// A client: its connection, opened again whenever it was lost, and the calls on it.
#include "rpc/client/client.h"

#include "base/system.h"
#include "graph/variables/variables_read.h"
#include "rpc/services/service.h"

#define FIRST_PAUSE_NS  1000000
#define MOST_PAUSE_NS   1000000000
#define GOODBYE_NS      500000000
#define GOODBYE_POLL_NS 500000
#define DEFAULT_BYTES   ((int64_t)4 << 30)
enum { DEFAULT_WAITING = 65536 };

// ---- Lists of calls -----------------------------------------------------------------------------

static void append(mu_result_list *list, mu_rpc_result *result)
{
    result->next = NULL;
    *(list->last != NULL ? &list->last->next : &list->first) = result;
    list->last = result;
    list->n++;
}

// The caller gets the list's reference.
static mu_rpc_result *take_out(mu_result_list *list, mu_rpc_result *result)
{
    mu_rpc_result *before = NULL;
    for (mu_rpc_result *at = list->first; at != result; at = at->next)
        before = at;
    *(before != NULL ? &before->next : &list->first) = result->next;
    if (list->last == result)
        list->last = before;
    list->n--;
    return result;
}

// The server has nothing to do with the call any more.
static void drop(mu_result_list *list, mu_rpc_result *result)
{
    mu__result_gone(take_out(list, result));
    mu_release(result);
}

// ---- How calls end ------------------------------------------------------------------------------

// Where the last brackets of a line begin in which a worker names the server that its own call went to; its end: there
// are none.
static int last_brackets(const char *why, int line)
{
    static const char begin[] = " (\"muster.";
    int at = line;
    while (at > 0 && strncmp(why + at, begin, sizeof begin - 1) != 0)
        at--;
    return at > 0 ? at : line;
}

const char *mu__call_failure(char text[MU_FAILURE_TEXT], const char *method, const char *place, const char *why)
{
    enum { MOST_WHY = 500 };
    const int line = (int)strcspn(why, "\n"), brackets = last_brackets(why, line);
    if (strncmp(method, "muster.", 7) != 0)
        snprintf(text, MU_FAILURE_TEXT, "\"%s\" at %s: %.700s", method, place, why);
    else
        snprintf(text, MU_FAILURE_TEXT, "%.*s%.*s (\"%s\" at %s)%s", MU_MIN(brackets, MOST_WHY), why, line - brackets,
                 why + brackets, method, place, why + line);
    return text;
}

static void end_failed(mu_rpc_result *result, mu_status code, bool of_caller, const char *why)
{
    char text[MU_FAILURE_TEXT];
    mu_error_value error = {.code = code, .of_caller = of_caller, .file = __FILE__, .line = __LINE__};
    snprintf(error.message, sizeof error.message, "%s",
             mu__call_failure(text, result->method, result->owner->place, why));
    mu__printable(error.message, true);
    mu__result_end(result, &error, NULL, 0);
}

static void end_with(mu_rpc_result *result, mu_status code, const char *why) { end_failed(result, code, false, why); }

// The text of a reply, which need not end with a zero.
static void end_with_reply(mu_rpc_result *result, const mu_reply *reply)
{
    char text[1000];
    const char *more = reply->code == MU_UNAVAILABLE ? "; the function may have run" : "";
    snprintf(text, sizeof text, "%.*s%s", (int)MU_MIN(reply->bytes, (size_t)900), (const char *)reply->data, more);
    end_failed(result, reply->code, reply->of_caller, text);
}

static void take_value(mu_rpc_result *result, const void *data, size_t bytes)
{
    mu_rpc_client *client = result->owner;
    const mu_error_value fine = {.code = MU_OK};
    mu_cursor cursor = mu__cursor(data, bytes);
    const uint64_t transfer = mu__cursor_u64_little(&cursor);
    mu_message *reply;
    if (transfer != 0) {
        reply = mu__channel_take(&client->channel, transfer);
        if (reply != NULL)
            client->budget.used -= reply->bytes;
    } else {
        reply = mu__message_new(mu__cursor_left(&cursor));
        if (reply != NULL)
            mu__put_bytes(reply->data, cursor.at, mu__cursor_left(&cursor));
    }
    mu_error_value ignored;
    mu__error_move(&ignored);
    if (reply == NULL)
        end_with(result, ignored.code != MU_OK ? ignored.code : MU_DATA_LOSS,
                 ignored.code != MU_OK ? ignored.message : "the parts of the result did not arrive");
    else
        mu__result_end(result, &fine, reply, 0);
    mu_release(reply);
}

static void replied(void *arg, const mu_reply *reply)
{
    mu_rpc_result *result = arg;
    if (reply->code == MU_OK)
        take_value(result, reply->data, reply->bytes);
    else
        end_with_reply(result, reply);
    drop(&result->owner->sent, result);
}

// ---- Sending ------------------------------------------------------------------------------------

static mu_status ask(mu_rpc_result *result, uint64_t transfer)
{
    mu_rpc_client *client = result->owner;
    const size_t inside = transfer == 0 ? result->message->bytes : 0, name = strlen(result->method);
    uint8_t *data = mu__alloc(MU_RPC_HEAD + inside);
    if (data == NULL)
        return MU_RESOURCE_EXHAUSTED;
    uint8_t *end = mu__put_number(data, result->id, 8);
    end = mu__put_number(end, transfer, 8);
    end = mu__put_number(end, name, 1);
    end = mu__put_bytes(end, result->method, name);
    mu__message_copy(result->message, 0, end, inside);
    end += inside;
    const int64_t left_ns = result->deadline_ns - mu__now_ns();
    const mu_status status =
        mu__session_request(&client->member.session, &(mu_request_options){.method = "rpc.call",
                                                                           .data = data,
                                                                           .bytes = (size_t)(end - data),
                                                                           .seconds = (double)MU_MAX(left_ns, 0) / 1e9,
                                                                           .replied = replied,
                                                                           .arg = result});
    mu__free(data);
    if (status != MU_OK)
        return status;
    mu_release(result->message);
    result->message = NULL;
    return MU_OK;
}

static void end_unsent(mu_rpc_result *result)
{
    mu_error_value error;
    mu__error_move(&error);
    end_with(result, error.code, error.message);
    drop(&result->owner->sent, result);
}

static void parts_sent(void *arg, uint64_t transfer, mu_status code, const char *why)
{
    mu_rpc_result *result = arg;
    result->transfer = 0;
    if (code == MU_OK && ask(result, transfer) == MU_OK)
        return;
    if (code != MU_OK)
        mu__error(code, "%s", why);
    end_unsent(result);
}

static void end_too_new(mu_rpc_result *result, int spoken)
{
    char text[400];
    snprintf(text, sizeof text,
             "it speaks version %d of the wire, and %s came with version %d; restart that process with this version of "
             "Muster",
             spoken, result->need.what, result->need.version);
    end_with(result, MU_UNIMPLEMENTED, text);
    drop(&result->owner->sent, result);
}

// No server of this size takes it, however often it is sent.
static void end_too_large(mu_rpc_result *result, int64_t most)
{
    char text[300];
    result->too_large = true;
    snprintf(text, sizeof text,
             "the request has %zu bytes, and all messages of the server have room for %lld; send it in parts, such as "
             "a variable that is sharded, or start the server with a larger max_bytes",
             result->message->bytes, (long long)most);
    end_with(result, MU_RESOURCE_EXHAUSTED, text);
    drop(&result->owner->sent, result);
}

// Sends a call that is in the list `sent`.
static void send_call(mu_rpc_result *result)
{
    mu_rpc_client *client = result->owner;
    if (client->member.session.version < result->need.version) {
        end_too_new(result, client->member.session.version);
        return;
    }
    if (client->most_bytes > 0 && result->message->bytes > (size_t)client->most_bytes) {
        end_too_large(result, client->most_bytes);
        return;
    }
    if (mu__channel_fits_inline(&client->channel, result->message->bytes)) {
        if (ask(result, 0) != MU_OK)
            end_unsent(result);
        return;
    }
    result->transfer = mu__channel_send(&client->channel, result->message, parts_sent, result);
    if (result->transfer == 0)
        end_unsent(result);
    else
        mu__channel_pump(&client->channel);
}

static void send_waiting(mu_rpc_client *client)
{
    while (client->server != 0 && client->sent.n < client->credits && client->waiting.n > 0) {
        mu_rpc_result *result = take_out(&client->waiting, client->waiting.first);
        append(&client->sent, result);
        send_call(result);
    }
}

// ---- Deadlines and cancelled calls --------------------------------------------------------------

static void cancel_replied(void *arg, const mu_reply *reply) { (void)arg, (void)reply; }

static void send_cancel(mu_rpc_result *result)
{
    uint8_t number[8];
    mu_error_value ignored;
    mu__put_number(number, result->id, 8);
    const mu_request_options cancel = {.method = "rpc.cancel",
                                       .data = number,
                                       .bytes = sizeof number,
                                       .seconds = result->owner->node.heartbeat_seconds,
                                       .replied = cancel_replied};
    result->cancel_sent = mu__session_request(&result->owner->member.session, &cancel) == MU_OK;
    if (result->cancel_sent)
        return;
    mu__error_move(&ignored); // the next step tries again
    atomic_store(&result->owner->cancels, true);
}

static void end_late(mu_rpc_result *result)
{
    mu_rpc_client *client = result->owner;
    char text[600], word[300];
    if (client->server == 0)
        snprintf(text, sizeof text, "the server cannot be reached: %s", client->member.dial.reason);
    else {
        mu__session_last_word(&client->member.session, word, sizeof word);
        snprintf(text, sizeof text, "no result in time; the server was %s", word);
    }
    end_with(result, MU_DEADLINE_EXCEEDED, text);
}

static bool is_over(mu_rpc_result *result, int64_t now)
{
    if (now >= result->deadline_ns && !atomic_load(&result->cancelled))
        end_late(result);
    return atomic_load(&result->cancelled) || now >= result->deadline_ns;
}

// Looks through the lists, if a deadline has passed or a call was cancelled.
static void end_calls_that_are_over(mu_rpc_client *client, int64_t now)
{
    mu_rpc_result *next;
    if (!atomic_exchange(&client->cancels, false) && now < client->due_ns)
        return;
    client->due_ns = MU_FOREVER;
    for (mu_rpc_result *result = client->waiting.first; result != NULL; result = next) {
        next = result->next;
        if (is_over(result, now))
            drop(&client->waiting, result);
        else
            mu__sooner(&client->due_ns, result->deadline_ns);
    }
    for (mu_rpc_result *result = client->sent.first; result != NULL; result = next) {
        next = result->next;
        const bool over = is_over(result, now);
        if (over && result->transfer != 0) {
            mu__channel_drop(&client->channel, result->transfer);
            drop(&client->sent, result);
        } else if (over && !result->cancel_sent) {
            send_cancel(result);
        } else if (!over) {
            mu__sooner(&client->due_ns, result->deadline_ns);
        }
    }
}

// ---- The connection: the membership policy ------------------------------------------------------

static void fail_waiting(mu_rpc_client *client)
{
    char text[300];
    snprintf(text, sizeof text, "the server cannot be reached: %s", client->member.dial.reason);
    while (client->fail_fast && client->waiting.n > 0) {
        end_with(client->waiting.first, MU_UNAVAILABLE, text);
        drop(&client->waiting, client->waiting.first);
    }
}

static void unreached(mu_node *node, int member, int64_t now)
{
    mu_rpc_client *client = mu__client_of(node);
    const bool gone = client->closed && client->member.dial.refused_there, news = gone && !client->gone;
    (void)member;
    client->tried = true;
    client->gone = gone;
    if (news && client->changed != NULL)
        client->changed(client->changed_arg);
    client->retry_ns = now + client->pause_ns;
    client->pause_ns = MU_MIN(client->pause_ns + client->pause_ns / 2, (int64_t)MOST_PAUSE_NS);
    fail_waiting(client);
}

static bool welcomed(mu_node *node, int member, const mu_hello *hello)
{
    mu_rpc_client *client = mu__client_of(node);
    mu_rpc_greeting theirs;
    if (!mu__rpc_greeted(hello->greeting, &theirs)) {
        snprintf(client->member.dial.reason, sizeof client->member.dial.reason, "it is not an RPC server");
        unreached(node, member, mu__now_ns());
        return false;
    }
    client->credits = MU_MAX(theirs.credits, 1);
    client->most_bytes = theirs.most_bytes;
    node->heartbeat_seconds = theirs.heartbeat; // each end judges the other by the same limit
    return true;
}

static void joined(mu_node *node, int member, const mu_hello *hello)
{
    mu_rpc_client *client = mu__client_of(node);
    uint64_t number = 0;
    memcpy(&number, hello->incarnation, sizeof number);
    client->server = number != 0 ? number : 1;
    client->closed = client->gone = false;
    if (client->changed != NULL)
        client->changed(client->changed_arg);
    client->tried = false;
    client->pause_ns = FIRST_PAUSE_NS;
    mu__channel_begin(&client->channel, node, member, &client->budget);
    send_waiting(client);
}

// Calls that were sent have ended with the session, whose requests they are, or end with the channel.
static void left(mu_node *node, int member)
{
    mu_rpc_client *client = mu__client_of(node);
    (void)member;
    client->server = 0;
    client->closed = client->member.session.closed_there;
    if (client->changed != NULL)
        client->changed(client->changed_arg);
    mu__channel_end(&client->channel);
    client->retry_ns = mu__now_ns();
}

static void lost(mu_node *node, int member, const char *why)
{
    mu_rpc_client *client = mu__client_of(node);
    mu__log(MU_LOG_INFO, "RPC client %s: the connection to %s is lost: %s", client->name, client->address, why);
    left(node, member);
}

// Large results come in parts.
static void asked(mu_node *node, int member, const mu_request *request)
{
    static const char none[] = "a client answers no calls";
    const mu_reply reply = {
        .id = request->id, .code = MU_UNIMPLEMENTED, .data = (const uint8_t *)none, .bytes = sizeof none - 1};
    mu_rpc_client *client = mu__client_of(node);
    mu_error_value ignored;
    (void)member;
    if (!mu__channel_asked(&client->channel, request) && mu__session_reply(&client->member.session, &reply) != MU_OK)
        mu__error_move(&ignored);
}

static int64_t on_step(mu_node *node, int64_t now)
{
    mu_rpc_client *client = mu__client_of(node);
    const bool away = client->server == 0 && client->member.dial.state == MU_DIAL_IDLE;
    end_calls_that_are_over(client, now);
    if (away && !client->ending && now >= client->retry_ns) {
        client->retry_ns = MU_FOREVER;
        mu__dial_start(node, 0, client->address, now);
    }
    send_waiting(client);
    if (client->server != 0)
        mu__channel_pump(&client->channel);
    return MU_MIN(client->due_ns, client->server == 0 ? client->retry_ns : MU_FOREVER);
}

static const mu_membership server_of_a_client = {.name = "RPC server",
                                                 .welcomed = welcomed,
                                                 .joined = joined,
                                                 .asked = asked,
                                                 .left = left,
                                                 .lost = lost,
                                                 .unreached = unreached,
                                                 .on_step = on_step};

// ---- The thread ---------------------------------------------------------------------------------

static void continue_goodbye(mu_rpc_client *client)
{
    const int64_t now = mu__now_ns();
    if (!client->said_goodbye) {
        client->said_goodbye = true;
        client->goodbye_ns = now + GOODBYE_NS;
        mu__node_leave(&client->node);
    }
    client->ended = mu__node_all_sent(&client->node) || now >= client->goodbye_ns;
    client->until_ns = MU_MIN(client->until_ns, now + GOODBYE_POLL_NS);
}

int64_t mu__client_step(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->until_ns = mu__node_step(&client->node, 0);
    pthread_mutex_unlock(&client->lock);
    return client->until_ns;
}

static void drive(void *arg)
{
    mu_rpc_client *client = arg;
    pthread_mutex_lock(&client->lock);
    while (!client->ended) {
        client->until_ns = mu__node_step(&client->node, client->until_ns);
        if (client->ending)
            continue_goodbye(client);
    }
    pthread_mutex_unlock(&client->lock);
}

// ---- Making and ending --------------------------------------------------------------------------

static void end_all(mu_result_list *list)
{
    for (mu_rpc_result *result = list->first; result != NULL; result = result->next)
        end_with(result, MU_CANCELLED, "the client was released");
}

static void client_destroy(void *object)
{
    mu_rpc_client *client = object;
    if (client->has_lock) {
        pthread_mutex_lock(&client->lock);
        client->ending = true;
        end_all(&client->waiting);
        end_all(&client->sent);
        pthread_mutex_unlock(&client->lock);
    }
    if (client->driver != NULL) {
        mu__node_wake(&client->node);
        mu__worker_free(client->driver);
    }
    mu__node_end(&client->node);
    mu__channel_end(&client->channel);
    while (client->waiting.n > 0)
        drop(&client->waiting, client->waiting.first);
    mu_release(client->node.keyring);
    mu__client_forget_methods(client);
    mu__forgotten_free(client);
    mu__free(client->name);
    mu__free(client->address);
    mu__free(client->place);
    if (client->has_lock)
        pthread_mutex_destroy(&client->lock);
}

static mu_type client_type = {.name = "rpc client", .destroy = client_destroy};

static mu_status start(mu_rpc_client *client)
{
    const mu_rpc_greeting own = {.credits = 0, .heartbeat = client->node.heartbeat_seconds};
    mu__rpc_greet(&own, client->node.own.greeting, sizeof client->node.own.greeting);
    client->node.own.rank = 1;
    client->node.membership = &server_of_a_client;
    client->node.members = client->members;
    client->members[0] = &client->member;
    client->node.n_members = 1;
    client->pause_ns = FIRST_PAUSE_NS;
    client->due_ns = MU_FOREVER;
    MU_TRY(mu__node_start(&client->node));
    if (!mu__system->threads)
        return MU_OK;
    client->driver = mu__worker_new("rpc client", NULL, 1, mu__runtime());
    return client->driver != NULL ? mu__worker_post(client->driver, drive, client) : mu_error_code();
}

static mu_status fill(mu_rpc_client *client, const mu_rpc_client_args *args, mu_role role, int accepts)
{
    client->has_lock = mu__lock_init(&client->lock, "mu_rpc_client_new");
    if (!client->has_lock)
        return mu_error_code();
    client->address = mu__strdup(args->address);
    client->name = mu__strdup(args->name != NULL ? args->name : args->address);
    client->place = mu__strdup(args->address);
    client->timeout =
        args->timeout_in_ms > 0 ? (double)args->timeout_in_ms / 1e3 : mu__setting_real(MU_SETTING_TIMEOUT);
    client->fail_fast = args->fail_fast;
    client->max_waiting = args->max_waiting > 0 ? args->max_waiting : DEFAULT_WAITING;
    client->budget.limit = (size_t)(args->max_bytes > 0 ? args->max_bytes : DEFAULT_BYTES);
    if (client->address == NULL || client->name == NULL || client->place == NULL)
        return MU_RESOURCE_EXHAUSTED;
    client->node.accepts = accepts;
    MU_TRY(mu__rpc_prepare(&client->node, role, &client->lock));
    return start(client);
}

static mu_status check_args(const mu_rpc_client_args *args)
{
    char host[MU_MAX_HOST + 1];
    int port;
    MU_TRY(mu__rpc_check_layer(args->rpc_layer, "mu_rpc_client_new: the RPC layer"));
    MU_TRY(mu__need(args->address, "mu_rpc_client_new: the address"));
    MU_TRY(mu__address_split(args->address, host, &port));
    if (args->timeout_in_ms < 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_rpc_client_new: timeout_in_ms is %lld; it cannot be negative",
                         (long long)args->timeout_in_ms);
    MU_TRY(mu__args_positive(args, "max_waiting", args->max_waiting, "mu_rpc_client_new"));
    return mu__args_positive(args, "max_bytes", args->max_bytes, "mu_rpc_client_new");
}

mu_rpc_client *mu__client_new(const mu_rpc_client_args *given, mu_role role, int accepts)
{
    mu_rpc_client_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_rpc_client_new") != MU_OK ||
        check_args(&args) != MU_OK || mu__runtime() == NULL)
        return NULL;
    mu_rpc_client *client = mu__new(&client_type, sizeof *client);
    if (client == NULL)
        return NULL;
    client->node.poller = client->node.waker = -1;
    if (fill(client, &args, role, accepts) == MU_OK &&
        (!args.list_registered_methods || mu_rpc_client_methods(client) != NULL))
        return mu__give(client);
    mu_release(client);
    return NULL;
}

mu_rpc_client *mu_rpc_client_new_with(const mu_rpc_client_args *given)
{
    return mu__client_new(given, MU_ROLE_NONE, MU_BEARER_ALL);
}

mu_rpc_client *mu__client_of_task(const char *address, const char *name, mu_role role, int accepts)
{
    mu_rpc_client_args args = {
        .size = sizeof args, .rpc_layer = "muster", .address = address, .name = name, .fail_fast = true};
    mu_pool *pool = mu_pool_open();
    mu_rpc_client *client = mu_retain(mu__client_new(&args, role, accepts));
    mu_pool_close(pool);
    char *place = client != NULL && name != NULL ? mu__sprintf("%s, %s", address, name) : NULL;
    if (place == NULL)
        return mu__pending() ? (mu_release(client), NULL) : client;
    mu__free(client->place); // no call has begun, so nobody reads it
    client->place = place;
    return client;
}

// ---- Calling ------------------------------------------------------------------------------------

// A call that is for no request of another process is one itself: its number is this process's.
static uint64_t next_id(mu_rpc_client *client)
{
    uint64_t request = mu__context()->request, number = ++client->n_calls;
    if (request == 0) {
        memcpy(&request, client->node.own.incarnation, sizeof request);
        request = (request + number) & MU_REQUEST_MASK;
    }
    return request << MU_CALL_BITS | (number & ((1u << MU_CALL_BITS) - 1));
}

// With the lock held: sends the call now, or lets it wait.
static mu_status begin_call(mu_rpc_client *client, mu_rpc_result *result)
{
    const bool now = client->server != 0 && client->waiting.n == 0 && client->sent.n < client->credits;
    if (!now && client->waiting.n >= client->max_waiting)
        return mu__error(
            MU_RESOURCE_EXHAUSTED,
            "mu_rpc_call: %d calls wait for the server at %s, as many as max_waiting allows; wait for results first",
            client->waiting.n, client->address);
    result->owner = client;
    result->begun_ns = mu__now_ns();
    result->id = next_id(client);
    append(now ? &client->sent : &client->waiting, mu_retain(result));
    if (now) {
        send_call(result);
        mu__session_flush(&client->node, 0);
    } else if (client->tried) {
        fail_waiting(client);
    }
    mu__sooner(&client->due_ns, result->deadline_ns);
    if (result->deadline_ns < client->until_ns || result->transfer != 0)
        mu__node_wake(&client->node);
    return MU_OK;
}

static mu_status check_call(const mu_rpc_call_args *args)
{
    MU_TRY(mu__need(args->client, "mu_rpc_call: the client"));
    MU_TRY(mu__need(args->method, "mu_rpc_call: the method"));
    if (strlen(args->method) > MU_RPC_NAME)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_rpc_call: the method's name \"%.60s…\" has %zu bytes; at most %d are possible",
                         args->method, strlen(args->method), MU_RPC_NAME);
    if (args->timeout_in_ms < 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_rpc_call: timeout_in_ms is %lld; it cannot be negative",
                         (long long)args->timeout_in_ms);
    return MU_OK;
}

mu_rpc_result *mu__client_call_since(mu_rpc_client *client, const mu_wire_need *need, const char *method,
                                     mu_value *arguments, double seconds, void (*ended)(void *arg), void *arg)
{
    mu_rpc_result *result = mu__result_new(client, method);
    mu_message *message = result != NULL ? mu__message_to_send(arguments, "mu_rpc_call: the arguments") : NULL;
    if (message != NULL) {
        result->message = message;
        result->need = need != NULL ? *need : (mu_wire_need){0};
        result->deadline_ns = mu__deadline_ns(seconds);
        result->ended = ended;
        result->ended_arg = arg;
        pthread_mutex_lock(&client->lock);
        begin_call(client, result);
        pthread_mutex_unlock(&client->lock);
    }
    if (!mu__pending())
        return result;
    mu_release(result);
    return NULL;
}

mu_rpc_result *mu__client_call(mu_rpc_client *client, const char *method, mu_value *arguments, double seconds,
                               void (*ended)(void *arg), void *arg)
{
    return mu__client_call_since(client, NULL, method, arguments, seconds, ended, arg);
}

size_t mu__client_sent(mu_rpc_client *client, const mu_rpc_result *result)
{
    pthread_mutex_lock(&client->lock);
    const size_t sent = result->message == NULL ? SIZE_MAX
                        : result->transfer != 0 ? mu__channel_sent(&client->channel, result->transfer)
                                                : 0;
    pthread_mutex_unlock(&client->lock);
    return sent;
}

double mu__client_timeout(const mu_rpc_client *client) { return client->timeout; }

mu_rpc_result *mu_rpc_call_with(const mu_rpc_call_args *given)
{
    mu_rpc_call_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_rpc_call") != MU_OK || check_call(&args) != MU_OK)
        return NULL;
    const double seconds = args.timeout_in_ms > 0 ? (double)args.timeout_in_ms / 1e3 : args.client->timeout;
    mu_value *arguments = mu__variables_read(args.arguments);
    if (mu__pending())
        return NULL;
    return mu__give(mu__client_call(args.client, args.method, arguments, seconds, NULL, NULL));
}

void mu__client_watch(mu_rpc_client *client, void (*changed)(void *arg), void *arg)
{
    pthread_mutex_lock(&client->lock);
    client->changed = changed;
    client->changed_arg = arg;
    pthread_mutex_unlock(&client->lock);
}

uint64_t mu__client_server(mu_rpc_client *client, bool *gone)
{
    pthread_mutex_lock(&client->lock);
    const uint64_t server = client->server;
    *gone = client->gone;
    pthread_mutex_unlock(&client->lock);
    return server;
}

unsigned mu__client_ended(const mu_rpc_client *client) { return atomic_load(&client->member.session.n_ended); }

void mu__client_route(mu_rpc_client *client, void *route, int store)
{
    client->route = route;
    client->store = store;
}

void *mu__client_routed(const mu_rpc_client *client, int *store)
{
    *store = client->store;
    return client->route;
}

const char *mu__client_address(const mu_rpc_client *client) { return client->address; }

const char *mu__client_place(const mu_rpc_client *client) { return client->place; }

const char *mu__client_task(const mu_rpc_client *client)
{
    const size_t length = strlen(client->address);
    return client->place[length] != '\0' ? client->place + length + 2 : NULL;
}

uint64_t mu_rpc_client_server(mu_rpc_client *client)
{
    bool gone;
    return mu__need(client, "mu_rpc_client_server: the client") == MU_OK ? mu__client_server(client, &gone) : 0;
}

void mu__client_keep(mu_rpc_client *client) { client->keeper = mu_rpc_client_server(client); }

bool mu__client_has_lost(mu_rpc_client *client)
{
    return client->keeper != 0 && client->keeper != mu_rpc_client_server(client);
}
