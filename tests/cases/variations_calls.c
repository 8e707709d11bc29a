// Variations of the cases COORD and PSS, whose results TensorFlow 2.21 gave: results of calls, errors and what comes
// after them, data that ends, variables of every kind, what a call runs on the worker's replica.
#include "cases.h"

#include <muster/coordinator.h>

static mu_value *nest(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_map("b", scalar(3), "a", mu_list(scalar(1), mu_list(scalar(2), MU_END), MU_END), MU_END);
}

static mu_value *nothing(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return NULL;
}

static mu_value *add_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, scalar(1));
    return NULL;
}

static mu_value *refuse_negative(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_assert(mu_greater_equal(mu_value_tensor(arguments), scalar(0)), "negative");
    return arguments;
}

static mu_value *give(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_cast(mu_value_tensor(arguments), MU_F32));
}

// ---- Results ------------------------------------------------------------------------------------

static void results_in_structures(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    CHECK(mu_coordinator_new(s) == c);
    mu_value *r = mu_schedule(c, mu_function_new(nest, NULL));
    mu_value *all = mu_fetch(mu_list(r, scalar(3), mu_map("k", r, MU_END), MU_END));
    EXPECT(mu_value_get(mu_value_at(all, 0), "b"), 3);
    EXPECT(mu_value_get(mu_value_get(mu_value_at(all, 2), "k"), "a"), 1, 2);
    EXPECT(all, 3, 1, 2, 3, 3, 1, 2);
    CHECK(mu_value_count(mu_fetch(mu_schedule(c, mu_function_new(nothing, NULL)))) == 0);
    CHECK(mu_join(c) == MU_OK);
}

static void arguments_that_do_not_fit(void)
{
    mu_strategy *s = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_function *f = mu_function_new(give, NULL);
    mu_value *r = mu_schedule(c, f, mu_of(scalar(1)));
    CHECK(!mu_schedule(c, f, r));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_schedule(c, f, mu_list(mu_map("a", r, MU_END), MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_fetch(r), 1);
    CHECK(mu_join(c) == MU_OK);
}

// ---- Errors -------------------------------------------------------------------------------------

// Each error is raised once; the calls before it may have run, and those after it do.
static void errors_and_joins(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *v = NULL;
    MU_SCOPE(s)
        v = mu_variable_new(scalar(0), "v");
    mu_function *good = mu_function_new(add_one, v), *bad = mu_function_new(refuse_negative, NULL);
    for (int i = 0; i < 2; i++) {
        mu_schedule(c, good);
        mu_schedule(c, bad, mu_of(scalar(-1)));
        CHECK(mu_join(c) == MU_INVALID_ARGUMENT);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(mu_join(c) == MU_OK);
    }
    const double before = mu_scalar(mu_variable_read(v));
    for (int i = 0; i < 3; i++)
        CHECK(mu_schedule(c, good));
    CHECK(mu_join(c) == MU_OK);
    EXPECT(read_of(v), before + 3);
}

// A fetch raises a call's error as often as it is asked, and takes it away from nobody.
static void errors_that_were_fetched(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    bool done = false;
    mu_value *r = mu_schedule(c, mu_function_new(refuse_negative, NULL), mu_of(scalar(-1)));
    for (int i = 0; i < 2; i++) {
        CHECK(!mu_fetch(r));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(mu_done(c, &done) == MU_INVALID_ARGUMENT);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(mu_done(c, &done) == MU_OK && done);
    CHECK(!mu_fetch(r));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// The schedule that raises an earlier call's error schedules nothing.
static void errors_in_schedules(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_function *f = mu_function_new(refuse_negative, NULL);
    CHECK(!mu_fetch(mu_schedule(c, f, mu_of(scalar(-1)))));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_schedule(c, f, mu_of(scalar(4))));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_fetch(mu_schedule(c, f, mu_of(scalar(4)))), 4);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *take_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1));
}

