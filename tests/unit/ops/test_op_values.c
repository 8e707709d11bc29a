// Tests of values at the edges: NaN, infinities, integer limits, ties, negative axes and strides, empty axes. The
// expected values are those of TensorFlow's CPU kernels.
#include "op_check.h"

#include <muster/distribute.h>
#include <muster/nn.h>

static void test_floats_at_the_edges(void **state)
{
    (void)state;
    EXPECT(mu_maximum(VECTOR(NAN, 1, -INFINITY), VECTOR(1, NAN, 2)), NAN, NAN, 2);
    EXPECT(mu_floor_divide(VECTOR(-7, 7, 7.5), VECTOR(2, -2, 2)), -4, -4, 3);
    EXPECT(mu_mod(VECTOR(-7, 7, -7, 7), VECTOR(3, -3, -3, 3)), 2, -2, -1, 1);
    EXPECT(mu_round(VECTOR(0.5, 1.5, -0.5, 2.5, -2.6)), 0, 2, -0.0, 2, -3);
    EXPECT(mu_divide_no_nan(VECTOR(1, NAN), VECTOR(0, 0)), 0, 0);
    EXPECT(mu_sign(VECTOR(NAN, -3, 0)), NAN, -1, 0);
    EXPECT(mu_sigmoid(VECTOR(-1000, 1000, 0)), 0, 1, 0.5);
    EXPECT(mu__apply1(&mu_op_softplus, NULL, VECTOR(-1000, 1000)), 0, 1000);
    EXPECT(mu__apply1(&mu_op_relu, NULL, VECTOR(NAN, -1, 2)), NAN, 0, 2);
    EXPECT(mu_reduce_logsumexp(VECTOR(1000, 1000), 0), 1000.6931471805599);
    EXPECT(mu_reduce_logsumexp(VECTOR(-INFINITY, -INFINITY), 0), -INFINITY);
    EXPECT(mu_is_finite(VECTOR(NAN, INFINITY, 1)), 0, 0, 1);
    mu_tensor *one = mu_ones(MU_F32, 2, DIMS(2, 1)), *query = mu_reshape(VECTOR(NAN, 1), 2, DIMS(2, 1));
    EXPECT(mu_nn_attention(query, one, one), NAN, 1);
}

// Closed forms: zeta(3), powers of pi, and one step of the recurrence below 0.
static void test_derivatives_of_digamma(void **state)
{
    (void)state;
    const double zeta3 = 1.2020569031595942854, square = M_PI * M_PI;
    EXPECT(mu_polygamma(0, VECTOR(1, 0.5)), -0.57721566490153286061, -1.9635100260214234794);
    EXPECT(mu_polygamma(1, VECTOR(1, 0.5, -1, INFINITY)), square / 6, square / 2, INFINITY, 0);
    // Next to a pole far from 0, the distance from it counts.
    EXPECT(mu_polygamma(1, VECTOR_OF(MU_F64, -13700 - 0x1p-39, -0x1p30 + 0x1p-20)), 0x1p78, 0x1p40);
    EXPECT(mu_polygamma(0, VECTOR_OF(MU_F64, -13700 - 0x1p-39)), 0x1p39);
    EXPECT(mu_polygamma(2, VECTOR_OF(MU_F64, 1, 0.5, -0.5, -3)), -2 * zeta3, -14 * zeta3, 16 - 14 * zeta3, NAN);
    EXPECT(mu_polygamma(3, VECTOR_OF(MU_F64, 1, 0.5, 0, INFINITY, NAN)), square * square / 15, square * square,
           INFINITY, 0, NAN);
    EXPECT(mu_polygamma(5, VECTOR_OF(MU_F64, 0.5, -0.5)), 8 * square * square * square,
           8 * square * square * square + 7680);
    EXPECT(mu_polygamma(100, VECTOR_OF(MU_F64, -0.5, 1e300)), -1.530334926217600409e140, 0);
    assert_null(mu_polygamma(-1, VECTOR(1)));
    assert_taken(MU_INVALID_ARGUMENT, "polygamma: order -1; it takes orders from 0 (digamma) to 100");
    assert_null(mu_polygamma(101, VECTOR(1)));
    assert_taken(MU_INVALID_ARGUMENT, "order 101");
}

