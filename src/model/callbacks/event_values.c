// Tensors as values of event files: histograms with TensorBoard's buckets, images as PNG.
#include "model/callbacks/event_values.h"

#include <muster/image.h>
#include <muster/ops.h>

#include <math.h>

// ---- Histograms ---------------------------------------------------------------------------------

// The least and the greatest of the finite numbers; returns how many there are.
static int64_t range_of(int64_t n, const double *numbers, double *least, double *greatest)
{
    int64_t finite = 0;
    *least = INFINITY;
    *greatest = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(numbers[i]))
            continue;
        *least = fmin(*least, numbers[i]);
        *greatest = fmax(*greatest, numbers[i]);
        finite++;
    }
    return finite;
}

// Rows of left edge, right edge and count (tensorboard/plugins/histogram/summary_v2.py).
static void fill_buckets(int64_t n, const double *numbers, int buckets, double (*rows)[3])
{
    double least, greatest;
    const int64_t finite = range_of(n, numbers, &least, &greatest);
    const double width = (greatest - least) / buckets;
    if (finite == 0)
        return;
    for (int i = 0; i < buckets; i++) {
        rows[i][0] = least + i * width;
        rows[i][1] = i + 1 < buckets ? least + (i + 1) * width : greatest;
    }
    if (!(width > 0)) {
        rows[buckets - 1][2] = (double)finite;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (isfinite(numbers[i]))
            rows[(int)fmin(floor((numbers[i] - least) / width), buckets - 1)][2]++;
}

// The elements as doubles, without an op: kernels record, too. Free them; NULL on error.
static double *numbers_of(const mu_tensor *data)
{
    const int64_t n = mu_tensor_elements(data);
    const void *elements = data->dtype == MU_STRING ? NULL : mu__host_read(data);
    double *numbers = elements ? mu__calloc((size_t)n + 1, sizeof *numbers) : NULL;
    if (data->dtype == MU_STRING)
        mu__error(MU_INVALID_ARGUMENT, "a histogram is of numbers; the tensor has strings");
    for (int64_t i = 0; numbers && i < n; i++)
        numbers[i] = mu__read_element(data->dtype, elements, i);
    return numbers;
}

mu_status mu__event_histogram(mu_event_file *file, const char *tag, int64_t step, mu_tensor *data, int buckets)
{
    double *numbers = numbers_of(data);
    double(*rows)[3] = numbers ? mu__calloc((size_t)buckets, sizeof *rows) : NULL;
    mu_status status = rows ? MU_OK : mu_error_code();
    if (rows) {
        fill_buckets(mu_tensor_elements(data), numbers, buckets, rows);
        status = mu__event_file_histogram(file, tag, step, buckets, (const double(*)[3])rows);
    }
    mu__free(rows);
    mu__free(numbers);
    return status;
}

// ---- Images -------------------------------------------------------------------------------------

static mu_status check_images(const mu_tensor *data)
{
    char text[MU_SHAPE_TEXT];
    const int64_t *dims = data->shape.dims;
    const bool type = data->dtype == MU_U8 || data->dtype == MU_F32 || data->dtype == MU_F64;
    if (type && data->shape.rank == 4 && dims[1] > 0 && dims[2] > 0 && dims[3] >= 1 && dims[3] <= 4)
        return MU_OK;
    return mu__error(
        MU_INVALID_ARGUMENT,
        "the images are %s %s; expected uint8, or floats from 0 to 1, of [images, height, width, 1 to 4 channels]",
        mu_dtype_name(data->dtype), mu__shape_text(&data->shape, text));
}

// A number as tf.image.convert_image_dtype converts it.
static uint8_t pixel_of(double value) { return value > 0 ? (uint8_t)fmin(255, value * 255.5) : 0; }

// Image i as PNG; belongs to the pool.
static mu_tensor *encode(const mu_tensor *data, int64_t i)
{
    const int64_t *dims = data->shape.dims, n = dims[1] * dims[2] * dims[3];
    const void *all = mu__host_read(data);
    mu_tensor *image = all ? mu_tensor_new(MU_U8, 3, dims + 1, NULL) : NULL;
    uint8_t *pixels = image ? mu__host_write(image) : NULL;
    for (int64_t k = 0, at = i * n; pixels && k < n; k++, at++)
        pixels[k] = data->dtype == MU_U8    ? ((const uint8_t *)all)[at]
                    : data->dtype == MU_F32 ? pixel_of((double)((const float *)all)[at])
                                            : pixel_of(((const double *)all)[at]);
    return pixels ? mu_encode_png(image) : NULL;
}

mu_status mu__event_image(mu_event_file *file, const char *tag, int64_t step, mu_tensor *data, int most)
{
    MU_TRY(check_images(data));
    const int n = (int)MU_MIN(data->shape.dims[0], most);
    char width[24], height[24];
    snprintf(width, sizeof width, "%lld", (long long)data->shape.dims[2]);
    snprintf(height, sizeof height, "%lld", (long long)data->shape.dims[1]);
    mu_event_bytes *parts = mu__calloc((size_t)n + 2, sizeof *parts);
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    parts[0] = (mu_event_bytes){width, strlen(width)};
    parts[1] = (mu_event_bytes){height, strlen(height)};
    mu_status status = MU_OK;
    for (int i = 0; status == MU_OK && i < n; i++) {
        mu_tensor *png = encode(data, i);
        status = png ? MU_OK : mu_error_code();
        if (png)
            parts[2 + i] = (mu_event_bytes){mu__string_at(png, 0).bytes, mu__string_at(png, 0).n};
    }
    if (status == MU_OK)
        status = mu__event_file_images(file, tag, step, n + 2, parts);
    mu__free(parts);
    return status;
}

// A vector is one row; a matrix lies on its side; of three axes the last one counts the images.
static mu_tensor *weight_image(mu_tensor *weight)
{
    mu_tensor *x = mu_squeeze(weight, MU_ALL_AXES);
    if (x && x->shape.rank == 2 && x->shape.dims[0] > x->shape.dims[1])
        x = mu_transpose(x, NULL);
    if (x && x->shape.rank == 3)
        x = mu_transpose(x, (int[]){2, 0, 1});
    if (!x || x->shape.rank < 1 || x->shape.rank > 3)
        return x;
    const int64_t *d = x->shape.dims;
    return x->shape.rank == 1   ? mu_reshape(x, 4, (int64_t[]){1, d[0], 1, 1})
           : x->shape.rank == 2 ? mu_reshape(x, 4, (int64_t[]){1, d[0], d[1], 1})
                                : mu_reshape(x, 4, (int64_t[]){d[0], d[1], d[2], 1});
}

mu_status mu__event_weight_image(mu_event_file *file, const char *tag, int64_t step, mu_tensor *weight)
{
    mu_tensor *image = weight_image(weight);
    if (!image)
        return mu_error_code();
    const int64_t channels = image->shape.rank == 4 ? image->shape.dims[3] : 0;
    return channels == 1 || channels == 3 || channels == 4 ? mu__event_image(file, tag, step, image, 3) : MU_OK;
}
