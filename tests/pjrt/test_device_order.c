// Replicas whose devices are in another order than the plugin's: a list of names that begins with the last device, a
// device assignment that permutes the cores of a TPU, and a plugin that lists the devices of a program in an order of
// its own. Every component of a variable and of a result is on its replica's device, and has the native engine's value.
#include "changed_table.h"
#include "compare_leaves.h"
#include "skip.h"

#include "distribute/distribute.h"
#include "engine/pjrt/pjrt.h"

#include <muster.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { DEVICES = 4, WIDTH = 3, STEPS = 5, VARIABLES = 5 };

// ---- The plugin, with an order of its own -------------------------------------------------------

static struct {
    const pj_api *api; // the plugin's own table
    bool reversed;     // it lists the devices of programs from the last replica to the first
    pj_device *listed[DEVICES];
    int uploads;
} plugin;

static pj_error *list_devices(void *args)
{
    pj_loaded_devices_args *given = args;
    pj_error *error = plugin.api->functions[PJ_LOADED_ADDRESSABLE_DEVICES](args);
    if (error || !plugin.reversed || given->n > DEVICES)
        return error;
    for (size_t i = 0; i < given->n; i++)
        plugin.listed[i] = given->devices[given->n - 1 - i];
    given->devices = plugin.listed;
    return NULL;
}

static pj_error *execute(void *args)
{
    pj_execute_args given = *(const pj_execute_args *)args;
    pj_buffer *const *arguments[DEVICES], **outputs[DEVICES];
    pj_event *complete[DEVICES];
    const size_t n = given.n_devices;
    if (!plugin.reversed || n > DEVICES)
        return plugin.api->functions[PJ_LOADED_EXECUTE](args);
    for (size_t i = 0; i < n; i++) {
        arguments[i] = given.arguments[n - 1 - i];
        outputs[i] = given.outputs[n - 1 - i];
    }
    given.arguments = arguments;
    given.outputs = outputs;
    given.complete = complete;
    pj_error *error = plugin.api->functions[PJ_LOADED_EXECUTE](&given);
    for (size_t i = 0; i < n && !error; i++)
        ((pj_execute_args *)args)->complete[n - 1 - i] = complete[i];
    return error;
}

static pj_error *upload(void *args)
{
    plugin.uploads++;
    return plugin.api->functions[PJ_CLIENT_BUFFER_FROM_HOST_BUFFER](args);
}

static mu_tpu_topology *topology;

static int start(void **state)
{
    static const changed_function changed[] = {{PJ_LOADED_ADDRESSABLE_DEVICES, list_devices},
                                               {PJ_LOADED_EXECUTE, execute},
                                               {PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, upload}};
    mu_init(.cpu_devices = DEVICES, .seed = 3);
    topology = mu_tpu_initialize(NULL);
    memset(&plugin, 0, sizeof plugin);
    *state = change_table(mu__device_by_name(mu__runtime(), "XLA_CPU:0")->engine_client, MU_COUNT(changed), changed,
                          &plugin.api);
    return 0;
}

// ---- Strategies ---------------------------------------------------------------------------------

static mu_strategy *native(int n)
{
    const char *names[DEVICES + 1] = {"CPU:0", "CPU:1", "CPU:2", "CPU:3"};
    names[n] = NULL;
    return mu_mirrored_strategy(.devices = names);
}

static mu_strategy *mirrored(const char *first, const char *second)
{
    return mu_mirrored_strategy(.devices = (const char *const[]){first, second, NULL});
}

// The cores are numbered chip by chip, two on each.
static mu_strategy *on_cores(int replicas, int each, const int cores[])
{
    int places[DEVICES * MU_TPU_RANK] = {0};
    for (int i = 0; i < replicas * each; i++) {
        places[i * MU_TPU_RANK] = cores[i] / 2;
        places[i * MU_TPU_RANK + MU_TPU_RANK - 1] = cores[i] % 2;
    }
    mu_strategy *strategy =
        mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_new(topology, replicas, each, places));
    if (!strategy)
        fail_msg("%s", mu_error_message());
    return strategy;
}

