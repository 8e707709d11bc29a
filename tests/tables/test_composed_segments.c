// Segments and random draws that the table test does not cover: gradients of first and second order, and values.
//
// Gamma draws are compared with their distribution (means, deviations, and the derivative with respect to the shape
// parameter against differences of a smoothed mean); the conformance tests compare them with TensorFlow's.
#include "composed_check.h"

static mu_tensor *ids(int64_t n, const int32_t *values) { return mu_tensor_new(MU_I32, 1, &n, values); }
static mu_tensor *ascending(void) { return ids(5, (const int32_t[]){0, 0, 1, 3, 3}); }
static mu_tensor *mixed(void) { return ids(5, (const int32_t[]){2, 0, -1, 2, 0}); }

static mu_tensor *sorted_sum(mu_tensor *const *in) { return mu_segment_sum(in[0], ascending()); }
static mu_tensor *sorted_mean(mu_tensor *const *in) { return mu_segment_mean(in[0], ascending()); }
static mu_tensor *sorted_prod(mu_tensor *const *in) { return mu_segment_prod(in[0], ascending()); }
static mu_tensor *sorted_max(mu_tensor *const *in) { return mu_segment_max(in[0], ascending()); }
static mu_tensor *sorted_min(mu_tensor *const *in) { return mu_segment_min(in[0], ascending()); }
static mu_tensor *mean(mu_tensor *const *in) { return mu_unsorted_segment_mean(in[0], mixed(), 4); }
static mu_tensor *sqrt_n(mu_tensor *const *in) { return mu_unsorted_segment_sqrt_n(in[0], mixed(), 3); }
static mu_tensor *gathered(mu_tensor *const *in)
{
    const int32_t positions[] = {1, 1, 0, 2, 0, 1};
    return mu_batch_gather(in[0], mu_tensor_new(MU_I32, 2, (const int64_t[]){2, 3}, positions));
}

static const composed rows[] = {
    {"segment_sum", sorted_sum, 1, {MU_DIMS(5, 2)}, .batched = 1},
    {"segment_mean", sorted_mean, 1, {MU_DIMS(5, 2)}, .batched = 1},
    {"segment_mean of numbers", sorted_mean, 1, {MU_DIMS(5)}, .batched = 1},
    {"segment_prod", sorted_prod, 1, {MU_DIMS(5)}, .batched = 1},
    {"segment_max", sorted_max, 1, {MU_DIMS(5, 2)}, .batched = 1},
    {"segment_min", sorted_min, 1, {MU_DIMS(5, 1, 2)}, .batched = 1},
    {"segment_sum of nothing", sorted_sum, 1, {MU_DIMS(5, 0)}, .batched = 1},
    {"unsorted_segment_mean", mean, 1, {MU_DIMS(5, 2)}, .batched = 1},
    {"unsorted_segment_sqrt_n", sqrt_n, 1, {MU_DIMS(5, 2)}, .batched = 1},
    {"batch_gather", gathered, 1, {MU_DIMS(2, 3, 2)}},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        composed_check(&rows[i]);
}

static double at(const mu_tensor *x, int64_t i) { return mu__read_element(x->dtype, mu__host_read(x), i); }

// 2,049 is not a valid float16; divided by the 2,048 next to it the mean would be 1.001.
static void test_mean_of_many(void **state)
{
    enum { N = 2049 };
    static float values[N] = {2050};
    static int32_t segments[N];
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_tensor *numbers = mu_segment_mean(mu_cast(mu_vector_f32(N, values), MU_F16), ids(N, segments));
    assert_non_null(numbers);
    assert_true(at(numbers, 0) == 1);
    mu_pool_close(pool);
}

static void test_empty_segments(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const float values[] = {3, -2, 5, 7, 1};
    mu_tensor *x = mu_vector_f32(5, values);
    const mu_tensor *sum = mu_segment_sum(x, ascending()), *most = mu_segment_max(x, ascending());
    assert_int_equal(mu_tensor_elements(sum), 4);
    assert_true(at(sum, 0) == 1 && at(sum, 2) == 0 && at(most, 0) == 3 && at(most, 2) == 0 && at(most, 3) == 7);
    assert_true(at(mu_segment_prod(x, ascending()), 2) == 1);
    const mu_tensor *least = mu_unsorted_segment_min(x, mixed(), 4);
    assert_true(at(least, 0) == -2 && at(least, 2) == 3 && at(least, 3) > 3e38);
    mu_tensor *bytes = mu_cast(x, MU_I8);
    assert_true(at(mu_unsorted_segment_max(bytes, mixed(), 3), 1) == -128);
    assert_null(mu_segment_sum(x, mixed()));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_unsorted_segment_sum(x, mixed(), 2));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

// ---- Draws --------------------------------------------------------------------------------------

static mu_tensor *seed(void) { return mu_tensor_new(MU_I64, 1, (const int64_t[]){2}, (const int64_t[]){5, 11}); }

