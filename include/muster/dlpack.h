// Exchange of tensors with other libraries (NumPy, PyTorch, JAX, …) without a copy, through DLPack structs. The structs
// are passed as void *, so that a program may include dlpack.h as well.
#ifndef MUSTER_DLPACK_H
#define MUSTER_DLPACK_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// mu_to_dlpack makes a DLManagedTensor of a tensor (versioned: a DLManagedTensorVersioned, version 1.0, marked
// read-only). The consumer calls its deleter once; the struct retains the tensor until then. The struct belongs to no
// pool. Errors: FAILED_PRECONDITION for a symbolic tensor.
MU_API void *mu_to_dlpack(mu_tensor *tensor, bool versioned);

// mu_from_dlpack makes a tensor of a DLPack struct and takes ownership: it calls the deleter when the last user
// releases the tensor, on that user's thread. On failure the struct still belongs to the caller. Elements that are not
// dense and row-major, or not aligned to their size, are copied, and the struct is released at once. Errors:
// UNIMPLEMENTED for memory that the CPU cannot read, a major version other than 1, or an unsupported element type;
// INVALID_ARGUMENT for a rank above MU_MAX_RANK or invalid sizes.
MU_API mu_tensor *mu_from_dlpack(void *managed, bool versioned);

#ifdef __cplusplus
}
#endif
#endif
