// Accumulators on a server that has a copy and is then told to end: their contents are there afterwards, and a take
// that was waiting continues. Both servers are in this process.
#include "rpc/rpc.h"
#include "rpc/services/service.h"
#include "rpc/stores/store.h"

#include "accumulators_test.h"

static mu_tensor *attempt(int64_t value) { return mu_tensor_new(MU_I64, 0, NULL, &value); }

static void expect_rows(mu_tensor *x, double a, double b)
{
    if (!x)
        fail_msg("%s", mu_error_message());
    assert_true(mu_tensor_item(x, 0) == a && mu_tensor_item(x, 1) == b);
}

// The accumulators are on server 0 and server 1 in turn; server 0 ends.
static void test_a_server_ends(void **state)
{
    mu_server *servers[2];
    mu_accumulator *mean = NULL, *sparse = NULL, *kept = NULL, *empty = NULL, *other[4];
    taker waiting;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_with_copies(servers);
    MU_SCOPE(strategy) {
        mean = mu_conditional_accumulator(MU_F64);
        other[0] = mu_conditional_accumulator(MU_F64);
        sparse = mu_sparse_conditional_accumulator(MU_F64);
        other[1] = mu_conditional_accumulator(MU_F64);
        kept = mu_conditional_accumulator(MU_F64, .shape = &two, .reduction_type = "SUM");
        other[2] = mu_conditional_accumulator(MU_F64);
        empty = mu_conditional_accumulator(MU_F64);
        other[3] = mu_conditional_accumulator(MU_F64);
    }
    assert_int_equal(mu_accumulator_set_global_step(mean, 5), MU_OK);
    assert_int_equal(mu_accumulator_apply_grad(mean, row(9, 9), 4), MU_OK); // stale
    assert_int_equal(mu_accumulator_apply_grad(mean, row(1, 2), 5), MU_OK);
    assert_int_equal(mu_accumulator_apply_grad(mean, row(3, 4), 6), MU_OK);
    mu_tensor *indices = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){4, 1});
    mu_tensor *rows = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 1}, (double[]){6, 5});
    for (int i = 0; i < 2; i++)
        assert_int_equal(mu_sparse_accumulator_apply_grad(sparse, indices, rows, NULL, 0), MU_OK);
    assert_int_equal(mu__accumulator_keep(kept, attempt(7), row(1, 2)), MU_OK);
    assert_int_equal(mu__accumulator_keep(kept, attempt(8), row(10, 20)), MU_OK);
    assert_int_equal(mu_accumulator_apply_grad(empty, mu_constant(MU_F64, 1), 0), MU_OK);
    take_in_thread(&waiting, empty, 2, 600);
    for (int i = 0; i < 4; i++)
        mu_accumulator_apply_grad(other[i], mu_constant(MU_F64, i), 0);
    assert_int_equal(mu_server_stop(servers[0]), MU_OK);

    assert_int_equal(counted(mean), 2);
    expect_rows(mu_accumulator_take_grad(mean, 2), 2, 3);
    assert_int_equal(mu_accumulator_apply_grad(mean, row(1, 1), 5), MU_OK); // stale: the take was step 6
    assert_int_equal(counted(mean), 0);
    mu_value *taken = mu_sparse_accumulator_take_grad(sparse, 2);
    assert_true(taken && mu_tensor_item_int(mu_at(taken, 0), 0) == 1 && mu_tensor_item(mu_at(taken, 1), 0) == 5 &&
                mu_tensor_item(mu_at(taken, 1), 1) == 6);
    mu_tensor *attempts = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){8, 7});
    expect_rows(mu__accumulator_take_kept(kept, attempts, attempt(9)), 11, 22);
    assert_int_equal(mu_accumulator_apply_grad(empty, mu_constant(MU_F64, 3), 0), MU_OK);
    pthread_join(waiting.thread, NULL);
    assert_true(waiting.status == MU_OK && waiting.got == 2);
    for (int i = 0; i < 4; i++)
        assert_true(mu_scalar(mu_accumulator_take_grad(other[i], 1)) == i);
    assert_int_equal(recovery_of(strategy).failovers, 1);
    mu_pool_close(pool);
}

static void test_takes_that_end_without_gradients(void **state)
{
    mu_server *servers[2];
    mu_accumulator *a = NULL;
    taker first, second, third;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_with_copies(servers);
    MU_SCOPE(strategy)
        a = mu_conditional_accumulator(MU_F64);
    assert_null(mu_accumulator_take_grad(a, 1, .timeout_seconds = 0.05));
    expect_error(MU_DEADLINE_EXCEEDED, "has 0 of the 1 gradients");
    assert_null(mu_accumulator_take_grad(a, 0));
    expect_error(MU_INVALID_ARGUMENT, "num_required is 0");
    take_in_thread(&first, a, 2, 600); // takes are served in their order, which is theirs to find
    take_in_thread(&second, a, 2, 600);
    for (int i = 0; i < 4; i++)
        assert_int_equal(mu_accumulator_apply_grad(a, mu_constant(MU_F64, 1), INT64_MAX), MU_OK);
    while (pthread_tryjoin_np(first.thread, NULL) != 0) { // one that comes late finds three or four
        mu_accumulator_apply_grad(a, mu_constant(MU_F64, 1), INT64_MAX);
        usleep(1000);
    }
    while (pthread_tryjoin_np(second.thread, NULL) != 0) {
        mu_accumulator_apply_grad(a, mu_constant(MU_F64, 1), INT64_MAX);
        usleep(1000);
    }
    assert_true(first.status == MU_OK && second.status == MU_OK && first.got == 1 && second.got == 1);
    take_in_thread(&third, a, 2, 600);
    assert_int_equal(mu_accumulator_close(a), MU_OK);
    pthread_join(third.thread, NULL);
    assert_true(third.status == MU_CANCELLED || third.got == 1);
    mu_accumulator_apply_grad(a, mu_constant(MU_F64, 1), 0);
    expect_error(MU_CANCELLED, "is closed");
    mu_pool_close(pool);
}

