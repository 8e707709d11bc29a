// What a server knows of a client whose connection has ended after another client has taken its slot: a copy of
// variables takes over at once from a primary that has closed its connection, and waits for the lease of a silent one.
// What follows from a connection that was reset, and from a server that cannot be dialled. Also when a coordinator
// counts as gone, so that its objects are freed.
#include "base/system.h"
#include "rpc/client/client.h"
#include "rpc/rpc.h"
#include "rpc/server/server.h"
#include "rpc_test.h"

#include <errno.h>
#include <unistd.h>

static mu_value *own_number(mu_value *arguments, void *arg)
{
    (void)arguments;
    *(uint64_t *)arg = mu__call_client();
    return number(1);
}

// Connects, records the client's number, and ends the connection; with one slot each client gets the same one.
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

// ---- Connections that end -----------------------------------------------------------------------

static mu_system system_of_test; // Linux, except for what a test changes
static atomic_int connect_error; // of every new connection; 0: the system's

static int connect_or_fail(const mu_endpoint *to, const mu_endpoints *own)
{
    errno = connect_error;
    return errno != 0 ? -1 : mu__linux.connect(to, own);
}

static bool no_memory_domain(char *text, size_t bytes)
{
    (void)text, (void)bytes;
    return false;
}

// Of an open connection.
static int socket_of(mu_member *member) { return mu__link_fd(member->session.handshake.link); }

static mu_client_state state_after_reset(mu_rpc_server *server, uint64_t *number_of)
{
    static const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    mu_client_state state = MU_CLIENT_OPEN;
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    assert_true(mu_rpc_result_is_ok(mu_rpc_call(client, "own_number", number(0))));
    const uint64_t connection = *number_of;
    pthread_mutex_lock(&client->lock);
    assert_int_equal(connect(socket_of(&client->member), &nowhere, sizeof nowhere), 0); // resets it
    pthread_mutex_unlock(&client->lock);
    for (int tries = 0; tries < 20000 && state == MU_CLIENT_OPEN; tries++, usleep(1000))
        state = mu__server_client(server, connection);
    return state;
}

// A process that dies with unread input resets its connections, but a network may reset them too. Between processes of
// one host there is no network.
static void test_a_reset_is_an_end_on_one_host(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= 2; hosts++) {
        mu_pool *pool = mu_pool_open();
        uint64_t now = 0;
        system_of_test.memory_domain = hosts == 1 ? mu__linux.memory_domain : no_memory_domain;
        mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
        mu_rpc_server_register(server, "own_number", .fn = own_number, .arg = &now);
        assert_int_equal(mu_rpc_server_start(server), MU_OK);
        assert_int_equal(state_after_reset(server, &now), hosts == 1 ? MU_CLIENT_CLOSED : MU_CLIENT_SILENT);
        mu_pool_close(pool);
    }
    system_of_test.memory_domain = mu__linux.memory_domain;
}

// Returns whether the client thinks that its server's process is gone, after it has dialled again.
static bool is_gone(mu_rpc_client *client)
{
    bool gone = false, tried = false;
    for (int tries = 0; tries < 20000 && !tried; tries++, usleep(1000)) {
        assert_int_equal(mu__client_server(client, &gone), 0);
        pthread_mutex_lock(&client->lock);
        tried = client->tried;
        client->tried = false;
        pthread_mutex_unlock(&client->lock);
    }
    assert_true(tried);
    mu__client_server(client, &gone);
    return gone;
}

static void wait_for_end(mu_rpc_client *client)
{
    for (int tries = 0; tries < 20000 && mu_rpc_client_server(client) != 0; tries++)
        usleep(1000);
}

// The server closes the connection, as when it dies. Failing to dial it proves its end only if its host refuses the
// connection.
static void test_who_refuses_connections_is_gone(void **state)
{
    static const int reasons[] = {EHOSTUNREACH, EMFILE, ETIMEDOUT};
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    assert_non_null(mu_rpc_client_methods(client));
    connect_error = reasons[0];
    pthread_mutex_lock(&server->lock);
    assert_int_equal(shutdown(socket_of(server->node.members[0]), SHUT_WR), 0);
    pthread_mutex_unlock(&server->lock);
    wait_for_end(client);
    for (size_t i = 0; i < MU_COUNT(reasons); i++) {
        connect_error = reasons[i];
        is_gone(client); // an earlier dial may have failed with the earlier reason
        assert_false(is_gone(client));
    }
    connect_error = ECONNREFUSED;
    is_gone(client);
    assert_true(is_gone(client));
    connect_error = 0; // another process, or the same one: it is there
    assert_true(mu_rpc_result_is_ok(mu_rpc_call(client, "muster.methods")));
    bool gone;
    assert_true(mu__client_server(client, &gone) != 0 && !gone);
    mu_pool_close(pool);
}

// ---- Coordinators -------------------------------------------------------------------------------

static void count(void *arg) { ++*(int *)arg; }

