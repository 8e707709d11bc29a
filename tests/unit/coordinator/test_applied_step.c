// Steps of several calls are applied all or nothing. Programs whose weights would differ from those of replicas are
// refused by name while the function is traced.
#include "coordinator/coordinator.h"
#include "distribute/servers/aggregation.h"
#include "servers_test.h"

#include "../../two_optimizers.h"
#include "../caught_output.h"

// ---- What is refused ----------------------------------------------------------------------------

typedef struct job {
    mu_variable *w, *none, *mean, *whole, *on_read;
    mu_optimizer *optimizer;
    mu_status (*act)(struct job *j, mu_tensor *x);
} job;

static mu_value *step(mu_value *arguments, void *arg)
{
    job *j = arg;
    return j->act(j, mu_at(arguments, 0)) == MU_OK ? mu_of(mu_at(arguments, 0)) : NULL;
}

static mu_status apply(job *j, mu_tensor *x)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_multiply(mu_variable_read(j->w), x);
    return mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_variables(j->w, MU_END)));
}

static mu_status assign_none(job *j, mu_tensor *x) { return mu_variable_assign_add(j->none, x); }
static mu_status assign_whole(job *j, mu_tensor *x) { return mu_variable_assign_add(j->whole, mu_cast(x, MU_I64)); }
static mu_status read_on_read(job *j, mu_tensor *x)
{
    (void)x;
    return mu_variable_read(j->on_read) ? MU_OK : mu_error_code();
}
static mu_status all_reduce(job *j, mu_tensor *x)
{
    (void)j;
    return mu_all_reduce(MU_SUM, x) ? MU_OK : mu_error_code();
}
static mu_status read_assigned(job *j, mu_tensor *x)
{
    return mu_variable_assign(j->mean, x) == MU_OK && mu_variable_read(j->mean) ? MU_OK : mu_error_code();
}
static mu_status assign_applied(job *j, mu_tensor *x)
{
    return apply(j, x) == MU_OK ? mu_variable_assign(j->w, x) : mu_error_code();
}
static mu_status assign_what_was_read_late(job *j, mu_tensor *x)
{
    return apply(j, x) == MU_OK ? mu_variable_assign(j->mean, mu_variable_read(j->w)) : mu_error_code();
}
static mu_status scatter(job *j, mu_tensor *x)
{
    mu_tensor *zero = mu_zeros(MU_I32, 1, (int64_t[]){1});
    return mu_variable_scatter_add(j->mean, zero, mu_reshape(x, 1, (int64_t[]){1}));
}
static mu_value *assign_in_branch(mu_value *arguments, void *arg)
{
    job *j = arg;
    return mu_variable_assign(j->mean, mu_at(arguments, 0)) == MU_OK ? arguments : NULL;
}
static mu_value *leave_alone(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}
static mu_status in_branch(job *j, mu_tensor *x)
{
    mu_tensor *positive = mu_greater(x, mu_constant(MU_F64, 0));
    return mu_cond(positive, assign_in_branch, leave_alone, mu_list(x, MU_END), j) ? MU_OK : mu_error_code();
}
static mu_value *merged(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arg;
    return arguments;
}
static mu_status merge(job *j, mu_tensor *x)
{
    (void)j;
    return mu_merge_call(merged, NULL, mu_list(x, MU_END)) ? MU_OK : mu_error_code();
}

static mu_variable *extra(const char *name, mu_dtype dtype, mu_variable_aggregation aggregation)
{
    return mu_variable_new(mu_constant(dtype, 1), name, .not_trainable = true, .aggregation = aggregation);
}

static job make_job(mu_strategy *strategy)
{
    job j = {0};
    MU_SCOPE(strategy) {
        j.w = mu_variable_new(mu_constant(MU_F64, 0), "w", .aggregation = MU_AGGREGATION_MEAN);
        j.none = extra("none", MU_F64, MU_AGGREGATION_NONE);
        j.mean = extra("mean", MU_F64, MU_AGGREGATION_MEAN);
        j.whole = extra("whole", MU_I64, MU_AGGREGATION_MEAN);
        j.on_read = mu_variable_new(mu_constant(MU_F64, 1), "on_read", .aggregation = MU_AGGREGATION_SUM,
                                    .synchronization = MU_SYNCHRONIZATION_ON_READ);
        j.optimizer = mu_sgd(.learning_rate = 1);
    }
    return j;
}

