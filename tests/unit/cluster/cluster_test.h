// What the tests of the cluster layer share: an empty environment and a pool for each test, and clusters in a line.
#ifndef MU_TESTS_CLUSTER_TEST_H
#define MU_TESTS_CLUSTER_TEST_H

#include "../base/base_test.h"
#include "cluster/cluster.h"

static inline int cluster_setup(void **state)
{
    clearenv();
    assert_int_equal(mu_init(.log = "error"), MU_OK);
    *state = mu_pool_open();
    return 0;
}

// Nothing may be left behind.
static inline int cluster_teardown(void **state)
{
    mu_pool_close(*state);
    assert_no_error();
    mu_exit(true);
    assert_int_equal(mu__live_objects(NULL), 0);
    return 0;
}

#define cluster_test(test) cmocka_unit_test_setup_teardown(test, cluster_setup, cluster_teardown)

// Sets variables from "NAME=value", the last one NULL.
static inline void set_environment(const char *const *variables)
{
    clearenv();
    for (; *variables != NULL; variables++) {
        const char *equals = strchr(*variables, '=');
        char name[64] = "";
        assert_true((size_t)(equals - *variables) < sizeof name);
        memcpy(name, *variables, (size_t)(equals - *variables));
        assert_int_equal(setenv(name, equals + 1, 1), 0);
    }
}
#define ENVIRONMENT(...) set_environment((const char *const[]){__VA_ARGS__, NULL})

// A cluster of JSON, for task `type` `id` (type NULL: none).
static inline mu_cluster *cluster_of(const char *json, const char *type, int id)
{
    return mu_simple_cluster_resolver(mu_cluster_spec_parse(json), .task_type = type, .task_id = id);
}

#endif
