// Synchronous steps on parameter servers: the weights are those of MirroredStrategy with as many replicas, whatever
// order the calls end in and with backup workers; and with a visitation guarantee each batch counts once.
#include "distribute/servers/aggregation.h"
#include "servers_test.h"

#include <math.h>
#include <muster/sharding.h>

enum { ROWS = 47, COLUMNS = 5, BATCH = 9, EPOCHS = 3 }; // the last batch has 2 rows, for 3 calls

static mu_dataset *data(void)
{
    double x[ROWS][COLUMNS], y[ROWS];
    for (int i = 0; i < ROWS; i++) {
        y[i] = i % 5 - 2;
        for (int k = 0; k < COLUMNS; k++)
            x[i][k] = (i * 31 + k * 17) % 97 / 97.0 - 0.5;
    }
    mu_tensor *rows = mu_tensor_new(MU_F64, 2, (int64_t[]){ROWS, COLUMNS}, x);
    mu_tensor *labels = mu_tensor_new(MU_F64, 2, (int64_t[]){ROWS, 1}, y);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(rows, labels, MU_END)), BATCH);
}

typedef mu_optimizer *optimizer_maker(void);
static mu_optimizer *adam(void) { return mu_adam(.learning_rate = 0.05); }
static mu_optimizer *clipped(void) { return mu_sgd(.learning_rate = 0.1, .momentum = 0.9, .clipvalue = 0.3); }
static mu_optimizer *summing(void) { return mu_rmsprop(.learning_rate = 0.02, .gradient_accumulation_steps = 2); }

typedef mu_model *model_maker(void);
static mu_model *dense(void)
{
    return mu_sequential(mu_dense(4, .activation = "tanh", .kernel_regularizer = mu_l2(0.01)), mu_dense(1));
}
// One of the layers normalizes twice, so its statistics move twice in a step.
static mu_model *normalized(void)
{
    mu_layer *twice = mu_batch_normalization(.momentum = 0.7);
    mu_tensor *x = mu_input({COLUMNS}), *hidden = mu_call(twice, mu_call(mu_dense(4), x));
    hidden = mu_call(twice, mu_call(mu_dense(4), hidden));
    return mu_model_new(x, mu_call(mu_dense(1), mu_call(mu_batch_normalization(.no_scale = true), hidden)));
}

static mu_model *train(mu_strategy *strategy, model_maker *layers, optimizer_maker *make, const void *samples,
                       mu_history **history)
{
    mu_model *model = NULL;
    mu_set_seed(3);
    MU_SCOPE(strategy) {
        model = layers();
        mu_compile(model, .optimizer = make(), .loss = mu_mean_squared_error_loss());
        if (mu_model_build(model, 1, (int64_t[]){COLUMNS}) != MU_OK)
            fail_msg("%s", mu_error_message());
    }
    mu_value *weights = mu_model_weights(model);
    for (int w = 0; w < mu_value_count(weights); w++) {
        mu_variable *v = mu_value_variable(mu_value_at(weights, w));
        mu_tensor *value = mu_variable_read(v);
        const mu_shape shape = mu_variable_shape(v);
        double numbers[64];
        for (int64_t i = 0; i < mu_tensor_elements(value); i++)
            numbers[i] = strstr(mu_variable_name(v), "variance") ? 1 : ((double)((i * 29 + w * 7) % 23) - 11) / 23;
        mu_variable_assign(v, mu_tensor_new(MU_F64, shape.rank, shape.dims, numbers));
    }
    *history = mu_fit(model, samples, .epochs = EPOCHS, .validation_data = data(), .verbose = MU_VERBOSE_SILENT);
    if (!*history)
        fail_msg("%s", mu_error_message());
    return model;
}

