// Rules of the parameter-server guide, sections 1 to 3, that no numbered case covers: clusters, placement, reductions,
// cached reads, what a coordinator's calls get and what becomes of their errors, and results of remote calls.
#include "cases.h"
#include "coordinator/coordinator.h"

#include <pthread.h>
#include <unistd.h>

// ---- 1.1 The cluster ----------------------------------------------------------------------------

// In the order of the checks. A coordinator need not be in its own cluster, nor an evaluator.
static void clusters(void)
{
    static const struct {
        const char *json, *type;
        int id;
        const char *words; // of the error; NULL: the strategy is made
    } table[] = {
        {"{}", NULL, 0, "is empty"},
        {"{\"worker\": [\"a:1\"], \"master\": [\"b:1\"], \"boss\": [\"c:1\"]}", "boss", 3, "disallowed task type"},
        {"{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}", "foobar", 0, "unrecognized task type 'foobar'"},
        {"{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}", "chief", 0, "is a chief, but the cluster has no such job"},
        {"{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}", "evaluator", 0, NULL},
        {"{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}", NULL, 0, NULL},
        {"{\"chief\": [\"a:1\", \"b:1\"], \"worker\": [\"c:1\"]}", "chief", 7, "2 tasks of job chief"},
        {"{\"evaluator\": [\"a:1\", \"b:1\"], \"worker\": [\"c:1\"]}", "worker", 7, "2 tasks of job evaluator"},
        {"{\"worker\": [\"a:1\", \"b:1\"]}", "worker", 2, "worker 2, but the cluster has 2"},
        {"{\"worker\": [\"a:1\", \"b:1\"]}", "worker", 1, "no tasks of job ps"},
        {"{\"chief\": [\"a:1\"], \"ps\": []}", "chief", 0, "no tasks of job ps"},
        {"{\"chief\": [\"a:1\"], \"ps\": [\"b:1\"]}", "chief", 0, "no tasks of job worker"},
        {"{\"chief\": [\"a:1\"], \"worker\": [\"b:1\"], \"ps\": [\"c:1\"]}", "chief", 0, NULL},
    };
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        mu_cluster *cluster = mu_simple_cluster_resolver(mu_cluster_spec_parse(table[i].json), .task_id = table[i].id,
                                                         .task_type = table[i].type);
        mu_strategy *strategy = mu_parameter_server_strategy(cluster, .in_process = true);
        const mu_error error = mu_error_take();
        if (table[i].words ? error.code != MU_INVALID_ARGUMENT || !strstr(error.message, table[i].words) : !strategy)
            fail_case(__LINE__, "%s as %s: %s", table[i].json, table[i].type ? table[i].type : "nobody", error.message);
        // Workers are not synchronized, so they do not count.
        CHECK(!strategy || mu_num_replicas_in_sync(strategy) == 1);
    }
}

// ---- 1.2, 1.3 Placement -------------------------------------------------------------------------

static int server_of(mu_variable *v)
{
    const char *device = mu_variable_device(v), *task = device ? strstr(device, "task:") : NULL;
    return task ? task[5] - '0' : -1;
}

static int count_call(const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK], void *arg)
{
    (void)dtype;
    ++*(int *)arg;
    for (int i = 0; i < shape->rank; i++)
        counts[i] = i == 0 ? 2 : 1;
    return shape->rank;
}

// Each part takes its turn. What is beside another variable takes none and is not divided. No scalar is. Nobody asks
// the partitioner about either.
static void placement(void)
{
    int asked = 0;
    mu_strategy *strategy = on_workers(1, 3, mu_partitioner_new(count_call, &asked));
    mu_variable *divided = NULL, *beside = NULL, *single = NULL, *next = NULL, *own = NULL;
    MU_SCOPE(strategy) {
        divided = mu_variable_new(VECTOR(1, 2, 3, 4), "divided");
        MU_COLOCATE(strategy, mu_variable_shard(divided, 1))
            beside = mu_variable_new(VECTOR(5, 6, 7), "beside");
        single = mu_variable_new(scalar(8), "single");
        next = mu_variable_new(VECTOR(9, 10), "next");
        own = mu_variable_new(VECTOR(1, 2), "own", .per_worker_variable = true);
    }
    CHECK(asked == 2);
    CHECK(server_of(mu_variable_shard(divided, 0)) == 0 && server_of(mu_variable_shard(divided, 1)) == 1);
    CHECK(server_of(beside) == 1 && mu_variable_shard_count(beside) == 0);
    CHECK(server_of(single) == 2 && mu_variable_shard_count(single) == 0);
    CHECK(server_of(mu_variable_shard(next, 0)) == 0 && server_of(mu_variable_shard(next, 1)) == 1);
    CHECK(server_of(own) == -1 && mu_variable_shard_count(own) == 0 && !mu_variable_is_trainable(own));
    CHECK(server_of(mu_variable_new(scalar(1), "outside")) == -1);
}

