// Groups of several processes, in shared memory and over TCP: every operation gives the right numbers and the same
// bits on all ranks; what one does differently, does not do, or dies of is an error on all that says so.
#include "mesh_test.h"

#include "comm/comm.h"

#include <pthread.h>
#include <sys/resource.h>

enum { MOST_LOCAL = 3 };

// One world of processes and what its ranks do; each rank is a thread of its process.
typedef struct world {
    int processes, n_local;
    bool tcp;
    const mu_communication_options *options;
    int (*run)(struct world *w, mu_collective *c);
    void *arg;
    mu_group *group; // of this process
} world;

typedef struct seat {
    world *w;
    mu_collective *c;
    int failed;
} seat;

static void *run_seat(void *arg)
{
    seat *s = arg;
    s->failed = s->w->run(s->w, s->c);
    const mu_error left = mu_error_take();
    if (left.code != MU_OK && s->failed == 0) {
        fprintf(stderr, "rank %d leaves an error: %s\n", s->c->rank, left.message);
        s->failed = 1;
    }
    return NULL;
}

static mu_mesh *join_mesh(int rank)
{
    mu_mesh_options options = options_of(rank);
    options.key = NULL;
    return mu__mesh_join(&options);
}

static int run_members(world *w)
{
    pthread_t threads[MOST_LOCAL];
    seat seats[MOST_LOCAL];
    int failed = 0;
    for (int i = 0; i < w->n_local; i++) {
        seats[i] = (seat){.w = w, .c = mu__group_member(w->group, i)};
        CHECK(pthread_create(&threads[i], NULL, run_seat, &seats[i]) == 0);
    }
    for (int i = 0; i < w->n_local; i++) {
        pthread_join(threads[i], NULL);
        failed += seats[i].failed;
    }
    return failed;
}

static int run_process(int rank, void *arg)
{
    world w = *(world *)arg;
    if (w.tcp)
        setenv("MUSTER_SHARED_MEMORY", "0", 1);
    mu_mesh *mesh = join_mesh(rank);
    CHECK(mesh != NULL);
    w.group = mu__group_join(mesh, w.n_local, "test", w.options);
    CHECK(w.group != NULL);
    CHECK(strcmp(mu__group_path(w.group), w.processes == 1 ? "threads" : w.tcp ? "tcp" : "shared memory") == 0);
    const int failed = run_members(&w);
    mu_release(w.group);
    mu_release(mesh);
    return failed;
}

static void run_world(world w) { run_ranks(w.processes, run_process, &w); }

// ---- The numbers --------------------------------------------------------------------------------

enum { PERIOD = 5 };

static double element(int rank, int64_t i) { return (double)((rank * 7 + i * 3) % PERIOD + 1); }

static double reduced(int ranks, mu_reduction reduction, mu_dtype dtype, int64_t i)
{
    double value = element(0, i);
    for (int r = 1; r < ranks; r++) {
        const double x = element(r, i);
        value = reduction == MU_REDUCTION_MIN ? MU_MIN(value, x) : reduction == MU_REDUCTION_MAX ? MU_MAX(value, x)
                                                                                                   : value + x;
    }
    if (reduction != MU_REDUCTION_MEAN)
        return value;
    return mu__dtype_is_float(dtype) ? value / ranks : (double)((int64_t)value / ranks);
}

static void *filled(mu_collective *c, mu_dtype dtype, int64_t n)
{
    void *block = calloc((size_t)n + 1, mu_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++)
        mu__write_element(dtype, block, i, element(c->rank, i));
    return block;
}

// The first element that is not `wanted`, as this type holds it; -1: all are right.
static int64_t first_wrong(mu_dtype dtype, const void *data, int64_t n, double (*wanted)(const void *arg, int64_t i),
                           const void *arg)
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

static double wanted_sum(const void *arg, int64_t i)
{
    const question *q = arg;
    return reduced(q->c->size, q->reduction, q->dtype, q->offset + i);
}

static double wanted_root(const void *arg, int64_t i) { return element(((const question *)arg)->root, i); }

static double wanted_gather(const void *arg, int64_t i)
{
    const question *q = arg;
    int from = 0;
    for (; i >= q->counts[from]; from++)
        i -= q->counts[from];
    return element(from, i);
}

static double wanted_exchange(const void *arg, int64_t i)
{
    const question *q = arg;
    return element((int)(i / q->count), q->c->rank * q->count + i % q->count);
}

