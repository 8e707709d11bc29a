// What a server of a cluster does for others: it keeps variables and applies ops to them.
//
// Any process that has the cluster's key may use the variables of a server. An op on them is one request: no other
// client sees an intermediate state, and values that the op only changes are not sent. remote_variable.c is the other
// end.
#ifndef MU_SRC_RPC_SERVICE_H
#define MU_SRC_RPC_SERVICE_H

#include "comm/sessions/wire.h"
#include "ops/core/op.h"
#include "ops/state/budget.h"

#include <muster/accumulator.h>
#include <muster/rpc.h>
#include <muster/server.h>

// mu__server_metrics returns the port at which a server shows its numbers; -1: none.
int mu__server_metrics(const mu_server *server);

// ---- Parts of a store ---------------------------------------------------------------------------

// One kind of things that a server keeps: the methods on them, and how they become a value. It is the seam for what
// copies and snapshots (store.h) must follow. All functions may be called by several threads at the same time, except
// where mu__change_begin says otherwise.
typedef struct mu_store_method {
    const char *name;  // "muster.apply"
    const char *input; // signature; NULL: any
    // One of the two; `arg` is the part. They call mu__change_begin before they change something, and never else.
    mu_rpc_method *fn;
    struct mu_message *(*writer)(const mu_value *arguments, void *arg); // a mu_rpc_writer (rpc.h)
} mu_store_method;

// The bytes that a server keeps, in all its stores and beside them, and how many it may. An object.
typedef struct mu_kept {
    mu_object object;
    mu_byte_budget budget;
    bool has_budget;
} mu_kept;
mu_kept *mu__kept_new(size_t max_bytes);

enum { MU_MOST_PARTS = 8 };
typedef struct mu_store_part {
    const char *name; // "variables"
    // make makes an empty part, which is an object of the caller's and retains `kept`, whose budget it uses.
    void *(*make)(mu_kept *kept);
    int n_methods;
    const mu_store_method *methods;
    // save returns all that the part has as a list of [name, value], of the pool; load adds one. No change is under way
    // meanwhile. What load makes of a saved value answers all later requests as the original does, bit for bit.
    mu_value *(*save)(void *part);
    mu_status (*load)(void *part, const char *name, mu_value *value);
} mu_store_part;
extern const mu_store_part mu__variables_part; // service.c
extern const mu_store_part mu__tables_part;    // table_service.c

// mu__part_register registers the methods of a part with a server that has not started.
mu_status mu__part_register(mu_rpc_server *server, const mu_store_part *part, void *object);

// mu__change_begin must precede every change that a method makes to what its part keeps. In a store with a copy it
// gives the change its place in the order of all, until the method returns; requests in this order, and nothing else,
// are what the copy repeats, so what a change does may depend on the request and on the part alone. Otherwise it does
// nothing. A method that changed nothing after it must fail. Errors: ABORTED if this process must not change it now.
mu_status mu__change_begin(void);
// mu__change_begin_when is mu__change_begin for a change that needs what others bring, such as a take of gradients. It
// begins when ready(arg), which may be called several times, and no earlier request waits for the same name. Until then
// it fails with ABORTED; the method then returns, and the store runs it again after later changes, for at most
// `seconds` since the request came (DEADLINE_EXCEEDED). Outside of stores (mu__change_in_store) it does nothing.
mu_status mu__change_begin_when(const char *name, double seconds, bool (*ready)(void *arg), void *arg);
bool mu__change_in_store(void);
// mu__change_repeated returns whether a copy repeats its primary's request: its answer is for nobody who waits.
bool mu__change_repeated(void);
// mu__change_concerns says that the change may be what requests wait for under this name: they are run again after it.
void mu__change_concerns(const char *name);
// mu__change_torn marks a failed change as partly applied: the copy cannot repeat that and is sent everything again.
void mu__change_torn(void);

// mu__service_add registers the methods "muster.variable.create", "muster.variable.delete", "muster.variable.clear",
// "muster.variable.rows" and "muster.apply" with a server that has not started (docs/rpc.md). Owned by the server.
mu_status mu__service_add(mu_rpc_server *server, mu_kept *kept);
// mu__stores_add registers the methods "muster.store.…": the same on stores that have copies (store.h).
mu_status mu__stores_add(mu_rpc_server *server, mu_kept *kept);

