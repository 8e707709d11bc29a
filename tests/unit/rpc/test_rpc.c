// Servers and clients in one process: calls of every kind, errors, deadlines, cancelling, limits.
#include "rpc/rpc.h"
#include "rpc_test.h"

#include "tensor/tensor.h"

#include <muster/cancellation.h>
#include <pthread.h>
#include <unistd.h>

static atomic_int n_running, n_stopped;

// ---- Methods ------------------------------------------------------------------------------------

static mu_value *multiply(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(arguments, 0), mu_at(arguments, 1)));
}

static mu_value *echo(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static mu_value *nothing(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return NULL;
}

static mu_value *broken(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_fail(MU_DATA_LOSS, "the disk is gone");
    return NULL;
}

// Waits for a gradient that never comes.
static mu_value *wait_forever(mu_value *arguments, void *arg)
{
    (void)arguments;
    atomic_fetch_add(&n_running, 1);
    mu_value *value = mu_of(mu_accumulator_take_grad(arg, 1));
    atomic_fetch_add(&n_stopped, mu_error_code() == MU_CANCELLED);
    return value;
}

// ---- A server and a client ----------------------------------------------------------------------

typedef struct ends {
    mu_rpc_server *server;
    mu_rpc_client *client;
    mu_accumulator *accumulator;
} ends;

static ends connect_ends(const mu_rpc_server_args *limits)
{
    ends e = {0};
    mu_rpc_server_args args = limits != NULL ? *limits : (mu_rpc_server_args){0};
    args.size = sizeof args;
    args.rpc_layer = "muster";
    args.address = "localhost:0";
    e.accumulator = mu_conditional_accumulator(MU_F32);
    e.server = mu_rpc_server_new_with(&args);
    assert_non_null(e.server);
    mu_rpc_server_register(e.server, "multiply", .fn = multiply, .input_signature = "(int32[], int32[])",
                           .output_signature = "int32[]");
    mu_rpc_server_register(e.server, "echo", .fn = echo);
    mu_rpc_server_register(e.server, "once", .fn = nothing);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mu__server_once(e.server, "once"), MU_OK);
    assert_int_equal(mu__server_once(e.server, "onec"), MU_INTERNAL);
    expect_error(MU_INTERNAL, "no method \"onec\"");
    mu_rpc_server_register(e.server, "nothing", .fn = nothing);
    mu_rpc_server_register(e.server, "broken", .fn = broken);
    mu_rpc_server_register(e.server, "wait", .fn = wait_forever, .arg = e.accumulator);
    assert_int_equal(mu_rpc_server_start(e.server), MU_OK);
    e.client = mu_rpc_client_new("muster", mu_rpc_server_address(e.server), .timeout_in_ms = 60000);
    assert_non_null(e.client);
    return e;
}

static void await(const atomic_int *count, int value)
{
    for (int i = 0; i < 3000 && atomic_load(count) != value; i++)
        usleep(10000);
    assert_int_equal(atomic_load(count), value);
}

static void test_calls(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    mu_rpc_result *result = mu_rpc_call(e.client, "multiply", pair(2, 3));
    assert_true(mu_rpc_result_is_ok(result));
    assert_true(mu_scalar(mu_rpc_result_value(result)) == 6);
    mu_value *nest =
        mu_map("test", mu_list(number(2), pair(2, 2), MU_END), "test1", mu_list(number(2), MU_END), MU_END);
    mu_value *back = mu_rpc_result_value(mu_rpc_call(e.client, "echo", nest));
    assert_true(mu_scalar(mu_at(mu_value_at(mu_value_get(back, "test"), 1), 1)) == 2);
    result = mu_rpc_call(e.client, "nothing");
    assert_null(mu_rpc_result_value(result));
    assert_int_equal(mu_error_code(), MU_OK);
    assert_true(mu_rpc_result_is_done(result));
    mu_pool_close(pool);
    assert_int_equal(mu_error_code(), MU_OK);
}

