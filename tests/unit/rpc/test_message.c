// Values as bytes: decoding gives the same values, and damage is an error.
#include "rpc/rpc.h"
#include "rpc_test.h"

static void same(const mu_value *a, const mu_value *b)
{
    mu_object *as[32], *bs[32];
    assert_true(mu__value_same_structure(a, b));
    const int n = mu__value_flatten(a, as, 32);
    assert_int_equal(mu__value_flatten(b, bs, 32), n);
    for (int i = 0; i < n; i++) {
        const mu_spec x = mu__spec_of((mu_tensor *)as[i]), y = mu__spec_of((mu_tensor *)bs[i]);
        assert_true(x.dtype == y.dtype && mu__shape_equal(&x.shape, &y.shape));
        assert_memory_equal(mu__host_read((mu_tensor *)as[i]), mu__host_read((mu_tensor *)bs[i]), mu__spec_bytes(&x));
    }
}

static void round_trip(const mu_value *value)
{
    mu_value *back = NULL;
    mu_message *message = mu__message_of(value, "test");
    assert_non_null(message);
    assert_int_equal(mu__message_value(message, 0, &back), MU_OK);
    mu_release(message); // large tensors keep it
    same(value, back);
    mu_release(back);
}

static mu_tensor *counting(int64_t n)
{
    mu_tensor *tensor = mu_tensor_new(MU_F64, 1, &n, NULL);
    for (int64_t i = 0; i < n; i++)
        ((double *)mu__host_write(tensor))[i] = (double)i / 3;
    return tensor;
}

static void test_values_come_back(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const int64_t dims[] = {3, 2}, none = 0;
    mu_tensor *rows = mu_tensor_new(MU_F32, 2, (int64_t[]){2, 2}, (float[]){1, 2, 3, 4});
    mu_tensor *indices = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){0, 2});
    round_trip(number(7));
    round_trip(mu_list(MU_END));
    round_trip(mu_map("a", number(1), "", pair(2, 3), "ü", mu_list(MU_END), MU_END));
    round_trip(mu_list(counting(100000), number(1), counting(1000), counting(3), MU_END));
    round_trip(mu_of(mu_tensor_new(MU_BOOL, 1, (int64_t[]){3}, "\1\0\1")));
    round_trip(mu_of(mu_tensor_new(MU_BF16, 1, &none, NULL)));
    round_trip(mu_list(mu_string_scalar("ü"), mu_tensor_strings(1, &none, NULL), number(1), MU_END));
    const char *many[1000];
    for (int i = 0; i < 1000; i++)
        many[i] = "many";
    round_trip(mu_list(mu_tensor_strings(1, (int64_t[]){1000}, many), number(2), MU_END));
    round_trip(mu_of(mu_tensor_byte_strings(1, (int64_t[]){3}, (mu_string[]){{"a\0b", 3}, {"", 0}, {"c", 1}})));
    mu_value *slices = mu_indexed_slices(rows, indices, 2, dims);
    assert_non_null(slices);
    round_trip(slices);
    mu_pool_close(pool);
}

static void test_no_value_comes_back_as_none(void **state)
{
    (void)state;
    mu_value *back = NULL;
    mu_message *message = mu__message_of(NULL, "test");
    assert_int_equal(message->bytes, 1);
    assert_int_equal(mu__message_value(message, 0, &back), MU_OK);
    assert_null(back);
    mu_release(message);
}

static void test_a_large_tensor_is_not_copied(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_value *back = NULL;
    mu_message *message = mu__message_of(mu_list(number(1), counting(5000), MU_END), "test");
    assert_int_equal(mu__message_value(message, 0, &back), MU_OK);
    const uint8_t *elements = mu__host_read(mu_at(back, 1));
    assert_true(elements > message->data && elements < message->data + message->bytes);
    assert_int_equal((uintptr_t)elements % 64, 0);
    mu_release(message);
    mu_release(back);
    mu_pool_close(pool);
}

