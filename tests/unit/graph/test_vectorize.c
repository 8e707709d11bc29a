// mu_vectorized_map gives the results of a loop over the rows: every rule, ops without a rule, and gradients per
// example.
#include "control_test.h"

#include <muster/nn.h>

// ---- Functions of a row a: [2, 3], b: [3], and a matrix w: [3, 2] from around ---------------------

typedef mu_tensor *row_fn(mu_tensor *a, mu_tensor *b, mu_tensor *w);

static mu_tensor *mixed(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *picked = mu_where(mu_greater(a, b), mu_multiply(a, b), mu_tanh(mu_subtract(b, a)));
    return mu_add(picked, mu_reduce_sum(w, MU_ALL_AXES));
}
static mu_tensor *products(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    return mu_add(mu_matmul(a, w), mu_matmul(mu_expand_dims(b, 0), w));
}
static mu_tensor *both_products(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    return mu_matmul_transposed(mu_matmul_transposed(a, w, true, true), mu_nn_bias_add(a, b), false, true);
}
static mu_tensor *reductions(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *parts[] = {mu_reduce_sum(a, 0), mu_reduce_max(a, 0), mu_cumsum(b, 0, false, true), mu_reduce_mean(w, 1)};
    return mu_concat(4, parts, 0);
}
static mu_tensor *shapes(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *turned = mu_reshape(mu_transpose(a, NULL), 1, (int64_t[]){6});
    mu_tensor *wide = mu_broadcast_to(b, 2, (int64_t[]){2, 3});
    return mu_concat(3, (mu_tensor *[]){turned, mu_reshape(wide, 1, (int64_t[]){6}), mu_reshape(w, 1, (int64_t[]){6})},
                     0);
}
static mu_tensor *likes(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *wide = mu_broadcast_like(b, a), *narrow = mu_sum_to_like(mu_square(a), b);
    (void)w;
    return mu_add(wide, narrow);
}
static mu_tensor *normalised(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    (void)w;
    return mu_add(mu_nn_softmax(a, -1), mu_nn_log_softmax(b, 0));
}
static mu_tensor *norms(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *gamma = mu_reduce_sum(w, 1), *groups = mu_nn_group_normalization(a, 3, gamma, NULL, 1e-3);
    return mu_add(mu_nn_layer_normalization(mu_multiply(a, b), gamma, NULL, 1e-3), groups);
}
static mu_tensor *norm_derivative(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *gamma = mu_reduce_sum(w, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_reduce_sum(mu_square(mu_nn_layer_normalization(mu_add(a, b), gamma, NULL, 1e-3)), MU_ALL_AXES);
    return mu_at(mu_gradients(tape, loss, mu_list(w, gamma, MU_END)), 1);
}
static mu_tensor *attends(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *mask = mu_less(mu_reduce_sum(w, 1), mu_constant(MU_F64, 100));
    mu_tensor *seen = mu_reshape(mu_slice(mask, (int64_t[]){0}, (int64_t[]){2}), 2, (int64_t[]){1, 2});
    return mu_nn_attention(mu_add(a, b), a, mu_multiply(a, b), .mask = seen, .causal = true);
}
static mu_tensor *without_rules(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tensor *positions = mu_argsort(b, 0, false);
    return mu_add(mu_gather(a, positions, 1, 0), mu_reduce_prod(mu_roll(w, 1, 0), MU_ALL_AXES));
}
static mu_tensor *derivative(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *hidden = mu_tanh(mu_matmul(mu_add(a, b), w));
    mu_tensor *loss = mu_reduce_sum(mu_square(hidden), MU_ALL_AXES);
    return mu_at(mu_gradients(tape, loss, mu_list(w, MU_END)), 0);
}
// Gradients that differ from row to row, of activations that are the same for all rows.
static mu_tensor *slopes(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    (void)b;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y[] = {mu_tanh(w),    mu_sigmoid(w),        mu_nn_softplus(w),
                      mu_nn_silu(w), mu_nn_gelu(w, false), mu_nn_gelu(w, true),
                      mu_nn_relu(w), mu_nn_softmax(w, -1), mu_nn_log_softmax(w, 0)};
    mu_tensor *sum = y[0];
    for (size_t i = 1; i < MU_COUNT(y); i++)
        sum = mu_add(sum, y[i]);
    mu_tensor *loss = mu_reduce_sum(mu_multiply(sum, mu_transpose(a, NULL)), MU_ALL_AXES);
    return mu_at(mu_gradients(tape, loss, mu_list(w, MU_END)), 0);
}
static mu_tensor *of_no_row(mu_tensor *a, mu_tensor *b, mu_tensor *w)
{
    (void)a;
    (void)b;
    return mu_exp(w);
}

static const struct {
    const char *name;
    row_fn *fn;
} cases[] = {
    {"mixed", mixed},
    {"products", products},
    {"both_products", both_products},
    {"reductions", reductions},
    {"shapes", shapes},
    {"likes", likes},
    {"normalised", normalised},
    {"without_rules", without_rules},
    {"derivative", derivative},
    {"of_no_row", of_no_row},
    {"norms", norms},
    {"norm_slope", norm_derivative},
    {"attends", attends},
    {"derivatives", slopes},
};

typedef struct choice {
    row_fn *fn;
    mu_tensor *w;
    bool loop;
} choice;

static mu_value *of_row(mu_value *element, void *arg)
{
    const choice *c = arg;
    mu_tensor *result = c->fn(mu_at(element, 0), mu_at(element, 1), c->w);
    return result ? mu_list(result, MU_END) : NULL;
}

static mu_value *of_all(mu_value *arguments, void *arg)
{
    choice c = *(const choice *)arg;
    const int64_t a[] = {5, 2, 3}, b[] = {5, 3}, w[] = {3, 2};
    mu_value *elems = mu_list(mu_reshape(mu_at(arguments, 0), 3, a), mu_reshape(mu_at(arguments, 1), 2, b), MU_END);
    c.w = mu_reshape(mu_at(arguments, 2), 2, w);
    return c.loop ? mu_map_fn(of_row, elems, &c) : mu_vectorized_map(of_row, elems, &c);
}

static void rows_at_once_are_rows_in_a_loop(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        mu_pool *pool = mu_pool_open();
        mu_value *arguments = mu_list(numbers(1, (int64_t[]){30}, 1), numbers(1, (int64_t[]){15}, 2),
                                      numbers(1, (int64_t[]){6}, 3), MU_END);
        choice loop = {.fn = cases[i].fn, .loop = true}, at_once = {.fn = cases[i].fn};
        mu_value *wanted = of_all(arguments, &loop), *seen = wanted ? of_all(arguments, &at_once) : NULL;
        if (!seen)
            fail_msg("%s: %s", cases[i].name, mu_error_message());
        mu_tensor *x = mu_at(seen, 0), *y = mu_at(wanted, 0), *z = mu_at(traced(of_all, &at_once, arguments), 0);
        if (!mu__shape_equal(&x->shape, &y->shape) || !mu__shape_equal(&z->shape, &y->shape))
            fail_msg("%s: shapes differ", cases[i].name);
        assert_near(doubles(x), doubles(y), mu_tensor_elements(y), 1e-13);
        assert_near(doubles(z), doubles(y), mu_tensor_elements(y), 1e-13);
        mu_pool_close(pool);
    }
}

