// Variations of the cases ACCUM, whose results TensorFlow 2.21 gave: half types, stale and empty gradients, steps,
// rows that occur several times, declared shapes that are known in part.
#include "cases.h"

#include <math.h>

static mu_tensor *longs(int n, const double *values) { return mu_cast(vector(n, values), MU_I64); }
#define LONGS(...) longs((int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static mu_tensor *ones(int64_t rows, int64_t columns) { return mu_ones(MU_F32, 2, (int64_t[]){rows, columns}); }

static mu_tensor *column(int n, const double *values) { return mu_reshape(vector(n, values), 2, (int64_t[]){n, 1}); }
#define COLUMN(...) column((int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static double count_of(mu_accumulator *a) { return mu_scalar(mu_accumulator_num_accumulated(a)); }
static mu_value *take(mu_accumulator *a, int n) { return mu_of(mu_accumulator_take_grad(a, n)); }

#define APPLY(a, grad, step) CHECK(mu_accumulator_apply_grad(a, grad, step) == MU_OK)
#define APPLY_SPARSE(a, indices, values, shape) \
    CHECK(mu_sparse_accumulator_apply_grad(a, indices, values, shape, 0) == MU_OK)
#define REFUSED(status)                    \
    do {                                   \
        CHECK((status) != MU_OK);          \
        EXPECT_ERROR(MU_INVALID_ARGUMENT); \
    } while (0)

// ---- Dense --------------------------------------------------------------------------------------

static const mu_shape any_scalar = {.rank = 0};

// The sum is of the gradients' type, and so is the division.
static void sums_of_halves(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F16, .shape = &any_scalar);
    static const double first[] = {2048, 1, 1}, second[] = {40000, 40000};
    for (int i = 0; i < 3; i++)
        APPLY(a, mu_constant(MU_F16, first[i]), 0);
    EXPECT(take(a, 1), 682.5);
    for (int i = 0; i < 2; i++)
        APPLY(a, mu_constant(MU_F16, second[i]), 1);
    CHECK(isinf(mu_scalar(mu_accumulator_take_grad(a, 1))));
}

static void shapes_known_in_part(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {MU_UNKNOWN, 2}});
    APPLY(a, ones(3, 2), 0);
    REFUSED(mu_accumulator_apply_grad(a, ones(4, 2), 0));
    EXPECT(take(a, 1), 1, 1, 1, 1, 1, 1);
    APPLY(a, ones(4, 2), 1);
    EXPECT(take(a, 1), 1, 1, 1, 1, 1, 1, 1, 1);
    mu_accumulator *one = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){1, {1}});
    REFUSED(mu_accumulator_apply_grad(one, scalar(1), 0));
    APPLY(one, VECTOR(1), 0);
}

static void gradients_without_elements(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {0, 2}});
    APPLY(a, mu_zeros(MU_F32, 2, (int64_t[]){0, 2}), 0);
    CHECK(count_of(a) == 1);
    mu_tensor *taken = mu_accumulator_take_grad(a, 1);
    CHECK(mu_tensor_rank(taken) == 2 && mu_tensor_dim(taken, 0) == 0 && mu_tensor_dim(taken, 1) == 2);
}

// Steps are any int64: negative ones, and far ahead.
static void steps_of_any_size(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32, .shape = &any_scalar);
    APPLY(a, scalar(1), -1);
    CHECK(count_of(a) == 0);
    CHECK(mu_accumulator_set_global_step(a, -5) == MU_OK);
    APPLY(a, scalar(1), -5);
    CHECK(count_of(a) == 1);
    mu_accumulator *far = mu_conditional_accumulator(MU_F32, .shape = &any_scalar);
    const int64_t step = (int64_t)1 << 62;
    CHECK(mu_accumulator_set_global_step(far, step) == MU_OK);
    APPLY(far, scalar(1), step);
    EXPECT(take(far, 1), 1);
    APPLY(far, scalar(1), step);
    CHECK(count_of(far) == 0);
    REFUSED(take(far, 0) ? MU_OK : MU_INVALID_ARGUMENT);
    REFUSED(take(far, -3) ? MU_OK : MU_INVALID_ARGUMENT);
}