// ---- 1.5 Sharded variables ----------------------------------------------------------------------

// Any plain variables with rows are parts, of any sizes, and of one whole only.
static void parts_of_a_whole(void)
{
    mu_variable *a = mu_variable_new(VECTOR(1, 2, 3), "a"), *b = mu_variable_new(VECTOR(4), "b");
    mu_variable *point = mu_variable_new(scalar(5), "point"), *c = mu_variable_new(VECTOR(6), "c");
    mu_variable *whole = mu_sharded_variable_of(2, (mu_variable *[]){b, a}, NULL);
    CHECK(whole && strcmp(mu_variable_name(whole), "ShardedVariable") == 0);
    EXPECT(read_of(whole), 4, 1, 2, 3);
    const struct {
        mu_variable *parts[2];
        const char *words;
    } wrong[] = {{{c, a}, "'a' is a part of 'ShardedVariable' already"},
                 {{c, c}, "'c' is given twice"},
                 {{c, point}, "'point' is a scalar"},
                 {{c, whole}, "element 1 is"}};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        CHECK(!mu_sharded_variable_of(2, wrong[i].parts, "v"));
        if (!strstr(mu_error_message(), wrong[i].words))
            fail_case(__LINE__, "%s", mu_error_message());
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(mu_sharded_variable_of(1, &c, "v") && mu_variable_shard_count(c) == 0);
}

// ---- 1.6 Reductions and reads -------------------------------------------------------------------

static mu_dataset *per_pipeline(const mu_input_context *context, void *arg)
{
    CHECK(context->num_input_pipelines == 1 && context->input_pipeline_id == 0 && context->num_replicas_in_sync == 1);
    ++*(int *)arg;
    return mu_dataset_batch(mu_dataset_range(0, 4, 1), 2);
}

static mu_value *twice(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(arguments, 0), scalar(2)));
}