static void test_integers_at_the_edges(void **state)
{
    (void)state;
    EXPECT(mu_add(VECTOR_OF(MU_I8, 127), VECTOR_OF(MU_I8, 1)), -128);
    EXPECT(mu_abs(VECTOR_OF(MU_I32, INT32_MIN)), INT32_MIN);
    EXPECT(mu_floor_divide(VECTOR_OF(MU_I32, INT32_MIN, -7), VECTOR_OF(MU_I32, -1, 2)), INT32_MIN, -4);
    EXPECT(mu_mod(VECTOR_OF(MU_I32, INT32_MIN, -7), VECTOR_OF(MU_I32, -1, 2)), 0, 1);
    EXPECT(mu_pow(VECTOR_OF(MU_I32, 2, -3, 0), VECTOR_OF(MU_I32, 10, 3, 0)), 1024, -27, 1);
    EXPECT(mu_divide(VECTOR_OF(MU_I32, 7), VECTOR_OF(MU_I32, 2)), 3.5);
    EXPECT(mu_reduce_mean(VECTOR_OF(MU_I32, 1, 2, 4), 0), 2);
    assert_null(mu_floor_divide(VECTOR_OF(MU_I32, 7), VECTOR_OF(MU_I32, 0)));
    assert_taken(MU_INVALID_ARGUMENT, "integer division by 0");
    assert_null(mu_pow(VECTOR_OF(MU_I32, 7), VECTOR_OF(MU_I32, -1)));
    assert_taken(MU_INVALID_ARGUMENT, "to the power -1");
}

// Whole numbers divided as C does it and rounded down.
static void check_whole_division(const int64_t *x, int64_t n_x, const int64_t *y, int64_t n_y)
{
    const int64_t n = MU_MAX(n_x, n_y);
    mu_tensor *a = mu_tensor_new(MU_I64, 1, DIMS(n_x), x), *b = mu_tensor_new(MU_I64, 1, DIMS(n_y), y);
    const int64_t *quotient = mu_tensor_data(mu_floor_divide(a, b)), *rest = mu_tensor_data(mu_mod(a, b));
    assert_true(quotient && rest);
    for (int64_t i = 0; i < n; i++) {
        const int64_t above = x[n_x > 1 ? i : 0], below = y[n_y > 1 ? i : 0];
        int64_t wanted = below == -1 ? (int64_t)(0 - (uint64_t)above) : above / below;
        wanted -= below != -1 && above % below != 0 && (above < 0) != (below < 0);
        assert_int_equal(quotient[i], wanted);
        assert_int_equal(rest[i], (int64_t)((uint64_t)above - (uint64_t)wanted * (uint64_t)below));
    }
}

static void test_whole_division(void **state)
{
    enum { N = 1500 };
    static const int64_t edges[] = {1,
                                    -1,
                                    2,
                                    INT64_C(1) << 51,
                                    -(INT64_C(1) << 51),
                                    (INT64_C(1) << 51) - 1,
                                    1 - (INT64_C(1) << 51),
                                    (INT64_C(1) << 53) + 1,
                                    INT64_MAX,
                                    INT64_MIN,
                                    0,
                                    7};
    static int64_t x[N], y[N];
    uint64_t drawn = 11;
    (void)state;
    for (int large = 0; large < 2; large++) {
        for (int i = 0; i < N; i++) {
            drawn = drawn * 6364136223846793005u + 1442695040888963407u;
            y[i] = (int64_t)drawn >> (13 + (i * 7) % 50);
            y[i] = y[i] == 0 ? -3 : y[i];
            drawn = drawn * 6364136223846793005u + 1442695040888963407u;
            x[i] = i % 5 ? (int64_t)drawn >> (13 + i % 30) : (y[i] % 1000) * (int64_t)(drawn >> 54) - i % 3;
            x[i] = large && i % 700 == 0 ? edges[i / 700] : x[i];
        }
        check_whole_division(x, N, y, N);
        check_whole_division(x, N, y + 5, 1);
        check_whole_division(x + 3, 1, y, N);
    }
    for (size_t i = 0; i < MU_COUNT(edges); i++)
        for (size_t k = 0; k < MU_COUNT(edges); k++)
            if (edges[k] != 0)
                check_whole_division(&edges[i], 1, &edges[k], 1);
}

// Every pair of int8, and each of them against int16 at its limits: quotients wrap around as conversions do.
static void test_division_of_small_integers(void **state)
{
    enum { N = 256 * 255 };
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        mu_pool *pool = mu_pool_open();
        const mu_dtype dtype = wide ? MU_I16 : MU_I8;
        mu_tensor *a = mu_zeros(MU_I32, 1, DIMS(N)), *b = mu_zeros(MU_I32, 1, DIMS(N));
        int32_t *x = mu__host_write(a), *y = mu__host_write(b);
        for (int i = 0; i < N; i++) {
            x[i] = (i / 255 - 128) * (wide ? 256 : 1) + (wide && i % 2);
            y[i] = i % 255 < 128 ? i % 255 - 128 : i % 255 - 127;
        }
        mu_tensor *p = mu_cast(a, dtype), *q = mu_cast(b, dtype);
        const int32_t *quotient = mu__host_read(mu_cast(mu_floor_divide(p, q), MU_I32));
        const int32_t *rest = mu__host_read(mu_cast(mu_mod(p, q), MU_I32));
        for (int i = 0; i < N; i++) {
            const int whole = x[i] / y[i] - (x[i] % y[i] != 0 && (x[i] < 0) != (y[i] < 0));
            assert_int_equal(quotient[i], wide ? (int16_t)whole : (int8_t)whole);
            assert_int_equal(rest[i], x[i] - whole * y[i]);
        }
        mu_pool_close(pool);
    }
}

