// Built-in callbacks: their files and file names, which value is better, what is restored, what is refused.
// tests/conformance/callbacks.py compares their behaviour with Keras's.
#include "../caught_output.h"
#include "../scratch.h"
#include "model/callbacks/callback_class.h"
#include "model/training/training.h"
#include "model_test.h"

#include <math.h>
#include <muster/saved_model.h>

// Validates after every `freq` epochs.
static mu_history *train_every(mu_model *model, int epochs, int freq, mu_any_callbacks callback)
{
    mu_value *data = mu_list(numbers(2, (int64_t[]){12, 3}, 1), numbers(2, (int64_t[]){12, 2}, 2), MU_END);
    return mu_fit(model, data, .epochs = epochs, .batch_size = 4, .validation_data = data, .no_shuffle = true,
                  .validation_freq = freq, .callbacks = callback, .verbose = MU_VERBOSE_SILENT);
}

static mu_history *train(mu_model *model, int epochs, mu_any_callbacks callback)
{
    return train_every(model, epochs, 1, callback);
}

static mu_model *regression(int replicas, double rate)
{
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(replicas);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(2));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = rate), .loss = "mse", .metrics = "mae");
    }
    return model;
}

static void need(const void *pointer)
{
    if (!pointer)
        fail_msg("%s", mu_error_message());
}

static bool is_file(const char *path) { return access(path, F_OK) == 0; }

static mu_status count(const mu_logs *logs, void *arg)
{
    (void)logs;
    ++*(int *)arg;
    return MU_OK;
}

static mu_value *own_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    return inputs;
}

static void checkpoints_have_values_in_their_names(void **state)
{
    (void)state;
    need(train(regression(2, .1), 2, mu_model_checkpoint("new/w-{epoch:03d}-{{x}}.safetensors")));
    assert_true(is_file("new/w-001-{x}.safetensors") && is_file("new/w-002-{x}.safetensors"));
    need(train(regression(2, .1), 1, mu_model_checkpoint("new/w-{epoch:#06b}-{{y}}.safetensors")));
    assert_true(is_file("new/w-0b0001-{y}.safetensors"));
    need(train(regression(2, .1), 2, mu_model_checkpoint("new/w-{epoch:*^5}-{{y}}.safetensors")));
    assert_true(is_file("new/w-**1**-{y}.safetensors") && is_file("new/w-**2**-{y}.safetensors"));
    mu_history *history = train(regression(2, 0), 1, mu_model_checkpoint("{epoch}-{batch}-{loss:.0f}", .save_freq = 2));
    char name[32];
    need(history);
    snprintf(name, sizeof name, "1-2-%.0f", mu_history_last(history, "loss"));
    assert_true(is_file(name));
    assert_null(train(regression(2, .1), 1, mu_model_checkpoint("{accuracy}.safetensors")));
    expect_error(MU_INVALID_ARGUMENT, "has {accuracy}, which is not logged; expected 'epoch', 'batch', or one of");
    static const char *const wrong[] = {
        "{epoch:c}.safetensors", "{loss:1.2.3f}", "{val_loss:.3d}", "{batch}", "{loss:,n}", "{loss:.2s}", "{loss:a}"};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        int steps = 0;
        mu_callback *counter = mu_callback_new(.on_batch_end = count, .arg = &steps);
        assert_null(train(regression(2, .1), 1, MU_CALLBACKS(counter, mu_model_checkpoint(wrong[i]))));
        expect_error(MU_INVALID_ARGUMENT, "; expected one of epoch, batch");
        assert_int_equal(steps, 0);
    }
}

// A number, whether it is an int, and what Python 3.11 prints for it; NULL: format() refuses the specification.
typedef struct number_row {
    double value;
    bool whole;
    const char *spec, *text;
} number_row;

static void assert_numbers(size_t n, const number_row *rows)
{
    for (size_t i = 0; i < n; i++) {
        char text[64] = "";
        const bool is = mu__number_format(rows[i].value, rows[i].whole, rows[i].spec, sizeof text, text);
        assert_int_equal(is, rows[i].text != NULL);
        assert_true(!is || strcmp(text, rows[i].text) == 0);
    }
}

