// unique: numbers distinct elements in order of first appearance; returns each element's number and the distinct
// elements.
//
// Seen elements are in a growing hash table with open addressing. An entry holds a key (equal for equal elements) and a
// number: one word for 32-bit keys, else two words. The count must be known before the outputs are allocated, so
// measure keeps its numbers for the run. A NaN equals nothing, not even itself.
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

static mu_status unique_infer(mu_infer *infer)
{
    MU_TRY(mu__need_rank(infer, 0, 1));
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->out[0].shape.dims[0] = MU_UNKNOWN;
    infer->out[1].dtype = MU_I32;
    return MU_OK;
}

// ---- Keys ---------------------------------------------------------------------------------------

// Elements looked up together.
enum { CHUNK = 256 };

static bool is_wide(mu_dtype dtype) { return dtype == MU_I64 || dtype == MU_F64; }

static uint64_t key_of_float(float value)
{
    uint32_t bits;
    value += 0.0f; // turns -0 into 0, which it equals
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t key_of_double(double value)
{
    uint64_t bits;
    value += 0.0;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Writes the keys of n elements from `first` on. Returns whether one of them is a NaN.
static bool make_keys(const mu_view *x, int64_t first, int64_t n, uint64_t *keys)
{
    const uint64_t infinite = is_wide(x->dtype) ? (uint64_t)0x7FF << 52 : 0x7F800000,
                   size = is_wide(x->dtype) ? INT64_MAX : INT32_MAX;
    int odd = 0;
    if (x->dtype == MU_I64)
        memcpy(keys, (const int64_t *)x->data + first, (size_t)n * sizeof *keys);
    for (int64_t i = 0; i < n && x->dtype == MU_I32; i++)
        keys[i] = ((const uint32_t *)x->data)[first + i];
    for (int64_t i = 0; i < n && x->dtype == MU_F32; i++)
        keys[i] = key_of_float(((const float *)x->data)[first + i]);
    for (int64_t i = 0; i < n && x->dtype == MU_F64; i++)
        keys[i] = key_of_double(((const double *)x->data)[first + i]);
    for (int64_t i = 0; i < n && mu_dtype_bytes(x->dtype) < 4; i++)
        keys[i] = key_of_float((float)mu__read_element(x->dtype, x->data, first + i));
    for (int64_t i = 0; i < n && x->dtype != MU_I64 && x->dtype != MU_I32; i++)
        odd |= (keys[i] & size) > infinite;
    return odd != 0;
}

static bool is_nan_key(uint64_t key, bool wide)
{
    return wide ? (key & INT64_MAX) > (uint64_t)0x7FF << 52 : (key & INT32_MAX) > 0x7F800000;
}

static uint64_t scattered(uint64_t key, bool wide) { return (wide ? key ^ key >> 32 : key) * 0x9E3779B97F4A7C15u; }

// ---- The table ----------------------------------------------------------------------------------

// 2^bits entries, at most 5/8 of them used. Stores number + 1; 0 marks a free entry.
typedef struct seen {
    uint64_t *slots;
    size_t bytes;
    int bits;
} seen;

enum { FIRST_BITS = 10, MOST_BITS = 40, GROWTH = 3 };

static int64_t most_numbers(int bits) { return ((int64_t)5 << bits) / 8; }

static mu_status seen_make(seen *table, int bits, bool wide)
{
    if (bits > MOST_BITS)
        return mu__error(MU_RESOURCE_EXHAUSTED, "unique: more different elements than a table can hold");
    *table = (seen){.bytes = sizeof table->slots[0] << bits << wide, .bits = bits};
    table->slots = mu__alloc_data(table->bytes);
    if (!table->slots)
        return MU_RESOURCE_EXHAUSTED;
    memset(table->slots, 0, table->bytes);
    return MU_OK;
}

static void seen_free(seen *table)
{
    if (table->slots)
        mu__free_data(table->slots, table->bytes);
}

// Returns number + 1 of a key. A new key gets `next`, which is stored.
static inline uint32_t seen_number(const seen *table, uint64_t key, bool wide, uint32_t next)
{
    const uint64_t mask = ((uint64_t)1 << table->bits) - 1;
    uint64_t at = scattered(key, wide) >> (64 - table->bits);
    if (!wide) {
        for (; table->slots[at] != 0; at = (at + 1) & mask)
            if (table->slots[at] >> 32 == key)
                return (uint32_t)table->slots[at];
        table->slots[at] = key << 32 | next;
        return next;
    }
    for (; table->slots[2 * at + 1] != 0; at = (at + 1) & mask)
        if (table->slots[2 * at] == key)
            return (uint32_t)table->slots[2 * at + 1];
    table->slots[2 * at] = key;
    table->slots[2 * at + 1] = next;
    return next;
}

static mu_status seen_grow(seen *table, int bits, bool wide)
{
    seen larger;
    MU_TRY(seen_make(&larger, bits, wide));
    for (uint64_t i = 0; i < (uint64_t)1 << table->bits; i++) {
        const uint64_t key = wide ? table->slots[2 * i] : table->slots[i] >> 32;
        const uint32_t number = (uint32_t)table->slots[wide ? 2 * i + 1 : i];
        if (number != 0)
            seen_number(&larger, key, wide, number);
    }
    seen_free(table);
    *table = larger;
    return MU_OK;
}

// Makes room for another chunk, with `known` numbers found among `past` of n elements. If almost all were new, expects
// more.
static mu_status seen_prepare(seen *table, int64_t known, int64_t past, int64_t n, bool wide)
{
    if (known + CHUNK <= most_numbers(table->bits))
        return MU_OK;
    int bits = table->bits + 1;
    const int most = bits + (known >= past - past / 8 ? GROWTH - 1 : 0);
    while (bits < most && most_numbers(bits) < n + CHUNK)
        bits++;
    return seen_grow(table, bits, wide);
}

// ---- Numbering ----------------------------------------------------------------------------------

// Numbers n keys. For a large table, prefetches all entries first, so that memory accesses overlap. Returns the new
// count of numbers.
static inline int64_t number_chunk(const seen *table, const uint64_t *keys, bool odd, bool wide, int64_t n,
                                   int64_t known, int32_t *numbers)
{
    if (table->bytes > 1 << 15)
        for (int64_t i = 0; i < n; i++)
            __builtin_prefetch(table->slots + (scattered(keys[i], wide) >> (64 - table->bits) << wide), 1);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t next = (uint32_t)known + 1;
        const bool alone = odd && is_nan_key(keys[i], wide);
        const uint32_t number = alone ? next : seen_number(table, keys[i], wide, next);
        known += number == next;
        numbers[i] = (int32_t)(number - 1);
    }
    return known;
}

// Numbers every element in order of first appearance; equal elements get the same number. `count` receives the count.
static mu_status number_elements(const mu_view *x, int32_t *numbers, int64_t *count)
{
    const int64_t n = x->shape.dims[0];
    const bool wide = is_wide(x->dtype);
    uint64_t keys[CHUNK];
    seen table;
    mu_status status = MU_OK;
    int64_t known = 0;
    MU_TRY(seen_make(&table, FIRST_BITS, wide));
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t here = MU_MIN((int64_t)CHUNK, n - i);
        const bool odd = make_keys(x, i, here, keys);
        MU_GO(seen_prepare(&table, known, i, n, wide));
        known = wide ? number_chunk(&table, keys, odd, true, here, known, numbers + i)
                     : number_chunk(&table, keys, odd, false, here, known, numbers + i);
    }
    *count = known;
out:
    seen_free(&table);
    return status;
}

