// What a process has released that a server keeps for it: the server deletes it with the process's next request.
//
// A release must not fail, and must not wait: it only notes the name. A request that makes an object on the server
// first waits until released objects are deleted, so that their names and bytes are free again. A request that did not
// reach the server is made again, with a later one.
#include "rpc/client/client.h"
#include "rpc/services/service.h"

// Works with an error pending. Without memory the name stays on the server until its coordinator ends.
void mu__client_forget(mu_rpc_client *client, mu_released what, const char *name)
{
    mu_error_value before, ignored;
    mu__error_move(&before);
    char *copy = mu__strdup(name);
    pthread_mutex_lock(&client->lock);
    if (copy != NULL && MU_PUSH(&client->forgotten[what], copy) == MU_OK)
        copy = NULL;
    pthread_mutex_unlock(&client->lock);
    mu__free(copy);
    mu__error_move(&ignored);
    mu__error_raise(&before);
}

static void end_deletion(mu_deletion *d)
{
    mu_release(d->result);
    mu_release(d->names);
}

void mu__forgotten_free(mu_rpc_client *client)
{
    for (int what = 0; what < MU_N_RELEASED; what++) {
        for (size_t i = 0; i < client->forgotten[what].n; i++)
            mu__free(client->forgotten[what].items[i]);
        mu__free(client->forgotten[what].items);
    }
    for (size_t i = 0; i < client->deletions.n; i++)
        end_deletion(&client->deletions.items[i]);
    mu__free(client->deletions.items);
}

// The first names that no deletion request has yet, as many as one request takes: a list of texts of the pool. NULL:
// there are none, or there is no memory.
static mu_value *first_names(mu_rpc_client *client, mu_released what, size_t most)
{
    mu_value *list = NULL;
    pthread_mutex_lock(&client->lock);
    const size_t n = MU_MIN(client->forgotten[what].n, most);
    char **names = client->forgotten[what].items;
    mu_value **texts = n > 0 ? mu__calloc(n, sizeof *texts) : NULL;
    for (size_t i = 0; texts != NULL && i < n; i++)
        texts[i] = mu__text_value(names[i]);
    if (texts != NULL)
        list = mu_list_of((int)n, texts);
    for (size_t i = 0; list != NULL && i < n; i++)
        mu__free(names[i]);
    if (list != NULL) {
        client->forgotten[what].n -= n;
        memmove(names, names + n, client->forgotten[what].n * sizeof *names);
    }
    pthread_mutex_unlock(&client->lock);
    mu__free(texts);
    return list;
}

// Names of a deletion request that did not reach the server are sent again, unless the server refuses the request
// itself. A server that has started again does not have them, which is as good as deleted.
static void put_back(mu_rpc_client *client, mu_released what, const mu_value *names, mu_status code)
{
    const bool again = code == MU_UNAVAILABLE || code == MU_DEADLINE_EXCEEDED || code == MU_CANCELLED ||
                       code == MU_ABORTED || code == MU_RESOURCE_EXHAUSTED;
    for (int i = 0; again && i < mu_value_count(names); i++) {
        char *name = NULL;
        mu_error_value before, ignored;
        mu__error_move(&before);
        if (mu__value_text(mu_value_at(names, i), "a released name", &name) == MU_OK)
            mu__client_forget(client, what, name);
        mu__free(name);
        mu__error_move(&ignored);
        mu__error_raise(&before);
    }
}

// A deletion request that was answered, or any; false: there is none. Owned by the caller, and by the client until it
// is removed.
static bool next_deletion(mu_rpc_client *client, bool any, mu_deletion *out)
{
    bool found = false;
    pthread_mutex_lock(&client->lock);
    for (size_t i = 0; i < client->deletions.n && !found; i++) {
        *out = client->deletions.items[i];
        found = any || mu__result_is_done(out->result);
    }
    if (found) {
        mu_retain(out->result);
        mu_retain(out->names);
    }
    pthread_mutex_unlock(&client->lock);
    return found;
}

