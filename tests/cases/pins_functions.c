// Traced functions that are called outside of replicas: what TensorFlow's tests do with tf.function around
// Strategy.run, reads and assignments, and what must not change one copy of several.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

#define RUN(i) ((i) ? traced : eager)

static mu_value *square(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_value_tensor(arguments)));
}

static mu_value *plus_id(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_value_tensor(arguments), id()));
}

static mu_value *run_and_reduce(mu_value *arguments, void *arg)
{
    CHECK(mu_in_cross_replica_context() == mu_has_strategy());
    return mu_reduce(arg, MU_SUM, mu_run(arg, mu_function_new(plus_id, NULL), arguments));
}

// In a scope a function does what is done outside of replicas.
static void runs_inside(void)
{
    mu_strategy *s = mirrored(2), *central = mu_central_storage_strategy(.replicas = 2);
    MU_SCOPE(s) {
        mu_function *f = mu_function_new(run_and_reduce, s);
        EXPECT(mu_function_call(f, mu_of(scalar(3))), 7);
        EXPECT(mu_function_call(f, PER_REPLICA(3, 4)), 8);
    }
    MU_SCOPE(central)
        EXPECT(mu_function_call(mu_function_new(run_and_reduce, central), mu_of(scalar(3))), 7);
    CHECK(!traced(mu_default_strategy(), run_and_reduce, s));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    EXPECT(mu_run_callback(NULL, run_and_reduce, s, mu_of(scalar(3))), 7);
}

static mu_value *give_nothing(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return NULL;
}

static void results_in_scopes(void)
{
    mu_strategy *all[] = {mirrored(2), mirrored(1), mu_one_device_strategy("CPU:0"), mu_default_strategy()};
    for (int i = 0; i < 4; i++)
        MU_SCOPE(all[i]) {
            EXPECT(mu_function_call(mu_function_new(square, NULL), mu_of(scalar(3))), 9);
            mu_value *nothing = mu_function_call(mu_function_new(give_nothing, NULL), NULL);
            CHECK(nothing && mu_value_count(nothing) == 0);
        }
}

// A device that is set runs the functions that are called.
static void device_that_is_set(void)
{
    int traces = 0;
    CHECK(mu_set_device("CPU:1") == MU_OK);
    mu_function *f = mu_function_new(square, &traces);
    for (int i = 0; i < 3; i++)
        EXPECT(mu_function_call(f, mu_of(scalar(i))), i * i);
    CHECK(mu_function_trace_count(f) == 1);
    CHECK(mu_set_device(NULL) == MU_OK && !mu_has_strategy());
}

static mu_value *call_merged(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments;
    return mu_function_call(arg, mu_of(scalar(3)));
}

static mu_value *merge(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_merge_call(call_merged, arg, NULL);
}

static mu_value *assign_square(mu_variable *variable, mu_value *arguments, void *arg)
{
    mu_value *x = mu_function_call(arg, mu_value_at(arguments, 0));
    return x && mu_variable_assign(variable, mu_value_tensor(x)) == MU_OK ? read_of(variable) : NULL;
}

static void calls_in_merges_and_updates(void)
{
    mu_strategy *s = mirrored(2);
    mu_function *f = mu_function_new(square, NULL);
    EXPECT(eager(mirrored(1), merge, f), 9);
    EXPECT(eager(s, merge, f), 9);
    EXPECT(eager(mu_one_device_strategy("CPU:0"), merge, f), 9);
    mu_variable *v = on_write(s, 2, MU_AGGREGATION_NONE);
    EXPECT(mu_update_variable(s, v, assign_square, f, mu_list(PER_REPLICA(2, 3), MU_END)), 4, 9);
}

// ---- Variables ----------------------------------------------------------------------------------

typedef struct job {
    mu_variable *v;
    assign_fn *assign;
} job;

static mu_value *assign_four(mu_value *arguments, void *arg)
{
    (void)arguments;
    const job *j = arg;
    return j->assign(j->v, scalar(4)) == MU_OK ? read_of(j->v) : NULL;
}

