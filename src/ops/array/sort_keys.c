// Converts elements to ordered words and back, and sorts rows of such words.
//
// Types of up to four bytes have 32-bit keys above 32-bit indices. 64-bit keys are shortened: first the row's minimum
// is subtracted, then low bits are dropped. Elements whose shortened keys are equal are ordered by the low bits
// afterwards. To find the first few elements of a row, candidates that are worse than the worst of the best so far are
// dropped, block by block.
#include "ops/array/sort_keys.h"

#include "kernels/kernels.h"

#include <math.h>

// Words and rows sorted at once; elements that a search examines together; longest run of equal keys, and largest count
// of first elements, that insertion sort handles.
enum { TOGETHER = 4096, MOST_ROWS = 256, PIECE = 32, FEW = 16, FIRSTS = 32 };

// ---- Keys ---------------------------------------------------------------------------------------

static inline int32_t key_of_f32(float value)
{
    int32_t bits;
    value += 0.0f;
    memcpy(&bits, &value, sizeof bits);
    return bits ^ (bits >> 31 & INT32_MAX);
}

// Key of a 16-bit float: sign and magnitude as a signed integer.
static inline int32_t key_of_float16(uint16_t bits)
{
    const int32_t size = bits & INT16_MAX;
    return bits >> 15 ? -size : size;
}

static inline bool f32_odd(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value != value || bits == INT32_MIN;
}

#define NEVER(x)     false
#define SELF(x)      (x)
#define DIFFERS(x)   ((x) != (x))
#define PAST_F16(x)  (((x)&INT16_MAX) > 0x7C00)
#define PAST_BF16(x) (((x)&INT16_MAX) > 0x7F80)

// Makes words of rows of n elements with 32-bit keys. Returns bit 0: some element cannot be restored from its key; bit
// 1: some word is below the limit.
#define WORDS(name, T, KEY, NAN_OF, ODD)                                                                               \
    MU_PER_ISA_RESULT(                                                                                                 \
        int, name,                                                                                                     \
        (const void *from, int64_t rows, int64_t n, int64_t position, bool descending, int64_t limit, int64_t *words), \
        (from, rows, n, position, descending, limit, words))                                                           \
    {                                                                                                                  \
        const int32_t flip = descending ? -1 : 0;                                                                      \
        int32_t odd = 0;                                                                                               \
        int64_t below = 0;                                                                                             \
        for (int64_t row = 0; row < rows; row++) {                                                                     \
            const T *x = (const T *)from + row * n;                                                                    \
            int64_t *to = words + row * n;                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const int32_t key = NAN_OF(x[i]) ? INT32_MAX : (int32_t)KEY(x[i]) ^ flip;                              \
                to[i] = (int64_t)((uint64_t)(int64_t)key << 32 | (uint64_t)(position + i));                            \
                odd |= ODD(x[i]);                                                                                      \
                below |= to[i] < limit;                                                                                \
            }                                                                                                          \
        }                                                                                                              \
        return (odd != 0) | (below != 0) << 1;                                                                         \
    }
WORDS(words_f32, float, key_of_f32, DIFFERS, f32_odd)
WORDS(words_f16, uint16_t, key_of_float16, PAST_F16, NEVER)
WORDS(words_bf16, uint16_t, key_of_float16, PAST_BF16, NEVER)
WORDS(words_i32, int32_t, SELF, NEVER, NEVER)
WORDS(words_i16, int16_t, SELF, NEVER, NEVER)
WORDS(words_i8, int8_t, SELF, NEVER, NEVER)
WORDS(words_u8, uint8_t, SELF, NEVER, NEVER)

typedef int make_words(const void *from, int64_t rows, int64_t n, int64_t position, bool descending, int64_t limit,
                       int64_t *words);

static make_words *words_of(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F32: return words_f32;
    case MU_F16: return words_f16;
    case MU_BF16: return words_bf16;
    case MU_I32: return words_i32;
    case MU_I16: return words_i16;
    case MU_I8: return words_i8;
    case MU_U8: return words_u8;
    default: return NULL;
    }
}

