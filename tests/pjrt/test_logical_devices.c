// Replicas of several logical devices: a function whose tensors are annotated (mu_split_to_logical_devices and its
// like) becomes one program that XLA divides among the devices of each replica, with the results of one device each.
#include "changed_table.h"
#include "skip.h"

#include "distribute/distribute.h"
#include "engine/pjrt/pjrt.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { REPLICAS = 2, CORES = 2, DEVICES = REPLICAS * CORES, ROWS = 4, WIDTH = 6, HIDDEN = 8, STEPS = 6 };
enum { NUM_REPLICAS = 42, NUM_PARTITIONS = 43 }; // functions of executables

// ---- The plugin, watched ------------------------------------------------------------------------

static struct {
    const pj_api *api; // the plugin's own table
    int compiled, launched, uploads, fetches, copies;
    size_t devices, partitions, replicas; // of the last program
    bool fails;
} plugin;

static size_t ask(pj_executable *executable, int function)
{
    pj_outputs_args args = PJ_ARGS(pj_outputs_args, .executable = executable);
    assert_null(plugin.api->functions[function](&args));
    return args.n;
}

static pj_error *compile(void *args)
{
    pj_error *error = plugin.api->functions[PJ_CLIENT_COMPILE](args);
    pj_loaded_executable_args inner = PJ_ARGS(pj_loaded_executable_args, .loaded = ((pj_compile_args *)args)->loaded);
    plugin.compiled++;
    if (error || plugin.api->functions[PJ_LOADED_GET_EXECUTABLE](&inner))
        return error;
    plugin.replicas = ask(inner.executable, NUM_REPLICAS);
    plugin.partitions = ask(inner.executable, NUM_PARTITIONS);
    pj_executable_args end = PJ_ARGS(pj_executable_args, .executable = inner.executable);
    plugin.api->functions[PJ_EXECUTABLE_DESTROY](&end);
    return NULL;
}

// A struct that is too small is reported as the plugin's own error, before the plugin does anything.
static pj_error *execute(void *args)
{
    pj_execute_args broken = *(const pj_execute_args *)args;
    broken.size = sizeof broken.size;
    plugin.launched++;
    plugin.devices = broken.n_devices;
    return plugin.api->functions[PJ_LOADED_EXECUTE](plugin.fails ? &broken : args);
}

static pj_error *upload(void *args)
{
    plugin.uploads++;
    return plugin.api->functions[PJ_CLIENT_BUFFER_FROM_HOST_BUFFER](args);
}

static pj_error *look(void *args)
{
    plugin.fetches++;
    return plugin.api->functions[PJ_BUFFER_UNSAFE_POINTER](args);
}

static pj_error *copy(void *args)
{
    plugin.copies++;
    return plugin.api->functions[PJ_BUFFER_COPY_TO_DEVICE](args);
}

// What a TPU's plugin reports of its cores and the CPU plugin does not: the coordinates of the chip, and the number of
// the core on it.
static struct {
    bool given, twice;
    int64_t chips[DEVICES][3];
} cores = {.chips = {{1, 2, 0}, {1, 3, 0}, {2, 2, 0}, {2, 3, 0}}};

static pj_error *attributes(void *args)
{
    static pj_named_value values[DEVICES][2];
    pj_description_attributes_args *given = args;
    pj_description_id_args id = PJ_ARGS(pj_description_id_args, .description = given->description);
    if (!cores.given)
        return plugin.api->functions[PJ_DEVICE_DESCRIPTION_ATTRIBUTES](args);
    assert_null(plugin.api->functions[PJ_DEVICE_DESCRIPTION_ID](&id));
    const int chip = cores.twice ? 0 : id.id % DEVICES;
    values[id.id % DEVICES][0] = PJ_ARGS(pj_named_value, .name = "coords", .name_bytes = 6, .type = PJ_VALUE_INTS,
                                         .value = {.integers = cores.chips[chip]}, .value_size = 3);
    values[id.id % DEVICES][1] =
        PJ_ARGS(pj_named_value, .name = "core_on_chip", .name_bytes = 12, .type = PJ_VALUE_INT, .value_size = 1);
    given->attributes = values[id.id % DEVICES];
    given->n = 2;
    return NULL;
}