// Trains on the same samples, which a dataset creator or larger batches may divide differently.
static void expect_same_on(mu_strategy *strategy, int replicas, model_maker *layers, optimizer_maker *make,
                           const void *samples, mu_dataset *batches)
{
    mu_pool *pool = mu_pool_open();
    mu_history *got, *wanted;
    mu_strategy *mirrored_strategy = mu_mirrored_strategy(.replicas = replicas);
    mu_value *served = mu_model_weights(train(strategy, layers, make, samples, &got)),
             *mirrored = mu_model_weights(train(mirrored_strategy, layers, make, batches, &wanted));
    for (int w = 0; w < mu_value_count(served); w++) {
        mu_tensor *a = mu_variable_read(mu_value_variable(mu_value_at(served, w))),
                  *b = mu_variable_read(mu_value_variable(mu_value_at(mirrored, w)));
        for (int64_t i = 0; i < mu_tensor_elements(a); i++)
            if (!(fabs(mu_tensor_item(a, i) - mu_tensor_item(b, i)) <= 1e-9))
                fail_msg("weight %d element %d: %.15g on servers, %.15g mirrored", w, (int)i, mu_tensor_item(a, i),
                         mu_tensor_item(b, i));
    }
    for (int e = 0; e < EPOCHS; e++) {
        assert_true(fabs(mu_history_at(got, "loss", e) - mu_history_at(wanted, "loss", e)) <= 1e-9);
        assert_true(fabs(mu_history_at(got, "val_loss", e) - mu_history_at(wanted, "val_loss", e)) <= 1e-9);
    }
    assert_int_equal(mu_history_samples(got), mu_history_samples(wanted));
    mu_pool_close(pool);
}

static void expect_same(mu_strategy *strategy, int replicas, model_maker *layers, optimizer_maker *make)
{
    expect_same_on(strategy, replicas, layers, make, data(), data());
}

static void test_weights_are_those_of_replicas(void **state)
{
    (void)state;
    static optimizer_maker *const optimizers[] = {adam, clipped, summing};
    for (int i = 0; i < 3; i++) {
        mu_pool *pool = mu_pool_open();
        const int workers = 1 + 2 * i, calls = i + 2 - (i == 2); // fewer workers than calls, as many, backups
        mu_strategy *strategy =
            mu_parameter_server_strategy(cluster_of(workers, 2), .replicas_to_aggregate = calls, .in_process = true);
        assert_int_equal(mu_num_replicas_in_sync(strategy), calls);
        expect_same(strategy, calls, dense, optimizers[i]);
        mu_pool_close(pool);
    }
}

// Moving statistics are kept under the number of the attempt, and move once per step, weighted by the rows of all
// calls.
static void test_batch_normalization(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect_same(mu_parameter_server_strategy(cluster_of(3, 2), .replicas_to_aggregate = 3, .in_process = true), 3,
                normalized, adam);
    mu_pool_close(pool);
}

// Steps of two calls, on a worker and two servers.
static mu_strategy *on_servers(mu_partitioner *partitioner)
{
    char text[300];
    mu_server *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = mu_server_create_local_server(true);
    snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\", \"%s\"]}", mu_server_target(s[0]) + 9,
             mu_server_target(s[1]) + 9, mu_server_target(s[2]) + 9);
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)), partitioner,
                                        .replicas_to_aggregate = 2);
}

static void test_on_servers_of_their_own(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = on_servers(NULL);
    expect_same(strategy, 2, dense, adam);
    expect_same(strategy, 2, normalized, adam);
    mu_pool_close(pool);
}

// ---- Creators -----------------------------------------------------------------------------------

// Worker k's share of the six batches; that of worker 1 ends early.
static mu_dataset *share_of_worker(const mu_input_context *context, void *arg)
{
    const int worker = mu_get_current_worker_index();
    assert_true(context->num_input_pipelines == 1);
    ++*(int *)arg;
    return mu_dataset_take(mu_dataset_shard(data(), 3, worker), worker == 1 ? 1 : 2);
}

static mu_dataset *endless_share(const mu_input_context *context, void *arg)
{
    return mu_dataset_repeat(share_of_worker(context, arg), MU_INFINITE);
}

