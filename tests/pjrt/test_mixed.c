// fit under "mixed_bfloat16" and "mixed_float16" on an XLA device: it trains, weights stay float32, and losses and
// weights equal those of the native engine within the rounding of the half type, although the engines round in
// different places. The results of float32 are farther away than the two engines are from each other.
#include "skip.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 96, SIDE = 8, CLASSES = 4, EPOCHS = 6, MOST_WEIGHTS = 20000 };

typedef struct training {
    double losses[EPOCHS];
    float weights[MOST_WEIGHTS];
    int64_t n_weights;
} training;

// Images with a bright bar whose place is the class.
static mu_value *samples(void)
{
    static float images[ROWS * SIDE * SIDE];
    static int32_t labels[ROWS];
    uint32_t state = 12345u;
    for (int i = 0; i < ROWS * SIDE * SIDE; i++) {
        state = state * 1664525u + 1013904223u;
        images[i] = (float)(state >> 8) * 0x1p-24f;
    }
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i * 7 % CLASSES;
        for (int k = 0; k < SIDE; k++)
            images[(i * SIDE + 2 * labels[i]) * SIDE + k] += 0.5f;
    }
    return mu_list(mu_of(mu_tensor_new(MU_F32, 4, (int64_t[]){ROWS, SIDE, SIDE, 1}, images)),
                   mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){ROWS}, labels)), MU_END);
}

static void keep_weights(mu_model *model, training *t)
{
    mu_value *weights = mu_model_weights(model);
    for (int i = 0; i < mu_value_count(weights); i++) {
        mu_tensor *tensor = mu_variable_read(mu_value_variable(mu_value_at(weights, i)));
        const int64_t n = mu_tensor_elements(tensor);
        assert_int_equal(mu_tensor_dtype(tensor), MU_F32);
        assert_true(t->n_weights + n <= MOST_WEIGHTS);
        memcpy(t->weights + t->n_weights, mu_tensor_data(tensor), sizeof(float) * (size_t)n);
        t->n_weights += n;
    }
}

static training train(const char *device, const char *policy)
{
    mu_pool *pool = mu_pool_open();
    training t = {0};
    mu_model *model = NULL;
    mu_set_seed(1);
    mu_set_dtype_policy(policy);
    MU_SCOPE(mu_one_device_strategy(device)) {
        model = mu_sequential(mu_conv2d(8, 3), mu_batch_normalization(), mu_activation("relu"), mu_flatten(),
                              mu_dense(24, .activation = "gelu"), mu_layer_normalization(),
                              mu_dense(CLASSES, .activation = "softmax"));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0.05, .momentum = 0.9),
                   .loss = "sparse_categorical_crossentropy");
    }
    mu_history *history =
        mu_fit(model, samples(), .epochs = EPOCHS, .batch_size = 32, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s, %s: %s", device, policy, mu_error_message());
    for (int i = 0; i < EPOCHS; i++)
        t.losses[i] = mu_history_at(history, "loss", i);
    keep_weights(model, &t);
    mu_set_dtype_policy("float32");
    mu_pool_close(pool);
    return t;
}

// The largest difference of losses, and the mean difference of weights relative to the mean weight.
static double losses_apart(const training *a, const training *b)
{
    double apart = 0;
    for (int i = 0; i < EPOCHS; i++)
        apart = fmax(apart, fabs(a->losses[i] - b->losses[i]));
    return apart;
}

static double weights_apart(const training *a, const training *b)
{
    double apart = 0, size = 0;
    assert_int_equal(a->n_weights, b->n_weights);
    for (int64_t i = 0; i < a->n_weights; i++) {
        apart += fabs((double)a->weights[i] - b->weights[i]);
        size += fabs((double)a->weights[i]);
    }
    return apart / size;
}

// `unit`: half of the half type's step at 1. A loss of up to 1.5 passes through some ten rounded operations in a step,
// and an error in one step carries over to the steps after it.
static void trains_as_the_native_engine(const char *policy, double unit)
{
    const training native = train("CPU:0", policy), xla = train("XLA_CPU:0", policy), exact = train("CPU:0", "float32");
    const double losses = losses_apart(&native, &xla) / unit, weights = weights_apart(&native, &xla) / unit;
    const double rounding = weights_apart(&native, &exact) / unit;
    print_message("%s: loss %.4f to %.4f; from the native engine losses are %.2g and weights %.2g roundings apart, "
                  "weights of float32 %.2g\n",
                  policy, xla.losses[0], xla.losses[EPOCHS - 1], losses, weights, rounding);
    assert_true(xla.losses[EPOCHS - 1] < 0.5 * xla.losses[0]);
    assert_true(losses <= 8);
    assert_true(weights <= 8);
    assert_true(rounding > 0.02); // the half type was in use
}

static void mixed_bfloat16_trains(void **state)
{
    (void)state;
    trains_as_the_native_engine("mixed_bfloat16", 0x1p-8);
}

static void mixed_float16_trains(void **state)
{
    (void)state;
    trains_as_the_native_engine("mixed_float16", 0x1p-11);
}

static int start(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = 1) != MU_OK;
}

static int end(void **state)
{
    (void)state;
    return mu_exit(true);
}

int main(void)
{
    if (plugin_missing())
        return SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixed_bfloat16_trains), cmocka_unit_test(mixed_float16_trains)};
    return cmocka_run_group_tests(tests, start, end);
}
