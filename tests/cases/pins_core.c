// What tests of TensorFlow's tf.distribute pin and no numbered case has: contexts, run, variables, training loops.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

static mu_strategy *kinds[5];

static void make_kinds(void)
{
    kinds[0] = mirrored(2);
    kinds[1] = mu_central_storage_strategy(.replicas = 2);
    kinds[2] = mirrored(1);
    kinds[3] = mu_one_device_strategy("CPU:0");
    kinds[4] = mu_default_strategy();
}

#define RUN(i) ((i) ? traced : eager)

// ---- Contexts -----------------------------------------------------------------------------------

static mu_value *pass(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arg;
    return arguments;
}

static mu_value *state_in_run(mu_value *arguments, void *arg)
{
    (void)arguments;
    CHECK(mu_has_strategy() && !mu_in_cross_replica_context() && mu_get_strategy() == arg);
    CHECK(mu_scalar(mu_value_tensor(mu_merge_call(pass, NULL, mu_of(scalar(5))))) == 5);
    mu_variable *v = mu_variable_new(scalar(1), "bar");
    CHECK(mu_variable_aggregation_of(v) == MU_AGGREGATION_NONE && strcmp(mu_variable_name(v), "bar") == 0);
    CHECK(mu_variable_strategy(v) == arg);
    return NULL;
}

static void states_in_run(void)
{
    make_kinds();
    for (int i = 0; i < 4; i++) {
        CHECK(eager(kinds[i], state_in_run, kinds[i]));
        MU_SCOPE(kinds[i])
            CHECK(eager(kinds[i], state_in_run, kinds[i]));
    }
}

static void set_in_turn(void)
{
    mu_strategy *first = mirrored(2), *second = mirrored(2);
    CHECK(mu_set_strategy(first) == MU_OK && mu_get_strategy() == first && mu_in_cross_replica_context());
    mu_variable *v = mu_variable_new(scalar(1), "baz");
    CHECK(mu_variable_strategy(v) == first);
    CHECK(mu_set_strategy(second) == MU_OK && mu_get_strategy() == second);
    CHECK(mu_variable_strategy(mu_variable_new(scalar(1))) == second);
    CHECK(mu_set_strategy(NULL) == MU_OK && !mu_has_strategy());
}

static mu_value *assign_two(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_variable_assign(variable, mu_at(arguments, 0)) == MU_OK ? read_of(variable) : NULL;
}

static mu_value *count(mu_value *arguments, void *arg)
{
    (void)arguments;
    ++*(int *)arg;
    return NULL;
}

static void update_in_and_out(void)
{
    make_kinds();
    for (int i = 0; i < 4; i++) {
        mu_strategy *other = mirrored(3);
        mu_variable *v = on_write(kinds[i], 1, MU_AGGREGATION_NONE);
        mu_value *two = mu_list(scalar(2), MU_END);
        int calls = 0;
        CHECK(mu_update_variable(kinds[i], v, assign_two, NULL, two));
        MU_SCOPE(kinds[i]) {
            CHECK(mu_update_variable(kinds[i], v, assign_two, NULL, two));
            CHECK(mu_update_non_slot(kinds[i], count, &calls, NULL));
        }
        EXPECT(read_of(v), 2);
        CHECK(calls == (i == 0 ? 2 : 1));
        MU_SCOPE(other) {
            CHECK(!mu_update_variable(kinds[i], v, assign_two, NULL, two));
            EXPECT_ERROR(MU_FAILED_PRECONDITION);
            CHECK(!mu_update_non_slot(kinds[i], count, &calls, NULL));
            EXPECT_ERROR(MU_FAILED_PRECONDITION);
        }
    }
}

static mu_dataset *ten_in_pairs(const mu_input_context *context, void *arg)
{
    (void)arg;
    CHECK(context->num_input_pipelines == 1 && context->input_pipeline_id == 0);
    return mu_dataset_batch(mu_dataset_range(0, 10, 1), 2);
}

static mu_value *first_of(mu_distributed_dataset *data)
{
    mu_value *got = NULL;
    mu_iterator *it = mu_iterate(data);
    got = mu_next(it);
    return got;
}

