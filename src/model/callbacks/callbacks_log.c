// Callbacks that act at fixed moments: learning rates by epoch, a CSV file of values, the end of training at NaN.
#include "model/callbacks/callback_class.h"
#include "model/training/training.h"

#include <errno.h>
#include <math.h>
#include <muster/ops.h>
#include <stdlib.h>

// ---- The learning rate --------------------------------------------------------------------------

mu_status mu__learning_rate_read(const mu_model *model, double *rate)
{
    mu_tensor *value = mu_optimizer_current_rate(model->trainer->optimizer);
    mu_tensor *wide = value ? mu_cast(value, MU_F64) : NULL;
    return wide ? mu_tensor_copy_to(wide, rate, sizeof *rate) : mu_error_code();
}

mu_status mu__learning_rate_write(const mu_model *model, double rate)
{
    mu_variable *variable = mu_optimizer_learning_rate(model->trainer->optimizer);
    if (!variable)
        return mu_error_code();
    mu_scope_guard scope = mu_scope_open(model->strategy);
    const mu_status status = mu_variable_assign(variable, mu_constant(mu_variable_dtype(variable), rate));
    mu_scope_close(&scope);
    return status;
}

static mu_status set_rate(const mu_logs *logs, void *arg)
{
    const mu_learning_rate_scheduler_args *state = arg;
    double rate;
    char text[32];
    MU_TRY(mu__learning_rate_read(logs->model, &rate));
    const double next = state->schedule(logs->epoch, rate, state->arg);
    MU_TRY(mu_error_code());
    if (!isfinite(next) || next < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_learning_rate_scheduler: the schedule returned %g for epoch %d; it must return a learning "
                         "rate of 0 or more",
                         next, logs->epoch);
    mu__number_text(next, sizeof text, text);
    if (state->verbose)
        mu__callback_say(logs, "Epoch %d: LearningRateScheduler setting learning rate to %s.\n", logs->epoch + 1, text);
    return mu__learning_rate_write(logs->model, next);
}

mu_callback *mu_learning_rate_scheduler_with(const mu_learning_rate_scheduler_args *given)
{
    mu_learning_rate_scheduler_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_learning_rate_scheduler") != MU_OK)
        return NULL;
    if (!args.schedule) {
        mu__error(MU_INVALID_ARGUMENT, "mu_learning_rate_scheduler: the schedule is NULL");
        return NULL;
    }
    mu_learning_rate_scheduler_args *state = mu__calloc(1, sizeof *state);
    if (state)
        *state = args;
    mu_callback *callback = mu__callback_built_in((mu_callback_args){.on_epoch_begin = set_rate}, state);
    if (callback)
        callback->sets_rate = true;
    return callback;
}

// ---- CSV ----------------------------------------------------------------------------------------

static const mu_field csv_fields[] = {
    MU_FIELD(mu_csv_logger_args, filename, TEXT),
    MU_FIELD(mu_csv_logger_args, separator, TEXT),
    MU_FIELD(mu_csv_logger_args, append, FLAG),
    {0},
};

typedef struct csv {
    FILE *file;     // open while fit runs, on the worker that writes; NULL: not there
    bool named;     // the line of names is written, or was there
    char **columns; // names without "epoch", sorted; owned
    int n;
} csv;

static mu_status csv_complete(void *arguments)
{
    mu_csv_logger_args *args = arguments;
    args->separator = args->separator ? args->separator : ",";
    if (!args->filename || !*args->filename || strlen(args->separator) != 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_csv_logger: filename '%s', separator '%s'; expected a file's name and one character",
                         args->filename ? args->filename : "", args->separator);
    return MU_OK;
}

static void csv_close(void *object)
{
    csv *state = object;
    if (state->file)
        fclose(state->file);
    for (int i = 0; i < state->n; i++)
        mu__free(state->columns[i]);
    mu__free(state->columns);
    *state = (csv){0};
}

static mu_status csv_failed(const mu_csv_logger_args *args)
{
    return mu__error(mu__errno_code(errno), "mu_csv_logger: '%s' cannot be written: %s", args->filename,
                     strerror(errno));
}

