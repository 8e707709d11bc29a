// Cases PSS and RESOLVE of the parameter-server list: the cluster that the strategy accepts, and resolvers.
#include "cluster/cluster.h"

#include "cases.h"

#include <stdlib.h>

#define CHECK_TEXT(text, wanted)                                                                                  \
    do {                                                                                                          \
        const char *seen_ = text;                                                                                 \
        if (!seen_ || strcmp(seen_, wanted) != 0)                                                                 \
            fail_case(__LINE__, "'%s', expected '%s': %s", seen_ ? seen_ : "(null)", wanted, mu_error_message()); \
    } while (0)

static const char *const variables[] = {
    "TF_CONFIG",           "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE",
    "CUDA_VISIBLE_DEVICES"};

static void clear_environment(void)
{
    for (size_t i = 0; i < MU_COUNT(variables); i++)
        unsetenv(variables[i]);
}

static mu_cluster *cluster_of(const char *json, const char *task_type, int task_id)
{
    return mu_simple_cluster_resolver(mu_cluster_spec_parse(json), .task_type = task_type, .task_id = task_id);
}

static const char *json_of(mu_cluster *cluster) { return mu_cluster_spec_json(mu_cluster_get_spec(cluster)); }

// ---- The strategy's cluster ---------------------------------------------------------------------

static void expect_refused(int line, const char *json, const char *task_type, int task_id, const char *part)
{
    const mu_status status = mu__check_parameter_servers(cluster_of(json, task_type, task_id));
    if (status != MU_INVALID_ARGUMENT || !strstr(mu_error_message(), part))
        fail_case(line, "%s, expected a refusal with '%s': %s", mu_status_name(status), part, mu_error_message());
    mu_error_take();
}
#define EXPECT_REFUSED(...) expect_refused(__LINE__, __VA_ARGS__)

#define SERVERS "\"ps\": [\"p:1\", \"p:2\"]"
#define WORKERS "\"worker\": [\"w:1\"]"

static void ps_034(void)
{
    EXPECT_REFUSED("{" SERVERS ", " WORKERS ", \"helper\": [\"h:1\"]}", "chief", 0, "disallowed task type 'helper'");
    CHECK(mu__check_parameter_servers(cluster_of("{" SERVERS ", " WORKERS "}", NULL, 0)) == MU_OK);
    CHECK(mu__check_parameter_servers(cluster_of("{" SERVERS ", " WORKERS "}", "evaluator", 0)) == MU_OK);
}

static void ps_035(void)
{
    EXPECT_REFUSED("{" SERVERS ", " WORKERS "}", "foobar", 0, "task type 'foobar'");
    EXPECT_REFUSED("{" SERVERS ", " WORKERS ", \"chief\": [\"a:1\", \"b:1\", \"c:1\"]}", "chief", 0,
                   "3 tasks of job chief");
    EXPECT_REFUSED("{" SERVERS ", \"chief\": [\"c:1\"]}", "chief", 0, "no tasks of job worker");
    EXPECT_REFUSED("{" WORKERS ", \"chief\": [\"c:1\"]}", "chief", 0, "no tasks of job ps");
    EXPECT_REFUSED("{}", NULL, 0, "empty");
    EXPECT_REFUSED("{" SERVERS ", " WORKERS "}", "chief", 0, "no such job");
    EXPECT_REFUSED("{" SERVERS ", " WORKERS "}", "worker", 1, "worker 1");
}

// ---- TF_CONFIG ----------------------------------------------------------------------------------

#define TASKS                                              \
    "\"cluster\": {\"ps\": [\"ps0:2222\", \"ps1:2222\"], " \
    "\"worker\": [\"worker0:2222\", \"worker1:2222\", \"worker2:2222\"]}, "
#define PS(i) "\"task\": {\"type\": \"ps\", \"index\": " i "}"

static mu_cluster *tf_config(const char *text)
{
    setenv("TF_CONFIG", text, 1);
    return mu_tf_config_cluster_resolver();
}

static void ps_082(void)
{
    mu_cluster *cluster = tf_config("{" TASKS PS("0") "}");
    CHECK_TEXT(mu_cluster_master(cluster), "ps0:2222");
    CHECK_TEXT(mu_cluster_master(cluster, "worker", 1), "worker1:2222");
    clear_environment();
}

static void ps_083(void)
{
    CHECK_TEXT(mu_cluster_master(tf_config("{" TASKS PS("0") ", \"rpc_layer\": \"grpc\"}")), "grpc://ps0:2222");
    CHECK_TEXT(mu_cluster_master(tf_config("{" TASKS PS("0") ", \"session_master\": \"sessionmaster:2222\"}")),
               "sessionmaster:2222");
    clear_environment();
}

