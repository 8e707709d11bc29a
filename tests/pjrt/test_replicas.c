// Several replicas run one program: compiled once, launched in one call for all devices, with every collective inside,
// and with the results of the native engine. If the replicas' shapes differ, each runs the parts between the
// collectives, with equally exact results.
#include "changed_table.h"
#include "compare_leaves.h"
#include "skip.h"

#include "distribute/distribute.h"
#include "engine/pjrt/pjrt.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { REPLICAS = 4 };

static const char *const processors[] = {"CPU:0", "CPU:1", "CPU:2", "CPU:3", NULL};
static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", "XLA_CPU:2", "XLA_CPU:3", NULL};

// ---- The plugin, counted ------------------------------------------------------------------------

static struct {
    const pj_api *api;                                       // the plugin's own table
    atomic_int compiled, launched, most_devices, reductions; // replicas call on threads of their own
    bool fails;
} plugin;

static pj_error *compile(void *args)
{
    const char *text = ((const pj_compile_args *)args)->program->code;
    while ((text = strstr(text, "stablehlo.all_reduce")) != NULL) {
        plugin.reductions++;
        text++;
    }
    plugin.compiled++;
    return plugin.api->functions[PJ_CLIENT_COMPILE](args);
}

// A struct that is too small is reported as the plugin's own error, before the plugin does anything.
static pj_error *execute(void *args)
{
    pj_execute_args broken = *(const pj_execute_args *)args;
    broken.size = sizeof broken.size;
    plugin.launched++;
    plugin.most_devices = MU_MAX(plugin.most_devices, (int)broken.n_devices);
    return plugin.api->functions[PJ_LOADED_EXECUTE](plugin.fails ? &broken : args);
}

static int start(void **state)
{
    mu_init(.cpu_devices = REPLICAS, .seed = 3);
    mu_pjrt_client *client = mu__device_by_name(mu__runtime(), "XLA_CPU:0")->engine_client;
    static const changed_function counted[] = {{PJ_CLIENT_COMPILE, compile}, {PJ_LOADED_EXECUTE, execute}};
    memset(&plugin, 0, sizeof plugin);
    *state = change_table(client, MU_COUNT(counted), counted, &plugin.api);
    return 0;
}

// ---- Comparing ----------------------------------------------------------------------------------

static mu_value *run_on(mu_strategy *strategy, mu_traceable *fn, void *arg, mu_value *arguments)
{
    mu_value *result = mu_run(strategy, mu_function_new(fn, arg), arguments);
    if (!result)
        fail_msg("%s", mu_error_message());
    return mu_local_results(strategy, result);
}

// Rows `first` to `first` + n of a table of multiples of 0.1, which are not exact.
static mu_tensor *rows(mu_dtype dtype, int64_t n, int64_t first)
{
    float data[64 * 6];
    for (int64_t i = 0; i < n * 6; i++)
        data[i] = (float)((first * 6 + i) * 7 % 23) * 0.1f - 0.7f;
    return mu_cast(mu_tensor_new(MU_F32, 2, (int64_t[]){n, 6}, data), dtype);
}

static mu_value *parts(mu_strategy *strategy, mu_dtype dtype, const int64_t sizes[REPLICAS])
{
    mu_value *values[REPLICAS];
    int64_t first = 0;
    for (int r = 0; r < REPLICAS; first += sizes[r++])
        values[r] = mu_of(rows(dtype, sizes[r], first));
    return mu_list(mu_per_replica_of(strategy, REPLICAS, values), MU_END);
}

static void check(const char *what, mu_traceable *fn, void *arg, mu_dtype dtype, const int64_t sizes[REPLICAS],
                  double tolerance)
{
    mu_pool *pool = mu_pool_open();
    mu_strategy *native = mu_mirrored_strategy(.devices = processors);
    mu_strategy *xla = mu_mirrored_strategy(.devices = devices);
    compare_leaves(what, run_on(native, fn, arg, parts(native, dtype, sizes)),
                   run_on(xla, fn, arg, parts(xla, dtype, sizes)), tolerance);
    assert_int_equal(mu_error_code(), MU_OK);
    mu_pool_close(pool);
}

static const int64_t equal[REPLICAS] = {3, 3, 3, 3}, unequal[REPLICAS] = {4, 3, 3, 2};

// ---- Collectives --------------------------------------------------------------------------------

