// Embedding tables on a server: the methods that keep them (docs/rpc.md). remote_table.c is the other end.
#ifndef MU_SRC_RPC_TABLE_SERVICE_H
#define MU_SRC_RPC_TABLE_SERVICE_H

#include "ops/state/embedding_table.h"

#include <muster/rpc.h>

typedef struct mu_table_service mu_table_service;

// mu__table_service_add registers the methods "muster.table.*" with a server that has not started. `max_bytes`: of all
// tables, and of what else its budget is used for. The caller owns a reference. NULL on error.
mu_table_service *mu__table_service_add(mu_rpc_server *server, size_t max_bytes);
mu_table_budget *mu__table_service_budget(mu_table_service *service);
// mu__table_service_clear deletes all tables, such as those of a coordinator that died.
void mu__table_service_clear(mu_table_service *service);

#endif
