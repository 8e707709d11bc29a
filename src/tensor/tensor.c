// Creates, views and reads tensors.
//
// A tensor is a small handle; the elements live in a reference-counted buffer (buffer.c) that views share. A symbolic
// tensor has a node instead of a buffer; only the graph layer reads the node.
#include "tensor/tensor.h"

#include <math.h>

static void destroy_tensor(void *object)
{
    mu_tensor *tensor = object;
    mu_release(tensor->buffer);
    mu_release(tensor->graph);
}

static size_t tensor_bytes(const void *object)
{
    const mu_tensor *tensor = object;
    const mu_spec spec = mu__spec_of(tensor);
    return tensor->node == NULL ? mu__spec_bytes(&spec) : 0;
}

mu_type mu__tensor_type = {.name = "tensor", .destroy = destroy_tensor, .bytes = tensor_bytes};

mu_tensor *mu__tensor_view(mu_buffer *buffer, size_t offset, mu_dtype dtype, const mu_shape *shape)
{
    mu_tensor *tensor = mu__new(&mu__tensor_type, sizeof *tensor);
    if (!tensor)
        return NULL;
    tensor->dtype = dtype;
    tensor->shape = *shape;
    tensor->buffer = mu_retain(buffer);
    tensor->offset = offset;
    tensor->run = mu__context()->run;
    return tensor;
}

mu_tensor *mu__tensor_alloc(mu_dtype dtype, const mu_shape *shape)
{
    mu_spec spec = {.dtype = dtype, .shape = *shape};
    if (dtype == MU_STRING) {
        mu__error(MU_UNIMPLEMENTED, "strings cannot be used here; turn them into numbers first (mu_string_lookup, "
                                    "mu_hashing or mu_text_vectorization in mu_dataset_map)");
        return NULL;
    }
    assert(mu__dtype_ok(dtype) && mu__shape_known(shape));
    mu_buffer *buffer = mu__buffer_new(mu__spec_bytes(&spec));
    if (!buffer)
        return NULL;
    mu_tensor *tensor = mu__tensor_view(buffer, 0, dtype, shape);
    mu_release(buffer);
    return tensor;
}

mu_tensor *mu__tensor_symbolic(struct mu_node *node, int output, const mu_spec *spec, mu_object *graph)
{
    mu_tensor *tensor = mu__new(&mu__tensor_type, sizeof *tensor);
    if (!tensor)
        return NULL;
    tensor->dtype = spec->dtype;
    tensor->shape = spec->shape;
    tensor->node = node;
    tensor->output = output;
    tensor->graph = mu_retain(graph);
    tensor->run = mu__context()->run;
    return tensor;
}

mu_tensor *mu__tensor_again(const mu_tensor *tensor, int64_t run)
{
    const mu_spec spec = mu__spec_of(tensor);
    mu_tensor *again = tensor->node ? mu__tensor_symbolic(tensor->node, tensor->output, &spec, tensor->graph)
                                    : mu__tensor_view(tensor->buffer, tensor->offset, tensor->dtype, &tensor->shape);
    if (again)
        again->run = run;
    return again;
}

// Checks the arguments of a new tensor with elements.
static mu_status check_concrete(mu_dtype dtype, int rank, const int64_t *dims, const char *function, mu_shape *out)
{
    if (dtype == MU_STRING)
        return mu__error(MU_INVALID_ARGUMENT, "%s makes tensors of numbers; make strings with mu_tensor_strings",
                         function);
    if (!mu__dtype_ok(dtype))
        return mu__error(MU_INVALID_ARGUMENT, "%s: %d is not an element type; use MU_F32 and the like", function,
                         (int)dtype);
    if (rank < 0 || rank > MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "%s: rank %d is outside 0 to %d", function, rank, MU_MAX_RANK);
    *out = mu_shape_make(rank, dims);
    MU_TRY(mu__shape_check(out, function));
    if (!mu__shape_known(out)) {
        char text[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT, "%s: shape %s has an unknown dimension; a tensor with elements has none",
                         function, mu__shape_text(out, text));
    }
    return MU_OK;
}

