// Training steps with dropout and embeddings, random numbers, updates of a variable's rows, and sums along an axis on
// both engines; and refusals of the plugin's engine.
#include "skip.h"

#include "both.h"

#include <stdlib.h>

// ---- Training with an embedding and dropout -----------------------------------------------------

enum { STEPS = 5, BATCH = 8, WORDS = 6, VOCABULARY = 20, CLASSES = 3, MOST_WEIGHTS = 2000 };

typedef struct training {
    const char *optimizer;
    mu_model *model;
    mu_optimizer *made;
    double losses[STEPS];
    float weights[MOST_WEIGHTS];
    int64_t n_weights;
} training;

static mu_value *train_step(mu_value *batch, void *arg)
{
    training *job = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(job->model, mu_at(batch, 0), .training = true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), logits);
    mu_tensor *loss = mu_compute_average_loss(losses, .global_batch_size = BATCH * 2);
    mu_apply_gradients(job->made, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    return mu_of(loss);
}

static mu_value *make_batch(int step)
{
    int32_t words[BATCH * WORDS], labels[BATCH];
    for (int i = 0; i < BATCH; i++) {
        labels[i] = (i * 5 + step) % CLASSES;
        for (int k = 0; k < WORDS; k++)
            words[i * WORDS + k] = (labels[i] * 6 + k * k + i % 2) % VOCABULARY; // some words come twice
    }
    return mu_list(mu_of(mu_tensor_new(MU_I32, 2, (int64_t[]){BATCH, WORDS}, words)),
                   mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){BATCH}, labels)), MU_END);
}

static void keep_weights(training *job)
{
    mu_value *weights = mu_model_weights(job->model);
    for (int i = 0; i < mu_value_count(weights); i++) {
        const mu_tensor *tensor = mu_variable_read(mu_value_variable(mu_value_at(weights, i)));
        const int64_t n = mu_tensor_elements(tensor);
        if (tensor->dtype != MU_F32)
            continue;
        assert_true(job->n_weights + n <= MOST_WEIGHTS);
        memcpy(job->weights + job->n_weights, mu_tensor_data(tensor), sizeof(float) * (size_t)n);
        job->n_weights += n;
    }
}

static void train(mu_strategy *strategy, training *job)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(4);
    MU_SCOPE(strategy) {
        job->model = mu_sequential(mu_embedding(VOCABULARY, 8), mu_flatten(), mu_dropout(0.3),
                                   mu_dense(16, .activation = "relu"), mu_dropout(0.5), mu_dense(CLASSES));
        job->made = strcmp(job->optimizer, "adam") == 0
                        ? mu_adam(.learning_rate = 1e-2)
                        : mu_sgd(.learning_rate = 0.1, .momentum = strcmp(job->optimizer, "sgd") == 0 ? 0 : 0.9,
                                 .nesterov = strcmp(job->optimizer, "nesterov") == 0);
    }
    mu_function *step = mu_function_new(train_step, job);
    for (int i = 0; i < STEPS; i++) {
        mu_value *result = mu_run(strategy, step, make_batch(i));
        if (!result)
            fail_msg("step %d of %s: %s", i, mu_strategy_name(strategy), mu_error_message());
        job->losses[i] = mu_scalar(mu_reduce(strategy, MU_SUM, result));
    }
    keep_weights(job);
    assert_int_equal(mu_error_code(), MU_OK);
    mu_pool_close(pool);
}

static void compare(const training *native, const training *plugin)
{
    double apart = 0;
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(native->losses[i] - plugin->losses[i]) <= 1e-5))
            fail_msg("%s, step %d: loss %.7f native, %.7f plugin", native->optimizer, i, native->losses[i],
                     plugin->losses[i]);
    assert_int_equal(native->n_weights, plugin->n_weights);
    for (int64_t i = 0; i < native->n_weights; i++)
        apart = fmax(apart, fabs((double)native->weights[i] - plugin->weights[i]));
    print_message("%s: %lld weights, at most %.2g apart\n", native->optimizer, (long long)native->n_weights, apart);
    assert_true(apart < 1e-4);
}

