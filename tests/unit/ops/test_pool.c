// Pools: small cases by hand, ties and NaNs, every padding; gradients, second derivatives, fast kernels.
#include "nn_check.h"

#include <muster/nn.h>
#include <muster/ops.h>

typedef struct pool_case {
    int64_t x[4], window[2], strides[2];
    const char *padding;
    int64_t pads[4];
} pool_case;

static const pool_case cases[] = {
    {{2, 6, 4, 3}, {2, 2}, {2, 2}, "valid", {0}}, {{1, 7, 5, 17}, {2, 2}, {2, 2}, "valid", {0}},
    {{2, 5, 7, 2}, {3, 2}, {2, 1}, "same", {0}},  {{1, 6, 7, 2}, {3, 3}, {2, 3}, "explicit", {1, 0, 2, 1}},
    {{1, 4, 4, 33}, {3, 3}, {1, 1}, "same", {0}}, {{1, 9, 9, 1}, {1, 1}, {3, 3}, "valid", {0}},
};

static mu_pool_attrs attrs_of(const pool_case *c)
{
    mu_pool_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.window = (mu_ints){2, {c->window[0], c->window[1]}};
    attrs.strides = (mu_ints){2, {c->strides[0], c->strides[1]}};
    if (strcmp(c->padding, "explicit") == 0)
        attrs.pads = (mu_ints){4, {c->pads[0], c->pads[1], c->pads[2], c->pads[3]}};
    strcpy(attrs.padding, c->padding);
    return attrs;
}

static mu_tensor *image(mu_dtype dtype, int64_t height, int64_t width, const double *values)
{
    mu_tensor *x = random_tensor(dtype, MU_SHAPE(1, height, width, 1), 0, 0, 1);
    for (int64_t i = 0; i < height * width; i++)
        mu__write_element(dtype, mu__host_write(x), i, values[i]);
    return x;
}

static void test_by_hand(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const double values[] = {1, 5, 2, 2, 5, 4, 2, 2, -1, -2, NAN, 3};
    const mu_pool_attrs attrs = attrs_of(&cases[0]);
    for (int fast = 0; fast < 2; fast++) {
        mu_tensor *in[] = {image(MU_F32, 2, 4, values)}, *out[2];
        run_row(&mu_op_max_pool2d, &attrs, 1, in, out, fast);
        assert_true(element(out[0], 0) == 5 && element(out[0], 1) == 2);
        assert_true(element(out[1], 0) == 1 && element(out[1], 1) == 0); // the first of equals
        in[0] = image(MU_F32, 2, 2, values + 8);
        run_row(&mu_op_max_pool2d, &attrs, 1, in, out, fast);
        assert_true(isnan(element(out[0], 0)) && element(out[1], 0) == 2);
    }
    mu_tensor *corner = mu_nn_avg_pool2d(image(MU_F32, 2, 2, values), {2, 2}, .strides = {1}, .padding = "same");
    assert_true(element(corner, 0) == 2.5); // 1 5 2 2
    assert_true(element(corner, 3) == 2);   // padding does not count
    mu_pool_close(pool);
}

static void test_gradients_match_differences(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k < MU_COUNT(cases); k++) {
        const mu_pool_attrs attrs = attrs_of(&cases[k]);
        mu_tensor *x = random_tensor(MU_F64, mu_shape_make(4, cases[k].x), -1, 1, k);
        mu_tensor *in[] = {x}, *out[2];
        check_gradient(&mu_op_max_pool2d, &attrs, 1, in, 0, 0);
        check_gradient(&mu_op_avg_pool2d, &attrs, 1, in, 0, 0);
        run_row(&mu_op_max_pool2d, &attrs, 1, in, out, false);
        mu_tensor *dy = random_tensor(MU_F64, out[0]->shape, -1, 1, k + 5);
        mu_tensor *for_max[] = {dy, out[1], x}, *for_pick[] = {x, out[1]}, *for_average[] = {dy, x};
        check_gradient(&mu_op_max_pool2d_grad, &attrs, 3, for_max, 6, 0);
        check_gradient(&mu_op_max_pool2d_pick, &attrs, 2, for_pick, 2, 0);
        check_gradient(&mu_op_avg_pool2d_grad, &attrs, 2, for_average, 2, 0);
    }
    mu_pool_close(pool);
}

// The plain loops visit only the part of a window that lies in the image, which takes no time; visiting all of it would
// take years.
static void test_windows_wider_than_the_image(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_pool_attrs attrs = {.window = {2, {20000, 20000}}, .strides = {2, {20000, 20000}}, .padding = "same"};
    mu_tensor *x = random_tensor(MU_F64, mu_shape_make(4, (int64_t[]){64, 3, 2, 16}), -1, 1, 3), *out[2];
    run_row(&mu_op_avg_pool2d, &attrs, 1, &x, out, false);
    const double *from = mu_tensor_data(x);
    for (int64_t at = 0; at < 64 * 16; at++) {
        double sum = 0;
        for (int i = 0; i < 6; i++)
            sum += from[at / 16 * 96 + i * 16 + at % 16];
        assert_true(fabs(((const double *)mu_tensor_data(out[0]))[at] - sum / 6) < 1e-12);
    }
    mu_pool_close(pool);
}

