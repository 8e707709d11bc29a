// The history of fit: a value per epoch for each name.

#include "model/training/training.h"

#include <math.h>

static void history_destroy(void *object)
{
    mu_history *history = object;
    for (size_t i = 0; i < history->series.n; i++) {
        mu__free(history->series.items[i].name);
        mu__free(history->series.items[i].values.items);
    }
    mu__free(history->series.items);
}

static mu_type history_type = {.name = "history", .destroy = history_destroy};

mu_history *mu__history_new(void) { return mu__new(&history_type, sizeof(mu_history)); }

static mu_series *find_series(const mu_history *history, const char *name)
{
    for (size_t i = 0; i < history->series.n; i++)
        if (strcmp(history->series.items[i].name, name) == 0)
            return &history->series.items[i];
    return NULL;
}

static mu_series *add_series(mu_history *history, const char *name)
{
    mu_series series = {.name = mu__strdup(name)};
    if (series.name && MU_PUSH(&history->series, series) == MU_OK)
        return &history->series.items[history->series.n - 1];
    mu__free(series.name);
    return NULL;
}

mu_status mu__history_put(mu_history *history, const char *name, double value)
{
    mu_series *series = find_series(history, name);
    series = series ? series : add_series(history, name);
    if (!series)
        return mu_error_code();
    while (series->values.n < (size_t)history->epochs)
        MU_TRY(MU_PUSH(&series->values, NAN));
    return MU_PUSH(&series->values, value);
}

int mu__history_last_epoch(const mu_history *history, const char **names, double *values)
{
    int n = 0;
    for (size_t i = 0; i < history->series.n && n < 2 * MU_MAX_LOGS + 1; i++) {
        const mu_series *series = &history->series.items[i];
        if (series->values.n != (size_t)history->epochs)
            continue;
        names[n] = series->name;
        values[n++] = series->values.items[series->values.n - 1];
    }
    return n;
}

int mu_history_epochs(const mu_history *history) { return history ? history->epochs : -1; }

double mu_history_at(const mu_history *history, const char *name, int epoch)
{
    const mu_series *series = history && name ? find_series(history, name) : NULL;
    return series && epoch >= 0 && (size_t)epoch < series->values.n ? series->values.items[epoch] : NAN;
}

double mu_history_last(const mu_history *history, const char *name)
{
    const mu_series *series = history && name ? find_series(history, name) : NULL;
    return series && series->values.n > 0 ? series->values.items[series->values.n - 1] : NAN;
}

double mu_history_seconds(const mu_history *history) { return history ? history->seconds : NAN; }

int64_t mu_history_samples(const mu_history *history) { return history ? history->samples : -1; }

int mu_history_names(const mu_history *history) { return history ? (int)history->series.n : -1; }

const char *mu_history_name(const mu_history *history, int i)
{
    return history && i >= 0 && (size_t)i < history->series.n ? history->series.items[i].name : NULL;
}
