// Ops that find elements by value: unique, searchsorted.
//
// unique keeps what it has seen in a table that grows, keyed by 64 bits that are equal where elements are. searchsorted
// halves the row for many values side by side, without branches, so that their reads of memory overlap. A NaN equals
// nothing in the former and comes last in the latter.
#include "ops/attrs.h"
#include "ops/nn.h"

#include <muster/ops.h>

static int64_t last_dim(const mu_shape *shape)
{
    return shape->dims[shape->rank - 1];
}

// ---- unique: how many there are depends on the elements -----------------------------------------

static mu_status unique_infer(mu_infer *infer)
{
    MU_TRY(mu__need_rank(infer, 0, 1));
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->out[0].shape.dims[0] = MU_UNKNOWN;
    infer->out[1].dtype = MU_I32;
    return MU_OK;
}

// What was seen so far: keys and the numbers that they got, in a table of 2^bits places, at most half of them taken.
typedef struct seen {
    uint64_t *keys;
    int32_t *numbers;  // 0: free; else the number and 1
    int bits;
    int32_t n;
} seen;

enum { FIRST_BITS = 10, MOST_BITS = 40, CHUNK = 256 };

static uint64_t place_of(uint64_t key, int bits)
{
    key ^= key >> 32;
    return key * 0x9E3779B97F4A7C15u >> (64 - bits);
}

static void seen_free(seen *table)
{
    mu__free(table->keys);
    mu__free(table->numbers);
}

static mu_status seen_make(seen *table, int bits)
{
    *table = (seen){.bits = bits};
    if (bits > MOST_BITS)
        return mu__error(MU_RESOURCE_EXHAUSTED, "unique: more different elements than a table can hold");
    table->keys = mu__alloc(sizeof table->keys[0] << bits);
    table->numbers = mu__calloc((size_t)1 << bits, sizeof table->numbers[0]);
    if (table->keys && table->numbers)
        return MU_OK;
    seen_free(table);
    return MU_RESOURCE_EXHAUSTED;
}

// The place of a key, or the free one where it belongs.
static uint64_t seen_find(const seen *table, uint64_t key)
{
    const uint64_t mask = ((uint64_t)1 << table->bits) - 1;
    uint64_t at = place_of(key, table->bits);
    while (table->numbers[at] != 0 && table->keys[at] != key)
        at = (at + 1) & mask;
    return at;
}

static mu_status seen_grow(seen *table)
{
    seen larger;
    MU_TRY(seen_make(&larger, table->bits + 1));
    larger.n = table->n;
    for (uint64_t i = 0; i < (uint64_t)1 << table->bits; i++)
        if (table->numbers[i] != 0) {
            const uint64_t at = seen_find(&larger, table->keys[i]);
            larger.keys[at] = table->keys[i];
            larger.numbers[at] = table->numbers[i];
        }
    seen_free(table);
    *table = larger;
    return MU_OK;
}

// Keys of n elements from `first` on.
static void make_keys(const mu_view *x, int64_t first, int64_t n, uint64_t *keys)
{
    if (x->dtype == MU_I64) {
        memcpy(keys, (const int64_t *)x->data + first, (size_t)n * sizeof *keys);
        return;
    }
    if (x->dtype == MU_I32) {
        for (int64_t i = 0; i < n; i++)
            keys[i] = (uint64_t)((const int32_t *)x->data)[first + i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double value = mu__read_element(x->dtype, x->data, first + i) + 0.0;  // -0 becomes 0, its equal
        memcpy(&keys[i], &value, sizeof value);
    }
}

static bool is_nan_key(mu_dtype dtype, uint64_t key)
{
    return dtype != MU_I64 && dtype != MU_I32 && (key & ~((uint64_t)1 << 63)) > (uint64_t)0x7FF << 52;
}

// Numbers every element: equal ones alike, in the order of their first; numbers may be NULL. `count` gets how many
// numbers there are, `firsts` (or NULL) the place of each one's first element.
static mu_status number_elements(const mu_view *x, int32_t *numbers, int64_t *count, int64_t *firsts)
{
    const int64_t n = x->shape.dims[0];
    uint64_t keys[CHUNK];
    mu_status status = MU_OK;
    seen table;
    MU_TRY(seen_make(&table, FIRST_BITS));
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % CHUNK == 0)
            make_keys(x, i, MU_MIN((int64_t)CHUNK, n - i), keys);
        const uint64_t key = keys[i % CHUNK];
        const bool odd = is_nan_key(x->dtype, key);
        const uint64_t at = odd ? 0 : seen_find(&table, key);
        int64_t number = odd || table.numbers[at] == 0 ? *count : table.numbers[at] - 1;
        if (number == *count) {
            if (firsts)
                firsts[number] = i;
            ++*count;
            if (!odd) {
                table.keys[at] = key;
                table.numbers[at] = (int32_t)number + 1;
                if (++table.n > 1 << (table.bits - 1))
                    MU_GO(seen_grow(&table));
            }
        }
        if (numbers)
            numbers[i] = (int32_t)number;
    }
