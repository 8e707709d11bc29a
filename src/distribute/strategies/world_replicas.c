// Maps each replica to one of the devices of all processes; workers exchange this when they make a strategy.
//
// A program of XLA can run on the devices of several processes only if their plugin has made one world of them, with
// the processes in the order of the workers. Every worker decides the same from the same list; where anything does not
// fit, the host reduces between processes.
#include "distribute/distribute.h"

#include <stdlib.h>

// What a worker sends about its replicas' devices; their numbers follow.
typedef struct own_world {
    int32_t willing; // 0: the host is to reduce
    int32_t process, n_all;
    int32_t n; // numbers
} own_world;

static int cores_of(const mu_strategy *strategy) { return strategy->cores ? strategy->n_cores : 1; }

// Whether one program may be for so many devices, of which each worker has n.
static bool few_enough(const mu_strategy *strategy, mu_device *const *devices, int n)
{
    mu_world_device identity;
    const mu_engine *engine = devices[0]->engine;
    const int64_t all = (int64_t)n * strategy->n_workers;
    if (!engine->join || !engine->identify || !engine->identify(devices[0], &identity))
        return false;
    if (all > engine->most_joined)
        mu__log(MU_LOG_INFO,
                "the host reduces between the %d workers: they have %lld devices, and one program runs on at most %d",
                strategy->n_workers, (long long)all, engine->most_joined);
    return all <= engine->most_joined;
}

// The block of this worker, which has no numbers if it is not willing; to be freed with mu__free.
static own_world *describe_own(const mu_strategy *strategy, bool willing, size_t *bytes)
{
    mu_device *const *devices = strategy->cores ? strategy->cores : strategy->devices;
    const int each = strategy->n_local * cores_of(strategy);
    const int n = willing && each > 0 && few_enough(strategy, devices, each) ? each : 0;
    own_world *own = mu__calloc(1, sizeof *own + sizeof(int64_t) * (size_t)n);
    if (!own)
        return NULL;
    *own = (own_world){.willing = n > 0, .n = n};
    for (int i = 0; i < n && own->willing; i++) {
        mu_world_device identity = {.process = -1};
        const mu_engine *engine = devices[i]->engine;
        own->willing = engine->launch && engine->identify && engine->identify(devices[i], &identity) &&
                       devices[i]->engine_client == devices[0]->engine_client;
        own->process = identity.process;
        own->n_all = identity.n_devices;
        ((int64_t *)(own + 1))[i] = identity.id;
    }
    *bytes = sizeof *own + sizeof(int64_t) * (size_t)n;
    return own;
}

bool mu__world_read(const void *block, size_t bytes, int worker, int n_workers, int n, int64_t *ids)
{
    own_world theirs;
    if (bytes != sizeof theirs + sizeof *ids * (size_t)n)
        return false;
    memcpy(&theirs, block, sizeof theirs);
    memcpy(ids, (const char *)block + sizeof theirs, sizeof *ids * (size_t)n);
    return theirs.willing == 1 && theirs.n == n && theirs.process == worker && theirs.n_all == n * n_workers;
}

static int compare_ids(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool all_differ(const int64_t *ids, int n)
{
    int64_t *sorted = mu__alloc(sizeof *ids * (size_t)n);
    bool differ = sorted != NULL;
    if (sorted) {
        memcpy(sorted, ids, sizeof *ids * (size_t)n);
        qsort(sorted, (size_t)n, sizeof *sorted, compare_ids);
    }
    for (int i = 1; differ && i < n; i++)
        differ = sorted[i] != sorted[i - 1];
    mu__free(sorted);
    return differ;
}

static mu_status read_all(mu_strategy *strategy, const mu_blocks *blocks)
{
    const int each = strategy->n_local * cores_of(strategy), n = blocks->n * each;
    int64_t *ids = mu__alloc(sizeof *ids * (size_t)n);
    bool world = ids != NULL;
    for (int rank = 0; world && rank < blocks->n; rank++)
        world = mu__world_read(blocks->data[rank], blocks->bytes[rank], rank, blocks->n, each, ids + rank * each);
    if (world && all_differ(ids, n)) {
        strategy->world_ids = ids;
        mu__log(MU_LOG_INFO, "the %d devices of %d workers run one program; they agree before each of its runs", n,
                blocks->n);
        return MU_OK;
    }
    mu__free(ids);
    return mu_error_code();
}

mu_status mu__strategy_find_world(mu_strategy *strategy, bool willing)
{
    size_t bytes = 0;
    mu_blocks blocks;
    own_world *own = describe_own(strategy, willing, &bytes);
    if (!own)
        return mu__pending() ? mu_error_code() : MU_RESOURCE_EXHAUSTED;
    mu_status status = mu__mesh_exchange(strategy->mesh, "devices of the replicas", own, bytes, &blocks);
    mu__free(own);
    if (status != MU_OK)
        return status;
    status = read_all(strategy, &blocks);
    mu__blocks_free(&blocks);
    return status;
}
