// Who may call what: the role that a client has proven with the key (comm/sessions/link.c) against the method's row.
//
// A client without a role of the cluster, such as a program with an mu_rpc_client of its own, may call everything, as
// the coordinator may. A worker runs functions that others wrote, so it may use variables and nothing that makes or
// ends them. An end that speaks a version without roles has proven none, and may do what a worker may.
#include "rpc/server/server.h"

#define ROLE(role) (1u << (role))
enum {
    OWNERS = ROLE(MU_ROLE_NONE) | ROLE(MU_ROLE_COORDINATOR),
    TASKS = OWNERS | ROLE(MU_ROLE_WORKER) | ROLE(MU_ROLE_PS),
    ALL = TASKS | ROLE(MU_ROLE_METRICS)
};

// The first row whose method is the one called, or the beginning of it where the row ends with a dot, counts. A method
// of the library without a row of its own is the owners'.
static const struct permission {
    const char *method;
    unsigned roles;
} rows[] = {
    {"muster.methods", ALL},
    {"muster.apply", TASKS},
    {"muster.variable.rows", TASKS},
    {"muster.table.lookup", TASKS},
    {"muster.table.update", TASKS},
    {"muster.store.call", TASKS}, // and whatever method it names
    {"muster.store.copy", OWNERS | ROLE(MU_ROLE_PS)},
    {"muster.store.ahead", OWNERS | ROLE(MU_ROLE_PS)},
    {"muster.accumulator.take", TASKS}, // gradients come by muster.apply
    {"muster.", OWNERS},
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

static bool has_proven(int version) { return version >= MU_WIRE_ROLES; }

bool mu__is_permitted(mu_role role, int version, const char *method)
{
    return roles_of(method) & ROLE(has_proven(version) ? role : MU_ROLE_WORKER);
}

mu_status mu__permission_check(mu_role role, int version, const char *method)
{
    char copy[MU_PRINTABLE_BYTES];
    if (mu__is_permitted(role, version, method))
        return MU_OK;
    if (!has_proven(version))
        return mu__error(MU_PERMISSION_DENIED,
                         "a client that speaks version %d of the wire, which has no roles, may not call \"%s\"; start "
                         "it again with this version of Muster",
                         version, mu__printable_copy(method, copy));
    return mu__error(MU_PERMISSION_DENIED, "a client with the role \"%s\" may not call \"%s\"", mu__role_name(role),
                     mu__printable_copy(method, copy));
}
