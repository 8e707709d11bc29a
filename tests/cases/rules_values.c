// Rules of the guide to TensorFlow's core, sections 4 to 7 and 13, that no numbered case covers: reduce, gather, local
// results, replica contexts, kinds of values. Where the guide leaves a choice TensorFlow 2.21 was asked.
#include "cases.h"

static mu_strategy *all_kinds[5];
enum { MIRRORED, CENTRAL, ONE, ONE_DEVICE, DEFAULT, KINDS };

static void make_all(void)
{
    all_kinds[MIRRORED] = mirrored(2);
    all_kinds[CENTRAL] = mu_central_storage_strategy(.replicas = 2);
    all_kinds[ONE] = mirrored(1);
    all_kinds[ONE_DEVICE] = mu_one_device_strategy("CPU:0");
    all_kinds[DEFAULT] = mu_default_strategy();
}

static mu_tensor *ints(int n, const double *values, mu_dtype dtype) { return mu_cast(vector(n, values), dtype); }

static mu_tensor *square(double first)
{
    return mu_reshape(VECTOR(first, first + 1, first + 2, first + 3), 2, (int64_t[]){2, 2});
}

static mu_value *variable_leaf(mu_variable *variable) { return mu_value_at(mu_variables(variable, MU_END), 0); }

static mu_value *mirror_of(mu_strategy *s, mu_tensor *tensor)
{
    return mu_broadcast_to_devices(s, mu_of(tensor), PER_REPLICA(0, 0));
}

// ---- Section 4: reduce --------------------------------------------------------------------------

static void nested_reduce(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *nest = mu_map("a", PER_REPLICA(1, 2), "b", mu_list(PER_REPLICA(3, 4), scalar(0), MU_END), MU_END);
    mu_value *sum = mu_reduce(s, MU_SUM, nest);
    EXPECT(mu_value_get(sum, "a"), 3);
    EXPECT(mu_value_get(sum, "b"), 7, 0);
    EXPECT(mu_reduce(s, MU_MEAN, nest), 1.5, 3.5, 0);
}

static void weights_of_elements(void)
{
    mu_strategy *s = mirrored(3);
    mu_tensor *parts[] = {VECTOR(1, 2, 3), VECTOR(6), mu_tensor_new(MU_F32, 1, (int64_t[]){0}, NULL)};
    EXPECT(mu_reduce(s, MU_MEAN, per_replica_of(3, parts), 0), 3);
    EXPECT(mu_reduce(s, MU_SUM, per_replica_of(3, parts), 0), 12);
    EXPECT(mu_reduce(s, MU_MEAN, PER_REPLICA(2, 6, 1)), 3); // by replicas, whatever they had
}

