// What is kept in the simulated cluster with a coordinator: how often each step took effect, also after servers went
// back to a snapshot, and the coordinator's checkpoint.
//
// An update may be lost only if the servers went back to a snapshot that may not have it; how many were lost is what
// mu_parameter_server_recovery says at least. A checkpoint that cannot be written leaves the one before as it was.
#include "steps.h"

#include <muster/checkpoint.h>

// ---- Snapshots ----------------------------------------------------------------------------------

// A snapshot that has begun when another one was complete has all that was acknowledged before that. So a step whose
// join has ended is in the next snapshot but one.
static bool is_safe(const step *s, int64_t snapshots) { return s->noted && s->snapshots + 2 <= snapshots; }

// The snapshots that have failed since the last note. They began at most so long before it.
static void check_failed_snapshots(int64_t n)
{
    enum { SNAPSHOT_NS = 2000000000 };
    const steps_run_state *r = &steps_now;
    const bool were_full = r->full_ns > 0 && r->full_ns >= r->noted_ns - SNAPSHOT_NS;
    if (n > 0 && !were_full && !r->disturbed)
        run_fails("%lld snapshots have failed since %.3f, although the disks were full until %.3f at most",
                  (long long)n, (double)r->noted_ns / 1e9 - 1, (double)r->full_ns / 1e9 - 1);
}

void note_recovery(const program *p)
{
    steps_run_state *r = &steps_now;
    mu_ps_recovery now = {0};
    if (mu_parameter_server_recovery(p->strategy, &now) != MU_OK)
        run_fails("the strategy does not say how servers recovered: %s", mu_error_take().message);
    if (now.restores > 0 && r->replicas > 0 && !r->crowded)
        run_fails("servers went back to a snapshot, although one was lost at a time and each has a copy");
    check_failed_snapshots(now.failed_snapshots - r->recovery.failed_snapshots);
    for (int i = 0; i < r->n_steps; i++) {
        step *s = &r->steps[i];
        s->may_be_lost |= now.restores > r->recovery.restores && !is_safe(s, r->recovery.snapshots);
        if (s->noted || s->round >= r->closed)
            continue;
        s->noted = true;
        s->snapshots = now.snapshots;
    }
    r->recovery = now;
    r->noted_ns = world_now();
}

// ---- How often steps took effect ----------------------------------------------------------------

static void note_times(step *s, int number, double times)
{
    const steps_run_state *r = &steps_now;
    if (s->round < r->closed && times != s->times && !r->disturbed && r->kept)
        run_fails("step %d took effect %g times when its round was over, and %g times later", number, s->times, times);
    s->times = times;
    s->most_times = MU_MAX(s->most_times, times);
}

// How often each step has taken effect so far. When a round is over, that must not change any more for its steps.
void note_effects(const program *p)
{
    steps_run_state *r = &steps_now;
    const bool kept = r->replicas > 0 || r->snapshot_s > 0;
    for (int k = 0; k < STEP_SERVERS && (!r->disturbed || kept); k++) {
        mu_tensor *sums = mu_variable_read(p->variables[k]);
        if (sums == NULL)
            mu_error_take(); // a server is disturbed just now
        for (int i = k; sums != NULL && i < r->n_steps; i += STEP_SERVERS)
            note_times(&r->steps[i], i, mu_tensor_item(sums, i));
    }
    r->kept = true;
}

// Once the last disturbance is over. A server that was cut off from the coordinator may have freed what it had, and
// gets it again from a copy or a snapshot, if there is one.
static mu_tensor *read_at_last(mu_variable *variable)
{
    enum { TRIES = 40 };
    const steps_run_state *r = &steps_now;
    mu_tensor *value = NULL;
    mu_error_value error = {.code = MU_OK};
    for (int i = 0; i < TRIES && (value = mu_variable_read(variable)) == NULL; i++) {
        mu__error_move(&error);
        mu__sleep_ns(1000000000);
    }
    const bool may_be_gone = r->disturbed && r->replicas == 0 && r->recovery.snapshots == 0;
    const bool is_gone = strstr(error.message, "no variable") || strstr(error.message, "nobody has a copy or a snap");
    if (value == NULL && !(may_be_gone && is_gone))
        run_fails("a variable cannot be read: %s", error.message);
    return value;
}

static int passed(const step *s)
{
    int n = 0;
    for (int i = 0; i < s->n_runs; i++)
        n += s->runs[i].ended && s->runs[i].code == MU_OK;
    return n;
}

// How often each step took effect: at least once if it succeeded, and never more often than it ran to its end.
static double check_times(const step *s, int number, double times)
{
    if (times > passed(s) || (times < s->done && !s->may_be_lost))
        run_fails("step %d, which %s, took effect %g times, and ran to its end %d times", number,
                  s->done ? "succeeded" : "did not succeed", times, passed(s));
    return MU_MAX(s->most_times - times, 0);
}

// The strategy says at most what was there to lose: how often runs may have updated a variable, less the times that its
// value tells; the variables' first values; and what a worker does again that had no answer when a store went back.
static void check_not_too_many(double times)
{
    const steps_run_state *r = &steps_now;
    double runs = STEP_SERVERS;
    for (int i = 0; i < r->n_steps; i++)
        runs += r->steps[i].n_runs;
    const double again = 2.0 * (double)r->recovery.restores * r->n_workers;
    if ((double)r->recovery.updates_lost > runs - times + again)
        run_fails("the strategy says that %lld updates are lost, of %g runs whose variables tell %g, and %g more",
                  (long long)r->recovery.updates_lost, runs, times, again);
}

