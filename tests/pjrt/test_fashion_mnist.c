// Example E's training (examples/tpu.c) on 1, 2, 4 and 8 XLA devices: the losses of MirroredStrategy on the native
// engine, and the same weights whatever the number of devices.
//
// An all-reduce adds the replicas' parts in another order than one replica adds its samples, so gradients differ in
// their last bits; Adam takes a step of its full rate even where a gradient is nothing but rounding. In float32 that
// amounts to WEIGHTS_APART after 8 steps and grows from there: losses are 1e-3 apart after 60. In float64 the same
// programs stay within WIDE_APART of the native engine's weights (seen: 1.5e-15 after 60 steps with BATCH samples; the
// test takes fewer, since it is slow), which shows that rounding is the only cause. The argument is the number of
// steps; 0: a whole epoch.
#include "skip.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BATCH = 128, WIDE_BATCH = 32, MOST_DEVICES = 8, MOST_STEPS = 469, MOST_WEIGHTS = 300000 };
#define LOSS_APART    1e-4
#define WEIGHTS_APART 2e-4
#define WIDE_APART    1e-9

static int64_t n_steps = 8;

typedef struct training {
    double losses[MOST_STEPS], sum_before;
    int n_losses;
    double *weights;
    int64_t n_weights;
} training;

// The log has the mean loss of the epoch so far.
static mu_status keep_loss(const mu_logs *logs, void *arg)
{
    training *t = arg;
    const double sum = logs->values[0] * (double)logs->step;
    if (t->n_losses < MOST_STEPS)
        t->losses[t->n_losses++] = sum - t->sum_before;
    t->sum_before = sum;
    return MU_OK;
}

static void keep_weights(mu_model *model, training *t)
{
    mu_value *weights = mu_model_weights(model);
    t->weights = calloc(MOST_WEIGHTS, sizeof(double));
    for (int i = 0; i < mu_value_count(weights); i++) {
        mu_tensor *tensor = mu_variable_read(mu_value_variable(mu_value_at(weights, i)));
        const int64_t n = mu_tensor_elements(tensor);
        assert_true(t->n_weights + n <= MOST_WEIGHTS);
        memcpy(t->weights + t->n_weights, mu_tensor_data(mu_cast(tensor, MU_F64)), sizeof(double) * (size_t)n);
        t->n_weights += n;
    }
}

static training train(mu_strategy *strategy, const char *policy, int64_t batch)
{
    mu_pool *pool = mu_pool_open();
    training t = {0};
    mu_model *model = NULL;
    mu_set_seed(1);
    assert_int_equal(mu_set_dtype_policy(policy), MU_OK);
    mu_dataset *data = mu_dataset_batch(mu_dataset_shuffle(mu_dataset_fashion_mnist("train"), 60000, .seed = 1), batch);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_conv2d(32, 3, .activation = "relu"), mu_max_pool2d(2),
                              mu_conv2d(64, 3, .activation = "relu"), mu_max_pool2d(2), mu_flatten(),
                              mu_dense(128, .activation = "relu"), mu_dense(10));
        mu_compile(model, .optimizer = mu_adam(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .metrics = MU_METRICS(mu_accuracy()));
    }
    mu_callback *callback = mu_callback_new(.on_batch_end = keep_loss, .arg = &t);
    if (!mu_fit(model, n_steps > 0 ? mu_dataset_take(data, n_steps) : data, .callbacks = MU_CALLBACKS(callback),
                .verbose = MU_VERBOSE_SILENT))
        fail_msg("%s: %s", mu_strategy_name(strategy), mu_error_message());
    keep_weights(model, &t);
    mu_pool_close(pool);
    return t;
}

static double largest(const training *a, const training *b, bool weights)
{
    double apart = 0;
    for (int64_t i = 0; i < (weights ? a->n_weights : a->n_losses); i++)
        apart = fmax(apart, weights ? fabs(a->weights[i] - b->weights[i]) : fabs(a->losses[i] - b->losses[i]));
    return apart;
}

static mu_strategy *mirrored(const char *kind, int n)
{
    char names[MOST_DEVICES][16];
    const char *devices[MOST_DEVICES + 1] = {NULL};
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%s:%d", kind, i);
        devices[i] = names[i];
    }
    return mu_mirrored_strategy(.devices = devices);
}

static void test_any_number_of_devices(void **state)
{
    (void)state;
    training first = {0};
    training native = train(mirrored("CPU", 2), "float32", BATCH);
    assert_true(native.n_losses > 0 && native.losses[native.n_losses - 1] < native.losses[0]);
    for (int n = 1; n <= MOST_DEVICES; n *= 2) {
        training xla = train(mirrored("XLA_CPU", n), "float32", BATCH);
        assert_int_equal(xla.n_losses, native.n_losses);
        assert_int_equal(xla.n_weights, native.n_weights);
        const double losses = largest(&native, &xla, false);
        const double weights = n == 1 ? 0 : largest(&first, &xla, true);
        print_message("%d devices, %d steps: losses at most %.2g from the native engine's, weights %.2g from those of "
                      "one device\n",
                      n, xla.n_losses, losses, weights);
        assert_true(losses <= LOSS_APART);
        assert_true(weights <= WEIGHTS_APART);
        if (n == 1)
            first = xla;
        else
            free(xla.weights);
    }
    free(first.weights);
    free(native.weights);
}

static void test_only_rounding_is_different(void **state)
{
    (void)state;
    training native = train(mirrored("CPU", 2), "float64", WIDE_BATCH);
    training xla = train(mirrored("XLA_CPU", 2), "float64", WIDE_BATCH);
    assert_true(native.n_weights > 0 && xla.n_weights == native.n_weights);
    const double weights = largest(&native, &xla, true);
    print_message("float64, %d steps: weights at most %.2g from the native engine's\n", xla.n_losses, weights);
    assert_true(weights <= WIDE_APART);
    free(native.weights);
    free(xla.weights);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_number_of_devices),
                                       cmocka_unit_test(test_only_rounding_is_different)};
    if (argc > 1)
        n_steps = atoll(argv[1]);
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = MOST_DEVICES);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
