// Where fit, evaluate and predict take samples from: rows in memory, datasets, and what makes the datasets of workers.
#ifndef MU_SRC_MODEL_SAMPLES_H
#define MU_SRC_MODEL_SAMPLES_H

#include "data/dataset.h"

#include <muster/model.h>

// What makes the datasets of workers.
struct mu_dataset_creator {
    mu_object object;
    mu_dataset *(*fn)(const mu_input_context *context, void *arg);
    void *arg;
};

// mu__creator_of returns the creator that samples are; NULL: they are something else.
const mu_dataset_creator *mu__creator_of(const void *samples);

// Samples for fit, evaluate and predict: a dataset of batches, or rows that become one.
typedef struct mu_samples {
    const void *x, *y;
    int64_t batch_size; // 0: the default
    bool shuffle;
    const void *weights; // of samples; with y
} mu_samples;
// mu__samples_split moves the last `share` of the rows into `rest`.
mu_status mu__samples_split(mu_samples *samples, double share, mu_samples *rest, const char *function);
// mu__samples_element returns x, y and weights as one list, or what is there of them.
mu_value *mu__samples_element(const mu_samples *samples, const char *function);
// mu__class_weights adds sample weights by the labels' classes to a dataset; the numbers must live as long as that.
typedef struct mu_class_weights {
    const double *weights;
    int n;
} mu_class_weights;
mu_dataset *mu__class_weights(mu_dataset *data, const mu_class_weights *by, const char *function);
mu_dataset *mu__samples_dataset(const mu_samples *samples, const char *function);

#endif
