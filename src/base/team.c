// A team: the calling thread and its helper threads, which wait between calls.
//
// The helpers belong to the thread that first needed them and end with it. Both sides spin briefly and then sleep
// (wait.c). libgomp's threads, by default, spin for more than ten milliseconds after each parallel region and take
// processors from threads that have work. oneDNN's parallel regions run here too (ops/onednn/onednn_team.c). With one
// thread, none of this code runs.
#include "base/private.h"

#include <signal.h>

extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int n);

// Steps call teams again within tens of microseconds, and waking a helper takes about as long.
enum { SPIN_NS = 200000 };

typedef struct crew crew;

typedef struct helper {
    pthread_t thread;
    crew *crew;
    int index; // in the team, from 1
    int seen;  // the last round that it took part in
} helper;

struct crew {
    helper **helpers;
    int n, forks;
    atomic_int round;                             // counts calls; helpers wait for the next one
    atomic_int sleepers;                          // helpers that sleep on `round`, or are about to
    mu_latch done;                                // helpers that have not finished this round
    atomic_int arrived, passed, barrier_sleepers; // for this round's barriers: members arrived, barriers passed
    bool ending;
    void (*fn)(void *arg, int index, int count);
    void *arg;
    int count;
};

// The team that the calling thread is a member of; count 0: none.
static _Thread_local struct {
    crew *in;
    int index, count;
} here;

static pthread_key_t own_crew;
static pthread_once_t own_crew_once = PTHREAD_ONCE_INIT;

// ---- Waiting ------------------------------------------------------------------------------------

static void wait_for_change(atomic_int *word, int seen, atomic_int *sleepers)
{
    if (mu__spin(word, -1, seen, false, SPIN_NS))
        return;
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == seen)
        mu__futex_sleep(word, seen, MU_FOREVER);
    atomic_fetch_sub(sleepers, 1);
}

// A thread increments `sleepers` before it last reads the word, so no sleeper is missed.
static void change(atomic_int *word, atomic_int *sleepers)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(sleepers) > 0)
        mu__futex_wake(word);
}

// ---- Helpers ------------------------------------------------------------------------------------

static void run_member(crew *c, int index)
{
    here.in = c;
    here.index = index;
    here.count = c->count;
    c->fn(c->arg, index, c->count);
    here.count = 0;
}

// A call inside another call runs on this thread alone.
static void run_inside(void (*fn)(void *arg, int index, int count), void *arg)
{
    const int index = here.index, count = here.count;
    here.index = 0;
    here.count = 1;
    fn(arg, 0, 1);
    here.index = index;
    here.count = count;
}

static void *helper_main(void *argument)
{
    helper *own = argument;
    crew *c = own->crew;
    for (;;) {
        wait_for_change(&c->round, own->seen, &c->sleepers);
        own->seen = atomic_load_explicit(&c->round, memory_order_acquire);
        if (c->ending)
            return NULL;
        if (own->index < c->count)
            run_member(c, own->index);
        mu__latch_arrive(&c->done);
    }
}

// Adds a helper; returns false if the system cannot create a thread.
static bool add_helper(crew *c)
{
    helper **all = mu__calloc((size_t)c->n + 1, sizeof *all), *added = mu__calloc(1, sizeof *added);
    sigset_t every, own;
    int failed = !all || !added;
    if (!failed) {
        *added = (helper){.crew = c, .index = c->n + 1, .seen = atomic_load(&c->round)};
        sigfillset(&every);
        pthread_sigmask(SIG_SETMASK, &every, &own); // the program's own threads handle signals
        failed = pthread_create(&added->thread, NULL, helper_main, added);
        pthread_sigmask(SIG_SETMASK, &own, NULL);
    }
    if (failed) {
        mu__free(all);
        mu__free(added);
        return false;
    }
    for (int i = 0; i < c->n; i++)
        all[i] = c->helpers[i];
    all[c->n++] = added;
    mu__free(c->helpers);
    c->helpers = all;
    return true;
}