static void test_errors_have_their_codes(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    expect_result(mu_rpc_call(e.client, "broken"), MU_DATA_LOSS, "the disk is gone");
    expect_result(mu_rpc_call(e.client, "sing"), MU_INVALID_ARGUMENT, "no method \"sing\"");
    expect_result(mu_rpc_call(e.client, "multiply", mu_list(number(1), MU_END)), MU_INVALID_ARGUMENT, "is missing");
    assert_null(mu_rpc_result_value(mu_rpc_call(e.client, "broken")));
    expect_error(MU_DATA_LOSS, "\"broken\" at localhost:");
    expect_result(mu_rpc_call(e.client, "multiply", pair(4, 5)), MU_OK, "");
    mu_pool_close(pool);
}

static void test_the_list_of_methods(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    const char *const *methods = mu_rpc_client_methods(e.client);
    assert_non_null(methods);
    assert_string_equal(methods[0], "multiply");
    assert_string_equal(methods[5], "wait");
    assert_null(methods[6]);
    assert_string_equal(mu_rpc_client_signature(e.client, "multiply"), "(int32[], int32[]) -> int32[]");
    assert_string_equal(mu_rpc_client_signature(e.client, "echo"), "? -> ?");
    assert_null(mu_rpc_client_signature(e.client, "sing"));
    expect_error(MU_NOT_FOUND, "no method \"sing\"");
    mu_pool_close(pool);
}

static void test_large_values_pass_beside_small_ones(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    const int64_t n = 5000003; // 20 MB, not a multiple of a part
    mu_tensor *large = mu_tensor_new(MU_I32, 1, &n, NULL);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)mu__host_write(large))[i] = (int32_t)i;
    mu_rpc_result *all[3], *small[50];
    for (int i = 0; i < 3; i++)
        all[i] = mu_rpc_call(e.client, "echo", mu_of(large));
    for (int i = 0; i < 50; i++)
        small[i] = mu_rpc_call(e.client, "multiply", pair(i, i));
    for (int i = 0; i < 50; i++)
        assert_true(mu_scalar(mu_rpc_result_value(small[i])) == i * i);
    for (int i = 0; i < 3; i++) {
        const mu_tensor *back = mu_value_tensor(mu_rpc_result_value(all[i]));
        assert_non_null(back);
        assert_memory_equal(mu_tensor_data(back), mu_tensor_data(large), (size_t)n * 4);
    }
    mu_pool_close(pool);
}

static void test_a_deadline_ends_the_call_on_both_sides(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    const int stopped = atomic_load(&n_stopped);
    mu_rpc_result *result = mu_rpc_call(e.client, "wait", NULL, .timeout_in_ms = 200);
    assert_false(mu_rpc_result_is_done(result));
    expect_result(result, MU_DEADLINE_EXCEEDED, "\"wait\" at localhost:");
    await(&n_stopped, stopped + 1);
    expect_result(mu_rpc_call(e.client, "multiply", pair(1, 1)), MU_OK, "");
    mu_pool_close(pool);
}

static void test_cancelling(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    const int running = atomic_load(&n_running), stopped = atomic_load(&n_stopped);
    mu_rpc_result *result = mu_rpc_call(e.client, "wait");
    await(&n_running, running + 1);
    assert_int_equal(mu_rpc_result_cancel(result), MU_OK);
    expect_result(result, MU_CANCELLED, "was cancelled");
    await(&n_stopped, stopped + 1);
    assert_int_equal(mu_rpc_result_cancel(result), MU_OK);
    mu_pool_close(pool);
}

