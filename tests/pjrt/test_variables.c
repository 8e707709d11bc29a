// Variables and results stay on the device: copies between device and host during ten steps are counted in the plugin's
// table of functions, and told apart by their address on the host.
#include "../unit/assert_taken.h"
#include "changed_table.h"
#include "skip.h"

#include "distribute/distribute.h"
#include "engine/pjrt/pjrt.h"
#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"

#include <muster.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { STEPS = 10, BATCH = 8, MOST = 64, SIDE = 128 };

// ---- The plugin, counted ------------------------------------------------------------------------

typedef struct traffic {
    atomic_int up, down;                     // transfers of anything; where the host can address a device's memory,
                                             // down counts looks at it
    atomic_int variables_up, variables_down; // of variables' memory on the host
    atomic_int early;                        // uploads that begin before the last launch has ended
} traffic;

static struct {
    const pj_api *api; // the plugin's own table
    const void *memory[MOST];
    int n;
    traffic seen;
    int donated;    // arguments of compiled programs whose memory a result takes over
    pj_event *last; // the end of the last launch, until somebody waits for it
    atomic_bool fails;
    atomic_bool shared, copying; // with `shared`, the end of a download is not announced
} plugin;

static bool is_variable(const void *data)
{
    for (int i = 0; i < plugin.n; i++)
        if (plugin.memory[i] == data)
            return true;
    return false;
}

static pj_error *upload(void *args)
{
    pj_event_ready_args ready = PJ_ARGS(pj_event_ready_args, .event = plugin.last);
    plugin.seen.up++;
    if (plugin.last && !plugin.api->functions[PJ_EVENT_IS_READY](&ready))
        plugin.seen.early += !ready.ready;
    plugin.seen.variables_up += is_variable(((const pj_from_host_args *)args)->data);
    return plugin.api->functions[PJ_CLIENT_BUFFER_FROM_HOST_BUFFER](args);
}

static pj_error *download(void *args)
{
    plugin.seen.down++;
    plugin.seen.variables_down += is_variable(((const pj_to_host_args *)args)->data);
    plugin.copying = plugin.shared;
    return plugin.api->functions[PJ_BUFFER_TO_HOST_BUFFER](args);
}

static pj_error *look(void *args)
{
    plugin.seen.down++;
    return plugin.api->functions[PJ_BUFFER_UNSAFE_POINTER](args);
}

static pj_error *compile(void *args)
{
    const char *text = ((const pj_compile_args *)args)->program->code;
    while ((text = strstr(text, "tf.aliasing_output")) != NULL) {
        plugin.donated++;
        text++;
    }
    return plugin.api->functions[PJ_CLIENT_COMPILE](args);
}

// A struct that is too small is reported as the plugin's own error, before the plugin does anything.
static pj_error *execute(void *args)
{
    pj_execute_args broken = *(const pj_execute_args *)args;
    broken.size = sizeof broken.size;
    pj_error *error = plugin.api->functions[PJ_LOADED_EXECUTE](plugin.fails ? &broken : args);
    plugin.last = error ? NULL : ((const pj_execute_args *)args)->complete[0];
    return error;
}

static pj_error *wait_for_event(void *args)
{
    if (((const pj_event_args *)args)->event == plugin.last)
        plugin.last = NULL;
    return plugin.api->functions[PJ_EVENT_AWAIT](args);
}

static pj_error *ask(void *args)
{
    pj_error *error = plugin.api->functions[PJ_EVENT_IS_READY](args);
    if (plugin.copying)
        ((pj_event_ready_args *)args)->ready = false;
    return error;
}

static pj_error *announce(void *args)
{
    pj_event_on_ready_args broken = *(const pj_event_on_ready_args *)args;
    broken.size = sizeof broken.size;
    if (plugin.fails)
        return plugin.api->functions[PJ_EVENT_ON_READY](&broken);
    return plugin.copying ? NULL : plugin.api->functions[PJ_EVENT_ON_READY](args);
}

