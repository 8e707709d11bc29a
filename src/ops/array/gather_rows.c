// Reading at indices, for gather and related ops; see index.h.
//
// One pass checks all indices first, so the loops that read need no test. Slices of the size of a number have loops for
// that size. Independent of axes.
#include "ops/array/index.h"

#include "ops/core/loops.h"

int64_t mu__index_at(const mu_view *indices, int64_t i)
{
    return indices->dtype == MU_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
}

void mu__indices_of(const mu_view *indices, int64_t first, int64_t n, int64_t *values)
{
    if (indices->dtype == MU_I64)
        memcpy(values, (const int64_t *)indices->data + first, (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n && indices->dtype == MU_I32; i++)
        values[i] = ((const int32_t *)indices->data)[first + i];
}

const int64_t *mu__indices_in_place(const mu_view *indices, int64_t first, int64_t n, int64_t *copied)
{
    if (indices->dtype == MU_I64)
        return (const int64_t *)indices->data + first;
    mu__indices_of(indices, first, n, copied);
    return copied;
}

mu_status mu__index_error(const mu_kernel *k, int64_t i, int64_t index, int64_t n)
{
    return mu__error(MU_INVALID_ARGUMENT, "%s: index %lld (element %lld of the indices) is outside 0 to %lld",
                     k->op->name, (long long)index, (long long)i, (long long)n - 1);
}

mu_status mu__row_error(const char *op, int64_t i, int64_t index, int64_t n)
{
    return mu__error(MU_INVALID_ARGUMENT, "%s: index %lld (element %lld), but the variable has %lld rows", op,
                     (long long)index, (long long)i, (long long)n);
}

#define LARGEST(T, name)                                                    \
    MU_PER_ISA_RESULT(T, name, (const T *indices, int64_t n), (indices, n)) \
    {                                                                       \
        T largest = 0;                                                      \
        for (int64_t i = 0; i < n; i++)                                     \
            largest = indices[i] > largest ? indices[i] : largest;          \
        return largest;                                                     \
    }
LARGEST(uint64_t, largest_64)
LARGEST(uint32_t, largest_32)

bool mu__indices_inside(const mu_view *indices, int64_t first, int64_t n, int64_t limit)
{
    const char *data = (const char *)indices->data + (size_t)first * mu_dtype_bytes(indices->dtype);
    // As unsigned, a negative index is large, so one comparison suffices.
    return n == 0 || (indices->dtype == MU_I64 ? largest_64((const void *)data, n) < (uint64_t)limit
                                               : largest_32((const void *)data, n) < MU_MIN(limit, INT64_C(1) << 31));
}

mu_status mu__check_indices(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit)
{
    return mu__indices_inside(indices, first, n, limit) ? MU_OK : mu__check_each_index(k, indices, first, n, limit);
}

mu_status mu__check_each_index(const mu_kernel *k, const mu_view *indices, int64_t first, int64_t n, int64_t limit)
{
    for (int64_t i = first; i < first + n; i++)
        if (mu__index_at(indices, i) < 0 || mu__index_at(indices, i) >= limit)
            return mu__index_error(k, i, mu__index_at(indices, i), limit);
    return MU_OK;
}

// Slices of one number each. Plain loads: processors keep more of those in flight than of gather instructions.
#define GATHER(T, index_type, name)                                             \
    static void name(const void *from, const void *chosen, void *to, int64_t n) \
    {                                                                           \
        const T *x = from;                                                      \
        const index_type *indices = chosen;                                     \
        T *restrict out = to;                                                   \
        for (int64_t i = 0; i < n; i++)                                         \
            out[i] = x[indices[i]];                                             \
    }
GATHER(uint8_t, int64_t, gather_8_i64)
GATHER(uint16_t, int64_t, gather_16_i64)
GATHER(uint32_t, int64_t, gather_32_i64)
GATHER(uint64_t, int64_t, gather_64_i64)
GATHER(uint8_t, int32_t, gather_8_i32)
GATHER(uint16_t, int32_t, gather_16_i32)
GATHER(uint32_t, int32_t, gather_32_i32)
GATHER(uint64_t, int32_t, gather_64_i32)

typedef void gather_loop(const void *from, const void *chosen, void *to, int64_t n);

static gather_loop *gather_loop_for(size_t bytes, bool wide)
{
    switch (bytes) {
    case 1: return wide ? gather_8_i64 : gather_8_i32;
    case 2: return wide ? gather_16_i64 : gather_16_i32;
    case 4: return wide ? gather_32_i64 : gather_32_i32;
    case 8: return wide ? gather_64_i64 : gather_64_i32;
    default: return NULL;
    }
}

// Slices of other sizes, by their addresses.
static void gather_slices(const mu_view *indices, int64_t first, const char *from, size_t bytes, char *to, int64_t m)
{
    const char *slices[256];
    for (int64_t done = 0, n; done < m; done += n, to += (size_t)n * bytes) {
        n = MU_MIN(m - done, (int64_t)MU_COUNT(slices));
        for (int64_t j = 0; j < n; j++)
            slices[j] = from + (size_t)mu__index_at(indices, first + done + j) * bytes;
        mu__copy_scattered(to, slices, bytes, n);
    }
}

void mu__gather_rows(const mu_view *indices, int64_t first, const void *x, int64_t slices, size_t bytes, void *out,
                     int64_t m, int64_t rows)
{
    const size_t row = (size_t)slices * bytes;
    const char *chosen = (const char *)indices->data + (size_t)first * mu_dtype_bytes(indices->dtype), *from = x;
    gather_loop *gather = gather_loop_for(bytes, indices->dtype == MU_I64);
    char *to = out;
    for (int64_t i = 0; i < rows; i++, from += row, to += (size_t)m * bytes) {
        if (gather)
            gather(from, chosen, to, m);
        else
            gather_slices(indices, first, from, bytes, to, m);
    }
}
