// Accumulators on servers: every operation, outside of functions and in functions on a worker; more waiting takes than
// the server has threads; released accumulators are deleted on the server. All servers are in this process.
#include "distribute/strategies/parameter_server.h"
#include "accumulators_test.h"

#include <unistd.h>

static void test_each_operation(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(2, NULL);
    mu_accumulator *any = NULL, *sum = NULL, *sparse = NULL, *again = NULL;
    MU_SCOPE(strategy) {
        any = mu_conditional_accumulator(MU_F64, .name = "any");
        sum = mu_conditional_accumulator(MU_F64, .shape = &two, .reduction_type = "SUM", .shared_name = "sum");
        sparse = mu_sparse_conditional_accumulator(MU_F64);
        again = mu_conditional_accumulator(MU_F64, .shape = &two, .reduction_type = "SUM", .shared_name = "sum");
    }
    assert_true(any && sum == again && strcmp(mu_accumulator_name(sum), "sum") == 0);
    assert_ptr_equal(any->resource.home, strategy->servers->servers[0].client);
    assert_ptr_equal(sum->resource.home, strategy->servers->servers[1].client);
    assert_ptr_equal(sparse->resource.home, strategy->servers->servers[0].client);
    assert_int_equal(mu_accumulator_apply_grad(any, row(1, 2), 0), MU_OK);
    assert_int_equal(mu_accumulator_apply_grad(any, row(3, 4), 0), MU_OK);
    mu_accumulator_apply_grad(any, mu_constant(MU_F64, 1), 0);
    expect_error(MU_INVALID_ARGUMENT, "shape");
    assert_int_equal(counted(any), 2);
    mu_tensor *mean = mu_accumulator_take_grad(any, 1);
    assert_true(mean && mu_tensor_item(mean, 0) == 2 && mu_tensor_item(mean, 1) == 3);
    assert_int_equal(mu_accumulator_apply_grad(any, row(1, 2), 0), MU_OK); // stale: the take added one step
    assert_int_equal(counted(any), 0);
    mu_accumulator_set_global_step(any, 0);
    mu_accumulator_apply_grad(any, mu_constant(MU_F64, 7), 0);
    assert_true(mu_scalar(mu_accumulator_take_grad(any, 1)) == 7);
    mu_accumulator_apply_grad(sum, row(1, 2), 0);
    mu_accumulator_apply_grad(sum, row(3, 4), 0);
    mu_tensor *both = mu_resource_accumulator_take_gradient(sum, mu_constant(MU_I32, 2), MU_F64);
    assert_true(both && mu_tensor_item(both, 0) == 4 && mu_tensor_item(both, 1) == 6);
    assert_null(mu_accumulator_take_grad(sum, 0));
    expect_error(MU_INVALID_ARGUMENT, "num_required is 0");
    mu_tensor *indices = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){1, 4});
    mu_tensor *rows = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 1}, (double[]){5, 6});
    assert_int_equal(mu_sparse_accumulator_apply_grad(sparse, indices, rows, NULL, 0), MU_OK);
    mu_value *taken = mu_sparse_accumulator_take_grad(sparse, 1);
    assert_true(taken && mu_tensor_item_int(mu_at(taken, 0), 1) == 4 && mu_tensor_item(mu_at(taken, 1), 1) == 6 &&
                mu_tensor_item_int(mu_at(taken, 2), 0) == -1);
    assert_null(mu_error_message()[0] ? mu_error_message() : NULL);
    mu_pool_close(pool);
}

// ---- Waiting ------------------------------------------------------------------------------------

enum { WAITING = 80 }; // more than a server's threads, which are 64

static void test_takes_wait_without_blocking_the_server(void **state)
{
    (void)state;
    static taker takers[WAITING];
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(1, NULL);
    mu_accumulator *a = NULL;
    mu_variable *v = NULL;
    MU_SCOPE(strategy) {
        a = mu_conditional_accumulator(MU_F64);
        v = mu_variable_new(mu_constant(MU_F64, 3), "v");
    }
    take_in_thread(&takers[0], a, 1, 0.2);
    pthread_join(takers[0].thread, NULL);
    assert_int_equal(takers[0].status, MU_DEADLINE_EXCEEDED);
    take_in_thread(&takers[0], a, 1, 600);
    mu_cancellation_cancel(takers[0].cancellation);
    pthread_join(takers[0].thread, NULL);
    assert_int_equal(takers[0].status, MU_CANCELLED);
    for (int i = 0; i < WAITING; i++)
        take_in_thread(&takers[i], a, 1, 600);
    assert_true(mu_scalar(mu_variable_read(v)) == 3);
    for (int i = 0; i < WAITING; i++) // one that comes late finds several gradients, and others need more
        while (pthread_tryjoin_np(takers[i].thread, NULL) != 0) {
            assert_int_equal(mu_accumulator_apply_grad(a, mu_constant(MU_F64, 1), INT64_MAX), MU_OK);
            usleep(1000);
        }
    for (int i = 0; i < WAITING; i++)
        assert_true(takers[i].status == MU_OK && takers[i].got == 1);
    take_in_thread(&takers[0], a, 1, 600);
    assert_int_equal(mu_accumulator_close(a), MU_OK);
    pthread_join(takers[0].thread, NULL);
    assert_true(takers[0].status == MU_CANCELLED || takers[0].got == 1);
    mu_pool_close(pool);
}

