// Callbacks of fit that use the model themselves, fail without an error, or ask for a value that does not exist; NaN;
// and the number of steps of datasets that do not know their own length.
#include "../caught_output.h"
#include "model/callbacks/callback_class.h"
#include "model/training/training.h"
#include "model_test.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static mu_model *small_model(void)
{
    mu_model *model = NULL;
    mu_strategy *strategy = strategy_of(2);
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(4), mu_dense(3));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1), .metrics = MU_METRICS(mu_accuracy()),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    return model;
}

static mu_dataset *small_data(void) { return rows_and_classes(20, 4, 3, 6); }

#define QUIET      .verbose = MU_VERBOSE_SILENT
#define WATCH(...) MU_CALLBACKS(mu_callback_new(__VA_ARGS__))

static void check_fit(const mu_history *history)
{
    if (!history)
        fail_msg("%s", mu_error_message());
}

// ---- The same model inside a callback -----------------------------------------------------------

typedef struct nest {
    int calls, depth;
    double losses[20];
} nest;

static mu_status use_the_model(const mu_logs *logs, void *arg)
{
    nest *n = arg;
    if (n->depth > 0)
        return MU_OK;
    n->depth++;
    mu_history *measured = mu_evaluate(logs->model, small_data(), QUIET);
    check_fit(measured);
    n->losses[n->calls++] = mu_history_last(measured, "loss");
    assert_int_equal(mu_tensor_dim(mu_predict(logs->model, small_data()), 0), 20);
    n->depth--;
    return mu_error_code();
}

static mu_status train_the_model(const mu_logs *logs, void *arg)
{
    nest *n = arg;
    if (n->depth > 0)
        return MU_OK;
    n->depth++;
    check_fit(
        mu_fit(logs->model, small_data(), QUIET, .callbacks = WATCH(.on_batch_end = train_the_model, .arg = arg)));
    n->calls++;
    n->depth--;
    return mu_error_code();
}

// Evaluating at the end of each epoch gives the values of validation, and training continues as if it had not happened.
static void callbacks_measure_the_model(void **state)
{
    (void)state;
    nest n = {0};
    mu_history *history = mu_fit(small_model(), small_data(), .epochs = 3, .validation_data = small_data(),
                                 .callbacks = WATCH(.on_epoch_end = use_the_model, .arg = &n), QUIET);
    check_fit(history);
    assert_int_equal(n.calls, 3);
    for (int epoch = 0; epoch < 3; epoch++)
        assert_number(n.losses[epoch], mu_history_at(history, "val_loss", epoch), 1e-14);
}

static void callbacks_train_the_model(void **state)
{
    (void)state;
    mu_status (*const hooks[])(const mu_logs *, void *) = {use_the_model, train_the_model};
    for (size_t h = 0; h < MU_COUNT(hooks); h++) {
        nest n = {0};
        mu_model *model = small_model();
        mu_history *history =
            mu_fit(model, small_data(), .epochs = 2, QUIET,
                   .callbacks = MU_CALLBACKS(mu_callback_new(.on_train_begin = hooks[h], .arg = &n),
                                             mu_callback_new(.on_epoch_begin = hooks[h], .on_batch_end = hooks[h],
                                                             .on_epoch_end = hooks[h], .arg = &n)));
        check_fit(history);
        assert_int_equal(n.calls, 1 + 2 * (1 + 4 + 1));
        assert_int_equal(mu_history_epochs(history), 2);
        const int64_t outer = 8, inner = h == 0 ? 0 : 4 * (int64_t)n.calls;
        mu_variable *iterations = mu_optimizer_iterations(model->trainer->optimizer);
        assert_true(mu_scalar(mu_variable_read(iterations)) == (double)(outer + inner));
        assert_null(model->trainer->use);
    }
}

static mu_status compile_the_model(const mu_logs *logs, void *arg)
{
    (void)arg;
    return mu_compile(logs->model, .loss = mu_mean_squared_error_loss());
}

static void a_model_in_use_is_not_compiled(void **state)
{
    (void)state;
    mu_model *model = small_model();
    assert_null(mu_fit(model, small_data(), .callbacks = WATCH(.on_epoch_end = compile_the_model), QUIET));
    expect_error(MU_FAILED_PRECONDITION, "mu_compile: mu_fit of the same model has not returned");
    check_fit(mu_fit(model, small_data(), QUIET));
}

static void *evaluate_beside(void *arg)
{
    mu_pool *pool = mu_pool_open();
    assert_null(mu_evaluate((mu_model *)arg, small_data(), QUIET));
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "mu_evaluate: another thread is inside mu_fit of the same model"));
    mu_pool_close(pool);
    return NULL;
}