// ---- Images, unknown numbers of rows, gradients through the map -----------------------------------

static mu_value *filtered(mu_value *element, void *arg)
{
    mu_tensor *image = mu_expand_dims(mu_at(element, 0), 0);
    return mu_list(mu_nn_conv2d(image, arg, .padding = "same"), MU_END);
}

static mu_value *filter_all(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *kernel = mu_reshape(mu_at(arguments, 1), 4, (int64_t[]){3, 3, 2, 2});
    mu_tape *tape = mu_tape_open();
    mu_value *seen = mu_vectorized_map(filtered, mu_list(mu_at(arguments, 0), MU_END), kernel);
    mu_tensor *y = seen ? mu_reduce_sum(mu_square(mu_at(seen, 0)), MU_ALL_AXES) : NULL;
    mu_value *found = y ? mu_gradients(tape, y, mu_list(kernel, MU_END)) : NULL;
    return found ? mu_list(mu_at(seen, 0), mu_at(found, 0), MU_END) : NULL;
}

static void images_are_one_batch(void **state)
{
    (void)state;
    mu_tensor *x = numbers(4, (int64_t[]){3, 4, 4, 2}, 1), *k = numbers(1, (int64_t[]){36}, 2);
    mu_value *seen = both_ways(filter_all, NULL, mu_list(x, k, MU_END), 1e-12);
    mu_tensor *whole = mu_nn_conv2d(x, mu_reshape(k, 4, (int64_t[]){3, 3, 2, 2}), .padding = "same");
    assert_int_equal(mu_tensor_rank(mu_at(seen, 0)), 5);
    assert_near(doubles(mu_at(seen, 0)), doubles(whole), mu_tensor_elements(whole), 1e-13);
}

// A result that does not depend on the rows is the same for all of them, also if a trace does not know how many there
// are.
static mu_value *gives_a_constant(mu_value *element, void *arg)
{
    return mu_list(mu_neg(mu_at(element, 0)), mu_square(arg), mu_constant(MU_BOOL, 1), MU_END);
}