static void ps_085(void)
{
    CHECK_TEXT(mu_cluster_master(tf_config("{}")), "");
    CHECK_TEXT(mu_cluster_master(tf_config("{\"cluster\": {\"worker\": [\"w:1\"]}}")), "");
    mu_cluster *broken = tf_config("{\"cluster\": ");
    CHECK(broken && mu_error_code() == MU_OK);
    CHECK(!mu_cluster_get_spec(broken));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    clear_environment();
}

static void ps_086(void)
{
    setenv("TF_CONFIG", "{" TASKS PS("1") ", \"rpc_layer\": \"grpc\"}", 1);
    mu_cluster *cluster = mu_tf_config_cluster_resolver(.task_type = "ps", .task_id = 0);
    CHECK_TEXT(mu_cluster_master(cluster), "grpc://ps0:2222");
    CHECK(mu_cluster_set_task_type(cluster, "worker") == MU_OK && mu_cluster_set_task_id(cluster, 1) == MU_OK &&
          mu_cluster_set_rpc_layer(cluster, "test") == MU_OK);
    CHECK_TEXT(mu_cluster_master(cluster), "test://worker1:2222");
    clear_environment();
}

// ---- Slurm --------------------------------------------------------------------------------------

static void expect_hosts(int line, const char *text, int n, const char *const *wanted)
{
    mu_hosts hosts = {0};
    if (mu__hostlist_expand(text, &hosts) != MU_OK || hosts.n != (size_t)n)
        fail_case(line, "%zu hosts, expected %d", hosts.n, n);
    for (size_t i = 0; i < hosts.n && i < (size_t)n; i++)
        if (strcmp(hosts.items[i], wanted[i]) != 0)
            fail_case(line, "host %zu is '%s', expected '%s'", i, hosts.items[i], wanted[i]);
    mu__hosts_free(&hosts);
}
#define EXPECT_HOSTS(text, ...) \
    expect_hosts(__LINE__, text, (int)MU_COUNT(((const char *[]){__VA_ARGS__})), (const char *[]){__VA_ARGS__})

static void ps_088(void)
{
    EXPECT_HOSTS("n[1-2],m5,o[3-4,6,7-9]", "n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9");
    EXPECT_HOSTS("n[0001-0003],m5,o[009-011]", "n0001", "n0002", "n0003", "m5", "o009", "o010", "o011");
}

static void ps_089(void)
{
    static const int wanted[] = {3, 3, 2, 11, 11, 11, 11};
    mu_counts counts = {0};
    CHECK(mu__tasks_per_node_expand("3(x2),2,11(x4)", &counts) == MU_OK && counts.n == MU_COUNT(wanted));
    CHECK(counts.n == MU_COUNT(wanted) && memcmp(counts.items, wanted, sizeof wanted) == 0);
    mu__free(counts.items);
}

static const mu_job_size one_and_four[] = {{"ps", 1}, {"worker", 4}, {NULL, 0}};

static void set_step(const char *visible)
{
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_STEP_NUM_TASKS", "5", 1);
    setenv("SLURM_STEP_NODELIST", "n[13,41,43]", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "2(x2),1", 1);
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
}

static void expect_step(int gpus_per_node, int gpus_per_task, const char *all, const char *visible)
{
    set_step(all);
    mu_cluster *cluster =
        mu_slurm_cluster_resolver(.jobs = one_and_four, .gpus_per_node = gpus_per_node, .gpus_per_task = gpus_per_task);
    CHECK_TEXT(json_of(cluster),
               "{\"ps\": [\"n13:8888\"], \"worker\": [\"n13:8889\", \"n41:8888\", \"n41:8889\", \"n43:8888\"]}");
    CHECK_TEXT(getenv("CUDA_VISIBLE_DEVICES"), visible);
    clear_environment();
}

static void ps_091(void) { expect_step(2, 1, "0,1", "1"); }
static void ps_092(void) { expect_step(4, 2, "0,1,2,3", "2,3"); }

static void ps_094(void)
{
    static const mu_job_size four[] = {{"ps", 1}, {"worker", 3}, {NULL, 0}};
    set_step("0");
    CHECK(!mu_slurm_cluster_resolver(.jobs = one_and_four, .gpus_per_node = 1, .gpus_per_task = 1));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x3)", 1);
    CHECK(!mu_slurm_cluster_resolver(.jobs = four));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    unsetenv("SLURM_STEP_NODELIST");
    CHECK(!mu_slurm_cluster_resolver());
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    clear_environment();
}

// ---- Unions and simple resolvers ----------------------------------------------------------------

