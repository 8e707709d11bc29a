// The client's part of stores: sends a request to whoever is the store's primary, as often as it takes.
//
// A request keeps its number while it is sent again, so that the store applies it once. Who is primary is found by
// asking: a server that is not says so, with the epoch that it knows, and the next one is asked. An answer with a lower
// epoch than one seen before comes from an old primary, and counts for nothing.
#include "rpc/stores/store.h"

#include "base/system.h"

#include <muster/cancellation.h>

#define FIRST_PAUSE_NS 1000000
#define MOST_PAUSE_NS  100000000
enum { MOST_OUTSTANDING = 2048, MOST_SPAN = 2048, MOST_KNOWN = 8 };

// What answers of an earlier epoch have shown.
typedef struct known_change {
    int64_t sequence, epoch;
} known_change;

typedef struct store_view {
    int server;    // believed to be the primary
    int64_t epoch; // the highest heard of
    int64_t known; // the highest sequence number in an answer of that epoch
    // Such numbers of earlier epochs, the last one first. One of them goes with each request, the next one after an
    // answer: the server that heard of one before may be lost before it has told the coordinator.
    known_change before[MOST_KNOWN];
    int n_before, telling;
    char not_back[500];  // why a server could not take it back to a snapshot, until a primary answers; "": none
    int not_back_server; // that said so, and may take it back later
} store_view;

// Numbers of requests. A store keeps all requests since the oldest whose answer has not come, so one that waits for
// long, such as a take, would have it keep those of everybody else in this process. Requests that come long after it
// are numbered for themselves, and for stores they are those of another client.
typedef struct numbering {
    int64_t client, n_requests;
    struct {
        int64_t *items;
        size_t n, capacity;
    } outstanding; // numbers of requests whose answers have not come
} numbering;

struct mu_store_client {
    mu_object object;
    pthread_mutex_t lock;
    bool has_lock;
    int n;
    mu_rpc_client **servers; // [n] retained
    store_view *stores;      // [n]
    int64_t cut;
    int n_outstanding;
    struct {
        numbering *items;
        size_t n, capacity;
    } numberings; // never none
};

struct mu_store_request {
    mu_store_client *client;
    int store;
    const char *method;  // static
    mu_value *arguments; // retained; NULL: none
    size_t numbering;    // of the client's
    int64_t number, deadline_ns, pause_ns, due_ns;
    int server, tried;     // asked now; how many servers have been asked since the last pause
    int64_t epoch;         // of the question
    mu_rpc_result *result; // owned; NULL: nothing is on its way
    bool done;
    mu_value *value; // retained
    mu_error_value error;
    char reason[300];         // why the last server did not answer
    const mu_wire_need *need; // of the call; static
};

// ---- What the process knows ---------------------------------------------------------------------

static void client_destroy(void *object)
{
    mu_store_client *client = object;
    for (int i = 0; client->servers != NULL && i < client->n; i++) {
        if (client->servers[i] != NULL)
            mu__client_route(client->servers[i], NULL, 0);
        mu_release(client->servers[i]);
    }
    mu__free(client->servers);
    mu__free(client->stores);
    for (size_t i = 0; i < client->numberings.n; i++)
        mu__free(client->numberings.items[i].outstanding.items);
    mu__free(client->numberings.items);
    if (client->has_lock)
        pthread_mutex_destroy(&client->lock);
}

static mu_status add_numbering(mu_store_client *client)
{
    numbering fresh = {0};
    MU_TRY(mu__random(&fresh.client, sizeof fresh.client));
    return MU_PUSH(&client->numberings, fresh);
}

static mu_type client_type = {.name = "client of stores", .destroy = client_destroy};

static mu_status fill(mu_store_client *client, int n, mu_rpc_client *const *servers)
{
    client->n = n;
    client->servers = mu__calloc((size_t)n, sizeof(mu_rpc_client *));
    client->stores = mu__calloc((size_t)n, sizeof *client->stores);
    client->has_lock = mu__lock_init(&client->lock, "a client of stores");
    if (client->servers == NULL || client->stores == NULL || !client->has_lock)
        return mu_error_code();
    MU_TRY(add_numbering(client));
    for (int i = 0; i < n; i++) {
        client->servers[i] = mu_retain(servers[i]);
        client->stores[i].server = i;
        mu__client_route(servers[i], client, i);
    }
    return MU_OK;
}