static mu_value *rows_of_constants(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_vectorized_map(gives_a_constant, mu_list(mu_at(arguments, 0), MU_END), mu_at(arguments, 1));
}

static void what_depends_on_no_row_is_repeated(void **state)
{
    (void)state;
    mu_value *arguments = mu_list(numbers(2, (int64_t[]){3, 2}, 1), vector(2, (double[]){2, 3}), MU_END);
    mu_value *seen = mu_run(NULL, mu_function_new(rows_of_constants, NULL), arguments);
    if (!seen)
        fail_msg("%s", mu_error_message());
    assert_near(doubles(mu_at(seen, 1)), (double[]){4, 9, 4, 9, 4, 9}, 6, 0);
    assert_int_equal(mu_tensor_elements(mu_at(seen, 2)), 3);
}

// Outside of traces a loop cannot be a node: the function is then called for each row.
static mu_tensor *below_its_limit(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_reduce_sum(mu_at(vars, 0), 0), mu_constant(MU_F64, 100));
}

static mu_value *doubles_it(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_list(mu_multiply(mu_at(vars, 0), mu_constant(MU_F64, 2)), MU_END);
}

static mu_value *doubles_until(mu_value *element, void *arg)
{
    return mu_while_loop(below_its_limit, doubles_it, element, arg);
}

static void loops_in_rows_work_at_once(void **state)
{
    (void)state;
    mu_value *rows = mu_list(mu_reshape(vector(2, (double[]){1, 60}), 2, (int64_t[]){2, 1}), MU_END);
    mu_value *seen = mu_vectorized_map(doubles_until, rows, NULL);
    if (!seen)
        fail_msg("%s", mu_error_message());
    assert_near(doubles(mu_at(seen, 0)), (double[]){128, 120}, 2, 0);
}

static mu_value *folded(mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(mu_reshape(mu_at(element, 0), 3, (int64_t[]){2, 0, 5}), MU_END);
}

static mu_value *folds_rows(mu_value *arguments, void *arg) { return mu_vectorized_map(folded, arguments, arg); }

// How many rows there are does not follow from how many elements there are.
static void rows_without_elements_are_counted(void **state)
{
    (void)state;
    mu_value *rows = mu_list(mu_zeros(MU_F64, 3, (int64_t[]){3, 0, 4}), MU_END);
    assert_int_equal(mu_tensor_dim(mu_at(both_ways(folds_rows, NULL, rows, 0), 0), 0), 3);
}

static mu_variable *counter;

static mu_value *counts(mu_value *element, void *arg)
{
    (void)arg;
    mu_variable_assign_add(counter, mu_at(element, 0));
    return mu_list(mu_at(element, 0), MU_END);
}

static void effects_are_refused(void **state)
{
    (void)state;
    counter = mu_variable_new(mu_constant(MU_F64, 0), "counter");
    assert_null(mu_vectorized_map(counts, mu_list(vector(3, (double[]){1, 2, 3}), MU_END), NULL));
    expect_error(MU_UNIMPLEMENTED, "effect");
}

static mu_value *checks(mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(element, 0);
    mu_assert(mu_less(x, mu_constant(MU_F64, 10)), "below ten");
    return mu_list(mu_square(mu_check_numerics(x, "a row")), MU_END);
}

static mu_value *checks_all(mu_value *arguments, void *arg) { return mu_vectorized_map(checks, arguments, arg); }

// A check over all rows at once checks each row.
static void rows_are_checked(void **state)
{
    (void)state;
    mu_value *fine = mu_list(vector(3, (double[]){1, 2, 3}), MU_END);
    mu_value *large = mu_list(vector(2, (double[]){1, 10}), MU_END);
    mu_value *nan = mu_list(vector(2, (double[]){1, -INFINITY}), MU_END);
    assert_near(doubles(mu_at(both_ways(checks_all, NULL, fine, 0), 0)), (double[]){1, 4, 9}, 3, 0);
    for (int way = 0; way < 2; way++) {
        mu_function *function = mu_function_new(checks_all, NULL);
        assert_null(way ? mu_run(NULL, function, large) : checks_all(large, NULL));
        expect_error(MU_INVALID_ARGUMENT, "below ten");
        assert_null(way ? mu_run(NULL, function, nan) : checks_all(nan, NULL));
        expect_error(MU_INVALID_ARGUMENT, "a row");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(rows_at_once_are_rows_in_a_loop),
        MODEL_TEST(images_are_one_batch),
        MODEL_TEST(what_depends_on_no_row_is_repeated),
        MODEL_TEST(loops_in_rows_work_at_once),
        MODEL_TEST(rows_without_elements_are_counted),
        MODEL_TEST(effects_are_refused),
        MODEL_TEST(rows_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