static void expect_devices(const mu_strategy *strategy, int n, const int numbers[])
{
    char name[16];
    assert_int_equal(strategy->n_local, n);
    for (int r = 0; r < n; r++) {
        snprintf(name, sizeof name, "XLA_CPU:%d", numbers[r]);
        assert_string_equal(strategy->devices[r]->name, name);
    }
}

// ---- A step with every kind of variable ---------------------------------------------------------

typedef struct job {
    mu_strategy *strategy;
    mu_variable *variables[VARIABLES], *generator;
    mu_function *step;
} job;

static const struct kind {
    const char *name;
    mu_variable_synchronization synchronization;
    mu_variable_aggregation aggregation;
} kinds[VARIABLES] = {
    {"mean", MU_SYNCHRONIZATION_ON_WRITE, MU_AGGREGATION_MEAN},
    {"first", MU_SYNCHRONIZATION_ON_WRITE, MU_AGGREGATION_ONLY_FIRST_REPLICA},
    {"own", MU_SYNCHRONIZATION_ON_WRITE, MU_AGGREGATION_NONE},
    {"read", MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_SUM},
    {"first_read", MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_ONLY_FIRST_REPLICA},
};

static mu_value *sum_of_all(mu_strategy *strategy, mu_value *values, void *arg)
{
    (void)arg;
    return mu_reduce(strategy, MU_SUM, values);
}

// Each replica adds another number to each variable.
static mu_value *train_step(mu_value *arguments, void *arg)
{
    const job *j = arg;
    const int n = mu_replica_count();
    mu_replica_pair next[DEVICES];
    mu_tensor *x = mu_at(arguments, 0), *column = mu_reduce_sum(x, 0);
    mu_tensor *own = mu_add(column, mu_cast(mu_replica_id(), MU_F32));
    for (int k = 0; k < VARIABLES; k++)
        mu_variable_assign_add(j->variables[k], own);
    for (int r = 0; r < n; r++)
        next[r] = (mu_replica_pair){r, (r + 1) % n};
    return mu_list(mu_of(own), mu_of(mu_all_reduce(MU_SUM, own)), mu_of(mu_all_gather(x, 0)),
                   mu_of(mu_collective_permute(own, next, n)), mu_merge_call(sum_of_all, NULL, mu_of(own)),
                   mu_of(mu_variable_read(j->variables[2])), mu_of(mu_variable_read(j->variables[3])), MU_END);
}

static void open_job(job *j, mu_strategy *strategy)
{
    j->strategy = strategy;
    MU_SCOPE(strategy) {
        j->generator = mu_generator_new(5, "generator");
        for (int k = 0; k < VARIABLES; k++)
            j->variables[k] =
                mu_variable_new(.initial_value = mu_ones(MU_F32, 1, (int64_t[]){WIDTH}), .name = kinds[k].name,
                                .synchronization = kinds[k].synchronization, .aggregation = kinds[k].aggregation);
    }
    j->step = mu_function_new(train_step, j);
}

static mu_value *batch(mu_strategy *strategy, int step)
{
    mu_value *values[DEVICES];
    float data[4 * WIDTH];
    for (int r = 0; r < strategy->n_local; r++) {
        const int64_t rows = step == 2 ? 4 - r % 2 : 2; // the third step is cut at its collectives
        for (int i = 0; i < 4 * WIDTH; i++)
            data[i] = (float)((i * 5 + r * 11 + step * 3) % 19) * 0.125f;
        values[r] = mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){rows, WIDTH}, data));
    }
    return mu_list(mu_per_replica_of(strategy, strategy->n_local, values), MU_END);
}

static mu_value *run(const job *j, int step)
{
    mu_value *results = mu_run(j->strategy, j->step, batch(j->strategy, step));
    if (!results)
        fail_msg("step %d: %s", step, mu_error_message());
    return results;
}

