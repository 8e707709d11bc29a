// Named tensors in files, in the safetensors format that Python's packages read and write.
//
// Saving is atomic: the file appears whole under its name, or the old one stays. Loading trusts nothing:
// what a file claims is checked against what it holds before anything is allocated for it.
#ifndef MUSTER_IO_H
#define MUSTER_IO_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_save_tensors_args {
    size_t size;
    const char *path;
    const mu_value *tensors;      // a map from names to tensors or variables; the file keeps its order
    mu_keyword_only only_;
    const char *const *metadata;  // key, text, key, text, …, NULL; default: none
} mu_save_tensors_args;

// mu_save_tensors writes a map of tensors to a file.
// Errors: RESOURCE_EXHAUSTED for a full disk; the previous file is untouched.
#define mu_save_tensors(...) \
    mu_save_tensors_with(MU_ARGS(mu_save_tensors_args, __VA_ARGS__))
MU_API mu_status mu_save_tensors_with(const mu_save_tensors_args *args);

// mu_load_tensors reads every tensor of a file into a map, in the order of the file's header.
// Errors: NOT_FOUND; DATA_LOSS for a damaged file, naming the place; UNIMPLEMENTED for an element type or
// a rank that Muster does not have.
MU_API mu_value *mu_load_tensors(const char *path);

// An open file of named tensors: its header is read and checked, its tensors are read one by one.
typedef struct mu_tensor_file mu_tensor_file;

MU_API mu_tensor_file *mu_tensor_file_open(const char *path);  // errors as mu_load_tensors
MU_API int mu_tensor_file_count(const mu_tensor_file *file);

// What is known of tensor i before it is read; NULL, MU_DTYPE_DEFAULT or rank -1 outside 0 … count - 1.
MU_API const char *mu_tensor_file_name(const mu_tensor_file *file, int i);
MU_API mu_dtype mu_tensor_file_dtype(const mu_tensor_file *file, int i);
MU_API mu_shape mu_tensor_file_shape(const mu_tensor_file *file, int i);

// mu_tensor_file_find returns the index of a name, -1 (without a record) if the file does not have it.
MU_API int mu_tensor_file_find(const mu_tensor_file *file, const char *name);

// mu_tensor_file_read reads tensor i.
MU_API mu_tensor *mu_tensor_file_read(const mu_tensor_file *file, int i);

// mu_tensor_file_metadata returns the text of a key, NULL (without a record) if there is none.
MU_API const char *mu_tensor_file_metadata(const mu_tensor_file *file, const char *key);

#ifdef __cplusplus
}
#endif
#endif
