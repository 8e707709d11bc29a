// A layer, a loss and a metric of the test's own, written with the public functions alone: several replicas reach the
// weights of one; saved and loaded.
#include "model/metrics/metric.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"
#include "model_test.h"

#include <muster/recurrent.h>
#include <stdatomic.h>
#include <time.h>

// y = x · scale_0 · scale_1 · …, with as many weights as `arg` says; the mean of y² is a loss.
static mu_status scale_build(mu_layer *layer, int n, const mu_shape *inputs, void *arg)
{
    (void)n;
    const mu_shape shape = {1, {inputs[0].dims[inputs[0].rank - 1]}};
    char name[32];
    for (int i = 0; i < *(int *)arg; i++) {
        snprintf(name, sizeof name, "scale_%d", i);
        if (!mu_layer_add_weight(layer, name, shape, .initializer = "ones"))
            return mu_error_code();
    }
    return MU_OK;
}

static mu_value *scale_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context;
    char name[32];
    mu_tensor *y = mu_at(inputs, 0);
    for (int i = 0; i < *(int *)arg; i++) {
        snprintf(name, sizeof name, "scale_%d", i);
        y = mu_multiply(y, mu_variable_read(mu_layer_weight(layer, name)));
    }
    return mu_layer_add_loss(layer, mu_reduce_mean(mu_square(y), MU_ALL_AXES)) == MU_OK ? mu_of(y) : NULL;
}

static mu_tensor *fourth_power(mu_tensor *y_true, mu_tensor *y_pred, void *arg)
{
    (void)arg;
    return mu_reduce_mean(mu_square(mu_squared_difference(y_true, y_pred)), -1);
}

// Two states of different shapes: the sum of each column of labels, and the number of rows.
static const mu_metric_state states[] = {{"columns", {1, {2}}}, {"rows", {0, {0}}}};

static mu_status sums_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, void *arg)
{
    (void)y_pred, (void)weights, (void)arg;
    if (mu_metric_add(metric, 0, mu_reduce_sum(y_true, 0)) != MU_OK)
        return mu_error_code();
    return mu_metric_add(metric, 1, mu_dim_size(y_true, 0));
}

static double sums_result(const double *sums, void *arg)
{
    (void)arg;
    return (sums[0] + 10 * sums[1]) / sums[2];
}

static void own_classes_train(void **state)
{
    (void)state;
    int n_weights = 12;
    double *wanted = NULL;
    mu_tensor *x = numbers(2, (int64_t[]){11, 2}, 1), *y = numbers(2, (int64_t[]){11, 2}, 2);
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, y, MU_END)), 4);
    for (int replicas = 1; replicas <= 4; replicas++) { // of four, one has no row of the last batch
        mu_model *model = NULL;
        MU_SCOPE(strategy_of(replicas)) {
            model = mu_sequential(mu_layer_new("scale", .build = scale_build, .call = scale_call, .arg = &n_weights));
            mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1), .loss = mu_loss_new(.call = fourth_power),
                       .metrics = MU_METRICS(mu_metric_new("sums", .n_states = 2, .states = states,
                                                           .update = sums_update, .result = sums_result)));
        }
        mu_history *history = mu_fit(model, data, .epochs = 2, .verbose = MU_VERBOSE_SILENT);
        if (!history)
            fail_msg("%s", mu_error_message());
        const double *labels = doubles(y);
        double sum = 0;
        for (int i = 0; i < 22; i++)
            sum += (i % 2 ? 10 : 1) * labels[i];
        assert_number(mu_history_last(history, "sums"), sum / 11, 1e-12);
        int64_t n;
        double *weights = weights_of(model, &n);
        assert_int_equal(n, 2 * n_weights);
        if (wanted)
            assert_near(weights, wanted, n, 1e-12);
        free(wanted);
        wanted = weights;
        assert_true(weights[0] != 1);
    }
    free(wanted);
}

// ---- Steps --------------------------------------------------------------------------------------

static mu_tensor *own_train_step(mu_model *model, mu_value *batch, void *optimizer)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_call(model, mu_at(batch, 0), .training = true);
    mu_tensor *errors = mu_reduce_mean(mu_square(mu_subtract(y, mu_at(batch, 1))), 1);
    mu_tensor *share = mu_compute_average_loss(errors);
    mu_value *gradients = mu_gradients(tape, share, mu_trainable_variables(model));
    mu_tape_close(tape);
    return mu_apply_gradients(optimizer, gradients) == MU_OK ? mu_reduce_mean(errors, MU_ALL_AXES) : NULL;
}

