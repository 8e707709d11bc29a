// Tests of the clock and of deadlines.
#include "base_test.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_deadlines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
