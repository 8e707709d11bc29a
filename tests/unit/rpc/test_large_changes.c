// Large changes of a store with a complete copy: their arguments are staged at the copy, and hold up nobody.
#include "copies_test.h"

#include <stdatomic.h>

enum { LARGE_MIB = 9 };

// What a copy of the test's own does with arguments that are staged: nothing until it is released, then it says
// `staged_code`.
static atomic_bool held;
static atomic_int staged_code, n_staged;
static atomic_llong announced_oldest; // by a message with nothing else
static atomic_size_t largest;         // of its messages with a place

static mu_value *take_copied(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_COPY];
    (void)arg;
    const size_t bytes = read_copy_message(arguments, head);
    largest = MU_MAX(largest, bytes);
    return mu__numbers_value((int64_t[]){head[MU_COPY_EPOCH], MU_OK}, 2);
}

static mu_value *take_staged(mu_value *arguments, void *arg)
{
    int64_t head[MU_N_STAGE];
    (void)arg;
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), head, MU_N_STAGE), MU_OK);
    if (head[MU_STAGE_NUMBER] == MU_STAGE_NOTHING) {
        announced_oldest = head[MU_STAGE_OLDEST];
        return mu__numbers_value((int64_t[]){head[MU_STAGE_EPOCH], MU_OK}, 2);
    }
    n_staged++;
    while (held)
        mu__sleep_ns(1000000);
    return mu__numbers_value((int64_t[]){head[MU_STAGE_EPOCH], staged_code}, 2);
}

// A primary whose copy is the test's own, and complete.
static updates begin(mu_status code, bool holds)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    const mu_rpc_server_register_args methods[] = {{.name = "muster.store.copy", .fn = take_copied},
                                                   {.name = "muster.store.ahead", .fn = take_staged}};
    for (size_t i = 0; i < MU_COUNT(methods); i++)
        assert_int_equal(mu__server_add(server, &methods[i]), MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    updates u = make_updates(2);
    held = false;
    staged_code = (int)code;
    n_staged = 0;
    announced_oldest = 0;
    give_copy(&u, server, 0);
    wait_until_complete(&u);
    largest = 0;
    held = holds;
    return u;
}

static void wait_until_staged(int n)
{
    for (int i = 0; i < 20000 && n_staged < n; i++)
        mu__sleep_ns(1000000);
    assert_int_equal(n_staged, n);
}

static bool has_staged(updates *u)
{
    pthread_mutex_lock(&u->store->stores->lock);
    const bool any = u->store->first_staging != NULL;
    pthread_mutex_unlock(&u->store->stores->lock);
    return any;
}

static void expect_none_staged(updates *u)
{
    for (int i = 0; i < 20000 && has_staged(u); i++)
        mu__sleep_ns(1000000);
    assert_false(has_staged(u));
}

static void expect_told(int64_t oldest)
{
    for (int i = 0; i < 20000 && announced_oldest < oldest; i++)
        mu__sleep_ns(1000000);
    assert_int_equal(announced_oldest, oldest);
}

static mu_rpc_result *create_later(updates *u)
{
    return change_later(u, "muster.variable.create", arguments_of_large(LARGE_MIB));
}

static void expect_read(updates *u)
{
    expect_answer(ask(&u->e, u->e.worker, EPOCH + 1, 0, "muster.apply",
                      mu__remote_apply_arguments(&mu_op_read_variable, NULL, 0, NULL, 1, &u->w)),
                  EPOCH + 1, 0, MU_OK);
}

