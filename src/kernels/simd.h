// Vectors of the instruction set's width, for kernels whose plain loops compilers do not make fast. GCC's and clang's
// vector types do the arithmetic on every processor (mu_vf + mu_vf); only masks, selection and byte marks have a
// separate AVX-512 form. Names are short because everything is static.
#ifndef MU_SRC_KERNELS_SIMD_H
#define MU_SRC_KERNELS_SIMD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define MU_LANES 16
#elif defined(__AVX2__)
#define MU_LANES 8
#else
#define MU_LANES 4
#endif

#define MU_OUTLINE __attribute__((noinline))
#define MU_INLINE  static inline __attribute__((always_inline, unused))

// Sanitizers check every access: a compiler would need minutes for such loops if they were unrolled.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MU_UNROLL
#elif defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MU_UNROLL
#else
#define MU_UNROLL _Pragma("clang loop unroll(full)")
#endif
#else
#define MU_UNROLL _Pragma("GCC unroll 16")
#endif

enum { VECTOR_BYTES = 4 * MU_LANES };

typedef float mu_vf __attribute__((vector_size(4 * MU_LANES)));
typedef int32_t mu_vi __attribute__((vector_size(4 * MU_LANES)));
typedef uint8_t mu_vb __attribute__((vector_size(MU_LANES)));

MU_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

MU_INLINE int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

MU_INLINE mu_vf v_load(const float *p)
{
    mu_vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

MU_INLINE void v_store(float *p, mu_vf v) { memcpy(p, &v, sizeof v); }

// Prefetches the line `bytes` after p. Processors prefetch one long stream themselves, but several short streams less
// well. Any address is allowed.
MU_INLINE void v_prefetch(const void *p, int64_t bytes) { __builtin_prefetch((const char *)p + bytes); }

// Prefetches into the second-level cache only, for data that is needed much later: the first-level cache would evict it
// again, and other loads would lack its few fill buffers.
MU_INLINE void v_prefetch_l2(const void *p, int64_t bytes) { __builtin_prefetch((const char *)p + bytes, 0, 2); }

// A streaming store, which bypasses the caches; p is aligned to a vector.
MU_INLINE void v_stream(float *p, mu_vf v)
{
#if MU_LANES == 16
    _mm512_stream_ps(p, (__m512)v);
#elif MU_LANES == 8
    _mm256_stream_ps(p, (__m256)v);
#elif defined(__SSE2__)
    _mm_stream_ps(p, (__m128)v);
#else
    v_store(p, v);
#endif
}

MU_INLINE mu_vf v_splat(float x) { return x - (mu_vf){0}; }

MU_INLINE mu_vi v_splat_int(int32_t x) { return x - (mu_vi){0}; }

#if MU_LANES == 16

typedef __mmask16 mu_vm;
typedef __m128i mu_marks; // one byte per lane

// Loads the first n elements, 1 to MU_LANES, followed by zeros or padding. Whole vectors are never moved with a mask:
// processors do not prefetch for masked loads, and cannot forward a masked store to a later load.
MU_INLINE mu_vf v_load_n(const float *p, int64_t n)
{
    if (n >= MU_LANES)
        return v_load(p);
    return (mu_vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

MU_INLINE mu_vf v_load_padded(const float *p, int64_t n, float padding)
{
    if (n >= MU_LANES)
        return v_load(p);
    return (mu_vf)_mm512_mask_loadu_ps(_mm512_set1_ps(padding), (__mmask16)((1u << n) - 1), p);
}

MU_INLINE void v_store_n(float *p, mu_vf v, int64_t n)
{
    if (n >= MU_LANES)
        v_store(p, v);
    else
        _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}

// The maximum; b if either is NaN.
MU_INLINE mu_vf v_max(mu_vf a, mu_vf b) { return (mu_vf)_mm512_max_ps((__m512)a, (__m512)b); }

MU_INLINE mu_vm v_greater(mu_vf a, mu_vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ); }

MU_INLINE mu_vm v_unordered(mu_vf a, mu_vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q); }

// Lanes where the candidate replaces the best so far: it is greater, or it is the first NaN.
MU_INLINE mu_vm v_takes(mu_vf candidate, mu_vf best)
{
    const __mmask16 number = _mm512_cmp_ps_mask((__m512)best, (__m512)best, _CMP_ORD_Q);
    return _mm512_mask_cmp_ps_mask(number, (__m512)candidate, (__m512)best, _CMP_NLE_UQ);
}

MU_INLINE mu_vf v_select(mu_vm m, mu_vf yes, mu_vf no)
{
    return (mu_vf)_mm512_mask_blend_ps(m, (__m512)no, (__m512)yes);
}

MU_INLINE mu_vm m_not(mu_vm m) { return (mu_vm)~m; }

MU_INLINE bool m_any(mu_vm m) { return m != 0; }

MU_INLINE mu_marks marks_splat(int mark) { return _mm_set1_epi8((char)mark); }

MU_INLINE mu_marks marks_set(mu_marks old, mu_vm m, int mark)
{
    return _mm_mask_mov_epi8(old, m, _mm_set1_epi8((char)mark));
}

MU_INLINE mu_marks marks_select(mu_vm m, mu_marks yes, mu_marks no) { return _mm_mask_mov_epi8(no, m, yes); }

MU_INLINE mu_marks marks_add(mu_marks a, mu_marks b) { return _mm_add_epi8(a, b); }

MU_INLINE mu_marks marks_load(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }

MU_INLINE mu_marks marks_load_n(const uint8_t *p, int64_t n)
{
    if (n >= MU_LANES)
        return marks_load(p);
    return _mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p);
}

