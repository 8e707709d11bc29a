// Prefetches rows for folds over columns. Such a fold takes eight rows at once, so that it reads and writes its
// accumulators once per eight rows; processors do not prefetch eight streams well, so the fold prefetches the next
// eight rows meanwhile, in the order of memory. `far` is false if all rows may be in a cache; then there is no need
// to prefetch.
#ifndef MU_SRC_KERNELS_PREFETCH_H
#define MU_SRC_KERNELS_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

// Data of at least MU_PREFETCH_FROM bytes are expected in main memory. MU_PREFETCH_ROWS is the number of rows folded
// at once; a fold prefetches after every MU_PREFETCH_STEP bytes of each row.
enum { MU_PREFETCH_FROM = 16 << 20, MU_PREFETCH_ROWS = 8, MU_PREFETCH_LINE = 64, MU_PREFETCH_STEP = 128 };

typedef struct mu_prefetch {
    const char *row, *at;
    int64_t left, width, stride;  // bytes
    bool far;                     // the rows are too large for the caches
} mu_prefetch;

// Prepares prefetching for columns `width` bytes wide of n rows, which are `stride` bytes apart.
static inline mu_prefetch mu__prefetch(int64_t n, int64_t stride, int64_t width)
{
    const int64_t wide = width == stride ? MU_PREFETCH_ROWS * width : width;
    return (mu_prefetch){.width = wide, .stride = stride, .far = n * stride >= MU_PREFETCH_FROM};
}

// Starts prefetching at `rows`.
static inline void mu__prefetch_from(mu_prefetch *prefetch, const void *rows)
{
    prefetch->row = prefetch->at = rows;
    prefetch->left = prefetch->width;
}

// Prefetches MU_PREFETCH_STEP bytes for each of the rows in work.
static inline void mu__prefetch_step(mu_prefetch *prefetch)
{
    enum { BYTES = MU_PREFETCH_ROWS * MU_PREFETCH_STEP };
    for (int byte = 0; byte < BYTES; byte += MU_PREFETCH_LINE)
        __builtin_prefetch(prefetch->at + byte, 0, 2);
    prefetch->at += BYTES;
    prefetch->left -= BYTES;
    if (prefetch->left <= 0) {
        prefetch->row += prefetch->stride;
        prefetch->at = prefetch->row;
        prefetch->left = prefetch->width;
    }
}

#endif
