// Elementary functions of a vector of floats, without branches or tables in memory, for the functions that cost most
// in double: a vector holds sixteen floats but only eight doubles. Exact range reduction, a short polynomial for the
// rest, and the exact part added last; results are within two ulp. NaN, infinities and denormal numbers follow from
// the arithmetic or are selected. Polynomials were fitted for this file to the smallest relative error of the result.
#ifndef MU_SRC_KERNELS_MATH_VF32_H
#define MU_SRC_KERNELS_MATH_VF32_H

#include "simd.h"

MU_INLINE mu_vf v_abs(mu_vf x) { return (mu_vf)((mu_vi)x & 0x7fffffff); }

MU_INLINE mu_vf v_with_sign(mu_vf x, mu_vf sign)
{
    return (mu_vf)(((mu_vi)x & 0x7fffffff) | ((mu_vi)sign & INT32_MIN));
}

// Both keep a NaN in x.
MU_INLINE mu_vf v_at_least(mu_vf x, float limit) { return v_max(v_splat(limit), x); }

MU_INLINE mu_vf v_at_most(mu_vf x, float limit)
{
#if MU_LANES == 16
    return (mu_vf)_mm512_min_ps(_mm512_set1_ps(limit), (__m512)x);
#elif MU_LANES == 8
    return (mu_vf)_mm256_min_ps(_mm256_set1_ps(limit), (__m256)x);
#else
    return -v_max(v_splat(-limit), -x);
#endif
}

