// Conditional accumulators: sum up gradients from many threads or workers, and hand out their mean once enough arrived.
//
// TensorFlow's ConditionalAccumulator and SparseConditionalAccumulator, the building block of synchronous training. An
// accumulator counts global steps. A gradient comes with the step that it was computed in (its local step); a gradient
// whose local step is behind the global step is stale and is dropped. Every successful take adds 1 to the global step.
//
// In the scope of mu_parameter_server_strategy an accumulator is made on the parameter server whose turn it is, like a
// variable, unless the servers are in this process; a take waits there, and its timeout and cancellation reach it.
//
// All functions work outside of functions and in traced functions, and from several threads at once. A traced function
// that waits in a take occupies its device, so gradients have to come from other devices or from outside of functions.
//
// Errors: CANCELLED once the accumulator is closed; UNIMPLEMENTED in functions that XLA devices run; for an accumulator
// on a server also those of a call to it.
#ifndef MUSTER_ACCUMULATOR_H
#define MUSTER_ACCUMULATOR_H

#include <muster/cancellation.h>
#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_accumulator mu_accumulator;

// ---- Making accumulators ------------------------------------------------------------------------

typedef struct mu_conditional_accumulator_args {
    size_t size;
    const char *given;
    mu_dtype dtype; // of the gradients: MU_F16, MU_BF16, MU_F32 or MU_F64
    mu_keyword_only only_;
    // Shape of the gradients, copied; dimensions may be MU_UNKNOWN. Default: any shape; the first gradient after a take
    // then fixes it until the next take.
    const mu_shape *shape;
    const char *shared_name;    // two calls with the same name return the same accumulator; default: a new one
    const char *name;           // for messages; default "conditional_accumulator"
    const char *reduction_type; // what a take returns: "MEAN" (default) or "SUM"
} mu_conditional_accumulator_args;

