// The tensor handle inside the library: a view of a buffer, or one output of a node in a graph.
//
// Eager tensors are dense and row-major; a view (reshape, a range of the first axis) shares the buffer at an offset.
// This layer knows no ops or graphs: a symbolic tensor holds its node as an incomplete type.
#ifndef MU_SRC_TENSOR_H
#define MU_SRC_TENSOR_H

#include "base/base.h"

#include <muster/tensor.h>

// ---- Element types (dtype.c) --------------------------------------------------------------------

#define MU_DTYPE_BIT(dtype) (1u << (dtype))
#define MU_FLOATS           (MU_DTYPE_BIT(MU_F32) | MU_DTYPE_BIT(MU_F64) | MU_DTYPE_BIT(MU_F16) | MU_DTYPE_BIT(MU_BF16))
#define MU_INTS \
    (MU_DTYPE_BIT(MU_I64) | MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I16) | MU_DTYPE_BIT(MU_I8) | MU_DTYPE_BIT(MU_U8))
#define MU_NUMBERS    (MU_FLOATS | MU_INTS)
#define MU_BOOLS      MU_DTYPE_BIT(MU_BOOL)
#define MU_ALL_DTYPES (MU_NUMBERS | MU_BOOLS)

bool mu__dtype_ok(mu_dtype dtype); // of numbers or bools: false for MU_STRING
bool mu__dtype_is_float(mu_dtype dtype);
bool mu__dtype_is_half(mu_dtype dtype); // float16 or bfloat16
bool mu__dtype_is_integer(mu_dtype dtype);
const char *mu__dtype_hlo(mu_dtype dtype);             // "f32"
const char *mu__dtype_safetensors(mu_dtype dtype);     // "F32"
mu_dtype mu__dtype_from_safetensors(const char *name); // MU_DTYPE_DEFAULT if unknown
mu_dtype mu__dtype_from_name(const char *name);        // knows "string" too

float mu__bf16_to_f32(uint16_t bits);
uint16_t mu__f32_to_bf16(float value); // round to nearest even
float mu__f16_to_f32(uint16_t bits);
uint16_t mu__f32_to_f16(float value);
double mu__read_element(mu_dtype dtype, const void *data, int64_t index);
// mu__check_number checks that an integer type can hold the number given to `function`. Errors: INVALID_ARGUMENT.
mu_status mu__check_number(mu_dtype dtype, double value, const char *function);
void mu__write_element(mu_dtype dtype, void *data, int64_t index, double value); // integers saturate
// mu__convert converts n elements as TensorFlow's cast does (floats truncate to integers).
void mu__convert(mu_dtype to, void *out, mu_dtype from, const void *in, int64_t n);

// ---- Shapes (shape.c) ---------------------------------------------------------------------------

#define MU_SHAPE(...) mu_shape_make((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
extern const mu_shape mu__scalar_shape;

typedef struct mu_spec { // what is known of a tensor before its elements are
    mu_dtype dtype;
    mu_shape shape;
} mu_spec;

int64_t mu__elements(const mu_shape *shape); // product; MU_UNKNOWN if a dimension is unknown
int64_t mu__elements_between(const mu_shape *shape, int begin, int end); // of axes [begin, end), all known
mu_shape mu__batch_axes(const mu_shape *shape); // of a batch of matrices: all axes but the last two
size_t mu__spec_bytes(const mu_spec *spec);     // needs a known shape
bool mu__shape_known(const mu_shape *shape);
bool mu__shape_equal(const mu_shape *a, const mu_shape *b);
bool mu__shape_compatible(const mu_shape *a, const mu_shape *b);    // equal where both are known
mu_status mu__shape_check(const mu_shape *shape, const char *what); // rank, signs, overflow of the byte count
// NumPy broadcasting; `what` names the op in the error.
mu_status mu__broadcast(const mu_shape *a, const mu_shape *b, mu_shape *out, const char *what);
// mu__axis resolves a negative axis and checks the range; returns -1 after recording INVALID_ARGUMENT.
int mu__axis(int axis, int rank, const char *what);
// mu__shape_text writes "[2, 3, ?]"; returns text.
#define MU_SHAPE_TEXT 160
const char *mu__shape_text(const mu_shape *shape, char text[MU_SHAPE_TEXT]);

// ---- Buffers and memory spaces (buffer.c) -------------------------------------------------------

