// Elementary functions of one double, without branches or tables, so that compilers vectorise loops over them.
// Functions of float32 are computed in double, where a short polynomial is far more precise than the result, and
// overflow and denormal numbers need no care. Names that end in _f64 are accurate to one or two ulp of a double.
// Polynomials are Chebyshev interpolations made for this file.
#ifndef MU_SRC_KERNELS_MATH_SCALAR_H
#define MU_SRC_KERNELS_MATH_SCALAR_H

#include "simd.h"

#define ROUND_MAGIC 0x1.8p52 // adding it puts the nearest integer into the low bits

// Bits are unsigned, because integer arithmetic on the bits of a NaN may overflow.
MU_INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

MU_INLINE double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Selects by bits: from a choice between a number and a constant, compilers make two copies of everything computed
// from it.
MU_INLINE double chosen(bool first, double a, double b)
{
    const uint64_t mask = (uint64_t)0 - (uint64_t)first;
    return of_bits((bits_of(a) & mask) | (bits_of(b) & ~mask));
}

// Both keep a NaN.
MU_INLINE double at_most(double x, double limit) { return chosen(x > limit, limit, x); }

MU_INLINE double at_least(double x, double limit) { return chosen(x < limit, limit, x); }

// ---- Exponentials -------------------------------------------------------------------------------

// 2^n from ROUND_MAGIC + n, for -1022 <= n <= 1023.
MU_INLINE double power_of_two(double shifted) { return of_bits((bits_of(shifted) << 52) + bits_of(1.0)); }

// e^x as scale * (1 + rest), for |x| <= 700; accurate to 1e-10.
typedef struct exp_parts {
    double scale, rest;
} exp_parts;

MU_INLINE exp_parts exp_split(double x)
{
    const double shifted = x * 1.44269504088896340736 + ROUND_MAGIC;
    const double n = shifted - ROUND_MAGIC;
    const double r = x - n * 0.693147180559945309417;
    double q = r * 0.00019900441465296745 + 0.0013942159833661436;
    q = q * r + 0.008333297067428719;
    q = q * r + 0.041666340142225575;
    q = q * r + 0.16666666722219042;
    q = q * r + 0.5000000050018797;
    q = q * r + 1.0;
    return (exp_parts){power_of_two(shifted), q * r};
}

MU_INLINE double exp_of(double x)
{
    const exp_parts e = exp_split(at_least(at_most(x, 200), -200));
    return e.scale + e.scale * e.rest;
}

MU_INLINE double expm1_of(double x)
{
    const exp_parts e = exp_split(at_least(at_most(x, 200), -200));
    return e.scale * e.rest + (e.scale - 1);
}

// e^x as scale * (1 + rest), accurate to the last place.
MU_INLINE exp_parts exp_split_f64(double x)
{
    const double shifted = x * 1.44269504088896340736 + ROUND_MAGIC;
    const double n = shifted - ROUND_MAGIC;
    const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double q = r * 2.0915442297780116e-09 + 2.5106274733573296e-08;
    q = q * r + 2.75572718102198e-07;
    q = q * r + 2.755725283351691e-06;
    q = q * r + 2.4801587327007187e-05;
    q = q * r + 0.00019841269876864356;
    q = q * r + 0.0013888888888883327;
    q = q * r + 0.008333333333325544;
    q = q * r + 0.04166666666666667;
    q = q * r + 0.1666666666666667;
    q = q * r + 0.5;
    return (exp_parts){shifted, r * r * q + r};
}

// x 2^n from ROUND_MAGIC + n, in two steps, because 2^n itself may overflow or be denormal.
MU_INLINE double scaled_f64(double x, double shifted)
{
    const double n = shifted - ROUND_MAGIC, half = n * 0.5 + ROUND_MAGIC;
    return x * power_of_two(half) * power_of_two((n - (half - ROUND_MAGIC)) + ROUND_MAGIC);
}

// The same for -1200 < n < 800.
MU_INLINE double scaled_f64_below(double x, double shifted) { return x * power_of_two(shifted + 200) * 0x1p-200; }

