// Collectives of eager replicas: each replica pauses in one, and the coordinator carries it out for all of this worker.
//
// With several workers the coordinators communicate with each other, through the strategy's cross-worker slots, and
// combine the parts in replica order.
#include "distribute/run/eager_replicas.h"

// ---- On a replica's thread ----------------------------------------------------------------------

static eager_replica *eager_replica_of(const mu_collective *self)
{
    return (eager_replica *)((char *)self - offsetof(eager_replica, collective));
}

// The form describes this operation only, so it is cleared for the next.
static mu_status rendezvous_in(mu_collective *self, rendezvous *what)
{
    eager_replica *t = eager_replica_of(self);
    what->form = &t->form;
    const mu_status status = mu__eager_rendezvous(t, what);
    t->form.hash = 0;
    return status;
}

static mu_status rendezvous_all_reduce(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                       mu_dtype dtype, void *data, int64_t count)
{
    (void)number;
    return rendezvous_in(self, &(rendezvous){.kind = RENDEZVOUS_REDUCE,
                                             .name = name,
                                             .reduction = reduction,
                                             .dtype = dtype,
                                             .data = data,
                                             .count = count});
}

static mu_status rendezvous_all_gather(mu_collective *self, int64_t number, const char *name, mu_dtype dtype,
                                       const void *in, int64_t count, void *out, const int64_t *counts)
{
    (void)number;
    return rendezvous_in(self, &(rendezvous){.kind = RENDEZVOUS_GATHER,
                                             .name = name,
                                             .dtype = dtype,
                                             .in = in,
                                             .count = count,
                                             .data = out,
                                             .counts = counts});
}

static mu_status rendezvous_broadcast(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, void *data,
                                      int64_t count, int root)
{
    (void)number;
    return rendezvous_in(
        self,
        &(rendezvous){
            .kind = RENDEZVOUS_BROADCAST, .name = name, .dtype = dtype, .data = data, .count = count, .root = root});
}

static mu_status rendezvous_reduce_scatter(mu_collective *self, int64_t number, const char *name,
                                           mu_reduction reduction, mu_dtype dtype, const void *in, void *out,
                                           int64_t count)
{
    (void)number;
    return rendezvous_in(self, &(rendezvous){.kind = RENDEZVOUS_SCATTER,
                                             .name = name,
                                             .reduction = reduction,
                                             .dtype = dtype,
                                             .in = in,
                                             .data = out,
                                             .count = count});
}

static mu_status rendezvous_permute(mu_collective *self, int64_t number, const char *name, mu_dtype dtype,
                                    const void *in, void *out, int64_t count, const int64_t *sources)
{
    (void)number;
    return rendezvous_in(self, &(rendezvous){.kind = RENDEZVOUS_PERMUTE,
                                             .name = name,
                                             .dtype = dtype,
                                             .in = in,
                                             .data = out,
                                             .count = count,
                                             .counts = sources});
}

void mu__eager_collective(mu_collective *collective)
{
    collective->all_reduce = rendezvous_all_reduce;
    collective->all_gather = rendezvous_all_gather;
    collective->broadcast = rendezvous_broadcast;
    collective->reduce_scatter = rendezvous_reduce_scatter;
    collective->permute = rendezvous_permute;
}

// ---- On the coordinating thread -----------------------------------------------------------------

// `mine` is this worker's part, already at its position in the result.
static mu_status gather_with_others(const struct mu_eager_replicas *run, const void *mine)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    mu_strategy *strategy = run->strategy;
    int64_t *counts = mu__calloc((size_t)(strategy->n_replicas / run->n), sizeof *counts);
    if (!counts)
        return MU_RESOURCE_EXHAUSTED;
    for (int r = 0; r < strategy->n_replicas; r++)
        counts[r / run->n] += first->counts[r];
    mu_status status = strategy->ops->cross_worker->all_gather(strategy, first->name, first->form, first->dtype, mine,
                                                               first->data, counts);
    mu__free(counts);
    return status;
}

static mu_status check_reducible(const rendezvous *what, const char *operation)
{
    if (mu__reduce_supports(what->dtype))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s cannot be reduced; cast it to a number", operation,
                     mu_dtype_name(what->dtype));
}

static mu_status reduce_at_rendezvous(const struct mu_eager_replicas *run)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    MU_TRY(check_reducible(first, "all_reduce"));
    void *data[MU_MAX_REPLICAS];
    for (int r = 0; r < run->n; r++)
        data[r] = run->replicas[r].rendezvous->data;
    const mu_replica_arrays arrays = {.name = first->name,
                                      .form = first->form,
                                      .reduction = first->reduction,
                                      .dtype = first->dtype,
                                      .count = first->count,
                                      .n = run->n,
                                      .data = data};
    return run->strategy->ops->cross_worker->reduce_arrays(run->strategy, &arrays);
}

static mu_status check_counts(const struct mu_eager_replicas *run, int from)
{
    const int64_t brought = run->replicas[from].rendezvous->count;
    const int id = run->strategy->first_replica + from;
    for (int to = 0; to < run->n; to++) {
        const int64_t expected = run->replicas[to].rendezvous->counts[id];
        if (expected != brought)
            return mu__error(MU_INVALID_ARGUMENT,
                             "all_gather: replica %d expects %lld elements of replica %d, which has %lld",
                             run->strategy->first_replica + to, (long long)expected, id, (long long)brought);
    }
    return MU_OK;
}

