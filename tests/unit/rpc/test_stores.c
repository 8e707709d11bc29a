// Stores of a server: whose epochs and cuts it accepts, and what failed changes leave behind.
#include "stores_test.h"

#include "ops/state/embedding_table.h"

#include <stdatomic.h>

static mu_value *variable_named(const char *name)
{
    const int64_t n = 3;
    return mu_list(mu__text_value(name), mu_tensor_new(MU_F32, 1, &n, (float[]){1, 2, 3}), MU_END);
}

static mu_value *read_rows(void)
{
    const int64_t none = 0;
    return mu_list(mu__text_value("w"), mu_tensor_new(MU_I64, 1, &none, NULL), MU_END);
}

// Whatever numbers a worker sends, the server refuses them, keeps its own, and passes none on.
static void test_a_client_cannot_end_a_store(void **state)
{
    static const int64_t others[] = {INT64_MIN, -1, 0, EPOCH - 1, EPOCH + 1, MU_MOST_EPOCH, INT64_MAX};
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    for (size_t i = 0; i < MU_COUNT(others); i++) {
        expect_answer(ask(&e, e.worker, others[i], 0, "muster.variable.rows", read_rows()), EPOCH, 0, MU_NOT_PRIMARY);
        if (others[i] > 0)
            expect_answer(ask(&e, e.worker, EPOCH, others[i], "muster.variable.rows", read_rows()), EPOCH, 0,
                          MU_NOT_PRIMARY);
    }
    poll(&e, 0, row);
    assert_int_equal(row[MU_STATE_ROLE], MU_STORE_PRIMARY);
    assert_int_equal(row[MU_STATE_EPOCH], EPOCH);
    assert_int_equal(row[MU_STATE_CUT], 0);
    renew_lease(&e);
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.create",
                      mu_list(mu__text_value("v"), mu_constant(MU_F32, 3), MU_END)),
                  EPOCH, 0, MU_ALREADY_EXISTS);
    mu_pool_close(pool);
}

// A number that a client knew before a snapshot was restored does not make the coordinator ignore the server.
static void test_a_client_that_knows_too_much(void **state)
{
    const int64_t head[MU_N_ASK] = {0, EPOCH, 0, 1, 1, 1, INT64_MAX, EPOCH - 1};
    int64_t row[MU_N_STATE];
    const int64_t *rows;
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_stores *stores = mu__stores_of(e.server);
    pthread_mutex_lock(&stores->lock);
    mu_store *store = mu__store_find(stores, 0);
    mu__restores_add(&store->restores, EPOCH, 0);
    pthread_mutex_unlock(&stores->lock);
    mu_value *request =
        mu_list(mu__numbers_value(head, MU_N_ASK), mu__text_value("muster.variable.rows"), read_rows(), MU_END);
    assert_non_null(mu_rpc_result_value(mu_rpc_call(e.worker, "muster.store.call", request)));
    poll(&e, 0, row);
    assert_int_equal(row[MU_STATE_LOST], MU_STATE_MOST);
    assert_int_equal(mu__state_rows(mu__numbers_value(row, MU_N_STATE), &rows), 1);
    mu_pool_close(pool);
}

// A cut's number counts once the coordinator has told it to the server.
static void test_a_cut_that_the_coordinator_told(void **state)
{
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    expect_answer(ask(&e, e.worker, EPOCH, 9, "muster.variable.rows", read_rows()), EPOCH, 0, MU_NOT_PRIMARY);
    poll(&e, 9, row);
    assert_int_equal(row[MU_STATE_CUT], 9);
    expect_answer(ask(&e, e.worker, EPOCH, 9, "muster.variable.rows", read_rows()), EPOCH, 9, MU_NOT_FOUND);
    mu_pool_close(pool);
}

static mu_value *fail_without_text(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_list(mu__numbers_value((int64_t[]){1, 0, MU_INTERNAL, 1}, MU_N_ANSWER), MU_END);
}

