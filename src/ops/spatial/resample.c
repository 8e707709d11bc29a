// The weights of resizing, from the kernels of TensorFlow's methods, and loops that apply them. See resample.h.
#include "ops/spatial/resample.h"

#include <math.h>

// ---- Kernels ------------------------------------------------------------------------------------

// A kernel is the weight of a pixel at a distance from the centre of one of the result; 0 beyond its radius.
typedef struct kernel {
    double (*weight)(double distance, double radius);
    double radius;
    bool in_steps; // distances are rounded, as by TensorFlow's cubic op
} kernel;

static double triangle(double distance, double radius) { return radius - distance; }

// Keys's cubic convolution with a = -1/2.
static double cubic(double distance, double radius)
{
    (void)radius;
    if (distance < 1)
        return (1.5 * distance - 2.5) * distance * distance + 1;
    return ((-0.5 * distance + 2.5) * distance - 4) * distance + 2;
}

// Mitchell's and Netravali's cubic with B = C = 1/3.
static double mitchell(double distance, double radius)
{
    (void)radius;
    if (distance < 1)
        return (7. / 6 * distance - 2) * distance * distance + 8. / 9;
    return ((-7. / 18 * distance + 2) * distance - 10. / 3) * distance + 16. / 9;
}

static double lanczos(double distance, double radius)
{
    const double x = acos(-1) * distance;
    return distance > 1e-3 ? radius * sin(x) * sin(x / radius) / (x * x) : 1;
}

// The standard deviation is a third of the radius.
static double gaussian(double distance, double radius) { return exp(-4.5 * distance * distance / (radius * radius)); }

// What a pixel and one of the result, which is as wide as 2 * radius - 1 pixels, have in common.
static double overlap(double distance, double radius) { return fmin(fmin(1, 2 * radius - 1), radius - distance); }

static kernel kernel_of(const char *name, bool antialias, double scale)
{
    if (strcmp(name, "bilinear") == 0)
        return (kernel){.weight = triangle, .radius = 1};
    if (strcmp(name, "bicubic") == 0)
        return (kernel){.weight = cubic, .radius = 2, .in_steps = !antialias};
    if (strcmp(name, "mitchellcubic") == 0)
        return (kernel){.weight = mitchell, .radius = 2};
    if (strcmp(name, "gaussian") == 0)
        return (kernel){.weight = gaussian, .radius = 1.5};
    if (strcmp(name, "area") == 0)
        return (kernel){.weight = overlap, .radius = (scale + 1) / 2};
    return (kernel){.weight = lanczos, .radius = name[strlen(name) - 1] - '0'};
}

// ---- Weights ------------------------------------------------------------------------------------

// The centre of pixel `to` of the result in the image. TensorFlow computes it in float32, and rounding decides about a
// pixel at the edge of a kernel. Its cubic op has a table with 1024 steps a pixel; areas have no weight at their edges.
static double centre_of(const kernel *k, const mu_resample_axis *axis, int64_t to)
{
    const float middle = (float)to + 0.5f, cubic_at = middle * ((float)axis->from / (float)axis->to) - 0.5f;
    if (k->weight == overlap)
        return ((double)to + 0.5) * (double)axis->from / (double)axis->to;
    if (k->in_steps)
        return (double)floorf(cubic_at) + (double)(nearbyintf((cubic_at - floorf(cubic_at)) * 1024) / 1024) + 0.5;
    return (double)(middle * (1 / ((float)axis->to / (float)axis->from)));
}

// How far pixel i is from the centre, in pixels of the kernel.
static double distance_of(const kernel *k, int64_t i, double centre, float stretch)
{
    if (k->weight == overlap || k->in_steps)
        return fabs((double)i + 0.5 - centre);
    return (double)fabsf(((float)i + 0.5f - (float)centre) * (1 / stretch));
}

// Pixels beyond the edge do not exist, and the weights of the others add up to 1.
static void fill_pixel(const kernel *k, float stretch, mu_resample_axis *axis, int64_t to)
{
    const double centre = centre_of(k, axis, to), reach = k->radius * (double)stretch + 0.5;
    const int64_t first = MU_MAX((int64_t)ceil(centre - reach), 0);
    const int64_t end = MU_MIN(MU_MIN((int64_t)floor(centre + reach), axis->from), first + axis->most);
    double *weights = axis->weights + to * axis->most, sum = 0;
    for (int64_t i = first; i < end; i++) {
        const double distance = distance_of(k, i, centre, stretch);
        sum += weights[i - first] = distance < k->radius ? k->weight(distance, k->radius) : 0;
    }
    for (int64_t i = first; i < end && sum != 0; i++)
        weights[i - first] /= sum;
    axis->first[to] = first;
    axis->n[to] = end - first;
}

mu_status mu__resample_axis(mu_resample_axis *axis, const char *method, bool antialias, int64_t from, int64_t to)
{
    const double scale = (double)from / (double)to;
    const kernel k = kernel_of(method, antialias, scale);
    const float stretch = antialias && k.weight != overlap ? fmaxf(1 / ((float)to / (float)from), 1) : 1;
    const int64_t reached = (int64_t)(2 * k.radius * (double)stretch) + 2;
    const size_t n = (size_t)to;
    *axis = (mu_resample_axis){.from = from, .to = to, .most = MU_MIN(reached, from)};
    axis->first = mu__alloc(n * sizeof *axis->first);
    axis->n = mu__alloc(n * sizeof *axis->n);
    axis->weights = mu__alloc(n * (size_t)axis->most * sizeof *axis->weights);
    if (!axis->first || !axis->n || !axis->weights)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < to; i++)
        fill_pixel(&k, stretch, axis, i);
    return MU_OK;
}

void mu__resample_free(mu_resample_axis *axis)
{
    mu__free(axis->first);
    mu__free(axis->n);
    mu__free(axis->weights);
}

// ---- Images -------------------------------------------------------------------------------------

// Pixel `to` of an axis, whose pixels are `width` numbers.
static void mix(const float *from, int64_t width, const mu_resample_axis *axis, int64_t to, float *result)
{
    memset(result, 0, (size_t)width * sizeof *result);
    for (int64_t k = 0; k < axis->n[to]; k++) {
        const float weight = (float)axis->weights[to * axis->most + k], *pixel = from + (axis->first[to] + k) * width;
        for (int64_t i = 0; i < width; i++)
            result[i] += weight * pixel[i];
    }
}

void mu__resample(const float *images, int64_t n, int64_t channels, const mu_resample_axis *rows,
                  const mu_resample_axis *columns, float *scratch, float *result)
{
    const int64_t width = columns->from * channels;
    for (int64_t row = 0; row < n * rows->to; row++) {
        mix(images + row / rows->to * rows->from * width, width, rows, row % rows->to, scratch);
        for (int64_t column = 0; column < columns->to; column++, result += channels)
            mix(scratch, channels, columns, column, result);
    }
}
