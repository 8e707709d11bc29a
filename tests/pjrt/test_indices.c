// Wrong indices, labels, divisors and matrices fail device programs with the native engine's error: in every op whose
// plain loops can fail, in branches and loops, on one device and on several replicas, in one program and in parts, in
// training and eagerly. Values that are known when the program is made are checked then, at no cost to the program.
#include "counted_calls.h"
#include "skip.h"

#include "distribute/distribute.h"
#include "ops/core/lower.h"

#include <muster.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { N = 4, REPLICAS = 2 };

static const char *const processors[] = {"CPU:0", "CPU:1", NULL};
static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", NULL};

// ---- The plugin's calls -------------------------------------------------------------------------

static int start(void **state) { return start_counting(state, REPLICAS, ", tensor<i64>) {"); }

// ---- Every op that can fail ---------------------------------------------------------------------

static mu_tensor *given(mu_value *arguments) { return mu_at(arguments, 0); }
static mu_tensor *shaped(mu_tensor *x, int64_t rows, int64_t columns)
{
    return mu_reshape(x, 2, (int64_t[]){rows, columns});
}
static mu_tensor *table(int64_t rows, int64_t columns) { return mu_ones(MU_F32, 2, (int64_t[]){rows, columns}); }
static mu_tensor *column(mu_value *arguments) { return shaped(given(arguments), N, 1); }

#define PROGRAM(name, expression)                         \
    static mu_value *name(mu_value *arguments, void *arg) \
    {                                                     \
        (void)arg;                                        \
        return mu_of(expression);                         \
    }

PROGRAM(rows, mu_gather(table(5, 3), given(arguments), 0, 0))
PROGRAM(columns, mu_gather(mu_ones(MU_F32, 3, (int64_t[]){2, 5, 3}), given(arguments), 1, 0))
PROGRAM(batches, mu_batch_gather(table(2, 5), shaped(given(arguments), 2, 2)))
PROGRAM(no_rows, mu_gather(table(0, 3), given(arguments), 0, 0))
PROGRAM(points, mu_gather_nd(table(9, 3), shaped(given(arguments), 2, 2)))
PROGRAM(updates, mu_tensor_scatter_update(table(5, 2), column(arguments), table(N, 2)))
PROGRAM(sums, mu_tensor_scatter_add(table(5, 2), column(arguments), table(N, 2)))
PROGRAM(lowest, mu_tensor_scatter_min(table(5, 2), column(arguments), table(N, 2)))
PROGRAM(scattered, mu_scatter_nd(column(arguments), table(N, 2), 2, (int64_t[]){5, 2}))
PROGRAM(segments, mu_unsorted_segment_sum(table(N, 2), given(arguments), 5))
PROGRAM(largest, mu_unsorted_segment_max(table(N, 2), given(arguments), 5))
PROGRAM(losses, mu_nn_sparse_softmax_cross_entropy(given(arguments), table(N, 5)))
PROGRAM(quotients, mu_floor_divide(mu_cast(mu_ones(MU_I32, 1, (int64_t[]){N}), mu_tensor_dtype(given(arguments))),
                                   given(arguments)))
PROGRAM(remainders, mu_mod(mu_constant(mu_tensor_dtype(given(arguments)), 7), given(arguments)))
PROGRAM(powers, mu_pow(mu_constant(mu_tensor_dtype(given(arguments)), 2), given(arguments)))
PROGRAM(factors, mu_cholesky(mu_cast(mu_reshape(given(arguments), 3, (int64_t[]){N, 1, 1}), MU_F64)))

// Sums rows to where the gathered ones came from: the gradient of a gather has indices of its own.
static mu_value *gradient_of_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = table(5, 3);
    mu_tape *tape = mu_tape_open();
    mu_tensor *sum = mu_reduce_sum(mu_gather(x, given(arguments), 0, 0), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, sum, mu_list(mu_of(x), MU_END));
    return gradients ? mu_of(mu_convert_to_tensor(mu_value_at(gradients, 0))) : NULL;
}

