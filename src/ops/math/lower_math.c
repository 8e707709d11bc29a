// Lowerings of powers, and, as formulas, of functions that StableHLO lacks: floor division, inverse and hyperbolic
// functions, the error function, log-gamma and its derivatives.
//
// Computes in float32 at least, with as many terms as float64 needs. Loops are unrolled. The last digits may differ
// from the plain loops.
#include "ops/core/lower_formula.h"
#include "ops/math/elementwise.h"
#include "ops/math/polygamma.h"

#include <math.h>

// ---- Powers, whole division ---------------------------------------------------------------------

static mu_status raise_integer(const mu_fault *fault, int64_t position, int64_t value)
{
    return mu__integer_error(fault->op, value, position);
}

// An integer is not divided by zero, nor taken to a negative power.
static void check_integers(mu_lowering *l, mu_check check)
{
    if (mu__dtype_is_integer(l->in[1].spec.dtype) && mu__elements(&l->out[0].spec.shape) > 0)
        mu__hlo_check(l, 1, check, NULL, raise_integer);
}

// By squaring, bit by bit of the exponent: StableHLO's power takes only the lowest bits of large exponents on XLA.
static mu_hlo integer_power(mu_emitter *e, mu_hlo base, mu_hlo exponent, int bits)
{
    const writer w = {e, base.spec};
    const mu_hlo lowest = number(&w, 1);
    mu_hlo result = lowest;
    for (int i = 0; i < bits; i++) {
        const mu_hlo bit = mu__hlo_binary(e, "stablehlo.and", exponent, lowest);
        result = mu__hlo_select(e, mu__hlo_compare(e, "EQ", bit, lowest), mul(&w, result, base), result);
        base = mul(&w, base, base);
        exponent = mu__hlo_binary(e, "stablehlo.shift_right_logical", exponent, lowest);
    }
    return result;
}

// Short integers are computed in int32, whose low bits are theirs.
mu_status mu__lower_pow(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_dtype dtype = l->out[0].spec.dtype, wide = dtype == MU_I64 ? MU_I64 : MU_I32;
    const mu_shape *shape = &l->out[0].spec.shape;
    check_integers(l, MU_CHECK_NOT_NEGATIVE);
    if (mu__dtype_is_float(dtype))
        return mu__lower_elementwise(l);
    const mu_hlo base = mu__hlo_convert(e, mu__hlo_broadcast_to(e, l->in[0], shape), wide),
                 exponent = mu__hlo_convert(e, mu__hlo_broadcast_to(e, l->in[1], shape), wide);
    const int bits = 8 * (int)mu_dtype_bytes(dtype) - (dtype != MU_U8);
    return mu__lowered(l, 0, mu__hlo_convert(e, integer_power(e, base, exponent, bits), dtype));
}

// Behind the barrier XLA does not see that a divisor is constant; it would multiply by the inverse, and the product may
// be below a whole quotient.
static mu_hlo floor_of_quotient(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &l->out[0].spec.shape;
    const mu_hlo divisor = mu__hlo_unary(e, "stablehlo.optimization_barrier", l->in[1]);
    const mu_hlo a = mu__hlo_wide(e, mu__hlo_broadcast_to(e, l->in[0], shape));
    const mu_hlo b = mu__hlo_wide(e, mu__hlo_broadcast_to(e, divisor, shape));
    return mu__hlo_unary(e, "stablehlo.floor", mu__hlo_binary(e, "stablehlo.divide", a, b));
}

// The remainder has the sign of b. The quotient of integers is rounded down without a - remainder, which may be beyond
// the type.
static mu_hlo whole_division(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &l->out[0].spec.shape;
    const mu_hlo a = mu__hlo_wide(e, mu__hlo_broadcast_to(e, l->in[0], shape));
    const mu_hlo b = mu__hlo_wide(e, mu__hlo_broadcast_to(e, l->in[1], shape));
    const writer w = {e, a.spec};
    const mu_hlo zero = number(&w, 0), left = mu__hlo_binary(e, "stablehlo.remainder", a, b);
    const mu_hlo crosses =
        mu__hlo_compare(e, "NE", mu__hlo_compare(e, "LT", left, zero), mu__hlo_compare(e, "LT", b, zero));
    const mu_hlo moves = mu__hlo_binary(e, "stablehlo.and", crosses, mu__hlo_compare(e, "NE", left, zero));
    if (l->op == &mu_op_mod)
        return mu__hlo_select(e, moves, add(&w, left, b), left);
    return sub(&w, over(&w, a, b), mu__hlo_convert(e, moves, w.spec.dtype));
}

