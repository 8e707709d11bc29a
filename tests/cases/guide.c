// What the guide to TensorFlow's semantics says beside the numbered cases: replicas that disagree, merges in the
// wrong place, runs inside merges, and that nothing is left behind by many failed steps.
#include "cases.h"

static mu_value *count_up(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arguments;
    CHECK(mu_get_strategy() == strategy);
    ++*(int *)arg;
    return NULL;
}

// ---- Replicas that disagree ---------------------------------------------------------------------

static bool is_first(void) { return mu_scalar(mu_replica_id()) == 0; }

static mu_value *merge_or_reduce(mu_value *arguments, void *arg)
{
    (void)arguments;
    if (is_first())
        return mu_merge_call(count_up, arg, NULL);
    mu_tensor *sum = mu_all_reduce(MU_SUM, id());
    return sum ? mu_of(sum) : NULL;
}

static mu_value *reduce_sizes(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *sum = mu_all_reduce(MU_SUM, is_first() ? VECTOR(1) : VECTOR(1, 2));
    return sum ? mu_of(sum) : NULL;
}

static mu_value *return_lengths(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return is_first() ? mu_list(scalar(1), MU_END) : mu_list(scalar(1), scalar(2), MU_END);
}

static void disagreement(void)
{
    mu_strategy *s = mirrored(3);
    int merges = 0;
    CHECK(!eager(s, merge_or_reduce, &merges));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(merges == 0);
    CHECK(!eager(s, reduce_sizes, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!eager(s, return_lengths, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- Merges in the wrong place ------------------------------------------------------------------

static mu_value *merge_only(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_merge_call(count_up, arg, NULL);
}

static void wrong_place(void)
{
    mu_strategy *s = mirrored(2);
    int merges = 0;
    CHECK(traced(s, merge_only, &merges) && merges == 1); // once for all replicas, when it is traced
    merges = 0;
    MU_SCOPE(s)
        CHECK(!mu_merge_call(count_up, &merges, NULL));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(merges == 0);
    CHECK(eager(s, merge_only, &merges) && merges == 1);
}

// ---- Runs inside merges, and in what order replicas go ------------------------------------------

static mu_value *double_id(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_multiply(scalar(2), id()));
}

static mu_value *run_inside(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_value *parts[] = {mu_reduce(strategy, MU_SUM, eager(strategy, double_id, NULL)),
                         mu_reduce(strategy, MU_SUM, traced(strategy, double_id, NULL))};
    return parts[0] && parts[1] ? mu_list_of(2, parts) : NULL;
}

static mu_value *merge_with_run(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_merge_call(run_inside, arg, NULL);
}

typedef struct order {
    int n, seen[16];
} order;

static mu_value *note_order(mu_value *arguments, void *arg)
{
    (void)arguments;
    order *o = arg;
    const int own = (int)mu_scalar(mu_replica_id());
    o->seen[o->n++] = own;
    mu_all_reduce(MU_SUM, id());
    o->seen[o->n++] = 10 + own;
    return NULL;
}

static void nested_runs(void)
{
    static const int wanted[] = {0, 1, 2, 10, 11, 12};
    mu_strategy *s = mirrored(3);
    order o = {0};
    EXPECT(eager(s, merge_with_run, NULL), 6, 6);
    CHECK(eager(s, note_order, &o) && o.n == 6 && memcmp(o.seen, wanted, sizeof wanted) == 0);
}

// ---- Updates without a variable -----------------------------------------------------------------

static mu_value *read_other(mu_value *arguments, void *arg)
{
    CHECK(mu_in_cross_replica_context());
    return mu_of(mu_add(mu_variable_read(arg), mu_at(arguments, 0)));
}

static mu_value *assign_part(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign(variable, mu_at(arguments, 0));
    return NULL;
}

static void updates(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_SUM);
    CHECK(mu_update_variable(s, v, assign_part, NULL, PER_REPLICA(3, 4)));
    EXPECT(components(v), 3, 4);
    EXPECT(mu_update_non_slot(s, read_other, v, mu_of(scalar(1))), 4, 5);
    CHECK(!mu_update_variable(mirrored(2), v, assign_part, NULL, mu_of(scalar(1))));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- Reductions of one's own --------------------------------------------------------------------

static mu_tensor *largest(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    (void)op;
    ++*(int *)arg;
    mu_tensor *most = parts[0];
    for (int i = 1; i < n; i++)
        most = mu_maximum(most, parts[i]);
    return most;
}

static mu_value *reduce_id(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *sum = mu_all_reduce(MU_SUM, id());
    return sum ? mu_of(sum) : NULL;
}

static void own_reduction(void)
{
    int calls = 0;
    EXPECT(eager(mu_mirrored_strategy(.replicas = 2, .cross_device_ops = mu_nccl_all_reduce(1)), reduce_id, NULL), 1,
           1);
    mu_strategy *s = mu_mirrored_strategy(.replicas = 3, .cross_device_ops = mu_cross_device_ops_new(largest, &calls));
    EXPECT(mu_reduce(s, MU_SUM, PER_REPLICA(1, 7, 3)), 7);
    EXPECT(eager(s, reduce_id, NULL), 2, 2, 2);
    CHECK(calls == 2);
}

// ---- Many steps, some of which fail -------------------------------------------------------------

typedef struct flaky {
    int failing, place; // which replica fails, and where
    mu_variable *variable;
} flaky;

static mu_value *flaky_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    const flaky *f = arg;
    const bool fails = mu_scalar(mu_replica_id()) == f->failing;
    if (fails && f->place == 0)
        mu_fail(MU_ABORTED, "before");
    mu_variable_assign_add(f->variable, mu_add(id(), scalar(1)));
    if (fails && f->place == 1)
        mu_fail(MU_ABORTED, "between");
    mu_tensor *sum = mu_all_reduce(MU_SUM, id());
    if (fails && f->place == 2)
        mu_fail(MU_ABORTED, "after");
    return sum ? mu_of(sum) : NULL;
}

static void many_steps(void)
{
    mu_strategy *s = mirrored(3);
    flaky f = {.variable = on_write(s, 0, MU_AGGREGATION_SUM)};
    long live = 0;
    double sum = 0;
    for (int step = 0; step < 1200; step++) {
        mu_pool *pool = mu_pool_open();
        f.failing = step % 5;
        f.place = step / 5 % 3;
        const bool fails = f.failing < 3;
        mu_value *result = eager(s, flaky_step, &f);
        CHECK(!result == fails);
        if (fails)
            EXPECT_ERROR(MU_ABORTED);
        sum += fails && f.place == 0 ? 0 : 6;
        mu_pool_close(pool);
        if (step == 100)
            live = mu__live_objects(NULL);
    }
    CHECK(mu__live_objects(NULL) == live);
    EXPECT(components(f.variable), sum, sum, sum);
}

// Whichever allocation of a step fails, the step fails with just that, and the next one works.
static void no_memory(void)
{
    mu_strategy *s = mirrored(3);
    flaky f = {.failing = -1, .variable = on_write(s, 0, MU_AGGREGATION_SUM)};
    bool worked = false;
    int n = 1;
    for (; n < 2000 && !worked; n++) {
        mu_pool *pool = mu_pool_open();
        mu__alloc_fail_at(n);
        worked = eager(s, flaky_step, &f) != NULL;
        mu__alloc_fail_at(0);
        if (!worked)
            EXPECT_ERROR(MU_RESOURCE_EXHAUSTED);
        mu_pool_close(pool);
    }
    CHECK(worked && n > 50);
    EXPECT(eager(s, flaky_step, &f), 3, 3, 3);
}

const one_case guide_cases[] = {
    {"guide-disagreement", disagreement, NULL},   {"guide-wrong-place", wrong_place, NULL},
    {"guide-nested-runs", nested_runs, NULL},     {"guide-updates", updates, NULL},
    {"guide-own-reduction", own_reduction, NULL}, {"guide-many-steps", many_steps, NULL},
    {"guide-no-memory", no_memory, NULL},         {0},
};
