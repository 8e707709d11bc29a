// Tests of clusters: the simple and the union resolver, masters, setters, and what this process is.
#include "cluster_test.h"

static const char *union_json(const char *a, const char *b)
{
    mu_cluster *both = mu_union_cluster_resolver(MU_CLUSTERS(cluster_of(a, NULL, 0), cluster_of(b, NULL, 0)));
    mu_cluster_spec *spec = mu_cluster_get_spec(both);
    return spec != NULL ? mu_cluster_spec_json(spec) : NULL;
}

static void test_case_ps_95_lists(void **state)
{
    (void)state;
    assert_string_equal(union_json("{\"worker\": [\"a\", \"b\"]}", "{\"worker\": [\"c\", \"d\", \"e\"]}"),
                        "{\"worker\": [\"a\", \"b\", \"c\", \"d\", \"e\"]}");
}

static void test_case_ps_95_maps(void **state)
{
    (void)state;
    assert_string_equal(union_json("{\"worker\": {\"5\": \"a\", \"9\": \"b\"}}",
                                   "{\"worker\": {\"3\": \"c\", \"6\": \"d\", \"7\": \"e\"}}"),
                        "{\"worker\": {\"3\": \"c\", \"5\": \"a\", \"6\": \"d\", \"7\": \"e\", \"9\": \"b\"}}");
}

static void test_case_ps_95_list_and_map(void **state)
{
    (void)state;
    assert_string_equal(
        union_json("{\"worker\": [\"a\", \"b\"]}", "{\"worker\": {\"3\": \"c\", \"6\": \"d\", \"7\": \"e\"}}"),
        "{\"worker\": {\"0\": \"a\", \"1\": \"b\", \"3\": \"c\", \"6\": \"d\", \"7\": \"e\"}}");
    assert_null(union_json("{\"worker\": [\"a\", \"b\"]}", "{\"worker\": {\"1\": \"c\"}}"));
    assert_taken(MU_ALREADY_EXISTS, "worker 1");
}

// Whether tasks were written as a list or with their indices makes no difference.
static void test_maps_that_are_lists(void **state)
{
    (void)state;
    assert_string_equal(union_json("{\"worker\": {\"0\": \"a\"}}", "{\"worker\": {\"1\": \"c\", \"0\": \"b\"}}"),
                        "{\"worker\": [\"a\", \"b\", \"c\"]}");
    assert_string_equal(union_json("{\"worker\": []}", "{\"worker\": [\"a\"]}"), "{\"worker\": [\"a\"]}");
}

static void test_case_ps_97_union_properties(void **state)
{
    (void)state;
    mu_cluster *a =
        mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"ps\": [\"p:1\"]}"), .task_type = "ps", .task_id = 1,
                                   .environment = "cloud", .num_accelerators = 8, .rpc_layer = "grpc");
    mu_cluster *b =
        mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"worker\": [\"w:1\"]}"), .task_type = "worker",
                                   .task_id = 2, .environment = "local", .num_accelerators = 16, .rpc_layer = "http");
    mu_cluster *both = mu_union_cluster_resolver(MU_CLUSTERS(a, b));
    assert_string_equal(mu_cluster_task_type(both), "ps");
    assert_int_equal(mu_cluster_task_id(both), 1);
    assert_string_equal(mu_cluster_environment(both), "cloud");
    assert_int_equal(mu_cluster_num_accelerators(both, "GPU"), 8);
    assert_int_equal(mu_cluster_num_accelerators(both, "TPU"), 0);
    assert_string_equal(mu_cluster_rpc_layer(both), "grpc");
    assert_int_equal(mu_cluster_set_task_type(both, "worker"), MU_OK);
    assert_int_equal(mu_cluster_set_task_id(both, 0), MU_OK);
    assert_int_equal(mu_cluster_set_rpc_layer(both, "http"), MU_OK);
    assert_string_equal(mu_cluster_task_type(both), "worker");
    assert_int_equal(mu_cluster_task_id(both), 0);
    assert_string_equal(mu_cluster_rpc_layer(both), "http");
    assert_string_equal(mu_cluster_master(both), "");
    assert_string_equal(mu_cluster_master(both, "worker", 0), "http://w:1");
    assert_string_equal(mu_cluster_task_type(a), "ps");
}

static void test_case_ps_98_masters(void **state)
{
    (void)state;
    mu_cluster_spec *spec =
        mu_cluster_spec_parse("{\"worker\": [\"worker0:2222\", \"worker1:2222\", \"worker2:2222\"]}");
    mu_cluster *plain = mu_simple_cluster_resolver(spec),
               *layered = mu_simple_cluster_resolver(spec, .rpc_layer = "grpc");
    assert_string_equal(mu_cluster_master(plain, "worker", 2), "worker2:2222");
    assert_string_equal(mu_cluster_master(layered, "worker", 2), "grpc://worker2:2222");
    assert_string_equal(mu_cluster_master(plain, "worker", 2, .rpc_layer = "test"), "test://worker2:2222");
    mu_cluster *both = mu_union_cluster_resolver(MU_CLUSTERS(plain, layered));
    assert_string_equal(mu_cluster_master(both), "");
    // Without a task a union asks its first cluster: a simple one answers with what it was given, another with itself.
    mu_cluster *first = mu_simple_cluster_resolver(spec, .task_type = "worker", .task_id = 1, .master = "m:1");
    assert_string_equal(mu_cluster_master(mu_union_cluster_resolver(MU_CLUSTERS(first, plain))), "m:1");
    ENVIRONMENT("TF_CONFIG={\"cluster\": {\"worker\": [\"t0:1\", \"t1:1\"]}, \"task\": {\"type\": \"worker\", "
                "\"index\": 1}, \"rpc_layer\": \"grpc\"}");
    mu_cluster *config = mu_tf_config_cluster_resolver();
    both = mu_union_cluster_resolver(MU_CLUSTERS(config, plain), .task_type = "worker", .task_id = 3);
    assert_string_equal(mu_cluster_master(both), "grpc://t1:1");
    assert_string_equal(mu_cluster_master(both, "worker", 3), "worker1:2222");
    assert_string_equal(mu_cluster_master(both, .rpc_layer = "x"), "x://t1:1");
    assert_string_equal(mu_cluster_master(mu_simple_cluster_resolver(spec, .master = "elsewhere")), "elsewhere");
    assert_string_equal(mu_cluster_master(mu_simple_cluster_resolver(spec, .master = "m", .rpc_layer = "grpc")),
                        "grpc://m");
    assert_null(mu_cluster_master(plain, "worker", 3));
    assert_taken(MU_INVALID_ARGUMENT, "no worker 3");
}

