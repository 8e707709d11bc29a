// The coordinator's queue where the numbered cases (ps-043 to ps-049) say nothing: its limit, its deadlines and its
// end.
#include "../data/data_test.h"
#include "coordinator/closure_queue.h"

#include <pthread.h>

static mu_type closure_type = {.name = "test closure"};

static mu_closure *closure(int tag)
{
    mu_closure *made = mu__give(mu__new(&closure_type, sizeof *made));
    assert_non_null(made);
    made->tag = tag;
    return made;
}

static int64_t soon(void) { return mu__deadline_ns(0.01); }

static int64_t later(void) { return mu__deadline_ns(60); }

static mu_closure *get(mu_closure_queue *queue, int tag)
{
    mu_cancellation *cancellation = NULL;
    mu_closure *taken = mu__closures_get(queue, tag, soon(), &cancellation);
    mu_release(cancellation);
    return mu__give(taken);
}

static void a_full_queue_refuses_after_the_deadline(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(2);
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), soon()), MU_OK);
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), soon()), MU_OK);
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), soon()), MU_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(mu_error_take().message, "2 calls wait"));
    mu__closures_put_tagged(queue, closure(0)); // has no limit
    mu__closures_finished(queue, get(queue, 1));
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), soon()), MU_OK);
    int64_t waiting = 0, in_flight = 0;
    mu__closures_count(queue, &waiting, &in_flight);
    assert_true(waiting == 2 && in_flight == 0);
    mu__closures_free(queue);
}

static void *take_one(void *arg)
{
    mu_closure *taken = NULL;
    mu_cancellation *cancellation = NULL;
    taken = mu__closures_get(arg, 0, later(), &cancellation);
    mu__closures_finished(arg, taken);
    mu_release(cancellation);
    mu_release(taken);
    return NULL;
}

static void a_put_waits_for_a_place(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(1);
    pthread_t taker;
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), later()), MU_OK);
    assert_int_equal(pthread_create(&taker, NULL, take_one, queue), 0);
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), later()), MU_OK);
    pthread_join(taker, NULL);
    mu__closures_free(queue);
}

static void *join_all(void *arg)
{
    mu__closures_wait(arg, later());
    return NULL;
}

static mu_status put_for(mu_closure_queue *queue, int64_t seconds)
{
    const mu_status status = mu__closures_put(queue, closure(MU_NO_TAG), mu__deadline_ns((double)seconds));
    if (status != MU_OK)
        assert_non_null(strstr(mu_error_take().message, "another thread joins the coordinator"));
    return status;
}

// A thread waits for a running call. The deadlines of other threads still hold: they wait for that thread's join only
// until their own deadline, and not at all without one.
static void a_join_of_another_thread_is_waited_for_until_the_deadline(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(0);
    pthread_t joiner;
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), later()), MU_OK);
    mu_closure *running = get(queue, 0);
    assert_int_equal(pthread_create(&joiner, NULL, join_all, queue), 0);
    while (put_for(queue, 0) == MU_OK) // until the other thread joins
        mu__closures_finished(queue, get(queue, 0));
    assert_int_equal(mu__closures_wait(queue, soon()), MU_DEADLINE_EXCEEDED);
    assert_non_null(strstr(mu_error_take().message, "1 calls run and 0 wait"));
    mu__closures_finished(queue, running);
    assert_int_equal(put_for(queue, 60), MU_OK); // behind the join
    pthread_join(joiner, NULL);
    mu__closures_free(queue);
}

static void waits_end(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(0);
    assert_null(get(queue, 0));
    mu__closures_put(queue, closure(MU_NO_TAG), soon());
    assert_int_equal(mu__closures_wait(queue, soon()), MU_DEADLINE_EXCEEDED);
    assert_non_null(strstr(mu_error_take().message, "0 calls run and 1 wait"));
    mu__closures_free(queue);
}

