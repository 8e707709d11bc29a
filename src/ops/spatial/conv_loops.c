// Convolutions by small matrix products, for every type: for what oneDNN does not take.
//
// For each tap, each row of output pixels is one small matrix product with strided rows. The image is not copied (no
// im2col), and the three convolutions differ only in which array receives the product.
#include "ops/spatial/conv.h"

typedef struct conv_loops {
    mu_conv_kind kind;
    mu_window window;
    int64_t filters, groups, group_channels, group_filters;
    size_t element;
    char *image, *kernel, *result;
    mu_gemm *gemm;
} conv_loops;

// One row of output pixels [begin, end) under one tap, for one group.
static void row_product(const conv_loops *c, char *image, char *kernel, char *result, int64_t pixels)
{
    const int64_t image_row = c->window.x.stride * c->window.channels;
    switch (c->kind) {
    case MU_CONV_FORWARD:
        c->gemm(result, c->filters, image, image_row, 1, kernel, c->filters, 1, pixels, c->group_filters,
                c->group_channels);
        break;
    case MU_CONV_INPUT_GRAD:
        c->gemm(image, image_row, result, c->filters, 1, kernel, 1, c->filters, pixels, c->group_channels,
                c->group_filters);
        break;
    case MU_CONV_FILTER_GRAD:
        c->gemm(kernel, c->filters, image, 1, image_row, result, c->filters, 1, c->group_channels, c->group_filters,
                pixels);
        break;
    }
}

// All rows of output plane `plane_out`, which read image plane `plane_in`.
static void tap_rows(const conv_loops *c, int64_t plane_in, int64_t plane_out, char *tap, int64_t ky, int64_t kx)
{
    const mu_window_axis *y = &c->window.y, *x = &c->window.x;
    int64_t top, bottom, left, right;
    mu__window_span(y, ky, &top, &bottom);
    mu__window_span(x, kx, &left, &right);
    if (left >= right)
        return;
    for (int64_t oy = top; oy < bottom; oy++) {
        const int64_t iy = oy * y->stride + ky * y->dilation - y->before;
        const int64_t ix = left * x->stride + kx * x->dilation - x->before;
        char *image = c->image + c->element * (size_t)(((plane_in * y->in + iy) * x->in + ix) * c->window.channels);
        char *result = c->result + c->element * (size_t)(((plane_out * y->out + oy) * x->out + left) * c->filters);
        for (int64_t g = 0; g < c->groups; g++) {
            const size_t filters = c->element * (size_t)(g * c->group_filters);
            row_product(c, image + c->element * (size_t)(g * c->group_channels), tap + filters, result + filters,
                        right - left);
        }
    }
}

static void tap_images(const conv_loops *c, int64_t kz, int64_t ky, int64_t kx)
{
    const mu_window_axis *z = &c->window.z;
    const int64_t number = (kz * c->window.y.size + ky) * c->window.x.size + kx;
    char *tap = c->kernel + c->element * (size_t)(number * c->group_channels * c->filters);
    int64_t front, back;
    mu__window_span(z, kz, &front, &back);
    for (int64_t n = 0; n < c->window.n; n++)
        for (int64_t oz = front; oz < back; oz++)
            tap_rows(c, n * z->in + oz * z->stride + kz * z->dilation - z->before, n * z->out + oz, tap, ky, kx);
}

// Without horizontal padding, the pixels that the taps of one row read are contiguous, as are their weights: merges
// these taps into one tap with more channels.
static void merge_taps(conv_loops *c)
{
    mu_window_axis *x = &c->window.x;
    if (c->kind != MU_CONV_FORWARD || c->groups > 1 || x->dilation > 1 || x->before > 0 || x->after > 0)
        return;
    c->group_channels *= x->size;
    x->size = 1;
}

static mu_status sum_products(const mu_kernel *kernel)
{
    mu_gemm *gemm = mu__gemm_for(kernel->out[0].dtype);
    const mu_conv_attrs *attrs = kernel->attrs;
    const mu_conv_roles roles = mu__conv_roles(kernel->op, kernel->n_in);
    const mu_view *image = mu__conv_operand(kernel, roles.image), *weights = mu__conv_operand(kernel, roles.kernel);
    const int64_t *last = weights->shape.dims + weights->shape.rank - 2;
    conv_loops c = {
        .kind = mu__conv_kind(kernel->op),
        .filters = last[1],
        .groups = attrs->groups,
        .group_channels = last[0],
        .group_filters = last[1] / attrs->groups,
        .element = mu_dtype_bytes(kernel->out[0].dtype),
        .gemm = gemm,
        .image = image->data,
        .kernel = weights->data,
        .result = mu__conv_operand(kernel, roles.result)->data,
    };
    MU_TRY(mu__conv_window(attrs, &image->shape, &weights->shape, kernel->op->name, &c.window));
    merge_taps(&c);
    memset(kernel->out[0].data, 0, c.element * (size_t)mu__elements(&kernel->out[0].shape));
    for (int64_t kz = 0; kz < c.window.z.size; kz++)
        for (int64_t ky = 0; ky < c.window.y.size; ky++)
            for (int64_t kx = 0; kx < c.window.x.size; kx++)
                tap_images(&c, kz, ky, kx);
    return MU_OK;
}

mu_status mu__conv_loops(const mu_kernel *kernel)
{
    const mu_conv_attrs *attrs = kernel->attrs;
    const int bias = mu__conv_roles(kernel->op, kernel->n_in).bias;
    if (!mu__gemm_for(kernel->out[0].dtype))
        return mu__run_as_f32(kernel, mu__conv_loops);
    MU_TRY(sum_products(kernel));
    if (bias > 0)
        mu__bias_in_place(&kernel->out[0], &kernel->in[bias], attrs->relu);
    return MU_OK;
}
