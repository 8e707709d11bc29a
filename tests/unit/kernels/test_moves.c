// The kernels that transpose matrices, combine bits, fold and sort rows, for every instruction set that this processor
// has, against plain loops. Numbers are small multiples of a quarter, or powers of
// two, so that every sum and product is exact.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static const char *const isas[] = {"base", "avx2", "avx512"};

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

// Rows [0, cut) and then the others, so that a team's parts are tried too.
static void check_transpose(const mu_kernels *k, int bytes, int64_t rows, int64_t columns, int64_t stride)
{
    const size_t all = (size_t)(rows * columns * bytes);
    uint8_t *in = malloc((size_t)(columns * stride * bytes) + 1), *out = aligned_alloc(64, (all + 127) / 64 * 64);
    assert_non_null(in);
    assert_non_null(out);
    for (int64_t i = 0; i < columns * stride * bytes; i++)
        in[i] = (uint8_t)random_u32();
    memset(out, 0xA5, all + 1);
    const int64_t cut = rows / 3;
    k->transpose(in, stride, out, columns, bytes, 0, cut);
    k->transpose(in, stride, out, columns, bytes, cut, rows);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            assert_memory_equal(out + (i * columns + j) * bytes, in + (i + j * stride) * bytes, (size_t)bytes);
    assert_int_equal(out[all], 0xA5);
    free(in);
    free(out);
}

static void test_transpose(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},   {3, 70},   {70, 3},    {16, 16},    {64, 128},
                                       {67, 65}, {300, 33}, {130, 192}, {300, 1024}, {131, 1056}};
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int bytes = 1; k && bytes <= 8; bytes *= 2)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                check_transpose(k, bytes, sizes[s][0], sizes[s][1], sizes[s][0] + (int64_t)(s % 2) * 5);
    }
}

static uint8_t bits_of(mu_bitwise op, uint8_t a, uint8_t b)
{
    return (uint8_t)(op == MU_BITWISE_AND ? a & b : op == MU_BITWISE_OR ? a | b : a ^ b);
}

// From and to addresses whose alignment differs by `shift`, or in place.
static void check_bits(const mu_kernels *k, mu_bitwise op, bool alone, bool in_place, int shift, int64_t n)
{
    enum { MOST = 700 };
    _Alignas(64) uint8_t a[MOST + 1], b[MOST], apart[MOST], wanted[MOST];
    uint8_t *y = in_place ? a + shift : apart + 2 * shift;
    for (int i = 0; i < MOST; i++) {
        a[i] = (uint8_t)random_u32();
        b[i] = (uint8_t)random_u32();
    }
    for (int64_t i = 0; i < n; i++)
        wanted[i] = bits_of(op, a[shift + i], b[alone ? 0 : i]);
    y[n] = 0xA5;
    k->bitwise(op, a + shift, b, alone, y, n);
    assert_memory_equal(y, wanted, (size_t)n);
    assert_int_equal(y[n], 0xA5);
}

static void test_bits(void **state)
{
    static const int64_t sizes[] = {0, 1, 15, 64, 127, 257, 600};
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int op = MU_BITWISE_AND; k && op <= MU_BITWISE_XOR; op++)
            for (int kind = 0; kind < 4; kind++)
                for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                    check_bits(k, (mu_bitwise)op, kind & 1, kind >> 1, (int)s * 5, sizes[s]);
    }
}

static double fold_of(mu_fold fold, const float *x, int64_t n)
{
    double y = fold == MU_FOLD_SUM ? 0 : fold == MU_FOLD_PRODUCT ? 1 : fold == MU_FOLD_LEAST ? INFINITY : -INFINITY;
    for (int64_t i = 0; i < n; i++)
        y = fold == MU_FOLD_SUM       ? y + x[i]
            : fold == MU_FOLD_PRODUCT ? y * x[i]
            : fold == MU_FOLD_LEAST   ? fmin(y, x[i])
                                      : fmax(y, x[i]);
    return y;
}

static void check_folds(const mu_kernels *k, int64_t columns)
{
    enum { ROWS = 3 };
    float *x = malloc((size_t)(ROWS * columns) * sizeof *x + 1), y[ROWS];
    assert_non_null(x);
    for (mu_fold fold = MU_FOLD_SUM; fold <= MU_FOLD_LEAST; fold++) {
        for (int64_t i = 0; i < ROWS * columns; i++)
            x[i] = fold != MU_FOLD_PRODUCT ? (float)((int)(random_u32() % 17) - 8) / 4
                   : i == 0                ? 0.5f
                   : random_u32() % 2 == 0 ? 1.0f
                                           : -1.0f;
        k->fold_rows(fold, x, y, columns, 0, 1);
        k->fold_rows(fold, x, y, columns, 1, ROWS);
        for (int64_t row = 0; row < ROWS; row++)
            assert_true((double)y[row] == fold_of(fold, x + row * columns, columns));
        for (int64_t row = 0; row < ROWS && columns > 0; row++)
            x[row * columns + random_u32() % columns] = NAN;
        k->fold_rows(fold, x, y, columns, 0, ROWS);
        for (int64_t row = 0; row < ROWS && columns > 0; row++)
            assert_true(isnan(y[row]));
    }
    free(x);
}

