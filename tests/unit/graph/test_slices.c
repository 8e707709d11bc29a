// Sparse gradients: the slices that the gradient of a gather consists of, and what later ops make of them.
#include "../model/model_test.h"

static mu_variable *table(void) { return mu_variable_new(numbers(2, (int64_t[]){4, 2}, 3), "table"); }

static mu_tensor *positions(int64_t n, const int32_t *values) { return mu_tensor_new(MU_I32, 1, &n, values); }

static void assert_slices(const mu_value *value, int64_t rows)
{
    assert_non_null(value);
    assert_int_equal(value->kind, MU_VALUE_SLICES);
    assert_int_equal(mu_tensor_elements(mu_at(value, 1)), rows);
    assert_int_equal(mu_tensor_elements(mu_at(value, 0)), 2 * rows);
    assert_memory_equal(mu_tensor_data(mu_at(value, 2)), ((int64_t[]){4, 2}), 16);
}

static mu_tensor *sum_of(mu_tensor *x) { return mu_reduce_sum(x, MU_ALL_AXES); }

static void gathers_give_slices(void **state)
{
    (void)state;
    mu_variable *w = table();
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_gather(mu_variable_read(w), positions(3, (int32_t[]){1, 3, 1}), 0, 0);
    mu_value *slices = mu_value_at(mu_gradients(tape, sum_of(mu_square(rows)), mu_variables(w, MU_END)), 0);
    assert_slices(slices, 3);
    assert_memory_equal(mu_tensor_data(mu_at(slices, 1)), ((int32_t[]){1, 3, 1}), 12);
    const double *v = doubles(mu_variable_read(w));
    assert_near(doubles(mu_at(slices, 0)), (double[]){2 * v[2], 2 * v[3], 2 * v[6], 2 * v[7], 2 * v[2], 2 * v[3]}, 6,
                0);
    assert_near(doubles(mu_convert_to_tensor(slices)), (double[]){0, 0, 4 * v[2], 4 * v[3], 0, 0, 2 * v[6], 2 * v[7]},
                8, 0);
}

static void indices_of_any_rank(void **state)
{
    (void)state;
    mu_variable *w = table();
    mu_tape *tape = mu_tape_open();
    mu_tensor *indices = mu_reshape(positions(4, (int32_t[]){0, 1, 2, 3}), 2, (int64_t[]){2, 2});
    mu_tensor *rows = mu_gather(mu_variable_read(w), indices, 0, 0);
    mu_value *slices = mu_value_at(mu_gradients(tape, sum_of(rows), mu_variables(w, MU_END)), 0);
    assert_slices(slices, 4);
}

static void sums_concatenate(void **state)
{
    (void)state;
    mu_variable *w = table();
    mu_tape *tape = mu_tape_open();
    mu_tensor *a = mu_gather(mu_variable_read(w), positions(1, (int32_t[]){2}), 0, 0);
    mu_tensor *b = mu_gather(mu_variable_read(w), mu_cast(positions(2, (int32_t[]){0, 2}), MU_I64), 0, 0);
    mu_value *slices = mu_value_at(mu_gradients(tape, mu_add(sum_of(a), sum_of(b)), mu_variables(w, MU_END)), 0);
    assert_slices(slices, 3);
    assert_near(doubles(mu_convert_to_tensor(slices)), (double[]){1, 1, 0, 0, 2, 2, 0, 0}, 8, 0);
}

static void one_read_may_be_gathered_twice(void **state)
{
    (void)state;
    mu_variable *w = table();
    mu_tape *tape = mu_tape_open();
    mu_tensor *read = mu_variable_read(w);
    mu_tensor *a = mu_gather(read, positions(1, (int32_t[]){2}), 0, 0),
              *b = mu_gather(read, positions(1, (int32_t[]){3}), 0, 0);
    assert_slices(mu_value_at(mu_gradients(tape, mu_add(sum_of(a), sum_of(b)), mu_variables(w, MU_END)), 0), 2);
}

static void dense_and_sparse_is_dense(void **state)
{
    (void)state;
    mu_variable *w = table();
    mu_tape *tape = mu_tape_open();
    mu_tensor *read = mu_variable_read(w), *row = mu_gather(read, positions(1, (int32_t[]){2}), 0, 0);
    mu_value *both = mu_gradients(tape, mu_add(sum_of(read), sum_of(row)), mu_variables(w, MU_END));
    assert_near(doubles(mu_at(both, 0)), (double[]){1, 1, 1, 1, 2, 2, 1, 1}, 8, 0);
    mu_tensor *apart = mu_variable_read(w);
    mu_tensor *loss = mu_add(sum_of(mu_gather(mu_variable_read(w), positions(1, (int32_t[]){2}), 0, 0)), sum_of(apart));
    assert_near(doubles(mu_at(mu_gradients(tape, loss, mu_variables(w, MU_END)), 0)),
                (double[]){1, 1, 1, 1, 2, 2, 1, 1}, 8, 0);
}