static mu_value *reduce_values(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *column = mu_reduce_sum(x, 0);
    const bool number = mu_tensor_dtype(x) != MU_BOOL;
    (void)arg;
    return mu_list(mu_of(mu_all_reduce(MU_SUM, number ? column : mu_cast(column, MU_I32))),
                   mu_of(mu_all_reduce(MU_MEAN, column)), mu_of(mu__broadcast_from_first(column, "column")),
                   mu_of(mu_add(mu_cast(mu_replica_id(), MU_F32), mu_constant(MU_F32, 0.5))), MU_END);
}

static mu_value *gather_values(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0),
              *column = mu_reshape(mu_slice(x, (int64_t[]){0, 0}, (int64_t[]){2, 6}), 1, (int64_t[]){12});
    (void)arg;
    return mu_list(mu_of(mu_all_gather(x, 0)), mu_of(mu_all_gather(column, 0)),
                   mu_of(mu_all_gather(mu_greater(column, mu_constant(mu_tensor_dtype(x), 0)), 0)), MU_END);
}

static mu_value *scatter_values(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *few = mu_slice(x, (int64_t[]){0, 0}, (int64_t[]){2, 6});
    mu_tensor *column = mu_reshape(few, 1, (int64_t[]){12}), *square = mu_reshape(few, 2, (int64_t[]){3, 4});
    (void)arg;
    return mu_list(mu_of(mu_reduce_scatter(MU_SUM, column, 0)), mu_of(mu_reduce_scatter(MU_MEAN, column, 0)),
                   mu_of(mu_reduce_scatter(MU_SUM, square, 1)), mu_of(mu_reduce_scatter(MU_MEAN, square, 1)), MU_END);
}

static mu_value *permute_values(mu_value *arguments, void *arg)
{
    static const mu_replica_pair ring[] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, some[] = {{3, 0}, {0, 3}, {2, 2}};
    mu_tensor *x = mu_at(arguments, 0);
    (void)arg;
    return mu_list(mu_of(mu_collective_permute(x, ring, 4)), mu_of(mu_collective_permute(x, some, 3)),
                   mu_of(mu_collective_permute(mu_greater(x, mu_constant(mu_tensor_dtype(x), 0)), some, 3)),
                   mu_of(mu_collective_permute(x, NULL, 0)), MU_END);
}

// The gradient of each replica's weighted result comes back to the value's source.
static mu_value *gradient_values(mu_value *arguments, void *arg)
{
    static const mu_replica_pair shift[] = {{0, 1}, {1, 2}, {2, 3}};
    mu_tensor *x = mu_reshape(mu_slice(mu_at(arguments, 0), (int64_t[]){0, 0}, (int64_t[]){2, 6}), 1, (int64_t[]){12});
    mu_tensor *weight = mu_cast(mu_add(mu_replica_id(), mu_constant(MU_I32, 1)), MU_F32);
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *part = mu_reduce_scatter(MU_MEAN, mu_multiply(x, x), 0), *come = mu_collective_permute(x, shift, 3);
    mu_tensor *loss = mu_multiply(
        mu_add(mu_reduce_sum(mu_multiply(part, part), 0), mu_reduce_sum(mu_multiply(come, come), 0)), weight);
    return mu_of(mu_at(mu_gradients(tape, loss, mu_list(mu_of(x), MU_END)), 0));
}

static mu_value *as_it_is(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_at(arguments, 0));
}

// A tensor that all replicas are given and return is a result of each of them.
static void test_arguments_as_results(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    mu_value *shared = mu_of(mu_constant(MU_F32, 3)), *given[REPLICAS] = {shared, shared, shared, shared};
    mu_value *result = mu_run(strategy, mu_function_new(as_it_is, NULL),
                              mu_list(mu_per_replica_of(strategy, REPLICAS, given), MU_END));
    mu_value *sum = result ? mu_reduce(strategy, MU_SUM, result) : NULL;
    if (!sum)
        fail_msg("%s", mu_error_message());
    assert_true(mu_scalar(mu_value_tensor(sum)) == 3 * REPLICAS);
}