// After a fork the helper threads do not exist, only their memory does.
static void disband(void *object)
{
    crew *c = object;
    const bool present = c->forks == mu__fork_count();
    c->ending = true;
    if (present)
        change(&c->round, &c->sleepers);
    for (int i = 0; i < c->n; i++) {
        if (present)
            pthread_join(c->helpers[i]->thread, NULL);
        mu__free(c->helpers[i]);
    }
    mu__free(c->helpers);
    mu__free(c);
}

static void make_key(void) { pthread_key_create(&own_crew, disband); }

// The calling thread's crew with `n` helpers; NULL if it cannot have them.
static crew *crew_of(int helpers)
{
    pthread_once(&own_crew_once, make_key);
    crew *c = pthread_getspecific(own_crew);
    if (c && c->forks != mu__fork_count()) {
        disband(c);
        c = NULL;
        pthread_setspecific(own_crew, NULL);
    }
    if (!c) {
        if (!(c = mu__calloc(1, sizeof *c)))
            return NULL;
        c->forks = mu__fork_count();
        if (pthread_setspecific(own_crew, c) != 0) {
            mu__free(c);
            return NULL;
        }
    }
    while (c->n < helpers)
        if (!add_helper(c))
            return NULL;
    return c;
}

void mu__team_dismiss(void)
{
    pthread_once(&own_crew_once, make_key);
    crew *c = pthread_getspecific(own_crew);
    pthread_setspecific(own_crew, NULL);
    if (c)
        disband(c);
}

// ---- Calls --------------------------------------------------------------------------------------

bool mu__team_try(int count, void (*fn)(void *arg, int index, int count), void *arg)
{
    if (here.count > 0 && count == 1) {
        run_inside(fn, arg);
        return true;
    }
    crew *c = here.count > 0 ? NULL : crew_of(count - 1);
    if (!c)
        return false;
    c->fn = fn;
    c->arg = arg;
    c->count = count;
    atomic_store(&c->arrived, 0);
    mu__latch_init(&c->done, c->n);
    change(&c->round, &c->sleepers);
    run_member(c, 0);
    mu__latch_wait(&c->done, MU_FOREVER, "the helpers of a team");
    return true;
}

void mu__team_run(const mu_team *team, void (*fn)(void *arg, int index, int count), void *arg)
{
    const int count = team ? team->n_threads : 1;
    if (count > 1 && mu__team_try(count, fn, arg))
        return;
    for (int index = 0; index < count; index++) // alone: runs every member's part in turn
        fn(arg, index, count);
}

int mu__team_count(void) { return here.count; }

int mu__team_index(void) { return here.index; }

void mu__team_barrier(void)
{
    crew *c = here.in;
    const int seen = atomic_load(&c->passed);
    if (atomic_fetch_add(&c->arrived, 1) + 1 < here.count) {
        wait_for_change(&c->passed, seen, &c->barrier_sleepers);
        return;
    }
    atomic_store(&c->arrived, 0);
    change(&c->passed, &c->barrier_sleepers);
}

// ---- oneDNN's team size -------------------------------------------------------------------------

int mu__team_limit(int n_threads)
{
    const int before = omp_get_max_threads();
    if (n_threads < before)
        omp_set_num_threads(n_threads);
    return before;
}

void mu__team_unlimit(int before)
{
    if (omp_get_max_threads() != before)
        omp_set_num_threads(before);
}

// ---- Shares -------------------------------------------------------------------------------------

void mu__team_share(int64_t n, int64_t grain, int index, int count, int64_t *begin, int64_t *end)
{
    const int64_t unit = MU_MAX(grain, 1);
    const int64_t grains = n / unit + (n % unit != 0);
    const int64_t each = grains / count, longer = grains % count;
    const int64_t first = index * each + MU_MIN(index, longer);
    const int64_t last = first + each + (index < longer);
    *begin = MU_MIN(first * unit, n);
    *end = last >= grains ? n : last * unit;
}
