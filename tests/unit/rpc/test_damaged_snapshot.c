// A snapshot that servers cannot read is tried again less and less often, until they can. The servers are of the test.
#include "base/system.h"
#include "rpc/stores/store.h"

#include "rpc_test.h"

#include <stdatomic.h>

enum { N = 2, MOST_TRIES = 30, LIMIT_S = 30 };

static atomic_bool damaged;
static atomic_int n_tries; // to go back

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
    n_tries += head[MU_LEAD_ORDER] == MU_ORDER_RESTORE;
    if (head[MU_LEAD_ORDER] != MU_ORDER_RESTORE || !damaged)
        return mu__numbers_value((int64_t[]){head[MU_LEAD_EPOCH], 0}, 2);
    mu__error(MU_DATA_LOSS, "the file is damaged");
    return NULL;
}

static mu_value *cut(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu__numbers_value((int64_t[]){0}, 1);
}

static mu_rpc_server *start_server(void)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    const mu_rpc_server_register_args methods[] = {{.name = "muster.store.state", .fn = state},
                                                   {.name = "muster.store.lead", .fn = lead},
                                                   {.name = "muster.store.cut", .fn = cut}};
    for (size_t i = 0; i < MU_COUNT(methods); i++)
        assert_int_equal(mu__server_add(server, &methods[i]), MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    return server;
}

#define STEP_UNTIL(placement, condition, seconds)                                                                     \
    for (int64_t limit_ns = mu__deadline_ns(seconds); !(condition) && mu__now_ns() < limit_ns; mu__sleep_ns(1000000)) \
    mu__placement_step(placement)

static void test_tries_become_fewer(void **state_of_test)
{
    mu_rpc_server *servers[N];
    mu_rpc_client *clients[N];
    (void)state_of_test;
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < N; i++) {
        servers[i] = start_server();
        clients[i] = mu_rpc_client_new("muster", mu_rpc_server_address(servers[i]), .fail_fast = true);
    }
    mu_placement *placement = mu__placement_new(&(mu_placement_options){
        .n = N, .servers = clients, .snapshot_seconds = 0.02, .folder = "/nowhere", .heartbeat = 2});
    STEP_UNTIL(placement, mu__placement_numbers(placement).snapshots > 0, LIMIT_S);
    damaged = true;
    assert_int_equal(mu_rpc_server_stop(servers[1]), MU_OK);
    STEP_UNTIL(placement, n_tries > 0, LIMIT_S);
    STEP_UNTIL(placement, false, 1);
    assert_true(n_tries > 2 && n_tries < MOST_TRIES);
    assert_int_equal(mu__placement_numbers(placement).restores, 0);
    damaged = false;
    STEP_UNTIL(placement, mu__placement_numbers(placement).restores == N, LIMIT_S);
    assert_int_equal(mu__placement_numbers(placement).restores, N);
    mu_release(placement);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tries_become_fewer)};
    return cmocka_run_group_tests_name("rpc/damaged_snapshot", tests, start_with_key, end_library);
}
