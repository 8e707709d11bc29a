// Training whose variables a partitioner divides among the servers: synchronous steps end with the weights of
// MirroredStrategy, from dense and sparse gradients, and metrics whose states are vectors and matrices have the results
// of one device, also after a checkpoint for another number of parts.
#include "../scratch.h"
#include "servers_test.h"

#include <math.h>

enum { ROWS = 47, COLUMNS = 5, CLASSES = 4, BATCH = 9, EPOCHS = 3, WORDS = 11, MOST = 2000 }; // last batch: 2 rows

// ---- Data and models ----------------------------------------------------------------------------

static mu_dataset *batches_of(mu_tensor *x, mu_tensor *y)
{
    return mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, y, MU_END)), BATCH);
}

static mu_tensor *one_hot_labels(void)
{
    double y[ROWS * CLASSES] = {0};
    for (int i = 0; i < ROWS; i++)
        y[i * CLASSES + i * 5 % CLASSES] = 1;
    return mu_tensor_new(MU_F64, 2, (int64_t[]){ROWS, CLASSES}, y);
}

static mu_dataset *numbers(void)
{
    double x[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = i * 31 % 97 / 97.0 - 0.5;
    return batches_of(mu_tensor_new(MU_F64, 2, (int64_t[]){ROWS, COLUMNS}, x), one_hot_labels());
}

static mu_dataset *words(void)
{
    int64_t x[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = i * 7 % (WORDS - 1); // the last word never occurs
    return batches_of(mu_tensor_new(MU_I64, 2, (int64_t[]){ROWS, COLUMNS}, x), one_hot_labels());
}

typedef mu_model *model_maker(void);
static mu_model *dense(void)
{
    return mu_sequential(mu_dense(7, .activation = "tanh", .kernel_regularizer = mu_l2(0.01)),
                         mu_dense(CLASSES, .activation = "softmax"));
}
static mu_model *normalized(void)
{
    return mu_sequential(mu_dense(7), mu_batch_normalization(.momentum = 0.7),
                         mu_dense(CLASSES, .activation = "softmax"));
}
static mu_model *embedded(void)
{
    return mu_sequential(mu_embedding(WORDS, 3), mu_flatten(), mu_dense(CLASSES, .activation = "softmax"));
}

typedef mu_optimizer *optimizer_maker(void);
static mu_optimizer *adam(void) { return mu_adam(.learning_rate = 0.05); }
// A limit for the gradient of each variable would be one for each part.
static mu_optimizer *clipped(void) { return mu_sgd(.learning_rate = 0.1, .momentum = 0.9, .global_clipnorm = 0.3); }
static mu_optimizer *summing(void) { return mu_rmsprop(.learning_rate = 0.02, .gradient_accumulation_steps = 2); }
static mu_optimizer *averaging(void) { return mu_adagrad(.learning_rate = 0.05, .use_ema = true, .ema_momentum = 0.9); }

// ---- Weights --------------------------------------------------------------------------------------

// Gives the elements of a weight, or of all its parts, numbers that depend on their place in the whole.
static int64_t fill(mu_value *weight, int w, int64_t at)
{
    if (mu_value_count(weight) > 1) {
        for (int k = 0; k < mu_value_count(weight); k++)
            at = fill(mu_value_at(weight, k), w, at);
        return at;
    }
    double values[200];
    mu_variable *v = mu_value_variable(weight);
    const mu_shape shape = mu_variable_shape(v);
    const int64_t n = mu_tensor_elements(mu_variable_read(v));
    for (int64_t i = 0; i < n; i++, at++)
        values[i] = strstr(mu_variable_name(v), "variance") ? 1 : ((double)((at * 29 + w * 7) % 23) - 11) / 23;
    assert_int_equal(mu_variable_assign(v, mu_tensor_new(MU_F64, shape.rank, shape.dims, values)), MU_OK);
    return at;
}

static int copy_weight(mu_value *weight, int n, double *out)
{
    for (int k = 0; mu_value_count(weight) > 1 && k < mu_value_count(weight); k++)
        n = copy_weight(mu_value_at(weight, k), n, out);
    if (mu_value_count(weight) > 1)
        return n;
    mu_tensor *value = mu_variable_read(mu_value_variable(weight));
    for (int64_t e = 0; e < mu_tensor_elements(value); e++)
        out[n++] = mu_tensor_item(value, e);
    assert_true(n <= MOST);
    return n;
}

static int copy_weights(mu_model *model, double *out)
{
    int n = 0;
    mu_value *weights = mu_model_weights(model);
    for (int i = 0; i < mu_value_count(weights); i++)
        n = copy_weight(mu_value_at(weights, i), n, out);
    return n;
}

static mu_items *all_metrics(void)
{
    static const double thresholds[] = {0.1, 0.25, 0.5};
    mu_metric *of_labels = mu_auc_metric(.curve = "PR", .name = "labels", .multi_label = true, .num_thresholds = 20);
    return MU_METRICS(mu_accuracy(), mu_auc_metric(), of_labels, mu_one_hot_mean_iou_metric(CLASSES),
                      mu_precision_metric(.n_thresholds = 3, .thresholds = thresholds), mu_f1_score_metric(),
                      mu_r2_score_metric(), mu_top_k_categorical_accuracy_metric(2));
}

static mu_model *made(mu_strategy *strategy, model_maker *layers, optimizer_maker *make)
{
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = layers();
        mu_compile(model, .optimizer = make(), .loss = mu_categorical_crossentropy_loss(), .metrics = all_metrics());
        if (mu_model_build(model, 1, (int64_t[]){COLUMNS}) != MU_OK)
            fail_msg("%s", mu_error_message());
    }
    mu_value *weights = mu_model_weights(model);
    for (int w = 0; w < mu_value_count(weights); w++)
        fill(mu_value_at(weights, w), w, 0);
    return model;
}

// ---- The tests ------------------------------------------------------------------------------------

static void expect_same_history(mu_history *got, mu_history *wanted)
{
    assert_int_equal(mu_history_names(got), mu_history_names(wanted));
    for (int i = 0; i < mu_history_names(wanted); i++)
        for (int e = 0; e < mu_history_epochs(wanted); e++) {
            const char *name = mu_history_name(wanted, i);
            const double a = mu_history_at(got, name, e), b = mu_history_at(wanted, name, e);
            if (!(fabs(a - b) <= 1e-9))
                fail_msg("'%s' in epoch %d: %.15g on servers, wanted %.15g", name, e, a, b);
        }
}

// Trains on servers and under another strategy.
static void expect_same(mu_strategy *strategy, mu_strategy *other, model_maker *layers, optimizer_maker *make,
                        mu_dataset *data)
{
    static double got[MOST], wanted[MOST];
    mu_history *histories[2], *last[2];
    mu_strategy *strategies[] = {strategy, other};
    int n[2];
    for (int i = 0; i < 2; i++) {
        mu_model *model = made(strategies[i], layers, make);
        histories[i] = mu_fit(model, data, .epochs = EPOCHS, .validation_data = data, .verbose = MU_VERBOSE_SILENT);
        last[i] = mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT);
        if (!histories[i] || !last[i])
            fail_msg("%s", mu_error_message());
        n[i] = copy_weights(model, i == 0 ? got : wanted);
    }
    assert_int_equal(n[0], n[1]);
    for (int i = 0; i < n[0]; i++)
        if (!(fabs(got[i] - wanted[i]) <= 1e-9))
            fail_msg("number %d of the weights: %.15g on servers, wanted %.15g", i, got[i], wanted[i]);
    expect_same_history(histories[0], histories[1]);
    expect_same_history(last[0], last[1]);
}

