// Lowerings of the convolutions and their gradients to StableHLO, in two dimensions and three.
//
// All three are one stablehlo.convolution. They differ in which axis of an array is batch, feature or spatial, and in
// dilations and padding of image and kernel.
#include "ops/spatial/conv.h"
#include "ops/core/lower.h"

// The differences between the three: axis order and, per spatial axis, strides, dilations and padding.
typedef struct convolution {
    const char *image, *kernel, *result; // one letter per axis; 's' stands for all spatial axes
    int spatial;
    mu_ints strides, spread_image, spread_kernel, low, high;
    int64_t groups, batch_groups;
} convolution;

// "[b, 0, 1, f]" of "bsf".
static const char *axes_text(const char *letters, int spatial, char text[64])
{
    size_t at = 0;
    for (const char *letter = letters; *letter; letter++)
        for (int i = 0; i < (*letter == 's' ? spatial : 1); i++) {
            text[at] = at == 0 ? '[' : ',';
            at++;
            text[at++] = *letter == 's' ? (char)('0' + i) : *letter;
        }
    text[at++] = ']';
    text[at] = 0;
    return text;
}

static const char *padding_text(const convolution *c, char text[MU_HLO_TEXT / 4])
{
    size_t at = 0, bytes = MU_HLO_TEXT / 4;
    for (int i = 0; i < c->spatial; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s[%lld, %lld]", i ? ", " : "", (long long)c->low.at[i],
                               (long long)c->high.at[i]);
    return text;
}

static mu_hlo convolve(mu_lowering *l, mu_hlo image, mu_hlo kernel, const convolution *c)
{
    char text[MU_HLO_TEXT], axes[3][64], pads[MU_HLO_TEXT / 4], lists[3][MU_HLO_TEXT / 4];
    const mu_hlo operands[] = {image, kernel};
    snprintf(text, sizeof text,
             "{dimension_numbers = #stablehlo.conv<%sx%s->%s>, window_strides = %s, padding = dense<[%s]> : "
             "tensor<%dx2xi64>, lhs_dilation = %s, rhs_dilation = %s, feature_group_count = %lld : i64, "
             "batch_group_count = %lld : i64, %s}",
             axes_text(c->image, c->spatial, axes[0]), axes_text(c->kernel, c->spatial, axes[1]),
             axes_text(c->result, c->spatial, axes[2]), mu__hlo_list(&c->strides, lists[0]), padding_text(c, pads),
             c->spatial, mu__hlo_list(&c->spread_image, lists[1]), mu__hlo_list(&c->spread_kernel, lists[2]),
             (long long)c->groups, (long long)c->batch_groups, mu__hlo_precision());
    return l->emitter->add(l->emitter, &l->out[0].spec, "stablehlo.convolution", 2, operands, text);
}

static void push_axis(convolution *c, int64_t stride, int64_t spread_image, int64_t spread_kernel, int64_t low,
                      int64_t high)
{
    const int i = c->spatial++;
    c->strides.at[i] = stride;
    c->spread_image.at[i] = spread_image;
    c->spread_kernel.at[i] = spread_kernel;
    c->low.at[i] = low;
    c->high.at[i] = high;
    c->strides.n = c->spread_image.n = c->spread_kernel.n = c->low.n = c->high.n = c->spatial;
}

static mu_hlo forward(mu_lowering *l, mu_window *w, int64_t groups)
{
    convolution c = {.image = "bsf", .kernel = "sio", .result = "bsf", .groups = groups, .batch_groups = 1};
    for (int i = 0; i < w->spatial; i++) {
        const mu_window_axis *a = &mu__window_axes(w)[i];
        push_axis(&c, a->stride, 1, a->dilation, a->before,
                  (a->out - 1) * a->stride + (a->size - 1) * a->dilation + 1 - a->in - a->before);
    }
    return convolve(l, l->in[0], l->in[1], &c);
}