// Begins or ends a connection as the server sees it.
static mu_connection *joins(mu_rpc_server *server, int i, mu_role role)
{
    mu_connection *connection = &server->connections[i];
    connection->member.session.role = role;
    mu__owner_joined(server, connection);
    return connection;
}

static void leaves(mu_rpc_server *server, mu_connection *connection, bool closed)
{
    connection->member.session.closed_there = closed;
    mu__owner_left(server, connection);
}

static void expect_freed_between(mu_rpc_server *server, const int *n_freed, double not_after, double after)
{
    const int before = *n_freed;
    const int64_t now = mu__now_ns();
    assert_true(mu__server_free_orphans(server, now + (int64_t)(not_after * 1e9)) != MU_FOREVER);
    assert_int_equal(*n_freed, before);
    mu__server_free_orphans(server, now + (int64_t)(after * 1e9));
    assert_int_equal(*n_freed, before + 1);
    mu__server_free_orphans(server, now + (int64_t)(2 * after * 1e9));
    assert_int_equal(*n_freed, before + 1);
}

// The heartbeat is 30 s and MUSTER_TIMEOUT 600 s.
static void test_when_a_coordinator_is_gone(void **state)
{
    int n_freed = 0;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(mu__server_owned(server, count, &n_freed), MU_OK);
    leaves(server, joins(server, 0, MU_ROLE_WORKER), true);
    leaves(server, joins(server, 0, MU_ROLE_NONE), true);
    assert_true(mu__server_free_orphans(server, mu__now_ns() + (int64_t)1e15) == MU_FOREVER && n_freed == 0);
    leaves(server, joins(server, 0, MU_ROLE_COORDINATOR), true);
    expect_freed_between(server, &n_freed, 29, 31);
    leaves(server, joins(server, 0, MU_ROLE_COORDINATOR), false); // it was silent
    expect_freed_between(server, &n_freed, 599, 601);
    mu_connection *first = joins(server, 0, MU_ROLE_COORDINATOR), *second = joins(server, 1, MU_ROLE_COORDINATOR);
    leaves(server, first, true);
    assert_true(mu__server_free_orphans(server, mu__now_ns()) == MU_FOREVER); // another connection is there
    leaves(server, second, true);
    joins(server, 0, MU_ROLE_COORDINATOR); // it is back
    assert_true(mu__server_free_orphans(server, mu__now_ns() + (int64_t)1e15) == MU_FOREVER && n_freed == 2);
    mu_pool_close(pool);
}

// ---- A coordinator that comes at that moment ----------------------------------------------------

typedef struct freeing {
    mu_rpc_server *server;
    atomic_int n_begun, n_ended;
    atomic_bool may_end, cleared;
} freeing;

static void free_slowly(void *arg)
{
    freeing *f = arg;
    f->n_begun++;
    while (!f->may_end)
        usleep(1000);
    f->n_ended++;
}

static void *free_orphans(void *arg)
{
    freeing *f = arg;
    mu__server_free_orphans(f->server, mu__now_ns() + (int64_t)1e15);
    return NULL;
}

static void *clear(void *arg)
{
    freeing *f = arg;
    mu__server_free_owned(f->server);
    f->cleared = true;
    return NULL;
}

// A coordinator begins by clearing the server; the objects that it makes after that are kept.
static void test_a_clear_waits_for_the_end_of_another(void **state)
{
    pthread_t orphans, clearing;
    (void)state;
    mu_pool *pool = mu_pool_open();
    freeing f = {.server = mu_rpc_server_new("muster", "localhost:0")};
    assert_int_equal(mu__server_owned(f.server, free_slowly, &f), MU_OK);
    leaves(f.server, joins(f.server, 0, MU_ROLE_COORDINATOR), true);
    assert_int_equal(pthread_create(&orphans, NULL, free_orphans, &f), 0);
    while (f.n_begun == 0)
        usleep(1000);
    joins(f.server, 0, MU_ROLE_COORDINATOR);
    assert_int_equal(pthread_create(&clearing, NULL, clear, &f), 0);
    usleep(20000);
    assert_int_equal(f.n_begun, 1);
    f.may_end = true;
    pthread_join(orphans, NULL);
    pthread_join(clearing, NULL);
    assert_true(f.cleared && f.n_ended == 2);
    mu_pool_close(pool);
}

static int start(void **state)
{
    system_of_test = mu__linux;
    system_of_test.connect = connect_or_fail;
    mu__system = &system_of_test;
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reset_is_an_end_on_one_host),
        cmocka_unit_test(test_who_refuses_connections_is_gone),
        cmocka_unit_test(test_an_ended_client_stays_closed_when_its_slot_is_used_again),
        cmocka_unit_test(test_when_a_coordinator_is_gone),
        cmocka_unit_test(test_a_clear_waits_for_the_end_of_another),
    };
    return cmocka_run_group_tests(tests, start, end_library);
}
