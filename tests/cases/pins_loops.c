// What TensorFlow's tests of custom training loops pin and no numbered case has: steps over distributed input under
// each strategy of one machine.
#include "cases.h"

#include <muster/tpu_strategy.h>

static mu_strategy *kinds[5];

static void make_kinds(void)
{
    kinds[0] = mirrored(2);
    kinds[1] = mu_central_storage_strategy(.replicas = 2);
    kinds[2] = mirrored(1);
    kinds[3] = mu_one_device_strategy("CPU:0");
    kinds[4] = mu_default_strategy();
}

static mu_value *first_of(mu_distributed_dataset *data)
{
    mu_value *got = NULL;
    mu_iterator *it = mu_iterate(data);
    got = mu_next(it);
    return got;
}

static mu_value *squares(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_value_tensor(arguments)));
}

static mu_dataset *four_numbers(void) { return mu_dataset_from_tensor_slices(mu_of(VECTOR(5, 6, 7, 8))); }

static void loops(void)
{
    make_kinds();
    for (int k = 0; k < 5; k++)
        for (int way = 0; way < 2; way++) {
            int step = 0;
            mu_function *f = mu_function_new(squares, NULL);
            MU_EACH(x, mu_distribute_dataset(kinds[k], mu_dataset_batch(four_numbers(), 2))) {
                mu_value *out = way ? mu_run(kinds[k], f, x) : mu_run_callback(kinds[k], squares, NULL, x);
                out = mu_local_results(kinds[k], out);
                step++ ? EXPECT(out, 49, 64) : EXPECT(out, 25, 36);
            }
            CHECK(step == 2);
        }
}

static mu_value *minus_and_plus(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_value_tensor(arguments);
    return mu_list(mu_map("a", mu_subtract(x, scalar(1)), "b", mu_add(x, scalar(1)), MU_END), MU_END);
}

static void nested_output(void)
{
    mu_strategy *s = mirrored(2);
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(VECTOR(0, 1, 2, 3))), 2);
    mu_value *out = mu_run(s, mu_function_new(minus_and_plus, NULL), first_of(mu_distribute_dataset(s, data)));
    EXPECT(mu_local_results(s, mu_value_get(mu_value_at(out, 0), "a")), -1, 0);
    EXPECT(mu_local_results(s, mu_value_get(mu_value_at(out, 0), "b")), 1, 2);
}

static mu_value *add_one_to(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign_add(arg, scalar(1)) == MU_OK ? mu_list(MU_END) : NULL;
}

static void products_of_means(void)
{
    make_kinds();
    for (int k = 0; k < 4; k++) {
        mu_strategy *s = kinds[k];
        mu_variable *a = on_write(s, 1, MU_AGGREGATION_ONLY_FIRST_REPLICA);
        mu_distributed_dataset *data = mu_distribute_dataset(s, mu_dataset_batch(four_numbers(), 2));
        double product = 2;
        int steps = 0;
        MU_EACH(x, data) {
            product *= mu_scalar(mu_value_tensor(mu_reduce(s, MU_MEAN, x, 0)));
            steps++;
        }
        mu_function *f = mu_function_new(add_one_to, a);
        MU_EACH(y, data)
            CHECK(mu_run(s, f, y));
        CHECK(steps == 2 && product == 2 * 5.5 * 7.5);
        EXPECT(read_of(a), 3);
    }
}

static mu_value *bounded_squares(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_value_tensor(arguments);
    mu_assert(mu_less_equal(x, scalar(100)), "at most 100");
    return mu_of(mu_square(x));
}

static void asserts_in_partial_batches(void)
{
    make_kinds();
    for (int k = 0; k < 5; k++) {
        mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(VECTOR(5, 6, 7))), 2);
        mu_function *f = mu_function_new(bounded_squares, NULL);
        int step = 0;
        MU_EACH(x, mu_distribute_dataset(kinds[k], data)) {
            mu_value *out = mu_local_results(kinds[k], mu_run(kinds[k], f, x));
            step++ ? EXPECT(out, 49) : EXPECT(out, 25, 36);
        }
        CHECK(step == 2);
    }
}

static mu_dataset *four_alone(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return four_numbers();
}

static void elements_of_functions(void)
{
    make_kinds();
    for (int k = 0; k < 5; k++) {
        mu_value *got = first_of(mu_distribute_datasets_from_function(kinds[k], four_alone, NULL));
        got = mu_local_results(kinds[k], got);
        k < 2 ? EXPECT(got, 5, 6) : EXPECT(got, 5);
        int steps = 0;
        MU_EACH(x, mu_distribute_datasets_from_function(kinds[k], four_alone, NULL))
            steps++;
        CHECK(steps == (k < 2 ? 2 : 4));
    }
}

static mu_value *mean_of(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_value_tensor(arguments);
    return mu_of(mu_reduce_mean(x));
}

static mu_value *size_of(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_ones_like(mu_value_tensor(arguments))));
}

static void dynamic_shapes(void)
{
    make_kinds();
    for (int k = 0; k < 2; k++)
        for (int way = 0; way < 2; way++) {
            mu_strategy *s = kinds[k];
            mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(VECTOR(5, 6, 7))), 4);
            mu_value *x = first_of(mu_distribute_dataset(s, data));
            mu_function *f = mu_function_new(mean_of, NULL);
            const mu_run_options *options = MU_RUN_OPTIONS(.bucketizing_dynamic_shape = true);
            EXPECT(way ? mu_run_with_options(s, f, x, options) : mu_run(s, f, x), 5.5, 7);
            EXPECT(mu_run_callback(s, mean_of, NULL, x), 5.5, 7);
            EXPECT(mu_run(s, mu_function_new(size_of, NULL), x), 2, 1);
            EXPECT(mu_reduce(s, MU_MEAN, x, 0), 6);
        }
}

