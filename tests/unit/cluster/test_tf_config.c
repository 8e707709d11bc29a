// Tests of TF_CONFIG: what it says, what the constructor and the setters say instead, and when it is read.
#include "cluster_test.h"

#define JOBS                                               \
    "\"cluster\": {\"ps\": [\"ps0:2222\", \"ps1:2222\"], " \
    "\"worker\": [\"worker0:2222\", \"worker1:2222\", \"worker2:2222\"]}"
#define TASK(type, index) "\"task\": {\"type\": \"" type "\", \"index\": " index "}"

static void test_case_ps_82(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={" JOBS ", " TASK("ps", "0") "}");
    mu_cluster *cluster = mu_tf_config_cluster_resolver();
    assert_string_equal(mu_cluster_master(cluster), "ps0:2222");
    assert_string_equal(mu_cluster_master(cluster, "worker", 1), "worker1:2222");
    assert_null(mu_cluster_rpc_layer(cluster));
    assert_string_equal(mu_cluster_source(cluster), "TF_CONFIG");
}

static void test_case_ps_83(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={" JOBS ", " TASK("ps", "0") ", \"rpc_layer\": \"grpc\"}");
    mu_cluster *cluster = mu_tf_config_cluster_resolver();
    assert_string_equal(mu_cluster_master(cluster), "grpc://ps0:2222");
    ENVIRONMENT("TF_CONFIG={" JOBS
                ", " TASK("ps", "0") ", \"rpc_layer\": \"grpc\", \"session_master\": \"sessionmaster:2222\"}");
    assert_string_equal(mu_cluster_master(cluster), "sessionmaster:2222");
    assert_string_equal(mu_cluster_master(cluster, "worker", 1), "sessionmaster:2222");
}

static void test_case_ps_85(void **state)
{
    (void)state;
    mu_cluster *cluster = mu_tf_config_cluster_resolver();
    assert_string_equal(mu_cluster_master(cluster), "");
    ENVIRONMENT("TF_CONFIG={}");
    assert_string_equal(mu_cluster_master(cluster), "");
    assert_null(mu_cluster_task_type(cluster));
    assert_int_equal(mu_cluster_task_id(cluster), -1);
    ENVIRONMENT("TF_CONFIG={\"cluster\": {\"worker\": [\"worker0:2222\"]}, " TASK("worker", "0") "}");
    assert_string_equal(mu_cluster_master(cluster), "");
    ENVIRONMENT("TF_CONFIG={\"cluster\": ");
    cluster = mu_tf_config_cluster_resolver();
    assert_non_null(cluster);
    assert_null(mu_cluster_master(cluster));
    assert_taken(MU_INVALID_ARGUMENT, "TF_CONFIG is not JSON");
    assert_null(mu_cluster_get_spec(cluster));
    assert_taken(MU_INVALID_ARGUMENT, "TF_CONFIG is not JSON");
}

static void test_case_ps_86(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={" JOBS ", " TASK("ps", "1") ", \"rpc_layer\": \"grpc\"}");
    mu_cluster *cluster = mu_tf_config_cluster_resolver(.task_type = "ps", .task_id = 0);
    assert_string_equal(mu_cluster_master(cluster), "grpc://ps0:2222");
    assert_int_equal(mu_cluster_set_task_type(cluster, "worker"), MU_OK);
    assert_int_equal(mu_cluster_set_task_id(cluster, 1), MU_OK);
    assert_int_equal(mu_cluster_set_rpc_layer(cluster, "test"), MU_OK);
    assert_string_equal(mu_cluster_master(cluster), "test://worker1:2222");
}

static void test_loose_types(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={" JOBS ", \"task\": {\"type\": 7, \"index\": \"2\"}, \"environment\": \"cloud\"}");
    mu_cluster *cluster = mu_tf_config_cluster_resolver();
    assert_string_equal(mu_cluster_task_type(cluster), "7");
    assert_int_equal(mu_cluster_task_id(cluster), 2);
    assert_string_equal(mu_cluster_environment(cluster), "");
    assert_string_equal(mu_cluster_environment(mu_tf_config_cluster_resolver(.environment = "mine")), "mine");
}

static void test_old_master_is_chief(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={\"cluster\": {\"master\": [\"m:1\"], \"worker\": [\"w:1\"]}, " TASK("master", "0") "}");
    mu_cluster *cluster = mu_tf_config_cluster_resolver();
    assert_string_equal(mu_cluster_task_type(cluster), "chief");
    assert_int_equal(mu_cluster_is_chief(cluster), 1);
    assert_int_equal(mu_cluster_worker_count(cluster), 2);
}

static void test_evaluator_outside(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={" JOBS ", " TASK("evaluator", "0") "}");
    mu_cluster *cluster = mu_tf_config_cluster_resolver();
    assert_string_equal(mu_cluster_task_type(cluster), "evaluator");
    assert_int_equal(mu_cluster_check(cluster), MU_OK);
    assert_int_equal(mu_cluster_is_chief(cluster), 1);
}

// A task with a type but no index, or the reverse, cannot take part.
static void test_half_a_task(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={" JOBS ", \"task\": {\"type\": \"worker\"}}");
    assert_int_equal(mu_cluster_check(mu_tf_config_cluster_resolver()), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "set \"index\"");
    ENVIRONMENT("TF_CONFIG={" JOBS ", \"task\": {\"index\": 1}}");
    assert_int_equal(mu_cluster_check(mu_tf_config_cluster_resolver()), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "task type is not known");
}

static void test_task_that_cannot_be(void **state)
{
    (void)state;
    static const char *const table[] = {
        "TF_CONFIG={\"task\": 3}",
        "TF_CONFIG={\"task\": {\"index\": -1}}",
        "TF_CONFIG={\"task\": {\"index\": \"one\"}}",
        "TF_CONFIG={\"task\": {\"index\": 99999999999}}",
        "TF_CONFIG={\"task\": {\"type\": []}}",
        "TF_CONFIG={\"cluster\": []}",
        "TF_CONFIG={\"rpc_layer\": {}}",
    };
    mu_cluster *cluster = mu_tf_config_cluster_resolver();
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        ENVIRONMENT(table[i]);
        assert_int_equal(mu_cluster_task_id(cluster), -1);
        assert_taken(MU_INVALID_ARGUMENT, "TF_CONFIG: ");
    }
}

static bool ask_all(void *arg)
{
    (void)arg;
    mu_pool *pool = mu_pool_open();
    mu_cluster *cluster =
        pool != NULL ? mu_tf_config_cluster_resolver(.environment = "here", .rpc_layer = "grpc") : NULL;
    const bool good = cluster != NULL && mu_cluster_master(cluster) != NULL && mu_cluster_environment(cluster) != NULL;
    mu_pool_close(pool);
    return good;
}

static void test_without_memory(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={" JOBS ", " TASK("ps", "1") "}");
    with_failing_allocations(ask_all, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(test_case_ps_82),        cluster_test(test_case_ps_83),  cluster_test(test_case_ps_85),
        cluster_test(test_case_ps_86),        cluster_test(test_loose_types), cluster_test(test_old_master_is_chief),
        cluster_test(test_evaluator_outside), cluster_test(test_half_a_task), cluster_test(test_task_that_cannot_be),
        cluster_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
