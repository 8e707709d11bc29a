// Cutting batches: unbatch, rebatch across borders, split within them; TensorFlow's published cases.
#include "data_test.h"

static mu_dataset *range(int64_t n) { return mu_dataset_range(0, n, 1); }

#define REBATCH(dataset, ...) \
    mu_dataset_rebatch(dataset, (int)MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__}, false)

static void test_unbatch(void **state)
{
    (void)state;
    assert_elements(mu_dataset_unbatch(mu_dataset_batch(range(5), 2)), "0 1 2 3 4");
    mu_dataset *pairs = mu_dataset_zip(range(4), mu_dataset_batch(range(8), 2), MU_END);
    assert_elements(mu_dataset_unbatch(mu_dataset_batch(pairs, 3)), "(0,[0 1]) (1,[2 3]) (2,[4 5]) (3,[6 7])");
    elements(mu_dataset_unbatch(range(3)));
    expect_error(MU_INVALID_ARGUMENT, "unbatch: component 0 of an element is a scalar");
}

// case ps-113: sizes in turn, a size of 0 reads nothing.
static void test_rebatch(void **state)
{
    (void)state;
    mu_dataset *fours = mu_dataset_batch(range(8), 4);
    assert_elements(REBATCH(fours, 2, 2), "[0 1] [2 3] [4 5] [6 7]");
    assert_elements(REBATCH(fours, 1, 1, 1, 1, 0), "[0] [1] [2] [3] [] [4] [5] [6] [7] []");
    assert_elements(REBATCH(fours, 0, 1), "[] [0] [] [1] [] [2] [] [3] [] [4] [] [5] [] [6] [] [7] []");
    assert_elements(REBATCH(mu_dataset_batch(range(12), 4), 6), "[0 1 2 3 4 5] [6 7 8 9 10 11]");
    assert_elements(REBATCH(mu_dataset_batch(range(7), 3), 5), "[0 1 2 3 4] [5 6]");
    assert_elements(mu_dataset_rebatch(mu_dataset_batch(range(7), 3), 1, (int64_t[]){5}, true), "[0 1 2 3 4]");
    // a short batch is the last, as in TensorFlow
    assert_elements(REBATCH(mu_dataset_batch(range(1), 1), 2, 0, 1), "[0]");
}

static void test_rebatch_refuses(void **state)
{
    (void)state;
    assert_null(REBATCH(range(3), 0, 0));
    expect_error(MU_INVALID_ARGUMENT, "not all 0");
    assert_null(REBATCH(range(3), 2, -1));
    expect_error(MU_INVALID_ARGUMENT, "none negative");
    elements(REBATCH(range(3), 2));
    expect_error(MU_INVALID_ARGUMENT, "batch the dataset first");
}

static mu_value *itself(mu_value *element, void *arg)
{
    (void)arg;
    return element;
}

// Without a spec, an empty batch is shaped like the first one read.
static void test_empty_first(void **state)
{
    (void)state;
    mu_dataset *mapped = mu_dataset_map(mu_dataset_batch(mu_dataset_batch(range(4), 2), 1), itself, NULL);
    mu_iterator *iterator = mu_iterate(REBATCH(mapped, 0, 2));
    mu_shape shape = mu_tensor_shape(mu_at(mu_next(iterator), 0));
    char text[MU_SHAPE_TEXT];
    assert_string_equal(mu__shape_text(&shape, text), "[0, 2]");
    assert_elements(REBATCH(mapped, 2), "[0 1|2 3]");
}

// case ps-115: every batch for itself, short and empty pieces last.
static void test_split(void **state)
{
    (void)state;
    assert_elements(mu__dataset_split(mu_dataset_batch(range(8), 4), 3), "[0 1] [2 3] [] [4 5] [6 7] []");
    assert_elements(mu__dataset_split(mu_dataset_batch(range(10), 4), 2), "[0 1] [2 3] [4 5] [6 7] [8] [9]");
    assert_elements(mu__dataset_split(mu_dataset_batch(range(9), 4), 2), "[0 1] [2 3] [4 5] [6 7] [8] []");
    assert_int_equal(mu_dataset_cardinality(mu__dataset_split(mu_dataset_batch(range(9), 4), 2)), 6);
    elements(mu__dataset_split(range(3), 2));
    expect_error(MU_INVALID_ARGUMENT, "batch the dataset first");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_unbatch),     DATA_TEST(test_rebatch), DATA_TEST(test_rebatch_refuses),
        DATA_TEST(test_empty_first), DATA_TEST(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
