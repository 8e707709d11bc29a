// Clusters of servers in the test's own process, with real sockets.
#ifndef MU_TESTS_SERVERS_TEST_H
#define MU_TESTS_SERVERS_TEST_H

#include "../rpc/rpc_test.h"

#include <unistd.h>

enum { MOST_PS = 8 };

// Makes a strategy with this worker and `n_ps` parameter servers, which live as long as the pool.
static inline mu_strategy *strategy_with_worker(mu_server *worker, int n_ps, mu_partitioner *partitioner)
{
    char text[64 * (MOST_PS + 2)];
    int used =
        snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [", mu_server_target(worker) + strlen("muster://"));
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

static inline mu_strategy *strategy_of_servers(int n_ps, mu_partitioner *partitioner)
{
    return strategy_with_worker(mu_server_create_local_server(true), n_ps, partitioner);
}

// The same with a worker and two servers whose variables have so many copies; the servers are returned for
// mu_server_stop.
static inline mu_strategy *strategy_of_two(mu_server *servers[2], int replicas)
{
    char text[200];
    for (int i = 0; i < 2; i++)
        servers[i] = mu_server_new(mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"local\": [\"localhost:0\"]}")));
    snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\", \"%s\"]}",
             mu_server_target(mu_server_create_local_server(true)) + strlen("muster://"),
             mu_server_target(servers[0]) + strlen("muster://"), mu_server_target(servers[1]) + strlen("muster://"));
    mu_strategy *strategy =
        mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)), .replicas = replicas);
    if (!strategy)
        fail_msg("%s", mu_error_message());
    return strategy;
}

static inline mu_strategy *strategy_with_copies(mu_server *servers[2]) { return strategy_of_two(servers, 1); }

static inline mu_ps_recovery recovery_of(mu_strategy *strategy)
{
    mu_ps_recovery recovery = {0};
    assert_int_equal(mu_parameter_server_recovery(strategy, &recovery), MU_OK);
    return recovery;
}

static inline void wait_for_copies(mu_strategy *strategy)
{
    for (int i = 0; i < 6000 && recovery_of(strategy).copies_behind > 0; i++)
        usleep(10000);
    assert_int_equal(recovery_of(strategy).copies_behind, 0);
}

// Addresses that nobody listens at, for strategies in one process.
static inline mu_cluster *cluster_of(int workers, int servers)
{
    char text[300];
    int used = snprintf(text, sizeof text, "{\"worker\": [");
    for (int i = 0; i < workers + servers; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s\"a:%d\"",
                         i == 0         ? ""
                         : i == workers ? "], \"ps\": ["
                                        : ", ",
                         i + 1);
    snprintf(text + used, sizeof text - (size_t)used, "]}");
    return mu_simple_cluster_resolver(mu_cluster_spec_parse(text));
}

#endif
