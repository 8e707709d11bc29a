// Control flow: branches, switches, loops and scans give the same eagerly and traced, with effects in order.
#include "control_test.h"

static mu_variable *counter;

// ---- Branches -----------------------------------------------------------------------------------

static mu_value *doubled(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(mu_add(x, x), mu_square(x), MU_END);
}

static mu_value *shifted(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *y = mu_at(arguments, 1);
    return mu_list(mu_add(x, y), mu_neg(mu_multiply(x, y)), MU_END);
}

static mu_value *pick(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_value *picked =
        mu_cond(mu_greater(mu_reduce_sum(x, MU_ALL_AXES), mu_constant(MU_F64, 0)), doubled, shifted, arguments, arg);
    return mu_list(mu_at(picked, 1), mu_exp(mu_at(picked, 0)), MU_END);
}

static void branches_are_picked(void **state)
{
    (void)state;
    mu_tensor *y = vector(3, (double[]){.5, .25, 2});
    mu_value *up = mu_list(vector(3, (double[]){1, 2, -1}), y, MU_END);
    mu_value *down = mu_list(vector(3, (double[]){-1, 2, -3}), y, MU_END);
    assert_near(doubles(mu_at(both_ways(pick, NULL, up, 1e-14), 0)), (double[]){1, 4, 1}, 3, 1e-14);
    assert_near(doubles(mu_at(both_ways(pick, NULL, down, 1e-14), 0)), (double[]){.5, -.5, 6}, 3, 1e-14);
}

static mu_value *count_up(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_add(counter, mu_at(arguments, 0));
    return mu_list(mu_variable_read(counter), MU_END);
}

static mu_value *count_down(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *before = mu_variable_read(counter);
    mu_variable_assign_sub(counter, mu_at(arguments, 0));
    return mu_list(before, MU_END);
}

static mu_value *count(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *before = mu_variable_read(counter);
    mu_value *counted = mu_cond(mu_greater(x, mu_constant(MU_F64, 5)), count_up, count_down, arguments, arg);
    return mu_list(before, mu_at(counted, 0), mu_variable_read(counter), MU_END);
}

static void branches_have_effects(void **state)
{
    (void)state;
    counter = mu_variable_new(mu_constant(MU_F64, 100), "counter");
    mu_function *function = mu_function_new(count, NULL);
    mu_value *seen = mu_run(NULL, function, mu_list(mu_constant(MU_F64, 7), MU_END));
    assert_true(mu_scalar(mu_at(seen, 0)) == 100 && mu_scalar(mu_at(seen, 1)) == 107 &&
                mu_scalar(mu_at(seen, 2)) == 107);
    seen = mu_run(NULL, function, mu_list(mu_constant(MU_F64, 3), MU_END));
    assert_true(mu_scalar(mu_at(seen, 0)) == 107 && mu_scalar(mu_at(seen, 1)) == 107 &&
                mu_scalar(mu_at(seen, 2)) == 104);
    assert_int_equal(mu_function_trace_count(function), 1);
}

static mu_value *times(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 1);
    return mu_of(mu_multiply(x, mu_constant(MU_F64, *(double *)arg)));
}

static mu_value *plus(mu_value *arguments, void *arg)
{
    return mu_of(mu_add(mu_at(arguments, 1), mu_constant(MU_F64, *(double *)arg)));
}

static mu_value *minus(mu_value *arguments, void *arg)
{
    return mu_of(mu_subtract(mu_at(arguments, 1), mu_constant(MU_F64, *(double *)arg)));
}

static mu_value *choose(mu_value *arguments, void *arg)
{
    return mu_switch_case(mu_at(arguments, 0), 3, (mu_body *[]){times, plus, minus}, arguments, arg);
}

static void switches_take_the_last_outside(void **state)
{
    (void)state;
    double ten = 10;
    const double wanted[] = {-7, 30, 13, -7, -7};
    for (int i = -1; i <= 3; i++) {
        mu_value *arguments = mu_list(mu_constant(MU_I32, i), mu_constant(MU_F64, 3), MU_END);
        assert_true(mu_scalar(both_ways(choose, &ten, arguments, 0)) == wanted[i + 1]);
    }
}

// ---- Loops --------------------------------------------------------------------------------------