mu_tensor *mu__tensor_unset(mu_dtype dtype, int rank, const int64_t *dims)
{
    mu_shape shape;
    if (mu__pending() || check_concrete(dtype, rank, dims, "mu_tensor_new", &shape) != MU_OK)
        return NULL;
    return mu__give(mu__tensor_alloc(dtype, &shape));
}

mu_tensor *mu_tensor_new(mu_dtype dtype, int rank, const int64_t *dims, const void *data)
{
    mu_tensor *tensor = mu__tensor_unset(dtype, rank, dims);
    if (!tensor)
        return NULL;
    mu_spec spec = mu__spec_of(tensor);
    size_t bytes = mu__spec_bytes(&spec);
    if (data && bytes)
        memcpy(mu__host_write(tensor), data, bytes);
    else
        memset(mu__host_write(tensor), 0, bytes);
    return tensor;
}

static _Alignas(64) char nothing[64]; // address of tensors without elements, if the caller gives none

mu_tensor *mu_tensor_wrap(mu_dtype dtype, int rank, const int64_t *dims, void *data, void (*release)(void *arg),
                          void *arg)
{
    mu_shape shape;
    if (mu__pending() || check_concrete(dtype, rank, dims, "mu_tensor_wrap", &shape) != MU_OK)
        return NULL;
    if (!data && mu__elements(&shape) > 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_tensor_wrap: data is NULL; give the memory that holds the elements");
        return NULL;
    }
    mu_buffer *buffer = mu__new(&mu__buffer_type, sizeof *buffer);
    if (!buffer)
        return NULL;
    const mu_spec spec = {.dtype = dtype, .shape = shape};
    buffer->memory_space = &mu__host_memory;
    buffer->data = data ? data : nothing;
    buffer->bytes = mu__spec_bytes(&spec);
    buffer->arg = buffer; // any non-NULL value: the buffer does not own the memory
    mu_tensor *tensor = mu__give(mu__tensor_view(buffer, 0, dtype, &shape));
    if (tensor && release) { // set last: if this function fails, the caller still owns the memory
        buffer->release = release;
        buffer->arg = arg;
    }
    mu_release(buffer);
    return tensor;
}

mu_status mu__check_number(mu_dtype dtype, double value, const char *function)
{
    const bool integer = dtype != MU_BOOL && !mu__dtype_is_float(dtype);
    const bool is_signed = dtype != MU_U8;
    const double limit = ldexp(1, (int)mu_dtype_bytes(dtype) * 8 - is_signed); // INT64_MAX rounds to 2^63
    const bool fits = value >= (is_signed ? -limit : 0) && (value < limit || (dtype == MU_I64 && value == limit));
    if (!integer || (fits && floor(value) == value))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: %.17g is not a valid %s: these are whole numbers from %.0f to %.0f; to round or wrap it, "
                     "make it of another type and use mu_cast",
                     function, value, mu_dtype_name(dtype), is_signed ? -limit : 0, limit - 1);
}

mu_tensor *mu_constant(mu_dtype dtype, double value)
{
    mu_shape shape;
    if (mu__pending() || check_concrete(dtype, 0, NULL, "mu_constant", &shape) != MU_OK ||
        mu__check_number(dtype, value, "mu_constant") != MU_OK)
        return NULL;
    mu_tensor *tensor = mu__tensor_alloc(dtype, &shape);
    if (tensor)
        mu__write_element(dtype, mu__host_write(tensor), 0, value);
    return mu__give(tensor);
}

mu_tensor *mu_vector_f32(int64_t n, const float *values) { return mu_tensor_new(MU_F32, 1, &n, values); }

mu_dtype mu_tensor_dtype(const mu_tensor *tensor) { return tensor ? tensor->dtype : MU_DTYPE_DEFAULT; }

mu_shape mu_tensor_shape(const mu_tensor *tensor) { return tensor ? tensor->shape : mu__scalar_shape; }

int mu_tensor_rank(const mu_tensor *tensor) { return tensor ? tensor->shape.rank : -1; }

int64_t mu_tensor_dim(const mu_tensor *tensor, int axis)
{
    if (!tensor)
        return -1;
    int at = mu__axis(axis, tensor->shape.rank, "mu_tensor_dim");
    return at < 0 ? -1 : tensor->shape.dims[at];
}

