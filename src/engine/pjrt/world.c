// The key-value callbacks of a client whose devices are part of a world of several processes.
//
// The plugin calls them on threads of its own, several at a time, while the client is created and later. Keys get the
// kind of the devices in front, so that the clients of two plugins do not meet. A callback's struct_size is not filled
// by all plugins and is not read.
#include "engine/pjrt/pjrt.h"

// Turns this thread's error into one of the plugin's.
static pj_error *refuse(pj_callback_error *const *make)
{
    mu_error_value cause;
    mu__error_move(&cause);
    const mu_status code = cause.code != MU_OK ? cause.code : MU_RESOURCE_EXHAUSTED;
    const char *message = cause.code != MU_OK ? cause.message : "no memory here";
    return (*make)((int)code, message, strlen(message));
}

// A key with the kind in front; to be freed with mu__free. NULL: no memory.
static char *own_key(const mu_pjrt_client *client, const char *key, size_t bytes, size_t *all)
{
    const size_t before = strlen(client->kind) + 1;
    char *own = mu__alloc(before + bytes);
    if (!own)
        return NULL;
    memcpy(own, client->kind, before - 1);
    own[before - 1] = '/';
    if (bytes > 0)
        memcpy(own + before, key, bytes);
    *all = before + bytes;
    return own;
}

static mu_status get(const mu_pjrt_client *client, const char *key, size_t key_bytes, double seconds, char **value,
                     size_t *bytes)
{
    size_t all;
    void *data = NULL;
    char *own = own_key(client, key, key_bytes, &all);
    if (!own)
        return MU_RESOURCE_EXHAUSTED;
    const mu_status status = client->world->get(client->world, own, all, seconds, &data, bytes);
    mu__free(own);
    *value = data;
    return status;
}

static void free_value(char *value) { mu__free(value); }

static pj_error *on_get(pj_key_get_args *args)
{
    const double seconds = MU_MAX(args->timeout_ms, 1) / 1e3;
    args->delete_value = free_value;
    if (get(args->arg, args->key, args->key_bytes, seconds, &args->value, &args->bytes) == MU_OK)
        return NULL;
    return refuse(args->error);
}

static pj_error *on_try_get(pj_key_try_get_args *args)
{
    args->delete_value = free_value;
    if (get(args->arg, args->key, args->key_bytes, 0, &args->value, &args->bytes) == MU_OK)
        return NULL;
    return refuse(args->error);
}

static pj_error *on_put(pj_key_put_args *args)
{
    const mu_pjrt_client *client = args->arg;
    size_t all;
    char *own = own_key(client, args->key, args->key_bytes, &all);
    const mu_status status =
        own ? client->world->put(client->world, own, all, args->value, args->bytes) : MU_RESOURCE_EXHAUSTED;
    mu__free(own);
    return status == MU_OK ? NULL : refuse(args->error);
}

void mu__pjrt_callbacks(mu_pjrt_client *client, pj_client_create_args *args)
{
    args->get = on_get;
    args->try_get = on_try_get;
    args->put = on_put;
    args->get_arg = args->try_get_arg = args->put_arg = client;
}
