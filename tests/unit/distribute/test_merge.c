// merge_call in traced functions: what is supported gives the same results as eagerly; anything else is refused.
#include "distribute_test.h"

enum { REPLICAS = 3 };

typedef mu_value *merge_fn(mu_strategy *strategy, mu_value *arguments, void *arg);

typedef struct job {
    merge_fn *fn;
    mu_variable *variable, *metric;
    int calls;
} job;

static mu_tensor *id(void) { return mu_cast(mu_replica_id(), MU_F64); }

// Merges (id + 1, [id, 10 id]) and a value that is the same on all replicas.
static mu_value *merge_on_replica(mu_value *arguments, void *arg)
{
    (void)arguments;
    job *j = arg;
    mu_tensor *r = id(), *pair[] = {r, mu_multiply(r, mu_constant(MU_F64, 10))};
    mu_value *parts = mu_list(mu_add(r, mu_constant(MU_F64, 1)), mu_stack(2, pair, 0), mu_constant(MU_F64, 7), MU_END);
    return parts ? mu_merge_call(j->fn, j, parts) : NULL;
}

static mu_value *run(mu_strategy *strategy, job *j, bool traced)
{
    j->calls = 0;
    mu_value *result = traced ? mu_run(strategy, mu_function_new(merge_on_replica, j), NULL)
                              : mu_run_callback(strategy, merge_on_replica, j, NULL);
    if (!result)
        fail_msg("%s", mu_error_message());
    assert_int_equal(j->calls, 1);
    return mu_local_results(strategy, result);
}

static void assert_same(const mu_value *a, const mu_value *b)
{
    mu_object *these[64], *those[64];
    const int n = mu__value_flatten(a, these, 64);
    assert_int_equal(mu__value_flatten(b, those, 64), n);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const mu_tensor *x = (mu_tensor *)these[i], *y = (mu_tensor *)those[i];
        assert_int_equal(x->dtype, y->dtype);
        assert_true(mu__shape_equal(&x->shape, &y->shape));
        for (int64_t k = 0; k < mu_tensor_elements(x); k++)
            assert_true(mu__read_element(x->dtype, mu__host_read(x), k) ==
                        mu__read_element(y->dtype, mu__host_read(y), k));
    }
}

static void check(merge_fn *fn)
{
    mu_strategy *strategy = strategy_of(REPLICAS);
    mu_value *seen[2], *components[2];
    for (int traced = 0; traced < 2; traced++) {
        job j = {.fn = fn};
        MU_SCOPE(strategy) {
            j.variable = mu_variable_new(vector(2, (double[]){5, 6}), "v");
            j.metric = mu_variable_new(mu_constant(MU_F64, 2), "m", .synchronization = MU_SYNCHRONIZATION_ON_READ,
                                       .aggregation = MU_AGGREGATION_SUM);
        }
        seen[traced] = run(strategy, &j, traced);
        mu_value *variables = mu_variables(j.variable, j.metric, MU_END);
        components[traced] = mu_list(mu_local_results(strategy, mu_value_at(variables, 0)),
                                     mu_local_results(strategy, mu_value_at(variables, 1)), MU_END);
    }
    for (int r = 0; r < REPLICAS; r++) // eagerly, one object on all replicas has one result
        assert_same(mu_value_at(seen[1], r), mu_value_at(seen[0], mu_value_count(seen[0]) == 1 ? 0 : r));
    assert_same(components[1], components[0]);
}

static mu_value *reductions(mu_strategy *s, mu_value *arguments, void *arg)
{
    ((job *)arg)->calls++;
    assert_true(mu_in_cross_replica_context() && mu_get_strategy() == s);
    mu_value *both = mu_list(mu_value_at(arguments, 0), mu_value_at(arguments, 1), MU_END);
    return mu_list(mu_reduce(s, MU_SUM, both), mu_reduce(s, MU_MEAN, mu_value_at(arguments, 1)),
                   mu_reduce(s, MU_SUM, mu_value_at(arguments, 1), 0),
                   mu_reduce(s, MU_MEAN, mu_value_at(arguments, 1), -1),
                   mu_reduce(s, MU_MEAN, mu_value_at(arguments, 2)), mu_batch_reduce_to(s, MU_SUM, both, NULL), MU_END);
}

static void reductions_work(void **state)
{
    (void)state;
    check(reductions);
}

static mu_value *gathers(mu_strategy *s, mu_value *arguments, void *arg)
{
    ((job *)arg)->calls++;
    mu_value *results = mu_local_results(s, arguments);
    assert_int_equal(mu_value_count(results), REPLICAS);
    mu_tensor *last = mu_at(mu_value_at(results, REPLICAS - 1), 1), *first = mu_at(mu_value_at(results, 0), 0);
    return mu_list(mu_strategy_gather(s, mu_value_at(arguments, 1), 0), mu_add(last, first),
                   mu_broadcast_to_devices(s, mu_of(last), mu_value_at(arguments, 0)), mu_value_at(arguments, 1),
                   MU_END);
}

