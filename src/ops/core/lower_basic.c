// Lowerings of sources, element-wise ops, shapes, reductions, variables and collectives to StableHLO.
//
// An op that is a single StableHLO operation only names it; this file has the others. Variables are values: a read
// returns the current value, an assignment replaces it.
#include "ops/core/lower.h"
#include "ops/math/reduce.h"
#include "ops/nn/nn.h"

// ---- Sources ------------------------------------------------------------------------------------

mu_status mu__lower_constant(mu_lowering *l)
{
    const mu_tensor *tensor = ((const mu_constant_attrs *)l->attrs)->tensor;
    const mu_spec spec = mu__spec_of(tensor);
    return mu__lowered(l, 0, mu__hlo_data(l->emitter, &spec, mu__host_read(tensor)));
}

// ---- Element by element -------------------------------------------------------------------------

mu_status mu__lower_elementwise(mu_lowering *l)
{
    mu_hlo operands[4];
    if (l->n_in > (int)MU_COUNT(operands) || l->n_out != 1)
        return mu__error(MU_INTERNAL, "op %s names a StableHLO operation, but has %d inputs and %d outputs",
                         l->op->name, l->n_in, l->n_out);
    for (int i = 0; i < l->n_in; i++)
        operands[i] = mu__hlo_broadcast_to(l->emitter, l->in[i], &l->out[0].spec.shape);
    return mu__lowered(l, 0, l->emitter->add(l->emitter, &l->out[0].spec, l->op->hlo, l->n_in, operands, NULL));
}

// As the plain loops do: a NaN, or a float that is too large, becomes the least int32 or int64, from which narrow
// integers take the low bits. XLA's conversion makes 0 and the greatest number.
static mu_hlo float_to_integer(mu_emitter *e, mu_hlo x, mu_dtype wide)
{
    const mu_hlo limit = mu__hlo_fill(e, x.spec.dtype, &x.spec.shape, wide == MU_I64 ? 0x1p63 : 0x1p31);
    const mu_hlo least = mu__hlo_fill(e, wide, &x.spec.shape, wide == MU_I64 ? -0x1p63 : -0x1p31);
    return mu__hlo_select(e, mu__hlo_compare(e, "LT", x, limit), mu__hlo_convert(e, x, wide), least);
}

mu_status mu__lower_cast(mu_lowering *l)
{
    const mu_dtype from = l->in[0].spec.dtype, to = l->out[0].spec.dtype;
    const bool truncates = mu__dtype_is_float(from) && mu__dtype_is_integer(to);
    const mu_hlo x = truncates ? float_to_integer(l->emitter, l->in[0], to == MU_I64 ? MU_I64 : MU_I32) : l->in[0];
    return mu__lowered(l, 0, mu__hlo_convert(l->emitter, x, to));
}

mu_status mu__lower_compare(mu_lowering *l)
{
    const mu_op *op = l->op;
    const char *direction = op == &mu_op_equal        ? "EQ"
                            : op == &mu_op_not_equal  ? "NE"
                            : op == &mu_op_less       ? "LT"
                            : op == &mu_op_less_equal ? "LE"
                            : op == &mu_op_greater    ? "GT"
                                                      : "GE";
    const mu_shape *shape = &l->out[0].spec.shape;
    const mu_hlo a = mu__hlo_broadcast_to(l->emitter, l->in[0], shape),
                 b = mu__hlo_broadcast_to(l->emitter, l->in[1], shape);
    return mu__lowered(l, 0, mu__hlo_compare(l->emitter, direction, a, b));
}

mu_status mu__lower_square(mu_lowering *l)
{
    return mu__lowered(l, 0, mu__hlo_binary(l->emitter, "stablehlo.multiply", l->in[0], l->in[0]));
}

// StableHLO has neither for unsigned types: there a value is its own size, and its sign is 1 unless it is 0.
mu_status mu__lower_sizes(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo x = l->in[0];
    const bool sign = l->op == &mu_op_sign;
    if (x.spec.dtype != MU_U8)
        return mu__lowered(l, 0, mu__hlo_unary(e, sign ? "stablehlo.sign" : "stablehlo.abs", x));
    const mu_hlo one = mu__hlo_fill(e, MU_U8, &x.spec.shape, 1);
    return mu__lowered(l, 0, sign ? mu__hlo_binary(e, "stablehlo.minimum", x, one) : x);
}

