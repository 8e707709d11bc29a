// Checks in device programs: assert and check_numerics fail with the native engine's error, also in branches and loops,
// on one device and on several replicas, in one program and in parts; checks whose result is certain are decided when
// the program is compiled.
#include "counted_calls.h"
#include "compare_leaves.h"
#include "skip.h"

#include "distribute/distribute.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { N = 4, REPLICAS = 3 };

static const char *const processors[] = {"CPU:0", "CPU:1", "CPU:2", NULL};
static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", "XLA_CPU:2", NULL};

// ---- Programs -----------------------------------------------------------------------------------

static mu_tensor *number(double value) { return mu_constant(MU_F32, value); }

static mu_value *list(mu_tensor *tensor) { return mu_list(mu_of(tensor), MU_END); }

static mu_value *positive(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_assert(mu_greater(x, mu_zeros_like(x)), "x is not positive");
    return mu_of(mu_add(x, x));
}

// The first failing check is the error.
static mu_value *twice(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *square = mu_reshape(x, 2, (int64_t[]){2, 2});
    mu_assert(mu_less(mu_reduce_sum(x, MU_ALL_AXES), number(100)), "the sum is large");
    mu_assert(mu_less(square, number(10)), "one is large");
    return mu_of(mu_multiply(x, x));
}

static mu_value *checked(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_check_numerics(mu_divide(number(1), x), "the reciprocal");
    mu_value *gradients = mu_gradients(tape, mu_reduce_sum(mu_square(y), MU_ALL_AXES), list(x));
    return gradients ? mu_list(mu_of(y), mu_value_at(gradients, 0), MU_END) : NULL;
}

static mu_value *as_it_is(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_at(arguments, 0));
}

static mu_value *in_a_branch(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *first = mu_gather(x, mu_constant(MU_I32, 0), 0, 0);
    return mu_cond(mu_less(first, number(5)), positive, as_it_is, arguments, NULL);
}

// Only the assertion ends this loop if an element is below 1.
static mu_tensor *below_limit(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_less(mu_reduce_min(mu_at(loop, 0), MU_ALL_AXES), number(40));
}

static mu_value *grow(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(loop, 0), *most = mu_reduce_max(x, MU_ALL_AXES);
    mu_assert(mu_less(most, number(1000)), "the largest runs away");
    return list(mu_multiply(x, x));
}

static mu_value *in_a_loop(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(below_limit, grow, list(mu_at(arguments, 0)), NULL);
}

static mu_tensor *checked_limit(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *most = mu_reduce_max(mu_at(loop, 0), MU_ALL_AXES);
    mu_assert(mu_less(most, number(50)), "the condition's own check");
    return mu_less(most, number(20));
}

static mu_value *doubled(mu_value *loop, void *arg)
{
    (void)arg;
    return list(mu_multiply(mu_at(loop, 0), number(2)));
}

// A check that would come after the last iteration does not count.
static mu_value *in_a_condition(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *end = mu_while_loop(checked_limit, doubled, list(mu_at(arguments, 0)), NULL);
    mu_value *stopped =
        end ? mu_while_loop(checked_limit, doubled, list(mu_at(end, 0)), NULL, .maximum_iterations = 0) : NULL;
    return stopped ? mu_list(mu_value_at(end, 0), mu_value_at(stopped, 0), MU_END) : NULL;
}

static mu_value *nested_step(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *sum = mu_add(mu_value_tensor(state), mu_value_tensor(element));
    return mu_cond(mu_greater(sum, number(2)), positive, as_it_is, list(mu_subtract(sum, number(3))), NULL);
}

static mu_value *nested(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_scan(nested_step, mu_of(mu_at(arguments, 0)), mu_of(number(0)));
}

