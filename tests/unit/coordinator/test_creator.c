// Weights by class apply to the datasets of a creator, as to a dataset: here, and under parameter servers, where each
// worker reads its own.
#include "servers_test.h"

#include <math.h>

enum { ROWS = 12, COLUMNS = 2, CLASSES = 3, BATCH = 4, STEPS = 6 };

static const double class_weights[CLASSES] = {1, 5, 0.25};

static mu_dataset *batches(void)
{
    float x[ROWS * COLUMNS];
    int64_t labels[ROWS], rows = ROWS;
    for (int i = 0; i < ROWS; i++) {
        x[COLUMNS * i] = (float)(i % 5) - 2;
        x[COLUMNS * i + 1] = (float)(i % 3);
        labels[i] = i * 7 % CLASSES;
    }
    const int64_t shape[2] = {ROWS, COLUMNS};
    mu_dataset *all = mu_dataset_from_tensor_slices(
        mu_list(mu_of(mu_tensor_new(MU_F32, 2, shape, x)), mu_of(mu_tensor_new(MU_I64, 1, &rows, labels)), MU_END));
    return mu_dataset_repeat(mu_dataset_batch(all, BATCH), MU_INFINITE);
}

static mu_dataset *create(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return batches();
}

static mu_dataset_creator *creator(void) { return mu_dataset_creator_new(create, NULL); }

static mu_model *compiled_model(void)
{
    mu_model *model = mu_sequential(mu_dense(CLASSES, .activation = "softmax", .kernel_initializer = "zeros"));
    mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0.1), .loss = "sparse_categorical_crossentropy");
    return model;
}

// The kernel after training with as many weights as are given.
static const float *train(const void *samples, int n_weights, float kernel[COLUMNS * CLASSES])
{
    mu_model *model = compiled_model();
    if (!mu_fit(model, samples, .steps_per_epoch = STEPS, .class_weight = n_weights > 0 ? class_weights : NULL,
                .n_class_weight = n_weights, .verbose = MU_VERBOSE_SILENT))
        fail_msg("%s", mu_error_message());
    mu_tensor *read = mu_variable_read(mu_value_variable(mu_value_at(mu_model_weights(model), 0)));
    assert_int_equal(mu_tensor_copy_to(read, kernel, sizeof(float) * COLUMNS * CLASSES), MU_OK);
    return kernel;
}

static double difference(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < COLUMNS * CLASSES; i++)
        most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

static void expect_weights(void)
{
    float weighted[COLUMNS * CLASSES], of_creator[COLUMNS * CLASSES], plain[COLUMNS * CLASSES];
    train(batches(), CLASSES, weighted);
    assert_true(difference(weighted, train(creator(), CLASSES, of_creator)) < 1e-6);
    assert_true(difference(weighted, train(creator(), 0, plain)) > 0.01);
}

static void test_a_creator_here(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect_weights();
    mu_pool_close(pool);
}

static void test_a_creator_under_parameter_servers(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    MU_SCOPE(strategy_of_servers(2, NULL))
        expect_weights();
    mu_pool_close(pool);
}

static void test_what_a_creator_does_not_take(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_model *model = compiled_model();
    assert_null(mu_fit(model, creator(), .steps_per_epoch = 1, .validation_split = 0.5));
    expect_error(MU_INVALID_ARGUMENT, "x is a dataset creator; give .validation_data");
    assert_null(mu_fit(model, creator(), .steps_per_epoch = 1, .sample_weight = mu_ones(MU_F32, 1, (int64_t[]){ROWS})));
    expect_error(MU_INVALID_ARGUMENT, "leave out y, .sample_weight and .batch_size");
    assert_null(mu_fit(model, creator(), .steps_per_epoch = 1, .class_weight = class_weights, .n_class_weight = 0));
    expect_error(MU_INVALID_ARGUMENT, "n_class_weight is 0");
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_creator_here),
                                       cmocka_unit_test(test_a_creator_under_parameter_servers),
                                       cmocka_unit_test(test_what_a_creator_does_not_take)};
    return cmocka_run_group_tests_name("coordinator/creator", tests, start_with_key, end_library);
}
