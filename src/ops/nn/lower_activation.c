// Lowerings of activations and other element-wise ops that take several StableHLO operations.
//
// The formulas are those of the plain loops, in float32 for narrower types. NaN propagates.
#include "ops/core/attrs.h"
#include "ops/core/lower.h"

#include <float.h>
#include <math.h>

static mu_hlo number_like(mu_emitter *e, mu_hlo x, double value)
{
    return mu__hlo_fill(e, x.spec.dtype, &x.spec.shape, value);
}
static mu_hlo plus(mu_emitter *e, mu_hlo a, mu_hlo b) { return mu__hlo_binary(e, "stablehlo.add", a, b); }
static mu_hlo times(mu_emitter *e, mu_hlo a, mu_hlo b) { return mu__hlo_binary(e, "stablehlo.multiply", a, b); }
static mu_hlo over(mu_emitter *e, mu_hlo a, mu_hlo b) { return mu__hlo_binary(e, "stablehlo.divide", a, b); }
static mu_hlo minus(mu_emitter *e, mu_hlo x) { return mu__hlo_unary(e, "stablehlo.negate", x); }

static mu_hlo between(mu_emitter *e, mu_hlo x, double low, double high)
{
    const mu_hlo above = mu__hlo_binary(e, "stablehlo.maximum", x, number_like(e, x, low));
    return mu__hlo_binary(e, "stablehlo.minimum", above, number_like(e, x, high));
}

// max(x, 0) + log(1 + exp(-|x|)), which does not overflow.
static mu_hlo soft_plus(mu_emitter *e, mu_hlo x)
{
    const mu_hlo power = mu__hlo_unary(e, "stablehlo.exponential", minus(e, mu__hlo_unary(e, "stablehlo.abs", x)));
    const mu_hlo above = mu__hlo_binary(e, "stablehlo.maximum", x, number_like(e, x, 0));
    return plus(e, above, mu__hlo_unary(e, "stablehlo.log_plus_one", power));
}

// `negative` for x < 0, else `other`.
static mu_hlo by_sign(mu_emitter *e, mu_hlo x, mu_hlo negative, mu_hlo other)
{
    return mu__hlo_select(e, mu__hlo_compare(e, "LT", x, number_like(e, x, 0)), negative, other);
}

static mu_hlo exponential_unit(mu_emitter *e, mu_hlo x, double low, double scale)
{
    const mu_hlo curve = times(e, number_like(e, x, low), mu__hlo_unary(e, "stablehlo.exponential_minus_one", x));
    return by_sign(e, x, curve, scale == 1 ? x : times(e, number_like(e, x, scale), x));
}

static mu_hlo gelu_by_tanh(mu_emitter *e, mu_hlo x)
{
    const mu_hlo cube = times(e, times(e, x, x), times(e, x, number_like(e, x, 0.044715)));
    const mu_hlo inner = times(e, number_like(e, x, sqrt(2 / 3.14159265358979323846)), plus(e, x, cube));
    const mu_hlo bent = plus(e, number_like(e, x, 1), mu__hlo_unary(e, "stablehlo.tanh", inner));
    return times(e, times(e, number_like(e, x, 0.5), x), bent);
}

mu_status mu__lower_activation(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_op *op = l->op;
    const mu_hlo x = mu__hlo_wide(e, l->in[0]);
    const double slope = op == &mu_op_leaky_relu || op == &mu_op_elu ? ((const mu_alpha_attrs *)l->attrs)->alpha : 0;
    mu_hlo y = {.id = -1};
    if (op == &mu_op_softplus)
        y = soft_plus(e, x);
    else if (op == &mu_op_log_sigmoid)
        y = minus(e, soft_plus(e, minus(e, x)));
    else if (op == &mu_op_softsign)
        y = over(e, x, plus(e, number_like(e, x, 1), mu__hlo_unary(e, "stablehlo.abs", x)));
    else if (op == &mu_op_relu6)
        y = between(e, x, 0, 6);
    else if (op == &mu_op_hard_sigmoid)
        y = between(e, plus(e, over(e, x, number_like(e, x, 6)), number_like(e, x, 0.5)), 0, 1);
    else if (op == &mu_op_leaky_relu)
        y = by_sign(e, x, times(e, number_like(e, x, slope), x), x);
    else if (op == &mu_op_elu)
        y = exponential_unit(e, x, slope, 1);
    else if (op == &mu_op_selu)
        y = exponential_unit(e, x, 1.7580993408473768599, 1.0507009873554804934);
    else if (op == &mu_op_gelu_tanh)
        y = gelu_by_tanh(e, x);
    else if (op == &mu_op_silu)
        y = times(e, x, mu__hlo_unary(e, "stablehlo.logistic", x));
    else if (op == &mu_op_mish)
        y = times(e, x, mu__hlo_unary(e, "stablehlo.tanh", soft_plus(e, x)));
    else if (op == &mu_op_reciprocal)
        y = over(e, number_like(e, x, 1), x);
    return mu__lowered(l, 0, mu__hlo_convert(e, y, l->out[0].spec.dtype));
}

