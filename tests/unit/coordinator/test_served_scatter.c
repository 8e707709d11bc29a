// Scatters into a variable whose parts are on several servers: one op, which asks all servers at the same time and has
// the results of one device, as assignments outside of functions have. Workers of an older version are refused with an
// error. All servers are in this process.
#include "graph/graph.h"
#include "rpc/services/service.h"
#include "servers_test.h"
#include "tensor/tensor.h"

enum { ROWS = 30, WIDTH = 3, IDS = 12, PARTS = 3 };

typedef mu_status scatter(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
typedef mu_status assignment(mu_variable *variable, mu_tensor *value);

static scatter *const scatters[] = {mu_variable_scatter_add,   mu_variable_scatter_sub, mu_variable_scatter_mul,
                                    mu_variable_scatter_div,   mu_variable_scatter_min, mu_variable_scatter_max,
                                    mu_variable_scatter_update};

static mu_tensor *numbers(int64_t n, int seed)
{
    mu_tensor *x = mu_tensor_new(MU_F32, 2, (int64_t[]){n, WIDTH}, NULL);
    for (int64_t i = 0; i < n * WIDTH; i++)
        ((float *)mu__host_write(x))[i] = (float)((i * 37 + seed) % 19 + 1) / 8;
    return x;
}

// Rows of all parts, in no order, one of them three times.
static mu_tensor *ids(void)
{
    const int64_t at[IDS] = {29, 0, 11, 11, 4, 20, 9, 10, 19, 11, 28, 1};
    return mu_tensor_new(MU_I64, 1, (int64_t[]){IDS}, at);
}

typedef struct pair_of {
    mu_variable *served, *here;
    scatter *scatter;
    assignment *assign;
} pair_of;

static mu_value *step(mu_value *arguments, void *arg)
{
    const pair_of *p = arg;
    p->scatter(p->served, mu_at(arguments, 0), mu_at(arguments, 1));
    return mu_of(mu_constant(MU_F32, 1));
}

static void expect_same(const pair_of *p)
{
    mu_tensor *seen = mu_variable_read(p->served), *wanted = mu_variable_read(p->here);
    assert_non_null(seen);
    assert_memory_equal(mu__host_read(seen), mu__host_read(wanted), ROWS * WIDTH * sizeof(float));
}

static pair_of make(mu_strategy *strategy)
{
    pair_of p = {.here = mu_variable_new(numbers(ROWS, 1), "here")};
    MU_SCOPE(strategy) {
        p.served = mu_variable_new(numbers(ROWS, 1), "served");
    }
    assert_int_equal(mu_variable_shard_count(p.served), PARTS);
    return p;
}

static void test_each_kind(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(PARTS, mu_fixed_shards_partitioner(PARTS));
    mu_coordinator *c = mu_coordinator_new(strategy);
    pair_of p = make(strategy);
    for (size_t i = 0; i < MU_COUNT(scatters); i++) {
        p.scatter = scatters[i];
        assert_int_equal(p.scatter(p.here, ids(), numbers(IDS, 5)), MU_OK);
        assert_int_equal(p.scatter(p.served, ids(), numbers(IDS, 5)), MU_OK);
        expect_same(&p);
        assert_int_equal(p.scatter(p.here, ids(), numbers(IDS, 7)), MU_OK);
        mu_function *function = mu_function_new(step, &p);
        assert_non_null(mu_fetch(mu_schedule(c, function, mu_list(ids(), numbers(IDS, 7), MU_END))));
        expect_same(&p);
    }
    mu_tensor *none = mu_tensor_new(MU_I64, 1, (int64_t[]){0}, NULL);
    assert_int_equal(mu_variable_scatter_add(p.served, none, numbers(0, 1)), MU_OK);
    expect_same(&p);
    mu_pool_close(pool);
}

// The error is that of the first part; the other servers were asked before it was known.
static void test_errors(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    pair_of p = make(strategy_of_servers(PARTS, mu_fixed_shards_partitioner(PARTS)));
    mu_tensor *outside = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){0, ROWS});
    mu_variable_scatter_add(p.served, outside, numbers(2, 1));
    expect_error(MU_INVALID_ARGUMENT, "index 30 (element 1) of 'served', which has 30 rows");
    mu_variable_scatter_add(p.served, ids(), numbers(IDS + 1, 1));
    expect_error(MU_INVALID_ARGUMENT, "scatter: the values are");
    expect_same(&p);
    mu_variable *first = mu_variable_shard(p.served, 0), *last = mu_variable_shard(p.served, PARTS - 1);
    mu_rpc_client *client = (mu_rpc_client *)first->resource.home;
    assert_int_equal(mu__remote_variable_delete(client, first->resource.name), MU_OK);
    const double before = mu_tensor_item(mu_variable_read(last), 0);
    mu_tensor *ends = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){0, 2 * ROWS / PARTS});
    mu_variable_scatter_add(p.served, ends, mu_ones(MU_F32, 2, (int64_t[]){2, WIDTH}));
    expect_error(MU_NOT_FOUND, first->resource.name);
    for (int i = 0; i < 6000 && mu_tensor_item(mu_variable_read(last), 0) != before + 1; i++)
        usleep(10000);
    assert_true(mu_tensor_item(mu_variable_read(last), 0) == before + 1);
    mu_pool_close(pool);
}