// A step far ahead does not move the global step, which each take does.
static void steps_after_takes(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32, .shape = &any_scalar);
    APPLY(a, scalar(1), 5);
    EXPECT(take(a, 1), 1);
    APPLY(a, scalar(2), 0);
    CHECK(count_of(a) == 0);
    APPLY(a, scalar(3), 1);
    CHECK(count_of(a) == 1);
}

// A stale gradient is dropped whatever its shape, and fixes none.
static void stale_shapes(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    CHECK(mu_accumulator_set_global_step(a, 3) == MU_OK);
    APPLY(a, ones(2, 2), 2);
    CHECK(count_of(a) == 0);
    APPLY(a, VECTOR(1, 2, 3, 4, 5), 3);
    CHECK(count_of(a) == 1);
    REFUSED(mu_accumulator_apply_grad(a, ones(2, 2), 3));
    APPLY(a, ones(2, 2), 2);
    EXPECT(take(a, 1), 1, 2, 3, 4, 5);
    APPLY(a, VECTOR(1, 2, 3), 4);
    EXPECT(take(a, 1), 1, 2, 3);
}

static void infinities(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){1, {2}});
    APPLY(a, VECTOR(INFINITY, NAN), 0);
    APPLY(a, VECTOR(-INFINITY, 1), 0);
    mu_tensor *taken = mu_accumulator_take_grad(a, 2);
    CHECK(isnan(mu_tensor_item(taken, 0)) && isnan(mu_tensor_item(taken, 1)));
}

static void sums_in_f64(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shape = &any_scalar, .reduction_type = "SUM");
    for (int i = 0; i < 3; i++)
        APPLY(a, mu_constant(MU_F64, 1 << i), 0);
    EXPECT(take(a, 3), 7);
    CHECK(count_of(a) == 0);
    CHECK(!mu_conditional_accumulator(MU_F32, .reduction_type = "sum"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_conditional_accumulator(MU_I32));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// TensorFlow's operations on handles.
static void operations_by_name(void)
{
    mu_accumulator *a = mu_resource_conditional_accumulator(MU_F32);
    CHECK(mu_resource_accumulator_apply_gradient(a, mu_constant(MU_I64, 0), VECTOR(1, 3)) == MU_OK);
    CHECK(mu_resource_accumulator_apply_gradient(a, mu_constant(MU_I64, 2), VECTOR(3, 5)) == MU_OK);
    EXPECT(mu_of(mu_resource_accumulator_num_accumulated(a)), 2);
    REFUSED(mu_resource_accumulator_apply_gradient(a, mu_constant(MU_I64, 0), mu_constant(MU_F64, 1)));
    REFUSED(mu_resource_accumulator_take_gradient(a, mu_constant(MU_I32, 1), MU_F64) ? MU_OK : MU_INVALID_ARGUMENT);
    EXPECT(mu_of(mu_resource_accumulator_take_gradient(a, mu_constant(MU_I32, 2), MU_F32)), 2, 4);
    CHECK(mu_resource_accumulator_set_global_step(a, mu_constant(MU_I64, 9)) == MU_OK);
    CHECK(mu_resource_accumulator_apply_gradient(a, mu_constant(MU_I64, 8), VECTOR(1, 3)) == MU_OK);
    EXPECT(mu_of(mu_resource_accumulator_num_accumulated(a)), 0);
    REFUSED(mu_resource_accumulator_apply_gradient(a, LONGS(9, 9), VECTOR(1, 3)));
}

// ---- Sparse -------------------------------------------------------------------------------------

static void rows_of_several_gradients(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32);
    APPLY_SPARSE(a, LONGS(0, 2), ones(2, 3), NULL);
    APPLY_SPARSE(a, LONGS(2, 5), mu_multiply(ones(2, 3), scalar(2)), NULL);
    EXPECT(mu_sparse_accumulator_take_grad(a, 1), 0, 2, 5, 1, 1, 1, 1.5, 1.5, 1.5, 2, 2, 2, -1, 3);
    mu_accumulator *sum =
        mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {3, 1}}, .reduction_type = "SUM");
    APPLY_SPARSE(sum, LONGS(0, 2), COLUMN(1, 2), NULL);
    APPLY_SPARSE(sum, LONGS(2), COLUMN(5), NULL);
    EXPECT(mu_sparse_accumulator_take_grad(sum, 1), 0, 2, 1, 7, 3, 1);
}