static const number_row python_numbers[] = {
    {20, false, "", "20.0"},
    {1e16, false, "", "1e+16"},
    {1e15, false, "", "1000000000000000.0"},
    {9007199254740994, false, "", "9007199254740994.0"},
    {1e-4, false, "", "0.0001"},
    {1e-5, false, "", "1e-05"},
    {1.5e-7, false, "", "1.5e-07"},
    {-2.5, false, "", "-2.5"},
    {-0.0, false, "", "-0.0"},
    {-NAN, false, "", "nan"},
    {-INFINITY, false, "", "-inf"},
    {3, true, "", "3"},
    {3, true, "02", "03"},
    {3, true, "5d", "    3"},
    {3, true, "+04d", "+003"},
    {3, true, ".1f", "3.0"},
    {3, true, ".2", NULL},
    {.5, false, ".3", "0.5"},
    {123.456, false, ".3", "1.23e+02"},
    {9.996, false, ".3", "10.0"},
    {3.7, false, ".1", "4e+00"},
    {1.234e-5, false, ".2", "1.2e-05"},
    {100, false, ".3", "1e+02"},
    {.1, false, ".20", "0.10000000000000000555"},
    {.91234, false, ".1%", "91.2%"},
    {1.5, false, "8.2e", "1.50e+00"},
    {-1.5, false, "08.2f", "-0001.50"},
    {1.5, false, "+.1f", "+1.5"},
    {.1, false, "6", "   0.1"},
    {2.5, false, ".3G", "2.5"},
    {1.5, false, "d", NULL},
    {1.5, false, "x", NULL},
    {1.5, false, ".f", NULL},
    {1.5, false, "99999999999.1f", NULL},
    {7, true, ">4d", "   7"},
    {7, true, "<4d", "7   "},
    {7, true, "*^5", "**7**"},
    {7, true, "*^6d", "**7***"},
    {-7, true, "x=5d", "-xxx7"},
    {7, true, "=4", "   7"},
    {7, true, "<05d", "70000"},
    {7, true, "*<05d", "7****"},
    {7, true, "^04", "0700"},
    {7, true, ">>4", ">>>7"},
    {7, true, "=+06d", "+00007"},
    {7, true, "<-04d", "7000"},
    {7, true, "·^5d", "··7··"},
    {7, true, "*<", "7"},
    {7, true, " <04d", "7   "},
    {2.5, false, "<8.3f", "2.500   "},
    {-2.5, false, "^+9.2f", "  -2.50  "},
    {-2.5, false, "_=10.1f", "-______2.5"},
    {2.5, false, "+<6.1f", "2.5+++"},
    {2.5, false, "<+6.1f", "+2.5  "},
    {NAN, false, "*>6.1f", "***nan"},
    {1e16, false, "<8", "1e+16   "},
    {7, true, "**^5", NULL},
    {7, true, "<<<", NULL},
    {2.5, false, "é", NULL},
    {7, true, "{<4d", NULL},
};

static void numbers_are_written_as_in_python(void **state)
{
    (void)state;
    assert_numbers(MU_COUNT(python_numbers), python_numbers);
}

