// The function graph: traces make it, passes change it, engines compile it, and the wire format carries it.
//
// A graph is single-program-multiple-data: traced once, run on every replica. Nodes are in program order, which is also
// the order of effects on each resource. Batch axes are unknown dimensions; an engine makes a plan for each set of
// known shapes. All memory of a graph is in its arena. Graphs do not depend on engines.
#ifndef MU_SRC_GRAPH_GRAPH_H
#define MU_SRC_GRAPH_GRAPH_H

#include "ops/core/op.h"

#include <muster/graph.h>
#include <pthread.h>

typedef struct mu_node mu_node;
typedef struct mu_graph mu_graph;

typedef struct mu_edge {
    mu_node *node;
    int output;
} mu_edge;

struct mu_node {
    const mu_op *op;
    const void *attrs;
    mu_graph *graph;
    int id;         // position in graph->nodes
    int64_t number; // of a collective: how many were made before it, independent of shapes; copies keep it
    unsigned flags; // the op's, and the effects of its bodies
    int n_in, n_out, n_resources;
    mu_edge *in;
    mu_spec *out;
    int *resources;   // indices into graph->resources
    const char *name; // for messages and timelines; may be NULL. Of an assignment to a part of a variable: the
                      // whole variable's, so that the code that runs the effects can request all parts at the
                      // same time
    const char *file; // where the op was made
    int line;
    const char *layer;    // layer that it is part of; NULL: none
    const char *function; // composite function that it is part of (static text); NULL: none
};

struct mu_graph {
    mu_object object;
    mu_arena arena;
    const char *name;
    struct {
        mu_node **items;
        size_t n, capacity;
    } nodes;
    struct {
        mu_node **items;
        size_t n, capacity;
    } inputs; // op `input`, in signature order
    struct {
        mu_edge *items;
        size_t n, capacity;
    } outputs;
    struct {
        mu_resource **items;
        size_t n, capacity;
    } resources;           // retained
    bool collective;       // contains a collective, so all replicas must run it
    int64_t n_collectives; // how many were added
    unsigned effects;      // effect flags (mu_op_flags) of all nodes
    int depth;             // nesting depth of bodies
};

extern mu_type mu__graph_type;

// ---- Building (graph.c) -------------------------------------------------------------------------

mu_graph *mu__graph_new(const char *name); // owned by the caller
// mu__graph_node appends a node, after the op's shape rule has checked it, and returns it; NULL on error.
mu_node *mu__graph_node(mu_graph *graph, const mu_op *op, const void *attrs, int n_in, const mu_edge *in,
                        int n_resources, mu_resource *const *resources);
mu_node *mu__graph_input(mu_graph *graph, const mu_spec *spec, const char *name);
mu_node *mu__graph_constant(mu_graph *graph, mu_tensor *tensor); // its elements are on the host from then on
// mu__node_set_site records where the op was made; it copies the names of file and layer. mu__node_site returns it.
mu_status mu__node_set_site(mu_node *node, mu_site site);
static inline mu_site mu__node_site(const mu_node *node)
{
    return (mu_site){.file = node->file, .line = node->line, .layer = node->layer, .function = node->function};
}
int mu__graph_resource(mu_graph *graph, mu_resource *resource); // index; added if new; -1 on error
// mu__graph_slots numbers the values of a graph: output i of a node is slot first[node's id] + i, and first[nodes.n] is
// the number of slots. The list is in the arena, or without one the caller's (mu__free); NULL on error.
int *mu__graph_slots(const mu_graph *graph, mu_arena *arena);
mu_graph *mu__graph_clone(const mu_graph *graph); // for engines that rewrite; owned by the caller
// mu__graph_rewrite changes a node into another op with other inputs, at its position; users see the new outputs. The
// inputs must precede it. On error the node is unchanged. mu__graph_rewrite_effect does so for ops with resources.
mu_status mu__graph_rewrite(mu_node *node, const mu_op *op, const void *attrs, int n_in, const mu_edge *in);
mu_status mu__graph_rewrite_effect(mu_node *node, const mu_op *op, const void *attrs, int n_in, const mu_edge *in,
                                   int n_resources, mu_resource *const *resources);
mu_status mu__graph_dot(const mu_graph *graph, const char *path); // writes a Graphviz file (dot.c)
void mu__graph_print(const mu_graph *graph, FILE *out);           // prints one line per node

// ---- Graphs in attributes (body.c) --------------------------------------------------------------

enum { MU_MAX_DEPTH = 10 }; // graphs inside graphs