static mu_tensor *below(mu_value *vars, void *arg)
{
    return mu_less(mu_at(vars, 0), arg ? arg : mu_constant(MU_F64, 100));
}

static mu_value *step(mu_value *vars, void *arg)
{
    (void)arg;
    mu_tensor *a = mu_at(vars, 0), *b = mu_at(vars, 1);
    return mu_list(mu_add(a, mu_reduce_sum(b, MU_ALL_AXES)), mu_add(b, mu_constant(MU_F64, 1)), MU_END);
}

static mu_value *repeat_few(mu_value *arguments, void *arg)
{
    return mu_while_loop(below, step, arguments, NULL, .maximum_iterations = *(int *)arg);
}

static void loops_repeat(void **state)
{
    (void)state;
    int few = 3, none = 1000;
    mu_value *vars = mu_list(mu_constant(MU_F64, 0), vector(4, (double[]){1, 2, 3, 4}), MU_END);
    mu_value *seen = both_ways(repeat_few, &few, vars, 1e-15);
    assert_true(mu_scalar(mu_at(seen, 0)) == 10 + 14 + 18);
    seen = both_ways(repeat_few, &none, vars, 1e-15);
    assert_true(mu_scalar(mu_at(seen, 0)) >= 100);
    mu_value *done = mu_list(mu_constant(MU_F64, 1000), vector(4, (double[]){1, 2, 3, 4}), MU_END);
    seen = both_ways(repeat_few, &none, done, 0);
    assert_true(mu_scalar(mu_at(seen, 0)) == 1000);
}

static mu_value *grow(mu_value *vars, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(vars, 1);
    return mu_list(mu_add(mu_at(vars, 0), mu_constant(MU_F64, 30)), mu_concat(2, (mu_tensor *[]){x, mu_neg(x)}, 0),
                   MU_END);
}

static mu_value *grow_all(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *vars = mu_while_loop(below, grow, arguments, NULL);
    return mu_list(mu_at(vars, 1), mu_reduce_sum(mu_square(mu_at(vars, 1)), MU_ALL_AXES), MU_END);
}

static void shapes_may_change(void **state)
{
    (void)state;
    mu_value *vars = mu_list(mu_constant(MU_F64, 0), vector(2, (double[]){1, 2}), MU_END);
    mu_value *seen = both_ways(grow_all, NULL, vars, 1e-15);
    assert_int_equal(mu_tensor_dim(mu_at(seen, 0), 0), 32);
    assert_true(mu_scalar(mu_at(seen, 1)) == 16 * 5);
}

static mu_value *draw_up(mu_value *vars, void *arg)
{
    (void)arg;
    mu_variable_assign_add(counter, mu_constant(MU_F64, 2));
    return mu_list(mu_add(mu_at(vars, 0), mu_variable_read(counter)), MU_END);
}

static mu_value *draw(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *before = mu_variable_read(counter);
    mu_value *vars = mu_while_loop(below, draw_up, arguments, NULL);
    return mu_list(before, mu_at(vars, 0), mu_variable_read(counter), MU_END);
}

static void loops_have_effects(void **state)
{
    (void)state;
    counter = mu_variable_new(mu_constant(MU_F64, 0), "counter");
    mu_value *seen = traced(draw, NULL, mu_list(mu_constant(MU_F64, 70), MU_END));
    assert_true(mu_scalar(mu_at(seen, 0)) == 0 && mu_scalar(mu_at(seen, 1)) == 70 + 2 + 4 + 6 + 8 + 10 &&
                mu_scalar(mu_at(seen, 2)) == 10);
}

// ---- Scans --------------------------------------------------------------------------------------

static mu_value *accumulate(mu_value *vars, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *sum = mu_add(mu_at(vars, 0), mu_at(element, 0));
    return mu_list(sum, mu_multiply(mu_at(vars, 1), mu_tanh(sum)), MU_END);
}

static mu_value *scan(mu_value *arguments, void *arg)
{
    mu_value *start = mu_list(mu_constant(MU_F64, 0), mu_constant(MU_F64, 1), MU_END);
    return mu_scan(accumulate, mu_at(arguments, 0) ? mu_value_at(arguments, 0) : NULL, start, NULL,
                   .reverse = *(bool *)arg);
}