// In a scope, and in the default strategy's eager function, a variable is what it is outside of replicas.
static void variables_outside(void)
{
    static const double wanted[] = {0, 2, 1, 1};
    mu_strategy *s = mirrored(2);
    for (int a = 0; a < 4; a++) {
        mu_variable *w = on_write(s, 1, (mu_variable_aggregation)a), *r = on_read(s, 1, (mu_variable_aggregation)a);
        job add = {w, mu_variable_assign_add}, set = {r, mu_variable_assign};
        EXPECT(mu_run_callback(NULL, assign_four, &add, NULL), 5);
        MU_SCOPE(s)
            EXPECT(mu_function_call(mu_function_new(assign_four, &add), NULL), 9);
        EXPECT(components(w), 9, 9);
        if (a == MU_AGGREGATION_NONE)
            continue;
        EXPECT(mu_run_callback(NULL, read_on_replica, r, NULL), wanted[a]);
        MU_SCOPE(s) {
            EXPECT(mu_function_call(mu_function_new(read_on_replica, r), NULL), wanted[a]);
            EXPECT(mu_function_call(mu_function_new(assign_four, &set), NULL), 4);
        }
        EXPECT(mu_run_callback(NULL, assign_four, &set, NULL), 4);
    }
}

// What the default strategy's trace cannot do with several copies it refuses; one copy is whole there.
static void variables_in_default_traces(void)
{
    mu_strategy *s = mirrored(2);
    for (int a = 1; a < 4; a++) {
        mu_variable *w = on_write(s, 1, (mu_variable_aggregation)a), *r = on_read(s, 1, (mu_variable_aggregation)a);
        job both[] = {{w, mu_variable_assign}, {r, mu_variable_assign}};
        EXPECT(mu_function_call(mu_function_new(read_on_replica, w), NULL), 1);
        CHECK(!mu_function_call(mu_function_new(read_on_replica, r), NULL));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        for (int i = 0; i < 2; i++) {
            CHECK(!mu_function_call(mu_function_new(assign_four, &both[i]), NULL));
            EXPECT_ERROR(MU_FAILED_PRECONDITION);
        }
        CHECK(!eager(mirrored(3), read_on_replica, r));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        EXPECT(components(w), 1, 1);
    }
    mu_strategy *one[] = {mirrored(1), mu_one_device_strategy("CPU:0"), mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 12; i++) {
        job add = {on_write(one[i % 3], 1, (mu_variable_aggregation)(i / 3)), mu_variable_assign_add};
        EXPECT(mu_function_call(mu_function_new(assign_four, &add), NULL), 5);
        EXPECT(read_of(add.v), 5);
    }
}

static mu_value *scatter_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_scatter_add(arg, INDICES(0), VECTOR(1)) == MU_OK ? read_of(arg) : NULL;
}

static void scatters_of_others(void)
{
    mu_strategy *s = mirrored(2), *others[] = {mu_default_strategy(), mu_one_device_strategy("CPU:0"), mirrored(3)};
    for (int i = 0; i < 24; i++) {
        mu_variable *v = variable(s, VECTOR(0, 0), MU_SYNCHRONIZATION_AUTO, (mu_variable_aggregation)(i / 6));
        mu_value *got = RUN(i % 2)(others[i / 2 % 3], scatter_one, v);
        const bool outside = i % 6 == 0; // the default strategy's eager function
        CHECK((got != NULL) == outside);
        if (!got)
            EXPECT_ERROR(MU_FAILED_PRECONDITION);
        EXPECT(components(v), outside, 0, outside, 0);
    }
}

typedef struct training {
    mu_variable *v;
    mu_optimizer *optimizer;
} training;

static mu_value *train(mu_value *arguments, void *arg)
{
    (void)arguments;
    const training *t = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_variable_read(t->v);
    mu_value *g = mu_gradients(tape, mu_multiply(x, x), mu_variables(t->v, MU_END));
    return mu_apply_gradients(t->optimizer, g) == MU_OK ? read_of(t->v) : NULL;
}

