// Kernels that only move memory: all-reduce of one slice, scaling, bytes to floats. One pass adds all sources
// and writes the sum to all destinations, so each element is read once and written once; for slices larger than the
// caches the stores bypass them.
#include "kernel_slots.h"
#include "simd.h"

// Streaming stores are weakly ordered: a fence makes them visible before the caller notifies other threads.
MU_INLINE void stream_fence(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

static float reduce_one(const float *const *src, int n_src, float scale, int64_t i)
{
    float sum = src[0][i];
    for (int k = 1; k < n_src; k++)
        sum += src[k][i];
    return sum * scale;
}

static void reduce_scalar(float *const *dst, int n_dst, const float *const *src, int n_src, float scale, int64_t begin,
                          int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const float sum = reduce_one(src, n_src, scale, i);
        for (int k = 0; k < n_dst; k++)
            dst[k][i] = sum;
    }
}

// Processes WIDTH vectors at a time, so that walking the lists of pointers costs little.
enum { WIDTH = 4, STRIDE = WIDTH * MU_LANES };

MU_INLINE void reduce_vectors(float *const *dst, int n_dst, const float *const *src, int n_src, float scale,
                              bool stream, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += STRIDE) {
        mu_vf sum[WIDTH];
        for (int j = 0; j < WIDTH; j++)
            sum[j] = v_load(src[0] + i + j * MU_LANES);
        for (int k = 1; k < n_src; k++)
            for (int j = 0; j < WIDTH; j++)
                sum[j] += v_load(src[k] + i + j * MU_LANES);
        for (int j = 0; j < WIDTH; j++)
            sum[j] *= scale;
        for (int k = 0; k < n_dst; k++) {
            for (int j = 0; j < WIDTH; j++) {
                float *to = dst[k] + i + j * MU_LANES;
                if (stream)
                    v_stream(to, sum[j]);
                else
                    v_store(to, sum[j]);
            }
        }
    }
}

static int64_t elements_to_alignment(const float *p)
{
    const uintptr_t past = (uintptr_t)p % VECTOR_BYTES;
    return past == 0 ? 0 : (int64_t)((VECTOR_BYTES - past) / sizeof *p);
}

static bool aligned_alike(float *const *dst, int n_dst)
{
    for (int k = 1; k < n_dst; k++)
        if ((uintptr_t)dst[k] % VECTOR_BYTES != (uintptr_t)dst[0] % VECTOR_BYTES)
            return false;
    return (uintptr_t)dst[0] % sizeof(float) == 0;
}

void MU_KERNEL(reduce_n)(float *const *dst, int n_dst, const float *const *src, int n_src, float scale, bool stream,
                         int64_t begin, int64_t end)
{
    const bool bypass = stream && aligned_alike(dst, n_dst);
    const int64_t head = least(end, begin + (bypass ? elements_to_alignment(dst[0] + begin) : 0));
    const int64_t tail = head + (end - head) / STRIDE * STRIDE;
    reduce_scalar(dst, n_dst, src, n_src, scale, begin, head);
    if (bypass)
        reduce_vectors(dst, n_dst, src, n_src, scale, true, head, tail);
    else
        reduce_vectors(dst, n_dst, src, n_src, scale, false, head, tail);
    reduce_scalar(dst, n_dst, src, n_src, scale, tail, end);
    if (bypass)
        stream_fence();
}

void MU_KERNEL(scale)(const float *x, float factor, float *y, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        y[i] = factor * x[i];
}

void MU_KERNEL(scale_u8)(const uint8_t *x, float factor, float *y, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        y[i] = factor * (float)x[i];
}

void MU_KERNEL(gather_u8)(const uint8_t *x, const int64_t *index, float factor, float *y, int64_t row_size,
                          int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const int64_t from = index == NULL ? row : index[row];
        MU_KERNEL(scale_u8)(x + from * row_size, factor, y + row * row_size, 0, row_size);
    }
}
