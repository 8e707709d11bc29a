// Wrong calls: each gives the documented code and a message that names the thing; and every call that is given a
// failed argument keeps the first error and does nothing.
#include "model/callbacks/callback_class.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"
#include "model_test.h"

static mu_model *dense_model(void)
{
    mu_model *model = mu_sequential(mu_dense(3));
    mu_compile(model, .optimizer = mu_sgd(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    return model;
}

static mu_dataset *good_data(void) { return rows_and_classes(6, 4, 3, 3); }

#define REFUSED(call, part)                      \
    do {                                         \
        assert_true(!(call));                    \
        expect_error(MU_INVALID_ARGUMENT, part); \
    } while (0)

// The error names the wrong object in a list, or in the place of a tensor.
static void things_of_another_kind_are_named(void **state)
{
    (void)state;
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 1), "v");
    REFUSED(mu_list((void *)v, MU_END), "element 0 is a variable; expected a tensor or a value. Give its tensor");
    REFUSED(mu_add((mu_tensor *)(void *)v, mu_constant(MU_F64, 1)), "mu_variable_read gives a variable's tensor");
}

static void layers_refuse(void **state)
{
    (void)state;
    REFUSED(mu_dense(), "units is 0");
    REFUSED(mu_dense(-2), "-2");
    REFUSED(mu_dense(1, .activation = "rellu"), "'rellu'");
    REFUSED(mu_dense(1, .kernel_initializer = "glorot"), "'glorot'");
    REFUSED(mu_dense(1, .bias_initializer = "twos"), "'twos'");
    REFUSED(mu_conv2d(), "filters is 0");
    REFUSED(mu_conv2d(1), "kernel_size is 0");
    REFUSED(mu_conv2d(1, 1, .strides = -1), "strides is -1");
    REFUSED(mu_conv2d(1, 1, .groups = -1), "groups is -1");
    REFUSED(mu_conv2d(1, 1, .padding = "full"), "'full'");
    REFUSED(mu_conv2d(1, 1, .activation = ""), "''");
    REFUSED(mu_conv2d(1, 1, .kernel_initializer = "x"), "'x'");
    REFUSED(mu_max_pool2d(-1), "pool_size is -1");
    REFUSED(mu_average_pool2d(2, .strides = -1), "strides is -1");
    REFUSED(mu_max_pool2d(2, .padding = "SAME"), "'SAME'");
    REFUSED(mu_dropout(1), "rate is 1");
    REFUSED(mu_dropout(-.5), "-0.5");
    REFUSED(mu_dropout(NAN), "nan");
    REFUSED(mu_batch_normalization(.momentum = 2), "momentum is 2");
    REFUSED(mu_batch_normalization(.epsilon = -1), "epsilon is -1");
    REFUSED(mu_activation("swish2"), "'swish2'");
    REFUSED(mu_l2(-1), "-1");
    mu_layer *layer = mu_flatten();
    REFUSED(mu_sequential(layer, layer), "same object");
    REFUSED(mu_sequential_of((mu_layer *const[]){MU_END}), "no layers");
    REFUSED(mu_sequential_of((mu_layer *const[]){NULL, MU_END}), "layer 0 is NULL");
    REFUSED_STATUS(mu_set_floatx(MU_I32), MU_INVALID_ARGUMENT, "int32");
}

static void shapes_are_refused(void **state)
{
    (void)state;
    int64_t dims[] = {5, 5, 3};
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_conv2d(2, 3)), 1, dims), MU_INVALID_ARGUMENT,
                   "'conv2d' takes inputs of rank 4");
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_conv2d(4, 3, .groups = 2)), 3, dims), MU_INVALID_ARGUMENT,
                   "2 groups");
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_conv2d(4, 7)), 3, dims), MU_INVALID_ARGUMENT, "conv2d");
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_max_pool2d(2)), 2, dims), MU_INVALID_ARGUMENT, "max_pooling2d");
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_dense(2)), 1, (int64_t[]){MU_UNKNOWN}), MU_INVALID_ARGUMENT,
                   "known last axis");
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_dense(2)), 1, (int64_t[]){0}), MU_INVALID_ARGUMENT,
                   "dimension 0 is 0");
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_dense(2)), 1, NULL), MU_INVALID_ARGUMENT, "dims");
    REFUSED_STATUS(mu_model_build(mu_sequential(mu_dense(2)), 8, dims), MU_INVALID_ARGUMENT, "rank");
    REFUSED_STATUS(mu_model_build(NULL, 1, dims), MU_INVALID_ARGUMENT, "model");
    mu_model *model = dense_model();
    assert_int_equal(mu_model_build(model, 1, dims), MU_OK);
    REFUSED(mu_call(model, mu_ones(MU_F64, 2, (int64_t[]){2, 4})), "dense");
    REFUSED(mu_call(model), "x is NULL");
    REFUSED(mu_call(), "model is NULL");
    REFUSED(mu_fit(model, good_data(), .verbose = MU_VERBOSE_SILENT), "dense");
}

