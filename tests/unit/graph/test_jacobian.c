// Jacobians, directional derivatives and maps over rows: eagerly and in traces, against what is known on paper.
#include "control_test.h"

#include <muster/nn.h>

static mu_variable *matrix;

static mu_value *square_and_mix(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tensor *y = mu_multiply(mu_square(x), mu_reverse(x, 0));
    return mu_list(y, MU_END);
}

// y_i = x_i^2 x_j with j = 2 - i: dy_i/dx_i = 2 x_i x_j, dy_i/dx_j = x_i^2, and 3 x^2 in the middle.
static void wanted_jacobian(const double *x, double out[9])
{
    memset(out, 0, 9 * sizeof *out);
    for (int i = 0; i < 3; i++) {
        out[3 * i + i] += 2 * x[i] * x[2 - i];
        out[3 * i + 2 - i] += x[i] * x[i];
    }
}

static mu_value *jacobian(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_reshape(mu_at(arguments, 0), 1, (int64_t[]){3});
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_at(square_and_mix(mu_list(x, MU_END), arg), 0);
    mu_value *found = mu_tape_jacobian(tape, y, mu_list(x, MU_END));
    return found ? mu_list(mu_at(found, 0), MU_END) : NULL;
}

static void jacobians_are_right(void **state)
{
    (void)state;
    const double at[] = {.5, -1.25, 2};
    double wanted[9];
    wanted_jacobian(at, wanted);
    mu_value *seen = both_ways(jacobian, NULL, mu_list(vector(3, at), MU_END), 1e-15);
    assert_int_equal(mu_tensor_rank(mu_at(seen, 0)), 2);
    assert_near(doubles(mu_at(seen, 0)), wanted, 9, 1e-15);
}

static mu_value *matrix_jacobian(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_reshape(mu_at(arguments, 0), 2, (int64_t[]){2, 3});
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_matmul(x, mu_variable_read(matrix));
    mu_value *found = mu_tape_jacobian(tape, y, mu_list(x, mu_variables(matrix, MU_END), MU_END));
    return found ? mu_list(mu_at(found, 0), mu_value_at(found, 1), MU_END) : NULL;
}

// y = x w: dy[i,j]/dx[k,l] = [i = k] w[l,j]; dy[i,j]/dw[k,l] = [j = l] x[i,k].
static void jacobians_of_matrices_have_both_shapes(void **state)
{
    (void)state;
    const int64_t dims[] = {3, 2};
    const double x[] = {1, 2, 3, 4, 5, 6}, w[] = {.1, .2, .3, .4, .5, .6};
    matrix = mu_variable_new(mu_tensor_new(MU_F64, 2, dims, w), "matrix");
    mu_value *seen = both_ways(matrix_jacobian, NULL, mu_list(vector(6, x), MU_END), 1e-15);
    const double *dx = doubles(mu_at(seen, 0)), *dw = doubles(mu_at(seen, 1));
    assert_int_equal(mu_tensor_rank(mu_at(seen, 0)), 4);
    assert_int_equal(mu_tensor_rank(mu_at(seen, 1)), 4);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 6; k++) {
                assert_true(dx[(i * 2 + j) * 6 + k] == (k / 3 == i ? w[k % 3 * 2 + j] : 0));
                assert_true(dw[(i * 2 + j) * 6 + k] == (k % 2 == j ? x[i * 3 + k / 2] : 0));
            }
}

static mu_value *batch_jacobian(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_multiply(mu_square(x), mu_reverse(x, 1));
    mu_tensor *found = mu_tape_batch_jacobian(tape, y, x);
    return found ? mu_list(found, MU_END) : NULL;
}

static void batch_jacobians_keep_rows_apart(void **state)
{
    (void)state;
    mu_tensor *x = numbers(2, (int64_t[]){4, 3}, 5);
    mu_value *seen = both_ways(batch_jacobian, NULL, mu_list(x, MU_END), 1e-15);
    assert_int_equal(mu_tensor_rank(mu_at(seen, 0)), 3);
    for (int i = 0; i < 4; i++) {
        double wanted[9];
        wanted_jacobian(doubles(x) + 3 * i, wanted);
        assert_near(doubles(mu_at(seen, 0)) + 9 * i, wanted, 9, 1e-14);
    }
}

