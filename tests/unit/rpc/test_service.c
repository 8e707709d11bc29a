// Variables on a server: made, read, changed by many at the same time, looked up, deleted; hostile graphs; calls that
// are waited for although they fail.
#include "base/system.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"
#include "rpc/stores/store.h"

#include "graph/graph.h"
#include "ops/nn/nn.h"
#include "rpc_test.h"

#include <muster/cancellation.h>
#include <pthread.h>

enum { THREADS = 8, ADDS = 50, MOST = 100000 };

typedef struct ends {
    mu_rpc_server *server;
    mu_rpc_client *client;
} ends;

static ends connect_ends(void)
{
    ends e = {.server = mu_rpc_server_new("muster", "localhost:0")};
    mu_kept *kept = mu__kept_new(MOST);
    assert_int_equal(mu__service_add(e.server, kept), MU_OK);
    mu_release(kept);
    assert_int_equal(mu_rpc_server_start(e.server), MU_OK);
    e.client = mu_rpc_client_new("muster", mu_rpc_server_address(e.server), .timeout_in_ms = 60000);
    return e;
}

// A float32 variable [n] of zeros on the server; the test releases it.
static mu_resource *make(const ends *e, const char *name, int64_t n)
{
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(n)};
    assert_int_equal(mu__remote_variable_create(e->client, name, mu_tensor_new(MU_F32, 1, &n, NULL)), MU_OK);
    return mu__remote_variable(e->client, name, &spec);
}

static mu_tensor *read(mu_resource *variable)
{
    mu_tensor *value = NULL;
    mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &variable, &value);
    return value;
}

static mu_status add(mu_resource *variable, mu_tensor *delta)
{
    return mu__apply(&mu_op_assign_add_variable, NULL, 1, &delta, 1, &variable, NULL);
}

static mu_tensor *floats(int64_t n, float value)
{
    mu_tensor *tensor = mu_tensor_new(MU_F32, 1, &n, NULL);
    for (int64_t i = 0; i < n; i++)
        ((float *)mu__host_write(tensor))[i] = value;
    return tensor;
}

static void test_ops_are_applied_on_the_server(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends();
    mu_resource *v = make(&e, "v", 3), *w = make(&e, "w", 3);
    assert_int_equal(add(v, floats(3, 2)), MU_OK);
    assert_int_equal(add(v, floats(3, 0.5f)), MU_OK);
    assert_true(mu_tensor_item(read(v), 2) == 2.5 && mu_tensor_item(read(w), 0) == 0);
    mu_tensor *rows[] = {mu_tensor_new(MU_I32, 1, (int64_t[]){2}, (int32_t[]){0, 2}), floats(2, 10)};
    const mu_scatter_attrs kind = {.kind = MU_SCATTER_ADD};
    assert_int_equal(mu__apply(&mu_op_scatter_variable, &kind, 2, rows, 1, &v, NULL), MU_OK);
    assert_true(mu_tensor_item(read(v), 0) == 12.5 && mu_tensor_item(read(v), 1) == 2.5);
    mu_tensor *found = mu__remote_rows(1, &v, rows[0]);
    assert_true(found->shape.dims[0] == 2 && mu_tensor_item(found, 1) == 12.5);
    mu_release(v);
    mu_release(w);
    mu_pool_close(pool);
}

static void test_errors_name_the_variable(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends();
    mu_resource *v = make(&e, "v", 3);
    mu__remote_variable_create(e.client, "v", floats(1, 1));
    expect_error(MU_ALREADY_EXISTS, "has a variable 'v'");
    mu__remote_variable_create(e.client, "huge", floats(MOST / 4, 1));
    expect_error(MU_RESOURCE_EXHAUSTED, "the largest variable 'v' 12");
    assert_int_equal(add(v, floats(4, 1)), MU_INVALID_ARGUMENT);
    mu_error_take();
    mu__remote_rows(1, &v, mu_tensor_new(MU_I32, 0, NULL, (int32_t[]){3}));
    expect_error(MU_INVALID_ARGUMENT, "index 3 (element 0) is outside the 3 rows of 'v'");
    assert_int_equal(mu__remote_variable_delete(e.client, "v"), MU_OK);
    mu__remote_variable_delete(e.client, "v");
    expect_error(MU_NOT_FOUND, "no variable 'v'");
    assert_null(read(v));
    expect_error(MU_NOT_FOUND, "'v'");
    mu_resource *other = make(&e, "v", 4);
    assert_null(read(v)); // of another shape
    expect_error(MU_INVALID_ARGUMENT, "'v'");
    assert_int_equal(mu__remote_variables_clear(e.client), MU_OK);
    assert_null(read(other));
    expect_error(MU_NOT_FOUND, "'v'");
    mu_release(v);
    mu_release(other);
    mu_pool_close(pool);
}

