// Elements as 64-bit words whose order is theirs, which is what sort and top_k move about.
//
// A word holds an element's key above its place in the row, so that equal elements keep their order and a sorted word
// tells where its element was. NaNs come last in both directions; -0 equals 0. Knows nothing of ops.
#ifndef MU_SRC_OPS_SORT_KEYS_H
#define MU_SRC_OPS_SORT_KEYS_H

#include "ops/op.h"

// Rows of n elements (at most INT32_MAX) on their way through a sort. Words hold as many rows as `batch`.
typedef struct mu_sort_keys {
    mu_dtype dtype;
    bool descending;
    int64_t n, batch;
    int64_t *words, *scratch;
    size_t bytes;            // of words and scratch, which are one block
    int place_bits;
    bool odd;                // -0 or a NaN was among the elements: keys do not tell them apart
} mu_sort_keys;

// mu__sort_keys_open makes memory for rows of n elements; mu__sort_keys_close frees it.
mu_status mu__sort_keys_open(mu_sort_keys *w, mu_dtype dtype, int64_t n, bool descending);
void mu__sort_keys_close(mu_sort_keys *w);

// mu__sort_keys_sort sorts `rows` rows at x, at most w->batch; mu__sort_keys_take then writes the first `count`
// elements of each row and their places. x: the same.
void mu__sort_keys_sort(mu_sort_keys *w, const void *x, int64_t rows);
void mu__sort_keys_take(const mu_sort_keys *w, const void *x, int64_t rows, int64_t count, void *values,
                        int32_t *places);

// mu__sort_keys_first finds the first `count` elements of one row at x in order without sorting the others:
// words[0..count) are as mu__sort_keys_sort leaves them. mu__sort_keys_can_search says whether it can: it takes a count
// that is much less than n, and of types of eight bytes a few elements only.
bool mu__sort_keys_can_search(mu_dtype dtype, int64_t n, int64_t count);
void mu__sort_keys_first(mu_sort_keys *w, const void *x, int64_t count);

#endif
