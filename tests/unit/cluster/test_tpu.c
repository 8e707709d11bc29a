// The TPU resolver: this host, addresses, names in the environment, and a metadata server that answers wrongly.
#include "cluster/tpu_topology.h"
#include "cluster_test.h"
#include "comm/sessions/net.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- A metadata server --------------------------------------------------------------------------

static char address[64];
static pid_t server;
static const char *own_name = "here", *endpoints = "1:8470:10.0.0.2,2:8470:10.0.0.3";

static void answer(int connection)
{
    char request[2048], reply[600];
    const ssize_t n = read(connection, request, sizeof request - 1);
    request[n > 0 ? n : 0] = '\0';
    const char *body = !strstr(request, "Metadata-Flavor: Google")                ? NULL
                       : strstr(request, "/attributes/instance-id ")              ? own_name
                       : strstr(request, "/attributes/worker-network-endpoints ") ? endpoints
                                                                                  : NULL;
    const int length =
        snprintf(reply, sizeof reply, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                 body ? "200 OK" : "404 Not Found", body ? strlen(body) : 0, body ? body : "");
    if (write(connection, reply, (size_t)length) != length)
        _exit(1);
    close(connection);
}

static void start_server(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    server = fork();
    assert_true(server >= 0);
    while (server == 0)
        answer(accept(listener, NULL, NULL));
    close(listener);
}

static void stop_server(void)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

// ---- Tests --------------------------------------------------------------------------------------

static const char *spec_of(mu_cluster *cluster)
{
    mu_cluster_spec *spec = mu_cluster_get_spec(cluster);
    return spec ? mu_cluster_spec_json(spec) : NULL;
}

static void local_needs_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"", "local"};
    for (int i = 0; i < 2; i++) {
        mu_cluster *cluster = mu_tpu_cluster_resolver(names[i]);
        assert_string_equal(spec_of(cluster), "{}");
        assert_string_equal(mu_cluster_master(cluster), "");
        assert_null(mu_cluster_task_type(cluster));
        assert_int_equal(mu_cluster_num_accelerators(cluster, "TPU"), 0);
    }
}

static void takes_addresses(void **state)
{
    (void)state;
    mu_cluster *cluster = mu_tpu_cluster_resolver("grpc://10.0.0.2:8470,10.0.0.3:8471");
    assert_string_equal(spec_of(cluster), "{\"worker\": [\"10.0.0.2:8470\", \"10.0.0.3:8471\"]}");
    assert_string_equal(mu_cluster_master(cluster), "grpc://10.0.0.2:8470");
    assert_string_equal(mu_cluster_task_type(cluster), "worker");
    assert_int_equal(mu_cluster_task_id(cluster), 0);
    cluster = mu_tpu_cluster_resolver("10.0.0.2:8470", .job_name = "tpu", .coordinator_name = "boss",
                                      .coordinator_address = "10.0.0.9:8482");
    assert_string_equal(spec_of(cluster), "{\"boss\": [\"10.0.0.9:8482\"], \"tpu\": [\"10.0.0.2:8470\"]}");
}

static void refuses_wrong_addresses(void **state)
{
    (void)state;
    static const char *const wrong[] = {"grpc://", "10.0.0.2:8470,", "10.0.0.2:1,10.0.0.3"};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        assert_null(mu_tpu_cluster_resolver(wrong[i]));
        assert_taken(MU_INVALID_ARGUMENT, "host:port");
    }
    assert_null(mu_tpu_cluster_resolver("", .coordinator_name = "boss"));
    assert_taken(MU_INVALID_ARGUMENT, "coordinator_address");
}

static void reads_the_environment(void **state)
{
    (void)state;
    mu_cluster *cluster = mu_tpu_cluster_resolver();
    assert_null(mu_cluster_get_spec(cluster));
    assert_taken(MU_NOT_FOUND, "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS");
    setenv("TPU_NAME", "mine", 1);
    setenv("TPU_WORKER_HOSTNAMES", "a,b", 1);
    assert_string_equal(spec_of(cluster), "{\"worker\": [\"a:8470\", \"b:8470\"]}");
    assert_int_equal(mu_cluster_task_id(cluster), 0);
    setenv("TPU_WORKER_ID", "1", 1);
    assert_int_equal(mu_cluster_task_id(cluster), 1);
    setenv("TPU_WORKER_ID", "2", 1);
    assert_null(mu_cluster_get_spec(cluster));
    assert_taken(MU_INVALID_ARGUMENT, "TPU_WORKER_ID is \"2\"; expected a whole number from 0 to 1");
    mu_cluster_set_task_id(cluster, 1); // then the variable says nothing of this cluster
    assert_string_equal(spec_of(cluster), "{\"worker\": [\"a:8470\", \"b:8470\"]}");
    assert_int_equal(mu_cluster_task_id(cluster), 1);
    mu_cluster_set_task_id(cluster, -1);
    unsetenv("TPU_WORKER_ID");
    setenv("TPU_WORKER_HOSTNAMES", "localhost", 1);
    assert_string_equal(spec_of(cluster), "{}");
    setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.0.0.7:8470", 1);
    assert_string_equal(spec_of(cluster), "{\"worker\": [\"10.0.0.7:8470\"]}");
    assert_null(mu_cluster_get_spec(mu_tpu_cluster_resolver("another")));
    assert_taken(MU_NOT_FOUND, ".tpu = \"local\"");
    unsetenv("TPU_NAME");
    unsetenv("TPU_WORKER_HOSTNAMES");
    unsetenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS");
}