static void tensors_and_other_axes_stay_dense(void **state)
{
    (void)state;
    mu_variable *w = table();
    mu_tape *tape = mu_tape_open();
    mu_tensor *read = mu_variable_read(w), *row = mu_gather(read, positions(1, (int32_t[]){2}), 0, 0);
    assert_near(doubles(mu_at(mu_gradients(tape, sum_of(row), mu_list(read, MU_END)), 0)),
                (double[]){0, 0, 0, 0, 1, 1, 0, 0}, 8, 0);
    mu_tensor *column = mu_gather(read, positions(1, (int32_t[]){1}), 1, 0);
    assert_near(doubles(mu_at(mu_gradients(tape, sum_of(column), mu_variables(w, MU_END)), 0)),
                (double[]){0, 1, 0, 1, 0, 1, 0, 1}, 8, 0);
}

static void second_derivatives_pass_through(void **state)
{
    (void)state;
    mu_variable *w = table();
    mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
    mu_tensor *rows = mu_gather(mu_variable_read(w), positions(2, (int32_t[]){1, 1}), 0, 0);
    mu_value *first = mu_value_at(mu_gradients(inner, sum_of(mu_square(rows)), mu_variables(w, MU_END)), 0);
    mu_tape_close(inner);
    mu_tensor *length = sum_of(mu_square(mu_convert_to_tensor(first)));
    const double *v = doubles(mu_variable_read(w));
    mu_value *second = mu_value_at(mu_gradients(outer, length, mu_variables(w, MU_END)), 0);
    assert_near(doubles(mu_convert_to_tensor(second)), (double[]){0, 0, 32 * v[2], 32 * v[3], 0, 0, 0, 0}, 8, 1e-14);
}

static void clipping_leaves_slices(void **state)
{
    (void)state;
    mu_variable *w = table(), *b = mu_variable_new(mu_constant(MU_F64, 1), "b");
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_gather(mu_variable_read(w), positions(2, (int32_t[]){1, 1}), 0, 0);
    mu_tensor *loss = mu_add(mu_multiply(sum_of(rows), mu_constant(MU_F64, 2)),
                             mu_multiply(mu_variable_read(b), mu_constant(MU_F64, 3)));
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(w, b, MU_END));
    mu_value *global = mu_clip_gradients(gradients, .global_norm = 2.5);
    assert_slices(mu_value_at(global, 0), 2);
    assert_near(doubles(mu_at(mu_value_at(global, 0), 0)), (double[]){1, 1, 1, 1}, 4, 1e-14);
    assert_number(mu_scalar(mu_at(global, 1)), 1.5, 1e-14);
    assert_ptr_equal(global->sources, gradients->sources);
    assert_near(doubles(mu_at(mu_value_at(mu_clip_gradients(gradients, .norm = 2), 0), 0)), (double[]){1, 1, 1, 1}, 4,
                1e-14);
    assert_number(mu_scalar(mu_at(mu_clip_gradients(gradients, .norm = 5), 1)), 3, 1e-14);
    assert_near(doubles(mu_at(mu_value_at(mu_clip_gradients(gradients, .value = 1.5), 0), 0)),
                (double[]){1.5, 1.5, 1.5, 1.5}, 4, 0);
    assert_null(mu_clip_gradients(gradients, .value = 1, .norm = 1));
    expect_error(MU_INVALID_ARGUMENT, "more than one");
    assert_null(mu_clip_gradients(gradients, .value = -1));
    expect_error(MU_INVALID_ARGUMENT, "positive");
    assert_null(mu_clip_gradients(NULL));
    expect_error(MU_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(gathers_give_slices),
        MODEL_TEST(indices_of_any_rank),
        MODEL_TEST(sums_concatenate),
        MODEL_TEST(one_read_may_be_gathered_twice),
        MODEL_TEST(dense_and_sparse_is_dense),
        MODEL_TEST(tensors_and_other_axes_stay_dense),
        MODEL_TEST(second_derivatives_pass_through),
        MODEL_TEST(clipping_leaves_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
