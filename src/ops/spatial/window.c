// Sliding windows over images: result sizes and padding, as in TensorFlow.
//
// Shared by convolutions and pools. An axis has a size, a window of `size` taps `dilation` apart, a stride and padding.
// "same" pads so that the result has ceil(in / stride) elements; an odd element of padding goes at the end.
#include "ops/nn/nn.h"

mu_status mu__window_axis(mu_window_axis *axis, const char *padding, int64_t before, int64_t after, const char *op)
{
    const bool sized = axis->size != MU_UNKNOWN;
    if ((sized && axis->size < 1) || axis->stride < 1 || axis->dilation < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: window %lld, stride %lld and dilation %lld must all be at least 1",
                         op, (long long)axis->size, (long long)axis->stride, (long long)axis->dilation);
    if (axis->size > INT32_MAX || axis->stride > INT32_MAX || axis->dilation > INT32_MAX || before < INT32_MIN ||
        before > INT32_MAX || after < INT32_MIN || after > INT32_MAX)
        return mu__error(MU_INVALID_ARGUMENT, "%s: window, stride, dilation and pads must be below 2^31", op);
    const int64_t span = (axis->size - 1) * axis->dilation + 1;
    const bool same = strcmp(padding, "same") == 0, explicit_pads = strcmp(padding, "explicit") == 0;
    if (!same && !explicit_pads && strcmp(padding, "valid") != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: padding \"%s\" is unknown; use \"valid\", \"same\" or explicit pads",
                         op, padding);
    axis->before = explicit_pads ? before : 0;
    axis->after = explicit_pads ? after : 0;
    axis->out = MU_UNKNOWN;
    if (axis->in == MU_UNKNOWN)
        return MU_OK;
    if (same)
        axis->out = (axis->in + axis->stride - 1) / axis->stride;
    if (!sized)
        return MU_OK;
    if (same) {
        const int64_t total = MU_MAX((axis->out - 1) * axis->stride + span - axis->in, 0);
        axis->before = total / 2;
        axis->after = total - total / 2;
        return MU_OK;
    }
    const int64_t slack = axis->in + axis->before + axis->after - span;
    if (axis->before < 0 || axis->after < 0 || slack < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: a window that spans %lld does not fit into an extent of %lld with padding %lld and %lld",
                         op, (long long)span, (long long)axis->in, (long long)axis->before, (long long)axis->after);
    axis->out = slack / axis->stride + 1;
    return MU_OK;
}

void mu__window_span(const mu_window_axis *axis, int64_t tap, int64_t *begin, int64_t *end)
{
    // Output o reads the image at o * stride + shift, which must be in [0, in).
    const int64_t shift = tap * axis->dilation - axis->before;
    const int64_t left = axis->in - shift;
    *begin = shift >= 0 ? 0 : (-shift + axis->stride - 1) / axis->stride;
    *end = left <= 0 ? 0 : MU_MIN(axis->out, (left + axis->stride - 1) / axis->stride);
    *end = MU_MAX(*begin, *end);
}

// Reports an error unless a list of attributes has n entries.
static mu_status need_count(const mu_ints *list, int64_t n, const char *what, const char *op)
{
    if (list->n == n)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s has %lld entries, %lld are needed", op, what, (long long)list->n,
                     (long long)n);
}

static mu_status need_image(const mu_shape *x, int spatial, const char *op)
{
    char text[MU_SHAPE_TEXT];
    if (x->rank == spatial + 2)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: images have shape [batch, %sheight, width, channels], got %s", op,
                     spatial == 3 ? "depth, " : "", mu__shape_text(x, text));
}

static mu_status fill_axes(mu_window *out, const char *padding, const mu_ints *pads, const char *op)
{
    mu_window_axis *axes = mu__window_axes(out);
    const bool explicit_pads = strcmp(padding, "explicit") == 0;
    if (explicit_pads)
        MU_TRY(need_count(pads, 2 * out->spatial, "the list of explicit pads (before and after each axis)", op));
    for (int i = 0; i < out->spatial; i++)
        MU_TRY(mu__window_axis(&axes[i], padding, explicit_pads ? pads->at[2 * i] : 0,
                               explicit_pads ? pads->at[2 * i + 1] : 0, op));
    return MU_OK;
}

