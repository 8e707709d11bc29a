// What MUSTER_LOG=info says about strategies, in the words of TensorFlow's log: the devices and the communication that
// a strategy uses, once when it is made; the all-reduces of a step, once when it is traced.
#include "distribute/distribute.h"

enum { DEVICES_BYTES = 400 };

// Writes "CPU:0, CPU:1"; with very many devices the rest is a number.
static void list_devices(const mu_strategy *strategy, char text[DEVICES_BYTES])
{
    size_t used = 0;
    for (int i = 0; i < strategy->n_local; i++) {
        const char *name = strategy->devices[i]->name;
        if (used + strlen(name) + 24 > DEVICES_BYTES) {
            snprintf(text + used, DEVICES_BYTES - used, " and %d more", strategy->n_local - i);
            return;
        }
        used += (size_t)snprintf(text + used, DEVICES_BYTES - used, "%s%s", i > 0 ? ", " : "", name);
    }
}

mu_strategy *mu__strategy_announce(mu_strategy *strategy)
{
    char devices[DEVICES_BYTES] = "", workers[100] = "", variables[100] = "";
    if (!strategy || !mu__log_enabled(MU_LOG_INFO))
        return strategy;
    list_devices(strategy, devices);
    if (strategy->n_replicas > strategy->n_local)
        snprintf(workers, sizeof workers, ", worker %d of %d, %d replicas in all", mu_strategy_worker_index(strategy),
                 mu_strategy_worker_count(strategy), strategy->n_replicas);
    if (strategy->parameter_device)
        snprintf(variables, sizeof variables, ", variables on %s", strategy->parameter_device->name);
    mu__log(MU_LOG_INFO, "Using %s with devices %s%s%s; communication: %s", mu_strategy_name(strategy), devices,
            variables, workers, strategy->group ? mu__group_path(strategy->group) : "none, one replica");
    return strategy;
}

void mu__batch_add(mu_batch_summary *summary, const mu_strategy *strategy, mu_dtype dtype, int64_t elements)
{
    const char *name = strategy->group ? mu__group_algorithm(strategy->group, dtype, elements) : "none";
    const size_t used = strlen(summary->algorithms);
    summary->packs++;
    if (!strstr(summary->algorithms, name))
        snprintf(summary->algorithms + used, sizeof summary->algorithms - used, "%s%s", used > 0 ? " and " : "", name);
}

void mu__batch_log(const mu_batch_summary *summary, int n)
{
    mu__log(MU_LOG_INFO, "batch_all_reduce: %d all-reduces with algorithm = %s, num_packs = %d", n,
            summary->algorithms, summary->packs);
}
