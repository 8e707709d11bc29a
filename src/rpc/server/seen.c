// The table of requests seen: what makes a request that is sent again, or comes twice, be applied once.
//
// It is bounded: a client has at most MOST_WAITING unanswered requests, and the client that was silent for longest goes
// when there are too many clients or requests. A client that ends leaves its last requests here for good, and their
// answers may be large: answers are freed once no client can request them any more, or earlier if they would fill the
// memory. A copy and a snapshot get the table as one value, which must not have more elements than a message may: the
// limits of requests and of their answers' elements are together well below that. Linear searches do, because a table
// has one client for each process and few requests each.
#include "rpc/stores/store.h"

#include "base/system.h"

enum { MOST_CLIENTS = 8192, MOST_WAITING = 4096, MOST_REQUESTS = 1 << 18, MOST_ELEMENTS = 1 << 18, HEAD = 3 };
#define MOST_BYTES ((size_t)1 << 30)
#define LOOK_NS    1000000000

static void drop_answer(mu_seen *seen, mu_seen_client *client, mu_seen_request *request)
{
    seen->bytes -= request->bytes;
    seen->n_elements -= request->n_elements;
    client->n_answers -= request->answer != NULL;
    mu_release(request->answer);
    request->answer = NULL;
    request->bytes = request->n_elements = 0;
}

static void forget_requests(mu_seen *seen, mu_seen_client *client, int64_t before)
{
    size_t kept = 0;
    for (size_t i = 0; i < client->requests.n; i++) {
        mu_seen_request *request = &client->requests.items[i];
        if (request->number >= before)
            client->requests.items[kept++] = *request;
        else
            drop_answer(seen, client, request);
    }
    seen->n_requests -= client->requests.n - kept;
    client->requests.n = kept;
}

static void free_client(mu_seen *seen, mu_seen_client *client)
{
    for (size_t i = 0; i < client->requests.n; i++)
        drop_answer(seen, client, &client->requests.items[i]);
    seen->n_requests -= client->requests.n;
    mu__free(client->requests.items);
}

static mu_seen_client *find_client(mu_seen *seen, int64_t number)
{
    for (size_t i = 0; i < seen->clients.n; i++)
        if (seen->clients.items[i].client == number)
            return &seen->clients.items[i];
    return NULL;
}

static mu_seen_request *find_request(mu_seen_client *client, int64_t number)
{
    for (size_t i = 0; client != NULL && i < client->requests.n; i++)
        if (client->requests.items[i].number == number)
            return &client->requests.items[i];
    return NULL;
}

mu_seen_state mu__seen_find(mu_seen *seen, int64_t client, int64_t number, int64_t oldest, const mu_seen_request **out)
{
    mu_seen_client *known = find_client(seen, client);
    *out = NULL;
    seen->calls++;
    if (known == NULL)
        return MU_SEEN_NEW;
    known->used = seen->calls;
    known->used_ns = mu__now_ns();
    if (oldest > known->oldest) {
        known->oldest = oldest;
        forget_requests(seen, known, oldest);
    }
    *out = find_request(known, number);
    if (*out != NULL)
        return MU_PLANTED(MU_DEFECT_APPLIED_TWICE) ? MU_SEEN_NEW : MU_SEEN_DONE;
    return number < known->oldest ? MU_SEEN_LATE : MU_SEEN_NEW;
}

// The client that was silent for longest makes room for one that asks.
static void make_room(mu_seen *seen, int64_t asks)
{
    mu_seen_client *silent = NULL;
    for (size_t i = 0; i < seen->clients.n; i++) {
        mu_seen_client *client = &seen->clients.items[i];
        if (client->client != asks && (silent == NULL || client->used < silent->used))
            silent = client;
    }
    if (silent == NULL)
        return;
    free_client(seen, silent);
    *silent = seen->clients.items[--seen->clients.n];
}