// For all 16-bit floats: the rounded result for the float32 of the same value.
static void test_all_float16(void **state)
{
    static uint16_t bits[65536];
    static mu_tensor *(*const ops[])(mu_tensor *) = {mu_sign, mu_neg, mu_abs, mu_square};
    static const mu_dtype types[] = {MU_F16, MU_BF16};
    (void)state;
    for (int i = 0; i < 65536; i++)
        bits[i] = (uint16_t)i;
    for (int at = 0; at < 8; at++) {
        const mu_dtype type = types[at / 4];
        mu_tensor *x = mu_tensor_new(type, 1, DIMS(65536), bits);
        mu_tensor *wide = ops[at % 4](mu_cast(x, MU_F32));
        const uint16_t *got = mu_tensor_data(ops[at % 4](x)), *wanted = mu_tensor_data(mu_cast(wide, type));
        const float *as_float = mu_tensor_data(mu_cast(ops[at % 4](x), MU_F32));
        for (int i = 0; i < 65536; i++)
            if (wanted[i] != got[i] && !(isnan(as_float[i]) && isnan(((const float *)mu_tensor_data(wide))[i])))
                fail_msg("op %d of %s: %#x gives %#x instead of %#x", at % 4, mu_dtype_name(type), (unsigned)i,
                         (unsigned)got[i], (unsigned)wanted[i]);
    }
}

// 16-bit floats with some of their neighbours, infinities and NaN, and all of them with 1 as either operand: the
// rounded results for the float32 numbers of the same values.
static void test_comparisons_of_float16(void **state)
{
    enum { N = 65536 };
    static uint16_t bits[N], turned[N];
    static mu_tensor *(*const ops[])(mu_tensor *, mu_tensor *) = {mu_equal,      mu_not_equal, mu_less,
                                                                  mu_less_equal, mu_greater,   mu_greater_equal};
    static const uint16_t ones[] = {0, 0x8000, 0x8001, 0x3c00, 0x7c00, 0xfc01, 0x7f80, 0xff80, 0x7fff};
    (void)state;
    for (int i = 0; i < N; i++) {
        bits[i] = (uint16_t)i;
        turned[i] = (uint16_t)(i % 3 == 0 ? i ^ 0x8000 : i % 3 == 1 ? i : (int)((uint32_t)i * 40503u));
    }
    for (size_t at = 0; at < 2 * MU_COUNT(ones) * MU_COUNT(ops); at++) {
        mu_tensor *(*const op)(mu_tensor *, mu_tensor *) = ops[at % MU_COUNT(ops)];
        const mu_dtype type = at / MU_COUNT(ops) % 2 ? MU_BF16 : MU_F16;
        mu_pool *pool = mu_pool_open();
        mu_tensor *x = mu_tensor_new(type, 1, DIMS(N), bits), *y = mu_tensor_new(type, 1, DIMS(N), turned);
        mu_tensor *one = mu_tensor_new(type, 0, NULL, &ones[at / MU_COUNT(ops) / 2]);
        mu_tensor *wide = mu_cast(x, MU_F32), *wide_y = mu_cast(y, MU_F32), *wide_one = mu_cast(one, MU_F32);
        assert_memory_equal(mu_tensor_data(op(x, y)), mu_tensor_data(op(wide, wide_y)), N);
        assert_memory_equal(mu_tensor_data(op(x, one)), mu_tensor_data(op(wide, wide_one)), N);
        assert_memory_equal(mu_tensor_data(op(one, x)), mu_tensor_data(op(wide_one, wide)), N);
        mu_pool_close(pool);
    }
}

static mu_value *choose(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *chosen = mu_where(mu_at(arguments, 0), mu_at(arguments, 1), mu_at(arguments, 2));
    return mu_list(mu_where(mu_logical_not(mu_at(arguments, 0)), mu_at(arguments, 1), chosen), chosen, MU_END);
}

