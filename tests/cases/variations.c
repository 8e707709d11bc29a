// Variations of the numbered cases that follow from the guides or from TensorFlow as it runs, and that no case has:
// other types, other ways through the same rule, and what messages must say.
#include "cases.h"

#include <muster/coordinator.h>
#include <muster/control.h>

// The pending error must have this code, and these words in its message; it is taken.
static void expect_words(int line, mu_status wanted, const char *words)
{
    const mu_error error = mu_error_take();
    if (error.code != wanted || !strstr(error.message, words))
        fail_case(line, "%s with \"%s\" wanted, got %s: %s", mu_status_name(wanted), words, mu_status_name(error.code),
                  error.message);
}
#define EXPECT_WORDS(code, words) expect_words(__LINE__, code, words)

// ---- Scatters -----------------------------------------------------------------------------------

typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);

// TensorFlow's scatters know no bool, except the one that replaces rows.
static void scatter_bool(void)
{
    static scatter_fn *const refused[] = {mu_variable_scatter_add, mu_variable_scatter_sub, mu_variable_scatter_mul,
                                          mu_variable_scatter_div, mu_variable_scatter_min, mu_variable_scatter_max};
    mu_strategy *all[] = {mirrored(2), mu_one_device_strategy("CPU:0"), mu_central_storage_strategy(.replicas = 2)};
    for (int s = 0; s < 3; s++) {
        mu_variable *v = variable(all[s], mu_cast(VECTOR(1, 0, 1), MU_BOOL), MU_SYNCHRONIZATION_AUTO,
                                  MU_AGGREGATION_ONLY_FIRST_REPLICA);
        mu_tensor *row = mu_cast(VECTOR(1), MU_BOOL);
        for (int i = 0; i < 6; i++) {
            CHECK(refused[i](v, INDICES(1), row) != MU_OK);
            EXPECT_WORDS(MU_INVALID_ARGUMENT, "bool");
        }
        CHECK(mu_variable_scatter_update(v, INDICES(1), row) == MU_OK);
        EXPECT(read_of(v), 1, 1, 1);
    }
}

// ---- Reductions ---------------------------------------------------------------------------------

// An ON_READ variable is reduced copy by copy, so its aggregation does not matter; on one replica too.
static void reduce_on_read(void)
{
    for (int n = 1; n <= 3; n++)
        for (int a = MU_AGGREGATION_NONE; a <= MU_AGGREGATION_ONLY_FIRST_REPLICA; a++) {
            mu_strategy *s = mirrored(n);
            mu_variable *v = variable(s, VECTOR(1, 2), MU_SYNCHRONIZATION_ON_READ, (mu_variable_aggregation)a);
            mu_value *leaf = mu_value_at(mu_variables(v, MU_END), 0);
            EXPECT(mu_reduce(s, MU_SUM, leaf), n, 2 * n);
            EXPECT(mu_reduce(s, MU_MEAN, leaf), 1, 2);
            EXPECT(mu_reduce(s, MU_MEAN, leaf, 0), 1.5);
            EXPECT(mu_reduce_to(s, MU_SUM, leaf), n, 2 * n);
        }
}

// TensorFlow returns the only replica's value, whatever its type and the operation; so does a result of mu_run, which
// is not wrapped.
static void means_of_one_replica(void)
{
    mu_strategy *one = mirrored(1);
    const int64_t dims[] = {2};
    mu_tensor *parts[] = {INDICES(1, 2), mu_cast(VECTOR(1, 0), MU_BOOL), mu_constant(MU_I64, 7),
                          mu_tensor_strings(1, dims, (const char *const[]){"a", "b"})};
    for (int i = 0; i < 8; i++) {
        mu_value *wrapped = mu_per_replica(one, parts[i % 4], MU_END);
        CHECK(wrapped && mu_value_kind_of(wrapped) == MU_VALUE_PER_REPLICA);
        const mu_reduce_op op = i < 4 ? MU_MEAN : MU_SUM;
        mu_value *batch = mu_batch_reduce_to(one, op, mu_list(wrapped, MU_END), mu_list(parts[0], MU_END));
        const mu_tensor *got[] = {mu_value_tensor(mu_reduce(one, op, wrapped)), mu_at(batch, 0)};
        for (int k = 0; k < 2; k++)
            CHECK(got[k] && mu_tensor_dtype(got[k]) == mu_tensor_dtype(parts[i % 4]));
    }
    EXPECT(mu_reduce(one, MU_MEAN, mu_per_replica(one, parts[0], MU_END), 0), 1.5);
    const mu_tensor *gathered = mu_value_tensor(mu_strategy_gather(one, mu_per_replica(one, parts[3], MU_END), 0));
    CHECK(gathered && strcmp(mu_tensor_string(gathered, 1).bytes, "b") == 0);
}

