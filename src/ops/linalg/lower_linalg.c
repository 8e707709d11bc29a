// Lowerings of cumulative sums, Cholesky factors, triangular systems and batch normalisation.
//
// A cumulative sum is a sliding window as long as the axis. In the reverse direction, the axis is reversed before and
// after.
#include "ops/core/attrs.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

// ---- cumsum and cumprod -------------------------------------------------------------------------

// Reduces each element with all elements before it along an axis.
static mu_hlo folded(mu_emitter *e, const char *op, mu_hlo a, double start, int axis)
{
    char lists[MU_HLO_TEXT / 4], pads[MU_HLO_TEXT / 4], text[2 * MU_HLO_TEXT];
    const char *type = mu__hlo_type(a.spec.dtype);
    const int rank = a.spec.shape.rank;
    const int64_t n = a.spec.shape.dims[axis];
    const mu_hlo operands[] = {a, mu__hlo_number(e, a.spec.dtype, start)};
    mu_ints window = {.n = rank};
    size_t at = 0;
    for (int i = 0; i < rank; i++) {
        window.at[i] = i == axis ? n : 1;
        at += (size_t)snprintf(pads + at, sizeof pads - at, "%s[%lld, 0]", i ? ", " : "",
                               i == axis ? (long long)n - 1 : 0);
    }
    snprintf(text, sizeof text,
             "({ ^bb0(%%p: tensor<%s>, %%q: tensor<%s>): %%r = \"%s\"(%%p, %%q) : (tensor<%s>, tensor<%s>) -> "
             "tensor<%s> \"stablehlo.return\"(%%r) : (tensor<%s>) -> () }) {window_dimensions = %s, padding = "
             "dense<[%s]> : tensor<%dx2xi64>}",
             type, type, op, type, type, type, type, mu__hlo_list(&window, lists), pads, rank);
    return e->add(e, &a.spec, "stablehlo.reduce_window", 2, operands, text);
}

// Shifts by one along the axis and puts `start` first.
static mu_hlo shifted(mu_emitter *e, mu_hlo a, double start, int axis)
{
    mu_ints low = {.n = a.spec.shape.rank}, high = {.n = a.spec.shape.rank}, inner = {.n = a.spec.shape.rank};
    low.at[axis] = 1;
    high.at[axis] = -1;
    return mu__hlo_pad(e, a, mu__hlo_number(e, a.spec.dtype, start), &low, &high, &inner);
}

mu_status mu__lower_cumulate(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_cumulate_attrs *attrs = l->attrs;
    const bool sum = l->op == &mu_op_cumsum;
    const double start = sum ? 0 : 1;
    const int axis = (int)attrs->axis;
    mu_hlo x = mu__hlo_wide(e, l->in[0]);
    if (mu__elements(&x.spec.shape) == 0)
        return mu__lowered(l, 0, l->in[0]);
    x = attrs->reverse ? mu__hlo_reverse(e, x, axis) : x;
    x = folded(e, sum ? "stablehlo.add" : "stablehlo.multiply", attrs->exclusive ? shifted(e, x, start, axis) : x,
               start, axis);
    x = attrs->reverse ? mu__hlo_reverse(e, x, axis) : x;
    return mu__lowered(l, 0, mu__hlo_convert(e, x, l->out[0].spec.dtype));
}

// ---- Factors and systems ------------------------------------------------------------------------

static mu_status raise_not_definite(const mu_fault *fault, int64_t position, int64_t value)
{
    (void)value;
    return mu__not_definite(position, fault->positions);
}