// A primary that has no memory for the text of an error has failed nevertheless.
static void test_a_failure_without_a_text(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(
        mu__server_add(server, &(mu_rpc_server_register_args){.name = "muster.store.call", .fn = fail_without_text}),
        MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = client_with(server, MU_ROLE_WORKER);
    mu_store_client *stores = mu__store_client_new(1, &client);
    assert_null(mu__remote_call(client, "muster.apply", (mu_remote_subject){0}, NULL));
    expect_error(MU_INTERNAL, "the server does not say why (\"muster.apply\" at localhost:");
    mu_release(stores);
    mu_pool_close(pool);
}

static mu_value *answer_with_cut(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_list(mu__numbers_value((int64_t[]){1, *(const int64_t *)arg, MU_OK, 1}, MU_N_ANSWER), MU_END);
}

// A client does not pass on the number of a cut that no coordinator can have begun.
static void test_a_client_believes_no_cut_that_cannot_be(void **state)
{
    static int64_t cut;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(
        mu__server_add(server,
                       &(mu_rpc_server_register_args){.name = "muster.store.call", .fn = answer_with_cut, .arg = &cut}),
        MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = client_with(server, MU_ROLE_WORKER);
    mu_store_client *stores = mu__store_client_new(1, &client);
    for (cut = MU_STATE_MOST; cut <= MU_STATE_MOST + 1; cut++) {
        mu_store_request *request = mu__store_request_new(stores, 0, "muster.apply", NULL, 20);
        while (!mu__store_request_step(request))
            mu__sleep_ns(1000000);
        mu__store_request_value(request);
        assert_int_equal(mu_error_take().code, cut > MU_STATE_MOST ? MU_DATA_LOSS : MU_OK);
        assert_int_equal(mu__store_client_cut(stores), MU_STATE_MOST);
        mu__store_request_free(request);
    }
    mu_release(stores);
    mu_pool_close(pool);
}

// Orders and copies' messages are refused if their numbers are so large that no coordinator could count on.
static void test_numbers_are_bounded(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    assert_null(lead(&e, MU_MOST_EPOCH + 1, MU_ORDER_EMPTY));
    expect_error(MU_INVALID_ARGUMENT, "the epoch of an order is");
    assert_null(lead(&e, -1, MU_ORDER_EMPTY));
    expect_error(MU_INVALID_ARGUMENT, "the epoch of an order is -1");
    const int64_t head[MU_N_COPY] = {0, INT64_MAX, (int64_t)mu_rpc_client_server(e.coordinator), MU_COPIED_BEGIN};
    expect_result(mu_rpc_call(client_with(e.server, MU_ROLE_PS), "muster.store.copy",
                              mu_list(mu__numbers_value(head, MU_N_COPY), mu_list(MU_END), MU_END)),
                  MU_INVALID_ARGUMENT, "a message for a copy has epoch");
    mu_pool_close(pool);
}

// Another server cannot turn a primary into its copy: first the coordinator must have told the primary that another
// server leads.
static void test_a_server_cannot_end_a_primary(void **state)
{
    int64_t row[MU_N_STATE], answer[2];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    const int64_t head[MU_N_COPY] = {0, EPOCH + 1, (int64_t)mu_rpc_client_server(e.coordinator), MU_COPIED_BEGIN};
    const mu_value *told =
        mu_rpc_result_value(mu_rpc_call(client_with(e.server, MU_ROLE_PS), "muster.store.copy",
                                        mu_list(mu__numbers_value(head, MU_N_COPY), mu_list(MU_END), MU_END)));
    assert_int_equal(mu__numbers_of(told, answer, 2), MU_OK);
    assert_int_equal(answer[0], EPOCH);
    assert_int_equal(answer[1], MU_FAILED_PRECONDITION);
    poll(&e, 0, row);
    assert_int_equal(row[MU_STATE_ROLE], MU_STORE_PRIMARY);
    mu_pool_close(pool);
}

// Waits until a server has begun to follow an order, which then waits for a change that this test makes.
static void wait_until_it_waits(mu_rpc_server *server)
{
    bool running = false;
    for (int i = 0; i < 5000 && !running; i++) {
        mu__sleep_ns(1000000);
        pthread_mutex_lock(&server->lock);
        running = server->calls != NULL && server->waiting.first == NULL;
        pthread_mutex_unlock(&server->lock);
    }
    assert_true(running);
    mu__sleep_ns(50000000);
}

// The server is told in which epoch another one leads store 0, and becomes its complete copy in this epoch, for a
// primary that may not answer any more.
static void make_copy(env *e, int64_t told, int64_t epoch)
{
    int64_t row[MU_N_STATE], answer[2];
    poll_with(e, 0, (int64_t[]){0, told}, 2, row);
    const int64_t head[MU_N_COPY] = {[MU_COPY_EPOCH] = epoch,
                                     [MU_COPY_KIND] = MU_COPIED_BEGIN,
                                     [MU_COPY_PROCESS] = (int64_t)mu_rpc_client_server(e->coordinator),
                                     [MU_COPY_COMPLETE] = true};
    const mu_value *taken =
        mu_rpc_result_value(mu_rpc_call(client_with(e->server, MU_ROLE_PS), "muster.store.copy",
                                        mu_list(mu__numbers_value(head, MU_N_COPY), mu_list(MU_END), MU_END)));
    assert_int_equal(mu__numbers_of(taken, answer, 2), MU_OK);
    assert_int_equal(answer[1], MU_OK);
    mu_stores *stores = mu__stores_of(e->server);
    pthread_mutex_lock(&stores->lock);
    mu__store_find(stores, 0)->promised_ns = 0;
    pthread_mutex_unlock(&stores->lock);
}

// A copy that is told to take over waits for a change; meanwhile the coordinator gives the store to another server and
// tells the copy. When the change ends, the order is too late.
static void test_an_order_that_waited_for_too_long(void **state)
{
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store *store = mu__store_find(mu__stores_of(e.server), 0);
    make_copy(&e, EPOCH + 1, EPOCH + 2);
    const int64_t head[MU_N_LEAD] = {
        0, EPOCH + 3, MU_ORDER_PROMOTE, EPOCH + 2, (int64_t)mu_rpc_client_server(e.coordinator), 0, 0};
    pthread_mutex_lock(&store->changing);
    mu_rpc_result *order =
        mu_rpc_call(e.coordinator, "muster.store.lead",
                    mu_list(mu__numbers_value(head, MU_N_LEAD), mu__text_value(""), mu__text_value(""), MU_END));
    wait_until_it_waits(e.server);
    poll_with(&e, 0, (int64_t[]){0, EPOCH + 4}, 2, row);
    pthread_mutex_unlock(&store->changing);
    expect_result(order, MU_ABORTED, "store 0 has epoch 11; the order has 10");
    poll(&e, 0, row);
    assert_int_equal(row[MU_STATE_ROLE], MU_STORE_COPY);
    mu_pool_close(pool);
}

// A primary learns that another server leads only in the epoch in which it is to be a copy.
static void test_a_primary_becomes_a_copy(void **state)
{
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    make_copy(&e, EPOCH + 1, EPOCH + 1);
    poll(&e, 0, row);
    assert_int_equal(row[MU_STATE_ROLE], MU_STORE_COPY);
    assert_int_equal(row[MU_STATE_EPOCH], EPOCH + 1);
    mu_pool_close(pool);
}

// Answers as a copy that was told to take over and waits for the primary's lease: it refuses messages.
static mu_value *refuse_messages(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_COPY];
    (void)arg;
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_COPY), MU_OK);
    return mu__numbers_value((int64_t[]){head[MU_COPY_EPOCH] + 1, MU_ABORTED}, 2);
}

