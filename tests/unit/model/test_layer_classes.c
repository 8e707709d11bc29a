// The classes of layers in a table: gradients against differences, and the messages of wrong options and inputs. What
// they compute is compared with Keras (tests/conformance/layers.py).
#include "model/core/layer.h"
#include "model_test.h"

#include <muster/preprocessing.h>
#include <muster/recurrent.h>

// ---- Gradients ----------------------------------------------------------------------------------

static void spatial_gradients_match_differences(void **state)
{
    (void)state;
    mu_tensor *line = numbers(3, (int64_t[]){2, 7, 4}, 1), *image = numbers(4, (int64_t[]){2, 5, 4, 4}, 2),
              *volume = numbers(5, (int64_t[]){2, 4, 3, 5, 2}, 3);
    const struct {
        mu_layer *layer;
        mu_tensor *x;
    } rows[] = {
        {mu_conv1d(3, 3, .padding = "causal"), line},
        {mu_conv3d(2, 2, .strides = 2), volume},
        {mu_conv1d_transpose(3, 3, .strides = 2, .output_padding = 1), line},
        {mu_conv2d_transpose(3, .kernel_size_per_axis = {3, 2}, .strides = 2, .padding = "same"), image},
        {mu_conv3d_transpose(2, 2), volume},
        {mu_depthwise_conv1d(3, .depth_multiplier = 2), line},
        {mu_separable_conv1d(3, 3, .strides = 2), line},
        {mu_separable_conv2d(3, 2), image},
        {mu_max_pool1d(), line},
        {mu_average_pool3d(), volume},
        {mu_global_max_pool1d(), line},
        {mu_global_average_pool3d(), volume},
        {mu_adaptive_max_pool2d(3), image},
        {mu_adaptive_average_pool1d(3), line},
        {mu_up_sampling1d(), line},
        {mu_up_sampling3d(), volume},
        {mu_up_sampling2d(.factor_per_axis = {1, 3}, .interpolation = "bilinear"), image},
        {mu_zero_padding3d(), volume},
        {mu_cropping2d(1), image},
        {mu_cropping1d(.cropping_per_side = {2, 0}), line},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        check_gradients(mu_sequential(mu_dense(4, .activation = "tanh"), rows[i].layer), rows[i].x);
}

static void other_gradients_match_differences(void **state)
{
    (void)state;
    mu_tensor *line = numbers(3, (int64_t[]){2, 7, 4}, 1);
    mu_layer *const layers[] = {
        mu_relu_layer(.max_value = .5, .negative_slope = .25, .threshold = .125),
        mu_prelu(.shared_axes = {1}),
        mu_unit_normalization(),
        mu_layer_normalization(.gamma_initializer = "random_normal"),
        mu_einsum_dense("abc,cde->abde", {MU_UNKNOWN, 2, 3}, .bias_axes = "e"),
        mu_einsum_dense("ab...,bc->ac...", {5}, .bias_axes = "c"),
        mu_layer_normalization(.axes = (int[]){1, 2}, .n_axes = 2, .gamma_initializer = "random_normal"),
        mu_rms_normalization(.axes = (int[]){1}, .n_axes = 1),
        mu_batch_normalization(.axis = 1),
        mu_group_normalization(.groups = 7, .axis = 1, .gamma_initializer = "random_normal"),
    };
    for (size_t i = 0; i < MU_COUNT(layers); i++)
        check_gradients(mu_sequential(mu_dense(4, .activation = "tanh"), layers[i]), line);
}

// ---- Random numbers -----------------------------------------------------------------------------

static mu_tensor *train(mu_layer *layer, mu_tensor *x)
{
    mu_tensor *y = mu_call(mu_sequential(layer), x, .training = true);
    if (!y)
        fail_msg("%s", mu_error_message());
    return y;
}

static void dropout_takes_whole_channels(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F64, 4, (int64_t[]){20, 2, 3, 50});
    const double *y = doubles(train(mu_spatial_dropout2d(.25), x));
    int dropped = 0;
    for (int b = 0; b < 20; b++)
        for (int c = 0; c < 50; c++) {
            const double first = y[b * 300 + c];
            assert_true(first == 0 || fabs(first - 4. / 3) < 1e-12);
            dropped += first == 0;
            for (int position = 1; position < 6; position++)
                assert_true(y[b * 300 + position * 50 + c] == first);
        }
    assert_in_range(dropped, 200, 300);
}

