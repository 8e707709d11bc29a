// compile, fit, evaluate, predict: what is promised about epochs, steps, callbacks, seeds and failures.
#include "model/callbacks/callback_class.h"
#include "model/training/training.h"
#include "model_test.h"

static mu_model *small_model(int replicas, mu_layer *first)
{
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(replicas);
    MU_SCOPE(strategy) {
        model = mu_sequential(first, mu_dense(3));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1), .metrics = MU_METRICS(mu_accuracy()),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    return model;
}

static mu_dataset *small_data(void) { return rows_and_classes(20, 4, 3, 6); }

static mu_history *need(mu_history *history)
{
    if (!history)
        fail_msg("%s", mu_error_message());
    return history;
}

#define FIT(...) need(mu_fit(__VA_ARGS__, .verbose = MU_VERBOSE_SILENT))

// ---- History and steps --------------------------------------------------------------------------

static void history_holds_every_epoch(void **state)
{
    (void)state;
    mu_model *model = small_model(2, mu_dense(4));
    mu_history *history = FIT(model, small_data(), .epochs = 3, .validation_data = small_data());
    assert_int_equal(mu_history_epochs(history), 3);
    assert_int_equal(mu_history_samples(history), 60);
    assert_true(mu_history_seconds(history) > 0);
    static const char *const names[] = {"loss", "accuracy", "val_loss", "val_accuracy"};
    for (size_t i = 0; i < MU_COUNT(names); i++)
        for (int epoch = 0; epoch < 3; epoch++)
            assert_false(isnan(mu_history_at(history, names[i], epoch)));
    assert_true(mu_history_last(history, "loss") < mu_history_at(history, "loss", 0));
    assert_true(isnan(mu_history_at(history, "loss", 3)) && isnan(mu_history_at(history, "loss", -1)));
    assert_true(isnan(mu_history_last(history, "val_accurate")));
    mu_history *measured = need(mu_evaluate(model, small_data(), .verbose = MU_VERBOSE_SILENT));
    assert_number(mu_history_last(measured, "loss"), mu_history_last(history, "val_loss"), 1e-14);
    assert_int_equal(mu_function_trace_count(model->trainer->train_function), 1);
}

typedef struct seen {
    int begins, epochs_begun, batches, epochs_ended, ends;
    int64_t last_step;
    int stop_batch, stop_epoch, fail_batch; // -1: never
    double losses[100];
    mu_variable *watched;
} seen;

static mu_status on_begin(const mu_logs *logs, void *arg)
{
    ((seen *)arg)->begins++;
    return logs->model ? MU_OK : mu_fail(MU_INTERNAL, "no model");
}

static mu_status on_epoch_begin(const mu_logs *logs, void *arg)
{
    seen *s = arg;
    assert_int_equal(logs->epoch, s->epochs_begun++);
    return MU_OK;
}

static mu_status on_batch(const mu_logs *logs, void *arg)
{
    seen *s = arg;
    s->losses[s->batches] = logs->values[0];
    s->last_step = logs->step;
    assert_string_equal(logs->names[0], "loss");
    if (s->watched && mu_scalar(mu_variable_read(s->watched)) != s->batches + 1)
        return mu_fail(MU_INTERNAL, "step %d is under way already", s->batches + 2);
    if (s->batches == s->stop_batch)
        mu_stop_training(logs->model);
    if (s->batches++ == s->fail_batch)
        return mu_fail(MU_OUT_OF_RANGE, "enough");
    return MU_OK;
}

static mu_status on_epoch(const mu_logs *logs, void *arg)
{
    seen *s = arg;
    if (s->epochs_ended++ == s->stop_epoch)
        mu_stop_training(logs->model);
    return MU_OK;
}

static mu_status on_end(const mu_logs *logs, void *arg)
{
    (void)logs;
    ((seen *)arg)->ends++;
    return MU_OK;
}

static mu_callback *watch(seen *s)
{
    s->stop_batch = s->stop_batch ? s->stop_batch : -1;
    s->stop_epoch = s->stop_epoch ? s->stop_epoch : -1;
    s->fail_batch = s->fail_batch ? s->fail_batch : -1;
    return mu_callback_new(.on_train_begin = on_begin, .on_epoch_begin = on_epoch_begin, .on_batch_end = on_batch,
                           .on_epoch_end = on_epoch, .on_train_end = on_end, .arg = s);
}

