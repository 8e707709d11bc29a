// Bitwise operations on two arrays of bytes (truth values). The loop is bound by memory, so large results use
// streaming stores and the operands are prefetched.
#include "kernel_slots.h"
#include "simd.h"

enum { PREFETCH = 1024 }; // bytes

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

// Bytes [begin, end) of y, whole vectors; if it streams, y + begin is aligned to a vector.
MU_INLINE void combine_vectors(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, bool stream,
                               int64_t begin, int64_t end)
{
    const mu_vi one = v_splat_int((int32_t)(b[0] * 0x01010101u));
    for (int64_t i = begin; i < end; i += VECTOR_BYTES) {
        if (stream) {
            v_prefetch_l2(a + i, PREFETCH);
            if (!alone)
                v_prefetch_l2(b + i, PREFETCH);
        }
        const mu_vi v = combined(op, load_bytes(a + i), alone ? one : load_bytes(b + i));
        if (stream)
            v_stream((float *)(void *)(y + i), (mu_vf)v);
        else
            memcpy(y + i, &v, sizeof v);
    }
}

MU_INLINE void combine(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, bool stream,
                       int64_t n)
{
    const int64_t head = stream ? least(n, (int64_t)(-(uintptr_t)y % VECTOR_BYTES)) : 0;
    const int64_t tail = head + (n - head) / VECTOR_BYTES * VECTOR_BYTES;
    combine_few(op, a, b, alone, y, 0, head);
    if (alone && stream)
        combine_vectors(op, a, b, true, y, true, head, tail);
    else if (alone)
        combine_vectors(op, a, b, true, y, false, head, tail);
    else if (stream)
        combine_vectors(op, a, b, false, y, true, head, tail);
    else
        combine_vectors(op, a, b, false, y, false, head, tail);
    combine_few(op, a, b, alone, y, tail, n);
}

void MU_KERNEL(bitwise)(mu_bitwise op, const uint8_t *a, const uint8_t *b, bool alone, uint8_t *y, bool stream,
                        int64_t n)
{
    switch (op) {
    case MU_BITWISE_AND: combine(MU_BITWISE_AND, a, b, alone, y, stream, n); break;
    case MU_BITWISE_OR: combine(MU_BITWISE_OR, a, b, alone, y, stream, n); break;
    default: combine(MU_BITWISE_XOR, a, b, alone, y, stream, n); break;
    }
}
