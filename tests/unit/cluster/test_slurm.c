// Tests of Slurm: host lists, tasks per node, the jobs that the tasks of a step are dealt to, GPUs.
#include "cluster_test.h"

static void expect_hosts(const char *text, const char *const *wanted)
{
    mu_hosts hosts;
    assert_int_equal(mu__hostlist_expand(text, &hosts), MU_OK);
    for (size_t i = 0; i < hosts.n; i++)
        assert_string_equal(hosts.items[i], wanted[i] != NULL ? wanted[i] : "(no more)");
    assert_null(wanted[hosts.n]);
    mu__hosts_free(&hosts);
}
#define HOSTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_case_ps_88_host_lists(void **state)
{
    (void)state;
    expect_hosts("n[1-2],m5,o[3-4,6,7-9]", HOSTS("n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"));
    expect_hosts("n[0001-0003],m5,o[009-011]", HOSTS("n0001", "n0002", "n0003", "m5", "o009", "o010", "o011"));
    expect_hosts("a[8-10]", HOSTS("a8", "a9", "a10"));
    expect_hosts("b,a,b", HOSTS("b", "a", "b"));
}

static void test_case_ps_89_tasks_per_node(void **state)
{
    (void)state;
    static const int wanted[] = {3, 3, 2, 11, 11, 11, 11};
    mu_counts counts;
    assert_int_equal(mu__tasks_per_node_expand("3(x2),2,11(x4)", &counts), MU_OK);
    assert_int_equal(counts.n, MU_COUNT(wanted));
    assert_memory_equal(counts.items, wanted, sizeof wanted);
    mu__free(counts.items);
}

static void test_lists_that_cannot_be_read(void **state)
{
    (void)state;
    static const char *const hosts[] = {"",      ",",         "a,",    "n[",           "n[]", "n[1",   "n[1-",
                                        "n[1-2", "n[2-1]",    "n[1]x", "n[a]",         "a]",  "[1-2]", "n[1-999999999]",
                                        "n[1,]", "n[1-2][3]", "a b",   "n[1234567890]"};
    static const char *const counts[] = {"",   "x",         "3(", "3(x", "3(x2", "3(2)", "3,", "3 ", "1(x999999999)",
                                         "-1", "9999999999"};
    mu_hosts names;
    mu_counts numbers;
    for (size_t i = 0; i < MU_COUNT(hosts); i++) {
        assert_int_equal(mu__hostlist_expand(hosts[i], &names), MU_INVALID_ARGUMENT);
        assert_taken(MU_INVALID_ARGUMENT, "the host list");
    }
    for (size_t i = 0; i < MU_COUNT(counts); i++) {
        assert_int_equal(mu__tasks_per_node_expand(counts[i], &numbers), MU_INVALID_ARGUMENT);
        assert_taken(MU_INVALID_ARGUMENT, "the tasks per node");
    }
}

static const mu_job_size ps_and_workers[] = {{"worker", 4}, {"ps", 1}, {NULL, 0}};

static void expect_case_91_addresses(mu_cluster *cluster)
{
    assert_string_equal(
        mu_cluster_spec_json(mu_cluster_get_spec(cluster)),
        "{\"ps\": [\"n13:8888\"], \"worker\": [\"n13:8889\", \"n41:8888\", \"n41:8889\", \"n43:8888\"]}");
    assert_string_equal(mu_cluster_task_type(cluster), "worker");
    assert_int_equal(mu_cluster_task_id(cluster), 0);
    assert_string_equal(mu_cluster_master(cluster), "grpc://n13:8889");
    assert_string_equal(mu_cluster_master(cluster, "ps", 0), "grpc://n13:8888");
}

#define STEP \
    "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=5", "SLURM_STEP_NODELIST=n[13,41,43]", "SLURM_STEP_TASKS_PER_NODE=2(x2),1"