// ---- Places and values --------------------------------------------------------------------------

static void expect_own_devices(const job *j, mu_value *results)
{
    const mu_value *own = mu_value_at(results, 0);
    for (int r = 0; r < j->strategy->n_local; r++) {
        const mu_device *device = j->strategy->devices[r];
        assert_ptr_equal(mu_value_tensor(own->items[r])->buffer->memory_space, device->memory_space);
        for (int k = 0; k < VARIABLES; k++) {
            mu_resource *resource = &j->variables[k]->resource;
            mu_tensor *there = NULL;
            assert_int_equal(resource->kind->read(resource, r, &there), MU_OK);
            if (!there || there->buffer->memory_space != device->memory_space)
                fail_msg("component %d of '%s' is not on %s", r, kinds[k].name, device->name);
            mu_release(there);
        }
    }
}

static mu_value *state_of(const job *j)
{
    mu_value *list[VARIABLES * DEVICES + VARIABLES];
    int n = 0;
    for (int k = 0; k < VARIABLES; k++)
        for (int r = 0; r < j->strategy->n_local; r++)
            list[n++] = mu_of(mu__variable_component(j->variables[k], r));
    for (int k = 0; k < VARIABLES; k++)
        if (k != 2) // its components differ
            list[n++] = mu_of(mu_variable_read(j->variables[k]));
    return mu_list_of(n, list);
}

// Values made outside of replicas from the results of a step.
static mu_value *outside(const job *j, mu_value *results)
{
    return mu_list(mu_local_results(j->strategy, results), mu_strategy_gather(j->strategy, mu_value_at(results, 0), 0),
                   mu_reduce(j->strategy, MU_MEAN, mu_value_at(results, 6)), state_of(j), MU_END);
}

static mu_value *add_two(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_add(variable, mu_at(arguments, 0));
    return NULL;
}

// Variables are written from outside between the steps, too.
static void write_outside(const job *j)
{
    mu_variable_assign(j->variables[0], mu_fill(MU_F32, 1, (int64_t[]){WIDTH}, 7));
    mu_update_variable(j->strategy, j->variables[1], add_two, NULL,
                       mu_list(mu_fill(MU_F32, 1, (int64_t[]){WIDTH}, 2), MU_END));
    mu_variable_assign(j->variables[3], mu_fill(MU_F32, 1, (int64_t[]){WIDTH}, 8));
    assert_int_equal(mu_error_code(), MU_OK);
}

static void train(mu_strategy *strategy)
{
    job wanted, seen;
    open_job(&wanted, native(strategy->n_local));
    open_job(&seen, strategy);
    for (int step = 0; step < STEPS; step++) {
        mu_value *a = run(&wanted, step), *b = run(&seen, step);
        if (step != 2)
            expect_own_devices(&seen, b);
        compare_leaves("a step", outside(&wanted, a), outside(&seen, b), 1e-6);
        if (step == 3) {
            write_outside(&wanted);
            write_outside(&seen);
        }
    }
    assert_int_equal(mu_error_code(), MU_OK);
}

// ---- Tests --------------------------------------------------------------------------------------

static void test_names_in_another_order(void **state)
{
    (void)state;
    mu_strategy *strategy = mirrored("XLA_CPU:3", "XLA_CPU:1");
    expect_devices(strategy, 2, (const int[]){3, 1});
    train(strategy);
    train(mu_mirrored_strategy(.devices =
                                   (const char *const[]){"XLA_CPU:2", "XLA_CPU:0", "XLA_CPU:3", "XLA_CPU:1", NULL}));
}

static void test_cores_in_another_order(void **state)
{
    (void)state;
    mu_strategy *strategy = on_cores(4, 1, (const int[]){3, 0, 2, 1});
    expect_devices(strategy, 4, (const int[]){3, 0, 2, 1});
    train(strategy);
    mu_strategy *pairs = on_cores(2, 2, (const int[]){3, 0, 2, 1});
    expect_devices(pairs, 2, (const int[]){3, 2});
    train(pairs);
}

