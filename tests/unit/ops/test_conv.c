// conv2d and its gradients against a naive sum of six loops, fast against plain kernels, gradient rules against
// differences; refusals.
#include "engine/cpu/fused_ops.h"
#include "nn_check.h"

#include <muster/nn.h>
#include <muster/ops.h>

typedef struct conv_case {
    int64_t x[4], w[4]; // n h w c; kh kw c/g o
    int64_t strides[2], dilations[2], pads[4];
    const char *padding;
    int64_t groups;
} conv_case;

static const conv_case cases[] = {
    {{2, 7, 6, 3}, {3, 3, 3, 5}, {1, 1}, {1, 1}, {0}, "valid", 1},
    {{1, 9, 11, 1}, {3, 3, 1, 32}, {1, 1}, {1, 1}, {0}, "same", 1},
    {{2, 8, 9, 2}, {3, 4, 2, 3}, {2, 3}, {1, 1}, {0}, "same", 1},
    {{1, 13, 12, 4}, {3, 2, 4, 6}, {1, 1}, {2, 3}, {0}, "valid", 1},
    {{1, 9, 8, 6}, {3, 3, 2, 9}, {2, 1}, {1, 1}, {0}, "same", 3},
    {{2, 6, 5, 5}, {3, 3, 1, 10}, {1, 1}, {1, 1}, {0}, "same", 5},
    {{1, 4, 5, 2}, {2, 3, 2, 2}, {1, 2}, {1, 1}, {0, 2, 3, 1}, "explicit", 1},
    {{3, 5, 5, 16}, {1, 1, 16, 17}, {1, 1}, {1, 1}, {0}, "valid", 1},
    {{2, 1, 1, 3}, {1, 1, 3, 1}, {1, 1}, {1, 1}, {0}, "same", 1},
    {{2, 13, 13, 32}, {3, 3, 32, 64}, {1, 1}, {1, 1}, {0}, "valid", 1},
};

static mu_conv_attrs attrs_of(const conv_case *c)
{
    mu_conv_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.strides = (mu_ints){2, {c->strides[0], c->strides[1]}};
    attrs.dilations = (mu_ints){2, {c->dilations[0], c->dilations[1]}};
    if (strcmp(c->padding, "explicit") == 0)
        attrs.pads = (mu_ints){4, {c->pads[0], c->pads[1], c->pads[2], c->pads[3]}};
    strcpy(attrs.padding, c->padding);
    attrs.groups = c->groups;
    return attrs;
}

// The definition, with sizes and padding computed independently.
static mu_tensor *naive(const conv_case *c, const mu_tensor *x, const mu_tensor *w)
{
    int64_t out[2], before[2];
    for (int i = 0; i < 2; i++) {
        const int64_t span = (c->w[i] - 1) * c->dilations[i] + 1, in = c->x[1 + i], s = c->strides[i];
        before[i] = 0;
        if (strcmp(c->padding, "same") == 0) {
            out[i] = (in + s - 1) / s;
            const int64_t total = (out[i] - 1) * s + span - in;
            before[i] = total > 0 ? total / 2 : 0;
        } else {
            before[i] = c->pads[2 * i];
            out[i] = (in + c->pads[2 * i] + c->pads[2 * i + 1] - span) / s + 1;
        }
    }
    const int64_t o = c->w[3], group_out = o / c->groups;
    mu_tensor *y = random_tensor(MU_F64, MU_SHAPE(c->x[0], out[0], out[1], o), 0, 0, 1);
    double *to = mu__host_write(y);
    for (int64_t n = 0; n < c->x[0]; n++)
        for (int64_t oy = 0; oy < out[0]; oy++)
            for (int64_t ox = 0; ox < out[1]; ox++)
                for (int64_t f = 0; f < o; f++, to++)
                    for (int64_t ky = 0; ky < c->w[0]; ky++)
                        for (int64_t kx = 0; kx < c->w[1]; kx++) {
                            const int64_t iy = oy * c->strides[0] + ky * c->dilations[0] - before[0];
                            const int64_t ix = ox * c->strides[1] + kx * c->dilations[1] - before[1];
                            if (iy < 0 || iy >= c->x[1] || ix < 0 || ix >= c->x[2])
                                continue;
                            for (int64_t i = 0; i < c->w[2]; i++)
                                *to += element(x, ((n * c->x[1] + iy) * c->x[2] + ix) * c->x[3] +
                                                      f / group_out * c->w[2] + i) *
                                       element(w, ((ky * c->w[1] + kx) * c->w[2] + i) * o + f);
                        }
    return y;
}