// Of every type, truth values too; at once and in a function, where the two become one node.
static void test_where_of_all_types(void **state)
{
    (void)state;
    static const mu_dtype types[] = {MU_F64, MU_F32, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8, MU_BOOL};
    for (size_t i = 0; i < MU_COUNT(types); i++) {
        mu_value *arguments = mu_list(VECTOR_OF(MU_BOOL, 1, 0, 1, 0), VECTOR_OF(types[i], 1, 1, 0, 0),
                                      VECTOR_OF(types[i], 0, 0, 1, 1), MU_END);
        mu_function *function = mu_function_new(choose, NULL);
        mu_value *eager = choose(arguments, NULL), *traced = mu_run(mu_get_strategy(), function, arguments);
        EXPECT(mu_at(eager, 1), 1, 0, 0, 1);
        EXPECT(mu_at(eager, 0), 1, 1, 0, 0);
        EXPECT(mu_at(traced, 1), 1, 0, 0, 1);
        EXPECT(mu_at(traced, 0), 1, 1, 0, 0);
    }
}

static void test_reductions(void **state)
{
    (void)state;
    mu_tensor *x = mu_reshape(mu_range(MU_F32, 0, 24, 1), 3, DIMS(2, 3, 4));
    EXPECT(mu_reduce_sum(x, .axes = (const int[]){0, -1}, .n_axes = 2), 60, 92, 124);
    EXPECT(mu_reduce_sum(mu_zeros(MU_F32, 2, DIMS(0, 2)), 0), 0, 0);
    EXPECT(mu_reduce_max(mu_zeros(MU_F32, 2, DIMS(0, 1)), 0), -INFINITY);
    EXPECT(mu_reduce_mean(mu_zeros(MU_F32, 2, DIMS(0, 1)), 0), NAN);
    EXPECT(mu_reduce_max(VECTOR(1, NAN, 3), 0), NAN);
    EXPECT(mu_argmax(VECTOR(1, 3, 3), 0), 1);
    EXPECT(mu_argmin(VECTOR(2, 1, 1), -1), 1);
    EXPECT(mu_cumsum(VECTOR(1, 2, 3), 0, true, true), 5, 3, 0);
    EXPECT(mu_cumprod(VECTOR(1, 2, 3), 0, false, false), 1, 2, 6);
    EXPECT(mu_reduce_variance(VECTOR(1, 2, 3, 4), MU_ALL_AXES), 1.25);
    assert_null(mu_argmax(mu_zeros(MU_F32, 2, DIMS(2, 0)), 1));
    assert_taken(MU_INVALID_ARGUMENT, "empty");
    assert_null(mu_reduce_sum(x, .axes = (const int[]){0, -3}, .n_axes = 2));
    assert_taken(MU_INVALID_ARGUMENT, "given twice");
}

// So many rows that they are prefetched, and columns that are not a multiple of a vector.
static void test_columns_of_many_rows(void **state)
{
    enum { ROWS = 8197, COLUMNS = 1037 };
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_I32, MU_I64, MU_BF16, MU_F16, MU_I16};
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        mu_tensor *rows = mu_reshape(mu_range(MU_F32, 0, ROWS, 1), 2, DIMS(ROWS, 1));
        mu_tensor *place = mu_reshape(mu_range(MU_F32, 0, COLUMNS, 1), 2, DIMS(1, COLUMNS));
        mu_tensor *hit = mu_cast(mu_equal(rows, mu_multiply(place, mu_constant(MU_F32, 7))), dtypes[i]);
        mu_tensor *ones = mu_ones(MU_F32, 1, DIMS(COLUMNS));
        mu_tensor *wanted = mu_cast(mu_range(MU_F32, 0, 7 * COLUMNS, 7), MU_I64);
        EXPECT(mu_reduce_all(mu_equal(mu_cast(mu_reduce_sum(hit, 0), MU_F32), ones), 0), 1);
        EXPECT(mu_reduce_all(mu_equal(mu_cast(mu_reduce_max(hit, 0), MU_F32), ones), 0), 1);
        EXPECT(mu_reduce_all(mu_equal(mu_argmax(hit, 0), wanted), 0), 1);
        EXPECT(mu_reduce_all(mu_equal(mu_argmin(mu_neg(hit), 0), wanted), 0), 1);
    }
}

