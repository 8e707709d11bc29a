// The Compute Engine resolver against a server that speaks its API and the metadata server's: addresses, pages, order,
// tokens, wrong answers and no answer.
#include "api_server.h"

static char url[64], metadata[64];
static pid_t server;

static int start_server(void **state)
{
    (void)state;
    const int port = start_api(NULL, &server);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/compute/v1", port);
    snprintf(metadata, sizeof metadata, "127.0.0.1:%d", port);
    return port > 0 ? 0 : -1;
}

static int stop_server(void **state)
{
    (void)state;
    stop_api(server);
    return 0;
}

static const char *spec_of(mu_cluster *cluster)
{
    mu_cluster_spec *spec = mu_cluster_get_spec(cluster);
    return spec ? mu_cluster_spec_json(spec) : NULL;
}

static mu_cluster *group_of(const char *group)
{
    return mu_gce_cluster_resolver("project-1", "us-west1-a", group, .token = "secret", .api = url);
}

// All pages, the running instances alone, in the order of TensorFlow's list.sort() of "ip:port".
static void instances_become_tasks(void **state)
{
    (void)state;
    mu_cluster *cluster = group_of("trainers");
    assert_string_equal(spec_of(cluster), "{\"worker\": [\"10.0.0.10:8470\", \"10.0.0.1:8470\", \"10.0.0.2:8470\"]}");
    assert_string_equal(mu_cluster_task_type(cluster), "worker");
    assert_int_equal(mu_cluster_task_id(cluster), 0);
    assert_string_equal(mu_cluster_rpc_layer(cluster), "grpc");
    assert_string_equal(mu_cluster_environment(cluster), "");
    assert_string_equal(mu_cluster_source(cluster), "the Compute Engine API");
    assert_string_equal(mu_cluster_master(cluster), "grpc://10.0.0.10:8470");
    assert_string_equal(mu_cluster_master(cluster, "worker", 2, .rpc_layer = "http"), "http://10.0.0.2:8470");
    assert_int_equal(mu_cluster_set_task_id(cluster, 1), MU_OK);
    assert_string_equal(mu_cluster_master(cluster), "grpc://10.0.0.1:8470");
    assert_int_equal(mu_cluster_worker_index(cluster), 1);
    cluster =
        mu_gce_cluster_resolver("project-1", "us-west1-a", "trainers", 9, "ps", 2, "", .token = "secret", .api = url);
    assert_string_equal(spec_of(cluster), "{\"ps\": [\"10.0.0.10:9\", \"10.0.0.1:9\", \"10.0.0.2:9\"]}");
    assert_string_equal(mu_cluster_master(cluster), "10.0.0.2:9");
    assert_int_equal(mu_cluster_set_rpc_layer(cluster, "grpc"), MU_OK);
    assert_string_equal(mu_cluster_master(cluster), "grpc://10.0.0.2:9");
    assert_string_equal(spec_of(group_of("six")), "{\"worker\": [\"[fd00::7]:8470\"]}");
}

// No instances are no cluster of one: each machine of a group whose name is wrong would train alone.
static void no_instances_are_no_tasks(void **state)
{
    (void)state;
    mu_cluster *cluster = group_of("stopped");
    assert_string_equal(spec_of(cluster), "{\"worker\": {}}");
    assert_int_equal(mu_cluster_check(cluster), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "that job of the cluster has no tasks");
}

static void the_task_type_is_fixed(void **state)
{
    (void)state;
    mu_cluster *cluster = group_of("trainers");
    assert_int_equal(mu_cluster_set_task_type(cluster, "ps"), MU_FAILED_PRECONDITION);
    assert_taken(MU_FAILED_PRECONDITION, ".task_type = \"ps\"");
    assert_int_equal(mu_cluster_set_task_type(cluster, NULL), MU_FAILED_PRECONDITION);
    assert_taken(MU_FAILED_PRECONDITION, "mu_cluster_set_task_type");
    assert_string_equal(mu_cluster_task_type(cluster), "worker");
}

static void refused(const char *group, mu_status status, const char *text)
{
    assert_null(spec_of(group_of(group)));
    assert_taken(status, text);
}

static void wrong_answers_are_refused(void **state)
{
    (void)state;
    refused("homeless", MU_DATA_LOSS, "\"homeless\" runs, but not its address");
    refused("nowhere", MU_DATA_LOSS, "\"10.0.0\", which is no IP address");
    refused("nameless", MU_DATA_LOSS, "lists an instance as \"\"");
    refused("climbing", MU_DATA_LOSS, "instances/..\"");
    refused("asking", MU_DATA_LOSS, "a?b");
    refused("list", MU_DATA_LOSS, "not a list");
    refused("token", MU_DATA_LOSS, "not a list");
    refused("endless", MU_DATA_LOSS, "pages");
    refused("torn", MU_INVALID_ARGUMENT, "Compute Engine's answer is not JSON");
    refused("long", MU_RESOURCE_EXHAUSTED, "bytes");
    refused("busy", MU_UNAVAILABLE, "429");
    refused("broken", MU_UNAVAILABLE, "503");
    refused("moved", MU_FAILED_PRECONDITION, "302");
    refused("bad", MU_FAILED_PRECONDITION, "400");
    refused("gone", MU_NOT_FOUND, "nobody");
    refused("missing", MU_NOT_FOUND, "group \"missing\" in zone \"us-west1-a\" of project \"project-1\"");
}

