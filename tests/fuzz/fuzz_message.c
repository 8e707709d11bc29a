// Fuzzes what members of a cluster send to an RPC server: the input is a series of requests, each a byte for what it
// asks, two for its length, and its data. Whatever comes, the server answers or refuses, and at the end holds no bytes.
// The input as a whole is also read as a value: it is refused with a record, or is written again as the same bytes.
#include "rpc/server/server.h"

#include <stdlib.h>

enum { MOST_HELD = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

static mu_value *echo(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

// Large tensors are aligned in the message and not in what was read, so only the second writing is compared.
static void try_value(const uint8_t *data, size_t bytes)
{
    mu_value *value = NULL, *again = NULL;
    mu_message *message = mu__message_new(bytes);
    mu__put_bytes(message->data, data, bytes);
    const mu_status status = mu__message_value(message, 0, &value);
    demand((status == MU_OK) == (mu_error_code() == MU_OK));
    if (status == MU_OK) {
        mu_message *first = mu__message_of(value, "a value"), *second = NULL;
        demand(first != NULL && mu__message_value(first, 0, &again) == MU_OK);
        second = mu__message_of(again, "a value");
        demand(first->bytes == second->bytes && memcmp(first->data, second->data, first->bytes) == 0);
        mu_release(first);
        mu_release(second);
    }
    mu_release(value);
    mu_release(again);
    mu_release(message);
    mu_error_take();
}

static void try_requests(mu_rpc_server *server, const uint8_t *data, size_t bytes)
{
    static const char *const methods[] = {"rpc.call",  "rpc.part", "rpc.cancel", "rpc.drop",
                                          "rpc.other", "rpc.slot", "rpc.memory"};
    mu_cursor cursor = mu__cursor(data, bytes);
    for (uint64_t id = 1; mu__cursor_left(&cursor) > 0; id++) {
        mu_request request = {.id = id, .patience_ns = 1000000000};
        snprintf(request.method, sizeof request.method, "%s", methods[mu__cursor_u8(&cursor) % MU_COUNT(methods)]);
        const size_t low = mu__cursor_u8(&cursor), wanted = low | (size_t)mu__cursor_u8(&cursor) << 8;
        request.bytes = MU_MIN(wanted, mu__cursor_left(&cursor));
        request.data = mu__cursor_bytes(&cursor, request.bytes);
        pthread_mutex_lock(&server->lock);
        mu__server_asked(&server->node, 0, &request);
        pthread_mutex_unlock(&server->lock);
        demand(mu_error_code() == MU_OK);
    }
}

// Memory that the other end has filled, for requests that name a slot.
static mu_slots *read_memory(void)
{
    static const uint8_t proof[MU_KEY_BYTES] = {1};
    char address[MU_SLOTS_ADDRESS];
    mu_slots *own = mu__slots_new(proof, address), *theirs = own != NULL ? mu__slots_find(address, proof) : NULL;
    demand(theirs != NULL);
    memset(mu__slot_write(own, 0), 0xA5, MU_SLOT_BYTES);
    mu__slots_free(own);
    return theirs;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    try_value(data, bytes);
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0", .max_bytes = MOST_HELD, .max_threads = 2);
    demand(mu_rpc_server_register(server, "e", .fn = echo) == MU_OK);
    mu_connection *connection = &server->connections[0];
    mu__channel_begin(&connection->channel, &server->node, 0, &server->budget);
    connection->member.session.same_host = true;
    connection->member.session.version = MU_WIRE_VERSION;
    connection->channel.theirs = read_memory();
    try_requests(server, data, bytes);
    demand(mu_rpc_server_stop(server) == MU_OK);
    demand(server->budget.used == 0 && server->calls == NULL);
    mu_pool_close(pool);
    demand(mu_error_code() == MU_OK);
    return 0;
}