static const struct {
    mu_traceable *fn;
    const char *op;
    double good[N], bad[N];
    const char *message; // the text after the op's name
} programs[] = {
    {rows, "gather", {0, 4, 2, 2}, {0, 4, 5, -1}, ": index 5 (element 2 of the indices) is outside 0 to 4"},
    {rows, "gather", {0, 4, 2, 2}, {0, 4, -1, 9}, ": index -1 (element 2 of the indices) is outside 0 to 4"},
    {columns,
     "gather",
     {0, 4, 2, 2},
     {0, 4, 2, 2147483647},
     ": index 2147483647 (element 3 of the indices) is outside 0 to 4"},
    {batches, "gather", {0, 4, 2, 2}, {0, 4, 5, 0}, ": index 5 (element 2 of the indices) is outside 0 to 4"},
    {no_rows, "gather", {-1}, {0, 0, 0, 0}, ": index 0 (element 0 of the indices) is outside 0 to -1"},
    {gradient_of_rows, "gather", {0, 4, 2, 2}, {0, 4, 7, 0}, ": index 7 (element 2 of the indices) is outside 0 to 4"},
    {points, "gather_nd", {8, 2, 0, 0}, {8, 2, 2, 8}, ": index 8 (element 3 of the indices) is outside 0 to 2"},
    {updates, "tensor_scatter_update", {0, 4, 2, 2}, {0, 4, 5, 2}, ": index 5 (element 2 of the indices) is outside"},
    {sums, "tensor_scatter_add", {0, 4, 2, 2}, {0, 4, -5, 2}, ": index -5 (element 2 of the indices) is outside"},
    {lowest, "tensor_scatter_min", {0, 4, 2, 2}, {6, 4, 5, 2}, ": index 6 (element 0 of the indices) is outside"},
    {scattered, "tensor_scatter_add", {0, 4, 2, 2}, {0, 4, 5, 2}, ": index 5 (element 2 of the indices) is outside"},
    {segments, "unsorted_segment_sum", {0, -4, 2, 2}, {0, -9, 5, 2}, ": index 5 (element 2 of the indices) is outside"},
    {largest, "unsorted_segment_max", {0, -4, 2, 2}, {0, -9, 7, 2}, ": index 7 (element 2 of the indices) is outside"},
    {losses,
     "sparse_softmax_cross_entropy",
     {0, 4, 2, 2},
     {0, 4, 5, 2},
     ": label 5 in row 2 is outside the valid range 0 to 4 (the logits have 5 classes)"},
    {quotients, "floor_divide", {1, 4, -2, 2}, {1, 4, 0, 0}, ": integer division by 0 (element 2 of the divisor)"},
    {remainders, "mod", {1, 4, -2, 2}, {1, 0, 3, 0}, ": integer division by 0 (element 1 of the divisor)"},
    {powers, "pow", {1, 4, 0, 2}, {1, 4, -2, 2}, ": an integer to the power -2 (element 2) is not an integer"},
    {factors, "cholesky", {1, 4, 2, 2}, {1, 4, 2, -1}, ": matrix 3 of 4 is not positive definite"},
};

static mu_value *integers(mu_dtype dtype, const double data[N])
{
    mu_tensor *tensor = mu_tensor_new(dtype, 1, (int64_t[]){N}, NULL);
    for (int i = 0; tensor && i < N; i++)
        mu__write_element(dtype, mu__host_write(tensor), i, data[i]);
    return mu_list(mu_of(tensor), MU_END);
}

static mu_value *run_on(const char *device, mu_traceable *fn, mu_dtype dtype, const double data[N])
{
    return mu_run(mu_one_device_strategy(device), mu_function_new(fn, NULL), integers(dtype, data));
}

