// Waits for the plugin that end although it may never answer.
//
// A call of the plugin cannot be interrupted, so one that may last runs on a thread of its own, and the waiting thread
// can stop waiting. Where programs span several processes, one that fails leaves the programs of the others without an
// end, and whatever follows these on their devices: while such a program is under way, a wait for the plugin also ends
// when the job fails, or after MUSTER_TIMEOUT. Then the client is lost: nothing more is asked of it, and what the
// plugin may still use is kept for ever.
#include "engine/pjrt/pjrt_plan.h"

#include <signal.h>

// How often a wait looks whether the other processes are there.
#define LOOK_NS INT64_C(20000000)

// ---- Two holders --------------------------------------------------------------------------------

void mu__pjrt_pending_init(mu_pjrt_pending *pending, mu_pjrt_pending_free *free)
{
    atomic_store(&pending->holders, 1);
    pending->free = free;
    mu__latch_init(&pending->done, 1);
}

// Unless the wait was abandoned, the waiting thread frees it, so that no thread holds a client after mu_exit.
void mu__pjrt_pending_end(mu_pjrt_pending *pending)
{
    if (atomic_fetch_sub(&pending->holders, 1) > 1)
        mu__latch_arrive(&pending->done);
    else
        pending->free(pending);
}

void mu__pjrt_pending_leave(mu_pjrt_pending *pending)
{
    if (atomic_fetch_sub(&pending->holders, 1) > 1)
        return;
    (void)mu__latch_wait(&pending->done, MU_FOREVER, "the plugin"); // the other arrives at once, if it has not
    pending->free(pending);
}

mu_status mu__pjrt_pending_start(mu_pjrt_pending *pending, void *(*call)(void *), const char *what)
{
    pthread_t thread;
    sigset_t all, own;
    sigfillset(&all); // the program's own threads handle signals
    pthread_sigmask(SIG_SETMASK, &all, &own);
    atomic_fetch_add(&pending->holders, 1);
    const int failed = pthread_create(&thread, NULL, call, pending);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    if (failed != 0) {
        mu__pjrt_pending_end(pending); // there is no other holder
        return mu__error(mu__errno_code(failed), "%s: cannot start a thread for a call of the plugin: %s", what,
                         strerror(failed));
    }
    pthread_detach(thread);
    return MU_OK;
}

// ---- Clients that are lost ----------------------------------------------------------------------

mu_status mu__pjrt_usable(const mu_pjrt_client *client, const char *what)
{
    if (!atomic_load(&client->lost))
        return MU_OK;
    return mu__error(MU_UNAVAILABLE,
                     "%s: the devices %s cannot be used any more, because a program that they shared with other "
                     "processes has not ended; end this process, and start the job again from its last checkpoint",
                     what, client->kind);
}

// The plugin's threads may still use the client, so it is never destroyed.
static void lose(mu_pjrt_client *client)
{
    if (!atomic_exchange(&client->lost, true))
        mu_retain(client);
}

static mu_status wait_with_others(mu_pjrt_client *client, mu_pjrt_pending *pending, const char *what)
{
    const double most = mu__setting_real(MU_SETTING_TIMEOUT);
    const int64_t end = mu__deadline_ns(most);
    for (;;) {
        mu_error_value ignored;
        if (mu__latch_wait(&pending->done, MU_MIN(mu__now_ns() + LOOK_NS, end), what) == MU_OK)
            return MU_OK;
        mu__error_move(&ignored);
        if (client->world->check(client->world) != MU_OK) {
            mu__error_context("while waiting for '%s', which the devices of all processes run together", what);
            break;
        }
        if (mu__now_ns() < end)
            continue;
        mu__error(MU_DEADLINE_EXCEEDED,
                  "'%s', which the devices of all processes run together, has not ended after %.0f s, although no "
                  "process has failed; look for a device or network that hangs, or raise MUSTER_TIMEOUT",
                  what, most);
        client->world->fail(client->world);
        break;
    }
    lose(client);
    return mu_error_code();
}

// Whether other processes can keep the client's devices from ending what they do.
static bool depends_on_others(const mu_pjrt_client *client) { return atomic_load(&client->n_shared) > 0; }

// ---- Events -------------------------------------------------------------------------------------

typedef struct event_wait {
    mu_pjrt_pending pending; // first
    const pj_api *api;
} event_wait;

static void free_wait(mu_pjrt_pending *pending)
{
    mu__latch_free(&pending->done);
    mu__free(pending);
}

static void on_ready(pj_error *error, void *arg)
{
    event_wait *wait = arg;
    pj_error_args end = PJ_ARGS(pj_error_args, .error = error);
    if (error)
        wait->api->functions[PJ_ERROR_DESTROY](&end); // the event has it too
    mu__pjrt_pending_end(&wait->pending);
}

