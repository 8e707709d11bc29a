// Runs a test of another folder on a plugin's device, without its knowing: linked with --wrap=mu_init_with and
// --wrap=_cmocka_run_group_tests.
//
// MU_TEST_DEVICE names the device of its eager ops, and of its functions, variables and models that name no strategy.
// MU_TEST_WITHOUT names the cases that are left out, between blanks. A case that does not exist is an error.
#include <muster.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

mu_status __real_mu_init_with(const mu_runtime_args *args);
mu_status __wrap_mu_init_with(const mu_runtime_args *args);

mu_status __wrap_mu_init_with(const mu_runtime_args *args)
{
    const char *device = getenv("MU_TEST_DEVICE");
    const mu_status status = __real_mu_init_with(args);
    return status == MU_OK && device ? mu_set_device(device) : status;
}

int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);

// Takes the cases with this name away; returns how many there were.
static size_t take_away(struct CMUnitTest *tests, size_t *n, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (strcmp(tests[i].name, name) != 0)
            tests[kept++] = tests[i];
    const size_t taken = *n - kept;
    *n = kept;
    return taken;
}

int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                                   CMFixtureFunction teardown)
{
    enum { MOST = 200 };
    struct CMUnitTest kept[MOST];
    char names[4096], *rest = names;
    const char *without = getenv("MU_TEST_WITHOUT");
    if (n > MOST)
        return EXIT_FAILURE;
    memcpy(kept, tests, sizeof *tests * n);
    snprintf(names, sizeof names, "%s", without ? without : "");
    for (const char *name; (name = strsep(&rest, " ")) != NULL;)
        if (*name && take_away(kept, &n, name) == 0) {
            fprintf(stderr, "MU_TEST_WITHOUT: %s has no case '%s'\n", group, name);
            return EXIT_FAILURE;
        }
    return __real__cmocka_run_group_tests(group, kept, n, setup, teardown);
}