static mu_status gather_at_rendezvous(const struct mu_eager_replicas *run)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    const size_t element = mu_dtype_bytes(first->dtype);
    size_t at = 0;
    for (int r = 0; r < run->strategy->first_replica; r++)
        at += (size_t)first->counts[r] * element;
    char *const mine = (char *)first->data + at;
    size_t bytes = 0, total = 0;
    for (int from = 0; from < run->n; from++) {
        const rendezvous *source = run->replicas[from].rendezvous;
        MU_TRY(check_counts(run, from));
        memcpy(mine + bytes, source->in, (size_t)source->count * element);
        bytes += (size_t)source->count * element;
    }
    MU_TRY(gather_with_others(run, mine));
    for (int r = 0; r < run->strategy->n_replicas; r++)
        total += (size_t)first->counts[r] * element;
    for (int to = 1; to < run->n; to++)
        memcpy(run->replicas[to].rendezvous->data, first->data, total);
    return MU_OK;
}

static mu_status broadcast_at_rendezvous(const struct mu_eager_replicas *run)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    const int worker = first->root / run->n, local = worker == run->strategy->worker ? first->root % run->n : 0;
    const rendezvous *root = run->replicas[local].rendezvous;
    MU_TRY(run->strategy->ops->cross_worker->broadcast(run->strategy, first->name, first->form, root->dtype, root->data,
                                                       root->count, worker));
    for (int r = 0; r < run->n; r++)
        if (run->replicas[r].rendezvous != root)
            memcpy(run->replicas[r].rendezvous->data, root->data, (size_t)root->count * mu_dtype_bytes(root->dtype));
    return MU_OK;
}

static mu_status scatter_at_rendezvous(const struct mu_eager_replicas *run)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    void *data[MU_MAX_REPLICAS], *out[MU_MAX_REPLICAS];
    MU_TRY(check_reducible(first, "reduce_scatter"));
    for (int r = 0; r < run->n; r++) {
        data[r] = (void *)(uintptr_t)run->replicas[r].rendezvous->in;
        out[r] = run->replicas[r].rendezvous->data;
    }
    const mu_replica_arrays arrays = {.name = first->name,
                                      .form = first->form,
                                      .reduction = first->reduction,
                                      .dtype = first->dtype,
                                      .count = first->count,
                                      .n = run->n,
                                      .data = data,
                                      .out = out};
    return run->strategy->ops->cross_worker->scatter_arrays(run->strategy, &arrays);
}

// Of the replicas whose value leaves their worker: how many come before replica `end`.
static int64_t count_leaving(const struct mu_eager_replicas *run, const int64_t *sources, int end, int64_t *counts)
{
    int64_t before = 0;
    for (int to = 0; to < run->strategy->n_replicas; to++) {
        const int64_t from = sources[to];
        if (from < 0 || from / run->n == to / run->n)
            continue;
        before += from < end;
        if (counts)
            counts[from / run->n]++;
    }
    return before;
}

// Hands the values to their targets; `come` holds those of all replicas whose target is on another worker.
static void place_values(const struct mu_eager_replicas *run, const int64_t *sources, size_t bytes, const char *come)
{
    const int first = run->strategy->first_replica;
    for (int to = 0; to < run->n; to++) {
        const int64_t from = sources[first + to], local = from - first;
        void *out = run->replicas[to].rendezvous->data;
        if (from < 0)
            memset(out, 0, bytes);
        else if (local >= 0 && local < run->n)
            memcpy(out, run->replicas[local].rendezvous->in, bytes);
        else
            memcpy(out, come + (size_t)count_leaving(run, sources, (int)from, NULL) * bytes, bytes);
    }
}

// Between workers, what leaves one of them goes to all. Workers with nothing to send take part too, so that all compare
// the pairs.
static mu_status permute_at_rendezvous(const struct mu_eager_replicas *run)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    mu_strategy *strategy = run->strategy;
    const int64_t *sources = first->counts;
    const size_t bytes = (size_t)first->count * mu_dtype_bytes(first->dtype);
    int64_t *counts = mu__calloc((size_t)strategy->n_workers, sizeof *counts);
    const int64_t n = counts ? count_leaving(run, sources, strategy->n_replicas, counts) : 0;
    char *come = mu__alloc((size_t)n * bytes + 1), *mine = come;
    mu_status status = counts && come ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        mine += (size_t)count_leaving(run, sources, strategy->first_replica, NULL) * bytes;
    for (int r = 0; status == MU_OK && r < run->n; r++) {
        const int id = strategy->first_replica + r;
        const int64_t at = count_leaving(run, sources, id, NULL);
        if (count_leaving(run, sources, id + 1, NULL) > at)
            memcpy(come + (size_t)at * bytes, run->replicas[r].rendezvous->in, bytes);
    }
    for (int w = 0; status == MU_OK && w < strategy->n_workers; w++)
        counts[w] *= first->count;
    if (status == MU_OK)
        status = strategy->ops->cross_worker->all_gather(strategy, first->name, first->form, first->dtype, mine, come,
                                                         counts);
    if (status == MU_OK)
        place_values(run, sources, bytes, come);
    mu__free(counts);
    mu__free(come);
    return status;
}

mu_status mu__eager_collect(const struct mu_eager_replicas *run)
{
    static mu_status (*const collect[])(const struct mu_eager_replicas *) = {
        [RENDEZVOUS_REDUCE] = reduce_at_rendezvous,       [RENDEZVOUS_GATHER] = gather_at_rendezvous,
        [RENDEZVOUS_BROADCAST] = broadcast_at_rendezvous, [RENDEZVOUS_SCATTER] = scatter_at_rendezvous,
        [RENDEZVOUS_PERMUTE] = permute_at_rendezvous,
    };
    return collect[run->replicas[0].rendezvous->kind](run);
}