static int start(void **state)
{
    mu_init(.cpu_devices = 2, .seed = 3);
    mu_pjrt_client *client = mu__device_by_name(mu__runtime(), "XLA_CPU:0")->engine_client;
    static const changed_function counted[] = {{PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, upload},
                                               {PJ_BUFFER_TO_HOST_BUFFER, download},
                                               {PJ_BUFFER_UNSAFE_POINTER, look},
                                               {PJ_CLIENT_COMPILE, compile},
                                               {PJ_LOADED_EXECUTE, execute},
                                               {PJ_EVENT_AWAIT, wait_for_event},
                                               {PJ_EVENT_IS_READY, ask},
                                               {PJ_EVENT_ON_READY, announce}};
    memset(&plugin, 0, sizeof plugin);
    *state = change_table(client, MU_COUNT(counted), counted, &plugin.api);
    return 0;
}

static void watch(const mu_variable *variable)
{
    for (int c = 0; c < variable->n_components; c++) {
        assert_true(plugin.n < MOST);
        plugin.memory[plugin.n++] = variable->components[c]->buffer->data;
    }
}

// ---- Training -----------------------------------------------------------------------------------

typedef struct job {
    mu_model *model;
    mu_optimizer *optimizer;
    mu_function *step;
} job;

static mu_value *train_step(mu_value *batch, void *arg)
{
    job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(j->model, mu_at(batch, 0), .training = true);
    mu_tensor *loss = mu_reduce_mean(mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), logits), MU_ALL_AXES);
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_trainable_variables(j->model)));
    return mu_of(loss);
}

static mu_value *run(mu_strategy *strategy, const job *j)
{
    float images[BATCH * 12];
    int32_t labels[BATCH];
    for (int i = 0; i < BATCH * 12; i++)
        images[i] = (float)(i * 7 % 11) / 11;
    for (int i = 0; i < BATCH; i++)
        labels[i] = i % 3;
    return mu_run(strategy, j->step,
                  mu_list(mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){BATCH, 12}, images)),
                          mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){BATCH}, labels)), MU_END));
}

static void open_job(mu_strategy *strategy, job *j)
{
    MU_SCOPE(strategy) {
        j->model = mu_sequential(mu_dense(16, .activation = "relu"), mu_dense(3));
        j->optimizer = mu_adam(.learning_rate = 1e-2);
    }
    j->step = mu_function_new(train_step, j);
    if (!run(strategy, j)) // builds the layers, compiles, and takes the variables to the devices
        fail_msg("%s", mu_error_message());
    for (int i = 0; i < mu_value_count(mu_model_weights(j->model)); i++)
        watch(mu_value_variable(mu_value_at(mu_model_weights(j->model), i)));
    for (size_t i = 0; i < j->optimizer->slots.n; i++)
        watch(j->optimizer->slots.items[i]);
    watch(j->optimizer->iterations);
    plugin.seen = (traffic){0};
}

static void test_weights_stay_on_the_device(void **state)
{
    (void)state;
    job j;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    open_job(strategy, &j);
    assert_int_equal(plugin.donated, plugin.n); // the step writes every variable
    for (int i = 0; i < STEPS; i++)
        assert_non_null(run(strategy, &j));
    assert_int_equal(plugin.seen.up, 2 * STEPS); // images and labels
    assert_int_equal(plugin.seen.down, STEPS);   // whether a label was wrong; no loss has been read
    mu_variable *kernel = mu_value_variable(mu_value_at(mu_model_weights(j.model), 0));
    mu_tensor *seen = mu_variable_read(kernel);
    mu_variable_read(kernel);
    assert_int_equal(plugin.seen.down, STEPS); // no element has been read
    const float before = ((const float *)mu_tensor_data(seen))[0];
    mu_tensor_data(mu_variable_read(kernel));
    assert_int_equal(plugin.seen.down, STEPS + 1); // the first of two looks
    assert_non_null(run(strategy, &j));
    assert_true(((const float *)mu_tensor_data(seen))[0] == before); // the values that were read are unchanged
    assert_true(((const float *)mu_tensor_data(mu_variable_read(kernel)))[0] != before);
    const int up = plugin.seen.up;
    mu_variable_assign(kernel, mu_zeros(MU_F32, 2, (int64_t[]){12, 16}));
    assert_int_equal(plugin.seen.up, up + 1); // straight to where the variable is
    mu_variable_assign(kernel, mu_variable_read(kernel));
    assert_int_equal(plugin.seen.up, up + 1); // it is there already
    assert_non_null(run(strategy, &j));
    assert_int_equal(plugin.seen.variables_up, 0);
    assert_int_equal(plugin.seen.variables_down, 0); // the host's memory is not used
}