// ---- Assignments --------------------------------------------------------------------------------

static assignment *const assignments[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};

static void test_assignments(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    pair_of p = make(strategy_of_servers(PARTS, mu_fixed_shards_partitioner(PARTS)));
    for (int i = 0; i < (int)MU_COUNT(assignments); i++) {
        assert_int_equal(assignments[i](p.here, numbers(ROWS, 3 + i)), MU_OK);
        assert_int_equal(assignments[i](p.served, numbers(ROWS, 3 + i)), MU_OK);
        expect_same(&p);
    }
    mu_pool_close(pool);
}

static mu_value *assign_in_function(mu_value *arguments, void *arg)
{
    const pair_of *p = arg;
    if (p->assign(p->served, mu_at(arguments, 0)) != MU_OK)
        return NULL;
    return mu_of(mu_reduce_sum(mu_variable_read(p->served), MU_ALL_AXES)); // sees all parts
}

static void test_assignments_in_functions(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(PARTS, mu_fixed_shards_partitioner(PARTS));
    mu_coordinator *c = mu_coordinator_new(strategy);
    pair_of p = make(strategy);
    for (int i = 0; i < (int)MU_COUNT(assignments); i++) {
        p.assign = assignments[i];
        assert_int_equal(p.assign(p.here, numbers(ROWS, 3 + i)), MU_OK);
        mu_function *function = mu_function_new(assign_in_function, &p);
        const double seen = mu_scalar(mu_fetch(mu_schedule(c, function, mu_list(numbers(ROWS, 3 + i), MU_END))));
        assert_true(seen == mu_scalar(mu_reduce_sum(mu_variable_read(p.here), MU_ALL_AXES)));
        expect_same(&p);
        p.assign(p.here, numbers(ROWS, 5));
        assert_non_null(mu_run(strategy, function, mu_list(numbers(ROWS, 5), MU_END))); // in this process
        expect_same(&p);
    }
    mu_pool_close(pool);
}

// All parts are asked before the error of the first is known.
static void expect_asked_at_once(bool in_function)
{
    for (int i = 0; i < (int)MU_COUNT(assignments); i++) {
        mu_pool *pool = mu_pool_open();
        mu_strategy *strategy = strategy_of_servers(PARTS, mu_fixed_shards_partitioner(PARTS));
        mu_coordinator *c = mu_coordinator_new(strategy, .ignore_transient_ps_failures = 0); // calls run once
        pair_of p = make(strategy);
        p.assign = assignments[i];
        mu_variable *first = mu_variable_shard(p.served, 0), *last = mu_variable_shard(p.served, PARTS - 1);
        mu_function *function = mu_function_new(assign_in_function, &p);
        if (in_function) // so that the worker is connected to all servers
            assert_non_null(mu_fetch(mu_schedule(c, function, mu_list(numbers(ROWS, 1), MU_END))));
        assert_int_equal(mu__remote_variable_delete((mu_rpc_client *)first->resource.home, first->resource.name),
                         MU_OK);
        const double before = mu_tensor_item(mu_variable_read(last), 0);
        mu_tensor *value = mu_fill(MU_F32, 2, (int64_t[]){ROWS, WIDTH}, 8);
        if (in_function)
            mu_fetch(mu_schedule(c, function, mu_list(value, MU_END)));
        else
            p.assign(p.served, value);
        if (in_function) // it lacks its variables
            expect_error(MU_UNAVAILABLE, "parameter server 0 at localhost:");
        else
            expect_error(MU_NOT_FOUND, first->resource.name);
        const double wanted[] = {8, before + 8, before - 8};
        for (int k = 0; k < 6000 && mu_tensor_item(mu_variable_read(last), 0) != wanted[i]; k++)
            usleep(10000);
        assert_true(mu_tensor_item(mu_variable_read(last), 0) == wanted[i]);
        assert_true(mu_join(c) == MU_OK || in_function);
        mu_error_take();
        mu_pool_close(pool);
    }
}

