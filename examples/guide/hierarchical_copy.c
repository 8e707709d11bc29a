// MirroredStrategy with another way of reducing: hierarchical copy, in two packs, in place of the default.
#include <muster.h>

#include <stdio.h>

static mu_value *values_of(const mu_value_context *context, void *arg)
{
    (void)arg;
    return mu_of(mu_constant(MU_F32, context->replica_id + 1));
}

int main(void)
{
    mu_init(.cpu_devices = 4);
    mu_strategy *strategy = mu_mirrored_strategy(.cross_device_ops = mu_hierarchical_copy(2));
    mu_value *values = mu_distribute_values(strategy, values_of, NULL);
    double sum = mu_scalar(mu_reduce(strategy, MU_SUM, values)), mean = mu_scalar(mu_reduce(strategy, MU_MEAN, values));
    printf("sum %g, mean %g over %d replicas\n", sum, mean, mu_num_replicas_in_sync(strategy));
    return mu_exit(sum == 10 && mean == 2.5);
}
