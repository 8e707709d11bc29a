// Which versions of PJRT a plugin may have: 0.54 and every later 0.x. Other versions are refused before any function
// but GetPjrtApi is called, and a function that an older table lacks is refused where it is needed.
#include "engine/pjrt/pjrt.h"

#include <muster.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// A plugin is opened once for each path; inserting "/./" makes another path to the same file.
static const pj_api *open_version(int major, int minor, int functions)
{
    static int opened;
    char path[1024], words[3][16];
    const int numbers[] = {major, minor, functions};
    const char *const names[] = {"MU_PLUGIN_MAJOR", "MU_PLUGIN_MINOR", "MU_PLUGIN_FUNCTIONS"};
    for (int i = 0; i < 3; i++) {
        snprintf(words[i], sizeof words[i], "%d", numbers[i]);
        setenv(names[i], words[i], 1);
    }
    int used = snprintf(path, sizeof path, "/");
    for (int i = 0; i <= opened; i++)
        used += snprintf(path + used, sizeof path - (size_t)used, "./");
    opened++;
    snprintf(path + used, sizeof path - (size_t)used, "%s", &MU_TEST_VERSIONED_PLUGIN[1]);
    return mu__pjrt_plugin(path);
}

static void test_the_range_of_versions(void **state)
{
    (void)state;
    static const struct {
        int major, minor;
        bool opens;
    } cases[] = {{0, 1, false},  {0, 53, false},  {0, 54, true}, {0, 81, true},
                 {0, 117, true}, {0, 4000, true}, {1, 0, false}, {1, 60, false}};
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        char seen[40];
        const pj_api *api = open_version(cases[i].major, cases[i].minor, 140);
        assert_int_equal(api != NULL, cases[i].opens);
        const mu_error error = mu_error_take();
        assert_int_equal(error.code, cases[i].opens ? MU_OK : MU_FAILED_PRECONDITION);
        snprintf(seen, sizeof seen, "speaks PJRT %d.%d", cases[i].major, cases[i].minor);
        if (!cases[i].opens && (!strstr(error.message, seen) || !strstr(error.message, "0.54 or a later 0.x")))
            fail_msg("'%s' does not say which version is needed", error.message);
    }
}

static void test_tables_of_other_sizes(void **state)
{
    (void)state;
    enum { OLD = 90, FUTURE = 250 };
    assert_null(open_version(0, 81, PJ_PLUGIN_INITIALIZE));
    assert_non_null(strstr(mu_error_take().message, "it is damaged"));
    const pj_api *old = open_version(0, 60, OLD), *future = open_version(0, 300, FUTURE);
    assert_true(old && future);
    pj_program_memory_args args = PJ_ARGS(pj_program_memory_args, .peak = 0);
    assert_int_equal(mu__pjrt_call(old, PJ_EXECUTABLE_MEMORY_STATS, &args, "step"), MU_UNIMPLEMENTED);
    assert_non_null(strstr(mu_error_take().message, "the plugin (PJRT 0.60) lacks function 96"));
    assert_int_equal(mu__pjrt_call(future, PJ_EXECUTABLE_MEMORY_STATS, &args, "step"), MU_UNIMPLEMENTED);
    assert_non_null(strstr(mu_error_take().message, "step: the plugin says: no"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_range_of_versions),
                                       cmocka_unit_test(test_tables_of_other_sizes)};
    mu_init(.cpu_devices = 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
