// Gradients: eager and traced ones agree with differences; tapes nest, close and give second derivatives.
#include "../model/model_test.h"

#include <muster/nn.h>

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
    if (mu_split(mu_reshape(x, 1, (int64_t[]){4}), 2, 0, parts) != MU_OK) // a trace knows no batch axis
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

static mu_value *derivative(mu_value *arguments, void *arg)
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
        const double *eager = doubles(mu_value_tensor(derivative(x, (void *)&functions[i])));
        mu_value *traced = mu_run(NULL, mu_function_new(derivative, (void *)&functions[i]), x);
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
    assert_number(mu_scalar(second), 3 * exp(.25), 1e-14); // (2 + 4 x^2) e^(x^2)
}

// ---- Fused ops differentiated twice, as what they are made of --------------------------------------

typedef mu_tensor *ternary(mu_tensor *a, mu_tensor *b, mu_tensor *c);

static mu_tensor *mean_at(mu_tensor *x, int n, const int *axes)
{
    return mu_reduce_mean(x, .axes = axes, .n_axes = n, .keep_dims = true);
}

static mu_tensor *standardised(mu_tensor *x, int n, const int *axes)
{
    mu_tensor *from = mu_subtract(x, mean_at(x, n, axes)), *variance = mean_at(mu_square(from), n, axes);
    return mu_multiply(from, mu_rsqrt(mu_add(variance, mu_constant(MU_F64, .1))));
}

static mu_tensor *layer_norm(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta)
{
    return mu_nn_layer_normalization(x, gamma, beta, .1);
}

static mu_tensor *layer_norm_of_ops(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta)
{
    return mu_add(mu_multiply(standardised(x, 1, (int[]){-1}), gamma), beta);
}

static mu_tensor *group_norm(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta)
{
    return mu_nn_group_normalization(x, 2, gamma, beta, .1);
}

static mu_tensor *group_norm_of_ops(mu_tensor *x, mu_tensor *gamma, mu_tensor *beta)
{
    mu_tensor *parted = standardised(mu_reshape(x, 4, (int64_t[]){2, 3, 2, 2}), 2, (int[]){1, 3});
    return mu_add(mu_multiply(mu_reshape(parted, 3, (int64_t[]){2, 3, 4}), gamma), beta);
}

static mu_tensor *attention(mu_tensor *q, mu_tensor *k, mu_tensor *v)
{
    return mu_nn_attention(q, k, v, .causal = true, .scale = .7);
}

static mu_tensor *attention_of_ops(mu_tensor *q, mu_tensor *k, mu_tensor *v)
{
    mu_tensor *order = mu_range(MU_I64, 0, 3, 1);
    mu_tensor *seen = mu_less_equal(mu_expand_dims(order, 0), mu_expand_dims(order, 1));
    mu_tensor *scores = mu_multiply(mu_matmul_transposed(q, k, false, true), mu_constant(MU_F64, .7));
    return mu_matmul(mu_nn_softmax(mu_where(seen, scores, mu_constant(MU_F64, -1e30)), -1), v);
}

// Returns the gradient of the squares of the gradient of the squares of fn's result, in three parts of at most 24
// numbers.
static void derivatives_of_derivatives(ternary *fn, mu_tensor *const x[3], mu_tensor *out[3])
{
    mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
    mu_value *sources = mu_list(x[0], x[1], x[2], MU_END);
    mu_value *first = mu_gradients(inner, mu_reduce_sum(mu_square(fn(x[0], x[1], x[2])), MU_ALL_AXES), sources);
    mu_tape_close(inner);
    mu_tensor *total = mu_constant(MU_F64, 0);
    for (int i = 0; i < 3; i++)
        total = mu_add(total, mu_reduce_sum(mu_square(mu_at(first, i)), MU_ALL_AXES));
    mu_value *second = mu_gradients(outer, total, sources);
    for (int i = 0; i < 3; i++)
        out[i] = mu_at(second, i);
}

static void fused_rows_twice(void **state)
{
    (void)state;
    static const struct {
        ternary *fused, *plain;
        int small;
    } pairs[] = {
        {layer_norm, layer_norm_of_ops, 1}, {group_norm, group_norm_of_ops, 1}, {attention, attention_of_ops, 0}};
    double numbers[24];
    for (int i = 0; i < 24; i++)
        numbers[i] = sin(1.3 * i * i);
    for (size_t i = 0; i < MU_COUNT(pairs); i++) {
        mu_tensor *x[3], *fused[3], *plain[3], *all = vector(24, numbers);
        for (int k = 0; k < 3; k++)
            x[k] = k > 0 && pairs[i].small ? vector(4, numbers + 5 * k)
                                           : mu_reshape(mu_roll(all, k * 5, 0), 3, (int64_t[]){2, 3, 4});
        derivatives_of_derivatives(pairs[i].fused, x, fused);
        derivatives_of_derivatives(pairs[i].plain, x, plain);
        for (int k = 0; k < 3; k++)
            assert_near(doubles(fused[k]), doubles(plain[k]), k > 0 && pairs[i].small ? 4 : 24, 1e-9);
    }
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
        MODEL_TEST(match_differences),       MODEL_TEST(second_derivatives),         MODEL_TEST(fused_rows_twice),
        MODEL_TEST(tapes_record_while_open), MODEL_TEST(variables_count_every_read), MODEL_TEST(gradients_stop),
        MODEL_TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
