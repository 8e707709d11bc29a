// Gradients of max and average pools of any window, stride and padding. Each element of the image is written once, in
// order: it is the sum over the few windows that contain it. For average pools, each row of dy is first spread along
// the columns into a buffer that stays in the cache. Callers divide the images among threads.
#include "pool_windows.h"

enum {
    MOST_FEW = 9,  // at most this many windows over an element are kept in registers
    FETCHED = 4096 // prefetch distance in bytes
};

// The windows that contain an element of the image, along one axis.
MU_INLINE span windows_over(int64_t at, int64_t stride, int64_t pad, int64_t size, int64_t out)
{
    const int64_t before = at + pad - size; // the start of a window that ends before the element
    const int64_t begin = before < 0 ? 0 : quotient(before, stride) + 1;
    return (span){.begin = begin, .end = least(quotient(at + pad, stride) + 1, out)};
}

MU_INLINE span rows_over(const mu_pool_shape *s, int64_t row)
{
    return windows_over(row, s->stride_height, s->pad_top, s->window_height, s->out_height);
}

MU_INLINE span columns_over(const mu_pool_shape *s, int64_t column)
{
    return windows_over(column, s->stride_width, s->pad_left, s->window_width, s->out_width);
}

// The columns of the image that are covered by a full set of windows, all of which lie inside the image.
static void find_covered(const mu_pool_shape *s, strip *t)
{
    strip inner = {0};
    find_inner(s, &inner);
    const int64_t begin = greatest(inner.inner_begin + s->window_width - 1 - s->pad_left, 0);
    const int64_t end = least(inner.inner_end - s->pad_left, s->width);
    t->inner_begin = begin;
    t->inner_end = s->stride_width == 1 ? greatest(begin, end) : begin;
}

// ---- Maxima -------------------------------------------------------------------------------------

// The windows that contain an element: where each begins in dy and the marks, and the mark that selects the element.
typedef struct sources {
    int64_t at[MOST_ROWS];
    int mark[MOST_ROWS];
    int64_t n;
} sources;

MU_INLINE void find_sources(const mu_pool_shape *s, const span *rows, int64_t row, int64_t column, sources *to)
{
    const span columns = columns_over(s, column);
    to->n = 0;
    for (int64_t r = rows->begin; r < rows->end; r++) {
        const int64_t down = row + s->pad_top - r * s->stride_height;
        for (int64_t c = columns.begin; c < columns.end; c++) {
            if (to->n == MOST_ROWS) // never; but a loop with one exit would be vectorised, for only two elements
                return;
            to->at[to->n] = (r * s->out_width + c) * s->channels;
            to->mark[to->n++] = (int)(down * s->window_width + column + s->pad_left - c * s->stride_width);
        }
    }
}

MU_INLINE void gather_marked(const float *dy, const uint8_t *marks, const int64_t *at, const int *mark, int64_t terms,
                             int64_t n, float *dx)
{
    mu_vf sum = {0};
    for (int64_t k = 0; k < terms; k++)
        sum += v_keep(marks_equal(marks_load_n(marks + at[k], n), mark[k]), v_load_n(dy + at[k], n));
    v_store_n(dx, sum, n);
}

// Pixels of the image that lie in windows of the same layout, `apart` columns apart; n: elements of each.
typedef struct pixels {
    int64_t count, apart, n;
} pixels;

MU_INLINE void gather_pixels(const mu_pool_shape *s, const float *dy, const uint8_t *marks, const int64_t *at,
                             const int *mark, int64_t terms, const pixels *p, float *dx)
{
    const int64_t prefetch = terms > 0 ? at[terms - 1] : 0, count = p->count, n = p->n, c = s->channels;
    const int64_t apart = p->apart * c;
    for (int64_t pixel = 0; pixel < count; pixel++, dy += c, marks += c, dx += apart) {
        int64_t i = 0;
        for (; i + MU_LANES <= n; i += MU_LANES) {
            v_prefetch_l2(dy + prefetch + i, FETCHED);
            gather_marked(dy + i, marks + i, at, mark, terms, MU_LANES, dx + i);
        }
        if (i < n)
            gather_marked(dy + i, marks + i, at, mark, terms, n - i, dx + i);
    }
}