// Workers that are servers of one process share a device, which a take would occupy.
static void codes_of_cancelled_calls(void)
{
    if (served_workers)
        return;
    mu_strategy *s = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    bool done = false;
    mu_accumulator *empty = NULL;
    MU_SCOPE(s)
        empty = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){.rank = 0});
    mu_function *forever = mu_function_new(take_one, empty), *bad = mu_function_new(refuse_negative, NULL);
    mu_value *results[] = {mu_schedule(c, forever), mu_schedule(c, bad, mu_of(scalar(-1))), mu_schedule(c, forever),
                           mu_schedule(c, forever)};
    CHECK(mu_join(c) == MU_INVALID_ARGUMENT);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    for (int i = 0; i < 4; i++) {
        CHECK(!mu_fetch(results[i]));
        EXPECT_ERROR(i == 1 ? MU_INVALID_ARGUMENT : MU_CANCELLED);
    }
    CHECK(mu_done(c, &done) == MU_OK && done);
}

// ---- Data ---------------------------------------------------------------------------------------

static mu_dataset *two(void *arg)
{
    (void)arg;
    return mu_dataset_range(0, 2, 1);
}

// Each worker reads both elements; each call after a worker's last one fails, as often as it is made.
static void data_that_end(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_value *data = mu_create_per_worker_dataset(c, two, NULL);
    mu_function *f = mu_function_new(give, NULL);
    int seen[2] = {0}, ends = 0;
    while (ends < 3 || seen[0] + seen[1] < 4) {
        mu_value *element = mu_fetch(mu_schedule(c, f, data));
        if (element != NULL) {
            seen[(int)mu_scalar(mu_value_tensor(element))]++;
            continue;
        }
        ends++;
        EXPECT_ERROR(MU_OUT_OF_RANGE);
        CHECK(mu_join(c) == MU_OUT_OF_RANGE);
        EXPECT_ERROR(MU_OUT_OF_RANGE);
        if (first_failure()[0] != '\0' || ends > 1000)
            return;
    }
    CHECK(seen[0] == 2 && seen[1] == 2);
}

static mu_value *of_two(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_multiply(mu_at(arguments, 0), mu_constant(MU_I64, 100)), mu_at(arguments, 1)));
}

static mu_dataset *from_five(void *arg)
{
    (void)arg;
    return mu_dataset_range(5, 10, 1);
}

// Two iterators of one dataset are independent.
static void two_iterators(void)
{
    mu_strategy *s = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_value *a = mu_create_per_worker_dataset(c, from_five, NULL);
    mu_value *b = mu_create_per_worker_dataset(c, from_five, NULL);
    mu_function *f = mu_function_new(of_two, NULL);
    EXPECT(mu_fetch(mu_schedule(c, f, mu_list(a, b, MU_END))), 505);
    EXPECT(mu_fetch(mu_schedule(c, f, mu_list(a, b, MU_END))), 606);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *x_plus_y(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *element = mu_value_at(arguments, 0);
    return mu_of(mu_add(mu_at(mu_value_at(element, 0), 0), mu_at(element, 1)));
}

static void nested_elements(void)
{
    mu_strategy *s = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_dataset *pairs = mu_dataset_from_tensor_slices(mu_list(mu_map("a", VECTOR(1, 2), MU_END), VECTOR(3, 4), MU_END));
    mu_value *data = mu_create_per_worker_dataset(c, .dataset = mu_dataset_batch(pairs, 2));
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(x_plus_y, NULL), mu_list(data, MU_END))), 4, 6);
    CHECK(mu_join(c) == MU_OK);
}

static mu_dataset *own_index(void *arg)
{
    (void)arg;
    return mu_dataset_repeat(mu_dataset_from_tensors(mu_of(scalar(mu_get_current_worker_index()))), -1);
}

static void indices_of_workers(void)
{
    mu_strategy *s = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_value *data = mu_create_per_worker_dataset(c, own_index, NULL), *results[40];
    bool seen[2] = {false};
    for (int i = 0; i < 40; i++)
        results[i] = mu_schedule(c, mu_function_new(give, NULL), data);
    for (int i = 0; i < 40; i++) {
        mu_value *r = mu_fetch(results[i]);
        CHECK(r != NULL);
        if (r != NULL)
            seen[mu_scalar(mu_value_tensor(r)) == 1] = true;
    }
    CHECK(seen[0] || seen[1]);
    CHECK(mu_get_current_worker_index() == -1);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
}

// ---- What a call runs ---------------------------------------------------------------------------

static mu_value *times_variable(mu_value *arguments, void *arg)
{
    mu_tensor *product = mu_multiply(mu_variable_read(arg), mu_value_tensor(arguments));
    return mu_list(product, mu_replica_id(), mu_constant(MU_I32, mu_replica_count()), MU_END);
}