static mu_status start_thread(const mu_logs *logs, void *arg)
{
    pthread_t thread;
    (void)arg;
    assert_int_equal(pthread_create(&thread, NULL, evaluate_beside, logs->model), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return MU_OK;
}

static void another_thread_is_refused(void **state)
{
    (void)state;
    check_fit(mu_fit(small_model(), small_data(), .callbacks = WATCH(.on_batch_end = start_thread), QUIET));
}

static mu_value *measure_in_map(mu_value *element, void *arg)
{
    mu_evaluate((mu_model *)arg, small_data(), QUIET);
    return mu_error_code() == MU_OK ? element : NULL;
}

static void data_that_use_the_model_are_refused(void **state)
{
    (void)state;
    mu_model *model = small_model();
    mu_dataset *data = mu_dataset_map(small_data(), measure_in_map, .arg = model);
    assert_null(mu_fit(model, data, QUIET));
    expect_error(MU_FAILED_PRECONDITION, "takes its data or runs a step");
}

static mu_status leave(const mu_logs *logs, void *arg)
{
    (void)logs;
    *(int *)arg = mu_exit(true);
    return MU_OK;
}

static void exit_inside_a_callback_is_refused(void **state)
{
    (void)state;
    int code = 0;
    mu_model *model = small_model();
    assert_null(mu_fit(model, small_data(), .callbacks = WATCH(.on_batch_end = leave, .arg = &code), QUIET));
    assert_int_equal(code, 78);
    expect_error(MU_FAILED_PRECONDITION, "mu_exit is called inside a callback of mu_fit");
    assert_null(mu_evaluate(model, small_data(), .callbacks = WATCH(.on_test_batch_end = leave, .arg = &code), QUIET));
    expect_error(MU_FAILED_PRECONDITION, "mu_exit is called inside a callback of mu_evaluate");
    check_fit(mu_fit(model, small_data(), QUIET));
}

// ---- What callbacks return and ask for ----------------------------------------------------------

static mu_status fail_silently(const mu_logs *logs, void *arg)
{
    (void)logs;
    return *(mu_status *)arg;
}

static void codes_without_a_reason_are_the_callbacks_fault(void **state)
{
    (void)state;
    mu_status codes[] = {MU_INTERNAL, MU_NOT_FOUND, (mu_status)77};
    static const char *const wanted[] = {"on_epoch_end of callback 0 returned 13 (INTERNAL)", "5 (NOT_FOUND)", "77"};
    for (size_t i = 0; i < MU_COUNT(codes); i++) {
        assert_null(mu_fit(small_model(), small_data(), QUIET,
                           .callbacks = WATCH(.on_epoch_end = fail_silently, .arg = &codes[i])));
        expect_error(MU_INVALID_ARGUMENT, wanted[i]);
    }
}

static mu_status count(const mu_logs *logs, void *arg)
{
    (void)logs;
    ++*(int *)arg;
    return MU_OK;
}

static void watched_values_are_checked_before_training(void **state)
{
    (void)state;
    mu_model *model = small_model();
    int batches = 0;
    mu_callback *counts = mu_callback_new(.on_train_begin = count, .on_batch_end = count, .arg = &batches);
    assert_null(mu_fit(model, small_data(), .callbacks = MU_CALLBACKS(counts, mu_early_stopping()), QUIET));
    expect_error(MU_INVALID_ARGUMENT, "callback 1 watches 'val_loss', which is not logged without .validation_data");
    mu_callback *best = mu_model_checkpoint("best.safetensors", .save_best_only = true, .monitor = "val_acuracy");
    assert_null(mu_fit(model, small_data(), .callbacks = MU_CALLBACKS(counts, best), QUIET));
    expect_error(MU_INVALID_ARGUMENT, "logged are 'loss', 'accuracy', and with .validation_data the same");
    assert_int_equal(batches, 0);
}

// ---- NaN and lengths ----------------------------------------------------------------------------

typedef struct fit_run {
    mu_model *model;
    mu_dataset *data;
    int epochs;
} fit_run;

static void fit_lines(void *arg)
{
    const fit_run *run = arg;
    check_fit(mu_fit(run->model, run->data, .epochs = run->epochs, .verbose = MU_VERBOSE_LINES));
}

// Returns what a run writes to a stream, in static storage.
static const char *captured(int stream, mu_model *model, mu_dataset *data, int epochs)
{
    static char text[20000];
    catch_output(stream, fit_lines, &(fit_run){model, data, epochs}, text, sizeof text);
    return text;
}

static void nan_is_told_once_with_its_step(void **state)
{
    (void)state;
    mu_tensor *x = numbers(2, (int64_t[]){20, 4}, 3);
    ((double *)mu__host_write(x))[4 * 13] = NAN;
    mu_value *all = mu_list(x, classes(20, 3, 5), MU_END);
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(all), 6);
    static const char wanted[] = "'loss' became nan in step 3 of epoch 1";
    const char *text = captured(STDERR_FILENO, small_model(), data, 3), *first = strstr(text, wanted);
    if (!first || strstr(first + strlen(wanted), "became"))
        fail_msg("wanted \"%s\" once; got \"%s\"", wanted, text);
}

static mu_value *same(mu_value *element, void *arg)
{
    (void)arg;
    return element;
}

static bool all_rows(mu_value *element, void *arg)
{
    (void)arg;
    return element != NULL;
}

static void lengths_are_known_after_an_epoch(void **state)
{
    (void)state;
    mu_dataset *unknown = mu_dataset_map(mu_dataset_filter(small_data(), all_rows, NULL), same);
    assert_true(mu_dataset_cardinality(unknown) < 0);
    const char *text = captured(STDOUT_FILENO, small_model(), unknown, 2);
    const char *second = strstr(text, "Epoch 2/2\n");
    assert_non_null(second);
    assert_true(strncmp(text, "Epoch 1/2\n4 ", 12) == 0);
    if (strncmp(second, "Epoch 2/2\n4/4 ", 14) != 0)
        fail_msg("\"%s\"", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(callbacks_measure_the_model),
        MODEL_TEST(callbacks_train_the_model),
        MODEL_TEST(a_model_in_use_is_not_compiled),
        MODEL_TEST(another_thread_is_refused),
        MODEL_TEST(data_that_use_the_model_are_refused),
        MODEL_TEST(exit_inside_a_callback_is_refused),
        MODEL_TEST(codes_without_a_reason_are_the_callbacks_fault),
        MODEL_TEST(watched_values_are_checked_before_training),
        MODEL_TEST(nan_is_told_once_with_its_step),
        MODEL_TEST(lengths_are_known_after_an_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