// ---- Leases -------------------------------------------------------------------------------------

// The beginning of a server, whose struct is private (rpc/server/cluster_server.c).
struct mu_server {
    mu_object object;
    mu_rpc_server *rpc;
};

static mu_store *store_at(mu_server *server)
{
    mu_stores *stores = mu__stores_of(server->rpc);
    pthread_mutex_lock(&stores->lock);
    mu_store *store = mu__store_find(stores, 0);
    pthread_mutex_unlock(&stores->lock);
    return store;
}

static bool has_blocked(mu_store *store)
{
    pthread_mutex_lock(&store->stores->lock);
    const bool has = store->first_blocked != NULL;
    pthread_mutex_unlock(&store->stores->lock);
    return has;
}

// Adds a gradient of 7 directly in a store, so that a waiting take may begin and then has to wait for a change.
static void apply_in(mu_store *store, const char *name)
{
    const double seven = 7;
    mu_resource *found =
        mu__accumulators_find(mu__service_accumulators(store->parts[0]), "conditional_accumulator", name);
    assert_non_null(found);
    assert_int_equal(mu__accumulator_apply((mu_accumulator *)found, INT64_MAX,
                                           &(mu_view){.dtype = MU_F64, .data = (void *)&seven}, NULL, NULL),
                     MU_OK);
}

// A change takes longer than a lease, and a take waits for it: the primary still renews its lease.
static void test_leases_are_renewed_while_requests_wait(void **state)
{
    mu_server *servers[2];
    mu_accumulator *a = NULL;
    taker waiting;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_with_copies(servers);
    MU_SCOPE(strategy)
        a = mu_conditional_accumulator(MU_F64);
    wait_for_copies(strategy);
    mu_store *primary = store_at(servers[0]), *copy = store_at(servers[1]);
    take_in_thread(&waiting, a, 1, 600);
    while (!has_blocked(primary))
        usleep(1000);
    pthread_mutex_lock(&primary->changing);
    apply_in(copy, ((mu_resource *)a)->name);
    apply_in(primary, ((mu_resource *)a)->name);
    usleep((useconds_t)(1.2 * MU_LEASE * primary->stores->heartbeat * 1e6));
    pthread_mutex_lock(&primary->stores->lock);
    const bool leads = mu__store_led_ns(primary) > mu__now_ns();
    pthread_mutex_unlock(&primary->stores->lock);
    pthread_mutex_unlock(&primary->changing);
    assert_true(leads);
    pthread_join(waiting.thread, NULL);
    assert_true(waiting.status == MU_OK && waiting.got == 7);
    mu_pool_close(pool);
}

// ---- Takes without memory -----------------------------------------------------------------------

// A store without a server: the test runs methods on it as if requests had come for them.
typedef struct lone_store {
    mu_stores stores;
    mu_store *store;
    int64_t request;
} lone_store;

static mu_value *run_on(lone_store *lone, mu_change *change, const char *method, mu_value *arguments)
{
    *change =
        (mu_change){.store = lone->store,
                    .ask = {[MU_ASK_CLIENT] = 1, [MU_ASK_REQUEST] = ++lone->request, [MU_ASK_OLDEST] = lone->request}};
    mu_value *value = mu__store_run(change, method, arguments);
    pthread_mutex_lock(&lone->stores.lock);
    mu__store_changed(change, method, arguments, value, mu__pending());
    pthread_mutex_unlock(&lone->stores.lock);
    return value;
}

static void open_store(lone_store *lone)
{
    *lone = (lone_store){.stores = {.kept = mu__kept_new(SIZE_MAX), .heartbeat = 60}};
    assert_int_equal(pthread_mutex_init(&lone->stores.lock, NULL), 0);
    assert_int_equal(mu__monitor_init(&lone->stores.wake, "stores"), MU_OK);
    lone->store = mu__store_new(&lone->stores, 0);
    assert_int_equal(mu__store_ready(lone->store), MU_OK);
    lone->store->role = MU_STORE_PRIMARY;
}

static void close_store(lone_store *lone)
{
    mu_release(lone->store);
    mu_release(lone->stores.kept);
    mu__monitor_free(&lone->stores.wake);
    pthread_mutex_destroy(&lone->stores.lock);
}

