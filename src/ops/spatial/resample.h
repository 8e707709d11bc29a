// Resizing by weights: how much of each pixel along an axis goes into each pixel of the result. So every method whose
// kernel is wider than a pixel is computed: cubic, Lanczos's, area, linear with antialiasing.
#ifndef MU_SRC_OPS_RESAMPLE_H
#define MU_SRC_OPS_RESAMPLE_H

#include "base/base.h"

// Pixel `to` of the result is the sum of the pixels first[to] to first[to] + n[to] - 1, times the weights from
// weights[to * most]; these add up to 1.
typedef struct mu_resample_axis {
    int64_t from, to, most;
    int64_t *first, *n;
    double *weights;
} mu_resample_axis;

// mu__resample_axis fills an axis for a method of tf.image.resize: "bilinear", "bicubic", "area", "lanczos3",
// "lanczos5", "gaussian" or "mitchellcubic". `antialias` widens the kernel where pixels become fewer (not of "area",
// which takes all pixels anyway). mu__resample_free frees it, filled or {0}.
mu_status mu__resample_axis(mu_resample_axis *axis, const char *method, bool antialias, int64_t from, int64_t to);
void mu__resample_free(mu_resample_axis *axis);
// mu__resample resizes n images [rows->from, columns->from, channels]. `scratch` is for a row of an image.
void mu__resample(const float *images, int64_t n, int64_t channels, const mu_resample_axis *rows,
                  const mu_resample_axis *columns, float *scratch, float *result);

#endif
