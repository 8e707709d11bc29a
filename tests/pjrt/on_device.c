// Runs a unit test of another folder on the device that MU_TEST_DEVICE names: its eager ops, and its functions,
// variables and models that name no strategy. Linked with --wrap=mu_init_with, so that the tests need no change.
#include <muster.h>

#include <stdlib.h>

mu_status __real_mu_init_with(const mu_runtime_args *args);
mu_status __wrap_mu_init_with(const mu_runtime_args *args);

mu_status __wrap_mu_init_with(const mu_runtime_args *args)
{
    const char *device = getenv("MU_TEST_DEVICE");
    const mu_status status = __real_mu_init_with(args);
    return status == MU_OK && device ? mu_set_device(device) : status;
}
