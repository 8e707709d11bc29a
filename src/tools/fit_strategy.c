// The strategies of `muster fit --strategy NAME`: each by its name, on the devices and the cluster of this process.
#include "tools/fit_data.h"

#include <muster/cluster.h>
#include <muster/parameter_server.h>
#include <muster/tpu_strategy.h>

static mu_strategy *one_device(void) { return mu_one_device_strategy("CPU:0"); }
static mu_strategy *mirrored(void) { return mu_mirrored_strategy(); }
static mu_strategy *central_storage(void) { return mu_central_storage_strategy(); }
static mu_strategy *multi_worker(void) { return mu_multi_worker_mirrored_strategy(); }

// On the cluster that the environment describes; without one, two workers and a server are threads of this process.
static mu_strategy *parameter_server(void)
{
    mu_cluster *cluster = mu_cluster_from_environment();
    if (!cluster || mu_cluster_spec_job_count(mu_cluster_get_spec(cluster)) > 0)
        return cluster ? mu_parameter_server_strategy(cluster) : NULL;
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"w0:1\", \"w1:1\"], \"ps\": [\"p0:1\"]}");
    return spec ? mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), .in_process = true) : NULL;
}

static mu_strategy *tpu(void)
{
    mu_cluster *cores = mu_tpu_cluster_resolver(.tpu = "");
    if (!cores || mu_connect_to_cluster(cores) != MU_OK || !mu_tpu_initialize(cores))
        return NULL;
    return mu_tpu_strategy(cores);
}

const char *const mu__fit_strategies[] = {"default",      "one_device",       "mirrored", "central_storage",
                                          "multi_worker", "parameter_server", "tpu",      NULL};

mu_strategy *mu__fit_strategy(int which)
{
    static mu_strategy *(*const make[])(void) = {NULL,         one_device,       mirrored, central_storage,
                                                 multi_worker, parameter_server, tpu};
    return make[which] ? make[which]() : NULL;
}