static void data_are_refused(void **state)
{
    (void)state;
    mu_model *model = dense_model();
    mu_dataset *endless = mu_dataset_repeat(good_data(), MU_INFINITE);
    REFUSED(mu_fit(model, endless), ".steps_per_epoch");
    REFUSED(mu_fit(model, good_data(), .validation_data = endless), ".validation_steps");
    REFUSED(mu_evaluate(model, endless), "for ever");
    REFUSED(mu_predict(model, endless), "for ever");
    assert_non_null(mu_fit(model, endless, .steps_per_epoch = 2, .verbose = MU_VERBOSE_SILENT));
    mu_dataset *bare = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(numbers(2, (int64_t[]){6, 4}, 1))), 3);
    REFUSED(mu_fit(model, bare, .verbose = MU_VERBOSE_SILENT), "inputs and labels");
    REFUSED(mu_evaluate(model, bare, .verbose = MU_VERBOSE_SILENT), "inputs and labels");
}

// Arrays whose rows or labels do not fit say which argument it is; none trains on numbers that were broadcast.
static void arrays_are_refused(void **state)
{
    (void)state;
    mu_model *model = dense_model();
    const int n = (int)mu_tensor_dim(mu_predict(model, numbers(2, (int64_t[]){3, 4}, 1)), 1);
    mu_compile(model, .optimizer = "sgd", .loss = "mse");
    mu_tensor *x = numbers(2, (int64_t[]){6, 4}, 1), *y = numbers(2, (int64_t[]){6, n}, 2);
    mu_tensor *few = numbers(2, (int64_t[]){5, n}, 2), *w = numbers(1, (int64_t[]){7}, 2);
    REFUSED(mu_fit(model, x, few), "mu_fit: tensor 0 of y has 5 rows, and the first one of x has 6");
    REFUSED(mu_fit(model, x, few, .validation_split = .5), "tensor 0 of y has 5 rows, and the first one of x has 6");
    REFUSED(mu_fit(model, x, y, .sample_weight = w), "sample_weight has 7 rows");
    REFUSED(mu_evaluate(model, mu_list(x, few, MU_END)), "tensor 1 of the samples has 5 rows");
    REFUSED(mu_train_on_batch(model, x, few), "mu_train_on_batch: tensor 0 of y has 5 rows");
    double weights[] = {1, 2};
    REFUSED(mu_fit(model, x, y, .sample_weight = numbers(1, (int64_t[]){6}, 2), .class_weight = weights,
                   .n_class_weight = 2),
            "not both");
    mu_tensor *square = numbers(2, (int64_t[]){n, 4}, 1); // as many samples as units
    REFUSED(mu_fit(model, square, numbers(1, (int64_t[]){n}, 2)), "labels have one number for each sample");
}

