// Batch normalisation: its definition, gradients through every output, second derivatives; the composed
// normalisations; dropout: known bits, share of zeros, gradient, generators.
#include "nn_check.h"

#include "ops/random/philox.h"

#include "kernels/kernels.h"

#include <muster/nn.h>
#include <muster/ops.h>

static const mu_epsilon_attrs epsilon = {1e-3};

static void test_batch_norm_is_its_definition(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_F64, MU_SHAPE(6, 5, 40), -1, 3, 1),
              *gamma = random_tensor(MU_F64, MU_SHAPE(40), -1, 1, 2);
    mu_tensor *beta = random_tensor(MU_F64, MU_SHAPE(40), -1, 1, 3), *y, *mean, *variance;
    assert_int_equal(mu_nn_batch_norm_training(x, gamma, beta, 1e-3, &y, &mean, &variance), MU_OK);
    for (int64_t c = 0; c < 40; c++) {
        double m = 0, v = 0;
        for (int64_t r = 0; r < 30; r++)
            m += element(x, r * 40 + c) / 30;
        for (int64_t r = 0; r < 30; r++)
            v += pow(element(x, r * 40 + c) - m, 2) / 30;
        assert_true(fabs(element(mean, c) - m) < 1e-12 && fabs(element(variance, c) - v) < 1e-12);
        const double wanted = (element(x, c) - m) / sqrt(v + 1e-3) * element(gamma, c) + element(beta, c);
        assert_true(fabs(element(y, c) - wanted) < 1e-12);
    }
    assert_close(mu_nn_batch_normalization(x, mean, variance, beta, gamma, 1e-3), y, 1e-12);
    mu_pool_close(pool);
}

// Computed by blocks of rows, the result is that of doubles, also where numbers are far from 0 and results are beyond
// 32 MB.
static void check_blocks(int64_t rows, int64_t channels, double offset)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_F32, MU_SHAPE(rows, channels), offset - 1, offset + 1, 4), *got[3], *wanted[3];
    mu_tensor *gamma = random_tensor(MU_F32, MU_SHAPE(channels), -1, 1, 5);
    mu_tensor *beta = random_tensor(MU_F32, MU_SHAPE(channels), -1, 1, 6);
    assert_int_equal(mu_nn_batch_norm_training(x, gamma, beta, 1e-3, &got[0], &got[1], &got[2]), MU_OK);
    assert_int_equal(mu_nn_batch_norm_training(mu_cast(x, MU_F64), mu_cast(gamma, MU_F64), mu_cast(beta, MU_F64), 1e-3,
                                               &wanted[0], &wanted[1], &wanted[2]),
                     MU_OK);
    for (int i = 0; i < 3; i++)
        assert_close(mu_cast(got[i], MU_F64), wanted[i], 2e-6 * (1 + 2 * fabs(offset)));
    mu_tensor *dy = random_tensor(MU_F32, MU_SHAPE(rows, channels), -1, 1, 7), *in[] = {x, gamma, got[1], got[2], dy};
    assert_int_equal(mu__apply(&mu_op_batch_norm_grad, &epsilon, 5, in, 0, NULL, got), MU_OK);
    for (int i = 0; i < 5; i++)
        in[i] = mu_cast(in[i], MU_F64);
    assert_int_equal(mu__apply(&mu_op_batch_norm_grad, &epsilon, 5, in, 0, NULL, wanted), MU_OK);
    for (int i = 0; i < 3; i++)
        assert_close(mu_cast(got[i], MU_F64), wanted[i], 4e-6 * (i == 0 ? 10 : sqrt((double)rows)));
    mu_pool_close(pool);
}

static void test_batch_norm_in_blocks(void **state)
{
    (void)state;
    check_blocks(1, 5, 0);
    check_blocks(30, 40, 0);
    check_blocks(3001, 70, 10);
    check_blocks(7, 50000, 0);
    check_blocks(180001, 50, 0);
}