// The steps of a sequence share one draw for each feature. With a noise shape of one row, all rows have the draw of the
// first.
static void dropout_draws_in_a_shape(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F64, 3, (int64_t[]){50, 6, 4});
    const double *y = doubles(train(mu_dropout(.25, .noise_shape = {MU_UNKNOWN, 1, MU_UNKNOWN}), x));
    const double *z = doubles(train(mu_alpha_dropout(.25, .noise_shape = {1, MU_UNKNOWN, 1}), x));
    int dropped = 0;
    for (int b = 0; b < 50; b++)
        for (int t = 0; t < 6; t++)
            for (int c = 0; c < 4; c++) {
                const int at = (b * 6 + t) * 4 + c;
                assert_number(y[at], y[b * 24 + c], 0);
                assert_number(z[at], z[t * 4], 0);
                dropped += y[at] == 0;
            }
    assert_in_range(dropped, 6 * 25, 6 * 80);
    assert_null(mu_dropout(.25, .noise_shape = {MU_UNKNOWN, 2}));
    expect_error(MU_INVALID_ARGUMENT, "axis 1 of .noise_shape is 2; give 1");
    assert_null(mu_gaussian_dropout(.25, .noise_shape = {MU_UNKNOWN, 1}));
    expect_error(MU_INVALID_ARGUMENT, "in a shape of its own; leave .noise_shape out");
    assert_null(mu_call(mu_dropout(.25, .noise_shape = {MU_UNKNOWN, 1}), x));
    expect_error(MU_INVALID_ARGUMENT, ".noise_shape has 2 axes, and the input 3");
}

// Dropped elements give 0 whatever their values are; every element's gradient is its factor.
static void dropped_infinities_are_zero(void **state)
{
    (void)state;
    mu_tensor *x = mu_fill(MU_F64, 3, (int64_t[]){50, 6, 4}, INFINITY);
    mu_layer *const layers[] = {mu_dropout(.25), mu_dropout(.25, .noise_shape = {MU_UNKNOWN, 1, MU_UNKNOWN}),
                                mu_spatial_dropout1d(.25)};
    for (size_t k = 0; k < MU_COUNT(layers); k++) {
        mu_tape *tape = mu_tape_open();
        mu_tensor *kept = train(layers[k], x);
        mu_value *gradients = mu_gradients(tape, mu_reduce_sum(kept, MU_ALL_AXES), mu_list(x, MU_END));
        mu_tape_close(tape);
        const double *y = doubles(kept), *of_x = doubles(mu_value_tensor(mu_value_at(gradients, 0)));
        int dropped = 0;
        for (int i = 0; i < 50 * 6 * 4; i++) {
            assert_true(y[i] == 0 || y[i] == INFINITY);
            assert_number(of_x[i], y[i] == 0 ? 0 : 4. / 3, 1e-15);
            dropped += y[i] == 0;
        }
        assert_in_range(dropped, 6 * 25, 6 * 80);
    }
}

