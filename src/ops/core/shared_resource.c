// Effects on resources that all replicas of a process share: one storage, which only the first replica writes.
//
// Every replica calls the op. Replicas synchronize before the write, so that none still reads the old value, and after
// it, so that none reads too early. If the op has outputs or is a collective, the other replicas run it on copies. Both
// eager calls and plans use this file.
#include "ops/core/op.h"

bool mu__shared(const mu_op *op, int n, mu_resource *const *resources)
{
    for (int i = 0; (op->flags & MU_OP_WRITES) && i < n; i++)
        if (resources[i]->shared)
            return true;
    return false;
}

static mu_status synchronize(const mu_kernel *kernel)
{
    int32_t one = 1;
    return kernel->collective->all_reduce(kernel->collective, kernel->number, "shared variable", MU_REDUCTION_SUM,
                                          MU_I32, &one, 1);
}

static size_t view_bytes(const mu_view *view)
{
    const mu_spec spec = {.dtype = view->dtype, .shape = view->shape};
    return (mu__spec_bytes(&spec) + 63) / 64 * 64;
}

static mu_status copy_resources(mu_kernel *kernel, mu_shared_update *update)
{
    size_t bytes = sizeof(mu_view) * (size_t)kernel->n_resources, at = (bytes + 63) / 64 * 64;
    update->bytes = at;
    for (int i = 0; i < kernel->n_resources; i++)
        update->bytes += view_bytes(&kernel->resources[i]);
    if (!(update->copies = mu__alloc_data(update->bytes)))
        return MU_RESOURCE_EXHAUSTED;
    mu_view *views = update->copies;
    for (int i = 0; i < kernel->n_resources; i++) {
        views[i] = kernel->resources[i];
        views[i].data = (char *)update->copies + at;
        memcpy(views[i].data, kernel->resources[i].data,
               (size_t)mu__elements(&views[i].shape) * mu_dtype_bytes(views[i].dtype));
        at += view_bytes(&views[i]);
    }
    update->resources = kernel->resources;
    kernel->resources = views;
    return MU_OK;
}

mu_status mu__shared_begin(mu_kernel *kernel, mu_shared_update *update)
{
    const bool alone = !kernel->collective || kernel->collective->size == 1,
               first = alone || kernel->collective->rank == 0;
    *update = (mu_shared_update){.synchronizes = !alone,
                                 .runs = first || kernel->n_out > 0 || (kernel->op->flags & MU_OP_COLLECTIVE)};
    if (!first && update->runs)
        MU_TRY(copy_resources(kernel, update));
    return alone ? MU_OK : synchronize(kernel);
}

mu_status mu__shared_end(mu_kernel *kernel, mu_shared_update *update, mu_status status)
{
    if (update->copies) {
        kernel->resources = update->resources;
        mu__free_data(update->copies, update->bytes);
    }
    return status == MU_OK && update->synchronizes ? synchronize(kernel) : status;
}
