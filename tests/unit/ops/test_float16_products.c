// Products, attention, sums and ReLU's gradient of 16-bit floats, which are computed in float32 where that is faster:
// results are those of float32, rounded once, bit for bit. Only where oneDNN multiplies bfloat16 itself may sums differ
// by their order.
#include "distribute/core/job.h"
#include "kernels/kernels.h"
#include "ops/nn/nn.h"
#include "ops/onednn/onednn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const mu_dtype types[] = {MU_F16, MU_BF16};

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

// Numbers from `low` to `low` + 1.
static mu_tensor *numbers(mu_dtype dtype, float low, int rank, const int64_t *dims)
{
    mu_tensor *x = mu_tensor_new(MU_F32, rank, dims, NULL);
    for (int64_t i = 0; i < mu_tensor_elements(x); i++)
        ((float *)mu__host_write(x))[i] = low + (float)(random_u32() % 256) / 256;
    return mu_cast(x, dtype);
}

#define NUMBERS(dtype, low, ...) \
    numbers(dtype, low, MU_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})

static mu_tensor *wide(mu_tensor *x) { return mu_cast(x, MU_F32); }

// `places`: by how many representable numbers a result may differ from the rounded float32 result.
static void check(const char *name, mu_tensor *got, mu_tensor *exact, int places)
{
    assert_non_null(got);
    const mu_tensor *wanted = mu_cast(exact, got->dtype);
    assert_int_equal(mu_tensor_elements(got), mu_tensor_elements(wanted));
    const uint16_t *a = mu__host_read(got), *b = mu__host_read(wanted);
    for (int64_t i = 0; i < mu_tensor_elements(got); i++)
        if (abs((int16_t)a[i] - (int16_t)b[i]) > places)
            fail_msg("%s of %s: element %lld is %04x instead of %04x", name, mu_dtype_name(got->dtype), (long long)i,
                     a[i], b[i]);
}

// All terms are positive, so that another order of the sum changes at most the rounding.
static int places_of(mu_dtype dtype)
{
    dnnl_data_type_t type;
    assert_true(mu__dnnl_type(dtype, &type));
    return type == dnnl_f32 ? 0 : 1;
}

static void test_oneDNN_multiplies_bfloat16_only_with_instructions_for_it(void **state)
{
    dnnl_data_type_t type;
    (void)state;
    assert_true(mu__dnnl_type(MU_F16, &type) && type == dnnl_f32);
    assert_true(mu__dnnl_type(MU_F32, &type) && type == dnnl_f32);
    assert_false(mu__dnnl_type(MU_F64, &type));
    assert_true(mu__dnnl_type(MU_BF16, &type));
    if (mu__dnnl_isa() <= dnnl_cpu_isa_avx512_core)
        assert_int_equal(type, dnnl_f32);
    if ((mu__dnnl_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx)
        assert_int_equal(type, dnnl_bf16);
}

static void test_matrix_products(void **state)
{
    (void)state;
    for (size_t t = 0; t < MU_COUNT(types); t++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *a = NUMBERS(types[t], 0.5f, 3, 70, 90), *b = NUMBERS(types[t], 0.5f, 90, 50);
        mu_tensor *c = NUMBERS(types[t], 0.5f, 3, 50, 90), *d = NUMBERS(types[t], 0.5f, 90, 1);
        check("matmul", mu_matmul(a, b), mu_matmul(wide(a), wide(b)), places_of(types[t]));
        check("transposed matmul", mu_matmul_transposed(a, c, false, true),
              mu_matmul_transposed(wide(a), wide(c), false, true), places_of(types[t]));
        check("matmul with a column", mu_matmul(a, d), mu_matmul(wide(a), wide(d)), places_of(types[t]));
        mu_pool_close(pool);
    }
}

static void test_convolutions(void **state)
{
    static const mu_conv_attrs attrs = {
        .strides = {2, {1, 1}}, .dilations = {2, {1, 1}}, .padding = "same", .groups = 1};
    (void)state;
    for (size_t t = 0; t < MU_COUNT(types); t++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *x = NUMBERS(types[t], 0.5f, 3, 13, 11, 32), *w = NUMBERS(types[t], 0.5f, 3, 3, 32, 48);
        mu_tensor *dy = NUMBERS(types[t], 0.5f, 3, 13, 11, 48);
        check("conv2d", mu__apply2(&mu_op_conv2d, &attrs, x, w), mu__apply2(&mu_op_conv2d, &attrs, wide(x), wide(w)),
              places_of(types[t]));
        check("conv2d_filter_grad", mu__apply3(&mu_op_conv2d_filter_grad, &attrs, x, dy, w),
              mu__apply3(&mu_op_conv2d_filter_grad, &attrs, wide(x), wide(dy), wide(w)), places_of(types[t]));
        check("conv2d_input_grad", mu__apply3(&mu_op_conv2d_input_grad, &attrs, dy, w, x),
              mu__apply3(&mu_op_conv2d_input_grad, &attrs, wide(dy), wide(w), wide(x)), places_of(types[t]));
        mu_pool_close(pool);
    }
}

// Several tiles of queries and of keys, and several batches for each member of the team.
static void check_attention(mu_dtype dtype, bool causal)
{
    const mu_attention_attrs attrs = {.scale = 0.25, .causal = causal};
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {NUMBERS(dtype, -0.5f, 3, 2, 130, 24), NUMBERS(dtype, -0.5f, 3, 2, 270, 24),
                       NUMBERS(dtype, -0.5f, 3, 2, 270, 20)};
    mu_tensor *wider[] = {wide(in[0]), wide(in[1]), wide(in[2])}, *y[2], *exact[2], *grads[3], *exact_grads[3];
    assert_int_equal(mu__apply(&mu_op_attention, &attrs, 3, in, 0, NULL, y), MU_OK);
    assert_int_equal(mu__apply(&mu_op_attention, &attrs, 3, wider, 0, NULL, exact), MU_OK);
    check("attention", y[0], exact[0], 0);
    mu_tensor *dy = NUMBERS(dtype, -0.5f, 3, 2, 130, 20);
    mu_tensor *given[] = {in[0], in[1], in[2], y[0], y[1], dy};
    mu_tensor *wide_given[] = {wider[0], wider[1], wider[2], wide(y[0]), y[1], wide(dy)};
    assert_int_equal(mu__apply(&mu_op_attention_grad, &attrs, 6, given, 0, NULL, grads), MU_OK);
    assert_int_equal(mu__apply(&mu_op_attention_grad, &attrs, 6, wide_given, 0, NULL, exact_grads), MU_OK);
    for (int i = 0; i < 3; i++)
        check("attention_grad", grads[i], exact_grads[i], 0);
    mu_pool_close(pool);
}

static void test_attention(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2 * MU_COUNT(types); t++)
        check_attention(types[t / 2], t % 2);
}