static void test_forward_is_the_sum(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k < MU_COUNT(cases); k++) {
        const conv_case *c = &cases[k];
        const mu_conv_attrs attrs = attrs_of(c);
        mu_tensor *in[] = {random_tensor(MU_F64, mu_shape_make(4, c->x), -1, 1, k),
                           random_tensor(MU_F64, mu_shape_make(4, c->w), -1, 1, k + 50)};
        mu_tensor *y;
        run_row(&mu_op_conv2d, &attrs, 2, in, &y, false);
        assert_close(y, naive(c, in[0], in[1]), 1e-12);
    }
    mu_pool_close(pool);
}

static void test_gradients_match_differences(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k + 1 < MU_COUNT(cases); k++) {
        const conv_case *c = &cases[k];
        const mu_conv_attrs attrs = attrs_of(c);
        mu_tensor *x = random_tensor(MU_F64, mu_shape_make(4, c->x), -1, 1, k);
        mu_tensor *w = random_tensor(MU_F64, mu_shape_make(4, c->w), -1, 1, k + 50);
        mu_tensor *in[] = {x, w}, *y;
        check_gradient(&mu_op_conv2d, &attrs, 2, in, 0, 0);
        run_row(&mu_op_conv2d, &attrs, 2, in, &y, false);
        mu_tensor *dy = random_tensor(MU_F64, y->shape, -1, 1, k + 90);
        mu_tensor *for_input[] = {dy, w, x}, *for_filter[] = {x, dy, w};
        check_gradient(&mu_op_conv2d_input_grad, &attrs, 3, for_input, 4, 0);
        check_gradient(&mu_op_conv2d_filter_grad, &attrs, 3, for_filter, 4, 0);
    }
    mu_pool_close(pool);
}

static void test_fast_kernels_agree(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k < MU_COUNT(cases); k++) {
        const conv_case *c = &cases[k];
        mu_conv_attrs attrs = attrs_of(c);
        mu_tensor *x = random_tensor(MU_F32, mu_shape_make(4, c->x), -1, 1, k);
        mu_tensor *w = random_tensor(MU_F32, mu_shape_make(4, c->w), -1, 1, k + 50);
        mu_tensor *b = random_tensor(MU_F32, MU_SHAPE(c->w[3]), -1, 1, k + 70);
        mu_tensor *in[] = {x, w, b}, *y;
        check_fast(&mu_op_conv2d, &attrs, 2, in, 2e-5, false);
        run_row(&mu_op_conv2d, &attrs, 2, in, &y, false);
        mu_tensor *dy = random_tensor(MU_F32, y->shape, -1, 1, k + 90);
        mu_tensor *for_input[] = {dy, w, x}, *for_filter[] = {x, dy, w};
        check_fast(&mu_op_conv2d_input_grad, &attrs, 3, for_input, 2e-5, false);
        check_fast(&mu_op_conv2d_filter_grad, &attrs, 3, for_filter, 2e-4, false);
        for (int relu = 0; relu < 2; relu++) {
            attrs.relu = relu;
            check_fast(&mu__op_conv2d_bias, &attrs, 3, in, 2e-5, false);
        }
    }
    mu_pool_close(pool);
}

