// What TensorFlow's tests of parameter servers pin and no numbered case has: run and reduce in scheduled functions,
// parts of variables, partitioners, accumulators.
#include "cases.h"

#include <muster/coordinator.h>
#include <muster/text.h>
#include <stdlib.h>
#include <unistd.h>

// ---- Scheduled functions ------------------------------------------------------------------------

static mu_value *plus_variable(mu_value *arguments, void *arg)
{
    CHECK(!mu_in_cross_replica_context());
    return mu_of(mu_add(mu_value_tensor(arguments), mu_variable_read(arg)));
}

static mu_value *run_and_reduce(mu_value *arguments, void *arg)
{
    mu_strategy *s = mu_variable_strategy(arg);
    mu_value *out = mu_run(s, mu_function_new(plus_variable, arg), mu_value_at(arguments, 0));
    CHECK(mu_value_count(mu_local_results(s, out)) == 1);
    return mu_reduce(s, MU_SUM, out);
}

// testRunAndReduce: a function for workers runs another one on the worker's replicas, and reduces what they return.
static void run_in_calls(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *v = variable(s, scalar(1), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
    mu_function *f = mu_function_new(run_and_reduce, v);
    EXPECT(mu_fetch(mu_schedule(c, f, mu_list(scalar(3), MU_END))), 4);
    MU_SCOPE(s)
        EXPECT(mu_fetch(mu_schedule(c, f, mu_list(scalar(3), MU_END))), 4);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *add_to_variable(mu_value *arguments, void *arg)
{
    return mu_variable_assign_add(arg, mu_value_tensor(arguments)) == MU_OK ? mu_of(mu_variable_read(arg)) : NULL;
}

static mu_value *add_on_replicas(mu_value *arguments, void *arg)
{
    mu_strategy *s = mu_variable_strategy(arg);
    return mu_reduce(s, MU_MEAN, mu_run(s, mu_function_new(add_to_variable, arg), mu_value_at(arguments, 0)));
}

static void assign_in_calls(void)
{
    mu_strategy *s = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *v = variable(s, scalar(1), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_SUM);
    mu_function *f = mu_function_new(add_on_replicas, v);
    EXPECT(mu_fetch(mu_schedule(c, f, mu_list(scalar(3), MU_END))), 4);
    for (int i = 0; i < 10; i++)
        CHECK(mu_schedule(c, f, mu_list(scalar(1), MU_END)));
    CHECK(mu_join(c) == MU_OK);
    EXPECT(read_of(v), 14);
}

static mu_value *square(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_value_tensor(arguments)));
}

static mu_value *sum_of_squares(mu_value *arguments, void *arg)
{
    return mu_reduce(arg, MU_SUM, mu_run(arg, mu_function_new(square, NULL), arguments), 0);
}

static mu_dataset *pairs(const mu_input_context *context, void *arg)
{
    (void)arg;
    CHECK(context->num_input_pipelines == 1 && context->input_pipeline_id == 0 && context->num_replicas_in_sync == 1);
    return mu_dataset_batch(mu_dataset_range(0, 6, 1), 2);
}

// testDistributeDataset, testDistributeDatasetFromFunction.
static void data_in_calls(void)
{
    mu_strategy *s = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_distributed_dataset *both[] = {mu_distribute_dataset(s, mu_dataset_batch(mu_dataset_range(0, 6, 1), 2)),
                                      mu_distribute_datasets_from_function(s, pairs, NULL)};
    mu_function *f = mu_function_new(sum_of_squares, s);
    for (int i = 0; i < 2; i++) {
        mu_value *data = mu_create_per_worker_dataset(c, .dataset = both[i]);
        EXPECT(mu_fetch(mu_schedule(c, f, data)), 1);
        EXPECT(mu_fetch(mu_schedule(c, f, data)), 13);
        EXPECT(mu_fetch(mu_schedule(c, f, data)), 41);
        CHECK(!mu_fetch(mu_schedule(c, f, data)));
        EXPECT_ERROR(MU_OUT_OF_RANGE);
        CHECK(mu_join(c) != MU_OK);
        EXPECT_ERROR(MU_OUT_OF_RANGE);
    }
}

