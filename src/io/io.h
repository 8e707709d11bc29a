// Internal interface to files of named tensors: the formats, and an open file, whatever its format is.
//
// A format is one row of the table in formats.c. Everything that opens or saves such files goes through that table:
// mu_load_tensors, mu_save_weights, `muster inspect`, `muster convert`.
#ifndef MU_SRC_IO_IO_H
#define MU_SRC_IO_IO_H

#include "tensor/tensor.h"

#include <muster/io.h>

typedef struct mu_file_format mu_file_format;

typedef struct mu_file_entry {
    char *name;
    mu_spec spec;
    uint64_t begin, end; // bytes, counted from where the format says
    uint32_t part;       // of the format: the number of a shard, or of a member of an archive
    uint32_t crc;        // of the format
} mu_file_entry;

struct mu_tensor_file {
    mu_object object;
    char *path;
    const mu_file_format *format;
    void *state;         // of the format; its `close` frees it
    int fd;              // of a format that reads from the file itself, else -1
    uint64_t data_at;    // offset of the first byte of data
    uint64_t data_bytes; // of all tensors
    struct {
        mu_file_entry *items;
        size_t n, capacity;
    } entries;
    struct {
        char **items;
        size_t n, capacity;
    } metadata; // key, text, key, text, …
};

// The names of tensors in files of a format, from which mu_save_weights chooses what it writes.
#define MU_BUNDLE_SUFFIX "/.ATTRIBUTES/VARIABLE_VALUE" // the end of a variable's name in an object graph
#define MU_BUNDLE_TABLE  "/.ATTRIBUTES/table" // and of a hash table's, with "-keys" and "-values" appended for tensors
typedef enum mu_file_names {
    MU_NAMES_OWN,     // "dense/kernel", Keras's paths of variables
    MU_NAMES_KERAS,   // "layers/dense/vars/0", Keras's files
    MU_NAMES_OBJECTS, // "_operations/1/_kernel/.ATTRIBUTES/VARIABLE_VALUE", the object graph of TensorFlow
} mu_file_names;

// What to save: n eager tensors, their names, and texts (key, text, …, NULL; or NULL for none).
typedef struct mu_tensors {
    int n;
    const char *const *names;
    mu_tensor *const *tensors;
    const char *const *metadata;
} mu_tensors;

struct mu_file_format {
    const char *name;      // "safetensors"
    const char *extension; // ".safetensors"
    const char *text;      // for the help, a phrase
    mu_file_names names;
    // the keys of texts that a file can hold, or their beginnings that end with '/'; ends with NULL; NULL: any
    const char *const *metadata;
    bool no_strings; // holds tensors of strings that have no elements, the keys of empty tables
    // recognise returns whether a file that begins with these bytes, at most MU_FILE_HEAD, has this format.
    bool (*recognise)(const uint8_t *head, size_t bytes);
    // open fills the entries, data_bytes and metadata; it trusts nothing. close frees what it left in `state`.
    mu_status (*open)(mu_tensor_file *file);
    void (*close)(mu_tensor_file *file);
    // read writes the elements of an entry.
    mu_status (*read)(const mu_tensor_file *file, const mu_file_entry *entry, void *out);
    // find resolves a name that is not that of an entry: returns an entry's index, or -1. Optional: none does.
    int (*find)(const mu_tensor_file *file, const char *name);
    // save writes a file, atomically.
    mu_status (*save)(const char *path, const mu_tensors *all);
};
enum { MU_FILE_HEAD = 64 };

// The formats in the order in which they are tried; ends with NULL. The first is written if a path's extension belongs
// to no format.
extern const mu_file_format *const mu__file_formats[];
extern const mu_file_format mu__safetensors_format, mu__npz_format, mu__hdf5_format, mu__keras_format,
    mu__checkpoint_format;

// mu__file_format_named returns the format that a path's extension names; NULL: no format has this extension.
const mu_file_format *mu__file_format_named(const char *path);
// mu__file_format_of returns the format in which a file of this path is written.
const mu_file_format *mu__file_format_of(const char *path);

extern mu_type mu__tensor_file_type;

// The maximum size of the header of a safetensors file; the format's own limit.
#define MU_SAFETENSORS_HEADER_LIMIT 100000000u
#define MU_TENSOR_FILE_LIMIT        ((size_t)1 << 40)

// mu__tensors_save writes eager tensors under their names in the format of the path's extension; `metadata` is key,
// text, …, NULL, or NULL for none. Errors: INVALID_ARGUMENT for metadata that the format cannot hold.
mu_status mu__tensors_save(const char *path, int n, const char *const *names, mu_tensor *const *tensors,
                           const char *const *metadata);

// mu__tensors_save_as writes in a format, whatever the path's extension is.
mu_status mu__tensors_save_as(const mu_file_format *format, const char *path, const mu_tensors *all);

// mu__tensor_file_sweep removes what killed saves left of a file, or of the parts of a TensorFlow checkpoint, which is
// named by its prefix or its index: its parts are files of their own.
void mu__tensor_file_sweep(const char *path);

// mu__tensor_file_open and mu__tensor_file_read return a reference that the caller owns.
mu_tensor_file *mu__tensor_file_open(const char *path);
mu_tensor *mu__tensor_file_read(const mu_tensor_file *file, int i);

// ---- For the formats ----------------------------------------------------------------------------

// mu__file_open_regular opens a file for reading. mu__file_read_at reads exactly `bytes` bytes at an offset; a file
// that ends earlier is DATA_LOSS.
mu_status mu__file_open_regular(const char *path, int *fd, uint64_t *bytes);
mu_status mu__file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t bytes);
// mu__file_add_entry adds an entry, whose name it takes over, also on failure. mu__file_add_metadata copies its texts.
mu_status mu__file_add_entry(mu_tensor_file *file, mu_file_entry entry);
mu_status mu__file_add_metadata(mu_tensor_file *file, const char *key, const char *text);
// mu__spec_file_bytes writes the bytes that a spec takes, whose dimensions come from a file. Returns false if a
// dimension is negative, or the product does not fit 63 bits.
bool mu__spec_file_bytes(const mu_spec *spec, uint64_t *bytes);
const char *mu__tensors_metadata(const mu_tensors *all, const char *key); // NULL: there is none

mu_status mu__bundle_save(const char *path, const mu_tensors *all);
mu_status mu__safetensors_save(const char *path, const mu_tensors *all);

// ---- HDF5 (hdf5_read.c, hdf5_write.c) -----------------------------------------------------------

// mu__hdf5_scan adds the datasets of an HDF5 file in memory to a file's entries; begin and end are offsets in `data`.
mu_status mu__hdf5_scan(mu_tensor_file *file, const uint8_t *data, size_t bytes);
// mu__hdf5_read copies the elements of an entry out of the file in memory.
void mu__hdf5_read(const mu_file_entry *entry, const uint8_t *data, void *out);

// The bytes of an HDF5 file to write: the headers, then the elements of each tensor, preceded by `padding` zeros.
typedef struct mu_hdf5_layout {
    uint8_t *head;
    size_t head_bytes;
    size_t *padding; // [n]
} mu_hdf5_layout;
// mu__hdf5_layout makes it; free it with mu__hdf5_layout_free, also after an error. Errors: INVALID_ARGUMENT for a name
// that is a tensor's and also the beginning of another's path.
mu_status mu__hdf5_layout(const char *path, const mu_tensors *all, mu_hdf5_layout *out);
void mu__hdf5_layout_free(mu_hdf5_layout *layout);
mu_status mu__hdf5_save(const char *path, const mu_tensors *all);

#endif