// mu__node_body returns the i-th graph in a node's attributes; NULL after the last.
mu_graph *mu__node_body(const mu_node *node, int i);
// mu__node_writes returns whether a node, or a node in its bodies, writes its k-th resource.
bool mu__node_writes(const mu_node *node, int k);
// mu__node_endangers returns whether a failed run that has begun a node leaves its k-th resource in doubt: the node, or
// a node in its bodies, writes it and does more than draw from it. One draw more does no harm.
bool mu__node_endangers(const mu_node *node, int k);
// mu__replace_bodies replaces each body of a node by change(body), and takes ownership of the returned references.
mu_status mu__replace_bodies(mu_node *node, mu_graph *(*change)(const mu_graph *body));
// mu__graph_shapes runs a graph's shape rules for other input specs; `out` gets the output specs.
mu_status mu__graph_shapes(const mu_graph *graph, const mu_spec *in, mu_spec *out);
// mu__graph_inline copies a graph and inlines the bodies of calls; with `all` also those that the gradient recomputes
// (inline.c). Owned by the caller.
mu_graph *mu__graph_inline(const mu_graph *graph, bool all);
// mu__admit_bodies sets a new node's flags. It fails for bodies nested too deep, or that use resources the node lacks.
mu_status mu__admit_bodies(mu_node *node, mu_resource *const *resources);

// ---- Passes (pass*.c): each leaves a valid graph ------------------------------------------------

mu_status mu__pass_prune(mu_graph *graph); // removes nodes that reach no output and no effect
mu_status mu__pass_share(mu_graph *graph); // merges common subexpressions and repeated reads
// prunes and shares inside bodies; removes their unused inputs and outputs
mu_status mu__pass_bodies(mu_graph *graph);
mu_status mu__pass_reductions(mu_graph *graph); // packs reductions and decides when they start (reductions.c)
mu_status mu__pass_fold(mu_graph *graph);       // computes small values that depend only on constants (pass_fold.c)
// mu__fold_op computes the output of an op whose inputs are known; known[i] NULL: input i has only its type and shape.
// Owned by the caller. NULL without an error: that is not enough, the op is not pure, it fails, or its output is large.
mu_tensor *mu__fold_op(const mu_op *op, const void *attrs, int n_in, const mu_spec *in, mu_tensor *const *known,
                       const mu_spec *out);
mu_status mu__pass_algebra(mu_graph *graph); // simplifies to fewer ops with the same bits (pass_algebra.c)
// mu__pass_state turns a graph with effects on variables into a pure one (pass_state.c): the values of `resources`
// become further inputs, and their final values further outputs in the same order. A variable that is only read is
// returned unchanged. Owned by the caller. Errors: UNIMPLEMENTED for state that is not the replica's own.
mu_graph *mu__pass_state(const mu_graph *graph);
// mu__graph_check (check.c) verifies that a graph is valid: order, numbers, types and shapes. Debug builds do so after
// every pass.
mu_status mu__graph_check(const mu_graph *graph);
// mu__graph_assert runs mu__graph_check in debug builds and aborts if the graph is invalid; in release builds it does
// nothing. Error: RESOURCE_EXHAUSTED if there is no memory for the check.
mu_status mu__graph_assert(const mu_graph *graph);
mu_status mu__graph_optimize(mu_graph *graph); // runs all passes in order

// ---- Tracing (trace.c) --------------------------------------------------------------------------

typedef mu_value *mu_traceable(mu_value *arguments, void *arg);

// The result of a trace; owned by the caller.
typedef struct mu_traced {
    mu_graph *graph;   // NULL: it failed
    mu_value *inputs;  // the arguments as the callback saw them: symbolic tensors
    mu_value *outputs; // its result, as symbolic tensors; NULL: none
    bool collective;   // the callback called one, also if it failed then
} mu_traced;

// mu__trace_run calls fn once with a symbolic tensor of specs[i] for the i-th tensor leaf of `like`, and records its
// ops. `first`: the function may still make variables.
mu_status mu__trace_run(const char *name, mu_traceable *fn, void *arg, const mu_value *like, const mu_spec *specs,
                        bool first, mu_traced *out);

// mu__trace_suspend takes this thread out of its trace and pauses its tapes, so that the following ops run eagerly
// (initial values of variables made while tracing). mu__trace_resume undoes it.
typedef struct mu_suspended {
    struct mu_trace *trace;
    struct mu_tape *tape;
} mu_suspended;
mu_suspended mu__trace_suspend(void);
void mu__trace_resume(mu_suspended suspended);

// ---- Functions (function.c) ---------------------------------------------------------------------

// One traced graph of a function, for one signature.
typedef struct mu_concrete {
    mu_object object;
    mu_graph *graph;
    mu_value *inputs;     // structure of the arguments (leaves: symbolic tensors or variables)
    mu_value *outputs;    // structure of the result; NULL: none
    bool gathers;         // a result's shape depends on the sizes of other replicas
    bool announced;       // its reductions were logged (distribute/core/announce.c)
    bool differs;         // its program differs between workers, which was logged (distribute/run/joined_run.c)
    bool *own;            // per input: was it a replica's own tensor (mu__made_here) in the trace
    void *owner;          // strategy that it was traced under; retained
    pthread_mutex_t lock; // held while plans are made
    void *_Atomic plans;  // the engine's, per device; freed by free_plans
    void (*free_plans)(void *plans);
} mu_concrete;

