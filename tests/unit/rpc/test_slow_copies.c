// Copies that are slow to accept their primary's messages: the bytes that wait for them are bounded, no update is lost,
// and a copy that makes progress is not given up.
#include "copies_test.h"

#include <stdatomic.h>

enum { MORE_UPDATES = 4, ALL_MESSAGES = 1 << 30, LARGE_MIB = 64 };

// Returns whether an update is acknowledged; if not, its answer waits for the copy.
static bool is_acknowledged(updates *u, mu_rpc_result *result)
{
    bool waits = false;
    for (int i = 0; i < 20000 && !waits && !mu_rpc_result_is_done(result); i++) {
        mu__sleep_ns(1000000);
        pthread_mutex_lock(&u->store->stores->lock);
        waits = u->store->first_waiting != NULL && !mu__copying_keeps_up(u->store);
        pthread_mutex_unlock(&u->store->stores->lock);
    }
    return !waits;
}

// Makes updates until one waits for the copy; returns how many were acknowledged. Asserts nothing, because the copy is
// stopped meanwhile.
static int update_until_one_waits(updates *u)
{
    const int before = u->n;
    bool acknowledged = true;
    while (acknowledged && u->n < MOST_UPDATES - MORE_UPDATES) {
        renew_lease(&u->e);
        acknowledged = is_acknowledged(u, update_later(u));
    }
    return u->n - before - !acknowledged;
}

static size_t bytes_that_wait(const updates *u)
{
    pthread_mutex_lock(&u->store->stores->lock);
    const size_t bytes = u->store->outbound.bytes;
    pthread_mutex_unlock(&u->store->stores->lock);
    return bytes;
}

static void create_large(updates *u, int mib)
{
    expect_answer(ask(&u->e, u->e.coordinator, EPOCH, 0, "muster.variable.create", arguments_of_large(mib)), EPOCH, 0,
                  MU_OK);
}

// The copy's server is stopped while its first transfer is on its way: the updates that the primary keeps for it are
// bounded, and none of them is lost.
static void test_a_copy_that_stands_still(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    mu_rpc_server *server;
    mu_store *copy = start_copy(&server);
    pthread_mutex_lock(&copy->changing);
    give_copy(&u, server, mu__stores_process(copy->stores));
    const int acknowledged = update_until_one_waits(&u);
    for (int i = 0; i < MORE_UPDATES; i++)
        update_later(&u);
    const size_t wait = bytes_that_wait(&u);
    pthread_mutex_unlock(&copy->changing);
    assert_in_range(acknowledged, MU_COPY_FREE_BYTES / UPDATE_BYTES - 1, MU_COPY_FREE_BYTES / UPDATE_BYTES);
    assert_in_range(wait, MU_COPY_FREE_BYTES, MU_COPY_FREE_BYTES + (MORE_UPDATES + 3) * UPDATE_BYTES);
    expect_all_acknowledged(&u);
    wait_until_complete(&u);
    expect_same(u.store, copy);
    mu_release(u.w);
    mu_pool_close(pool);
}

// An assignment keeps the memory in which its value arrived, and an update may change it there: bytes that are still to
// be sent to the copy must not change.
static void test_an_update_follows_an_assignment_that_waits(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    mu_rpc_server *server;
    mu_store *copy = start_copy(&server);
    give_copy(&u, server, mu__stores_process(copy->stores));
    wait_until_complete(&u);
    const int64_t before = u.store->applied;
    pthread_mutex_lock(&copy->changing);
    apply_later(&u, &mu_op_assign_variable, 1);
    wait_until_made(&u, before + 1);
    apply_later(&u, &mu_op_assign_variable, 2); // behind the first, which is on its way
    wait_until_made(&u, before + 2);
    apply_later(&u, &mu_op_assign_add_variable, 3);
    wait_until_made(&u, before + 3);
    pthread_mutex_unlock(&copy->changing);
    expect_all_acknowledged(&u);
    expect_same(u.store, copy);
    mu_release(u.w);
    mu_pool_close(pool);
}

static atomic_int n_taken, n_allowed; // messages for a copy: acknowledged, and to be acknowledged
static atomic_size_t largest;         // of them, in bytes
static atomic_bool holds_large;       // one of LARGE_MIB is not acknowledged before this is false

