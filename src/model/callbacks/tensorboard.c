// The callback that writes values for TensorBoard, and histograms and images of weights: Keras's tags, steps and
// folders.
//
// Values of training go to the folder "train", those of validation to "validation"; a file is made with its first
// value. With several workers the chief writes.
#include "model/callbacks/callback_class.h"

#include "model/callbacks/event_values.h"
#include "model/training/pass.h"
#include "model/training/training.h"

static const mu_field fields[] = {
    MU_FIELD(mu_tensorboard_args, log_dir, TEXT),
    MU_FIELD(mu_tensorboard_args, update_freq, INT64, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_tensorboard_args, histogram_freq, INT, .limit = MU_NOT_NEGATIVE),
    MU_FIELD(mu_tensorboard_args, write_images, FLAG),
    MU_FIELD(mu_tensorboard_args, write_steps_per_second, FLAG),
    {0},
};

typedef struct board {
    mu_event_file *train, *validation; // NULL: not made yet
    int64_t steps;                     // of training since it began
    int64_t epoch_began, step_began;   // nanoseconds of mu__now_ns
    int64_t iterations;                // of the optimizer when the epoch began
} board;

static mu_status complete(void *arguments)
{
    mu_tensorboard_args *args = arguments;
    args->log_dir = args->log_dir ? args->log_dir : "logs";
    return *args->log_dir ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "mu_tensorboard: log_dir is empty; give a folder");
}

static void close_files(void *object)
{
    board *state = object;
    mu__event_file_close(state->train);
    mu__event_file_close(state->validation);
    *state = (board){0};
}

static mu_status start_anew(const mu_logs *logs, void *arg)
{
    (void)logs;
    close_files(((const mu_callback *)arg)->state);
    return MU_OK;
}

// One of the files, which is made if it is not there yet. NULL on error.
static mu_event_file *file_of(const mu_callback *callback, bool validation)
{
    board *state = callback->state;
    mu_event_file **file = validation ? &state->validation : &state->train;
    if (!*file) {
        char *folder = mu__sprintf("%s/%s", ((const mu_tensorboard_args *)callback->args)->log_dir,
                                   validation ? "validation" : "train");
        *file = folder ? mu__event_file_create(folder) : NULL;
        mu__free(folder);
    }
    return *file;
}

static mu_status add(const mu_callback *callback, bool validation, const char *tag, int64_t step, double value)
{
    mu_event_file *file = file_of(callback, validation);
    return file ? mu__event_file_scalar(file, tag, step, value) : mu_error_code();
}

static mu_status add_weight(const mu_callback *callback, const char *name, int epoch, mu_tensor *value)
{
    const mu_tensorboard_args *args = callback->args;
    mu_event_file *file = file_of(callback, false);
    char tag[512];
    if (!file)
        return mu_error_code();
    snprintf(tag, sizeof tag, "%.400s/histogram", name);
    MU_TRY(mu__event_histogram(file, tag, epoch, value, 30));
    snprintf(tag, sizeof tag, "%.400s/image", name);
    return args->write_images ? mu__event_weight_image(file, tag, epoch, value) : MU_OK;
}

// Every worker reads the weights, because workers aggregate some of them in a read; the chief writes.
static mu_status write_weights(const mu_callback *callback, const mu_logs *logs)
{
    const bool writes = mu_strategy_should_checkpoint(logs->model->strategy);
    mu_variable_list list = {0};
    mu_status status = mu__layer_collect(logs->model, MU_WEIGHTS_ALL, &list);
    for (size_t i = 0; status == MU_OK && i < list.n; i++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *value = pool ? mu_variable_read(list.items[i]) : NULL;
        status = value ? MU_OK : mu_error_code();
        if (value && writes)
            status = add_weight(callback, mu_variable_name(list.items[i]), logs->epoch, value);
        mu_pool_close(pool);
    }
    mu__free(list.items);
    return status;
}

static mu_status flush(const board *state)
{
    MU_TRY(state->train ? mu__event_file_flush(state->train) : MU_OK);
    return state->validation ? mu__event_file_flush(state->validation) : MU_OK;
}

// 0 for a step of the program's own that has no optimizer, or several.
static mu_status read_iterations(const mu_model *model, int64_t *out)
{
    *out = 0;
    if (!model->trainer->optimizer)
        return MU_OK;
    mu_variable *variable = mu_optimizer_iterations(model->trainer->optimizer);
    mu_tensor *value = variable ? mu_variable_read(variable) : NULL;
    return value ? mu_tensor_copy_to(value, out, sizeof *out) : mu_error_code();
}

