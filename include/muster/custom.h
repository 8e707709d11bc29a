// Ops of the program's own: a C function as kernel, with a shape rule and a gradient, used like any other op.
#ifndef MUSTER_CUSTOM_H
#define MUSTER_CUSTOM_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// A tensor as a kernel sees it: elements row-major at data. Shape rules see no elements (NULL), and dimensions that a
// trace does not know as MU_UNKNOWN.
typedef struct mu_array {
    mu_dtype dtype;
    mu_shape shape;
    void *data;
} mu_array;

#define MU_CUSTOM_INPUTS 7
#define MU_CUSTOM_OUTPUTS 16

// Functions are called with `arg`, which lives as long as the process, and fail by mu_fail.
// Threads: kernels run in parallel, on every replica's thread; shape rule and gradient run where the op is used.
typedef struct mu_custom_op {
    size_t size;
    const char *name;   // letters, digits and underscores; the name by which it is called, and sent in graphs
    int n_in, n_out;    // 1 to MU_CUSTOM_INPUTS, 1 to MU_CUSTOM_OUTPUTS
    mu_keyword_only only_;
    // kernel fills the outputs, which have the types and shapes that the shape rule said, all known.
    mu_status (*kernel)(const mu_array *in, const mu_array *out, void *arg);
    // infer fills type and shape of each output; unknown dimensions may stay so where the input's are. Known inputs
    // must give known outputs. Default: every output is like input 0.
    mu_status (*infer)(const mu_array *in, mu_array *out, void *arg);
    // gradient makes, with ops, the gradient of each input from those of the outputs: dx[i] like x[i]; what it leaves
    // NULL gets none. Default: who asks for a gradient through the op gets UNIMPLEMENTED.
    mu_status (*gradient)(mu_tensor *const *x, mu_tensor *const *y, mu_tensor *const *dy, mu_tensor **dx, void *arg);
    void *arg;
    bool has_effect;    // runs each time and in order; default: equal inputs give equal outputs, so it may be shared
} mu_custom_op;

// mu_register_op makes an op known to this process, for good. A graph that arrives from another process names its
// custom ops; it is refused before it runs if one is not registered here.
// Errors: ALREADY_EXISTS for a name that is taken by another op.
#define mu_register_op(...) mu_register_op_with(MU_ARGS(mu_custom_op, __VA_ARGS__))
MU_API mu_status mu_register_op_with(const mu_custom_op *op);

// mu_call_op applies it, eagerly or in a trace; out gets n_out tensors. mu_call_op1 is for ops with one output.
// Errors: NOT_FOUND for a name that is not registered.
MU_API mu_status mu_call_op(const char *name, int n_in, mu_tensor *const *in, mu_tensor **out);
MU_API mu_tensor *mu_call_op1(const char *name, int n_in, mu_tensor *const *in);

#ifdef __cplusplus
}
#endif
#endif
