// Gradients through control flow: traced ones agree with differences and with those of the eager ops, also second ones.
#include "control_test.h"

#include <muster/nn.h>

static mu_variable *weight;

// ---- Functions of x: [4] and s: [] ---------------------------------------------------------------

typedef mu_tensor *scalar_fn(mu_tensor *x, mu_tensor *s);

static mu_tensor *total(mu_tensor *x) { return mu_reduce_sum(x, MU_ALL_AXES); }

static mu_value *bend(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *s = mu_at(arguments, 1);
    return mu_list(mu_multiply(mu_sin(mu_multiply(x, s)), mu_exp(x)), MU_END);
}

static mu_value *fold(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(mu_multiply(mu_square(x), mu_variable_read(weight)), MU_END);
}

static mu_tensor *branch_low(mu_tensor *x, mu_tensor *s)
{
    mu_value *both =
        mu_cond(mu_less(total(x), mu_constant(MU_F64, -100)), bend, fold, mu_list(mu_tanh(x), s, MU_END), NULL);
    return total(mu_multiply(mu_at(both, 0), s));
}

static mu_tensor *branch_high(mu_tensor *x, mu_tensor *s)
{
    mu_value *both =
        mu_cond(mu_less(total(x), mu_constant(MU_F64, 100)), bend, fold, mu_list(mu_tanh(x), s, MU_END), NULL);
    return total(mu_multiply(mu_at(both, 0), s));
}

static mu_tensor *few_iterations(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_at(vars, 0), mu_constant(MU_I32, 4));
}

static mu_value *iteration(mu_value *vars, void *arg)
{
    mu_tensor *i = mu_at(vars, 0), *x = mu_at(vars, 1), *s = arg;
    mu_tensor *next = mu_add(mu_sin(mu_multiply(x, s)), mu_multiply(mu_variable_read(weight), mu_reverse(x, 0)));
    return mu_list(mu_add(i, mu_constant(MU_I32, 1)), mu_tanh(next), MU_END);
}

static mu_tensor *bounded_loop(mu_tensor *x, mu_tensor *s)
{
    mu_value *vars = mu_while_loop(few_iterations, iteration, mu_list(mu_constant(MU_I32, 0), mu_square(x), MU_END), s,
                                   .maximum_iterations = 7);
    return total(mu_multiply(mu_at(vars, 1), x));
}

static mu_tensor *free_loop(mu_tensor *x, mu_tensor *s)
{
    mu_value *vars = mu_while_loop(few_iterations, iteration, mu_list(mu_constant(MU_I32, 0), mu_square(x), MU_END), s);
    return total(mu_multiply(mu_at(vars, 1), x));
}

static mu_value *scan_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *s = arg, *h = mu_at(state, 0), *e = mu_at(element, 0);
    mu_tensor *next = mu_tanh(mu_add(mu_multiply(h, s), mu_multiply(mu_variable_read(weight), e)));
    return mu_list(next, mu_multiply(mu_at(state, 1), mu_exp(mu_neg(next))), MU_END);
}

static mu_tensor *scanned(mu_tensor *x, mu_tensor *s)
{
    mu_value *start = mu_list(mu_multiply(s, mu_constant(MU_F64, .25)), mu_constant(MU_F64, 1), MU_END);
    mu_value *states = mu_scan(scan_step, mu_list(x, MU_END), start, s);
    return mu_add(total(mu_multiply(mu_at(states, 0), x)), total(mu_square(mu_at(states, 1))));
}

static mu_tensor *scanned_back(mu_tensor *x, mu_tensor *s)
{
    mu_value *start = mu_list(mu_constant(MU_F64, .5), s, MU_END);
    mu_value *states = mu_scan(scan_step, mu_list(x, MU_END), start, s, .reverse = true);
    return mu_add(total(mu_multiply(mu_at(states, 0), x)), total(mu_square(mu_at(states, 1))));
}

static mu_value *inner_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *s = arg;
    return mu_list(mu_sin(mu_add(mu_multiply(mu_at(state, 0), s), mu_at(element, 0))), MU_END);
}

static mu_value *outer_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor **both = arg;
    mu_tensor *h = mu_at(state, 0), *e = mu_at(element, 0);
    mu_value *inner = mu_scan(inner_step, mu_list(mu_multiply(both[0], e), MU_END), mu_list(h, MU_END), both[1]);
    mu_value *bent =
        mu_cond(mu_greater(e, mu_constant(MU_F64, 0)), bend, fold, mu_list(total(mu_at(inner, 0)), h, MU_END), NULL);
    return mu_list(mu_tanh(mu_at(bent, 0)), MU_END);
}

