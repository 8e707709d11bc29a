// Checkpoints under another number of servers, and under every other strategy: weights and optimizer slots keep their
// bits, training continues as it would have, and the way back is the same.
#include "../scratch.h"
#include "servers_test.h"
#include "tensor/tensor.h"

#include <math.h>

enum { ROWS = 23, WIDTH = 3, IDS = 16 };

typedef struct job {
    mu_strategy *strategy;
    mu_variable *table, *bias;
    mu_optimizer *optimizer;
    mu_function *step;
    mu_coordinator *coordinator; // NULL: the strategy is not one of parameter servers
    mu_checkpoint *checkpoint;
} job;

static mu_tensor *values_of(int64_t rows, double factor)
{
    mu_tensor *values = mu_tensor_new(MU_F32, 2, (int64_t[]){rows, WIDTH}, NULL);
    for (int64_t i = 0; i < rows * WIDTH; i++)
        ((float *)mu__host_write(values))[i] = (float)(factor * (double)(i * 37 % 19 - 9) / 9);
    return values;
}

static mu_value *train(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_add(mu_nn_embedding_lookup(j->table, mu_at(arguments, 0)), mu_variable_read(j->bias));
    mu_tensor *loss = mu_reduce_sum(mu_square(mu_subtract(rows, mu_constant(MU_F32, 1))), MU_ALL_AXES);
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_variables(j->table, j->bias, MU_END)));
    return mu_of(loss);
}

// Variables and an optimizer whose values differ from job to job.
static void begin(job *j, mu_strategy *strategy, double factor)
{
    *j = (job){.strategy = strategy};
    if (mu_strategy_ps_count(strategy) > 0)
        j->coordinator = mu_coordinator_new(strategy);
    MU_SCOPE(strategy) {
        j->table = mu_variable_new(values_of(ROWS, factor), "table");
        j->bias = mu_variable_new(values_of(1, -factor), "bias");
        j->optimizer = mu_adam(.learning_rate = 0.05);
    }
    j->step = mu_function_new(train, j);
    j->checkpoint = mu_checkpoint_new(.variables = mu_variables(j->table, j->bias, MU_END), .optimizer = j->optimizer);
    assert_non_null(j->checkpoint);
}

// The ids of step i. Replicas take shares of them in order, so that all slices together are the same list.
static mu_value *batch_of(int i, int replicas)
{
    mu_value *parts[2];
    int64_t ids[IDS], n = IDS / replicas;
    for (int k = 0; k < IDS; k++)
        ids[k] = (k * 5 + i * 3) * 7 % (ROWS - 4); // four rows are never named
    for (int r = 0; r < replicas; r++)
        parts[r] = mu_list(mu_tensor_new(MU_I64, 1, &n, ids + r * n), MU_END);
    return replicas == 1 ? parts[0] : mu__give(mu__value_container(MU_VALUE_PER_REPLICA, replicas, parts, NULL));
}

static void train_steps(job *j, int from, int to)
{
    for (int i = from; i < to; i++) {
        mu_value *batch = batch_of(i, mu_num_replicas_in_sync(j->strategy));
        if (j->coordinator ? !mu_fetch(mu_schedule(j->coordinator, j->step, batch))
                           : !mu_run(j->strategy, j->step, batch))
            fail_msg("step %d: %s", i, mu_error_message());
    }
}

