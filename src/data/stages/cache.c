// The cache: the first complete iteration stores its elements in memory, later iterations read them.
//
// The elements belong to the dataset, so all its iterators share them. Concurrent first iterations collect separately;
// the first to finish stores its elements. Rows of a source in memory stay rows. The cache in a file is in
// cache_file.c.
#include "data/dataset.h"

#include <pthread.h>

typedef struct elements {
    mu_item *items;
    size_t n, capacity;
} elements;

typedef struct shared_cache {
    mu_object object;
    pthread_mutex_t lock;
    elements kept; // immutable once `full`
    atomic_bool full;
} shared_cache;

typedef struct cache_state {
    elements seen; // collected so far
    size_t at;
    bool read; // decided at the first element: read from the cache, or from the input
    bool begun;
    bool incomplete; // an element failed, so the collection is incomplete
} cache_state;

static void drop_elements(elements *list)
{
    for (size_t i = 0; i < list->n; i++)
        mu__item_drop(&list->items[i]);
    mu__free(list->items);
    *list = (elements){0};
}

static void shared_destroy(void *object)
{
    shared_cache *shared = object;
    drop_elements(&shared->kept);
    pthread_mutex_destroy(&shared->lock);
}

static mu_type shared_type = {.name = "cache", .destroy = shared_destroy};

static void keep_elements(shared_cache *shared, elements *seen)
{
    pthread_mutex_lock(&shared->lock);
    if (!atomic_load(&shared->full)) {
        shared->kept = *seen;
        *seen = (elements){0};
        atomic_store(&shared->full, true);
    }
    pthread_mutex_unlock(&shared->lock);
}

static mu_item copy_item(const mu_item *item)
{
    mu_retain(item->value);
    return *item;
}

static mu_status collect(elements *seen, mu_item *item)
{
    mu_item copy = copy_item(item);
    if (MU_PUSH(seen, copy) == MU_OK)
        return MU_OK;
    mu__item_drop(&copy);
    mu__item_drop(item);
    return MU_RESOURCE_EXHAUSTED;
}

static mu_status cache_next(mu_stage *stage, mu_item *item, bool *end)
{
    cache_state *state = stage->state;
    shared_cache *shared = (shared_cache *)stage->dataset->shared;
    if (!state->begun)
        state->read = atomic_load(&shared->full);
    state->begun = true;
    if (state->read) {
        *end = state->at == shared->kept.n;
        if (!*end)
            *item = copy_item(&shared->kept.items[state->at++]);
        return MU_OK;
    }
    mu_status status = mu__stage_next(stage, 0, item, end);
    if (status == MU_OK && !*end)
        status = collect(&state->seen, item);
    if (status == MU_OK && *end && !state->incomplete)
        keep_elements(shared, &state->seen);
    state->incomplete = state->incomplete || status != MU_OK;
    return status;
}

static void cache_close(mu_stage *stage) { drop_elements(&((cache_state *)stage->state)->seen); }

static int64_t cache_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

static mu_object *cache_share(void)
{
    shared_cache *shared = mu__new(&shared_type, sizeof *shared);
    if (shared == NULL)
        return NULL;
    pthread_mutex_init(&shared->lock, NULL);
    return &shared->object;
}

const mu_stage_ops mu__cache_stage = {
    .name = "cache",
    .state_bytes = sizeof(cache_state),
    .next = cache_next,
    .close = cache_close,
    .cardinality = cache_cardinality,
    .share = cache_share,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_cache_with(const mu_dataset_cache_args *args)
{
    mu_dataset_cache_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_cache") != MU_OK)
        return NULL;
    return a.file != NULL ? mu__dataset_cache_in_file(a.dataset, a.file)
                          : mu__dataset_stage(&mu__cache_stage, NULL, a.dataset);
}
