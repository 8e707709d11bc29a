// Embedding tables whose rows are on servers: each key on one of them, by its hash.
#ifndef MU_SRC_RPC_REMOTE_TABLE_H
#define MU_SRC_RPC_REMOTE_TABLE_H

#include "ops/state/embedding_table.h"

#include <muster/rpc.h>

extern const mu_resource_kind mu__remote_table_kind;

// mu__remote_table is a resource for a table that n servers keep: ops on it become a request to each server that has
// one of the keys, all at the same time. It retains the clients and belongs to the caller.
mu_resource *mu__remote_table(int n, mu_rpc_client *const *clients, const char *name, int64_t dimension);

// mu__remote_table_own makes the servers delete the table when the resource is freed: for the process that made the
// table, not for those that only use it, such as functions on workers.
void mu__remote_table_own(mu_resource *resource);

// mu__remote_table_clients returns the clients of such a resource, borrowed; NULL for any other resource.
mu_rpc_client *const *mu__remote_table_clients(const mu_resource *resource, int *n);

// mu__table_server_of returns which of n servers keeps a key.
int mu__table_server_of(uint64_t key, int n);

// The requests of one server; see docs/rpc.md. mu__remote_table_state writes rows, bytes and stripes. Rows as of
// mu__table_export and _import; those that are fetched belong to `result`, which is of the pool.
mu_status mu__remote_table_create(mu_rpc_client *client, const char *name, const mu_table_options *options);
mu_status mu__remote_table_delete(mu_rpc_client *client, const char *name);
mu_status mu__remote_table_state(mu_rpc_client *client, const char *name, int64_t state[3]);
mu_status mu__remote_table_clear(mu_rpc_client *client, const char *name, int64_t oldest);
mu_status mu__remote_table_export(mu_rpc_client *client, const char *name, const mu_table_options *options, int stripe,
                                  mu_table_rows *out);
mu_status mu__remote_table_import(mu_rpc_client *client, const char *name, const mu_table_options *options,
                                  const mu_table_rows *rows);

#endif
