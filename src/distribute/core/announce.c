// What MUSTER_LOG=info says about strategies, in the words of TensorFlow's log: the devices and the communication that
// a strategy uses, once when it is made; the all-reduces of a step, once when it is traced.
#include "distribute/distribute.h"
#include "ops/nn/nn.h"

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

// Adds the name of an algorithm to a list of different ones.
static void add_algorithm(char *algorithms, size_t bytes, const char *name)
{
    const size_t used = strlen(algorithms);
    if (!strstr(algorithms, name))
        snprintf(algorithms + used, bytes - used, "%s%s", used > 0 ? " and " : "", name);
}

void mu__reductions_announce(const mu_strategy *strategy, mu_concrete *concrete)
{
    char algorithms[80] = "";
    int reductions = 0, packs = 0;
    if (concrete->announced || !mu__log_enabled(MU_LOG_INFO))
        return;
    concrete->announced = true;
    for (size_t i = 0; i < concrete->graph->nodes.n; i++) {
        const mu_node *node = concrete->graph->nodes.items[i];
        if (node->op != &mu_op_all_reduce || ((const mu_all_reduce_attrs *)node->attrs)->pack_bytes == 0)
            continue;
        int64_t elements = 0;
        for (int k = 0; k < node->n_out; k++)
            elements += mu__shape_known(&node->out[k].shape) ? mu__elements(&node->out[k].shape) : 0;
        add_algorithm(algorithms, sizeof algorithms,
                      strategy->group ? mu__group_algorithm(strategy->group, node->out[0].dtype, elements) : "none");
        reductions += node->n_in;
        packs++;
    }
    if (packs > 0)
        mu__log(MU_LOG_INFO, "batch_all_reduce: %d all-reduces with algorithm = %s, num_packs = %d", reductions,
                algorithms, packs);
}
