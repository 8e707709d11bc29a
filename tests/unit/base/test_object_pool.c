// Tests of reference counts and pools: order, nesting, moving objects out, misuse, failing allocations.
#include "base_test.h"

typedef struct thing {
    mu_object object;
    int number;
    void (*at_end)(void);
} thing;

static char destroyed[1000]; // numbers in the order of destruction

static void thing_destroy(void *object)
{
    const thing *gone = object;
    const size_t used = strlen(destroyed);
    if (used + 8 < sizeof destroyed)
        snprintf(destroyed + used, sizeof destroyed - used, "%d ", gone->number);
    if (gone->at_end != NULL)
        gone->at_end();
}

static mu_type thing_type = {.name = "thing", .destroy = thing_destroy};
static mu_type other_type = {.name = "other"};

static thing *make(int number)
{
    thing *made = mu__new(&thing_type, sizeof *made);
    if (made != NULL)
        made->number = number;
    return mu__give(made);
}

static int start(void **state)
{
    (void)state;
    destroyed[0] = '\0';
    return 0;
}

static void test_reverse_order(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (int i = 1; i <= 4; i++)
        assert_non_null(make(i));
    assert_int_equal(mu__live_objects(NULL), 4);
    mu_pool_close(pool);
    assert_string_equal(destroyed, "4 3 2 1 ");
    assert_int_equal(mu__live_objects(NULL), 0);
}

static void test_retain_outlives_pool(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    thing *kept = mu_retain(make(1));
    mu_pool_close(pool);
    assert_string_equal(destroyed, "");
    assert_true(mu__is(kept, &thing_type));
    assert_false(mu__is(kept, &other_type));
    assert_false(mu__is(NULL, &other_type));
    mu_release(kept);
    assert_string_equal(destroyed, "1 ");
    assert_null(mu_retain(NULL));
    mu_release(NULL);
}

static thing *watched;

static void look_at_watched(void) { assert_null(mu__retain_living(watched)); }

static void test_what_is_being_freed_is_not_retained(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    watched = make(1);
    watched->at_end = look_at_watched;
    assert_ptr_equal(mu__retain_living(watched), watched);
    mu_pool_close(pool);
    assert_string_equal(destroyed, "");
    mu_release(watched);
    assert_string_equal(destroyed, "1 ");
    assert_null(mu__retain_living(NULL));
}

static void test_closing_closes_inner_pools(void **state)
{
    (void)state;
    mu_pool *outer = mu_pool_open();
    make(1);
    mu_pool_open();
    make(2);
    mu_pool_open();
    make(3);
    mu_pool_close(outer);
    assert_string_equal(destroyed, "3 2 1 ");
    mu_pool_close(NULL);
    assert_no_error();
}

static void test_moving_out(void **state)
{
    (void)state;
    mu_pool *outer = mu_pool_open(), *inner = mu_pool_open();
    make(1);
    thing *result = make(2);
    assert_ptr_equal(mu__pool_return(inner, result), result);
    mu_pool_close(inner);
    assert_string_equal(destroyed, "1 ");
    assert_int_equal(result->number, 2);
    mu_pool_close(outer);
    assert_string_equal(destroyed, "1 2 ");
    assert_null(mu__pool_return(NULL, NULL));
}

static void test_moving_out_of_a_first_pool(void **state)
{
    (void)state;
    mu__context_unwind();
    mu_pool *first = mu_pool_open();
    thing *result = mu__pool_return(first, make(1));
    mu_pool_close(first);
    assert_int_equal(result->number, 1);
    mu__context_unwind();
    assert_string_equal(destroyed, "1 ");
}

static void test_closing_twice_is_an_error(void **state)
{
    (void)state;
    mu_pool *outer = mu_pool_open(), *inner = mu_pool_open();
    mu_pool_close(inner);
    mu_pool_close(inner);
    assert_taken(MU_FAILED_PRECONDITION, "mu_pool_close");
    mu_pool_close(outer);
    assert_no_error();
}

static void make_at_end(void)
{
    mu_pool_open();
    make(9);
}

static void test_a_destructor_may_make_things(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    make(1);
    make(2)->at_end = make_at_end;
    mu_pool_close(pool);
    assert_string_equal(destroyed, "2 9 1 ");
}

static void test_works_with_a_record_pending(void **state)
{
    (void)state;
    mu_fail(MU_INTERNAL, "earlier");
    mu_pool *pool = mu_pool_open();
    mu_release(mu_retain(make(1)));
    mu_pool_close(pool);
    assert_string_equal(destroyed, "1 ");
    assert_taken(MU_INTERNAL, "earlier");
}

static void fill_pool(void *arg)
{
    (void)arg;
    mu_pool *pool = mu_pool_open();
    thing *one = make(1);
    for (int i = 0; i < 1000010; i++)
        assert_non_null(mu__give(mu_retain(one)));
    mu_pool_close(pool);
}

static void test_a_huge_pool_is_reported_once(void **state)
{
    (void)state;
    char text[1000];
    catch_stderr(fill_pool, NULL, text, sizeof text);
    const char *first = strstr(text, "1000000 objects");
    assert_non_null(first);
    assert_null(strstr(first + 1, "1000000 objects"));
}

static void test_live_report(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    make(1);
    make(2);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(mu__live_objects(out), 2);
    fclose(out);
    assert_string_equal(text, "2 live thing\n");
    free(text);
    mu_pool_close(pool);
}

static bool use_pools(void *arg)
{
    (void)arg;
    mu__context_unwind();
    mu_pool *outer = mu_pool_open(), *inner = mu_pool_open();
    bool succeeded = outer != NULL && inner != NULL;
    for (int i = 0; i < 20; i++)
        succeeded = make(i) != NULL && succeeded;
    if (inner != NULL)
        succeeded = mu__pool_return(inner, make(20)) != NULL && succeeded;
    mu_pool_close(inner);
    mu_pool_close(outer);
    mu__context_unwind();
    return succeeded;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    with_failing_allocations(use_pools, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reverse_order, start),
        cmocka_unit_test_setup(test_retain_outlives_pool, start),
        cmocka_unit_test_setup(test_what_is_being_freed_is_not_retained, start),
        cmocka_unit_test_setup(test_closing_closes_inner_pools, start),
        cmocka_unit_test_setup(test_moving_out, start),
        cmocka_unit_test_setup(test_moving_out_of_a_first_pool, start),
        cmocka_unit_test_setup(test_closing_twice_is_an_error, start),
        cmocka_unit_test_setup(test_a_destructor_may_make_things, start),
        cmocka_unit_test_setup(test_works_with_a_record_pending, start),
        cmocka_unit_test_setup(test_a_huge_pool_is_reported_once, start),
        cmocka_unit_test_setup(test_live_report, start),
        cmocka_unit_test_setup(test_failing_allocations, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