static void test_sums_of_rows(void **state)
{
    static const int64_t widths[] = {1, 7, 300, 1030};
    (void)state;
    for (size_t t = 0; t < MU_COUNT(types); t++)
        for (size_t w = 0; w < MU_COUNT(widths); w++) {
            mu_pool *pool = mu_pool_open();
            mu_tensor *dy = NUMBERS(types[t], -0.5f, 5, 40, widths[w]); // sums of multiples of 1/256 are exact
            check("bias_add_grad", mu__apply1(&mu_op_bias_add_grad, NULL, dy),
                  mu__apply1(&mu_op_bias_add_grad, NULL, wide(dy)), 0);
            mu_pool_close(pool);
        }
}

static void test_gradient_of_relu_at_all_16_bit_floats(void **state)
{
    enum { ALL = 65536 };
    (void)state;
    for (size_t t = 0; t < MU_COUNT(types); t++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *y = mu_tensor_new(types[t], 1, (const int64_t[]){ALL}, NULL);
        mu_tensor *dy = NUMBERS(types[t], -0.5f, ALL);
        for (int i = 0; i < ALL; i++)
            ((uint16_t *)mu__host_write(y))[i] = (uint16_t)i;
        check("relu_grad", mu__apply2(&mu_op_relu_grad, NULL, dy, y),
              mu__apply2(&mu_op_relu_grad, NULL, wide(dy), wide(y)), 0);
        mu_pool_close(pool);
    }
}

static int n_non_finite(mu_tensor *x, bool *nan)
{
    int n = 0;
    for (int64_t i = 0; i < mu_tensor_elements(x); i++) {
        const double value = mu_tensor_item(x, i);
        n += !isfinite(value);
        *nan |= isnan(value);
    }
    return n;
}

// One pixel is infinite, whatever the number of channels; a 3 by 3 window covers it in 9 positions.
static void test_infinity_reaches_only_the_places_whose_window_has_it(void **state)
{
    enum { AREA = 8 * 9, AT = 3 * 9 + 4, FILTERS = 5 };
    (void)state;
    for (size_t t = 0; t < MU_COUNT(types); t++)
        for (int channels = 1; channels <= 17; channels++) {
            mu_pool *pool = mu_pool_open();
            mu_tensor *x = mu_ones(MU_F32, 4, (int64_t[]){1, 8, 9, channels});
            for (int c = 0; c < channels; c++)
                ((float *)mu__host_write(x))[AT * channels + c] = INFINITY;
            mu_tensor *kernel = mu_ones(types[t], 4, (int64_t[]){3, 3, channels, FILTERS});
            mu_tensor *turned = mu_ones(types[t], 4, (int64_t[]){3, 3, FILTERS, channels});
            bool nan = false;
            x = mu_cast(x, types[t]);
            assert_int_equal(n_non_finite(mu_nn_conv2d(x, kernel, .padding = "same"), &nan), 9 * FILTERS);
            mu_tensor *back = mu_nn_conv2d_transpose(x, turned, .padding = "same");
            assert_int_equal(n_non_finite(back, &nan), 9 * FILTERS);
            assert_false(nan);
            mu_pool_close(pool);
        }
}

// Deterministic workers compare the type in which oneDNN computes: it depends on more than the instruction set.
static void test_workers_compare_the_type(void **state)
{
    (void)state;
    dnnl_data_type_t type;
    char text[MU_ARITHMETIC_TEXT];
    mu__arithmetic_text(text);
    assert_true(mu__dnnl_type(MU_BF16, &type));
    assert_non_null(strstr(text, type == dnnl_bf16 ? "bfloat16 in bfloat16" : "bfloat16 in float32"));
    assert_non_null(strstr(text, mu__kernels()->isa));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_infinity_reaches_only_the_places_whose_window_has_it),
        cmocka_unit_test(test_oneDNN_multiplies_bfloat16_only_with_instructions_for_it),
        cmocka_unit_test(test_matrix_products),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_sums_of_rows),
        cmocka_unit_test(test_gradient_of_relu_at_all_16_bit_floats),
        cmocka_unit_test(test_workers_compare_the_type),
    };
    mu_init();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