// With groups, exchanges input and output channels of the kernel within each group.
static mu_hlo swap_channels(mu_emitter *e, mu_hlo w, int64_t groups, int spatial)
{
    mu_shape split = w.spec.shape, joined = w.spec.shape;
    const int64_t own = split.dims[spatial], filters = split.dims[spatial + 1];
    mu_ints order = {.n = spatial + 3};
    if (groups == 1)
        return w;
    split.rank++;
    split.dims[spatial + 1] = groups;
    split.dims[spatial + 2] = filters / groups;
    joined.dims[spatial] = own * groups;
    joined.dims[spatial + 1] = filters / groups;
    for (int i = 0; i < order.n; i++)
        order.at[i] = i;
    order.at[spatial] = spatial + 1;
    order.at[spatial + 1] = spatial;
    return mu__hlo_reshape(e, mu__hlo_transpose(e, mu__hlo_reshape(e, w, &split), &order), &joined);
}

static mu_hlo input_grad(mu_lowering *l, mu_window *w, int64_t groups)
{
    convolution c = {.image = "bsf", .kernel = "soi", .result = "bsf", .groups = groups, .batch_groups = 1};
    for (int i = 0; i < w->spatial; i++) {
        const mu_window_axis *a = &mu__window_axes(w)[i];
        push_axis(&c, 1, a->stride, a->dilation, (a->size - 1) * a->dilation - a->before,
                  a->in + a->before - ((a->out - 1) * a->stride + 1));
    }
    const mu_hlo flipped =
        l->emitter->add(l->emitter, &l->in[1].spec, "stablehlo.reverse", 1, &l->in[1],
                        w->spatial == 3 ? "{dimensions = array<i64: 0, 1, 2>}" : "{dimensions = array<i64: 0, 1>}");
    return convolve(l, l->in[0], swap_channels(l->emitter, flipped, groups, w->spatial), &c);
}

static mu_hlo filter_grad(mu_lowering *l, mu_window *w, int64_t groups)
{
    convolution c = {.image = "fsb", .kernel = "iso", .result = "sbf", .groups = 1, .batch_groups = groups};
    for (int i = 0; i < w->spatial; i++) {
        const mu_window_axis *a = &mu__window_axes(w)[i];
        push_axis(&c, a->dilation, 1, a->stride, a->before,
                  (a->size - 1) * a->dilation + (a->out - 1) * a->stride + 1 - a->in - a->before);
    }
    return convolve(l, l->in[0], l->in[1], &c);
}

// XLA takes no window over an empty axis; what is a sum of nothing is 0.
static mu_hlo convolved(mu_lowering *l, mu_conv_kind kind, mu_window *w, int64_t groups)
{
    const mu_spec *out = &l->out[0].spec;
    if (mu__elements(&l->in[0].spec.shape) == 0 || mu__elements(&l->in[1].spec.shape) == 0 ||
        mu__elements(&out->shape) == 0)
        return mu__hlo_fill(l->emitter, out->dtype, &out->shape, 0);
    return kind == MU_CONV_FORWARD      ? forward(l, w, groups)
           : kind == MU_CONV_INPUT_GRAD ? input_grad(l, w, groups)
                                        : filter_grad(l, w, groups);
}

mu_status mu__lower_conv(mu_lowering *l)
{
    const mu_conv_attrs *attrs = l->attrs;
    const mu_conv_kind kind = mu__conv_kind(l->op);
    const mu_hlo image = kind == MU_CONV_INPUT_GRAD ? l->out[0] : l->in[0],
                 kernel = kind == MU_CONV_FILTER_GRAD ? l->in[2] : l->in[1];
    mu_window w;
    MU_TRY(mu__conv_window(attrs, &image.spec.shape, &kernel.spec.shape, l->op->name, &w));
    return mu__lowered(l, 0, convolved(l, kind, &w, attrs->groups));
}
