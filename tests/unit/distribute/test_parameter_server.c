// ParameterServerStrategy with servers in this process: effects one by one, on several devices at the same time; and
// training that reaches the weights of one device.
#include "distribute_test.h"
#include "distribute/strategies/parameter_server.h"
#include "graph/passes/segments.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"

#include <muster/control.h>
#include <pthread.h>

// ---- Cutting graphs -----------------------------------------------------------------------------

typedef struct two {
    mu_variable *a, *b;
} two;

static mu_value *read_compute_update(mu_value *arguments, void *arg)
{
    const two *t = arg;
    mu_tensor *x = mu_value_tensor(arguments);
    mu_tensor *sum = mu_add(mu_variable_read(t->a), mu_multiply(mu_variable_read(t->b), x));
    mu_variable_assign_add(t->a, x);
    mu_variable_assign(t->b, mu_multiply(sum, mu_constant(MU_F64, 2)));
    return mu_list(sum, mu_variable_read(t->a), mu_subtract(mu_variable_read(t->b), sum), mu_constant(MU_F64, 9), x,
                   MU_END);
}

static void a_step_reads_computes_and_updates(void **state)
{
    (void)state;
    mu_strategy *strategy = on_servers(1, 2, NULL);
    two t = {0};
    MU_SCOPE(strategy) {
        t.a = mu_variable_new(mu_constant(MU_F64, 3), "a");
        t.b = mu_variable_new(mu_constant(MU_F64, 5), "b");
    }
    mu_value *x = mu_of(mu_constant(MU_F64, 10)), *one = mu_run(strategy, mu_function_new(read_compute_update, &t), x);
    assert_non_null(one);
    const double wanted[] = {53, 13, 53, 9, 10};
    for (int i = 0; i < 5; i++)
        assert_true(mu_scalar(mu_at(one, i)) == wanted[i]);
    assert_true(mu_scalar(mu_variable_read(t.a)) == 13 && mu_scalar(mu_variable_read(t.b)) == 106);
    // Reads, a segment, updates and reads, and a segment: 2 + 1 + 4 + 1.
    mu_concrete *concrete = mu__served_trace(strategy, mu_function_new(read_compute_update, &t), x);
    mu_segments *segments = mu__segments_cut(concrete->graph);
    assert_non_null(segments);
    int computing = 0;
    for (int i = 0; i < segments->n_steps; i++)
        computing += !segments->steps[i].effect;
    assert_int_equal(computing, 2);
    assert_int_equal(segments->n_steps, 8);
    mu__segments_free(segments);
}

static mu_value *count_down(mu_value *arguments, void *arg)
{
    mu_variable_assign_add(arg, mu_constant(MU_F64, 1));
    return mu_of(mu_subtract(mu_value_tensor(arguments), mu_constant(MU_F64, 1)));
}

static mu_tensor *positive(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_greater(mu_value_tensor(arguments), mu_constant(MU_F64, 0));
}

static mu_value *loop(mu_value *arguments, void *arg)
{
    return mu_while_loop(positive, count_down, arguments, .arg = arg);
}

static void effects_in_loops_stay_together(void **state)
{
    (void)state;
    mu_strategy *strategy = on_servers(1, 1, NULL);
    mu_variable *steps = NULL;
    MU_SCOPE(strategy)
        steps = mu_variable_new(mu_constant(MU_F64, 0), "steps");
    mu_value *left = mu_run(strategy, mu_function_new(loop, steps), mu_of(mu_constant(MU_F64, 7)));
    assert_true(mu_scalar(left) == 0 && mu_scalar(mu_variable_read(steps)) == 7);
}

