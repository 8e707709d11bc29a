// Stages that select and order elements: exact results for small cases, the orders of shuffles, cardinalities.
#include "data_test.h"

static mu_dataset *range(int64_t n) { return mu_dataset_range(0, n, 1); }

static mu_dataset *rows(int n)
{
    int32_t values[64];
    for (int i = 0; i < n; i++)
        values[i] = i;
    return mu_dataset_from_tensor_slices(mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){n}, values)));
}

static void test_take_skip(void **state)
{
    (void)state;
    assert_elements(mu_dataset_take(range(5), 2), "0 1");
    assert_elements(mu_dataset_take(range(5), -1), "0 1 2 3 4");
    assert_elements(mu_dataset_take(range(5), 0), "");
    assert_elements(mu_dataset_skip(range(5), 3), "3 4");
    assert_elements(mu_dataset_skip(range(5), 9), "");
    assert_elements(mu_dataset_skip(range(5), -1), "");
    assert_elements(mu_dataset_take(mu_dataset_skip(range(9), 2), 3), "2 3 4");
}

static void test_repeat(void **state)
{
    (void)state;
    assert_elements(mu_dataset_repeat(range(2), 3), "0 1 0 1 0 1");
    assert_elements(mu_dataset_repeat(range(2), 0), "");
    assert_elements(mu_dataset_take(mu_dataset_repeat(range(2), MU_INFINITE), 5), "0 1 0 1 0");
    assert_elements(mu_dataset_repeat(range(0), MU_INFINITE), "");
    assert_elements(mu_dataset_skip(mu_dataset_repeat(range(3), 2), 4), "1 2");
}

static void test_shard(void **state)
{
    (void)state;
    assert_elements(mu_dataset_shard(range(7), 3, 0), "0 3 6");
    assert_elements(mu_dataset_shard(range(7), 3, 2), "2 5");
    assert_elements(mu_dataset_shard(range(2), 5, 3), "");
    assert_null(mu_dataset_shard(range(7), 3, 3));
    expect_error(MU_INVALID_ARGUMENT, "shard 3 of 3");
}

// Case ps-124: a shard that auto-sharding inserts requires that every worker gets a share.
static void test_share(void **state)
{
    (void)state;
    assert_elements(mu__dataset_share(range(7), 3, 1), "1 4");
    assert_elements(mu__dataset_share(range(6), 3, 2), "2 5");
    elements(mu__dataset_share(range(5), 10, 0));
    expect_error(MU_INVALID_ARGUMENT, "only 5 elements (or files), which is not enough for 10 workers");
    assert_elements(mu__dataset_share(range(0), 10, 0), "");
    assert_elements(mu__dataset_share(range(10), 500, 499), "");
}

static void test_hint(void **state)
{
    (void)state;
    elements(mu_dataset_shard(range(5), MU_SHARD_HINT, MU_SHARD_HINT));
    expect_error(MU_FAILED_PRECONDITION, "shard hint");
}

static void test_options(void **state)
{
    (void)state;
    mu_dataset *plain = range(3), *files = mu_dataset_options(plain, .auto_shard_policy = MU_AUTO_SHARD_FILE);
    assert_int_equal(mu__dataset_auto_shard(plain), MU_AUTO_SHARD_AUTO);
    assert_int_equal(mu__dataset_auto_shard(mu_dataset_batch(files, 2)), MU_AUTO_SHARD_FILE);
    assert_int_equal(mu__dataset_auto_shard(mu_dataset_options(files, .auto_shard_policy = MU_AUTO_SHARD_OFF)),
                     MU_AUTO_SHARD_OFF);
    assert_elements(mu_dataset_batch(files, 2), "[0 1] [2]");
    assert_null(mu_dataset_options(plain, .auto_shard_policy = (mu_auto_shard_policy)7));
    expect_error(MU_INVALID_ARGUMENT, "auto-shard policy is 7");
}

static void test_concatenate(void **state)
{
    (void)state;
    mu_dataset *both = mu_dataset_concatenate(range(2), mu_dataset_range(5, 8, 1));
    assert_elements(both, "0 1 5 6 7");
    assert_elements(mu_dataset_skip(both, 3), "6 7");
    assert_elements(mu_dataset_batch(mu_dataset_concatenate(rows(3), rows(2)), 4), "[0 1 2 0] [1]");
}