static void test_what_replicas_would_do_otherwise_is_refused(void **state)
{
    (void)state;
    static const struct {
        mu_status (*act)(job *j, mu_tensor *x);
        const char *name, *why;
    } rows[] = {{assign_none, "'none'", "aggregation NONE"},
                {assign_whole, "'whole'", "aggregation MEAN"},
                {read_on_read, "'on_read'", "ON_READ"},
                {all_reduce, "mu_all_reduce", "applied together"},
                {read_assigned, "'mean'", "after it was assigned"},
                {assign_applied, "'w'", "after mu_apply_gradients"},
                {assign_what_was_read_late, "'w'", "read in between"},
                {scatter, "'mean'", "scattered"},
                {in_branch, "'mean'", "inside a body"},
                {merge, "mu_merge_call", "applied together"}};
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 1), .replicas_to_aggregate = 2, .in_process = true);
    mu_coordinator *c = mu_coordinator_new(strategy);
    job j = make_job(strategy);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        j.act = rows[i].act;
        mu_function *function = mu_function_new(step, &j);
        assert_null(mu_schedule(c, function, mu_list(mu_constant(MU_F64, 2), MU_END)));
        if (!strstr(mu_error_message(), rows[i].name) || !strstr(mu_error_message(), rows[i].why))
            fail_msg("row %zu: %s", i, mu_error_message());
        mu_error_take();
    }
    mu_pool_close(pool);
}

static void test_synchronized_statistics_are_refused(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 1), .replicas_to_aggregate = 2, .in_process = true);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(2), mu_batch_normalization(.synchronized = true, .name = "together"));
        mu_compile(model, .optimizer = mu_sgd(), .loss = mu_mean_squared_error_loss());
    }
    mu_tensor *x = mu_ones(MU_F64, 2, (int64_t[]){4, 2});
    assert_null(mu_fit(model, mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, x, MU_END)), 4),
                       .verbose = MU_VERBOSE_SILENT));
    assert_non_null(strstr(mu_error_message(), "layer 'together' is synchronized"));
    mu_error_take();
    mu_pool_close(pool);
}

// ---- All or nothing -----------------------------------------------------------------------------

static atomic_bool fails_in_trace, fails_in_run, holds_in_run, held_in_run;

static mu_status rate_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    enum { MOST_HELD = 3000 };
    (void)in, (void)arg;
    for (int i = 0; holds_in_run && i < MOST_HELD && !mu_cancellation_is_cancelled(mu__context()->cancellation); i++) {
        held_in_run = true;
        usleep(1000);
    }
    if (fails_in_run)
        return mu_fail(MU_UNAVAILABLE, "the rate is away");
    *(double *)out[0].data = 1;
    return MU_OK;
}

static mu_tensor *rate(mu_tensor *at, void *arg)
{
    (void)arg;
    if (!fails_in_trace)
        return mu_call_op1("test_rate", 1, &at);
    mu_fail(MU_INVALID_ARGUMENT, "there is no rate");
    return NULL;
}

static double value_of(mu_variable *variable)
{
    mu_tensor *value = mu_variable_read(variable);
    if (!value)
        fail_msg("%s", mu_error_message());
    return mu_scalar(value);
}

static void expect_failure(mu_status status, const char *why)
{
    assert_int_not_equal(status, MU_OK);
    if (!strstr(mu_error_message(), why))
        fail_msg("%s", mu_error_message());
    mu_error_take();
}

static void test_a_step_that_cannot_be_applied_changes_nothing(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 2), .replicas_to_aggregate = CALLS_OF_TWO, .in_process = true);
    mu_coordinator *c = mu_coordinator_new(strategy);
    two_optimizers p = two_optimizers_new(strategy, rate);
    mu_function *function = mu_function_new(step_of_two, &p);
    fails_in_trace = true;
    expect_failure(run_step_of_two(c, function), "there is no rate");
    assert_true(value_of(p.first) == 0 && value_of(p.second) == 0);
    fails_in_trace = false;
    if (run_step_of_two(c, function) != MU_OK)
        fail_msg("%s", mu_error_message());
    assert_true(value_of(p.first) == -3 && value_of(p.second) == -3);
    mu_pool_close(pool);
}

static void test_a_step_that_fails_in_the_middle_leaves_doubt(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 2), .replicas_to_aggregate = CALLS_OF_TWO, .in_process = true);
    mu_coordinator *c = mu_coordinator_new(strategy);
    two_optimizers p = two_optimizers_new(strategy, rate);
    mu_function *function = mu_function_new(step_of_two, &p);
    fails_in_run = true;
    expect_failure(run_step_of_two(c, function), "the rate is away");
    fails_in_run = false;
    assert_null(mu_variable_read(p.first));
    expect_failure(mu_error_code(), "'first' is in doubt");
    expect_failure(run_step_of_two(c, function), "in doubt");
    mu_variable *const all[] = {p.first, p.second, mu_optimizer_iterations(p.plain), mu_optimizer_iterations(p.late)};
    for (int i = 0; i < 4; i++)
        assert_int_equal(mu_variable_assign(all[i], mu_constant(mu_variable_dtype(all[i]), 10)), MU_OK);
    if (run_step_of_two(c, function) != MU_OK)
        fail_msg("%s", mu_error_message());
    assert_true(value_of(p.first) == 7 && value_of(p.second) == 7);
    mu_pool_close(pool);
}