// Where elements are stored: in the host's memory, in a segment that processes of the host share, on a device of an
// engine, in another process. In an addressable memory space the elements are at mu_buffer.data. Otherwise only the
// functions of the memory space reach them, through a handle, and the host works on copies. A memory space outlives its
// buffers.
typedef struct mu_memory_space mu_memory_space;
typedef struct mu_buffer mu_buffer;
struct mu_memory_space {
    const char *name; // for messages: "host", "XLA_CPU:0"
    bool addressable; // then the functions are NULL
    // allocate returns a handle for elements of this type and shape, undefined until from_host; NULL on error.
    void *(*allocate)(const mu_memory_space *space, const mu_spec *spec);
    void (*free)(const mu_memory_space *space, void *handle);
    // from_host and to_host copy all `bytes` of the elements, dense and row-major; they may block.
    mu_status (*from_host)(const mu_memory_space *space, void *handle, const void *data, size_t bytes);
    mu_status (*to_host)(const mu_memory_space *space, void *handle, void *data, size_t bytes);
    // Optional. map returns the address at which the host can read the elements as long as the handle lives and is not
    // written; NULL: it cannot. share makes `handle`, which is new, refer to the elements of a buffer in this memory
    // space without copying them; a later write to the new handle does not change the buffer.
    const void *(*map)(const mu_memory_space *space, void *handle);
    mu_status (*share)(const mu_memory_space *space, void *handle, mu_buffer *from);
};

extern const mu_memory_space mu__host_memory;   // memory of this process
extern const mu_memory_space mu__shared_memory; // memory that processes of this host map together

struct mu_buffer {
    mu_object object;
    void *data; // address; NULL: the memory space is not addressable
    size_t bytes;
    const mu_memory_space *memory_space;
    void (*release)(void *arg); // NULL: data came from mu__alloc_data
    union {
        void *arg;
        void *handle; // of the memory space, if it is not addressable
    };
    void *_Atomic fetched; // elements elsewhere for the host, from the first mu__host_read on: a copy,
    atomic_bool mapped;    // or where they are
};

// These functions return a reference that the caller owns, with undefined elements; NULL on error.
mu_buffer *mu__buffer_new(size_t bytes); // on the host
mu_buffer *mu__buffer_at(const mu_memory_space *space,
                         const mu_spec *spec); // a segment's owner makes those there itself

// mu__buffer_from_host and mu__buffer_to_host copy all elements of a buffer anywhere.
mu_status mu__buffer_from_host(mu_buffer *buffer, const void *data);
mu_status mu__buffer_to_host(const mu_buffer *buffer, void *data);

// ---- Tensors (tensor.c) -------------------------------------------------------------------------

struct mu_node;
struct mu_graph;

struct mu_tensor {
    mu_object object;
    mu_dtype dtype;
    mu_shape shape;
    mu_buffer *buffer;    // NULL: symbolic
    size_t offset;        // bytes into the buffer
    struct mu_node *node; // symbolic: the node that this tensor is an output of
    int output;
    mu_object *graph; // symbolic: retained
    int replica;      // symbolic: 1 + the replica whose value this is in a merge_call; 0: the current replica
    int64_t run;      // number of the run whose replica function made this (mu__made_here); 0: none
};

extern mu_type mu__tensor_type, mu__buffer_type, mu__value_type;

// These functions return a reference that the caller owns (public functions return through mu__give).
mu_tensor *mu__tensor_alloc(mu_dtype dtype, const mu_shape *shape); // on the host, elements undefined
mu_tensor *mu__tensor_view(mu_buffer *buffer, size_t offset, mu_dtype dtype,
                           const mu_shape *shape); // retains the buffer
mu_tensor *mu__tensor_symbolic(struct mu_node *node, int output, const mu_spec *spec, mu_object *graph);
mu_tensor *mu__tensor_again(const mu_tensor *tensor, int64_t run); // another handle on the same value, of this run

// mu__tensor_unset is mu_tensor_new with elements left for the caller to write; it belongs to the innermost pool.
mu_tensor *mu__tensor_unset(mu_dtype dtype, int rank, const int64_t *dims);

// mu__host_read returns the address on the host of a tensor's elements, for reading. Elements in another memory space
// are fetched once, by mu__host_fetch (buffer.c); NULL if that fails.
const void *mu__host_fetch(const mu_tensor *tensor);
static inline const void *mu__host_read(const mu_tensor *tensor)
{
    const void *data = tensor->buffer->data;
    return data ? (const char *)data + tensor->offset : mu__host_fetch(tensor);
}