static void expect_failure(const char *what, mu_value *result, const char *op, const char *message)
{
    if (result)
        fail_msg("%s: no error; wanted '%s%s'", what, op, message);
    const mu_error error = mu_error_take();
    const char *at = strstr(error.message, message), *name = strstr(error.message, op);
    if (error.code != MU_INVALID_ARGUMENT || !at || !name || name > at)
        fail_msg("%s: %s: %s; wanted '%s%s'", what, mu_status_name(error.code), error.message, op, message);
}

static void test_each_op(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_I32, MU_I64};
    for (size_t i = 0; i < MU_COUNT(programs); i++)
        for (size_t d = 0; d < MU_COUNT(dtypes); d++) {
            const char *op = programs[i].op;
            const bool fails_always = programs[i].fn == no_rows;
            if (!fails_always && !run_on("XLA_CPU:0", programs[i].fn, dtypes[d], programs[i].good))
                fail_msg("%s: %s", op, mu_error_message());
            expect_failure("CPU", run_on("CPU:0", programs[i].fn, dtypes[d], programs[i].bad), op, programs[i].message);
            expect_failure("XLA", run_on("XLA_CPU:0", programs[i].fn, dtypes[d], programs[i].bad), op,
                           programs[i].message);
        }
}

static void test_labels_of_other_types(void **state)
{
    (void)state;
    static const double good[N] = {0, 4, 2, 2}, bad[N] = {0, 4, 2, 200}, low[N] = {-1, 0, 0, 0};
    assert_non_null(run_on("XLA_CPU:0", losses, MU_U8, good));
    expect_failure("u8", run_on("XLA_CPU:0", losses, MU_U8, bad), "cross_entropy", ": label 200 in row 3");
    expect_failure("i8", run_on("XLA_CPU:0", losses, MU_I8, low), "cross_entropy", ": label -1 in row 0");
}

// The position takes so many bits that not all bits of the index are left.
PROGRAM(many_rows, mu_gather(table(5, 1), given(arguments), 0, 0))

static void test_many_indices(void **state)
{
    (void)state;
    const int64_t n = 70000;
    mu_tensor *indices = mu_zeros(MU_I32, 1, &n);
    mu_function *function = mu_function_new(many_rows, NULL);
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    int32_t *data = mu__host_write(indices);
    data[n - 1] = 123456;
    expect_failure("fits", mu_run(strategy, function, mu_list(mu_of(indices), MU_END)), "gather",
                   ": index 123456 (element 69999 of the indices)");
    data[n - 2] = INT32_MIN;
    expect_failure("does not fit", mu_run(strategy, function, mu_list(mu_of(indices), MU_END)), "gather",
                   "(element 69998 of the indices) is outside 0 to 4; the number may be even further from 0");
}

// With 32,768 positions every int32 just fits, so the extreme values are exact.
static void test_the_furthest_indices(void **state)
{
    (void)state;
    static const double far[N] = {1e18, 0, 0, 0};
    static const struct {
        int32_t index;
        const char *message;
    } furthest[] = {{INT32_MAX, ": index 2147483647 (element 32767 of"},
                    {INT32_MIN, ": index -2147483648 (element 32767 of"}};
    const int64_t n = 32768;
    mu_function *function = mu_function_new(many_rows, NULL);
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    for (size_t i = 0; i < MU_COUNT(furthest); i++) {
        mu_tensor *indices = mu_zeros(MU_I32, 1, &n);
        ((int32_t *)mu__host_write(indices))[n - 1] = furthest[i].index;
        assert_null(mu_run(strategy, function, mu_list(mu_of(indices), MU_END)));
        const mu_error error = mu_error_take();
        assert_non_null(strstr(error.message, furthest[i].message));
        assert_null(strstr(error.message, "even further"));
    }
    expect_failure("i64", run_on("XLA_CPU:0", rows, MU_I64, far), "gather", "; the number may be even further from 0");
}

// ---- What is known when the program is written --------------------------------------------------

static mu_value *take_first(mu_value *arguments, void *arg)
{
    const double *index = arg;
    return mu_of(mu_gather(given(arguments), mu_constant(MU_I32, *index), 0, 0));
}

