// The storage of variables: where the newest value of each component is kept.
//
// Every component has memory on the host, and nothing else until it is acquired in another memory space. From then on
// the storage knows which memory spaces hold the newest value: a read copies it to where it is read, a write leaves it
// only where it was written. So a variable that a device trains stays there. Reading it gives a tensor that shares the
// buffer there, which the host fetches when its elements are first read; the next write then goes to another buffer.
#include "graph/graph.h"

#include <pthread.h>

// Places other than the host that have the newest value of one component.
struct mu_residence {
    pthread_mutex_t lock;
    bool host_stale; // the newest value is not on the host
    struct {
        mu_buffer **items;
        size_t n, capacity;
    } copies; // retained; room for one is there from the start
};

// ---- Residences ---------------------------------------------------------------------------------

static void residence_free(mu_residence *residence)
{
    if (!residence)
        return;
    for (size_t i = 0; i < residence->copies.n; i++)
        mu_release(residence->copies.items[i]);
    mu__free(residence->copies.items);
    pthread_mutex_destroy(&residence->lock);
    mu__free(residence);
}

static mu_residence *residence_new(void)
{
    mu_residence *residence = mu__calloc(1, sizeof *residence);
    if (!residence)
        return NULL;
    pthread_mutex_init(&residence->lock, NULL);
    if (MU_PUSH(&residence->copies, NULL) == MU_OK) {
        residence->copies.n = 0;
        return residence;
    }
    residence_free(residence);
    return NULL;
}

static mu_residence *residence_of(mu_variable *variable, int component)
{
    mu_residence *_Atomic *slot = &variable->residences[component];
    mu_residence *residence = atomic_load_explicit(slot, memory_order_acquire);
    mu_residence *made = residence ? NULL : residence_new();
    if (residence || !made || atomic_compare_exchange_strong(slot, &residence, made))
        return residence ? residence : made;
    residence_free(made); // another thread was first
    return residence;
}

static void drop_copies(mu_residence *residence)
{
    while (residence->copies.n > 0)
        mu_release(residence->copies.items[--residence->copies.n]);
}

static mu_buffer *copy_at(const mu_residence *residence, const mu_memory_space *space)
{
    for (size_t i = 0; i < residence->copies.n; i++)
        if (residence->copies.items[i]->memory_space == space)
            return residence->copies.items[i];
    return NULL;
}

// ---- Acquiring, under the residence's lock ------------------------------------------------------

static mu_status refresh_host(mu_residence *residence, mu_buffer *host)
{
    if (!residence->host_stale)
        return MU_OK;
    MU_TRY(mu__buffer_to_host(residence->copies.items[0], host->data));
    residence->host_stale = false;
    return MU_OK;
}

static mu_status at_host(mu_residence *residence, mu_buffer *host, mu_access access, mu_buffer **out)
{
    if (access != MU_ACCESS_WRITE)
        MU_TRY(refresh_host(residence, host));
    if (access != MU_ACCESS_READ) {
        drop_copies(residence);
        residence->host_stale = false;
    }
    *out = mu_retain(host);
    return MU_OK;
}

// A buffer that is to be overwritten joins the copies when it is committed.
static mu_status bring(mu_residence *residence, mu_buffer *host, mu_access access, mu_buffer *copy)
{
    if (access == MU_ACCESS_WRITE)
        return MU_OK;
    MU_TRY(refresh_host(residence, host));
    MU_TRY(mu__buffer_from_host(copy, host->data));
    MU_TRY(MU_PUSH(&residence->copies, copy));
    mu_retain(copy);
    return MU_OK;
}

// Whether tensors share the buffer, or the host has seen its elements.
static bool is_seen(const mu_buffer *copy)
{
    return atomic_load(&copy->object.references) > 1 || atomic_load(&copy->fetched) != NULL;
}

// A buffer for a write that leaves `copy` to those who share it.
static mu_buffer *beside(const mu_memory_space *space, const mu_spec *spec, mu_access access, mu_buffer *copy)
{
    mu_buffer *other = mu__buffer_at(space, spec);
    if (!other || access == MU_ACCESS_WRITE || space->share(space, other->handle, copy) == MU_OK)
        return other;
    mu_release(other);
    return NULL;
}

