// Definition of an op: everything the library knows about one op is in one struct.
//
// An op is pure mathematics on tensors, or an effect on resources (read, assign, apply-gradient, …). mu__apply is the
// only way to use an op: while a trace is in progress it adds a node, otherwise it computes at once on the calling
// thread. Tapes record both. What ops need from other layers (a trace, a tape, a communicator, an emitter) is declared
// here as small interfaces, which those layers implement.
#ifndef MU_SRC_OPS_OP_H
#define MU_SRC_OPS_OP_H

#include "tensor/tensor.h"

typedef struct mu_op mu_op;
struct mu_node;  // graph
struct mu_graph; // graph

// ---- Attributes ---------------------------------------------------------------------------------

// Attributes are a plain struct per op. memcpy copies it and memcmp compares it, so zero it before filling it. Its
// fields are described, so that graphs can be printed, compared, serialised and verified.
#define MU_MAX_INTS 24
typedef struct mu_ints {
    int64_t n;
    int64_t at[MU_MAX_INTS];
} mu_ints;

typedef enum mu_attr_kind {
    MU_ATTR_INT,     // int64_t
    MU_ATTR_REAL,    // double
    MU_ATTR_BOOL,    // bool
    MU_ATTR_INTS,    // mu_ints
    MU_ATTR_DTYPE,   // mu_dtype
    MU_ATTR_SHAPE,   // mu_shape
    MU_ATTR_TEXT,    // char[MU_ATTR_TEXT_BYTES], null-terminated
    MU_ATTR_MESSAGE, // char[MU_ATTR_MESSAGE_BYTES], null-terminated
    MU_ATTR_TENSOR,  // mu_tensor *, retained by the owner of the attributes
    MU_ATTR_GRAPH    // struct mu_graph *, retained by the owner (cond, while, nested functions)
} mu_attr_kind;
#define MU_ATTR_TEXT_BYTES    96
#define MU_ATTR_MESSAGE_BYTES 512

typedef struct mu_attr_spec {
    const char *name; // NULL ends the list
    mu_attr_kind kind;
    size_t offset;
} mu_attr_spec;

// ---- Shape rule ---------------------------------------------------------------------------------

typedef struct mu_infer {
    const mu_op *op;
    const void *attrs;
    int n_in, n_out, n_resources;
    const mu_spec *in;
    const mu_spec *resources;
    mu_spec *out; // [n_out], zeroed; the rule fills it
} mu_infer;

// ---- Gradient -----------------------------------------------------------------------------------

#define MU_GRAD_MEMO 8
typedef struct mu_grad {
    const mu_op *op;
    const void *attrs;
    int n_in, n_out, n_resources;
    mu_tensor *const *x;   // inputs
    mu_tensor *const *y;   // outputs
    mu_tensor *const *dys; // gradient of each output; NULL if none
    mu_tensor *dy;         // dys[0]
    struct mu_resource *const *resources;
    mu_tensor *memo[MU_GRAD_MEMO]; // results shared by the calls for one application of the op
    const bool *wanted;            // [n_in] inputs whose gradient is needed; NULL: any
    void *kept;                    // an object of the pool that the rule keeps between these calls
} mu_grad;

// mu__grad_of returns the gradient of output i, or zeros if it has none.
mu_tensor *mu__grad_of(mu_grad *g, int i);

// ---- Kernels ------------------------------------------------------------------------------------

typedef struct mu_view {
    mu_dtype dtype;
    mu_shape shape; // known
    void *data;     // dense, row-major
} mu_view;

// What a collective op needs from a communicator. Implemented by comm, one per replica.
typedef enum mu_reduction { MU_REDUCTION_SUM, MU_REDUCTION_MEAN, MU_REDUCTION_MIN, MU_REDUCTION_MAX } mu_reduction;
typedef struct mu_collective mu_collective;

// The signature of a communicator's operation, which must be the same on all ranks: the types and shapes of its tensors
// and, for a gather, the axis along which they may differ. Ranks compare the hash; the words are for the error message.
enum { MU_FORM_WORDS = 32 };
typedef struct mu_form {
    uint64_t hash;       // 0: no signature
    int32_t dtype, axis; // of the last tensor; axis MU_NO_AXIS: not a gather
    int32_t n_tensors, n_words;
    int64_t words[MU_FORM_WORDS]; // rank and sizes of each tensor, for as many tensors as fit completely
} mu_form;
enum { MU_NO_AXIS = -1 };