mu_store_client *mu__store_client_new(int n, mu_rpc_client *const *servers)
{
    mu_store_client *client = mu__new(&client_type, sizeof *client);
    if (client == NULL || fill(client, n, servers) == MU_OK)
        return client;
    mu_release(client);
    return NULL;
}

mu_rpc_client *const *mu__store_client_servers(const mu_store_client *client, int *n)
{
    *n = client->n;
    return client->servers;
}

void mu__store_client_hear(mu_store_client *client, int64_t cut)
{
    pthread_mutex_lock(&client->lock);
    if (mu__cut_valid(cut))
        client->cut = MU_MAX(client->cut, cut);
    pthread_mutex_unlock(&client->lock);
}

int64_t mu__store_client_cut(mu_store_client *client)
{
    pthread_mutex_lock(&client->lock);
    const int64_t cut = client->cut;
    pthread_mutex_unlock(&client->lock);
    return cut;
}

// ---- Numbers of requests ------------------------------------------------------------------------

static int64_t oldest(const numbering *n)
{
    int64_t number = n->n_requests + 1;
    for (size_t i = 0; i < n->outstanding.n; i++)
        number = MU_MIN(number, n->outstanding.items[i]);
    return number;
}

static void forget(mu_store_client *client, const mu_store_request *request)
{
    numbering *n = request->number > 0 ? &client->numberings.items[request->numbering] : NULL;
    for (size_t i = 0; n != NULL && i < n->outstanding.n; i++)
        if (n->outstanding.items[i] == request->number) {
            n->outstanding.items[i] = n->outstanding.items[--n->outstanding.n];
            client->n_outstanding--;
            return;
        }
}

// The first in which no request waits since long ago: one that is used again tells stores what they may forget.
static mu_status choose_numbering(mu_store_client *client, size_t *at)
{
    for (size_t i = 0; i < client->numberings.n; i++) {
        const numbering *n = &client->numberings.items[i];
        if (n->n_requests + 1 - oldest(n) < MOST_SPAN) {
            *at = i;
            return MU_OK;
        }
    }
    *at = client->numberings.n;
    return add_numbering(client);
}

// With the lock held.
static mu_status give_number(mu_store_client *client, mu_store_request *request)
{
    if (client->n_outstanding == MOST_OUTSTANDING)
        return mu__error(MU_RESOURCE_EXHAUSTED, "%d requests to stores wait for their answers; wait for some first",
                         MOST_OUTSTANDING);
    MU_TRY(choose_numbering(client, &request->numbering));
    numbering *n = &client->numberings.items[request->numbering];
    MU_TRY(MU_PUSH(&n->outstanding, n->n_requests + 1));
    request->number = ++n->n_requests;
    client->n_outstanding++;
    return MU_OK;
}

// ---- What answers say ---------------------------------------------------------------------------

static void note_new_epoch(store_view *view, int64_t epoch)
{
    if (view->known > 0) {
        view->n_before = MU_MIN(view->n_before + 1, MOST_KNOWN);
        memmove(view->before + 1, view->before, (size_t)(view->n_before - 1) * sizeof *view->before);
        view->before[0] = (known_change){.sequence = view->known, .epoch = view->epoch};
    }
    view->epoch = epoch;
    view->known = 0;
    view->telling = 0;
}

// Why a server cannot be the primary, if it says so. One that does not say so again has been ordered otherwise.
static void hear_why(store_view *view, int server, const mu_value *answer)
{
    char *text = NULL;
    mu_error_value ignored;
    if (mu_value_count(answer) > 1 && mu__value_text(mu_value_at(answer, 1), "a reason", &text) == MU_OK) {
        snprintf(view->not_back, sizeof view->not_back, "%s", text);
        view->not_back_server = server;
    } else if (server == view->not_back_server) {
        view->not_back[0] = '\0';
    }
    mu__error_move(&ignored);
    mu__free(text);
}

