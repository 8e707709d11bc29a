// All-reduces that run while their ranks do other things give the same bits as blocking ones, on one host and on
// several. A rank that differs, is late or fails between start and wait is an error on all ranks, and no rank touches
// memory whose owner has taken it back.
#include "world_test.h"

enum { MOST_UNDER_WAY = 20 };

typedef struct running_sum {
    float *data, *wanted;
    int64_t n, number;
} running_sum;

static mu_status start_sum(mu_collective *c, int number, const char *name, float *data, int64_t n, int64_t *started)
{
    return c->start(c, number, name, MU_REDUCTION_MEAN, MU_F32, data, n, number % 5 == 4, started);
}

// The result of a blocking all-reduce of the same numbers, which have fractions.
static int start_checked(mu_collective *c, running_sum *s, int number, int64_t n, unsigned *seed)
{
    *s = (running_sum){.data = malloc((size_t)n * 4 + 4), .wanted = malloc((size_t)n * 4 + 4), .n = n};
    for (int64_t i = 0; i < n; i++)
        s->data[i] = s->wanted[i] = (float)rand_r(seed) / 1e6f - 1000.0f;
    CHECK(c->all_reduce(c, 100 + number, "plain", MU_REDUCTION_MEAN, MU_F32, s->wanted, n) == MU_OK);
    CHECK(start_sum(c, number, "bucket", s->data, n, &s->number) == MU_OK);
    return 0;
}

static int end_checked(mu_collective *c, running_sum *s)
{
    CHECK(c->wait(c, s->number) == MU_OK);
    CHECK(memcmp(s->data, s->wanted, (size_t)s->n * 4) == 0);
    free(s->data);
    free(s->wanted);
    return 0;
}

// Some ranks are late now and then; waits come in either order, with blocking collectives between them.
static int many_under_way(world *w, mu_collective *c)
{
    static const int64_t sizes[] = {1, 5000, 0, 70001, 16, 130000, 33};
    const int rounds = w->processes > 1 && w->tcp ? 6 : 20;
    unsigned seed = (unsigned)c->rank + 1;
    for (int round = 0; round < rounds; round++) {
        running_sum sums[MOST_UNDER_WAY];
        const int n = round % 4 == 3 ? MOST_UNDER_WAY : 1 + round % 7;
        mu__collective_begin(c, round);
        for (int i = 0; i < n; i++)
            CHECK(start_checked(c, &sums[i], i, sizes[(round + i) % (int)MU_COUNT(sizes)], &seed) == 0);
        if (c->rank == round % c->size)
            sleep_seconds(.002);
        if (round % 3 == 0)
            CHECK(mu__collective_barrier(c, 99, "between") == MU_OK);
        for (int i = 0; i < n; i++)
            CHECK(end_checked(c, &sums[round % 2 == 0 ? i : n - 1 - i]) == 0);
    }
    return 0;
}

// Ranks as threads of one process, whose group can be reset after a failure and then repeats everything.
typedef struct threads {
    int ranks, rounds;
    double timeout;
    int (*run)(world *w, mu_collective *c);
} threads;

static int run_rounds(int rank, void *arg)
{
    const threads *t = arg;
    world w = {.processes = 1, .n_local = t->ranks, .run = t->run, .group = mu__group_new(t->ranks, "test")};
    int failed = 0;
    (void)rank;
    mu__group_set_timeout(w.group, t->timeout);
    for (int round = 0; round < t->rounds && failed == 0; round++) {
        failed = run_members(&w);
        CHECK(mu__group_reset(w.group) == MU_OK);
    }
    mu_release(w.group);
    return failed;
}

static void run_threads(int ranks, double timeout, int rounds, int (*run)(world *w, mu_collective *c))
{
    run_ranks(1, run_rounds, &(threads){.ranks = ranks, .rounds = rounds, .timeout = timeout, .run = run});
}

