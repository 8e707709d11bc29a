// tpu_hosts PART [FILE]: one host of a TPU with two, by joined_plugin (tests/pjrt) under the name "tpu", or by the
// native engine's CPU devices ("dies", "differs", "alone"). `muster launch` tells the addresses. PART:
// trains: topology, values, and a model that learns what one process with as many mirrored replicas does; its
//         checkpoint goes to that and back through FILE. Then the last host ends, and the other one's step names it.
// divided: replicas of two cores each, two on a host, whose work is divided among the cores.
// dies: the last host ends before its cores start.
// unknown: the last host cannot find out where the TPU's hosts are, since its metadata server does not answer.
// broken: the last host's plugin is missing.
// differs: the hosts have different numbers of cores.
// alone: one host alone has ended or started its cores again, or has another device assignment; and other clusters.
#include <muster.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS = 2, EACH = 2, CORES = HOSTS * EACH, ROWS = 50, BATCH = 20, EPOCHS = 3, MOST_WEIGHTS = 400 };

static int host;

static void need(bool holds, const char *what)
{
    if (holds && !mu_error_code())
        return;
    fprintf(stderr, "tpu_hosts: host %d: %s; error: %s\n", host, what, mu_error_message());
    _exit(1);
}

// What a machine of a TPU has in its environment, made of what muster launch says.
static mu_cluster *find_tpu(void)
{
    mu_cluster *launched = mu_cluster_from_environment();
    mu_cluster_spec *spec = mu_cluster_get_spec(launched);
    char hosts[300], id[12];
    host = mu_cluster_worker_index(launched);
    need(mu_cluster_worker_count(launched) == HOSTS, "start 2 processes");
    snprintf(hosts, sizeof hosts, "%s,%s", mu_cluster_spec_task_address(spec, "worker", 0),
             mu_cluster_spec_task_address(spec, "worker", 1));
    snprintf(id, sizeof id, "%d", host);
    setenv("TPU_NAME", "pair", 1);
    setenv("TPU_WORKER_HOSTNAMES", hosts, 1);
    setenv("TPU_WORKER_ID", id, 1);
    return mu_tpu_cluster_resolver("pair");
}

// The operation that must be refused is `failed`, and this error must be pending.
static void expect(bool failed, mu_status code, const char *text)
{
    const mu_error error = mu_error_take();
    if (failed && error.code == code && strstr(error.message, text))
        return;
    fprintf(stderr, "tpu_hosts: host %d: error %d \"%s\"; expected %d with \"%s\"\n", host, (int)error.code,
            error.message, (int)code, text);
    _exit(1);
}

// ---- Topology and assignments -------------------------------------------------------------------

static mu_strategy *start(mu_cluster *tpu, mu_tpu_topology **topology)
{
    char name[60];
    expect(mu_tpu_initialize(tpu) == NULL, MU_FAILED_PRECONDITION, "mu_connect_to_cluster");
    need(mu_connect_to_cluster(tpu) == MU_OK, "cannot connect");
    need((*topology = mu_tpu_initialize(tpu)) != NULL, "cannot initialise");
    mu_strategy *strategy = mu_tpu_strategy(tpu);
    need(strategy != NULL, "there is no strategy");
    need(mu_num_replicas_in_sync(strategy) == CORES && mu_strategy_device_count(strategy) == EACH, "wrong replicas");
    snprintf(name, sizeof name, "/job:worker/task:%d/device:TPU:1", host);
    need(strcmp(mu_strategy_device(strategy, 1), name) == 0, "a device has another name");
    need(mu_strategy_worker_count(strategy) == HOSTS && mu_strategy_worker_index(strategy) == host, "wrong worker");
    need(strcmp(mu_strategy_name(strategy), "TPUStrategy") == 0 && mu_strategy_require_static_shapes(strategy) &&
             !mu_strategy_between_graph(strategy),
         "wrong properties");
    need(mu_cluster_num_accelerators(mu_strategy_cluster_resolver(strategy), "TPU") == EACH, "wrong accelerators");
    return strategy;
}

