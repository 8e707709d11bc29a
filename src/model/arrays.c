// Training on arrays: makes a dataset of arrays for fit, evaluate and predict, as Keras does.
#include "model/model.h"

enum { DEFAULT_BATCH_SIZE = 32 };

mu_dataset *mu__fit_dataset(mu_dataset *x, mu_value *arrays, int64_t batch_size, bool shuffle, const char *function)
{
    if (!arrays && batch_size == 0)
        return x;
    if (x || !arrays || batch_size < 0) {
        mu__error(MU_INVALID_ARGUMENT, "%s: %s", function,
                  x && arrays ? "both a dataset and .arrays are given; give one of them"
                  : batch_size < 0 ? "the batch size is negative; leave it out for 32"
                  : ".batch_size goes with .arrays; a dataset has its batches already (mu_dataset_batch)");
        return NULL;
    }
    mu_dataset *rows = mu_dataset_from_tensor_slices(arrays);
    const int64_t n = rows ? mu_dataset_cardinality(rows) : 0;
    if (shuffle && n > 1)
        rows = mu_dataset_shuffle(rows, n);
    return rows ? mu_dataset_batch(rows, batch_size ? batch_size : DEFAULT_BATCH_SIZE) : NULL;
}
