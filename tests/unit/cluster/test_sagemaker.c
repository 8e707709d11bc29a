// Tests of SageMaker: its two variables, what the constructor says instead, and lists that cannot be read.
#include "cluster_test.h"

#define HOSTS "SM_HOSTS=[\"algo-2\", \"algo-10\", \"algo-1\"]"

static void test_hosts_are_workers_by_name(void **state)
{
    (void)state;
    ENVIRONMENT(HOSTS, "SM_CURRENT_HOST=algo-2");
    mu_cluster *cluster = mu_sagemaker_cluster_resolver();
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)),
                        "{\"worker\": [\"algo-1:2223\", \"algo-10:2223\", \"algo-2:2223\"]}");
    assert_string_equal(mu_cluster_task_type(cluster), "worker");
    assert_int_equal(mu_cluster_task_id(cluster), 2);
    assert_string_equal(mu_cluster_master(cluster), "algo-2:2223");
    assert_string_equal(mu_cluster_master(cluster, "worker", 1), "algo-10:2223");
    assert_null(mu_cluster_rpc_layer(cluster));
    assert_string_equal(mu_cluster_source(cluster), "SM_HOSTS and SM_CURRENT_HOST");
    ENVIRONMENT(HOSTS, "SM_CURRENT_HOST=algo-1"); // at each query
    assert_int_equal(mu_cluster_task_id(cluster), 0);
}

static void test_what_the_constructor_says(void **state)
{
    (void)state;
    ENVIRONMENT(HOSTS, "SM_CURRENT_HOST=algo-2");
    mu_cluster *cluster =
        mu_sagemaker_cluster_resolver(.port = 9, .task_id = 1, .rpc_layer = "grpc", .environment = "cloud");
    assert_string_equal(mu_cluster_master(cluster), "grpc://algo-10:9");
    assert_string_equal(mu_cluster_task_type(cluster), "worker");
    assert_string_equal(mu_cluster_environment(cluster), "cloud");
    assert_int_equal(mu_cluster_set_task_type(cluster, "evaluator"), MU_OK);
    assert_string_equal(mu_cluster_task_type(cluster), "evaluator");
    assert_null(mu_sagemaker_cluster_resolver(.port = 65536));
    assert_taken(MU_INVALID_ARGUMENT, "port is 65536");
}

static void test_a_lone_host_is_local(void **state)
{
    (void)state;
    ENVIRONMENT("SM_HOSTS=[\"algo-1\"]", "SM_CURRENT_HOST=algo-1");
    mu_cluster *cluster = mu_cluster_from_environment();
    assert_string_equal(mu_cluster_master(cluster), "");
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)), "{\"worker\": [\"algo-1:2223\"]}");
}

static void test_a_host_that_is_not_listed(void **state)
{
    (void)state;
    static const char *const lists[] = {HOSTS, "SM_HOSTS=[]"};
    for (size_t i = 0; i < MU_COUNT(lists); i++) {
        ENVIRONMENT(lists[i], "SM_CURRENT_HOST=algo-3");
        mu_cluster *cluster = mu_sagemaker_cluster_resolver();
        assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)), "{}");
        assert_null(mu_cluster_task_type(cluster));
        assert_int_equal(mu_cluster_task_id(cluster), -1);
        assert_string_equal(mu_cluster_master(cluster), "");
    }
}

static void test_lists_that_cannot_be_read(void **state)
{
    (void)state;
    static const struct {
        const char *list, *says;
    } wrong[] = {{"SM_HOSTS=[\"a\"", "SM_HOSTS is not JSON"},
                 {"SM_HOSTS={\"a\": 1}", "SM_HOSTS is not a list"},
                 {"SM_HOSTS=[\"a\", 2]", "entry 1 is no name"},
                 {"SM_HOSTS=[\"\"]", "entry 0 is no name"}};
    mu_cluster *cluster = mu_sagemaker_cluster_resolver();
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        ENVIRONMENT(wrong[i].list, "SM_CURRENT_HOST=a");
        assert_null(mu_cluster_get_spec(cluster));
        assert_taken(MU_INVALID_ARGUMENT, wrong[i].says);
    }
    ENVIRONMENT("SM_HOSTS=[\"a\"]");
    assert_null(mu_cluster_get_spec(cluster));
    assert_taken(MU_FAILED_PRECONDITION, "SM_CURRENT_HOST is not set");
    ENVIRONMENT("SM_CURRENT_HOST=a");
    assert_null(mu_cluster_task_type(cluster));
    assert_taken(MU_FAILED_PRECONDITION, "SM_HOSTS is not set");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(test_hosts_are_workers_by_name), cluster_test(test_what_the_constructor_says),
        cluster_test(test_a_lone_host_is_local),      cluster_test(test_a_host_that_is_not_listed),
        cluster_test(test_lists_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
