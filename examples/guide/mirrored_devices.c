// MirroredStrategy with a list of devices: each gets a copy of every variable. (Here two logical CPU devices.)
#include <muster.h>

#include <stdio.h>

int main(void)
{
    mu_init(.cpu_devices = 4);
    mu_strategy *strategy = mu_mirrored_strategy((const char *const[]){"CPU:0", "CPU:2", NULL});
    mu_variable *variable = NULL;
    MU_SCOPE(strategy)
        variable = mu_variable_new(mu_constant(MU_F32, 1), "v");
    printf("%d replicas, %d copies of the variable:", mu_num_replicas_in_sync(strategy),
           mu_variable_component_count(variable));
    for (int i = 0; i < mu_strategy_device_count(strategy); i++)
        printf(" %s", mu_strategy_device(strategy, i));
    printf("\n");
    return mu_exit(mu_variable_component_count(variable) == 2);
}