// mu__form_begin starts a signature without tensors; mu__form_add adds a tensor (known shape). mu__form_said does both
// for the given views and sets the signature of the next operation on `collective` (NULL accepted).
void mu__form_begin(mu_form *form, int axis);
void mu__form_add(mu_form *form, mu_dtype dtype, const mu_shape *shape);
void mu__form_said(const mu_collective *collective, int n, const mu_view *views, int axis);

// mu__form_text writes "float32[3, 4]", "float32[3, 4] along axis 1" or "3 tensors of float32". mu__form_part describes
// the first tensor of a group that differs, as " Number 2 of these tensors has the shapes [3, 4] and [4, 3].", or
// writes "". The signatures may have been received from other ranks, so their contents are not trusted.
enum { MU_FORM_TEXT = 2 * MU_SHAPE_TEXT + 80 };
const char *mu__form_text(const mu_form *form, char text[MU_FORM_TEXT]);
const char *mu__form_part(const mu_form *a, const mu_form *b, char text[MU_FORM_TEXT]);

struct mu_collective {
    int rank, size;
    // The caller sets the signature of its next operation here, and that operation consumes it. Without a signature
    // ranks compare only counts. NULL: the communicator does not check signatures.
    mu_form *form;
    // all_reduce reduces `count` elements in place, with identical bits on every rank. Blocks up to the group's
    // deadline. `number` identifies the op in the graph (same on all ranks), `name` is for messages.
    mu_status (*all_reduce)(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                            mu_dtype dtype, void *data, int64_t count);
    // all_gather writes the `counts[r]` elements of each rank r to its part of out; ranks exchange counts first.
    mu_status (*all_gather)(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                            int64_t count, void *out, const int64_t *counts);
    // broadcast copies from rank `root`.
    mu_status (*broadcast)(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, void *data,
                           int64_t count, int root);
    // reduce_scatter reduces block r of every rank's `in`, of `count` elements, into `out` of rank r. permute copies
    // `count` elements of rank sources[r] to each rank r, zeros where that is -1; no rank is the source of two.
    mu_status (*reduce_scatter)(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                mu_dtype dtype, const void *in, void *out, int64_t count);
    mu_status (*permute)(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                         void *out, int64_t count, const int64_t *sources);
    // start begins an all_reduce that runs while its caller computes, and wait ends it; in between the caller must not
    // touch `data`. Every rank starts the same operations in the same order. `soon`: the caller waits next, without
    // computing in between. Errors show at the wait, which also ends all operations started earlier; a start fails if
    // one of those had to end first and failed. abandon is for a caller that fails in between: when it returns, `data`
    // is the caller's again; the group fails with the pending error. NULL slots: only all_reduce is supported.
    mu_status (*start)(mu_collective *self, int64_t number, const char *name, mu_reduction reduction, mu_dtype dtype,
                       void *data, int64_t count, bool soon, int64_t *started);
    mu_status (*wait)(mu_collective *self, int64_t started);
    void (*abandon)(mu_collective *self);
    // memory returns a buffer in a segment that all ranks of this host can address, 64-byte aligned, which the caller
    // owns; collectives on other memory copy it in and out. NULL slot: no special memory is needed. NULL result,
    // without an error record: none is left.
    mu_buffer *(*memory)(mu_collective *self, size_t bytes);
};

// Data that measure computed and the run can reuse, allocated by mu__alloc_data. The caller of both frees it.
typedef struct mu_measured {
    void *block; // NULL: no data
    size_t bytes;
} mu_measured;

typedef struct mu_kernel {
    const mu_op *op;
    const void *attrs;
    int n_in, n_out, n_resources;
    const mu_view *in;
    const mu_view *out;
    const mu_view *resources; // storage of this replica's component
    const mu_team *team;
    void *scratch;             // the bytes that prepare requested, 64-byte aligned
    void *state;               // from prepare
    mu_measured *measured;     // what measure leaves for the run; NULL: nothing is kept
    mu_collective *collective; // NULL: a group of one
    int64_t number;            // of the node in its graph
    int replica;               // id in the group
} mu_kernel;

