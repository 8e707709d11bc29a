// Images at other sizes: by the ops of TensorFlow's default, or by two matrices, for rows and for columns, that say how
// much of each pixel goes into each of the result. The matrices serve every method whose kernel is wider than a pixel:
// cubic, Lanczos's, and linear with antialiasing. Sizes are known, so they are constants.
#include "model/images/image_size.h"

#include "model/images/augment.h"
#include "tensor/tensor.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <string.h>

const char *const mu__interpolations[] = {"nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", NULL};

// ---- Kernels ------------------------------------------------------------------------------------

// A kernel is the weight of a pixel at a distance from the centre of one of the result; 0 beyond its radius.
typedef struct kernel {
    double (*weight)(double distance, double radius);
    double radius;
    bool in_steps;               // distances are rounded, as by TensorFlow's cubic op
} kernel;

static double triangle(double distance, double radius)
{
    return fmax(0, radius - distance);
}

// Keys's cubic convolution with a = -1/2.
static double cubic(double distance, double radius)
{
    (void)radius;
    if (distance < 1)
        return (1.5 * distance - 2.5) * distance * distance + 1;
    return distance < 2 ? ((-0.5 * distance + 2.5) * distance - 4) * distance + 2 : 0;
}

static double lanczos(double distance, double radius)
{
    const double x = acos(-1) * distance;
    if (distance >= radius)
        return 0;
    return distance > 1e-3 ? radius * sin(x) * sin(x / radius) / (x * x) : 1;
}

static kernel kernel_of(const char *name, bool antialias)
{
    if (strcmp(name, "bilinear") == 0)
        return (kernel){.weight = triangle, .radius = 1};
    if (strcmp(name, "bicubic") == 0)
        return (kernel){.weight = cubic, .radius = 2, .in_steps = !antialias};
    return (kernel){.weight = lanczos, .radius = name[strlen(name) - 1] - '0'};
}

// ---- Matrices -----------------------------------------------------------------------------------

// The row of the matrix for a pixel of the result whose centre is at `centre` in the image. Pixels beyond the edge do
// not exist, and the weights of the others add up to 1. The cubic op of TensorFlow has a table with 1024 steps a pixel.
static void fill_row(const kernel *k, double centre, double stretch, int64_t n, double *row)
{
    double sum = 0;
    centre -= 0.5;
    if (k->in_steps)
        centre = floor(centre) + nearbyint((centre - floor(centre)) * 1024) / 1024;
    for (int64_t i = 0; i < n; i++)
        sum += row[i] = k->weight(fabs((double)i - centre) / stretch, k->radius);
    for (int64_t i = 0; i < n && sum != 0; i++)
        row[i] /= sum;
}

// [to, from]: what takes an axis from one size to another. Antialiasing widens the kernel where pixels become fewer.
static mu_tensor *matrix(const kernel *k, bool antialias, int64_t from, int64_t to, mu_dtype dtype)
{
    mu_tensor *weights = mu__tensor_unset(MU_F64, 2, (int64_t[]){to, from});
    const double scale = (double)from / (double)to;
    for (int64_t i = 0; weights && i < to; i++)
        fill_row(k, ((double)i + 0.5) * scale, antialias ? fmax(scale, 1) : 1, from,
                 (double *)mu__host_write(weights) + i * from);
    return weights ? mu_cast(weights, dtype) : NULL;
}

static mu_tensor *resize_by_matrices(mu_tensor *x, int64_t height, int64_t width, const char *name, bool antialias)
{
    const kernel k = kernel_of(name, antialias);
    mu_tensor *rows = matrix(&k, antialias, mu_tensor_dim(x, 1), height, mu_tensor_dtype(x));
    mu_tensor *columns = matrix(&k, antialias, mu_tensor_dim(x, 2), width, mu_tensor_dtype(x));
    mu_tensor *factors[] = {rows, columns, x};
    return rows && columns ? mu_einsum("hi,wj,bijc->bhwc", 3, factors) : NULL;
}

// ---- Images -------------------------------------------------------------------------------------

// Mixed pixels as integers of a type: rounded, and within what the type can hold, since cubic and Lanczos's kernels go
// beyond the pixels that they mix.
static mu_tensor *as_integers(mu_tensor *y, mu_dtype dtype)
{
    const double beyond = ldexp(1, 8 * (int)mu_dtype_bytes(dtype) - (dtype != MU_U8));
    const double range[2] = {dtype == MU_U8 ? 0 : -beyond, fmin(beyond - 1, nextafter(beyond, 0))};
    return mu_cast(mu__image_limited(mu_cast(mu_round(y), MU_F64), range), dtype);
}

mu_tensor *mu__resize_images(mu_tensor *x, int64_t height, int64_t width, const char *interpolation, bool antialias)
{
    if (!x)
        return NULL;
    if (strcmp(interpolation, "nearest") == 0)
        return mu_image_resize(x, height, width, MU_RESIZE_NEAREST);
    mu_tensor *pixels = mu__dtype_is_float(x->dtype) ? x : mu_cast(x, MU_F32);
    mu_tensor *y = pixels && !antialias && strcmp(interpolation, "bilinear") == 0
                       ? mu_image_resize(pixels, height, width, MU_RESIZE_BILINEAR)
                       : resize_by_matrices(pixels, height, width, interpolation, antialias);
    return mu__dtype_is_integer(x->dtype) ? as_integers(y, x->dtype) : y;
}
