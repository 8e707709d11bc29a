// Every strategy, one model after the other: training on any number of replicas, with uneven and empty parts,
// reaches the parameters of one device; evaluation counts every sample once.
//
// All in float64: what remains is the order of summation, far below the tolerance.
#include "../unit/model/model_test.h"

#define SAMPLES 57  // batches of 13 and a last one of 5: parts of 0, 1 and 2 rows
#define BATCH 13
#define TOLERANCE 1e-12

static mu_layer *relu_dense(int units)
{
    return mu_dense(units, .activation = "relu", .kernel_regularizer = mu_l2(1e-3));
}

static mu_model *dense_model(void)
{
    return mu_sequential(relu_dense(9), mu_dense(4));
}

static mu_model *dropout_model(void)
{
    return mu_sequential(relu_dense(9), mu_dropout(.3), mu_dense(4));
}

static mu_model *conv_model(void)
{
    return mu_sequential(mu_conv2d(3, 3, .activation = "relu"), mu_max_pool2d(2), mu_conv2d(4, 2, .padding = "same"),
                         mu_average_pool2d(2, .strides = 1), mu_flatten(), mu_dense(4));
}

static mu_model *normalized_model(void)
{
    return mu_sequential(mu_conv2d(3, 3), mu_batch_normalization(.synchronized = true), mu_activation("relu"), mu_flatten(),
                         mu_dense(5), mu_batch_normalization(.synchronized = true, .no_scale = true), mu_dense(4));
}

static mu_optimizer *adam(void)
{
    return mu_adam(.learning_rate = .01);
}

static mu_optimizer *momentum(void)
{
    return mu_sgd(.learning_rate = .05, .momentum = .9, .nesterov = true);
}

static mu_optimizer *descent(void)
{
    return mu_sgd(.learning_rate = .1);
}

static const struct recipe {
    const char *name;
    mu_model *(*model)(void);
    mu_optimizer *(*optimizer)(void);
    bool images;
} recipes[] = {
    {"dense, gradient descent", dense_model, descent, false},
    {"dense, momentum", dense_model, momentum, false},
    {"dense, adam", dense_model, adam, false},
    {"conv, gradient descent", conv_model, descent, true},
    {"conv, adam", conv_model, adam, true},
    {"normalized, gradient descent", normalized_model, descent, true},
};

typedef struct outcome {
    double *weights, *losses;
    int64_t n_weights;
    int epochs;
} outcome;

static void free_outcome(outcome *o)
{
    free(o->weights);
    free(o->losses);
}

static outcome train(const struct recipe *recipe, int kind)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(42);
    mu_strategy *strategy = strategy_of(kind);
    mu_dataset *data = recipe->images ? images_and_classes(SAMPLES, 4, BATCH) : rows_and_classes(SAMPLES, 6, 4, BATCH);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = recipe->model();
        mu_compile(model, .optimizer = recipe->optimizer(), .metrics = MU_METRICS(mu_accuracy()),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    mu_history *history = mu_fit(model, data, .epochs = 3, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s on %d: %s", recipe->name, kind, mu_error_message());
    outcome o = {.epochs = mu_history_epochs(history), .losses = malloc(3 * sizeof(double))};
    o.weights = weights_of(model, &o.n_weights);
    for (int epoch = 0; epoch < o.epochs; epoch++)
        o.losses[epoch] = mu_history_at(history, "loss", epoch);
    mu_pool_close(pool);
    return o;
}

static void reaches_the_parameters_of_one_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(recipes); i++) {
        outcome wanted = train(&recipes[i], 0);
        for (int k = -1; k <= 2 * DEVICES; k++) {
            outcome seen = train(&recipes[i], k <= DEVICES ? k : CENTRAL + k - DEVICES);
            assert_int_equal(seen.n_weights, wanted.n_weights);
            assert_near(seen.weights, wanted.weights, wanted.n_weights, TOLERANCE);
            assert_near(seen.losses, wanted.losses, wanted.epochs, TOLERANCE);
            free_outcome(&seen);
        }
        free_outcome(&wanted);
    }
}

