// Control flow inside and outside of traced functions: branches, loops, scans.
//
// The bodies are C callbacks that take and return values. Outside of a trace they are simply called; in a trace
// each becomes a graph inside the graph, and tensors that it uses from around it become inputs of the node.
// All have gradients. A body may be traced more than once, so it must do nothing but build.
#ifndef MUSTER_CONTROL_H
#define MUSTER_CONTROL_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef mu_value *mu_body(mu_value *arguments, void *arg);
typedef mu_tensor *mu_condition(mu_value *loop_vars, void *arg);

// ---- Branches -----------------------------------------------------------------------------------

// mu_cond returns true_fn(arguments, arg) if pred (a bool scalar) holds, otherwise false_fn(arguments, arg). Both must
// give one structure with equal element types and ranks; where dimensions differ, the result's is unknown. In a trace
// only the branch that is taken runs. Branches may have effects; a collective in one needs every replica to take it.
MU_API mu_value *mu_cond(mu_tensor *pred, mu_body *true_fn, mu_body *false_fn, mu_value *arguments, void *arg);

// mu_switch_case calls branches[index] (an int32 or int64 scalar); an index outside [0, n) takes the last one.
MU_API mu_value *mu_switch_case(mu_tensor *index, int n, mu_body *const *branches, mu_value *arguments, void *arg);

// ---- Loops --------------------------------------------------------------------------------------

// mu_while_loop repeats loop_vars = body(loop_vars, arg) while condition(loop_vars, arg), a bool scalar, holds, and
// returns the last loop_vars. Structure, element types and ranks must stay; a dimension that changes becomes unknown
// to the body (TensorFlow's shape invariants, found by themselves). With maximum_iterations the memory that gradients
// need is laid out once; without, it grows while the loop runs.
typedef struct mu_while_loop_args {
    size_t size;
    mu_condition *condition;
    mu_body *body;
    mu_value *loop_vars;
    void *arg;                   // given to both
    mu_keyword_only only_;
    int64_t maximum_iterations;  // 0: no limit
    const char *name;            // for messages; default "while_loop"
} mu_while_loop_args;
#define mu_while_loop(...) mu_while_loop_with(MU_ARGS(mu_while_loop_args, __VA_ARGS__))
MU_API mu_value *mu_while_loop_with(const mu_while_loop_args *args);

// mu_scan calls state = fn([state, element], arg) for each slice of elems along the first axis, in order (or from
// the last to the first), and returns the states of all steps stacked along a new first axis. elems is any nest of
// tensors with equal first axes; the structure of state is that of initializer.
typedef mu_value *mu_scan_step(mu_value *state, mu_value *element, void *arg);
typedef struct mu_scan_args {
    size_t size;
    mu_scan_step *fn;
    mu_value *elems;
    mu_value *initializer;
    void *arg;
    mu_keyword_only only_;
    bool reverse;
    const char *name;            // default "scan"
} mu_scan_args;
#define mu_scan(...) mu_scan_with(MU_ARGS(mu_scan_args, __VA_ARGS__))
MU_API mu_value *mu_scan_with(const mu_scan_args *args);

// mu_map_fn calls fn(element, arg) for each slice of elems along the first axis and stacks what it gives.
MU_API mu_value *mu_map_fn(mu_body *fn, mu_value *elems, void *arg);

// mu_vectorized_map does the same at once for all slices: each op of fn gets an axis more, by a rule for the op. An op
// without a rule is done slice by slice (the log says which, MUSTER_LOG=info). With a tape inside of fn it gives
// gradients per example. mu_generator_next draws for each slice. Effects that depend on the slices are UNIMPLEMENTED.
MU_API mu_value *mu_vectorized_map(mu_body *fn, mu_value *elems, void *arg);

// ---- Gradients of one's own ---------------------------------------------------------------------

// mu_custom_gradient returns forward(arguments, arg); gradients pass through it by backward instead of by the ops that
// forward uses. backward gets the arguments, the results, and the gradients of the results (zeros where there are
// none), and returns one gradient for each tensor of the arguments. Tensors that forward uses beside its arguments
// have no gradient.
typedef mu_value *mu_backward(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg);
MU_API mu_value *mu_custom_gradient(mu_body *forward, mu_backward *backward, mu_value *arguments, void *arg);

// mu_recompute_grad returns fn(arguments, arg). In a trace nothing that fn computes inside is kept for the gradient: it
// is computed again when the gradient is, from the arguments and what fn uses from around; effects (draws of random
// numbers among them) happen once. Outside of traces it only calls fn.
MU_API mu_value *mu_recompute_grad(mu_body *fn, mu_value *arguments, void *arg);

// ---- Jacobians and directional derivatives ------------------------------------------------------

// mu_tape_jacobian returns the derivatives of every element of y with respect to every element of the sources: for
// each a tensor of shape [y…, source…]. The gradient is taken once per element. Where a trace knows more than one of
// these dimensions only when it runs, y must have one axis.
MU_API mu_value *mu_tape_jacobian(mu_tape *tape, mu_tensor *y, mu_value *sources);

// mu_tape_batch_jacobian does so for each row of y and x alone, which must not influence each other: y: [n, …],
// x: [n, …]; the result is [n, y…, x…]. It takes one gradient per element of a row.
MU_API mu_tensor *mu_tape_batch_jacobian(mu_tape *tape, mu_tensor *y, mu_tensor *x);

// mu_jvp returns [results, tangents]: fn(primals, arg), and its derivative along `tangents`, which have the structure
// of primals (forward-mode differentiation, made of two backward passes; fn must be differentiable twice).
MU_API mu_value *mu_jvp(mu_body *fn, mu_value *primals, mu_value *tangents, void *arg);

#ifdef __cplusplus
}
#endif
#endif