// What is named of a task counts, each by itself.
static void test_masters_of_named_tasks(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={\"cluster\": {\"worker\": [\"w0:1\", \"w1:1\"], \"ps\": [\"p0:1\"]}, \"task\": {\"type\": "
                "\"worker\", \"index\": 1}}");
    mu_cluster *config = mu_tf_config_cluster_resolver(),
               *alone = cluster_of("{\"worker\": [\"w0:1\", \"w1:1\"]}", NULL, 0);
    assert_string_equal(mu_cluster_master(config), "w1:1");
    assert_string_equal(mu_cluster_master(config, .task_id = 0), "w0:1");
    assert_string_equal(mu_cluster_master(config, NULL, 0), "w0:1");
    assert_string_equal(mu_cluster_master(config, .task_type = "ps"), "p0:1");
    assert_null(mu_cluster_master(config, .task_id = 2));
    assert_taken(MU_INVALID_ARGUMENT, "no worker 2");
    assert_string_equal(mu_cluster_master(mu_union_cluster_resolver(MU_CLUSTERS(config)), .task_id = 0), "w0:1");
    assert_null(mu_cluster_master(alone, .task_id = 1));
    assert_taken(MU_INVALID_ARGUMENT, "give .task_type");
    assert_int_equal(mu_cluster_set_task_type(alone, "worker"), MU_OK);
    assert_string_equal(mu_cluster_master(alone, .task_id = 1), "w1:1");
}

static void test_case_ps_100_sparse(void **state)
{
    (void)state;
    const char *sparse = "{\"worker\": {\"1\": \"x\", \"3\": \"y\", \"5\": \"z\"}}";
    mu_cluster *one = mu_union_cluster_resolver(MU_CLUSTERS(cluster_of(sparse, NULL, 0)));
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(one)), sparse);
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    assert_null(mu_simple_cluster_resolver());
    assert_taken(MU_INVALID_ARGUMENT, "needs a specification");
    assert_null(mu_union_cluster_resolver());
    assert_taken(MU_INVALID_ARGUMENT, "at least one");
    mu_cluster *not_one = (mu_cluster *)mu_cluster_spec_parse("{}");
    assert_null(mu_union_cluster_resolver(MU_CLUSTERS(not_one)));
    assert_taken(MU_INVALID_ARGUMENT, "needs a cluster");
    assert_null(mu_cluster_task_type(NULL));
    assert_taken(MU_INVALID_ARGUMENT, "mu_cluster_task_type");
    assert_null(cluster_of("{\"worker\": [\"a:1\"]}", "worker", -3));
    assert_taken(MU_INVALID_ARGUMENT, "-3");
}

static void test_this_process(void **state)
{
    (void)state;
    mu_cluster *alone = cluster_of("{}", NULL, 0);
    assert_int_equal(mu_cluster_is_chief(alone), 1);
    assert_int_equal(mu_cluster_worker_count(alone), 1);
    assert_int_equal(mu_cluster_worker_index(alone), 0);
    assert_int_equal(mu_cluster_is_coordinator(alone), 1);
    const char *json = "{\"chief\": [\"c:1\"], \"worker\": [\"a:1\", \"b:1\"], \"ps\": [\"p:1\"]}";
    mu_cluster *worker = cluster_of(json, "worker", 1), *chief = cluster_of(json, "chief", 0);
    assert_int_equal(mu_cluster_is_chief(worker), 0);
    assert_int_equal(mu_cluster_worker_count(worker), 3);
    assert_int_equal(mu_cluster_worker_index(worker), 2);
    assert_int_equal(mu_cluster_is_coordinator(worker), 0);
    assert_int_equal(mu_cluster_is_coordinator(chief), 1);
    assert_int_equal(mu_cluster_is_coordinator(cluster_of(json, "ps", 0)), 0);
    assert_int_equal(mu_cluster_is_coordinator(cluster_of(json, NULL, 0)), 1);
}

static bool make_union(void *arg)
{
    (void)arg;
    mu_pool *pool = mu_pool_open();
    const char *text =
        pool != NULL ? union_json("{\"worker\": [\"a\", \"b\"]}", "{\"worker\": {\"4\": \"c\"}, \"ps\": []}") : NULL;
    mu_pool_close(pool);
    return text != NULL;
}

static void test_without_memory(void **state)
{
    (void)state;
    with_failing_allocations(make_union, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(test_case_ps_95_lists),        cluster_test(test_case_ps_95_maps),
        cluster_test(test_case_ps_95_list_and_map), cluster_test(test_case_ps_97_union_properties),
        cluster_test(test_case_ps_98_masters),      cluster_test(test_masters_of_named_tasks),
        cluster_test(test_case_ps_100_sparse),      cluster_test(test_maps_that_are_lists),
        cluster_test(test_wrong_arguments),         cluster_test(test_this_process),
        cluster_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
