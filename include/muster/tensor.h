// Tensors and values. Ops take and return tensors; datasets, mu_run and callbacks pass values, which are nests of
// tensors.
//
// Errors: a question about type, shape, kind or number does not fail: NULL has the type MU_DTYPE_DEFAULT, the shape of
// a scalar, -1 as its rank, dimensions and number of elements, and no values in it.
#ifndef MUSTER_TENSOR_H
#define MUSTER_TENSOR_H

#include <muster/base.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// Element types, with TensorFlow's numbers.
typedef enum mu_dtype {
    MU_DTYPE_DEFAULT = 0,
    MU_F32 = 1,
    MU_F64 = 2,
    MU_I32 = 3,
    MU_U8 = 4,
    MU_I16 = 5,
    MU_I8 = 6,
    MU_STRING = 7, // byte strings, on the host alone
    MU_I64 = 9,
    MU_BOOL = 10,
    MU_BF16 = 14,
    MU_F16 = 19
} mu_dtype;

// mu_dtype_name returns a name such as "float32" (static storage; "unknown" for another number); mu_dtype_bytes the
// size of one element (0: invalid type; of MU_STRING, whose elements have different sizes, the 8 bytes that say where
// an element begins).
MU_API const char *mu_dtype_name(mu_dtype dtype);
MU_API size_t mu_dtype_bytes(mu_dtype dtype);

// mu_dtype_from_name returns the type of a name, in any case. Errors (MU_DTYPE_DEFAULT): INVALID_ARGUMENT.
MU_API mu_dtype mu_dtype_from_name(const char *name);

#define MU_MAX_RANK 8
#define MU_UNKNOWN  ((int64_t)-1) // a dimension that a trace does not know

typedef struct mu_shape {
    int rank;                  // 0: scalar
    int64_t dims[MU_MAX_RANK]; // MU_UNKNOWN only in traces
} mu_shape;

// mu_shape_make makes a shape of `rank` dimensions. It does not fail: what takes the shape refuses one that is not
// valid.
MU_API mu_shape mu_shape_make(int rank, const int64_t *dims);

// A tensor: dense, row-major, immutable by convention. It has elements in memory, or is a symbolic value in a trace.
typedef struct mu_tensor mu_tensor;

// mu_tensor_new copies `data` (all elements, row-major; NULL: zeros) into a new tensor. Errors: INVALID_ARGUMENT for
// MU_STRING, a rank above MU_MAX_RANK, or a dimension that is negative or unknown.
MU_API mu_tensor *mu_tensor_new(mu_dtype dtype, int rank, const int64_t *dims, const void *data);

// mu_tensor_wrap makes a tensor that uses the caller's memory without a copy. release(arg) is called once, when the
// last user releases the tensor (NULL: the memory outlives all users). It is not called if mu_tensor_wrap fails; errors
// as mu_tensor_new.
MU_API mu_tensor *mu_tensor_wrap(mu_dtype dtype, int rank, const int64_t *dims, void *data, void (*release)(void *arg),
                                 void *arg);

// mu_constant makes a scalar; mu_vector_f32 a one-dimensional tensor of n copied numbers. Errors: INVALID_ARGUMENT for
// a number that an integer type cannot represent.
MU_API mu_tensor *mu_constant(mu_dtype dtype, double value);
MU_API mu_tensor *mu_vector_f32(int64_t n, const float *values);

MU_API mu_dtype mu_tensor_dtype(const mu_tensor *tensor); // the element type
MU_API mu_shape mu_tensor_shape(const mu_tensor *tensor); // MU_UNKNOWN dimensions only in traces
MU_API int mu_tensor_rank(const mu_tensor *tensor);       // the number of axes; 0 for a scalar
// mu_tensor_dim returns the size of an axis; negative axes count from the end. Errors (-1): INVALID_ARGUMENT for
// another.
MU_API int64_t mu_tensor_dim(const mu_tensor *tensor, int axis);
MU_API int64_t mu_tensor_elements(const mu_tensor *tensor); // MU_UNKNOWN if a dimension is
MU_API bool mu_tensor_is_symbolic(const mu_tensor *tensor); // whether it is a value in a trace, without elements

// mu_tensor_data returns the elements, row-major; they belong to the tensor. Errors: FAILED_PRECONDITION for a symbolic
// tensor; INVALID_ARGUMENT for strings (mu_tensor_string).
MU_API const void *mu_tensor_data(const mu_tensor *tensor);

// mu_tensor_copy_to copies the elements to `data`; `bytes` must be exactly the tensor's size. Errors: as
// mu_tensor_data.
MU_API mu_status mu_tensor_copy_to(const mu_tensor *tensor, void *data, size_t bytes);

// mu_scalar returns the single element of a tensor, or of a value that holds one tensor; NaN on failure. The argument
// is a mu_tensor * or a mu_value *. Errors: INVALID_ARGUMENT for several elements or none; as mu_tensor_data.
MU_API double mu_scalar(const void *tensor_or_value);

