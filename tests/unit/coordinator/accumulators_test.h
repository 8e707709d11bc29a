// What tests of accumulators on servers share: small gradients, and threads that take.
#ifndef MU_TESTS_ACCUMULATORS_TEST_H
#define MU_TESTS_ACCUMULATORS_TEST_H

#include "ops/state/accumulator.h"
#include "servers_test.h"

#include <pthread.h>

static const mu_shape two = {.rank = 1, .dims = {2}};

static inline mu_tensor *row(double a, double b)
{
    const double values[] = {a, b};
    return mu_tensor_new(MU_F64, 1, (int64_t[]){2}, values);
}

static inline int counted(mu_accumulator *a) { return (int)mu_scalar(mu_accumulator_num_accumulated(a)); }

// A thread that waits for `required` gradients, and the first element of what it got.
typedef struct taker {
    pthread_t thread;
    mu_accumulator *accumulator;
    mu_cancellation *cancellation;
    int required;
    double seconds, got;
    mu_status status;
} taker;

static inline void *take(void *arg)
{
    taker *t = arg;
    mu_pool *pool = mu_pool_open();
    mu_cancellation_use(t->cancellation);
    mu_tensor *taken = mu_accumulator_take_grad(t->accumulator, t->required, .timeout_seconds = t->seconds);
    t->got = taken ? mu_scalar(taken) : 0;
    t->status = mu_error_take().code;
    mu_cancellation_use(NULL);
    mu_pool_close(pool);
    return NULL;
}

static inline void take_in_thread(taker *t, mu_accumulator *a, int required, double seconds)
{
    *t = (taker){.accumulator = a, .required = required, .seconds = seconds, .cancellation = mu_cancellation_new()};
    assert_int_equal(pthread_create(&t->thread, NULL, take, t), 0);
}

#endif
