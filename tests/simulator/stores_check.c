// What must hold of updates: each is applied at most once, and once if it was acknowledged; nobody sees one undone.
//
// With copies that holds for ever. Going back to a snapshot may undo what was acknowledged after the cut began;
// whatever was acknowledged before the last but one snapshot was complete is in it. A gradient is in what one take
// returns, or in what is left at the end; after going back to a snapshot it may be taken again.
#include "stores.h"

int check_begin_update(int worker, int store, subject target)
{
    stores_run *r = &now_running;
    r->updates[r->n_updates] =
        (update){.worker = worker, .store = store, .target = target, .begun_ns = world_now(), .done_ns = MU_FOREVER};
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
        if (times[i] != 0 && !own)
            run_fails("%s of store %d has update %d, which was not for it", what, store, i);
        else if (times[i] > 1)
            run_fails("update %d of worker %d was applied %g times", i, u->worker, (double)times[i]);
        else if (own && times[i] == 0 && u->done_ns < begun_ns && !u->undone)
            run_fails("%s of store %d lacks update %d of worker %d, acknowledged at %.6f, before it began at %.6f",
                      what, store, i, u->worker, (double)u->done_ns / 1e9 - 1, (double)begun_ns / 1e9 - 1);
        else if (own && times[i] == 0 && r->seen[i] && r->seen_ns[i] < begun_ns && !u->undone)
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
        if (!is_own(i, store, ON_ACCUMULATOR))
            run_fails("%s of store %d has gradient %d, which was not for it", what, store, i);
        else if (times[i] > 1)
            run_fails("gradient %d of worker %d was applied %g times", i, u->worker, (double)times[i]);
        else if (++u->taken > 1 && r->replicas)
            run_fails("%s of store %d has gradient %d, which another take had", what, store, i);
    }
}

// A store that goes back does so once for each restore that the coordinator counts by the end.
void check_taken(void)
{
    const stores_run *r = &now_running;
    for (int i = 0; i < r->n_updates; i++) {
        const update *u = &r->updates[i];
        if (u->target == ON_ACCUMULATOR && u->taken > 1 + r->numbers.restores)
            run_fails("gradient %d of worker %d was taken %d times", i, u->worker, u->taken);
        if (u->target == ON_ACCUMULATOR && u->taken == 0 && u->done_ns < MU_FOREVER && !u->undone &&
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
    if (target == ON_ACCUMULATOR)
        check_sum(store, value, "the last take");
    else
        check_vector(store, target, world_now(), value, target == ON_TABLE ? "the end of the table" : "the end");
}
