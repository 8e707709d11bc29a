// `muster devices`: prints the logical devices of a runtime with default settings, and the cores of each.
#include "engine/engine.h"
#include "tools/tools.h"

// Writes cores as ranges: "0-3,8".
static void print_cores(const int *cpus, int n)
{
    for (int i = 0; i < n;) {
        int last = i;
        while (last + 1 < n && cpus[last + 1] == cpus[last] + 1)
            last++;
        printf("%s%d", i > 0 ? "," : "", cpus[i]);
        if (last > i)
            printf("-%d", cpus[last]);
        i = last + 1;
    }
    putchar('\n');
}

static bool run(const mu_tool_arguments *a)
{
    (void)a;
    mu_runtime *runtime = mu__runtime();
    const int count = mu__device_count(runtime);
    if (mu__pending())
        return false;
    printf("%-10s %-8s %8s  %s\n", "device", "engine", "threads", "cores");
    for (int i = 0; i < count; i++) {
        const mu_device *device = mu__device_at(runtime, i);
        if (!device)
            return false;
        printf("%-10s %-8s %8d  ", device->name, device->engine->name, device->team.n_threads);
        print_cores(device->cpus, device->n_cpus);
    }
    return true;
}

const mu_tool_command mu__tool_devices = {
    .name = "muster devices",
    .usage = "",
    .summary = "list the devices that a program would see here",
    .description = "Prints the logical devices of a program that starts here with the same environment: name, engine, "
                   "number of computing threads, and the cores that these run on.",
    .example = "MUSTER_CPU_DEVICES=2 muster devices\n",
    .run = run,
};
