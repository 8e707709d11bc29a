// Pooling. First the 2x2 pool of stride 2 with ReLU behind it, where marks carry what the gradient
// needs, so that the activation before it is never read again; then max and average pools of any
// window, stride and padding. Main idea everywhere: channels are the vector; a window's elements are
// visited in row order, which decides ties.
#include "parts.h"
#include "simd.h"

enum { FETCHED = 2048 };  // bytes: how far ahead of a window its rows are asked for

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

static bool is_inside(const mu_pool_shape *s, const window *w)
{
    return w->bottom - w->top == s->window_height && w->right - w->left == s->window_width;
}

MU_INLINE mu_vf load_part(const float *x, int64_t n, bool whole)
{
    return whole ? v_load(x) : v_load_n(x, n);
}

// The greatest of a window that lies inside the image, and its mark, if none of its elements is NaN: what is odd is
// returned. Two elements are looked at with one comparison.
MU_INLINE mu_vm greatest_numbers(const float *x, int64_t below, int64_t channels, int64_t height, int64_t width,
                                 int64_t n, bool whole, mu_vf *best, mu_marks *marks)
{
    mu_vf before = load_part(x, n, whole);
    v_fetch_ahead(x, FETCHED);
    mu_vm odd = v_unordered(before, before);
    *best = before;
    *marks = marks_splat(0);
    MU_UNROLL
    for (int64_t i = 1; i < height * width; i++) {
        const float *from = x + i / width * below + i % width * channels;
        const mu_vf here = load_part(from, n, whole);
        v_fetch_ahead(from, FETCHED);
        if (i % 2 == 0 || i + 1 == height * width)
            odd = (mu_vm)(odd | v_unordered(before, here));
        *marks = marks_set(*marks, v_greater(here, *best), (int)i);
        *best = v_max(here, *best);
        before = here;
    }
    return odd;
}

// The same whatever the window and its elements are: the first of equals wins, and the first NaN over all.
MU_INLINE void greatest_of_any(const mu_pool_shape *s, const float *x, const window *w, int64_t n, mu_vf *best,
                               mu_marks *marks)
{
    bool first = true;
    *best = v_splat(-INFINITY);
    *marks = marks_splat(0);
    for (int64_t row = w->top; row < w->bottom; row++) {
        for (int64_t column = w->left; column < w->right; column++) {
            const mu_vf candidate = v_load_n(x + (row * s->width + column) * s->channels, n);
            const mu_vm nan = v_unordered(candidate, candidate) & m_not(v_unordered(*best, *best));
            const mu_vm take = v_greater(candidate, *best) | nan;
            *marks = first ? marks_splat(mark_of(s, w, row, column))
                           : marks_set(*marks, take, mark_of(s, w, row, column));
            *best = first ? candidate : v_select(take, candidate, *best);
            first = false;
        }
    }
}

// height and width: the window's, if all windows are alike and known; 0 if not.
MU_INLINE void max_window(const pool *p, const window *w, int64_t in, int64_t out, int64_t height, int64_t width)
{
    const mu_pool_shape *s = p->s;
    const bool inside = height > 0 && is_inside(s, w);
    const float *x = p->x + in, *corner = x + (w->top * s->width + w->left) * s->channels;
    for (int64_t c = 0; c < s->channels; c += MU_LANES) {
        const int64_t n = least(s->channels - c, MU_LANES), below = s->width * s->channels;
        mu_vf best;
        mu_marks marks;
        mu_vm odd = {0};
        if (inside && n == MU_LANES)
            odd = greatest_numbers(corner + c, below, s->channels, height, width, n, true, &best, &marks);
        else if (inside)
            odd = greatest_numbers(corner + c, below, s->channels, height, width, n, false, &best, &marks);
        if (!inside || m_any(odd))
            greatest_of_any(s, x + c, w, n, &best, &marks);
        v_store_n(p->y + out + c, best, n);
        if (p->new_mark != NULL)
            marks_store_n(p->new_mark + out + c, marks, n);
    }
}

#define MAX_BODY(height, width)                                                                                 \
    MU_INLINE void max_window_##height##x##width(const pool *p, const window *w, int64_t in, int64_t out)      \
    {                                                                                                          \
        max_window(p, w, in, out, height, width);                                                              \
    }
MAX_BODY(1, 2)
MAX_BODY(2, 1)
MAX_BODY(1, 3)
MAX_BODY(3, 1)
MAX_BODY(2, 2)
MAX_BODY(3, 3)

MU_INLINE void max_window_any(const pool *p, const window *w, int64_t in, int64_t out)
{
    max_window(p, w, in, out, 0, 0);
}

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

MU_INLINE mu_vf sum_of_window(const mu_pool_shape *s, const float *x, const window *w, int64_t n, bool whole)
{
    mu_vf sum = {0};
    for (int64_t row = w->top; row < w->bottom; row++)
        for (int64_t column = w->left; column < w->right; column++) {
            const float *from = x + (row * s->width + column) * s->channels;
            sum += load_part(from, n, whole);
            v_fetch_ahead(from, FETCHED);
        }
    return sum;
}

