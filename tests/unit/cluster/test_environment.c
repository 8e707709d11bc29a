// Tests of where the cluster comes from: the order of precedence, contradictory variables, and changes that come too
// late.
#include "cluster_test.h"

#include <unistd.h>

#define TWO_WORKERS "{\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}"
#define RANK        "RANK=2", "WORLD_SIZE=3", "MASTER_ADDR=a", "MASTER_PORT=1"
#define HOROVOD     "HOROVOD_RANK=5", "HOROVOD_SIZE=6", "MASTER_ADDR=a", "MASTER_PORT=1"
#define MPI         "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4"
#define SLURM       "SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=5", "SLURM_STEP_NODELIST=n1", "SLURM_STEP_TASKS_PER_NODE=5"

// A runtime that sees the environment as it is now.
static int workers_here(void)
{
    mu_exit(true);
    assert_int_equal(mu_init(.log = "error"), MU_OK);
    mu_cluster *cluster = mu_cluster_from_environment();
    return cluster != NULL ? mu_cluster_worker_count(cluster) : -1;
}

static int setup(void **state)
{
    (void)state;
    clearenv();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_no_error();
    mu_exit(true);
    assert_int_equal(mu__live_objects(NULL), 0);
    return 0;
}

static void test_precedence(void **state)
{
    (void)state;
    ENVIRONMENT("MUSTER_CLUSTER={\"cluster\": {\"worker\": [\"x:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}",
                "TF_CONFIG=" TWO_WORKERS, RANK, MPI, SLURM);
    assert_int_equal(workers_here(), 1);
    ENVIRONMENT("TF_CONFIG=" TWO_WORKERS, RANK, MPI, SLURM);
    assert_int_equal(workers_here(), 2);
    ENVIRONMENT(RANK, HOROVOD, MPI, SLURM);
    assert_int_equal(workers_here(), 3);
    ENVIRONMENT(HOROVOD, MPI, SLURM);
    assert_int_equal(workers_here(), 6);
    ENVIRONMENT(MPI, SLURM);
    assert_int_equal(workers_here(), 4);
    ENVIRONMENT(SLURM, "PMIX_RANK=4");
    assert_int_equal(workers_here(), 5);
    clearenv();
    assert_int_equal(workers_here(), 1);
}

static void test_chosen_by_name(void **state)
{
    (void)state;
    ENVIRONMENT("MUSTER_CLUSTER=none", "TF_CONFIG=" TWO_WORKERS, RANK);
    assert_int_equal(workers_here(), 1);
    ENVIRONMENT("MUSTER_CLUSTER=slurm", "TF_CONFIG=" TWO_WORKERS, RANK, SLURM);
    assert_int_equal(workers_here(), 5);
    ENVIRONMENT("MUSTER_CLUSTER=mpi", RANK);
    assert_int_equal(workers_here(), -1);
    assert_taken(MU_FAILED_PRECONDITION, "mpirun");
    ENVIRONMENT("MUSTER_CLUSTER=cloud");
    assert_int_equal(workers_here(), -1);
    assert_taken(MU_INVALID_ARGUMENT, "\"cloud\"");
    ENVIRONMENT("MUSTER_CLUSTER={");
    assert_int_equal(workers_here(), -1);
    assert_taken(MU_INVALID_ARGUMENT, "MUSTER_CLUSTER is not JSON");
}

// A batch script has some of Slurm's variables without being a task of a step.
static void test_slurm_half_set(void **state)
{
    (void)state;
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_NODELIST=n[1-4]");
    assert_int_equal(workers_here(), 1);
}

// If each of four processes trained alone, nobody would notice, so this is an error.
static void test_number_without_a_size(void **state)
{
    (void)state;
    ENVIRONMENT("PMIX_RANK=1", "PMIX_NAMESPACE=x");
    assert_int_equal(workers_here(), -1);
    assert_taken(MU_FAILED_PRECONDITION, "PMIX_RANK is \"1\"");
    ENVIRONMENT("PMI_RANK=1");
    assert_int_equal(workers_here(), -1);
    assert_taken(MU_FAILED_PRECONDITION, "PMI_RANK is set but PMI_SIZE is not");
    ENVIRONMENT("PMIX_RANK=1", "MUSTER_CLUSTER=none");
    assert_int_equal(workers_here(), 1);
}

