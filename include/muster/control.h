// Control flow inside and outside of traced functions: branches, loops, scans.
//
// Bodies are C callbacks that take and return values. Outside a trace they are simply called. In a trace, each body
// becomes a subgraph, and tensors that it captures become inputs of the node. All of these functions have gradients. A
// body may be traced more than once, so it must have no side effects of its own: it only builds. A variable among the
// values of a loop, a scan or a map, or in what a body or a traced branch returns, stands for what it holds then.
//
// Errors: those of a body, and INVALID_ARGUMENT if what bodies return differs in structure, types or ranks from what it
// must match, or if the tensors of `elems` differ in their first axes.
#ifndef MUSTER_CONTROL_H
#define MUSTER_CONTROL_H

#include <muster/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef mu_value *mu_body(mu_value *arguments, void *arg);
typedef mu_tensor *mu_condition(mu_value *loop_vars, void *arg);

// ---- Branches -----------------------------------------------------------------------------------

// mu_cond returns true_fn(arguments, arg) if pred (a bool scalar) is true, otherwise false_fn(arguments, arg). Both
// must return the same structure with equal element types and ranks; a dimension that differs is unknown in the result.
// In a trace only the branch that is taken runs. Branches may have effects. If a branch contains a collective, every
// replica must take that branch. On XLA devices a run whose replicas take different ones fails with
// FAILED_PRECONDITION; so does a loop with a collective inside whose replicas want different numbers of iterations.
MU_API mu_value *mu_cond(mu_tensor *pred, mu_body *true_fn, mu_body *false_fn, mu_value *arguments, void *arg);

// mu_switch_case calls branches[index] (index: int32 or int64 scalar); an index outside [0, n) selects the last branch.
MU_API mu_value *mu_switch_case(mu_tensor *index, int n, mu_body *const *branches, mu_value *arguments, void *arg);

// ---- Loops --------------------------------------------------------------------------------------

// mu_while_loop repeats loop_vars = body(loop_vars, arg) while condition(loop_vars, arg), a bool scalar, is true, and
// returns the last loop_vars. Structure, element types and ranks must not change. A dimension that changes becomes
// unknown to the body (TensorFlow's shape invariants, found automatically). With maximum_iterations, memory for
// gradients is allocated once; without it, memory grows while the loop runs.
typedef struct mu_while_loop_args {
    size_t size;
    const char *given;
    mu_condition *condition; // returns a bool scalar: whether to run the body again
    mu_body *body;           // returns the next loop_vars
    mu_value *loop_vars;     // the first loop_vars
    void *arg;               // passed to both
    mu_keyword_only only_;
    int64_t maximum_iterations; // 0: no limit
    const char *name;           // for messages; default "while_loop"
} mu_while_loop_args;
#define mu_while_loop(...) mu_while_loop_with(MU_ARGS(mu_while_loop_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_while_loop_with(const mu_while_loop_args *args);

// mu_scan calls state = fn(state, element, arg) for each slice of elems along the first axis, from first to last (or
// last to first with .reverse), and returns the states of all steps stacked along a new first axis. elems is any nest
// of tensors with equal first axes. The first state is initializer; fn must return its structure.
typedef mu_value *mu_scan_step(mu_value *state, mu_value *element, void *arg);
typedef struct mu_scan_args {
    size_t size;
    const char *given;
    mu_scan_step *fn;      // returns the next state
    mu_value *elems;       // tensors [n, …]; n is the same for all
    mu_value *initializer; // the first state
    void *arg;             // passed to fn
    mu_keyword_only only_;
    bool reverse;     // from the last slice to the first
    const char *name; // default "scan"
} mu_scan_args;
#define mu_scan(...) mu_scan_with(MU_ARGS(mu_scan_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_value *mu_scan_with(const mu_scan_args *args);

// mu_map_fn calls fn(element, arg) for each slice of elems along the first axis and stacks the results.
MU_API mu_value *mu_map_fn(mu_body *fn, mu_value *elems, void *arg);

// mu_vectorized_map computes what mu_map_fn does, for all slices at once: a rule for each op of fn adds a batch axis.
// An op without a rule runs slice by slice (MUSTER_LOG=info names it). With a tape inside fn the result is per-example
// gradients. mu_generator_next draws separately for each slice. Errors: UNIMPLEMENTED for effects that depend on the
// slices.
MU_API mu_value *mu_vectorized_map(mu_body *fn, mu_value *elems, void *arg);

// ---- Custom gradients ---------------------------------------------------------------------------

// mu_custom_gradient returns forward(arguments, arg). Gradients use `backward` instead of the gradients of forward's
// ops. backward gets the arguments, the results and the gradients of the results (zeros where there is none), and
// returns one gradient for each tensor of the arguments. Tensors that forward captures get no gradient. Errors:
// INVALID_ARGUMENT, with the gradient, if backward returns another number of tensors.
typedef mu_value *mu_backward(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg);
MU_API mu_value *mu_custom_gradient(mu_body *forward, mu_backward *backward, mu_value *arguments, void *arg);

// mu_recompute_grad returns fn(arguments, arg) and saves memory: in a trace, intermediate results of fn are not kept
// for the gradient but computed again from the arguments and captured tensors. Effects, including random draws, happen
// once. Outside a trace it only calls fn.
MU_API mu_value *mu_recompute_grad(mu_body *fn, mu_value *arguments, void *arg);

// ---- Jacobians and directional derivatives ------------------------------------------------------

// mu_tape_jacobian returns the derivatives of every element of y with respect to every element of the sources: for each
// source a tensor of shape [y…, source…]. It computes one gradient per element of y. Errors: UNIMPLEMENTED in a trace
// that does not know more than one dimension of the result; give y one axis.
MU_API mu_value *mu_tape_jacobian(mu_tape *tape, mu_tensor *y, mu_value *sources);

// mu_tape_batch_jacobian computes a Jacobian for each row separately; row i of y must depend on row i of x only. y: [n,
// …], x: [n, …]; result: [n, y…, x…]. It computes one gradient per element of a row. Errors: as mu_tape_jacobian.
MU_API mu_tensor *mu_tape_batch_jacobian(mu_tape *tape, mu_tensor *y, mu_tensor *x);

// mu_jvp returns [results, tangents]: fn(primals, arg) and its derivative in the direction `tangents`, which has the
// structure of primals. This is forward-mode differentiation made of two backward passes, so fn must be twice
// differentiable.
MU_API mu_value *mu_jvp(mu_body *fn, mu_value *primals, mu_value *tangents, void *arg);

#ifdef __cplusplus
}
#endif
#endif
