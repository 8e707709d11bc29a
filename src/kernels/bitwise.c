// Bitwise operations on two arrays of bytes (truth values).
#include "kernel_slots.h"
#include "simd.h"

MU_INLINE mu_vi combined(mu_bitwise op, mu_vi a, mu_vi b)
{
    return op == MU_BITWISE_AND ? a & b : op == MU_BITWISE_OR ? a | b : a ^ b;
}

MU_INLINE mu_vi load_bytes(const uint8_t *p)
{
    mu_vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Bytes [begin, end) of y, fewer than a vector.
static void combine_few(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, int64_t begin,
                        int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const uint8_t other = b[alone ? 0 : i];
        y[i] = (uint8_t)(op == MU_BITWISE_AND ? a[i] & other : op == MU_BITWISE_OR ? a[i] | other : a[i] ^ other);
    }
}

MU_INLINE void combine(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, int64_t n)
{
    const int64_t whole = n / VECTOR_BYTES * VECTOR_BYTES;
    const mu_vi one = v_splat_int(n > 0 ? (int32_t)(b[0] * 0x01010101u) : 0);
    for (int64_t i = 0; i < whole; i += VECTOR_BYTES) {
        const mu_vi v = combined(op, load_bytes(a + i), alone ? one : load_bytes(b + i));
        memcpy(y + i, &v, sizeof v);
    }
    combine_few(op, a, b, alone, y, whole, n);
}

MU_INLINE void combine_any(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, int64_t n)
{
    if (alone)
        combine(op, a, b, true, y, n);
    else
        combine(op, a, b, false, y, n);
}

void MU_KERNEL(bitwise)(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, int64_t n)
{
    switch (op) {
    case MU_BITWISE_AND: combine_any(MU_BITWISE_AND, a, b, alone, y, n); break;
    case MU_BITWISE_OR: combine_any(MU_BITWISE_OR, a, b, alone, y, n); break;
    default: combine_any(MU_BITWISE_XOR, a, b, alone, y, n); break;
    }
}
