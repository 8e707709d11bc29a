// An IDX file: opening reads the header, and a background thread reads the elements.
#ifndef MU_SRC_DATA_IDX_H
#define MU_SRC_DATA_IDX_H

#include "tensor/tensor.h"

typedef struct mu_idx mu_idx;

// mu__idx_open reads the header and starts reading the rest. Errors: those of mu__file_stream_open; DATA_LOSS for an
// invalid header, or one that claims more than the file can hold. Owned by the caller.
mu_idx *mu__idx_open(const char *path);
void mu__idx_close(mu_idx *idx); // NULL is accepted

const mu_spec *mu__idx_spec(const mu_idx *idx); // of the whole file
const void *mu__idx_data(const mu_idx *idx);    // elements; valid for the rows that mu__idx_wait waited for

// mu__idx_wait waits until rows [0, end) of axis 0 are in memory. Errors: DATA_LOSS if the file is damaged.
mu_status mu__idx_wait(mu_idx *idx, int64_t end);

#endif