static mu_tensor *nested(mu_tensor *x, mu_tensor *s)
{
    mu_tensor *both[] = {x, s};
    return total(mu_at(mu_scan(outer_step, mu_list(x, MU_END), mu_list(s, MU_END), both), 0));
}

static mu_value *recomputed(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *s = mu_at(arguments, 1);
    return mu_list(mu_tanh(mu_multiply(mu_exp(mu_multiply(x, s)), mu_variable_read(weight))), mu_square(s), MU_END);
}

static mu_tensor *again(mu_tensor *x, mu_tensor *s)
{
    mu_value *both = mu_recompute_grad(recomputed, mu_list(mu_sin(x), s, MU_END), NULL);
    return mu_multiply(total(mu_multiply(mu_at(both, 0), x)), mu_at(both, 1));
}

static mu_value *cube(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(mu_multiply(mu_square(x), x), MU_END);
}

static mu_value *cube_derivative(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *dy = mu_at(gradients, 0);
    (void)results;
    (void)arg;
    return mu_list(mu_multiply(dy, mu_multiply(mu_constant(MU_F64, 3), mu_square(x))), MU_END);
}

static mu_tensor *custom(mu_tensor *x, mu_tensor *s)
{
    return total(
        mu_multiply(mu_at(mu_custom_gradient(cube, cube_derivative, mu_list(mu_multiply(x, s), MU_END), NULL), 0), x));
}

static mu_value *custom_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *s = arg, *h = mu_multiply(mu_add(mu_at(state, 0), mu_at(element, 0)), s);
    return mu_custom_gradient(cube, cube_derivative, mu_list(h, MU_END), NULL);
}

static mu_tensor *custom_in_scan(mu_tensor *x, mu_tensor *s)
{
    return total(mu_at(mu_scan(custom_step, mu_list(x, MU_END), mu_list(mu_constant(MU_F64, .1), MU_END), s), 0));
}

static scalar_fn *const functions[] = {branch_low,   branch_high, bounded_loop, free_loop, scanned,
                                       scanned_back, nested,      again,        custom,    custom_in_scan};
static const char *const names[] = {"branch_low",   "branch_high", "bounded_loop", "free_loop", "scanned",
                                    "scanned_back", "nested",      "again",        "custom",    "custom_in_scan"};

// ---- First derivatives --------------------------------------------------------------------------

