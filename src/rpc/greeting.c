// What the ends of a connection say of themselves before the first call, and how their nodes are set up.
#include "rpc/channel.h"

#include <openssl/crypto.h>

enum { OLDEST_VERSION = 1 };

void mu__rpc_greet(const mu_rpc_greeting *greeting, char *text, size_t bytes)
{
    snprintf(text, bytes, "muster-rpc %d-%d credits=%d heartbeat=%g", OLDEST_VERSION, MU_RPC_VERSION,
             greeting->credits, greeting->heartbeat);
}

bool mu__rpc_greeted(const char *text, mu_rpc_greeting *out)
{
    *out = (mu_rpc_greeting){0};
    return sscanf(text, "muster-rpc %d-%d credits=%d heartbeat=%lf", &out->oldest, &out->version, &out->credits,
                  &out->heartbeat) == 4 &&
           out->oldest > 0 && out->version >= out->oldest && out->credits >= 0 && out->heartbeat > 0;
}

int mu__rpc_agree(const mu_rpc_greeting *a, const mu_rpc_greeting *b)
{
    const int version = MU_MIN(a->version, b->version);
    return version >= MU_MAX(a->oldest, b->oldest) ? version : 0;
}

mu_status mu__rpc_prepare(mu_node *node, pthread_mutex_t *lock)
{
    char *key = NULL;
    MU_TRY(mu__mesh_key(&key));
    mu_status status = key != NULL ? mu__key_check(key) : MU_OK;
    if (status == MU_OK) {
        node->keyring = mu__keyring_new(key, !mu__setting_bool(MU_SETTING_ENCRYPT));
        status = node->keyring != NULL ? MU_OK : mu_error_code();
    }
    node->open = key != NULL || mu__setting_bool(MU_SETTING_ALLOW_UNAUTHENTICATED);
    node->heartbeat_seconds = mu__setting_real(MU_SETTING_HEARTBEAT);
    node->lock = lock;
    node->own.ranks = 2; // rank 0 is the server; every client is rank 1
    if (key != NULL)
        OPENSSL_cleanse(key, strlen(key));
    mu__free(key);
    return status;
}

mu_status mu__rpc_check_layer(const char *layer, const char *function)
{
    MU_TRY(mu__need(layer, function));
    if (strcmp(layer, "muster") == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the RPC layer \"%.60s\" does not exist here; use \"muster\"", function,
                     layer);
}
