// Core cases B: run, regroup, merge_call, local results.
#include "cases.h"

static mu_value *id_plus_one(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_add(id(), scalar(1)));
}

static mu_value *double_and_square(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_map("a", mu_multiply(scalar(2), x), "b", mu_square(x), MU_END);
}

static mu_value *weigh(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *a = mu_value_tensor(mu_value_get(arguments, "a")), *b = mu_value_tensor(mu_value_get(arguments, "b"));
    return mu_of(mu_add(mu_add(a, mu_multiply(scalar(2), b)), scalar(2)));
}

static void core_016(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *first = mu_run_callback(s, id_plus_one, NULL, NULL);
    mu_value *second = mu_run_callback(s, double_and_square, NULL, first);
    EXPECT(first, 1, 2);
    EXPECT(mu_value_get(second, "a"), 2, 4);
    EXPECT(mu_value_get(second, "b"), 1, 4);
    EXPECT(mu_run_callback(s, weigh, NULL, second), 6, 14);
    first = mu_run(s, mu_function_new(id_plus_one, NULL), NULL);
    second = mu_run(s, mu_function_new(double_and_square, NULL), first);
    EXPECT(mu_run(s, mu_function_new(weigh, NULL), second), 6, 14);
}

static void core_017(void)
{
    mu_strategy *all[] = {mirrored(1), mu_one_device_strategy("CPU:0"), mu_default_strategy()};
    for (int i = 0; i < 3; i++) {
        mu_value *x = mu_of(scalar(4)), *second = mu_run_callback(all[i], double_and_square, NULL, x);
        EXPECT(mu_value_get(second, "a"), 8);
        EXPECT(mu_value_get(second, "b"), 16);
        mu_value *third = mu_run_callback(all[i], weigh, NULL, second);
        EXPECT(third, 42);
        CHECK(mu_value_count(mu_local_results(all[i], third)) == 1);
    }
}

static mu_value *nest(double tag)
{
    mu_tensor *t[5];
    for (int i = 0; i < 5; i++)
        t[i] = scalar(tag * 10 + i);
    return mu_list(t[0], mu_list(t[1], mu_map("c", t[2], "e", t[3], MU_END), MU_END), t[4], MU_END);
}

static void core_019(void)
{
    mu_value *both[] = {nest(1), nest(2)};
    mu_value *grouped = mu__give(mu__regroup(2, both));
    CHECK(grouped->kind == MU_VALUE_LIST && grouped->n == 3 && grouped->items[0]->kind == MU_VALUE_PER_REPLICA);
    CHECK(mu_value_get(grouped->items[1]->items[1], "e")->kind == MU_VALUE_PER_REPLICA);
    EXPECT(mu__give(mu__select(grouped, 0)), 10, 11, 12, 13, 14);
    EXPECT(mu__give(mu__select(grouped, 1)), 20, 21, 22, 23, 24);
    CHECK(!mu__select_mirrored(grouped, 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void core_020(void)
{
    mu_value *both[] = {nest(1), nest(2)};
    mu_value *grouped = mu__give(mu__regroup_as(MU_VALUE_MIRRORED, false, 2, both));
    CHECK(grouped->items[0]->kind == MU_VALUE_MIRRORED);
    EXPECT(mu__give(mu__select_mirrored(grouped, 0)), 10, 11, 12, 13, 14);
    EXPECT(mu__give(mu__select_mirrored(grouped, 1)), 20, 21, 22, 23, 24);
}

static void core_022(void)
{
    mu_value *one = nest(1), *grouped = mu__give(mu__regroup(1, &one));
    CHECK(grouped == one);
    EXPECT(mu__give(mu__select(grouped, 0)), 10, 11, 12, 13, 14);
}

static mu_value *return_variable(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_value_at(mu_variables(arg, MU_END), 0);
}

static void core_023(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 1, MU_AGGREGATION_NONE);
    mu_value *grouped = eager(s, return_variable, v);
    CHECK(grouped && grouped->kind == MU_VALUE_VARIABLE && grouped->leaf == &v->resource.object);
    mu_value *own = grouped ? mu__give(mu__select(grouped, 0)) : NULL;
    CHECK(own && own->leaf == &v->resource.object);
}

static mu_value *eleven(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments, (void)arg;
    return mu_of(scalar(11));
}

static mu_value *merge_eleven(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_add(mu_value_tensor(mu_merge_call(eleven, NULL, NULL)), scalar(1)));
}

static void core_025(void)
{
    EXPECT(eager(mirrored(1), merge_eleven, NULL), 12);
    EXPECT(eager(mirrored(2), merge_eleven, NULL), 12, 12);
    EXPECT(eager(mirrored(3), merge_eleven, NULL), 12, 12, 12);
}

static mu_value *sum_results(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    ++*(int *)arg;
    CHECK(mu_in_cross_replica_context() && mu_get_strategy() == strategy);
    return mu_reduce(strategy, MU_SUM, arguments);
}

static mu_value *sum_plus_own(mu_value *arguments, void *arg)
{
    mu_tensor *v = mu_add(mu_at(arguments, 0), id());
    mu_value *sum = mu_merge_call(sum_results, arg, mu_of(v));
    return sum ? mu_of(mu_add(mu_value_tensor(sum), v)) : NULL;
}

static void core_026(void)
{
    int calls = 0;
    EXPECT(mu_run_callback(mirrored(2), sum_plus_own, &calls, mu_of(scalar(3))), 10, 11);
    CHECK(calls == 1);
}

static mu_value *fail_in_fn(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_fail(MU_ABORTED, "as planned");
    return NULL;
}

static mu_value *fail_in_merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments, (void)arg;
    mu_fail(MU_ABORTED, "as planned");
    return NULL;
}

