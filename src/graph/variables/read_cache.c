// Cached reads: a scope in which each variable on a parameter server is read once.
//
// The thread's context points to the cache of the open scope. A read in a trace is cached too, as its symbolic tensor,
// for as long as that trace is in progress. Reads of single rows do not come here.
#include "graph/graph.h"

typedef struct cached_read {
    mu_variable *variable;  // retained
    mu_tensor *value;       // retained
    struct mu_trace *trace; // in which it was read; NULL: none
} cached_read;

struct mu_read_cache {
    mu_object object;
    mu_context *context; // whose reads it caches; NULL: closed
    struct {
        cached_read *items;
        size_t n, capacity;
    } reads;
};

static void close_cache(struct mu_read_cache *cache)
{
    if (cache->context)
        cache->context->read_cache = NULL;
    cache->context = NULL;
    for (size_t i = 0; i < cache->reads.n; i++) {
        mu_release(cache->reads.items[i].value);
        mu_release(cache->reads.items[i].variable);
    }
    cache->reads.n = 0;
}

static void cache_destroy(void *object)
{
    struct mu_read_cache *cache = object;
    close_cache(cache);
    mu__free(cache->reads.items);
}

static mu_type cache_type = {.name = "cache of reads", .destroy = cache_destroy};

struct mu_read_cache *mu__read_cache_open(void)
{
    mu_context *context = mu__context();
    if (context->read_cache) {
        mu__error(MU_INVALID_ARGUMENT, "MU_CACHE_VARIABLE_READS is inside another one; reads are cached already");
        return NULL;
    }
    struct mu_read_cache *cache = mu__give(mu__new(&cache_type, sizeof *cache));
    if (!cache)
        return NULL;
    cache->context = context;
    context->read_cache = cache;
    return cache;
}

void mu__read_cache_close(struct mu_read_cache *cache)
{
    if (cache)
        close_cache(cache);
}

mu_tensor *mu__cached_read(const mu_variable *variable)
{
    const mu_context *context = mu__context();
    const struct mu_read_cache *cache = context->read_cache;
    for (size_t i = 0; cache && i < cache->reads.n; i++)
        if (cache->reads.items[i].variable == variable && cache->reads.items[i].trace == context->trace)
            return mu__give(mu_retain(cache->reads.items[i].value));
    return NULL;
}

mu_tensor *mu__cache_read(mu_variable *variable, mu_tensor *value)
{
    mu_context *context = mu__context();
    struct mu_read_cache *cache = context->read_cache;
    if (!value || !cache || (!variable->resource.lock && !variable->resource.home))
        return value;
    const cached_read read = {.variable = variable, .value = value, .trace = context->trace};
    if (MU_PUSH(&cache->reads, read) != MU_OK)
        return NULL;
    mu_retain(variable);
    mu_retain(value);
    return value;
}