// Whether the first axis of every argument is a batch axis, whose size is unknown in the trace. PREFERRED: unless the
// callback can only be traced with known sizes; then it is traced for each of them.
typedef enum mu_batch { MU_BATCH_NONE, MU_BATCH_ALWAYS, MU_BATCH_PREFERRED } mu_batch;

// mu__function_concrete returns the graph for such arguments, and traces if needed. An axis that differs between calls
// is unknown in the next trace. `owner` is the current strategy; each has its own graphs. Borrowed.
mu_concrete *mu__function_concrete(mu_function *function, const mu_value *arguments, mu_batch batch, void *owner);

bool mu__function_jit_compile(const mu_function *function); // as its arguments say

// mu__concrete_of makes one of a graph that was read, and the structures that a trace would know. Owned by the caller.
mu_concrete *mu__concrete_of(mu_graph *graph, mu_value *inputs, mu_value *outputs);

// mu__function_gathers returns whether a graph of this owner has shapes that depend on the sizes of other replicas.
bool mu__function_gathers(mu_function *function, const void *owner);

// mu__function_is_collective returns whether the function is known to have collectives: a graph of this owner has one,
// or the latest trace under it has failed after one.
bool mu__function_is_collective(mu_function *function, const void *owner);

// mu__function_around returns the function that calls `around` with `function` as its argument; it is made once,
// belongs to `function` and has its name. `around` calls mu__function_inline.
mu_function *mu__function_around(mu_function *function, mu_traceable *around);

// mu__function_inline calls the callback as part of the current trace or eager replica.
mu_value *mu__function_inline(const mu_function *function, mu_value *arguments);

// mu__concrete_result puts the outputs of one run into the structure of the result; owned by the caller. Values that
// are the same on all replicas are taken from `first`, the first replica's outputs.
mu_value *mu__concrete_result(const mu_concrete *concrete, mu_tensor *const *out, mu_tensor *const *first);

// ---- Serialising (wire_write.c, wire_read.c) ----------------------------------------------------

// mu__graph_write serializes a graph (graph.proto) into one block; free with mu__free. Resources are identified by kind
// and name. Errors: INVALID_ARGUMENT for two resources with one name, or beyond a limit of wire_form.h.
mu_status mu__graph_write(const mu_graph *graph, void **bytes, size_t *size);

// Finds or makes a resource of a graph that is read. Borrowed; NULL, with or without an error, if there is none.
typedef mu_resource *mu_resource_resolver(void *arg, const char *kind, const char *name, const mu_spec *spec);

// mu__graph_read validates untrusted bytes and makes a graph of them; owned by the caller, NULL on error. Errors:
// DATA_LOSS for damage, INVALID_ARGUMENT if an op's rule fails, NOT_FOUND for a resource; the message names the node
// and its op.
mu_graph *mu__graph_read(const void *bytes, size_t size, mu_resource_resolver *resolve, void *arg);

// ---- Variables as resources (variable.c) --------------------------------------------------------

// A distributed variable is one resource with a component per local replica; a plain one has one component. The
// strategy that made it defines reads and assignments in each context.
typedef enum mu_update { MU_UPDATE_ASSIGN, MU_UPDATE_ADD, MU_UPDATE_SUB } mu_update;
typedef struct mu_variable_rules {
    mu_tensor *(*read)(mu_variable *variable); // given to the pool
    mu_status (*update)(mu_variable *variable, mu_update update, mu_tensor *value);
    // Updates rows; `kind` is a mu_scatter (ops/nn/nn.h).
    mu_status (*scatter)(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values);
    bool one_copy; // all replicas use one component
} mu_variable_rules;

typedef struct mu_residence mu_residence;

// The place of a variable's rows in the sharded variable that it is a part of.
typedef struct mu_slice_info {
    char *full_name;
    mu_shape full_shape;
    int64_t offset; // first row
} mu_slice_info;