static void test_collectives(void **state)
{
    (void)state;
    static const struct {
        mu_dtype dtype;
        double tolerance;
    } types[] = {{MU_F32, 1e-6}, {MU_F64, 1e-14}, {MU_F16, 0}, {MU_BF16, 0}, {MU_I32, 0}, {MU_I64, 0}};
    for (size_t i = 0; i < MU_COUNT(types); i++) {
        check("reductions", reduce_values, NULL, types[i].dtype, equal, types[i].tolerance);
        check("gathered values", gather_values, NULL, types[i].dtype, equal, 0);
        check("scattered values", scatter_values, NULL, types[i].dtype, equal, types[i].tolerance);
        check("permuted values", permute_values, NULL, types[i].dtype, equal, 0);
    }
    check("gradients", gradient_values, NULL, MU_F32, equal, 1e-6);
    assert_int_equal(plugin.most_devices, REPLICAS);
    assert_int_equal(plugin.launched, 4 * (int)MU_COUNT(types) + 1); // one launch for all devices
    assert_int_equal(plugin.compiled, 4 * (int)MU_COUNT(types) + 1);
}

// If the parts have different sizes, the host scatters and permutes between the parts of the program.
static void test_collectives_between_parts(void **state)
{
    (void)state;
    check("scattered values", scatter_values, NULL, MU_F32, unequal, 1e-6);
    check("gradients", gradient_values, NULL, MU_F32, unequal, 1e-6);
    assert_int_equal(plugin.most_devices, 1);
}

// Parts without rows, as at the end of the data.
static mu_value *empty_values(mu_value *arguments, void *arg)
{
    static const mu_replica_pair some[] = {{3, 0}, {0, 3}, {2, 2}};
    mu_tensor *x = mu_at(arguments, 0);
    (void)arg;
    return mu_list(mu_of(mu_all_gather(x, 0)), mu_of(mu_all_gather(x, 1)),
                   mu_of(mu_all_gather(mu_greater(x, mu_constant(mu_tensor_dtype(x), 0)), 0)),
                   mu_of(mu_all_reduce(MU_SUM, x)), mu_of(mu_all_reduce(MU_MEAN, x)),
                   mu_of(mu_reduce_scatter(MU_SUM, x, 0)), mu_of(mu_reduce_scatter(MU_MEAN, x, 0)),
                   mu_of(mu__broadcast_from_first(x, "x")), mu_of(mu_collective_permute(x, some, 3)), MU_END);
}

static void test_collectives_of_nothing(void **state)
{
    (void)state;
    static const int64_t none[REPLICAS] = {0};
    static const mu_dtype types[] = {MU_F32, MU_BF16, MU_I64};
    for (size_t i = 0; i < MU_COUNT(types); i++)
        check("empty parts", empty_values, NULL, types[i], none, 0);
    assert_int_equal(plugin.most_devices, REPLICAS);
}

// Every iteration reduces.
static mu_value *scan_step(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_value_tensor(element));
    return mu_of(mu_add(mu_multiply(mu_value_tensor(state), mu_constant(MU_F32, 0.5)), sum));
}

static mu_value *scan(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    (void)arg;
    return mu_scan(scan_step, mu_of(x), mu_of(mu_zeros(MU_F32, 1, (int64_t[]){6})));
}

static void test_collectives_in_a_loop(void **state)
{
    (void)state;
    check("a loop", scan, NULL, MU_F32, equal, 1e-6);
    assert_int_equal(plugin.most_devices, REPLICAS);
}

// ---- Collectives in control flow ------------------------------------------------------------------

// Loops of known lengths over parts of unequal sizes: over two columns, with its gradient, and one inside of another.
static mu_tensor *two_columns(mu_tensor *x)
{
    return mu_transpose(mu_slice(x, (int64_t[]){0, 1}, (int64_t[]){-1, 2}), NULL);
}

static mu_value *column_step(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *sum = mu_all_reduce(MU_MEAN, mu_reduce_sum(mu_value_tensor(element), MU_ALL_AXES));
    return mu_of(mu_add(mu_multiply(mu_value_tensor(state), mu_constant(MU_F32, 0.5)), mu_square(sum)));
}

static mu_value *nested_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *columns = mu_multiply(two_columns(arg), mu_value_tensor(element));
    mu_tensor *sums = mu_value_tensor(mu_scan(column_step, mu_of(columns), mu_of(mu_constant(MU_F32, 0))));
    return mu_of(mu_add(mu_value_tensor(state), mu_all_reduce(MU_SUM, mu_reduce_sum(sums, MU_ALL_AXES))));
}

