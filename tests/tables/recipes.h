// Models, optimizers and data that every strategy must train to the same parameters, in one process or many.
//
// All in float64: the only differences left come from the order of summation, far below the tolerance.
#ifndef MU_TEST_RECIPES_H
#define MU_TEST_RECIPES_H

#include "../unit/model/model_test.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"

#include <muster/recurrent.h>

#define SAMPLES   57 // batches of 13 and a last one of 5: parts of 0, 1 and 2 rows
#define BATCH     13
#define TOLERANCE 1e-12
#define COUNTED   5

static inline mu_layer *relu_dense(int units)
{
    return mu_dense(units, .activation = "relu", .kernel_regularizer = mu_l2(1e-3));
}

static inline mu_model *dense_model(void) { return mu_sequential(relu_dense(9), mu_dense(4)); }

static inline mu_model *conv_model(void)
{
    return mu_sequential(mu_conv2d(3, 3, .activation = "relu"), mu_max_pool2d(2), mu_conv2d(4, 2, .padding = "same"),
                         mu_average_pool2d(2, .strides = 1), mu_flatten(), mu_dense(4));
}

static inline mu_model *normalized_model(void)
{
    return mu_sequential(mu_conv2d(3, 3), mu_batch_normalization(.synchronized = true), mu_activation("relu"),
                         mu_flatten(), mu_dense(5), mu_batch_normalization(.synchronized = true, .no_scale = true),
                         mu_dense(4));
}

// The LSTM's bias does not begin as its initializer draws it.
static inline mu_model *recurrent_model(void)
{
    return mu_sequential(mu_reshape_layer({3, 2}), mu_lstm(5), mu_dense(4));
}

// A model whose call is a function in C, with a loss and a weight of its own.
static inline mu_status own_build(mu_layer *model, int n, const mu_shape *inputs, void *arg)
{
    (void)n, (void)inputs, (void)arg;
    return mu_layer_add_weight(model, "scale", ((mu_shape){1, {4}}), .initializer = "ones") ? MU_OK : mu_error_code();
}

static inline mu_value *own_call(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    mu_tensor *y = mu_call(mu_layer_attribute(model, "body"), mu_at(inputs, 0));
    y = mu_call(mu_layer_attribute(model, "head"), y);
    y = mu_multiply(y, mu_variable_read(mu_layer_weight(model, "scale")));
    mu_tensor *size = mu_multiply(mu_reduce_mean(mu_square(y), MU_ALL_AXES), mu_constant(MU_F64, .1));
    return mu_layer_add_loss(model, size) == MU_OK ? mu_of(y) : NULL;
}

static inline mu_model *own_model(void)
{
    mu_model *model = mu_model_subclass("own_model", .build = own_build, .call = own_call);
    mu_layer_set_attribute(model, "body", relu_dense(9));
    return mu_layer_set_attribute(model, "head", mu_dense(4)) == MU_OK ? model : NULL;
}

static inline mu_optimizer *adam(void) { return mu_adam(.learning_rate = .01); }

static inline mu_optimizer *momentum(void) { return mu_sgd(.learning_rate = .05, .momentum = .9, .nesterov = true); }

static inline mu_optimizer *descent(void) { return mu_sgd(.learning_rate = .1); }

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
    {"recurrent, momentum", recurrent_model, momentum, false},
    {"functions in C, adam", own_model, adam, false},
};

typedef struct outcome {
    double *weights, *losses;
    int64_t n_weights;
    int epochs;
} outcome;

static inline void free_outcome(outcome *o)
{
    free(o->weights);
    free(o->losses);
}

// Trains a recipe from the same beginning.
static inline outcome train_on(const struct recipe *recipe, mu_strategy *strategy)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(42);
    mu_dataset *data = recipe->images ? images_and_classes(SAMPLES, 4, BATCH) : rows_and_classes(SAMPLES, 6, 4, BATCH);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = recipe->model();
        mu_compile(model, .optimizer = recipe->optimizer(), .metrics = MU_METRICS(mu_accuracy()),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    mu_history *history = mu_fit(model, data, .epochs = 3, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s on %s: %s", recipe->name, mu_strategy_name(strategy), mu_error_message());
    outcome o = {.epochs = mu_history_epochs(history), .losses = malloc(3 * sizeof(double))};
    o.weights = weights_of(model, &o.n_weights);
    for (int epoch = 0; epoch < o.epochs; epoch++)
        o.losses[epoch] = mu_history_at(history, "loss", epoch);
    mu_pool_close(pool);
    return o;
}

// ---- Evaluation ---------------------------------------------------------------------------------

typedef struct measured {
    int64_t samples;
    double loss, accuracy;
    double counted[COUNTED]; // metrics whose states are counts, which no order of summation changes
    double mean_error;
    double outputs[1000 * 3];
} measured;

// One-hot classes in batches: the area under a curve, the F-score of each class, the union of classes, a threshold.
static inline void count_on(mu_strategy *strategy, measured *out)
{
    static const char *const names[COUNTED] = {"auc", "f1_score", "fbeta_score", "one_hot_mean_io_u", "precision"};
    mu_tensor *labels = mu_one_hot(classes(1000, 3, 5), 3, MU_F64);
    mu_value *all = mu_list(numbers(2, (int64_t[]){1000, 6}, 3), labels, MU_END);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(3, .activation = "softmax",
                                       .kernel_initializer = mu_random_normal_initializer(.stddev = 1, .seed = 8)));
        mu_compile(model, .loss = "categorical_crossentropy",
                   .metrics = MU_METRICS(mu_auc_metric(.num_thresholds = 50, .name = "auc"),
                                         mu_f1_score_metric(.average = "macro", .name = "f1_score"),
                                         mu_fbeta_score_metric(.average = "weighted", .beta = 2, .name = "fbeta_score"),
                                         mu_one_hot_mean_iou_metric(3, .name = "one_hot_mean_io_u"),
                                         mu_precision_metric(.name = "precision"),
                                         mu_loss_metric(mu_mean_squared_error_loss(.name = "squares"))));
    }
    mu_history *history =
        mu_evaluate(model, mu_dataset_batch(mu_dataset_from_tensor_slices(all), 64), .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("metrics on %s: %s", mu_strategy_name(strategy), mu_error_message());
    for (int i = 0; i < COUNTED; i++) {
        out->counted[i] = mu_history_last(history, names[i]);
        assert_true(out->counted[i] > .05 && out->counted[i] < .95);
    }
    out->mean_error = mu_history_last(history, "squares");
}

static inline void measure_on(mu_strategy *strategy, measured *out)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(3);
    mu_model *model = NULL;
    mu_dataset *data = rows_and_classes(1000, 6, 3, 64);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(8, .activation = "tanh"), mu_dense(3));
        mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .metrics = MU_METRICS(mu_accuracy()));
    }
    mu_history *history = mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT);
    assert_non_null(history);
    *out = (measured){.samples = mu_history_samples(history),
                      .loss = mu_history_last(history, "loss"),
                      .accuracy = mu_history_last(history, "accuracy")};
    count_on(strategy, out);
    mu_tensor *outputs = mu_predict(model, data);
    assert_int_equal(mu_tensor_dim(outputs, 0), 1000);
    assert_int_equal(mu_tensor_copy_to(outputs, out->outputs, sizeof out->outputs), MU_OK);
    mu_pool_close(pool);
}

#endif
