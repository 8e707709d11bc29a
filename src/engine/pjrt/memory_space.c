// The memory of a plugin's device as a memory space, and transfers between it and the host.
#include "engine/pjrt/pjrt.h"

static int buffer_type(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F32: return PJ_F32;
    case MU_F64: return PJ_F64;
    case MU_F16: return PJ_F16;
    case MU_BF16: return PJ_BF16;
    case MU_I64: return PJ_S64;
    case MU_I32: return PJ_S32;
    case MU_I16: return PJ_S16;
    case MU_I8: return PJ_S8;
    case MU_U8: return PJ_U8;
    case MU_BOOL: return PJ_PRED;
    default: return 0;
    }
}

// ---- Transfers ----------------------------------------------------------------------------------

void mu__pjrt_drop(const mu_pjrt_client *client, pj_buffer **buffer)
{
    pj_buffer_args args = PJ_ARGS(pj_buffer_args, .buffer = *buffer);
    if (*buffer && !atomic_load(&client->lost))
        mu__pjrt_destroy(client->api, PJ_BUFFER_DESTROY, &args);
    *buffer = NULL;
}

static mu_status from_host_buffer(const mu_pjrt_memory_space *space, const mu_view *from, pj_host_semantics semantics,
                                  const char *what, pj_buffer **out, pj_event **done)
{
    pj_from_host_args args = PJ_ARGS(
        pj_from_host_args, .client = space->client->client, .data = from->data, .type = buffer_type(from->dtype),
        .dims = from->shape.dims, .n_dims = (size_t)from->shape.rank, .semantics = semantics, .device = space->device);
    MU_TRY(mu__pjrt_usable(space->client, what));
    MU_TRY(mu__pjrt_call(space->client->api, PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, &args, what));
    *out = args.buffer;
    *done = args.done;
    return MU_OK;
}

mu_status mu__pjrt_upload(const mu_pjrt_memory_space *space, const mu_view *from, const char *what, pj_buffer **out)
{
    pj_event *done = NULL;
    MU_TRY(from_host_buffer(space, from, PJ_HOST_DURING_CALL, what, out, &done));
    return mu__pjrt_await(space->client, done, what);
}

// Few elements are copied at once, which is faster than an event. More are used where they lie, if the device can.
mu_status mu__pjrt_send(const mu_pjrt_memory_space *space, const mu_view *from, const char *what, pj_buffer **out,
                        pj_event **done)
{
    enum { FEW_BYTES = 4096 };
    const mu_spec spec = {.dtype = from->dtype, .shape = from->shape};
    const bool few = mu__spec_bytes(&spec) <= FEW_BYTES;
    *done = NULL;
    if (few)
        return mu__pjrt_upload(space, from, what, out);
    return from_host_buffer(space, from, PJ_HOST_IMMUTABLE_ALIAS, what, out, done);
}

// Row-major on the host, whatever the device's layout is.
mu_status mu__pjrt_download(mu_pjrt_client *client, pj_buffer *from, const mu_view *out, const char *what)
{
    const int rank = out->shape.rank;
    int64_t order[MU_MAX_RANK];
    for (int k = 0; k < rank; k++)
        order[k] = rank - 1 - k;
    pj_layout layout = PJ_ARGS(
        pj_layout, .tiled = PJ_ARGS(pj_tiled_layout, .minor_to_major = order, .n_minor_to_major = (size_t)rank));
    pj_to_host_args args = PJ_ARGS(pj_to_host_args, .source = from, .layout = &layout, .data = out->data,
                                   .bytes = (size_t)mu__elements(&out->shape) * mu_dtype_bytes(out->dtype));
    if (args.bytes == 0)
        return MU_OK;
    if (client->world)
        MU_TRY(mu__pjrt_await_buffer(client, from, what)); // some plugins wait in the call itself
    MU_TRY(mu__pjrt_call(client->api, PJ_BUFFER_TO_HOST_BUFFER, &args, what));
    return mu__pjrt_await_copy(client, args.event, what);
}