static mu_status csv_begin(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const mu_csv_logger_args *args = callback->args;
    csv *state = callback->state;
    csv_close(state);
    if (!mu_strategy_should_checkpoint(logs->model->strategy))
        return MU_OK;
    state->file = fopen(args->filename, args->append ? "ae" : "we");
    if (!state->file || fseek(state->file, 0, SEEK_END) != 0)
        return csv_failed(args);
    state->named = ftell(state->file) > 0;
    return MU_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static mu_status add_column(csv *state, const char *prefix, const char *name)
{
    state->columns[state->n] = mu__sprintf("%s%s", prefix, name);
    return state->columns[state->n] ? (state->n++, MU_OK) : MU_RESOURCE_EXHAUSTED;
}

// Sorted names; without validation in the first epoch there are columns for it, which have "NA" until there is one.
static mu_status take_columns(csv *state, const mu_logs *logs)
{
    bool validates = false;
    state->columns = mu__calloc((size_t)logs->n * 2 + 1, sizeof *state->columns);
    if (!state->columns)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < logs->n; i++) {
        validates |= strncmp(logs->names[i], "val_", 4) == 0;
        MU_TRY(add_column(state, "", logs->names[i]));
    }
    qsort(state->columns, (size_t)state->n, sizeof *state->columns, by_name);
    for (int i = 0, n = state->n; !validates && i < n; i++)
        MU_TRY(add_column(state, "val_", state->columns[i]));
    return MU_OK;
}

// Writes a separator and a field. One that has a separator, a quote or an end of a line is in quotes, as Python's csv
// writes it: a metric may have any name.
static void put_field(FILE *file, const char *separator, const char *before, const char *text)
{
    const char special[] = {*separator, '"', '\r', '\n', '\0'};
    const bool quoted = strpbrk(text, special) != NULL;
    fprintf(file, "%s%s", before, quoted ? "\"" : "");
    for (const char *at = text; *at; at++) {
        if (*at == '"')
            fputc('"', file);
        fputc(*at, file);
    }
    fputs(quoted ? "\"" : "", file);
}

static void put_names(csv *state, const char *separator)
{
    put_field(state->file, separator, "", "epoch");
    for (int i = 0; i < state->n; i++)
        put_field(state->file, separator, separator, state->columns[i]);
    fputs("\r\n", state->file);
    state->named = true;
}

static mu_status csv_epoch(const mu_logs *logs, void *arg)
{
    const mu_callback *callback = arg;
    const mu_csv_logger_args *args = callback->args;
    csv *state = callback->state;
    char text[32];
    if (!state->file)
        return MU_OK;
    if (!state->columns)
        MU_TRY(take_columns(state, logs));
    if (!state->named)
        put_names(state, args->separator);
    snprintf(text, sizeof text, "%d", logs->epoch);
    put_field(state->file, args->separator, "", text);
    for (int i = 0; i < state->n; i++) {
        double value;
        const bool logged = mu__logged(logs, state->columns[i], &value);
        if (logged)
            mu__number_text(value, sizeof text, text);
        put_field(state->file, args->separator, args->separator, logged ? text : "NA");
    }
    fputs("\r\n", state->file);
    return fflush(state->file) == 0 && !ferror(state->file) ? MU_OK : csv_failed(args);
}

static mu_status csv_end(const mu_logs *logs, void *arg)
{
    (void)logs;
    csv_close(((const mu_callback *)arg)->state);
    return MU_OK;
}

mu_callback *mu_csv_logger_with(const mu_csv_logger_args *given)
{
    static const mu_callback_class class = {
        .class = {"csv_logger", "CSVLogger", "mu_csv_logger", MU_OPTIONS(mu_csv_logger_args), csv_fields, csv_complete},
        .state_bytes = sizeof(csv),
        .on_destroy = csv_close,
        .hooks = {.on_train_begin = csv_begin, .on_epoch_end = csv_epoch, .on_train_end = csv_end}};
    return mu__callback_of_class(&class, given);
}

// ---- NaN ----------------------------------------------------------------------------------------

static const mu_field nan_fields[] = {MU_FIELD(mu_terminate_on_nan_args, raise_error, FLAG), {0}};

static mu_status check_loss(const mu_logs *logs, void *arg)
{
    const mu_terminate_on_nan_args *args = ((const mu_callback *)arg)->args;
    double loss;
    if (!mu__logged(logs, "loss", &loss) || isfinite(loss))
        return MU_OK;
    mu_stop_training(logs->model);
    return !args->raise_error ? MU_OK
                              : mu__error(MU_OUT_OF_RANGE,
                                          "mu_terminate_on_nan: the loss is %g after step %lld of epoch %d; look for "
                                          "such numbers in the data, or lower the learning rate",
                                          loss, (long long)logs->step, logs->epoch + 1);
}

mu_callback *mu_terminate_on_nan_with(const mu_terminate_on_nan_args *given)
{
    static const mu_callback_class class = {.class = {"terminate_on_nan", "TerminateOnNaN", "mu_terminate_on_nan",
                                                      MU_OPTIONS(mu_terminate_on_nan_args), nan_fields, NULL},
                                            .state_bytes = 1,
                                            .hooks = {.on_batch_end = check_loss}};
    return mu__callback_of_class(&class, given);
}