static void test_folds(void **state)
{
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int64_t columns = 0; k && columns < 140; columns++)
            check_folds(k, columns);
        if (k)
            check_folds(k, 9001);
    }
}

// Columns of both float types against plain loops; with a NaN in some columns, one of them whole.
static void check_minmax_columns(const mu_kernels *k, int64_t n, int64_t width, bool smallest)
{
    enum { MOST_ROWS = 9, MOST = 70, STRIDE = MOST + 3 };
    float x[MOST_ROWS * STRIDE], y[MOST + 1];
    double wide[MOST_ROWS * STRIDE], z[MOST + 1];
    for (int64_t i = 0; i < n * STRIDE; i++) {
        const bool odd = random_u32() % 40 == 0 || i % STRIDE == 7;
        wide[i] = x[i] = odd ? NAN : (float)((int)(random_u32() % 33) - 16) / 4;
    }
    y[width] = -77;
    z[width] = -77;
    k->minmax_columns_f32(smallest, x, y, n, STRIDE, width);
    k->minmax_columns_f64(smallest, wide, z, n, STRIDE, width);
    for (int64_t j = 0; j < width; j++) {
        double best = smallest ? INFINITY : -INFINITY;
        for (int64_t i = 0; i < n; i++) {
            const double here = wide[i * STRIDE + j];
            best = isnan(best) || isnan(here) ? NAN : smallest ? fmin(best, here) : fmax(best, here);
        }
        assert_true(isnan(best) ? isnan(y[j]) && isnan(z[j]) : (double)y[j] == best && z[j] == best);
    }
    assert_true(y[width] == -77 && z[width] == -77);
}

static void check_minmax_f64(const mu_kernels *k, int64_t n, bool smallest)
{
    double x[140] = {0}, best = smallest ? INFINITY : -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (double)((int)(random_u32() % 1001) - 500) / 4;
        best = smallest ? fmin(best, x[i]) : fmax(best, x[i]);
    }
    assert_true(k->minmax_f64(smallest, x, n) == best);
    if (n > 0) {
        x[random_u32() % (uint32_t)n] = NAN;
        assert_true(isnan(k->minmax_f64(smallest, x, n)));
    }
}

static void test_minmax(void **state)
{
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int64_t n = 0; k && n < 280; n++)
            check_minmax_f64(k, n / 2, n % 2);
        for (int64_t n = 0; k && n <= 9; n++)
            for (int64_t width = 0; width <= 70; width++)
                check_minmax_columns(k, n, width, (n + width) % 2);
    }
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Words above `settled` bits that count up; of all 64 bits, or of a few so that many are equal.
static void check_sort(const mu_kernels *k, int64_t rows, int64_t columns, int settled, int bits)
{
    const size_t all = (size_t)(rows * columns);
    int64_t *words = malloc((all + 1) * sizeof *words), *wanted = malloc((all + 1) * sizeof *wanted);
    int64_t *scratch = aligned_alloc(64, (size_t)(mu__sort_scratch(columns) + 7) / 8 * 64);
    assert_non_null(words);
    assert_non_null(wanted);
    assert_non_null(scratch);
    for (size_t i = 0; i < all; i++) {
        const uint64_t any = (uint64_t)random_u32() << 33 ^ (uint64_t)random_u32() << 20 ^ random_u32();
        const uint64_t key = bits == 64 ? any : any >> (64 - bits);
        wanted[i] = words[i] = (int64_t)(settled == 0 ? key : key << settled | i % (size_t)columns);
    }
    words[all] = wanted[all] = 77;
    for (int64_t row = 0; row < rows; row++)
        qsort(wanted + row * columns, (size_t)columns, sizeof *wanted, by_value);
    k->sort_rows(words, scratch, columns, settled, 0, rows / 3);
    k->sort_rows(words, scratch, columns, settled, rows / 3, rows);
    assert_memory_equal(words, wanted, (all + 1) * sizeof *words);
    free(words);
    free(wanted);
    free(scratch);
}

static void test_sort(void **state)
{
    static const int64_t large[] = {127, 128, 129, 257, 1000, 1024, 4097, 32768, 32769, 70001};
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        const mu_kernels *k = mu__kernels_for(isas[isa]);
        for (int64_t columns = 0; k && columns < 70; columns++)
            for (int64_t rows = 1; rows < 20; rows += 3)
                check_sort(k, rows, columns, columns % 2 == 0 ? 0 : 8, columns % 3 == 0 ? 5 : 64);
        for (size_t i = 0; k && i < sizeof large / sizeof large[0]; i++) {
            check_sort(k, 1, large[i], 0, 64);
            check_sort(k, large[i] < 5000 ? 11 : 1, large[i], 32, i % 2 == 0 ? 30 : 3);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transpose), cmocka_unit_test(test_folds),
                                       cmocka_unit_test(test_minmax), cmocka_unit_test(test_sort),
                                       cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
