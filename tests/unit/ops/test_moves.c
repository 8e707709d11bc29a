// Ops that move or make elements, on small tensors and on ones too large for the caches: every element of the result
// comes from where index arithmetic says. Then ops that find elements by value, integer division, and reductions over
// axes that are not adjacent.
#include "op_check.h"

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static mu_tensor *numbers(int64_t rows, int64_t columns)
{
    mu_tensor *x = mu_zeros(MU_I32, 2, DIMS(rows, columns));
    for (int64_t i = 0; x && i < rows * columns; i++)
        ((int32_t *)mu__host_write(x))[i] = (int32_t)(random_u32() & 0xFFFFFF) + 1;
    return x;
}

// Returns the index of the element of x that belongs at a position of the result, or -1 for the constant.
typedef int64_t source(int64_t rows, int64_t columns, int64_t i, int64_t j);

static int64_t turned(int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    (void)rows;
    return j * columns + i;
}
static int64_t padded(int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    const bool inside = i >= 1 && i <= rows && j >= 2 && j < columns + 2;
    return inside ? (i - 1) * columns + j - 2 : -1;
}
static int64_t rolled(int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    (void)rows;
    return i * columns + (j + columns - 3) % columns;
}
static int64_t reversed(int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    (void)rows;
    return i * columns + columns - 1 - j;
}
static int64_t upside_down(int64_t rows, int64_t columns, int64_t i, int64_t j) { return (rows - 1 - i) * columns + j; }
static int64_t doubled(int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    (void)rows;
    return i * columns + j / 2;
}
static int64_t tripled(int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    (void)rows;
    return i * columns + j / 3;
}
static int64_t tiled(int64_t rows, int64_t columns, int64_t i, int64_t j) { return i % rows * columns + j % columns; }
static int64_t every_other(int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    (void)rows;
    return i * columns + 2 * j;
}

static void check_source(const mu_tensor *x, const mu_tensor *y, source *from)
{
    assert_non_null(y);
    const int64_t rows = mu_tensor_dim(y, 0), columns = mu_tensor_dim(y, 1);
    const int32_t *in = mu__host_read(x), *out = mu__host_read(y);
    const int64_t step = rows > 1000 ? 11 : 1;
    for (int64_t i = 0; i < rows; i += i + step < rows ? step : 1)
        for (int64_t j = 0; j < columns; j++) {
            const int64_t at = from(mu_tensor_dim(x, 0), mu_tensor_dim(x, 1), i, j);
            if (out[i * columns + j] != (at < 0 ? 7 : in[at]))
                fail_msg("element [%lld, %lld] is %d", (long long)i, (long long)j, out[i * columns + j]);
        }
}

static void check_moves(int64_t rows, int64_t columns)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = numbers(rows, columns);
    check_source(x, mu_transpose(x, NULL), turned);
    check_source(x, mu_pad(x, DIMS(1, 2), DIMS(1, 2), "constant", 7), padded);
    check_source(x, mu_roll(x, 3, 1), rolled);
    check_source(x, mu_reverse(x, 1), reversed);
    check_source(x, mu_reverse(x, 0), upside_down);
    check_source(x, mu_repeat(x, 2, 1), doubled);
    check_source(x, mu_repeat(x, 3, 1), tripled);
    check_source(x, mu_tile(x, DIMS(2, 2)), tiled);
    check_source(x, mu_concat(2, (mu_tensor *[]){x, x}, 1), tiled);
    check_source(x, mu_concat(2, (mu_tensor *[]){x, x}, 0), tiled);
    check_source(x, mu_strided_slice(x, DIMS(0, 0), DIMS(0, 0), DIMS(1, 2), 3, 3, 0), every_other);
    mu_pool_close(pool);
}