static mu_tpu_topology *topology;

static int start(void **state)
{
    static const changed_function watched[] = {{PJ_CLIENT_COMPILE, compile},
                                               {PJ_LOADED_EXECUTE, execute},
                                               {PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, upload},
                                               {PJ_BUFFER_UNSAFE_POINTER, look},
                                               {PJ_BUFFER_COPY_TO_DEVICE, copy},
                                               {PJ_DEVICE_DESCRIPTION_ATTRIBUTES, attributes}};
    mu_init(.cpu_devices = DEVICES, .seed = 3);
    topology = mu_tpu_initialize(NULL);
    mu_pjrt_client *client = mu__device_by_name(mu__runtime(), "TPU:0")->engine_client;
    memset(&plugin, 0, sizeof plugin);
    cores.given = cores.twice = false;
    *state = change_table(client, MU_COUNT(watched), watched, &plugin.api);
    return 0;
}

// ---- Strategies ---------------------------------------------------------------------------------

static mu_strategy *pairs(void)
{
    return mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_build(
                               topology, .computation_shape = {1, 1, 1, CORES}, .num_replicas = REPLICAS));
}

static mu_strategy *native(void)
{
    return mu_mirrored_strategy(.devices = (const char *const[]){"CPU:0", "CPU:1", NULL});
}

// ---- A step, annotated or not -------------------------------------------------------------------

typedef enum placement { PLAIN, SPLIT, ASSIGNED } placement;

typedef struct job {
    mu_strategy *strategy;
    placement placement;
    mu_variable *first, *second, *steps, *kept;
} job;

static mu_tensor *rows_split(const job *j, mu_tensor *x)
{
    return j->placement == SPLIT      ? mu_split_to_logical_devices(j->strategy, x, 2, (const int[]){CORES, 1})
           : j->placement == ASSIGNED ? mu_assign_to_logical_device(j->strategy, x, 1)
                                      : x;
}

static mu_tensor *columns_split(const job *j, mu_tensor *x)
{
    return j->placement == SPLIT      ? mu_split_to_logical_devices(j->strategy, x, 2, (const int[]){1, CORES})
           : j->placement == ASSIGNED ? mu_assign_to_logical_device(j->strategy, x, 0)
                                      : x;
}

static mu_tensor *whole(const job *j, mu_tensor *x)
{
    return j->placement == PLAIN ? x : mu_replicate_to_logical_devices(j->strategy, x);
}

static mu_value *loop_step(mu_value *state, mu_value *element, void *arg)
{
    const job *j = arg;
    mu_tensor *sum = mu_add(mu_multiply(mu_value_tensor(state), mu_constant(MU_F32, 0.5)), mu_value_tensor(element));
    return mu_of(j->placement == SPLIT ? mu_split_to_logical_devices(j->strategy, sum, 1, (const int[]){CORES}) : sum);
}

// Reads and writes variables, draws numbers, reduces among the replicas, and loops.
static mu_value *train_step(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = rows_split(j, mu_at(arguments, 0));
    mu_tensor *kernel = columns_split(j, mu_variable_read(j->first));
    mu_tensor *hidden = mu_nn_stateless_dropout(mu_nn_relu(mu_matmul(x, kernel)), 0.25,
                                                mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){7, 1}));
    mu_tensor *y = whole(j, mu_matmul(columns_split(j, hidden), mu_variable_read(j->second)));
    mu_tensor *sums =
        mu_value_tensor(mu_scan(loop_step, mu_of(y), mu_of(mu_zeros(MU_F32, 1, (int64_t[]){2})), .arg = arg));
    mu_tensor *loss = mu_reduce_mean(mu_square(mu_subtract(sums, mu_constant(MU_F32, 1))), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(j->first, j->second, MU_END));
    mu_variable *both[] = {j->first, j->second};
    for (int i = 0; i < 2; i++)
        mu_variable_assign_sub(both[i],
                               mu_multiply(mu_all_reduce(MU_SUM, mu_at(gradients, i)), mu_constant(MU_F32, 0.05)));
    mu_variable_assign_add(j->steps, mu_constant(MU_F32, 1));
    mu_variable_assign(j->kept, mu_all_reduce(MU_MEAN, mu_reduce_sum(hidden, 0)));
    return mu_list(mu_of(mu_all_reduce(MU_SUM, loss)), mu_of(y), MU_END);
}