// A literal 0 has a sum; a variable has none, whatever it holds just now (TensorFlow: AssertionError).
static void sums_of_zero(void)
{
    mu_strategy *all[] = {mirrored(2), mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 2; i++) {
        mu_value *v = mu_value_at(mu_variables(on_write(all[i], 0, MU_AGGREGATION_SUM), MU_END), 0);
        mu_value *mirror = mu_broadcast_to_devices(all[i], mu_of(scalar(0)), PER_REPLICA(1, 2));
        EXPECT(mu_reduce(all[i], MU_SUM, mu_of(scalar(0))), 0);
        EXPECT(mu_reduce(all[i], MU_MEAN, v), 0);
        CHECK(!mu_reduce(all[i], MU_SUM, v));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_reduce: SUM of a value that is not per replica");
        CHECK(!mu_reduce_to(all[i], MU_SUM, mirror));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_reduce_to: SUM of a value that is not per replica");
    }
}

// ---- Copies and updates -------------------------------------------------------------------------

// What is copied of a variable is its value, which stays when the variable changes.
static void broadcast_of_variables(void)
{
    mu_strategy *all[] = {mirrored(2), mu_central_storage_strategy(.replicas = 2), mu_one_device_strategy("CPU:0")};
    for (int i = 0; i < 3; i++) {
        mu_variable *v = on_write(all[i], 1, MU_AGGREGATION_NONE), *sum = on_read(all[i], 1, MU_AGGREGATION_SUM);
        mu_value *at = mu_value_at(mu_variables(v, MU_END), 0), *read = mu_value_at(mu_variables(sum, MU_END), 0);
        mu_value *both = mu_broadcast_to_devices(all[i], mu_list(at, read, MU_END), at);
        CHECK(mu_variable_assign(v, scalar(5)) == MU_OK);
        CHECK(mu_scalar(mu_at(both, 0)) == 1 && mu_scalar(mu_at(both, 1)) == (i == 0 ? 2 : 1));
    }
    CHECK(!mu_broadcast_to_devices(all[0], PER_REPLICA(1, 2), PER_REPLICA(1, 2)));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_broadcast_to_devices: the value is per replica, with 2 components");
}

static mu_value *add_twice(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *by = mu_at(arguments, 0), *sum = mu_add(mu_variable_read(variable), mu_multiply(by, scalar(2)));
    return mu_variable_assign(variable, sum) == MU_OK ? mu_list(by, mu_variable_read(variable), MU_END) : NULL;
}

typedef struct updating {
    mu_variable *variable;
    bool local_results;
} updating;

static mu_value *update_by_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    const updating *u = arg;
    mu_value *by = mu_list(mu_add(id(), scalar(3)), MU_END);
    return mu_update_variable(mu_get_strategy(), u->variable, add_twice, NULL, by, .local_results = u->local_results);
}

static mu_value *add_sum(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *by = mu_reduce_sum(mu_at(arguments, 0));
    return mu_variable_assign_add(variable, by) == MU_OK ? read_of(variable) : NULL;
}

static mu_value *update_by_rows(mu_value *arguments, void *arg)
{
    return mu_update_variable(mu_get_strategy(), arg, add_sum, NULL, arguments);
}

// One copy for all replicas is updated once, with the first replica's part; traced as eagerly, and so are the results.
// Parts may have other sizes.
static void updates_of_the_only_copy(void)
{
    mu_strategy *s = mu_central_storage_strategy(.replicas = 3);
    mu_value *rows = mu_list(per_replica_of(3, (mu_tensor *[]){VECTOR(1, 2), VECTOR(4), VECTOR(5, 6, 7)}), MU_END);
    for (int i = 0; i < 2; i++) {
        mu_variable *v = on_write(s, 10, MU_AGGREGATION_NONE);
        mu_function *f = mu_function_new(update_by_rows, v);
        EXPECT(i ? mu_run(s, f, rows) : mu_run_callback(s, update_by_rows, v, rows), 13);
        EXPECT(read_of(v), 13);
    }
    for (int i = 0; i < 4; i++) {
        updating u = {on_write(s, 10, MU_AGGREGATION_NONE), i / 2};
        EXPECT((i % 2 ? traced : eager)(s, update_by_id, &u), 3, 16);
        EXPECT(read_of(u.variable), 16);
    }
}