// The last row, by the number of rows.
PROGRAM(last_row,
        mu_gather(given(arguments), mu_subtract(mu_dim_size(given(arguments), 0), mu_constant(MU_I64, 1)), 0, 0))

static void test_known_indices(void **state)
{
    (void)state;
    static const double data[N] = {5, 6, 7, 8};
    double index = 3;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    mu_value *last = mu_run(strategy, mu_function_new(take_first, &index), integers(MU_I32, data));
    assert_true(last && mu_scalar(last) == 8);
    last = mu_run(strategy, mu_function_new(last_row, NULL), integers(MU_I32, data));
    assert_true(last && mu_scalar(last) == 8);
    assert_int_equal(calls.compiled, 2);
    assert_int_equal(calls.containing, 0);
    index = 4;
    expect_failure("a constant", mu_run(strategy, mu_function_new(take_first, &index), integers(MU_I32, data)),
                   "gather", ": index 4 (element 0 of the indices) is outside 0 to 3");
    assert_int_equal(calls.compiled, 2);
    assert_int_equal(calls.launched, 2);
}

// ---- Branches and loops -------------------------------------------------------------------------

static mu_value *take_ninth(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_gather(given(arguments), mu_constant(MU_I32, 9), 0, 0)), MU_END);
}

static mu_value *take_sum(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_reduce_sum(given(arguments), MU_ALL_AXES)), MU_END);
}

static mu_value *in_a_branch(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *sum = mu_reduce_sum(given(arguments), MU_ALL_AXES);
    return mu_cond(mu_greater(sum, mu_constant(MU_I32, 20)), take_ninth, take_sum, arguments, NULL);
}

// A branch that is not taken does not fail, even if it is known to be wrong.
static void test_branches(void **state)
{
    (void)state;
    static const double small[N] = {1, 2, 3, 4}, large[N] = {10, 20, 30, 40};
    mu_value *sum = run_on("XLA_CPU:0", in_a_branch, MU_I32, small);
    if (!sum)
        fail_msg("%s", mu_error_message());
    assert_true(mu_scalar(mu_value_at(sum, 0)) == 10);
    expect_failure("CPU", run_on("CPU:0", in_a_branch, MU_I32, large), "gather", ": index 9 (element 0 of");
    expect_failure("XLA", run_on("XLA_CPU:0", in_a_branch, MU_I32, large), "gather", ": index 9 (element 0 of");
}

static mu_tensor *is_not_the_end(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_greater_equal(mu_at(loop, 1), mu_constant(MU_I32, 0));
}

static mu_value *go_on(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_list(mu_value_at(loop, 0), mu_of(mu_gather(mu_at(loop, 0), mu_at(loop, 1), 0, 0)), MU_END);
}

// Follows a chain of indices to a negative one.
static mu_value *follow(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(is_not_the_end, go_on,
                         mu_list(mu_value_at(arguments, 0), mu_of(mu_constant(MU_I32, 0)), MU_END), NULL);
}

// Indices that were only clamped would turn this chain into a circle.
static void test_a_loop_ends(void **state)
{
    (void)state;
    static const double chain[N] = {2, 0, 3, -1}, broken[N] = {2, 0, 3, 9};
    assert_non_null(run_on("XLA_CPU:0", follow, MU_I32, chain));
    expect_failure("CPU", run_on("CPU:0", follow, MU_I32, broken), "gather", ": index 9 (element 0 of");
    expect_failure("XLA", run_on("XLA_CPU:0", follow, MU_I32, broken), "gather", ": index 9 (element 0 of");
}

static mu_tensor *is_below_a_hundred(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_less(mu_at(loop, 0), mu_constant(MU_I64, 100));
}

static mu_value *one_step(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_add(mu_at(loop, 0), mu_at(loop, 1))), mu_value_at(loop, 1), MU_END);
}

static mu_value *count_up(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(is_below_a_hundred, one_step,
                         mu_list(mu_of(mu_constant(MU_I64, 0)), mu_value_at(arguments, 0), MU_END), NULL);
}

