// Reads HDF5 files, as h5py and Keras write them, from memory: groups in old and new form, datasets in one piece.
//
// The reader is Muster's own, so that it can be bounded and fuzzed: every address and size is checked against the file,
// and groups nest and repeat only so far. What could reach out of the file (soft links, links to other files, external
// data) or is not needed for weights (chunks, filters, variable-length data) is refused by name. See
// docs/decisions/0053-own-hdf5.md.
#include "io/hdf5.h"

#include "io/io.h"

enum {
    MOST_DEPTH = 64,       // nested groups
    MOST_BLOCKS = 1 << 17, // headers, tree nodes and tables read in all; a cycle of links ends here
    MOST_NAME = 1024,      // bytes of a path
    OFFSET_BYTES = 8,
};

typedef struct scan {
    mu_tensor_file *file;
    const uint8_t *data;
    size_t bytes;
    int blocks;           // read so far
    char path[MOST_NAME]; // of the object that is being read
} scan;

// What the messages of an object header say.
typedef struct object {
    bool has_shape, has_type, has_layout, is_group;
    bool compact; // the data are in the header
    mu_spec spec;
    uint64_t begin, bytes; // of the data
    const char *refused;   // why a dataset cannot be read; NULL: it can
} object;

static mu_status damaged(const scan *s, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s: %s%s%s; is it an HDF5 file, and whole?", s->file->path, what,
                     *s->path ? " in " : "", s->path);
}

static mu_status refuse(const scan *s, const char *what)
{
    return mu__error(MU_UNIMPLEMENTED, "%s: '%s' %s", s->file->path, s->path, what);
}

// A cursor on `bytes` bytes at an address; empty and bad if they are not in the file.
static mu_cursor at(const scan *s, uint64_t address, uint64_t bytes)
{
    if (address > s->bytes || bytes > s->bytes - address) {
        mu_cursor bad = mu__cursor(s->data, 0);
        bad.bad = true;
        return bad;
    }
    return mu__cursor(s->data + address, (size_t)bytes);
}

// A cursor from an address to the end of the file.
static mu_cursor from(const scan *s, uint64_t address)
{
    return at(s, address, address <= s->bytes ? s->bytes - address : 0);
}

static uint16_t u16(mu_cursor *cursor)
{
    const uint16_t low = mu__cursor_u8(cursor);
    return (uint16_t)(low | mu__cursor_u8(cursor) << 8);
}

static mu_status count_block(scan *s)
{
    return ++s->blocks <= MOST_BLOCKS ? MU_OK : damaged(s, "the groups have no end");
}

// ---- Messages of a dataset ----------------------------------------------------------------------

static mu_status read_dataspace(const scan *s, mu_cursor c, object *o)
{
    const int version = mu__cursor_u8(&c), rank = mu__cursor_u8(&c);
    const int flags = mu__cursor_u8(&c), type = mu__cursor_u8(&c);
    (void)flags;
    if (version == 1)
        mu__cursor_u32_little(&c);
    if (rank > MU_MAX_RANK) {
        o->refused = "has more dimensions than Muster's tensors can have";
        return MU_OK;
    }
    o->spec.shape.rank = rank;
    for (int d = 0; d < rank; d++)
        o->spec.shape.dims[d] = (int64_t)mu__cursor_u64_little(&c);
    if (version == 2 && type == 2)
        o->refused = "has no elements (a null dataspace)";
    o->has_shape = true;
    return c.bad || version < 1 || version > 2 ? damaged(s, "a dataspace is damaged") : MU_OK;
}

static mu_dtype integer_type(uint32_t bytes, bool is_signed)
{
    if (!is_signed)
        return bytes == 1 ? MU_U8 : MU_DTYPE_DEFAULT;
    return bytes == 1 ? MU_I8 : bytes == 2 ? MU_I16 : bytes == 4 ? MU_I32 : bytes == 8 ? MU_I64 : MU_DTYPE_DEFAULT;
}

