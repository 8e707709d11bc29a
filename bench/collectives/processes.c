// bench_processes: the cost of an all-reduce between processes of this machine, in shared memory or over TCP.
//
// Arguments: the number of processes; "shm", "private", "tcp" or "tls" (tcp, encrypted); optionally the number of
// ranks per process, and "deterministic". In place, f32, sum. With "shm" the data lies in the segment that all
// processes address, like the gradients of a step; with "private" the processes also use shared memory, but the data
// lies in each process's own memory, like a program's other tensors. Every size is checked, then timed in batches;
// prints one line "bytes microseconds" per size, the median of the batches. run.py compares these with other
// libraries.
#include "../rivals/pin_rank.h"
#include "comm/comm.h"
#include "comm/sessions/net.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16, BATCHES = 7, MEGABYTE = 1 << 20 };

static mu_mesh_peer peers[MOST];
static char names[MOST][32], addresses[MOST][32];

static bool add(mu_collective *c, float *data, int64_t n)
{
    return c->all_reduce(c, 1, "bench", MU_REDUCTION_SUM, MU_F32, data, n) == MU_OK;
}

static bool check(mu_collective *c, float *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)(c->rank + 1 + i % 13);
    bool right = add(c, data, n);
    for (int64_t i = 0; i < n && right; i++)
        right = data[i] == (float)(c->size * (c->size + 1) / 2) + (float)(c->size * (i % 13));
    memset(data, 0, (size_t)n * sizeof *data);
    return right;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Microseconds per all-reduce; negative on failure.
static double measure(mu_collective *c, float *data, int64_t n)
{
    double times[BATCHES];
    const double guess = 2e-6 + (double)n * 4 * c->size / 4e9;
    const int turns = (int)MU_MAX(1, MU_MIN(10e-3 / guess, 500));
    bool ok = check(c, data, n);
    for (int batch = 0; batch < BATCHES && ok; batch++) {
        ok = mu__collective_barrier(c, 2, "start") == MU_OK;
        const int64_t begin = mu__now_ns();
        for (int i = 0; i < turns && ok; i++)
            ok = add(c, data, n);
        times[batch] = (double)(mu__now_ns() - begin) / 1e3 / turns;
    }
    qsort(times, BATCHES, sizeof *times, by_value);
    return ok ? times[BATCHES / 2] : -1;
}

static int run(mu_collective *c, bool private)
{
    static const int64_t sizes[] = {4,      64,       1024,    4096,    16384,    65536,
                                    262144, MEGABYTE, 4194304, 8388608, 16777216, 64 * (int64_t)MEGABYTE};
    const size_t most = 64 * (size_t)MEGABYTE;
    mu_buffer *shared = c->memory != NULL && !private ? c->memory(c, most) : NULL;
    float *data = shared != NULL ? shared->data : mu__alloc_data(most);
    if (data == NULL)
        return 1;
    memset(data, 0, most);
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        const double time = measure(c, data, sizes[i] / 4);
        if (time < 0) {
            fprintf(stderr, "bench_processes: rank %d: %lld bytes failed: %s\n", c->rank, (long long)sizes[i],
                    mu_error_message());
            return 1;
        }
        if (c->rank == 0) {
            printf("%lld %.3f\n", (long long)sizes[i], time);
            fflush(stdout);
        }
    }
    if (shared != NULL)
        mu_release(shared);
    else
        mu__free_data(data, most);
    return 0;
}

typedef struct job {
    int n, ranks_each;
    const char *key;
    bool deterministic, private;
} job;

typedef struct seat {
    mu_collective *c;
    bool private;
} seat;

static void *run_rank(void *arg)
{
    seat *s = arg;
    pin_rank(s->c->rank);
    return run(s->c, s->private) == 0 ? NULL : s;
}

// The first rank of a process runs on the main thread, which was pinned before the process joined.
static int run_ranks(mu_group *group, const job *j)
{
    const int n = j->ranks_each;
    pthread_t threads[MOST];
    seat seats[MOST];
    for (int i = 0; i < n; i++)
        seats[i] = (seat){.c = mu__group_member(group, i), .private = j->private};
    for (int i = 1; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_rank, &seats[i]) != 0)
            abort();
    int failed = n > 1 ? run_rank(&seats[0]) != NULL : run(seats[0].c, j->private);
    for (int i = 1; i < n; i++) {
        void *bad = NULL;
        pthread_join(threads[i], &bad);
        failed += bad != NULL;
    }
    return failed;
}

static int run_process(int process, const job *j)
{
    if (j->ranks_each == 1)
        pin_rank(process);
    mu_mesh *mesh = mu__mesh_join(&(mu_mesh_options){.rank = process, .ranks = j->n, .peers = peers, .key = j->key});
    const mu_communication_options options = {.size = sizeof options, .deterministic = j->deterministic};
    mu_group *group = mesh != NULL ? mu__group_join(mesh, j->ranks_each, "bench", &options) : NULL;
    if (group == NULL)
        fprintf(stderr, "bench_processes: process %d cannot join: %s\n", process, mu_error_message());
    const int failed = group != NULL ? run_ranks(group, j) : 1;
    mu_release(group);
    mu_release(mesh);
    return failed;
}

int main(int argc, char **argv)
{
    const int n = argc >= 3 ? atoi(argv[1]) : 0, each = argc >= 4 ? atoi(argv[3]) : 1;
    const bool private = argc >= 3 && strcmp(argv[2], "private") == 0;
    const bool shared = private || (argc >= 3 && strcmp(argv[2], "shm") == 0);
    const bool tls = argc >= 3 && strcmp(argv[2], "tls") == 0;
    if (n < 2 || each < 1 || n * each > MOST || (!shared && !tls && strcmp(argv[2], "tcp") != 0)) {
        fprintf(stderr,
                "usage: bench_processes PROCESSES shm|private|tcp|tls [RANKS [deterministic]], at most %d ranks\n",
                MOST);
        return 64;
    }
    const job j = {.n = n,
                   .ranks_each = each,
                   .private = private,
                   .key = tls ? "the key of a bench that nobody else can join" : NULL,
                   .deterministic = argc == 5 && strcmp(argv[4], "deterministic") == 0};
    setenv("MUSTER_SHARED_MEMORY", shared ? "1" : "0", 1);
    mu_kept_port ports[MOST]; // until this process ends
    if (mu__ports_keep(ports, n, true) != MU_OK) {
        fprintf(stderr, "bench_processes: %s\n", mu_error_message());
        return 1;
    }
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "process %d", i);
        snprintf(addresses[i], sizeof addresses[i], "127.0.0.1:%d", ports[i].port);
        peers[i] = (mu_mesh_peer){.name = names[i], .address = addresses[i]};
    }
    pid_t children[MOST];
    for (int i = 1; i < n; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(run_process(i, &j));
    }
    int failed = run_process(0, &j);
    for (int i = 1; i < n; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        failed += status != 0;
    }
    return failed != 0;
}
