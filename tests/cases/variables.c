// Core cases F, H and I: mirrored variables, ON_READ variables, checkpoints.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

static mu_value *make_foo(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_value_at(mu_variables(mu_variable_new(scalar(1), "foo"), MU_END), 0);
}

static void core_068(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *made = eager(s, make_foo, NULL);
    char name[40] = "";
    CHECK(made && made->kind == MU_VALUE_VARIABLE);
    if (!made || made->kind != MU_VALUE_VARIABLE)
        return;
    mu_variable *foo = (mu_variable *)made->leaf;
    CHECK(mu_variable_component_count(foo) == 2 && strcmp(mu_variable_name(foo), "foo") == 0 &&
          mu_variable_strategy(foo) == s);
    mu_variable_component_name(foo, 1, name, sizeof name);
    CHECK(strcmp(name, "foo/replica_1") == 0);
}

static void core_070(void)
{
    mu_strategy *s = mirrored(2);
    CHECK(!variable(s, scalar(1), MU_SYNCHRONIZATION_NONE, MU_AGGREGATION_NONE));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!variable(s, scalar(1), (mu_variable_synchronization)9, MU_AGGREGATION_NONE));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!variable(s, scalar(1), MU_SYNCHRONIZATION_AUTO, (mu_variable_aggregation)9));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *make_named(mu_value *arguments, void *arg)
{
    (void)arguments;
    const char *const *names = arg;
    return mu_value_at(mu_variables(mu_variable_new(scalar(1), names[(int)mu_scalar(mu_replica_id())]), MU_END), 0);
}

static void core_071(void)
{
    const char *different[] = {"foo", "bar"}, *canonical[] = {"foo_0", "foo_1"};
    mu_strategy *s = mirrored(2);
    CHECK(!eager(s, make_named, different));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    mu_value *made = eager(s, make_named, canonical);
    CHECK(made && made->kind == MU_VALUE_VARIABLE && strcmp(mu_variable_name((mu_variable *)made->leaf), "foo_0") == 0);
}

// Runs eagerly, then traced with fresh components.
#define ON_REPLICAS(s, ...)        eager(s, assign_on_replica, &(assignment){__VA_ARGS__})
#define ON_REPLICAS_TRACED(s, ...) traced(s, assign_on_replica, &(assignment){__VA_ARGS__})

static void core_073(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 1, MU_AGGREGATION_SUM);
    CHECK(!ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .value = scalar(5)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!ON_REPLICAS_TRACED(s, .variable = v, .assign = mu_variable_assign, .value = scalar(5)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void core_074(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 2; i++) {
        replica_fn *fn = assign_on_replica;
        mu_value *(*run)(mu_strategy *, replica_fn *, void *) = i ? traced : eager;
        mu_variable *v = on_write(s, 1, MU_AGGREGATION_MEAN), *w = on_write(s, 1, MU_AGGREGATION_MEAN),
                    *x = on_write(s, 5, MU_AGGREGATION_MEAN);
        EXPECT(run(s, fn, &(assignment){.variable = v, .assign = mu_variable_assign, .scale = 1}), .5, .5);
        EXPECT(run(s, fn, &(assignment){.variable = w, .assign = mu_variable_assign_add, .scale = 1}), 1.5, 1.5);
        EXPECT(run(s, fn, &(assignment){.variable = x, .assign = mu_variable_assign_sub, .scale = 1}), 4.5, 4.5);
        EXPECT(components(x), 4.5, 4.5);
    }
}

static void core_076(void)
{
    static const mu_variable_aggregation aggregations[] = {MU_AGGREGATION_SUM, MU_AGGREGATION_MEAN,
                                                           MU_AGGREGATION_ONLY_FIRST_REPLICA};
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    static const double wanted[] = {4, 2, 2};
    mu_strategy *s = mirrored(2);
    for (int a = 0; a < 3; a++)
        for (int k = 0; k < 6; k++) {
            // 1e-30 * id rounds away: the tensors are made on the replicas, and equal.
            mu_variable *v = on_write(s, 0, aggregations[a]);
            const double scale = 1e-30, offset = (k % 3 == 2 ? -2 : 2) / 1e-30;
            assignment job = {.variable = v, .assign = assigns[k % 3], .scale = scale, .offset = offset};
            CHECK((k < 3 ? eager : traced)(s, assign_on_replica, &job));
            EXPECT(components(v), wanted[a], wanted[a]);
        }
}

static void core_077(void)
{
    mu_strategy *s = mirrored(3);
    mu_variable *v = on_write(s, 15, MU_AGGREGATION_ONLY_FIRST_REPLICA);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .scale = 1), 0, 0, 0);
    EXPECT(components(v), 0, 0, 0);
}