static void test_weights_stay_on_two_devices(void **state)
{
    (void)state;
    job j;
    static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", NULL};
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    open_job(strategy, &j);
    for (int i = 0; i < STEPS; i++)
        assert_non_null(run(strategy, &j));
    assert_int_equal(plugin.seen.variables_up, 0);
    assert_int_equal(plugin.seen.variables_down, 0);
    assert_int_equal(plugin.seen.up, 4 * STEPS); // images and labels of both replicas
    // Each replica reports whether a label was wrong; the devices sum the gradients.
    assert_int_equal(plugin.seen.down, 2 * STEPS);
}

// ---- Values -------------------------------------------------------------------------------------

static mu_variable *first, *second, *third, *fixed;

// Old values become other variables' new ones, and one value is assigned to two variables.
static mu_value *exchange(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *a = mu_variable_read(first), *b = mu_variable_read(second), *x = mu_at(arguments, 0);
    mu_variable_assign(first, b);
    mu_variable_assign(second, a);
    mu_variable_assign(third, mu_add(x, a));
    return mu_list(mu_of(mu_add(x, mu_variable_read(fixed))), mu_of(a), mu_of(mu_variable_read(third)), MU_END);
}

static mu_value *assign_both(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_multiply(mu_at(arguments, 0), mu_variable_read(first));
    mu_variable_assign(first, x);
    mu_variable_assign(second, x);
    return mu_of(x);
}

static mu_value *number(double value) { return mu_list(mu_of(mu_constant(MU_F32, value)), MU_END); }

static double value_of(mu_variable *variable) { return mu_scalar(mu_variable_read(variable)); }

static void make_variables(double a, double b)
{
    first = mu_variable_new(.initial_value = mu_constant(MU_F32, a), .name = "first");
    second = mu_variable_new(.initial_value = mu_constant(MU_F32, b), .name = "second");
    third = mu_variable_new(.initial_value = mu_constant(MU_F32, 0), .name = "third");
    fixed = mu_variable_new(.initial_value = mu_constant(MU_F32, 40), .name = "fixed");
}

static void test_variables_that_share_values(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    make_variables(1, 2);
    mu_function *swap = mu_function_new(exchange, NULL), *both = mu_function_new(assign_both, NULL);
    for (int step = 0; step < 3; step++) {
        mu_value *result = mu_run(strategy, swap, number(10));
        if (!result)
            fail_msg("%s", mu_error_message());
        assert_true(mu_scalar(mu_at(result, 0)) == 50);
        assert_true(mu_scalar(mu_at(result, 1)) == (step % 2 ? 2 : 1));
        assert_true(mu_scalar(mu_at(result, 2)) == (step % 2 ? 12 : 11));
    }
    assert_true(value_of(first) == 2 && value_of(second) == 1 && value_of(third) == 11 && value_of(fixed) == 40);
    assert_int_equal(plugin.donated, 0); // old values are still needed
    for (int step = 0; step < 2; step++)
        assert_non_null(mu_run(strategy, both, number(3)));
    assert_true(value_of(first) == 18 && value_of(second) == 18);
    assert_int_equal(plugin.donated, 1); // one result takes over one variable's memory
    mu_run(NULL, both, number(2));       // the native engine fetches its variables, and the device the new values
    assert_true(mu_scalar(mu_at(mu_run(strategy, swap, number(1)), 1)) == 36);
}

static mu_value *doubled(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *y = mu_add(x, x);
    return mu_list(mu_of(y), mu_of(x), mu_of(y), MU_END); // an argument as it came, and a result twice
}

static void test_results_stay_until_they_are_read(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    mu_function *function = mu_function_new(doubled, NULL);
    mu_value *x = mu_list(mu_of(mu_vector_f32(3, (float[]){1, 2, 3})), MU_END);
    for (int i = 0; i < STEPS; i++) {
        mu_value *results = mu_run(strategy, function, x);
        if (!results)
            fail_msg("%s", mu_error_message());
        x = mu_list(mu_value_at(results, 0), MU_END);
    }
    assert_int_equal(plugin.seen.up, 1);
    plugin.seen = (traffic){0};
    const mu_tensor *last = mu_at(x, 0);
    assert_true(((const float *)mu_tensor_data(last))[2] == 3 << STEPS);
    assert_true(((const float *)mu_tensor_data(last))[0] == 1 << STEPS);
    assert_int_equal(plugin.seen.down, 1);
    mu_value *results = mu_run(strategy, function, x);
    assert_true(((const float *)mu_tensor_data(mu_at(results, 1)))[1] == 2 << STEPS);
    assert_true(((const float *)mu_tensor_data(mu_at(results, 2)))[1] == 4 << STEPS);
    mu_tensor *part = mu_slice(mu_at(results, 0), (int64_t[]){1}, (int64_t[]){2}); // not the whole buffer
    results = mu_run(strategy, function, mu_list(mu_of(part), MU_END));
    assert_true(((const float *)mu_tensor_data(mu_at(results, 0)))[1] == 12 << STEPS);
}

