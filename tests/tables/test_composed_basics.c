// Functions of ops.h and nn.h that are written with other ops: gradients of first and second order, traces.
//
// Reductions over several axes, cuts and joins, scatters, normalisations and losses. Those of linear algebra,
// segments and convolution have suites of their own.
#include "composed_check.h"

// ---- Reductions ---------------------------------------------------------------------------------

#define OVER(name, function, ...) \
    static mu_tensor *name(mu_tensor *const *in) { return function(in[0], __VA_ARGS__); }
#define ENDS .axes = (const int[]){0, 2}, .n_axes = 2
OVER(sum_ends, mu_reduce_sum, ENDS)
OVER(mean_ends, mu_reduce_mean, ENDS, .keep_dims = true)
OVER(max_ends, mu_reduce_max, ENDS)
OVER(min_ends, mu_reduce_min, ENDS, .keep_dims = true)
OVER(prod_ends, mu_reduce_prod, ENDS)
OVER(logsumexp_ends, mu_reduce_logsumexp, ENDS, .keep_dims = true)
OVER(logsumexp_last, mu_reduce_logsumexp, -1)
OVER(variance_ends, mu_reduce_variance, ENDS)
OVER(std_last, mu_reduce_std, -1, .keep_dims = true)
OVER(sum_none, mu_reduce_sum, .axes = NULL, .n_axes = 0)
static mu_tensor *logsumexp_all(mu_tensor *const *in) { return mu_reduce_logsumexp(in[0], MU_ALL_AXES); }
static mu_tensor *variance_one(mu_tensor *const *in) { return mu_reduce_variance(in[0], 1); }
static mu_tensor *std_one(mu_tensor *const *in) { return mu_reduce_std(in[0], 1); }

// ---- Cuts and joins -----------------------------------------------------------------------------

static mu_tensor *sliced(mu_tensor *const *in)
{
    return mu_slice(in[0], (const int64_t[]){0, 1}, (const int64_t[]){-1, 2});
}
static mu_tensor *stacked(mu_tensor *const *in) { return mu_stack(3, (mu_tensor *const[]){in[0], in[1], in[0]}, 1); }

// The parts of a cut, put together so that each weighs differently.
static mu_tensor *together(mu_status status, mu_tensor *a, mu_tensor *b)
{
    return status == MU_OK ? mu_add(mu_reduce_sum(mu_square(a), 1), mu_reduce_prod(b, 1)) : NULL;
}
static mu_tensor *split(mu_tensor *const *in)
{
    mu_tensor *out[2];
    const mu_status status = mu_split(in[0], 2, 1, out);
    return together(status, out[0], out[1]);
}
static mu_tensor *split_uneven(mu_tensor *const *in)
{
    mu_tensor *out[2];
    const mu_status status = mu_split_sizes(in[0], 2, (const int64_t[]){1, -1}, 1, out);
    return together(status, out[0], out[1]);
}
static mu_tensor *unstacked(mu_tensor *const *in)
{
    mu_tensor *out[2];
    return mu_unstack(in[0], 2, 1, out) == MU_OK ? mu_multiply(out[0], mu_square(out[1])) : NULL;
}

// ---- Indices ------------------------------------------------------------------------------------

static mu_tensor *places(void) { return mu_tensor_new(MU_I32, 2, (const int64_t[]){3, 1}, (const int32_t[]){2, 0, 2}); }
static mu_tensor *scattered(mu_tensor *const *in) { return mu_scatter_nd(places(), in[0], 2, (const int64_t[]){4, 2}); }
static mu_tensor *slices_made_dense(mu_tensor *const *in)
{
    return mu_convert_to_tensor(
        mu_indexed_slices(in[0], mu_reshape(places(), 1, (const int64_t[]){3}), 2, (const int64_t[]){4, 2}));
}
static mu_tensor *gathered(mu_tensor *const *in) { return mu_gather(in[0], places(), 0, 0); }

// ---- Networks -----------------------------------------------------------------------------------