static void flags_of_numbers_are_as_in_python(void **state)
{
    (void)state;
    static const number_row rows[] = {
        {7, true, "#x", "0x7"},
        {255, true, "#x", "0xff"},
        {255, true, "#010X", "0X000000FF"},
        {255, true, "#b", "0b11111111"},
        {8, true, "#o", "0o10"},
        {255, true, "#012_x", "0x0_0000_00ff"},
        {1234567, true, ",", "1,234,567"},
        {1234567, true, "_d", "1_234_567"},
        {1234567, true, "_b", "1_0010_1101_0110_1000_0111"},
        {1234, true, "08,", "0,001,234"},
        {1234, true, "010,", "00,001,234"},
        {-1234, true, "*=12,", "-******1,234"},
        {1234, true, ",n", NULL},
        {255, true, ",x", NULL},
        {255, true, "n", "255"},
        {5, true, "zd", NULL},
        {5, true, "z.1f", "5.0"},
        {1234567.891, false, ",.2f", "1,234,567.89"},
        {1234567.891, false, "_", "1_234_567.891"},
        {1234567.891, false, "020,.1f", "00,000,001,234,567.9"},
        {12345.0, false, "07_.0f", "012_345"},
        {1234.5, false, ",_", NULL},
        {1234.5, false, ",,", NULL},
        {1e16, false, "#", "1.e+16"},
        {1e16, false, ",", "1e+16"},
        {2.0, false, "#.0f", "2."},
        {2.0, false, "#.0e", "2.e+00"},
        {2.0, false, "#g", "2.00000"},
        {2.0, false, "#.3", "2.00"},
        {10000000000.0, false, "#.3", "1.00e+10"},
        {10000000000.0, false, "#.1", "1.e+10"},
        {0.5, false, "#.0%", "50.%"},
        {1234.5, false, "n", "1234.5"},
        {100000.0, false, "_g", "100_000"},
        {-0.001, false, "z.1f", "0.0"},
        {-0.001, false, ".1f", "-0.0"},
        {-0.0, false, "z", "0.0"},
        {-0.1, false, "z.1e", "-1.0e-01"},
        {INFINITY, false, "010,", "0000000inf"},
        {-INFINITY, false, "z,", "-inf"},
        {1234.5, false, "#,%", "123,450.000000%"},
        {1e22, false, ",.0f", "10,000,000,000,000,000,000,000"},
    };
    assert_numbers(MU_COUNT(rows), rows);
}

// Three steps in each call of fit: the fifth and the tenth are in the second and the fourth, as in Keras.
static void steps_are_counted_over_calls(void **state)
{
    (void)state;
    mu_model *model = regression(1, .1);
    mu_callback *writer = mu_model_checkpoint("five/{batch}", .save_freq = 5);
    static const char *const files[] = {NULL, "five/2", NULL, "five/1"};
    for (size_t i = 0; i < MU_COUNT(files); i++) {
        need(train(model, 1, writer));
        assert_true(!files[i] || is_file(files[i]));
    }
    assert_false(is_file("five/3"));
}

// With .steps_per_execution the hook is called once for several steps; a restored run begins within an epoch.
static void steps_are_counted_in_loops(void **state)
{
    (void)state;
    mu_counted_steps counted = {.last = 2};
    static const int64_t seen[] = {4, 6, 7};
    static const bool due[] = {false, true, false};
    for (size_t i = 0; i < MU_COUNT(seen); i++)
        assert_int_equal(mu__steps_are_due(&counted, &(mu_logs){.step = seen[i]}, 3), due[i]);
}

static void reduce_to_least(void *arg)
{
    mu_model *model = arg;
    need(train(model, 4, mu_reduce_lr_on_plateau(.patience = 1, .min_delta = 1e9, .min_lr = .1, .verbose = true)));
}

// 0.1 in float32 is above 0.1: the rate is .min_lr already, and nothing is reduced or said.
static void a_rate_of_float32_is_the_least(void **state)
{
    (void)state;
    char said[1000];
    assert_int_equal(mu_set_floatx(MU_F32), MU_OK);
    mu_model *model = regression(1, .1);
    catch_output(STDOUT_FILENO, reduce_to_least, model, said, sizeof said);
    assert_string_equal(said, "");
    assert_int_equal(mu_set_floatx(MU_F64), MU_OK);
}

// A path with a suffix of whole models: training continues from the file, and a model that the file could not hold is
// refused before the first step.
static void checkpoints_hold_whole_models(void **state)
{
    (void)state;
    mu_model *model = regression(1, .1);
    need(train(model, 2, mu_model_checkpoint("whole-{epoch}.keras")));
    mu_model *first = mu_load_model("whole-1.keras"), *second = mu_load_model("whole-2.keras");
    need(first), need(second);
    assert_same_weights(second, model);
    need(train(first, 1, NULL));
    assert_same_weights(first, model);
    int steps = 0;
    mu_callback *counter = mu_callback_new(.on_batch_end = count, .arg = &steps);
    mu_model *own = mu_sequential(mu_dense(2), mu_layer_new("mine", .call = own_call));
    mu_compile(own, .optimizer = "sgd", .loss = "mse");
    assert_null(train(own, 1, MU_CALLBACKS(counter, mu_model_checkpoint("own.keras"))));
    expect_error(MU_UNIMPLEMENTED, "'mine'");
    assert_true(steps == 0 && !is_file("own.keras"));
    need(train(own, 1, mu_model_checkpoint("own.safetensors", .save_weights_only = true)));
    assert_null(mu_model_checkpoint("x.keras", .save_weights_only = true));
    expect_error(MU_INVALID_ARGUMENT, "'x.keras' is the name of a file of a whole model");
}