static void test_all_parts_are_asked_at_once(void **state)
{
    (void)state;
    expect_asked_at_once(false);
    expect_asked_at_once(true);
}

// ---- Older workers ------------------------------------------------------------------------------

static mu_value *look_up(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_nn_embedding_lookup(((const pair_of *)arg)->served, mu_constant(MU_I64, 1)));
}

static mu_value *read_part(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_reduce_sum(mu_variable_read(mu_variable_shard(((const pair_of *)arg)->served, 0)), MU_ALL_AXES));
}

static void test_an_older_worker_is_told(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    setenv("MUSTER_WIRE_VERSION", "4", 1);
    mu_runtime *older = mu_runtime_new(.cpu_devices = 1);
    mu_runtime *before = mu_runtime_use(older);
    unsetenv("MUSTER_WIRE_VERSION");
    mu_server *worker = mu_server_create_local_server(true);
    mu_runtime_use(before);
    mu_strategy *strategy = strategy_with_worker(worker, PARTS, mu_fixed_shards_partitioner(PARTS));
    mu_coordinator *c = mu_coordinator_new(strategy);
    pair_of p = make(strategy);
    assert_non_null(mu_fetch(mu_schedule(c, mu_function_new(read_part, &p))));
    assert_null(mu_fetch(mu_schedule(c, mu_function_new(look_up, &p))));
    expect_error(MU_UNIMPLEMENTED, "it speaks version 4 of the wire, and one op on several parts of a variable");
    mu_pool_close(pool);
}

// ---- Values of this process ----------------------------------------------------------------------

static mu_value *value_of_replica(const mu_value_context *context, void *arg)
{
    *(int *)arg += 1;
    return mu_of(mu_constant(MU_F32, 10 + context->replica_id));
}

static mu_value *row_of(mu_value *arguments, void *arg)
{
    mu_tensor *row = mu_reshape(mu_at(arguments, 0), 1, (int64_t[]){1});
    return mu_list(row, mu_variable_read(((const pair_of *)arg)->served), MU_END);
}

// The replicas are those of the caller's process: one, wherever servers and workers are.
static void test_values_are_those_of_this_process(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(PARTS, mu_fixed_shards_partitioner(PARTS));
    int calls = 0;
    mu_value *values = mu_distribute_values(strategy, value_of_replica, &calls);
    assert_int_equal(calls, 1);
    assert_int_equal(mu_value_count(mu_local_results(strategy, values)), 1);
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, values)) == 10);
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, values)) == 10);
    pair_of p = make(strategy);
    mu_value *results = mu_run(strategy, mu_function_new(row_of, &p), mu_list(values, MU_END));
    mu_tensor *gathered = mu_value_tensor(mu_strategy_gather(strategy, mu_value_at(results, 0), 0));
    assert_int_equal(mu_tensor_elements(gathered), 1);
    assert_true(mu_tensor_item(gathered, 0) == 10);
    mu_tensor *first = mu_variable_read(mu_variable_shard(p.served, 0));
    mu_tensor *whole = mu_variable_read(p.served);
    assert_true(mu_tensor_dim(whole, 0) > mu_tensor_dim(first, 0));
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_assignments),
        cmocka_unit_test(test_assignments_in_functions),
        cmocka_unit_test(test_all_parts_are_asked_at_once),
        cmocka_unit_test(test_values_are_those_of_this_process),
        cmocka_unit_test(test_an_older_worker_is_told),
    };
    return cmocka_run_group_tests_name("coordinator/served_scatter", tests, start_with_key, end_library);
}