// With the lock held: what an answer says of the store. False: it comes from an old primary.
static bool learn(mu_store_client *client, mu_store_request *request, const int64_t *head)
{
    store_view *view = &client->stores[request->store];
    client->cut = MU_MAX(client->cut, head[MU_ANSWER_CUT]);
    if (head[MU_ANSWER_EPOCH] < view->epoch && !MU_PLANTED(MU_DEFECT_STALE_PRIMARY))
        return false;
    if (head[MU_ANSWER_EPOCH] > view->epoch)
        note_new_epoch(view, head[MU_ANSWER_EPOCH]);
    if (head[MU_ANSWER_CODE] != MU_NOT_PRIMARY) {
        view->not_back[0] = '\0';
        view->server = request->server;
        view->known = MU_MAX(view->known, head[MU_ANSWER_SEQUENCE]);
        view->telling = view->n_before > 0 ? (view->telling + 1) % view->n_before : 0;
    }
    return true;
}

// ---- One request --------------------------------------------------------------------------------

mu_store_request *mu__store_request_new(mu_store_client *client, int store, const char *method, mu_value *arguments,
                                        double seconds)
{
    mu_store_request *request = mu__calloc(1, sizeof *request);
    if (request == NULL)
        return NULL;
    *request = (mu_store_request){.client = client,
                                  .store = store,
                                  .method = method,
                                  .arguments = mu_retain(arguments),
                                  .pause_ns = FIRST_PAUSE_NS,
                                  .deadline_ns =
                                      mu__deadline_ns(seconds > 0 ? seconds : mu__setting_real(MU_SETTING_TIMEOUT))};
    pthread_mutex_lock(&client->lock);
    const mu_status status = give_number(client, request);
    request->server = client->stores[store].server;
    pthread_mutex_unlock(&client->lock);
    if (status == MU_OK)
        return request;
    mu__store_request_free(request);
    return NULL;
}

void mu__store_request_free(mu_store_request *request)
{
    if (request == NULL)
        return;
    pthread_mutex_lock(&request->client->lock);
    forget(request->client, request);
    pthread_mutex_unlock(&request->client->lock);
    if (request->result != NULL)
        mu_rpc_result_cancel(request->result);
    mu_release(request->result);
    mu_release(request->arguments);
    mu_release(request->value);
    mu__free(request);
}

static void fail(mu_store_request *request, const mu_error_value *error)
{
    request->error = *error;
    request->done = true;
}

static mu_value *question(mu_store_request *request)
{
    mu_store_client *client = request->client;
    pthread_mutex_lock(&client->lock);
    const store_view *view = &client->stores[request->store];
    const numbering *n = &client->numberings.items[request->numbering];
    const int64_t ask[MU_N_ASK] = {request->store,
                                   view->epoch,
                                   client->cut,
                                   n->client,
                                   request->number,
                                   oldest(n),
                                   view->before[view->telling].sequence,
                                   view->before[view->telling].epoch};
    request->epoch = view->epoch;
    pthread_mutex_unlock(&client->lock);
    mu_value *numbers = mu__numbers_value(ask, MU_N_ASK), *method = mu__text_value(request->method);
    return request->arguments != NULL ? mu_list(numbers, method, request->arguments, MU_END)
                                      : mu_list(numbers, method, MU_END);
}

static void send_question(mu_store_request *request, int64_t now)
{
    mu_error_value error;
    mu_pool *pool = mu_pool_open();
    request->result =
        mu__client_call_since(request->client->servers[request->server], request->need, "muster.store.call",
                              question(request), (double)(request->deadline_ns - now) / 1e9, NULL, NULL);
    mu_pool_close(pool);
    if (request->result != NULL)
        return;
    mu__error_move(&error);
    fail(request, &error);
}