static mu_status at_device(mu_residence *residence, const mu_tensor *host, const mu_memory_space *space,
                           mu_access access, mu_buffer **out)
{
    const mu_spec spec = mu__spec_of(host);
    mu_buffer *copy = copy_at(residence, space);
    if (copy && access != MU_ACCESS_READ && space->share && is_seen(copy)) {
        *out = beside(space, &spec, access, copy);
        return *out ? MU_OK : mu_error_code();
    }
    mu_retain(copy);
    if (!copy) {
        copy = mu__buffer_at(space, &spec);
        if (!copy || bring(residence, host->buffer, access, copy) != MU_OK) {
            mu_release(copy);
            return mu_error_code();
        }
    }
    *out = copy;
    return MU_OK;
}

// ---- The variable's kind ------------------------------------------------------------------------

static int component_of(const mu_variable *variable, int replica)
{
    return replica < variable->n_components ? replica : 0;
}

static mu_status check_whole(const mu_variable *variable, int component)
{
    if (!variable->poisoned[component])
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "variable '%s' was left in doubt by a step that failed; assign it or restore a checkpoint first",
                     variable->resource.name);
}

// Gives a component that others hold too memory of its own, before it is written.
static mu_status keep_alone(mu_variable *variable, int i, mu_access access)
{
    mu_tensor *shared = variable->components[i];
    if (!variable->lends || atomic_load(&shared->buffer->object.references) == 1)
        return MU_OK;
    mu_tensor *own = mu__tensor_alloc(shared->dtype, &shared->shape);
    if (!own)
        return MU_RESOURCE_EXHAUSTED;
    if (access != MU_ACCESS_WRITE)
        memcpy(mu__host_write(own), mu__host_read(shared), mu__spec_bytes(&variable->resource.spec));
    variable->components[i] = own;
    mu_release(shared);
    return MU_OK;
}

mu_tensor *mu__variable_lend(mu_variable *variable)
{
    if (variable->poisoned[0] || variable->n_components != 1 || variable->residences[0] ||
        variable->resource.spec.dtype == MU_STRING)
        return NULL;
    const mu_tensor *value = variable->components[0];
    variable->lends = true;
    return mu__give(mu__tensor_view(value->buffer, 0, value->dtype, &value->shape));
}

bool mu__variable_take(mu_variable *variable, mu_tensor *value)
{
    const mu_tensor *own = variable->components[0];
    if (variable->n_components != 1 || variable->residences[0] || value->buffer->memory_space != &mu__host_memory ||
        value->offset != 0 || value->dtype != own->dtype || value->dtype == MU_STRING ||
        !mu__shape_equal(&value->shape, &own->shape))
        return false;
    // Not `value` itself: who holds that holds its memory too, which only references of the buffer show (keep_alone).
    mu_tensor *before = variable->components[0];
    mu_tensor *taken = mu__tensor_view(value->buffer, 0, value->dtype, &value->shape);
    if (!taken)
        return false;
    variable->components[0] = taken;
    variable->lends = true;
    variable->poisoned[0] = false;
    mu_release(before);
    return true;
}

static mu_status acquire(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                         mu_buffer **out)
{
    mu_variable *variable = (mu_variable *)resource;
    const int i = component_of(variable, replica);
    if (access != MU_ACCESS_READ)
        MU_TRY(keep_alone(variable, i, access));
    const mu_tensor *host = variable->components[i];
    if (access != MU_ACCESS_WRITE)
        MU_TRY(check_whole(variable, i));
    mu_residence *residence = atomic_load_explicit(&variable->residences[i], memory_order_acquire);
    if (!residence && space == &mu__host_memory) {
        *out = mu_retain(host->buffer);
        return MU_OK;
    }
    if (!residence && !(residence = residence_of(variable, i)))
        return mu_error_code();
    pthread_mutex_lock(&residence->lock);
    const mu_status status = space->addressable ? at_host(residence, host->buffer, access, out)
                                                : at_device(residence, host, space, access, out);
    pthread_mutex_unlock(&residence->lock);
    return status;
}

static mu_status commit(mu_resource *resource, int replica, mu_access access, mu_buffer *buffer)
{
    mu_variable *variable = (mu_variable *)resource;
    const int i = component_of(variable, replica);
    mu_residence *residence = atomic_load_explicit(&variable->residences[i], memory_order_acquire);
    if (residence) {
        pthread_mutex_lock(&residence->lock);
        mu_retain(buffer);
        drop_copies(residence);
        residence->host_stale = !buffer->memory_space->addressable;
        if (residence->host_stale)
            residence->copies.items[residence->copies.n++] = buffer;
        else
            mu_release(buffer);
        pthread_mutex_unlock(&residence->lock);
    }
    if (access == MU_ACCESS_WRITE)
        variable->poisoned[i] = false;
    return MU_OK;
}

