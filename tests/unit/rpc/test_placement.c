// The coordinator's placement of stores, with servers whose answers the test makes: what must not delay the replacement
// of a lost server, and what does not count as lost yet. Where a lease must end, the test advances the library's clock
// instead of waiting, so no test depends on how busy the machine is.
#include "base/system.h"
#include "rpc/client/client.h"
#include "rpc/rpc.h"
#include "rpc/server/server.h"
#include "rpc/stores/store.h"
#include "rpc_test.h"

#include <stdatomic.h>

// HEARTBEAT: in seconds. An answer gives its server a lease of 0.65 heartbeats; it is asked at least six times in one.
enum { SERVERS = 2, MOST = 3, HEARTBEAT = 20, LIMIT_S = 20 };

static atomic_int n_restored, n_lost[MOST];   // lost: of store i
static atomic_bool slow;                      // server 0 does not end a cut before this is false
static atomic_bool reads;                     // no server ends the reading of a snapshot before this is false
static atomic_bool refuses;                   // to take over
static atomic_bool unheard;                   // no server answers an order to take store 1 back to a snapshot
static atomic_int n_restored_at[MOST];        // orders to server i to take store 1 back
static atomic_bool has_nothing;               // of what it had
static atomic_int n_continued;                // orders to stay primary of store 0
static atomic_int n_emptied;                  // to begin with an empty store 0
static atomic_bool busy;                      // no server ends an order to stay primary before this is false
static atomic_llong last_epoch[MOST];         // of the orders for store i
static atomic_llong followed[MOST];           // of the last that was followed
static atomic_int n_refused_cuts;             // because their primary has another epoch
static atomic_int n_unknown_cuts;             // of which the coordinator's own requests do not know
static mu_store_client *_Atomic own_requests; // of the coordinator
static atomic_int n_questions[MOST];          // to server i
static atomic_llong told[MOST][MOST];         // with the last one: the epoch in which others lead store k; 0: nothing
static atomic_int n_copied;                   // orders to send a server store 0 as its copy
static atomic_ullong copy_process;            // in the last of them
static atomic_bool cannot_copy;               // orders to begin a copy of store 0 are refused
static atomic_int n_unfollowed;               // orders to stay primary of store 0 alone that are refused from now on
static atomic_bool stuck;                     // the primary of store 0 does not reach its copy, which lacks something

static const int indices[MOST] = {0, 1, 2};

static _Thread_local int64_t ahead_ns;
static _Thread_local int looks_before_join; // at the clock, until `joining` is connected; 0: it is not to be
static mu_rpc_client *joining;

static void connection_is_back(mu_rpc_client *client, uint64_t server)
{
    pthread_mutex_lock(&client->lock);
    client->server = server;
    client->gone = false;
    pthread_mutex_unlock(&client->lock);
}

static int64_t clock_ahead(void)
{
    if (looks_before_join > 0 && --looks_before_join == 0)
        connection_is_back(joining, 1);
    return mu__linux.now_ns() + ahead_ns;
}

// Answers for store 0 while it is stuck, else for a store that the coordinator does not know.
static mu_value *state(mu_value *arguments, void *arg)
{
    const int64_t row[MU_N_STATE] = {
        [MU_STATE_STORE] = stuck ? 0 : MU_MOST_STORES, [MU_STATE_EPOCH] = last_epoch[0], [MU_STATE_STUCK] = true};
    const int server = *(const int *)arg;
    const mu_tensor *led = mu_value_tensor(mu_value_at(arguments, 1));
    const int64_t *pairs = mu__host_read(led);
    for (int i = 0; i < MOST; i++)
        told[server][i] = 0;
    for (int64_t i = 0; i + 1 < led->shape.dims[0]; i += 2)
        told[server][pairs[i]] = pairs[i + 1];
    n_questions[server]++;
    return mu__numbers_value(row, MU_N_STATE);
}