static void default_datasets(void)
{
    mu_strategy *s = mu_default_strategy();
    const mu_input_context one = {.num_input_pipelines = 1, .num_replicas_in_sync = 1};
    EXPECT(first_of(mu_distribute_dataset(s, ten_in_pairs(&one, NULL))), 0, 1);
    EXPECT(first_of(mu_distribute_datasets_from_function(s, ten_in_pairs, NULL)), 0, 1);
    EXPECT(first_of(mu_distribute_dataset(NULL, ten_in_pairs(&one, NULL))), 0, 1);
    CHECK(mu_strategy_cluster_resolver(s) == NULL && mu_strategy_cluster_resolver(mirrored(2)) == NULL);
    CHECK(mu_strategy_device_count(s) == -1);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
}

// ---- Run ----------------------------------------------------------------------------------------

static mu_value *list_of_id(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_scalar(mu_replica_id()) == 0 ? mu_list(MU_END) : mu_list(scalar(0), MU_END);
}

static void lists_of_other_lengths(void)
{
    CHECK(!eager(mirrored(2), list_of_id, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!eager(mu_central_storage_strategy(.replicas = 2), list_of_id, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    mu_value *one = eager(mirrored(1), list_of_id, NULL);
    CHECK(one && mu_value_count(one) == 0);
}

static mu_value *trace_once(mu_value *arguments, void *arg)
{
    (void)arguments;
    ++*(int *)arg;
    return mu_of(mu_replica_id());
}

static void functions_are_kept(void)
{
    make_kinds();
    for (int k = 0; k < 5; k++) {
        int traces = 0, first = 0;
        mu_function *f = mu_function_new(trace_once, &traces);
        for (int i = 0; i < 10; i++) {
            mu_value *got = mu_run(kinds[k], f, NULL);
            CHECK(mu_value_count(mu_local_results(kinds[k], got)) == mu_num_replicas_in_sync(kinds[k]));
            first = i ? first : traces;
            CHECK(traces > 0 && traces == first);
        }
    }
}

static mu_value *merge_then_zero(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_merge_call(pass, NULL, NULL);
    return mu_of(scalar(0));
}

static void merges_of_nothing(void)
{
    for (int i = 0; i < 2; i++)
        EXPECT(RUN(i)(mirrored(2), merge_then_zero, NULL), 0, 0);
}

typedef struct model {
    mu_variable *first, *second;
    mu_function *inner, *outer;
} model;

static mu_value *twice_first(mu_value *arguments, void *arg)
{
    const model *m = arg;
    mu_tensor *factor = arguments && mu_value_count(arguments) ? mu_at(arguments, 0) : scalar(2);
    mu_tensor *x = mu_multiply(factor, mu_variable_read(m->first));
    return mu_of(m->second ? mu_add(x, mu_variable_read(m->second)) : x);
}

static mu_value *plus_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_add(mu_value_tensor(mu_function_call(((model *)arg)->inner, NULL)), scalar(1)));
}

static mu_value *call_outer(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_function_call(((model *)arg)->outer, NULL);
}

static mu_value *gradient_of_outer(mu_value *arguments, void *arg)
{
    (void)arguments;
    model *m = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_value_tensor(mu_function_call(m->outer, NULL));
    return mu_gradients(tape, y, mu_variables(m->first, m->second, MU_END));
}

static void variables_in_nested_functions(void)
{
    make_kinds();
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 2; i++) {
            mu_strategy *s = kinds[k];
            const int n = mu_num_replicas_in_sync(s);
            model m = {.first = on_write(s, 1.25, MU_AGGREGATION_NONE)};
            m.inner = mu_function_new(twice_first, &m);
            m.outer = mu_function_new(plus_one, &m);
            mu_value *got = RUN(i)(s, call_outer, &m);
            n == 2 ? EXPECT(got, 3.5, 3.5) : EXPECT(got, 3.5);
            mu_value *factors = n == 2 ? mu_list(PER_REPLICA(5, 3), MU_END) : mu_list(scalar(5), MU_END);
            got = mu_run(s, m.inner, factors);
            n == 2 ? EXPECT(got, 6.25, 3.75) : EXPECT(got, 6.25);
            model w = {.first = m.first, .second = on_write(s, 2, MU_AGGREGATION_NONE)};
            w.inner = mu_function_new(twice_first, &w);
            w.outer = mu_function_new(plus_one, &w);
            got = RUN(i)(s, call_outer, &w);
            n == 2 ? EXPECT(got, 5.5, 5.5) : EXPECT(got, 5.5);
            got = RUN(i)(s, gradient_of_outer, &w);
            n == 2 ? EXPECT(got, 2, 2, 1, 1) : EXPECT(got, 2, 1);
        }
}

