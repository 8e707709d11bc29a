// searchsorted: insertion positions of values in sorted rows.
//
// Binary search for many values in parallel, without branches, so that their memory accesses overlap. A NaN sorts last.
// Independent of how the rows were sorted.
#include "ops/core/attrs.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

static int64_t last_dim(const mu_shape *shape) { return shape->dims[shape->rank - 1]; }

// ---- searchsorted -------------------------------------------------------------------------------

static mu_status search_infer(mu_infer *infer)
{
    mu_shape sequence = infer->in[0].shape, values = infer->in[1].shape;
    if (sequence.rank == 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: a scalar has no axis to search along", infer->op->name);
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    infer->out[0] = (mu_spec){.dtype = MU_I32, .shape = values};
    if (values.rank == sequence.rank)
        values.dims[values.rank - 1] = last_dim(&sequence);
    if (mu__shape_compatible(&sequence, &values))
        return MU_OK;
    char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT, "searchsorted: shapes %s and %s may differ only in the last axis",
                     mu__shape_text(&infer->in[0].shape, a), mu__shape_text(&infer->in[1].shape, b));
}

enum { SIDE_BY_SIDE = 32 };

#define IS_NAN(x) ((x) != (x))
#define NEVER(x)  false

// Positions of m values in a row of n ascending elements, NaNs last; ODD(x): whether x is NaN.
#define SEARCH(T, name, ODD)                                                                                           \
    static inline bool name##_before(T x, T value, bool right)                                                         \
    {                                                                                                                  \
        return right ? (x <= value) | ODD(value) : (x < value) | (ODD(value) & !ODD(x));                               \
    }                                                                                                                  \
                                                                                                                       \
    static inline __attribute__((always_inline)) void name##_side(const T *row, int32_t n, const T *values, int64_t m, \
                                                                  bool right, int32_t *positions)                      \
    {                                                                                                                  \
        for (int64_t i = 0; i < m; i += SIDE_BY_SIDE) {                                                                \
            const int64_t count = MU_MIN((int64_t)SIDE_BY_SIDE, m - i);                                                \
            T value[SIDE_BY_SIDE];                                                                                     \
            int32_t at[SIDE_BY_SIDE] = {0}, length = n;                                                                \
            for (int64_t k = 0; k < SIDE_BY_SIDE; k++)                                                                 \
                value[k] = values[i + MU_MIN(k, count - 1)];                                                           \
            for (; length > 1; length -= length / 2) {                                                                 \
                const T *middle = row + length / 2 - 1;                                                                \
                const int32_t half = length / 2;                                                                       \
                for (int64_t k = 0; k < SIDE_BY_SIDE; k++)                                                             \
                    at[k] += half & -(int32_t)name##_before(middle[at[k]], value[k], right);                           \
            }                                                                                                          \
            for (int64_t k = 0; k < count; k++)                                                                        \
                positions[i + k] = n > 0 ? at[k] + name##_before(row[at[k]], value[k], right) : 0;                     \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    MU_PER_ISA(name, (const void *in, int32_t n, const void *wanted, int64_t m, bool right, int32_t *positions),       \
               (in, n, wanted, m, right, positions))                                                                   \
    {                                                                                                                  \
        if (right)                                                                                                     \
            name##_side(in, n, wanted, m, true, positions);                                                            \
        else                                                                                                           \
            name##_side(in, n, wanted, m, false, positions);                                                           \
    }
SEARCH(float, search_f32, IS_NAN)
SEARCH(double, search_f64, IS_NAN)
SEARCH(int64_t, search_i64, NEVER)
SEARCH(int32_t, search_i32, NEVER)
SEARCH(int16_t, search_i16, NEVER)
SEARCH(int8_t, search_i8, NEVER)
SEARCH(uint8_t, search_u8, NEVER)

typedef void search(const void *in, int32_t n, const void *wanted, int64_t m, bool right, int32_t *positions);

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

// Whether element i of the sequence is ordered before the position of value j.
static bool stands_before(const mu_kernel *k, int64_t i, int64_t j, bool right)
{
    if (!mu__dtype_is_float(k->in[0].dtype)) {
        const int64_t x = mu__read_whole(&k->in[0], i), value = mu__read_whole(&k->in[1], j);
        return right ? x <= value : x < value;
    }
    const double x = mu__read_real(&k->in[0], i), value = mu__read_real(&k->in[1], j);
    return right ? x <= value || value != value : x < value || (value != value && x == x);
}

static mu_status search_ref(const mu_kernel *k)
{
    const bool right = ((const mu_search_attrs *)k->attrs)->right;
    const int64_t n = last_dim(&k->in[0].shape), m = last_dim(&k->in[1].shape);
    for (int64_t j = 0; j < mu__elements(&k->in[1].shape); j++) {
        int32_t position = 0;
        while (position < n && stands_before(k, j / m * n + position, j, right))
            position++;
        ((int32_t *)k->out[0].data)[j] = position;
    }
    return MU_OK;
}

static mu_status search_fast(const mu_kernel *k)
{
    const mu_dtype dtype = k->in[0].dtype;
    if (dtype == MU_F16 || dtype == MU_BF16)
        return mu__run_as_f32(k, search_fast);
    const bool right = ((const mu_search_attrs *)k->attrs)->right;
    const int64_t n = last_dim(&k->in[0].shape), m = last_dim(&k->in[1].shape);
    const int64_t rows = m > 0 ? mu__elements(&k->in[1].shape) / m : 0;
    const size_t bytes = mu_dtype_bytes(dtype);
    if (n > INT32_MAX)
        return mu__error(MU_OUT_OF_RANGE, "searchsorted: a row has %lld elements; the limit of int32 positions is %d",
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
    .name = "searchsorted",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_NUMBERS,
    .attrs_bytes = sizeof(mu_search_attrs),
    .attrs = search_attrs,
    .infer = search_infer,
    .ref = search_ref,
    .cpu = {.run = search_fast},
    .samples = samples_search,
    .lower = mu__lower_search,
};
mu_tensor *mu_searchsorted(mu_tensor *sequence, mu_tensor *values, bool right)
{
    mu_search_attrs attrs = {.right = right};
    return mu__apply2(&mu_op_searchsorted, &attrs, sequence, values);
}