// Tasks with sockets in this process, or threads.
static mu_server *worker_0; // of the strategy that was made last

static mu_server *start_task(int i)
{
    mu_server *server = mu_server_create_local_server(true);
    worker_0 = i == 0 ? server : worker_0;
    return server;
}

static mu_strategy *synchronous(bool sockets, int workers, int servers, int shards, int calls)
{
    if (!sockets)
        return mu_parameter_server_strategy(cluster_of(workers, servers), mu_fixed_shards_partitioner(shards),
                                            .replicas_to_aggregate = calls, .in_process = true);
    char text[1000];
    int used = snprintf(text, sizeof text, "{\"worker\": [");
    for (int i = 0; i < workers + servers; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s\"%s\"",
                         i == 0         ? ""
                         : i == workers ? "], \"ps\": ["
                                        : ", ",
                         mu_server_target(start_task(i)) + 9);
    snprintf(text + used, sizeof text - (size_t)used, "]}");
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)),
                                        mu_fixed_shards_partitioner(shards), .replicas_to_aggregate = calls);
}

// Adam squares the slices of an embedding one by one, and what calls leave on servers is their sum: so it is not among
// the optimizers for sparse gradients.
static void test_synchronous_steps(void **state)
{
    (void)state;
    static optimizer_maker *const optimizers[] = {adam, clipped, summing, averaging};
    for (int i = 0; i < (int)MU_COUNT(optimizers); i++) {
        mu_pool *pool = mu_pool_open();
        const int calls = 2 + i % 2;
        mu_strategy *mirrored = mu_mirrored_strategy(.replicas = calls);
        expect_same(synchronous(false, 1 + i, 2, 3, calls), mirrored, dense, optimizers[i], numbers());
        expect_same(synchronous(false, 1 + i, 3, 2, calls), mirrored, normalized, optimizers[i], numbers());
        if (i > 0)
            expect_same(synchronous(false, 1 + i, 2, 4, calls), mirrored, embedded, optimizers[i], words());
        mu_pool_close(pool);
    }
}