static void poison(mu_resource *resource, int replica)
{
    mu_variable *variable = (mu_variable *)resource;
    variable->poisoned[component_of(variable, replica)] = true;
}

// ---- Reading and assigning without the host -----------------------------------------------------

// The only buffer with the newest value, if that is not on the host; NULL: the host has the value, or the memory space
// cannot share elements.
static mu_buffer *only_copy(const mu_residence *residence)
{
    mu_buffer *copy = residence->copies.n > 0 ? residence->copies.items[0] : NULL;
    return copy && residence->host_stale && copy->memory_space->share ? copy : NULL;
}

static mu_status read_there(mu_resource *resource, int replica, mu_tensor **out)
{
    mu_variable *variable = (mu_variable *)resource;
    const int i = component_of(variable, replica);
    mu_residence *residence = atomic_load_explicit(&variable->residences[i], memory_order_acquire);
    *out = NULL;
    if (!residence || variable->poisoned[i])
        return MU_OK;
    pthread_mutex_lock(&residence->lock);
    mu_buffer *copy = mu_retain(only_copy(residence));
    pthread_mutex_unlock(&residence->lock);
    if (!copy)
        return MU_OK;
    *out = mu__tensor_view(copy, 0, resource->spec.dtype, &variable->components[i]->shape);
    mu_release(copy);
    return *out ? MU_OK : mu_error_code();
}

// A buffer in the memory space with the tensor's elements: the tensor's own buffer if it holds exactly these elements
// there.
static mu_buffer *buffer_of(const mu_memory_space *space, const mu_tensor *value)
{
    const mu_spec spec = mu__spec_of(value);
    const void *data = NULL;
    if (value->buffer->memory_space == space && value->offset == 0 && value->buffer->bytes == mu__spec_bytes(&spec))
        return mu_retain(value->buffer);
    mu_buffer *made = (data = mu__host_read(value)) != NULL ? mu__buffer_at(space, &spec) : NULL;
    if (!made || mu__buffer_from_host(made, data) == MU_OK)
        return made;
    mu_release(made);
    return NULL;
}

static mu_status assign_there(mu_resource *resource, int replica, mu_tensor *value, bool *done)
{
    mu_variable *variable = (mu_variable *)resource;
    const int i = component_of(variable, replica);
    mu_residence *residence = atomic_load_explicit(&variable->residences[i], memory_order_acquire);
    *done = false;
    if (!residence || value->dtype != resource->spec.dtype ||
        !mu__shape_equal(&value->shape, &variable->components[i]->shape))
        return MU_OK;
    pthread_mutex_lock(&residence->lock);
    const mu_buffer *copy = only_copy(residence);
    const mu_memory_space *space = copy ? copy->memory_space : NULL;
    pthread_mutex_unlock(&residence->lock);
    mu_buffer *made = space ? buffer_of(space, value) : NULL;
    if (!made)
        return space ? mu_error_code() : MU_OK;
    const mu_status status = commit(resource, replica, MU_ACCESS_WRITE, made);
    mu_release(made);
    *done = status == MU_OK;
    return status;
}

const mu_resource_kind mu__variable_kind = {
    .name = "variable",
    .acquire = acquire,
    .commit = commit,
    .poison = poison,
    .read = read_there,
    .assign = assign_there,
};

// ---- Making and freeing -------------------------------------------------------------------------

mu_status mu__variable_fill(mu_variable *variable, int n_components, const mu_tensor *value)
{
    const mu_spec spec = mu__spec_of(value);
    const size_t n = (size_t)n_components;
    variable->n_components = n_components;
    variable->components = mu__calloc(n, sizeof *variable->components);
    variable->poisoned = mu__calloc(n, sizeof *variable->poisoned);
    variable->residences = mu__calloc(n, sizeof *variable->residences);
    if (!variable->components || !variable->poisoned || !variable->residences)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n_components; i++) {
        if (!(variable->components[i] = mu__tensor_alloc(spec.dtype, &spec.shape)))
            return MU_RESOURCE_EXHAUSTED;
        MU_TRY(mu_tensor_copy_to(value, mu__host_write(variable->components[i]), mu__spec_bytes(&spec)));
    }
    return MU_OK;
}

void mu__variable_empty(mu_variable *variable)
{
    for (int i = 0; i < variable->n_components; i++) {
        if (variable->components)
            mu_release(variable->components[i]);
        if (variable->residences)
            residence_free(variable->residences[i]);
    }
    mu__free(variable->components);
    mu__free(variable->poisoned);
    mu__free(variable->residences);
}
