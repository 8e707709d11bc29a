// Asking for rows before they are read, for folds of columns. Main idea: eight rows are folded at once, since what is
// folded into is then read and written an eighth as often as a row, which is what holds up reading from memory; but no
// processor foresees eight places well, so the next eight rows are asked for meanwhile, in the order of memory. Does
// nothing where all rows may be in a cache. Knows no elements.
#ifndef MU_SRC_KERNELS_PREFETCH_H
#define MU_SRC_KERNELS_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

// So many bytes are expected in no cache. Rows at once, and how many bytes of each are read between two questions.
enum { MU_PREFETCH_FROM = 16 << 20, MU_PREFETCH_ROWS = 8, MU_PREFETCH_LINE = 64, MU_PREFETCH_STEP = 128 };

typedef struct mu_prefetch {
    const char *row, *at;
    int64_t left, width, stride;  // bytes
    bool far;                     // whether there are so many rows
} mu_prefetch;

// For columns `width` bytes wide of n rows, which are `stride` bytes apart.
static inline mu_prefetch mu__prefetch(int64_t n, int64_t stride, int64_t width)
{
    const int64_t wide = width == stride ? MU_PREFETCH_ROWS * width : width;
    return (mu_prefetch){.width = wide, .stride = stride, .far = n * stride >= MU_PREFETCH_FROM};
}

// From now on what starts at `rows` is asked for.
static inline void mu__prefetch_from(mu_prefetch *prefetch, const void *rows)
{
    prefetch->row = prefetch->at = rows;
    prefetch->left = prefetch->width;
}

// Asks for as much as a step of each of the rows at hand.
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
