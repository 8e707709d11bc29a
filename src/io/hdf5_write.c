// Writes HDF5 files: superblock version 2, groups with their links in the header, contiguous datasets.
//
// The headers are laid out in memory and come first; the elements follow, each tensor at a multiple of 64 bytes. Paths
// such as "layers/dense/vars/0" become groups. h5py, and whatever uses HDF5 1.8 or later, reads these files.
#include "io/hdf5.h"

#include "io/io.h"
#include "io/path_tree.h"

enum {
    ALIGNMENT = 64,
    SUPERBLOCK_BYTES = 48,
    HEADER_PREFIX = 10,
    CHECKSUM_BYTES = 4,
    MESSAGE_PREFIX = 4,
    MOST_LINK_NAME = 255,
    HEAP_BYTES = 4096
};

typedef struct tree {
    const char *path;
    const mu_tensors *all;
    mu_path_tree nodes; // a node per group and data set
    struct {
        uint8_t *items;
        size_t n, capacity;
    } out;
    uint64_t *data; // [n]: addresses of the tensors' elements
    uint64_t end;   // of the file
    uint64_t heap;  // address of the text "bfloat16"; 0: it is not needed
} tree;

// ---- The tree of groups -------------------------------------------------------------------------

static mu_status wrong_name(const tree *t, int tensor, const char *what)
{
    return mu__error(MU_INVALID_ARGUMENT, "the name '%.200s' of a tensor to save in %s %s", t->all->names[tensor],
                     t->path, what);
}

// Adds a tensor, and the groups of its path that are not there yet.
static mu_status add_path(tree *t, int tensor)
{
    const char *name = t->all->names[tensor];
    for (int group = 0;;) {
        const char *slash = strchr(name, '/');
        const size_t length = slash ? (size_t)(slash - name) : strlen(name);
        if (length == 0 || length > MOST_LINK_NAME || (length == 1 && *name == '.'))
            return wrong_name(t, tensor, "has a part between slashes that is empty, '.' or longer than 255 bytes");
        int found = mu__path_child(&t->nodes, group, name, length);
        if (found >= 0 && (!slash || t->nodes.items[found].tensor >= 0))
            return wrong_name(t, tensor, "is another tensor's too, or the beginning of its path; names must differ");
        if (found < 0) {
            found = (int)t->nodes.n;
            MU_TRY(mu__path_add(&t->nodes, group, name, length));
            t->nodes.items[found].tensor = slash ? -1 : tensor;
        }
        if (!slash)
            return MU_OK;
        group = found;
        name = slash + 1;
    }
}

// ---- Bytes --------------------------------------------------------------------------------------

static mu_status put(tree *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        const uint8_t byte = (uint8_t)(i < 8 ? value >> 8 * i : 0);
        MU_TRY(MU_PUSH(&t->out, byte));
    }
    return MU_OK;
}

static mu_status put_text(tree *t, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        MU_TRY(put(t, (uint8_t)text[i], 1));
    return MU_OK;
}

static uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

// Jenkins's lookup3, which the format uses for its checksums.
static uint32_t lookup3(const uint8_t *key, size_t length)
{
    uint32_t s[3];
    s[0] = s[1] = s[2] = 0xdeadbeefu + (uint32_t)length;
    while (length > 12) {
        for (int i = 0; i < 12; i++)
            s[i / 4] += (uint32_t)key[i] << 8 * (i % 4);
        s[0] -= s[2];
        s[0] ^= rotate(s[2], 4);
        s[2] += s[1];
        s[1] -= s[0];
        s[1] ^= rotate(s[0], 6);
        s[0] += s[2];
        s[2] -= s[1];
        s[2] ^= rotate(s[1], 8);
        s[1] += s[0];
        s[0] -= s[2];
        s[0] ^= rotate(s[2], 16);
        s[2] += s[1];
        s[1] -= s[0];
        s[1] ^= rotate(s[0], 19);
        s[0] += s[2];
        s[2] -= s[1];
        s[2] ^= rotate(s[1], 4);
        s[1] += s[0];
        key += 12;
        length -= 12;
    }
    if (length == 0)
        return s[2];
    for (size_t i = 0; i < length; i++)
        s[i / 4] += (uint32_t)key[i] << 8 * (i % 4);
    s[2] ^= s[1];
    s[2] -= rotate(s[1], 14);
    s[0] ^= s[2];
    s[0] -= rotate(s[2], 11);
    s[1] ^= s[0];
    s[1] -= rotate(s[0], 25);
    s[2] ^= s[1];
    s[2] -= rotate(s[1], 16);
    s[0] ^= s[2];
    s[0] -= rotate(s[2], 4);
    s[1] ^= s[0];
    s[1] -= rotate(s[0], 14);
    s[2] ^= s[1];
    s[2] -= rotate(s[1], 24);
    return s[2];
}

