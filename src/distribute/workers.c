// Collectives of workers outside of steps: add numbers, gather tensors, take the chief's tensors.
//
// The workers have a group of their own, with one rank per worker, and use it in program order, so the replicas may run
// a step meanwhile. Every worker gathers all tensors and combines them in replica order, so all get the same bits, and
// the same as with all replicas in one process. With one worker each function does nothing.
#include "distribute/distribute.h"

#include <muster/ops.h>

#include <signal.h>

// Bounds the texts that workers exchange (states of pipelines, structures of elements); real ones are far shorter.
enum { LONGEST_TEXT = 64 << 20 };

static mu_collective *begin_rendezvous(mu_strategy *strategy, const char *what, int64_t *number)
{
    mu_collective *collective = mu__group_member(strategy->workers, 0);
    *number = ++strategy->n_rendezvous;
    mu__mesh_doing(strategy->mesh, "in meeting", *number, what);
    return collective;
}

// Ends a rendezvous with this status.
static mu_status end_rendezvous(mu_strategy *strategy, mu_status status)
{
    mu__strategy_done(strategy);
    return status;
}

mu_status mu__workers_add(mu_strategy *strategy, const char *what, mu_dtype dtype, void *numbers, int64_t n)
{
    int64_t number;
    if (strategy->n_workers < 2)
        return MU_OK;
    mu_collective *all = begin_rendezvous(strategy, what, &number);
    return end_rendezvous(strategy, all->all_reduce(all, number, what, MU_REDUCTION_SUM, dtype, numbers, n));
}

mu_status mu__workers_agree(mu_strategy *strategy, const char *what, int64_t numbers[2])
{
    const int stop = mu__stop_signal();
    int64_t all[] = {numbers[0], numbers[1], stop == SIGTERM, stop == SIGINT, strategy->wants_values};
    MU_TRY(mu__workers_add(strategy, what, MU_I64, all, MU_COUNT(all)));
    numbers[0] = all[0];
    numbers[1] = all[1];
    strategy->values_wanted = all[4] > 0;
    if (all[2] + all[3] > 0) {
        mu__stop_by(all[2] > 0 ? SIGTERM : SIGINT);
        strategy->stopping = true;
    }
    return MU_OK;
}

