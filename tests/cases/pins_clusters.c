// What TensorFlow's tests of cluster resolvers, remote calls, TPUs and data of workers pin and no numbered case has.
#include "cases.h"

#include <muster/coordinator.h>
#include <muster/tpu_strategy.h>
#include <stdlib.h>

#define CHECK_TEXT(text, wanted)                                                                                  \
    do {                                                                                                          \
        const char *seen_ = text;                                                                                 \
        if (!seen_ || strcmp(seen_, wanted) != 0)                                                                 \
            fail_case(__LINE__, "'%s', expected '%s': %s", seen_ ? seen_ : "(null)", wanted, mu_error_message()); \
    } while (0)

// ---- Resolvers ----------------------------------------------------------------------------------

#define TWO "{\"cluster\": {\"worker\": [\"w0:1\", \"w1:1\"], \"ps\": [\"p0:1\", \"p1:1\"]}, \"task\": "

static mu_cluster *workers_of(const char *json) { return mu_simple_cluster_resolver(mu_cluster_spec_parse(json)); }

// testTaskIndexOverride: what is given overrides, each by itself.
static void task_overrides(void)
{
    setenv("TF_CONFIG", TWO "{\"type\": \"worker\", \"index\": \"0\"}}", 1);
    mu_cluster *c = mu_tf_config_cluster_resolver(.task_id = 1);
    CHECK(mu_cluster_task_id(c) == 1);
    CHECK_TEXT(mu_cluster_task_type(c), "worker");
    CHECK_TEXT(mu_cluster_master(c), "w1:1");
    setenv("TF_CONFIG", TWO "{\"type\": \"worker\", \"index\": 1}}", 1);
    c = mu_tf_config_cluster_resolver(.task_id = 0);
    CHECK_TEXT(mu_cluster_master(c), "w0:1");
    c = mu_tf_config_cluster_resolver(.task_type = "ps");
    CHECK_TEXT(mu_cluster_master(c), "p1:1");
    mu_cluster *both = mu_union_cluster_resolver(MU_CLUSTERS(mu_tf_config_cluster_resolver()), .task_id = 0);
    CHECK_TEXT(mu_cluster_task_type(both), "worker");
    CHECK(mu_cluster_task_id(both) == 0);
    both = mu_union_cluster_resolver(MU_CLUSTERS(mu_tf_config_cluster_resolver()), .task_type = "ps");
    CHECK_TEXT(mu_cluster_task_type(both), "ps");
    CHECK(mu_cluster_task_id(both) == 1);
    CHECK(!mu_tf_config_cluster_resolver(.task_id = -1));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    unsetenv("TF_CONFIG");
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"w0:1\", \"w1:1\"]}");
    CHECK(mu_cluster_task_id(mu_simple_cluster_resolver(spec, .task_id = 1)) == 1);
    CHECK(mu_cluster_task_id(mu_simple_cluster_resolver(spec, .task_type = "worker")) == 0);
    CHECK(mu_cluster_task_id(mu_simple_cluster_resolver(spec)) == -1);
}

// A type that is a number, an index that is a text.
static void numbers_as_texts(void)
{
    setenv("TF_CONFIG",
           "{\"cluster\": {\"123456\": [\"p0:1\", \"p1:1\"], \"worker\": [\"w0:1\"]}, \"rpc_layer\": \"grpc\", "
           "\"task\": {\"type\": 123456, \"index\": \"1\"}}",
           1);
    mu_cluster *c = mu_tf_config_cluster_resolver();
    CHECK_TEXT(mu_cluster_task_type(c), "123456");
    CHECK_TEXT(mu_cluster_master(c), "grpc://p1:1");
    unsetenv("TF_CONFIG");
    CHECK_TEXT(mu_cluster_master(mu_tf_config_cluster_resolver()), "");
}

static void unions_of_the_same(void)
{
    static const char *const pairs[][2] = {
        {"{\"worker\": {\"7\": \"a:1\", \"9\": \"b:1\"}}", "{\"worker\": {\"7\": \"c:1\"}}"},
        {"{\"worker\": [\"a:1\", \"b:1\"]}", "{\"worker\": {\"1\": \"c:1\"}}"}};
    for (int i = 0; i < 2; i++) {
        mu_cluster *both = mu_union_cluster_resolver(MU_CLUSTERS(workers_of(pairs[i][0]), workers_of(pairs[i][1])));
        CHECK(!mu_cluster_get_spec(both));
        EXPECT_ERROR(MU_ALREADY_EXISTS);
    }
    mu_cluster *both = mu_union_cluster_resolver(
        MU_CLUSTERS(workers_of("{\"ps\": [\"p:1\"]}"), workers_of("{\"worker\": [\"w0:1\", \"w1:1\"]}")));
    CHECK_TEXT(mu_cluster_master(both), "");
    CHECK_TEXT(mu_cluster_master(both, "worker", 1), "w1:1");
    CHECK_TEXT(mu_cluster_master(both, "worker", 1, .rpc_layer = "grpc"), "grpc://w1:1");
}

