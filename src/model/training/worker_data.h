// The datasets that a creator makes for workers, as one dataset that this process reads.
//
// Where elements belong to calls (synchronous steps, a visitation guarantee) no worker reads data. A pass opens the
// datasets of all workers here, takes an element of worker 0's, 1's, … in rotation, passes over those that have ended,
// and is over when all have. So each element is used once in each epoch, and a worker that is lost, or was never there,
// leaves none behind.
#ifndef MU_SRC_MODEL_WORKER_DATA_H
#define MU_SRC_MODEL_WORKER_DATA_H

#include "model/training/samples.h"

#include <muster/coordinator.h>

typedef struct mu_worker_data mu_worker_data;

// mu__worker_data_new returns the datasets of a creator, if elements belong to calls under this strategy; NULL
// otherwise, and on error. It belongs to the pool, and its dataset to it.
mu_worker_data *mu__worker_data_new(mu_strategy *strategy, mu_dataset_creator *creator);
mu_dataset *mu__worker_data_dataset(const mu_worker_data *data);

// mu__worker_data_must_end makes a worker's dataset that repeats for ever an error, which names the argument that would
// say when to stop.
void mu__worker_data_must_end(mu_worker_data *data, const char *function, const char *argument);

// mu__creator_call is the function of a creator (`arg`) for the worker of mu_get_current_worker_index.
mu_dataset *mu__creator_call(void *arg);

#endif
