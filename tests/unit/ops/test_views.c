// Tests of results that share their operand's memory: which ops do, what they hold, how long the memory lives.
#include "op_check.h"

#include <muster/dlpack.h>

static int released;
static void count_release(void *arg) { ++*(int *)arg; }

static double at(const mu_tensor *x, int64_t i) { return mu__read_element(x->dtype, mu__host_read(x), i); }

// x[i] is i, or true.
static mu_tensor *counted(mu_dtype dtype, int rank, const int64_t *dims)
{
    mu_tensor *x = mu_tensor_new(dtype, rank, dims, NULL);
    for (int64_t i = 0; x && i < mu_tensor_elements(x); i++)
        mu__write_element(dtype, mu__host_write(x), i, (double)i);
    return x;
}

// Returns whether y is x's memory from element `from` on; if not, it must have equal elements.
static bool shares(const mu_tensor *x, const mu_tensor *y, int64_t from)
{
    if (!y)
        fail_msg("%s", mu_error_message());
    for (int64_t i = 0; i < mu_tensor_elements(y); i++)
        assert_true(at(y, i) == at(x, from + i));
    return (const char *)mu__host_read(y) == (const char *)mu__host_read(x) + (size_t)from * mu_dtype_bytes(x->dtype);
}

static void test_what_lies_in_one_piece_is_shared(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F64, MU_F32, MU_BF16, MU_I8, MU_BOOL};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++) {
        mu_tensor *x = counted(dtypes[d], 3, DIMS(3, 5, 2)), *parts[5] = {NULL};
        assert_true(shares(x, mu_slice(x, DIMS(1, 0, 0), DIMS(2, -1, -1)), 10));
        assert_true(shares(x, mu_slice(x, DIMS(2, 1, 0), DIMS(1, 3, 2)), 22));
        assert_true(shares(x, mu_slice(x, DIMS(0, 4, 1), DIMS(1, 1, 1)), 9));
        assert_true(shares(x, mu_slice(x, DIMS(0, 0, 0), DIMS(-1, -1, -1)), 0));
        assert_true(shares(x, mu_strided_slice(x, DIMS(-1, 0, 0), DIMS(0, 0, 0), NULL, 6, 6, 1), 20));
        assert_true(shares(x, mu_strided_slice(x, DIMS(1, -2, 0), DIMS(0, 0, 0), NULL, 4, 4, 3), 16));
        assert_true(shares(x, mu_strided_slice(x, DIMS(1, 4, 0), DIMS(2, 3, 9), DIMS(7, -1, 1), 0, 0, 0), 18));
        assert_int_equal(mu_split(x, 3, 0, parts), MU_OK);
        assert_true(shares(x, parts[0], 0) && shares(x, parts[1], 10) && shares(x, parts[2], 20));
        assert_int_equal(mu_unstack(x, 3, 0, parts), MU_OK);
        assert_true(shares(x, parts[2], 20) && parts[2]->shape.rank == 2);
        assert_true(shares(x, mu_slice(parts[2], DIMS(1, 0), DIMS(2, 2)), 22)); // a view of a view of a view
        assert_int_equal(mu_split_sizes(x, 2, DIMS(1, -1), 0, parts), MU_OK);
        assert_true(shares(x, parts[1], 10));
    }
}

static void test_the_rest_is_copied(void **state)
{
    (void)state;
    mu_tensor *x = counted(MU_F32, 3, DIMS(3, 5, 2)), *columns = mu_slice(x, DIMS(0, 0, 1), DIMS(1, 5, 1));
    EXPECT(columns, 1, 3, 5, 7, 9);
    EXPECT(mu_slice(x, DIMS(1, 3, 0), DIMS(2, 2, 1)), 16, 18, 26, 28);
    EXPECT(mu_strided_slice(x, DIMS(0, 1, 0), DIMS(1, 3, 2), DIMS(1, 1, -1), 4, 4, 0), 3, 2, 5, 4);
    EXPECT(mu_strided_slice(x, DIMS(2, 0, 0), DIMS(0, 1, 1), DIMS(-1, 1, 1), 0, 0, 0), 20, 10);
    assert_int_equal(mu_tensor_elements(mu_slice(x, DIMS(3, 0, 0), DIMS(0, 5, 2))), 0);
    // A small part would keep the whole large tensor alive.
    mu_tensor *large = counted(MU_F32, 2, DIMS(600, 128));
    assert_false(shares(large, mu_slice(large, DIMS(599, 0), DIMS(1, 128)), 599 * 128));
    assert_true(shares(large, mu_slice(large, DIMS(598, 0), DIMS(2, 128)), 598 * 128));
}

static void test_the_memory_lives_as_long_as_its_last_view(void **state)
{
    (void)state;
    enum { N = 12 };
    float memory[N] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    released = 0;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = mu_tensor_wrap(MU_F32, 2, DIMS(4, 3), memory, count_release, &released);
    mu_tensor *rows = mu_retain(mu_slice(x, DIMS(1, 0), DIMS(2, 3)));
    mu_pool_close(pool);
    assert_int_equal(released, 0);
    EXPECT(rows, 3, 4, 5, 6, 7, 8);
    pool = mu_pool_open();
    mu_tensor *parts[2] = {NULL};
    assert_int_equal(mu_unstack(rows, 2, 0, parts), MU_OK);
    mu_tensor *last = mu_retain(parts[1]);
    mu_pool_close(pool);
    mu_release(rows);
    assert_int_equal(released, 0);
    assert_ptr_equal(mu_tensor_data(last), memory + 6);
    mu_release(last);
    assert_int_equal(released, 1);
}

static void test_memory_of_the_library_outlives_its_first_owner(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = counted(MU_I32, 2, DIMS(300, 40)), *part = mu_retain(mu_slice(x, DIMS(200, 0), DIMS(50, 40)));
    mu_pool_close(pool);
    for (int i = 0; i < 8; i++) // takes the memory again if it has been given back
        mu_fill(MU_I32, 2, DIMS(300, 40), -1);
    for (int64_t i = 0; i < 50 * 40; i++)
        assert_true(at(part, i) == (double)(200 * 40 + i));
    mu_release(part);
}

static void test_views_are_lent_and_results_are_their_own(void **state)
{
    (void)state;
    float memory[6] = {0, 1, 2, 3, 4, 5};
    released = 0;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = mu_tensor_wrap(MU_F32, 2, DIMS(3, 2), memory, count_release, &released);
    mu_tensor *row = mu_strided_slice(x, DIMS(1, 0), DIMS(0, 2), NULL, 0, 0, 1);
    mu_tensor *back = mu_retain(mu_from_dlpack(mu_to_dlpack(row, true), true));
    EXPECT(mu_multiply(row, row), 4, 9);
    EXPECT(mu_add(row, mu_constant(MU_F32, 1)), 3, 4);
    EXPECT(x, 0, 1, 2, 3, 4, 5);
    mu_pool_close(pool);
    assert_int_equal(released, 0);
    assert_ptr_equal(mu_tensor_data(back), memory + 2);
    mu_release(back);
    assert_int_equal(released, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_lies_in_one_piece_is_shared),
        cmocka_unit_test(test_the_rest_is_copied),
        cmocka_unit_test(test_the_memory_lives_as_long_as_its_last_view),
        cmocka_unit_test(test_memory_of_the_library_outlives_its_first_owner),
        cmocka_unit_test(test_views_are_lent_and_results_are_their_own),
    };
    mu_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