static mu_variable *made(const char *name, int rank, const int64_t *dims, int salt)
{
    float data[WIDTH * HIDDEN];
    for (int i = 0; i < WIDTH * HIDDEN; i++)
        data[i] = (float)((i * 7 + salt) % 23) * 0.05f - 0.4f;
    return mu_variable_new(mu_tensor_new(MU_F32, rank, dims, data), name, .aggregation = MU_AGGREGATION_MEAN);
}

static void open_job(job *j, mu_strategy *strategy, placement how)
{
    *j = (job){.strategy = strategy, .placement = how};
    MU_SCOPE(strategy) {
        j->first = made("first", 2, (int64_t[]){WIDTH, HIDDEN}, 1);
        j->second = made("second", 2, (int64_t[]){HIDDEN, 2}, 5);
        j->steps = made("steps", 0, NULL, 0);
        j->kept = made("kept", 1, (int64_t[]){HIDDEN}, 3);
    }
}

static mu_value *batch(mu_strategy *strategy, int step, int64_t rows)
{
    mu_value *values[REPLICAS];
    float data[8 * WIDTH];
    for (int r = 0; r < REPLICAS; r++) {
        for (int i = 0; i < 8 * WIDTH; i++)
            data[i] = (float)((i * 5 + r * 11 + step * 3) % 19) * 0.1f - 0.8f;
        values[r] = mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){rows, WIDTH}, data));
    }
    return mu_list(mu_per_replica_of(strategy, REPLICAS, values), MU_END);
}

// ---- Comparing ----------------------------------------------------------------------------------

static void compare(const char *what, int step, const mu_tensor *wanted, const mu_tensor *seen)
{
    assert_true(wanted && seen && mu__shape_equal(&wanted->shape, &seen->shape));
    const float *a = mu_tensor_data(wanted), *b = mu_tensor_data(seen);
    for (int64_t i = 0; i < mu_tensor_elements(wanted); i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(a[i]))))
            fail_msg("%s, step %d: element %lld is %.9g on logical devices, %.9g on the native engine", what, step,
                     (long long)i, b[i], a[i]);
}

static void compare_results(int step, const job *a, mu_value *wanted, const job *b, mu_value *seen)
{
    mu_object *left[16], *right[16];
    if (!wanted || !seen)
        fail_msg("step %d: %s", step, mu_error_message());
    const int n = mu__value_flatten(mu_local_results(a->strategy, wanted), left, 16);
    assert_int_equal(mu__value_flatten(mu_local_results(b->strategy, seen), right, 16), n);
    for (int i = 0; i < n; i++)
        compare("a result", step, (mu_tensor *)left[i], (mu_tensor *)right[i]);
}

static void compare_variables(int step, const job *a, const job *b)
{
    for (int r = 0; r < REPLICAS; r++) {
        compare("first", step, mu__variable_component(a->first, r), mu__variable_component(b->first, r));
        compare("second", step, mu__variable_component(a->second, r), mu__variable_component(b->second, r));
        compare("steps", step, mu__variable_component(a->steps, r), mu__variable_component(b->steps, r));
        compare("kept", step, mu__variable_component(a->kept, r), mu__variable_component(b->kept, r));
    }
}