mu_status mu__workers_gather_blocks(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype,
                                    const void *mine, void *all, const int64_t *counts)
{
    int64_t number;
    mu_collective *collective = begin_rendezvous(strategy, what, &number);
    if (form)
        *collective->form = *form;
    return end_rendezvous(strategy, collective->all_gather(collective, number, what, dtype, mine,
                                                           counts[strategy->worker], all,
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
        status = mu__workers_gather_blocks(strategy, what, NULL, MU_F64, parts, all, counts);
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

mu_status mu__workers_take(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype, void *data,
                           int64_t n, int worker)
{
    int64_t number;
    if (strategy->n_workers < 2)
        return MU_OK;
    mu_collective *all = begin_rendezvous(strategy, what, &number);
    if (form)
        *all->form = *form;
    return end_rendezvous(strategy, all->broadcast(all, number, what, dtype, data, n, worker));
}

mu_tensor *mu__workers_take_tensor(mu_strategy *strategy, const char *what, mu_tensor *mine)
{
    if (!mine || strategy->n_workers < 2)
        return mine;
    mu_tensor *copy = mu__give(mu__tensor_alloc(mine->dtype, &mine->shape));
    if (!copy)
        return NULL;
    const mu_spec spec = mu__spec_of(mine);
    if (mu_tensor_copy_to(mine, mu__host_write(copy), mu__spec_bytes(&spec)) != MU_OK)
        return NULL;
    mu_form form;
    mu__form_begin(&form, MU_NO_AXIS);
    mu__form_add(&form, mine->dtype, &mine->shape);
    const mu_status status =
        mu__workers_take(strategy, what, &form, mine->dtype, mu__host_write(copy), mu__elements(&mine->shape), 0);
    return status == MU_OK ? copy : NULL;
}

mu_status mu__workers_least(mu_strategy *strategy, const char *what, int64_t *number)
{
    int64_t identity;
    mu_collective *all = begin_rendezvous(strategy, what, &identity);
    return end_rendezvous(strategy, all->all_reduce(all, identity, what, MU_REDUCTION_MIN, MU_I64, number, 1));
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
    if (mu__workers_take(strategy, what, NULL, MU_I64, &bytes, 1, worker) != MU_OK)
        return NULL;
    if (bytes < 0 || bytes > LONGEST_TEXT) {
        mu__error(MU_DATA_LOSS, "\"%s\": %s sends a text of %lld bytes; at most %d are possible", what,
                  mine || !strategy->mesh ? "this worker" : mu__mesh_name(strategy->mesh, worker), (long long)bytes,
                  LONGEST_TEXT);
        return NULL;
    }
    char *text = mu__calloc((size_t)bytes + 1, 1);
    if (text && mine && own)
        memcpy(text, own, (size_t)bytes);
    if (text && mu__workers_take(strategy, what, NULL, MU_U8, text, bytes, worker) == MU_OK)
        return text;
    mu__free(text);
    return NULL;
}

// ---- Tensors of all -----------------------------------------------------------------------------

typedef struct gathering {
    mu_strategy *strategy;
    const char *what;
    int n, n_all;           // tensors of this worker, and of all workers
    mu_tensor *const *mine;
    mu_spec *specs;         // [n_all]
    int64_t *counts;        // [workers]
    uint8_t *out, *in;      // bytes of all workers, and of this one
    mu_tensor **all;        // the received tensors
} gathering;

void mu__header_write(const mu_tensor *tensor, int64_t out[MU_HEADER_INTS])
{
    memset(out, 0, sizeof *out * MU_HEADER_INTS);
    out[0] = tensor->dtype;
    out[1] = tensor->shape.rank;
    memcpy(out + 2, tensor->shape.dims, sizeof *out * (size_t)tensor->shape.rank);
}

bool mu__header_read(const int64_t in[MU_HEADER_INTS], mu_spec *out)
{
    mu_error_value why;
    if (in[0] < 0 || in[0] > INT32_MAX || !mu__dtype_ok((mu_dtype)in[0]) || in[1] < 0 || in[1] > MU_MAX_RANK)
        return false;
    *out = (mu_spec){.dtype = (mu_dtype)in[0], .shape = mu_shape_make((int)in[1], in + 2)};
    if (mu__shape_check(&out->shape, "header") == MU_OK)
        return mu__shape_known(&out->shape);
    mu__error_move(&why);
    return false;
}

static mu_status read_headers(gathering *g, const int64_t *headers)
{
    for (int i = 0; i < g->n_all; i++)
        if (!mu__header_read(headers + i * MU_HEADER_INTS, &g->specs[i])) {
            const int64_t *h = headers + i * MU_HEADER_INTS;
            return mu__error(
                MU_DATA_LOSS,
                "\"%s\": what %s says of its tensor cannot be (type %lld, rank %lld, sizes %lld, %lld, ...); "
                "its memory or the network between is damaged, or it is not a worker of this job",
                g->what, mu__mesh_name(g->strategy->mesh, i / g->n), (long long)h[0], (long long)h[1], (long long)h[2],
                (long long)h[3]);
        }
    return MU_OK;
}

static mu_status exchange_headers(gathering *g)
{
    int64_t *mine = mu__calloc((size_t)g->n, MU_HEADER_INTS * sizeof *mine);
    int64_t *all = mu__calloc((size_t)g->n_all, MU_HEADER_INTS * sizeof *all);
    mu_status status = mine && all ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < g->n; i++)
        mu__header_write(g->mine[i], mine + i * MU_HEADER_INTS);
    for (int w = 0; w < g->strategy->n_workers; w++)
        g->counts[w] = (int64_t)g->n * MU_HEADER_INTS;
    if (status == MU_OK)
        status = mu__workers_gather_blocks(g->strategy, g->what, NULL, MU_I64, mine, all, g->counts);
    if (status == MU_OK)
        status = read_headers(g, all);
    mu__free(all);
    mu__free(mine);
    return status;
}

// The bytes of one worker's tensors; false on overflow.
static bool count_bytes(const gathering *g, int worker, int64_t *total)
{
    int64_t *own = &g->counts[worker];
    *own = 0;
    for (int i = worker * g->n; i < (worker + 1) * g->n; i++)
        if (__builtin_add_overflow(*own, (int64_t)mu__spec_bytes(&g->specs[i]), own))
            return false;
    return !__builtin_add_overflow(*total, *own, total);
}

static mu_status exchange_bytes(gathering *g)
{
    size_t at = 0;
    int64_t total = 0;
    for (int w = 0; w < g->strategy->n_workers; w++)
        if (!count_bytes(g, w, &total))
            return mu__error(MU_RESOURCE_EXHAUSTED,
                             "\"%s\": the tensors of all workers have more bytes than can be counted; "
                             "gather smaller ones",
                             g->what);
    g->in = mu__alloc((size_t)g->counts[g->strategy->worker]);
    g->out = mu__alloc((size_t)total);
    if (!g->in || !g->out)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < g->n; i++) {
        const mu_spec spec = mu__spec_of(g->mine[i]);
        MU_TRY(mu_tensor_copy_to(g->mine[i], g->in + at, mu__spec_bytes(&spec)));
        at += mu__spec_bytes(&spec);
    }
    return mu__workers_gather_blocks(g->strategy, g->what, NULL, MU_U8, g->in, g->out, g->counts);
}

static mu_status unpack(gathering *g)
{
    size_t at = 0;
    for (int i = 0; i < g->n_all; i++) {
        const mu_spec spec = g->specs[i];
        if (!(g->all[i] = mu__give(mu__tensor_alloc(spec.dtype, &spec.shape))))
            return mu_error_code();
        memcpy(mu__host_write(g->all[i]), g->out + at, mu__spec_bytes(&spec));
        at += mu__spec_bytes(&spec);
    }
    return MU_OK;
}

static mu_status open_gathering(gathering *g)
{
    g->all = mu__calloc((size_t)g->n_all + 1, sizeof *g->all);
    g->specs = mu__calloc((size_t)g->n_all, sizeof *g->specs);
    g->counts = mu__calloc((size_t)g->strategy->n_workers, sizeof *g->counts);
    return g->all && g->specs && g->counts ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Frees everything except the list of tensors, which it returns.
static mu_tensor **close_gathering(gathering *g)
{
    mu__free(g->specs);
    mu__free(g->counts);
    mu__free(g->in);
    mu__free(g->out);
    return g->all;
}

mu_tensor **mu__workers_gather(mu_strategy *strategy, const char *what, int n, mu_tensor *const *mine)
{
    gathering g = {.strategy = strategy, .what = what, .n = n, .n_all = n * strategy->n_workers, .mine = mine};
    mu_status status = open_gathering(&g);
    if (status == MU_OK && strategy->n_workers < 2)
        memcpy(g.all, mine, sizeof *g.all * (size_t)n);
    if (status == MU_OK && strategy->n_workers >= 2)
        status = exchange_headers(&g);
    if (status == MU_OK && strategy->n_workers >= 2)
        status = exchange_bytes(&g);
    if (status == MU_OK && strategy->n_workers >= 2)
        status = unpack(&g);
    mu_tensor **all = close_gathering(&g);
    if (status == MU_OK)
        return all;
    mu__free(all);
    return NULL;
}

// ---- Reduced by all -----------------------------------------------------------------------------

// Larger tensors are fetched and combined in pieces: the bits are the same, and no worker needs memory for all parts.
#define PIECE_BYTES ((size_t)1 << 20)

static bool go_in_pieces(const gathering *g)
{
    const mu_spec first = g->specs[0];
    return mu__spec_bytes(&first) > PIECE_BYTES;
}

// All workers have the same headers, so all of them fail alike.
static mu_status same_headers(const gathering *g, const mu_parts_name *name)
{
    const mu_spec first = g->specs[0];
    for (int i = 1; i < g->n_all; i++) {
        const mu_spec other = g->specs[i];
        MU_TRY(mu__same_part(name, i, &first, &other));
    }
    return MU_OK;
}

// Combines elements [at, at + count) of all parts; the result belongs to the pool.
static mu_tensor *combine_piece(const gathering *g, mu_reduce_op op, int64_t at, int64_t count)
{
    mu_tensor *mine[MU_MAX_REPLICAS], *reduced = NULL;
    const int64_t all = -1;
    for (int i = 0; i < g->n; i++)
        mine[i] = mu_slice(mu_reshape(g->mine[i], 1, &all), &at, &count);
    mu_tensor **parts = mu__pending() ? NULL : mu__workers_gather(g->strategy, g->what, g->n, mine);
    if (parts)
        reduced = mu__reduce_tensors(op, g->n_all, parts);
    mu__free(parts);
    return reduced;
}

static mu_tensor *reduce_in_pieces(const gathering *g, mu_reduce_op op)
{
    const mu_spec spec = g->specs[0];
    const int64_t total = mu__elements(&spec.shape), most = (int64_t)(PIECE_BYTES / mu_dtype_bytes(spec.dtype));
    mu_tensor *whole = NULL;
    for (int64_t at = 0; at < total && !mu__pending(); at += most) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *piece = combine_piece(g, op, at, MU_MIN(most, total - at));
        if (piece && !whole)  // a mean may have another type than its parts
            whole = mu__tensor_alloc(piece->dtype, &spec.shape);
        if (piece && whole)
            memcpy((char *)mu__host_write(whole) + (size_t)at * mu_dtype_bytes(piece->dtype), mu__host_read(piece),
                   (size_t)mu__elements(&piece->shape) * mu_dtype_bytes(piece->dtype));
        mu_pool_close(pool);
    }
    return mu__give(whole);
}

mu_tensor *mu__workers_reduce(mu_strategy *strategy, const mu_parts_name *name, const mu_cross_device_ops *ops,
                              mu_reduce_op op, int n, mu_tensor *const *mine)
{
    const char *what = op == MU_SUM ? "reduce sum" : "reduce mean";
    gathering g = {.strategy = strategy, .what = what, .n = n, .n_all = n * strategy->n_workers, .mine = mine};
    mu_tensor *reduced = NULL;
    if (open_gathering(&g) == MU_OK && exchange_headers(&g) == MU_OK && same_headers(&g, name) == MU_OK) {
        if (!ops && go_in_pieces(&g))
            reduced = reduce_in_pieces(&g, op);
        else if (exchange_bytes(&g) == MU_OK && unpack(&g) == MU_OK)
            reduced = mu__cross_device_reduce(ops, op, g.n_all, g.all);
    }
    mu__free(close_gathering(&g));
    return reduced;
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