// Elements of two tensors alternate: for every element size, and with results larger than the caches.
static void test_turns(void **state)
{
    static const mu_dtype dtypes[] = {MU_I8, MU_BF16, MU_F32, MU_F64};
    static const int64_t sizes[] = {0, 1, 5, 131, (5 << 20) + 3};
    (void)state;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (size_t s = 0; s < MU_COUNT(sizes); s++) {
            const int64_t n = sizes[s];
            mu_pool *pool = mu_pool_open();
            mu_tensor *x = mu_zeros(dtypes[d], 1, DIMS(n)), *y = mu_zeros(dtypes[d], 1, DIMS(n));
            for (int64_t i = 0; i < n; i++) {
                mu__write_element(dtypes[d], mu__host_write(x), i, (double)(i % 127));
                mu__write_element(dtypes[d], mu__host_write(y), i, -(double)(i % 113) - 1);
            }
            mu_tensor *both = mu_stack(2, (mu_tensor *[]){x, y}, 1);
            assert_int_equal(mu_tensor_elements(both), 2 * n);
            const int64_t step = n > 1000 ? 61 : 1;
            for (int64_t i = 0; i < n; i += i % 1000 <= 16 ? 1 : step) {
                assert_true(mu__read_element(dtypes[d], mu__host_read(both), 2 * i) == (double)(i % 127));
                assert_true(mu__read_element(dtypes[d], mu__host_read(both), 2 * i + 1) == -(double)(i % 113) - 1);
            }
            mu_pool_close(pool);
        }
}

static void test_moves(void **state)
{
    (void)state;
    check_moves(5, 7);
    check_moves(100, 33);
    check_moves(2500, 3600); // results beyond 32 MB
    check_moves(2048, 4224);
}

static void test_broadcasts_and_fills(void **state)
{
    static const int64_t sides[] = {3, 70, 3000};
    (void)state;
    for (size_t s = 0; s < MU_COUNT(sides); s++) {
        const int64_t n = sides[s];
        mu_pool *pool = mu_pool_open();
        mu_tensor *row = mu_range(MU_F32, 0, (double)n, 1), *column = mu_reshape(row, 2, DIMS(n, 1));
        const float *wide = mu__host_read(mu_broadcast_to(row, 2, DIMS(n, n)));
        const float *high = mu__host_read(mu_broadcast_to(column, 2, DIMS(n, n)));
        const float *constant = mu__host_read(mu_fill(MU_F32, 2, DIMS(n, n), 1.5));
        for (int64_t i = 0; i < n * n; i++)
            assert_true(wide[i] == (float)(i % n) && high[i] == (float)(i / n) && constant[i] == 1.5f);
        mu_pool_close(pool);
    }
    EXPECT(mu_fill(MU_U8, 1, DIMS(3), 200), 200, 200, 200);
    EXPECT(mu_fill(MU_BF16, 1, DIMS(2), 1.5), 1.5, 1.5);
    assert_int_equal(mu_tensor_elements(mu_fill(MU_F64, 2, DIMS(0, 3), 1)), 0);
}

// Results beyond 32 MB, with an odd number of elements and from an odd position on, which are made in pieces.
static void test_pieces(void **state)
{
    enum { N = (17 << 20) + 5 };
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = mu_zeros(MU_F32, 1, DIMS(N)), *y = mu_zeros(MU_F32, 1, DIMS(N));
    float *a = mu__host_write(x), *b = mu__host_write(y);
    for (int64_t i = 0; i < N; i++) {
        a[i] = (float)(int32_t)(random_u32() % 2001) - 1000;
        b[i] = (float)(int32_t)(random_u32() % 2001) - 1000;
    }
    const float *sum = mu__host_read(mu_add(x, y)), *less = mu__host_read(mu_minimum(x, mu_constant(MU_F32, 7)));
    const float *chosen = mu__host_read(mu_where(mu_greater(x, y), x, mu_constant(MU_F32, 0.5)));
    const float *clipped = mu__host_read(mu_clip_by_value(x, mu_constant(MU_F32, -3), mu_constant(MU_F32, 3)));
    const float *positive = mu__host_read(mu_abs(x));
    const int32_t *whole = mu__host_read(mu_cast(x, MU_I32));
    mu_tensor *half = mu_cast(x, MU_F16), *other = mu_cast(y, MU_F16);
    const float *product = mu__host_read(mu_cast(mu_minimum(half, mu_neg(other)), MU_F32));
    const float *line = mu__host_read(mu_range(MU_F32, 3, 3 + (double)N, 1));
    for (int64_t i = 0; i < N; i++) {
        assert_true(sum[i] == a[i] + b[i] && less[i] == fminf(a[i], 7) && positive[i] == fabsf(a[i]));
        assert_true(chosen[i] == (a[i] > b[i] ? a[i] : 0.5f) && clipped[i] == fmaxf(-3, fminf(a[i], 3)));
        assert_true(whole[i] == (int32_t)a[i] && product[i] == fminf(a[i], -b[i]) && line[i] == (float)(3 + i));
    }
    mu_pool_close(pool);
}

