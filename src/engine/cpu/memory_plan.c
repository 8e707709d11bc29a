// Places blocks of known lifetimes in one arena.
//
// Takes the largest block first, and puts each at the lowest offset that no block with an overlapping lifetime uses.
#include "engine/cpu/plan.h"

#include <stdlib.h>

#define ALIGNMENT 64

static int by_size(const void *a, const void *b)
{
    const block *x = *(block *const *)a, *y = *(block *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x < y ? -1 : x > y);
}

static int by_offset(const void *a, const void *b)
{
    const block *x = *(block *const *)a, *y = *(block *const *)b;
    return *x->offset < *y->offset ? -1 : *x->offset > *y->offset;
}

static bool alive_together(const block *a, const block *b) { return a->first <= b->last && b->first <= a->last; }

// Walks the blocks that are alive together with `b`, sorted by offset, and takes the first gap that fits.
static size_t first_gap(block *const *placed, int n, const block *b, block **near)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        if (alive_together(placed[i], b))
            near[count++] = placed[i];
    qsort(near, (size_t)count, sizeof *near, by_offset);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        if (*near[i]->offset >= at + b->bytes)
            break;
        at = MU_MAX(at, *near[i]->offset + near[i]->bytes);
    }
    return at;
}

mu_status mu__memory_plan(block *blocks, int n, size_t *total)
{
    block **sorted = mu__calloc((size_t)n + 1, 2 * sizeof *sorted);
    if (!sorted)
        return MU_RESOURCE_EXHAUSTED;
    block **near = sorted + n;
    for (int i = 0; i < n; i++) {
        blocks[i].bytes = (blocks[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        sorted[i] = &blocks[i];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    *total = 0;
    for (int i = 0; i < n; i++) {
        *sorted[i]->offset = first_gap(sorted, i, sorted[i], near);
        *total = MU_MAX(*total, *sorted[i]->offset + sorted[i]->bytes);
    }
    mu__free(sorted);
    return MU_OK;
}