// Under srun with a PMI plugin the MPI module finds the other processes; without the module Slurm's own variables do.
static void test_srun_with_pmi(void **state)
{
    (void)state;
    char folder[] = "muster-test-modules-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/libmuster-mpi.so", folder);
    ENVIRONMENT(SLURM, "PMI_RANK=4", "PMI_SIZE=5");
    setenv("MUSTER_MODULES", folder, 1);
    assert_int_equal(workers_here(), 5);
    assert_string_equal(mu_cluster_source(mu_cluster_from_environment()), "SLURM_PROCID and the job step");
    FILE *module = fopen(path, "w");
    assert_non_null(module);
    fclose(module);
    assert_string_equal(mu_cluster_source(mu_cluster_from_environment()), "the variables of mpirun");
    unlink(path);
    rmdir(folder);
    setenv("PMI_RANK", "0", 1); // an mpirun inside of a step
    assert_string_equal(mu_cluster_source(mu_cluster_from_environment()), "the variables of mpirun");
}

static void test_checked(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG={\"cluster\": {\"worker\": [\"localhost:1\", \"b:1\"]}, \"task\": {\"type\": \"worker\", "
                "\"index\": 0}}");
    assert_int_equal(workers_here(), -1);
    assert_taken(MU_INVALID_ARGUMENT, "in the cluster from TF_CONFIG");
}

static void test_changed_after_a_strategy(void **state)
{
    (void)state;
    assert_int_equal(workers_here(), 1);
    assert_int_equal(mu__cluster_seal(), MU_OK);
    assert_int_equal(mu__cluster_seal(), MU_OK);
    assert_non_null(mu_cluster_from_environment());
    ENVIRONMENT("TF_CONFIG=" TWO_WORKERS);
    assert_null(mu_cluster_from_environment());
    assert_taken(MU_FAILED_PRECONDITION, "but was not set when the first strategy was made");
    assert_int_equal(mu__cluster_seal(), MU_FAILED_PRECONDITION);
    assert_taken(MU_FAILED_PRECONDITION, "TF_CONFIG");
    assert_int_equal(workers_here(), 2);
}

static void expect_printed(FILE *file, const char *wanted)
{
    char text[2048];
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, wanted);
}

static void test_printed(void **state)
{
    (void)state;
    ENVIRONMENT("TF_CONFIG=" TWO_WORKERS);
    assert_int_equal(workers_here(), 2);
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(mu__cluster_print(mu_cluster_from_environment(), file), MU_OK);
    expect_printed(file, "cluster from TF_CONFIG: this process is worker 1\n"
                         "  worker        0  a:1\n"
                         "  worker        1  b:1  <- this process\n");
}

static void test_sources_printed(void **state)
{
    (void)state;
    ENVIRONMENT(RANK, MPI);
    assert_int_equal(workers_here(), 3);
    FILE *file = tmpfile();
    assert_non_null(file);
    mu__cluster_sources_print(file);
    expect_printed(file, "sources of the cluster; the first that is set is used:\n"
                         "  MUSTER_CLUSTER                                             not set\n"
                         "  TF_CONFIG                                                  not set\n"
                         "  RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT      used\n"
                         "  HOROVOD_RANK and HOROVOD_SIZE, with MASTER_*               not set\n"
                         "  OMPI_COMM_WORLD_RANK and _SIZE, or PMI_RANK and PMI_SIZE   set, but not used\n"
                         "  SLURM_PROCID and SLURM_STEP_..., in a job step             not set\n"
                         "  PMIX_RANK or PMI_RANK without a size                       not set\n"
                         "  SM_HOSTS and SM_CURRENT_HOST                               not set\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_precedence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chosen_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slurm_half_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_number_without_a_size, setup, teardown),
        cmocka_unit_test_setup_teardown(test_srun_with_pmi, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_after_a_strategy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_printed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sources_printed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