// The second call of either client has one number, for one request. The first client's waits for the server's only
// thread, and is cancelled before it begins.
static void test_a_call_that_was_cancelled_does_not_begin_when_it_comes_again(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(&(mu_rpc_server_args){.max_threads = 1});
    const int running = atomic_load(&n_running), stopped = atomic_load(&n_stopped);
    mu_rpc_result *busy = mu_rpc_call(e.client, "wait");
    await(&n_running, running + 1);
    mu__context()->request = 77;
    mu_rpc_result *result = mu_rpc_call(e.client, "once");
    mu__result_settle(result, NULL);
    expect_result(result, MU_CANCELLED, "was cancelled");
    assert_int_equal(mu_rpc_result_cancel(busy), MU_OK);
    await(&n_stopped, stopped + 1);
    mu_rpc_client *again = mu_rpc_client_new("muster", mu_rpc_server_address(e.server));
    assert_non_null(mu_rpc_client_methods(again));
    expect_result(mu_rpc_call(again, "once"), MU_FAILED_PRECONDITION, "has come before");
    expect_result(mu_rpc_call(again, "once"), MU_OK, "");
    mu__context()->request = 0;
    mu_pool_close(pool);
}

// Nor does one that was refused because there was no room, which there is when its request comes again.
static void test_a_call_that_was_refused_does_not_begin_when_it_comes_again(void **state)
{
    enum { BYTES = 2000 };
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(&(mu_rpc_server_args){.max_bytes = 2 * BYTES});
    const int64_t bytes = BYTES;
    const int running = atomic_load(&n_running), stopped = atomic_load(&n_stopped);
    mu_rpc_result *busy = mu_rpc_call(e.client, "wait", mu_of(mu_zeros(MU_U8, 1, &bytes)));
    await(&n_running, running + 1);
    mu__context()->request = 78;
    expect_result(mu_rpc_call(e.client, "once", mu_of(mu_zeros(MU_U8, 1, &bytes))), MU_RESOURCE_EXHAUSTED, "holds");
    assert_int_equal(mu_rpc_result_cancel(busy), MU_OK);
    await(&n_stopped, stopped + 1);
    mu_rpc_client *again = mu_rpc_client_new("muster", mu_rpc_server_address(e.server));
    assert_non_null(mu_rpc_client_methods(again));
    expect_result(mu_rpc_call(again, "once"), MU_FAILED_PRECONDITION, "has come before");
    mu__context()->request = 0;
    mu_pool_close(pool);
}

// The numbers of the last 1024 calls are kept, whichever client they come from: call n of each client has one number.
static void test_the_numbers_of_the_last_calls_are_kept(void **state)
{
    enum { KEPT = 1024 };
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    mu__context()->request = 79;
    for (int i = 1; i <= KEPT + 1; i++)
        expect_result(mu_rpc_call(e.client, "once"), MU_OK, "");
    mu_rpc_client *second = mu_rpc_client_new("muster", mu_rpc_server_address(e.server));
    assert_non_null(mu_rpc_client_methods(second)); // number 1 of another method
    for (int i = 2; i <= KEPT + 1; i++)
        expect_result(mu_rpc_call(second, "once"), MU_FAILED_PRECONDITION, "has come before");
    mu_rpc_client *third = mu_rpc_client_new("muster", mu_rpc_server_address(e.server));
    expect_result(mu_rpc_call(third, "once"), MU_OK, ""); // number 1 again, which takes the place of number 2
    expect_result(mu_rpc_call(third, "once"), MU_OK, ""); // so does number 2, of number 3
    mu_rpc_client *fourth = mu_rpc_client_new("muster", mu_rpc_server_address(e.server));
    expect_result(mu_rpc_call(fourth, "once"), MU_FAILED_PRECONDITION, "has come before");
    mu__context()->request = 0;
    mu_pool_close(pool);
}