// ---- What messages name -------------------------------------------------------------------------

typedef enum misplaced { REDUCE, GATHER, SET_DEVICE, SET_STRATEGY } misplaced;

static mu_value *call_misplaced(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_strategy *s = mu_get_strategy();
    switch (*(misplaced *)arg) {
    case REDUCE: return mu_reduce(s, MU_SUM, mu_of(id()));
    case GATHER: return mu_strategy_gather(s, mu_of(id()), 0);
    case SET_DEVICE: return mu_set_device("CPU:0") == MU_OK ? mu_of(id()) : NULL;
    case SET_STRATEGY: break;
    }
    return mu_set_strategy(s) == MU_OK ? mu_of(id()) : NULL;
}

// On replicas the message names the function that was called, and the one that belongs there.
static void misplaced_calls(void)
{
    static const char *const words[] = {"mu_all_reduce", "mu_all_gather", "mu_set_device is", "mu_set_strategy is"};
    for (misplaced i = REDUCE; i <= SET_STRATEGY; i++) {
        CHECK(!eager(mirrored(2), call_misplaced, &i));
        EXPECT_WORDS(MU_FAILED_PRECONDITION, words[i]);
        CHECK(!traced(mirrored(2), call_misplaced, &i));
        EXPECT_WORDS(MU_FAILED_PRECONDITION, words[i]);
    }
}

static void updates_under_another_strategy(void)
{
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    static const char *const words[] = {"mu_variable_assign ", "mu_variable_assign_add ", "mu_variable_assign_sub "};
    mu_strategy *s = mirrored(2);
    mu_variable *of[] = {on_write(s, 1, MU_AGGREGATION_SUM), on_read(s, 1, MU_AGGREGATION_MEAN)};
    MU_SCOPE(mirrored(3))
        for (int i = 0; i < 6; i++) {
            CHECK(assigns[i % 3](of[i / 3], scalar(2)) != MU_OK);
            EXPECT_WORDS(MU_FAILED_PRECONDITION, words[i % 3]);
        }
}

static mu_value *give_back(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arg;
    return arguments;
}

static mu_value *merge_other_structure(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_value *own = mu_scalar(mu_replica_id()) == 0 ? mu_list(scalar(1), MU_END) : mu_map("a", scalar(1), MU_END);
    return mu_merge_call(give_back, NULL, own);
}

static void other_structure(void)
{
    CHECK(!eager(mirrored(2), merge_other_structure, NULL));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "merge_call");
}

static mu_value *give_mirrored(const mu_value_context *context, void *arg)
{
    (void)context;
    return mu_list(scalar(1), (mu_value *)arg, MU_END);
}

// A per-replica value of values that are per replica already would have components that nothing can use.
static void nested_components(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *inner = PER_REPLICA(1, 2), *mirror = mu_broadcast_to_devices(s, mu_of(scalar(1)), inner);
    CHECK(!mu_per_replica(s, inner, inner, MU_END));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "replica 0");
    CHECK(!mu_distribute_values(s, give_mirrored, mirror));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "replica 0");
}