static mu_dataset *rows_of_two_and_three(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    mu_dataset *two = mu_dataset_from_tensor_slices(mu_of(mu_reshape(VECTOR(1, 2, 1, 2), 2, (int64_t[]){2, 2})));
    mu_tensor *wide = mu_reshape(VECTOR(1, 2, 3, 1, 2, 3), 2, (int64_t[]){2, 3});
    mu_dataset *three = mu_dataset_from_tensor_slices(mu_of(wide));
    return mu_dataset_batch(mu_dataset_concatenate(two, three), 2, .drop_remainder = true);
}

static void first_is_not_the_largest(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *x = first_of(mu_distribute_datasets_from_function(s, rows_of_two_and_three, NULL));
    EXPECT(mu_run(s, mu_function_new(mean_of, NULL), x), 1.5, 2);
    EXPECT(mu_run_callback(s, mean_of, NULL, x), 1.5, 2);
}

static mu_value *fixed_and_squares(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_zeros(MU_F32, 1, (int64_t[]){3}), mu_square(mu_value_tensor(arguments)), MU_END);
}

static void partial_batches(void)
{
    make_kinds();
    for (int k = 0; k < 5; k++) {
        mu_strategy *s = kinds[k];
        mu_dataset *one = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(VECTOR(5))), 2);
        mu_value *x = first_of(mu_distribute_dataset(s, one));
        mu_value *out = mu_run(s, mu_function_new(fixed_and_squares, NULL), x);
        mu_value *zeros = mu_local_results(s, mu_value_at(out, 0));
        CHECK(mu_value_count(zeros) == mu_num_replicas_in_sync(s));
        EXPECT(mu_local_results(s, mu_value_at(out, 1)), 25);
        for (int drop = 0; drop < 2; drop++)
            for (int size = 1; size < 3; size++) {
                mu_dataset *two = mu_dataset_from_tensor_slices(mu_of(VECTOR(5, 6)));
                mu_dataset *data = mu_dataset_batch(two, size, .drop_remainder = drop);
                mu_value *got = mu_local_results(s, first_of(mu_distribute_dataset(s, data)));
                size == 2 ? EXPECT(got, 5, 6) : EXPECT(got, 5);
            }
    }
}

static mu_dataset *two_and_three(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_dataset_repeat(mu_dataset_from_tensor_slices(mu_of(VECTOR(2, 3))), 5);
}

static mu_value *square_plus_variable(mu_value *arguments, void *arg)
{
    return mu_of(mu_add(mu_square(mu_value_tensor(arguments)), mu_variable_read(arg)));
}

static void captured_variables(void)
{
    make_kinds();
    for (int k = 0; k < 4; k++)
        MU_SCOPE(kinds[k]) {
            mu_strategy *s = kinds[k];
            mu_variable *v = mu_variable_new(scalar(1), "var");
            mu_iterator *it = mu_iterate(mu_distribute_datasets_from_function(s, two_and_three, NULL));
            mu_function *f = mu_function_new(square_plus_variable, v);
            mu_value *mean = NULL;
            for (int i = 0; i < 2; i++)
                mean = mu_reduce(s, MU_MEAN, mu_run(s, f, mu_next(it)));
            EXPECT(mean, k < 2 ? 7.5 : 10);
        }
}

static mu_value *add_sum(mu_value *arguments, void *arg)
{
    return mu_variable_assign_add(arg, mu_reduce_sum(mu_value_tensor(arguments))) == MU_OK ? mu_list(MU_END) : NULL;
}

static void sums_of_all(void)
{
    make_kinds();
    for (int k = 0; k < 4; k++)
        for (int way = 0; way < 2; way++) {
            mu_strategy *s = kinds[k];
            mu_variable *a = on_write(s, 0, MU_AGGREGATION_SUM);
            mu_function *f = mu_function_new(add_sum, a);
            MU_EACH(x, mu_distribute_dataset(s, mu_dataset_batch(four_numbers(), 2)))
                CHECK(way ? mu_run(s, f, x) : mu_run_callback(s, add_sum, a, x));
            EXPECT(read_of(a), 26);
        }
}

static mu_value *gradient_of_square(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_value_tensor(arguments);
    mu_tape *tape = mu_tape_open();
    return mu_gradients(tape, mu_square(x), mu_of(x));
}

static void gradients_of_input(void)
{
    make_kinds();
    for (int k = 0; k < 5; k++) {
        int step = 0;
        mu_function *f = mu_function_new(gradient_of_square, NULL);
        MU_EACH(x, mu_distribute_dataset(kinds[k], mu_dataset_batch(four_numbers(), 2))) {
            mu_value *out = mu_local_results(kinds[k], mu_run(kinds[k], f, x));
            step++ ? EXPECT(out, 14, 16) : EXPECT(out, 10, 12);
        }
    }
}

const one_case pin_loop_cases[] = {
    {"pin_loops", loops, NULL},
    {"pin_nested_output", nested_output, NULL},
    {"pin_products_of_means", products_of_means, NULL},
    {"pin_asserts", asserts_in_partial_batches, NULL},
    {"pin_elements_of_functions", elements_of_functions, NULL},
    {"pin_dynamic_shapes", dynamic_shapes, NULL},
    {"pin_first_not_largest", first_is_not_the_largest, NULL},
    {"pin_partial_batches", partial_batches, NULL},
    {"pin_captured_variables", captured_variables, NULL},
    {"pin_sums_of_all", sums_of_all, NULL},
    {"pin_gradients_of_input", gradients_of_input, NULL},
    {0},
};
