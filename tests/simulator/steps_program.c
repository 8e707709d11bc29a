// The coordinator's program in the simulated cluster, the op of its steps, and the checker.
#include "steps.h"

#include "coordinator/coordinator.h"

#include <muster/cancellation.h>

enum { MOST_IN_ROUND = 24, JOIN_S = 200 };
#define SLICE_NS 20000000

steps_run_state steps_now;

// ---- What runs on workers -------------------------------------------------------------------------

// A step that has run somewhere runs again only if that worker is lost, or if its failure is one that is ignored.
static void check_again(const step *s, int number)
{
    steps_run_state *r = &steps_now;
    const step_run *before = &s->runs[s->n_runs - 1]; // those before that were looked at when this one began
    const bool ignored = before->ended && before->code == MU_DEADLINE_EXCEEDED;
    r->n_again++;
    if (r->disturbed || r->lives[before->process].dead)
        return;
    if (!ignored || ++r->n_ignored >= r->timeouts_ignored)
        run_fails("step %d runs again on process %d, although process %d, which %s it, is alive (%d runs, %d time "
                  "limits ignored)",
                  number, world_process(), before->process, before->ended ? "has run" : "runs", s->n_runs,
                  r->n_ignored);
}

static step_run *check_begun(int number, int64_t worker)
{
    steps_run_state *r = &steps_now;
    step *s = &r->steps[number];
    const life *here = &r->lives[world_process()];
    world_note("step %d begins", number);
    if (s->n_runs == MOST_RUNS) {
        run_fails("step %d has run %d times", number, MOST_RUNS);
        return NULL;
    }
    if (s->round < r->closed && !r->disturbed)
        run_fails("step %d begins on process %d after its join has ended", number, world_process());
    if (here->task == NULL || !here->task->worker || here->task->index != worker)
        run_fails("step %d on process %d has the value that worker %d has for itself", number, world_process(),
                  (int)worker);
    if (s->n_runs > 0)
        check_again(s, number);
    s->runs[s->n_runs] = (step_run){.process = world_process(), .begun_ns = world_now()};
    return &s->runs[s->n_runs++];
}

static mu_status take_time(int number, int64_t ns)
{
    const int64_t until_ns = world_now() + ns;
    while (world_now() < until_ns) {
        if (mu_cancellation_is_cancelled(mu__context()->cancellation))
            return mu_fail(MU_CANCELLED, "step %d was cancelled", number);
        mu__sleep_ns(MU_MIN(until_ns - world_now(), (int64_t)SLICE_NS));
    }
    return MU_OK;
}

static mu_status step_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    const int number = (int)*(const int64_t *)in[0].data;
    (void)arg;
    if (steps_now.lives[world_process()].dead)
        return mu_fail(MU_CANCELLED, "the process is dead");
    step_run *run = check_begun(number, *(const int64_t *)in[1].data);
    if (run == NULL)
        return mu_fail(MU_INTERNAL, "step %d fails", number);
    const step *s = &steps_now.steps[number];
    mu_status code = take_time(number, s->takes_ns);
    if (code == MU_OK && s->fails != MU_OK)
        code = mu_fail(s->fails, "step %d fails", number);
    run->ended = true;
    run->code = code;
    world_note("step %d ends: %s", number, mu_status_name(code));
    *(int64_t *)out[0].data = number;
    return code;
}

mu_status steps_register_op(void)
{
    return mu_register_op("sim_step", 2, 1, .kernel = step_kernel, .has_effect = true);
}

// ---- The functions ----------------------------------------------------------------------------------

static mu_value *adding_step(mu_value *arguments, void *arg)
{
    const int64_t single = 1;
    const float one = 1;
    mu_tensor *in[] = {mu_at(arguments, 0), mu_at(arguments, 1)};
    mu_tensor *number = mu_call_op1("sim_step", 2, in);
    mu_variable_scatter_add(arg, mu_reshape(number, 1, &single), mu_tensor_new(MU_F32, 1, &single, &one));
    return mu_of(number);
}

static mu_value *own_index(void *arg)
{
    const int64_t worker = mu_get_current_worker_index();
    (void)arg;
    return mu_of(mu_tensor_new(MU_I64, 0, NULL, &worker));
}

static mu_cluster *cluster(void)
{
    char text[400];
    int used = snprintf(text, sizeof text, "{\"worker\": [");
    for (int i = 0; i < steps_now.n_workers; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s\"10.0.0.%d:%d\"", i > 0 ? ", " : "",
                         steps_now.workers[i].host + 1, STEP_PORT);
    used += snprintf(text + used, sizeof text - (size_t)used, "], \"ps\": [");
    for (int i = 0; i < STEP_SERVERS; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s\"10.0.0.%d:%d\"", i > 0 ? ", " : "",
                         steps_now.servers[i].host + 1, STEP_PORT);
    snprintf(text + used, sizeof text - (size_t)used, "]}");
    return mu_simple_cluster_resolver(mu_cluster_spec_parse(text));
}

