// Custom ops: a C function as kernel, with a shape rule and a gradient, used like a built-in op.
#ifndef MUSTER_CUSTOM_H
#define MUSTER_CUSTOM_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// A tensor as kernels and shape rules see it. For a kernel, the elements are row-major at data. For a shape rule, data
// is NULL and a dimension that the trace does not know is MU_UNKNOWN.
typedef struct mu_array {
    mu_dtype dtype;
    mu_shape shape;
    void *data;
} mu_array;

#define MU_CUSTOM_INPUTS  7
#define MU_CUSTOM_OUTPUTS 16

// The functions get `arg`, which must live as long as the process; they fail by calling mu_fail. Threads: kernels run
// in parallel on the threads of all replicas. infer and gradient run where the op is used.
typedef struct mu_custom_op {
    size_t size;
    const char *given;
    const char *name; // letters, digits and underscores; names the op in calls and in graphs sent to other processes
    int n_in, n_out;  // 1 to MU_CUSTOM_INPUTS, 1 to MU_CUSTOM_OUTPUTS
    mu_keyword_only only_;
    // kernel fills the outputs. Their types and shapes are those that infer returned; all dimensions are known.
    mu_status (*kernel)(const mu_array *in, const mu_array *out, void *arg);
    // infer sets type and shape of each output. An output dimension may be unknown only if an input's is. Default:
    // every output is like input 0.
    mu_status (*infer)(const mu_array *in, mu_array *out, void *arg);
    // gradient builds, from ops, the gradient of each input (dx[i], like x[i]) from the gradients of the outputs (dy).
    // An input whose dx[i] is left NULL gets none. Default: asking for a gradient through the op fails with
    // UNIMPLEMENTED.
    mu_status (*gradient)(mu_tensor *const *x, mu_tensor *const *y, mu_tensor *const *dy, mu_tensor **dx, void *arg);
    void *arg;
    // the op runs every time, in order; default: equal inputs give equal outputs, so calls may be merged
    bool has_effect;
} mu_custom_op;

// mu_register_op registers an op for the rest of the process. A graph from another process names its custom ops; it is
// rejected before it runs if one of them is not registered here. Errors: ALREADY_EXISTS if another op has the name;
// INVALID_ARGUMENT for an invalid name or number, or without a kernel. The struct is copied.
#define mu_register_op(...) mu_register_op_with(MU_ARGS(mu_custom_op, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_register_op_with(const mu_custom_op *op);

// mu_call_op applies a registered op, eagerly or in a trace; `out` receives n_out tensors. mu_call_op1 is for ops with
// one output. Errors: NOT_FOUND for a name that is not registered. INVALID_ARGUMENT for another number of inputs; what
// the op's functions give to mu_fail.
MU_API mu_status mu_call_op(const char *name, int n_in, mu_tensor *const *in, mu_tensor **out);
MU_API mu_tensor *mu_call_op1(const char *name, int n_in, mu_tensor *const *in);

#ifdef __cplusplus
}
#endif
#endif