// The shapes of the example network must not use the plain loops.
static void test_network_shapes_are_fast(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_conv_attrs attrs = attrs_of(&cases[0]);
    mu_tensor *x = random_tensor(MU_F32, MU_SHAPE(4, 13, 13, 32), -1, 1, 1);
    mu_tensor *w = random_tensor(MU_F32, MU_SHAPE(3, 3, 32, 64), -1, 1, 2);
    mu_tensor *dy = random_tensor(MU_F32, MU_SHAPE(4, 11, 11, 64), -1, 1, 3);
    mu_tensor *forward[] = {x, w}, *input[] = {dy, w, x}, *filter[] = {x, dy, w};
    check_fast(&mu_op_conv2d, &attrs, 2, forward, 2e-5, true);
    check_fast(&mu_op_conv2d_input_grad, &attrs, 3, input, 2e-5, true);
    check_fast(&mu_op_conv2d_filter_grad, &attrs, 3, filter, 2e-4, true);
    mu_pool_close(pool);
}

// The gradient of each case's image in three types; with `all` the convolution and the gradient of its kernel too.
static void check_gradients_of(const conv_case *given, size_t n, bool all)
{
    static const mu_dtype types[] = {MU_F32, MU_BF16, MU_F16};
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k < n; k++)
        for (size_t t = 0; t < MU_COUNT(types); t++) {
            const mu_conv_attrs attrs = attrs_of(&given[k]);
            mu_tensor *x = random_tensor(types[t], mu_shape_make(4, given[k].x), -1, 1, k);
            mu_tensor *w = random_tensor(types[t], mu_shape_make(4, given[k].w), -0.1, 0.1, k + 50), *y;
            mu_tensor *in[] = {x, w};
            run_row(&mu_op_conv2d, &attrs, 2, in, &y, false);
            mu_tensor *dy = random_tensor(types[t], y->shape, -1, 1, k + 90);
            mu_tensor *for_input[] = {dy, w, x}, *for_filter[] = {x, dy, w};
            check_fast(&mu_op_conv2d_input_grad, &attrs, 3, for_input, t == 0 ? 2e-5 : 2e-2, t == 0);
            if (!all)
                continue;
            check_fast(&mu_op_conv2d, &attrs, 2, in, t == 0 ? 2e-5 : 2e-2, false);
            check_fast(&mu_op_conv2d_filter_grad, &attrs, 3, for_filter, t == 0 ? 2e-4 : 2e-1, t == 0);
        }
    mu_pool_close(pool);
}

// With many channels and a stride of 1 the gradient of an image is computed as a forward convolution.
static void test_input_gradients_of_many_channels(void **state)
{
    static const conv_case wide[] = {
        {{2, 7, 6, 64}, {3, 3, 64, 64}, {1, 1}, {1, 1}, {0}, "same", 1},
        {{1, 9, 8, 67}, {2, 3, 67, 65}, {1, 1}, {2, 1}, {0}, "valid", 1},
        {{1, 5, 6, 65}, {3, 4, 65, 70}, {1, 1}, {1, 1}, {0, 2, 3, 1}, "explicit", 1},
        {{1, 5, 6, 64}, {2, 2, 64, 64}, {1, 1}, {1, 1}, {3, 0, 1, 2}, "explicit", 1}, // pads beyond the kernel
        {{1, 5, 6, 64}, {3, 3, 64, 64}, {1, 2}, {1, 1}, {0}, "same", 1},
        {{2, 4, 3, 5}, {1, 1, 5, 7}, {1, 1}, {1, 1}, {0}, "valid", 1},
    };
    check_gradients_of(wide, MU_COUNT(wide), false);
    (void)state;
}

// Gradients of kernels that are computed as sums over rows: runs longer than one, strides, taps that cover only
// padding, and rows that are too short for it; and gradients of images with groups of many channels.
static void test_gradients_by_rows(void **state)
{
    static const conv_case rows[] = {
        {{2, 9, 11, 40}, {3, 3, 40, 48}, {1, 1}, {1, 1}, {0}, "same", 1},
        {{2, 1, 300, 32}, {1, 3, 32, 32}, {1, 1}, {1, 1}, {0}, "same", 1},
        {{1, 7, 33, 64}, {3, 4, 64, 112}, {2, 3}, {1, 1}, {0}, "same", 1},
        {{1, 8, 19, 32}, {2, 3, 32, 64}, {1, 1}, {2, 4}, {0}, "valid", 1},
        {{2, 2, 9, 32}, {5, 3, 32, 32}, {1, 1}, {1, 1}, {2, 2, 3, 9}, "explicit", 1},
        {{1, 6, 7, 32}, {3, 3, 32, 32}, {1, 1}, {1, 1}, {0}, "same", 1},
        {{3, 8, 9, 64}, {3, 3, 16, 64}, {1, 1}, {1, 1}, {0}, "same", 4},
        {{3, 8, 9, 32}, {3, 2, 16, 48}, {1, 1}, {2, 1}, {0, 1, 1, 2}, "explicit", 2},
        {{2, 8, 9, 36}, {1, 1, 18, 40}, {1, 1}, {1, 1}, {0}, "valid", 2},
        {{2, 7, 9, 34}, {3, 3, 17, 38}, {2, 1}, {1, 1}, {0}, "same", 2},
    };
    check_gradients_of(rows, MU_COUNT(rows), true);
    (void)state;
}

