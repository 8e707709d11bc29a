// Max and average pools of any window, stride and padding. An image is read once and in order: each of its rows is
// pooled along the columns into a buffer that stays in the cache, and windows are combined from such rows. A window's
// elements are therefore compared in row order, which decides ties; the first NaN wins. 2x2 windows that do not
// overlap skip the buffer. Callers divide the images among threads.
#include "pool_windows.h"

enum { FETCHED = 8192 }; // prefetch distance in bytes

// One call, and the buffer of pooled rows; windows one column wide use the image's own rows instead.
typedef struct job {
    const mu_pool_shape *s;
    const float *x;
    float *y;
    uint8_t *mark;
    float values[HELD];
    uint8_t marks[HELD];
} job;

// Pools n elements along a row; x: the first element of the first window. marks: may be NULL.
typedef void across_body(const job *j, const float *x, const span *columns, int64_t n, float *to, uint8_t *marks);
// Combines n elements of the result from the rows at offsets `at` in values and marks.
typedef void down_body(const job *j, const float *values, const uint8_t *marks, const int64_t *at, const span *rows,
                       const span *columns, int64_t n, int64_t to);

// ---- Strips -------------------------------------------------------------------------------------

// Rows of the image need no pooling along the columns: each result column is the same image column.
static bool is_upright(const mu_pool_shape *s)
{
    return s->window_width == 1 && s->stride_width == 1 && s->pad_left == 0 && s->out_width <= s->width;
}

MU_INLINE void pool_along(const job *j, const strip *t, const float *row, float *to, uint8_t *marks,
                          across_body *across)
{
    const mu_pool_shape *s = j->s;
    const bool flat = s->stride_width == 1;
    for (int64_t column = t->begin, run; column < t->end; column += run) {
        const span w = columns_at(s, column);
        run = flat ? run_of(t, column) : 1;
        const int64_t at = (column - t->begin) * t->channels;
        across(j, row + w.begin * s->channels, &w, run * t->channels, to + at, marks ? marks + at : NULL);
    }
}

MU_INLINE void put_row(const job *j, const strip *t, const float *values, const uint8_t *marks, const int64_t *at,
                       const span *rows, int64_t pixel, int64_t to, down_body *down)
{
    const mu_pool_shape *s = j->s;
    for (int64_t column = t->begin, run; column < t->end; column += run) {
        const span w = columns_at(s, column);
        run = run_of(t, column);
        const int64_t held = (column - t->begin) * pixel;
        down(j, values + held, marks ? marks + held : NULL, at, rows, &w, run * t->channels,
             to + column * s->channels + t->channel);
    }
}

MU_INLINE void pool_strip(job *j, const strip *t, int64_t image, across_body *across, down_body *down)
{
    const mu_pool_shape *s = j->s;
    const bool upright = is_upright(s);
    const int64_t pitch = (t->end - t->begin) * t->channels, wide = s->width * s->channels;
    const float *x = j->x + image * image_size(s) + t->channel;
    int64_t at[MOST_ROWS], done = 0;
    for (int64_t row = 0; row < s->out_height; row++) {
        const span rows = rows_at(s, row);
        for (int64_t r = greatest(rows.begin, done); r < rows.end && !upright; r++)
            pool_along(j, t, x + r * wide, j->values + r % s->window_height * pitch,
                       j->marks + r % s->window_height * pitch, across);
        done = greatest(done, rows.end);
        for (int64_t r = rows.begin; r < rows.end; r++)
            at[r - rows.begin] = upright ? r * wide : r % s->window_height * pitch;
        put_row(j, t, upright ? x + t->begin * s->channels : j->values, upright ? NULL : j->marks, at, &rows,
                upright ? s->channels : t->channels, image * result_size(s) + row * s->out_width * s->channels, down);
    }
}

// Windows one row high need no buffered rows, as long as no window lies outside the image.
MU_INLINE void pool_lines(job *j, int64_t begin, int64_t end, across_body *line)
{
    const mu_pool_shape *s = j->s;
    const int64_t wide = s->out_width * s->channels;
    strip t = {.end = s->out_width, .channels = s->channels, .whole = true};
    find_inner(s, &t);
    for (int64_t y = begin * s->out_height; y < end * s->out_height; y++) {
        const int64_t row = y / s->out_height * s->height + y % s->out_height * s->stride_height;
        pool_along(j, &t, j->x + row * s->width * s->channels, j->y + y * wide, j->mark ? j->mark + y * wide : NULL,
                   line);
    }
}

