// What must hold of updates: each is applied at most once, and once if it was acknowledged; nobody sees one undone.
//
// With copies that holds for ever. Going back to a snapshot may undo what was acknowledged after the cut began;
// whatever was acknowledged before the last but one snapshot was complete is in it. A gradient is in what one take
// returns, or in what is left at the end; after going back to a snapshot it may be taken again.
#include "stores.h"

int check_begin_update(const worker_task *w, int store, subject target)
{
    stores_run *r = &now_running;
    r->updates[r->n_updates] = (update){.worker = w->number,
                                        .process = w->process,
                                        .store = store,
                                        .target = target,
                                        .begun_ns = world_now(),
                                        .done_ns = MU_FOREVER};
    return r->n_updates++;
}

void check_done_update(int number)
{
    now_running.updates[number].done_ns = world_now();
    world_note("update %d is acknowledged", number);
}

// What was not acknowledged before the last but one snapshot was complete may be undone; so may what was seen.
static void note_restore(void)
{
    stores_run *r = &now_running;
    r->restored_ns = world_now();
    memset(r->seen, 0, sizeof r->seen);
    for (int i = 0; i < r->n_updates; i++)
        r->updates[i].undone |= r->updates[i].done_ns >= r->snapshot_ns[0];
}

void check_snapshots(void)
{
    stores_run *r = &now_running;
    const mu_placement_numbers numbers = mu__placement_numbers(r->placement);
    if (numbers.snapshots > r->numbers.snapshots) {
        r->snapshot_ns[0] = r->snapshot_ns[1];
        r->snapshot_ns[1] = world_now();
    }
    if (numbers.lost > 0 && r->replicas && r->numbers.lost == 0)
        run_fails("a store is lost, although one server was lost at a time");
    if (numbers.restores > r->numbers.restores && r->replicas && !r->pair_struck)
        run_fails("a store went back to a snapshot, although one server was lost at a time and each has a copy");
    if (numbers.restores > r->numbers.restores)
        note_restore();
    r->numbers = numbers;
}

static void note_seen(int i)
{
    stores_run *r = &now_running;
    r->seen_ns[i] = r->seen[i] ? r->seen_ns[i] : world_now();
    r->seen[i] = true;
}

// The elements of a reading; NULL: it is none.
static const float *elements_of(int store, mu_value *value, const char *what)
{
    mu_tensor *vector = mu_at(value, 0);
    if (vector != NULL && vector->shape.dims[0] == MOST_UPDATES)
        return mu__host_read(vector);
    run_fails("%s of store %d gave no vector: %s", what, store, mu_error_message());
    mu_error_take();
    return NULL;
}

static bool is_own(int i, int store, subject target)
{
    const update *u = &now_running.updates[i];
    return i < now_running.n_updates && u->store == store && u->target == target;
}

static void check_vector(int store, subject target, int64_t begun_ns, mu_value *value, const char *what)
{
    stores_run *r = &now_running;
    const float *times = elements_of(store, value, what);
    for (int i = 0; times != NULL && i < MOST_UPDATES; i++) {
        const update *u = &r->updates[i];
        const bool own = is_own(i, store, target);
        if (times[i] != 0 && (!own || u->earlier))
            run_fails("%s of store %d has update %d, which was not for it", what, store, i);
        else if (times[i] > 1)
            run_fails("update %d of worker %d was applied %g times", i, u->worker, (double)times[i]);
        else if (own && times[i] == 0 && u->done_ns < begun_ns && !u->undone && !u->earlier)
            run_fails("%s of store %d lacks update %d of worker %d, acknowledged at %.6f, before it began at %.6f",
                      what, store, i, u->worker, (double)u->done_ns / 1e9 - 1, (double)begun_ns / 1e9 - 1);
        else if (own && times[i] == 0 && r->seen[i] && r->seen_ns[i] < begun_ns && !u->undone && !u->earlier)
            run_fails("%s of store %d lacks update %d, which an earlier reading had", what, store, i);
        if (own && times[i] == 1 && begun_ns > r->restored_ns)
            note_seen(i);
    }
}

static void check_sum(int store, mu_value *value, const char *what)
{
    stores_run *r = &now_running;
    const float *times = elements_of(store, value, what);
    for (int i = 0; times != NULL && i < MOST_UPDATES; i++) {
        if (times[i] == 0)
            continue;
        update *u = &r->updates[i];
        if (!is_own(i, store, ON_ACCUMULATOR) || u->earlier)
            run_fails("%s of store %d has gradient %d, which was not for it", what, store, i);
        else if (times[i] > 1)
            run_fails("gradient %d of worker %d was applied %g times", i, u->worker, (double)times[i]);
        else if (++u->taken > 1 && r->replicas && !r->pair_struck)
            run_fails("%s of store %d has gradient %d, which another take had", what, store, i);
    }
}

