// Loops of the neural network ops, one set per float type that has its own.
//
// The bodies are in nn_loops.inc.c.
#include "ops/nn/nn_loops.h"

#include "ops/core/loops.h"

#include <math.h>

#define T        float
#define FN(name) f32_##name
#define M(name)  name##f
#include "ops/nn/nn_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#define M(name)  name
#include "ops/nn/nn_loops.inc.c"

const mu_nn_loops *mu__nn_loops(mu_dtype dtype)
{
    return dtype == MU_F32 ? &f32_loops : dtype == MU_F64 ? &f64_loops : NULL;
}
