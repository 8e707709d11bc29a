// What TensorFlow's tests of cross-device ops, collectives and sparse accumulators pin and no numbered case has.
#include "cases.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

// ---- Ways to reduce -----------------------------------------------------------------------------

// testReduceDistributedVariable: what is reduced of a variable are tensors on its devices.
static void reductions_of_variables(void)
{
    mu_cross_device_ops *ways[] = {mu_reduction_to_one_device(), mu_hierarchical_copy(1), mu_hierarchical_copy(0)};
    for (int i = 0; i < 6; i++) {
        const int n = 2 + i / 3;
        mu_value *v = mu_value_at(mu_variables(on_write(mirrored(n), 1, MU_AGGREGATION_NONE), MU_END), 0);
        mu_value *mean = mu_cross_device_reduce(ways[i % 3], MU_MEAN, v, v), *list = mu_list(v, MU_END);
        CHECK(mean && mu_value_kind_of(mean) == MU_VALUE_MIRRORED && mu_value_count(mean) == n);
        EXPECT(mu_value_at(mean, n - 1), 1);
        EXPECT(mu_value_at(mu_value_at(mu_cross_device_batch_reduce(ways[i % 3], MU_SUM, list, list), 0), 0), n);
    }
}

// Slices of n rows of [10, 2] that hold value, value + 1, …
static mu_value *slices(int n, const double *rows, double value)
{
    double elements[8];
    for (int i = 0; i < 2 * n; i++)
        elements[i] = value + i;
    return mu_indexed_slices(mu_reshape(vector(2 * n, elements), 2, D(n, 2)), indices_of(n, rows), 2, D(10, 2));
}

// testReduceIndexedSlices with variable_length; a part may be empty.
static void slices_of_other_lengths(void)
{
    static const double one_two[] = {1, 2};
    mu_cross_device_ops *ways[] = {mu_reduction_to_one_device(), mu_hierarchical_copy(1), mu_hierarchical_copy(0)};
    mu_value *parts[] = {slices(2, one_two, 1), slices(1, one_two + 1, 10), slices(0, NULL, 0)};
    for (int i = 0; i < 6; i++) {
        mu_value *all = mu__give(mu__regroup(2 + i / 3, parts)), *here = mu_of(scalar(0));
        mu_value *sum = mu_cross_device_reduce(ways[i % 3], MU_SUM, all, here);
        CHECK(sum && mu_value_kind_of(sum) == MU_VALUE_SLICES);
        EXPECT(mu_value_at(sum, 0), 1, 2, 3, 4, 10, 11);
        EXPECT(mu_value_at(sum, 1), 1, 2, 2);
        mu_value *batch =
            mu_cross_device_batch_reduce(ways[i % 3], MU_SUM, mu_list(all, all, MU_END), mu_list(here, here, MU_END));
        EXPECT(mu_value_at(mu_value_at(batch, 1), 1), 1, 2, 2);
    }
}

static mu_value *reduce_mixed(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *one = mu_add(scalar(1), mu_multiply(id(), scalar(0)));
    mu_tensor *row = mu_reshape(mu_multiply(one, VECTOR(1, 2)), 2, D(1, 2));
    mu_value *rows = mu_indexed_slices(row, INDICES(1), 2, D(5, 2));
    mu_value *nest = mu_list(one, rows, mu_multiply(one, VECTOR(3, 4)), rows, MU_END);
    return mu_list(mu_all_reduce_value(MU_SUM, nest), mu_all_reduce_value(MU_MEAN, nest), MU_END);
}

// testAllReduceMixDenseAndSparse.
static void mixed_reductions(void)
{
    for (int i = 0; i < 6; i++) {
        const int n = 1 + i / 2;
        mu_strategy *s = mirrored(n);
        mu_value *out = i % 2 ? traced(s, reduce_mixed, NULL) : eager(s, reduce_mixed, NULL);
        mu_value *last = mu_value_at(mu_local_results(s, out), n - 1);
        mu_value *sum = mu_value_at(last, 0), *mean = mu_value_at(last, 1);
        EXPECT(mu_value_at(sum, 0), n);
        EXPECT(mu_value_at(sum, 2), 3 * n, 4 * n);
        EXPECT(mu_value_at(mean, 0), 1);
        EXPECT(mu_value_at(mean, 2), 3, 4);
        CHECK(mu_value_kind_of(mu_value_at(sum, 1)) == MU_VALUE_SLICES);
        CHECK(mu_value_kind_of(mu_value_at(mean, 3)) == MU_VALUE_SLICES);
    }
}

static mu_value *check_and_reduce(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_assert(mu_less(x, scalar(2)), "too large");
    return mu_error_code() == MU_OK ? mu_of(mu_all_reduce(MU_SUM, x)) : NULL;
}

