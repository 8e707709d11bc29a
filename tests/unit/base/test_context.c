// Tests of contexts: a thread's own, children on the same and on another thread, the end of a thread.
#include "base_test.h"

static mu_type thing_type = {.name = "thing"};

static void *make(void) { return mu__give(mu__new(&thing_type, sizeof(mu_object))); }

static void test_child_hands_result_and_error_up(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_context *parent = mu__context();
    mu_context child = {0};
    assert_int_equal(mu__context_enter(&child, parent), MU_OK);
    assert_ptr_equal(mu__context(), &child);
    make();
    void *result = make();
    assert_int_equal(mu__live_objects(NULL), 2);
    mu_fail(MU_ABORTED, "inside");
    assert_ptr_equal(mu__context_leave(&child, result, NULL), result);
    assert_ptr_equal(mu__context(), parent);
    assert_int_equal(mu__live_objects(NULL), 1);
    assert_taken(MU_ABORTED, "inside");
    mu_pool_close(pool);
    assert_int_equal(mu__live_objects(NULL), 0);
}

static void test_child_inherits(void **state)
{
    (void)state;
    mu_context *parent = mu__context();
    struct mu_scope *scope = (struct mu_scope *)state;
    parent->scope = scope;
    parent->tape = (struct mu_tape *)state;
    mu_context child = {0};
    assert_int_equal(mu__context_enter(&child, parent), MU_OK);
    assert_ptr_equal(child.scope, scope);
    assert_null(child.tape);
    assert_null(mu__context_leave(&child, NULL, NULL));
    parent->scope = NULL;
    parent->tape = NULL;
}

static void test_parent_record_does_not_reach_the_child(void **state)
{
    (void)state;
    mu_fail(MU_INTERNAL, "outside");
    mu_context child = {0};
    assert_int_equal(mu__context_enter(&child, mu__context()), MU_OK);
    assert_false(mu__pending());
    mu_fail(MU_ABORTED, "inside");
    mu__context_leave(&child, NULL, NULL);
    assert_taken(MU_INTERNAL, "outside");
}

struct job {
    mu_context *parent;
    void *result;
    mu_error_value error;
};

static void *run_on_thread(void *arg)
{
    struct job *job = arg;
    make(); // goes to the pool of the thread itself, closed when it ends
    mu_context child = {0};
    if (mu__context_enter(&child, job->parent) != MU_OK)
        return NULL;
    make();
    void *result = make();
    mu_fail(MU_DATA_LOSS, "over there");
    job->result = mu__context_leave(&child, result, &job->error);
    return NULL;
}

static void test_child_on_another_thread(void **state)
{
    (void)state;
    struct job job = {.parent = mu__context()};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_on_thread, &job), 0);
    pthread_join(thread, NULL);
    assert_int_equal(job.error.code, MU_DATA_LOSS);
    assert_string_equal(job.error.message, "over there");
    assert_false(mu__pending());
    assert_int_equal(mu__live_objects(NULL), 1);
    mu_release(job.result);
    assert_int_equal(mu__live_objects(NULL), 0);
}

static bool enter_and_leave(void *arg)
{
    (void)arg;
    mu__context_unwind();
    mu_context child = {0};
    if (mu__context_enter(&child, mu__context()) != MU_OK)
        return false;
    void *result = mu__context_leave(&child, make(), NULL);
    mu__context_unwind();
    return result != NULL;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    with_failing_allocations(enter_and_leave, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child_hands_result_and_error_up),
        cmocka_unit_test(test_child_inherits),
        cmocka_unit_test(test_parent_record_does_not_reach_the_child),
        cmocka_unit_test(test_child_on_another_thread),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