static mu_value *call_failing_merge(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_merge_call(fail_in_merge, NULL, NULL);
}

static mu_value *run_nested(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arguments;
    return eager(strategy, *(replica_fn **)arg, NULL);
}

static mu_value *merge_nested(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_merge_call(run_nested, arg, NULL);
}

static mu_value *unequal(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    if (mu_scalar(mu_replica_id()) == 1)
        return NULL;
    return mu_merge_call(eleven, NULL, NULL);
}

static void core_028(void)
{
    mu_strategy *s = mirrored(3);
    replica_fn *first = fail_in_fn, *second = call_failing_merge;
    CHECK(!eager(s, fail_in_fn, NULL));
    EXPECT_ERROR(MU_ABORTED);
    CHECK(!eager(s, call_failing_merge, NULL));
    EXPECT_ERROR(MU_ABORTED);
    CHECK(!eager(s, merge_nested, &first));
    EXPECT_ERROR(MU_ABORTED);
    CHECK(!eager(s, merge_nested, &second));
    EXPECT_ERROR(MU_ABORTED);
    CHECK(!eager(s, unequal, NULL));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    EXPECT(eager(s, merge_eleven, NULL), 12, 12, 12);
}

static mu_value *record_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    ((int *)arg)[(int)mu_scalar(mu_replica_id())]++;
    return NULL;
}

static void core_029(void)
{
    int seen[4] = {0};
    CHECK(eager(mirrored(4), record_id, seen));
    for (int i = 0; i < 4; i++)
        CHECK(seen[i] == 1);
}

static mu_value *square(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_at(arguments, 0)));
}

static mu_value *value_of_id(const mu_value_context *context, void *arg)
{
    CHECK(context->num_replicas == *(int *)arg);
    return mu_of(scalar(context->replica_id));
}

static void core_031(void)
{
    mu_strategy *s = mirrored(3);
    int n = 3;
    mu_value *ids = mu_distribute_values(s, value_of_id, &n);
    CHECK(ids && ids->kind == MU_VALUE_PER_REPLICA);
    EXPECT(mu_run_callback(s, square, NULL, ids), 0, 1, 4);
    EXPECT(mu_run(s, mu_function_new(square, NULL), ids), 0, 1, 4);
    EXPECT(mu_run_callback(s, square, NULL, mu_of(scalar(2))), 4, 4, 4);
}

static void core_032(void)
{
    CHECK(!mu_add(mu_value_tensor(PER_REPLICA(1, 2)), scalar(1)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

const one_case run_cases[] = {
    {"core-016", core_016, NULL},
    {"core-017", core_017, NULL},
    {"core-019", core_019, NULL},
    {"core-020", core_020, NULL},
    {"core-022", core_022, NULL},
    {"core-023", core_023, NULL},
    {"core-025", core_025, NULL},
    {"core-026", core_026, NULL},
    {"core-028", core_028, NULL},
    {"core-029", core_029, NULL},
    {"core-031", core_031, NULL},
    {"core-032", core_032, NULL},
    {0},
};
