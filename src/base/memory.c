// The library's allocations: blocks, arenas, growing arrays (allocator.c has tensor data).
//
// A failure is recorded with its number of bytes and returned as NULL. Tests make the n-th allocation fail, so no
// other file of the library may call malloc.
#include "base/private.h"

#include <stdarg.h>
#include <stdlib.h>

enum {
    CLEARED_BY_HAND = 1024, // up to this size malloc's per-thread cache, which calloc skips, is worth more
    ARENA_ALIGNMENT = 16,
    ARENA_FIRST = 4096,
    ARENA_LARGEST = 1 << 20,
};

static atomic_bool watched; // set by the first mu__alloc_fail_at; until then nothing is counted
static atomic_long n_made;  // allocations since the last mu__alloc_fail_at
static atomic_long fail_at; // number of the allocation to fail; 0: none

long mu__alloc_fail_at(long n)
{
    atomic_store(&watched, true);
    atomic_store(&fail_at, n);
    return atomic_exchange(&n_made, 0);
}

bool mu__alloc_allowed(void)
{
    if (!atomic_load_explicit(&watched, memory_order_relaxed))
        return true;
    const long number = atomic_fetch_add_explicit(&n_made, 1, memory_order_relaxed) + 1;
    return number != atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *mu__alloc_checked(void *block, size_t bytes)
{
    if (block == NULL)
        mu__error(MU_RESOURCE_EXHAUSTED,
                  "out of memory: a block of %zu bytes was refused; free some, or use smaller batches or models",
                  bytes);
    return block;
}

void *mu__alloc(size_t bytes)
{
    return mu__alloc_checked(mu__alloc_allowed() ? malloc(bytes > 0 ? bytes : 1) : NULL, bytes);
}

void *mu__calloc(size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return mu__alloc_checked(NULL, SIZE_MAX);
    if (!mu__alloc_allowed())
        return mu__alloc_checked(NULL, total);
    if (total > CLEARED_BY_HAND)
        return mu__alloc_checked(calloc(1, total), total);
    void *block = malloc(total > 0 ? total : 1);
    return block != NULL ? memset(block, 0, total) : mu__alloc_checked(NULL, total);
}

void *mu__realloc(void *block, size_t bytes)
{
    return mu__alloc_checked(mu__alloc_allowed() ? realloc(block, bytes > 0 ? bytes : 1) : NULL, bytes);
}

char *mu__strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = mu__alloc(bytes);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

char *mu__sprintf(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    char *text = mu__alloc(length >= 0 ? (size_t)length + 1 : 1);
    if (text == NULL)
        return NULL;
    text[0] = '\0';
    if (length > 0) {
        va_start(values, format);
        vsnprintf(text, (size_t)length + 1, format, values);
        va_end(values);
    }
    return text;
}

void mu__free(void *block) { free(block); }

// ---- Arenas and arrays --------------------------------------------------------------------------

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

struct mu_arena_block {
    struct mu_arena_block *next;
    size_t used, capacity;
    max_align_t data[];
};

static struct mu_arena_block *arena_grow(mu_arena *arena, size_t bytes)
{
    const size_t usual = MU_MIN(MU_MAX(arena->bytes, (size_t)ARENA_FIRST), (size_t)ARENA_LARGEST);
    const size_t capacity = MU_MAX(bytes, usual);
    struct mu_arena_block *block = mu__calloc(1, sizeof *block + capacity);
    if (block == NULL)
        return NULL;
    block->capacity = capacity;
    block->next = arena->first;
    arena->first = block;
    arena->bytes += capacity;
    return block;
}

void *mu__arena_alloc(mu_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return mu__alloc_checked(NULL, bytes);
    const size_t rounded = round_up(bytes > 0 ? bytes : 1, ARENA_ALIGNMENT);
    struct mu_arena_block *block = arena->first;
    if (block == NULL || block->capacity - block->used < rounded) {
        block = arena_grow(arena, rounded);
        if (block == NULL)
            return NULL;
    }
    void *start = (char *)block->data + block->used;
    block->used += rounded;
    return start;
}

void *mu__arena_copy(mu_arena *arena, const void *from, size_t bytes)
{
    void *copy = mu__arena_alloc(arena, bytes);
    if (copy != NULL && bytes > 0)
        memcpy(copy, from, bytes);
    return copy;
}

char *mu__arena_strdup(mu_arena *arena, const char *text) { return mu__arena_copy(arena, text, strlen(text) + 1); }

void mu__arena_free(mu_arena *arena)
{
    struct mu_arena_block *block = arena->first;
    while (block != NULL) {
        struct mu_arena_block *next = block->next;
        mu__free(block);
        block = next;
    }
    *arena = (mu_arena){0};
}

mu_status mu__grow(void **items, size_t *capacity, size_t wanted, size_t item_bytes)
{
    if (wanted <= *capacity)
        return MU_OK;
    const size_t target = MU_MAX(wanted, *capacity <= SIZE_MAX / 4 ? MU_MAX(2 * *capacity, (size_t)8) : wanted);
    size_t bytes;
    if (__builtin_mul_overflow(target, item_bytes, &bytes))
        return mu__error(MU_RESOURCE_EXHAUSTED, "an array of %zu items of %zu bytes is larger than the address space",
                         target, item_bytes);
    void *grown = mu__realloc(*items, bytes);
    if (grown == NULL)
        return MU_RESOURCE_EXHAUSTED;
    *items = grown;
    *capacity = target;
    return MU_OK;
}
