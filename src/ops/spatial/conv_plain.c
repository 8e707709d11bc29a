// The plain loop of the convolutions: one product at a time, in float64, or in int64 for integers.
//
// Every (output pixel, tap, channel, filter) multiplies two elements and adds the product to an element of the third
// array: of the result, or of the array whose gradient is computed.
#include "ops/core/plain.h"
#include "ops/spatial/conv.h"

enum { IMAGE, KERNEL, RESULT, ARRAYS };

typedef struct plain_conv {
    mu_window window;
    int64_t filters, group_filters, group_channels;
    int sum; // the array that receives the products
    mu_wide arrays[ARRAYS];
} plain_conv;

// All channels and filters of one pixel under one tap; `at` has the first element in each array.
static void multiply_tap(const plain_conv *c, const int64_t at[ARRAYS])
{
    const int a = (c->sum + 1) % ARRAYS, b = (c->sum + 2) % ARRAYS;
    for (int64_t filter = 0; filter < c->filters; filter++)
        for (int64_t channel = 0; channel < c->group_channels; channel++) {
            const int64_t group = filter / c->group_filters;
            const int64_t i[ARRAYS] = {
                [IMAGE] = at[IMAGE] + group * c->group_channels + channel,
                [KERNEL] = at[KERNEL] + channel * c->filters + filter,
                [RESULT] = at[RESULT] + filter,
            };
            mu__wide_multiply(&c->arrays[c->sum], i[c->sum], &c->arrays[a], i[a], &c->arrays[b], i[b]);
        }
}

// The image coordinate that output coordinate `out` reads under a tap, or -1 if that is padding.
static int64_t coordinate(const mu_window_axis *axis, int64_t out, int64_t tap)
{
    const int64_t in = out * axis->stride + tap * axis->dilation - axis->before;
    return in < axis->in ? MU_MAX(in, -1) : -1;
}

// One output pixel of image n, at the coordinates [z, y, x], under all taps.
static void multiply_pixel(const plain_conv *c, int64_t n, int64_t oz, int64_t oy, int64_t ox)
{
    const mu_window *w = &c->window;
    for (int64_t tap = 0; tap < w->z.size * w->y.size * w->x.size; tap++) {
        const int64_t z = coordinate(&w->z, oz, tap / (w->y.size * w->x.size));
        const int64_t y = coordinate(&w->y, oy, tap / w->x.size % w->y.size);
        const int64_t x = coordinate(&w->x, ox, tap % w->x.size);
        if (z < 0 || y < 0 || x < 0)
            continue;
        const int64_t at[ARRAYS] = {
            [IMAGE] = (((n * w->z.in + z) * w->y.in + y) * w->x.in + x) * w->channels,
            [KERNEL] = tap * c->group_channels * c->filters,
            [RESULT] = (((n * w->z.out + oz) * w->y.out + oy) * w->x.out + ox) * c->filters,
        };
        multiply_tap(c, at);
    }
}

mu_status mu__conv_ref(const mu_kernel *kernel)
{
    const mu_conv_attrs *attrs = kernel->attrs;
    const mu_conv_roles roles = mu__conv_roles(kernel->op, kernel->n_in);
    const mu_view *views[ARRAYS] = {mu__conv_operand(kernel, roles.image), mu__conv_operand(kernel, roles.kernel),
                                    mu__conv_operand(kernel, roles.result)};
    const int64_t *last = views[KERNEL]->shape.dims + views[KERNEL]->shape.rank - 2;
    plain_conv c = {.filters = last[1], .group_filters = last[1] / attrs->groups, .group_channels = last[0]};
    const mu_window *w = &c.window;
    mu_status status = MU_OK;
    MU_TRY(mu__conv_window(attrs, &views[IMAGE]->shape, &views[KERNEL]->shape, kernel->op->name, &c.window));
    for (int i = 0; i < ARRAYS; i++) {
        const bool is_sum = views[i] == &kernel->out[0];
        c.sum = is_sum ? i : c.sum;
        MU_GO(mu__wide_open(&c.arrays[i], views[i], is_sum));
    }
    for (int64_t n = 0; n < w->n; n++)
        for (int64_t z = 0; z < w->z.out; z++)
            for (int64_t y = 0; y < w->y.out; y++)
                for (int64_t x = 0; x < w->x.out; x++)
                    multiply_pixel(&c, n, z, y, x);
    mu__wide_store(&c.arrays[c.sum]);
out:
    for (int i = 0; i < ARRAYS; i++)
        mu__wide_close(&c.arrays[i]);
    return status;
}