static void refusals_name_the_project(void **state)
{
    (void)state;
    assert_null(spec_of(mu_gce_cluster_resolver("nobody", "us-west1-a", "trainers", .token = "secret", .api = url)));
    assert_taken(MU_NOT_FOUND, "project \"nobody\"");
    assert_null(spec_of(mu_gce_cluster_resolver("forbidden", "us-west1-a", "trainers", .token = "secret", .api = url)));
    assert_taken(MU_PERMISSION_DENIED, "project \"forbidden\"");
    assert_null(spec_of(mu_gce_cluster_resolver("project-1", "us-west1-a", "trainers", .token = "guess", .api = url)));
    assert_taken(MU_UNAUTHENTICATED, "401");
}

static mu_cluster *by_metadata(const char *path)
{
    char address[96];
    snprintf(address, sizeof address, "%s%s", metadata, path);
    return mu_gce_cluster_resolver("project-1", "us-west1-a", "six", .api = url, .metadata_address = address);
}

static void the_metadata_server_has_the_token(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text;
        mu_status status;
    } wrong[] = {{"/other", "401", MU_UNAUTHENTICATED},
                 {"/torn", "not JSON", MU_INVALID_ARGUMENT},
                 {"/none", "no usable access_token", MU_DATA_LOSS},
                 {"/lines", "no usable access_token", MU_DATA_LOSS},
                 {"/nobody", "give .token", MU_NOT_FOUND}};
    assert_non_null(spec_of(by_metadata("")));
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        assert_null(spec_of(by_metadata(wrong[i].path)));
        assert_taken(wrong[i].status, wrong[i].text);
    }
    mu_cluster *cluster = mu_gce_cluster_resolver("project-1", "us-west1-a", "six", .api = url);
    setenv("GCE_METADATA_HOST", metadata, 1);
    assert_non_null(spec_of(cluster));
    setenv("GCE_METADATA_HOST", "127.0.0.1:1", 1);
    assert_null(spec_of(cluster));
    assert_taken(MU_UNAVAILABLE, "give .token");
}

static void waits_have_a_deadline(void **state)
{
    (void)state;
    static const char *const groups[] = {"slow", "endless"};
    for (size_t i = 0; i < MU_COUNT(groups); i++) {
        const int64_t start = mu__now_ns();
        assert_null(spec_of(mu_gce_cluster_resolver("project-1", "us-west1-a", groups[i], .token = "secret", .api = url,
                                                    .timeout_seconds = 0.05)));
        assert_taken(MU_DEADLINE_EXCEEDED, groups[i]);
        assert_true(mu__now_ns() - start < 4000000000);
    }
    assert_null(spec_of(mu_gce_cluster_resolver("p", "z", "g", .token = "secret", .api = "http://127.0.0.1:1")));
    assert_taken(MU_UNAVAILABLE, "127.0.0.1:1");
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", "a/b", "..", "a b", "a?b", "a%2f", "-a", "a\r\nb"};
    for (size_t i = 0; i < MU_COUNT(names); i++) {
        assert_null(mu_gce_cluster_resolver("p", names[i], "g"));
        assert_taken(MU_INVALID_ARGUMENT, "zone is");
    }
    assert_null(mu_gce_cluster_resolver());
    assert_taken(MU_INVALID_ARGUMENT, ".project is missing");
    assert_null(mu_gce_cluster_resolver("p", .instance_group = "g"));
    assert_taken(MU_INVALID_ARGUMENT, ".zone is missing");
    assert_null(mu_gce_cluster_resolver("p", "z"));
    assert_taken(MU_INVALID_ARGUMENT, ".instance_group is missing");
    assert_non_null(mu_gce_cluster_resolver("example.com:p", "z", "g"));
    assert_null(mu_gce_cluster_resolver("p", "z", "g", 0));
    assert_taken(MU_INVALID_ARGUMENT, "port is 0");
    assert_null(mu_gce_cluster_resolver("p", "z", "g", 65536));
    assert_taken(MU_INVALID_ARGUMENT, "port is 65536");
    assert_null(mu_gce_cluster_resolver("p", "z", "g", .task_id = -1));
    assert_taken(MU_INVALID_ARGUMENT, "task_id is -1");
    assert_null(mu_gce_cluster_resolver("p", "z", "g", .task_type = ""));
    assert_taken(MU_INVALID_ARGUMENT, "0 bytes");
    assert_null(mu_gce_cluster_resolver("p", "z", "g", .token = "secret\r\nX-More: 1"));
    assert_taken(MU_INVALID_ARGUMENT, "token");
    assert_null(mu_gce_cluster_resolver("p", "z", "g", .timeout_seconds = 0));
    assert_taken(MU_INVALID_ARGUMENT, "timeout_seconds is 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(instances_become_tasks),    cluster_test(no_instances_are_no_tasks),
        cluster_test(the_task_type_is_fixed),    cluster_test(wrong_answers_are_refused),
        cluster_test(refusals_name_the_project), cluster_test(the_metadata_server_has_the_token),
        cluster_test(waits_have_a_deadline),     cluster_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