static void test_indices(void **state)
{
    (void)state;
    mu_tensor *x = mu_reshape(mu_range(MU_F32, 0, 24, 1), 3, DIMS(2, 3, 4));
    mu_tensor *pairs = mu_reshape(VECTOR_OF(MU_I32, 1, 2, 0, 1), 2, DIMS(2, 2));
    EXPECT(mu_gather_nd(x, pairs), 20, 21, 22, 23, 4, 5, 6, 7);
    EXPECT(mu_gather_nd(x, mu_reshape(VECTOR_OF(MU_I64, 1, 2, 3), 2, DIMS(1, 3))), 23);
    EXPECT(mu_gather(x, VECTOR_OF(MU_I64, 3, 0), 2, 0), 3, 0, 7, 4, 11, 8, 15, 12, 19, 16, 23, 20);
    assert_null(mu_gather_nd(x, mu_reshape(VECTOR_OF(MU_I32, 1, 2, 0, -1), 2, DIMS(2, 2))));
    assert_taken(MU_INVALID_ARGUMENT, "index -1 (element 3 of the indices) is outside 0 to 2");
    assert_null(mu_gather(x, VECTOR_OF(MU_I32, 0, 5, 3), 2, 0));
    assert_taken(MU_INVALID_ARGUMENT, "index 5 (element 1 of the indices) is outside 0 to 3");
}

// Gathers along the last axis and in batches give what index arithmetic says, also beyond 32 MB.
static void check_picks(int64_t rows, int64_t columns, mu_dtype dtype)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = numbers(rows, columns), *which = mu_zeros(dtype, 2, DIMS(rows, columns));
    for (int64_t i = 0; i < rows * columns; i++)
        mu__write_element(dtype, mu__host_write(which), i, (double)(random_u32() % (uint32_t)columns));
    mu_tensor *first = mu_reshape(mu_slice(which, DIMS(0, 0), DIMS(1, columns)), 1, DIMS(columns));
    const int32_t *in = mu__host_read(x), *along = mu__host_read(mu_gather(x, first, 1, 0)),
                  *batched = mu__host_read(mu_batch_gather(x, which));
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t row = i / columns * columns;
        assert_int_equal(along[i], in[row + (int64_t)mu__read_element(dtype, mu__host_read(first), i % columns)]);
        assert_int_equal(batched[i], in[row + (int64_t)mu__read_element(dtype, mu__host_read(which), i)]);
    }
    mu_pool_close(pool);
}

static void test_picks(void **state)
{
    (void)state;
    check_picks(1, 5, MU_I64);
    check_picks(7, 1500, MU_I32);
    check_picks(30, 40000, MU_I64);
    check_picks(2100, 4100, MU_I32);
}

