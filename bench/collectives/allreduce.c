// bench_allreduce: the cost of an all-reduce between the replicas of one process, compared with copying memory.
//
// For 2 to 8 ranks and 4 B to 64 MB (in place, f32 sum): best and median time of rounds that alternate with plain
// copies by as many threads over the same amount of memory. Columns as in nccl-tests; fraction = (each buffer read
// once and written once) / time / copy bandwidth. Every result is checked before it is timed. The last line is JSON.
#include "comm/comm.h"

#include "kernels/kernels.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { MAX_RANKS = 8, ROUNDS = 21, MEGABYTE = 1 << 20 };

typedef struct bench {
    int ranks, rounds;
    size_t bytes;
    mu_group *group;
    char *data[MAX_RANKS];
    double all_reduce[ROUNDS], copy[ROUNDS];  // seconds per operation
    int64_t begin[MAX_RANKS], end[MAX_RANKS]; // of the current measurement
    atomic_bool failed;
} bench;

typedef struct seat {
    bench *b;
    int rank;
} seat;

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set); // where that is forbidden, the measurement runs unpinned
}

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void copy_bytes(char *to, const char *from, size_t bytes, bool stream)
{
    if (stream)
        mu__kernels()->reduce_n(&(float *){(void *)to}, 1, &(const float *){(const void *)from}, 1, 1, true, 0,
                                (int64_t)(bytes / sizeof(float)));
    else
        memcpy(to, from, bytes);
}

// Copies half of a rank's buffer onto the other half, and back: like the all-reduce, it reads and writes each byte of
// the same memory once.
static void copy_once(const bench *b, int rank, bool stream)
{
    const size_t half = b->bytes / 2;
    copy_bytes(b->data[rank] + half, b->data[rank], half, stream);
    copy_bytes(b->data[rank], b->data[rank] + half, half, stream);
}

static bool all_reduce_once(const bench *b, mu_collective *c)
{
    return c->all_reduce(c, 1, "bench", MU_REDUCTION_SUM, MU_F32, b->data[c->rank], (int64_t)(b->bytes / 4)) == MU_OK;
}

static int repetitions(const bench *b)
{
    const double guess = 1e-6 + (double)b->bytes * b->ranks / 20e9 + (b->ranks > 2 ? 1e-5 : 0);
    const int n = (int)(4e-3 / guess);
    return MU_MAX(3, MU_MIN(n, 5000));
}

typedef enum what { ALL_REDUCE, COPY, COPY_STREAMED } what;

// From the first rank's start to the last rank's end: with more ranks than cores they do not start together.
static double timed(bench *b, mu_collective *c, what w, int n)
{
    bool ok = mu__collective_barrier(c, 2, "start") == MU_OK;
    b->begin[c->rank] = mu__now_ns();
    for (int i = 0; i < n; i++)
        if (w == ALL_REDUCE)
            ok = all_reduce_once(b, c) && ok;
        else
            copy_once(b, c->rank, w == COPY_STREAMED);
    b->end[c->rank] = mu__now_ns();
    ok = mu__collective_barrier(c, 3, "end") == MU_OK && ok;
    int64_t begin = b->begin[0], end = b->end[0];
    for (int r = 1; r < c->size; r++) {
        begin = MU_MIN(begin, b->begin[r]);
        end = MU_MAX(end, b->end[r]);
    }
    if (!ok)
        atomic_store(&b->failed, true);
    return (double)(end - begin) / 1e9 / n;
}

