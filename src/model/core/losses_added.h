// Losses that one call of a layer adds for all steps of a sequence, which several calls would have added one by one.
#ifndef MU_SRC_MODEL_LOSSES_ADDED_H
#define MU_SRC_MODEL_LOSSES_ADDED_H

#include "model/core/layer.h"

// mu__losses_count returns how many losses layers have added on this thread and not forgotten.
size_t mu__losses_count(void);
// mu__losses_times multiplies the penalties on outputs that were added after the first `first` losses by a number of
// steps: each was divided by the rows of all steps together.
mu_status mu__losses_times(size_t first, mu_tensor *steps);

#endif