static void tpu_addresses(void)
{
    mu_cluster *c = mu_tpu_cluster_resolver("grpc://10.1.2.3:8470", .coordinator_name = "coordinator",
                                            .coordinator_address = "10.1.2.5:10203");
    CHECK_TEXT(mu_cluster_spec_json(mu_cluster_get_spec(c)),
               "{\"coordinator\": [\"10.1.2.5:10203\"], \"worker\": [\"10.1.2.3:8470\"]}");
    CHECK_TEXT(mu_cluster_master(c), "grpc://10.1.2.3:8470");
    setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.1.2.5:8470,grpc://10.1.2.6:8470", 1);
    c = mu_tpu_cluster_resolver();
    CHECK_TEXT(mu_cluster_spec_json(mu_cluster_get_spec(c)), "{\"worker\": [\"10.1.2.5:8470\", \"10.1.2.6:8470\"]}");
    CHECK_TEXT(mu_cluster_master(c), "grpc://10.1.2.5:8470");
    CHECK(mu_cluster_set_task_type(c, "worker") == MU_OK && mu_cluster_set_task_id(c, 1) == MU_OK);
    CHECK_TEXT(mu_cluster_master(c), "grpc://10.1.2.6:8470");
    unsetenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS");
}

// testMultiTaskPerNodeRetrieval with no GPU visible before, testSimpleRetrievalFromEnv, testSimpleMasterRetrieval.
static void slurm_environment(void)
{
    static const mu_job_size five[] = {{"ps", 1}, {"worker", 4}, {NULL, 0}},
                             three[] = {{"ps", 1}, {"worker", 2}, {NULL, 0}};
    static const char *const names[] = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",
                                        "SLURM_STEP_TASKS_PER_NODE", "CUDA_VISIBLE_DEVICES"};
    static const char *const steps[][5] = {{"1", "5", "t02n13,t02n41,t02n43", "2(x2),1", ""},
                                           {"0", "3", "t02n13,t02n41,t02n43", "1(x3)", "0"}};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 5; k++)
            setenv(names[k], steps[i][k], 1);
        mu_cluster *c = i ? mu_slurm_cluster_resolver()
                          : mu_slurm_cluster_resolver(.jobs = five, .gpus_per_node = 4, .gpus_per_task = 2);
        CHECK(mu_cluster_num_accelerators(c, "GPU") == (i ? 1 : 2));
        CHECK_TEXT(mu_cluster_spec_json(mu_cluster_get_spec(c)),
                   i ? "{\"worker\": [\"t02n13:8888\", \"t02n41:8888\", \"t02n43:8888\"]}"
                     : "{\"ps\": [\"t02n13:8888\"], \"worker\": [\"t02n13:8889\", \"t02n41:8888\", \"t02n41:8889\", "
                       "\"t02n43:8888\"]}");
        CHECK_TEXT(getenv("CUDA_VISIBLE_DEVICES"), i ? "0" : "2,3");
    }
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    mu_cluster *c = mu_slurm_cluster_resolver(.jobs = three, .tasks_per_node = 1, .gpus_per_node = 1,
                                              .gpus_per_task = 1, .no_auto_set_gpu = true);
    CHECK(mu_cluster_set_task_type(c, "worker") == MU_OK && mu_cluster_set_task_id(c, 1) == MU_OK);
    CHECK_TEXT(mu_cluster_master(c), "grpc://t02n43:8888");
    CHECK(mu_cluster_set_rpc_layer(c, "ab") == MU_OK);
    CHECK_TEXT(mu_cluster_master(c, "ps", 0), "ab://t02n13:8888");
    CHECK_TEXT(mu_cluster_master(c, "ps", 0, .rpc_layer = "test"), "test://t02n13:8888");
    for (int k = 0; k < 5; k++)
        unsetenv(names[k]);
}

// ---- Remote calls -------------------------------------------------------------------------------

static mu_value *add(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_at(arguments, 0), mu_at(arguments, 1)));
}

