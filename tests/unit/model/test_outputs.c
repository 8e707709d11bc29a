// Several outputs by name on one replica and on several, traced and eager; metrics of layers; learning rates of layers.
// tests/conformance/fitting.py compares the values with Keras's.
#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"
#include "model_test.h"

#include <muster/recurrent.h>

// ---- Outputs ------------------------------------------------------------------------------------

static mu_model *two_outputs(bool keyed)
{
    mu_tensor *left = mu_input({3}, .name = "left"), *right = mu_input({2}, .name = "right");
    mu_tensor *h = mu_call(mu_concatenate(), .inputs = mu_list(left, right, MU_END));
    h = mu_call(mu_dense(4, .activation = "tanh", .kernel_initializer = "ones"), h);
    mu_tensor *a = mu_call(mu_dense(1, .name = "a", .kernel_initializer = "ones"), h);
    mu_tensor *b = mu_call(mu_dense(3, .name = "b", .kernel_initializer = "ones"), h);
    return mu_model_new(.inputs = mu_list(left, right, MU_END),
                        .outputs = keyed ? mu_map("kind", b, "number", a, MU_END) : mu_list(a, b, MU_END));
}

static mu_value *inputs(void)
{
    return mu_map("right", numbers(2, (int64_t[]){13, 2}, 2), "unused", numbers(1, (int64_t[]){13}, 6), "left",
                  numbers(2, (int64_t[]){13, 3}, 1), MU_END);
}

static mu_value *labels(const char *number, const char *kind)
{
    return mu_map(kind, classes(13, 3, 4), number, numbers(2, (int64_t[]){13, 1}, 3), MU_END);
}

static mu_status compile_both(mu_model *model, bool keyed, bool eagerly)
{
    mu_loss *kind = mu_sparse_categorical_crossentropy_loss(.from_logits = true);
    mu_items *loss = keyed ? MU_BY_NAME("number", "mse", "kind", kind) : MU_BY_NAME("a", "mse", "b", kind);
    mu_items *metrics = keyed ? MU_BY_NAME("kind", MU_METRICS("acc", mu_accuracy()), "number", "mae")
                              : MU_METRICS("mae", MU_METRICS("acc", mu_accuracy()));
    return mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1), .loss = loss, .metrics = metrics,
                      .loss_weights = (double[]){.5, 2}, .n_loss_weights = 2,
                      .weighted_metrics = keyed ? MU_BY_NAME("number", "mae") : MU_BY_NAME("a", "mae"),
                      .run_eagerly = eagerly);
}

static const char *const logged[] = {"loss", "%s_loss", "%s_mae", "%s_weighted_mae"};

// The values logged for the number, and the prediction of both.
static void train(int kind, bool keyed, bool eagerly, double out[7])
{
    const char *number = keyed ? "number" : "a", *other = keyed ? "kind" : "b";
    mu_model *model = NULL;
    MU_SCOPE(strategy_of(kind)) {
        model = two_outputs(keyed);
        if (compile_both(model, keyed, eagerly) != MU_OK)
            fail_msg("%s", mu_error_message());
    }
    mu_value *weights = mu_map(number, numbers(1, (int64_t[]){13}, 8), MU_END);
    mu_history *history = mu_fit(model, inputs(), labels(number, other), .sample_weight = weights, .epochs = 3,
                                 .batch_size = 5, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_history_names(history), 7);
    for (size_t i = 0; i < MU_COUNT(logged); i++) {
        char name[32];
        snprintf(name, sizeof name, logged[i], number);
        out[i] = mu_history_last(history, name);
        assert_false(isnan(out[i]));
    }
    mu_value *seen = mu_predict_values(model, inputs(), .batch_size = 4);
    assert_int_equal(mu_value_kind_of(seen), keyed ? MU_VALUE_MAP : MU_VALUE_LIST);
    out[4] = mu_scalar(mu_reduce_sum(mu_at(seen, 0), MU_ALL_AXES));
    out[5] = mu_scalar(mu_reduce_sum(mu_at(seen, 1), MU_ALL_AXES));
    out[6] = mu_scalar(mu_reduce_sum(mu_at(mu_predict_on_batch(model, inputs()), keyed), MU_ALL_AXES));
    assert_number(out[6], out[keyed ? 5 : 4], 1e-12);
}

static void outputs_by_name_are_alike_everywhere(void **state)
{
    (void)state;
    for (int keyed = 0; keyed < 2; keyed++) {
        double wanted[7], seen[7];
        train(0, keyed, false, wanted);
        const struct {
            int kind;
            bool eagerly;
        } others[] = {{3, false}, {2, true}, {SERVED + 2, false}};
        for (size_t i = 0; i < MU_COUNT(others); i++) {
            mu_pool *pool = mu_pool_open();
            train(others[i].kind, keyed, others[i].eagerly, seen);
            assert_near(seen, wanted, 7, 1e-12);
            mu_pool_close(pool);
        }
    }
}