// Rows with one index within a gradient stay apart, and are paired in their order with those of the next.
static void rows_that_occur_twice(void)
{
    static const struct {
        int n[2];
        double rows[2][3], values[2][3], wanted[8];
        int n_wanted;
    } table[] = {
        {{2, 0}, {{1, 1}}, {{1, 2}}, {1, 1, 1, 2, 4, 1}, 6},
        {{2, 1}, {{1, 1}, {1}}, {{1, 2}, {10}}, {1, 1, 5.5, 2, 4, 1}, 6},
        {{1, 2}, {{1}, {1, 1}}, {{10}, {1, 2}}, {1, 1, 5.5, 2, 4, 1}, 6},
        {{2, 3}, {{1, 1}, {1, 1, 2}}, {{10, 20}, {1, 2, 5}}, {1, 1, 2, 5.5, 11, 5, 4, 1}, 8},
    };
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {4, 1}});
        for (int k = 0; k < 2 && table[i].n[k] > 0; k++)
            APPLY_SPARSE(a, longs(table[i].n[k], table[i].rows[k]), column(table[i].n[k], table[i].values[k]), NULL);
        expect_values(__LINE__, "rows", mu_sparse_accumulator_take_grad(a, 1), table[i].n_wanted, table[i].wanted);
    }
}

static void shapes_of_sparse_gradients(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {4, 2}});
    APPLY_SPARSE(a, LONGS(0), ones(1, 2), LONGS(4, 2));
    REFUSED(mu_sparse_accumulator_apply_grad(a, LONGS(0), ones(1, 2), LONGS(5, 2), 0));
    REFUSED(mu_sparse_accumulator_apply_grad(a, LONGS(0), ones(1, 2), LONGS(4, 3), 0));
    REFUSED(mu_sparse_accumulator_apply_grad(a, LONGS(0), ones(1, 3), NULL, 0));
    REFUSED(mu_sparse_accumulator_apply_grad(a, LONGS(0), ones(1, 2), LONGS(4), 0));
    CHECK(count_of(a) == 1);
    // With no declared shape, what gradients say of axis 0 is not compared.
    mu_accumulator *any = mu_sparse_conditional_accumulator(MU_F32);
    APPLY_SPARSE(any, LONGS(0), ones(1, 2), LONGS(5, 2));
    APPLY_SPARSE(any, LONGS(0), ones(1, 2), LONGS(7, 2));
    APPLY_SPARSE(any, LONGS(9), ones(1, 2), LONGS(5, 2));
    REFUSED(mu_sparse_accumulator_apply_grad(any, LONGS(0), VECTOR(1), NULL, 0));
    REFUSED(mu_sparse_accumulator_apply_grad(any, LONGS(0), mu_ones(MU_F32, 3, (int64_t[]){1, 2, 1}), NULL, 0));
    EXPECT(mu_sparse_accumulator_take_grad(any, 1), 0, 9, 1, 1, 1, 1, -1, 2);
}

static void sparse_gradients_without_rows(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {4, 2}});
    mu_tensor *none = mu_zeros(MU_F32, 2, (int64_t[]){0, 2}), *nowhere = mu_zeros(MU_I64, 1, (int64_t[]){0});
    APPLY_SPARSE(a, nowhere, none, NULL);
    CHECK(count_of(a) == 1);
    mu_value *taken = mu_sparse_accumulator_take_grad(a, 1);
    CHECK(mu_tensor_dim(mu_at(taken, 0), 0) == 0 && mu_tensor_dim(mu_at(taken, 1), 1) == 2);
    EXPECT(mu_value_at(taken, 2), 4, 2);
    CHECK(mu_sparse_accumulator_apply_grad(a, nowhere, none, NULL, 1) == MU_OK);
    CHECK(mu_sparse_accumulator_apply_grad(a, LONGS(3), ones(1, 2), NULL, 1) == MU_OK);
    EXPECT(mu_sparse_accumulator_take_grad(a, 2), 3, 1, 1, 4, 2);
}