static void training_refuses(void **state)
{
    (void)state;
    mu_model *model = dense_model(), *bare = mu_sequential(mu_dense(3));
    REFUSED_STATUS(mu_compile(model), MU_INVALID_ARGUMENT, "give a loss");
    REFUSED_STATUS(mu_compile(NULL), MU_INVALID_ARGUMENT, "the model is NULL");
    mu_loss *loss = mu_mean_squared_error_loss();
    REFUSED_STATUS(mu_compile(bare, .loss = loss, .metrics = MU_METRICS(mu_accuracy(), "accuracy")),
                   MU_INVALID_ARGUMENT, "'accuracy'");
    REFUSED_STATUS(mu_compile(bare, .loss = loss, .metrics = MU_METRICS(mu_mean_metric("loss"))), MU_INVALID_ARGUMENT,
                   "'loss'");
    REFUSED_STATUS(mu_compile(bare, .loss = loss, .metrics = MU_ITEMS(NULL)), MU_INVALID_ARGUMENT, "metric 0");
    bare = mu_sequential(mu_dense(3));
    assert_null(mu_fit(bare, good_data()));
    expect_error(MU_FAILED_PRECONDITION, "mu_compile");
    assert_null(mu_evaluate(bare, good_data()));
    expect_error(MU_FAILED_PRECONDITION, "mu_compile");
    assert_int_equal(mu_compile(bare, .loss = loss), MU_OK);
    assert_null(mu_fit(bare, good_data()));
    expect_error(MU_FAILED_PRECONDITION, "without an optimizer");
    REFUSED(mu_fit(model, NULL), "dataset is NULL");
    REFUSED(mu_fit(NULL, good_data()), "model is NULL");
    REFUSED(mu_fit(model, good_data(), .epochs = -1), "epochs -1");
    REFUSED(mu_fit(model, good_data(), .initial_epoch = -1), "initial_epoch -1");
    REFUSED(mu_fit(model, good_data(), .steps_per_epoch = -1), "steps_per_epoch -1");
    REFUSED(mu_fit(model, good_data(), .validation_steps = -1), "validation_steps -1");
    REFUSED(mu_predict(model, NULL), "dataset is NULL");
    REFUSED(mu_predict(NULL, good_data()), "model is NULL");
    REFUSED(mu_model_checkpoint(NULL), "path");
    REFUSED(mu_early_stopping(.patience = -1), "patience is -1");
    REFUSED(mu_early_stopping(.min_delta = -1), "min_delta is -1");
    REFUSED_STATUS(mu_summary(NULL, stdout), MU_INVALID_ARGUMENT, "the model");
    REFUSED_STATUS(mu_summary(model, NULL), MU_INVALID_ARGUMENT, "mu_summary: out is NULL");
    assert_int_equal(mu_summary(mu_sequential(mu_input_layer({3}), mu_dense(2))), MU_OK);
    REFUSED(mu_trainable_variables(NULL), "model is NULL");
    char name[100];
    memset(name, 'm', sizeof name);
    name[99] = 0;
    REFUSED(mu_mean_metric(name), "99 characters");
}

static void optimizers_refuse(void **state)
{
    (void)state;
    REFUSED(mu_adam(.learning_rate = -1), "learning_rate is -1");
    REFUSED(mu_adam(.beta_1 = 1), "beta_1 is 1");
    REFUSED(mu_adam(.beta_2 = -.5), "beta_2 is -0.5");
    REFUSED(mu_adam(.epsilon = -1), "epsilon is -1");
    REFUSED(mu_sgd(.learning_rate = NAN), "nan");
    REFUSED(mu_sgd(.momentum = 1), "momentum is 1");
    REFUSED(mu_optimizer_learning_rate(NULL), "optimizer is NULL");
    REFUSED(mu_optimizer_iterations(NULL), "optimizer is NULL");
    REFUSED(mu_compute_average_loss(NULL), "losses is NULL");
    REFUSED(mu_compute_average_loss(mu_constant(MU_F64, 1), .global_batch_size = -1), "-1");
    REFUSED_STATUS(mu_metric_update(NULL, NULL, NULL), MU_INVALID_ARGUMENT, "metric is NULL");
    REFUSED_STATUS(mu_metric_update(mu_accuracy(), mu_constant(MU_I64, 1), NULL), MU_INVALID_ARGUMENT,
                   "y_pred is NULL");
    mu_value *plain = mu_list(mu_constant(MU_F64, 1), MU_END);
    REFUSED_STATUS(mu_apply_gradients(mu_sgd(), plain), MU_INVALID_ARGUMENT, "mu_gradients");
    REFUSED_STATUS(mu_apply_gradients(NULL, plain), MU_INVALID_ARGUMENT, "optimizer is NULL");
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_constant(MU_F64, 2);
    mu_value *of_tensor = mu_gradients(tape, mu_square(x), mu_list(x, MU_END));
    REFUSED_STATUS(mu_apply_gradients(mu_sgd(), of_tensor), MU_INVALID_ARGUMENT, "not of a variable");
}

