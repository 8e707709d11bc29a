// Tests of teams: each member runs once and sees all earlier writes, and the shares cover everything.
#include "base_test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 10007 };

struct sum {
    const int *numbers;
    int64_t parts[16];
    atomic_int members;
    int count;
};

static void add_share(void *arg, int index, int count)
{
    struct sum *sum = arg;
    int64_t begin, end;
    mu__team_share(N, 16, index, count, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        sum->parts[index] += sum->numbers[i];
    atomic_fetch_add(&sum->members, 1);
    if (index == 0)
        sum->count = count;
}

static void test_members_run_once(void **state)
{
    (void)state;
    static int numbers[N];
    for (int turn = 0; turn < 200; turn++) {
        const mu_team team = {.n_threads = 1 + turn % 4};
        struct sum sum = {.numbers = numbers};
        for (int i = 0; i < N; i++)
            numbers[i] = i + turn;
        mu__team_run(&team, add_share, &sum);
        int64_t total = 0;
        for (size_t i = 0; i < MU_COUNT(sum.parts); i++)
            total += sum.parts[i];
        assert_true(total == (int64_t)N * (N - 1) / 2 + (int64_t)N * turn);
        assert_int_equal(atomic_load(&sum.members), sum.count);
        assert_true(sum.count >= 1 && sum.count <= team.n_threads);
    }
}

static void test_no_team_is_the_caller(void **state)
{
    (void)state;
    static int numbers[N];
    struct sum sum = {.numbers = numbers};
    mu__team_run(NULL, add_share, &sum);
    assert_int_equal(sum.count, 1);
}

static void test_shares(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 15, 16, 17, 100, 1000003, INT64_MAX / 2, INT64_MAX};
    static const int64_t grains[] = {0, 1, 7, 64, 4096};
    for (size_t n = 0; n < MU_COUNT(sizes); n++) {
        for (size_t g = 0; g < MU_COUNT(grains); g++) {
            for (int count = 1; count <= 9; count++) {
                int64_t next = 0, least = INT64_MAX, most = 0;
                for (int index = 0; index < count; index++) {
                    int64_t begin, end;
                    mu__team_share(sizes[n], grains[g], index, count, &begin, &end);
                    assert_true(begin == next && end >= begin);
                    next = end;
                    most = MU_MAX(most, end - begin);
                    least = index + 1 < count ? MU_MIN(least, end - begin) : least;
                }
                assert_true(next == sizes[n]);
                assert_true(count == 1 || most - least <= MU_MAX(grains[g], 1));
            }
        }
    }
}

static void nothing(void *arg, int index, int count) { (void)arg, (void)index, (void)count; }

static int64_t processor_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}

// Between two calls a team leaves the processors to other programs: it spins for far less than a time slice.
static void test_idle_teams_sleep(void **state)
{
    (void)state;
    const mu_team team = {.n_threads = 3};
    mu__team_run(&team, nothing, NULL);
    const int64_t begin = processor_ns();
    for (int turn = 0; turn < 4; turn++) {
        mu__team_run(&team, nothing, NULL);
        usleep(100000);
    }
    assert_in_range(processor_ns() - begin, 0, 8000000); // of 400 ms; two helpers spin 0.2 ms each, four times
}

typedef struct ladder {
    atomic_int steps[64];
    atomic_int behind;
} ladder;

// Each member climbs one step and waits for the others: nobody is ever a step behind.
static void climb(void *arg, int index, int count)
{
    ladder *own = arg;
    assert(mu__team_index() == index && mu__team_count() == count);
    for (int i = 0; i < 64; i++) {
        atomic_fetch_add(&own->steps[i], 1);
        mu__team_barrier();
        if (atomic_load(&own->steps[i]) != mu__team_count())
            atomic_fetch_add(&own->behind, 1);
    }
    (void)index, (void)count;
}

static void test_barriers(void **state)
{
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        ladder own = {.behind = 0};
        assert_true(mu__team_try(2 + turn % 3, climb, &own));
        assert_int_equal(atomic_load(&own.behind), 0);
        assert_int_equal(mu__team_count(), 0);
    }
}

static void count_inside(void *arg, int index, int count)
{
    (void)index;
    if (count == 1)
        atomic_fetch_add((atomic_int *)arg, 1);
}

static void run_inside(void *arg, int index, int count)
{
    assert(!mu__team_try(2, nothing, NULL));
    if (mu__team_try(1, count_inside, arg) && mu__team_index() == index && mu__team_count() == count)
        atomic_fetch_add((atomic_int *)arg, 1);
}

static void test_teams_inside_teams(void **state)
{
    (void)state;
    atomic_int n = 0;
    assert_true(mu__team_try(3, run_inside, &n));
    assert_int_equal(atomic_load(&n), 6);
}

static void *use_a_team(void *arg)
{
    atomic_int n = 0;
    (void)arg;
    return mu__team_try(3, run_inside, &n) && atomic_load(&n) == 6 ? NULL : (void *)1;
}

// When a thread ends, its helpers end; a forked child gets helpers of its own.
static void test_owners_come_and_go(void **state)
{
    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        pthread_t thread;
        void *result = NULL;
        assert_int_equal(pthread_create(&thread, NULL, use_a_team, NULL), 0);
        pthread_join(thread, &result);
        assert_null(result);
    }
    assert_null(use_a_team(NULL));
#ifndef __SANITIZE_THREAD__ // which ends a child that starts threads after a fork with several threads
    const pid_t child = fork();
    if (child == 0)
        _exit(use_a_team(NULL) == NULL ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_run_once),
        cmocka_unit_test(test_idle_teams_sleep),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_teams_inside_teams),
        cmocka_unit_test(test_owners_come_and_go),
        cmocka_unit_test(test_no_team_is_the_caller),
        cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
