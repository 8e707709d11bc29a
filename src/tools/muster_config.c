// `muster config`: prints the settings and the cluster that a program started here would use; a configuration that
// cannot work is an error that says what to change.
#include "cluster/cluster.h"
#include "tools/tools.h"

static bool run(const mu_tool_arguments *a)
{
    (void)a;
    mu__settings_print(stdout);
    putchar('\n');
    mu__cluster_sources_print(stdout);
    putchar('\n');
    mu_cluster *cluster = mu_cluster_from_environment();
    return cluster != NULL && mu__cluster_print(cluster, stdout) == MU_OK;
}

const mu_tool_command mu__tool_config = {
    .name = "muster config",
    .usage = "",
    .summary = "print every setting with its value, its origin and its meaning",
    .description = "Prints the settings that a program started here would use, one per line: name, value, origin "
                   "(default or environment) and meaning. Then it prints the sources of a cluster's description in the "
                   "order in which they are tried, and the cluster that they give. A configuration that cannot work is "
                   "an error that says what to change.",
    .example = "MUSTER_THREADS=4 muster config\n",
    .run = run,
};