static void check_training(mu_strategy *on_native, mu_strategy *on_plugin)
{
    static const char *const optimizers[] = {"sgd", "momentum", "nesterov", "adam"};
    for (size_t i = 0; i < MU_COUNT(optimizers); i++) {
        training native = {.optimizer = optimizers[i]}, plugin = native;
        train(on_native, &native);
        train(on_plugin, &plugin);
        assert_true(native.losses[STEPS - 1] != native.losses[0]);
        compare(&native, &plugin);
    }
}

static void test_embedding_and_dropout_train(void **state)
{
    (void)state;
    check_training(mu_one_device_strategy("CPU:0"), mu_one_device_strategy("XLA_CPU:0"));
}

// Each replica draws its own masks, and its slices are summed with the others'.
static void test_embedding_and_dropout_train_on_two_replicas(void **state)
{
    (void)state;
    static const char *const processors[] = {"CPU:0", "CPU:1", NULL};
    static const char *const devices[] = {"XLA_CPU:0", "XLA_CPU:1", NULL};
    check_training(mu_mirrored_strategy(.devices = processors), mu_mirrored_strategy(.devices = devices));
}

// ---- Random numbers -----------------------------------------------------------------------------

// Sizes with and without incomplete groups, and of several blocks.
static const int64_t odd_dims[] = {3, 11, 31}, even_dims[] = {2000};

static mu_value *draw_same_bits(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *seed = mu_at(arguments, 0);
    return mu_list(mu_of(mu_stateless_random_uniform(seed, MU_F32, 3, odd_dims)),
                   mu_of(mu_stateless_random_uniform(seed, MU_F64, 3, odd_dims)),
                   mu_of(mu_stateless_random_uniform(seed, MU_F16, 1, even_dims)),
                   mu_of(mu_stateless_random_uniform(seed, MU_BF16, 1, even_dims)),
                   mu_of(mu_stateless_random_uniform_int(seed, MU_I32, 3, odd_dims, -7, 100)),
                   mu_of(mu_stateless_random_uniform_int(seed, MU_I32, 1, even_dims, INT32_MIN, INT32_MAX)),
                   mu_of(mu_stateless_random_uniform_int(seed, MU_I64, 3, odd_dims, -5, 1ll << 40)),
                   mu_of(mu_stateless_random_uniform_int(seed, MU_I64, 1, even_dims, INT64_MIN, INT64_MAX)),
                   mu_of(mu_stateless_random_bernoulli(seed, 0.3, 3, odd_dims)),
                   mu_of(mu_stateless_permutation(seed, 1)), mu_of(mu_stateless_permutation(seed, 101)),
                   mu_of(mu_nn_stateless_dropout(mu_fill(MU_F32, 1, even_dims, 1), 0.4, seed)), MU_END);
}

static mu_value *draw_normals(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *seed = mu_at(arguments, 0);
    return mu_list(mu_of(mu_stateless_random_normal(seed, MU_F32, 3, odd_dims)),
                   mu_of(mu_stateless_random_normal(seed, MU_F64, 3, odd_dims)),
                   mu_of(mu_stateless_truncated_normal(seed, MU_F32, 3, odd_dims)),
                   mu_of(mu_stateless_truncated_normal(seed, MU_F64, 1, even_dims)), MU_END);
}

static void test_random_numbers(void **state)
{
    (void)state;
    static const int64_t seeds[][2] = {{1, 2}, {-3, INT64_MAX}, {0, 0}};
    for (size_t i = 0; i < MU_COUNT(seeds); i++) {
        mu_value *seed = mu_list(mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){2}, seeds[i])), MU_END);
        check_both("random numbers", draw_same_bits, NULL, seed, 0);
        check_both("normal numbers", draw_normals, NULL, seed, 1e-6);
    }
    mu_value *narrow = mu_list(mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){-9, 5})), MU_END);
    check_both("a seed of int32", draw_same_bits, NULL, narrow, 0);
}

