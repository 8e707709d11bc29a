// Fused ops against the separate ops that they replace: plain loops against the composition, fast kernels against plain
// loops, with odd sizes and where the fast kernels must decline.
#include "../ops/nn_check.h"

#include "engine/cpu/fused_ops.h"

static const mu_pool_attrs two = {.window = {2, {2, 2}}, .strides = {2, {2, 2}}, .padding = "valid"};
static const mu_conv_attrs valid = {.strides = {2, {1, 1}}, .dilations = {2, {1, 1}}, .padding = "valid", .groups = 1};

// ---- Bias ---------------------------------------------------------------------------------------

typedef struct biased_case {
    const mu_op *product, *biased;
    const void *attrs;
    mu_shape x, w;
} biased_case;

// Compares the plain loops with those of the three separate ops, and the fast kernel with the plain loops.
static void check_biased(const biased_case *c, mu_dtype dtype, double tolerance, bool relu)
{
    const int64_t columns = c->w.dims[c->w.rank - 1];
    mu_tensor *in[] = {random_tensor(dtype, c->x, -1, 1, 1), random_tensor(dtype, c->w, -1, 1, 2),
                       random_tensor(dtype, MU_SHAPE(columns), -1, 1, 3)};
    mu_tensor *product, *sum, *clamped, *y;
    run_row(c->product, c->attrs, 2, in, &product, false);
    run_row(&mu_op_bias_add, NULL, 2, (mu_tensor *[]){product, in[2]}, &sum, false);
    run_row(&mu_op_relu, NULL, 1, &sum, &clamped, false);
    run_row(c->biased, c->attrs, 3, in, &y, false);
    assert_close(y, relu ? clamped : sum, 0);
    check_fast(c->biased, c->attrs, 3, in, tolerance, true);
}

static void test_products_with_a_bias(void **state)
{
    (void)state;
    static const struct {
        mu_dtype dtype;
        double tolerance;
    } types[] = {{MU_F64, 1e-12}, {MU_F32, 2e-5}, {MU_F16, 4e-3}, {MU_BF16, 3e-2}};
    for (size_t t = 0; t < MU_COUNT(types); t++)
        for (int relu = 0; relu < 2; relu++) {
            mu_pool *pool = mu_pool_open();
            const mu_matmul_attrs product = {.relu = relu};
            mu_conv_attrs convolution = valid;
            convolution.relu = relu;
            const biased_case cases[] = {
                {&mu_op_matmul, &mu__op_matmul_bias, &product, MU_SHAPE(33, 100), MU_SHAPE(100, 10)},
                {&mu_op_conv2d, &mu__op_conv2d_bias, &convolution, MU_SHAPE(2, 7, 6, 3), MU_SHAPE(3, 3, 3, 5)},
            };
            for (size_t k = 0; k < MU_COUNT(cases); k++)
                check_biased(&cases[k], types[t].dtype, types[t].tolerance, relu);
            mu_pool_close(pool);
        }
}

// ---- ReLU and pool ------------------------------------------------------------------------------

// Applies ReLU to x, then the pool, then propagates dy back, with the separate ops.
static mu_tensor *unfused_grad(mu_tensor *x, mu_tensor *dy, mu_tensor **pooled)
{
    mu_tensor *relu = random_tensor(x->dtype, x->shape, 0, 0, 1), *out[2];
    for (int64_t i = 0; i < mu__elements(&x->shape); i++)
        mu__write_element(x->dtype, mu__host_write(relu), i, fmax(0, element(x, i)));
    mu_tensor *in[] = {relu};
    run_row(&mu_op_max_pool2d, &two, 1, in, out, false);
    *pooled = out[0];
    if (!dy)
        return NULL;
    mu_tensor *back[] = {dy, out[1], x}, *routed, *dx;
    run_row(&mu_op_max_pool2d_grad, &two, 3, back, &routed, false);
    mu_tensor *masked[] = {routed, relu};
    run_row(&mu_op_relu_grad, NULL, 2, masked, &dx, false);
    return dx;
}

