// 2^t of vectors of floats, to a few bits more than a 16-bit float has. The integer part is exact; the rest takes a
// polynomial of two or three coefficients, fitted for this file.
#ifndef MU_SRC_KERNELS_FLOAT16_POWER_H
#define MU_SRC_KERNELS_FLOAT16_POWER_H

#include "float16.h"
#include "math_vf32.h"

#if MU_WIDE_FLOAT16

// Splits t into an integer and a rest of at most 1/2; for an infinity the rest is 0 or the integer is finite.
typedef struct whole_and_rest {
    mu_vf whole, rest;
} whole_and_rest;

MU_INLINE whole_and_rest split_at_whole(mu_vf t)
{
#if MU_LANES == 16
    const mu_vf rest = (mu_vf)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return (whole_and_rest){t - rest, rest};
#else
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const mu_vf inside = v_at_least(v_at_most(t, 240), -240), whole = (inside + magic) - magic;
    return (whole_and_rest){whole, inside - whole};
#endif
}

// 2^f for |f| <= 1/2 is 1 + even + odd; `odd` changes sign with f.
typedef struct power_terms {
    mu_vf even, odd;
} power_terms;

MU_INLINE power_terms power_terms_of(mu_vf f)
{
    const mu_vf z = f * f;
    return (power_terms){z * (z * 0.009582853f + 0.240240986f), f * (z * 0.0559064247f + 0.693124193f)};
}

MU_INLINE mu_vf power_of_two_float16(mu_vf t, bool bfloat)
{
    const whole_and_rest parts = split_at_whole(t);
    const mu_vf f = parts.rest;
    const mu_vf q = bfloat ? (f * 0.05500893f + 0.24221096f) * f + 0.69328293f
                           : ((f * 0.009582853f + 0.0559064247f) * f + 0.240240986f) * f + 0.693124193f;
    return v_scale(f * q + 1, parts.whole);
}

#endif

#endif
