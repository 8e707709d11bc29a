// Rules of the guide to TensorFlow's core, sections 1 to 3, that no numbered case covers: states and scopes, run,
// regrouping, merge_call.
#include "cases.h"

#include <muster/control.h>
#include <pthread.h>

// ---- Section 1: states --------------------------------------------------------------------------

typedef struct state {
    bool replica, cross, has;
    mu_strategy *strategy;
} state;

static state state_now(void)
{
    mu_tensor *id = mu_replica_id();
    const state now = {.replica = id != NULL,
                       .cross = mu_in_cross_replica_context(),
                       .has = mu_has_strategy(),
                       .strategy = mu_get_strategy()};
    if (!id)
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    return now;
}

static bool is(state seen, bool replica, bool cross, bool has, const mu_strategy *strategy)
{
    return seen.replica == replica && seen.cross == cross && seen.has == has && seen.strategy == strategy;
}

typedef struct states {
    state replica, merge, update, inner;
    mu_variable *variable;
} states;

static mu_value *note_update(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)variable, (void)arguments;
    ((states *)arg)->update = state_now();
    return NULL;
}

static mu_value *note_inner(mu_value *arguments, void *arg)
{
    (void)arguments;
    ((states *)arg)->inner = state_now();
    return NULL;
}

static mu_value *note_merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arguments;
    states *s = arg;
    s->merge = state_now();
    CHECK(eager(strategy, note_inner, s));
    return mu_update_variable(strategy, s->variable, note_update, s);
}

static mu_value *note_states(mu_value *arguments, void *arg)
{
    (void)arguments;
    ((states *)arg)->replica = state_now();
    return mu_merge_call(note_merge, arg, NULL);
}

static void all_states(void)
{
    mu_strategy *all[] = {mirrored(2), mirrored(1), mu_one_device_strategy("CPU:0"),
                          mu_central_storage_strategy(.replicas = 2)};
    CHECK(is(state_now(), true, false, false, mu_default_strategy()));
    for (int i = 0; i < 4; i++) {
        states s = {.variable = on_write(all[i], 0, MU_AGGREGATION_NONE)};
        MU_SCOPE(all[i])
            CHECK(is(state_now(), false, true, true, all[i]));
        CHECK(eager(all[i], note_states, &s));
        CHECK(is(s.replica, true, false, true, all[i]) && is(s.merge, false, true, true, all[i]));
        CHECK(is(s.update, false, true, true, all[i]) && is(s.inner, true, false, true, all[i]));
    }
    CHECK(is(state_now(), true, false, false, mu_default_strategy()));
}

// Every thread is in a state of its own.
static void *look_around(void *arg)
{
    *(state *)arg = (state){.replica = true,
                            .cross = mu_in_cross_replica_context(),
                            .has = mu_has_strategy(),
                            .strategy = mu_get_strategy()};
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    state other = {0};
    MU_SCOPE(mirrored(2)) {
        CHECK(pthread_create(&thread, NULL, look_around, &other) == 0);
        pthread_join(thread, NULL);
        CHECK(mu_in_cross_replica_context());
    }
    CHECK(is(other, true, false, false, mu_default_strategy()));
}