static void core_079(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 1, MU_AGGREGATION_NONE);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .value = scalar(5)), 5, 5);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .scale = 1), 0, 1);
    EXPECT(components(v), 0, 1);
}

static void core_080(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = variable(s, mu_constant(MU_I32, 1), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_MEAN);
    CHECK(!ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .scale = 1));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .value = mu_constant(MU_I32, 7)), 7, 7);
}

typedef struct copying {
    mu_variable *to, *from;
    assign_fn *assign;
} copying;

static mu_value *copy_variable(mu_value *arguments, void *arg)
{
    (void)arguments;
    const copying *c = arg;
    return c->assign(c->to, mu_variable_read(c->from)) == MU_OK ? read_of(c->to) : NULL;
}

static void core_082(void)
{
    static const mu_variable_aggregation aggregations[] = {MU_AGGREGATION_NONE, MU_AGGREGATION_MEAN,
                                                           MU_AGGREGATION_ONLY_FIRST_REPLICA};
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 9; i++) {
        copying c = {.to = on_write(s, 0, aggregations[i / 3]),
                     .from = on_write(s, i % 3 == 2 ? -2 : 2, MU_AGGREGATION_NONE),
                     .assign = assigns[i % 3]};
        CHECK(eager(s, copy_variable, &c));
        EXPECT(components(c.to), 2, 2);
        CHECK(mu_variable_assign(c.to, scalar(0)) == MU_OK && copy_variable(NULL, &c));
        EXPECT(components(c.to), 2, 2);
    }
}

static void core_083(void)
{
    mu_variable *v = on_write(mirrored(2), 1, MU_AGGREGATION_NONE);
    CHECK(mu_variable_assign_add(v, scalar(6)) == MU_OK);
    EXPECT(read_of(v), 7);
    EXPECT(components(v), 7, 7);
    CHECK(mu_variable_assign_add(v, scalar(2)) == MU_OK);
    EXPECT(components(v), 9, 9);
}

typedef struct addition {
    mu_variable *variable;
    mu_tensor *term;
} addition;

static mu_value *add_to_variable(mu_value *arguments, void *arg)
{
    (void)arguments;
    const addition *a = arg;
    return mu_of(mu_add(mu_variable_read(a->variable), a->term));
}

static void core_085(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = variable(s, mu_constant(MU_I32, 1), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_SUM);
    addition a = {.variable = v, .term = mu_constant(MU_I32, 1)};
    EXPECT(add_to_variable(NULL, &a), 2);
    EXPECT(eager(s, add_to_variable, &a), 2, 2);
    EXPECT(traced(s, add_to_variable, &a), 2, 2);
}

static void core_086(void)
{
    mu_strategy *s = mirrored(3);
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_MEAN);
    mu_variable *step = variable(s, mu_constant(MU_I64, 0), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_ONLY_FIRST_REPLICA);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign_add, .value = scalar(1)), 1, 1, 1);
    EXPECT(ON_REPLICAS(s, .variable = step, .assign = mu_variable_assign_add, .value = mu_constant(MU_I64, 1)), 1, 1,
           1);
}

static mu_value *assign_argument(mu_variable *v, mu_value *arguments, void *arg)
{
    return (*(assign_fn **)arg)(v, mu_at(arguments, 0)) == MU_OK ? read_of(v) : NULL;
}

