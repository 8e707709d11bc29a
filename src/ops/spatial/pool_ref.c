// Plain loops of the pools: the oracle, and the fallback for windows that the kernels do not take.
//
// Padding is ignored, not zero. A maximum's position is the row-major number of its tap; ties go to the first tap, and
// a NaN beats all numbers.
#include "ops/core/plain.h"
#include "ops/spatial/pool.h"

#include <math.h>

typedef struct pool_job {
    const mu_window *window;
    int64_t results, pixels, taps; // elements of the result and of the image; elements of a window
    void *image, *result, *positions;
    bool wide_positions;
} pool_job;

// Index in the image of a tap of result element `at`; -1 if that is padding.
static int64_t image_index(const pool_job *j, int64_t at, int64_t tap)
{
    const mu_window *w = j->window;
    const int64_t channel = at % w->channels, pixel = at / w->channels;
    const int64_t ox = pixel % w->x.out, oy = pixel / w->x.out % w->y.out, n = pixel / w->x.out / w->y.out;
    const int64_t iy = oy * w->y.stride + tap / w->x.size - w->y.before;
    const int64_t ix = ox * w->x.stride + tap % w->x.size - w->x.before;
    if (iy < 0 || iy >= w->y.in || ix < 0 || ix >= w->x.in)
        return -1;
    return ((n * w->y.in + iy) * w->x.in + ix) * w->channels + channel;
}

// The first tap of result element `at`, from `tap` on, that lies inside the image; j->taps if none does. Skips the taps
// outside, because a window may be far larger than the image.
static int64_t next_inside(const pool_job *j, int64_t at, int64_t tap)
{
    const mu_window *w = j->window;
    const int64_t pixel = at / w->channels, wide = w->x.size;
    const int64_t top = pixel / w->x.out % w->y.out * w->y.stride - w->y.before;
    const int64_t left = pixel % w->x.out * w->x.stride - w->x.before;
    const int64_t first_row = top < 0 ? -top : 0, end_row = MU_MIN(w->y.size, w->y.in - top);
    const int64_t first = left < 0 ? -left : 0, end = MU_MIN(wide, w->x.in - left);
    const int64_t past = tap % wide >= end, row = tap / wide + past, column = past ? first : MU_MAX(tap % wide, first);
    if (first >= end || MU_MAX(row, first_row) >= end_row)
        return j->taps;
    return row < first_row ? first_row * wide + first : row * wide + column;
}

static int64_t get_position(const pool_job *j, int64_t at)
{
    return j->wide_positions ? ((const int32_t *)j->positions)[at] : ((const uint8_t *)j->positions)[at];
}

static void put_position(const pool_job *j, int64_t at, int64_t position)
{
    if (j->wide_positions)
        ((int32_t *)j->positions)[at] = (int32_t)position;
    else
        ((uint8_t *)j->positions)[at] = (uint8_t)position;
}

#define T        float
#define FN(name) f32_##name
#include "ops/spatial/pool_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#include "ops/spatial/pool_loops.inc.c"

// A maximum of nothing is the least number of its type.
static void max_pool_whole(const pool_job *j, const mu_view *x, const mu_view *y)
{
    const int bits = 8 * (int)mu_dtype_bytes(x->dtype);
    const int64_t least = x->dtype == MU_U8 ? 0 : (int64_t)(UINT64_MAX << (bits - 1));
    for (int64_t at = 0; at < j->results; at++) {
        int64_t best = least, position = 0;
        bool any = false;
        for (int64_t tap = next_inside(j, at, 0); tap < j->taps; tap = next_inside(j, at, tap + 1)) {
            const int64_t value = mu__read_whole(x, image_index(j, at, tap));
            if (!any || value > best) {
                best = value;
                position = tap;
            }
            any = true;
        }
        mu__write_whole(y, at, best);
        put_position(j, at, position);
    }
}

mu_status mu__pool_ref(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype == MU_F16 || dtype == MU_BF16)
        return mu__run_as_f32(kernel, mu__pool_ref);
    mu_pool_call call;
    MU_TRY(mu__pool_call(kernel, &call));
    const mu_window *w = &call.window;
    const pool_job job = {
        .window = w,
        .image = call.image,
        .result = call.result,
        .positions = call.positions,
        .wide_positions = call.wide_positions,
        .taps = w->y.size * w->x.size,
        .results = w->n * w->y.out * w->x.out * w->channels,
        .pixels = w->n * w->y.in * w->x.in * w->channels,
    };
    if (mu__dtype_is_integer(dtype))
        max_pool_whole(&job, &kernel->in[0], &kernel->out[0]);
    else
        (dtype == MU_F32 ? f32_loops : f64_loops)[call.kind](&job);
    return MU_OK;
}