// Dropout draws differ from replica to replica, but one copy of its state for all of them is as good as one for each.
static void central_generators_draw_alike(void **state)
{
    (void)state;
    static const struct recipe recipe = {"dropout", dropout_model, adam, false};
    for (int n = 1; n <= DEVICES; n++) {
        outcome wanted = train(&recipe, n), seen = train(&recipe, CENTRAL + n);
        assert_near(seen.weights, wanted.weights, wanted.n_weights, TOLERANCE);
        free_outcome(&wanted);
        free_outcome(&seen);
    }
}

// The same seed gives the same bits, whatever the threads do.
static void repeats_its_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(recipes); i++)
        for (int k = 1; k < 2 * DEVICES; k += 2) {
            const int kind = k <= DEVICES ? k : CENTRAL + k - DEVICES + 1;
            outcome first = train(&recipes[i], kind), second = train(&recipes[i], kind);
            assert_memory_equal(first.weights, second.weights, sizeof(double) * (size_t)first.n_weights);
            assert_memory_equal(first.losses, second.losses, sizeof(double) * (size_t)first.epochs);
            free_outcome(&first);
            free_outcome(&second);
        }
}

// ---- Evaluation ---------------------------------------------------------------------------------

typedef struct measured {
    int64_t samples;
    double loss, accuracy;
    double outputs[1000 * 3];
} measured;

static void measure(int kind, measured *out)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(3);
    mu_model *model = NULL;
    mu_dataset *data = rows_and_classes(1000, 6, 3, 64);
    mu_strategy *strategy = strategy_of(kind);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(8, .activation = "tanh"), mu_dense(3));
        mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .metrics = MU_METRICS(mu_accuracy()));
    }
    mu_history *history = mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT);
    assert_non_null(history);
    *out = (measured){.samples = mu_history_samples(history), .loss = mu_history_last(history, "loss"),
                      .accuracy = mu_history_last(history, "accuracy")};
    mu_tensor *outputs = mu_predict(model, data);
    assert_int_equal(mu_tensor_dim(outputs, 0), 1000);
    assert_int_equal(mu_tensor_copy_to(outputs, out->outputs, sizeof out->outputs), MU_OK);
    mu_pool_close(pool);
}

static void counts_every_sample_once(void **state)
{
    (void)state;
    static const int kinds[] = {-1, 1, 2, 3, 7, 8, CENTRAL + 2, CENTRAL + 7};
    static measured wanted, seen;
    measure(0, &wanted);
    assert_int_equal(wanted.samples, 1000);
    assert_true(wanted.accuracy > 0 && wanted.accuracy < 1);
    for (size_t i = 0; i < MU_COUNT(kinds); i++) {
        measure(kinds[i], &seen);
        assert_int_equal(seen.samples, 1000);
        assert_true(seen.accuracy == wanted.accuracy);
        assert_number(seen.loss, wanted.loss, TOLERANCE);
        assert_near(seen.outputs, wanted.outputs, MU_COUNT(wanted.outputs), TOLERANCE);
    }
}

// The metrics that the callbacks see are sums over parts: after 1,000 samples they have counted 1,000.
static void metric_counts_parts(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= DEVICES; replicas++) {
        mu_pool *pool = mu_pool_open();
        mu_metric *accuracy = mu_accuracy();
        mu_model *model = NULL;
        mu_strategy *strategy = strategy_of(replicas);
        MU_SCOPE(strategy) {
            model = mu_sequential(mu_dense(3));
            mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                       .metrics = MU_METRICS(accuracy));
        }
        assert_non_null(mu_evaluate(model, rows_and_classes(1000, 6, 3, 7), .verbose = MU_VERBOSE_SILENT));
        assert_true(mu_scalar(mu_variable_read(accuracy->count)) == 1000);
        mu_pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(reaches_the_parameters_of_one_device),
        MODEL_TEST(central_generators_draw_alike),
        MODEL_TEST(repeats_its_bits),
        MODEL_TEST(counts_every_sample_once),
        MODEL_TEST(metric_counts_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