// The second host's chip is beside the first one's along y.
static void check_assignments(mu_cluster *tpu, mu_tpu_topology *topology)
{
    const int other[] = {0, 1, 0, 1};
    need(mu_tpu_topology_task(topology, other) == 1 && mu_tpu_topology_device(topology, other) == 1, "wrong places");
    const int turned[] = {0, 1, 0, 0, 0, 0, 0, 1};
    mu_strategy *two = mu_tpu_strategy(tpu, .device_assignment = mu_tpu_device_assignment_new(topology, 2, 1, turned));
    need(two != NULL && mu_num_replicas_in_sync(two) == 2, "no strategy of one core per host");
    need(strstr(mu_strategy_device(two, 0), host == 0 ? "task:0/device:TPU:1" : "task:1/device:TPU:0") != NULL,
         "a replica is on another core");
    mu_tpu_device_assignment *across = mu_tpu_device_assignment_new(topology, 1, 2, turned);
    expect(mu_tpu_strategy(tpu, .device_assignment = across) == NULL, MU_INVALID_ARGUMENT, "2 hosts");
    const int lone[] = {0, 0, 0, 0, 0, 0, 0, 1};
    mu_tpu_device_assignment *one_host = mu_tpu_device_assignment_new(topology, 2, 1, lone);
    expect(mu_tpu_strategy(tpu, .device_assignment = one_host) == NULL, MU_INVALID_ARGUMENT, "task 0");
    mu_strategy *alone = mu_tpu_strategy(mu_tpu_cluster_resolver(.tpu = "local"));
    need(alone != NULL && mu_num_replicas_in_sync(alone) == EACH, "a host cannot use its own cores alone");
}

// ---- Values -------------------------------------------------------------------------------------

static mu_value *id_and_half(const mu_value_context *context, void *arg)
{
    (void)arg;
    const double values[] = {context->replica_id, context->replica_id + .5};
    return mu_of(mu_tensor_new(MU_F64, 1, (const int64_t[]){2}, values));
}

static mu_value *add_id(mu_value *arguments, void *arg)
{
    mu_tensor *mine = mu_add(mu_value_tensor(arguments), mu_cast(mu_replica_id(), MU_F64));
    mu_variable_assign_add(arg, mine);
    return mu_of(mine);
}

static void check_values(mu_strategy *strategy)
{
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(mu_constant(MU_F64, 1), "v", .aggregation = MU_AGGREGATION_SUM);
    mu_tensor *rows =
        mu_value_tensor(mu_strategy_gather(strategy, mu_distribute_values(strategy, id_and_half, NULL), 0));
    need(rows != NULL && mu_tensor_dim(rows, 0) == 2 * CORES, "cannot gather");
    const double *row = mu_tensor_data(rows);
    for (int i = 0; i < 2 * CORES; i++)
        need(row[i] == i / 2 + i % 2 * .5, "a gathered value is wrong");
    mu_value *out = mu_run(strategy, mu_function_new(add_id, v), mu_of(mu_constant(MU_F64, 2)));
    need(out != NULL, "cannot run");
    const double sum = 2 * CORES + CORES * (CORES - 1) / 2.0;
    need(mu_scalar(mu_value_tensor(mu_reduce(strategy, MU_SUM, out))) == sum, "a sum is wrong");
    need(mu_scalar(mu_variable_read(v)) == 1 + sum, "a variable is wrong");
    expect(mu_run_callback(strategy, add_id, v, mu_of(mu_constant(MU_F64, 2))) == NULL, MU_UNIMPLEMENTED, "compiled");
}

// The replicas of each host begin with its last core.
static void check_turned_cores(mu_cluster *tpu, mu_tpu_topology *topology)
{
    int places[CORES * MU_TPU_RANK] = {0};
    for (int i = 0; i < CORES; i++) {
        places[i * MU_TPU_RANK + 1] = i / EACH;
        places[i * MU_TPU_RANK + MU_TPU_RANK - 1] = EACH - 1 - i % EACH;
    }
    mu_strategy *strategy =
        mu_tpu_strategy(tpu, .device_assignment = mu_tpu_device_assignment_new(topology, CORES, 1, places));
    need(strategy != NULL && strstr(mu_strategy_device(strategy, 0), "device:TPU:1") != NULL, "cores are not turned");
    check_values(strategy);
}

static mu_value *sum_of_all(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_reduce_sum(mu_value_tensor(arguments), MU_ALL_AXES)));
}

static mu_value *run_equal(mu_strategy *strategy, mu_function *function, int64_t first, int64_t second)
{
    mu_value *parts[EACH] = {mu_of(mu_fill(MU_F64, 1, &first, 1)), mu_of(mu_fill(MU_F64, 1, &second, 1))};
    return mu_run_with_options(strategy, function, mu_per_replica_of(strategy, EACH, parts),
                               MU_RUN_OPTIONS(.enable_dynamic_batch_size = false));
}