// A check before the loop has found a wrong step: XLA divides by 0 to -1. The loop itself has no check.
static mu_value *count_by_a_quotient(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *step = mu_floor_divide(mu_constant(MU_I64, 8), mu_reduce_sum(given(arguments), MU_ALL_AXES));
    return count_up(mu_list(mu_of(step), MU_END), NULL);
}

static mu_value *count_in_a_round(mu_value *state, mu_value *step, void *arg)
{
    (void)state;
    return mu_value_at(count_up(mu_list(step, MU_END), arg), 0);
}

// The same in each iteration of a loop that the number of slices ends.
static mu_value *count_in_rows(mu_value *arguments, void *arg)
{
    mu_tensor *steps = mu_floor_divide(mu_fill(MU_I64, 1, (int64_t[]){N}, 8), given(arguments));
    return mu_scan(count_in_a_round, mu_of(steps), mu_of(mu_constant(MU_I64, 0)), .arg = arg);
}

static void test_a_loop_behind_a_failure_ends(void **state)
{
    (void)state;
    static const double good[N] = {1, 1, 1, 1}, bad[N] = {1, -1, 0, 0};
    static mu_traceable *const counts[] = {count_by_a_quotient, count_in_rows};
    for (size_t i = 0; i < MU_COUNT(counts); i++) {
        if (!run_on("XLA_CPU:0", counts[i], MU_I64, good))
            fail_msg("%s", mu_error_message());
        expect_failure("CPU", run_on("CPU:0", counts[i], MU_I64, bad), "floor_divide", ": integer division by 0");
        expect_failure("XLA", run_on("XLA_CPU:0", counts[i], MU_I64, bad), "floor_divide", ": integer division by 0");
    }
}

// ---- Replicas -----------------------------------------------------------------------------------

static mu_value *words_of(mu_strategy *strategy, const int64_t sizes[REPLICAS], int32_t last)
{
    mu_value *values[REPLICAS];
    int32_t data[8] = {0, 1, 2, 3, 0, 1, 2, 3};
    for (int r = 0; r < REPLICAS; r++) {
        data[sizes[r] - 1] = r == REPLICAS - 1 ? last : 0;
        values[r] = mu_of(mu_tensor_new(MU_I32, 1, &sizes[r], data));
    }
    return mu_list(mu_per_replica_of(strategy, REPLICAS, values), MU_END);
}

static mu_value *sum_of_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *sum = mu_reduce_sum(mu_gather(table(4, 2), given(arguments), 0, 0), MU_ALL_AXES);
    return mu_of(mu_all_reduce(MU_SUM, sum));
}

static void test_replicas(void **state)
{
    (void)state;
    static const int64_t sizes[][REPLICAS] = {{3, 3}, {4, 3}};
    mu_strategy *native = mu_mirrored_strategy(.devices = processors), *xla = mu_mirrored_strategy(.devices = devices);
    mu_function *on_native = mu_function_new(sum_of_rows, NULL), *on_xla = mu_function_new(sum_of_rows, NULL);
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        calls.most_devices = 0;
        if (!mu_run(xla, on_xla, words_of(xla, sizes[i], 3)))
            fail_msg("%s", mu_error_message());
        assert_int_equal(calls.most_devices, i == 0 ? REPLICAS : 1);
        expect_failure("CPU", mu_run(native, on_native, words_of(native, sizes[i], 4)), "gather",
                       ": index 4 (element 2 of the indices) is outside 0 to 3");
        expect_failure("XLA", mu_run(xla, on_xla, words_of(xla, sizes[i], 4)), "gather",
                       ": index 4 (element 2 of the indices) is outside 0 to 3");
    }
}

static mu_tensor *is_below_three(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_less(mu_at(loop, 0), mu_constant(MU_I32, 3));
}