// The loss falls at every validation: epochs without validation count neither as better nor as worse.
static void epochs_without_validation_do_not_count(void **state)
{
    (void)state;
    mu_history *history = train_every(regression(1, .1), 9, 3, mu_early_stopping(.patience = 2));
    need(history);
    assert_int_equal(mu_history_epochs(history), 9);
    mu_model *model = regression(1, .1);
    need(train_every(model, 9, 3, mu_reduce_lr_on_plateau(.patience = 2, .factor = .5)));
    assert_number(mu_tensor_item(mu_variable_read(mu_optimizer_learning_rate(model->trainer->optimizer)), 0), .1, 0);
    const char *path = "freq-{epoch}-{val_loss:.0f}";
    need(train_every(regression(1, 0), 4, 2, mu_model_checkpoint(path, .save_best_only = true)));
    assert_false(is_file("freq-1-nan"));
    assert_null(train_every(regression(1, .1), 4, 2, mu_model_checkpoint(path)));
    expect_error(MU_INVALID_ARGUMENT, "{val_loss}, which is not logged after an epoch without validation");
}

// What Keras decides in f32, and what f64 gives, where a value is just min_delta better. NaN is never better, even as
// the first.
static void values_are_compared_in_the_type_of_floats(void **state)
{
    (void)state;
    static const struct {
        double best, value, min_delta;
        bool maximized, in_f32, in_f64;
    } rows[] = {
        {.7f, .8f, .1, true, false, true},   {.49, .54, .05, true, false, true}, {.96, .97, .01, true, true, false},
        {.98, .96, .02, false, true, false}, {.8, .7, .1, false, false, true},   {.97, .96, .01, false, true, false},
        {.5, .75, .25, true, false, false},  {.5, .7501, .25, true, true, true}, {.5, NAN, 0, true, false, false},
    };
    for (size_t i = 0; i < 2 * MU_COUNT(rows); i++) {
        const bool in_f32 = i < MU_COUNT(rows);
        const double best = rows[i % MU_COUNT(rows)].best, value = rows[i % MU_COUNT(rows)].value;
        mu_watched watched = {0};
        assert_int_equal(mu_set_floatx(in_f32 ? MU_F32 : MU_F64), MU_OK);
        assert_false(mu__improved(&watched, NAN, true, 0));
        assert_true(mu__improved(&watched, best, true, 0));
        const bool improved =
            mu__improved(&watched, value, rows[i % MU_COUNT(rows)].maximized, rows[i % MU_COUNT(rows)].min_delta);
        assert_int_equal(improved, in_f32 ? rows[i].in_f32 : rows[i % MU_COUNT(rows)].in_f64);
        assert_true(watched.best == (improved ? value : best));
    }
}

// The loss grows from epoch to epoch: only the first epoch is the best; with .mode = "max" each one is.
static void best_checkpoints(void **state)
{
    (void)state;
    static const char *const path = "best/{epoch}";
    need(train(regression(1, 2), 3, mu_model_checkpoint(path, .save_best_only = true)));
    assert_true(is_file("best/1") && !is_file("best/2"));
    need(train(regression(1, 2), 3, mu_model_checkpoint(path, .save_best_only = true, .mode = "max")));
    assert_true(is_file("best/2") && is_file("best/3"));
    need(train(regression(1, 2), 2,
               mu_model_checkpoint("best/none", .save_best_only = true, .initial_value_threshold = 1e-9)));
    assert_false(is_file("best/none"));
}