static void reductions(void)
{
    mu_strategy *strategy = on_workers(3, 2, NULL);
    int calls = 0;
    EXPECT(mu_reduce(strategy, MU_SUM, mu_of(scalar(7))), 7); // not per replica: unchanged
    EXPECT(mu_reduce(strategy, MU_MEAN, mu_list(scalar(7), VECTOR(1, 2), MU_END)), 7, 1, 2);
    EXPECT(mu_strategy_gather(strategy, mu_of(VECTOR(3, 4)), 0), 3, 4);
    // Outside of a call: in this process.
    EXPECT(mu_run(strategy, mu_function_new(twice, NULL), mu_list(scalar(3), MU_END)), 6);
    mu_distributed_dataset *both[] = {mu_distribute_dataset(strategy, mu_dataset_batch(mu_dataset_range(0, 4, 1), 2)),
                                      mu_distribute_datasets_from_function(strategy, per_pipeline, &calls)};
    for (int i = 0; i < 2; i++) {
        MU_EACH(batch, both[i])
            CHECK(batch == NULL);
        CHECK(strstr(mu_error_message(), "mu_create_per_worker_dataset"));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

// Reads of rows are not cached, nor do they fill the cache of the whole.
static void cached_reads(void)
{
    mu_strategy *strategy = on_workers(1, 2, NULL);
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(VECTOR(1, 2, 3), "v");
    MU_CACHE_VARIABLE_READS
    {
        EXPECT(mu_of(mu_variable_sparse_read(v, INDICES(1))), 2);
        CHECK(mu_variable_assign(v, VECTOR(4, 5, 6)) == MU_OK);
        EXPECT(mu_of(mu_variable_read(v)), 4, 5, 6);
        CHECK(mu_variable_assign(v, VECTOR(7, 8, 9)) == MU_OK);
        EXPECT(mu_of(mu_variable_read(v)), 4, 5, 6);
        EXPECT(mu_of(mu_variable_sparse_read(v, INDICES(1))), 8);
        EXPECT(mu_of(mu_nn_embedding_lookup(v, INDICES(2, 0))), 9, 7);
    }
    EXPECT(mu_of(mu_variable_read(v)), 7, 8, 9);
}

// ---- 2.2 Calls ----------------------------------------------------------------------------------

static mu_value *same(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_cast(mu_at(arguments, 0), MU_F32));
}

static mu_value *nothing(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return NULL;
}

static mu_value *append_digit(mu_value *arguments, void *arg)
{
    mu_variable_assign(arg, mu_add(mu_multiply(mu_variable_read(arg), scalar(10)), mu_at(arguments, 0)));
    return NULL;
}

static void arguments_and_results(void)
{
    mu_strategy *strategy = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_function *function = mu_function_new(same, NULL);
    mu_value *result = mu_schedule(c, function, mu_list(scalar(5), MU_END));
    CHECK(!mu_schedule(c, function, mu_list(scalar(1), mu_list(mu_map("deep", result, MU_END), MU_END), MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_fetch(mu_list(scalar(1), mu_map("a", result, "b", scalar(2), MU_END), result, MU_END)), 1, 5, 2, 5);
    CHECK(mu_value_count(mu_fetch(mu_schedule(c, mu_function_new(nothing, NULL)))) == 0);
    mu_value *other =
        mu_create_per_worker_dataset(mu_coordinator_new(on_workers(1, 1, NULL)), .dataset = mu_dataset_range(0, 3, 1));
    CHECK(!mu_schedule(c, function, mu_list(other, MU_END))); // of another coordinator
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    // One worker runs calls in the order of their schedules.
    mu_variable *digits = NULL;
    MU_SCOPE(strategy)
        digits = mu_variable_new(scalar(0), "digits");
    mu_function *append = mu_function_new(append_digit, digits);
    for (int i = 1; i <= 6; i++)
        mu_schedule(c, append, mu_list(scalar(i), MU_END));
    CHECK(mu_join(c) == MU_OK);
    EXPECT(read_of(digits), 123456);
}

static mu_dataset *whole(void *arg)
{
    (void)arg;
    return mu_dataset_range(0, 4, 1);
}

// Each worker reads the whole dataset, whatever was given, and a second set of iterators begins anew.
static void datasets(void)
{
    int calls = 0;
    mu_strategy *strategy = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_function *function = mu_function_new(same, NULL);
    mu_dataset *batches = mu_dataset_batch(mu_dataset_range(0, 4, 1), 2);
    mu_value *all[] = {mu_create_per_worker_dataset(c, whole, NULL),
                       mu_create_per_worker_dataset(c, .dataset = mu_dataset_range(0, 4, 1)),
                       mu_create_per_worker_dataset(c, whole, NULL),
                       mu_create_per_worker_dataset(c, .dataset = mu_distribute_dataset(strategy, batches)),
                       mu_create_per_worker_dataset(
                           c, .dataset = mu_distribute_datasets_from_function(strategy, per_pipeline, &calls))};
    for (size_t d = 0; d < MU_COUNT(all); d++) {
        double sum = 0;
        const int n = d < 3 ? 8 : 4; // elements of two workers
        for (int i = 0; i < n; i++) {
            mu_value *element = mu_fetch(mu_schedule(c, function, mu_list(all[d], MU_END)));
            if (!element && mu_error_code() == MU_OUT_OF_RANGE) { // one worker has used up its own
                mu_error_take();
                CHECK(mu_join(c) == MU_OUT_OF_RANGE);
                EXPECT_ERROR(MU_OUT_OF_RANGE);
                i--;
                continue;
            }
            for (int64_t k = 0; element && k < mu_tensor_elements(mu_value_tensor(element)); k++)
                sum += mu_tensor_item(mu_value_tensor(element), k);
        }
        CHECK(sum == 2 * (0 + 1 + 2 + 3));
    }
    CHECK(calls >= 1);
}

// ---- 2.3 Errors ---------------------------------------------------------------------------------

static mu_value *add_positive(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_cast(mu_at(arguments, 0), MU_F32);
    mu_assert(mu_greater_equal(x, scalar(0)), "negative");
    mu_variable_assign_add(arg, x);
    return mu_of(x);
}

// A user's error does not touch what workers have for themselves: their datasets continue where they were.
static void resources_outlive_errors(void)
{
    mu_strategy *strategy = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(scalar(0), "v");
    mu_function *add = mu_function_new(add_positive, v);
    mu_value *data = mu_create_per_worker_dataset(c, whole, NULL);
    for (int i = 0; i < 3; i++) {
        EXPECT(mu_fetch(mu_schedule(c, add, mu_list(data, MU_END))), i);
        mu_schedule(c, add, mu_list(scalar(-1), MU_END));
        CHECK(mu_join(c) == MU_INVALID_ARGUMENT);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(mu_join(c) == MU_OK); // told once
    }
    EXPECT(read_of(v), 0 + 1 + 2);
}

typedef struct joiner {
    mu_coordinator *coordinator;
    atomic_bool begun, ended;
    mu_status status;
} joiner;

static void *join_main(void *arg)
{
    joiner *j = arg;
    mu_pool *pool = mu_pool_open();
    j->begun = true;
    j->status = mu_join(j->coordinator);
    mu_error_take();
    j->ended = true;
    mu_pool_close(pool);
    return NULL;
}

static mu_value *take_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1));
}

