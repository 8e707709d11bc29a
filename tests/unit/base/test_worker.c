// Tests of workers and latches: order, round trips, sleeping, deadlines, ending, lost errors.
#include "base_test.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

enum { N_JOBS = 5000, N_WORKERS = 6 };

static void nap(int ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL); }

struct list {
    int numbers[N_JOBS];
    int n;
};

struct append {
    struct list *list;
    int number;
};

static void append(void *arg)
{
    const struct append *job = arg;
    job->list->numbers[job->list->n++] = job->number;
}

static void test_jobs_run_in_order(void **state)
{
    (void)state;
    static struct list list;
    static struct append jobs[N_JOBS];
    mu_worker *worker = mu__worker_new("test", NULL, 0, NULL);
    assert_non_null(worker);
    for (int i = 0; i < N_JOBS; i++) {
        jobs[i] = (struct append){.list = &list, .number = i};
        assert_int_equal(mu__worker_post(worker, append, &jobs[i]), MU_OK);
    }
    mu__worker_free(worker); // finishes the jobs that were posted
    assert_int_equal(list.n, N_JOBS);
    for (int i = 0; i < N_JOBS; i++)
        assert_int_equal(list.numbers[i], i);
    mu__worker_free(NULL);
}

struct round {
    mu_latch *latch;
    int input, output;
    int nap_ms;
};

static void double_input(void *arg)
{
    struct round *round = arg;
    nap(round->nap_ms);
    round->output = 2 * round->input;
    mu__latch_arrive(round->latch);
}

// More workers than processors. Each round has a new latch on the stack, which is gone as soon as the wait ends.
static void round_trips(int turns, int nap_ms)
{
    mu_worker *workers[N_WORKERS];
    for (int i = 0; i < N_WORKERS; i++)
        assert_non_null(workers[i] = mu__worker_new("test", NULL, 1, NULL));
    for (int turn = 0; turn < turns; turn++) {
        mu_latch *latch = mu__alloc(sizeof *latch);
        struct round rounds[N_WORKERS];
        assert_int_equal(mu__latch_init(latch, N_WORKERS), MU_OK);
        for (int i = 0; i < N_WORKERS; i++) {
            rounds[i] = (struct round){.latch = latch, .input = turn + i, .nap_ms = nap_ms};
            assert_int_equal(mu__worker_post(workers[i], double_input, &rounds[i]), MU_OK);
        }
        assert_int_equal(mu__latch_wait(latch, MU_FOREVER, "the test"), MU_OK);
        mu__latch_free(latch);
        mu__free(latch);
        for (int i = 0; i < N_WORKERS; i++)
            assert_int_equal(rounds[i].output, 2 * (turn + i));
        if (nap_ms > 0)
            nap(nap_ms);
    }
    for (int i = 0; i < N_WORKERS; i++)
        mu__worker_free(workers[i]);
}

static void test_round_trips_spinning(void **state)
{
    (void)state;
    round_trips(2000, 0);
}

static void test_round_trips_sleeping(void **state)
{
    (void)state;
    round_trips(20, 2);
}

static void test_deadline(void **state)
{
    (void)state;
    mu_latch latch;
    assert_int_equal(mu__latch_init(&latch, 3), MU_OK);
    mu__latch_arrive(&latch);
    const int64_t begin = mu__now_ns();
    assert_int_equal(mu__latch_wait(&latch, mu__deadline_ns(0.02), "replica 1"), MU_DEADLINE_EXCEEDED);
    assert_true(mu__now_ns() - begin >= 20000000);
    assert_taken(MU_DEADLINE_EXCEEDED, "replica 1: 2 not there yet");
    mu__latch_arrive(&latch);
    mu__latch_arrive(&latch);
    assert_int_equal(mu__latch_wait(&latch, mu__now_ns(), "replica 1"), MU_OK);
    mu__latch_free(&latch);
}