static void gather_of_scalars(void)
{
    CHECK(!mu_strategy_gather(mirrored(2), PER_REPLICA(1, 2), 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "scalar");
    CHECK(!mu_strategy_gather(mirrored(2), PER_REPLICA(1, 2), 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_strategy_gather");
}

// The message names the function that was called, what it was given, and what to do about that.
static void words_of_reductions(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *types = per_replica_of(2, (mu_tensor *[]){VECTOR(1), INDICES(1)}), *some = PER_REPLICA(1, 2);
    mu_tensor *yes = mu_cast(VECTOR(1), MU_BOOL), *text = mu_tensor_strings(1, (int64_t[]){1}, (const char *[]){"a"});
    mu_value *bools = per_replica_of(2, (mu_tensor *[]){yes, yes});
    mu_value *texts = per_replica_of(2, (mu_tensor *[]){text, text});
    CHECK(!mu_reduce(s, MU_SUM, types));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "Convert them to one type (mu_cast)");
    CHECK(!mu_reduce(s, MU_SUM, types, 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "Convert them to one type (mu_cast)");
    CHECK(!mu_strategy_gather(s, types, 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "Convert them to one type (mu_cast)");
    CHECK(!mu_strategy_gather(s, texts, 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_strategy_gather: replica 0 has strings");
    for (int i = 0; i < 4; i++) {
        CHECK(!mu_reduce(s, i % 2 ? MU_SUM : MU_MEAN, i / 2 ? texts : bools));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, i / 2 ? "replica 0 has type string" : "replica 0 has type bool");
    }
    CHECK(!mu_reduce(s, MU_SUM, bools, 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_reduce: replica 0 has type bool");
    CHECK(!mu_batch_reduce_to(s, MU_SUM, mu_list(some, MU_END), mu_list(some, some, MU_END)));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "2 destinations for 1 values");
    CHECK(!mu_batch_reduce_to(s, MU_SUM, mu_list(some, mu_list(some, MU_END), MU_END), NULL));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "value 1 is a list or map");
    MU_SCOPE(mirrored(2))
        CHECK(!mu_per_replica(s, scalar(1), scalar(2), MU_END));
    EXPECT_WORDS(MU_FAILED_PRECONDITION, "mu_per_replica of MirroredStrategy");
}

static mu_value *make_in_trace(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_variable *v = mu_variable_new(mu_add(id(), scalar(1)), "late");
    return v ? read_of(v) : NULL;
}

// Strategies of one kind are "another", of two kinds not.
static void two_kinds(void)
{
    mu_strategy *s = mirrored(2);
    MU_SCOPE(s) {
        CHECK(!eager(mu_one_device_strategy("CPU:0"), make_in_trace, NULL));
        EXPECT_WORDS(MU_FAILED_PRECONDITION, "under MirroredStrategy");
        CHECK(!eager(mirrored(2), make_in_trace, NULL));
        EXPECT_WORDS(MU_FAILED_PRECONDITION, "under another MirroredStrategy");
    }
    CHECK(!traced(s, make_in_trace, NULL));
    EXPECT_WORDS(MU_FAILED_PRECONDITION, "initial_value_fn");
}

// ---- The end of data as TensorFlow has it -------------------------------------------------------

typedef struct pipeline {
    int64_t n;
    bool batched, whole;
} pipeline;

static mu_dataset *make_pipeline(const mu_input_context *context, void *arg)
{
    (void)context;
    const pipeline *p = arg;
    mu_dataset *data = mu_dataset_range(0, p->n, 1);
    return p->batched ? mu_dataset_batch(data, 2, .drop_remainder = p->whole) : data;
}

static int steps_of(const pipeline *p)
{
    int steps = 0;
    MU_EACH(batch, mu_distribute_datasets_from_function(mirrored(2), make_pipeline, (void *)p))
        steps++;
    return steps;
}

// With MUSTER_TF_COMPAT: where sizes are known, a step needs data for every replica.
static void rest_that_is_dropped(void)
{
    const bool compat = mu__setting_bool(MU_SETTING_TF_COMPAT);
    CHECK(steps_of(&(pipeline){6, true, true}) == (compat ? 1 : 2));
    CHECK(steps_of(&(pipeline){6, true, false}) == 2);
    CHECK(steps_of(&(pipeline){8, true, true}) == 2);
    CHECK(steps_of(&(pipeline){4, false, false}) == 2);
    CHECK(steps_of(&(pipeline){5, false, false}) == 2);
    if (!compat)
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "scalar");
}

static mu_dataset *nested_batches(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_dataset_batch(mu_dataset_batch(mu_dataset_range(0, 3, 1), 3), 1);
}

// What has no rows is refused when it is distributed, also without a single element, or where one tensor of several has
// none.
static void scalars_are_not_shared(void)
{
    mu_dataset *one = mu_dataset_range(0, 4, 1), *none = mu_dataset_range(0, 0, 1),
               *both = mu_dataset_enumerate(mu_dataset_batch(one, 2), 0);
    mu_strategy *s = mirrored(2), *central = mu_central_storage_strategy(.replicas = 2);
    mu_dataset *all[] = {one, none, both};
    for (int i = 0; i < 6; i++) {
        CHECK(!mu_distribute_dataset(i < 3 ? s : central, all[i % 3]));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_dataset_batch");
        CHECK(mu_distribute_dataset(mirrored(1), all[i % 3]));
    }
}

// An empty batch has no elements along any axis of unknown size.
static void shape_of_the_empty(void)
{
    const bool compat = mu__setting_bool(MU_SETTING_TF_COMPAT);
    int steps = 0;
    MU_EACH(batch, mu_distribute_datasets_from_function(mirrored(2), nested_batches, NULL)) {
        const mu_shape shape = mu_tensor_shape(mu_value_tensor(mu_value_at(batch, 1)));
        CHECK(shape.rank == 2 && shape.dims[0] == 0 && shape.dims[1] == (compat ? 0 : 3));
        steps++;
    }
    CHECK(steps == 1);
}

// ---- Arguments ----------------------------------------------------------------------------------

// A 0 that is written is not the default (decision 30): a program has computed it.
static void written_zeros(void)
{
    for (int n = -1; n <= 0; n++) {
        CHECK(!mu_mirrored_strategy(.replicas = n));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "replicas");
        CHECK(!mu_central_storage_strategy(.replicas = n));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "replicas");
    }
    mu_accumulator *dense = mu_conditional_accumulator(MU_F32), *sparse = mu_sparse_conditional_accumulator(MU_F32);
    CHECK(!mu_accumulator_take_grad(dense, 1, .timeout_seconds = 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "timeout_seconds");
    CHECK(!mu_sparse_accumulator_take_grad(sparse, 1, .timeout_seconds = 0));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "timeout_seconds");
}

// Lists of names that MU_LIST_OF makes have its end, which is not NULL.
static void lists_of_devices(void)
{
    mu_strategy *s = mu_mirrored_strategy(.devices = MU_LIST_OF(const char, "CPU:0", "CPU:1"));
    CHECK(mu_num_replicas_in_sync(s) == 2);
    CHECK(mu_num_replicas_in_sync(mu_central_storage_strategy(MU_LIST_OF(const char, "CPU:0", "CPU:1"))) == 2);
    EXPECT(mu_reduce_to(s, MU_SUM, PER_REPLICA(1, 2), .devices = MU_LIST_OF(const char, "CPU:1")), 3);
    EXPECT(mu_broadcast_to_devices(s, mu_of(scalar(4)), .devices = MU_LIST_OF(const char, "CPU:1", "CPU:0")), 4, 4);
    CHECK(!mu_mirrored_strategy(.devices = (const char *const[]){MU_END}));
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "empty");
}

// ---- Clusters -----------------------------------------------------------------------------------

// Who asks for the number of workers is one of the tasks.
static void workers_of_absent_jobs(void)
{
    const mu_cluster_spec *empty = mu_cluster_spec_parse("{}"),
                          *workers = mu_cluster_spec_parse("{\"worker\": [\"a:1\"]}"),
                          *chief = mu_cluster_spec_parse("{\"chief\": [\"a:1\"]}");
    CHECK(mu_cluster_spec_worker_count(empty, "worker") == -1);
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "no job worker");
    CHECK(mu_cluster_spec_worker_count(workers, "chief") == -1);
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "no job chief");
    CHECK(mu_cluster_spec_worker_count(chief, "worker") == -1);
    EXPECT_WORDS(MU_INVALID_ARGUMENT, "no job worker");
    CHECK(mu_cluster_spec_worker_count(workers, "worker") == 1 && mu_cluster_spec_worker_count(chief, "chief") == 1);
    CHECK(mu_cluster_spec_worker_count(workers, "evaluator") == 1); // need not be listed
}