// ---- Shapes -------------------------------------------------------------------------------------

mu_status mu__lower_reshape(mu_lowering *l)
{
    return mu__lowered(l, 0, mu__hlo_reshape(l->emitter, l->in[0], &l->out[0].spec.shape));
}

mu_status mu__lower_transpose(mu_lowering *l)
{
    return mu__lowered(l, 0, mu__hlo_transpose(l->emitter, l->in[0], &((const mu_axes_attrs *)l->attrs)->axes));
}

mu_status mu__lower_broadcast(mu_lowering *l)
{
    return mu__lowered(l, 0, mu__hlo_broadcast_to(l->emitter, l->in[0], &l->out[0].spec.shape));
}

mu_status mu__lower_dim_size(mu_lowering *l)
{
    const mu_ints *axes = &((const mu_axes_attrs *)l->attrs)->axes;
    int64_t n = 1;
    for (int64_t i = 0; i < axes->n; i++)
        n *= l->in[0].spec.shape.dims[axes->at[i]];
    return mu__lowered(l, 0, mu__hlo_data(l->emitter, &l->out[0].spec, &n));
}

// ---- Reductions ---------------------------------------------------------------------------------

static mu_hlo add_up(mu_emitter *e, mu_hlo a, const mu_ints *axes)
{
    const mu_hlo wide = mu__hlo_wide(e, a);
    const mu_hlo sum = mu__hlo_reduce(e, "stablehlo.add", wide, mu__hlo_number(e, wide.spec.dtype, 0), axes);
    return mu__hlo_convert(e, sum, a.spec.dtype);
}

static mu_hlo mean_of(mu_emitter *e, mu_hlo a, const mu_ints *axes)
{
    const bool whole = mu__dtype_is_integer(a.spec.dtype); // the sum may overflow the mean's type
    const mu_hlo wide = whole ? mu__hlo_convert(e, a, MU_I64) : mu__hlo_wide(e, a), sum = add_up(e, wide, axes);
    int64_t n = 1;
    for (int64_t i = 0; i < axes->n; i++)
        n *= a.spec.shape.dims[axes->at[i]];
    // An integer divided by zero ends the process on XLA's CPU devices; the mean of no integers is 0, as their sum.
    const mu_hlo count = mu__hlo_fill(e, sum.spec.dtype, &sum.spec.shape, (double)(whole ? MU_MAX(n, 1) : n));
    return mu__hlo_convert(e, mu__hlo_binary(e, "stablehlo.divide", sum, count), a.spec.dtype);
}

// |x|, x^2 or |x|^3, as the op needs.
static mu_hlo power_of_size(mu_emitter *e, const mu_op *op, mu_hlo x)
{
    if (op == &mu_op_reduce_sizes)
        return mu__hlo_unary(e, "stablehlo.abs", x);
    const mu_hlo square = mu__hlo_binary(e, "stablehlo.multiply", x, x);
    return op == &mu_op_reduce_squares
               ? square
               : mu__hlo_binary(e, "stablehlo.multiply", square, mu__hlo_unary(e, "stablehlo.abs", x));
}

mu_status mu__lower_reduce_about(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo center = mu__hlo_broadcast_to(e, l->in[1], &l->in[0].spec.shape);
    const mu_hlo from = mu__hlo_binary(e, "stablehlo.subtract", l->in[0], center);
    const mu_hlo made = l->op == &mu_op_reduce_exp_about ? mu__hlo_unary(e, "stablehlo.exponential", from)
                                                         : mu__hlo_binary(e, "stablehlo.multiply", from, from);
    const mu_hlo y = add_up(e, made, &((const mu_reduce_attrs *)l->attrs)->axes);
    return mu__lowered(l, 0, mu__hlo_reshape(e, y, &l->out[0].spec.shape));
}