// Keras keeps bfloat16 as opaque elements of 2 bytes, h5py keeps bool as an enumeration of one.
static mu_status read_datatype(const scan *s, mu_cursor c, object *o)
{
    const uint8_t head = mu__cursor_u8(&c), bits = mu__cursor_u8(&c);
    u16(&c);
    const uint32_t bytes = mu__cursor_u32_little(&c);
    const bool is_big = bits & 1;
    mu_dtype type = MU_DTYPE_DEFAULT;
    switch (head & 15) {
    case MU_HDF5_INTEGER: type = integer_type(bytes, bits & 8); break;
    case MU_HDF5_FLOAT: type = bytes == 2 ? MU_F16 : bytes == 4 ? MU_F32 : bytes == 8 ? MU_F64 : type; break;
    case MU_HDF5_OPAQUE: type = bytes == 2 ? MU_BF16 : type; break;
    case MU_HDF5_ENUM: type = bytes == 1 ? MU_BOOL : type; break;
    default: break;
    }
    if ((head & 15) <= MU_HDF5_FLOAT && is_big)
        o->refused = "has big-endian elements; save the file again on a little-endian machine";
    else if (type == MU_DTYPE_DEFAULT)
        o->refused = "has elements of a type that Muster does not have";
    o->spec.dtype = type;
    o->has_type = true;
    return c.bad ? damaged(s, "a datatype is damaged") : MU_OK;
}

static mu_status read_layout(const scan *s, mu_cursor c, object *o)
{
    const int version = mu__cursor_u8(&c), class = mu__cursor_u8(&c);
    o->has_layout = true;
    if (version < 3 || version > 4 || class > 1)
        o->refused = class >= 2 && version >= 3
                         ? "is stored in chunks or is virtual; save it without compression and chunks"
                         : "has the layout of a very old version; save the file again with h5py";
    if (o->refused)
        return c.bad ? damaged(s, "a layout is damaged") : MU_OK;
    o->compact = class == 0;
    if (o->compact) {
        o->bytes = u16(&c);
        o->begin = (uint64_t)(c.at - s->data);
        mu__cursor_bytes(&c, (size_t)o->bytes);
    } else {
        o->begin = mu__cursor_u64_little(&c);
        o->bytes = mu__cursor_u64_little(&c);
    }
    return c.bad ? damaged(s, "a layout is damaged") : MU_OK;
}

// ---- Groups -------------------------------------------------------------------------------------

static mu_status read_object(scan *s, uint64_t address, int depth);

// Reads the object that a link of this name leads to.
static mu_status follow(scan *s, const char *name, size_t length, uint64_t address, int depth)
{
    const size_t used = strlen(s->path);
    if (length == 0 || memchr(name, 0, length) || memchr(name, '/', length))
        return damaged(s, "a link has no name, or one that is a path");
    if (used + length + 2 > sizeof s->path || depth >= MOST_DEPTH)
        return damaged(s, "the groups are nested too deeply");
    snprintf(s->path + used, sizeof s->path - used, "%s%.*s", used ? "/" : "", (int)length, name);
    const mu_status status = read_object(s, address, depth + 1);
    if (status == MU_OK)
        s->path[used] = '\0';
    return status;
}

static mu_status read_link(scan *s, mu_cursor c, int depth)
{
    const int version = mu__cursor_u8(&c), flags = mu__cursor_u8(&c);
    const int type = flags & 8 ? mu__cursor_u8(&c) : 0;
    if (flags & 4)
        mu__cursor_u64_little(&c);
    if (flags & 16)
        mu__cursor_u8(&c);
    uint64_t length = 0;
    for (int i = 0; i < 1 << (flags & 3); i++)
        length |= (uint64_t)mu__cursor_u8(&c) << 8 * i;
    const uint8_t *name = length <= mu__cursor_left(&c) ? mu__cursor_bytes(&c, (size_t)length) : NULL;
    if (c.bad || !name || version != 1)
        return damaged(s, "a link is damaged");
    if (type != 0)
        return mu__error(MU_UNIMPLEMENTED, "%s: '%.*s' is a %s, which is not followed", s->file->path,
                         (int)MU_MIN(length, 200), name, type == 64 ? "link to another file" : "soft link");
    const uint64_t address = mu__cursor_u64_little(&c);
    return c.bad ? damaged(s, "a link is damaged") : follow(s, (const char *)name, (size_t)length, address, depth);
}