static void names_are_those_of_layers_and_keys(void **state)
{
    (void)state;
    mu_model *listed = two_outputs(false), *keyed = two_outputs(true);
    assert_string_equal(mu_model_input_name(listed, 1), "right");
    assert_string_equal(mu_model_output_name(listed, 1), "b");
    assert_string_equal(mu_model_output_name(keyed, 0), "kind");
    assert_null(mu_model_output_name(keyed, 2));
    assert_null(mu_model_output_name(mu_sequential(mu_dense(1)), 0));
    mu_tensor *x = mu_input({2}), *y = mu_call(mu_dense(2), x);
    mu_model *twice = mu_model_new(x, .outputs = mu_list(y, y, MU_END));
    assert_string_equal(mu_model_output_name(twice, 1), "dense_1");
    assert_int_equal(mu_error_code(), MU_OK);
}

// Masks of inputs by name reach the inputs that they belong to.
static void masks_go_by_name(void **state)
{
    (void)state;
    mu_tensor *a = mu_input({4, 2}, .name = "a"), *b = mu_input({4, 2}, .name = "b");
    mu_tensor *last = mu_call(mu_lstm(2), b);
    mu_model *model =
        mu_model_new(.inputs = mu_list(a, b, MU_END), .outputs = mu_list(mu_call(mu_flatten(), a), last, MU_END));
    const int64_t dims[] = {1, 4, 2}, steps[] = {1, 4};
    mu_tensor *xa = numbers(3, dims, 1), *xb = numbers(3, dims, 2);
    mu_tensor *mask = mu_tensor_new(MU_BOOL, 2, steps, (bool[]){true, true, false, false});
    mu_value *none = mu_list_of(0, NULL);
    mu_value *by_name = mu_call_values(model, .inputs = mu_map("b", xb, "a", xa, MU_END),
                                       .masks = mu_map("b", mask, "a", none, MU_END));
    mu_value *in_order = mu_call_values(model, .inputs = mu_list(xa, xb, MU_END), .masks = mu_list(none, mask, MU_END));
    mu_value *without = mu_call_values(model, .inputs = mu_list(xa, xb, MU_END));
    if (!by_name || !in_order)
        fail_msg("%s", mu_error_message());
    assert_near(doubles(mu_at(by_name, 1)), doubles(mu_at(in_order, 1)), 2, 0);
    assert_true(fabs(doubles(mu_at(by_name, 1))[0] - doubles(mu_at(without, 1))[0]) > 1e-6);
}

// A single loss applies to every output, with one weight for all or one for each.
static void one_loss_has_one_weight_or_one_for_each_output(void **state)
{
    (void)state;
    const double weights[] = {.5, 2};
    for (int n = 1; n <= 2; n++) {
        mu_model *model = two_outputs(false);
        assert_int_equal(mu_compile(model, .loss = "mse", .loss_weights = weights, .n_loss_weights = n), MU_OK);
        mu_value *y = mu_list(numbers(2, (int64_t[]){13, 1}, 3), numbers(2, (int64_t[]){13, 3}, 4), MU_END);
        mu_history *history = mu_test_on_batch(model, inputs(), y);
        if (!history)
            fail_msg("%s", mu_error_message());
        const double a = mu_history_last(history, "a_loss"), b = mu_history_last(history, "b_loss");
        assert_number(mu_history_last(history, "loss"), .5 * a + weights[n - 1] * b, 1e-13);
    }
}