static void callbacks_see_everything(void **state)
{
    (void)state;
    seen s = {0};
    mu_model *model = small_model(2, mu_dense(4));
    s.watched = mu_optimizer_iterations(model->trainer->optimizer);
    mu_history *history = FIT(model, small_data(), .epochs = 2, .callbacks = MU_CALLBACKS(watch(&s)));
    assert_int_equal(s.begins, 1);
    assert_int_equal(s.epochs_begun, 2);
    assert_int_equal(s.batches, 8);
    assert_int_equal(s.last_step, 4);
    assert_int_equal(s.epochs_ended, 2);
    assert_int_equal(s.ends, 1);
    assert_true(s.losses[7] == mu_history_last(history, "loss"));
}

static void training_stops_when_asked(void **state)
{
    (void)state;
    seen batch = {.stop_batch = 2}, epoch = {.stop_epoch = 1};
    FIT(small_model(2, mu_dense(4)), small_data(), .epochs = 5, .callbacks = MU_CALLBACKS(watch(&batch)));
    assert_int_equal(batch.batches, 3);
    assert_int_equal(batch.epochs_ended, 1);
    assert_int_equal(batch.ends, 1);
    mu_history *history =
        FIT(small_model(2, mu_dense(4)), small_data(), .epochs = 5, .callbacks = MU_CALLBACKS(watch(&epoch)));
    assert_int_equal(mu_history_epochs(history), 2);
}

static void failing_callbacks_end_the_training(void **state)
{
    (void)state;
    seen s = {.fail_batch = 2};
    mu_model *model = small_model(3, mu_dense(4));
    assert_null(
        mu_fit(model, small_data(), .epochs = 5, .callbacks = MU_CALLBACKS(watch(&s)), .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_OUT_OF_RANGE, "enough");
    assert_int_equal(s.batches, 3);
    assert_int_equal(s.ends, 0);
    FIT(model, small_data());
}

static void steps_and_epochs_are_limited(void **state)
{
    (void)state;
    seen s = {0}, later = {.epochs_begun = 2};
    mu_model *model = small_model(2, mu_dense(4));
    mu_dataset *endless = mu_dataset_repeat(small_data(), -1);
    mu_history *history = FIT(model, endless, .epochs = 2, .steps_per_epoch = 7, .callbacks = MU_CALLBACKS(watch(&s)),
                              .validation_data = endless, .validation_steps = 2);
    assert_int_equal(s.batches, 14);
    assert_int_equal(mu_history_samples(history), 20 * 3 + 12);
    FIT(model, small_data(), .epochs = 4, .initial_epoch = 2, .callbacks = MU_CALLBACKS(watch(&later)));
    assert_int_equal(later.batches, 8);
    assert_int_equal(mu_history_epochs(FIT(model, small_data(), .epochs = 2, .initial_epoch = 2)), 0);
    assert_int_equal(mu_history_samples(need(mu_evaluate(model, endless, .steps = 3, .verbose = MU_VERBOSE_SILENT))),
                     18);
    assert_int_equal(mu_tensor_dim(mu_predict(model, endless, .steps = 5), 0), 6 * 4 + 2);
}

// Of four batches: an epoch goes on behind the one before; data that end, within an epoch or with it, begin anew.
static void data_that_end_begin_anew(void **state)
{
    (void)state;
    static const struct {
        int64_t steps;
        int batches;
    } cases[] = {{3, 3 + 1 + 3}, {2, 2 + 2 + 2}, {4, 12}, {9, 12}};
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        seen s = {0};
        mu_history *history = FIT(small_model(2, mu_dense(4)), small_data(), .epochs = 3,
                                  .steps_per_epoch = cases[i].steps, .callbacks = MU_CALLBACKS(watch(&s)));
        assert_int_equal(mu_history_epochs(history), 3);
        assert_int_equal(s.batches, cases[i].batches);
        assert_int_equal(s.epochs_ended, 3);
    }
}