static void moments(const mu_tensor *x, int64_t first, int64_t step, double *mean_of, double *variance_of)
{
    double sum = 0, squares = 0;
    int64_t n = 0;
    for (int64_t i = first; i < mu_tensor_elements(x); i += step, n++) {
        sum += at(x, i);
        squares += at(x, i) * at(x, i);
    }
    *mean_of = sum / (double)n;
    *variance_of = squares / (double)n - *mean_of * *mean_of;
}

static void test_distributions(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const double shapes[] = {0.4, 1, 6}, rates[] = {0.7, 9, 60};
    const int64_t three = 3, n = 40000, dims[] = {n, 3};
    const mu_tensor *gamma =
        mu_stateless_random_gamma(seed(), mu_tensor_new(MU_F64, 1, &three, shapes), mu_constant(MU_F64, 2), 2, dims);
    const mu_tensor *counts =
        mu_stateless_random_poisson(seed(), mu_tensor_new(MU_F64, 1, &three, rates), MU_I64, 2, dims);
    for (int i = 0; i < 3; i++) {
        double m, v;
        moments(gamma, i, 3, &m, &v);
        assert_true(fabs(m - shapes[i] / 2) < 5 * sqrt(shapes[i]) / 2 / sqrt((double)n));
        assert_true(fabs(v / (shapes[i] / 4) - 1) < 0.1);
        moments(counts, i, 3, &m, &v);
        assert_true(fabs(m - rates[i]) < 5 * sqrt(rates[i] / (double)n));
        assert_true(fabs(v / rates[i] - 1) < 0.1);
    }
    mu_pool_close(pool);
}

// Rates for which there is no distribution: TensorFlow's results, except for NaN, with which it never returns.
static void test_odd_rates(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const double rates[] = {-1, -1e300, -INFINITY, 0, -0.0, INFINITY, NAN};
    const int64_t n = MU_COUNT(rates);
    mu_tensor *rate = mu_tensor_new(MU_F64, 1, &n, rates);
    const mu_tensor *numbers = mu_stateless_random_poisson(seed(), rate, MU_F32, 1, &n);
    const mu_tensor *counts = mu_stateless_random_poisson(seed(), rate, MU_I32, 1, &n);
    assert_non_null(numbers);
    assert_non_null(counts);
    for (int i = 0; i < n; i++) {
        assert_true(at(counts, i) == 0);
        assert_true(i < 5 ? at(numbers, i) == 0 : i == 5 ? at(numbers, i) == INFINITY : isnan(at(numbers, i)));
    }
    mu_pool_close(pool);
}

// Narrow indices of slices become int32.
static void test_narrow_indices(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_dtype dtypes[] = {MU_I8, MU_I16, MU_I32, MU_I64};
    for (size_t k = 0; k < MU_COUNT(dtypes); k++) {
        mu_tensor *narrow = mu_cast(mu_tensor_new(MU_I64, 1, (const int64_t[]){2}, (const int64_t[]){3, 1}), dtypes[k]);
        mu_value *slices =
            mu_indexed_slices(mu_ones(MU_F32, 2, (const int64_t[]){2, 2}), narrow, 2, (const int64_t[]){4, 2});
        assert_non_null(slices);
        assert_int_equal(mu_tensor_dtype(mu_at(slices, 1)), k == 3 ? MU_I64 : MU_I32);
        const mu_tensor *dense = mu_convert_to_tensor(slices);
        for (int i = 0; i < 8; i++)
            assert_true(at(dense, i) == (i / 2 == 1 || i / 2 == 3));
    }
    assert_null(mu_indexed_slices(mu_ones(MU_F32, 1, (const int64_t[]){2}), mu_ones(MU_F32, 1, (const int64_t[]){2}), 1,
                                  (const int64_t[]){2}));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

// The mean of draws is alpha / beta: its derivatives are 1 / beta and -alpha / beta^2, up to random deviations.
static void test_derivatives_of_gamma(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const int64_t n = 20000;
    mu_tensor *alpha = mu_constant(MU_F64, 1.7), *beta = mu_constant(MU_F64, 2);
    mu_tape *tape = mu_tape_open();
    mu_tensor *draws = mu_stateless_random_gamma(seed(), alpha, beta, 1, &n);
    mu_value *slopes = mu_gradients(tape, mu_reduce_mean(draws, MU_ALL_AXES), mu_list(alpha, beta, MU_END));
    mu_tape_close(tape);
    assert_non_null(slopes);
    assert_true(fabs(at(mu_at(slopes, 0), 0) - 0.5) < 0.01);
    assert_true(fabs(at(mu_at(slopes, 1), 0) + 1.7 / 4) < 0.02);
    assert_null(mu_stateless_random_gamma(seed(), mu_tensor_new(MU_F64, 1, (const int64_t[]){3}, NULL), NULL, 1, &n));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_empty_segments),
        cmocka_unit_test(test_mean_of_many),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_derivatives_of_gamma),
        cmocka_unit_test(test_odd_rates),
        cmocka_unit_test(test_narrow_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
