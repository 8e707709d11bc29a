// Communication options: names, validity, and how the options of a call combine with those of a strategy.
//
// policy.c maps them to algorithms. Independent of groups.
#include "comm/comm.h"

#include <strings.h>

int mu_communication_from_name(const char *name)
{
    for (int i = MU_COMM_AUTO; name && i <= MU_COMM_UCX; i++)
        if (strcasecmp(name, mu_communication_name((mu_communication)i)) == 0)
            return i;
    mu__error(MU_INVALID_ARGUMENT, "mu_communication_from_name: '%s' is none of AUTO, RING, NCCL, MPI and UCX",
              name ? name : "NULL");
    return -1;
}

mu_status mu_communication_options_check(const mu_communication_options *options)
{
    if (!options)
        return MU_OK;
    if (options->bytes_per_pack < 0 || !(options->timeout_seconds >= 0))
        return mu__error(MU_INVALID_ARGUMENT,
                         "communication options: bytes_per_pack %lld and timeout_seconds %g; neither may be negative",
                         (long long)options->bytes_per_pack, options->timeout_seconds);
    if ((unsigned)options->implementation <= MU_COMM_UCX)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "communication options: %d is not a communication; choose MU_COMM_AUTO, RING, NCCL, MPI or UCX",
                     (int)options->implementation);
}

mu_communication_options mu_communication_options_merge(const mu_communication_options *base,
                                                        const mu_communication_options *over)
{
    mu_communication_options merged = base ? *base : (mu_communication_options){0};
    if (!over)
        return merged;
    if (over->implementation != MU_COMM_AUTO)
        merged.implementation = over->implementation;
    if (over->bytes_per_pack != 0)
        merged.bytes_per_pack = over->bytes_per_pack;
    if (over->timeout_seconds != 0)
        merged.timeout_seconds = over->timeout_seconds;
    if (over->algorithms)
        merged.algorithms = over->algorithms;
    if (over->mpi_communicator)
        merged.mpi_communicator = over->mpi_communicator;
    merged.deterministic |= over->deterministic;
    return merged;
}
