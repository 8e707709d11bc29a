// The version of what processes say to each other, and the roles that they have.
#ifndef MU_SRC_COMM_WIRE_H
#define MU_SRC_COMM_WIRE_H

// The version of all that processes say to each other: greeting, frames, requests and values. Processes of neighbouring
// versions speak the older one, so that servers can be restarted one after the other. MUSTER_WIRE_VERSION makes a
// process speak an older one.
enum { MU_WIRE_VERSION = 9, MU_WIRE_OLDEST = 3 };
// What came with which version, for those who speak to an older end.
enum {
    MU_WIRE_ROLES = 4,
    MU_WIRE_MEMORY = 4,
    MU_WIRE_ACCUMULATORS = 5,
    MU_WIRE_PARTS = 5,
    MU_WIRE_INPUTS = 6,
    MU_WIRE_BEARERS = 7,
    MU_WIRE_STAGED = 8,
    MU_WIRE_OF_CALLER = 9
};

// Something that a call needs and that came with a version. An older end refuses such calls under names that say
// nothing ("no such method"), so they are not sent there.
typedef struct mu_wire_need {
    int version;
    const char *what; // "accumulators on servers"
} mu_wire_need;

// What the process at an end of a link is, as its proof of the key says (link.c). The numbers are sent.
typedef enum mu_role {
    MU_ROLE_NONE, // no task of a cluster of coordinator, workers and parameter servers, or of version 3
    MU_ROLE_WORKER,
    MU_ROLE_PS,
    MU_ROLE_COORDINATOR,
    MU_ROLE_METRICS, // reads numbers only
    MU_N_ROLES
} mu_role;
const char *mu__role_name(mu_role role); // "worker"

// Whose key proves a link: 0 that of the cluster, whose holder can be anybody; i + 1 the own key of worker i, who has
// no other. The number is sent. As what an end accepts, MU_BEARER_ANY_WORKER is any worker's key or the cluster's key.
enum { MU_BEARER_ALL = 0, MU_BEARER_ANY_WORKER = -1, MU_MOST_BEARER = 65535 };

#endif