static mu_value *run_times(mu_value *arguments, void *arg)
{
    return mu_run(mu_variable_strategy(arg), mu_function_new(times_variable, arg), arguments);
}

static mu_value *reduce_inside(mu_value *arguments, void *arg)
{
    return mu_list(mu_reduce(arg, MU_SUM, arguments, 0), mu_reduce(arg, MU_MEAN, arguments, 1),
                   mu_strategy_gather(arg, arguments, 1), MU_END);
}

static mu_value *ten_times_sum(mu_strategy *s, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *sum = mu_reduce(s, MU_SUM, arguments);
    return mu_of(mu_multiply(mu_value_tensor(sum), scalar(10)));
}

static mu_value *merged(mu_value *arguments, void *arg) { return mu_merge_call(ten_times_sum, arg, arguments); }

static mu_value *run_merged(mu_value *arguments, void *arg)
{
    return mu_run(arg, mu_function_new(merged, NULL), arguments);
}

static void runs_in_calls(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *v = NULL;
    MU_SCOPE(s)
        v = mu_variable_new(scalar(1), "v");
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(run_times, v), mu_of(scalar(3)))), 3, 0, 1);
    mu_value *table = mu_of(mu_reshape(VECTOR(1, 2, 3, 5), 2, (int64_t[]){2, 2}));
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(reduce_inside, s), table)), 4, 7, 1.5, 4, 1, 2, 3, 5);
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(run_merged, s), mu_of(VECTOR(3, 4)))), 30, 40);
    CHECK(mu_join(c) == MU_OK);
    EXPECT(mu_reduce(s, MU_SUM, mu_of(VECTOR(1, 2)), 0), 3);
    EXPECT(mu_reduce(s, MU_MEAN, mu_of(VECTOR(1, 2))), 1, 2);
    EXPECT(mu_strategy_gather(s, mu_of(VECTOR(1, 2)), 0), 1, 2);
}

static mu_value *add_two(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign_add(arg, scalar(2)) == MU_OK ? read_of(arg) : NULL;
}

static mu_value *run_add_two(mu_value *arguments, void *arg)
{
    return mu_run(mu_variable_strategy(arg), mu_function_new(add_two, arg), arguments);
}

// There is one value, whatever synchronization and aggregation are.
static void variables_of_every_kind(void)
{
    static const struct {
        mu_variable_synchronization synchronization;
        mu_variable_aggregation aggregation;
        bool trainable;
    } table[] = {{MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_SUM, false},
                 {MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_MEAN, false},
                 {MU_SYNCHRONIZATION_ON_WRITE, MU_AGGREGATION_NONE, true},
                 {MU_SYNCHRONIZATION_NONE, MU_AGGREGATION_NONE, true},
                 {MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_ONLY_FIRST_REPLICA, true},
                 {MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_MEAN, true}};
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        mu_variable *v = variable(s, scalar(1), table[i].synchronization, table[i].aggregation);
        EXPECT(mu_fetch(mu_schedule(c, mu_function_new(run_add_two, v))), 3);
        EXPECT(read_of(v), 3);
        CHECK(mu_variable_is_trainable(v) == table[i].trainable);
        CHECK(mu_variable_synchronization_of(v) == table[i].synchronization);
        CHECK(mu_variable_aggregation_of(v) == table[i].aggregation);
        CHECK(mu_variable_assign(v, scalar(9)) == MU_OK && mu_variable_assign_add(v, scalar(1)) == MU_OK);
        EXPECT(read_of(v), 10);
    }
    CHECK(mu_join(c) == MU_OK);
}

// Made by the first call, on a server, and used by the calls after it.
static mu_value *with_own_variable(mu_value *arguments, void *arg)
{
    mu_variable **own = arg;
    (void)arguments;
    if (*own == NULL)
        *own = mu_retain(mu_variable_new(scalar(7), "own"));
    return mu_variable_assign_add(*own, scalar(1)) == MU_OK ? read_of(*own) : NULL;
}

static void variables_made_in_calls(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *own = NULL;
    mu_function *f = NULL;
    MU_SCOPE(s)
        f = mu_function_new(with_own_variable, &own);
    MU_SCOPE(s)
        EXPECT(mu_fetch(mu_schedule(c, f)), 8);
    EXPECT(mu_fetch(mu_schedule(c, f)), 9);
    CHECK(mu_join(c) == MU_OK);
    CHECK(own && mu_variable_device(own));
    EXPECT(read_of(own), 9);
    mu_release(own);
}

