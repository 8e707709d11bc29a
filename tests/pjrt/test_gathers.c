// all_gather of parts whose sizes differ between the replicas: each replica runs the parts of its program between the
// collectives, and those behind the gather are compiled for each size of the whole. Values and gradients are those of
// the native engine.
#include "counted_calls.h"
#include "compare_leaves.h"
#include "skip.h"

#include "distribute/distribute.h"
#include "engine/pjrt/pjrt.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 3 };

static const char *const processors[] = {"CPU:0", "CPU:1", "CPU:2"};
static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", "XLA_CPU:2"};

static mu_strategy *on(const char *const names[MOST], int n)
{
    const char *some[MOST + 1] = {NULL};
    memcpy(some, names, sizeof *some * (size_t)n);
    return mu_mirrored_strategy(.devices = some);
}

// ---- The plugin, counted ------------------------------------------------------------------------

static int start(void **state) { return start_counting(state, MOST, NULL); }

// ---- Comparing ----------------------------------------------------------------------------------

// Parts [2, size, 3] of replicas, or [size, 2, 3], filled with numbers that identify their source.
static mu_value *parts(mu_strategy *strategy, mu_dtype dtype, int axis, int n, const int64_t sizes[MOST])
{
    mu_value *values[MOST];
    for (int r = 0; r < n; r++) {
        const int64_t dims[3] = {axis == 0 ? sizes[r] : 2, axis == 1 ? sizes[r] : 2, 3};
        mu_tensor *part = mu_tensor_new(dtype, 3, dims, NULL);
        for (int64_t i = 0; i < mu_tensor_elements(part); i++)
            mu__write_element(dtype, mu__host_write(part), i,
                              dtype == MU_BOOL ? (double)((r + i) % 2) : (double)(30 * r + i) / 4);
        values[r] = mu_of(part);
    }
    return mu_list(mu_per_replica_of(strategy, n, values), MU_END);
}

typedef struct program {
    mu_traceable *fn;
    void *arg;
    mu_dtype dtype;
    int axis, n;
} program;

static void check(const char *what, const program *p, const int64_t sizes[MOST], double tolerance)
{
    mu_pool *pool = mu_pool_open();
    mu_value *results[2];
    for (int i = 0; i < 2; i++) {
        mu_strategy *strategy = on(i ? devices : processors, p->n);
        mu_value *result =
            mu_run(strategy, mu_function_new(p->fn, p->arg), parts(strategy, p->dtype, p->axis, p->n, sizes));
        if (!result)
            fail_msg("%s on %s: %s", what, i ? "XLA" : "CPU", mu_error_message());
        results[i] = mu_local_results(strategy, result);
    }
    compare_leaves(what, results[0], results[1], tolerance);
    mu_pool_close(pool);
}

static const int64_t unequal[][MOST] = {{2, 1, 3}, {0, 4, 0}, {1, 0, 2}};

// ---- Programs -----------------------------------------------------------------------------------

static mu_value *gather(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(mu_of(mu_all_gather(x, *(const int *)arg)), MU_END);
}

// An op that depends on a gather, and whose result is gathered again.
static mu_value *gather_twice(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *all = mu_all_gather(x, 0);
    mu_tensor *rows = mu_cast(mu_dim_size(all, 0), MU_F32), *sum = mu_reduce_sum(all, 0);
    mu_tensor *more = mu_multiply(mu_add(all, sum), mu_cast(mu_add(mu_replica_id(), mu_constant(MU_I32, 1)), MU_F32));
    mu_tensor *again = mu_all_gather(mu_concat(2, (mu_tensor *[]){more, x}, 0), 0);
    return mu_list(mu_of(mu_all_reduce(MU_SUM, mu_reduce_sum(mu_square(again), MU_ALL_AXES))), mu_of(rows),
                   mu_of(mu_add(x, mu_reduce_mean(again, 0))), mu_of(again), MU_END);
}

// The gradient of each replica's weighted whole comes back to the replicas' parts.
static mu_value *differentiate(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_identity(mu_at(arguments, 0));
    mu_tape *tape = mu_tape_open();
    mu_tensor *all = mu_all_gather(x, *(const int *)arg);
    mu_tensor *weight = mu_cast(mu_add(mu_replica_id(), mu_constant(MU_I32, 1)), MU_F32);
    mu_tensor *loss = mu_multiply(mu_reduce_sum(mu_multiply(mu_square(all), mu_sin(all)), MU_ALL_AXES), weight);
    return mu_gradients(tape, loss, mu_list(mu_of(x), MU_END));
}

