// Functions traced with axes of unknown size, where results and gradients depend on those sizes: convolutions with
// kernels of any size, factors and triangular systems of any size, attention of any width. The results must be those of
// the same calls made eagerly.
#include "control_test.h"

enum { MOST = 4 };

// A case: the function, the rank of its tensors, and the shapes of three calls; the later two share a trace.
typedef struct unknown_case {
    const char *name;
    mu_tensor *(*call)(mu_value *in);
    int n;
    int64_t shapes[3][MOST][6]; // rank, then dimensions
} unknown_case;

// Returns the result, and the gradients of its weighted sum with respect to all arguments.
static mu_value *with_gradients(mu_value *arguments, void *arg)
{
    const unknown_case *c = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = c->call(arguments), *loss = mu_reduce_sum(mu_multiply(y, mu_sin(y)), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, arguments);
    mu_tape_close(tape);
    mu_value *all[MOST + 1] = {mu_of(y)};
    for (int i = 0; gradients && i < c->n; i++)
        all[i + 1] = mu_of(mu_at(gradients, i));
    return gradients ? mu_list_of(c->n + 1, all) : NULL;
}

static mu_value *arguments_of(const unknown_case *c, int which)
{
    mu_value *all[MOST];
    for (int i = 0; i < c->n; i++) {
        const int64_t *shape = c->shapes[which][i];
        all[i] = mu_of(numbers((int)shape[0], shape + 1, (uint64_t)(10 * which + i)));
    }
    return mu_list_of(c->n, all);
}

static void check_case(const unknown_case *c)
{
    mu_function *function = mu_function_new(with_gradients, (void *)(uintptr_t)c);
    for (int which = 0; which < 3; which++) {
        mu_value *arguments = arguments_of(c, which);
        mu_value *traced = mu_run(NULL, function, arguments), *wanted = with_gradients(arguments, (void *)(uintptr_t)c);
        if (!traced || !wanted)
            fail_msg("%s, call %d: %s", c->name, which, mu_error_message());
        for (int i = 0; i <= c->n; i++) {
            const mu_tensor *a = mu_at(traced, i), *b = mu_at(wanted, i);
            if (!mu__shape_equal(&a->shape, &b->shape))
                fail_msg("%s, call %d: result %d has another shape", c->name, which, i);
            assert_near(doubles(a), doubles(b), mu_tensor_elements(a), 1e-10);
        }
    }
    assert_int_equal(mu_function_trace_count(function), 2);
}

// ---- Kernels of unknown size --------------------------------------------------------------------

static mu_tensor *conv_valid(mu_value *in) { return mu_nn_conv2d(mu_at(in, 0), mu_at(in, 1)); }

static mu_tensor *conv_same(mu_value *in)
{
    return mu_nn_conv2d(mu_at(in, 0), mu_at(in, 1), .padding = "same", .strides = {2, 1});
}

static mu_tensor *conv_padded(mu_value *in)
{
    return mu_nn_conv2d(mu_at(in, 0), mu_at(in, 1), .pads = {1, 2, 0, 1}, .dilations = {2, 1});
}

static mu_tensor *conv_line(mu_value *in) { return mu_nn_conv1d(mu_at(in, 0), mu_at(in, 1), .padding = "same"); }
static mu_tensor *conv_volume(mu_value *in) { return mu_nn_conv3d(mu_at(in, 0), mu_at(in, 1)); }
static mu_tensor *depthwise(mu_value *in) { return mu_nn_depthwise_conv2d(mu_at(in, 0), mu_at(in, 1)); }

static mu_tensor *transposed(mu_value *in)
{
    return mu_nn_conv2d_transpose(mu_at(in, 0), mu_at(in, 1), .output_size = {6, 6});
}