static void test_minmax_of_float16(void **state)
{
    static const mu_dtype float16s[] = {MU_F16, MU_BF16};
    (void)state;
    for (int i = 0; i < 2; i++) {
        EXPECT(mu_reduce_max(VECTOR_OF(float16s[i], -3, -2, -INFINITY), 0), -2);
        EXPECT(mu_reduce_min(VECTOR_OF(float16s[i], 3, -2, INFINITY), 0), -2);
        EXPECT(mu_reduce_max(VECTOR_OF(float16s[i], 1, NAN, 3), 0), NAN);
        EXPECT(mu_reduce_min(VECTOR_OF(float16s[i], 1, -NAN, 3), 0), NAN);
        EXPECT(mu_reduce_max(mu_zeros(float16s[i], 2, DIMS(0, 1)), 0), -INFINITY);
        EXPECT(mu_argmax(VECTOR_OF(float16s[i], -1, -0.0, 0), 0), 1);
        EXPECT(mu_argmin(VECTOR_OF(float16s[i], 1, NAN, -3, NAN), 0), 1);
        EXPECT(mu_argmin(VECTOR_OF(float16s[i], 1, -3, -3, 0), 0), 1);
        EXPECT(mu_argmax(mu_reshape(VECTOR_OF(float16s[i], 1, 5, 2, 5), 2, DIMS(2, 2)), 0), 1, 0);
    }
}

// Equal numbers are the worst case: every addition to a running total may err to the same side. The bounds hold for
// every instruction set: a total that adds more numbers in sequence than with the widest vectors would exceed them.
static void test_long_sums_stay_accurate(void **state)
{
    (void)state;
    const double f64 = 0.1, bf16 = 0.10009765625, f16 = 0.0999755859375; // 0.1 rounded to each type
    mu_tensor *x = mu_fill(MU_F32, 2, DIMS(1 << 20, 3), 0.1);
    EXPECT(mu_reduce_sum(x, MU_ALL_AXES), 3 * 104857.6);
    EXPECT(mu_reduce_mean(x, MU_ALL_AXES), 0.1);
    EXPECT(mu_reduce_sum(x, 0), 104857.6, 104857.6, 104857.6);
    EXPECT(mu_reduce_mean(x, 0), 0.1, 0.1, 0.1);
    const double sum = mu_scalar(mu_reduce_sum(mu_fill(MU_F64, 2, DIMS(1 << 20, 3), 0.1), MU_ALL_AXES));
    assert_true(fabs(sum - (3 << 20) * f64) <= 2e-15 * sum);
    // For 16-bit floats the sum before it is rounded once: exactly the number times a power of two.
    EXPECT(mu_reduce_sum(mu_fill(MU_BF16, 1, DIMS(1 << 20), 0.1), MU_ALL_AXES), (1 << 20) * bf16);
    EXPECT(mu_reduce_mean(mu_fill(MU_BF16, 1, DIMS(1 << 20), 0.1), MU_ALL_AXES), bf16);
    EXPECT(mu_reduce_sum(mu_fill(MU_F16, 1, DIMS(1 << 19), 0.1), MU_ALL_AXES), (1 << 19) * f16);
    EXPECT(mu_reduce_mean(mu_fill(MU_F16, 1, DIMS(1 << 20), 0.1), MU_ALL_AXES), f16);
}

static void test_shapes(void **state)
{
    (void)state;
    mu_tensor *x = mu_reshape(mu_range(MU_F32, 0, 6, 1), 2, DIMS(2, 3)), *parts[3];
    EXPECT(mu_transpose(x, NULL), 0, 3, 1, 4, 2, 5);
    EXPECT(mu_strided_slice(x, DIMS(0, -1), DIMS(0, 0), DIMS(1, -2), 1, 3, 0), 2, 0, 5, 3);
    EXPECT(mu_strided_slice(x, DIMS(-1, 1), DIMS(0, 9), NULL, 0, 0, 1), 4, 5);
    EXPECT(mu_pad(VECTOR(1, 2, 3), DIMS(2), DIMS(1), "reflect", 0), 3, 2, 1, 2, 3, 2);
    EXPECT(mu_pad(VECTOR(1, 2, 3), DIMS(2), DIMS(1), "symmetric", 0), 2, 1, 1, 2, 3, 3);
    EXPECT(mu_tile(VECTOR(1, 2), DIMS(2)), 1, 2, 1, 2);
    EXPECT(mu_repeat(VECTOR(1, 2), 2, 0), 1, 1, 2, 2);
    EXPECT(mu_roll(VECTOR(1, 2, 3), 1, 0), 3, 1, 2);
    EXPECT(mu_reverse(x, -1), 2, 1, 0, 5, 4, 3);
    assert_int_equal(mu_split(x, 3, 1, parts), MU_OK);
    EXPECT(mu_concat(2, (mu_tensor *[]){parts[2], parts[0]}, -1), 2, 0, 5, 3);
    mu_tensor *none = mu_zeros(MU_F32, 2, DIMS(3, 0)), *two = mu_reshape(x, 2, DIMS(3, 2));
    EXPECT(mu_concat(2, (mu_tensor *[]){none, two}, 1), 0, 1, 2, 3, 4, 5);
    assert_null(mu_slice(x, DIMS(0, 2), DIMS(1, 2)));
    assert_taken(MU_INVALID_ARGUMENT, "axis 1, which has 3");
}

