// Lowering of attention and its gradient to StableHLO, on whole matrices of scores.
//
// 16-bit floats are computed in float32. A query that attends to no key gets the mean of all values, as in the plain
// loops.
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include <math.h>

static mu_hlo binary(mu_emitter *e, const char *op, mu_hlo a, mu_hlo b) { return mu__hlo_binary(e, op, a, b); }

// Mask of the keys that each query attends to, in the shape of the scores.
static mu_hlo seen_keys(mu_lowering *l, const mu_shape *scores, int mask)
{
    mu_emitter *e = l->emitter;
    mu_hlo seen = mu__hlo_fill(e, MU_BOOL, scores, 1);
    if (((const mu_attention_attrs *)l->attrs)->causal) {
        const double offset = (double)(scores->dims[scores->rank - 1] - scores->dims[scores->rank - 2]);
        const mu_hlo query = mu__hlo_iota(e, MU_I64, scores, scores->rank - 2);
        const mu_hlo last = binary(e, "stablehlo.add", query, mu__hlo_fill(e, MU_I64, scores, offset));
        seen = mu__hlo_compare(e, "LE", mu__hlo_iota(e, MU_I64, scores, scores->rank - 1), last);
    }
    if (mask < l->n_in)
        seen = binary(e, "stablehlo.and", seen, mu__hlo_broadcast_to(e, l->in[mask], scores));
    return seen;
}

typedef struct scored {
    mu_emitter *e;
    mu_hlo q, k, v, seen, scores, scale; // scores: hidden ones are set far below all others
    mu_ints last, rows;                  // last: the axis of keys; rows: all other axes
} scored;

static scored scores_of(mu_lowering *l, int mask)
{
    mu_emitter *e = l->emitter;
    scored s = {.e = e, .q = mu__hlo_wide(e, l->in[0]), .k = mu__hlo_wide(e, l->in[1]), .v = mu__hlo_wide(e, l->in[2])};
    const mu_hlo products = mu__hlo_product(e, s.q, s.k, false, true);
    const mu_shape *shape = &products.spec.shape;
    s.last = (mu_ints){.n = 1, .at = {shape->rank - 1}};
    for (int axis = 0; axis < shape->rank - 1; axis++)
        s.rows.at[s.rows.n++] = axis;
    s.scale = mu__hlo_fill(e, products.spec.dtype, shape, ((const mu_attention_attrs *)l->attrs)->scale);
    s.seen = seen_keys(l, shape, mask);
    s.scores = mu__hlo_select(e, s.seen, binary(e, "stablehlo.multiply", products, s.scale),
                              mu__hlo_fill(e, products.spec.dtype, shape, -1e30));
    return s;
}

static mu_hlo over_keys(const scored *s, mu_hlo rows)
{
    return mu__hlo_broadcast(s->e, rows, &s->scores.spec.shape, &s->rows);
}

static mu_hlo row_sums(const scored *s, mu_hlo a)
{
    return mu__hlo_reduce(s->e, "stablehlo.add", a, mu__hlo_number(s->e, a.spec.dtype, 0), &s->last);
}

mu_status mu__lower_attention(mu_lowering *l)
{
    const scored s = scores_of(l, 3);
    mu_emitter *e = s.e;
    const mu_dtype dtype = s.scores.spec.dtype;
    const mu_hlo most = mu__hlo_reduce(e, "stablehlo.maximum", s.scores, mu__hlo_minmax(e, dtype, false), &s.last);
    const mu_hlo powers =
        mu__hlo_unary(e, "stablehlo.exponential", binary(e, "stablehlo.subtract", s.scores, over_keys(&s, most)));
    const mu_hlo sum = row_sums(&s, powers), weights = binary(e, "stablehlo.divide", powers, over_keys(&s, sum));
    const mu_hlo log_sum = binary(e, "stablehlo.add", most, mu__hlo_unary(e, "stablehlo.log", sum));
    const mu_hlo blind = mu__hlo_compare(e, "LE", most, mu__hlo_fill(e, dtype, &most.spec.shape, -1e30));
    l->out[1] = mu__hlo_select(e, blind, mu__hlo_fill(e, dtype, &most.spec.shape, -INFINITY), log_sum);
    return mu__lowered(l, 0, mu__hlo_convert(e, mu__hlo_product(e, weights, s.v, false, false), l->out[0].spec.dtype));
}

// Inputs (q, k, v, y, log_sum, dy[, mask]).
mu_status mu__lower_attention_grad(mu_lowering *l)
{
    const scored s = scores_of(l, 6);
    mu_emitter *e = s.e;
    const mu_dtype dtype = s.scores.spec.dtype;
    const mu_shape *shape = &s.scores.spec.shape;
    const mu_hlo zero = mu__hlo_fill(e, dtype, shape, 0);
    const mu_hlo dy = mu__hlo_wide(e, l->in[5]), log_sum = mu__hlo_wide(e, l->in[4]);
    const mu_hlo below = mu__hlo_fill(e, dtype, &log_sum.spec.shape, -1e30);
    const mu_hlo blind = over_keys(&s, mu__hlo_compare(e, "LE", log_sum, below));
    const mu_hlo shifted = binary(e, "stablehlo.subtract", s.scores, over_keys(&s, log_sum));
    const mu_hlo powers = mu__hlo_select(e, s.seen, mu__hlo_unary(e, "stablehlo.exponential", shifted), zero);
    const mu_hlo even = mu__hlo_fill(e, dtype, shape, 1.0 / (double)shape->dims[shape->rank - 1]);
    const mu_hlo weights = mu__hlo_select(e, blind, even, powers);
    const mu_hlo along = row_sums(&s, binary(e, "stablehlo.multiply", dy, mu__hlo_wide(e, l->in[3])));
    const mu_hlo through =
        binary(e, "stablehlo.subtract", mu__hlo_product(e, dy, s.v, false, true), over_keys(&s, along));
    const mu_hlo ds = binary(e, "stablehlo.multiply", binary(e, "stablehlo.multiply", weights, through), s.scale);
    const mu_hlo seen_ds = mu__hlo_select(e, s.seen, ds, zero);
    const mu_hlo dk = mu__hlo_product(e, seen_ds, s.q, true, false), dv = mu__hlo_product(e, weights, dy, true, false);
    l->out[1] = mu__hlo_convert(e, dk, l->out[1].spec.dtype);
    l->out[2] = mu__hlo_convert(e, dv, l->out[2].spec.dtype);
    const mu_hlo dq = mu__hlo_product(e, seen_ds, s.k, false, false);
    return mu__lowered(l, 0, mu__hlo_convert(e, dq, l->out[0].spec.dtype));
}