// mu_conditional_accumulator makes an accumulator of dense gradients, mu_sparse_conditional_accumulator one of sparse
// gradients (rows and their indices). The runtime keeps an accumulator with a shared_name until it is closed. Errors:
// INVALID_ARGUMENT for another type or reduction, and for a shared_name whose accumulator has another kind, type, shape
// or reduction.
#define mu_conditional_accumulator(...) \
    mu_conditional_accumulator_with(MU_ARGS(mu_conditional_accumulator_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_accumulator *mu_conditional_accumulator_with(const mu_conditional_accumulator_args *args);
#define mu_sparse_conditional_accumulator(...) \
    mu_sparse_conditional_accumulator_with(MU_ARGS(mu_conditional_accumulator_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_accumulator *mu_sparse_conditional_accumulator_with(const mu_conditional_accumulator_args *args);

// mu_accumulator_find returns the open accumulator with a shared_name. Errors: NOT_FOUND.
MU_API mu_accumulator *mu_accumulator_find(const char *shared_name);

// mu_accumulator_close ends the accumulator: waiting takes, and all later calls, fail with CANCELLED. Its shared_name
// is free again. Works with an error pending.
MU_API mu_status mu_accumulator_close(mu_accumulator *accumulator);

// mu_accumulator_name returns the shared_name, or the name if there is none; it belongs to the accumulator.
// mu_accumulator_dtype returns the type of its gradients. NULL: NULL and MU_DTYPE_DEFAULT.
MU_API const char *mu_accumulator_name(const mu_accumulator *accumulator);
MU_API mu_dtype mu_accumulator_dtype(const mu_accumulator *accumulator);

// ---- Dense gradients ----------------------------------------------------------------------------

// mu_accumulator_apply_grad adds a gradient; it never waits for others. A stale gradient is dropped without an error,
// whatever its shape. local_step may be ahead of the global step. Errors: INVALID_ARGUMENT if the type, or the shape of
// a gradient that is not stale, does not match; the accumulator is then unchanged. In a trace, a shape that is known
// not to match is an error in any case.
MU_API mu_status mu_accumulator_apply_grad(mu_accumulator *accumulator, mu_tensor *grad, int64_t local_step);

typedef struct mu_accumulator_take_grad_args {
    size_t size;
    const char *given;
    mu_accumulator *accumulator;
    int num_required; // least number of gradients, 1 or more
    mu_keyword_only only_;
    double timeout_seconds; // longest wait; default MUSTER_TIMEOUT
} mu_accumulator_take_grad_args;

// mu_accumulator_take_grad waits until num_required gradients have arrived, and returns the mean (or sum) of all that
// arrived, more than required too. The aggregate is empty afterwards, and the global step is one higher. Takes are
// served in the order of their calls: one that needs many holds up a later one that needs few. In a trace, the
// accumulator must have been made with a shape. Blocks: up to the timeout. Errors: INVALID_ARGUMENT if num_required is
// less than 1; CANCELLED if the thread's cancellation is cancelled (mu_cancellation_use), the accumulator is closed, or
// a signal asks to stop; DEADLINE_EXCEEDED.
#define mu_accumulator_take_grad(...) \
    mu_accumulator_take_grad_with(MU_ARGS(mu_accumulator_take_grad_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_accumulator_take_grad_with(const mu_accumulator_take_grad_args *args);

// ---- Both kinds ---------------------------------------------------------------------------------

// mu_accumulator_num_accumulated returns how many gradients the aggregate has, an int32 scalar.
MU_API mu_tensor *mu_accumulator_num_accumulated(mu_accumulator *accumulator);

// mu_accumulator_set_global_step sets the global step. It may go back, which logs a warning. The aggregate stays.
MU_API mu_status mu_accumulator_set_global_step(mu_accumulator *accumulator, int64_t new_global_step);

// ---- Sparse gradients ---------------------------------------------------------------------------

// mu_sparse_accumulator_apply_grad adds a sparse gradient: row indices[i] of the gradient is values[i]. indices: [n],
// any integer type; values: [n, …]; shape: the gradient's shape, int64 [rank], NULL if it is not known. Rows with the
// same index within one gradient stay apart. Errors: as mu_accumulator_apply_grad, and INVALID_ARGUMENT for an index
// that is negative or beyond the accumulator's first dimension.
MU_API mu_status mu_sparse_accumulator_apply_grad(mu_accumulator *accumulator, mu_tensor *indices, mu_tensor *values,
                                                  mu_tensor *shape, int64_t local_step);

// mu_sparse_accumulator_apply_indexed_slices_grad applies a gradient of indexed slices, such as mu_gradients returns.
MU_API mu_status mu_sparse_accumulator_apply_indexed_slices_grad(mu_accumulator *accumulator, mu_value *slices,
                                                                 int64_t local_step);

// mu_sparse_accumulator_take_grad is mu_accumulator_take_grad for sparse gradients. It returns a list: indices (int64
// [n], ascending if the gradients' indices were), values ([n, …]) and shape (int64 [rank]; its first number is the
// accumulator's first dimension, -1 if that is not known). MEAN divides each row by the number of gradients that had
// its index, SUM does not divide.
#define mu_sparse_accumulator_take_grad(...) \
    mu_sparse_accumulator_take_grad_with(MU_ARGS(mu_accumulator_take_grad_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_sparse_accumulator_take_grad_with(const mu_accumulator_take_grad_args *args);

// ---- TensorFlow's operations, by their names ----------------------------------------------------

// Steps and counts are tensors here, so that a traced function can compute them: local_step and new_global_step are
// int64 scalars, num_required is an int32 scalar. An accumulator is the handle. TensorFlow's operations on reference
// handles (without "Resource") and those on resource handles do the same.
#define MU_CONDITIONAL_ACCUMULATOR_OP_NAME              "ConditionalAccumulator"
#define MU_ACCUMULATOR_APPLY_GRADIENT_OP_NAME           "AccumulatorApplyGradient"
#define MU_ACCUMULATOR_TAKE_GRADIENT_OP_NAME            "AccumulatorTakeGradient"
#define MU_ACCUMULATOR_NUM_ACCUMULATED_OP_NAME          "AccumulatorNumAccumulated"
#define MU_ACCUMULATOR_SET_GLOBAL_STEP_OP_NAME          "AccumulatorSetGlobalStep"
#define MU_RESOURCE_CONDITIONAL_ACCUMULATOR_OP_NAME     "ResourceConditionalAccumulator"
#define MU_RESOURCE_ACCUMULATOR_APPLY_GRADIENT_OP_NAME  "ResourceAccumulatorApplyGradient"
#define MU_RESOURCE_ACCUMULATOR_TAKE_GRADIENT_OP_NAME   "ResourceAccumulatorTakeGradient"
#define MU_RESOURCE_ACCUMULATOR_NUM_ACCUMULATED_OP_NAME "ResourceAccumulatorNumAccumulated"
#define MU_RESOURCE_ACCUMULATOR_SET_GLOBAL_STEP_OP_NAME "ResourceAccumulatorSetGlobalStep"
#define MU_SPARSE_CONDITIONAL_ACCUMULATOR_OP_NAME       "SparseConditionalAccumulator"
#define MU_SPARSE_ACCUMULATOR_APPLY_GRADIENT_OP_NAME    "SparseAccumulatorApplyGradient"
#define MU_SPARSE_ACCUMULATOR_TAKE_GRADIENT_OP_NAME     "SparseAccumulatorTakeGradient"

#define mu_resource_conditional_accumulator(...) mu_conditional_accumulator(__VA_ARGS__)
// Unlike mu_accumulator_apply_grad, it checks shapes only when it runs, also in a trace.
MU_API mu_status mu_resource_accumulator_apply_gradient(mu_accumulator *handle, mu_tensor *local_step,
                                                        mu_tensor *gradient);
// dtype is the type of the result, which must be the accumulator's. Errors: as mu_accumulator_take_grad.
MU_API mu_tensor *mu_resource_accumulator_take_gradient(mu_accumulator *handle, mu_tensor *num_required,
                                                        mu_dtype dtype);
MU_API mu_tensor *mu_resource_accumulator_num_accumulated(mu_accumulator *handle);
MU_API mu_status mu_resource_accumulator_set_global_step(mu_accumulator *handle, mu_tensor *new_global_step);
// indices are int64; gradient_shape may be NULL (TensorFlow's has_known_shape = false).
MU_API mu_status mu_sparse_accumulator_apply_gradient(mu_accumulator *handle, mu_tensor *local_step,
                                                      mu_tensor *gradient_indices, mu_tensor *gradient_values,
                                                      mu_tensor *gradient_shape);
// Errors: as mu_accumulator_take_grad.
MU_API mu_value *mu_sparse_accumulator_take_gradient(mu_accumulator *handle, mu_tensor *num_required, mu_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
