// Sources in memory: slices, single elements, ranges; what they refuse; the exactness of bytes as floats.
#include "data_test.h"

static mu_value *vector_i32(int n)
{
    int32_t values[16];
    for (int i = 0; i < n; i++)
        values[i] = i * i;
    return mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){n}, values));
}

static void test_slices(void **state)
{
    (void)state;
    float matrix[] = {0, 1, 2, 3, 4, 5};
    mu_value *pair = mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){3, 2}, matrix), vector_i32(3), MU_END);
    mu_dataset *dataset = mu_dataset_from_tensor_slices(pair);
    assert_int_equal(mu_dataset_cardinality(dataset), 3);
    assert_elements(dataset, "([0 1],0) ([2 3],1) ([4 5],4)");
    assert_elements(dataset, "([0 1],0) ([2 3],1) ([4 5],4)");
}

static void test_one_element(void **state)
{
    (void)state;
    mu_dataset *dataset = mu_dataset_from_tensors(vector_i32(3));
    assert_int_equal(mu_dataset_cardinality(dataset), 1);
    assert_elements(dataset, "[0 1 4]");
}

static void test_unequal_rows(void **state)
{
    (void)state;
    assert_null(mu_dataset_from_tensor_slices(mu_list(vector_i32(3), vector_i32(2), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "component 1 has 2 rows and component 0 has 3");
    assert_null(mu_dataset_from_tensor_slices(mu_of(mu_constant(MU_F32, 1))));
    expect_error(MU_INVALID_ARGUMENT, "no axis 0");
    assert_null(mu_dataset_from_tensors(NULL));
    expect_error(MU_INVALID_ARGUMENT, "at least one tensor");
}

static void test_range(void **state)
{
    (void)state;
    assert_elements(mu_dataset_range(0, 4, 1), "0 1 2 3");
    assert_elements(mu_dataset_range(5, -2, -3), "5 2 -1");
    assert_elements(mu_dataset_range(3, 3, 1), "");
    assert_int_equal(mu_dataset_cardinality(mu_dataset_range(0, 10, 3)), 4);
    assert_int_equal(mu_dataset_cardinality(mu_dataset_range(INT64_MIN, INT64_MAX, 1)), INT64_MAX);
    assert_null(mu_dataset_range(0, 1, 0));
    expect_error(MU_INVALID_ARGUMENT, "step");
}

static void test_spec(void **state)
{
    (void)state;
    mu_value *pair = mu_list(mu_tensor_new(MU_F32, 2, (int64_t[]){3, 2}, NULL), vector_i32(3), MU_END);
    mu_value *spec = mu__dataset_spec(mu_dataset_batch(mu_dataset_from_tensor_slices(pair), 2));
    char text[MU_SHAPE_TEXT];
    mu_shape shape = mu_tensor_shape(mu_at(spec, 0));
    assert_string_equal(mu__shape_text(&shape, text), "[?, 2]");
    assert_int_equal(mu_tensor_dtype(mu_at(spec, 1)), MU_I32);
    mu_release(spec);
    spec = mu__dataset_spec(mu_dataset_batch(mu_dataset_range(0, 4, 1), 2, .drop_remainder = true));
    assert_int_equal(mu_tensor_dim(mu_at(spec, 0), 0), 2);
    mu_release(spec);
}

static void test_bytes_as_floats(void **state)
{
    (void)state;
    uint8_t bytes[256];
    float floats[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    mu_shape shape = {.rank = 1, .dims = {256}};
    for (int divisor = 2; divisor < 256; divisor += 253) {
        mu_rows *rows = mu__rows_new(1, 1, mu__spec_leaf(MU_F32, &shape), NULL, NULL);
        rows->columns[0] = (mu_column){.data = bytes, .stored = MU_U8, .spec = {MU_F32, shape}, .divisor = divisor};
        int64_t row = 0;
        assert_int_equal(mu__rows_gather(rows, &row, 1, (void *[]){floats}), MU_OK);
        for (int i = 0; i < 256; i++)
            assert_true(floats[i] == (float)i / (float)divisor);
        mu_release(rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_slices), DATA_TEST(test_one_element), DATA_TEST(test_unequal_rows),
        DATA_TEST(test_range),  DATA_TEST(test_spec),        DATA_TEST(test_bytes_as_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