typedef struct twice_updated {
    mu_strategy *strategy;
    mu_variable *variable;
    assign_fn *assign;
} twice_updated;

static mu_value *update_twice(mu_value *arguments, void *arg)
{
    (void)arguments;
    twice_updated *t = arg;
    mu_update_variable(t->strategy, t->variable, assign_argument, &t->assign, mu_of(scalar(2)));
    return mu_update_variable(t->strategy, t->variable, assign_argument, &t->assign, mu_of(scalar(1)));
}

static void core_088(void)
{
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    static const double wanted[] = {1, 8, 2};
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 3; i++) {
        twice_updated t = {.strategy = s, .variable = on_write(s, 5, MU_AGGREGATION_NONE), .assign = assigns[i]};
        CHECK(eager(s, update_twice, &t));
        EXPECT(components(t.variable), wanted[i], wanted[i]);
        twice_updated plain = {
            .strategy = mu_default_strategy(), .variable = mu_variable_new(scalar(5)), .assign = assigns[i]};
        CHECK(update_twice(NULL, &plain));
        EXPECT(read_of(plain.variable), wanted[i]);
    }
}

static void core_089(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *plain = mu_variable_new(scalar(1)), *other = on_write(mirrored(2), 1, MU_AGGREGATION_NONE),
                *own = on_write(s, 1, MU_AGGREGATION_NONE);
    MU_SCOPE(s) {
        MU_COLOCATE(s, plain) {
        }
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        MU_COLOCATE(s, other) {
        }
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        MU_COLOCATE(s, own)
            CHECK(mu_variable_component_count(mu_variable_new(scalar(1))) == 2);
    }
    MU_COLOCATE(s, own) {
    }
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
}

typedef struct training {
    mu_variable *variable;
    mu_optimizer *optimizer; // NULL: each replica by itself
} training;

// The loss is (id + 1) times the sum of the variable, so that is its gradient.
static mu_value *train(mu_value *arguments, void *arg)
{
    (void)arguments;
    const training *t = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_multiply(mu_add(id(), scalar(1)), mu_reduce_sum(mu_variable_read(t->variable), 0));
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(t->variable, MU_END));
    mu_tape_close(tape);
    if (t->optimizer)
        mu_apply_gradients(t->optimizer, gradients);
    else
        mu_variable_assign_sub(t->variable, mu_multiply(scalar(.1), mu_at(gradients, 0)));
    return read_of(t->variable);
}

static void core_091(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 4; i++) {
        training t = {.variable = variable(s, VECTOR(0, 0), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE)};
        if (i < 2)
            MU_SCOPE(s)
                t.optimizer = mu_sgd(.learning_rate = .1);
        mu_value *after = (i % 2 ? traced : eager)(s, train, &t);
        if (i < 2)
            EXPECT(after, -.3, -.3, -.3, -.3);
        else
            EXPECT(after, -.1, -.1, -.2, -.2);
    }
}

// ---- ON_READ ------------------------------------------------------------------------------------

static void core_098(void)
{
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    mu_strategy *s = mirrored(2);
    for (int a = MU_AGGREGATION_NONE; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++)
        for (int k = 0; k < 3; k++) {
            mu_variable *v = on_read(s, 0, (mu_variable_aggregation)a);
            CHECK(ON_REPLICAS(s, .variable = v, .assign = assigns[k], .value = scalar(k == 2 ? -1 : 1)));
            EXPECT(components(v), 1, 1);
            mu_variable *w = on_read(s, 0, (mu_variable_aggregation)a);
            if (a < MU_AGGREGATION_MEAN)
                continue;
            CHECK(assigns[k](w, scalar(k == 2 ? -1 : 1)) == MU_OK);
            EXPECT(components(w), 1, 1);
        }
}