static void test_cardinality(void **state)
{
    (void)state;
    mu_dataset *endless = mu_dataset_repeat(range(2), MU_INFINITE);
    assert_int_equal(mu_dataset_cardinality(endless), MU_INFINITE);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_take(endless, 5)), 5);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_batch(range(7), 3)), 3);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_batch(range(7), 3, .drop_remainder = true)), 2);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_shard(range(7), 3, 1)), 2);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_skip(range(7), 9)), 0);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_zip(endless, range(4), MU_END)), 4);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_concatenate(range(4), endless)), MU_INFINITE);
}

// The order is part of the contract: the same seed gives it on every machine.
static void test_shuffle_order(void **state)
{
    (void)state;
    mu_dataset *dataset = mu_dataset_shuffle(range(8), 8, .seed = 1);
    assert_elements(dataset, "2 6 0 3 5 7 1 4");
    assert_elements(dataset, "3 0 6 2 1 4 5 7");
    assert_elements(mu_dataset_shuffle(rows(8), 8, .seed = 1), "2 6 0 3 5 7 1 4");
    mu_dataset *fixed = mu_dataset_shuffle(range(8), 8, .seed = 1, .no_reshuffle_each_iteration = true);
    char first[TEXT_BYTES];
    strcpy(first, elements(fixed));
    assert_elements(fixed, first);
}

static void test_shuffle_slides(void **state)
{
    (void)state;
    assert_elements(mu_dataset_shuffle(range(5), 1, .seed = 3), "0 1 2 3 4");
    mu_iterator *iterator = mu_iterate(mu_dataset_shuffle(range(1000), 10, .seed = 3));
    bool seen[1000] = {false};
    for (int i = 0; i < 1000; i++) {
        int number = (int)mu_scalar(mu_next(iterator));
        assert_in_range(number, 0, MU_MIN(i + 9, 999));
        assert_false(seen[number]);
        seen[number] = true;
    }
    assert_null(mu_next(iterator));
}

// Every place is equally likely for every element: chi-square over 8 x 8 cells, 49 degrees of freedom.
static void test_shuffle_uniform(void **state)
{
    (void)state;
    enum { N = 8, TRIALS = 4000 };
    int counts[N][N] = {{0}};
    mu_iterator *iterator = mu_iterate(mu_dataset_repeat(mu_dataset_shuffle(rows(N), N, .seed = 7), TRIALS));
    for (int i = 0; i < N * TRIALS; i++)
        counts[i % N][(int)mu_scalar(mu_next(iterator))]++;
    double chi = 0, expected = (double)TRIALS / N;
    for (int i = 0; i < N * N; i++)
        chi += (counts[i / N][i % N] - expected) * (counts[i / N][i % N] - expected) / expected;
    assert_true(chi < 95); // 1 in 10,000
}

static void test_shuffle_seeds(void **state)
{
    (void)state;
    mu_set_seed(5);
    char first[TEXT_BYTES], second[TEXT_BYTES];
    strcpy(first, elements(mu_dataset_shuffle(range(20), 20)));
    strcpy(second, elements(mu_dataset_shuffle(range(20), 20)));
    assert_string_not_equal(first, second);
    mu_set_seed(5);
    assert_elements(mu_dataset_shuffle(range(20), 20), first);
    assert_null(mu_dataset_shuffle(range(20), 0));
    expect_error(MU_INVALID_ARGUMENT, "buffer of a shuffle is 0");
}

static void test_no_dataset(void **state)
{
    (void)state;
    assert_null(mu_dataset_take(NULL, 3));
    expect_error(MU_INVALID_ARGUMENT, "dataset to take is NULL");
    assert_null(mu_dataset_batch(mu_dataset_shard(range(2), 0, 0), 2));
    expect_error(MU_INVALID_ARGUMENT, "shard 0 of 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_take_skip),      DATA_TEST(test_repeat),          DATA_TEST(test_shard),
        DATA_TEST(test_concatenate),    DATA_TEST(test_cardinality),     DATA_TEST(test_shuffle_order),
        DATA_TEST(test_shuffle_slides), DATA_TEST(test_shuffle_uniform), DATA_TEST(test_shuffle_seeds),
        DATA_TEST(test_no_dataset),     DATA_TEST(test_share),           DATA_TEST(test_hint),
        DATA_TEST(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
