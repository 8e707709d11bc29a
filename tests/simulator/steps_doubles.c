// Requests that arrive twice in the simulated cluster with a coordinator: some that a server or a worker reads are sent
// to it again by another process, at once or much later, when the first sender may have died and the receiver may be a
// new process.
//
// Those are doubled that the protocol promises to take once, or that change nothing the second time. Not doubled is
// what is sent once over one connection and means something else each time: making, changing and freeing what a server
// keeps without copies and snapshots.
#include "steps.h"

#include "late.h"

#include "rpc/client/client.h"
#include "rpc/server/server.h"

void __real_mu__server_asked(mu_node *node, int member, const mu_request *request);
void __wrap_mu__server_asked(mu_node *node, int member, const mu_request *request);

static bool is_sent_once(const char *method)
{
    return strncmp(method, "muster.variable.", 16) == 0 || strcmp(method, "muster.apply") == 0;
}

// Questions about the servers' state are most of the traffic.
static bool is_drawn(const char *method)
{
    return steps_now.n_doubles < steps_now.most_doubles && !is_sent_once(method) &&
           world_chance(strcmp(method, "muster.store.state") == 0 ? 0.004 : 0.05);
}

static void note(const char *method, uint64_t call, mu_message *arguments)
{
    doubled *d = &steps_now.doubles[steps_now.n_doubles++];
    *d = (doubled){.host = world_host(),
                   .call = call,
                   .message = arguments,
                   .at_ns = world_now() + (world_chance(0.5) ? world_draw_ns(0, 0.05) : world_draw_ns(0.05, 20))};
    snprintf(d->method, sizeof d->method, "%s", method);
    world_note("\"%s\" comes again at %.6f", method, (double)d->at_ns / 1e9 - 1);
}

// A call whose arguments did not come in parts.
static void look_at(const mu_request *request)
{
    char method[sizeof steps_now.doubles[0].method] = "";
    mu_cursor cursor = mu__cursor(request->data, request->bytes);
    const uint64_t call = mu__cursor_u64_little(&cursor), transfer = mu__cursor_u64_little(&cursor);
    const size_t n = mu__cursor_u8(&cursor);
    const uint8_t *name = mu__cursor_bytes(&cursor, n);
    if (name == NULL || transfer != 0 || n >= sizeof method)
        return;
    memcpy(method, name, n);
    mu_message *arguments = is_drawn(method) ? mu__message_new(mu__cursor_left(&cursor)) : NULL;
    if (arguments == NULL)
        return;
    mu__put_bytes(arguments->data, cursor.at, arguments->bytes);
    note(method, call, arguments);
}

void __wrap_mu__server_asked(mu_node *node, int member, const mu_request *request)
{
    if (strcmp(request->method, "rpc.call") == 0)
        look_at(request);
    __real_mu__server_asked(node, member, request);
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
               taken                     ? "taken"
               : late.results[0] != NULL ? mu_rpc_result_error(late.results[0]).message
                                         : "not sent");
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