// testCancelDuringParamResolutionV2: a replica that fails ends the others' collective, and the next one works.
static void failing_replicas(void)
{
    mu_strategy *s = mirrored(2);
    mu_function *f = mu_function_new(check_and_reduce, NULL);
    for (int i = 0; i < 8; i++) {
        const int fails = i / 2 % 2;
        mu_value *x = mu_list(i % 2 ? PER_REPLICA(1, 1) : fails ? PER_REPLICA(1, 2) : PER_REPLICA(2, 1), MU_END);
        mu_value *out = i < 4 ? mu_run(s, f, x) : mu_run_callback(s, check_and_reduce, NULL, x);
        if (i % 2) {
            EXPECT(out, 2, 2);
        } else {
            CHECK(!out);
            EXPECT_ERROR(MU_INVALID_ARGUMENT);
        }
    }
}

// ---- Accumulators -------------------------------------------------------------------------------

static mu_status apply(mu_accumulator *a, mu_tensor *rows, int rank, const int64_t *dims, mu_tensor *shape, int step)
{
    return mu_sparse_accumulator_apply_grad(a, rows, mu_ones(MU_F32, rank, dims), shape, step);
}

// testValidateShape: the first gradient after a take adds to what the accumulator's shape demands.
static void shapes_of_slices(void)
{
    const mu_shape declared = {.rank = 3, .dims = {2, 2, MU_UNKNOWN}};
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &declared);
    mu_tensor *zero = INDICES(0);
    const struct {
        mu_tensor *rows;
        int rank;
        int64_t dims[4];
        mu_tensor *shape;
    } wrong[] = {{zero, 2, {1, 2}, INDICES(2, 2)},
                 {zero, 3, {1, 3, 2}, INDICES(2, 3, 2)},
                 {INDICES(3), 3, {1, 2, 2}, NULL},
                 {INDICES(0, 1), 2, {2, 2}, NULL},
                 {zero, 3, {1, 3, 2}, NULL}};
    for (int i = 0; i < 5; i++) {
        CHECK(apply(a, wrong[i].rows, wrong[i].rank, wrong[i].dims, wrong[i].shape, 0) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    for (int last = 2; last < 4; last++) {
        CHECK(apply(a, zero, 4, D(1, 2, 2, last), NULL, last) == MU_OK);
        CHECK(apply(a, zero, 3, D(1, 2, 2), NULL, last) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(apply(a, zero, 4, D(1, 2, 2, 5 - last), NULL, last) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(mu_sparse_accumulator_take_grad(a, 1));
    }
}

// testEmptyShapeApply: how a scalar is applied, and how it is not.
static void slices_of_scalars(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){0});
    mu_tensor *nothing = mu_zeros(MU_I64, 1, D(0)), *zero = mu_constant(MU_I64, 0), *row = INDICES(0);
    for (int i = 0; i < 4; i++) {
        mu_tensor *shape = i % 2 ? nothing : NULL;
        mu_tensor *values = i < 2 ? VECTOR(1) : scalar(1);
        CHECK(mu_sparse_accumulator_apply_grad(a, i < 2 ? zero : row, values, shape, 0) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(mu_sparse_accumulator_apply_grad(a, row, VECTOR(1), nothing, 0) == MU_OK);
    CHECK(mu_sparse_accumulator_apply_grad(a, row, VECTOR(3), NULL, 0) == MU_OK);
    EXPECT(mu_sparse_accumulator_take_grad(a, 2), 0, 2, -1);
}

static void steps_and_types(void)
{
    static const mu_dtype types[] = {MU_F16, MU_F32, MU_F64};
    for (int i = 0; i < 3; i++) {
        mu_accumulator *a = mu_sparse_conditional_accumulator(types[i], .shape = &(mu_shape){2, {3, 3}});
        for (int e = 1; e < 3; e++) {
            mu_tensor *values = mu_cast(mu_multiply(mu_ones(MU_F32, 2, D(1, 3)), scalar(e)), types[i]);
            CHECK(mu_sparse_accumulator_apply_grad(a, INDICES(i), values, NULL, 0) == MU_OK);
        }
        EXPECT(mu_sparse_accumulator_take_grad(a, 1), i, 1.5, 1.5, 1.5, 3, 3);
    }
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    for (int step = 1000; step < 1005; step++) { // testAccumulatorSetGlobalStepPreventsAccumulation
        CHECK(mu_accumulator_set_global_step(a, step) == MU_OK);
        for (int x = 1000; x < 1005; x++)
            CHECK(mu_accumulator_apply_grad(a, scalar(x), x) == MU_OK);
        EXPECT(mu_of(mu_accumulator_take_grad(a, 1)), (step + 1004) / 2.0);
    }
    CHECK(mu_accumulator_apply_grad(a, mu_ones(MU_F32, 2, D(3, 2)), 2000) == MU_OK && mu_accumulator_take_grad(a, 1));
    CHECK(mu_accumulator_apply_grad(a, mu_ones(MU_F32, 1, D(4)), 2000) == MU_OK);
    CHECK(!mu_conditional_accumulator(MU_F32, .reduction_type = "sum"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_accumulator_take_grad(a, 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- Types --------------------------------------------------------------------------------------

typedef struct typed {
    mu_dtype dtype;
    int axis;
} typed;

// [r + 1, r + 2] in the given type.
static mu_tensor *two_of(mu_dtype dtype, int r) { return mu_cast(VECTOR(r + 1, r + 2), dtype); }

static mu_value *mean_of_own(mu_value *arguments, void *arg)
{
    const typed *t = arg;
    (void)arguments;
    return mu_of(mu_all_reduce(MU_MEAN, mu_cast(mu_add(id(), VECTOR(1, 2)), t->dtype)));
}

static mu_value *merge_mean(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    const typed *t = arg;
    mu_value *x = mu_value_at(arguments, 0);
    return t->axis < 0 ? mu_reduce(strategy, MU_MEAN, x) : mu_reduce(strategy, MU_MEAN, x, t->axis);
}

static mu_value *mean_in_merge(mu_value *arguments, void *arg)
{
    const typed *t = arg;
    (void)arguments;
    return mu_merge_call(merge_mean, arg, mu_list(mu_cast(mu_add(id(), VECTOR(1, 2)), t->dtype), MU_END));
}

#define EXPECT_TYPE(value, wanted) CHECK(mu_tensor_dtype(mu_value_tensor(value)) == (wanted))

// Integers are divided as mu_divide does: 32 and 64 bits give float64, fewer float32.
static void means_of_integers(void)
{
    static const mu_dtype types[][2] = {{MU_I8, MU_F32},  {MU_U8, MU_F32},  {MU_I16, MU_F32},   {MU_I32, MU_F64},
                                        {MU_I64, MU_F64}, {MU_F16, MU_F16}, {MU_BF16, MU_BF16}, {MU_F64, MU_F64}};
    mu_strategy *s = mirrored(2);
    for (size_t i = 0; i < MU_COUNT(types); i++) {
        typed t = {types[i][0], -1};
        mu_value *parts = per_replica_of(2, (mu_tensor *[]){two_of(t.dtype, 0), two_of(t.dtype, 1)});
        mu_value *seen[] = {mu_reduce(s, MU_MEAN, parts), mu_reduce_to(s, MU_MEAN, parts),
                            mu_cross_device_reduce(mu_hierarchical_copy(1), MU_MEAN, parts, mu_of(scalar(0)))};
        for (size_t k = 0; k < MU_COUNT(seen); k++) {
            EXPECT_TYPE(seen[k], types[i][1]);
            EXPECT(seen[k], 1.5, 2.5);
        }
        EXPECT_TYPE(mu_reduce(s, MU_MEAN, parts, 0), types[i][1]);
        for (int k = 0; k < 4; k++) {
            replica_fn *fn = k / 2 ? mean_in_merge : mean_of_own;
            mu_value *all = mu_local_results(s, k % 2 ? traced(s, fn, &t) : eager(s, fn, &t));
            EXPECT_TYPE(mu_value_at(all, 0), types[i][1]);
            EXPECT(mu_value_at(all, mu_value_count(all) - 1), 1.5, 2.5);
        }
    }
}

// What an only replica has is returned as it is: its type, by MEAN too, and along any axis that it has or has not.
static void an_only_replica(void)
{
    mu_strategy *kinds[] = {mirrored(1), mu_one_device_strategy("CPU:0"), mu_default_strategy()};
    for (size_t i = 0; i < MU_COUNT(kinds); i++) {
        typed t = {MU_I32, -1};
        for (int k = 0; k < 2; k++) {
            mu_value *seen = k ? traced(kinds[i], mean_of_own, &t) : eager(kinds[i], mean_of_own, &t);
            EXPECT_TYPE(seen, MU_I32);
            EXPECT(seen, 1, 2);
        }
        mu_value *own = i < 2 ? per_replica_of(1, (mu_tensor *[]){VECTOR(3, 4)}) : mu_of(VECTOR(3, 4));
        EXPECT(mu_strategy_gather(kinds[i], own, 7), 3, 4);
        EXPECT(mu_strategy_gather(kinds[i], mu_of(scalar(5)), 0), 5);
    }
}

const one_case pin_reduction_cases[] = {
    {"pin_means_of_integers", means_of_integers, NULL},
    {"pin_an_only_replica", an_only_replica, NULL},
    {"pin_reductions_of_variables", reductions_of_variables, NULL},
    {"pin_slices_of_other_lengths", slices_of_other_lengths, NULL},
    {"pin_mixed_reductions", mixed_reductions, NULL},
    {"pin_failing_replicas", failing_replicas, NULL},
    {"pin_shapes_of_slices", shapes_of_slices, NULL},
    {"pin_slices_of_scalars", slices_of_scalars, NULL},
    {"pin_steps_and_types", steps_and_types, NULL},
    {0},
};