// The next server, after a pause if all were asked.
static void try_next(mu_store_request *request, int64_t now)
{
    mu_store_client *client = request->client;
    request->server = (request->server + 1) % client->n;
    request->due_ns = now;
    if (++request->tried < client->n)
        return;
    request->tried = 0;
    request->due_ns = now + request->pause_ns;
    request->pause_ns = MU_MIN(2 * request->pause_ns, (int64_t)MOST_PAUSE_NS);
    pthread_mutex_lock(&client->lock);
    request->server = client->stores[request->store].server;
    pthread_mutex_unlock(&client->lock);
}

static void take_value(mu_store_request *request, const int64_t *head, const mu_value *answer)
{
    mu_value *body = mu_value_count(answer) > 1 ? mu_value_at(answer, 1) : NULL;
    char *text = NULL, failure[MU_FAILURE_TEXT];
    request->done = true;
    if (head[MU_ANSWER_CODE] == MU_OK) {
        request->value = mu_retain(body);
        return;
    }
    if (body == NULL || mu__value_text(body, "an error of a store", &text) == MU_OK) // it had no memory for a text
        mu__error((mu_status)head[MU_ANSWER_CODE], "%s",
                  mu__call_failure(failure, request->method,
                                   mu__client_place(request->client->servers[request->server]),
                                   text != NULL ? text : "the server does not say why"));
    mu__free(text);
    mu__error_move(&request->error);
}

// `read`: whether the answer begins with the numbers at all.
static mu_status check_head(const mu_store_request *request, mu_status read, const int64_t *head)
{
    const bool good = read == MU_OK && head[MU_ANSWER_CODE] >= MU_NOT_PRIMARY &&
                      head[MU_ANSWER_CODE] <= MU_UNAUTHENTICATED && mu__epoch_valid(head[MU_ANSWER_EPOCH]) &&
                      mu__cut_valid(head[MU_ANSWER_CUT]);
    if (read != MU_OK)
        mu_error_take();
    return good ? MU_OK
                : mu__error(MU_DATA_LOSS,
                            "the answer does not begin with an epoch, a cut and a status; the server must run the same "
                            "version of Muster (\"%s\" at %s)",
                            request->method, mu__client_place(request->client->servers[request->server]));
}

// A server that answers: the primary, which has done it, or another one.
static void take_answer(mu_store_request *request, const mu_value *answer, int64_t now)
{
    int64_t head[MU_N_ANSWER];
    if (check_head(request, mu__numbers_of(mu_value_at(answer, 0), head, MU_N_ANSWER), head) != MU_OK) {
        mu__error_move(&request->error);
        request->done = true;
        return;
    }
    pthread_mutex_lock(&request->client->lock);
    const bool current = learn(request->client, request, head);
    if (head[MU_ANSWER_CODE] == MU_NOT_PRIMARY)
        hear_why(&request->client->stores[request->store], request->server, answer);
    const bool newer = request->client->stores[request->store].epoch > request->epoch;
    pthread_mutex_unlock(&request->client->lock);
    if (current && head[MU_ANSWER_CODE] != MU_NOT_PRIMARY) {
        take_value(request, head, answer);
    } else if (current && newer && head[MU_ANSWER_EPOCH] > request->epoch) {
        request->tried = 0; // the same server, which may only want the epoch that it gave
        request->due_ns = now;
    } else {
        snprintf(request->reason, sizeof request->reason, "it is not the primary of store %d", request->store);
        try_next(request, now);
    }
}

// A call that failed: the request may have been applied or not, so it is sent again, unless no server has room for it.
static void take_failure(mu_store_request *request, mu_error_value *error, int64_t now)
{
    const bool again = error->code == MU_UNAVAILABLE || error->code == MU_DEADLINE_EXCEEDED ||
                       (error->code == MU_RESOURCE_EXHAUSTED && !mu__result_too_large(request->result));
    snprintf(request->reason, sizeof request->reason, "%.290s", error->message);
    if (again)
        try_next(request, now);
    else
        fail(request, error);
}

