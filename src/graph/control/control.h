// Control flow ops (cond, while_loop, call): what their attributes mean, and how bodies are traced.
//
// A body is a graph. Its first inputs are defined by the op; the inputs after them are captured tensors, which are
// inputs of the node as well. The two branches of a cond, and condition and body of a loop, capture the same tensors.
#ifndef MU_SRC_GRAPH_CONTROL_H
#define MU_SRC_GRAPH_CONTROL_H

#include "graph/trace.h"

#include <muster/control.h>

// cond: the inputs are the predicate, then the inputs of the branches. The first n_shared outputs of both branches are
// the node's. Further outputs are values kept for the gradient: those of `then`, followed by those of `otherwise`; they
// are undefined if the other branch ran.
typedef struct mu_cond_attrs {
    mu_graph *then, *otherwise;
    int64_t n_shared;
} mu_cond_attrs;

// while_loop: the inputs are the limit (int64 scalar, the maximum number of iterations), n_carried values, n_slices
// tensors of which iteration t gets slice t along the first axis, and captured tensors. The condition (NULL: run until
// the limit) takes the carried and captured values. The body takes all three groups, and returns the next carried
// values, then rows. The outputs are the number of iterations (int64), the carried values, and for each row the stack
// over all iterations. In reverse, iteration t reads and writes slice limit - 1 - t. Stacks have `rows` rows (those
// after the last iteration are undefined); -1 means as many as the slices have or, without slices, as there were
// iterations.
typedef struct mu_loop_attrs {
    mu_graph *condition, *body;
    int64_t n_carried, n_slices, rows;
    bool reverse;
} mu_loop_attrs;

// call: the inputs and outputs are the body's. With `recompute` the body is not inlined: the gradient computes it
// again, and results of effects in it are further outputs. `gradient` (NULL: none) is a custom gradient. In that case
// the inputs are arguments, results and tensors captured by the gradient; the outputs are the results; and the gradient
// graph takes arguments, results, gradients of the results and captured tensors, and returns the gradients of the
// arguments.
typedef struct mu_call_attrs {
    mu_graph *body, *gradient;
    bool recompute;
} mu_call_attrs;

// The bodies of a control flow node, the number of each one's own inputs (captured inputs follow), and the index of the
// first captured input among the node's inputs.
typedef struct mu_bodies {
    int n;
    mu_graph **at[2]; // fields of the attributes: then and otherwise, body and condition, body
    int n_own[2];
    int first_captured;
} mu_bodies;
mu_bodies mu__bodies_of(const mu_op *op, void *attrs);

// ---- Tracing bodies (body_trace.c) --------------------------------------------------------------

// A body being traced: begin, inputs, ops, outputs, end. Between begin and end, the thread's ops go into its graph.
typedef struct mu_body_trace {
    mu_graph_trace trace;
    mu_suspended outside;
    mu_pool *pool;
    bool reads_again; // a condition: what other processes change is read before each round, not once before the loop
} mu_body_trace;

mu_status mu__body_begin(mu_body_trace *body, const char *name);
mu_tensor *mu__body_input(mu_body_trace *body, const mu_spec *spec);
mu_status mu__body_output(mu_body_trace *body, mu_tensor *tensor);
void mu__body_end(mu_body_trace *body);
// mu__body_free releases everything that is left; call it in every case. Retain a graph to keep it.
void mu__body_free(mu_body_trace *body);

// mu__bodies_join gives several bodies the same captured inputs, in one order, after each one's own inputs. `captured`
// gets the tensors (free the array with mu__free; the bodies hold the references).
mu_status mu__bodies_join(int n, mu_body_trace *const *bodies, mu_tensor ***captured, int *n_captured);

// mu__control_apply joins traced bodies and applies a control flow op to `n_own` inputs and the captured tensors. The
// attributes must hold the bodies' graphs. `out` gets the outputs (free the array with mu__free).
mu_status mu__control_apply(const mu_op *op, const void *attrs, int n, mu_body_trace *const *bodies, int n_own,
                            mu_tensor *const *own, mu_tensor ***out);

