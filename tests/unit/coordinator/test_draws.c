// Elements of per-worker datasets belong to calls: in synchronous steps and with a visitation guarantee the schedule
// alone decides which element a call gets, whichever worker is slow or lost, and a backup or a retry gets the same one.
#include "../rpc/rpc_test.h"

#include "coordinator/coordinator.h"

#include <unistd.h>

enum { WORKERS = 3, CALLS = 24, SLOW = 0, LOST = 1 };

// Workers of this process: one is slow, and one is lost in the middle and comes back.
typedef struct trouble {
    bool slow, loses;
    atomic_int calls, lost, slow_calls, fast_calls;
} trouble;

typedef struct troubled_task {
    mu_task task;
    trouble *trouble;
} troubled_task;

static mu_value *troubled_call(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    trouble *t = ((troubled_task *)task)->trouble;
    if (t->slow && task->worker == SLOW && ++t->slow_calls)
        usleep(60000);
    else if (t->slow && ++t->fast_calls > 4) // until the slow one has a call, or a copy of one
        for (int i = 0; i < 5000 && t->slow_calls == 0; i++)
            usleep(1000);
    if (t->loses && task->worker == LOST && ++t->calls == 3 && t->lost++ == 0) {
        *failure = (mu_task_failure){.blame = MU_BLAME_WORKER};
        mu_fail(MU_UNAVAILABLE, "worker %d is lost", task->worker);
        return NULL;
    }
    return mu__served_call(task->strategy, task->worker, function, arguments);
}

static mu_status troubled_recover(mu_task *task)
{
    (void)task;
    return MU_OK;
}

static void troubled_free(mu_task *task) { mu__free(task); }

static mu_task *troubled(mu_strategy *strategy, int worker, void *arg)
{
    static const mu_task_ops ops = {
        .name = "troubled", .call = troubled_call, .recover = troubled_recover, .free = troubled_free};
    troubled_task *made = mu__calloc(1, sizeof *made);
    *made = (troubled_task){.task = {.ops = &ops, .strategy = strategy, .worker = worker}, .trouble = arg};
    return &made->task;
}

// The dataset of worker k has the numbers from 100 k on.
static mu_dataset *own_numbers(void *arg)
{
    const int first = 100 * mu_get_current_worker_index();
    ++*(atomic_int *)arg;
    return mu_dataset_batch(mu_dataset_range(first, first + CALLS / WORKERS, 1), 1);
}

typedef struct job {
    mu_variable *w;
    mu_optimizer *optimizer;
} job;

// The weight depends on which numbers a step has: its gradient is the number times the weight.
static mu_value *step_of(mu_value *arguments, void *arg)
{
    job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_reduce_sum(mu_cast(mu_at(arguments, 0), MU_F64), MU_ALL_AXES), *w = mu_variable_read(j->w);
    mu_tensor *loss = mu_multiply(mu_multiply(mu_square(w), x), mu_constant(MU_F64, 0.0005));
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_variables(j->w, MU_END)));
    return mu_of(x);
}

static mu_strategy *strategy_of(bool synchronous)
{
    mu_cluster *cluster = mu_simple_cluster_resolver(
        mu_cluster_spec_parse("{\"worker\": [\"a:1\", \"a:2\", \"a:3\"], \"ps\": [\"a:4\"]}"));
    return synchronous ? mu_parameter_server_strategy(cluster, .replicas_to_aggregate = 2, .in_process = true)
                       : mu_parameter_server_strategy(cluster, .visitation_guarantee = true, .in_process = true);
}

static int64_t dropped(mu_coordinator *c)
{
    int64_t n = 0;
    for (int i = 0; i < WORKERS; i++) {
        mu_worker_calls calls;
        assert_int_equal(mu_coordinator_worker_calls(c, i, &calls), MU_OK);
        n += calls.dropped;
    }
    return n;
}

