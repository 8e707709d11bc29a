// Impossible numbers in arguments that no shape rule sees: each is an error that names the value.
#include "op_check.h"

#include <muster/nn.h>

#define REFUSED(call, part)                                  \
    do {                                                     \
        (void)(call);                                        \
        const mu_error taken = mu_error_take();              \
        assert_int_equal(taken.code, MU_INVALID_ARGUMENT);   \
        if (!strstr(taken.message, part))                    \
            fail_msg("no '%s' in: %s", part, taken.message); \
    } while (0)

static void test_counts_of_parts(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){2, 3}), *out[4];
    REFUSED(mu_split(x, 0, 0, out), "0 parts");
    REFUSED(mu_split(x, -2, 0, out), "-2 parts");
    REFUSED(mu_split_sizes(x, 1, (int64_t[]){-3}, 0, out), "do not make up axis 0");
    REFUSED(mu_split_sizes(x, 2, (int64_t[]){1, INT64_MAX}, 0, out), "do not make up axis 0");
    REFUSED(mu_unstack(x, -1, 0, out), "-1 slices");
    assert_int_equal(mu_unstack(mu_zeros(MU_F32, 1, (int64_t[]){0}), 0, 0, out), MU_OK);
    REFUSED(mu_reduce_sum(x, .axes = (int[]){0}, .n_axes = -1, .keep_dims = true), "number is negative");
}

// The message has the axes as the caller gave them.
static void test_axes(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){2, 3}), *two[] = {x, x};
    REFUSED(mu_stack(1, two, -4), "axis -4 is outside -3 to 2");
    REFUSED(mu_stack(2, two, 3), "axis 3 is outside -3 to 2");
    REFUSED(mu_expand_dims(x, -4), "axis -4 is outside -3 to 2");
    REFUSED(mu_concat(2, two, -3), "axis -3 is outside -2 to 1");
    REFUSED(mu_reduce_prod(x, .axes = (int[]){0, -2}, .n_axes = 2, .keep_dims = true), "axis 0 is given twice");
    REFUSED(mu_reduce_prod(x, .axes = (int[]){1, 1}, .n_axes = 2), "axis 1 is given twice");
}

static void test_ranges(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){2, 3});
    REFUSED(mu_broadcast_to(x, 3, (int64_t[]){-1, 2, 3}), "shape [?, 2, 3] is not known");
    REFUSED(mu_slice(x, (int64_t[]){0, 0}, (int64_t[]){-2, 3}), "size -2 of axis 0");
    REFUSED(mu_slice(x, (int64_t[]){0, 1}, (int64_t[]){2, INT64_MAX}), "axis 1, which has 3");
    REFUSED(mu_slice(x, (int64_t[]){0, INT64_MAX}, (int64_t[]){2, -1}), "on, the rest of axis 1, which has 3");
    REFUSED(mu_strided_slice(x, (int64_t[]){1, 0}, (int64_t[]){0, 3}, (int64_t[]){-1, 1}, 0, 0, 1),
            "stride -1 of axis 0");
}

static void test_sizes_of_draws(void **state)
{
    (void)state;
    mu_tensor *seed = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, NULL), *one = mu_constant(MU_F32, 1);
    REFUSED(mu_stateless_permutation(seed, -1), "negative dimension");
    REFUSED(mu_stateless_random_normal(seed, MU_F32, 1, (int64_t[]){-1}), "negative dimension");
    REFUSED(mu_stateless_random_gamma(seed, one, NULL, 1, (int64_t[]){-1}), "negative dimension");
    REFUSED(mu_stateless_random_poisson(seed, one, MU_F32, 1, (int64_t[]){-1}), "negative dimension");
}

#define F32(...) mu_ones(MU_F32, MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})
#define I32(...) mu_zeros(MU_I32, MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

