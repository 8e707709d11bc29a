// The classes of layers in a table: gradients against differences, and the messages of wrong options and inputs. What
// they compute is compared with Keras (tests/conformance/layers.py).
#include "model_test.h"

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
        {mu_max_pool1d(), line}, {mu_average_pool3d(), volume}, {mu_global_max_pool1d(), line},
        {mu_global_average_pool3d(), volume}, {mu_adaptive_max_pool2d(3), image},
        {mu_adaptive_average_pool1d(3), line}, {mu_up_sampling1d(), line}, {mu_up_sampling3d(), volume},
        {mu_up_sampling2d(.factor_per_axis = {1, 3}, .interpolation = "bilinear"), image},
        {mu_zero_padding3d(), volume}, {mu_cropping2d(1), image}, {mu_cropping1d(.cropping_per_side = {2, 0}), line},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        check_gradients(mu_sequential(mu_dense(4, .activation = "tanh"), rows[i].layer), rows[i].x);
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
        MODEL_TEST(wrong_numbers_per_axis_are_refused),
        MODEL_TEST(wrong_inputs_are_refused),
        MODEL_TEST(unknown_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
