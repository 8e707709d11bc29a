// What workers do together outside of steps: adding numbers, gathering tensors, taking the chief's.
//
// They meet in a group of their own, one rank for each worker, in program order; so a step may be under way on the
// replicas meanwhile. Each function is a collective of all workers; with one worker it does nothing. Tensors are
// gathered whole and combined by everyone in replica order: the same bits on all workers, and the same as if all
// replicas were in one process.
#include "distribute/distribute.h"

#include <signal.h>

// The shape of one tensor on its way: type, rank, dimensions.
enum { HEADER = 2 + MU_MAX_RANK };

static mu_collective *meeting(mu_strategy *strategy, const char *what, int64_t *number)
{
    mu_collective *collective = mu__group_member(strategy->workers, 0);
    *number = ++strategy->meetings;
    mu__mesh_doing(strategy->mesh, "in meeting", *number, what);
    return collective;
}

// What a meeting ends with.
static mu_status met(mu_strategy *strategy, mu_status status)
{
    mu__strategy_done(strategy);
    return status;
}

mu_status mu__workers_add(mu_strategy *strategy, const char *what, mu_dtype dtype, void *numbers, int64_t n)
{
    int64_t number;
    if (strategy->n_workers < 2)
        return MU_OK;
    mu_collective *all = meeting(strategy, what, &number);
    return met(strategy, all->all_reduce(all, number, what, MU_REDUCTION_SUM, dtype, numbers, n));
}

mu_status mu__workers_agree(mu_strategy *strategy, const char *what, int64_t numbers[2])
{
    const int stop = mu__stop_signal();
    int64_t all[] = {numbers[0], numbers[1], stop == SIGTERM, stop == SIGINT};
    MU_TRY(mu__workers_add(strategy, what, MU_I64, all, MU_COUNT(all)));
    numbers[0] = all[0];
    numbers[1] = all[1];
    if (all[2] + all[3] > 0) {
        mu__stop_by(all[2] > 0 ? SIGTERM : SIGINT);
        strategy->stopping = true;
    }
    return MU_OK;
}

mu_status mu__workers_gather_blocks(mu_strategy *strategy, const char *what, mu_dtype dtype, const void *mine,
                                    void *all, const int64_t *counts)
{
    int64_t number;
    mu_collective *collective = meeting(strategy, what, &number);
    return met(strategy, collective->all_gather(collective, number, what, dtype, mine, counts[strategy->worker], all,
                                                counts));
}

mu_status mu__workers_sum(mu_strategy *strategy, const char *what, int n, const double *parts, double *sums)
{
    const int workers = strategy->n_workers;
    double *all = mu__calloc((size_t)strategy->n_replicas * (size_t)n + 1, sizeof *all);
    int64_t *counts = mu__calloc((size_t)workers, sizeof *counts);
    mu_status status = all && counts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int w = 0; status == MU_OK && w < workers; w++)
        counts[w] = (int64_t)strategy->n_local * n;
    if (status == MU_OK && workers > 1)
        status = mu__workers_gather_blocks(strategy, what, MU_F64, parts, all, counts);
    const double *from = workers > 1 ? all : parts;
    for (int i = 0; status == MU_OK && i < n; i++) {
        sums[i] = 0;
        for (int r = 0; r < strategy->n_replicas; r++)
            sums[i] += from[r * n + i];
    }
    mu__free(counts);
    mu__free(all);
    return status;
}

mu_status mu__workers_take(mu_strategy *strategy, const char *what, mu_dtype dtype, void *data, int64_t n, int worker)
{
    int64_t number;
    if (strategy->n_workers < 2)
        return MU_OK;
    mu_collective *all = meeting(strategy, what, &number);
    return met(strategy, all->broadcast(all, number, what, dtype, data, n, worker));
}

mu_tensor *mu__workers_take_tensor(mu_strategy *strategy, const char *what, mu_tensor *mine)
{
    if (!mine || strategy->n_workers < 2)
        return mine;
    mu_tensor *copy = mu__give(mu__tensor_alloc(mine->dtype, &mine->shape));
    if (!copy)
        return NULL;
    const mu_spec spec = mu__spec_of(mine);
    memcpy(mu__data(copy), mu__data(mine), mu__spec_bytes(&spec));
    const mu_status status =
        mu__workers_take(strategy, what, mine->dtype, mu__data(copy), mu__elements(&mine->shape), 0);
    return status == MU_OK ? copy : NULL;
}

mu_status mu__workers_least(mu_strategy *strategy, const char *what, int64_t *number)
{
    int64_t identity;
    mu_collective *all = meeting(strategy, what, &identity);
    return met(strategy, all->all_reduce(all, identity, what, MU_REDUCTION_MIN, MU_I64, number, 1));
}

mu_status mu__workers_written(mu_strategy *strategy, mu_status status)
{
    int64_t nothing = 0;
    if (!strategy || strategy->n_workers < 2)
        return status;
    if (status != MU_OK) {
        mu__strategy_failed(strategy);
        return status;
    }
    return mu__workers_add(strategy, "file is written", MU_I64, &nothing, 1);
}

