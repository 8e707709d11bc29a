// Groups: each rank's mu_collective, and the check that all ranks call the same operation.
//
// A rank that enters a collective publishes a signature (run, op, name, type, count). After the rendezvous each rank
// compares all signatures with rank 0's, so all reach the same verdict. A group keeps its first error until it is reset
// and fails every call with it. Does not depend on algorithms: a policy selects them and a list of steps executes them.
#include "base/system.h"
#include "comm/collectives/group.h"

#include <sched.h>
#include <unistd.h>

// How long a rank that sees a failure waits for its reason, and how long it waits for ranks of other processes to stop
// accessing its memory (a killed process never says so).
#define REASON_SECONDS 2.0
#define LEAVE_SECONDS  1.0

// ---- Failing ------------------------------------------------------------------------------------

// The group keeps the first error. An error that came from the mesh is not sent back to it.
static bool abort_here(mu_group *group, const mu_error_value *error)
{
    pthread_mutex_lock(&group->lock);
    const bool first = !atomic_load(&group->failed);
    if (first) {
        group->error = *error;
        if (group->error.code == MU_OK)
            group->error.code = MU_ABORTED;
        atomic_store(&group->failed, true);
        group->transport->abort(group->shared, &group->error);
    }
    pthread_mutex_unlock(&group->lock);
    return first;
}

void mu__group_abort(mu_group *group, const mu_error_value *error)
{
    if (abort_here(group, error) && group->joined.mesh != NULL)
        mu__mesh_fail(group->joined.mesh, error);
}

static void mesh_failed(void *arg, const mu_error_value *error) { abort_here(arg, error); }

bool mu__group_failed(mu_group *group, mu_error_value *out)
{
    pthread_mutex_lock(&group->lock);
    const bool failed = atomic_load(&group->failed);
    if (failed)
        *out = group->error;
    pthread_mutex_unlock(&group->lock);
    return failed;
}

// A failed process of this host or a closed connection may be seen before the mesh reports the reason.
static bool hear_of_failure(mu_group *group, mu_error_value *out)
{
    const int64_t deadline = mu__deadline_ns(REASON_SECONDS);
    while (!mu__group_failed(group, out)) {
        if (mu__mesh_has_failed(group->joined.mesh, out) || group->transport->aborted(group->shared, out)) {
            abort_here(group, out);
            continue;
        }
        if (mu__now_ns() >= deadline)
            return false;
        mu__sleep_ns(1000000);
    }
    return true;
}

mu_status mu__raise_group_error(mu_group *group)
{
    mu_error_value error;
    if (group->joined.mesh != NULL && hear_of_failure(group, &error))
        return mu__error_raise(&error);
    return mu__group_failed(group, &error) ? mu__error_raise(&error) : MU_INTERNAL;
}

// Makes this thread's recorded error the group's, unless the group has one; then records the group's error in this
// thread.
mu_status mu__fail_group(mu_group *group)
{
    mu_error_value error;
    mu__error_move(&error);
    mu__group_abort(group, &error);
    return mu__raise_group_error(group);
}

// A connection may close before the mesh reports that its process died or left; waits for that report and records it.
static bool hear_of_end(member *m)
{
    const int64_t deadline = mu__deadline_ns(REASON_SECONDS);
    while (mu__mesh_check(m->group->joined.mesh, m->channel.waiting_for / mu__n_local(m->group)) == MU_OK) {
        if (atomic_load(&m->group->failed) || mu__now_ns() >= deadline)
            return atomic_load(&m->group->failed);
        mu__sleep_ns(1000000);
    }
    return true;
}

mu_status mu__fail_wait(member *m, mu_status status)
{
    char who[MU_TEXT_BYTES], what[MU_TEXT_BYTES];
    mu__signature_text(mu__signature_of(m, m->channel.rank), what);
    if (status == MU_UNAVAILABLE && hear_of_end(m))
        return mu__fail_group(m->group);
    if (status == MU_DEADLINE_EXCEEDED)
        mu__error(status,
                  "%s did not come to %s of group \"%s\" within %g s; rank %d waits there. Check what the missing "
                  "process is doing, or raise MUSTER_TIMEOUT.",
                  mu__missing_text(m, who), what, m->group->name, m->channel.timeout, m->channel.rank);
    else
        mu__complain_of_peer(m, status, what);
    return mu__fail_group(m->group);
}

