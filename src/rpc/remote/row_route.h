// Rows by server: which ids each server is asked for, and where its rows are written.
#ifndef MU_SRC_RPC_ROW_ROUTE_H
#define MU_SRC_RPC_ROW_ROUTE_H

#include "rpc/services/service.h"

typedef struct mu_row_route {
    int n_parts;
    int64_t n, *begin;  // [n_parts + 1] where the ids of a part begin in `ids`
    int64_t *ids;       // [n] by part, each as its part knows it
    uint32_t *position; // [n] of id i in `ids`
} mu_row_route;

// The parts that have n ids, and what each part itself calls them.
typedef void mu_part_of(const void *arg, int64_t n, const int64_t *ids, uint32_t *part, int64_t *local);

// mu__row_route divides n ids among the parts, in order. Errors: INVALID_ARGUMENT for 2^32 ids or more.
// mu__row_route_free frees what it holds, also after an error and of a zeroed struct.
mu_status mu__row_route(mu_row_route *route, int n_parts, int64_t n, const int64_t *ids, mu_part_of *part_of,
                        const void *arg);
void mu__row_route_free(mu_row_route *route);

// mu__row_route_ids returns the ids of a part, int64, of the pool.
mu_tensor *mu__row_route_ids(const mu_row_route *route, int part);

// mu__row_route_calls returns a call for each part that has ids, of which there are *n; call k is for part parts[k].
// The caller frees both and sets the arguments. NULL: no memory.
mu_remote_call *mu__row_route_calls(const mu_row_route *route, mu_rpc_client *const *clients, int **parts, int *n);

// mu__row_route_join copies the rows that the parts have answered with, rows[part]: [ids of the part] + the shape of a
// row, to where they are wanted: row i of the result, which has the spec `out` and belongs to the pool, is that of id
// number[i].
mu_tensor *mu__row_route_join(const mu_row_route *route, mu_tensor *const *rows, const uint32_t *number,
                              const mu_spec *out);

#endif