MU_INLINE double exp_f64(double x)
{
    const exp_parts e = exp_split_f64(at_least(at_most(x, 720), -760));
    return scaled_f64(1 + e.rest, e.scale);
}

MU_INLINE double exp_f64_negative(double x) // for x <= 0
{
    const exp_parts e = exp_split_f64(at_least(x, -760));
    return scaled_f64_below(1 + e.rest, e.scale);
}

// For |x| <= 700.
MU_INLINE double expm1_f64(double x)
{
    const exp_parts e = exp_split_f64(x);
    const double scale = power_of_two(e.scale);
    return scale * e.rest + (scale - 1);
}

MU_INLINE double sigmoid_of(double x) { return 1 / (1 + exp_of(-x)); }

MU_INLINE double tanh_f64(double x)
{
    const double e = expm1_f64(2 * at_most(__builtin_fabs(x), 20));
    return __builtin_copysign(e / (e + 2), x);
}

MU_INLINE double sinh_of(double x)
{
    const double e = expm1_of(__builtin_fabs(x));
    return __builtin_copysign(0.5 * (e + e / (e + 1)), x);
}

// ---- Logarithms ---------------------------------------------------------------------------------

// x = 2^n (1 + f) with 1 + f between the roots of 1/2 and 2; x is positive and normal.
typedef struct log_parts {
    double n, f;
} log_parts;

MU_INLINE log_parts log_split(double x)
{
    const uint64_t bits = bits_of(x) - bits_of(0.70710678118654752440);
    // The exponent, negative ones included, as the low bits of a double between 2^52 and 2^53.
    const double n = of_bits(((bits + (UINT64_C(1024) << 52)) >> 52) + bits_of(0x1p52)) - (0x1p52 + 1024);
    const double m = of_bits((bits & UINT64_C(0x000fffffffffffff)) + bits_of(0.70710678118654752440));
    return (log_parts){n, m - 1};
}

// Replaces the logarithm of 0, of infinity, and of NaN or a negative number; keeps `result` elsewhere.
MU_INLINE double log_edges(double x, double result)
{
    result = x == 0 ? -INFINITY : result;
    result = x == INFINITY ? x : result;
    return x >= 0 ? result : NAN;
}

MU_INLINE double log_positive(double x)
{
    const log_parts p = log_split(x);
    const double s = p.f / (p.f + 2), z = s * s;
    double q = z * 0.11822713577203517 + 0.1426676999617387;
    q = q * z + 0.20000204355703496;
    q = q * z + 0.33333332564280815;
    q = q * z + 1.0000000000046207;
    return 2 * s * q + p.n * 0.693147180559945309417;
}

// For doubles converted from floats, which are never denormal.
MU_INLINE double log_of(double x) { return log_edges(x, log_positive(x)); }

// log(1 + x); the first for x > -1 and finite.
MU_INLINE double log1p_positive(double x)
{
    const double direct = log_positive(1 + x), series = x - x * x * (0.5 - x * (1.0 / 3));
    return __builtin_fabs(x) < 1e-5 ? series : direct;
}

// log(1 + f) - f, with s = f / (2 + f), plus the low part of n log 2 and `low`. The order of the terms, as in
// FreeBSD's libm, keeps the last place; the polynomial is an interpolation.
MU_INLINE double log_rest(double n, double f, double s, double low)
{
    const double z = s * s;
    double q = z * 0.131148348695975 + 0.13266048812203002;
    q = q * z + 0.15386342449645143;
    q = q * z + 0.18181793732111753;
    q = q * z + 0.22222222409750114;
    q = q * z + 0.2857142857072325;
    q = q * z + 0.40000000000001007;
    q = q * z + 0.66666666666666666;
    const double half = 0.5 * f * f, rest = s * (half + q * z);
    return (rest + (n * 1.90821492927058770002e-10 + low)) - half;
}

// log(2^n (1 + f)).
MU_INLINE double log_join(double n, double f, double s, double low)
{
    return n * 6.93147180369123816490e-01 + (f + log_rest(n, f, s, low));
}

