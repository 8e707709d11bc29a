// Convolutions and their gradients write every element of their results, whatever lay in that memory before.
//
// Results and scratch are filled with NaNs before an op runs (see run_row), so an element that the fast kernel does not
// write differs from the plain loops' result. Elements that no window reaches, such as rows of the image that a stride
// skips, are easily forgotten.
#include "nn_check.h"

typedef struct sweep {
    const mu_op *forward, *input_grad, *filter_grad;
    int spatial;
    int64_t images, extents[3];
} sweep;

static const sweep planes = {&mu_op_conv2d, &mu_op_conv2d_input_grad, &mu_op_conv2d_filter_grad, 2, 2, {6, 10}};
static const sweep volumes = {&mu_op_conv3d, &mu_op_conv3d_input_grad, &mu_op_conv3d_filter_grad, 3, 2, {4, 6, 5}};

static const int64_t channels[][2] = {{3, 5}};

static mu_shape shape_of(int64_t first, const int64_t *extents, int spatial, int64_t last)
{
    mu_shape shape = {.rank = spatial + 2, .dims = {first}};
    memcpy(shape.dims + 1, extents, (size_t)spatial * sizeof *extents);
    shape.dims[spatial + 1] = last;
    return shape;
}

static mu_shape kernel_shape(const int64_t *sizes, int spatial, const int64_t ends[2])
{
    mu_shape shape = {.rank = spatial + 2};
    memcpy(shape.dims, sizes, (size_t)spatial * sizeof *sizes);
    shape.dims[spatial] = ends[0];
    shape.dims[spatial + 1] = ends[1];
    return shape;
}

// The forward op and both gradients of one window.
static void check_window(const sweep *s, mu_dtype dtype, const mu_conv_attrs *attrs, const int64_t *sizes,
                         const int64_t ends[2])
{
    const double loose = dtype == MU_F32 ? 2e-4 : 4e-2;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = random_tensor(dtype, shape_of(s->images, s->extents, s->spatial, ends[0]), -1, 1, 1);
    mu_tensor *w = random_tensor(dtype, kernel_shape(sizes, s->spatial, ends), -0.5, 0.5, 2);
    mu_tensor *forward[] = {x, w}, *y;
    run_row(s->forward, attrs, 2, forward, &y, false);
    mu_tensor *dy = random_tensor(dtype, y->shape, -1, 1, 3);
    mu_tensor *for_image[] = {dy, w, x}, *for_kernel[] = {x, dy, w};
    check_fast(s->forward, attrs, 2, forward, loose, false);
    check_fast(s->input_grad, attrs, 3, for_image, loose, false);
    check_fast(s->filter_grad, attrs, 3, for_kernel, loose, false);
    mu_pool_close(pool);
}

// Every `step`-th of the windows with strides and sizes of 1 to 3 along the last two axes; in volumes the depth has the
// height's.
static void sweep_windows(const sweep *s, mu_dtype dtype, const int64_t ends[2], const char *padding, int step)
{
    mu_conv_attrs attrs = {.strides = {.n = s->spatial}, .dilations = {s->spatial, {1, 1, 1}}, .groups = 1};
    strcpy(attrs.padding, padding);
    for (int k = 0; k < 81; k += step) {
        const int64_t stride[] = {k % 3 + 1, k / 3 % 3 + 1}, size[] = {k / 9 % 3 + 1, k / 27 + 1};
        int64_t sizes[3];
        for (int i = 0; i < s->spatial; i++) {
            const int axis = i == s->spatial - 1;
            attrs.strides.at[i] = stride[axis];
            sizes[i] = size[axis];
        }
        check_window(s, dtype, &attrs, sizes, ends);
    }
}

static void sweep_types(const sweep *s, size_t n_channels, int step)
{
    static const mu_dtype dtypes[] = {MU_F32, MU_BF16, MU_F16};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (size_t c = 0; c < n_channels; c++) {
            sweep_windows(s, dtypes[d], channels[c], "valid", step);
            sweep_windows(s, dtypes[d], channels[c], "same", step);
        }
}

static void test_planes_are_written(void **state)
{
    (void)state;
    sweep_types(&planes, MU_COUNT(channels), 1);
}

static void test_volumes_are_written(void **state)
{
    (void)state;
    sweep_types(&volumes, 1, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planes_are_written),
        cmocka_unit_test(test_volumes_are_written),
    };
    if (mu_init() != MU_OK) // reads MUSTER_ISA
        return mu_exit(false);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
