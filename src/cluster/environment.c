// Finds the cluster in which this process was started, from several sources in a fixed order of precedence.
//
// A source has a function that detects it and one that reads it. A partly set source that users often have by accident
// (Slurm's variables in a batch script) does not count. Also checks that no variable has changed after a strategy was
// made.
#include "cluster/cluster.h"
#include "comm/transports/network.h"

#include <stdlib.h>

static bool has(const char *variable) { return mu__environment(variable) != NULL; }

static bool tf_config_there(void) { return has("TF_CONFIG"); }
static bool rank_there(void) { return has("RANK") || has("WORLD_SIZE"); }
static bool horovod_there(void) { return has("HOROVOD_RANK") || has("HOROVOD_SIZE"); }

static bool slurm_there(void)
{
    return has("SLURM_PROCID") && has("SLURM_STEP_NODELIST") && has("SLURM_STEP_NUM_TASKS") &&
           has("SLURM_STEP_TASKS_PER_NODE");
}

static bool sagemaker_there(void) { return has("SM_HOSTS") && has("SM_CURRENT_HOST"); }

static bool same(const char *a, const char *b)
{
    return has(a) && has(b) && strcmp(mu__environment(a), mu__environment(b)) == 0;
}

// srun sets PMI's variables in addition to its own, even if the program does not use MPI. Without the MPI module only
// Slurm's variables say where the other processes are.
static bool of_srun(void)
{
    return slurm_there() && same("PMI_RANK", "SLURM_PROCID") && same("PMI_SIZE", "SLURM_STEP_NUM_TASKS") &&
           !mu__network_is_installed("mpi");
}

static bool mpi_there(void)
{
    return has("OMPI_COMM_WORLD_RANK") || (has("PMI_RANK") && has("PMI_SIZE") && !of_srun());
}

// A process that knows its rank but not the number of ranks must not train alone.
static bool mpi_half_there(void) { return !mpi_there() && !slurm_there() && (has("PMI_RANK") || has("PMIX_RANK")); }

static mu_cluster *tf_config_read(void) { return mu_tf_config_cluster_resolver(); }
static mu_cluster *slurm_read(void) { return mu_slurm_cluster_resolver(); }
static mu_cluster *sagemaker_read(void) { return mu_sagemaker_cluster_resolver(); }

static const struct source {
    const char *name, *title;
    bool (*there)(void);
    mu_cluster *(*read)(void);
} sources[] = {
    {"tf_config", "TF_CONFIG", tf_config_there, tf_config_read},
    {"rank", "RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT", rank_there, mu_rank_cluster_resolver},
    {"rank", "HOROVOD_RANK and HOROVOD_SIZE, with MASTER_*", horovod_there, mu_rank_cluster_resolver},
    {"mpi", "OMPI_COMM_WORLD_RANK and _SIZE, or PMI_RANK and PMI_SIZE", mpi_there, mu_mpi_cluster_resolver},
    {"slurm", "SLURM_PROCID and SLURM_STEP_..., in a job step", slurm_there, slurm_read},
    {"mpi", "PMIX_RANK or PMI_RANK without a size", mpi_half_there, mu_mpi_cluster_resolver},
    {"sagemaker", "SM_HOSTS and SM_CURRENT_HOST", sagemaker_there, sagemaker_read},
};

static const mu_resolver_ops setting_ops = {
    .source = "MUSTER_CLUSTER", .read = mu__read_fixed, .master_first = true, .lone_task_is_local = true};
static const mu_resolver_ops alone_ops = {.source = "nothing in the environment", .read = mu__read_fixed};

static mu_cluster *chosen(const char *setting)
{
    const char *text = setting + strspn(setting, " \t\n");
    if (text[0] == '{')
        return mu__give(mu__tf_config_from(text, &setting_ops));
    if (strcmp(text, "none") == 0)
        return mu__give(mu__tf_config_from("{}", &setting_ops));
    for (size_t i = 0; i < MU_COUNT(sources); i++)
        if (strcmp(text, sources[i].name) == 0)
            return sources[i].read();
    mu__error(MU_INVALID_ARGUMENT,
              "MUSTER_CLUSTER is \"%.60s\"; expected JSON as in TF_CONFIG, or tf_config, rank, mpi, slurm, sagemaker "
              "or none",
              setting);
    return NULL;
}

