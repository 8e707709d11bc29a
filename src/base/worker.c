// A replica's thread with its queue, and the latch on which its caller waits.
//
// Steps follow each other within microseconds, so both sides spin briefly before they sleep in the kernel (wait.c).
#include "base/private.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>

extern void omp_set_num_threads(int n);

enum { SPIN_NS = 40000 };

// ---- Latch --------------------------------------------------------------------------------------

enum { SLEEPER = 1 << 30, ARRIVALS = SLEEPER - 1 };

mu_status mu__latch_init(mu_latch *latch, int count)
{
    assert(count >= 0 && count <= ARRIVALS);
    atomic_store_explicit(&latch->left, count, memory_order_release);
    return MU_OK;
}

// The waiter may free the latch as soon as the count is zero, so the code reads nothing after that.
void mu__latch_arrive(mu_latch *latch)
{
    const int before = atomic_fetch_sub_explicit(&latch->left, 1, memory_order_acq_rel);
    assert((before & ARRIVALS) > 0);
    if (before == (SLEEPER | 1))
        mu__futex_wake(&latch->left);
}

mu_status mu__latch_wait(mu_latch *latch, int64_t deadline_ns, const char *what)
{
    if (mu__spin(&latch->left, ARRIVALS, 0, true, SPIN_NS))
        return MU_OK;
    for (;;) {
        const int left = atomic_fetch_or_explicit(&latch->left, SLEEPER, memory_order_acq_rel) | SLEEPER;
        if ((left & ARRIVALS) == 0)
            return MU_OK;
        if (deadline_ns != MU_FOREVER && mu__now_ns() >= deadline_ns)
            return mu__error(MU_DEADLINE_EXCEEDED,
                             "waited too long for %s: %d not there yet; raise MUSTER_TIMEOUT if this is only slow",
                             what, left & ARRIVALS);
        mu__futex_sleep(&latch->left, left, deadline_ns);
    }
}

bool mu__latch_done(const mu_latch *latch)
{
    return (atomic_load_explicit(&latch->left, memory_order_acquire) & ARRIVALS) == 0;
}

void mu__latch_free(mu_latch *latch) { (void)latch; }

// ---- Worker -------------------------------------------------------------------------------------

typedef struct job {
    void (*run)(void *arg);
    void *arg;
} job;

struct mu_worker {
    pthread_t thread;
    int forks;            // mu__fork_count when the thread was created
    pthread_mutex_t lock; // of the queue
    job *items;           // a ring of `capacity` from `head`
    size_t head, n, capacity;
    bool ending;
    atomic_int waiting_jobs; // the word that the thread waits on: n, or 1 to end
    atomic_int sleeps;
    mu_runtime *runtime;
    int *cpus;
    int n_cpus;
    char name[16]; // the kernel's limit
};

// fork copies no threads, so a worker created before a fork does not exist in the child. The number of forks between
// the first process and this one detects that.
static atomic_int forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

// The child computes on a single thread: a team of its own would compete with the parent for processors.
static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
    omp_set_num_threads(1);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

