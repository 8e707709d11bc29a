// The hand-written CPU kernels against plain loops in double precision, for every instruction set that
// this processor has. Main idea: where the order of summation matters the inputs are small multiples
// of a quarter, so that every sum is exact and marks and ties can be compared too. Each kernel runs
// twice, whole and cut in two, and must give the same bits; every output has a guard behind it.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

enum { GUARD = 16, MAX_OUTPUTS = 3 };
static const float sentinel = 12345.0f;
static const mu_kernels *k; // the table under test

static uint64_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static void *guarded(int64_t bytes)
{
    uint8_t *p = malloc((size_t)bytes + GUARD);
    assert_non_null(p);
    memset(p, 0xA5, (size_t)bytes + GUARD);
    return p;
}

static void check_guard(const void *p, int64_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(((const uint8_t *)p)[bytes + i], 0xA5);
}

static float *floats(int64_t n)
{
    float *p = guarded(n * (int64_t)sizeof(float));
    for (int64_t i = 0; i < n; i++)
        p[i] = sentinel;
    return p;
}

static float *quarters(int64_t n)
{
    float *p = floats(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)((int)(random_u32() % 17) - 8) / 4;
    return p;
}

static float *reals(int64_t n, float scale)
{
    float *p = floats(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = scale * ((float)(random_u32() % 2000001) / 1000000 - 1);
    return p;
}

static uint8_t *bytes_below(int64_t n, unsigned limit)
{
    uint8_t *p = guarded(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = (uint8_t)(random_u32() % limit);
    return p;
}

static void check_near(const float *got, const double *want, int64_t n, double relative, double absolute,
                       const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        const bool close = got[i] == want[i] || fabs(got[i] - want[i]) <= absolute + relative * fabs(want[i]);
        if (isnan(want[i]) ? isnan(got[i]) : close)
            continue;
        fail_msg("%s, %s, element %lld of %lld: %.9g, expected %.9g", k->isa, what, (long long)i, (long long)n,
                 (double)got[i], want[i]);
    }
    check_guard(got, n * (int64_t)sizeof(float));
}

static void check_marks(const uint8_t *got, const uint8_t *want, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s, %s, mark %lld: %d, expected %d", k->isa, what, (long long)i, got[i], want[i]);
    check_guard(got, n);
}

static double *doubles(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

// Frees up to ten pointers, ended by the mark.
static char end_mark;
#define FREE_ALL(...) free_all(__VA_ARGS__, (void *)&end_mark)
static void free_all(void *first, ...)
{
    va_list list;
    va_start(list, first);
    for (void *p = first; p != &end_mark; p = va_arg(list, void *))
        free(p);
    va_end(list);
}

// Compares what two runs wrote, bit by bit.
static void check_same(const void *first, const void *second, int64_t bytes, const char *what)
{
    if (memcmp(first, second, (size_t)bytes) != 0)
        fail_msg("%s, %s: two runs differ", k->isa, what);
    check_guard(second, bytes);
}

typedef struct conv_case {
    mu_conv_pool_shape s;
    int64_t n, rows, columns, x_size, taps, y_size;
} conv_case;

static conv_case conv_case_of(int64_t n, int64_t h, int64_t w, int64_t in, int64_t out, int64_t kernel)
{
    conv_case c = {.s = {h, w, in, out, kernel}, .n = n, .rows = (h - kernel + 1) / 2, .columns = (w - kernel + 1) / 2};
    c.x_size = n * h * w * in;
    c.taps = kernel * kernel * in;
    c.y_size = n * c.rows * c.columns * out;
    return c;
}

// The input element under one tap of the convolution that gives pixel (row, column) before pooling.
static float tap_of(const conv_case *c, const float *x, int64_t image, int64_t row, int64_t column, int64_t tap)
{
    const mu_conv_pool_shape *s = &c->s;
    const int64_t in = tap % s->in_channels, l = tap / s->in_channels % s->kernel, m = tap / s->in_channels / s->kernel;
    return x[((image * s->height + row + m) * s->width + column + l) * s->in_channels + in];
}

static void pick(const double four[4], double bias, double *y, uint8_t *mark)
{
    int best = 0;
    bool nan = isnan(bias);
    for (int i = 0; i < 4; i++) {
        best = four[i] > four[best] ? i : best;
        nan = nan || isnan(four[i]);
    }
    const double sum = four[best] + bias;
    *y = nan ? NAN : sum > 0 ? sum : 0;
    *mark = nan || !(sum > 0) ? MU_MARK_DEAD : (uint8_t)best;
}

static void conv_reference(const conv_case *c, const float *x, const float *w, const float *b, double *y, uint8_t *mark)
{
    for (int64_t i = 0; i < c->y_size; i++) {
        const int64_t out = i % c->s.out_channels, pixel = i / c->s.out_channels;
        const int64_t column = pixel % c->columns, row = pixel / c->columns % c->rows;
        const int64_t image = pixel / c->columns / c->rows;
        double four[4] = {0};
        for (int p = 0; p < 4; p++)
            for (int64_t t = 0; t < c->taps; t++)
                four[p] += (double)w[t * c->s.out_channels + out] *
                           tap_of(c, x, image, 2 * row + p / 2, 2 * column + p % 2, t);
        pick(four, b == NULL ? 0 : b[out], &y[i], &mark[i]);
    }
}

static void conv_grad_reference(const conv_case *c, const float *x, const float *dy, const uint8_t *mark, double *dw,
                                double *db)
{
    for (int64_t i = 0; i < c->y_size; i++) {
        const int64_t out = i % c->s.out_channels, pixel = i / c->s.out_channels;
        const int64_t column = pixel % c->columns, row = pixel / c->columns % c->rows;
        const int64_t image = pixel / c->columns / c->rows;
        if (mark[i] == MU_MARK_DEAD)
            continue;
        db[out] += dy[i];
        for (int64_t t = 0; t < c->taps; t++)
            dw[t * c->s.out_channels + out] +=
                (double)dy[i] * tap_of(c, x, image, 2 * row + mark[i] / 2, 2 * column + mark[i] % 2, t);
    }
}

static void check_conv_case(const conv_case *c, bool with_bias, bool with_nan)
{
    const int64_t weights = c->taps * c->s.out_channels, float_bytes = (int64_t)sizeof(float);
    float *x = quarters(c->x_size), *w = quarters(weights), *b = with_bias ? quarters(c->s.out_channels) : NULL;
    if (with_nan)
        x[c->x_size / 2] = NAN;
    double *want = doubles(c->y_size);
    uint8_t *want_mark = guarded(c->y_size), *mark = guarded(c->y_size), *mark2 = guarded(c->y_size);
    float *y = floats(c->y_size), *y2 = floats(c->y_size);
    conv_reference(c, x, w, b, want, want_mark);
    k->conv_relu_pool(&c->s, x, w, b, y, mark, 0, c->n);
    check_near(y, want, c->y_size, 0, 0, "conv_relu_pool");
    check_marks(mark, want_mark, c->y_size, "conv_relu_pool");
    k->conv_relu_pool(&c->s, x, w, b, y2, mark2, 0, c->n / 2);
    k->conv_relu_pool(&c->s, x, w, b, y2, mark2, c->n / 2, c->n);
    check_same(y, y2, c->y_size * float_bytes, "conv_relu_pool");
    check_same(mark, mark2, c->y_size, "conv_relu_pool");
    k->conv_relu_pool(&c->s, x, w, b, y2, NULL, 0, c->n);
    check_same(y, y2, c->y_size * float_bytes, "conv_relu_pool without marks");
    FREE_ALL(x, w, b, want, want_mark, mark, mark2, y, y2);
}

static void check_conv_grad_case(const conv_case *c, bool with_bias)
{
    const int64_t weights = c->taps * c->s.out_channels, out = c->s.out_channels;
    float *x = quarters(c->x_size), *dy = quarters(c->y_size);
    uint8_t *mark = bytes_below(c->y_size, 5);
    double *want_dw = doubles(weights), *want_db = doubles(out);
    float *dw = floats(weights), *db = floats(out), *dw2 = floats(weights), *db2 = floats(out);
    conv_grad_reference(c, x, dy, mark, want_dw, want_db);
    k->conv_relu_pool_grad(&c->s, x, dy, mark, dw, db, 0, c->n);
    check_near(dw, want_dw, weights, 0, 0, "conv_relu_pool_grad dw");
    check_near(db, want_db, out, 0, 0, "conv_relu_pool_grad db");
    k->conv_relu_pool_grad(&c->s, x, dy, mark, dw2, with_bias ? db2 : NULL, 0, c->n);
    check_same(dw, dw2, weights * (int64_t)sizeof(float), "conv_relu_pool_grad");
    const int64_t half = c->n / 2;
    k->conv_relu_pool_grad(&c->s, x, dy, mark, dw, db, 0, half);
    k->conv_relu_pool_grad(&c->s, x, dy, mark, dw2, db2, half, c->n);
    for (int64_t i = 0; i < weights; i++)
        dw[i] += dw2[i];
    for (int64_t i = 0; i < out; i++)
        db[i] += db2[i];
    check_near(dw, want_dw, weights, 0, 0, "conv_relu_pool_grad dw in two parts");
    check_near(db, want_db, out, 0, 0, "conv_relu_pool_grad db in two parts");
    FREE_ALL(x, dy, mark, want_dw, want_db, dw, db, dw2, db2);
}

static void check_conv(void)
{
    static const int64_t out_channels[] = {1, 7, 16, 17, 32, 50};
    for (int64_t kernel = 1; kernel <= 7; kernel++) {
        for (int64_t in = 1; in <= 4; in++) {
            for (size_t i = 0; i < sizeof out_channels / sizeof *out_channels; i++) {
                const int64_t n = 1 + (kernel + in + (int64_t)i) % 3;
                const conv_case c = conv_case_of(n, kernel + (int64_t)i, kernel + 3 + in, in, out_channels[i], kernel);
                check_conv_case(&c, i % 2 == 0, in == 2);
                check_conv_grad_case(&c, i % 2 == 0);
            }
        }
    }
    const conv_case mnist = conv_case_of(5, 28, 28, 1, 32, 3);
    check_conv_case(&mnist, true, true);
    check_conv_grad_case(&mnist, true);
}

static void check_relu_pool_case(int64_t n, int64_t h, int64_t w, int64_t channels, bool with_bias)
{
    const int64_t rows = h / 2, columns = w / 2, size = n * rows * columns * channels, x_size = n * h * w * channels;
    float *x = quarters(x_size), *b = with_bias ? quarters(channels) : NULL, *y = floats(size), *y2 = floats(size);
    uint8_t *mark = guarded(size), *mark2 = guarded(size), *want_mark = guarded(size);
    double *want = doubles(size), *want_dx = doubles(x_size), *want_db = doubles(channels);
    float *dx = floats(x_size), *dx2 = floats(x_size), *db = floats(channels), *dy = quarters(size);
    if (x_size > 2)
        x[x_size / 3] = NAN;
    for (int64_t i = 0; i < size; i++) {
        const int64_t c = i % channels, pixel = i / channels, column = pixel % columns, row = pixel / columns;
        const int64_t at = (row / rows * h + row % rows * 2) * w + column * 2;
        const int64_t positions[4] = {at, at + 1, at + w, at + w + 1};
        double four[4];
        for (int p = 0; p < 4; p++)
            four[p] = x[positions[p] * channels + c];
        pick(four, b == NULL ? 0 : b[c], &want[i], &want_mark[i]);
        if (want_mark[i] != MU_MARK_DEAD) {
            want_dx[positions[want_mark[i]] * channels + c] = dy[i];
            want_db[c] += dy[i];
        }
    }
    k->relu_pool(x, b, y, mark, h, w, channels, 0, n);
    check_near(y, want, size, 0, 0, "relu_pool");
    check_marks(mark, want_mark, size, "relu_pool");
    k->relu_pool(x, b, y2, mark2, h, w, channels, 0, n / 2);
    k->relu_pool(x, b, y2, mark2, h, w, channels, n / 2, n);
    check_same(y, y2, size * (int64_t)sizeof(float), "relu_pool");
    check_same(mark, mark2, size, "relu_pool");
    k->relu_pool_grad(dy, mark, dx, db, h, w, channels, 0, n);
    check_near(dx, want_dx, x_size, 0, 0, "relu_pool_grad");
    check_near(db, want_db, channels, 0, 0, "relu_pool_grad db");
    k->relu_pool_grad(dy, mark, dx2, NULL, h, w, channels, 0, n / 2);
    k->relu_pool_grad(dy, mark, dx2, NULL, h, w, channels, n / 2, n);
    check_same(dx, dx2, x_size * (int64_t)sizeof(float), "relu_pool_grad");
    FREE_ALL(x, b, y, y2, mark, mark2, want_mark);
    FREE_ALL(want, want_dx, want_db, dx, dx2, db, dy);
}

static void check_relu_pool(void)
{
    static const int64_t channels[] = {1, 3, 4, 15, 16, 64, 70};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (int64_t size = 1; size <= 7; size += 2)
            check_relu_pool_case(1 + size % 3, size, size + (int64_t)i % 2, channels[i], i % 2 == 0);
    check_relu_pool_case(2, 11, 11, 64, true);
}

// Visits each (output element, window element inside the image) pair of a pool.
typedef void pool_visit(int64_t out, int64_t in, int mark, void *arg);

static void visit_pool(const mu_pool_shape *s, int64_t n, pool_visit *visit, void *arg)
{
    for (int64_t i = 0; i < n * s->out_height * s->out_width * s->channels; i++) {
        const int64_t c = i % s->channels, pixel = i / s->channels, image = pixel / s->out_width / s->out_height;
        const int64_t row = pixel / s->out_width % s->out_height * s->stride_height - s->pad_top;
        const int64_t column = pixel % s->out_width * s->stride_width - s->pad_left;
        for (int64_t m = 0; m < s->window_height * s->window_width; m++) {
            const int64_t r = row + m / s->window_width, l = column + m % s->window_width;
            if (r >= 0 && r < s->height && l >= 0 && l < s->width)
                visit(i, ((image * s->height + r) * s->width + l) * s->channels + c, (int)m, arg);
        }
    }
}

typedef struct pool_reference {
    const float *x, *dy;
    double *max, *max_grad, *sum, *mean_grad;
    int64_t *area;
    uint8_t *mark;
} pool_reference;

static void visit_forward(int64_t out, int64_t in, int mark, void *arg)
{
    pool_reference *p = arg;
    const double x = p->x[in];
    if (p->area[out] == 0 || x > p->max[out] || (isnan(x) && !isnan(p->max[out]))) {
        p->max[out] = x;
        p->mark[out] = (uint8_t)mark;
    }
    p->sum[out] += x;
    p->area[out]++;
}

static void visit_backward(int64_t out, int64_t in, int mark, void *arg)
{
    pool_reference *p = arg;
    if (p->mark[out] == mark)
        p->max_grad[in] += p->dy[out];
    p->mean_grad[in] += p->dy[out] / (double)p->area[out];
}

static void check_pool_forward(const mu_pool_shape *s, int64_t n, int64_t size, const pool_reference *p)
{
    float *y = floats(size), *y2 = floats(size);
    uint8_t *mark = guarded(size), *mark2 = guarded(size);
    k->max_pool(s, p->x, y, mark, 0, n);
    check_near(y, p->max, size, 0, 0, "max_pool");
    check_marks(mark, p->mark, size, "max_pool");
    k->max_pool(s, p->x, y2, mark2, 0, n / 2);
    k->max_pool(s, p->x, y2, mark2, n / 2, n);
    check_same(y, y2, size * (int64_t)sizeof(float), "max_pool");
    check_same(mark, mark2, size, "max_pool");
    k->max_pool(s, p->x, y2, NULL, 0, n);
    check_same(y, y2, size * (int64_t)sizeof(float), "max_pool without marks");
    k->average_pool(s, p->x, y, 0, n);
    check_near(y, p->sum, size, 1e-6, 0, "average_pool");
    k->average_pool(s, p->x, y2, 0, n / 2);
    k->average_pool(s, p->x, y2, n / 2, n);
    check_same(y, y2, size * (int64_t)sizeof(float), "average_pool");
    FREE_ALL(y, y2, mark, mark2);
}

static void check_pool_backward(const mu_pool_shape *s, int64_t n, int64_t x_size, const pool_reference *p)
{
    float *dx = floats(x_size), *dx2 = floats(x_size);
    k->max_pool_grad(s, p->dy, p->mark, dx, 0, n);
    check_near(dx, p->max_grad, x_size, 0, 0, "max_pool_grad");
    k->max_pool_grad(s, p->dy, p->mark, dx2, 0, n / 2);
    k->max_pool_grad(s, p->dy, p->mark, dx2, n / 2, n);
    check_same(dx, dx2, x_size * (int64_t)sizeof(float), "max_pool_grad");
    k->average_pool_grad(s, p->dy, dx, 0, n);
    check_near(dx, p->mean_grad, x_size, 1e-5, 1e-6, "average_pool_grad");
    k->average_pool_grad(s, p->dy, dx2, 0, n / 2);
    k->average_pool_grad(s, p->dy, dx2, n / 2, n);
    check_same(dx, dx2, x_size * (int64_t)sizeof(float), "average_pool_grad");
    FREE_ALL(dx, dx2);
}

static void check_pool_case(const mu_pool_shape *s, int64_t n)
{
    const int64_t x_size = n * s->height * s->width * s->channels,
                  size = n * s->out_height * s->out_width * s->channels;
    float *x = quarters(x_size), *dy = quarters(size);
    x[x_size / 2] = NAN;
    x[x_size / 5] = -INFINITY;
    pool_reference p = {.x = x,
                        .dy = dy,
                        .max = doubles(size),
                        .sum = doubles(size),
                        .max_grad = doubles(x_size),
                        .mean_grad = doubles(x_size),
                        .mark = guarded(size)};
    p.area = calloc((size_t)size + 1, sizeof *p.area);
    assert_non_null(p.area);
    memset(p.mark, 0, (size_t)size);
    visit_pool(s, n, visit_forward, &p);
    visit_pool(s, n, visit_backward, &p);
    for (int64_t i = 0; i < size; i++) {
        p.max[i] = p.area[i] == 0 ? -INFINITY : p.max[i];
        p.sum[i] = p.area[i] == 0 ? 0 : p.sum[i] / (double)p.area[i];
    }
    check_pool_forward(s, n, size, &p);
    check_pool_backward(s, n, x_size, &p);
    FREE_ALL(x, dy, p.max, p.sum, p.max_grad, p.mean_grad, p.mark, p.area);
}

static void check_pools(void)
{
    // height, width, channels, out, out, window 2, stride 2, pad 2
    static const mu_pool_shape shapes[] = {
        {5, 7, 3, 2, 3, 2, 2, 2, 2, 0, 0},
        {4, 4, 16, 2, 2, 2, 2, 2, 2, 0, 0},
        {9, 8, 17, 9, 8, 3, 3, 1, 1, 1, 1},
        {7, 7, 33, 4, 4, 3, 3, 2, 2, 1, 1},
        {6, 5, 1, 2, 3, 5, 1, 1, 2, 0, 0},
        {16, 16, 5, 1, 1, 16, 16, 1, 1, 0, 0},
        {3, 3, 20, 5, 5, 2, 2, 1, 1, 2, 2},
        {10, 9, 64, 4, 3, 2, 3, 3, 4, 1, 0},
        // one row high, one column wide, each with padding on either axis
        {3, 9, 5, 3, 8, 1, 2, 1, 1, 0, 0},
        {4, 9, 18, 2, 4, 1, 3, 2, 2, 0, 0},
        {3, 4, 7, 5, 5, 1, 2, 1, 1, 1, 1},
        {9, 4, 17, 4, 4, 3, 1, 2, 1, 0, 0},
        {5, 3, 6, 6, 3, 2, 1, 1, 1, 1, 0},
        {4, 3, 9, 3, 5, 2, 1, 1, 1, 0, 1},
        // more columns, and more channels, than are pooled at a time
        {4, 350, 33, 4, 350, 3, 3, 1, 1, 1, 1},
        {5, 4, 5600, 2, 2, 3, 3, 2, 1, 0, 0},
        {3, 130, 70, 1, 64, 3, 4, 1, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t n = 1; n <= 3; n++)
            check_pool_case(&shapes[i], n);
}

static void check_bias_and_relu_case(int64_t rows, int64_t channels)
{
    const int64_t size = rows * channels, bytes = size * (int64_t)sizeof(float);
    float *x = quarters(size), *b = quarters(channels), *dy = quarters(size), *y = floats(size), *dx = floats(size);
    float *db = floats(channels), *y2 = floats(size);
    double *want = doubles(size), *want_dx = doubles(size), *want_db = doubles(channels);
    if (size > 3)
        x[size / 2] = NAN;
    for (int64_t i = 0; i < size; i++) {
        const double sum = (double)x[i] + b[i % channels];
        want[i] = isnan(sum) ? NAN : fmax(sum, 0);
        want_dx[i] = want[i] > 0 ? dy[i] : 0;
        want_db[i % channels] += dy[i];
    }
    k->bias_relu(x, b, y, channels, 0, rows);
    check_near(y, want, size, 0, 0, "bias_relu");
    memcpy(y2, x, (size_t)bytes);
    k->bias_relu(y2, b, y2, channels, 0, rows / 3);
    k->bias_relu(y2, b, y2, channels, rows / 3, rows);
    check_same(y, y2, bytes, "bias_relu in place");
    k->bias_relu(y, NULL, y2, channels, 0, rows);
    check_same(y, y2, bytes, "bias_relu without bias");
    k->relu_grad(y, dy, dx, 0, size);
    check_near(dx, want_dx, size, 0, 0, "relu_grad");
    k->bias_grad(dy, db, channels, 0, rows);
    check_near(db, want_db, channels, 0, 0, "bias_grad");
    k->relu_grad(y, dy, dy, 0, size / 3);
    k->relu_grad(y, dy, dy, size / 3, size);
    check_same(dx, dy, bytes, "relu_grad in place");
    FREE_ALL(x, b, dy, y, dx, db, y2, want, want_dx, want_db);
}

static void check_bias_and_relu(void)
{
    static const int64_t sizes[] = {1, 2, 5, 10, 16, 31, 64, 130};
    for (size_t r = 0; r < sizeof sizes / sizeof *sizes; r++)
        for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
            check_bias_and_relu_case(sizes[r], sizes[c]);
}

static void xent_reference(const float *x, const int64_t *labels, int64_t rows, int64_t classes, double *loss,
                           double *dx)
{
    for (int64_t row = 0; row < rows; row++) {
        double max = -INFINITY, sum = 0;
        for (int64_t c = 0; c < classes; c++)
            max = fmax(max, x[row * classes + c]);
        for (int64_t c = 0; c < classes; c++)
            sum += exp(x[row * classes + c] - max);
        const bool bad = labels[row] < 0 || labels[row] >= classes;
        loss[row] = bad ? NAN : log(sum) + max - x[row * classes + labels[row]];
        for (int64_t c = 0; c < classes; c++)
            dx[row * classes + c] = bad ? NAN : exp(x[row * classes + c] - max) / sum - (c == labels[row]);
    }
}

static void store_label(void *labels, int label_bytes, int64_t row, int64_t label)
{
    if (label_bytes == 1)
        ((uint8_t *)labels)[row] = (uint8_t)label;
    else if (label_bytes == 4)
        ((int32_t *)labels)[row] = (int32_t)label;
    else
        ((int64_t *)labels)[row] = label;
}

static void check_xent_case(int64_t rows, int64_t classes, float scale, int label_bytes, bool one_bad)
{
    const int64_t size = rows * classes;
    float *x = reals(size, scale), *loss = floats(rows), *dx = floats(size), *loss2 = floats(rows);
    int64_t labels[64], stored[64];
    for (int64_t i = 0; i < rows; i++) {
        labels[i] = (int64_t)(random_u32() % (uint32_t)classes);
        if (one_bad && i == rows / 2)
            labels[i] = label_bytes == 1 ? 255 : -1;
        store_label(stored, label_bytes, i, labels[i]);
    }
    double *want_loss = doubles(rows), *want_dx = doubles(size);
    xent_reference(x, labels, rows, classes, want_loss, want_dx);
    const int64_t bad = k->softmax_xent(x, stored, label_bytes, loss, dx, classes, 0, rows);
    assert_int_equal(bad, one_bad ? rows / 2 : -1);
    check_near(loss, want_loss, rows, 1e-6, 2e-6 * (1 + scale), "softmax_xent loss");
    check_near(dx, want_dx, size, 2e-6, 1e-6, "softmax_xent dlogits");
    k->softmax_xent(x, stored, label_bytes, loss2, NULL, classes, 0, rows);
    check_same(loss, loss2, rows * (int64_t)sizeof(float), "softmax_xent loss only");
    k->softmax_xent(x, stored, label_bytes, NULL, x, classes, 0, rows / 2);
    k->softmax_xent(x, stored, label_bytes, NULL, x, classes, rows / 2, rows);
    check_same(dx, x, size * (int64_t)sizeof(float), "softmax_xent in place");
    FREE_ALL(x, loss, dx, loss2, want_loss, want_dx);
}

static void check_xent(void)
{
    static const int64_t classes[] = {1, 2, 3, 7, 8, 10, 16, 17, 31, 100, 250};
    static const float scales[] = {1, 20, 300, 1e30f};
    static const int label_bytes[] = {1, 4, 8};
    for (size_t c = 0; c < sizeof classes / sizeof *classes; c++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
            for (size_t b = 0; b < 3; b++)
                check_xent_case(1 + (int64_t)(c * 5 + s) % 40, classes[c], scales[s], label_bytes[b], s == 0);
    const float limits[] = {INFINITY, 0, -INFINITY, 0, 1, NAN};
    const uint8_t labels[] = {0, 1, 1};
    float loss[3], dx[6];
    assert_int_equal(k->softmax_xent(limits, labels, 1, loss, dx, 2, 0, 3), -1);
    assert_true(isnan(loss[0]) && loss[1] == 0 && isnan(loss[2]));
    assert_true(isnan(dx[0]) && dx[2] == 0 && dx[3] == 0 && isnan(dx[4]));
}

static void check_argmax(void)
{
    for (int64_t columns = 1; columns < 70; columns++) {
        const int64_t rows = 1 + columns % 5;
        float *x = quarters(rows * columns);
        int64_t index[5];
        k->argmax(x, index, columns, 0, rows);
        for (int64_t row = 0; row < rows; row++) {
            int64_t want = 0;
            for (int64_t c = 1; c < columns; c++)
                want = x[row * columns + c] > x[row * columns + want] ? c : want;
            assert_int_equal(index[row], want);
        }
        free(x);
    }
    const float special[] = {NAN, -1, NAN, -1, NAN, NAN, -INFINITY, -INFINITY, INFINITY, 1, INFINITY, NAN};
    int64_t index[3];
    k->argmax(special, index, 4, 0, 3);
    assert_true(index[0] == 1 && index[1] == 2 && index[2] == 0);
}

static void check_adam_case(int64_t n)
{
    const mu_adam_scalars s = {.alpha = 1e-3f, .rest_1 = 0.1f, .rest_2 = 0.001f, .epsilon = 1e-7f};
    float *state[3] = {reals(n, 1), reals(n, 1e-2f), reals(n, 1e-3f)}, *again[3], *g = reals(n, 0.1f);
    double *want[3] = {doubles(n), doubles(n), doubles(n)};
    for (int64_t i = 0; i < n; i++) {
        state[2][i] = fabsf(state[2][i]);
        want[1][i] = state[1][i] + ((double)g[i] - state[1][i]) * s.rest_1;
        want[2][i] = state[2][i] + ((double)g[i] * g[i] - state[2][i]) * s.rest_2;
        want[0][i] = state[0][i] - s.alpha * want[1][i] / (sqrt(want[2][i]) + s.epsilon);
    }
    for (int j = 0; j < 3; j++) {
        again[j] = floats(n);
        memcpy(again[j], state[j], (size_t)n * sizeof(float));
    }
    k->adam(state[0], state[1], state[2], g, s, 0, n);
    k->adam(again[0], again[1], again[2], g, s, 0, n / 3);
    k->adam(again[0], again[1], again[2], g, s, n / 3, n);
    for (int j = 0; j < 3; j++) {
        check_near(state[j], want[j], n, 1e-6, j == 0 ? 1e-7 : 1e-9, "adam");
        check_same(state[j], again[j], n * (int64_t)sizeof(float), "adam");
        FREE_ALL(state[j], again[j], want[j]);
    }
    free(g);
}

static void check_sgd_case(int64_t n, bool with_velocity, bool nesterov)
{
    const mu_sgd_scalars s = {.learning_rate = 0.05f, .momentum = 0.9f, .nesterov = nesterov};
    float *param = reals(n, 1), *velocity = with_velocity ? reals(n, 1) : NULL, *g = reals(n, 1);
    double *want = doubles(n), *want_velocity = doubles(n);
    for (int64_t i = 0; i < n; i++) {
        const double step = (double)s.learning_rate * g[i];
        want_velocity[i] = with_velocity ? (double)s.momentum * velocity[i] - step : -step;
        want[i] = param[i] + (nesterov && with_velocity ? s.momentum * want_velocity[i] - step : want_velocity[i]);
    }
    k->sgd(param, velocity, g, s, 0, n / 3);
    k->sgd(param, velocity, g, s, n / 3, n);
    check_near(param, want, n, 1e-6, 1e-6, "sgd");
    if (with_velocity)
        check_near(velocity, want_velocity, n, 1e-6, 1e-6, "sgd velocity");
    FREE_ALL(param, velocity, g, want, want_velocity);
}

static void check_updates(void)
{
    for (int64_t n = 1; n < 150; n += 7) {
        check_adam_case(n);
        check_sgd_case(n, false, false);
        check_sgd_case(n, true, false);
        check_sgd_case(n, true, true);
    }
}

static void check_reduce_case(int64_t n, int n_src, int n_dst, bool in_place, bool stream, int64_t shift)
{
    float *memory[12], *dst[4];
    const float *src[8];
    double *want = doubles(n);
    for (int i = 0; i < n_src; i++)
        src[i] = (memory[i] = reals(n + shift, 1)) + shift;
    for (int i = 0; i < n_dst; i++) {
        memory[8 + i] = floats(n + shift);
        dst[i] = in_place && i < n_src ? memory[i] + shift : memory[8 + i] + shift;
    }
    for (int64_t i = 0; i < n; i++) {
        float sum = src[0][i];
        for (int j = 1; j < n_src; j++)
            sum += src[j][i];
        want[i] = sum * 0.5f;
    }
    k->reduce_n(dst, n_dst, src, n_src, 0.5f, stream, 0, n / 3);
    k->reduce_n(dst, n_dst, src, n_src, 0.5f, stream, n / 3, n);
    for (int i = 0; i < n_dst; i++)
        check_near(dst[i], want, n, 0, 0, "reduce_n");
    for (int i = 0; i < n_src; i++)
        free(memory[i]);
    for (int i = 0; i < n_dst; i++)
        free(memory[8 + i]);
    free(want);
}

static void check_reduce(void)
{
    for (int64_t n = 1; n < 700; n = n * 2 + 1)
        for (int n_src = 1; n_src <= 8; n_src++)
            for (int variant = 0; variant < 8; variant++)
                check_reduce_case(n, n_src, 1 + n_src % 4, variant & 1, variant & 2, variant & 4 ? 3 : 0);
}

static void check_copies(void)
{
    for (int64_t n = 1; n < 600; n = n * 3 / 2 + 1) {
        uint8_t *x = bytes_below(n + 5, 256), *y = guarded(n + 5);
        int64_t index[4] = {2, 0, 1, 2};
        float *f = floats(n), *g = floats(n);
        k->scale_u8(x, 0.25f, f, 0, n / 2);
        k->scale_u8(x, 0.25f, f, n / 2, n);
        k->scale(f, -3, g, 0, n);
        for (int64_t i = 0; i < n; i++)
            assert_true(f[i] == (float)x[i] / 4 && g[i] == -3 * f[i]);
        check_guard(f, n * (int64_t)sizeof(float));
        check_guard(g, n * (int64_t)sizeof(float));
        const int64_t row = n / 3 > 0 ? n / 3 : 0;
        float *rows = floats(4 * row), *in_order = floats(row);
        k->gather_u8(x, index, 0.25f, rows, row, 0, 4);
        k->gather_u8(x, NULL, 0.25f, in_order, row, 0, row > 0);
        for (int64_t i = 0; i < 4 * row; i++)
            assert_true(rows[i] == (float)x[index[i / row] * row + i % row] / 4);
        for (int64_t i = 0; i < row; i++)
            assert_true(in_order[i] == (float)x[i] / 4);
        check_guard(rows, 4 * row * (int64_t)sizeof(float));
        FREE_ALL(x, y, f, g, rows, in_order);
    }
}

static void on_every_table(void (*check)(void))
{
    static const char *const names[] = {"base", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        k = mu__kernels_for(names[i]);
        if (k == NULL)
            print_message("%s: not on this processor\n", names[i]);
        else
            check();
    }
}

#define TABLE_TEST(name)                  \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        on_every_table(check_##name);     \
    }
TABLE_TEST(conv)
TABLE_TEST(relu_pool)
TABLE_TEST(pools)
TABLE_TEST(bias_and_relu)
TABLE_TEST(xent)
TABLE_TEST(argmax)
TABLE_TEST(updates)
TABLE_TEST(reduce)
TABLE_TEST(copies)

static void test_choice(void **state)
{
    (void)state;
    assert_non_null(mu__kernels_for("base"));
    assert_null(mu__kernels_for("neon9000"));
    assert_null(mu__kernels_for(NULL));
    assert_ptr_equal(mu__kernels(), mu__kernels_for(mu__kernels()->isa));
    const mu_kernels *best = mu__kernels();
    assert_true(mu__kernels_use("base"));
    assert_ptr_equal(mu__kernels(), mu__kernels_for("base"));
    assert_false(mu__kernels_use("neon9000"));
    assert_ptr_equal(mu__kernels(), mu__kernels_for("base"));
    assert_true(mu__kernels_use(NULL));
    assert_ptr_equal(mu__kernels(), best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice), cmocka_unit_test(test_conv),   cmocka_unit_test(test_relu_pool),
        cmocka_unit_test(test_pools),  cmocka_unit_test(test_xent),   cmocka_unit_test(test_bias_and_relu),
        cmocka_unit_test(test_argmax), cmocka_unit_test(test_reduce), cmocka_unit_test(test_updates),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