// Single numbers of every type, combined where indices repeat.
static void test_combined_numbers(void **state)
{
    static const mu_dtype dtypes[] = {MU_F64, MU_F32, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};
    (void)state;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++) {
        const mu_dtype dtype = dtypes[d];
        mu_tensor *x = VECTOR_OF(dtype, 1, 20, 3, 40), *updates = VECTOR_OF(dtype, 5, 6, 7, 2);
        mu_tensor *flat = VECTOR_OF(MU_I64, 2, 0, 2, 1), *positions = mu_reshape(flat, 2, DIMS(4, 1));
        EXPECT(mu_tensor_scatter_add(x, positions, updates), 7, 22, 15, 40);
        EXPECT(mu_tensor_scatter_max(x, positions, updates), 6, 20, 7, 40);
        EXPECT(mu_tensor_scatter_min(x, positions, updates), 1, 2, 3, 40);
        EXPECT(mu_tensor_scatter_update(x, positions, updates), 6, 2, 7, 40);
        EXPECT(mu_scatter_nd(positions, updates, 1, DIMS(4)), 6, 2, 12, 0);
        EXPECT(mu_unsorted_segment_sum(updates, flat, 4), 6, 2, 12, 0);
        EXPECT(mu_unsorted_segment_prod(updates, flat, 3), 6, 2, 35);
        EXPECT(mu_unsorted_segment_max(updates, flat, 3), 6, 2, 7);
        EXPECT(mu_unsorted_segment_sum(updates, VECTOR_OF(MU_I32, 2, -1, 2, 1), 4), 0, 2, 12, 0);
    }
    mu_tensor *two = mu_reshape(VECTOR_OF(MU_I32, 0, 1, 0, 1), 2, DIMS(2, 2));
    EXPECT(mu_scatter_nd(two, VECTOR(3, 4), 2, DIMS(2, 2)), 0, 7, 0, 0);
    assert_null(mu_scatter_nd(mu_reshape(VECTOR_OF(MU_I32, 4), 2, DIMS(1, 1)), VECTOR(3), 1, DIMS(4)));
    assert_taken(MU_INVALID_ARGUMENT, "index 4 (element 0 of the indices) is outside 0 to 3");
}

// A scatter of single numbers against the sum of its parts: one or two columns of indices of both types; all valid, and
// with an invalid index in the first, a middle and the last position, which the error names.
static void check_scattered(mu_dtype dtype, mu_dtype index_type, int64_t columns,
                            mu_tensor *(*scatter)(mu_tensor *, mu_tensor *, mu_tensor *),
                            double (*join)(double old, double update))
{
    enum { N = 1500, SIDE = 9 };
    double want[SIDE * SIDE];
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = mu_zeros(dtype, (int)columns, DIMS(SIDE, SIDE)), *updates = mu_zeros(dtype, 1, DIMS(N));
    mu_tensor *indices = mu_zeros(index_type, 2, DIMS(N, columns));
    for (int64_t i = 0; i < SIDE * SIDE; i++)
        want[i] = i % 5;
    for (int64_t i = 0; i < mu_tensor_elements(x); i++)
        mu__write_element(dtype, mu__host_write(x), i, want[i]);
    for (int64_t i = 0; i < N; i++) {
        const int64_t row = random_u32() % SIDE, column = random_u32() % SIDE;
        const double update = i < 20 || scatter != mu_tensor_scatter_add ? random_u32() % 7 : 0;
        mu__write_element(index_type, mu__host_write(indices), i * columns, (double)row);
        if (columns == 2)
            mu__write_element(index_type, mu__host_write(indices), i * 2 + 1, (double)column);
        mu__write_element(dtype, mu__host_write(updates), i, update);
        double *place = &want[columns == 2 ? row * SIDE + column : row];
        *place = join(*place, update);
    }
    mu_tensor *y = scatter(x, indices, updates);
    assert_non_null(y);
    for (int64_t i = 0; i < mu_tensor_elements(x); i++)
        assert_true(mu__read_element(dtype, mu__host_read(y), i) == want[i]);
    const int64_t bad[] = {0, 1, N / 2 * columns, N / 2 * columns + 1, N * columns - 1};
    for (size_t b = 0; b < MU_COUNT(bad) * 2; b++) {
        char wanted[96];
        const int64_t at = bad[b / 2], value = b % 2 ? -1 : SIDE;
        const double was = mu__read_element(index_type, mu__host_read(indices), at);
        mu__write_element(index_type, mu__host_write(indices), at, (double)value);
        assert_null(scatter(x, indices, updates));
        snprintf(wanted, sizeof wanted, "index %d (element %d of the indices) is outside 0 to 8", (int)value, (int)at);
        assert_taken(MU_INVALID_ARGUMENT, wanted);
        mu__write_element(index_type, mu__host_write(indices), at, was);
    }
    mu_pool_close(pool);
}

