// CentralStorageStrategy: several replicas compute, one device holds the variables.
//
// Each variable has one component, a shared resource (ops/core/shared_resource.c). Rules in variables.c define
// assignments. Everything else is as for mirrored replicas (strategy_kinds.c).
#include "distribute/distribute.h"

// The default is all GPUs, or all devices of the plugin that MUSTER_PJRT names; one CPU if there are none.
static int default_devices(const char *function, int replicas, mu_device *devices[MU_MAX_REPLICAS])
{
    mu_device *first = NULL;
    const int available = mu__device_defaults(mu__runtime(), &first);
    if (available < 1)
        return -1;
    const bool host = strncmp(first->name, "CPU:", 4) == 0;
    return mu__first_devices(function, replicas > 0 || !host ? replicas : 1, first, available, devices);
}

mu_strategy *mu_central_storage_strategy_with(const mu_central_storage_strategy_args *given)
{
    static const char name[] = "mu_central_storage_strategy";
    mu_central_storage_strategy_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK ||
        mu__args_positive(&args, "replicas", args.replicas, name) != MU_OK)
        return NULL;
    mu_device *devices[MU_MAX_REPLICAS];
    const int n = args.compute_devices ? mu__named_devices(name, args.compute_devices, devices)
                                       : default_devices(name, args.replicas, devices);
    mu_device *parameters = n < 1                   ? NULL
                            : args.parameter_device ? mu__device_by_name(mu__runtime(), args.parameter_device)
                            : n == 1                ? devices[0]
                                                    : mu__device_by_name(mu__runtime(), "CPU:0");
    mu_strategy *strategy = parameters ? mu__strategy_new(&mu__central_ops, n, devices) : NULL;
    if (strategy)
        strategy->parameter_device = parameters;
    return mu__give(mu__strategy_announce(strategy));
}