// True if the wait cannot end because the process has left. It may have done its part just before it left, so its
// lateness is checked again afterwards.
static bool waits_in_vain(const member *m, int process)
{
    mu_mesh *mesh = m->group->joined.mesh;
    return mu__process_is_late(m, process) && mu__mesh_is_gone(mesh, process) && mu__process_is_late(m, process);
}

// Runs from time to time in a wait that sleeps: reports whom the rank waits for, and ends the wait if one of those
// processes has left. A process of another host may have sent the awaited data before it left; there the end of the
// connection decides.
mu_status mu__member_idle(void *arg)
{
    member *m = arg;
    mu_mesh *mesh = m->group->joined.mesh;
    const mu_topology *at = &m->group->joined.topology;
    char what[MU_TEXT_BYTES];
    const mu_signature *signature = mu__signature_of(m, m->channel.rank);
    if (!m->waits) {
        m->lateness = mu__lateness();
        mu__mesh_doing(mesh, "waiting in collective", signature->same.number, signature->same.name);
    }
    m->waits = true;
    mu__mesh_late(mesh, &m->lateness, mu__signature_text(signature, what), mu__process_is_late, m);
    for (int rank = at->first[at->host]; rank < at->first[at->host + 1]; rank += at->n_local)
        if (waits_in_vain(m, rank / at->n_local) && mu__mesh_check(mesh, rank / at->n_local) != MU_OK)
            return mu__fail_group(m->group);
    return MU_OK;
}

// A rank that fails must not free its memory while other ranks may access it.
static void wait_until_others_left(member *m)
{
    const mu_topology *at = &m->group->joined.topology;
    const int64_t deadline = mu__deadline_ns(LEAVE_SECONDS);
    for (int rank = 0; rank < at->ranks; rank++) {
        const bool local = rank >= at->first_local && rank < at->first_local + at->n_local;
        while (rank != m->channel.rank && m->group->transport->is_inside(&m->channel, rank) &&
               (local || mu__now_ns() < deadline))
            sched_yield();
    }
}

static mu_status check_reset(const mu_group *group)
{
    if (group->joined.mesh != NULL)
        return mu__error(MU_FAILED_PRECONDITION,
                         "Group \"%s\" cannot be reset: it has ranks in other processes, and their job has failed. "
                         "Start the job again, from the last checkpoint.",
                         group->name);
    for (int i = 0; i < mu__n_local(group); i++)
        if (group->transport->is_inside(&group->members[i].channel, group->members[i].channel.rank))
            return mu__error(
                MU_FAILED_PRECONDITION,
                "Group \"%s\" cannot be reset while rank %d is in a collective; wait until every rank has returned.",
                group->name, i);
    return MU_OK;
}

mu_status mu__group_reset(mu_group *group)
{
    pthread_mutex_lock(&group->lock);
    const mu_status status = check_reset(group);
    if (status == MU_OK) {
        group->transport->reset(group->shared);
        for (int i = 0; i < mu__n_local(group); i++) {
            group->transport->reset_rank(&group->members[i].channel);
            group->members[i].channel.op_count = 0;
            group->members[i].n_started = group->members[i].n_ended = 0;
        }
        atomic_store(&group->failed, false);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

// ---- Agreement ----------------------------------------------------------------------------------

static bool counts_matter(const mu_collective_call *c)
{
    return c->kind == MU_KIND_ALL_GATHER || c->kind == MU_KIND_PERMUTE;
}

static uint64_t hash_counts(const int64_t *counts, int n)
{
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)counts[i]) * 1099511628211u;
    return hash;
}

static bool valid(const member *m, const mu_collective_call *c)
{
    const bool reduces = c->kind == MU_KIND_ALL_REDUCE || c->kind == MU_KIND_REDUCE_SCATTER;
    const bool reducible = !reduces || (mu__reduce_supports(c->dtype) && c->reduction <= MU_REDUCTION_MAX);
    const int64_t least = c->kind == MU_KIND_PERMUTE ? -1 : 0;
    const int64_t most = c->kind == MU_KIND_PERMUTE ? m->channel.ranks - 1 : INT64_MAX;
    for (int i = 0; counts_matter(c) && i < m->channel.ranks; i++)
        if (m->counts[i] < least || m->counts[i] > most)
            return false;
    return reducible && c->count >= 0 && mu__dtype_ok(c->dtype) && c->root >= 0 && c->root < m->channel.ranks;
}