// There is no memory for the message that a call is cancelled, before which the list of requests must grow: it is sent
// later.
static void test_cancelling_without_memory(void **state)
{
    enum { FULL = 8 };
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(&(mu_rpc_server_args){.max_threads = 2 * FULL});
    const int running = atomic_load(&n_running), stopped = atomic_load(&n_stopped);
    mu_rpc_result *results[FULL];
    for (int i = 0; i < FULL; i++)
        results[i] = mu_rpc_call(e.client, "wait");
    await(&n_running, running + FULL);
    mu__alloc_fail_at(1);
    assert_int_equal(mu_rpc_result_cancel(results[0]), MU_OK);
    usleep(100000);
    assert_true(mu__alloc_fail_at(0) > 0);
    expect_result(mu_rpc_call(e.client, "echo", number(1)), MU_OK, ""); // the client's thread takes another step
    await(&n_stopped, stopped + 1);
    for (int i = 1; i < FULL; i++)
        assert_int_equal(mu_rpc_result_cancel(results[i]), MU_OK);
    await(&n_stopped, stopped + FULL);
    mu_pool_close(pool);
}

static void test_a_client_that_leaves_cancels_its_calls(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    const int running = atomic_load(&n_running), stopped = atomic_load(&n_stopped);
    mu_pool *inner = mu_pool_open();
    mu_rpc_client *other = mu_rpc_client_new("muster", mu_rpc_server_address(e.server));
    mu_rpc_result *result = mu_retain(mu_rpc_call(other, "wait"));
    await(&n_running, running + 1);
    mu_pool_close(inner); // releases the client
    expect_result(result, MU_CANCELLED, "the client was released");
    mu_release(result);
    await(&n_stopped, stopped + 1);
    mu_pool_close(pool);
}

static void test_a_server_that_stops_ends_its_calls(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    const int running = atomic_load(&n_running);
    mu_rpc_result *result = mu_rpc_call(e.client, "wait");
    await(&n_running, running + 1);
    assert_int_equal(mu_rpc_server_stop(e.server), MU_OK);
    assert_false(mu_rpc_result_is_ok(result));
    // The port is closed at once.
    expect_result(mu_rpc_call(e.client, "echo", number(1), .timeout_in_ms = 5000), MU_DEADLINE_EXCEEDED,
                  "cannot be reached: connection refused");
    assert_int_equal(mu_rpc_client_server(e.client), 0);
    mu_pool_close(pool);
}

static mu_value *stop_own(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_rpc_server_stop(*(mu_rpc_server **)arg);
    return NULL;
}

// It would wait for itself.
static void test_a_function_cannot_stop_its_server(void **state)
{
    mu_rpc_server *server = NULL;
    (void)state;
    mu_pool *pool = mu_pool_open();
    server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "stop", .fn = stop_own, .arg = &server);
    mu_rpc_server_register(server, "nothing", .fn = nothing);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    expect_result(mu_rpc_call(client, "stop"), MU_FAILED_PRECONDITION, "call it on another thread");
    expect_result(mu_rpc_call(client, "nothing"), MU_OK, "");
    assert_int_equal(mu_rpc_server_stop(server), MU_OK);
    mu_pool_close(pool);
}

static void wait_for_word(void *arg) { await(arg, 1); }

static mu_value *is_there(mu_value *arguments, void *arg)
{
    (void)arguments;
    return number(mu__worker_is_here(arg));
}

// Two calls wait for a busy thread; before it is free, one of them is cancelled and the server ends. Then the thread
// handles both.
static void test_calls_on_a_given_thread(void **state)
{
    (void)state;
    atomic_int go = 0;
    mu_worker *thread = mu__worker_new("device", NULL, 1, mu__runtime());
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "is_there", .fn = is_there, .arg = thread);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server), .timeout_in_ms = 60000);
    assert_true(mu_scalar(mu_rpc_result_value(mu_rpc_call(client, "is_there"))) == 0);
    assert_int_equal(mu__server_run_on(server, "is_there", thread), MU_OK);
    assert_true(mu_scalar(mu_rpc_result_value(mu_rpc_call(client, "is_there"))) == 1);
    assert_int_equal(mu__worker_post(thread, wait_for_word, &go), MU_OK);
    mu_rpc_result *cancelled = mu_rpc_call(client, "is_there"), *late = mu_rpc_call(client, "is_there");
    expect_result(mu_rpc_call(client, "is_there", .timeout_in_ms = 50), MU_DEADLINE_EXCEEDED, "");
    assert_int_equal(mu_rpc_result_cancel(cancelled), MU_OK);
    expect_result(cancelled, MU_CANCELLED, "was cancelled");
    assert_int_equal(mu_rpc_server_stop(server), MU_OK);
    assert_false(mu_rpc_result_is_ok(late));
    mu_pool_close(pool);
    atomic_store(&go, 1);
    mu__worker_free(thread);
}

