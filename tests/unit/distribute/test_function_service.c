// Functions on workers: a graph is sent to a worker whose variables are on two servers, and many callers run it there
// at the same time; errors name the task that is to blame; hostile requests. All servers are in this process.
#include "distribute/servers/function_service.h"

#include "distribute/strategies/parameter_server.h"
#include "engine/engine.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"
#include "rpc/stores/store.h"

#include "../rpc/rpc_test.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, RUNS = 20, SIZE = 8 };

typedef struct cluster {
    mu_server *ps[2], *worker;
    mu_rpc_client *to_ps[2], *to_worker;
    mu_resource *v, *w; // v on server 0, w on server 1: owned
    mu_graph *graph;    // w += x + v; returns x + v. Owned
    int64_t number;
} cluster;

static mu_rpc_client *client_of(mu_server *server)
{
    return mu_rpc_client_new("muster", mu_server_target(server) + strlen("muster://"), .timeout_in_ms = 60000,
                             .fail_fast = true);
}

static mu_status run_at(mu_rpc_client *worker, int64_t number, const mu_graph *graph, mu_tensor *const *in,
                        mu_tensor **out)
{
    return mu__remote_function_run(&(mu_remote_worker){.client = worker}, number, graph, in, out);
}

static mu_tensor *floats(int64_t n, float value)
{
    mu_tensor *tensor = mu_tensor_new(MU_F32, 1, &n, NULL);
    for (int64_t i = 0; i < n; i++)
        ((float *)mu__host_write(tensor))[i] = value;
    return tensor;
}

static mu_graph *step_of(mu_resource *v, mu_resource *w)
{
    mu_graph *graph = mu__graph_new("step");
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(SIZE)};
    mu_node *x = mu__graph_input(graph, &spec, "x");
    mu_node *read = mu__graph_node(graph, &mu_op_read_variable, NULL, 0, NULL, 1, &v);
    mu_node *sum = mu__graph_node(graph, &mu_op_add, NULL, 2, (mu_edge[]){{.node = x}, {.node = read}}, 0, NULL);
    assert_non_null(mu__graph_node(graph, &mu_op_assign_add_variable, NULL, 1, &(mu_edge){.node = sum}, 1, &w));
    assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = sum})), MU_OK);
    return graph;
}

static cluster start(void)
{
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(SIZE)};
    cluster c = {.worker = mu_server_create_local_server(true)};
    for (int i = 0; i < 2; i++) {
        c.ps[i] = mu_server_create_local_server(true);
        c.to_ps[i] = client_of(c.ps[i]);
        mu_tensor *initial = floats(SIZE, (float)(1 - i));
        assert_int_equal(mu__remote_variable_create(c.to_ps[i], i == 0 ? "v" : "w", initial), MU_OK);
    }
    c.to_worker = client_of(c.worker);
    c.v = mu__remote_variable(c.to_ps[0], "v", &spec);
    c.w = mu__remote_variable(c.to_ps[1], "w", &spec);
    c.graph = step_of(c.v, c.w);
    c.number = mu__remote_function_register(c.to_worker, c.graph);
    assert_true(c.number >= 0);
    return c;
}

static void finish(cluster *c)
{
    mu_release(c->graph);
    mu_release(c->v);
    mu_release(c->w);
}

static double value_of(mu_resource *variable)
{
    mu_tensor *value = NULL;
    mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &variable, &value);
    return mu_tensor_item(value, SIZE - 1);
}

static void test_a_step_runs_on_the_worker(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = start();
    mu_tensor *x = floats(SIZE, 2), *out = NULL;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(run_at(c.to_worker, c.number, c.graph, &x, &out), MU_OK);
        assert_true(mu_tensor_item(out, 0) == 3 && value_of(c.w) == 3 * i && value_of(c.v) == 1);
    }
    assert_int_equal(mu__remote_function_delete(c.to_worker, c.number), MU_OK);
    run_at(c.to_worker, c.number, c.graph, &x, &out);
    expect_error(MU_UNAVAILABLE, "no function number");
    finish(&c);
    mu_pool_close(pool);
}

typedef struct runner {
    pthread_t thread;
    const cluster *c;
    mu_status status;
} runner;

static void *run_often(void *arg)
{
    runner *r = arg;
    for (int i = 0; i < RUNS && r->status == MU_OK; i++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *x = floats(SIZE, 0), *out = NULL;
        r->status = run_at(r->c->to_worker, r->c->number, r->c->graph, &x, &out);
        mu_error_take();
        mu_pool_close(pool);
    }
    return NULL;
}

