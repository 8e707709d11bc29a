// Requests that come late: see late.h.
#include "late.h"

#include "world.h"

#define MOST_SECONDS 5 // for an answer, which nobody reads

void late_add(late_requests *late, mu_value *message, int64_t at_ns)
{
    late->messages[late->n] = mu_retain(message);
    late->at_ns[late->n++] = at_ns;
}

void late_begin(late_requests *late, int host, int port, const char *method)
{
    char address[32];
    world_enter(late->process, late->host);
    snprintf(address, sizeof address, "10.0.0.%d:%d", host + 1, port);
    late->client = mu_retain(mu_rpc_client_new("muster", address));
    late->method = method;
}

int64_t late_send(late_requests *late)
{
    int64_t next_ns = MU_FOREVER;
    for (int i = 0; i < late->n; i++)
        if (late->results[i] == NULL && world_now() >= late->at_ns[i])
            late->results[i] = mu__client_call(late->client, late->method, late->messages[i], MOST_SECONDS, NULL, NULL);
        else if (late->results[i] == NULL)
            next_ns = MU_MIN(next_ns, late->at_ns[i]);
    return next_ns;
}

void late_end(late_requests *late)
{
    mu_error_value ignored;
    world_enter(late->process, late->host);
    for (int i = 0; i < late->n; i++) {
        mu_release(late->messages[i]);
        mu_release(late->results[i]);
    }
    mu_release(late->client);
    mu__error_move(&ignored);
    *late = (late_requests){.due_ns = MU_FOREVER};
}