MU_INLINE void marks_store(uint8_t *p, mu_marks marks) { _mm_storeu_si128((__m128i *)p, marks); }

MU_INLINE void marks_store_n(uint8_t *p, mu_marks marks, int64_t n)
{
    if (n >= MU_LANES)
        marks_store(p, marks);
    else
        _mm_mask_storeu_epi8(p, (__mmask16)((1u << n) - 1), marks);
}

MU_INLINE mu_vm marks_equal(mu_marks marks, int mark) { return _mm_cmpeq_epi8_mask(marks, _mm_set1_epi8((char)mark)); }

// Compilers merge this selection with the load before it into a masked load, which must wait for the mask before it
// reads memory. The asm statement keeps the load separate.
MU_INLINE mu_vf v_keep(mu_vm m, mu_vf v)
{
    __asm__("" : "+v"(v));
    return (mu_vf)_mm512_maskz_mov_ps(m, (__m512)v);
}

#else

typedef mu_vi mu_vm;
typedef mu_vi mu_marks; // one int per lane; bytes only in memory

MU_INLINE mu_vf v_load_padded(const float *p, int64_t n, float padding)
{
    mu_vf v = v_splat(padding);
    if (n >= MU_LANES)
        return v_load(p);
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

MU_INLINE mu_vf v_load_n(const float *p, int64_t n) { return v_load_padded(p, n, 0); }

MU_INLINE void v_store_n(float *p, mu_vf v, int64_t n)
{
    if (n >= MU_LANES)
        v_store(p, v);
    else
        memcpy(p, &v, (size_t)n * sizeof *p);
}

MU_INLINE mu_vm v_greater(mu_vf a, mu_vf b) { return (mu_vm)(a > b); }

MU_INLINE mu_vm v_unordered(mu_vf a, mu_vf b) { return (mu_vm)(a != a) | (mu_vm)(b != b); }

MU_INLINE mu_vm v_takes(mu_vf candidate, mu_vf best)
{
    return (mu_vm) ~(mu_vm)(candidate <= best) & (mu_vm)(best == best);
}

MU_INLINE mu_vf v_keep(mu_vm m, mu_vf v) { return (mu_vf)(m & (mu_vi)v); }

MU_INLINE mu_vf v_select(mu_vm m, mu_vf yes, mu_vf no)
{
#if MU_LANES == 8
    return (mu_vf)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)m);
#else
    return (mu_vf)((m & (mu_vi)yes) | (~m & (mu_vi)no));
#endif
}

MU_INLINE mu_vf v_max(mu_vf a, mu_vf b)
{
#if MU_LANES == 8
    return (mu_vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (mu_vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return v_select(v_greater(a, b), a, b);
#endif
}

MU_INLINE mu_vm m_not(mu_vm m) { return ~m; }

MU_INLINE bool m_any(mu_vm m)
{
    static const mu_vm none = {0};
    return memcmp(&m, &none, sizeof m) != 0;
}

MU_INLINE mu_marks marks_splat(int mark) { return v_splat_int(mark); }

MU_INLINE mu_marks marks_set(mu_marks old, mu_vm m, int mark) { return (m & v_splat_int(mark)) | (~m & old); }

MU_INLINE mu_marks marks_select(mu_vm m, mu_marks yes, mu_marks no) { return (m & yes) | (~m & no); }

MU_INLINE mu_marks marks_add(mu_marks a, mu_marks b) { return a + b; }

// Conversions between ints and bytes, written by hand because GCC 12 compiles __builtin_convertvector lane by lane
// here.
MU_INLINE mu_marks marks_of(mu_vb bytes)
{
#if MU_LANES == 8
    return (mu_vi)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
#elif defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128();
    return (mu_vi)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128((int32_t)bytes), zero), zero);
#else
    return __builtin_convertvector(bytes, mu_vi);
#endif
}

