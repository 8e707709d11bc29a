// Updates from sparse gradients on one and several replicas, against the formulas worked out in this file; the
// embedding layer.
#include "model/optimizers/optimizer.h"
#include "model_test.h"
#include "ops/nn/nn.h"

enum { ROWS = 5, WIDTH = 2, STEPS = 3, SAMPLES = 11 };

typedef enum kind { PLAIN, MOMENTUM, NESTEROV, ADAM, KINDS } kind;

typedef struct job {
    mu_variable *table;
    mu_optimizer *optimizer;
} job;

static mu_optimizer *optimizer_of(kind which)
{
    if (which == ADAM)
        return mu_adam(.learning_rate = .1, .beta_1 = .8);
    return mu_sgd(.learning_rate = .1, .momentum = which == PLAIN ? 0 : .9, .nesterov = which == NESTEROV);
}

// The loss is half the sum of the squares of the rows that are named, so a slice is the row itself.
static mu_value *step(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_gather(mu_variable_read(j->table), mu_at(arguments, 0), 0, 0);
    mu_tensor *loss = mu_multiply(mu_reduce_sum(mu_square(rows), MU_ALL_AXES), mu_constant(MU_F64, .5));
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, mu_variables(j->table, MU_END)));
    return mu_of(loss);
}

static void expected_step(kind which, int s, double *w, double *m, double *v, int n, const int32_t *rows)
{
    double sum[ROWS * WIDTH] = {0}, squares[ROWS * WIDTH] = {0};
    for (int i = 0; i < n * WIDTH; i++) {
        const int at = rows[i / WIDTH] * WIDTH + i % WIDTH;
        sum[at] += w[at];
        squares[at] += w[at] * w[at];
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        if (which == ADAM) {
            m[i] += (sum[i] - m[i]) * (1 - .8);
            v[i] += (squares[i] - v[i]) * (1 - .999);
            w[i] -= .1 * sqrt(1 - pow(.999, s)) / (1 - pow(.8, s)) * m[i] / (sqrt(v[i]) + 1e-7);
            continue;
        }
        m[i] = (which == PLAIN ? 0 : .9) * m[i] - .1 * sum[i];
        w[i] += which == NESTEROV ? .9 * m[i] - .1 * sum[i] : m[i];
    }
}

// Splits the indices over the replicas as `sizes` says.
static mu_value *parts_of(int n, const int64_t *sizes, const int32_t *rows)
{
    mu_value *parts[DEVICES];
    for (int r = 0; r < n; rows += sizes[r++])
        parts[r] = mu_of(mu_tensor_new(MU_I32, 1, &sizes[r], rows));
    return n == 1 ? parts[0] : mu__give(mu__value_container(MU_VALUE_PER_REPLICA, n, parts, NULL));
}

static void check(kind which, int replicas, bool traced, int n, const int64_t *sizes, const int32_t *rows)
{
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of(replicas == 1 ? 0 : replicas);
    double w[ROWS * WIDTH], m[ROWS * WIDTH] = {0}, v[ROWS * WIDTH] = {0};
    job j = {0};
    MU_SCOPE(strategy) {
        j = (job){.table = mu_variable_new(numbers(2, (int64_t[]){ROWS, WIDTH}, 9), "table"),
                  .optimizer = optimizer_of(which)};
    }
    memcpy(w, doubles(mu_variable_read(j.table)), sizeof w);
    mu_function *function = mu_function_new(step, &j);
    mu_value *parts = parts_of(replicas % CENTRAL, sizes, rows);
    for (int s = 1; s <= STEPS; s++) {
        expected_step(which, s, w, m, v, n, rows);
        if (!(traced ? mu_run(strategy, function, parts) : mu_run_callback(strategy, step, &j, parts)))
            fail_msg("%s", mu_error_message());
    }
    for (int c = 0; c < mu_variable_component_count(j.table); c++)
        assert_near(doubles(mu__variable_component(j.table, c)), w, ROWS * WIDTH, 1e-12);
    for (int c = 1; c < mu_variable_component_count(j.table); c++)
        assert_memory_equal(doubles(mu__variable_component(j.table, c)), doubles(mu__variable_component(j.table, 0)),
                            sizeof w);
    mu_pool_close(pool);
}