static void asks_the_metadata_server(void **state)
{
    (void)state;
    start_server();
    mu_cluster *cluster = mu_tpu_cluster_resolver("here", .metadata_address = address);
    assert_string_equal(spec_of(cluster), "{\"worker\": [\"10.0.0.2:8470\", \"10.0.0.3:8470\"]}");
    assert_null(mu_cluster_get_spec(mu_tpu_cluster_resolver("there", .metadata_address = address)));
    assert_taken(MU_NOT_FOUND, "\"here\"");
    setenv("GCE_METADATA_HOST", address, 1);
    assert_non_null(spec_of(mu_tpu_cluster_resolver("here")));
    unsetenv("GCE_METADATA_HOST");
    stop_server();
    assert_null(mu_cluster_get_spec(cluster));
    assert_taken(MU_UNAVAILABLE, address);
    static const char *const wrong[] = {"", "1:8470", "nonsense,,", "1:8470:"};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        endpoints = wrong[i];
        start_server();
        assert_null(mu_cluster_get_spec(mu_tpu_cluster_resolver("here", .metadata_address = address)));
        assert_int_not_equal(mu_error_take().code, MU_OK);
        stop_server();
    }
}

static int own_task_of(const char *addresses)
{
    int task = -2;
    mu_cluster *cluster = mu_tpu_cluster_resolver(addresses);
    assert_int_equal(mu__cluster_own_task(cluster, mu_cluster_get_spec(cluster), "worker", &task), MU_OK);
    return task;
}

// The only worker with an address of this machine, unless TPU_WORKER_ID says another.
static void finds_itself_by_its_address(void **state)
{
    (void)state;
    mu_endpoints own;
    char host[INET_ADDRSTRLEN] = "", list[100];
    assert_int_equal(own_task_of("198.51.100.9:8470,198.51.100.10:8470"), -1);
    assert_int_equal(mu__network_endpoints(&own), MU_OK);
    for (int i = 0; i < own.n && !*host; i++)
        if (own.items[i].address.ss_family == AF_INET)
            inet_ntop(AF_INET, &((struct sockaddr_in *)&own.items[i].address)->sin_addr, host, sizeof host);
    if (!*host)
        skip();
    snprintf(list, sizeof list, "198.51.100.9:8470,%s:8470", host);
    assert_int_equal(own_task_of(list), 1);
    setenv("TPU_WORKER_ID", "0", 1);
    assert_int_equal(own_task_of(list), 0);
    unsetenv("TPU_WORKER_ID");
    snprintf(list, sizeof list, "%s:8470,%s:8471", host, host);
    assert_int_equal(own_task_of(list), -1);
}

// Replicas of two tasks, given crosswise.
static void sorts_replicas_by_task(void **state)
{
    (void)state;
    const int places[] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1};
    const int crosswise[] = {1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1};
    mu_tpu_topology *topology =
        mu_tpu_topology_new(.mesh_shape = {2, 1, 1, 2}, .num_tasks = 2, .num_tpu_devices_per_task = 2,
                            .device_coordinates = places, .n_device_coordinates = (int)MU_COUNT(places));
    mu_tpu_device_assignment *sorted =
        mu__give(mu__tpu_by_task(mu_tpu_device_assignment_new(topology, 4, 1, crosswise), 2));
    assert_non_null(sorted);
    for (int r = 0; r < 4; r++) {
        static const int wanted[] = {0, 1, 3, 2};
        int at[MU_TPU_RANK];
        assert_int_equal(mu_tpu_device_assignment_coordinates(sorted, r, 0, at), MU_OK);
        assert_memory_equal(at, places + wanted[r] * MU_TPU_RANK, sizeof at);
    }
    assert_null(mu__tpu_by_task(mu_tpu_device_assignment_new(topology, 3, 1, crosswise), 2));
    assert_taken(MU_INVALID_ARGUMENT, "3 replicas for 2 hosts");
    assert_null(mu__tpu_by_task(mu_tpu_device_assignment_new(topology, 2, 1, places), 2));
    assert_taken(MU_INVALID_ARGUMENT, "2 of the assignment's 2 replicas are on task 0");
    assert_null(mu__tpu_by_task(mu_tpu_device_assignment_new(topology, 2, 2, crosswise), 2));
    assert_taken(MU_INVALID_ARGUMENT, "core 0 on task 1 and core 1 on task 0");
    assert_null(mu__tpu_by_task(sorted, 3));
    assert_taken(MU_INVALID_ARGUMENT, "3 hosts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cluster_test(local_needs_nothing),         cluster_test(takes_addresses),
        cluster_test(refuses_wrong_addresses),     cluster_test(reads_the_environment),
        cluster_test(finds_itself_by_its_address), cluster_test(sorts_replicas_by_task),
        cluster_test(asks_the_metadata_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