static void test_empty_latch(void **state)
{
    (void)state;
    mu_latch latch;
    assert_int_equal(mu__latch_init(&latch, 0), MU_OK);
    assert_int_equal(mu__latch_wait(&latch, MU_FOREVER, "nothing"), MU_OK);
}

static mu_type thing_type = {.name = "thing"};

static void fail_and_litter(void *arg)
{
    (void)arg;
    assert_non_null(mu__give(mu__new(&thing_type, sizeof(mu_object))));
    mu__error(MU_INTERNAL, "nobody looks");
}

static void count_pending(void *arg) { *(int *)arg += mu__pending() || mu__live_objects(NULL) > 0; }

static void run_fail_and_litter(void *arg)
{
    mu_worker *worker = mu__worker_new("litterer", NULL, 0, NULL);
    mu__worker_post(worker, fail_and_litter, NULL);
    mu__worker_post(worker, count_pending, arg);
    mu__worker_free(worker);
}

static void test_a_job_leaves_nothing_to_the_next(void **state)
{
    (void)state;
    char text[1000];
    int n_pending = 0;
    catch_stderr(run_fail_and_litter, &n_pending, text, sizeof text);
    assert_int_equal(n_pending, 0);
    assert_non_null(strstr(text, "litterer lost an error: nobody looks"));
}

struct place {
    mu_runtime *runtime;
    int n_cpus;
    bool interrupts_blocked;
};

static void look_around(void *arg)
{
    struct place *place = arg;
    cpu_set_t set;
    sigset_t blocked;
    pthread_getaffinity_np(pthread_self(), sizeof set, &set);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    place->n_cpus = CPU_COUNT(&set);
    place->interrupts_blocked = sigismember(&blocked, SIGINT) == 1;
    place->runtime = mu__runtime();
}

static void test_pinned_and_with_its_runtime(void **state)
{
    (void)state;
    mu_init(.threads = 1);
    mu_runtime *runtime = mu_runtime_new();
    const int cpu = mu__runtime_cpu(runtime, 0);
    struct place place = {0};
    mu_worker *worker = mu__worker_new("a name that is too long for the kernel", &cpu, 1, runtime);
    assert_non_null(worker);
    mu__worker_post(worker, look_around, &place);
    mu__worker_free(worker);
    assert_int_equal(place.n_cpus, 1);
    assert_true(place.interrupts_blocked);
    assert_ptr_equal(place.runtime, runtime);
    mu_exit(true);
}

static bool make_and_post(void *arg)
{
    (void)arg;
    const int cpu = 0;
    mu_worker *worker = mu__worker_new("test", &cpu, 1, NULL);
    if (worker == NULL)
        return false;
    int n = 0;
    const mu_status status = mu__worker_post(worker, count_pending, &n);
    mu__worker_free(worker);
    return status == MU_OK;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    with_failing_allocations(make_and_post, NULL);
}

// In a forked child the worker's thread does not exist: posting a job fails, and ending the worker waits for nothing.
static void test_fork_leaves_threads_behind(void **state)
{
    (void)state;
    mu_worker *worker = mu__worker_new("test", NULL, 0, NULL);
    assert_non_null(worker);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int n = 0;
        const bool refused = mu__worker_post(worker, count_pending, &n) == MU_FAILED_PRECONDITION;
        const bool named = strstr(mu_error_take().message, "the thread test does not exist") != NULL;
        mu__worker_free(worker);
        _exit(refused && named ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    int n = 0;
    assert_int_equal(mu__worker_post(worker, count_pending, &n), MU_OK);
    mu__worker_free(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_run_in_order),
        cmocka_unit_test(test_round_trips_spinning),
        cmocka_unit_test(test_round_trips_sleeping),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_empty_latch),
        cmocka_unit_test(test_a_job_leaves_nothing_to_the_next),
        cmocka_unit_test(test_pinned_and_with_its_runtime),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_fork_leaves_threads_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