// The name in a local heap's data, which ends with a zero.
static mu_status heap_name(const scan *s, uint64_t heap, uint64_t offset, const char **name, size_t *length)
{
    mu_cursor c = from(s, heap);
    const uint8_t *head = mu__cursor_bytes(&c, 8);
    const uint64_t bytes = mu__cursor_u64_little(&c);
    mu__cursor_u64_little(&c);
    const uint64_t address = mu__cursor_u64_little(&c);
    mu_cursor names = at(s, address, bytes);
    if (c.bad || memcmp(head, "HEAP", 4) != 0 || names.bad || offset >= bytes)
        return damaged(s, "a heap of names is damaged");
    const uint8_t *text = names.at + offset, *end = memchr(text, 0, (size_t)(bytes - offset));
    if (!end)
        return damaged(s, "a name has no end");
    *name = (const char *)text;
    *length = (size_t)(end - text);
    return MU_OK;
}

static mu_status read_symbols(scan *s, uint64_t address, uint64_t heap, int depth)
{
    mu_cursor c = from(s, address);
    const uint8_t *head = mu__cursor_bytes(&c, 6);
    const int n = u16(&c);
    if (c.bad || memcmp(head, "SNOD", 4) != 0)
        return damaged(s, "a table of names is damaged");
    for (int i = 0; i < n; i++) {
        const char *name = NULL;
        size_t length = 0;
        const uint64_t offset = mu__cursor_u64_little(&c), object_at = mu__cursor_u64_little(&c);
        const uint32_t type = mu__cursor_u32_little(&c);
        mu__cursor_bytes(&c, 20);
        if (c.bad)
            return damaged(s, "a table of names is cut off");
        MU_TRY(heap_name(s, heap, offset, &name, &length));
        if (type == 2)
            return mu__error(MU_UNIMPLEMENTED, "%s: '%.*s' is a soft link, which is not followed", s->file->path,
                             (int)MU_MIN(length, (size_t)200), name);
        MU_TRY(follow(s, name, length, object_at, depth));
    }
    return MU_OK;
}

// A tree of tables of names, which is as deep as its root says.
static mu_status read_tree(scan *s, uint64_t address, uint64_t heap, int level, int depth)
{
    MU_TRY(count_block(s));
    mu_cursor c = from(s, address);
    const uint8_t *head = mu__cursor_bytes(&c, 6);
    const int n = u16(&c);
    mu__cursor_bytes(&c, 16);
    if (c.bad || memcmp(head, "TREE", 4) != 0 || head[4] != 0 || (level >= 0 && head[5] != level) || head[5] > 16)
        return damaged(s, "a tree of names is damaged");
    for (int i = 0; i < n; i++) {
        mu__cursor_u64_little(&c);
        const uint64_t child = mu__cursor_u64_little(&c);
        if (c.bad)
            return damaged(s, "a tree of names is cut off");
        MU_TRY(head[5] > 0 ? read_tree(s, child, heap, head[5] - 1, depth) : read_symbols(s, child, heap, depth));
    }
    return MU_OK;
}

static mu_status read_symbol_table(scan *s, mu_cursor c, int depth)
{
    const uint64_t tree = mu__cursor_u64_little(&c), heap = mu__cursor_u64_little(&c);
    return c.bad ? damaged(s, "a group is damaged") : read_tree(s, tree, heap, -1, depth);
}

static mu_status read_link_info(const scan *s, mu_cursor c)
{
    mu__cursor_u8(&c);
    if (mu__cursor_u8(&c) & 1)
        mu__cursor_u64_little(&c);
    const uint64_t heap = mu__cursor_u64_little(&c);
    if (c.bad)
        return damaged(s, "a group is damaged");
    return heap == MU_HDF5_UNDEFINED
               ? MU_OK
               : refuse(s, "is a group with indexed links; save the file with h5py's default libver");
}

// ---- Object headers -----------------------------------------------------------------------------

static mu_status read_block(scan *s, mu_cursor c, int version, int flags, object *o, int depth, int nested);

static mu_status read_continuation(scan *s, mu_cursor c, int version, int flags, object *o, int depth, int nested)
{
    const uint64_t address = mu__cursor_u64_little(&c), bytes = mu__cursor_u64_little(&c);
    mu_cursor block = at(s, address, bytes);
    if (c.bad || block.bad || nested >= MOST_DEPTH)
        return damaged(s, "a header's continuation is not in the file");
    if (version == 2) {
        const uint8_t *signature = mu__cursor_bytes(&block, 4);
        if (block.bad || memcmp(signature, "OCHK", 4) != 0 || mu__cursor_left(&block) < 4)
            return damaged(s, "a header's continuation is damaged");
        block.end -= 4;
    }
    return read_block(s, block, version, flags, o, depth, nested + 1);
}

