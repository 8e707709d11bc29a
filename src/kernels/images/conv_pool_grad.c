// Gradient of convolution, bias, ReLU and 2x2 max pool with respect to weights and bias. Of each four convolution
// results only the maximum receives a gradient, and the mark names it; where a vector instruction can look up 32
// values at once, only that product is computed, a quarter of the work. Sums stay in registers over a row or an image
// and are then added up, which keeps rounding errors small.
#include "kernel_slots.h"
#include "simd.h"

enum { MAX_TAPS = 7 * 7 * 4, TILE = 9, MOST_ROWS = 3, MOST_TAPS = 12 };

// One vector of channels: dy, mark and sums begin at its first channel; the first n lanes are valid.
typedef struct gradient {
    const mu_conv_pool_shape *s;
    int64_t rows, columns, n;
    const float *x, *dy;
    const uint8_t *mark;
    mu_vf dw[MAX_TAPS], db;
} gradient;

// Adds an image to dw.
typedef void image_function(gradient *g, int64_t image);

MU_INLINE mu_vf load_dy(const gradient *g, int64_t pixel, bool full)
{
    const float *dy = g->dy + pixel * g->s->out_channels;
    return full ? v_load(dy) : v_load_n(dy, g->n);
}

MU_INLINE mu_marks load_marks(const gradient *g, int64_t pixel, bool full)
{
    const uint8_t *mark = g->mark + pixel * g->s->out_channels;
    return full ? marks_load(mark) : marks_load_n(mark, g->n);
}

// Adds TILE taps of one row of pooled pixels; offset[t] is the distance from a pixel's first input element to the
// tap's. Computes products for all four results; three of them are zero.
MU_INLINE void multiply_row_tile(gradient *g, const float *x, int64_t first_pixel, const int64_t offset[TILE],
                                 mu_vf sums[TILE], bool full)
{
    const int64_t right = g->s->in_channels, below = g->s->width * g->s->in_channels;
    mu_vf acc[TILE] = {{0}};
    for (int64_t pixel = 0; pixel < g->columns; pixel++) {
        const float *px = x + pixel * 2 * right;
        const mu_vf d = load_dy(g, first_pixel + pixel, full);
        const mu_marks marks = load_marks(g, first_pixel + pixel, full);
        const mu_vf d0 = v_keep(marks_equal(marks, 0), d), d1 = v_keep(marks_equal(marks, 1), d);
        const mu_vf d2 = v_keep(marks_equal(marks, 2), d), d3 = v_keep(marks_equal(marks, 3), d);
        MU_UNROLL for (int t = 0; t < TILE; t++)
        {
            const float *at = px + offset[t];
            acc[t] += d0 * at[0];
            acc[t] += d1 * at[right];
            acc[t] += d2 * at[below];
            acc[t] += d3 * at[below + right];
        }
    }
    for (int t = 0; t < TILE; t++)
        sums[t] += acc[t];
}

static void multiply_image(gradient *g, int64_t image)
{
    const mu_conv_pool_shape *s = g->s;
    const int64_t run = s->kernel * s->in_channels, taps = s->kernel * run, x_row = s->width * s->in_channels;
    for (int64_t first = 0; first < taps; first += TILE) {
        int64_t offset[TILE] = {0};
        mu_vf sums[TILE] = {{0}};
        const int64_t n = least(taps - first, TILE);
        for (int64_t t = 0; t < n; t++)
            offset[t] = (first + t) / run * x_row + (first + t) % run;
        for (int64_t row = 0; row < g->rows; row++) {
            const float *x = g->x + (image * s->height + 2 * row) * x_row;
            if (g->n == MU_LANES)
                multiply_row_tile(g, x, (image * g->rows + row) * g->columns, offset, sums, true);
            else
                multiply_row_tile(g, x, (image * g->rows + row) * g->columns, offset, sums, false);
        }
        for (int64_t t = 0; t < n; t++)
            g->dw[first + t] += sums[t];
    }
}

#if MU_LANES == 16

