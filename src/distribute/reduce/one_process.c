// The cross-worker slots of a strategy whose replicas are all in this process: there is no other worker.
#include "distribute/distribute.h"
#include "kernels/kernels.h"

static mu_status all_reduce(mu_strategy *strategy, const char *what, mu_reduction reduction, mu_dtype dtype,
                            void *numbers, int64_t n)
{
    (void)strategy, (void)what, (void)reduction, (void)dtype, (void)numbers, (void)n;
    return MU_OK;
}

static mu_status all_gather(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype,
                            const void *mine, void *all, const int64_t *counts)
{
    (void)strategy, (void)what, (void)form;
    if (all != mine)
        memcpy(all, mine, (size_t)counts[0] * mu_dtype_bytes(dtype));
    return MU_OK;
}

static mu_status broadcast(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype, void *data,
                           int64_t n, int worker)
{
    (void)strategy, (void)what, (void)form, (void)dtype, (void)data, (void)n, (void)worker;
    return MU_OK;
}

static mu_tensor *broadcast_tensor(mu_strategy *strategy, const char *what, mu_tensor *mine)
{
    (void)strategy, (void)what;
    return mine;
}

static mu_tensor **gather(mu_strategy *strategy, const char *what, int n, mu_tensor *const *mine, int *n_all)
{
    (void)strategy, (void)what;
    mu_tensor **all = mu__calloc((size_t)n + 1, sizeof *all);
    if (all)
        memcpy(all, mine, sizeof *all * (size_t)n);
    *n_all = n;
    return all;
}

static mu_tensor *reduce(mu_strategy *strategy, const mu_parts_name *name, const mu_cross_device_ops *ops,
                         mu_reduce_op op, int n, mu_tensor *const *mine)
{
    (void)strategy;
    return mu__same_parts(name, n, mine) == MU_OK ? mu__cross_device_reduce(ops, op, n, mine) : NULL;
}

static mu_status reduce_arrays(mu_strategy *strategy, const mu_replica_arrays *a)
{
    if (mu__cross_device_supports(strategy->cross_device, a->reduction, a->dtype))
        return mu__reduce_arrays(strategy->cross_device, a->reduction, a->dtype, a->count, a->n, a->data, a->n,
                                 a->data);
    mu__reduce_replica_arrays(a, a->n, (const void *const *)a->data);
    return MU_OK;
}

static mu_status scatter_arrays(mu_strategy *strategy, const mu_replica_arrays *a)
{
    const size_t bytes = (size_t)a->count * mu_dtype_bytes(a->dtype);
    void *blocks[MU_MAX_REPLICAS];
    for (int to = 0; to < a->n; to++) {
        for (int from = 0; from < a->n; from++)
            blocks[from] = (char *)a->data[from] + (size_t)to * bytes;
        if (!mu__cross_device_supports(strategy->cross_device, a->reduction, a->dtype))
            mu__reduce_replica_block(a, a->n, (const void *const *)blocks, a->out[to]);
        else
            MU_TRY(mu__reduce_arrays(strategy->cross_device, a->reduction, a->dtype, a->count, a->n, blocks, 1,
                                     &a->out[to]));
    }
    return MU_OK;
}

static mu_tensor *common_value(mu_strategy *strategy, const char *what, bool mean, mu_tensor *value)
{
    (void)strategy, (void)what, (void)mean;
    return value;
}

static mu_status join_specs(mu_strategy *strategy, int n, mu_spec *specs)
{
    (void)strategy, (void)n, (void)specs;
    return MU_OK;
}

// A signal is handled where it is seen, and metrics of all replicas are at hand.
static mu_status agree(mu_strategy *strategy, const char *what, int64_t numbers[2])
{
    (void)strategy, (void)what, (void)numbers;
    return MU_OK;
}

static const char *worker_name(const mu_strategy *strategy, int worker)
{
    (void)strategy, (void)worker;
    return "this worker";
}

static void doing(const mu_strategy *strategy, const char *what, int64_t number)
{
    (void)strategy, (void)what, (void)number;
}

static void done(mu_strategy *strategy) { (void)strategy; }

static void failed(const mu_strategy *strategy) { (void)strategy; }

// Earlier, a replica could wait for one that has given up.
static void recover(mu_strategy *strategy)
{
    mu_error_value cause;
    if (strategy->group && mu__group_failed(strategy->group, &cause))
        mu__group_reset(strategy->group);
}

static void hold_stop(bool hold) { (void)hold; }

static mu_status check_stop(const mu_strategy *strategy)
{
    (void)strategy;
    return mu__stopped();
}

const mu_cross_worker_ops mu__one_process = {
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .broadcast_tensor = broadcast_tensor,
    .gather = gather,
    .reduce = reduce,
    .reduce_arrays = reduce_arrays,
    .scatter_arrays = scatter_arrays,
    .common_value = common_value,
    .join_specs = join_specs,
    .agree = agree,
    .worker_name = worker_name,
    .doing = doing,
    .done = done,
    .failed = failed,
    .recover = recover,
    .hold_stop = hold_stop,
    .check_stop = check_stop,
};
