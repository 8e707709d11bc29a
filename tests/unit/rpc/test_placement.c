// The coordinator's part of stores with servers whose answers the test makes: what may not hold up a lost server.
#include "rpc/client.h"
#include "rpc/rpc.h"
#include "rpc/server.h"
#include "rpc/store.h"
#include "rpc_test.h"

#include <stdatomic.h>

enum { SERVERS = 2 };

static atomic_int n_restored;
static atomic_bool slow; // server 0 does not end a cut before this is false

// Of a store that the coordinator does not know.
static mu_value *state(mu_value *arguments, void *arg)
{
    const int64_t row[MU_N_STATE] = {[MU_STATE_STORE] = MU_MOST_STORES};
    (void)arguments, (void)arg;
    return mu__numbers_value(row, MU_N_STATE);
}

static mu_value *lead(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_LEAD];
    (void)arg;
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_LEAD), MU_OK);
    n_restored += head[MU_LEAD_ORDER] == MU_ORDER_RESTORE;
    return mu__numbers_value((int64_t[]){head[MU_LEAD_EPOCH], 0}, 2);
}

static mu_value *cut(mu_value *arguments, void *arg)
{
    const int64_t at = 0;
    (void)arguments;
    while (slow && arg != NULL)
        mu__sleep_ns(1000000);
    return mu__numbers_value(&at, 1);
}

static mu_rpc_server *start_server(int i)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    const mu_rpc_server_register_args methods[] = {{.name = "muster.store.state", .fn = state},
                                                   {.name = "muster.store.lead", .fn = lead},
                                                   {.name = "muster.store.cut", .fn = cut,
                                                    .arg = i == 0 ? &slow : NULL}};
    for (size_t k = 0; k < MU_COUNT(methods); k++)
        assert_int_equal(mu__server_add(server, &methods[k]), MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    return server;
}

static mu_rpc_client *client_of(mu_rpc_server *server)
{
    mu_rpc_client_args args = {.size = sizeof args, .rpc_layer = "muster", .address = mu_rpc_server_address(server),
                               .fail_fast = true};
    return mu__client_new(&args, MU_ROLE_COORDINATOR, MU_BEARER_ALL);
}

// Until so many snapshots are written and so many stores have gone back, or for some seconds.
static void step_until(mu_placement *placement, int64_t snapshots, int restored, double seconds)
{
    const int64_t limit_ns = mu__deadline_ns(seconds);
    while ((mu__placement_numbers(placement).snapshots < snapshots || n_restored < restored) &&
           mu__now_ns() < limit_ns) {
        mu__placement_step(placement);
        mu__sleep_ns(1000000);
    }
}

// One server takes long to write its part of a snapshot, and the other is lost: all go back to the one before at once.
static void test_a_slow_disk_does_not_hold_up_what_is_lost(void **state)
{
    mu_rpc_server *servers[SERVERS];
    mu_rpc_client *clients[SERVERS];
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < SERVERS; i++) {
        servers[i] = start_server(i);
        clients[i] = client_of(servers[i]);
    }
    mu_placement *placement = mu__placement_new(&(mu_placement_options){
        .n = SERVERS, .servers = clients, .snapshot_seconds = 0.01, .folder = "/nowhere", .heartbeat = 1});
    step_until(placement, 1, 0, 20);
    assert_true(mu__placement_numbers(placement).snapshots >= 1);
    slow = true;
    step_until(placement, INT64_MAX, 0, 0.1); // a cut has begun
    assert_int_equal(mu_rpc_server_stop(servers[1]), MU_OK);
    step_until(placement, 0, SERVERS, 5);
    const int restored = n_restored;
    slow = false;
    assert_int_equal(restored, SERVERS);
    mu_release(placement);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_slow_disk_does_not_hold_up_what_is_lost)};
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