static mu_status complain_invalid(const member *m, const mu_collective_call *c)
{
    char what[MU_TEXT_BYTES];
    mu__signature_text(mu__signature_of(m, m->channel.rank), what);
    if ((c->kind == MU_KIND_ALL_REDUCE || c->kind == MU_KIND_REDUCE_SCATTER) && !mu__reduce_supports(c->dtype))
        return mu__error(MU_INVALID_ARGUMENT, "Elements of %s cannot be reduced in %s; cast them to a number first.",
                         mu_dtype_name(c->dtype), what);
    return mu__error(MU_INVALID_ARGUMENT,
                     "The arguments of %s are not valid: counts must be 0 or more, the root and each source a rank "
                     "from 0 to %d, the type and the reduction known.",
                     what, m->channel.ranks - 1);
}

// Elements of this rank's DATA and INPUT.
static void extents(const member *m, const mu_collective_call *c, int64_t *data, int64_t *input)
{
    *data = *input = c->count;
    if (c->kind == MU_KIND_ALL_TO_ALL || c->kind == MU_KIND_REDUCE_SCATTER)
        *input *= m->channel.ranks;
    if (c->kind == MU_KIND_ALL_TO_ALL)
        *data *= m->channel.ranks;
    if (c->kind == MU_KIND_ALL_GATHER)
        *data = 0;
    for (int i = 0; c->kind == MU_KIND_ALL_GATHER && i < m->channel.ranks; i++)
        *data += m->counts[i];
}

// Processes that share memory address each other's data by offsets in the signatures; this checks that they are inside
// the segment.
static bool areas_are_valid(const member *m, const mu_collective_call *c)
{
    const mu_topology *at = &m->group->joined.topology;
    const int low = at->hosts > 1 ? at->first[at->host] : 0, high = at->hosts > 1 ? at->first[at->host + 1] : at->ranks;
    int64_t elements[MU_AREA_WINDOW];
    extents(m, c, &elements[MU_AREA_DATA], &elements[MU_AREA_INPUT]);
    for (int rank = low; at->memory != NULL && rank < high; rank++) {
        const mu_signature *signature = mu__signature_of(m, rank);
        if (c->kind == MU_KIND_ALL_GATHER)
            elements[MU_AREA_INPUT] = m->counts[rank];
        for (int area = 0; signature->reached && area < MU_AREA_WINDOW; area++) {
            const size_t bytes = (size_t)elements[area] * mu_dtype_bytes(c->dtype);
            if (bytes > 0 && (signature->areas[area] > at->bytes || bytes > at->bytes - signature->areas[area]))
                return false;
        }
    }
    return true;
}

mu_status mu__agree(member *m, const mu_collective_call *c)
{
    const mu_signature *first = mu__signature_of(m, 0);
    for (int rank = 1; rank < m->channel.ranks; rank++)
        if (memcmp(&first->same, &mu__signature_of(m, rank)->same, sizeof first->same) != 0)
            return mu__complain_mismatch(m, rank);
    if (!valid(m, c))
        return complain_invalid(m, c);
    for (int rank = 0; c->kind == MU_KIND_ALL_GATHER && rank < m->channel.ranks; rank++)
        if (mu__signature_of(m, rank)->count != m->counts[rank])
            return mu__error(MU_INVALID_ARGUMENT,
                             "In all_gather \"%s\" of group \"%s\" rank %d has %lld elements, but %lld are expected; "
                             "exchange the counts first.",
                             c->name, m->group->name, rank, (long long)mu__signature_of(m, rank)->count,
                             (long long)m->counts[rank]);
    return areas_are_valid(m, c) ? MU_OK
                                 : mu__error(MU_DATA_LOSS,
                                             "In %s \"%s\" of group \"%s\" a process reports data outside the shared "
                                             "memory; that process's memory is damaged.",
                                             mu__kind_name(c->kind), c->name, m->group->name);
}

typedef struct rendezvous {
    member *m;
    const mu_collective_call *c;
} rendezvous;

static mu_status agree_at(void *arg)
{
    const rendezvous *at = arg;
    return mu__agree(at->m, at->c);
}

