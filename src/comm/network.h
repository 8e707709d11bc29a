// Networks that modules know (MPI, UCX), as the mesh's processes use them: streams of bytes over their messages.
#ifndef MU_SRC_COMM_NETWORK_H
#define MU_SRC_COMM_NETWORK_H

#include "comm/mesh.h"
#include "comm/net.h"

#include <muster/network.h>

extern const mu_stream_ops mu__stream_ops_network;

typedef struct mu_network mu_network; // an object: mu_retain, mu_release

// mu__network_is_installed: the module called `name` is there, whether or not it can be used.
bool mu__network_is_installed(const char *name);

// mu__network_open opens the module called `name` ("mpi", "ucx") and joins its network; every process of the mesh calls
// it. `communicator` is the program's MPI_Comm by address, or NULL. Owned by the caller, NULL on error.
// Errors, on all: FAILED_PRECONDITION without the module or the library behind it, or where it cannot join;
// PERMISSION_DENIED for UCX on a network that is not declared trusted.
mu_network *mu__network_open(mu_mesh *mesh, const char *name, const void *communicator);

// mu__network_stream is a stream to a process; both ends open it with the same tag, 0 to 32767. Keeps: the network.
// Owned by the caller (mu__stream_close); NULL on error.
mu_stream *mu__network_stream(mu_network *network, int rank, int tag);

// mu__network_serve does what other threads have asked for on a network that only its opener may touch. Who opened it
// calls this while it waits for them; on other networks and threads it does nothing. mu__network_needs_service says
// whether that is so.
void mu__network_serve(mu_network *network);
bool mu__network_needs_service(const mu_network *network);

const char *mu__network_name(const mu_network *network); // "mpi" (static storage)

// What the processes of mpirun's world must know before there is a mesh: where the first one listens, and a key that
// only they have.
typedef struct mu_mpi_bootstrap {
    char address[272]; // "host:port"
    char key[65];
} mu_mpi_bootstrap;

// mu__network_bootstrap gives every process of mpirun's world what process 0, the one with `first`, makes up: a free
// port of its host and a random key. Collective in MPI. The port is in `kept` (fd -1: there is none), for the caller
// to give back once it listens, also after an error. Errors: FAILED_PRECONDITION without the MPI module.
mu_status mu__network_bootstrap(const void *communicator, bool first, mu_mpi_bootstrap *out, mu_kept_port *kept);

#endif
