// Control flow as regions of a device program: branches, loops, scans, maps, nests of these, their gradients, and
// variables that bodies write.
#include "skip.h"

#include "both.h"

#include <stdlib.h>

#define CLOSE 1e-6

static mu_value *numbers(double first, double second)
{
    const float row[] = {(float)first, (float)second, 3, -1}, table[] = {1, 2, 3, 4, -5, 6, 7, -8, 9, 1, 0, 2};
    return mu_list(mu_of(mu_tensor_new(MU_F32, 1, (int64_t[]){4}, row)),
                   mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){3, 4}, table)), MU_END);
}

static mu_tensor *scalar_like(const mu_tensor *like, double value) { return mu_constant(like->dtype, value); }

// f(x) and its gradient, as a list.
static mu_value *with_gradient(mu_tensor *(*f)(mu_tensor *x, mu_tensor *table), mu_value *arguments)
{
    mu_tensor *x = mu_identity(mu_at(arguments, 0)), *table = mu_identity(mu_at(arguments, 1));
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = f(x, table), *loss = mu_reduce_sum(mu_multiply(y, y), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, mu_list(mu_of(x), mu_of(table), MU_END));
    if (!gradients)
        return NULL;
    return mu_list(mu_of(y), mu_value_at(gradients, 0), mu_value_at(gradients, 1), MU_END);
}

#define WITH_GRADIENT(name)                                              \
    static mu_value *name##_and_gradient(mu_value *arguments, void *arg) \
    {                                                                    \
        (void)arg;                                                       \
        return with_gradient(name, arguments);                           \
    }

// ---- Branches -----------------------------------------------------------------------------------

static mu_value *doubled_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *table = mu_at(arguments, 1);
    return mu_of(mu_add(mu_reduce_sum(mu_multiply(table, x), 0), mu_sin(x)));
}

static mu_value *cubed(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_of(mu_multiply(mu_multiply(x, x), mu_exp(x)));
}

static mu_tensor *branching(mu_tensor *x, mu_tensor *table)
{
    mu_tensor *first = mu_gather(x, mu_constant(MU_I32, 0), 0, 0);
    mu_tensor *positive = mu_greater(first, scalar_like(x, 0));
    mu_value *taken = mu_cond(positive, doubled_rows, cubed, mu_list(mu_of(x), mu_of(table), MU_END), NULL);
    return taken ? mu_multiply(mu_value_tensor(taken), first) : NULL;
}
WITH_GRADIENT(branching)

static void test_branches(void **state)
{
    (void)state;
    check_both("the branch for true", branching_and_gradient, NULL, numbers(2, 1), CLOSE);
    check_both("the branch for false", branching_and_gradient, NULL, numbers(-2, 1), CLOSE);
}

static mu_value *plus_ten(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_at(arguments, 0), mu_constant(MU_F32, 10)));
}

static mu_value *choosing(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_body *const branches[] = {plus_ten, cubed, doubled_rows};
    mu_value *results[4];
    for (int i = 0; i < 4; i++) {
        mu_tensor *index = mu_cast(
            mu_add(mu_gather(mu_at(arguments, 0), mu_constant(MU_I32, 0), 0, 0), mu_constant(MU_F32, i)), MU_I32);
        results[i] = mu_switch_case(index, 3, branches, arguments, NULL);
    }
    return mu_list(results[0], results[1], results[2], results[3], MU_END);
}

static void test_a_choice_of_several(void **state)
{
    (void)state;
    check_both("switch_case", choosing, NULL, numbers(-1, 1), CLOSE);
}

// ---- Loops --------------------------------------------------------------------------------------

static mu_tensor *below_limit(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_less(mu_reduce_sum(mu_abs(mu_at(loop, 0)), MU_ALL_AXES), mu_constant(MU_F32, 50));
}

static mu_value *grown(mu_value *loop, void *arg)
{
    mu_tensor *x = mu_at(loop, 0), *table = arg; // captured
    return mu_list(mu_of(mu_add(mu_multiply(x, scalar_like(x, 1.5)), mu_tanh(mu_reduce_mean(table, 0)))),
                   mu_of(mu_add(mu_at(loop, 1), mu_constant(MU_I32, 1))), MU_END);
}

static mu_value *looped(mu_tensor *x, mu_tensor *table)
{
    return mu_while_loop(below_limit, grown, mu_list(mu_of(x), mu_of(mu_constant(MU_I32, 0)), MU_END), table,
                         .maximum_iterations = 20);
}

static mu_tensor *looping(mu_tensor *x, mu_tensor *table)
{
    mu_value *end = looped(x, table);
    return end ? mu_at(end, 0) : NULL;
}
WITH_GRADIENT(looping)

static mu_value *counting(mu_value *arguments, void *arg)
{
    (void)arg;
    return looped(mu_at(arguments, 0), mu_at(arguments, 1));
}

static void test_loops(void **state)
{
    (void)state;
    check_both("while_loop", counting, NULL, numbers(2, 1), CLOSE);
    check_both("no iteration", counting, NULL, numbers(200, 1), CLOSE);
    check_both("while_loop's gradient", looping_and_gradient, NULL, numbers(2, 1), 1e-5);
}