// ---- The op -------------------------------------------------------------------------------------

static mu_status unique_measure(const mu_kernel *k, mu_spec *out)
{
    const size_t bytes = (size_t)k->in[0].shape.dims[0] * sizeof(int32_t);
    int32_t *numbers = mu__alloc_data(bytes);
    if (!numbers)
        return MU_RESOURCE_EXHAUSTED;
    const mu_status status = number_elements(&k->in[0], numbers, &out[0].shape.dims[0]);
    if (status == MU_OK && k->measured)
        *k->measured = (mu_measured){numbers, bytes};
    else
        mu__free_data(numbers, bytes);
    return status;
}

#define TAKE_FIRSTS(T)                               \
    for (int64_t i = 0; found < count; i++)          \
        if (numbers[i] == found)                     \
            ((T *)out)[found++] = ((const T *)x)[i]; \
    return

// Copies the first element of every number.
static void take_firsts(const void *x, const int32_t *numbers, size_t bytes, int64_t count, void *out)
{
    int64_t found = 0;
    switch (bytes) {
    case 1: TAKE_FIRSTS(uint8_t);
    case 2: TAKE_FIRSTS(uint16_t);
    case 4: TAKE_FIRSTS(uint32_t);
    case 8: TAKE_FIRSTS(uint64_t);
    }
}

static bool equal_elements(const mu_view *a, int64_t i, const mu_view *b, int64_t j)
{
    return mu__dtype_is_float(a->dtype) ? mu__read_real(a, i) == mu__read_real(b, j)
                                        : mu__read_whole(a, i) == mu__read_whole(b, j);
}

static mu_status unique_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0], *distinct = &k->out[0];
    int32_t *numbers = k->out[1].data, known = 0;
    for (int64_t i = 0; i < x->shape.dims[0]; i++) {
        int32_t number = 0;
        while (number < known && !equal_elements(distinct, number, x, i))
            number++;
        if (number == known)
            mu__copy_element(distinct, known++, x, i);
        numbers[i] = number;
    }
    return MU_OK;
}

static mu_status unique_fast(const mu_kernel *k)
{
    int64_t count = k->out[0].shape.dims[0];
    int32_t *numbers = k->out[1].data;
    if (k->measured && k->measured->block)
        memcpy(numbers, k->measured->block, (size_t)k->in[0].shape.dims[0] * sizeof *numbers);
    else
        MU_TRY(number_elements(&k->in[0], numbers, &count));
    take_firsts(k->in[0].data, numbers, mu_dtype_bytes(k->in[0].dtype), count, k->out[0].data);
    return MU_OK;
}

static const mu_sample samples_unique[] = {{.n_in = 1, .in = {MU_DIMS(9)}, .no_grad = 1}, {0}};
const mu_op mu_op_unique = {
    .name = "unique",
    .n_in = 1,
    .n_out = 2,
    .flags = MU_OP_DATA_DEPENDENT,
    .dtypes = MU_NUMBERS,
    .infer = unique_infer,
    .ref = unique_ref,
    .cpu = {.run = unique_fast},
    .measure = unique_measure,
    .samples = samples_unique,
    .no_lowering = "the number of results depends on the elements; call it outside of the function, or run the "
                   "function on a CPU device",
};
mu_status mu_unique(mu_tensor *x, mu_tensor **values, mu_tensor **indices)
{
    mu_tensor *out[2], *numbers = x && x->dtype == MU_BOOL ? mu_cast(x, MU_U8) : x;
    mu_status status = mu__apply(&mu_op_unique, NULL, 1, &numbers, 0, NULL, out);
    if (values)
        *values = numbers == x ? out[0] : mu_cast(out[0], MU_BOOL);
    if (indices)
        *indices = out[1];
    return status;
}
