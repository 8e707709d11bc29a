// Numbers that cannot be, in places that no shape rule sees: each is an error that names what was given.
#include "op_check.h"

#include <muster/nn.h>

#define REFUSED(call, part)                             \
    do {                                                \
        (void)(call);                                   \
        const mu_error taken = mu_error_take();         \
        assert_int_equal(taken.code, MU_INVALID_ARGUMENT); \
        if (!strstr(taken.message, part))               \
            fail_msg("no '%s' in: %s", part, taken.message); \
    } while (0)

static void test_counts_of_parts(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){2, 3}), *out[4];
    REFUSED(mu_split(x, 0, 0, out), "0 parts");
    REFUSED(mu_split(x, -2, 0, out), "-2 parts");
    REFUSED(mu_split_sizes(x, 1, (int64_t[]){-3}, 0, out), "do not make up axis 0");
    REFUSED(mu_unstack(x, -1, 0, out), "-1 slices");
    assert_int_equal(mu_unstack(mu_zeros(MU_F32, 1, (int64_t[]){0}), 0, 0, out), MU_OK);
    REFUSED(mu_reduce_sum_axes(x, -1, (int[]){0}, true), "number is negative");
}

// Axes are named as they were given.
static void test_axes(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){2, 3}), *two[] = {x, x};
    REFUSED(mu_stack(1, two, -4), "axis -4 is outside -3 to 2");
    REFUSED(mu_stack(2, two, 3), "axis 3 is outside -3 to 2");
    REFUSED(mu_expand_dims(x, -4), "axis -4 is outside -3 to 2");
    REFUSED(mu_concat(2, two, -3), "axis -3 is outside -2 to 1");
    REFUSED(mu_reduce_prod_axes(x, 2, (int[]){0, -2}, true), "axis 0 is given twice");
    REFUSED(mu_reduce_prod_axes(x, 2, (int[]){1, 1}, false), "axis 1 is given twice");
}

static void test_ranges(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){2, 3});
    REFUSED(mu_broadcast_to(x, 3, (int64_t[]){-1, 2, 3}), "shape [?, 2, 3] is not known");
    REFUSED(mu_slice(x, (int64_t[]){0, 0}, (int64_t[]){-2, 3}), "size -2 of axis 0");
    REFUSED(mu_slice(x, (int64_t[]){0, 1}, (int64_t[]){2, INT64_MAX}), "axis 1, which has 3");
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

static void test_methods(void **state)
{
    (void)state;
    mu_tensor *image = mu_ones(MU_F32, 4, (int64_t[]){1, 2, 2, 1});
    REFUSED(mu_image_resize(image, 2, 2, (mu_resize_method)9), "9 is no method");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_of_parts),
        cmocka_unit_test(test_axes),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_sizes_of_draws),
        cmocka_unit_test(test_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