static void test_limits(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_rpc_server_args limits = {.max_bytes = 1000000, .credits = 4, .max_clients = 1, .max_threads = 2};
    const ends e = connect_ends(&limits);
    const int64_t n = 300000;
    mu_tensor *large = mu_tensor_new(MU_F32, 1, &n, NULL);
    expect_result(mu_rpc_call(e.client, "echo", mu_of(large)), MU_RESOURCE_EXHAUSTED, "max_bytes");
    // More calls wait here than the server accepts.
    mu_rpc_result *results[100];
    for (int i = 0; i < 100; i++)
        results[i] = mu_rpc_call(e.client, "multiply", pair(i, 2));
    for (int i = 0; i < 100; i++)
        assert_true(mu_scalar(mu_rpc_result_value(results[i])) == 2 * i);
    mu_rpc_client *second = mu_rpc_client_new("muster", mu_rpc_server_address(e.server), .fail_fast = true);
    expect_result(mu_rpc_call(second, "nothing"), MU_UNAVAILABLE, "as many clients as it takes");
    mu_rpc_client *few = mu_rpc_client_new("muster", "localhost:1", .max_waiting = 1);
    mu_rpc_result *waiting = mu_rpc_call(few, "nothing");
    assert_non_null(waiting);
    assert_null(mu_rpc_call(few, "nothing"));
    expect_error(MU_RESOURCE_EXHAUSTED, "max_waiting");
    mu_pool_close(pool);
}

// A thread's cancellation ends its wait, and the call.
static void *wait_main(void *arg)
{
    mu_rpc_result *result = ((void **)arg)[0];
    mu_cancellation_use(((void **)arg)[1]);
    ((void **)arg)[2] = mu_rpc_result_is_ok(result) ? arg : NULL;
    mu_cancellation_use(NULL);
    return NULL;
}

static void test_the_cancellation_of_a_waiting_thread(void **state)
{
    (void)state;
    pthread_t thread;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends(NULL);
    const int running = atomic_load(&n_running);
    void *shared[] = {mu_rpc_call(e.client, "wait"), mu_cancellation_new(), shared};
    await(&n_running, running + 1);
    pthread_create(&thread, NULL, wait_main, shared);
    usleep(50000);
    mu_cancellation_cancel(shared[1]);
    pthread_join(thread, NULL);
    assert_null(shared[2]);
    expect_result(shared[0], MU_CANCELLED, "as was the thread that waits");
    mu_pool_close(pool);
}

// ---- Traced functions ---------------------------------------------------------------------------

static mu_value *add_two(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, mu_constant(MU_F32, 2));
    return mu_of(mu_variable_read(arg));
}

static void test_a_traced_function_with_state(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_variable *variable = mu_variable_new(mu_constant(MU_F32, 0), "sum");
    mu_function *function = mu_function_new(add_two, variable);
    mu_rpc_server *server = mu_rpc_server_new("muster", "127.0.0.1:0");
    mu_rpc_server_register(server, "add", .function = function, .input_signature = "()");
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    mu_rpc_result *results[10];
    for (int i = 0; i < 10; i++)
        results[i] = mu_rpc_call(client, "add", mu_list(MU_END));
    for (int i = 0; i < 10; i++)
        expect_result(results[i], MU_OK, "");
    assert_true(mu_scalar(mu_variable_read(variable)) == 20);
    assert_int_equal(mu_function_trace_count(function), 1);
    mu_pool_close(pool);
    assert_int_equal(mu_error_code(), MU_OK);
}

