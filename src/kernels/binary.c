// Combines two dense operands element by element and writes the result with streaming stores. One plain loop that
// streams 32 bytes at a time is the fastest way measured; wider stores, or results computed in a cached buffer first,
// are slower on some processors.
#include "kernel_slots.h"
#include "simd.h"

typedef float pair_f32 __attribute__((vector_size(MU_BINARY_BYTES)));
typedef double pair_f64 __attribute__((vector_size(MU_BINARY_BYTES)));
typedef uint32_t pair_u32 __attribute__((vector_size(MU_BINARY_BYTES)));
typedef uint64_t pair_u64 __attribute__((vector_size(MU_BINARY_BYTES)));

// A streaming store, which bypasses the caches; `to` is aligned to MU_BINARY_BYTES.
MU_INLINE void binary_stream(void *to, const void *from)
{
#if MU_LANES >= 8
    _mm256_stream_si256(to, _mm256_loadu_si256(from));
#elif defined(__SSE2__)
    _mm_stream_si128(to, _mm_loadu_si128(from));
    _mm_stream_si128((__m128i *)to + 1, _mm_loadu_si128((const __m128i *)from + 1));
#else
    memcpy(to, from, MU_BINARY_BYTES);
#endif
}

// x where `takes` has all bits set, otherwise y.
#define PICK(V, U, takes, x, y) (V)(((U)(takes) & (U)(x)) | (~(U)(takes) & (U)(y)))

#define LOOP(V, expression)                                                  \
    for (int64_t i = 0; i < bytes; i += MU_BINARY_BYTES) {                   \
        V x, y;                                                              \
        memcpy(&x, (const char *)a + i, sizeof x);                           \
        memcpy(&y, (const char *)b + i, sizeof y);                           \
        const V z = (expression);                                            \
        binary_stream((char *)out + i, &z);                                  \
    }                                                                        \
    break

// A NaN in either operand propagates, as in the other loops for maximum and minimum.
#define FLOATS(V, U)                                                         \
    switch (op) {                                                            \
    case MU_BINARY_ADD: LOOP(V, x + y);                                      \
    case MU_BINARY_SUBTRACT: LOOP(V, x - y);                                 \
    case MU_BINARY_MULTIPLY: LOOP(V, x * y);                                 \
    case MU_BINARY_DIVIDE: LOOP(V, x / y);                                   \
    case MU_BINARY_GREATER: LOOP(V, PICK(V, U, (x > y) | (x != x), x, y));   \
    case MU_BINARY_LESS: LOOP(V, PICK(V, U, (x < y) | (x != x), x, y));      \
    case MU_BINARY_SQUARED_DIFFERENCE: LOOP(V, (x - y) * (x - y));           \
    case MU_BINARY_DIVIDE_NO_NAN: LOOP(V, (V)((U)(y != 0) & (U)(x / y)));    \
    case MU_BINARY_KEEP_ABOVE_0: LOOP(V, (V)((U)(y > 0) & (U)x));            \
    default: return false;                                                   \
    }                                                                        \
    return true

#define INTEGERS(V)                                                          \
    switch (op) {                                                            \
    case MU_BINARY_ADD: LOOP(V, x + y);                                      \
    case MU_BINARY_SUBTRACT: LOOP(V, x - y);                                 \
    case MU_BINARY_MULTIPLY: LOOP(V, x * y);                                 \
    default: return false;                                                   \
    }                                                                        \
    return true

static bool pairs_f32(mu_binary op, const void *a, const void *b, void *out, int64_t bytes)
{
    FLOATS(pair_f32, pair_u32);
}

static bool pairs_f64(mu_binary op, const void *a, const void *b, void *out, int64_t bytes)
{
    FLOATS(pair_f64, pair_u64);
}

static bool pairs_32(mu_binary op, const void *a, const void *b, void *out, int64_t bytes)
{
    INTEGERS(pair_u32);
}

static bool pairs_64(mu_binary op, const void *a, const void *b, void *out, int64_t bytes)
{
    INTEGERS(pair_u64);
}

bool MU_KERNEL(binary)(mu_binary op, bool floats, int width, const void *a, const void *b, void *out, int64_t bytes)
{
    if (width == 4)
        return floats ? pairs_f32(op, a, b, out, bytes) : pairs_32(op, a, b, out, bytes);
    return width == 8 && (floats ? pairs_f64(op, a, b, out, bytes) : pairs_64(op, a, b, out, bytes));
}
