// The 2x2 max pool of stride 2 with ReLU, and its gradient. Vectors run over channels; the marks hold all that the
// gradient needs, so it never reads the activation again. Pools of any window are in pool_rows.c and pool_grad.c.
#include "kernel_slots.h"
#include "simd.h"

static void relu_pool_pixel(const float *x, int64_t below, const float *b, float *y, uint8_t *mark, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += MU_LANES) {
        const int64_t n = least(channels - c, MU_LANES);
        const float *upper = x + c, *lower = upper + below;
        mu_marks marks;
        const mu_vf bias = b == NULL ? (mu_vf){0} : v_load_n(b + c, n);
        const mu_vf four[4] = {v_load_n(upper, n), v_load_n(upper + channels, n), v_load_n(lower, n),
                               v_load_n(lower + channels, n)};
        const mu_vf best = v_relu_pool(four, bias, &marks);
        v_store_n(y + c, best, n);
        if (mark != NULL)
            marks_store_n(mark + c, marks, n);
    }
}

void MU_KERNEL(relu_pool)(const float *x, const float *b, float *y, uint8_t *mark, int64_t height, int64_t width,
                          int64_t channels, int64_t begin, int64_t end)
{
    const int64_t rows = height / 2, columns = width / 2, below = width * channels;
    for (int64_t row = begin * rows; row < end * rows; row++) {
        const float *from = x + (row / rows * height + row % rows * 2) * below;
        for (int64_t column = 0; column < columns; column++) {
            const int64_t at = (row * columns + column) * channels;
            relu_pool_pixel(from + column * 2 * channels, below, b, y + at, mark ? mark + at : NULL, channels);
        }
    }
}

static void spread_pixel(const float *dy, const uint8_t *mark, float *dx, float *db, int64_t below, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += MU_LANES) {
        const int64_t n = least(channels - c, MU_LANES);
        const mu_vf d = v_load_n(dy + c, n);
        const mu_marks marks = marks_load_n(mark + c, n);
        float *upper = dx + c, *lower = upper + below;
        v_store_n(upper, v_keep(marks_equal(marks, 0), d), n);
        v_store_n(upper + channels, v_keep(marks_equal(marks, 1), d), n);
        v_store_n(lower, v_keep(marks_equal(marks, 2), d), n);
        v_store_n(lower + channels, v_keep(marks_equal(marks, 3), d), n);
        if (db != NULL)
            v_store_n(db + c, v_load_n(db + c, n) + v_keep(m_not(marks_equal(marks, MU_MARK_DEAD)), d), n);
    }
}

static void zero(float *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }

// Processes one image; rows and columns that the pool dropped at the right and at the bottom get zeros.
static void spread_image(const float *dy, const uint8_t *mark, float *dx, float *db, int64_t height, int64_t width,
                         int64_t channels)
{
    const int64_t rows = height / 2, columns = width / 2, below = width * channels;
    for (int64_t row = 0; row < rows; row++) {
        float *to = dx + 2 * row * below;
        for (int64_t column = 0; column < columns; column++) {
            const int64_t at = (row * columns + column) * channels;
            spread_pixel(dy + at, mark + at, to + column * 2 * channels, db, below, channels);
        }
        if (width % 2 != 0) {
            zero(to + below - channels, channels);
            zero(to + 2 * below - channels, channels);
        }
    }
    if (height % 2 != 0)
        zero(dx + (height - 1) * below, below);
}

void MU_KERNEL(relu_pool_grad)(const float *dy, const uint8_t *mark, float *dx, float *db, int64_t height,
                               int64_t width, int64_t channels, int64_t begin, int64_t end)
{
    const int64_t out = (height / 2) * (width / 2) * channels;
    if (db != NULL)
        zero(db, channels);
    for (int64_t i = begin; i < end; i++)
        spread_image(dy + i * out, mark + i * out, dx + i * height * width * channels, db, height, width, channels);
}