// Validation after the second and the fourth epoch only, and arguments that contradict each other.
static void validation_after_listed_epochs(void **state)
{
    (void)state;
    mu_model *model = small_model(1, mu_dense(4));
    mu_history *history = FIT(model, small_data(), .epochs = 4, .validation_data = small_data(),
                              .validation_epochs = (const int[]){4, 2, 9, 0});
    for (int epoch = 0; epoch < 4; epoch++)
        assert_int_equal(isnan(mu_history_at(history, "val_loss", epoch)), epoch % 2 == 0);
    assert_null(mu_fit(model, small_data(), .validation_epochs = (const int[]){1, 0}, .validation_freq = 2));
    expect_error(MU_INVALID_ARGUMENT, "validation_freq and validation_epochs are both given");
    assert_null(mu_fit(model, small_data(), .validation_epochs = (const int[]){1, -2, 0}));
    expect_error(MU_INVALID_ARGUMENT, "validation_epochs has -2");
}

// ---- Validation data before the first epoch -----------------------------------------------------

static mu_value *three_batches(void *count)
{
    const int n = (*(int *)count)++;
    const uint64_t seed = (uint64_t)n + 1;
    return n < 3 ? mu_list(numbers(2, (int64_t[]){4, 4}, seed), classes(4, 3, seed), MU_END) : NULL;
}

// A generator without .open could not give an element again that was taken only to look at it.
static void validation_data_keep_their_elements(void **state)
{
    (void)state;
    int given = 0, again = 0;
    mu_model *model = small_model(1, mu_dense(4));
    mu_history *history = FIT(model, small_data(), .validation_data = mu_dataset_generator(three_batches, &given));
    mu_dataset *whole = mu_dataset_generator(three_batches, &again);
    mu_history *all = need(mu_evaluate(model, whole, .verbose = MU_VERBOSE_SILENT));
    assert_number(mu_history_last(history, "val_loss"), mu_history_last(all, "loss"), 1e-14);
}

static mu_value *unchanged(mu_value *element, void *arg)
{
    (void)arg;
    return element;
}

static mu_value *needs_replica(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    mu_tensor *id = mu_replica_id();
    return id ? mu_of(mu_add(mu_at(inputs, 0), mu_multiply(mu_cast(id, MU_F64), mu_constant(MU_F64, 0)))) : NULL;
}

// Such a layer cannot be traced outside of replicas, which says nothing about the data.
static void untraceable_models_are_not_tried(void **state)
{
    (void)state;
    mu_model *model = small_model(2, mu_layer_new("own", .call = needs_replica));
    mu_dataset *behind = mu_dataset_map(small_data(), unchanged, NULL);
    FIT(model, behind);
    FIT(model, behind, .validation_data = rows_and_classes(8, 4, 3, 4));
}

static mu_dataset *words(bool padded)
{
    mu_value *rows = mu_list(mu_zeros(MU_I64, 2, (int64_t[]){8, 5}), classes(8, 3, 5), MU_END);
    mu_dataset *data = mu_dataset_from_tensor_slices(rows);
    if (!padded)
        return mu_dataset_batch(data, 4);
    return mu_dataset_map(mu_dataset_padded_batch(data, 4), .function = mu_function_new(unchanged, NULL));
}

// The steps of such data are known only with an element, and Dense needs them.
static void validation_data_of_unknown_axes_are_not_tried(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_embedding(9, 2), mu_flatten(), mu_dense(3));
    mu_compile(model, .optimizer = "sgd", .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    FIT(model, words(false), .validation_data = words(true));
}