// terms: a constant. The sources are copied into registers: the compiler must assume that stores to dx change them.
MU_INLINE void gather_few(const mu_pool_shape *s, const float *dy, const uint8_t *marks, const sources *from,
                          int64_t terms, const pixels *p, float *dx)
{
    int64_t at[MOST_FEW];
    int mark[MOST_FEW];
    for (int64_t k = 0; k < terms; k++) {
        at[k] = from->at[k];
        mark[k] = from->mark[k];
    }
    gather_pixels(s, dy, marks, at, mark, terms, p, dx);
}

static void gather_any(const mu_pool_shape *s, const float *dy, const uint8_t *marks, const sources *from,
                       const pixels *p, float *dx)
{
    switch (from->n) {
    case 1: gather_few(s, dy, marks, from, 1, p, dx); break;
    case 2: gather_few(s, dy, marks, from, 2, p, dx); break;
    case 4: gather_few(s, dy, marks, from, 4, p, dx); break;
    case 9: gather_few(s, dy, marks, from, 9, p, dx); break;
    default: gather_pixels(s, dy, marks, from->at, from->mark, from->n, p, dx);
    }
}

// Columns whose windows are all windows of the result; columns one stride apart have the same window layout.
MU_INLINE span inner_columns(const mu_pool_shape *s)
{
    const int64_t begin = greatest(s->window_width - s->stride_width - s->pad_left, 0);
    const int64_t end = least(s->out_width * s->stride_width - s->pad_left, s->width);
    return (span){.begin = least(begin, s->width), .end = greatest(least(begin, s->width), end)};
}

static void gather_row(const mu_pool_shape *s, const float *dy, const uint8_t *mark, int64_t row, float *dx)
{
    const span rows = rows_over(s, row), inner = inner_columns(s);
    const int64_t c = s->channels, stride = s->stride_width;
    sources from;
    for (int64_t column = 0; column < s->width; column++) {
        if (column == inner.begin)
            column = inner.end;
        if (column == s->width)
            break;
        find_sources(s, &rows, row, column, &from);
        gather_any(s, dy, mark, &from, &(pixels){.count = 1, .n = c}, dx + column * c);
    }
    for (int64_t column = inner.begin; column < least(inner.begin + stride, inner.end); column++) {
        const int64_t count = quotient(inner.end - column + stride - 1, stride);
        const pixels p = {.count = stride > 1 ? count : 1, .apart = stride, .n = stride > 1 ? c : count * c};
        find_sources(s, &rows, row, column, &from);
        gather_any(s, dy, mark, &from, &p, dx + column * c);
    }
}

void MU_KERNEL(max_pool_grad)(const mu_pool_shape *s, const float *dy, const uint8_t *mark, float *dx, int64_t begin,
                              int64_t end)
{
    for (int64_t line = begin * s->height; line < end * s->height; line++) {
        const int64_t out = line / s->height * result_size(s);
        gather_row(s, dy + out, mark + out, line % s->height, dx + line * s->width * s->channels);
    }
}

// ---- Means --------------------------------------------------------------------------------------

MU_INLINE void add(const float *dy, int64_t step, const float *by, int64_t terms, int64_t n, float *to)
{
    mu_vf sum = v_load_n(dy, n) * by[0];
    for (int64_t k = 1; k < terms; k++)
        sum += v_load_n(dy + k * step, n) * by[k];
    v_prefetch_l2(dy, FETCHED);
    v_store_n(to, sum, n);
}

MU_INLINE void add_terms(const float *dy, int64_t step, const float *by, int64_t terms, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + MU_LANES <= n; i += MU_LANES)
        add(dy + i, step, by, terms, MU_LANES, to + i);
    if (i < n)
        add(dy + i, step, by, terms, n - i, to + i);
}