typedef mu_status mu_kernel_run(const mu_kernel *kernel);

typedef struct mu_prepare {
    const mu_op *op;
    const void *attrs;
    int n_in, n_out;
    const mu_spec *in, *out; // shapes known
    const mu_team *team;
    void *state;          // prepare fills this: primitives and tables, used by one thread only
    size_t scratch_bytes; // prepare fills this
    bool declined;        // prepare sets this for types or shapes that it does not support; ref runs instead
} mu_prepare;

// ---- Lowering to StableHLO ----------------------------------------------------------------------

// A value in the text of a program: its number there, and its type under the known shapes.
typedef struct mu_hlo {
    int id; // negative: no value, or the result of an operation that failed
    mu_spec spec;
    // Of a lowering's inputs:
    bool uniform;           // surely the same on all replicas of the program
    const mu_tensor *known; // the value, where it is known when the program is written; NULL: it is not
} mu_hlo;

// An operation with any number of results, and with regions: programs of its own, as a loop has for its body.
typedef struct mu_hlo_operation {
    const char *name;
    int n_in, n_out, n_regions; // open sets n_regions to 0, and enter counts
    const mu_hlo *in;
    mu_hlo *out; // [n_out] the caller sets the specs, open sets the ids
} mu_hlo_operation;

// How an op can fail in a program. A program cannot stop with an error: it runs to its end, and then says which op
// failed, at which of its positions (elements of its indices, matrices, …), and which whole number it has there.
typedef struct mu_fault mu_fault;
typedef mu_status mu_fault_raise(const mu_fault *fault, int64_t position, int64_t value);
struct mu_fault {
    mu_fault_raise *raise; // raises the error
    const mu_op *op;
    const void *attrs; // NULL: raise needs none
    int64_t positions;
    mu_shape limits; // of indices: at position i those from limits.dims[i % limits.rank] on are outside
    bool common;     // if it is a replica's fault, it is that of all replicas of the program
    bool clamped;    // set by mu__hlo_fail: not all numbers of their type fit beside the positions
};
// mu__fault_raise raises the error of a fault, of which a program says this below its number (mu_emitter.fault).
enum { MU_HLO_FAULT_BITS = 47 };
mu_status mu__fault_raise(const mu_fault *fault, int64_t what);

// Receives the text of lowerings. Implemented by engine/pjrt; lower.h has common operations.
typedef struct mu_emitter mu_emitter;
struct mu_emitter {
    mu_status status; // first failure; after it, add does nothing and returns no value
    int replicas;     // that run the program together; 0: each runs it for itself, and `replica` is its id
    mu_hlo replica;
    int partitions; // logical devices of each replica, which XLA's partitioner divides the program among
    // The first failure so far, an int64 scalar: its number, and in the low MU_HLO_FAULT_BITS the position and the
    // value there; 0: none. A region with ops that may fail returns it.
    mu_hlo fault;
    bool failing; // an op written so far may have set it
    // add writes one operation with one result in generic form: "op"(operands) rest : (types) -> type. `rest` is its
    // regions, if any, followed by its attributes; NULL: none.
    mu_hlo (*add)(mu_emitter *emitter, const mu_spec *spec, const char *op, int n, const mu_hlo *operands,
                  const char *rest);
    // open, then enter and leave for each region, then close write an operation with several results or with regions.
    // enter starts a region with n arguments, whose specs the caller sets; leave ends it with the values that it
    // returns. What is written in between belongs to the region. close writes the attributes ("{…}"; NULL: none).
    void (*open)(mu_emitter *emitter, mu_hlo_operation *operation);
    void (*enter)(mu_emitter *emitter, mu_hlo_operation *operation, int n, mu_hlo *arguments);
    void (*leave)(mu_emitter *emitter, int n, const mu_hlo *results);
    void (*close)(mu_emitter *emitter, const mu_hlo_operation *operation, const char *attributes);
    // body writes the operations of a pure graph on `in` and returns its outputs (with their specs) in `out`.
    mu_status (*body)(mu_emitter *emitter, const struct mu_graph *graph, const mu_hlo *in, mu_hlo *out);
    bool in_body; // what is being written may not run: it is in a region
    // may_fail gives a failure of the op that is being written a number, from 1, and keeps a copy of its description.
    int (*may_fail)(mu_emitter *emitter, const mu_fault *fault);
};