static void test_sizes_and_axes(void **state)
{
    (void)state;
    static const int axes[] = {0, 1};
    for (int n = 2; n <= MOST; n++)
        for (int axis = 0; axis < 2; axis++)
            for (size_t k = 0; k < MU_COUNT(unequal); k++) {
                check("a gather", &(program){gather, (void *)&axes[axis], MU_F32, axis, n}, unequal[k], 0);
                if (k == 0)
                    check("its gradient", &(program){differentiate, (void *)&axes[axis], MU_F32, axis, n}, unequal[k],
                          1e-5);
            }
    for (size_t k = 0; k < 2; k++)
        check("two gathers", &(program){gather_twice, NULL, MU_F32, 0, MOST}, unequal[k], 1e-5);
    assert_int_equal(calls.most_devices, 1);
}

static void test_types(void **state)
{
    (void)state;
    static const int axis = 0;
    for (mu_dtype dtype = MU_F32; dtype <= MU_BOOL; dtype++)
        if (mu_dtype_bytes(dtype) > 0 && dtype != MU_STRING)
            check(mu_dtype_name(dtype), &(program){gather, (void *)&axis, dtype, 0, 2}, unequal[0], 0);
}

// Programs are compiled once for each size of a replica's part and of the whole, and reused.
static void test_sizes_that_change(void **state)
{
    (void)state;
    static const int64_t sizes[][MOST] = {{2, 1, 1}, {2, 1, 1}, {2, 1, 2}, {2, 2, 2}, {2, 1, 1}, {2, 1, 2}};
    // Three parts for 2 rows and for 1, two of them again for another whole, and one program for all.
    static const int compiled[] = {6, 0, 4, 1, 0, 0};
    static const int axis = 0;
    mu_strategy *xla = on(devices, MOST), *native = on(processors, MOST);
    mu_function *function = mu_function_new(differentiate, (void *)&axis);
    mu_function *reference = mu_function_new(differentiate, (void *)&axis);
    for (size_t k = 0; k < MU_COUNT(sizes); k++) {
        const int before = calls.compiled;
        mu_value *seen = mu_run(xla, function, parts(xla, MU_F32, 0, MOST, sizes[k]));
        mu_value *wanted = mu_run(native, reference, parts(native, MU_F32, 0, MOST, sizes[k]));
        if (!seen || !wanted)
            fail_msg("step %zu: %s", k, mu_error_message());
        compare_leaves("a step", mu_local_results(native, wanted), mu_local_results(xla, seen), 1e-5);
        assert_int_equal(calls.compiled - before, compiled[k]);
    }
    assert_int_equal(mu_function_trace_count(function), 1);
    assert_int_equal(calls.most_devices, MOST);
}

// With room for one set of programs behind the gather, other sets are freed and compiled again when needed.
static void test_room_for_few_programs(void **state)
{
    (void)state;
    static const int axis = 0;
    static const int64_t sizes[][MOST] = {{2, 1, 1}, {2, 1, 2}, {2, 1, 3}, {2, 1, 1}};
    mu_strategy *strategy = on(devices, MOST);
    mu_function *function = mu_function_new(gather, (void *)&axis);
    for (size_t k = 0; k < MU_COUNT(sizes); k++) {
        mu_value *seen = mu_run(strategy, function, parts(strategy, MU_F32, 0, MOST, sizes[k]));
        if (!seen)
            fail_msg("step %zu: %s", k, mu_error_message());
        const mu_tensor *all = mu_at(mu_value_at(mu_local_results(strategy, seen), 0), 0);
        assert_int_equal(mu_tensor_dim(all, 0), sizes[k][0] + sizes[k][1] + sizes[k][2]);
    }
}

// Each gather has room of its own: two sizes, with room for two, are compiled once, also if a step has two gathers.
static void test_room_for_each_gather(void **state)
{
    (void)state;
    mu_strategy *strategy = on(devices, MOST);
    static const int64_t sizes[][MOST] = {{2, 1, 1}, {2, 1, 2}};
    mu_function *function = mu_function_new(gather_twice, NULL);
    int compiled = 0;
    for (int k = 0; k < 6; k++) {
        if (!mu_run(strategy, function, parts(strategy, MU_F32, 0, MOST, sizes[k % 2])))
            fail_msg("step %d: %s", k, mu_error_message());
        compiled = k < 2 ? calls.compiled : compiled;
    }
    assert_int_equal(calls.compiled, compiled);
}

// ---- What gathers are part of -------------------------------------------------------------------