static void test_the_same_bits(void **state)
{
    static const mu_communication_options in_order = {.deterministic = true}, ring = {.implementation = MU_COMM_RING};
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks += ranks < 3 ? 1 : 5)
        run_threads(ranks, 100, 2, many_under_way);
    for (int tcp = 0; tcp < 2; tcp++) {
        run_world((world){.processes = 2, .n_local = 1, .tcp = tcp, .run = many_under_way});
        run_world((world){.processes = 2, .n_local = 2, .tcp = tcp, .run = many_under_way});
        run_world((world){.processes = 3, .n_local = 1, .tcp = tcp, .run = many_under_way, .options = &ring});
        run_world((world){.processes = 2, .n_local = 2, .tcp = tcp, .run = many_under_way, .options = &in_order});
    }
}

// In memory that the processes of a host share nothing is copied, and a rank does the work of ranks that are late.
static int in_place(world *w, mu_collective *c)
{
    enum { N = 200001 };
    const question q = {.c = c, .dtype = MU_F32};
    (void)w;
    for (int turn = 0; turn < 5; turn++) {
        mu_buffer *block = c->memory(c, N * sizeof(float));
        int64_t started;
        CHECK(block != NULL);
        for (int64_t i = 0; i < N; i++)
            mu__write_element(MU_F32, block->data, i, element(c->rank, i));
        CHECK(c->start(c, 1, "sum", MU_REDUCTION_SUM, MU_F32, block->data, N, false, &started) == MU_OK);
        CHECK(c->wait(c, started) == MU_OK);
        CHECK(first_wrong(MU_F32, block->data, N, wanted_sum, &q) == -1);
        mu_release(block);
    }
    return 0;
}

static void test_in_place(void **state)
{
    (void)state;
    run_world((world){.processes = 2, .n_local = 2, .run = in_place});
}

// ---- What goes wrong ----------------------------------------------------------------------------

static int differ(world *w, mu_collective *c)
{
    const bool odd = c->rank == c->size - 1;
    float x[5000] = {0};
    int64_t started;
    (void)w;
    mu__collective_begin(c, 5);
    for (int n = 4; n <= 5000; n += 4996) {
        CHECK(start_sum(c, 3, odd ? "y" : "x", x, n, &started) == MU_OK);
        CHECK(c->wait(c, started) == MU_INVALID_ARGUMENT);
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "is in all_reduce \"x\" (run 5, op 3");
        CHECK(start_sum(c, 3, "x", x, odd ? n - 1 : n, &started) == MU_OK);
        CHECK(c->wait(c, started) == MU_INVALID_ARGUMENT);
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "do not agree");
        CHECK(c->start(c, 4, "flags", MU_REDUCTION_SUM, MU_BOOL, x, 4, false, &started) == MU_OK);
        CHECK(c->wait(c, started) == MU_INVALID_ARGUMENT);
        CHECK_TAKEN(MU_INVALID_ARGUMENT, "bool cannot be reduced in all_reduce \"flags\"");
        CHECK(start_sum(c, 3, "x", x, n, &started) == MU_OK);
        CHECK(c->wait(c, started) == MU_OK);
    }
    return 0;
}

// One rank skips an all-reduce that the others have started and calls another collective. Some ranks may learn of it
// before they start.
static int go_past(world *w, mu_collective *c)
{
    float x[100] = {0};
    int64_t started;
    (void)w;
    mu__collective_begin(c, 2);
    CHECK(mu__collective_barrier(c, 1, "before") == MU_OK);
    mu_status status =
        c->rank == 1 ? c->broadcast(c, 8, "weights", MU_F32, x, 100, 0) : start_sum(c, 7, "x", x, 100, &started);
    if (status == MU_OK && c->rank != 1)
        status = c->wait(c, started);
    CHECK(status == MU_INVALID_ARGUMENT);
    CHECK_TAKEN(MU_INVALID_ARGUMENT, "in broadcast \"weights\" (run 2, op 8");
    return 0;
}