// Fewer slices than rows are sent as they are; more become sums. Parts of every size, empty ones included.
static void updates_match(void **state)
{
    (void)state;
    static const int32_t rows[SAMPLES] = {3, 1, 3, 0, 1, 3, 3, 2, 0, 1, 3};
    static const int64_t all[] = {4}, two[] = {3, 1}, three[] = {0, 4, 0}, many[] = {1, 0, 1, 0, 2};
    static const int64_t all_dense[] = {SAMPLES}, two_dense[] = {8, 3}, three_dense[] = {5, 0, 6};
    for (kind which = PLAIN; which < KINDS; which++)
        for (int traced = 0; traced < 2; traced++) {
            check(which, 1, traced, 4, all, rows);
            check(which, 2, traced, 4, two, rows);
            check(which, 3, traced, 4, three, rows);
            check(which, 5, traced, 4, many, rows);
            check(which, 1, traced, SAMPLES, all_dense, rows);
            check(which, 2, traced, SAMPLES, two_dense, rows);
            check(which, 3, traced, SAMPLES, three_dense, rows);
            check(which, CENTRAL + 3, traced, 4, three, rows);
            check(which, CENTRAL + 2, traced, SAMPLES, two_dense, rows);
        }
}

static void nothing_named_still_decays(void **state)
{
    (void)state;
    static const int64_t none[] = {0, 0};
    for (kind which = PLAIN; which < KINDS; which++)
        check(which, 2, true, 0, none, (int32_t[]){0});
}

static void wrong_indices_are_named(void **state)
{
    (void)state;
    static const int64_t two[] = {1, 1};
    mu_strategy *strategy = strategy_of(2);
    job j = {0};
    MU_SCOPE(strategy) {
        j = (job){.table = mu_variable_new(numbers(2, (int64_t[]){ROWS, WIDTH}, 9), "table"),
                  .optimizer = optimizer_of(ADAM)};
    }
    assert_null(mu_run(strategy, mu_function_new(step, &j), parts_of(2, two, (int32_t[]){0, ROWS})));
    expect_error(MU_INVALID_ARGUMENT, "index 5");
    mu_tensor *values = mu_zeros(MU_F64, 2, (int64_t[]){1, WIDTH}), *rate = mu_constant(MU_F64, 1);
    mu_resource *resource = &mu_variable_new(numbers(2, (int64_t[]){ROWS, WIDTH}, 9), "other")->resource;
    mu_apply_slices_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    mu_tensor *in[] = {rate, rate, values, mu_tensor_new(MU_I64, 1, two, (int64_t[]){-1})};
    assert_int_equal(mu__apply(&mu_op_apply_gradient_descent_slices, &attrs, 4, in, 1, &resource, NULL),
                     MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "index -1");
    in[2] = rate;
    assert_int_equal(mu__apply(&mu_op_apply_gradient_descent_slices, &attrs, 4, in, 1, &resource, NULL),
                     MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "they must be float64[1, 2]");
    in[3] = rate;
    assert_int_equal(mu__apply(&mu_op_apply_gradient_descent_slices, &attrs, 4, in, 1, &resource, NULL),
                     MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "vector of int32 or int64");
}

// ---- The layer ----------------------------------------------------------------------------------

static mu_model *words(mu_optimizer *optimizer)
{
    mu_model *model = mu_sequential(mu_embedding(20, 4), mu_flatten(), mu_dense(3));
    mu_compile(model, .optimizer = optimizer, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    return model;
}

static mu_dataset *sentences(int64_t n)
{
    mu_tensor *x = mu_reshape(classes(n * 6, 20, 3), 2, (int64_t[]){n, 6});
    return mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, classes(n, 3, 5), MU_END)), 10);
}

// float32 has no odd numbers above 2^24; rows of a large table must not be confused with their neighbours.
static void embedding_takes_large_numbers(void **state)
{
    (void)state;
    mu_set_floatx(MU_F32);
    mu_model *model = mu_sequential(mu_flatten(), mu_embedding(4, 2));
    assert_null(mu_call(model, mu_tensor_new(MU_I64, 2, (int64_t[]){1, 1}, (int64_t[]){16777217})));
    expect_error(MU_INVALID_ARGUMENT, "index 16777217");
    assert_null(mu_call(model, mu_tensor_new(MU_I32, 2, (int64_t[]){1, 1}, (int32_t[]){16777219})));
    expect_error(MU_INVALID_ARGUMENT, "index 16777219");
}

