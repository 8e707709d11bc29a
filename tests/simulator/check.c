// What must hold at the end of a run, whatever its seed drew.
#include "run.h"

enum { HEAR_S = 3 }; // for a word to reach everybody, besides the heartbeat's limit

// The tasks that had not ended by themselves when the fault struck.
static bool was_there(const run *r, const task *t)
{
    return t->error.code != MU_OK || t->failed_ns != 0 || t->stage == STAGE_DEAD ||
           (t->stage == STAGE_ENDED && t->since_ns > r->strikes_ns);
}

static void expect_good(const run *r)
{
    for (int i = 0; i < r->n_tasks; i++) {
        const task *t = &r->tasks[i];
        if (t->stage != STAGE_ENDED || t->error.code != MU_OK || t->exchanged != t->n_exchanges ||
            t->streamed != t->n_streams)
            run_fails("%s should have done all: %d of %d exchanges, %d of %d streams, error: %s", task_name(i),
                      t->exchanged, t->n_exchanges, t->streamed, t->n_streams, t->error.message);
    }
}

// Orderly leaving never counts as death, and no process is blamed that did not cause the end.
static void expect_errors_of(const run *r, mu_status code, const char *part, int64_t by_ns)
{
    for (int i = 0; i < r->n_tasks; i++) {
        const task *t = &r->tasks[i];
        if (i == r->victim || t->host == r->tasks[r->victim].host || !was_there(r, t))
            continue;
        if (t->error.code == MU_OK)
            continue; // it had all that it needed
        if (t->error.code != code || strstr(t->error.message, part) == NULL)
            run_fails("%s should say %s with \"%s\", but says %s: %s", task_name(i), mu_status_name(code), part,
                      mu_status_name(t->error.code), t->error.message);
        if (t->failed_ns > by_ns)
            run_fails("%s noticed at %.3f s, later than %.3f s", task_name(i), (double)t->failed_ns / 1e9,
                      (double)by_ns / 1e9);
    }
}

static const task *first_to_fail(const run *r)
{
    const task *first = NULL;
    for (int i = 0; i < r->n_tasks; i++)
        if (r->tasks[i].failed_ns != 0 && (first == NULL || r->tasks[i].failed_ns < first->failed_ns))
            first = &r->tasks[i];
    return first;
}

// The list of who is missing is short where nearly all are: with rank 0, which knows the addresses, for example.
static bool names(const char *message, int rank)
{
    return strstr(message, task_name(rank)) != NULL || strstr(message, " more") != NULL;
}

static void check_absent(const run *r)
{
    const task *first = first_to_fail(r);
    for (int i = 0; i < r->n_tasks; i++)
        if (r->tasks[i].joined)
            run_fails("%s joined a job that was never complete", task_name(i));
    if (first == NULL && r->n_tasks > (r->other >= 0 ? 2 : 1))
        run_fails("nobody noticed that a task is absent");
    if (first == NULL)
        return;
    if (first->error.code != MU_DEADLINE_EXCEEDED || strstr(first->error.message, "missing: ") == NULL ||
        !names(first->error.message, r->victim) || (r->other >= 0 && !names(first->error.message, r->other)))
        run_fails("%s does not name who is absent: %s", task_name(first->rank), first->error.message);
}

static bool is_running(stage at)
{
    return at == STAGE_JOINING || at == STAGE_WORKING || at == STAGE_EXCHANGING || at == STAGE_STREAMING;
}

// The victim's end: everybody who still needed it says so in time.
static void check_death(const run *r)
{
    const double limit_s = (r->fault == FAULT_DARK ? r->heartbeat_s : 0) + HEAR_S;
    if (!r->struck || !is_running(r->stage_struck))
        return;
    if (r->all_joined_struck && r->tasks[r->victim].exchanged < r->tasks[r->victim].n_exchanges)
        expect_errors_of(r, MU_UNAVAILABLE, "is gone", r->strikes_ns + (int64_t)(limit_s * 1e9));
    for (int i = 0; i < r->n_tasks; i++)
        if (r->tasks[i].host != r->tasks[r->victim].host && r->tasks[i].stage == STAGE_ENDED &&
            r->tasks[i].error.code == MU_OK && r->tasks[r->victim].exchanged < r->tasks[i].n_exchanges - 1)
            run_fails("%s did all although %s was dead", task_name(i), task_name(r->victim));
}

// A disturbance that is short against the heartbeat's limit harms nobody.
static void check_disturbance(const run *r)
{
    const double lasts_s = (double)(r->until_ns - r->strikes_ns) / 1e9, again_s = r->fault == FAULT_CUT ? 1 : 0;
    const double beat_s = MU_MIN(r->heartbeat_s / 5, 2);
    if (!r->struck || lasts_s + again_s + beat_s + 4 * r->most_delay_s < r->heartbeat_s)
        expect_good(r);
}

// Either the twin fails alone, or the job names the conflict.
static void check_twin(const run *r)
{
    const task *twin = &r->tasks[r->n_processes - 1];
    if (twin->error.code == MU_OK && r->tasks[r->victim].error.code == MU_OK)
        run_fails("two processes of %s took part", task_name(r->victim));
}

void check_run(const run *r)
{
    for (int i = 0; i < r->n_processes; i++)
        if (!task_is_over(&r->tasks[i]) && r->tasks[i].paused_ns != MU_FOREVER)
            run_fails("%s (process %d) has not ended", task_name(r->tasks[i].rank), i);
    switch (r->fault) {
    case FAULT_NONE:
    case FAULT_RESTART:
    case FAULT_STRANGERS: expect_good(r); break;
    case FAULT_ABSENT: check_absent(r); break;
    case FAULT_KILL:
    case FAULT_DARK: check_death(r); break;
    case FAULT_CUT:
    case FAULT_SLOW: check_disturbance(r); break;
    case FAULT_TWIN: check_twin(r); break;
    case N_FAULTS: break;
    }
}