// Loops over known rows, whose body gathers.
static mu_value *gather_row(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *all = mu_all_gather(mu_value_tensor(element), 0);
    return mu_of(mu_add(mu_multiply(mu_value_tensor(state), mu_constant(MU_F32, 0.5)), mu_reduce_sum(all, 0)));
}

static mu_value *scan(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0); // [2, own size, 3]
    return mu_scan(gather_row, mu_of(x), mu_of(mu_zeros(MU_F32, 1, (int64_t[]){3})));
}

// Over rows that were gathered: how many there are is known when the program behind the gather is compiled.
static mu_value *add_row(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    return mu_of(mu_tanh(mu_add(mu_value_tensor(state), mu_value_tensor(element))));
}

static mu_value *scan_gathered(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *all = mu_all_gather(mu_at(arguments, 0), 0);
    return mu_scan(add_row, mu_of(all), mu_of(mu_zeros(MU_F32, 2, (int64_t[]){2, 3})));
}

static mu_value *reduce_slices(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_reduce_sum(mu_reduce_sum(mu_at(arguments, 0), 2), 1);
    mu_tensor *rows = mu_cumsum(mu_ones_like(mu_cast(x, MU_I64)), 0, false, false);
    mu_value *own = mu_indexed_slices(x, rows, 1, (int64_t[]){8});
    return mu_of(mu_convert_to_tensor(mu_all_reduce_value(MU_SUM, own)));
}

static void test_loops_and_slices(void **state)
{
    (void)state;
    check("a loop that gathers", &(program){scan, NULL, MU_F32, 1, MOST}, unequal[0], 1e-6);
    check("a loop over what was gathered", &(program){scan_gathered, NULL, MU_F32, 0, MOST}, unequal[0], 1e-6);
    check("slices", &(program){reduce_slices, NULL, MU_F32, 0, MOST}, unequal[0], 1e-6);
    assert_int_equal(calls.most_devices, 1);
}

// The host also gathers parts of equal sizes if the program names another way to reduce.
static void test_another_way_to_reduce(void **state)
{
    (void)state;
    static const int axis = 0;
    static const int64_t equal[MOST] = {2, 2, 2};
    const char *some[MOST + 1] = {devices[0], devices[1], devices[2], NULL};
    mu_strategy *xla = mu_mirrored_strategy(.devices = some, .cross_device_ops = mu_reduction_to_one_device());
    mu_strategy *native = on(processors, MOST);
    mu_value *seen = mu_run(xla, mu_function_new(gather, (void *)&axis), parts(xla, MU_F32, 0, MOST, equal));
    if (!seen)
        fail_msg("%s", mu_error_message());
    mu_value *wanted = mu_run(native, mu_function_new(gather, (void *)&axis), parts(native, MU_F32, 0, MOST, equal));
    compare_leaves("a gather", mu_local_results(native, wanted), mu_local_results(xla, seen), 0);
    assert_int_equal(calls.most_devices, 1);
}

// Parts that differ along another axis are an error on every replica.
static void test_other_axes_must_be_equal(void **state)
{
    (void)state;
    static const int axis = 1;
    mu_strategy *strategy = on(devices, MOST);
    assert_null(mu_run(strategy, mu_function_new(gather, (void *)&axis), parts(strategy, MU_F32, 0, MOST, unequal[0])));
    const mu_error error = mu_error_take();
    if (error.code != MU_INVALID_ARGUMENT || !strstr(error.message, "all_gather"))
        fail_msg("%s: %s", mu_status_name(error.code), error.message);
}

#define GATHER_TEST(name) cmocka_unit_test_setup_teardown(name, start, exit_and_free_table)

static int start_with_room(const char *plans, void **state)
{
    setenv("MUSTER_PLAN_CACHE", plans, 1);
    const int failed = start(state);
    unsetenv("MUSTER_PLAN_CACHE");
    return failed;
}

static int start_with_little_room(void **state) { return start_with_room("1", state); }
static int start_with_room_for_two(void **state) { return start_with_room("2", state); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        GATHER_TEST(test_sizes_and_axes),
        GATHER_TEST(test_types),
        GATHER_TEST(test_sizes_that_change),
        cmocka_unit_test_setup_teardown(test_room_for_few_programs, start_with_little_room, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_room_for_each_gather, start_with_room_for_two, exit_and_free_table),
        GATHER_TEST(test_loops_and_slices),
        GATHER_TEST(test_another_way_to_reduce),
        GATHER_TEST(test_other_axes_must_be_equal),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
