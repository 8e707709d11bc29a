// Requests that arrive twice in the simulated cluster with a coordinator: some that a process sends are sent again by
// another one, at once or much later, when the first may have died and the receiver may be a new process.
//
// Those are doubled that the protocol promises to take once, or that change nothing the second time. Not doubled is
// what is sent once over one connection and means something else each time: making, changing and freeing what a server
// keeps without copies and snapshots.
#include "steps.h"

#include "late.h"

#include "comm/sessions/session.h"
#include "rpc/client/client.h"

mu_status __real_mu__session_request(mu_session *session, const mu_request_options *request);
mu_status __wrap_mu__session_request(mu_session *session, const mu_request_options *request);

static bool is_sent_once(const char *method)
{
    return strncmp(method, "muster.variable.", 16) == 0 || strcmp(method, "muster.apply") == 0;
}

// Questions about the servers' state are most of the traffic.
static bool is_drawn(const mu_rpc_result *result)
{
    steps_run_state *r = &steps_now;
    return r->n_doubles < r->most_doubles && result->message != NULL && !is_sent_once(result->method) &&
           world_chance(strcmp(result->method, "muster.store.state") == 0 ? 0.004 : 0.05);
}

// With the client's lock held.
static void note(const mu_rpc_result *result)
{
    steps_run_state *r = &steps_now;
    doubled *d = &r->doubles[r->n_doubles++];
    *d = (doubled){.call = result->id, .message = mu_retain(result->message),
                   .at_ns = world_now() + (world_chance(0.5) ? world_draw_ns(0, 0.05) : world_draw_ns(0.05, 20))};
    snprintf(d->method, sizeof d->method, "%.63s", result->method);
    if (sscanf(mu__client_address(result->owner), "10.0.0.%d:", &d->host) == 1)
        d->host--;
    world_note("\"%s\" to host %d comes again at %.6f", d->method, d->host, (double)d->at_ns / 1e9 - 1);
}

mu_status __wrap_mu__session_request(mu_session *session, const mu_request_options *request)
{
    if (strcmp(request->method, "rpc.call") == 0 && is_drawn(request->arg))
        note(request->arg);
    return __real_mu__session_request(session, request);
}

// The call has the number that it had.
static void send_again(doubled *d)
{
    late_requests late = {.process = d->process, .host = steps_now.coordinator_host};
    mu_value *arguments = NULL;
    mu_pool *pool = mu_pool_open();
    if (mu__message_value(d->message, 0, &arguments) == MU_OK) {
        late_add(&late, mu__give(arguments), world_now());
        late_begin(&late, d->host, STEP_PORT, d->method);
        pthread_mutex_lock(&late.client->lock);
        late.client->n_calls = d->call - 1;
        pthread_mutex_unlock(&late.client->lock);
        mu__context()->request = mu__request_of(d->call);
        late_send(&late);
    }
    const bool taken = late.results[0] != NULL && mu_rpc_result_is_ok(late.results[0]);
    world_note("\"%s\" came again to host %d: %s", d->method, d->host,
               taken ? "taken" : late.results[0] != NULL ? mu_rpc_result_error(late.results[0]).message : "not sent");
    mu_pool_close(pool);
    late_end(&late);
    mu_error_take();
}

void doubles_send(void *arg)
{
    doubled *d = arg;
    send_again(d);
    mu_release(d->message);
    d->message = NULL;
}

void doubles_end(void)
{
    for (int i = 0; i < steps_now.n_doubles; i++)
        mu_release(steps_now.doubles[i].message);
}