// Spreads a row of dy over the strip's columns of the image; dy points to the strip's first channel.
static void spread_along(const mu_pool_shape *s, const strip *t, const float *dy, int64_t height, float *to)
{
    float by[MOST_ROWS];
    for (int64_t column = t->begin, run; column < t->end; column += run, to += run * t->channels) {
        run = run_of(t, column);
        const span over = columns_over(s, column);
        for (int64_t c = over.begin; c < over.end; c++) {
            if (c - over.begin == MOST_ROWS) // never, as above
                return;
            const span w = columns_at(s, c);
            by[c - over.begin] = 1 / (float)(height * length_of(&w));
        }
        const float *from = dy + over.begin * s->channels;
        switch (length_of(&over)) {
        case 0: memset(to, 0, (size_t)t->channels * sizeof *to); break;
        case 1: add_terms(from, s->channels, by, 1, run * t->channels, to); break;
        case 2: add_terms(from, s->channels, by, 2, run * t->channels, to); break;
        case 3: add_terms(from, s->channels, by, 3, run * t->channels, to); break;
        default: add_terms(from, s->channels, by, length_of(&over), run * t->channels, to);
        }
    }
}

MU_INLINE void sum_rows(const float *values, const int64_t *at, int64_t rows, int64_t n, float *dx)
{
    int64_t i = 0;
    for (; i < n; i += MU_LANES) {
        const int64_t left = least(n - i, MU_LANES);
        mu_vf sum = v_load_n(values + at[0] + i, left);
        for (int64_t k = 1; k < rows; k++)
            sum += v_load_n(values + at[k] + i, left);
        v_store_n(dx + i, sum, left);
    }
}

static void sum_any(const float *values, const int64_t *at, int64_t rows, int64_t n, float *dx)
{
    switch (rows) {
    case 0: memset(dx, 0, (size_t)n * sizeof *dx); break;
    case 1: memcpy(dx, values + at[0], (size_t)n * sizeof *dx); break;
    case 2: sum_rows(values, at, 2, n, dx); break;
    case 3: sum_rows(values, at, 3, n, dx); break;
    default: sum_rows(values, at, rows, n, dx);
    }
}

static void spread_strip(const mu_pool_shape *s, const strip *t, const float *dy, float *dx, float *values)
{
    const int64_t pitch = (t->end - t->begin) * t->channels, piece = t->whole ? pitch : t->channels;
    int64_t at[MOST_ROWS], done = 0;
    for (int64_t row = 0; row < s->height; row++) {
        const span over = rows_over(s, row);
        for (int64_t r = greatest(over.begin, done); r < over.end; r++) {
            const span w = rows_at(s, r);
            spread_along(s, t, dy + r * s->out_width * s->channels + t->channel, length_of(&w),
                         values + r % s->window_height * pitch);
        }
        done = greatest(done, over.end);
        for (int64_t r = over.begin; r < over.end; r++)
            at[r - over.begin] = r % s->window_height * pitch;
        for (int64_t i = 0; i < pitch; i += piece)
            sum_any(values + i, at, length_of(&over), piece,
                    dx + (row * s->width + t->begin + i / t->channels) * s->channels + t->channel);
    }
}

void MU_KERNEL(average_pool_grad)(const mu_pool_shape *s, const float *dy, float *dx, int64_t begin, int64_t end)
{
    const cut c = cut_of(s->width, s->channels, s->window_height);
    strip t = {.whole = c.channels == s->channels};
    float values[HELD];
    find_covered(s, &t);
    for (int64_t image = begin; image < end; image++)
        for (t.begin = 0; t.begin < s->width; t.begin = t.end) {
            t.end = least(t.begin + c.columns, s->width);
            for (t.channel = 0; t.channel < s->channels; t.channel += c.channels) {
                t.channels = least(c.channels, s->channels - t.channel);
                spread_strip(s, &t, dy + image * result_size(s), dx + image * image_size(s), values);
            }
        }
}