out:
    seen_free(&table);
    return status;
}

static mu_status unique_measure(const mu_kernel *k, mu_spec *out)
{
    return number_elements(&k->in[0], NULL, &out[0].shape.dims[0], NULL);
}

static mu_status unique_ref(const mu_kernel *k)
{
    const size_t bytes = mu_dtype_bytes(k->in[0].dtype);
    int64_t count = k->out[0].shape.dims[0], *firsts = mu__alloc((size_t)count * sizeof firsts[0]);
    if (!firsts)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = number_elements(&k->in[0], k->out[1].data, &count, firsts);
    for (int64_t i = 0; status == MU_OK && i < count; i++)
        memcpy((char *)k->out[0].data + (size_t)i * bytes, (const char *)k->in[0].data + (size_t)firsts[i] * bytes,
               bytes);
    mu__free(firsts);
    return status;
}

static const mu_sample samples_unique[] = {{.n_in = 1, .in = {MU_DIMS(9)}, .no_grad = 1}, {0}};
const mu_op mu_op_unique = {
    .name = "unique", .n_in = 1, .n_out = 2, .flags = MU_OP_DATA_DEPENDENT, .dtypes = MU_NUMBERS,
    .infer = unique_infer, .ref = unique_ref, .measure = unique_measure, .samples = samples_unique,
};
mu_status mu_unique(mu_tensor *x, mu_tensor **values, mu_tensor **places)
{
    mu_tensor *out[2], *numbers = x && x->dtype == MU_BOOL ? mu_cast(x, MU_U8) : x;
    mu_status status = mu__apply(&mu_op_unique, NULL, 1, &numbers, 0, NULL, out);
    if (values)
        *values = numbers == x ? out[0] : mu_cast(out[0], MU_BOOL);
    if (places)
        *places = out[1];
    return status;
}

// ---- searchsorted -------------------------------------------------------------------------------

static mu_status search_infer(mu_infer *infer)
{
    mu_shape sequence = infer->in[0].shape, values = infer->in[1].shape;
    if (sequence.rank == 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: a scalar has no axis to order", infer->op->name);
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    infer->out[0] = (mu_spec){.dtype = MU_I32, .shape = values};
    if (values.rank == sequence.rank)
        values.dims[values.rank - 1] = last_dim(&sequence);
    if (mu__shape_compatible(&sequence, &values))
        return MU_OK;
    char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT, "searchsorted: shapes %s and %s may differ in the last axis alone",
                     mu__shape_text(&infer->in[0].shape, a), mu__shape_text(&infer->in[1].shape, b));
}

enum { SIDE_BY_SIDE = 32 };

#define IS_NAN(x) ((x) != (x))
#define NEVER(x) false