// The attributes of a take, as accumulator_ops.c has them.
typedef struct take_attrs {
    mu_shape shape;
    double timeout_s;
} take_attrs;

static double count_on(lone_store *lone, mu_value *count)
{
    mu_change change;
    return mu_scalar(mu_at(run_on(lone, &change, "muster.apply", count), 0));
}

// Takes while the first, second, … allocation fails. Each time the gradients are still there, or the primary knows that
// its copy lacks a change. `apply` adds the gradients and `count` counts them.
static void take_without_memory(lone_store *lone, mu_value *apply, mu_value *taking, mu_value *count)
{
    mu_change change;
    int torn = 0, kept = 0;
    bool succeeded = false;
    for (long n = 1; !succeeded; n++) {
        if (count_on(lone, count) == 0)
            run_on(lone, &change, "muster.apply", apply);
        assert_int_equal(mu_error_code(), MU_OK);
        mu__alloc_fail_at(n);
        run_on(lone, &change, "muster.apply", taking);
        succeeded = mu__alloc_fail_at(0) < n;
        assert_int_equal(mu_error_take().code, succeeded ? MU_OK : MU_RESOURCE_EXHAUSTED);
        assert_int_equal(!succeeded && count_on(lone, count) == 0, change.torn);
        torn += change.torn;
        kept += !succeeded && change.begun && !change.torn;
    }
    assert_true(torn > 0 && kept > 0 && count_on(lone, count) == 0);
}

static void test_a_take_that_finds_no_memory(void **state)
{
    (void)state;
    lone_store lone;
    mu_change change;
    const mu_shape any = {.rank = 1, .dims = {MU_UNKNOWN}};
    const int64_t kind[] = {0, 0, MU_F64, 1, MU_UNKNOWN};
    const take_attrs attrs = {.shape = any, .timeout_s = 0};
    mu_pool *pool = mu_pool_open();
    open_store(&lone);
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shape = &any, .reduction_type = "SUM", .name = "a");
    mu_resource *as[] = {(mu_resource *)a};
    mu_tensor *one = mu_constant(MU_I32, 1), *put[] = {mu_constant(MU_I64, 1e9), row(1, 2)};
    run_on(&lone, &change, "muster.accumulator.create",
           mu_list(mu__text_value("a"), mu_tensor_new(MU_I64, 1, (int64_t[]){5}, kind), MU_END));
    take_without_memory(&lone,
                        mu__remote_apply_arguments(&mu_op_resource_accumulator_apply_gradient, NULL, 2, put, 1, as),
                        mu__remote_apply_arguments(&mu_op_resource_accumulator_take_gradient, &attrs, 1, &one, 1, as),
                        mu__remote_apply_arguments(&mu_op_resource_accumulator_num_accumulated, NULL, 0, NULL, 1, as));
    mu_pool_close(pool); // which has accumulators that take from the store's budget
    close_store(&lone);
}

static void test_what_is_saved_is_checked(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shape = &two, .name = "a");
    mu_accumulator_apply_grad(a, row(1, 2), 0);
    mu__accumulator_keep(a, attempt(7), row(3, 4));
    mu_value *saved = mu__accumulator_save(a);
    mu_accumulator *again = mu__accumulator_load("b", saved);
    assert_non_null(again);
    expect_rows(mu_accumulator_take_grad(again, 1), 1, 2);
    mu_release(again);
    for (int missing = 0; missing < mu_value_count(saved); missing++) {
        mu_value *parts[8] = {NULL};
        int n = 0;
        for (int i = 0; i < mu_value_count(saved); i++)
            if (i != missing)
                parts[n++] = mu_value_at(saved, i);
        assert_null(mu__accumulator_load("b", mu_list_of(n, parts)));
        expect_error(MU_DATA_LOSS, "is damaged");
    }
    mu_pool_close(pool);
}

static void test_no_steps_that_go_back(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_cluster *at = mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}"));
    assert_null(
        mu_parameter_server_strategy(at, .replicas_to_aggregate = 2, .snapshot_every = 1, .snapshot_folder = "/tmp"));
    expect_error(MU_INVALID_ARGUMENT, "going back to a snapshot undoes steps");
    assert_null(mu_parameter_server_strategy(at, .visitation_guarantee = true, .snapshot_every = 1, .replicas = 1,
                                             .snapshot_folder = "/tmp"));
    expect_error(MU_INVALID_ARGUMENT, "give replicas instead");
    mu_pool_close(pool);
}

static int start(void **state)
{
    setenv("MUSTER_HEARTBEAT", "2", 1);
    return start_with_key(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_server_ends),
        cmocka_unit_test(test_takes_that_end_without_gradients),
        cmocka_unit_test(test_leases_are_renewed_while_requests_wait),
        cmocka_unit_test(test_a_take_that_finds_no_memory),
        cmocka_unit_test(test_what_is_saved_is_checked),
        cmocka_unit_test(test_no_steps_that_go_back),
    };
    return cmocka_run_group_tests_name("coordinator/copied_accumulators", tests, start, end_library);
}