static void test_large_transposes(void **state)
{
    (void)state;
    enum { A = 3, B = 70, C = 45 };
    const int axes[][3] = {{0, 2, 1}, {2, 0, 1}, {1, 0, 2}, {2, 1, 0}};
    const int64_t dims[] = {A, B, C}, steps[] = {B * C, C, 1};
    mu_tensor *x = mu_reshape(mu_range(MU_I32, 0, A * B * C, 1), 3, dims);
    for (size_t t = 0; t < MU_COUNT(axes); t++) {
        const int32_t *y = mu_tensor_data(mu_transpose(x, axes[t]));
        for (int64_t i = 0; i < dims[axes[t][0]]; i++)
            for (int64_t j = 0; j < dims[axes[t][1]]; j++)
                for (int64_t k = 0; k < dims[axes[t][2]]; k++)
                    assert_int_equal(*y++, i * steps[axes[t][0]] + j * steps[axes[t][1]] + k * steps[axes[t][2]]);
    }
}

static void test_indices(void **state)
{
    (void)state;
    mu_tensor *x = VECTOR(10, 20, 30), *values, *positions;
    EXPECT(mu_gather(x, VECTOR_OF(MU_I32, 2, 0, 2), 0, 0), 30, 10, 30);
    assert_null(mu_gather(x, VECTOR_OF(MU_I32, 0, 3), 0, 0));
    assert_taken(MU_INVALID_ARGUMENT, "index 3 (element 1 of the indices) is outside 0 to 2");
    EXPECT(mu_scatter_nd(mu_reshape(VECTOR_OF(MU_I64, 1, 1, 0), 2, DIMS(3, 1)), VECTOR(1, 2, 3), 1, DIMS(3)), 3, 3, 0);
    EXPECT(mu_one_hot(VECTOR_OF(MU_I32, 1, -1), 2, MU_F32), 0, 1, 0, 0);
    assert_int_equal(mu_top_k(VECTOR(3, 1, 3, 2), 2, &values, &positions), MU_OK);
    EXPECT(values, 3, 3);
    EXPECT(positions, 0, 2);
    assert_int_equal(mu_unique(VECTOR(5, 1, 5, 2, 1), &values, &positions), MU_OK);
    EXPECT(values, 5, 1, 2);
    EXPECT(positions, 0, 1, 0, 2, 1);
    EXPECT(mu_sort(VECTOR_OF(MU_I64, 3, -1, 2), 0, true), 3, 2, -1);
    EXPECT(mu_argsort(VECTOR(2, NAN, 1), 0, false), 2, 0, 1);
    EXPECT(mu_searchsorted(VECTOR(1, 2, 2, 3), VECTOR(2, 0, 9), true), 3, 0, 4);
    EXPECT(mu_unsorted_segment_sum(x, VECTOR_OF(MU_I32, 1, -1, 1), 2), 0, 40);
}

// Sums that do not fit their type, whatever is reduced.
static void test_means_of_integers(void **state)
{
    (void)state;
    EXPECT(mu_reduce_mean(VECTOR_OF(MU_U8, 250, 254), 0), 252);
    EXPECT(mu_reduce_mean(VECTOR_OF(MU_I8, -128, -127), 0), -127);
    EXPECT(mu_reduce_mean(VECTOR_OF(MU_I32, INT32_MAX, INT32_MAX, INT32_MAX - 3), 0), INT32_MAX - 1);
    mu_tensor *x = mu_fill(MU_I16, 3, DIMS(2, 2, 3), 30000);
    EXPECT(mu_reduce_mean(x, .axes = (const int[]){0, 2}, .n_axes = 2), 30000, 30000);
    EXPECT(mu_segment_mean(VECTOR_OF(MU_I8, -100, -101, 7), VECTOR_OF(MU_I32, 0, 0, 1)), -100, 7);
}

static mu_tensor *derivative(mu_tensor *(*fn)(mu_tensor *x), mu_tensor *x)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = fn(x);
    mu_value *found = mu_gradients(tape, y, mu_of(x));
    mu_tape_close(tape);
    return found ? mu_value_tensor(found) : NULL;
}

