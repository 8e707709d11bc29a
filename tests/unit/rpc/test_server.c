// The servers of a cluster's tasks: which task, where they listen, how they end.
#include "rpc/services/service.h"
#include "rpc_test.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static mu_cluster *cluster_of(const char *json) { return mu_simple_cluster_resolver(mu_cluster_spec_parse(json)); }

static void test_a_local_server_keeps_variables(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_server *server = mu_server_create_local_server(true);
    const char *target = mu_server_target(server);
    assert_int_equal(strncmp(target, "muster://localhost:", 19), 0);
    mu_rpc_client *client = mu_rpc_client_new("muster", target + 9);
    assert_int_equal(mu__remote_variable_create(client, "v", mu_constant(MU_F32, 3)), MU_OK);
    assert_int_equal(mu_server_start(server), MU_OK); // again
    assert_string_equal(mu_cluster_spec_json(mu_server_spec(server)), "{\"local\": [\"localhost:0\"]}");
    assert_int_equal(mu_server_stop(server), MU_OK);
    assert_int_equal(mu_server_join(server), MU_OK);
    mu_pool_close(pool);
}

static void test_which_task(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const char *const two = "{\"worker\": [\"localhost:0\"], \"ps\": [\"localhost:0\", \"localhost:0\"]}";
    assert_non_null(mu_server_new(cluster_of("{\"ps\": [\"localhost:0\"]}"), .no_start = true));
    assert_non_null(mu_server_new(cluster_of(two), .job_name = "worker", .no_start = true));
    assert_non_null(mu_server_new(cluster_of(two), .job_name = "ps", .task_index = 1, .no_start = true));
    assert_non_null(mu_server_new(cluster_of(two), .job_name = "ps", .task_index = 0, .no_start = true));
    assert_null(mu_server_new(cluster_of(two)));
    expect_error(MU_INVALID_ARGUMENT, "has 2 jobs");
    assert_null(mu_server_new(cluster_of(two), .job_name = "ps"));
    expect_error(MU_INVALID_ARGUMENT, "the job ps has 2 tasks");
    assert_null(mu_server_new(cluster_of(two), .job_name = "ps", .task_index = 2));
    expect_error(MU_INVALID_ARGUMENT, "has no task 2, but 2 others");
    assert_null(mu_server_new(cluster_of(two), .job_name = "chief"));
    expect_error(MU_INVALID_ARGUMENT, "no job \"chief\"");
    assert_null(mu_server_new(cluster_of(two), .job_name = "worker", .protocol = "grpc"));
    expect_error(MU_INVALID_ARGUMENT, "use \"muster\"");
    mu_server *server = mu_server_create_local_server(false);
    assert_null(mu_server_target(server));
    expect_error(MU_FAILED_PRECONDITION, "was not started");
    assert_int_equal(mu_server_join(server), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "was not started");
    mu_pool_close(pool);
}

static void *stop_later(void *server)
{
    usleep(100000);
    mu_server_stop(server);
    return NULL;
}

static void test_join_waits_for_the_end(void **state)
{
    (void)state;
    pthread_t thread;
    mu_pool *pool = mu_pool_open();
    mu_server *server = mu_server_create_local_server(true);
    pthread_create(&thread, NULL, stop_later, server);
    assert_int_equal(mu_server_join(server), MU_OK);
    pthread_join(thread, NULL);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_local_server_keeps_variables),
        cmocka_unit_test(test_which_task),
        cmocka_unit_test(test_join_waits_for_the_end),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
