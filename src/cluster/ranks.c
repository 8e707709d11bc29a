// Clusters of numbered processes: RANK and WORLD_SIZE as torchrun sets them, and the variables of horovodrun, Open MPI
// and PMI.
//
// Such launchers pass each process its rank, and at most the address of rank 0. All other addresses are "" here: each
// process sends its own to rank 0 when it joins. Under MPI even rank 0's may be unknown; the MPI module then finds it.
#include "cluster/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

mu_status mu__environment_int(const char *variable, int low, int high, int *out)
{
    const char *text = mu__environment(variable);
    *out = -1;
    if (text == NULL)
        return MU_OK;
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high)
        return mu__error(MU_INVALID_ARGUMENT, "%s is \"%.40s\"; expected a whole number from %d to %d", variable, text,
                         low, high);
    *out = (int)value;
    return MU_OK;
}

// A launcher's variables for the rank and the number of ranks.
typedef struct pair {
    const char *rank, *size;
} pair;

static mu_status read_pair(const pair *names, int *rank, int *size)
{
    MU_TRY(mu__environment_int(names->rank, 0, MU_MAX_TASKS - 1, rank));
    MU_TRY(mu__environment_int(names->size, 1, MU_MAX_TASKS, size));
    if (*rank < 0 || *size < 0)
        return mu__error(MU_FAILED_PRECONDITION,
                         "%s is set but %s is not; set both, or MUSTER_CLUSTER=none to run alone",
                         *rank < 0 ? names->size : names->rank, *rank < 0 ? names->rank : names->size);
    if (*rank >= *size)
        return mu__error(MU_INVALID_ARGUMENT, "%s is %d, but %s is %d; ranks count from 0 to %d", names->rank, *rank,
                         names->size, *size, *size - 1);
    return MU_OK;
}

// Rank 0's address from MASTER_ADDR and MASTER_PORT, owned by the caller; "" if they are not set.
static char *leader_address(void)
{
    const char *host = mu__environment("MASTER_ADDR"), *store = mu__environment("TORCHELASTIC_USE_AGENT_STORE");
    int port;
    if (mu__environment_int("MASTER_PORT", 1, 65535, &port) != MU_OK)
        return NULL;
    if (host == NULL || port < 0)
        return mu__strdup("");
    // In this case torchrun's agent listens on the port itself.
    if (store != NULL && strcasecmp(store, "true") == 0)
        port = port < 65535 ? port + 1 : port - 1;
    const bool bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    return bare_ipv6 ? mu__sprintf("[%s]:%d", host, port) : mu__sprintf("%s:%d", host, port);
}

static mu_cluster *numbered(const mu_resolver_ops *ops, int rank, int size, const char *leader)
{
    mu_cluster *cluster = mu__cluster_new(ops);
    if (cluster == NULL)
        return NULL;
    mu_cluster_view *view = &cluster->fixed;
    view->task_id = rank;
    view->task_type = mu__strdup("worker");
    view->spec = mu__spec_new();
    bool good = view->task_type != NULL && view->spec != NULL;
    for (int i = 0; good && i < size; i++)
        good = mu_cluster_spec_add(view->spec, "worker", -1, i == 0 ? leader : "") == MU_OK;
    if (!good) {
        mu_release(cluster);
        return NULL;
    }
    return cluster;
}

static const mu_resolver_ops rank_ops = {.source = "RANK and WORLD_SIZE", .read = mu__read_fixed};
static const mu_resolver_ops horovod_ops = {.source = "HOROVOD_RANK and HOROVOD_SIZE", .read = mu__read_fixed};
static const mu_resolver_ops mpi_ops = {.source = "the variables of mpirun", .read = mu__read_fixed};

mu_cluster *mu_rank_cluster_resolver(void)
{
    static const pair torch = {"RANK", "WORLD_SIZE"}, horovod = {"HOROVOD_RANK", "HOROVOD_SIZE"};
    const bool by_horovod = mu__environment(torch.rank) == NULL && mu__environment(torch.size) == NULL &&
                            (mu__environment(horovod.rank) != NULL || mu__environment(horovod.size) != NULL);
    const pair *names = by_horovod ? &horovod : &torch;
    int rank, size;
    if (mu__pending() || read_pair(names, &rank, &size) != MU_OK)
        return NULL;
    char *leader = leader_address();
    mu_cluster *cluster = NULL;
    if (leader != NULL && leader[0] == '\0' && size > 1)
        mu__error(MU_FAILED_PRECONDITION,
                  "%s and %s are set, but MASTER_ADDR and MASTER_PORT are not both; set them to the host of rank 0 and "
                  "a free port there%s, so that the %d processes find each other",
                  names->rank, names->size, by_horovod ? ", for horovodrun to pass on" : "", size);
    else if (leader != NULL)
        cluster = numbered(by_horovod ? &horovod_ops : &rank_ops, rank, size, leader);
    mu__free(leader);
    return mu__give(cluster);
}

mu_cluster *mu_mpi_cluster_resolver(void)
{
    static const pair names[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}};
    if (mu__pending())
        return NULL;
    for (size_t i = 0; i < MU_COUNT(names); i++) {
        int rank, size;
        if (mu__environment(names[i].rank) == NULL)
            continue;
        if (read_pair(&names[i], &rank, &size) != MU_OK)
            return NULL;
        char *leader = leader_address();
        mu_cluster *cluster = leader != NULL ? numbered(&mpi_ops, rank, size, leader) : NULL;
        mu__free(leader);
        return mu__give(cluster);
    }
    if (mu__environment("PMIX_RANK") != NULL) {
        mu__error(MU_FAILED_PRECONDITION,
                  "PMIX_RANK is \"%.20s\", but no variable says of how many (OMPI_COMM_WORLD_SIZE, PMI_SIZE or Slurm's "
                  "of a job step); set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process, or "
                  "MUSTER_CLUSTER=none to run it alone",
                  mu__environment("PMIX_RANK"));
        return NULL;
    }
    mu__error(
        MU_FAILED_PRECONDITION,
        "mu_mpi_cluster_resolver: neither OMPI_COMM_WORLD_RANK nor PMI_RANK is set; start the program with mpirun");
    return NULL;
}