static void scans_stack_their_states(void **state)
{
    (void)state;
    bool forward = false, back = true;
    mu_value *x = mu_list(vector(4, (double[]){1, 2, 3, 4}), MU_END);
    assert_near(doubles(mu_at(both_ways(scan, &forward, x, 1e-15), 0)), (double[]){1, 3, 6, 10}, 4, 0);
    mu_value *reversed = traced(scan, &back, x);
    assert_near(doubles(mu_at(reversed, 0)), (double[]){10, 9, 7, 4}, 4, 0);
    mu_value *none = mu_list(vector(0, NULL), MU_END);
    assert_int_equal(mu_tensor_dim(mu_at(both_ways(scan, &forward, none, 0), 0), 0), 0);
}

// ---- Nests --------------------------------------------------------------------------------------

static mu_value *inner_step(mu_value *vars, void *arg)
{
    mu_tensor *outer = arg;
    return mu_list(mu_add(mu_at(vars, 0), outer), MU_END);
}

static mu_tensor *inner_continues(mu_value *vars, void *arg)
{
    return mu_less(mu_at(vars, 0), mu_multiply((mu_tensor *)arg, mu_constant(MU_F64, 4)));
}

static mu_value *nested_body(mu_value *vars, void *arg)
{
    mu_tensor *scale = arg, *x = mu_at(vars, 0);
    mu_value *inner = mu_while_loop(inner_continues, inner_step, mu_list(mu_multiply(x, scale), MU_END), x);
    return mu_list(mu_at(inner, 0), MU_END);
}

static mu_tensor *nested_continues(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_at(vars, 0), mu_constant(MU_F64, 1000));
}

static mu_value *nested(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *scale = mu_exp(mu_at(arguments, 1)); // captured through both levels
    return mu_while_loop(nested_continues, nested_body, mu_list(mu_at(arguments, 0), MU_END), scale);
}

static void bodies_nest(void **state)
{
    (void)state;
    mu_value *x = mu_list(mu_constant(MU_F64, 1.5), mu_constant(MU_F64, .3), MU_END);
    both_ways(nested, NULL, x, 1e-14);
}

// ---- Errors -------------------------------------------------------------------------------------

static mu_value *one_of_float32(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_cast(mu_at(arguments, 0), MU_F32), mu_at(arguments, 0), MU_END);
}

static mu_value *mixed(mu_value *arguments, void *arg)
{
    return mu_cond(mu_reduce_any(mu_greater(mu_at(arguments, 0), mu_constant(MU_F64, 0)), MU_ALL_AXES), doubled,
                   one_of_float32, arguments, arg);
}

static mu_value *loses_one(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_list(mu_at(vars, 0), MU_END);
}

static mu_value *loses(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_while_loop(below, loses_one,
                         mu_list(mu_reduce_sum(mu_at(arguments, 0), MU_ALL_AXES), mu_at(arguments, 0), MU_END), NULL);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    mu_value *x = mu_list(vector(3, (double[]){1, 2, -1}), MU_END);
    assert_null(mu_run(NULL, mu_function_new(mixed, NULL), x));
    expect_error(MU_INVALID_ARGUMENT, "result 0 is float64[3] in one branch and float32[3] in the other");
    assert_null(mu_run(NULL, mu_function_new(loses, NULL), x));
    expect_error(MU_INVALID_ARGUMENT, "must give all of them back");
    assert_null(mu_cond(mu_constant(MU_F64, 1), doubled, doubled, x, NULL));
    expect_error(MU_INVALID_ARGUMENT, "scalar of type bool");
    assert_null(mu_switch_case(mu_constant(MU_I32, 1), 0, NULL, x, NULL));
    expect_error(MU_INVALID_ARGUMENT, "there must be a branch");
    assert_null(mu_while_loop(below, NULL, x, NULL));
    expect_error(MU_INVALID_ARGUMENT, "must be given");
    assert_null(mu_scan(accumulate, mu_of(mu_constant(MU_F64, 1)), x, NULL));
    expect_error(MU_INVALID_ARGUMENT, "first axes must be there");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(branches_are_picked),
        MODEL_TEST(branches_have_effects),
        MODEL_TEST(switches_take_the_last_outside),
        MODEL_TEST(loops_repeat),
        MODEL_TEST(shapes_may_change),
        MODEL_TEST(loops_have_effects),
        MODEL_TEST(scans_stack_their_states),
        MODEL_TEST(bodies_nest),
        MODEL_TEST(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