static void the_best_weights_come_back(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= 3; replicas += 2) {
        mu_model *model = regression(replicas, 2);
        mu_history *history = train(model, 9, mu_early_stopping(.patience = 3, .restore_best_weights = true));
        need(history);
        assert_int_equal(mu_history_epochs(history), 4);
        mu_value *data = mu_list(numbers(2, (int64_t[]){12, 3}, 1), numbers(2, (int64_t[]){12, 2}, 2), MU_END);
        mu_history *after = mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT);
        assert_number(mu_history_last(after, "loss"), mu_history_at(history, "val_loss", 0), 1e-9);
        assert_true(mu_history_last(history, "val_loss") > mu_history_last(after, "loss"));
    }
}

static double grow(int epoch, double rate, void *arg) { return epoch == 1 ? *(double *)arg : rate; }

static void schedules_and_nan(void **state)
{
    (void)state;
    double huge = 1e200, wrong = -1;
    mu_model *model = regression(2, .1);
    mu_history *history = train(model, 5, mu_learning_rate_scheduler(grow, &(double){.25}));
    need(history);
    assert_number(mu_tensor_item(mu_variable_read(mu_optimizer_learning_rate(model->trainer->optimizer)), 0), .25, 0);
    assert_number(mu_history_at(history, "learning_rate", 0), .1, 0);
    assert_number(mu_history_at(history, "learning_rate", 1), .25, 0);
    assert_null(train(model, 5, mu_learning_rate_scheduler(grow, &wrong)));
    expect_error(MU_INVALID_ARGUMENT, "the schedule returned -1 for epoch 1");
    assert_null(train(regression(2, huge), 5, mu_terminate_on_nan(.raise_error = true)));
    expect_error(MU_OUT_OF_RANGE, "mu_terminate_on_nan: the loss is ");
    history = train(regression(2, huge), 5, mu_terminate_on_nan());
    need(history);
    assert_int_equal(mu_history_epochs(history), 1);
}

static mu_tensor *mean_step(mu_model *model, mu_value *batch, void *arg)
{
    (void)arg;
    return mu_reduce_mean(mu_square(mu_call(model, mu_at(batch, 0), .training = true)), MU_ALL_AXES);
}

// That the rate cannot be set is said before the first step, not when it would be reduced.
static void rates_that_cannot_be_set_are_refused(void **state)
{
    (void)state;
    int steps = 0;
    mu_callback *counter = mu_callback_new(.on_batch_end = count, .arg = &steps);
    mu_callback *reducer = mu_reduce_lr_on_plateau(.patience = 9);
    mu_model *model = mu_sequential(mu_dense(2));
    mu_learning_rate_schedule *falls =
        mu_exponential_decay(.initial_learning_rate = .1, .decay_steps = 5, .decay_rate = .5);
    mu_compile(model, .optimizer = mu_sgd(.schedule = falls), .loss = "mse");
    assert_null(train(model, 2, MU_CALLBACKS(counter, reducer)));
    expect_error(MU_FAILED_PRECONDITION, "mu_fit: callback 1 sets the learning rate, and 'sgd' follows a schedule");
    mu_compile(model, .train_step = mean_step, .loss = "mse");
    assert_null(train(model, 2, MU_CALLBACKS(counter, mu_learning_rate_scheduler(grow, &(double){.25}))));
    expect_error(MU_FAILED_PRECONDITION, "callback 1 sets the learning rate, and the model was compiled without");
    assert_int_equal(steps, 0);
}

// A learning rate that a callback sets is among the values of an epoch, which others may watch and name, but not among
// those of a batch.
static void learning_rates_are_logged(void **state)
{
    (void)state;
    mu_callback *scheduler = mu_learning_rate_scheduler(grow, &(double){.25});
    mu_callback *watcher = mu_early_stopping(.monitor = "learning_rate", .mode = "min", .patience = 3);
    mu_callback *writer = mu_model_checkpoint("rate-{learning_rate:.2f}.safetensors");
    mu_history *history = train(regression(1, .5), 9, MU_CALLBACKS(scheduler, watcher, writer));
    need(history);
    assert_int_equal(mu_history_epochs(history), 5); // the second is the best
    assert_true(is_file("rate-0.50.safetensors") && is_file("rate-0.25.safetensors"));
    mu_callback *of_batches = mu_model_checkpoint("{learning_rate}", .save_freq = 2);
    assert_null(train(regression(1, .1), 1, MU_CALLBACKS(scheduler, of_batches)));
    expect_error(MU_INVALID_ARGUMENT, "has {learning_rate}; expected one of epoch, batch (with .save_freq), loss, mae");
    assert_null(train(regression(1, .1), 1, MU_CALLBACKS(writer)));
    expect_error(MU_INVALID_ARGUMENT, "has {learning_rate}, which is not logged; expected 'epoch', 'batch', or one of");
    assert_null(train(regression(1, .1), 1, MU_CALLBACKS(scheduler, mu_early_stopping(.monitor = "accuracy"))));
    expect_error(MU_INVALID_ARGUMENT, "with the prefix 'val_'; and 'learning_rate'. Give one of them");
    assert_null(train(regression(1, .1), 1, MU_CALLBACKS(scheduler, mu_model_checkpoint("{accuracy}"))));
    expect_error(MU_INVALID_ARGUMENT, "or one of 'loss', 'mae', 'learning_rate'");
}

