// Asking for rows before they are read, for folds of columns. Main idea: eight rows are folded at once, since what is
// folded into is then read and written an eighth as often as a row, which is what holds up reading from memory; but no
// processor foresees eight places well, so the next eight rows are asked for meanwhile, in the order of memory. Does
// nothing where all rows may be in a cache. Knows no elements.
#ifndef MU_SRC_KERNELS_AHEAD_H
#define MU_SRC_KERNELS_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

// So many bytes are expected in no cache. Rows at once, and how many bytes of each are read between two questions.
enum { MU_FAR_FROM = 16 << 20, MU_AHEAD_ROWS = 8, MU_AHEAD_LINE = 64, MU_AHEAD_STEP = 128 };

typedef struct mu_ahead {
    const char *row, *at;
    int64_t left, width, stride;  // bytes
    bool far;                     // whether there are so many rows
} mu_ahead;

// For columns `width` bytes wide of n rows, which are `stride` bytes apart.
static inline mu_ahead mu__ahead(int64_t n, int64_t stride, int64_t width)
{
    const int64_t wide = width == stride ? MU_AHEAD_ROWS * width : width;
    return (mu_ahead){.width = wide, .stride = stride, .far = n * stride >= MU_FAR_FROM};
}

// From now on what starts at `rows` is asked for.
static inline void mu__ahead_from(mu_ahead *ahead, const void *rows)
{
    ahead->row = ahead->at = rows;
    ahead->left = ahead->width;
}

// Asks for as much as a step of each of the rows at hand.
static inline void mu__ahead_step(mu_ahead *ahead)
{
    enum { BYTES = MU_AHEAD_ROWS * MU_AHEAD_STEP };
    for (int byte = 0; byte < BYTES; byte += MU_AHEAD_LINE)
        __builtin_prefetch(ahead->at + byte, 0, 2);
    ahead->at += BYTES;
    ahead->left -= BYTES;
    if (ahead->left <= 0) {
        ahead->row += ahead->stride;
        ahead->at = ahead->row;
        ahead->left = ahead->width;
    }
}

#endif
