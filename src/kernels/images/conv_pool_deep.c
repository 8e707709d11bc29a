// All gradients (weights, bias and input) of convolution, bias, ReLU and 2x2 max pool with many input channels.
//
// Each window passes its gradient only to its maximum, and to nothing if the ReLU is inactive. So nine tenths of the
// gradient of the convolution's result are zeros, and instead of dense products this code walks a list of the
// non-zeros: for each filter their positions and values, for a group of windows that fits in the caches. An entry
// touches one patch of the input, whose rows are contiguous runs of kernel * in_channels elements; sums for the
// weights stay in registers, and sums for the input in the first-level cache.
#include "kernel_slots.h"
#include "simd.h"

// A tile, whose sums stay in registers, has ROWS runs of RUN vectors; smaller ones do the rest.
enum { RUN = 6, ROWS = MU_LANES == 16 ? 3 : 1 };

typedef struct entry {
    int32_t position; // offset of the patch's first element in the image
    float value;
} entry;

typedef struct deep {
    const mu_conv_pool_shape *s;
    int64_t rows, columns, x_row, run, patch; // run: kernel * in_channels; patch: kernel runs
    float *w, *dw;                            // [out_channels][patch], the caller's scratch
    entry *entries;                           // [out_channels][MU_DEEP_WINDOWS]
    int32_t *n;                               // [out_channels]
} deep;

// ---- Layout -------------------------------------------------------------------------------------

// Converts between [patch][out_channels], the layout of variables, and [out_channels][patch].
static void to_patches(const deep *d, const float *w)
{
    for (int64_t i = 0; i < d->patch; i++)
        for (int64_t c = 0; c < d->s->out_channels; c++)
            d->w[c * d->patch + i] = w[i * d->s->out_channels + c];
}

static void from_patches(const deep *d, float *dw)
{
    for (int64_t i = 0; i < d->patch; i++)
        for (int64_t c = 0; c < d->s->out_channels; c++)
            dw[i * d->s->out_channels + c] = d->dw[c * d->patch + i];
}

// ---- Lists --------------------------------------------------------------------------------------

// Lists the active windows among [begin, end) of an image for each filter. Without a branch: every entry is written,
// and the count advances only if it is active.
static void list_windows(const deep *d, const float *dy, const uint8_t *mark, float *db, int64_t begin, int64_t end)
{
    const int64_t channels = d->s->out_channels;
    const int32_t right = (int32_t)d->s->in_channels, below = (int32_t)d->x_row;
    const int32_t step[5] = {0, right, below, below + right, 0};
    int32_t position[MU_DEEP_WINDOWS];
    for (int64_t window = begin; window < end; window++)
        position[window - begin] = (int32_t)(window / d->columns * 2 * d->x_row + window % d->columns * 2 * right);
    for (int64_t c = 0; c < channels; c++) {
        entry *to = d->entries + c * MU_DEEP_WINDOWS;
        const float *value = dy + begin * channels + c;
        const uint8_t *m = mark + begin * channels + c;
        float sum = 0;
        for (int64_t i = 0; i < end - begin; i++) {
            const bool live = m[i * channels] != MU_MARK_DEAD;
            *to = (entry){.position = position[i] + step[m[i * channels]], .value = value[i * channels]};
            sum += live ? value[i * channels] : 0;
            to += live;
        }
        d->n[c] = (int32_t)(to - (d->entries + c * MU_DEEP_WINDOWS));
        db[c] += sum;
    }
}

// ---- Sums over a list ---------------------------------------------------------------------------

// sums[r][v] += value * x for `rows` runs of `vectors` vectors each; both are constants where it is called.
MU_INLINE void add_weights(const entry *e, int32_t n, const float *x, int64_t x_row, int64_t run, float *dw, int rows,
                           int vectors)
{
    mu_vf sums[ROWS * RUN];
    MU_UNROLL for (int r = 0; r < rows; r++)
    {
        MU_UNROLL for (int v = 0; v < vectors; v++) sums[r * vectors + v] = (mu_vf){0};
    }
    const float *const from[3] = {x, x + x_row, x + 2 * x_row};
    for (int32_t k = 0; k < n; k++) {
        const int64_t position = e[k].position;
        const mu_vf value = v_splat(e[k].value);
        MU_UNROLL for (int r = 0; r < rows; r++)
        {
            MU_UNROLL for (int v = 0; v < vectors; v++) sums[r * vectors + v] +=
                value * v_load(from[r] + position + v * MU_LANES);
        }
    }
    MU_UNROLL for (int r = 0; r < rows; r++)
    {
        MU_UNROLL for (int v = 0; v < vectors; v++)
        {
            float *to = dw + r * run + v * MU_LANES;
            v_store(to, v_load(to) + sums[r * vectors + v]);
        }
    }
}

