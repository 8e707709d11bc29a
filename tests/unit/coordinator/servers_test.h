// Clusters of servers in the test's own process, with real sockets.
#ifndef MU_TESTS_SERVERS_TEST_H
#define MU_TESTS_SERVERS_TEST_H

#include "../rpc/rpc_test.h"

enum { MOST_PS = 8 };

// A strategy with one worker and so many parameter servers, which live as long as the pool.
static inline mu_strategy *strategy_of_servers(int n_ps, mu_partitioner *partitioner)
{
    char text[64 * (MOST_PS + 2)];
    int used = snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [",
                        mu_server_target(mu_server_create_local_server(true)) + strlen("muster://"));
    for (int i = 0; i < n_ps; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s\"%s\"", i > 0 ? ", " : "",
                         mu_server_target(mu_server_create_local_server(true)) + strlen("muster://"));
    snprintf(text + used, sizeof text - (size_t)used, "]}");
    mu_strategy *strategy =
        mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)), partitioner);
    if (!strategy)
        fail_msg("%s", mu_error_message());
    return strategy;
}

#endif