static void take_result(mu_store_request *request, int64_t now)
{
    mu_error_value error;
    mu_pool *pool = mu_pool_open();
    const mu_value *answer = mu_rpc_result_value(request->result);
    mu__error_move(&error);
    if (error.code == MU_OK && answer != NULL)
        take_answer(request, answer, now);
    else
        take_failure(request, &error, now);
    mu_pool_close(pool);
    if (error.code == MU_CANCELLED) // it may run at its server still (settle_all)
        return;
    mu_release(request->result);
    request->result = NULL;
}

static void end_late(mu_store_request *request)
{
    mu_error_value error;
    const char *address = mu__client_place(request->client->servers[request->store]);
    pthread_mutex_lock(&request->client->lock);
    const char *not_back = request->client->stores[request->store].not_back;
    if (*not_back != '\0')
        mu__error(MU_UNAVAILABLE,
                  "store %d cannot go back to its last snapshot: %s. Make the file readable while the program waits, "
                  "or start the program again and restore a checkpoint (\"%s\" at %s)",
                  request->store, not_back, request->method, address);
    else
        mu__error(MU_UNAVAILABLE, "no server answers as primary of store %d: %s (\"%s\" at %s)", request->store,
                  request->reason[0] != '\0' ? request->reason : "the time was too short", request->method, address);
    pthread_mutex_unlock(&request->client->lock);
    mu__error_move(&error);
    fail(request, &error);
}

bool mu__store_request_step(mu_store_request *request)
{
    const int64_t now = mu__now_ns();
    if (!request->done && request->result != NULL && mu_rpc_result_is_done(request->result))
        take_result(request, now);
    if (!request->done && request->result == NULL && now >= request->deadline_ns)
        end_late(request);
    else if (!request->done && request->result == NULL && now >= request->due_ns)
        send_question(request, now);
    return request->done;
}

int64_t mu__store_request_due(const mu_store_request *request)
{
    return request->result != NULL ? MU_FOREVER : MU_MIN(request->due_ns, request->deadline_ns);
}

mu_value *mu__store_request_value(mu_store_request *request)
{
    return mu__error_raise(&request->error) == MU_OK ? mu__give(mu_retain(request->value)) : NULL;
}

// ---- Waiting ------------------------------------------------------------------------------------

// Until the next step: for a result, which the thread's cancellation ends, or for a pause.
static mu_status wait_for(mu_store_request *request)
{
    if (request->result != NULL) {
        mu_rpc_result_is_ok(request->result);
        return MU_OK;
    }
    MU_TRY(mu__check_stop());
    if (mu_cancellation_is_cancelled(mu__context()->cancellation))
        return mu__error(MU_CANCELLED, "this thread was cancelled while it waited for \"%s\"", request->method);
    mu__sleep_ns(MU_MAX(mu__store_request_due(request) - mu__now_ns(), 0));
    return MU_OK;
}

// ---- Calls on what servers keep -------------------------------------------------------------------

// A call that waits: on a store's request, or on the server itself.
typedef struct waiting_call {
    mu_store_request *request;
    mu_rpc_result *result; // of the pool
} waiting_call;

static mu_status begin_call(const char *method, const mu_remote_call *call, waiting_call *out)
{
    int store;
    mu_store_client *route = mu__client_routed(call->client, &store);
    if (route == NULL) {
        const double seconds = call->seconds > 0 ? call->seconds : mu__client_timeout(call->client);
        out->result =
            mu__give(mu__client_call_since(call->client, call->need, method, call->arguments, seconds, NULL, NULL));
        return out->result != NULL ? MU_OK : mu_error_code();
    }
    out->request = mu__store_request_new(route, store, method, call->arguments, call->seconds);
    if (out->request == NULL)
        return mu_error_code();
    out->request->need = call->need;
    mu__store_request_step(out->request);
    return MU_OK;
}

// Steps every request; the first that has not ended, NULL: all have.
static mu_store_request *step_all(int n, waiting_call *waiting)
{
    mu_store_request *open = NULL;
    for (int i = 0; i < n; i++)
        if (waiting[i].request != NULL && !mu__store_request_step(waiting[i].request) && open == NULL)
            open = waiting[i].request;
    return open;
}

