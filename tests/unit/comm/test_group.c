// Groups of threads: all ranks agree, or all report why they do not; deadlines, aborts, resets. No rank hangs, and none
// touches memory whose owner has taken it back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_RANKS = 8 };

// What one rank does; filled by a test, run on a thread of its own.
typedef struct rank_job {
    mu_collective *c;
    mu_group *group;
    int rank, ranks;
    void (*run)(struct rank_job *job);
    mu_status status;
    mu_error_value error;
    double seconds;
    void *arg;
} rank_job;

static void nap(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static void *run_job(void *arg)
{
    rank_job *job = arg;
    const int64_t begin = mu__now_ns();
    job->run(job);
    job->seconds = (double)(mu__now_ns() - begin) / 1e9;
    mu__error_move(&job->error);
    return NULL;
}

// Runs `run` on every rank of the group and waits for all.
static void on_all(mu_group *group, int ranks, rank_job *jobs, void (*run)(rank_job *job), void *arg)
{
    pthread_t threads[MAX_RANKS];
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (rank_job){
            .c = mu__group_member(group, r), .group = group, .rank = r, .ranks = ranks, .run = run, .arg = arg};
        assert_int_equal(pthread_create(&threads[r], NULL, run_job, &jobs[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
}

static void expect(const rank_job *job, mu_status code, const char *words)
{
    assert_int_equal(job->status, code);
    assert_int_equal(job->error.code, code);
    if (words != NULL && strstr(job->error.message, words) == NULL)
        fail_msg("rank %d: \"%s\" does not say \"%s\"", job->rank, job->error.message, words);
}

static void sum_one(rank_job *job)
{
    float x = (float)(job->rank + 1);
    mu__collective_begin(job->c, 1);
    job->status = job->c->all_reduce(job->c, 1, "one", MU_REDUCTION_SUM, MU_F32, &x, 1);
    if (job->status == MU_OK && x != (float)(job->ranks * (job->ranks + 1) / 2))
        job->status = MU_DATA_LOSS;
}

static void expect_working(mu_group *group, int ranks)
{
    rank_job jobs[MAX_RANKS];
    on_all(group, ranks, jobs, sum_one, NULL);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(jobs[r].status, MU_OK);
}

// ---- Agreement ----------------------------------------------------------------------------------

static void differ(rank_job *job)
{
    const char *how = job->arg;
    const bool odd = job->rank == 1;
    float data[8] = {0};
    mu__collective_begin(job->c, odd && strcmp(how, "run") == 0 ? 7 : 5);
    if (odd && strcmp(how, "operation") == 0)
        job->status = job->c->broadcast(job->c, 3, "x", MU_F32, data, 4, 0);
    else
        job->status = job->c->all_reduce(
            job->c, odd && strcmp(how, "number") == 0 ? 9 : 3, odd && strcmp(how, "name") == 0 ? "y" : "x",
            odd && strcmp(how, "reduction") == 0 ? MU_REDUCTION_MAX : MU_REDUCTION_SUM,
            odd && strcmp(how, "type") == 0 ? MU_I32 : MU_F32, data, odd && strcmp(how, "count") == 0 ? 5 : 4);
}

static void test_mismatch(void **state)
{
    static char *const how[] = {"run", "operation", "number", "name", "reduction", "type", "count"};
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(3, "mirrored");
    (void)state;
    for (size_t i = 0; i < MU_COUNT(how); i++) {
        on_all(group, 3, jobs, differ, how[i]);
        for (int r = 0; r < 3; r++) {
            const bool same_program = strstr("operation reduction type", how[i]) != NULL;
            expect(&jobs[r], same_program ? MU_INTERNAL : MU_INVALID_ARGUMENT,
                   "rank 0 is in all_reduce \"x\" (run 5, op 3");
            assert_non_null(strstr(jobs[r].error.message, "rank 1 in"));
            assert_string_equal(jobs[r].error.message, jobs[0].error.message);
        }
        expect_working(group, 3);
    }
    mu_release(group);
}

static void gather_wrong(rank_job *job)
{
    int32_t in[3] = {1, 2, 3}, out[16];
    const int64_t same[2] = {3, 2}, other[2] = {3, job->rank == 1 ? 3 : 2};
    job->status = job->c->all_gather(job->c, 1, "g", MU_I32, in, 3, out, job->arg != NULL ? same : other);
}

static void test_gather_counts(void **state)
{
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(2, "gather");
    (void)state;
    on_all(group, 2, jobs, gather_wrong, NULL);
    expect(&jobs[0], MU_INVALID_ARGUMENT, "do not agree");
    expect(&jobs[1], MU_INVALID_ARGUMENT, "do not agree");
    on_all(group, 2, jobs, gather_wrong, jobs);
    expect(&jobs[0], MU_INVALID_ARGUMENT, "rank 1 has 3 elements, but 2 are expected");
    expect(&jobs[1], MU_INVALID_ARGUMENT, "rank 1 has 3 elements, but 2 are expected");
    expect_working(group, 2);
    mu_release(group);
}

static void reduce_bool(rank_job *job)
{
    bool x = true;
    job->status = job->c->all_reduce(job->c, 1, "flag", MU_REDUCTION_SUM, MU_BOOL, &x, 1);
}

static void broadcast_from_nobody(rank_job *job)
{
    float x = 1;
    job->status = job->c->broadcast(job->c, 1, "b", MU_F32, &x, 1, 2);
}

static void test_invalid(void **state)
{
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(2, "invalid");
    (void)state;
    on_all(group, 2, jobs, reduce_bool, NULL);
    expect(&jobs[0], MU_INVALID_ARGUMENT, "bool cannot be reduced");
    expect(&jobs[1], MU_INVALID_ARGUMENT, "bool cannot be reduced");
    on_all(group, 2, jobs, broadcast_from_nobody, NULL);
    expect(&jobs[1], MU_INVALID_ARGUMENT, "a rank from 0 to 1");
    expect_working(group, 2);
    mu_release(group);
    assert_null(mu__group_new(0, "none"));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
}

// ---- Groups of one, groups beside each other, names that are too long ---------------------------

static void test_group_of_one(void **state)
{
    float x = 3, y = 0;
    const mu_status none = MU_OK;
    mu_group *group = mu__group_new(1, "alone");
    mu_collective *c = mu__group_member(group, 0);
    char name[300];
    (void)state;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(c->all_reduce(c, 1, name, MU_REDUCTION_MEAN, MU_F32, &x, 1), none);
    assert_int_equal(c->all_gather(c, 2, name, MU_F32, &x, 1, &y, NULL), none);
    assert_int_equal(c->broadcast(c, 3, name, MU_F32, &x, 1, 0), none);
    assert_int_equal(mu__collective_barrier(c, 4, name), none);
    assert_true(x == 3 && y == 3);
    mu_release(group);
}

// ---- Deadline -----------------------------------------------------------------------------------

static void all_but_one(rank_job *job)
{
    if (job->rank == 1)
        return;
    mu__collective_begin(job->c, 4);
    float x[2] = {1, 1};
    job->status = job->c->all_reduce(job->c, 12, "dense_2/kernel", MU_REDUCTION_SUM, MU_F32, x, 2);
}

static void test_deadline(void **state)
{
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(3, "late");
    (void)state;
    mu__group_set_timeout(group, 1);
    on_all(group, 3, jobs, all_but_one, NULL);
    for (int r = 0; r < 3; r += 2) {
        expect(&jobs[r], MU_DEADLINE_EXCEEDED,
               "Rank 1 did not come to all_reduce \"dense_2/kernel\" (run 4, op 12, 2 elements of float32");
        assert_true(jobs[r].seconds < 20);
    }
    assert_true(MU_MAX(jobs[0].seconds, jobs[2].seconds) >= 1); // the one that came first
    rank_job late = {.c = mu__group_member(group, 1), .group = group, .rank = 1, .ranks = 3, .run = sum_one};
    run_job(&late);
    expect(&late, MU_DEADLINE_EXCEEDED, "Rank 1 did not come");
    assert_true(late.seconds < 1); // it waits no more
    assert_int_equal(mu__group_reset(group), MU_OK);
    expect_working(group, 3);
    mu_release(group);
}

static void ring_without_one(rank_job *job)
{
    static float x[3][64];
    while (job->rank == 1 && !mu__group_failed(job->group, &(mu_error_value){0}))
        nap(10000000);
    job->status = job->c->all_reduce(job->c, 12, "ring", MU_REDUCTION_SUM, MU_F32, x[job->rank], 64);
}

static void test_deadline_of_messages(void **state)
{
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(3, "ring");
    (void)state;
    assert_int_equal(mu__group_set_policy(group, "allreduce:ring"), MU_OK);
    mu__group_set_timeout(group, 1);
    on_all(group, 3, jobs, ring_without_one, NULL);
    for (int r = 0; r < 3; r++)
        expect(&jobs[r], MU_DEADLINE_EXCEEDED, "Rank 1 did not come");
    mu_release(group);
}

// ---- Abort and reset ----------------------------------------------------------------------------

static void abort_if_first(rank_job *job)
{
    if (job->rank != 0) {
        sum_one(job);
        return;
    }
    nap(*(const int64_t *)job->arg);
    const mu_error_value down = {.code = MU_UNAVAILABLE, .message = "peer down", .file = __FILE__, .line = __LINE__};
    const mu_error_value later = {.code = MU_ABORTED, .message = "too late", .file = __FILE__, .line = __LINE__};
    mu__group_abort(job->group, &down);
    mu__group_abort(job->group, &later);
    sum_one(job);
}

static void test_abort(void **state)
{
    static int64_t delays[] = {0, 1000, 100000, 50000000};
    rank_job jobs[MAX_RANKS];
    (void)state;
    for (size_t i = 0; i < MU_COUNT(delays); i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            mu_group *group = mu__group_new(ranks, "abort");
            on_all(group, ranks, jobs, abort_if_first, &delays[i]);
            for (int r = 0; r < ranks; r++)
                expect(&jobs[r], MU_UNAVAILABLE, "peer down");
            assert_int_equal(mu__group_reset(group), MU_OK);
            expect_working(group, ranks);
            mu_release(group);
        }
}

// Ranks free their buffers as soon as a collective returns, also when it was aborted half way.
static void reduce_and_free(rank_job *job)
{
    unsigned seed = (unsigned)job->rank + 1;
    for (int i = 0; i < 20000 && job->status == MU_OK; i++) {
        const int64_t n = 2000 + i % 3 * 3000;
        float *x = calloc((size_t)n, sizeof *x);
        job->status = job->c->all_reduce(job->c, i, "freed", MU_REDUCTION_SUM, MU_F32, x, n);
        memset(x, 0x7f, (size_t)n * sizeof *x);
        free(x);
        if (rand_r(&seed) % 3000 == 0 && job->rank == job->ranks - 1)
            mu__group_abort(job->group, &(mu_error_value){.code = MU_CANCELLED, .message = "stop", .file = __FILE__});
    }
}

static void test_abort_keeps_off_freed_memory(void **state)
{
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(4, "freed");
    (void)state;
    for (int round = 0; round < 20; round++) {
        on_all(group, 4, jobs, reduce_and_free, NULL);
        assert_int_equal(mu__group_reset(group), MU_OK);
    }
    expect_working(group, 4);
    mu_release(group);
}

static void sum_until_aborted(rank_job *job)
{
    if (job->rank == 0) {
        nap(30000000);
        job->status = mu__group_reset(job->group);
        mu__error_move(&job->error);
        mu__group_abort(job->group, &job->error);
        return;
    }
    sum_one(job);
}

static void test_reset_refuses_while_in_use(void **state)
{
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(2, "busy");
    (void)state;
    on_all(group, 2, jobs, sum_until_aborted, NULL);
    assert_int_equal(jobs[0].status, MU_FAILED_PRECONDITION);
    expect(&jobs[1], MU_FAILED_PRECONDITION, "rank 1 is in a collective");
    mu_release(group);
}

static void test_pending_error_does_nothing(void **state)
{
    float x = 1;
    mu_group *group = mu__group_new(1, "pending");
    mu_collective *c = mu__group_member(group, 0);
    (void)state;
    mu_fail(MU_DATA_LOSS, "earlier");
    assert_int_equal(c->all_reduce(c, 1, "x", MU_REDUCTION_SUM, MU_F32, &x, 1), MU_DATA_LOSS);
    assert_int_equal(mu_error_take().code, MU_DATA_LOSS);
    mu_release(group);
}

// ---- Many small ones ----------------------------------------------------------------------------

static void many(rank_job *job)
{
    const int rounds = *(const int *)job->arg;
    unsigned seed = (unsigned)job->rank * 977 + 1;
    for (int i = 0; i < rounds && job->status == MU_OK; i++) {
        int32_t x[70], out[MAX_RANKS];
        const int n = 1 + i % 70;
        mu__collective_begin(job->c, i);
        for (int k = 0; k < n; k++)
            x[k] = job->rank * 1000 + i + k;
        if (rand_r(&seed) % 64 == 0)
            nap(rand_r(&seed) % 200000);
        job->status = job->c->all_reduce(job->c, i % 5, "many", MU_REDUCTION_SUM, MU_I32, x, n);
        for (int k = 0; k < n && job->status == MU_OK; k++)
            if (x[k] != job->ranks * (i + k) + 1000 * job->ranks * (job->ranks - 1) / 2)
                job->status = MU_DATA_LOSS;
        if (i % 7 == 0 && job->status == MU_OK)
            job->status = job->c->all_gather(job->c, 6, "gather", MU_I32, &job->rank, 1, out, NULL);
        for (int r = 0; i % 7 == 0 && r < job->ranks && job->status == MU_OK; r++)
            if (out[r] != r)
                job->status = MU_DATA_LOSS;
    }
}

static void test_many(void **state)
{
    static char *const policies[] = {"allreduce:slots", "allreduce:direct", "allreduce:pairwise;allgather:ring"};
    static int rounds[] = {5000, 5000, 1000};
    rank_job jobs[MAX_RANKS];
    (void)state;
    for (size_t p = 0; p < MU_COUNT(policies); p++)
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            mu_group *group = mu__group_new(ranks, "many");
            assert_int_equal(mu__group_set_policy(group, policies[p]), MU_OK);
            on_all(group, ranks, jobs, many, &rounds[p]);
            for (int r = 0; r < ranks; r++)
                assert_int_equal(jobs[r].status, MU_OK);
            mu_release(group);
        }
}

// ---- Want of memory -----------------------------------------------------------------------------

static void test_allocation_failures(void **state)
{
    (void)state;
    mu__alloc_fail_at(0);
    mu_group *group = mu__group_new(2, "memory");
    const long allocations = mu__alloc_fail_at(0);
    mu_release(group);
    for (long n = 1; n <= allocations; n++) {
        mu__alloc_fail_at(n);
        assert_null(mu__group_new(2, "memory"));
        mu__alloc_fail_at(0);
        assert_int_equal(mu_error_take().code, MU_RESOURCE_EXHAUSTED);
    }
}

static void fail_to_build(rank_job *job)
{
    float x[4] = {0};
    if (job->rank == 0) {
        nap(10000000);
        mu__alloc_fail_at(1);
    }
    job->status = job->c->all_reduce(job->c, 1, "list", MU_REDUCTION_SUM, MU_F32, x, 4);
}

static void test_allocation_failure_inside_fails_all(void **state)
{
    rank_job jobs[MAX_RANKS];
    mu_group *group = mu__group_new(2, "inside");
    (void)state;
    on_all(group, 2, jobs, fail_to_build, NULL);
    mu__alloc_fail_at(0);
    expect(&jobs[0], MU_RESOURCE_EXHAUSTED, NULL);
    expect(&jobs[1], MU_RESOURCE_EXHAUSTED, NULL);
    assert_int_equal(mu__group_reset(group), MU_OK);
    expect_working(group, 2);
    mu_release(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_gather_counts),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_group_of_one),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_deadline_of_messages),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_keeps_off_freed_memory),
        cmocka_unit_test(test_reset_refuses_while_in_use),
        cmocka_unit_test(test_pending_error_does_nothing),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_allocation_failure_inside_fails_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
