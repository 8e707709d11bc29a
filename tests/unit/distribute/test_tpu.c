// TPUStrategy on the CPU devices that stand for TPU cores: initialising the system, devices, functions, models,
// checkpoints.
#include "distribute_test.h"
#include "log_text.h"

#include <muster/checkpoint.h>
#include <muster/tpu_strategy.h>

static mu_strategy *all_cores(void)
{
    mu_tpu_initialize(NULL);
    mu_strategy *strategy = mu_tpu_strategy();
    if (!strategy)
        fail_msg("%s", mu_error_message());
    return strategy;
}

static void needs_an_initialised_system(void **state)
{
    (void)state;
    assert_null(mu_tpu_strategy());
    expect_error(MU_FAILED_PRECONDITION, "mu_tpu_initialize");
    assert_int_equal(mu_tpu_shutdown(NULL), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "not running");
    mu_set_device("TPU:0");
    expect_error(MU_INVALID_ARGUMENT, "TPU:0");
}

// With several workers it must be known which of them this process is, and the others must have joined first.
static void several_hosts_are_connected_first(void **state)
{
    (void)state;
    mu_cluster *tpu = mu_tpu_cluster_resolver("198.51.100.2:8470,198.51.100.3:8470");
    assert_int_equal(mu_connect_to_cluster(tpu), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "Set TPU_WORKER_ID there to its number, 0 to 1");
    setenv("TPU_WORKER_ID", "1", 1);
    assert_null(mu_tpu_initialize(tpu));
    expect_error(MU_FAILED_PRECONDITION, "call mu_connect_to_cluster(resolver) first");
    setenv("TPU_WORKER_ID", "0", 1);
    mu_cluster *lone = mu_tpu_cluster_resolver("198.51.100.2:8470");
    assert_int_equal(mu_connect_to_cluster(lone), MU_OK);
    assert_non_null(mu_tpu_initialize(lone));
    mu_strategy *strategy = mu_tpu_strategy(lone);
    assert_int_equal(mu_num_replicas_in_sync(strategy), DEVICES);
    assert_null(mu_tpu_strategy(tpu));
    expect_error(MU_FAILED_PRECONDITION, "mu_connect_to_cluster");
    unsetenv("TPU_WORKER_ID");
    assert_null(mu_tpu_strategy(lone));
    expect_error(MU_FAILED_PRECONDITION, "TPU_WORKER_ID");
    assert_int_equal(mu_tpu_shutdown(NULL), MU_OK);
}

static void lists_cores_as_devices(void **state)
{
    (void)state;
    mu_tpu_topology *topology = mu_tpu_initialize(NULL);
    const int last[] = {DEVICES / 2 - 1, 0, 0, 1}, outside[] = {DEVICES / 2, 0, 0, 0};
    assert_int_equal(mu_tpu_topology_device(topology, last), DEVICES - 1);
    assert_int_equal(mu_tpu_topology_device(topology, outside), -1);
    expect_error(MU_OUT_OF_RANGE, "");
    mu_strategy *strategy = mu_tpu_strategy();
    assert_int_equal(mu_num_replicas_in_sync(strategy), DEVICES);
    assert_string_equal(mu_strategy_name(strategy), "TPUStrategy");
    assert_string_equal(mu_strategy_device(strategy, 1), "/job:localhost/task:0/device:TPU:1");
    assert_true(mu_strategy_require_static_shapes(strategy));
    assert_false(mu_strategy_between_graph(strategy));
    mu_cluster *found = mu_strategy_cluster_resolver(strategy);
    assert_int_equal(mu_cluster_num_accelerators(found, "TPU"), DEVICES);
    assert_int_equal(mu_cluster_spec_job_count(mu_cluster_get_spec(found)), 0);
    mu_strategy *one = mu_one_device_strategy(mu_strategy_device(strategy, 1));
    assert_non_null(one);
    assert_int_equal(mu_tpu_shutdown(NULL), MU_OK);
}

static mu_value *add_id(mu_value *arguments, void *arg)
{
    mu_tensor *mine = mu_add(mu_value_tensor(arguments), mu_cast(mu_replica_id(), MU_F64));
    mu_variable_assign_add(arg, mine);
    return mu_of(mine);
}

