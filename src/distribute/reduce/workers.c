// Collectives of workers outside of steps: add numbers, gather tensors, take the chief's tensors.
//
// The workers have a group of their own, with one rank per worker, and use it in program order, so the replicas may run
// a step meanwhile. Every worker gathers all tensors and combines them in replica order, so all get the same bits, and
// the same as with all replicas in one process.
#include "distribute/distribute.h"

#include <muster/ops.h>

#include <signal.h>

static mu_collective *begin_rendezvous(mu_strategy *strategy, const char *what, int64_t *number)
{
    mu_collective *collective = mu__group_member(strategy->workers, 0);
    *number = ++strategy->n_rendezvous;
    mu__mesh_doing(strategy->mesh, "in rendezvous", *number, what);
    return collective;
}

// Ends a rendezvous with this status.
static mu_status end_rendezvous(mu_strategy *strategy, mu_status status)
{
    mu__strategy_done(strategy);
    return status;
}

static mu_status all_reduce(mu_strategy *strategy, const char *what, mu_reduction reduction, mu_dtype dtype,
                            void *numbers, int64_t n)
{
    int64_t number;
    mu_collective *all = begin_rendezvous(strategy, what, &number);
    return end_rendezvous(strategy, all->all_reduce(all, number, what, reduction, dtype, numbers, n));
}

static mu_status agree(mu_strategy *strategy, const char *what, int64_t numbers[2])
{
    const int stop = mu__stop_signal();
    int64_t all[] = {numbers[0], numbers[1], stop == SIGTERM, stop == SIGINT, strategy->progress_due};
    MU_TRY(all_reduce(strategy, what, MU_REDUCTION_SUM, MU_I64, all, MU_COUNT(all)));
    numbers[0] = all[0];
    numbers[1] = all[1];
    strategy->progress_agreed = all[4] > 0;
    if (all[2] + all[3] > 0) {
        mu__stop_by(all[2] > 0 ? SIGTERM : SIGINT);
        strategy->stopping = true;
    }
    return MU_OK;
}

static mu_status all_gather(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype,
                            const void *mine, void *all, const int64_t *counts)
{
    int64_t number;
    mu_collective *collective = begin_rendezvous(strategy, what, &number);
    if (form)
        *collective->form = *form;
    return end_rendezvous(
        strategy, collective->all_gather(collective, number, what, dtype, mine, counts[strategy->worker], all, counts));
}

static mu_status broadcast(mu_strategy *strategy, const char *what, const mu_form *form, mu_dtype dtype, void *data,
                           int64_t n, int worker)
{
    int64_t number;
    mu_collective *all = begin_rendezvous(strategy, what, &number);
    if (form)
        *all->form = *form;
    return end_rendezvous(strategy, all->broadcast(all, number, what, dtype, data, n, worker));
}

static mu_tensor *broadcast_tensor(mu_strategy *strategy, const char *what, mu_tensor *mine)
{
    mu_tensor *copy = mine ? mu__give(mu__tensor_alloc(mine->dtype, &mine->shape)) : NULL;
    if (!copy)
        return NULL;
    const mu_spec spec = mu__spec_of(mine);
    if (mu_tensor_copy_to(mine, mu__host_write(copy), mu__spec_bytes(&spec)) != MU_OK)
        return NULL;
    mu_form form;
    mu__form_begin(&form, MU_NO_AXIS);
    mu__form_add(&form, mine->dtype, &mine->shape);
    const mu_status status =
        broadcast(strategy, what, &form, mine->dtype, mu__host_write(copy), mu__elements(&mine->shape), 0);
    return status == MU_OK ? copy : NULL;
}

// Every worker has a value of its own, which all its replicas use: the mean counts it once for each.
static mu_tensor *common_value(mu_strategy *strategy, const char *what, bool mean, mu_tensor *value)
{
    mu_tensor *reduced = NULL, *parts[MU_MAX_REPLICAS];
    if (mu__replica())
        return !mean ? mu__broadcast_from_first(value, what)
               : mu__all_reduce_list(MU_REDUCTION_MEAN, 1, &value, &reduced, &what, 0) == MU_OK ? reduced
                                                                                                : NULL;
    if (!mean)
        return broadcast_tensor(strategy, what, value);
    for (int r = 0; r < strategy->n_local; r++)
        parts[r] = value;
    return mu__reduce_replicas(strategy, what, MU_MEAN, strategy->n_local, parts);
}

