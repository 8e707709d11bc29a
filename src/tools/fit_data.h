// The data of `muster fit`: samples and labels from files, as batches.
#ifndef MU_SRC_TOOLS_FIT_DATA_H
#define MU_SRC_TOOLS_FIT_DATA_H

#include "tensor/tensor.h"

#include <muster/data.h>

typedef struct mu_fit_source {
    const char *path;
    const char *labels;      // of .npz: names of arrays, with commas (NULL: "y"); of .npy and IDX: a file
    const char *inputs;      // of .npz: names of arrays, with commas
    int label_columns, skip_lines;  // of .csv
    int batch_size;
    bool counts_labels;      // labels are numbers of classes: make them integers
    bool shuffles;
} mu_fit_source;

// mu__fit_data returns batches whose elements are lists of inputs and labels. Belongs to the pool; NULL on error.
mu_dataset *mu__fit_data(const mu_fit_source *source);

#endif