// An array is read as far as its length says, which must equal the number of outputs.
static void arrays_have_lengths(void **state)
{
    (void)state;
    mu_model *model = two_outputs(false);
    const double weights[] = {.5, 2, 1};
    const int outputs[] = {0, 1, 1};
    mu_items *losses = MU_LOSSES("mse", "mae");
    mu_compile(model, .loss = losses, .loss_weights = weights);
    expect_error(MU_INVALID_ARGUMENT, "mu_compile: .loss_weights has 0 elements by its length .n_loss_weights, which "
                                      "is not given or 0; give 2, one for each loss");
    mu_compile(model, .loss = losses, .loss_weights = weights, .n_loss_weights = 1);
    expect_error(MU_INVALID_ARGUMENT, "has 1 elements by its length .n_loss_weights; give 2, one for each loss");
    mu_compile(model, .loss = MU_BY_NAME("a", "mse", "b", "mae"), .loss_weights = weights, .n_loss_weights = 3);
    expect_error(MU_INVALID_ARGUMENT, "has 3 elements by its length .n_loss_weights; give 2, one for each loss");
    mu_compile(model, .loss = "mse", .loss_weights = weights, .n_loss_weights = 3);
    expect_error(MU_INVALID_ARGUMENT, "has 3 elements by its length .n_loss_weights; give 2, one for each loss");
    mu_compile(model, .loss = losses, .n_loss_weights = 2);
    expect_error(MU_INVALID_ARGUMENT, ".n_loss_weights is 2 and .loss_weights is NULL; give both or neither");
    mu_compile(model, .loss = losses, .metrics = MU_METRICS("mse", "mae"), .metric_outputs = outputs);
    expect_error(MU_INVALID_ARGUMENT, ".metric_outputs has 0 elements by its length .n_metric_outputs");
    mu_compile(model, .loss = losses, .weighted_metrics = MU_METRICS("mse", "mae"), .weighted_metric_outputs = outputs,
               .n_weighted_metric_outputs = 3);
    expect_error(MU_INVALID_ARGUMENT, ".weighted_metric_outputs has 3 elements by its length "
                                      ".n_weighted_metric_outputs; give 2, one for each metric");
    mu_compile(model, .loss = losses, .metrics = MU_BY_NAME("b", "mae"), .metric_outputs = outputs,
               .n_metric_outputs = 1);
    expect_error(MU_INVALID_ARGUMENT, "the metrics are given by name or in a list for each output, which says what "
                                      "they compare; leave .metric_outputs out");
}

static void wrong_names_are_refused(void **state)
{
    (void)state;
    mu_model *model = two_outputs(false);
    mu_compile(model, .loss = MU_ITEMS(NULL, NULL));
    expect_error(MU_INVALID_ARGUMENT, "give a loss");
    mu_compile(model, .loss = "mse", .metrics = MU_METRICS("mae", "mae", "mae"));
    expect_error(MU_INVALID_ARGUMENT, "3 metrics for a model with the outputs 'a', 'b'");
    mu_compile(model, .loss = "mse", .metrics = "mae", .metric_outputs = (int[]){2}, .n_metric_outputs = 1);
    expect_error(MU_INVALID_ARGUMENT, "output 2 of a model that has 2");
    mu_compile(mu_sequential(mu_dense(1)), .loss = "mse", .metrics = MU_BY_NAME("a", "mae"));
    expect_error(MU_INVALID_ARGUMENT, "give the losses by name too");
    assert_null(MU_BY_NAME("a"));
    expect_error(MU_INVALID_ARGUMENT, "the last name has no object");
    assert_null(MU_BY_NAME("a", "mse", "a", "mae"));
    expect_error(MU_INVALID_ARGUMENT, "'a' is given twice");
    mu_compile(model, .optimizer = "sgd", .loss = MU_BY_NAME("a", "mse", "b", NULL), .metrics = MU_BY_NAME("b", "mae"));
    mu_fit(model, inputs(), mu_map("a", numbers(2, (int64_t[]){13, 1}, 3), MU_END), .verbose = MU_VERBOSE_SILENT);
    expect_error(MU_INVALID_ARGUMENT, "no labels for the output 'b'");
    mu_fit(model, mu_dataset_batch(mu_dataset_from_tensor_slices(inputs()), 4), .verbose = MU_VERBOSE_SILENT);
    expect_error(MU_INVALID_ARGUMENT, "is a map");
    assert_null(mu_predict(model, inputs()));
    expect_error(MU_INVALID_ARGUMENT, "mu_predict_values");
}

// ---- Generators ---------------------------------------------------------------------------------

typedef struct batches {
    int64_t given, n; // of an iteration; n -1: without end
} batches;

static void *open_batches(void *arg)
{
    ((batches *)arg)->given = 0;
    return arg;
}

static mu_value *next_batch(void *state)
{
    batches *b = state;
    return b->given++ == b->n ? NULL : mu_list(inputs(), labels("a", "b"), MU_END);
}

static void generators_feed_fit(void **state)
{
    (void)state;
    static const struct {
        int64_t n, cardinality, steps;
    } cases[] = {{3, 3, 0}, {3, MU_UNKNOWN_CARDINALITY, 0}, {-1, MU_INFINITE, 3}, {-1, MU_UNKNOWN_CARDINALITY, 3}};
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        batches b = {.n = cases[i].n};
        mu_model *model = two_outputs(false);
        assert_int_equal(compile_both(model, false, false), MU_OK);
        mu_dataset *data =
            mu_dataset_generator(next_batch, &b, .open = open_batches, .cardinality = cases[i].cardinality);
        mu_history *history = cases[i].steps ? mu_fit(model, data, .epochs = 2, .steps_per_epoch = cases[i].steps,
                                                      .verbose = MU_VERBOSE_SILENT)
                                             : mu_fit(model, data, .epochs = 2, .verbose = MU_VERBOSE_SILENT);
        if (!history)
            fail_msg("%s", mu_error_message());
        assert_int_equal(mu_history_samples(history), 2 * 3 * 13);
    }
}