static void begin(program *p)
{
    static const char *const names[STEP_SERVERS] = {"v0", "v1"};
    const int64_t n = MOST_STEPS;
    p->strategy =
        mu_parameter_server_strategy(cluster(), .replicas = steps_now.replicas, .snapshot_every = steps_now.snapshot_s,
                                     .snapshot_folder = steps_now.snapshot_s > 0 ? seeds_folder() : NULL);
    MU_SCOPE(p->strategy)
        for (int i = 0; i < STEP_SERVERS; i++) {
            p->variables[i] = mu_variable_new(mu_tensor_new(MU_F32, 1, &n, NULL), names[i]);
            p->functions[i] = mu_function_new(adding_step, p->variables[i]);
        }
    p->coordinator = mu_coordinator_new(p->strategy, .ignore_transient_timeouts = steps_now.timeouts_ignored,
                                        .ignore_transient_ps_failures = steps_now.ps_failures_ignored);
    p->own = p->coordinator != NULL ? mu_create_per_worker_values(p->coordinator, own_index, NULL) : NULL;
    steps_now.coordinator = p->coordinator;
    steps_now.strikes_ns = world_now() + world_draw_ns(0.1, 5);
}

// ---- What the coordinator tells -----------------------------------------------------------------------

static const step *failing(const mu_error *error)
{
    int number = -1;
    const char *at = strstr(error->message, "step ");
    if (at == NULL || sscanf(at, "step %d fails", &number) != 1 || number < 0 || number >= steps_now.n_steps)
        return NULL;
    return &steps_now.steps[number];
}

// A server's trouble surfaces when it has been reported as often as is ignored.
static bool is_servers(const mu_error *error)
{
    const mu_coordinator *c = steps_now.coordinator;
    for (int i = 0; i < STEP_SERVERS; i++)
        if (c->ps_failures[i] >= MU_MAX(steps_now.ps_failures_ignored, 1))
            return error->code == MU_UNAVAILABLE || error->code == MU_ABORTED;
    return false;
}

static void check_nothing_runs(void)
{
    const steps_run_state *r = &steps_now;
    for (int i = 0; i < r->n_steps; i++)
        for (int k = 0; k < r->steps[i].n_runs; k++) {
            const step_run *run = &r->steps[i].runs[k];
            if (!run->ended && !r->lives[run->process].dead && !r->disturbed)
                run_fails("step %d still runs on process %d when the join has ended", i, run->process);
        }
    for (int i = 0; i < r->n_workers; i++)
        if (r->coordinator->workers[i].in_flight != 0)
            run_fails("worker %d has %lld calls when the join has ended", i,
                      (long long)r->coordinator->workers[i].in_flight);
}

// An error that a schedule or a join has raised.
static void check_raised(const mu_error *error)
{
    steps_run_state *r = &steps_now;
    step *s = (step *)(uintptr_t)failing(error);
    world_note("the coordinator raises %s: %s", mu_status_name(error->code), error->message);
    r->n_errors++;
    if (s == NULL && (!r->disturbed || !is_servers(error)))
        run_fails("the coordinator raises an error that is nobody's: %s: %s", mu_status_name(error->code),
                  error->message);
    if (s != NULL && (s->raised || s->round < r->closed || s->fails != error->code))
        run_fails("the coordinator raises an error %s: %s", s->raised ? "again" : "of another round, or another code",
                  error->message);
    if (s != NULL && error->code == MU_DEADLINE_EXCEEDED && r->coordinator->timeouts < r->timeouts_ignored)
        run_fails("an error is raised that is to be ignored: %s", error->message);
    if (s != NULL)
        s->raised = true;
    check_nothing_runs();
}

// What a step's result is, when nothing runs any more.
static void check_result(step *s, int number, bool raised)
{
    steps_run_state *r = &steps_now;
    if (mu__remote_value_state((mu_remote_value *)s->result->leaf) == MU_REMOTE_NOT_READY) {
        run_fails("step %d is lost: its round is over, and it has no result", number);
        return;
    }
    mu_value *value = mu_fetch(s->result);
    const mu_error error = mu_error_take();
    if (error.code == MU_OK && (s->fails != MU_OK || mu_tensor_item_int(mu_at(value, 0), 0) != number))
        run_fails("step %d, which ends with %s, has a wrong result", number, mu_status_name(s->fails));
    s->done = error.code == MU_OK;
    if (s->done || (s->fails == error.code && failing(&error) == s))
        return;
    r->n_cancelled += error.code == MU_CANCELLED;
    if (!raised || (error.code != MU_CANCELLED && !(r->disturbed && is_servers(&error))))
        run_fails("step %d ends with %s: %s", number, mu_status_name(error.code), error.message);
}

