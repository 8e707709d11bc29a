// any and all over rows of bools; see loops.h.
//
// Folds bytes in vectors, block by block, and stops as soon as the answer is known.
#include "ops/core/loops.h"

MU_PER_ISA_RESULT(bool, bool_reduce_row, (bool all, const uint8_t *x, int64_t n), (all, x, n))
{
    enum { PIECE = 4096 };
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t end = MU_MIN(n, at + PIECE);
        uint8_t some = 0, least = 1;
        if (all)
            for (int64_t i = at; i < end; i++)
                least = x[i] < least ? x[i] : least;
        else
            for (int64_t i = at; i < end; i++)
                some |= x[i];
        if (some || !least)
            return !all;
    }
    return all;
}

bool mu__bool_reduce_row(bool all, const uint8_t *x, int64_t n) { return bool_reduce_row(all, x, n); }
