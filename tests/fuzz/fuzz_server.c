// Fuzzes what members of a cluster ask of a task's server: the input is a series of calls, each a byte for the method
// (with the highest bit: as a worker) and two for the length of its arguments, which follow as a value. Whatever comes,
// the server answers or refuses, and at the end holds no bytes of messages. Before the input the server has a variable,
// a table and an accumulator of each kind, and is the primary of a store with a variable and a table.
//
// Seeds are calls that tasks have sent (seeds/server).
#include "ops/state/embedding_table.h"
#include "rpc/server/server.h"
#include "rpc/stores/store.h"

#include <muster/ops.h>
#include <stdlib.h>

enum { MOST_HELD = 1 << 20, MOST_KEPT = 1 << 20, PATIENCE_NS = 200000, MOST_WAITS = 500 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

static const char *const methods[] = {
    "muster.variable.create",   "muster.variable.delete",  "muster.variable.forget",
    "muster.variable.clear",    "muster.variable.rows",    "muster.apply",
    "muster.table.create",      "muster.table.delete",     "muster.table.lookup",
    "muster.table.update",      "muster.table.state",      "muster.table.clear",
    "muster.table.export",      "muster.table.import",     "muster.accumulator.create",
    "muster.accumulator.close", "muster.accumulator.take", "muster.store.call",
    "muster.store.copy",        "muster.store.lead",       "muster.store.state",
    "muster.function.register", "muster.function.run",     "muster.function.delete",
    "muster.input.value",       "muster.input.dataset",    "muster.input.delete",
    "muster.store.ahead"};

// ---- Calls --------------------------------------------------------------------------------------

static void ask(mu_rpc_server *server, uint64_t id, const char *method, const uint8_t *data, size_t bytes)
{
    static uint8_t frame[MU_RPC_HEAD + UINT16_MAX + 1];
    uint8_t *end = mu__put_number(frame, id, 8);
    end = mu__put_number(end, 0, 8);
    end = mu__put_number(end, strlen(method), 1);
    end = mu__put_bytes(end, method, strlen(method));
    end = mu__put_bytes(end, data, bytes);
    mu_request request = {.id = id, .patience_ns = PATIENCE_NS, .data = frame, .bytes = (size_t)(end - frame)};
    snprintf(request.method, sizeof request.method, "rpc.call");
    pthread_mutex_lock(&server->lock);
    mu__server_asked(&server->node, 0, &request);
    pthread_mutex_unlock(&server->lock);
    demand(mu_error_code() == MU_OK);
}

// Until the calls have ended, or wait for what does not come: those are cancelled at their deadline, and at the end.
static void let_run(mu_rpc_server *server)
{
    bool runs = true;
    for (int i = 0; i < MOST_WAITS && runs; i++) {
        pthread_mutex_lock(&server->lock);
        mu__server_overdue(server, mu__now_ns());
        runs = server->calls != NULL;
        pthread_mutex_unlock(&server->lock);
        if (runs)
            mu__sleep_ns(20000);
    }
}

static void ask_value(mu_rpc_server *server, const char *method, const mu_value *value)
{
    mu_message *message = mu__message_of(value, "arguments");
    demand(message != NULL && message->bytes <= UINT16_MAX);
    ask(server, 1, method, message->data, message->bytes);
    mu_release(message);
    let_run(server);
}

// ---- What is there ------------------------------------------------------------------------------

static mu_value *variable(const char *name)
{
    return mu_list(mu__text_value(name), mu_fill(MU_F32, 2, (int64_t[]){4, 2}, 1), MU_END);
}

static mu_value *table(const char *name)
{
    const mu_table_options o = {.dimension = 2,
                                .dtype = MU_F32,
                                .optimizer = MU_TABLE_ADAM,
                                .max_rows = 64,
                                .max_age = 50,
                                .scale = 0.1,
                                .learning_rate = 0.1,
                                .beta_1 = 0.9,
                                .beta_2 = 0.99};
    const int64_t n_ints = MU_TABLE_INTS, n_reals = MU_TABLE_REALS;
    return mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 1, &n_ints, &o.dimension),
                   mu_tensor_new(MU_F64, 1, &n_reals, &o.scale), MU_END);
}