static const char *union_of(const char *a, const char *b)
{
    return json_of(mu_union_cluster_resolver(MU_CLUSTERS(cluster_of(a, NULL, 0), cluster_of(b, NULL, 0))));
}

static void ps_095(void)
{
    CHECK_TEXT(union_of("{\"worker\": [\"a\", \"b\"]}", "{\"worker\": [\"c\", \"d\", \"e\"]}"),
               "{\"worker\": [\"a\", \"b\", \"c\", \"d\", \"e\"]}");
    CHECK_TEXT(union_of("{\"worker\": {\"5\": \"a\", \"9\": \"b\"}}",
                        "{\"worker\": {\"3\": \"c\", \"6\": \"d\", \"7\": \"e\"}}"),
               "{\"worker\": {\"3\": \"c\", \"5\": \"a\", \"6\": \"d\", \"7\": \"e\", \"9\": \"b\"}}");
    CHECK_TEXT(union_of("{\"worker\": [\"a\", \"b\"]}", "{\"worker\": {\"3\": \"c\", \"6\": \"d\", \"7\": \"e\"}}"),
               "{\"worker\": {\"0\": \"a\", \"1\": \"b\", \"3\": \"c\", \"6\": \"d\", \"7\": \"e\"}}");
}

static void ps_097(void)
{
    mu_cluster *a =
        mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"ps\": [\"p:1\"]}"), .task_type = "ps", .task_id = 1,
                                   .environment = "cloud", .num_accelerators = 8, .rpc_layer = "grpc");
    mu_cluster *b =
        mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"worker\": [\"w:1\"]}"), .task_type = "worker",
                                   .task_id = 2, .environment = "local", .num_accelerators = 16, .rpc_layer = "http");
    mu_cluster *both = mu_union_cluster_resolver(MU_CLUSTERS(a, b));
    CHECK_TEXT(mu_cluster_task_type(both), "ps");
    CHECK_TEXT(mu_cluster_environment(both), "cloud");
    CHECK_TEXT(mu_cluster_rpc_layer(both), "grpc");
    CHECK(mu_cluster_task_id(both) == 1 && mu_cluster_num_accelerators(both, "GPU") == 8);
    CHECK(mu_cluster_set_task_type(both, "worker") == MU_OK && mu_cluster_set_task_id(both, 2) == MU_OK &&
          mu_cluster_set_rpc_layer(both, "http") == MU_OK);
    CHECK_TEXT(mu_cluster_task_type(both), "worker");
    CHECK_TEXT(mu_cluster_rpc_layer(both), "http");
    CHECK(mu_cluster_task_id(both) == 2);
}

static void ps_098(void)
{
    static const char *const workers = "{\"worker\": [\"worker0:2222\", \"worker1:2222\", \"worker2:2222\"]}";
    CHECK_TEXT(mu_cluster_master(cluster_of(workers, NULL, 0), "worker", 2), "worker2:2222");
    mu_cluster *grpc = mu_simple_cluster_resolver(mu_cluster_spec_parse(workers), .rpc_layer = "grpc");
    CHECK_TEXT(mu_cluster_master(grpc, "worker", 2), "grpc://worker2:2222");
    mu_cluster *plain = cluster_of("{}", NULL, 0);
    CHECK_TEXT(mu_cluster_master(mu_union_cluster_resolver(MU_CLUSTERS(plain, cluster_of("{}", NULL, 0)))), "");
}

static void ps_100(void)
{
    static const char *const sparse = "{\"worker\": {\"1\": \"x\", \"3\": \"y\", \"5\": \"z\"}}";
    mu_cluster *both = mu_union_cluster_resolver(MU_CLUSTERS(cluster_of(sparse, NULL, 0)));
    mu_cluster_spec *spec = mu_cluster_get_spec(both);
    CHECK_TEXT(mu_cluster_spec_json(spec), sparse);
    for (int i = 0; i < 3; i++)
        CHECK(mu_cluster_spec_task_index(spec, "worker", i) == 2 * i + 1);
}

const one_case resolver_cases[] = {
    {"ps-034", ps_034, NULL}, {"ps-035", ps_035, NULL}, {"ps-082", ps_082, NULL}, {"ps-083", ps_083, NULL},
    {"ps-085", ps_085, NULL}, {"ps-086", ps_086, NULL}, {"ps-088", ps_088, NULL}, {"ps-089", ps_089, NULL},
    {"ps-091", ps_091, NULL}, {"ps-092", ps_092, NULL}, {"ps-094", ps_094, NULL}, {"ps-095", ps_095, NULL},
    {"ps-097", ps_097, NULL}, {"ps-098", ps_098, NULL}, {"ps-100", ps_100, NULL}, {0},
};
