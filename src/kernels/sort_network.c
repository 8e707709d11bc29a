// Sorts rows of 64-bit words. A sorting network works on a matrix of vectors, lane by lane, with vector comparisons
// and no branches (16 vectors in registers, then bitonic merges). A short row occupies one lane; a longer row fills
// all lanes, whose sorted sequences are merged at the end. Rows too long for that, and processors without wide
// vectors, use a byte-wise radix sort.
#include "kernel_slots.h"
#include "simd.h"

enum { FEW = 48, VALUES = 256 }; // most words for insertion sort; values of a byte

// ---- Without vectors ----------------------------------------------------------------------------

static void insert_words(int64_t *words, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const int64_t moving = words[i];
        int64_t at = i;
        for (; at > 0 && words[at - 1] > moving; at--)
            words[at] = words[at - 1];
        words[at] = moving;
    }
}

// Distributes the words by one byte, stably; returns false and moves nothing if all words share the byte.
static bool distribute(const uint64_t *from, uint64_t *to, int64_t n, int shift)
{
    const uint64_t flip = shift == 56 ? VALUES / 2 : 0; // negative words come first
    int64_t starts[VALUES] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++)
        starts[from[i] >> shift & (VALUES - 1)]++;
    if (starts[from[0] >> shift & (VALUES - 1)] == n)
        return false;
    for (uint64_t value = 0; value < VALUES; value++) {
        const int64_t count = starts[value ^ flip];
        starts[value ^ flip] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++)
        to[starts[from[i] >> shift & (VALUES - 1)]++] = from[i];
    return true;
}

static void bucket_row(int64_t *words, int64_t *scratch, int64_t n, int settled)
{
    uint64_t *from = (uint64_t *)words, *to = (uint64_t *)scratch;
    if (n <= FEW) {
        insert_words(words, n);
        return;
    }
    for (int shift = settled / 8 * 8; shift < 64; shift += 8)
        if (distribute(from, to, n, shift)) {
            uint64_t *const swapped = from;
            from = to;
            to = swapped;
        }
    if (from != (uint64_t *)words)
        memcpy(words, from, (size_t)n * sizeof *words);
}

#if MU_LANES >= 8

// ---- Sorting lanes ------------------------------------------------------------------------------

enum { LANES = MU_LANES / 2, BLOCK = 16 }; // words of a vector; vectors sorted in registers
typedef int64_t vec __attribute__((vector_size(LANES * 8)));

MU_INLINE void order(vec *a, vec *b)
{
#if MU_LANES == 16
    const __m512i x = (__m512i)*a, y = (__m512i)*b;
    *a = (vec)_mm512_min_epi64(x, y);
    *b = (vec)_mm512_max_epi64(x, y);
#else
    const __m256i x = (__m256i)*a, y = (__m256i)*b, greater = _mm256_cmpgt_epi64(x, y);
    *a = (vec)_mm256_blendv_epi8(x, y, greater);
    *b = (vec)_mm256_blendv_epi8(y, x, greater);
#endif
}

// Sorts 16 elements with 60 comparisons, the fewest known. By the 0-1 principle, sorting all inputs of zeros and ones
// proves it. A row holds comparisons that do not depend on each other.
// clang-format off
#define NETWORK(X)                                                                                              \
    X(0, 13) X(1, 12) X(2, 15) X(3, 14) X(4, 8) X(5, 6) X(7, 11) X(9, 10)                                       \
    X(0, 5) X(1, 7) X(2, 9) X(3, 4) X(6, 13) X(8, 14) X(10, 15) X(11, 12)                                       \
    X(0, 1) X(2, 3) X(4, 5) X(6, 8) X(7, 9) X(10, 11) X(12, 13) X(14, 15)                                       \
    X(0, 2) X(1, 3) X(4, 10) X(5, 11) X(6, 7) X(8, 9) X(12, 14) X(13, 15)                                       \
    X(1, 2) X(3, 12) X(4, 6) X(5, 7) X(8, 10) X(9, 11) X(13, 14)                                                \
    X(1, 4) X(2, 6) X(5, 8) X(7, 10) X(9, 13) X(11, 14) X(2, 4) X(3, 6) X(9, 12) X(11, 13)                      \
    X(3, 5) X(6, 8) X(7, 9) X(10, 12) X(3, 4) X(5, 6) X(7, 8) X(9, 10) X(11, 12) X(6, 7) X(8, 9)
// clang-format on
#define ORDER(i, j) order(&r[i], &r[j]);

