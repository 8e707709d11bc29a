// Values without variables, for what takes tensors: TensorFlow makes a tensor of a variable there.
#ifndef MU_SRC_GRAPH_VARIABLES_READ_H
#define MU_SRC_GRAPH_VARIABLES_READ_H

#include "tensor/tensor.h"

// mu__variables_read returns a value that has, in the place of each variable, what the variable holds here and now; the
// value itself if it has none. The result belongs to the pool; NULL on error.
mu_value *mu__variables_read(mu_value *value);

#endif