// Fetches the blocks of all workers' replicas and adds them in replica order.
static mu_status reduce_arrays(mu_strategy *strategy, const mu_replica_arrays *a)
{
    char what[MU_WHAT_BYTES];
    snprintf(what, sizeof what, "all_reduce %s, %s", mu__reduction_name(a->reduction), a->name);
    const int all = strategy->n_replicas;
    const size_t bytes = (size_t)a->count * mu_dtype_bytes(a->dtype);
    char *mine = mu__alloc(bytes * (size_t)a->n), *blocks = mu__alloc(bytes * (size_t)all);
    int64_t *counts = mu__calloc((size_t)strategy->n_workers, sizeof *counts);
    const void **src = mu__calloc((size_t)all, sizeof *src);
    mu_status status = mine && blocks && counts && src ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int w = 0; status == MU_OK && w < strategy->n_workers; w++)
        counts[w] = a->count * a->n;
    for (int r = 0; status == MU_OK && r < a->n; r++)
        memcpy(mine + bytes * (size_t)r, a->data[r], bytes);
    for (int r = 0; status == MU_OK && r < all; r++)
        src[r] = blocks + bytes * (size_t)r;
    if (status == MU_OK)
        status = all_gather(strategy, what, a->form, a->dtype, mine, blocks, counts);
    if (status == MU_OK)
        mu__reduce_replica_arrays(a, all, src);
    mu__free(src);
    mu__free(counts);
    mu__free(blocks);
    mu__free(mine);
    return status;
}

// This worker's blocks for each worker, one after the other: of each replica here for each replica there.
static void pack_blocks(const mu_strategy *strategy, const mu_replica_arrays *a, size_t bytes, char *out)
{
    for (int worker = 0; worker < strategy->n_workers; worker++)
        for (int from = 0; from < a->n; from++, out += bytes * (size_t)a->n)
            memcpy(out, (const char *)a->data[from] + bytes * (size_t)(worker * a->n), bytes * (size_t)a->n);
}

// Every worker sends each other one the blocks of its replicas, which are added in replica order.
static mu_status scatter_arrays(mu_strategy *strategy, const mu_replica_arrays *a)
{
    char what[MU_WHAT_BYTES];
    const int all = strategy->n_replicas;
    const size_t bytes = (size_t)a->count * mu_dtype_bytes(a->dtype), whole = bytes * (size_t)all * (size_t)a->n;
    char *mine = mu__alloc(whole), *blocks = mu__alloc(whole);
    const void **src = mu__calloc((size_t)all, sizeof *src);
    mu_status status = mine && blocks && src ? MU_OK : MU_RESOURCE_EXHAUSTED;
    snprintf(what, sizeof what, "reduce_scatter %s", a->name);
    if (status == MU_OK) {
        int64_t number;
        mu_collective *workers = begin_rendezvous(strategy, what, &number);
        pack_blocks(strategy, a, bytes, mine);
        *workers->form = *a->form;
        status = end_rendezvous(
            strategy, mu__collective_all_to_all(workers, number, what, a->dtype, mine, blocks, a->count * a->n * a->n));
    }
    for (int to = 0; status == MU_OK && to < a->n; to++) {
        for (int from = 0; from < all; from++)
            src[from] = blocks + bytes * (size_t)(from * a->n + to);
        mu__reduce_replica_block(a, all, src, a->out[to]);
    }
    mu__free(src);
    mu__free(blocks);
    mu__free(mine);
    return status;
}

// ---- Tensors of all -----------------------------------------------------------------------------

typedef struct gathering {
    mu_strategy *strategy;
    const char *what;
    int n, n_all; // tensors of this worker, and of all workers
    mu_tensor *const *mine;
    mu_spec *specs;    // [n_all]
    int64_t *counts;   // [workers]
    uint8_t *out, *in; // bytes of all workers, and of this one
    mu_tensor **all;   // the received tensors
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
                "\"%s\": %s sent an invalid description of its tensor (type %lld, rank %lld, sizes %lld, %lld, ...); "
                "its memory or the network between is damaged, or it is not a worker of this job",
                g->what, mu__mesh_name(g->strategy->mesh, i / g->n), (long long)h[0], (long long)h[1], (long long)h[2],
                (long long)h[3]);
        }
    return MU_OK;
}