void mu__fit_name(const char *name, size_t bytes, char *out)
{
    enum { MARK = 10 };
    const size_t length = strlen(name), limit = bytes - 1;
    memcpy(out, name, MU_MIN(length, limit));
    out[MU_MIN(length, limit)] = '\0';
    if (length <= limit)
        return;
    uint32_t hash = 2166136261u;
    for (const char *at = name; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    snprintf(out + limit - MARK + 1, MARK, "~%08x", (unsigned)hash);
}

// Copies only the words in use (three in most forms); the others keep old contents.
static void write_form(const mu_form *form, mu_signature *signature)
{
    const size_t head = offsetof(mu_form, words);
    if (form == NULL) {
        memset(&signature->form, 0, head);
        return;
    }
    memcpy(&signature->form, form, head + sizeof form->words[0] * (size_t)form->n_words);
    signature->same.form = form->hash;
}

void mu__write_signature(member *m, const mu_collective_call *c, int64_t window)
{
    const bool gather = c->kind == MU_KIND_ALL_GATHER, permute = c->kind == MU_KIND_PERMUTE;
    const size_t element = mu_dtype_bytes(c->dtype);
    const mu_transport *transport = m->group->transport;
    mu_signature *signature = mu__signature_of(m, m->channel.rank);
    int64_t data, input;
    memset(signature, 0, offsetof(mu_signature, form));
    signature->same.run = m->run;
    signature->same.number = c->number;
    signature->same.kind = (int32_t)c->kind;
    signature->same.reduction = (int32_t)c->reduction;
    signature->same.dtype = (int32_t)c->dtype;
    signature->same.root = permute ? (int32_t)hash_counts(m->counts, m->channel.ranks) : c->root;
    signature->same.count = gather ? (int64_t)hash_counts(m->counts, m->channel.ranks) : c->count;
    signature->count = c->count;
    signature->window = (int32_t)(window * (int64_t)element);
    mu__fit_name(c->name, MU_SIGNATURE_NAME, signature->same.name);
    write_form(c->form, signature);
    if (!valid(m, c))
        return;
    extents(m, c, &data, &input);
    const bool reached =
        transport->locate(&m->channel, c->data, (size_t)data * element, &signature->areas[MU_AREA_DATA]);
    signature->reached =
        transport->locate(&m->channel, c->input, (size_t)input * element, &signature->areas[MU_AREA_INPUT]) && reached;
}

// ---- Running ------------------------------------------------------------------------------------

static mu_problem problem_of(const member *m, const mu_collective_call *c)
{
    const mu_topology *at = &m->group->joined.topology;
    return (mu_problem){.kind = c->kind,
                        .rank = m->channel.rank,
                        .ranks = m->channel.ranks,
                        .root = c->root,
                        .count = c->count,
                        .element = mu_dtype_bytes(c->dtype),
                        .width = mu__reduce_width(c->dtype),
                        .counts = c->kind == MU_KIND_ALL_GATHER ? m->counts : NULL,
                        .sources = c->kind == MU_KIND_PERMUTE ? m->counts : NULL,
                        .hosts = at->hosts,
                        .first = at->first};
}

const mu_algorithm *mu__algorithm_for(const member *m, const mu_collective_call *c)
{
    const mu_problem problem = problem_of(m, c);
    return valid(m, c) ? mu__policy_select(&m->group->policy, &problem, m->group->means) : NULL;
}

// An invalid operation still gets a rendezvous, so that every rank reports the same error.
static mu_status build_list(member *m, const mu_collective_call *c, bool staged, mu_steps *out)
{
    const mu_problem problem = problem_of(m, c);
    if (!valid(m, c))
        return MU_PUSH(out, ((mu_step){.kind = MU_STEP_RENDEZVOUS}));
    return mu__algorithm_build(mu__algorithm_for(m, c), &problem, staged, out);
}

static mu_status find_list(member *m, const mu_collective_call *c, bool staged, const mu_steps **out)
{
    cached_list *cached = &m->lists[((uint64_t)c->number * 2 + staged) % MU_CACHED_LISTS];
    const list_key key = {.kind = (int32_t)c->kind,
                          .root = c->root,
                          .staged = staged,
                          .count = c->count,
                          .element = mu_dtype_bytes(c->dtype),
                          .counts_hash = counts_matter(c) ? hash_counts(m->counts, m->channel.ranks) : 0};
    const bool usable = cached->steps.n > 0 && valid(m, c);
    if (!usable || memcmp(&key, &cached->key, sizeof key) != 0) {
        cached->key = (list_key){0};
        cached->steps.n = 0;
        cached->steps.scratch = cached->steps.window = 0;
        MU_TRY(build_list(m, c, staged, &cached->steps));
        if (valid(m, c))
            cached->key = key;
    }
    *out = &cached->steps;
    return MU_OK;
}

static mu_status grow_scratch(member *m, size_t bytes)
{
    if (bytes <= m->scratch_bytes)
        return MU_OK;
    if (m->scratch != NULL)
        mu__free_data(m->scratch, m->scratch_bytes);
    m->scratch_bytes = 0;
    m->scratch = mu__alloc_data(bytes);
    if (m->scratch == NULL)
        return MU_RESOURCE_EXHAUSTED;
    m->scratch_bytes = bytes;
    return MU_OK;
}

// A failure before the rendezvous must fail the whole group, because the other ranks are waiting.
static mu_status prepare(member *m, const mu_collective_call *c, bool staged, const mu_steps **steps)
{
    MU_TRY(find_list(m, c, staged, steps));
    return grow_scratch(m, (size_t)(*steps)->scratch * mu_dtype_bytes(c->dtype));
}

// Whether the data of some rank cannot be addressed by others of its host. All ranks know this after the rendezvous.
static bool needs_staging(const member *m)
{
    for (int rank = 0; m->group->joined.topology.staged && rank < m->channel.ranks; rank++)
        if (!mu__signature_of(m, rank)->reached)
            return true;
    return false;
}

// If some data cannot be addressed, the run switches to the staged list after the rendezvous, with which both lists
// begin.
static mu_status run_lists(member *m, const mu_collective_call *c, mu_schedule *schedule)
{
    const mu_steps *steps;
    size_t at = 0;
    if (prepare(m, c, false, &steps) != MU_OK)
        return mu__fail_group(m->group);
    mu__write_signature(m, c, steps->window);
    const bool rendezvous_first = steps->n > 0 && steps->items[0].kind == MU_STEP_RENDEZVOUS;
    if (m->group->joined.topology.staged && rendezvous_first && steps->n > 1) {
        MU_TRY(mu__schedule_run(&(mu_steps){.items = steps->items, .n = 1}, &m->channel, schedule, NULL));
        at = 1;
        if (needs_staging(m) && prepare(m, c, true, &steps) != MU_OK)
            return mu__fail_group(m->group);
    }
    schedule->areas[MU_AREA_SCRATCH] = m->scratch;
    return mu__schedule_run(steps, &m->channel, schedule, &at);
}

mu_status mu__run_collective_call(member *m, const mu_collective_call *c)
{
    mu_group *group = m->group;
    if (atomic_load(&group->failed))
        return mu__raise_group_error(group);
    for (int i = 0; counts_matter(c) && i < m->channel.ranks; i++)
        m->counts[i] = c->counts != NULL ? c->counts[i] : c->count;
    m->channel.op_count++;
    rendezvous at = {.m = m, .c = c};
    mu_schedule schedule = {
        .dtype = c->dtype,
        .reduction = c->reduction,
        .stream = c->count * (int64_t)mu_dtype_bytes(c->dtype) * m->channel.ranks > group->stream_bytes,
        .areas = {[MU_AREA_DATA] = c->data, [MU_AREA_INPUT] = (void *)(uintptr_t)c->input},
        .pointers = m->pointers,
        .rendezvous = agree_at,
        .arg = &at,
    };
    const mu_status status = run_lists(m, c, &schedule);
    if (status == MU_OK || mu__pending())
        return status;
    return status == MU_ABORTED ? mu__raise_group_error(group) : mu__fail_wait(m, status);
}

mu_status mu__group_inside(member *m, const mu_collective_call *c, mu_work *work)
{
    const mu_transport *transport = m->group->transport;
    if (!transport->enter(&m->channel))
        return mu__error(
            MU_FAILED_PRECONDITION,
            "Rank %d of group \"%s\" is already in a collective on another thread; use one thread per rank.",
            m->channel.rank, m->group->name);
    const mu_status status = work(m, c);
    transport->leave(&m->channel);
    if (m->waits)
        mu__mesh_doing(m->group->joined.mesh, "computing", -1, NULL);
    m->waits = false;
    if (status != MU_OK && atomic_load(&m->group->failed))
        wait_until_others_left(m);
    return status;
}

static mu_buffer *member_memory(mu_collective *self, size_t bytes)
{
    const member *m = (member *)self;
    const mu_topology *at = &m->group->joined.topology;
    const int low = at->hosts > 1 ? at->first[at->host] : 0;
    return mu__segment_take(at->segment, m->channel.rank - low, bytes);
}

void mu__collective_begin(mu_collective *self, int64_t run) { ((member *)self)->run = run; }

// ---- Creation and release -----------------------------------------------------------------------

static void forget_lists(member *m)
{
    for (int i = 0; i < MU_CACHED_LISTS; i++)
        mu__steps_free(&m->lists[i].steps);
}

static void group_destroy(void *object)
{
    mu_group *group = object;
    mu_joining *joined = &group->joined;
    if (joined->mesh != NULL)
        mu__mesh_unwatch(joined->mesh, mesh_failed, group);
    for (int i = 0; group->members != NULL && i < mu__n_local(group); i++) {
        member *m = &group->members[i];
        mu__requests_free(m);
        forget_lists(m);
        if (m->scratch != NULL)
            mu__free_data(m->scratch, m->scratch_bytes);
        mu__free(m->pointers);
        mu__free(m->counts);
    }
    if (group->shared != NULL) {
        group->transport->close(group->shared);
        mu__free_data(group->shared, group->transport->shared_bytes);
    }
    if (group->states != NULL)
        mu__free_data(group->states, group->transport->rank_bytes * (size_t)mu__n_local(group));
    if (group->members != NULL)
        mu__free_data(group->members, sizeof(member) * (size_t)mu__n_local(group));
    mu__interhost_free(joined->topology.interhost);
    mu_release(joined->topology.segment);
    mu_release(joined->mesh);
    mu_release(joined->network);
    mu__free(joined->first);
    pthread_mutex_destroy(&group->lock);
    mu__free(group->name);
}

static mu_type group_type = {.name = "group", .destroy = group_destroy};

static void *zeroed_data(size_t bytes)
{
    void *data = mu__alloc_data(bytes);
    return data == NULL ? NULL : memset(data, 0, bytes);
}

static mu_status open_member(mu_group *group, int local)
{
    member *m = &group->members[local];
    const mu_topology *at = &group->joined.topology;
    m->collective = (mu_collective){.rank = at->first_local + local,
                                    .size = at->ranks,
                                    .form = &m->form,
                                    .all_reduce = mu__member_all_reduce,
                                    .all_gather = mu__member_all_gather,
                                    .broadcast = mu__member_broadcast,
                                    .reduce_scatter = mu__collective_reduce_scatter,
                                    .permute = mu__collective_permute,
                                    .start = mu__member_start,
                                    .wait = mu__member_wait,
                                    .abandon = mu__member_abandon,
                                    .memory = at->segment != NULL ? member_memory : NULL};
    m->group = group;
    m->channel = (mu_channel){.transport = group->transport,
                              .shared = group->shared,
                              .rank = at->first_local + local,
                              .ranks = at->ranks,
                              .state = group->states + (size_t)local * group->transport->rank_bytes,
                              .crowded = group->joined.crowded,
                              .timeout = group->joined.timeout,
                              .idle = group->joined.mesh != NULL ? mu__member_idle : NULL,
                              .idle_arg = m,
                              .calm = &m->calm};
    m->pointers = mu__calloc(2 * (size_t)at->ranks + 1, sizeof *m->pointers);
    m->counts = mu__calloc((size_t)at->ranks, sizeof *m->counts);
    return m->pointers != NULL && m->counts != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Measured: overwriting data that was just read is faster through the caches than with non-temporal stores until the
// data is three times their size.
static int64_t streaming_pays_from(void)
{
    const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return 3 * (cache > 0 ? cache : (int64_t)32 << 20);
}

static mu_status open_group(mu_group *group, const char *name)
{
    const mu_topology *at = &group->joined.topology;
    const size_t n = (size_t)at->n_local;
    group->stream_bytes = streaming_pays_from();
    group->means = MU_NEEDS_WINDOW | MU_NEEDS_PEERS;
    if (at->hosts <= 1 || at->hosts == at->ranks)
        group->means |= MU_NEEDS_MESSAGES;
    group->name = mu__strdup(name);
    group->shared = zeroed_data(group->transport->shared_bytes);
    if (group->name == NULL || group->shared == NULL)
        return MU_RESOURCE_EXHAUSTED;
    MU_TRY(group->transport->open(group->shared, at));
    group->states = zeroed_data(group->transport->rank_bytes * n);
    group->members = zeroed_data(sizeof(member) * n);
    if (group->states == NULL || group->members == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (int local = 0; local < at->n_local; local++)
        MU_TRY(open_member(group, local));
    MU_TRY(mu__policy_parse(group->joined.policy, &group->policy));
    return group->joined.mesh != NULL ? mu__mesh_watch(group->joined.mesh, mesh_failed, group) : MU_OK;
}

// The group owns the contents of `joining` from here on.
mu_group *mu__group_open(const char *name, mu_joining *joining)
{
    mu_group *group = mu__new(&group_type, sizeof *group);
    if (group == NULL) {
        mu__interhost_free(joining->topology.interhost);
        mu_release(joining->topology.segment);
        mu_release(joining->mesh);
        mu_release(joining->network);
        mu__free(joining->first);
        return NULL;
    }
    pthread_mutex_init(&group->lock, NULL); // cannot fail without attributes
    group->joined = *joining;
    group->transport = joining->transport;
    if (open_group(group, name) != MU_OK) {
        mu_release(group);
        return NULL;
    }
    return group;
}

mu_group *mu__group_new(int n, const char *name)
{
    if (mu__pending())
        return NULL;
    if (n < 1 || n > MU_MAX_RANKS) {
        mu__error(MU_INVALID_ARGUMENT, "Group \"%s\" cannot have %d ranks; expected 1 to %d.", name, n, MU_MAX_RANKS);
        return NULL;
    }
    const bool crowded = n > mu__runtime_threads(mu__runtime());
    const mu_placing placing = crowded ? MU_PLACED_CROWDED : MU_PLACED_TOGETHER;
    return mu__group_open(name, &(mu_joining){.topology = {.ranks = n, .n_local = n, .hosts = 1},
                                              .transport = &mu__transport_shm,
                                              .crowded = crowded,
                                              .policy = mu__policy_of(MU_COMM_AUTO, placing, false),
                                              .timeout = mu__setting_real(MU_SETTING_TIMEOUT)});
}

mu_collective *mu__group_member(mu_group *group, int local)
{
    assert(local >= 0 && local < mu__n_local(group));
    return &group->members[local].collective;
}

const char *mu__group_path(const mu_group *group)
{
    const mu_topology *at = &group->joined.topology;
    if (group->joined.network != NULL)
        return mu__network_name(group->joined.network);
    return at->hosts > 1 ? "tcp" : at->segment != NULL ? "shared memory" : "threads";
}

const char *mu__group_algorithm(const mu_group *group, mu_dtype dtype, int64_t count)
{
    const mu_collective_call call = {.kind = MU_KIND_ALL_REDUCE, .dtype = dtype, .count = count};
    const mu_algorithm *algorithm = mu__algorithm_for(&group->members[0], &call);
    return algorithm != NULL ? algorithm->name : "none";
}

void mu__group_serve(mu_group *group)
{
    if (group->joined.network != NULL)
        mu__network_serve(group->joined.network);
}

bool mu__group_needs_service(const mu_group *group) { return mu__network_needs_service(group->joined.network); }

void mu__group_set_timeout(mu_group *group, double seconds)
{
    for (int i = 0; i < mu__n_local(group); i++)
        group->members[i].channel.timeout = seconds;
}

double mu__group_timeout(const mu_group *group) { return group->members[0].channel.timeout; }

mu_status mu__group_set_policy(mu_group *group, const char *text)
{
    mu_policy policy;
    MU_TRY(mu__policy_parse(text, &policy));
    group->policy = policy;
    for (int i = 0; i < mu__n_local(group); i++)
        forget_lists(&group->members[i]);
    return MU_OK;
}
