// What the tests of stores share: a server that leads store 0, and the requests of a coordinator and of clients.
#ifndef MU_TESTS_STORES_TEST_H
#define MU_TESTS_STORES_TEST_H

#include "rpc/client/client.h"
#include "rpc/rpc.h"
#include "rpc/server/server.h"
#include "rpc/stores/store.h"
#include "rpc_test.h"

#include <muster/ops.h>

enum { EPOCH = 7 };

// A server, and clients of both roles.
typedef struct env {
    mu_rpc_server *server;
    mu_rpc_client *coordinator, *worker;
    int64_t n_polls, n_requests;
    int64_t oldest; // request that waits for its answer; 0: only the last one does
} env;

static inline mu_rpc_client *client_with(mu_rpc_server *server, mu_role role)
{
    mu_rpc_client_args args = {.size = sizeof args, .rpc_layer = "muster", .address = mu_rpc_server_address(server)};
    return mu__client_new(&args, role, MU_BEARER_ALL);
}

static inline mu_rpc_result *begin_lead(env *e, int64_t epoch, mu_order order, const char *copy, uint64_t copy_process)
{
    const int64_t head[MU_N_LEAD] = {
        0, epoch, order, 0, (int64_t)mu_rpc_client_server(e->coordinator), (int64_t)copy_process, 0};
    return mu_rpc_call(e->coordinator, "muster.store.lead",
                       mu_list(mu__numbers_value(head, MU_N_LEAD), mu__text_value(copy), mu__text_value(""), MU_END));
}

static inline mu_value *lead_with(env *e, int64_t epoch, mu_order order, const char *copy, uint64_t copy_process)
{
    return mu_rpc_result_value(begin_lead(e, epoch, order, copy, copy_process));
}

static inline mu_value *lead(env *e, int64_t epoch, mu_order order) { return lead_with(e, epoch, order, "", 0); }

// Asks as the coordinator does: the answer to the second question begins the lease. `led`: the stores that other
// servers lead, with their epochs. Returns the answer's row for store 0.
static inline void poll_with(env *e, int64_t cut, const int64_t *led, int n_led, int64_t row[MU_N_STATE])
{
    const int64_t head[2] = {e->n_polls + 1, e->n_polls};
    const mu_value *rows = mu_rpc_result_value(mu_rpc_call(
        e->coordinator, "muster.store.state",
        mu_list(mu__numbers_value(head, 2), mu__numbers_value(led, n_led), mu__numbers_value(&cut, 1), MU_END)));
    e->n_polls++;
    assert_non_null(rows);
    assert_int_equal(mu__numbers_of(rows, row, MU_N_STATE), MU_OK);
}

static inline void poll(env *e, int64_t cut, int64_t row[MU_N_STATE]) { poll_with(e, cut, NULL, 0, row); }

static inline mu_rpc_result *begin_ask(env *e, mu_rpc_client *client, int64_t epoch, int64_t cut, const char *method,
                                       mu_value *body)
{
    e->n_requests++;
    const int64_t head[MU_N_ASK] = {0, epoch, cut, 1, e->n_requests, e->oldest > 0 ? e->oldest : e->n_requests, 0, 0};
    return mu_rpc_call(client, "muster.store.call",
                       mu_list(mu__numbers_value(head, MU_N_ASK), mu__text_value(method), body, MU_END));
}

static inline mu_value *ask(env *e, mu_rpc_client *client, int64_t epoch, int64_t cut, const char *method,
                            mu_value *body)
{
    return mu_rpc_result_value(begin_ask(e, client, epoch, cut, method, body));
}

static inline void expect_answer(const mu_value *answer, int64_t epoch, int64_t cut, int64_t code)
{
    int64_t head[MU_N_ANSWER];
    assert_non_null(answer);
    assert_int_equal(mu__numbers_of(mu_value_at(answer, 0), head, MU_N_ANSWER), MU_OK);
    assert_int_equal(head[MU_ANSWER_CODE], code);
    assert_int_equal(head[MU_ANSWER_EPOCH], epoch);
    assert_int_equal(head[MU_ANSWER_CUT], cut);
}

static inline void renew_lease(env *e)
{
    int64_t row[MU_N_STATE];
    for (int i = 0; i < 3; i++)
        poll(e, 0, row);
}

// Leads store 0 in epoch 7, with a variable of one float, on a server whose messages may have so many bytes together.
static inline env make_env_with(int64_t max_bytes)
{
    env e = {.server = mu_rpc_server_new("muster", "localhost:0", .max_bytes = max_bytes)};
    mu_kept *kept = mu__kept_new(SIZE_MAX);
    assert_int_equal(mu__service_add(e.server, kept), MU_OK);
    assert_int_equal(mu__stores_add(e.server, kept), MU_OK);
    mu_release(kept);
    assert_int_equal(mu_rpc_server_start(e.server), MU_OK);
    e.coordinator = client_with(e.server, MU_ROLE_COORDINATOR);
    e.worker = client_with(e.server, MU_ROLE_WORKER);
    assert_non_null(mu_rpc_client_methods(e.coordinator));
    assert_non_null(lead(&e, EPOCH, MU_ORDER_EMPTY));
    renew_lease(&e);
    expect_answer(ask(&e, e.coordinator, EPOCH, 0, "muster.variable.create",
                      mu_list(mu__text_value("v"), mu_constant(MU_F32, 3), MU_END)),
                  EPOCH, 0, MU_OK);
    return e;
}

static inline env make_env(void) { return make_env_with((int64_t)1 << 30); }

#endif
