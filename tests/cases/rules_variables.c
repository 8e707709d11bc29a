// Rules of the guide to TensorFlow's core, section 9, that no numbered case covers: what variables are, reads, updates,
// scatters, checkpoints; under every strategy of one machine.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

static mu_strategy *two(void) { return mirrored(2); }

#define RUN(i) ((i) ? traced : eager)

// ---- 9.1: what they are -------------------------------------------------------------------------

static mu_variable *with(mu_strategy *s, bool trainable, bool not_trainable, mu_variable_synchronization how)
{
    mu_variable *made = NULL;
    MU_SCOPE(s)
        made = mu_variable_new(VECTOR(1, 2), "w", .trainable = trainable, .not_trainable = not_trainable,
                               .synchronization = how, .aggregation = MU_AGGREGATION_MEAN);
    return made;
}

static void trainable(void)
{
    mu_strategy *all[] = {two(), mu_one_device_strategy("CPU:0"), mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 3; i++) {
        CHECK(mu_variable_is_trainable(with(all[i], false, false, MU_SYNCHRONIZATION_AUTO)));
        CHECK(!mu_variable_is_trainable(with(all[i], false, true, MU_SYNCHRONIZATION_AUTO)));
        CHECK(!mu_variable_is_trainable(with(all[i], false, false, MU_SYNCHRONIZATION_ON_READ)));
        CHECK(mu_variable_is_trainable(with(all[i], true, false, MU_SYNCHRONIZATION_ON_READ)));
        CHECK(!with(all[i], true, true, MU_SYNCHRONIZATION_AUTO));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

static void answers(void)
{
    mu_variable *v = with(two(), false, false, MU_SYNCHRONIZATION_AUTO);
    const mu_shape shape = mu_variable_shape(v);
    char name[40];
    CHECK(strcmp(mu_variable_name(v), "w") == 0 && mu_variable_dtype(v) == MU_F32);
    CHECK(shape.rank == 1 && shape.dims[0] == 2);
    CHECK(mu_variable_synchronization_of(v) == MU_SYNCHRONIZATION_ON_WRITE);
    CHECK(mu_variable_aggregation_of(v) == MU_AGGREGATION_MEAN);
    CHECK(mu_variable_component_name(v, 0, name, sizeof name) == 1 && strcmp(name, "w") == 0);
    CHECK(mu_variable_component_name(v, 2, name, sizeof name) == -1);
    CHECK(strcmp(mu_variable_name(mu_variable_new(scalar(1))), "Variable") == 0);
    v = with(mu_one_device_strategy("CPU:0"), false, false, MU_SYNCHRONIZATION_NONE);
    CHECK(mu_variable_component_count(v) == 1);
    v = with(mu_central_storage_strategy(.replicas = 2), false, false, MU_SYNCHRONIZATION_AUTO);
    CHECK(mu_variable_component_count(v) == 1);
}

static void owners(void)
{
    mu_strategy *s = two(), *other = two(), *none = mu_default_strategy();
    mu_variable *v = on_write(s, 1, MU_AGGREGATION_NONE), *plain = mu_variable_new(scalar(1));
    CHECK(mu_variable_created_in_scope(s, v) && !mu_variable_created_in_scope(other, v));
    CHECK(!mu_variable_created_in_scope(none, v) && mu_variable_created_in_scope(none, plain));
    CHECK(mu_variable_created_in_scope(NULL, plain) && !mu_variable_created_in_scope(s, plain));
    CHECK(!mu_variable_created_in_scope(s, NULL));
}

static mu_value *make_own(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_variable *v = mu_variable_new(mu_add(VECTOR(1, 2, 3), id()));
    return v ? read_of(v) : NULL;
}

// One first value for all, also when every replica has its own.
static void first_values(void)
{
    mu_strategy *s = mirrored(3);
    mu_value *made = eager(s, make_own, NULL);
    const mu_tensor *first = made ? mu_value_tensor(mu_value_at(made, 0)) : NULL;
    for (int r = 1; first && r < 3; r++) {
        const mu_tensor *other = mu_value_tensor(mu_value_at(made, r));
        CHECK(other && memcmp(mu_tensor_data(first), mu_tensor_data(other), 3 * sizeof(float)) == 0);
    }
    CHECK(first != NULL);
}

typedef struct makers {
    mu_variable *seen[3][4];
    const char *names[3][4];
} makers;

static mu_value *make_four(mu_value *arguments, void *arg)
{
    (void)arguments;
    makers *m = arg;
    const int r = (int)mu_scalar(mu_replica_id());
    for (int i = 0; i < 4; i++)
        m->seen[r][i] = mu_retain(mu_variable_new(scalar(10 * r + i), m->names[r][i]));
    return NULL;
}

static void drop_all(const makers *m)
{
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 4; i++)
            mu_release(m->seen[r][i]);
}

// By canonical name, in order of making; what the others give as first value is not looked at.
static void canonical_names(void)
{
    mu_strategy *s = two();
    makers m = {.names = {{"a", "b/c", NULL, "a"}, {"a_1", "b_1/c", NULL, "a_1"}}};
    CHECK(eager(s, make_four, &m));
    for (int i = 0; i < 4; i++) {
        CHECK(m.seen[0][i] && m.seen[0][i] == m.seen[1][i]);
        if (m.seen[0][i])
            EXPECT(components(m.seen[0][i]), i, i);
    }
    drop_all(&m);
    makers other = {.names = {{"a", "b", "c", "d"}, {"a", "b", "c", "e"}}};
    CHECK(!eager(s, make_four, &other));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    drop_all(&other);
}

static mu_value *make_on_tape(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = scalar(3);
    mu_variable *v = mu_variable_new(mu_square(x));
    return mu_gradients(tape, mu_multiply(mu_variable_read(v), scalar(2)), mu_list(x, MU_END));
}

// Nothing is recorded while a variable is made from its first value.
static void making_is_not_recorded(void)
{
    MU_SCOPE(two())
        EXPECT(make_on_tape(NULL, NULL), 0);
}

static void wrong_makers(void)
{
    mu_strategy *s = two(), *central = mu_central_storage_strategy(.replicas = 2);
    CHECK(!variable(s, NULL, MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        CHECK(!variable(i ? s : central, scalar(1), (mu_variable_synchronization)-1, MU_AGGREGATION_NONE));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(!variable(i ? s : central, scalar(1), MU_SYNCHRONIZATION_AUTO, (mu_variable_aggregation)4));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

// ---- 9.2: reads ---------------------------------------------------------------------------------

static mu_value *read_in_update(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)variable, (void)arguments;
    return read_of(arg);
}

static void reads(void)
{
    mu_strategy *s = two();
    mu_variable *slot = on_write(s, 0, MU_AGGREGATION_NONE);
    for (int a = MU_AGGREGATION_NONE; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++) {
        static const double wanted[] = {0, 11, 5.5, 5};
        mu_variable *r = on_read(s, 0, (mu_variable_aggregation)a);
        assignment job = {.variable = r, .assign = mu_variable_assign, .scale = 1, .offset = 5};
        EXPECT(eager(s, assign_on_replica, &job), 5, 6);
        EXPECT(mu_update_variable(s, slot, read_in_update, r), 5, 6);
        if (a == MU_AGGREGATION_NONE)
            continue;
        EXPECT(read_of(r), wanted[a]);
        MU_SCOPE(s)
            EXPECT(read_of(r), wanted[a]);
    }
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_NONE);
    assignment job = {.variable = v, .assign = mu_variable_assign, .scale = 1, .offset = 5};
    EXPECT(eager(s, assign_on_replica, &job), 5, 6); // NONE: they may differ; outside the first is seen
    EXPECT(read_of(v), 5);
    EXPECT(mu_update_variable(s, slot, read_in_update, v), 5, 6);
}

static void reads_are_copies(void)
{
    mu_variable *v = on_write(two(), 1, MU_AGGREGATION_NONE);
    mu_value *before = read_of(v);
    CHECK(mu_variable_assign(v, scalar(2)) == MU_OK);
    EXPECT(before, 1);
    EXPECT(read_of(v), 2);
}

static mu_value *read_in_sync(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_sync_on_read(true);
    mu_value *value = read_of(arg);
    mu_sync_on_read(false);
    return value;
}

static void sync_on_read(void)
{
    mu_strategy *s = two();
    for (int i = 0; i < 8; i++) {
        static const double wanted[] = {0, 1, .5, 0};
        mu_variable *r = on_read(s, 0, (mu_variable_aggregation)(i / 2));
        assignment job = {.variable = r, .assign = mu_variable_assign, .scale = 1};
        EXPECT(eager(s, assign_on_replica, &job), 0, 1);
        mu_value *seen = RUN(i % 2)(s, read_in_sync, r);
        if (i < 2)
            EXPECT_ERROR(MU_INVALID_ARGUMENT);
        else
            EXPECT(seen, wanted[i / 2], wanted[i / 2]);
    }
    CHECK(mu_sync_on_read(true) != MU_OK);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
}

// ---- 9.3: assignments ---------------------------------------------------------------------------

// What replicas bring is put together once, as a delta, and applied to every component.
static void deltas(void)
{
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    static const double wanted[4][3] = {{0}, {3, 103, 97}, {1.5, 101.5, 98.5}, {1, 101, 99}};
    mu_strategy *all[] = {two(), mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 36; i++) {
        const int a = 1 + i / 12, k = i / 4 % 3;
        mu_strategy *s = all[i % 2];
        mu_variable *v = on_write(s, 100, (mu_variable_aggregation)a);
        assignment job = {.variable = v, .assign = assigns[k], .scale = 1, .offset = 1};
        EXPECT(RUN(i / 2 % 2)(s, assign_on_replica, &job), wanted[a][k], wanted[a][k]);
        if (i % 2 == 0)
            EXPECT(components(v), wanted[a][k], wanted[a][k]);
        else
            EXPECT(components(v), wanted[a][k]);
        CHECK(assigns[k](v, scalar(1)) == MU_OK); // outside: to each as it is
        EXPECT(read_of(v), k == 0 ? 1 : wanted[a][k] + (k == 1 ? 1 : -1));
    }
}

static mu_value *assign_part(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_variable_assign(variable, mu_at(arguments, 0)) == MU_OK ? read_of(variable) : NULL;
}

// Components can be made to differ, by a per-replica value in an update; what comes after is added to each.
static void components_that_differ(void)
{
    mu_strategy *s = two();
    for (int i = 0; i < 6; i++) {
        mu_variable *v = on_write(s, 1, (mu_variable_aggregation)(i / 2 ? i / 2 + 1 : 0));
        EXPECT(mu_update_variable(s, v, assign_part, NULL, mu_list(PER_REPLICA(1, 2), MU_END)), 1, 2);
        EXPECT(read_of(v), 1);
        assignment job = {.variable = v, .assign = mu_variable_assign_add, .value = scalar(1)};
        EXPECT(RUN(i % 2)(s, assign_on_replica, &job), 2, 3);
        EXPECT(components(v), 2, 3);
    }
}

static void wrong_values(void)
{
    mu_strategy *s = two();
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_SUM);
    mu_tensor *wrong[] = {VECTOR(1, 2), mu_constant(MU_I32, 1), NULL};
    for (int i = 0; i < 3; i++) {
        CHECK(mu_variable_assign(v, wrong[i]) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(mu_variable_assign(NULL, scalar(1)) != MU_OK);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void on_read_outside(void)
{
    mu_strategy *s = two();
    mu_variable *none = on_read(s, 1, MU_AGGREGATION_NONE);
    CHECK(mu_variable_assign(none, scalar(4)) == MU_OK && mu_variable_assign_add(none, scalar(1)) == MU_OK);
    EXPECT(components(none), 5, 5);
    mu_variable *sum = variable(s, mu_constant(MU_I32, 1), MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_SUM);
    CHECK(mu_variable_assign(sum, mu_constant(MU_I32, 7)) == MU_OK);
    EXPECT(components(sum), 3, 3);
    EXPECT(read_of(sum), 6);
}

// ---- 9.4: scatters ------------------------------------------------------------------------------

typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
static scatter_fn *const scatters[] = {mu_variable_scatter_add,   mu_variable_scatter_sub, mu_variable_scatter_mul,
                                       mu_variable_scatter_div,   mu_variable_scatter_min, mu_variable_scatter_max,
                                       mu_variable_scatter_update};

typedef struct scattering {
    mu_variable *variable;
    scatter_fn *scatter;
} scattering;

// Row 0 of all replicas, and each one's own row, by 2 and 4.
static mu_value *scatter_rows(mu_value *arguments, void *arg)
{
    (void)arguments;
    const scattering *s = arg;
    mu_tensor *own = mu_cast(mu_expand_dims(mu_add(id(), scalar(1)), 0), MU_I32);
    mu_tensor *both[] = {INDICES(0), own};
    return s->scatter(s->variable, mu_concat(2, both, 0), VECTOR(2, 4)) == MU_OK ? read_of(s->variable) : NULL;
}

static void scatter_on_replicas(void)
{
    static const double sum[4][3] = {{12, 12, 12}, {4, 4, 4}, {32, 32, 32}, {2, 2, 2}},
                        mean[4][3] = {{10, 10, 10}, {6, 6, 6}, {8, 16, 16}, {8, 4, 4}},
                        first[4][3] = {{10, 12, 8}, {6, 4, 8}, {16, 32, 8}, {4, 2, 8}};
    mu_strategy *s = two();
    for (int i = 0; i < 24; i++) {
        const int k = i / 6, a = 1 + i / 2 % 3;
        const double *wanted = (a == 1 ? sum : a == 2 ? mean : first)[k];
        mu_variable *v = variable(s, VECTOR(8, 8, 8), MU_SYNCHRONIZATION_AUTO, (mu_variable_aggregation)a);
        CHECK(RUN(i % 2)(s, scatter_rows, &(scattering){.variable = v, .scatter = scatters[k]}));
        EXPECT(components(v), wanted[0], wanted[1], wanted[2], wanted[0], wanted[1], wanted[2]);
    }
}

static void scatter_without_aggregation(void)
{
    mu_strategy *s = two();
    for (int i = 0; i < 2; i++) {
        mu_variable *v = variable(s, VECTOR(8, 8, 8), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
        CHECK(RUN(i)(s, scatter_rows, &(scattering){.variable = v, .scatter = mu_variable_scatter_add}));
        EXPECT(components(v), 10, 12, 8, 10, 8, 12);
        v = variable(s, VECTOR(8, 8, 8), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
        CHECK(RUN(i)(s, scatter_rows, &(scattering){.variable = v, .scatter = mu_variable_scatter_update}));
        EXPECT(components(v), 2, 4, 8, 2, 8, 4);
    }
}

static mu_value *scatter_in_update(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_variable_scatter_add(variable, INDICES(1), VECTOR(5)) == MU_OK ? read_of(variable) : NULL;
}

static void scatter_elsewhere(void)
{
    mu_strategy *s = two();
    static const double wanted[] = {10, 6, 16, 4, 2, 8, 2};
    for (int k = 0; k < 7; k++) {
        mu_variable *v = variable(s, VECTOR(8, 8), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_ONLY_FIRST_REPLICA);
        CHECK(scatters[k](v, INDICES(0), VECTOR(2)) == MU_OK);
        EXPECT(components(v), wanted[k], 8, wanted[k], 8);
        mu_variable *r = variable(s, VECTOR(8, 8), MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_MEAN);
        CHECK(scatters[k](r, INDICES(0), VECTOR(2)) != MU_OK);
        EXPECT_ERROR(MU_UNIMPLEMENTED);
        CHECK(!mu_update_variable(s, r, scatter_in_update, NULL));
        EXPECT_ERROR(MU_UNIMPLEMENTED);
    }
    mu_variable *v = variable(s, VECTOR(8, 8), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_SUM);
    EXPECT(mu_update_variable(s, v, scatter_in_update, NULL), 8, 13, 8, 13);
    CHECK(mu_variable_scatter_add(v, INDICES(2), VECTOR(1)) != MU_OK);
    const mu_status seen = mu_error_take().code;
    CHECK(seen == MU_INVALID_ARGUMENT || seen == MU_OUT_OF_RANGE);
}

// ---- 9.5: updates -------------------------------------------------------------------------------

static mu_value *add_argument(mu_variable *variable, mu_value *arguments, void *arg)
{
    if (arg)
        ++*(int *)arg;
    return mu_variable_assign_add(variable, mu_at(arguments, 0)) == MU_OK ? read_of(variable) : NULL;
}

static void updates(void)
{
    mu_strategy *s = two(), *one = mu_one_device_strategy("CPU:0"), *none = mu_default_strategy();
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_SUM), *w = on_write(one, 0, MU_AGGREGATION_SUM),
                *plain = mu_variable_new(scalar(0));
    int calls = 0;
    mu_value *result = mu_update_variable(s, v, add_argument, &calls, mu_list(PER_REPLICA(1, 2), MU_END));
    CHECK(calls == 2 && mu_value_kind_of(result) == MU_VALUE_MIRRORED);
    EXPECT(result, 1, 2);
    MU_SCOPE(s)
        EXPECT(mu_update_variable(s, v, add_argument, &calls, mu_list(scalar(3), MU_END)), 4, 5);
    mu_value *local = mu_update_variable(s, v, add_argument, &calls, mu_list(scalar(1), MU_END), .local_results = true);
    CHECK(mu_value_count(local) == 2);
    EXPECT(local, 5, 6);
    calls = 0;
    EXPECT(mu_update_variable(one, w, add_argument, &calls, mu_list(scalar(3), MU_END)), 3);
    EXPECT(mu_update_variable(none, plain, add_argument, &calls, mu_list(scalar(3), MU_END)), 3);
    CHECK(calls == 2);
    CHECK(!mu_update_variable(s, plain, add_argument, &calls, mu_list(scalar(3), MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_update_variable(s, NULL, add_argument, &calls, mu_list(scalar(3), MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *count_call(mu_value *arguments, void *arg)
{
    ++*(int *)arg;
    return arguments;
}

static void updates_without_slot(void)
{
    mu_strategy *s = two(), *central = mu_central_storage_strategy(.replicas = 2);
    int calls = 0;
    EXPECT(mu_local_results(s, mu_update_non_slot(s, count_call, &calls, PER_REPLICA(1, 2))), 1, 2);
    CHECK(calls == 2);
    EXPECT(mu_update_non_slot(central, count_call, &calls, mu_of(scalar(1))), 1);
    CHECK(calls == 3);
    EXPECT(mu_update_non_slot(mu_one_device_strategy("CPU:0"), count_call, &calls, mu_of(scalar(1))), 1);
    EXPECT(mu_update_non_slot(mu_default_strategy(), count_call, &calls, mu_of(scalar(1))), 1);
    CHECK(calls == 5);
}

// ---- 9.6: one copy for all ----------------------------------------------------------------------

static void central(void)
{
    mu_strategy *s = mu_central_storage_strategy(.replicas = 2), *one = mu_central_storage_strategy(.replicas = 1);
    for (int i = 0; i < 2; i++) {
        mu_variable *sum = on_write(s, 1, MU_AGGREGATION_SUM), *mean = on_read(s, 1, MU_AGGREGATION_MEAN),
                    *first = on_write(s, 1, MU_AGGREGATION_ONLY_FIRST_REPLICA),
                    *alone = on_write(one, 1, MU_AGGREGATION_NONE);
        assignment literal = {.variable = sum, .assign = mu_variable_assign, .value = scalar(5)};
        CHECK(!RUN(i)(s, assign_on_replica, &literal));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        literal.variable = mean;
        EXPECT(RUN(i)(s, assign_on_replica, &literal), 5, 5);
        literal.variable = first;
        EXPECT(RUN(i)(s, assign_on_replica, &literal), 5, 5);
        literal.variable = alone;
        EXPECT(RUN(i)(one, assign_on_replica, &literal), 5);
        assignment own = {.variable = mean, .assign = mu_variable_assign, .scale = 1};
        EXPECT(RUN(i)(s, assign_on_replica, &own), .5, .5); // ON_READ means nothing here
        EXPECT(read_of(mean), .5);
        EXPECT(RUN(i)(s, read_on_replica, mean), .5, .5);
        CHECK(mu_variable_assign_add(mean, scalar(1)) == MU_OK && mu_variable_assign_sub(sum, scalar(1)) == MU_OK);
        EXPECT(components(mean), 1.5);
        EXPECT(components(sum), 0);
    }
}

// ---- 9.7: checkpoints ---------------------------------------------------------------------------

static mu_status keep(mu_variable *variable, const char *path, bool restore)
{
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(variable, MU_END));
    return restore ? mu_checkpoint_restore(checkpoint, path) : mu_checkpoint_save(checkpoint, path);
}

// Whatever a variable is, its file is a plain one's: what is read outside of replicas, and restored to all.
static void checkpoints(void)
{
    char path[] = "/tmp/muster-rule-XXXXXX";
    const int file = mkstemp(path);
    mu_strategy *all[] = {two(), mirrored(3), mu_central_storage_strategy(.replicas = 2),
                          mu_one_device_strategy("CPU:0"), mu_default_strategy()};
    for (int from = 0; from < 5; from++)
        for (int to = 0; to < 5; to++)
            for (int k = 0; k < 6; k++) {
                const mu_variable_aggregation how = (mu_variable_aggregation)(1 + k % 3);
                mu_variable *v = (k < 3 ? on_write : on_read)(all[from], 1, how);
                mu_variable *w = (k < 3 ? on_write : on_read)(all[to], 9, how);
                CHECK(mu_variable_assign(v, scalar(6)) == MU_OK);
                CHECK(keep(v, path, false) == MU_OK && keep(w, path, true) == MU_OK);
                EXPECT(read_of(w), 6);
            }
    mu_variable *none = on_read(all[0], 1, MU_AGGREGATION_NONE);
    CHECK(keep(none, path, false) != MU_OK);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    mu_variable *sum = on_read(all[0], 1, MU_AGGREGATION_SUM), *plain = mu_variable_new(scalar(2), "v");
    CHECK(keep(plain, path, false) == MU_OK && keep(sum, path, true) == MU_OK);
    EXPECT(components(sum), 1, 1);
    close(file);
    unlink(path);
}

const one_case rule_variable_cases[] = {
    {"rule_core_9_1_trainable", trainable, NULL},
    {"rule_core_9_1_answers", answers, NULL},
    {"rule_core_9_1_owners", owners, NULL},
    {"rule_core_9_1_first_values", first_values, NULL},
    {"rule_core_9_1_canonical_names", canonical_names, NULL},
    {"rule_core_9_1_not_recorded", making_is_not_recorded, NULL},
    {"rule_core_9_1_wrong", wrong_makers, NULL},
    {"rule_core_9_2_reads", reads, NULL},
    {"rule_core_9_2_copies", reads_are_copies, NULL},
    {"rule_core_9_2_sync_on_read", sync_on_read, NULL},
    {"rule_core_9_3_deltas", deltas, NULL},
    {"rule_core_9_3_differing", components_that_differ, NULL},
    {"rule_core_9_3_wrong", wrong_values, NULL},
    {"rule_core_9_3_on_read", on_read_outside, NULL},
    {"rule_core_9_4_aggregations", scatter_on_replicas, NULL},
    {"rule_core_9_4_none", scatter_without_aggregation, NULL},
    {"rule_core_9_4_elsewhere", scatter_elsewhere, NULL},
    {"rule_core_9_5_updates", updates, NULL},
    {"rule_core_9_5_non_slot", updates_without_slot, NULL},
    {"rule_core_9_6_central", central, NULL},
    {"rule_core_9_7_checkpoints", checkpoints, NULL},
    {0},
};