static int come_late(world *w, mu_collective *c)
{
    float x[2] = {1, 1};
    int64_t started;
    mu__collective_begin(c, 4);
    while (c->rank == 1 && !mu__group_failed(w->group, &(mu_error_value){0}))
        sleep_seconds(.01);
    mu_status status = start_sum(c, 12, "dense_2/kernel", x, 2, &started);
    status = status == MU_OK ? c->wait(c, started) : status;
    CHECK(status == MU_DEADLINE_EXCEEDED);
    CHECK(strstr(mu_error_message(), "did not come to all_reduce \"dense_2/kernel\" (run 4, op 12") != NULL);
    CHECK_TAKEN(MU_DEADLINE_EXCEEDED, "Rank 1");
    return 0;
}

static void test_differences_and_delays(void **state)
{
    static const mu_communication_options hurry = {.timeout_seconds = MU_TEST_SLOWNESS};
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        run_threads(ranks, 100, 2, differ);
        run_threads(ranks, 100, 2, go_past);
        run_threads(ranks, MU_TEST_SLOWNESS, 1, come_late);
    }
    for (int tcp = 0; tcp < 2; tcp++) {
        run_world((world){.processes = 2, .n_local = 1, .tcp = tcp, .run = differ});
        run_world((world){.processes = 2, .n_local = 2, .tcp = tcp, .run = differ});
        run_world((world){.processes = 2, .n_local = 1, .tcp = tcp, .run = go_past});
        run_world((world){.processes = 3, .n_local = 1, .tcp = tcp, .run = come_late, .options = &hurry});
    }
}

// Rank 1 fails between start and wait and takes its memory back while the others may be adding it up.
static int fail_between(world *w, mu_collective *c)
{
    unsigned seed = (unsigned)c->rank + 7;
    mu_status status = MU_OK;
    for (int turn = 0; status == MU_OK; turn++) {
        enum { BUCKETS = 3 };
        float *data[BUCKETS];
        int64_t started[BUCKETS], n = 40000;
        mu__collective_begin(c, turn);
        for (int i = 0; i < BUCKETS; i++) {
            data[i] = calloc((size_t)n, sizeof *data[i]);
            status = status == MU_OK ? start_sum(c, i, "bucket", data[i], n, &started[i]) : status;
        }
        if (c->rank == 1 && rand_r(&seed) % 8 == 0 && status == MU_OK) {
            if (rand_r(&seed) % 2 == 0)
                c->wait(c, started[0]);
            if (!mu__pending())
                mu_fail(MU_DATA_LOSS, "the disk is gone");
            status = mu_error_code();
        }
        for (int i = 0; i < BUCKETS && status == MU_OK; i++)
            status = c->wait(c, started[i]);
        if (status != MU_OK)
            c->abandon(c);
        for (int i = 0; i < BUCKETS; i++) {
            memset(data[i], 0x7f, (size_t)n * sizeof *data[i]);
            free(data[i]);
        }
    }
    (void)w;
    CHECK(status == MU_DATA_LOSS);
    CHECK_TAKEN(MU_DATA_LOSS, "the disk is gone");
    return 0;
}

static void test_failures_between(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        run_threads(ranks, 100, 20, fail_between);
    for (int tcp = 0; tcp < 2; tcp++)
        for (int n_local = 1; n_local <= 2; n_local++)
            run_world((world){.processes = 2, .n_local = n_local, .tcp = tcp, .run = fail_between});
}

// A finished sum stays valid even if one rank has continued and failed before the others have looked.
static int fail_afterwards(world *w, mu_collective *c)
{
    float x[3] = {1, 2, 3};
    int64_t started;
    CHECK(start_sum(c, 1, "x", x, 3, &started) == MU_OK);
    if (c->rank == 0) {
        CHECK(c->wait(c, started) == MU_OK);
        mu__group_abort(w->group, &(mu_error_value){.code = MU_CANCELLED, .message = "later", .file = __FILE__});
        return 0;
    }
    while (!mu__group_failed(w->group, &(mu_error_value){0}))
        sleep_seconds(.001);
    CHECK(c->wait(c, started) == MU_OK);
    CHECK(x[2] == 3);
    return 0;
}

static void test_done_stays_done(void **state)
{
    (void)state;
    run_threads(3, 100, 2, fail_afterwards);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_bits),          cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_differences_and_delays), cmocka_unit_test(test_failures_between),
        cmocka_unit_test(test_done_stays_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
