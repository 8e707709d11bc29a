// The GPUs if there are any, else the default strategy: the same program on a workstation and on a laptop.
// A GPU is a device of a PJRT plugin: muster plugin install cuda13, or
// PJRT_NAMES_AND_LIBRARY_PATHS=cuda13:/path/to/it.so.
#include <muster.h>

#include <stdio.h>

enum { MOST_GPUS = 8 };

static mu_value *square(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_at(arguments, 0)));
}

int main(void)
{
    const char *gpus[MOST_GPUS + 1] = {NULL};
    mu_init();
    const int n = mu_list_physical_devices("GPU", gpus, MOST_GPUS);
    mu_strategy *strategy = n > 0 ? mu_mirrored_strategy(.devices = gpus) : mu_default_strategy();
    const int replicas = mu_num_replicas_in_sync(strategy);
    mu_value *result = mu_run(strategy, mu_function_new(square, NULL), mu_list(mu_constant(MU_F32, 3), MU_END));
    const double sum = mu_scalar(mu_reduce(strategy, MU_SUM, result));
    printf("%s on %d GPUs: %g\n", mu_strategy_name(strategy), n, sum);
    return mu_exit(sum == 9 * replicas);
}