static void a_call_goes_back_to_the_end(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(0);
    mu_closure *first = closure(MU_NO_TAG), *second = closure(MU_NO_TAG);
    mu__closures_put(queue, first, soon());
    mu__closures_put(queue, second, soon());
    mu__closures_put_back(queue, get(queue, 0));
    assert_ptr_equal(get(queue, 1), second);
    assert_ptr_equal(get(queue, 1), first);
    // Once there is an error, the call is cancelled instead.
    first->output = mu__remote_value_new();
    mu__closures_failed(queue, second, &(mu_error_value){.code = MU_ABORTED, .message = "failed"});
    mu__closures_put_back(queue, first);
    assert_null(mu__remote_value_take(first->output, soon()));
    assert_int_equal(mu_error_take().code, MU_CANCELLED);
    mu_release(first->output);
    assert_int_equal(mu__closures_wait(queue, soon()), MU_ABORTED);
    assert_string_equal(mu_error_take().message, "failed");
    mu__closures_free(queue);
}

// A call continues although it was cancelled. Waits for it have their deadlines; until it ends no call is handed out,
// and the error is kept.
static void a_call_that_does_not_end_holds_the_error_back(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(0);
    mu_cancellation *cancellation = NULL;
    for (int i = 0; i < 3; i++)
        mu__closures_put(queue, closure(MU_NO_TAG), soon());
    mu_closure *stuck = get(queue, 4), *failing = get(queue, 1);
    mu__closures_failed(queue, failing, &(mu_error_value){.code = MU_ABORTED, .message = "no such file"});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mu__closures_wait(queue, soon()), MU_DEADLINE_EXCEEDED);
        assert_non_null(strstr(mu_error_message(), "1 still run, the first of them on worker 4"));
        assert_non_null(strstr(mu_error_take().message, "no such file"));
        assert_true(mu__closures_cancelling(queue) && mu__closures_failing(queue));
        assert_null(get(queue, 1));
    }
    mu__closures_finished(queue, stuck);
    assert_int_equal(mu__closures_wait(queue, soon()), MU_ABORTED);
    assert_string_equal(mu_error_take().message, "no such file");
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), soon()), MU_OK);
    mu_closure *next = mu__closures_get(queue, 0, soon(), &cancellation);
    assert_non_null(next);
    assert_false(mu_cancellation_is_cancelled(cancellation));
    mu__closures_finished(queue, next);
    mu_release(cancellation);
    mu_release(next);
    assert_int_equal(mu__closures_wait(queue, soon()), MU_OK);
    mu__closures_free(queue);
}

typedef struct asking {
    mu_closure_queue *queue;
    mu_closure *handed_out;
    int asked;
} asking;

static void ask_for_another(void *arg)
{
    asking *a = arg;
    a->asked++;
    a->handed_out = get(a->queue, 1);
}

// While the running calls are being cancelled, a worker that asks for a call gets none of the waiting ones: those are
// cancelled too.
static void nothing_is_handed_out_while_calls_are_cancelled(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(0);
    mu_cancellation *cancellation = NULL;
    for (int i = 0; i < 3; i++)
        mu__closures_put(queue, closure(MU_NO_TAG), soon());
    mu_closure *running = mu__closures_get(queue, 0, soon(), &cancellation);
    asking a = {.queue = queue};
    mu_cancel_hook hook = {.wake = ask_for_another, .arg = &a};
    mu__cancel_hook_add(cancellation, &hook);
    mu__closures_failed(queue, get(queue, 1), &(mu_error_value){.code = MU_ABORTED, .message = "failed"});
    assert_int_equal(mu__closures_wait(queue, soon()), MU_DEADLINE_EXCEEDED);
    mu_error_take();
    assert_int_equal(a.asked, 1);
    assert_null(a.handed_out);
    mu__cancel_hook_remove(cancellation, &hook);
    mu__closures_finished(queue, running);
    assert_int_equal(mu__closures_wait(queue, soon()), MU_ABORTED);
    mu_error_take();
    mu_release(cancellation);
    mu_release(running);
    mu__closures_free(queue);
}

