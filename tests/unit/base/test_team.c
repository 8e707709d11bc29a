// Tests of teams: each member runs once, all see what was written before, shares cover everything.
#include "base_test.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_run_once),
        cmocka_unit_test(test_no_team_is_the_caller),
        cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
