// Roles, which are part of the proof of the key, and versions of the wire: a new and an old end both speak the older
// version.
#include "rpc/client/client.h"
#include "rpc/server/server.h"
#include "rpc/services/service.h"
#include "rpc/stores/store.h"
#include "rpc_test.h"

static mu_value *answer(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return number(42);
}

static mu_rpc_server *start_server(int version)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "answer", .fn = answer);
    mu_kept *kept = mu__kept_new(SIZE_MAX);
    assert_int_equal(mu__service_add(server, kept), MU_OK);
    mu_release(kept);
    mu__keyring_set(server->node.keyring, MU_ROLE_PS, version);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    return server;
}

static mu_rpc_client *client_with(mu_rpc_server *server, mu_role role)
{
    mu_rpc_client_args args = {.size = sizeof args, .rpc_layer = "muster", .address = mu_rpc_server_address(server)};
    return mu__client_new(&args, role, MU_BEARER_ALL);
}

static mu_status call(mu_rpc_client *client, const char *method)
{
    return mu_rpc_result_error(mu_rpc_call(client, method)).code;
}

// Each role and what it may do: call its own methods, make and clear variables, read numbers about the server.
static void test_who_may_do_what(void **state)
{
    static const struct {
        mu_role role;
        mu_status answer, clear, methods;
    } rows[] = {{MU_ROLE_NONE, MU_OK, MU_OK, MU_OK},
                {MU_ROLE_COORDINATOR, MU_OK, MU_OK, MU_OK},
                {MU_ROLE_WORKER, MU_OK, MU_PERMISSION_DENIED, MU_OK},
                {MU_ROLE_PS, MU_OK, MU_PERMISSION_DENIED, MU_OK},
                {MU_ROLE_METRICS, MU_PERMISSION_DENIED, MU_PERMISSION_DENIED, MU_OK}};
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = start_server(MU_WIRE_VERSION);
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        mu_rpc_client *client = client_with(server, rows[i].role);
        assert_int_equal(call(client, "answer"), rows[i].answer);
        assert_int_equal(call(client, "muster.variable.clear"), rows[i].clear);
        assert_int_equal(call(client, "muster.methods"), rows[i].methods);
    }
    mu_rpc_result *denied = mu_rpc_call(client_with(server, MU_ROLE_WORKER), "muster.variable.clear");
    expect_result(denied, MU_PERMISSION_DENIED, "role \"worker\" may not call \"muster.variable.clear\"");
    mu_pool_close(pool);
}

// Every method of a task's server, and the roles that may call it besides the owner.
static const struct {
    const char *method;
    bool worker, ps, metrics;
} all_methods[] = {
    {"muster.methods", true, true, true},
    {"muster.apply", true, true},
    {"muster.variable.rows", true, true},
    {"muster.variable.create"},
    {"muster.variable.delete"},
    {"muster.variable.forget"},
    {"muster.variable.clear"},
    {"muster.table.lookup", true, true},
    {"muster.table.update", true, true},
    {"muster.table.create"},
    {"muster.table.delete"},
    {"muster.table.state"},
    {"muster.table.clear"},
    {"muster.table.export"},
    {"muster.table.import"},
    {"muster.accumulator.take", true, true},
    {"muster.accumulator.create"},
    {"muster.accumulator.close"},
    {"muster.store.call", true, true},
    {"muster.store.copy", false, true},
    {"muster.store.ahead", false, true},
    {"muster.store.lead"},
    {"muster.store.cut"},
    {"muster.store.state"},
    {"muster.function.register"},
    {"muster.function.run"},
    {"muster.function.delete"},
    {"muster.input.value"},
    {"muster.input.dataset"},
    {"muster.input.next"},
    {"muster.input.delete"},
    {"muster.server.drain"}, // the last: the server takes no calls after it
};

static mu_rpc_client *client_of(mu_server *server, mu_role role)
{
    mu_rpc_client_args args = {
        .size = sizeof args, .rpc_layer = "muster", .address = mu_server_target(server) + strlen("muster://")};
    return mu__client_new(&args, role, MU_BEARER_ALL);
}

