// What a server knows of a client whose connection has ended, when another client has its slot: a copy of variables
// takes over at once from a primary that has closed its connection, and waits for the lease of a silent one.
#include "rpc/rpc.h"
#include "rpc_test.h"

static mu_value *own_number(mu_value *arguments, void *arg)
{
    (void)arguments;
    *(uint64_t *)arg = mu__call_client();
    return number(1);
}

// Connects, has its number noted, and ends the connection; with one slot each gets the same one.
static void visit(const char *address)
{
    mu_pool *pool = mu_pool_open();
    mu_rpc_client *client = mu_rpc_client_new("muster", address);
    assert_true(mu_rpc_result_is_ok(mu_rpc_call(client, "own_number", number(0))));
    mu_pool_close(pool);
}

static void test_an_ended_client_stays_closed_when_its_slot_is_used_again(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    uint64_t now = 0;
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0", .max_clients = 2);
    mu_rpc_server_register(server, "own_number", .fn = own_number, .arg = &now);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    visit(mu_rpc_server_address(server));
    const uint64_t first = now;
    mu_rpc_client *one = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    mu_rpc_client *two = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    mu_rpc_client *both[] = {one, two};
    for (size_t i = 0; i < MU_COUNT(both); i++) {
        assert_true(mu_rpc_result_is_ok(mu_rpc_call(both[i], "own_number", number(0))));
        assert_int_equal(mu__server_client(server, now), MU_CLIENT_OPEN);
    }
    assert_int_equal(mu__server_client(server, first), MU_CLIENT_CLOSED);
    const uint64_t nobody = now + 1000; // numbers are given in the order in which connections are made
    assert_int_equal(mu__server_client(server, nobody), MU_CLIENT_SILENT);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_ended_client_stays_closed_when_its_slot_is_used_again),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