static mu_value *add_own(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign_add(arg, scalar(1)) == MU_OK ? read_of(arg) : NULL;
}

static void per_worker_variables(void)
{
    mu_strategy *s = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *v = NULL;
    MU_SCOPE(s)
        v = mu_variable_new(scalar(1), .per_worker_variable = true);
    for (int i = 0; i < 4; i++)
        CHECK(mu_schedule(c, mu_function_new(add_own, v)));
    CHECK(mu_join(c) == MU_OK);
    mu_value *all = mu_variable_read_all(v);
    CHECK(mu_value_count(all) == 2);
    CHECK(mu_scalar(mu_at(all, 0)) + mu_scalar(mu_at(all, 1)) == 6);
    EXPECT(read_of(v), 1);
    CHECK(mu_variable_assign(v, scalar(5)) == MU_OK);
    EXPECT(read_of(v), 5);
    CHECK(!mu_variable_is_trainable(v));
}

static mu_value *context_values(const mu_value_context *context, void *arg)
{
    (void)arg;
    return mu_list(scalar(context->replica_id), scalar(context->num_replicas), MU_END);
}

static void values_of_the_caller(void)
{
    mu_strategy *s = on_workers(3, 1, NULL);
    EXPECT(mu_distribute_values(s, context_values, NULL), 0, 1);
    CHECK(mu_num_replicas_in_sync(s) == 1);
}

// ---- More of data, and of values ----------------------------------------------------------------

static mu_value *give_i64(mu_value *element, void *arg)
{
    (void)arg;
    const bool good = mu_assert(mu_not_equal(mu_value_tensor(element), mu_constant(MU_I64, 1)), "one") == MU_OK;
    return good ? element : NULL;
}

static mu_dataset *failing(void *arg)
{
    (void)arg;
    return mu_dataset_map(mu_dataset_range(0, 3, 1), give_i64, NULL);
}

// An element that cannot be made is skipped by the next call.
static void elements_that_fail(void)
{
    mu_strategy *s = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_value *data = mu_create_per_worker_dataset(c, failing, NULL);
    mu_function *f = mu_function_new(give, NULL);
    EXPECT(mu_fetch(mu_schedule(c, f, data)), 0);
    CHECK(!mu_fetch(mu_schedule(c, f, data)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(mu_join(c) == MU_INVALID_ARGUMENT);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_fetch(mu_schedule(c, f, data)), 2);
    CHECK(!mu_fetch(mu_schedule(c, f, data)));
    EXPECT_ERROR(MU_OUT_OF_RANGE);
}

static void batches_of_workers(void)
{
    static const int64_t rows[2][4] = {{2, 2, 1, 0}, {2, 2, 0, 0}};
    mu_strategy *s = on_workers(1, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_function *f = mu_function_new(give, NULL);
    for (int drop = 0; drop < 2; drop++) {
        mu_dataset *batches = mu_dataset_batch(mu_dataset_range(0, 5, 1), 2, .drop_remainder = drop == 1);
        mu_value *data = mu_create_per_worker_dataset(c, .dataset = mu_distribute_dataset(s, batches));
        for (int i = 0; i < 4 && (i == 0 || rows[drop][i - 1] > 0); i++) {
            mu_value *batch = mu_fetch(mu_schedule(c, f, data));
            CHECK(batch ? mu_tensor_dim(mu_value_tensor(batch), 0) == rows[drop][i] : rows[drop][i] == 0);
        }
        EXPECT_ERROR(MU_OUT_OF_RANGE);
        CHECK(mu_join(c) == MU_OUT_OF_RANGE);
        EXPECT_ERROR(MU_OUT_OF_RANGE);
    }
}

static mu_dataset *context_of(const mu_input_context *context, void *arg)
{
    (void)arg;
    const double values[] = {context->num_input_pipelines, context->input_pipeline_id, context->num_replicas_in_sync,
                             (double)mu_per_replica_batch_size(context, 7)};
    return mu_dataset_from_tensors(mu_of(vector(4, values)));
}

static void contexts_and_empty_data(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_function *f = mu_function_new(give, NULL);
    mu_value *data =
        mu_create_per_worker_dataset(c, .dataset = mu_distribute_datasets_from_function(s, context_of, NULL));
    EXPECT(mu_fetch(mu_schedule(c, f, data)), 1, 0, 1, 7);
    mu_value *empty = mu_create_per_worker_dataset(c, .dataset = mu_dataset_range(0, 0, 1));
    CHECK(!mu_fetch(mu_schedule(c, f, empty)));
    EXPECT_ERROR(MU_OUT_OF_RANGE);
    CHECK(mu_join(c) == MU_OUT_OF_RANGE);
    EXPECT_ERROR(MU_OUT_OF_RANGE);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *five(const mu_value_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(scalar(5));
}

static mu_value *twice(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_value_tensor(arguments), scalar(2)));
}

static mu_value *run_twice(mu_value *arguments, void *arg)
{
    return mu_run(arg, mu_function_new(twice, NULL), arguments);
}

static void per_replica_values(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_value *value = mu_distribute_values(s, five, NULL);
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(run_twice, s), value)), 10);
    EXPECT(mu_reduce(s, MU_SUM, value), 5);
    EXPECT(mu_local_results(s, value), 5);
    CHECK(mu_join(c) == MU_OK);
    EXPECT(mu_reduce(s, MU_MEAN, mu_of(VECTOR(1, 2)), .axes = (int[]){0}, .n_axes = 1), 1.5);
    EXPECT(mu_reduce(s, MU_SUM, mu_of(VECTOR(1, 2)), -1), 3);
    CHECK(!mu_reduce(s, MU_SUM, mu_of(VECTOR(1, 2)), 5));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_strategy_gather(s, mu_map("a", VECTOR(1), MU_END), 0), 1);
    EXPECT(mu_strategy_gather(s, mu_of(VECTOR(1)), -1), 1);
}

