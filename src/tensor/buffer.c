// Buffers: elements at a place, which is the host's memory unless somebody asks for another.
//
// The host's memory costs nothing here: its elements have an address. Elements at other places are copied from and to
// the host through the place's functions.
#include "tensor/tensor.h"

const mu_place mu__place_host = {.name = "host", .addressable = true};
const mu_place mu__place_segment = {.name = "shared segment", .addressable = true};

static void destroy_elsewhere(mu_buffer *buffer)
{
    void *fetched = atomic_load_explicit(&buffer->fetched, memory_order_acquire);
    if (fetched && !buffer->mapped)
        mu__free_data(fetched, MU_MAX(buffer->bytes, (size_t)1));
    buffer->place->free(buffer->place, buffer->handle);
}

static void destroy_buffer(void *object)
{
    mu_buffer *buffer = object;
    if (buffer->release)
        buffer->release(buffer->arg);
    else if (buffer->data && !buffer->arg)
        mu__free_data(buffer->data, buffer->bytes);
    else if (!buffer->data && !buffer->place->addressable)
        destroy_elsewhere(buffer);
}

mu_type mu__buffer_type = {.name = "buffer", .destroy = destroy_buffer};

mu_buffer *mu__buffer_new(size_t bytes)
{
    mu_buffer *buffer = mu__new(&mu__buffer_type, sizeof *buffer);
    if (!buffer)
        return NULL;
    buffer->place = &mu__place_host;
    buffer->bytes = MU_MAX(bytes, (size_t)1);
    buffer->data = mu__alloc_data(buffer->bytes);
    if (!buffer->data) {
        mu_release(buffer);
        return NULL;
    }
    return buffer;
}

mu_buffer *mu__buffer_at(const mu_place *place, const mu_spec *spec)
{
    const size_t bytes = mu__spec_bytes(spec);
    if (place == &mu__place_host)
        return mu__buffer_new(bytes);
    assert(!place->addressable);
    void *handle = place->allocate(place, spec);
    mu_buffer *buffer = handle ? mu__new(&mu__buffer_type, sizeof *buffer) : NULL;
    if (!buffer) {
        if (handle)
            place->free(place, handle);
        return NULL;
    }
    buffer->place = place;
    buffer->bytes = bytes;
    buffer->handle = handle;
    return buffer;
}

mu_status mu__buffer_from_host(mu_buffer *buffer, const void *data)
{
    if (!buffer->place->addressable)
        return buffer->place->from_host(buffer->place, buffer->handle, data, buffer->bytes);
    memcpy(buffer->data, data, buffer->bytes);
    return MU_OK;
}

mu_status mu__buffer_to_host(const mu_buffer *buffer, void *data)
{
    if (!buffer->place->addressable)
        return buffer->place->to_host(buffer->place, buffer->handle, data, buffer->bytes);
    memcpy(data, buffer->data, buffer->bytes);
    return MU_OK;
}

// Two threads may fetch at the same time; the first one's copy stays.
static void *fetch(mu_buffer *buffer)
{
    void *there = buffer->place->map ? (void *)buffer->place->map(buffer->place, buffer->handle) : NULL;
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