struct mu_variable {
    mu_resource resource; // first; its name and spec are the variable's
    bool trainable;
    bool autocast; // reads in a layer have the layer's type of computation (mu_context's autocast)
    mu_variable_synchronization synchronization;
    mu_variable_aggregation aggregation;
    void *owner;          // the strategy that made it, retained; NULL: none
    bool has_rate_factor; // optimizers multiply the learning rate by `rate_factor`
    double rate_factor;
    void *constraint; // what optimizers apply after an update (model); retained; NULL: none
    const mu_variable_rules *rules;
    mu_object *deferred;  // its deferred updates by calls on workers (distribute); retained; NULL: none
    atomic_bool in_doubt; // a step of several calls failed half applied (distribute/servers/aggregation.h)
    int n_components;
    mu_tensor **components;            // the host's storage, written in place by effects only
    atomic_bool *poisoned;             // left in doubt by a failed step; replicas may share one
    bool lends;                        // a component's memory may have other holders, and is not written while it has
    mu_residence *_Atomic *residences; // [components] where the newest value is; NULL: on the host, nowhere else so far
    mu_slice_info *slice;              // NULL: not a part
    // A sharded variable has parts, retained, and no component: ops refuse its resource.
    int n_shards;
    mu_variable **shards;
};

extern mu_type mu__variable_type;
// mu__autocast converts what was read of a variable to the type that the layer in progress computes in; usually the
// types are equal and nothing is converted.
mu_tensor *mu__autocast(const mu_variable *variable, mu_tensor *value);

// The storage of components (variable_storage.c). mu__variable_fill makes them with an initial value, and
// mu__variable_empty frees them, also what a failed mu__variable_fill left.
extern const mu_resource_kind mu__variable_kind;
mu_status mu__variable_fill(mu_variable *variable, int n_components, const mu_tensor *value);
void mu__variable_empty(mu_variable *variable);

// For a server that sends and receives large values without copying them; with the lock of the variable's resource.
// mu__variable_lend returns the value of a variable on the host, whose memory later writes leave as it is: it belongs
// to the pool. NULL without a record: read it with an op. mu__variable_take makes the memory of `value`, which must not
// be written any more, the variable's own; later writes do not change it while `value` is held. False: its memory
// cannot be used, assign it with an op; or an error.
mu_tensor *mu__variable_lend(mu_variable *variable);
bool mu__variable_take(mu_variable *variable, mu_tensor *value);

// mu__variable_make makes a variable whose components all start with `value` (eager). Owned by the caller;
// the strategy fills rules and owner in.
mu_variable *mu__variable_make(const mu_variable_args *args, mu_tensor *value, int n_components);

// mu__variable_set_slice makes a variable a part of a sharded variable.
mu_status mu__variable_set_slice(mu_variable *variable, const char *full_name, const mu_shape *full_shape,
                                 int64_t offset);

// The raw operations on the component that the current replica sees (the first outside of replicas): ops
// in a trace, done at once otherwise.
mu_tensor *mu__variable_read(mu_variable *variable);
mu_status mu__variable_update(mu_variable *variable, mu_update update, mu_tensor *value);

// mu__variable_gather returns rows of the first axis: indices.shape + the shape of a row. Of a variable that a server
// keeps only these rows are read, each once; of any other the rows of its value.
mu_tensor *mu__variable_gather(mu_variable *variable, mu_tensor *indices);

// ---- Cached reads (read_cache.c) ----------------------------------------------------------------

// mu__read_cache_open opens a scope of cached reads on this thread, mu__read_cache_close closes it. It belongs to the
// pool. Errors: INVALID_ARGUMENT inside another one. mu__cached_read returns what an earlier read gave; NULL: none.
// mu__cache_read keeps a read of a variable that has a lock, and returns it.
struct mu_read_cache *mu__read_cache_open(void);
void mu__read_cache_close(struct mu_read_cache *cache);
mu_tensor *mu__cached_read(const mu_variable *variable);
mu_tensor *mu__cache_read(mu_variable *variable, mu_tensor *value);

// ---- Gradient (gradient.c) ----------------------------------------------------------------------

// mu__tape_detached makes a tape that hears of nothing but what is recorded in it directly; of the pool.
mu_tape *mu__tape_detached(void);

// mu__pullback adds, with ops, the gradients of `n_y` tensors (weighted by dy; NULL: ones) with respect to
// tensors or variables: xs[i] is a mu_tensor or a mu_variable; dx[i] is NULL where nothing depends on it.
mu_status mu__pullback(mu_tape *tape, int n_y, mu_tensor *const *ys, mu_tensor *const *dys, int n_x, void *const *xs,
                       mu_tensor **dxs);

// A gradient: a dense tensor, or rows `values` of it at places `indices` (of which one may come twice), or
// neither where nothing depends on the source.
typedef struct mu_gradient {
    mu_tensor *dense, *values, *indices;
} mu_gradient;

// mu__pullback_slices is mu__pullback where variables that are only gathered from get slices.
mu_status mu__pullback_slices(mu_tape *tape, int n_y, mu_tensor *const *ys, mu_tensor *const *dys, int n_x,
                              void *const *xs, mu_gradient *dxs);

// ---- Generators (generator.c) -------------------------------------------------------------------

// mu__generator_new makes a generator with this key, 0 too.
mu_variable *mu__generator_new(uint64_t key, const char *name);

#endif
