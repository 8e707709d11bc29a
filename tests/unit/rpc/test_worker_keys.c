// Processes that have only a worker's key: which roles they may have, whom they can reach, and what others take them
// for.
#include "rpc/client/client.h"
#include "rpc/services/service.h"
#include "rpc_test.h"

#include "../base/base_test.h"

#include <sys/stat.h>

static const char cluster[] = "{\"worker\": [\"localhost:0\", \"localhost:0\"], \"ps\": [\"localhost:0\"]}";

// A runtime that is in use and was started with a worker's key; the caller returns to `before`.
static mu_runtime *be_worker(int worker, mu_runtime **before)
{
    char key[MU_WORKER_KEY];
    mu_keyring *keyring = mu__keyring_new(TEST_KEY, true);
    assert_int_equal(mu__keyring_worker_key(keyring, worker, key), MU_OK);
    mu_release(keyring);
    setenv("MUSTER_CLUSTER_KEY", key, 1);
    mu_runtime *runtime = mu_runtime_new(.cpu_devices = 1);
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    assert_non_null(runtime);
    *before = mu_runtime_use(runtime);
    return runtime;
}

static mu_server *server_of(const char *job, int index)
{
    mu_cluster *of = mu_simple_cluster_resolver(mu_cluster_spec_parse(cluster));
    return mu_server_new(of, .job_name = job, .task_index = index);
}

static mu_rpc_client *client_of(const char *target, mu_role role, int accepts)
{
    return mu__give(mu__client_of_task(target + strlen("muster://"), NULL, role, accepts));
}

static void test_the_key_of_another_task(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_runtime *before;
    be_worker(1, &before);
    assert_non_null(server_of("worker", 1));
    assert_null(server_of("worker", 0));
    expect_error(
        MU_PERMISSION_DENIED,
        "is that of worker 1, and this process is worker 0; give it its own, which `muster key --for worker:0`");
    assert_null(server_of("ps", 0));
    expect_error(MU_PERMISSION_DENIED, "is that of worker 1, and this process is ps 0; give it the cluster's key");
    assert_null(client_of("muster://localhost:1", MU_ROLE_COORDINATOR, MU_BEARER_ALL));
    expect_error(MU_PERMISSION_DENIED, "is that of worker 1, and this process is the coordinator");
    assert_null(client_of("muster://localhost:1", MU_ROLE_PS, MU_BEARER_ALL));
    expect_error(MU_PERMISSION_DENIED, "is that of worker 1, and this process is a ps");
    mu_runtime_use(before);
    mu_pool_close(pool);
}

static void test_an_older_version(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_runtime *before;
    setenv("MUSTER_WIRE_VERSION", "6", 1);
    be_worker(0, &before);
    unsetenv("MUSTER_WIRE_VERSION");
    assert_null(server_of("worker", 0));
    expect_error(MU_FAILED_PRECONDITION,
                 "MUSTER_WIRE_VERSION is 6, and this process has a worker's key, which needs wire version 7");
    mu_runtime_use(before);
    mu_pool_close(pool);
}

// A worker connects to a task with the cluster's key: it is a worker there, whatever role it asks for.
static void test_a_worker_is_nothing_else(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_server *server = server_of("ps", 0);
    const char *target = mu_server_target(server);
    mu_runtime *before;
    be_worker(1, &before);
    for (int role = MU_ROLE_NONE; role <= MU_ROLE_WORKER; role++) {
        mu_rpc_client *client = client_of(target, role, MU_BEARER_ALL);
        assert_int_equal(mu_rpc_result_error(mu_rpc_call(client, "muster.methods")).code, MU_OK);
        expect_result(mu_rpc_call(client, "muster.server.drain"), MU_PERMISSION_DENIED, "the role \"worker\"");
        expect_result(mu_rpc_call(client, "muster.variable.clear"), MU_PERMISSION_DENIED, "the role \"worker\"");
    }
    mu_runtime_use(before);
    mu_rpc_client *coordinator = client_of(target, MU_ROLE_COORDINATOR, MU_BEARER_ALL);
    assert_int_equal(mu_rpc_result_error(mu_rpc_call(coordinator, "muster.server.drain")).code, MU_OK);
    mu_pool_close(pool);
}

