// .jit_compile on CPU devices: functions and models run as programs of the CPU plugin, or fail and name what is
// missing.
#include "changed_table.h"
#include "skip.h"

#include "engine/engine.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const pj_api *own;
static atomic_int compiled, most_devices;

static pj_error *count_compile(void *args)
{
    compiled++;
    return own->functions[PJ_CLIENT_COMPILE](args);
}
static pj_error *count_devices(void *args)
{
    const int n = (int)((pj_execute_args *)args)->n_devices;
    most_devices = MU_MAX(most_devices, n);
    return own->functions[PJ_LOADED_EXECUTE](args);
}

static int begin(void **state)
{
    static const changed_function changed[] = {{PJ_CLIENT_COMPILE, count_compile}, {PJ_LOADED_EXECUTE, count_devices}};
    mu_init(.cpu_devices = 2);
    mu_device *device = mu__device_by_name(mu__runtime(), "XLA_CPU:0");
    if (!device)
        return -1;
    *state = change_table(device->engine_client, MU_COUNT(changed), changed, &own);
    compiled = most_devices = 0;
    return 0;
}

static void expect_error(mu_status code, const char *part)
{
    const mu_error error = mu_error_take();
    if (error.code != code || !strstr(error.message, part))
        fail_msg("got %s: %s\nwanted \"%s\"", mu_status_name(error.code), error.message, part);
}

static mu_value *step(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_variable_assign_add(arg, mu_reduce_sum(x, MU_ALL_AXES));
    return mu_of(mu_all_reduce(MU_SUM, mu_multiply(x, x)));
}

static double total(mu_value *value)
{
    mu_tensor *tensor = value ? mu_value_tensor(mu_value_at(mu_local_results(mu_get_strategy(), value), 0)) : NULL;
    if (!tensor)
        fail_msg("%s", mu_error_message());
    return mu_scalar(mu_reduce_sum(tensor, MU_ALL_AXES));
}

// On one device and on two, the results and the variable equal those of the native engine, which computed none of them.
static void test_a_function(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        mu_strategy *strategy = mu_mirrored_strategy(.replicas = n);
        double results[2], values[2];
        for (int jit = 0; jit < 2; jit++) {
            mu_variable *v = NULL;
            const int before = compiled;
            MU_SCOPE(strategy) {
                v = mu_variable_new(mu_constant(MU_F32, 1), "v", .aggregation = MU_AGGREGATION_SUM);
                mu_function *function = mu_function_new(step, v, .jit_compile = jit == 1);
                mu_value *x = mu_list(mu_of(mu_vector_f32(3, (float[]){1, 2, 3})), MU_END);
                for (int i = 0; i < 3; i++)
                    results[jit] = total(mu_run(strategy, function, x));
            }
            values[jit] = mu_scalar(mu_variable_read(v));
            assert_int_equal(compiled - before, jit);
        }
        assert_true(results[0] == results[1] && results[0] == 14.0 * n);
        assert_true(values[0] == values[1]);
        assert_int_equal(most_devices, n);
    }
}

static void fit(bool jit, double *loss, double *predicted)
{
    float x[24], y[24];
    for (int i = 0; i < 24; i++) {
        x[i] = (float)(i % 7 - 3) / 4;
        y[i] = 3 * x[i] - 1;
    }
    mu_tensor *inputs = mu_tensor_new(MU_F32, 2, (const int64_t[]){24, 1}, x);
    mu_tensor *targets = mu_tensor_new(MU_F32, 2, (const int64_t[]){24, 1}, y);
    mu_model *model = NULL;
    mu_set_seed(5);
    MU_SCOPE(mu_mirrored_strategy())
        model = mu_sequential(mu_dense(4, .activation = "tanh"), mu_dense(1));
    mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0.1), .loss = "mse", .jit_compile = jit);
    mu_fit(model, inputs, targets, .batch_size = 8, .epochs = 2, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
    *loss = mu_history_last(mu_evaluate(model, inputs, targets, .batch_size = 8, .verbose = MU_VERBOSE_SILENT), "loss");
    *predicted = mu_scalar(mu_reduce_sum(mu_predict(model, inputs, .verbose = MU_VERBOSE_SILENT), MU_ALL_AXES));
    assert_int_equal(mu_error_code(), MU_OK);
}

static void test_a_model(void **state)
{
    (void)state;
    double losses[2], predicted[2];
    fit(false, &losses[0], &predicted[0]);
    assert_int_equal(compiled, 0);
    fit(true, &losses[1], &predicted[1]);
    assert_true(compiled >= 3); // training, evaluation, prediction
    assert_true(fabs(losses[0] - losses[1]) < 1e-5 && fabs(predicted[0] - predicted[1]) < 1e-4);
}

static void test_what_is_missing_is_said(void **state)
{
    (void)state;
    char *before = strdup(getenv("PJRT_NAMES_AND_LIBRARY_PATHS"));
    unsetenv("PJRT_NAMES_AND_LIBRARY_PATHS");
    mu_init(.cpu_devices = 2);
    mu_value *x = mu_list(mu_of(mu_vector_f32(3, (float[]){1, 2, 3})), MU_END);
    mu_variable *v = mu_variable_new(mu_constant(MU_F32, 1), "v");
    assert_null(mu_run(NULL, mu_function_new(step, v, .jit_compile = true), x));
    expect_error(MU_FAILED_PRECONDITION, "'step' has .jit_compile = true, but there is no XLA_CPU:0");
    mu_run(NULL, mu_function_new(step, v, .jit_compile = true), x);
    expect_error(MU_FAILED_PRECONDITION, "muster plugin install cpu");
    assert_true(mu_scalar(mu_variable_read(v)) == 1);
    mu_exit(true);
    setenv("PJRT_NAMES_AND_LIBRARY_PATHS", before, 1);
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_function, begin, exit_and_free_table),
        cmocka_unit_test_setup_teardown(test_a_model, begin, exit_and_free_table),
        cmocka_unit_test(test_what_is_missing_is_said),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