static mu_tensor *products(mu_tensor *x) { return mu_cumprod(x, 0, false, false); }
static mu_tensor *products_behind(mu_tensor *x) { return mu_cumprod(x, 0, true, true); }
static mu_tensor *clipped(mu_tensor *x) { return mu_clip_by_value(x, VECTOR(3), VECTOR(2)); }
static mu_tensor *solved(mu_tensor *x)
{
    mu_tensor *matrix = mu_reshape(x, 2, DIMS(2, 2));
    return mu_triangular_solve(matrix, mu_ones(MU_F32, 2, DIMS(2, 1)), true, false);
}

static void test_derivatives_at_the_edges(void **state)
{
    (void)state;
    EXPECT(derivative(products, VECTOR(3, 0, 2, 0, 5)), 1, 3 + 6, 0, 0, 0);
    EXPECT(derivative(products, VECTOR(2, 3, 4)), 1 + 3 + 12, 2 + 8, 6);
    EXPECT(derivative(products_behind, VECTOR(7, 3, 0, 5)), 0, 0, 5 + 15, 1);
    EXPECT(derivative(clipped, VECTOR(1, 2.5, NAN)), 0, 0, 0);
    EXPECT(derivative(solved, VECTOR(1e-30, 5, 0, 1e-30)), -INFINITY, 0, -INFINITY, -INFINITY);
}

// Bounds that are single numbers, have strides or are crossed, and one number between bounds with strides; a NaN
// anywhere gives NaN.
static void test_clips(void **state)
{
    (void)state;
    static const mu_dtype types[] = {MU_F64, MU_F32, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8};
    for (size_t i = 0; i < MU_COUNT(types); i++) {
        const mu_dtype t = types[i];
        mu_tensor *x = VECTOR_OF(t, -5, 0, 2, 7), *low = mu_constant(t, -1), *high = mu_constant(t, 3);
        EXPECT(mu_clip_by_value(x, low, high), -1, 0, 2, 3);
        EXPECT(mu_clip_by_value(x, high, low), 3, 3, 3, 3);
        EXPECT(mu_clip_by_value(x, VECTOR_OF(t, -9, 1, 1, 1), high), -5, 1, 2, 3);
        EXPECT(mu_clip_by_value(x, low, VECTOR_OF(t, 9, -9, 1, 9)), -1, -1, 1, 7);
        EXPECT(mu_clip_by_value(mu_constant(t, 2), VECTOR_OF(t, 1, 3, -4, 0), VECTOR_OF(t, 1, 4, 0, 9)), 1, 3, 0, 2);
    }
    EXPECT(mu_clip_by_value(VECTOR(NAN, 1, -8), mu_constant(MU_F32, 0), mu_constant(MU_F32, 2)), NAN, 1, 0);
    EXPECT(mu_clip_by_value(VECTOR(5, 1), mu_constant(MU_F32, NAN), mu_constant(MU_F32, 2)), NAN, NAN);
    EXPECT(mu_clip_by_value(VECTOR(5, 1), mu_constant(MU_F32, 0), mu_constant(MU_F32, NAN)), NAN, NAN);
}

// Variances and logarithms of sums over axes that are adjacent, apart or empty, against their definitions.
static void test_reductions_about_a_center(void **state)
{
    (void)state;
    static const mu_dtype types[] = {MU_F64, MU_F32};
    for (size_t i = 0; i < MU_COUNT(types); i++) {
        mu_tensor *x = mu_reshape(VECTOR_OF(types[i], 1, 3, 2, 6, -1, 1, 0, 8), 3, DIMS(2, 2, 2));
        EXPECT(mu_reduce_variance(x, .axes = (int[]){1, 2}, .n_axes = 2), 3.5, 12.5);
        EXPECT(mu_reduce_variance(x, .axes = (int[]){0, 1}, .n_axes = 2), 1.25, 7.25);
        EXPECT(mu_reduce_variance(x, .axes = (int[]){0, 2}, .n_axes = 2), 2, 10);
        EXPECT(mu_reduce_variance(x, .axes = NULL, .n_axes = 0), 0, 0, 0, 0, 0, 0, 0, 0);
    }
    mu_tensor *log3 = mu_log(VECTOR(3)), *same = mu_fill(MU_F32, 2, DIMS(3, 2), -700);
    EXPECT(mu_subtract(mu_reduce_logsumexp(same, 0), mu_subtract(log3, VECTOR(700))), 0, 0);
    EXPECT(mu_reduce_logsumexp(VECTOR(-INFINITY, -INFINITY), 0), -INFINITY);
    EXPECT(mu_reduce_logsumexp(VECTOR(1, INFINITY), 0), INFINITY);
    EXPECT(mu_reduce_logsumexp(VECTOR(1, NAN), 0), NAN);
    EXPECT(mu_reduce_variance(mu_zeros(MU_F32, 2, DIMS(0, 2)), 0), NAN, NAN);
    EXPECT(mu_norm(VECTOR(-1, 0, 2), 3, .axis = 0, .keep_dims = true), cbrt(9));
}

