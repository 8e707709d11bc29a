// Who may call what: the role that a client has proven with the key (comm/link.c) against the method's row.
//
// Whoever has no role of the cluster, such as a program with an mu_rpc_client of its own, has the whole key and may
// call everything. A worker runs functions that others wrote, so it may use variables and nothing that makes or ends
// them.
#include "rpc/server.h"

#define ROLE(role) (1u << (role))
enum {
    OWNERS = ROLE(MU_ROLE_NONE) | ROLE(MU_ROLE_COORDINATOR),
    TASKS = OWNERS | ROLE(MU_ROLE_WORKER) | ROLE(MU_ROLE_PS),
    ALL = TASKS | ROLE(MU_ROLE_METRICS)
};

// The first row whose method is the one called, or the beginning of it where the row ends with a dot, counts.
static const struct permission {
    const char *method;
    unsigned roles;
} rows[] = {
    {"muster.methods", ALL},
    {"muster.apply", TASKS},
    {"muster.variable.rows", TASKS},
    {"muster.variable.", OWNERS}, // create, delete, clear
    {"muster.table.lookup", TASKS},
    {"muster.table.update", TASKS},
    {"muster.table.", OWNERS}, // create, delete, clear, state, export, import
    {"muster.function.", OWNERS},
    {"muster.server.", OWNERS},
    {"muster.store.call", TASKS}, // and whatever method it names
    {"muster.store.copy", OWNERS | ROLE(MU_ROLE_PS)},
    {"muster.store.", OWNERS}, // lead, cut, state
};

static unsigned roles_of(const char *method)
{
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        const size_t n = strlen(rows[i].method);
        const bool begins = rows[i].method[n - 1] == '.';
        if (begins ? strncmp(method, rows[i].method, n) == 0 : strcmp(method, rows[i].method) == 0)
            return rows[i].roles;
    }
    return TASKS;
}

mu_status mu__permission_check(mu_role role, const char *method)
{
    char copy[MU_PRINTABLE_BYTES];
    if (roles_of(method) & ROLE(role))
        return MU_OK;
    return mu__error(MU_PERMISSION_DENIED, "a client with the role \"%s\" may not call \"%s\"", mu__role_name(role),
                     mu__printable_copy(method, copy));
}