static void wrong_options(void **state)
{
    (void)state;
    assert_null(mu_early_stopping(.mode = "best"));
    expect_error(MU_INVALID_ARGUMENT, "mu_early_stopping: mode is 'best'; it must be one of 'auto', 'min', 'max'");
    assert_null(mu_reduce_lr_on_plateau(.factor = 1));
    expect_error(MU_INVALID_ARGUMENT, "factor is 1; it must be from 0 to below 1");
    assert_null(mu_model_checkpoint("w", .save_best_only = true, .save_freq = 3));
    expect_error(MU_INVALID_ARGUMENT, "monitor 'val_loss' is known at the end of an epoch");
    assert_null(mu_csv_logger("x.csv", .separator = ", "));
    expect_error(MU_INVALID_ARGUMENT, "expected a file's name and one character");
    assert_null(train(regression(1, .1), 1, mu_csv_logger("/no/folder/x.csv")));
    expect_error(MU_NOT_FOUND, "mu_csv_logger: '/no/folder/x.csv' cannot be written");
}

static void event_files(void **state)
{
    (void)state;
    need(train(regression(2, .1), 2, mu_tensorboard("a/b")));
    need(train(regression(2, .1), 2, mu_tensorboard("a/b"))); // in the same second: a second file
    assert_true(is_file("a/b/train") && is_file("a/b/validation"));
    assert_null(mu_tensorboard(""));
    expect_error(MU_INVALID_ARGUMENT, "mu_tensorboard: log_dir is empty");
    FILE *file = fopen("plain", "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_null(train(regression(2, .1), 1, mu_tensorboard("plain")));
    assert_true(strstr(mu_error_take().message, "the folder 'plain/validation' cannot be made") != NULL);
}

typedef struct seen {
    int batches, tests, predictions;
    double loss;
} seen;

static mu_status see_batch(const mu_logs *logs, void *arg)
{
    assert_int_equal(logs->step, ((seen *)arg)->batches++);
    assert_int_equal(logs->n, 0);
    return MU_OK;
}

static mu_status see_test(const mu_logs *logs, void *arg)
{
    seen *s = arg;
    s->tests++;
    assert_string_equal(logs->names[0], "loss");
    s->loss = logs->values[0];
    return MU_OK;
}

static mu_status see_prediction(const mu_logs *logs, void *arg)
{
    assert_int_equal(logs->step, ++((seen *)arg)->predictions);
    return MU_OK;
}

static mu_status refuse(const mu_logs *logs, void *arg)
{
    (void)logs, (void)arg;
    return mu_fail(MU_ABORTED, "enough");
}

// Also on several replicas; a hook that fails ends evaluate and predict as it does fit.
static void hooks_of_every_call(void **state)
{
    (void)state;
    mu_model *model = regression(3, .1);
    seen s = {0};
    mu_callback *all = mu_callback_new(.on_batch_begin = see_batch, .on_test_batch_end = see_test,
                                       .on_predict_batch_end = see_prediction, .arg = &s);
    mu_history *history = train(model, 1, all);
    need(history);
    assert_true(s.batches == 3 && s.tests == 3 && s.loss == mu_history_last(history, "val_loss"));
    mu_value *data = mu_list(numbers(2, (int64_t[]){12, 3}, 1), numbers(2, (int64_t[]){12, 2}, 2), MU_END);
    need(mu_evaluate(model, data, .batch_size = 6, .callbacks = all, .verbose = MU_VERBOSE_SILENT));
    assert_int_equal(s.tests, 5);
    need(mu_predict(model, mu_at(data, 0), .batch_size = 4, .callbacks = all));
    assert_int_equal(s.predictions, 3);
    assert_null(mu_predict(model, mu_at(data, 0), .callbacks = mu_callback_new(.on_predict_batch_begin = refuse)));
    expect_error(MU_ABORTED, "enough");
    assert_null(mu_evaluate(model, data, .callbacks = mu_callback_new(.on_test_begin = refuse)));
    expect_error(MU_ABORTED, "enough");
    assert_null(train(model, 1, mu_callback_new(.on_batch_begin = refuse)));
    expect_error(MU_ABORTED, "enough");
    need(mu_predict(model, mu_at(data, 0)));
}

// ---- Values -------------------------------------------------------------------------------------

// An epoch without validation has no values of it; the last one is that of the last epoch that has, as the last element
// of a list in Keras's history, and a name that never had a value is not there.
static void histories_have_the_last_value(void **state)
{
    (void)state;
    mu_history *history = train_every(regression(1, .1), 4, 3, NULL);
    need(history);
    assert_int_equal(mu_history_names(history), 4);
    assert_true(isnan(mu_history_at(history, "val_loss", 1)) && isnan(mu_history_at(history, "val_loss", 3)));
    assert_true(mu_history_last(history, "val_loss") == mu_history_at(history, "val_loss", 2));
    assert_true(mu_history_last(history, "loss") == mu_history_at(history, "loss", 3));
    history = train_every(regression(1, .1), 2, 3, NULL);
    need(history);
    assert_int_equal(mu_history_names(history), 2);
    assert_true(isnan(mu_history_last(history, "val_loss")));
    history = train(regression(1, 1e200), 3, NULL);
    need(history);
    assert_false(isfinite(mu_history_last(history, "loss"))); // a value that is NaN is one
}

static mu_status see_end(const mu_logs *logs, void *arg)
{
    double value;
    assert_int_equal(logs->n, *(int *)arg);
    if (logs->n == 0)
        return MU_OK;
    assert_int_equal(logs->epoch, 2);
    assert_int_equal(logs->step, 3);
    assert_true(mu__logged(logs, "loss", &value) && mu__logged(logs, "learning_rate", &value));
    assert_int_equal(mu__logged(logs, "val_loss", &value), logs->n == 5);
    *(int *)arg = -1;
    return MU_OK;
}

// The end of training has the values of the last epoch, as in Keras: of validation only if that was validated.
static void the_end_of_training_has_values(void **state)
{
    (void)state;
    for (int freq = 1; freq <= 2; freq++) {
        int n = freq == 1 ? 5 : 3;
        mu_callback *scheduler = mu_learning_rate_scheduler(grow, &(double){.25});
        mu_callback *seer = mu_callback_new(.on_train_end = see_end, .arg = &n);
        need(train_every(regression(2, .1), 3, freq, MU_CALLBACKS(scheduler, seer)));
        assert_int_equal(n, -1);
    }
    int none = 0;
    need(train(regression(1, .1), 0, mu_callback_new(.on_train_end = see_end, .arg = &none)));
}

// What Python's csv.writer writes for a metric of this name.
static void names_in_csv_files_are_quoted(void **state)
{
    (void)state;
    char text[256];
    mu_model *model = mu_sequential(mu_dense(2));
    mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0), .loss = "mse",
               .metrics = mu_accuracy_metric("equal, \"strictly\""));
    need(train(model, 1, mu_csv_logger("quoted.csv")));
    FILE *file = fopen("quoted.csv", "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "epoch,\"equal, \"\"strictly\"\"\",loss,\"val_equal, \"\"strictly\"\"\",val_loss\r\n");
}