static void axes_and_moments_are_checked(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F64, 3, (int64_t[]){5, 6, 4});
    static const int wrong[][2] = {{2, 1}, {1, 1}, {0, 1}, {1, 3}};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        assert_null(mu_call(mu_layer_normalization(.axes = wrong[i], .n_axes = 2), x));
        expect_error(MU_INVALID_ARGUMENT, "they must lie from 1 to 2, or be negative");
    }
    assert_null(mu_call(mu_batch_normalization(.axis = 3), x));
    expect_error(MU_INVALID_ARGUMENT, ".axis is 3; it must lie from 1 to 2");
    assert_null(mu_call(mu_group_normalization(.groups = 2, .axis = -3), x));
    expect_error(MU_INVALID_ARGUMENT, ".axis is -3; it must lie from 1 to 2");
    assert_null(mu_normalization(.mean = (double[]){1}, .n_mean = 1));
    expect_error(MU_INVALID_ARGUMENT, "1 numbers in .mean and 0 in .variance; give both");
    mu_layer *given =
        mu_normalization(.mean = (double[]){1, 2}, .n_mean = 2, .variance = (double[]){1, 1}, .n_variance = 2);
    assert_null(mu_call(given, x));
    expect_error(MU_INVALID_ARGUMENT, ".mean has 2 numbers, and the input [?, 6, 4] has 4 along .axes");
    REFUSED_STATUS(mu_adapt(given, x), MU_INVALID_ARGUMENT, "was given its .mean and .variance");
}

// Softmax excludes elements; a factor of 0 would not do. A mask of numbers keeps those above 0.5, as in Keras.
static void masks_of_softmax(void **state)
{
    (void)state;
    mu_tensor *x = mu_zeros(MU_F64, 2, (int64_t[]){2, 3}), *column = mu_zeros(MU_F64, 2, (int64_t[]){2, 1});
    assert_null(mu_call(mu_softmax(), x, .mask = mu_ones(MU_BOOL, 3, (int64_t[]){4, 2, 3})));
    expect_error(MU_INVALID_ARGUMENT, "its mask has shape [4, 2, 3] and its input [2, 3]; each axis of the mask");
    assert_null(mu_call(mu_softmax(), column, .mask = mu_ones(MU_BOOL, 2, (int64_t[]){2, 3})));
    expect_error(MU_INVALID_ARGUMENT, "its mask has shape [2, 3] and its input [2, 1]");
    mu_tensor *shares = mu_tensor_new(MU_F64, 1, (int64_t[]){3}, (double[]){.25, .5, .75});
    mu_tensor *counts = mu_tensor_new(MU_I32, 2, (int64_t[]){2, 1}, (int32_t[]){0, 2});
    assert_near(doubles(mu_call(mu_softmax(), x, .mask = shares)), (double[]){0, 0, 1, 0, 0, 1}, 6, 0);
    const double third = 1. / 3;
    assert_near(doubles(mu_call(mu_softmax(), x, .mask = counts)), (double[]){0, 0, 0, third, third, third}, 6, 1e-15);
}

// Mean and variance of 40,000 numbers, within five standard errors.
static void noise_has_its_moments(void **state)
{
    (void)state;
    mu_tensor *twos = mu_fill(MU_F64, 2, (int64_t[]){200, 200}, 2),
              *normal = mu_stateless_random_normal(mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){3, 4}), MU_F64,
                                                   2, (int64_t[]){200, 200});
    const struct {
        mu_layer *layer;
        mu_tensor *x;
        double mean, variance;
    } rows[] = {
        {mu_gaussian_noise(.5), twos, 2, .25},
        {mu_gaussian_dropout(.2), twos, 2, 4 * .25},
        {mu_alpha_dropout(.2), normal, 0, 1},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        mu_tensor *y = train(rows[i].layer, rows[i].x);
        assert_number(mu_scalar(mu_reduce_mean(y, MU_ALL_AXES)), rows[i].mean, .03);
        assert_number(mu_scalar(mu_reduce_variance(y, MU_ALL_AXES)), rows[i].variance, .04);
    }
}

static mu_value *call_traced(mu_value *arguments, void *layer)
{
    return mu_of(mu_call(layer, mu_at(arguments, 0), .training = true));
}

