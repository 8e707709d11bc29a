// Elementary functions of eight doubles at once, for AVX-512. e^x is 2^k times a power of two from a table of
// sixteen, which two registers hold, times a short polynomial; one instruction scales by 2^k, including denormal and
// infinite results. Results are accurate to one or two ulp, as in math_f64.h, and a NaN stays NaN. The polynomial was
// fitted for this file.
#ifndef MU_SRC_KERNELS_MATH_F64X8_H
#define MU_SRC_KERNELS_MATH_F64X8_H

#include "simd.h"

#if MU_LANES == 16
#define MU_HAS_F64X8 1

typedef double mu_vd __attribute__((vector_size(64)));
typedef int64_t mu_vl __attribute__((vector_size(64)));

enum { F64X8 = 8 };

MU_INLINE mu_vd d_splat(double x) { return (mu_vd)_mm512_set1_pd(x); }

MU_INLINE mu_vd d_load(const double *p) { return (mu_vd)_mm512_loadu_pd(p); }

// Loads the first n elements, at least 1, followed by padding; whole vectors are not masked, see simd.h.
MU_INLINE mu_vd d_load_padded(const double *p, int64_t n, double padding)
{
    if (n >= F64X8)
        return d_load(p);
    return (mu_vd)_mm512_mask_loadu_pd(_mm512_set1_pd(padding), (__mmask8)((1u << n) - 1), p);
}

MU_INLINE void d_store_n(double *p, mu_vd v, int64_t n)
{
    if (n >= F64X8)
        _mm512_storeu_pd(p, (__m512d)v);
    else
        _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v);
}

// The maximum; b if either is NaN. The minimum likewise.
MU_INLINE mu_vd d_max(mu_vd a, mu_vd b) { return (mu_vd)_mm512_max_pd((__m512d)a, (__m512d)b); }

MU_INLINE mu_vd d_min(mu_vd a, mu_vd b) { return (mu_vd)_mm512_min_pd((__m512d)a, (__m512d)b); }

MU_INLINE mu_vd d_abs(mu_vd x) { return (mu_vd)((mu_vl)x & INT64_MAX); }

MU_INLINE mu_vd d_where_negative(mu_vd x, mu_vd yes, mu_vd no)
{
    const __mmask8 negative = _mm512_cmp_pd_mask((__m512d)x, _mm512_setzero_pd(), _CMP_LT_OQ);
    return (mu_vd)_mm512_mask_blend_pd(negative, (__m512d)no, (__m512d)yes);
}

// ---- Exponentials ---------------------------------------------------------------------------------

// e^x is 2^floor(sixteenths / 16) * power * (1 + rest); power is from a table, and `shifted` holds its index.
typedef struct exp_f64x8_parts {
    mu_vd shifted, sixteenths, power, rest;
} exp_f64x8_parts;

#define F64X8_MAGIC 0x1.8p52 // adding it puts the nearest integer into the low bits

// Rounding errors of the powers of 2^(1/16) in exp_f64x8_split's table, by the low bits of a magic sum.
MU_INLINE mu_vd power_lacks(mu_vd shifted)
{
    const mu_vd first = {0x0.0p+0,
                         0x1.8a62e4adc610bp-54,
                         -0x1.19041b9d78a76p-55,
                         0x1.9b07eb6c70573p-54,
                         0x1.6f46ad23182e4p-55,
                         0x1.ada0911f09ebcp-55,
                         0x1.d4397afec42e2p-56,
                         0x1.6324c054647adp-54};
    const mu_vd second = {-0x1.bdd3413b26456p-54, -0x1.41577ee04992fp-55, 0x1.6e9f156864b27p-54,
                          0x1.c7c46b071f2bep-56,  0x1.7a1cd345dcc81p-54,  0x1.11065895048ddp-55,
                          0x1.2ed02d75b3707p-55,  -0x1.e9c23179c2893p-54};
    return (mu_vd)_mm512_permutex2var_pd((__m512d)first, (__m512i)shifted, (__m512d)second);
}

