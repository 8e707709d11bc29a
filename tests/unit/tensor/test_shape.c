// Tests of shapes: counting, broadcasting with unknown dimensions, refusals, text.
#include "tensor_test.h"

static void expect_broadcast(mu_shape a, mu_shape b, mu_shape wanted)
{
    mu_shape out;
    assert_int_equal(mu__broadcast(&a, &b, &out, "test"), MU_OK);
    assert_true(mu__shape_equal(&out, &wanted));
}

static void test_broadcast(void **state)
{
    (void)state;
    mu_shape out;
    expect_broadcast(MU_SHAPE(4, 1, 3), MU_SHAPE(5, 1), MU_SHAPE(4, 5, 3));
    expect_broadcast(mu__scalar_shape, MU_SHAPE(0, 2), MU_SHAPE(0, 2));
    expect_broadcast(MU_SHAPE(1), MU_SHAPE(0), MU_SHAPE(0));
    expect_broadcast(MU_SHAPE(-1, 3), MU_SHAPE(1, 3), MU_SHAPE(-1, 3));
    expect_broadcast(MU_SHAPE(-1, 3), MU_SHAPE(7, 1), MU_SHAPE(7, 3));
    expect_broadcast(MU_SHAPE(-1), MU_SHAPE(-1), MU_SHAPE(-1));
    expect_broadcast(MU_SHAPE(-1), MU_SHAPE(0), MU_SHAPE(0));
    mu_shape a = MU_SHAPE(2, 3), b = MU_SHAPE(2);
    assert_int_equal(mu__broadcast(&a, &b, &out, "add"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "add: shapes [2, 3] and [2]");
}

static void test_counts(void **state)
{
    (void)state;
    mu_shape known = MU_SHAPE(2, 0, 3), open = MU_SHAPE(2, -1), empty = MU_SHAPE(0, -1);
    assert_int_equal(mu__elements(&known), 0);
    assert_int_equal(mu__elements(&mu__scalar_shape), 1);
    assert_int_equal(mu__elements(&open), MU_UNKNOWN);
    assert_int_equal(mu__elements(&empty), 0);
    assert_false(mu__shape_known(&open));
}

static void test_refusals(void **state)
{
    (void)state;
    mu_shape huge = MU_SHAPE((int64_t)1 << 40, (int64_t)1 << 40), negative = MU_SHAPE(-2), deep = {.rank = 9};
    assert_int_equal(mu__shape_check(&huge, "zeros"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "more bytes than can be counted");
    assert_int_equal(mu__shape_check(&negative, "zeros"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "dimension 0 is -2");
    assert_int_equal(mu__shape_check(&deep, "zeros"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "rank 9");
}

static void test_axes(void **state)
{
    (void)state;
    assert_int_equal(mu__axis(-1, 3, "sum"), 2);
    assert_int_equal(mu__axis(3, 3, "sum"), -1);
    assert_taken(MU_INVALID_ARGUMENT, "sum: axis 3 is outside -3 to 2");
    assert_int_equal(mu__axis(0, 0, "sum"), -1);
    assert_taken(MU_INVALID_ARGUMENT, "scalar");
}

static void test_text(void **state)
{
    (void)state;
    char text[MU_SHAPE_TEXT];
    mu_shape open = MU_SHAPE(2, -1);
    mu_shape longest = MU_SHAPE(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);
    assert_string_equal(mu__shape_text(&open, text), "[2, ?]");
    assert_string_equal(mu__shape_text(&mu__scalar_shape, text), "[]");
    assert_true(strlen(mu__shape_text(&longest, text)) < MU_SHAPE_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast), cmocka_unit_test(test_counts), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_axes),      cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