// The same over volumes, with two inputs, as transposed convolutions have them.
static void test_transposed_volumes_of_many_channels(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_conv_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.strides = (mu_ints){3, {1, 1, 1}};
    attrs.dilations = (mu_ints){3, {1, 2, 1}};
    attrs.image = (mu_ints){3, {5, 6, 4}};
    strcpy(attrs.padding, "same");
    attrs.groups = 1;
    mu_tensor *dy = random_tensor(MU_F32, mu_shape_make(5, (int64_t[]){2, 5, 6, 4, 66}), -1, 1, 1);
    mu_tensor *w = random_tensor(MU_F32, mu_shape_make(5, (int64_t[]){3, 2, 3, 64, 66}), -0.1, 0.1, 2);
    mu_tensor *in[] = {dy, w};
    check_fast(&mu_op_conv3d_input_grad, &attrs, 2, in, 2e-5, true);
    mu_pool_close(pool);
}

// Images so large that the primitives run on one image at a time, and on three of nine at a time.
static void test_large_images_go_in_parts(void **state)
{
    (void)state;
    static const int64_t batches[][3] = {{5, 96, 91}, {9, 44, 45}};
    for (size_t i = 0; i < MU_COUNT(batches); i++) {
        mu_pool *pool = mu_pool_open();
        const int64_t n = batches[i][0], height = batches[i][1], width = batches[i][2];
        mu_conv_attrs attrs = attrs_of(&cases[0]);
        attrs.strides = (mu_ints){2, {2, 2}};
        attrs.image = (mu_ints){2, {2 * height + 1, 2 * width + 2}};
        mu_tensor *in[2] = {random_tensor(MU_F32, MU_SHAPE(n, height, width, 10), -1, 1, 1),
                            random_tensor(MU_F32, MU_SHAPE(3, 3, 11, 10), -1, 1, 2)};
        check_fast(&mu_op_conv2d_input_grad, &attrs, 2, in, 2e-5, true);
        mu_pool_close(pool);
    }
}

static void test_half_types_run(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_conv_attrs attrs = attrs_of(&cases[0]);
    mu_tensor *wide[3], *half[3], *y, *y_half;
    const mu_shape shapes[] = {MU_SHAPE(2, 7, 6, 3), MU_SHAPE(3, 3, 3, 5), MU_SHAPE(5)};
    for (int i = 0; i < 3; i++) {
        wide[i] = random_tensor(MU_F32, shapes[i], -1, 1, (uint64_t)i);
        half[i] = random_tensor(MU_F16, shapes[i], -1, 1, (uint64_t)i);
    }
    for (int n = 2; n <= 3; n++) {
        const mu_op *op = n == 2 ? &mu_op_conv2d : &mu__op_conv2d_bias;
        run_row(op, &attrs, n, wide, &y, false);
        run_row(op, &attrs, n, half, &y_half, false);
        assert_close(y_half, y, 5e-3);
    }
    mu_pool_close(pool);
}

