// mu_fit with steps_per_execution: several steps are one launch, a loop on the device, and train as single steps do, on
// one device and on two, also if the last batches cannot be joined.
#include "skip.h"

#include "engine/pjrt/pjrt.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 150, WIDTH = 12, BATCH = 8, MOST_WEIGHTS = 1000, EPOCHS = 2 }; // 18 batches, and one of 6 rows

static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", NULL};

static struct {
    const pj_api *api; // the plugin's own table
    int launched;
} plugin;

static pj_error *execute(void *args)
{
    plugin.launched++;
    return plugin.api->functions[PJ_LOADED_EXECUTE](args);
}

static void count_launches(pj_api *counted)
{
    mu_pjrt_client *client = mu__device_by_name(mu__runtime(), "XLA_CPU:0")->engine_client;
    memcpy(counted, client->api, client->api->size);
    plugin.api = client->api;
    counted->functions[PJ_LOADED_EXECUTE] = execute;
    client->api = counted;
}

typedef struct result {
    double loss, accuracy;
    int launched, batch_ends;
    float weights[MOST_WEIGHTS];
    int64_t n;
} result;

static mu_status count_end(const mu_logs *logs, void *arg)
{
    (void)logs;
    ((result *)arg)->batch_ends++;
    return MU_OK;
}

static mu_dataset *samples(void)
{
    static float x[ROWS * WIDTH];
    static int32_t y[ROWS];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i * 7919 % 1009) / 1009;
    for (int i = 0; i < ROWS; i++)
        y[i] = (i * 5 + i / 7) % 3;
    return mu_dataset_batch(
        mu_dataset_from_tensor_slices(mu_list(mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){ROWS, WIDTH}, x)),
                                              mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){ROWS}, y)), MU_END)),
        BATCH);
}

static void train(mu_strategy *strategy, int steps, bool hooks, result *out)
{
    mu_pool *pool = mu_pool_open();
    mu_model *model = NULL;
    *out = (result){0};
    mu_set_seed(7);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(16, .activation = "relu"), mu_dropout(0.25), mu_dense(3));
        mu_compile(model, .optimizer = mu_adam(.learning_rate = 1e-2), .metrics = MU_METRICS(mu_accuracy()),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true), .steps_per_execution = steps);
    }
    mu_callback *counter = mu_callback_new(.on_batch_end = count_end, .arg = out);
    const int before = plugin.launched;
    mu_history *history = hooks ? mu_fit(model, samples(), .epochs = EPOCHS, .verbose = MU_VERBOSE_SILENT,
                                         .callbacks = MU_CALLBACKS(counter))
                                : mu_fit(model, samples(), .epochs = EPOCHS, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%d steps at once: %s", steps, mu_error_message());
    out->launched = plugin.launched - before;
    out->loss = mu_history_last(history, "loss");
    out->accuracy = mu_history_last(history, "accuracy");
    mu_value *weights = mu_model_weights(model);
    for (int i = 0; i < mu_value_count(weights); i++) {
        mu_tensor *tensor = mu_variable_read(mu_value_variable(mu_value_at(weights, i)));
        memcpy(out->weights + out->n, mu_tensor_data(tensor), sizeof(float) * (size_t)mu_tensor_elements(tensor));
        out->n += mu_tensor_elements(tensor);
    }
    mu_pool_close(pool);
}

static void same(const result *a, const result *b)
{
    assert_true(fabs(a->loss - b->loss) < 1e-5);
    assert_true(a->accuracy == b->accuracy);
    assert_true(a->n == b->n && a->n > 0);
    for (int64_t i = 0; i < a->n; i++)
        if (fabsf(a->weights[i] - b->weights[i]) > 1e-5f)
            fail_msg("weight %lld is %.7g in a loop, %.7g step by step", (long long)i, b->weights[i], a->weights[i]);
}

// Of 19 batches in an epoch the very first runs alone, then come loops of 5; the remainder ends with another shape.
static void check(mu_strategy *strategy)
{
    result one, loops, hooked;
    train(strategy, 1, false, &one);
    train(strategy, 5, false, &loops);
    train(strategy, 5, true, &hooked);
    same(&one, &loops);
    same(&one, &hooked);
    assert_true(loops.launched < one.launched / 2);
    assert_true(hooked.batch_ends < EPOCHS * 19 / 2);
}

static void test_one_device(void **state)
{
    (void)state;
    check(mu_one_device_strategy(devices[0]));
}

static void test_two_devices(void **state)
{
    (void)state;
    check(mu_mirrored_strategy(.devices = devices));
}

// Central storage: both devices copy the only copy of each variable; with one device everything is there.
static void test_central_storage(void **state)
{
    (void)state;
    static const char *const processors[] = {"CPU:0", "CPU:1", NULL};
    result native, central, loops;
    mu_strategy *strategy = mu_central_storage_strategy(.compute_devices = devices);
    train(mu_central_storage_strategy(.compute_devices = processors), 1, false, &native);
    train(strategy, 1, false, &central);
    train(strategy, 5, false, &loops);
    same(&native, &central);
    same(&native, &loops);
    assert_int_equal(central.launched, EPOCHS * 19); // one launch for both devices in each step
    assert_true(loops.launched < central.launched / 2);
    mu_strategy *alone = mu_central_storage_strategy(.compute_devices = (const char *const[]){devices[1], NULL});
    assert_int_equal(mu_strategy_parameter_device_count(alone), 1);
    assert_string_equal(mu_strategy_parameter_device(alone, 0), devices[1]);
}

// On other devices the steps run one by one.
static void test_native(void **state)
{
    (void)state;
    result one, loops;
    train(mu_one_device_strategy("CPU:0"), 1, true, &one);
    train(mu_one_device_strategy("CPU:0"), 5, true, &loops);
    same(&one, &loops);
    assert_int_equal(loops.batch_ends, EPOCHS * 19);
}

static void test_wrong_numbers(void **state)
{
    (void)state;
    static const int64_t wrong[] = {0, -1, 257};
    for (int i = 0; i < 3; i++) {
        mu_model *model = mu_sequential(mu_dense(1));
        assert_int_equal(mu_compile(model, .loss = mu_mean_squared_error_loss(), .steps_per_execution = wrong[i]),
                         MU_INVALID_ARGUMENT);
        assert_non_null(strstr(mu_error_take().message, "steps_per_execution"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_device), cmocka_unit_test(test_two_devices),
                                       cmocka_unit_test(test_central_storage), cmocka_unit_test(test_native),
                                       cmocka_unit_test(test_wrong_numbers)};
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = 2);
    pj_api *counted = malloc(mu__pjrt_plugin("xla_cpu")->size);
    count_launches(counted);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    free(counted);
    return failed;
}
