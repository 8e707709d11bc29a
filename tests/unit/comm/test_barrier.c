// The barrier: no rank passes early or misses a wake-up, a deadline ends the wait, and an abort ends all waits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { RANKS = 5, ROUNDS = 3000 };

typedef struct hall {
    mu_barrier barrier;
    atomic_int inside[ROUNDS]; // arrivals per round
    atomic_bool early;
    bool crowded;
} hall;

typedef struct guest {
    hall *h;
    unsigned seed;
    uint32_t epoch;
    mu_status status;
} guest;

// Sometimes waits long enough for the other ranks to go to sleep.
static void dawdle(unsigned *seed)
{
    if (rand_r(seed) % 100 == 0)
        nanosleep(&(struct timespec){.tv_nsec = rand_r(seed) % 1000000}, NULL);
}

static void *attend(void *arg)
{
    guest *g = arg;
    for (int round = 0; round < ROUNDS && g->status == MU_OK; round++) {
        dawdle(&g->seed);
        atomic_fetch_add(&g->h->inside[round], 1);
        g->status =
            mu__barrier_wait(&g->h->barrier, &g->epoch, RANKS, (mu_backoff){.timeout = 30, .crowded = g->h->crowded});
        if (g->status == MU_OK && atomic_load(&g->h->inside[round]) != RANKS)
            atomic_store(&g->h->early, true);
    }
    return NULL;
}

static hall *hall_new(bool crowded)
{
    hall *h = aligned_alloc(64, (sizeof *h + 63) / 64 * 64);
    assert_non_null(h);
    memset(h, 0, sizeof *h);
    h->crowded = crowded;
    return h;
}

static void all_attend(hall *h, guest *guests, void (*meanwhile)(hall *h))
{
    pthread_t threads[RANKS];
    for (int i = 0; i < RANKS; i++) {
        guests[i] = (guest){.h = h, .seed = (unsigned)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, attend, &guests[i]), 0);
    }
    if (meanwhile != NULL)
        meanwhile(h);
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
}

static void test_nobody_passes_early(void **state)
{
    guest guests[RANKS];
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        hall *h = hall_new(crowded == 1);
        all_attend(h, guests, NULL);
        assert_false(atomic_load(&h->early));
        for (int i = 0; i < RANKS; i++)
            assert_int_equal(guests[i].status, MU_OK);
        free(h);
    }
}

// The counter of arrivals may wrap at any time.
static void test_wraps(void **state)
{
    hall *h = hall_new(true);
    guest guests[RANKS];
    pthread_t threads[RANKS];
    const uint32_t epoch = UINT32_MAX / RANKS - ROUNDS / 2;
    (void)state;
    atomic_store(&h->barrier.arrivals, epoch * RANKS);
    for (int i = 0; i < RANKS; i++) {
        guests[i] = (guest){.h = h, .seed = (unsigned)i + 1, .epoch = epoch};
        assert_int_equal(pthread_create(&threads[i], NULL, attend, &guests[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(guests[i].status, MU_OK);
    }
    assert_false(atomic_load(&h->early));
    free(h);
}

static void abort_soon(hall *h)
{
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    mu__barrier_abort(&h->barrier);
    mu__barrier_abort(&h->barrier);
}

static void test_abort(void **state)
{
    guest guests[RANKS];
    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        hall *h = hall_new(turn % 2 == 0);
        all_attend(h, guests, abort_soon);
        for (int i = 0; i < RANKS; i++)
            assert_int_equal(guests[i].status, MU_ABORTED);
        assert_false(atomic_load(&h->early));
        free(h);
    }
}

static void test_deadline(void **state)
{
    hall *h = hall_new(false);
    uint32_t epoch = 0;
    (void)state;
    const int64_t begin = mu__now_ns();
    assert_int_equal(mu__barrier_wait(&h->barrier, &epoch, 2, (mu_backoff){.timeout = 0.12}), MU_DEADLINE_EXCEEDED);
    assert_true(mu__now_ns() - begin >= 120000000);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_passes_early),
        cmocka_unit_test(test_wraps),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
