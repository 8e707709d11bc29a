// Layers that assign to their weights while they are called, with weights that a partitioner divides among servers: the
// weights and statistics of one device.
#include "servers_test.h"

#include <math.h>

enum { ROWS = 12, COLUMNS = 5, BATCH = 4, STEPS = 6 };

static mu_dataset *batches(void)
{
    float x[ROWS * COLUMNS];
    int64_t labels[ROWS], rows = ROWS;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)(i * 7 % 11) - 4;
    for (int i = 0; i < ROWS; i++)
        labels[i] = i * 5 % 3;
    mu_tensor *inputs = mu_tensor_new(MU_F32, 2, (int64_t[]){ROWS, COLUMNS}, x);
    mu_dataset *all = mu_dataset_from_tensor_slices(mu_list(inputs, mu_tensor_new(MU_I64, 1, &rows, labels), MU_END));
    return mu_dataset_repeat(mu_dataset_batch(all, BATCH), MU_INFINITE);
}

static mu_layer *normalized(void) { return mu_batch_normalization(.momentum = 0.5); }
static mu_layer *spectral(void) { return mu_spectral_normalization(mu_dense(4, .kernel_initializer = "ones")); }

// The elements of a variable, or of all its parts.
static int copy_weight(mu_value *weight, int most, double *out)
{
    int n = 0;
    if (mu_value_count(weight) > 1) { // parts
        for (int k = 0; k < mu_value_count(weight); k++)
            n += copy_weight(mu_value_at(weight, k), most - n, out + n);
        return n;
    }
    mu_tensor *value = mu_variable_read(mu_value_variable(weight));
    for (int64_t e = 0; e < mu_tensor_elements(value) && n < most; e++)
        out[n++] = mu_tensor_item(value, e);
    return n;
}

// The elements of all weights after a few steps, one after the other.
static int train(mu_strategy *strategy, mu_layer *(*layer)(void), int most, double *out)
{
    mu_model *model = NULL;
    int n = 0;
    MU_SCOPE(strategy) {
        mu_set_seed(1);
        model = mu_sequential(layer(), mu_dense(3, .kernel_initializer = "zeros"));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0.1),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    if (!mu_fit(model, batches(), .steps_per_epoch = STEPS, .verbose = MU_VERBOSE_SILENT))
        fail_msg("%s", mu_error_message());
    mu_value *weights = mu_model_weights(model);
    for (int i = 0; i < mu_value_count(weights); i++)
        n += copy_weight(mu_value_at(weights, i), most - n, out + n);
    return n;
}

static void expect_weights_of_one_device(mu_strategy *strategy, mu_layer *(*layer)(void))
{
    enum { MOST = 200 };
    double served[MOST], single[MOST];
    const int n = train(strategy, layer, MOST, served);
    assert_int_equal(n, train(mu_one_device_strategy("CPU:0"), layer, MOST, single));
    for (int i = 0; i < n; i++)
        if (!(fabs(served[i] - single[i]) < 1e-6))
            fail_msg("number %d of the weights is %.9g, on one device %.9g", i, served[i], single[i]);
}

static mu_strategy *in_process(bool visits)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"\"], \"ps\": [\"\", \"\"]}");
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), mu_fixed_shards_partitioner(2),
                                        .in_process = true, .visitation_guarantee = visits);
}

static void test_moving_statistics(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect_weights_of_one_device(strategy_of_servers(2, mu_fixed_shards_partitioner(2)), normalized);
    expect_weights_of_one_device(in_process(false), normalized);
    expect_weights_of_one_device(in_process(true), normalized);
    mu_pool_close(pool);
}

// The values that a call leaves for the step are on a server, where its worker can put them.
static void test_moving_statistics_of_visits(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    char text[300];
    mu_server *tasks[3];
    for (int i = 0; i < 3; i++)
        tasks[i] = mu_server_create_local_server(true);
    snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\", \"%s\"]}",
             mu_server_target(tasks[0]) + strlen("muster://"), mu_server_target(tasks[1]) + strlen("muster://"),
             mu_server_target(tasks[2]) + strlen("muster://"));
    mu_cluster *cluster = mu_simple_cluster_resolver(mu_cluster_spec_parse(text));
    expect_weights_of_one_device(
        mu_parameter_server_strategy(cluster, mu_fixed_shards_partitioner(2), .visitation_guarantee = true),
        normalized);
    mu_pool_close(pool);
}

static void test_spectral_normalization(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect_weights_of_one_device(strategy_of_servers(2, mu_fixed_shards_partitioner(2)), spectral);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_moving_statistics),
                                       cmocka_unit_test(test_moving_statistics_of_visits),
                                       cmocka_unit_test(test_spectral_normalization)};
    return cmocka_run_group_tests_name("coordinator/sharded_layers", tests, start_with_key, end_library);
}