static mu_value *lead(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_LEAD];
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_LEAD), MU_OK);
    n_emptied += head[MU_LEAD_ORDER] == MU_ORDER_EMPTY && head[MU_LEAD_STORE] == 0;
    n_continued += head[MU_LEAD_ORDER] == MU_ORDER_CONTINUE && head[MU_LEAD_STORE] == 0;
    last_epoch[head[MU_LEAD_STORE]] = head[MU_LEAD_EPOCH];
    if (head[MU_LEAD_COPY_PROCESS] != 0 && head[MU_LEAD_STORE] == 0) {
        copy_process = (uint64_t)head[MU_LEAD_COPY_PROCESS];
        n_copied++;
    }
    const bool promote = head[MU_LEAD_ORDER] == MU_ORDER_PROMOTE, stay = head[MU_LEAD_ORDER] == MU_ORDER_CONTINUE;
    if (refuses && promote) {
        mu__error(MU_UNAVAILABLE, "its primary may still answer");
        return NULL;
    }
    if (has_nothing && (promote || stay)) {
        mu__error(MU_FAILED_PRECONDITION, "this server has nothing of it");
        return NULL;
    }
    n_lost[head[MU_LEAD_STORE]] += head[MU_LEAD_ORDER] == MU_ORDER_LOST;
    if (head[MU_LEAD_ORDER] == MU_ORDER_RESTORE) {
        n_restored++;
        n_restored_at[*(const int *)arg] += head[MU_LEAD_STORE] == 1;
        while (reads)
            mu__sleep_ns(1000000);
        if (unheard && head[MU_LEAD_STORE] == 1) {
            mu__error(MU_UNAVAILABLE, "the connection ended");
            return NULL;
        }
    }
    while (busy && stay)
        mu__sleep_ns(1000000);
    const bool alone = head[MU_LEAD_COPY_PROCESS] == 0;
    if (stay && head[MU_LEAD_STORE] == 0 && (alone ? n_unfollowed > 0 : cannot_copy)) {
        n_unfollowed -= alone;
        mu__error(MU_RESOURCE_EXHAUSTED, "no memory for it");
        return NULL;
    }
    followed[head[MU_LEAD_STORE]] = head[MU_LEAD_EPOCH];
    return mu__numbers_value((int64_t[]){head[MU_LEAD_EPOCH], 0}, 2);
}

static mu_value *cut(mu_value *arguments, void *arg)
{
    const int64_t at = 0;
    int64_t head[4];
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, 4), MU_OK);
    n_refused_cuts += head[1] != followed[head[0]];
    n_unknown_cuts += mu__store_client_cut(own_requests) < head[3];
    while (slow && arg != NULL)
        mu__sleep_ns(1000000);
    return mu__numbers_value(&at, 1);
}

static mu_rpc_server *start_server(int i)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    const mu_rpc_server_register_args methods[] = {
        {.name = "muster.store.state", .fn = state, .arg = (void *)(uintptr_t)&indices[i]},
        {.name = "muster.store.lead", .fn = lead, .arg = (void *)(uintptr_t)&indices[i]},
        {.name = "muster.store.cut", .fn = cut, .arg = i == 0 ? &slow : NULL}};
    for (size_t k = 0; k < MU_COUNT(methods); k++)
        assert_int_equal(mu__server_add(server, &methods[k]), MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    return server;
}

static mu_rpc_client *client_of(mu_rpc_server *server)
{
    mu_rpc_client_args args = {
        .size = sizeof args, .rpc_layer = "muster", .address = mu_rpc_server_address(server), .fail_fast = true};
    return mu__client_new(&args, MU_ROLE_COORDINATOR, MU_BEARER_ALL);
}

typedef struct cluster {
    int n;
    mu_rpc_server *servers[MOST];
    mu_rpc_client *clients[MOST];
    mu_store_client *stores; // of the pool
    mu_placement *placement; // owned
} cluster;