// As in TensorFlow, these functions also take integers and booleans.
static void test_integers_and_bools_where_floats_are_usual(void **state)
{
    (void)state;
    EXPECT(mu_cast(VECTOR_OF(MU_BOOL, 0, 1, 1), MU_F16), 0, 1, 1);
    EXPECT(mu_cast(VECTOR_OF(MU_BOOL, 1, 0), MU_BF16), 1, 0);
    mu_tensor *x = VECTOR_OF(MU_I8, -3, 0, 9), *some = VECTOR_OF(MU_BOOL, 1, 0, 1), *values, *positions;
    EXPECT(mu_round(x), -3, 0, 9);
    EXPECT(mu_nn_relu(x), 0, 0, 9);
    EXPECT(mu_nn_relu6(x), 0, 0, 6);
    EXPECT(mu_nn_leaky_relu(x, 0.5), -1.5, 0, 9);
    EXPECT(mu_divide_no_nan(x, VECTOR_OF(MU_I8, 2, 0, 0)), -1.5, 0, 0);
    assert_int_equal(mu_unique(some, &values, &positions), MU_OK);
    EXPECT(values, 1, 0);
    EXPECT(positions, 0, 1, 0);
    mu_tensor *rows = mu_reshape(VECTOR_OF(MU_I32, 2, 1, 1), 2, DIMS(3, 1));
    EXPECT(mu_tensor_scatter_update(some, rows, VECTOR_OF(MU_BOOL, 0, 0, 1)), 1, 1, 0);
    mu_tensor *any = mu_scatter_nd(rows, some, 1, DIMS(4));
    EXPECT(any, 0, 1, 1, 0);
    assert_int_equal(mu_tensor_dtype(any), MU_BOOL);
    assert_int_equal(mu_tensor_dtype(values), MU_BOOL);
    assert_int_equal(mu_tensor_dtype(mu_nn_relu6(x)), MU_I8);
}

static void test_checks(void **state)
{
    (void)state;
    EXPECT(mu_check_numerics(VECTOR(1, 2), "loss"), 1, 2);
    assert_null(mu_check_numerics(VECTOR(1, NAN), "loss"));
    assert_taken(MU_INVALID_ARGUMENT, "loss: element 1 is");
    assert_int_equal(mu_assert(VECTOR_OF(MU_BOOL, 1, 0), "both hold"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "both hold (element 1");
    char message[700];
    memset(message, 'm', sizeof message);
    message[300] = 0;
    mu_assert(VECTOR_OF(MU_BOOL, 0), message);
    assert_taken(MU_INVALID_ARGUMENT, message);
    message[300] = 'm';
    message[sizeof message - 1] = 0;
    mu_assert(VECTOR_OF(MU_BOOL, 0), message);
    strcpy(message + 508, "... (element 0");
    assert_taken(MU_INVALID_ARGUMENT, message);
    EXPECT(mu_linspace(MU_F64, 0, 1, 3), 0, 0.5, 1);
    assert_int_equal(mu_tensor_elements(mu_linspace(MU_F64, 0, 1, 0)), 0);
    assert_int_equal(mu_tensor_elements(mu_range(MU_I32, 5, 5, -1)), 0);
    assert_null(mu_range(MU_I32, 5, 0, 1));
    assert_taken(MU_INVALID_ARGUMENT, "other sign");
    assert_null(mu_range(MU_F32, 0, 1, 0));
    assert_taken(MU_INVALID_ARGUMENT, "steps of 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats_at_the_edges),
        cmocka_unit_test(test_derivatives_of_digamma),
        cmocka_unit_test(test_integers_at_the_edges),
        cmocka_unit_test(test_integers_and_bools_where_floats_are_usual),
        cmocka_unit_test(test_whole_division),
        cmocka_unit_test(test_all_float16),
        cmocka_unit_test(test_comparisons_of_float16),
        cmocka_unit_test(test_division_of_small_integers),
        cmocka_unit_test(test_where_of_all_types),
        cmocka_unit_test(test_means_of_integers),
        cmocka_unit_test(test_derivatives_at_the_edges),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_columns_of_many_rows),
        cmocka_unit_test(test_minmax_of_float16),
        cmocka_unit_test(test_long_sums_stay_accurate),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_large_transposes),
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_clips),
        cmocka_unit_test(test_reductions_about_a_center),
    };
    mu_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
