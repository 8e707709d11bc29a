// What the ends of a connection say of themselves before the first call, and how their nodes are set up.
#include "rpc/channel.h"

void mu__rpc_greet(const mu_rpc_greeting *greeting, char *text, size_t bytes)
{
    // Version 3 of the wire had a version of its own here; now that of the link counts.
    snprintf(text, bytes, "muster-rpc 1-1 credits=%d heartbeat=%g bytes=%lld", greeting->credits, greeting->heartbeat,
             (long long)greeting->most_bytes);
}

bool mu__rpc_greeted(const char *text, mu_rpc_greeting *out)
{
    long long bytes = 0;
    *out = (mu_rpc_greeting){0};
    const int n =
        sscanf(text, "muster-rpc 1-1 credits=%d heartbeat=%lf bytes=%lld", &out->credits, &out->heartbeat, &bytes);
    out->most_bytes = bytes; // older ends do not say it
    return n >= 2 && out->credits >= 0 && out->heartbeat > 0 && bytes >= 0;
}

// Who has only a worker's key is that worker, whatever it does.
static mu_status say_role(mu_keyring *keyring, mu_role role)
{
    const int bearer = mu__keyring_bearer(keyring), version = mu__setting_int(MU_SETTING_WIRE_VERSION);
    char who[40];
    snprintf(who, sizeof who, "%s %s", role == MU_ROLE_COORDINATOR ? "the" : "a", mu__role_name(role));
    if (role != MU_ROLE_NONE && role != MU_ROLE_WORKER)
        MU_TRY(mu__key_suits_role(bearer, who));
    if (bearer != MU_BEARER_ALL && version < MU_WIRE_BEARERS)
        return mu__error(MU_FAILED_PRECONDITION,
                         "MUSTER_WIRE_VERSION is %d, and this process has a worker's key, which needs wire version %d "
                         "or later; unset MUSTER_WIRE_VERSION, or give this process the cluster's key",
                         version, MU_WIRE_BEARERS);
    mu__keyring_set(keyring, bearer != MU_BEARER_ALL ? MU_ROLE_WORKER : role, version);
    return MU_OK;
}

mu_status mu__rpc_prepare(mu_node *node, mu_role role, pthread_mutex_t *lock)
{
    char *key = NULL;
    MU_TRY(mu__mesh_key(&key));
    mu_status status = key != NULL ? mu__key_check(key) : MU_OK;
    if (status == MU_OK) {
        node->keyring = mu__keyring_new(key, !mu__setting_bool(MU_SETTING_ENCRYPT));
        status = node->keyring != NULL ? MU_OK : mu_error_code();
    }
    if (status == MU_OK)
        status = say_role(node->keyring, role);
    node->open = key != NULL || mu__setting_bool(MU_SETTING_ALLOW_UNAUTHENTICATED);
    node->heartbeat_seconds = mu__setting_real(MU_SETTING_HEARTBEAT);
    node->lock = lock;
    node->spins = true;
    node->own.ranks = 2; // rank 0 is the server; every client is rank 1
    mu__key_forget(key);
    return status;
}

mu_status mu__rpc_check_layer(const char *layer, const char *what)
{
    MU_TRY(mu__need(layer, what));
    if (strcmp(layer, "muster") == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s \"%.60s\" does not exist here; use \"muster\"", what, layer);
}
