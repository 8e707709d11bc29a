// All-reduces that the ranks of one host run while they compute: each rank posts them, and waiting ranks do the work.
//
// A rank that starts an operation posts a signature and continues. When all ranks have posted, the operation is cut
// into slices, and ranks that wait for it take slices one by one: a slice is reduced over all ranks' memory, in rank
// order, and written to all. So an early rank works for those that still compute, no rank needs another thread, and the
// result has the same bits as that of the other algorithms that add in rank order. Does not depend on what is computed
// meanwhile.
#include "comm/collectives/group.h"
#include "comm/collectives/steps.h"

enum { SLICE_BYTES = 16 * 1024, SLICES_PER_RANK = 4, LINE = 64 };

static mu_work_queue *work_queue_of(const member *m) { return m->group->transport->work_queue(&m->channel); }

static mu_work_item *slot_of(const member *m, int64_t number)
{
    return &work_queue_of(m)->slots[number % MU_MAX_REQUESTS];
}

static mu_work_post *entry_of(const member *m, int64_t number, int rank)
{
    return &work_queue_of(m)->entries[number % MU_MAX_REQUESTS * m->channel.ranks + rank];
}

mu_signature *mu__work_signature(const member *m, int rank) { return &entry_of(m, m->awaited - 1, rank)->signature; }

bool mu__work_has_come(const member *m, int rank)
{
    const unsigned came = atomic_load(&entry_of(m, m->awaited - 1, rank)->came);
    return (int32_t)(came - (unsigned)m->awaited) >= 0;
}

bool mu__work_fits(const member *m, const mu_collective_call *c)
{
    const mu_algorithm *algorithm = mu__algorithm_for(m, c);
    return work_queue_of(m) != NULL && (algorithm == NULL || algorithm->rank_order);
}

// ---- Waiting ------------------------------------------------------------------------------------

typedef struct awaited {
    member *m;
    const request *s;
    mu_work_item *slot;
    unsigned uses; // operations that have used this item, including this one
    unsigned slices;
} awaited;

static bool over(const awaited *a)
{
    return atomic_load(&a->slot->ready) == a->uses && atomic_load(&a->slot->done) == a->slices;
}

static bool failed(const awaited *a) { return atomic_load(&a->m->group->failed); }

// When `ready` is set all ranks have posted; reading `posted` acquires what each rank wrote before it posted.
static bool all_posted(const void *arg)
{
    const awaited *a = arg;
    const bool ready = atomic_load_explicit(&a->slot->ready, memory_order_acquire) == a->uses;
    return (ready && atomic_load(&a->slot->posted) != 0) || failed(a);
}

static bool all_written(const void *arg)
{
    const awaited *a = arg;
    return atomic_load_explicit(&a->slot->done, memory_order_acquire) == a->slices || failed(a);
}

static bool all_ended(const void *arg)
{
    const awaited *a = arg;
    return (int32_t)(atomic_load(&a->slot->ended) - (a->uses - 1) * (unsigned)a->m->channel.ranks) >= 0 || failed(a);
}

// A rank that has entered a later rendezvous than this rank had when it started the operation will never start it.
static mu_status look_around(void *arg)
{
    const awaited *a = arg;
    const mu_transport *transport = a->m->group->transport;
    if (a->m->channel.idle != NULL)
        MU_TRY(a->m->channel.idle(a->m->channel.idle_arg));
    for (int rank = 0; rank < a->m->channel.ranks; rank++) {
        const bool later = (int32_t)(transport->n_rendezvous(&a->m->channel, rank) - a->s->n_rendezvous) > 0;
        if (!later || mu__work_has_come(a->m, rank)) // the order matters: a rank posts before it enters the next
                                                     // rendezvous
            continue;
        mu_channel then = a->m->channel;
        then.op_count = a->s->op_count + 1;
        mu__complain_passed(a->m, rank, transport->signature(&then, rank));
        return mu__fail_group(a->m->group);
    }
    return MU_OK;
}

static mu_status wait_until(awaited *a, bool (*so)(const void *arg))
{
    mu_backoff backoff = MU_BACKOFF(&a->m->channel);
    backoff.idle = look_around;
    backoff.idle_arg = a;
    a->m->channel.waiting_for = -1;
    const mu_status status = mu__eventcount_wait(&work_queue_of(a->m)->changes, so, a, backoff);
    return status == MU_OK && failed(a) && !over(a) ? MU_ABORTED : status;
}

// ---- Posting ------------------------------------------------------------------------------------

static int64_t n_slices(const member *m, const mu_collective_call *c)
{
    const int64_t bytes = c->count * (int64_t)mu_dtype_bytes(c->dtype);
    return MU_MAX(MU_MIN(bytes / SLICE_BYTES, (int64_t)SLICES_PER_RANK * m->channel.ranks), 1);
}