// Variables are read and written from outside between the steps, too.
static void train_both(placement how)
{
    job wanted, seen;
    open_job(&wanted, native(), PLAIN);
    open_job(&seen, pairs(), how);
    mu_function *a = mu_function_new(train_step, &wanted), *b = mu_function_new(train_step, &seen);
    for (int step = 0; step < STEPS; step++) {
        compare_results(step, &wanted, mu_run(wanted.strategy, a, batch(wanted.strategy, step, ROWS)), &seen,
                        mu_run(seen.strategy, b, batch(seen.strategy, step, ROWS)));
        if (step % 2)
            compare_variables(step, &wanted, &seen);
        if (step == 2) {
            mu_tensor *doubled = mu_multiply(mu_variable_read(wanted.second), mu_constant(MU_F32, 2));
            assert_int_equal(mu_variable_assign(wanted.second, doubled), MU_OK);
            assert_int_equal(mu_variable_assign(seen.second, doubled), MU_OK);
        }
    }
    assert_int_equal(mu_error_code(), MU_OK);
}

static void test_divided_among_the_logical_devices(void **state)
{
    (void)state;
    train_both(SPLIT);
    assert_int_equal(plugin.partitions, CORES);
    assert_int_equal(plugin.replicas, REPLICAS);
    assert_int_equal(plugin.devices, DEVICES);
    assert_int_equal(plugin.launched, STEPS);
    assert_int_equal(plugin.compiled, 1);
}

static void test_assigned_to_logical_devices(void **state)
{
    (void)state;
    train_both(ASSIGNED);
    assert_int_equal(plugin.partitions, CORES);
    assert_int_equal(plugin.devices, DEVICES);
}

// Without annotations a replica needs its first device only.
static void test_without_annotations(void **state)
{
    (void)state;
    train_both(PLAIN);
    assert_int_equal(plugin.partitions, 1);
    assert_int_equal(plugin.devices, REPLICAS);
}

static mu_value *doubled(mu_value *arguments, void *arg)
{
    mu_tensor *x = rows_split(arg, mu_at(arguments, 0));
    return mu_list(mu_of(whole(arg, mu_add(x, x))), mu_of(x), MU_END);
}

static float second_of(const job *j, mu_value *results)
{
    mu_value *parts = mu_local_results(j->strategy, mu_value_at(results, 0));
    return ((const float *)mu_tensor_data(mu_at(parts, 1)))[1];
}

// Results that become the next step's arguments are copied from device to device.
static void test_results_as_arguments(void **state)
{
    (void)state;
    job j;
    open_job(&j, pairs(), SPLIT);
    mu_function *function = mu_function_new(doubled, &j);
    mu_value *x = mu_run(j.strategy, function, batch(j.strategy, 0, ROWS));
    if (!x)
        fail_msg("%s", mu_error_message());
    const float before = second_of(&j, x);
    const int uploads = plugin.uploads, fetches = plugin.fetches;
    for (int i = 0; i < 3; i++) {
        x = mu_run(j.strategy, function, mu_list(mu_value_at(x, 0), MU_END));
        if (!x)
            fail_msg("%s", mu_error_message());
    }
    assert_int_equal(plugin.uploads, uploads);
    assert_int_equal(plugin.fetches, fetches);
    assert_int_equal(plugin.copies, 3 * REPLICAS);
    assert_true(before != 0 && second_of(&j, x) == 8 * before);
}

static mu_value *reduced(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_at(arguments, 0)));
}

static mu_value *unreduced(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_at(arguments, 0));
}

// A collective where the first element is above a limit.
static mu_value *reduced_above(mu_value *arguments, void *arg)
{
    mu_tensor *x = rows_split(arg, mu_at(arguments, 0)), *limit = mu_at(arguments, 1);
    mu_value *sums = mu_cond(mu_greater(mu_reduce_sum(x, MU_ALL_AXES), limit), reduced, unreduced,
                             mu_list(mu_of(mu_reduce_sum(x, 0)), MU_END), NULL);
    return sums ? mu_of(whole(arg, mu_value_tensor(sums))) : NULL;
}