static void embedding_looks_up(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_embedding(3, 2, .name = "words"));
    const int64_t shape[] = {2, 2};
    mu_tensor *y = mu_call(model, mu_tensor_new(MU_I32, 2, shape, (int32_t[]){2, 0, -1, 1}));
    mu_variable *table = (mu_variable *)mu_value_at(mu_model_weights(model), 0)->leaf;
    assert_string_equal(mu_variable_name(table), "words/embeddings");
    const double *rows = doubles(mu_variable_read(table));
    assert_near(doubles(y), (double[]){rows[4], rows[5], rows[0], rows[1], rows[4], rows[5], rows[2], rows[3]}, 8, 0);
    for (int i = 0; i < 6; i++)
        assert_true(fabs(rows[i]) <= .05);
    assert_null(mu_call(model, mu_tensor_new(MU_I32, 2, shape, (int32_t[]){2, 0, 3, 1})));
    expect_error(MU_INVALID_ARGUMENT, "index 3");
    assert_null(mu_embedding(0, 4));
    expect_error(MU_INVALID_ARGUMENT, "input_dim");
    assert_null(mu_embedding(4, 4, .embeddings_initializer = "nice"));
    expect_error(MU_INVALID_ARGUMENT, "nice");
}

// 34 samples in batches of 10: the last batch and most parts are uneven.
static void replicas_reach_what_one_reaches(void **state)
{
    (void)state;
    for (kind which = PLAIN; which < KINDS; which++) {
        double *wanted = NULL;
        for (int replicas = 0; replicas <= 4; replicas++) {
            mu_pool *pool = mu_pool_open();
            int64_t n = 0;
            mu_model *model = NULL;
            MU_SCOPE(strategy_of(replicas == 1 ? -1 : replicas)) {
                mu_model_build(model = words(optimizer_of(which)), 1, (int64_t[]){6});
            }
            mu_value *weights = mu_model_weights(model);
            for (int i = 0; i < mu_value_count(weights); i++) {
                mu_variable *w = (mu_variable *)mu_value_at(weights, i)->leaf;
                const mu_shape shape = mu_variable_shape(w);
                mu_variable_assign(w, numbers(shape.rank, shape.dims, 3 + (uint64_t)i));
            }
            if (!mu_fit(model, sentences(34), .epochs = 2, .verbose = MU_VERBOSE_SILENT))
                fail_msg("%s", mu_error_message());
            double *seen = weights_of(model, &n);
            if (wanted)
                assert_near(seen, wanted, n, 1e-12);
            if (replicas > 0)
                free(seen);
            else
                wanted = seen;
            mu_pool_close(pool);
        }
        free(wanted);
    }
}

static void optimizers_clip_slices(void **state)
{
    (void)state;
    mu_variable *table = mu_variable_new(mu_ones(MU_F64, 2, (int64_t[]){ROWS, WIDTH}), "table");
    job j = {.table = table, .optimizer = mu_sgd(.learning_rate = 1, .clipnorm = 1)};
    assert_non_null(
        mu_run(NULL, mu_function_new(step, &j), mu_of(mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){1, 1}))));
    assert_near(doubles(mu_variable_read(table)), (double[]){1, 1, 0, 0, 1, 1, 1, 1, 1, 1}, ROWS * WIDTH, 1e-14);
    assert_null(mu_sgd(.clipnorm = 1, .clipvalue = 1));
    expect_error(MU_INVALID_ARGUMENT, "more than one");
    assert_null(mu_adam(.global_clipnorm = -1));
    expect_error(MU_INVALID_ARGUMENT, "global_clipnorm is -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(updates_match),
        MODEL_TEST(nothing_named_still_decays),
        MODEL_TEST(wrong_indices_are_named),
        MODEL_TEST(embedding_looks_up),
        MODEL_TEST(embedding_takes_large_numbers),
        MODEL_TEST(replicas_reach_what_one_reaches),
        MODEL_TEST(optimizers_clip_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