// A worker's own values are made even if another call fails meanwhile.
static void a_call_with_a_tag_is_cancelled_by_the_end_alone(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(0);
    mu_cancellation *cancellation = NULL;
    mu__closures_put_tagged(queue, closure(2));
    mu__closures_put(queue, closure(MU_NO_TAG), soon());
    mu_closure *tagged = mu__closures_get(queue, 2, soon(), &cancellation);
    mu__closures_failed(queue, get(queue, 2), &(mu_error_value){.code = MU_ABORTED, .message = "failed"});
    assert_int_equal(mu__closures_wait(queue, soon()), MU_ABORTED);
    mu_error_take();
    assert_non_null(tagged);
    assert_false(mu_cancellation_is_cancelled(cancellation));
    mu__closures_stop(queue);
    assert_true(mu_cancellation_is_cancelled(cancellation));
    mu__closures_finished(queue, tagged);
    mu_release(cancellation);
    mu_release(tagged);
    mu__closures_free(queue);
}

static void a_stopped_queue_hands_nothing_out(void **state)
{
    (void)state;
    mu_closure_queue *queue = mu__closures_new(0);
    mu_closure *tagged = closure(3);
    tagged->output = mu__remote_value_new();
    mu__closures_put_tagged(queue, tagged);
    mu__closures_put(queue, closure(MU_NO_TAG), soon());
    mu__closures_clear_tag(queue, 2);
    mu__closures_stop(queue);
    assert_true(mu__closures_cancelling(queue));
    assert_null(get(queue, 3));
    assert_null(mu__remote_value_take(tagged->output, soon()));
    assert_int_equal(mu_error_take().code, MU_CANCELLED);
    assert_int_equal(mu__closures_put(queue, closure(MU_NO_TAG), soon()), MU_FAILED_PRECONDITION);
    mu_error_take();
    mu_release(tagged->output);
    mu__closures_free(queue);
}

static void remote_values_have_one_outcome(void **state)
{
    (void)state;
    mu_remote_value *value = mu__remote_value_new();
    assert_null(mu__remote_value_take(value, soon()));
    assert_int_equal(mu_error_take().code, MU_DEADLINE_EXCEEDED);
    mu__remote_value_set(value, mu_constant(MU_F32, 7));
    mu__remote_value_fail(value, &(mu_error_value){.code = MU_INTERNAL});
    assert_true(mu_scalar(mu__give(mu__remote_value_take(value, soon()))) == 7);
    mu__remote_value_abort(value, &(mu_error_value){.code = MU_UNAVAILABLE, .message = "worker 0 is lost"});
    assert_null(mu__remote_value_take(value, soon()));
    assert_non_null(strstr(mu_error_message(), "worker 0 is lost"));
    assert_int_equal(mu_error_take().code, MU_CANCELLED);
    mu__remote_value_set(value, mu_constant(MU_F32, 8));
    assert_true(mu_scalar(mu__give(mu__remote_value_take(value, soon()))) == 8);
    mu_release(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(a_full_queue_refuses_after_the_deadline),
        DATA_TEST(a_put_waits_for_a_place),
        DATA_TEST(waits_end),
        DATA_TEST(a_join_of_another_thread_is_waited_for_until_the_deadline),
        DATA_TEST(a_call_that_does_not_end_holds_the_error_back),
        DATA_TEST(a_call_with_a_tag_is_cancelled_by_the_end_alone),
        DATA_TEST(nothing_is_handed_out_while_calls_are_cancelled),
        DATA_TEST(a_call_goes_back_to_the_end),
        DATA_TEST(a_stopped_queue_hands_nothing_out),
        DATA_TEST(remote_values_have_one_outcome),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