static void test_the_variables_of_one_op_are_on_one_server(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends one = connect_ends(), two = connect_ends();
    mu_variable *here = mu_variable_new(floats(3, 1), "here");
    mu_resource *v = make(&one, "v", 3), *w = make(&two, "w", 3), *apart[] = {v, w}, *mixed[] = {v, &here->resource};
    mu_tensor *in[] = {mu_constant(MU_F32, 1), floats(3, 1), floats(3, 1)};
    mu__apply(&mu_op_apply_gradient_descent, NULL, 3, in, 2, apart, NULL);
    expect_error(MU_FAILED_PRECONDITION, "different processes");
    mu__apply(&mu_op_apply_gradient_descent, NULL, 3, in, 2, mixed, NULL);
    expect_error(MU_FAILED_PRECONDITION, "'v' is kept by another process");
    mu_release(v);
    mu_release(w);
    mu_pool_close(pool);
}

// ---- Many at the same time ----------------------------------------------------------------------

typedef struct adder {
    pthread_t thread;
    mu_resource *variable;
    mu_status status;
} adder;

static void *add_often(void *arg)
{
    adder *a = arg;
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < ADDS && a->status == MU_OK; i++)
        a->status = add(a->variable, floats(1000, 1));
    mu_error_take();
    mu_pool_close(pool);
    return NULL;
}

