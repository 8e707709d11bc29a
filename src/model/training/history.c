// The history of fit: a value per epoch for each name.

#include "model/training/training.h"

#include <math.h>

static void history_destroy(void *object)
{
    mu_history *history = object;
    for (size_t i = 0; i < history->names.n; i++)
        mu__free(history->names.items[i]);
    mu__free(history->names.items);
    mu__free(history->values.items);
}

static mu_type history_type = {.name = "history", .destroy = history_destroy};

mu_history *mu__history_new(void)
{
    return mu__new(&history_type, sizeof(mu_history));
}

static int find_name(const mu_history *history, const char *name)
{
    for (size_t i = 0; i < history->names.n; i++)
        if (strcmp(history->names.items[i], name) == 0)
            return (int)i;
    return -1;
}

int mu__history_name(mu_history *history, const char *name)
{
    int found = find_name(history, name);
    if (found >= 0)
        return found;
    char *copy = mu__strdup(name);
    if (!copy || MU_PUSH(&history->names, copy) != MU_OK) {
        mu__free(copy);
        return -1;
    }
    return (int)history->names.n - 1;
}

mu_status mu__history_add(mu_history *history, int n, const double *values)
{
    assert((size_t)n == history->names.n);
    for (int i = 0; i < n; i++)
        MU_TRY(MU_PUSH(&history->values, values[i]));
    history->epochs++;
    return MU_OK;
}

int mu_history_epochs(const mu_history *history)
{
    return history ? history->epochs : -1;
}

double mu_history_at(const mu_history *history, const char *name, int epoch)
{
    int column = history && name ? find_name(history, name) : -1;
    if (column < 0 || epoch < 0 || epoch >= history->epochs)
        return NAN;
    return history->values.items[(size_t)epoch * history->names.n + (size_t)column];
}

double mu_history_last(const mu_history *history, const char *name)
{
    return history ? mu_history_at(history, name, history->epochs - 1) : NAN;
}

double mu_history_seconds(const mu_history *history)
{
    return history ? history->seconds : NAN;
}

int64_t mu_history_samples(const mu_history *history)
{
    return history ? history->samples : -1;
}

int mu_history_names(const mu_history *history)
{
    return history ? (int)history->names.n : -1;
}

const char *mu_history_name(const mu_history *history, int i)
{
    return history && i >= 0 && (size_t)i < history->names.n ? history->names.items[i] : NULL;
}
