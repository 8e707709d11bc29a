// Partitioners: TensorFlow's formulas at their borders, refusals, and a partitioner of the program's own.
#include "../base/base_test.h"
#include "distribute_test.h"

#include <muster/sharding.h>

static int64_t count(mu_partitioner *partitioner, mu_dtype dtype, mu_shape shape, int axis)
{
    int64_t counts[MU_MAX_RANK] = {0};
    const int n = mu_partitioner_call(partitioner, &shape, dtype, axis, counts);
    if (n != shape.rank)
        fail_msg("%d counts: %s", n, mu_error_message());
    for (int i = 0; i < n; i++)
        if (i != axis)
            assert_int_equal(counts[i], 1);
    return counts[axis];
}
// The count at axis `at` of the shape [6, 2] along an axis that may be negative.
static int64_t count_at(mu_partitioner *partitioner, int axis, int at)
{
    int64_t counts[MU_MAX_RANK] = {0};
    const mu_shape shape = {2, {6, 2}};
    assert_int_equal(mu_partitioner_call(partitioner, &shape, MU_F32, axis, counts), 2);
    assert_int_equal(counts[1 - at], 1);
    return counts[at];
}
#define COUNT(partitioner, ...) count(partitioner, MU_F32, mu_shape_make(ROWS(__VA_ARGS__)), 0)
#define ROWS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

static void test_formulas(void **state)
{
    (void)state;
    assert_int_equal(COUNT(mu_fixed_shards_partitioner(4), 3), 3);
    assert_int_equal(COUNT(mu_fixed_shards_partitioner(4), 0, 7), 0);
    // 24 bytes: exactly at, above and below the least size.
    assert_int_equal(COUNT(mu_min_size_partitioner(.min_shard_bytes = 24, .max_shards = 9), 6, 1), 1);
    assert_int_equal(COUNT(mu_min_size_partitioner(.min_shard_bytes = 23, .max_shards = 9), 6, 1), 2);
    assert_int_equal(COUNT(mu_min_size_partitioner(.min_shard_bytes = 12, .max_shards = 9), 6, 1), 2);
    assert_int_equal(COUNT(mu_min_size_partitioner(), 1000000, 8), 1); // one shard unless more are allowed
    assert_int_equal(COUNT(mu_min_size_partitioner(.max_shards = 3), 1024, 1024), 3);
    assert_int_equal(COUNT(mu_max_size_partitioner(12), 10, 3), 10);
    assert_int_equal(COUNT(mu_max_size_partitioner(120), 10, 3), 1);
    assert_int_equal(COUNT(mu_max_size_partitioner(119), 10, 3), 2);
    assert_int_equal(COUNT(mu_max_size_partitioner(11, 4), 10, 3), 4);
    assert_int_equal(COUNT(mu_max_size_partitioner(11, 0), 10, 3), 10); // TensorFlow's rule: no limit
    assert_int_equal(count(mu_fixed_shards_partitioner(2), MU_F32, mu_shape_make(ROWS(1, 8)), 1), 2);
    assert_int_equal(count_at(mu_fixed_shards_partitioner(2), -1, 1), 2);
    assert_int_equal(count_at(mu_max_size_partitioner(8), -2, 0), 6);
    // Strings, and a size that 64 bits cannot count in bytes.
    assert_int_equal(count(mu_max_size_partitioner(32), (mu_dtype)7, mu_shape_make(ROWS(4)), 0), 2);
    assert_int_equal(count(mu_max_size_partitioner(32, .bytes_per_string = 32), (mu_dtype)7, mu_shape_make(ROWS(4)), 0),
                     4);
}

