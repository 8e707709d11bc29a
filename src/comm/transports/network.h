// Networks of modules (MPI, UCX) as the mesh's processes use them: streams of bytes over the network's messages.
#ifndef MU_SRC_COMM_NETWORK_H
#define MU_SRC_COMM_NETWORK_H

#include "comm/mesh/mesh.h"
#include "comm/sessions/net.h"

#include <muster/network.h>

extern const mu_stream_ops mu__stream_ops_network;

typedef struct mu_network mu_network; // an object: mu_retain, mu_release

// mu__network_is_installed says whether the module `name` is installed, even if it cannot be used.
bool mu__network_is_installed(const char *name);

// mu__network_open opens the module `name` ("mpi", "ucx") and joins its network; every process of the mesh calls it.
// `communicator` is the address of the program's MPI_Comm, or NULL. A process joins a network once: later calls return
// the same one, which the mesh keeps, because what was sent last may still be on its way when a group ends. The caller
// owns the result; NULL on error. Errors, on all processes: FAILED_PRECONDITION if the module or its library is
// missing, or joining fails; PERMISSION_DENIED for UCX on a network that is not declared trusted.
mu_network *mu__network_open(mu_mesh *mesh, const char *name, const void *communicator);

// mu__network_next_tag returns a tag for the streams of one more group; it is the same on all processes, which call it
// equally often. mu__network_stream opens a stream to a process; both ends open it with the same tag, 0 to 32766.
// Retains the network. The caller owns the stream (mu__stream_close); NULL on error.
int mu__network_next_tag(mu_network *network);
mu_stream *mu__network_stream(mu_network *network, int rank, int tag);

// mu__network_serve executes the calls of other threads on a network that only its opener may use, and lets the network
// send what it has kept. The opener calls it while it waits for those threads; on other networks and threads it does
// nothing. mu__network_needs_service says
// whether calls are needed.
void mu__network_serve(mu_network *network);
bool mu__network_needs_service(const mu_network *network);

const char *mu__network_name(const mu_network *network); // "mpi" (static storage)

// What the processes of mpirun must know before there is a mesh: where the first process listens, and a key that only
// they have.
typedef struct mu_mpi_bootstrap {
    char address[272]; // "host:port"
    char key[65];
} mu_mpi_bootstrap;

// mu__network_bootstrap sends every process of mpirun the values that process 0, the one with `first`, chooses: a free
// port of its host and a random key. Collective in MPI. Process 0's port is reserved in `kept` (fd -1: none); the
// caller releases it once it listens, also after an error. Errors: FAILED_PRECONDITION if the MPI module is missing.
mu_status mu__network_bootstrap(const void *communicator, bool first, mu_mpi_bootstrap *out, mu_kept_port *kept);

#endif