// Whether two files hold the same tensors, within a tolerance; 0: bit by bit.
static void check_files(const char *a, const char *b, double tolerance)
{
    mu_tensor_file *left = mu_tensor_file_open(a), *right = mu_tensor_file_open(b);
    assert_true(left && right && mu_tensor_file_count(left) == 8);
    assert_int_equal(mu_tensor_file_count(left), mu_tensor_file_count(right));
    for (int i = 0; i < mu_tensor_file_count(left); i++) {
        const char *name = mu_tensor_file_name(left, i);
        const int k = mu_tensor_file_find(right, name);
        if (k < 0)
            fail_msg("'%s' is in %s and not in %s", name, a, b);
        mu_tensor *x = mu_tensor_file_read(left, i), *y = mu_tensor_file_read(right, k);
        assert_true(mu__shape_equal(&x->shape, &y->shape) && x->dtype == y->dtype);
        for (int64_t e = 0; e < mu_tensor_elements(x); e++)
            if (!(fabs(mu_tensor_item(x, e) - mu_tensor_item(y, e)) <= tolerance))
                fail_msg("'%s', element %d: %.9g in %s, %.9g in %s", name, (int)e, mu_tensor_item(x, e), a,
                         mu_tensor_item(y, e), b);
    }
}

static mu_strategy *servers(int n) { return strategy_of_servers(n, mu_fixed_shards_partitioner(n > 1 ? n : 2)); }
static mu_strategy *one_server(void) { return servers(1); }
static mu_strategy *two_servers(void) { return servers(2); }
static mu_strategy *five_servers(void) { return servers(5); }
static mu_strategy *whole_on_servers(void) { return strategy_of_servers(2, NULL); }
static mu_strategy *one_device(void) { return mu_one_device_strategy("CPU:0"); }
static mu_strategy *mirrored(void) { return mu_mirrored_strategy(.replicas = 2); }
static mu_strategy *central(void) { return mu_central_storage_strategy(.replicas = 2); }
static mu_strategy *tpu(void)
{
    mu_cluster *cores = mu_tpu_cluster_resolver("local");
    return mu_tpu_initialize(cores) ? mu_tpu_strategy(cores) : NULL;
}

// Saved by three servers after two steps and after four.
static void save_on_three(void)
{
    job j;
    begin(&j, servers(3), 1);
    assert_int_equal(mu_variable_shard_count(j.table), 3);
    train_steps(&j, 0, 2);
    assert_int_equal(mu_checkpoint_save(j.checkpoint, "two"), MU_OK);
    train_steps(&j, 2, 4);
    assert_int_equal(mu_checkpoint_save(j.checkpoint, "four"), MU_OK);
}

static void check(mu_strategy *strategy)
{
    job there, back;
    if (!strategy)
        fail_msg("%s", mu_error_message());
    begin(&there, strategy, 0.5);
    assert_int_equal(mu_checkpoint_restore(there.checkpoint, "two"), MU_OK);
    assert_int_equal(mu_checkpoint_save(there.checkpoint, "restored"), MU_OK);
    check_files("two", "restored", 0);
    train_steps(&there, 2, 4);
    assert_int_equal(mu_checkpoint_save(there.checkpoint, "trained"), MU_OK);
    check_files("four", "trained", mu_num_replicas_in_sync(strategy) > 1 ? 1e-6 : 0);
    begin(&back, servers(3), 0.25);
    train_steps(&back, 0, 1); // the slots are there already
    assert_int_equal(mu_checkpoint_restore(back.checkpoint, "trained"), MU_OK);
    assert_int_equal(mu_checkpoint_save(back.checkpoint, "back"), MU_OK);
    check_files("trained", "back", 0);
}

static void test_every_layout_goes_on(void **state)
{
    (void)state;
    static mu_strategy *(*const makers[])(void) = {one_server, two_servers, five_servers, whole_on_servers,
                                                   one_device, mirrored,    central,      tpu};
    mu_pool *pool = mu_pool_open();
    save_on_three();
    mu_pool_close(pool);
    for (size_t i = 0; i < MU_COUNT(makers); i++) {
        pool = mu_pool_open();
        check(makers[i]());
        mu_pool_close(pool);
    }
}

static int start(void **state)
{
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    return mu_init(.cpu_devices = 2) == MU_OK ? scratch_enter(state) : -1;
}

static int end(void **state) { return scratch_leave(state) != 0 ? -1 : end_library(state); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout_goes_on)};
    return cmocka_run_group_tests_name("coordinator/reshard", tests, start, end);
}
