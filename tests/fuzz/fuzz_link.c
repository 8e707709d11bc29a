// Fuzzes the beginning of a connection: a server's and a client's link get the input in place of what the other end
// would say, without a key, with a proof and with TLS, with the key of the cluster and of a worker. Nobody without the
// key gets further than the proof.
#include "comm/sessions/net.h"

#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

static void try_link(mu_keyring *keyring, bool client, const uint8_t *data, size_t bytes)
{
    int ends[2];
    demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    mu_link *link = mu__link_new(keyring, ends[0], client, 1, client ? 0 : -1);
    demand(link != NULL);
    mu__link_accept(link, MU_BEARER_ANY_WORKER);
    bool done = false;
    mu_status status = mu__link_shake(link, &done);
    demand(!done);
    if (bytes > 0 && write(ends[1], data, bytes) < 0)
        bytes = 0;
    shutdown(ends[1], SHUT_WR);
    for (int turn = 0; turn < 8 && status == MU_OK && !done; turn++)
        status = mu__link_shake(link, &done);
    demand(!done || mu__keyring_protection(keyring) == MU_PROTECTION_NONE);
    demand(done || status != MU_OK);
    mu__link_free(link);
    close(ends[1]);
    demand(mu_error_take().code == MU_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char of_worker[] = "worker:3:a20be5316959083247eca58a57821866289ef4f8408a8f67fd4acef0b9bb1c2b";
    static mu_keyring *keyrings[5];
    if (keyrings[0] == NULL) {
        keyrings[0] = mu__keyring_new(NULL, false);
        keyrings[1] = mu__keyring_new("a key that nobody knows", true);
        keyrings[2] = mu__keyring_new("a key that nobody knows", false);
        keyrings[3] = mu__keyring_new(of_worker, true);
        keyrings[4] = mu__keyring_new(of_worker, false);
    }
    for (size_t i = 0; i < MU_COUNT(keyrings); i++) {
        demand(keyrings[i] != NULL);
        try_link(keyrings[i], false, data, MU_MIN(bytes, (size_t)60000));
        try_link(keyrings[i], true, data, MU_MIN(bytes, (size_t)60000));
    }
    return 0;
}