static mu_value *reduce_all_ways(mu_value *arguments, void *arg)
{
    mu_value *x = mu_value_at(arguments, 0);
    return mu_list(mu_reduce(arg, MU_MEAN, x, 0), mu_strategy_gather(arg, x, 0), mu_reduce_to(arg, MU_SUM, x),
                   mu_value_at(mu_batch_reduce_to(arg, MU_SUM, mu_list(x, MU_END), NULL), 0), MU_END);
}

// The mean divides by the number of rows that the call has, which the trace does not know.
static void reductions_in_calls(void)
{
    mu_strategy *s = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_function *f = mu_function_new(reduce_all_ways, s);
    EXPECT(mu_fetch(mu_schedule(c, f, mu_list(VECTOR(1, 2, 6), MU_END))), 3, 1, 2, 6, 1, 2, 6, 1, 2, 6);
    EXPECT(mu_fetch(mu_schedule(c, f, mu_list(VECTOR(1, 2), MU_END))), 1.5, 1, 2, 1, 2, 1, 2);
    CHECK(mu_join(c) == MU_OK);
    EXPECT(mu_run(s, f, mu_list(VECTOR(5), MU_END)), 5, 5, 5, 5);
}

// Calls that make a step together do not see each other's values.
static void reductions_of_several_calls(void)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"ps\": [\"\"], \"worker\": [\"\", \"\"]}");
    mu_strategy *s =
        mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), .in_process = true, .replicas_to_aggregate = 2);
    mu_coordinator *c = mu_coordinator_new(s);
    CHECK(!mu_schedule(c, mu_function_new(sum_of_squares, s), mu_of(VECTOR(1, 2))));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *read_assign_read(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable *v = arg;
    mu_tensor *first = mu_variable_read(v);
    return first && mu_variable_assign(v, scalar(5)) == MU_OK ? mu_list(first, mu_variable_read(v), MU_END) : NULL;
}

static mu_value *run_cached(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *result = NULL;
    MU_CACHE_VARIABLE_READS
    result = mu_run(mu_variable_strategy(arg), mu_function_new(read_assign_read, arg), NULL);
    return result;
}

static mu_value *run_fresh(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_run(mu_variable_strategy(arg), mu_function_new(read_assign_read, arg), NULL);
}

// testVariableCaching: the block may be in the function, or around what schedules it.
static void cached_reads_in_calls(void)
{
    mu_strategy *s = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *v = variable(s, scalar(1), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_ONLY_FIRST_REPLICA);
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(run_cached, v))), 1, 1);
    EXPECT(read_of(v), 5);
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(run_fresh, v))), 5, 5);
    CHECK(mu_variable_assign(v, scalar(2)) == MU_OK);
    mu_value *result = NULL;
    MU_CACHE_VARIABLE_READS
    result = mu_schedule(c, mu_function_new(run_fresh, v));
    EXPECT(mu_fetch(result), 2, 2);
    EXPECT(read_of(v), 5);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *refuse_negative(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_assert(mu_greater_equal(mu_value_tensor(arguments), scalar(0)), "negative");
    return arguments;
}

static mu_value *give_element(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_value_tensor(arguments), mu_constant(MU_I64, 0)));
}

static mu_dataset *from_zero(void *arg)
{
    (void)arg;
    return mu_dataset_range(0, 5, 1);
}

// testResourceCanStillbeUsedAfterCancellation.
static void data_after_errors(void)
{
    mu_coordinator *c = mu_coordinator_new(on_workers(1, 1, NULL));
    mu_value *data = mu_create_per_worker_dataset(c, from_zero, NULL);
    mu_function *next = mu_function_new(give_element, NULL), *fail = mu_function_new(refuse_negative, NULL);
    EXPECT(mu_fetch(mu_schedule(c, next, data)), 0);
    mu_schedule(c, fail, mu_of(scalar(-1)));
    CHECK(mu_join(c) != MU_OK);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_fetch(mu_schedule(c, next, data)), 1);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *add_one(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_object *leaves[2];
    mu__value_flatten(arguments, leaves, 2);
    mu_variable *v = (mu_variable *)leaves[0];
    return mu_variable_assign_add(v, scalar(1)) == MU_OK ? read_of(v) : NULL;
}