// While one thread joins, another cannot schedule: no_wait tells it, and without it the call comes after the join.
static void a_join_keeps_schedules_out(void)
{
    mu_strategy *strategy = on_workers(1, 1, NULL);
    joiner j = {.coordinator = mu_coordinator_new(strategy)};
    mu_accumulator *gate = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){.rank = 0});
    mu_function *take = mu_function_new(take_one, gate), *function = mu_function_new(same, NULL);
    mu_value *taken = mu_schedule(j.coordinator, take), *late = NULL;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, join_main, &j) == 0);
    for (int i = 0;
         i < 10000 && (late = mu_schedule(j.coordinator, function, mu_list(scalar(4), MU_END), .no_wait = true)); i++)
        usleep(1000);
    CHECK(!late && strstr(mu_error_message(), "another thread joins"));
    EXPECT_ERROR(MU_RESOURCE_EXHAUSTED);
    CHECK(!j.ended && mu_accumulator_apply_grad(gate, scalar(3), 0) == MU_OK);
    late = mu_schedule(j.coordinator, function, mu_list(scalar(4), MU_END));
    pthread_join(thread, NULL);
    CHECK(j.status == MU_OK);
    EXPECT(mu_fetch(mu_list(taken, late, MU_END)), 3, 4);
    CHECK(mu_join(j.coordinator) == MU_OK);
}

// ---- 2.4 What is tried again --------------------------------------------------------------------

// Calls that exceed a limit, in the order of the schedules; then none does.
typedef struct late_task {
    mu_task task;
    atomic_int *left;
} late_task;

static mu_value *late_call(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    (void)failure;
    if (atomic_fetch_sub(((late_task *)task)->left, 1) <= 0)
        return mu__served_call(task->strategy, task->worker, function, arguments);
    mu_fail(MU_DEADLINE_EXCEEDED, "no answer in time");
    return NULL;
}

static void late_free(mu_task *task) { mu__free(task); }

static mu_task *late(mu_strategy *strategy, int worker, void *arg)
{
    static const mu_task_ops ops = {.name = "late", .call = late_call, .free = late_free};
    late_task *made = mu__calloc(1, sizeof *made);
    *made = (late_task){.task = {.ops = &ops, .strategy = strategy, .worker = worker}, .left = arg};
    return &made->task;
}

// The status of a join after so many calls that took too long, with so many workers.
static mu_status after_late_calls(int workers, int n, const char *given, int limit)
{
    atomic_int left = n;
    mu_coordinator_args args = {.size = sizeof args,
                                .given = given,
                                .strategy = on_workers(workers, 1, NULL),
                                .ignore_transient_timeouts = limit};
    mu_coordinator *c = mu__give(mu__coordinator_new(&args, late, &left));
    mu_schedule(c, mu_function_new(same, NULL), mu_list(scalar(1), MU_END));
    const mu_status status = mu_join(c);
    mu_error_take();
    return status;
}

// Reports below the limit are ignored; the default limit, a tenth of the workers, ignores one from 20 workers on.
static void timeouts(void)
{
    CHECK(after_late_calls(1, 1, "", 0) == MU_DEADLINE_EXCEEDED);
    CHECK(after_late_calls(1, 2, ".ignore_transient_timeouts = 3", 3) == MU_OK);
    CHECK(after_late_calls(1, 3, ".ignore_transient_timeouts = 3", 3) == MU_DEADLINE_EXCEEDED);
    CHECK(after_late_calls(19, 1, "", 0) == MU_DEADLINE_EXCEEDED);
    CHECK(after_late_calls(20, 1, "", 0) == MU_OK);
    CHECK(after_late_calls(20, 2, "", 0) == MU_DEADLINE_EXCEEDED);
    CHECK(after_late_calls(20, 1, ".ignore_transient_timeouts = 0", 0) == MU_DEADLINE_EXCEEDED);
}

