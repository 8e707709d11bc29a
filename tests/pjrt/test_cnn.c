// The CNN's whole training step on two engines: the same weights, the same batches, ten steps.
//
// The step is complete: forward pass, loss, gradients, Adam, metrics, state. The losses of the plugin must be within
// 1e-4 of the native engine's, and the final weights close as well; on one device and on two.
#include "skip.h"

#include "engine/engine.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { STEPS = 10, BATCH = 32, SIDE = 28, CLASSES = 10, MOST_WEIGHTS = 300000 };

typedef struct training {
    mu_model *model;
    mu_optimizer *optimizer;
    mu_metric *accuracy;
    int replicas; // each gets the whole batch
    double losses[STEPS], accuracy_at_end;
    int64_t n_weights;
    float *weights;
} training;

static mu_value *train_step(mu_value *batch, void *arg)
{
    training *job = arg;
    mu_tensor *x = mu_at(batch, 0), *y = mu_at(batch, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(job->model, x, .training = true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(y, logits);
    mu_tensor *loss = mu_compute_average_loss(losses, .global_batch_size = BATCH * job->replicas);
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    mu_metric_update(job->accuracy, y, logits);
    return mu_of(loss);
}

// Images that can be learnt: noise, and a bright bar whose place is the class.
static mu_value *make_batch(int step)
{
    static float images[BATCH * SIDE * SIDE];
    static int32_t labels[BATCH];
    uint32_t state = 12345u + (uint32_t)step;
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) {
        state = state * 1664525u + 1013904223u;
        images[i] = (float)(state >> 8) * 0x1p-24f * 0.5f;
    }
    for (int i = 0; i < BATCH; i++) {
        labels[i] = (i * 7 + step) % CLASSES;
        for (int k = 0; k < 2 * SIDE; k++)
            images[i * SIDE * SIDE + (2 + 2 * labels[i]) * SIDE + k] += 0.5f;
    }
    const int64_t image_dims[] = {BATCH, SIDE, SIDE, 1}, label_dims[] = {BATCH};
    mu_tensor *x = mu_tensor_new(MU_F32, 4, image_dims, images), *y = mu_tensor_new(MU_I32, 1, label_dims, labels);
    return mu_list(mu_of(x), mu_of(y), MU_END);
}

static void keep_weights(training *job)
{
    mu_value *weights = mu_model_weights(job->model);
    for (int i = 0; i < mu_value_count(weights); i++) {
        mu_tensor *tensor = mu_variable_read((mu_variable *)mu_value_at(weights, i)->leaf);
        const int64_t n = mu_tensor_elements(tensor);
        assert_true(job->n_weights + n <= MOST_WEIGHTS);
        memcpy(job->weights + job->n_weights, mu_tensor_data(tensor), sizeof(float) * (size_t)n);
        job->n_weights += n;
    }
}

// Replicas that see the same batch have the same loss; the message shows which one differs.
static void same_on_all_replicas(mu_strategy *strategy, mu_value *losses, int step)
{
    const mu_value *all = mu_local_results(strategy, losses);
    const double first = mu_scalar(mu_value_tensor(mu_value_at(all, 0)));
    for (int r = 1; r < mu_value_count(all); r++) {
        const double other = mu_scalar(mu_value_tensor(mu_value_at(all, r)));
        if (fabs(first - other) > 1e-5)
            fail_msg("step %d: loss %.7f on replica 0, %.7f on replica %d", step, first, other, r);
    }
}

static void train(mu_strategy *strategy, training *job)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(1);
    job->replicas = mu_num_replicas_in_sync(strategy);
    job->weights = calloc(MOST_WEIGHTS, sizeof(float));
    MU_SCOPE(strategy) {
        job->model = mu_sequential(mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
                                   mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2), mu_flatten(),
                                   mu_dense(128, .activation = "relu"), mu_dense(10));
        job->optimizer = mu_adam(.learning_rate = 1e-3);
        job->accuracy = mu_accuracy();
    }
    mu_function *step = mu_function_new(train_step, job);
    for (int i = 0; i < STEPS; i++) {
        mu_value *result = mu_run(strategy, step, make_batch(i));
        if (!result)
            fail_msg("step %d of %s: %s", i, mu_strategy_name(strategy), mu_error_message());
        same_on_all_replicas(strategy, result, i);
        job->losses[i] = mu_scalar(mu_reduce(strategy, MU_SUM, result));
    }
    job->accuracy_at_end = mu_metric_result(job->accuracy);
    keep_weights(job);
    assert_int_equal(mu_error_code(), MU_OK);
    mu_pool_close(pool);
}

static void compare(const training *native, const training *plugin)
{
    double apart = 0;
    for (int i = 0; i < STEPS; i++) {
        print_message("step %d: loss %.7f native, %.7f plugin\n", i, native->losses[i], plugin->losses[i]);
        assert_true(fabs(native->losses[i] - plugin->losses[i]) <= 1e-4);
    }
    assert_true(fabs(native->accuracy_at_end - plugin->accuracy_at_end) < 1e-6);
    assert_int_equal(native->n_weights, plugin->n_weights);
    for (int64_t i = 0; i < native->n_weights; i++)
        apart = fmax(apart, fabs((double)native->weights[i] - plugin->weights[i]));
    print_message("%lld weights, at most %.2g apart\n", (long long)native->n_weights, apart);
    assert_true(apart < 5e-3); // Adam moves a weight whose gradient is rounding alone by its rate
}

static void test_same_losses(void **state)
{
    (void)state;
    training native = {0}, plugin = {0};
    train(mu_one_device_strategy("CPU:0"), &native);
    train(mu_one_device_strategy("XLA_CPU:0"), &plugin);
    assert_true(native.losses[STEPS - 1] < native.losses[0]);
    compare(&native, &plugin);
    free(native.weights);
    free(plugin.weights);
}

// Two replicas that see the same batches learn as one does; their gradients are all-reduced between programs.
static void test_same_losses_on_two_replicas(void **state)
{
    (void)state;
    training native = {0}, plugin = {0};
    static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", NULL};
    train(mu_one_device_strategy("CPU:0"), &native);
    train(mu_mirrored_strategy(.devices = devices), &plugin);
    assert_int_equal(plugin.replicas, 2);
    compare(&native, &plugin);
    free(native.weights);
    free(plugin.weights);
}

// TPUStrategy takes the plugin's devices as its cores.
static void test_same_losses_by_tpu_strategy(void **state)
{
    (void)state;
    training native = {0}, plugin = {0};
    train(mu_one_device_strategy("CPU:0"), &native);
    assert_non_null(mu_tpu_initialize(NULL));
    assert_ptr_equal(mu__tpu_core(mu__runtime(), 1), mu__device_by_name(mu__runtime(), "XLA_CPU:1"));
    train(mu_tpu_strategy(), &plugin);
    assert_int_equal(plugin.replicas, 2);
    compare(&native, &plugin);
    free(native.weights);
    free(plugin.weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_losses),
                                       cmocka_unit_test(test_same_losses_on_two_replicas),
                                       cmocka_unit_test(test_same_losses_by_tpu_strategy)};
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = 2);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
