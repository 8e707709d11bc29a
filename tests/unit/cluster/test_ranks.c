// Tests of numbered processes: the variables of torchrun, Open MPI and PMI, and where the leader is.
#include "cluster_test.h"

static void test_rank(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=2", "WORLD_SIZE=3", "MASTER_ADDR=host-a", "MASTER_PORT=29500");
    mu_cluster *cluster = mu_rank_cluster_resolver();
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)),
                        "{\"worker\": [\"host-a:29500\", \"\", \"\"]}");
    assert_int_equal(mu_cluster_worker_index(cluster), 2);
    assert_int_equal(mu_cluster_check(cluster), MU_OK);
    // torchrun's agent has the port itself.
    ENVIRONMENT("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=::1", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True");
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(mu_rank_cluster_resolver())),
                        "{\"worker\": [\"[::1]:29501\"]}");
}

// As horovodrun sets them; an address of rank 0 it does not give.
static void test_horovod(void **state)
{
    (void)state;
    ENVIRONMENT("HOROVOD_RANK=1", "HOROVOD_SIZE=2", "HOROVOD_LOCAL_RANK=1", "HOROVOD_CONTROLLER=gloo",
                "HOROVOD_GLOO_RENDEZVOUS_ADDR=a", "HOROVOD_GLOO_RENDEZVOUS_PORT=7");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "HOROVOD_RANK and HOROVOD_SIZE are set, but MASTER_ADDR");
    setenv("MASTER_ADDR", "a", 1);
    setenv("MASTER_PORT", "8", 1);
    mu_cluster *cluster = mu_rank_cluster_resolver();
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)), "{\"worker\": [\"a:8\", \"\"]}");
    assert_int_equal(mu_cluster_task_id(cluster), 1);
    assert_string_equal(mu_cluster_source(cluster), "HOROVOD_RANK and HOROVOD_SIZE");
    setenv("RANK", "2", 1);
    setenv("WORLD_SIZE", "3", 1);
    assert_int_equal(mu_cluster_worker_count(mu_rank_cluster_resolver()), 3);
    ENVIRONMENT("HOROVOD_SIZE=2");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "HOROVOD_SIZE is set but HOROVOD_RANK is not");
}

static void test_rank_half_set(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=0");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "RANK is set but WORLD_SIZE is not");
    ENVIRONMENT("WORLD_SIZE=2");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "WORLD_SIZE is set but RANK is not");
    ENVIRONMENT("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "MASTER_PORT");
}

static void test_rank_that_cannot_be(void **state)
{
    (void)state;
    ENVIRONMENT("RANK=3", "WORLD_SIZE=3", "MASTER_ADDR=a", "MASTER_PORT=1");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_INVALID_ARGUMENT, "count from 0 to 2");
    ENVIRONMENT("RANK=x", "WORLD_SIZE=3");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_INVALID_ARGUMENT, "RANK is \"x\"");
    ENVIRONMENT("RANK=0", "WORLD_SIZE=3", "MASTER_ADDR=a", "MASTER_PORT=0");
    assert_null(mu_rank_cluster_resolver());
    assert_taken(MU_INVALID_ARGUMENT, "MASTER_PORT");
}

static void test_mpi(void **state)
{
    (void)state;
    assert_null(mu_mpi_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "mpirun");
    ENVIRONMENT("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMI_RANK=0", "PMI_SIZE=9");
    mu_cluster *cluster = mu_mpi_cluster_resolver();
    assert_int_equal(mu_cluster_worker_count(cluster), 2);
    assert_int_equal(mu_cluster_task_id(cluster), 1);
    assert_string_equal(mu_cluster_master(cluster), "");
    ENVIRONMENT("PMI_RANK=4", "PMI_SIZE=9", "MASTER_ADDR=a", "MASTER_PORT=7");
    cluster = mu_mpi_cluster_resolver();
    assert_int_equal(mu_cluster_worker_count(cluster), 9);
    assert_string_equal(mu_cluster_master(cluster, "worker", 0), "a:7");
    ENVIRONMENT("OMPI_COMM_WORLD_RANK=1");
    assert_null(mu_mpi_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "OMPI_COMM_WORLD_SIZE");
    ENVIRONMENT("PMIX_RANK=3", "PMIX_NAMESPACE=prte-1");
    assert_null(mu_mpi_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "PMIX_RANK is \"3\", but no variable says of how many");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(test_rank),          cluster_test(test_horovod),
        cluster_test(test_rank_half_set), cluster_test(test_rank_that_cannot_be),
        cluster_test(test_mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