static void check(bench *b, mu_collective *c)
{
    float *x = (float *)(void *)b->data[c->rank];
    const int64_t n = (int64_t)(b->bytes / 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(c->rank + 1 + i % 13);
    bool right = all_reduce_once(b, c);
    for (int64_t i = 0; i < n && right; i++)
        right = x[i] == (float)(c->size * (c->size + 1) / 2 + c->size * (i % 13));
    memset(x, 0, b->bytes);
    if (!right)
        atomic_store(&b->failed, true);
}

static void *run_rank(void *arg)
{
    const seat *s = arg;
    bench *b = s->b;
    mu_collective *c = mu__group_member(b->group, s->rank);
    const int n = repetitions(b);
    pin(s->rank % cores());
    memset(b->data[s->rank], 0, b->bytes);
    check(b, c);
    for (int round = 0; round < b->rounds; round++) {
        const double reduce = timed(b, c, ALL_REDUCE, n);
        const double plain = timed(b, c, COPY, n);
        const double streamed = timed(b, c, COPY_STREAMED, n);
        if (s->rank == 0) {
            b->all_reduce[round] = reduce;
            b->copy[round] = MU_MIN(plain, streamed);
        }
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool run_bench(bench *b)
{
    pthread_t threads[MAX_RANKS];
    seat seats[MAX_RANKS];
    b->group = mu__group_new(b->ranks, "bench");
    bool ok = b->group != NULL;
    for (int r = 0; r < b->ranks; r++)
        ok = (b->data[r] = mu__alloc_data(b->bytes + 64)) != NULL && ok;
    if (!ok)
        return false;
    for (int r = 0; r < b->ranks; r++) {
        seats[r] = (seat){.b = b, .rank = r};
        if (pthread_create(&threads[r], NULL, run_rank, &seats[r]) != 0)
            abort();
    }
    for (int r = 0; r < b->ranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < b->ranks; r++)
        mu__free_data(b->data[r], b->bytes + 64);
    mu_release(b->group);
    qsort(b->all_reduce, (size_t)b->rounds, sizeof *b->all_reduce, by_value);
    qsort(b->copy, (size_t)b->rounds, sizeof *b->copy, by_value);
    return !atomic_load(&b->failed);
}

// The values that the JSON line summarises.
typedef struct summary {
    double worst_fraction_2, sum_fraction_2, us_4b_2, us_4b_8, us_900k_2;
    int n_fractions;
} summary;

static void report(const bench *b, summary *s)
{
    const double best = b->all_reduce[0], median = b->all_reduce[b->rounds / 2];
    const double algorithm = (double)b->bytes / best / 1e9;
    const double copy = b->bytes < 8 ? 0 : 2.0 * (double)b->bytes * b->ranks / b->copy[0] / 1e9;
    const double moved = 2.0 * (double)b->bytes * b->ranks / best / 1e9;
    const double fraction = copy > 0 ? moved / copy : 0;
    printf("%12zu %12zu %6d %10.2f %10.2f %9.2f %9.2f %9.2f %9.2f\n", b->bytes, b->bytes / 4, b->ranks, best * 1e6,
           median * 1e6, algorithm, algorithm * 2 * (b->ranks - 1) / b->ranks, copy, fraction);
    if (b->bytes == 4 && b->ranks == 2)
        s->us_4b_2 = best * 1e6;
    if (b->bytes == 4 && b->ranks == 8)
        s->us_4b_8 = best * 1e6;
    if (b->bytes == 900 * 1024 && b->ranks == 2)
        s->us_900k_2 = best * 1e6;
    if (b->bytes >= MEGABYTE && b->ranks == 2) {
        s->worst_fraction_2 = MU_MIN(fraction, s->worst_fraction_2);
        s->n_fractions++;
        s->sum_fraction_2 += fraction;
    }
}

static const size_t sizes[] = {4,
                               64,
                               1024,
                               4096,
                               16 * 1024 - 4,
                               16 * 1024,
                               64 * 1024,
                               256 * 1024,
                               900 * 1024,
                               MEGABYTE,
                               2 * MEGABYTE,
                               4 * MEGABYTE,
                               8 * MEGABYTE,
                               16 * MEGABYTE,
                               32 * MEGABYTE,
                               64 * (size_t)MEGABYTE};

static bool run_ranks(int ranks, summary *s)
{
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        bench b = {.ranks = ranks, .bytes = sizes[i], .rounds = sizes[i] > 4 * MEGABYTE ? ROUNDS / 2 : ROUNDS};
        if (!run_bench(&b)) {
            fprintf(stderr, "bench_allreduce: %zu bytes on %d ranks failed: %s\n", b.bytes, b.ranks,
                    mu_error_message());
            return false;
        }
        report(&b, s);
    }
    return true;
}

// Arguments: the numbers of ranks to measure; default 2, 3, 4 and 8.
int main(int argc, char **argv)
{
    static const int all[] = {2, 3, 4, 8};
    summary s = {.worst_fraction_2 = INFINITY};
    printf("# in place, f32, sum, %d cores, kernels %s; time: best and median of up to %d rounds\n", cores(),
           mu__kernels()->isa, ROUNDS);
    printf("#%11s %12s %6s %10s %10s %9s %9s %9s %9s\n", "size(B)", "count", "ranks", "time(us)", "median", "algbw",
           "busbw", "copy", "fraction");
    for (int i = 0; i < (argc > 1 ? argc - 1 : (int)MU_COUNT(all)); i++) {
        const int ranks = argc > 1 ? atoi(argv[i + 1]) : all[i];
        if (ranks < 2 || ranks > MAX_RANKS) {
            fprintf(stderr, "bench_allreduce: \"%s\" is not a number of ranks; 2 to %d are possible\n", argv[i + 1],
                    MAX_RANKS);
            return 64;
        }
        if (!run_ranks(ranks, &s))
            return 1;
    }
    printf("{\"bench\":\"allreduce\",\"threads_fraction_1mb_up\":%.3f,\"threads_fraction_mean\":%.3f,\"threads_us_4b_"
           "2\":%.2f,"
           "\"threads_us_4b_8\":%.2f,\"threads_us_900k_2\":%.1f,\"cores\":%d}\n",
           s.n_fractions > 0 ? s.worst_fraction_2 : 0, s.n_fractions > 0 ? s.sum_fraction_2 / s.n_fractions : 0,
           s.us_4b_2, s.us_4b_8, s.us_900k_2, cores());
    return 0;
}