// ---- A call that waits for the other one of its step --------------------------------------------

// Schedules the first call of a step of two, and returns its result when the call has ended.
static mu_value *half_a_step(mu_coordinator *c, mu_function *function)
{
    mu_value *result = mu_schedule(c, function, mu_list(mu_constant(MU_F64, 1), MU_END));
    for (size_t n = 0; n == 0; usleep(1000)) {
        pthread_mutex_lock(&c->commits.lock);
        n = c->commits.ended.n;
        pthread_mutex_unlock(&c->commits.lock);
    }
    return result;
}

static mu_value *no_value(void *arg)
{
    ++*(atomic_int *)arg;
    mu_fail(MU_NOT_FOUND, "no such file");
    return NULL;
}

// A per-worker value that no call uses cannot be made: no step fails because of that, and none of a step's calls is
// dropped.
static void test_a_value_that_cannot_be_made_drops_no_call(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 2), .replicas_to_aggregate = CALLS_OF_TWO, .in_process = true);
    mu_coordinator *c = mu_coordinator_new(strategy);
    two_optimizers p = two_optimizers_new(strategy, rate);
    mu_function *function = mu_function_new(step_of_two, &p);
    static atomic_int made;
    mu_value *result = half_a_step(c, function);
    const mu_value *unused = mu_create_per_worker_values(c, no_value, &made);
    for (int i = 0; i < 2; i++)
        while (mu__remote_value_state(((mu_per_worker_resource *)unused->leaf)->values[i]) == MU_REMOTE_NOT_READY)
            usleep(1000);
    usleep(20000); // the worker's thread continues after the failure
    assert_non_null(mu_schedule(c, function, mu_list(mu_constant(MU_F64, 2), MU_END)));
    if (mu_join(c) != MU_OK || !mu_fetch(result))
        fail_msg("%s", mu_error_message());
    assert_true(made == 2 && value_of(p.first) == -3 && value_of(p.second) == -3);
    mu_pool_close(pool);
}

// The coordinator ends before the other call of the step is scheduled: fetching the result fails.
static void test_half_a_step_ends_with_the_coordinator(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 2), .replicas_to_aggregate = CALLS_OF_TWO, .in_process = true);
    two_optimizers p = two_optimizers_new(strategy, rate);
    mu_value *result = mu_retain(half_a_step(mu_coordinator_new(strategy), mu_function_new(step_of_two, &p)));
    mu_pool_close(pool);
    assert_null(mu_fetch(result));
    expect_failure(mu_error_code(), "because the coordinator ended");
    mu_release(result);
}

static void name_left(void *c) { mu__watch_name_left(c); }

// A step is applied while the coordinator ends: the step is cancelled, and the log does not report it as a call.
static void test_the_end_cancels_the_step_that_is_applied(void **state)
{
    (void)state;
    static char log[1 << 14];
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 2), .replicas_to_aggregate = CALLS_OF_TWO, .in_process = true);
    two_optimizers p = two_optimizers_new(strategy, rate);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_function *function = mu_function_new(step_of_two, &p);
    holds_in_run = true;
    for (int i = 0; i < CALLS_OF_TWO; i++)
        assert_non_null(mu_schedule(c, function, mu_list(mu_constant(MU_F64, i + 1), MU_END)));
    while (!held_in_run)
        usleep(1000);
    catch_stderr(name_left, c, log, sizeof log);
    if (!strstr(log, "without worker 0: it runs no call, but still applies a step") || strstr(log, "begun"))
        fail_msg("the log: %s", log);
    const int64_t begin = mu__now_ns();
    mu_pool_close(pool);
    const double seconds = (double)(mu__now_ns() - begin) / 1e9;
    holds_in_run = false;
    if (seconds > 2)
        fail_msg("the end took %g s", seconds);
}

static mu_status assign_given(job *j, mu_tensor *x) { return mu_variable_assign(j->mean, x); }

