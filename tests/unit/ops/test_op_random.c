// Tests of random numbers: equal to TensorFlow 2.21's stateless ops for seed [7, -3], and plausible in bulk.
#include "kernels/kernels.h"
#include "op_check.h"
#include "ops/core/attrs.h"
#include "ops/random/philox.h"

static mu_tensor *seed(void) { return VECTOR_OF(MU_I64, 7, -3); }

static void test_uniforms_have_tensorflows_bits(void **state)
{
    (void)state;
    const float f32[] = {0.4346421957015991f,  0.06527590751647949f, 0.7476129531860352f,
                         0.14876413345336914f, 0.5897864103317261f,  0.31938230991363525f};
    const double f64[] = {0.47713778180121613, 0.9809041063278245,  0.7182915943104444,
                          0.42682149360606525, 0.15280997415921727, 0.9123433266800502};
    assert_memory_equal(mu_tensor_data(mu_stateless_random_uniform(seed(), MU_F32, 1, DIMS(6))), f32, sizeof f32);
    assert_memory_equal(mu_tensor_data(mu_stateless_random_uniform(seed(), MU_F64, 1, DIMS(6))), f64, sizeof f64);
    EXPECT(mu_stateless_random_uniform(seed(), MU_F16, 1, DIMS(3)), 0.5888671875, 0.740234375, 0.4453125);
    EXPECT(mu_stateless_random_uniform(seed(), MU_BF16, 1, DIMS(3)), 0.7109375, 0.921875, 0.5625);
    EXPECT(mu_stateless_random_uniform_int(seed(), MU_I32, 1, DIMS(6), -3, 1000), 49, 960, 102, 692, 193, 572);
    EXPECT(mu_stateless_random_uniform_int(seed(), MU_I64, 1, DIMS(6), -3, 1000), 723, 678, 785, 76, 670, 188);
}

static void test_normals_agree(void **state)
{
    (void)state;
    EXPECT(mu_stateless_random_normal(seed(), MU_F64, 1, DIMS(4)), -0.1456107780640622, 1.2077654819729078,
           0.36099545311012377, -0.7290004301586933);
    EXPECT(mu_stateless_truncated_normal(seed(), MU_F64, 1, DIMS(6)), -0.1456107780640622, 1.2077654819729078,
           -0.28848604561432045, -0.14262208278233368, 0.6654110226412603, -0.1596591233320305);
    EXPECT(mu_stateless_random_normal(seed(), MU_F32, 1, DIMS(3)), 0.5147376656532288, 1.1838536262512207,
           0.6135525703430176);
    // Far from the start, with an angle whose product with 2 pi must be rounded once.
    mu_tensor *many = mu_stateless_random_normal(seed(), MU_F32, 1, DIMS(1132));
    assert_true(fabsf(((const float *)mu_tensor_data(many))[1130] - -1.2530237f) <= 2.4e-7f);
}

static void test_bulk(void **state)
{
    (void)state;
    mu_tensor *normal = mu_stateless_random_normal(seed(), MU_F32, 1, DIMS(100000));
    assert_true(fabs(mu_scalar(mu_reduce_mean(normal, 0))) < 0.01);
    assert_true(fabs(mu_scalar(mu_reduce_std(normal, 0)) - 1) < 0.01);
    mu_tensor *truncated = mu_stateless_truncated_normal(seed(), MU_F32, 1, DIMS(100000));
    assert_true(mu_scalar(mu_reduce_max(mu_abs(truncated), 0)) < 2);
    mu_tensor *positions = mu_stateless_permutation(seed(), 1000);
    assert_true(mu_scalar(mu_reduce_all(mu_equal(mu_sort(positions, 0, false), mu_range(MU_I64, 0, 1000, 1)), 0)) == 1);
    mu_tensor *coins = mu_cast(mu_stateless_random_bernoulli(seed(), 0.3, 1, DIMS(100000)), MU_F64);
    assert_true(fabs(mu_scalar(mu_reduce_mean(coins, 0)) - 0.3) < 0.01);
    mu_tensor *logits = mu_broadcast_to(mu_log(VECTOR(0.25, 0.75)), 2, DIMS(20000, 2));
    mu_tensor *classes = mu_cast(mu_stateless_random_categorical(seed(), logits), MU_F64);
    assert_true(fabs(mu_scalar(mu_reduce_mean(classes, 0)) - 0.75) < 0.01);
}

// Many numbers at once are those drawn one by one: bit for bit, or up to rounding where functions of two libraries are
// involved.
enum { N_BULK = 100003 };

