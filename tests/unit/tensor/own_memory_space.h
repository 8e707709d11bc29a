// Memory spaces of the tests' own: elements are stored scrambled, so code that mistakes a handle for the elements'
// address reads garbage. Copies are counted, and `fails` makes every copy fail.
#ifndef MU_TESTS_OWN_MEMORY_SPACE_H
#define MU_TESTS_OWN_MEMORY_SPACE_H

#include "tensor/tensor.h"

typedef struct own_memory_space {
    mu_memory_space memory_space; // first
    int to_host, from_host, live;
    bool fails;
} own_memory_space;

static inline void own_scramble(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i] ^ 0xA5;
}

static inline mu_status own_check(const own_memory_space *own)
{
    return own->fails ? mu__error(MU_UNAVAILABLE, "%s does not answer", own->memory_space.name) : MU_OK;
}

static inline void *own_allocate(const mu_memory_space *space, const mu_spec *spec)
{
    void *block = mu__calloc(1, mu__spec_bytes(spec) + 1);
    ((own_memory_space *)space)->live += block != NULL;
    return block;
}

static inline void own_free(const mu_memory_space *space, void *handle)
{
    ((own_memory_space *)space)->live--;
    mu__free(handle);
}

static inline mu_status own_from_host(const mu_memory_space *space, void *handle, const void *data, size_t bytes)
{
    MU_TRY(own_check((const own_memory_space *)space));
    ((own_memory_space *)space)->from_host++;
    own_scramble(handle, data, bytes);
    return MU_OK;
}

static inline mu_status own_to_host(const mu_memory_space *space, void *handle, void *data, size_t bytes)
{
    MU_TRY(own_check((const own_memory_space *)space));
    ((own_memory_space *)space)->to_host++;
    own_scramble(data, handle, bytes);
    return MU_OK;
}

#define OWN_MEMORY_SPACE(text)          \
    {                                   \
        .memory_space = {               \
            .name = (text),             \
            .allocate = own_allocate,   \
            .free = own_free,           \
            .from_host = own_from_host, \
            .to_host = own_to_host      \
        }                               \
    }

#endif