// Each worker's loop counts in the worker's own value; this process has another.
static void workers_have_values_of_their_own(void **state)
{
    (void)state;
    mu_strategy *strategy = on_servers(2, 1, NULL);
    mu_variable *steps = NULL;
    MU_SCOPE(strategy)
        steps = mu_variable_new(mu_constant(MU_F64, 0), "steps", .per_worker_variable = true);
    mu_function *function = mu_function_new(loop, steps);
    for (int calls = 0; calls < 3; calls++)
        mu_release(mu__served_call(strategy, calls == 2, function, mu_of(mu_constant(MU_F64, 7))));
    mu_run(strategy, function, mu_of(mu_constant(MU_F64, 2)));
    mu_value *all = mu_variable_read_all(steps);
    assert_true(mu_scalar(mu_at(all, 0)) == 14 && mu_scalar(mu_at(all, 1)) == 7);
    assert_true(mu_scalar(mu_variable_read(steps)) == 2);
    assert_null(mu_variable_new(mu_constant(MU_F64, 0), .per_worker_variable = true));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    MU_SCOPE(mu_mirrored_strategy())
        assert_null(mu_variable_new(mu_constant(MU_F64, 0), .per_worker_variable = true));
    assert_non_null(strstr(mu_error_take().message, "MirroredStrategy"));
}

// ---- At the same time ---------------------------------------------------------------------------

enum { WORKERS = 4, CALLS = 50 };

typedef struct adding {
    mu_strategy *strategy;
    mu_function *function;
    int worker;
    bool failed;
} adding;

static mu_value *add_one(mu_value *arguments, void *arg)
{
    const two *t = arg;
    (void)arguments;
    mu_variable_assign_add(t->a, mu_constant(MU_F64, 1));
    mu_variable_assign_sub(t->b, mu_constant(MU_F64, 1));
    return mu_of(mu_variable_read(t->a));
}

static void *add_often(void *arg)
{
    adding *a = arg;
    for (int i = 0; i < CALLS; i++) {
        mu_value *result = mu__served_call(a->strategy, a->worker, a->function, NULL);
        a->failed |= !result;
        mu_release(result);
    }
    return NULL;
}

static void no_update_is_lost(void **state)
{
    (void)state;
    mu_strategy *strategy = on_servers(WORKERS, 2, NULL);
    two t = {.b = mu_variable_new(mu_constant(MU_F64, 0), "on no server")};
    MU_SCOPE(strategy)
        t.a = mu_variable_new(mu_constant(MU_F64, 0), "on a server");
    assert_string_equal(mu_variable_device(t.a), "/job:ps/replica:0/task:0/device:CPU:0");
    adding all[WORKERS];
    pthread_t threads[WORKERS];
    mu_function *function = mu_function_new(add_one, &t);
    for (int i = 0; i < WORKERS; i++) {
        all[i] = (adding){.strategy = strategy, .function = function, .worker = i};
        assert_int_equal(pthread_create(&threads[i], NULL, add_often, &all[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(all[i].failed);
    }
    assert_true(mu_scalar(mu_variable_read(t.a)) == WORKERS * CALLS);
    assert_true(mu_scalar(mu_variable_read(t.b)) == -WORKERS * CALLS);
    assert_int_equal(mu_function_trace_count(function), 1);
}

// ---- Training -----------------------------------------------------------------------------------

static mu_model *fit_small(mu_strategy *strategy, mu_dataset *data)
{
    mu_model *model = NULL;
    mu_set_seed(3);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(5, .activation = "tanh"), mu_dense(2));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 0.05), .loss = mu_mean_squared_error_loss());
    }
    mu_history *history = mu_fit(model, data, .epochs = 3, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s", mu_error_message());
    return model;
}

static void training_ends_where_one_device_does(void **state)
{
    (void)state;
    mu_dataset *data =
        mu_dataset_batch(mu_dataset_from_tensor_slices(
                             mu_list(numbers(2, (int64_t[]){24, 3}, 1), numbers(2, (int64_t[]){24, 2}, 2), MU_END)),
                         8);
    mu_strategy *strategy = on_servers(1, 2, NULL);
    mu_value *one = mu_model_weights(fit_small(mu_one_device_strategy("CPU:0"), data)),
             *served = mu_model_weights(fit_small(strategy, data));
    assert_int_equal(mu_value_count(served), 4);
    for (int i = 0; i < 4; i++) {
        mu_tensor *a = mu_variable_read(mu_value_variable(mu_value_at(one, i)));
        mu_variable *v = mu_value_variable(mu_value_at(served, i));
        const double far = mu_scalar(mu_reduce_max(mu_abs(mu_subtract(a, mu_variable_read(v))), MU_ALL_AXES));
        assert_true(far < 1e-12);
        assert_int_equal(mu__variable_server(v) >= 0, 1);
    }
}