// ---- Calls on workers ---------------------------------------------------------------------------

static mu_strategy *servers_in_process(int workers)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"ps\": [\"\"]}");
    for (int i = 0; i < workers; i++)
        mu_cluster_spec_add(spec, "worker", -1, "");
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), .in_process = true);
}

static mu_coordinator *coordinator_in_process(int workers) { return mu_coordinator_new(servers_in_process(workers)); }

static mu_value *give_arguments(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static mu_dataset *range_for_pipeline(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_dataset_batch(mu_dataset_range(0, 4, 1), 2);
}

// What a parameter-server strategy has distributed is read on workers only.
static void distributed_for_workers(void)
{
    mu_strategy *s = servers_in_process(2);
    mu_coordinator *c = mu_coordinator_new(s);
    mu_distributed_dataset *both[] = {mu_distribute_dataset(s, range_for_pipeline(NULL, NULL)),
                                      mu_distribute_datasets_from_function(s, range_for_pipeline, NULL)};
    mu_function *f = mu_function_new(give_arguments, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(!mu_iterate(both[i]));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "mu_create_per_worker_dataset");
        mu_value *data = mu_create_per_worker_dataset(c, .dataset = both[i]);
        EXPECT(mu_fetch(mu_schedule(c, f, data)), 0, 1);
        CHECK(mu_join(c) == MU_OK);
    }
}

