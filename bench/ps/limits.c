// What this machine moves at most between two processes, and what two threads gather: the limits for bench_ps.
//
//   bench_ps_limits ROWS BYTES...
//
// A transfer is one request and its answer, as a pull is: a word there, the bytes back. Once through a TCP socket of
// the loopback, once through memory that both processes share (a ring, into which one copies while the other copies
// out). The gather is of two threads, each with its ids: rows of a table into a buffer, and the buffer into another.
// Prints one line of JSON for each number.
#include "ids.h"

#include <arpa/inet.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 0.4
enum { PIECE = 1 << 16, PIECES = 8, SPINS = 2000, MOST_CALLS = 1000000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

// Memory whose pages exist, in huge pages where the system has them, as Muster's own.
static void *memory(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        fail("mmap");
    madvise(block, bytes, MADV_HUGEPAGE);
    memset(block, 1, bytes);
    return block;
}

// ---- A socket -----------------------------------------------------------------------------------

static void whole(int fd, char *data, size_t bytes, bool out)
{
    while (bytes > 0) {
        const ssize_t n = out ? send(fd, data, bytes, MSG_NOSIGNAL) : recv(fd, data, bytes, 0);
        if (n <= 0)
            fail("socket");
        data += n;
        bytes -= (size_t)n;
    }
}

static int connected(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        return -1;
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&address, length) != 0)
        return -1;
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++)
        setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return ends[1];
}