// The taps of some rows of the kernel, over an image. The input elements of one kernel row under all four results of a
// pixel are one vector, and each lane selects the element that its own mark names from that row's vector and the next
// one's. rows and taps (of one kernel row: kernel * in_channels) are constants where it is called.
MU_INLINE void select_rows(gradient *g, int64_t image, int64_t first, int rows, int taps, bool full)
{
    const int right = (int)g->s->in_channels;
    const int64_t x_row = g->s->width * right;
    const __mmask16 used = (__mmask16)((1u << (taps + right)) - 1);
    const __m512i steps = (__m512i)(mu_vi){0, right, MU_LANES, MU_LANES + right};
    mu_vf acc[MOST_ROWS][MOST_TAPS] = {{{0}}};
    for (int64_t row = 0; row < g->rows; row++) {
        const float *x = g->x + (image * g->s->height + 2 * row + first) * x_row;
        const int64_t first_pixel = (image * g->rows + row) * g->columns;
        for (int64_t pixel = 0; pixel < g->columns; pixel++) {
            const mu_marks marks = load_marks(g, first_pixel + pixel, full);
            const mu_vf d = v_keep(m_not(marks_equal(marks, MU_MARK_DEAD)), load_dy(g, first_pixel + pixel, full));
            const mu_vi step = (mu_vi)_mm512_permutexvar_epi32(_mm512_cvtepu8_epi32(marks), steps);
            __m512 upper = _mm512_maskz_loadu_ps(used, x + pixel * 2 * right);
            MU_UNROLL for (int r = 0; r < rows; r++)
            {
                const __m512 lower = _mm512_maskz_loadu_ps(used, x + pixel * 2 * right + (r + 1) * x_row);
                MU_UNROLL for (int t = 0; t < taps; t++) acc[r][t] +=
                    d * (mu_vf)_mm512_permutex2var_ps(upper, (__m512i)(step + t), lower);
                upper = lower;
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < taps; t++)
            g->dw[(first + r) * taps + t] += acc[r][t];
}

MU_INLINE void select_image(gradient *g, int64_t image, int rows, int taps, bool full)
{
    int64_t row = 0;
    for (; row + rows <= g->s->kernel; row += rows)
        select_rows(g, image, row, rows, taps, full);
    for (; row < g->s->kernel; row++)
        select_rows(g, image, row, 1, taps, full);
}

// For so many taps in a kernel row, so many kernel rows whose sums stay in registers: kernels of 3, 5 and 7 on one
// channel, and of 3 on two to four, among others.
#define SELECTED(X) \
    X(3, 3)         \
    X(5, 3)         \
    X(6, 2)         \
    X(7, 2)         \
    X(9, 1)         \
    X(12, 1)
#define SELECT_FUNCTION(taps, rows)                                  \
    static MU_OUTLINE void select_##taps(gradient *g, int64_t image) \
    {                                                                \
        if (g->n == MU_LANES)                                        \
            select_image(g, image, rows, taps, true);                \
        else                                                         \
            select_image(g, image, rows, taps, false);               \
    }
#define SELECT_CASE(taps, rows) \
    case taps: return select_##taps;

SELECTED(SELECT_FUNCTION)

static image_function *weights_function(const mu_conv_pool_shape *s)
{
    const int64_t taps = s->kernel * s->in_channels;
    switch (taps + s->in_channels <= MU_LANES ? taps : 0) {
        SELECTED(SELECT_CASE)
    default: return multiply_image;
    }
}

#else

static image_function *weights_function(const mu_conv_pool_shape *s)
{
    (void)s;
    return multiply_image;
}

#endif

static void add_bias(gradient *g, int64_t image)
{
    for (int64_t pixel = image * g->rows * g->columns; pixel < (image + 1) * g->rows * g->columns; pixel++)
        g->db += v_keep(m_not(marks_equal(load_marks(g, pixel, false), MU_MARK_DEAD)), load_dy(g, pixel, false));
}

void MU_KERNEL(conv_relu_pool_grad)(const mu_conv_pool_shape *s, const float *x, const float *dy, const uint8_t *mark,
                                    float *dw, float *db, int64_t begin, int64_t end)
{
    const int64_t taps = s->kernel * s->kernel * s->in_channels;
    image_function *const add_weights = weights_function(s);
    gradient g = {.s = s, .x = x, .rows = (s->height - s->kernel + 1) / 2, .columns = (s->width - s->kernel + 1) / 2};
    for (int64_t c = 0; c < s->out_channels; c += MU_LANES) {
        g.n = least(s->out_channels - c, MU_LANES);
        g.dy = dy + c;
        g.mark = mark + c;
        g.db = (mu_vf){0};
        memset(g.dw, 0, (size_t)taps * sizeof g.dw[0]);
        for (int64_t image = begin; image < end; image++) {
            add_weights(&g, image);
            add_bias(&g, image);
        }
        for (int64_t t = 0; t < taps; t++)
            v_store_n(dw + t * s->out_channels + c, g.dw[t], g.n);
        if (db != NULL)
            v_store_n(db + c, g.db, g.n);
    }
}
