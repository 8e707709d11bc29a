// Elements from several datasets, buckets by length, scan, take_while, unique: what they give, and their refusals.
#include "data_test.h"

static mu_dataset *range(int64_t from, int64_t to) { return mu_dataset_range(from, to, 1); }

static void test_choose(void **state)
{
    (void)state;
    mu_dataset *const datasets[] = {range(0, 2), range(10, 15)};
    mu_value *numbers = mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){6}, (int64_t[]){1, 0, 1, 0, 0, 1}));
    mu_dataset *choices = mu_dataset_from_tensor_slices(numbers);
    assert_elements(mu_choose_from_datasets(2, datasets, choices), "10 0 11 1");
    assert_elements(mu_choose_from_datasets(2, datasets, choices, .continue_on_empty = true), "10 0 11 1 12");
    assert_elements(mu_choose_from_datasets(2, datasets, range(0, 3)), "0 10");
    expect_error(MU_INVALID_ARGUMENT, "choice 2; expected 0 to 1");
    mu_dataset *endless = mu_dataset_repeat(range(0, 2), MU_INFINITE);
    assert_elements(mu_choose_from_datasets(2, datasets, endless, .continue_on_empty = true), "0 10 1 11 12 13 14");
}

static void test_sample(void **state)
{
    (void)state;
    mu_dataset *const datasets[] = {range(0, 1000), range(1000, 2000), range(2000, 3000)};
    mu_dataset *sampled =
        mu_sample_from_datasets(3, datasets, .weights = (const double[]){.7, .3, 0}, .n_weights = 3, .seed = 4);
    int of_first = 0, n = 0;
    MU_EACH(element, mu_dataset_take(sampled, 1000)) {
        n++;
        of_first += mu_scalar(element) < 1000;
        assert_true(mu_scalar(element) < 2000);
    }
    assert_int_equal(n, 1000);
    assert_in_range(of_first, 640, 760); // 4 standard deviations
    assert_int_equal(mu_dataset_cardinality(sampled), 2000);
    n = 0;
    MU_EACH(element, sampled)
        n++;
    assert_int_equal(n, 2000);
    mu_dataset *short_ones[] = {range(0, 1), range(10, 13)};
    char first[TEXT_BYTES];
    strcpy(first, elements(mu_sample_from_datasets(2, short_ones, .seed = 3)));
    assert_elements(mu_sample_from_datasets(2, short_ones, .seed = 3), first);
    MU_EACH(element, mu_sample_from_datasets(2, short_ones, .seed = 3, .stop_on_empty = true))
        n++;
    assert_in_range(n, 2001, 2003);
    assert_null(mu_sample_from_datasets(2, short_ones, .weights = (const double[]){0, 0}, .n_weights = 2));
    expect_error(MU_INVALID_ARGUMENT, "all weights are 0");
    assert_null(mu_sample_from_datasets(2, short_ones, .weights = (const double[]){1}, .n_weights = 1));
    expect_error(MU_INVALID_ARGUMENT, ".weights has 1 elements by its length .n_weights; give 2, one for each dataset");
}

static mu_value *ones(mu_value *element, void *arg)
{
    (void)arg;
    const int64_t n = (int64_t)mu_scalar(element);
    const int64_t values[8] = {n, n, n, n, n, n, n, n};
    return mu_of(mu_tensor_new(MU_I64, 1, &n, values));
}

static int64_t length(mu_value *element, void *arg)
{
    (void)arg;
    return mu_tensor_dim(mu_value_tensor(element), 0);
}

static void test_buckets(void **state)
{
    (void)state;
    const int64_t lengths[] = {1, 4, 2, 5, 1, 3, 7}, sizes[] = {2, 2, 2}, boundaries[] = {3, 5};
    mu_dataset *data = mu_dataset_map(
        mu_dataset_from_tensor_slices(mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){7}, lengths))), ones, NULL);
    mu_dataset_bucket_args args = {.size = sizeof args,
                                   .dataset = data,
                                   .element_length = length,
                                   .bucket_boundaries = boundaries,
                                   .n_bucket_boundaries = 2,
                                   .bucket_batch_sizes = sizes,
                                   .n_bucket_batch_sizes = 2};
    assert_null(mu_dataset_bucket_by_sequence_length_with(&args));
    expect_error(MU_INVALID_ARGUMENT, ".bucket_batch_sizes has 2 elements by its length .n_bucket_batch_sizes; give 3");
    args.n_bucket_batch_sizes = 3;
    assert_elements(mu_dataset_bucket_by_sequence_length_with(&args),
                    "[1 0|2 2] [4 4 4 4|3 3 3 0] [5 5 5 5 5 0 0|7 7 7 7 7 7 7] [1]");
    args.drop_remainder = true;
    args.padding_values = mu_of(mu_constant(MU_I64, -1));
    assert_elements(mu_dataset_bucket_by_sequence_length_with(&args),
                    "[1 -1|2 2] [4 4 4 4|3 3 3 -1] [5 5 5 5 5 -1 -1|7 7 7 7 7 7 7]");
    args.padded_shapes = &(mu_shape){1, {MU_UNKNOWN}};
    args.n_padded_shapes = 1;
    args.pad_to_bucket_boundary = true;
    assert_elements(mu_dataset_bucket_by_sequence_length_with(&args), "[1 -1|2 2]");
    expect_error(MU_INVALID_ARGUMENT, "an element of length 5; with pad_to_bucket_boundary");
    args.bucket_boundaries = (const int64_t[]){5, 3};
    assert_null(mu_dataset_bucket_by_sequence_length_with(&args));
    expect_error(MU_INVALID_ARGUMENT, "bucket_boundaries[1] is 3; expected numbers from 1 that ascend");
}

static mu_value *add_up(mu_value *sum, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *next = mu_constant(MU_I64, mu_scalar(sum) + mu_scalar(element));
    return mu_list(next, mu_list(element, next, MU_END), MU_END);
}

static bool below_three(mu_value *element, void *arg)
{
    (void)arg;
    return mu_scalar(element) < 3;
}

static void test_scan_take_while_unique(void **state)
{
    (void)state;
    mu_dataset *sums = mu_dataset_scan(range(1, 5), mu_of(mu_constant(MU_I64, 10)), add_up, NULL);
    assert_elements(sums, "(1,11) (2,13) (3,16) (4,20)");
    mu_iterator *iterator = mu_iterate(sums);
    mu_next(iterator);
    mu_next(iterator);
    mu_iterator *later = mu_iterate(sums);
    assert_int_equal(mu_iterator_restore(later, mu_iterator_state(iterator)), MU_OK);
    char text[TEXT_BYTES] = "";
    append_elements(later, 9, text);
    assert_string_equal(text, "(3,16) (4,20)");
    assert_elements(mu_dataset_take_while(range(0, 9), below_three, NULL), "0 1 2");
    const char *const words[] = {"a", "b", "a", "", "b", ""};
    assert_elements(
        mu_dataset_unique(mu_dataset_from_tensor_slices(mu_of(mu_tensor_strings(1, (int64_t[]){6}, words)))),
        "'a' 'b' ''");
    int n = 0;
    MU_EACH(element, mu_dataset_unique(mu_dataset_repeat(range(0, 300), 3)))
        assert_true(mu_scalar(element) == n++);
    assert_int_equal(n, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_choose),
        DATA_TEST(test_sample),
        DATA_TEST(test_buckets),
        DATA_TEST(test_scan_take_while_unique),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