typedef struct mu_lowering {
    mu_emitter *emitter;
    const mu_op *op;
    const void *attrs;
    int n_in, n_out, n_resources;
    const mu_hlo *in;
    mu_hlo *state; // [n_resources] the current value of each resource; a write replaces it
    mu_hlo *out;   // [n_out] the lowering fills it; the specs are set
} mu_lowering;

// ---- Samples ------------------------------------------------------------------------------------

// A shape in a static initialiser: MU_DIMS(2, 3) is [2, 3], MU_NO_DIMS a scalar.
#define MU_DIMS(...)                                                                       \
    {                                                                                      \
        .rank = (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), .dims = { __VA_ARGS__ } \
    }
#define MU_NO_DIMS \
    {              \
        .rank = 0  \
    }

// One set of inputs for the table tests and benches; n_in 0 ends an op's list.
typedef struct mu_sample {
    int n_in;
    mu_shape in[6];
    double low[6], high[6]; // elements are drawn from [low, high); both 0: from -2 to 2
    mu_dtype dtypes[6];     // MU_DTYPE_DEFAULT: the type under test
    const void *attrs;
    unsigned no_grad; // bit i: input i has no gradient (labels, indices)
} mu_sample;

// ---- Op definitions -----------------------------------------------------------------------------

enum {
    MU_VARIADIC = -1,
    MU_OUT_AS_IN = -1, // one output per input
};

typedef enum mu_op_flags {
    MU_OP_ELEMENTWISE = 1 << 0, // out[i] depends on in[i] alone, after broadcasting
    MU_OP_COMMUTES = 1 << 1,
    MU_OP_VIEW = 1 << 2,         // output 0 is input 0's bytes with another shape
    MU_OP_VIEW_IF_SAME = 1 << 9, // the same if output 0 has input 0's shape and type (broadcast_like, …)
    MU_OP_READS = 1 << 3,        // effect: reads its resources
    MU_OP_WRITES = 1 << 4,       // effect: writes its resources
    MU_OP_EFFECT = 1 << 5,       // other effect (print, assert): never removed, keeps its order
    MU_OP_COLLECTIVE = 1 << 6,
    MU_OP_DATA_DEPENDENT = 1 << 7, // output shapes depend on elements: plans break here
    MU_OP_CONTROL = 1 << 8,        // has graphs as attributes, which engines run
    MU_OP_WAITS = 1 << 10,         // may wait for what other threads do
    MU_OP_MAY_FAIL = 1 << 11,      // of nodes of graphs: elements can make it, or an op in its bodies, fail
    MU_OP_DRAWS = 1 << 12,         // of ops that write: steps a generator, which a failed run leaves whole
} mu_op_flags;

struct mu_op {
    const char *name;          // as in TensorFlow, in snake case
    int n_in, max_in;          // max_in: 0 = n_in, MU_VARIADIC = any
    int n_out;                 // MU_OUT_AS_IN; 0 for pure effects
    int n_resources;           // MU_VARIADIC = any
    const char *resource_kind; // name of the kind of its resources; NULL: any kind that is not opaque
    unsigned flags;            // mu_op_flags
    unsigned dtypes;           // allowed element types of input 0 (0: any); infer checks the rest
    unsigned fails_for;        // element types of input 0 with which elements can make it fail: indices outside
    unsigned shape_only;       // bit i: only the shape of input i is used
    unsigned in_place;         // bit i: output 0 may overwrite input i
    size_t attrs_bytes;
    const mu_attr_spec *attrs;
    mu_status (*infer)(mu_infer *infer);
    mu_tensor *(*grad)(mu_grad *g, int i);  // gradient of input i, in ops; NULL: not differentiable
    int (*attr_outputs)(const void *attrs); // ops whose number of outputs is an attribute (split)
    int variant;                            // which case of a kernel shared by several ops
    const mu_op *pure_of;                   // the effect whose pure form this op is (pure.c)
    mu_kernel_run *ref; // plain loops: oracle of the fast kernel, and fallback; every dtype; required
    // Data-dependent ops: fills the shapes that the shape rule left unknown, before the outputs are allocated
    // (kernel->out is NULL). Required with MU_OP_DATA_DEPENDENT.
    mu_status (*measure)(const mu_kernel *kernel, mu_spec *out);
    // Optional: whether output 0 is a range of input 0's bytes, and at which offset. `in` has all inputs.
    bool (*view_at)(const void *attrs, const mu_spec *in, const mu_spec *out, size_t *offset);
    struct { // optional: the fast kernel, which overrides ref
        mu_status (*prepare)(mu_prepare *prepare);
        mu_kernel_run *run;
        void (*release)(void *state);
    } cpu;
    const char *hlo;                           // "stablehlo.exponential", if a single operation suffices
    mu_status (*lower)(mu_lowering *lowering); // otherwise
    const char *no_lowering;                   // or the reason why it has no lowering, and what to use instead
    const mu_sample *samples;                  // inputs for tests and benches, with edge cases
};