// ---- The loop of testMinimizeLoss ---------------------------------------------------------------

static mu_value *gradient_of_loss(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_subtract(mu_reshape(mu_matmul(mu_at(arguments, 0), mu_variable_read(arg)), 0, NULL), scalar(1));
    return mu_gradients(tape, mu_multiply(y, y), mu_variables((mu_variable *)arg, MU_END));
}

static mu_value *step_down(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *step = mu_multiply(scalar(0.2), mu_at(arguments, 0));
    return mu_variable_assign_sub(variable, step) == MU_OK ? read_of(variable) : NULL;
}

static void minimize_loss(void)
{
    make_kinds();
    for (int k = 0; k < 5; k++)
        MU_SCOPE(kinds[k]) {
            mu_strategy *s = kinds[k];
            mu_variable *kernel = variable(s, mu_reshape(VECTOR(.25), 2, (int64_t[]){1, 1}), 0, 0);
            mu_tensor *one = mu_ones(MU_F32, 2, (int64_t[]){1, 1});
            for (int i = 0; i < 10; i++) {
                mu_value *g = mu_run_callback(s, gradient_of_loss, kernel, mu_list(one, MU_END));
                mu_value *at = mu_value_at(mu_variables(kernel, MU_END), 0);
                mu_value *sum = mu_reduce_to(s, MU_SUM, mu_value_at(g, 0), .like = at);
                CHECK(mu_update_variable(s, kernel, step_down, NULL, mu_list(sum, MU_END), .local_results = true));
            }
            const double after = mu_scalar(mu_reshape(mu_variable_read(kernel), 0, NULL));
            CHECK(after > .98 && after < 1.02);
        }
}

// ---- Variables ----------------------------------------------------------------------------------

static void assign_everywhere(void)
{
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 48; i++) {
        const int a = i / 12, k = i / 4 % 3, how = i % 4;
        if (a == MU_AGGREGATION_SUM && how < 2)
            continue;
        assignment j = {.variable = on_write(s, 0, (mu_variable_aggregation)a),
                        .assign = assigns[k],
                        .value = scalar(k == 2 ? -1 : 1)};
        if (how < 2)
            CHECK(RUN(how)(s, assign_on_replica, &j));
        else if (how == 2)
            CHECK(j.assign(j.variable, j.value) == MU_OK);
        else
            MU_SCOPE(s)
                CHECK(j.assign(j.variable, j.value) == MU_OK);
        EXPECT(components(j.variable), 1, 1);
    }
}

static void read_everywhere(void)
{
    mu_strategy *s = mirrored(2);
    for (int a = 0; a < 4; a++) {
        mu_variable *v = on_write(s, 2, (mu_variable_aggregation)a);
        EXPECT(RUN(0)(s, read_on_replica, v), 2, 2);
        EXPECT(RUN(1)(s, read_on_replica, v), 2, 2);
        EXPECT(read_of(v), 2);
        EXPECT(mu_run(NULL, mu_function_new(read_on_replica, v), NULL), 2);
        MU_SCOPE(s)
            EXPECT(mu_function_call(mu_function_new(read_on_replica, v), NULL), 2);
    }
}

static mu_value *make_random(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable **made = arg;
    if (!made[0])
        made[0] = mu_retain(mu_variable_new(mu_multiply(VECTOR(1, 2, 3), scalar(rand())), "r",
                                            .synchronization = made[1] ? MU_SYNCHRONIZATION_ON_READ : 0));
    return NULL;
}

