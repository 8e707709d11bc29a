// Datasets made by callbacks, and the cache: orders, ends, failures, what is shared between iterations.
#include "data_test.h"

static mu_dataset *range(int64_t n) { return mu_dataset_range(0, n, 1); }

// 3 -> 30 30 30
static mu_dataset *tens(mu_value *element, void *arg)
{
    (void)arg;
    double n = mu_scalar(element);
    return mu_dataset_repeat(mu_dataset_from_tensors(mu_of(mu_constant(MU_I64, 10 * n))), (int64_t)n);
}

static mu_dataset *sixes(mu_value *element, void *arg)
{
    (void)arg;
    return mu_dataset_repeat(mu_dataset_from_tensors(element), 6);
}

static mu_dataset *nothing(mu_value *element, void *arg)
{
    (void)arg;
    return mu_scalar(element) == 2 ? NULL : range(1);
}

static void test_flat_map(void **state)
{
    (void)state;
    assert_elements(mu_dataset_flat_map(range(4), tens, NULL), "10 20 20 30 30 30");
    assert_elements(mu_dataset_batch(mu_dataset_flat_map(range(4), tens, NULL), 4), "[10 20 20 30] [30 30]");
    assert_elements(mu_dataset_skip(mu_dataset_flat_map(range(4), tens, NULL), 4), "30 30");
    assert_elements(mu_dataset_flat_map(range(5), nothing, NULL), "0 0");
    expect_error(MU_INVALID_ARGUMENT, "function of flat_map returned NULL");
}

static void test_interleave(void **state)
{
    (void)state;
    mu_dataset *four = mu_dataset_range(1, 5, 1);
    assert_elements(mu_dataset_interleave(four, tens, NULL, .cycle_length = 2), "10 20 20 30 30 40 30 40 40 40");
    assert_elements(mu_dataset_interleave(mu_dataset_range(1, 6, 1), sixes, NULL, .cycle_length = 2, .block_length = 4),
                    "1 1 1 1 2 2 2 2 1 1 2 2 3 3 3 3 4 4 4 4 3 3 4 4 5 5 5 5 5 5");
    assert_elements(mu_dataset_interleave(four, tens, NULL, .cycle_length = 1), "10 20 20 30 30 30 40 40 40 40");
    assert_elements(mu_dataset_interleave(range(2), tens, NULL, .cycle_length = 9), "10");
    assert_null(mu_dataset_interleave(four, tens, NULL, .cycle_length = -1));
    expect_error(MU_INVALID_ARGUMENT, "cycle_length -1");
}

static int calls;

static mu_value *counted(mu_value *element, void *arg)
{
    (void)arg;
    calls++;
    return element;
}

static void test_cache(void **state)
{
    (void)state;
    mu_dataset *cached = mu_dataset_cache(mu_dataset_map(range(3), counted, NULL));
    calls = 0;
    MU_EACH(element, cached)
        if (mu_scalar(element) == 1)
            break;
    assert_int_equal(calls, 2);
    assert_elements(cached, "0 1 2");
    assert_int_equal(calls, 5);
    assert_elements(mu_dataset_repeat(cached, 2), "0 1 2 0 1 2");
    assert_elements(mu_dataset_batch(mu_dataset_skip(cached, 1), 5), "[1 2]");
    assert_int_equal(calls, 5);
}

// A clone with another input must not see the elements of the first.
static void test_cache_clone(void **state)
{
    (void)state;
    mu_dataset *cached = mu_dataset_cache(range(3)), *other = range(2);
    assert_elements(cached, "0 1 2");
    mu_dataset *clone = mu__dataset_clone(cached, &other);
    assert_elements(clone, "0 1");
    mu_release(clone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_flat_map), DATA_TEST(test_interleave), DATA_TEST(test_cache), DATA_TEST(test_cache_clone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