// Parameters for every path through the loops, and some for which the loop never ends.
static mu_value *draw_by_rejection(mu_value *arguments, void *arg)
{
    enum { ALPHAS = 7, RATES = 9, DRAWS = 40 };
    (void)arg;
    mu_tensor *seed = mu_at(arguments, 0);
    mu_tensor *alpha = mu_tensor_new(MU_F64, 1, (int64_t[]){ALPHAS}, (double[]){1, 0.05, 0.9, 3, 40, -1, INFINITY});
    mu_tensor *rate =
        mu_tensor_new(MU_F64, 1, (int64_t[]){RATES}, (double[]){0, -1, 0.2, 9.9, 10, 100, 1e6, INFINITY, NAN});
    mu_tensor *gamma = mu_stateless_random_gamma(seed, alpha, NULL, 2, (int64_t[]){DRAWS, ALPHAS});
    return mu_list(mu_of(gamma), mu_of(mu_stateless_random_poisson(seed, rate, MU_F64, 2, (int64_t[]){DRAWS, RATES})),
                   mu_of(mu_stateless_random_poisson(seed, rate, MU_I32, 2, (int64_t[]){DRAWS, RATES})), MU_END);
}

static void test_numbers_drawn_by_rejection(void **state)
{
    (void)state;
    for (int64_t s = 0; s < 3; s++) {
        mu_value *seed = mu_list(mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){s * 7919, 5 - s})), MU_END);
        check_both("gamma and Poisson", draw_by_rejection, NULL, seed, 1e-9);
    }
}

static mu_value *log_gamma(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_lgamma(mu_at(arguments, 0))), mu_of(mu_digamma(mu_at(arguments, 0))), MU_END);
}

// A product of ten factors of this size overflows float32.
static void test_log_gamma_of_large_numbers(void **state)
{
    (void)state;
    mu_tensor *x = mu_tensor_new(MU_F32, 1, (int64_t[]){5}, (float[]){0.7f, 9.5f, 1e3f, 2e4f, 1e20f});
    check_both("lgamma", log_gamma, NULL, mu_list(mu_of(x), MU_END), 1e-5);
}

static mu_value *thousand_acosh(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_multiply(mu_acosh(mu_at(arguments, 0)), mu_constant(MU_F32, 1000))), MU_END);
}

// The distance from 1 keeps its digits.
static void test_acosh_near_one(void **state)
{
    (void)state;
    mu_tensor *x = mu_tensor_new(MU_F32, 1, (int64_t[]){5}, (float[]){1, 1.0000002f, 1.00001f, 1.0003f, 1.01f});
    check_both("acosh", thousand_acosh, NULL, mu_list(mu_of(x), MU_END), 1e-6);
}

// Nothing on the way to a result is beyond its type where the result is not.
static mu_value *activate(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    (void)arg;
    mu_tensor *const all[] = {mu_nn_gelu(x, false),
                              mu_nn_gelu(x, true),
                              mu_nn_silu(x),
                              mu_nn_mish(x),
                              mu_nn_softplus(x),
                              mu_nn_softsign(x),
                              mu_nn_hard_sigmoid(x),
                              mu_nn_elu(x),
                              mu_nn_selu(x),
                              mu_nn_log_sigmoid(x),
                              mu_sigmoid(x),
                              mu_tanh(x),
                              mu_erf(x)};
    mu_value *values[MU_COUNT(all)];
    for (size_t i = 0; i < MU_COUNT(all); i++)
        values[i] = mu_of(all[i]);
    return mu_list_of(MU_COUNT(all), values);
}

static void test_activations_of_large_numbers(void **state)
{
    (void)state;
    const float numbers[] = {3e38f, -3e38f, 1e20f, -1e20f, 1e4f, -1e4f, 90, -90};
    mu_tensor *x = mu_tensor_new(MU_F32, 1, (int64_t[]){MU_COUNT(numbers)}, numbers);
    check_both("float32", activate, NULL, mu_list(mu_of(x), MU_END), 1e-6);
    check_both("bfloat16", activate, NULL, mu_list(mu_of(mu_cast(x, MU_BF16)), MU_END), 1e-2);
}

// ---- Rows of a variable -------------------------------------------------------------------------

typedef struct scattering {
    mu_dtype dtype;
    mu_variable *rows;
} scattering;

