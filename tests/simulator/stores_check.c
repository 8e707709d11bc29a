// What must hold of updates: each is applied at most once, and once if it was acknowledged; nobody sees one undone.
//
// With copies that holds for ever. Going back to a snapshot may undo what was acknowledged after the cut began;
// whatever was acknowledged before the last but one snapshot was complete is in it.
#include "stores.h"

int check_begin_update(int worker, int store, bool table)
{
    stores_run *r = &now_running;
    r->updates[r->n_updates] =
        (update){.worker = worker, .store = store, .table = table, .begun_ns = world_now(), .done_ns = MU_FOREVER};
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

static void check_vector(int store, bool table, int64_t begun_ns, mu_value *value, const char *what)
{
    stores_run *r = &now_running;
    mu_tensor *vector = mu_at(value, 0);
    if (vector == NULL || vector->shape.dims[0] != MOST_UPDATES) {
        run_fails("%s of store %d gave no vector: %s", what, store, mu_error_message());
        mu_error_take();
        return;
    }
    const float *times = mu__host_read(vector);
    for (int i = 0; i < MOST_UPDATES; i++) {
        const update *u = &r->updates[i];
        const bool own = i < r->n_updates && u->store == store && u->table == table;
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

void check_reading(int store, bool table, int64_t begun_ns, mu_value *value)
{
    now_running.n_readings++;
    check_vector(store, table, begun_ns, value, table ? "a reading of the table" : "a reading");
}

void check_end(int store, bool table, mu_value *value)
{
    check_vector(store, table, world_now(), value, table ? "the end of the table" : "the end");
}