// mu__rows_write writes rows of [part, name, value] and a table of requests into one safetensors file, which is there
// completely or as it was before; mu__rows_read reads it, into lists of the pool. Implemented by distribute
// (store_file.c), because this layer knows no files.
mu_status mu__rows_write(const char *path, const mu_value *rows, const mu_value *seen, int64_t sequence);
mu_status mu__rows_read(const char *path, mu_value **rows, mu_value **seen, int64_t *sequence);
// mu__rows_delete deletes a file of rows. Records no error: a file that cannot be deleted is tried again with the next.
void mu__rows_delete(const char *folder, const char *name);
// mu__rows_each calls fn with the name of every file of a folder.
void mu__rows_each(const char *folder, void (*fn)(const char *name, void *arg), void *arg);

// mu__function_service_add registers the methods "muster.function.…" and "muster.input.…", whose bytes count in `kept`.
// Implemented by distribute (function_service.c, input_service.c).
mu_status mu__function_service_add(mu_rpc_server *server, mu_kept *kept);

// mu__client_of_task makes a client with which a task of the cluster reaches another; its calls fail at once while that
// is away. `name` says which task that is ("parameter server 0"), for messages; NULL: it is not known. `accepts`: which
// worker's key the other may have in place of the cluster's (mu__link_accept). Owned by the caller.
mu_rpc_client *mu__client_of_task(const char *address, const char *name, mu_role role, int accepts);

// ---- Variables on a server (remote_variable.c) --------------------------------------------------

// What a call is about, as the program knows it. Its errors begin with that: "assign_variable of variable 'v': …".
typedef struct mu_remote_subject {
    const char *op;   // NULL: none
    const char *what; // "variable", "creating embedding table"; NULL: errors are as they come
    const char *name; // of it; NULL: none
} mu_remote_subject;
static inline mu_remote_subject mu__remote_subject(const mu_op *op, const char *what, const char *name)
{
    return (mu_remote_subject){.op = op != NULL ? op->name : NULL, .what = what, .name = name};
}

// mu__remote_call calls a method on what a client's server keeps, and waits: one request, or, if the server's store has
// a copy, as many as it takes until the store's primary has answered. The result is of the pool. Errors: as
// mu_rpc_result_value.
mu_value *mu__remote_call(mu_rpc_client *client, const char *method, mu_remote_subject subject, mu_value *arguments);
// mu__remote_calls does so on what several servers keep, at the same time. `value` gets the result, of the pool.
// Errors: the first.
typedef struct mu_remote_call {
    mu_rpc_client *client;
    mu_remote_subject subject;
    mu_value *arguments;
    double seconds;           // that it may take; 0: the client's usual time
    const mu_wire_need *need; // as of mu__client_call_since
    // If mu__remote_calls fails, as it does if the thread is cancelled, the call has ended at the server too when it
    // returns, and changes nothing afterwards. `leaves` ends that wait (mu__result_settle).
    bool settles;
    mu_cancellation *leaves;
    mu_value *value;
} mu_remote_call;
mu_status mu__remote_calls(const char *method, int n, mu_remote_call *calls);

// mu__remote_apply_arguments returns the arguments of "muster.apply" for one op, of the pool.
mu_value *mu__remote_apply_arguments(const mu_op *op, const void *attrs, int n_in, mu_tensor *const *in,
                                     int n_resources, mu_resource *const *resources);

// mu__remote_variable_create makes a variable on a client's server. Errors: ALREADY_EXISTS; RESOURCE_EXHAUSTED naming
// the server's largest variable; those of a call.
mu_status mu__remote_variable_create(mu_rpc_client *client, const char *name, mu_tensor *value);
mu_status mu__remote_variable_delete(mu_rpc_client *client, const char *name); // errors: NOT_FOUND
// mu__remote_delete_forgotten deletes what was released since the last request (mu__client_forget), and waits: the
// server has room again. Requests that make nothing use mu__remote_tell_forgotten, which does not wait, unless the
// server's store has a copy.
mu_status mu__remote_delete_forgotten(mu_rpc_client *client);
void mu__remote_tell_forgotten(mu_rpc_client *client);
// mu__remote_variables_clear frees everything that a server keeps for coordinators, such as one that died.
mu_status mu__remote_variables_clear(mu_rpc_client *client);