static double join_add(double old, double update) { return old + update; }
static double join_min(double old, double update) { return update < old ? update : old; }
static double join_max(double old, double update) { return update > old ? update : old; }
static double join_update(double old, double update)
{
    (void)old;
    return update;
}

static void test_scattered_numbers(void **state)
{
    static const mu_dtype dtypes[] = {MU_F64, MU_F32, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};
    (void)state;
    for (size_t d = 0; d < MU_COUNT(dtypes) * 4; d++) {
        const mu_dtype dtype = dtypes[d / 4], index_type = d % 2 ? MU_I64 : MU_I32;
        const int64_t columns = 1 + (int64_t)d / 2 % 2;
        check_scattered(dtype, index_type, columns, mu_tensor_scatter_add, join_add);
        check_scattered(dtype, index_type, columns, mu_tensor_scatter_min, join_min);
        check_scattered(dtype, index_type, columns, mu_tensor_scatter_max, join_max);
        check_scattered(dtype, index_type, columns, mu_tensor_scatter_update, join_update);
    }
    // Slices of the size of one number, three columns of indices, and NaNs and zeros with a sign.
    mu_tensor *pairs = mu_reshape(VECTOR(1, 2, 3, 4, 5, 6), 2, DIMS(3, 2));
    mu_tensor *last = mu_reshape(VECTOR(8, 9), 2, DIMS(1, 2));
    mu_tensor *two = mu_reshape(VECTOR_OF(MU_I32, 2), 2, DIMS(1, 1));
    EXPECT(mu_tensor_scatter_update(pairs, two, last), 1, 2, 3, 4, 8, 9);
    mu_tensor *cube = mu_reshape(VECTOR(1, 2, 3, 4, 5, 6, 7, 8), 3, DIMS(2, 2, 2));
    mu_tensor *corner = mu_reshape(VECTOR_OF(MU_I64, 1, 0, 1), 2, DIMS(1, 3));
    EXPECT(mu_tensor_scatter_update(cube, corner, VECTOR(9)), 1, 2, 3, 4, 5, 9, 7, 8);
    mu_tensor *all = mu_reshape(VECTOR_OF(MU_I64, 0, 1, 2), 2, DIMS(3, 1)), *odd = VECTOR(NAN, 1, -0.0);
    EXPECT(mu_tensor_scatter_max(VECTOR(1, NAN, 0), all, odd), NAN, NAN, 0);
    EXPECT(mu_tensor_scatter_min(VECTOR(1, NAN, 0), all, odd), NAN, NAN, 0);
    EXPECT(mu_tensor_scatter_add(VECTOR(1, NAN, 0), all, odd), NAN, NAN, 0);
    assert_true(signbit(((float *)mu__host_read(mu_tensor_scatter_update(VECTOR(1, NAN, 0), all, odd)))[2]));
}

static void test_search(void **state)
{
    mu_tensor *values, *positions;
    (void)state;
    mu_tensor *row = VECTOR(-1, 0, 0, 2.5, NAN, NAN), *wanted = VECTOR(-2, -0.0, 2.5, 3, NAN);
    EXPECT(mu_searchsorted(row, wanted, false), 0, 1, 3, 4, 4);
    EXPECT(mu_searchsorted(row, wanted, true), 0, 3, 4, 4, 6);
    EXPECT(mu_searchsorted(VECTOR_OF(MU_U8, 3, 200), VECTOR_OF(MU_U8, 255, 3, 0), false), 2, 0, 0);
    EXPECT(mu_searchsorted(mu_zeros(MU_F32, 1, DIMS(0)), VECTOR(1, NAN), true), 0, 0);
    for (int64_t n = 1; n < 40; n++) {
        mu_tensor *ascending = mu_range(MU_I32, 0, (double)(3 * n), 3);
        mu_tensor *all = mu_range(MU_I32, -1, (double)(3 * n + 1), 1);
        const int32_t *left = mu__host_read(mu_searchsorted(ascending, all, false));
        for (int64_t i = 0; i < 3 * n + 2; i++)
            assert_int_equal(left[i], i == 0 ? 0 : (i - 1 + 2) / 3 < n ? (i - 1 + 2) / 3 : n);
    }
    assert_int_equal(mu_unique(VECTOR(3, NAN, -0.0, 0, 3, NAN), &values, &positions), MU_OK);
    EXPECT(values, 3, NAN, -0.0, NAN);
    EXPECT(positions, 0, 1, 2, 2, 0, 3);
    mu_tensor *many = mu_zeros(MU_I64, 1, DIMS(20000));
    for (int64_t i = 0; i < 20000; i++)
        ((int64_t *)mu__host_write(many))[i] = (i * 7919 % 5000 - 2500) * ((int64_t)1 << 32);
    assert_int_equal(mu_unique(many, &values, &positions), MU_OK);
    assert_int_equal(mu_tensor_elements(values), 5000);
    for (int64_t i = 0; i < 20000; i++)
        assert_int_equal(((int32_t *)mu__host_read(positions))[i], i % 5000);
}