// Errors of composed functions name the function, with its arguments as given, whichever op inside refuses them.
static void test_composed(void **state)
{
    (void)state;
    mu_tensor *x = F32(2, 3), *line = F32(2, 6, 2), *image = F32(1, 4, 4, 2), *volume = F32(1, 2, 2, 2, 1);
    mu_tensor *words = I32(2, 3), *positions = I32(4);
    REFUSED(mu_reduce_logsumexp(words, 0), "\nin reduce_logsumexp of int32[2, 3]");
    REFUSED(mu_reduce_logsumexp(x, 5), "\nin reduce_logsumexp of float32[2, 3]");
    REFUSED(mu_reduce_variance(x, 2), "\nin reduce_variance of float32[2, 3]");
    REFUSED(mu_reduce_std(x, -3), "\nin reduce_std of float32[2, 3]");
    REFUSED(mu_nn_conv1d(line, F32(3, 4, 3)), "\nin conv1d of float32[2, 6, 2] and float32[3, 4, 3]");
    REFUSED(mu_nn_conv1d(line, F32(7, 2, 3)), "\nin conv1d of float32[2, 6, 2] and float32[7, 2, 3]");
    REFUSED(mu_nn_conv1d(line, I32(3, 2, 3)), "\nin conv1d of float32[2, 6, 2] and int32[3, 2, 3]");
    REFUSED(mu_nn_conv1d_transpose(line, F32(3, 2, 3)),
            "\nin conv1d_transpose of float32[2, 6, 2] and float32[3, 2, 3]");
    REFUSED(mu_nn_depthwise_conv2d(image, F32(3, 3, 3, 1)),
            "\nin depthwise_conv2d of float32[1, 4, 4, 2] and float32[3, 3, 3, 1]");
    REFUSED(mu_nn_separable_conv2d(image, F32(3, 3, 2, 2), F32(1, 1, 3, 5)),
            "\nin separable_conv2d of float32[1, 4, 4, 2] and float32[3, 3, 2, 2] and float32[1, 1, 3, 5]");
    REFUSED(mu_nn_max_pool1d(line, .window = 7), "\nin max_pool1d of float32[2, 6, 2]");
    REFUSED(mu_nn_avg_pool1d(words = I32(2, 6, 2), .window = 2), "\nin avg_pool1d of int32[2, 6, 2]");
    REFUSED(mu_nn_max_pool3d(volume, .window = {3, 1, 1}), "\nin max_pool3d of float32[1, 2, 2, 2, 1]");
    REFUSED(mu_nn_avg_pool3d(volume, .window = {1, 3, 1}), "\nin avg_pool3d of float32[1, 2, 2, 2, 1]");
    REFUSED(mu_norm(x, 2, .axis = 2), "\nin norm of float32[2, 3]");
    REFUSED(mu_norm(x, 1, .axis = -3, .keep_dims = true), "\nin norm of float32[2, 3]");
    REFUSED(mu_unsorted_segment_mean(x, positions, 3), "\nin unsorted_segment_mean of float32[2, 3] and int32[4]");
    REFUSED(mu_unsorted_segment_sqrt_n(x, positions, 3), "\nin unsorted_segment_sqrt_n of float32[2, 3] and int32[4]");
    REFUSED(mu_segment_mean(x, positions), "segment_mean: segments of shape [4] for shape [2, 3]");
    REFUSED(mu_segment_mean(words, positions), "\nin segment_mean of int32[2, 6, 2] and int32[4]");
    REFUSED(mu_nn_sigmoid_cross_entropy(x, F32(2, 4)),
            "sigmoid_cross_entropy: labels [2, 3] and logits [2, 4] must have the same shape");
    REFUSED(mu_nn_batch_normalization(x, F32(4), F32(3), NULL, NULL, 1e-3),
            "\nin batch_normalization of float32[2, 3] and float32[4] and float32[3]");
    REFUSED(mu_nn_layer_normalization(x, F32(4), F32(3), 1e-3),
            "\nin layer_normalization of float32[2, 3] and float32[4] and float32[3]");
    REFUSED(mu_nn_rms_normalization(x, F32(4), 1e-3), "\nin rms_normalization of float32[2, 3] and float32[4]");
    REFUSED(mu_nn_conv2d_transpose(image, F32(3, 3, 2, 3)),
            "\nin conv2d_transpose of float32[1, 4, 4, 2] and float32[3, 3, 2, 3]");
    REFUSED(mu_tensordot(x, I32(3, 2), 1), "\nin tensordot of float32[2, 3] and int32[3, 2]");
    REFUSED(mu_einsum("ij,jk->ik", 2, ((mu_tensor *[]){x, I32(3, 2)})), "\nin einsum of float32[2, 3] and int32[3, 2]");
    REFUSED(mu_scatter_nd(I32(2, 1), F32(3), 1, (int64_t[]){4}), "\nin scatter_nd of int32[2, 1] and float32[3]");
    REFUSED(mu_batch_gather(x, I32(3, 1)), "\nin batch_gather of float32[2, 3] and int32[3, 1]");
}