// ---- A failed argument is never taken for an absent one -----------------------------------------

static mu_dataset *failed_data(void)
{
    mu_fail(MU_ABORTED, "first");
    return NULL;
}

// The objects that the calls below refer to: all valid, made before the error.
typedef struct things {
    mu_model *model;
    mu_dataset *data;
    mu_loss *loss;
    mu_optimizer *optimizer;
    mu_metric *metric;
    mu_callback *callback;
    mu_layer *layer;
    mu_tensor *tensor;
    int64_t weights;
} things;

static things t;

#define PENDING(call)                                                \
    do {                                                             \
        assert_true(!(call));                                        \
        expect_error(MU_ABORTED, "first");                           \
        assert_int_equal(mu_error_code(), MU_OK);                    \
        assert_false(t.model->trainer->stop);                        \
        assert_int_equal(t.model->trainer->n_metrics, 1);            \
        assert_ptr_equal(t.model->trainer->optimizer, t.optimizer);  \
        assert_int_equal(t.model->sublayers.items[0]->weights.n, 0); \
    } while (0)
#define PENDING_STATUS(call) PENDING((call) != MU_ABORTED)
#define FAILED(type)         ((type)(void *)failed_data())

static void prepare(void)
{
    t = (things){.data = good_data(),
                 .loss = mu_mean_squared_error_loss(),
                 .optimizer = mu_sgd(),
                 .metric = mu_accuracy(),
                 .callback = mu_model_checkpoint("never.safetensors"),
                 .layer = mu_flatten(),
                 .tensor = mu_constant(MU_F64, 1)};
    t.model = mu_sequential(mu_dense(3));
    mu_compile(t.model, .optimizer = t.optimizer, .loss = t.loss);
    assert_int_equal(mu_error_code(), MU_OK);
}

static void failed_layers_stay_failed(void **state)
{
    (void)state;
    prepare();
    PENDING(mu_dense(1, .kernel_regularizer = FAILED(mu_regularizer *)));
    PENDING(mu_dense(1, .bias_regularizer = FAILED(mu_regularizer *)));
    PENDING(mu_conv2d(1, 1, .kernel_regularizer = FAILED(mu_regularizer *)));
    PENDING(mu_conv2d(1, 1, .bias_regularizer = FAILED(mu_regularizer *)));
    PENDING(mu_dense(1, .activation = FAILED(const char *)));
    PENDING(mu_dense(1, .kernel_initializer = FAILED(const char *)));
    PENDING(mu_dense(1, .bias_initializer = FAILED(const char *)));
    PENDING(mu_dense(1, .name = FAILED(const char *)));
    PENDING(mu_conv2d(1, 1, .padding = FAILED(const char *)));
    PENDING(mu_conv2d(1, 1, .activation = FAILED(const char *)));
    PENDING(mu_conv2d(1, 1, .kernel_initializer = FAILED(const char *)));
    PENDING(mu_conv2d(1, 1, .bias_initializer = FAILED(const char *)));
    PENDING(mu_conv2d(1, 1, .name = FAILED(const char *)));
    PENDING(mu_max_pool2d(2, .padding = FAILED(const char *)));
    PENDING(mu_average_pool2d(2, .name = FAILED(const char *)));
    PENDING(mu_dropout(.5, .name = FAILED(const char *)));
    PENDING(mu_batch_normalization(.name = FAILED(const char *)));
    PENDING(mu_activation(FAILED(const char *)));
    PENDING(mu_sequential(t.layer, FAILED(mu_layer *)));
    PENDING(mu_mean_metric(FAILED(const char *)));
    PENDING(mu_model_checkpoint(FAILED(const char *)));
    PENDING(mu_model_checkpoint("x", .monitor = FAILED(const char *)));
    PENDING(mu_early_stopping(.monitor = FAILED(const char *)));
    PENDING(mu_callback_new(.arg = FAILED(void *)));
}