// unique's numbers, computed element by element from the start of the vector.
static int32_t number_by_search(const mu_tensor *x, const int32_t *before, int64_t i, int32_t known)
{
    const double value = mu__read_element(x->dtype, mu__host_read(x), i);
    for (int64_t j = 0; j < i; j++)
        if (mu__read_element(x->dtype, mu__host_read(x), j) == value)
            return before[j];
    return known;
}

// All types, lengths around those of its chunks, and so many different values that its hash table grows twice.
static void test_unique_of_types(void **state)
{
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I8, MU_U8, MU_I16, MU_I32, MU_I64};
    static const int64_t lengths[] = {0, 1, 255, 256, 257, 3001};
    (void)state;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (size_t l = 0; l < MU_COUNT(lengths); l++) {
            mu_tensor *x = mu_zeros(dtypes[d], 1, &lengths[l]), *values, *positions;
            for (int64_t i = 0; i < lengths[l]; i++) {
                const bool repeats = i % 3 == 0, odd = mu__dtype_is_float(dtypes[d]) && i % 401 == 7;
                const double value = repeats ? (double)(i % 50) : (double)(random_u32() % 30011) * (i % 2 ? 1 : -1);
                mu__write_element(dtypes[d], mu__host_write(x), i, odd ? NAN : i % 97 == 5 ? -0.0 : value);
            }
            assert_int_equal(mu_unique(x, &values, &positions), MU_OK);
            const int32_t *numbers = mu__host_read(positions);
            int32_t known = 0;
            for (int64_t i = 0; i < lengths[l]; i++) {
                assert_int_equal(numbers[i], number_by_search(x, numbers, i, known));
                if (numbers[i] == known)
                    assert_memory_equal((char *)mu__host_read(values) + (size_t)known++ * mu_dtype_bytes(dtypes[d]),
                                        (char *)mu__host_read(x) + (size_t)i * mu_dtype_bytes(dtypes[d]),
                                        mu_dtype_bytes(dtypes[d]));
            }
            assert_int_equal(mu_tensor_elements(values), known);
        }
}

static int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static void test_whole_division(void **state)
{
    static const int64_t edges[] = {INT32_MIN, INT32_MIN + 1, -65537, -7, -1, 1, 2, 3, 46341, 65536, INT32_MAX};
    enum { N = 4096 };
    (void)state;
    mu_tensor *a = mu_zeros(MU_I32, 1, DIMS(N)), *b = mu_zeros(MU_I32, 1, DIMS(N));
    int32_t *x = mu__host_write(a), *y = mu__host_write(b);
    for (int i = 0; i < N; i++) {
        const int n = (int)MU_COUNT(edges);
        x[i] = i < n * n ? (int32_t)edges[i / n] : (int32_t)(random_u32() << 1 | (random_u32() & 1));
        y[i] = i < n * n ? (int32_t)edges[i % n] : (int32_t)(random_u32() >> (random_u32() % 31)) | 1;
    }
    const int32_t *quotient = mu__host_read(mu_floor_divide(a, b)), *rest = mu__host_read(mu_mod(a, b));
    for (int i = 0; i < N; i++) {
        const int32_t wanted = (int32_t)floor_quotient(x[i], y[i]);
        assert_int_equal(quotient[i], wanted);
        assert_int_equal(rest[i], (int32_t)(x[i] - floor_quotient(x[i], y[i]) * y[i]));
    }
    for (int p = -128; p < 128; p++)
        for (int q = -128; q < 128; q += q == -1 ? 2 : 1) {
            mu_pool *pool = p % 16 == 0 ? mu_pool_open() : NULL;
            if (pool)
                EXPECT(mu_floor_divide(VECTOR_OF(MU_I8, p), VECTOR_OF(MU_I8, q)), (int8_t)floor_quotient(p, q));
            mu_pool_close(pool);
        }
}