// The message must not name an op that only does part of the work.
static void test_names(void **state)
{
    (void)state;
    mu_tensor *whole = I32(2, 3), *truths = mu_cast(whole, MU_BOOL), *scalar = mu_constant(MU_F32, 1), *out[4];
    REFUSED(mu_argsort(truths, 0, false), "argsort: the input has type bool");
    assert_null(mu_argsort(truths, 0, false));
    assert_true(strncmp(mu_error_take().message, "argsort: ", 9) == 0);
    REFUSED(mu_argsort(scalar, 0, false), "argsort: axis 0 of a scalar");
    REFUSED(mu_sort(scalar, 0, false), "sort: axis 0 of a scalar");
    assert_null(mu_nn_gelu(whole, true));
    assert_true(strncmp(mu_error_take().message, "gelu: ", 6) == 0);
    REFUSED(mu_nn_gelu(whole, false), "gelu: the input has type int32");
    REFUSED(mu_polygamma(0, whole), "polygamma: the input has type int32");
    REFUSED(mu_polygamma(1, whole), "polygamma: the input has type int32");
    REFUSED(mu_polygamma(2, whole), "polygamma: the input has type int32");
    REFUSED(mu_image_resize(scalar, 2, 2, MU_RESIZE_NEAREST), "image_resize: images []");
    REFUSED(mu_nn_stateless_dropout(whole, 0.5, mu_zeros(MU_I64, 1, (int64_t[]){2})),
            "stateless_dropout: the input has type int32");
    REFUSED(mu_scatter_nd(F32(2, 1), F32(2), 1, (int64_t[]){4}), "scatter_nd: the indices have type float32");
    REFUSED(mu_split_sizes(scalar, 1, (int64_t[]){1}, 0, out), "mu_split_sizes: axis 0 of a scalar");
    REFUSED(mu_split_sizes(F32(4), 2, (int64_t[]){1, 1}, 0, out), "mu_split_sizes: 2 parts");
    REFUSED(mu_split(scalar, 1, 0, out), "mu_split: axis 0 of a scalar");
    REFUSED(mu_unstack(scalar, 1, 0, out), "mu_unstack: axis 0 of a scalar");
    REFUSED(mu_nn_attention(scalar, F32(2, 3), F32(2, 3)), "attention: ");
    REFUSED(mu_nn_attention(F32(2, 5, 4), F32(3, 7, 4), F32(3, 7, 4)), "\nin attention of float32[2, 5, 4]");
    mu_tensor *seed = mu_zeros(MU_I64, 1, (int64_t[]){2});
    REFUSED(mu_stateless_random_gamma(seed, F32(3), F32(2), 1, (int64_t[]){6}),
            "\nin stateless_random_gamma of int64[2]");
}

static void test_methods(void **state)
{
    (void)state;
    mu_tensor *image = mu_ones(MU_F32, 4, (int64_t[]){1, 2, 2, 1});
    REFUSED(mu_image_resize(image, 2, 2, (mu_resize_method)9), "9 is not a method");
}

// A range of 2^32 numbers has no size in the type, nor do its ends fit.
static void test_bounds_of_draws(void **state)
{
    (void)state;
    const int64_t most = INT32_MAX, three[] = {3};
    mu_tensor *seed = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, NULL);
    REFUSED(mu_stateless_random_uniform_int(seed, MU_I32, 1, three, 0, most + 1), "not both int32");
    REFUSED(mu_stateless_random_uniform_int(seed, MU_I32, 1, three, -most - 2, 0), "not both int32");
    REFUSED(mu_stateless_random_uniform_int(seed, MU_I32, 1, three, -most - 1, most + 1), "not both int32");
    assert_non_null(mu_stateless_random_uniform_int(seed, MU_I32, 1, three, -most - 1, most));
    assert_non_null(mu_stateless_random_uniform_int(seed, MU_I64, 1, three, INT64_MIN, INT64_MAX));
}

// A value that an integer type does not hold is refused, not changed.
static void test_numbers_of_types(void **state)
{
    (void)state;
    REFUSED(mu_constant(MU_I8, 300), "300 is not a valid int8: these are whole numbers from -128 to 127");
    REFUSED(mu_constant(MU_I32, 1.5), "1.5 is not a valid int32");
    REFUSED(mu_constant(MU_U8, -1), "from 0 to 255");
    REFUSED(mu_constant(MU_I64, NAN), "nan is not a valid int64");
    REFUSED(mu_fill(MU_I16, 1, (int64_t[]){2}, 40000), "mu_fill: 40000 is not a valid int16");
    REFUSED(mu_range(MU_U8, 250, 260, 1), "mu_range: 259 is not a valid uint8");
    REFUSED(mu_range(MU_I32, 0, 5, 0.5), "0.5 is not a valid int32");
    REFUSED(mu_eye(MU_F32, -1, 2), "mu_eye: -1 rows");
    mu_tensor *bytes = mu_ones(MU_I8, 1, (int64_t[]){2});
    REFUSED(mu_pad(bytes, (int64_t[]){1}, (int64_t[]){0}, NULL, 300), "mu_pad: 300 is not a valid int8");
    assert_true(*(const int64_t *)mu_tensor_data(mu_constant(MU_I64, (double)INT64_MAX)) == INT64_MAX);
    assert_true(*(const int64_t *)mu_tensor_data(mu_constant(MU_I64, (double)INT64_MIN)) == INT64_MIN);
    assert_int_equal(mu_tensor_dim(mu_range(MU_U8, 250, 256, 1), 0), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_of_parts), cmocka_unit_test(test_axes),
        cmocka_unit_test(test_ranges),          cmocka_unit_test(test_sizes_of_draws),
        cmocka_unit_test(test_composed),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_methods),         cmocka_unit_test(test_numbers_of_types),
        cmocka_unit_test(test_bounds_of_draws),
    };
    mu_init();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