// Waits until the primary reports that its copy does not follow it.
static void wait_until_stuck(env *e, int64_t row[MU_N_STATE])
{
    for (int i = 0; i < 5000 && row[MU_STATE_STUCK] == 0; i++) {
        mu__sleep_ns(1000000);
        poll(e, 0, row);
    }
    assert_true(row[MU_STATE_STUCK] != 0);
}

// A copy was told to take over and is lost before it does. The primary has answered no request since it learned of
// that, and has everything when the coordinator tells it to continue.
static void test_a_primary_whose_copy_does_not_take_over(void **state)
{
    int64_t row[MU_N_STATE] = {0};
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_rpc_server *copy = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(
        mu__server_add(copy, &(mu_rpc_server_register_args){.name = "muster.store.copy", .fn = refuse_messages}),
        MU_OK);
    assert_int_equal(mu_rpc_server_start(copy), MU_OK);
    assert_non_null(lead_with(&e, EPOCH + 1, MU_ORDER_CONTINUE, mu_rpc_server_address(copy), 0));
    wait_until_stuck(&e, row);
    expect_answer(ask(&e, e.worker, EPOCH + 1, 0, "muster.variable.rows", read_rows()), EPOCH + 1, 0, MU_NOT_PRIMARY);
    assert_non_null(lead(&e, EPOCH + 3, MU_ORDER_CONTINUE));
    renew_lease(&e);
    expect_answer(ask(&e, e.coordinator, EPOCH + 3, 0, "muster.variable.create", variable_named("v")), EPOCH + 3, 0,
                  MU_ALREADY_EXISTS);
    mu_pool_close(pool);
}