// A matrix that is not positive definite has numbers on the diagonal of its factor that are not positive, or none.
static void check_definite(mu_lowering *l, mu_hlo factor, mu_hlo on_diagonal)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &factor.spec.shape;
    const int64_t matrices = mu__elements_between(shape, 0, shape->rank - 2);
    const mu_fault fault = {.raise = raise_not_definite, .op = l->op, .positions = matrices};
    const mu_hlo zero = mu__hlo_fill(e, factor.spec.dtype, shape, 0);
    const mu_hlo not_positive = mu__hlo_unary(e, "stablehlo.not", mu__hlo_compare(e, "GT", factor, zero));
    const mu_shape flat = MU_SHAPE(matrices, shape->dims[shape->rank - 1] * shape->dims[shape->rank - 1]);
    const mu_hlo wrong = mu__hlo_reshape(e, mu__hlo_binary(e, "stablehlo.and", on_diagonal, not_positive), &flat);
    const mu_ints elements = {.n = 1, .at = {1}};
    const mu_hlo some = mu__hlo_reduce(e, "stablehlo.or", wrong, mu__hlo_number(e, MU_BOOL, 0), &elements);
    mu__hlo_fail(e, &fault, some, (mu_hlo){.id = -1});
}

mu_status mu__lower_cholesky(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo a = mu__hlo_wide(e, l->in[0]);
    const mu_shape *shape = &a.spec.shape;
    if (mu__elements(shape) == 0)
        return mu__lowered(l, 0, l->in[0]);
    const mu_hlo factor = e->add(e, &a.spec, "stablehlo.cholesky", 1, &a, "{lower = true}");
    const mu_hlo row = mu__hlo_iota(e, MU_I64, shape, shape->rank - 2),
                 column = mu__hlo_iota(e, MU_I64, shape, shape->rank - 1);
    const mu_hlo zero = mu__hlo_fill(e, a.spec.dtype, shape, 0);
    const mu_hlo lower = mu__hlo_select(e, mu__hlo_compare(e, "GE", row, column), factor, zero);
    check_definite(l, factor, mu__hlo_compare(e, "EQ", row, column));
    return mu__lowered(l, 0, mu__hlo_convert(e, lower, l->out[0].spec.dtype));
}

mu_status mu__lower_triangular_solve(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_solve_attrs *attrs = l->attrs;
    char text[256];
    const mu_shape *result = &l->out[0].spec.shape;
    if (mu__elements(result) == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, l->out[0].spec.dtype, result, 0));
    const mu_hlo operands[] = {mu__hlo_with_batches(e, mu__hlo_wide(e, l->in[0]), result),
                               mu__hlo_with_batches(e, mu__hlo_wide(e, l->in[1]), result)};
    snprintf(text, sizeof text,
             "{left_side = true, lower = %s, unit_diagonal = false, transpose_a = #stablehlo<transpose %s>}",
             attrs->lower ? "true" : "false", attrs->adjoint ? "TRANSPOSE" : "NO_TRANSPOSE");
    const mu_hlo x = e->add(e, &operands[1].spec, "stablehlo.triangular_solve", 2, operands, text);
    return mu__lowered(l, 0, mu__hlo_convert(e, x, l->out[0].spec.dtype));
}

// ---- Batch normalisation ------------------------------------------------------------------------

// A batch as values [..., channels], in float32 at least.
typedef struct channels {
    mu_emitter *e;
    mu_shape shape;
    mu_ints others; // all axes except the last
    mu_dtype dtype;
} channels;

static channels channels_of(mu_lowering *l)
{
    const mu_hlo x = l->in[0];
    channels c = {.e = l->emitter, .shape = x.spec.shape, .dtype = x.spec.dtype == MU_F64 ? MU_F64 : MU_F32};
    c.others.n = c.shape.rank - 1;
    for (int i = 0; i < c.others.n; i++)
        c.others.at[i] = i;
    return c;
}

static mu_hlo everywhere(const channels *c, mu_hlo vector)
{
    const mu_ints last = {.n = 1, .at = {c->shape.rank - 1}};
    return mu__hlo_broadcast(c->e, mu__hlo_convert(c->e, vector, c->dtype), &c->shape, &last);
}

static mu_hlo summed(const channels *c, mu_hlo a)
{
    return mu__hlo_reduce(c->e, "stablehlo.add", a, mu__hlo_number(c->e, c->dtype, 0), &c->others);
}

