// Where functions with .jit_compile run: on the strategy's own devices if a compiler makes their programs anyway, else,
// for CPU devices, on those of XLA's plugin for processors with the same numbers.
//
// Variables are where a run acquires them, so they move to the plugin's devices and back as any others do.
#include "distribute/run/replica_run.h"

static mu_device *compiled_device(const mu_device *device, const mu_function *function)
{
    char name[32];
    mu_error_value reason;
    if (device->engine->launch)
        return (mu_device *)device;
    snprintf(name, sizeof name, "XLA_CPU:%d", device->index);
    mu_device *found = mu__device_by_name(mu__runtime(), name);
    if (found)
        return found;
    mu__error_move(&reason);
    mu__error(MU_FAILED_PRECONDITION,
              "'%s' has .jit_compile = true, but there is no %s whose compiler could replace %s: %s. `muster plugin "
              "install cpu` installs the compiler; MUSTER_CPU_DEVICES=n is the number of its devices",
              mu_function_name(function), name, device->name, reason.message);
    return NULL;
}

mu_device *const *mu__devices_for(mu_strategy *strategy, const mu_function *function)
{
    if (!mu__function_jit_compile(function))
        return strategy->devices;
    pthread_mutex_lock(&strategy->order);
    if (!strategy->compiled_devices) {
        mu_device **devices = mu__calloc((size_t)strategy->n_local, sizeof(mu_device *));
        for (int r = 0; devices && r < strategy->n_local; r++)
            if (!(devices[r] = compiled_device(strategy->devices[r], function))) {
                mu__free(devices);
                devices = NULL;
            }
        strategy->compiled_devices = devices;
    }
    mu_device *const *devices = strategy->compiled_devices;
    pthread_mutex_unlock(&strategy->order);
    return devices;
}