// mu_tensor_item returns element i in row-major order, of any type; mu_tensor_item_int does so without rounding for
// integers of 64 bits (floats are truncated). Errors (NaN; 0): OUT_OF_RANGE for another i; FAILED_PRECONDITION for a
// symbolic tensor.
MU_API double mu_tensor_item(const mu_tensor *tensor, int64_t i);
MU_API int64_t mu_tensor_item_int(const mu_tensor *tensor, int64_t i);

// mu_tensor_print prints the tensor as NumPy does; long axes are abbreviated. A symbolic tensor has its type and shape.
MU_API void mu_tensor_print(const mu_tensor *tensor, FILE *out);

// ---- Strings ------------------------------------------------------------------------------------

// A byte string: any bytes, zeros too; the user chooses the encoding of text. bytes[n] is a zero that does not
// count, so that a string without zeros is a C string.
typedef struct mu_string {
    const char *bytes;
    size_t n;
} mu_string;

// Tensors of strings (MU_STRING) cannot be changed and are in the host's memory. Datasets, remote calls and the layers
// that look strings up take them; ops, traced functions, variables and collectives refuse them. mu_tensor_strings makes
// one of C strings in row-major order, mu_tensor_byte_strings of byte strings; both copy them. mu_string_scalar makes a
// scalar of a C string.
MU_API mu_tensor *mu_tensor_strings(int rank, const int64_t *dims, const char *const *texts);
MU_API mu_tensor *mu_tensor_byte_strings(int rank, const int64_t *dims, const mu_string *strings);
MU_API mu_tensor *mu_string_scalar(const char *text);

// mu_tensor_string returns element i in row-major order, which belongs to the tensor. Errors ({NULL, 0}): OUT_OF_RANGE
// for another i; INVALID_ARGUMENT for a tensor of numbers; FAILED_PRECONDITION for a symbolic tensor.
MU_API mu_string mu_tensor_string(const mu_tensor *tensor, int64_t i);

// ---- Values: nests of tensors -------------------------------------------------------------------

// A value is a tensor, a variable, indexed slices, a per-replica or mirrored value, or a list or map of values; with a
// coordinator (muster/coordinator.h) also what is on its workers.
typedef struct mu_value mu_value;

typedef enum mu_value_kind {
    MU_VALUE_TENSOR,
    MU_VALUE_VARIABLE,
    MU_VALUE_LIST,
    MU_VALUE_MAP,
    MU_VALUE_PER_REPLICA,
    MU_VALUE_MIRRORED,
    MU_VALUE_SLICES,
    MU_VALUE_PER_WORKER, // a per-worker value of a coordinator
    MU_VALUE_REMOTE      // the result of a call that a coordinator scheduled
} mu_value_kind;

MU_API mu_value *mu_of(mu_tensor *tensor); // the tensor as a value
// mu_list and mu_map make containers, which retain their elements; the last argument is MU_END. Elements are mu_value *
// or mu_tensor *; an array may hold mu_tensor * too, after a cast. Errors: INVALID_ARGUMENT for other elements, for
// NULL, and for containers nested deeper than 1,000 levels.
MU_API mu_value *mu_list(void *first, ...);
MU_API mu_value *mu_list_of(int n, mu_value *const *items);
MU_API mu_value *mu_map(const char *first_key, ...); // key, element, key, element, …, MU_END
MU_API mu_value *mu_map_of(int n, const char *const *keys, mu_value *const *items);

// mu_indexed_slices makes a sparse value: row indices[i] of a tensor of shape `dims` is values[i], all other rows are
// zero. Rows with the same index are added. Its elements are values, indices and shape. indices: [n] of int32 or int64,
// or of int8 or int16, which become int32; values: [n, dims[1], …].
MU_API mu_value *mu_indexed_slices(mu_tensor *values, mu_tensor *indices, int rank, const int64_t *dims);

MU_API mu_value_kind mu_value_kind_of(const mu_value *value); // what kind of value it is
MU_API int mu_value_count(const mu_value *value);             // number of elements or components; 1 for a leaf
// mu_value_at returns element i of a list or map, or component i of a per-replica value; mu_value_get the element with
// a key. Both belong to the container. Errors: OUT_OF_RANGE for another i; NOT_FOUND if the map has no such key.
MU_API mu_value *mu_value_at(const mu_value *value, int i);
MU_API mu_value *mu_value_get(const mu_value *map, const char *key);
MU_API const char *mu_value_key(const mu_value *map, int i); // key of element i, belongs to the map; or NULL
// mu_at returns the tensor in element i of a list or map (a single tensor is its own element 0). Errors: OUT_OF_RANGE
// for another i; those of mu_value_tensor.
MU_API mu_tensor *mu_at(const mu_value *value, int i);
// mu_value_tensor returns the tensor of a leaf: of a per-replica value this replica's component, inside a function that
// runs on replicas; of a mirrored value any copy. Errors: INVALID_ARGUMENT for a value with several tensors or none,
// and for a per-replica value outside replicas.
MU_API mu_tensor *mu_value_tensor(const mu_value *value);

#ifdef __cplusplus
}
#endif
#endif