static mu_value *known_loops(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_identity(mu_at(arguments, 0));
    mu_tape *tape = mu_tape_open();
    mu_value *rows = mu_scan(column_step, mu_of(two_columns(x)), mu_of(mu_constant(MU_F32, 1)), .reverse = true);
    mu_tensor *loss = mu_reduce_sum(mu_value_tensor(rows), MU_ALL_AXES), *pair = mu_vector_f32(2, (float[]){1, 3});
    mu_value *gradients = mu_gradients(tape, loss, mu_list(mu_of(x), MU_END));
    mu_value *nested = mu_scan(nested_step, mu_of(pair), mu_of(mu_constant(MU_F32, 0)), .arg = x);
    return mu_list(rows, nested, mu_value_at(gradients, 0), MU_END);
}

static mu_tensor *below_own(mu_value *state, void *arg)
{
    (void)arg;
    return mu_less(mu_reduce_max(mu_at(state, 0), MU_ALL_AXES), mu_constant(MU_F32, 9));
}

static mu_value *sum_once(mu_value *state, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(state, 0);
    return mu_list(mu_of(mu_add(x, mu_square(mu_all_reduce(MU_SUM, mu_reduce_max(x, MU_ALL_AXES))))), MU_END);
}

static mu_value *unknown_loop(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(below_own, sum_once, arguments);
}

static void test_loops_in_parts(void **state)
{
    (void)state;
    check("loops of equal parts", known_loops, NULL, MU_F32, equal, 1e-5);
    assert_int_equal(plugin.most_devices, REPLICAS);
    plugin.most_devices = 0;
    check("loops of unequal parts", known_loops, NULL, MU_F32, (const int64_t[]){4, 3, 3, 4}, 1e-5);
    assert_int_equal(plugin.most_devices, 1);
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    assert_null(mu_run(strategy, mu_function_new(unknown_loop, NULL), parts(strategy, MU_F32, unequal)));
    assert_non_null(strstr(mu_error_take().message, "op while_loop contains a collective, which the host performs"));
}

// The ways in which a program decides whether its collectives run.
typedef enum decision { BY_SUM, BY_OWN_ROWS, BY_REPLICA, BY_COUNT, BY_CARRIED, N_DECISIONS } decision;

static mu_value *reduced(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_at(arguments, 0)));
}

static mu_value *halved(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(arguments, 0), mu_constant(MU_F32, 0.5)));
}

static mu_value *reduced_if(mu_tensor *predicate, mu_tensor *x)
{
    return mu_cond(predicate, reduced, halved, mu_list(mu_of(x), MU_END), NULL);
}

// The largest element of a replica's own rows is the same on all replicas (equal parts have it in the first row of
// each).
static mu_value *branch(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *own = mu_reduce_max(x, MU_ALL_AXES), *half = mu_constant(MU_F32, 0.5);
    switch (*(const decision *)arg) {
    case BY_SUM: return reduced_if(mu_greater(mu_all_reduce(MU_SUM, own), half), x);
    case BY_OWN_ROWS: return reduced_if(mu_greater(own, half), x);
    default: return reduced_if(mu_equal(mu_replica_id(), mu_constant(MU_I32, 2)), x);
    }
}

static mu_tensor *below(mu_value *state, void *arg)
{
    mu_tensor *count = mu_at(state, 0);
    mu_tensor *limit =
        *(const decision *)arg == BY_REPLICA ? mu_add(mu_replica_id(), mu_constant(MU_I32, 1)) : mu_constant(MU_I32, 3);
    return *(const decision *)arg == BY_OWN_ROWS
               ? mu_less(mu_reduce_max(mu_at(state, 1), MU_ALL_AXES), mu_constant(MU_F32, 1000))
               : mu_less(count, limit);
}

// A branch in the body, decided by the count, or by being the second replica in the second iteration.
static mu_value *round_of(mu_value *state, void *arg)
{
    mu_tensor *count = mu_at(state, 0), *x = mu_add(mu_at(state, 1), mu_constant(MU_F32, 1));
    mu_tensor *second = mu_equal(count, mu_constant(MU_I32, 1));
    if (*(const decision *)arg == BY_CARRIED)
        second = mu_logical_and(second, mu_equal(mu_replica_id(), mu_constant(MU_I32, 1)));
    mu_value *taken = reduced_if(second, x);
    return mu_list(mu_of(mu_add(count, mu_constant(MU_I32, 1))), mu_of(mu_all_reduce(MU_MEAN, mu_value_tensor(taken))),
                   MU_END);
}

static mu_value *loop(mu_value *arguments, void *arg)
{
    return mu_while_loop(below, round_of, mu_list(mu_of(mu_constant(MU_I32, 0)), mu_value_at(arguments, 0), MU_END),
                         .arg = arg, .maximum_iterations = 40);
}

