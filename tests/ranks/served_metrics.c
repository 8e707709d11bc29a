// served_metrics LAUNCHER: runs itself as a coordinator under `muster launch --workers 3 --ps 2`, with a fixed
// MUSTER_METRICS_PORT, and reads the numbers of all tasks. The environment sets MUSTER_HEARTBEAT.
//
// Each task answers at the port plus its rank, also a task that was killed and has started again. While the server with
// the copy is stopped, the copies are behind; after it continues, none is.
//
// The exit code is 0 if all is as expected.
#define _GNU_SOURCE // usleep, setenv
#include <muster.h>

#include "../metrics_page.h"
#include "served_tasks.h"

#include <pthread.h>

enum { WORKERS = 3, SERVERS = 2, TASKS = 1 + WORKERS + SERVERS };

static int first_port;
static int port_of(int rank) { return first_port + rank; }
static int port_of_server(int i) { return port_of(1 + WORKERS + i); }

// ---- Starting the launcher ------------------------------------------------------------------------

static bool is_free(int port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return free;
}

// Below the ports that the system chooses, and another one for each process.
static int free_ports(void)
{
    for (int i = 0; i < 1000; i++) {
        const int first = 12000 + (getpid() * 16 + i * 7) % 18000;
        int n = 0;
        while (n < TASKS && is_free(first + n))
            n++;
        if (n == TASKS)
            return first;
    }
    return 0;
}

static int start(const char *launcher, const char *self)
{
    char port[16], workers[16], servers[16];
    snprintf(port, sizeof port, "%d", free_ports());
    snprintf(workers, sizeof workers, "%d", WORKERS);
    snprintf(servers, sizeof servers, "%d", SERVERS);
    setenv("MUSTER_METRICS_PORT", port, 1);
    execl(launcher, launcher, "launch", "--workers", workers, "--ps", servers, "--", self, (char *)NULL);
    perror(launcher);
    return 64;
}

// ---- Reading --------------------------------------------------------------------------------------

static void wait_for_number(int port, const char *name, double least, double most)
{
    double seen = metrics_number(port, name);
    for (int i = 0; i < 6000 && (seen < least || seen > most); i++) {
        usleep(5000);
        seen = metrics_number(port, name);
    }
    printf("port +%d: %s %g\n", port - first_port, name, seen);
    expect(seen >= least && seen <= most, name);
}

// The coordinator's port is the first; workers' and servers' follow.
static void expect_all_answer(void)
{
    expect(metrics_number(port_of(0), "workers_lost") == 0, "the coordinator answers at the port itself");
    for (int rank = 1; rank < TASKS; rank++)
        expect(metrics_number(port_of(rank), "draining") == 0, "each other task at the port plus its rank");
}

static void *add_one(void *arg)
{
    mu_pool *pool = mu_pool_open();
    mu_variable_assign_add(arg, mu_constant(MU_F32, 1));
    mu_pool_close(pool);
    return NULL;
}

// Server 1 has the copy of the store that server 0 leads.
static void stop_the_copy(mu_strategy *strategy, mu_variable *v)
{
    pthread_t adding;
    wait_for_copies(strategy);
    wait_for_number(port_of_server(0), "copies_behind", 0, 0);
    wait_for_number(port_of(0), "copies_behind", 0, 0);
    const long pid = stop_task("ps", 1);
    expect(pthread_create(&adding, NULL, add_one, v) == 0, "a thread");
    wait_for_number(port_of_server(0), "copies_behind_updates", 1, 10);
    wait_for_number(port_of_server(0), "copies_behind", 1, 1);
    wait_for_number(port_of_server(0), "answers_waiting_for_copies", 1, 10);
    wait_for_number(port_of(0), "copies_behind", 1, SERVERS);
    kill((pid_t)pid, SIGCONT);
    pthread_join(adding, NULL);
    wait_for_copies(strategy);
    wait_for_number(port_of(0), "copies_behind", 0, 0);
    for (int i = 0; i < SERVERS; i++) {
        wait_for_number(port_of_server(i), "copies_behind", 0, 0);
        wait_for_number(port_of_server(i), "copies_behind_updates", 0, 0);
        wait_for_number(port_of_server(i), "stores_without_copy", 0, 0);
    }
    expect(mu_scalar(mu_variable_read(v)) == 1, "the update is there once");
}

int main(int argc, char **argv)
{
    const char *port = getenv("MUSTER_METRICS_PORT");
    if (argc == 2)
        return start(argv[1], argv[0]);
    first_port = port ? atoi(port) : 0;
    mu_init(.cpu_devices = 1);
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v[2] = {NULL};
    make_two(strategy, v);
    if (c == NULL || v[1] == NULL)
        return mu_exit(false);
    expect_all_answer();
    stop_the_copy(strategy, v[0]);
    const long pid = signal_task("ps", 1, SIGKILL);
    for (int i = 0; i < 6000 && (process_of("ps", 1) == pid || process_of("ps", 1) == 0); i++)
        usleep(5000);
    wait_for_number(port_of_server(1), "draining", 0, 0);
    expect_all_answer();
    printf("%d not as expected\n", n_wrong);
    return mu_exit(n_wrong == 0) || n_wrong > 0;
}