// ---- In functions on a worker -------------------------------------------------------------------

static mu_value *apply_twice(mu_value *arguments, void *arg)
{
    mu_accumulator_apply_grad(arg, mu_at(arguments, 0), 0);
    mu_accumulator_apply_grad(arg, mu_multiply(mu_at(arguments, 0), mu_constant(MU_F64, 3)), 0);
    return mu_of(mu_accumulator_num_accumulated(arg));
}

static mu_value *take_four(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 4));
}

static void test_functions_on_a_worker(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(2, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_accumulator *a = NULL;
    MU_SCOPE(strategy)
        a = mu_conditional_accumulator(MU_F64, .shape = &two);
    mu_function *apply = mu_function_new(apply_twice, a), *take = mu_function_new(take_four, a);
    mu_value *batch = mu_list(row(1, 2), MU_END);
    assert_true(mu_scalar(mu_fetch(mu_schedule(c, apply, batch))) == 2);
    mu_value *waiting = mu_schedule(c, take);
    assert_non_null(waiting);
    mu_accumulator_apply_grad(a, row(1, 2), 0);
    mu_accumulator_apply_grad(a, row(3, 6), 0);
    mu_tensor *mean = mu_value_tensor(mu_fetch(waiting));
    assert_true(mean && mu_tensor_item(mean, 0) == 2 && mu_tensor_item(mean, 1) == 4);
    assert_int_equal(mu_join(c), MU_OK);
    mu_pool_close(pool);
}

// ---- Released -----------------------------------------------------------------------------------

static void test_what_is_released_is_deleted_on_its_server(void **state)
{
    (void)state;
    enum { BYTES = 8 * 1000 };
    mu_pool *pool = mu_pool_open();
    char text[200];
    mu_cluster *at = mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"ps\": [\"127.0.0.1:0\"]}"));
    mu_server *ps = mu_server_new(at, .max_bytes = 2 * BYTES), *worker = mu_server_create_local_server(true);
    snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\"]}", mu_server_target(worker) + 9,
             mu_server_target(ps) + 9);
    mu_strategy *strategy = mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)));
    mu_tensor *value = mu_zeros(MU_F64, 1, (int64_t[]){1000});
    for (int i = 0; i < 20; i++) {
        mu_pool *inner = mu_pool_open();
        MU_SCOPE(strategy) {
            assert_non_null(mu_variable_new(value, "large"));
            assert_non_null(mu_conditional_accumulator(MU_F64));
        }
        mu_pool_close(inner);
    }
    assert_int_equal(mu_error_code(), MU_OK);
    mu_pool_close(pool);
}

// Gradients count towards the bytes that a server may keep, until they are taken.
static void test_gradients_count_in_the_budget(void **state)
{
    (void)state;
    enum { ROWS = 1000, BYTES = 8 * ROWS };
    mu_pool *pool = mu_pool_open();
    char text[200];
    mu_accumulator *a = NULL, *b = NULL;
    mu_cluster *at = mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"ps\": [\"127.0.0.1:0\"]}"));
    mu_server *ps = mu_server_new(at, .max_bytes = 2 * BYTES + 100), *worker = mu_server_create_local_server(true);
    snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\"]}", mu_server_target(worker) + 9,
             mu_server_target(ps) + 9);
    mu_strategy *strategy = mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)));
    mu_tensor *gradient = mu_zeros(MU_F64, 1, (int64_t[]){ROWS});
    MU_SCOPE(strategy) {
        mu_variable_new(gradient, "large");
        a = mu_conditional_accumulator(MU_F64, .name = "first");
        b = mu_conditional_accumulator(MU_F64, .name = "second");
    }
    for (int i = 0; i < 3; i++) { // adding to a sum needs no more room
        assert_int_equal(mu_accumulator_apply_grad(a, gradient, 0), MU_OK);
        assert_int_equal(mu_accumulator_apply_grad(a, gradient, 0), MU_OK);
        mu_accumulator_apply_grad(b, gradient, 0);
        expect_error(MU_RESOURCE_EXHAUSTED, "keeps 16000 of at most 16100 bytes, the largest");
        assert_int_equal(mu_accumulator_set_global_step(a, 0), MU_OK);
        assert_non_null(mu_accumulator_take_grad(a, 2));
        assert_int_equal(mu_accumulator_set_global_step(a, 0), MU_OK);
        assert_int_equal(mu_accumulator_apply_grad(b, gradient, 0), MU_OK);
        mu_accumulator_apply_grad(a, gradient, 0);
        expect_error(MU_RESOURCE_EXHAUSTED, "has no room for a gradient of 8000 bytes");
        assert_non_null(mu_accumulator_take_grad(b, 1));
        assert_int_equal(mu_accumulator_set_global_step(b, 0), MU_OK);
    }
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_operation),
        cmocka_unit_test(test_takes_wait_without_blocking_the_server),
        cmocka_unit_test(test_functions_on_a_worker),
        cmocka_unit_test(test_what_is_released_is_deleted_on_its_server),
        cmocka_unit_test(test_gradients_count_in_the_budget),
    };
    return cmocka_run_group_tests_name("coordinator/served_accumulators", tests, start_with_key, end_library);
}