static void test_case_ps_91(void **state)
{
    (void)state;
    ENVIRONMENT(STEP, "CUDA_VISIBLE_DEVICES=0,1");
    mu_cluster *cluster = mu_slurm_cluster_resolver(.jobs = ps_and_workers, .gpus_per_node = 2, .gpus_per_task = 1);
    expect_case_91_addresses(cluster);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "1");
    assert_int_equal(mu_cluster_num_accelerators(cluster, "GPU"), 1);
}

static void test_case_ps_92(void **state)
{
    (void)state;
    ENVIRONMENT(STEP, "CUDA_VISIBLE_DEVICES=0,1,2,3");
    expect_case_91_addresses(mu_slurm_cluster_resolver(.jobs = ps_and_workers, .gpus_per_node = 4, .gpus_per_task = 2));
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "2,3");
    // The same from what is visible.
    ENVIRONMENT(STEP, "CUDA_VISIBLE_DEVICES=0,1,2,3");
    expect_case_91_addresses(mu_slurm_cluster_resolver(.jobs = ps_and_workers, .no_auto_set_gpu = true));
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "0,1,2,3");
}

static void test_case_ps_94(void **state)
{
    (void)state;
    ENVIRONMENT(STEP);
    assert_null(mu_slurm_cluster_resolver(.jobs = ps_and_workers, .gpus_per_node = 1, .gpus_per_task = 1));
    assert_taken(MU_FAILED_PRECONDITION, "need 2 GPUs, but a node has 1");
    static const mu_job_size four[] = {{"ps", 1}, {"worker", 3}, {NULL, 0}};
    ENVIRONMENT("SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NODELIST=n[1-3]",
                "SLURM_STEP_TASKS_PER_NODE=1(x3)");
    assert_null(mu_slurm_cluster_resolver(.jobs = four));
    assert_taken(MU_FAILED_PRECONDITION, "have 4 tasks together, but the job step has 3");
    static const char *const needed[] = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",
                                         "SLURM_STEP_TASKS_PER_NODE"};
    for (size_t i = 0; i < MU_COUNT(needed); i++) {
        ENVIRONMENT(STEP);
        unsetenv(needed[i]);
        assert_null(mu_slurm_cluster_resolver());
        assert_taken(MU_FAILED_PRECONDITION, needed[i]);
    }
}

static void test_all_are_workers(void **state)
{
    (void)state;
    ENVIRONMENT("SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NODELIST=n[9-11]",
                "SLURM_STEP_TASKS_PER_NODE=1(x3)");
    mu_cluster *cluster = mu_slurm_cluster_resolver(.port_base = 100);
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)),
                        "{\"worker\": [\"n10:100\", \"n11:100\", \"n9:100\"]}");
    assert_int_equal(mu_cluster_task_id(cluster), 2);
    assert_int_equal(mu_cluster_num_accelerators(cluster, "GPU"), 0);
    assert_null(getenv("CUDA_VISIBLE_DEVICES"));
    assert_null(mu_slurm_cluster_resolver(.port_base = 70000));
    assert_taken(MU_INVALID_ARGUMENT, ".port_base");
}

static void test_jobs_without_tasks(void **state)
{
    (void)state;
    static const mu_job_size jobs[] = {{"worker", 1}, {"ps", 0}, {NULL, 0}};
    ENVIRONMENT("SLURM_PROCID=0", "SLURM_STEP_NODELIST=n1", "SLURM_STEP_TASKS_PER_NODE=1");
    mu_cluster *cluster = mu_slurm_cluster_resolver(.jobs = jobs);
    mu_cluster_spec *spec = mu_cluster_get_spec(cluster);
    assert_string_equal(mu_cluster_spec_json(spec), "{\"ps\": {}, \"worker\": [\"n1:8888\"]}");
    assert_int_equal(mu_cluster_spec_num_tasks(spec, "ps"), 0);
    assert_int_equal(mu_cluster_check(cluster), MU_OK);
}