static mu_value *recurrence(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    return mu_of(mu_tanh(mu_add(mu_value_tensor(state), mu_value_tensor(element))));
}

static mu_tensor *scanning(mu_tensor *x, mu_tensor *table)
{
    mu_value *states = mu_scan(recurrence, mu_of(table), mu_of(x));
    mu_value *back = mu_scan(recurrence, mu_of(table), mu_of(x), .reverse = true);
    return states && back ? mu_subtract(mu_value_tensor(states), mu_square(mu_value_tensor(back))) : NULL;
}
WITH_GRADIENT(scanning)

static mu_value *sorted_and_scaled(mu_value *element, void *arg)
{
    mu_tensor *row = mu_value_tensor(element);
    return mu_of(mu_multiply(mu_sort(row, -1, false), arg));
}

static mu_tensor *mapping(mu_tensor *x, mu_tensor *table)
{
    mu_value *rows = mu_map_fn(sorted_and_scaled, mu_of(table), x);
    return rows ? mu_value_tensor(rows) : NULL;
}
WITH_GRADIENT(mapping)

static void test_scans_and_maps(void **state)
{
    (void)state;
    check_both("scan", scanning_and_gradient, NULL, numbers(0.5, 1), 1e-5);
    check_both("map_fn", mapping_and_gradient, NULL, numbers(0.5, 1), 1e-5);
    mu_value *nothing = mu_list(mu_value_at(numbers(0.5, 1), 0), mu_of(mu_zeros(MU_F32, 2, (int64_t[]){0, 4})), MU_END);
    check_both("scan of nothing", scanning_and_gradient, NULL, nothing, 0);
}

// ---- Nests --------------------------------------------------------------------------------------

static mu_value *inner_step(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_value_tensor(state), *row = mu_value_tensor(element);
    mu_tensor *positive = mu_greater(mu_reduce_sum(row, MU_ALL_AXES), mu_constant(MU_F32, 5));
    return mu_cond(positive, doubled_rows, plus_ten,
                   mu_list(mu_of(mu_tanh(x)), mu_of(mu_reshape(row, 2, (int64_t[]){1, 4})), MU_END), NULL);
}

static mu_value *outer_step(mu_value *loop, void *arg)
{
    mu_value *states = mu_scan(inner_step, mu_of(arg), mu_value_at(loop, 0));
    if (!states)
        return NULL;
    mu_tensor *last = mu_gather(mu_value_tensor(states), mu_constant(MU_I32, 2), 0, 0);
    return mu_list(mu_of(mu_tanh(last)), mu_of(mu_add(mu_at(loop, 1), mu_constant(MU_I32, 1))), MU_END);
}

static mu_tensor *three_times(mu_value *loop, void *arg)
{
    (void)arg;
    return mu_less(mu_at(loop, 1), mu_constant(MU_I32, 3));
}

static mu_tensor *nested(mu_tensor *x, mu_tensor *table)
{
    mu_value *end = mu_while_loop(three_times, outer_step, mu_list(mu_of(x), mu_of(mu_constant(MU_I32, 0)), MU_END),
                                  table, .maximum_iterations = 5);
    return end ? mu_at(end, 0) : NULL;
}
WITH_GRADIENT(nested)

static void test_nests(void **state)
{
    (void)state;
    check_both("a branch in a scan in a loop", nested_and_gradient, NULL, numbers(0.5, 1), 1e-5);
}

static mu_tensor *recomputing(mu_tensor *x, mu_tensor *table)
{
    mu_value *y = mu_recompute_grad(doubled_rows, mu_list(mu_of(x), mu_of(table), MU_END), NULL);
    return y ? mu_value_tensor(y) : NULL;
}
WITH_GRADIENT(recomputing)

static void test_calls(void **state)
{
    (void)state;
    check_both("recompute_grad", recomputing_and_gradient, NULL, numbers(0.5, 1), CLOSE);
}

// ---- Effects in bodies --------------------------------------------------------------------------

static mu_variable *counter, *generator;

static mu_value *count_and_draw(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *drawn = mu_stateless_random_uniform(mu_generator_next(generator), MU_F32, 1, (int64_t[]){4});
    mu_variable_assign_add(counter, mu_constant(MU_F32, 2));
    return mu_list(mu_of(mu_add(mu_at(loop, 0), drawn)), mu_of(mu_add(mu_at(loop, 1), mu_constant(MU_I32, 1))), MU_END);
}

static mu_value *with_effects(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *end = mu_while_loop(three_times, count_and_draw,
                                  mu_list(mu_value_at(arguments, 0), mu_of(mu_constant(MU_I32, 0)), MU_END), NULL);
    return end ? mu_list(mu_value_at(end, 0), mu_value_at(end, 1), mu_of(mu_variable_read(counter)), MU_END) : NULL;
}