MU_INLINE mu_vb bytes_of(mu_marks marks)
{
#if MU_LANES == 8
    const __m256i all = (__m256i)marks;
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    return (mu_vb)_mm_cvtsi128_si64(_mm_packus_epi16(words, words));
#elif defined(__SSE2__)
    const __m128i words = _mm_packs_epi32((__m128i)marks, (__m128i)marks);
    return (mu_vb)_mm_cvtsi128_si32(_mm_packus_epi16(words, words));
#else
    return __builtin_convertvector(marks, mu_vb);
#endif
}

MU_INLINE mu_marks marks_load(const uint8_t *p)
{
    mu_vb bytes;
    memcpy(&bytes, p, sizeof bytes);
    return marks_of(bytes);
}

MU_INLINE mu_marks marks_load_n(const uint8_t *p, int64_t n)
{
    mu_vb bytes = {0};
    if (n >= MU_LANES)
        return marks_load(p);
    memcpy(&bytes, p, (size_t)n);
    return marks_of(bytes);
}

MU_INLINE void marks_store(uint8_t *p, mu_marks marks)
{
    const mu_vb bytes = bytes_of(marks);
    memcpy(p, &bytes, sizeof bytes);
}

MU_INLINE void marks_store_n(uint8_t *p, mu_marks marks, int64_t n)
{
    const mu_vb bytes = bytes_of(marks);
    if (n >= MU_LANES)
        marks_store(p, marks);
    else
        memcpy(p, &bytes, (size_t)n);
}

MU_INLINE mu_vm marks_equal(mu_marks marks, int mark) { return (mu_vm)(marks == v_splat_int(mark)); }

#endif

// The sum and the maximum of a vector's lanes, by halving.
MU_INLINE float v_sum_of_lanes(mu_vf v)
{
#if MU_LANES == 16
    return _mm512_reduce_add_ps((__m512)v);
#else
    float lanes[MU_LANES];
    v_store(lanes, v);
    for (int half = MU_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
#endif
}

MU_INLINE float v_most_of_lanes(mu_vf v)
{
#if MU_LANES == 16
    return _mm512_reduce_max_ps((__m512)v);
#else
    float lanes[MU_LANES];
    v_store(lanes, v);
    for (int half = MU_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] = lanes[lane + half] > lanes[lane] ? lanes[lane + half] : lanes[lane];
    return lanes[0];
#endif
}

// A 2x2 max pool with bias and ReLU, and its marks, for inputs without NaN. The bias is added to the maximum:
// rounding is monotonic, so this equals the maximum of the sums.
MU_INLINE mu_vf v_relu_pool_numbers(const mu_vf a[4], mu_vf bias, mu_marks *marks)
{
    const mu_vf upper = v_max(a[0], a[1]), lower = v_max(a[2], a[3]);
    const mu_vf sum = v_max(upper, lower) + bias;
    const mu_vm below = v_greater(lower, upper);
    *marks = marks_set(marks_splat(0), v_greater(a[1], a[0]), 1);
    *marks = marks_set(*marks, below, 2);
    *marks = marks_set(*marks, below & v_greater(a[3], a[2]), 3);
    *marks = marks_set(*marks, m_not(v_greater(sum, (mu_vf){0})), 4);
    return v_max(sum, (mu_vf){0});
}

// The same for inputs that may contain NaN: a NaN in the window or in the sum makes the result NaN, with a dead mark.
MU_INLINE mu_vf v_relu_pool(const mu_vf a[4], mu_vf bias, mu_marks *marks)
{
    const mu_vf best = v_relu_pool_numbers(a, bias, marks);
    const mu_vf sum = v_max(v_max(a[0], a[1]), v_max(a[2], a[3])) + bias;
    const mu_vm nan = v_unordered(a[0], a[1]) | v_unordered(a[2], a[3]) | v_unordered(sum, sum);
    *marks = marks_set(*marks, nan, 4);
    return v_select(nan, v_splat(NAN), best);
}

#endif
