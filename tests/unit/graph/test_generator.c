// Generators: every call gives another seed, in functions also every run and every replica; the state is a variable, so
// a restored one continues where it was.
#include "control_test.h"

#include <muster.h>

static mu_variable *generator;

static void take_seed(mu_tensor *seed, int64_t out[2])
{
    if (!seed)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_tensor_dtype(seed), MU_I64);
    assert_int_equal(mu_tensor_elements(seed), 2);
    memcpy(out, mu_tensor_data(seed), 2 * sizeof *out);
}

static void seeds_follow_from_the_state(void **state)
{
    (void)state;
    int64_t first[2], second[2], again[2];
    generator = mu_generator_new(7, NULL);
    mu_tensor *start = mu_variable_read(generator);
    take_seed(mu_generator_next(generator), first);
    take_seed(mu_generator_next(generator), second);
    assert_memory_not_equal(first, second, sizeof first);
    mu_variable_assign(generator, start);
    take_seed(mu_generator_next(generator), again);
    assert_memory_equal(first, again, sizeof first);
    take_seed(mu_generator_next(mu_generator_new(7, "other")), again);
    assert_memory_equal(first, again, sizeof first);
    take_seed(mu_generator_next(mu_generator_new(0, NULL)), again);
    assert_memory_not_equal(first, again, sizeof first);
    assert_false(mu_variable_is_trainable(generator));
}

static mu_value *draw(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    mu_tensor *seed = mu_generator_next(generator), *more = mu_generator_next(generator);
    return mu_list(mu_stateless_random_uniform(seed, MU_F64, 1, (int64_t[]){3}), seed, more, MU_END);
}

static void functions_move_it_on(void **state)
{
    (void)state;
    int64_t seen[6][2];
    generator = mu_generator_new(7, "state");
    mu_function *function = mu_function_new(draw, NULL);
    for (int i = 0; i < 2; i++) {
        mu_value *drawn = mu_run(NULL, function, mu_list(MU_END));
        if (!drawn)
            fail_msg("%s", mu_error_message());
        take_seed(mu_at(drawn, 1), seen[2 * i]);
        take_seed(mu_at(drawn, 2), seen[2 * i + 1]);
    }
    assert_int_equal(mu_function_trace_count(function), 1);
    generator = mu_generator_new(7, "state again");
    for (int i = 0; i < 4; i++) {
        int64_t eager[2];
        take_seed(mu_generator_next(generator), eager);
        assert_memory_equal(eager, seen[i], sizeof eager);
    }
}

static void replicas_draw_their_own(void **state)
{
    (void)state;
    mu_strategy *two = strategy_of(2);
    MU_SCOPE(two) {
        generator = mu_generator_new(7, "state");
    }
    mu_value *each = mu_local_results(two, mu_run(two, mu_function_new(draw, NULL), mu_list(MU_END)));
    if (!each)
        fail_msg("%s", mu_error_message());
    const double *a = doubles(mu_at(mu_value_at(each, 0), 0)), *b = doubles(mu_at(mu_value_at(each, 1), 0));
    assert_true(a[0] != b[0] && a[1] != b[1] && a[2] != b[2]);
}

static mu_value *draw_for_row(mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(element, 0), *seed = mu_generator_next(generator);
    mu_tensor *noise = mu_stateless_random_uniform(seed, MU_F64, 1, (int64_t[]){2});
    return mu_list(mu_add(x, noise), mu_cast(seed, MU_F64), mu_cast(mu_generator_next(generator), MU_F64), MU_END);
}

static mu_value *draw_at_once(mu_value *arguments, void *arg)
{
    generator = arg;
    return mu_vectorized_map(draw_for_row, arguments, NULL);
}

// Every row draws its own seeds, traced or not; after all rows the generator has advanced by all of them.
static void rows_at_once_draw_their_own(void **state)
{
    (void)state;
    enum { ROWS = 4 };
    mu_tensor *x = mu_zeros(MU_F64, 2, (int64_t[]){ROWS, 2});
    mu_variable *eager = mu_generator_new(7, "eager"), *in_function = mu_generator_new(7, "traced");
    mu_value *a = draw_at_once(mu_list(x, MU_END), eager), *b = traced(draw_at_once, in_function, mu_list(x, MU_END));
    if (!a)
        fail_msg("%s", mu_error_message());
    for (int i = 0; i < 3; i++) {
        const double *seen = doubles(mu_at(a, i));
        assert_memory_equal(seen, doubles(mu_at(b, i)), ROWS * 2 * sizeof *seen);
        for (int row = 1; row < ROWS; row++)
            assert_memory_not_equal(seen, seen + 2 * row, 2 * sizeof *seen);
    }
    assert_int_equal(((const int64_t *)mu_tensor_data(mu_variable_read(eager)))[0], 2 * ROWS);
    assert_int_equal(((const int64_t *)mu_tensor_data(mu_variable_read(in_function)))[0], 2 * ROWS);
}

static void what_is_no_generator_is_refused(void **state)
{
    (void)state;
    assert_null(mu_generator_next(NULL));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_generator_next(mu_variable_new(mu_constant(MU_F64, 1), "v")));
    mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "int64 [3]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(seeds_follow_from_the_state),     MODEL_TEST(functions_move_it_on),
        MODEL_TEST(replicas_draw_their_own),         MODEL_TEST(rows_at_once_draw_their_own),
        MODEL_TEST(what_is_no_generator_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
