// Rows of tensors, for loops over elements (map_fn.c).
#ifndef MU_SRC_GRAPH_MAP_FN_H
#define MU_SRC_GRAPH_MAP_FN_H

#include "graph/control/control.h"

// mu__need_rows checks that all tensors have a first axis, of one size; `what` names the caller.
mu_status mu__need_rows(const mu_tensors *elems, const char *what);
// mu__map_leaves checks the arguments of a map over rows and lists the tensors of `elems`. Frees nothing on an error.
mu_status mu__map_leaves(mu_body *fn, mu_value *elems, const char *what, mu_tensors *leaves);
mu_spec mu__row_spec(const mu_tensor *tensor);
mu_tensor *mu__row(mu_tensor *tensor, int64_t i); // given to the pool
mu_value *mu__row_of_all(const mu_value *like, const mu_tensors *elems,
                         int64_t i); // likewise, in the structure of `like`

// mu__row_inputs builds the structure of `like` around new inputs of a body, one for a row of each tensor.
mu_value *mu__row_inputs(mu_body_trace *body, const mu_value *like, const mu_tensors *elems);

#endif