// Every op by name: mu_op_add, …
#define MU_OP(word) extern const mu_op mu_op_##word;
#include "ops/core/ops.def"

// Attributes of the ops that feed a graph (source.c).
typedef struct mu_input_attrs {
    mu_dtype dtype;
    mu_shape shape;
} mu_input_attrs;
typedef struct mu_constant_attrs {
    mu_tensor *tensor;
} mu_constant_attrs;

const mu_op *mu__op_by_name(const char *name); // NULL if there is no such op
// mu__pure_op returns the pure form of an effect: the values of its resources follow its inputs, and their new values
// follow its outputs. NULL if there is none. Pure forms cannot be found by name.
const mu_op *mu__pure_op(const mu_op *effect);
// Ops that a program defines (custom.c) are definitions that can be found only by name.
bool mu__custom_is_name(const char *name);
const mu_op *mu__custom_by_name(const char *name);
int mu__op_count(void);
const mu_op *mu__op_at(int i);

// ---- Resources ----------------------------------------------------------------------------------

// The state that effects act on: variables, generators, iterators, accumulators. First member of each such struct.
//
// A resource has a component for each replica of this process, or one for all. Code that works on the value acquires a
// buffer in the memory space that it can address, and commits the buffer after writing. The resource tracks which
// memory space holds the newest value, and copies it when another one needs it.
typedef enum mu_access {
    MU_ACCESS_READ,
    MU_ACCESS_READ_WRITE,
    MU_ACCESS_WRITE // overwrites every element, whatever it was
} mu_access;

typedef struct mu_resource mu_resource;
typedef struct mu_resource_kind {
    const char *name; // "variable"
    // acquire returns the storage of replica `replica`'s component in a memory space: the newest value, or undefined
    // elements for MU_ACCESS_WRITE. The caller releases the buffer. Errors: FAILED_PRECONDITION if a failed step left
    // the value in doubt and it is not overwritten; errors of the memory spaces if the value has to be copied.
    mu_status (*acquire)(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                         mu_buffer **out);
    // commit makes the value in `buffer` the newest one: the buffer that acquire returned for this access, or another
    // one in the same memory space, which the resource retains.
    mu_status (*commit)(mu_resource *resource, int replica, mu_access access, mu_buffer *buffer);
    // poison records that a failed step may have written the value; it is unusable until assigned or restored.
    void (*poison)(mu_resource *resource, int replica);
    // read and assign do without a copy on the host, for a value that is elsewhere in this process. read gives a tensor
    // of the value, which later writes leave as it is; NULL: the value is on the host. assign makes the tensor the
    // newest value where the value is, and returns whether it did (*done). Both optional.
    mu_status (*read)(mu_resource *resource, int replica, mu_tensor **out);
    mu_status (*assign)(mu_resource *resource, int replica, mu_tensor *value, bool *done);
    // apply runs an op outside of traces on resources that another process keeps, all of this kind; `out` as of
    // mu__apply. Optional: this process keeps the value.
    mu_status (*apply)(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                       mu_resource *const *resources, mu_tensor **out);
    // forget is called when the last handle on a resource goes that other processes keep. Optional.
    void (*forget)(mu_resource *resource);
    bool opaque;      // the buffer holds no elements; only ops that name this kind (mu_op.resource_kind) may use it
    const char *what; // of an opaque kind, for messages: "accumulator"
} mu_resource_kind;
struct mu_resource {
    mu_object object;
    const mu_resource_kind *kind;
    char *name;
    mu_spec spec;
    bool shared;     // one storage for all replicas of this process
    bool per_worker; // each worker of a coordinator has a value of its own under this name
    void *home;      // object through which the process that keeps the value is reached; NULL: this process keeps it
    mu_buffer *self; // of an opaque resource of this process: what acquire gives
    // Held while an op, or a plan, uses the resource; NULL: one thread at a time uses it anyway. Outlives the resource.
    pthread_mutex_t *lock;
};