static void sparse_scalars(void)
{
    mu_accumulator *any = mu_sparse_conditional_accumulator(MU_F32);
    APPLY_SPARSE(any, LONGS(0, 1), VECTOR(1, 2), NULL);
    EXPECT(mu_sparse_accumulator_take_grad(any, 1), 0, 1, 1, 2, -1);
    mu_accumulator *three = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){1, {3}});
    APPLY_SPARSE(three, LONGS(0, 1), VECTOR(1, 2), NULL);
    REFUSED(mu_sparse_accumulator_apply_grad(three, LONGS(3), VECTOR(1), NULL, 0));
    EXPECT(mu_sparse_accumulator_take_grad(three, 1), 0, 1, 1, 2, 3);
}

static void stale_sparse_gradients(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {3, 1}});
    CHECK(mu_accumulator_set_global_step(a, 2) == MU_OK);
    CHECK(mu_sparse_accumulator_apply_grad(a, LONGS(7), COLUMN(1), NULL, 1) == MU_OK);
    CHECK(count_of(a) == 0);
    mu_accumulator *wide = mu_sparse_conditional_accumulator(MU_F64, .shape = &(mu_shape){2, {MU_UNKNOWN, 2}});
    CHECK(mu_sparse_accumulator_apply_grad(wide, LONGS(100), mu_ones(MU_F64, 2, (int64_t[]){1, 2}), LONGS(1000, 2),
                                           0) == MU_OK);
    EXPECT(mu_sparse_accumulator_take_grad(wide, 1), 100, 1, 1, -1, 2);
}

// has_known_shape = false: the shape is not looked at.
static void sparse_operations_by_name(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {3, 1}});
    CHECK(mu_sparse_accumulator_apply_gradient(a, mu_constant(MU_I64, 0), LONGS(1), COLUMN(4), NULL) == MU_OK);
    REFUSED(mu_sparse_accumulator_apply_gradient(a, mu_constant(MU_I64, 0), LONGS(1), COLUMN(4), LONGS(9, 1)));
    CHECK(mu_sparse_accumulator_apply_gradient(a, mu_constant(MU_I64, 0), LONGS(1), COLUMN(8), LONGS(3, 1)) == MU_OK);
    EXPECT(mu_sparse_accumulator_take_gradient(a, mu_constant(MU_I32, 2), MU_F32), 1, 6, 3, 1);
}

const one_case variation_accumulator_cases[] = {
    {"vary_sums_of_halves", sums_of_halves, NULL},
    {"vary_shapes_known_in_part", shapes_known_in_part, NULL},
    {"vary_gradients_without_elements", gradients_without_elements, NULL},
    {"vary_steps_of_any_size", steps_of_any_size, NULL},
    {"vary_steps_after_takes", steps_after_takes, NULL},
    {"vary_stale_shapes", stale_shapes, NULL},
    {"vary_infinite_gradients", infinities, NULL},
    {"vary_sums_in_f64", sums_in_f64, NULL},
    {"vary_accumulators_by_name", operations_by_name, NULL},
    {"vary_rows_of_several_gradients", rows_of_several_gradients, NULL},
    {"vary_rows_that_occur_twice", rows_that_occur_twice, NULL},
    {"vary_shapes_of_sparse_gradients", shapes_of_sparse_gradients, NULL},
    {"vary_sparse_gradients_without_rows", sparse_gradients_without_rows, NULL},
    {"vary_sparse_scalars", sparse_scalars, NULL},
    {"vary_stale_sparse_gradients", stale_sparse_gradients, NULL},
    {"vary_sparse_accumulators_by_name", sparse_operations_by_name, NULL},
    {0},
};