static void early_stopping_waits(void **state)
{
    (void)state;
    mu_model *model = small_model(1, mu_dense(4));
    mu_variable_assign(mu_optimizer_learning_rate(model->trainer->optimizer), mu_constant(MU_F64, 0));
    mu_callback *patient = mu_early_stopping(.monitor = "loss", .patience = 3);
    assert_int_equal(mu_history_epochs(FIT(model, small_data(), .epochs = 9, .callbacks = MU_CALLBACKS(patient))), 4);
    assert_int_equal(mu_history_epochs(FIT(model, small_data(), .epochs = 9, .callbacks = MU_CALLBACKS(patient))), 4);
    mu_callback *hasty = mu_early_stopping(.monitor = "accuracy");
    assert_int_equal(mu_history_epochs(FIT(model, small_data(), .epochs = 9, .callbacks = MU_CALLBACKS(hasty))), 2);
    assert_null(
        mu_fit(model, small_data(), .callbacks = MU_CALLBACKS(mu_early_stopping()), .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_INVALID_ARGUMENT, "'val_loss', which is not logged");
}

// ---- Seeds --------------------------------------------------------------------------------------

static double *fit_with_seed(uint64_t seed, int replicas, int64_t *n)
{
    mu_pool *pool = mu_pool_open();
    mu_set_seed(seed);
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(replicas);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(16, .activation = "relu"), mu_dropout(.5), mu_dense(3));
        mu_compile(model, .optimizer = mu_adam(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    mu_value *all = mu_list(numbers(2, (int64_t[]){50, 4}, 3), classes(50, 3, 5), MU_END);
    mu_dataset *data = mu_dataset_batch(mu_dataset_shuffle(mu_dataset_from_tensor_slices(all), 20), 8);
    FIT(model, data, .epochs = 3);
    double *weights = weights_of(model, n);
    mu_pool_close(pool);
    return weights;
}

static void seeds_fix_every_bit(void **state)
{
    (void)state;
    for (int replicas = 0; replicas <= 4; replicas++) {
        int64_t n;
        double *first = fit_with_seed(5, replicas, &n), *second = fit_with_seed(5, replicas, &n);
        double *other = fit_with_seed(6, replicas, &n);
        assert_memory_equal(first, second, sizeof *first * (size_t)n);
        assert_memory_not_equal(first, other, sizeof *first * (size_t)n);
        free(first);
        free(second);
        free(other);
    }
}

// ---- Failures in the middle ---------------------------------------------------------------------

// One replica's part has a label that is not a class: the others are released at once, that step changes no weight, and
// the model can be trained further.
static void a_bad_batch_is_survived(void **state)
{
    (void)state;
    for (int turn = 0; turn < 40; turn++) {
        mu_pool *pool = mu_pool_open();
        mu_model *model = small_model(1 + turn % 4, mu_dropout(.1));
        int64_t labels[20] = {0}, n;
        labels[6 + turn % 6] = 99;
        mu_tensor *y = mu_tensor_new(MU_I64, 1, (int64_t[]){20}, labels);
        mu_value *all = mu_list(numbers(2, (int64_t[]){20, 4}, 3), y, MU_END);
        mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(all), 6);
        assert_null(mu_fit(model, data, .verbose = MU_VERBOSE_SILENT));
        expect_error(MU_INVALID_ARGUMENT, "99");
        FIT(model, small_data());
        free(weights_of(model, &n));
        mu_pool_close(pool);
    }
}

static void empty_data_is_an_error(void **state)
{
    (void)state;
    mu_model *model = small_model(2, mu_dense(4));
    mu_dataset *none = mu_dataset_take(small_data(), 0);
    assert_null(mu_fit(model, none));
    expect_error(MU_INVALID_ARGUMENT, "no batch");
    assert_null(mu_evaluate(model, none, .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_INVALID_ARGUMENT, "no batch");
    assert_null(mu_predict(model, none));
    expect_error(MU_INVALID_ARGUMENT, "no batch");
    assert_null(mu_fit(model, mu_dataset_range(0, 4, 1), .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_INVALID_ARGUMENT, "batch");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(history_holds_every_epoch),
        MODEL_TEST(callbacks_see_everything),
        MODEL_TEST(training_stops_when_asked),
        MODEL_TEST(failing_callbacks_end_the_training),
        MODEL_TEST(steps_and_epochs_are_limited),
        MODEL_TEST(data_that_end_begin_anew),
        MODEL_TEST(validation_after_listed_epochs),
        MODEL_TEST(validation_data_keep_their_elements),
        MODEL_TEST(untraceable_models_are_not_tried),
        MODEL_TEST(validation_data_of_unknown_axes_are_not_tried),
        MODEL_TEST(early_stopping_waits),
        MODEL_TEST(seeds_fix_every_bit),
        MODEL_TEST(a_bad_batch_is_survived),
        MODEL_TEST(empty_data_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
