// Tests of the clock and of deadlines.
#include "base_test.h"

#include "base/system.h"

#include <math.h>

static void test_deadlines(void **state)
{
    (void)state;
    const int64_t now = mu__now_ns();
    assert_true(mu__now_ns() >= now);
    const int64_t soon = mu__deadline_ns(0.5);
    assert_true(soon >= now + 500000000 && soon < now + 5000000000);
    assert_true(mu__deadline_ns(-1) <= mu__now_ns());
    assert_true(mu__deadline_ns(NAN) <= mu__now_ns());
    assert_true(mu__deadline_ns(INFINITY) == MU_FOREVER);
    assert_true(mu__deadline_ns(1e300) == MU_FOREVER);
}

static int64_t noon(void) { return 43200; }
static bool sevens(void *out, size_t bytes) { return memset(out, 7, bytes) != NULL; }

// The test's own system table: the library takes its time and random numbers from it.
static void test_another_system(void **state)
{
    (void)state;
    const mu_system own = {.name = "own", .now_ns = noon, .random = sevens};
    uint8_t bytes[3] = {0};
    mu__system = &own;
    const int64_t now = mu__now_ns(), deadline = mu__deadline_ns(1);
    const mu_status status = mu__random(bytes, sizeof bytes);
    mu__system = &mu__linux;
    assert_true(now == 43200 && deadline == 1000043200);
    assert_true(status == MU_OK && bytes[0] == 7 && bytes[2] == 7);
    assert_true(mu__now_ns() > 43200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_deadlines), cmocka_unit_test(test_another_system)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
