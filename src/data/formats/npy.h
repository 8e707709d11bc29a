// Parsers of NumPy's formats on bytes in memory, for the readers and for fuzzing.
#ifndef MU_SRC_DATA_NPY_H
#define MU_SRC_DATA_NPY_H

#include "tensor/tensor.h"

// mu__npy_parse makes a tensor from the bytes of a .npy file; `name` is for errors. Owned by the caller.
mu_tensor *mu__npy_parse(const char *name, const void *data, size_t bytes);

// mu__npy_spec reads the type and the shape of such an array.
mu_status mu__npy_spec(const char *name, const void *data, size_t bytes, mu_spec *spec);

// mu__npy_header writes a tensor's .npy header and returns its size in bytes; 0 and UNIMPLEMENTED for a type that NumPy
// does not have.
#define MU_NPY_HEADER 256
size_t mu__npy_header(const mu_tensor *tensor, char out[MU_NPY_HEADER]);

// mu__npz_name returns an array's name: that of the archive's member without ".npy". Free it with mu__free.
char *mu__npz_name(const char *member);

// mu__npz_parse makes a map of all arrays from the bytes of a .npz archive. Owned by the caller.
mu_value *mu__npz_parse(const char *path, const void *data, size_t bytes);

#endif