static void kernels_of_any_size(void **state)
{
    static const unknown_case cases[] = {
        {"valid",
         conv_valid,
         2,
         {{{4, 2, 5, 6, 2}, {4, 3, 3, 2, 3}}, {{4, 1, 5, 6, 2}, {4, 2, 1, 2, 3}}, {{4, 2, 5, 6, 2}, {4, 5, 4, 2, 3}}}},
        {"same",
         conv_same,
         2,
         {{{4, 2, 5, 6, 2}, {4, 3, 3, 2, 3}}, {{4, 1, 5, 6, 2}, {4, 2, 1, 2, 4}}, {{4, 2, 5, 6, 2}, {4, 5, 4, 2, 1}}}},
        {"explicit",
         conv_padded,
         2,
         {{{4, 2, 5, 6, 2}, {4, 3, 3, 2, 3}}, {{4, 1, 7, 6, 2}, {4, 2, 1, 2, 3}}, {{4, 2, 6, 6, 2}, {4, 1, 4, 2, 3}}}},
        {"1d",
         conv_line,
         2,
         {{{3, 2, 6, 2}, {3, 3, 2, 3}}, {{3, 2, 7, 2}, {3, 2, 2, 3}}, {{3, 1, 9, 2}, {3, 4, 2, 3}}}},
        {"3d",
         conv_volume,
         2,
         {{{5, 1, 4, 3, 3, 1}, {5, 3, 2, 2, 1, 2}},
          {{5, 2, 4, 3, 3, 1}, {5, 1, 3, 2, 1, 2}},
          {{5, 1, 4, 3, 3, 1}, {5, 2, 1, 2, 1, 2}}}},
        {"depthwise",
         depthwise,
         2,
         {{{4, 2, 5, 6, 2}, {4, 3, 3, 2, 3}}, {{4, 1, 5, 6, 2}, {4, 2, 1, 2, 1}}, {{4, 2, 5, 6, 2}, {4, 5, 4, 2, 2}}}},
        {"transposed",
         transposed,
         2,
         {{{4, 1, 4, 4, 2}, {4, 3, 3, 2, 2}}, {{4, 2, 5, 4, 2}, {4, 2, 3, 2, 2}}, {{4, 1, 3, 4, 2}, {4, 4, 3, 2, 2}}}},
    };
    (void)state;
    for (size_t i = 0; i < MU_COUNT(cases); i++)
        check_case(&cases[i]);
}

static mu_value *causal(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_nn_conv1d(mu_at(arguments, 0), mu_at(arguments, 1), .padding = "causal"));
}

static mu_value *without_size(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_nn_conv2d_transpose(mu_at(arguments, 0), mu_at(arguments, 1)));
}