// Places of m values in a row of n that ascends, NaNs last; ODD(x): whether x is one.
#define SEARCH(T, name, ODD)                                                                                  \
    static inline bool name##_before(T x, T value, bool right)                                                \
    {                                                                                                         \
        return right ? (x <= value) | ODD(value) : (x < value) | (ODD(value) & !ODD(x));                      \
    }                                                                                                         \
                                                                                                              \
    static inline __attribute__((always_inline)) void name##_side(const T *row, int32_t n, const T *values,  \
                                                                  int64_t m, bool right, int32_t *places)     \
    {                                                                                                         \
        for (int64_t i = 0; i < m; i += SIDE_BY_SIDE) {                                                       \
            const int64_t count = MU_MIN((int64_t)SIDE_BY_SIDE, m - i);                                       \
            T value[SIDE_BY_SIDE];                                                                            \
            int32_t at[SIDE_BY_SIDE] = {0}, length = n;                                                       \
            for (int64_t k = 0; k < SIDE_BY_SIDE; k++)                                                        \
                value[k] = values[i + MU_MIN(k, count - 1)];                                                  \
            for (; length > 1; length -= length / 2) {                                                        \
                const T *middle = row + length / 2 - 1;                                                       \
                const int32_t half = length / 2;                                                              \
                for (int64_t k = 0; k < SIDE_BY_SIDE; k++)                                                    \
                    at[k] += half & -(int32_t)name##_before(middle[at[k]], value[k], right);                  \
            }                                                                                                 \
            for (int64_t k = 0; k < count; k++)                                                               \
                places[i + k] = n > 0 ? at[k] + name##_before(row[at[k]], value[k], right) : 0;               \
        }                                                                                                     \
    }                                                                                                         \
                                                                                                              \
    MU_CLONES                                                                                                 \
    static void name(const void *in, int32_t n, const void *wanted, int64_t m, bool right, int32_t *places)   \
    {                                                                                                         \
        if (right)                                                                                            \
            name##_side(in, n, wanted, m, true, places);                                                      \
        else                                                                                                  \
            name##_side(in, n, wanted, m, false, places);                                                     \
    }
SEARCH(float, search_f32, IS_NAN)
SEARCH(double, search_f64, IS_NAN)
SEARCH(int64_t, search_i64, NEVER)
SEARCH(int32_t, search_i32, NEVER)
SEARCH(int16_t, search_i16, NEVER)
SEARCH(int8_t, search_i8, NEVER)
SEARCH(uint8_t, search_u8, NEVER)

typedef void search(const void *in, int32_t n, const void *wanted, int64_t m, bool right, int32_t *places);

static search *search_for(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return search_f64;
    case MU_I64: return search_i64;
    case MU_I32: return search_i32;
    case MU_I16: return search_i16;
    case MU_I8: return search_i8;
    case MU_U8: return search_u8;
    default: return search_f32;
    }
}

static mu_status search_ref(const mu_kernel *k)
{
    const mu_dtype dtype = k->in[0].dtype;
    if (dtype == MU_F16 || dtype == MU_BF16)
        return mu__run_as_f32(k, search_ref);
    const bool right = ((const mu_search_attrs *)k->attrs)->right;
    const int64_t n = last_dim(&k->in[0].shape), m = last_dim(&k->in[1].shape);
    const int64_t rows = m > 0 ? mu__elements(&k->in[1].shape) / m : 0;
    const size_t bytes = mu_dtype_bytes(dtype);
    if (n > INT32_MAX)
        return mu__error(MU_OUT_OF_RANGE, "searchsorted: a row has %lld elements; places are i32, so at most %d can be",
                         (long long)n, INT32_MAX);
    for (int64_t row = 0; row < rows; row++)
        search_for(dtype)((const char *)k->in[0].data + (size_t)(row * n) * bytes, (int32_t)n,
                          (const char *)k->in[1].data + (size_t)(row * m) * bytes, m, right,
                          (int32_t *)k->out[0].data + row * m);
    return MU_OK;
}

static const mu_attr_spec search_attrs[] = {{"right", MU_ATTR_BOOL, offsetof(mu_search_attrs, right)}, {0}};
static const mu_search_attrs left_side = {false};
static const mu_sample samples_search[] = {
    {.n_in = 2, .in = {MU_DIMS(2, 1), MU_DIMS(2, 4)}, .attrs = &left_side, .no_grad = 3},
    {0},
};
const mu_op mu_op_searchsorted = {
    .name = "searchsorted", .n_in = 2, .n_out = 1, .dtypes = MU_NUMBERS, .attrs_bytes = sizeof(mu_search_attrs),
    .attrs = search_attrs, .infer = search_infer, .ref = search_ref, .samples = samples_search,
};
mu_tensor *mu_searchsorted(mu_tensor *sequence, mu_tensor *values, bool right)
{
    mu_search_attrs attrs = {.right = right};
    return mu__apply2(&mu_op_searchsorted, &attrs, sequence, values);
}