static awaited awaited_of(member *m, const request *s, int64_t number)
{
    return (awaited){.m = m,
                     .s = s,
                     .slot = slot_of(m, number),
                     .uses = (unsigned)(number / MU_MAX_REQUESTS + 1),
                     .slices = (unsigned)n_slices(m, &s->call)};
}

static mu_status say(awaited *a, mu_status status)
{
    if (status == MU_OK || mu__pending())
        return status;
    return status == MU_ABORTED ? mu__raise_group_error(a->m->group) : mu__fail_wait(a->m, status);
}

// The item may still be in use by ranks that have not finished waiting for its previous operation.
mu_status mu__work_post(member *m, request *s, int64_t number)
{
    awaited a = awaited_of(m, s, number);
    s->n_rendezvous = m->group->transport->n_rendezvous(&m->channel, m->channel.rank);
    s->op_count = m->channel.op_count;
    m->awaited = number + 1;
    const mu_status status = say(&a, failed(&a) ? MU_ABORTED : wait_until(&a, all_ended));
    if (status == MU_OK) {
        mu__write_signature(m, &s->call, 0);
        atomic_store(&entry_of(m, number, m->channel.rank)->came, (unsigned)m->awaited);
        if (atomic_fetch_add(&a.slot->posted, 1) + 1 == a.uses * (unsigned)m->channel.ranks) {
            atomic_store(&a.slot->next, 0);
            atomic_store(&a.slot->done, 0);
            atomic_store(&a.slot->ready, a.uses);
            mu__eventcount_notify(&work_queue_of(m)->changes);
        }
    }
    m->awaited = 0;
    return status;
}

// ---- Reducing slices ----------------------------------------------------------------------------

static void add_slice(member *m, const mu_collective_call *c, int64_t index, int64_t count)
{
    const size_t element = mu_dtype_bytes(c->dtype);
    const int64_t grain = MU_MAX(LINE / (int64_t)element, 1);
    const mu_part part = mu__part_of(c->count, grain, (int)index, (int)count);
    const uintptr_t base = (uintptr_t)m->group->joined.topology.memory;
    void **addresses = m->pointers;
    for (int rank = 0; rank < m->channel.ranks; rank++)
        addresses[rank] =
            (char *)(base + (uintptr_t)mu__signature_of(m, rank)->areas[MU_AREA_DATA]) + (size_t)part.at * element;
    mu__reduce(
        &(mu_local_reduce_args){.dtype = c->dtype,
                                .reduction = c->reduction,
                                .divide = c->reduction == MU_REDUCTION_MEAN ? m->channel.ranks : 1,
                                .stream = c->count * (int64_t)element * m->channel.ranks > m->group->stream_bytes,
                                .n_dst = m->channel.ranks,
                                .n_src = m->channel.ranks,
                                .dst = addresses,
                                .src = (const void *const *)addresses,
                                .count = part.count});
}

// After the group has failed no rank may access this memory: its owner may have reused it.
static void take_slices(awaited *a)
{
    for (unsigned i; !failed(a) && (i = atomic_fetch_add(&a->slot->next, 1)) < a->slices;) {
        add_slice(a->m, &a->s->call, i, a->slices);
        if (mu__trace_on())
            atomic_store(&a->slot->end_ns, mu__now_ns());
        if (atomic_fetch_add(&a->slot->done, 1) + 1 == a->slices)
            mu__eventcount_notify(&work_queue_of(a->m)->changes);
    }
}

static bool all_reached(const member *m)
{
    for (int rank = 0; m->group->joined.topology.staged && rank < m->channel.ranks; rank++)
        if (!mu__signature_of(m, rank)->reached)
            return false;
    return true;
}

static mu_status do_together(member *m, const mu_collective_call *c)
{
    const int64_t number = m->awaited - 1;
    request *s = &m->queue[number % MU_MAX_REQUESTS];
    awaited a = awaited_of(m, s, number);
    MU_TRY(say(&a, wait_until(&a, all_posted)));
    MU_TRY(mu__agree(m, c));
    if (!all_reached(m)) {
        m->awaited = 0;
        return mu__run_collective_call(m, c);
    }
    take_slices(&a);
    return say(&a, wait_until(&a, all_written));
}

// An operation that all ranks completed stays successful if the group fails later, because other ranks may have used
// it.
mu_status mu__work_end(member *m, request *s, int64_t number)
{
    const awaited a = awaited_of(m, s, number);
    mu_status status = MU_OK;
    m->awaited = number + 1;
    if (!over(&a))
        status = mu__group_inside(m, &s->call, do_together);
    s->end_ns = atomic_load(&a.slot->end_ns);
    if (!failed(&a) || over(&a)) {
        if ((atomic_fetch_add(&a.slot->ended, 1) + 1) % (unsigned)m->channel.ranks == 0)
            mu__eventcount_notify(&work_queue_of(m)->changes);
    }
    m->awaited = 0;
    return status;
}