static mu_tensor *vector_step(mu_model *model, mu_value *batch, void *arg)
{
    (void)model, (void)arg;
    return mu_at(batch, 0);
}

// A training step of the program's own does the same as fit's, on any number of replicas.
static void own_steps(void **state)
{
    (void)state;
    double last[2][7], losses[2];
    mu_value *data = mu_list(numbers(2, (int64_t[]){12, 3}, 1), numbers(2, (int64_t[]){12, 2}, 2), MU_END);
    for (int own = 0; own < 2; own++) {
        mu_model *model = NULL;
        mu_strategy *strategy = strategy_of(2);
        MU_SCOPE(strategy) {
            model = mu_sequential(mu_dense(2, .kernel_initializer = "ones"));
            mu_optimizer *sgd = mu_sgd(.learning_rate = .1);
            if (own)
                mu_compile(model, .train_step = own_train_step, .step_arg = sgd);
            else
                mu_compile(model, .optimizer = sgd, .loss = "mse");
        }
        mu_history *history =
            mu_fit(model, data, .epochs = 3, .batch_size = 4, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
        if (!history)
            fail_msg("%s", mu_error_message());
        losses[own] = mu_history_last(history, "loss");
        memcpy(last[own], doubles(mu_variable_read(mu_layer_weight(mu_model_layer(model, "dense"), "kernel"))),
               6 * sizeof(double));
    }
    assert_near(last[1], last[0], 6, 1e-14);
    assert_number(losses[1], losses[0], 1e-14);
    mu_model *wrong = mu_sequential(mu_dense(2));
    mu_compile(wrong, .train_step = vector_step);
    assert_null(mu_train_on_batch(wrong, data));
    expect_error(MU_INVALID_ARGUMENT, "returned a tensor of rank 2; return the mean loss, a scalar");
}

// ---- Clones -------------------------------------------------------------------------------------

// y = dense(x) + x, where the dense layer is a sublayer that the argument refers to.
static mu_value *skip_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *dense)
{
    (void)layer, (void)context;
    return mu_of(mu_add(mu_call(dense, mu_at(inputs, 0)), mu_at(inputs, 0)));
}

static mu_layer *skip_clone(const mu_layer *layer, void *arg);

static mu_layer *skip_layer(mu_layer *dense, mu_layer *(*clone)(const mu_layer *layer, void *arg))
{
    mu_layer *layer = mu_layer_new("skip", .call = skip_call, .arg = dense, .clone = clone);
    return mu_layer_add_sublayer(layer, dense) == MU_OK ? layer : NULL;
}

static mu_layer *skip_clone(const mu_layer *layer, void *dense)
{
    (void)layer;
    return skip_layer(mu_layer_from_config(mu_layer_config(dense)), skip_clone);
}

static mu_layer *same_clone(const mu_layer *layer, void *arg)
{
    (void)arg;
    return (mu_layer *)(uintptr_t)layer;
}

static mu_layer *no_clone(const mu_layer *layer, void *arg)
{
    (void)layer, (void)arg;
    mu_fail(MU_ABORTED, "not today");
    return NULL;
}

static mu_value *halve(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    return mu_of(mu_multiply(mu_at(inputs, 0), mu_constant(MU_F64, .5)));
}

// A functional model of the program's own layers: with an argument and sublayers, with neither, and inside of a
// wrapper. The clone has the same names and, with equal weights, the same results; its weights are its own.
static void models_with_own_layers_are_cloned(void **state)
{
    (void)state;
    mu_tensor *x = mu_input({3, 2});
    mu_tensor *h = mu_call(mu_time_distributed(skip_layer(mu_dense(2), skip_clone)), x);
    h = mu_call(skip_layer(mu_dense(2), skip_clone), mu_call(mu_layer_new("halve", .call = halve, .name = "half"), h));
    mu_model *model = mu_model_new(x, h), *clone = mu_clone_model(model);
    if (!clone)
        fail_msg("%s", mu_error_message());
    mu_value *ours = mu_model_weights(model), *theirs = mu_model_weights(clone);
    assert_int_equal(mu_value_count(theirs), 4);
    mu_tensor *data = numbers(3, (int64_t[]){4, 3, 2}, 1);
    assert_non_null(mu_model_layer(clone, "half"));
    for (int i = 0; i < 4; i++) {
        mu_variable *from = mu_value_variable(mu_value_at(ours, i)), *to = mu_value_variable(mu_value_at(theirs, i));
        assert_true(from != to);
        assert_string_equal(mu_variable_name(from), mu_variable_name(to));
        assert_int_equal(mu_variable_assign(to, mu_variable_read(from)), MU_OK);
    }
    assert_near(doubles(mu_call(clone, data)), doubles(mu_call(model, data)), 24, 1e-15);
    assert_non_null(mu_clone_model(clone));
}

