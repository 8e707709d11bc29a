// A variable "v" of a strategy, for the tests of its reads and writes.
#ifndef MU_TESTS_VARIABLE_OF_H
#define MU_TESTS_VARIABLE_OF_H

#include "distribute_test.h"

static inline mu_variable *variable_of(mu_strategy *strategy, mu_tensor *initial,
                                       mu_variable_synchronization synchronization, mu_variable_aggregation aggregation)
{
    mu_variable *variable = NULL;
    MU_SCOPE(strategy)
        variable = mu_variable_new(initial, "v", .synchronization = synchronization, .aggregation = aggregation);
    assert_non_null(variable);
    return variable;
}

#endif
