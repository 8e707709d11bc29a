// Tensors of strings: made, viewed, read, and refused where only numbers can be.
#include "tensor_test.h"

static const int64_t three = 3;

static mu_tensor *abc(void) { return mu_tensor_byte_strings(1, &three, (mu_string[]){{"a", 1}, {"", 0}, {"x\0y", 3}}); }

static void assert_string(mu_string string, const char *bytes, size_t n)
{
    assert_int_equal(string.n, n);
    assert_memory_equal(string.bytes, bytes, n + 1); // a zero follows
}

static void test_made_and_read(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *strings = abc();
    assert_int_equal(mu_tensor_dtype(strings), MU_STRING);
    assert_string_equal(mu_dtype_name(MU_STRING), "string");
    assert_string(mu_tensor_string(strings, 0), "a", 1);
    assert_string(mu_tensor_string(strings, 1), "", 0);
    assert_string(mu_tensor_string(strings, 2), "x\0y", 3);
    assert_int_equal(mu__string_bytes(strings), 4);
    assert_string(mu_tensor_string(mu_string_scalar("ü"), 0), "ü", 2);
    assert_int_equal(mu_tensor_elements(mu_tensor_strings(1, &(int64_t){0}, NULL)), 0);
    mu_pool_close(pool);
}

static void test_views_share_the_strings(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *strings = abc(),
              *last = mu__tensor_view(strings->buffer, 2 * sizeof(int64_t), MU_STRING, &mu__scalar_shape);
    assert_string(mu_tensor_string(last, 0), "x\0y", 3);
    assert_int_equal(mu__string_bytes(last), 3);
    mu_release(last);
    mu_pool_close(pool);
}

static void test_bytes_and_back(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    uint8_t bytes[64];
    mu_tensor *strings = abc();
    assert_int_equal(mu__strings_wire_bytes(strings), 28);
    mu__strings_to_wire(strings, bytes);
    mu_cursor cursor = mu__cursor(bytes, 28);
    mu_tensor *back = mu__strings_from_wire(&cursor, &strings->shape);
    assert_string(mu_tensor_string(back, 2), "x\0y", 3);
    mu_release(back);
    for (size_t n = 0; n < 28; n++) {
        cursor = mu__cursor(bytes, n);
        assert_null(mu__strings_from_wire(&cursor, &strings->shape));
        assert_taken(MU_DATA_LOSS, "ends within a string");
    }
    memset(bytes, 0xff, 8);
    cursor = mu__cursor(bytes, 28);
    assert_null(mu__strings_from_wire(&cursor, &strings->shape));
    assert_taken(MU_DATA_LOSS, "ends within a string");
    mu_pool_close(pool);
}

static void test_refusals(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *strings = abc();
    assert_null(mu_tensor_new(MU_STRING, 0, NULL, NULL));
    assert_taken(MU_INVALID_ARGUMENT, "make strings with mu_tensor_strings");
    assert_null(mu_constant(MU_STRING, 1));
    assert_taken(MU_INVALID_ARGUMENT, "make strings with mu_tensor_strings");
    assert_null(mu_tensor_data(strings));
    assert_taken(MU_INVALID_ARGUMENT, "read each with mu_tensor_string");
    assert_true(isnan(mu_tensor_item(strings, 0)));
    assert_taken(MU_INVALID_ARGUMENT, "read each with mu_tensor_string");
    assert_null(mu_tensor_string(strings, 3).bytes);
    assert_taken(MU_OUT_OF_RANGE, "string 3 of a tensor with 3");
    assert_null(mu_tensor_string(mu_constant(MU_F32, 1), 0).bytes);
    assert_taken(MU_INVALID_ARGUMENT, "has type float32");
    assert_null(mu_tensor_strings(1, &three, (const char *const[]){"a", NULL, "b"}));
    assert_taken(MU_INVALID_ARGUMENT, "string 1 is NULL");
    assert_null(mu_tensor_strings(1, &(int64_t){-1}, NULL));
    assert_taken(MU_INVALID_ARGUMENT, "unknown dimension");
    assert_null(mu__tensor_alloc(MU_STRING, &strings->shape));
    assert_taken(MU_UNIMPLEMENTED, "turn them into numbers first");
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_and_read),
        cmocka_unit_test(test_views_share_the_strings),
        cmocka_unit_test(test_bytes_and_back),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