static double time_socket(size_t bytes)
{
    int ends[2];
    uint64_t word = 1;
    char *data = memory(bytes);
    if (connected(ends) < 0)
        fail("socket");
    const pid_t server = fork();
    while (server == 0) {
        whole(ends[1], (char *)&word, sizeof word, false);
        if (word == 0)
            _exit(0);
        whole(ends[1], data, bytes, true);
    }
    long n = 0;
    double begin = 0, took = 0;
    for (; n < 3 || (took < SECONDS && n < MOST_CALLS); n++) {
        begin = n == 1 ? now() : begin; // the first is not counted
        whole(ends[0], (char *)&word, sizeof word, true);
        whole(ends[0], data, bytes, false);
        took = n > 0 ? now() - begin : 0;
    }
    word = 0;
    whole(ends[0], (char *)&word, sizeof word, true);
    waitpid(server, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    munmap(data, bytes);
    return took / (double)(n - 1);
}

// ---- Shared memory ------------------------------------------------------------------------------

typedef struct counter {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleeps; // somebody may sleep until it changes
} counter;

typedef struct ring {
    counter asked, written, read;
    _Alignas(64) char pieces[PIECES][PIECE];
} ring;

// Turns for some microseconds, then sleeps: a server that waits for its clients cannot keep a core busy.
static void wait_above(counter *number, uint32_t value)
{
    uint32_t seen = 0;
    for (int i = 0; (seen = atomic_load(&number->value)) <= value; i++)
        if (i >= SPINS) {
            atomic_store(&number->sleeps, 1);
            syscall(SYS_futex, &number->value, FUTEX_WAIT, seen, NULL, NULL, 0);
        }
}

static void set(counter *number, uint32_t value)
{
    atomic_store(&number->value, value);
    if (atomic_exchange(&number->sleeps, 0) != 0)
        syscall(SYS_futex, &number->value, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void write_pieces(ring *shared, const char *data, size_t bytes, uint32_t *at)
{
    for (size_t done = 0; done < bytes; done += PIECE, ++*at) {
        if (*at >= PIECES)
            wait_above(&shared->read, *at - PIECES);
        memcpy(shared->pieces[*at % PIECES], data + done, bytes - done < PIECE ? bytes - done : PIECE);
        set(&shared->written, *at + 1);
    }
}

static void read_pieces(ring *shared, char *data, size_t bytes, uint32_t *at)
{
    for (size_t done = 0; done < bytes; done += PIECE, ++*at) {
        wait_above(&shared->written, *at);
        memcpy(data + done, shared->pieces[*at % PIECES], bytes - done < PIECE ? bytes - done : PIECE);
        set(&shared->read, *at + 1);
    }
}

static void answer(ring *shared, const char *data, size_t bytes)
{
    uint32_t at = 0;
    for (uint32_t call = 0;; call++) {
        wait_above(&shared->asked, call);
        if (atomic_load(&shared->asked.value) > MOST_CALLS + 10)
            _exit(0);
        write_pieces(shared, data, bytes, &at);
    }
}

static double time_shared(size_t bytes)
{
    ring *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *data = memory(bytes);
    uint32_t at = 0;
    if (shared == MAP_FAILED)
        fail("mmap");
    const pid_t server = fork();
    if (server == 0)
        answer(shared, data, bytes);
    uint32_t n = 0;
    double begin = 0, took = 0;
    for (; n < 3 || (took < SECONDS && n < MOST_CALLS); n++) {
        begin = n == 1 ? now() : begin;
        set(&shared->asked, n + 1);
        read_pieces(shared, data, bytes, &at);
        took = n > 0 ? now() - begin : 0;
    }
    set(&shared->asked, MOST_CALLS + 20);
    waitpid(server, NULL, 0);
    munmap(data, bytes);
    munmap(shared, sizeof *shared);
    return took / (double)(n - 1);
}

// ---- Two threads --------------------------------------------------------------------------------

typedef struct gatherer {
    pthread_t thread;
    const float *table;
    int64_t *ids;
    float *rows, *copy;
    long n;
    double until;
} gatherer;

static void *gather(void *arg)
{
    gatherer *g = arg;
    do {
        for (int64_t i = 0; i < N_IDS; i++)
            memcpy(g->rows + i * DIMENSION, g->table + g->ids[i] * DIMENSION, DIMENSION * sizeof(float));
        memcpy(g->copy, g->rows, N_IDS * DIMENSION * sizeof(float));
        g->n++;
    } while (now() < g->until);
    return NULL;
}

static double rows_per_s(const float *table, int64_t rows, int zipf)
{
    gatherer threads[2];
    const double begin = now();
    for (int i = 0; i < 2; i++) {
        threads[i] = (gatherer){.table = table,
                                .until = begin + 2 * SECONDS,
                                .ids = memory(N_IDS * sizeof(int64_t)),
                                .rows = memory(N_IDS * DIMENSION * sizeof(float)),
                                .copy = memory(N_IDS * DIMENSION * sizeof(float))};
        ids_fill(threads[i].ids, N_IDS, rows, zipf);
        if (pthread_create(&threads[i].thread, NULL, gather, &threads[i]) != 0)
            fail("thread");
    }
    long n = 0;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i].thread, NULL);
        n += threads[i].n;
        munmap(threads[i].ids, N_IDS * sizeof(int64_t));
        munmap(threads[i].rows, N_IDS * DIMENSION * sizeof(float));
        munmap(threads[i].copy, N_IDS * DIMENSION * sizeof(float));
    }
    return (double)n * N_IDS / (now() - begin);
}

int main(int argc, char **argv)
{
    const int64_t rows = argc > 1 ? atoll(argv[1]) : 0;
    if (rows < 1) {
        fprintf(stderr, "usage: bench_ps_limits ROWS BYTES...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        const size_t bytes = strtoull(argv[i], NULL, 10);
        printf("{\"what\":\"socket\",\"bytes\":%zu,\"value\":%.6g}\n", bytes, (double)bytes / time_socket(bytes) / 1e9);
        printf("{\"what\":\"shared\",\"bytes\":%zu,\"value\":%.6g}\n", bytes, (double)bytes / time_shared(bytes) / 1e9);
        fflush(stdout);
    }
    const float *table = memory((size_t)rows * DIMENSION * sizeof(float));
    for (int zipf = 0; zipf < 2; zipf++)
        printf("{\"what\":\"gather\",\"ids\":\"%s\",\"value\":%.6g}\n", zipf ? "zipf" : "uniform",
               rows_per_s(table, rows, zipf));
    return 0;
}