// Every row comes at least once, one of them twice; an update has no row twice, because the order would matter.
static mu_value *scatter_all(mu_value *arguments, void *arg)
{
    const scattering *s = arg;
    mu_tensor *index = mu_at(arguments, 0), *values = mu_cast(mu_at(arguments, 1), s->dtype);
    mu_tensor *once = mu_slice(index, (int64_t[]){0}, (int64_t[]){3}),
              *part = mu_slice(values, (int64_t[]){0, 0}, (int64_t[]){3, 2});
    mu_variable_scatter_update(s->rows, once, part);
    mu_variable_scatter_add(s->rows, index, values);
    mu_variable_scatter_sub(s->rows, index, mu_multiply(values, values));
    mu_variable_scatter_mul(s->rows, index, values);
    mu_variable_scatter_div(s->rows, index, values);
    mu_variable_scatter_min(s->rows, index, mu_multiply(values, mu_constant(s->dtype, 2)));
    mu_variable_scatter_max(s->rows, index, values);
    return mu_list(mu_of(mu_variable_read(s->rows)), MU_END);
}

static void test_rows_of_variables(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_I32, MU_I64};
    const float values[] = {1, 2, 3, 4, -2, 5, 1, 3};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (int wide = 0; wide < 2; wide++) {
            double seen[2][8];
            for (int engine = 0; engine < 2; engine++) {
                scattering s = {.dtype = dtypes[d],
                                .rows = mu_variable_new(mu_fill(dtypes[d], 2, (int64_t[]){4, 2}, 7), "rows")};
                mu_tensor *index = mu_tensor_new(MU_I32, 1, (int64_t[]){4}, (int32_t[]){2, 0, 3, 2});
                mu_value *arguments = mu_list(mu_of(wide ? mu_cast(index, MU_I64) : index),
                                              mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){4, 2}, values)), MU_END);
                run_on(engine ? "XLA_CPU:0" : "CPU:0", scatter_all, &s, arguments);
                const mu_tensor *after = mu_variable_read(s.rows);
                for (int i = 0; i < 8; i++)
                    seen[engine][i] = mu__read_element(dtypes[d], mu__host_read(after), i);
            }
            for (int i = 0; i < 8; i++)
                assert_true(fabs(seen[0][i] - seen[1][i]) <= 1e-5 * (1 + fabs(seen[0][i])));
        }
}

// ---- Sorting and searching ----------------------------------------------------------------------

static mu_value *sort_all(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *sorted = mu_sort(x, 0, false), *values = NULL, *places = NULL;
    mu_top_k(x, 5, &values, &places);
    return mu_list(mu_of(sorted), mu_of(mu_sort(x, 0, true)), mu_of(mu_argsort(x, 0, false)),
                   mu_of(mu_argsort(x, 0, true)), mu_of(values), mu_of(places),
                   mu_of(mu_searchsorted(sorted, x, false)), mu_of(mu_searchsorted(sorted, x, true)), MU_END);
}

// Without denormal numbers, which XLA treats as 0 on processors.
static void test_order_of_odd_numbers(void **state)
{
    (void)state;
    const float odd[] = {2, NAN, -0.0f, 0, INFINITY, -INFINITY, 2, NAN, -3, 0, 1e-30f};
    mu_tensor *x = mu_tensor_new(MU_F32, 1, (int64_t[]){11}, odd);
    check_both("sort", sort_all, NULL, mu_list(mu_of(x), MU_END), 0);
}

static mu_value *extremes_of_all(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(mu_of(mu_argmax(x, 1)), mu_of(mu_argmin(x, 1)), mu_of(mu_argmax(x, 0)), mu_of(mu_argmin(x, 0)),
                   MU_END);
}

// Rows and columns without a true or a false element: the first one is the extreme.
static void test_extremes_of_bools(void **state)
{
    (void)state;
    const bool elements[] = {false, false, false, true, true, true, false, true, false};
    mu_tensor *x = mu_tensor_new(MU_BOOL, 2, (int64_t[]){3, 3}, elements);
    check_both("argmax of bools", extremes_of_all, NULL, mu_list(mu_of(x), MU_END), 0);
}

// ---- Sums of many 16-bit numbers ----------------------------------------------------------------

// In bfloat16, adding ones stops at 256.
static mu_value *sum_ones(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *rows = mu_at(arguments, 0), *places = mu_cast(mu_zeros_like(rows), MU_I32);
    return mu_list(mu_of(mu_unsorted_segment_sum(rows, places, 2)), mu_of(mu_reduce_sum(rows, 0)),
                   mu_of(mu_cumsum(rows, 0, false, false)), MU_END);
}