static void set_strategy(void)
{
    mu_strategy *s = mirrored(2), *other = mirrored(2);
    CHECK(mu_set_strategy(s) == MU_OK);
    CHECK(is(state_now(), false, true, true, s));
    MU_SCOPE(s) {
        CHECK(is(state_now(), false, true, true, s));
        CHECK(mu_set_strategy(other) == MU_FAILED_PRECONDITION);
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
    CHECK(mu_variable_strategy(mu_variable_new(scalar(1))) == s);
    MU_SCOPE(other) {
    }
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(mu_set_strategy(mu_default_strategy()) == MU_OK);
    CHECK(is(state_now(), true, false, false, mu_default_strategy()));
}

static mu_value *set_inside(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_set_strategy(arg);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    return NULL;
}

static void set_in_replica(void)
{
    mu_strategy *s = mirrored(2);
    CHECK(eager(s, set_inside, s) && eager(s, set_inside, NULL));
}

// TensorFlow's testScopeMostlyNoOp.
static void default_scope(void)
{
    mu_strategy *s = mirrored(2), *none = mu_default_strategy();
    MU_SCOPE(none) {
        CHECK(is(state_now(), true, false, false, none));
        CHECK(mu_variable_strategy(mu_variable_new(scalar(1))) == NULL);
        MU_SCOPE(s) {
            CHECK(is(state_now(), false, true, true, s));
            CHECK(!mu_variable_new(scalar(1), "error"));
            EXPECT_ERROR(MU_FAILED_PRECONDITION);
        }
        MU_SCOPE(none) {
            CHECK(is(state_now(), true, false, false, none));
            MU_SCOPE(s) {
                CHECK(!mu_variable_new(scalar(1), "also_error"));
                EXPECT_ERROR(MU_FAILED_PRECONDITION);
            }
        }
        CHECK(is(state_now(), true, false, false, none));
    }
    MU_SCOPE(s) {
        CHECK(mu_variable_component_count(mu_variable_new(scalar(1), "after")) == 2);
        MU_SCOPE(none) {
        }
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
}

// Methods work in the strategy's own cross-replica state and in the default one; elsewhere they say what is wrong.
static void methods_elsewhere(void)
{
    mu_strategy *s = mirrored(2), *other = mirrored(2);
    mu_value *parts = PER_REPLICA(1, 2);
    mu_variable *v = on_write(s, 1, MU_AGGREGATION_NONE), *w = on_read(s, 1, MU_AGGREGATION_SUM);
    mu_iterator *data = mu_iterate(mu_distribute_dataset(s, mu_dataset_batch(mu_dataset_range(0, 2, 1), 2)));
    MU_SCOPE(other) {
        CHECK(!mu_reduce(s, MU_SUM, parts) && mu_error_code() == MU_FAILED_PRECONDITION);
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_strategy_gather(s, parts, 0));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_reduce_to(s, MU_SUM, parts));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_batch_reduce_to(s, MU_SUM, mu_list(parts, MU_END), NULL));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_broadcast_to_devices(s, mu_of(scalar(1)), parts));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_update_non_slot(s, note_inner, &(states){0}, NULL));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!eager(s, note_inner, &(states){0}));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!traced(s, note_inner, &(states){0}));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_variable_read(v) && mu_error_code() == MU_FAILED_PRECONDITION);
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_variable_read(w));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(mu_variable_assign(v, scalar(2)) != MU_OK);
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(mu_variable_assign(w, scalar(2)) != MU_OK);
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        CHECK(!mu_next(data));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
    EXPECT(mu_next(data), 0, 1); // nothing was taken
    EXPECT(mu_reduce(s, MU_SUM, parts), 3);
    MU_SCOPE(s)
        EXPECT(mu_reduce(s, MU_SUM, parts), 3);
}

static mu_value *add_one(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_variable_assign_add(variable, scalar(1)) == MU_OK ? mu_list(MU_END) : NULL;
}

// Of a variable's strategy, in a function of whichever runs it.
static mu_value *update_its_own(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_update_variable(mu_variable_strategy(arg), arg, add_one);
}

static mu_value *assign_it(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign(arg, scalar(2)) == MU_OK ? mu_list(MU_END) : NULL;
}

// The replicas of another strategy do not merge for a variable's own, though they be as many.
static void updates_elsewhere(void)
{
    mu_strategy *others[] = {mirrored(2), mirrored(3), mu_one_device_strategy("CPU:0"), mu_default_strategy()};
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 1, MU_AGGREGATION_NONE);
    for (int i = 0; i < 6; i++) {
        CHECK(!(i % 2 ? traced : eager)(others[i / 2], update_its_own, v));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
    EXPECT(mu_local_results(s, mu_value_at(mu_variables(v, MU_END), 0)), 1, 1);
    CHECK(eager(s, update_its_own, v) && traced(s, update_its_own, v));
    EXPECT(mu_local_results(s, mu_value_at(mu_variables(v, MU_END), 0)), 3, 3);
    v = on_write(mu_central_storage_strategy(.replicas = 2), 1, MU_AGGREGATION_NONE);
    CHECK(!eager(s, assign_it, v));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
}