static void test_refusals(void **state)
{
    (void)state;
    int64_t counts[MU_MAX_RANK];
    const mu_shape shape = {1, {4}}, unknown = {1, {MU_UNKNOWN}}, scalar_shape = {0};
    assert_null(mu_fixed_shards_partitioner(0));
    assert_taken(MU_INVALID_ARGUMENT, ".num_shards is 0");
    assert_null(mu_min_size_partitioner(.min_shard_bytes = -1));
    assert_taken(MU_INVALID_ARGUMENT, ".min_shard_bytes is -1");
    assert_null(mu_min_size_partitioner(.max_shards = -1));
    assert_taken(MU_INVALID_ARGUMENT, ".max_shards");
    assert_null(mu_min_size_partitioner(.bytes_per_string = -5));
    assert_taken(MU_INVALID_ARGUMENT, ".bytes_per_string");
    assert_null(mu_max_size_partitioner(0));
    assert_taken(MU_INVALID_ARGUMENT, ".max_shard_bytes is 0");
    assert_null(mu_max_size_partitioner(1, -1));
    assert_taken(MU_INVALID_ARGUMENT, ".max_shards");
    // A 0 that is written is not the default.
    assert_null(mu_min_size_partitioner(.min_shard_bytes = 0));
    assert_taken(MU_INVALID_ARGUMENT, ".min_shard_bytes is 0");
    assert_null(mu_min_size_partitioner(0, 1));
    assert_taken(MU_INVALID_ARGUMENT, ".min_shard_bytes is 0");
    assert_null(mu_min_size_partitioner(16, .max_shards = 0));
    assert_taken(MU_INVALID_ARGUMENT, ".max_shards is 0");
    assert_null(mu_min_size_partitioner(16, 0));
    assert_taken(MU_INVALID_ARGUMENT, ".max_shards is 0");
    assert_null(mu_max_size_partitioner(16, .bytes_per_string = 0));
    assert_taken(MU_INVALID_ARGUMENT, ".bytes_per_string is 0");
    mu_partitioner *two = mu_fixed_shards_partitioner(2);
    assert_int_equal(mu_partitioner_call(two, &shape, MU_F32, 1, counts), -1);
    assert_taken(MU_INVALID_ARGUMENT, "axis 1");
    assert_int_equal(mu_partitioner_call(two, &scalar_shape, MU_F32, 0, counts), -1);
    assert_taken(MU_INVALID_ARGUMENT, "mu_partitioner_call");
    assert_int_equal(mu_partitioner_call(two, &shape, MU_F32, -2, counts), -1);
    assert_taken(MU_INVALID_ARGUMENT, "axis -2");
    assert_int_equal(mu_partitioner_call(two, &unknown, MU_F32, 0, counts), -1);
    assert_taken(MU_INVALID_ARGUMENT, "not fully known");
    assert_int_equal(mu_partitioner_call(two, &shape, (mu_dtype)99, 0, counts), -1);
    assert_taken(MU_INVALID_ARGUMENT, "99");
}

static int one_per_row(const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK], void *arg)
{
    *(mu_dtype *)arg = dtype;
    for (int i = 0; i < shape->rank; i++)
        counts[i] = i == 0 ? shape->dims[0] : 1;
    return shape->rank;
}

static int fails(const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK], void *arg)
{
    (void)shape, (void)dtype, (void)counts, (void)arg;
    mu_fail(MU_ABORTED, "no idea");
    return 0;
}

static void test_own_partitioner(void **state)
{
    (void)state;
    mu_dtype seen = MU_DTYPE_DEFAULT;
    mu_partitioner *own = mu_partitioner_new(one_per_row, &seen);
    assert_int_equal(count(own, MU_I64, mu_shape_make(ROWS(5, 2)), 0), 5);
    assert_int_equal(seen, MU_I64);
    mu_variable *v = mu_sharded_variable_new(numbers(2, (int64_t[]){3, 2}, 1), "v", .partitioner = own);
    assert_int_equal(mu_variable_shard_count(v), 3);
    assert_null(
        mu_sharded_variable_new(numbers(1, (int64_t[]){3}, 1), "w", .partitioner = mu_partitioner_new(fails, NULL)));
    assert_taken(MU_ABORTED, "no idea");
}

// TensorFlow's rule of least bytes returns [1] for no rows, which is a plain variable.
static void test_no_rows(void **state)
{
    (void)state;
    mu_variable *v =
        mu_sharded_variable_new(numbers(2, (int64_t[]){0, 3}, 1), "v", .partitioner = mu_min_size_partitioner(4, 4));
    assert_non_null(v);
    assert_int_equal(mu_variable_shard_count(v), 0);
    assert_int_equal(mu_tensor_elements(mu_variable_read(v)), 0);
    assert_null(
        mu_sharded_variable_new(numbers(1, (int64_t[]){0}, 1), "w", .partitioner = mu_fixed_shards_partitioner(2)));
    assert_taken(MU_INVALID_ARGUMENT, "returned [0]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(test_formulas),
        MODEL_TEST(test_refusals),
        MODEL_TEST(test_own_partitioner),
        MODEL_TEST(test_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