static void test_sums_in_16_bits(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_BF16, MU_F16};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++) {
        mu_tensor *ones = mu_fill(dtypes[d], 1, (int64_t[]){4096}, 1);
        check_both(mu_dtype_name(dtypes[d]), sum_ones, NULL, mu_list(mu_of(ones), MU_END), 1e-2);
    }
}

// ---- Numbers and sizes at the edges -------------------------------------------------------------

static mu_value *with_extremes(mu_value *arguments, void *arg)
{
    mu_tensor *a = mu_at(arguments, 0), *b = mu_at(arguments, 1), *all[] = {a, b}, *rows = mu_stack(2, all, 0);
    (void)arg;
    return mu_list(mu_of(mu_maximum(a, b)), mu_of(mu_minimum(a, b)), mu_of(mu_reduce_max(rows, 0)),
                   mu_of(mu_reduce_min(rows, 0)), mu_of(mu_reduce_max(rows, 1)), MU_END);
}

static void test_no_extreme_loses_a_nan(void **state)
{
    (void)state;
    const double a[] = {NAN, 1, -INFINITY, NAN, 3}, b[] = {1, NAN, 2, NAN, -3};
    mu_tensor *x = mu_tensor_new(MU_F64, 1, (int64_t[]){5}, a), *y = mu_tensor_new(MU_F64, 1, (int64_t[]){5}, b);
    mu_value *wide = mu_list(mu_of(x), mu_of(y), MU_END),
             *narrow = mu_list(mu_of(mu_cast(x, MU_F32)), mu_of(mu_cast(y, MU_F32)), MU_END);
    check_both("float64", with_extremes, NULL, wide, 0);
    check_both("float32", with_extremes, NULL, narrow, 0);
}

static mu_value *divide_whole(mu_value *arguments, void *arg)
{
    mu_tensor *a = mu_at(arguments, 0), *b = mu_at(arguments, 1);
    (void)arg;
    return mu_list(mu_of(mu_floor_divide(a, b)), mu_of(mu_mod(a, b)), MU_END);
}

static void test_whole_division_at_the_limits(void **state)
{
    (void)state;
    const int64_t a[] = {1, INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX, -7},
                  b[] = {INT64_MIN, 7, -4, INT64_MAX, INT64_MIN, 2};
    const int32_t c[] = {1, INT32_MIN, INT32_MAX}, d[] = {INT32_MIN, 7, -4};
    check_both("int64", divide_whole, NULL,
               mu_list(mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){6}, a)),
                       mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){6}, b)), MU_END),
               0);
    check_both("int32", divide_whole, NULL,
               mu_list(mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){3}, c)),
                       mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){3}, d)), MU_END),
               0);
}

// Images without rows, and batches of none.
static mu_value *convolve_with_gradients(mu_value *arguments, void *arg)
{
    mu_tensor *image = mu_identity(mu_at(arguments, 0)), *filter = mu_identity(mu_at(arguments, 1));
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_nn_conv2d(image, filter, .padding = "same"), *sum = mu_reduce_sum(y, MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, sum, mu_list(mu_of(image), mu_of(filter), MU_END));
    return gradients ? mu_list(mu_of(y), mu_value_at(gradients, 0), mu_value_at(gradients, 1), MU_END) : NULL;
}

static void test_convolutions_of_nothing(void **state)
{
    (void)state;
    mu_tensor *filter = mu_ones(MU_F32, 4, (int64_t[]){3, 3, 2, 4});
    check_both("no rows", convolve_with_gradients, NULL,
               mu_list(mu_of(mu_ones(MU_F32, 4, (int64_t[]){2, 0, 5, 2})), mu_of(filter), MU_END), 0);
    check_both("no images", convolve_with_gradients, NULL,
               mu_list(mu_of(mu_ones(MU_F32, 4, (int64_t[]){0, 5, 5, 2})), mu_of(filter), MU_END), 0);
}

// ---- What is refused ----------------------------------------------------------------------------

static mu_value *with_svd(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0), *parts[3];
    (void)arg;
    return mu__apply(&mu_op_svd, NULL, 1, &x, 0, NULL, parts) == MU_OK ? mu_of(parts[0]) : NULL;
}