static void test_batch_norm_gradients(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(MU_F64, MU_SHAPE(3, 4, 2), -1, 1, 1),
              *gamma = random_tensor(MU_F64, MU_SHAPE(2), -1, 1, 2);
    mu_tensor *in[] = {x, gamma, random_tensor(MU_F64, MU_SHAPE(2), -1, 1, 3)};
    for (int output = 0; output < 3; output++)
        check_gradient(&mu_op_batch_norm_training, &epsilon, 3, in, output == 0 ? 0 : 6, output);
    mu_tensor *back[] = {x, gamma, random_tensor(MU_F64, MU_SHAPE(2), -0.5, 0.5, 4),
                         random_tensor(MU_F64, MU_SHAPE(2), 0.5, 1, 5),
                         random_tensor(MU_F64, MU_SHAPE(3, 4, 2), -1, 1, 6)};
    for (int output = 0; output < 3; output++)
        check_gradient(&mu_op_batch_norm_grad, &epsilon, 5, back, 0, output);
    mu_pool_close(pool);
}

static void test_last_axis_norms(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const float values[] = {1, 2, 3, 6};
    const mu_tensor *layer = mu_nn_layer_normalization(mu_vector_f32(4, values), NULL, NULL, 0);
    const mu_tensor *rms = mu_nn_rms_normalization(mu_vector_f32(4, values), NULL, 0);
    for (int64_t i = 0; i < 4; i++) {
        assert_true(fabs(element(layer, i) - (values[i] - 3) / sqrt(3.5)) < 1e-6);
        assert_true(fabs(element(rms, i) - values[i] / sqrt(12.5)) < 1e-6);
    }
    mu_pool_close(pool);
}

// The published test vectors of Philox 4x32-10, and a counter that carries.
static void test_random_bits(void **state)
{
    (void)state;
    const mu_philox zero = {{0}, {0}}, ones = {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}};
    const uint32_t of_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    mu_philox carrying = {{~0u, ~0u, ~0u, ~0u}, {0}};
    uint32_t bits[4 * 20], one[4];
    mu__philox_fill(&zero, 1, 1, one);
    assert_memory_equal(one, of_zero, sizeof one);
    mu__philox_fill(&ones, 1, 1, one);
    assert_memory_equal(one, of_ones, sizeof one);
    mu__philox_fill(&carrying, 1, 20, bits);
    assert_memory_equal(bits + 4, of_zero, sizeof one);
    for (int k = 0; k < 20; k++) {
        mu__philox_next(&carrying, one);
        assert_memory_equal(one, bits + 4 * k, sizeof one);
    }
}

// Every instruction set, with steps that carry into the second half of the counter.
static void test_random_bits_of_all_sets(void **state)
{
    (void)state;
    static const char *const sets[] = {"avx512", "avx2", "base"};
    const mu_philox first = {{~0u - 700, ~0u, 5, 6}, {8, 9}};
    for (size_t s = 0; s < MU_COUNT(sets); s++) {
        const mu_kernels *k = mu__kernels_for(sets[s]);
        uint32_t many[4 * 37], one[4];
        if (!k)
            continue;
        k->philox(first.counter, first.key, 256, 37, many);
        mu_philox at = first;
        for (int i = 0; i < 37; i++, mu__philox_skip(&at, 255)) {
            mu__philox_next(&at, one);
            assert_memory_equal(one, many + 4 * i, sizeof one);
        }
    }
}

