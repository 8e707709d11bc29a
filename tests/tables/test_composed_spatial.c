// Convolutions and pools that are composed of others: gradients of first and second order, traces, and values.
//
// Values are compared with the sum or maximum over each window, written out here.
#include "composed_check.h"

static mu_tensor *depthwise(mu_tensor *const *in) { return mu_nn_depthwise_conv2d(in[0], in[1], .padding = "same"); }
static mu_tensor *separable(mu_tensor *const *in)
{
    return mu_nn_separable_conv2d(in[0], in[1], in[2], .strides = {2, 1}, .padding = "same");
}
static mu_tensor *sequence(mu_tensor *const *in)
{
    return mu_nn_conv1d(in[0], in[1], .stride = 2, .padding = "explicit", .pads = {2, 1}, .groups = 2);
}
static mu_tensor *sequence_back(mu_tensor *const *in) { return mu_nn_conv1d_transpose(in[0], in[1], .stride = 2); }
static mu_tensor *image_back(mu_tensor *const *in)
{
    return mu_nn_conv2d_transpose(in[0], in[1], .strides = {2, 3}, .padding = "same", .output_size = {5, 7});
}
static mu_tensor *image_back_padded(mu_tensor *const *in)
{
    return mu_nn_conv2d_transpose(in[0], in[1], .strides = {2}, .pads = {1, 0, 1, 1}, .groups = 2);
}
static mu_tensor *volume_back(mu_tensor *const *in) { return mu_nn_conv3d_transpose(in[0], in[1], .strides = {2, 1}); }
static mu_tensor *max_sequence(mu_tensor *const *in)
{
    return mu_nn_max_pool1d(in[0], 3, .stride = 2, .padding = "same");
}
static mu_tensor *mean_sequence(mu_tensor *const *in) { return mu_nn_avg_pool1d(in[0], 2); }
static mu_tensor *max_volume(mu_tensor *const *in)
{
    return mu_nn_max_pool3d(in[0], {2, 3, 2}, .strides = {1, 2}, .padding = "same");
}
static mu_tensor *mean_volume(mu_tensor *const *in)
{
    return mu_nn_avg_pool3d(in[0], {2, 2, 3}, .pads = {1, 0, 0, 1, 1, 1}, .strides = {2});
}
static mu_tensor *resized(mu_tensor *const *in) { return mu_image_resize(in[0], 5, 2, MU_RESIZE_BILINEAR); }

// Two transforms for two images, with places beyond all edges: a rotation with scaling, and a projection.
static mu_tensor *moved(mu_tensor *const *in, const char *fill_mode)
{
    static const float both[] = {1.3f, -.6f, -1.1f, .7f, .9f,  -.4f,  0,   0,
                                 -.8f, .3f,  3.2f,  .2f, 1.6f, -2.3f, .1f, -.05f};
    mu_tensor *transforms = mu_tensor_new(MU_F32, 2, (int64_t[]){2, 8}, both);
    return mu_image_affine_transform(in[0], transforms, .fill_mode = fill_mode, .fill_value = .5);
}
static mu_tensor *moved_constant(mu_tensor *const *in) { return moved(in, "constant"); }
static mu_tensor *moved_reflect(mu_tensor *const *in) { return moved(in, "reflect"); }
static mu_tensor *moved_wrap(mu_tensor *const *in) { return moved(in, "wrap"); }
static mu_tensor *moved_nearest(mu_tensor *const *in)
{
    const float one[] = {.8f, .3f, -1, -.3f, .8f, 1, 0, 0};
    return mu_image_affine_transform(in[0], mu_vector_f32(8, one), .interpolation = "nearest", .fill_mode = "nearest");
}

