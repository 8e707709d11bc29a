// Tests of settings: where a value comes from, invalid values, unknown names, the printed table.
#include "base_test.h"

#include <locale.h>

static int clean(void **state)
{
    (void)state;
    mu_error_take();
    mu_exit(true);
    clearenv();
    return 0;
}

static void test_defaults(void **state)
{
    (void)state;
    assert_string_equal(mu__setting_text(MU_SETTING_LOG), "warning");
    assert_null(mu__setting_text(MU_SETTING_TRACE));
    assert_int_equal(mu__setting_int(MU_SETTING_PLAN_CACHE), 16);
    assert_true(mu__setting_real(MU_SETTING_TIMEOUT) == 600);
    assert_true(mu__setting_bool(MU_SETTING_PIN));
    assert_false(mu__setting_bool(MU_SETTING_TF_COMPAT));
}

static void test_environment(void **state)
{
    (void)state;
    setenv("MUSTER_LOG", "DEBUG", 1);
    setenv("MUSTER_THREADS", "3", 1);
    setenv("MUSTER_TIMEOUT", "2.5", 1);
    setenv("MUSTER_PIN", "off", 1);
    setenv("MUSTER_ISA", "", 1);
    assert_int_equal(mu_init(), MU_OK);
    assert_string_equal(mu__setting_text(MU_SETTING_LOG), "debug");
    assert_int_equal(mu__setting_int(MU_SETTING_THREADS), 3);
    assert_true(mu__setting_real(MU_SETTING_TIMEOUT) == 2.5);
    assert_false(mu__setting_bool(MU_SETTING_PIN));
    assert_null(mu__setting_text(MU_SETTING_ISA));
    // Settings are frozen: a later change of the environment has no effect.
    setenv("MUSTER_THREADS", "4", 1);
    assert_int_equal(mu__setting_int(MU_SETTING_THREADS), 3);
}

static void test_arguments_win(void **state)
{
    (void)state;
    setenv("MUSTER_THREADS", "3", 1);
    setenv("MUSTER_LOG", "info", 1);
    assert_int_equal(mu_init(.threads = 2, .log = "error"), MU_OK);
    assert_int_equal(mu__setting_int(MU_SETTING_THREADS), 2);
    assert_string_equal(mu__setting_text(MU_SETTING_LOG), "error");
    assert_false(mu__log_enabled(MU_LOG_WARNING));
}

static void test_values_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value, *part;
    } table[] = {
        {"MUSTER_THREADS", "many", "\"many\""},   {"MUSTER_THREADS", "-1", "from 0 to 4096"},
        {"MUSTER_THREADS", "3x", "whole number"}, {"MUSTER_THREADS", "99999999999999999999", "whole number"},
        {"MUSTER_TIMEOUT", "0", "0.001"},         {"MUSTER_TIMEOUT", "nan", "number from"},
        {"MUSTER_TIMEOUT", "inf", "number from"}, {"MUSTER_PIN", "perhaps", "1 or 0"},
        {"MUSTER_LOG", "loud", "warning, info"},  {"MUSTER_ISA", "sse", "avx512, avx2 or base"},
    };
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        setenv(table[i].variable, table[i].value, 1);
        assert_int_equal(mu_init(), MU_INVALID_ARGUMENT);
        assert_non_null(strstr(mu_error_message(), table[i].variable));
        assert_taken(MU_INVALID_ARGUMENT, table[i].part);
        // Reading a setting without a runtime records the same error and returns the default.
        assert_int_equal(mu__setting_int(MU_SETTING_PLAN_CACHE), 16);
        assert_taken(MU_INVALID_ARGUMENT, table[i].variable);
        clearenv();
    }
}

static void test_point_in_any_locale(void **state)
{
    (void)state;
    // On machines without such a locale this repeats the plain test.
    setlocale(LC_ALL, "de_DE.UTF-8");
    setenv("MUSTER_TIMEOUT", "0.25", 1);
    assert_int_equal(mu_init(), MU_OK);
    assert_true(mu__setting_real(MU_SETTING_TIMEOUT) == 0.25);
    setlocale(LC_ALL, "C");
}

static void init(void *arg)
{
    (void)arg;
    assert_int_equal(mu_init(), MU_OK);
}

static void test_unknown_names_warn(void **state)
{
    (void)state;
    char text[1000];
    setenv("MUSTER_TREADS", "3", 1);
    catch_stderr(init, NULL, text, sizeof text);
    assert_non_null(strstr(text, "MUSTER_TREADS is not a setting"));
    assert_non_null(strstr(text, "nearest is MUSTER_THREADS"));
}

static void test_names_of_scripts_are_known(void **state)
{
    (void)state;
    char text[1000];
    setenv("MUSTER_PYTHON_ENV", "build/python", 1);
    catch_stderr(init, NULL, text, sizeof text);
    assert_string_equal(text, "");
}

static void test_long_unknown_names(void **state)
{
    (void)state;
    char name[5000], text[1000];
    memset(name, 'X', sizeof name);
    memcpy(name, "MUSTER_", 7);
    name[sizeof name - 1] = '\0';
    setenv(name, "1", 1);
    setenv("MUSTER_LOG", "warning", 1);
    catch_stderr(init, NULL, text, sizeof text);
    assert_non_null(strstr(text, "is not a setting"));
    assert_null(strstr(text, "MUSTER_LOG is no"));
}

static void test_environment_of_others(void **state)
{
    (void)state;
    assert_null(mu__environment("TF_CONFIG"));
    setenv("TF_CONFIG", "", 1);
    assert_null(mu__environment("TF_CONFIG"));
    setenv("TF_CONFIG", "{}", 1);
    assert_string_equal(mu__environment("TF_CONFIG"), "{}");
}

static void test_table(void **state)
{
    (void)state;
    setenv("MUSTER_DATA_DIR", "some\x1b[2Jwhere", 1);
    assert_int_equal(mu_init(.threads = 2), MU_OK);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    mu__settings_print(out);
    fclose(out);
    assert_non_null(strstr(text, "2 threads"));
    assert_non_null(strstr(text, "mu_init"));
    assert_non_null(strstr(text, "600 s"));
    assert_non_null(strstr(text, "(not set)"));
    assert_non_null(strstr(text, "some?[2Jwhere"));
    assert_non_null(strstr(text, "environment"));
    size_t lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    assert_int_equal(lines, MU_N_SETTINGS);
    free(text);
}

int main(void)
{
    clearenv();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_defaults, clean),
        cmocka_unit_test_teardown(test_environment, clean),
        cmocka_unit_test_teardown(test_arguments_win, clean),
        cmocka_unit_test_teardown(test_values_that_cannot_be, clean),
        cmocka_unit_test_teardown(test_point_in_any_locale, clean),
        cmocka_unit_test_teardown(test_unknown_names_warn, clean),
        cmocka_unit_test_teardown(test_names_of_scripts_are_known, clean),
        cmocka_unit_test_teardown(test_long_unknown_names, clean),
        cmocka_unit_test_teardown(test_environment_of_others, clean),
        cmocka_unit_test_teardown(test_table, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