// A call gets a batch of the workers' datasets in rotation; in the last step of an epoch only one call has rows.
static void test_creators_are_visited_once_in_each_epoch(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    int made = 0;
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(3, 2), .replicas_to_aggregate = 2, .in_process = true);
    mu_dataset *visited = mu_dataset_concatenate(mu_dataset_take(data(), 4), mu_dataset_skip(data(), 5));
    expect_same_on(strategy, 2, dense, adam, mu_dataset_creator_new(share_of_worker, &made),
                   mu_dataset_batch(mu_dataset_unbatch(visited), 2 * BATCH));
    assert_int_equal(made, 3 * EPOCHS);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = dense();
        mu_compile(model, .optimizer = "sgd", .loss = "mse");
    }
    mu_dataset_creator *endless = mu_dataset_creator_new(endless_share, &made);
    assert_null(mu_fit(model, endless, .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_INVALID_ARGUMENT, "mu_fit: the dataset of worker 0 repeats for ever; say with .steps_per_epoch");
    assert_non_null(mu_fit(model, endless, .steps_per_epoch = 2, .verbose = MU_VERBOSE_SILENT));
    mu_pool_close(pool);
}

// The step fails while it is applied (as in test_applied_step.c), so its variables are in doubt.
static void test_an_assignment_ends_the_doubt_about_parts(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = on_servers(mu_fixed_shards_partitioner(2));
    mu_variable *table = NULL;
    MU_SCOPE(strategy)
        table = mu_variable_new(mu_zeros(MU_F64, 1, (int64_t[]){4}), "table");
    assert_int_equal(table->n_shards, 2);
    for (int i = 0; i < 2; i++)
        table->shards[i]->in_doubt = true;
    strategy->servers->aggregation->in_doubt = 2;
    assert_null(mu_variable_read(table));
    expect_error(MU_FAILED_PRECONDITION, "in doubt");
    assert_int_equal(mu_variable_assign(table, mu_ones(MU_F64, 1, (int64_t[]){4})), MU_OK);
    mu_tensor *sum = mu_reduce_sum(mu_variable_read(table), MU_ALL_AXES);
    if (sum == NULL)
        fail_msg("%s", mu_error_message());
    assert_true(mu_scalar(sum) == 4);
    assert_int_equal(strategy->servers->aggregation->in_doubt, 0);
    mu_pool_close(pool);
}

// ---- A loop of the program's own ----------------------------------------------------------------

typedef struct job {
    mu_variable *w;
    mu_optimizer *optimizer;
} job;

// The gradient is the batch itself.
static mu_value *own_step(mu_value *arguments, void *arg)
{
    job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_reduce_sum(mu_multiply(mu_variable_read(j->w), mu_at(arguments, 0)), MU_ALL_AXES);
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_variables(j->w, MU_END)));
    return mu_of(mu_variable_read(j->w));
}

static void test_a_loop_of_ones_own(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy =
        mu_parameter_server_strategy(cluster_of(3, 1), .replicas_to_aggregate = 2, .in_process = true);
    mu_coordinator *c = mu_coordinator_new(strategy);
    job j = {0};
    MU_SCOPE(strategy) {
        j.w = mu_variable_new(mu_constant(MU_F64, 0), "w");
        j.optimizer = mu_sgd(.learning_rate = 1);
    }
    mu_function *step = mu_function_new(own_step, &j);
    mu_value *results[5];
    for (int i = 0; i < 5; i++)
        results[i] = mu_schedule(c, step, mu_list(mu_constant(MU_F64, i + 1), MU_END));
    if (mu_join(c) != MU_OK)
        fail_msg("%s", mu_error_message());
    static const double read[] = {0, 0, -3, -3, -10}; // steps of 1 + 2, 3 + 4, and 5 alone
    for (int i = 0; i < 5; i++)
        assert_true(mu_scalar(mu_fetch(results[i])) == read[i]);
    assert_true(mu_scalar(mu_variable_read(j.w)) == -15);
    assert_true(mu_scalar(mu_variable_read(mu_optimizer_iterations(j.optimizer))) == 3);
    mu_pool_close(pool);
}

// ---- Assignments ---------------------------------------------------------------------------------

typedef struct counters {
    mu_variable *w, *sum, *mean, *first, *count;
    mu_optimizer *optimizer;
} counters;