// A server that reported a loss to clients redirects them once another server leads the store again.
static void test_a_store_that_was_lost_is_led_elsewhere(void **state)
{
    const int64_t led[2] = {0, EPOCH + 2};
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    assert_non_null(lead(&e, EPOCH + 1, MU_ORDER_LOST));
    poll_with(&e, 0, (int64_t[]){0, EPOCH}, 2, row); // as long as nobody leads it
    expect_answer(ask(&e, e.worker, EPOCH + 1, 0, "muster.variable.rows", read_rows()), EPOCH + 1, 0, MU_UNAVAILABLE);
    poll_with(&e, 0, led, 2, row);
    expect_answer(ask(&e, e.worker, EPOCH + 1, 0, "muster.variable.rows", read_rows()), EPOCH + 2, 0, MU_NOT_PRIMARY);
    mu_pool_close(pool);
}

// A request comes again after its client has acknowledged the answer.
static void test_a_request_that_comes_late(void **state)
{
    char *text = NULL;
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    e.n_requests = 0;
    e.oldest = 2;
    const mu_value *answer = ask(&e, e.coordinator, EPOCH, 0, "muster.variable.create", variable_named("v"));
    expect_answer(answer, EPOCH, 0, MU_FAILED_PRECONDITION);
    assert_int_equal(mu__value_text(mu_value_at(answer, 1), "the reason", &text), MU_OK);
    assert_string_equal(text, "the request was done before, and its answer is no longer kept; do not send it again, "
                              "but read what it has changed");
    mu__free(text);
    mu_pool_close(pool);
}

// ---- Takes that wait ----------------------------------------------------------------------------

static mu_rpc_result *take_later(env *e, const char *name)
{
    const int64_t one = 1;
    return begin_ask(
        e, e->coordinator, EPOCH, 0, "muster.accumulator.take",
        mu_list(mu__text_value(name), mu_tensor_new(MU_I64, 0, NULL, &one), mu_constant(MU_F64, 20), MU_END));
}

// Waits until a request waits and was tried; from then on it is not tried again from time to time.
static void let_wait(mu_store *store)
{
    bool waits = false;
    for (int tries = 0; !waits; tries++) {
        assert_true(tries < 5000);
        mu__sleep_ns(1000000);
        pthread_mutex_lock(&store->stores->lock);
        waits = store->first_blocked != NULL && store->blocked_ns != 0;
        if (waits)
            store->blocked_ns = MU_FOREVER;
        pthread_mutex_unlock(&store->stores->lock);
    }
}

// One request deletes two accumulators: a take that waits for the first of them fails too.
static void test_a_request_to_forget_wakes_all_takes(void **state)
{
    const int64_t kind[] = {false, false, MU_F32, 0}, n = MU_COUNT(kind);
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store *store = mu__store_find(mu__stores_of(e.server), 0);
    for (int i = 0; i < 2; i++)
        expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.accumulator.create",
                          mu_list(mu__text_value(i == 0 ? "a" : "b"), mu_tensor_new(MU_I64, 1, &n, kind), MU_END)),
                      EPOCH, 0, MU_OK);
    e.oldest = e.n_requests + 1;
    mu_rpc_result *takes[] = {take_later(&e, "a"), take_later(&e, "b")};
    let_wait(store);
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.forget",
                      mu_list(mu__text_value("a"), mu__text_value("b"), MU_END)),
                  EPOCH, 0, MU_OK);
    for (int i = 0; i < 2; i++) {
        renew_lease(&e);
        for (int tries = 0; tries < 5000 && !mu_rpc_result_is_done(takes[i]); tries++)
            mu__sleep_ns(1000000);
        assert_true(mu_rpc_result_is_done(takes[i]));
    }
    mu_pool_close(pool);
}