static int check_all_reduce(mu_collective *c, mu_dtype dtype, mu_reduction reduction, int64_t n)
{
    const question q = {.c = c, .dtype = dtype, .reduction = reduction};
    void *data = filled(c, dtype, n);
    CHECK(c->all_reduce(c, 1, "sum", reduction, dtype, data, n) == MU_OK);
    CHECK(first_wrong(dtype, data, n, wanted_sum, &q) == -1);
    free(data);
    return 0;
}

static int check_broadcast(mu_collective *c, int64_t n)
{
    const question q = {.root = c->size / 2};
    void *data = filled(c, MU_F32, n);
    CHECK(c->broadcast(c, 2, "start", MU_F32, data, n, q.root) == MU_OK);
    CHECK(first_wrong(MU_F32, data, n, wanted_root, &q) == -1);
    free(data);
    return 0;
}

// Uneven: every third rank has nothing.
static int check_all_gather(mu_collective *c, int64_t n)
{
    int64_t counts[MOST_RANKS * MOST_LOCAL], total = 0;
    for (int r = 0; r < c->size; r++)
        total += counts[r] = r % 3 == 1 ? 0 : n + r;
    const question q = {.counts = counts};
    void *in = filled(c, MU_I32, counts[c->rank]), *out = calloc((size_t)total + 1, 4);
    CHECK(c->all_gather(c, 3, "rows", MU_I32, in, counts[c->rank], out, counts) == MU_OK);
    CHECK(first_wrong(MU_I32, out, total, wanted_gather, &q) == -1);
    free(in);
    free(out);
    return 0;
}

static int check_blocks(mu_collective *c, int64_t n)
{
    const question q = {.c = c, .dtype = MU_F64, .count = n, .offset = c->rank * n};
    void *in = filled(c, MU_F64, n * c->size), *out = calloc((size_t)(n * c->size) + 1, 8);
    CHECK(mu__collective_all_to_all(c, 4, "exchange", MU_F64, in, out, n) == MU_OK);
    CHECK(first_wrong(MU_F64, out, n * c->size, wanted_exchange, &q) == -1);
    CHECK(mu__collective_reduce_scatter(c, 5, "scatter", MU_REDUCTION_SUM, MU_F64, in, out, n) == MU_OK);
    CHECK(first_wrong(MU_F64, out, n, wanted_sum, &q) == -1);
    free(in);
    free(out);
    return 0;
}

static int every_operation(world *w, mu_collective *c)
{
    static const int64_t sizes[] = {0, 1, 5, 1000, 4097, 70001, 400000};
    (void)w;
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        mu__collective_begin(c, (int64_t)i);
        CHECK(check_all_reduce(c, MU_F32, MU_REDUCTION_SUM, sizes[i]) == 0);
        CHECK(check_broadcast(c, sizes[i]) == 0);
        CHECK(check_all_gather(c, sizes[i]) == 0);
        CHECK(check_blocks(c, sizes[i] / 4) == 0);
        CHECK(mu__collective_barrier(c, 6, "end") == MU_OK);
    }
    return 0;
}

static void test_every_operation(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int processes = 1; processes <= 4; processes++)
            for (int n_local = 1; n_local <= MOST_LOCAL; n_local++)
                run_world((world){.processes = processes, .n_local = n_local, .tcp = tcp, .run = every_operation});
    run_world((world){.processes = 5, .n_local = 2, .tcp = true, .run = every_operation});
}

static int every_type(world *w, mu_collective *c)
{
    static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};
    (void)w;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (int reduction = MU_REDUCTION_SUM; reduction <= MU_REDUCTION_MAX; reduction++) {
            CHECK(check_all_reduce(c, dtypes[d], (mu_reduction)reduction, 33) == 0);
            CHECK(check_all_reduce(c, dtypes[d], (mu_reduction)reduction, 20011) == 0);
        }
    return 0;
}

static void test_every_type(void **state)
{
    static const mu_communication_options in_order = {.deterministic = true};
    static const mu_communication_options ring = {.implementation = MU_COMM_RING};
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        run_world((world){.processes = 2, .n_local = 2, .tcp = tcp, .run = every_type});
        run_world((world){.processes = 3, .n_local = 1, .tcp = tcp, .run = every_type});
        run_world((world){.processes = 2, .n_local = 3, .tcp = tcp, .run = every_type, .options = &in_order});
        run_world((world){.processes = 3, .n_local = 2, .tcp = tcp, .run = every_type, .options = &ring});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation),
        cmocka_unit_test(test_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
