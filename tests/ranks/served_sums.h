// A job whose steps each add 1 to a variable of either server, and the sums that must come out although tasks are lost.
//
// If a step is tried again, it is unknown whether the lost worker had applied it. So for each step this process also
// makes an update itself: exactly one of those counts, and a request that a server applied twice or lost would change
// that.
#ifndef MU_TESTS_SERVED_SUMS_H
#define MU_TESTS_SERVED_SUMS_H

#include "served_tasks.h"

typedef struct job {
    mu_strategy *strategy;
    mu_coordinator *coordinator;
    mu_variable *v[2], *own[2];
    mu_function *step;
    mu_value *one;
    int64_t scheduled, updated;
} job;

static inline job begin(mu_strategy *strategy)
{
    static mu_variable *v[2]; // as long as the function
    job j = {.strategy = strategy, .coordinator = mu_coordinator_new(strategy)};
    make_two(strategy, j.v);
    make_two(strategy, j.own);
    v[0] = j.v[0], v[1] = j.v[1];
    j.step = mu_function_new(add_to_both, v);
    j.one = mu_list(mu_of(mu_constant(MU_F32, 1)), MU_END);
    return j;
}

static inline void update_own(job *j)
{
    for (int i = 0; i < 2; i++)
        expect(mu_variable_assign_add(j->own[i], mu_constant(MU_F32, 1)) == MU_OK, "an update is acknowledged");
    j->updated++;
}

static inline void schedule_steps(job *j, int n)
{
    for (int i = 0; i < n; i++)
        mu_schedule(j->coordinator, j->step, j->one);
    j->scheduled += n;
}

static inline void schedule(job *j, int n)
{
    for (int i = 0; i < n; i++) {
        schedule_steps(j, 1);
        update_own(j);
    }
}

// Each step counts once; one that a lost worker had begun may have been applied before it was tried again.
static inline void expect_sums(job *j, const char *when)
{
    int64_t retried = 0;
    expect(mu_join(j->coordinator) == MU_OK, "all steps end");
    for (int i = 0; i < 3; i++)
        retried += calls_of(j->coordinator, i).retried;
    const double a = mu_scalar(mu_variable_read(j->v[0])), b = mu_scalar(mu_variable_read(j->v[1]));
    printf("%s: %g and %g of %lld steps, %lld of them tried again\n", when, a, b, (long long)j->scheduled,
           (long long)retried);
    expect(a >= (double)j->scheduled && a <= (double)(j->scheduled + retried),
           "each step counts once, one that was tried again perhaps twice");
    expect(b >= (double)j->scheduled && b <= a, "the second variable of a step follows the first");
    for (int i = 0; i < 2; i++)
        expect(mu_scalar(mu_variable_read(j->own[i])) == (double)j->updated, "each acknowledged update counts once");
}

// Schedules steps until a worker has done one more.
static inline void expect_work(job *j, int worker)
{
    const int64_t before = calls_of(j->coordinator, worker).done;
    for (int i = 0; i < 6000 && calls_of(j->coordinator, worker).done == before; i++) {
        schedule(j, 3);
        expect(mu_join(j->coordinator) == MU_OK, "steps end");
        usleep(1000);
    }
    expect(calls_of(j->coordinator, worker).done > before, "the worker works");
}

#endif