static void random_first_values(void)
{
    for (int i = 0; i < 2; i++) {
        mu_variable *made[2] = {NULL, i ? (mu_variable *)made : NULL};
        CHECK(eager(mirrored(2), make_random, made));
        mu_value *both = made[0] ? components(made[0]) : NULL;
        CHECK(both && mu_value_count(both) == 2);
        for (int k = 0; both && k < 3; k++) {
            const float *x = mu_tensor_data(mu_value_tensor(mu_value_at(both, 0)));
            const float *y = mu_tensor_data(mu_value_tensor(mu_value_at(both, 1)));
            CHECK(x[k] == y[k]);
        }
        mu_release(made[0]);
    }
}

static mu_value *make_both(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable **made = arg;
    if (!made[0]) {
        made[0] = mu_retain(mu_variable_new(scalar(0), "w", .aggregation = MU_AGGREGATION_MEAN));
        made[1] = mu_retain(mu_variable_new(mu_variable_read(made[0]), "v", .aggregation = MU_AGGREGATION_MEAN));
    }
    return made[1] && mu_variable_assign_add(made[1], scalar(2)) == MU_OK ? read_of(made[1]) : NULL;
}

static void made_from_another(void)
{
    mu_variable *made[2] = {0};
    EXPECT(eager(mirrored(2), make_both, made), 2, 2);
    mu_release(made[0]), mu_release(made[1]);
}

static mu_value *five_variables(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable **made = arg;
    const int r = (int)mu_scalar(mu_replica_id());
    char name[8];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "foo%d", i);
        made[5 * r + i] = mu_retain(mu_variable_new(scalar(1), name));
    }
    mu_merge_call(pass, NULL, NULL);
    return mu_variables(made[5 * r], made[5 * r + 1], made[5 * r + 2], made[5 * r + 3], made[5 * r + 4], MU_END);
}

static void five_in_order(void)
{
    mu_variable *made[15] = {0};
    mu_strategy *s = mirrored(3);
    mu_value *got = eager(s, five_variables, made);
    CHECK(mu_value_count(got) == 5);
    for (int i = 0; i < 5; i++) {
        const char name[] = {'f', 'o', 'o', (char)('0' + i), 0};
        CHECK(made[i] == made[5 + i] && made[i] == made[10 + i] && strcmp(mu_variable_name(made[i]), name) == 0);
        CHECK(mu_value_kind_of(mu_value_at(got, i)) == MU_VALUE_VARIABLE && mu_variable_component_count(made[i]) == 3);
    }
    for (int i = 0; i < 15; i++)
        mu_release(made[i]);
}

static mu_value *four_names(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable **made = arg;
    static const char *const names[] = {"foo/bar", "foo_1/bar", "foo_1/bar_1", "foo/bar_1"};
    for (int i = 0; i < 4; i++) {
        mu_variable *v = mu_retain(mu_variable_new(scalar(1), names[i]));
        if (made[i]) {
            CHECK(made[i] == v);
            mu_release(v);
        }
        made[i] = v;
        CHECK(strcmp(mu_variable_name(v), names[i]) == 0);
    }
    return NULL;
}

static void names_with_numbers(void)
{
    mu_variable *made[4] = {0};
    CHECK(eager(mirrored(2), four_names, made));
    for (int i = 0; i < 4; i++)
        mu_release(made[i]);
}

static mu_value *update_on_read(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable **made = arg;
    mu_variable *sum = mu_variable_new(scalar(1), "sum", .synchronization = MU_SYNCHRONIZATION_ON_READ,
                                       .aggregation = MU_AGGREGATION_SUM);
    mu_variable *mean = mu_variable_new(scalar(4), "mean", .synchronization = MU_SYNCHRONIZATION_ON_READ,
                                        .aggregation = MU_AGGREGATION_MEAN);
    CHECK(mu_variable_assign_add(sum, mu_add(scalar(2), id())) == MU_OK);
    CHECK(mu_variable_assign(mean, mu_multiply(scalar(6), id())) == MU_OK);
    if (!made[0])
        made[0] = mu_retain(sum), made[1] = mu_retain(mean);
    CHECK(made[0] == sum && made[1] == mean);
    return mu_variables(sum, mean, MU_END);
}

