// Copies of dense blocks and fills with a constant, compiled per instruction set by dispatch.h.
#ifndef MU_SRC_KERNELS_COPY_FILL_H
#define MU_SRC_KERNELS_COPY_FILL_H

#include <stddef.h>
#include <stdint.h>

// mu__copy_blocks copies n blocks of `bytes`; the steps are the distances in bytes between blocks. mu__copy_scattered
// copies n blocks that may be anywhere, side by side. mu__fill writes n copies of an element of 1, 2, 4 or 8 bytes.
void mu__copy_blocks(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, int64_t n);
void mu__copy_scattered(void *to, const char *const *from, size_t bytes, int64_t n);
void mu__fill(void *to, const void *element, size_t bytes, int64_t n);

#endif
