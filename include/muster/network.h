// Interface of a network module, which carries messages between the processes of a job on a network that Muster itself
// does not support.
//
// A module is a shared library that exports one mu_network_module as `muster_network`. Muster comes with two, for MPI
// and for UCX. The MPI module is also installed as source (share/muster/muster_mpi.c), to be compiled with the MPI that
// the program uses: mpicc -shared -fPIC muster_mpi.c -o libmuster-mpi.so; MUSTER_MODULES=FOLDER names its folder.
// Functions are called from one thread at a time unless `threads` allows more. Only open and close may block.
#ifndef MUSTER_NETWORK_H
#define MUSTER_NETWORK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MU_NETWORK_VERSION 1

// Which threads may call the functions of an open network.
typedef enum mu_network_threads {
    MU_NETWORK_ANY,   // any thread, several at the same time
    MU_NETWORK_ONE,   // any thread, but only one at a time
    MU_NETWORK_OPENER // only the thread that opened it
} mu_network_threads;

typedef struct mu_network_args {
    size_t size;
    int rank, ranks;
    const void *communicator; // MPI: address of the program's MPI_Comm; NULL: MPI_COMM_WORLD
    // exchange is an all-gather that open may call: it fills `all` with the `mine` of every process, `bytes` each, in
    // order of rank. Returns 0 on failure.
    int (*exchange)(void *arg, const void *mine, size_t bytes, void *all);
    void *arg;
    mu_network_threads threads; // set by open
    char *error;                // set by open when it fails: the reason
    size_t error_bytes;
} mu_network_args;

typedef struct mu_network_module {
    int version;      // MU_NETWORK_VERSION
    const char *name; // "mpi"
    // open joins the network; every process of a job calls it once. NULL on error. close leaves it at the job's end and
    // drops requests that are still pending; what was sent before must not be lost if the peer is alive.
    void *(*open)(mu_network_args *args);
    void (*close)(void *network);
    // send starts sending a message; data must not change until test reports that it is done. Messages between two
    // processes with the same tag arrive in order. NULL on error.
    void *(*send)(void *network, int peer, int tag, const void *data, size_t bytes);
    // probe looks for the next message of a peer: 1 found, with its size in *bytes; 0 none yet; -1 error. It is also
    // called while a process waits for others elsewhere, with tag 32767, which no message has: so that the network can
    // send what it has kept.
    int (*probe)(void *network, int peer, int tag, size_t *bytes, void **message);
    // receive starts copying a message that probe found into data; `bytes` is its size. NULL on error.
    void *(*receive)(void *network, void *message, void *data, size_t bytes);
    // test returns the state of a request: 1 done, 0 pending, -1 error. Any result but 0 frees the request.
    int (*test)(void *network, void *request);
    // broadcast sends process 0's data to every process of the launcher's world, before addresses are known. Returns 0
    // on failure. NULL: the network cannot do it.
    int (*broadcast)(const void *communicator, void *data, size_t bytes, char *error, size_t error_bytes);
} mu_network_module;

extern const mu_network_module muster_network; // every module defines it

#ifdef __cplusplus
}
#endif
#endif