// ---- Metrics of layers --------------------------------------------------------------------------

static mu_status watched_build(mu_layer *layer, int n, const mu_shape *shapes, void *arg)
{
    (void)n, (void)shapes;
    *(mu_metric **)arg = mu_mean_metric("size");
    return mu_layer_add_metric(layer, *(mu_metric **)arg);
}

static mu_value *watched_call(mu_layer *layer, mu_value *x, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context;
    mu_tensor *size = mu_reduce_mean(mu_abs(mu_at(x, 0)), 1);
    return mu_metric_update(*(mu_metric **)arg, size, NULL) == MU_OK ? x : NULL;
}

static void layers_have_metrics(void **state)
{
    (void)state;
    mu_tensor *x = numbers(2, (int64_t[]){10, 3}, 1), *y = numbers(2, (int64_t[]){10, 1}, 2);
    const double wanted = mu_scalar(mu_reduce_mean(mu_abs(x), MU_ALL_AXES));
    const int kinds[] = {0, 3, SERVED + 1};
    for (size_t i = 0; i < MU_COUNT(kinds); i++) {
        mu_metric *size = NULL;
        mu_model *model = NULL;
        MU_SCOPE(strategy_of(kinds[i])) {
            mu_layer *watched = mu_layer_new("watched", .build = watched_build, .call = watched_call, .arg = &size);
            model = mu_sequential(watched, mu_dense(1));
            mu_compile(model, .optimizer = "sgd", .loss = "mse", .metrics = "mae");
        }
        if (kinds[i] > SERVED) {
            assert_null(mu_fit(model, x, y, .verbose = MU_VERBOSE_SILENT));
            expect_error(MU_FAILED_PRECONDITION, "mu_model_build");
            continue;
        }
        mu_history *history = mu_fit(model, x, y, .epochs = 2, .batch_size = 4,
                                     .validation_data = mu_list(x, y, MU_END), .verbose = MU_VERBOSE_SILENT);
        if (!history)
            fail_msg("%s", mu_error_message());
        assert_int_equal(mu_history_names(history), 6);
        assert_number(mu_history_last(history, "size"), wanted, 1e-12);
        assert_number(mu_history_last(history, "val_size"), wanted, 1e-12);
    }
}

// ---- Learning rates of layers -------------------------------------------------------------------

static const char *const optimizers[] = {"sgd",   "adam", "adamw", "rmsprop", "adagrad",   "adadelta", "adamax",
                                         "nadam", "ftrl", "lion",  "lamb",    "adafactor", "muon"};

// The weights after a few steps with this rate, and factors for the model and its second layer (negative: none).
static double *trained(const char *optimizer, double rate, double of_model, double of_second, int64_t *n)
{
    mu_model *model =
        mu_sequential(mu_dense(2, .kernel_initializer = "ones"), mu_dense(1, .kernel_initializer = "ones"));
    mu_optimizer *by = mu_optimizer_named(optimizer);
    mu_variable_assign(mu_optimizer_learning_rate(by), mu_constant(MU_F64, rate));
    if (of_model >= 0)
        mu_layer_set_learning_rate_multiplier(model, of_model);
    if (of_second >= 0)
        mu_layer_set_learning_rate_multiplier(mu_model_layer(model, "dense_1"), of_second);
    mu_compile(model, .optimizer = by, .loss = "mse");
    mu_tensor *x = numbers(2, (int64_t[]){8, 3}, 1), *y = numbers(2, (int64_t[]){8, 1}, 2);
    assert_non_null(
        mu_fit(model, x, y, .epochs = 3, .batch_size = 4, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT));
    return weights_of(model, n);
}

static void a_factor_is_another_rate(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(optimizers); i++) {
        int64_t n;
        double *half = trained(optimizers[i], .005, -1, -1, &n), *halved = trained(optimizers[i], .01, .5, -1, &n);
        assert_near(halved, half, n, 1e-14);
        double *mixed = trained(optimizers[i], .01, .5, 2, &n);
        assert_true(mixed[8] != halved[8]);
        free(half);
        free(halved);
        free(mixed);
    }
    mu_layer_set_learning_rate_multiplier(mu_dense(1), 0);
    expect_error(MU_INVALID_ARGUMENT, "the multiplier is 0; it must be above 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(outputs_by_name_are_alike_everywhere),
        MODEL_TEST(names_are_those_of_layers_and_keys),
        MODEL_TEST(masks_go_by_name),
        MODEL_TEST(one_loss_has_one_weight_or_one_for_each_output),
        MODEL_TEST(arrays_have_lengths),
        MODEL_TEST(wrong_names_are_refused),
        MODEL_TEST(generators_feed_fit),
        MODEL_TEST(layers_have_metrics),
        MODEL_TEST(a_factor_is_another_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