mu_status mu__conv_window(const mu_conv_attrs *attrs, const mu_shape *x, const mu_shape *w, const char *op,
                          mu_window *out)
{
    char x_text[MU_SHAPE_TEXT], w_text[MU_SHAPE_TEXT];
    const int spatial = (int)attrs->strides.n;
    if (spatial != 2 && spatial != 3)
        return need_count(&attrs->strides, 2, "strides", op);
    MU_TRY(need_image(x, spatial, op));
    if (w->rank != spatial + 2)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the kernel has shape [%sheight, width, channels / groups, filters], got %s", op,
                         spatial == 3 ? "depth, " : "", mu__shape_text(w, w_text));
    MU_TRY(need_count(&attrs->dilations, spatial, "dilations", op));
    const int64_t channels = x->dims[spatial + 1], own = w->dims[spatial], filters = w->dims[spatial + 1];
    const int64_t groups = attrs->groups;
    if (groups < 1 || (filters != MU_UNKNOWN && filters % groups != 0) ||
        (channels != MU_UNKNOWN && own != MU_UNKNOWN && channels != own * groups))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: images %s and kernel %s do not fit with %lld groups: channels must be the kernel's last "
                         "axis but one times groups, and filters a multiple of groups",
                         op, mu__shape_text(x, x_text), mu__shape_text(w, w_text), (long long)groups);
    *out = (mu_window){.n = x->dims[0],
                       .channels = channels,
                       .spatial = spatial,
                       .z = {.in = 1, .out = 1, .size = 1, .stride = 1, .dilation = 1}};
    mu_window_axis *axes = mu__window_axes(out);
    for (int i = 0; i < spatial; i++)
        axes[i] = (mu_window_axis){.in = x->dims[i + 1],
                                   .size = w->dims[i],
                                   .stride = attrs->strides.at[i],
                                   .dilation = attrs->dilations.at[i]};
    return fill_axes(out, attrs->padding, &attrs->pads, op);
}

mu_status mu__pool_window(const mu_pool_attrs *attrs, const mu_shape *x, const char *op, mu_window *out)
{
    MU_TRY(need_image(x, 2, op));
    MU_TRY(need_count(&attrs->window, 2, "the window", op));
    MU_TRY(need_count(&attrs->strides, 2, "strides", op));
    *out = (mu_window){
        .n = x->dims[0],
        .channels = x->dims[3],
        .spatial = 2,
        .z = {.in = 1, .out = 1, .size = 1, .stride = 1, .dilation = 1},
        .y = {.in = x->dims[1], .size = attrs->window.at[0], .stride = attrs->strides.at[0], .dilation = 1},
        .x = {.in = x->dims[2], .size = attrs->window.at[1], .stride = attrs->strides.at[1], .dilation = 1},
    };
    if (out->y.size < 1 || out->x.size < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the window is %lld by %lld; both must be at least 1", op,
                         (long long)out->y.size, (long long)out->x.size);
    return fill_axes(out, attrs->padding, &attrs->pads, op);
}

mu_status mu__window_options(mu_ints *out, int n, const int64_t *given, const char *what, const char *op)
{
    out->n = n;
    for (int i = 0; i < n; i++) {
        if (given[i] < 0)
            return mu__error(MU_INVALID_ARGUMENT, "%s: %s have %lld at index %d; they must be at least 1", op, what,
                             (long long)given[i], i);
        out->at[i] = given[i] ? given[i] : i ? out->at[i - 1] : 1;
    }
    return MU_OK;
}

mu_status mu__padding_options(char out[MU_ATTR_TEXT_BYTES], mu_ints *pads, const char *padding, int n,
                              const int64_t *given, const char *op)
{
    bool explicit_pads = false;
    for (int i = 0; i < 2 * n; i++)
        explicit_pads |= given[i] != 0;
    if (explicit_pads && padding && strcmp(padding, "explicit") != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: padding \"%s\" and explicit pads exclude each other", op, padding);
    if (!padding)
        padding = explicit_pads ? "explicit" : "valid";
    if (strlen(padding) >= MU_ATTR_TEXT_BYTES)
        return mu__error(MU_INVALID_ARGUMENT, "%s: padding is \"valid\", \"same\" or \"explicit\"", op);
    strcpy(out, padding);
    if (strcmp(padding, "explicit") == 0) {
        pads->n = 2 * n;
        memcpy(pads->at, given, 2 * (size_t)n * sizeof *given);
    }
    return MU_OK;
}