static mu_value *with_unique(mu_value *arguments, void *arg)
{
    mu_tensor *values = NULL;
    (void)arg;
    mu_unique(mu_reshape(mu_at(arguments, 0), 1, (int64_t[]){4}), &values, NULL);
    return mu_of(values);
}

static mu_value *with_segments(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_segment_sum(mu_at(arguments, 0), mu_cast(mu_reduce_sum(mu_at(arguments, 0), 1), MU_I32)));
}

static mu_value *with_print(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_print(mu_at(arguments, 0), "x");
    return mu_of(mu_at(arguments, 0));
}

static mu_status copy_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    (void)in;
    (void)out;
    (void)arg;
    return MU_OK;
}

static mu_value *with_own_op(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_call_op1("copy_of_mine", 1, (mu_tensor *[]){mu_at(arguments, 0)}));
}

static void test_what_is_refused(void **state)
{
    (void)state;
    mu_value *x = mu_list(mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){2, 2}, (float[]){1, 2, 3, 4})), MU_END);
    check_refused("op svd ", "call it outside", with_svd, NULL, x);
    check_refused("op unique ", "outside of the function", with_unique, NULL, x);
    check_refused("op segment_sum ", "the unsorted form", with_segments, NULL, x);
    check_refused("op print ", "print it after the call", with_print, NULL, x);
    assert_int_equal(mu_register_op("copy_of_mine", 1, 1, .kernel = copy_kernel), MU_OK);
    check_refused("copy_of_mine", "is a C function", with_own_op, NULL, x);
}

static mu_value *divide_by_constants(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    const mu_dtype dtype = mu_tensor_dtype(x);
    return mu_list(mu_floor_divide(x, mu_constant(dtype, 41)), mu_floor_divide(x, mu_constant(dtype, 49)),
                   mu_floor_divide(x, mu_constant(dtype, .1)), MU_END);
}

static mu_value *whole_division_by(mu_value *arguments, void *arg)
{
    static const double divisors[] = {-3, -1, -8, 3, 8};
    mu_value *results[2 * MU_COUNT(divisors)];
    mu_tensor *x = mu_at(arguments, 0);
    (void)arg;
    for (size_t i = 0; i < MU_COUNT(divisors); i++) {
        results[2 * i] = mu_of(mu_mod(x, mu_constant(mu_tensor_dtype(x), divisors[i])));
        results[2 * i + 1] = mu_of(mu_floor_divide(x, mu_constant(mu_tensor_dtype(x), divisors[i])));
    }
    return mu_list_of(MU_COUNT(results), results);
}

// XLA knows the sign of the divisor here, and below that of a difference of sizes.
static void test_whole_division_by_negative_constants(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_I32, MU_I64, MU_F32, MU_F64};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        check_both(mu_dtype_name(dtypes[d]), whole_division_by, NULL, mu_list(mu_range(dtypes[d], -10, 11, 1), MU_END),
                   0);
}

static mu_value *compare_sizes(mu_value *arguments, void *arg)
{
    mu_tensor *rows = mu_dim_size(mu_at(arguments, 0), 0), *zero = mu_constant(MU_I64, 0);
    mu_tensor *missing = mu_subtract(rows, mu_constant(MU_I64, 100));
    (void)arg;
    return mu_list(mu_less(missing, zero), mu_greater(missing, zero), mu_maximum(missing, zero), MU_END);
}

static void test_signs_of_differences_of_sizes(void **state)
{
    (void)state;
    check_both("sizes", compare_sizes, NULL, mu_list(mu_range(MU_F32, 0, 4, 1), MU_END), 0);
}

// 1 / 41 in float32, 1 / 49 in float64, times the divisor is below 1; 1 is 10 times what float32 has for 0.1.
static void test_whole_division_by_constants(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++) {
        mu_tensor *x = mu_cast(mu_range(MU_F32, -300, 300, 1), dtypes[d]);
        check_both(mu_dtype_name(dtypes[d]), divide_by_constants, NULL, mu_list(x, MU_END), 0);
    }
}

static mu_value *extreme_places(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_argmax(mu_at(arguments, 0), 1)), mu_of(mu_argmin(mu_at(arguments, 0), 1)), MU_END);
}

