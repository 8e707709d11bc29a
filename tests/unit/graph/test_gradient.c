// Gradients: eager and traced ones agree with differences; tapes nest, close and give second derivatives.
#include "../model/model_test.h"

// A few compositions that use a value more than once, broadcast, branch and reduce. x: [4].
static mu_tensor *product(mu_tensor *x)
{
    return mu_reduce_sum(mu_multiply(mu_multiply(x, x), mu_exp(x)), MU_ALL_AXES);
}

static mu_tensor *broadcast(mu_tensor *x)
{
    mu_tensor *table = mu_multiply(mu_expand_dims(x, 0), mu_expand_dims(mu_sin(x), 1));
    return mu_reduce_mean(mu_square(mu_add(table, x)), MU_ALL_AXES);
}

static mu_tensor *branches(mu_tensor *x)
{
    mu_tensor *parts[2];
    if (mu_split(mu_reshape(x, 1, (int64_t[]){4}), 2, 0, parts) != MU_OK)  // a trace knows no batch axis
        return NULL;
    mu_tensor *left = mu_tanh(parts[0]), *right = mu_sigmoid(mu_subtract(parts[1], parts[0]));
    return mu_reduce_sum(mu_concat(3, (mu_tensor *[]){left, right, left}, 0), MU_ALL_AXES);
}

static mu_tensor *matrix(mu_tensor *x)
{
    mu_tensor *m = mu_reshape(x, 2, (int64_t[]){2, 2});
    return mu_reduce_logsumexp(mu_matmul(m, mu_matmul_transposed(m, m, true, false)), MU_ALL_AXES);
}

static mu_tensor *(*const functions[])(mu_tensor *) = {product, broadcast, branches, matrix};

static mu_value *slope(mu_value *arguments, void *arg)
{
    mu_tensor *(*const *fn)(mu_tensor *) = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = (*fn)(x);
    return mu_of(mu_at(mu_gradients(tape, y, mu_list(x, MU_END)), 0));
}

static void match_differences(void **state)
{
    (void)state;
    double at[] = {.3, -.7, 1.1, .2};
    for (size_t i = 0; i < MU_COUNT(functions); i++) {
        mu_pool *pool = mu_pool_open();
        mu_value *x = mu_of(vector(4, at));
        const double *eager = doubles(mu_value_tensor(slope(x, (void *)&functions[i])));
        mu_value *traced = mu_run(NULL, mu_function_new(slope, (void *)&functions[i]), x);
        assert_near(doubles(mu_value_tensor(traced)), eager, 4, 1e-13);
        for (int k = 0; k < 4; k++) {
            double kept = at[k], step = 1e-6;
            at[k] = kept + step;
            double above = mu_scalar(functions[i](vector(4, at)));
            at[k] = kept - step;
            double below = mu_scalar(functions[i](vector(4, at)));
            at[k] = kept;
            assert_number(eager[k], (above - below) / (2 * step), 1e-7);
        }
        mu_pool_close(pool);
    }
}

static void second_derivatives(void **state)
{
    (void)state;
    mu_tensor *x = mu_constant(MU_F64, .5);
    mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
    mu_tensor *y = mu_exp(mu_square(x));
    mu_tensor *first = mu_at(mu_gradients(inner, y, mu_list(x, MU_END)), 0);
    mu_tape_close(inner);
    mu_tensor *second = mu_at(mu_gradients(outer, first, mu_list(x, MU_END)), 0);
    assert_number(mu_scalar(first), exp(.25), 1e-14);
    assert_number(mu_scalar(second), 3 * exp(.25), 1e-14);  // (2 + 4 x^2) e^(x^2)
}

static void tapes_record_while_open(void **state)
{
    (void)state;
    mu_tensor *x = mu_constant(MU_F64, 3), *before = mu_square(x);
    mu_tape *tape = mu_tape_open();
    mu_tensor *during = mu_square(x);
    mu_tape_close(tape);
    mu_tensor *after = mu_square(x), *sum = mu_add(mu_add(before, during), after);
    assert_true(mu_scalar(mu_at(mu_gradients(tape, during, mu_list(x, MU_END)), 0)) == 6);
    assert_true(mu_scalar(mu_at(mu_gradients(tape, sum, mu_list(x, MU_END)), 0)) == 0);
    assert_true(mu_scalar(mu_at(mu_gradients(tape, before, mu_list(x, MU_END)), 0)) == 0);
    assert_true(mu_scalar(mu_at(mu_gradients(tape, x, mu_list(x, MU_END)), 0)) == 1);
}

static void variables_count_every_read(void **state)
{
    (void)state;
    mu_variable *w = mu_variable_new(mu_constant(MU_F64, 2), "w"), *idle = mu_variable_new(vector(2, NULL), "idle");
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_multiply(mu_variable_read(w), mu_square(mu_variable_read(w)));
    mu_value *slopes = mu_gradients(tape, y, mu_variables(w, idle, MU_END));
    assert_true(mu_scalar(mu_value_at(slopes, 0)) == 12);
    assert_near(doubles(mu_at(slopes, 1)), (double[]){0, 0}, 2, 0);
}

static void gradients_stop(void **state)
{
    (void)state;
    mu_tensor *x = mu_constant(MU_F64, 3);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_multiply(x, mu_stop_gradient(mu_square(x)));
    assert_true(mu_scalar(mu_at(mu_gradients(tape, y, mu_list(x, MU_END)), 0)) == 9);
    mu_tensor *rounded = mu_cast(mu_cast(mu_square(x), MU_I64), MU_F64);
    assert_true(mu_scalar(mu_at(mu_gradients(tape, rounded, mu_list(x, MU_END)), 0)) == 0);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    mu_tensor *x = mu_constant(MU_F64, 3);
    mu_tape *tape = mu_tape_open();
    assert_null(mu_gradients(NULL, x, mu_list(x, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "tape is NULL");
    assert_null(mu_gradients(tape, NULL, mu_list(x, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "loss is NULL");
    assert_null(mu_gradients(tape, x, NULL));
    expect_error(MU_INVALID_ARGUMENT, "sources is NULL");
    mu_tape_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(match_differences),
        MODEL_TEST(second_derivatives),
        MODEL_TEST(tapes_record_while_open),
        MODEL_TEST(variables_count_every_read),
        MODEL_TEST(gradients_stop),
        MODEL_TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