// mu__resources_lock takes the locks of n resources, each once (resource_lock.c); mu__resources_unlock gives them back.
void mu__resources_lock(int n, mu_resource *const *resources);
void mu__resources_unlock(int n, mu_resource *const *resources);

// What kinds of opaque resources have in common (opaque_resource.c): acquire and commit, and mu__opaque_begin, which
// makes resource->self; release that with the resource. Kernels get the struct that begins with the resource.
mu_status mu__opaque_begin(mu_resource *resource);
mu_status mu__opaque_acquire(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                             mu_buffer **out);
mu_status mu__opaque_commit(mu_resource *resource, int replica, mu_access access, mu_buffer *buffer);

// mu__access_of returns how an op with these flags (mu_op_flags) uses its resources.
static inline mu_access mu__access_of(unsigned flags)
{
    return !(flags & MU_OP_WRITES) ? MU_ACCESS_READ : flags & MU_OP_READS ? MU_ACCESS_READ_WRITE : MU_ACCESS_WRITE;
}

// One replica's part in an op that writes a shared resource (shared_resource.c): between begin and end it runs the
// kernel if `runs`. Every replica calls both; end takes the kernel's status and must be called even if begin failed.
typedef struct mu_shared_update {
    bool runs, synchronizes;
    const mu_view *resources; // the kernel's own
    void *copies;
    size_t bytes;
} mu_shared_update;
bool mu__shared(const mu_op *op, int n, mu_resource *const *resources);
mu_status mu__shared_begin(mu_kernel *kernel, mu_shared_update *update);
mu_status mu__shared_end(mu_kernel *kernel, mu_shared_update *update, mu_status status);

// ---- Applying an op -----------------------------------------------------------------------------

// mu__apply applies an op to tensors; `out` receives the outputs (mu__op_outputs returns their number), which belong to
// the innermost pool. Does nothing and fails while an error is pending or an input is NULL.
mu_status mu__apply(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in, int n_resources,
                    mu_resource *const *resources, mu_tensor **out);
int mu__op_outputs(const mu_op *op, const void *attrs, int n_in);
// mu__check_counts fails with INVALID_ARGUMENT if the op does not take this number of inputs or resources.
mu_status mu__check_counts(const mu_op *op, int n_in, int n_resources);
// mu__check_resources fails with INVALID_ARGUMENT for a resource of a kind that the op does not work on.
mu_status mu__check_resources(const mu_op *op, int n, mu_resource *const *resources);
// mu__op_is_view returns whether output 0 is the bytes of input 0, given their known specs.
bool mu__op_is_view(const mu_op *op, const mu_spec *in, const mu_spec *out);
// mu__op_is_part returns whether output 0 should share a part of input 0's bytes. A small part of a large input is
// copied instead, so that it does not keep the large input alive.
bool mu__op_is_part(const mu_op *op, const void *attrs, const mu_spec *in, const mu_spec *out, size_t *offset);

// mu__run_direct runs the op of a kernel for another op's kernel: the fast one if it needs no preparation, else the
// reference.
mu_status mu__run_direct(const mu_kernel *kernel);

// Short forms for ops with one output; NULL on failure.
mu_tensor *mu__apply1(const mu_op *op, const void *attrs, mu_tensor *a);
mu_tensor *mu__apply2(const mu_op *op, const void *attrs, mu_tensor *a, mu_tensor *b);
mu_tensor *mu__apply3(const mu_op *op, const void *attrs, mu_tensor *a, mu_tensor *b, mu_tensor *c);
mu_tensor *mu__apply_n(const mu_op *op, const void *attrs, int n, mu_tensor *const *in);