// As on the native engine: rows without elements have no extreme, but no rows have none to look for.
static void test_extremes_of_nothing(void **state)
{
    (void)state;
    mu_value *empty_rows = mu_list(mu_of(mu_zeros(MU_F32, 2, (int64_t[]){2, 0})), MU_END);
    assert_null(mu_run(mu_one_device_strategy("XLA_CPU:0"), mu_function_new(extreme_places, NULL), empty_rows));
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "axis 1 of shape [2, 0] is empty"));
    check_both("no rows", extreme_places, NULL, mu_list(mu_of(mu_zeros(MU_F32, 2, (int64_t[]){0, 0})), MU_END), 0);
}

static mu_value *mean_of_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_list(mu_reduce_mean(x, .axis = 1), mu_reduce_mean(x), MU_END);
}

// On XLA's CPU devices an integer that is divided by zero ends the process.
static void test_means_of_no_integers(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_U8, MU_I8, MU_I16, MU_I32, MU_I64};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        check_both(mu_dtype_name(dtypes[d]), mean_of_rows, NULL,
                   mu_list(mu_zeros(dtypes[d], 2, (int64_t[]){3, 0}), MU_END), 0);
}

static mu_value *divide_without_nan(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_divide_no_nan(mu_at(arguments, 0), mu_at(arguments, 1)));
}

static void test_no_quotient_is_nan(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16};
    const double a[] = {0, 0, 1, -0., 0}, b[] = {0, 1e-39, 0, -1e-39, -0.};
    mu_tensor *x = mu_tensor_new(MU_F64, 1, (int64_t[]){5}, a), *y = mu_tensor_new(MU_F64, 1, (int64_t[]){5}, b);
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        check_both(mu_dtype_name(dtypes[d]), divide_without_nan, NULL,
                   mu_list(mu_cast(x, dtypes[d]), mu_cast(y, dtypes[d]), MU_END), 0);
}

static mu_value *gradients_of_extremes(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *sum = mu_add(mu_reduce_max(x, MU_ALL_AXES), mu_reduce_min(x, MU_ALL_AXES));
    mu_value *gradients = mu_gradients(tape, mu_multiply(sum, mu_constant(x->dtype, -.75)), mu_list(mu_of(x), MU_END));
    mu_tape_close(tape);
    return gradients;
}

// Where the extreme is NaN, no element equals it, and 0 parts of the gradient make NaN.
static void test_gradients_of_extremes(void **state)
{
    (void)state;
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16};
    const double rows[][4] = {{1, 3, 3, 2}, {NAN, 3, -INFINITY, INFINITY}, {2, 2, 2, 2}};
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (size_t r = 0; r < MU_COUNT(rows); r++)
            check_both(mu_dtype_name(dtypes[d]), gradients_of_extremes, NULL,
                       mu_list(mu_cast(mu_tensor_new(MU_F64, 1, (int64_t[]){4}, rows[r]), dtypes[d]), MU_END), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_and_dropout_train),
        cmocka_unit_test(test_embedding_and_dropout_train_on_two_replicas),
        cmocka_unit_test(test_random_numbers),
        cmocka_unit_test(test_numbers_drawn_by_rejection),
        cmocka_unit_test(test_log_gamma_of_large_numbers),
        cmocka_unit_test(test_acosh_near_one),
        cmocka_unit_test(test_activations_of_large_numbers),
        cmocka_unit_test(test_rows_of_variables),
        cmocka_unit_test(test_order_of_odd_numbers),
        cmocka_unit_test(test_extremes_of_bools),
        cmocka_unit_test(test_sums_in_16_bits),
        cmocka_unit_test(test_no_extreme_loses_a_nan),
        cmocka_unit_test(test_whole_division_at_the_limits),
        cmocka_unit_test(test_whole_division_by_constants),
        cmocka_unit_test(test_whole_division_by_negative_constants),
        cmocka_unit_test(test_signs_of_differences_of_sizes),
        cmocka_unit_test(test_convolutions_of_nothing),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_extremes_of_nothing),
        cmocka_unit_test(test_means_of_no_integers),
        cmocka_unit_test(test_no_quotient_is_nan),
        cmocka_unit_test(test_gradients_of_extremes),
    };
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = 2);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