static void test_bodies_write_variables(void **state)
{
    (void)state;
    float sums[2][4];
    for (int i = 0; i < 2; i++) {
        counter = mu_variable_new(mu_constant(MU_F32, 1), "counter");
        generator = mu_generator_new(7, "generator");
        mu_value *result = run_on(i ? "XLA_CPU:0" : "CPU:0", with_effects, NULL, numbers(0, 0));
        assert_true(mu_scalar(mu_at(result, 2)) == 7);
        assert_true(mu_scalar(mu_variable_read(counter)) == 7);
        memcpy(sums[i], mu_tensor_data(mu_at(result, 0)), sizeof sums[i]);
    }
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
}

// ---- Draws in bodies of a run that fails --------------------------------------------------------

static mu_value *draw(mu_value *x, void *arg)
{
    (void)arg;
    return mu_of(
        mu_add(mu_at(x, 0), mu_stateless_random_uniform(mu_generator_next(generator), MU_F32, 1, (int64_t[]){4})));
}

static mu_value *unchanged(mu_value *x, void *arg)
{
    (void)arg;
    return mu_of(mu_identity(mu_at(x, 0)));
}

static mu_value *draw_in_the_second_round(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *round = mu_at(loop, 1), *one = mu_constant(MU_I32, 1);
    mu_value *taken = mu_cond(mu_equal(round, one), draw, unchanged, mu_list(mu_value_at(loop, 0), MU_END), NULL);
    return taken ? mu_list(taken, mu_of(mu_add(round, one)), MU_END) : NULL;
}

static mu_value *draw_and_look_up(mu_value *arguments, void *index)
{
    (void)index;
    mu_value *end = mu_while_loop(three_times, draw_in_the_second_round,
                                  mu_list(mu_value_at(arguments, 0), mu_of(mu_constant(MU_I32, 0)), MU_END), NULL);
    return end ? mu_of(mu_gather(mu_at(end, 0), mu_at(arguments, 1), 0, 0)) : NULL;
}

// One more draw does no harm, so the generator is not in doubt.
static void test_a_failed_run_leaves_generators_whole(void **state)
{
    (void)state;
    double numbers[2][3] = {{0}};
    const float zeros[4] = {0};
    for (int i = 0; i < 2; i++) {
        mu_strategy *strategy = mu_one_device_strategy(i ? "XLA_CPU:0" : "CPU:0");
        mu_function *function = mu_function_new(draw_and_look_up, NULL);
        generator = mu_generator_new(7, "generator");
        for (int run = 0; run < 3; run++) {
            mu_tensor *index = mu_constant(MU_I32, run == 1 ? 4 : 2);
            mu_value *result =
                mu_run(strategy, function,
                       mu_list(mu_of(mu_tensor_new(MU_F32, 1, (int64_t[]){4}, zeros)), mu_of(index), MU_END));
            const mu_error error = mu_error_take();
            if (error.code != (run == 1 ? MU_INVALID_ARGUMENT : MU_OK))
                fail_msg("%s, run %d: %s", mu_strategy_name(strategy), run, error.message);
            numbers[i][run] = result ? mu_scalar(mu_value_tensor(result)) : 0;
        }
    }
    assert_memory_equal(numbers[0], numbers[1], sizeof numbers[0]);
    assert_true(numbers[0][0] != numbers[0][2]);
}

// ---- What cannot be -----------------------------------------------------------------------------

static mu_value *longer(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *const both[] = {mu_at(loop, 0), mu_at(loop, 0)};
    return mu_list(mu_of(mu_concat(2, both, 0)), mu_of(mu_add(mu_at(loop, 1), mu_constant(MU_I32, 1))), MU_END);
}

static mu_value *growing(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(three_times, longer, mu_list(mu_value_at(arguments, 0), mu_of(mu_constant(MU_I32, 0)), MU_END),
                         NULL);
}

static mu_value *doubled(mu_value *loop, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(loop, 0);
    return mu_list(mu_multiply(x, x), mu_add(mu_at(loop, 1), mu_constant(MU_I32, 1)), MU_END);
}

static mu_value *slope_of_a_loop(mu_value *arguments, void *arg)
{
    const int *most = arg;
    mu_tape *tape = mu_tape_open();
    mu_value *last = mu_while_loop(three_times, doubled, mu_list(mu_at(arguments, 0), mu_constant(MU_I32, 0), MU_END),
                                   NULL, .maximum_iterations = *most);
    return mu_gradients(tape, mu_reduce_sum(mu_at(last, 0), MU_ALL_AXES), arguments);
}

static void test_shapes_that_change_are_refused(void **state)
{
    (void)state;
    int none = 0, enough = 4;
    check_refused("op while_loop", "constant shapes", growing, NULL, numbers(1, 1));
    check_refused("op while_loop", "give a loop whose gradient is taken .maximum_iterations", slope_of_a_loop, &none,
                  numbers(1, 1));
    check_both("a loop that follows the advice", slope_of_a_loop, &enough, numbers(1, 1), 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_a_choice_of_several),
        cmocka_unit_test(test_loops),
        cmocka_unit_test(test_scans_and_maps),
        cmocka_unit_test(test_nests),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_bodies_write_variables),
        cmocka_unit_test(test_a_failed_run_leaves_generators_whole),
        cmocka_unit_test(test_shapes_that_change_are_refused),
    };
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