static mu_value *assigning_step(mu_value *arguments, void *arg)
{
    counters *v = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_multiply(mu_variable_read(v->w), x);
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(v->w, MU_END));
    mu_tensor *old = mu_variable_read(v->mean);
    if (mu_variable_assign_add(v->sum, x) != MU_OK ||
        mu_variable_assign_sub(v->sum, mu_multiply(x, mu_constant(MU_F64, 0.25))) != MU_OK ||
        mu_variable_assign(v->mean, mu_add(mu_multiply(old, mu_constant(MU_F64, 0.5)), x)) != MU_OK ||
        mu_variable_assign(v->first, x) != MU_OK ||
        mu_variable_assign_add(v->count, mu_cast(mu_replica_id(), MU_I64)) != MU_OK ||
        mu_variable_assign_add(v->count, mu_cast(x, MU_I64)) != MU_OK)
        return NULL;
    mu_apply_gradients(v->optimizer, gradients);
    return mu_of(x);
}

static counters make_counters(void)
{
    const counters made = {
        .w = mu_variable_new(mu_constant(MU_F64, 0), "w"),
        .sum = mu_variable_new(mu_constant(MU_F64, 3), "sum", .not_trainable = true, .aggregation = MU_AGGREGATION_SUM),
        .mean =
            mu_variable_new(mu_constant(MU_F64, 3), "mean", .not_trainable = true, .aggregation = MU_AGGREGATION_MEAN),
        .first = mu_variable_new(mu_constant(MU_F64, 3), "first", .not_trainable = true,
                                 .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA),
        .count = mu_variable_new(mu_constant(MU_I64, 3), "count", .not_trainable = true,
                                 .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA),
        .optimizer = mu_sgd(.learning_rate = 1)};
    return made;
}

enum { STEPS = 3, CALLS = 2 };

static void run_mirrored(counters *v)
{
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = CALLS);
    MU_SCOPE(strategy)
        *v = make_counters();
    mu_function *step = mu_function_new(assigning_step, v);
    for (int s = 0; s < STEPS; s++) {
        mu_value *parts[CALLS];
        for (int i = 0; i < CALLS; i++)
            parts[i] = mu_of(mu_constant(MU_F64, s * CALLS + i + 1));
        if (!mu_run(strategy, step, mu_list(mu_per_replica_of(strategy, CALLS, parts), MU_END)))
            fail_msg("%s", mu_error_message());
    }
}

static void run_served(counters *v, mu_strategy *strategy)
{
    mu_coordinator *c = mu_coordinator_new(strategy);
    MU_SCOPE(strategy)
        *v = make_counters();
    mu_function *step = mu_function_new(assigning_step, v);
    for (int i = 0; i < STEPS * CALLS; i++)
        if (!mu_schedule(c, step, mu_list(mu_constant(MU_F64, i + 1), MU_END)))
            fail_msg("%s", mu_error_message());
    if (mu_join(c) != MU_OK)
        fail_msg("%s", mu_error_message());
}

static double value_of(mu_variable *variable) { return mu_scalar(mu_cast(mu_variable_read(variable), MU_F64)); }

static void test_assignments_are_those_of_replicas(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    counters got, wanted;
    run_mirrored(&wanted);
    run_served(&got,
               mu_parameter_server_strategy(cluster_of(3, 2), .replicas_to_aggregate = CALLS, .in_process = true));
    assert_true(value_of(got.w) == value_of(wanted.w));
    assert_true(value_of(got.sum) == value_of(wanted.sum));
    assert_true(value_of(got.mean) == value_of(wanted.mean));
    assert_true(value_of(got.first) == value_of(wanted.first));
    assert_true(value_of(got.count) == value_of(wanted.count));
    mu_pool_close(pool);
}

static int start_in_f64(void **state)
{
    (void)state;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    return mu_init(.cpu_devices = 4) == MU_OK && mu_set_floatx(MU_F64) == MU_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights_are_those_of_replicas),
                                       cmocka_unit_test(test_batch_normalization),
                                       cmocka_unit_test(test_on_servers_of_their_own),
                                       cmocka_unit_test(test_an_assignment_ends_the_doubt_about_parts),
                                       cmocka_unit_test(test_assignments_are_those_of_replicas),
                                       cmocka_unit_test(test_creators_are_visited_once_in_each_epoch),
                                       cmocka_unit_test(test_a_loop_of_ones_own)};
    return cmocka_run_group_tests_name("coordinator/synchronous", tests, start_in_f64, end_library);
}