static mu_value *add_looked_up(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *sum = mu_reduce_sum(mu_gather(table(4, 2), mu_at(loop, 2), 0, 0), MU_ALL_AXES);
    return mu_list(mu_of(mu_add(mu_at(loop, 0), mu_constant(MU_I32, 1))), mu_of(mu_add(mu_at(loop, 1), sum)),
                   mu_value_at(loop, 2), MU_END);
}

static mu_value *reduced(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_all_reduce(MU_SUM, mu_at(arguments, 0))), MU_END);
}

static mu_value *as_given(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

// A loop without a collective ends early only on the replica with the wrong word; its count then decides a branch with
// a collective.
static mu_value *reduce_behind_a_loop(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *end = mu_while_loop(
        is_below_three, add_looked_up,
        mu_list(mu_of(mu_constant(MU_I32, 0)), mu_of(mu_constant(MU_F32, 0)), mu_value_at(arguments, 0), MU_END), NULL);
    return mu_cond(mu_equal(mu_at(end, 0), mu_constant(MU_I32, 3)), reduced, as_given,
                   mu_list(mu_value_at(end, 1), MU_END), NULL);
}

static void test_a_collective_behind_a_loop(void **state)
{
    (void)state;
    static const int64_t sizes[REPLICAS] = {3, 3};
    mu_strategy *xla = mu_mirrored_strategy(.devices = devices);
    mu_function *function = mu_function_new(reduce_behind_a_loop, NULL);
    if (!mu_run(xla, function, words_of(xla, sizes, 3)))
        fail_msg("%s", mu_error_message());
    assert_int_equal(calls.most_devices, REPLICAS);
    expect_failure("XLA", mu_run(xla, function, words_of(xla, sizes, 4)), "gather",
                   ": index 4 (element 2 of the indices) is outside 0 to 3");
}

// ---- Training -----------------------------------------------------------------------------------

static mu_dataset *words_and_labels(int32_t word, int32_t label, int64_t batch)
{
    int32_t words[8][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, labels[8] = {0, 1, 0, 1};
    words[7][1] = word;
    labels[6] = label;
    mu_value *all = mu_list(mu_of(mu_tensor_new(MU_I32, 2, (int64_t[]){8, 2}, words)),
                            mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){8}, labels)), MU_END);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(all), batch, .drop_remainder = true);
}

static mu_history *fit_batches(mu_model *model, int32_t word, int32_t label, int64_t batch)
{
    return mu_fit(model, words_and_labels(word, label, batch), .epochs = 1, .verbose = MU_VERBOSE_SILENT);
}

static mu_history *fit(mu_model *model, int32_t word, int32_t label) { return fit_batches(model, word, label, 8); }

static void expect_refused(const char *what, const mu_history *history, const char *message)
{
    const mu_error error = mu_error_take();
    if (history || error.code != MU_INVALID_ARGUMENT || !strstr(error.message, message))
        fail_msg("%s: %s: %s; wanted '%s'", what, mu_status_name(error.code), error.message, message);
}

// A word that is not in the vocabulary ends training with the layer's name, instead of training another word; so does a
// label of a class that does not exist, instead of giving losses that are NaN.
static void train_on(mu_strategy *strategy)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        mu_model *model = NULL;
        MU_SCOPE(strategy) {
            model = mu_sequential(mu_embedding(4, 3, .name = "words"), mu_flatten(), mu_dense(2));
            mu_compile(model, .optimizer = mu_adam(),
                       .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
        }
        if (!fit(model, 3, 1))
            fail_msg("%s", mu_error_message());
        expect_refused(mu_strategy_name(strategy), wrong == 0 ? fit(model, 4, 1) : fit(model, 3, 2),
                       wrong == 0 ? "gather: index 4" : "label 2 in row");
    }
}

static void test_training(void **state)
{
    (void)state;
    train_on(mu_one_device_strategy("CPU:0"));
    train_on(mu_one_device_strategy("XLA_CPU:0"));
    train_on(mu_mirrored_strategy(.devices = devices));
}