static mu_value *run_above(const job *j, mu_function *function, float first, float second)
{
    mu_value *limits[] = {mu_of(mu_constant(MU_F32, first)), mu_of(mu_constant(MU_F32, second))};
    return mu_run(
        j->strategy, function,
        mu_list(mu_value_at(batch(j->strategy, 0, ROWS), 0), mu_per_replica_of(j->strategy, REPLICAS, limits), MU_END));
}

// Replicas agree on the branch even if each is divided among devices.
static void test_replicas_agree(void **state)
{
    (void)state;
    job wanted, seen;
    open_job(&wanted, native(), PLAIN);
    open_job(&seen, pairs(), SPLIT);
    mu_function *a = mu_function_new(reduced_above, &wanted), *b = mu_function_new(reduced_above, &seen);
    compare_results(0, &wanted, run_above(&wanted, a, -99, -99), &seen, run_above(&seen, b, -99, -99));
    compare_results(1, &wanted, run_above(&wanted, a, 99, 99), &seen, run_above(&seen, b, 99, 99));
    assert_int_equal(plugin.devices, DEVICES);
    assert_null(run_above(&seen, b, -99, 99));
    const mu_error error = mu_error_take();
    assert_true(error.code == MU_FAILED_PRECONDITION && strstr(error.message, "replicas differ in its predicate"));
}

// ---- The mesh -----------------------------------------------------------------------------------

static void expect_device(const mu_tpu_topology *mesh, int x, int y, int core, int device)
{
    assert_int_equal(mu_tpu_topology_device(mesh, (const int[]){x, y, 0, core}), device);
}

// On a v5e each core is a chip; replicas are in the order of the cores, and a pair of cores is two adjacent chips.
static void test_the_mesh_is_what_the_cores_say(void **state)
{
    (void)state;
    expect_device(topology, 1, 0, 1, 3); // the CPU plugin says nothing
    cores.given = true;
    mu_tpu_topology *said = mu_tpu_initialize(NULL);
    for (int i = 0; i < DEVICES; i++)
        expect_device(said, i / 2, i % 2, 0, i);
    assert_int_equal(mu_tpu_topology_device(said, (const int[]){0, 0, 0, 1}), -1);
    assert_int_equal(mu_error_take().code, MU_OUT_OF_RANGE);
    mu_strategy *strategy = mu_tpu_strategy(),
                *wide = mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_build(
                                            said, .computation_shape = {2, 1, 1, 1}, .num_replicas = REPLICAS));
    assert_true(strategy && wide);
    for (int i = 0; i < DEVICES; i++)
        assert_int_equal(strategy->devices[i]->index, i);
    assert_int_equal(wide->cores[1]->index, 2); // beside core 0 along x
    cores.twice = true;
    expect_device(mu_tpu_initialize(NULL), 1, 0, 1, 3); // two cores cannot be at one place
}

// ---- Refused ------------------------------------------------------------------------------------

static void expect(const char *part)
{
    const mu_error error = mu_error_take();
    if (!strstr(error.message, part))
        fail_msg("'%s' does not have \"%s\"", error.message, part);
}

static mu_value *odd(mu_value *arguments, void *arg)
{
    return mu_of(mu_reduce_sum(rows_split(arg, mu_at(arguments, 0)), 0));
}

