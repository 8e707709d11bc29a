// Maps by traced functions: the same elements as with a callback, in order, on any number of threads.
#include "data_test.h"

#include <muster/ops.h>

static int traces;

static mu_value *square_plus(mu_value *element, void *arg)
{
    traces++;
    mu_tensor *x = mu_at(element, 0);
    return mu_list(mu_add(mu_square(x), mu_constant(MU_I64, *(int *)arg)), mu_cast(x, MU_F32), MU_END);
}

static mu_value *first_only(mu_value *element, void *arg)
{
    (void)arg;
    traces++;
    return mu_of(mu_multiply(mu_at(element, 0), mu_constant(MU_I64, 2)));
}

static void maps_and_knows_what_comes_out(void **state)
{
    (void)state;
    int ten = 10;
    traces = 0;
    mu_dataset *mapped = mu_dataset_map(mu_dataset_range(0, 4, 1), .function = mu_function_new(square_plus, &ten));
    assert_int_equal(traces, 1);
    assert_elements(mapped, "(10,0) (11,1) (14,2) (19,3)");
    assert_int_equal(traces, 1);
    mu_value *spec = mu__give(mu__dataset_spec(mapped));
    assert_int_equal(mu_tensor_dtype(mu_at(spec, 0)), MU_I64);
    assert_int_equal(mu_tensor_dtype(mu_at(spec, 1)), MU_F32);
    assert_elements(
        mu_dataset_map(mu_dataset_batch(mu_dataset_range(0, 5, 1), 2), .function = mu_function_new(first_only, NULL)),
        "[0 2] [4 6] [8]");
}

static void threads_keep_the_order(void **state)
{
    (void)state;
    enum { N = 500 };
    traces = 0;
    mu_function *function = mu_function_new(first_only, NULL);
    mu_dataset *mapped = mu_dataset_map(mu_dataset_batch(mu_dataset_range(0, 3 * N + 1, 1), 3), .function = function,
                                        .parallel_calls = 4);
    for (int round = 0; round < 2; round++) {
        int64_t next = 0;
        MU_EACH(element, mapped) {
            const mu_tensor *tensor = mu_value_tensor(element);
            for (int64_t i = 0; i < mu_tensor_elements(tensor); i++, next++)
                assert_true(((const int64_t *)mu_tensor_data(tensor))[i] == 2 * next);
        }
        assert_int_equal(next, 3 * N + 1);
    }
    assert_int_equal(traces, 1);
}

// Elements that differ in shape beyond what the spec says are traced as needed.
static mu_value *next_vector(void *user)
{
    int *n = user;
    const int64_t size = *n % 3 + 1;
    return (*n)++ < 7 ? mu_of(mu_ones(MU_I64, 1, &size)) : NULL;
}

static void shapes_may_differ(void **state)
{
    (void)state;
    int n = 0;
    traces = 0;
    mu_dataset *vectors = mu_dataset_generator(next_vector, .arg = &n);
    assert_elements(mu_dataset_map(vectors, .function = mu_function_new(first_only, NULL)),
                    "[2] [2 2] [2 2 2] [2] [2 2] [2 2 2] [2]");
    assert_in_range(traces, 1, 3);
}

static mu_value *pick(mu_value *element, void *arg)
{
    (void)arg;
    return mu_of(mu_gather(mu_range(MU_I64, 0, 3, 1), mu_at(element, 0), 0, 0));
}

static mu_value *count(mu_value *element, void *arg)
{
    mu_variable_assign_add(arg, mu_constant(MU_I64, 1));
    return element;
}

static mu_value *read_along(mu_value *element, void *arg)
{
    return mu_of(mu_add(mu_at(element, 0), mu_variable_read(arg)));
}

static void failures_and_refusals(void **state)
{
    (void)state;
    mu_dataset *numbers = mu_dataset_range(0, 5, 1);
    mu_iterator *iterator =
        mu_iterate(mu_dataset_map(numbers, .function = mu_function_new(pick, NULL), .name = "picker"));
    char text[TEXT_BYTES] = "";
    append_elements(iterator, 9, text);
    assert_string_equal(text, "0 1 2");
    expect_error(MU_INVALID_ARGUMENT, "index 3");
    mu_variable *v = mu_variable_new(mu_constant(MU_I64, 100), "v");
    assert_elements(mu_dataset_map(numbers, .function = mu_function_new(read_along, v)), "100 101 102 103 104");
    assert_null(mu_dataset_map(numbers, .function = mu_function_new(count, v)));
    expect_error(MU_INVALID_ARGUMENT, "only compute");
    assert_null(mu_dataset_map(numbers, first_only, NULL, .function = mu_function_new(first_only, NULL)));
    expect_error(MU_INVALID_ARGUMENT, "both");
    assert_null(mu_dataset_map(numbers));
    expect_error(MU_INVALID_ARGUMENT, "no function");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(maps_and_knows_what_comes_out),
        DATA_TEST(threads_keep_the_order),
        DATA_TEST(shapes_may_differ),
        DATA_TEST(failures_and_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