// softplus(x) - x z, or its derivative times dy: (logits, labels) or (dy, logits, labels).
mu_status mu__lower_sigmoid_loss(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const bool grad = l->op == &mu_op_sigmoid_cross_entropy_grad;
    const mu_hlo x = mu__hlo_wide(e, l->in[grad]), z = mu__hlo_wide(e, l->in[grad + 1]);
    const mu_hlo above = grad ? mu__hlo_unary(e, "stablehlo.logistic", x) : soft_plus(e, x);
    const mu_hlo apart = mu__hlo_binary(e, "stablehlo.subtract", above, grad ? z : times(e, x, z));
    const mu_hlo y = grad ? times(e, mu__hlo_wide(e, l->in[0]), apart) : apart;
    return mu__lowered(l, 0, mu__hlo_convert(e, y, l->out[0].spec.dtype));
}

mu_status mu__lower_predicate(mu_lowering *l)
{
    const mu_hlo x = l->in[0];
    if (l->op == &mu_op_is_nan)
        return mu__lowered(l, 0, mu__hlo_compare(l->emitter, "NE", x, x));
    return mu__lowered(l, 0,
                       mu__hlo_compare(l->emitter, "EQ", mu__hlo_unary(l->emitter, "stablehlo.abs", x),
                                       number_like(l->emitter, x, INFINITY)));
}

mu_status mu__lower_squared_difference(mu_lowering *l)
{
    const mu_shape *shape = &l->out[0].spec.shape;
    const mu_hlo a = mu__hlo_broadcast_to(l->emitter, l->in[0], shape),
                 b = mu__hlo_broadcast_to(l->emitter, l->in[1], shape);
    const mu_hlo apart = mu__hlo_binary(l->emitter, "stablehlo.subtract", a, b);
    return mu__lowered(l, 0, times(l->emitter, apart, apart));
}

mu_status mu__lower_clip(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &l->out[0].spec.shape;
    const mu_hlo x = mu__hlo_broadcast_to(e, l->in[0], shape), low = mu__hlo_broadcast_to(e, l->in[1], shape);
    const mu_hlo below = mu__hlo_binary(e, "stablehlo.minimum", x, mu__hlo_broadcast_to(e, l->in[2], shape));
    return mu__lowered(l, 0, mu__hlo_binary(e, "stablehlo.maximum", below, low));
}

mu_status mu__lower_divide_no_nan(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &l->out[0].spec.shape;
    const bool half = mu__dtype_is_half(l->in[1].spec.dtype);
    const mu_hlo a = mu__hlo_wide(e, mu__hlo_broadcast_to(e, l->in[0], shape)),
                 b = mu__hlo_wide(e, mu__hlo_broadcast_to(e, l->in[1], shape));
    // XLA may take a denormal bfloat16 for 0 where it divides, and not where it compares.
    const mu_hlo zero = number_like(e, a, 0), least = number_like(e, a, FLT_MIN);
    const mu_hlo is_zero = half ? mu__hlo_compare(e, "LT", mu__hlo_unary(e, "stablehlo.abs", b), least)
                                : mu__hlo_compare(e, "EQ", b, zero);
    const mu_hlo y = mu__hlo_select(e, is_zero, zero, over(e, a, b));
    return mu__lowered(l, 0, mu__hlo_convert(e, y, l->out[0].spec.dtype));
}

mu_status mu__lower_concat(mu_lowering *l)
{
    char text[64];
    snprintf(text, sizeof text, "{dimension = %lld : i64}", (long long)((const mu_axis_attrs *)l->attrs)->axis);
    return mu__lowered(l, 0,
                       l->emitter->add(l->emitter, &l->out[0].spec, "stablehlo.concatenate", l->n_in, l->in, text));
}

// The part of a concatenation's gradient (input 0) that belongs to one of the other inputs; only their shapes are used.
mu_status mu__lower_concat_part(mu_lowering *l)
{
    const mu_part_attrs *attrs = l->attrs;
    const mu_shape *whole = &l->in[0].spec.shape, *part = &l->out[0].spec.shape;
    mu_ints begin = {.n = whole->rank}, end = begin, strides = begin;
    for (int i = 0; i < whole->rank; i++) {
        end.at[i] = part->dims[i];
        strides.at[i] = 1;
    }
    for (int64_t i = 0; i < attrs->index; i++)
        begin.at[attrs->axis] += l->in[1 + i].spec.shape.dims[attrs->axis];
    end.at[attrs->axis] += begin.at[attrs->axis];
    return mu__lowered(l, 0, mu__hlo_slice(l->emitter, l->in[0], &begin, &end, &strides));
}

// A class outside the depth gives a row without a one.
mu_status mu__lower_one_hot(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &l->out[0].spec.shape;
    const mu_hlo wanted = mu__hlo_convert(e, l->in[0], MU_I64);
    mu_ints rows = {.n = wanted.spec.shape.rank};
    for (int i = 0; i < rows.n; i++)
        rows.at[i] = i;
    const mu_hlo index = mu__hlo_iota(e, MU_I64, shape, shape->rank - 1);
    const mu_hlo hit = mu__hlo_compare(e, "EQ", index, mu__hlo_broadcast(e, wanted, shape, &rows));
    return mu__lowered(l, 0, mu__hlo_convert(e, hit, l->out[0].spec.dtype));
}