static mu_value *slopes(mu_value *arguments, void *arg)
{
    scalar_fn *const *fn = arg;
    mu_tensor *x = mu_at(arguments, 0), *s = mu_at(arguments, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = (*fn)(x, s);
    mu_value *found = mu_gradients(tape, y, mu_list(x, s, mu_variables(weight, MU_END), MU_END));
    return found ? mu_list(mu_at(found, 0), mu_at(found, 1), mu_value_at(found, 2), y, MU_END) : NULL;
}

static double value_at(scalar_fn *fn, const double *at)
{
    mu_variable_assign(weight, mu_constant(MU_F64, at[5]));
    double value = mu_scalar(fn(vector(4, at), mu_constant(MU_F64, at[4])));
    return value;
}

static void first_derivatives_match_differences(void **state)
{
    (void)state;
    double at[] = {.3, -.7, 1.1, .2, .8, .6};
    weight = mu_variable_new(mu_constant(MU_F64, .6), "weight");
    for (size_t i = 0; i < MU_COUNT(functions); i++) {
        mu_pool *pool = mu_pool_open();
        mu_variable_assign(weight, mu_constant(MU_F64, at[5]));
        mu_value *arguments = mu_list(vector(4, at), mu_constant(MU_F64, at[4]), MU_END);
        mu_value *seen = mu_run(NULL, mu_function_new(slopes, (void *)&functions[i]), arguments);
        if (!seen)
            fail_msg("%s: %s", names[i], mu_error_message());
        double found[6];
        memcpy(found, doubles(mu_at(seen, 0)), 4 * sizeof *found);
        found[4] = mu_scalar(mu_at(seen, 1));
        found[5] = mu_scalar(mu_value_at(seen, 2));
        for (int k = 0; k < 6; k++) {
            double kept = at[k], step = 1e-6;
            at[k] = kept + step;
            double above = value_at(functions[i], at);
            at[k] = kept - step;
            double below = value_at(functions[i], at);
            at[k] = kept;
            double wanted = (above - below) / (2 * step);
            if (!(fabs(found[k] - wanted) <= 1e-7 * fmax(1, fabs(wanted))))
                fail_msg("%s: derivative %d is %.12g; expected %.12g", names[i], k, found[k], wanted);
        }
        assert_number(mu_scalar(mu_at(seen, 3)), value_at(functions[i], at), 1e-12);
        mu_pool_close(pool);
    }
}

// ---- Second derivatives -------------------------------------------------------------------------

static mu_value *curvature(mu_value *arguments, void *arg)
{
    scalar_fn *const *fn = arg;
    mu_tensor *x = mu_at(arguments, 0), *s = mu_at(arguments, 1);
    mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
    mu_tensor *y = (*fn)(x, s);
    mu_tensor *derivative = mu_at(mu_gradients(inner, y, mu_list(x, MU_END)), 0);
    mu_tape_close(inner);
    mu_tensor *squares = derivative ? total(mu_square(derivative)) : NULL;
    mu_tape_close(outer);
    mu_value *found = squares ? mu_gradients(outer, squares, mu_list(x, s, MU_END)) : NULL;
    return found ? mu_list(mu_at(found, 0), mu_at(found, 1), MU_END) : NULL;
}

static void second_derivatives_match_eager_ones(void **state)
{
    (void)state;
    const double at[] = {.3, -.7, 1.1, .2};
    weight = mu_variable_new(mu_constant(MU_F64, .6), "weight");
    for (size_t i = 0; i < MU_COUNT(functions); i++) {
        mu_pool *pool = mu_pool_open();
        mu_value *arguments = mu_list(vector(4, at), mu_constant(MU_F64, .8), MU_END);
        mu_value *eager = curvature(arguments, (void *)&functions[i]);
        mu_value *seen = eager ? mu_run(NULL, mu_function_new(curvature, (void *)&functions[i]), arguments) : NULL;
        if (!seen)
            fail_msg("%s: %s", names[i], mu_error_message());
        assert_near(doubles(mu_at(seen, 0)), doubles(mu_at(eager, 0)), 4, 1e-11);
        assert_number(mu_scalar(mu_at(seen, 1)), mu_scalar(mu_at(eager, 1)), 1e-11);
        mu_pool_close(pool);
    }
}

// ---- What does not run --------------------------------------------------------------------------

static mu_tensor *in_its_limit(mu_value *vars, void *arg)
{
    return mu_less(mu_at(vars, 0), mu_constant(MU_I64, *(const int *)arg));
}

static mu_value *atan_of_relu(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_list(mu_add(mu_at(vars, 0), mu_constant(MU_I64, 1)),
                   mu_atan2(mu_nn_relu(mu_at(vars, 1)), mu_exp(mu_at(vars, 1))), MU_END);
}

// Without a limit on the iterations, the stacks of saved values are measured while the loop runs.
static mu_value *derivative_of_a_loop(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_value *vars = mu_list(mu_constant(MU_I64, 0), mu_at(arguments, 0), MU_END);
    mu_value *y = mu_while_loop(in_its_limit, atan_of_relu, vars, arg);
    return mu_gradients(tape, total(mu_at(y, 1)), arguments);
}

static mu_value *with_unique(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *values = NULL, *positions = NULL;
    mu_unique(mu_reshape(mu_cast(x, MU_I64), 1, (int64_t[]){-1}), &values, &positions);
    return mu_list(mu_multiply(total(mu_exp(mu_square(x))), mu_cast(mu_reduce_sum(values, 0), MU_F64)), MU_END);
}

static mu_value *without_unique(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(total(mu_sin(mu_square(mu_at(arguments, 0)))), MU_END);
}

static mu_value *derivative_of_a_branch(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *positive = mu_greater(mu_at(arguments, 0), mu_constant(MU_F64, *(const int *)arg));
    mu_value *y = mu_cond(mu_reduce_all(positive, MU_ALL_AXES), with_unique, without_unique, arguments, arg);
    return mu_gradients(tape, mu_at(y, 0), arguments);
}

// If a loop has no iterations, or a branch is not taken, the values that it would have saved have the shapes that the
// rest of the gradient expects.
static void loops_without_iterations_and_other_branches_have_gradients(void **state)
{
    (void)state;
    mu_traceable *const fns[] = {derivative_of_a_loop, derivative_of_a_branch};
    const double at[] = {1, 2, 3, 4, 5, 6};
    for (int i = 0; i < 6; i++) {
        int number = i / 2;
        mu_value *arguments = mu_list(mu_tensor_new(MU_F64, 2, (int64_t[]){2, 3}, at), MU_END);
        mu_value *seen = mu_run(NULL, mu_function_new(fns[i % 2], &number), arguments);
        if (!seen)
            fail_msg("case %d: %s", i, mu_error_message());
        assert_near(doubles(mu_at(seen, 0)), doubles(mu_at(fns[i % 2](arguments, &number), 0)), 6, 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(first_derivatives_match_differences),
        MODEL_TEST(second_derivatives_match_eager_ones),
        MODEL_TEST(loops_without_iterations_and_other_branches_have_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