// The key of the 64 bits of an int64; masks instead of branches, so that compilers vectorise.
static inline int64_t key_of_i64(int64_t bits, int64_t flip) { return bits ^ flip; }

static inline int64_t key_of_f64(int64_t bits, int64_t flip)
{
    const int64_t odd = -(int64_t)((bits & INT64_MAX) > (int64_t)0x7FF << 52);
    const int64_t value = bits & ~-(int64_t)(bits == INT64_MIN);
    return ((value ^ (value >> 63 & INT64_MAX) ^ flip) & ~odd) | (odd & INT64_MAX);
}

#define KEYS(name, KEY)                                                                                                \
    MU_PER_ISA(name, (const void *from, int64_t n, bool descending, int64_t *keys, int64_t *least, int64_t *greatest), \
               (from, n, descending, keys, least, greatest))                                                           \
    {                                                                                                                  \
        const int64_t *x = from;                                                                                       \
        const int64_t flip = descending ? -1 : 0;                                                                      \
        int64_t low = INT64_MAX, high = INT64_MIN;                                                                     \
        MU_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const int64_t key = KEY(x[i], flip);                                                                       \
            low = key < low ? key : low;                                                                               \
            high = key > high ? key : high;                                                                            \
            keys[i] = key;                                                                                             \
        }                                                                                                              \
        *least = low;                                                                                                  \
        *greatest = high;                                                                                              \
    }
KEYS(keys_f64, key_of_f64)
KEYS(keys_i64, key_of_i64)

static int64_t large_key(const mu_sort_keys *w, const void *x, int64_t i)
{
    const int64_t bits = ((const int64_t *)x)[i], flip = w->descending ? -1 : 0;
    return w->dtype == MU_F64 ? key_of_f64(bits, flip) : key_of_i64(bits, flip);
}

static int bits_in(uint64_t value) { return value == 0 ? 0 : 64 - __builtin_clzll(value); }

// ---- Memory -------------------------------------------------------------------------------------

mu_status mu__sort_keys_open(mu_sort_keys *w, mu_dtype dtype, int64_t n, bool descending)
{
    const int64_t batch = MU_MIN(MU_MAX(TOGETHER / MU_MAX(n, 1) / 8 * 8, 1), MOST_ROWS);
    const int64_t scratch = mu__sort_scratch(n);
    *w = (mu_sort_keys){.dtype = dtype, .descending = descending, .n = n, .batch = batch};
    w->position_bits = words_of(dtype) ? 32 : bits_in((uint64_t)MU_MAX(n - 1, 1));
    w->bytes = (size_t)(scratch + batch * n) * sizeof(int64_t);
    w->scratch = mu__alloc_data(w->bytes);
    w->words = w->scratch + scratch;
    return w->scratch ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

void mu__sort_keys_close(mu_sort_keys *w) { mu__free_data(w->scratch, w->bytes); }

// ---- Keys of 64 bits ----------------------------------------------------------------------------

static int64_t position_of(const mu_sort_keys *w, int64_t word)
{
    return word & (int64_t)(((uint64_t)1 << w->position_bits) - 1);
}

// Insertion sort by full keys, for short runs of words whose high bits are equal.
static void insert_run(const mu_sort_keys *w, const void *x, int64_t *run, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const int64_t moving = run[i], key = large_key(w, x, position_of(w, moving));
        int64_t at = i;
        for (; at > 0 && large_key(w, x, position_of(w, run[at - 1])) > key; at--)
            run[at] = run[at - 1];
        run[at] = moving;
    }
}

// For long runs: makes new words from the `cut` low bits of each key's distance from `base` and sorts them.
static void sort_run(const mu_sort_keys *w, const void *x, int64_t *run, int64_t n, int64_t base, int cut)
{
    const uint64_t first = (uint64_t)large_key(w, x, position_of(w, run[0])), low = ((uint64_t)1 << cut) - 1;
    uint64_t differs = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t position = position_of(w, run[i]);
        const uint64_t key = (uint64_t)large_key(w, x, position);
        differs |= key ^ first;
        run[i] = (int64_t)(((key - (uint64_t)base) & low) << w->position_bits | (uint64_t)position);
    }
    if (differs != 0)
        mu__kernels()->sort_rows(run, w->scratch, n, w->position_bits, 0, 1);
}

