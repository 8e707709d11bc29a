// Embedding tables on a server: the methods that keep them (docs/rpc.md). remote_table.c is the other end.
#ifndef MU_SRC_RPC_TABLE_SERVICE_H
#define MU_SRC_RPC_TABLE_SERVICE_H

#include "rpc/services/service.h"

typedef struct mu_table_service mu_table_service;

// mu__table_service_add registers the methods "muster.table.*" with a server that has not started. The caller owns a
// reference. NULL on error.
mu_table_service *mu__table_service_add(mu_rpc_server *server, mu_kept *kept);
// mu__table_service_clear deletes all tables, such as those of a coordinator that died.
void mu__table_service_clear(mu_table_service *service);

#endif
