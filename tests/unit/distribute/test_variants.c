// Variations of the numbered cases: other types, counts and contexts.
#include "variable_of.h"

static double component(mu_variable *variable, int i) { return mu_scalar(mu__variable_component(variable, i)); }

static mu_value *run(mu_strategy *strategy, bool traced, mu_value *(*fn)(mu_value *, void *), void *arg)
{
    return traced ? mu_run(strategy, mu_function_new(fn, arg), NULL) : mu_run_callback(strategy, fn, arg, NULL);
}

static mu_tensor *id(void) { return mu_cast(mu_replica_id(), MU_F64); }

// ---- Variables ----------------------------------------------------------------------------------

// A value assigned outside of replicas is divided among the components; integers truncate.
static void integer_sums_truncate(void **state)
{
    (void)state;
    static const int wanted[][3] = {{2, 7, 6}, {3, 7, 6}, {3, -7, -6}, {4, 3, 0}, {2, -1, 0}};
    for (size_t k = 0; k < MU_COUNT(wanted); k++) {
        mu_variable *v = variable_of(strategy_of(wanted[k][0]), mu_constant(MU_I64, 1), MU_SYNCHRONIZATION_ON_READ,
                                     MU_AGGREGATION_SUM);
        assert_true(mu_scalar(mu_variable_read(v)) == wanted[k][0]);
        assert_int_equal(mu_variable_assign(v, mu_constant(MU_I64, wanted[k][1])), MU_OK);
        assert_true(mu_scalar(mu_variable_read(v)) == wanted[k][2]);
    }
}

static void on_read_means_of_integers_are_fractions(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_variable *v = variable_of(strategy, mu_constant(MU_F64, 1), MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_MEAN);
    assert_int_equal(mu_variable_assign_add(v, mu_constant(MU_F64, 4)), MU_OK);
    assert_int_equal(mu_variable_assign_sub(v, mu_constant(MU_F64, 2)), MU_OK);
    assert_true(component(v, 0) == 3 && component(v, 1) == 3 && mu_scalar(mu_variable_read(v)) == 3);
    mu_variable *none = variable_of(strategy, mu_constant(MU_F64, 1), MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_NONE);
    assert_int_equal(mu_variable_assign_add(none, mu_constant(MU_F64, 4)), MU_OK);
    assert_true(component(none, 0) == 5 && component(none, 1) == 5);
    assert_null(mu_variable_read(none));
    expect_error(MU_INVALID_ARGUMENT, "NONE");
}

typedef struct chain {
    mu_variable *variable;
    mu_tensor *constant;
} chain;

static mu_value *assign_fusion(mu_value *arguments, void *arg)
{
    (void)arguments;
    const chain *c = arg;
    mu_variable_assign_add(c->variable, id());
    mu_variable_assign(c->variable, mu_multiply(mu_variable_read(c->variable), mu_constant(MU_F64, 2)));
    mu_variable_assign_sub(c->variable, mu_add(id(), mu_constant(MU_F64, 1)));
    return mu_of(mu_variable_read(c->variable));
}

// An assignment first combines the replicas' changes and then applies the result to each component; reads after it see
// that.
static void fusions_of_assignments_agree(void **state)
{
    (void)state;
    // Three replicas, from 10: ids 0, 1, 2.
    static const double wanted[4][3] = {
        {10 * 2 - 1, 11 * 2 - 2, 12 * 2 - 3},                               // each for itself
        {(10 + 3) * 2 * 3 - 6, (10 + 3) * 2 * 3 - 6, (10 + 3) * 2 * 3 - 6}, // sums
        {(10 + 1) * 2 - 2, (10 + 1) * 2 - 2, (10 + 1) * 2 - 2},             // means
        {10 * 2 - 1, 10 * 2 - 1, 10 * 2 - 1},                               // the first one's
    };
    for (int aggregation = 0; aggregation < 4; aggregation++)
        for (int traced = 0; traced < 2; traced++) {
            mu_strategy *strategy = strategy_of(3);
            chain c = {variable_of(strategy, mu_constant(MU_F64, 10), MU_SYNCHRONIZATION_ON_WRITE,
                                   (mu_variable_aggregation)aggregation),
                       NULL};
            mu_value *seen = run(strategy, traced, assign_fusion, &c);
            for (int r = 0; r < 3; r++) {
                assert_true(on_replica(strategy, seen, r) == wanted[aggregation][r]);
                assert_true(component(c.variable, r) == wanted[aggregation][r]);
            }
        }
}

static mu_value *assign_constant(mu_value *arguments, void *arg)
{
    (void)arguments;
    const chain *c = arg;
    return mu_variable_assign(c->variable, c->constant) == MU_OK ? mu_of(mu_variable_read(c->variable)) : NULL;
}