// Slurm numbers the ranks host by host, or deals them out to the hosts in turn; each task finds itself by its own
// address.
static void test_ranks_in_another_order(void **state)
{
    (void)state;
    static const struct {
        const char *procid, *node, *localid;
        int id;
    } table[] = {{"0", "n9", "0", 2},  {"1", "n10", "0", 0},       {"2", "n9", "1", 3},
                 {"3", "n10", "1", 1}, {"1", "elsewhere", "0", 1}, {"1", "n10", "9", 1}};
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        ENVIRONMENT("SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST=n[9-10]", "SLURM_STEP_TASKS_PER_NODE=2(x2)");
        setenv("SLURM_PROCID", table[i].procid, 1);
        setenv("SLURMD_NODENAME", table[i].node, 1);
        setenv("SLURM_LOCALID", table[i].localid, 1);
        mu_cluster *cluster = mu_slurm_cluster_resolver();
        assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)),
                            "{\"worker\": [\"n10:8888\", \"n10:8889\", \"n9:8888\", \"n9:8889\"]}");
        assert_int_equal(mu_cluster_task_id(cluster), table[i].id);
    }
}

static void test_tasks_per_host(void **state)
{
    (void)state;
    static const mu_host_tasks tasks[] = {{"n41", 1}, {"n13", 3}, {"n43", 1}, {NULL, 0}},
                               some[] = {{"n13", 5}, {NULL, 0}};
    ENVIRONMENT(STEP);
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    mu_cluster *cluster = mu_slurm_cluster_resolver(.tasks_per_host = tasks);
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)),
                        "{\"worker\": [\"n13:8888\", \"n13:8889\", \"n13:8890\", \"n41:8888\", \"n43:8888\"]}");
    assert_null(mu_slurm_cluster_resolver(.tasks_per_host = some));
    assert_taken(MU_INVALID_ARGUMENT, "has the host n41, but .tasks_per_host");
}

// One srun of several components: ranks and lists cover all components, and a host may occur twice.
static void test_heterogeneous(void **state)
{
    (void)state;
    ENVIRONMENT("SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST=n1,n2,n1",
                "SLURM_STEP_TASKS_PER_NODE=1(x2),2", "SLURM_HET_SIZE=2", "SLURMD_NODENAME=n1", "SLURM_LOCALID=0");
    mu_cluster *cluster = mu_slurm_cluster_resolver();
    assert_string_equal(mu_cluster_spec_json(mu_cluster_get_spec(cluster)),
                        "{\"worker\": [\"n1:8888\", \"n1:8889\", \"n1:8890\", \"n2:8888\"]}");
    assert_int_equal(mu_cluster_task_id(cluster), 1);
    assert_int_equal(mu_cluster_check(cluster), MU_OK);
    setenv("SLURM_PROCID", "4", 1);
    assert_null(mu_slurm_cluster_resolver());
    assert_taken(MU_FAILED_PRECONDITION, "of a heterogeneous job start all components with one srun");
}

static bool resolve(void *arg)
{
    (void)arg;
    mu_pool *pool = mu_pool_open();
    const bool good = pool != NULL && mu_slurm_cluster_resolver(.jobs = ps_and_workers, .gpus_per_node = 2) != NULL;
    mu_pool_close(pool);
    return good;
}

static void test_without_memory(void **state)
{
    (void)state;
    ENVIRONMENT(STEP);
    with_failing_allocations(resolve, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(test_case_ps_88_host_lists),
        cluster_test(test_case_ps_89_tasks_per_node),
        cluster_test(test_lists_that_cannot_be_read),
        cluster_test(test_case_ps_91),
        cluster_test(test_case_ps_92),
        cluster_test(test_case_ps_94),
        cluster_test(test_all_are_workers),
        cluster_test(test_jobs_without_tasks),
        cluster_test(test_ranks_in_another_order),
        cluster_test(test_tasks_per_host),
        cluster_test(test_heterogeneous),
        cluster_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