MU_INLINE mu_vf v_root(mu_vf x)
{
#if MU_LANES == 16
    return (mu_vf)_mm512_sqrt_ps((__m512)x);
#elif MU_LANES == 8
    return (mu_vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (mu_vf)_mm_sqrt_ps((__m128)x);
#else
    for (int lane = 0; lane < MU_LANES; lane++)
        x[lane] = sqrtf(x[lane]);
    return x;
#endif
}

#if MU_LANES == 16
// Looks up a table of sixteen numbers by the lowest bits of n.
MU_INLINE mu_vf v_looked_up(const float *numbers, mu_vf n)
{
    return (mu_vf)_mm512_permutexvar_ps((__m512i)n, (__m512)v_load(numbers));
}
#endif

// A 14-bit estimate and a Newton step, on processors that have the estimate.
MU_INLINE mu_vf rsqrt_vf32(mu_vf x)
{
#if MU_LANES == 16
    const mu_vf guess = (mu_vf)_mm512_rsqrt14_ps((__m512)x), lack = 1 - (x * guess) * guess;
    return v_select(v_unordered(lack, lack), guess, guess + guess * 0.5f * lack); // exact for 0 and infinity
#else
    return 1 / v_root(x);
#endif
}

// 2^n for -126 <= n <= 127.
MU_INLINE mu_vf power_of_two_vf32(mu_vi n) { return (mu_vf)((n + 127) << 23); }

// x 2^n for integers |n| < 250: in two steps, because 2^n itself may overflow or be denormal.
MU_INLINE mu_vf v_scale(mu_vf x, mu_vf n)
{
#if MU_LANES == 16
    return (mu_vf)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
    const mu_vi whole = __builtin_convertvector(n, mu_vi), half = whole >> 1;
    return x * power_of_two_vf32(half) * power_of_two_vf32(whole - half);
#endif
}

// ---- Exponentials -------------------------------------------------------------------------------

// e^x as (1 + rest) * 2^n.
typedef struct exp_vf32 {
    mu_vf rest, n;
} exp_vf32;

MU_INLINE exp_vf32 exp_split_vf32(mu_vf x)
{
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer
    const mu_vf n = (x * 1.44269504f + magic) - magic;
    const mu_vf r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    const mu_vf square = r * r;
    const mu_vf high = r * 0.0013950723223388195f + 0.008369024842977524f;
    const mu_vf middle = high * r + 0.04166620224714279f;
    const mu_vf q = middle * square + (r * 0.166665181517601f + 0.5f);
    return (exp_vf32){square * q + r, n};
}

MU_INLINE exp_vf32 exp_clamped_vf32(mu_vf x) { return exp_split_vf32(v_at_least(v_at_most(x, 89), -110)); }

// factor * e^x.
MU_INLINE mu_vf times_exp_vf32(mu_vf factor, exp_vf32 e) { return v_scale(factor + factor * e.rest, e.n); }

MU_INLINE mu_vf exp_of_vf32(mu_vf x) { return times_exp_vf32(v_splat(1), exp_clamped_vf32(x)); }

// For x <= 0.
MU_INLINE exp_vf32 exp_below_vf32(mu_vf x) { return exp_split_vf32(v_at_least(x, -110)); }

// For |x| <= 80.
MU_INLINE mu_vf expm1_vf32(mu_vf x)
{
    const exp_vf32 e = exp_split_vf32(x);
    const mu_vf scale = power_of_two_vf32(__builtin_convertvector(e.n, mu_vi));
    return scale * e.rest + (scale - 1);
}

// scale * x for x > 0, low * (e^x - 1) otherwise.
MU_INLINE mu_vf elu_vf32(mu_vf x, float low, float scale)
{
    return v_select(v_greater((mu_vf){0}, x), expm1_vf32(v_at_least(x, -80)) * low, x * scale);
}

// Half of e^|x|, and 1/4 divided by it; the half overflows exactly where the sum does.
MU_INLINE mu_vf cosh_vf32(mu_vf x)
{
    const mu_vf half = times_exp_vf32(v_splat(0.5f), exp_split_vf32(v_at_most(v_abs(x), 91)));
    return half + 0.25f / half;
}

MU_INLINE mu_vf sigmoid_vf32(mu_vf x)
{
    const mu_vf e = times_exp_vf32(v_splat(1), exp_below_vf32(-v_abs(x)));
    return v_select(v_greater((mu_vf){0}, x), e, v_splat(1)) / (e + 1);
}

MU_INLINE mu_vf tanh_vf32(mu_vf x)
{
    const mu_vf e = expm1_vf32(v_at_most(v_abs(x), 10) * 2);
    return v_with_sign(e / (e + 2), x);
}

// x times a factor that underflows to 0 for very negative x, where -infinity * 0 would be NaN.
MU_INLINE mu_vf gated_vf32(mu_vf x, mu_vf result) { return v_select(v_greater(v_splat(-110), x), x * 0.0f, result); }

// x / (1 + e^-x), for negative x as x e^x / (1 + e^x), whose numerator becomes denormal later than e^x.
MU_INLINE mu_vf silu_vf32(mu_vf x)
{
    const exp_vf32 parts = exp_below_vf32(-v_abs(x));
    const mu_vf above = v_select(v_greater((mu_vf){0}, x), times_exp_vf32(x, parts), x);
    return gated_vf32(x, above / (times_exp_vf32(v_splat(1), parts) + 1));
}

// x tanh(log(1 + e^x)) = x t / (t + 2) with t = e^x (e^x + 2).
MU_INLINE mu_vf mish_vf32(mu_vf x)
{
    const exp_vf32 parts = exp_split_vf32(v_at_least(v_at_most(x, 30), -110));
    const mu_vf e = times_exp_vf32(v_splat(1), parts), more = e + 2, t = e * more;
    const mu_vf above = v_select(v_greater((mu_vf){0}, x), times_exp_vf32(x, parts) * more, x * t);
    return gated_vf32(x, v_select(v_greater(x, v_splat(30)), x, above / (t + 2)));
}

// ---- Logarithms ---------------------------------------------------------------------------------

// log(2^n (1 + f)) for 1 + f between the roots of 1/2 and 2.
MU_INLINE mu_vf log_parts_vf32(mu_vf n, mu_vf f)
{
    const mu_vf z = f * f;
    const mu_vf high =
        (f * -0.07634429633617401f + 0.12761549651622772f) * z + (f * -0.131601944565773f + 0.14201761782169342f);
    const mu_vf middle =
        (f * -0.16623356938362122f + 0.20001226663589478f) * z + (f * -0.250008225440979f + 0.3333333134651184f);
    const mu_vf q = high * (z * z) + middle;
    const mu_vf low = (f * z) * q - z * 0.5f + n * 1.42860677e-6f;
    return n * 0.693145752f + (f + low);
}

MU_INLINE mu_vf log_vf32(mu_vf x)
{
    const int32_t root = 0x3f3504f3; // the bits of sqrt(1/2)
    const mu_vm denormal = v_greater(v_splat(0x1p-126f), x);
    // 0, negative or NaN: the result is set below; the numbers here only must not overflow.
    const mu_vi bits = ((mu_vi)v_select(denormal, x * 0x1p23f, x) & 0x7fffffff) - root;
    const mu_vf whole = __builtin_convertvector(bits >> 23, mu_vf) - v_keep(denormal, v_splat(23));
    mu_vf result = log_parts_vf32(whole, (mu_vf)((bits & 0x7fffff) + root) - 1);
    result = v_select(v_greater(x, (mu_vf){0}), result, v_splat(-INFINITY));
    result = v_select(v_greater(v_splat(INFINITY), x), result, x); // also for NaN
    return v_select(v_greater((mu_vf){0}, x), v_splat(NAN), result);
}

// Adds the rounding error of 1 + x to f.
MU_INLINE mu_vf log1p_vf32(mu_vf x)
{
    const int32_t root = 0x3f3504f3; // the bits of sqrt(1/2)
    const mu_vf u = x + 1, lost = v_select(v_greater(v_splat(1), x), x - (u - 1), 1 - (u - x));
    // 1 + x negative or NaN: the result is set below; the numbers here only must not overflow.
    const mu_vi bits = ((mu_vi)u & 0x7fffffff) - root, n = bits >> 23;
    const mu_vf m = (mu_vf)((bits & 0x7fffff) + root), whole = __builtin_convertvector(n, mu_vf);
    const mu_vf f = (m - 1) + lost * power_of_two_vf32(-__builtin_convertvector(v_at_most(whole, 126), mu_vi));
    mu_vf result = log_parts_vf32(whole, f);
    result = v_select(v_greater(u, (mu_vf){0}), result, v_splat(-INFINITY));
    result = v_select(v_greater(v_splat(INFINITY), x), result, x); // also for NaN
    return v_select(v_greater(v_splat(-1), x), v_splat(NAN), result);
}

// log(1 + e^x).
MU_INLINE mu_vf softplus_vf32(mu_vf x)
{
    return v_at_least(x, 0) + log1p_vf32(times_exp_vf32(v_splat(1), exp_below_vf32(-v_abs(x))));
}

// ---- Trigonometric functions --------------------------------------------------------------------

// Pi / 2, and its rounding error as a float, absolute and relative.
#define HALF_PI_VF32       1.57079637050628662f
#define HALF_PI_LOW_VF32   (-4.37113883e-8f)
#define HALF_PI_SHARE_VF32 (-2.78275345e-8f)

// |asin x| for |x| <= 1/2; otherwise (outer) `factor` times half of pi/2 - |asin x|.
MU_INLINE mu_vf asin_part_vf32(mu_vf a, mu_vm outer, float factor)
{
    const mu_vf rest = 0.5f - a * 0.5f, z = v_select(outer, rest, a * a);
    const mu_vf t = v_select(outer, v_root(rest) * factor, a);
    mu_vf q = z * 0.04221847280859947f + 0.02414765954017639f;
    q = q * z + 0.04547708481550217f;
    q = q * z + 0.07495241612195969f;
    q = q * z + 0.16666753590106964f;
    return (t * z) * q + t;
}

MU_INLINE mu_vf asin_vf32(mu_vf x)
{
    const mu_vf a = v_abs(x);
    const mu_vm outer = v_greater(a, v_splat(0.5f));
    const mu_vf part = asin_part_vf32(a, outer, 1);
    return v_with_sign(v_select(outer, HALF_PI_VF32 - (part * 2 - HALF_PI_LOW_VF32), part), x);
}

// base - part, where base is pi, 0 or pi/2.
MU_INLINE mu_vf acos_vf32(mu_vf x)
{
    const mu_vf a = v_abs(x);
    const mu_vm outer = v_greater(a, v_splat(0.5f)), left = v_greater((mu_vf){0}, x);
    const mu_vf part = (mu_vf)((mu_vi)asin_part_vf32(a, outer, -2) ^ ((mu_vi)x & INT32_MIN));
    const mu_vf base = v_select(outer, v_keep(left, v_splat(2 * HALF_PI_VF32)), v_splat(HALF_PI_VF32));
    return base - (part - base * HALF_PI_SHARE_VF32);
}

MU_INLINE mu_vf atan_vf32(mu_vf x)
{
    const mu_vf a = v_abs(x);
    const mu_vm far = v_greater(a, v_splat(2.41421356f)), past = v_greater(a, v_splat(0.41421356f));
    const mu_vf above = v_select(far, v_splat(-1), v_select(past, a - 1, a));
    const mu_vf below = v_select(far, a, v_select(past, a + 1, v_splat(1)));
    const mu_vf half = v_splat(HALF_PI_VF32), low = v_splat(HALF_PI_LOW_VF32);
    const mu_vf base = v_select(far, half, v_keep(past, half * 0.5f));
    const mu_vf base_low = v_select(far, low, v_keep(past, low * 0.5f));
    const mu_vf t = above / below, z = t * t;
    mu_vf q = z * -0.06060533970594406f + 0.10587365925312042f;
    q = q * z - 0.14242741465568542f;
    q = q * z + 0.1999843418598175f;
    q = q * z - 0.3333331346511841f;
    return v_with_sign(base + (t + ((t * z) * q + base_low)), x);
}

// ---- Error functions ----------------------------------------------------------------------------

#if MU_LANES == 16
// The coefficients of each power, for sixteen intervals around the multiples of their width; in the first interval
// they are those of erf(x) - x.
static const float erf_pieces[6][16] = {
    {0.0f, 0.280767679f, 0.527840555f, 0.719169199f, 0.849548876f, 0.927731812f, 0.968987286f, 0.988143742f,
     0.995970964f, 0.998785138f, 0.999675393f, 0.999923229f, 0.999983966f, 0.99999702f, 0.999999523f, 0.99999994f},
    {0.128379166f, 1.0577749f, 0.871380568f, 0.630810201f, 0.401297063f, 0.224341512f, 0.110212192f, 0.0475801751f,
     0.018050896f, 0.00601794012f, 0.00176308537f, 0.00045391568f, 0.000102695973f, 2.04177541e-05f, 3.56729402e-06f,
     5.47722038e-07f},
    {3.21743869e-07f, -0.268876016f, -0.442993551f, -0.481039435f, -0.408025503f, -0.285139561f, -0.168083474f,
     -0.0846491605f, -0.0367054977f, -0.0137733165f, -0.00446747197f, -0.00125770608f, -0.000319184619f,
     -5.9366248e-05f, -1.59337033e-05f, -7.89578007e-06f},
    {-0.376144111f, -0.307039201f, -0.140351489f, 0.0342853405f, 0.142816633f, 0.166814208f, 0.134175524f,
     0.0845702142f, 0.0437478647f, 0.018991882f, 0.0070069884f, 0.00221454399f, 0.00060274679f, 0.000141816388f,
     2.89236377e-05f, -1.24363487e-06f},
    {0.000325127708f, 0.127755985f, 0.182189628f, 0.146526262f, 0.0632478818f, -0.0101231504f, -0.0465088859f,
     -0.0477040932f, -0.0323720351f, -0.0168260094f, -0.00833254773f, -0.00340867974f, -0.000457927759f,
     -0.000716814422f, 0.000152282839f, 0.000417459465f},
    {0.110785581f, 0.0794935599f, 0.0065647508f, -0.0547895022f, -0.0683088228f, -0.044360619f, -0.0121531487f,
     0.00796186086f, 0.0130323377f, 0.00997132715f, 0.00544838794f, 0.00233985181f, 0.00082177826f, 0.000240784924f,
     5.96504724e-05f, 0.000936323369f},
};

// A piecewise polynomial whose coefficients are looked up in registers: half the cost of the formula for narrow
// vectors. Beyond 3.93 the result is 1.
MU_INLINE mu_vf erf_vf32(mu_vf x)
{
    const float width = 0.25419426f, magic = 12582912.0f; // 20 bits; 1.5 * 2^23: adding it rounds to an integer
    const mu_vf a = v_at_most(v_abs(x), 3.93f), shifted = a * 3.93399914f + magic, n = shifted - magic;
    const mu_vf r = a - n * width;
    mu_vf q = v_looked_up(erf_pieces[5], shifted);
    for (int power = 4; power >= 1; power--)
        q = q * r + v_looked_up(erf_pieces[power], shifted);
    const mu_vf constant = v_select(v_greater(n, (mu_vf){0}), v_looked_up(erf_pieces[0], shifted), r);
    return v_with_sign(q * r + constant, x);
}
#else
// For small x, x times an even polynomial; beyond 1, 1 - e^Q, where Q approximates log(erfc).
MU_INLINE mu_vf erf_vf32(mu_vf x)
{
    const mu_vf a = v_abs(x), t = v_at_most(a, 4), z = t * t;
    const mu_vf z2 = z * z;
    mu_vf p = (z * 7.889119297033176e-05f - 0.0008020841050893068f) * z + 0.005189535208046436f;
    p = (p * z2 + (z * -0.026854444295167923f + 0.11283600330352783f)) * z2;
    p += z * -0.3761262595653534f + 0.12837916709551257f;
    mu_vf q = (t * 0.00019718272960744798f - 0.0030556167475879192f) * t + 0.022277120500802994f;
    q = (q * z + (t * -0.10403742641210556f - 0.6370596885681152f)) * z;
    q += t * -1.1277495622634888f - 0.00017748631944414228f;
    const mu_vf far = v_with_sign(1 - times_exp_vf32(v_splat(1), exp_split_vf32(q)), x);
    return v_select(v_greater(v_splat(1), a), x + x * p, far);
}
#endif

// x * Phi(x), where Phi is the normal distribution function, from the logarithm of erfc(|x| / sqrt(2)).
MU_INLINE mu_vf gelu_vf32(mu_vf x)
{
    const mu_vf a = v_at_most(v_abs(x), 8.4f), t = a * 0.70710678118654752440f;
    const mu_vf t2 = t * t, t4 = t2 * t2;
    const mu_vf first =
        (t * 0.019148601219058037f - 0.10278469324111938f) * t2 - (t * 0.6366167068481445f + 1.128379464149475f);
    const mu_vf second = (t * -0.00016367399075534195f + 0.0007257027900777757f) * t2 +
                         (t * -0.0017669735243543983f + 0.0002120014396496117f);
    const mu_vf q = ((t * -1.1823648264908115e-06f + 2.091434544126969e-05f) * t4 + second) * t4 + first;
    const mu_vf tail = times_exp_vf32(a * 0.5f, exp_split_vf32(q * t));
    return gated_vf32(x, v_at_least(x, 0) - tail);
}

// The rounding error of a product, on processors with fused multiply-add.
#if defined(__FMA__) && MU_LANES >= 8
#define MU_TELLS_LOST 1
MU_INLINE mu_vf v_lost(mu_vf a, mu_vf b, mu_vf product)
{
#if MU_LANES == 16
    return (mu_vf)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)product);