static mu_status put_checksum(tree *t, size_t begin)
{
    return put(t, lookup3(t->out.items + begin, t->out.n - begin), CHECKSUM_BYTES);
}

// ---- Headers ------------------------------------------------------------------------------------

static mu_status put_message(tree *t, int type, size_t bytes)
{
    MU_TRY(put(t, (uint64_t)type, 1));
    MU_TRY(put(t, bytes, 2));
    return put(t, 0, 1);
}

// Numbers of elements: sign bit, exponent's place, size and bias, mantissa's size; for integers the sign flag.
static mu_status put_float(tree *t, uint64_t bytes, uint64_t exponent_bits, uint64_t bias)
{
    const uint64_t bits = 8 * bytes, mantissa = bits - 1 - exponent_bits;
    MU_TRY(put_message(t, MU_HDF5_DATATYPE, 20));
    MU_TRY(put(t, 0x10 | MU_HDF5_FLOAT, 1));
    MU_TRY(put(t, 0x20 | (bits - 1) << 8, 3)); // the mantissa's first bit is implied
    MU_TRY(put(t, bytes, 4));
    MU_TRY(put(t, bits << 16, 4));
    MU_TRY(put(t, mantissa | exponent_bits << 8 | 0 << 16 | mantissa << 24, 4));
    return put(t, bias, 4);
}

static mu_status put_integer(tree *t, uint64_t bytes, bool is_signed)
{
    MU_TRY(put(t, 0x10 | MU_HDF5_INTEGER, 1));
    MU_TRY(put(t, is_signed ? 8 : 0, 3));
    MU_TRY(put(t, bytes, 4));
    return put(t, 8 * bytes << 16, 4);
}

static mu_status put_datatype(tree *t, mu_dtype dtype)
{
    switch (dtype) {
    case MU_F16: return put_float(t, 2, 5, 15);
    case MU_F32: return put_float(t, 4, 8, 127);
    case MU_F64: return put_float(t, 8, 11, 1023);
    case MU_BF16: // opaque, with an empty tag, as h5py does it
        MU_TRY(put_message(t, MU_HDF5_DATATYPE, 16));
        MU_TRY(put(t, 0x10 | MU_HDF5_OPAQUE | 8 << 8, 4));
        MU_TRY(put(t, 2, 4));
        return put(t, 0, 8);
    case MU_BOOL: // h5py's enumeration of FALSE and TRUE
        MU_TRY(put_message(t, MU_HDF5_DATATYPE, 8 + 12 + 6 + 5 + 2));
        MU_TRY(put(t, 0x30 | MU_HDF5_ENUM | 2 << 8, 4));
        MU_TRY(put(t, 1, 4));
        MU_TRY(put_integer(t, 1, true));
        MU_TRY(put_text(t, "FALSE\0TRUE", 11));
        return put(t, 0x100, 2);
    default: MU_TRY(put_message(t, MU_HDF5_DATATYPE, 12)); return put_integer(t, mu_dtype_bytes(dtype), dtype != MU_U8);
    }
}

// The attribute by which Keras knows bfloat16: "dtype", a text of variable length in the global heap.
static mu_status put_type_attribute(tree *t)
{
    MU_TRY(put_message(t, MU_HDF5_ATTRIBUTE, 9 + 6 + 16 + 4 + 16));
    MU_TRY(put(t, 3, 2));
    MU_TRY(put(t, 6 | 16 << 16 | (uint64_t)4 << 32, 6));
    MU_TRY(put(t, 0, 1));
    MU_TRY(put_text(t, "dtype", 6));
    MU_TRY(put(t, 0x10 | MU_HDF5_VARIABLE | 1 << 8 | 1 << 16, 4)); // a text, in UTF-8
    MU_TRY(put(t, 16, 4));
    MU_TRY(put(t, 0x10 | MU_HDF5_STRING, 4));
    MU_TRY(put(t, 1, 4));
    MU_TRY(put(t, 2, 4)); // version 2, a scalar
    MU_TRY(put(t, strlen("bfloat16"), 4));
    MU_TRY(put(t, t->heap, 8));
    return put(t, 1, 4);
}