// line: the `across` to use if no rows are combined afterwards.
MU_INLINE void for_strips(job *j, int64_t begin, int64_t end, across_body *line, across_body *across, down_body *down)
{
    const mu_pool_shape *s = j->s;
    const cut c = cut_of(s->out_width, s->channels, s->window_height);
    strip t = {.whole = c.channels == s->channels};
    if (s->window_height == 1 && s->pad_top == 0 && (s->out_height - 1) * s->stride_height < s->height) {
        pool_lines(j, begin, end, line);
        return;
    }
    find_inner(s, &t);
    for (int64_t image = begin; image < end; image++)
        for (t.begin = 0; t.begin < s->out_width; t.begin = t.end) {
            t.end = least(t.begin + c.columns, s->out_width);
            for (t.channel = 0; t.channel < s->channels; t.channel += c.channels) {
                t.channels = least(c.channels, s->channels - t.channel);
                pool_strip(j, &t, image, across, down);
            }
        }
}

// ---- Maxima -------------------------------------------------------------------------------------

MU_INLINE void max_along(const float *x, int64_t step, int64_t terms, int mark, int64_t n, float *to, uint8_t *marks)
{
    mu_vf best = v_load_n(x, n);
    mu_marks positions = marks_splat(mark);
    v_prefetch_l2(x, FETCHED);
    for (int64_t k = 1; k < terms; k++) {
        const mu_vf candidate = v_load_n(x + k * step, n);
        v_prefetch_l2(x + k * step, FETCHED);
        const mu_vm take = v_takes(candidate, best);
        positions = marks_set(positions, take, mark + (int)k);
        best = v_select(take, candidate, best);
    }
    v_store_n(to, best, n);
    if (marks != NULL)
        marks_store_n(marks, positions, n);
}

// terms: a constant where possible.
MU_INLINE void max_across_terms(const float *x, int64_t step, int64_t terms, int mark, int64_t n, float *to,
                                uint8_t *marks)
{
    int64_t i = 0;
    for (; i + MU_LANES <= n; i += MU_LANES)
        max_along(x + i, step, terms, mark, MU_LANES, to + i, marks ? marks + i : NULL);
    if (i < n)
        max_along(x + i, step, terms, mark, n - i, to + i, marks ? marks + i : NULL);
}

static void max_of_none(float *y, uint8_t *mark, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = -INFINITY;
    if (mark != NULL)
        memset(mark, 0, (size_t)n);
}

MU_INLINE void max_across(const job *j, const float *x, const span *w, int64_t n, float *to, uint8_t *marks)
{
    const int64_t step = j->s->channels, terms = length_of(w);
    const int mark = (int)(w->begin - w->first);
    switch (terms) {
    case 0: max_of_none(to, marks, n); break;
    case 2: max_across_terms(x, step, 2, mark, n, to, marks); break;
    case 3: max_across_terms(x, step, 3, mark, n, to, marks); break;
    default: max_across_terms(x, step, terms, mark, n, to, marks);
    }
}

// marks: NULL if all are 0, as in windows one column wide.
MU_INLINE void max_of_rows(const float *values, const uint8_t *marks, const int64_t *at, int64_t rows, int mark,
                           int wide, int64_t n, float *y, uint8_t *new_mark)
{
    mu_vf best = v_load_n(values + at[0], n);
    mu_marks positions = marks_splat(mark);
    if (marks != NULL)
        positions = marks_add(positions, marks_load_n(marks + at[0], n));
    for (int64_t k = 1; k < rows; k++) {
        const mu_vf candidate = v_load_n(values + at[k], n);
        const mu_vm take = v_takes(candidate, best);
        mu_marks position = marks_splat(mark + (int)k * wide);
        if (marks != NULL)
            position = marks_add(position, marks_load_n(marks + at[k], n));
        positions = marks_select(take, position, positions);
        best = v_select(take, candidate, best);
    }
    v_store_n(y, best, n);
    if (new_mark != NULL)
        marks_store_n(new_mark, positions, n);
}

MU_INLINE void max_down_rows(const float *values, const uint8_t *marks, const int64_t *at, int64_t rows, int mark,
                             int wide, int64_t n, float *y, uint8_t *new_mark)
{
    int64_t i = 0;
    for (; i + MU_LANES <= n; i += MU_LANES)
        max_of_rows(values + i, marks ? marks + i : NULL, at, rows, mark, wide, MU_LANES, y + i,
                    new_mark ? new_mark + i : NULL);
    if (i < n)
        max_of_rows(values + i, marks ? marks + i : NULL, at, rows, mark, wide, n - i, y + i,
                    new_mark ? new_mark + i : NULL);
}

