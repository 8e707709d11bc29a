// The arena's layout: blocks that live at the same time never overlap, for lifetimes drawn at random, and no memory is
// wasted where the optimum is known.
#include "engine/cpu/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST 200

static unsigned next_random(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static bool together(const block *a, const block *b) { return a->first <= b->last && b->first <= a->last; }

static void check(const block *blocks, const size_t *wanted, int n, size_t total)
{
    size_t alive = 0;
    for (int i = 0; i < n; i++) {
        size_t at_once = 0;
        assert_int_equal(*blocks[i].offset % 64, 0);
        assert_true(*blocks[i].offset + wanted[i] <= total);
        for (int k = 0; k < n; k++) {
            at_once += blocks[k].first <= blocks[i].first && blocks[i].first <= blocks[k].last ? wanted[k] : 0;
            if (k == i || !together(&blocks[i], &blocks[k]))
                continue;
            assert_true(*blocks[i].offset + wanted[i] <= *blocks[k].offset ||
                        *blocks[k].offset + wanted[k] <= *blocks[i].offset);
        }
        alive = at_once > alive ? at_once : alive;
    }
    assert_true(total >= alive);
}

static void random_lifetimes_do_not_overlap(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int turn = 0; turn < 400; turn++) {
        block blocks[MOST];
        size_t offsets[MOST], wanted[MOST], total;
        int n = (int)next_random(&seed, MOST) + 1;
        for (int i = 0; i < n; i++) {
            int first = (int)next_random(&seed, 100),
                last = first + (int)next_random(&seed, 1 + next_random(&seed, 60));
            wanted[i] = next_random(&seed, 10) == 0 ? 1 + next_random(&seed, 100000) : 1 + next_random(&seed, 300);
            blocks[i] = (block){.bytes = wanted[i],
                                .first = first,
                                .last = next_random(&seed, 20) ? last : INT32_MAX,
                                .offset = &offsets[i]};
        }
        assert_int_equal(mu__memory_plan(blocks, n, &total), MU_OK);
        check(blocks, wanted, n, total);
    }
}

static void fusions_need_two_places(void **state)
{
    (void)state;
    block blocks[50];
    size_t offsets[50], total;
    for (int i = 0; i < 50; i++)
        blocks[i] = (block){.bytes = 640, .first = i, .last = i + 1, .offset = &offsets[i]};
    assert_int_equal(mu__memory_plan(blocks, 50, &total), MU_OK);
    assert_int_equal(total, 1280);
}

static void nothing_needs_nothing(void **state)
{
    (void)state;
    size_t total = 1, offset;
    assert_int_equal(mu__memory_plan(NULL, 0, &total), MU_OK);
    assert_int_equal(total, 0);
    block empty = {.bytes = 0, .first = 3, .last = 4, .offset = &offset};
    assert_int_equal(mu__memory_plan(&empty, 1, &total), MU_OK);
    assert_int_equal(total, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lifetimes_do_not_overlap),
        cmocka_unit_test(fusions_need_two_places),
        cmocka_unit_test(nothing_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