// While the arguments of one change are on their way to the copy, others change the store and read their changes, and
// the copy's acknowledgement counts.
static void test_a_large_change_holds_up_nobody(void **state)
{
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = begin(MU_OK, true);
    set_heartbeat(&u, 2); // which passes meanwhile
    u.e.oldest = u.e.n_requests + 1;
    mu_rpc_result *large = create_later(&u);
    wait_until_staged(1);
    int n = 0;
    for (const int64_t end_ns = mu__deadline_ns(5); mu__now_ns() < end_ns && n < MOST_UPDATES - 2; n++) {
        expect_answer(mu_rpc_result_value(apply_later(&u, &mu_op_assign_add_variable, 1)), EPOCH + 1, 0, MU_OK);
        expect_read(&u);
        mu__sleep_ns(100000000);
    }
    poll(&u.e, 0, row);
    assert_false(row[MU_STATE_STUCK]);
    assert_false(mu_rpc_result_is_done(large));
    assert_true(n > 10);
    held = false;
    expect_answer(mu_rpc_result_value(large), EPOCH + 1, 0, MU_OK);
    assert_true(largest < 2 * UPDATE_BYTES); // a number stands for it
    expect_none_staged(&u);
    mu_release(u.w);
    mu_pool_close(pool);
}

// What was staged, in any order with other changes, leaves the same store, and nothing beside it.
static void test_a_copy_repeats_large_changes(void **state)
{
    enum { CHANGES = 12 };
    const int64_t n = 3 * UPDATE_BYTES;
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(n)};
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = make_updates(1);
    mu_rpc_server *server;
    mu_store *copy = start_copy(&server);
    give_copy(&u, server, mu__stores_process(copy->stores));
    wait_until_complete(&u);
    expect_answer(mu_rpc_result_value(change_later(&u, "muster.variable.create",
                                                   mu_list(mu__text_value("l"), mu_zeros(MU_F32, 1, &n), MU_END))),
                  EPOCH + 1, 0, MU_OK);
    mu_resource *l = mu__remote_variable(u.e.coordinator, "l", &spec);
    for (int i = 0; i < CHANGES; i++) {
        mu_tensor *value = mu_add(mu_zeros(MU_F32, 1, &n), mu_constant(MU_F32, i));
        const mu_op *op = i % 3 == 0 ? &mu_op_assign_variable : &mu_op_assign_add_variable;
        change_later(&u, "muster.apply", mu__remote_apply_arguments(op, NULL, 1, &value, 1, &l));
        apply_later(&u, &mu_op_assign_add_variable, i);
    }
    expect_all_acknowledged(&u);
    expect_same(u.store, copy);
    expect_none_staged(&u);
    pthread_mutex_lock(&copy->stores->lock);
    assert_int_equal(copy->staged.n, 0);
    assert_int_equal(copy->staged.bytes, 0);
    pthread_mutex_unlock(&copy->stores->lock);
    mu_release(l);
    mu_release(u.w);
    mu_pool_close(pool);
}

// A copy without room for the arguments beside others gets the change in its place.
static void test_what_cannot_be_staged_is_sent_in_its_place(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = begin(MU_RESOURCE_EXHAUSTED, false);
    expect_answer(mu_rpc_result_value(create_later(&u)), EPOCH + 1, 0, MU_OK);
    assert_int_equal(n_staged, 1);
    assert_true(largest > (size_t)LARGE_MIB * UPDATE_BYTES);
    expect_none_staged(&u);
    mu_release(u.w);
    mu_pool_close(pool);
}

// So does a copy that speaks a version of the wire without this; it is not even asked.
static void test_nothing_is_staged_at_an_older_copy(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = begin(MU_OK, false);
    pthread_mutex_lock(&u.store->stores->lock);
    mu_rpc_client *copy = u.store->copy;
    pthread_mutex_lock(&copy->lock);
    copy->member.session.version = MU_WIRE_STAGED - 1;
    pthread_mutex_unlock(&copy->lock);
    pthread_mutex_unlock(&u.store->stores->lock);
    expect_answer(mu_rpc_result_value(create_later(&u)), EPOCH + 1, 0, MU_OK);
    assert_int_equal(n_staged, 0);
    assert_true(largest > (size_t)LARGE_MIB * UPDATE_BYTES);
    mu_release(u.w);
    mu_pool_close(pool);
}