static void test_no_update_is_lost(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = start();
    runner runners[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        runners[i].c = &c;
        pthread_create(&runners[i].thread, NULL, run_often, &runners[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(runners[i].thread, NULL);
        assert_int_equal(runners[i].status, MU_OK);
    }
    assert_true(value_of(c.w) == THREADS * RUNS);
    finish(&c);
    mu_pool_close(pool);
}

// The second call of another client has the same number as that of the first one, for the same request.
static void test_a_run_that_comes_twice_is_done_once(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = start();
    mu_rpc_client *again = client_of(c.worker);
    mu_tensor *x = floats(SIZE, 2), *out = NULL;
    mu__context()->request = 77;
    assert_int_equal(run_at(c.to_worker, c.number, c.graph, &x, &out), MU_OK);
    assert_non_null(mu_rpc_client_methods(again)); // its first call
    assert_int_not_equal(run_at(again, c.number, c.graph, &x, &out), MU_OK);
    expect_error(MU_FAILED_PRECONDITION, "has come before");
    assert_true(value_of(c.w) == 3);
    assert_int_equal(run_at(again, c.number, c.graph, &x, &out), MU_OK); // the next call
    assert_true(value_of(c.w) == 6);
    mu__context()->request = 0;
    finish(&c);
    mu_pool_close(pool);
}

static void test_numbers_of_another_process_name_nothing(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = start();
    mu_rpc_client *other = client_of(mu_server_create_local_server(true));
    mu_tensor *x = floats(SIZE, 2), *out = NULL;
    const int64_t number = mu__remote_function_register(other, c.graph);
    assert_true(number >= 0 && number != c.number);
    assert_int_not_equal(run_at(other, c.number, c.graph, &x, &out), MU_OK);
    expect_error(MU_UNAVAILABLE, "no function number");
    finish(&c);
    mu_pool_close(pool);
}

enum { DEVICES = 2 };
static mu_worker *device_threads[DEVICES];

// Fills its result with the index of the device that runs it.
static mu_status tell_device(const mu_array *in, const mu_array *out, void *arg)
{
    (void)in, (void)arg;
    for (int i = 0; i < DEVICES; i++)
        if (mu__worker_is_here(device_threads[i]))
            ((float *)out[0].data)[0] = (float)i;
    return MU_OK;
}

// Whatever the number is at which a worker begins, its first function runs on its first device.
static void test_functions_go_to_the_devices_in_turn(void **state)
{
    enum { WORKERS = 4 };
    (void)state;
    mu_pool *pool = mu_pool_open();
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(1)};
    assert_int_equal(mu_register_op("tell_device", 1, 1, .kernel = tell_device, .has_effect = true), MU_OK);
    assert_int_equal(mu__device_count(mu__runtime()), DEVICES);
    for (int i = 0; i < DEVICES; i++)
        device_threads[i] = mu__served_thread(mu__device_at(mu__runtime(), i));
    mu_graph *graph = mu__graph_new("telling");
    const mu_edge x = {.node = mu__graph_input(graph, &spec, "x")};
    mu_node *told = mu__graph_node(graph, mu__custom_by_name("custom/tell_device"), NULL, 1, &x, 0, NULL);
    assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = told})), MU_OK);
    for (int i = 0; i < WORKERS; i++) {
        mu_rpc_client *worker = client_of(mu_server_create_local_server(true));
        for (int k = 0; k < DEVICES + 1; k++) {
            mu_tensor *none = floats(1, -1), *out = NULL;
            const int64_t number = mu__remote_function_register(worker, graph);
            assert_int_equal(run_at(worker, number, graph, &none, &out), MU_OK);
            assert_int_equal((int)mu_tensor_item(out, 0), k % DEVICES);
        }
    }
    mu_release(graph);
    mu_pool_close(pool);
}

static atomic_llong asked_cut; // the number of the last cut that a request to the store knows

static mu_value *answer_read(mu_value *arguments, void *arg)
{
    static const int64_t head[MU_N_ANSWER] = {[MU_ANSWER_EPOCH] = 1};
    int64_t ask[MU_N_ASK];
    (void)arg;
    assert_int_equal(mu__numbers_of(mu_value_at(arguments, 0), ask, MU_N_ASK), MU_OK);
    asked_cut = ask[MU_ASK_CUT];
    return mu_list(mu__numbers_value(head, MU_N_ANSWER), mu_list(floats(SIZE, 1), MU_END), MU_END);
}

static void expect_cut(mu_rpc_client *worker, int64_t number, const mu_graph *graph, int64_t cut)
{
    mu_tensor *out = NULL;
    if (run_at(worker, number, graph, NULL, &out) != MU_OK)
        fail_msg("%s", mu_error_message());
    assert_int_equal(asked_cut, cut);
}

