// Fuzzes what the environment says about a cluster: TF_CONFIG with the checks on it, and the lists of Slurm and
// SageMaker.
#include "cluster/cluster.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

static void try_json(const char *text)
{
    static const mu_resolver_ops ops = {.source = "the input", .read = mu__read_fixed};
    mu_pool *pool = mu_pool_open();
    mu_cluster *cluster = mu__tf_config_from(text, &ops);
    demand((cluster == NULL) == (mu_error_take().code != MU_OK));
    if (cluster != NULL) {
        const mu_status status = mu_cluster_check(cluster);
        demand(status == mu_error_take().code);
        const char *json = mu_cluster_spec_json(mu_cluster_get_spec(cluster));
        // What was read can be written, and read again to the same.
        mu_cluster_spec *again = mu_cluster_spec_parse(json);
        demand(json != NULL && again != NULL && strcmp(json, mu_cluster_spec_json(again)) == 0);
    }
    mu_release(cluster);
    mu_pool_close(pool);
}

static void try_sagemaker(const char *text)
{
    mu_pool *pool = mu_pool_open();
    setenv("SM_HOSTS", text, 1);
    setenv("SM_CURRENT_HOST", "a", 1);
    mu_cluster_spec *spec = mu_cluster_get_spec(mu_sagemaker_cluster_resolver());
    demand((spec == NULL) == (mu_error_take().code != MU_OK));
    mu_pool_close(pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (text == NULL)
        abort();
    if (bytes > 0)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    try_json(text);
    try_sagemaker(text);
    mu_hosts hosts;
    const mu_status read = mu__hostlist_expand(text, &hosts);
    demand(read == mu_error_take().code);
    mu__hosts_free(&hosts);
    mu_counts counts;
    const mu_status counted = mu__tasks_per_node_expand(text, &counts);
    demand(counted == mu_error_take().code);
    mu__free(counts.items);
    free(text);
    return 0;
}
