// Core cases C, D and E: reduce, all_reduce, gather and all_gather.
#include "cases.h"

static mu_value *own_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_cast(mu_replica_id(), *(mu_dtype *)arg));
}

static void core_034(void)
{
    mu_dtype dtype = MU_I32;
    for (int n = 1; n <= 4; n++) {
        mu_strategy *s = mirrored(n);
        EXPECT(mu_reduce(s, MU_SUM, eager(s, own_id, &dtype)), n * (n - 1) / 2);
        EXPECT(mu_reduce(s, MU_SUM, traced(s, own_id, &dtype)), n * (n - 1) / 2);
    }
}

static mu_value *plus_and_minus(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(mu_add(x, scalar(1)), mu_subtract(x, scalar(1)), MU_END);
}

static void core_035(void)
{
    mu_strategy *s = mirrored(3);
    EXPECT(mu_reduce(s, MU_SUM, mu_run_callback(s, plus_and_minus, NULL, mu_of(scalar(3)))), 12, 6);
}

static void core_037(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *parts[] = {mu_cast(VECTOR(1, 0), MU_I32), mu_cast(VECTOR(1), MU_I32)};
    mu_value *mean = mu_reduce(s, MU_MEAN, per_replica_of(2, parts), 0);
    EXPECT(mean, 2.0 / 3);
}

static void core_038(void)
{
    mu_strategy *s = mirrored(3);
    mu_tensor *parts[] = {VECTOR(1, 2), VECTOR(1, 2), VECTOR(1, 2)};
    EXPECT(mu_reduce(s, MU_MEAN, per_replica_of(3, parts), 0), 1.5);
    EXPECT(mu_reduce(s, MU_SUM, per_replica_of(3, parts), 0), 9);
}

static mu_tensor *matrix(int64_t rows, int64_t columns, double value)
{
    const int64_t dims[] = {rows, columns};
    return mu_fill(MU_F32, 2, dims, value);
}

static void core_040(void)
{
    mu_tensor *parts[] = {matrix(2, 2, 1), matrix(1, 2, 1)};
    EXPECT(mu_reduce(mirrored(2), MU_MEAN, per_replica_of(2, parts), 0), 1, 1);
}

static void core_041(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *parts[] = {VECTOR(0, 1, 2, 3), VECTOR(4, 5, 6, 7)};
    EXPECT(mu_reduce(s, MU_SUM, per_replica_of(2, parts)), 4, 6, 8, 10);
    EXPECT(mu_reduce(s, MU_SUM, per_replica_of(2, parts), 0), 28);
}

static mu_value *twice(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_of(mu_add(x, x));
}

static void core_043(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *parts[] = {VECTOR(5), mu_tensor_new(MU_F32, 1, (int64_t[]){0}, NULL)};
    mu_value *x = per_replica_of(2, parts);
    EXPECT(mu_run(s, mu_function_new(twice, NULL), x), 10);
    EXPECT(mu_run_callback(s, twice, NULL, x), 10);
    EXPECT(mu_reduce(s, MU_SUM, x, 0), 5);
    EXPECT(mu_reduce(s, MU_MEAN, x, 0), 5);
}

static void core_044(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *parts[] = {VECTOR(1, 2), VECTOR(3)};
    mu_value *x = per_replica_of(2, parts);
    EXPECT(mu_reduce(s, MU_MEAN, x, -1), 2);
    CHECK(!mu_reduce(s, MU_MEAN, x, 1));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_reduce(s, MU_MEAN, x, -2));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void core_046(void)
{
    mu_strategy *s = mirrored(2);
    CHECK(!mu_reduce(s, MU_SUM, mu_of(scalar(5))));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_reduce(s, MU_MEAN, mu_of(scalar(5))), 5);
    EXPECT(mu_reduce(s, MU_SUM, mu_of(scalar(0))), 0);
}

