// Tests of tensors: made, wrapped, read, refused, and freed when the last user is gone.
#include "tensor_test.h"

static int released;
static void count_release(void *arg) { released += *(int *)arg; }

static void test_copies_and_reads(void **state)
{
    (void)state;
    int64_t dims[] = {2, 3};
    float data[] = {1, 2, 3, 4, 5, 6}, out[6];
    mu_pool *pool = mu_pool_open();
    mu_tensor *t = mu_tensor_new(MU_F32, 2, dims, data);
    data[0] = 100;
    assert_float_equal(((const float *)mu_tensor_data(t))[0], 1, 0);
    assert_int_equal(mu_tensor_dim(t, -1), 3);
    assert_int_equal(mu_tensor_elements(t), 6);
    assert_int_equal(mu_tensor_copy_to(t, out, sizeof out), MU_OK);
    assert_float_equal(out[5], 6, 0);
    assert_int_equal(mu_tensor_copy_to(t, out, 4), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "the buffer has 4 bytes");
    assert_true(isnan(mu_scalar(t)));
    assert_taken(MU_INVALID_ARGUMENT, "[2, 3]");
    assert_true(mu_scalar(mu_constant(MU_I64, 7)) == 7);
    mu_pool_close(pool);
}

static void test_wrapped_memory_is_released_once(void **state)
{
    (void)state;
    int one = 1;
    int64_t n = 3;
    float data[] = {1, 2, 3};
    released = 0;
    mu_pool *pool = mu_pool_open();
    mu_tensor *t = mu_tensor_wrap(MU_F32, 1, &n, data, count_release, &one);
    assert_ptr_equal(mu_tensor_data(t), data);
    assert_non_null(mu_tensor_data(mu_tensor_wrap(MU_F32, 1, &(int64_t){0}, NULL, NULL, NULL))); // no elements
    mu_shape two = MU_SHAPE(2);
    mu_tensor *view = mu__tensor_view(t->buffer, sizeof(float), MU_F32, &two);
    mu_pool_close(pool);
    assert_int_equal(released, 0);
    assert_float_equal(((const float *)mu_tensor_data(view))[1], 3, 0);
    mu_release(view);
    assert_int_equal(released, 1);
}

static void test_refusals(void **state)
{
    (void)state;
    int64_t open[] = {2, -1};
    assert_null(mu_tensor_new((mu_dtype)77, 0, NULL, NULL));
    assert_taken(MU_INVALID_ARGUMENT, "77 is not an element type");
    assert_null(mu_tensor_new(MU_F32, 9, open, NULL));
    assert_taken(MU_INVALID_ARGUMENT, "rank 9");
    assert_null(mu_tensor_new(MU_F32, 2, open, NULL));
    assert_taken(MU_INVALID_ARGUMENT, "[2, ?]");
    assert_null(mu_tensor_wrap(MU_F32, 1, &(int64_t){2}, NULL, NULL, NULL));
    assert_taken(MU_INVALID_ARGUMENT, "data is NULL");
    assert_null(mu_tensor_data(NULL));
    assert_taken(MU_INVALID_ARGUMENT, "the tensor is NULL");
    assert_true(isnan(mu_scalar(NULL)));
    assert_taken(MU_INVALID_ARGUMENT, "the argument is NULL");
    assert_int_equal(mu_tensor_dim(NULL, 0), -1);
    mu_fail(MU_ABORTED, "pending");
    assert_null(mu_constant(MU_F32, 1));
    assert_taken(MU_ABORTED, "pending");
}

static void test_no_allocation_failure_leaks(void **state)
{
    (void)state;
    int64_t n = 3;
    for (long at = 1; at < 20; at++) {
        mu_pool *pool = mu_pool_open();
        long before = mu__live_objects(NULL);
        mu__alloc_fail_at(at);
        mu_tensor *t = mu_tensor_new(MU_F32, 1, &n, NULL);
        mu__alloc_fail_at(0);
        if (!t)
            assert_taken(MU_RESOURCE_EXHAUSTED, "");
        mu_pool_close(pool);
        assert_true(mu__live_objects(NULL) <= before);
    }
}

// Memory that could not be wrapped remains the caller's.
static void test_failed_wraps_release_nothing(void **state)
{
    (void)state;
    float data[3] = {0};
    bool whole = false;
    for (long at = 1; at < 20 && !whole; at++) {
        int one = 1;
        released = 0;
        mu_pool *pool = mu_pool_open();
        mu__alloc_fail_at(at);
        mu_tensor *t = mu_tensor_wrap(MU_F32, 1, &(int64_t){3}, data, count_release, &one);
        mu__alloc_fail_at(0);
        if (!t)
            assert_taken(MU_RESOURCE_EXHAUSTED, "");
        whole = t != NULL;
        mu_pool_close(pool);
        assert_int_equal(released, whole ? 1 : 0);
    }
    assert_true(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_and_reads),
        cmocka_unit_test(test_wrapped_memory_is_released_once),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_allocation_failure_leaks),
        cmocka_unit_test(test_failed_wraps_release_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