static void failed_arguments_stay_failed(void **state)
{
    (void)state;
    prepare();
    PENDING(mu_call(FAILED(mu_model *), t.tensor));
    PENDING(mu_call(t.model, FAILED(mu_tensor *)));
    PENDING_STATUS(mu_compile(t.model, .optimizer = FAILED(mu_optimizer *), .loss = t.loss));
    PENDING_STATUS(mu_compile(t.model, .loss = FAILED(mu_loss *)));
    PENDING_STATUS(mu_compile(t.model, .loss = t.loss, .metrics = MU_METRICS(FAILED(mu_metric *))));
    PENDING_STATUS(mu_compile(FAILED(mu_model *), .loss = t.loss));
    PENDING(mu_fit(FAILED(mu_model *), t.data));
    PENDING(mu_fit(t.model, failed_data()));
    PENDING(mu_fit(t.model, t.data, .validation_data = failed_data()));
    PENDING(mu_fit(t.model, t.data, .callbacks = MU_CALLBACKS(t.callback, FAILED(mu_callback *))));
    PENDING(mu_evaluate(t.model, failed_data()));
    PENDING(mu_evaluate(FAILED(mu_model *), t.data));
    PENDING(mu_predict(t.model, failed_data()));
    PENDING(mu_predict(FAILED(mu_model *), t.data));
    PENDING(mu_compute_average_loss(FAILED(mu_tensor *)));
    PENDING(mu_variable_new(FAILED(mu_tensor *), "v"));
    PENDING(mu_variable_new(t.tensor, FAILED(const char *)));
    PENDING(mu_mirrored_strategy(FAILED(const char *const *)));
    PENDING(mu_nn_conv2d(t.tensor, FAILED(mu_tensor *)));
    PENDING(mu_nn_conv2d(FAILED(mu_tensor *), t.tensor));
    PENDING(mu_nn_max_pool2d(FAILED(mu_tensor *), .window = {2}));
    PENDING(mu_nn_avg_pool2d(FAILED(mu_tensor *), .window = {2}));
    PENDING_STATUS(mu_save_tensors("never.safetensors", FAILED(const mu_value *)));
    PENDING_STATUS(mu_save_weights(t.model, FAILED(const char *)));
    PENDING_STATUS(mu_load_weights(t.model, FAILED(const char *)));
    PENDING_STATUS(mu_metric_update(t.metric, t.tensor, FAILED(mu_tensor *)));
    PENDING_STATUS(mu_apply_gradients(t.optimizer, FAILED(mu_value *)));
    PENDING(mu_optimizer_learning_rate(FAILED(mu_optimizer *)));
    PENDING(mu_dataset_shuffle(failed_data(), 10));
    PENDING(mu_dataset_batch(failed_data(), 10));
    PENDING(mu_distribute_dataset(NULL, failed_data()));
}

// An object or its name, one or several, as in Keras.
static void names_stand_for_objects(void **state)
{
    (void)state;
    mu_tensor *inputs = numbers(2, (int64_t[]){20, 3}, 1), *labels = numbers(2, (int64_t[]){20, 2}, 2);
    mu_model *model = mu_sequential(mu_dense(2));
    assert_int_equal(mu_compile(model, .optimizer = "SGD", .loss = "mse", .metrics = "accuracy"), MU_OK);
    mu_history *history = mu_fit(model, inputs, labels, .callbacks = mu_early_stopping(.monitor = "loss"),
                                 .validation_data = mu_list(inputs, labels, MU_END), .verbose = MU_VERBOSE_SILENT);
    assert_true(isfinite(mu_history_last(history, "accuracy")) && isfinite(mu_history_last(history, "val_loss")));
    assert_int_equal(
        mu_compile(model, .optimizer = "adam", .loss = "mse", .metrics = MU_METRICS("acc", mu_mean_metric("m"))),
        MU_OK);
    assert_non_null(mu_evaluate(model, inputs, labels, .verbose = MU_VERBOSE_SILENT));
    assert_int_equal(mu_tensor_dim(mu_predict(model, inputs), 0), 20);
    REFUSED_STATUS(mu_compile(model, .loss = "least_cubes"), MU_INVALID_ARGUMENT,
                   "no loss is named 'least_cubes'; expected an object or one of mean_squared_error");
    REFUSED_STATUS(mu_compile(model, .loss = mu_accuracy()), MU_INVALID_ARGUMENT, "the loss is of type metric");
    REFUSED_STATUS(mu_compile(model, .loss = "mse", .optimizer = model), MU_INVALID_ARGUMENT, "is of type layer");
    REFUSED_STATUS(mu_compile(model, .loss = "mse", .metrics = MU_METRICS("acc", mu_sgd())), MU_INVALID_ARGUMENT,
                   "the metric is of type optimizer");
    REFUSED(mu_fit(model, mu_sgd()), "x is of type optimizer");
    REFUSED(mu_fit(model, inputs, model), "y is of type layer");
    REFUSED(mu_fit(model, inputs, labels, .callbacks = mu_sgd()), "the callback is of type optimizer");
    REFUSED(mu_fit(model, inputs, labels, .steps_per_epoch = 0), "steps_per_epoch is 0");
    history = mu_fit(model, inputs, labels, .epochs = 0);
    assert_int_equal(mu_history_epochs(history), 0);
}

