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

static mu_status check(const mu_communication_options *options)
{
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

static mu_status copy(mu_communication_options *out, const mu_communication_options *options)
{
    const mu_status status = mu__args_copy(out, sizeof *out, options, "communication options");
    out->given = NULL; // 0 is the default of every option
    return status;
}

mu_status mu__communication_options_copy(mu_communication_options *out, const mu_communication_options *options)
{
    MU_TRY(copy(out, options));
    return check(out);
}

mu_status mu_communication_options_check(const mu_communication_options *options)
{
    mu_communication_options copy;
    return mu__communication_options_copy(&copy, options);
}

mu_communication_options mu_communication_options_merge(const mu_communication_options *base,
                                                        const mu_communication_options *over)
{
    mu_communication_options merged, more;
    if (copy(&merged, base) != MU_OK || copy(&more, over) != MU_OK)
        return (mu_communication_options){.size = sizeof merged};
    if (more.implementation != MU_COMM_AUTO)
        merged.implementation = more.implementation;
    if (more.bytes_per_pack != 0)
        merged.bytes_per_pack = more.bytes_per_pack;
    if (more.timeout_seconds != 0)
        merged.timeout_seconds = more.timeout_seconds;
    if (more.algorithms)
        merged.algorithms = more.algorithms;
    if (more.mpi_communicator)
        merged.mpi_communicator = more.mpi_communicator;
    merged.deterministic |= more.deterministic;
    return merged;
}