static void several_axes(void)
{
    static const int both[] = {0, 1}, turned[] = {-1, 0}, twice[] = {0, -2}, far[] = {0, 2};
    mu_strategy *s = mirrored(2);
    mu_tensor *parts[] = {square(0), square(1)};
    mu_value *value = per_replica_of(2, parts);
    EXPECT(mu_reduce(s, MU_MEAN, value, .axes = both, .n_axes = 2), 2);
    EXPECT(mu_reduce(s, MU_SUM, value, .axes = turned, .n_axes = 2), 16);
    EXPECT(mu_reduce(s, MU_SUM, value, .axes = both, .n_axes = 1), 6, 10);
    CHECK(!mu_reduce(s, MU_SUM, value, .axes = twice, .n_axes = 2));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_reduce(s, MU_MEAN, value, .axes = far, .n_axes = 2));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_reduce(s, MU_MEAN, value, .axes = both, .n_axes = 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_reduce(s, MU_MEAN, value, .axes = NULL, .n_axes = 2));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void axes_that_are_not(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *parts[] = {square(0), square(1)};
    for (int op = MU_SUM; op <= MU_MEAN; op++) {
        CHECK(!mu_reduce(s, (mu_reduce_op)op, per_replica_of(2, parts), 2));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(!mu_reduce(s, (mu_reduce_op)op, PER_REPLICA(1, 2), 0));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(!mu_reduce(s, (mu_reduce_op)2, PER_REPLICA(1, 2)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_reduce(s, (mu_reduce_op)7, per_replica_of(2, parts), 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// Integers: sums stay what they are, means are float64.
static void integer_reduce(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 2; i++) {
        const mu_dtype dtype = i ? MU_I64 : MU_I32;
        mu_tensor *parts[] = {ints(2, (double[]){0, 1}, dtype), ints(2, (double[]){1, 2}, dtype)};
        mu_value *value = per_replica_of(2, parts), *sum = mu_reduce(s, MU_SUM, value),
                 *mean = mu_reduce(s, MU_MEAN, value);
        EXPECT(sum, 1, 3);
        EXPECT(mean, .5, 1.5);
        CHECK(mu_tensor_dtype(mu_value_tensor(sum)) == dtype && mu_tensor_dtype(mu_value_tensor(mean)) == MU_F64);
        mean = mu_reduce(s, MU_MEAN, value, 0);
        EXPECT(mean, 1);
        CHECK(mu_tensor_dtype(mu_value_tensor(mean)) == MU_F64);
        CHECK(mu_tensor_dtype(mu_value_tensor(mu_reduce(s, MU_SUM, value, 0))) == dtype);
    }
}

// A value that is the same everywhere.
static void same_everywhere(void)
{
    mu_value *five = mu_of(scalar(5)), *pair = mu_of(VECTOR(1, 2));
    make_all();
    for (int k = 0; k < KINDS; k++) {
        mu_strategy *s = all_kinds[k];
        const int n = mu_num_replicas_in_sync(s);
        EXPECT(mu_reduce(s, MU_MEAN, five), 5);
        EXPECT(mu_reduce(s, MU_SUM, pair, 0), 3 * n);
        EXPECT(mu_reduce(s, MU_MEAN, pair, 0), 1.5);
        EXPECT(mu_reduce(s, MU_SUM, mu_of(scalar(0))), 0);
        if (n == 1) {
            EXPECT(mu_reduce(s, MU_SUM, five), 5);
            continue;
        }
        CHECK(!mu_reduce(s, MU_SUM, five));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(!mu_reduce(s, MU_SUM, mu_of(VECTOR(0, 0))));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

static void mirrored_values(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *m = mirror_of(s, VECTOR(1, 2)),
             *v = variable_leaf(variable(s, VECTOR(1, 2), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE));
    CHECK(mu_value_kind_of(m) == MU_VALUE_MIRRORED);
    for (int i = 0; i < 2; i++) {
        mu_value *value = i ? v : m;
        EXPECT(mu_reduce(s, MU_MEAN, value), 1, 2);
        CHECK(!mu_reduce(s, MU_SUM, value));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        EXPECT(mu_reduce(s, MU_SUM, value, 0), 6);
        EXPECT(mu_reduce(s, MU_MEAN, value, 0), 1.5);
    }
    mu_value *read = variable_leaf(on_read(s, 2, MU_AGGREGATION_MEAN));
    EXPECT(mu_reduce(s, MU_SUM, read), 4);
    EXPECT(mu_reduce(s, MU_MEAN, read), 2);
}

static void central_variables(void)
{
    mu_strategy *s = mu_central_storage_strategy(.replicas = 2);
    for (int i = 0; i < 2; i++) {
        mu_value *v = variable_leaf(i ? on_read(s, 3, MU_AGGREGATION_SUM) : on_write(s, 3, MU_AGGREGATION_SUM));
        EXPECT(mu_reduce(s, MU_MEAN, v), 3);
        CHECK(!mu_reduce(s, MU_SUM, v));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        EXPECT(mu_local_results(s, v), 3);
    }
}

// ---- Section 5: gather --------------------------------------------------------------------------

static void gather_of_all_kinds(void)
{
    mu_value *plain = mu_of(VECTOR(1, 2));
    make_all();
    for (int k = 0; k < KINDS; k++) {
        EXPECT(mu_strategy_gather(all_kinds[k], plain, 0), 1, 2);
        EXPECT(mu_strategy_gather(all_kinds[k], mu_of(scalar(1)), 3), 1); // the axis is not looked at
    }
    mu_strategy *s = all_kinds[MIRRORED];
    EXPECT(mu_strategy_gather(s, mirror_of(s, VECTOR(1, 2)), 0), 1, 2, 1, 2);
    mu_value *v = variable_leaf(variable(s, VECTOR(1, 2), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE));
    EXPECT(mu_strategy_gather(s, v, 0), 1, 2, 1, 2);
    mu_tensor *parts[] = {VECTOR(1), VECTOR(2, 3)};
    mu_value *nest = mu_list(per_replica_of(2, parts), plain, MU_END);
    EXPECT(mu_strategy_gather(s, nest, 0), 1, 2, 3, 1, 2);
}

static mu_value *gather_part(mu_value *arguments, void *arg)
{
    return mu_all_gather_value(mu_value_at(arguments, 0), *(int *)arg);
}

static void wrong_gathers(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *wide[] = {square(0), mu_reshape(VECTOR(1, 2, 3), 2, (int64_t[]){1, 3})};
    mu_tensor *parts[] = {VECTOR(1, 2), VECTOR(3, 4)};
    mu_value *wrong[] = {per_replica_of(2, wide), PER_REPLICA(1, 2), per_replica_of(2, parts)};
    int axes[] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        CHECK(!mu_strategy_gather(s, wrong[i], axes[i]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(!mu_run_callback(s, gather_part, &axes[i], mu_list(wrong[i], MU_END)));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

static mu_value *gather_nest(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *own = mu_expand_dims(id(), 0);
    return mu_all_gather_value(mu_map("a", own, "b", mu_list(mu_add(own, VECTOR(10)), MU_END), MU_END), 0);
}

static void all_gather_of_nests(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 2; i++) {
        mu_value *result = (i ? traced : eager)(s, gather_nest, NULL);
        EXPECT(mu_value_at(mu_local_results(s, result), 1), 0, 1, 10, 11);
    }
    EXPECT(eager(mu_one_device_strategy("CPU:0"), gather_nest, NULL), 0, 10);
    EXPECT(gather_nest(NULL, NULL), 0, 10);
}

// ---- Section 6: local results, values from a function -------------------------------------------

static void local_results(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_read(s, 1, MU_AGGREGATION_MEAN);
    mu_value *plain = mu_list(scalar(1), scalar(2), MU_END);
    mu_value *nest = mu_map("a", PER_REPLICA(3, 4), "b", scalar(5), "c", variable_leaf(v), MU_END);
    CHECK(mu_value_count(mu_local_results(s, plain)) == 2);
    EXPECT(mu_local_results(s, plain), 1, 2, 1, 2);
    mu_value *local = mu_local_results(s, nest);
    EXPECT(mu_value_at(local, 0), 3, 5, 1);
    EXPECT(mu_value_get(mu_value_at(local, 1), "a"), 4);
    CHECK(mu_value_count(mu_local_results(s, mu_of(scalar(1)))) == 1);
    mu_value *one = mu_local_results(mu_one_device_strategy("CPU:0"), plain);
    CHECK(mu_value_count(one) == 1 && mu_value_at(one, 0) == plain);
    CHECK(mu_value_count(mu_local_results(mu_default_strategy(), plain)) == 1);
}

static mu_value *same_for_all(const mu_value_context *context, void *arg)
{
    CHECK(context->replica_id >= 0 && context->replica_id < context->num_replicas);
    return mu_list((mu_tensor *)arg, mu_map("id", scalar(context->replica_id), MU_END), MU_END);
}

// Always per replica, though equal; bare where there is only ever one.
static void values_from_function(void)
{
    make_all();
    for (int k = 0; k < KINDS; k++) {
        mu_value *made = mu_distribute_values(all_kinds[k], same_for_all, scalar(1));
        const mu_value_kind kind = k < ONE_DEVICE ? MU_VALUE_PER_REPLICA : MU_VALUE_TENSOR;
        CHECK(mu_value_kind_of(mu_value_at(made, 0)) == kind);
        CHECK(mu_value_kind_of(mu_value_get(mu_value_at(made, 1), "id")) == kind);
    }
    EXPECT(mu_distribute_values(all_kinds[MIRRORED], same_for_all, scalar(1)), 1, 1, 0, 1);
}

// ---- Section 7: replica contexts ----------------------------------------------------------------

static mu_value *reduce_own(mu_value *arguments, void *arg)
{
    (void)arguments;
    const mu_dtype dtype = *(mu_dtype *)arg;
    mu_tensor *own = mu_cast(mu_add(id(), scalar(1)), dtype);
    mu_tensor *sum = mu_all_reduce(MU_SUM, own), *mean = mu_all_reduce(MU_MEAN, own);
    CHECK(mu_tensor_dtype(sum) == dtype && mu_tensor_dtype(mean) == (mu__dtype_is_float(dtype) ? dtype : MU_F64));
    return mu_list(sum, mean, MU_END);
}

static void all_reduce_types(void)
{
    static mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I32, MU_I64};
    for (size_t i = 0; i < MU_COUNT(dtypes); i++) {
        EXPECT(eager(mirrored(2), reduce_own, &dtypes[i]), 3, 3, 1.5, 1.5);
        EXPECT(traced(mirrored(2), reduce_own, &dtypes[i]), 3, 3, 1.5, 1.5);
    }
}

static mu_value *reduce_in_order(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *wide = mu_add(square(0), id());
    mu_value *map = mu_map("x", mu_cast(wide, MU_F64), "y", mu_add(id(), scalar(10)), MU_END);
    return mu_all_reduce_value(MU_MEAN, mu_list(id(), map, wide, MU_END));
}

static void order_of_leaves(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 2; i++) {
        mu_value *result = (i ? traced : eager)(s, reduce_in_order, NULL);
        EXPECT(mu_value_at(mu_local_results(s, result), 1), .5, .5, 1.5, 2.5, 3.5, 10.5, .5, 1.5, 2.5, 3.5);
    }
}

static mu_value *reduce_variables(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable *const *both = arg;
    mu_variable_assign(both[1], id());
    return mu_all_reduce_value(MU_SUM, mu_variables(both[0], both[1], MU_END));
}

static void all_reduce_of_variables(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *both[] = {on_write(s, 3, MU_AGGREGATION_NONE), on_read(s, 9, MU_AGGREGATION_MEAN)};
    EXPECT(eager(s, reduce_variables, both), 6, 6, 1, 1);
    EXPECT(traced(s, reduce_variables, both), 6, 6, 1, 1);
}

static void collectives_elsewhere(void)
{
    mu_strategy *s = mirrored(2);
    EXPECT(mu_of(mu_all_reduce(MU_SUM, scalar(3))), 3); // the default strategy's one replica
    EXPECT(mu_of(mu_all_gather(VECTOR(3), 0)), 3);
    MU_SCOPE(s) {
        CHECK(!mu_all_reduce(MU_SUM, scalar(3)));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_all_gather(VECTOR(3), 0));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_all_reduce_value(MU_SUM, mu_list(scalar(3), MU_END)));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
    CHECK(!mu_all_reduce((mu_reduce_op)2, scalar(3)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- Section 13: kinds of values ----------------------------------------------------------------

static mu_value *use_from_outside(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *own = mu_value_tensor(arg);
    return own ? mu_of(mu_add(own, scalar(1))) : NULL;
}

// A per-replica value yields each replica's component inside, and nothing outside.
static void per_replica_inside(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *p = PER_REPLICA(1, 2);
    EXPECT(eager(s, use_from_outside, p), 2, 3);
    CHECK(!use_from_outside(NULL, p));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    MU_SCOPE(s) {
        CHECK(!use_from_outside(NULL, p));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(!traced(s, use_from_outside, p));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void mirrored_anywhere(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *m = mirror_of(s, scalar(4));
    EXPECT(use_from_outside(NULL, m), 5);
    MU_SCOPE(s)
        EXPECT(use_from_outside(NULL, m), 5);
    EXPECT(eager(s, use_from_outside, m), 5, 5);
    EXPECT(traced(s, use_from_outside, m), 5, 5);
}

const one_case rule_value_cases[] = {
    {"rule_core_4_nests", nested_reduce, NULL},
    {"rule_core_4_weights", weights_of_elements, NULL},
    {"rule_core_4_several_axes", several_axes, NULL},
    {"rule_core_4_wrong_axes", axes_that_are_not, NULL},
    {"rule_core_4_integers", integer_reduce, NULL},
    {"rule_core_4_same_everywhere", same_everywhere, NULL},
    {"rule_core_4_mirrored", mirrored_values, NULL},
    {"rule_core_4_central_variables", central_variables, NULL},
    {"rule_core_5_kinds", gather_of_all_kinds, NULL},
    {"rule_core_5_wrong", wrong_gathers, NULL},
    {"rule_core_5_nests", all_gather_of_nests, NULL},
    {"rule_core_6_local_results", local_results, NULL},
    {"rule_core_6_values_from_function", values_from_function, NULL},
    {"rule_core_7_types", all_reduce_types, NULL},
    {"rule_core_7_order", order_of_leaves, NULL},
    {"rule_core_7_variables", all_reduce_of_variables, NULL},
    {"rule_core_7_elsewhere", collectives_elsewhere, NULL},
    {"rule_core_13_per_replica", per_replica_inside, NULL},
    {"rule_core_13_mirrored", mirrored_anywhere, NULL},
    {0},
};