// A store that goes back does so once for each restore that the coordinator counts by the end.
void check_taken(void)
{
    const stores_run *r = &now_running;
    for (int i = 0; i < r->n_updates; i++) {
        const update *u = &r->updates[i];
        if (u->target == ON_ACCUMULATOR && u->taken > 1 + r->numbers.restores && !u->earlier)
            run_fails("gradient %d of worker %d was taken %d times", i, u->worker, u->taken);
        if (u->target == ON_ACCUMULATOR && u->taken == 0 && u->done_ns < MU_FOREVER && !u->undone && !u->earlier &&
            r->lost_takes[u->store] == 0)
            run_fails("gradient %d of worker %d, acknowledged at %.6f, is in no take", i, u->worker,
                      (double)u->done_ns / 1e9 - 1);
    }
}

void check_reading(int store, subject target, int64_t begun_ns, mu_value *value)
{
    now_running.n_readings++;
    if (target == ON_ACCUMULATOR)
        check_sum(store, value, "a take");
    else
        check_vector(store, target, begun_ns, value, target == ON_TABLE ? "a reading of the table" : "a reading");
}

void check_end(int store, subject target, mu_value *value)
{
    if (target == ON_ACCUMULATOR) {
        check_sum(store, value, "the last take");
        return;
    }
    check_vector(store, target, world_now(), value, target == ON_TABLE ? "the end of the table" : "the end");
    const float *times = run_failed() ? NULL : elements_of(store, value, "the end");
    for (int i = 0; times != NULL && i < now_running.n_updates; i++)
        now_running.updates[i].at_end |= is_own(i, store, target) && times[i] != 0;
}

// ---- One moment ---------------------------------------------------------------------------------

void check_back(const mu_store *store)
{
    stores_run *r = &now_running;
    const int64_t group = store->restores.items[store->restores.n - 1].epoch - store->number;
    for (int i = 0; i < r->n_back; i++)
        if (r->back[i].store == store->number && r->back[i].group == group)
            return;
    if (r->n_back == MOST_BACK)
        run_fails("stores go back more often than can be noted");
    else
        r->back[r->n_back++] = (going_back){.store = store->number, .group = group, .at_ns = world_now()};
}

// When the first store of a group went back.
static int64_t group_began(int64_t group)
{
    const stores_run *r = &now_running;
    int64_t began_ns = MU_FOREVER;
    for (int i = 0; i < r->n_back; i++)
        if (r->back[i].group == group)
            began_ns = MU_MIN(began_ns, r->back[i].at_ns);
    return began_ns;
}

// When the stores began to go back that may have lost an update first: its answer may have come after that.
static int64_t lost_ns(const update *u)
{
    const stores_run *r = &now_running;
    for (int i = 0; i < r->n_back; i++) // in the order of their times
        if (r->back[i].store == u->store && r->back[i].at_ns >= u->begun_ns)
            return group_began(r->back[i].group);
    return 0;
}

// What a worker does after another update was acknowledged comes of that if the update was its own, or if the
// coordinator has told it since (worker_run).
static bool is_cause(const update *cause, const update *effect)
{
    return (cause->process == effect->process || now_running.skews) && cause->done_ns < effect->begun_ns &&
           !cause->earlier;
}

// `a` is written on one server and, when that is acknowledged, `b` on another: whichever moment all go back to, `b` is
// not there without `a`, if both were acknowledged before.
void check_causes(void)
{
    const stores_run *r = &now_running;
    for (int i = 0; i < r->n_updates; i++)
        for (int k = i + 1; k < r->n_updates && r->updates[i].target != ON_ACCUMULATOR && !r->updates[i].at_end; k++)
            if (is_cause(&r->updates[i], &r->updates[k]) && r->updates[k].at_end &&
                r->updates[k].done_ns < lost_ns(&r->updates[i]))
                run_fails("the snapshot has update %d of store %d and lacks update %d of store %d, which worker %d "
                          "made before",
                          k, r->updates[k].store, i, r->updates[i].store, r->updates[i].worker);
}

void check_earlier(void)
{
    stores_run *r = &now_running;
    memset(r->seen, 0, sizeof r->seen);
    memset(r->lost_takes, 0, sizeof r->lost_takes);
    for (int i = 0; i < r->n_updates; i++)
        r->updates[i].earlier = true;
    r->numbers = (mu_placement_numbers){0};
    r->n_back = 0;
}