MU_INLINE double log_f64_positive(double x)
{
    const log_parts p = log_split(x);
    return log_join(p.n, p.f, p.f / (p.f + 2), 0);
}

MU_INLINE double log_f64(double x)
{
    const bool denormal = x < 0x1p-1022;
    const double result = log_f64_positive(denormal ? x * 0x1p54 : x);
    return log_edges(x, denormal ? result - 37.42994775023704670 : result);
}

MU_INLINE double asinh_of(double x)
{
    const double a = __builtin_fabs(x), square = a * a;
    const double result = log1p_positive(a + square / (1 + __builtin_sqrt(1 + square)));
    return __builtin_copysign(a < INFINITY ? result : a, x);
}

MU_INLINE double acosh_of(double x)
{
    const double t = x - 1, result = log1p_positive(t + __builtin_sqrt(t * (t + 2)));
    return x == INFINITY ? x : x >= 1 ? result : NAN;
}

MU_INLINE double atanh_of(double x)
{
    const double a = __builtin_fabs(x), result = 0.5 * log1p_positive(2 * a / (1 - a));
    return __builtin_copysign(a < 1 ? result : a == 1 ? INFINITY : NAN, x);
}

// ---- Trigonometric functions --------------------------------------------------------------------

// Below this limit x is reduced by multiples of pi/2 without error.
#define CIRCLE_LIMIT 1e6

// Sine and cosine of r = x - n pi/2 with |r| <= pi/4. quarter: the bits of n + ROUND_MAGIC; the lowest two are n's.
typedef struct circle_parts {
    double sine, cosine;
    uint64_t quarter;
} circle_parts;

MU_INLINE circle_parts circle_split(double x)
{
    const double shifted = x * 0.63661977236758134308 + ROUND_MAGIC;
    const double n = shifted - ROUND_MAGIC;
    const double r =
        ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
    const double z = r * r;
    double s = z * -2.4755970636461245e-08 + 2.755526372174464e-06;
    s = s * z + -0.00019841263259141957;
    s = s * z + 0.008333333323802407;
    s = s * z + -0.16666666666616184;
    double c = z * -2.7172666562783097e-07 + 2.479891815008481e-05;
    c = c * z + -0.0013888880342838477;
    c = c * z + 0.04166666654292815;
    c = c * z + -0.4999999999934461;
    return (circle_parts){r + r * z * s, 1 + c * z, bits_of(shifted)};
}

MU_INLINE double circle_fold(circle_parts p, uint64_t quarter)
{
    const double value = quarter & 1 ? p.cosine : p.sine;
    return of_bits(bits_of(value) ^ (quarter & 2) << 62);
}

MU_INLINE double sin_of(double x)
{
    const circle_parts p = circle_split(x);
    return x == 0 ? x : circle_fold(p, p.quarter);
}

MU_INLINE double cos_of(double x)
{
    const circle_parts p = circle_split(x);
    return circle_fold(p, p.quarter + 1);
}

MU_INLINE double tan_of(double x)
{
    const circle_parts p = circle_split(x);
    const bool odd = p.quarter & 1;
    return x == 0 ? x : (odd ? -p.cosine : p.sine) / (odd ? p.sine : p.cosine);
}

// The same, carrying the rounding error of r, accurate to one or two ulp.
MU_INLINE circle_parts circle_split_f64(double x)
{
    const double shifted = x * 0.63661977236758134308 + ROUND_MAGIC;
    const double n = shifted - ROUND_MAGIC;
    const double first = x - n * 1.57079632673412561417, step = n * 6.07710050630396597660e-11;
    const double second = first - step, lost = (first - second) - step;
    const double tail = n * 2.02226624879595063154e-21 - lost;
    const double r = second - tail, low = (second - r) - tail;
    const double z = r * r;
    double s = z * -7.586576588171073e-13 + 1.6058529572267877e-10;
    s = s * z + -2.5052106219521895e-08;
    s = s * z + 2.755731921930192e-06;
    s = s * z + -0.00019841269841265017;
    s = s * z + 0.008333333333333331;
    s = s * z + -0.16666666666666666;
    double c = z * -1.1382456778061306e-11 + 2.0876143827993133e-09;
    c = c * z + -2.7557317260008837e-07;
    c = c * z + 2.480158729874307e-05;
    c = c * z + -0.0013888888888887382;
    c = c * z + 0.041666666666666664;
    const double half = 0.5 * z, one = 1 - half;
    const double sine = r + (low * (1 - half) + r * z * s);
    return (circle_parts){sine, one + (((1 - one) - half) + (z * z * c - r * low)), bits_of(shifted)};
}

