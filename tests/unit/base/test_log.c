// Tests of the log: levels, one line per message, nothing that steers a terminal.
#include "base_test.h"

#include <errno.h>

static void say_all(void *arg)
{
    (void)arg;
    mu__log(MU_LOG_ERROR, "an error");
    mu__log(MU_LOG_WARNING, "a warning");
    mu__log(MU_LOG_INFO, "a remark");
    mu__log(MU_LOG_DEBUG, "a detail");
}

static void test_levels(void **state)
{
    (void)state;
    char text[1000];
    catch_stderr(say_all, NULL, text, sizeof text);
    assert_string_equal(text, "muster: error: an error\nmuster: warning: a warning\n");
    assert_null(mu__runtime_present());
    mu_init(.log = "debug");
    catch_stderr(say_all, NULL, text, sizeof text);
    assert_string_equal(
        text, "muster: error: an error\nmuster: warning: a warning\nmuster: a remark\nmuster: debug: a detail\n");
    mu_exit(true);
}

static void say_hostile(void *arg)
{
    errno = 5;
    mu__log(MU_LOG_ERROR, "name: %s", (const char *)arg);
    assert_int_equal(errno, 5);
}

static void test_hostile_text(void **state)
{
    (void)state;
    char text[4000];
    catch_stderr(say_hostile, "a\nb\x1b[31m\x7f", text, sizeof text);
    assert_string_equal(text, "muster: error: name: a b?[31m?\n");
    char longer[3000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    catch_stderr(say_hostile, longer, text, sizeof text);
    assert_true(strlen(text) < 2100);
    assert_int_equal(text[strlen(text) - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_hostile_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