// The coordinator may make a call because of a value that it has seen behind a cut. The worker learns the number of the
// cut with the call, so that its own requests are behind the cut too.
static void test_a_worker_hears_of_cuts_with_its_calls(void **state)
{
    const mu_spec spec = {.dtype = MU_F32, .shape = MU_SHAPE(SIZE)};
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *ps = mu_rpc_server_new("muster", "localhost:0");
    assert_int_equal(mu__server_add(ps, &(mu_rpc_server_register_args){.name = "muster.store.call", .fn = answer_read}),
                     MU_OK);
    assert_int_equal(mu_rpc_server_start(ps), MU_OK);
    mu_rpc_client *to_ps = mu_rpc_client_new("muster", mu_rpc_server_address(ps));
    mu_rpc_client *worker = client_of(mu_server_create_local_server(true));
    mu_store_client *stores = mu__store_client_new(1, &to_ps);
    mu_resource *v = mu__remote_variable(to_ps, "v", &spec);
    mu_graph *graph = mu__graph_new("read");
    mu_node *read = mu__graph_node(graph, &mu_op_read_variable, NULL, 0, NULL, 1, &v);
    assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = read})), MU_OK);
    const int64_t number = mu__remote_function_register(worker, graph);
    assert_true(number >= 0);
    expect_cut(worker, number, graph, 0);
    mu__store_client_hear(stores, 7);
    expect_cut(worker, number, graph, 7);
    mu__store_client_hear(stores, MU_STATE_MOST + 1); // no number of a cut
    expect_cut(worker, number, graph, 7);
    mu_release(graph);
    mu_release(v);
    mu_release(stores);
    mu_pool_close(pool);
}

static void test_errors_say_who_is_to_blame(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = start();
    mu_tensor *wrong = floats(SIZE + 1, 2), *x = floats(SIZE, 2), *out = NULL;
    assert_int_not_equal(run_at(c.to_worker, c.number, c.graph, &wrong, &out), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "");
    mu_server_stop(c.ps[1]);
    assert_int_not_equal(run_at(c.to_worker, c.number, c.graph, &x, &out), MU_OK);
    assert_non_null(strstr(mu_error_message(), "(\"muster.apply\" at localhost:")); // the worker's request
    expect_error(MU_UNAVAILABLE, "function 'step': assign_add_variable of variable 'w': ");
    mu_server_stop(c.worker);
    assert_int_not_equal(run_at(c.to_worker, c.number, c.graph, &x, &out), MU_OK);
    assert_non_null(strstr(mu_error_message(), "(\"muster.function.run\" at localhost:")); // the coordinator's
    expect_error(MU_UNAVAILABLE, "function 'step': ");
    finish(&c);
    mu_pool_close(pool);
}

static void test_hostile_requests(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = start();
    mu_variable *here = mu_variable_new(floats(SIZE, 0), "here");
    mu_graph *local = step_of(c.v, &here->resource);
    assert_int_equal(mu__remote_function_register(c.to_worker, local), -1);
    expect_error(MU_FAILED_PRECONDITION, "'here'");
    void *bytes;
    size_t size;
    assert_int_equal(mu__graph_write(c.graph, &bytes, &size), MU_OK);
    mu_tensor *graph = mu_tensor_new(MU_U8, 1, &(int64_t){(int64_t)size}, bytes);
    mu__free(bytes);
    mu_value *nothing = mu_list(MU_END), *number = mu_of(mu_tensor_new(MU_I64, 0, NULL, &c.number));
    expect_result(mu_rpc_call(c.to_worker, "muster.function.register", mu_list(graph, nothing, MU_END)), MU_NOT_FOUND,
                  "'v'"); // a variable that the coordinator did not place
    expect_result(
        mu_rpc_call(c.to_worker, "muster.function.register", mu_list(mu__text_value("damaged"), nothing, MU_END)),
        MU_DATA_LOSS, "");
    expect_result(mu_rpc_call(c.to_worker, "muster.function.run", mu_list(number, nothing, MU_END)),
                  MU_INVALID_ARGUMENT, "takes 1 tensors; 0 were sent");
    expect_result(mu_rpc_call(c.to_worker, "muster.function.run"), MU_INVALID_ARGUMENT, "");
    mu_tensor *x = floats(SIZE, 2), *out = NULL;
    assert_int_equal(run_at(c.to_worker, c.number, c.graph, &x, &out), MU_OK);
    mu_release(local);
    finish(&c);
    mu_pool_close(pool);
}

static int begin(void **state)
{
    (void)state;
    setenv("MUSTER_CLUSTER_KEY", TEST_KEY, 1);
    return mu_init(.cpu_devices = DEVICES) == MU_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return mu_exit(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_runs_on_the_worker),
        cmocka_unit_test(test_no_update_is_lost),
        cmocka_unit_test(test_a_run_that_comes_twice_is_done_once),
        cmocka_unit_test(test_numbers_of_another_process_name_nothing),
        cmocka_unit_test(test_functions_go_to_the_devices_in_turn),
        cmocka_unit_test(test_a_worker_hears_of_cuts_with_its_calls),
        cmocka_unit_test(test_errors_say_who_is_to_blame),
        cmocka_unit_test(test_hostile_requests),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