// An argument of more elements than are copied at once (mu__pjrt_send), as a result and as a variable's new value: the
// device may use the argument's own memory, which neither of them may keep waiting for.
enum { MANY = 2000 };
static mu_variable *latest;

static mu_value *keep_argument(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_variable_assign(latest, x);
    return mu_list(mu_of(mu_reduce_sum(x, 0)), mu_of(x), mu_of(mu_multiply(x, x)), mu_of(x), MU_END);
}

static void test_arguments_as_results(void **state)
{
    (void)state;
    float data[MANY];
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    latest = mu_variable_new(.initial_value = mu_zeros(MU_F32, 1, (int64_t[]){MANY}), .name = "latest");
    mu_function *function =
        mu_function_new(keep_argument, NULL, .batch_axes = (const int[]){MU_NO_BATCH}, .n_batch_axes = 1);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < MANY; i++)
            data[i] = (float)(i % 7 + step);
        mu_value *results =
            mu_run(strategy, function, mu_list(mu_of(mu_tensor_new(MU_F32, 1, (int64_t[]){MANY}, data)), MU_END));
        if (!results)
            fail_msg("%s", mu_error_message());
        for (int i = 1; i < 4; i += 2)
            assert_memory_equal(mu_tensor_data(mu_at(results, i)), data, sizeof data);
        assert_memory_equal(mu_tensor_data(mu_variable_read(latest)), data, sizeof data);
        mu_value *again = mu_run(strategy, function, mu_list(mu_value_at(results, 2), MU_END)); // from the device
        assert_true(((const float *)mu_tensor_data(mu_at(again, 1)))[5] == data[5] * data[5]);
        assert_true(((const float *)mu_tensor_data(mu_variable_read(latest)))[5] == data[5] * data[5]);
    }
}

// A step that takes some time on the device, however many batches are on their way there.
static mu_tensor *below_many(mu_value *state, void *arg)
{
    (void)arg;
    return mu_less(mu_at(state, 0), mu_constant(MU_I32, 400));
}

static mu_value *multiply_once(mu_value *state, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(state, 1);
    return mu_list(mu_of(mu_add(mu_at(state, 0), mu_constant(MU_I32, 1))),
                   mu_of(mu_multiply(mu_matmul(x, x), mu_constant(MU_F32, 1.0 / SIDE))), MU_END);
}

static mu_value *long_step(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(below_many, multiply_once,
                         mu_list(mu_of(mu_constant(MU_I32, 0)), mu_value_at(arguments, 0), MU_END));
}

static mu_running *start_step(mu_strategy *strategy, mu_function *step)
{
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){SIDE, SIDE});
    mu_running *running = mu__run_start(strategy, step, mu_list(mu_of(x), MU_END));
    if (!running)
        fail_msg("%s", mu_error_message());
    return running;
}

static void test_inputs_are_sent_while_a_step_runs(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    mu_function *step = mu_function_new(long_step, NULL);
    mu_running *one = start_step(strategy, step), *two = start_step(strategy, step);
    assert_int_equal(plugin.seen.up, 2);
    assert_int_equal(plugin.seen.early, 1); // the second input, while the first step was running
    mu_value *results = mu__run_wait(one);
    assert_true(results && mu__run_wait(two));
    assert_true(((const float *)mu_tensor_data(mu_at(results, 1)))[0] == 1);
}

static mu_value *read_fixed(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_at(arguments, 0), mu_variable_read(fixed)));
}