// The same of a window that lies inside the image, its sides being constants; corner: its first element.
MU_INLINE mu_vf sum_inside(const float *corner, int64_t below, int64_t channels, int64_t height, int64_t width)
{
    mu_vf sum = {0};
    MU_UNROLL
    for (int64_t i = 0; i < height * width; i++)
        sum += v_load(corner + i / width * below + i % width * channels);
    return sum;
}

// height and width as for max_window.
MU_INLINE void average_window(const pool *p, const window *w, int64_t in, int64_t out, int64_t height, int64_t width)
{
    const mu_pool_shape *s = p->s;
    const int64_t area = window_area(w), below = s->width * s->channels;
    const bool inside = height > 0 && is_inside(s, w), exact = (area & (area - 1)) == 0;  // its inverse is a number too
    const mu_vf divisor = v_splat(area == 0 ? 1.0f : (float)area), inverse = v_splat(1.0f) / divisor;
    const float *x = p->x + in, *corner = x + (w->top * s->width + w->left) * s->channels;
    for (int64_t c = 0; c < s->channels; c += MU_LANES) {
        const int64_t n = least(s->channels - c, MU_LANES);
        const mu_vf sum = n < MU_LANES ? sum_of_window(s, x + c, w, n, false)
                          : inside     ? sum_inside(corner + c, below, s->channels, height, width)
                                       : sum_of_window(s, x + c, w, n, true);
        v_store_n(p->y + out + c, exact ? sum * inverse : sum / divisor, n);
    }
}

#define AVERAGE_BODY(height, width)                                                                            \
    MU_INLINE void average_window_##height##x##width(const pool *p, const window *w, int64_t in, int64_t out)  \
    {                                                                                                          \
        average_window(p, w, in, out, height, width);                                                          \
    }
AVERAGE_BODY(1, 2)
AVERAGE_BODY(2, 1)
AVERAGE_BODY(1, 3)
AVERAGE_BODY(3, 1)
AVERAGE_BODY(2, 2)
AVERAGE_BODY(3, 3)

MU_INLINE void average_window_any(const pool *p, const window *w, int64_t in, int64_t out)
{
    average_window(p, w, in, out, 0, 0);
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

// Each output pixel has one body for all windows of the sides that networks have.
#define FOR_SIDES(kind)                                            \
    switch (s->window_height * 16 + s->window_width) {             \
    case 0x12: for_windows(&p, begin, end, kind##_1x2); break;     \
    case 0x21: for_windows(&p, begin, end, kind##_2x1); break;     \
    case 0x13: for_windows(&p, begin, end, kind##_1x3); break;     \
    case 0x31: for_windows(&p, begin, end, kind##_3x1); break;     \
    case 0x22: for_windows(&p, begin, end, kind##_2x2); break;     \
    case 0x33: for_windows(&p, begin, end, kind##_3x3); break;     \
    default: for_windows(&p, begin, end, kind##_any);              \
    }

void MU_KERNEL(max_pool)(const mu_pool_shape *s, const float *x, float *y, uint8_t *mark, int64_t begin, int64_t end)
{
    const pool p = {.s = s, .x = x, .y = y, .new_mark = mark};
    FOR_SIDES(max_window)
}

// The sum down a window's rows at one column of the image; nothing outside.
MU_INLINE mu_vf sum_down(const mu_pool_shape *s, const float *x, const window *w, int64_t column, int64_t n, bool whole)
{
    mu_vf sum = {0};
    for (int64_t row = w->top; row < w->bottom && column >= 0 && column < s->width; row++)
        sum += load_part(x + (row * s->width + column) * s->channels, n, whole);
    return sum;
}

// A row of averages over windows of three columns, one column apart: each column is added up once for all three.
MU_INLINE void slide_three(const mu_pool_shape *s, const float *x, float *y, int64_t out_row, int64_t n, bool whole)
{
    const window first = window_at(s, out_row, 0);
    mu_vf left = sum_down(s, x, &first, first.first_column, n, whole);
    mu_vf middle = sum_down(s, x, &first, first.first_column + 1, n, whole);
    for (int64_t column = 0; column < s->out_width; column++) {
        const window w = window_at(s, out_row, column);
        const int64_t area = window_area(&w);
        const mu_vf right = sum_down(s, x, &w, w.first_column + 2, n, whole);
        v_store_n(y + column * s->channels, (left + middle + right) / v_splat(area == 0 ? 1.0f : (float)area), n);
        left = middle;
        middle = right;
    }
}

static void slide_images(const mu_pool_shape *s, const float *x, float *y, int64_t begin, int64_t end)
{
    for (int64_t image = begin; image < end; image++) {
        for (int64_t row = 0; row < s->out_height; row++) {
            for (int64_t c = 0; c < s->channels; c += MU_LANES) {
                const float *from = x + image * in_size(s) + c;
                float *to = y + image * out_size(s) + row * s->out_width * s->channels + c;
                if (s->channels - c >= MU_LANES)
                    slide_three(s, from, to, row, MU_LANES, true);
                else
                    slide_three(s, from, to, row, s->channels - c, false);
            }
        }
    }
}

void MU_KERNEL(average_pool)(const mu_pool_shape *s, const float *x, float *y, int64_t begin, int64_t end)
{
    const pool p = {.s = s, .x = x, .y = y};
    if (s->window_width == 3 && s->stride_width == 1) {
        slide_images(s, x, y, begin, end);
        return;
    }
    FOR_SIDES(average_window)
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