int mu__fork_count(void)
{
    pthread_once(&forks_once, watch_forks);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

static bool exists(const mu_worker *worker) { return worker->forks == mu__fork_count(); }

static void wake(mu_worker *worker)
{
    if (atomic_load(&worker->sleeps) != 0 && atomic_exchange(&worker->sleeps, 0) != 0)
        mu__futex_wake(&worker->waiting_jobs);
}

static mu_status ring_grow(mu_worker *worker)
{
    const size_t capacity = MU_MAX(2 * worker->capacity, (size_t)16);
    job *items = mu__calloc(capacity, sizeof *items);
    if (items == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < worker->n; i++)
        items[i] = worker->items[(worker->head + i) % worker->capacity];
    mu__free(worker->items);
    worker->items = items;
    worker->head = 0;
    worker->capacity = capacity;
    return MU_OK;
}

mu_status mu__worker_post(mu_worker *worker, void (*run)(void *arg), void *arg)
{
    mu_status status = MU_OK;
    if (!exists(worker))
        return mu__error(MU_FAILED_PRECONDITION,
                         "the thread %s does not exist in this forked process; fork before the library is used, or "
                         "start a new program in the child (exec)",
                         worker->name);
    pthread_mutex_lock(&worker->lock);
    if (worker->n == worker->capacity)
        status = ring_grow(worker);
    if (status == MU_OK) {
        worker->items[(worker->head + worker->n++) % worker->capacity] = (job){.run = run, .arg = arg};
        atomic_fetch_add(&worker->waiting_jobs, 1);
    }
    pthread_mutex_unlock(&worker->lock);
    wake(worker);
    return status;
}

static void wait_for_job(mu_worker *worker)
{
    if (mu__spin(&worker->waiting_jobs, -1, 0, false, SPIN_NS))
        return;
    while (atomic_load(&worker->waiting_jobs) == 0) {
        atomic_store(&worker->sleeps, 1);
        if (atomic_load(&worker->waiting_jobs) == 0)
            mu__futex_sleep(&worker->waiting_jobs, 0, MU_FOREVER);
        atomic_store(&worker->sleeps, 0);
    }
}

bool mu__worker_is_here(const mu_worker *worker) { return pthread_equal(worker->thread, pthread_self()) != 0; }

// Takes the next job; returns false if the worker must end and has no jobs left.
static bool take_job(mu_worker *worker, job *out)
{
    for (;;) {
        wait_for_job(worker);
        pthread_mutex_lock(&worker->lock);
        const bool any = worker->n > 0, ending = worker->ending;
        if (any) {
            *out = worker->items[worker->head];
            worker->head = (worker->head + 1) % worker->capacity;
            worker->n--;
            atomic_fetch_sub(&worker->waiting_jobs, 1);
        }
        pthread_mutex_unlock(&worker->lock);
        if (any || ending)
            return any;
    }
}

static void settle(mu_worker *worker)
{
    pthread_setname_np(pthread_self(), worker->name);
    mu__context()->runtime = worker->runtime;
    if (worker->n_cpus > 0)
        omp_set_num_threads(worker->n_cpus); // oneDNN reads this as its team size
    if (worker->cpus == NULL)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < worker->n_cpus; i++)
        if (worker->cpus[i] >= 0 && worker->cpus[i] < CPU_SETSIZE)
            CPU_SET(worker->cpus[i], &set);
    const int failed = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (failed != 0)
        mu__log(MU_LOG_WARNING, "cannot pin the thread %s: %s; it runs unpinned", worker->name, strerror(failed));
}

static void *worker_main(void *argument)
{
    mu_worker *worker = argument;
    settle(worker);
    job next;
    while (take_job(worker, &next)) {
        next.run(next.arg);
        mu__pools_close(mu__context());
        // A job passes its error on itself; an error that it left behind would make the next job fail.
        if (!mu__pending())
            continue;
        const mu_error left = mu_error_take();
        mu__log(MU_LOG_ERROR, "%s lost an error: %s", worker->name, left.message);
    }
    mu__team_dismiss();
    return NULL;
}

static void worker_discard(mu_worker *worker)
{
    pthread_mutex_destroy(&worker->lock);
    mu__free(worker->items);
    mu__free(worker->cpus);
    mu__free(worker);
}

mu_worker *mu__worker_new(const char *name, const int *cpus, int n_cpus, mu_runtime *runtime)
{
    mu_worker *worker = mu__calloc(1, sizeof *worker);
    if (worker == NULL)
        return NULL;
    worker->forks = mu__fork_count();
    pthread_mutex_init(&worker->lock, NULL);
    snprintf(worker->name, sizeof worker->name, "%s", name);
    worker->runtime = runtime;
    worker->n_cpus = n_cpus;
    if (cpus != NULL && n_cpus > 0) {
        worker->cpus = mu__calloc((size_t)n_cpus, sizeof *cpus);
        if (worker->cpus == NULL) {
            worker_discard(worker);
            return NULL;
        }
        memcpy(worker->cpus, cpus, (size_t)n_cpus * sizeof *cpus);
    }
    // The program's own threads handle signals.
    sigset_t all, own;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &own);
    const int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    if (failed == 0)
        return worker;
    mu__error(mu__errno_code(failed), "cannot start the thread %s: %s; use fewer devices or raise the limit on threads",
              name, strerror(failed));
    worker_discard(worker);
    return NULL;
}

void mu__worker_free(mu_worker *worker)
{
    if (worker == NULL)
        return;
    if (!exists(worker)) { // its lock may be held forever
        worker_discard(worker);
        return;
    }
    pthread_mutex_lock(&worker->lock);
    worker->ending = true;
    atomic_fetch_add(&worker->waiting_jobs, 1);
    pthread_mutex_unlock(&worker->lock);
    wake(worker);
    pthread_join(worker->thread, NULL);
    worker_discard(worker);
}
