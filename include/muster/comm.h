// How replicas talk to each other: what a user may choose about it.
//
// The choices are TensorFlow's CommunicationOptions and two more implementations; what is not chosen
// follows from where the replicas are. The library picks algorithms by size, see mu_communication_options.
#ifndef MUSTER_COMM_H
#define MUSTER_COMM_H

#include <muster/base.h>

#ifdef __cplusplus
extern "C" {
#endif

// Who carries out a collective operation.
typedef enum mu_communication {
    MU_COMM_AUTO = 0, // by where the replicas are: memory, a shared segment, sockets
    MU_COMM_RING,     // the ring algorithm, whatever the size
    MU_COMM_NCCL,     // a hint for XLA GPU devices; on others the ring, with one warning in the log
    MU_COMM_MPI,      // programs under mpirun or srun
    MU_COMM_UCX       // networks declared trusted (InfiniBand, RoCE)
} mu_communication;

typedef struct mu_communication_options {
    mu_communication implementation;
    int64_t bytes_per_pack; // gradients are packed into messages of about this size; default: the library chooses
    double timeout_seconds; // of one collective; default MUSTER_TIMEOUT
    const char *algorithms; // by operation and bytes: "allreduce:0-16k:slots,16k-:direct"; default: by implementation
    // Every element is combined in the order of the replicas, so the same replicas give the same bits however they
    // are laid out over processes and hosts, with equal instruction set and threads per replica. What it costs is
    // said once on the log (MUSTER_LOG=info).
    bool deterministic;
    const void *mpi_communicator; // the program's MPI_Comm, by address: MU_COMM_MPI's; default MPI_COMM_WORLD
} mu_communication_options;

// mu_communication_name returns "RING" and the like (static storage); "unknown" for any other number.
MU_API const char *mu_communication_name(mu_communication communication);
// mu_communication_from_name knows those names in any case. Errors (-1): INVALID_ARGUMENT.
MU_API int mu_communication_from_name(const char *name);

// mu_communication_options_check refuses what cannot be: negative numbers, an unknown implementation. NULL is fine.
// Errors: INVALID_ARGUMENT.
MU_API mu_status mu_communication_options_check(const mu_communication_options *options);

// mu_communication_options_merge returns `base` with every field of `over` that is not its default; so what `base`
// says cannot be taken back. Either may be NULL. Texts and addresses stay the caller's.
MU_API mu_communication_options mu_communication_options_merge(const mu_communication_options *base,
                                                               const mu_communication_options *over);

#ifdef __cplusplus
}
#endif
#endif
