// Parts of a sharded variable, for what updates the whole.
#ifndef MU_GRAPH_VARIABLES_VARIABLE_PARTS_H
#define MU_GRAPH_VARIABLES_VARIABLE_PARTS_H

#include "graph/graph.h"

// mu__rows_of returns rows [begin, begin + n) of a tensor, mu__rows_of_part those of a sharded variable's value that a
// part has. mu__update_parts updates each part with its rows, one after the other, by a function for one variable.
mu_tensor *mu__rows_of(mu_tensor *value, int64_t begin, int64_t n);
mu_tensor *mu__rows_of_part(const mu_variable *part, mu_tensor *value);
mu_status mu__update_parts(mu_variable *variable, mu_update update, mu_tensor *value,
                           mu_status (*update_part)(mu_variable *part, mu_update update, mu_tensor *rows));

#endif
