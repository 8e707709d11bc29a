// Layers of every family on the plugin: outputs, and gradients with respect to the input and the weights, against the
// native engine.
//
// Several models make one program, because compiling takes most of the time. tests/conformance/layers.py compares the
// layers with Keras.
#include "skip.h"

#include "../unit/model/model_test.h"

#include <muster/attention.h>
#include <muster/preprocessing.h>
#include <muster/recurrent.h>

enum { MOST_ROWS = 16, MOST_RESULTS = 200 };

typedef struct row {
    const char *name;
    mu_layer *layer;
    mu_tensor *x;
    bool training;
    mu_model *model; // the layer behind a dense one
} row;

static mu_value *outputs_and_gradients(mu_value *arguments, void *arg)
{
    row *rows = arg;
    mu_value *results[MOST_RESULTS];
    int n = 0;
    for (int i = 0; i < mu_value_count(arguments); i++) {
        mu_tensor *x = mu_at(arguments, i);
        mu_tape *tape = mu_tape_open();
        mu_tensor *y = mu_call(rows[i].model, x, .training = rows[i].training);
        mu_tensor *loss = mu_reduce_sum(mu_multiply(y, y), MU_ALL_AXES);
        mu_value *in_x = mu_gradients(tape, loss, mu_list(mu_of(x), MU_END));
        mu_value *in_weights = mu_gradients(tape, loss, mu_trainable_variables(rows[i].model));
        mu_tape_close(tape);
        if (!in_x || !in_weights)
            return NULL;
        results[n++] = mu_of(y);
        results[n++] = mu_of(mu_at(in_x, 0));
        for (int k = 0; k < mu_value_count(in_weights); k++)
            results[n++] = mu_of(mu_at(in_weights, k));
    }
    return mu_list_of(n, results);
}

static mu_value *run_on(const char *device, int n, row *rows)
{
    mu_value *inputs[MOST_ROWS];
    for (int i = 0; i < n; i++)
        inputs[i] = mu_of(rows[i].x);
    mu_function *function =
        mu_function_new(outputs_and_gradients, rows, .batch_axes = (const int[]){MU_NO_BATCH}, .n_batch_axes = 1);
    mu_value *results = mu_run(mu_one_device_strategy(device), function, mu_list_of(n, inputs));
    if (!results)
        fail_msg("on %s, %s and behind it: %s", device, rows[0].name, mu_error_message());
    return results;
}

static void compare(int n, row *rows)
{
    for (int i = 0; i < n; i++) {
        rows[i].model = mu_sequential(mu_dense(4, .activation = "tanh"), rows[i].layer);
        assert_non_null(mu_call(rows[i].model, rows[i].x)); // makes the weights
    }
    mu_value *native = run_on("CPU:0", n, rows), *plugin = run_on("XLA_CPU:0", n, rows);
    assert_int_equal(mu_value_count(native), mu_value_count(plugin));
    for (int k = 0; k < mu_value_count(native); k++) {
        const mu_tensor *wanted = mu_at(native, k), *seen = mu_at(plugin, k);
        assert_true(mu__shape_equal(&wanted->shape, &seen->shape));
        for (int64_t e = 0; e < mu__elements(&wanted->shape); e++) {
            const double a = ((const double *)mu__host_read(wanted))[e], b = ((const double *)mu__host_read(seen))[e];
            if (!(fabs(a - b) <= 1e-9 * (1 + fabs(a))))
                fail_msg("%s to %s: result %d, element %lld is %.12g on the plugin, %.12g on the native engine",
                         rows[0].name, rows[n - 1].name, k, (long long)e, b, a);
        }
    }
}

#define ROW(layer, x)                \
    {                                \
#layer, layer, x, true, NULL \
    }

static void test_spatial_layers(void **state)
{
    (void)state;
    mu_tensor *line = numbers(3, (int64_t[]){2, 7, 4}, 1), *image = numbers(4, (int64_t[]){2, 5, 4, 4}, 2);
    mu_tensor *volume = numbers(5, (int64_t[]){2, 4, 3, 5, 2}, 3);
    row first[] = {
        ROW(mu_conv1d(3, 3, .padding = "causal"), line),
        ROW(mu_conv2d(4, 3, .padding = "same", .strides = 2), image),
        ROW(mu_conv2d(4, 2, .groups = 2, .dilation_rate = 2), image),
        ROW(mu_conv3d(2, 2, .strides = 2), volume),
        ROW(mu_conv1d_transpose(3, 3, .strides = 2, .output_padding = 1), line),
        ROW(mu_conv2d_transpose(3, .kernel_size_per_axis = {3, 2}, .strides = 2, .padding = "same"), image),
        ROW(mu_depthwise_conv1d(3, .depth_multiplier = 2), line),
        ROW(mu_separable_conv2d(3, 2), image),
    };
    row second[] = {
        ROW(mu_max_pool2d(2), image),
        ROW(mu_max_pool1d(), line),
        ROW(mu_average_pool3d(), volume),
        ROW(mu_global_max_pool1d(), line),
        ROW(mu_adaptive_average_pool1d(3), line),
        ROW(mu_up_sampling2d(.factor_per_axis = {1, 3}, .interpolation = "bilinear"), image),
        ROW(mu_zero_padding3d(), volume),
        ROW(mu_cropping2d(1), image),
    };
    compare(MU_COUNT(first), first);
    compare(MU_COUNT(second), second);
}