static const struct {
    const char *what;
    mu_traceable *fn;
    float good[N], bad[N];
    const char *message;
} programs[] = {
    {"an assertion", positive, {1, 2, 3, 4}, {1, 2, -3, -4}, "x is not positive (element 2 of"},
    {"two assertions", twice, {1, 2, 3, 4}, {1, 99, 30, 4}, "the sum is large (element 0 of"},
    {"the second of two", twice, {1, 2, 3, 4}, {1, 2, 30, 40}, "one is large (element 2 of"},
    {"a number", checked, {1, 2, 3, 4}, {1, 2, -0.f, 0}, "check_numerics: the reciprocal: element 2 is -inf"},
    {"a positive one", checked, {1, 2, 3, 4}, {1, 0, -3, NAN}, "check_numerics: the reciprocal: element 1 is inf"},
    {"no number", checked, {-1, 2, 3, 4}, {NAN, 2, 3, 4}, "check_numerics: the reciprocal: element 0 is"},
    {"a branch", in_a_branch, {6, -2, 3, 4}, {4, -2, 3, 4}, "x is not positive (element 1 of"},
    {"a loop", in_a_loop, {2, 3, 2, 5}, {0.5f, 3, 2, 5}, "the largest runs away (element 0 of"},
    {"a condition", in_a_condition, {1, 2, 3, 4}, {1, 2, 3, 60}, "the condition's own check (element 0 of"},
    {"a branch in a loop", nested, {4, 2, 3, 1}, {4, 2, 3, -1}, "x is not positive (element 0 of"},
};

// ---- One device ---------------------------------------------------------------------------------

static mu_value *argument(const float data[N]) { return list(mu_tensor_new(MU_F32, 1, (int64_t[]){N}, data)); }

static mu_value *run_on(const char *device, mu_traceable *fn, const float data[N])
{
    return mu_run(mu_one_device_strategy(device), mu_function_new(fn, NULL), argument(data));
}

// The op's part of the message, with its line in this file; the part about the run around it differs between engines.
static void op_of(const mu_error *error, char text[512])
{
    const char *begin = strstr(error->message, "assert: ");
    begin = begin ? begin : strstr(error->message, "check_numerics: ");
    snprintf(text, 512, "%s", begin ? begin : error->message);
    text[strcspn(text, "\n;")] = '\0';
}

static void expect_failure(const char *what, mu_value *result, const char *message)
{
    if (result)
        fail_msg("%s: no error; wanted '%s'", what, message);
    const mu_error error = mu_error_take();
    if (error.code != MU_INVALID_ARGUMENT || !strstr(error.message, message))
        fail_msg("%s: %s: %s; wanted '%s'", what, mu_status_name(error.code), error.message, message);
}

static void test_one_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(programs); i++) {
        mu_value *native = run_on("CPU:0", programs[i].fn, programs[i].good);
        mu_value *plugin = native ? run_on("XLA_CPU:0", programs[i].fn, programs[i].good) : NULL;
        if (!plugin)
            fail_msg("%s: %s", programs[i].what, mu_error_message());
        compare_leaves(programs[i].what, native, plugin, 1e-6);
        expect_failure(programs[i].what, run_on("CPU:0", programs[i].fn, programs[i].bad), programs[i].message);
        expect_failure(programs[i].what, run_on("XLA_CPU:0", programs[i].fn, programs[i].bad), programs[i].message);
    }
}

// The same words and the same line.
static void test_the_message_is_the_native_ones(void **state)
{
    (void)state;
    static const float bad[N] = {1, -1, 2, 3};
    char native[512], plugin[512];
    mu_error error;
    assert_null(run_on("CPU:0", positive, bad));
    error = mu_error_take();
    op_of(&error, native);
    assert_non_null(strstr(error.message, "test_checks.c:"));
    assert_null(run_on("XLA_CPU:0", positive, bad));
    error = mu_error_take();
    op_of(&error, plugin);
    assert_non_null(strstr(error.message, "test_checks.c:"));
    assert_string_equal(native, plugin);
}

// ---- What is known when the program is compiled -------------------------------------------------

static int start(void **state) { return start_counting(state, REPLICAS, "// assert"); }

typedef struct job {
    mu_variable *count;
    int64_t rows;
} job;

static void open_job(mu_strategy *strategy, job *j, int64_t rows)
{
    j->rows = rows;
    MU_SCOPE(strategy)
        j->count = mu_variable_new(.initial_value = number(1), .name = "count", .aggregation = MU_AGGREGATION_MEAN);
}

