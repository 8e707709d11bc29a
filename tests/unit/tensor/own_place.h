// Places of the tests' own: elements lie scrambled in blocks of their own, so whoever takes a handle for an address of
// elements reads garbage. What is copied is counted, and a place can be told to fail.
#ifndef MU_TESTS_OWN_PLACE_H
#define MU_TESTS_OWN_PLACE_H

#include "tensor/tensor.h"

typedef struct own_place {
    mu_place place;  // first
    int to_host, from_host, live;
    bool fails;
} own_place;

static inline void own_scramble(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i] ^ 0xA5;
}

static inline mu_status own_check(const own_place *own)
{
    return own->fails ? mu__error(MU_UNAVAILABLE, "%s does not answer", own->place.name) : MU_OK;
}

static inline void *own_allocate(const mu_place *place, const mu_spec *spec)
{
    void *block = mu__calloc(1, mu__spec_bytes(spec) + 1);
    ((own_place *)place)->live += block != NULL;
    return block;
}

static inline void own_free(const mu_place *place, void *handle)
{
    ((own_place *)place)->live--;
    mu__free(handle);
}

static inline mu_status own_from_host(const mu_place *place, void *handle, const void *data, size_t bytes)
{
    MU_TRY(own_check((const own_place *)place));
    ((own_place *)place)->from_host++;
    own_scramble(handle, data, bytes);
    return MU_OK;
}

static inline mu_status own_to_host(const mu_place *place, void *handle, void *data, size_t bytes)
{
    MU_TRY(own_check((const own_place *)place));
    ((own_place *)place)->to_host++;
    own_scramble(data, handle, bytes);
    return MU_OK;
}

#define OWN_PLACE(text)                                                                                     \
    {                                                                                                       \
        .place = {.name = (text), .allocate = own_allocate, .free = own_free, .from_host = own_from_host,  \
                  .to_host = own_to_host}                                                                   \
    }

#endif
