// Gradient of convolution, bias, ReLU and 2x2 max pool with respect to weights and bias. Of each four convolution
// results only the maximum receives a gradient, and the mark names it; where a vector instruction can look up 16
// values at once, only that product is computed, a quarter of the work. Sums stay in registers over a row or an image
// and are then added up, which keeps rounding errors small.
#include "kernel_slots.h"
#include "simd.h"

enum { MAX_TAPS = 7 * 7 * 4, TILE = 9 };

// One vector of channels: dy, mark and sums begin at its first channel; the first n lanes are valid.
typedef struct gradient {
    const mu_conv_pool_shape *s;
    int64_t rows, columns, n;
    const float *x, *dy;
    const uint8_t *mark;
    mu_vf dw[MAX_TAPS], db;
} gradient;

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
MU_INLINE void add_row_tile(gradient *g, const float *x, int64_t first_pixel, const int64_t offset[TILE],
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
        MU_UNROLL for (int t = 0; t < TILE; t++) {
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

static void add_image(gradient *g, int64_t image)
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
                add_row_tile(g, x, (image * g->rows + row) * g->columns, offset, sums, true);
            else
                add_row_tile(g, x, (image * g->rows + row) * g->columns, offset, sums, false);
        }
        for (int64_t t = 0; t < n; t++)
            g->dw[first + t] += sums[t];
    }
    for (int64_t pixel = image * g->rows * g->columns; pixel < (image + 1) * g->rows * g->columns; pixel++)
        g->db += v_keep(m_not(marks_equal(load_marks(g, pixel, false), MU_MARK_DEAD)), load_dy(g, pixel, false));
}

#if MU_LANES == 16

// 3x3 on one channel: the 4x4 inputs under a pooled pixel are one vector, from which each lane selects the input that
// its own mark names.
static bool fits_one_vector(const mu_conv_pool_shape *s)
{
    return s->kernel == 3 && s->in_channels == 1;
}

MU_INLINE __m512 load_4x4(const float *x, int64_t x_row)
{
    __m512 patch = _mm512_castps128_ps512(_mm_loadu_ps(x));
    patch = _mm512_mask_broadcast_f32x4(patch, 0x00F0, _mm_loadu_ps(x + x_row));
    patch = _mm512_mask_broadcast_f32x4(patch, 0x0F00, _mm_loadu_ps(x + 2 * x_row));
    return _mm512_mask_broadcast_f32x4(patch, 0xF000, _mm_loadu_ps(x + 3 * x_row));
}

MU_INLINE void add_image_4x4_as(gradient *g, int64_t image, bool full)
{
    const int64_t width = g->s->width;
    mu_vf acc[9] = {{0}}, db = {0};
    for (int64_t row = 0; row < g->rows; row++) {
        const float *x = g->x + (image * g->s->height + 2 * row) * width;
        const int64_t first_pixel = (image * g->rows + row) * g->columns;
        for (int64_t pixel = 0; pixel < g->columns; pixel++) {
            const __m512 patch = load_4x4(x + 2 * pixel, width);
            const mu_marks marks = load_marks(g, first_pixel + pixel, full);
            const mu_vf d = v_keep(m_not(marks_equal(marks, MU_MARK_DEAD)), load_dy(g, first_pixel + pixel, full));
            const mu_vi mark = (mu_vi)_mm512_cvtepu8_epi32(marks), place = mark + (mark & 2);
            MU_UNROLL for (int t = 0; t < 9; t++)
                acc[t] += d * (mu_vf)_mm512_permutexvar_ps((__m512i)(place + (t / 3 * 4 + t % 3)), patch);
            db += d;
        }
    }
    for (int t = 0; t < 9; t++)
        g->dw[t] += acc[t];
    g->db += db;
}

static void add_image_4x4(gradient *g, int64_t image)
{
    if (g->n == MU_LANES)
        add_image_4x4_as(g, image, true);
    else
        add_image_4x4_as(g, image, false);
}

#else

static bool fits_one_vector(const mu_conv_pool_shape *s)
{
    (void)s;
    return false;
}

#define add_image_4x4 add_image

#endif

void MU_KERNEL(conv_relu_pool_grad)(const mu_conv_pool_shape *s, const float *x, const float *dy, const uint8_t *mark,
                                    float *dw, float *db, int64_t begin, int64_t end)
{
    const int64_t taps = s->kernel * s->kernel * s->in_channels;
    gradient g = {.s = s, .x = x, .rows = (s->height - s->kernel + 1) / 2, .columns = (s->width - s->kernel + 1) / 2};
    for (int64_t c = 0; c < s->out_channels; c += MU_LANES) {
        g.n = least(s->out_channels - c, MU_LANES);
        g.dy = dy + c;
        g.mark = mark + c;
        g.db = (mu_vf){0};
        memset(g.dw, 0, (size_t)taps * sizeof g.dw[0]);
        for (int64_t image = begin; image < end; image++) {
            if (fits_one_vector(s))
                add_image_4x4(&g, image);
            else
                add_image(&g, image);
        }
        for (int64_t t = 0; t < taps; t++)
            v_store_n(dw + t * s->out_channels + c, g.dw[t], g.n);
        if (db != NULL)
            v_store_n(db + c, g.db, g.n);
    }
}