// The weights can be loaded again; the state that dropout draws its seeds from was never in doubt. Of 7 rows two
// replicas have unequal parts. Two steps per execution are a loop on the device.
static void train_on_after_a_failure(mu_strategy *strategy, int64_t batch, int64_t steps)
{
    static const char *const path = "test_indices.safetensors";
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_embedding(4, 3), mu_flatten(), mu_dropout(.5), mu_dense(2));
        mu_compile(model, .optimizer = mu_sgd(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .steps_per_execution = steps);
    }
    if (!fit_batches(model, 3, 1, batch) || mu_save_weights(model, path) != MU_OK)
        fail_msg("%s", mu_error_message());
    expect_refused(mu_strategy_name(strategy), fit_batches(model, 3, 2, batch), "label 2 in row");
    MU_SCOPE(strategy) {
        assert_int_equal(mu_load_weights(model, path), MU_OK);
        mu_compile(model, .optimizer = mu_sgd(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .steps_per_execution = steps);
    }
    if (!fit_batches(model, 3, 1, batch))
        fail_msg("%s, batches of %d: %s", mu_strategy_name(strategy), (int)batch, mu_error_message());
    remove(path);
}

static void test_training_after_a_failure(void **state)
{
    (void)state;
    train_on_after_a_failure(mu_one_device_strategy("CPU:0"), 8, 1);
    train_on_after_a_failure(mu_one_device_strategy("XLA_CPU:0"), 8, 1);
    train_on_after_a_failure(mu_one_device_strategy("XLA_CPU:0"), 4, 2);
    train_on_after_a_failure(mu_mirrored_strategy(.devices = devices), 8, 1);
    train_on_after_a_failure(mu_mirrored_strategy(.devices = devices), 7, 1);
}

// ---- Updates of rows ----------------------------------------------------------------------------

static mu_value *add_rows(mu_value *arguments, void *arg)
{
    mu_variable_scatter_add(arg, given(arguments), table(N, 2));
    return mu_of(mu_constant(MU_F32, 0));
}

// Eagerly the variable keeps its value. A program has taken over its memory, so there it is in doubt.
static void test_rows_of_a_variable(void **state)
{
    (void)state;
    static const double good[N] = {0, 1, 2, 3}, bad[N] = {0, 1, 4, 3};
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    mu_variable *rows_of = NULL;
    MU_SCOPE(strategy) {
        rows_of = mu_variable_new(.initial_value = table(4, 2), .name = "rows");
        const mu_status status = mu_variable_scatter_add(rows_of, given(integers(MU_I32, bad)), table(N, 2));
        assert_int_equal(status, MU_INVALID_ARGUMENT);
        expect_failure("eager", NULL, "scatter", ": index 4 (element 2), but the variable has 4 rows");
        assert_true(mu_scalar(mu_reduce_sum(mu_variable_read(rows_of), MU_ALL_AXES)) == 8);
    }
    mu_function *function = mu_function_new(add_rows, rows_of);
    assert_non_null(mu_run(strategy, function, integers(MU_I32, good)));
    expect_failure("traced", mu_run(strategy, function, integers(MU_I32, bad)), "scatter",
                   ": index 4 (element 2), but the variable has 4 rows");
    assert_null(mu_variable_read(rows_of));
    assert_non_null(strstr(mu_error_take().message, "'rows' was left in doubt"));
}

#define INDEX_TEST(name) cmocka_unit_test_setup_teardown(name, start, exit_and_free_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        INDEX_TEST(test_each_op),
        INDEX_TEST(test_labels_of_other_types),
        INDEX_TEST(test_many_indices),
        INDEX_TEST(test_known_indices),
        INDEX_TEST(test_branches),
        INDEX_TEST(test_a_loop_ends),
        INDEX_TEST(test_replicas),
        INDEX_TEST(test_training),
        INDEX_TEST(test_rows_of_a_variable),
        INDEX_TEST(test_the_furthest_indices),
        INDEX_TEST(test_a_loop_behind_a_failure_ends),
        INDEX_TEST(test_a_collective_behind_a_loop),
        INDEX_TEST(test_training_after_a_failure),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
