// Greatest and least numbers of rows and of columns, of float32 and of doubles. Main idea: the processor's own maximum
// loses NaNs, so these are looked for apart, in two vectors with one comparison, and put where they belong afterwards;
// columns are folded four or eight rows at a time (ahead.h). The loops are extremes.inc.c. Knows no axes.
#include "ahead.h"
#include "parts.h"
#include "simd.h"

typedef double extreme_vd __attribute__((vector_size(4 * MU_LANES)));
typedef int64_t extreme_vl __attribute__((vector_size(4 * MU_LANES)));

// The greater, or the lesser, one; b where either is NaN. Whether a lane of two is NaN; NaN in such lanes.
#if MU_LANES == 16
typedef __mmask8 extreme_md;
#define EXTREME_F32(a, b, least)                                                \
    (mu_vf)((least) ? _mm512_min_ps((__m512)(a), (__m512)(b)) : _mm512_max_ps((__m512)(a), (__m512)(b)))
#define EXTREME_F64(a, b, least)                                                \
    (extreme_vd)((least) ? _mm512_min_pd((__m512d)(a), (__m512d)(b)) : _mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define UNORDERED_F64(a, b) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_UNORD_Q)
#define MARK_F32(v, odd) v_select(odd, v_splat(NAN), v)
#define MARK_F64(v, odd) (extreme_vd) _mm512_mask_blend_pd(odd, (__m512d)(v), _mm512_set1_pd((double)NAN))
#else
typedef extreme_vl extreme_md;
#if MU_LANES == 8
#define EXTREME_F32(a, b, least)                                                \
    (mu_vf)((least) ? _mm256_min_ps((__m256)(a), (__m256)(b)) : _mm256_max_ps((__m256)(a), (__m256)(b)))
#define EXTREME_F64(a, b, least)                                                \
    (extreme_vd)((least) ? _mm256_min_pd((__m256d)(a), (__m256d)(b)) : _mm256_max_pd((__m256d)(a), (__m256d)(b)))
#else
MU_INLINE extreme_vd extreme_of_f64(extreme_vd a, extreme_vd b, bool smallest)
{
    const extreme_vl wins = smallest ? (extreme_vl)(a < b) : (extreme_vl)(a > b);
    return (extreme_vd)((wins & (extreme_vl)a) | (~wins & (extreme_vl)b));
}
#define EXTREME_F32(a, b, least) ((least) ? v_select(v_greater(b, a), a, b) : v_max(a, b))
#define EXTREME_F64(a, b, least) extreme_of_f64(a, b, least)
#endif
#define UNORDERED_F64(a, b) ((extreme_vl)((a) != (a)) | (extreme_vl)((b) != (b)))
// All bits set are a NaN.
#define MARK_F32(v, odd) (mu_vf)((mu_vi)(v) | (odd))
#define MARK_F64(v, odd) (extreme_vd)((extreme_vl)(v) | (odd))
#endif

#define T float
#define V mu_vf
#define M mu_vm
#define FN(name) name##_f32
#define EXTREME EXTREME_F32
#define UNORDERED v_unordered
#define MARK MARK_F32
#include "extremes.inc.c"

#define T double
#define V extreme_vd
#define M extreme_md
#define FN(name) name##_f64
#define EXTREME EXTREME_F64
#define UNORDERED UNORDERED_F64
#define MARK MARK_F64
#include "extremes.inc.c"

float MU_KERNEL(extreme_f32)(bool smallest, bool far, const float *x, int64_t n)
{
    if (far)
        return smallest ? row_f32(x, n, true, true) : row_f32(x, n, false, true);
    return smallest ? row_f32(x, n, true, false) : row_f32(x, n, false, false);
}

double MU_KERNEL(extreme_f64)(bool smallest, bool far, const double *x, int64_t n)
{
    if (far)
        return smallest ? row_f64(x, n, true, true) : row_f64(x, n, false, true);
    return smallest ? row_f64(x, n, true, false) : row_f64(x, n, false, false);
}

void MU_KERNEL(extreme_columns_f32)(bool smallest, const float *x, float *y, int64_t n, int64_t stride, int64_t width)
{
    if (smallest)
        columns_f32(x, y, n, stride, width, true);
    else
        columns_f32(x, y, n, stride, width, false);
}

void MU_KERNEL(extreme_columns_f64)(bool smallest, const double *x, double *y, int64_t n, int64_t stride, int64_t width)
{
    if (smallest)
        columns_f64(x, y, n, stride, width, true);
    else
        columns_f64(x, y, n, stride, width, false);
}