// For |x| up to 800.
MU_INLINE exp_f64x8_parts exp_f64x8_split(mu_vd x)
{
    const mu_vd shifted = x * 0x1.71547652b82fep+4 + F64X8_MAGIC, n = shifted - F64X8_MAGIC;
    const mu_vd r = (x - n * 0x1.62e42fefa0000p-5) - n * 0x1.cf79abc9e3b3ap-44, square = r * r;
    const mu_vd high = r * 0.000198414639814658 + 0.0013889063615251755;
    const mu_vd middle = r * 0.008333333332991407 + 0.04166666666358933;
    const mu_vd low = r * 0.16666666666666669 + 0.5;
    const mu_vd first = {0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
                         0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0};
    const mu_vd second = {0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
                          0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};
    const mu_vd power = (mu_vd)_mm512_permutex2var_pd((__m512d)first, (__m512i)shifted, (__m512d)second);
    const mu_vd rest = ((high * square + middle) * square + low) * square + r;
    return (exp_f64x8_parts){shifted, n, power, rest};
}

// e^x / 2^floor(sixteenths / 16) - e.power.
MU_INLINE mu_vd more_of(exp_f64x8_parts e) { return e.power * e.rest + power_lacks(e.shifted); }

// x times 2^floor(sixteenths / 16).
MU_INLINE mu_vd scaled_f64x8(mu_vd x, exp_f64x8_parts e)
{
    return (mu_vd)_mm512_scalef_pd((__m512d)x, (__m512d)(e.sixteenths * 0.0625));
}

MU_INLINE mu_vd exp_f64x8_of(exp_f64x8_parts e) { return scaled_f64x8(e.power + more_of(e), e); }

MU_INLINE mu_vd exp_f64x8(mu_vd x)
{
    return exp_f64x8_of(exp_f64x8_split(d_max(d_splat(-760), d_min(d_splat(720), x))));
}

// For x <= 0.
MU_INLINE exp_f64x8_parts exp_f64x8_below(mu_vd x) { return exp_f64x8_split(d_max(d_splat(-760), x)); }

MU_INLINE mu_vd sigmoid_f64x8(mu_vd x)
{
    const mu_vd e = exp_f64x8_of(exp_f64x8_below(-d_abs(x)));
    return d_where_negative(x, e, d_splat(1)) / (e + 1);
}

// a where the bits of `which` are 1, otherwise b.
MU_INLINE mu_vd d_choose_bits(int64_t which, mu_vd a, mu_vd b)
{
    return (mu_vd)_mm512_ternarylogic_epi64(_mm512_set1_epi64(which), (__m512i)a, (__m512i)b, 0xCA);
}

// For |x| >= 0.55: s - 2 s e / (1 + e) with e = e^(-2|x|) and the sign s of x; below that x + x t p / q with
// polynomials of t = x^2. Both cases share one division. The table's rounding errors are too small to matter here.
MU_INLINE mu_vd tanh_f64x8(mu_vd x)
{
    const mu_vd size = d_abs(x), t = x * x;
    const exp_f64x8_parts parts = exp_f64x8_split(d_max(d_splat(-760), size * -2));
    const mu_vd e = scaled_f64x8(parts.power + parts.power * parts.rest, parts);
    const mu_vd p = (t * -0.0001993183245513845 - 0.020501964963793903) * t - 0.3333333333333333;
    const mu_vd q = ((t * 0.0002066839880815247 + 0.02329555102548231) * t + 0.4615058948913807) * t + 1;
    const __mmask8 is_far = _mm512_cmp_pd_mask((__m512d)size, _mm512_set1_pd(0.55), _CMP_GE_OQ);
    const mu_vd over = (mu_vd)_mm512_mask_blend_pd(is_far, (__m512d)(t * p + 0.0), (__m512d)(e * -2)); // keeps -0
    const mu_vd under = (mu_vd)_mm512_mask_blend_pd(is_far, (__m512d)q, (__m512d)(e + 1));
    const mu_vd sign = d_choose_bits(INT64_MIN, x, d_splat(1));
    const mu_vd scale = (mu_vd)_mm512_mask_blend_pd(is_far, (__m512d)x, (__m512d)sign);
    return scale + scale * (over / under);
}

// For very negative x the result is x * 0, because -infinity * e^x would be NaN. Multiplies by x first, since e^x
// alone may be denormal.
MU_INLINE mu_vd silu_f64x8(mu_vd x)
{
    const exp_f64x8_parts parts = exp_f64x8_below(-d_abs(x));
    const __m512d product = _mm512_fmadd_pd((__m512d)x, (__m512d)parts.power, (__m512d)(x * more_of(parts)));
    const mu_vd left = scaled_f64x8((mu_vd)product, parts);
    const mu_vd result = d_where_negative(x, left, x) / (exp_f64x8_of(parts) + 1);
    return d_where_negative(x + 1000, x * 0.0, result);
}

#else
#define MU_HAS_F64X8 0
#endif

#endif