static void layers_that_cannot_be_cloned_are_named(void **state)
{
    (void)state;
    int n_weights = 1;
    assert_null(mu_clone_model(mu_sequential(
        mu_layer_new("scale", .build = scale_build, .call = scale_call, .arg = &n_weights, .name = "mine"))));
    expect_error(MU_UNIMPLEMENTED, "'mine' is a layer of your own with an .arg");
    assert_null(mu_clone_model(mu_sequential(skip_layer(mu_dense(2), NULL))));
    expect_error(MU_UNIMPLEMENTED, "'skip' is a layer of your own with sublayers that are not attributes");
    assert_null(mu_clone_model(mu_sequential(skip_layer(mu_dense(2), same_clone))));
    expect_error(MU_INVALID_ARGUMENT, "layer 'skip' returned the layer itself");
    assert_null(mu_clone_model(mu_sequential(skip_layer(mu_dense(2), no_clone))));
    expect_error(MU_ABORTED, "not today");
    assert_null(mu_layer_config(mu_sequential(mu_layer_new("halve", .call = halve))));
    expect_error(MU_UNIMPLEMENTED, "'halve' is a layer of your own");
    // No configuration from a file can refer to the layers of a model that is cloned.
    assert_null(mu_layer_from_config(
        "{\"module\": \"muster\", \"class_name\": \"ProgramsOwnLayer\", \"config\": {\"name\": \"a\", \"place\": 0}}"));
    expect_error(MU_UNIMPLEMENTED, "mu_register_layer(\"ProgramsOwnLayer\"");
}

// ---- On several threads -------------------------------------------------------------------------

static atomic_int n_builds;

// Takes so long that every thread of the dataset below has come to it.
static mu_status slow_build(mu_layer *layer, int n, const mu_shape *inputs, void *arg)
{
    (void)n, (void)inputs, (void)arg;
    n_builds++;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    return mu_layer_add_weight(layer, "factor", mu_shape_make(0, NULL), .initializer = "ones") ? MU_OK
                                                                                               : mu_error_code();
}

static mu_value *slow_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(mu_multiply(mu_at(inputs, 0), mu_variable_read(mu_layer_weight(layer, "factor"))));
}

static mu_value *apply_layer(mu_value *element, void *layer)
{
    return mu_of(mu_call(layer, mu_cast(mu_value_tensor(element), MU_F64)));
}

// A function of a dataset that calls a new layer on four threads at once builds it once.
static void threads_build_a_layer_once(void **state)
{
    (void)state;
    mu_layer *layer = mu_layer_new("slow", .build = slow_build, .call = slow_call);
    n_builds = 0;
    double sum = 0;
    mu_dataset *data = mu_dataset_batch(mu_dataset_range(0, 32, 1), 2);
    MU_EACH(element, mu_dataset_map(data, apply_layer, layer, .parallel_calls = 4))
        sum += mu_scalar(mu_reduce_sum(mu_value_tensor(element), MU_ALL_AXES));
    assert_true(sum == 496);
    assert_int_equal(n_builds, 1);
}

// ---- Registered classes -------------------------------------------------------------------------

#define LAYER_OF(class_name, registered, factor)                                                         \
    "{\"module\": \"somewhere\", \"class_name\": \"" class_name "\", \"config\": {\"name\": \"twice\", " \
    "\"dtype\": \"float64\", \"factor\": " #factor "}, \"registered_name\": " registered "}"
#define MODEL_OF(layer)                                                                       \
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"m\", \"layers\": [" layer ", " \
    "{\"class_name\": \"Dense\", \"config\": {\"units\": 2, \"name\": \"dense\"}}]}}"

