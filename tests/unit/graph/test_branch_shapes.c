// Branches that fit only some shapes: a branch that is not taken may be impossible; one that is taken fails with the
// reason.
//
// Each program is compared with what it does outside of traces, its gradient included; sizes are known only when the
// function runs.
#include "control_test.h"

#include <muster.h>

typedef struct guard {
    bool inverted;  // asks for the wrong branch
    bool one_shape; // both branches give a scalar
} guard;

static mu_value *sums_of_pairs(mu_value *arguments, void *arg)
{
    const guard *g = arg;
    mu_tensor *pairs = mu_reshape(mu_at(arguments, 0), 2, (int64_t[]){-1, 2});
    mu_tensor *sums = mu_reduce_sum(mu_square(pairs), 1);
    return mu_of(g->one_shape ? mu_reduce_sum(sums, 0) : sums);
}

static mu_value *as_it_is(mu_value *arguments, void *arg)
{
    const guard *g = arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_of(g->one_shape ? mu_reduce_sum(x, 0) : mu_identity(x));
}

// Reshapes its argument to pairs, which needs an even number of elements.
static mu_value *guarded(mu_value *arguments, void *arg)
{
    const guard *g = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *odd = mu_mod(mu_dim_size(x, 0), mu_constant(MU_I64, 2));
    mu_tensor *even = mu_equal(odd, mu_constant(MU_I64, g->inverted ? 1 : 0));
    mu_tensor *y = mu_at(mu_cond(even, sums_of_pairs, as_it_is, mu_list(x, MU_END), arg), 0);
    return mu_list(y, mu_at(mu_gradients(tape, mu_reduce_sum(y, MU_ALL_AXES), mu_list(x, MU_END)), 0), MU_END);
}

static mu_value *first_numbers(int64_t n)
{
    const double values[] = {1, 2, 3, 4, 5, 6};
    return mu_list(mu_tensor_new(MU_F64, 1, &n, values), MU_END);
}

static void only_the_branch_taken_must_fit(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        guard g = {.one_shape = shape};
        for (int64_t n = 0; n <= 6; n++)
            both_ways(guarded, &g, first_numbers(n), 0);
    }
}

static void a_taken_branch_that_does_not_fit_is_an_error(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        guard g = {.inverted = true, .one_shape = shape};
        mu_function *function = mu_function_new(guarded, &g);
        assert_non_null(mu_run(NULL, function, first_numbers(4)));
        assert_null(mu_run(NULL, function, first_numbers(5)));
        assert_non_null(strstr(mu_error_message(), "reshape"));
        assert_non_null(strstr(mu_error_message(), "[5]"));
        assert_non_null(strstr(mu_error_message(), "test_branch_shapes.c"));
        assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
        assert_non_null(mu_run(NULL, function, first_numbers(2)));
    }
}

static mu_value *first_of_each(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *values;
    return mu_unique(mu_at(arguments, 1), &values, NULL) == MU_OK
               ? mu_of(mu_square(mu_gather(mu_at(arguments, 0), values, 0, 0)))
               : NULL;
}

static mu_value *means_of_segments(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_segment_mean(mu_at(arguments, 0), mu_at(arguments, 1))));
}

static mu_value *either(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *threshold = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *above = mu_greater(mu_reduce_sum(x, 0), threshold);
    mu_tensor *y = mu_at(mu_cond(above, first_of_each, means_of_segments, arguments, NULL), 0);
    return mu_list(y, mu_at(mu_gradients(tape, mu_reduce_sum(y, 0), mu_list(x, MU_END)), 0), MU_END);
}

// The values that the other branch would have saved for its gradient then have no rows.
static void gradients_of_branches_whose_shapes_depend_on_elements(void **state)
{
    (void)state;
    const int32_t ids[][4] = {{0, 0, 0, 0}, {0, 1, 1, 3}, {1, 2, 3, 3}};
    for (size_t i = 0; i < MU_COUNT(ids); i++)
        for (int taken = 0; taken < 2; taken++) {
            mu_value *x = mu_list(mu_at(first_numbers(4), 0), mu_tensor_new(MU_I32, 1, (int64_t[]){4}, ids[i]), MU_END);
            both_ways(either, mu_constant(MU_F64, taken ? -100 : 100), x, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(only_the_branch_taken_must_fit),
        MODEL_TEST(a_taken_branch_that_does_not_fit_is_an_error),
        MODEL_TEST(gradients_of_branches_whose_shapes_depend_on_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