static mu_value *own_id(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    CHECK(!mu_in_cross_replica_context());
    return mu_of(mu_replica_id());
}

static mu_value *run_again(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arguments;
    CHECK(mu_in_cross_replica_context());
    mu_value *id = eager(strategy, own_id, arg);
    CHECK(mu_in_cross_replica_context());
    return id;
}

// The default strategy runs in its merges, and has variables beside each other, as others do.
static void of_the_default_strategy(void)
{
    mu_strategy *none = mu_default_strategy(), *s = mirrored(2);
    EXPECT(mu_merge_call(run_again, NULL, NULL), 0);
    mu_variable *v = mu_variable_new(scalar(1));
    MU_COLOCATE(none, v)
        CHECK(mu_variable_strategy(mu_variable_new(scalar(2))) == NULL);
    MU_COLOCATE(none, on_write(s, 1, MU_AGGREGATION_NONE)) {
    }
    CHECK(mu_error_code() == MU_FAILED_PRECONDITION);
    mu_error_take();
}

// ---- Section 3: run -----------------------------------------------------------------------------

static mu_value *give_both(mu_value *arguments, void *arg)
{
    (void)arg;
    CHECK(mu_value_kind_of(mu_value_at(arguments, 2)) == MU_VALUE_VARIABLE);
    return mu_list(mu_add(mu_at(arguments, 0), mu_at(arguments, 1)), mu_value_at(arguments, 2), MU_END);
}

static void arguments_are_chosen(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 7, MU_AGGREGATION_NONE);
    mu_value *mirror = mu_broadcast_to_devices(s, mu_of(scalar(10)), PER_REPLICA(0, 0));
    mu_value *given = mu_list(PER_REPLICA(1, 2), mirror, mu_value_at(mu_variables(v, MU_END), 0), MU_END);
    mu_value *result = mu_run_callback(s, give_both, NULL, given);
    EXPECT(mu_value_at(result, 0), 11, 12);
    CHECK(mu_value_kind_of(mu_value_at(result, 1)) == MU_VALUE_VARIABLE);
}

// What is the same object on all replicas comes back as it is; what they made is per replica though equal.
static mu_value *give_constant(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_list((mu_tensor *)arg, mu_add(scalar(1), scalar(1)), MU_END);
}

static void identical_results(void)
{
    mu_strategy *s = mirrored(3);
    mu_value *result = eager(s, give_constant, scalar(5));
    CHECK(mu_value_kind_of(mu_value_at(result, 0)) == MU_VALUE_TENSOR);
    CHECK(mu_value_kind_of(mu_value_at(result, 1)) == MU_VALUE_PER_REPLICA);
    CHECK(mu_value_count(mu_local_results(s, mu_value_at(result, 0))) == 1);
    CHECK(mu_value_count(mu_local_results(s, mu_value_at(result, 1))) == 3);
    result = eager(mirrored(1), give_constant, scalar(5));
    CHECK(mu_value_kind_of(mu_value_at(result, 1)) == MU_VALUE_TENSOR);
}

static mu_value *one_key_or_other(mu_value *arguments, void *arg)
{
    (void)arguments;
    const bool first = mu_scalar(mu_replica_id()) == 0;
    const char *const *keys = arg;
    return first ? mu_map("a", scalar(1), keys[0], scalar(2), MU_END)
                 : mu_map(keys[1], scalar(20), keys[2], scalar(10), MU_END);
}