static bool is_denied(mu_rpc_result *result) { return mu_rpc_result_error(result).code == MU_PERMISSION_DENIED; }

// The same method as the server's own, and as a method of a store.
static void expect_denied(mu_rpc_client *client, size_t i, bool may, bool may_call_stores)
{
    static const int64_t ask[MU_N_ASK];
    const char *method = all_methods[i].method;
    mu_value *request = mu_list(mu__numbers_value(ask, MU_N_ASK), mu__text_value(method), MU_END);
    if (is_denied(mu_rpc_call(client, method)) == may ||
        (strcmp(method, "muster.store.call") != 0 &&
         is_denied(mu_rpc_call(client, "muster.store.call", request)) == (may && may_call_stores)))
        fail_msg("\"%s\" is %s", method, may ? "denied" : "permitted");
}

// The server lists exactly the methods of the table, so a new method needs a row here.
static void expect_all_listed(mu_rpc_client *client)
{
    const mu_value *listed = mu_rpc_result_value(mu_rpc_call(client, "muster.methods"));
    assert_int_equal(mu_value_count(listed), MU_COUNT(all_methods) - 1); // it does not list itself
    for (int k = 0; k < mu_value_count(listed); k++) {
        char *name = NULL;
        size_t i = 0;
        assert_int_equal(mu__value_text(mu_value_at(mu_value_at(listed, k), 0), "a name", &name), MU_OK);
        while (i < MU_COUNT(all_methods) && strcmp(all_methods[i].method, name) != 0)
            i++;
        if (i == MU_COUNT(all_methods))
            fail_msg("\"%s\" has no row in all_methods", name);
        mu__free(name);
    }
}

static mu_rpc_client *client_of_version(mu_server *server, const char *version)
{
    setenv("MUSTER_WIRE_VERSION", version, 1);
    mu_runtime *runtime = mu_runtime_new(.cpu_devices = 1), *before = mu_runtime_use(runtime);
    mu_rpc_client *client = client_of(server, MU_ROLE_COORDINATOR);
    mu_runtime_use(before);
    unsetenv("MUSTER_WIRE_VERSION");
    return client;
}

static void test_every_method(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_server *server = mu_server_create_local_server(true);
    mu_rpc_client *worker = client_of(server, MU_ROLE_WORKER), *ps = client_of(server, MU_ROLE_PS),
                  *metrics = client_of(server, MU_ROLE_METRICS), *old = client_of_version(server, "3"),
                  *coordinator = client_of(server, MU_ROLE_COORDINATOR), *none = client_of(server, MU_ROLE_NONE);
    expect_all_listed(coordinator);
    for (size_t i = 0; i < MU_COUNT(all_methods); i++) {
        expect_denied(worker, i, all_methods[i].worker, true);
        expect_denied(old, i, all_methods[i].worker, true);
        expect_denied(ps, i, all_methods[i].ps, true);
        expect_denied(metrics, i, all_methods[i].metrics, false);
        expect_denied(coordinator, i, true, true);
        if (i + 1 < MU_COUNT(all_methods)) // drained before
            expect_denied(none, i, true, true);
    }
    mu_pool_close(pool);
}

// A method that a later version may add is closed to workers until it has a row, and an older end is told why.
static void test_unknown_methods_and_versions(void **state)
{
    (void)state;
    assert_int_equal(mu__permission_check(MU_ROLE_WORKER, MU_WIRE_VERSION, "muster.something"), MU_PERMISSION_DENIED);
    expect_error(MU_PERMISSION_DENIED, "role \"worker\" may not call \"muster.something\"");
    assert_int_equal(mu__permission_check(MU_ROLE_COORDINATOR, 3, "muster.server.drain"), MU_PERMISSION_DENIED);
    expect_error(MU_PERMISSION_DENIED, "version 3 of the wire, which has no roles");
    assert_int_equal(mu__permission_check(MU_ROLE_NONE, 3, "answer"), MU_OK);
}

static int version_of(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    const int version = client->member.session.version;
    pthread_mutex_unlock(&client->lock);
    return version;
}

