// Tests of where a variable's value is stored: acquired in two memory spaces and on the host, read and written in turn,
// and poisoned.
#include "../model/model_test.h"
#include "../tensor/own_memory_space.h"

#include "graph/graph.h"

static own_memory_space left, right;

static int start(void **state)
{
    left = (own_memory_space)OWN_MEMORY_SPACE("LEFT:0");
    right = (own_memory_space)OWN_MEMORY_SPACE("RIGHT:0");
    return start_devices(state);
}

static int end(void **state)
{
    const int failed = end_library(state);
    return failed || left.live != 0 || right.live != 0;
}

static mu_buffer *acquired(mu_variable *variable, const mu_memory_space *space, mu_access access)
{
    mu_buffer *held = NULL;
    if (variable->resource.kind->acquire(&variable->resource, 0, space, access, &held) != MU_OK)
        return NULL;
    assert_ptr_equal(held->memory_space, space);
    return mu__give(held);
}

static double read_at(mu_variable *variable, const mu_memory_space *space)
{
    double value;
    mu_buffer *held = acquired(variable, space, MU_ACCESS_READ);
    assert_non_null(held);
    assert_int_equal(mu__buffer_to_host(held, &value), MU_OK);
    return value;
}

static void write_at(mu_variable *variable, const mu_memory_space *space, mu_access access, double value)
{
    mu_buffer *held = acquired(variable, space, access);
    assert_non_null(held);
    assert_int_equal(mu__buffer_from_host(held, &value), MU_OK);
    assert_int_equal(variable->resource.kind->commit(&variable->resource, 0, access, held), MU_OK);
}

// Each row writes somewhere and reads everywhere.
static void the_newest_value_is_seen_everywhere(void **state)
{
    (void)state;
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 1), "v");
    const mu_memory_space *spaces[] = {&mu__host_memory, &left.memory_space, &right.memory_space};
    double value = 1;
    for (int round = 0; round < 27; round++) {
        write_at(v, spaces[round % 3], round / 9 % 2 ? MU_ACCESS_WRITE : MU_ACCESS_READ_WRITE, ++value);
        for (int i = 0; i < 3; i++)
            assert_true(read_at(v, spaces[(round / 3 + i) % 3]) == value);
        assert_true(mu_scalar(mu_variable_read(v)) == value);
    }
    assert_int_equal(mu_variable_assign_add(v, mu_constant(MU_F64, 10)), MU_OK);
    assert_true(read_at(v, &right.memory_space) == value + 10);
}

static void a_value_is_copied_only_when_it_has_to_be(void **state)
{
    (void)state;
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 1), "v");
    for (int step = 0; step < 10; step++)
        write_at(v, &left.memory_space, MU_ACCESS_READ_WRITE, step); // counts one transfer of the test's own
    assert_int_equal(left.from_host, 11);
    assert_int_equal(left.to_host, 0);
    for (int i = 0; i < 3; i++)
        assert_true(mu_scalar(mu_variable_read(v)) == 9);
    assert_int_equal(left.to_host, 1);
    for (int i = 0; i < 3; i++)
        assert_true(read_at(v, &right.memory_space) == 9);
    assert_int_equal(right.from_host, 1);
    write_at(v, &right.memory_space, MU_ACCESS_WRITE, 4);
    assert_int_equal(left.live, 0 + 1); // the pool still holds what the test acquired
    assert_true(mu_scalar(mu_variable_read(v)) == 4);
}

static void what_is_in_doubt_can_only_be_overwritten(void **state)
{
    (void)state;
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 1), "v");
    write_at(v, &left.memory_space, MU_ACCESS_READ_WRITE, 2);
    v->resource.kind->poison(&v->resource, 0);
    assert_null(acquired(v, &left.memory_space, MU_ACCESS_READ));
    expect_error(MU_FAILED_PRECONDITION, "'v' was left in doubt");
    assert_null(acquired(v, &mu__host_memory, MU_ACCESS_READ_WRITE));
    expect_error(MU_FAILED_PRECONDITION, "'v' was left in doubt");
    assert_non_null(acquired(v, &left.memory_space, MU_ACCESS_WRITE)); // and not committed
    assert_null(mu_variable_read(v));
    expect_error(MU_FAILED_PRECONDITION, "'v' was left in doubt");
    write_at(v, &left.memory_space, MU_ACCESS_WRITE, 3);
    assert_true(mu_scalar(mu_variable_read(v)) == 3);
    v->resource.kind->poison(&v->resource, 0);
    assert_int_equal(mu_variable_assign(v, mu_constant(MU_F64, 5)), MU_OK);
    assert_true(read_at(v, &left.memory_space) == 5);
}

static void a_place_that_fails_changes_nothing(void **state)
{
    (void)state;
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 1), "v");
    left.fails = true;
    assert_null(acquired(v, &left.memory_space, MU_ACCESS_READ));
    expect_error(MU_UNAVAILABLE, "LEFT:0 does not answer");
    assert_true(mu_scalar(mu_variable_read(v)) == 1);
    left.fails = false;
    write_at(v, &left.memory_space, MU_ACCESS_READ_WRITE, 2);
    left.fails = true;
    assert_null(mu_variable_read(v));
    expect_error(MU_UNAVAILABLE, "LEFT:0 does not answer");
    assert_null(acquired(v, &right.memory_space, MU_ACCESS_READ));
    expect_error(MU_UNAVAILABLE, "LEFT:0 does not answer");
    left.fails = false;
    assert_true(mu_scalar(mu_variable_read(v)) == 2);
}

static void acquiring_without_memory(void **state)
{
    (void)state;
    mu_variable *v = mu_variable_new(mu_constant(MU_F64, 6), "v");
    mu_buffer *held = NULL;
    int failures = 0;
    for (; !held && failures < 20; failures++) {
        mu__alloc_fail_at(failures + 1);
        (void)v->resource.kind->acquire(&v->resource, 0, &left.memory_space, MU_ACCESS_READ, &held);
        mu__alloc_fail_at(0);
        if (!held)
            expect_error(MU_RESOURCE_EXHAUSTED, "");
    }
    assert_true(failures > 3);
    mu_release(held);
    assert_true(read_at(v, &left.memory_space) == 6);
}

#define STORAGE_TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORAGE_TEST(the_newest_value_is_seen_everywhere),
        STORAGE_TEST(a_value_is_copied_only_when_it_has_to_be),
        STORAGE_TEST(what_is_in_doubt_can_only_be_overwritten),
        STORAGE_TEST(a_place_that_fails_changes_nothing),
        STORAGE_TEST(acquiring_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