static void core_100(void)
{
    mu_variable *v = on_read(mirrored(2), 1, MU_AGGREGATION_SUM);
    CHECK(mu_variable_assign_add(v, scalar(1)) != MU_OK);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(mu_variable_assign_sub(v, scalar(1)) != MU_OK);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void core_101(void)
{
    const double wanted[] = {0, 3, 1, 0};
    mu_strategy *s = mirrored(3);
    for (int a = MU_AGGREGATION_SUM; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++) {
        mu_variable *v = on_read(s, 9, (mu_variable_aggregation)a);
        EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .scale = 1), 0, 1, 2);
        EXPECT(read_of(v), wanted[a]);
        MU_SCOPE(s)
            EXPECT(read_of(v), wanted[a]);
    }
    CHECK(!read_of(on_read(s, 9, MU_AGGREGATION_NONE)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void core_103(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *sum = on_read(s, 1, MU_AGGREGATION_SUM), *mean = on_read(s, 1, MU_AGGREGATION_MEAN);
    EXPECT(read_of(sum), 2);
    EXPECT(read_of(mean), 1);
    CHECK(mu_variable_assign(sum, scalar(6)) == MU_OK && mu_variable_assign(mean, scalar(6)) == MU_OK);
    EXPECT(read_of(sum), 6);
    EXPECT(components(sum), 3, 3);
    EXPECT(read_of(mean), 6);
    EXPECT(components(mean), 6, 6);
}

static void core_104(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_read(s, 2, MU_AGGREGATION_ONLY_FIRST_REPLICA);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign_add, .scale = 5, .offset = 1), 7, 12);
    EXPECT(read_of(v), 7);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign_add, .scale = 11, .offset = 1), 18, 34);
    EXPECT(read_of(v), 18);
}

static void core_106(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_read(s, 1, MU_AGGREGATION_SUM);
    assign_fn *assign = mu_variable_assign;
    EXPECT(read_of(v), 2);
    EXPECT(mu_update_variable(s, v, assign_argument, &assign, mu_of(scalar(5)), .local_results = true), 5, 5);
    EXPECT(components(v), 5, 5);
    EXPECT(read_of(v), 10);
    EXPECT(mu_update_variable(s, v, assign_argument, &assign, PER_REPLICA(3, 4)), 3, 4);
}

static void core_107(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_read(s, 0, MU_AGGREGATION_MEAN);
    EXPECT(ON_REPLICAS(s, .variable = v, .assign = mu_variable_assign, .scale = 1), 0, 1);
    addition a = {.variable = v, .term = scalar(1)};
    EXPECT(add_to_variable(NULL, &a), 1.5);
    EXPECT(eager(s, add_to_variable, &a), 1, 2);
}

static mu_value *add_in_sync(mu_value *arguments, void *arg)
{
    mu_sync_on_read(true);
    mu_value *result = add_to_variable(arguments, arg);
    mu_sync_on_read(false);
    return result;
}

static void core_109(void)
{
    mu_strategy *s = mirrored(2);
    addition a = {.variable = on_read(s, 1, MU_AGGREGATION_SUM), .term = scalar(10)};
    EXPECT(eager(s, add_to_variable, &a), 11, 11);
    EXPECT(eager(s, add_in_sync, &a), 12, 12);
    EXPECT(traced(s, add_in_sync, &a), 12, 12);
}

// ---- Checkpoints --------------------------------------------------------------------------------

// Between save and restore; each run of the cases has its own.
static char file[] = "/tmp/muster-cases-XXXXXX.safetensors";

static mu_status save(mu_variable *v)
{
    mu_tensor *value = mu_variable_read(v);
    if (strstr(file, "XXXXXX")) {
        const int made = mkstemps(file, (int)strlen(".safetensors"));
        CHECK(made >= 0);
        close(made);
    }
    return value ? mu_save_tensors(file, mu_map("v", value, MU_END)) : mu_error_code();
}

static mu_status restore(mu_variable *v)
{
    mu_tensor_file *opened = mu_tensor_file_open(file);
    mu_status status =
        opened ? mu_variable_assign(v, mu_tensor_file_read(opened, mu_tensor_file_find(opened, "v"))) : mu_error_code();
    remove(file);
    return status;
}

