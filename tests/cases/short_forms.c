// Short forms that the cases share: strategies, small tensors, variables, assignments on replicas.
#include "cases.h"

mu_strategy *mirrored(int replicas) { return mu_mirrored_strategy(.replicas = replicas); }

bool served_workers;

// The address of a new task: none if it is a thread of the strategy's, else that of a server in this process, which
// belongs to the case's pool.
static const char *new_task(void)
{
    if (!served_workers)
        return "";
    const char *target = mu_server_target(mu_server_create_local_server(true));
    return target ? target + strlen("muster://") : "";
}

mu_strategy *on_workers(int workers, int servers, mu_partitioner *partitioner)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{}");
    for (int i = 0; i < workers; i++)
        mu_cluster_spec_add(spec, "worker", -1, new_task());
    for (int i = 0; i < servers; i++)
        mu_cluster_spec_add(spec, "ps", -1, new_task());
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), partitioner, .in_process = !served_workers);
}

mu_shard_plan shard_plan(mu_strategy *strategy, mu_dataset *dataset)
{
    return strategy->ops->distribute_dataset(strategy, dataset);
}

mu_tensor *scalar(double value) { return mu_constant(MU_F32, value); }

static mu_tensor *filled(mu_dtype dtype, int n, const double *values)
{
    const int64_t dim = n;
    mu_tensor *tensor = mu_tensor_new(dtype, 1, &dim, NULL);
    for (int i = 0; tensor && i < n; i++)
        mu__write_element(dtype, mu__host_write(tensor), i, values[i]);
    return tensor;
}

mu_tensor *vector(int n, const double *values) { return filled(MU_F32, n, values); }

mu_tensor *indices_of(int n, const double *values) { return filled(MU_I32, n, values); }

mu_value *per_replica_of(int n, mu_tensor *const *tensors)
{
    mu_value *items[8];
    for (int i = 0; i < n; i++)
        items[i] = mu_of(tensors[i]);
    return mu_error_code() ? NULL : mu__give(mu__value_container(MU_VALUE_PER_REPLICA, n, items, NULL));
}

mu_value *per_replica(int n, const double *values)
{
    mu_tensor *tensors[8];
    for (int i = 0; i < n; i++)
        tensors[i] = scalar(values[i]);
    return per_replica_of(n, tensors);
}

mu_tensor *id(void) { return mu_cast(mu_replica_id(), MU_F32); }

mu_variable *variable(mu_strategy *strategy, mu_tensor *initial, mu_variable_synchronization synchronization,
                      mu_variable_aggregation aggregation)
{
    mu_variable *made = NULL;
    MU_SCOPE(strategy)
        made = mu_variable_new(initial, "v", .synchronization = synchronization, .aggregation = aggregation);
    return made;
}

mu_variable *on_write(mu_strategy *strategy, double initial, mu_variable_aggregation aggregation)
{
    return variable(strategy, scalar(initial), MU_SYNCHRONIZATION_ON_WRITE, aggregation);
}

mu_variable *on_read(mu_strategy *strategy, double initial, mu_variable_aggregation aggregation)
{
    return variable(strategy, scalar(initial), MU_SYNCHRONIZATION_ON_READ, aggregation);
}

mu_value *components(mu_variable *of)
{
    mu_value *leaf = mu_variables(of, MU_END);
    return leaf ? mu_local_results(mu_variable_strategy(of), mu_value_at(leaf, 0)) : NULL;
}

mu_value *read_of(mu_variable *of)
{
    mu_tensor *value = mu_variable_read(of);
    return value ? mu_of(value) : NULL;
}

mu_value *eager(mu_strategy *strategy, replica_fn *fn, void *arg) { return mu_run_callback(strategy, fn, arg, NULL); }

mu_value *traced(mu_strategy *strategy, replica_fn *fn, void *arg)
{
    return mu_run(strategy, mu_function_new(fn, arg), NULL);
}

mu_value *assign_on_replica(mu_value *arguments, void *arg)
{
    (void)arguments;
    const assignment *a = arg;
    mu_tensor *value = a->value ? a->value : mu_multiply(scalar(a->scale), mu_add(id(), scalar(a->offset)));
    if (!a->value && value)
        value = mu_cast(value, mu_variable_dtype(a->variable));
    return value && a->assign(a->variable, value) == MU_OK ? read_of(a->variable) : NULL;
}

mu_value *read_on_replica(mu_value *arguments, void *arg)
{
    (void)arguments;
    return read_of(arg);
}
