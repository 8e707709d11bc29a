// How replicas communicate: the options that a user may set.
//
// The options are TensorFlow's CommunicationOptions, with two more implementations. Where an option is not set, the
// library chooses by where the replicas are and by the size of the data.
//
// Errors: the functions fail only as their comments say.
#ifndef MUSTER_COMM_H
#define MUSTER_COMM_H

#include <muster/base.h>

#ifdef __cplusplus
extern "C" {
#endif

// What carries out a collective operation.
typedef enum mu_communication {
    MU_COMM_AUTO = 0, // by where the replicas are: process memory, a shared memory segment, or sockets; XLA devices
                      // that form one world with those of the other workers reduce inside of their program
    MU_COMM_RING,     // the ring algorithm for every size
    MU_COMM_NCCL,     // as AUTO on XLA GPU devices; other devices use the ring, with one warning in the log
    MU_COMM_MPI,      // for programs started by mpirun or srun
    MU_COMM_UCX       // for networks declared trusted (InfiniBand, RoCE)
} mu_communication;

typedef struct mu_communication_options {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    mu_communication implementation; // default MU_COMM_AUTO
    int64_t bytes_per_pack; // gradients are packed into messages of about this many bytes; default: the library chooses
    double timeout_seconds; // limit for one collective, in seconds; default MUSTER_TIMEOUT
    // Algorithms by operation and size in bytes: "allreduce:0-16k:slots,16k-:direct;broadcast:tree". Operations:
    // allreduce, allgather, broadcast, alltoall, reducescatter, permute. Algorithms (not all for each operation):
    // direct, slots, ring, doubling, pairwise, tree, hierarchical, hierarchical_ring, chain. Default: by
    // implementation and by where the replicas are.
    const char *algorithms;
    // Combine every element in the order of the replicas. Then the same replicas give the same bits however they are
    // distributed over processes and hosts, if instruction set and threads per replica are the same. The log states the
    // cost once (MUSTER_LOG=info).
    bool deterministic;
    const void *mpi_communicator; // address of the program's MPI_Comm, for MU_COMM_MPI; default MPI_COMM_WORLD
} mu_communication_options;

// MU_COMMUNICATION_OPTIONS(.bytes_per_pack = 1 << 20) is a pointer to options; they live until the call returns.
#define MU_COMMUNICATION_OPTIONS(...) MU_ARGS(mu_communication_options, #__VA_ARGS__, __VA_ARGS__)

// mu_communication_name returns the name, such as "RING" (static storage); "unknown" for an invalid number.
MU_API const char *mu_communication_name(mu_communication communication);
// mu_communication_from_name returns the value for a name: "auto", "ring", "nccl", "mpi" or "ucx", in any case. Errors
// (-1): INVALID_ARGUMENT.
MU_API int mu_communication_from_name(const char *name);

// mu_communication_options_check fails for invalid options: negative numbers, an unknown implementation. NULL is valid.
// Errors: INVALID_ARGUMENT.
MU_API mu_status mu_communication_options_check(const mu_communication_options *options);

// mu_communication_options_merge returns `base` with every field of `over` that is not its default. So `over` cannot
// reset a field to its default. Either may be NULL. Strings and addresses are not copied; they still belong to the
// caller.
MU_API mu_communication_options mu_communication_options_merge(const mu_communication_options *base,
                                                               const mu_communication_options *over);

#ifdef __cplusplus
}
#endif
#endif
