// Tests of cluster specifications: lists, maps, gaps in the numbering, reading and writing JSON, and invalid JSON.
#include "cluster_test.h"

static void test_lists_and_maps(void **state)
{
    (void)state;
    mu_cluster_spec *spec = mu_cluster_spec_parse(
        "{\"worker\": [\"a:1\", \"b:2\"], \"ps\": {\"5\": \"z:5\", \"1\": \"x:1\"}, \"chief\": []}");
    assert_int_equal(mu_cluster_spec_job_count(spec), 3);
    assert_string_equal(mu_cluster_spec_job(spec, 0), "chief");
    assert_string_equal(mu_cluster_spec_job(spec, 1), "ps");
    assert_string_equal(mu_cluster_spec_job(spec, 2), "worker");
    assert_null(mu_cluster_spec_job(spec, 3));
    assert_int_equal(mu_cluster_spec_num_tasks(spec, "ps"), 2);
    assert_int_equal(mu_cluster_spec_task_index(spec, "ps", 0), 1);
    assert_int_equal(mu_cluster_spec_task_index(spec, "ps", 1), 5);
    assert_string_equal(mu_cluster_spec_task_address(spec, "ps", 5), "z:5");
    assert_string_equal(mu_cluster_spec_task_address(spec, "worker", 1), "b:2");
    assert_string_equal(mu_cluster_spec_json(spec),
                        "{\"chief\": {}, \"ps\": {\"1\": \"x:1\", \"5\": \"z:5\"}, \"worker\": [\"a:1\", \"b:2\"]}");
}

// A map whose indices happen to be 0 to n-1 is written as a list.
static void test_full_map_is_a_list(void **state)
{
    (void)state;
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": {\"1\": \"b\", \"0\": \"a\"}}");
    assert_string_equal(mu_cluster_spec_json(spec), "{\"worker\": [\"a\", \"b\"]}");
    assert_string_equal(mu_cluster_spec_json(mu_cluster_spec_parse(NULL)), "{}");
}

static void test_add(void **state)
{
    (void)state;
    mu_cluster_spec *spec = mu_cluster_spec_parse("{}");
    assert_int_equal(mu_cluster_spec_add(spec, "worker", -1, "a:1"), MU_OK);
    assert_int_equal(mu_cluster_spec_add(spec, "worker", 3, "d:1"), MU_OK);
    assert_int_equal(mu_cluster_spec_add(spec, "worker", -1, "e:1"), MU_OK);
    assert_string_equal(mu_cluster_spec_task_address(spec, "worker", 4), "e:1");
    assert_int_equal(mu_cluster_spec_add(spec, "worker", 3, "f:1"), MU_ALREADY_EXISTS);
    assert_taken(MU_ALREADY_EXISTS, "worker 3");
    assert_int_equal(mu_cluster_spec_add(spec, "worker", -2, "f:1"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "-2");
}

static void test_what_is_not_there(void **state)
{
    (void)state;
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"a:1\"]}");
    assert_int_equal(mu_cluster_spec_num_tasks(spec, "ps"), -1);
    assert_taken(MU_INVALID_ARGUMENT, "no job \"ps\"");
    assert_null(mu_cluster_spec_task_address(spec, "worker", 1));
    assert_taken(MU_INVALID_ARGUMENT, "no worker 1");
    assert_int_equal(mu_cluster_spec_task_index(spec, "worker", 1), -1);
    assert_taken(MU_INVALID_ARGUMENT, "task number 1");
}

static void test_json_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *json, *part;
        mu_status code;
    } table[] = {
        {"", "not JSON", MU_INVALID_ARGUMENT},
        {"[]", "not an object", MU_INVALID_ARGUMENT},
        {"{\"worker\": 3}", "neither a list", MU_INVALID_ARGUMENT},
        {"{\"worker\": [3]}", "not a text", MU_INVALID_ARGUMENT},
        {"{\"worker\": {\"x\": \"a:1\"}}", "\"x\" is not the index", MU_INVALID_ARGUMENT},
        {"{\"worker\": {\"-1\": \"a:1\"}}", "not the index", MU_INVALID_ARGUMENT},
        {"{\"worker\": {\"99999999999\": \"a:1\"}}", "not the index", MU_INVALID_ARGUMENT},
        {"{\"worker\": {\"1\": \"a:1\", \"1\": \"b:1\"}}", "duplicate", MU_INVALID_ARGUMENT},
        {"{\"worker\": {\"1\": \"a:1\", \"01\": \"b:1\"}}", "twice", MU_ALREADY_EXISTS},
        {"{\"\": []}", "0 bytes", MU_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        assert_null(mu_cluster_spec_parse(table[i].json));
        assert_taken(table[i].code, table[i].part);
    }
}

static bool parse_and_write(void *arg)
{
    mu_pool *pool = mu_pool_open();
    mu_cluster_spec *spec = pool != NULL ? mu_cluster_spec_parse(arg) : NULL;
    const bool good = spec != NULL && mu_cluster_spec_json(spec) != NULL;
    mu_pool_close(pool);
    return good;
}

static void test_without_memory(void **state)
{
    (void)state;
    with_failing_allocations(parse_and_write, "{\"worker\": [\"a:1\", \"b:1\"], \"ps\": {\"2\": \"c:1\"}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(test_lists_and_maps),    cluster_test(test_full_map_is_a_list),  cluster_test(test_add),
        cluster_test(test_what_is_not_there), cluster_test(test_json_that_cannot_be), cluster_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