mu_status mu__lower_whole_division(mu_lowering *l)
{
    const mu_dtype dtype = l->out[0].spec.dtype;
    check_integers(l, MU_CHECK_NOT_ZERO);
    const bool real = mu__dtype_is_float(dtype) && l->op != &mu_op_mod;
    const mu_hlo y = real ? floor_of_quotient(l) : whole_division(l);
    return mu__lowered(l, 0, mu__hlo_convert(l->emitter, y, dtype));
}

// ---- Inverse and hyperbolic functions -----------------------------------------------------------

// exp(x) / 2, which overflows later than exp(x).
static mu_hlo half_exp(const writer *w, mu_hlo x)
{
    const mu_hlo root_of_exp = one(w, "stablehlo.exponential", scaled(w, x, 0.5));
    return mul(w, scaled(w, root_of_exp, 0.5), root_of_exp);
}

static mu_hlo sinh_of(const writer *w, mu_hlo x)
{
    const mu_hlo size = one(w, "stablehlo.abs", x), t = one(w, "stablehlo.exponential_minus_one", size);
    const mu_hlo exact = scaled(w, add(w, t, over(w, t, plus(w, t, 1))), 0.5);
    return signed_like(w, select_by(w, "GT", size, 40, half_exp(w, size), exact), x);
}

static mu_hlo cosh_of(const writer *w, mu_hlo x)
{
    const mu_hlo half = half_exp(w, one(w, "stablehlo.abs", x));
    return add(w, half, over(w, number(w, 0.25), half));
}

static mu_hlo asinh_of(const writer *w, mu_hlo x)
{
    const mu_hlo size = one(w, "stablehlo.abs", x), square = mul(w, x, x);
    const mu_hlo inner = add(w, size, over(w, square, plus(w, root(w, plus(w, square, 1)), 1)));
    const mu_hlo large = plus(w, logarithm(w, size), log(2));
    return signed_like(w, select_by(w, "GT", size, 1e9, large, one(w, "stablehlo.log_plus_one", inner)), x);
}

// By the distance from 1, whose digits a logarithm of x + … would lose.
static mu_hlo acosh_of(const writer *w, mu_hlo x)
{
    const mu_hlo above = plus(w, x, -1), inner = add(w, above, mul(w, root(w, above), root(w, plus(w, x, 1))));
    const mu_hlo large = plus(w, logarithm(w, x), log(2));
    return select_by(w, "GT", x, 1e18, large, one(w, "stablehlo.log_plus_one", inner));
}

static mu_hlo atanh_of(const writer *w, mu_hlo x)
{
    const mu_hlo above = one(w, "stablehlo.log_plus_one", x);
    return scaled(w, sub(w, above, one(w, "stablehlo.log_plus_one", one(w, "stablehlo.negate", x))), 0.5);
}

// ---- The error function -------------------------------------------------------------------------

enum { SERIES_TERMS = 40, FRACTION_TERMS = 30 };
#define SERIES_BELOW 2.0

// 2 / sqrt(pi) exp(-x^2) times the sum of 2^n x^(2n + 1) / (1 3 5 … (2n + 1)), for small x: all terms have one sign.
static mu_hlo erf_by_series(const writer *w, mu_hlo x)
{
    const mu_hlo square = mul(w, x, x);
    mu_hlo sum = number(w, 1);
    for (int n = SERIES_TERMS; n > 0; n--)
        sum = plus(w, mul(w, sum, scaled(w, square, 2.0 / (2 * n + 1))), 1);
    const mu_hlo bell = one(w, "stablehlo.exponential", one(w, "stablehlo.negate", square));
    return scaled(w, mul(w, mul(w, x, sum), bell), 1.1283791670955126);
}

// exp(-x^2) / sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + …))), for large x.
static mu_hlo erfc_by_fraction(const writer *w, mu_hlo x)
{
    mu_hlo below = x;
    for (int n = FRACTION_TERMS; n > 0; n--)
        below = add(w, x, over(w, number(w, n / 2.0), below));
    const mu_hlo bell = one(w, "stablehlo.exponential", one(w, "stablehlo.negate", mul(w, x, x)));
    return over(w, scaled(w, bell, 0.5641895835477563), below);
}

