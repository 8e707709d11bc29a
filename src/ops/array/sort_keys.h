// Elements as 64-bit words with the same order, for sort and top_k.
//
// A word holds an element's key in the high bits and its index in the row in the low bits. So equal elements keep their
// order, and a sorted word contains the original index of its element. NaNs come last in both directions; -0 equals 0.
// Independent of op definitions.
#ifndef MU_SRC_OPS_SORT_KEYS_H
#define MU_SRC_OPS_SORT_KEYS_H

#include "ops/core/op.h"

// Rows of n elements (at most INT32_MAX) being sorted. `words` has room for `batch` rows.
typedef struct mu_sort_keys {
    mu_dtype dtype;
    bool descending;
    int64_t n, batch;
    int64_t *words, *scratch;
    size_t bytes; // of words and scratch, which are one block
    int position_bits;
    bool odd; // the elements include -0 or NaN, which cannot be restored from keys
} mu_sort_keys;

// mu__sort_keys_open allocates memory for rows of n elements; mu__sort_keys_close frees it.
mu_status mu__sort_keys_open(mu_sort_keys *w, mu_dtype dtype, int64_t n, bool descending);
void mu__sort_keys_close(mu_sort_keys *w);

// mu__sort_keys_sort sorts `rows` rows at x, at most w->batch. mu__sort_keys_take then writes the first `count`
// elements of each row and their indices; x must be the same.
void mu__sort_keys_sort(mu_sort_keys *w, const void *x, int64_t rows);
void mu__sort_keys_take(const mu_sort_keys *w, const void *x, int64_t rows, int64_t count, void *values,
                        int32_t *positions);

// mu__sort_keys_first finds the first `count` elements of one row at x without sorting the rest, and leaves them in
// words[0..count). mu__sort_keys_can_search returns whether that is supported: count must be much less than n, and
// small for 8-byte types.
bool mu__sort_keys_can_search(mu_dtype dtype, int64_t n, int64_t count);
void mu__sort_keys_first(mu_sort_keys *w, const void *x, int64_t count);

#endif
