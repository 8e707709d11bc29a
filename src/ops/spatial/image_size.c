// Images at other sizes: by the ops of TensorFlow's default, or by the weights of resample.h, of rows and of columns.
// Where the images may be in a graph, the weights are two matrices; sizes are known, so they are constants.
#include "ops/spatial/image_size.h"

#include "ops/spatial/resample.h"
#include "tensor/tensor.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

const char *const mu__interpolations[] = {"nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "area", NULL};
const char *const mu__resize_methods[] = {"nearest", "bilinear", "bicubic",       "lanczos3", "lanczos5",
                                          "area",    "gaussian", "mitchellcubic", NULL};

// [to, from]: what takes an axis from one size to another.
static mu_tensor *matrix(const char *method, bool antialias, int64_t from, int64_t to, mu_dtype dtype)
{
    mu_resample_axis axis = {0};
    mu_tensor *weights = mu__tensor_unset(MU_F64, 2, (int64_t[]){to, from});
    double *numbers = weights ? mu__host_write(weights) : NULL;
    if (weights && mu__resample_axis(&axis, method, antialias, from, to) != MU_OK)
        weights = NULL;
    for (int64_t i = 0; weights && i < to; i++, numbers += from) {
        memset(numbers, 0, (size_t)from * sizeof *numbers);
        memcpy(numbers + axis.first[i], axis.weights + i * axis.most, (size_t)axis.n[i] * sizeof *numbers);
    }
    mu__resample_free(&axis);
    return weights ? mu_cast(weights, dtype) : NULL;
}

static mu_tensor *resize_by_matrices(mu_tensor *x, int64_t height, int64_t width, const char *method, bool antialias)
{
    mu_tensor *rows = matrix(method, antialias, mu_tensor_dim(x, 1), height, mu_tensor_dtype(x));
    mu_tensor *columns = matrix(method, antialias, mu_tensor_dim(x, 2), width, mu_tensor_dtype(x));
    mu_tensor *factors[] = {rows, columns, x};
    return rows && columns ? mu_einsum("hi,wj,bijc->bhwc", 3, factors) : NULL;
}

// Mixed pixels as integers of a type: rounded, and within what the type can hold, since cubic and Lanczos's kernels go
// beyond the pixels that they mix.
static mu_tensor *as_integers(mu_tensor *y, mu_dtype dtype)
{
    const double beyond = ldexp(1, 8 * (int)mu_dtype_bytes(dtype) - (dtype != MU_U8));
    mu_tensor *lowest = mu_constant(MU_F64, dtype == MU_U8 ? 0 : -beyond);
    mu_tensor *highest = mu_constant(MU_F64, fmin(beyond - 1, nextafter(beyond, 0)));
    return y ? mu_cast(mu_clip_by_value(mu_cast(mu_round(y), MU_F64), lowest, highest), dtype) : NULL;
}

mu_tensor *mu__resize_images(mu_tensor *x, int64_t height, int64_t width, const char *method, bool antialias)
{
    if (!x)
        return NULL;
    if (strcmp(method, "nearest") == 0)
        return mu_image_resize(x, height, width, MU_RESIZE_NEAREST);
    mu_tensor *pixels = mu__dtype_is_float(x->dtype) ? x : mu_cast(x, MU_F32);
    mu_tensor *y = pixels && !antialias && strcmp(method, "bilinear") == 0
                       ? mu_image_resize(pixels, height, width, MU_RESIZE_BILINEAR)
                       : resize_by_matrices(pixels, height, width, method, antialias);
    return mu__dtype_is_integer(x->dtype) ? as_integers(y, x->dtype) : y;
}

mu_tensor *mu__resize_images_now(mu_tensor *x, int64_t height, int64_t width, const char *method)
{
    mu_resample_axis rows = {0}, columns = {0};
    float *scratch = NULL;
    if (!x)
        return NULL;
    if (strcmp(method, "nearest") == 0 || strcmp(method, "bilinear") == 0)
        return mu__resize_images(x, height, width, method, false);
    const int64_t *from = x->shape.dims;
    const float *pixels = mu__host_read(x);
    mu_tensor *y = pixels ? mu__tensor_unset(MU_F32, 4, (int64_t[]){from[0], height, width, from[3]}) : NULL;
    if (y)
        scratch = mu__alloc((size_t)(from[2] * from[3]) * sizeof *scratch);
    if (scratch && mu__resample_axis(&rows, method, false, from[1], height) == MU_OK &&
        mu__resample_axis(&columns, method, false, from[2], width) == MU_OK)
        mu__resample(pixels, from[0], from[3], &rows, &columns, scratch, mu__host_write(y));
    mu__resample_free(&rows);
    mu__resample_free(&columns);
    mu__free(scratch);
    return mu__pending() ? NULL : y;
}

mu_tensor *mu__image_middle(mu_tensor *x, int64_t height, int64_t width)
{
    const int64_t begin[] = {0, (mu_tensor_dim(x, 1) - height) / 2, (mu_tensor_dim(x, 2) - width) / 2, 0};
    return mu_slice(x, begin, (int64_t[]){-1, height, width, -1});
}

mu_tensor *mu__crop_to_ratio(mu_tensor *x, int64_t height, int64_t width)
{
    const int64_t h = mu_tensor_dim(x, 1), w = mu_tensor_dim(x, 2);
    const int64_t fitting_height = MU_MAX(MU_MIN(h, w * height / width), 1);
    const int64_t fitting_width = MU_MAX(MU_MIN(w, h * width / height), 1);
    return mu__image_middle(x, fitting_height, fitting_width);
}