static void test_every_addition_counts(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends();
    adder adders[THREADS] = {0};
    mu_resource *v = make(&e, "v", 1000);
    for (int i = 0; i < THREADS; i++) {
        adders[i].variable = v;
        pthread_create(&adders[i].thread, NULL, add_often, &adders[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(adders[i].thread, NULL);
        assert_int_equal(adders[i].status, MU_OK);
    }
    const mu_tensor *sum = read(v);
    for (int i = 0; i < 1000; i++)
        assert_true(mu_tensor_item(sum, i) == THREADS * ADDS);
    mu_release(v);
    mu_pool_close(pool);
}

// ---- Hostile graphs -----------------------------------------------------------------------------

static mu_value *written(const mu_graph *graph)
{
    void *bytes;
    size_t size;
    assert_int_equal(mu__graph_write(graph, &bytes, &size), MU_OK);
    mu_value *value = mu_of(mu_tensor_new(MU_U8, 1, &(int64_t){(int64_t)size}, bytes));
    mu__free(bytes);
    return value;
}

static void refused(const ends *e, mu_value *arguments, mu_status code, const char *part)
{
    expect_result(mu_rpc_call(e->client, "muster.apply", arguments), code, part);
}

static void test_hostile_graphs(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const ends e = connect_ends();
    mu_resource *v = make(&e, "v", 3), *foreign = mu__remote_variable(e.client, "not mine", &v->spec);
    mu_value *nothing = mu_list(MU_END);
    refused(&e, NULL, MU_INVALID_ARGUMENT, "");
    refused(&e, mu_list(floats(3, 1), nothing, MU_END), MU_INVALID_ARGUMENT, "vector of uint8");
    refused(&e, mu_list(mu__text_value("no graph at all"), nothing, MU_END), MU_DATA_LOSS, "");
    mu_graph *graph = mu__graph_new("g");
    refused(&e, mu_list(written(graph), nothing, MU_END), MU_INVALID_ARGUMENT, "one op");
    assert_non_null(mu__graph_node(graph, &mu_op_read_variable, NULL, 0, NULL, 1, &v));
    refused(&e, mu_list(written(graph), mu_list(floats(1, 1), MU_END), MU_END), MU_INVALID_ARGUMENT, "takes 0 tensors");
    assert_non_null(mu__graph_node(graph, &mu_op_read_variable, NULL, 0, NULL, 1, &v));
    refused(&e, mu_list(written(graph), nothing, MU_END), MU_INVALID_ARGUMENT, "one op");
    mu_release(graph);
    graph = mu__graph_new("g");
    assert_non_null(mu__graph_node(graph, &mu_op_read_variable, NULL, 0, NULL, 1, &foreign));
    refused(&e, mu_list(written(graph), nothing, MU_END), MU_NOT_FOUND, "no variable 'not mine'");
    mu_release(graph);
    assert_int_equal(add(v, floats(3, 1)), MU_OK); // and the server still works
    mu_release(v);
    mu_release(foreign);
    mu_pool_close(pool);
}

// ---- What is released ---------------------------------------------------------------------------

static atomic_int n_refused, n_forgotten;

static mu_value *forget_later(mu_value *arguments, void *arg)
{
    (void)arg;
    if (n_refused++ < 2)
        mu__error(MU_UNAVAILABLE, "the server ends");
    else
        n_forgotten += mu_value_count(arguments);
    return NULL;
}

// A request that reports released objects fails; then one that waits fails.
static void test_what_is_released_is_told_until_it_is_heard(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(
        mu__server_add(server, &(mu_rpc_server_register_args){.name = "muster.variable.forget", .fn = forget_later}),
        MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(server), .timeout_in_ms = 60000);
    mu__client_forget(client, MU_RELEASED_VALUE, "a");
    mu__client_forget(client, MU_RELEASED_VALUE, "b");
    mu__remote_tell_forgotten(client);
    assert_int_equal(mu__remote_delete_forgotten(client), MU_UNAVAILABLE);
    expect_error(MU_UNAVAILABLE, "the server ends");
    assert_int_equal(n_refused, 2);
    assert_int_equal(mu__remote_delete_forgotten(client), MU_OK);
    assert_int_equal(n_forgotten, 2);
    assert_int_equal(mu__remote_delete_forgotten(client), MU_OK); // nothing is left
    assert_int_equal(n_refused, 3);

    mu_cancellation *cancellation = mu_cancellation_new();
    mu_cancellation_cancel(cancellation);
    mu__client_forget(client, MU_RELEASED_VALUE, "c");
    mu_cancellation_use(cancellation); // the call that is to stop has not waited, and fails
    assert_int_equal(mu__remote_delete_forgotten(client), MU_CANCELLED);
    mu_cancellation_use(NULL);
    expect_error(MU_CANCELLED, "deleting from a server what was released: cancelled before the server answered; what "
                               "it has not deleted is deleted with a later request");
    assert_int_equal(mu__remote_delete_forgotten(client), MU_OK);
    assert_true(n_forgotten >= 3);
    mu_pool_close(pool);
}

// ---- Calls that are settled ---------------------------------------------------------------------

static atomic_int n_slow, n_slow_ended;

// Continues for a while although it is cancelled, as an update does once it has begun.
static mu_value *be_slow(mu_value *arguments, void *arg)
{
    enum { MOST_WAIT = 5000 };
    (void)arguments, (void)arg;
    n_slow++;
    for (int i = 0; i < MOST_WAIT && !mu_cancellation_is_cancelled(mu__context()->cancellation); i++)
        mu__sleep_ns(1000000);
    mu__sleep_ns(100000000);
    n_slow_ended++;
    return NULL;
}

static mu_value *fail_or_be_slow(mu_value *arguments, void *arg)
{
    if (mu_scalar(arguments) != 0)
        return be_slow(arguments, arg);
    while (n_slow == 0)
        mu__sleep_ns(1000000);
    mu__error(MU_INVALID_ARGUMENT, "not this one");
    return NULL;
}

static mu_rpc_server *start_slow(void)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", "localhost:0");
    const mu_rpc_server_register_args methods[] = {{.name = "muster.store.call", .fn = be_slow},
                                                   {.name = "muster.apply", .fn = fail_or_be_slow}};
    for (size_t i = 0; i < MU_COUNT(methods); i++)
        assert_int_equal(mu__server_add(server, &methods[i]), MU_OK);
    assert_int_equal(mu_rpc_server_start(server), MU_OK);
    n_slow = n_slow_ended = 0;
    return server;
}

static void *cancel_slow(void *arg)
{
    while (n_slow == 0)
        mu__sleep_ns(1000000);
    mu_cancellation_cancel(arg);
    return NULL;
}

// A request to a store is cancelled while its primary is changing something: the call waits until the change has ended.
static void test_a_cancelled_request_is_settled(void **state)
{
    pthread_t thread;
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(start_slow()));
    mu_store_client *stores = mu__store_client_new(1, &client);
    mu_cancellation *cancellation = mu_cancellation_new();
    mu_remote_call call = {.client = client, .seconds = 20, .settles = true};
    assert_int_equal(pthread_create(&thread, NULL, cancel_slow, cancellation), 0);
    mu_cancellation_use(cancellation);
    assert_int_equal(mu__remote_calls("muster.apply", 1, &call), MU_CANCELLED);
    mu_cancellation_use(NULL);
    assert_int_equal(n_slow_ended, 1);
    expect_error(MU_CANCELLED, "was cancelled");
    assert_int_equal(pthread_join(thread, NULL), 0);
    mu_release(stores);
    mu_pool_close(pool);
}

// One of two calls fails: the other one is cancelled, and its end is waited for.
static void test_calls_beside_one_that_fails_are_settled(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_client *client = mu_rpc_client_new("muster", mu_rpc_server_address(start_slow()));
    mu_remote_call calls[2] = {{.client = client, .settles = true, .arguments = number(0)},
                               {.client = client, .settles = true, .arguments = number(1)}};
    assert_int_equal(mu__remote_calls("muster.apply", 2, calls), MU_INVALID_ARGUMENT);
    assert_int_equal(n_slow_ended, 1);
    expect_error(MU_INVALID_ARGUMENT, "not this one");
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_are_applied_on_the_server),
        cmocka_unit_test(test_errors_name_the_variable),
        cmocka_unit_test(test_the_variables_of_one_op_are_on_one_server),
        cmocka_unit_test(test_every_addition_counts),
        cmocka_unit_test(test_hostile_graphs),
        cmocka_unit_test(test_what_is_released_is_told_until_it_is_heard),
        cmocka_unit_test(test_a_cancelled_request_is_settled),
        cmocka_unit_test(test_calls_beside_one_that_fails_are_settled),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
