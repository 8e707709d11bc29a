// CentralStorageStrategy: several replicas compute, one device holds the variables.
//
// Each variable has one component, a shared resource (ops/core/shared_resource.c). Rules in variables.c define
// assignments. Everything else is as for mirrored replicas (slots.c).
#include "distribute/distribute.h"

// XLA devices come first; the default is all of them, or one CPU if there are none.
static int default_devices(mu_device **devices, int available)
{
    const bool host = strncmp(mu__device_at(mu__runtime(), 0)->name, "CPU:", 4) == 0;
    return mu__first_devices("mu_central_storage_strategy", host ? 1 : available, devices, available);
}

mu_strategy *mu_central_storage_strategy_with(const mu_central_storage_strategy_args *given)
{
    static const char name[] = "mu_central_storage_strategy";
    mu_central_storage_strategy_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK)
        return NULL;
    const int available = mu__device_count(mu__runtime());
    mu_device **devices = mu__alloc(sizeof *devices * (size_t)MU_MAX(available, MU_MAX_REPLICAS));
    mu_strategy *strategy = NULL;
    if (available < 1 || !devices)
        goto out;
    const int n = args.compute_devices ? mu__named_devices(name, args.compute_devices, devices)
                  : args.replicas      ? mu__first_devices(name, args.replicas, devices, available)
                                       : default_devices(devices, available);
    mu_device *parameters = n < 1                   ? NULL
                            : args.parameter_device ? mu__device_by_name(mu__runtime(), args.parameter_device)
                            : n == 1                ? devices[0]
                                                    : mu__device_by_name(mu__runtime(), "CPU:0");
    strategy = parameters ? mu__strategy_new(&mu__central_ops, n, devices) : NULL;
    if (strategy)
        strategy->parameter_device = parameters;
out:
    mu__free(devices);
    return mu__give(mu__strategy_announce(strategy));
}