static mu_status exchange_headers(gathering *g)
{
    int workers;
    int64_t *mine = mu__calloc((size_t)g->n, MU_HEADER_INTS * sizeof *mine), *all = NULL;
    for (int i = 0; mine && i < g->n; i++)
        mu__header_write(g->mine[i], mine + i * MU_HEADER_INTS);
    if (mine)
        all = mu__workers_gather_equal(g->strategy, g->what, MU_I64, (int64_t)g->n * MU_HEADER_INTS, mine, &workers);
    const mu_status status = all ? read_headers(g, all) : mu_error_code();
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
            return mu__error(
                MU_RESOURCE_EXHAUSTED,
                "\"%s\": the tensors of all workers have more bytes than can be counted; gather smaller ones", g->what);
    g->in = mu__alloc((size_t)g->counts[g->strategy->worker]);
    g->out = mu__alloc((size_t)total);
    if (!g->in || !g->out)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < g->n; i++) {
        const mu_spec spec = mu__spec_of(g->mine[i]);
        MU_TRY(mu_tensor_copy_to(g->mine[i], g->in + at, mu__spec_bytes(&spec)));
        at += mu__spec_bytes(&spec);
    }
    return all_gather(g->strategy, g->what, NULL, MU_U8, g->in, g->out, g->counts);
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
    for (int i = 0; i < g->n; i++)
        if (mu__has_strings(g->mine[i]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "\"%s\": strings cannot be exchanged by collectives; turn them into numbers first, or "
                             "send them by mu_rpc_call",
                             g->what);
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

static mu_tensor **gather(mu_strategy *strategy, const char *what, int n, mu_tensor *const *mine, int *n_all)
{
    gathering g = {.strategy = strategy, .what = what, .n = n, .n_all = n * strategy->n_workers, .mine = mine};
    mu_status status = open_gathering(&g);
    if (status == MU_OK)
        status = exchange_headers(&g);
    if (status == MU_OK)
        status = exchange_bytes(&g);
    if (status == MU_OK)
        status = unpack(&g);
    mu_tensor **all = close_gathering(&g);
    *n_all = g.n_all;
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
    MU_TRY(mu__need_numbers(name, first.dtype));
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
    int n_all;
    mu_tensor **parts = mu__pending() ? NULL : gather(g->strategy, g->what, g->n, mine, &n_all);
    if (parts)
        reduced = mu__reduce_tensors(op, n_all, parts);
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
        if (piece && !whole) // a mean may have another type than its parts
            whole = mu__tensor_alloc(piece->dtype, &spec.shape);
        if (piece && whole)
            memcpy((char *)mu__host_write(whole) + (size_t)at * mu_dtype_bytes(piece->dtype), mu__host_read(piece),
                   (size_t)mu__elements(&piece->shape) * mu_dtype_bytes(piece->dtype));
        mu_pool_close(pool);
    }
    return mu__give(whole);
}

static mu_tensor *reduce(mu_strategy *strategy, const mu_parts_name *name, const mu_cross_device_ops *ops,
                         mu_reduce_op op, int n, mu_tensor *const *mine)
{
    char what[MU_WHAT_BYTES];
    snprintf(what, sizeof what, "reduce %s, %s", op == MU_SUM ? "sum" : "mean", name->what);
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

// ---- What this worker is doing ------------------------------------------------------------------

static const char *worker_name(const mu_strategy *strategy, int worker)
{
    return mu__mesh_name(strategy->mesh, worker);
}

static void doing(const mu_strategy *strategy, const char *what, int64_t number)
{
    mu__mesh_doing(strategy->mesh, what, number, NULL);
}

static void done(mu_strategy *strategy)
{
    pthread_mutex_lock(&strategy->order);
    const int64_t step = strategy->under_way > 0 ? strategy->runs : -1;
    pthread_mutex_unlock(&strategy->order);
    mu__mesh_doing(strategy->mesh, step < 0 ? "running the program" : "in step", step, NULL);
}

static void failed(const mu_strategy *strategy)
{
    mu_error_value error;
    mu__error_move(&error);
    mu__mesh_fail(strategy->mesh, &error);
    mu__error_raise(&error);
}

// A job of several processes is not usable again.
static void recover(mu_strategy *strategy) { (void)strategy; }

// Workers stop together, after the step at which all of them have learnt of the signal; until then the signal
// interrupts nothing else.
static void hold_stop(bool hold)
{
    if (hold)
        mu__stop_hold();
    else
        mu__stop_let_go();
}

static mu_status check_stop(const mu_strategy *strategy) { return strategy->stopping ? mu__stopped() : MU_OK; }

const mu_cross_worker_ops mu__many_workers = {
    .chief_writes = true,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .broadcast_tensor = broadcast_tensor,
    .gather = gather,
    .reduce = reduce,
    .reduce_arrays = reduce_arrays,
    .scatter_arrays = scatter_arrays,
    .common_value = common_value,
    .join_specs = mu__workers_join_specs,
    .agree = agree,
    .worker_name = worker_name,
    .doing = doing,
    .done = done,
    .failed = failed,
    .recover = recover,
    .hold_stop = hold_stop,
    .check_stop = check_stop,
};