static mu_value *take_when_allowed(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_COPY];
    (void)arg;
    const size_t bytes = read_copy_message(arguments, head);
    largest = MU_MAX(largest, bytes);
    while (n_taken >= n_allowed || (holds_large && bytes > UPDATE_BYTES * LARGE_MIB))
        mu__sleep_ns(1000000);
    n_taken++;
    return mu__numbers_value((int64_t[]){head[MU_COPY_EPOCH], MU_OK}, 2);
}

// Waits until the primary has the copy's answers.
static void let_take(updates *u, int messages)
{
    int64_t position = 0;
    n_allowed += messages;
    for (int i = 0; i < 20000 && position < n_allowed; i++) {
        mu__sleep_ns(1000000);
        pthread_mutex_lock(&u->store->stores->lock);
        position = u->store->position;
        pthread_mutex_unlock(&u->store->stores->lock);
    }
    assert_int_equal(position, n_allowed);
}

static mu_rpc_server *start_taking(void)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(
        mu__server_add(server, &(mu_rpc_server_register_args){.name = "muster.store.copy", .fn = take_when_allowed}),
        MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    n_taken = n_allowed = 0;
    largest = 0;
    return server;
}

// A copy accepts its primary's state slowly: updates continue at half the speed, in messages for which a server has
// room.
static void test_updates_go_half_as_fast_as_a_slow_copy(void **state)
{
    enum { OF_STATE = 40, TAKEN = 20, BEFORE = 2 }; // BEFORE: the beginning, and "v"
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(OF_STATE);
    mu_rpc_server *server = start_taking();
    give_copy(&u, server, 0);
    const int first = update_until_one_waits(&u);
    let_take(&u, BEFORE + TAKEN);
    const int more = update_until_one_waits(&u);
    let_take(&u, OF_STATE - TAKEN + 1); // the rest of the state, and the table of requests
    const size_t wait = bytes_that_wait(&u);
    pthread_mutex_lock(&u.store->stores->lock);
    const bool complete = u.store->complete;
    pthread_mutex_unlock(&u.store->stores->lock);
    n_allowed = ALL_MESSAGES;
    assert_false(complete); // all answers would wait until the rest is sent
    assert_in_range(first, MU_COPY_FREE_BYTES / UPDATE_BYTES - 1, MU_COPY_FREE_BYTES / UPDATE_BYTES);
    assert_in_range(more, TAKEN / 2 - 2, TAKEN / 2 + 1);
    assert_in_range(wait, MU_COPY_FREE_BYTES, MU_COPY_FREE_BYTES + OF_STATE / 2 * UPDATE_BYTES);
    expect_all_acknowledged(&u);
    wait_until_complete(&u);
    assert_in_range(largest, UPDATE_BYTES, 5 * UPDATE_BYTES);
    mu_release(u.w);
    mu_pool_close(pool);
}

static atomic_bool arrived;

// Lets a server accept some parts of its input four times per second.
static void *slow_down(void *arg)
{
    mu_rpc_server *server = arg;
    while (!arrived) {
        pthread_mutex_lock(&server->lock);
        mu__sleep_ns(250000000);
        pthread_mutex_unlock(&server->lock);
        mu__sleep_ns(1000000);
    }
    return NULL;
}

// Waits until the primary has connected and its first message is there.
static void wait_for_call(mu_rpc_server *server)
{
    bool called = false;
    for (int i = 0; i < 20000 && !called; i++) {
        mu__sleep_ns(1000000);
        pthread_mutex_lock(&server->lock);
        called = server->calls != NULL;
        pthread_mutex_unlock(&server->lock);
    }
    assert_true(called);
}

// A message takes longer than a heartbeat, but its parts arrive: the primary does not report its copy as stuck.
static void test_a_variable_takes_longer_than_a_heartbeat(void **state)
{
    int64_t row[MU_N_STATE] = {0};
    bool stuck = false;
    pthread_t slow;
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    mu_rpc_server *server;
    mu_store *copy = start_copy(&server);
    create_large(&u, LARGE_MIB);
    set_heartbeat(&u, 2);
    pthread_mutex_lock(&copy->changing);
    give_copy(&u, server, mu__stores_process(copy->stores));
    wait_for_call(server);
    assert_int_equal(pthread_create(&slow, NULL, slow_down, server), 0);
    pthread_mutex_unlock(&copy->changing);
    for (int i = 0; i < 60000 && !row[MU_STATE_COMPLETE] && !stuck; i++) {
        mu__sleep_ns(1000000);
        poll(&u.e, 0, row);
        stuck = row[MU_STATE_STUCK] != 0;
    }
    arrived = true;
    pthread_join(slow, NULL);
    assert_false(stuck);
    assert_true(row[MU_STATE_COMPLETE]);
    expect_same(u.store, copy);
    mu_release(u.w);
    mu_pool_close(pool);
}

