// What the tests of the distribute layer share: values per replica, and what they hold.
#ifndef MU_TEST_DISTRIBUTE_H
#define MU_TEST_DISTRIBUTE_H

#include "../model/model_test.h"

// A per-replica value of rows [sizes[r]] with running numbers from 0 on.
static inline mu_value *uneven(int n, const int64_t *sizes)
{
    mu_value *parts[DEVICES];
    double next[64];
    int64_t begin = 0;
    for (int i = 0; i < 64; i++)
        next[i] = i;
    for (int r = 0; r < n; r++) {
        parts[r] = mu_of(vector(sizes[r], next + begin));
        begin += sizes[r];
    }
    return mu__give(mu__value_container(MU_VALUE_PER_REPLICA, n, parts, NULL));
}

static inline mu_value *scalars_of(int n, mu_dtype dtype, const double *values)
{
    mu_value *parts[DEVICES];
    for (int r = 0; r < n; r++)
        parts[r] = mu_of(mu_constant(dtype, values[r]));
    return mu__give(mu__value_container(MU_VALUE_PER_REPLICA, n, parts, NULL));
}

// The scalar that replica r has.
static inline double on_replica(mu_strategy *strategy, mu_value *value, int r)
{
    if (!value)
        fail_msg("%s", mu_error_message());
    mu_value *results = mu_local_results(strategy, value);
    return mu_scalar(mu_value_at(results, mu_value_count(results) == 1 ? 0 : r));
}

#endif