// Parts that differ on the last host, or between the hosts, are an error on both, also in the first run of a function.
static void refuse_unequal_parts(mu_strategy *strategy)
{
    const bool last = host == HOSTS - 1;
    mu_function *function = mu_function_new(sum_of_all, NULL);
    expect(run_equal(strategy, function, 2, last ? 3 : 2) == NULL, MU_INVALID_ARGUMENT,
           last ? "on replica 0 and [3] on replica 1" : "/job:worker/task:1 cannot take part");
    expect(run_equal(strategy, function, 2 + last, 2 + last) == NULL, MU_INVALID_ARGUMENT,
           "differ in shape between /job:worker/task:1");
    mu_value *sums = run_equal(strategy, function, 2, 2);
    need(sums && mu_scalar(mu_value_tensor(mu_value_at(sums, 0))) == 2 * CORES, "a sum of equal parts is wrong");
}

// ---- Training -----------------------------------------------------------------------------------

static mu_model *make_model(mu_strategy *strategy)
{
    mu_model *model = NULL;
    mu_set_seed(1);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(6, .activation = "tanh"), mu_dense(2));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .05, .momentum = .9), .loss = "mse");
    }
    return model;
}

static void train(mu_model *model, int epochs)
{
    double x[ROWS * 3], y[ROWS * 2];
    for (int i = 0; i < ROWS * 3; i++)
        x[i] = sin(1.7 * i);
    for (int i = 0; i < ROWS * 2; i++)
        y[i] = cos(.9 * i);
    mu_tensor *inputs = mu_cast(mu_tensor_new(MU_F64, 2, (const int64_t[]){ROWS, 3}, x), MU_F32);
    mu_tensor *labels = mu_cast(mu_tensor_new(MU_F64, 2, (const int64_t[]){ROWS, 2}, y), MU_F32);
    need(mu_fit(model, inputs, labels, .batch_size = BATCH, .epochs = epochs, .no_shuffle = true,
                .verbose = MU_VERBOSE_SILENT) != NULL,
         "cannot train");
}

static int weights_of(mu_model *model, double *weights)
{
    mu_value *values = mu_model_weights(model);
    int n = 0;
    for (int i = 0; i < mu_value_count(values); i++) {
        mu_tensor *value = mu_cast(mu_variable_read(mu_value_variable(mu_value_at(values, i))), MU_F64);
        for (int64_t k = 0; k < mu_tensor_elements(value) && n < MOST_WEIGHTS; k++)
            weights[n++] = ((const double *)mu_tensor_data(value))[k];
    }
    return n;
}

static void compare(mu_model *model, mu_model *wanted, double tolerance, const char *what)
{
    double a[MOST_WEIGHTS], b[MOST_WEIGHTS];
    const int n = weights_of(model, a);
    need(n > 0 && n == weights_of(wanted, b), "other weights");
    for (int i = 0; i < n; i++)
        need(fabs(a[i] - b[i]) <= tolerance * (1 + fabs(b[i])), what);
}

static void restore(mu_model *model, const char *path)
{
    need(mu_checkpoint_restore(mu_checkpoint_new(.model = model), path) == MU_OK, "cannot restore");
}

static void check_training(mu_strategy *strategy, const char *path)
{
    static const char *const devices[] = {"CPU:0", "CPU:1", "CPU:2", "CPU:3", NULL};
    char back[300];
    mu_strategy *mirrored = mu_mirrored_strategy(.devices = devices);
    mu_model *model = make_model(strategy);
    train(model, EPOCHS);
    mu_model *wanted = make_model(mirrored);
    train(wanted, EPOCHS);
    compare(model, wanted, 1e-5, "the weights are not those of mirrored replicas");
    need(mu_checkpoint_save(mu_checkpoint_new(.model = model), path) == MU_OK, "cannot save");
    restore(wanted, path);
    compare(wanted, model, 0, "a checkpoint has other weights");
    train(model, 1);
    train(wanted, 1);
    compare(model, wanted, 1e-5, "the optimizer's slots are not those of the checkpoint");
    snprintf(back, sizeof back, "%s.%d", path, host);
    need(mu_checkpoint_save(mu_checkpoint_new(.model = wanted), back) == MU_OK, "cannot save");
    restore(model, back);
    compare(model, wanted, 0, "a checkpoint of mirrored replicas has other weights");
    remove(back);
}

// ---- Logical devices ----------------------------------------------------------------------------

enum { PAIR_ROWS = 4, PAIR_WIDTH = 6 };

