// Tensors in and out of other libraries without a copy, by DLPack: the structs that NumPy, PyTorch, JAX and others hand
// to each other. Pointers to them are void * here, so that a program may include dlpack.h as well.
#ifndef MUSTER_DLPACK_H
#define MUSTER_DLPACK_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// mu_to_dlpack makes a DLManagedTensor (versioned: a DLManagedTensorVersioned, version 1.0, marked read-only) over the
// tensor's elements. Whoever takes it calls its deleter once; the elements live until then. It belongs to no pool.
// Errors: FAILED_PRECONDITION for a symbolic tensor.
MU_API void *mu_to_dlpack(mu_tensor *tensor, bool versioned);

// mu_from_dlpack makes a tensor of such a struct and takes it over: its deleter is called when the last user of the
// tensor is gone, on that user's thread; on failure the struct stays the caller's. Elements that are not dense and
// row-major, or not aligned to their size, are copied and the struct is released at once.
// Errors: UNIMPLEMENTED for memory that the processor cannot read, a major version other than 1, or an element type
// that is none here; INVALID_ARGUMENT for a rank above MU_MAX_RANK or sizes that cannot be.
MU_API mu_tensor *mu_from_dlpack(void *managed, bool versioned);

#ifdef __cplusplus
}
#endif
#endif