// A call in this process that itself waits too long is such a report as well.
static mu_value *take_soon(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1, .timeout_seconds = 0.02));
}

static void timeouts_of_calls(void)
{
    mu_accumulator *empty = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){.rank = 0});
    mu_coordinator *c = mu_coordinator_new(on_workers(1, 1, NULL), .ignore_transient_timeouts = 3);
    mu_worker_calls calls = {0};
    mu_schedule(c, mu_function_new(take_soon, empty));
    CHECK(mu_join(c) == MU_DEADLINE_EXCEEDED);
    EXPECT_ERROR(MU_DEADLINE_EXCEEDED);
    CHECK(mu_coordinator_worker_calls(c, 0, &calls) == MU_OK && calls.retried == 2 && calls.failed == 1);
}

// ---- 3 Remote calls -----------------------------------------------------------------------------

static mu_value *half(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    if (mu_scalar(x) >= 0)
        return mu_of(mu_multiply(x, scalar(0.5)));
    mu_fail(MU_OUT_OF_RANGE, "below zero");
    return NULL;
}

static mu_value *count_up(mu_value *arguments, void *arg)
{
    (void)arguments;
    ++*(atomic_int *)arg;
    return NULL;
}

static mu_value *sleep_long(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    usleep(300000);
    return NULL;
}

static void results_of_calls(void)
{
    static atomic_int counted;
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    counted = 0;
    mu_rpc_server_register(server, "half", .fn = half);
    mu_rpc_server_register(server, "count", .fn = count_up, .arg = &counted);
    mu_rpc_server_register(server, "sleep", .fn = sleep_long);
    CHECK(mu_rpc_server_start(server) == MU_OK);
    const char *address = mu_rpc_server_address(server);
    mu_rpc_client *client = mu_rpc_client_new("muster", address, .timeout_in_ms = 60000);
    mu_rpc_result *good = mu_rpc_call(client, "half", mu_list(scalar(8), MU_END));
    mu_rpc_result *bad = mu_rpc_call(client, "half", mu_list(scalar(-8), MU_END));
    for (int times = 0; times < 2; times++) { // each may be asked often
        CHECK(mu_rpc_result_is_ok(good) && mu_rpc_result_error(good).code == MU_OK && !mu_rpc_result_is_ok(bad));
        EXPECT(mu_rpc_result_value(good), 4);
        CHECK(mu_rpc_result_error(bad).code == MU_OUT_OF_RANGE && mu_error_code() == MU_OK);
        CHECK(!mu_rpc_result_value(bad));
        EXPECT_ERROR(MU_OUT_OF_RANGE);
    }
    // A limit of the call's own, shorter and longer than the client's.
    CHECK(mu_rpc_result_error(mu_rpc_call(client, "sleep", .timeout_in_ms = 20)).code == MU_DEADLINE_EXCEEDED);
    mu_rpc_client *hasty = mu_rpc_client_new("muster", address, .timeout_in_ms = 20);
    CHECK(mu_rpc_result_error(mu_rpc_call(hasty, "sleep")).code == MU_DEADLINE_EXCEEDED);
    CHECK(mu_rpc_result_is_ok(mu_rpc_call(hasty, "sleep", .timeout_in_ms = 60000)));
    // The calls of results that nobody keeps are made all the same.
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < 10; i++)
        mu_rpc_call(client, "count");
    mu_pool_close(pool);
    for (int i = 0; i < 6000 && counted < 10; i++)
        usleep(10000);
    CHECK(counted == 10);
}

const one_case rule_server_cases[] = {
    {"rule_ps_1_1_clusters", clusters, NULL},
    {"rule_ps_1_2_placement", placement, NULL},
    {"rule_ps_1_5_parts", parts_of_a_whole, NULL},
    {"rule_ps_1_6_reductions", reductions, NULL},
    {"rule_ps_1_6_cached_reads", cached_reads, NULL},
    {"rule_ps_2_2_arguments", arguments_and_results, NULL},
    {"rule_ps_2_2_datasets", datasets, NULL},
    {"rule_ps_2_3_resources", resources_outlive_errors, NULL},
    {"rule_ps_2_3_joins", a_join_keeps_schedules_out, NULL},
    {"rule_ps_2_4_timeouts", timeouts, NULL},
    {"rule_ps_2_4_timeouts_of_calls", timeouts_of_calls, NULL},
    {"rule_ps_3_results", results_of_calls, NULL},
    {0},
};
