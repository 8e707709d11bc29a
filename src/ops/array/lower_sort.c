// Lowerings of sort, top_k and searchsorted to StableHLO.
//
// Sorting is one stable operation on values and indices, with the order of the plain loops: -0 equals 0, and NaNs come
// last in both directions. Searching is a binary search for all values at once, whose steps are unrolled.
#include "ops/core/attrs.h"
#include "ops/core/lower.h"

// ---- Order --------------------------------------------------------------------------------------

// Whether a comes before b in a sorted row.
static mu_hlo comes_before(mu_emitter *e, mu_hlo a, mu_hlo b, bool descending)
{
    const mu_hlo before = mu__hlo_compare(e, descending ? "GT" : "LT", a, b);
    if (!mu__dtype_is_float(a.spec.dtype))
        return before;
    const mu_hlo only_b =
        mu__hlo_binary(e, "stablehlo.and", mu__hlo_compare(e, "EQ", a, a), mu__hlo_compare(e, "NE", b, b));
    return mu__hlo_binary(e, "stablehlo.or", before, only_b);
}

// Sorts rows along the last axis, together with the elements' indices.
static void sort_rows(mu_emitter *e, mu_hlo x, bool descending, mu_hlo out[2])
{
    char text[80];
    const int axis = x.spec.shape.rank - 1;
    const mu_hlo in[] = {x, mu__hlo_iota(e, MU_I32, &x.spec.shape, axis)};
    mu_hlo arguments[4]; // two values, then their indices
    for (int i = 0; i < 4; i++)
        arguments[i].spec = (mu_spec){.dtype = in[i / 2].spec.dtype};
    for (int i = 0; i < 2; i++)
        out[i].spec = in[i].spec;
    mu_hlo_operation sort = {.name = "stablehlo.sort", .n_in = 2, .in = in, .n_out = 2, .out = out};
    e->open(e, &sort);
    e->enter(e, &sort, 4, arguments);
    const mu_hlo before = comes_before(e, arguments[0], arguments[1], descending);
    e->leave(e, 1, &before);
    snprintf(text, sizeof text, "{dimension = %d : i64, is_stable = true}", axis);
    e->close(e, &sort, text);
}

mu_status mu__lower_sort(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const bool top = l->op == &mu_op_top_k;
    const mu_shape *shape = &l->out[0].spec.shape;
    mu_hlo sorted[2];
    if (mu__elements(shape) == 0) {
        l->out[1] = mu__hlo_fill(e, MU_I32, shape, 0);
        return mu__lowered(l, 0, mu__hlo_fill(e, l->out[0].spec.dtype, shape, 0));
    }
    sort_rows(e, l->in[0], top || ((const mu_sort_attrs *)l->attrs)->descending, sorted);
    for (int i = 0; i < 2; i++)
        l->out[i] = mu__hlo_slice_axis(e, sorted[i], shape->rank - 1, 0, shape->dims[shape->rank - 1], 1);
    return e->status;
}

// ---- Search -------------------------------------------------------------------------------------

// Whether elements x of the sequences come before the positions of the values.
static mu_hlo stands_before(mu_emitter *e, mu_hlo x, mu_hlo value, bool right)
{
    const mu_hlo before = mu__hlo_compare(e, right ? "LE" : "LT", x, value);
    if (!mu__dtype_is_float(x.spec.dtype))
        return before;
    mu_hlo last = mu__hlo_compare(e, "NE", value, value); // a NaN is ordered after all numbers
    if (!right)
        last = mu__hlo_binary(e, "stablehlo.and", last, mu__hlo_compare(e, "EQ", x, x));
    return mu__hlo_binary(e, "stablehlo.or", before, last);
}

// Advances by `length` where the element `length - 1` after the position is ordered before the value.
static mu_hlo moved_on(mu_emitter *e, mu_hlo sequences, mu_hlo values, mu_hlo at, int64_t length, bool right)
{
    const mu_shape *shape = &at.spec.shape;
    const mu_hlo looked = mu__hlo_binary(e, "stablehlo.add", at, mu__hlo_fill(e, MU_I64, shape, (double)(length - 1)));
    const mu_hlo before = stands_before(e, mu__hlo_take(e, sequences, 0, looked), values, right);
    return mu__hlo_binary(
        e, "stablehlo.add", at,
        mu__hlo_select(e, before, mu__hlo_fill(e, MU_I64, shape, (double)length), mu__hlo_fill(e, MU_I64, shape, 0)));
}

mu_status mu__lower_search(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const bool right = ((const mu_search_attrs *)l->attrs)->right;
    const mu_shape *in = &l->in[0].spec.shape, *out = &l->out[0].spec.shape;
    const int64_t n = in->dims[in->rank - 1], m = out->dims[out->rank - 1], total = mu__elements(out);
    if (total == 0 || n == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, MU_I32, out, 0));
    const mu_shape table = MU_SHAPE(total / m, m), vector = MU_SHAPE(total), all = MU_SHAPE(total / m * n);
    const mu_hlo sequences = mu__hlo_reshape(e, l->in[0], &all), values = mu__hlo_reshape(e, l->in[1], &vector);
    const mu_hlo begin = mu__hlo_reshape(e,
                                         mu__hlo_binary(e, "stablehlo.multiply", mu__hlo_iota(e, MU_I64, &table, 0),
                                                        mu__hlo_fill(e, MU_I64, &table, (double)n)),
                                         &vector);
    mu_hlo at = begin;
    int64_t length = n;
    for (; length > 1; length -= length / 2)
        at = moved_on(e, sequences, values, at, length / 2, right);
    at = moved_on(e, sequences, values, at, 1, right);
    const mu_hlo position = mu__hlo_convert(e, mu__hlo_binary(e, "stablehlo.subtract", at, begin), MU_I32);
    return mu__lowered(l, 0, mu__hlo_reshape(e, position, out));
}