static void test_what_cannot_be_sent_is_refused(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_variable *variable = mu_variable_new(mu_constant(MU_F32, 1), "v");
    assert_null(mu__message_of(mu_variables(variable, MU_END), "f: the arguments"));
    expect_error(MU_INVALID_ARGUMENT, "f: the arguments: a variable");
    mu_value *deep = number(1);
    for (int i = 0; i < 70; i++)
        deep = mu_list(deep, MU_END);
    assert_null(mu__message_of(deep, "f"));
    expect_error(MU_INVALID_ARGUMENT, "nested more than 64 deep");
    mu_pool_close(pool);
}

// Each case: bytes, and a part of the error.
static void test_damage_is_an_error(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } cases[] = {
        {"", 0, "ends early"},
        {"\x09", 1, "unknown kind"},
        {"\x01\x03\x00\x01\x02", 5, "ends within a tensor"},
        {"\x01\x63\x00", 3, "unknown type"},
        {"\x01\x03\x09", 3, "too many axes"},
        {"\x01\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff", 11, "negative"},
        {"\x01\x01\x02\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x40", 19, "bytes"},
        {"\x02\xff\xff\xff\xff", 5, "longer than its bytes"},
        {"\x02\x01\x00\x00\x00\x00", 6, "missing"},
        {"\x03\x01\x00\x00\x00\xff\xff", 7, "key"},
        {"\x01\x0a\x01\x01\x00\x00\x00\x00\x00\x00\x00\x02", 12, "neither 0 nor 1"},
        {"\x00\x00", 2, "follow its end"},
        {"\x04\x00", 2, "part of slices"},
    };
    (void)state;
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        mu_value *value = NULL;
        mu_message *message = mu__message_new(cases[i].n);
        memcpy(message->data, cases[i].bytes, cases[i].n);
        assert_int_not_equal(mu__message_value(message, 0, &value), MU_OK);
        assert_null(value);
        const mu_error error = mu_error_take();
        if (strstr(error.message, cases[i].part) == NULL)
            fail_msg("case %zu: %s", i, error.message);
        mu_release(message);
    }
}

// An element takes much more in memory than in a message.
static void test_lists_have_a_limit(void **state)
{
    enum { MOST = 1 << 20, BYTES = 8 << 20 };
    mu_value *value = NULL;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_message *message = mu__message_new(BYTES);
    for (int nested = 0; nested < 2; nested++) {
        // A list with one list of the maximal number of elements has one element too many.
        const uint32_t n = nested ? MOST : MOST + 1;
        memset(message->data, 0, BYTES);
        memcpy(message->data, nested ? "\2\1\0\0\0\2" : "\2", nested ? 6 : 1);
        for (int i = 0; i < 4; i++)
            message->data[(nested ? 6 : 1) + i] = (uint8_t)(n >> 8 * i);
        assert_int_equal(mu__message_value(message, 0, &value), MU_DATA_LOSS);
        expect_error(MU_DATA_LOSS, "too many elements");
    }
    mu_release(message);
    message = mu__message_new(1 + 4 + (MOST + 1) * 5);
    memset(message->data, 0, message->bytes);
    memcpy(message->data, "\2\1\0\20", 4); // MOST + 1 empty lists, in a file
    for (int i = 0; i <= MOST; i++)
        message->data[5 + i * 5] = 2;
    assert_int_equal(mu__message_value_of_file(message, &value), MU_OK);
    assert_int_equal(mu_value_count(value), MOST + 1);
    mu_release(value);
    mu_release(message);
    mu_value **items = mu__calloc(MOST + 1, sizeof *items), *item = number(1);
    assert_non_null(items);
    for (int i = 0; i <= MOST; i++)
        items[i] = item;
    assert_null(mu__message_of(mu_list_of(MOST + 1, items), "the list"));
    expect_error(MU_INVALID_ARGUMENT, "the list: lists and maps have more than 1048576 elements together");
    mu__free(items);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_come_back),
        cmocka_unit_test(test_no_value_comes_back_as_none),
        cmocka_unit_test(test_a_large_tensor_is_not_copied),
        cmocka_unit_test(test_what_cannot_be_sent_is_refused),
        cmocka_unit_test(test_damage_is_an_error),
        cmocka_unit_test(test_lists_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
