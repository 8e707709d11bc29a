// `muster config`: prints the settings and the cluster that a program started here would use; a configuration that
// cannot work is an error that says what to change.
#include "cluster/cluster.h"
#include "tools/tools.h"

bool mu__tool_config(int n, char **arguments)
{
    if (!mu__tool_no_arguments("config", n, arguments))
        return false;
    mu__settings_print(stdout);
    putchar('\n');
    mu__cluster_sources_print(stdout);
    putchar('\n');
    mu_cluster *cluster = mu_cluster_from_environment();
    return cluster != NULL && mu__cluster_print(cluster, stdout) == MU_OK;
}