// Without a key, a server that may choose its port listens on the loopback, whatever host it was given.
static void test_the_address_without_a_key(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    unsetenv("MUSTER_CLUSTER_KEY");
    mu_runtime *open = mu_runtime_new(.cpu_devices = 1);
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    mu_runtime *before = mu_runtime_use(open);
    mu_rpc_server *server = mu_rpc_server_new("muster", "far.example:0");
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    const char *address = mu_rpc_server_address(server);
    assert_int_equal(strncmp(address, "127.0.0.1:", 10), 0);
    expect_result(mu_rpc_call(mu_rpc_client_new("muster", address), "muster.methods"), MU_OK, "");
    mu_rpc_server *local = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(mu_rpc_server_start(local), MU_OK);
    assert_int_equal(strncmp(mu_rpc_server_address(local), "localhost:", 10), 0);
    mu_runtime_use(before);
    mu_pool_close(pool);
}

// ---- Mistakes -----------------------------------------------------------------------------------

static void test_mistakes(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    assert_null(mu_rpc_server_new("grpc", "localhost:0"));
    expect_error(MU_INVALID_ARGUMENT, "\"grpc\" does not exist here; use \"muster\"");
    assert_null(mu_rpc_client_new("grpc", "localhost:1"));
    expect_error(MU_INVALID_ARGUMENT, "use \"muster\"");
    assert_null(mu_rpc_server_new("muster", "localhost"));
    expect_error(MU_INVALID_ARGUMENT, "localhost");
    assert_null(mu_rpc_server_new("muster", "localhost:0", .credits = -1));
    expect_error(MU_INVALID_ARGUMENT, "credits");
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_null(mu_rpc_server_address(server));
    expect_error(MU_FAILED_PRECONDITION, "was not started");
    assert_int_equal(mu_rpc_server_register(server, "f", .fn = echo), MU_OK);
    assert_int_equal(mu_rpc_server_register(server, "f", .fn = echo), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "registered already");
    assert_int_equal(mu_rpc_server_register(server, "muster.f", .fn = echo), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "may not begin");
    assert_int_equal(mu_rpc_server_register(server, "g"), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "neither .fn nor .function");
    assert_int_equal(mu_rpc_server_register(server, "g", .fn = echo, .function = mu_function_new(echo, NULL)),
                     MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "has .fn and .function");
    assert_int_equal(mu_rpc_server_register(server, "g", .fn = echo, .input_signature = "x"), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "an element type");
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    assert_int_equal(mu_rpc_server_register(server, "late", .fn = echo), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "was started before");
    assert_int_equal(mu_rpc_server_start(server), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "was started before");
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_errors_have_their_codes),
        cmocka_unit_test(test_the_list_of_methods),
        cmocka_unit_test(test_large_values_pass_beside_small_ones),
        cmocka_unit_test(test_a_deadline_ends_the_call_on_both_sides),
        cmocka_unit_test(test_cancelling),
        cmocka_unit_test(test_a_call_that_was_cancelled_does_not_begin_when_it_comes_again),
        cmocka_unit_test(test_a_call_that_was_refused_does_not_begin_when_it_comes_again),
        cmocka_unit_test(test_the_numbers_of_the_last_calls_are_kept),
        cmocka_unit_test(test_cancelling_without_memory),
        cmocka_unit_test(test_a_client_that_leaves_cancels_its_calls),
        cmocka_unit_test(test_a_server_that_stops_ends_its_calls),
        cmocka_unit_test(test_a_function_cannot_stop_its_server),
        cmocka_unit_test(test_calls_on_a_given_thread),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_the_cancellation_of_a_waiting_thread),
        cmocka_unit_test(test_a_traced_function_with_state),
        cmocka_unit_test(test_the_address_without_a_key),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
