// Generators: variables with the state of the counter-based generator, and seeds from them.
//
// The stateless ops turn seeds into numbers; the variable's strategy decides which component a replica advances.
#include "graph/graph.h"
#include "ops/nn/nn.h"

#include <muster/random.h>

mu_variable *mu__generator_new(uint64_t key, const char *name)
{
    if (mu__pending())
        return NULL;
    const uint64_t words[] = {0, 0, key};
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *state = mu_tensor_new(MU_I64, 1, (int64_t[]){3}, words);
    mu__trace_resume(suspended);
    return state ? mu_variable_new(state, name ? name : "generator", .not_trainable = true) : NULL;
}

mu_variable *mu_generator_new(uint64_t seed, const char *name)
{
    return mu__generator_new(seed || mu__pending() ? seed : mu__runtime_next_seed(mu__runtime()), name);
}

mu_tensor *mu_generator_next(mu_variable *generator)
{
    if (mu__pending())
        return NULL;
    if (!generator) {
        mu__error(MU_INVALID_ARGUMENT, "mu_generator_next: the generator is NULL");
        return NULL;
    }
    return mu__generator_next(&generator->resource);
}