// The copy does not get a change that fails, and a request that is cancelled, or whose store is led elsewhere, stops
// waiting. The copy is told to drop their arguments.
static void test_what_is_for_no_change_is_given_up(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = begin(MU_OK, false);
    expect_answer(mu_rpc_result_value(create_later(&u)), EPOCH + 1, 0, MU_OK);
    expect_answer(mu_rpc_result_value(create_later(&u)), EPOCH + 1, 0, MU_ALREADY_EXISTS);
    expect_none_staged(&u);
    expect_told(3);
    held = true;
    mu_rpc_result *cancelled = create_later(&u);
    wait_until_staged(3);
    assert_int_equal(mu_rpc_result_cancel(cancelled), MU_OK);
    expect_none_staged(&u);
    expect_told(4);
    mu_rpc_result *late = create_later(&u);
    wait_until_staged(4);
    assert_non_null(lead(&u.e, EPOCH + 2, MU_ORDER_CONTINUE));
    expect_answer(mu_rpc_result_value(late), EPOCH + 2, 0, MU_NOT_PRIMARY);
    held = false;
    mu_release(u.w);
    mu_pool_close(pool);
}

// Arguments are given up after a change that the copy still needs: the copy is told once that change is made.
static void test_what_is_given_up_behind_another(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = begin(MU_OK, true);
    u.e.oldest = u.e.n_requests + 1;
    mu_rpc_result *first = create_later(&u);
    wait_until_staged(1); // requests of several threads are staged in any order
    mu_rpc_result *second = create_later(&u);
    wait_until_staged(2);
    assert_int_equal(mu_rpc_result_cancel(second), MU_OK);
    mu__sleep_ns(300000000);
    assert_int_equal(announced_oldest, 0);
    held = false;
    expect_answer(mu_rpc_result_value(first), EPOCH + 1, 0, MU_OK);
    expect_told(3);
    expect_none_staged(&u);
    mu_release(u.w);
    mu_pool_close(pool);
}

// The copy keeps a bounded number of bytes, or one message of any size; several such messages are sent one after the
// other.
static void test_a_copy_keeps_little_of_what_is_staged(void **state)
{
    enum { MIB = 25, CHANGES = 4 };
    (void)state;
    mu_pool *pool = mu_pool_open();
    updates u = begin(MU_OK, true);
    u.e.oldest = u.e.n_requests + 1;
    for (int i = 0; i < CHANGES; i++)
        change_later(&u, "muster.variable.create", arguments_of_large(MIB));
    wait_until_staged(2); // with a third they would be more than MU_STAGED_BYTES
    mu__sleep_ns(300000000);
    assert_int_equal(n_staged, 2);
    held = false;
    int made = 0;
    for (int i = 0; i < CHANGES; i++) {
        int64_t head[MU_N_ANSWER];
        const mu_value *answer = mu_rpc_result_value(u.results[i]);
        assert_non_null(answer);
        assert_int_equal(mu__numbers_of(mu_value_at(answer, 0), head, MU_N_ANSWER), MU_OK);
        made += head[MU_ANSWER_CODE] == MU_OK;
    }
    assert_int_equal(made, 1); // the others find that it exists
    assert_int_equal(n_staged, CHANGES);
    mu_release(u.w);
    mu_pool_close(pool);
}

// ---- The copy's end -----------------------------------------------------------------------------

static int64_t send_staged(env *e, int64_t epoch, int64_t number, int64_t oldest)
{
    int64_t answer[2];
    const int64_t head[MU_N_STAGE] = {0, epoch, (int64_t)mu_rpc_client_server(e->coordinator), number, oldest};
    const mu_value *told = mu_rpc_result_value(
        mu_rpc_call(client_with(e->server, MU_ROLE_PS), "muster.store.ahead",
                    mu_list(mu__numbers_value(head, MU_N_STAGE), mu_list(mu_constant(MU_F32, 1), MU_END), MU_END)));
    assert_int_equal(mu__numbers_of(told, answer, 2), MU_OK);
    return answer[1];
}