// The client's view while the network is away: there is no connection, and the server has not closed it.
static uint64_t connection_is_away(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    const uint64_t server = client->server;
    client->server = 0;
    pthread_mutex_unlock(&client->lock);
    return server;
}

// The client's view after the server's process has ended.
static void process_is_gone(mu_rpc_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->server = 0;
    client->gone = true;
    pthread_mutex_unlock(&client->lock);
}

static void step_for(mu_placement *placement, double seconds)
{
    const int64_t end_ns = mu__deadline_ns(seconds);
    do {
        mu__placement_step(placement);
        mu__sleep_ns(1000000);
    } while (mu__now_ns() < end_ns);
}

#define STEP_UNTIL(placement, condition)                                                        \
    for (int64_t limit_ns = mu__deadline_ns(LIMIT_S); !(condition) && mu__now_ns() < limit_ns;) \
    step_for(placement, 0)

static bool all_have_answered(cluster c)
{
    bool all = true;
    for (int i = 0; i < c.n; i++) {
        pthread_mutex_lock(&c.clients[i]->lock);
        all = all && c.clients[i]->sent.n == 0;
        pthread_mutex_unlock(&c.clients[i]->lock);
    }
    return all;
}

// Waits until no answer of the server is on its way: one that came after the clock was advanced would count from then.
static uint64_t goes_away(cluster c, int i)
{
    STEP_UNTIL(c.placement, all_have_answered(c));
    return connection_is_away(c.clients[i]);
}

// Advances the clock by so many heartbeats. Half-way and at the end all servers that are there are asked and answer.
static void pass(cluster c, double heartbeats)
{
    step_for(c.placement, 0); // handles the messages that have come until now
    for (int i = 0; i < 2; i++) {
        ahead_ns += (int64_t)(heartbeats * HEARTBEAT * 1e9 / 2);
        step_for(c.placement, 0);
        STEP_UNTIL(c.placement, all_have_answered(c));
        step_for(c.placement, 0);
    }
}

static mu_placement_numbers numbers_of(cluster c) { return mu__placement_numbers(c.placement); }

static cluster place_servers(int n, int replicas, double heartbeat, double snapshot_seconds)
{
    cluster c = {.n = n};
    n_restored = n_continued = n_emptied = n_copied = n_refused_cuts = n_lost[0] = n_lost[1] = 0;
    n_restored_at[0] = n_restored_at[1] = 0;
    for (int i = 0; i < n; i++) {
        c.servers[i] = start_server(i);
        c.clients[i] = client_of(c.servers[i]);
    }
    own_requests = c.stores = mu__give(mu__store_client_new(n, c.clients));
    n_unknown_cuts = 0;
    c.placement = mu__placement_new(&(mu_placement_options){.n = n,
                                                            .servers = c.clients,
                                                            .client = c.stores,
                                                            .replicas = replicas,
                                                            .snapshot_seconds = snapshot_seconds,
                                                            .folder = "/nowhere",
                                                            .heartbeat = heartbeat});
    return c;
}

static cluster place_cluster(int replicas, double heartbeat, double snapshot_seconds)
{
    return place_servers(SERVERS, replicas, heartbeat, snapshot_seconds);
}

// A call that the placement has given up may still read the stores on a server: it must end before the pool frees them.
static void end_cluster(cluster c)
{
    ahead_ns = 0;
    mu_release(c.placement);
    for (int i = 0; i < c.n; i++)
        mu_rpc_server_stop(c.servers[i]);
}

// With a snapshot on disk.
static cluster make_cluster_with(int replicas, double heartbeat)
{
    cluster c = place_cluster(replicas, heartbeat, 0.01);
    STEP_UNTIL(c.placement, numbers_of(c).snapshots >= 1);
    assert_true(numbers_of(c).snapshots >= 1);
    step_for(c.placement, 0.1); // each store has been given a copy
    return c;
}

static cluster make_cluster(int replicas) { return make_cluster_with(replicas, HEARTBEAT); }

