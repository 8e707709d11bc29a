// Embedding tables as variables on servers: a step on a worker moves rows, never the whole table, and reaches the
// weights of one device with every optimizer that takes slices. All servers are in this process; the bytes of their
// sockets are counted.
#include "base/system.h"
#include "servers_test.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdatomic.h>

enum { ROWS = 20000, WIDTH = 16, IDS = 60, STEPS = 3, TABLE_BYTES = ROWS * WIDTH * 4 };

static atomic_llong n_sent;
static mu_system counting;

static ssize_t count_and_send(int fd, const struct iovec *extents, int n)
{
    const ssize_t sent = mu__linux.send(fd, extents, n);
    n_sent += sent > 0 ? sent : 0;
    return sent;
}

static int start(void **state)
{
    counting = mu__linux;
    counting.send = count_and_send;
    mu__system = &counting;
    return start_with_key(state);
}

// ---- The same step on servers and on one device -------------------------------------------------

typedef struct job {
    mu_variable *table;
    mu_optimizer *optimizer;
    mu_function *step;
    mu_coordinator *coordinator; // NULL: one device
} job;

static mu_tensor *first_values(void)
{
    mu_tensor *values = mu_tensor_new(MU_F32, 2, (int64_t[]){ROWS, WIDTH}, NULL);
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        ((float *)mu__host_write(values))[i] = (float)(i * 37 % 101) / 101 - 0.4f;
    return values;
}

// Ids with repetitions, some far apart.
static mu_tensor *ids_of(int step)
{
    int64_t ids[IDS];
    for (int i = 0; i < IDS; i++)
        ids[i] = i % 3 == 0 ? 7 : (i * 331 + step * 17) * 97 % ROWS;
    return mu_tensor_new(MU_I64, 1, (int64_t[]){IDS}, ids);
}

static mu_value *train(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_nn_embedding_lookup(j->table, mu_at(arguments, 0));
    mu_tensor *loss = mu_reduce_mean(mu_square(mu_subtract(rows, mu_constant(MU_F32, 1))), MU_ALL_AXES);
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_variables(j->table, MU_END)));
    return mu_of(loss);
}

typedef mu_optimizer *optimizer_maker(void);
static mu_optimizer *sgd(void) { return mu_sgd(.learning_rate = 0.5); }
static mu_optimizer *momentum(void) { return mu_sgd(.learning_rate = 0.5, .momentum = 0.9, .nesterov = true); }
static mu_optimizer *adam(void) { return mu_adam(.learning_rate = 0.05); }
static mu_optimizer *adagrad(void) { return mu_adagrad(.learning_rate = 0.1); }
static mu_optimizer *ftrl(void)
{
    return mu_ftrl(.learning_rate = 0.1, .l1_regularization_strength = 0.001, .l2_regularization_strength = 0.01,
                   .l2_shrinkage_regularization_strength = 0.02, .beta = 0.1);
}

static void begin(job *j, mu_strategy *strategy, mu_coordinator *coordinator, optimizer_maker *make)
{
    j->coordinator = coordinator;
    MU_SCOPE(strategy) {
        j->table = mu_variable_new(first_values(), "table");
        j->optimizer = make();
    }
    j->step = mu_function_new(train, j);
}

static double loss_of(const job *j, mu_strategy *strategy, int i)
{
    mu_value *batch = mu_list(ids_of(i), MU_END);
    mu_value *result =
        j->coordinator ? mu_fetch(mu_schedule(j->coordinator, j->step, batch)) : mu_run(strategy, j->step, batch);
    if (!result)
        fail_msg("%s", mu_error_message());
    return mu_scalar(result);
}

static void check_same(mu_variable *a, mu_variable *b, double tolerance)
{
    const float *left = mu__host_read(mu_variable_read(a)), *right = mu__host_read(mu_variable_read(b));
    assert_non_null(left);
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        if (!(fabs(left[i] - right[i]) <= tolerance))
            fail_msg("element %d is %.9g on servers, %.9g on one device", (int)i, left[i], right[i]);
}

// ---- Tests --------------------------------------------------------------------------------------