static void sort_block(vec *a)
{
    vec r[BLOCK];
    MU_UNROLL
    for (int i = 0; i < BLOCK; i++)
        r[i] = a[i];
    NETWORK(ORDER)
    MU_UNROLL
    for (int i = 0; i < BLOCK; i++)
        a[i] = r[i];
}

// One stage of a bitonic merge in registers; partners are `apart` vectors apart.
MU_INLINE void stage(vec *r, int n, int apart)
{
    MU_UNROLL
    for (int i = 0; i < n; i++)
        if ((i & apart) == 0)
            order(&r[i], &r[i + apart]);
}

// The last stages (8, 4, 2 and 1 apart) of every 16 vectors.
static void clean_blocks(vec *a, int64_t n)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        vec r[BLOCK];
        MU_UNROLL
        for (int i = 0; i < BLOCK; i++)
            r[i] = a[at + i];
        stage(r, BLOCK, 8);
        stage(r, BLOCK, 4);
        stage(r, BLOCK, 2);
        stage(r, BLOCK, 1);
        MU_UNROLL
        for (int i = 0; i < BLOCK; i++)
            a[at + i] = r[i];
    }
}

// The stages `apart`, apart / 2, ... that fit in WIDE (2, 4, 8) vectors in registers: log2(WIDE) stages.
#define CLEAN_WIDE(WIDE)                                        \
    static void clean_##WIDE(vec *a, int64_t n, int64_t apart)  \
    {                                                           \
        const int64_t step = 2 * apart / WIDE;                  \
        for (int64_t first = 0; first < n; first += 2 * apart)  \
            for (int64_t at = first; at < first + step; at++) { \
                vec r[WIDE];                                    \
                MU_UNROLL                                       \
                for (int i = 0; i < WIDE; i++)                  \
                    r[i] = a[at + i * step];                    \
                MU_UNROLL                                       \
                for (int near = WIDE / 2; near > 0; near /= 2)  \
                    stage(r, WIDE, near);                       \
                MU_UNROLL                                       \
                for (int i = 0; i < WIDE; i++)                  \
                    a[at + i * step] = r[i];                    \
            }                                                   \
    }
CLEAN_WIDE(2)
CLEAN_WIDE(4)
CLEAN_WIDE(8)

// All stages of a bitonic merge from `apart` (a power of two, at least 8) down to 1.
static void clean(vec *a, int64_t n, int64_t apart)
{
    for (; apart >= 4 * BLOCK; apart /= 8)
        clean_8(a, n, apart);
    if (apart >= 2 * BLOCK) {
        clean_4(a, n, apart);
        apart /= 4;
    } else if (apart >= BLOCK) {
        clean_2(a, n, apart);
    }
    clean_blocks(a, n);
}

// Merges neighbouring runs of `half` sorted vectors: compares each vector with its mirror image, which leaves bitonic
// runs.
static void merge_halves(vec *a, int64_t n, int64_t half)
{
    for (int64_t first = 0; first < n; first += 2 * half)
        for (int64_t i = 0; i < half; i++)
            order(&a[first + i], &a[first + 2 * half - 1 - i]);
    clean(a, n, half / 2);
}

// Sorts every lane of n vectors, a power of two and at least BLOCK.
static void sort_lanes(vec *a, int64_t n)
{
    for (int64_t at = 0; at < n; at += BLOCK)
        sort_block(a + at);
    for (int64_t half = BLOCK; half < n; half *= 2)
        merge_halves(a, n, half);
}

// ---- Merging lanes ------------------------------------------------------------------------------

// Permutes the lanes of x: lane i receives lane i ^ with.
MU_INLINE vec partners(vec x, int with)
{
#if MU_LANES == 16
    const __m512i own = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    return (vec)_mm512_permutexvar_epi64(_mm512_xor_si512(own, _mm512_set1_epi64(with)), (__m512i)x);
#else
    const __m256i own = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return (vec)_mm256_permutevar8x32_epi32((__m256i)x, _mm256_xor_si256(own, _mm256_set1_epi32(2 * with)));
#endif
}

// For lanes whose number has `bit` the element of `set`, otherwise that of `clear`.
MU_INLINE vec by_lane(int bit, vec clear, vec set)
{
#if MU_LANES == 16
    const __mmask8 mask = bit == 1 ? 0xAA : bit == 2 ? 0xCC : 0xF0;
    return (vec)_mm512_mask_blend_epi64(mask, (__m512i)clear, (__m512i)set);
#else
    return bit == 1 ? (vec)_mm256_blend_epi32((__m256i)clear, (__m256i)set, 0xCC)
                    : (vec)_mm256_blend_epi32((__m256i)clear, (__m256i)set, 0xF0);
#endif
}