static mu_status read_message(scan *s, int type, mu_cursor c, int version, int flags, object *o, int depth, int nested)
{
    switch (type) {
    case MU_HDF5_DATASPACE: return read_dataspace(s, c, o);
    case MU_HDF5_DATATYPE: return read_datatype(s, c, o);
    case MU_HDF5_LAYOUT: return read_layout(s, c, o);
    case MU_HDF5_EXTERNAL_FILES: o->refused = "has its data in other files, which are not opened"; return MU_OK;
    case MU_HDF5_FILTERS: o->refused = "is compressed; save it without compression"; return MU_OK;
    case MU_HDF5_LINK_INFO: o->is_group = true; return read_link_info(s, c);
    case MU_HDF5_LINK: o->is_group = true; return read_link(s, c, depth);
    case MU_HDF5_SYMBOL_TABLE: o->is_group = true; return read_symbol_table(s, c, depth);
    case MU_HDF5_CONTINUATION: return read_continuation(s, c, version, flags, o, depth, nested);
    default: return MU_OK;
    }
}

// The messages of one block of a header.
static mu_status read_block(scan *s, mu_cursor c, int version, int flags, object *o, int depth, int nested)
{
    const size_t head = version == 1 ? 8 : flags & 4 ? 6 : 4;
    MU_TRY(count_block(s));
    while (mu__cursor_left(&c) >= head) {
        const int type = version == 1 ? u16(&c) : mu__cursor_u8(&c);
        const uint16_t bytes = u16(&c);
        const int shared = mu__cursor_u8(&c) & 2;
        mu__cursor_bytes(&c, head - (version == 1 ? 5 : 4));
        const uint8_t *body = mu__cursor_bytes(&c, bytes);
        if (c.bad)
            return damaged(s, "a header is cut off");
        if (shared && (type == MU_HDF5_DATATYPE || type == MU_HDF5_DATASPACE))
            o->refused = "has a shared datatype, which Muster does not read";
        else
            MU_TRY(read_message(s, type, mu__cursor(body, bytes), version, flags, o, depth, nested));
    }
    return MU_OK;
}

static mu_status read_old_header(scan *s, mu_cursor c, object *o, int depth)
{
    mu__cursor_bytes(&c, 8);
    const uint32_t bytes = mu__cursor_u32_little(&c);
    mu__cursor_u32_little(&c);
    const uint8_t *block = mu__cursor_bytes(&c, bytes);
    if (c.bad)
        return damaged(s, "a header is cut off");
    return read_block(s, mu__cursor(block, bytes), 1, 0, o, depth, 0);
}

static mu_status read_new_header(scan *s, mu_cursor c, object *o, int depth)
{
    mu__cursor_bytes(&c, 4);
    const int version = mu__cursor_u8(&c), flags = mu__cursor_u8(&c);
    mu__cursor_bytes(&c, (flags & 32 ? 16u : 0) + (flags & 16 ? 4u : 0));
    uint64_t bytes = 0;
    for (int i = 0; i < 1 << (flags & 3); i++)
        bytes |= (uint64_t)mu__cursor_u8(&c) << 8 * i;
    const uint8_t *block = bytes <= mu__cursor_left(&c) ? mu__cursor_bytes(&c, (size_t)bytes) : NULL;
    if (c.bad || !block || version != 2)
        return damaged(s, "a header is cut off");
    return read_block(s, mu__cursor(block, (size_t)bytes), 2, flags, o, depth, 0);
}

// Adds the dataset whose header has been read.
static mu_status add_dataset(scan *s, const object *o)
{
    uint64_t bytes;
    if (o->refused)
        return refuse(s, o->refused);
    if (!o->has_shape || !o->has_type || !o->has_layout)
        return damaged(s, "a dataset has no shape, type or layout");
    if (!mu__spec_file_bytes(&o->spec, &bytes))
        return damaged(s, "the product of the dimensions does not fit 63 bits");
    mu_file_entry entry = {.spec = o->spec};
    if (bytes > 0 && (o->bytes != bytes || at(s, o->begin, bytes).bad))
        return damaged(s, "the elements are not in the file");
    if (bytes > 0) {
        entry.begin = o->begin;
        entry.end = o->begin + bytes;
    }
    if (!(entry.name = mu__strdup(s->path)))
        return mu_error_code();
    s->file->data_bytes += bytes;
    if (s->file->data_bytes > s->bytes) {
        mu__free(entry.name);
        return damaged(s, "datasets share their elements");
    }
    return mu__file_add_entry(s->file, entry);
}