static void mend_row(const mu_sort_keys *w, const void *x, int64_t *words, int64_t base, int cut)
{
    for (int64_t begin = 0, end; begin < w->n; begin = end) {
        const int64_t high = words[begin] >> w->position_bits;
        for (end = begin + 1; end < w->n && words[end] >> w->position_bits == high; end++)
            ;
        if (end - begin > FEW)
            sort_run(w, x, words + begin, end - begin, base, cut);
        else if (end - begin > 1)
            insert_run(w, x, words + begin, end - begin);
    }
}

// Turns the keys in `words` into words. Returns the number of low bits dropped; *base is what was subtracted first.
static int shorten_row(const mu_sort_keys *w, const void *x, int64_t *words, int64_t *base)
{
    int64_t greatest;
    (w->dtype == MU_F64 ? keys_f64 : keys_i64)(x, w->n, w->descending, words, base, &greatest);
    const int cut = MU_MAX(bits_in((uint64_t)greatest - (uint64_t)*base) + w->position_bits - 63, 0);
    for (int64_t i = 0; i < w->n; i++)
        words[i] = (int64_t)(((uint64_t)words[i] - (uint64_t)*base) >> cut << w->position_bits | (uint64_t)i);
    return cut;
}

static void sort_large(mu_sort_keys *w, const char *x, int64_t rows)
{
    int64_t bases[MOST_ROWS];
    uint8_t cuts[MOST_ROWS];
    const int64_t row_bytes = w->n * 8;
    for (int64_t row = 0; row < rows; row++)
        cuts[row] = (uint8_t)shorten_row(w, x + row * row_bytes, w->words + row * w->n, &bases[row]);
    mu__kernels()->sort_rows(w->words, w->scratch, w->n, w->position_bits, 0, rows);
    for (int64_t row = 0; row < rows; row++)
        if (cuts[row] > 0)
            mend_row(w, x + row * row_bytes, w->words + row * w->n, bases[row], cuts[row]);
}

// ---- Rows ---------------------------------------------------------------------------------------

void mu__sort_keys_sort(mu_sort_keys *w, const void *x, int64_t rows)
{
    make_words *make = words_of(w->dtype);
    if (!make) {
        sort_large(w, x, rows);
        return;
    }
    w->odd = make(x, rows, w->n, 0, w->descending, INT64_MIN, w->words);
    mu__kernels()->sort_rows(w->words, w->scratch, w->n, w->position_bits, 0, rows);
}

// Sorts `have` words, of which the first `count` are kept; returns the last of those.
static int64_t keep_best(mu_sort_keys *w, int64_t have, int64_t count)
{
    mu__kernels()->sort_rows(w->words, w->scratch, have, 0, 0, 1);
    return w->words[count - 1];
}

bool mu__sort_keys_can_search(mu_dtype dtype, int64_t n, int64_t count)
{
    return count > 0 && (words_of(dtype) ? n / 4 >= count + PIECE : n / 4 >= count && count <= FIRSTS);
}

// For 64-bit keys: keeps the best keys so far in order. Equal keys keep the order of their elements.
static void first_large(mu_sort_keys *w, const void *x, int64_t count)
{
    int64_t best[FIRSTS], piece[PIECE], have = 0, least, greatest;
    for (int64_t at = 0; at < w->n; at += PIECE) {
        const int64_t n = MU_MIN((int64_t)PIECE, w->n - at);
        const char *from = (const char *)x + at * 8;
        (w->dtype == MU_F64 ? keys_f64 : keys_i64)(from, n, w->descending, piece, &least, &greatest);
        if (have == count && least >= best[have - 1])
            continue;
        for (int64_t i = 0; i < n; i++) {
            if (have == count && piece[i] >= best[have - 1])
                continue;
            int64_t to = have < count ? have++ : have - 1;
            for (; to > 0 && best[to - 1] > piece[i]; to--) {
                best[to] = best[to - 1];
                w->words[to] = w->words[to - 1];
            }
            best[to] = piece[i];
            w->words[to] = at + i;
        }
    }
}

