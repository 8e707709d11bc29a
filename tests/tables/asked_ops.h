// Which ops a table test runs: those named on its command line, or all. Included once by the test's program.
#ifndef MU_TESTS_ASKED_OPS_H
#define MU_TESTS_ASKED_OPS_H

#include "ops/core/op.h"

#include <string.h>

static int n_asked;
static char **asked;

static bool asked_for(const mu_op *op)
{
    for (int i = 0; i < n_asked; i++)
        if (strcmp(asked[i], op->name) == 0)
            return true;
    return n_asked == 0;
}

#endif