// Results and variables are those of mirrored replicas.
static void agrees_with_mirrored(void **state)
{
    (void)state;
    mu_strategy *kinds[] = {mu_mirrored_strategy(), all_cores()};
    double sums[2], values[2], gathered[2];
    for (int k = 0; k < 2; k++) {
        mu_variable *v = NULL;
        MU_SCOPE(kinds[k])
            v = mu_variable_new(mu_constant(MU_F64, 1), "v", .aggregation = MU_AGGREGATION_SUM);
        mu_value *out = mu_run(kinds[k], mu_function_new(add_id, v), mu_of(mu_constant(MU_F64, 2)));
        sums[k] = mu_scalar(mu_value_tensor(mu_reduce(kinds[k], MU_SUM, out)));
        values[k] = mu_scalar(mu_variable_read(v));
        assert_null(mu_distribute_values(kinds[k], NULL, NULL));
        expect_error(MU_INVALID_ARGUMENT, "NULL");
        gathered[k] = mu_value_count(mu_local_results(kinds[k], out));
        assert_int_equal(mu_variable_component_count(v), DEVICES);
    }
    assert_true(sums[0] == sums[1] && values[0] == values[1] && gathered[0] == gathered[1]);
    mu_tpu_shutdown(NULL);
}

static mu_value *id_and_half(const mu_value_context *context, void *arg)
{
    *(int *)arg = context->num_replicas;
    return mu_of(vector(2, (const double[]){context->replica_id, context->replica_id + .5}));
}

static mu_value *sum_of_part(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_at(arguments, 0), MU_ALL_AXES));
}

// Values and data sets are distributed, gathered and reduced in the order of the cores.
static void distributes_values_and_data(void **state)
{
    (void)state;
    mu_strategy *strategy = all_cores();
    int replicas = 0;
    mu_value *values = mu_distribute_values(strategy, id_and_half, &replicas);
    assert_int_equal(replicas, DEVICES);
    mu_value *gathered = mu_strategy_gather(strategy, values, 0);
    if (!gathered)
        fail_msg("%s", mu_error_message());
    const double *row = doubles(mu_value_tensor(gathered));
    assert_int_equal(mu_tensor_dim(mu_value_tensor(gathered), 0), 2 * DEVICES);
    for (int i = 0; i < 2 * DEVICES; i++)
        assert_true(row[i] == i / 2 + i % 2 * .5);
    double x[19], total = 0;
    for (int i = 0; i < 19; i++)
        x[i] = i;
    mu_function *function = mu_function_new(sum_of_part, NULL);
    mu_dataset *batches = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(vector(19, x), MU_END)), 11);
    int n = 0;
    MU_EACH(batch, mu_distribute_dataset(strategy, batches)) { // parts of 1 and 2 rows
        total += mu_scalar(mu_value_tensor(mu_reduce(strategy, MU_SUM, mu_run(strategy, function, batch))));
        n++;
    }
    assert_int_equal(mu_error_code(), MU_OK);
    assert_true(n == 2 && total == 19 * 18 / 2);
    mu_tpu_shutdown(NULL);
}

static void initialise_twice(void)
{
    mu_tpu_initialize(NULL);
    mu_tpu_initialize(NULL);
}

static void initialising_again_loses_what_was_there(void **state)
{
    (void)state;
    char *text = log_of(initialise_twice);
    if (!strstr(text, "initialised again: strategies and variables made on it before are lost"))
        fail_msg("no warning in: %s", text);
    free(text);
    mu_strategy *old = all_cores();
    mu_variable *v = NULL;
    MU_SCOPE(old)
        v = mu_variable_new(mu_constant(MU_F64, 1), "v", .aggregation = MU_AGGREGATION_SUM);
    assert_true(mu_scalar(mu_variable_read(v)) == 1);
    mu_strategy *fresh = all_cores();
    assert_null(mu_variable_read(v));
    expect_error(MU_FAILED_PRECONDITION, "initialised again");
    assert_int_equal(mu_variable_assign(v, mu_constant(MU_F64, 2)), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "lost");
    assert_null(mu_run(old, mu_function_new(add_id, v), mu_of(mu_constant(MU_F64, 2))));
    expect_error(MU_FAILED_PRECONDITION, "lost");
    MU_SCOPE(old)
        v = NULL;
    expect_error(MU_FAILED_PRECONDITION, "lost");
    MU_SCOPE(fresh)
        v = mu_variable_new(mu_constant(MU_F64, 3), "v");
    assert_true(mu_scalar(mu_variable_read(v)) == 3);
    mu_tpu_shutdown(NULL);
    assert_null(mu_variable_read(v));
    expect_error(MU_FAILED_PRECONDITION, "shut down");
}