static const composed rows[] = {
    {"depthwise_conv2d", depthwise, 2, {MU_DIMS(2, 4, 3, 2), MU_DIMS(3, 2, 2, 2)}, .batched = 1},
    {"separable_conv2d", separable, 3, {MU_DIMS(2, 4, 3, 2), MU_DIMS(3, 2, 2, 1), MU_DIMS(1, 1, 2, 3)}, .batched = 1},
    {"conv1d, explicit pads, groups", sequence, 2, {MU_DIMS(2, 5, 4), MU_DIMS(3, 2, 2)}, .batched = 1},
    {"conv1d_transpose", sequence_back, 2, {MU_DIMS(2, 3, 2), MU_DIMS(3, 1, 2)}, .batched = 1},
    {"conv2d_transpose, given size", image_back, 2, {MU_DIMS(1, 3, 3, 2), MU_DIMS(2, 3, 3, 2)}, .batched = 1},
    {"conv2d_transpose, pads, groups", image_back_padded, 2, {MU_DIMS(2, 3, 2, 4), MU_DIMS(3, 3, 1, 4)}, .batched = 1},
    {"conv3d_transpose", volume_back, 2, {MU_DIMS(1, 2, 2, 1, 2), MU_DIMS(2, 2, 1, 1, 2)}, .batched = 1},
    {"max_pool1d", max_sequence, 1, {MU_DIMS(2, 5, 2)}, .batched = 1},
    {"avg_pool1d", mean_sequence, 1, {MU_DIMS(2, 5, 2)}, .batched = 1},
    {"max_pool3d", max_volume, 1, {MU_DIMS(2, 3, 4, 3, 1)}, .batched = 1},
    {"avg_pool3d", mean_volume, 1, {MU_DIMS(2, 3, 4, 3, 1)}, .batched = 1},
    {"avg_pool3d of nothing", mean_volume, 1, {MU_DIMS(0, 3, 4, 3, 1)}, .batched = 1},
    {"resize of one image", resized, 1, {MU_DIMS(3, 4, 2)}},
    {"affine transform, constant", moved_constant, 1, {MU_DIMS(2, 3, 4, 2)}},
    {"affine transform, reflect", moved_reflect, 1, {MU_DIMS(2, 4, 3, 1)}},
    {"affine transform, wrap", moved_wrap, 1, {MU_DIMS(2, 1, 5, 1)}},
    {"affine transform, nearest", moved_nearest, 1, {MU_DIMS(2, 3, 4, 2)}, .batched = 1},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        composed_check(&rows[i]);
}

// The pool of a volume, window by window: padding counts as absent.
static void test_volume_pools(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = composed_tensor(MU_SHAPE(2, 5, 4, 3, 2), 3, -1, 1);
    const mu_tensor *most = mu_nn_max_pool3d(x, {3, 2, 2}, .strides = {2, 1, 2}, .padding = "same");
    const mu_tensor *mean = mu_nn_avg_pool3d(x, {3, 2, 2}, .strides = {2, 1, 2}, .padding = "same");
    const double *from = mu__host_read(x), *a = mu__host_read(most), *b = mu__host_read(mean);
    assert_int_equal(mu_tensor_elements(most), 2 * 3 * 4 * 2 * 2);
    for (int64_t i = 0; i < mu_tensor_elements(most); i++) {
        const int64_t c = i % 2, ox = i / 2 % 2, oy = i / 4 % 4, oz = i / 16 % 3, n = i / 48;
        double best = -INFINITY, sum = 0;
        int count = 0;
        for (int64_t z = oz * 2 - 1; z < oz * 2 + 2; z++)
            for (int64_t y = oy; y < oy + 2; y++)
                for (int64_t w = ox * 2; w < ox * 2 + 2; w++)
                    if (z >= 0 && z < 5 && y < 4 && w < 3) {
                        const double value = from[(((n * 5 + z) * 4 + y) * 3 + w) * 2 + c];
                        best = fmax(best, value);
                        sum += value;
                        count++;
                    }
        assert_true(a[i] == best);
        assert_true(fabs(b[i] - sum / count) < 1e-14);
    }
    mu_pool_close(pool);
}

// Rows of conv3d with one plane are conv2d's.
static void test_one_plane(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = composed_tensor(MU_SHAPE(2, 6, 5, 4), 1, -1, 1),
              *w = composed_tensor(MU_SHAPE(3, 2, 2, 6), 2, -1, 1);
    const mu_tensor *flat = mu_nn_conv2d(x, w, .strides = {2, 1}, .padding = "same", .groups = 2);
    const mu_tensor *deep =
        mu_nn_conv3d(mu_expand_dims(x, 1), mu_expand_dims(w, 0), .strides = {1, 2, 1}, .padding = "same", .groups = 2);
    assert_int_equal(mu_tensor_elements(flat), mu_tensor_elements(deep));
    assert_memory_equal(mu__host_read(flat), mu__host_read(deep), (size_t)mu_tensor_elements(flat) * sizeof(double));
    mu_pool_close(pool);
}

static void test_refusals(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *x = composed_tensor(MU_SHAPE(2, 6, 5, 4), 1, -1, 1),
              *w = composed_tensor(MU_SHAPE(3, 2, 4, 4), 2, -1, 1);
    assert_null(mu_nn_conv3d(x, w));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_conv2d_transpose(x, w, .strides = {2}, .output_size = {40, 40}));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_separable_conv2d(x, w, w));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_nn_max_pool3d(x, {2, 2, 2}));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_image_affine_transform(x, x));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_image_affine_transform(x, mu_zeros(MU_F32, 1, (int64_t[]){8}), .fill_mode = "mirror"));
    assert_non_null(strstr(mu_error_take().message, "expected one of \"constant\", \"reflect\""));
    assert_null(mu_image_resize(x, 0, 3, MU_RESIZE_NEAREST));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_volume_pools),
        cmocka_unit_test(test_one_plane),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