// Without one, and without copies.
static cluster make_bare_cluster(void)
{
    cluster c = place_cluster(0, HEARTBEAT, 100 * HEARTBEAT);
    STEP_UNTIL(c.placement, mu__placement_ready(c.placement));
    assert_true(mu__placement_ready(c.placement));
    return c;
}

// With copies, and without a snapshot.
static cluster make_copied_cluster_of(int servers)
{
    cluster c = place_servers(servers, 1, HEARTBEAT, 100 * HEARTBEAT);
    STEP_UNTIL(c.placement, n_continued > 0);
    step_for(c.placement, 0.1); // store 0 has been given a copy
    return c;
}

static cluster make_copied_cluster(void) { return make_copied_cluster_of(SERVERS); }

// One server is slow to write its part of a snapshot, and the other is lost: all go back to the previous one at once.
static void test_a_slow_disk_does_not_hold_up_what_is_lost(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(0);
    slow = true;
    step_for(c.placement, 0.1); // a cut has begun
    assert_int_equal(mu_rpc_server_stop(c.servers[1]), MU_OK);
    STEP_UNTIL(c.placement, n_restored == SERVERS);
    const int restored = n_restored;
    slow = false;
    assert_int_equal(restored, SERVERS);
    end_cluster(c);
    mu_pool_close(pool);
}