static void core_110(void)
{
    mu_strategy *s = mirrored(2);
    for (int a = MU_AGGREGATION_NONE; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++) {
        mu_variable *v = on_write(s, 2, (mu_variable_aggregation)a), *plain = mu_variable_new(scalar(0));
        CHECK(save(v) == MU_OK && mu_variable_assign(v, scalar(9)) == MU_OK && restore(v) == MU_OK);
        EXPECT(components(v), 2, 2);
        CHECK(save(v) == MU_OK && restore(plain) == MU_OK);
        EXPECT(read_of(plain), 2);
        CHECK(mu_variable_assign(plain, scalar(3)) == MU_OK && save(plain) == MU_OK && restore(v) == MU_OK);
        EXPECT(components(v), 3, 3);
    }
}

static void core_112(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *plain = mu_variable_new(scalar(2)), *sum = on_read(s, 0, MU_AGGREGATION_SUM),
                *mean = on_read(s, 0, MU_AGGREGATION_MEAN);
    CHECK(save(plain) == MU_OK && restore(sum) == MU_OK && save(plain) == MU_OK && restore(mean) == MU_OK);
    EXPECT(components(sum), 1, 1);
    EXPECT(components(mean), 2, 2);
}

static void core_113(void)
{
    mu_strategy *s = mirrored(2);
    for (int k = 0; k < 8; k++) {
        const bool reads = k >= 4;
        mu_variable *v = variable(s, VECTOR(1, 2, 3, 4), reads ? MU_SYNCHRONIZATION_ON_READ : MU_SYNCHRONIZATION_AUTO,
                                  (mu_variable_aggregation)(k % 4));
        if (reads && k % 4 == MU_AGGREGATION_NONE) {
            CHECK(save(v) != MU_OK);
            EXPECT_ERROR(MU_INVALID_ARGUMENT);
            continue;
        }
        const double times = reads && k % 4 == MU_AGGREGATION_SUM ? 2 : 1;
        CHECK(save(v) == MU_OK && mu_variable_assign(v, VECTOR(4, 3, 2, 1)) == MU_OK && restore(v) == MU_OK);
        EXPECT(read_of(v), times, 2 * times, 3 * times, 4 * times);
    }
}

// One replica has nothing to put together; a replica of another strategy may not write.
static void one_replica(void)
{
    mu_strategy *one = mirrored(1), *two = mirrored(2);
    for (int a = MU_AGGREGATION_NONE; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++) {
        mu_variable *v = on_write(one, 1, (mu_variable_aggregation)a);
        EXPECT(ON_REPLICAS(one, .variable = v, .assign = mu_variable_assign, .value = scalar(5)), 5);
        EXPECT(ON_REPLICAS_TRACED(one, .variable = v, .assign = mu_variable_assign_add, .value = scalar(2)), 7);
        CHECK(!ON_REPLICAS(two, .variable = v, .assign = mu_variable_assign, .value = scalar(5)));
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
    }
}

const one_case variable_cases[] = {
    {"core-068", core_068, NULL},
    {"core-070", core_070, NULL},
    {"core-071", core_071, NULL},
    {"core-073", core_073, NULL},
    {"core-074", core_074, NULL},
    {"core-076", core_076, NULL},
    {"core-077", core_077, NULL},
    {"core-079", core_079, NULL},
    {"core-080", core_080, NULL},
    {"core-082", core_082, NULL},
    {"core-083", core_083, NULL},
    {"core-085", core_085, NULL},
    {"core-086", core_086, NULL},
    {"core-088", core_088, NULL},
    {"core-089", core_089, NULL},
    {"core-091", core_091, NULL},
    {"core-098", core_098, NULL},
    {"core-100", core_100, NULL},
    {"core-101", core_101, NULL},
    {"core-103", core_103, NULL},
    {"core-104", core_104, NULL},
    {"core-106", core_106, NULL},
    {"core-107", core_107, NULL},
    {"core-109", core_109, NULL},
    {"core-109-value", NULL, "there is one way to read a variable, so none to refuse"},
    {"core-110", core_110, NULL},
    {"core-112", core_112, NULL},
    {"core-113", core_113, NULL},
    {"guide-one-replica", one_replica, NULL},
    {0},
};