static mu_hlo by_rows(const channels *c, mu_hlo sum)
{
    const double rows = (double)mu__elements_between(&c->shape, 0, c->shape.rank - 1);
    return mu__hlo_binary(c->e, "stablehlo.divide", sum, mu__hlo_fill(c->e, c->dtype, &sum.spec.shape, rows));
}

static mu_hlo multiplied(const channels *c, mu_hlo a, mu_hlo b)
{
    return mu__hlo_binary(c->e, "stablehlo.multiply", a, b);
}
static mu_hlo less(const channels *c, mu_hlo a, mu_hlo b) { return mu__hlo_binary(c->e, "stablehlo.subtract", a, b); }

// 1 / sqrt(variance + epsilon).
static mu_hlo inverse_deviation(const channels *c, mu_hlo variance, double epsilon)
{
    const mu_hlo wide = mu__hlo_convert(c->e, variance, c->dtype);
    const mu_hlo small = mu__hlo_fill(c->e, c->dtype, &wide.spec.shape, epsilon);
    return mu__hlo_unary(c->e, "stablehlo.rsqrt", mu__hlo_binary(c->e, "stablehlo.add", wide, small));
}

mu_status mu__lower_batch_norm(mu_lowering *l)
{
    const channels c = channels_of(l);
    const double epsilon = ((const mu_epsilon_attrs *)l->attrs)->epsilon;
    const mu_hlo x = mu__hlo_convert(c.e, l->in[0], c.dtype), gamma = mu__hlo_convert(c.e, l->in[1], c.dtype);
    const mu_hlo mean = by_rows(&c, summed(&c, x)), from = less(&c, x, everywhere(&c, mean));
    const mu_hlo variance = by_rows(&c, summed(&c, multiplied(&c, from, from)));
    const mu_hlo factor = multiplied(&c, gamma, inverse_deviation(&c, variance, epsilon));
    const mu_hlo y =
        mu__hlo_binary(c.e, "stablehlo.add", multiplied(&c, from, everywhere(&c, factor)), everywhere(&c, l->in[2]));
    l->out[1] = mu__hlo_convert(c.e, mean, l->out[1].spec.dtype);
    l->out[2] = mu__hlo_convert(c.e, variance, l->out[2].spec.dtype);
    return mu__lowered(l, 0, mu__hlo_convert(c.e, y, l->out[0].spec.dtype));
}

// Inputs (x, gamma, mean, variance, dy); outputs dx, dgamma, dbeta.
mu_status mu__lower_batch_norm_grad(mu_lowering *l)
{
    const channels c = channels_of(l);
    const mu_hlo x = mu__hlo_convert(c.e, l->in[0], c.dtype), dy = mu__hlo_convert(c.e, l->in[4], c.dtype);
    const mu_hlo scale = inverse_deviation(&c, l->in[3], ((const mu_epsilon_attrs *)l->attrs)->epsilon);
    const mu_hlo unit = multiplied(&c, less(&c, x, everywhere(&c, l->in[2])), everywhere(&c, scale));
    const mu_hlo sum = summed(&c, dy), product = summed(&c, multiplied(&c, dy, unit));
    const mu_hlo plain = less(&c, dy, everywhere(&c, by_rows(&c, sum)));
    const mu_hlo rest = less(&c, plain, multiplied(&c, unit, everywhere(&c, by_rows(&c, product))));
    const mu_hlo factor = multiplied(&c, mu__hlo_convert(c.e, l->in[1], c.dtype), scale);
    l->out[1] = mu__hlo_convert(c.e, product, l->out[1].spec.dtype);
    l->out[2] = mu__hlo_convert(c.e, sum, l->out[2].spec.dtype);
    return mu__lowered(l, 0, mu__hlo_convert(c.e, multiplied(&c, rest, everywhere(&c, factor)), l->out[0].spec.dtype));
}