static mu_status read_object(scan *s, uint64_t address, int depth)
{
    object o = {0};
    mu_cursor c = from(s, address);
    if (mu__cursor_left(&c) < 16)
        return damaged(s, "an object begins after the end of the file");
    if (memcmp(c.at, "OHDR", 4) == 0)
        MU_TRY(read_new_header(s, c, &o, depth));
    else if (c.at[0] == 1)
        MU_TRY(read_old_header(s, c, &o, depth));
    else
        return damaged(s, "an object has no header");
    return o.is_group || (!o.has_shape && !o.has_layout) ? MU_OK : add_dataset(s, &o);
}

// ---- The file -----------------------------------------------------------------------------------

// The address of the root group, from the superblock.
static mu_status read_superblock(const scan *s, uint64_t *root)
{
    mu_cursor c = from(s, 0);
    const uint8_t *head = mu__cursor_bytes(&c, 8);
    const int version = mu__cursor_u8(&c);
    if (c.bad || memcmp(head, MU_HDF5_SIGNATURE, 8) != 0 || version > 3)
        return damaged(s, "it does not begin as version 0 to 3 of the format does");
    if (version <= 1)
        mu__cursor_bytes(&c, 4);
    const int offsets = mu__cursor_u8(&c), lengths = mu__cursor_u8(&c);
    if (offsets != OFFSET_BYTES || lengths != OFFSET_BYTES)
        return mu__error(MU_UNIMPLEMENTED, "%s has addresses of %d bytes; Muster reads those of 8", s->file->path,
                         offsets);
    mu__cursor_bytes(&c, version == 0 ? 9 : version == 1 ? 13 : 1);
    const uint64_t base = mu__cursor_u64_little(&c);
    mu__cursor_bytes(&c, version <= 1 ? 32 : 16);
    *root = mu__cursor_u64_little(&c);
    return c.bad || base != 0 ? damaged(s, "the superblock is damaged") : MU_OK;
}

mu_status mu__hdf5_scan(mu_tensor_file *file, const uint8_t *data, size_t bytes)
{
    scan s = {.file = file, .data = data, .bytes = bytes};
    uint64_t root = 0;
    MU_TRY(read_superblock(&s, &root));
    return read_object(&s, root, 0);
}

void mu__hdf5_read(const mu_file_entry *entry, const uint8_t *data, void *out)
{
    memcpy(out, data + entry->begin, (size_t)(entry->end - entry->begin));
    if (entry->spec.dtype != MU_BOOL)
        return;
    for (uint64_t i = 0; i < entry->end - entry->begin; i++)
        ((uint8_t *)out)[i] = ((uint8_t *)out)[i] != 0;
}

static mu_status open_file(mu_tensor_file *file)
{
    size_t bytes = 0;
    MU_TRY(mu__file_read(file->path, MU_TENSOR_FILE_LIMIT, &file->state, &bytes));
    return mu__hdf5_scan(file, file->state, bytes);
}

static void close_file(mu_tensor_file *file) { mu__free(file->state); }

static mu_status read_entry(const mu_tensor_file *file, const mu_file_entry *entry, void *out)
{
    mu__hdf5_read(entry, file->state, out);
    return MU_OK;
}

static bool recognise(const uint8_t *head, size_t bytes)
{
    return bytes >= 8 && memcmp(head, MU_HDF5_SIGNATURE, 8) == 0;
}

static const char *const no_metadata[] = {NULL};

const mu_file_format mu__hdf5_format = {
    .name = "hdf5",
    .extension = ".weights.h5",
    .text = "Keras's weights, with the state of the optimizer",
    .names = MU_NAMES_KERAS,
    .metadata = no_metadata,
    .recognise = recognise,
    .open = open_file,
    .close = close_file,
    .read = read_entry,
    .save = mu__hdf5_save,
};