// Arrays are cut and shuffled as a dataset of them would be; with the same order the weights are the same.
static void arrays_are_a_dataset(void **state)
{
    (void)state;
    mu_value *arrays = mu_list(numbers(2, (int64_t[]){20, 3}, 1), classes(20, 2, 2), MU_END);
    double *seen[2];
    int64_t n;
    for (int i = 0; i < 2; i++) {
        mu_set_seed(5);
        mu_model *model = NULL;
        MU_SCOPE(mu_mirrored_strategy(.replicas = 2)) {
            model = mu_sequential(mu_dense(2));
            mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                       .optimizer = mu_sgd());
        }
        mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(arrays), 8);
        assert_non_null(i ? mu_fit(model, arrays, .batch_size = 8, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT)
                          : mu_fit(model, data, .verbose = MU_VERBOSE_SILENT));
        assert_number(mu_history_last(mu_evaluate(model, arrays, .verbose = MU_VERBOSE_SILENT), "loss"),
                      mu_history_last(mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT), "loss"), 1e-12);
        assert_int_equal(mu_tensor_dim(mu_predict(model, arrays), 0), 20);
        seen[i] = weights_of(model, &n);
        assert_null(mu_fit(model, data, arrays));
        expect_error(MU_INVALID_ARGUMENT, "leave y out");
        assert_null(mu_fit(model, data, .batch_size = 8));
        expect_error(MU_INVALID_ARGUMENT, "mu_dataset_batch");
    }
    assert_memory_equal(seen[0], seen[1], sizeof *seen[0] * (size_t)n);
    free(seen[0]);
    free(seen[1]);
}

// mu_compile's setting of .jit_compile also applies to a prediction, even after an earlier one without it. Without a
// plugin the prediction fails.
static void a_prediction_is_as_the_model_was_compiled_last(void **state)
{
    (void)state;
    mu_model *model = dense_model();
    assert_non_null(mu_predict(model, good_data()));
    mu_compile(model, .optimizer = mu_sgd(), .loss = mu_sparse_categorical_crossentropy_loss(), .jit_compile = true);
    const bool predicts = mu_predict(model, good_data()) != NULL;
    mu_error_take();
    assert_true(!predicts || mu__function_jit_compile(model->trainer->predict_function));
    mu_compile(model, .optimizer = mu_sgd(), .loss = mu_sparse_categorical_crossentropy_loss());
    assert_non_null(mu_predict(model, good_data()));
    assert_false(mu__function_jit_compile(model->trainer->predict_function));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(things_of_another_kind_are_named),
        MODEL_TEST(layers_refuse),
        MODEL_TEST(shapes_are_refused),
        MODEL_TEST(training_refuses),
        MODEL_TEST(data_are_refused),
        MODEL_TEST(arrays_are_refused),
        MODEL_TEST(optimizers_refuse),
        MODEL_TEST(names_stand_for_objects),
        MODEL_TEST(arrays_are_a_dataset),
        MODEL_TEST(failed_layers_stay_failed),
        MODEL_TEST(failed_arguments_stay_failed),
        MODEL_TEST(a_prediction_is_as_the_model_was_compiled_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