static void variables_in_calls(void)
{
    mu_strategy *s = on_workers(2, 2, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_function *f = mu_function_new(add_one, NULL);
    for (int i = 0; i < 3; i++) {
        mu_variable *v = variable(s, scalar(10 * i), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_NONE);
        EXPECT(mu_fetch(mu_schedule(c, f, mu_variables(v, MU_END))), 10 * i + 1);
        EXPECT(mu_fetch(mu_schedule(c, f, mu_variables(v, MU_END))), 10 * i + 2);
        EXPECT(read_of(v), 10 * i + 2);
    }
    CHECK(mu_join(c) == MU_OK);
}

static void fetch_of_structures(void)
{
    mu_coordinator *c = mu_coordinator_new(on_workers(2, 1, NULL));
    mu_function *f = mu_function_new(square, NULL);
    mu_value *a = mu_schedule(c, f, mu_of(scalar(2))), *b = mu_schedule(c, f, mu_of(scalar(3)));
    EXPECT(mu_fetch(mu_map("a", a, "b", mu_list(b, scalar(7), MU_END), MU_END)), 4, 9, 7);
    EXPECT(mu_fetch(mu_of(scalar(5))), 5);
    CHECK(mu_join(c) == MU_OK && mu_join(c) == MU_OK);
}

// ---- Parts of variables -------------------------------------------------------------------------

typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);

// Every scatter into parts does what it does to a whole variable.
static void scatters_into_parts(void)
{
    static scatter_fn *const scatters[] = {mu_variable_scatter_add,   mu_variable_scatter_sub, mu_variable_scatter_mul,
                                           mu_variable_scatter_div,   mu_variable_scatter_min, mu_variable_scatter_max,
                                           mu_variable_scatter_update};
    mu_strategy *strategies[] = {mu_default_strategy(), mirrored(2), on_workers(1, 2, NULL)};
    for (int i = 0; i < 63; i++)
        MU_SCOPE(strategies[i / 21]) {
            scatter_fn *scatter = scatters[i % 7];
            mu_tensor *first = mu_add(mu_multiply(mu_range(MU_F32, 0, 11, 1), scalar(3)), scalar(1));
            mu_tensor *rows = INDICES(0, 3, 9, 10, 5), *values = VECTOR(2, 4, 5, 7, 3);
            mu_partitioner *partitioner = mu_fixed_shards_partitioner(2 + i / 7 % 3);
            mu_variable *whole = mu_variable_new(first, "whole");
            mu_variable *parts = mu_sharded_variable_new(first, "parts", .partitioner = partitioner);
            CHECK(scatter(whole, rows, values) == MU_OK && scatter(parts, rows, values) == MU_OK);
            const float *got = mu_tensor_data(mu_variable_read(parts));
            const float *wanted = mu_tensor_data(mu_variable_read(whole));
            CHECK(got && wanted && memcmp(got, wanted, 11 * sizeof *got) == 0);
            CHECK(scatter(parts, mu_reshape(rows, 2, (int64_t[]){5, 1}), values) != MU_OK);
            EXPECT_ERROR(MU_INVALID_ARGUMENT);
        }
}

static void parts_in_files(void)
{
    char path[] = "/tmp/muster-pin-XXXXXX";
    const int file = mkstemp(path);
    for (int i = 0; i < 16; i++) {
        mu_partitioner *from = mu_fixed_shards_partitioner(1 + i / 4), *to = mu_fixed_shards_partitioner(1 + i % 4);
        mu_variable *a = mu_sharded_variable_new(VECTOR(0, 1, 2, 3), "s", .partitioner = from);
        mu_variable *b = mu_sharded_variable_new(VECTOR(9, 9, 9, 9), "s", .partitioner = to);
        CHECK(mu_checkpoint_save(mu_checkpoint_new(.variables = mu_variables(a, MU_END)), path) == MU_OK);
        CHECK(mu_checkpoint_restore(mu_checkpoint_new(.variables = mu_variables(b, MU_END)), path) == MU_OK);
        EXPECT(read_of(b), 0, 1, 2, 3);
    }
    close(file);
    unlink(path);
}