static void test_relu_and_pool(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_shape shapes[] = {MU_SHAPE(2, 6, 4, 3), MU_SHAPE(1, 7, 5, 17), MU_SHAPE(3, 11, 11, 64)};
    const mu_dtype types[] = {MU_F64, MU_F32};
    for (int k = 0; k < 6; k++) {
        mu_tensor *x = random_tensor(types[k % 2], shapes[k / 2], -1, 0.5, 3), *pooled, *out[2], *grad[2], *db;
        mu_tensor *in[] = {x};
        run_row(&mu__op_relu_max_pool2d, NULL, 1, in, out, false);
        mu_tensor *dy = random_tensor(types[k % 2], out[0]->shape, -1, 1, 4);
        mu_tensor *dx = unfused_grad(x, dy, &pooled);
        mu_tensor *back[] = {dy, out[1], x};
        run_row(&mu__op_relu_max_pool2d_grad, NULL, 3, back, grad, false);
        run_row(&mu_op_bias_add_grad, NULL, 1, &dx, &db, false);
        assert_close(out[0], pooled, 0);
        assert_close(grad[0], dx, 0);
        assert_close(grad[1], db, 0);
        check_fast(&mu__op_relu_max_pool2d, NULL, 1, in, 0, types[k % 2] == MU_F32);
        check_fast(&mu__op_relu_max_pool2d_grad, NULL, 3, back, 1e-5, types[k % 2] == MU_F32);
    }
    mu_pool_close(pool);
}

typedef struct first_layer {
    int64_t x[4], w[4];
    bool fast;
} first_layer;

static const first_layer layers[] = {
    {{3, 28, 28, 1}, {3, 3, 1, 32}, true},
    {{2, 9, 8, 3}, {3, 3, 3, 5}, true},
    {{2, 12, 11, 4}, {5, 5, 4, 16}, true},
    {{2, 9, 9, 5}, {3, 3, 5, 8}, false},
};

static void test_convolution_too(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_dtype types[] = {MU_F64, MU_F32};
    for (size_t k = 0; k < 2 * MU_COUNT(layers); k++) {
        const first_layer *layer = &layers[k / 2];
        const mu_dtype dtype = types[k % 2];
        const bool fast = layer->fast && dtype == MU_F32;
        mu_tensor *in[] = {random_tensor(dtype, mu_shape_make(4, layer->x), -1, 1, 1),
                           random_tensor(dtype, mu_shape_make(4, layer->w), -1, 1, 2),
                           random_tensor(dtype, MU_SHAPE(layer->w[3]), -1, 0.5, 3)};
        mu_tensor *z, *pooled, *out[2], *grad[2], *dw, *db;
        run_row(&mu__op_conv2d_relu_pool, &valid, 3, in, out, false);
        run_row(&mu__op_conv2d_bias, &valid, 3, in, &z, false);
        mu_tensor *dy = random_tensor(dtype, out[0]->shape, -1, 1, 4);
        mu_tensor *dz = unfused_grad(z, dy, &pooled);
        assert_close(out[0], pooled, 0);
        mu_tensor *filter[] = {in[0], dz, in[1]}, *back[] = {in[0], out[1], dy, in[1]};
        run_row(&mu_op_conv2d_filter_grad, &valid, 3, filter, &dw, false);
        run_row(&mu_op_bias_add_grad, NULL, 1, &dz, &db, false);
        run_row(&mu__op_conv2d_relu_pool_grad, &valid, 4, back, grad, false);
        assert_close(grad[0], dw, 0);
        assert_close(grad[1], db, 0);
        check_fast(&mu__op_conv2d_relu_pool_grad, &valid, 4, back, 1e-4, fast);
        mu_tensor *plain[2], *quick[2];
        run_row(&mu__op_conv2d_relu_pool, &valid, 3, in, plain, false);
        assert_int_equal(run_row(&mu__op_conv2d_relu_pool, &valid, 3, in, quick, true), fast);
        if (fast)
            assert_close(quick[0], plain[0], 1e-5); // marks may differ where sums in another order tie
    }
    mu_pool_close(pool);
}

// ---- Ties ---------------------------------------------------------------------------------------

// Whole numbers from low to high, of which many are equal; sums of their products are exact in any order.
static mu_tensor *whole_tensor(mu_dtype dtype, mu_shape shape, int low, int high, uint64_t seed)
{
    mu_tensor *t = random_tensor(dtype, shape, low, high + 1, seed);
    for (int64_t i = 0; i < mu__elements(&shape); i++)
        mu__write_element(dtype, mu__host_write(t), i, floor(element(t, i)));
    return t;
}