static void check(optimizer_maker *make, mu_partitioner *partitioner, double tolerance)
{
    job served = {0}, single = {0};
    mu_strategy *strategy = strategy_of_servers(2, partitioner), *one = mu_one_device_strategy("CPU:0");
    begin(&served, strategy, mu_coordinator_new(strategy), make);
    begin(&single, one, NULL, make);
    loss_of(&served, strategy, 0); // makes the slots, whose initial values go to the servers
    loss_of(&single, one, 0);
    const long long before = n_sent;
    for (int i = 1; i <= STEPS; i++)
        assert_float_equal(loss_of(&served, strategy, i), loss_of(&single, one, i), tolerance);
    // 60 ids, of which 41 are different: each row is sent once, 60 slices of gradients come back, and the messages need
    // a little more.
    const long long rows = STEPS * (41 + IDS) * WIDTH * 4, moved = n_sent - before;
    print_message("%lld bytes in %d steps, of which rows %lld; the table has %d\n", moved, STEPS, rows, TABLE_BYTES);
    assert_true(moved > rows && moved < rows + STEPS * 30000 && moved < TABLE_BYTES / 4);
    check_same(served.table, single.table, tolerance);
}

static void test_rows_travel_and_tables_do_not(void **state)
{
    (void)state;
    static const struct {
        optimizer_maker *make;
        double tolerance;
    } optimizers[] = {{sgd, 0}, {momentum, 0}, {adam, 0}, {adagrad, 0}, {ftrl, 2e-6}};
    for (size_t i = 0; i < MU_COUNT(optimizers); i++)
        for (int sharded = 0; sharded < 2; sharded++) {
            mu_pool *pool = mu_pool_open();
            check(optimizers[i].make, sharded ? mu_fixed_shards_partitioner(2) : NULL, optimizers[i].tolerance);
            mu_pool_close(pool);
        }
}

static void test_lookups_outside_of_functions(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of_servers(2, mu_fixed_shards_partitioner(2));
    mu_variable *table = NULL, *whole = NULL;
    MU_SCOPE(strategy) {
        table = mu_variable_new(first_values(), "table");
    }
    whole = mu_variable_new(first_values(), "whole");
    const long long before = n_sent;
    mu_tape *tape = mu_tape_open();
    mu_tensor *ids = mu_reshape(ids_of(1), 2, (int64_t[]){IDS / 2, 2});
    mu_tensor *rows = mu_nn_embedding_lookup(table, ids), *wanted = mu_nn_embedding_lookup(whole, ids);
    mu_tensor *twice = mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){1, 1});
    mu_tensor *read = mu_variable_sparse_read(mu_variable_shard(table, 1), twice);
    assert_memory_equal(mu__host_read(rows), mu__host_read(wanted), IDS * WIDTH * 4);
    assert_memory_equal(mu__host_read(read), (const char *)mu__host_read(read) + WIDTH * 4, WIDTH * 4);
    assert_true(n_sent - before < TABLE_BYTES / 4);
    mu_value *gradients = mu_gradients(tape, mu_reduce_sum(mu_square(rows), MU_ALL_AXES),
                                       mu_variables(mu_variable_shard(table, 0), MU_END));
    assert_int_equal(mu_value_kind_of(mu_value_at(gradients, 0)), MU_VALUE_SLICES);
    mu_tensor *outside = mu_tensor_new(MU_I64, 1, (int64_t[]){1}, (int64_t[]){ROWS / 2});
    assert_null(mu_variable_gather(mu_variable_shard(table, 1), outside));
    expect_error(MU_INVALID_ARGUMENT, "outside the 10000 rows");
    assert_null(mu_nn_embedding_lookup(table, mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){0, ROWS})));
    expect_error(MU_INVALID_ARGUMENT, "index 20000 (element 1) is outside the 20000 rows");
    mu_tensor *none = mu_variable_gather(mu_variable_shard(table, 1), mu_tensor_new(MU_I64, 1, (int64_t[]){0}, NULL));
    assert_true(none && mu_tensor_dim(none, 0) == 0 && mu_tensor_dim(none, 1) == WIDTH);
    mu_tape_close(tape);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_travel_and_tables_do_not),
                                       cmocka_unit_test(test_lookups_outside_of_functions)};
    return cmocka_run_group_tests_name("coordinator/served_rows", tests, start, end_library);
}