// The size of the batch is unknown in a trace; the noise has it all the same.
static void noise_in_a_trace(void **state)
{
    (void)state;
    mu_layer *const layers[] = {mu_gaussian_noise(.5), mu_spatial_dropout1d(.5), mu_alpha_dropout(.5)};
    for (size_t i = 0; i < MU_COUNT(layers); i++) {
        mu_function *function = mu_function_new(call_traced, layers[i]);
        for (int64_t batch = 2; batch < 4; batch++) {
            mu_tensor *x = mu_ones(MU_F64, 3, (int64_t[]){batch, 8, 3});
            mu_tensor *y = mu_at(mu_run(NULL, function, mu_of(x)), 0);
            if (!y)
                fail_msg("%s", mu_error_message());
            assert_int_equal(mu_tensor_dim(y, 0), batch);
            assert_memory_not_equal(doubles(y), doubles(x), (size_t)batch * 24 * sizeof(double));
        }
        assert_int_equal(mu_function_trace_count(function), 1);
    }
}

// ---- Refusals -----------------------------------------------------------------------------------

static void wrong_numbers_per_axis_are_refused(void **state)
{
    (void)state;
    assert_null(mu_conv2d(1, 3, .kernel_size_per_axis = {3, 3}));
    expect_error(MU_INVALID_ARGUMENT, "mu_conv2d: kernel_size and kernel_size_per_axis are both given");
    assert_null(mu_conv2d(1, .kernel_size_per_axis = {3, 3, 3}));
    expect_error(MU_INVALID_ARGUMENT, "kernel_size_per_axis has 3 numbers; give 2");
    assert_null(mu_conv3d(1, .kernel_size_per_axis = {3, 0, 3}));
    expect_error(MU_INVALID_ARGUMENT, "kernel_size_per_axis[1] is 0; it must be 1 or more");
    assert_null(mu_conv1d(.filters = 1));
    expect_error(MU_INVALID_ARGUMENT, "mu_conv1d: kernel_size is 0");
    assert_null(mu_conv1d(1, 3, .strides = 0));
    expect_error(MU_INVALID_ARGUMENT, "strides is 0");
    assert_null(mu_zero_padding1d(.padding_per_side = {1, -1}));
    expect_error(MU_INVALID_ARGUMENT, "padding_per_side[1] is -1");
    assert_null(mu_conv2d_transpose(1, 3, .strides = 2, .output_padding_per_axis = {0, 2}));
    expect_error(MU_INVALID_ARGUMENT, "output_padding is 2 along spatial axis 1; it must be below strides, which is 2");
    assert_null(mu_conv2d(1, 3, .padding = "causal"));
    expect_error(MU_INVALID_ARGUMENT, "padding is 'causal'");
    assert_null(mu_adaptive_max_pool1d());
    expect_error(MU_INVALID_ARGUMENT, "output_size is 0");
}

static void wrong_inputs_are_refused(void **state)
{
    (void)state;
    mu_tensor *line = numbers(3, (int64_t[]){2, 3, 4}, 1), *image = numbers(4, (int64_t[]){2, 5, 4, 4}, 2);
    const struct {
        mu_layer *layer;
        mu_tensor *x;
        const char *part;
    } rows[] = {
        {mu_conv1d(1, 3), image, "layer 'conv1d' takes inputs of rank 3"},
        {mu_max_pool3d(), image, "layer 'max_pooling3d' takes inputs of rank 5"},
        {mu_global_average_pool2d(), line, "takes inputs of rank 4"},
        {mu_conv2d(3, 3, .groups = 2), image, "2 groups divide neither 4 input channels nor 3 filters evenly"},
        {mu_conv1d(1, 4), line, "conv1d"},
        {mu_cropping1d(.cropping_per_side = {1, 2}), line, "removes 1 and 2 elements of spatial axis 0, which has 3"},
        {mu_conv1d_transpose(1, 2, .strides = 2, .padding = "same", .output_padding = 0), line, "conv1d_transpose"},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        assert_null(mu_call(rows[i].layer, rows[i].x));
        expect_error(MU_INVALID_ARGUMENT, rows[i].part);
    }
}