MU_INLINE void max_down(const job *j, const float *values, const uint8_t *marks, const int64_t *at, const span *rows,
                        const span *columns, int64_t n, int64_t to)
{
    const int64_t length = length_of(columns) > 0 ? length_of(rows) : 0;
    const int wide = (int)j->s->window_width, mark = (int)(rows->begin - rows->first) * wide;
    float *y = j->y + to;
    uint8_t *new_mark = j->mark ? j->mark + to : NULL;
    switch (length) {
    case 0: max_of_none(y, new_mark, n); break;
    case 2: max_down_rows(values, marks, at, 2, mark, wide, n, y, new_mark); break;
    case 3: max_down_rows(values, marks, at, 3, mark, wide, n, y, new_mark); break;
    default: max_down_rows(values, marks, at, length, mark, wide, n, y, new_mark);
    }
}

// ---- Means --------------------------------------------------------------------------------------

// The divisor of a sum. exact: its inverse is exact (a power of two), so the sum is multiplied by the inverse.
typedef struct divisor {
    mu_vf by;
    bool none, exact;
} divisor;

MU_INLINE divisor divisor_of(int64_t area)
{
    const bool exact = (area & (area - 1)) == 0;
    return (divisor){.by = v_splat(exact ? 1.0f / (float)area : (float)area), .none = area == 1, .exact = exact};
}

MU_INLINE mu_vf divided(mu_vf sum, const divisor *d) { return d->none ? sum : d->exact ? sum * d->by : sum / d->by; }

MU_INLINE void sum_along(const float *x, int64_t step, int64_t terms, const divisor *d, int64_t n, float *to)
{
    mu_vf sum = v_load_n(x, n);
    v_prefetch_l2(x, FETCHED);
    for (int64_t k = 1; k < terms; k++) {
        sum += v_load_n(x + k * step, n);
        v_prefetch_l2(x + k * step, FETCHED);
    }
    v_store_n(to, divided(sum, d), n);
}

MU_INLINE void sum_across_terms(const float *x, int64_t step, int64_t terms, const divisor *d, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + MU_LANES <= n; i += MU_LANES)
        sum_along(x + i, step, terms, d, MU_LANES, to + i);
    if (i < n)
        sum_along(x + i, step, terms, d, n - i, to + i);
}

MU_INLINE void sum_across_by(const job *j, const float *x, const span *w, int64_t n, float *to, int64_t area)
{
    const int64_t step = j->s->channels, terms = length_of(w);
    const divisor d = divisor_of(area);
    switch (terms) {
    case 0: memset(to, 0, (size_t)n * sizeof *to); break;
    case 2: sum_across_terms(x, step, 2, &d, n, to); break;
    case 3: sum_across_terms(x, step, 3, &d, n, to); break;
    default: sum_across_terms(x, step, terms, &d, n, to);
    }
}

MU_INLINE void sum_across(const job *j, const float *x, const span *w, int64_t n, float *to, uint8_t *marks)
{
    (void)marks;
    sum_across_by(j, x, w, n, to, 1);
}

MU_INLINE void mean_across(const job *j, const float *x, const span *w, int64_t n, float *to, uint8_t *marks)
{
    (void)marks;
    sum_across_by(j, x, w, n, to, length_of(w));
}

MU_INLINE void mean_of_rows(const float *values, const int64_t *at, int64_t rows, const divisor *d, int64_t n, float *y)
{
    mu_vf sum = v_load_n(values + at[0], n);
    for (int64_t k = 1; k < rows; k++)
        sum += v_load_n(values + at[k], n);
    v_store_n(y, divided(sum, d), n);
}

MU_INLINE void mean_down_rows(const float *values, const int64_t *at, int64_t rows, int64_t area, int64_t n, float *y)
{
    const divisor d = divisor_of(area);
    int64_t i = 0;
    for (; i + MU_LANES <= n; i += MU_LANES)
        mean_of_rows(values + i, at, rows, &d, MU_LANES, y + i);
    if (i < n)
        mean_of_rows(values + i, at, rows, &d, n - i, y + i);
}