// The number of rows of all replicas is a condition on shapes.
static mu_value *count_rows(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tensor *x = mu_at(arguments, 0), *rows = mu_expand_dims(mu_dim_size(x, 0), 0);
    mu_tensor *all = mu_replica_count() > 1 ? mu_all_gather(rows, 0) : rows;
    mu_assert(mu_equal(mu_reduce_sum(all, 0), mu_constant(mu_tensor_dtype(all), (double)j->rows)), "other rows");
    mu_variable_assign_add(j->count, number(1));
    return mu_of(mu_add(x, x));
}

static double count_of(const job *j, int replica)
{
    mu_tensor *value = mu__variable_component(j->count, replica);
    return value ? mu_scalar(value) : -1;
}

static void test_conditions_on_shapes(void **state)
{
    (void)state;
    static const float data[N] = {1, 2, 3, 4};
    job j;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    open_job(strategy, &j, N);
    assert_non_null(mu_run(strategy, mu_function_new(count_rows, &j), argument(data)));
    assert_int_equal(calls.containing, 0);
    const int before = calls.launched;
    j.rows = 3;
    expect_failure("rows", mu_run(strategy, mu_function_new(count_rows, &j), argument(data)), "other rows (element 0");
    assert_int_equal(calls.launched, before);
    assert_true(count_of(&j, 0) == 2);
}

// ---- Replicas -----------------------------------------------------------------------------------

static mu_value *parts(mu_strategy *strategy, const int64_t sizes[REPLICAS], float first)
{
    mu_value *values[REPLICAS];
    float data[8];
    for (int r = 0; r < REPLICAS; r++) {
        for (int i = 0; i < sizes[r]; i++)
            data[i] = first++;
        values[r] = mu_of(mu_tensor_new(MU_F32, 1, (int64_t[]){sizes[r]}, data));
    }
    return mu_list(mu_per_replica_of(strategy, REPLICAS, values), MU_END);
}

static const int64_t equal[REPLICAS] = {2, 2, 2}, unequal[REPLICAS] = {3, 2, 2};

// In one program all replicas together have the rows; in parts the host gathers them.
static void test_conditions_on_shapes_of_all(void **state)
{
    (void)state;
    job j;
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    open_job(strategy, &j, 6);
    mu_function *function = mu_function_new(count_rows, &j);
    assert_non_null(mu_run(strategy, function, parts(strategy, equal, 0)));
    assert_int_equal(calls.containing, 0);
    assert_int_equal(calls.most_devices, REPLICAS);
    expect_failure("parts", mu_run(strategy, function, parts(strategy, unequal, 0)), "other rows (element 0");
    for (int r = 0; r < REPLICAS; r++)
        assert_true(count_of(&j, r) == 2);
    j.rows = 7;
    assert_non_null(mu_run(strategy, mu_function_new(count_rows, &j), parts(strategy, unequal, 0)));
    const int before = calls.launched;
    expect_failure("one program", mu_run(strategy, mu_function_new(count_rows, &j), parts(strategy, equal, 0)),
                   "other rows (element 0");
    assert_int_equal(calls.launched, before);
    for (int r = 0; r < REPLICAS; r++)
        assert_true(count_of(&j, r) == 3);
}

static mu_value *sum_small(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_assert(mu_less(x, number(12)), "x is large");
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_reduce_sum(x, MU_ALL_AXES));
    if (arg)
        mu_variable_assign_add(arg, number(1));
    return mu_of(sum);
}

// The replicas whose own values are small stop as well.
static mu_value *reduce_and_grow(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(loop, 0), *count = mu_at(loop, 1);
    mu_assert(mu_less(mu_reduce_max(x, MU_ALL_AXES), number(200)), "a replica runs away");
    mu_tensor *mean = mu_all_reduce(MU_MEAN, mu_reduce_mean(x, MU_ALL_AXES));
    return mu_list(mu_of(mu_add(mu_multiply(x, number(1.5)), mu_multiply(mean, number(0.01)))),
                   mu_of(mu_add(count, mu_constant(MU_I32, 1))), MU_END);
}