static void on_read_made_inside(void)
{
    mu_variable *made[2] = {0};
    mu_value *got = eager(mirrored(2), update_on_read, made);
    CHECK(got && mu_value_kind_of(mu_value_at(got, 0)) == MU_VALUE_VARIABLE);
    EXPECT(components(made[0]), 3, 4);
    EXPECT(components(made[1]), 0, 6);
    EXPECT(read_of(made[0]), 7);
    EXPECT(read_of(made[1]), 3);
    mu_release(made[0]), mu_release(made[1]);
}

static mu_value *update_by_itself(mu_variable *variable, mu_value *arguments, void *arg)
{
    mu_tensor *own = mu_at(arguments, 0);
    const int way = *(int *)arg;
    mu_tensor *read = mu_variable_read(variable);
    const mu_status got = way == 0   ? mu_variable_assign(variable, own)
                          : way == 1 ? mu_variable_assign_add(variable, own)
                          : way == 2 ? mu_variable_assign_sub(variable, own)
                                     : mu_variable_assign_add(variable, mu_add(read, read));
    return got == MU_OK ? read_of(variable) : NULL;
}

static void updates_of_components(void)
{
    static const double wanted[4][2] = {{1, 2}, {2, 4}, {1, 2}, {3, 6}};
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 5; i++) {
        mu_variable *v = i == 4 ? on_write(s, 0, MU_AGGREGATION_NONE) : on_read(s, 0, (mu_variable_aggregation)i);
        for (int way = 0; way < 4; way++) {
            mu_value *got = mu_update_variable(s, v, update_by_itself, &way, mu_list(PER_REPLICA(1, 2), MU_END));
            EXPECT(got, wanted[way][0], wanted[way][1]);
            EXPECT(components(v), wanted[way][0], wanted[way][1]);
        }
    }
}

static mu_value *all_reduce_plus_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *leaf = mu_value_at(mu_variables((mu_variable *)arg, MU_END), 0);
    return mu_of(mu_add(mu_value_tensor(mu_all_reduce_value(MU_SUM, leaf)), id()));
}

static void all_reduce_of_mirrored(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 2, MU_AGGREGATION_MEAN);
    EXPECT(eager(s, all_reduce_plus_id, v), 4, 5);
    EXPECT(traced(s, all_reduce_plus_id, v), 4, 5);
    mu_strategy *c = mu_central_storage_strategy(.replicas = 2);
    v = on_write(c, 2, MU_AGGREGATION_MEAN);
    EXPECT(eager(c, all_reduce_plus_id, v), 4, 5);
    EXPECT(traced(c, all_reduce_plus_id, v), 4, 5);
}

static mu_value *three_or_four(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign(arg, mu_subtract(scalar(4), id())) == MU_OK ? mu_list(MU_END) : NULL;
}

static mu_status file_of(mu_variable *v, const char *path, bool restore)
{
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    return restore ? mu_checkpoint_restore(checkpoint, path) : mu_checkpoint_save(checkpoint, path);
}

static void on_read_in_files(void)
{
    char path[] = "/tmp/muster-pin-XXXXXX";
    const int file = mkstemp(path);
    mu_strategy *s = mirrored(2);
    for (int a = MU_AGGREGATION_SUM; a <= MU_AGGREGATION_MEAN; a++) {
        mu_variable *v = on_read(s, 1, (mu_variable_aggregation)a), *plain = mu_variable_new(scalar(1), "v");
        CHECK(traced(s, three_or_four, v));
        EXPECT(components(v), 4, 3);
        MU_SCOPE(s)
            CHECK(file_of(v, path, false) == MU_OK && file_of(v, path, true) == MU_OK);
        EXPECT(components(v), 3.5, 3.5);
        CHECK(file_of(plain, path, true) == MU_OK);
        EXPECT(read_of(plain), a == MU_AGGREGATION_SUM ? 7 : 3.5);
    }
    close(file);
    unlink(path);
}

typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
static scatter_fn *const scatters[] = {mu_variable_scatter_sub,   mu_variable_scatter_add, mu_variable_scatter_max,
                                       mu_variable_scatter_min,   mu_variable_scatter_mul, mu_variable_scatter_div,
                                       mu_variable_scatter_update};
typedef struct scattering {
    mu_variable *v;
    scatter_fn *scatter;
    mu_tensor *indices, *values;
} scattering;

static mu_value *scatter_given(mu_value *arguments, void *arg)
{
    (void)arguments;
    const scattering *s = arg;
    return s->scatter(s->v, s->indices, s->values) == MU_OK ? read_of(s->v) : NULL;
}

static mu_value *scatter_argument(mu_value *arguments, void *arg)
{
    const scattering *s = arg;
    return s->scatter(s->v, mu_at(arguments, 0), mu_at(arguments, 1)) == MU_OK ? read_of(s->v) : NULL;
}

static void scatters_without_aggregation(void)
{
    static const double wanted[] = {2, 4, 4, 2, 4, 2, 2};
    mu_strategy *s = mirrored(2);
    for (int way = 0; way < 2; way++) {
        mu_variable *v = variable(s, VECTOR(4), 0, MU_AGGREGATION_NONE);
        for (int k = 0; k < 7; k++) {
            scattering job = {v, scatters[k], INDICES(0), VECTOR(2)};
            EXPECT(RUN(way)(s, scatter_given, &job), wanted[k], wanted[k]);
            EXPECT(components(v), wanted[k], wanted[k]);
        }
    }
}

static void scatters_outside(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = variable(s, mu_cast(VECTOR(1, 1, 1), MU_I32), 0, MU_AGGREGATION_SUM);
    mu_variable *w = variable(s, mu_cast(VECTOR(1, 1, 1), MU_I32), 0, MU_AGGREGATION_NONE);
    MU_SCOPE(s) {
        CHECK(mu_variable_scatter_add(v, INDICES(0), mu_cast(VECTOR(2), MU_I32)) == MU_OK);
        EXPECT(read_of(v), 3, 1, 1);
        CHECK(mu_variable_scatter_min(w, INDICES(0), mu_cast(VECTOR(2), MU_I32)) == MU_OK);
        EXPECT(read_of(w), 1, 1, 1);
    }
    EXPECT(components(v), 3, 1, 1, 3, 1, 1);
}

static void scatters_of_on_read(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *rows[] = {INDICES(0, 1), INDICES(1, 2)}, *values[] = {VECTOR(0, 1), VECTOR(1, 2)};
    mu_value *given = mu_list(per_replica_of(2, rows), per_replica_of(2, values), MU_END);
    for (int a = MU_AGGREGATION_SUM; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++)
        for (int k = 0; k < 7; k++) {
            mu_variable *v = variable(s, VECTOR(1, 1, 1), MU_SYNCHRONIZATION_ON_READ, (mu_variable_aggregation)a);
            scattering job = {.v = v, .scatter = scatters[k]};
            CHECK(!mu_run_callback(s, scatter_argument, &job, given));
            EXPECT_ERROR(MU_UNIMPLEMENTED);
            CHECK(!mu_run(s, mu_function_new(scatter_argument, &job), given));
            EXPECT_ERROR(MU_UNIMPLEMENTED);
            EXPECT(components(job.v), 1, 1, 1, 1, 1, 1);
        }
}

// ---- Reductions ---------------------------------------------------------------------------------

static mu_value *reduce_and_keep(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *own = mu_at(arguments, 0), *made = mu_add(own, scalar(1));
    mu_tensor *sum = mu_all_reduce(MU_SUM, own), *mean = mu_all_reduce(MU_MEAN, made);
    return mu_list(own, made, sum, mean, MU_END);
}

