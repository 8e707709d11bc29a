// Maxima and minima of rows and of columns, of float32 and float64. The processor's maximum drops NaNs, so NaNs are
// detected separately, two vectors per comparison, and written into the result afterwards; columns are folded four rows
// at a time. The loops are in minmax.inc.c.
#include "kernel_slots.h"
#include "simd.h"

typedef double minmax_vd __attribute__((vector_size(4 * MU_LANES)));
typedef int64_t minmax_vl __attribute__((vector_size(4 * MU_LANES)));

// MINMAX: maximum or minimum per lane; b if either is NaN. UNORDERED: lanes where a or b is NaN. MARK: writes NaN
// into such lanes.
#if MU_LANES == 16
typedef __mmask8 minmax_md;
#define MINMAX_F32(a, b, least) \
    (mu_vf)((least) ? _mm512_min_ps((__m512)(a), (__m512)(b)) : _mm512_max_ps((__m512)(a), (__m512)(b)))
#define MINMAX_F64(a, b, least) \
    (minmax_vd)((least) ? _mm512_min_pd((__m512d)(a), (__m512d)(b)) : _mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define UNORDERED_F64(a, b) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_UNORD_Q)
#define MARK_F32(v, odd)    v_select(odd, v_splat(NAN), v)
#define MARK_F64(v, odd)    (minmax_vd) _mm512_mask_blend_pd(odd, (__m512d)(v), _mm512_set1_pd((double)NAN))
#else
typedef minmax_vl minmax_md;
#if MU_LANES == 8
#define MINMAX_F32(a, b, least) \
    (mu_vf)((least) ? _mm256_min_ps((__m256)(a), (__m256)(b)) : _mm256_max_ps((__m256)(a), (__m256)(b)))
#define MINMAX_F64(a, b, least) \
    (minmax_vd)((least) ? _mm256_min_pd((__m256d)(a), (__m256d)(b)) : _mm256_max_pd((__m256d)(a), (__m256d)(b)))
#else
MU_INLINE minmax_vd minmax_of_f64(minmax_vd a, minmax_vd b, bool smallest)
{
    const minmax_vl wins = smallest ? (minmax_vl)(a < b) : (minmax_vl)(a > b);
    return (minmax_vd)((wins & (minmax_vl)a) | (~wins & (minmax_vl)b));
}
#define MINMAX_F32(a, b, least) ((least) ? v_select(v_greater(b, a), a, b) : v_max(a, b))
#define MINMAX_F64(a, b, least) minmax_of_f64(a, b, least)
#endif
#define UNORDERED_F64(a, b) ((minmax_vl)((a) != (a)) | (minmax_vl)((b) != (b)))
// A number with all bits set is NaN.
#define MARK_F32(v, odd)    (mu_vf)((mu_vi)(v) | (odd))
#define MARK_F64(v, odd)    (minmax_vd)((minmax_vl)(v) | (odd))
#endif

#define T         float
#define V         mu_vf
#define M         mu_vm
#define FN(name)  name##_f32
#define MINMAX    MINMAX_F32
#define UNORDERED v_unordered
#define MARK      MARK_F32
#include "minmax.inc.c"

#define T         double
#define V         minmax_vd
#define M         minmax_md
#define FN(name)  name##_f64
#define MINMAX    MINMAX_F64
#define UNORDERED UNORDERED_F64
#define MARK      MARK_F64
#include "minmax.inc.c"

float MU_KERNEL(minmax_f32)(bool smallest, const float *x, int64_t n)
{
    return smallest ? row_f32(x, n, true) : row_f32(x, n, false);
}

double MU_KERNEL(minmax_f64)(bool smallest, const double *x, int64_t n)
{
    return smallest ? row_f64(x, n, true) : row_f64(x, n, false);
}

void MU_KERNEL(minmax_columns_f32)(bool smallest, const float *x, float *y, int64_t n, int64_t stride, int64_t width)
{
    if (smallest)
        columns_f32(x, y, n, stride, width, true);
    else
        columns_f32(x, y, n, stride, width, false);
}

void MU_KERNEL(minmax_columns_f64)(bool smallest, const double *x, double *y, int64_t n, int64_t stride, int64_t width)
{
    if (smallest)
        columns_f64(x, y, n, stride, width, true);
    else
        columns_f64(x, y, n, stride, width, false);
}