static mu_dataset *from_three(void *arg)
{
    (void)arg;
    return mu_dataset_range(3, 100, 1);
}

static mu_value *ten_times_plus(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_multiply(mu_at(arguments, 0), mu_constant(MU_I64, 10)), mu_at(arguments, 1)));
}

// Each mention of a per-worker dataset is an element of its own.
static void dataset_twice(void)
{
    mu_coordinator *c = coordinator_in_process(1);
    mu_value *data = mu_create_per_worker_dataset(c, from_three, NULL);
    mu_function *f = mu_function_new(ten_times_plus, NULL);
    for (int i = 0; i < 4; i++)
        EXPECT(mu_fetch(mu_schedule(c, f, mu_list(data, data, MU_END))), 10 * (3 + 2 * i) + 4 + 2 * i);
    CHECK(mu_join(c) == MU_OK);
}

static mu_value *refuse_negative(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_assert(mu_greater_equal(mu_value_tensor(arguments), scalar(0)), "negative");
    return arguments;
}

// Whoever has fetched a call's error is told at the next schedule, not at a later one.
static void error_of_the_fetched(void)
{
    mu_coordinator *c = coordinator_in_process(1);
    mu_function *f = mu_function_new(refuse_negative, NULL);
    for (int i = 0; i < 50; i++) {
        CHECK(!mu_fetch(mu_schedule(c, f, mu_of(scalar(-1)))));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "negative");
        CHECK(!mu_schedule(c, f, mu_of(scalar(1))));
        EXPECT_WORDS(MU_INVALID_ARGUMENT, "negative");
        EXPECT(mu_fetch(mu_schedule(c, f, mu_of(scalar(1)))), 1);
        CHECK(mu_join(c) == MU_OK);
    }
}

const one_case variation_cases[] = {
    {"vary_scatter_bool", scatter_bool, NULL},
    {"vary_reduce_on_read", reduce_on_read, NULL},
    {"vary_means_of_one_replica", means_of_one_replica, NULL},
    {"vary_sums_of_zero", sums_of_zero, NULL},
    {"vary_broadcast_of_variables", broadcast_of_variables, NULL},
    {"vary_updates_of_the_only_copy", updates_of_the_only_copy, NULL},
    {"vary_words_of_reductions", words_of_reductions, NULL},
    {"vary_lists_of_devices", lists_of_devices, NULL},
    {"vary_misplaced_calls", misplaced_calls, NULL},
    {"vary_updates_under_another_strategy", updates_under_another_strategy, NULL},
    {"vary_other_structure", other_structure, NULL},
    {"vary_nested_components", nested_components, NULL},
    {"vary_gather_of_scalars", gather_of_scalars, NULL},
    {"vary_two_kinds", two_kinds, NULL},
    {"vary_rest_that_is_dropped", rest_that_is_dropped, NULL},
    {"vary_scalars_are_not_shared", scalars_are_not_shared, NULL},
    {"vary_shape_of_the_empty", shape_of_the_empty, NULL},
    {"vary_written_zeros", written_zeros, NULL},
    {"vary_workers_of_absent_jobs", workers_of_absent_jobs, NULL},
    {"vary_distributed_for_workers", distributed_for_workers, NULL},
    {"vary_dataset_twice", dataset_twice, NULL},
    {"vary_error_of_the_fetched", error_of_the_fetched, NULL},
    {0},
};
