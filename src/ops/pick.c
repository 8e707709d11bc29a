// Reading at indices: what gathers and their kin are made of; see index.h.
//
// Main idea: indices are checked first, in one pass that looks for any that is outside, so that the loops which read
// need no test; slices of the size of a number are read by loops for that size. Knows nothing of axes.
#include "ops/index.h"

#include "ops/loops.h"

int64_t mu__index_at(const mu_view *indices, int64_t i)
{
    return indices->dtype == MU_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
}

mu_status mu__index_error(const mu_kernel *k, int64_t i, int64_t index, int64_t n)
{
    return mu__error(MU_INVALID_ARGUMENT, "%s: index %lld (element %lld of the indices) is outside 0 to %lld",
                     k->op->name, (long long)index, (long long)i, (long long)n - 1);
}

#define LARGEST(T, name)                                      \
    MU_CLONES                                                 \
    static T name(const T *indices, int64_t n)                \
    {                                                         \
        T largest = 0;                                        \
        for (int64_t i = 0; i < n; i++)                       \
            largest = indices[i] > largest ? indices[i] : largest; \
        return largest;                                       \
    }
LARGEST(uint64_t, largest_64)
LARGEST(uint32_t, largest_32)

mu_status mu__check_indices(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit)
{
    const char *data = (const char *)indices->data + (size_t)first * mu_dtype_bytes(indices->dtype);
    // Seen as unsigned, what is negative is large.
    if (n == 0 || (indices->dtype == MU_I64 ? largest_64((const void *)data, n) < (uint64_t)limit
                                            : largest_32((const void *)data, n) < MU_MIN(limit, INT64_C(1) << 31)))
        return MU_OK;
    for (int64_t i = first; i < first + n; i++)
        if (mu__index_at(indices, i) < 0 || mu__index_at(indices, i) >= limit)
            return mu__index_error(k, i, mu__index_at(indices, i), limit);
    return MU_OK;
}

// Slices of one number each. Plain loads: processors keep more of them in flight than their instructions for gathers.
#define PICK(T, index_type, name)                                                          \
    static void name(const void *from, const void *chosen, void *to, int64_t n)            \
    {                                                                                      \
        const T *x = from;                                                                 \
        const index_type *indices = chosen;                                                \
        T *restrict out = to;                                                              \
        for (int64_t i = 0; i < n; i++)                                                    \
            out[i] = x[indices[i]];                                                        \
    }
PICK(uint8_t, int64_t, pick_8_i64)
PICK(uint16_t, int64_t, pick_16_i64)
PICK(uint32_t, int64_t, pick_32_i64)
PICK(uint64_t, int64_t, pick_64_i64)
PICK(uint8_t, int32_t, pick_8_i32)
PICK(uint16_t, int32_t, pick_16_i32)
PICK(uint32_t, int32_t, pick_32_i32)
PICK(uint64_t, int32_t, pick_64_i32)

typedef void picker(const void *from, const void *chosen, void *to, int64_t n);

static picker *picker_for(size_t bytes, bool wide)
{
    switch (bytes) {
    case 1: return wide ? pick_8_i64 : pick_8_i32;
    case 2: return wide ? pick_16_i64 : pick_16_i32;
    case 4: return wide ? pick_32_i64 : pick_32_i32;
    case 8: return wide ? pick_64_i64 : pick_64_i32;
    default: return NULL;
    }
}

void mu__pick(const mu_view *indices, int64_t first, const void *x, size_t bytes, void *out, int64_t n, bool stream)
{
    picker *pick = picker_for(bytes, indices->dtype == MU_I64);
    if (pick) {
        pick(x, (const char *)indices->data + (size_t)first * mu_dtype_bytes(indices->dtype), out, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        mu__copy_blocks((char *)out + (size_t)i * bytes, 0,
                        (const char *)x + (size_t)mu__index_at(indices, first + i) * bytes, 0, bytes, 1, stream);
}