// The plugin says which device each list of arguments is for.
static void test_a_plugin_with_an_order_of_its_own(void **state)
{
    (void)state;
    plugin.reversed = true;
    train(mirrored("XLA_CPU:0", "XLA_CPU:1"));
    train(on_cores(2, 2, (const int[]){0, 1, 2, 3}));
}

// ---- Ops outside of functions -------------------------------------------------------------------

static mu_value *scaled(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_add(variable, mu_value_tensor(arguments));
    mu_tensor *now = mu_multiply(mu_variable_read(variable), mu_constant(MU_F32, 0.5));
    mu_variable_assign(variable, now);
    return mu_of(now);
}

static mu_value *update_of(const job *j, mu_value *own)
{
    return mu_update_variable(j->strategy, j->variables[2], scaled, NULL, own, .local_results = true);
}

static void expect_places(const job *j, mu_value *const *values)
{
    for (int r = 0; r < j->strategy->n_local; r++)
        assert_ptr_equal(mu_value_tensor(values[r])->buffer->memory_space, j->strategy->devices[r]->memory_space);
}

// An update of each copy of a variable leaves it, and makes its results, on the copy's device.
static void test_updates_run_on_the_devices_of_copies(void **state)
{
    (void)state;
    job wanted, seen;
    open_job(&wanted, native(2));
    open_job(&seen, on_cores(2, 1, (const int[]){3, 0}));
    mu_value *a = run(&wanted, 0), *b = run(&seen, 0);
    mu_value *updated = update_of(&seen, mu_value_at(b, 0));
    if (!updated)
        fail_msg("%s", mu_error_message());
    expect_places(&seen, updated->items);
    expect_own_devices(&seen, b);
    compare_leaves("an update", update_of(&wanted, mu_value_at(a, 0)), updated, 1e-6);
    compare_leaves("the state", state_of(&wanted), state_of(&seen), 1e-6);
}

static mu_value *update_all(mu_strategy *strategy, mu_value *values, void *arg)
{
    (void)strategy;
    return update_of(arg, values);
}

// Three kinds of rendezvous with the other replicas, and ops between them. The last op draws other numbers on each
// replica.
static mu_value *eager_step(mu_value *arguments, void *arg)
{
    job *j = arg;
    mu_tensor *x = mu_reduce_sum(mu_at(arguments, 0), 0);
    mu_tensor *own = mu_multiply(x, mu_add(mu_variable_read(j->variables[2]), mu_cast(mu_replica_id(), MU_F32)));
    mu_tensor *sum = mu_all_reduce(MU_SUM, own);
    mu_variable_assign_add(j->variables[0], own);
    mu_variable_assign(j->variables[2], mu_add(own, mu_multiply(sum, mu_constant(MU_F32, 0.125))));
    mu_merge_call(update_all, j, mu_of(own));
    return mu_list(mu_of(own), mu_of(sum), mu_of(mu_add(mu_variable_read(j->variables[2]), sum)),
                   mu_of(mu_stateless_random_uniform(mu_generator_next(j->generator), MU_F32, 1, (int64_t[]){WIDTH})),
                   MU_END);
}

static void test_eager_replicas_run_on_their_devices(void **state)
{
    (void)state;
    job wanted, seen;
    open_job(&wanted, native(2));
    open_job(&seen, mirrored("XLA_CPU:3", "XLA_CPU:1"));
    for (int step = 0; step < 3; step++) {
        mu_value *a = mu_run_callback(wanted.strategy, eager_step, &wanted, batch(wanted.strategy, step));
        mu_value *b = mu_run_callback(seen.strategy, eager_step, &seen, batch(seen.strategy, step));
        if (!a || !b)
            fail_msg("step %d: %s", step, mu_error_message());
        expect_places(&seen, mu_value_at(b, 0)->items);
        expect_places(&seen, mu_value_at(b, 2)->items);
        compare_leaves("a step", mu_local_results(wanted.strategy, a), mu_local_results(seen.strategy, b), 1e-5);
        compare_leaves("the state", state_of(&wanted), state_of(&seen), 1e-5);
    }
}