// erfc of |x| for large |x|. Clamps the argument of the series from above and that of the fraction from below.
static void error_parts(const writer *w, mu_hlo x, mu_hlo *size, mu_hlo *series, mu_hlo *fraction)
{
    *size = one(w, "stablehlo.abs", x);
    *series = erf_by_series(w, mu__hlo_binary(w->e, "stablehlo.minimum", *size, number(w, SERIES_BELOW)));
    *fraction = erfc_by_fraction(w, mu__hlo_binary(w->e, "stablehlo.maximum", *size, number(w, SERIES_BELOW)));
}

static mu_hlo erf_of(const writer *w, mu_hlo x)
{
    mu_hlo size, series, fraction;
    error_parts(w, x, &size, &series, &fraction);
    return signed_like(w, select_by(w, "GT", size, SERIES_BELOW, from(w, 1, fraction), series), x);
}

static mu_hlo erfc_of(const writer *w, mu_hlo x)
{
    mu_hlo size, series, fraction;
    error_parts(w, x, &size, &series, &fraction);
    const mu_hlo small = from(w, 1, signed_like(w, series, x)), negative = from(w, 2, fraction);
    return select_by(w, "GT", size, SERIES_BELOW, select_by(w, "LT", x, 0, negative, fraction), small);
}

// The half comes first: x erfc(…) overflows where the result, about x, does not.
static mu_hlo gelu_of(const writer *w, mu_hlo x)
{
    return mul(w, x, scaled(w, erfc_of(w, scaled(w, x, -0.7071067811865476)), 0.5));
}

// ---- The gamma function -------------------------------------------------------------------------

// With this many terms the asymptotic series are exact in float64 from STEPS on.
enum { STEPS = 10, TERMS = 6 };

// The sum of terms[k] f^k.
static mu_hlo series_of(const writer *w, mu_hlo f, const double terms[TERMS])
{
    mu_hlo sum = number(w, terms[TERMS - 1]);
    for (int k = TERMS - 2; k >= 0; k--)
        sum = plus(w, mul(w, f, sum), terms[k]);
    return sum;
}

// Below STEPS the recurrence leads to where the series is exact; its product would overflow for large x.
mu_hlo mu__hlo_lgamma_above(const writer *w, mu_hlo x)
{
    static const double terms[TERMS] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360};
    const mu_hlo small = mu__hlo_binary(w->e, "stablehlo.minimum", x, number(w, STEPS));
    mu_hlo product = small;
    for (int k = 1; k < STEPS; k++)
        product = mul(w, product, plus(w, small, k));
    const mu_hlo y = select_by(w, "LT", x, STEPS, plus(w, x, STEPS), x), inverse = over(w, number(w, 1), y);
    const mu_hlo series = mul(w, inverse, series_of(w, mul(w, inverse, inverse), terms));
    // (y - 1/2) log y - y, without infinity - infinity.
    const mu_hlo main = mul(w, plus(w, y, -0.5), plus(w, logarithm(w, y), -1));
    const mu_hlo whole = add(w, plus(w, main, 0.9189385332046727 - 0.5), series);
    return select_by(w, "LT", x, STEPS, sub(w, whole, logarithm(w, product)), whole);
}

mu_hlo mu__hlo_digamma_above(const writer *w, mu_hlo x)
{
    static const double terms[TERMS] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760};
    mu_hlo sum = number(w, 0);
    for (int k = 0; k < STEPS; k++)
        sum = add(w, sum, over(w, number(w, 1), plus(w, x, k)));
    const mu_hlo y = plus(w, x, STEPS), inverse = over(w, number(w, 1), y), f = mul(w, inverse, inverse);
    const mu_hlo series = mul(w, f, series_of(w, f, terms));
    return sub(w, sub(w, sub(w, logarithm(w, y), scaled(w, inverse, 0.5)), series), sum);
}

static mu_hlo trigamma_above(const writer *w, mu_hlo x)
{
    static const double terms[TERMS] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730};
    mu_hlo sum = number(w, 0);
    for (int k = 0; k < STEPS; k++) {
        const mu_hlo inverse = over(w, number(w, 1), plus(w, x, k));
        sum = add(w, sum, mul(w, inverse, inverse));
    }
    const mu_hlo inverse = over(w, number(w, 1), plus(w, x, STEPS)), f = mul(w, inverse, inverse);
    const mu_hlo series = series_of(w, f, terms);
    return add(w, sum, mul(w, inverse, add(w, plus(w, scaled(w, inverse, 0.5), 1), mul(w, f, series))));
}