#else
    return (mu_vf)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)product);
#endif
}

// e^(-a^2) / (1 + a) times a slowly varying polynomial, for a = |x|, corrected for the rounding errors of the square
// and the divisor.
MU_INLINE mu_vf erfc_vf32(mu_vf x)
{
    const mu_vf a = v_at_most(v_abs(x), 11), square = a * a, lost = v_lost(a, a, square);
    const mu_vf below = a + 1, sum = a + 3.75f;
    const mu_vf both = 1 / (sum * below), t = (a - 3.75f) * (below * both), inverse = sum * both, square_t = t * t;
    mu_vf odd = square_t * -0.00010873642895603552f + 0.000880936102475971f;
    odd = odd * square_t + 0.010059007443487644f;
    odd = odd * square_t + 0.01875353418290615f;
    odd = odd * square_t + -0.04064777493476868f;
    odd = odd * square_t + -0.20683126151561737f;
    mu_vf even = square_t * 0.0001264750462723896f + -0.003998551983386278f;
    even = even * square_t + -0.01726987585425377f;
    even = even * square_t + -0.0031002783216536045f;
    even = even * square_t + 0.11479675769805908f;
    even = even * square_t + -0.058448825031518936f;
    const mu_vf more = odd * t + even, q = more + 0.75f, ratio = q * inverse;
    const mu_vf rest = (more - (q - 0.75f)) - v_lost(ratio, below, q) - ratio * (a - (below - 1));
    exp_vf32 e = exp_split_vf32(-square);
    e.rest -= lost + lost * e.rest;
    const mu_vf tail = times_exp_vf32(ratio + rest * inverse, e);
    return v_select(v_greater((mu_vf){0}, x), 2 - tail, tail);
}

// x / (1 + e^-v) with v = sqrt(8 / pi) (x + 0.044715 x^3); e^v needs v to more bits than a float has.
MU_INLINE mu_vf gelu_tanh_vf32(mu_vf x)
{
    const float first = 1.5957692f, first_low = -4.534068e-8f, third = 0.071354814f, third_low = 2.3988325e-9f;
    const mu_vf a = v_at_most(v_abs(x), 11), square = a * a, cube = square * third, sum = cube + first;
    const mu_vf part = sum - cube, lost = (cube - (sum - part)) + (first - part);
    const mu_vf square_low = v_lost(a, a, square) * third + (square * third_low + first_low);
    const mu_vf sum_low = lost + (v_lost(square, v_splat(third), cube) + square_low);
    const mu_vf v = a * sum, v_low = v_lost(a, sum, v) + a * sum_low;
    exp_vf32 e = exp_split_vf32(-v);
    e.rest -= v_low + v_low * e.rest;
    const mu_vf above = v_select(v_greater((mu_vf){0}, x), times_exp_vf32(x, e), x);
    return gated_vf32(x, above / (times_exp_vf32(v_splat(1), e) + 1));
}
#else
#define MU_TELLS_LOST 0
#endif

#endif