// testInputsAreKeptAfterReduce: no way to reduce writes into what it is given.
static void inputs_are_kept(void)
{
    mu_strategy *s = mirrored(2);
    mu_cross_device_ops *ways[] = {mu_reduction_to_one_device(), mu_hierarchical_copy(1), mu_nccl_all_reduce(2)};
    mu_tensor *parts[] = {VECTOR(1, 2), VECTOR(3, 4)};
    mu_value *value = per_replica_of(2, parts), *pair = mu_list(value, value, MU_END);
    for (int i = 0; i < 3; i++)
        for (int op = MU_SUM; op <= MU_MEAN; op++) {
            CHECK(mu_cross_device_reduce(ways[i], (mu_reduce_op)op, value, value));
            CHECK(mu_cross_device_batch_reduce(ways[i], (mu_reduce_op)op, pair, pair));
            CHECK(mu_reduce(s, (mu_reduce_op)op, value) && mu_reduce_to(s, (mu_reduce_op)op, value, .like = value));
            CHECK(mu_strategy_gather(s, value, 0));
            EXPECT(value, 1, 2, 3, 4);
        }
    mu_value *given = mu_list(value, MU_END), *results[] = {mu_run_callback(s, reduce_and_keep, NULL, given),
                                                            mu_run(s, mu_function_new(reduce_and_keep, NULL), given)};
    for (int i = 0; i < 2; i++) {
        EXPECT(mu_value_at(results[i], 0), 1, 2, 3, 4);
        EXPECT(mu_value_at(results[i], 1), 2, 3, 4, 5);
        EXPECT(mu_value_at(results[i], 2), 4, 6, 4, 6);
        EXPECT(mu_value_at(results[i], 3), 3, 4, 3, 4);
    }
    EXPECT(value, 1, 2, 3, 4);
}

// ---- Copies that differ -------------------------------------------------------------------------

static mu_value *read_across(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *v = mu_value_at(mu_variables(arg, MU_END), 0);
    return mu_list(read_of(arg), mu_reduce(strategy, MU_MEAN, v), MU_END);
}

static mu_value *part_and_read(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign(arg, mu_add(id(), scalar(4)));
    return mu_merge_call(read_across, arg, NULL);
}

// Replicas that assign by aggregation NONE have copies of their own; outside of replicas the first counts, in a merge
// that is traced too.
static void first_of_copies(void)
{
    for (int i = 0; i < 4; i++) {
        mu_strategy *s = mirrored(2 + i / 2);
        mu_variable *v = on_write(s, 1, MU_AGGREGATION_NONE);
        mu_value *all = mu_local_results(s, RUN(i % 2)(s, part_and_read, v));
        EXPECT(mu_value_at(all, mu_value_count(all) - 1), 4, 4);
        EXPECT(read_of(v), 4);
        if (i < 2)
            EXPECT(components(v), 4, 5);
        else
            EXPECT(components(v), 4, 5, 6);
    }
}

const one_case pin_core_cases[] = {
    {"pin_first_of_copies", first_of_copies, NULL},
    {"pin_inputs_are_kept", inputs_are_kept, NULL},
    {"pin_states_in_run", states_in_run, NULL},
    {"pin_set_in_turn", set_in_turn, NULL},
    {"pin_update_in_and_out", update_in_and_out, NULL},
    {"pin_default_datasets", default_datasets, NULL},
    {"pin_lists_of_other_lengths", lists_of_other_lengths, NULL},
    {"pin_functions_are_kept", functions_are_kept, NULL},
    {"pin_merges_of_nothing", merges_of_nothing, NULL},
    {"pin_nested_functions", variables_in_nested_functions, NULL},
    {"pin_minimize_loss", minimize_loss, NULL},
    {"pin_assign_everywhere", assign_everywhere, NULL},
    {"pin_read_everywhere", read_everywhere, NULL},
    {"pin_random_first_values", random_first_values, NULL},
    {"pin_made_from_another", made_from_another, NULL},
    {"pin_five_in_order", five_in_order, NULL},
    {"pin_names_with_numbers", names_with_numbers, NULL},
    {"pin_on_read_made_inside", on_read_made_inside, NULL},
    {"pin_updates_of_components", updates_of_components, NULL},
    {"pin_all_reduce_of_mirrored", all_reduce_of_mirrored, NULL},
    {"pin_on_read_in_files", on_read_in_files, NULL},
    {"pin_scatters_none", scatters_without_aggregation, NULL},
    {"pin_scatters_outside", scatters_outside, NULL},
    {"pin_scatters_on_read", scatters_of_on_read, NULL},
    {0},
};