static mu_status put_dataset(tree *t, const mu_path_node *n)
{
    const mu_spec spec = mu__spec_of(t->all->tensors[n->tensor]);
    const int rank = spec.shape.rank;
    MU_TRY(put_message(t, MU_HDF5_DATASPACE, 4 + 8 * (size_t)rank));
    MU_TRY(put(t, 2 | (uint64_t)rank << 8 | (rank > 0 ? 1u << 24 : 0), 4));
    for (int d = 0; d < rank; d++)
        MU_TRY(put(t, (uint64_t)spec.shape.dims[d], 8));
    MU_TRY(put_datatype(t, spec.dtype));
    MU_TRY(put_message(t, MU_HDF5_FILL_VALUE, 2));
    MU_TRY(put(t, 3 | 0x0a << 8, 2)); // the default, written if it is set; space allocated late
    MU_TRY(put_message(t, MU_HDF5_LAYOUT, 18));
    MU_TRY(put(t, 3 | 1 << 8, 2));
    const size_t bytes = mu__spec_bytes(&spec);
    MU_TRY(put(t, bytes > 0 ? t->data[n->tensor] : MU_HDF5_UNDEFINED, 8));
    MU_TRY(put(t, bytes, 8));
    return spec.dtype == MU_BF16 ? put_type_attribute(t) : MU_OK;
}

static mu_status put_group(tree *t, const mu_path_node *n)
{
    MU_TRY(put_message(t, MU_HDF5_LINK_INFO, 18));
    MU_TRY(put(t, 0, 2));
    MU_TRY(put(t, MU_HDF5_UNDEFINED, 8));
    MU_TRY(put(t, MU_HDF5_UNDEFINED, 8));
    MU_TRY(put_message(t, MU_HDF5_GROUP_INFO, 2));
    MU_TRY(put(t, 0, 2));
    for (int i = n->first; i >= 0; i = t->nodes.items[i].next) {
        const mu_path_node *child = &t->nodes.items[i];
        MU_TRY(put_message(t, MU_HDF5_LINK, 4 + child->length + 8));
        MU_TRY(put(t, 1 | 16 << 8 | 1 << 16, 3)); // a hard link whose name is UTF-8
        MU_TRY(put(t, child->length, 1));
        MU_TRY(put_text(t, child->name, child->length));
        MU_TRY(put(t, child->address, 8));
    }
    return MU_OK;
}

// Writes a node's header at the end of `out`. The size of its messages goes into place when they are there.
static mu_status put_header(tree *t, int i)
{
    const size_t begin = t->out.n;
    t->nodes.items[i].address = begin;
    MU_TRY(put_text(t, "OHDR", 4));
    MU_TRY(put(t, 2 | 2 << 8, 2));
    MU_TRY(put(t, 0, 4));
    const mu_path_node n = t->nodes.items[i];
    MU_TRY(n.tensor < 0 ? put_group(t, &n) : put_dataset(t, &n));
    const size_t bytes = t->out.n - begin - HEADER_PREFIX;
    for (int k = 0; k < 4; k++)
        t->out.items[begin + 6 + (size_t)k] = (uint8_t)(bytes >> 8 * k);
    return put_checksum(t, begin);
}

static mu_status put_superblock(tree *t)
{
    MU_TRY(put_text(t, MU_HDF5_SIGNATURE, 8));
    MU_TRY(put(t, 2 | 8 << 8 | 8 << 16, 4));
    MU_TRY(put(t, 0, 8));
    MU_TRY(put(t, MU_HDF5_UNDEFINED, 8));
    MU_TRY(put(t, t->end, 8));
    MU_TRY(put(t, t->nodes.items[0].address, 8));
    return put_checksum(t, 0);
}