// The servers count what they lack when a client tells that it has seen it, as this process does, and the coordinator
// hears of it with an answer to a question.
static void check_said(const program *p, double n_lost)
{
    enum { ANSWERED_S = 3 };
    steps_run_state *r = &steps_now;
    if (n_lost == 0)
        return;
    mu__sleep_ns(ANSWERED_S * (int64_t)1000000000);
    note_recovery(p);
    if (n_lost > (double)r->recovery.updates_lost)
        run_fails("%g updates are lost that the coordinator has seen, and the strategy says %lld", n_lost,
                  (long long)r->recovery.updates_lost);
    r->n_lost = (int)n_lost;
}

void check_effects(const program *p)
{
    steps_run_state *r = &steps_now;
    double n_lost = 0, times = 0;
    bool all = true;
    mu_tensor *sums[STEP_SERVERS] = {NULL};
    note_effects(p);
    for (int k = 0; k < STEP_SERVERS && !run_failed(); k++) {
        sums[k] = read_at_last(p->variables[k]);
        all &= sums[k] != NULL;
    }
    if (!run_failed())
        note_recovery(p);
    for (int i = 0; i < r->n_steps && !run_failed(); i++)
        if (sums[i % STEP_SERVERS] != NULL) {
            const double now = mu_tensor_item(sums[i % STEP_SERVERS], i);
            n_lost += check_times(&r->steps[i], i, now);
            times += now;
        }
    if (!run_failed())
        check_said(p, n_lost);
    if (!run_failed() && all)
        check_not_too_many(times);
}

// ---- Checkpoints --------------------------------------------------------------------------------

// What the file says of each step.
static bool load(const char *path, double times[MOST_STEPS])
{
    static const char *const names[STEP_SERVERS] = {"v0", "v1"};
    mu_value *all = mu_load_tensors(path);
    for (int k = 0; k < STEP_SERVERS && all != NULL && !mu__pending(); k++) {
        const mu_value *leaf = mu_value_get(all, names[k]);
        const mu_tensor *sums = leaf != NULL ? mu_value_tensor(leaf) : NULL;
        for (int i = k; sums != NULL && i < MOST_STEPS; i += STEP_SERVERS)
            times[i] = mu_tensor_item(sums, i);
    }
    return !mu__pending();
}

// Whether the file has for each step what was read of it, or something between two readings.
static void check_file(const char *path, const double least[MOST_STEPS], const double most[MOST_STEPS],
                       const char *when)
{
    double times[MOST_STEPS] = {0};
    if (!load(path, times)) {
        run_fails("%s the checkpoint cannot be read: %s", when, mu_error_take().message);
        return;
    }
    for (int i = 0; i < MOST_STEPS; i++)
        if (times[i] < least[i] || times[i] > most[i])
            run_fails("%s the checkpoint says that step %d took effect %g times; it was %g to %g", when, i, times[i],
                      least[i], most[i]);
}

static bool read_all(const program *p, double times[MOST_STEPS])
{
    for (int k = 0; k < STEP_SERVERS && !mu__pending(); k++) {
        const mu_tensor *sums = mu_variable_read(p->variables[k]);
        for (int i = k; sums != NULL && i < MOST_STEPS; i += STEP_SERVERS)
            times[i] = mu_tensor_item(sums, i);
    }
    return !mu__pending();
}

static void check_written(const program *p, const char *path, const double before[MOST_STEPS])
{
    steps_run_state *r = &steps_now;
    double after[MOST_STEPS] = {0}, least[MOST_STEPS];
    const bool reads = read_all(p, after);
    mu_error_take(); // a server is disturbed just now
    for (int i = 0; i < MOST_STEPS; i++) {
        least[i] = MU_MIN(before[i], after[i]);
        after[i] = MU_MAX(before[i], after[i]);
    }
    if (!load(path, r->saved))
        run_fails("the checkpoint that was written cannot be read: %s", mu_error_take().message);
    else if (reads)
        check_file(path, least, after, "after it was written");
    r->n_saved++;
}

static void check_not_written(const char *path, int64_t begun_ns)
{
    steps_run_state *r = &steps_now;
    const mu_error error = mu_error_take();
    if (error.code == MU_RESOURCE_EXHAUSTED && r->full_ns < begun_ns)
        run_fails("a checkpoint cannot be written, although the disks are not full: %s", error.message);
    if (error.code != MU_RESOURCE_EXHAUSTED && !r->disturbed)
        run_fails("a checkpoint fails with %s, although at most workers have died: %s", mu_status_name(error.code),
                  error.message);
    if (r->n_saved > 0)
        check_file(path, r->saved, r->saved, "after another one could not be written");
}

void save_checkpoint(const program *p)
{
    double before[MOST_STEPS] = {0};
    char path[100];
    const int64_t begun_ns = world_now();
    mu_pool *pool = mu_pool_open();
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", seeds_folder());
    mu_checkpoint *all = mu_checkpoint_new(.variables = mu_variables(p->variables[0], p->variables[1], MU_END));
    if (read_all(p, before) && mu_checkpoint_save(all, path) == MU_OK)
        check_written(p, path, before);
    else
        check_not_written(path, begun_ns);
    world_note("a checkpoint is written or not: %d so far", steps_now.n_saved);
    mu_error_take();
    mu_pool_close(pool);
}
