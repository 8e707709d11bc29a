// What a server of a cluster does for others: it keeps variables and applies ops to them.
//
// The variables of a server belong to whoever has the cluster's key. An op on them is one request: nobody sees a state
// in between, and no value that the op only changes is sent. remote_variable.c is the other end.
#ifndef MU_SRC_RPC_SERVICE_H
#define MU_SRC_RPC_SERVICE_H

#include "comm/wire.h"
#include "ops/core/op.h"

#include <muster/accumulator.h>
#include <muster/rpc.h>

// mu__service_add registers the methods "muster.variable.create", "muster.variable.delete", "muster.variable.clear",
// "muster.variable.rows" and "muster.apply" with a server that has not started (docs/rpc.md). `max_bytes`: of all
// variables together. Owned by the server.
mu_status mu__service_add(mu_rpc_server *server, size_t max_bytes);

// mu__function_service_add registers the methods "muster.function.register", "muster.function.run" and
// "muster.function.delete". Implemented by distribute (function_service.c).
mu_status mu__function_service_add(mu_rpc_server *server);

// mu__client_of_task makes a client with which a task of the cluster reaches another; its calls fail at once while that
// is away. name NULL: the address. Owned by the caller.
mu_rpc_client *mu__client_of_task(const char *address, const char *name, mu_role role);

// ---- Variables on a server (remote_variable.c) --------------------------------------------------

// mu__remote_variable_create makes a variable on a client's server. Errors: ALREADY_EXISTS; RESOURCE_EXHAUSTED naming
// the server's largest variable; those of a call.
mu_status mu__remote_variable_create(mu_rpc_client *client, const char *name, mu_tensor *value);
mu_status mu__remote_variable_delete(mu_rpc_client *client, const char *name); // errors: NOT_FOUND
// mu__remote_delete_forgotten deletes what was released since the last request (mu__client_forget), and waits: the
// server has room again. Requests that make nothing do so without waiting.
mu_status mu__remote_delete_forgotten(mu_rpc_client *client);
// mu__remote_variables_clear deletes all variables of a server, such as those of a coordinator that died.
mu_status mu__remote_variables_clear(mu_rpc_client *client);

// mu__remote_variable is a resource for a variable that a client's server keeps: ops that are applied to it are sent
// there. It retains the client and belongs to the caller.
mu_resource *mu__remote_variable(mu_rpc_client *client, const char *name, const mu_spec *spec);

// mu__remote_rows returns rows of the first axis of such a variable: indices.shape + the shape of a row, of the pool
// (remote_rows.c). Each row is sent once. mu__rows_expand returns row number[i] of `rows` for each i, as `out` says.
mu_tensor *mu__remote_rows(const mu_resource *variable, mu_tensor *indices);
mu_tensor *mu__rows_expand(mu_tensor *rows, const uint32_t *number, const mu_spec *out);

// The kind of such a resource; its name is that of variables, so that ops and graphs take it for one.
extern const mu_resource_kind mu__remote_variable_kind;

// mu__remote_kind returns the kind of what servers keep by its name; NULL: there is none. mu__remote_resource is
// mu__remote_variable for any kind.
const mu_resource_kind *mu__remote_kind(const char *name);
mu_resource *mu__remote_resource(mu_rpc_client *client, const mu_resource_kind *kind, const char *name,
                                 const mu_spec *spec);

// ---- Accumulators on a server (accumulator_service.c, remote_accumulator.c) ---------------------

// mu__accumulator_service_add registers the methods "muster.accumulator.create", "muster.accumulator.close" and
// "muster.accumulator.take" with a server that has not started, and returns its list, which the server keeps; NULL on
// error. mu__accumulators_find returns one, of the pool; NULL: there is none. mu__accumulators_forget returns whether
// there was one. mu__accumulators_clear closes all.
typedef struct mu_accumulator_list mu_accumulator_list;
mu_accumulator_list *mu__accumulator_service_add(mu_rpc_server *server);
mu_resource *mu__accumulators_find(mu_accumulator_list *list, const char *kind, const char *name);
bool mu__accumulators_forget(mu_accumulator_list *list, const char *name);
void mu__accumulators_clear(mu_accumulator_list *list);

// mu__remote_accumulator_new makes an accumulator on a client's server under a name that the server does not have yet.
// Owned by the caller. Errors: ALREADY_EXISTS; those of a call.
mu_accumulator *mu__remote_accumulator_new(mu_rpc_client *client, const char *name,
                                           const mu_conditional_accumulator_args *args, bool sparse);

// ---- Texts --------------------------------------------------------------------------------------

// mu__text_value makes bytes of a text, as a value of the pool; mu__value_text reads them, into a text that the caller
// frees. Errors: INVALID_ARGUMENT naming `what`.
mu_value *mu__text_value(const char *text);
mu_status mu__value_text(const mu_value *value, const char *what, char **out);

#endif