static size_t requests_kept(mu_store *store)
{
    size_t n = 0;
    pthread_mutex_lock(&store->stores->lock);
    for (size_t i = 0; i < store->seen.clients.n; i++)
        n += store->seen.clients.items[i].requests.n;
    pthread_mutex_unlock(&store->stores->lock);
    return n;
}

// While a process waits for a take, its other requests continue, however many, and the store keeps few of them.
static void test_a_take_that_waits_for_long(void **state)
{
    enum { REQUESTS = 5000, MOST_KEPT = 2100 };
    const int64_t kind[] = {false, false, MU_F32, 0}, n = MU_COUNT(kind), one = 1;
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store *store = mu__store_find(mu__stores_of(e.server), 0);
    mu_store_client *client = mu__store_client_new(1, &e.coordinator);
    const mu_remote_subject nothing = {0};
    mu__remote_call(e.coordinator, "muster.accumulator.create", nothing,
                    mu_list(mu__text_value("a"), mu_tensor_new(MU_I64, 1, &n, kind), MU_END));
    mu_value *arguments =
        mu_list(mu__text_value("a"), mu_tensor_new(MU_I64, 0, NULL, &one), mu_constant(MU_F64, 500), MU_END);
    mu_store_request *take = mu__store_request_new(client, 0, "muster.accumulator.take", arguments, 500);
    for (int i = 0; i < REQUESTS; i++) {
        mu_pool *inner = mu_pool_open();
        assert_false(mu__store_request_step(take));
        if (i % 500 == 0)
            renew_lease(&e);
        mu__remote_call(e.coordinator, "muster.variable.forget", nothing, mu_list(mu__text_value("nobody"), MU_END));
        if (mu__pending())
            fail_msg("request %d: %s", i, mu_error_message());
        mu_pool_close(inner);
    }
    assert_in_range(requests_kept(store), 1, MOST_KEPT);
    mu__store_request_free(take);
    mu_release(client);
    mu_pool_close(pool);
}

// ---- Changes that fail --------------------------------------------------------------------------

// An unreadable request to forget changes nothing, so for the copy it changed nothing either.
static void test_a_request_to_forget_is_read_first(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.forget",
                      mu_list(mu__text_value("v"), mu_constant(MU_F32, 1), MU_END)),
                  EPOCH, 0, MU_INVALID_ARGUMENT);
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.create", variable_named("v")), EPOCH, 0,
                  MU_ALREADY_EXISTS);
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.forget",
                      mu_list(mu__text_value("v"), mu__text_value("nobody"), MU_END)),
                  EPOCH, 0, MU_OK);
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.create", variable_named("v")), EPOCH, 0, MU_OK);
    mu_pool_close(pool);
}

static int64_t n_runs; // requests of run_in

// Runs a request as a store does, without a network. Returns whether it failed; `torn`: the copy is told that it
// changed something before it failed.
static bool run_in(mu_store *store, const char *method, mu_value *arguments, long fail_at, bool *torn)
{
    n_runs++;
    mu_change change = {
        .store = store,
        .ask = {[MU_ASK_EPOCH] = EPOCH, [MU_ASK_CLIENT] = 1, [MU_ASK_REQUEST] = n_runs, [MU_ASK_OLDEST] = n_runs}};
    mu_error_value error;
    mu__alloc_fail_at(fail_at);
    mu_value *value = mu__store_run(&change, method, arguments);
    mu__alloc_fail_at(0);
    mu__error_move(&error);
    pthread_mutex_lock(&store->stores->lock);
    mu__store_changed(&change, method, arguments, value, error.code != MU_OK);
    pthread_mutex_unlock(&store->stores->lock);
    *torn = change.torn;
    return error.code != MU_OK;
}