static void test_scattered_reductions(void **state)
{
    (void)state;
    mu_tensor *x = mu_reshape(mu_range(MU_F32, 0, 24, 1), 4, DIMS(2, 3, 2, 2));
    EXPECT(mu_reduce_sum(x, .axes = (const int[]){0, 3}, .n_axes = 2), 26, 34, 42, 50, 58, 66);
    EXPECT(mu_reduce_mean(x, .axes = (const int[]){0, 2}, .n_axes = 2), 7, 8, 11, 12, 15, 16);
    EXPECT(mu_reduce_max(x, .axes = (const int[]){1, 3}, .n_axes = 2), 9, 11, 21, 23);
    EXPECT(mu_reduce_mean(mu_cast(x, MU_I32), .axes = (const int[]){0, 2}, .n_axes = 2), 7, 8, 11, 12, 15, 16);
    EXPECT(mu_reduce_mean(mu_cast(x, MU_BF16), .axes = (const int[]){0, 2}, .n_axes = 2), 7, 8, 11, 12, 15, 16);
    EXPECT(mu_reduce_sum(mu_cast(mu_reshape(x, 2, DIMS(2, 12)), MU_F16), 1), 66, 210);
    EXPECT(mu_reduce_max(mu_cast(mu_reshape(x, 2, DIMS(12, 2)), MU_F16), 0), 22, 23);
    EXPECT(mu_reduce_mean(mu_cast(mu_zeros(MU_F32, 2, DIMS(0, 2)), MU_BF16), 0), NAN, NAN);
    EXPECT(mu_reduce_max(mu_cast(mu_zeros(MU_F32, 2, DIMS(2, 0)), MU_F16), 1), -INFINITY, -INFINITY);
    mu_tensor *truths = mu_greater(mu_range(MU_F32, 0, 9000, 1), mu_constant(MU_F32, 8998));
    EXPECT(mu_reduce_any(truths, 0), 1);
    EXPECT(mu_reduce_all(mu_logical_not(truths), 0), 0);
    EXPECT(mu_reduce_all(mu_equal(truths, truths), 0), 1);
}

// Columns of 16-bit floats against those of the same numbers as float32: more rows and columns than are processed at
// once.
static void test_half_columns(void **state)
{
    enum { ROWS = 21, COLUMNS = 1030 };
    (void)state;
    mu_tensor *x = mu_zeros(MU_F32, 2, DIMS(ROWS, COLUMNS));
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        ((float *)mu__host_write(x))[i] = i % COLUMNS == 1027 && i > COLUMNS ? NAN : (float)(random_u32() % 9) - 3;
    for (int half = 0; half < 2; half++) {
        mu_tensor *float16s = mu_cast(x, half ? MU_BF16 : MU_F16), *like = mu_zeros(float16s->dtype, 1, DIMS(COLUMNS));
        mu_tensor *pairs[][2] = {{mu_reduce_sum(float16s, 0), mu_reduce_sum(x, 0)},
                                 {mu_reduce_max(float16s, 0), mu_reduce_max(x, 0)},
                                 {mu_reduce_min(float16s, 0), mu_reduce_min(x, 0)},
                                 {mu_sum_to_like(float16s, like), mu_reduce_sum(x, 0)},
                                 {mu_reduce_mean(float16s, 0), mu_cast(mu_reduce_mean(x, 0), float16s->dtype)}};
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
            for (int64_t j = 0; j < COLUMNS; j++) {
                const double is = mu__read_element(pairs[p][0]->dtype, mu__host_read(pairs[p][0]), j);
                const double want = mu__read_element(pairs[p][1]->dtype, mu__host_read(pairs[p][1]), j);
                assert_true(isnan(want) ? isnan(is) : is == want);
            }
    }
}