// mu__remote_variable is a resource for a variable that a client's server keeps: ops that are applied to it are sent
// there. It retains the client and belongs to the caller.
mu_resource *mu__remote_variable(mu_rpc_client *client, const char *name, const mu_spec *spec);

// mu__remote_rows returns rows of the first axis of such a variable, or of the variable whose parts these are, n of
// them: indices.shape + the shape of a row, of the pool (remote_rows.c). Each row is sent once.
mu_tensor *mu__remote_rows(int n, mu_resource *const *variables, mu_tensor *indices);

// mu__remote_scatter applies "scatter_variable" with these attributes to the parts of such a variable, all of them at
// the same time. Errors: of the first part that has one; the others may have changed.
mu_status mu__remote_scatter(int n, mu_resource *const *variables, const void *attrs, mu_tensor *indices,
                             mu_tensor *values);

// mu__remote_update_each applies an op with one input and no result to each of n such variables, which get a value
// each, at the same time. Errors: of the first that has one; the others may have changed.
mu_status mu__remote_update_each(const mu_op *op, int n, mu_resource *const *variables, mu_tensor *const *values);

// The kind of such a resource; its name is that of variables, so that ops and graphs take it for one.
extern const mu_resource_kind mu__remote_variable_kind;

// mu__remote_kind returns the kind of what servers keep by its name; NULL: there is none. mu__remote_resource is
// mu__remote_variable for any kind.
const mu_resource_kind *mu__remote_kind(const char *name);
mu_resource *mu__remote_resource(mu_rpc_client *client, const mu_resource_kind *kind, const char *name,
                                 const mu_spec *spec);

// ---- Accumulators on a server (accumulator_service.c, remote_accumulator.c) ---------------------

// The accumulators of a server or of a store, beside its variables. An object. Their gradients take from `budget`,
// which outlives them. mu__accumulators_find returns one, of the pool; NULL: there is none. mu__accumulators_forget
// returns whether there was one. mu__accumulators_clear closes all. mu__accumulators_save and mu__accumulators_load are
// those of mu_store_part, of [name, value] and one value.
typedef struct mu_accumulator_list mu_accumulator_list;
mu_accumulator_list *mu__accumulators_new(mu_byte_budget *budget);
mu_resource *mu__accumulators_find(mu_accumulator_list *list, const char *kind, const char *name);
bool mu__accumulators_forget(mu_accumulator_list *list, const char *name);
void mu__accumulators_clear(mu_accumulator_list *list);
mu_value *mu__accumulators_save(mu_accumulator_list *list);
mu_status mu__accumulators_load(mu_accumulator_list *list, const char *name, const mu_value *value);
// mu__accumulator_begin begins a take in a store (mu__change_begin_when). Elsewhere a take waits itself, on its thread,
// between mu__call_wait_begin and mu__call_wait_end (rpc.h).
struct mu_accumulator;
mu_status mu__accumulator_begin(struct mu_accumulator *accumulator, int64_t required, double seconds);

// The methods "muster.accumulator.create", "….close" and "….take". `arg` is the service of the variables, whose
// accumulators mu__service_accumulators returns.
mu_rpc_method mu__accumulator_create, mu__accumulator_close, mu__accumulator_take_method;
mu_accumulator_list *mu__service_accumulators(void *service);

// mu__remote_accumulator_new makes an accumulator on a client's server under a name that the server does not have yet.
// Owned by the caller. Errors: ALREADY_EXISTS; those of a call.
mu_accumulator *mu__remote_accumulator_new(mu_rpc_client *client, const char *name,
                                           const mu_conditional_accumulator_args *args, bool sparse);

// ---- Texts --------------------------------------------------------------------------------------

// mu__text_value makes bytes of a text, as a value of the pool; mu__value_text reads them, into a text that the caller
// frees. Errors: INVALID_ARGUMENT naming `what`.
mu_value *mu__text_value(const char *text);
mu_status mu__value_text(const mu_value *value, const char *what, char **out);
// mu__argument_name reads a name, the first argument of many requests, likewise; `what` it is of: "a variable". Errors:
// INVALID_ARGUMENT for an empty or a long one.
mu_status mu__argument_name(const mu_value *arguments, const char *what, char **name);

#endif