// mu__body_hoist_reads turns reads of variables that no body writes into captured inputs, and ties other reads to a
// read outside (op inner_read), so that gradients with respect to the variable can flow out of the body.
mu_status mu__body_hoist_reads(int n, mu_body_trace *const *bodies);

// mu__bodies_resources lists the resources of several graphs without duplicates; free with mu__free.
mu_status mu__bodies_resources(int n, mu_graph *const *graphs, mu_resource ***resources, int *n_resources);

// mu__tape_listens returns whether a tape is open, so that values must be kept for its gradient.
bool mu__tape_listens(void);

// mu__body_keep adds every value that a gradient rule may need to a graph's outputs: results of nodes and, in a loop's
// body (n_carried >= 0), the carried inputs.
mu_status mu__body_keep(mu_graph *graph, int n_carried);

// mu__find_output returns the index of the first output, from `from` on, that is this value; -1 if none is.
int mu__find_output(const mu_graph *graph, size_t from, const mu_node *node, int output);

// ---- Gradients (control_grad.c) -----------------------------------------------------------------

mu_tensor *mu__cond_grad(mu_grad *g, int i);
mu_tensor *mu__loop_grad(mu_grad *g, int i);
mu_tensor *mu__call_grad(mu_grad *g, int i);
mu_tensor *mu__eager_custom_grad(mu_grad *g, int i);

// The gradients of call (call.c): at[i] gets the gradient of input i, an owned reference, or stays NULL.
mu_status mu__call_gradients(mu_grad *g, mu_tensor **at);
mu_status mu__eager_custom_gradients(mu_grad *g, mu_tensor **at);

// mu__graph_replay applies a graph's ops to other inputs, in a trace or eagerly; `out` gets the outputs. With `known`,
// which returns earlier results of effects, effects do not happen again but tapes record them; NULL: effects happen.
typedef mu_tensor *mu_known_value(void *arg, const mu_node *node, int output);
mu_status mu__graph_replay(const mu_graph *graph, mu_tensor *const *in, mu_known_value *known, void *arg,
                           mu_tensor **out);

// mu__graph_unroll copies a pure graph for known shapes of its inputs, with copies of the body in place of each loop
// that contains a collective and whose number of iterations is then known (unroll.c). Owned by the caller; NULL on
// error.
mu_graph *mu__graph_unroll(const mu_graph *graph, const mu_spec *inputs);

// ---- Lowerings to StableHLO (lower_control.c) ---------------------------------------------------

mu_status mu__lower_cond(mu_lowering *l);
mu_status mu__lower_loop(mu_lowering *l);
mu_status mu__lower_call(mu_lowering *l);

// ---- Values (control_value.c) -------------------------------------------------------------------

// The tensors of a value, in order.
typedef struct mu_tensors {
    int n;
    mu_tensor **at; // borrowed; the array is for mu__free
} mu_tensors;

// mu__tensors_of lists them. Errors: INVALID_ARGUMENT for anything that is not a tensor; `what` names the value.
mu_status mu__tensors_of(const mu_value *value, const char *what, mu_tensors *out);
// mu__body_finish makes the tensors of a callback's result the body's outputs, lists them in `out`, and ends the body.
// On error mu__body_free ends it. `what` names the caller.
mu_status mu__body_finish(mu_body_trace *body, mu_value *result, const char *what, mu_tensors *out);
// mu__body_inputs returns the structure of `like` with a new input of the body for each tensor, of type and shape
// spec(tensor).
typedef mu_spec mu_spec_for(const mu_tensor *tensor);
mu_value *mu__body_inputs(mu_body_trace *body, const mu_value *like, const mu_tensors *tensors, mu_spec_for *spec);
// mu__value_around builds the structure of `like` (NULL: an empty list) from tensors; the result belongs to the pool.
mu_value *mu__value_around(const mu_value *like, mu_tensor *const *tensors);

#endif
