// Tests of applying an op: what it refuses and how it says so, shared buffers, sticky errors, no leaks.
#include "op_check.h"

static void test_errors_name_op_argument_and_shapes(void **state)
{
    (void)state;
    assert_null(mu_add(VECTOR(1, 2), NULL));
    assert_taken(MU_INVALID_ARGUMENT, "add: input 1 of 2 is NULL");
    assert_null(mu_add((mu_tensor *)(void *)mu_of(mu_constant(MU_F32, 1)), mu_constant(MU_F32, 1)));
    assert_taken(MU_INVALID_ARGUMENT, "add: input 0 is of the kind value; expected a tensor");
    assert_null(mu_add(VECTOR(1, 2), VECTOR(1, 2, 3)));
    assert_taken(MU_INVALID_ARGUMENT, "add: shapes [2] and [3]");
    assert_null(mu_multiply(VECTOR(1, 2), VECTOR_OF(MU_I32, 1, 2)));
    assert_taken(MU_INVALID_ARGUMENT, "types float32 and int32");
    assert_null(mu_exp(VECTOR_OF(MU_I32, 1)));
    assert_taken(MU_INVALID_ARGUMENT, "exp: the input has type int32");
    assert_null(mu_reduce_sum(VECTOR(1, 2), 3));
    assert_taken(MU_INVALID_ARGUMENT, "axis 3");
}

static void test_a_pending_error_stops_everything(void **state)
{
    (void)state;
    mu_tensor *x = VECTOR(1, 2);
    assert_null(mu_reduce_sum(mu_exp(mu_add(x, VECTOR(1, 2, 3))), 0));
    assert_taken(MU_INVALID_ARGUMENT, "add: shapes");
    mu_fail(MU_ABORTED, "first");
    assert_null(mu_add(x, x));
    assert_null(mu_squeeze(x, 5));
    assert_null(mu_slice(x, DIMS(0), DIMS(9)));
    assert_taken(MU_ABORTED, "first");
}

static void test_views_share_the_buffer(void **state)
{
    (void)state;
    mu_tensor *x = mu_zeros(MU_F32, 2, DIMS(2, 3));
    assert_ptr_equal(mu_tensor_data(mu_reshape(x, 1, DIMS(-1))), mu_tensor_data(x));
    assert_ptr_equal(mu_tensor_data(mu_expand_dims(x, -1)), mu_tensor_data(x));
    assert_ptr_equal(mu_tensor_data(mu_stop_gradient(x)), mu_tensor_data(x));
    assert_null(mu_reshape(x, 2, DIMS(-1, -1)));
    assert_taken(MU_INVALID_ARGUMENT, "both -1");
    assert_null(mu_reshape(x, 2, DIMS(4, -1)));
    assert_taken(MU_INVALID_ARGUMENT, "[2, 3] cannot become [4, ?]");
}

static void test_many_inputs_need_more_room(void **state)
{
    (void)state;
    enum { N = 40 };
    mu_tensor *parts[N];
    for (int i = 0; i < N; i++)
        parts[i] = mu_constant(MU_F32, i);
    mu_tensor *all = mu_stack(N, parts, 0);
    assert_int_equal(mu_tensor_elements(all), N);
    assert_true(mu_scalar(mu_reduce_sum(all, 0)) == N * (N - 1) / 2);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    mu_tensor *x = mu_reshape(mu_range(MU_F32, 0, 24, 1), 3, DIMS(2, 3, 4));
    for (long at = 1; at < 40; at++) {
        mu_pool *pool = mu_pool_open();
        long before = mu__live_objects(NULL);
        mu__alloc_fail_at(at);
        mu_tensor *y = mu_reduce_sum(mu_pad(mu_exp(x), DIMS(0, 1, 0), DIMS(1, 0, 0), NULL, 1),
                                     .axes = (const int[]){0, 2}, .n_axes = 2);
        mu__alloc_fail_at(0);
        if (!y)
            assert_taken(MU_RESOURCE_EXHAUSTED, "");
        mu_pool_close(pool);
        assert_true(mu__live_objects(NULL) <= before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_name_op_argument_and_shapes),
        cmocka_unit_test(test_a_pending_error_stops_everything),
        cmocka_unit_test(test_views_share_the_buffer),
        cmocka_unit_test(test_many_inputs_need_more_room),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    mu_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
