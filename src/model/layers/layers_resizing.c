// The layer that resizes images: by the ops of TensorFlow's default, or by two matrices, for rows and for columns, that
// say how much of each pixel goes into each of the result. The matrices serve every method whose kernel is wider than a
// pixel: cubic, Lanczos's, and linear with antialiasing. Sizes are known, so they are constants.
#include "model/core/layer.h"
#include "model/layers/augment.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/preprocessing.h>

static const char *const interpolations[] = {"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", NULL};
static const char *const fill_modes[] = {"constant", NULL};

static const mu_field resizing_fields[] = {
    MU_FIELD(mu_resizing_args, height, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_resizing_args, width, INT, .limit = MU_POSITIVE),
    MU_FIELD(mu_resizing_args, interpolation, CHOICE, .text = "bilinear", .choices = interpolations),
    MU_FIELD(mu_resizing_args, crop_to_aspect_ratio, FLAG),
    MU_FIELD(mu_resizing_args, pad_to_aspect_ratio, FLAG),
    MU_FIELD(mu_resizing_args, fill_mode, CHOICE, .text = "constant", .choices = fill_modes),
    MU_FIELD(mu_resizing_args, fill_value, DOUBLE),
    MU_FIELD(mu_resizing_args, antialias, FLAG),
    MU_LAYER_FIELDS(mu_resizing_args),
    {0},
};

static mu_status resizing_complete(void *arguments)
{
    const mu_resizing_args *args = arguments;
    if (!args->crop_to_aspect_ratio || !args->pad_to_aspect_ratio)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "mu_resizing: .crop_to_aspect_ratio and .pad_to_aspect_ratio are both true; "
                     "give one of them");
}

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

static kernel kernel_of(const mu_resizing_args *args)
{
    const char *name = args->interpolation;
    if (strcmp(name, "bilinear") == 0)
        return (kernel){.weight = triangle, .radius = 1};
    if (strcmp(name, "bicubic") == 0)
        return (kernel){.weight = cubic, .radius = 2, .in_steps = !args->antialias};
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

static mu_tensor *resize_by_matrices(mu_tensor *x, const mu_resizing_args *args)
{
    const kernel k = kernel_of(args);
    mu_tensor *rows = matrix(&k, args->antialias, mu_tensor_dim(x, 1), args->height, mu_tensor_dtype(x));
    mu_tensor *columns = matrix(&k, args->antialias, mu_tensor_dim(x, 2), args->width, mu_tensor_dtype(x));
    mu_tensor *factors[] = {rows, columns, x};
    return rows && columns ? mu_einsum("hi,wj,bijc->bhwc", 3, factors) : NULL;
}

// ---- The layer ----------------------------------------------------------------------------------

// The image is padded on both sides to the proportion of height to width.
static mu_tensor *pad_to_ratio(mu_tensor *x, const mu_resizing_args *args)
{
    const int64_t h = mu_tensor_dim(x, 1), w = mu_tensor_dim(x, 2);
    const int64_t rows = MU_MAX(w * args->height / args->width - h, 0) / 2;
    const int64_t columns = MU_MAX(h * args->width / args->height - w, 0) / 2;
    const int64_t sides[] = {0, rows, columns, 0};
    return mu_pad(x, sides, sides, "constant", args->fill_value);
}

static mu_value *resizing_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    (void)context;
    const mu_resizing_args *args = layer->args;
    const bool nearest = strcmp(args->interpolation, "nearest") == 0;
    mu_tensor *x = mu_at(inputs, 0);
    if (args->crop_to_aspect_ratio)
        x = mu__crop_to_ratio(x, args->height, args->width);
    if (args->pad_to_aspect_ratio)
        x = pad_to_ratio(x, args);
    if (x && !nearest && (args->antialias || strcmp(args->interpolation, "bilinear") != 0))
        return mu_of(resize_by_matrices(x, args));
    return mu_of(mu_image_resize(x, args->height, args->width, nearest ? MU_RESIZE_NEAREST : MU_RESIZE_BILINEAR));
}

MU_LAYER_CLASS(resizing, "resizing", "Resizing", mu_resizing_args, resizing_fields, resizing_complete, .axes = 2,
               .build = mu__image_sizes_known, .call = resizing_call)