static mu_tensor *to_a_number(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_less(mu_at(loop, 1), mu_constant(MU_I32, 6));
}

static mu_tensor *until_own_are_large(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_less(mu_reduce_min(mu_at(loop, 0), MU_ALL_AXES), number(1e6));
}

static mu_value *loop_to_a_number(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(to_a_number, reduce_and_grow,
                         mu_list(mu_value_at(arguments, 0), mu_of(mu_constant(MU_I32, 0)), MU_END), NULL);
}

static mu_value *loop_until_large(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(until_own_are_large, reduce_and_grow,
                         mu_list(mu_value_at(arguments, 0), mu_of(mu_constant(MU_I32, 0)), MU_END), NULL);
}

static void check_replicas(const char *what, mu_traceable *fn, const int64_t sizes[REPLICAS], float good, float bad,
                           const char *message)
{
    mu_strategy *native = mu_mirrored_strategy(.devices = processors), *xla = mu_mirrored_strategy(.devices = devices);
    mu_value *wanted = mu_run(native, mu_function_new(fn, NULL), parts(native, sizes, good));
    mu_value *seen = wanted ? mu_run(xla, mu_function_new(fn, NULL), parts(xla, sizes, good)) : NULL;
    if (!seen)
        fail_msg("%s: %s", what, mu_error_message());
    compare_leaves(what, mu_local_results(native, wanted), mu_local_results(xla, seen), 1e-6);
    expect_failure(what, mu_run(native, mu_function_new(fn, NULL), parts(native, sizes, bad)), message);
    expect_failure(what, mu_run(xla, mu_function_new(fn, NULL), parts(xla, sizes, bad)), message);
}

// Only the last replica has an invalid value.
static void test_replicas(void **state)
{
    (void)state;
    check_replicas("one program", sum_small, equal, 1, 7, "x is large (element 1");
    check_replicas("a loop to a number", loop_to_a_number, equal, 1, 22, "a replica runs away (element 0");
    assert_int_equal(calls.most_devices, REPLICAS);
    check_replicas("parts", sum_small, unequal, 1, 6, "x is large (element 1");
    expect_failure("a loop that only the check ends",
                   mu_run(mu_mirrored_strategy(.devices = devices), mu_function_new(loop_until_large, NULL),
                          parts(mu_mirrored_strategy(.devices = devices), equal, 1)),
                   "a replica runs away (element 0");
}

// The program has run to its end, so the variables that it has written are in doubt on every replica; a step in parts
// stops before that.
static void test_what_a_failed_check_leaves(void **state)
{
    (void)state;
    job j;
    mu_strategy *strategy = mu_mirrored_strategy(.devices = devices);
    open_job(strategy, &j, 0);
    mu_function *function = mu_function_new(sum_small, j.count);
    expect_failure("parts", mu_run(strategy, function, parts(strategy, unequal, 6)), "x is large");
    for (int r = 0; r < REPLICAS; r++)
        assert_true(count_of(&j, r) == 1);
    expect_failure("one program", mu_run(strategy, function, parts(strategy, equal, 7)), "x is large");
    for (int r = 0; r < REPLICAS; r++) {
        assert_null(mu__variable_component(j.count, r));
        assert_non_null(strstr(mu_error_take().message, "'count' was left in doubt"));
    }
    assert_int_equal(mu_variable_assign(j.count, number(5)), MU_OK);
    assert_non_null(mu_run(strategy, function, parts(strategy, equal, 0)));
    assert_true(count_of(&j, REPLICAS - 1) == 6);
}

#define CHECK_TEST(name) cmocka_unit_test_setup_teardown(name, start, exit_and_free_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK_TEST(test_one_device),
        CHECK_TEST(test_the_message_is_the_native_ones),
        CHECK_TEST(test_conditions_on_shapes),
        CHECK_TEST(test_conditions_on_shapes_of_all),
        CHECK_TEST(test_replicas),
        CHECK_TEST(test_what_a_failed_check_leaves),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
