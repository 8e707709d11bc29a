// Batches, padded batches and windows: contents, sizes at the borders, elements that do not fit together.
#include "data_test.h"

static mu_dataset *range(int64_t n) { return mu_dataset_range(0, n, 1); }

static void test_batch(void **state)
{
    (void)state;
    assert_elements(mu_dataset_batch(range(5), 2), "[0 1] [2 3] [4]");
    assert_elements(mu_dataset_batch(range(5), 2, .drop_remainder = true), "[0 1] [2 3]");
    assert_elements(mu_dataset_batch(range(0), 2), "");
    assert_elements(mu_dataset_batch(mu_dataset_batch(range(4), 2), 2), "[0 1|2 3]");
    assert_elements(mu_dataset_skip(mu_dataset_batch(range(7), 2), 2), "[4 5] [6]");
    assert_null(mu_dataset_batch(range(5), 0));
    expect_error(MU_INVALID_ARGUMENT, "batch size is 0");
}

static void test_batch_of_rows(void **state)
{
    (void)state;
    float x[12];
    int32_t y[6];
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    for (int i = 0; i < 6; i++)
        y[i] = -i;
    mu_value *both =
        mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){6, 2}, x), mu_tensor_new(MU_I32, 1, (int64_t[]){6}, y), MU_END);
    mu_dataset *dataset = mu_dataset_from_tensor_slices(both);
    assert_elements(mu_dataset_batch(mu_dataset_shard(dataset, 2, 1), 2), "([2 3|6 7],[-1 -3]) ([10 11],[-5])");
    assert_elements(mu_dataset_batch(mu_dataset_take(mu_dataset_repeat(dataset, 2), 7), 4),
                    "([0 1|2 3|4 5|6 7],[0 -1 -2 -3]) ([8 9|10 11|0 1],[-4 -5 0])");
}

static mu_value *ones(mu_value *element, void *arg)
{
    (void)arg;
    int64_t n = (int64_t)mu_scalar(element);
    float values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    return mu_of(mu_tensor_new(MU_F32, 1, &n, values));
}

static mu_value *triangle(mu_value *element, void *arg)
{
    (void)arg;
    int64_t n = (int64_t)mu_scalar(element);
    float values[4] = {1, 2, 3, 4};
    return mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){n, 3 - n}, values));
}

static void test_padded_batch(void **state)
{
    (void)state;
    mu_dataset *growing = mu_dataset_map(mu_dataset_range(1, 4, 1), ones, NULL);
    assert_elements(mu_dataset_padded_batch(growing, 2), "[1 0|1 1] [1 1 1]");
    mu_iterator *iterator =
        mu_iterate(mu_dataset_padded_batch(mu_dataset_map(mu_dataset_range(1, 3, 1), triangle, NULL), 2));
    char text[TEXT_BYTES] = "";
    append_elements(iterator, 1, text);
    assert_string_equal(text, "[1 2 0 0 1 0 2 0]");
    assert_elements(mu_dataset_batch(mu_dataset_map(mu_dataset_range(2, 4, 1), ones, NULL), 2), "");
    expect_error(MU_INVALID_ARGUMENT, "element 1 is float32 [3] and the first is float32 [2]");
}

static void test_window(void **state)
{
    (void)state;
    assert_elements(mu_dataset_window(range(5), 2), "[0 1] [2 3] [4]");
    assert_elements(mu_dataset_window(range(5), 3, .shift = 1, .drop_remainder = true), "[0 1 2] [1 2 3] [2 3 4]");
    assert_elements(mu_dataset_window(range(7), 3, .shift = 2, .stride = 2), "[0 2 4] [2 4 6] [4 6] [6]");
    assert_null(mu_dataset_window(range(5), (int64_t)3000000000));
    expect_error(MU_INVALID_ARGUMENT, "window_size 3000000000, shift 3000000000, stride 1; expected window_size");
    assert_elements(mu_dataset_window(range(7), 2, .shift = 3), "[0 1] [3 4] [6]");
    assert_int_equal(mu_dataset_cardinality(mu_dataset_window(range(7), 3, .shift = 2, .stride = 2)), 4);
    assert_int_equal(
        mu_dataset_cardinality(mu_dataset_window(range(7), 3, .shift = 2, .stride = 2, .drop_remainder = true)), 2);
}

// Later batches do not overwrite a batch that is still referenced.
static void test_kept_batch(void **state)
{
    (void)state;
    mu_iterator *iterator = mu_iterate(mu_dataset_batch(range(40), 2));
    mu_value *first = mu_retain(mu_next(iterator));
    const void *second = mu_tensor_data(mu_at(mu_next(iterator), 0));
    for (int i = 0; i < 10; i++)
        assert_ptr_equal(mu_tensor_data(mu_at(mu_next(iterator), 0)), second);
    char text[TEXT_BYTES] = "";
    write_value(first, text);
    assert_string_equal(text, "[0 1]");
    mu_release(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_batch),  DATA_TEST(test_batch_of_rows), DATA_TEST(test_padded_batch),
        DATA_TEST(test_window), DATA_TEST(test_kept_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
