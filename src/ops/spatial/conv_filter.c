// Filter gradient of a convolution in float32: sums of products of image rows and rows of the result's gradient.
//
// For one tap, a run of a row of results is a matrix [columns, filters], and the pixels under the tap are a matrix
// [columns, channels]; the tap's gradient accumulates the product of the two. Runs are short enough for both to stay in
// the first-level cache for all taps, and tiles of the product stay in registers. Team members divide taps and
// channels, not images, so the sums do not depend on the size of the team. Only for one group and float32.
#include "kernels/kernels.h"
#include "ops/spatial/conv.h"
#include "ops/core/loops.h"

// CHANNELS: least channels per member. NEAR: elements in a run of both rows. SHORTEST: columns. LANES: per vector.
enum { CHANNELS = 8, NEAR = 8192, SHORTEST = 16, LANES = 16 };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif

typedef float vector __attribute__((vector_size(4 * LANES)));

// dw [m, n] += x' dy, for x [k, m] and dy [k, n] with rows x_row and dy_row elements apart.
typedef struct tall_product {
    int64_t m, n, k, x_row, dy_row;
    const float *x, *dy;
    float *dw;
} tall_product;

typedef struct filter_sums {
    mu_window window;
    int64_t filters, run; // columns at a time
    const float *x, *dy;
    float *dw;
} filter_sums;

// A run of outputs: columns [begin, end) of one row.
typedef struct result_run {
    int64_t n, z, y, begin, end;
} result_run;

// A tile of the product, from row i and column j on: `rows` by `vectors`, which are constants at every call.
static inline __attribute__((always_inline)) void add_tile(const tall_product *p, int64_t i, int64_t j, int rows,
                                                           int vectors)
{
    const float *x = p->x + i, *dy = p->dy + j;
    vector sums[4][4], row[4];
    UNROLL for (int r = 0; r < rows; r++) { UNROLL for (int v = 0; v < vectors; v++) sums[r][v] = (vector){0}; }
    for (int64_t at = 0; at < p->k; at++, x += p->x_row, dy += p->dy_row) {
        UNROLL for (int v = 0; v < vectors; v++) memcpy(&row[v], dy + v * LANES, sizeof row[v]);
        UNROLL for (int r = 0; r < rows; r++) { UNROLL for (int v = 0; v < vectors; v++) sums[r][v] += x[r] * row[v]; }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            float *to = p->dw + (i + r) * p->n + j + v * LANES;
            memcpy(&row[v], to, sizeof row[v]);
            row[v] += sums[r][v];
            memcpy(to, &row[v], sizeof row[v]);
        }
    }
}

#if defined(__x86_64__)
#define WITH_AVX512 __attribute__((target("avx512f")))
#else
#define WITH_AVX512
#endif

// m is a multiple of 4, n of LANES.
WITH_AVX512 static void add_product(const tall_product *p)
{
    int64_t j = 0;
    for (; j + 4 * LANES <= p->n; j += 4 * LANES)
        for (int64_t i = 0; i < p->m; i += 4)
            add_tile(p, i, j, 4, 4);
    for (; j + 2 * LANES <= p->n; j += 2 * LANES)
        for (int64_t i = 0; i < p->m; i += 4)
            add_tile(p, i, j, 4, 2);
    for (; j < p->n; j += LANES)
        for (int64_t i = 0; i < p->m; i += 4)
            add_tile(p, i, j, 4, 1);
}

// Only for AVX-512. oneDNN is as fast with fewer channels or shorter rows, and faster if the kernel is far larger than
// the second-level cache.
bool mu__conv_filter_fits(const mu_window *window, const mu_shape *kernel, int64_t groups)
{
    enum { LEAST = 32, SHORTEST_ROW = 8, MOST = 600000 };
    const int64_t channels = window->channels, filters = kernel->dims[window->spatial + 1];
    return groups == 1 && channels >= LEAST && channels % CHANNELS == 0 && filters >= LEAST && filters % LANES == 0 &&
           window->x.out >= SHORTEST_ROW && mu__elements(kernel) <= MOST && strcmp(mu__kernels()->isa, "avx512") == 0;
}

// Computes the input index under a tap; returns false if it lies in the padding.
static bool is_inside(const mu_window_axis *axis, int64_t out, int64_t tap, int64_t *in)
{
    *in = out * axis->stride + tap * axis->dilation - axis->before;
    return *in >= 0 && *in < axis->in;
}

// Adds the run's contribution to channels [from, to) of a tap.
static void add_tap(const filter_sums *s, const result_run *run, int64_t tap, int64_t from, int64_t to)
{
    const mu_window *w = &s->window;
    const int64_t column = tap % w->x.size, row = tap / w->x.size % w->y.size, slice = tap / w->x.size / w->y.size;
    int64_t z, y, begin, end;
    if (!is_inside(&w->z, run->z, slice, &z) || !is_inside(&w->y, run->y, row, &y))
        return;
    mu__window_span(&w->x, column, &begin, &end);
    begin = MU_MAX(begin, run->begin);
    end = MU_MIN(end, run->end);
    if (begin >= end)
        return;
    const int64_t first = begin * w->x.stride + column * w->x.dilation - w->x.before;
    const float *x = s->x + (((run->n * w->z.in + z) * w->y.in + y) * w->x.in + first) * w->channels + from;
    const float *dy = s->dy + (((run->n * w->z.out + run->z) * w->y.out + run->y) * w->x.out + begin) * s->filters;
    const tall_product product = {.m = to - from,
                                  .n = s->filters,
                                  .k = end - begin,
                                  .x_row = w->x.stride * w->channels,
                                  .dy_row = s->filters,
                                  .x = x,
                                  .dy = dy,
                                  .dw = s->dw + (tap * w->channels + from) * s->filters};
    add_product(&product);
}

// Sums parts [begin, end) of the result; each part has CHANNELS channels.
static void sum_parts(void *arg, int64_t begin, int64_t end)
{
    const filter_sums *s = arg;
    const mu_window *w = &s->window;
    const int64_t parts = w->channels / CHANNELS, rows = w->n * w->z.out * w->y.out;
    memset(s->dw + begin * CHANNELS * s->filters, 0, (size_t)((end - begin) * CHANNELS * s->filters) * sizeof(float));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < w->x.out; column += s->run) {
            const result_run run = {.n = row / w->y.out / w->z.out,
                                    .z = row / w->y.out % w->z.out,
                                    .y = row % w->y.out,
                                    .begin = column,
                                    .end = column + s->run};
            for (int64_t tap = begin / parts; tap * parts < end; tap++)
                add_tap(s, &run, tap, CHANNELS * MU_MAX(begin - tap * parts, (int64_t)0),
                        CHANNELS * MU_MIN(end - tap * parts, parts));
        }
}

mu_status mu__conv_filter_run(const mu_kernel *kernel)
{
    const mu_view *x = &kernel->in[0], *dy = &kernel->in[1], *dw = &kernel->out[0];
    filter_sums sums = {.x = x->data, .dy = dy->data, .dw = dw->data};
    MU_TRY(mu__conv_window(kernel->attrs, &x->shape, &dw->shape, kernel->op->name, &sums.window));
    const int64_t channels = sums.window.channels;
    sums.filters = dw->shape.dims[dw->shape.rank - 1];
    sums.run = MU_MAX(NEAR / (channels + sums.filters), (int64_t)SHORTEST);
    const int64_t parts = mu__elements(&dw->shape) / (CHANNELS * sums.filters);
    mu__share_range(kernel->team, parts, 1, mu__elements(&dy->shape) * channels, sum_parts, &sums);
    return MU_OK;
}
