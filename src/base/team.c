// A team: the calling thread and its libgomp helpers.
//
// libgomp is called through its stable ABI, not through pragmas, so that every compiler gets the same
// threads as oneDNN, whose Debian build has no others. One thread means that libgomp is never entered.
#include "base/base.h"

extern void GOMP_parallel(void (*body)(void *), void *data, unsigned n_threads, unsigned flags);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int n);

typedef struct call {
    void (*fn)(void *arg, int index, int count);
    void *arg;
    atomic_int order; // repeats libgomp's barriers in a form that the thread sanitizer can see
} call;

static void run_member(void *data)
{
    call *this_call = data;
    atomic_load_explicit(&this_call->order, memory_order_acquire);
    this_call->fn(this_call->arg, omp_get_thread_num(), omp_get_num_threads());
    atomic_fetch_add_explicit(&this_call->order, 1, memory_order_acq_rel);
}

void mu__team_run(const mu_team *team, void (*fn)(void *arg, int index, int count), void *arg)
{
    if (team == NULL || team->n_threads <= 1) {
        fn(arg, 0, 1);
        return;
    }
    call this_call = {.fn = fn, .arg = arg};
    atomic_store_explicit(&this_call.order, 1, memory_order_release);
    GOMP_parallel(run_member, &this_call, (unsigned)team->n_threads, 0);
    atomic_load_explicit(&this_call.order, memory_order_acquire);
}

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