static void check_fast(const mu_op *op, mu_dtype dtype, mu_random_attrs attrs, double bound)
{
    static double fast[N_BULK], plain[N_BULK];
    const mu_team alone = {.n_threads = 1};
    const int64_t seeds[] = {7, -3};
    const mu_view in = {MU_I64, MU_SHAPE(2), (void *)seeds};
    const mu_view out_fast = {dtype, MU_SHAPE(N_BULK), fast}, out_plain = {dtype, MU_SHAPE(N_BULK), plain};
    mu_kernel kernel = {.op = op, .attrs = &attrs, .n_in = 1, .n_out = 1, .in = &in, .out = &out_fast, .team = &alone};
    assert_int_equal(op->cpu.run(&kernel), MU_OK);
    kernel.out = &out_plain;
    assert_int_equal(op->ref(&kernel), MU_OK);
    for (int64_t k = 0; k < N_BULK; k++)
        assert_true(fabs(mu__read_element(dtype, fast, k) - mu__read_element(dtype, plain, k)) <= bound);
}

static void test_fast_is_plain(void **state)
{
    (void)state;
    static const mu_dtype floats[] = {MU_F32, MU_F64, MU_F16, MU_BF16};
    static const double missed[] = {2e-6, 1e-14, 4e-3, 3e-2}; // a normal number's last place
    const mu_random_attrs none = {.shape = MU_SHAPE(N_BULK)};
    for (size_t i = 0; i < MU_COUNT(floats); i++) {
        check_fast(&mu_op_stateless_random_uniform, floats[i], none, 0);
        check_fast(&mu_op_stateless_random_normal, floats[i], none, missed[i]);
        check_fast(&mu_op_stateless_truncated_normal, floats[i], none, missed[i]);
    }
    check_fast(&mu_op_stateless_permutation, MU_I64, none, 0);
    static const int64_t ranges[][2] = {{0, 1}, {-3, 1000}, {0, 1 << 30}, {INT32_MIN, INT32_MAX}, {5, 12}};
    for (size_t i = 0; i < MU_COUNT(ranges); i++) {
        const mu_random_attrs within = {.shape = MU_SHAPE(N_BULK), .low = ranges[i][0], .high = ranges[i][1]};
        check_fast(&mu_op_stateless_random_uniform_int, MU_I32, within, 0);
        check_fast(&mu_op_stateless_random_uniform_int, MU_I64, within, 0);
    }
    const mu_random_attrs all = {.shape = MU_SHAPE(N_BULK), .low = INT64_MIN, .high = INT64_MAX};
    check_fast(&mu_op_stateless_random_uniform_int, MU_I64, all, 0);
}

// Counters processed together by each instruction set give the numbers of counters one by one, also where a word
// carries into the next.
static void test_counters(void **state)
{
    (void)state;
    static const char *const sets[] = {"avx512", "avx2", "base"};
    static const uint64_t steps[] = {1, 256, UINT64_C(1) << 33};
    enum { N = 77 };
    for (size_t s = 0; s < 3 * MU_COUNT(steps); s++) {
        const mu_kernels *kernels = mu__kernels_for(sets[s % 3]);
        for (int carry = 0; kernels && carry < 4; carry++) {
            mu_philox generator = {.counter = {5, 6, 7, 8}, .key = {9, 10}};
            uint32_t many[4 * N], one[4];
            for (int i = 0; i < carry; i++)
                generator.counter[i] = UINT32_MAX - (i == 0 ? 20 : 0);
            kernels->philox(generator.counter, generator.key, steps[s / 3], N, many);
            for (int i = 0; i < N; i++) {
                mu__philox_next(&generator, one);
                mu__philox_skip(&generator, steps[s / 3] - 1);
                assert_memory_equal(one, many + 4 * i, sizeof one);
            }
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    assert_null(mu_stateless_random_uniform(VECTOR_OF(MU_I64, 1), MU_F32, 1, DIMS(3)));
    assert_taken(MU_INVALID_ARGUMENT, "two integers");
    assert_null(mu_stateless_random_normal(seed(), MU_I32, 1, DIMS(3)));
    assert_taken(MU_INVALID_ARGUMENT, "does not make int32");
    assert_null(mu_stateless_random_uniform_int(seed(), MU_I32, 1, DIMS(3), 5, 5));
    assert_taken(MU_INVALID_ARGUMENT, "at least 5 and below 5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniforms_have_tensorflows_bits),
        cmocka_unit_test(test_normals_agree),
        cmocka_unit_test(test_bulk),
        cmocka_unit_test(test_fast_is_plain),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_counters),
    };
    mu_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
