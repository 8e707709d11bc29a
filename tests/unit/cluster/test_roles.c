// Tests of what a task is in its cluster, and of the clusters that are refused.
#include "cluster_test.h"

#define WITH_CHIEF    "{\"chief\": [\"c:1\"], \"worker\": [\"a:1\", \"b:1\", \"d:1\"], \"evaluator\": [\"e:1\"]}"
#define WITHOUT_CHIEF "{\"worker\": [\"a:1\", \"b:1\", \"d:1\"], \"evaluator\": [\"e:1\"]}"

static void test_case_core_140_with_chief(void **state)
{
    (void)state;
    mu_cluster_spec *spec = mu_cluster_spec_parse(WITH_CHIEF);
    assert_int_equal(mu_cluster_spec_is_chief(spec, "chief", 0), 1);
    assert_int_equal(mu_cluster_spec_is_chief(spec, "evaluator", 0), 1);
    assert_int_equal(mu_cluster_spec_worker_index(spec, "chief", 0), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mu_cluster_spec_is_chief(spec, "worker", i), 0);
        assert_int_equal(mu_cluster_spec_worker_index(spec, "worker", i), i + 1);
        assert_string_equal(mu_cluster_spec_leader(spec, "worker", i), "/job:chief/replica:0/task:0");
    }
    assert_int_equal(mu_cluster_spec_worker_index(spec, "evaluator", 0), 0);
    assert_int_equal(mu_cluster_spec_worker_count(spec, "chief"), 4);
    assert_int_equal(mu_cluster_spec_worker_count(spec, "worker"), 4);
    assert_int_equal(mu_cluster_spec_worker_count(spec, "evaluator"), 1);
    assert_string_equal(mu_cluster_spec_leader(spec, "evaluator", 0), "");
}

static void test_case_core_140_without_chief(void **state)
{
    (void)state;
    mu_cluster_spec *spec = mu_cluster_spec_parse(WITHOUT_CHIEF);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mu_cluster_spec_is_chief(spec, "worker", i), i == 0);
        assert_int_equal(mu_cluster_spec_worker_index(spec, "worker", i), i);
        assert_string_equal(mu_cluster_spec_leader(spec, "worker", i), "/job:worker/replica:0/task:0");
    }
    assert_int_equal(mu_cluster_spec_worker_count(spec, "worker"), 3);
    assert_string_equal(mu_cluster_spec_leader(mu_cluster_spec_parse("{}"), NULL, 0), "");
}

static void test_parameter_servers(void **state)
{
    (void)state;
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"ps\": [\"a:1\"], \"worker\": [\"b:1\"]}");
    assert_int_equal(mu_cluster_spec_is_chief(spec, "ps", 0), 0);
    assert_int_equal(mu_cluster_spec_worker_count(spec, "ps"), -1);
    assert_taken(MU_INVALID_ARGUMENT, "job ps");
    assert_int_equal(mu_cluster_spec_worker_index(spec, "ps", 0), -1);
    assert_taken(MU_INVALID_ARGUMENT, "job ps");
    assert_null(mu_cluster_spec_leader(mu_cluster_spec_parse("{\"ps\": [\"a:1\"]}"), "ps", 0));
    assert_taken(MU_INVALID_ARGUMENT, "nobody leads");
}