// If several elements of a window are equal, the first one gets the gradient, in the fused ops as in the separate ones,
// bit for bit.
static void test_ties_in_the_pool(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_shape shapes[] = {MU_SHAPE(2, 6, 4, 3), MU_SHAPE(1, 7, 5, 17), MU_SHAPE(3, 12, 10, 64)};
    const mu_dtype types[] = {MU_F64, MU_F32};
    for (int k = 0; k < 6; k++) {
        mu_tensor *x = whole_tensor(types[k % 2], shapes[k / 2], -1, 1, 11), *pooled, *out[2], *grad[2];
        mu_tensor *in[] = {x};
        for (int fast = 0; fast <= (types[k % 2] == MU_F32); fast++) {
            assert_true(run_row(&mu__op_relu_max_pool2d, NULL, 1, in, out, fast));
            mu_tensor *dy = whole_tensor(types[k % 2], out[0]->shape, 1, 9, 12);
            mu_tensor *dx = unfused_grad(x, dy, &pooled), *back[] = {dy, out[1], x};
            assert_true(run_row(&mu__op_relu_max_pool2d_grad, NULL, 3, back, grad, fast));
            assert_close(out[0], pooled, 0);
            assert_close(grad[0], dx, 0);
        }
    }
    mu_pool_close(pool);
}

// The same after a convolution, whose fast kernel records the position of each maximum.
static void test_ties_behind_a_convolution(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k < MU_COUNT(layers); k++) {
        if (!layers[k].fast)
            continue;
        mu_tensor *in[] = {whole_tensor(MU_F32, mu_shape_make(4, layers[k].x), 0, 1, 1),
                           whole_tensor(MU_F32, mu_shape_make(4, layers[k].w), -1, 1, 2),
                           whole_tensor(MU_F32, MU_SHAPE(layers[k].w[3]), -1, 1, 3)};
        mu_tensor *plain[2], *fast[2], *grads[2][2];
        run_row(&mu__op_conv2d_relu_pool, &valid, 3, in, plain, false);
        assert_true(run_row(&mu__op_conv2d_relu_pool, &valid, 3, in, fast, true));
        assert_close(fast[0], plain[0], 0);
        assert_close(fast[1], plain[1], 0); // the positions
        mu_tensor *dy = whole_tensor(MU_F32, fast[0]->shape, 1, 5, 4), *back[] = {in[0], fast[1], dy, in[1]};
        run_row(&mu__op_conv2d_relu_pool_grad, &valid, 4, back, grads[0], false);
        assert_true(run_row(&mu__op_conv2d_relu_pool_grad, &valid, 4, back, grads[1], true));
        assert_close(grads[1][0], grads[0][0], 0);
        assert_close(grads[1][1], grads[0][1], 0);
    }
    mu_pool_close(pool);
}

// With a bias of 2^24 sums round to few values. Positions may then differ from those of the separate ops, which compare
// rounded sums. Values may not differ, and each position is still one of its window's maxima.
static void test_ties_after_rounding(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {whole_tensor(MU_F32, MU_SHAPE(2, 10, 10, 1), -2, 2, 1),
                       whole_tensor(MU_F32, MU_SHAPE(3, 3, 1, 32), -1, 1, 2),
                       random_tensor(MU_F32, MU_SHAPE(32), 0, 0, 3)};
    for (int64_t i = 0; i < 32; i++)
        mu__write_element(MU_F32, mu__host_write(in[2]), i, 16777216);
    mu_tensor *fast[2], *z, *pooled[2];
    assert_true(run_row(&mu__op_conv2d_relu_pool, &valid, 3, in, fast, true));
    run_row(&mu__op_conv2d_bias, &valid, 3, in, &z, false);
    run_row(&mu_op_max_pool2d, &two, 1, &z, pooled, false);
    assert_close(fast[0], pooled[0], 0);
    assert_int_equal(mu_dtype_bytes(fast[1]->dtype), 1);
    const int64_t height = z->shape.dims[1], width = z->shape.dims[2], channels = 32;
    for (int64_t i = 0; i < mu__elements(&fast[0]->shape); i++) {
        const int64_t c = i % channels, column = i / channels % (width / 2), row = i / channels / (width / 2);
        const int64_t image = row / (height / 2), place = (int64_t)element(fast[1], i);
        assert_in_range(place, 0, 3);
        const int64_t at =
            ((image * height + row % (height / 2) * 2 + place / 2) * width + column * 2 + place % 2) * channels + c;
        assert_true(element(z, at) == element(fast[0], i));
    }
    mu_pool_close(pool);
}

