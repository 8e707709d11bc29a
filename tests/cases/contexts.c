// Core cases A: contexts, scopes, the default strategy.
#include "cases.h"

static bool in_default_state(void)
{
    return !mu_has_strategy() && !mu_in_cross_replica_context() && mu_get_strategy() == mu_default_strategy();
}

static void core_001(void)
{
    CHECK(in_default_state());
    EXPECT(mu_of(mu_replica_id()), 0);
    CHECK(mu_replica_count() == 1);
}

static void core_002(void)
{
    mu_strategy *s = mirrored(2);
    MU_SCOPE(s)
        CHECK(mu_has_strategy() && mu_in_cross_replica_context() && mu_get_strategy() == s);
    CHECK(in_default_state());
}

static void core_004(void)
{
    mu_strategy *s = mirrored(2);
    MU_SCOPE(s) {
        MU_SCOPE(s) {
            MU_SCOPE(s)
                CHECK(mu_get_strategy() == s);
            CHECK(mu_get_strategy() == s);
        }
        CHECK(mu_get_strategy() == s);
    }
    CHECK(in_default_state());
    MU_SCOPE(s)
        CHECK(mu_get_strategy() == s);
}

static void core_005(void)
{
    mu_strategy *first = mirrored(2), *second = mirrored(2);
    MU_SCOPE(first) {
        MU_SCOPE(second) {
        }
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(mu_get_strategy() == first);
    }
    CHECK(in_default_state());
}

static void core_007(void)
{
    mu_strategy *s = mirrored(2), *other = mirrored(2);
    MU_SCOPE(s) {
        mu_strategy *tried[] = {other, s, NULL};
        for (int i = 0; i < 3; i++) {
            CHECK(mu_set_strategy(tried[i]) != MU_OK);
            EXPECT_ERROR(MU_FAILED_PRECONDITION);
            CHECK(mu_get_strategy() == s);
        }
    }
    CHECK(mu_set_strategy(s) == MU_OK && mu_get_strategy() == s);
    CHECK(mu_set_strategy(other) == MU_OK && mu_get_strategy() == other);
    CHECK(mu_set_strategy(NULL) == MU_OK && in_default_state());
}

static mu_value *add_one(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    *(bool *)arg = mu_in_cross_replica_context() && !mu_has_strategy() && strategy == mu_default_strategy();
    return mu_of(mu_add(mu_at(arguments, 0), scalar(1)));
}

static void core_008(void)
{
    bool as_wanted = false;
    EXPECT(mu_merge_call(add_one, &as_wanted, mu_of(scalar(7))), 8);
    CHECK(as_wanted);
    CHECK(in_default_state());
}

static void core_010(void)
{
    mu_strategy *s = mirrored(1), *other = mirrored(1);
    EXPECT(mu_reduce(s, MU_MEAN, mu_of(scalar(1))), 1);
    MU_SCOPE(s)
        EXPECT(mu_reduce(s, MU_MEAN, mu_of(scalar(1))), 1);
    MU_SCOPE(other) {
        CHECK(!mu_reduce(s, MU_MEAN, mu_of(scalar(1))));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
}

static void core_011(void)
{
    static const char *const names[] = {"mean", "MEAN", "sum", "SUM"};
    mu_strategy *s = mirrored(1);
    for (int i = 0; i < 4; i++) {
        const mu_reduce_op op = (mu_reduce_op)mu_reduce_op_from_name(names[i]);
        mu_value *one = mu_of(scalar(1));
        EXPECT(mu_reduce(s, op, one), 1);
        EXPECT(mu_reduce_to(s, op, one), 1);
        EXPECT(mu_batch_reduce_to(s, op, mu_list(one, MU_END), NULL), 1);
    }
    CHECK(mu_reduce_op_from_name("max") == -1);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *same(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static void core_013(void)
{
    mu_strategy *s = mirrored(2);
    CHECK(!mu_run(s, mu_function_new(same, NULL), (mu_value *)(void *)scalar(1)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void core_014(void)
{
    const mu_input_context context = {.num_input_pipelines = 2, .input_pipeline_id = 1, .num_replicas_in_sync = 6};
    CHECK(mu_per_replica_batch_size(&context, 12) == 2);
    CHECK(mu_per_replica_batch_size(&context, 13) == -1);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *wrong_places(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_strategy *s = arg;
    CHECK(!mu_in_cross_replica_context() && mu_get_strategy() == s && mu_replica_count() == 2);
    MU_SCOPE(s) {
    }
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(!mu_reduce(s, MU_SUM, mu_of(scalar(1))));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(!mu_run_callback(s, same, NULL, NULL));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    return NULL;
}

static void replica_state(void)
{
    mu_strategy *s = mirrored(2);
    CHECK(eager(s, wrong_places, s));
}

const one_case context_cases[] = {
    {"core-001", core_001, NULL},
    {"core-002", core_002, NULL},
    {"core-004", core_004, NULL},
    {"core-005", core_005, NULL},
    {"core-007", core_007, NULL},
    {"core-008", core_008, NULL},
    {"core-010", core_010, NULL},
    {"core-011", core_011, NULL},
    {"core-013", core_013, NULL},
    {"core-014", core_014, NULL},
    {"guide-replica-state", replica_state, NULL},
    {0},
};
