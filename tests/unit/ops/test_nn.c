// Bias, ReLU's gradient, softmax and cross-entropies: gradients, fast kernels, stability, bad labels.
#include "nn_check.h"

#include <muster/nn.h>

static void test_bias(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {random_tensor(MU_F64, MU_SHAPE(3, 2, 5), -1, 1, 1),
                       random_tensor(MU_F64, MU_SHAPE(5), -1, 1, 2)};
    check_gradient(&mu_op_bias_add, NULL, 2, in, 0, 0);
    check_gradient(&mu_op_bias_add_grad, NULL, 1, in, 0, 0);
    mu_tensor *narrow[] = {random_tensor(MU_F32, MU_SHAPE(100, 33), -1, 1, 1)};
    check_fast(&mu_op_bias_add_grad, NULL, 1, narrow, 1e-5, true);
    assert_null(mu_nn_bias_add(in[0], in[0]));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

static void test_relu_grad(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {random_tensor(MU_F64, MU_SHAPE(3, 7), -1, 1, 1),
                       random_tensor(MU_F64, MU_SHAPE(3, 7), -1, 1, 2)};
    mu_tensor *narrow[] = {random_tensor(MU_F32, MU_SHAPE(37), -1, 1, 1),
                           random_tensor(MU_F32, MU_SHAPE(37), -1, 1, 2)};
    check_gradient(&mu_op_relu_grad, NULL, 2, in, 2, 0);
    check_fast(&mu_op_relu_grad, NULL, 2, narrow, 0, true);
    // Larger than the caches, so that the result is written past them.
    const int64_t many = (INT64_C(8) << 20) + 37;
    mu_tensor *large[] = {random_tensor(MU_F32, MU_SHAPE(many), -1, 1, 1),
                          random_tensor(MU_F32, MU_SHAPE(many), -1, 1, 2)};
    float *y = mu__host_write(large[1]);
    y[0] = y[many - 1] = NAN, y[1] = -0.0f, y[2] = INFINITY, y[many - 2] = -INFINITY;
    check_fast(&mu_op_relu_grad, NULL, 2, large, 0, true);
    mu_pool_close(pool);
}

static void test_softmax(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {random_tensor(MU_F64, MU_SHAPE(3, 4, 2), -2, 2, 1)}, *y;
    for (int64_t axis = -3; axis < 3; axis++) {
        const mu_axis_attrs attrs = {axis};
        check_gradient(&mu_op_softmax, &attrs, 1, in, 0, 0);
        check_gradient(&mu_op_log_softmax, &attrs, 1, in, 0, 0);
    }
    const float far[] = {1000, 999, -1000};
    y = mu_nn_log_softmax(mu_vector_f32(3, far), -1);
    assert_true(fabs(element(y, 0) + 0.31326169) < 1e-6 && fabs(element(y, 2) + 2000.31326169) < 1e-3);
    y = mu_nn_softmax(mu_vector_f32(3, far), 0);
    assert_true(fabs(element(y, 0) - 0.7310586) < 1e-6 && element(y, 2) == 0);
    assert_null(mu_nn_softmax(in[0], 3));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

static mu_tensor *labels_of(mu_dtype dtype, int64_t n, const int64_t *values)
{
    mu_tensor *labels = random_tensor(dtype, MU_SHAPE(n), 0, 0, 1);
    for (int64_t i = 0; i < n; i++)
        mu__write_element(dtype, mu__host_write(labels), i, (double)values[i]);
    return labels;
}

static void test_sparse_cross_entropy(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const int64_t classes[] = {2, 0, 4, 1};
    const mu_dtype types[] = {MU_U8, MU_I8, MU_I32, MU_I64};
    for (size_t t = 0; t < MU_COUNT(types); t++) {
        mu_tensor *in[] = {random_tensor(MU_F64, MU_SHAPE(4, 5), -2, 2, 1), labels_of(types[t], 4, classes)};
        mu_tensor *narrow[] = {random_tensor(MU_F32, MU_SHAPE(4, 5), -2, 2, 1), in[1]};
        check_gradient(&mu_op_sparse_softmax_cross_entropy, NULL, 2, in, 2, 0);
        check_gradient(&mu_op_sparse_softmax_cross_entropy, NULL, 2, in, 2, 1);
        check_fast(&mu_op_sparse_softmax_cross_entropy, NULL, 2, narrow, 1e-5, types[t] != MU_I8);
    }
    mu_pool_close(pool);
}

static void test_labels_outside_are_named(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const int64_t wrong[2][3] = {{0, 5, 1}, {0, 1, -1}};
    const mu_dtype types[] = {MU_F32, MU_F64};
    for (int k = 0; k < 4; k++) {
        mu_tensor *logits = random_tensor(types[k / 2], MU_SHAPE(3, 5), -2, 2, 1);
        assert_null(mu_nn_sparse_softmax_cross_entropy(labels_of(MU_I64, 3, wrong[k % 2]), logits));
        assert_non_null(strstr(mu_error_message(), k % 2 ? "label -1 in row 2" : "label 5 in row 1"));
        assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    }
    mu_tensor *logits = random_tensor(MU_F32, MU_SHAPE(3, 5), -2, 2, 1);
    assert_null(mu_nn_sparse_softmax_cross_entropy(random_tensor(MU_F32, MU_SHAPE(3), 0, 1, 1), logits));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_sparse_softmax_cross_entropy(labels_of(MU_I64, 2, wrong[0]), logits));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

// Compared with the composition of log_softmax and a product, for labels that are distributions.
static void test_dense_cross_entropy(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *logits = random_tensor(MU_F64, MU_SHAPE(4, 5), -2, 2, 1);
    mu_tensor *labels = mu_nn_softmax(random_tensor(MU_F64, MU_SHAPE(4, 5), -2, 2, 2), -1);
    const mu_tensor *loss = mu_nn_softmax_cross_entropy(labels, logits), *log = mu_nn_log_softmax(logits, -1);
    for (int64_t r = 0; r < 4; r++) {
        double sum = 0;
        for (int64_t c = 0; c < 5; c++)
            sum -= element(labels, r * 5 + c) * element(log, r * 5 + c);
        assert_true(fabs(element(loss, r) - sum) < 1e-12);
    }
    mu_tensor *in[] = {logits, labels};
    check_gradient(&mu_op_softmax_cross_entropy, NULL, 2, in, 2, 0);
    check_gradient(&mu_op_softmax_cross_entropy, NULL, 2, in, 0, 1);
    mu_pool_close(pool);
}

static void test_sigmoid_cross_entropy(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const float logits[] = {0, 100, -100}, labels[] = {1, 1, 1};
    const mu_tensor *loss = mu_nn_sigmoid_cross_entropy(mu_vector_f32(3, labels), mu_vector_f32(3, logits));
    assert_true(fabs(element(loss, 0) - 0.6931472) < 1e-6);
    assert_true(fabs(element(loss, 1)) < 1e-6 && element(loss, 2) == 100);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_relu_grad),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_sparse_cross_entropy),
        cmocka_unit_test(test_labels_outside_are_named),
        cmocka_unit_test(test_dense_cross_entropy),
        cmocka_unit_test(test_sigmoid_cross_entropy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
