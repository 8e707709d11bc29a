// Elementary functions of one double, accurate to one or two ulp; math_scalar.h has the float32 ones. Range reduction
// keeps the lost bits and adds them last; where a function amplifies errors (powers, error functions), products are
// sums of two doubles. Polynomials were fitted for this file. The code has no branches and no tables, so that
// compilers vectorise loops over it.
#ifndef MU_SRC_KERNELS_MATH_F64_H
#define MU_SRC_KERNELS_MATH_F64_H

#include "math_scalar.h"

#define LN2_F64         0.693147180559945309417
#define HALF_PI_F64     1.57079632679489661923
#define HALF_PI_LOW_F64 6.12323399573676603587e-17

// A number as the unevaluated sum of two doubles.
typedef struct pair {
    double high, low;
} pair;

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define MU_EXACT_PRODUCTS 1
#else
#define MU_EXACT_PRODUCTS 0
#endif

// x with the lower 27 bits of its fraction cleared, so that products of two such numbers are exact.
MU_INLINE double upper_half(double x) { return of_bits(bits_of(x) & ~UINT64_C(0x7ffffff)); }

MU_INLINE pair product_of(double a, double b)
{
    const double high = a * b;
#if MU_EXACT_PRODUCTS
    return (pair){high, __builtin_fma(a, b, -high)};
#else
    const double a_high = upper_half(a), a_low = a - a_high, b_high = upper_half(b), b_low = b - b_high;
    return (pair){high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low};
#endif
}

// For |a| >= |b|.
MU_INLINE pair sum_of(double a, double b)
{
    const double high = a + b;
    return (pair){high, b - (high - a)};
}

// ---- Exponentials -------------------------------------------------------------------------------

// (e^x - 1) / 2^shift for a shift of 0 or 1; with shift 1 it does not overflow before sinh does.
MU_INLINE double expm1_over(double x, double shift)
{
    const exp_parts e = exp_split_f64(at_least(at_most(x, 720), -60));
    const bool large = e.scale > ROUND_MAGIC + 1000;
    const double power = power_of_two(e.scale - (shift + (large ? 64 : 0))), one = shift == 0 ? 1 : 0.5;
    return (power * e.rest + (power - (large ? 0 : one))) * (large ? 0x1p64 : 1);
}

MU_INLINE double expm1_f64_any(double x) { return x == 0 ? x : expm1_over(x, 0); }

MU_INLINE double sinh_f64(double x)
{
    const double half = expm1_over(__builtin_fabs(x), 1);
    return __builtin_copysign(half + (half > 0x1p60 ? 0.5 : half / (2 * half + 1)), x);
}

MU_INLINE double cosh_f64(double x)
{
    const exp_parts e = exp_split_f64(at_most(__builtin_fabs(x), 720));
    const bool large = e.scale > ROUND_MAGIC + 1000;
    const double power = power_of_two(e.scale - (large ? 65 : 1));
    const double half = (power + power * e.rest) * (large ? 0x1p64 : 1);
    return half + 0.25 / half;
}