// Store 0 on its primary, without a network.
static mu_store *lead_here(mu_stores *stores)
{
    pthread_mutex_lock(&stores->lock); // its threads run
    mu_store *store = mu__store_make(stores, 0);
    pthread_mutex_unlock(&stores->lock);
    assert_int_equal(mu__store_ready(store), MU_OK);
    pthread_mutex_lock(&stores->lock);
    store->role = MU_STORE_PRIMARY;
    store->epoch = MU_MAX(store->epoch, EPOCH);
    pthread_mutex_unlock(&stores->lock);
    return store;
}

// A store of its own, without a network, that keeps so many bytes.
static mu_store *make_store(size_t most_bytes)
{
    env e = {.server = mu_rpc_server_new("muster", "localhost:0")};
    mu_kept *kept = mu__kept_new(most_bytes);
    assert_int_equal(mu__stores_add(e.server, kept), MU_OK);
    mu_release(kept);
    return lead_here(mu__stores_of(e.server));
}

static float first_element(mu_store *store)
{
    const mu_value *rows = mu__store_capture(store);
    return (float)mu_tensor_item(mu_at(mu_value_at(rows, 0), 2), 0);
}

// Each allocation of an update fails in turn: an update that failed after it changed a variable is reported to the
// copy.
static void test_whichever_allocation_fails(void **state)
{
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(3)};
    bool torn, failed = true;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_store *store = make_store(SIZE_MAX);
    assert_false(run_in(store, "muster.variable.create", variable_named("v"), 0, &torn));
    mu_resource *v = mu__remote_variable(client_with(make_env().server, MU_ROLE_NONE), "v", &spec);
    mu_tensor *one = mu_tensor_new(MU_F32, 1, (int64_t[]){3}, (float[]){1, 1, 1});
    mu_value *add = mu__remote_apply_arguments(&mu_op_assign_add_variable, NULL, 1, &one, 1, &v);
    for (long n = 1; n < 200 && failed; n++) {
        const float before = first_element(store);
        failed = run_in(store, "muster.apply", add, n, &torn);
        assert_true(!failed || torn || first_element(store) == before);
        assert_true(failed || first_element(store) == before + 1);
    }
    assert_false(failed);
    mu_release(v);
    mu_pool_close(pool);
}

static void create_table(mu_store *store)
{
    const mu_table_options o = {.dimension = 64, .dtype = MU_F32, .optimizer = MU_TABLE_SGD, .learning_rate = 1};
    const int64_t n_ints = MU_TABLE_INTS, n_reals = MU_TABLE_REALS;
    bool torn;
    assert_false(run_in(store, "muster.table.create",
                        mu_list(mu__text_value("t"), mu_tensor_new(MU_I64, 1, &n_ints, &o.dimension),
                                mu_tensor_new(MU_F64, 1, &n_reals, &o.scale), MU_END),
                        0, &torn));
}

static int64_t rows_of(mu_store *store)
{
    mu_change change = {.store = store};
    mu_value *state = mu__store_run(&change, "muster.table.state", mu_list(mu__text_value("t"), MU_END));
    return mu_tensor_item_int(mu_value_tensor(state), 0);
}

static mu_value *look_up(int64_t first, int64_t n)
{
    return mu_list(mu__text_value("t"), mu_range(MU_I64, (double)first, (double)(first + n), 1),
                   mu_constant(MU_BOOL, false), MU_END);
}

// A look-up makes rows, and then there is no memory for its answer.
static void test_whichever_allocation_of_a_look_up_fails(void **state)
{
    bool torn, failed = true;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_store *store = make_store(SIZE_MAX);
    create_table(store);
    for (long n = 1; n < 200 && failed; n++) {
        const int64_t before = rows_of(store);
        failed = run_in(store, "muster.table.lookup", look_up(n * 3, 3), n, &torn);
        if (failed && !torn && rows_of(store) != before)
            fail_msg("allocation %ld: the look-up has failed, made rows, and its copy would not", n);
    }
    assert_false(failed);
    mu_pool_close(pool);
}