static mu_status put_heap(tree *t)
{
    const size_t begin = t->heap = t->out.n;
    MU_TRY(put_text(t, "GCOL", 4));
    MU_TRY(put(t, 1, 4));
    MU_TRY(put(t, HEAP_BYTES, 8));
    MU_TRY(put(t, 1 | 1 << 16, 8)); // object 1, with one reference
    MU_TRY(put(t, strlen("bfloat16"), 8));
    MU_TRY(put_text(t, "bfloat16", 8));
    MU_TRY(put(t, 0, 8)); // the free space
    MU_TRY(put(t, HEAP_BYTES - (t->out.n - begin - 8), 8));
    return put(t, 0, (int)(HEAP_BYTES - (t->out.n - begin)));
}

// ---- The whole file -----------------------------------------------------------------------------

static bool needs_heap(const mu_tensors *all)
{
    for (int i = 0; i < all->n; i++)
        if (all->tensors[i]->dtype == MU_BF16)
            return true;
    return false;
}

// One pass over all headers. Children come first, so that links know their addresses; a second pass, with the same
// sizes, knows where the elements are.
static mu_status put_all(tree *t)
{
    t->out.n = 0;
    MU_TRY(put_superblock(t));
    if (needs_heap(t->all))
        MU_TRY(put_heap(t));
    for (size_t i = t->nodes.n; i-- > 0;)
        MU_TRY(put_header(t, (int)i));
    return MU_OK;
}

static void place_elements(tree *t, size_t *padding)
{
    uint64_t at = t->out.n;
    for (int i = 0; i < t->all->n; i++) {
        const mu_spec spec = mu__spec_of(t->all->tensors[i]);
        padding[i] = (size_t)((ALIGNMENT - at % ALIGNMENT) % ALIGNMENT);
        at += padding[i];
        t->data[i] = at;
        at += mu__spec_bytes(&spec);
    }
    t->end = at;
}

static mu_status make_layout(tree *t, mu_hdf5_layout *out)
{
    out->padding = mu__calloc((size_t)t->all->n + 1, sizeof *out->padding);
    t->data = mu__calloc((size_t)t->all->n + 1, sizeof *t->data);
    if (!out->padding || !t->data)
        return mu_error_code();
    MU_TRY(mu__path_add(&t->nodes, -1, "", 0));
    for (int i = 0; i < t->all->n; i++)
        MU_TRY(add_path(t, i));
    MU_TRY(put_all(t));
    place_elements(t, out->padding);
    return put_all(t);
}

mu_status mu__hdf5_layout(const char *path, const mu_tensors *all, mu_hdf5_layout *out)
{
    tree t = {.path = path, .all = all};
    *out = (mu_hdf5_layout){0};
    const mu_status status = make_layout(&t, out);
    out->head = t.out.items;
    out->head_bytes = t.out.n;
    mu__free(t.nodes.items);
    mu__free(t.data);
    return status;
}

void mu__hdf5_layout_free(mu_hdf5_layout *layout)
{
    mu__free(layout->head);
    mu__free(layout->padding);
}

static mu_status write_file(mu_file_writer *file, const mu_tensors *all, const mu_hdf5_layout *layout)
{
    static const uint8_t zeros[ALIGNMENT];
    MU_TRY(mu__file_write(file, layout->head, layout->head_bytes));
    for (int i = 0; i < all->n; i++) {
        const mu_spec spec = mu__spec_of(all->tensors[i]);
        MU_TRY(mu__file_write(file, zeros, layout->padding[i]));
        MU_TRY(mu__file_write(file, mu__host_read(all->tensors[i]), mu__spec_bytes(&spec)));
    }
    return MU_OK;
}

mu_status mu__hdf5_save(const char *path, const mu_tensors *all)
{
    mu_hdf5_layout layout;
    mu_file_writer *file = NULL;
    mu_status status = mu__hdf5_layout(path, all, &layout);
    if (status == MU_OK)
        status = (file = mu__file_create(path)) ? write_file(file, all, &layout) : mu_error_code();
    mu__hdf5_layout_free(&layout);
    if (status == MU_OK)
        return mu__file_commit(file);
    mu__file_abandon(file);
    return status;
}