// With several workers updates come in any order, but each of them counts, and so does every sample.
static void several_workers_share_the_steps(void **state)
{
    (void)state;
    enum { ROWS = 500, BATCH = 7, EPOCHS = 6 };
    mu_strategy *strategy = on_servers(WORKERS, 2, NULL);
    mu_tensor *x = numbers(2, (int64_t[]){ROWS, 3}, 1);
    mu_tensor *y = mu_multiply(mu_slice(x, (int64_t[]){0, 1}, (int64_t[]){ROWS, 1}), mu_constant(MU_F64, 2));
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, y, MU_END)), BATCH);
    mu_optimizer *optimizer = NULL;
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(1));
        optimizer = mu_sgd(.learning_rate = 0.1);
        mu_compile(model, .optimizer = optimizer, .loss = mu_mean_squared_error_loss());
    }
    mu_history *history = mu_fit(model, data, .epochs = EPOCHS, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s", mu_error_message());
    assert_true(mu_history_last(history, "loss") < mu_history_at(history, "loss", 0) / 10);
    const int steps = EPOCHS * ((ROWS + BATCH - 1) / BATCH);
    assert_true(mu_scalar(mu_variable_read(mu_optimizer_iterations(optimizer))) == steps);
    mu_dataset *inputs = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(x)), BATCH);
    mu_tensor *predicted = mu_predict(model, inputs, .verbose = MU_VERBOSE_SILENT);
    mu_tensor *once = mu_call(model, x);
    assert_true(mu_scalar(mu_reduce_max(mu_abs(mu_subtract(predicted, once)), MU_ALL_AXES)) < 1e-12);
    const double far = mu_scalar(mu_reduce_mean(mu_square(mu_subtract(y, once)), MU_ALL_AXES));
    for (int i = 0; i < 20; i++) { // the last steps end in another order each time
        mu_history *measured = mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT);
        assert_true(fabs(mu_history_last(measured, "loss") - far) < 1e-12);
    }
}

static void slots_are_beside_their_variables(void **state)
{
    (void)state;
    mu_strategy *strategy = on_servers(1, 3, NULL);
    mu_variable *w = NULL, *next = NULL;
    mu_optimizer *optimizer = NULL;
    MU_SCOPE(strategy) {
        (void)mu_variable_new(mu_constant(MU_F64, 0), "first");
        w = mu_variable_new(mu_constant(MU_F64, 0), "w");
        optimizer = mu_adam();
        mu__optimizer_build(optimizer, 1, &w);
        next = mu_variable_new(mu_constant(MU_F64, 0), "next");
    }
    assert_int_equal(mu__variable_server(w), 1);
    for (size_t i = 0; i < optimizer->slots.n; i++)
        assert_int_equal(mu__variable_server(optimizer->slots.items[i]), 1);
    // iterations and learning_rate took 2 and 0
    assert_int_equal(mu__variable_server(next), 1);
}

static void refuses_what_it_cannot_do(void **state)
{
    (void)state;
    assert_null(mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"ps\": [\"b:1\"]}")),
                                             .in_process = true));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_int_equal(mu_strategy_ps_count(on_servers(4, 3, NULL)), 3);
    assert_int_equal(mu_strategy_ps_worker_count(on_servers(4, 3, NULL)), 4);
    assert_int_equal(mu_strategy_ps_count(NULL) + mu_strategy_ps_worker_count(mu_default_strategy()), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(a_step_reads_computes_and_updates),   MODEL_TEST(effects_in_loops_stay_together),
        MODEL_TEST(workers_have_values_of_their_own),    MODEL_TEST(no_update_is_lost),
        MODEL_TEST(training_ends_where_one_device_does), MODEL_TEST(several_workers_share_the_steps),
        MODEL_TEST(slots_are_beside_their_variables),    MODEL_TEST(refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