MU_INLINE double sin_f64(double x)
{
    const circle_parts p = circle_split_f64(x);
    return x == 0 ? x : circle_fold(p, p.quarter);
}

MU_INLINE double cos_f64(double x)
{
    const circle_parts p = circle_split_f64(x);
    return circle_fold(p, p.quarter + 1);
}

// atan(t) for |t| <= tan(pi / 8).
MU_INLINE double atan_series(double t)
{
    const double z = t * t;
    double q = z * -0.03761446424021412 + 0.06971923003100482;
    q = q * z + -0.0899205548074736;
    q = q * z + 0.11103403312964605;
    q = q * z + -0.1428538361156962;
    q = q * z + 0.19999992977334288;
    q = q * z + -0.3333333327619008;
    return t * (q * z + 0.9999999999992334);
}

// For finite operands.
MU_INLINE double atan2_of(double y, double x)
{
    const double ax = __builtin_fabs(x), ay = __builtin_fabs(y);
    const bool steep = ay > ax;
    const double low = steep ? ax : ay, high = steep ? ay : ax;
    const bool middle = low > 0.41421356237309504880 * high;
    const double below = middle ? low + high : high, above = middle ? low - high : low;
    double angle = (middle ? 0.78539816339744830962 : 0) + atan_series(above / (below == 0 ? 1 : below));
    angle = steep ? 1.57079632679489661923 - angle : angle;
    angle = __builtin_copysign(1, x) < 0 ? 3.14159265358979323846 - angle : angle;
    return __builtin_copysign(angle, y);
}

// ---- Error and gamma functions ------------------------------------------------------------------

MU_INLINE double erfc_of(double x)
{
    const double a = at_most(__builtin_fabs(x), 14), t = (a - 3.75) / (a + 3.75);
    double q = t * 2.909491862039284e-05 + 3.492115835362242e-05;
    q = q * t + -0.0003054800014626786;
    q = q * t + 0.0003035103426135455;
    q = q * t + 0.001767697503505396;
    q = q * t + -0.009749010952379799;
    q = q * t + 0.028357792677574736;
    q = q * t + -0.058693243723087075;
    q = q * t + 0.09230513177701556;
    q = q * t + -0.10880390564991826;
    q = q * t + 0.08227667514282583;
    q = q * t + 0.003585412847018898;
    q = q * t + -0.14024059715125545;
    q = q * t + 1.237512630866138;
    const double tail = exp_of(-a * a) * q / (1 + 2 * a);
    return x < 0 ? 2 - tail : tail;
}

// log gamma and its derivative for x > 0: recurrence up by seven, then Stirling's series.
MU_INLINE double lgamma_of(double x)
{
    const double up = x + 7, inverse = 1 / up, square = inverse * inverse;
    const double product = x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6);
    const double series =
        inverse *
        (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square * (1.0 / 1188)))));
    const double stirling = (up - 0.5) * log_f64_positive(up) - up + 0.91893853320467274178 + series;
    return stirling - log_f64_positive(product);
}

MU_INLINE double digamma_of(double x)
{
    double product = x, derivative = 1;
    for (int i = 1; i < 7; i++) {
        derivative = derivative * (x + i) + product;
        product *= x + i;
    }
    const double up = x + 7, inverse = 1 / up, square = inverse * inverse;
    const double series =
        square * (1.0 / 12 - square * (1.0 / 120 - square * (1.0 / 252 - square * (1.0 / 240 - square * (1.0 / 132)))));
    return log_f64_positive(up) - 0.5 * inverse - series - derivative / product;
}

#endif
