// Times a function for the op benchmark, whether it is an op or a loop that an op is compared with.
#include "calls.h"

#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(void (*run)(const void *arg), const void *arg, int64_t calls)
{
    const double start = now();
    for (int64_t i = 0; i < calls; i++)
        run(arg);
    return now() - start;
}

double seconds_per_call(void (*run)(const void *arg), const void *arg, double wanted_s)
{
    int64_t calls = 1;
    double took = seconds_of(run, arg, 1), best;
    while (took < wanted_s / 3 && calls < INT64_C(1) << 30) {
        const double more = 1.2 * wanted_s / 3 / (took > 1e-7 ? took : 1e-7);
        calls = (int64_t)((double)calls * (more < 10 ? more : 10)) + 1;
        took = seconds_of(run, arg, calls);
    }
    best = took;
    for (int i = 0; i < 2 && took < wanted_s; i++) {
        took = seconds_of(run, arg, calls);
        best = took < best ? took : best;
    }
    return best / (double)calls;
}