// The distance from the nearest whole number, with its sign; 0 for infinity.
static mu_hlo off_whole(const writer *w, mu_hlo x)
{
    const mu_hlo distance = sub(w, x, one(w, "stablehlo.round_nearest_even", x));
    return select_by(w, "EQ", one(w, "stablehlo.abs", x), INFINITY, number(w, 0), distance);
}

// The value at the poles, which are 0, -1, -2, …, and at -infinity.
static mu_hlo with_poles(const writer *w, mu_hlo x, mu_hlo off, double value, mu_hlo elsewhere)
{
    const mu_hlo pole = mu__hlo_binary(w->e, "stablehlo.and", mu__hlo_compare(w->e, "LE", x, number(w, 0)),
                                       mu__hlo_compare(w->e, "EQ", off, number(w, 0)));
    return mu__hlo_select(w->e, pole, number(w, value), elsewhere);
}

// Below 1/2 uses the reflection formula with the function at 1 - x. Sines and cosines are those of the distance from a
// whole number, whose angle has no rounding error.
static mu_hlo gamma_family(const writer *w, const mu_op *op, mu_hlo x)
{
    const double pi = 3.14159265358979323846;
    const mu_hlo y = select_by(w, "LT", x, 0.5, from(w, 1, x), x), off = off_whole(w, x), radians = scaled(w, off, pi),
                 sine = one(w, "stablehlo.sine", radians);
    if (op == &mu_op_lgamma) {
        const mu_hlo above = mu__hlo_lgamma_above(w, y), size = logarithm(w, one(w, "stablehlo.abs", sine)),
                     below = sub(w, from(w, log(pi), size), above);
        return with_poles(w, x, off, INFINITY, select_by(w, "LT", x, 0.5, below, above));
    }
    if (op == &mu_op_digamma) {
        const mu_hlo above = mu__hlo_digamma_above(w, y),
                     derivative = over(w, scaled(w, one(w, "stablehlo.cosine", radians), pi), sine);
        return with_poles(w, x, off, NAN, select_by(w, "LT", x, 0.5, sub(w, above, derivative), above));
    }
    const mu_hlo above = trigamma_above(w, y), bend = over(w, number(w, pi), sine);
    return with_poles(w, x, off, INFINITY, select_by(w, "LT", x, 0.5, sub(w, mul(w, bend, bend), above), above));
}

// ---- Op definitions -----------------------------------------------------------------------------

static mu_hlo value_of(const writer *w, const mu_op *op, mu_hlo x)
{
    if (op == &mu_op_asin)
        return angle(w, x, mul(w, root(w, from(w, 1, x)), root(w, plus(w, x, 1))));
    if (op == &mu_op_acos)
        return scaled(w, angle(w, root(w, from(w, 1, x)), root(w, plus(w, x, 1))), 2);
    if (op == &mu_op_atan)
        return angle(w, x, number(w, 1));
    if (op == &mu_op_sinh)
        return sinh_of(w, x);
    if (op == &mu_op_cosh)
        return cosh_of(w, x);
    if (op == &mu_op_asinh)
        return asinh_of(w, x);
    if (op == &mu_op_acosh)
        return acosh_of(w, x);
    if (op == &mu_op_atanh)
        return atanh_of(w, x);
    if (op == &mu_op_erf)
        return erf_of(w, x);
    if (op == &mu_op_erfc)
        return erfc_of(w, x);
    if (op == &mu_op_gelu)
        return gelu_of(w, x);
    return gamma_family(w, op, x);
}

mu_status mu__lower_formula(mu_lowering *l)
{
    const mu_hlo x = mu__hlo_wide(l->emitter, l->in[0]);
    const writer w = {l->emitter, x.spec};
    return mu__lowered(l, 0, mu__hlo_convert(l->emitter, value_of(&w, l->op, x), l->out[0].spec.dtype));
}

// n! / x^(n+1), factor by factor, to avoid overflow of intermediate results.
static mu_hlo falling(const writer *w, int n, mu_hlo x)
{
    const mu_hlo inverse = over(w, number(w, 1), x);
    mu_hlo product = inverse;
    for (int k = 1; k <= n; k++)
        product = mul(w, product, scaled(w, inverse, k));
    return product;
}

