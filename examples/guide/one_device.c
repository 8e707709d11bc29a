// OneDeviceStrategy: the program that later runs on many devices, tried on one.
#include <muster.h>

#include <stdio.h>

int main(void)
{
    mu_init();
    mu_strategy *strategy = mu_one_device_strategy("CPU:0");
    mu_variable *variable = NULL;
    MU_SCOPE(strategy)
        variable = mu_variable_new(mu_constant(MU_F32, 3), "v");
    printf("%s: %d replica, v = %g\n", mu_strategy_name(strategy), mu_num_replicas_in_sync(strategy),
           mu_scalar(mu_variable_read(variable)));
    return mu_exit(mu_variable_component_count(variable) == 1);
}