// A server of each version with a client of each.
static void test_neighbouring_versions(void **state)
{
    (void)state;
    for (int of_server = MU_WIRE_OLDEST; of_server <= MU_WIRE_VERSION; of_server++)
        for (int of_client = MU_WIRE_OLDEST; of_client <= MU_WIRE_VERSION; of_client++) {
            mu_pool *pool = mu_pool_open();
            mu_rpc_server *server = start_server(of_server);
            char *number = mu__sprintf("%d", of_client);
            setenv("MUSTER_WIRE_VERSION", number, 1);
            mu_runtime *runtime = mu_runtime_new(.cpu_devices = 1);
            mu_runtime *before = mu_runtime_use(runtime);
            mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
            assert_int_equal(call(client, "answer"), MU_OK);
            assert_int_equal(version_of(client), MU_MIN(of_server, of_client));
            mu_runtime_use(before);
            unsetenv("MUSTER_WIRE_VERSION");
            mu__free(number);
            mu_pool_close(pool);
        }
}

// Requests that came with version 5 are not sent to a server of version 4 and are refused by name.
static void test_an_older_server_is_named(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *older = start_server(4), *now = start_server(MU_WIRE_VERSION);
    const mu_conditional_accumulator_args args = {.size = sizeof args, .dtype = MU_F32};
    mu_rpc_client *client = client_with(older, MU_ROLE_COORDINATOR);
    assert_null(mu__remote_accumulator_new(client, "a", &args, false));
    expect_error(MU_UNIMPLEMENTED, "it speaks version 4 of the wire, and accumulators on servers came with version 5");
    assert_int_equal(call(client, "answer"), MU_OK);
    mu_accumulator *a = mu__remote_accumulator_new(client_with(now, MU_ROLE_COORDINATOR), "a", &args, false);
    assert_non_null(a);
    mu_release(a);
    mu_pool_close(pool);
}

// ---- A slot that is used again ------------------------------------------------------------------

typedef struct asking {
    mu_monitor monitor;
    bool asks, may_go;
    mu_status status;
} asking;

static void set(asking *a, bool *flag)
{
    pthread_mutex_lock(&a->monitor.lock);
    *flag = true;
    pthread_cond_broadcast(&a->monitor.changed);
    pthread_mutex_unlock(&a->monitor.lock);
}

static void wait_for(asking *a, const bool *flag)
{
    pthread_mutex_lock(&a->monitor.lock);
    while (!*flag)
        mu__monitor_wait(&a->monitor, MU_FOREVER);
    pthread_mutex_unlock(&a->monitor.lock);
}

static mu_value *ask_late(mu_value *arguments, void *arg)
{
    asking *a = arg;
    (void)arguments;
    set(a, &a->asks);
    wait_for(a, &a->may_go);
    a->status = mu__call_may("muster.variable.clear");
    mu_error_take();
    return number(0);
}

// A worker's call has a worker's permissions, also after the worker has left and the coordinator has its slot.
static void test_a_call_keeps_its_role(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    asking a = {.status = MU_UNKNOWN};
    assert_int_equal(mu__monitor_init(&a.monitor, "test"), MU_OK);
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0", .max_clients = 1);
    mu_rpc_server_register(server, "ask_late", .fn = ask_late, .arg = &a);
    mu_rpc_server_register(server, "answer", .fn = answer);
    mu__keyring_set(server->node.keyring, MU_ROLE_PS, MU_WIRE_VERSION);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_pool *of_worker = mu_pool_open();
    mu_rpc_call(client_with(server, MU_ROLE_WORKER), "ask_late", NULL);
    wait_for(&a, &a.asks);
    mu_pool_close(of_worker);
    assert_int_equal(call(client_with(server, MU_ROLE_COORDINATOR), "answer"), MU_OK);
    set(&a, &a.may_go);
    assert_int_equal(mu_rpc_server_stop(server), MU_OK);
    assert_int_equal(a.status, MU_PERMISSION_DENIED);
    mu__monitor_free(&a.monitor);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_may_do_what),
        cmocka_unit_test(test_every_method),
        cmocka_unit_test(test_unknown_methods_and_versions),
        cmocka_unit_test(test_neighbouring_versions),
        cmocka_unit_test(test_an_older_server_is_named),
        cmocka_unit_test(test_a_call_keeps_its_role),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