static void test_one_copy_is_read_on_two_devices(void **state)
{
    (void)state;
    static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", NULL};
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    make_variables(0, 0);
    mu_function *function = mu_function_new(read_fixed, NULL);
    for (int step = 0; step < 3; step++)
        assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, function, number(step)))) == 80 + 2 * step);
    mu_variable_assign(fixed, mu_constant(MU_F32, 1));
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, function, number(0)))) == 2);
}

// ---- Failures -----------------------------------------------------------------------------------

static void test_a_failed_launch_leaves_marks(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    make_variables(5, 6);
    mu_function *both = mu_function_new(assign_both, NULL);
    assert_non_null(mu_run(strategy, both, number(2)));
    plugin.fails = true;
    assert_null(mu_run(strategy, both, number(2)));
    plugin.fails = false;
    assert_taken(MU_INVALID_ARGUMENT, "");
    assert_null(mu_variable_read(first));
    assert_taken(MU_FAILED_PRECONDITION, "'first' was left in doubt");
    assert_null(mu_run(strategy, both, number(2)));
    assert_taken(MU_FAILED_PRECONDITION, "'first' was left in doubt");
    assert_int_equal(mu_variable_assign(first, mu_constant(MU_F32, 7)), MU_OK);
    assert_non_null(mu_run(strategy, both, number(2))); // overwrites the second one, in doubt as it is
    assert_true(value_of(first) == 14 && value_of(second) == 14);
}

// A buffer on a device keeps the plugin's client open.
static void test_variables_outlive_the_library(void **state)
{
    (void)state;
    make_variables(2, 0);
    mu_variable *kept = mu_retain(first);
    assert_non_null(mu_run(mu_one_device_strategy("XLA_CPU:0"), mu_function_new(assign_both, NULL), number(4)));
    mu_exit(true);
    mu_init(.cpu_devices = 2);
    assert_true(value_of(kept) == 8);
    mu_release(kept);
}

#define PLUGIN_TEST(name) cmocka_unit_test_setup_teardown(name, start, exit_and_free_table)

// ---- With other processes -----------------------------------------------------------------------

static mu_status job_fails(mu_device_world *world)
{
    (void)world;
    return mu__error(MU_UNAVAILABLE, "the other process is gone");
}

// A program of several processes is running, one of them dies, and a copy of an existing value is being made: the copy
// ends, since the plugin writes to its destination. So does an operation whose end the plugin cannot signal.
static void test_copies_end_although_the_job_fails(void **state)
{
    (void)state;
    float data[MANY], copy[MANY] = {0};
    const mu_device *device = mu__device_by_name(mu__runtime(), "XLA_CPU:0");
    mu_pjrt_client *client = device->engine_client;
    mu_device_world world = {.n_processes = 2, .check = job_fails}, *alone = client->world;
    pj_buffer *buffer = NULL;
    for (int i = 0; i < MANY; i++)
        data[i] = (float)i;
    mu_view view = {.dtype = MU_F32, .shape = mu_shape_make(1, (int64_t[]){MANY}), .data = data};
    assert_int_equal(mu__pjrt_upload((const mu_pjrt_memory_space *)device->memory_space, &view, "data", &buffer),
                     MU_OK);
    client->world = &world;
    client->n_shared++;
    plugin.shared = true;
    view.data = copy;
    const mu_status status = mu__pjrt_download(client, buffer, &view, "copy");
    plugin.fails = true;
    assert_int_equal(mu__pjrt_await_buffer(client, buffer, "data"), MU_OK);
    plugin.shared = plugin.copying = plugin.fails = false;
    client->n_shared--;
    client->world = alone;
    assert_int_equal(status, MU_OK);
    assert_memory_equal(copy, data, sizeof data);
    mu__pjrt_drop(client, &buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLUGIN_TEST(test_weights_stay_on_the_device),        PLUGIN_TEST(test_weights_stay_on_two_devices),
        PLUGIN_TEST(test_variables_that_share_values),       PLUGIN_TEST(test_one_copy_is_read_on_two_devices),
        PLUGIN_TEST(test_results_stay_until_they_are_read),  PLUGIN_TEST(test_arguments_as_results),
        PLUGIN_TEST(test_inputs_are_sent_while_a_step_runs), PLUGIN_TEST(test_a_failed_launch_leaves_marks),
        PLUGIN_TEST(test_variables_outlive_the_library),     PLUGIN_TEST(test_copies_end_although_the_job_fails),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
