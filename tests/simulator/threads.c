// Threads on virtual time: see threads.h.
#include "threads.h"

#include "base/private.h"
#include "engine/engine.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

typedef enum wait { WAIT_NONE, WAIT_TIME, WAIT_CONDITION, WAIT_LOCK, WAIT_FUTEX, WAIT_POLLER, WAIT_THREAD, ENDED } wait;

typedef struct thread {
    bool used, joined;
    int process, host;
    wait wait;
    const void *on; // the condition, lock, word or thread that it waits for
    int poller;
    int64_t until_ns;
    bool late; // the wait ended by its time
    pthread_t handle;
    sem_t turn;
    void *(*run)(void *arg);
    void (*begin)(void *arg);
    void *arg;
} thread;

static thread threads[MOST_THREADS];
static int n_threads;    // slots that are or were in use
static sem_t free_again; // the thread that went on has blocked
static int64_t paused_ns[MOST_LIVES];
static mu_worker *devices[MOST_LIVES];
static mu_system blocking; // the world's, with waits that block
static int (*poll_now)(int poller, mu_ready *out, int most, int64_t deadline_ns);
static _Thread_local thread *self; // NULL: a thread outside of the simulation

// ---- Blocking -----------------------------------------------------------------------------------

static void block(wait what, const void *on, int64_t until_ns)
{
    self->wait = what;
    self->on = on;
    self->until_ns = until_ns;
    sem_post(&free_again);
    while (sem_wait(&self->turn) != 0)
        ;
}

// Who is let go on may find that another thread was faster; the callers look again.
static void wake_all(wait what, const void *on)
{
    for (int i = 0; i < n_threads; i++)
        if (threads[i].used && threads[i].wait == what && threads[i].on == on)
            threads[i].wait = WAIT_NONE;
}

// A thread that has woken others may lose its processor at once.
static void give_way(void)
{
    if (self != NULL && world_chance(0.3))
        block(WAIT_NONE, NULL, MU_FOREVER);
}

static void sleep_ns(int64_t ns) { block(WAIT_TIME, NULL, world_now() + MU_MAX(ns, 1)); }

static int poller_wait(int poller, mu_ready *out, int most, int64_t deadline_ns)
{
    for (int n;;) {
        if ((n = poll_now(poller, out, most, 0)) > 0 || world_now() >= deadline_ns)
            return n;
        self->poller = poller;
        block(WAIT_POLLER, NULL, deadline_ns);
    }
}

// ---- What the linker puts in the place of the system's --------------------------------------------

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *arg), void *arg);
int __real_pthread_join(pthread_t handle, void **result);
int __real_sched_yield(void);
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __real_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until);
int __real_pthread_cond_signal(pthread_cond_t *condition);
int __real_pthread_cond_broadcast(pthread_cond_t *condition);
void __real_mu__futex_sleep(atomic_int *word, int seen, int64_t deadline_ns);
void __real_mu__futex_wake(atomic_int *word);
bool __real_mu__spin(const atomic_int *word, int mask, int value, bool equal, int64_t most_ns);
mu_worker *__real_mu__device_worker(mu_device *device);

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *arg), void *arg);
int __wrap_pthread_join(pthread_t handle, void **result);
int __wrap_sched_yield(void);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
void __wrap_mu__futex_sleep(atomic_int *word, int seen, int64_t deadline_ns);
void __wrap_mu__futex_wake(atomic_int *word);
bool __wrap_mu__spin(const atomic_int *word, int mask, int value, bool equal, int64_t most_ns);
mu_worker *__wrap_mu__device_worker(mu_device *device);

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (self == NULL)
        return __real_pthread_mutex_lock(lock);
    int failed;
    while ((failed = pthread_mutex_trylock(lock)) == EBUSY)
        block(WAIT_LOCK, lock, MU_FOREVER);
    return failed;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    const int failed = __real_pthread_mutex_unlock(lock);
    if (self != NULL)
        wake_all(WAIT_LOCK, lock);
    return failed;
}

