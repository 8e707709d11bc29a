// Tests of the error record, its travels, and of the copying of argument structs.
#include "base_test.h"

#include <errno.h>

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(mu_status_name(MU_OK), "OK");
    assert_string_equal(mu_status_name(MU_UNAUTHENTICATED), "UNAUTHENTICATED");
    assert_string_equal(mu_status_name((mu_status)99), "UNKNOWN");
    assert_int_equal(MU_DATA_LOSS, 15);
}

static void test_first_error_stays(void **state)
{
    (void)state;
    assert_false(mu__pending());
    assert_int_equal(mu_fail(MU_NOT_FOUND, "no file %d", 7), MU_NOT_FOUND);
    assert_int_equal(mu_fail(MU_INTERNAL, "a consequence"), MU_INTERNAL);
    assert_true(mu__pending());
    assert_int_equal(mu_error_code(), MU_NOT_FOUND);
    assert_string_equal(mu_error_message(), "no file 7");
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_NOT_FOUND);
    assert_string_equal(error.message, "no file 7");
    assert_non_null(strstr(error.file, "test_status.c"));
    assert_false(mu__pending());
    assert_int_equal(mu_error_take().code, MU_OK);
}

static void test_failing_with_ok_is_nothing(void **state)
{
    (void)state;
    assert_int_equal(mu_fail(MU_OK, "nothing"), MU_OK);
    assert_false(mu__pending());
    mu_fail((mu_status)1234, "a number of somebody's own");
    assert_taken(MU_UNKNOWN_ERROR, "own");
}

static void test_context_lines(void **state)
{
    (void)state;
    mu__error_context("no record, no line");
    mu_fail(MU_INTERNAL, "bottom");
    for (int i = 0; i < 6; i++)
        mu__error_context("while doing %d", i);
    const mu_error error = mu_error_take();
    assert_string_equal(error.message, "bottom\nwhile doing 0\nwhile doing 1\nwhile doing 2\nwhile doing 3");
}

static void test_long_messages_are_cut(void **state)
{
    (void)state;
    char text[3000];
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa4", 3);
    mu_fail(MU_INTERNAL, "%s", text);
    mu__error_context("no room for this");
    const char *message = mu_error_take().message;
    const size_t length = strlen(message);
    assert_true(length < 1000 && length > 980);
    assert_string_equal(message + length - 3, "...");
    assert_int_equal((length - 3) % 2, 0);
}

// Names in a message may come from files: what a program prints must not steer its terminal.
static void test_control_characters_are_replaced(void **state)
{
    (void)state;
    mu_fail(MU_NOT_FOUND, "no variable '%s'", "w\x1b[2Jei\rght\x7f\xc3\xa4");
    mu__error_context("in layer '%s'", "\x07");
    assert_string_equal(mu_error_take().message, "no variable 'w?[2Jei?ght?\xc3\xa4'\nin layer '?'");
}

static void test_values_travel(void **state)
{
    (void)state;
    mu_error_value value;
    mu__error_move(&value);
    assert_int_equal(value.code, MU_OK);
    assert_int_equal(mu__error_raise(&value), MU_OK);
    mu_fail(MU_ABORTED, "on another thread");
    mu__error_move(&value);
    assert_false(mu__pending());
    assert_int_equal(mu__error_raise(&value), MU_ABORTED);
    assert_taken(MU_ABORTED, "another");
}

static void test_errno_codes(void **state)
{
    (void)state;
    assert_int_equal(mu__errno_code(0), MU_OK);
    assert_int_equal(mu__errno_code(ENOENT), MU_NOT_FOUND);
    assert_int_equal(mu__errno_code(ENOSPC), MU_RESOURCE_EXHAUSTED);
    assert_int_equal(mu__errno_code(EACCES), MU_PERMISSION_DENIED);
    assert_int_equal(mu__errno_code(ECONNRESET), MU_UNAVAILABLE);
    assert_int_equal(mu__errno_code(EDOM), MU_UNKNOWN_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_first_error_stays),
        cmocka_unit_test(test_failing_with_ok_is_nothing),
        cmocka_unit_test(test_context_lines),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_control_characters_are_replaced),
        cmocka_unit_test(test_values_travel),
        cmocka_unit_test(test_errno_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
