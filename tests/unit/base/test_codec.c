// Tests of the bounded cursor: values, and every way of reading past the end.
#include "base_test.h"

static void test_values(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {1, 0, 0, 8, 3, 0x78, 0x56, 0x34, 0xf2, 1, 2, 3, 4, 5, 6, 7, 0xff, 'a', 'b'};
    mu_cursor cursor = mu__cursor(bytes, sizeof bytes);
    assert_int_equal(mu__cursor_u8(&cursor), 1);
    assert_int_equal(mu__cursor_u32_big(&cursor), 0x803);
    assert_true(mu__cursor_u32_little(&cursor) == 0xf2345678u);
    assert_true(mu__cursor_u64_little(&cursor) == UINT64_C(0xff07060504030201));
    assert_int_equal(mu__cursor_left(&cursor), 2);
    assert_memory_equal(mu__cursor_bytes(&cursor, 2), "ab", 2);
    assert_non_null(mu__cursor_bytes(&cursor, 0));
    assert_false(cursor.bad);
}

static void test_past_the_end(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {1, 2, 3};
    mu_cursor cursor = mu__cursor(bytes, sizeof bytes);
    assert_int_equal(mu__cursor_u32_little(&cursor), 0);
    assert_true(cursor.bad);
    assert_int_equal(mu__cursor_left(&cursor), 0);
    assert_int_equal(mu__cursor_u8(&cursor), 0);
    assert_null(mu__cursor_bytes(&cursor, 0));
    cursor = mu__cursor(bytes, sizeof bytes);
    assert_null(mu__cursor_bytes(&cursor, SIZE_MAX));
    assert_int_equal(mu__cursor_u64_little(&cursor), 0);
    assert_int_equal(mu__cursor_u32_big(&cursor), 0);
}

static void test_nothing(void **state)
{
    (void)state;
    mu_cursor cursor = mu__cursor(NULL, 0);
    assert_int_equal(mu__cursor_left(&cursor), 0);
    assert_non_null(mu__cursor_bytes(&cursor, 0));
    assert_int_equal(mu__cursor_u8(&cursor), 0);
    assert_true(cursor.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_past_the_end),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
