// Ops that order elements: sort, top_k.
//
// Every element becomes a 64-bit key whose unsigned order is the element's order (a NaN comes last, whatever
// the direction), so one comparison serves all types; places break ties, which makes every sort stable.
// Rows work along the last axis; other axes are brought there by transposition.
#include "ops/attrs.h"
#include "ops/grads.h"

#include <muster/ops.h>

typedef struct keyed {
    uint64_t key;
    int64_t place;
} keyed;

// A float32's key in the upper half.
static uint64_t ordered_float(float value, bool descending)
{
    uint32_t bits;
    value += 0.0f;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t key = bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
    return value != value ? UINT64_MAX : (uint64_t)(descending ? ~key : key) << 32;
}

static uint64_t ordered_key(mu_dtype dtype, const void *data, int64_t i, bool descending)
{
    uint64_t key;
    if (dtype == MU_F32)
        return ordered_float(((const float *)data)[i], descending);
    if (dtype == MU_I64) {
        key = (uint64_t)((const int64_t *)data)[i] ^ (uint64_t)1 << 63;
    } else {
        double value = mu__read_element(dtype, data, i) + 0.0;  // -0 becomes 0, its equal
        if (value != value)
            return UINT64_MAX;
        memcpy(&key, &value, sizeof key);
        key = key >> 63 ? ~key : key | (uint64_t)1 << 63;
    }
    return descending ? ~key : key;
}

// Few keys: each moves down to its place.
static void insert_keys(keyed *keys, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const keyed moving = keys[i];
        int64_t at = i;
        for (; at > 0 && keys[at - 1].key > moving.key; at--)
            keys[at] = keys[at - 1];
        keys[at] = moving;
    }
}

enum { VALUES = 256, FEW = 48 };  // of a byte; keys that are few

// Many keys: one stable pass per byte, lowest first; a byte that all keys share needs none. `other` holds n keys too.
static void distribute_keys(keyed *keys, keyed *other, int64_t n)
{
    keyed *from = keys, *to = other;
    uint64_t differs = 0;
    for (int64_t i = 1; i < n; i++)
        differs |= keys[i].key ^ keys[0].key;
    for (int shift = 0; shift < 64; shift += 8) {
        int64_t starts[VALUES] = {0}, sum = 0;
        if ((differs >> shift & (VALUES - 1)) == 0)
            continue;
        for (int64_t i = 0; i < n; i++)
            starts[from[i].key >> shift & (VALUES - 1)]++;
        for (int value = 0; value < VALUES; value++) {
            const int64_t count = starts[value];
            starts[value] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++)
            to[starts[from[i].key >> shift & (VALUES - 1)]++] = from[i];
        keyed *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != keys)
        memcpy(keys, from, (size_t)n * sizeof *keys);
}

// Memory for the keys of n elements, and as much again to sort them with.
static keyed *keys_for(int64_t n)
{
    return mu__alloc(2 * (size_t)n * sizeof(keyed));
}

static keyed *sorted_keys(const mu_view *x, int64_t first, int64_t n, bool descending, keyed *keys)
{
    for (int64_t i = 0; i < n; i++)
        keys[i] = (keyed){.key = ordered_key(x->dtype, x->data, first + i, descending), .place = i};
    if (n <= FEW)
        insert_keys(keys, n);
    else
        distribute_keys(keys, keys + n, n);
    return keys;
}

static void copy_element(const mu_view *from, int64_t i, const mu_view *to, int64_t j)
{
    size_t bytes = mu_dtype_bytes(from->dtype);
    memcpy((char *)to->data + (size_t)j * bytes, (const char *)from->data + (size_t)i * bytes, bytes);
}

// ---- sort and top_k: values and int32 places ----------------------------------------------------

static int64_t last_dim(const mu_shape *shape)
{
    return shape->dims[shape->rank - 1];
}

// Keeps the `wanted` first of a row's keys in order while it goes through them; equals stay in the order of places.
static void best_keys(const mu_view *x, int64_t first, int64_t n, int64_t wanted, keyed *keys)
{
    int64_t have = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = ordered_key(x->dtype, x->data, first + i, true);
        if (have == wanted && key >= keys[have - 1].key)
            continue;
        int64_t at = have < wanted ? have++ : wanted - 1;
        for (; at > 0 && keys[at - 1].key > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = (keyed){.key = key, .place = i};
    }
}

static mu_status write_first(const mu_kernel *k, bool descending, int64_t count)
{
    const mu_view *x = &k->in[0];
    int64_t n = last_dim(&x->shape), rows = n > 0 ? mu__elements(&x->shape) / n : 0;
    keyed *keys = keys_for(n);
    if (!keys)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t row = 0; row < rows; row++) {
        if (descending && count > 0 && count <= FEW && count < n)
            best_keys(x, row * n, n, count, keys);
        else
            sorted_keys(x, row * n, n, descending, keys);
        for (int64_t i = 0; i < count; i++) {
            copy_element(x, row * n + keys[i].place, &k->out[0], row * count + i);
            ((int32_t *)k->out[1].data)[row * count + i] = (int32_t)keys[i].place;
        }
    }
    mu__free(keys);
    return MU_OK;
}