// Whether this thread did it: several may wait for one answer.
static bool remove_deletion(mu_rpc_client *client, const mu_rpc_result *result)
{
    bool removed = false;
    pthread_mutex_lock(&client->lock);
    for (size_t i = 0; i < client->deletions.n && !removed; i++) {
        removed = client->deletions.items[i].result == result;
        if (removed) {
            end_deletion(&client->deletions.items[i]);
            client->deletions.items[i] = client->deletions.items[--client->deletions.n];
        }
    }
    pthread_mutex_unlock(&client->lock);
    return removed;
}

// Looks at the answers that have come, or waits for all. Errors, if it waits: the first, and CANCELLED if this thread
// is to stop, but not if another one that waited for the same answer was.
static mu_status take_answers(mu_rpc_client *client, bool wait)
{
    mu_error_value first = {.code = MU_OK};
    for (mu_deletion d; next_deletion(client, wait, &d); end_deletion(&d)) {
        mu_error_value error;
        mu_rpc_result_value(d.result);
        mu__error_move(&error);
        if (remove_deletion(client, d.result))
            put_back(client, d.what, d.names, error.code);
        if (wait && first.code == MU_OK && error.code != MU_NOT_FOUND && error.code != MU_CANCELLED)
            first = error;
    }
    MU_TRY(mu__error_raise(&first));
    if (wait && mu_cancellation_is_cancelled(mu__context()->cancellation))
        return mu__error(
            MU_CANCELLED,
            "cancelled before the server answered; what it has not deleted is deleted with a later request");
    return wait ? mu__check_stop() : MU_OK;
}

static bool is_deleting(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    const bool deleting = client->deletions.n > 0;
    pthread_mutex_unlock(&client->lock);
    return deleting;
}

static bool has_names(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    const bool any = client->forgotten[MU_RELEASED_VALUE].n > 0 || client->forgotten[MU_RELEASED_TABLE].n > 0;
    pthread_mutex_unlock(&client->lock);
    return any;
}

static const char *const methods[MU_N_RELEASED] = {"muster.variable.forget", "muster.table.delete"};

static mu_status begin_deletion(mu_rpc_client *client, mu_released what, mu_value *names)
{
    mu_deletion d = {.result = mu_rpc_call(client, methods[what], names), .names = names, .what = what};
    pthread_mutex_lock(&client->lock);
    const bool begun = d.result != NULL && MU_PUSH(&client->deletions, d) == MU_OK;
    if (begun) {
        mu_retain(d.result);
        mu_retain(d.names);
    }
    pthread_mutex_unlock(&client->lock);
    if (!begun)
        put_back(client, what, names, MU_RESOURCE_EXHAUSTED);
    return mu_error_code();
}

// Requests to a store are sent until they are answered.
static mu_status delete_on_store(mu_rpc_client *client, mu_released what, mu_value *names)
{
    mu__remote_call(client, methods[what], (mu_remote_subject){0}, names);
    put_back(client, what, names, mu_error_code());
    if (mu_error_code() == MU_NOT_FOUND)
        mu_error_take();
    return mu_error_code();
}

static mu_status request_all(mu_rpc_client *client)
{
    static const size_t most[MU_N_RELEASED] = {4096, 1}; // of values many at once, but the lock is held for each list
    int store;
    const bool routed = mu__client_routed(client, &store) != NULL;
    for (int what = 0; what < MU_N_RELEASED; what++)
        for (mu_value *names; !mu__pending() && (names = first_names(client, what, most[what])) != NULL;)
            (void)(routed ? delete_on_store(client, what, names) : begin_deletion(client, what, names));
    return mu_error_code();
}

// A deletion request that is on its way is waited for before the next one is sent, so that a server that is away has
// one at most.
static mu_status delete_all(mu_rpc_client *client, bool wait)
{
    mu_pool *pool = mu__pending() || (!has_names(client) && !is_deleting(client)) ? NULL : mu_pool_open();
    if (pool == NULL)
        return mu_error_code();
    mu_error_value sent_again;
    take_answers(client, wait);
    mu__error_move(&sent_again);
    if ((wait || !is_deleting(client)) && request_all(client) == MU_OK && wait)
        take_answers(client, true);
    if (mu__pending())
        mu__error_begin(0, "deleting from a server what was released: ");
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__remote_delete_forgotten(mu_rpc_client *client) { return delete_all(client, true); }

void mu__remote_tell_forgotten(mu_rpc_client *client) { delete_all(client, false); }