static int64_t send_copied(env *e, int64_t epoch, mu_copied kind, int64_t position, mu_value *body)
{
    int64_t answer[2];
    const int64_t head[MU_N_COPY] = {[MU_COPY_EPOCH] = epoch,
                                     [MU_COPY_KIND] = kind,
                                     [MU_COPY_POSITION] = position,
                                     [MU_COPY_PROCESS] = (int64_t)mu_rpc_client_server(e->coordinator)};
    const mu_value *told = mu_rpc_result_value(mu_rpc_call(client_with(e->server, MU_ROLE_PS), "muster.store.copy",
                                                           mu_list(mu__numbers_value(head, MU_N_COPY), body, MU_END)));
    assert_int_equal(mu__numbers_of(told, answer, 2), MU_OK);
    return answer[1];
}

// A primary keeps no staged arguments, and a copy nothing of another epoch or that its primary has given up.
static void test_what_a_copy_keeps_staged(void **state)
{
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store *store = mu__store_find(mu__stores_of(e.server), 0);
    assert_int_equal(send_staged(&e, EPOCH, 1, 1), MU_ABORTED);
    poll_with(&e, 0, (int64_t[]){0, EPOCH + 1}, 2, row);
    assert_int_equal(send_copied(&e, EPOCH + 1, MU_COPIED_BEGIN, 0, mu_list(MU_END)), MU_OK);
    assert_int_equal(send_staged(&e, EPOCH, 1, 1), MU_ABORTED);
    assert_int_equal(send_staged(&e, EPOCH + 2, 1, 1), MU_ABORTED);
    for (int64_t number = 1; number <= 4; number++)
        assert_int_equal(send_staged(&e, EPOCH + 1, number, 1), MU_OK);
    assert_int_equal(store->staged.n, 4);
    assert_int_equal(send_staged(&e, EPOCH + 1, 5, 4), MU_OK);
    assert_int_equal(store->staged.n, 2);
    assert_int_equal(send_staged(&e, EPOCH + 1, 3, 2), MU_ABORTED);
    mu_pool_close(pool);
}

static size_t kept_bytes(const mu_store *store) { return store->stores->kept->budget.used; }

// Staged arguments count among the bytes that a server keeps, until their change comes or the primary gives them up;
// without room it is sent in its place.
static void test_what_is_staged_is_in_the_budget(void **state)
{
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store *store = mu__store_find(mu__stores_of(e.server), 0);
    poll_with(&e, 0, (int64_t[]){0, EPOCH + 1}, 2, row);
    assert_int_equal(send_copied(&e, EPOCH + 1, MU_COPIED_BEGIN, 0, mu_list(MU_END)), MU_OK);
    const size_t before = kept_bytes(store);
    assert_int_equal(send_staged(&e, EPOCH + 1, 1, 1), MU_OK);
    const size_t one = kept_bytes(store) - before;
    assert_true(one > 0);
    store->stores->kept->budget.limit = before + 2 * one;
    assert_int_equal(send_staged(&e, EPOCH + 1, 2, 1), MU_OK);
    assert_int_equal(send_staged(&e, EPOCH + 1, 3, 1), MU_RESOURCE_EXHAUSTED);
    assert_non_null(mu__staging_received(store, 1));
    assert_int_equal(send_staged(&e, EPOCH + 1, 3, 2), MU_OK);
    assert_int_equal(kept_bytes(store), before + 2 * one);
    assert_int_equal(send_staged(&e, EPOCH + 1, MU_STAGE_NOTHING, 3), MU_OK);
    assert_int_equal(kept_bytes(store), before + one);
    assert_int_equal(send_staged(&e, EPOCH + 1, MU_STAGE_NOTHING, 4), MU_OK);
    assert_true(kept_bytes(store) == before && store->staged.n == 0 && store->staged.bytes == 0);
    assert_int_equal(send_staged(&e, EPOCH + 1, 4, 4), MU_OK);
    assert_non_null(lead(&e, EPOCH + 2, MU_ORDER_EMPTY));
    assert_int_equal(kept_bytes(store), before);
    mu_pool_close(pool);
}

static void expect_no_number(env *e, int64_t number)
{
    const int64_t head[MU_N_STAGE] = {0, EPOCH, (int64_t)mu_rpc_client_server(e->coordinator), number, 1};
    assert_null(mu_rpc_result_value(
        mu_rpc_call(client_with(e->server, MU_ROLE_PS), "muster.store.ahead",
                    mu_list(mu__numbers_value(head, MU_N_STAGE), mu_list(mu_constant(MU_F32, 1), MU_END), MU_END))));
    expect_error(MU_INVALID_ARGUMENT, "the arguments that a primary stages have number");
}