// Outside of replicas a variable is its copy on the current device, and its copies stay where they are.
static void test_the_copy_on_the_current_device(void **state)
{
    (void)state;
    job j;
    open_job(&j, mirrored("XLA_CPU:3", "XLA_CPU:1"));
    mu_value *results = run(&j, 0);
    const int uploads = plugin.uploads;
    for (int r = 0; r < 2; r++) {
        const mu_device *device = j.strategy->devices[r];
        assert_int_equal(mu_set_device(device->name), MU_OK);
        mu_tensor *own = mu_variable_read(j.variables[2]);
        assert_ptr_equal(own->buffer->memory_space, device->memory_space);
        compare_leaves("a copy", mu_of(mu__variable_component(j.variables[2], r)), mu_of(own), 0);
    }
    assert_int_equal(plugin.uploads, uploads);
    mu_variable_assign(j.variables[0], mu_variable_read(j.variables[1]));
    expect_own_devices(&j, results);
    mu_variable_assign_add(j.variables[0], mu_variable_read(j.variables[1]));
    mu_set_device(NULL);
    run(&j, 1);
    expect_own_devices(&j, results);
    assert_int_equal(mu_error_code(), MU_OK);
}

// ---- Further logical devices --------------------------------------------------------------------

static mu_value *add_row_by_row(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tensor *x = mu_split_to_logical_devices(j->strategy, mu_at(arguments, 0), 2, (const int[]){2, 1});
    mu_tensor *sum = mu_add(x, mu_variable_read(j->variables[0]));
    return mu_list(mu_of(mu_replicate_to_logical_devices(j->strategy, sum)), MU_END);
}

static double first_element(mu_strategy *strategy, mu_value *results, int replica)
{
    mu_value *parts = results ? mu_local_results(strategy, mu_value_at(results, 0)) : NULL;
    if (!parts)
        fail_msg("%s", mu_error_message());
    return ((const float *)mu_tensor_data(mu_at(parts, replica)))[0];
}

// Replicas of two strategies have the same first cores and other second ones. Results and variables of one are used by
// the other, whose copies are on its own second cores.
static void test_other_logical_devices_have_their_own_copies(void **state)
{
    (void)state;
    job one, other;
    open_job(&one, on_cores(2, 2, (const int[]){0, 1, 2, 3}));
    open_job(&other, on_cores(2, 2, (const int[]){0, 3, 2, 1}));
    other.variables[0] = one.variables[0];
    mu_function *a = mu_function_new(add_row_by_row, &one), *b = mu_function_new(add_row_by_row, &other);
    mu_value *x = batch(one.strategy, 0);
    double wanted[2] = {first_element(one.strategy, x, 0), first_element(one.strategy, x, 1)};
    for (int i = 0; i < 4; i++) {
        const job *j = i % 2 ? &other : &one;
        x = mu_run(j->strategy, i % 2 ? b : a, x);
        const int uploads = plugin.uploads;
        for (int r = 0; r < 2; r++)
            assert_true(first_element(j->strategy, x, r) == wanted[r] + i + 1);
        assert_true(i == 0 || uploads == plugin.uploads);
    }
}

#define PLUGIN_TEST(name) cmocka_unit_test_setup_teardown(name, start, exit_and_free_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLUGIN_TEST(test_names_in_another_order),
        PLUGIN_TEST(test_cores_in_another_order),
        PLUGIN_TEST(test_a_plugin_with_an_order_of_its_own),
        PLUGIN_TEST(test_updates_run_on_the_devices_of_copies),
        PLUGIN_TEST(test_eager_replicas_run_on_their_devices),
        PLUGIN_TEST(test_the_copy_on_the_current_device),
        PLUGIN_TEST(test_other_logical_devices_have_their_own_copies),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