MU_INLINE double sigmoid_f64(double x)
{
    const double e = exp_f64_negative(-__builtin_fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

// x times a factor that underflows to 0 for very negative x, where -infinity * 0 would be NaN.
MU_INLINE double gated_f64(double x, double result) { return x < -1000 ? x * 0.0 : result; }

MU_INLINE double silu_f64(double x)
{
    const exp_parts e = exp_split_f64(at_least(-__builtin_fabs(x), -760));
    const double left = scaled_f64_below(x + x * e.rest, e.scale); // x first: e^x alone may be denormal
    return gated_f64(x, (x < 0 ? left : x) / (1 + scaled_f64_below(1 + e.rest, e.scale)));
}

// x tanh(log(1 + e^x)) = x t / (t + 2) with t = e^x (e^x + 2).
MU_INLINE double mish_f64(double x)
{
    const exp_parts parts = exp_split_f64(at_least(at_most(x, 40), -760));
    const double e = scaled_f64_below(1 + parts.rest, parts.scale), more = e + 2, t = e * more;
    const double above = scaled_f64_below(x + x * parts.rest, parts.scale) * more;
    return gated_f64(x, x > 40 ? x : above / (t + 2));
}

// ---- Logarithms ---------------------------------------------------------------------------------

// Adds what 1 + x lost to the logarithm's low part. Near 0, where the exponent n is 0, uses x itself as f; selects by
// bits, since compilers would otherwise compute both cases completely.
MU_INLINE double log1p_inner(double x, double u, double lost)
{
    const log_parts p = log_split(u);
    const uint64_t near = (uint64_t)0 - (uint64_t)(p.n == 0);
    const double f = of_bits((bits_of(x) & near) | (bits_of(p.f) & ~near));
    const double share = of_bits(bits_of(lost / u) & ~near);
    return log_join(p.n, f, f / (f + 2), share);
}

MU_INLINE double log1p_f64(double x)
{
    const double u = 1 + x;
    double result = log1p_inner(x, u, x < 1 ? x - (u - 1) : 1 - (u - x));
    result = x == -1 ? -INFINITY : result;
    result = ((x == 0) | (x == INFINITY)) ? x : result;
    return x >= -1 ? result : NAN;
}

MU_INLINE double softplus_f64(double x)
{
    const double e = exp_f64_negative(-__builtin_fabs(x)), u = 1 + e;
    return at_least(x, 0) + log1p_inner(e, u, e - (u - 1));
}

MU_INLINE double asinh_f64(double x)
{
    const double a = __builtin_fabs(x), square = a * a;
    const bool huge = a > 0x1p60;
    const double result = log1p_f64(huge ? a : a + square / (1 + __builtin_sqrt(1 + square)));
    return __builtin_copysign(result + (huge ? LN2_F64 : 0), x);
}

MU_INLINE double acosh_f64(double x)
{
    const bool huge = x > 0x1p60;
    const double t = x - 1, result = log1p_f64(huge ? x : t + __builtin_sqrt(t * (t + 2)));
    return x >= 1 ? result + (huge ? LN2_F64 : 0) : NAN;
}

MU_INLINE double atanh_f64(double x)
{
    const double a = __builtin_fabs(x), twice = a + a;
    const double result = 0.5 * log1p_f64(twice + twice * a / (1 - a));
    return a <= 1 ? __builtin_copysign(result, x) : NAN;
}

// The logarithm of a positive, normal and finite x to 64 bits and more.
MU_INLINE pair log_pair(double x)
{
    const log_parts p = log_split(x);
    const double below = 2 + p.f, below_low = p.f - (below - 2), inverse = 1 / below, s = p.f * inverse;
    const pair whole = product_of(s, below), square = product_of(s, s);
    const double s_low = (((p.f - whole.high) - whole.low) - s * below_low) * inverse;
    const double z = square.high, z_low = square.low + 2 * s * s_low;
    double q = z * 0.11725771221811145 + 0.11705988156500907;
    q = q * z + 0.13334813971292003;
    q = q * z + 0.15384594791762352;
    q = q * z + 0.1818181833699257;
    q = q * z + 0.2222222222164882;
    q = q * z + 0.2857142857142938;
    q = q * z + 0.4;
    const pair factor = sum_of(0.66666666666666663, 3.7007434154171886e-17 + z * q);
    const pair cube = product_of(z, s);
    const double cube_low = cube.low + (z * s_low + z_low * s);
    const pair third = product_of(cube.high, factor.high);
    const double third_low = third.low + (cube.high * factor.low + cube_low * factor.high);
    const pair head = sum_of(p.n * 6.93147180369123816490e-01, 2 * s), all = sum_of(head.high, third.high);
    const double low = p.n * 1.90821492927058770002e-10 + (all.low + (head.low + (2 * s_low + third_low)));
    return sum_of(all.high, low);
}

// x^y for a positive, normal and finite x and |y| < 2^900.
MU_INLINE double pow_f64(double x, double y)
{
    const pair log = log_pair(x), whole = product_of(y, log.high);
    const bool inside = __builtin_fabs(whole.high) < 800;
    const double low = inside ? whole.low + y * log.low : 0;
    const exp_parts e = exp_split_f64(at_least(at_most(whole.high, 760), -760));
    return scaled_f64(1 + (e.rest + (low + low * e.rest)), e.scale);
}

// ---- Circles ------------------------------------------------------------------------------------

MU_INLINE double tan_f64(double x)
{
    const circle_parts p = circle_split_f64(x);
    const bool odd = p.quarter & 1;
    const double result = (odd ? -p.cosine : p.sine) / (odd ? p.sine : p.cosine);
    return x == 0 ? x : result;
}

// base + atan(above / below) for a quotient of at most 1/2; base_low is the rounding error of base.
MU_INLINE double atan_beyond(double above, double below, double base, double base_low)
{
    const double t = above / below, z = t * t;
    double q = z * -0.009215792047089858 + 0.025006503566489507;
    q = q * z + -0.03806653672057366;
    q = q * z + 0.04628024868570153;
    q = q * z + -0.05240099507994713;
    q = q * z + 0.05879578429582425;
    q = q * z + -0.06666435677235948;
    q = q * z + 0.07692294712540285;
    q = q * z + -0.09090908620322523;
    q = q * z + 0.11111111100917376;
    q = q * z + -0.14285714285599188;
    q = q * z + 0.19999999999999488;
    q = q * z + -0.3333333333333333;
    return base + (t + (t * (z * q) + base_low));
}

MU_INLINE double atan_f64(double x)
{
    const double a = __builtin_fabs(x);
    const bool far = a > 2, middle = a > 0.5;
    const double base = far ? 1 : middle ? 0.5 : 0;
    return __builtin_copysign(atan_beyond(far      ? -1
                                          : middle ? a - 1
                                                   : a,
                                          far      ? a
                                          : middle ? a + 1
                                                   : 1,
                                          base * HALF_PI_F64, base * HALF_PI_LOW_F64),
                              x);
}

// For finite operands below 2^1000.
MU_INLINE double atan2_f64(double y, double x)
{
    const double ax = __builtin_fabs(x), ay = __builtin_fabs(y);
    const bool steep = ay > ax;
    const double low = steep ? ax : ay, high = steep ? ay : ax;
    const bool middle = low > 0.5 * high;
    const double below = middle ? low + high : high, base = middle ? 0.5 : 0;
    double angle =
        atan_beyond(middle ? low - high : low, below == 0 ? 1 : below, base * HALF_PI_F64, base * HALF_PI_LOW_F64);
    angle = steep ? HALF_PI_F64 - (angle - HALF_PI_LOW_F64) : angle;
    angle = __builtin_copysign(1, x) < 0 ? 2 * HALF_PI_F64 - (angle - 2 * HALF_PI_LOW_F64) : angle;
    return __builtin_copysign(angle, y);
}

// asin |x| is t (1 + rest) for |x| <= 1/2; otherwise t (1 + rest) is half of pi/2 - asin |x|, and high + low is a
// more precise t.
typedef struct arc_parts {
    double t, high, low, rest;
} arc_parts;

MU_INLINE arc_parts arc_split(double a, bool outer)
{
    const double z = outer ? 0.5 - 0.5 * a : a * a, t = outer ? __builtin_sqrt(z) : a;
    const double high = of_bits(bits_of(t) & ~UINT64_C(0xffffffff)), low = (z - high * high) / (t + high);
    double q = z * 0.028757851367421566 + -0.014851887071247204;
    q = q * z + 0.01740087944269402;
    q = q * z + 0.005457506718640358;
    q = q * z + 0.01032281435018578;
    q = q * z + 0.011479177415184906;
    q = q * z + 0.013971212973552933;
    q = q * z + 0.017352392720869973;
    q = q * z + 0.02237217294214989;
    q = q * z + 0.030381944138531247;
    q = q * z + 0.04464285714635543;
    q = q * z + 0.07499999999998433;
    q = q * z + 0.16666666666666669;
    return (arc_parts){t, high, z == 0 ? 0 : low, z * q};
}

MU_INLINE double asin_f64(double x)
{
    const double a = __builtin_fabs(x);
    const bool outer = a > 0.5;
    const arc_parts p = arc_split(a, outer);
    const double lack = 2 * p.t * p.rest - (HALF_PI_LOW_F64 - 2 * p.low);
    const double far = 0.5 * HALF_PI_F64 - (lack - (0.5 * HALF_PI_F64 - 2 * p.high));
    return __builtin_copysign(outer ? far : a + a * p.rest, x);
}

MU_INLINE double acos_f64(double x)
{
    const double a = __builtin_fabs(x);
    const bool outer = a > 0.5;
    const arc_parts p = arc_split(a, outer);
    const double right = 2 * (p.high + (p.t * p.rest + p.low));
    const double left = 2 * (HALF_PI_F64 - (p.t + (p.t * p.rest - HALF_PI_LOW_F64)));
    const double inner = HALF_PI_F64 - (x - (HALF_PI_LOW_F64 - x * p.rest));
    return outer ? (x < 0 ? left : right) : inner;
}

// ---- Error functions ----------------------------------------------------------------------------

// erf for |x| up to 1.
MU_INLINE double erf_inner(double x)
{
    const double z = x * x;
    double q = z * -4.230945824295338e-12 + 8.709045129053106e-11;
    q = q * z + -1.216456005728345e-09;
    q = q * z + 1.4792401209404813e-08;
    q = q * z + -1.6364642158167616e-07;
    q = q * z + 1.6462045441468418e-06;
    q = q * z + -1.4925647567519332e-05;
    q = q * z + 0.00012055332902888736;
    q = q * z + -0.000854832702193483;
    q = q * z + 0.0052239776254232985;
    q = q * z + -0.02686617064512984;
    q = q * z + 0.1128379167095512;
    q = q * z + -0.37612638903183754;
    q = q * z + 0.1283791670955126;
    return x + x * q;
}

// factor * erfc(a) for 0 <= a <= 30, given a^2 as `square`: e^(-a^2) / (1 + a) times a slowly varying polynomial.
MU_INLINE double erfc_tail(double factor, double a, pair square)
{
    const double sum = a + 3.75, below = 1 + a, below_low = a - (below - 1);
    const double both = 1 / (sum * below), t = (a - 3.75) * (below * both), inverse = sum * both, square_t = t * t;
    double odd = square_t * -1.2126911404041034e-09 + 1.3330259925239019e-08;
    odd = odd * square_t + -6.150268303950795e-08;
    odd = odd * square_t + -1.5950757960533938e-07;
    odd = odd * square_t + 8.101529538613096e-06;
    odd = odd * square_t + -0.00012112798393260993;
    odd = odd * square_t + 0.0008650453240952756;
    odd = odd * square_t + 0.010070828125165986;
    odd = odd * square_t + 0.018750997233159084;
    odd = odd * square_t + -0.04064757851690277;
    odd = odd * square_t + -0.2068312650404866;
    double even = square_t * -1.265564302747239e-09 + 1.4873479216713853e-08;
    even = even * square_t + -1.1144189768544365e-07;
    even = even * square_t + 7.827662323824913e-07;
    even = even * square_t + -5.3472765880715165e-06;
    even = even * square_t + 2.761628199954109e-05;
    even = even * square_t + 7.06255181830644e-05;
    even = even * square_t + -0.003971808572068391;
    even = even * square_t + -0.017275087308530983;
    even = even * square_t + -0.0030998090547777264;
    even = even * square_t + 0.11479674120104301;
    even = even * square_t + -0.058448823943566944;
    const double more = even + odd * t, q = 0.75 + more, ratio = q * inverse;
    const pair whole = product_of(ratio, below);
    const double rest = ((q - whole.high) - whole.low) - ratio * below_low + (more - (q - 0.75));
    const double lost = rest * inverse - ratio * square.low;
    const exp_parts e = exp_split_f64(at_least(-square.high, -800));
    return scaled_f64_below(factor * (ratio + (ratio * e.rest + (lost + lost * e.rest))), e.scale);
}

MU_INLINE double erf_f64(double x)
{
    const double a = __builtin_fabs(x), near = at_most(a, 6), outer = 1 - erfc_tail(1, near, product_of(near, near));
    return a > 1 ? __builtin_copysign(outer, x) : erf_inner(x);
}

MU_INLINE double erfc_f64(double x)
{
    const double a = at_most(__builtin_fabs(x), 28), tail = erfc_tail(1, a, product_of(a, a));
    return x < 0 ? 2 - tail : tail;
}

// x * Phi(x) = max(x, 0) - |x| * Phi(-|x|), where Phi is the normal distribution function.
MU_INLINE double gelu_f64(double x)
{
    const double a = at_most(__builtin_fabs(x), 39.5);
    const pair square = product_of(a, a);
    const pair half = {0.5 * square.high, 0.5 * square.low};
    return gated_f64(x, at_least(x, 0) - erfc_tail(0.5 * a, a * 0.70710678118654752440, half));
}

// The derivative of log gamma for 0 < x < 1e30: recurrence up by ten, where terms are paired because (x + i) (x + 9 -
// i) is x (x + 9) plus a constant; then Stirling's series.
MU_INLINE double digamma_f64(double x)
{
    const double w = x * (x + 9), twice = 2 * x + 9, up = x + 10, inverse = 1 / up, square = inverse * inverse;
    double below = x + 9, above = 1;
    above = above * (w + 8) + twice * below;
    below *= w + 8;
    above = above * (w + 14) + twice * below;
    below *= w + 14;
    above = above * (w + 18) + twice * below;
    below *= w + 18;
    above = above * (w + 20) + twice * below;
    below *= w + 20;
    double series = 691.0 / 32760 - square * (1.0 / 12);
    series = 1.0 / 132 - square * series;
    series = 1.0 / 240 - square * series;
    series = 1.0 / 252 - square * series;
    series = 1.0 / 120 - square * series;
    series = square * (1.0 / 12 - square * series);
    return (log_f64_positive(up) - (0.5 * inverse + series) - above / below) - 1 / x;
}

// log gamma for 2^-1000 < x < 2^1000. Below 6.5: recurrence to within 1/2 of 2, whose product's logarithm is added;
// near 1, where the two parts cancel, both use the same distance from 1. Above: Stirling's series.
MU_INLINE double lgamma_f64(double x)
{
    const bool far = x >= 6.5, below = x < 1.5;
    const double base = (at_most(x, 6.5) + ROUND_MAGIC) - ROUND_MAGIC, d = x - base;
    double steps = base < 1 ? x * (x + 1) : below ? x : 1;
    steps *= base > 2 ? x - 1 : 1;
    steps *= base > 3 ? x - 2 : 1;
    steps *= base > 4 ? x - 3 : 1;
    steps *= base > 5 ? x - 4 : 1;
    const log_parts p = log_split(far ? x : steps);
    const double small = log_rest(p.n, p.f, p.f / (p.f + 2), 0), whole = p.n * 6.93147180369123816490e-01;
    // Near 2.
    const double z = d * d;
    double odd = z * -1.3029870239068415e-07 + -4.3454173670260496e-07;
    odd = odd * z + -2.043022895180944e-06;
    odd = odd * z + -9.43891959627718e-06;
    odd = odd * z + -4.492628637818162e-05;
    odd = odd * z + -0.00022315475602710603;
    odd = odd * z + -0.00119275391176255;
    odd = odd * z + -0.007385551028673429;
    odd = odd * z + -0.0673523010531981;
    double even = z * 2.7475390051909663e-07 + 9.242852225162277e-07;
    even = even * z + 4.3828545383846665e-06;
    even = even * z + 2.050601970174762e-05;
    even = even * z + 9.945761692157133e-05;
    even = even * z + 0.0005096695196526673;
    even = even * z + 0.002890510330865901;
    even = even * z + 0.02058080842778338;
    even = even * z + 0.3224670334241132;
    const double sign = below ? -1 : 1, rest = z * (even + odd * d) + sign * small;
    const double near = sign * whole + ((d * 0.42278433509846713 + sign * p.f) + rest);
    // (x - 1/2) (log x - 1) plus the rest of the series.
    const double inverse = 1 / x, square = inverse * inverse;
    double series = square * -0.0015391316200399393 + 0.0008322766080680144;
    series = series * square + -0.000595125102155557;
    series = series * square + 0.0007936501760822151;
    series = series * square + -0.0027777777765338216;
    series = series * square + 0.08333333333333293;
    const pair high = sum_of(whole - 1, p.f);
    const double factor = x - 0.5, above = 0.4189385332046727 + series * inverse;
    return far ? factor * high.high + (factor * (high.low + small) + above) : near;
}

#endif