// mu_evaluate writes its values too; a step of the program's own may have no optimizer.
static void events_without_fit_or_optimizer(void **state)
{
    (void)state;
    mu_value *data = mu_list(numbers(2, (int64_t[]){12, 3}, 1), numbers(2, (int64_t[]){12, 2}, 2), MU_END);
    mu_model *model = regression(1, .1);
    need(train(model, 1, NULL));
    need(mu_evaluate(model, data, .callbacks = mu_tensorboard("measured"), .verbose = MU_VERBOSE_SILENT));
    assert_true(is_file("measured/validation") && !is_file("measured/train"));
    mu_model *own = mu_sequential(mu_dense(2));
    mu_compile(own, .train_step = mean_step, .loss = "mse");
    need(train(own, 2, mu_tensorboard("own", .update_freq = 1, .histogram_freq = 1, .write_steps_per_second = true)));
    assert_true(is_file("own/train") && is_file("own/validation"));
}

// ---- Averages -----------------------------------------------------------------------------------

static double weight_of(mu_model *model)
{
    return mu_scalar(mu_reduce_sum(mu_variable_read(mu_model_weight(model, "dense/kernel")), MU_ALL_AXES));
}

static mu_status note_weight(const mu_logs *logs, void *arg)
{
    ((double *)arg)[logs->epoch] = weight_of(logs->model);
    return MU_OK;
}

