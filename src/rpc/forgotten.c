// What a process has released that a server keeps for it: the server deletes it with the process's next request.
//
// A release must not fail, and must not wait: it only notes the name. Whoever makes something on the server waits until
// what was released is deleted, so that its name and its bytes are free again.
#include "rpc/client.h"
#include "rpc/service.h"

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

void mu__forgotten_free(mu_rpc_client *client)
{
    for (int what = 0; what < MU_N_RELEASED; what++) {
        for (size_t i = 0; i < client->forgotten[what].n; i++)
            mu__free(client->forgotten[what].items[i]);
        mu__free(client->forgotten[what].items);
    }
}

// The names that were not told yet: a list of texts of the pool; NULL: there are none.
static mu_value *take_names(mu_rpc_client *client, mu_released what)
{
    pthread_mutex_lock(&client->lock);
    const size_t n = client->forgotten[what].n;
    char **names = client->forgotten[what].items;
    if (n > 0)
        memset(&client->forgotten[what], 0, sizeof client->forgotten[what]);
    pthread_mutex_unlock(&client->lock);
    if (n == 0)
        return NULL;
    mu_value **texts = mu__calloc(n, sizeof *texts);
    for (size_t i = 0; i < n; i++) {
        if (texts != NULL)
            texts[i] = mu__text_value(names[i]);
        mu__free(names[i]);
    }
    mu__free(names);
    mu_value *list = texts != NULL ? mu_list_of((int)n, texts) : NULL;
    mu__free(texts);
    return list;
}

// A server that has started again does not have it, which is as good.
static mu_status delete(mu_rpc_client *client, const char *method, mu_value *names, bool wait)
{
    if (names == NULL || mu__pending())
        return mu_error_code();
    if (!wait) {
        mu_rpc_call(client, method, names);
        return mu_error_code();
    }
    mu__remote_call(client, method, names);
    if (mu_error_code() == MU_NOT_FOUND)
        mu_error_take();
    return mu_error_code();
}

static bool has_names(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    const bool any = client->forgotten[MU_RELEASED_VALUE].n > 0 || client->forgotten[MU_RELEASED_TABLE].n > 0;
    pthread_mutex_unlock(&client->lock);
    return any;
}

static mu_status delete_all(mu_rpc_client *client, bool wait)
{
    mu_pool *pool = mu__pending() || !has_names(client) ? NULL : mu_pool_open();
    if (pool == NULL)
        return mu_error_code();
    mu_value *values = take_names(client, MU_RELEASED_VALUE), *tables = take_names(client, MU_RELEASED_TABLE);
    delete(client, "muster.variable.forget", values, wait);
    for (int i = 0; tables != NULL && i < mu_value_count(tables); i++)
        delete(client, "muster.table.delete", mu_list(mu_value_at(tables, i), MU_END), wait);
    mu_pool_close(pool);
    return mu_error_code();
}

mu_status mu__remote_delete_forgotten(mu_rpc_client *client) { return delete_all(client, true); }

// Requests to a store are sent until they are answered.
void mu__remote_tell_forgotten(mu_rpc_client *client)
{
    int store;
    delete_all(client, mu__client_routed(client, &store) != NULL);
}
