// What workers exchange between steps, made of the collectives in a strategy's cross-worker slots.
//
// Every worker does the same with the same numbers in worker order, so all get the same bits. In one process the
// collectives are trivial (one_process.c), so nothing here asks how many workers there are.
#include "distribute/distribute.h"

// Bounds the texts that workers exchange (states of pipelines, structures of elements); real ones are far shorter.
enum { LONGEST_TEXT = 64 << 20 };

const char *mu__access_text(const char *access, const mu_variable *variable, char text[MU_ATTR_TEXT_BYTES])
{
    const int n = snprintf(text, MU_ATTR_TEXT_BYTES, "%s '", access);
    mu__fit_name(variable->resource.name, (size_t)(MU_ATTR_TEXT_BYTES - n - 1), text + n);
    strcat(text, "'");
    return text;
}

mu_status mu__workers_add(mu_strategy *strategy, const char *what, mu_dtype dtype, void *numbers, int64_t n)
{
    return strategy->ops->cross_worker->all_reduce(strategy, what, MU_REDUCTION_SUM, dtype, numbers, n);
}

mu_status mu__workers_least(mu_strategy *strategy, const char *what, int64_t *number)
{
    return strategy->ops->cross_worker->all_reduce(strategy, what, MU_REDUCTION_MIN, MU_I64, number, 1);
}

mu_status mu__workers_agree(mu_strategy *strategy, const char *what, int64_t numbers[2])
{
    return strategy->ops->cross_worker->agree(strategy, what, numbers);
}

void *mu__workers_gather_equal(mu_strategy *strategy, const char *what, mu_dtype dtype, int64_t n, const void *mine,
                               int *workers)
{
    *workers = strategy->n_workers;
    int64_t *counts = mu__calloc((size_t)*workers, sizeof *counts);
    void *all = mu__calloc((size_t)*workers * (size_t)n + 1, mu_dtype_bytes(dtype));
    mu_status status = counts && all ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int w = 0; status == MU_OK && w < *workers; w++)
        counts[w] = n;
    if (status == MU_OK)
        status = strategy->ops->cross_worker->all_gather(strategy, what, NULL, dtype, mine, all, counts);
    mu__free(counts);
    if (status == MU_OK)
        return all;
    mu__free(all);
    return NULL;
}

mu_status mu__workers_sum(mu_strategy *strategy, const char *what, int n, const double *parts, double *sums)
{
    int workers;
    double *all = mu__workers_gather_equal(strategy, what, MU_F64, (int64_t)strategy->n_local * n, parts, &workers);
    if (!all)
        return mu_error_code();
    for (int i = 0; i < n; i++) {
        sums[i] = 0;
        for (int r = 0; r < strategy->n_replicas; r++)
            sums[i] += all[r * n + i];
    }
    mu__free(all);
    return MU_OK;
}

mu_status mu__workers_written(mu_strategy *strategy, mu_status status)
{
    int64_t nothing = 0;
    if (!strategy)
        return status;
    if (status != MU_OK) {
        mu__strategy_failed(strategy);
        return status;
    }
    return mu__workers_add(strategy, "file is written", MU_I64, &nothing, 1);
}

char *mu__workers_take_text(mu_strategy *strategy, const char *what, const char *own, int worker)
{
    const mu_cross_worker_ops *workers = strategy->ops->cross_worker;
    const bool mine = strategy->worker == worker;
    int64_t bytes = mine && own ? (int64_t)strlen(own) : 0;
    if (workers->broadcast(strategy, what, NULL, MU_I64, &bytes, 1, worker) != MU_OK)
        return NULL;
    if (bytes < 0 || bytes > LONGEST_TEXT) {
        mu__error(MU_DATA_LOSS, "\"%s\": %s sends a text of %lld bytes; at most %d are possible", what,
                  mine ? "this worker" : workers->worker_name(strategy, worker), (long long)bytes, LONGEST_TEXT);
        return NULL;
    }
    char *text = mu__calloc((size_t)bytes + 1, 1);
    if (text && mine && own)
        memcpy(text, own, (size_t)bytes);
    if (text && workers->broadcast(strategy, what, NULL, MU_U8, text, bytes, worker) == MU_OK)
        return text;
    mu__free(text);
    return NULL;
}

// ---- What this worker is doing ------------------------------------------------------------------

void mu__strategy_doing(const mu_strategy *strategy, const char *what, int64_t number)
{
    if (strategy)
        strategy->ops->cross_worker->doing(strategy, what, number);
}

void mu__strategy_done(mu_strategy *strategy)
{
    if (strategy)
        strategy->ops->cross_worker->done(strategy);
}

void mu__strategy_failed(const mu_strategy *strategy)
{
    if (mu__pending())
        strategy->ops->cross_worker->failed(strategy);
}
