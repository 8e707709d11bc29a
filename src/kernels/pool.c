// Pooling. First the 2x2 pool of stride 2 with ReLU behind it, where marks carry what the gradient
// needs, so that the activation before it is never read again; then the gradients of max and average pools of
// any window, stride and padding (pool_rows.c has the pools). Main idea everywhere: channels are the vector.
#include "parts.h"
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

static void zero(float *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

// One image; what the pool dropped at the right and at the bottom gets zeros.
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

// The part of one window that lies inside the image: rows [top, bottom), columns [left, right), and
// where the window itself begins, which padding may put outside.
typedef struct window {
    int64_t top, bottom, left, right;
    int64_t first_row, first_column;
} window;

static window window_at(const mu_pool_shape *s, int64_t out_row, int64_t out_column)
{
    window w = {.first_row = out_row * s->stride_height - s->pad_top,
                .first_column = out_column * s->stride_width - s->pad_left};
    w.top = greatest(w.first_row, 0);
    w.left = greatest(w.first_column, 0);
    w.bottom = least(w.first_row + s->window_height, s->height);
    w.right = least(w.first_column + s->window_width, s->width);
    return w;
}

static int64_t window_area(const window *w)
{
    return greatest(w->bottom - w->top, 0) * greatest(w->right - w->left, 0);
}

static int mark_of(const mu_pool_shape *s, const window *w, int64_t row, int64_t column)
{
    return (int)((row - w->first_row) * s->window_width + column - w->first_column);
}

// What a pool works on, in either direction; what a direction does not use is NULL.
typedef struct pool {
    const mu_pool_shape *s;
    const float *x, *dy;
    float *y, *dx;
    const uint8_t *mark;
    uint8_t *new_mark;
} pool;

// Each kind of pool, in each direction, is one of these: a window of the image that begins at element
// in, and the pixel that begins at element out.
typedef void window_body(const pool *p, const window *w, int64_t in, int64_t out);

// apart: no two windows share an element, so what a window's elements get is all they get.
MU_INLINE void max_window_spread(const pool *p, const window *w, int64_t in, int64_t out, bool apart)
{
    const mu_pool_shape *s = p->s;
    for (int64_t c = 0; c < s->channels; c += MU_LANES) {
        const int64_t n = least(s->channels - c, MU_LANES);
        const mu_vf d = v_load_n(p->dy + out + c, n);
        const mu_marks marks = marks_load_n(p->mark + out + c, n);
        for (int64_t row = w->top; row < w->bottom; row++) {
            for (int64_t column = w->left; column < w->right; column++) {
                float *to = p->dx + in + (row * s->width + column) * s->channels + c;
                const mu_vf part = v_keep(marks_equal(marks, mark_of(s, w, row, column)), d);
                v_store_n(to, apart ? part : v_load_n(to, n) + part, n);
            }
        }
    }
}

MU_INLINE void max_window_grad(const pool *p, const window *w, int64_t in, int64_t out)
{
    max_window_spread(p, w, in, out, false);
}

MU_INLINE void max_window_grad_apart(const pool *p, const window *w, int64_t in, int64_t out)
{
    max_window_spread(p, w, in, out, true);
}

MU_INLINE void average_window_spread(const pool *p, const window *w, int64_t in, int64_t out, bool apart)
{
    const mu_pool_shape *s = p->s;
    const mu_vf area = v_splat((float)window_area(w));
    for (int64_t c = 0; c < s->channels; c += MU_LANES) {
        const int64_t n = least(s->channels - c, MU_LANES);
        const mu_vf part = v_load_n(p->dy + out + c, n) / area;
        for (int64_t row = w->top; row < w->bottom; row++) {
            for (int64_t column = w->left; column < w->right; column++) {
                float *to = p->dx + in + (row * s->width + column) * s->channels + c;
                v_store_n(to, apart ? part : v_load_n(to, n) + part, n);
            }
        }
    }
}

MU_INLINE void average_window_grad(const pool *p, const window *w, int64_t in, int64_t out)
{
    average_window_spread(p, w, in, out, false);
}

MU_INLINE void average_window_grad_apart(const pool *p, const window *w, int64_t in, int64_t out)
{
    average_window_spread(p, w, in, out, true);
}

static int64_t in_size(const mu_pool_shape *s)
{
    return s->height * s->width * s->channels;
}

static int64_t out_size(const mu_pool_shape *s)
{
    return s->out_height * s->out_width * s->channels;
}

// Inlined with a constant body, so that the call in the loop is none.
MU_INLINE void for_windows(const pool *p, int64_t begin, int64_t end, window_body *body)
{
    const mu_pool_shape *s = p->s;
    int64_t out = begin * out_size(s);
    for (int64_t image = begin; image < end; image++) {
        for (int64_t row = 0; row < s->out_height; row++) {
            for (int64_t column = 0; column < s->out_width; column++, out += s->channels) {
                const window w = window_at(s, row, column);
                body(p, &w, image * in_size(s), out);
            }
        }
    }
}

// Whether no two windows share an element; sets to zero what some window or none leaves as it is.
static bool prepare_gradient(const mu_pool_shape *s, float *dx, int64_t begin, int64_t end)
{
    const bool apart = s->stride_height >= s->window_height && s->stride_width >= s->window_width;
    const bool all = s->out_height * s->window_height == s->height && s->out_width * s->window_width == s->width;
    if (!apart || !all || s->pad_top != 0 || s->pad_left != 0)
        zero(dx + begin * in_size(s), (end - begin) * in_size(s));
    return apart;
}

void MU_KERNEL(max_pool_grad)(const mu_pool_shape *s, const float *dy, const uint8_t *mark, float *dx, int64_t begin,
                              int64_t end)
{
    const pool p = {.s = s, .dy = dy, .mark = mark, .dx = dx};
    if (prepare_gradient(s, dx, begin, end))
        for_windows(&p, begin, end, max_window_grad_apart);
    else
        for_windows(&p, begin, end, max_window_grad);
}

void MU_KERNEL(average_pool_grad)(const mu_pool_shape *s, const float *dy, float *dx, int64_t begin, int64_t end)
{
    const pool p = {.s = s, .dy = dy, .dx = dx};
    if (prepare_gradient(s, dx, begin, end))
        for_windows(&p, begin, end, average_window_grad_apart);
    else
        for_windows(&p, begin, end, average_window_grad);
}
