// A client that does not read: the bytes that wait for it are bounded, it is lost after the heartbeat's time, and other
// clients are served.
#include "rpc/server/server.h"
#include "rpc_test.h"

#include "../../forwarder.h"

enum { CALLS = 400, BYTES = 200000 };

static mu_value *many_bytes(mu_value *arguments, void *arg)
{
    const int64_t n = BYTES;
    (void)arguments, (void)arg;
    return mu_of(mu_tensor_new(MU_U8, 1, &n, NULL));
}

static mu_value *nothing(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return number(1);
}

typedef struct ends {
    mu_rpc_server *server;
    mu_rpc_client *slow, *other;
    forwarder between; // of the slow client and the server
} ends;

static void connect_ends(ends *e)
{
    char address[32];
    e->server = mu_rpc_server_new("muster", "localhost:0", .credits = CALLS, .max_bytes = 20000000);
    mu_rpc_server_register(e->server, "many", .fn = many_bytes);
    mu_rpc_server_register(e->server, "nothing", .fn = nothing);
    assert_int_equal(mu_rpc_server_start(e->server), MU_OK);
    const char *own = mu_rpc_server_address(e->server);
    assert_true(forwarder_start(&e->between, atoi(strrchr(own, ':') + 1)));
    snprintf(address, sizeof address, "localhost:%d", e->between.port);
    e->slow = mu_rpc_client_new("muster", address, .max_waiting = 2 * CALLS);
    e->other = mu_rpc_client_new("muster", own);
    expect_result(mu_rpc_call(e->slow, "nothing"), MU_OK, "");
    expect_result(mu_rpc_call(e->other, "nothing"), MU_OK, "");
}

// Returns the largest number of bytes that wait in the server for one of its clients, as frames.
static size_t most_unsent(mu_rpc_server *server)
{
    size_t most = 0;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < server->node.n_members; i++)
        most = MU_MAX(most, server->node.members[i]->session.handshake.out.n -
                                server->node.members[i]->session.handshake.sent);
    pthread_mutex_unlock(&server->lock);
    return most;
}

static bool is_paused(mu_rpc_server *server)
{
    bool paused = false;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < server->node.n_members; i++)
        paused |= server->node.members[i]->session.paused;
    pthread_mutex_unlock(&server->lock);
    return paused;
}

// Answers of 80 MB are requested; at most the allowed number of bytes, one frame and the parts on their way may wait.
static void test_a_client_that_does_not_read(void **state)
{
    static ends e;
    const size_t bound = MU_MOST_UNSENT + (6u << 20);
    (void)state;
    mu_pool *pool = mu_pool_open();
    connect_ends(&e);
    forwarder_cut(&e.between, false, true);
    for (int i = 0; i < CALLS; i++)
        assert_non_null(mu_rpc_call(e.slow, "many", .timeout_in_ms = 60000));
    size_t most = 0;
    for (int i = 0; i < 5000 && !is_paused(e.server); i++) {
        most = MU_MAX(most, most_unsent(e.server));
        expect_result(mu_rpc_call(e.other, "nothing"), MU_OK, "");
        usleep(1000);
    }
    assert_true(is_paused(e.server));
    most = MU_MAX(most, most_unsent(e.server));
    if (most > bound)
        fail_msg("%zu bytes wait for a client that does not read", most);
    // The client is lost after a heartbeat, and everything that waits for it is dropped.
    for (int i = 0; i < 20000 && most_unsent(e.server) > 0; i++)
        usleep(1000);
    assert_int_equal(most_unsent(e.server), 0);
    expect_result(mu_rpc_call(e.other, "nothing"), MU_OK, "");
    forwarder_end(&e.between);
    mu_pool_close(pool);
}

// A client that reads again gets every answer.
static void test_a_client_that_reads_late(void **state)
{
    static ends e;
    mu_rpc_result *results[CALLS];
    int n_refused = 0;
    (void)state;
    mu_pool *pool = mu_pool_open();
    connect_ends(&e);
    forwarder_cut(&e.between, false, true);
    for (int i = 0; i < CALLS; i++)
        results[i] = mu_rpc_call(e.slow, "many", .timeout_in_ms = 60000);
    for (int i = 0; i < 5000 && !is_paused(e.server); i++)
        usleep(1000);
    forwarder_cut(&e.between, false, false);
    for (int i = 0; i < CALLS; i++) {
        const mu_status status = mu_rpc_result_error(results[i]).code;
        assert_true(status == MU_OK || status == MU_RESOURCE_EXHAUSTED); // the budget of the server is spent
        n_refused += status != MU_OK;
    }
    assert_true(n_refused < CALLS - MU_MOST_UNSENT / BYTES);
    expect_result(mu_rpc_call(e.slow, "nothing"), MU_OK, "");
    forwarder_end(&e.between);
    mu_pool_close(pool);
}

static atomic_bool holds, held;
static atomic_int n_filled;

static mu_value *hold(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    held = true;
    while (holds)
        usleep(1000);
    return NULL;
}

static mu_status fill(void *elements, void *arg)
{
    (void)arg;
    n_filled++;
    memset(elements, 1, BYTES);
    return MU_OK;
}

static mu_message *filled(const mu_value *arguments, void *arg)
{
    const mu_spec spec = {.dtype = MU_U8, .shape = MU_SHAPE(BYTES)};
    (void)arguments, (void)arg;
    return mu__message_filled(&spec, fill, NULL);
}

// An answer for which there is no room takes no memory, and the error names the call that holds the most.
static void test_answers_count_before_they_take_memory(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0", .max_bytes = 3 * BYTES / 2);
    mu_rpc_server_register(server, "hold", .fn = hold);
    assert_int_equal(mu__server_add_writer(server, "filled", filled, NULL), MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    holds = true;
    mu_rpc_result *first = mu_rpc_call(client, "hold", many_bytes(NULL, NULL));
    while (!held)
        usleep(1000);
    expect_result(mu_rpc_call(client, "filled"), MU_RESOURCE_EXHAUSTED, "the largest calls \"hold\" 2000");
    assert_int_equal(n_filled, 0);
    holds = false;
    expect_result(first, MU_OK, "");
    expect_result(mu_rpc_call(client, "filled"), MU_OK, "");
    assert_int_equal(n_filled, 1);
    mu_pool_close(pool);
}

static int start_with_heartbeat(void **state, const char *seconds)
{
    setenv("MUSTER_HEARTBEAT", seconds, 1);
    setenv("MUSTER_SHARED_MEMORY", "0", 1);
    return start_with_key(state);
}

static int start_impatient(void **state) { return start_with_heartbeat(state, "1"); }
static int start_patient(void **state) { return start_with_heartbeat(state, "60"); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_client_that_does_not_read, start_impatient, end_library),
        cmocka_unit_test_setup_teardown(test_a_client_that_reads_late, start_patient, end_library),
        cmocka_unit_test_setup_teardown(test_answers_count_before_they_take_memory, start_patient, end_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
