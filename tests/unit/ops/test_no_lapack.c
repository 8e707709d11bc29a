// A machine without LAPACK: functions that need it fail with that reason, as with an incompatible installation, and the
// rest works.
#include "../base/base_test.h"

#include <muster.h>

#include <dlfcn.h>

// Replaces the system's functions: no library can be opened.
void *dlopen(const char *name, int flags)
{
    (void)name, (void)flags;
    return NULL;
}

char *dlerror(void)
{
    static char why[] = "no such file";
    return why;
}

static void a_spectral_norm_needs_lapack(void **state)
{
    (void)state;
    assert_int_equal(mu_init(.cpu_devices = 1), MU_OK);
    mu_tensor *matrix = mu_ones(MU_F64, 2, (const int64_t[]){2, 3});
    assert_null(mu_norm(matrix, 2, .axes = (const int[]){0, 1}, .n_axes = 2));
    assert_taken(MU_FAILED_PRECONDITION, "LAPACK");
    assert_true(mu_scalar(mu_norm(matrix, 1, .axes = (const int[]){0, 1}, .n_axes = 2)) == 2);
    assert_int_equal(mu_exit(true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_spectral_norm_needs_lapack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
