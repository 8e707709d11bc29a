// Common view of the three convolutions: which operand is the image, the kernel and the result.
//
// Forward, input gradient and filter gradient are the same sum over (output pixel, tap, channel, filter); each leaves
// out one of the three arrays. conv.c has the op definitions, conv_calls.c the public functions, conv_plain.c the plain
// loop, conv_loops.c the fast loops for what oneDNN does not take.
#ifndef MU_SRC_OPS_CONV_H
#define MU_SRC_OPS_CONV_H

#include "ops/nn/nn.h"

typedef enum mu_conv_kind { MU_CONV_FORWARD, MU_CONV_INPUT_GRAD, MU_CONV_FILTER_GRAD } mu_conv_kind;

extern const mu_attr_spec mu__conv_fields[]; // MU_CONV_FIELDS, ended

// The fields of mu_conv_attrs, without relu.
#define MU_CONV_FIELDS                                                   \
    {"strides", MU_ATTR_INTS, offsetof(mu_conv_attrs, strides)},         \
        {"dilations", MU_ATTR_INTS, offsetof(mu_conv_attrs, dilations)}, \
        {"pads", MU_ATTR_INTS, offsetof(mu_conv_attrs, pads)},           \
        {"image", MU_ATTR_INTS, offsetof(mu_conv_attrs, image)},         \
        {"padding", MU_ATTR_TEXT, offsetof(mu_conv_attrs, padding)},     \
    {                                                                    \
        "groups", MU_ATTR_INT, offsetof(mu_conv_attrs, groups)           \
    }

mu_conv_kind mu__conv_kind(const mu_op *op);

// Operand numbers, inputs first, then outputs.
typedef struct mu_conv_roles {
    int image, kernel, result;
    int bias; // 0: none
} mu_conv_roles;
mu_conv_roles mu__conv_roles(const mu_op *op, int n_in);

// mu__conv_operand returns the operand of this number.
static inline const mu_view *mu__conv_operand(const mu_kernel *kernel, int i)
{
    return i < kernel->n_in ? &kernel->in[i] : &kernel->out[i - kernel->n_in];
}

// Filter gradient in float32 without oneDNN (conv_filter.c): whether that is faster, and the computation itself.
bool mu__conv_filter_fits(const mu_window *window, const mu_shape *kernel, int64_t groups);
mu_status mu__conv_filter_run(const mu_kernel *kernel);

mu_status mu__conv_ref(const mu_kernel *kernel);
mu_status mu__conv_loops(const mu_kernel *kernel); // without oneDNN: types and shapes that it does not take

#endif
