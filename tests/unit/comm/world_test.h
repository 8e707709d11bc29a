// What the tests of groups of several processes share: worlds of processes with some ranks each, in shared memory or
// over TCP, and numbers whose sums are exact in every type.
#ifndef MU_TESTS_WORLD_TEST_H
#define MU_TESTS_WORLD_TEST_H

#include "mesh_test.h"

#include "comm/comm.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_LOCAL = 8 };

// One world of processes and the function of its ranks; each rank is a thread of its process.
typedef struct world {
    int processes, n_local;
    bool tcp;
    bool encrypted;
    const char *path; // that the options lead to; NULL: by `tcp`
    const mu_communication_options *options;
    int (*run)(struct world *w, mu_collective *c);
    void *arg;
    mu_group *group;    // of this process
    atomic_int running; // of its ranks
} world;

typedef struct seat {
    world *w;
    mu_collective *c;
    int failed;
} seat;

static inline void *run_member(void *arg)
{
    seat *s = arg;
    s->failed = s->w->run(s->w, s->c);
    atomic_fetch_sub(&s->w->running, 1);
    const mu_error left = mu_error_take();
    if (left.code != MU_OK && s->failed == 0) {
        fprintf(stderr, "rank %d leaves an error: %s\n", s->c->rank, left.message);
        s->failed = 1;
    }
    return NULL;
}

static inline mu_mesh *join_mesh(int rank, bool encrypted)
{
    mu_mesh_options options = options_of(rank);
    if (!encrypted)
        options.key = NULL;
    return mu__mesh_join(&options);
}

static inline int run_members(world *w)
{
    pthread_t threads[MOST_LOCAL];
    seat seats[MOST_LOCAL];
    int failed = 0;
    atomic_store(&w->running, w->n_local);
    for (int i = 0; i < w->n_local; i++) {
        seats[i] = (seat){.w = w, .c = mu__group_member(w->group, i)};
        CHECK(pthread_create(&threads[i], NULL, run_member, &seats[i]) == 0);
    }
    while (mu__group_needs_service(w->group) && atomic_load(&w->running) > 0) {
        mu__group_serve(w->group);
        sched_yield();
    }
    for (int i = 0; i < w->n_local; i++) {
        pthread_join(threads[i], NULL);
        failed += seats[i].failed;
    }
    return failed;
}

static inline int run_process(int rank, void *arg)
{
    world w = *(world *)arg;
    if (w.tcp)
        setenv("MUSTER_SHARED_MEMORY", "0", 1);
    mu_mesh *mesh = join_mesh(rank, w.encrypted);
    CHECK(mesh != NULL);
    w.group = mu__group_join(mesh, w.n_local, "test", w.options);
    CHECK(w.group != NULL);
    const char *path = w.path != NULL ? w.path : w.processes == 1 ? "threads" : w.tcp ? "tcp" : "shared memory";
    CHECK(strcmp(mu__group_path(w.group), path) == 0);
    const int failed = run_members(&w);
    mu_release(w.group);
    mu_release(mesh);
    return failed;
}

static inline void run_world(world w) { run_ranks(w.processes, run_process, &w); }

// ---- The numbers --------------------------------------------------------------------------------

enum { PERIOD = 5 };

static inline double element(int rank, int64_t i) { return (double)((rank * 7 + i * 3) % PERIOD + 1); }

static inline double reduced(int ranks, mu_reduction reduction, mu_dtype dtype, int64_t i)
{
    double value = element(0, i);
    for (int r = 1; r < ranks; r++) {
        const double x = element(r, i);
        value = reduction == MU_REDUCTION_MIN   ? MU_MIN(value, x)
                : reduction == MU_REDUCTION_MAX ? MU_MAX(value, x)
                                                : value + x;
    }
    if (reduction != MU_REDUCTION_MEAN)
        return value;
    return mu__dtype_is_float(dtype) ? value / ranks : (double)((int64_t)value / ranks);
}

static inline void *filled(mu_collective *c, mu_dtype dtype, int64_t n)
{
    void *block = calloc((size_t)n + 1, mu_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++)
        mu__write_element(dtype, block, i, element(c->rank, i));
    return block;
}

// Returns the index of the first element that is not `wanted` as this type holds it, or -1 if all are right.
static inline int64_t first_wrong(mu_dtype dtype, const void *data, int64_t n,
                                  double (*wanted)(const void *arg, int64_t i), const void *arg)
{
    for (int64_t i = 0; i < n; i++) {
        double right[1] = {0};
        const double value = wanted(arg, i);
        mu__write_element(dtype, right, 0, dtype == MU_F64 ? value : (double)(float)value);
        if (memcmp(right, (const char *)data + (size_t)i * mu_dtype_bytes(dtype), mu_dtype_bytes(dtype)) != 0)
            return i;
    }
    return -1;
}

typedef struct question {
    const mu_collective *c;
    mu_dtype dtype;
    mu_reduction reduction;
    int64_t count, offset;
    const int64_t *counts;
    int root;
} question;

static inline double wanted_sum(const void *arg, int64_t i)
{
    const question *q = arg;
    return reduced(q->c->size, q->reduction, q->dtype, q->offset + i);
}

#endif