static mu_value *counted(mu_value *arguments, void *arg)
{
    mu_variable_assign((mu_variable *)arg, mu_constant(MU_F32, 1));
    decision by = BY_REPLICA;
    return branch(arguments, &by);
}

// If it is certain that all replicas take the same branch, the program has only the reductions that are written in it.
static void test_predicates_that_are_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        mu_traceable *fn;
        decision by;
        int reductions;
    } programs[] = {
        {"a branch on a sum", branch, BY_SUM, 2},
        {"a branch on own rows", branch, BY_OWN_ROWS, 2}, // one is the agreement
        {"a loop to a number", loop, BY_COUNT, 2},
        {"a loop until own rows are large", loop, BY_OWN_ROWS, 4}, // agreements before it and in each round
    };
    for (size_t i = 0; i < MU_COUNT(programs); i++) {
        decision by = programs[i].by;
        plugin.reductions = 0;
        check(programs[i].what, programs[i].fn, &by, MU_F32, equal, 1e-6);
        if (plugin.reductions != programs[i].reductions)
            fail_msg("%s: %d reductions", programs[i].what, plugin.reductions);
    }
    assert_int_equal(plugin.most_devices, REPLICAS);
}

static void refuse(mu_strategy *strategy, mu_traceable *fn, void *arg, const char *first, const char *second)
{
    mu_value *result = mu_run(strategy, mu_function_new(fn, arg), parts(strategy, MU_F32, equal));
    assert_null(result);
    const mu_error error = mu_error_take();
    if (error.code != MU_FAILED_PRECONDITION || !strstr(error.message, first) || !strstr(error.message, second) ||
        !strstr(error.message, "test_replicas.c:"))
        fail_msg("%s: %s", mu_status_name(error.code), error.message);
}

// No replica waits in a collective for replicas that took another branch; the error names the op.
static void test_predicates_that_differ(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    mu_variable *flag = NULL;
    MU_SCOPE(strategy)
        flag = mu_variable_new(.initial_value = mu_constant(MU_F32, 0), .name = "flag");
    decision by = BY_REPLICA, carried = BY_CARRIED;
    refuse(strategy, branch, &by, "cond has a collective inside", "differ in its predicate");
    refuse(strategy, loop, &by, "while_loop has a collective inside", "differ in the number of its iterations");
    refuse(strategy, loop, &carried, "cond has a collective inside", "differ in its predicate");
    refuse(strategy, counted, flag, "cond has a collective inside", "differ in its predicate");
    assert_null(mu__variable_component(flag, 0));
    assert_non_null(strstr(mu_error_take().message, "'flag' was left in doubt"));
    check("a loop", scan, NULL, MU_F32, equal, 1e-6);
}

// ---- Training -----------------------------------------------------------------------------------

typedef struct job {
    mu_variable *weight;
} job;

static mu_value *train_step(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_reduce_sum(mu_multiply(x, mu_variable_read(j->weight)), 0));
    mu_variable_assign_sub(j->weight, mu_multiply(sum, mu_constant(MU_F32, 1e-2)));
    return mu_of(mu_reduce_sum(sum, MU_ALL_AXES));
}

static void open_job(mu_strategy *strategy, job *j)
{
    MU_SCOPE(strategy)
        j->weight = mu_variable_new(.initial_value = mu_fill(MU_F32, 1, (int64_t[]){6}, 1), .name = "weight",
                                    .aggregation = MU_AGGREGATION_MEAN);
}

// Steps with equal and with unequal parts alternate; started ones are not waited for in between.
static void train(mu_strategy *strategy, job *j, float out[REPLICAS * 6])
{
    enum { STEPS = 12, AT_ONCE = 2 };
    mu_running *running[AT_ONCE];
    open_job(strategy, j);
    mu_function *step = mu_function_new(train_step, j);
    for (int i = 0; i < STEPS + AT_ONCE; i++) {
        if (i >= AT_ONCE && !mu__run_wait(running[i % AT_ONCE]))
            fail_msg("step %d: %s", i, mu_error_message());
        if (i < STEPS &&
            !(running[i % AT_ONCE] = mu__run_start(strategy, step, parts(strategy, MU_F32, i % 3 ? equal : unequal))))
            fail_msg("step %d: %s", i, mu_error_message());
    }
    for (int r = 0; r < REPLICAS; r++)
        memcpy(out + r * 6, mu_tensor_data(mu__variable_component(j->weight, r)), sizeof *out * 6);
}