char *mu__workers_take_text(mu_strategy *strategy, const char *what, const char *own, int worker)
{
    const bool mine = strategy->worker == worker;
    int64_t bytes = mine && own ? (int64_t)strlen(own) : 0;
    if (mu__workers_take(strategy, what, MU_I64, &bytes, 1, worker) != MU_OK)
        return NULL;
    char *text = mu__calloc((size_t)bytes + 1, 1);
    if (text && mine && own)
        memcpy(text, own, (size_t)bytes);
    if (text && mu__workers_take(strategy, what, MU_U8, text, bytes, worker) == MU_OK)
        return text;
    mu__free(text);
    return NULL;
}

// ---- Tensors of all -----------------------------------------------------------------------------

typedef struct gathering {
    mu_strategy *strategy;
    const char *what;
    int n, n_all;           // tensors of this worker, of all
    mu_tensor *const *mine;
    int64_t *headers;       // [n_all][HEADER]
    int64_t *counts;        // [workers]
    uint8_t *out, *in;      // the bytes of all, and of this worker
} gathering;

static mu_status exchange_headers(gathering *g)
{
    int64_t *mine = mu__calloc((size_t)g->n, HEADER * sizeof *mine);
    if (!mine)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < g->n; i++) {
        int64_t *header = mine + i * HEADER;
        header[0] = g->mine[i]->dtype;
        header[1] = g->mine[i]->shape.rank;
        for (int d = 0; d < g->mine[i]->shape.rank; d++)
            header[2 + d] = g->mine[i]->shape.dims[d];
    }
    for (int w = 0; w < g->strategy->n_workers; w++)
        g->counts[w] = (int64_t)g->n * HEADER;
    mu_status status = mu__workers_gather_blocks(g->strategy, g->what, MU_I64, mine, g->headers, g->counts);
    mu__free(mine);
    return status;
}

static mu_spec spec_at(const gathering *g, int i)
{
    const int64_t *header = g->headers + i * HEADER;
    return (mu_spec){.dtype = (mu_dtype)header[0], .shape = mu_shape_make((int)header[1], header + 2)};
}

static mu_status exchange_bytes(gathering *g)
{
    size_t at = 0, total = 0;
    for (int w = 0; w < g->strategy->n_workers; w++) {
        g->counts[w] = 0;
        for (int i = 0; i < g->n; i++) {
            const mu_spec spec = spec_at(g, w * g->n + i);
            g->counts[w] += (int64_t)mu__spec_bytes(&spec);
        }
        total += (size_t)g->counts[w];
    }
    g->in = mu__alloc((size_t)g->counts[g->strategy->worker]);
    g->out = mu__alloc(total);
    if (!g->in || !g->out)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < g->n; i++) {
        const mu_spec spec = mu__spec_of(g->mine[i]);
        memcpy(g->in + at, mu__data(g->mine[i]), mu__spec_bytes(&spec));
        at += mu__spec_bytes(&spec);
    }
    return mu__workers_gather_blocks(g->strategy, g->what, MU_U8, g->in, g->out, g->counts);
}

static mu_status unpack(const gathering *g, mu_tensor **all)
{
    size_t at = 0;
    for (int i = 0; i < g->n_all; i++) {
        const mu_spec spec = spec_at(g, i);
        if (!(all[i] = mu__give(mu__tensor_alloc(spec.dtype, &spec.shape))))
            return mu_error_code();
        memcpy(mu__data(all[i]), g->out + at, mu__spec_bytes(&spec));
        at += mu__spec_bytes(&spec);
    }
    return MU_OK;
}

mu_tensor **mu__workers_gather(mu_strategy *strategy, const char *what, int n, mu_tensor *const *mine)
{
    gathering g = {.strategy = strategy, .what = what, .n = n, .n_all = n * strategy->n_workers, .mine = mine};
    mu_tensor **all = mu__calloc((size_t)g.n_all + 1, sizeof *all);
    if (!all)
        return NULL;
    if (strategy->n_workers < 2) {
        memcpy(all, mine, sizeof *all * (size_t)n);
        return all;
    }
    g.headers = mu__calloc((size_t)g.n_all, HEADER * sizeof *g.headers);
    g.counts = mu__calloc((size_t)strategy->n_workers, sizeof *g.counts);
    mu_status status = g.headers && g.counts ? exchange_headers(&g) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = exchange_bytes(&g);
    if (status == MU_OK)
        status = unpack(&g, all);
    mu__free(g.headers);
    mu__free(g.counts);
    mu__free(g.in);
    mu__free(g.out);
    if (status == MU_OK)
        return all;
    mu__free(all);
    return NULL;
}

void mu__strategy_doing(const mu_strategy *strategy, const char *what, int64_t number)
{
    if (strategy && strategy->mesh)
        mu__mesh_doing(strategy->mesh, what, number, NULL);
}

void mu__strategy_done(mu_strategy *strategy)
{
    if (!strategy->mesh)
        return;
    pthread_mutex_lock(&strategy->order);
    const int64_t step = strategy->under_way > 0 ? strategy->runs : -1;
    pthread_mutex_unlock(&strategy->order);
    mu__mesh_doing(strategy->mesh, step < 0 ? "running the program" : "in step", step, NULL);
}

void mu__strategy_failed(const mu_strategy *strategy)
{
    mu_error_value error;
    if (!strategy->mesh || !mu__pending())
        return;
    mu__error_move(&error);
    mu__mesh_fail(strategy->mesh, &error);
    mu__error_raise(&error);
}