// The kernels of every instruction set against the plain loops, with widths around the width of a vector.
static void test_norm_kernels_of_all_sets(void **state)
{
    (void)state;
    static const char *const sets[] = {"avx512", "avx2", "base"};
    enum { MOST = 150 };
    float x[MOST], dy[MOST], y[MOST], dx[MOST], dgamma[MOST], dbeta[MOST];
    for (int i = 0; i < MOST; i++) {
        x[i] = (float)sin(i * 1.7) + 40;
        dy[i] = (float)cos(i * 0.9);
    }
    for (size_t s = 0; s < MU_COUNT(sets); s++) {
        const mu_kernels *k = mu__kernels_for(sets[s]);
        for (int64_t n = 1; k && n <= MOST; n += n < 70 ? 1 : 40) {
            double mean = 0, variance = 0, plain = 0, along = 0;
            for (int64_t i = 0; i < n; i++)
                mean += (double)x[i] / (double)n;
            for (int64_t i = 0; i < n; i++)
                variance += pow((double)x[i] - mean, 2) / (double)n;
            const double r = 1 / sqrt(variance + 0.1);
            for (int64_t i = 0; i < n; i++) {
                plain += (double)dy[i] / (double)n;
                along += (double)dy[i] * ((double)x[i] - mean) * r / (double)n;
            }
            memset(dgamma, 0, sizeof dgamma);
            memset(dbeta, 0, sizeof dbeta);
            k->normalize_row(x, NULL, NULL, y, n, true, 0.1);
            k->normalize_row_grad(x, NULL, dy, dx, dgamma, dbeta, n, true, 0.1);
            for (int64_t i = 0; i < n; i++) {
                const double h = ((double)x[i] - mean) * r;
                assert_true(fabs((double)y[i] - h) < 1e-4);
                assert_true(fabs((double)dx[i] - r * ((double)dy[i] - plain - h * along)) < 1e-4);
                assert_true(fabs((double)dgamma[i] - (double)dy[i] * h) < 1e-4 && dbeta[i] == dy[i]);
            }
        }
    }
}

static void test_dropout(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *seed = random_tensor(MU_I64, MU_SHAPE(2), 1, 1000, 1),
              *x = random_tensor(MU_F32, MU_SHAPE(100, 1001), 1, 1, 1);
    const mu_tensor *y = mu_nn_stateless_dropout(x, 0.3, seed);
    int64_t zeros = 0;
    for (int64_t i = 0; i < 100100; i++) {
        zeros += element(y, i) == 0;
        assert_true(element(y, i) == 0 || fabs(element(y, i) - 1 / 0.7) < 1e-6);
    }
    assert_true(fabs((double)zeros / 100100 - 0.3) < 0.01);
    const mu_dropout_attrs attrs = {0.3};
    mu_tensor *in[] = {random_tensor(MU_F64, MU_SHAPE(7, 9), -1, 1, 1), seed};
    check_gradient(&mu_op_dropout, &attrs, 2, in, 2, 0);
    assert_close(mu_nn_stateless_dropout(x, 0, seed), x, 0);
    assert_null(mu_nn_stateless_dropout(x, 1, seed));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

static void test_generators_differ_by_call_and_replica(void **state)
{
    (void)state;
    int64_t generator[3] = {-1, 0, 99}, seeds[3][2];
    for (int k = 0; k < 3; k++) {
        const mu_view resource = {MU_I64, {1, {3}}, generator}, out = {MU_I64, {1, {2}}, seeds[k]};
        const mu_kernel kernel = {.op = &mu_op_generator_next,
                                  .n_out = 1,
                                  .n_resources = 1,
                                  .out = &out,
                                  .resources = &resource,
                                  .replica = k == 2};
        assert_int_equal(mu_op_generator_next.ref(&kernel), MU_OK);
    }
    assert_true(generator[0] == 2 && generator[1] == 1 && generator[2] == 99);
    assert_true(seeds[0][0] == seeds[1][0] && seeds[0][1] != seeds[1][1] && seeds[1][0] != seeds[2][0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_norm_is_its_definition),
        cmocka_unit_test(test_batch_norm_in_blocks),
        cmocka_unit_test(test_batch_norm_gradients),
        cmocka_unit_test(test_last_axis_norms),
        cmocka_unit_test(test_random_bits),
        cmocka_unit_test(test_random_bits_of_all_sets),
        cmocka_unit_test(test_norm_kernels_of_all_sets),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_generators_differ_by_call_and_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