static void wrong_equations_are_refused(void **state)
{
    (void)state;
    mu_tensor *x = numbers(3, (int64_t[]){2, 3, 4}, 1);
    static const char *const wrong[] = {"ab,bc",           "ab->ab", "...ab,bc->ac", "a1,bc->ac",
                                        "ab...,bc->...ac", "",       "ab,bc->ac,"};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        assert_null(mu_einsum_dense(wrong[i], {5}));
        expect_error(MU_INVALID_ARGUMENT, "the equation is");
    }
    assert_null(mu_einsum_dense("abc,cd->abd", {3, 5}, .bias_axes = "c"));
    expect_error(MU_INVALID_ARGUMENT, "bias_axes has 'c'");
    const struct {
        mu_layer *layer;
        const char *part;
    } rows[] = {
        {mu_einsum_dense("ab,bc->ac", {5}), "the input of 'ab,bc->ac' has 2 axes"},
        {mu_einsum_dense("abc,cd->abd", {5}), "has 3 axes, with output_shape it has 2"},
        {mu_einsum_dense("abc,cd->abd", {4, 5}), "'b' is 3 in the input and 4 in output_shape"},
        {mu_einsum_dense("abc,cd->abd", {3, MU_UNKNOWN}), "the size of the kernel's axis 'd' is unknown"},
        {mu_einsum_dense("abc,cd->abe", {3, 5}), "'e' of the output is neither"},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        assert_null(mu_call(rows[i].layer, x));
        expect_error(MU_INVALID_ARGUMENT, rows[i].part);
    }
}