// Each allocation of the trace fails in turn; the next trace leaves values that a step applies.
static void test_whichever_allocation_fails(void **state)
{
    (void)state;
    bool failed = true;
    for (long n = 1; n < 2000 && failed; n++) {
        mu_pool *pool = mu_pool_open();
        mu_strategy *strategy =
            mu_parameter_server_strategy(cluster_of(1, 1), .replicas_to_aggregate = 2, .in_process = true);
        mu_coordinator *c = mu_coordinator_new(strategy);
        job j = {.act = assign_given};
        MU_SCOPE(strategy)
            j.mean = extra("mean", MU_F64, MU_AGGREGATION_MEAN);
        mu_function *function = mu_function_new(step, &j);
        mu_value *given = mu_list(mu_constant(MU_F64, 1), MU_END);
        mu__alloc_fail_at(n);
        failed = mu_schedule(c, function, given) == NULL;
        mu__alloc_fail_at(0);
        mu_error_take();
        const mu_status status = failed ? run_step_of_two(c, function) : mu_join(c);
        if (status != MU_OK)
            fail_msg("allocation %ld: %s", n, mu_error_message());
        if (value_of(j.mean) != (failed ? 1.5 : 1))
            fail_msg("allocation %ld: no step has applied the values", n);
        mu_pool_close(pool);
    }
    assert_false(failed);
}

// ---- The list of what is left -------------------------------------------------------------------

enum { ROUNDS = 20000 };

static void *come_and_go(void *arg)
{
    mu_strategy *strategy = arg;
    mu_pool *pool = mu_pool_open();
    mu_accumulator *own = mu_conditional_accumulator(MU_F64);
    const mu_deferred_site site = {.first = own, .owner = (mu_object *)own};
    mu_status status = MU_OK;
    for (int i = 0; i < ROUNDS && status == MU_OK; i++) {
        for (int k = 0; k < 1 + i % 3; k++)
            status = mu__aggregation_add(strategy, &site);
        mu__aggregation_forget(strategy, own);
    }
    mu_pool_close(pool);
    return status == MU_OK ? arg : NULL;
}

// A variable is released while other threads trace functions that assign others.
static void test_sites_come_and_go_on_several_threads(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(1, 1), .replicas_to_aggregate = 2, .in_process = true);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, strategy), 0);
    for (int i = 0; i < 2; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
    }
    assert_int_equal(strategy->servers->aggregation->sites.n, 0);
    mu_pool_close(pool);
}

// ---- The progress bar ---------------------------------------------------------------------------

enum { ROWS = 20, BATCH = 4, CALLS_OF_STEP = 2 };

// The log of one epoch of mu_fit.
static void fit_into(FILE *file, mu_model *model)
{
    mu_tensor *x = mu_ones(MU_F64, 2, (int64_t[]){ROWS, 2});
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, x, MU_END)), BATCH);
    fflush(stdout);
    const int terminal = dup(STDOUT_FILENO);
    assert_true(terminal >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    mu_history *history = mu_fit(model, data, .verbose = MU_VERBOSE_LINES);
    fflush(stdout);
    assert_true(dup2(terminal, STDOUT_FILENO) >= 0);
    close(terminal);
    assert_non_null(history);
}

static void test_the_bar_says_what_workers_do(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(2, 1), .replicas_to_aggregate = CALLS_OF_STEP, .in_process = true);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(2));
        mu_compile(model, .optimizer = mu_sgd(), .loss = mu_mean_squared_error_loss());
    }
    FILE *file = tmpfile();
    assert_non_null(file);
    fit_into(file, model);
    rewind(file);
    char text[4096] = "";
    int done[2] = {0}, in_flight = -1;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *workers = strstr(text, "workers: ");
    if (!workers || sscanf(workers, "workers: %d+%d done, %d in flight", done, done + 1, &in_flight) != 3)
        fail_msg("no line of the workers in: %s", text);
    assert_int_equal(done[0] + done[1], ROWS / BATCH * CALLS_OF_STEP);
    assert_int_equal(in_flight, 0);
    mu_pool_close(pool);
}

static int start_in_f64(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = 4) == MU_OK && mu_set_floatx(MU_F64) == MU_OK &&
                   mu_register_op("test_rate", 1, 1, .kernel = rate_kernel, .has_effect = true) == MU_OK
               ? 0
               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_replicas_would_do_otherwise_is_refused),
                                       cmocka_unit_test(test_synchronized_statistics_are_refused),
                                       cmocka_unit_test(test_a_step_that_cannot_be_applied_changes_nothing),
                                       cmocka_unit_test(test_a_step_that_fails_in_the_middle_leaves_doubt),
                                       cmocka_unit_test(test_a_value_that_cannot_be_made_drops_no_call),
                                       cmocka_unit_test(test_half_a_step_ends_with_the_coordinator),
                                       cmocka_unit_test(test_the_end_cancels_the_step_that_is_applied),
                                       cmocka_unit_test(test_whichever_allocation_fails),
                                       cmocka_unit_test(test_sites_come_and_go_on_several_threads),
                                       cmocka_unit_test(test_the_bar_says_what_workers_do)};
    return cmocka_run_group_tests_name("coordinator/applied_step", tests, start_in_f64, end_library);
}