int64_t mu_tensor_elements(const mu_tensor *tensor) { return tensor ? mu__elements(&tensor->shape) : -1; }

bool mu_tensor_is_symbolic(const mu_tensor *tensor) { return tensor && !tensor->buffer; }

static bool has_item(const mu_tensor *tensor, int64_t i, const char *function)
{
    if (mu__need(tensor, "mu_tensor_item: the tensor") != MU_OK || mu_tensor_data(tensor) == NULL)
        return false;
    const int64_t n = mu__elements(&tensor->shape);
    if (i >= 0 && i < n)
        return true;
    mu__error(MU_OUT_OF_RANGE, "%s: item %lld of a tensor with %lld elements; the first is 0", function, (long long)i,
              (long long)n);
    return false;
}

double mu_tensor_item(const mu_tensor *tensor, int64_t i)
{
    return has_item(tensor, i, "mu_tensor_item") ? mu__read_element(tensor->dtype, mu_tensor_data(tensor), i) : NAN;
}

int64_t mu_tensor_item_int(const mu_tensor *tensor, int64_t i)
{
    if (!has_item(tensor, i, "mu_tensor_item_int"))
        return 0;
    const void *data = mu_tensor_data(tensor);
    if (tensor->dtype == MU_I64)
        return ((const int64_t *)data)[i];
    int64_t item;
    const double value = mu__read_element(tensor->dtype, data, i);
    mu__convert(MU_I64, &item, MU_F64, &value, 1);
    return item;
}

const void *mu_tensor_data(const mu_tensor *tensor)
{
    if (mu__need(tensor, "mu_tensor_data: the tensor") != MU_OK)
        return NULL;
    if (!tensor->buffer) {
        mu__error(MU_FAILED_PRECONDITION, "mu_tensor_data: the tensor is symbolic and has no elements. If it is of a "
                                          "function being traced, return it from the function and read the result; if "
                                          "it is of mu_input, call a model of it (mu_model_new) on numbers");
        return NULL;
    }
    if (mu__has_strings(tensor)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_tensor_data: the tensor holds strings, which are not numbers in a row; read "
                                       "each with mu_tensor_string");
        return NULL;
    }
    return mu__host_read(tensor);
}

mu_status mu_tensor_copy_to(const mu_tensor *tensor, void *data, size_t bytes)
{
    MU_TRY(mu__need(tensor, "mu_tensor_copy_to: the tensor"));
    const void *elements = mu_tensor_data(tensor);
    if (!elements)
        return mu_error_code();
    mu_spec spec = mu__spec_of(tensor);
    size_t wanted = mu__spec_bytes(&spec);
    if (bytes != wanted) {
        char text[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_tensor_copy_to: the buffer has %zu bytes; a %s tensor of shape %s has %zu", bytes,
                         mu_dtype_name(spec.dtype), mu__shape_text(&spec.shape, text), wanted);
    }
    if (bytes == 0)
        return MU_OK;
    MU_TRY(mu__need(data, "mu_tensor_copy_to: data"));
    memcpy(data, elements, bytes);
    return MU_OK;
}

double mu_scalar(const void *tensor_or_value)
{
    if (mu__need(tensor_or_value, "mu_scalar: the argument") != MU_OK)
        return NAN;
    const mu_tensor *tensor = mu__is(tensor_or_value, &mu__tensor_type)  ? tensor_or_value
                              : mu__is(tensor_or_value, &mu__value_type) ? mu_value_tensor(tensor_or_value)
                                                                         : NULL;
    if (!tensor) {
        if (!mu__pending())
            mu__error(MU_INVALID_ARGUMENT, "mu_scalar: the argument is neither a tensor nor a value that holds one");
        return NAN;
    }
    if (mu__elements(&tensor->shape) != 1) {
        char text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT, "mu_scalar: the tensor has shape %s; it must have exactly one element",
                  mu__shape_text(&tensor->shape, text));
        return NAN;
    }
    const void *data = mu_tensor_data(tensor);
    return data ? mu__read_element(tensor->dtype, data, 0) : NAN;
}
