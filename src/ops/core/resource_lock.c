// The locks of resources that several threads use at the same time.
//
// A lock may belong to several resources, so each is taken once, and in the order of addresses, so that two calls
// cannot wait for each other.
#include "ops/core/op.h"

// The lock with the lowest address above `after`; NULL if there is none.
static pthread_mutex_t *next_lock(int n, mu_resource *const *resources, const pthread_mutex_t *after)
{
    pthread_mutex_t *next = NULL;
    for (int i = 0; i < n; i++) {
        pthread_mutex_t *lock = resources[i]->lock;
        if (lock && (uintptr_t)lock > (uintptr_t)after && (!next || (uintptr_t)lock < (uintptr_t)next))
            next = lock;
    }
    return next;
}

void mu__resources_lock(int n, mu_resource *const *resources)
{
    for (pthread_mutex_t *lock = next_lock(n, resources, NULL); lock; lock = next_lock(n, resources, lock))
        pthread_mutex_lock(lock);
}

void mu__resources_unlock(int n, mu_resource *const *resources)
{
    for (pthread_mutex_t *lock = next_lock(n, resources, NULL); lock; lock = next_lock(n, resources, lock))
        pthread_mutex_unlock(lock);
}
