// Named tensors in files, in the safetensors format that Python packages read and write.
//
// Saving is atomic: the complete file appears under its name, or the old one is kept. Loading trusts nothing: it checks
// a file's header against the file's size before it allocates memory.
//
// Errors: where a function names none, it asks an open file and does not fail. Texts belong to the file.
#ifndef MUSTER_IO_H
#define MUSTER_IO_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_save_tensors_args {
    size_t size;
    const char *given;
    const char *path;        // file to write
    const mu_value *tensors; // a map from names to tensors or variables; the file keeps its order
    mu_keyword_only only_;
    const char *const *metadata; // pairs of key and text: key, text, …; ends with NULL or MU_END; default: none
} mu_save_tensors_args;

// mu_save_tensors writes a map of tensors to a file. Errors: RESOURCE_EXHAUSTED if the disk is full; the previous file
// is kept. UNIMPLEMENTED for strings; FAILED_PRECONDITION for symbolic tensors.
#define mu_save_tensors(...) mu_save_tensors_with(MU_ARGS(mu_save_tensors_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_save_tensors_with(const mu_save_tensors_args *args);

// mu_load_tensors reads all tensors of a file into a map, in the order of the file's header. Errors: NOT_FOUND;
// FAILED_PRECONDITION for a folder; DATA_LOSS for a damaged file, naming the position; UNIMPLEMENTED for an element
// type or a rank that Muster does not support.
MU_API mu_value *mu_load_tensors(const char *path);

// An open file of named tensors. Opening reads and checks the header; the tensors are read one at a time.
typedef struct mu_tensor_file mu_tensor_file;

MU_API mu_tensor_file *mu_tensor_file_open(const char *path); // errors as mu_load_tensors
MU_API int mu_tensor_file_count(const mu_tensor_file *file);  // the number of tensors

// Name, type and shape of tensor i from the header; NULL, MU_DTYPE_DEFAULT or rank -1 if i is not in 0 … count - 1.
MU_API const char *mu_tensor_file_name(const mu_tensor_file *file, int i);
MU_API mu_dtype mu_tensor_file_dtype(const mu_tensor_file *file, int i);
MU_API mu_shape mu_tensor_file_shape(const mu_tensor_file *file, int i);

// mu_tensor_file_find returns the index of a name, or -1 (without an error) if the file does not have it.
MU_API int mu_tensor_file_find(const mu_tensor_file *file, const char *name);

// mu_tensor_file_read reads tensor i into memory. Errors: OUT_OF_RANGE for another i; DATA_LOSS if the file was cut off
// since.
MU_API mu_tensor *mu_tensor_file_read(const mu_tensor_file *file, int i);

// mu_tensor_file_metadata returns the text of a key, or NULL (without an error) if the file does not have it.
MU_API const char *mu_tensor_file_metadata(const mu_tensor_file *file, const char *key);

#ifdef __cplusplus
}
#endif
#endif