// Constants with another tensor's shape and type (a trace may not know the shape).
mu_tensor *mu__ones_like(mu_tensor *like);
mu_tensor *mu__zeros_like(mu_tensor *like);

// ---- Where ops are made (source_line.c) ---------------------------------------------------------

// mu__line is the innermost public call in progress on this thread. mu__error_add_site appends "(made at FILE:LINE)" to
// the pending record, once, and a line that names the layer. A push is for work done on behalf of an earlier call.
mu_site mu__line(void);
void mu__error_add_site(mu_site site);
void mu__line_push(mu_context *context, mu_site site);
void mu__line_pop(mu_context *context);

// mu__infer_call checks the number and types of inputs and runs the op's shape rule; errors name the op and the shapes.
mu_status mu__infer_call(mu_infer *infer);

// mu__attrs_retain and mu__attrs_release adjust the reference counts of tensors and graphs in attributes.
void mu__attrs_retain(const mu_op *op, const void *attrs);
void mu__attrs_release(const mu_op *op, const void *attrs);

// mu__attrs_text writes attributes as the op's definition describes them, with `between` before each: " strides=[2, 1]
// groups=1". Omits empty lists and texts, graphs, and the attributes of inputs. Truncates text that is too long.
enum { MU_ATTRS_TEXT = 1000 };
void mu__attrs_text(const mu_op *op, const void *attrs, const char *between, char text[MU_ATTRS_TEXT]);

// ---- Interfaces that other layers implement -----------------------------------------------------

// The replica that a thread works for (distribute). Base struct of mu_strategy_replica.
struct mu_replica {
    int id;                    // in the group of all replicas
    mu_collective *collective; // NULL: a group of one
    int64_t run;               // stored in the tensors that it makes (mu__made_here); 0: a group of one
};

// A strategy's scope: the head of what distribute keeps for it. mu_variable_new and mu_conditional_accumulator ask the
// innermost one.
struct mu_variable_args;
struct mu_conditional_accumulator_args;
struct mu_scope;
// Applies an op at once on the scope's device, while its resources are locked; arguments as of mu__apply. *done: false,
// the host must do it.
typedef mu_status mu_eager_apply(struct mu_scope *scope, const mu_op *op, const void *attrs, int n_in,
                                 mu_tensor *const *in, int n_resources, mu_resource *const *resources, int n_out,
                                 mu_tensor **out, bool *done);
struct mu_scope {
    struct mu_scope *outer;
    struct mu_variable *(*make_variable)(struct mu_scope *scope, const struct mu_variable_args *args);
    // The result is owned by the caller; NULL without an error: this process keeps it. Optional.
    struct mu_accumulator *(*make_accumulator)(struct mu_scope *scope,
                                               const struct mu_conditional_accumulator_args *args, bool sparse);
    mu_eager_apply *apply; // NULL: eager ops are computed on the host
};

// A trace in progress (graph): adds a node and makes symbolic outputs.
struct mu_trace {
    mu_status (*add)(struct mu_trace *trace, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                     int n_resources, mu_resource *const *resources, mu_tensor **out);
    // made records that the nodes between these inputs and this result are a function's; the name is static text.
    void (*made)(struct mu_trace *trace, const char *function, int n_in, mu_tensor *const *in, mu_tensor *result);
};

// An open tape (graph): records applied ops, eager and traced alike.
struct mu_tape {
    struct mu_tape *outer;
    bool paused;
    mu_status (*record)(struct mu_tape *tape, const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                        int n_resources, mu_resource *const *resources, int n_out, mu_tensor *const *out);
};

// ---- Shape rules that many ops share (infer.c) --------------------------------------------------

mu_status mu__infer_same(mu_infer *infer);      // out = in[0]
mu_status mu__infer_broadcast(mu_infer *infer); // out = in[0] broadcast with in[1], same dtype
mu_status mu__infer_like(mu_infer *infer);      // out has in[1]'s shape and in[0]'s dtype
mu_status mu__need_same_dtype(const mu_infer *infer, int a, int b);
mu_status mu__need_rank(const mu_infer *infer, int i, int rank);

#endif
