// Servers in processes of their own: killed, started again, stopped, and strangers that connect to them.
//
// The program starts itself: "server ADDRESS" is a server that counts its calls.
#include "comm/sessions/net.h"
#include "rpc_test.h"

#include <arpa/inet.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char own_path[300], address[64];
static int port;

// ---- The server ---------------------------------------------------------------------------------

static atomic_int n_calls;

static mu_value *count(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return number(atomic_fetch_add(&n_calls, 1) + 1);
}

static mu_value *sleep_long(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    sleep(60);
    return NULL;
}

static int serve(const char *at)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    mu_init(.cpu_devices = 1);
    mu_rpc_server *server = mu_rpc_server_new("muster", at);
    mu_rpc_server_register(server, "count", .fn = count);
    mu_rpc_server_register(server, "sleep", .fn = sleep_long);
    if (mu_rpc_server_start(server) != MU_OK)
        return mu_exit(false) || 1;
    for (;;)
        pause();
}

static pid_t start_server(void)
{
    pid_t pid;
    char *const arguments[] = {own_path, "server", address, NULL};
    assert_int_equal(posix_spawn(&pid, own_path, NULL, NULL, arguments, environ), 0);
    return pid;
}

static void kill_server(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

// ---- Tests --------------------------------------------------------------------------------------

static void test_a_client_waits_for_its_server(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_client *client = mu_rpc_client_new("muster", address);
    mu_rpc_result *early = mu_rpc_call(client, "count");
    assert_null(mu_rpc_client_new("muster", address, .list_registered_methods = true, .timeout_in_ms = 1));
    expect_error(MU_DEADLINE_EXCEEDED, "\"muster.methods\" at");
    const pid_t pid = start_server();
    mu_rpc_client *listing = mu_rpc_client_new("muster", address, .list_registered_methods = true);
    assert_non_null(listing);
    assert_true(mu_scalar(mu_rpc_result_value(early)) == 1);
    kill_server(pid);
    mu_pool_close(pool);
}

static void test_a_killed_server_and_its_successor(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    pid_t pid = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", address);
    for (int round = 0; round < 5; round++) {
        expect_result(mu_rpc_call(client, "count"), MU_OK, "");
        const uint64_t before = mu_rpc_client_server(client);
        mu_rpc_result *lost = mu_rpc_call(client, "sleep");
        assert_true(mu_scalar(mu_rpc_result_value(mu_rpc_call(client, "count"))) == 2); // `sleep` is there by now
        kill_server(pid);
        expect_result(lost, MU_UNAVAILABLE, "the function may have run");
        mu_rpc_result *later = mu_rpc_call(client, "count");
        pid = start_server();
        assert_true(mu_scalar(mu_rpc_result_value(later)) == 1); // a new process
        assert_true(mu_rpc_client_server(client) != before);
        assert_true(mu_scalar(mu_rpc_result_value(mu_rpc_call(client, "count"))) == 2);
        kill_server(pid);
        pid = start_server();
        while (mu_rpc_client_server(client) != 0)
            usleep(1000);
    }
    kill_server(pid);
    mu_pool_close(pool);
}

static void test_fail_fast(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_client *client = mu_rpc_client_new("muster", address, .fail_fast = true);
    expect_result(mu_rpc_call(client, "count"), MU_UNAVAILABLE, "cannot be reached: connection refused");
    expect_result(mu_rpc_call(client, "count"), MU_UNAVAILABLE, "cannot be reached");
    mu_pool_close(pool);
}

static void test_a_stopped_server_is_noticed(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const pid_t pid = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", address);
    expect_result(mu_rpc_call(client, "count"), MU_OK, "");
    int status;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid); // no thread runs any more
    assert_true(WIFSTOPPED(status));
    expect_result(mu_rpc_call(client, "count", NULL, .timeout_in_ms = 60000), MU_UNAVAILABLE,
                  "connection ended before the reply: no sign of life for");
    kill(pid, SIGCONT);
    expect_result(mu_rpc_call(client, "count"), MU_OK, ""); // it was slow, not dead
    kill_server(pid);
    mu_pool_close(pool);
}

static int connect_raw(void)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void test_strangers(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const pid_t pid = start_server();
    mu_rpc_client *client = mu_rpc_client_new("muster", address);
    expect_result(mu_rpc_call(client, "count"), MU_OK, "");
    char garbage[4096];
    int fds[40];
    for (int i = 0; i < 40; i++) {
        memset(garbage, i * 7, sizeof garbage);
        fds[i] = connect_raw();
        if (write(fds[i], garbage, sizeof garbage) < 0)
            continue; // hung up already
    }
    for (int i = 0; i < 40; i++)
        close(fds[i]);
    assert_true(mu_scalar(mu_rpc_result_value(mu_rpc_call(client, "count"))) == 2);
    kill_server(pid);
    mu_pool_close(pool);
}

static void test_another_key(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    setenv("MUSTER_CLUSTER_KEY", "another key of 40 different characters!!", 1);
    const pid_t pid = start_server();
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    mu_rpc_client *client = mu_rpc_client_new("muster", address);
    expect_result(mu_rpc_call(client, "count", NULL, .timeout_in_ms = 3000), MU_DEADLINE_EXCEEDED,
                  "its cluster key is not ours");
    kill_server(pid);
    mu_pool_close(pool);
}

static int begin(void **state)
{
    (void)state;
    mu_kept_port kept;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    setenv("MUSTER_HEARTBEAT", "2", 1);
    if (mu_init(.cpu_devices = 1) != MU_OK || mu__ports_keep(&kept, 1, true) != MU_OK)
        return -1;
    port = kept.port;
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return mu_exit(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_waits_for_its_server),
        cmocka_unit_test(test_a_killed_server_and_its_successor),
        cmocka_unit_test(test_fail_fast),
        cmocka_unit_test(test_a_stopped_server_is_noticed),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_another_key),
    };
    if (argc == 3)
        return serve(argv[2]);
    snprintf(own_path, sizeof own_path, "/proc/self/exe");
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        return 1;
    return cmocka_run_group_tests(tests, begin, end);
}
