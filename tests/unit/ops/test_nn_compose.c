// Composed functions of tf.nn: against numbers worked out in this file, and against each other.
#include "nn_check.h"

#include <muster/nn.h>

static void test_activations(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const float values[] = {-1, 7};
    mu_tensor *x = mu_vector_f32(2, values);
    const struct {
        mu_tensor *y;
        double low, high;
    } all[] = {
        {mu_nn_relu(x), 0, 7},
        {mu_nn_relu6(x), 0, 6},
        {mu_nn_leaky_relu(x, 0.2), -0.2, 7},
        {mu_nn_elu(x), -0.632120559, 7},
        {mu_nn_selu(x), -1.111330738, 7.354906911},
        {mu_nn_gelu(x, false), -0.158655254, 7},
        {mu_nn_gelu(x, true), -0.158808009, 7},
        {mu_nn_silu(x), -0.268941421, 6.993622558},
        {mu_nn_mish(x), -0.303401461, 6.999988348},
        {mu_nn_softplus(x), 0.313261688, 7.000911467},
        {mu_nn_softsign(x), -0.5, 0.875},
        {mu_nn_log_sigmoid(x), -1.313261688, -0.000911467},
        {mu_nn_hard_sigmoid(x), 1.0 / 3, 1},
    };
    for (size_t i = 0; i < MU_COUNT(all); i++) {
        if (!all[i].y || fabs(element(all[i].y, 0) - all[i].low) > 1e-5 ||
            fabs(element(all[i].y, 1) - all[i].high) > 1e-5)
            fail_msg("activation %d: %g, %g", (int)i, all[i].y ? element(all[i].y, 0) : NAN,
                     all[i].y ? element(all[i].y, 1) : NAN);
    }
    mu_pool_close(pool);
}

static void test_depthwise_and_one_dimension(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_F64, MU_SHAPE(2, 6, 5, 3), -1, 1, 1),
              *w = random_tensor(MU_F64, MU_SHAPE(2, 2, 3, 2), -1, 1, 2);
    const mu_tensor *y = mu_nn_depthwise_conv2d(x, w);
    const mu_shape wanted = MU_SHAPE(2, 5, 4, 6);
    assert_true(mu__shape_equal(&y->shape, &wanted));
    double sum = 0; // sample 1, row 2, column 3, channel 1, multiplier 1
    for (int64_t k = 0; k < 4; k++)
        sum += element(x, ((6 + 2 + k / 2) * 5 + 3 + k % 2) * 3 + 1) * element(w, (k * 3 + 1) * 2 + 1);
    assert_true(fabs(element(y, ((5 + 2) * 4 + 3) * 6 + 3) - sum) < 1e-12);

    mu_tensor *sequence = random_tensor(MU_F64, MU_SHAPE(1, 7, 2), -1, 1, 3),
              *taps = random_tensor(MU_F64, MU_SHAPE(3, 2, 1), -1, 1, 4);
    const mu_tensor *causal = mu_nn_conv1d(sequence, taps, .padding = "causal", .dilation = 2);
    assert_int_equal(causal->shape.dims[1], 7);
    sum = 0; // position 5 sees 1, 3 and 5
    for (int64_t k = 0; k < 3; k++)
        for (int64_t c = 0; c < 2; c++)
            sum += element(sequence, (1 + 2 * k) * 2 + c) * element(taps, k * 2 + c);
    assert_true(fabs(element(causal, 5) - sum) < 1e-12);
    const mu_tensor *strided = mu_nn_conv1d(sequence, taps, .stride = 3);
    assert_int_equal(strided->shape.dims[1], 2);
    assert_null(mu_nn_conv1d(x, taps));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

// One group for all channels of one pixel is layer normalisation.
static void test_group_norm(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_F64, MU_SHAPE(3, 1, 1, 6), -1, 1, 1),
              *gamma = random_tensor(MU_F64, MU_SHAPE(6), -1, 1, 2);
    assert_close(mu_nn_group_normalization(x, 1, gamma, NULL, 1e-3), mu_nn_layer_normalization(x, gamma, NULL, 1e-3),
                 1e-12);
    assert_null(mu_nn_group_normalization(x, 4, NULL, NULL, 1e-3));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

static void test_attention(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *q = random_tensor(MU_F64, MU_SHAPE(2, 3, 4), -1, 1, 1),
              *k = random_tensor(MU_F64, MU_SHAPE(2, 3, 4), -1, 1, 2);
    mu_tensor *v = random_tensor(MU_F64, MU_SHAPE(2, 3, 5), -1, 1, 3);
    const mu_tensor *causal = mu_nn_attention(q, k, v, .causal = true), *full = mu_nn_attention(q, k, v);
    for (int64_t c = 0; c < 5; c++) {
        assert_true(fabs(element(causal, c) - element(v, c)) < 1e-12); // the first query sees the first key alone
        assert_true(fabs(element(causal, 10 + c) - element(full, 10 + c)) < 1e-12); // the last one sees all
    }
    const bool only_second[] = {false, true, false};
    const int64_t dims[] = {3};
    const mu_tensor *masked = mu_nn_attention(q, k, v, .mask = mu_tensor_new(MU_BOOL, 1, dims, only_second));
    for (int64_t i = 0; i < 15; i++)
        assert_true(fabs(element(masked, i) - element(v, 5 + i % 5)) < 1e-12);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_depthwise_and_one_dimension),
        cmocka_unit_test(test_group_norm),
        cmocka_unit_test(test_attention),
    };
    mu_init();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
