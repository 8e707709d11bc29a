// What the tests of meshes share: several processes by fork, free ports, a pair of ends in one process.
//
// A rank is a function that runs in a child and returns 0 if all went well; CHECK says where it did not. Children that
// hang are ended by an alarm. The parent keeps the ports and otherwise never touches the library, so that every child
// starts fresh.
#ifndef MU_TESTS_MESH_TEST_H
#define MU_TESTS_MESH_TEST_H

#include "../../idle_clock.h"
#include "comm/mesh/mesh.h"
#include "comm/sessions/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 8, CHILD_SECONDS = 250 };

// Random digits, so that no process spends time on stretching it.
#define TEST_KEY "7c1b0e5fa29d4368b1e07f4c5d82a6930f6e1d2c3b4a59687786958a4b3c2d1e"

#define CHECK(truth)                                                                                            \
    do {                                                                                                        \
        if (!(truth)) {                                                                                         \
            fprintf(stderr, "%s:%d: rank %d: %s is not so; error: %s\n", __FILE__, __LINE__, test_rank, #truth, \
                    mu_error_message());                                                                        \
            return 1;                                                                                           \
        }                                                                                                       \
    } while (0)

// The pending error must have this code and this part in its message; it is taken.
#define CHECK_TAKEN(wanted, part)                                                                                 \
    do {                                                                                                          \
        const mu_error taken_ = mu_error_take();                                                                  \
        if (taken_.code != (wanted) || strstr(taken_.message, part) == NULL) {                                    \
            fprintf(stderr, "%s:%d: rank %d: wanted %s with \"%s\", got %s: %s\n", __FILE__, __LINE__, test_rank, \
                    mu_status_name(wanted), part, mu_status_name(taken_.code), taken_.message);                   \
            return 1;                                                                                             \
        }                                                                                                         \
    } while (0)

typedef int rank_function(int rank, void *arg);

static int test_rank = -1;
static int test_ranks;
static char test_peer_names[MOST_RANKS][32], test_peer_addresses[MOST_RANKS][48];
static mu_mesh_peer test_peers[MOST_RANKS];

// Returns a free port, which stays reserved until this process ends: the ranks can listen on it, and no other program
// is given it.
static inline int free_port(void)
{
    mu_kept_port kept;
    assert_int_equal(mu__ports_keep(&kept, 1, true), MU_OK);
    return kept.port;
}

static inline void make_peers(int ranks)
{
    test_ranks = ranks;
    for (int i = 0; i < ranks; i++) {
        snprintf(test_peer_names[i], sizeof test_peer_names[i], "/job:worker/task:%d", i);
        snprintf(test_peer_addresses[i], sizeof test_peer_addresses[i], "127.0.0.1:%d", free_port());
        test_peers[i] = (mu_mesh_peer){.name = test_peer_names[i], .address = test_peer_addresses[i]};
    }
}

static inline mu_mesh_options options_of(int rank)
{
    return (mu_mesh_options){.rank = rank,
                             .ranks = test_ranks,
                             .peers = test_peers,
                             .key = TEST_KEY,
                             .join_seconds = 60,
                             .heartbeat_seconds = 10,
                             .greeting = "the same"};
}

// Whether at most `seconds` of an idle machine have passed since idle_now was `begin`.
static inline bool in_time(double begin, double seconds) { return idle_now() - begin < seconds * MU_TEST_SLOWNESS; }

static inline pid_t start_rank(int rank, rank_function *fn, void *arg)
{
    fflush(NULL);
    start_idle_clock();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    test_rank = rank;
    alarm(CHILD_SECONDS);
    int failed = fn(rank, arg);
    const long live = mu__live_objects(NULL);
    // The default runtime is kept.
    if (failed == 0 && live > 1) {
        fprintf(stderr, "rank %d leaves %ld objects\n", rank, live);
        mu__live_objects(stderr);
        failed = 1;
    }
    fflush(NULL);
    _exit(failed);
}

// Waits for a child; returns its exit code, or 1000 + the signal that ended it.
static inline int wait_rank(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline void start_ranks(pid_t children[MOST_RANKS], int ranks, rank_function *fn, void *arg)
{
    make_peers(ranks);
    for (int i = 0; i < ranks; i++)
        children[i] = start_rank(i, fn, arg);
}

static inline void wait_ranks(const pid_t *children, int ranks)
{
    int failed = 0;
    for (int i = 0; i < ranks; i++)
        failed += wait_rank(children[i]) != 0;
    assert_int_equal(failed, 0);
}

// Runs `ranks` processes; all must return 0.
static inline void run_ranks(int ranks, rank_function *fn, void *arg)
{
    pid_t children[MOST_RANKS];
    start_ranks(children, ranks, fn, arg);
    wait_ranks(children, ranks);
}

#endif