static void first_small(mu_sort_keys *w, const void *x, int64_t count)
{
    const size_t bytes = mu_dtype_bytes(w->dtype);
    const int64_t capacity = MU_MIN(2 * count + 4 * PIECE, w->n);
    make_words *make = words_of(w->dtype);
    int64_t have = capacity - PIECE, piece[PIECE];
    int found = make(x, 1, have, 0, w->descending, INT64_MIN, w->words);
    int64_t limit = keep_best(w, have, count), at = have;
    have = count;
    while (at < w->n) {
        const int64_t n = MU_MIN((int64_t)PIECE, w->n - at);
        const int here = make((const char *)x + (size_t)at * bytes, 1, n, at, w->descending, limit, piece);
        at += n;
        found |= here;
        if ((here & 2) == 0)
            continue;
        for (int64_t i = 0; i < n; i++) {
            w->words[have] = piece[i];
            have += piece[i] < limit;
        }
        if (have + PIECE > capacity) {
            limit = keep_best(w, have, count);
            have = count;
        }
    }
    w->odd = found & 1;
    keep_best(w, have, count);
}

void mu__sort_keys_first(mu_sort_keys *w, const void *x, int64_t count)
{
    (words_of(w->dtype) ? first_small : first_large)(w, x, count);
}

// ---- Back to elements ---------------------------------------------------------------------------

MU_PER_ISA(take_f32, (const int64_t *words, int64_t n, bool descending, float *values, int32_t *positions),
           (words, n, descending, values, positions))
{
    const int32_t flip = descending ? -1 : 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t key = (int32_t)(words[i] >> 32) ^ flip, bits = key ^ (key >> 31 & INT32_MAX);
        memcpy(&values[i], &bits, sizeof bits);
        positions[i] = (int32_t)words[i];
    }
}

MU_PER_ISA(take_i32, (const int64_t *words, int64_t n, bool descending, int32_t *values, int32_t *positions),
           (words, n, descending, values, positions))
{
    const int32_t flip = descending ? -1 : 0;
    for (int64_t i = 0; i < n; i++) {
        values[i] = (int32_t)(words[i] >> 32) ^ flip;
        positions[i] = (int32_t)words[i];
    }
}

#define GATHER(BITS)                                                                               \
    static void gather_##BITS(const void *from, void *values, const int32_t *positions, int64_t n) \
    {                                                                                              \
        const uint##BITS##_t *x = from;                                                            \
        uint##BITS##_t *y = values;                                                                \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[positions[i]];                                                                \
    }
GATHER(8)
GATHER(16)
GATHER(32)
GATHER(64)

static void take_row(const mu_sort_keys *w, const char *x, const int64_t *words, int64_t count, void *values,
                     int32_t *positions)
{
    if (w->dtype == MU_F32 && !w->odd) {
        take_f32(words, count, w->descending, values, positions);
        return;
    }
    if (w->dtype == MU_I32) {
        take_i32(words, count, w->descending, values, positions);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        positions[i] = (int32_t)position_of(w, words[i]);
    switch (mu_dtype_bytes(w->dtype)) {
    case 1: gather_8(x, values, positions, count); break;
    case 2: gather_16(x, values, positions, count); break;
    case 4: gather_32(x, values, positions, count); break;
    default: gather_64(x, values, positions, count);
    }
}

void mu__sort_keys_take(const mu_sort_keys *w, const void *x, int64_t rows, int64_t count, void *values,
                        int32_t *positions)
{
    const size_t bytes = mu_dtype_bytes(w->dtype);
    if (count == w->n && ((w->dtype == MU_F32 && !w->odd) || w->dtype == MU_I32)) {
        take_row(w, x, w->words, rows * count, values, positions);
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        take_row(w, (const char *)x + (size_t)(row * w->n) * bytes, w->words + row * w->n, count,
                 (char *)values + (size_t)(row * count) * bytes, positions + row * count);
}