// NULL with an error: there will be no announcement.
static event_wait *announce(mu_pjrt_client *client, pj_event *event, const char *what)
{
    event_wait *wait = mu__calloc(1, sizeof *wait);
    if (!wait)
        return NULL;
    wait->api = client->api;
    mu__pjrt_pending_init(&wait->pending, free_wait);
    pj_event_on_ready_args args = PJ_ARGS(pj_event_on_ready_args, .event = event, .callback = on_ready, .arg = wait);
    atomic_fetch_add(&wait->pending.holders, 1);
    if (mu__pjrt_call(client->api, PJ_EVENT_ON_READY, &args, what) == MU_OK)
        return wait;
    mu__pjrt_pending_end(&wait->pending); // no other thread will
    mu__pjrt_pending_leave(&wait->pending);
    return NULL;
}

// Where the plugin cannot announce the end, it is awaited without giving up: what the devices use is not free before.
static mu_status wait_for_event(mu_pjrt_client *client, pj_event *event, const char *what)
{
    mu_error_value ignored;
    pj_event_ready_args ready = PJ_ARGS(pj_event_ready_args, .event = event);
    const mu_status asked = mu__pjrt_call(client->api, PJ_EVENT_IS_READY, &ready, what);
    if (asked == MU_OK && ready.ready)
        return MU_OK;
    event_wait *wait = asked == MU_OK ? announce(client, event, what) : NULL;
    if (!wait) {
        mu__error_move(&ignored);
        return MU_OK;
    }
    const mu_status status = wait_with_others(client, &wait->pending, what);
    mu__pjrt_pending_leave(&wait->pending);
    return status;
}

mu_status mu__pjrt_await(mu_pjrt_client *client, pj_event *event, const char *what)
{
    if (!event)
        return MU_OK;
    MU_TRY(mu__pjrt_usable(client, what));
    if (depends_on_others(client))
        MU_TRY(wait_for_event(client, event, what));
    return mu__pjrt_await_copy(client, event, what);
}

mu_status mu__pjrt_await_copy(mu_pjrt_client *client, pj_event *event, const char *what)
{
    pj_event_args args = PJ_ARGS(pj_event_args, .event = event);
    if (!event)
        return MU_OK;
    const mu_status status = mu__pjrt_call(client->api, PJ_EVENT_AWAIT, &args, what);
    mu__pjrt_destroy(client->api, PJ_EVENT_DESTROY, &args);
    return status;
}

mu_status mu__pjrt_await_buffer(mu_pjrt_client *client, pj_buffer *buffer, const char *what)
{
    pj_buffer_event_args ready = PJ_ARGS(pj_buffer_event_args, .buffer = buffer);
    MU_TRY(mu__pjrt_usable(client, what));
    MU_TRY(mu__pjrt_call(client->api, PJ_BUFFER_READY_EVENT, &ready, what));
    return mu__pjrt_await(client, ready.event, what);
}

// ---- Launches -----------------------------------------------------------------------------------

typedef struct execution {
    mu_pjrt_pending pending; // first
    const pj_api *api;
    pj_execute_options options;
    pj_execute_args args;
    char what[128];
    mu_status status;
    mu_error_value error;
} execution;

static void *execute(void *argument)
{
    execution *e = argument;
    e->status = mu__pjrt_call(e->api, PJ_LOADED_EXECUTE, &e->args, e->what);
    if (e->status != MU_OK)
        mu__error_move(&e->error);
    mu__pjrt_pending_end(&e->pending);
    return NULL;
}

static mu_status execute_elsewhere(mu_pjrt_client *client, const pj_execute_args *args, const char *what)
{
    execution *e = mu__calloc(1, sizeof *e);
    if (!e)
        return MU_RESOURCE_EXHAUSTED;
    e->api = client->api;
    e->args = *args;
    e->options = *args->options;
    e->args.options = &e->options;
    snprintf(e->what, sizeof e->what, "%s", what);
    mu__pjrt_pending_init(&e->pending, free_wait);
    mu_status status = mu__pjrt_pending_start(&e->pending, execute, what);
    if (status == MU_OK && (status = wait_with_others(client, &e->pending, what)) == MU_OK &&
        (status = e->status) != MU_OK)
        mu__error_raise(&e->error);
    mu__pjrt_pending_leave(&e->pending);
    return status;
}

mu_status mu__pjrt_call_execute(mu_pjrt_client *client, pj_execute_args *args, const char *what)
{
    MU_TRY(mu__pjrt_usable(client, what));
    return depends_on_others(client) ? execute_elsewhere(client, args, what)
                                     : mu__pjrt_call(client->api, PJ_LOADED_EXECUTE, args, what);
}