// Runs all calls and returns the weight. `copies`: some calls must have been copied.
static double run(bool synchronous, trouble *t, bool copies)
{
    mu_pool *pool = mu_pool_open();
    static atomic_int made;
    made = 0;
    mu_strategy *strategy = strategy_of(synchronous);
    mu_coordinator *c = mu__give(mu__coordinator_new(&(mu_coordinator_args){.strategy = strategy}, troubled, t));
    job j = {0};
    MU_SCOPE(strategy) {
        j.w = mu_variable_new(mu_constant(MU_F64, 1), "w");
        j.optimizer = mu_sgd(.learning_rate = 1);
    }
    mu_value *data = mu_create_per_worker_dataset(c, own_numbers, &made), *results[CALLS];
    mu_function *step = mu_function_new(step_of, &j);
    for (int i = 0; i < CALLS; i++)
        results[i] = mu_schedule(c, step, mu_list(data, MU_END));
    if (mu_join(c) != MU_OK)
        fail_msg("%s", mu_error_message());
    for (int i = 0; i < CALLS; i++)
        assert_true(mu_scalar(mu_fetch(results[i])) == 100 * (i % WORKERS) + i / WORKERS);
    assert_int_equal(made, WORKERS); // not made again for the worker that was lost
    for (int i = 0; copies && i < 5000 && dropped(c) == 0; i++)
        usleep(1000);
    assert_true(!copies || dropped(c) > 0);
    const double weight = mu_scalar(mu_variable_read(j.w));
    mu_schedule(c, step, mu_list(data, MU_END));
    mu_join(c);
    expect_error(MU_OUT_OF_RANGE, "the dataset of worker 0 has no more elements");
    mu_pool_close(pool);
    return weight;
}

static void a_slow_worker_changes_no_weight(void **state)
{
    (void)state;
    const double expected = run(true, &(trouble){0}, false), got = run(true, &(trouble){.slow = true}, true);
    assert_true(got == expected);
}

static void a_lost_worker_changes_no_weight(void **state)
{
    (void)state;
    trouble t = {.loses = true};
    const double expected = run(true, &(trouble){0}, false), got = run(true, &t, false);
    assert_true(got == expected && t.lost == 1);
}

static void each_element_is_visited_once(void **state)
{
    (void)state;
    trouble t = {.loses = true, .slow = true};
    run(false, &t, false);
    assert_int_equal(t.lost, 1);
}

// Returns the sum of a call's batch.
static mu_value *sum_of(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_cast(mu_at(arguments, 0), MU_F64), MU_ALL_AXES));
}

// Schedules six calls on the batches 0 1 2 3 and 4 5 6 7, and checks the sum that each gets.
static void expect_sums(bool synchronous, bool distributed, const double sums[6])
{
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of(synchronous);
    mu_coordinator *c =
        mu__give(mu__coordinator_new(&(mu_coordinator_args){.strategy = strategy}, troubled, &(trouble){0}));
    mu_dataset *batches = mu_dataset_batch(mu_dataset_range(0, 24, 1), 4);
    mu_value *data = distributed ? mu_create_per_worker_dataset(c, .dataset = mu_distribute_dataset(strategy, batches))
                                 : mu_create_per_worker_dataset(c, .dataset = batches);
    mu_function *function = mu_function_new(sum_of, NULL);
    mu_value *results[6];
    for (int i = 0; i < 6; i++)
        results[i] = mu_schedule(c, function, mu_list(data, MU_END));
    for (int i = 0; i < 6; i++)
        assert_true(mu_scalar(mu_fetch(results[i])) == sums[i]);
    mu_pool_close(pool);
}

// A plain dataset starts from its beginning on each worker; a distributed one is shared by all.
static void datasets_of_the_program_are_drawn_from(void **state)
{
    (void)state;
    for (int synchronous = 0; synchronous < 2; synchronous++)
        expect_sums(synchronous, false, (const double[]){6, 6, 6, 22, 22, 22});
    expect_sums(false, true, (const double[]){6, 22, 38, 54, 70, 86});
    expect_sums(true, true, (const double[]){1, 5, 9, 13, 17, 21}); // two calls make a step, and share a batch
}

static int start_in_f64(void **state)
{
    (void)state;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    return mu_init(.cpu_devices = WORKERS) == MU_OK && mu_set_floatx(MU_F64) == MU_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_worker_changes_no_weight),
        cmocka_unit_test(a_lost_worker_changes_no_weight),
        cmocka_unit_test(each_element_is_visited_once),
        cmocka_unit_test(datasets_of_the_program_are_drawn_from),
    };
    return cmocka_run_group_tests(tests, start_in_f64, end_library);
}