static mu_value *accumulator(const char *name, bool sparse)
{
    const int64_t numbers[] = {sparse, true, MU_F32, 2, 4, 2}, n = MU_COUNT(numbers);
    return mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 1, &n, numbers), MU_END);
}

static mu_value *store_call(int64_t request, const char *method, mu_value *arguments)
{
    const int64_t ask[MU_N_ASK] = {
        [MU_ASK_EPOCH] = 1, [MU_ASK_CLIENT] = 7, [MU_ASK_REQUEST] = request, [MU_ASK_OLDEST] = 1};
    return mu_list(mu__numbers_value(ask, MU_N_ASK), mu__text_value(method), arguments, MU_END);
}

// Messages about stores name the process that they are for: it has a number that seeds can name.
static void fill(mu_rpc_server *server)
{
    static const uint8_t process[MU_INCARNATION] = {1};
    memcpy(server->node.own.incarnation, process, sizeof process);
    const int64_t lead[MU_N_LEAD] = {[MU_LEAD_EPOCH] = 1, [MU_LEAD_ORDER] = MU_ORDER_EMPTY, [MU_LEAD_PROCESS] = 1};
    ask_value(server, "muster.variable.create", variable("v"));
    ask_value(server, "muster.table.create", table("t"));
    ask_value(server, "muster.accumulator.create", accumulator("a", false));
    ask_value(server, "muster.accumulator.create", accumulator("s", true));
    ask_value(server, "muster.store.lead",
              mu_list(mu__numbers_value(lead, MU_N_LEAD), mu__text_value(""), mu__text_value(""), MU_END));
    ask_value(server, "muster.store.call", store_call(1, "muster.variable.create", variable("v")));
    ask_value(server, "muster.store.call", store_call(2, "muster.table.create", table("t")));
}

// ---- The input ----------------------------------------------------------------------------------

// Addresses and folders are the coordinator's words, which are obeyed: calls with one are left out, and so is
// "muster.store.cut", which writes where it is told.
static bool is_obeyed(const char *method, const uint8_t *data, size_t bytes)
{
    return (strcmp(method, "muster.store.lead") == 0 || strcmp(method, "muster.function.register") == 0) &&
           (memchr(data, '/', bytes) != NULL || memchr(data, ':', bytes) != NULL);
}

static void try_calls(mu_rpc_server *server, const uint8_t *data, size_t bytes)
{
    mu_session *session = &server->connections[0].member.session;
    mu_cursor cursor = mu__cursor(data, bytes);
    for (uint64_t id = 2; mu__cursor_left(&cursor) > 0; id++) {
        const unsigned which = mu__cursor_u8(&cursor);
        const char *method = methods[(which & 0x7f) % MU_COUNT(methods)];
        session->role = (which & 0x80) != 0 ? MU_ROLE_WORKER : MU_ROLE_NONE;
        const size_t low = mu__cursor_u8(&cursor), wanted = low | (size_t)mu__cursor_u8(&cursor) << 8;
        const size_t n = MU_MIN(wanted, mu__cursor_left(&cursor));
        const uint8_t *arguments = mu__cursor_bytes(&cursor, n);
        if (n > 0 && is_obeyed(method, arguments, n))
            continue;
        ask(server, id, method, arguments, n);
        let_run(server);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0", .max_bytes = MOST_HELD, .max_threads = 1);
    mu_kept *kept = mu__kept_new(MOST_KEPT);
    demand(mu__service_add(server, kept) == MU_OK && mu__stores_add(server, kept) == MU_OK &&
           mu__function_service_add(server, kept) == MU_OK);
    mu_connection *connection = &server->connections[0];
    mu__channel_begin(&connection->channel, &server->node, 0, &server->budget);
    connection->member.session.version = MU_WIRE_VERSION;
    mu__stores_of(server)->lease_ns = MU_FOREVER; // no coordinator asks
    fill(server);
    try_calls(server, data, bytes);
    demand(mu_rpc_server_stop(server) == MU_OK);
    demand(server->budget.used == 0 && server->calls == NULL);
    mu_pool_close(pool);
    mu_release(kept);
    demand(mu_error_code() == MU_OK);
    return 0;
}