static mu_value *add_named(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *map = mu_value_at(arguments, 0);
    return mu_of(mu_add(mu_value_tensor(mu_value_get(map, "a")), mu_value_tensor(mu_value_get(map, "b"))));
}

static mu_value *whole(int value) { return mu_of(mu_constant(MU_I32, value)); }

// Variables are sent as what they hold, at any place, in every test of remote calls.
static void arguments_of_calls(void)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "add", .function = mu_function_new(add, NULL),
                           .input_signature = "(int32[], int32[])");
    mu_rpc_server_register(server, "named", .fn = add_named, .input_signature = "({a: int32[], b: int32[]})");
    CHECK(mu_rpc_server_start(server) == MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server), .timeout_in_ms = 60000);
    mu_variable *a = mu_variable_new(mu_constant(MU_I32, 2), "a"), *b = mu_variable_new(mu_constant(MU_I32, 3), "b");
    mu_value *both = mu_variables(a, b, MU_END);
    mu_rpc_result *result = mu_rpc_call(client, "add", both);
    CHECK(mu_variable_assign(a, mu_constant(MU_I32, 100)) == MU_OK);
    EXPECT(mu_rpc_result_value(result), 5);
    EXPECT(mu_rpc_result_value(mu_rpc_call(client, "add", mu_list(mu_value_at(both, 0), whole(1), MU_END))), 101);
    mu_value *map = mu_map("a", mu_value_at(both, 1), "b", whole(4), MU_END);
    EXPECT(mu_rpc_result_value(mu_rpc_call(client, "named", mu_list(map, MU_END))), 7);
    result = mu_rpc_call(client, "named", mu_list(both, MU_END));
    CHECK(mu_rpc_result_error(result).code == MU_INVALID_ARGUMENT);
    result = mu_rpc_call(client, "add", mu_variables(a, MU_END));
    CHECK(mu_rpc_result_error(result).code == MU_INVALID_ARGUMENT);
}

// ---- TPUs ---------------------------------------------------------------------------------------

static mu_value *one_more(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_add(mu_variable_read(arg), scalar(1)));
}

static mu_value *count_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign_add(arg, scalar(1)) == MU_OK ? mu_list(MU_END) : NULL;
}

static mu_value *next_number(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_value_tensor(arguments), scalar(1)));
}

static mu_value *keep_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign(arg, mu_add(id(), mu_variable_read(arg))) == MU_OK ? read_of(arg) : NULL;
}

static mu_value *sum_and_own(mu_value *arguments, void *arg)
{
    mu_value *leaf = mu_value_at(mu_variables((mu_variable *)arg, MU_END), 0);
    return mu_of(mu_add(mu_value_tensor(mu_all_reduce_value(MU_SUM, leaf)), mu_at(arguments, 0)));
}

// test_computation_on_subset_cores, test_control_output_in_while_body_fn, test_all_reduce_on_sync_on_read_variable.
static void tpu_steps(void)
{
    const int second[] = {0, 0, 0, 1};
    mu_tpu_topology *topology = mu_tpu_initialize(NULL);
    mu_strategy *all = mu_tpu_strategy();
    mu_strategy *parts[] = {mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_build(topology)),
                            mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_new(topology, 1, 1, second))};
    const int n = mu_num_replicas_in_sync(all);
    mu_variable *v = on_write(all, 0, MU_AGGREGATION_MEAN);
    mu_function *f = mu_function_new(one_more, v), *count = mu_function_new(count_one, v);
    CHECK(mu_run(all, f, NULL));
    for (int i = 0; i < 2; i++)
        EXPECT(mu_run(parts[i], mu_function_new(one_more, v), NULL), 1);
    for (int i = 0; i < 2; i++)
        CHECK(mu_run(all, count, NULL));
    EXPECT(read_of(v), 2);
    mu_function *next = mu_function_new(next_number, NULL);
    mu_value *number = mu_run(all, next, mu_of(scalar(0)));
    for (int i = 1; i < 10; i++)
        number = mu_run(all, next, number);
    EXPECT(mu_reduce(all, MU_SUM, number), 10 * n);
    mu_variable *w = on_read(all, 0, MU_AGGREGATION_ONLY_FIRST_REPLICA);
    mu_value *own = mu_run(all, mu_function_new(keep_id, w), NULL);
    mu_value *sums = mu_local_results(all, mu_run(all, mu_function_new(sum_and_own, w), mu_list(own, MU_END)));
    for (int i = 0; i < n; i++)
        EXPECT(mu_value_at(sums, i), i + n * (n - 1) / 2);
    EXPECT(read_of(w), 0);
    mu_tpu_shutdown(NULL);
}

