// Reference-counted objects and the pools that own what functions return.
//
// A pool is a list of references; closing the pool drops them, newest first. The pools of a thread form a stack in
// its context. Any thread may retain and release objects; a pool belongs to one thread.
#include "base/type_name.h"

#include "base/private.h"

enum { WATCHED_SIZE = 256 }; // from this many objects on, a pool watches for a loop that fills it (pool_growth.c)

struct mu_pool {
    mu_pool *below;
    void **items;
    size_t n, capacity;
    mu_pool_growth *growth; // NULL: the pool is small
    int n_lines; // public calls in progress when the pool was opened; closing it forgets calls that a longjmp skipped
};

static _Atomic(mu_type *) types; // all types with objects so far, for leak checks and messages

// ---- Objects ------------------------------------------------------------------------------------

static void list_type(mu_type *type)
{
    if (atomic_load_explicit(&type->listed, memory_order_relaxed) != 0 || atomic_exchange(&type->listed, 1) != 0)
        return;
    type->next = atomic_load(&types);
    while (!atomic_compare_exchange_weak(&types, &type->next, type))
        continue;
}

void *mu__new(mu_type *type, size_t bytes)
{
    assert(bytes >= sizeof(mu_object));
    mu_object *object = mu__calloc(1, bytes);
    if (object == NULL)
        return NULL;
    object->mark = MU_OBJECT_MARK;
    object->type = type;
    atomic_init(&object->references, 1);
    list_type(type);
    atomic_fetch_add_explicit(&type->live, 1, memory_order_relaxed);
    return object;
}

void *mu_retain(void *object)
{
    if (object != NULL)
        atomic_fetch_add_explicit(&((mu_object *)object)->references, 1, memory_order_relaxed);
    return object;
}

void *mu__retain_living(void *object)
{
    if (object == NULL)
        return NULL;
    atomic_int *references = &((mu_object *)object)->references;
    int before = atomic_load_explicit(references, memory_order_relaxed);
    while (before > 0 && !atomic_compare_exchange_weak(references, &before, before + 1))
        continue;
    return before > 0 ? object : NULL;
}

void mu_release(void *object)
{
    if (object == NULL)
        return;
    mu_object *header = object;
    const int before = atomic_fetch_sub_explicit(&header->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before != 1)
        return;
    mu_type *type = header->type;
    if (type->destroy != NULL)
        type->destroy(object);
    if (atomic_load_explicit(&header->references, memory_order_relaxed) > 0)
        return; // mu__keep_object
    atomic_fetch_sub_explicit(&type->live, 1, memory_order_relaxed);
    mu__free(object);
}

void mu__keep_object(void *object) { atomic_store(&((mu_object *)object)->references, 1); }

bool mu__is(const void *object, const mu_type *type)
{
    return mu__is_object(object) && ((const mu_object *)object)->type == type;
}

// Compares the type with the listed ones and never dereferences it: the argument may be anything.
const char *mu__type_name(const void *object)
{
    if (object == NULL)
        return "NULL";
    for (const mu_type *type = atomic_load(&types); type != NULL; type = type->next)
        if (mu__is(object, type))
            return type->name;
    return "no object of Muster";
}

long mu__live_objects(FILE *out)
{
    long total = 0;
    for (mu_type *type = atomic_load(&types); type != NULL; type = type->next) {
        const long live = atomic_load(&type->live);
        total += live;
        if (out != NULL && live != 0)
            fprintf(out, "%ld live %s\n", live, type->name);
    }
    return total;
}

// ---- Pools --------------------------------------------------------------------------------------

mu_pool *mu__pool_push(mu_context *context)
{
    mu_pool *pool = mu__calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->below = context->pool;
    pool->n_lines = context->n_lines;
    context->pool = pool;
    return pool;
}

mu_pool *mu_pool_open(void)
{
    mu_context *context = mu__context();
    // A pool opened by the user always has one below it, so that a result can move out of it.
    if (context->pool == NULL && mu__pool_push(context) == NULL)
        return NULL;
    return mu__pool_push(context);
}

static mu_status pool_add(mu_pool *pool, void *object)
{
    if (pool->n >= WATCHED_SIZE)
        MU_TRY(mu__pool_grows(&pool->growth, object, pool->n + 1, pool->n_lines));
    return MU_PUSH(pool, object);
}

void *mu__give(void *object)
{
    if (object == NULL)
        return NULL;
    mu_context *context = mu__context();
    if ((context->pool == NULL && mu__pool_push(context) == NULL) || pool_add(context->pool, object) != MU_OK) {
        mu_release(object);
        return NULL;
    }
    return object;
}

void *mu__pool_return(mu_pool *pool, void *object)
{
    if (pool == NULL || object == NULL)
        return object;
    assert(pool->below != NULL);
    mu_retain(object);
    if (pool_add(pool->below, object) != MU_OK) {
        mu_release(object);
        return NULL;
    }
    return object;
}

// The pool stays on the stack while it empties, so that it also frees objects that destructors create.
static void close_top(mu_context *context)
{
    mu_pool *pool = context->pool;
    while (pool->n > 0) {
        mu_release(pool->items[--pool->n]);
        while (context->pool != pool)
            close_top(context);
    }
    context->pool = pool->below;
    context->n_lines = MU_MIN(context->n_lines, pool->n_lines);
    mu__free(pool->growth);
    mu__free(pool->items);
    mu__free(pool);
}

void mu__pools_close(mu_context *context)
{
    while (context->pool != NULL)
        close_top(context);
}

void mu_pool_close(mu_pool *pool)
{
    if (pool == NULL)
        return;
    mu_context *context = mu__context();
    const mu_pool *open = context->pool;
    while (open != NULL && open != pool)
        open = open->below;
    if (open == NULL) {
        mu__error(MU_FAILED_PRECONDITION, "mu_pool_close: this pool is not open here; close each pool once, on the "
                                          "thread and in the function that opened it");
        return;
    }
    mu_pool *const below = pool->below;
    while (context->pool != below)
        close_top(context);
}