static mu_tensor *layer_norm(mu_tensor *const *in) { return mu_nn_layer_normalization(in[0], in[1], in[2], 1e-2); }
static mu_tensor *layer_norm_plain(mu_tensor *const *in) { return mu_nn_layer_normalization(in[0], NULL, NULL, 1e-2); }
static mu_tensor *rms_norm(mu_tensor *const *in) { return mu_nn_rms_normalization(in[0], in[1], 1e-2); }
static mu_tensor *group_norm(mu_tensor *const *in) { return mu_nn_group_normalization(in[0], 2, in[1], in[2], 1e-2); }
static mu_tensor *batch_norm(mu_tensor *const *in)
{
    return mu_nn_batch_normalization(in[0], in[1], mu_square(in[2]), in[3], in[1], 1e-2);
}
static mu_tensor *batch_norm_statistics(mu_tensor *const *in)
{
    mu_tensor *y, *mean, *variance;
    if (mu_nn_batch_norm_training(in[0], in[1], in[2], 1e-2, &y, &mean, &variance) != MU_OK)
        return NULL;
    return mu_add(y, mu_multiply(mean, mu_sin(variance)));
}
static mu_tensor *sigmoid_loss(mu_tensor *const *in) { return mu_nn_sigmoid_cross_entropy(in[0], in[1]); }
// Labels that sum to 1 whatever they are made from: only then the gradient that the forward pass computes is right, for
// the labels too.
static mu_tensor *softmax_loss(mu_tensor *const *in)
{
    return mu_nn_softmax_cross_entropy(mu_nn_softmax(in[0], -1), in[1]);
}
static mu_tensor *sparse_loss(mu_tensor *const *in)
{
    return mu_nn_sparse_softmax_cross_entropy(mu_reshape(places(), 1, (const int64_t[]){3}), in[0]);
}
static mu_tensor *dropped(mu_tensor *const *in)
{
    return mu_nn_stateless_dropout(mu_square(in[0]), 0.4,
                                   mu_tensor_new(MU_I64, 1, (const int64_t[]){2}, (const int64_t[]){5, 11}));
}

static const composed rows[] = {
    {"reduce_sum_axes", sum_ends, 1, {MU_DIMS(3, 5, 2)}, .batched = 1},
    {"reduce_sum_axes of none", sum_none, 1, {MU_DIMS(3, 1)}, .batched = 1},
    {"reduce_mean_axes", mean_ends, 1, {MU_DIMS(3, 5, 2)}, .batched = 1},
    {"reduce_max_axes", max_ends, 1, {MU_DIMS(3, 5, 2)}, .batched = 1},
    {"reduce_min_axes", min_ends, 1, {MU_DIMS(3, 1, 2)}, .batched = 1},
    {"reduce_prod_axes", prod_ends, 1, {MU_DIMS(3, 5, 2)}, .batched = 1, .low = 0.5, .high = 2},
    {"reduce_logsumexp_axes", logsumexp_ends, 1, {MU_DIMS(3, 5, 2)}, .batched = 1},
    {"reduce_logsumexp_axes, last", logsumexp_last, 1, {MU_DIMS(3, 1)}, .batched = 1},
    {"reduce_logsumexp", logsumexp_all, 1, {MU_DIMS(3, 5)}, .batched = 1},
    {"reduce_variance_axes", variance_ends, 1, {MU_DIMS(3, 5, 2)}, .batched = 1},
    {"reduce_variance", variance_one, 1, {MU_DIMS(3, 1)}, .batched = 1},
    {"reduce_std_axes", std_last, 1, {MU_DIMS(3, 5)}, .batched = 1},
    {"reduce_std", std_one, 1, {MU_DIMS(3, 7)}, .batched = 1},
    {"slice", sliced, 1, {MU_DIMS(3, 5)}, .batched = 1},
    {"slice of all", sliced, 1, {MU_DIMS(1, 3)}, .batched = 1},
    {"stack", stacked, 2, {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .batched = 3},
    {"split", split, 1, {MU_DIMS(3, 6)}, .batched = 1},
    {"split_sizes", split_uneven, 1, {MU_DIMS(3, 5)}, .batched = 1},
    {"unstack", unstacked, 1, {MU_DIMS(3, 2, 5)}, .batched = 1},
    {"scatter_nd", scattered, 1, {MU_DIMS(3, 2)}},
    {"convert_to_tensor", slices_made_dense, 1, {MU_DIMS(3, 2)}},
    {"gather, one row twice", gathered, 1, {MU_DIMS(3, 1)}},
    {"layer_normalization", layer_norm, 3, {MU_DIMS(3, 2, 5), MU_DIMS(5), MU_DIMS(5)}, .batched = 1},
    {"layer_normalization, plain", layer_norm_plain, 1, {MU_DIMS(3, 1)}, .batched = 1},
    {"rms_normalization", rms_norm, 2, {MU_DIMS(3, 5), MU_DIMS(5)}, .batched = 1},
    {"group_normalization", group_norm, 3, {MU_DIMS(3, 1, 2, 6), MU_DIMS(6), MU_DIMS(6)}, .batched = 1},
    {"batch_normalization", batch_norm, 4, {MU_DIMS(3, 5), MU_DIMS(5), MU_DIMS(5), MU_DIMS(5)}, .batched = 1},
    {"batch_norm_training", batch_norm_statistics, 3, {MU_DIMS(5, 3), MU_DIMS(3), MU_DIMS(3)}, .batched = 1},
    {"sigmoid_cross_entropy", sigmoid_loss, 2, {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .batched = 3, .low = 0.1, .high = 0.9},
    {"softmax_cross_entropy", softmax_loss, 2, {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .batched = 3},
    {"sparse_softmax_cross_entropy", sparse_loss, 1, {MU_DIMS(3, 5)}},
    {"stateless_dropout", dropped, 1, {MU_DIMS(3, 5)}},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        composed_check(&rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