static mu_value *times_arg(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context;
    mu_tensor *x = mu_at(inputs, 0);
    mu_tensor *y = mu_multiply(x, mu_constant(mu_tensor_dtype(x), *(const double *)arg));
    return y ? mu_of(y) : NULL;
}

// Takes the factor from the configuration.
static mu_layer *times_from(const char *config, void *arg)
{
    const char *at = strstr(config, "\"factor\":");
    *(double *)arg = at ? strtod(at + strlen("\"factor\":"), NULL) : 0;
    return at ? mu_layer_new("times", .call = times_arg, .arg = arg) : NULL;
}

static mu_layer *dense_from(const char *config, void *arg)
{
    (void)config, (void)arg;
    return mu_dense(3);
}

// A class that Keras does not have is made by the function that the program registered for it, and written as it was
// read; a clone is made by the same function.
static void registered_layers_are_read_and_written(void **state)
{
    static double factor;
    (void)state;
    assert_null(mu_layer_from_config(MODEL_OF(LAYER_OF("Times", "\"mine>Times\"", 3))));
    expect_error(MU_UNIMPLEMENTED,
                 "'twice' is of the class Times of mine>Times, not one of Keras's layers; write the layer in C and "
                 "register a function that makes it: mu_register_layer(\"mine>Times\"");
    assert_int_equal(mu_register_layer("mine>Times", times_from, &factor), MU_OK);
    assert_int_equal(mu_register_layer("mine>Times", times_from, &factor), MU_OK);
    mu_model *model = mu_layer_from_config(MODEL_OF(LAYER_OF("Times", "\"mine>Times\"", 3)));
    if (!model)
        fail_msg("%s", mu_error_message());
    mu_tensor *x = numbers(2, (int64_t[]){4, 2}, 1);
    mu_tensor *y = mu_call(mu_model_layer(model, "twice"), x);
    assert_near(doubles(y), doubles(mu_multiply(x, mu_constant(mu_tensor_dtype(x), 3))), 8, 1e-15);
    mu_layer_set_trainable(mu_model_layer(model, "twice"), false);
    const char *text = mu_layer_config(model);
    assert_non_null(strstr(text, "\"registered_name\":\"mine>Times\""));
    assert_non_null(strstr(text, "\"module\":\"somewhere\""));
    assert_non_null(strstr(text, "\"factor\":3,\"trainable\":false"));
    factor = 0;
    mu_model *clone = mu_clone_model(model);
    assert_non_null(clone);
    assert_non_null(mu_model_layer(clone, "twice"));
    assert_true(factor == 3);
    factor = 0;
    mu_model *again = mu_layer_from_config(text);
    assert_non_null(again);
    assert_true(factor == 3);
    // Thawed, it stays so in copies.
    mu_layer_set_trainable(mu_model_layer(again, "twice"), true);
    assert_non_null(strstr(mu_layer_config(again), "\"factor\":3,\"trainable\":true"));
    assert_true(mu_layer_is_trainable(mu_model_layer(mu_clone_model(again), "twice")));
}

#define ENTRY(module, class_name, registered)                                                      \
    "{" module "\"class_name\": \"" class_name "\", \"config\": {\"name\": \"it\", \"units\": 2, " \
    "\"factor\": 3}, \"registered_name\": " registered "}"

