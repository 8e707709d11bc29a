// Ops that run graphs: what their attributes mean, and how bodies are traced.
//
// A body is a graph whose first inputs its op defines; those behind them are what it uses from around it, and are
// inputs of the node as well. Both branches of a cond, and both graphs of a loop, take the same ones.
#ifndef MU_SRC_GRAPH_CONTROL_H
#define MU_SRC_GRAPH_CONTROL_H

#include "graph/trace.h"

#include <muster/control.h>

// cond: inputs are the predicate, then what the branches take. The first n_shared outputs of both are the node's;
// then come the others of `then`, then those of `otherwise`: values kept for the gradient, undefined where the other
// branch was taken.
typedef struct mu_cond_attrs {
    mu_graph *then, *otherwise;
    int64_t n_shared;
} mu_cond_attrs;

// while_loop: inputs are the limit (int64 scalar: at most so many iterations), n_carried values, n_slices tensors of
// which each iteration gets the slice number t along the first axis, and what is used from around. The condition (NULL:
// until the limit) takes the carried values and the last group; the body takes all three, and gives the carried values
// of the next iteration, then rows. Outputs: how many iterations were made (int64), the carried values, and each row of
// all iterations stacked. In reverse, iteration t gets and gives number limit - 1 - t. Stacks have `rows` rows (those
// behind the last iteration are undefined); where that is -1, as many as the slices or, without slices, as there were
// iterations.
typedef struct mu_loop_attrs {
    mu_graph *condition, *body;
    int64_t n_carried, n_slices, rows;
    bool reverse;
} mu_loop_attrs;

// call: inputs and outputs are the body's. Where `recompute` the body stays one, and what effects in it gave are
// further outputs: for the gradient it is computed again. `gradient` (NULL: none) is a custom one. Then the inputs are
// arguments, results, and what the gradient uses from around; the outputs are the results; and the gradient takes
// arguments, results, gradients of the results, and the rest, and gives the gradients of the arguments.
typedef struct mu_call_attrs {
    mu_graph *body, *gradient;
    bool recompute;
} mu_call_attrs;

// The bodies of a node of control flow, as its attributes hold them: what the captured inputs of each follow, and where
// they begin among the node's.
typedef struct mu_bodies {
    int n;
    mu_graph **at[2];   // fields of the attributes: then and otherwise, body and condition, body
    int n_own[2];
    int first_captured;
} mu_bodies;
mu_bodies mu__bodies_of(const mu_op *op, void *attrs);

// ---- Tracing bodies (body_trace.c) --------------------------------------------------------------

// A body while it is traced: begin, inputs, ops, outputs, end. In between the thread's ops go into its graph.
typedef struct mu_body_trace {
    mu_graph_trace trace;
    mu_suspended outside;
    mu_pool *pool;
} mu_body_trace;

mu_status mu__body_begin(mu_body_trace *body, const char *name);
mu_tensor *mu__body_input(mu_body_trace *body, const mu_spec *spec);
mu_status mu__body_output(mu_body_trace *body, mu_tensor *tensor);
void mu__body_end(mu_body_trace *body);
// mu__body_free releases what is left: call it in every case. A graph that is kept is retained before.
void mu__body_free(mu_body_trace *body);

// mu__bodies_join makes the captured inputs of several bodies the same, in one order, behind each one's own inputs.
// `captured` gets the tensors, for mu__free; references stay with the bodies.
mu_status mu__bodies_join(int n, mu_body_trace *const *bodies, mu_tensor ***captured, int *n_captured);

// mu__control_apply joins traced bodies and applies an op of control flow to `n_own` inputs and what the bodies
// captured. The attributes must hold the bodies' graphs. `out` gets the outputs, for mu__free.
mu_status mu__control_apply(const mu_op *op, const void *attrs, int n, mu_body_trace *const *bodies, int n_own,
                            mu_tensor *const *own, mu_tensor ***out);

// mu__body_hoist_reads makes reads of variables that no body writes into captured inputs, and ties others to a read
// outside (op inner_read), so that gradients with respect to the variable pass outside.
mu_status mu__body_hoist_reads(int n, mu_body_trace *const *bodies);

// mu__bodies_resources lists the resources of several graphs, each once; for mu__free.
mu_status mu__bodies_resources(int n, mu_graph *const *graphs, mu_resource ***resources, int *n_resources);

// Whether a tape is listening, so that values must be kept for its gradient.
bool mu__tape_listens(void);

// mu__body_keep adds every value of a graph that a gradient rule may ask for to its outputs: what nodes give, and of
// a loop's body (n_carried >= 0) the carried inputs.
mu_status mu__body_keep(mu_graph *graph, int n_carried);

// mu__find_output returns the first output, from number `from` on, that is this value; -1: none.
int mu__find_output(const mu_graph *graph, size_t from, const mu_node *node, int output);

// ---- Gradients (control_grad.c) -----------------------------------------------------------------

mu_tensor *mu__cond_grad(mu_grad *g, int i);
mu_tensor *mu__loop_grad(mu_grad *g, int i);
mu_tensor *mu__call_grad(mu_grad *g, int i);
mu_tensor *mu__eager_custom_grad(mu_grad *g, int i);

// What these two are made of (call.c): at[i] gets the gradient of input i, an owned reference, or stays NULL.
mu_status mu__call_gradients(mu_grad *g, mu_tensor **at);
mu_status mu__eager_custom_gradients(mu_grad *g, mu_tensor **at);

// mu__graph_replay applies the ops of a graph, in a trace or at once, to other inputs; `out` gets its outputs. `known`
// (NULL: effects happen) gives what effects gave, which do not happen again; tapes hear of them all the same.
typedef mu_tensor *mu_known_value(void *arg, const mu_node *node, int output);
mu_status mu__graph_replay(const mu_graph *graph, mu_tensor *const *in, mu_known_value *known, void *arg,
                           mu_tensor **out);

// ---- Values (control_value.c) -------------------------------------------------------------------

// The tensors of a value, in order.
typedef struct mu_tensors {
    int n;
    mu_tensor **at;   // borrowed; the array is for mu__free
} mu_tensors;

// mu__tensors_of lists them. Errors: INVALID_ARGUMENT where something else than a tensor is in it; `what` names it.
mu_status mu__tensors_of(const mu_value *value, const char *what, mu_tensors *out);
// mu__body_finish makes the tensors of what a callback gave a body's outputs, lists them in `out`, and ends the body;
// on error it is left to mu__body_free. `what` names the caller.
mu_status mu__body_finish(mu_body_trace *body, const mu_value *result, const char *what, mu_tensors *out);
// mu__body_inputs gives the structure of `like` around new inputs of a body, one for each of the tensors, of the spec
// that `spec` says.
typedef mu_spec mu_spec_for(const mu_tensor *tensor);
mu_value *mu__body_inputs(mu_body_trace *body, const mu_value *like, const mu_tensors *tensors, mu_spec_for *spec);
// mu__value_around builds the structure of `like` (NULL: an empty list) around tensors; given to the pool.
mu_value *mu__value_around(const mu_value *like, mu_tensor *const *tensors);

#endif
