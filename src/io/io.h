// Internal interface to safetensors files: named tensors as arrays, and the layout of an open file.
//
// Checkpoints and model weights are passed as arrays of names and tensors; both public forms use these functions.
#ifndef MU_SRC_IO_IO_H
#define MU_SRC_IO_IO_H

#include "tensor/tensor.h"

#include <muster/io.h>

typedef struct mu_file_entry {
    char *name;
    mu_spec spec;
    uint64_t begin, end;  // bytes, counted from the first byte of data
} mu_file_entry;

struct mu_tensor_file {
    mu_object object;
    char *path;
    int fd;
    uint64_t data_at;     // offset of the first byte of data
    uint64_t data_bytes;
    struct { mu_file_entry *items; size_t n, capacity; } entries;
    struct { char **items; size_t n, capacity; } metadata;  // key, text, key, text, …
};

extern mu_type mu__tensor_file_type;

// The maximum size of the header; the format's own limit.
#define MU_SAFETENSORS_HEADER_LIMIT 100000000u

// mu__tensors_save writes eager tensors under their names; `metadata` is key, text, …, NULL, or NULL for none.
mu_status mu__tensors_save(const char *path, int n, const char *const *names, mu_tensor *const *tensors,
                           const char *const *metadata);

// mu__tensor_file_open and mu__tensor_file_read return a reference that the caller owns.
mu_tensor_file *mu__tensor_file_open(const char *path);
mu_tensor *mu__tensor_file_read(const mu_tensor_file *file, int i);

#endif