// A request that fails halfway, because there is no room for all rows, comes again: it is not executed a second time.
static void test_a_request_that_failed_halfway_comes_again(void **state)
{
    bool torn;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_store *store = make_store((size_t)1 << 20);
    create_table(store);
    assert_true(run_in(store, "muster.table.lookup", look_up(0, 20000), 0, &torn));
    assert_true(torn);
    mu_change change = {
        .store = store,
        .ask = {[MU_ASK_EPOCH] = EPOCH, [MU_ASK_CLIENT] = 1, [MU_ASK_REQUEST] = n_runs, [MU_ASK_OLDEST] = n_runs}};
    assert_null(mu__store_run(&change, "muster.table.lookup", look_up(0, 20000)));
    expect_error(MU_ABORTED, "applied before");
    assert_true(change.seen && !change.begun);
    mu_pool_close(pool);
}

static mu_value *repeat_look_up(mu_value *arguments, void *arg)
{
    mu_change change = {.store = arg, .begun = true, .repeated = mu_scalar(arguments) != 0};
    return mu__store_run(&change, "muster.table.lookup", look_up(0, 2000)) != NULL ? number(1) : NULL;
}

// A copy repeats a look-up whose answer is larger than all messages of its server may be: the copy sends no answer.
static void test_what_a_copy_repeats_needs_no_room_for_an_answer(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_store *store = make_store(SIZE_MAX);
    create_table(store);
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0", .max_bytes = 200000);
    mu_rpc_server_register(server, "repeat", .fn = repeat_look_up, .arg = store);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    expect_result(mu_rpc_call(client, "repeat", number(0)), MU_RESOURCE_EXHAUSTED, "does not fit");
    expect_result(mu_rpc_call(client, "repeat", number(1)), MU_OK, "");
    mu_pool_close(pool);
}

// Without memory for a cut the snapshot lacks that store; the update before which the cut was to be made continues.
static void test_a_cut_without_memory(void **state)
{
    bool torn, made = false;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_store *store = make_store(SIZE_MAX);
    assert_false(run_in(store, "muster.variable.create", variable_named("v"), 0, &torn));
    for (int64_t cut = 1; cut < 200 && !made; cut++) {
        pthread_mutex_lock(&store->changing);
        mu__alloc_fail_at((long)cut);
        mu__snapshot_before(store, cut);
        mu__alloc_fail_at(0);
        pthread_mutex_unlock(&store->changing);
        assert_int_equal(mu_error_code(), MU_OK);
        assert_int_equal(store->cut, cut);
        made = store->captured != NULL;
        assert_int_equal(store->captured_seen != NULL, made);
    }
    assert_true(made);
    mu_pool_close(pool);
}

// A store is dropped, as the next coordinator does, while its primary sends it to this server.
static void test_a_row_for_a_store_that_was_dropped(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    mu_kept *kept = mu__kept_new(SIZE_MAX);
    assert_int_equal(mu__stores_add(server, kept), MU_OK);
    mu_release(kept);
    mu_stores *stores = mu__stores_of(server);
    pthread_mutex_lock(&stores->lock);
    mu_store *store = mu__store_make(stores, 0);
    pthread_mutex_unlock(&stores->lock);
    mu_value *row = mu_list(mu__text_value("variables"), mu__text_value("v"), mu_constant(MU_F32, 3), MU_END);
    assert_int_equal(mu__store_ready(store), MU_OK);
    assert_int_equal(mu__store_load(store, row), MU_OK);
    assert_int_equal(mu_value_count(mu__store_capture(store)), 1);
    mu__server_free_owned(server);
    assert_int_equal(mu__store_load(store, row), MU_ABORTED);
    expect_error(MU_ABORTED, "store 0 is no longer here");
    assert_null(mu__store_capture(store));
    expect_error(MU_ABORTED, "store 0 is no longer here");
    mu_pool_close(pool);
}

// ---- A store that is dropped meanwhile ----------------------------------------------------------

enum { DROPS = 60, VARIABLES = 300 };

static atomic_bool all_dropped;

static void drop_often(void *arg)
{
    mu_store *store = arg;
    for (int i = 0; i < DROPS; i++) {
        mu__sleep_ns(300000);
        pthread_mutex_lock(&store->stores->lock);
        mu__store_step_down(store, store->epoch + 1);
        pthread_mutex_unlock(&store->stores->lock);
    }
    all_dropped = true;
}