static mu_seen_client *add_client(mu_seen *seen, int64_t client, int64_t oldest)
{
    mu_seen_client *known = find_client(seen, client);
    if (known != NULL)
        return known;
    if (seen->clients.n == MOST_CLIENTS)
        make_room(seen, client);
    const mu_seen_client fresh = {.client = client, .oldest = oldest, .used = seen->calls, .used_ns = mu__now_ns()};
    return MU_PUSH(&seen->clients, fresh) == MU_OK ? &seen->clients.items[seen->clients.n - 1] : NULL;
}

static bool is_above_limits(const mu_seen *seen)
{
    return seen->bytes > MOST_BYTES || seen->n_elements > MOST_ELEMENTS;
}

// The first to be given goes first. `all`: also once the answers of all clients are within the limits.
static void drop_answers(mu_seen *seen, mu_seen_client *client, bool all)
{
    for (size_t k = 0; k < client->requests.n && (all || is_above_limits(seen)); k++)
        if (client->requests.items[k].answer != NULL) {
            client->requests.items[k].sequence = 0;
            drop_answer(seen, client, &client->requests.items[k]);
        }
}

// Of the clients with answers, the one whose last request is oldest; NULL: no client has answers.
static mu_seen_client *longest_silent(mu_seen *seen)
{
    mu_seen_client *found = NULL;
    for (size_t i = 0; i < seen->clients.n; i++) {
        mu_seen_client *client = &seen->clients.items[i];
        if (client->n_answers > 0 && (found == NULL || client->used < found->used))
            found = client;
    }
    return found;
}

// However many large answers there are that clients do not take, and whatever these call themselves. Those that are
// dropped may still be asked for, so no more go than must.
static void drop_most(mu_seen *seen)
{
    mu_seen_client *client;
    if (is_above_limits(seen) && !seen->warned)
        mu__log(MU_LOG_WARNING,
                "clients of a store have not acknowledged %zu bytes of answers, with %zu elements of lists; the "
                "answers of the client that was silent for longest are dropped: if it repeats a request, it is told "
                "only that the request was done",
                seen->bytes, seen->n_elements);
    seen->warned |= is_above_limits(seen);
    while (is_above_limits(seen) && (client = longest_silent(seen)) != NULL)
        drop_answers(seen, client, false);
}

// A client sends a request again until its deadline, so one that was silent for longer does not. If it does all the
// same, it gets the error that the request was done.
static void drop_silent(mu_seen *seen)
{
    const int64_t now = mu__now_ns(), before_ns = now - (int64_t)(mu__setting_real(MU_SETTING_TIMEOUT) * 1e9);
    if (seen->bytes <= MU_SEEN_BYTES || now < seen->look_ns)
        return;
    seen->look_ns = now + LOOK_NS;
    for (size_t i = 0; i < seen->clients.n; i++)
        if (seen->clients.items[i].used_ns < before_ns)
            drop_answers(seen, &seen->clients.items[i], true);
}

mu_status mu__seen_add(mu_seen *seen, int64_t client, int64_t oldest)
{
    drop_silent(seen);
    drop_most(seen);
    mu_seen_client *known = add_client(seen, client, oldest);
    if (known == NULL)
        return mu_error_code();
    if (known->requests.n == MOST_WAITING)
        return mu__error(MU_RESOURCE_EXHAUSTED, "a client has %d requests without an answer; wait for answers first",
                         MOST_WAITING);
    while (seen->n_requests >= MOST_REQUESTS && seen->clients.n > 1)
        make_room(seen, client);
    known = find_client(seen, client);
    MU_TRY(MU_PUSH(&known->requests, (mu_seen_request){0}));
    known->requests.n--;
    return MU_OK;
}

// Of lists and maps in each other, at most as deep as a message may be.
static size_t elements_of(const mu_value *value)
{
    const bool nested = value->kind == MU_VALUE_LIST || value->kind == MU_VALUE_MAP;
    size_t n = 1;
    for (int i = 0; nested && i < value->n; i++)
        n += elements_of(value->items[i]);
    return n;
}

// Whether an answer can be kept; how large it is. One that cannot be sent to its client cannot go to a copy either.
static bool may_keep(const mu_value *answer, size_t *bytes, size_t *n_elements)
{
    mu_error_value ignored;
    if (answer == NULL)
        return true;
    if (mu__message_bytes(answer, "the answer to a request", bytes) != MU_OK) {
        mu__error_move(&ignored);
        return false;
    }
    *n_elements = elements_of(answer);
    return *n_elements <= MOST_ELEMENTS;
}