static mu_value *add_arguments(mu_variable *v, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_add(v, mu_value_tensor(arguments));
    return mu_of(mu_variable_read(v));
}

static void updates_of_variables(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_variable *v = variable(s, VECTOR(1, 2), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
    MU_SCOPE(s)
        EXPECT(mu_update_variable(s, v, add_arguments, NULL, mu_of(VECTOR(1, 1))), 2, 3);
    EXPECT(read_of(v), 2, 3);
    CHECK(mu_variable_created_in_scope(s, v) && !mu_variable_created_in_scope(s, mu_variable_new(scalar(1), "w")));
    CHECK(mu_strategy_should_checkpoint(s) && mu_strategy_should_save_summary(s));
    CHECK(!mu_strategy_require_static_shapes(s));
}

static mu_value *scatter_two(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_scatter_add(arg, INDICES(1), VECTOR(2)) == MU_OK ? read_of(arg) : NULL;
}

static mu_value *run_scatter(mu_value *arguments, void *arg)
{
    return mu_run(mu_variable_strategy(arg), mu_function_new(scatter_two, arg), arguments);
}

static void scatters_in_calls(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    for (int a = MU_AGGREGATION_NONE; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++) {
        mu_variable *v = variable(s, VECTOR(1, 2, 3), MU_SYNCHRONIZATION_AUTO, (mu_variable_aggregation)a);
        EXPECT(mu_fetch(mu_schedule(c, mu_function_new(run_scatter, v))), 1, 4, 3);
        CHECK(mu_variable_scatter_update(v, INDICES(3), VECTOR(1)) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(mu_variable_scatter_update(v, INDICES(1, 1), VECTOR(2, 5)) == MU_OK);
        EXPECT(read_of(v), 1, 5, 3);
    }
    CHECK(mu_join(c) == MU_OK);
}

// ---- Remote calls -------------------------------------------------------------------------------

static mu_value *digits(mu_value *arguments, void *arg)
{
    mu_value *map = mu_value_at(arguments, 0), *w = mu_value_get(map, "w");
    (void)arg;
    return mu_of(mu_add(mu_multiply(mu_value_tensor(mu_value_get(map, "u")), mu_constant(MU_I32, 10)), mu_at(w, 1)));
}

static mu_value *sum_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_at(arguments, 0), 0));
}

static mu_value *never(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1));
}

static mu_value *number_of(int value) { return mu_of(mu_constant(MU_I32, value)); }