// mu__host_write is for writing. The tensor is on the host; its caller made it, and no other thread reads it yet.
static inline void *mu__host_write(const mu_tensor *tensor)
{
    assert(tensor->buffer->data);
    return (char *)tensor->buffer->data + tensor->offset;
}

// mu__made_here returns whether the active replica function made the tensor, or received it as this replica's component
// of an argument. Such a tensor is per-replica even if all replicas have equal values; a tensor from outside the
// function is one value for all replicas.
static inline bool mu__made_here(const mu_tensor *tensor)
{
    const int64_t run = mu__context()->run;
    return run != 0 && tensor->run == run;
}

static inline mu_spec mu__spec_of(const mu_tensor *tensor)
{
    return (mu_spec){.dtype = tensor->dtype, .shape = tensor->shape};
}

// ---- Strings (strings.c) ------------------------------------------------------------------------

// A tensor of n strings has one buffer: n + 1 offsets (int64), counted from the start of the buffer, then the strings,
// each followed by a zero. So an element is 8 bytes wide, views are what they are for numbers, and what copies 8 bytes
// an element without knowing strings would copy offsets without strings: mu__tensor_alloc refuses MU_STRING, so that it
// fails.
static inline bool mu__has_strings(const mu_tensor *tensor) { return tensor->dtype == MU_STRING; }
mu_string mu__string_at(const mu_tensor *tensor, int64_t i); // unchecked; never NULL
size_t mu__string_bytes(const mu_tensor *tensor);            // of all elements, without the zeros

// Strings on their way into a tensor, in row-major order.
typedef struct mu_strings {
    struct {
        int64_t *items;
        size_t n, capacity;
    } ends; // behind each string's zero
    struct {
        char *items;
        size_t n, capacity;
    } bytes;
} mu_strings;
mu_status mu__strings_add(mu_strings *strings, const void *bytes, size_t n);
// mu__strings_end makes the tensor, which the caller owns, and frees the list; NULL on error. mu__strings_free frees an
// unfinished list.
mu_tensor *mu__strings_end(mu_strings *strings, const mu_shape *shape);
void mu__strings_free(mu_strings *strings);
// mu__strings_copy adds elements [begin, end) of a tensor.
mu_status mu__strings_copy(mu_strings *strings, const mu_tensor *from, int64_t begin, int64_t end);
// mu__strings_text makes a scalar; owned by the caller.
mu_tensor *mu__strings_text(const void *bytes, size_t n);
// Strings as bytes for files and other processes: the lengths (8 bytes each, little-endian), then the bytes. from_wire
// reads untrusted bytes. Errors: DATA_LOSS if they end early.
size_t mu__strings_wire_bytes(const mu_tensor *tensor);
void mu__strings_to_wire(const mu_tensor *tensor, uint8_t *out);
mu_tensor *mu__strings_from_wire(mu_cursor *cursor, const mu_shape *shape);

// ---- Values (value.c) ---------------------------------------------------------------------------

enum { MU_MAX_NEST = 1000 }; // limit of nested lists and maps: walks over values recurse

struct mu_value {
    mu_object object;
    mu_value_kind kind;
    int depth;       // of nesting: 0 for a leaf; at most MU_MAX_NEST
    mu_object *leaf; // tensor or variable
    int n;
    mu_value **items;  // elements, or components of a per-replica or mirrored value
    char **keys;       // of a map, in order of insertion
    mu_value *sources; // for gradients: the sources that they belong to; retained
    bool unconnected;  // of a gradient: zeros, because the loss does not depend on its source
};

// Owned by the caller, like everything in this header. Containers nested too deeply are INVALID_ARGUMENT.
mu_value *mu__value_leaf(mu_value_kind kind, void *object);
mu_value *mu__value_container(mu_value_kind kind, int n, mu_value *const *items, const char *const *keys);

// mu__value_is_remote returns whether a leaf refers to an object on workers: it has neither tensor nor variable.
static inline bool mu__value_is_remote(const mu_value *leaf)
{
    return leaf->kind == MU_VALUE_PER_WORKER || leaf->kind == MU_VALUE_REMOTE;
}

// mu__value_flatten writes the leaves in order (at most `capacity`) and returns how many there are.
int mu__value_flatten(const mu_value *value, mu_object **leaves, int capacity);
// mu__value_pack rebuilds the structure of `like` around `n` leaves (tensors); owned by the caller.
mu_value *mu__value_pack(const mu_value *like, mu_object *const *leaves, int n);
bool mu__value_same_structure(const mu_value *a, const mu_value *b);

#endif