static void test_numbers_that_nothing_has(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    expect_no_number(&e, -1);
    expect_no_number(&e, INT64_MAX);
    const int64_t none[] = {0, -1, INT64_MAX};
    for (size_t i = 0; i < MU_COUNT(none); i++) {
        e.n_requests = none[i] == INT64_MAX ? INT64_MAX - 1 : none[i] - 1;
        assert_null(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.create", mu_list(MU_END)));
        expect_error(MU_INVALID_ARGUMENT, "a request to a store has number");
    }
    mu_pool_close(pool);
}

// However many takes wait for others' changes, a large change also waits until the copy has its arguments.
static void test_waiting_takes_leave_room_for_large_changes(void **state)
{
    enum { MOST_TAKES = 1024 };
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    mu_store *store = mu__store_find(mu__stores_of(e.server), 0);
    pthread_mutex_lock(&store->stores->lock);
    mu_change take = {.store = store, .until_ns = MU_FOREVER}, large = take;
    for (int i = 0; i <= MOST_TAKES; i++) {
        take.waits_for = mu__strdup("a");
        assert_int_equal(mu__blocked_add(store, NULL, &take, "take", NULL),
                         i < MOST_TAKES ? MU_OK : MU_RESOURCE_EXHAUSTED);
    }
    mu__free(take.waits_for);
    expect_error(MU_RESOURCE_EXHAUSTED, "1024 requests wait at store 0 for others' changes");
    assert_int_equal(mu__blocked_add(store, NULL, &large, "large", NULL), MU_OK);
    mu__blocked_free(store);
    pthread_mutex_unlock(&store->stores->lock);
    mu_pool_close(pool);
}

// A record of what was not staged: the copy cannot follow, and has nothing any more.
static void test_a_record_of_what_did_not_come(void **state)
{
    int64_t row[MU_N_STATE];
    (void)state;
    mu_pool *pool = mu_pool_open();
    env e = make_env();
    poll_with(&e, 0, (int64_t[]){0, EPOCH + 1}, 2, row);
    assert_int_equal(send_copied(&e, EPOCH + 1, MU_COPIED_BEGIN, 0, mu_list(MU_END)), MU_OK);
    assert_int_equal(send_staged(&e, EPOCH + 1, 1, 1), MU_OK);
    const int64_t head[MU_N_RECORD_STAGED] = {1, 1, 1, 1, 2};
    mu_value *record =
        mu_list(mu__numbers_value(head, MU_N_RECORD_STAGED), mu__text_value("muster.variable.create"), MU_END);
    assert_int_equal(send_copied(&e, EPOCH + 1, MU_COPIED_RECORDS, 1, mu_list(record, MU_END)), MU_DATA_LOSS);
    poll(&e, 0, row);
    assert_int_equal(row[MU_STATE_ROLE], MU_STORE_NONE);
    assert_int_equal(mu__store_find(mu__stores_of(e.server), 0)->staged.n, 0);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_large_change_holds_up_nobody),
        cmocka_unit_test(test_a_copy_repeats_large_changes),
        cmocka_unit_test(test_what_cannot_be_staged_is_sent_in_its_place),
        cmocka_unit_test(test_nothing_is_staged_at_an_older_copy),
        cmocka_unit_test(test_what_is_for_no_change_is_given_up),
        cmocka_unit_test(test_what_is_given_up_behind_another),
        cmocka_unit_test(test_a_copy_keeps_little_of_what_is_staged),
        cmocka_unit_test(test_what_a_copy_keeps_staged),
        cmocka_unit_test(test_what_is_staged_is_in_the_budget),
        cmocka_unit_test(test_numbers_that_nothing_has),
        cmocka_unit_test(test_waiting_takes_leave_room_for_large_changes),
        cmocka_unit_test(test_a_record_of_what_did_not_come),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
