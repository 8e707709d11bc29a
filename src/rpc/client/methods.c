// What a client knows of its server's methods: their names and signatures, as the server lists them.
#include "rpc/client/client.h"

void mu__client_forget_methods(mu_rpc_client *client)
{
    for (int i = 0; i < client->n_methods; i++) {
        mu__free(client->methods[i]);
        mu__free(client->signatures[i]);
    }
    mu__free(client->methods);
    mu__free(client->signatures);
    client->methods = client->signatures = NULL;
    client->n_methods = 0;
}

static char *text_at(const mu_value *row, int i)
{
    const mu_tensor *tensor = mu_at(row, i);
    if (tensor == NULL || tensor->dtype != MU_U8 || tensor->shape.rank != 1)
        return NULL;
    char *text = mu__sprintf("%.*s", (int)MU_MIN(tensor->shape.dims[0], 10000), (const char *)mu__host_read(tensor));
    if (text != NULL)
        mu__printable(text, false);
    return text;
}

static mu_status keep_methods(mu_rpc_client *client, const mu_value *list)
{
    const int n = list != NULL ? mu_value_count(list) : 0;
    mu__client_forget_methods(client);
    client->methods = mu__calloc((size_t)n + 1, sizeof *client->methods);
    client->signatures = mu__calloc((size_t)n + 1, sizeof *client->signatures);
    if (client->methods == NULL || client->signatures == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++) {
        const mu_value *row = mu_value_at(list, i);
        char *name = text_at(row, 0), *input = text_at(row, 1), *output = text_at(row, 2);
        client->methods[i] = name;
        client->signatures[i] = input != NULL && output != NULL ? mu__sprintf("%s -> %s", input, output) : NULL;
        client->n_methods++;
        mu__free(input);
        mu__free(output);
        if (name == NULL || client->signatures[i] == NULL)
            return mu__error(MU_DATA_LOSS, "the server at %s sent a damaged list of methods", client->address);
    }
    return MU_OK;
}

const char *const *mu_rpc_client_methods(mu_rpc_client *client)
{
    if (mu__pending() || mu__need(client, "mu_rpc_client_methods: the client") != MU_OK)
        return NULL;
    mu_pool *pool = mu_pool_open();
    mu_rpc_result *result = mu_rpc_call(client, "muster.methods");
    const mu_value *list = result != NULL ? mu_rpc_result_value(result) : NULL;
    const mu_status status = mu__pending() ? mu_error_code() : keep_methods(client, list);
    if (status != MU_OK)
        mu__error_begin(0, "the methods of a server cannot be listed: ");
    mu_pool_close(pool);
    return status == MU_OK ? (const char *const *)client->methods : NULL;
}

const char *mu_rpc_client_signature(mu_rpc_client *client, const char *method)
{
    if (mu__need(client, "mu_rpc_client_signature: the client") != MU_OK ||
        mu__need(method, "mu_rpc_client_signature: the method") != MU_OK ||
        (client->methods == NULL && mu_rpc_client_methods(client) == NULL))
        return NULL;
    for (int i = 0; i < client->n_methods; i++)
        if (strcmp(client->methods[i], method) == 0)
            return client->signatures[i];
    mu__error(MU_NOT_FOUND, "the server at %s has no method \"%.60s\"", client->address, method);
    return NULL;
}