static void test_other_layers(void **state)
{
    (void)state;
    mu_tensor *line = numbers(3, (int64_t[]){2, 5, 4}, 1), *image = numbers(4, (int64_t[]){2, 5, 4, 4}, 2);
    row first[] = {
        ROW(mu_batch_normalization(), image),
        {"batch normalization, not training", mu_batch_normalization(), image, false, NULL},
        ROW(mu_layer_normalization(), line),
        ROW(mu_group_normalization(.groups = 2), image),
        ROW(mu_unit_normalization(), line),
        ROW(mu_prelu(.shared_axes = {1}), line),
        ROW(mu_einsum_dense("abc,cde->abde", {MU_UNKNOWN, 2, 3}, .bias_axes = "e"), line),
        ROW(mu_flatten(), line),
    };
    row second[] = {
        ROW(mu_lstm(3, .return_sequences = true), line),
        ROW(mu_gru(3), line),
        ROW(mu_simple_rnn(3), line),
    };
    compare(MU_COUNT(first), first);
    compare(MU_COUNT(second), second);
}

// Returns a layer of one tensor that passes it n times to a layer of n tensors.
static mu_layer *of_itself(mu_layer *layer, int n)
{
    mu_tensor *x = mu_input({5, 4});
    mu_value *inputs = n == 2 ? mu_list(x, x, MU_END) : mu_list(x, x, x, MU_END);
    return mu_model_new(.inputs = mu_list(x, MU_END), .output = mu_call(layer, .inputs = inputs));
}

static void test_sequences_and_attention(void **state)
{
    (void)state;
    mu_tensor *line = numbers(3, (int64_t[]){2, 5, 4}, 1), *image = numbers(4, (int64_t[]){2, 3, 4, 4}, 2);
    row rows[] = {
        ROW(mu_bidirectional(mu_gru(2, .return_sequences = true)), line),
        ROW(mu_time_distributed(mu_dense(3)), line),
        ROW(mu_conv_lstm1d(2, 3), image),
        ROW(of_itself(mu_attention(.use_scale = true, .use_causal_mask = true), 2), line),
        ROW(of_itself(mu_additive_attention(), 3), line),
        ROW(of_itself(mu_multi_head_attention(2, 3, .use_causal_mask = true), 2), line),
        ROW(of_itself(mu_grouped_query_attention(3, 4, 2), 2), line),
        ROW(mu_rms_normalization(), line),
    };
    compare(MU_COUNT(rows), rows);
}

// ---- Layers that draw numbers -------------------------------------------------------------------

static void draw_layers(mu_layer *out[], int *n)
{
    mu_layer *const layers[] = {
        mu_dropout(.25, .seed = 1),
        mu_spatial_dropout2d(.25, .seed = 2),
        mu_alpha_dropout(.25, .seed = 3),
        mu_gaussian_dropout(.25, .seed = 4),
        mu_gaussian_noise(.5, .seed = 5),
        mu_random_flip(.seed = 6),
        mu_random_brightness({-.2, .2}, .value_range = {-1, 1}, .seed = 7),
        mu_random_contrast({.5, .25}, .seed = 8),
        mu_random_rotation({-.25, .25}, .seed = 9),
        mu_random_zoom({-.2, .2}, .seed = 10),
        mu_random_translation({-.2, .2}, {-.2, .2}, .seed = 11),
    };
    *n = (int)MU_COUNT(layers);
    memcpy(out, layers, sizeof layers);
}

static mu_value *call_all(mu_value *arguments, void *arg)
{
    mu_value *results[MOST_ROWS];
    mu_layer **layers = arg;
    int n = 0;
    for (; layers[n]; n++)
        results[n] = mu_of(mu_call(layers[n], mu_at(arguments, 0), .training = true));
    return mu_list_of(n, results);
}

// The same seeds draw the same numbers on both engines, twice.
static void test_layers_that_draw(void **state)
{
    (void)state;
    static const char *const devices[] = {"CPU:0", "XLA_CPU:0"};
    mu_tensor *image = numbers(4, (int64_t[]){2, 6, 5, 3}, 2);
    mu_value *drawn[2][2];
    int n = 0;
    for (int d = 0; d < 2; d++) {
        mu_layer *layers[MOST_ROWS] = {NULL};
        draw_layers(layers, &n);
        mu_function *function = mu_function_new(call_all, layers);
        for (int i = 0; i < 2; i++)
            if (!(drawn[d][i] = mu_run(mu_one_device_strategy(devices[d]), function, mu_list(image, MU_END))))
                fail_msg("on %s: %s", devices[d], mu_error_message());
    }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < n; k++) {
            const mu_tensor *wanted = mu_at(drawn[0][i], k), *seen = mu_at(drawn[1][i], k);
            assert_true(mu__shape_equal(&wanted->shape, &seen->shape));
            assert_near(mu__host_read(seen), mu__host_read(wanted), mu_tensor_elements(wanted), 1e-6);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(test_spatial_layers), MODEL_TEST(test_other_layers),
                                       MODEL_TEST(test_sequences_and_attention), MODEL_TEST(test_layers_that_draw)};
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