// ---- The program ----------------------------------------------------------------------------------------

static mu_status draw_failure(void)
{
    static const mu_status codes[] = {MU_INVALID_ARGUMENT, MU_OUT_OF_RANGE,       MU_FAILED_PRECONDITION,
                                      MU_INTERNAL,         MU_RESOURCE_EXHAUSTED, MU_DEADLINE_EXCEEDED};
    return world_chance(0.04) ? codes[world_draw(MU_COUNT(codes))] : MU_OK;
}

// Returns false if the coordinator raised an error instead.
static bool schedule_one(const program *p)
{
    steps_run_state *r = &steps_now;
    const int64_t number = r->n_steps++;
    step *s = &r->steps[number];
    *s = (step){.round = r->round,
                .fails = draw_failure(),
                .takes_ns = world_chance(0.05) ? world_draw_ns(1, 5) : world_draw_ns(0, 0.2)};
    world_note("step %d is scheduled%s", (int)number, s->fails != MU_OK ? ", which fails" : "");
    s->result = mu_schedule(p->coordinator, p->functions[number % STEP_SERVERS],
                            mu_list(mu_tensor_new(MU_I64, 0, NULL, &number), p->own, MU_END));
    return s->result != NULL;
}

static bool round_raises(const program *p)
{
    const int n = (int)MU_MIN(1 + (int64_t)world_draw(MOST_IN_ROUND), (int64_t)(MOST_STEPS - steps_now.n_steps));
    for (int i = 0; i < n; i++) {
        if (!schedule_one(p))
            return true;
        if (world_chance(0.1))
            mu__sleep_ns(world_draw_ns(0.001, 1));
    }
    return mu_join(p->coordinator, .timeout_seconds = JOIN_S) != MU_OK;
}

// The step whose schedule raised is cancelled, and has no result.
static void play_round(const program *p)
{
    steps_run_state *r = &steps_now;
    mu_pool *pool = mu_pool_open();
    const int first = r->n_steps;
    const bool raised = round_raises(p);
    if (raised) {
        const mu_error error = mu_error_take();
        check_raised(&error);
    } else {
        check_nothing_runs();
    }
    note_effects(p);
    r->closed = ++r->round;
    note_recovery(p);
    for (int i = first; i < r->n_steps && !run_failed(); i++)
        if (r->steps[i].result != NULL)
            check_result(&r->steps[i], i, raised);
        else if (!raised || i + 1 < r->n_steps || r->steps[i].n_runs > 0)
            run_fails("step %d, whose schedule raised an error, has run", i);
    for (int i = first; i < r->n_steps; i++)
        r->steps[i].result = NULL;
    if (raised && world_chance(0.5) && !run_failed() && mu_join(p->coordinator, .timeout_seconds = JOIN_S) != MU_OK)
        run_fails("an error is raised twice: %s", mu_error_take().message);
    mu_pool_close(pool);
}

static void check_numbers(const program *p)
{
    int64_t done = 0;
    for (int i = 0; i < steps_now.n_workers; i++) {
        mu_worker_calls calls = {0};
        if (mu_coordinator_worker_calls(p->coordinator, i, &calls) == MU_OK)
            done += calls.done;
    }
    world_note("%lld calls are done", (long long)done);
}

// Time for snapshots, and for what happens to them.
static void between_rounds(const program *p)
{
    const steps_run_state *r = &steps_now;
    if (r->snapshot_s > 0 && world_chance(0.5))
        mu__sleep_ns(world_draw_ns(0, 4 * r->snapshot_s));
    if (r->saves && world_chance(0.6) && !run_failed())
        save_checkpoint(p);
}

static void end_program(program *p)
{
    steps_now.coordinator = NULL;
    mu_release(p->own);
    mu_release(p->coordinator);
    for (int i = 0; i < STEP_SERVERS; i++) {
        mu_release(p->functions[i]);
        mu_release(p->variables[i]);
    }
    mu_release(p->strategy);
}

void steps_program(void *arg)
{
    program p = {0};
    (void)arg;
    mu_pool *pool = mu_pool_open();
    begin(&p);
    if (mu__pending())
        run_fails("the coordinator cannot begin: %s", mu_error_take().message);
    while (steps_now.round < steps_now.n_rounds && steps_now.n_steps < MOST_STEPS && !run_failed()) {
        play_round(&p);
        between_rounds(&p);
    }
    if (!run_failed())
        check_numbers(&p);
    if (!run_failed())
        check_effects(&p);
    mu_error_take();
    mu_retain(p.own), mu_retain(p.coordinator), mu_retain(p.strategy);
    for (int i = 0; i < STEP_SERVERS; i++)
        mu_retain(p.functions[i]), mu_retain(p.variables[i]);
    mu_pool_close(pool);
    end_program(&p);
    threads_end_devices();
    steps_now.over = true;
}