static void maps_have_the_same_keys(void)
{
    const char *turned[] = {"b", "b", "a"}, *other[] = {"b", "c", "a"};
    mu_value *result = eager(mirrored(2), one_key_or_other, turned);
    EXPECT(mu_value_get(result, "a"), 1, 10);
    EXPECT(mu_value_get(result, "b"), 2, 20);
    CHECK(!eager(mirrored(2), one_key_or_other, other));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *tensor_or_list(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_scalar(mu_replica_id()) == 0 ? mu_of(scalar(1)) : mu_list(scalar(1), MU_END);
}

static void containers_are_the_same(void)
{
    CHECK(!eager(mirrored(2), tensor_or_list, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- Section 3: merge_call ----------------------------------------------------------------------

typedef struct merged {
    int calls;
    mu_value_kind kinds[3];
    mu_variable *variable;
} merged;

// Each replica gets its part of what is returned.
static mu_value *note_kinds(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy;
    merged *m = arg;
    m->calls++;
    for (int i = 0; i < 3; i++)
        m->kinds[i] = mu_value_kind_of(mu_value_at(arguments, i));
    return mu_list(mu_value_at(arguments, 0), scalar(7), MU_END);
}

static mu_value *merge_kinds(mu_value *arguments, void *arg)
{
    merged *m = arg;
    mu_value *result = mu_merge_call(
        note_kinds, m,
        mu_list(id(), mu_value_at(arguments, 0), mu_value_at(mu_variables(m->variable, MU_END), 0), MU_END));
    return result ? mu_of(mu_add(mu_at(result, 0), mu_at(result, 1))) : NULL;
}

static void merged_arguments(void)
{
    mu_strategy *s = mirrored(3);
    merged m = {.variable = on_write(s, 1, MU_AGGREGATION_NONE)};
    EXPECT(mu_run_callback(s, merge_kinds, &m, mu_list(scalar(1), MU_END)), 7, 8, 9);
    CHECK(m.calls == 1 && m.kinds[0] == MU_VALUE_PER_REPLICA && m.kinds[1] == MU_VALUE_TENSOR &&
          m.kinds[2] == MU_VALUE_VARIABLE);
}

static mu_value *nothing_of_it(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments, (void)arg;
    return NULL;
}

static mu_value *merge_in_branch(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_merge_call(nothing_of_it, NULL, NULL);
    return arguments;
}

static mu_value *stay(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static mu_value *merge_in_cond(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_cond(mu_less(id(), scalar(5)), merge_in_branch, stay, mu_list(id(), MU_END), NULL);
}

// In the body of a branch of a trace there is nothing to pause; an eager branch is ordinary code.
static void merges_in_bodies(void)
{
    CHECK(!traced(mirrored(2), merge_in_cond, NULL));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    EXPECT(eager(mirrored(2), merge_in_cond, NULL), 0, 1);
}

static mu_value *merge_inside_merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments, (void)arg;
    CHECK(!mu_merge_call(nothing_of_it, NULL, NULL));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    return NULL;
}

static mu_value *merge_twice(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_merge_call(merge_inside_merge, arg, NULL);
}

static void merges_in_merges(void)
{
    CHECK(eager(mirrored(2), merge_twice, NULL) && eager(mirrored(1), merge_twice, NULL));
    CHECK(eager(mu_one_device_strategy("CPU:0"), merge_twice, NULL));
}

const one_case rule_context_cases[] = {
    {"rule_core_1_states", all_states, NULL},
    {"rule_core_1_threads", threads, NULL},
    {"rule_core_1_set_strategy", set_strategy, NULL},
    {"rule_core_1_set_strategy_in_replica", set_in_replica, NULL},
    {"rule_core_1_default_scope", default_scope, NULL},
    {"rule_core_1_methods_elsewhere", methods_elsewhere, NULL},
    {"rule_core_1_updates_elsewhere", updates_elsewhere, NULL},
    {"rule_core_1_of_the_default_strategy", of_the_default_strategy, NULL},
    {"rule_core_3_arguments", arguments_are_chosen, NULL},
    {"rule_core_3_identical_results", identical_results, NULL},
    {"rule_core_3_keys", maps_have_the_same_keys, NULL},
    {"rule_core_3_containers", containers_are_the_same, NULL},
    {"rule_core_3_merged_arguments", merged_arguments, NULL},
    {"rule_core_3_merge_in_bodies", merges_in_bodies, NULL},
    {"rule_core_3_merge_in_merge", merges_in_merges, NULL},
    {0},
};