static void test_fast_kernels_agree(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k < MU_COUNT(cases); k++) {
        const mu_pool_attrs attrs = attrs_of(&cases[k]);
        mu_tensor *x = random_tensor(MU_F32, mu_shape_make(4, cases[k].x), -1, 1, k);
        mu_tensor *in[] = {x}, *out[2];
        check_fast(&mu_op_max_pool2d, &attrs, 1, in, 0, true);
        check_fast(&mu_op_avg_pool2d, &attrs, 1, in, 1e-6, true);
        run_row(&mu_op_max_pool2d, &attrs, 1, in, out, false);
        mu_tensor *dy = random_tensor(MU_F32, out[0]->shape, -1, 1, k + 5);
        mu_tensor *for_max[] = {dy, out[1], x}, *for_average[] = {dy, x};
        check_fast(&mu_op_max_pool2d_grad, &attrs, 3, for_max, 1e-6, true);
        check_fast(&mu_op_avg_pool2d_grad, &attrs, 2, for_average, 1e-6, true);
    }
    mu_pool_close(pool);
}

static void test_large_windows_have_wide_places(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const pool_case whole = {{2, 20, 30, 2}, {20, 30}, {1, 1}, "valid", {0}};
    const mu_pool_attrs attrs = attrs_of(&whole);
    mu_tensor *in[] = {random_tensor(MU_F64, mu_shape_make(4, whole.x), -1, 1, 3)}, *out[2];
    assert_false(run_row(&mu_op_max_pool2d, &attrs, 1, in, out, true));
    run_row(&mu_op_max_pool2d, &attrs, 1, in, out, false);
    assert_int_equal(out[1]->dtype, MU_I32);
    for (int64_t c = 0; c < 2; c++)
        assert_true(element(out[0], c) == element(in[0], (int64_t)element(out[1], c) * 2 + c));
    mu_pool_close(pool);
}

// The maxima of integers and their positions are those of the same numbers as float64.
static void test_integers(void **state)
{
    (void)state;
    static const mu_dtype types[] = {MU_I8, MU_U8, MU_I16, MU_I32, MU_I64};
    static const pool_case whole = {{2, 20, 30, 2}, {20, 30}, {1, 1}, "valid", {0}},
                           beside = {{1, 2, 3, 3}, {2, 2}, {1, 1}, "explicit", {3, 2, 2, 3}};
    for (size_t k = 0; k < MU_COUNT(cases) + 2; k++)
        for (size_t d = 0; d < MU_COUNT(types); d++) {
            mu_pool *pool = mu_pool_open();
            const pool_case *c = k < MU_COUNT(cases) ? &cases[k] : k == MU_COUNT(cases) ? &whole : &beside;
            const mu_pool_attrs attrs = attrs_of(c);
            const double low = types[d] == MU_U8 ? 0 : -128, high = types[d] == MU_U8 ? 256 : 128;
            mu_tensor *x = random_tensor(types[d], mu_shape_make(4, c->x), low, high, k);
            mu_tensor *wide[] = {mu_cast(x, MU_F64)}, *wanted[2], *out[2];
            run_row(&mu_op_max_pool2d, &attrs, 1, wide, wanted, false);
            for (int fast = 0; fast < 2; fast++) {
                assert_true(run_row(&mu_op_max_pool2d, &attrs, 1, &x, out, fast));
                assert_int_equal(out[0]->dtype, types[d]);
                assert_int_equal(out[1]->dtype, wanted[1]->dtype);
                for (int64_t i = 0; i < mu__elements(&out[0]->shape); i++) {
                    assert_true(element(out[1], i) == element(wanted[1], i));
                    if (isfinite(element(wanted[0], i)))
                        assert_true(element(out[0], i) == element(wanted[0], i));
                    else // a window that sees padding alone
                        assert_true(element(out[0], i) <= low);
                }
            }
            mu_pool_close(pool);
        }
}

static void test_wrong_calls_say_why(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_F32, MU_SHAPE(1, 4, 4, 2), -1, 1, 1),
              *flat = random_tensor(MU_F32, MU_SHAPE(4, 4), -1, 1, 1);
    assert_null(mu_nn_max_pool2d(x));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_max_pool2d(x, {5}));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_max_pool2d(flat, {2}));
    assert_non_null(strstr(mu_error_message(), "[4, 4]"));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_avg_pool2d(x, {2}, .padding = "same", .pads = {1, 1, 1, 1}));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_gradients_match_differences),
        cmocka_unit_test(test_windows_wider_than_the_image),
        cmocka_unit_test(test_fast_kernels_agree),
        cmocka_unit_test(test_large_windows_have_wide_places),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_wrong_calls_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