// The sum described in polygamma.h, for x >= 0.
static mu_hlo polygamma_above(const writer *w, const mu_polygamma_form *form, mu_hlo x)
{
    const int n = form->order, steps = n + MU_POLYGAMMA_STEPS;
    mu_hlo sum = number(w, 0), series = number(w, 0);
    for (int k = 0; k < steps; k++)
        sum = add(w, sum, falling(w, n, plus(w, x, k)));
    const mu_hlo y = plus(w, x, steps), inverse = over(w, number(w, 1), y), square = mul(w, inverse, inverse);
    for (int j = MU_POLYGAMMA_TERMS - 1; j >= 0; j--)
        series = mul(w, square, plus(w, series, form->tail[j]));
    const mu_hlo factor = plus(w, add(w, scaled(w, inverse, 0.5 * n), series), 1);
    return add(w, sum, mul(w, falling(w, n - 1, y), factor));
}

mu_status mu__lower_polygamma(mu_lowering *l)
{
    const double pi = 3.14159265358979323846;
    const mu_hlo x = mu__hlo_wide(l->emitter, l->in[0]);
    const writer w = {l->emitter, x.spec};
    mu_polygamma_form form;
    mu__polygamma_form((int)((const mu_polygamma_attrs *)l->attrs)->order, &form);
    const mu_hlo above = polygamma_above(&w, &form, select_by(&w, "LT", x, 0, from(&w, 1, x), x));
    const mu_hlo fraction = off_whole(&w, x), off = one(&w, "stablehlo.abs", fraction);
    const mu_hlo cosine = one(&w, "stablehlo.sine", scaled(&w, from(&w, 0.5, off), pi));
    const mu_hlo c = signed_like(&w, over(&w, cosine, one(&w, "stablehlo.sine", scaled(&w, off, pi))), fraction);
    mu_hlo bend = number(&w, 0);
    for (int i = form.order + 1; i >= 0; i--)
        bend = plus(&w, mul(&w, bend, c), form.bends[i] * pow(pi, form.order + 1));
    const bool odd = form.order % 2;
    const mu_hlo up = odd ? above : one(&w, "stablehlo.negate", above);
    const mu_hlo down = sub(&w, odd ? bend : one(&w, "stablehlo.negate", bend), above);
    const mu_hlo y = with_poles(&w, x, off, odd ? INFINITY : NAN, select_by(&w, "LT", x, 0, down, up));
    return mu__lowered(l, 0, mu__hlo_convert(l->emitter, y, l->out[0].spec.dtype));
}

// ---- Derivatives of activations -----------------------------------------------------------------

static mu_hlo derivative_of(const writer *w, const mu_op *op, mu_hlo x)
{
    const mu_hlo squared = mul(w, x, x);
    if (op == &mu_op_tanh_grad)
        return from(w, 1, squared);
    if (op == &mu_op_sigmoid_grad)
        return mul(w, x, from(w, 1, x));
    if (op == &mu_op_softplus_grad)
        return one(w, "stablehlo.logistic", x);
    if (op == &mu_op_silu_grad) {
        const mu_hlo s = one(w, "stablehlo.logistic", x);
        return mul(w, s, plus(w, mul(w, x, from(w, 1, s)), 1));
    }
    if (op == &mu_op_gelu_grad) {
        const mu_hlo below = scaled(w, erfc_of(w, scaled(w, x, -0.7071067811865476)), 0.5);
        const mu_hlo density = scaled(w, one(w, "stablehlo.exponential", scaled(w, squared, -0.5)), 0.3989422804014327);
        return add(w, below, mul(w, x, density));
    }
    const double cubic = 0.044715, factor = 0.7978845608028654;
    const mu_hlo t = one(w, "stablehlo.tanh", mul(w, scaled(w, x, factor), plus(w, scaled(w, squared, cubic), 1)));
    const mu_hlo inner = scaled(w, plus(w, scaled(w, squared, 3 * cubic), 1), factor);
    return scaled(w, add(w, plus(w, t, 1), mul(w, mul(w, x, from(w, 1, mul(w, t, t))), inner)), 0.5);
}

mu_status mu__lower_derivative(mu_lowering *l)
{
    const mu_hlo dy = mu__hlo_wide(l->emitter, l->in[0]), x = mu__hlo_wide(l->emitter, l->in[1]);
    const writer w = {l->emitter, x.spec};
    return mu__lowered(l, 0,
                       mu__hlo_convert(l->emitter, mul(&w, dy, derivative_of(&w, l->op, x)), l->out[0].spec.dtype));
}
