// Plain loops of the pools, for every float type: oracle and fallback.
//
// Padding counts as absent. A maximum's place is the number of its tap, row by row; the first one wins and a
// NaN beats all numbers. Knows nothing of rows and gradients.
#include "ops/pool.h"

#include <math.h>

typedef struct pool_job {
    const mu_window *window;
    int64_t results, pixels, taps;  // elements of the result and of the image; elements of a window
    void *image, *result, *places;
    bool wide_places;
} pool_job;

// Index in the image of a tap of result element `at`; -1 where that is padding.
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

static int64_t get_place(const pool_job *j, int64_t at)
{
    return j->wide_places ? ((const int32_t *)j->places)[at] : ((const uint8_t *)j->places)[at];
}

static void put_place(const pool_job *j, int64_t at, int64_t place)
{
    if (j->wide_places)
        ((int32_t *)j->places)[at] = (int32_t)place;
    else
        ((uint8_t *)j->places)[at] = (uint8_t)place;
}

#define T float
#define FN(name) f32_##name
#include "ops/pool_loops.inc.c"

#define T double
#define FN(name) f64_##name
#include "ops/pool_loops.inc.c"

mu_status mu__pool_ref(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, mu__pool_ref);
    mu_pool_call call;
    MU_TRY(mu__pool_call(kernel, &call));
    const mu_window *w = &call.window;
    const pool_job job = {
        .window = w, .image = call.image, .result = call.result, .places = call.places,
        .wide_places = call.wide_places, .taps = w->y.size * w->x.size,
        .results = w->n * w->y.out * w->x.out * w->channels, .pixels = w->n * w->y.in * w->x.in * w->channels,
    };
    (dtype == MU_F32 ? f32_loops : f64_loops)[call.kind](&job);
    return MU_OK;
}
