// The fused ops of products, convolutions, ReLU and pools: definitions, and the shape rules and unfused reference that
// they share.
//
// Only this engine's patterns create such ops; they have no gradients, and no graph that is loaded has any.
#ifndef MU_SRC_ENGINE_CPU_FUSED_OPS_H
#define MU_SRC_ENGINE_CPU_FUSED_OPS_H

#include "ops/nn/nn.h"

extern const mu_op mu__op_matmul_bias, mu__op_conv2d_bias; // fused_bias.c
extern const mu_op mu__op_relu_max_pool2d, mu__op_relu_max_pool2d_grad, mu__op_conv2d_relu_pool,
    mu__op_conv2d_relu_pool_grad, mu__op_conv2d_relu_pool_grads;

// mu__fused_op_at returns the fused ops one by one; NULL after the last.
const mu_op *mu__fused_op_at(int i);

// mu__need_bias checks input 2, the bias of a product, as bias_add does, which is gone: the trace may not have known
// the lengths (fused_bias.c).
mu_status mu__need_bias(const mu_infer *infer, const mu_spec *product);
// mu__pooled_convolution computes the shape of a 2x2 max pool of a convolution of x with w (infer->attrs).
mu_status mu__pooled_convolution(const mu_infer *infer, const mu_shape *x, const mu_shape *w, mu_shape *out);
// mu__convolution_shape returns the shape of the convolution alone; the shapes must have passed mu__pooled_convolution.
mu_shape mu__convolution_shape(const mu_kernel *kernel, const mu_shape *x, const mu_shape *w);
// mu__need_marked checks that inputs dy and mark have the shape of the forward op's result.
mu_status mu__need_marked(const mu_infer *infer, int dy, int mark, const mu_shape *wanted);

// mu__plain_convolution returns whether stride, dilation and groups are 1 and there is no padding, as the hand-written
// kernels require.
bool mu__plain_convolution(const mu_conv_attrs *attrs);

// mu__run_plain runs the plain loops of another op.
mu_status mu__run_plain(const mu_op *op, const void *attrs, const mu_kernel *kernel, int n_in, const mu_view *in,
                        int n_out, const mu_view *out);
// mu__unpool_marked writes the gradient of ReLU and max pool with respect to their input, using the saved mask `mark`.
mu_status mu__unpool_marked(const mu_kernel *kernel, const mu_view *dy, const mu_view *mark, mu_view *dx);

#endif