// The product of a matrix of the replica with itself, turned, in pieces of columns; summed over all replicas.
static mu_value *product_of_all(mu_value *arguments, void *arg)
{
    mu_strategy *strategy = arg;
    mu_tensor *x = mu_add(mu_value_tensor(arguments), mu_cast(mu_replica_id(), MU_F32));
    x = mu_split_to_logical_devices(strategy, x, 2, (const int[]){1, 2});
    mu_tensor *product = mu_matmul_transposed(x, x, false, true);
    return mu_of(mu_all_reduce(MU_SUM, mu_replicate_to_logical_devices(strategy, product)));
}

static void divided(mu_cluster *tpu)
{
    need(mu_connect_to_cluster(tpu) == MU_OK, "cannot connect");
    mu_tpu_topology *topology = mu_tpu_initialize(tpu);
    need(topology != NULL, "cannot initialise");
    mu_tpu_device_assignment *pairs =
        mu_tpu_device_assignment_build(topology, .computation_shape = {1, 1, 1, 2}, .num_replicas = 2 * HOSTS);
    mu_strategy *strategy = mu_tpu_strategy(tpu, .device_assignment = pairs);
    need(strategy != NULL && mu_num_replicas_in_sync(strategy) == 2 * HOSTS, "no strategy of pairs of cores");
    float x[PAIR_ROWS * PAIR_WIDTH];
    for (int i = 0; i < PAIR_ROWS * PAIR_WIDTH; i++)
        x[i] = (float)i / 8;
    mu_tensor *given = mu_tensor_new(MU_F32, 2, (const int64_t[]){PAIR_ROWS, PAIR_WIDTH}, x);
    mu_function *function = mu_function_new(product_of_all, strategy);
    mu_value *results = mu_local_results(strategy, mu_run(strategy, function, mu_of(given)));
    need(mu_value_count(results) == 2, "a host has other results");
    for (int k = 0; k < 2; k++) {
        const float *seen = mu_tensor_data(mu_value_tensor(mu_value_at(results, k)));
        for (int i = 0; i < PAIR_ROWS * PAIR_ROWS; i++) {
            const float *left = x + i / PAIR_ROWS * PAIR_WIDTH, *right = x + i % PAIR_ROWS * PAIR_WIDTH;
            float sum = 0;
            for (int r = 0; r < 2 * HOSTS; r++)
                for (int c = 0; c < PAIR_WIDTH; c++)
                    sum += (left[c] + (float)r) * (right[c] + (float)r);
            need(seen && seen[i] == sum, "a product is wrong"); // of numbers without rounding
        }
    }
}

// ---- Parts --------------------------------------------------------------------------------------

static void trains(mu_cluster *tpu, const char *path)
{
    mu_tpu_topology *topology;
    mu_strategy *strategy = start(tpu, &topology);
    check_values(strategy);
    refuse_unequal_parts(strategy);
    check_training(strategy, path);
    check_assignments(tpu, topology);
    check_turned_cores(tpu, topology);
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(mu_constant(MU_F64, 1), "last", .aggregation = MU_AGGREGATION_SUM);
    if (host == HOSTS - 1)
        _exit(0);
    mu_value *out = mu_run(strategy, mu_function_new(add_id, v), mu_of(mu_constant(MU_F64, 2)));
    expect(!out || !mu_variable_read(v), MU_UNAVAILABLE, "/job:worker/task:1"); // a queued run shows its error later
    remove(path);
}

// The last host may end before the other one has received all messages of joining.
static void dies(mu_cluster *tpu)
{
    const bool connected = mu_connect_to_cluster(tpu) == MU_OK;
    if (host == HOSTS - 1)
        _exit(connected ? 0 : 1);
    expect(!connected || mu_tpu_initialize(tpu) == NULL, MU_UNAVAILABLE, "/job:worker/task:1");
}

// That host cannot tell the other one, which learns from its deadline which host is missing.
static void unknown(mu_cluster *tpu)
{
    if (host == HOSTS - 1) {
        setenv("TPU_NAME", "another", 1);
        setenv("GCE_METADATA_HOST", "127.0.0.1:1", 1);
        expect(mu_connect_to_cluster(mu_tpu_cluster_resolver("pair")) != MU_OK, MU_UNAVAILABLE, "metadata server");
        _exit(0);
    }
    expect(mu_connect_to_cluster(tpu) != MU_OK, MU_DEADLINE_EXCEEDED, "/job:worker/task:1");
}

static void broken(mu_cluster *tpu)
{
    need(mu_connect_to_cluster(tpu) == MU_OK, "cannot connect");
    if (host == HOSTS - 1)
        expect(mu_tpu_initialize(tpu) == NULL, MU_NOT_FOUND, "/nowhere/plugin.so");
    else
        expect(mu_tpu_initialize(tpu) == NULL, MU_NOT_FOUND, "/job:worker/task:1");
}