static void training_of_others(void)
{
    mu_strategy *s = mirrored(2), *others[] = {mu_default_strategy(), mu_one_device_strategy("CPU:0")};
    training t = {.v = on_write(s, 1, MU_AGGREGATION_NONE)};
    MU_SCOPE(s) {
        t.optimizer = mu_sgd(.learning_rate = .25);
        CHECK(!train(NULL, &t));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(!RUN(i % 2)(others[i / 2], train, &t));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
    EXPECT(components(t.v), 1, 1);
    EXPECT(traced(s, train, &t), 0, 0);
    training alone = {.v = on_write(mirrored(1), 1, MU_AGGREGATION_NONE), .optimizer = mu_sgd(.learning_rate = .25)};
    EXPECT(mu_function_call(mu_function_new(train, &alone), NULL), .5);
}

// ---- Variables as arguments ---------------------------------------------------------------------

static mu_value *add_to_argument(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_object *leaves[4];
    mu_value *last = NULL;
    const int n = mu__value_flatten(arguments, leaves, 4);
    for (int i = 0; i < n; i++)
        last = mu_variable_assign_add((mu_variable *)leaves[i], VECTOR(1)) == MU_OK ? read_of((mu_variable *)leaves[i])
                                                                                    : NULL;
    return last;
}

// A function works on the variables that each call gives it, not on those of the first.
static void variables_as_arguments(void)
{
    mu_strategy *s = mirrored(2);
    mu_function *f = mu_function_new(add_to_argument, NULL);
    for (int i = 0; i < 3; i++) {
        mu_variable *v = variable(s, VECTOR(i), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
        EXPECT(mu_run(s, f, mu_variables(v, MU_END)), i + 1, i + 1);
        EXPECT(mu_run(s, f, mu_variables(v, MU_END)), i + 2, i + 2);
        EXPECT(components(v), i + 2, i + 2);
    }
    mu_function *g = mu_function_new(add_to_argument, NULL);
    for (int i = 0; i < 3; i++) {
        mu_variable *parts[] = {mu_variable_new(VECTOR(i)), mu_variable_new(VECTOR(10 * i))};
        mu_variable *whole = mu_sharded_variable_of(2, parts, NULL);
        EXPECT(mu_function_call(g, mu_variables(whole, MU_END)), 10 * i + 1);
        EXPECT(mu_function_call(g, mu_list(mu_variables(parts[0], MU_END), MU_END)), i + 2);
        EXPECT(read_of(whole), i + 2, 10 * i + 1);
    }
    CHECK(mu_function_trace_count(g) == 6);
}

// ---- Owners ------------------------------------------------------------------------------------

static mu_value *make_once(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable **made = arg;
    if (!*made)
        *made = mu_retain(mu_variable_new(scalar(1), "made"));
    return read_of(*made);
}

// A variable that is made where no other strategy is in force has no strategy, wherever the function runs.
static void made_under_none(void)
{
    mu_strategy *none = mu_default_strategy();
    mu_variable *made[4] = {NULL};
    MU_SCOPE(none)
        made[0] = mu_retain(mu_variable_new(scalar(1), "made"));
    CHECK(mu_run(none, mu_function_new(make_once, &made[1]), NULL));
    CHECK(mu_run_callback(none, make_once, &made[2], NULL));
    CHECK(mu_function_call(mu_function_new(make_once, &made[3]), NULL));
    for (int i = 0; i < 4; i++) {
        CHECK(made[i] && mu_variable_created_in_scope(none, made[i]) && !mu_variable_strategy(made[i]));
        mu_release(made[i]);
    }
}

// testWarmStart, testInitializeFromCheckpoint: what any strategy saved, any other restores into every copy.
static void files_of_others(void)
{
    char path[] = "/tmp/muster-pin-XXXXXX";
    const int file = mkstemp(path);
    mu_strategy *all[] = {mu_default_strategy(), mu_one_device_strategy("CPU:0"), mirrored(2),
                          mu_central_storage_strategy(.replicas = 2)};
    const int n = (int)MU_COUNT(all);
    for (int i = 0; i < n * n; i++) {
        mu_variable *saved = variable(all[i / n], VECTOR(1, 2, 3), 0, 0);
        mu_variable *restored = variable(all[i % n], VECTOR(0, 0, 0), 0, 0);
        CHECK(mu_checkpoint_save(mu_checkpoint_new(.variables = mu_variables(saved, MU_END)), path) == MU_OK);
        CHECK(mu_checkpoint_restore(mu_checkpoint_new(.variables = mu_variables(restored, MU_END)), path) == MU_OK);
        mu_value *each = components(restored);
        CHECK(mu_value_count(each) == (i % n == 2 ? 2 : 1));
        for (int k = 0; k < mu_value_count(each); k++)
            EXPECT(mu_value_at(each, k), 1, 2, 3);
    }
    close(file);
    unlink(path);
}

// ---- Structures --------------------------------------------------------------------------------

static mu_value *plus(mu_tensor *id_of_replica, double number) { return mu_of(mu_add(id_of_replica, scalar(number))); }

static mu_value *nest(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *i = id();
    mu_value *map = mu_map("c", plus(i, 30), "e", plus(i, 40), MU_END);
    mu_value *inner = mu_list(plus(i, 20), map, plus(i, 50), MU_END);
    return mu_list(plus(i, 10), inner, mu_list(plus(i, 60), mu_of(arg), MU_END), MU_END);
}

// testNested, testSameId, testOneDevice of values that are regrouped: each leaf is per replica but what all share, and
// mu_local_results gives back what each replica returned.
static void nests_of_results(void)
{
    mu_strategy *two = mirrored(2), *one = mirrored(1);
    mu_tensor *shared = scalar(7);
    for (int i = 0; i < 2; i++) {
        mu_value *all = RUN(i)(two, nest, shared), *inner = mu_value_at(all, 1), *map = mu_value_at(inner, 1);
        CHECK(mu_value_kind_of(mu_value_at(all, 0)) == MU_VALUE_PER_REPLICA);
        CHECK(mu_value_kind_of(inner) == MU_VALUE_LIST && mu_value_count(inner) == 3 && mu_value_count(map) == 2);
        EXPECT(mu_value_get(map, "c"), 30, 31);
        EXPECT(mu_value_get(map, "e"), 40, 41);
        CHECK(mu_value_kind_of(mu_value_at(mu_value_at(all, 2), 1)) == MU_VALUE_TENSOR);
        mu_value *each = mu_local_results(two, all);
        CHECK(mu_value_count(each) == 2);
        EXPECT(mu_value_at(each, 0), 10, 20, 30, 40, 50, 60, 7);
        EXPECT(mu_value_at(each, 1), 11, 21, 31, 41, 51, 61, 7);
        all = RUN(i)(one, nest, shared);
        CHECK(mu_value_kind_of(mu_value_at(all, 0)) == MU_VALUE_TENSOR);
        EXPECT(all, 10, 20, 30, 40, 50, 60, 7);
    }
}

const one_case pin_function_cases[] = {
    {"pin_runs_inside", runs_inside, NULL},
    {"pin_results_in_scopes", results_in_scopes, NULL},
    {"pin_device_that_is_set", device_that_is_set, NULL},
    {"pin_calls_in_merges", calls_in_merges_and_updates, NULL},
    {"pin_variables_outside", variables_outside, NULL},
    {"pin_variables_in_default_traces", variables_in_default_traces, NULL},
    {"pin_scatters_of_others", scatters_of_others, NULL},
    {"pin_training_of_others", training_of_others, NULL},
    {"pin_variables_as_arguments", variables_as_arguments, NULL},
    {"pin_made_under_none", made_under_none, NULL},
    {"pin_files_of_others", files_of_others, NULL},
    {"pin_nests_of_results", nests_of_results, NULL},
    {0},
};