// One tensor from outside is the same everywhere: it has no sum, and integers have a mean.
static void tensors_from_outside_are_one_value(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    for (int traced = 0; traced < 2; traced++)
        for (int aggregation = 0; aggregation < 4; aggregation++) {
            chain c = {variable_of(strategy, mu_constant(MU_I64, 1), MU_SYNCHRONIZATION_AUTO,
                                   (mu_variable_aggregation)aggregation),
                       mu_constant(MU_I64, 9)};
            mu_value *seen = run(strategy, traced, assign_constant, &c);
            if (aggregation == MU_AGGREGATION_SUM) {
                assert_null(seen);
                expect_error(MU_INVALID_ARGUMENT, "SUM");
                continue;
            }
            assert_true(on_replica(strategy, seen, 1) == 9 && component(c.variable, 0) == 9 &&
                        component(c.variable, 1) == 9);
        }
}

// ---- Scatter ------------------------------------------------------------------------------------

static mu_tensor *rows(int64_t n, const int32_t *values) { return mu_tensor_new(MU_I32, 1, &n, values); }

static void scatters_outside_touch_every_copy_once(void **state)
{
    (void)state;
    for (int aggregation = 0; aggregation < 4; aggregation++) {
        mu_variable *v = variable_of(strategy_of(3), vector(3, (double[]){1, 2, 3}), MU_SYNCHRONIZATION_AUTO,
                                     (mu_variable_aggregation)aggregation);
        assert_int_equal(mu_variable_scatter_add(v, rows(2, (int32_t[]){0, 0}), vector(2, (double[]){5, 7})), MU_OK);
        assert_int_equal(mu_variable_scatter_mul(v, rows(1, (int32_t[]){2}), vector(1, (double[]){-2})), MU_OK);
        for (int c = 0; c < 3; c++)
            assert_near(doubles(mu__variable_component(v, c)), (double[]){13, 2, -6}, 3, 0);
        assert_int_equal(mu_variable_scatter_sub(v, rows(1, (int32_t[]){3}), vector(1, (double[]){1})),
                         MU_INVALID_ARGUMENT);
        expect_error(MU_INVALID_ARGUMENT, "index 3");
    }
}

static mu_value *scatter_unequal(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    return mu_variable_scatter_sub(arg, mu_cast(x, MU_I32), x) == MU_OK ? mu_of(mu_variable_read(arg)) : NULL;
}

// The slices of all replicas one after the other, however many each has; a mean divides by the number of replicas.
static void scatters_take_unequal_numbers(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    for (int traced = 0; traced < 2; traced++)
        for (mu_variable_aggregation a = MU_AGGREGATION_SUM; a <= MU_AGGREGATION_MEAN; a++) {
            mu_variable *v = variable_of(strategy, mu_zeros(MU_F64, 1, (int64_t[]){4}), MU_SYNCHRONIZATION_AUTO, a);
            mu_value *parts = uneven(2, (int64_t[]){3, 1});
            assert_non_null(traced ? mu_run(strategy, mu_function_new(scatter_unequal, v), parts)
                                   : mu_run_callback(strategy, scatter_unequal, v, parts));
            const double n = a == MU_AGGREGATION_MEAN ? 2 : 1;
            for (int c = 0; c < 2; c++)
                assert_near(doubles(mu__variable_component(v, c)), (double[]){0, -1 / n, -2 / n, -3 / n}, 4, 0);
        }
}

// ---- Reductions and gathers ---------------------------------------------------------------------

static void reductions_of_other_types(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_value *integers = scalars_of(3, MU_I32, (double[]){1, 2, 5}),
             *float16s = scalars_of(3, MU_F16, (double[]){1, 2, 4.5});
    assert_int_equal(mu_tensor_dtype(mu_value_tensor(mu_reduce(strategy, MU_SUM, integers))), MU_I32);
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, integers)) == 8);
    assert_number(mu_scalar(mu_reduce(strategy, MU_MEAN, integers)), 8 / 3., 1e-15);
    assert_int_equal(mu_tensor_dtype(mu_value_tensor(mu_reduce(strategy, MU_MEAN, float16s))), MU_F16);
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, float16s)) == 2.5);
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, mu_of(mu_constant(MU_I64, 0)))) == 0);
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, mu_of(mu_constant(MU_I64, 7)))) == 7);
    assert_null(mu_reduce(strategy, MU_SUM, mu_of(mu_constant(MU_I64, 7))));
    expect_error(MU_INVALID_ARGUMENT, "not per replica");
}