static int parts_of(mu_partitioner *partitioner, int axis)
{
    static const mu_shape six = {.rank = 2, .dims = {6, 1}};
    int64_t counts[MU_MAX_RANK];
    const int n = mu_partitioner_call(partitioner, &six, MU_F32, axis, counts);
    return n == 2 ? (int)(10 * counts[0] + counts[1]) : -1;
}

static void numbers_of_parts(void)
{
    CHECK(parts_of(mu_max_size_partitioner(4), 0) == 61);
    CHECK(parts_of(mu_max_size_partitioner(4, 2), 0) == 21);
    CHECK(parts_of(mu_max_size_partitioner(1024), 0) == 11);
    CHECK(parts_of(mu_min_size_partitioner(4, 6), 0) == 61);
    CHECK(parts_of(mu_fixed_shards_partitioner(2), 1) == 11);
    CHECK(parts_of(mu_fixed_shards_partitioner(2), 2) == -1);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    for (int i = 0; i < 5; i++) {
        CHECK(!(i == 0   ? mu_max_size_partitioner(0)
                : i == 1 ? mu_min_size_partitioner(0, 1)
                : i == 2 ? mu_min_size_partitioner(4, 0)
                : i == 3 ? mu_fixed_shards_partitioner(0)
                         : mu_max_size_partitioner(4, .bytes_per_string = 0)));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

static void parts_beside_others(void)
{
    mu_strategy *s = on_workers(1, 2, mu_fixed_shards_partitioner(2));
    MU_SCOPE(s) {
        mu_variable *first = mu_variable_new(VECTOR(0, 1, 2, 3), "first"), *beside = NULL;
        MU_COLOCATE(s, mu_variable_shard(first, 0))
            beside = mu_variable_new(VECTOR(4, 5), "beside");
        CHECK(mu_variable_shard_count(first) == 2 && mu_variable_shard_count(beside) == 0);
        CHECK(mu_variable_shard_count(mu_variable_new(VECTOR(4, 5), "next")) == 2);
        CHECK(mu_variable_shard_count(mu_variable_new(scalar(1), "scalar")) == 0);
    }
}

// ---- Accumulators -------------------------------------------------------------------------------

static void accumulators(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    CHECK(mu_accumulator_apply_grad(a, scalar(10), 0) == MU_OK && mu_accumulator_apply_grad(a, scalar(20), 0) == MU_OK);
    EXPECT(mu_of(mu_accumulator_take_grad(a, 1)), 15);
    CHECK(mu_accumulator_apply_grad(a, scalar(7), 0) == MU_OK);
    EXPECT(mu_of(mu_accumulator_num_accumulated(a)), 0);
    CHECK(mu_accumulator_set_global_step(a, 0) == MU_OK && mu_accumulator_apply_grad(a, scalar(7), 0) == MU_OK);
    EXPECT(mu_of(mu_accumulator_num_accumulated(a)), 1);
    const mu_shape shape = {.rank = 2, .dims = {3, MU_UNKNOWN}};
    mu_accumulator *b = mu_conditional_accumulator(MU_F32, .shape = &shape);
    mu_tensor *fits = mu_ones(MU_F32, 2, (int64_t[]){3, 2}),
              *wrong[] = {mu_ones(MU_F32, 2, (int64_t[]){3, 3}), mu_ones(MU_F32, 2, (int64_t[]){2, 2}),
                          mu_cast(fits, MU_F64)};
    CHECK(mu_accumulator_apply_grad(b, fits, 0) == MU_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(mu_accumulator_apply_grad(b, wrong[i], 0) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    mu_accumulator *sum = mu_sparse_conditional_accumulator(MU_F32, .reduction_type = "SUM");
    for (int i = 0; i < 2; i++)
        CHECK(mu_sparse_accumulator_apply_grad(sum, INDICES(0), VECTOR(1), NULL, 0) == MU_OK);
    EXPECT(mu_sparse_accumulator_take_grad(sum, 2), 0, 2, -1);
}

// ---- Tables ------------------------------------------------------------------------------------

static const int64_t vocabulary[] = {0, 1, 2};

static mu_layer *table(void) { return mu_integer_lookup(.vocabulary = vocabulary, .n_vocabulary = 3); }

static mu_value *look_up(mu_value *element, void *arg)
{
    return mu_of(mu_call((mu_layer *)arg, mu_value_tensor(element)));
}

// Batches of 24 rows of the keys 0, 1 and 3, of which the table does not have the last: indices 1, 2 and 0.
static mu_dataset *looked_up(void *arg)
{
    mu_tensor *keys = mu_tensor_new(MU_I64, 1, (int64_t[]){3}, (int64_t[]){0, 1, 3});
    mu_dataset *rows = mu_dataset_repeat(mu_dataset_from_tensors(mu_of(keys)), -1);
    return mu_dataset_map(mu_dataset_batch(rows, 24), look_up, arg);
}

static mu_dataset *looked_up_for(const mu_input_context *context, void *arg)
{
    CHECK(mu_per_replica_batch_size(context, 24) == 24);
    return looked_up(arg);
}

static mu_value *sum_of_indices(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_cast(mu_reduce_sum(mu_value_tensor(arguments)), MU_F32));
}

// Data for the workers, in each of the ways in which they get them.
static mu_value *data_with_table(mu_coordinator *c, mu_strategy *s, int way, mu_layer *of)
{
    if (way == 0)
        return mu_create_per_worker_dataset(c, looked_up, of);
    mu_distributed_dataset *data =
        way == 1 ? mu_distribute_dataset(s, looked_up(of)) : mu_distribute_datasets_from_function(s, looked_up_for, of);
    return mu_create_per_worker_dataset(c, .dataset = data);
}

// testCreateTableUnderScopeCombo, testCreateTableInDatasetCombo: table and data made in the scope and outside.
static void tables_of_workers(void)
{
    mu_strategy *s = on_workers(2, 3, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_function *f = mu_function_new(sum_of_indices, NULL);
    mu_layer *outside = table(), *inside = NULL;
    MU_SCOPE(s)
        inside = table();
    for (int i = 0; i < 12; i++) {
        mu_layer *of = i % 2 ? inside : outside;
        mu_value *data = NULL, *results[10];
        if (i / 2 % 2) {
            MU_SCOPE(s)
                data = data_with_table(c, s, i / 4, of);
        } else {
            data = data_with_table(c, s, i / 4, of);
        }
        for (int k = 0; k < 10; k++)
            results[k] = mu_schedule(c, f, data);
        for (int k = 0; k < 10; k++)
            EXPECT(mu_fetch(results[k]), 72);
    }
    CHECK(mu_join(c) == MU_OK);
}

const one_case pin_server_cases[] = {
    {"pin_run_in_calls", run_in_calls, NULL},
    {"pin_assign_in_calls", assign_in_calls, NULL},
    {"pin_data_in_calls", data_in_calls, NULL},
    {"pin_reductions_in_calls", reductions_in_calls, NULL},
    {"pin_reductions_of_several_calls", reductions_of_several_calls, NULL},
    {"pin_cached_reads_in_calls", cached_reads_in_calls, NULL},
    {"pin_data_after_errors", data_after_errors, NULL},
    {"pin_variables_in_calls", variables_in_calls, NULL},
    {"pin_fetch_of_structures", fetch_of_structures, NULL},
    {"pin_scatters_into_parts", scatters_into_parts, NULL},
    {"pin_parts_in_files", parts_in_files, NULL},
    {"pin_numbers_of_parts", numbers_of_parts, NULL},
    {"pin_parts_beside_others", parts_beside_others, NULL},
    {"pin_tables_of_workers", tables_of_workers, NULL},
    {"pin_accumulators", accumulators, NULL},
    {0},
};