// Bytes that the copy has of a large variable count before it acknowledges the variable: updates do not wait for all of
// it.
static void test_updates_go_on_while_a_large_variable_arrives(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    create_large(&u, LARGE_MIB);
    mu_rpc_server *server = start_taking();
    holds_large = true;
    n_allowed = ALL_MESSAGES;
    give_copy(&u, server, 0);
    for (int i = 0; i < 20000 && largest < (size_t)LARGE_MIB * UPDATE_BYTES; i++)
        mu__sleep_ns(1000000);
    const int acknowledged = update_until_one_waits(&u);
    holds_large = false;
    assert_in_range(acknowledged, 16 + LARGE_MIB / 2 - 1, 16 + LARGE_MIB / 2 + 1);
    expect_all_acknowledged(&u);
    wait_until_complete(&u);
    mu_release(u.w);
    mu_pool_close(pool);
}

// The primary must report its copy as stuck within some heartbeats.
static void expect_stuck(updates *u, double heartbeat)
{
    int64_t row[MU_N_STATE] = {0};
    for (const int64_t end_ns = mu__deadline_ns(6 * heartbeat); !row[MU_STATE_STUCK] && mu__now_ns() < end_ns;) {
        mu__sleep_ns(20000000);
        poll(&u->e, 0, row);
    }
    assert_true(row[MU_STATE_STUCK]);
}

// A copy has no room for a large variable. The primary sends the variable again and again; that its parts arrive each
// time does not count as progress.
static void test_a_copy_that_refuses_a_large_variable_is_stuck(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    mu_rpc_server *server;
    mu_store *copy = start_copy_with(&server, 3 * UPDATE_BYTES);
    create_large(&u, 5);
    set_heartbeat(&u, 1);
    give_copy(&u, server, mu__stores_process(copy->stores));
    expect_stuck(&u, 1);
    mu_release(u.w);
    mu_pool_close(pool);
}

// The same with a copy that was complete: the answer waits until the coordinator takes the copy away.
static void test_a_complete_copy_that_refuses_a_large_variable_is_stuck(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    mu_rpc_server *server;
    mu_store *copy = start_copy_with(&server, 3 * UPDATE_BYTES);
    give_copy(&u, server, mu__stores_process(copy->stores));
    wait_until_complete(&u);
    set_heartbeat(&u, 1);
    u.results[u.n++] = begin_ask(&u.e, u.e.coordinator, EPOCH + 1, 0, "muster.variable.create", arguments_of_large(5));
    expect_stuck(&u, 1);
    mu_release(u.w);
    mu_pool_close(pool);
}

// The connection to a copy that is taken away takes long to end: the server continues meanwhile.
static void test_the_connection_to_a_copy_takes_long_to_end(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    mu_rpc_server *server;
    mu_store *copy = start_copy(&server);
    give_copy(&u, server, mu__stores_process(copy->stores));
    wait_until_complete(&u);
    pthread_mutex_lock(&u.store->stores->lock);
    mu_rpc_client *client = u.store->copy;
    pthread_mutex_lock(&client->lock); // its thread waits for this lock, and releasing the client waits for the thread
    pthread_mutex_unlock(&u.store->stores->lock);
    mu_rpc_result *followed = begin_lead(&u.e, EPOCH + 2, MU_ORDER_CONTINUE, "", 0);
    for (int i = 0; i < 2000 && !mu_rpc_result_is_done(followed); i++)
        mu__sleep_ns(1000000);
    const bool done = mu_rpc_result_is_done(followed);
    pthread_mutex_unlock(&client->lock);
    assert_true(done);
    assert_non_null(mu_rpc_result_value(followed));
    mu_release(u.w);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_that_stands_still),
        cmocka_unit_test(test_an_update_follows_an_assignment_that_waits),
        cmocka_unit_test(test_updates_go_half_as_fast_as_a_slow_copy),
        cmocka_unit_test(test_a_variable_takes_longer_than_a_heartbeat),
        cmocka_unit_test(test_updates_go_on_while_a_large_variable_arrives),
        cmocka_unit_test(test_a_copy_that_refuses_a_large_variable_is_stuck),
        cmocka_unit_test(test_a_complete_copy_that_refuses_a_large_variable_is_stuck),
        cmocka_unit_test(test_the_connection_to_a_copy_takes_long_to_end),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
