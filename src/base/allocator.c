// Allocates blocks for tensor data, which programs request and free at a high rate in few sizes.
//
// Sizes are rounded up to eight steps per doubling. Freed blocks below 4 MiB stay with their thread, a few of each
// size, without locks. Larger blocks are mapped with huge pages and cached in one list of the process, because
// faulting in fresh pages costs more than most ops that fill them. Both caches are bounded.
#include "base/private.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LINE = 64,             // a cache line, and the widest vector
    MAPPED_FROM = 4 << 20, // smaller blocks are not worth a system call
    HUGE_PAGE = 2 << 20,
    STEPS = 8,          // sizes per doubling
    N_CLASSES = 8 * 15, // classes below MAPPED_FROM
    KEPT_PER_CLASS = 8,
    KEPT_BY_THREAD = 16 << 20,
    MOST_LARGE = 32,
};
static const size_t most_large_bytes = (size_t)1 << 30;

// A sanitizer cannot detect the use of a freed block that is cached.
#if defined(__SANITIZE_ADDRESS__)
#define KEEPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEPS 0
#endif
#endif
#ifndef KEEPS
#define KEEPS 1
#endif

// The number of the smallest class that holds `bytes` bytes; `capacity` receives the class's size.
static int class_of(size_t bytes, size_t *capacity)
{
    const size_t lines = (bytes + LINE - 1) / LINE;
    if (lines < STEPS) {
        *capacity = MU_MAX(lines, (size_t)1) * LINE;
        return (int)(*capacity / LINE) - 1;
    }
    int doubling = 63 - __builtin_clzll(lines) - 3;
    const size_t step = (size_t)1 << doubling;
    size_t steps = (lines + step - 1) / step;
    *capacity = steps * step * LINE;
    if (steps == 2 * STEPS) {
        doubling++;
        steps = STEPS;
    }
    return STEPS * (doubling + 1) + (int)(steps - STEPS);
}

// ---- Blocks below 4 MiB -------------------------------------------------------------------------

typedef struct kept_block {
    struct kept_block *next;
} kept_block;

static _Thread_local struct kept {
    kept_block *first[N_CLASSES];
    uint8_t n[N_CLASSES];
    size_t bytes;
    bool ends_known; // a thread-exit hook that drains this cache is registered
} kept;

static void *small_block(size_t bytes)
{
    size_t capacity;
    const int at = class_of(bytes, &capacity);
    kept_block *block = kept.first[at];
    if (block == NULL)
        return aligned_alloc(LINE, capacity);
    kept.first[at] = block->next;
    kept.n[at]--;
    kept.bytes -= capacity;
    return block;
}

static void keep_small(void *memory, size_t bytes)
{
    size_t capacity;
    const int at = class_of(bytes, &capacity);
    if (!KEEPS || kept.n[at] >= KEPT_PER_CLASS || kept.bytes + capacity > KEPT_BY_THREAD) {
        free(memory);
        return;
    }
    if (!kept.ends_known) {
        mu__context();
        kept.ends_known = true;
    }
    kept_block *block = memory;
    block->next = kept.first[at];
    kept.first[at] = block;
    kept.n[at]++;
    kept.bytes += capacity;
}

void mu__blocks_drain(void)
{
    for (int at = 0; at < N_CLASSES; at++) {
        for (kept_block *block = kept.first[at], *next; block != NULL; block = next) {
            next = block->next;
            free(block);
        }
        kept.first[at] = NULL;
        kept.n[at] = 0;
    }
    kept.bytes = 0;
    kept.ends_known = false;
}

// ---- Mapped blocks ------------------------------------------------------------------------------

typedef struct large_block {
    void *start;
    size_t capacity;
} large_block;

static pthread_mutex_t large_lock = PTHREAD_MUTEX_INITIALIZER;
static large_block large[MOST_LARGE]; // oldest first
static int n_large;
static size_t large_bytes;

static size_t mapped_bytes(size_t bytes)
{
    size_t capacity;
    class_of(bytes, &capacity);
    return capacity;
}

static large_block take_large(int i)
{
    const large_block taken = large[i];
    memmove(&large[i], &large[i + 1], (size_t)(n_large - i - 1) * sizeof large[0]);
    n_large--;
    large_bytes -= taken.capacity;
    return taken;
}

// Maps one huge page more than needed and unmaps both ends, because the kernel uses huge pages only where the block
// starts at a huge-page boundary.
static void *map_aligned(size_t length)
{
    const size_t mapped = length + HUGE_PAGE;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    const size_t head = -(uintptr_t)start % HUGE_PAGE;
    if (head > 0)
        munmap(start, head);
    if (HUGE_PAGE - head > 0)
        munmap(start + head + length, HUGE_PAGE - head);
    madvise(start + head, length, MADV_HUGEPAGE);
    return start + head;
}

static void unmap_all_large(void)
{
    pthread_mutex_lock(&large_lock);
    while (n_large > 0) {
        const large_block block = take_large(0);
        munmap(block.start, block.capacity);
    }
    pthread_mutex_unlock(&large_lock);
}

static void *large_block_of(size_t bytes)
{
    const size_t capacity = mapped_bytes(bytes);
    void *start = NULL;
    pthread_mutex_lock(&large_lock);
    for (int i = n_large - 1; i >= 0 && start == NULL; i--)
        if (large[i].capacity == capacity)
            start = take_large(i).start;
    pthread_mutex_unlock(&large_lock);
    if (start == NULL)
        start = map_aligned(capacity);
    if (start == NULL) {
        unmap_all_large();
        start = map_aligned(capacity);
    }
    return start;
}

// Caches at most a sixteenth of the machine's memory.
static size_t large_limit(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const size_t part = pages > 0 && page > 0 ? (size_t)pages / 16 * (size_t)page : 0;
    return MU_MIN(part, most_large_bytes);
}

static void keep_large(void *start, size_t bytes)
{
    static _Atomic size_t limit;
    const size_t capacity = mapped_bytes(bytes);
    if (atomic_load_explicit(&limit, memory_order_relaxed) == 0)
        atomic_store_explicit(&limit, large_limit() + 1, memory_order_relaxed);
    const size_t most = atomic_load_explicit(&limit, memory_order_relaxed);
    if (!KEEPS || capacity > most) {
        munmap(start, capacity);
        return;
    }
    large_block dropped[MOST_LARGE];
    int n_dropped = 0;
    pthread_mutex_lock(&large_lock);
    while (n_large == MOST_LARGE || large_bytes + capacity > most)
        dropped[n_dropped++] = take_large(0);
    large[n_large++] = (large_block){start, capacity};
    large_bytes += capacity;
    pthread_mutex_unlock(&large_lock);
    for (int i = 0; i < n_dropped; i++)
        munmap(dropped[i].start, dropped[i].capacity);
}

// ---- Both ---------------------------------------------------------------------------------------

void *mu__alloc_data(size_t bytes)
{
    if (bytes > SIZE_MAX / 2 || !mu__alloc_allowed())
        return mu__alloc_checked(NULL, bytes);
    return mu__alloc_checked(bytes >= MAPPED_FROM ? large_block_of(bytes) : small_block(bytes), bytes);
}

void mu__free_data(void *block, size_t bytes)
{
    if (block == NULL)
        return;
    if (bytes >= MAPPED_FROM)
        keep_large(block, bytes);
    else
        keep_small(block, bytes);
}