// A server that is no task of a cluster takes no workers.
static void test_other_servers(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    char *target = mu__sprintf("muster://%s", mu_rpc_server_address(server));
    mu_runtime *before;
    be_worker(1, &before);
    mu_rpc_client *client = client_of(target, MU_ROLE_WORKER, MU_BEARER_ALL);
    assert_int_not_equal(mu_rpc_result_error(mu_rpc_call(client, "muster.methods")).code, MU_OK);
    mu_runtime_use(before);
    mu__free(target);
    mu_pool_close(pool);
}

// Other tasks connect to a worker: they know which worker it must be. It can reach itself.
static void test_who_the_worker_is(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_runtime *before;
    be_worker(1, &before);
    mu_server *server = server_of("worker", 1);
    const char *target = mu_server_target(server);
    assert_int_equal(mu__remote_variables_clear(client_of(target, MU_ROLE_WORKER, MU_BEARER_ALL)),
                     MU_PERMISSION_DENIED);
    expect_error(MU_PERMISSION_DENIED, "the role \"worker\"");
    mu_runtime_use(before);
    assert_int_equal(mu__remote_variables_clear(client_of(target, MU_ROLE_COORDINATOR, 2)), MU_OK);
    assert_int_equal(mu__remote_variables_clear(client_of(target, MU_ROLE_COORDINATOR, 1)), MU_UNAVAILABLE);
    expect_error(MU_UNAVAILABLE, "it has the key of another worker than the one called");
    assert_int_equal(mu__remote_variables_clear(client_of(target, MU_ROLE_NONE, MU_BEARER_ALL)), MU_UNAVAILABLE);
    expect_error(MU_UNAVAILABLE, "it has only a worker's key, which does not suffice here");
    be_worker(0, &before);
    assert_int_equal(mu__remote_variables_clear(client_of(target, MU_ROLE_WORKER, MU_BEARER_ALL)), MU_UNAVAILABLE);
    expect_error(MU_UNAVAILABLE, "worker");
    mu_runtime_use(before);
    mu_pool_close(pool);
}

// On one host a worker's key signs the shared memory for large messages, in both directions.
static void test_shared_memory(void **state)
{
    enum { N = 100000 };
    const int64_t shape[] = {N};
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_runtime *before;
    be_worker(1, &before);
    mu_server *server = server_of("worker", 1);
    mu_runtime_use(before);
    mu_rpc_client *client = client_of(mu_server_target(server), MU_ROLE_COORDINATOR, 2);
    for (int i = 0; i < 3; i++) {
        char name[] = {'v', (char)('0' + i), '\0'};
        assert_int_equal(mu__remote_variable_create(client, name, mu_zeros(MU_F32, 1, shape)), MU_OK);
    }
    pthread_mutex_lock(&client->lock);
    assert_int_equal(client->channel.sharing, MU_SHARING_YES);
    pthread_mutex_unlock(&client->lock);
    mu_pool_close(pool);
}

static void make_server(void *arg) { *(mu_server **)arg = server_of("ps", 0); }

// A task that starts reads its key several times, and warns once that others may open the file.
static void test_a_file_that_others_may_open(void **state)
{
    char path[] = P_tmpdir "/muster-key-XXXXXX", text[8192];
    const int fd = mkstemp(path);
    mu_server *server = NULL;
    (void)state;
    assert_true(fd >= 0 && write(fd, TEST_KEY, sizeof TEST_KEY - 1) > 0 && fchmod(fd, 0644) == 0);
    close(fd);
    mu_pool *pool = mu_pool_open();
    unsetenv("MUSTER_CLUSTER_KEY");
    setenv("MUSTER_CLUSTER_KEY_FILE", path, 1);
    mu_runtime *runtime = mu_runtime_new(.cpu_devices = 1);
    unsetenv("MUSTER_CLUSTER_KEY_FILE");
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    assert_non_null(runtime);
    mu_runtime *before = mu_runtime_use(runtime);
    catch_stderr(make_server, &server, text, sizeof text);
    mu_runtime_use(before);
    unlink(path);
    assert_non_null(server);
    const char *warning = strstr(text, "others may open it");
    assert_true(warning != NULL && strstr(warning + 1, "others may open it") == NULL);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_key_of_another_task),     cmocka_unit_test(test_an_older_version),
        cmocka_unit_test(test_a_worker_is_nothing_else),    cmocka_unit_test(test_other_servers),
        cmocka_unit_test(test_who_the_worker_is),           cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_a_file_that_others_may_open),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