static void test_unequal_parts_between_equal_ones(void **state)
{
    (void)state;
    job native, xla;
    float wanted[REPLICAS * 6], seen[REPLICAS * 6];
    train(mu_mirrored_strategy(.devices = processors), &native, wanted);
    train(mu_mirrored_strategy(.devices = devices), &xla, seen);
    for (int i = 0; i < REPLICAS * 6; i++) {
        assert_true(fabsf(wanted[i] - seen[i]) <= 1e-6f);
        assert_true(seen[i] == seen[i % 6]); // the same on every replica
    }
    assert_int_equal(plugin.compiled, 1 + 3 * 3); // one for all, and three parts for each of three sizes
}

// The replicas share one weight, in steps that run as one program and in parts.
static void test_central_storage(void **state)
{
    (void)state;
    job native, xla;
    float wanted[REPLICAS * 6], seen[REPLICAS * 6];
    train(mu_mirrored_strategy(.devices = processors), &native, wanted);
    mu_strategy *strategy = mu_central_storage_strategy(.compute_devices = devices);
    train(strategy, &xla, seen);
    for (int i = 0; i < REPLICAS * 6; i++)
        assert_true(fabsf(wanted[i] - seen[i]) <= 1e-6f);
    assert_int_equal(xla.weight->n_components, 1);
    assert_int_equal(plugin.most_devices, REPLICAS);
    plugin.fails = true;
    assert_null(mu_run(strategy, mu_function_new(train_step, &xla), parts(strategy, MU_F32, equal)));
    plugin.fails = false;
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_variable_read(xla.weight));
    assert_non_null(strstr(mu_error_take().message, "'weight' was left in doubt"));
    assert_int_equal(mu_variable_assign(xla.weight, mu_fill(MU_F32, 1, (int64_t[]){6}, 2)), MU_OK);
    assert_non_null(mu_run(strategy, mu_function_new(train_step, &xla), parts(strategy, MU_F32, unequal)));
}

// After a failed launch all replicas' copies are in doubt instead of silently keeping their old values.
static void test_a_failed_launch_leaves_marks_on_all(void **state)
{
    (void)state;
    job j;
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    open_job(strategy, &j);
    mu_function *step = mu_function_new(train_step, &j);
    assert_non_null(mu_run(strategy, step, parts(strategy, MU_F32, equal)));
    plugin.fails = true;
    assert_null(mu_run(strategy, step, parts(strategy, MU_F32, equal)));
    plugin.fails = false;
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    for (int r = 0; r < REPLICAS; r++) {
        assert_null(mu__variable_component(j.weight, r));
        assert_non_null(strstr(mu_error_take().message, "'weight' was left in doubt"));
    }
    assert_null(mu_run(strategy, step, parts(strategy, MU_F32, unequal)));
    assert_non_null(strstr(mu_error_take().message, "'weight' was left in doubt"));
    assert_int_equal(mu_variable_assign(j.weight, mu_fill(MU_F32, 1, (int64_t[]){6}, 2)), MU_OK);
    assert_non_null(mu_run(strategy, step, parts(strategy, MU_F32, equal)));
}

// If the user names another way to reduce, the host reduces in that way.
static void test_another_way_to_reduce(void **state)
{
    (void)state;
    job j;
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices, .cross_device_ops = mu_reduction_to_one_device());
    open_job(strategy, &j);
    assert_non_null(mu_run(strategy, mu_function_new(train_step, &j), parts(strategy, MU_F32, equal)));
    assert_int_equal(plugin.most_devices, 1);
    assert_int_equal(plugin.compiled, 3); // three parts, for all replicas
}

#define PLUGIN_TEST(name) cmocka_unit_test_setup_teardown(name, start, exit_and_free_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLUGIN_TEST(test_arguments_as_results),
        PLUGIN_TEST(test_collectives),
        PLUGIN_TEST(test_collectives_of_nothing),
        PLUGIN_TEST(test_collectives_between_parts),
        PLUGIN_TEST(test_collectives_in_a_loop),
        PLUGIN_TEST(test_loops_in_parts),
        PLUGIN_TEST(test_predicates_that_are_the_same),
        PLUGIN_TEST(test_predicates_that_differ),
        PLUGIN_TEST(test_unequal_parts_between_equal_ones),
        PLUGIN_TEST(test_central_storage),
        PLUGIN_TEST(test_a_failed_launch_leaves_marks_on_all),
        PLUGIN_TEST(test_another_way_to_reduce),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