static int wait_for_condition(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns)
{
    __wrap_pthread_mutex_unlock(lock);
    block(WAIT_CONDITION, condition, until_ns);
    const bool late = self->late;
    __wrap_pthread_mutex_lock(lock);
    return late ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    return self == NULL ? __real_pthread_cond_wait(condition, lock) : wait_for_condition(condition, lock, MU_FOREVER);
}

// The library's waits on a condition are short, so that a time far away is one of another clock.
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until)
{
    const int64_t until_ns = (int64_t)until->tv_sec * 1000000000 + until->tv_nsec;
    if (self == NULL)
        return __real_pthread_cond_timedwait(condition, lock, until);
    if (until_ns > world_now() + 5000000000) {
        fprintf(stderr, "simulator: a wait on a condition ends by another clock than mu__now_ns\n");
        abort();
    }
    return wait_for_condition(condition, lock, until_ns);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    if (self != NULL)
        wake_all(WAIT_CONDITION, condition);
    const int failed = __real_pthread_cond_broadcast(condition);
    return failed;
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition) { return __wrap_pthread_cond_broadcast(condition); }

void __wrap_mu__futex_sleep(atomic_int *word, int seen, int64_t deadline_ns)
{
    if (self == NULL)
        __real_mu__futex_sleep(word, seen, deadline_ns);
    else if (atomic_load(word) == seen)
        block(WAIT_FUTEX, word, deadline_ns);
}

void __wrap_mu__futex_wake(atomic_int *word)
{
    if (self != NULL)
        wake_all(WAIT_FUTEX, word);
    __real_mu__futex_wake(word);
    give_way();
}

// No time passes while a thread looks.
bool __wrap_mu__spin(const atomic_int *word, int mask, int value, bool equal, int64_t most_ns)
{
    if (self == NULL)
        return __real_mu__spin(word, mask, value, equal, most_ns);
    return ((atomic_load(word) & mask) == value) == equal;
}

// Whoever looks again and again has lost its processor for long enough to stop.
int __wrap_sched_yield(void)
{
    enum { LOST_NS = 20000 };
    if (self == NULL)
        return __real_sched_yield();
    sleep_ns(LOST_NS);
    return 0;
}

// Each process computes on a thread of its own.
mu_worker *__wrap_mu__device_worker(mu_device *device)
{
    if (self == NULL)
        return __real_mu__device_worker(device);
    mu_worker **own = &devices[self->process];
    if (*own == NULL)
        *own = mu__worker_new("device", NULL, 0, mu__runtime());
    return *own;
}

// ---- Beginning and end of threads -----------------------------------------------------------------

static void *thread_main(void *argument)
{
    self = argument;
    while (sem_wait(&self->turn) != 0)
        ;
    void *result = self->run != NULL ? self->run(self->arg) : NULL;
    if (self->begin != NULL) {
        self->begin(self->arg);
        mu__pools_close(mu__context());
    }
    wake_all(WAIT_THREAD, self);
    self->wait = ENDED;
    sem_post(&free_again);
    return result;
}

static thread *new_thread(int process, int host)
{
    int i = 0;
    while (i < n_threads && threads[i].used)
        i++;
    if (i == MOST_THREADS || process >= MOST_LIVES) {
        fprintf(stderr, "simulator: more than %d threads or %d processes\n", MOST_THREADS, MOST_LIVES);
        abort();
    }
    n_threads = MU_MAX(n_threads, i + 1);
    threads[i] = (thread){.used = true, .process = process, .host = host, .until_ns = MU_FOREVER};
    sem_init(&threads[i].turn, 0, 0);
    return &threads[i];
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *arg), void *arg)
{
    if (self == NULL)
        return __real_pthread_create(out, attributes, run, arg);
    thread *t = new_thread(self->process, self->host);
    t->run = run;
    t->arg = arg;
    const int failed = __real_pthread_create(&t->handle, attributes, thread_main, t);
    t->used = failed == 0;
    *out = t->handle;
    return failed;
}