mu_status mu__lower_reduce(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_ints *axes = &((const mu_reduce_attrs *)l->attrs)->axes;
    const mu_hlo x = l->in[0];
    const mu_dtype dtype = x.spec.dtype;
    mu_hlo y = {.id = -1};
    if (l->op == &mu_op_reduce_squares || l->op == &mu_op_reduce_cubes || l->op == &mu_op_reduce_sizes)
        y = mu__hlo_convert(e, add_up(e, power_of_size(e, l->op, mu__hlo_wide(e, x)), axes), dtype);
    else if (l->op == &mu_op_reduce_largest)
        y = mu__hlo_reduce(e, "stablehlo.maximum", mu__hlo_unary(e, "stablehlo.abs", x),
                           mu__hlo_minmax(e, dtype, false), axes);
    else if (l->op == &mu_op_reduce_sum)
        y = add_up(e, x, axes);
    else if (l->op == &mu_op_reduce_mean)
        y = mean_of(e, x, axes);
    else if (l->op == &mu_op_reduce_prod)
        y = mu__hlo_reduce(e, "stablehlo.multiply", x, mu__hlo_number(e, dtype, 1), axes);
    else if (l->op == &mu_op_reduce_max || l->op == &mu_op_reduce_min)
        y = mu__hlo_reduce(e, l->op == &mu_op_reduce_max ? "stablehlo.maximum" : "stablehlo.minimum", x,
                           mu__hlo_minmax(e, dtype, l->op == &mu_op_reduce_min), axes);
    else
        y = mu__hlo_reduce(e, l->op == &mu_op_reduce_any ? "stablehlo.or" : "stablehlo.and", x,
                           mu__hlo_number(e, MU_BOOL, l->op == &mu_op_reduce_all), axes);
    return mu__lowered(l, 0, mu__hlo_reshape(e, y, &l->out[0].spec.shape));
}

// The index of the first extreme: the smallest index among the equal elements. A NaN counts as the extreme.
mu_status mu__lower_arg(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const int axis = (int)((const mu_axis_attrs *)l->attrs)->axis;
    const bool largest = l->op == &mu_op_argmax;
    const mu_ints axes = {.n = 1, .at = {axis}};
    const mu_hlo x = l->in[0];
    const mu_shape *shape = &x.spec.shape;
    MU_TRY(mu__check_extremes(l->op, shape, axis));
    const mu_hlo extreme = mu__hlo_reduce(e, largest ? "stablehlo.maximum" : "stablehlo.minimum", x,
                                          mu__hlo_minmax(e, x.spec.dtype, !largest), &axes);
    mu_ints others = {.n = 0};
    for (int i = 0; i < shape->rank; i++)
        if (i != axis)
            others.at[others.n++] = i;
    const mu_hlo everywhere = mu__hlo_broadcast(e, extreme, shape, &others);
    const mu_hlo hit =
        mu__hlo_binary(e, "stablehlo.or", mu__hlo_compare(e, "EQ", x, everywhere), mu__hlo_compare(e, "NE", x, x));
    const mu_hlo none = mu__hlo_fill(e, MU_I64, shape, (double)shape->dims[axis]);
    const mu_hlo index = mu__hlo_select(e, hit, mu__hlo_iota(e, MU_I64, shape, axis), none);
    return mu__lowered(l, 0, mu__hlo_reduce(e, "stablehlo.minimum", index, mu__hlo_minmax(e, MU_I64, true), &axes));
}

// Sums over the axes that broadcasting from the second input's shape to the first's added or expanded.
mu_status mu__lower_sum_to_like(mu_lowering *l)
{
    const mu_shape *from = &l->in[0].spec.shape, *to = &l->out[0].spec.shape;
    mu_ints axes = {.n = 0};
    for (int i = 0; i < from->rank; i++) {
        const int own = i - (from->rank - to->rank);
        if (own < 0 || (to->dims[own] == 1 && from->dims[i] != 1))
            axes.at[axes.n++] = i;
    }
    const mu_hlo sum = axes.n ? add_up(l->emitter, l->in[0], &axes) : l->in[0];
    return mu__lowered(l, 0, mu__hlo_reshape(l->emitter, sum, to));
}

// ---- Variables ----------------------------------------------------------------------------------

mu_status mu__lower_read(mu_lowering *l) { return mu__lowered(l, 0, l->state[0]); }

mu_status mu__lower_assign(mu_lowering *l)
{
    if (l->op == &mu_op_assign_variable)
        l->state[0] = l->in[0];
    else
        l->state[0] =
            mu__hlo_binary(l->emitter, l->op == &mu_op_assign_add_variable ? "stablehlo.add" : "stablehlo.subtract",
                           l->state[0], l->in[0]);
    return l->emitter->status;
}

mu_status mu__lower_replica_id(mu_lowering *l) { return mu__lowered(l, 0, mu__hlo_replica(l->emitter, MU_I32)); }