static void core_047(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *v = mu_value_at(mu_variables(on_write(s, 3, MU_AGGREGATION_NONE), MU_END), 0);
    EXPECT(mu_reduce(s, MU_MEAN, v), 3);
    CHECK(!mu_reduce(s, MU_SUM, v));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- all_reduce ---------------------------------------------------------------------------------

static mu_value *reduce_pair(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *x = mu_multiply(scalar(2), id()), *y = mu_add(VECTOR(20, 20.5), mu_multiply(scalar(2), id()));
    return mu_all_reduce_value(*(mu_reduce_op *)arg, mu_list(mu_add(x, scalar(1)), y, MU_END));
}

static void core_052(void)
{
    mu_reduce_op mean = MU_MEAN;
    EXPECT(eager(mirrored(2), reduce_pair, &mean), 2, 2, 21, 21.5, 21, 21.5);
    EXPECT(traced(mirrored(2), reduce_pair, &mean), 2, 2, 21, 21.5, 21, 21.5);
}

static mu_value *gradient_of_all_reduce(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *x = scalar(42);
    mu_tape *tape = mu_tape_open();
    mu_tensor *factor = mu_add(scalar(1), mu_multiply(scalar(2), id()));
    mu_tensor *y = mu_multiply(mu_all_reduce(*(mu_reduce_op *)arg, x), factor);
    return mu_gradients(tape, y, mu_of(x));
}

static void core_053(void)
{
    mu_reduce_op sum = MU_SUM, mean = MU_MEAN;
    mu_strategy *s = mirrored(2);
    EXPECT(eager(s, gradient_of_all_reduce, &sum), 4, 4);
    EXPECT(eager(s, gradient_of_all_reduce, &mean), 2, 2);
    EXPECT(traced(s, gradient_of_all_reduce, &sum), 4, 4);
    EXPECT(traced(s, gradient_of_all_reduce, &mean), 2, 2);
}

static mu_value *reduce_list(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_all_reduce_value(MU_SUM, mu_list(scalar(1), scalar(2), MU_END));
}

static void core_055(void)
{
    EXPECT(eager(mirrored(3), reduce_list, NULL), 3, 3, 3, 6, 6, 6);
    EXPECT(eager(mirrored(1), reduce_list, NULL), 1, 2);
}

static mu_value *slices(double row, double value)
{
    return mu_indexed_slices(mu_reshape(VECTOR(value), 2, (int64_t[]){1, 1}), INDICES(row), 2, (int64_t[]){5, 1});
}

static mu_value *reduce_nest(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_value *all = mu_all_reduce_value(MU_SUM, mu_list(scalar(1), slices(0, 1), scalar(2), slices(1, 2), MU_END));
    CHECK(all && all->items[1]->kind == MU_VALUE_SLICES && all->items[3]->kind == MU_VALUE_SLICES);
    return mu_list(all->items[0], mu_unsorted_segment_sum(mu_at(all->items[1], 0), mu_at(all->items[1], 1), 5),
                   all->items[2], mu_unsorted_segment_sum(mu_at(all->items[3], 0), mu_at(all->items[3], 1), 5), MU_END);
}

static void core_056(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *result = eager(s, reduce_nest, NULL);
    EXPECT(mu_value_at(mu_local_results(s, result), 0), 2, 2, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0);
    EXPECT(mu_value_at(mu_local_results(s, result), 1), 2, 2, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0);
}

static mu_value *reduce_variable(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *v = mu_value_at(mu_variables(arg, MU_END), 0);
    return mu_variable_assign(arg, mu_multiply(scalar(3), id())) == MU_OK ? mu_all_reduce_value(MU_SUM, v) : NULL;
}

static void core_058(void)
{
    mu_strategy *s = mirrored(3);
    mu_variable *v = on_read(s, 0, MU_AGGREGATION_ONLY_FIRST_REPLICA);
    EXPECT(eager(s, reduce_variable, v), 9, 9, 9);
    EXPECT(traced(s, reduce_variable, v), 9, 9, 9);
}

// ---- gather -------------------------------------------------------------------------------------

typedef struct gathering {
    mu_tensor *parts[4];
    int axis;
} gathering;

static mu_value *gather_all(mu_value *arguments, void *arg)
{
    const gathering *g = arg;
    return mu_of(mu_all_gather(mu_at(arguments, 0), g->axis));
}

static void core_059(void)
{
    mu_strategy *s = mirrored(3);
    gathering g = {.parts = {VECTOR(1, 2, 3), VECTOR(1, 2, 3), VECTOR(1, 2, 3)}};
    mu_value *parts = per_replica_of(3, g.parts);
    EXPECT(mu_strategy_gather(s, parts, 0), 1, 2, 3, 1, 2, 3, 1, 2, 3);
    EXPECT(mu_value_at(mu_local_results(s, mu_run_callback(s, gather_all, &g, parts)), 2), 1, 2, 3, 1, 2, 3, 1, 2, 3);
}

static void core_061(void)
{
    mu_strategy *s = mirrored(2);
    static const int64_t dims[] = {1, 2, 2};
    gathering g = {.parts = {mu_reshape(VECTOR(1, 2, 1, 2), 3, dims), mu_reshape(VECTOR(1, 2, 1, 2), 3, dims)}};
    mu_value *parts = per_replica_of(2, g.parts);
    for (g.axis = 0; g.axis < 3; g.axis++) {
        mu_value *both[] = {mu_strategy_gather(s, parts, g.axis),
                            mu_value_at(mu_local_results(s, mu_run_callback(s, gather_all, &g, parts)), 1)};
        for (int i = 0; i < 2 && both[0] && both[1]; i++) {
            EXPECT(both[i], 1, 2, 1, 2, 1, 2, 1, 2);
            const mu_shape shape = mu_tensor_shape(mu_value_tensor(both[i]));
            for (int a = 0; a < 3; a++)
                CHECK(shape.dims[a] == dims[a] * (a == g.axis ? 2 : 1));
        }
    }
}

static void core_062(void)
{
    mu_strategy *s = mirrored(3);
    gathering g = {.parts = {matrix(1, 1, 1), matrix(2, 1, 1), matrix(3, 1, 1)}};
    mu_value *parts = per_replica_of(3, g.parts);
    EXPECT(mu_strategy_gather(s, parts, 0), 1, 1, 1, 1, 1, 1);
    EXPECT(mu_value_at(mu_local_results(s, mu_run_callback(s, gather_all, &g, parts)), 0), 1, 1, 1, 1, 1, 1);
    gathering h = {.parts = {matrix(1, 1, 1), matrix(1, 2, 1), matrix(1, 3, 1)}, .axis = 1};
    parts = per_replica_of(3, h.parts);
    EXPECT(mu_strategy_gather(s, parts, 1), 1, 1, 1, 1, 1, 1);
    EXPECT(mu_value_at(mu_local_results(s, mu_run_callback(s, gather_all, &h, parts)), 1), 1, 1, 1, 1, 1, 1);
}

static void core_064(void)
{
    mu_strategy *s = mirrored(2);
    gathering g = {.parts = {VECTOR(1), matrix(1, 1, 1)}};
    mu_value *parts = per_replica_of(2, g.parts);
    CHECK(!mu_strategy_gather(s, parts, 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_run_callback(s, gather_all, &g, parts));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *gather_slices(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_all_gather_value(mu_value_at(arguments, 0), 0);
}

static void core_065(void)
{
    mu_strategy *s = mirrored(2);
    CHECK(!mu_strategy_gather(s, slices(0, 1), 0));
    EXPECT_ERROR(MU_UNIMPLEMENTED);
    CHECK(!mu_run_callback(s, gather_slices, NULL, mu_list(slices(0, 1), MU_END)));
    EXPECT_ERROR(MU_UNIMPLEMENTED);
}

static mu_value *gradient_of_all_gather(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *x = mu_reshape(VECTOR(3, 5), 2, (int64_t[]){2, 1});
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_multiply(mu_all_gather(x, 1), mu_add(id(), scalar(1)));
    return mu_gradients(tape, y, mu_of(x));
}

static void core_067(void)
{
    EXPECT(eager(mirrored(2), gradient_of_all_gather, NULL), 3, 3, 3, 3);
    EXPECT(traced(mirrored(2), gradient_of_all_gather, NULL), 3, 3, 3, 3);
    EXPECT(eager(mirrored(3), gradient_of_all_gather, NULL), 6, 6, 6, 6, 6, 6);
}

const one_case reduce_cases[] = {
    {"core-034", core_034, NULL}, {"core-035", core_035, NULL},
    {"core-037", core_037, NULL}, {"core-038", core_038, NULL},
    {"core-040", core_040, NULL}, {"core-041", core_041, NULL},
    {"core-043", core_043, NULL}, {"core-044", core_044, NULL},
    {"core-046", core_046, NULL}, {"core-047", core_047, NULL},
    {"core-052", core_052, NULL}, {"core-053", core_053, NULL},
    {"core-055", core_055, NULL}, {"core-056", core_056, NULL},
    {"core-058", core_058, NULL}, {"core-059", core_059, NULL},
    {"core-061", core_061, NULL}, {"core-062", core_062, NULL},
    {"core-064", core_064, NULL}, {"core-065", core_065, NULL},
    {"core-067", core_067, NULL}, {0},
};