// *at: the call that failed.
static mu_status end_calls(int n, mu_remote_call *calls, waiting_call *waiting, int *at)
{
    mu_status status = MU_OK;
    for (mu_store_request *open; status == MU_OK && (open = step_all(n, waiting)) != NULL;)
        status = wait_for(open);
    for (int i = 0; i < n && status == MU_OK; i++) {
        *at = i;
        calls[i].value = waiting[i].request != NULL  ? mu__store_request_value(waiting[i].request)
                         : waiting[i].result != NULL ? mu_rpc_result_value(waiting[i].result)
                                                     : NULL;
        status = mu_error_code();
    }
    return status;
}

const char *mu__lost_text(char text[MU_LOST_TEXT], const mu_rpc_client *client)
{
    const char *task = mu__client_task(client);
    snprintf(text, MU_LOST_TEXT,
             "%.60s at %.260s has started again, and its variables and tables are lost; start the program again, and "
             "restore a checkpoint",
             task != NULL ? task : "the parameter server", mu__client_address(client));
    return text;
}

// What another process of a server lacks was there before, so it is lost, and not a name that was never there. A
// store's copies outlive a server.
static void tell_what_is_lost(const char *method, mu_rpc_client *client)
{
    int store;
    char text[MU_FAILURE_TEXT], why[MU_LOST_TEXT];
    mu_error_value error;
    if (mu_error_code() != MU_NOT_FOUND || mu__client_routed(client, &store) != NULL || !mu__client_has_lost(client))
        return;
    mu__error_move(&error);
    error.code = MU_UNAVAILABLE;
    snprintf(error.message, sizeof error.message, "%s",
             mu__call_failure(text, method, mu__client_place(client), mu__lost_text(why, client)));
    mu__error_raise(&error);
}

// Puts in front of an error what its call was about.
static void name_subject(const mu_remote_subject *subject)
{
    char text[300] = "", name[120] = "";
    if (subject->name != NULL)
        snprintf(name, sizeof name, " '%.100s'", subject->name);
    if (subject->what != NULL)
        snprintf(text, sizeof text, "%.60s%s%.60s%s: ", subject->op != NULL ? subject->op : "",
                 subject->op != NULL ? " of " : "", subject->what, name);
    mu__error_begin(0, text);
}

// A call that was cancelled may run at its server still. When one has failed the others do what they were asked, which
// is waited for.
static void settle_all(int n, const mu_remote_call *calls, const waiting_call *waiting)
{
    for (int i = 0; i < n; i++) {
        mu_rpc_result *result = waiting[i].request != NULL ? waiting[i].request->result : waiting[i].result;
        if (!calls[i].settles || result == NULL)
            continue;
        (void)mu_rpc_result_is_ok(result);
        mu__result_settle(result, calls[i].leaves);
    }
}

mu_status mu__remote_calls(const char *method, int n, mu_remote_call *calls)
{
    int at = 0;
    if (mu__pending())
        return mu_error_code();
    waiting_call *waiting = mu__calloc((size_t)n + 1, sizeof *waiting);
    mu_status status = waiting != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n && status == MU_OK; i++)
        status = begin_call(method, &calls[at = i], &waiting[i]);
    if (status == MU_OK)
        status = end_calls(n, calls, waiting, &at);
    if (status != MU_OK && waiting != NULL)
        settle_all(n, calls, waiting);
    if (status != MU_OK && n > 0) {
        tell_what_is_lost(method, calls[at].client);
        name_subject(&calls[at].subject);
    }
    for (int i = 0; waiting != NULL && i < n; i++)
        mu__store_request_free(waiting[i].request);
    mu__free(waiting);
    return mu_error_code();
}

mu_value *mu__remote_call(mu_rpc_client *client, const char *method, mu_remote_subject subject, mu_value *arguments)
{
    mu_remote_call call = {.client = client, .subject = subject, .arguments = arguments};
    return mu__remote_calls(method, 1, &call) == MU_OK ? call.value : NULL;
}
