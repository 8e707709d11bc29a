// The public functions of the convolutions: options checked and made into the attributes of the ops in conv.c.
#include "ops/core/composed.h"
#include "ops/spatial/conv.h"

#include <muster/nn.h>

// Options of a public call, for n spatial axes.
typedef struct conv_options {
    const mu_op *op;
    const char *name;
    int n;
    const int64_t *strides, *dilations, *pads, *output_size; // output_size: only transposed convolutions
    const char *padding;
    int64_t groups;
} conv_options;

static mu_status make_attrs(const conv_options *o, mu_conv_attrs *attrs)
{
    memset(attrs, 0, sizeof *attrs);
    MU_TRY(mu__window_options(&attrs->strides, o->n, o->strides, "strides", o->name));
    MU_TRY(mu__window_options(&attrs->dilations, o->n, o->dilations, "dilations", o->name));
    attrs->groups = o->groups ? o->groups : 1;
    return mu__padding_options(attrs->padding, &attrs->pads, o->padding, o->n, o->pads, o->name);
}

static mu_tensor *convolve(const conv_options *o, mu_tensor *x, mu_tensor *kernel)
{
    mu_conv_attrs attrs;
    return make_attrs(o, &attrs) == MU_OK ? mu__apply2(o->op, &attrs, x, kernel) : NULL;
}

mu_tensor *mu_nn_conv2d_with(const mu_nn_conv2d_args *args)
{
    mu_nn_conv2d_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_conv2d") != MU_OK)
        return NULL;
    const conv_options options = {&mu_op_conv2d, "conv2d", 2,         a.strides, a.dilations,
                                  a.pads,        NULL,     a.padding, a.groups};
    return convolve(&options, a.x, a.kernel);
}

mu_tensor *mu_nn_conv3d_with(const mu_nn_conv3d_args *args)
{
    mu_nn_conv3d_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_conv3d") != MU_OK)
        return NULL;
    const conv_options options = {&mu_op_conv3d, "conv3d", 3,         a.strides, a.dilations,
                                  a.pads,        NULL,     a.padding, a.groups};
    return convolve(&options, a.x, a.kernel);
}

// The smallest size along axis i of a transposed convolution's image that contains every window of the result.
// MU_UNKNOWN if it cannot be determined.
static int64_t least_extent(const mu_conv_attrs *attrs, int i, int64_t in, int64_t size)
{
    const int64_t stride = attrs->strides.at[i];
    const bool same = strcmp(attrs->padding, "same") == 0;
    if (in == MU_UNKNOWN || (size == MU_UNKNOWN && !same))
        return MU_UNKNOWN;
    // Too large numbers wrap here; the shape rule rejects them.
    uint64_t out = (uint64_t)in * (uint64_t)stride;
    const uint64_t more = (uint64_t)(size - 1) * (uint64_t)attrs->dilations.at[i] + 1 - (uint64_t)stride;
    if (!same && (int64_t)more > 0)
        out += more;
    if (strcmp(attrs->padding, "explicit") == 0)
        out -= (uint64_t)attrs->pads.at[2 * i] + (uint64_t)attrs->pads.at[2 * i + 1];
    return (int64_t)out;
}

// The image size of a transposed convolution: the requested one or the smallest.
static mu_status choose_image(const conv_options *o, const mu_tensor *x, const mu_tensor *kernel, mu_conv_attrs *attrs)
{
    char text[MU_SHAPE_TEXT], kernel_text[MU_SHAPE_TEXT];
    if (!x || !kernel || x->shape.rank != o->n + 2 || kernel->shape.rank != o->n + 2)
        return mu__error(MU_INVALID_ARGUMENT, "%s: x and kernel must have rank %d, got %s", o->name, o->n + 2,
                         x && kernel ? mu__shape_text(x->shape.rank == o->n + 2 ? &kernel->shape : &x->shape, text)
                                     : "NULL");
    attrs->image.n = o->n;
    for (int i = 0; i < o->n; i++) {
        attrs->image.at[i] =
            o->output_size[i] ? o->output_size[i] : least_extent(attrs, i, x->shape.dims[i + 1], kernel->shape.dims[i]);
        if (attrs->image.at[i] < 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: no size of the result's axis %d follows from x %s and kernel %s; give .output_size",
                             o->name, i + 1, mu__shape_text(&x->shape, text),
                             mu__shape_text(&kernel->shape, kernel_text));
    }
    return MU_OK;
}

static mu_tensor *transpose_convolution(const conv_options *o, mu_tensor *x, mu_tensor *kernel)
{
    mu_conv_attrs attrs;
    if (make_attrs(o, &attrs) != MU_OK || choose_image(o, x, kernel, &attrs) != MU_OK)
        return NULL;
    return mu__composed2(o->name, x, kernel, mu__apply2(o->op, &attrs, x, kernel));
}

mu_tensor *mu_nn_conv2d_transpose_with(const mu_nn_conv2d_transpose_args *args)
{
    mu_nn_conv2d_transpose_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_conv2d_transpose") != MU_OK)
        return NULL;
    const conv_options options = {&mu_op_conv2d_input_grad,
                                  "conv2d_transpose",
                                  2,
                                  a.strides,
                                  a.dilations,
                                  a.pads,
                                  a.output_size,
                                  a.padding,
                                  a.groups};
    return transpose_convolution(&options, a.x, a.kernel);
}

mu_tensor *mu_nn_conv3d_transpose_with(const mu_nn_conv3d_transpose_args *args)
{
    mu_nn_conv3d_transpose_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_conv3d_transpose") != MU_OK)
        return NULL;
    const conv_options options = {&mu_op_conv3d_input_grad,
                                  "conv3d_transpose",
                                  3,
                                  a.strides,
                                  a.dilations,
                                  a.pads,
                                  a.output_size,
                                  a.padding,
                                  a.groups};
    return transpose_convolution(&options, a.x, a.kernel);
}