// Combines the rows of x [rows, columns] in `n` segments by a sum or a maximum; `first` is the value of a segment
// without rows.
static void check_segments(mu_tensor *y, mu_tensor *x, mu_tensor *ids, bool greatest, double first)
{
    const int64_t n = y->shape.dims[0], rows = x->shape.dims[0];
    const int64_t columns = mu__elements_between(&x->shape, 1, x->shape.rank);
    for (int64_t s = 0; s < n * columns; s++) {
        double want = 0;
        bool any = false;
        for (int64_t i = 0; i < rows; i++) {
            const double id = mu__read_element(ids->dtype, mu__host_read(ids), i);
            const double here = mu__read_element(x->dtype, mu__host_read(x), i * columns + s % columns);
            if (id != (double)(s / columns))
                continue;
            want = !any ? here : !greatest ? want + here : here > want ? here : want;
            any = true;
        }
        assert_true(mu__read_element(y->dtype, mu__host_read(y), s) == (any ? want : first));
    }
}

// More rows than are processed together: sorted segments, some of them empty, and unsorted segments where some rows in
// the middle belong to none or one has an invalid number.
static void check_many_segments(mu_dtype dtype, mu_dtype id_type, int64_t columns)
{
    enum { ROWS = 1300, SEGMENTS = 90 };
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = mu_zeros(dtype, columns > 1 ? 2 : 1, DIMS(ROWS, columns));
    mu_tensor *sorted = mu_zeros(id_type, 1, DIMS(ROWS)), *mixed = mu_zeros(id_type, 1, DIMS(ROWS));
    int64_t last = 3;
    for (int64_t i = 0; i < ROWS; i++) {
        last += random_u32() % 20 == 0 ? 1 + random_u32() % 2 : 0;
        last = MU_MIN(last, SEGMENTS - 1);
        mu__write_element(id_type, mu__host_write(sorted), i, (double)last);
        mu__write_element(id_type, mu__host_write(mixed), i, random_u32() % SEGMENTS);
        for (int64_t j = 0; j < columns; j++)
            mu__write_element(dtype, mu__host_write(x), i * columns + j, (double)(int)(random_u32() % 3) - 2);
    }
    check_segments(mu_segment_sum(x, sorted), x, sorted, false, 0);
    check_segments(mu_segment_max(x, sorted), x, sorted, true, 0);
    check_segments(mu_unsorted_segment_sum(x, mixed, SEGMENTS), x, mixed, false, 0);
    for (int64_t i = 600; i < 700; i += 3)
        mu__write_element(id_type, mu__host_write(mixed), i, -1);
    check_segments(mu_unsorted_segment_sum(x, mixed, SEGMENTS), x, mixed, false, 0);
    mu__write_element(id_type, mu__host_write(mixed), 650, SEGMENTS);
    assert_null(mu_unsorted_segment_sum(x, mixed, SEGMENTS));
    assert_taken(MU_INVALID_ARGUMENT, "index 90 (element 650 of the indices) is outside 0 to 89");
    mu_pool_close(pool);
}

static void test_many_segments(void **state)
{
    (void)state;
    for (int64_t columns = 1; columns <= 3; columns += 2) {
        check_many_segments(MU_F32, MU_I64, columns);
        check_many_segments(MU_F64, MU_I32, columns);
        check_many_segments(MU_BF16, MU_I64, columns);
        check_many_segments(MU_I16, MU_I32, columns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_broadcasts_and_fills),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_picks),
        cmocka_unit_test(test_combined_numbers),
        cmocka_unit_test(test_unique_of_types),
        cmocka_unit_test(test_whole_division),
        cmocka_unit_test(test_scattered_reductions),
        cmocka_unit_test(test_scattered_numbers),
        cmocka_unit_test(test_many_segments),
        cmocka_unit_test(test_half_columns),
    };
    mu_init(.threads = 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