// On one replica such functions are traced for each size; several replicas, whose parts differ, refuse them.
static void what_does_not_follow_is_said(void **state)
{
    (void)state;
    mu_strategy *two = strategy_of(2);
    mu_tensor *line = numbers(3, (int64_t[]){1, 6, 2}, 1), *taps = numbers(3, (int64_t[]){3, 2, 2}, 2);
    both_ways(causal, NULL, mu_list(line, taps, MU_END), 1e-12);
    assert_null(mu_run(two, mu_function_new(causal, NULL), mu_list(line, taps, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "conv1d: causal padding follows from the kernel's first axis");
    mu_tensor *image = numbers(4, (int64_t[]){1, 4, 4, 2}, 1), *kernel = numbers(4, (int64_t[]){3, 3, 2, 2}, 2);
    both_ways(without_size, NULL, mu_list(image, kernel, MU_END), 1e-12);
    assert_null(mu_run(two, mu_function_new(without_size, NULL), mu_list(image, kernel, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "conv2d_transpose: no size of the result's axis 1 follows from x [?, 4, 4, 2] "
                                      "and kernel [?, 3, 2, 2]; give .output_size");
}

// ---- Matrices of unknown size -------------------------------------------------------------------

// Of x x' + y y', which is square whatever x and y are.
static mu_tensor *factor(mu_value *in)
{
    mu_tensor *x = mu_at(in, 0), *y = mu_at(in, 1);
    return mu_cholesky(mu_add(mu_matmul_transposed(x, x, false, true), mu_matmul_transposed(y, y, false, true)));
}

static mu_tensor *solve_lower(mu_value *in)
{
    return mu_triangular_solve(mu_exp(mu_at(in, 0)), mu_at(in, 1), true, false);
}

static mu_tensor *solve_upper_adjoint(mu_value *in)
{
    return mu_triangular_solve(mu_exp(mu_at(in, 0)), mu_at(in, 1), false, true);
}

static void matrices_of_any_size(void **state)
{
    static const unknown_case cases[] = {
        {"cholesky",
         factor,
         2,
         {{{3, 2, 3, 4}, {3, 2, 3, 4}}, {{3, 1, 2, 3}, {3, 1, 2, 5}}, {{3, 2, 4, 5}, {3, 2, 4, 6}}}},
        {"lower",
         solve_lower,
         2,
         {{{3, 2, 3, 3}, {3, 2, 3, 2}}, {{3, 1, 4, 4}, {3, 3, 4, 1}}, {{3, 2, 5, 5}, {3, 1, 5, 3}}}},
        {"upper, adjoint",
         solve_upper_adjoint,
         2,
         {{{2, 3, 3}, {2, 3, 2}}, {{2, 4, 4}, {2, 4, 1}}, {{2, 1, 1}, {2, 1, 3}}}},
    };
    (void)state;
    for (size_t i = 0; i < MU_COUNT(cases); i++)
        check_case(&cases[i]);
}

// ---- Attention ----------------------------------------------------------------------------------

static mu_tensor *attention(mu_value *in)
{
    return mu_nn_attention(mu_at(in, 0), mu_at(in, 1), mu_at(in, 2), .causal = true);
}

// The default scale follows the width.
static void attention_of_any_width(void **state)
{
    static const unknown_case cases[] = {
        {"attention",
         attention,
         3,
         {{{3, 2, 3, 4}, {3, 2, 5, 4}, {3, 2, 5, 3}},
          {{3, 2, 3, 1}, {3, 2, 5, 1}, {3, 2, 5, 3}},
          {{3, 2, 3, 7}, {3, 2, 5, 7}, {3, 2, 5, 3}}}},
    };
    (void)state;
    check_case(&cases[0]);
}

// ---- Parts of which only the shape counts -------------------------------------------------------

static mu_value *slice_gradient(mu_value *in, void *arg)
{
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_reshape(mu_at(in, 0), 2, (const int64_t[]){30, 20});
    mu_tensor *part = mu_slice(x, (const int64_t[]){2, 0}, (const int64_t[]){1, 20});
    mu_tensor *loss = mu_reduce_sum(mu_multiply(part, mu_constant(MU_F16, 3)), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, mu_list_of(1, (mu_value *[]){mu_of(x)}));
    mu_tape_close(tape);
    return gradients;
}

// The gradient of a slice is folded: the incoming gradient is constant, and there is no x whose shape could be read.
static void folded_slices_of_halves(void **state)
{
    (void)state;
    mu_tensor *x = mu_cast(numbers(1, (const int64_t[]){600}, 3), MU_F16);
    mu_value *found = mu_run(NULL, mu_function_new(slice_gradient, NULL), mu_list_of(1, (mu_value *[]){mu_of(x)}));
    if (!found)
        fail_msg("%s", mu_error_message());
    const mu_tensor *gradient = mu_cast(mu_at(found, 0), MU_F64);
    for (int i = 0; i < 600; i++)
        assert_true(doubles(gradient)[i] == (i >= 40 && i < 60 ? 3 : 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(kernels_of_any_size),    MODEL_TEST(what_does_not_follow_is_said), MODEL_TEST(matrices_of_any_size),
        MODEL_TEST(attention_of_any_width), MODEL_TEST(folded_slices_of_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