// ---- The memory space ---------------------------------------------------------------------------

static void *allocate(const mu_memory_space *space, const mu_spec *spec)
{
    mu_pjrt_memory *memory = mu__calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    memory->client = mu_retain(((const mu_pjrt_memory_space *)space)->client);
    memory->spec = *spec;
    pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

static void drop_copies(mu_pjrt_memory *memory)
{
    for (size_t i = 0; i < memory->copies.n; i++)
        mu__pjrt_drop(memory->client, &memory->copies.items[i].buffer);
    memory->copies.n = 0;
}

// The copy on a device, which has no value yet if there was none; NULL without memory.
static mu_pjrt_copy *copy_on(mu_pjrt_memory *memory, const mu_device *device)
{
    const mu_pjrt_copy none = {.device = device->engine_device};
    for (size_t i = 0; i < memory->copies.n; i++)
        if (memory->copies.items[i].device == none.device)
            return &memory->copies.items[i];
    return MU_PUSH(&memory->copies, none) == MU_OK ? &memory->copies.items[memory->copies.n - 1] : NULL;
}

static pj_buffer *make_copy(mu_pjrt_memory *memory, const mu_device *device)
{
    mu_pjrt_copy *copy = copy_on(memory, device);
    if (!copy || copy->buffer)
        return copy ? copy->buffer : NULL;
    if (!memory->buffer) {
        mu__error(MU_FAILED_PRECONDITION, "a variable to be copied to %s has no value", device->name);
        return NULL;
    }
    pj_copy_to_device_args args = PJ_ARGS(pj_copy_to_device_args, .buffer = memory->buffer, .device = copy->device);
    if (mu__pjrt_usable(memory->client, device->name) == MU_OK &&
        mu__pjrt_call(memory->client->api, PJ_BUFFER_COPY_TO_DEVICE, &args, device->name) == MU_OK)
        copy->buffer = args.copy;
    return copy->buffer;
}

pj_buffer *mu__pjrt_copy(mu_pjrt_memory *memory, const mu_device *device)
{
    pthread_mutex_lock(&memory->lock);
    pj_buffer *copy = make_copy(memory, device);
    pthread_mutex_unlock(&memory->lock);
    return copy;
}

void mu__pjrt_keep_copy(mu_pjrt_memory *memory, const mu_device *device, pj_buffer *buffer)
{
    mu_error_value ignored;
    pthread_mutex_lock(&memory->lock);
    mu_pjrt_copy *copy = copy_on(memory, device);
    mu__pjrt_drop(memory->client, copy ? &copy->buffer : &buffer);
    if (copy)
        copy->buffer = buffer;
    else
        mu__error_move(&ignored); // the next run makes it anew
    pthread_mutex_unlock(&memory->lock);
}

void mu__pjrt_put(mu_pjrt_memory *memory, pj_buffer *buffer)
{
    drop_copies(memory);
    if (!memory->owner)
        mu__pjrt_drop(memory->client, &memory->buffer);
    mu_release(memory->owner);
    memory->owner = NULL;
    memory->buffer = buffer;
}

static void free_memory(const mu_memory_space *space, void *handle)
{
    (void)space;
    mu_pjrt_memory *memory = handle;
    mu_pjrt_client *client = memory->client;
    mu__pjrt_put(memory, NULL);
    mu__free(memory->copies.items);
    pthread_mutex_destroy(&memory->lock);
    mu__free(memory);
    mu_release(client);
}

static mu_view view_of(const mu_pjrt_memory *memory, void *data)
{
    return (mu_view){.dtype = memory->spec.dtype, .shape = memory->spec.shape, .data = data};
}

static mu_status from_host(const mu_memory_space *space, void *handle, const void *data, size_t bytes)
{
    (void)bytes;
    mu_pjrt_memory *memory = handle;
    pj_buffer *buffer = NULL;
    const mu_view view = view_of(memory, (void *)data);
    const mu_status status = mu__pjrt_upload((const mu_pjrt_memory_space *)space, &view, space->name, &buffer);
    if (status != MU_OK) {
        mu__pjrt_drop(memory->client, &buffer);
        return status;
    }
    pthread_mutex_lock(&memory->lock);
    mu__pjrt_put(memory, buffer);
    pthread_mutex_unlock(&memory->lock);
    return MU_OK;
}

static mu_status to_host(const mu_memory_space *space, void *handle, void *data, size_t bytes)
{
    (void)bytes;
    mu_pjrt_memory *memory = handle;
    const mu_view view = view_of(memory, data);
    pthread_mutex_lock(&memory->lock);
    const mu_status status = memory->buffer
                                 ? mu__pjrt_download(memory->client, memory->buffer, &view, space->name)
                                 : mu__error(MU_FAILED_PRECONDITION, "a buffer on %s has no value", space->name);
    pthread_mutex_unlock(&memory->lock);
    return status;
}

// ---- Elements that are not copied ---------------------------------------------------------------

static mu_status share(const mu_memory_space *space, void *handle, mu_buffer *from)
{
    (void)space;
    mu_pjrt_memory *memory = handle;
    const mu_pjrt_memory *other = from->handle;
    memory->buffer = other->buffer;
    memory->owner = mu_retain(from);
    return MU_OK;
}

static bool is_in_memory(mu_pjrt_client *client, pj_buffer *buffer)
{
    int known = atomic_load(&client->in_memory);
    if (known == 0) {
        pj_buffer_on_cpu_args args = PJ_ARGS(pj_buffer_on_cpu_args, .buffer = buffer);
        const mu_status status = mu__pjrt_call(client->api, PJ_BUFFER_IS_ON_CPU, &args, client->kind);
        known = status == MU_OK && args.on_cpu ? 1 : -1;
        atomic_store(&client->in_memory, known);
    }
    return known > 0;
}

static mu_status address_of(mu_pjrt_client *client, pj_buffer *buffer, const void **out)
{
    pj_buffer_address_args at = PJ_ARGS(pj_buffer_address_args, .buffer = buffer);
    MU_TRY(mu__pjrt_await_buffer(client, buffer, client->kind));
    MU_TRY(mu__pjrt_call(client->api, PJ_BUFFER_UNSAFE_POINTER, &at, client->kind));
    *out = (const void *)at.address;
    return MU_OK;
}

// A copy would wait for another thread.
mu_status mu__pjrt_read_number(mu_pjrt_client *client, pj_buffer *from, const char *what, int64_t *out)
{
    const mu_view view = {.dtype = MU_I64, .data = out};
    const void *address = NULL;
    mu_error_value ignored;
    if (is_in_memory(client, from) && address_of(client, from, &address) == MU_OK) {
        memcpy(out, address, sizeof *out);
        return MU_OK;
    }
    if (mu__pending())
        mu__error_move(&ignored);
    return mu__pjrt_download(client, from, &view, what);
}

// What goes wrong here goes wrong again when the elements are copied, which reports it.
static const void *map(const mu_memory_space *space, void *handle)
{
    (void)space;
    mu_pjrt_memory *memory = handle;
    const void *address = NULL;
    mu_error_value ignored;
    pthread_mutex_lock(&memory->lock);
    if (memory->buffer && is_in_memory(memory->client, memory->buffer))
        address_of(memory->client, memory->buffer, &address);
    pthread_mutex_unlock(&memory->lock);
    if (mu__pending())
        mu__error_move(&ignored);
    return address;
}

const mu_memory_space *mu__pjrt_memory_space_init(mu_pjrt_memory_space *space, mu_pjrt_client *client,
                                                  const mu_device *device)
{
    *space = (mu_pjrt_memory_space){
        .memory_space = {.name = device->name,
                         .allocate = allocate,
                         .free = free_memory,
                         .from_host = from_host,
                         .to_host = to_host,
                         .map = map,
                         .share = share},
        .client = client,
        .device = device->engine_device,
    };
    return &space->memory_space;
}