static void gathers_and_local_results_work(void **state)
{
    (void)state;
    check(gathers);
}

static mu_value *add_own(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_variable_assign_add(variable, mu_at(arguments, 1)) == MU_OK ? mu_of(mu_variable_read(variable)) : NULL;
}

static mu_value *double_own(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(arguments, 0), mu_constant(MU_F64, 2)));
}

static mu_value *same(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_at(arguments, 0)));
}

static mu_value *updates(mu_strategy *s, mu_value *arguments, void *arg)
{
    job *j = arg;
    j->calls++;
    mu_variable_assign_add(j->variable, mu_value_tensor(mu_reduce(s, MU_SUM, mu_value_at(arguments, 1))));
    mu_value *seen = mu_list(mu_of(mu_variable_read(j->variable)), mu_of(mu_variable_read(j->metric)), MU_END);
    mu_variable_assign(j->metric, mu_constant(MU_F64, 12));
    mu_value *after = mu_update_variable(s, j->variable, add_own, NULL, arguments);
    mu_value *results = mu_update_variable(s, j->variable, add_own, NULL, arguments, .local_results = true);
    mu_value *doubled = mu_update_non_slot(s, double_own, NULL, arguments);
    return mu_list(seen, mu_reduce(s, MU_MEAN, mu_update_non_slot(s, same, NULL, mu_of(mu_constant(MU_F64, 4)))),
                   mu_local_results(s, doubled), results, mu_local_results(s, after), MU_END);
}

static void updates_work(void **state)
{
    (void)state;
    check(updates);
}

static mu_value *slices(mu_strategy *s, mu_value *arguments, void *arg)
{
    ((job *)arg)->calls++;
    mu_value *sum = mu_reduce(s, MU_SUM, mu_value_at(arguments, 1));
    return mu_list(sum, mu_convert_to_tensor(sum), MU_END);
}

static mu_value *merge_slices(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *rows = mu_cast(mu_expand_dims(mu_replica_id(), 0), MU_I64);
    mu_value *own = mu_indexed_slices(mu_expand_dims(mu_expand_dims(id(), 0), 0), rows, 2, (int64_t[]){REPLICAS, 1});
    return mu_merge_call(slices, arg, mu_list(mu_constant(MU_F64, 0), own, MU_END));
}

static void slices_are_gathered(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(REPLICAS);
    job j = {0};
    mu_value *result = mu_run(strategy, mu_function_new(merge_slices, &j), NULL);
    if (!result)
        fail_msg("%s", mu_error_message());
    for (int r = 0; r < REPLICAS; r++)
        assert_near(doubles(mu_at(mu_value_at(mu_local_results(strategy, result), r), 1)), (double[]){0, 1, 2},
                    REPLICAS, 0);
}

// ---- Refused ------------------------------------------------------------------------------------

static mu_value *use_a_part(mu_strategy *s, mu_value *arguments, void *arg)
{
    (void)s, (void)arg;
    return mu_of(mu_square(mu_value_tensor(mu_value_at(mu_value_at(arguments, 0), 1))));
}

static mu_value *return_a_part(mu_strategy *s, mu_value *arguments, void *arg)
{
    (void)s, (void)arg;
    return mu_value_at(mu_value_at(arguments, 0), 1);
}

static mu_value *again(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(id());
}

static mu_value *run_inside(mu_strategy *s, mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_run(s, mu_function_new(again, NULL), NULL);
}

static mu_value *call_inside(mu_strategy *s, mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_run_callback(s, again, NULL, NULL);
}

static mu_value *value_for(const mu_value_context *context, void *arg)
{
    (void)arg;
    return mu_of(mu_constant(MU_F64, context->replica_id));
}

static mu_value *make_values(mu_strategy *s, mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_distribute_values(s, value_for, NULL);
}

static void anything_else_is_refused(void **state)
{
    (void)state;
    static merge_fn *const refused[] = {use_a_part, return_a_part, run_inside, make_values, call_inside};
    mu_strategy *strategy = strategy_of(2);
    for (size_t i = 0; i < MU_COUNT(refused); i++) {
        job j = {.fn = refused[i]};
        assert_null(mu_run(strategy, mu_function_new(merge_on_replica, &j), NULL));
        expect_error(MU_UNIMPLEMENTED, "run the step eagerly");
    }
    job j = {.fn = reductions};
    run(strategy, &j, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(reductions_work),     MODEL_TEST(gathers_and_local_results_work), MODEL_TEST(updates_work),
        MODEL_TEST(slices_are_gathered), MODEL_TEST(anything_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