static mu_status begin_epoch(const mu_logs *logs, void *arg)
{
    board *state = ((const mu_callback *)arg)->state;
    state->epoch_began = mu__now_ns();
    return read_iterations(logs->model, &state->iterations);
}

static mu_status begin_step(const mu_logs *logs, void *arg)
{
    (void)logs;
    ((board *)((const mu_callback *)arg)->state)->step_began = mu__now_ns();
    return MU_OK;
}

static double rate_since(int64_t began, int64_t steps)
{
    return (double)steps * 1e9 / (double)MU_MAX(mu__now_ns() - began, 1);
}

static mu_status write_batch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    board *state = callback->state;
    const int64_t step = ++state->steps, every = ((const mu_tensorboard_args *)callback->args)->update_freq;
    char tag[128];
    if (step % every != 0 || !mu_strategy_should_checkpoint(logs->model->strategy))
        return MU_OK;
    for (int i = 0; i < logs->n; i++) {
        snprintf(tag, sizeof tag, "batch_%s", logs->names[i]);
        MU_TRY(add(callback, false, tag, step, logs->values[i]));
    }
    if (((const mu_tensorboard_args *)callback->args)->write_steps_per_second)
        MU_TRY(add(callback, false, "batch_steps_per_second", step, rate_since(state->step_began, 1)));
    return flush(state);
}

// The values of a validation, or of a call of mu_evaluate, by the optimizer's steps.
static mu_status write_test(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    char tag[128];
    int64_t iterations;
    if (!logs->model->trainer->optimizer || !mu_strategy_should_checkpoint(logs->model->strategy))
        return MU_OK;
    MU_TRY(read_iterations(logs->model, &iterations));
    for (int i = 0; i < logs->n; i++) {
        snprintf(tag, sizeof tag, "evaluation_%s_vs_iterations", logs->names[i]);
        MU_TRY(add(callback, true, tag, iterations, logs->values[i]));
    }
    return flush(callback->state);
}

static mu_status add_rate(const mu_callback *callback, const mu_logs *logs)
{
    double rate;
    if (!logs->model->trainer->optimizer)
        return MU_OK;
    MU_TRY(mu__learning_rate_read(logs->model, &rate));
    return add(callback, false, "epoch_learning_rate", logs->epoch, rate);
}

static mu_status add_speed(const mu_callback *callback, const mu_logs *logs)
{
    const board *state = callback->state;
    int64_t iterations;
    MU_TRY(read_iterations(logs->model, &iterations));
    return add(callback, false, "epoch_steps_per_second", logs->epoch,
               rate_since(state->epoch_began, iterations - state->iterations));
}

static mu_status write_epoch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    char tag[128];
    const int every = ((const mu_tensorboard_args *)callback->args)->histogram_freq;
    if (every > 0 && logs->epoch % every == 0)
        MU_TRY(write_weights(callback, logs));
    if (!mu_strategy_should_checkpoint(logs->model->strategy))
        return MU_OK;
    for (int i = 0; i < logs->n; i++) {
        const bool of_validation = strncmp(logs->names[i], "val_", 4) == 0;
        snprintf(tag, sizeof tag, "epoch_%s", logs->names[i] + (of_validation ? 4 : 0));
        if (!logs->model->trainer->optimizer || strcmp(logs->names[i], MU_RATE_LOG) != 0) // else it comes below
            MU_TRY(add(callback, of_validation, tag, logs->epoch, logs->values[i]));
    }
    MU_TRY(add_rate(callback, logs));
    if (((const mu_tensorboard_args *)callback->args)->write_steps_per_second)
        MU_TRY(add_speed(callback, logs));
    return flush(callback->state);
}

mu_callback *mu_tensorboard_with(const mu_tensorboard_args *given)
{
    static const mu_callback_class class = {
        .class = {"tensorboard", "TensorBoard", "mu_tensorboard", MU_OPTIONS(mu_tensorboard_args), fields, complete},
        .state_bytes = sizeof(board),
        .on_destroy = close_files,
        .hooks = {.on_train_begin = start_anew,
                  .on_epoch_begin = begin_epoch,
                  .on_batch_begin = begin_step,
                  .on_batch_end = write_batch,
                  .on_epoch_end = write_epoch,
                  .on_test_end = write_test,
                  .on_train_end = start_anew}};
    mu_callback *callback = mu__callback_of_class(&class, given);
    if (!callback)
        return NULL;
    const mu_tensorboard_args *args = callback->args;
    if (args->update_freq == 0)
        callback->hooks.on_batch_end = callback->hooks.on_batch_begin = NULL;
    if (!args->write_steps_per_second)
        callback->hooks.on_epoch_begin = callback->hooks.on_batch_begin = NULL;
    return callback;
}