static mu_value *along(mu_value *arguments, void *arg)
{
    mu_value *found =
        mu_jvp(square_and_mix, mu_list(mu_at(arguments, 0), MU_END), mu_list(mu_at(arguments, 1), MU_END), arg);
    return found ? mu_list(mu_at(mu_value_at(found, 0), 0), mu_at(mu_value_at(found, 1), 0), MU_END) : NULL;
}

static void directional_derivatives_are_products(void **state)
{
    (void)state;
    const double at[] = {.5, -1.25, 2}, direction[] = {1, -2, .5};
    double rows[9], wanted[3] = {0};
    wanted_jacobian(at, rows);
    for (int i = 0; i < 9; i++)
        wanted[i / 3] += rows[i] * direction[i % 3];
    mu_value *seen = both_ways(along, NULL, mu_list(vector(3, at), vector(3, direction), MU_END), 1e-14);
    assert_near(doubles(mu_at(seen, 1)), wanted, 3, 1e-14);
}

static mu_value *double_and_sum(mu_value *element, void *arg)
{
    mu_tensor *x = mu_at(element, 0), *factor = arg;
    return mu_list(mu_multiply(x, factor), mu_reduce_sum(x, MU_ALL_AXES), MU_END);
}

static mu_value *mapped(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *factor = mu_reduce_max(mu_at(arguments, 0), MU_ALL_AXES);
    return mu_map_fn(double_and_sum, arguments, factor);
}

static void maps_stack_their_results(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 2};
    mu_value *seen =
        both_ways(mapped, NULL, mu_list(mu_tensor_new(MU_F64, 2, dims, (double[]){1, 2, 3, 4}), MU_END), 0);
    assert_near(doubles(mu_at(seen, 0)), (double[]){4, 8, 12, 16}, 4, 0);
    assert_near(doubles(mu_at(seen, 1)), (double[]){3, 7}, 2, 0);
}

// mu_run leaves the first axis of its arguments open, so y has an unknown number of elements.
static mu_value *jacobian_of_squares(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_at(arguments, 0), *y = mu_multiply(mu_square(x), mu_reduce_sum(x, 0));
    return mu_tape_jacobian(tape, y, arguments);
}

static void the_number_of_elements_may_be_unknown(void **state)
{
    (void)state;
    mu_function *function = mu_function_new(jacobian_of_squares, NULL);
    for (int64_t n = 1; n < 4; n++) {
        mu_value *x = mu_list(vector(n, (double[]){1, 2, -.5}), MU_END);
        mu_value *seen = mu_run(NULL, function, x), *eager = jacobian_of_squares(x, NULL);
        if (!seen)
            fail_msg("%s", mu_error_message());
        assert_int_equal(mu_tensor_rank(mu_at(seen, 0)), 2);
        assert_near(doubles(mu_at(seen, 0)), doubles(mu_at(eager, 0)), n * n, 1e-14);
    }
    assert_int_equal(mu_function_trace_count(function), 1);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    mu_tensor *x = mu_constant(MU_F64, 3);
    mu_tape *tape = mu_tape_open();
    assert_null(mu_tape_jacobian(tape, NULL, mu_list(x, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "y is NULL");
    assert_null(mu_tape_batch_jacobian(tape, x, x));
    expect_error(MU_INVALID_ARGUMENT, "at least two axes");
    assert_null(mu_jvp(square_and_mix, mu_list(x, MU_END), NULL, NULL));
    expect_error(MU_INVALID_ARGUMENT, "must be given");
    assert_null(mu_map_fn(double_and_sum, mu_list(x, MU_END), NULL));
    expect_error(MU_INVALID_ARGUMENT, "first axes must be there");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(jacobians_are_right),
        MODEL_TEST(jacobians_of_matrices_have_both_shapes),
        MODEL_TEST(batch_jacobians_keep_rows_apart),
        MODEL_TEST(directional_derivatives_are_products),
        MODEL_TEST(maps_stack_their_results),
        MODEL_TEST(the_number_of_elements_may_be_unknown),
        MODEL_TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