// Taps of the kernel that cover only padding have a gradient of 0. With strides oneDNN's code for bfloat16 leaves old
// memory there, so those cases run in float32.
static void test_taps_in_padding(void **state)
{
    const struct {
        const mu_op *op;
        mu_shape shapes[3];
        mu_conv_attrs attrs;
    } windows[] = {
        {&mu_op_conv2d_filter_grad,
         {MU_SHAPE(3, 3, 1, 16), MU_SHAPE(3, 2, 1, 33), MU_SHAPE(3, 5, 16, 33)},
         {.strides = {2, {2, 2}}, .dilations = {2, {1, 1}}, .padding = "same", .groups = 1}},
        {&mu_op_conv3d_filter_grad,
         {MU_SHAPE(2, 5, 3, 3, 1), MU_SHAPE(2, 2, 1, 2, 2), MU_SHAPE(3, 3, 3, 1, 2)},
         {.strides = {3, {4, 3, 2}}, .dilations = {3, {1, 1, 1}}, .padding = "same", .groups = 1}},
    };
    (void)state;
    for (size_t k = 0; k < MU_COUNT(windows); k++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *in[3];
        for (int i = 0; i < 3; i++)
            in[i] = random_tensor(MU_BF16, windows[k].shapes[i], -1, 1, (uint64_t)i + 1);
        check_fast(windows[k].op, &windows[k].attrs, 3, in, 3e-2, false);
        mu_pool_close(pool);
    }
}

// With integers that a double holds exactly, sums are equal in both types; larger ones wrap around.
static void test_integers(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_I32, MU_SHAPE(2, 7, 5, 4), -1000, 1000, 1);
    mu_tensor *w = random_tensor(MU_I32, MU_SHAPE(3, 2, 2, 6), -1000, 1000, 2);
    mu_tensor *y = mu_nn_conv2d(x, w, .strides = {2, 1}, .padding = "same", .groups = 2);
    mu_tensor *wanted =
        mu_nn_conv2d(mu_cast(x, MU_F64), mu_cast(w, MU_F64), .strides = {2, 1}, .padding = "same", .groups = 2);
    assert_true(y && wanted && y->dtype == MU_I32);
    for (int64_t i = 0; i < mu__elements(&y->shape); i++)
        assert_true(element(y, i) == element(wanted, i));
    mu_tensor *many = mu_fill(MU_I32, 4, (int64_t[]){1, 1, 1, 2}, 1 << 30);
    mu_tensor *twice = mu_fill(MU_I32, 4, (int64_t[]){1, 1, 2, 1}, 2);
    assert_true(element(mu_nn_conv2d(many, twice), 0) == 0);
    mu_pool_close(pool);
}

static void test_wrong_calls_say_why(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_F32, MU_SHAPE(2, 7, 6, 3), -1, 1, 1);
    mu_tensor *w = random_tensor(MU_F32, MU_SHAPE(3, 3, 4, 5), -1, 1, 2);
    mu_tensor *large = random_tensor(MU_F32, MU_SHAPE(9, 3, 3, 5), -1, 1, 2);
    mu_tensor *good = random_tensor(MU_F32, MU_SHAPE(3, 3, 3, 5), -1, 1, 2);
    assert_null(mu_nn_conv2d(x, w));
    assert_non_null(strstr(mu_error_message(), "[2, 7, 6, 3]"));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_conv2d(x, large));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_conv2d(x, good, .padding = "full"));
    assert_non_null(strstr(mu_error_message(), "full"));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_conv2d(x, good, .strides = {-1}));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    const mu_tensor *y = mu_nn_conv2d(x, good, .strides = {2}, .padding = "same");
    assert_non_null(y);
    const mu_shape wanted = MU_SHAPE(2, 4, 3, 5);
    assert_true(mu__shape_equal(&y->shape, &wanted));
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_the_sum),
        cmocka_unit_test(test_gradients_match_differences),
        cmocka_unit_test(test_fast_kernels_agree),
        cmocka_unit_test(test_network_shapes_are_fast),
        cmocka_unit_test(test_input_gradients_of_many_channels),
        cmocka_unit_test(test_gradients_by_rows),
        cmocka_unit_test(test_transposed_volumes_of_many_channels),
        cmocka_unit_test(test_large_images_go_in_parts),
        cmocka_unit_test(test_half_types_run),
        cmocka_unit_test(test_taps_in_padding),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_wrong_calls_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