// ---- Data of workers ----------------------------------------------------------------------------

static mu_dataset *shuffled(void *arg)
{
    (void)arg;
    return mu_dataset_repeat(mu_dataset_shuffle(mu_dataset_range(0, 100, 1), 100), -1);
}

static mu_value *own_index(void *arg)
{
    (void)arg;
    return mu_of(scalar(mu_get_current_worker_index()));
}

static mu_value *worker_and_element(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_at(arguments, 0), mu_cast(mu_at(arguments, 1), MU_F32), MU_END);
}

enum { FIRST = 8, WORKERS = 3 };

// The first elements that each worker reads; false if a worker had none to run in very many calls.
static bool read_first(mu_coordinator *c, mu_value *data, double first[WORKERS][FIRST])
{
    mu_value *index = mu_create_per_worker_values(c, own_index, NULL);
    mu_function *f = mu_function_new(worker_and_element, NULL);
    int n[WORKERS] = {0};
    for (int calls = 0; calls < 20000 && MU_MIN(n[0], MU_MIN(n[1], n[2])) < FIRST; calls++) {
        mu_value *out = mu_fetch(mu_schedule(c, f, mu_list(index, data, MU_END)));
        if (!out)
            return false;
        const int w = (int)mu_scalar(mu_at(out, 0));
        if (n[w] < FIRST)
            first[w][n[w]] = mu_scalar(mu_at(out, 1));
        n[w]++;
    }
    return MU_MIN(n[0], MU_MIN(n[1], n[2])) >= FIRST;
}

// testDatasetsShuffledDifferently: workers that share one data set read it in orders of their own.
static void shuffles_of_workers(void)
{
    mu_strategy *s = on_workers(WORKERS, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(s);
    for (int i = 0; i < 4; i++) {
        double first[WORKERS][FIRST] = {{0}};
        mu_value *data = i == 0   ? mu_create_per_worker_dataset(c, shuffled, NULL)
                         : i == 1 ? mu_create_per_worker_dataset(c, .dataset = mu_distribute_dataset(s, shuffled(NULL)))
                                  : mu_create_per_worker_dataset(c, .dataset = shuffled(NULL));
        CHECK(read_first(c, data, first));
        for (int w = 0; w < WORKERS; w++)
            CHECK(memcmp(first[w], first[(w + 1) % WORKERS], sizeof first[w]) != 0);
    }
    CHECK(mu_join(c) == MU_OK && mu_coordinator_new(s) == c);
}

// Iterators that are open at the same time have orders of their own, under every strategy.
static void shuffles_of_iterators(void)
{
    mu_strategy *all[] = {mu_default_strategy(), mirrored(2), mu_one_device_strategy("CPU:0")};
    for (int i = 0; i < 6; i++) {
        const bool fixed = i % 2;
        mu_dataset *data =
            mu_dataset_shuffle(mu_dataset_range(0, 100, 1), 100, .seed = 3, .no_reshuffle_each_iteration = fixed);
        mu_distributed_dataset *distributed = mu_distribute_dataset(all[i / 2], mu_dataset_batch(data, 50));
        mu_iterator *a = mu_iterate(distributed), *b = mu_iterate(distributed);
        mu_tensor *x = mu_value_tensor(mu_value_at(mu_local_results(all[i / 2], mu_next(a)), 0));
        mu_tensor *y = mu_value_tensor(mu_value_at(mu_local_results(all[i / 2], mu_next(b)), 0));
        const size_t bytes = sizeof(int64_t) * (size_t)mu_tensor_elements(x);
        CHECK(x && y && (memcmp(mu_tensor_data(x), mu_tensor_data(y), bytes) == 0) == fixed);
    }
}

const one_case pin_cluster_cases[] = {
    {"pin_task_overrides", task_overrides, NULL},
    {"pin_numbers_as_texts", numbers_as_texts, NULL},
    {"pin_unions_of_the_same", unions_of_the_same, NULL},
    {"pin_tpu_addresses", tpu_addresses, NULL},
    {"pin_slurm_environment", slurm_environment, NULL},
    {"pin_arguments_of_calls", arguments_of_calls, NULL},
    {"pin_tpu_steps", tpu_steps, NULL},
    {"pin_shuffles_of_workers", shuffles_of_workers, NULL},
    {"pin_shuffles_of_iterators", shuffles_of_iterators, NULL},
    {0},
};