// A class of the program's own with the name of one of Keras's takes nothing from that one, and is not taken for it.
static void names_of_keras_are_told_apart(void **state)
{
    static double factor;
    static const char dense[] = "{\"module\": \"keras.layers\", \"class_name\": \"Dense\", \"config\": {\"units\": 2}, "
                                "\"registered_name\": null}";
    (void)state;
    assert_null(mu_layer_from_config(ENTRY("\"module\": null, ", "Dense", "\"Dense\"")));
    expect_error(MU_UNIMPLEMENTED, "'it' is of the class Dense of a script, not one of Keras's layers; write the layer "
                                   "in C and register a function that makes it: mu_register_layer(\"Dense\"");
    assert_null(mu_layer_from_config(ENTRY("\"module\": null, ", "Sparse", "\"Sparse\"")));
    expect_error(MU_UNIMPLEMENTED, "mu_register_layer(\"Sparse\"");
    assert_null(mu_layer_from_config(ENTRY("\"module\": \"os\", ", "Dense", "null")));
    expect_error(MU_UNIMPLEMENTED, "mu_register_layer(\"Dense\"");
    assert_int_equal(mu_register_layer("Dense", times_from, &factor), MU_OK);
    static const char *const own[] = {ENTRY("\"module\": null, ", "Dense", "\"Dense\""),
                                      ENTRY("\"module\": \"os\", ", "Dense", "null")};
    for (size_t i = 0; i < MU_COUNT(own); i++) {
        factor = 0;
        assert_non_null(mu_layer_from_config(own[i]));
        assert_true(factor == 3);
    }
    mu_layer *built_in = mu_layer_from_config(dense);
    if (!built_in)
        fail_msg("%s", mu_error_message());
    assert_non_null(strstr(mu_layer_config(built_in), "\"class_name\":\"Dense\""));
    assert_non_null(mu_layer_from_config("{\"class_name\": \"Dense\", \"config\": {\"units\": 2}}"));
    assert_non_null(mu_clone_model(mu_sequential(mu_dense(3), mu_dense(2))));
}

// Files of old versions of Keras name classes alone: neither their modules nor registered names.
static void classes_of_old_files(void **state)
{
    static double factor;
    (void)state;
    assert_int_equal(mu_register_layer("Scaled", times_from, &factor), MU_OK);
    assert_non_null(mu_layer_from_config("{\"class_name\": \"Scaled\", \"config\": {\"factor\": 3}}"));
    assert_true(factor == 3);
    factor = 0;
    assert_int_equal(mu_register_layer("Sequential", times_from, &factor), MU_OK);
    assert_int_equal(mu_register_layer("InputLayer", times_from, &factor), MU_OK);
    mu_model *model = mu_layer_from_config(
        "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"m\", \"layers\": [{\"class_name\": \"InputLayer\", "
        "\"config\": {\"batch_input_shape\": [null, 3], \"factor\": 3, \"dtype\": \"float32\", \"name\": \"in\"}}, "
        "{\"class_name\": \"Dense\", \"config\": {\"units\": 2, \"name\": \"dense\"}}]}}");
    if (!model)
        fail_msg("%s", mu_error_message());
    assert_non_null(mu_model_layer(model, "dense"));
    assert_true(factor == 0);
}

static mu_layer *built_from(const char *config, void *arg)
{
    mu_layer *layer = times_from(config, arg);
    return layer && mu_call(layer, mu_ones(MU_F64, 2, (int64_t[]){2, 2})) ? layer : NULL;
}

static void registrations_that_do_not_fit_are_named(void **state)
{
    static double factor;
    (void)state;
    assert_int_equal(mu_register_layer("Times", times_from, &factor), MU_OK);
    assert_int_equal(mu_register_layer("Times", dense_from, NULL), MU_ALREADY_EXISTS);
    expect_error(MU_ALREADY_EXISTS, "another function is registered for 'Times'");
    assert_int_equal(mu_register_layer("", times_from, NULL), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "the name is empty");
    assert_int_equal(mu_register_layer("Wide", dense_from, NULL), MU_OK);
    assert_null(mu_layer_from_config(LAYER_OF("Wide", "null", 1)));
    expect_error(MU_INVALID_ARGUMENT, "registered for 'Wide' returned a layer of another class");
    assert_int_equal(mu_register_layer("Built", built_from, &factor), MU_OK);
    assert_null(mu_layer_from_config(LAYER_OF("Built", "null", 1)));
    expect_error(MU_INVALID_ARGUMENT, "registered for 'Built' returned a layer that has its weights already");
    assert_null(mu_layer_from_config("{\"module\": \"a\", \"class_name\": \"Times\", \"config\": {}}"));
    expect_error(MU_INVALID_ARGUMENT, "registered for 'Times' returned NULL without an error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(own_classes_train),
                                       MODEL_TEST(own_steps),
                                       MODEL_TEST(threads_build_a_layer_once),
                                       MODEL_TEST(models_with_own_layers_are_cloned),
                                       MODEL_TEST(layers_that_cannot_be_cloned_are_named),
                                       MODEL_TEST(registered_layers_are_read_and_written),
                                       MODEL_TEST(names_of_keras_are_told_apart),
                                       MODEL_TEST(classes_of_old_files),
                                       MODEL_TEST(registrations_that_do_not_fit_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
