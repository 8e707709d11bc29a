// DLPack: lends tensors to other libraries and borrows tensors from them. The structs are the binary interface of
// DLPack 1.0 in both forms: the old one without a version, and the new one with version and flags.
//
// Borrowed tensors are validated like any untrusted input. Tensors with strides are copied, because tensors here are
// dense.
#include "tensor/tensor.h"

#include <muster/dlpack.h>

// ---- The binary interface -----------------------------------------------------------------------

enum { ON_CPU = 1, ON_PINNED = 3 }; // device types whose memory the processor reads
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_BOOL = 6 };
enum { MAJOR = 1, FLAG_READ_ONLY = 1 };

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; // strides in elements; NULL: row-major
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

static const struct {
    uint8_t code, bits;
    mu_dtype dtype;
} types[] = {
    {CODE_FLOAT, 32, MU_F32}, {CODE_FLOAT, 64, MU_F64}, {CODE_FLOAT, 16, MU_F16}, {CODE_BFLOAT, 16, MU_BF16},
    {CODE_INT, 64, MU_I64},   {CODE_INT, 32, MU_I32},   {CODE_INT, 16, MU_I16},   {CODE_INT, 8, MU_I8},
    {CODE_UINT, 8, MU_U8},    {CODE_BOOL, 8, MU_BOOL},
};

// ---- Export -------------------------------------------------------------------------------------

// One block for either form, including the arrays that it points to.
typedef struct lent {
    union {
        dl_managed plain;
        dl_versioned versioned;
    } as;
    mu_tensor *tensor; // retained
    int64_t shape[MU_MAX_RANK], strides[MU_MAX_RANK];
} lent;

static void give_back(lent *l)
{
    mu_release(l->tensor);
    mu__free(l);
}

static void delete_plain(dl_managed *self) { give_back(self->context); }

static void delete_versioned(dl_versioned *self) { give_back(self->context); }

static void describe(lent *l, dl_tensor *out)
{
    const mu_tensor *tensor = l->tensor;
    int64_t step = 1;
    *out = (dl_tensor){.data = (void *)mu__host_read(tensor),
                       .device = {.type = ON_CPU},
                       .rank = tensor->shape.rank,
                       .shape = l->shape,
                       .strides = l->strides};
    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        l->shape[i] = tensor->shape.dims[i];
        l->strides[i] = step;
        step *= tensor->shape.dims[i];
    }
    for (size_t i = 0; i < MU_COUNT(types); i++)
        if (types[i].dtype == tensor->dtype) {
            out->dtype.code = types[i].code;
            out->dtype.bits = types[i].bits;
            out->dtype.lanes = 1;
        }
}

void *mu_to_dlpack(mu_tensor *tensor, bool versioned)
{
    if (mu__pending() || (!tensor && mu__error(MU_INVALID_ARGUMENT, "mu_to_dlpack: the tensor is NULL")) ||
        !mu_tensor_data(tensor)) // never NULL without an error, not even without elements
        return NULL;
    lent *l = mu__calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->tensor = mu_retain(tensor);
    if (!versioned) {
        l->as.plain = (dl_managed){.context = l, .deleter = delete_plain};
        describe(l, &l->as.plain.tensor);
        return &l->as.plain;
    }
    l->as.versioned =
        (dl_versioned){.version = {.major = MAJOR}, .context = l, .deleter = delete_versioned, .flags = FLAG_READ_ONLY};
    describe(l, &l->as.versioned.tensor);
    return &l->as.versioned;
}

// ---- Import -------------------------------------------------------------------------------------

static void release_plain(void *managed)
{
    dl_managed *m = managed;
    if (m->deleter)
        m->deleter(m);
}

static void release_versioned(void *managed)
{
    dl_versioned *m = managed;
    if (m->deleter)
        m->deleter(m);
}

