// Tests of mu_stop_on_signals, each in a process of its own.
#include "base_test.h"

#include <signal.h>

// Runs fn in a child process; returns its exit code, or minus the signal that ended it.
static int in_child(int (*fn)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        freopen("/dev/null", "w", stderr);
        _exit(fn());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int unasked(void)
{
    mu_init();
    raise(SIGINT);
    return 0;
}

static int first_cancels(void)
{
    mu_init();
    mu_stop_on_signals();
    mu_stop_on_signals();
    if (mu__check_stop() != MU_OK)
        return 1;
    raise(SIGINT);
    if (mu__check_stop() != MU_CANCELLED)
        return 2;
    return mu_exit(false);
}

static int terminated(void)
{
    mu_init();
    mu_stop_on_signals();
    raise(SIGTERM);
    mu__check_stop();
    return mu_exit(true);
}

static int second_kills(void)
{
    mu_init();
    mu_stop_on_signals();
    raise(SIGINT);
    raise(SIGTERM);
    return 0;
}

static int restored(void)
{
    mu_init();
    mu_stop_on_signals();
    mu_exit(true);
    raise(SIGINT);
    return 0;
}

static int ignored_stays_ignored(void)
{
    signal(SIGINT, SIG_IGN);
    mu_init();
    mu_stop_on_signals();
    raise(SIGINT);
    return mu__check_stop() == MU_OK ? 7 : 8;
}

static atomic_int n_own;

static void own_handler(int number) { atomic_fetch_add(&n_own, number != 0); }

static int own_handler_comes_back(void)
{
    signal(SIGTERM, own_handler);
    mu_init();
    mu_stop_on_signals();
    raise(SIGTERM);
    const int first = atomic_load(&n_own);
    raise(SIGTERM);
    return 10 * first + atomic_load(&n_own);
}

static void test_signals(void **state)
{
    (void)state;
    assert_int_equal(in_child(unasked), -SIGINT);
    assert_int_equal(in_child(first_cancels), 128 + SIGINT);
    assert_int_equal(in_child(terminated), 128 + SIGTERM);
    assert_int_equal(in_child(second_kills), -SIGTERM);
    assert_int_equal(in_child(restored), -SIGINT);
    assert_int_equal(in_child(ignored_stays_ignored), 7);
    assert_int_equal(in_child(own_handler_comes_back), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