static mu_status need_an_axis(const mu_infer *infer)
{
    if (infer->in[0].shape.rank > 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: a scalar has no axis to order", infer->op->name);
}

static mu_status sort_infer(mu_infer *infer)
{
    MU_TRY(need_an_axis(infer));
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->out[1].dtype = MU_I32;
    return MU_OK;
}

static mu_status sort_ref(const mu_kernel *k)
{
    return write_first(k, ((const mu_sort_attrs *)k->attrs)->descending, last_dim(&k->in[0].shape));
}

// Back to the places that the values came from.
static mu_tensor *ordered_grad(mu_grad *g, int i)
{
    int last = g->x[0]->shape.rank - 1;
    mu_gather_attrs attrs = {.axis = last, .batch_dims = last};
    (void)i;
    return mu__apply3(&mu_op_gather_grad, &attrs, g->dy, g->y[1], g->x[0]);
}

static const mu_attr_spec sort_attrs[] = {{"descending", MU_ATTR_BOOL, offsetof(mu_sort_attrs, descending)}, {0}};
static const mu_sort_attrs up = {false}, down = {true};
static const mu_sample samples_sort[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 7)}, .attrs = &up},
    {.n_in = 1, .in = {MU_DIMS(7)}, .attrs = &down},
    {.n_in = 1, .in = {MU_DIMS(3, 0)}, .attrs = &down},
    {0},
};
const mu_op mu_op_sort = {
    .name = "sort", .n_in = 1, .n_out = 2, .dtypes = MU_NUMBERS, .attrs_bytes = sizeof(mu_sort_attrs),
    .attrs = sort_attrs, .infer = sort_infer, .grad = ordered_grad, .ref = sort_ref, .samples = samples_sort,
};

// Sorts along any axis: `which` output, in x's order of axes.
static mu_tensor *sorted(mu_tensor *x, int axis, bool descending, int which)
{
    mu_tensor *out[2];
    mu_sort_attrs attrs;
    int axes[MU_MAX_RANK], at = !x || mu__pending() ? 0 : mu__axis(axis, x->shape.rank, "sort");
    memset(&attrs, 0, sizeof attrs);
    attrs.descending = descending;
    int last = x ? x->shape.rank - 1 : 0;
    for (int i = 0; i < MU_MAX_RANK; i++)
        axes[i] = i == at ? last : i == last ? at : i;
    bool turned = x && at >= 0 && at != last;
    mu_tensor *in = turned ? mu_transpose(x, axes) : x;
    if (mu__apply(&mu_op_sort, &attrs, 1, &in, 0, NULL, out) != MU_OK)
        return NULL;
    return turned ? mu_transpose(out[which], axes) : out[which];
}

mu_tensor *mu_sort(mu_tensor *x, int axis, bool descending)
{
    return sorted(x, axis, descending, 0);
}

mu_tensor *mu_argsort(mu_tensor *x, int axis, bool descending)
{
    return sorted(x, axis, descending, 1);
}

static mu_status top_k_infer(mu_infer *infer)
{
    int64_t k = ((const mu_top_k_attrs *)infer->attrs)->k;
    MU_TRY(need_an_axis(infer));
    mu_shape shape = infer->in[0].shape;
    int64_t n = last_dim(&shape);
    if (k < 0 || (n != MU_UNKNOWN && k > n))
        return mu__error(MU_INVALID_ARGUMENT, "top_k: the %lld largest of an axis of size %lld", (long long)k,
                         (long long)n);
    shape.dims[shape.rank - 1] = k;
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = shape};
    infer->out[1] = (mu_spec){.dtype = MU_I32, .shape = shape};
    return MU_OK;
}

static mu_status top_k_ref(const mu_kernel *k)
{
    return write_first(k, true, ((const mu_top_k_attrs *)k->attrs)->k);
}

static const mu_attr_spec top_k_attrs[] = {{"k", MU_ATTR_INT, offsetof(mu_top_k_attrs, k)}, {0}};
static const mu_top_k_attrs three = {3}, none = {0};
static const mu_sample samples_top_k[] = {
    {.n_in = 1, .in = {MU_DIMS(2, 7)}, .attrs = &three},
    {.n_in = 1, .in = {MU_DIMS(2, 3)}, .attrs = &none},
    {0},
};
const mu_op mu_op_top_k = {
    .name = "top_k", .n_in = 1, .n_out = 2, .dtypes = MU_NUMBERS, .attrs_bytes = sizeof(mu_top_k_attrs),
    .attrs = top_k_attrs, .infer = top_k_infer, .grad = ordered_grad, .ref = top_k_ref, .samples = samples_top_k,
};

static mu_status apply_pair(const mu_op *op, const void *attrs, mu_tensor *x, mu_tensor **first, mu_tensor **second)
{
    mu_tensor *out[2];
    mu_status status = mu__apply(op, attrs, 1, &x, 0, NULL, out);
    if (first)
        *first = out[0];
    if (second)
        *second = out[1];
    return status;
}

mu_status mu_top_k(mu_tensor *x, int64_t k, mu_tensor **values, mu_tensor **indices)
{
    mu_top_k_attrs attrs = {.k = k};
    return apply_pair(&mu_op_top_k, &attrs, x, values, indices);
}