// The status of a call, which its result gives as often as it is asked.
static mu_status ends_with(mu_rpc_result *result)
{
    const mu_status code = mu_rpc_result_error(result).code;
    CHECK(mu_rpc_result_is_ok(result) == (code == MU_OK));
    for (int i = 0; i < 2; i++) {
        mu_rpc_result_value(result);
        EXPECT_ERROR(code);
    }
    return code;
}

static void codes_of_remote_calls(void)
{
    mu_accumulator *empty = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){.rank = 0}); // outlives the server
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "digits", .fn = digits, .input_signature = "({u: int32[], w: (int32[], int32[])})");
    mu_rpc_server_register(server, "rows", .fn = sum_rows, .input_signature = "(float32[?, 2])");
    mu_rpc_server_register(server, "refuse", .fn = refuse_negative, .input_signature = "(float32[])");
    mu_rpc_server_register(server, "never", .fn = never, .arg = empty, .input_signature = "()");
    CHECK(mu_rpc_server_start(server) == MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    mu_value *two = mu_list(number_of(2), number_of(3), MU_END);
    mu_value *map = mu_map("u", number_of(1), "w", two, MU_END);
    EXPECT(mu_rpc_result_value(mu_rpc_call(client, "digits", mu_list(map, MU_END))), 13);
    EXPECT(mu_rpc_result_value(mu_rpc_call(client, "rows", mu_list(mu_ones(MU_F32, 2, (int64_t[]){3, 2}), MU_END))), 3,
           3);
    EXPECT(mu_rpc_result_value(mu_rpc_call(client, "rows", mu_list(mu_ones(MU_F32, 2, (int64_t[]){0, 2}), MU_END))), 0,
           0);
    CHECK(ends_with(mu_rpc_call(client, "digits", mu_list(number_of(1), MU_END))) == MU_INVALID_ARGUMENT);
    CHECK(ends_with(mu_rpc_call(client, "rows", mu_list(number_of(1), MU_END))) == MU_INVALID_ARGUMENT);
    CHECK(ends_with(mu_rpc_call(client, "rows")) == MU_INVALID_ARGUMENT);
    CHECK(ends_with(mu_rpc_call(client, "none", mu_list(number_of(1), MU_END))) == MU_INVALID_ARGUMENT);
    CHECK(ends_with(mu_rpc_call(client, "refuse", mu_list(scalar(-1), MU_END))) == MU_INVALID_ARGUMENT);
    CHECK(ends_with(mu_rpc_call(client, "never", mu_list(number_of(1), MU_END))) == MU_INVALID_ARGUMENT);
    CHECK(ends_with(mu_rpc_call(client, "never", .timeout_in_ms = 50)) == MU_DEADLINE_EXCEEDED);
}

const one_case variation_call_cases[] = {
    {"vary_results_in_structures", results_in_structures, NULL},
    {"vary_arguments_that_do_not_fit", arguments_that_do_not_fit, NULL},
    {"vary_errors_and_joins", errors_and_joins, NULL},
    {"vary_errors_that_were_fetched", errors_that_were_fetched, NULL},
    {"vary_errors_in_schedules", errors_in_schedules, NULL},
    {"vary_codes_of_cancelled_calls", codes_of_cancelled_calls, NULL},
    {"vary_data_that_end", data_that_end, NULL},
    {"vary_two_iterators", two_iterators, NULL},
    {"vary_nested_elements", nested_elements, NULL},
    {"vary_indices_of_workers", indices_of_workers, NULL},
    {"vary_runs_in_calls", runs_in_calls, NULL},
    {"vary_variables_of_every_kind", variables_of_every_kind, NULL},
    {"vary_variables_made_in_calls", variables_made_in_calls, NULL},
    {"vary_per_worker_variables", per_worker_variables, NULL},
    {"vary_values_of_the_caller", values_of_the_caller, NULL},
    {"vary_elements_that_fail", elements_that_fail, NULL},
    {"vary_batches_of_workers", batches_of_workers, NULL},
    {"vary_contexts_and_empty_data", contexts_and_empty_data, NULL},
    {"vary_per_replica_values", per_replica_values, NULL},
    {"vary_updates_of_variables", updates_of_variables, NULL},
    {"vary_scatters_in_calls", scatters_in_calls, NULL},
    {"vary_codes_of_remote_calls", codes_of_remote_calls, NULL},
    {0},
};