static void fill(mu_store *store)
{
    char name[16];
    for (int i = 0; i < VARIABLES; i++) {
        snprintf(name, sizeof name, "v%d", i);
        mu_value *row = mu_list(mu__text_value("variables"), mu__text_value(name), mu_constant(MU_F32, 1), MU_END);
        if (mu__store_load(store, row) != MU_OK)
            mu_error_take(); // it was dropped
    }
}

// The message that another server leads a store comes at any moment, also while the store's cut or its copy is made.
static void test_a_store_is_dropped_during_its_cut(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = {.server = mu_rpc_server_new("muster", "localhost:0")};
    mu_kept *kept = mu__kept_new(SIZE_MAX);
    assert_int_equal(mu__stores_add(e.server, kept), MU_OK);
    mu_stores *stores = mu__stores_of(e.server);
    mu_store *store = lead_here(stores);
    mu_worker *other = mu__worker_new("drops", NULL, 1, mu__runtime());
    assert_int_equal(mu__worker_post(other, drop_often, store), MU_OK);
    for (int64_t cut = 1; !all_dropped; cut++) {
        mu_pool *inner = mu_pool_open();
        pthread_mutex_lock(&store->changing);
        lead_here(stores);
        fill(store);
        mu__snapshot_before(store, cut);
        pthread_mutex_unlock(&store->changing);
        if (mu__pending())
            expect_error(MU_ABORTED, "store 0 is no longer here");
        mu_pool_close(inner);
    }
    mu__worker_free(other);
    mu_release(kept);
    mu_pool_close(pool);
}

// ---- Requests that are too large ----------------------------------------------------------------

// The error comes at once, as that of the request, and not after MUSTER_TIMEOUT as that of a server that is away.
static void test_a_request_that_no_server_takes(void **state)
{
    const int64_t n = 1 << 20, began_ns = mu__now_ns();
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env_with(n);
    mu_store_client *stores = mu__store_client_new(1, &e.coordinator);
    mu_tensor *large = mu_zeros(MU_F32, 1, &n);
    assert_int_equal(mu__remote_variable_create(e.coordinator, "large", large), MU_RESOURCE_EXHAUSTED);
    expect_error(MU_RESOURCE_EXHAUSTED, "the request has 4194");
    assert_int_equal(mu__remote_variable_create(e.coordinator, "large", large), MU_RESOURCE_EXHAUSTED);
    expect_error(MU_RESOURCE_EXHAUSTED, "have room for 1048576; send it in parts");
    assert_true(mu__now_ns() - began_ns < 60 * (int64_t)1e9);
    mu_release(stores);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_cannot_end_a_store),
        cmocka_unit_test(test_a_client_that_knows_too_much),
        cmocka_unit_test(test_a_cut_that_the_coordinator_told),
        cmocka_unit_test(test_a_failure_without_a_text),
        cmocka_unit_test(test_a_client_believes_no_cut_that_cannot_be),
        cmocka_unit_test(test_numbers_are_bounded),
        cmocka_unit_test(test_a_server_cannot_end_a_primary),
        cmocka_unit_test(test_a_request_to_forget_is_read_first),
        cmocka_unit_test(test_an_order_that_waited_for_too_long),
        cmocka_unit_test(test_a_primary_becomes_a_copy),
        cmocka_unit_test(test_a_primary_whose_copy_does_not_take_over),
        cmocka_unit_test(test_a_store_that_was_lost_is_led_elsewhere),
        cmocka_unit_test(test_a_request_that_comes_late),
        cmocka_unit_test(test_a_request_to_forget_wakes_all_takes),
        cmocka_unit_test(test_a_take_that_waits_for_long),
        cmocka_unit_test(test_whichever_allocation_fails),
        cmocka_unit_test(test_whichever_allocation_of_a_look_up_fails),
        cmocka_unit_test(test_a_request_that_failed_halfway_comes_again),
        cmocka_unit_test(test_what_a_copy_repeats_needs_no_room_for_an_answer),
        cmocka_unit_test(test_a_cut_without_memory),
        cmocka_unit_test(test_a_row_for_a_store_that_was_dropped),
        cmocka_unit_test(test_a_store_is_dropped_during_its_cut),
        cmocka_unit_test(test_a_request_that_no_server_takes),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