// The batch's size is unknown in the trace and known when the program is compiled.
static void test_sizes_that_do_not_divide(void **state)
{
    (void)state;
    job j;
    open_job(&j, pairs(), SPLIT);
    mu_function *function = mu_function_new(odd, &j);
    assert_non_null(mu_run(j.strategy, function, batch(j.strategy, 0, ROWS)));
    assert_null(mu_run(j.strategy, function, batch(j.strategy, 0, 5)));
    expect("axis 0 has size 5, which 2 pieces do not divide; split another axis");
    assert_non_null(mu_run(j.strategy, function, batch(j.strategy, 0, 8)));
    mu_tensor *x = mu_zeros(MU_F32, 2, (const int64_t[]){4, 6});
    assert_null(mu_split_to_logical_devices(j.strategy, x, 2, (const int[]){2, 2}));
    expect("4 pieces in all, for 2 logical devices");
    assert_null(mu_split_to_logical_devices(j.strategy, mu_constant(MU_F32, 1), 0, NULL));
    expect("a scalar can only be replicated");
    assert_null(mu_assign_to_logical_device(j.strategy, x, CORES));
    expect("logical device 2; the replicas have devices 0 to 1");
}

static void test_a_failed_launch_leaves_marks(void **state)
{
    (void)state;
    job j;
    open_job(&j, pairs(), SPLIT);
    mu_function *step = mu_function_new(train_step, &j);
    assert_non_null(mu_run(j.strategy, step, batch(j.strategy, 0, ROWS)));
    plugin.fails = true;
    assert_null(mu_run(j.strategy, step, batch(j.strategy, 1, ROWS)));
    plugin.fails = false;
    mu_error_take();
    for (int r = 0; r < REPLICAS; r++) {
        assert_null(mu__variable_component(j.first, r));
        expect("'first' was left in doubt");
    }
}

// ---- Models -------------------------------------------------------------------------------------

static mu_value *call_divided(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context;
    mu_tensor *hidden = mu_call(mu_layer_attribute(model, "hidden"), columns_split(arg, mu_at(inputs, 0)));
    return mu_of(mu_call(mu_layer_attribute(model, "out"), whole(arg, hidden)));
}

static mu_model *divided_model(job *j, int steps)
{
    mu_model *model = NULL;
    MU_SCOPE(j->strategy) {
        model = mu_model_subclass("divided", .call = call_divided, .arg = j);
        mu_layer_set_attribute(model, "hidden", mu_dense(HIDDEN, .activation = "tanh"));
        mu_layer_set_attribute(model, "out", mu_dense(1));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1), .loss = "mse", .steps_per_execution = steps);
    }
    return model;
}

static double fitted_loss(job *j, int steps)
{
    enum { SAMPLES = 20, BATCH = 8 }; // the last batch has 4
    float x[SAMPLES * WIDTH], y[SAMPLES];
    for (int i = 0; i < SAMPLES * WIDTH; i++)
        x[i] = (float)(i * 7 % 23) * 0.1f - 1;
    for (int i = 0; i < SAMPLES; i++)
        y[i] = (float)(i * 5 % 11) * 0.2f;
    mu_set_seed(4);
    mu_history *history = mu_fit(divided_model(j, steps), mu_tensor_new(MU_F32, 2, (int64_t[]){SAMPLES, WIDTH}, x),
                                 mu_tensor_new(MU_F32, 2, (int64_t[]){SAMPLES, 1}, y), .batch_size = BATCH, .epochs = 3,
                                 .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s", mu_error_message());
    return mu_history_last(history, "loss");
}

// mu_fit reduces the gradients of all weights in one collective.
static void test_fit(void **state)
{
    (void)state;
    job wanted = {.strategy = native()}, seen = {.strategy = pairs(), .placement = SPLIT};
    const double loss = fitted_loss(&wanted, 1);
    assert_true(fabs(fitted_loss(&seen, 1) - loss) < 1e-5);
    assert_int_equal(plugin.partitions, CORES);
    assert_true(fabs(fitted_loss(&seen, 2) - loss) < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_divided_among_the_logical_devices, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_assigned_to_logical_devices, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_without_annotations, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_results_as_arguments, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_replicas_agree, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_the_mesh_is_what_the_cores_say, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_sizes_that_do_not_divide, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_a_failed_launch_leaves_marks, start, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_fit, start, exit_and_free_table),
    };
    return plugin_missing() ? SKIPPED : cmocka_run_group_tests(tests, NULL, NULL);
}
