// Buffers: elements in a memory space, which is the host's memory unless the caller names another.
//
// Elements in the host's memory have an address, so reaching them costs nothing. Elements in other memory spaces are
// copied from and to the host through the space's functions.
#include "tensor/tensor.h"

const mu_memory_space mu__host_memory = {.name = "host", .addressable = true};
const mu_memory_space mu__shared_memory = {.name = "shared segment", .addressable = true};

static void destroy_elsewhere(mu_buffer *buffer)
{
    void *fetched = atomic_load_explicit(&buffer->fetched, memory_order_acquire);
    if (fetched && !buffer->mapped)
        mu__free_data(fetched, MU_MAX(buffer->bytes, (size_t)1));
    buffer->memory_space->free(buffer->memory_space, buffer->handle);
}

static void destroy_buffer(void *object)
{
    mu_buffer *buffer = object;
    if (buffer->release)
        buffer->release(buffer->arg);
    else if (buffer->data && !buffer->arg)
        mu__free_data(buffer->data, buffer->bytes);
    else if (!buffer->data && !buffer->memory_space->addressable)
        destroy_elsewhere(buffer);
}

mu_type mu__buffer_type = {.name = "buffer", .destroy = destroy_buffer};

mu_buffer *mu__buffer_new(size_t bytes)
{
    mu_buffer *buffer = mu__new(&mu__buffer_type, sizeof *buffer);
    if (!buffer)
        return NULL;
    buffer->memory_space = &mu__host_memory;
    buffer->bytes = MU_MAX(bytes, (size_t)1);
    buffer->data = mu__alloc_data(buffer->bytes);
    if (!buffer->data) {
        mu_release(buffer);
        return NULL;
    }
    return buffer;
}

mu_buffer *mu__buffer_at(const mu_memory_space *space, const mu_spec *spec)
{
    const size_t bytes = mu__spec_bytes(spec);
    if (space == &mu__host_memory)
        return mu__buffer_new(bytes);
    assert(!space->addressable);
    void *handle = space->allocate(space, spec);
    mu_buffer *buffer = handle ? mu__new(&mu__buffer_type, sizeof *buffer) : NULL;
    if (!buffer) {
        if (handle)
            space->free(space, handle);
        return NULL;
    }
    buffer->memory_space = space;
    buffer->bytes = bytes;
    buffer->handle = handle;
    return buffer;
}

mu_status mu__buffer_from_host(mu_buffer *buffer, const void *data)
{
    if (!buffer->memory_space->addressable)
        return buffer->memory_space->from_host(buffer->memory_space, buffer->handle, data, buffer->bytes);
    memcpy(buffer->data, data, buffer->bytes);
    return MU_OK;
}

mu_status mu__buffer_to_host(const mu_buffer *buffer, void *data)
{
    if (!buffer->memory_space->addressable)
        return buffer->memory_space->to_host(buffer->memory_space, buffer->handle, data, buffer->bytes);
    memcpy(data, buffer->data, buffer->bytes);
    return MU_OK;
}

// Two threads may fetch at the same time; the first one's copy stays.
static void *fetch(mu_buffer *buffer)
{
    void *there =
        buffer->memory_space->map ? (void *)buffer->memory_space->map(buffer->memory_space, buffer->handle) : NULL;
    if (there) {
        buffer->mapped = true;
        atomic_store_explicit(&buffer->fetched, there, memory_order_release);
        return there;
    }
    void *copy = mu__alloc_data(MU_MAX(buffer->bytes, (size_t)1)), *first = NULL;
    const mu_status status = copy ? mu__buffer_to_host(buffer, copy) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK && atomic_compare_exchange_strong(&buffer->fetched, &first, copy))
        return copy;
    if (copy)
        mu__free_data(copy, MU_MAX(buffer->bytes, (size_t)1));
    return first;
}

const void *mu__host_fetch(const mu_tensor *tensor)
{
    char *data = atomic_load_explicit(&tensor->buffer->fetched, memory_order_acquire);
    if (!data && !(data = fetch(tensor->buffer)))
        return NULL;
    return data + tensor->offset;
}