static void axes_of_unequal_parts(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_value *parts = uneven(3, (int64_t[]){4, 0, 1}); // 0 1 2 3 | | 4
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, parts, 0)) == 10);
    assert_true(mu_scalar(mu_reduce(strategy, MU_MEAN, parts, -1)) == 2);
    for (mu_reduce_op op = MU_SUM; op <= MU_MEAN; op++) {
        assert_null(mu_reduce(strategy, op, parts, 1));
        expect_error(MU_INVALID_ARGUMENT, "axis");
    }
    assert_null(mu_reduce(strategy, MU_SUM, parts));
    expect_error(MU_INVALID_ARGUMENT, "shape");
}

static void gathers_need_an_axis_in_common(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    assert_null(mu_strategy_gather(strategy, scalars_of(2, MU_F64, (double[]){1, 2}), 0));
    assert_true(mu_error_take().code == MU_INVALID_ARGUMENT);
    mu_value *wide[] = {mu_of(mu_ones(MU_F64, 2, (int64_t[]){2, 3})), mu_of(mu_ones(MU_F64, 2, (int64_t[]){2, 1}))};
    mu_value *both = mu__give(mu__value_container(MU_VALUE_PER_REPLICA, 2, wide, NULL));
    assert_null(mu_strategy_gather(strategy, both, 0));
    expect_error(MU_INVALID_ARGUMENT, "replica 0 has float64[2, 3], but replica 1 has float64[2, 1]");
    assert_null(mu_strategy_gather(strategy, both, 2));
    expect_error(MU_INVALID_ARGUMENT, "mu_strategy_gather: axis 2 is outside -2 to 1");
    mu_value *types[] = {mu_of(mu_ones(MU_F64, 1, (int64_t[]){3})), mu_of(mu_ones(MU_F32, 1, (int64_t[]){3}))};
    assert_null(mu_strategy_gather(strategy, mu__give(mu__value_container(MU_VALUE_PER_REPLICA, 2, types, NULL)), -1));
    expect_error(MU_INVALID_ARGUMENT, "along axis -1: replica 0 has float64[3], but replica 1 has float32[3]");
    mu_tensor *whole = mu_value_tensor(mu_strategy_gather(strategy, both, 1));
    assert_true(mu_tensor_dim(whole, 0) == 2 && mu_tensor_dim(whole, 1) == 4);
}

// ---- Packs --------------------------------------------------------------------------------------

// A pack ends once it is larger than the limit, whatever tensor comes next.
static void packs_end_when_they_are_larger(void **state)
{
    (void)state;
    static const int64_t bytes[] = {5, 1, 1, 10, 2, 2, 2};
    static const struct {
        int64_t limit;
        int wanted[7];
    } cases[] = {{0, {0}},
                 {1, {0, 1, 1, 2, 3, 4, 5}},
                 {2, {0, 1, 1, 1, 2, 2, 3}},
                 {4, {0, 1, 1, 1, 2, 2, 2}},
                 {6, {0, 0, 0, 1, 2, 2, 2}},
                 {7, {0, 0, 0, 0, 1, 1, 1}},
                 {100, {0}}};
    for (size_t k = 0; k < MU_COUNT(cases); k++) {
        int pack[7];
        const int n = mu__group_by_size(7, bytes, cases[k].limit, pack);
        assert_memory_equal(pack, cases[k].wanted, sizeof pack);
        assert_int_equal(n, cases[k].wanted[6] + 1);
    }
    assert_int_equal(mu__group_by_size(0, bytes, 4, NULL), 0);
}

static void packs_of_equal_size(void **state)
{
    (void)state;
    static const struct {
        int64_t total;
        int packs;
        int64_t wanted[4];
    } cases[] = {{12, 4, {3, 3, 3, 3}}, {13, 4, {3, 3, 3, 4}}, {3, 4, {0, 0, 0, 3}},
                 {0, 2, {0, 0}},        {7, 1, {7}},           {15, 4, {3, 3, 3, 6}}};
    for (size_t k = 0; k < MU_COUNT(cases); k++) {
        int64_t sizes[4] = {0};
        mu__pack_sizes(cases[k].total, cases[k].packs, sizes);
        assert_memory_equal(sizes, cases[k].wanted, sizeof sizes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(integer_sums_truncate),
        MODEL_TEST(on_read_means_of_integers_are_fractions),
        MODEL_TEST(fusions_of_assignments_agree),
        MODEL_TEST(tensors_from_outside_are_one_value),
        MODEL_TEST(scatters_outside_touch_every_copy_once),
        MODEL_TEST(scatters_take_unequal_numbers),
        MODEL_TEST(reductions_of_other_types),
        MODEL_TEST(axes_of_unequal_parts),
        MODEL_TEST(gathers_need_an_axis_in_common),
        MODEL_TEST(packs_end_when_they_are_larger),
        MODEL_TEST(packs_of_equal_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