MU_INLINE vec lane_stage(vec x, int apart)
{
    vec low = x, high = partners(x, apart);
    order(&low, &high);
    return by_lane(apart, low, high);
}

// Merges the sequences of neighbouring groups of `half` lanes: compares the first vector with the mirror image of the
// last.
MU_INLINE void merge_lanes(vec *a, int64_t n, int half)
{
    for (int64_t i = 0; i < n / 2; i++) {
        vec low = a[i], high = partners(a[n - 1 - i], 2 * half - 1);
        order(&low, &high);
        vec x = by_lane(half, low, high), y = partners(by_lane(half, high, low), 2 * half - 1);
        for (int apart = half / 2; apart > 0; apart /= 2) {
            x = lane_stage(x, apart);
            y = lane_stage(y, apart);
        }
        a[i] = x;
        a[n - 1 - i] = y;
    }
    clean(a, n, n / 2);
}

// ---- Rows ---------------------------------------------------------------------------------------

// Rows of at most SMALL words take one lane each, and rows of at most SHORT words too if there are several; rows
// longer than LONGEST are radix sorted.
enum { SMALL = 16, SHORT = 128, LONGEST = 32768 };

static int64_t power_from(int64_t n)
{
    int64_t power = BLOCK;
    while (power < n)
        power *= 2;
    return power;
}

// Sorts up to LANES rows of a matrix, one in each lane. scratch: 2 * power * LANES words.
static void sort_short(int64_t *words, int64_t *scratch, int64_t n, int64_t rows)
{
    const int64_t power = power_from(n);
    int64_t *lanes = scratch, *whole = rows < LANES ? scratch + power * LANES : words;
    if (rows < LANES) {
        memset(whole + rows * n, 0, (size_t)((LANES - rows) * n) * sizeof *whole);
        memcpy(whole, words, (size_t)(rows * n) * sizeof *whole);
    }
    MU_KERNEL(transpose)(whole, n, lanes, LANES, 8, 0, n);
    for (int64_t i = n * LANES; i < power * LANES; i++)
        lanes[i] = INT64_MAX;
    sort_lanes((vec *)(void *)lanes, power);
    MU_KERNEL(transpose)(lanes, LANES, whole, n, 8, 0, LANES);
    if (rows < LANES)
        memcpy(words, whole, (size_t)(rows * n) * sizeof *words);
}

// Sorts one row over all lanes.
static void sort_long(int64_t *words, int64_t *scratch, int64_t n)
{
    const int64_t height = power_from((n + LANES - 1) / LANES);
    int64_t *lanes = scratch, *whole = scratch + height * LANES;
    memcpy(lanes, words, (size_t)n * sizeof *lanes);
    for (int64_t i = n; i < height * LANES; i++)
        lanes[i] = INT64_MAX;
    sort_lanes((vec *)(void *)lanes, height);
    merge_lanes((vec *)(void *)lanes, height, 1);
    merge_lanes((vec *)(void *)lanes, height, 2);
#if MU_LANES == 16
    merge_lanes((vec *)(void *)lanes, height, 4);
#endif
    MU_KERNEL(transpose)(lanes, LANES, whole, height, 8, 0, LANES);
    memcpy(words, whole, (size_t)n * sizeof *words);
}

void MU_KERNEL(sort_rows)(int64_t *words, int64_t *scratch, int64_t columns, int settled, int64_t begin, int64_t end)
{
    const bool beside = columns <= SMALL || (columns <= SHORT && end - begin > 1);
    for (int64_t row = begin; columns > 1 && row < end; row += beside ? LANES : 1) {
        int64_t *own = words + row * columns;
        if (beside)
            sort_short(own, scratch, columns, least(LANES, end - row));
        else if (columns <= LONGEST)
            sort_long(own, scratch, columns);
        else
            bucket_row(own, scratch, columns, settled);
    }
}

#else

void MU_KERNEL(sort_rows)(int64_t *words, int64_t *scratch, int64_t columns, int settled, int64_t begin, int64_t end)
{
    for (int64_t row = begin; columns > 1 && row < end; row++)
        bucket_row(words + row * columns, scratch, columns, settled);
}

#endif