static mu_cluster *found(void)
{
    const char *setting = mu__setting_text(MU_SETTING_CLUSTER);
    if (mu__pending())
        return NULL;
    if (setting != NULL)
        return chosen(setting);
    for (size_t i = 0; i < MU_COUNT(sources); i++)
        if (sources[i].there())
            return sources[i].read();
    return mu__give(mu__tf_config_from("{}", &alone_ops));
}

static void print_source(FILE *out, const char *title, bool there, bool *used)
{
    fprintf(out, "  %-58s %s\n", title, !there ? "not set" : *used ? "set, but not used" : "used");
    *used = *used || there;
}

void mu__cluster_sources_print(FILE *out)
{
    bool used = false;
    fprintf(out, "sources of the cluster; the first that is set is used:\n");
    print_source(out, "MUSTER_CLUSTER", mu__setting_text(MU_SETTING_CLUSTER) != NULL, &used);
    for (size_t i = 0; i < MU_COUNT(sources); i++)
        print_source(out, sources[i].title, sources[i].there(), &used);
    if (!used)
        fprintf(out, "  none is set: this process runs alone\n");
}

mu_cluster *mu_cluster_from_environment(void)
{
    if (mu__pending() || mu__cluster_check_sealed() != MU_OK)
        return NULL;
    mu_cluster *cluster = found();
    return cluster != NULL && mu_cluster_check(cluster) == MU_OK ? cluster : NULL;
}

// ---- Variables that must not change later -------------------------------------------------------

// CUDA_VISIBLE_DEVICES is missing because the Slurm resolver sets it.
static const char *const variables[] = {
    "TF_CONFIG",
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "SLURM_PROCID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SM_HOSTS",
    "SM_CURRENT_HOST",
};

typedef struct sealed {
    char *values[MU_COUNT(variables)];
    atomic_bool begun, is;
} sealed;

static void sealed_free(void *object)
{
    sealed *all = object;
    for (size_t i = 0; i < MU_COUNT(variables); i++)
        mu__free(all->values[i]);
    mu__free(all);
}

static void *sealed_new(mu_runtime *runtime)
{
    (void)runtime;
    return mu__calloc(1, sizeof(sealed));
}

static sealed *seal_of_runtime(void)
{
    return mu__runtime_slot(mu__runtime(), MU_SLOT_CLUSTER, sealed_new, sealed_free);
}

mu_status mu__cluster_seal(void)
{
    sealed *all = seal_of_runtime();
    if (all == NULL)
        return mu_error_code();
    if (atomic_exchange(&all->begun, true))
        return mu__cluster_check_sealed();
    for (size_t i = 0; i < MU_COUNT(variables); i++) {
        const char *value = mu__environment(variables[i]);
        if (value != NULL && (all->values[i] = mu__strdup(value)) == NULL)
            return MU_RESOURCE_EXHAUSTED;
    }
    atomic_store(&all->is, true);
    return MU_OK;
}

mu_status mu__cluster_check_sealed(void)
{
    const sealed *all = seal_of_runtime();
    if (all == NULL)
        return mu_error_code();
    for (size_t i = 0; atomic_load(&all->is) && i < MU_COUNT(variables); i++) {
        const char *value = mu__environment(variables[i]), *then = all->values[i];
        if ((value == NULL) != (then == NULL) || (value != NULL && strcmp(value, then) != 0))
            return mu__error(MU_FAILED_PRECONDITION,
                             "%s is %s%.200s%s, but was %s%.200s%s when the first strategy was made; that strategy "
                             "does not see the change: set it before mu_init, or in the shell",
                             variables[i], value != NULL ? "\"" : "", value != NULL ? value : "not set",
                             value != NULL ? "\"" : "", then != NULL ? "\"" : "", then != NULL ? then : "not set",
                             then != NULL ? "\"" : "");
    }
    return MU_OK;
}