void mu__seen_done(mu_seen *seen, int64_t client, int64_t number, int64_t sequence, mu_value *answer)
{
    mu_seen_client *known = find_client(seen, client);
    mu_seen_request *request = find_request(known, number);
    size_t bytes = 0, n_elements = 0;
    if (known == NULL)
        return;
    if (request == NULL) {
        request = &known->requests.items[known->requests.n++];
        seen->n_requests++;
    } else {
        drop_answer(seen, known, request);
    }
    *request = (mu_seen_request){.number = number};
    if (!may_keep(answer, &bytes, &n_elements))
        return;
    *request = (mu_seen_request){
        .number = number, .sequence = sequence, .answer = mu_retain(answer), .bytes = bytes, .n_elements = n_elements};
    known->n_answers += answer != NULL;
    seen->bytes += bytes;
    seen->n_elements += n_elements;
}

void mu__seen_clear(mu_seen *seen)
{
    for (size_t i = 0; i < seen->clients.n; i++)
        free_client(seen, &seen->clients.items[i]);
    mu__free(seen->clients.items);
    *seen = (mu_seen){0};
}

// ---- As a value ---------------------------------------------------------------------------------

// A list for each client: [client, oldest, 0], then [number, sequence, 1 if there is an answer] and the answer, for
// each request that is done.
static mu_value *client_value(const mu_seen_client *client)
{
    mu_value **parts = mu__calloc(2 * client->requests.n + 1, sizeof *parts);
    int n = 0;
    if (parts == NULL)
        return NULL;
    parts[n++] = mu__numbers_value((int64_t[]){client->client, client->oldest, 0}, HEAD);
    for (size_t i = 0; i < client->requests.n; i++) {
        const mu_seen_request *request = &client->requests.items[i];
        const int64_t head[HEAD] = {request->number, request->sequence, request->answer != NULL};
        parts[n++] = mu__numbers_value(head, HEAD);
        if (request->answer != NULL)
            parts[n++] = request->answer;
    }
    mu_value *value = mu_list_of(n, parts);
    mu__free(parts);
    return value;
}

mu_value *mu__seen_value(const mu_seen *seen)
{
    mu_value **rows = mu__calloc(seen->clients.n + 1, sizeof *rows);
    for (size_t i = 0; rows != NULL && i < seen->clients.n; i++)
        rows[i] = client_value(&seen->clients.items[i]);
    mu_value *value = rows != NULL ? mu_list_of((int)seen->clients.n, rows) : NULL;
    mu__free(rows);
    return value;
}

static mu_status load_client(mu_seen *seen, const mu_value *row)
{
    int64_t head[HEAD];
    MU_TRY(mu__numbers_of(mu_value_at(row, 0), head, HEAD));
    mu_seen_client *client = add_client(seen, head[0], head[1]);
    if (client == NULL)
        return mu_error_code();
    const int64_t number = client->client, oldest = client->oldest = head[1];
    for (int i = 1; i < mu_value_count(row); i++) {
        MU_TRY(mu__numbers_of(mu_value_at(row, i), head, HEAD));
        mu_value *answer = head[2] != 0 ? mu_value_at(row, ++i) : NULL;
        if (mu__pending() || mu__seen_add(seen, number, oldest) != MU_OK)
            return mu_error_code();
        mu__seen_done(seen, number, head[0], head[1], answer);
    }
    return MU_OK;
}

mu_status mu__seen_load(mu_seen *seen, const mu_value *value)
{
    mu__seen_clear(seen);
    const int n = value != NULL ? mu_value_count(value) : 0;
    if (n > MOST_CLIENTS)
        return mu__error(MU_DATA_LOSS, "a table of requests has %d clients; at most %d are possible", n, MOST_CLIENTS);
    for (int i = 0; i < n && !mu__pending(); i++)
        load_client(seen, mu_value_at(value, i));
    return mu_error_code();
}