static mu_model *averaging(int kind, bool averages)
{
    mu_model *model = NULL;
    MU_SCOPE(strategy_of(kind)) {
        model = mu_sequential(mu_dense(2, .kernel_initializer = "ones"));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1, .use_ema = averages, .ema_momentum = .5),
                   .loss = "mse");
    }
    return model;
}

// Measurements, and the weights that callbacks see after an epoch, are averages; training is not changed by that.
static void averages_are_measured(void **state)
{
    (void)state;
    double plain[3], swapped[3], within[3];
    mu_model *last = NULL;
    for (int i = 0; i < 3; i++) {
        const int kind = (int[]){-1, 2, SERVED + 1}[i];
        need(train(averaging(kind, true), 3, mu_callback_new(.on_epoch_end = note_weight, .arg = plain)));
        mu_callback *swap = mu_swap_ema_weights(.swap_on_epoch = true);
        mu_callback *note = mu_callback_new(.on_epoch_end = note_weight, .arg = swapped);
        last = averaging(kind, true);
        mu_history *history = train(last, 3, MU_CALLBACKS(swap, note));
        need(history);
        assert_number(weight_of(last), swapped[2], 1e-12); // the end of training leaves the averages there
        assert_true(fabs(swapped[0] - plain[0]) > 1e-3);
        note = mu_callback_new(.on_epoch_end = note_weight, .arg = within);
        history = train(averaging(kind, true), 3, MU_CALLBACKS(mu_swap_ema_weights(), note));
        need(history);
        assert_near(within, plain, 3, 1e-12);
        assert_true(fabs(mu_history_at(history, "val_loss", 0) - mu_history_at(history, "loss", 1)) > 1e-9);
    }
    assert_null(train(averaging(-1, false), 1, mu_swap_ema_weights()));
    expect_error(MU_FAILED_PRECONDITION, "keeps no moving averages; make it with .use_ema = true");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(checkpoints_have_values_in_their_names),
        MODEL_TEST(checkpoints_hold_whole_models),
        MODEL_TEST(numbers_are_written_as_in_python),
        MODEL_TEST(flags_of_numbers_are_as_in_python),
        MODEL_TEST(steps_are_counted_over_calls),
        MODEL_TEST(steps_are_counted_in_loops),
        MODEL_TEST(a_rate_of_float32_is_the_least),
        MODEL_TEST(epochs_without_validation_do_not_count),
        MODEL_TEST(best_checkpoints),
        MODEL_TEST(the_best_weights_come_back),
        MODEL_TEST(schedules_and_nan),
        MODEL_TEST(learning_rates_are_logged),
        MODEL_TEST(wrong_options),
        MODEL_TEST(rates_that_cannot_be_set_are_refused),
        MODEL_TEST(event_files),
        MODEL_TEST(hooks_of_every_call),
        MODEL_TEST(values_are_compared_in_the_type_of_floats),
        MODEL_TEST(histories_have_the_last_value),
        MODEL_TEST(the_end_of_training_has_values),
        MODEL_TEST(names_in_csv_files_are_quoted),
        MODEL_TEST(events_without_fit_or_optimizer),
        MODEL_TEST(averages_are_measured),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
