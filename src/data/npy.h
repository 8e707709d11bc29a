// The parsers of NumPy's formats, apart from files: for the readers, and for fuzzing.
#ifndef MU_SRC_DATA_NPY_H
#define MU_SRC_DATA_NPY_H

#include "tensor/tensor.h"

// mu__npy_parse makes the tensor in the bytes of a .npy file; `name` is for errors. Owned by the caller.
mu_tensor *mu__npy_parse(const char *name, const void *data, size_t bytes);

// mu__npz_parse makes the map of all arrays in the bytes of a .npz archive. Owned by the caller.
mu_value *mu__npz_parse(const char *path, const void *data, size_t bytes);

#endif