static void test_synchronous_steps_on_servers_of_their_own(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *mirrored = mu_mirrored_strategy(.replicas = 2);
    expect_same(synchronous(true, 1, 2, 3, 2), mirrored, normalized, adam, numbers());
    expect_same(synchronous(true, 2, 2, 3, 2), mirrored, embedded, clipped, words());
    mu_pool_close(pool);
}

static mu_status lose_worker(const mu_logs *logs, void *arg)
{
    int *left = arg;
    (void)logs;
    return --*left == 0 ? mu_server_stop(worker_0) : MU_OK;
}

// The call of a worker that is lost is run by the other one, and counts once on every part.
static void test_a_worker_is_lost(void **state)
{
    (void)state;
    static double got[MOST], wanted[MOST];
    mu_pool *pool = mu_pool_open();
    int left = 4;
    mu_model *served = made(synchronous(true, 2, 2, 3, 2), embedded, clipped),
             *mirrored = made(mu_mirrored_strategy(.replicas = 2), embedded, clipped);
    mu_callback *callback = mu_callback_new(.on_batch_end = lose_worker, .arg = &left);
    mu_history *a = mu_fit(served, words(), .epochs = 2, .verbose = MU_VERBOSE_SILENT, .callbacks = callback),
               *b = mu_fit(mirrored, words(), .epochs = 2, .verbose = MU_VERBOSE_SILENT);
    if (!a || !b)
        fail_msg("%s", mu_error_message());
    assert_true(left < 0);
    expect_same_history(a, b);
    const int n = copy_weights(served, got);
    assert_int_equal(n, copy_weights(mirrored, wanted));
    for (int i = 0; i < n; i++)
        assert_true(fabs(got[i] - wanted[i]) <= 1e-9);
    mu_pool_close(pool);
}

static void test_metrics(void **state)
{
    (void)state;
    for (int shards = 1; shards < 7; shards += 2) {
        mu_pool *pool = mu_pool_open();
        expect_same(strategy_of_servers(2, mu_fixed_shards_partitioner(shards)), mu_one_device_strategy("CPU:0"), dense,
                    adam, numbers());
        expect_same(
            mu_parameter_server_strategy(cluster_of(1, 3), mu_fixed_shards_partitioner(shards), .in_process = true),
            mu_one_device_strategy("CPU:0"), embedded, adam, words());
        mu_pool_close(pool);
    }
}

static void test_checkpoints(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    static double before[MOST], after[MOST];
    mu_model *saved = made(synchronous(true, 2, 2, 3, 2), dense, adam);
    assert_non_null(mu_fit(saved, numbers(), .epochs = 2, .verbose = MU_VERBOSE_SILENT));
    mu_history *metrics = mu_metrics_result(saved);
    assert_true(mu_history_names(metrics) > 8);
    assert_int_equal(mu_checkpoint_save(mu_checkpoint_new(.model = saved), "sharded"), MU_OK);
    const int n = copy_weights(saved, before);
    mu_strategy *others[] = {synchronous(false, 1, 3, 5, 2), strategy_of_servers(1, mu_fixed_shards_partitioner(2)),
                             strategy_of_servers(3, NULL), mu_mirrored_strategy(.replicas = 2),
                             mu_one_device_strategy("CPU:0")};
    for (int i = 0; i < (int)MU_COUNT(others); i++) {
        mu_model *restored = made(others[i], dense, adam);
        if (mu_checkpoint_restore(mu_checkpoint_new(.model = restored), "sharded") != MU_OK)
            fail_msg("%s", mu_error_message());
        assert_int_equal(copy_weights(restored, after), n);
        assert_memory_equal(before, after, (size_t)n * sizeof *before);
        expect_same_history(mu_metrics_result(restored), metrics);
        // And back: what this strategy saves goes on where the first one does.
        assert_int_equal(mu_checkpoint_save(mu_checkpoint_new(.model = restored), "back"), MU_OK);
        mu_model *again = made(others[0], dense, adam);
        if (mu_checkpoint_restore(mu_checkpoint_new(.model = again), "back") != MU_OK)
            fail_msg("%s", mu_error_message());
        expect_same_history(mu_metrics_result(again), metrics);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_synchronous_steps),
                                       cmocka_unit_test(test_synchronous_steps_on_servers_of_their_own),
                                       cmocka_unit_test(test_a_worker_is_lost), cmocka_unit_test(test_metrics),
                                       cmocka_unit_test_setup_teardown(test_checkpoints, scratch_enter, scratch_leave)};
    return cmocka_run_group_tests_name("coordinator/sharded_training", tests, start_in_f64, end_library);
}