// The coordinator's own requests carry a cut's number before any server learns of the cut: they may be based on values
// that a worker has seen behind the cut of one server, and another server's cut is made before them.
static void test_the_coordinator_knows_of_its_cuts(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(0);
    STEP_UNTIL(c.placement, numbers_of(c).snapshots >= 5);
    assert_true(numbers_of(c).snapshots >= 5);
    assert_int_equal(n_unknown_cuts, 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// Two servers are away, one of them for longer than its lease. Both are back, as the same processes, before the other
// one's lease has ended: they still have their values.
static void test_who_comes_back_in_time_loses_nothing(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(0);
    const uint64_t first = goes_away(c, 1);
    pass(c, 0.33);
    const uint64_t second = goes_away(c, 0);
    pass(c, 0.33); // 0.66 since the first was away
    connection_is_back(c.clients[1], first);
    connection_is_back(c.clients[0], second);
    step_for(c.placement, 0.1);
    assert_int_equal(n_restored, 0);
    assert_true(mu__placement_ready(c.placement));
    end_cluster(c);
    mu_pool_close(pool);
}

// A server ends while its copy's connection is away for a moment: the copy takes over when it is back.
static void test_a_copy_that_is_away_is_waited_for(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(1);
    const uint64_t copy = goes_away(c, 1);
    assert_int_equal(mu_rpc_server_stop(c.servers[0]), MU_OK);
    step_for(c.placement, 0.1);
    connection_is_back(c.clients[1], copy);
    STEP_UNTIL(c.placement, numbers_of(c).failovers == 1);
    assert_int_equal(n_restored, 0);
    assert_int_equal(numbers_of(c).failovers, 1);
    end_cluster(c);
    mu_pool_close(pool);
}

// The coordinator's connection to a server is away for a moment. Its copy is not told to take over: it would refuse the
// primary from then on, and neither would answer until the primary's lease has ended.
static void test_a_primary_that_is_away_is_waited_for(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(1);
    const uint64_t primary = goes_away(c, 0);
    step_for(c.placement, 0.1);
    connection_is_back(c.clients[0], primary);
    step_for(c.placement, 0.1);
    assert_int_equal(numbers_of(c).failovers, 0);
    goes_away(c, 0);
    pass(c, 0.66);
    STEP_UNTIL(c.placement, numbers_of(c).failovers == 1);
    assert_int_equal(numbers_of(c).failovers, 1);
    assert_int_equal(n_restored, 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// A connection may end because of the network. Here the process is known to be gone before its lease is over.
static void test_a_connection_that_ends_ends_no_primary(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(1);
    connection_is_away(c.clients[0]);
    step_for(c.placement, 0.1);
    assert_int_equal(numbers_of(c).failovers, 0);
    process_is_gone(c.clients[0]);
    STEP_UNTIL(c.placement, numbers_of(c).failovers == 1);
    assert_int_equal(numbers_of(c).failovers, 1);
    assert_int_equal(n_restored, 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// A copy was told to take over, and is away too before it has done so; then the primary is back and the copy is not.
static void test_a_primary_does_not_wait_for_a_copy_that_is_gone(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_copied_cluster();
    refuses = true;
    const uint64_t primary = goes_away(c, 0);
    pass(c, 0.66);
    goes_away(c, 1);
    connection_is_back(c.clients[0], primary);
    const int before = n_continued;
    pass(c, 0.3);
    assert_int_equal(n_continued, before); // the copy may come back
    pass(c, 0.36);
    STEP_UNTIL(c.placement, n_continued > before);
    refuses = false;
    assert_true(n_continued > before);
    assert_int_equal(n_lost[0], 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// Reading a snapshot takes longer than two heartbeats: the order is not repeated meanwhile.
static void test_a_snapshot_is_read_once(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster_with(0, 0.1);
    reads = true;
    assert_int_equal(mu_rpc_server_stop(c.servers[1]), MU_OK);
    STEP_UNTIL(c.placement, n_restored == SERVERS);
    step_for(c.placement, 0.6);
    reads = false;
    STEP_UNTIL(c.placement, mu__placement_ready(c.placement));
    assert_int_equal(n_restored, SERVERS);
    assert_true(mu__placement_ready(c.placement));
    end_cluster(c);
    mu_pool_close(pool);
}

// ---- Servers that are back while others are told to lead -----------------------------------------

// A server is back, as the same process, while another one reads the snapshot for its store: the first question tells
// it to stop, before it has a lease.
static void test_a_store_that_goes_back_has_no_other_primary(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(0);
    const uint64_t server = goes_away(c, 1);
    pass(c, 0.64);
    reads = true;
    ahead_ns += (int64_t)(0.02 * HEARTBEAT * 1e9);
    STEP_UNTIL(c.placement, n_restored == SERVERS);
    const int before = n_questions[1];
    connection_is_back(c.clients[1], server);
    STEP_UNTIL(c.placement, n_questions[1] > before);
    const int64_t epoch = told[1][1];
    reads = false;
    assert_int_equal(n_questions[1], before + 1);
    assert_int_equal(epoch, last_epoch[1]);
    end_cluster(c);
    mu_pool_close(pool);
}

// A server was told to go back, and its answer does not come: while it is there, no other server is told to.
static void test_who_may_have_gone_back_is_told_again(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(0);
    unheard = true;
    const uint64_t server = goes_away(c, 1);
    pass(c, 0.64);
    ahead_ns += (int64_t)(0.02 * HEARTBEAT * 1e9);
    STEP_UNTIL(c.placement, n_restored_at[0] > 1);
    connection_is_back(c.clients[1], server + 1); // another process
    const int before = n_restored_at[0];
    STEP_UNTIL(c.placement, n_restored_at[0] > before + 2 || n_restored_at[1] > 0);
    unheard = false;
    assert_true(n_restored_at[0] > before + 2);
    assert_int_equal(n_restored_at[1], 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// A copy that was told to take over, and may have, is back while its primary, back earlier, is told to continue.
static void test_a_store_that_continues_has_no_other_primary(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_copied_cluster();
    refuses = true;
    const uint64_t primary = goes_away(c, 0);
    pass(c, 0.66);
    const uint64_t copy = goes_away(c, 1);
    connection_is_back(c.clients[0], primary);
    pass(c, 0.64);
    busy = true;
    const int continued = n_continued;
    ahead_ns += (int64_t)(0.02 * HEARTBEAT * 1e9);
    STEP_UNTIL(c.placement, n_continued > continued);
    const int before = n_questions[1];
    connection_is_back(c.clients[1], copy);
    STEP_UNTIL(c.placement, n_questions[1] > before);
    const int64_t epoch = told[1][0];
    busy = refuses = false;
    assert_int_equal(epoch, last_epoch[0]);
    end_cluster(c);
    mu_pool_close(pool);
}

// A primary is back after its copy was told to take over: no cut is made while the copy is asked again and again.
static void test_no_cut_while_a_copy_takes_over(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(1);
    refuses = true;
    const uint64_t primary = goes_away(c, 0);
    pass(c, 0.66);
    connection_is_back(c.clients[0], primary);
    step_for(c.placement, 0.3);
    refuses = false;
    STEP_UNTIL(c.placement, numbers_of(c).failovers == 1);
    assert_int_equal(numbers_of(c).failovers, 1);
    assert_int_equal(n_refused_cuts, 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// All stores go back because a process is gone. Another process connects from its address while the orders are made:
// the orders are based on what was known when the step began.
static void test_a_server_connects_during_a_step(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(0);
    slow = true;
    step_for(c.placement, 0.1); // a cut has begun, and is given up when the stores go back: that looks at the clock
    process_is_gone(c.clients[1]);
    joining = c.clients[1];
    looks_before_join = 2; // the first is at the beginning of the step
    mu__placement_step(c.placement);
    assert_int_equal(looks_before_join, 0);
    STEP_UNTIL(c.placement, n_restored == SERVERS);
    slow = false;
    assert_int_equal(n_restored, SERVERS);
    end_cluster(c);
    mu_pool_close(pool);
}

// ---- Neither a copy nor a snapshot --------------------------------------------------------------

static void test_a_store_is_not_lost_at_once(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_bare_cluster();
    uint64_t server = goes_away(c, 1);
    step_for(c.placement, 0.1);
    connection_is_back(c.clients[1], server);
    step_for(c.placement, 0.1);
    assert_int_equal(n_lost[1], 0);
    server = goes_away(c, 1);
    pass(c, 0.66);
    STEP_UNTIL(c.placement, n_lost[1] == 1);
    assert_int_equal(n_lost[1], 1);
    assert_int_equal(numbers_of(c).lost, 1);
    connection_is_back(c.clients[1], server); // it has everything
    STEP_UNTIL(c.placement, numbers_of(c).lost == 0);
    assert_int_equal(numbers_of(c).lost, 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// Server 0 tells clients that store 1 is lost, and is then replaced by another process, which does not know that.
static void test_who_is_asked_knows_what_is_lost(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_bare_cluster();
    assert_int_equal(mu_rpc_server_stop(c.servers[1]), MU_OK);
    STEP_UNTIL(c.placement, n_lost[1] == 1);
    step_for(c.placement, 0.1); // the answer has come
    assert_int_equal(n_lost[1], 1);
    connection_is_back(c.clients[0], goes_away(c, 0) + 1);
    STEP_UNTIL(c.placement, n_lost[0] == 1 && n_lost[1] == 2);
    assert_int_equal(n_lost[1], 2);
    assert_int_equal(n_lost[0], 1);
    end_cluster(c);
    mu_pool_close(pool);
}

// A server becomes a primary, answers and ends; the next process at its address is not mistaken for it.
static void test_who_answered_is_primary(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = place_cluster(0, HEARTBEAT, 100 * HEARTBEAT);
    STEP_UNTIL(c.placement, n_emptied == 1);
    connection_is_back(c.clients[0], connection_is_away(c.clients[0]) + 1);
    STEP_UNTIL(c.placement, n_lost[0] == 1);
    assert_int_equal(n_emptied, 1);
    assert_int_equal(n_lost[0], 1);
    end_cluster(c);
    mu_pool_close(pool);
}

// A primary and its copy are away, and server 0 is then another process: once the copy is gone too, no server has the
// store. The copy comes back after all and takes over.
static void test_a_store_and_its_copy_are_lost(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_copied_cluster();
    const uint64_t primary = goes_away(c, 0), copy = goes_away(c, 1);
    step_for(c.placement, 0);
    connection_is_back(c.clients[0], primary + 1);
    pass(c, 0.3);
    assert_int_equal(n_lost[0], 0); // the copy may come back
    pass(c, 0.36);
    STEP_UNTIL(c.placement, n_lost[0] == 1);
    assert_int_equal(n_lost[0], 1);
    connection_is_back(c.clients[1], copy);
    STEP_UNTIL(c.placement, numbers_of(c).failovers == 1 && numbers_of(c).lost == 0);
    assert_int_equal(numbers_of(c).failovers, 1);
    assert_int_equal(numbers_of(c).lost, 0);
    end_cluster(c);
    mu_pool_close(pool);
}

// A store was reported lost; its server, or the one with its copy, is back and has freed everything meanwhile: the loss
// is reported again.
static void test_who_is_back_has_nothing(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        mu_pool *pool = mu_pool_open();
        cluster c = copies ? make_copied_cluster() : make_bare_cluster();
        const uint64_t other = goes_away(c, 0), server = goes_away(c, 1);
        step_for(c.placement, 0);
        connection_is_back(c.clients[0], other + copies); // store 0 has its copy on the other one
        pass(c, 0.66);
        STEP_UNTIL(c.placement, n_lost[!copies] == 1);
        has_nothing = true;
        connection_is_back(c.clients[1], server);
        STEP_UNTIL(c.placement, n_lost[!copies] == 2);
        has_nothing = false;
        assert_int_equal(n_lost[!copies], 2);
        end_cluster(c);
        mu_pool_close(pool);
    }
}

// A server is there but does not accept its copy: it is tried again after one heartbeat, after two, and so on, because
// updates may have to wait for it meanwhile.
static void test_a_copy_that_never_ends_is_tried_less_often(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_copied_cluster();
    assert_int_equal(n_copied, 1);
    stuck = true;
    for (int i = 1; i <= 3; i++) {
        STEP_UNTIL(c.placement, n_continued == 2 * i); // given i times, and taken away as often
        step_for(c.placement, 0.1);
        pass(c, (1 << (i - 1)) - 0.5); // heartbeats; a busy machine takes some of the time for itself
        assert_int_equal(n_copied, i);
        pass(c, 0.6);
        STEP_UNTIL(c.placement, n_copied == i + 1);
        assert_int_equal(n_copied, i + 1);
    }
    stuck = false;
    end_cluster(c);
    mu_pool_close(pool);
}

// The order to continue without a copy does not reach the primary: it is sent again at once, whenever the next copy is
// due, and no cut is made before the primary follows it.
static void test_the_order_to_go_on_without_a_copy_is_repeated(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_cluster(1);
    const int continued = n_continued;
    n_unfollowed = 3;
    stuck = true;
    STEP_UNTIL(c.placement, n_unfollowed < 3);
    stuck = false;
    STEP_UNTIL(c.placement, n_continued == continued + 4);
    step_for(c.placement, 0.5);
    assert_int_equal(n_continued, continued + 4);
    assert_int_equal(n_copied, 1);
    assert_int_equal(n_refused_cuts, 0);
    assert_int_equal(followed[0], last_epoch[0]);
    end_cluster(c);
    mu_pool_close(pool);
}

// A primary that cannot begin a copy leads without one, and is not asked for one for ever.
static void test_a_copy_that_cannot_begin_is_tried_less_often(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cannot_copy = true;
    cluster c = place_servers(2, 1, HEARTBEAT, 0);
    STEP_UNTIL(c.placement, n_copied == 1);
    step_for(c.placement, 0.5);
    assert_int_equal(n_copied, 1);
    assert_int_equal(followed[0], last_epoch[0]); // without one
    pass(c, 1.1);
    STEP_UNTIL(c.placement, n_copied == 2);
    pass(c, 1.1); // the pause is longer now
    assert_int_equal(n_copied, 2);
    cannot_copy = false;
    end_cluster(c);
    mu_pool_close(pool);
}

// Store 0 has been given a copy that does not become complete; the copy is taken away.
static void take_first_copy_away(cluster c)
{
    assert_int_equal(n_copied, 1);
    stuck = true;
    STEP_UNTIL(c.placement, n_continued == 2);
    stuck = false;
    step_for(c.placement, 0.1);
    assert_int_equal(n_continued, 2);
}

// A server that did not accept its copy is given it at once if it starts again, but not if its connection comes back.
static void test_a_server_that_starts_again_is_given_a_copy(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_copied_cluster();
    take_first_copy_away(c);
    const uint64_t process = goes_away(c, 1);
    step_for(c.placement, 0.1);
    connection_is_back(c.clients[1], process);
    step_for(c.placement, 0.1);
    assert_int_equal(n_copied, 1);
    goes_away(c, 1);
    step_for(c.placement, 0);
    connection_is_back(c.clients[1], process + 1);
    step_for(c.placement, 0.5);
    assert_int_equal(n_copied, 2);
    assert_int_equal(copy_process, process + 1);
    end_cluster(c);
    mu_pool_close(pool);
}

// If there is a third server, that one is given the next copy.
static void test_the_next_copy_is_on_another_server(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make_copied_cluster_of(3);
    assert_int_equal(copy_process, mu_rpc_client_server(c.clients[1]));
    take_first_copy_away(c);
    pass(c, 1.1);
    STEP_UNTIL(c.placement, n_copied == 2);
    assert_int_equal(copy_process, mu_rpc_client_server(c.clients[2]));
    end_cluster(c);
    mu_pool_close(pool);
}

static int start(void **state)
{
    static mu_system system;
    system = mu__linux;
    system.now_ns = clock_ahead;
    mu__system = &system;
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_slow_disk_does_not_hold_up_what_is_lost),
                                       cmocka_unit_test(test_the_coordinator_knows_of_its_cuts),
                                       cmocka_unit_test(test_who_comes_back_in_time_loses_nothing),
                                       cmocka_unit_test(test_a_copy_that_is_away_is_waited_for),
                                       cmocka_unit_test(test_a_primary_that_is_away_is_waited_for),
                                       cmocka_unit_test(test_a_connection_that_ends_ends_no_primary),
                                       cmocka_unit_test(test_a_primary_does_not_wait_for_a_copy_that_is_gone),
                                       cmocka_unit_test(test_a_snapshot_is_read_once),
                                       cmocka_unit_test(test_a_store_that_goes_back_has_no_other_primary),
                                       cmocka_unit_test(test_who_may_have_gone_back_is_told_again),
                                       cmocka_unit_test(test_a_store_that_continues_has_no_other_primary),
                                       cmocka_unit_test(test_no_cut_while_a_copy_takes_over),
                                       cmocka_unit_test(test_a_server_connects_during_a_step),
                                       cmocka_unit_test(test_a_store_is_not_lost_at_once),
                                       cmocka_unit_test(test_who_is_asked_knows_what_is_lost),
                                       cmocka_unit_test(test_who_answered_is_primary),
                                       cmocka_unit_test(test_a_store_and_its_copy_are_lost),
                                       cmocka_unit_test(test_who_is_back_has_nothing),
                                       cmocka_unit_test(test_a_copy_that_never_ends_is_tried_less_often),
                                       cmocka_unit_test(test_the_order_to_go_on_without_a_copy_is_repeated),
                                       cmocka_unit_test(test_a_copy_that_cannot_begin_is_tried_less_often),
                                       cmocka_unit_test(test_a_server_that_starts_again_is_given_a_copy),
                                       cmocka_unit_test(test_the_next_copy_is_on_another_server)};
    return cmocka_run_group_tests(tests, start, end_library);
}