static void test_case_ps_34_made_up_job(void **state)
{
    (void)state;
    assert_int_equal(mu_cluster_check(cluster_of("{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"], \"some_job\": [\"c:1\"]}",
                                                 "worker", 0)),
                     MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "\"some_job\"");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *json, *type;
        int id;
        const char *part;
    } table[] = {
        {"{\"chief\": [\"a:1\", \"b:1\"]}", "chief", 0, "2 tasks of job chief"},
        {"{\"evaluator\": [\"a:1\", \"b:1\"]}", "evaluator", 0, "2 tasks of job evaluator"},
        {"{\"worker\": [\"a:1\", \"b:1\"]}", "worker", 2, "worker 2, but of that job the cluster has 2"},
        {"{\"ps\": []}", "ps", 0, "ps 0, but that job of the cluster has no tasks"},
        {"{\"worker\": [\"a:1\", \"b:1\"]}", "ps", 0, "no job ps"},
        {"{\"worker\": [\"a:1\", \"A:1\"]}", "worker", 0, "same address"},
        {"{\"worker\": [\"a:1\"], \"ps\": [\"a:1\"]}", "worker", 0, "give each task its own port"},
        {"{\"worker\": [\"localhost:1\", \"b:1\"]}", "worker", 0, "this machine"},
        {"{\"worker\": [\"b:1\", \"127.0.0.1:1\"]}", "worker", 0, "this machine"},
        {"{\"worker\": [\"b:1\", \"[::1]:1\"]}", "worker", 0, "this machine"},
        {"{\"worker\": [\"0.0.0.0:1\", \"b:1\"]}", "worker", 0, "worker 0 is at \"0.0.0.0:1\", which means every"},
        {"{\"worker\": [\"a:1\", \"0.0.0.0:7\"]}", "worker", 0, "on one machine 127.0.0.1:7"},
        {"{\"worker\": [\"0:1\", \"b:1\"]}", "worker", 0, "every address"},
        {"{\"worker\": [\"[::0]:1\", \"[::ffff:0.0.0.0]:2\"]}", "worker", 0, "every address"},
        {"{\"worker\": [\"[::]:1\", \"b:1\"]}", "worker", 0, "every address"},
        {"{\"worker\": [\"a:1\"]}", "evaluator", 1, "its index is 0"},
        {"{\"worker\": [\"a\", \"b:1\"]}", "worker", 0, "expected host:port"},
        {"{\"worker\": [\"a:x\", \"b:1\"]}", "worker", 0, "expected host:port"},
        {"{\"worker\": [\"a:70000\", \"b:1\"]}", "worker", 0, "expected host:port"},
        {"{\"worker\": [\"::1:22\", \"b:1\"]}", "worker", 0, "IPv6"},
        {"{\"worker\": [\"a :1\", \"b:1\"]}", "worker", 0, "expected host:port"},
        {"{\"worker\": [\"a/b:1\", \"b:1\"]}", "worker", 0, "expected host:port"},
        {"{\"worker\": [\"a:1\", \"b:1\"]}", NULL, 0, "this process's task type is not known"},
        {"{\"worker\": {\"0\": \"a:1\", \"2\": \"b:1\"}}", "worker", 0, "worker 2 (\"b:1\") but no worker 1; number"},
        {"{\"worker\": {\"0\": \"a:1\", \"2\": \"b:1\"}}", "worker", 2, "without holes"},
        {"{\"worker\": {\"1\": \"a:1\"}}", "worker", 1, "worker 1 (\"a:1\") but no worker 0"},
        {"{\"chief\": {\"1\": \"a:1\"}, \"worker\": [\"b:1\"]}", "worker", 0, "has chief 1"},
        {"{\"evaluator\": {\"1\": \"a:1\"}, \"worker\": [\"b:1\"]}", "worker", 0, "has evaluator 1"},
    };
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        assert_int_equal(mu_cluster_check(cluster_of(table[i].json, table[i].type, table[i].id)), MU_INVALID_ARGUMENT);
        assert_taken(MU_INVALID_ARGUMENT, table[i].part);
    }
}

static void test_what_is_fine(void **state)
{
    (void)state;
    assert_int_equal(mu_cluster_check(cluster_of("{}", NULL, 0)), MU_OK);
    assert_int_equal(
        mu_cluster_check(cluster_of("{\"worker\": [\"localhost:1\", \"127.0.0.1:2\", \"[::1]:3\"]}", "worker", 2)),
        MU_OK);
    assert_int_equal(mu_cluster_check(cluster_of("{\"worker\": [\"a:1\", \"[fe80::2]:3\", \"\", \"\"]}", "worker", 3)),
                     MU_OK);
    // A worker beside parameter servers may know itself alone.
    assert_int_equal(mu_cluster_check(cluster_of("{\"worker\": {\"3\": \"a:1\"}, \"ps\": [\"b:1\"]}", "worker", 3)),
                     MU_OK);
    // A coordinator and an evaluator need not be in the cluster.
    assert_int_equal(mu_cluster_check(cluster_of("{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}", NULL, 0)), MU_OK);
    assert_int_equal(mu_cluster_check(cluster_of("{\"worker\": [\"a:1\"]}", "evaluator", 0)), MU_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(test_case_core_140_with_chief),
        cluster_test(test_case_core_140_without_chief),
        cluster_test(test_parameter_servers),
        cluster_test(test_case_ps_34_made_up_job),
        cluster_test(test_refusals),
        cluster_test(test_what_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