MU_INLINE void mean_down(const job *j, const float *values, const uint8_t *marks, const int64_t *at, const span *rows,
                         const span *columns, int64_t n, int64_t to)
{
    const int64_t length = length_of(rows), area = length * length_of(columns);
    (void)marks;
    if (area == 0)
        memset(j->y + to, 0, (size_t)n * sizeof(float));
    else if (length == 2)
        mean_down_rows(values, at, 2, area, n, j->y + to);
    else if (length == 3)
        mean_down_rows(values, at, 3, area, n, j->y + to);
    else
        mean_down_rows(values, at, length, area, n, j->y + to);
}

// ---- Squares ------------------------------------------------------------------------------------

// 2x2 windows that do not overlap and lie inside the image: no rows need to be buffered.
static bool has_squares_apart(const mu_pool_shape *s)
{
    return s->window_height == 2 && s->window_width == 2 && s->stride_height >= 2 && s->stride_width >= 2 &&
           s->pad_top == 0 && s->pad_left == 0 && (s->out_height - 1) * s->stride_height + 2 <= s->height &&
           (s->out_width - 1) * s->stride_width + 2 <= s->width;
}

// Pools one vector of channels of a 2x2 window; the next row of windows begins `prefetch` bytes later.
typedef void square_body(const float *const four[4], int64_t prefetch, int64_t n, float *y, uint8_t *mark);

MU_INLINE void max_of_square(const float *const four[4], int64_t prefetch, int64_t n, float *y, uint8_t *mark)
{
    mu_vf best = v_load_n(four[0], n);
    mu_marks positions = marks_splat(0);
    v_prefetch_l2(four[0], prefetch);
    MU_UNROLL
    for (int k = 1; k < 4; k++) {
        const mu_vf candidate = v_load_n(four[k], n);
        const mu_vm take = v_takes(candidate, best);
        v_prefetch_l2(four[k], prefetch);
        positions = marks_set(positions, take, k);
        best = v_select(take, candidate, best);
    }
    v_store_n(y, best, n);
    if (mark != NULL)
        marks_store_n(mark, positions, n);
}

MU_INLINE void mean_of_square(const float *const four[4], int64_t prefetch, int64_t n, float *y, uint8_t *mark)
{
    (void)mark;
    const mu_vf above = v_load_n(four[0], n) + v_load_n(four[1], n);
    const mu_vf below = v_load_n(four[2], n) + v_load_n(four[3], n);
    MU_UNROLL
    for (int k = 0; k < 4; k++)
        v_prefetch_l2(four[k], prefetch);
    v_store_n(y, (above + below) * 0.25f, n);
}

MU_INLINE void pool_squares(const job *j, int64_t begin, int64_t end, square_body *square)
{
    const mu_pool_shape *s = j->s;
    const int64_t c = s->channels, wide = s->width * c, prefetch = s->stride_height * wide * (int64_t)sizeof(float);
    for (int64_t row = begin * s->out_height; row < end * s->out_height; row++) {
        const float *x = j->x + (row / s->out_height * s->height + row % s->out_height * s->stride_height) * wide;
        int64_t to = row * s->out_width * c;
        for (int64_t column = 0; column < s->out_width; column++, x += s->stride_width * c, to += c)
            for (int64_t i = 0; i < c; i += MU_LANES) {
                const float *const four[4] = {x + i, x + i + c, x + i + wide, x + i + wide + c};
                square(four, prefetch, least(c - i, MU_LANES), j->y + to + i, j->mark ? j->mark + to + i : NULL);
            }
    }
}

// ---- Kernels ------------------------------------------------------------------------------------

// Does not clear the buffers: that would take as long as pooling a small image.
static void start_job(job *j, const mu_pool_shape *s, const float *x, float *y, uint8_t *mark)
{
    j->s = s;
    j->x = x;
    j->y = y;
    j->mark = mark;
}

void MU_KERNEL(max_pool)(const mu_pool_shape *s, const float *x, float *y, uint8_t *mark, int64_t begin, int64_t end)
{
    job j;
    start_job(&j, s, x, y, mark);
    if (has_squares_apart(s))
        pool_squares(&j, begin, end, max_of_square);
    else
        for_strips(&j, begin, end, max_across, max_across, max_down);
}

void MU_KERNEL(average_pool)(const mu_pool_shape *s, const float *x, float *y, int64_t begin, int64_t end)
{
    job j;
    start_job(&j, s, x, y, NULL);
    if (has_squares_apart(s))
        pool_squares(&j, begin, end, mean_of_square);
    else
        for_strips(&j, begin, end, mean_across, sum_across, mean_down);
}