// dx += value * w for the same runs.
MU_INLINE void add_input(const entry *e, int32_t n, float *dx, int64_t x_row, int64_t run, const float *w, int rows,
                         int vectors)
{
    mu_vf taps[ROWS * RUN];
    MU_UNROLL for (int r = 0; r < rows; r++)
    {
        MU_UNROLL for (int v = 0; v < vectors; v++) taps[r * vectors + v] = v_load(w + r * run + v * MU_LANES);
    }
    float *const into[3] = {dx, dx + x_row, dx + 2 * x_row};
    for (int32_t k = 0; k < n; k++) {
        const int64_t position = e[k].position;
        const mu_vf value = v_splat(e[k].value);
        MU_UNROLL for (int r = 0; r < rows; r++)
        {
            MU_UNROLL for (int v = 0; v < vectors; v++)
            {
                float *to = into[r] + position + v * MU_LANES;
                v_store(to, v_load(to) + value * taps[r * vectors + v]);
            }
        }
    }
}

// One filter's list and operands; x and dx are an image's.
typedef struct filter {
    const entry *e;
    int32_t n;
    const float *x, *w;
    float *dx, *dw;
} filter;

typedef void tile_function(const deep *d, const filter *f, int64_t row, int64_t at);

MU_INLINE void add_tile(const deep *d, const filter *f, int64_t row, int64_t at, int rows, int vectors)
{
    const filter c = *f;
    const int64_t x_row = d->x_row, run = d->run, in = row * x_row + at, tap = row * run + at;
    add_weights(c.e, c.n, c.x + in, x_row, run, c.dw + tap, rows, vectors);
    add_input(c.e, c.n, c.dx + in, x_row, run, c.w + tap, rows, vectors);
}

// Separate functions, so that each has all registers for its sums.
#define TILE_FUNCTION(name, rows, vectors)                                               \
    static MU_OUTLINE void name(const deep *d, const filter *f, int64_t row, int64_t at) \
    {                                                                                    \
        add_tile(d, f, row, at, rows, vectors);                                          \
    }
TILE_FUNCTION(rows_wide, ROWS, RUN)
TILE_FUNCTION(rows_half, ROWS, RUN / 2)
TILE_FUNCTION(rows_narrow, ROWS, 1)
TILE_FUNCTION(row_wide, 1, RUN)
TILE_FUNCTION(row_half, 1, RUN / 2)
TILE_FUNCTION(row_narrow, 1, 1)

typedef struct tile_functions {
    tile_function *wide, *half, *narrow;
} tile_functions;

static void add_runs(const deep *d, const filter *f, int64_t row, const tile_functions *tile)
{
    int64_t at = 0;
    for (; at + RUN * MU_LANES <= d->run; at += RUN * MU_LANES)
        tile->wide(d, f, row, at);
    for (; at + RUN / 2 * MU_LANES <= d->run; at += RUN / 2 * MU_LANES)
        tile->half(d, f, row, at);
    for (; at < d->run; at += MU_LANES)
        tile->narrow(d, f, row, at);
}

// Processes one filter's list, tile by tile of the patch.
static void add_filter(const deep *d, int64_t c, const float *x, float *dx)
{
    static const tile_functions rows = {rows_wide, rows_half, rows_narrow}, one = {row_wide, row_half, row_narrow};
    const filter f = {.e = d->entries + c * MU_DEEP_WINDOWS,
                      .n = d->n[c],
                      .x = x,
                      .dx = dx,
                      .w = d->w + c * d->patch,
                      .dw = d->dw + c * d->patch};
    int64_t row = 0;
    for (; row + ROWS <= d->s->kernel; row += ROWS)
        add_runs(d, &f, row, &rows);
    for (; row < d->s->kernel; row++)
        add_runs(d, &f, row, &one);
}

static void add_image(const deep *d, const float *x, const float *dy, const uint8_t *mark, float *dx, float *db)
{
    const int64_t windows = d->rows * d->columns;
    memset(dx, 0, (size_t)(d->s->height * d->x_row) * sizeof *dx);
    for (int64_t begin = 0; begin < windows; begin += MU_DEEP_WINDOWS) {
        list_windows(d, dy, mark, db, begin, least(begin + MU_DEEP_WINDOWS, windows));
        for (int64_t c = 0; c < d->s->out_channels; c++)
            add_filter(d, c, x, dx);
    }
}

void MU_KERNEL(conv_relu_pool_grads)(const mu_conv_pool_shape *s, const float *x, const float *w, const float *dy,
                                     const uint8_t *mark, float *dw, float *db, float *dx, void *scratch, int64_t begin,
                                     int64_t end)
{
    deep d = {.s = s,
              .rows = (s->height - s->kernel + 1) / 2,
              .columns = (s->width - s->kernel + 1) / 2,
              .x_row = s->width * s->in_channels,
              .run = s->kernel * s->in_channels};
    d.patch = s->kernel * d.run;
    d.w = scratch;
    d.dw = d.w + s->out_channels * d.patch;
    d.entries = (entry *)(d.dw + s->out_channels * d.patch);
    d.n = (int32_t *)(d.entries + s->out_channels * MU_DEEP_WINDOWS);
    memset(d.dw, 0, (size_t)(s->out_channels * d.patch) * sizeof *d.dw);
    memset(db, 0, (size_t)s->out_channels * sizeof *db);
    to_patches(&d, w);
    const int64_t in = s->height * d.x_row, out = d.rows * d.columns * s->out_channels;
    for (int64_t image = begin; image < end; image++)
        add_image(&d, x + image * in, dy + image * out, mark + image * out, dx + image * in, db);
    from_patches(&d, dw);
}