// Zeros of a gradient meet an infinite input: the separate ops multiply, which gives NaN; the fused ones may skip the
// zeros. No other result is allowed, and no other channel is affected.
static void test_zeros_beside_infinity(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {whole_tensor(MU_F32, MU_SHAPE(2, 10, 10, 1), 0, 2, 1),
                       whole_tensor(MU_F32, MU_SHAPE(3, 3, 1, 32), 0, 1, 2),
                       random_tensor(MU_F32, MU_SHAPE(32), 0, 0, 3)};
    mu_tensor *fast[2], *grads[2];
    assert_true(run_row(&mu__op_conv2d_relu_pool, &valid, 3, in, fast, true));
    mu_tensor *dy = whole_tensor(MU_F32, fast[0]->shape, 1, 3, 4);
    for (int64_t i = 0; i < mu__elements(&dy->shape); i++)
        if (i % 32 < 16)
            mu__write_element(MU_F32, mu__host_write(dy), i, 0);
    mu_tensor *finite[2], *back[] = {in[0], fast[1], dy, in[1]};
    assert_true(run_row(&mu__op_conv2d_relu_pool_grad, &valid, 4, back, finite, true));
    mu__write_element(MU_F32, mu__host_write(in[0]), 33, INFINITY);
    assert_true(run_row(&mu__op_conv2d_relu_pool_grad, &valid, 4, back, grads, true));
    for (int64_t i = 0; i < mu__elements(&grads[0]->shape); i++) {
        const double value = element(grads[0], i);
        assert_true(i % 32 < 16 ? isnan(value) || value == 0
                                : isnan(value) || value == element(finite[0], i) || value == INFINITY);
    }
    assert_close(grads[1], finite[1], 0);
    mu_pool_close(pool);
}

// ---- Errors -------------------------------------------------------------------------------------

// A program knows the ops that it called, not those that the engine made of them.
static void test_errors_name_the_ops_of_the_program(void **state)
{
    (void)state;
    static const mu_matmul_attrs product = {0};
    static const struct {
        const mu_op *op;
        const void *attrs;
        int n_in;
        mu_spec in[3];
        const char *message;
    } rows[] = {
        {&mu__op_matmul_bias,
         &product,
         3,
         {{MU_F32, {2, {4, 6}}}, {MU_F32, {2, {5, 4}}}, {MU_F32, {1, {4}}}},
         "matmul: the inner axes differ"},
        {&mu__op_conv2d_bias,
         &valid,
         3,
         {{MU_F32, {4, {2, 7, 6, 3}}}, {MU_F32, {4, {3, 3, 2, 5}}}, {MU_F32, {1, {5}}}},
         "conv2d: "},
        {&mu__op_conv2d_relu_pool,
         &valid,
         3,
         {{MU_F32, {4, {2, 7, 6, 3}}}, {MU_F32, {4, {3, 3, 2, 5}}}, {MU_F32, {1, {5}}}},
         "conv2d: "},
        {&mu__op_conv2d_relu_pool,
         &valid,
         3,
         {{MU_F32, {4, {2, 3, 3, 2}}}, {MU_F32, {4, {3, 3, 2, 5}}}, {MU_F32, {1, {5}}}},
         "max_pool2d: "},
        {&mu__op_relu_max_pool2d, NULL, 1, {{MU_F32, {4, {2, 1, 4, 2}}}}, "max_pool2d: "},
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        mu_spec out[2];
        mu_infer infer = {.op = rows[i].op,
                          .attrs = rows[i].attrs,
                          .n_in = rows[i].n_in,
                          .n_out = rows[i].op->n_out,
                          .in = rows[i].in,
                          .out = out};
        assert_int_equal(mu__infer_call(&infer), MU_INVALID_ARGUMENT);
        const mu_error error = mu_error_take();
        if (strncmp(error.message, rows[i].message, strlen(rows[i].message)) != 0)
            fail_msg("'%s' does not begin with '%s'", error.message, rows[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_with_a_bias),      cmocka_unit_test(test_relu_and_pool),
        cmocka_unit_test(test_convolution_too),           cmocka_unit_test(test_ties_in_the_pool),
        cmocka_unit_test(test_ties_behind_a_convolution), cmocka_unit_test(test_ties_after_rounding),
        cmocka_unit_test(test_zeros_beside_infinity),     cmocka_unit_test(test_errors_name_the_ops_of_the_program),
    };
    if (mu_init() != MU_OK) // reads MUSTER_ISA
        return mu_exit(false);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
