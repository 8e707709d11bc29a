// Datasets made by callbacks, and the cache: orders, ends, failures, what is shared between iterations.
#include "data_test.h"

#include <unistd.h>

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

static mu_value *fails_once(mu_value *element, void *arg)
{
    if (mu_scalar(element) == 1 && *(int *)arg == 0)
        mu_fail(MU_ABORTED, "once");
    *(int *)arg += mu_scalar(element) == 1;
    return element;
}

// An iteration in which an element failed does not fill the cache.
static void test_cache_incomplete(void **state)
{
    (void)state;
    static const char path[] = "test_nested.incomplete";
    for (int in_file = 0; in_file < 2; in_file++) {
        int ones = 0;
        mu_dataset *cached = mu_dataset_cache(mu_dataset_map(range(3), fails_once, &ones), in_file ? path : NULL);
        mu_iterator *iterator = mu_iterate(cached);
        char text[TEXT_BYTES] = "";
        append_elements(iterator, 9, text);
        expect_error(MU_ABORTED, "once");
        append_elements(iterator, 9, text);
        assert_string_equal(text, "0 2");
        ones = 1;
        assert_elements(cached, "0 1 2");
        assert_elements(cached, "0 1 2");
        assert_int_equal(ones, 2);
    }
    unlink(path);
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

static mu_value *as_map(mu_value *element, void *arg)
{
    (void)arg;
    calls++;
    float x[2] = {(float)mu_scalar(element), 0.5f};
    return mu_map("x", mu_tensor_new(MU_F32, 1, (int64_t[]){2}, x), "more", mu_list(element, MU_END), MU_END);
}

static void test_cache_file(void **state)
{
    (void)state;
    static const char path[] = "test_nested.cache";
    unlink(path);
    mu_dataset *cached = mu_dataset_cache(mu_dataset_map(range(3), as_map, NULL), path);
    MU_EACH(element, cached)
        break;
    assert_int_not_equal(access(path, F_OK), 0);
    calls = 0;
    assert_elements(cached, "([0 0.5],(0)) ([1 0.5],(1)) ([2 0.5],(2))");
    assert_elements(mu_dataset_repeat(cached, 2),
                    "([0 0.5],(0)) ([1 0.5],(1)) ([2 0.5],(2)) ([0 0.5],(0)) ([1 0.5],(1)) ([2 0.5],(2))");
    assert_int_equal(calls, 3);
    MU_EACH(element, cached)
        assert_non_null(mu_value_get(element, "more"));
    assert_int_equal(truncate(path, 700), 0);
    elements(cached);
    expect_error(MU_DATA_LOSS, path);
    unlink(path);
    assert_elements(mu_dataset_cache(range(0), path), "");
    assert_elements(mu_dataset_cache(range(2), path), ""); // the file counts
    unlink(path);
    elements(mu_dataset_cache(range(2), "no-such-folder/cache"));
    expect_error(MU_NOT_FOUND, "no-such-folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_flat_map),    DATA_TEST(test_interleave), DATA_TEST(test_cache),
        DATA_TEST(test_cache_clone), DATA_TEST(test_cache_file), DATA_TEST(test_cache_incomplete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