static void wrong_pairs_are_refused(void **state)
{
    (void)state;
    mu_tensor *a = numbers(3, (int64_t[]){2, 3, 4}, 1), *b = numbers(3, (int64_t[]){2, 4, 5}, 2);
    assert_null(mu_call(mu_dot(1), .inputs = mu_list(a, b, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "the axes to sum along have 3 and 4 elements");
    assert_null(mu_call(mu_dot(.axes_per_input = {3, 1}), .inputs = mu_list(a, b, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "axis 3 of input 0");
    assert_null(mu_call(mu_dot(.axes_per_input = {2, 1}), a));
    expect_error(MU_INVALID_ARGUMENT, "multiplies 2 tensors; it was given 1");
    assert_null(mu_call(mu_prelu(.shared_axes = {3}), a));
    expect_error(MU_INVALID_ARGUMENT, "shared_axes has 3; the axes of its samples are 1 to 2");
    assert_null(mu_gaussian_noise(2));
    expect_error(MU_INVALID_ARGUMENT, "stddev is 2; it must be from 0 to 1");
    assert_null(mu_relu_layer(.max_value = -1));
    expect_error(MU_INVALID_ARGUMENT, "max_value is -1");
}

static mu_model *normalized_model(void)
{
    mu_model *model = mu_sequential(mu_input_layer({4}), mu_spectral_normalization(mu_dense(5), .power_iterations = 3),
                                    mu_activity_regularization(.l1 = .01, .l2 = .02), mu_dense(3));
    if (!model)
        fail_msg("%s", mu_error_message());
    mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1),
               .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    return model;
}

// A kernel that training divides by its spectral norm, and activity losses: the same weights on one device and on
// several replicas.
static void normalizes_alike_on_replicas(void **state)
{
    (void)state;
    double *wanted = NULL;
    for (int replicas = 1; replicas <= 2; replicas++) {
        mu_model *model = NULL;
        mu_strategy *strategy = strategy_of(replicas);
        mu_set_seed(3);
        MU_SCOPE(strategy) {
            model = normalized_model();
        }
        if (!mu_fit(model, rows_and_classes(24, 4, 3, 6), .epochs = 3, .verbose = MU_VERBOSE_SILENT))
            fail_msg("%s", mu_error_message());
        int64_t n;
        double *weights = weights_of(model, &n);
        if (wanted)
            assert_near(weights, wanted, n, 1e-12);
        free(wanted);
        wanted = weights;
    }
    free(wanted);
}

// After enough iterations the spectral norm is 1, so that normalizing again does not change the kernel; a kernel of
// zeros does not change either, and outside of training nothing does.
static void kernel_has_spectral_norm_one(void **state)
{
    (void)state;
    mu_layer *layer = mu_spectral_normalization(mu_dense(3, .kernel_initializer = "he_normal"), .power_iterations = 60);
    mu_layer *empty = mu_spectral_normalization(mu_dense(3, .kernel_initializer = "zeros"));
    mu_tensor *x = numbers(2, (int64_t[]){2, 4}, 1);
    mu_tensor *before = mu_call(layer, x);
    assert_near(doubles(mu_call(layer, x)), doubles(before), 6, 0);
    mu_tensor *normal = mu_call(layer, x, .training = true);
    assert_true(fabs(doubles(normal)[0] - doubles(before)[0]) > 1e-3);
    assert_near(doubles(mu_call(layer, x, .training = true)), doubles(normal), 6, 1e-9);
    assert_near(doubles(mu_call(empty, x, .training = true)), (const double[6]){0}, 6, 0);
    assert_null(mu_call(mu_spectral_normalization(mu_flatten()), x));
    expect_error(MU_INVALID_ARGUMENT, "has neither a kernel nor embeddings");
    mu_layer *cell = mu_spectral_normalization(mu_simple_rnn_cell(3));
    mu_value *inputs = mu_list(x, numbers(2, (int64_t[]){2, 3}, 2), MU_END);
    assert_non_null(mu_call_values(cell, .inputs = inputs, .training = true));
}

// Sizes that are known only when the model runs.
static void unknown_sizes(void **state)
{
    (void)state;
    mu_layer *pool = mu_adaptive_max_pool1d(2), *up = mu_up_sampling2d(2, .interpolation = "bilinear");
    assert_null(mu_call(pool, mu_input({MU_UNKNOWN, 4})));
    expect_error(MU_INVALID_ARGUMENT, "needs known spatial axes");
    assert_null(mu_call(up, mu_input({MU_UNKNOWN, 4, 2})));
    expect_error(MU_INVALID_ARGUMENT, "needs images of known height and width");
    mu_tensor *x = mu_input({MU_UNKNOWN, 4});
    mu_tensor *y = mu_call(mu_cropping1d(), mu_call(mu_zero_padding1d(2), mu_call(mu_up_sampling1d(3), x)));
    mu_model *model = mu_model_new(x, y);
    assert_non_null(model);
    mu_tensor *ones = mu_call(model, mu_ones(MU_F64, 3, (int64_t[]){1, 2, 4}));
    assert_int_equal(mu_tensor_dim(ones, 1), 2 * 3 + 2);
    assert_number(mu_scalar(mu_reduce_sum(ones, MU_ALL_AXES)), 2 * 3 * 4, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(spatial_gradients_match_differences),
        MODEL_TEST(other_gradients_match_differences),
        MODEL_TEST(dropout_takes_whole_channels),
        MODEL_TEST(noise_has_its_moments),
        MODEL_TEST(dropout_draws_in_a_shape),
        MODEL_TEST(dropped_infinities_are_zero),
        MODEL_TEST(axes_and_moments_are_checked),
        MODEL_TEST(masks_of_softmax),
        MODEL_TEST(noise_in_a_trace),
        MODEL_TEST(wrong_equations_are_refused),
        MODEL_TEST(wrong_pairs_are_refused),
        MODEL_TEST(wrong_numbers_per_axis_are_refused),
        MODEL_TEST(wrong_inputs_are_refused),
        MODEL_TEST(unknown_sizes),
        MODEL_TEST(normalizes_alike_on_replicas),
        MODEL_TEST(kernel_has_spectral_norm_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