static mu_value *rows_of(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_value_tensor(arguments), MU_ALL_AXES));
}

// Unequal rows run exactly; with enable_dynamic_batch_size = false they are refused.
static void options_of_a_run(void **state)
{
    (void)state;
    int64_t sizes[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        sizes[i] = i + 1;
    mu_strategy *strategy = all_cores();
    mu_function *function = mu_function_new(rows_of, NULL);
    mu_value *parts = uneven(DEVICES, sizes);
    mu_value *sums = mu_run_with_options(strategy, function, parts, MU_RUN_OPTIONS(.bucketizing_dynamic_shape = true));
    const int n = DEVICES * (DEVICES + 1) / 2;
    assert_true(mu_scalar(mu_value_tensor(mu_reduce(strategy, MU_SUM, sums))) == n * (n - 1) / 2.0);
    assert_null(mu_run_with_options(strategy, function, parts, MU_RUN_OPTIONS(.enable_dynamic_batch_size = false)));
    expect_error(MU_INVALID_ARGUMENT, "enable_dynamic_batch_size");
    mu_tpu_shutdown(NULL);
}

static void annotations_are_checked(void **state)
{
    (void)state;
    mu_tpu_topology *topology = mu_tpu_initialize(NULL);
    mu_tpu_device_assignment *pairs =
        mu_tpu_device_assignment_build(topology, .computation_shape = {1, 1, 1, 2}, .num_replicas = DEVICES / 2);
    mu_strategy *strategy = mu_tpu_strategy(.device_assignment = pairs);
    mu_strategy *spmd = mu_tpu_strategy(.device_assignment = pairs, .use_spmd_for_xla_partitioning = true);
    mu_tensor *x = mu_zeros(MU_F32, 2, (const int64_t[]){4, 6});
    assert_int_equal(mu_num_replicas_in_sync(strategy), DEVICES / 2);
    assert_ptr_equal(mu_assign_to_logical_device(strategy, x, 1), x);
    assert_ptr_equal(mu_replicate_to_logical_devices(strategy, x), x);
    assert_null(mu_assign_to_logical_device(strategy, x, 2));
    expect_error(MU_INVALID_ARGUMENT, "0 to 1");
    assert_null(mu_assign_to_logical_device(spmd, x, 0));
    expect_error(MU_INVALID_ARGUMENT, "use_spmd");
    assert_null(mu_split_to_logical_devices(strategy, x, 2, (const int[]){2, 2}));
    expect_error(MU_INVALID_ARGUMENT, "4 pieces");
    assert_null(mu_replicate_to_logical_devices(mu_mirrored_strategy(), x));
    expect_error(MU_INVALID_ARGUMENT, "MirroredStrategy");
    mu_tpu_shutdown(NULL);
}

// fit, evaluate and predict reach what mirrored replicas reach.
static void trains_as_mirrored(void **state)
{
    (void)state;
    mu_strategy *kinds[] = {mu_mirrored_strategy(), all_cores()};
    double x[48], y[48], losses[2], predicted[2];
    mu_model *models[2];
    for (int i = 0; i < 48; i++) {
        x[i] = (i % 7 - 3) / 4.0;
        y[i] = 3 * x[i] - 1;
    }
    mu_tensor *inputs = mu_reshape(vector(48, x), 2, (const int64_t[]){48, 1});
    mu_tensor *targets = mu_reshape(vector(48, y), 2, (const int64_t[]){48, 1});
    for (int k = 0; k < 2; k++) {
        mu_set_seed(5);
        MU_SCOPE(kinds[k])
            models[k] = mu_sequential(mu_dense(4, .activation = "tanh"), mu_dense(1));
        mu_compile(models[k], .optimizer = mu_sgd(.learning_rate = 0.1), .loss = "mse");
        mu_fit(models[k], inputs, targets, .batch_size = 10, .epochs = 3, .no_shuffle = true,
               .verbose = MU_VERBOSE_SILENT);
        losses[k] = mu_history_last(
            mu_evaluate(models[k], inputs, targets, .batch_size = 10, .verbose = MU_VERBOSE_SILENT), "loss");
        predicted[k] =
            mu_scalar(mu_reduce_sum(mu_predict(models[k], inputs, .verbose = MU_VERBOSE_SILENT), MU_ALL_AXES));
        assert_int_equal(mu_error_code(), MU_OK);
    }
    assert_true(losses[0] == losses[1] && predicted[0] == predicted[1]);
    mu_tpu_shutdown(NULL);
}

// ---- Checkpoints --------------------------------------------------------------------------------

static mu_strategy *other_strategy(int kind)
{
    static const int kinds[] = {-1, 3, CENTRAL + 3, SERVED + 2};
    return kind < (int)MU_COUNT(kinds) ? strategy_of(kinds[kind]) : mu_tpu_strategy();
}

enum { OTHERS = 5, ROWS = 24 };

static mu_model *compiled_on(mu_strategy *strategy)
{
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(4, .activation = "tanh"), mu_dense(1));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = .05), .loss = "mse");
    }
    return model;
}