static void differs(mu_cluster *tpu)
{
    need(mu_connect_to_cluster(tpu) == MU_OK, "cannot connect");
    expect(mu_tpu_initialize(tpu) == NULL, MU_FAILED_PRECONDITION,
           "/job:worker/task:0 has 4 cores (CPU devices), /job:worker/task:1 has 5");
    expect(mu_tpu_strategy(tpu) == NULL, MU_FAILED_PRECONDITION, "not that of the 2 hosts");
    need(mu_tpu_initialize(mu_tpu_cluster_resolver("")) != NULL, "a host cannot start its own cores alone");
    expect(mu_tpu_strategy(tpu) == NULL, MU_FAILED_PRECONDITION, "not that of the 2 hosts");
}

// A cluster other than the one that this process has joined, whichever function it is given to.
static void refuse_other_cluster(void)
{
    mu_cluster *other = mu_tpu_cluster_resolver("198.51.100.2:8470,198.51.100.3:8470");
    expect(mu_connect_to_cluster(other) != MU_OK, MU_FAILED_PRECONDITION, "mu_connect_to_cluster: this process is");
    expect(mu_tpu_initialize(other) == NULL, MU_FAILED_PRECONDITION, "mu_tpu_initialize: this process is");
    expect(mu_tpu_strategy(other) == NULL, MU_FAILED_PRECONDITION, "mu_tpu_strategy: this process is");
}

// All hosts fail with the error of the host that cannot take part, and the job continues.
static void alone(mu_cluster *tpu)
{
    const bool last = host == HOSTS - 1;
    need(mu_connect_to_cluster(tpu) == MU_OK, "cannot connect");
    refuse_other_cluster();
    need(mu_tpu_initialize(tpu) != NULL, "cannot initialise");
    need(!last || mu_tpu_shutdown(mu_tpu_cluster_resolver("")) == MU_OK, "cannot shut down");
    expect(mu_tpu_strategy(tpu) == NULL, MU_FAILED_PRECONDITION,
           last ? "mu_tpu_strategy: the TPU system is not initialised" : "/job:worker/task:1 cannot make its part");
    need(!last || mu_tpu_initialize(mu_tpu_cluster_resolver("")) != NULL, "cannot initialise its own cores");
    expect(mu_tpu_strategy(tpu) == NULL, MU_FAILED_PRECONDITION,
           last ? "mu_tpu_strategy: the TPU system is not that of the 2 hosts"
                : "/job:worker/task:1 cannot make its part");
    mu_tpu_topology *topology = mu_tpu_initialize(tpu);
    need(topology != NULL, "cannot initialise again");
    mu_tpu_device_assignment *assignment = mu_tpu_device_assignment_build(
        topology, .computation_shape = {1, 1, 1, last ? 2 : 1}, .num_replicas = last ? CORES : HOSTS * CORES);
    expect(mu_tpu_strategy(tpu, .device_assignment = assignment) == NULL, MU_FAILED_PRECONDITION,
           "give all the same .device_assignment");
    mu_strategy *strategy = mu_tpu_strategy(tpu);
    need(strategy != NULL && mu_num_replicas_in_sync(strategy) == HOSTS * CORES, "there is no strategy");
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "", *config = getenv("TF_CONFIG");
    const bool second = config && (strstr(config, "\"index\": 1") || strstr(config, "\"index\":1"));
    if (getenv("PJRT_NAMES_AND_LIBRARY_PATHS") && access(MU_TEST_PLUGIN, R_OK) != 0) {
        printf("SKIPPED: %s is missing (pjrt/fetch makes it)\n", MU_TEST_PLUGIN);
        return 0;
    }
    if (second && strcmp(part, "broken") == 0)
        setenv("MUSTER_PJRT", "/nowhere/plugin.so", 1);
    mu_init(.cpu_devices = CORES + (second && strcmp(part, "differs") == 0));
    mu_cluster *tpu = find_tpu();
    if (strcmp(part, "trains") == 0)
        trains(tpu, argc > 2 ? argv[2] : "tpu_hosts.safetensors");
    else if (strcmp(part, "divided") == 0)
        divided(tpu);
    else if (strcmp(part, "dies") == 0)
        dies(tpu);
    else if (strcmp(part, "unknown") == 0)
        unknown(tpu);
    else if (strcmp(part, "broken") == 0)
        broken(tpu);
    else if (strcmp(part, "differs") == 0)
        differs(tpu);
    else
        alone(tpu);
    return mu_exit(true);
}