static void reap(thread *t)
{
    __real_pthread_join(t->handle, NULL);
    sem_destroy(&t->turn);
    t->used = false;
}

int __wrap_pthread_join(pthread_t handle, void **result)
{
    thread *t = NULL;
    for (int i = 0; self != NULL && i < n_threads; i++)
        if (threads[i].used && !threads[i].joined && pthread_equal(threads[i].handle, handle))
            t = &threads[i];
    if (t == NULL)
        return __real_pthread_join(handle, result);
    t->joined = true;
    while (t->wait != ENDED)
        block(WAIT_THREAD, t, MU_FOREVER);
    reap(t);
    return 0;
}

void threads_start(int process, int host, void (*run)(void *arg), void *arg)
{
    thread *t = new_thread(process, host);
    t->begin = run;
    t->arg = arg;
    if (__real_pthread_create(&t->handle, NULL, thread_main, t) != 0) {
        fprintf(stderr, "simulator: the system cannot start a thread\n");
        abort();
    }
}

void threads_end_devices(void)
{
    mu_worker *own = devices[self->process];
    devices[self->process] = NULL;
    mu__worker_free(own);
}

// ---- The scheduler --------------------------------------------------------------------------------

static bool may_go_on(const thread *t, const bool *ready)
{
    if (!t->used || t->wait == ENDED || world_now() < paused_ns[t->process])
        return false;
    return t->wait == WAIT_NONE || world_now() >= t->until_ns ||
           (t->wait == WAIT_POLLER && ready[t->poller - FIRST_FD]);
}

// The time of the next event; the threads of the simulation all wait.
static int64_t next_event(void)
{
    int64_t next = world_next();
    for (int i = 0; i < n_threads; i++) {
        const thread *t = &threads[i];
        if (!t->used || t->wait == ENDED)
            continue;
        const int64_t paused = paused_ns[t->process];
        next = MU_MIN(next, MU_MAX(t->until_ns, paused));
        if (paused > world_now())
            next = MU_MIN(next, paused);
    }
    return next;
}

static void go_on(thread *t)
{
    t->late = t->wait != WAIT_NONE && world_now() >= t->until_ns;
    t->wait = WAIT_NONE;
    t->until_ns = MU_FOREVER;
    world_enter(t->process, t->host);
    sem_post(&t->turn);
    while (sem_wait(&free_again) != 0)
        ;
    if (t->wait == ENDED && t->begin != NULL)
        reap(t);
}

bool threads_step(int64_t until_ns)
{
    static bool ready[MOST_DESCRIPTORS];
    static thread *able[MOST_THREADS];
    int n = 0;
    world_ready_pollers(ready);
    for (int i = 0; i < n_threads; i++)
        if (may_go_on(&threads[i], ready))
            able[n++] = &threads[i];
    if (n > 0) {
        go_on(able[world_draw((uint64_t)n)]);
        return true;
    }
    const int64_t next = next_event();
    world_advance(MU_MIN(next, until_ns));
    return next < until_ns;
}

void threads_pause(int process, int64_t until_ns) { paused_ns[process] = until_ns; }

int threads_count(int process)
{
    int n = 0;
    for (int i = 0; i < n_threads; i++)
        n += threads[i].used && threads[i].wait != ENDED && threads[i].process == process;
    return n;
}

void threads_begin(void)
{
    memset(threads, 0, sizeof threads);
    memset(paused_ns, 0, sizeof paused_ns);
    n_threads = 0;
    sem_init(&free_again, 0, 0);
    blocking = *mu__system;
    poll_now = blocking.poller_wait;
    blocking.threads = true;
    blocking.sleep_ns = sleep_ns;
    blocking.poller_wait = poller_wait;
    mu__system = &blocking;
}

void threads_end(void) { sem_destroy(&free_again); }
