// Sharded variables inside the library: the number of parts, and the rows that a part has.
#ifndef MU_SRC_DISTRIBUTE_SHARDED_VARIABLE_H
#define MU_SRC_DISTRIBUTE_SHARDED_VARIABLE_H

#include "graph/graph.h"

#include <muster/sharding.h>

// mu__partition_count returns the number of parts of a variable of this type and shape: 1 without a partitioner and for
// scalars. Errors (-1): INVALID_ARGUMENT naming the variable and what the partitioner returned.
int64_t mu__partition_count(mu_partitioner *partitioner, const mu_spec *spec, const char *name);

// The div layout of `rows` rows in `parts` parts: the first rows % parts parts have one row more.
static inline int64_t mu__div_begin(int64_t rows, int64_t parts, int64_t i)
{
    return rows / parts * i + MU_MIN(i, rows % parts);
}

// mu__sharded_scatter is the scatter of a sharded variable. Errors: UNIMPLEMENTED if its parts do not have the div
// layout.
mu_status mu__sharded_scatter(mu_variable *variable, int kind, mu_tensor *indices, mu_tensor *values);

// mu__sharded_gather returns rows of a sharded variable, ids.shape + row.shape; `mod`: part i holds ids i, i + parts, …
mu_tensor *mu__sharded_gather(mu_variable *variable, mu_tensor *ids, bool mod);

#endif
