// oneDNN's parallel regions run on Muster's teams: right results, and no processor time when nothing runs.
#include "nn_check.h"

#include "ops/onednn/onednn.h"

#include <time.h>
#include <unistd.h>

static int64_t processor_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}

static void product_of(int n_threads)
{
    static const mu_matmul_attrs plain = {0};
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {random_tensor(MU_F32, MU_SHAPE(203, 301), -1, 1, 1),
                       random_tensor(MU_F32, MU_SHAPE(301, 107), -1, 1, 2)};
    check_team.n_threads = n_threads;
    mu__team_unlimit(n_threads);
    check_fast(&mu_op_matmul, &plain, 2, in, 1e-4, true);
    mu_pool_close(pool);
}

static void test_products(void **state)
{
    (void)state;
    assert_true(mu__dnnl_use_teams());
    for (int turn = 0; turn < 20; turn++)
        product_of(1 + turn % 4);
}

static void test_idle_threads_sleep(void **state)
{
    (void)state;
    product_of(3);
    const int64_t begin = processor_ns();
    usleep(300000);
    assert_in_range(processor_ns() - begin, 0, 5000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_idle_threads_sleep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