static void train_once(mu_model *model)
{
    mu_tensor *x = numbers(2, (const int64_t[]){ROWS, 2}, 3), *y = numbers(2, (const int64_t[]){ROWS, 1}, 4);
    if (!mu_fit(model, x, y, .batch_size = 8, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT))
        fail_msg("%s", mu_error_message());
}

static void restore_and_train(mu_model *model, const char *path, const double *wanted, int64_t n_wanted)
{
    int64_t n = 0;
    if (mu_checkpoint_restore(mu_checkpoint_new(.model = model), path) != MU_OK)
        fail_msg("%s", mu_error_message());
    train_once(model);
    double *weights = weights_of(model, &n);
    assert_int_equal(n, n_wanted);
    assert_near(weights, wanted, n, 1e-12);
    free(weights);
}

// A checkpoint of a TPUStrategy, with the slots of its optimizer, continues under each other strategy as it would have,
// and comes back.
static void checkpoints_move_between_strategies(void **state)
{
    (void)state;
    static const char path[] = "tpu.safetensors", back[] = "back.safetensors";
    int64_t n = 0;
    mu_model *model = compiled_on(all_cores());
    train_once(model);
    assert_int_equal(mu_checkpoint_save(mu_checkpoint_new(.model = model), path), MU_OK);
    train_once(model);
    double *wanted = weights_of(model, &n);
    for (int kind = 0; kind < OTHERS; kind++) {
        mu_pool *pool = mu_pool_open();
        mu_model *other = compiled_on(other_strategy(kind)), *again = compiled_on(mu_tpu_strategy());
        restore_and_train(other, path, wanted, n);
        assert_int_equal(mu_checkpoint_restore(mu_checkpoint_new(.model = other), path), MU_OK);
        assert_int_equal(mu_checkpoint_save(mu_checkpoint_new(.model = other), back), MU_OK);
        restore_and_train(again, back, wanted, n);
        mu_pool_close(pool);
    }
    free(wanted);
    remove(path);
    remove(back);
    mu_tpu_shutdown(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(needs_an_initialised_system),
        MODEL_TEST(several_hosts_are_connected_first),
        MODEL_TEST(lists_cores_as_devices),
        MODEL_TEST(agrees_with_mirrored),
        MODEL_TEST(distributes_values_and_data),
        MODEL_TEST(checkpoints_move_between_strategies),
        MODEL_TEST(initialising_again_loses_what_was_there),
        MODEL_TEST(options_of_a_run),
        MODEL_TEST(annotations_are_checked),
        MODEL_TEST(trains_as_mirrored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