static mu_status read_spec(const dl_tensor *t, mu_spec *out)
{
    *out = (mu_spec){.dtype = MU_DTYPE_DEFAULT};
    if (t->device.type != ON_CPU && t->device.type != ON_PINNED)
        return mu__error(MU_UNIMPLEMENTED,
                         "mu_from_dlpack: the tensor is on a device of type %d; copy it to the CPU first",
                         t->device.type);
    for (size_t i = 0; i < MU_COUNT(types); i++)
        if (types[i].code == t->dtype.code && types[i].bits == t->dtype.bits && t->dtype.lanes == 1)
            out->dtype = types[i].dtype;
    if (out->dtype == MU_DTYPE_DEFAULT)
        return mu__error(
            MU_UNIMPLEMENTED,
            "mu_from_dlpack: Muster has no type for elements of code %d with %d bits and %d lanes; convert them first",
            t->dtype.code, t->dtype.bits, t->dtype.lanes);
    if (t->rank < 0 || t->rank > MU_MAX_RANK || (t->rank > 0 && !t->shape))
        return mu__error(MU_INVALID_ARGUMENT, "mu_from_dlpack: rank %d is outside 0 to %d, or the shape is missing",
                         t->rank, MU_MAX_RANK);
    out->shape = mu_shape_make(t->rank, t->shape);
    MU_TRY(mu__shape_check(&out->shape, "mu_from_dlpack"));
    if (!mu__shape_known(&out->shape))
        return mu__error(MU_INVALID_ARGUMENT, "mu_from_dlpack: the shape has a negative dimension");
    if (!t->data && mu__elements(&out->shape) > 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_from_dlpack: the tensor has elements but no memory");
    return MU_OK;
}

static bool is_dense(const dl_tensor *t, const mu_spec *spec)
{
    int64_t step = 1;
    bool dense = ((uintptr_t)t->data + t->byte_offset) % mu_dtype_bytes(spec->dtype) == 0;
    for (int i = t->rank - 1; i >= 0 && t->strides && mu__elements(&spec->shape) > 0; i--) {
        dense &= spec->shape.dims[i] == 1 || t->strides[i] == step;
        step *= spec->shape.dims[i];
    }
    return dense;
}

// Copies element by element: strided tensors become dense here.
static void copy_elements(const dl_tensor *t, const mu_spec *spec, char *out)
{
    const size_t bytes = mu_dtype_bytes(spec->dtype);
    const char *base = (const char *)t->data + t->byte_offset;
    const int64_t n = mu__elements(&spec->shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0;
        for (int axis = t->rank - 1; axis >= 0 && t->strides; axis--) {
            at += rest % spec->shape.dims[axis] * t->strides[axis];
            rest /= spec->shape.dims[axis];
        }
        memcpy(out + (size_t)i * bytes, base + (t->strides ? at : i) * (int64_t)bytes, bytes);
    }
}

static _Alignas(64) char nothing[64];

// If this fails, the caller still owns the memory; so the release function is set last.
static mu_tensor *borrow(const dl_tensor *t, const mu_spec *spec, void *managed, void (*release)(void *arg))
{
    mu_buffer *buffer = mu__new(&mu__buffer_type, sizeof *buffer);
    if (!buffer)
        return NULL;
    buffer->memory_space = &mu__host_memory;
    buffer->data = t->data ? (char *)t->data + t->byte_offset : nothing; // no elements
    buffer->bytes = mu__spec_bytes(spec);
    buffer->arg = managed; // any non-NULL value: the buffer does not own the memory
    mu_tensor *tensor = mu__give(mu__tensor_view(buffer, 0, spec->dtype, &spec->shape));
    if (tensor)
        buffer->release = release;
    mu_release(buffer);
    return tensor;
}

mu_tensor *mu_from_dlpack(void *managed, bool versioned)
{
    mu_spec spec;
    if (mu__pending() || (!managed && mu__error(MU_INVALID_ARGUMENT, "mu_from_dlpack: the struct is NULL")))
        return NULL;
    if (versioned && ((const dl_versioned *)managed)->version.major != MAJOR) {
        mu__error(MU_UNIMPLEMENTED, "mu_from_dlpack: the struct has major version %u; this library knows %d",
                  ((const dl_versioned *)managed)->version.major, MAJOR);
        return NULL;
    }
    const dl_tensor *t = versioned ? &((const dl_versioned *)managed)->tensor : &((const dl_managed *)managed)->tensor;
    void (*release)(void *arg) = versioned ? release_versioned : release_plain;
    if (read_spec(t, &spec) != MU_OK)
        return NULL;
    if (is_dense(t, &spec))
        return borrow(t, &spec, managed, release);
    mu_tensor *copy = mu_tensor_new(spec.dtype, spec.shape.rank, spec.shape.dims, NULL);
    if (copy) {
        copy_elements(t, &spec, mu__host_write(copy));
        release(managed);
    }
    return copy;
}
