// Opaque resources: structs of this process, such as accumulators and embedding tables, which are their own newest
// value. Kernels reach one through a buffer that has its address and owns nothing. They are in the host's memory.
#include "ops/core/op.h"

mu_status mu__opaque_begin(mu_resource *resource)
{
    mu_buffer *buffer = mu__new(&mu__buffer_type, sizeof *buffer);
    if (!buffer)
        return MU_RESOURCE_EXHAUSTED;
    buffer->memory_space = &mu__host_memory;
    buffer->data = resource;
    buffer->arg = resource; // any non-NULL value: the buffer does not own the memory
    resource->self = buffer;
    return MU_OK;
}

mu_status mu__opaque_acquire(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                             mu_buffer **out)
{
    (void)replica, (void)access;
    if (space != &mu__host_memory)
        return mu__error(MU_UNIMPLEMENTED, "%s '%s' is in the host's memory; use it on a CPU device",
                         resource->kind->what, resource->name);
    *out = mu_retain(resource->self);
    return MU_OK;
}

mu_status mu__opaque_commit(mu_resource *resource, int replica, mu_access access, mu_buffer *buffer)
{
    (void)resource, (void)replica, (void)access, (void)buffer;
    return MU_OK;
}
