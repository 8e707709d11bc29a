// Values and datasets of each worker, where the workers are other servers: a dataset is sent once, as a description,
// and a value once. Calls name them, so a call's size does not depend on theirs. What cannot be sent stays with the
// coordinator.
#include "distribute/servers/function_service.h"
#include "rpc/rpc.h"

#include "../../metrics_page.h"
#include "servers_test.h"

#include <stdatomic.h>

// A worker whose counters the test can read, at an address of its own.
static mu_rpc_server *start_worker(const char *address)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", address);
    mu_kept *kept = mu__kept_new(1 << 24);
    assert_int_equal(mu__service_add(server, kept), MU_OK);
    assert_int_equal(mu__function_service_add(server, kept), MU_OK);
    mu_release(kept);
    for (int i = 0; i < 2000 && mu_rpc_server_start(server) != MU_OK; i++) { // its port may be in use by the one before
        mu_error_take();
        usleep(5000);
    }
    return server;
}

static mu_rpc_server *older_worker(void)
{
    setenv("MUSTER_WIRE_VERSION", "5", 1);
    mu_runtime *before = mu_runtime_use(mu_runtime_new(.cpu_devices = 1));
    unsetenv("MUSTER_WIRE_VERSION");
    mu_rpc_server *server = start_worker("localhost:0");
    mu_runtime_use(before);
    return server;
}

static mu_strategy *strategy_on(mu_rpc_server *worker)
{
    char text[200];
    snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\"]}", mu_rpc_server_address(worker),
             mu_server_target(mu_server_create_local_server(true)) + strlen("muster://"));
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse(text)));
}

typedef struct method_numbers {
    long ended, bytes_in;
} method_numbers;

static long number_in(const char *page, const char *name, const char *method)
{
    char line[200];
    snprintf(line, sizeof line, "\n%s{method=\"%s\"} ", name, method);
    const char *at = strstr(page, line);
    return at != NULL ? atol(at + strlen(line)) : 0;
}

static method_numbers metrics_of(mu_rpc_server *server, const char *method)
{
    const char *page = metrics_page(mu__server_metrics_port(server));
    assert_non_null(page);
    return (method_numbers){.ended = number_in(page, "muster_calls_total", method),
                            .bytes_in = number_in(page, "muster_received_bytes_total", method)};
}

static mu_value *sum(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_cast(mu_at(arguments, 0), MU_F64), MU_ALL_AXES));
}

static double sum_of(mu_coordinator *c, mu_function *step, mu_value *argument)
{
    return mu_scalar(mu_fetch(mu_schedule(c, step, argument)));
}

// ---- Datasets -----------------------------------------------------------------------------------

static mu_value *doubled(mu_value *element, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(element, 0), mu_constant(MU_I64, 2)));
}

static mu_dataset *numbers(void *arg)
{
    const int64_t *batch = arg;
    mu_dataset *mapped = mu_dataset_map(mu_dataset_range(0, 10, 1), .function = mu_function_new(doubled, NULL));
    return mu_dataset_batch(mu_dataset_repeat(mapped, MU_INFINITE), *batch);
}

// Returns the bytes of each call that takes a batch of so many numbers.
static long bytes_of_calls(int64_t batch)
{
    enum { CALLS = 6 };
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *worker = start_worker("localhost:0");
    mu_coordinator *c = mu_coordinator_new(strategy_on(worker));
    mu_value *data = mu_create_per_worker_dataset(c, numbers, &batch);
    mu_function *step = mu_function_new(sum, NULL);
    double total = 0;
    for (int i = 0; i < CALLS; i++)
        total += sum_of(c, step, data);
    assert_true(total == (double)(batch / 10 * 90 * CALLS));
    const method_numbers runs = metrics_of(worker, "muster.function.run");
    assert_int_equal(runs.ended, CALLS);
    assert_int_equal(metrics_of(worker, "muster.input.dataset").ended, 1);
    assert_int_equal(metrics_of(worker, "muster.input.next").ended, 1);
    mu_pool_close(pool);
    return runs.bytes_in / CALLS;
}

static void elements_do_not_travel(void **state)
{
    (void)state;
    const long of_10 = bytes_of_calls(10), of_100000 = bytes_of_calls(100000);
    assert_int_equal(of_10, of_100000);
    assert_true(of_10 < 300);
}

static mu_dataset *uneven(void *arg)
{
    (void)arg;
    mu_dataset *five = mu_dataset_batch(mu_dataset_range(1, 6, 1), 2); // the last batch has one number
    return mu_dataset_concatenate(five, mu_dataset_batch(mu_dataset_batch(mu_dataset_range(6, 10, 1), 2), 2));
}

static void elements_of_other_shapes(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *worker = start_worker("localhost:0");
    mu_coordinator *c = mu_coordinator_new(strategy_on(worker));
    mu_value *data = mu_create_per_worker_dataset(c, uneven, NULL);
    mu_function *step = mu_function_new(sum, NULL);
    assert_true(sum_of(c, step, data) == 3 && sum_of(c, step, data) == 7 && sum_of(c, step, data) == 5);
    assert_true(sum_of(c, step, data) == 30); // of rank 2
    mu_schedule(c, step, data);
    mu_join(c);
    expect_error(MU_OUT_OF_RANGE, "the dataset of worker 0 has no more elements (end of data)");
    assert_int_equal(metrics_of(worker, "muster.input.value").ended, 0);
    mu_pool_close(pool);
}

static mu_value *sum_of_two(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_reduce_sum(mu_at(arguments, 0), MU_ALL_AXES),
                        mu_multiply(mu_at(arguments, 2), mu_reduce_sum(mu_at(arguments, 1), MU_ALL_AXES))));
}

static mu_dataset *ranges(void *arg)
{
    (void)arg;
    return mu_dataset_range(1, 100, 1);
}

static void a_dataset_that_is_named_twice_gives_two_elements(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_coordinator *c = mu_coordinator_new(strategy_on(start_worker("localhost:0")));
    mu_value *data = mu_create_per_worker_dataset(c, ranges, NULL);
    mu_function *step = mu_function_new(sum_of_two, NULL);
    for (int i = 0; i < 3; i++)
        assert_true(sum_of(c, step, mu_list(data, data, mu_of(mu_constant(MU_I64, 1000)), MU_END)) ==
                    (2 * i + 1) + 1000 * (2 * i + 2));
    mu_pool_close(pool);
}

static mu_dataset *ranges_of(const mu_input_context *context, void *arg)
{
    assert_true(context->num_input_pipelines == 1 && context->input_pipeline_id == 0);
    return ranges(arg);
}

// As TensorFlow's create_per_worker_dataset: a dataset, and a distributed one of either kind.
static void datasets_of_the_program(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        mu_pool *pool = mu_pool_open();
        char address[64];
        mu_rpc_server *worker = start_worker("localhost:0");
        snprintf(address, sizeof address, "%s", mu_rpc_server_address(worker));
        mu_strategy *strategy = strategy_on(worker);
        mu_coordinator *c = mu_coordinator_new(strategy);
        mu_function *step = mu_function_new(sum, NULL);
        mu_value *data =
            kind == 0 ? mu_create_per_worker_dataset(c, .dataset = ranges(NULL))
                      : mu_create_per_worker_dataset(
                            c, .dataset = kind == 1 ? mu_distribute_dataset(strategy, ranges(NULL))
                                                    : mu_distribute_datasets_from_function(strategy, ranges_of, NULL));
        assert_true(sum_of(c, step, data) == 1 && sum_of(c, step, data) == 2);
        assert_int_equal(metrics_of(worker, "muster.input.dataset").ended, 1);
        assert_int_equal(mu_rpc_server_stop(worker), MU_OK);
        worker = start_worker(address);
        assert_true(sum_of(c, step, data) == 1); // rebuilt on the worker that is back
        mu_pool_close(pool);
    }
}

static void arguments_that_name_no_dataset(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_on(start_worker("localhost:0"));
    mu_coordinator *c = mu_coordinator_new(strategy);
    assert_null(mu_create_per_worker_dataset(c));
    expect_error(MU_INVALID_ARGUMENT, "the function is NULL; give one, or .dataset");
    assert_null(mu_create_per_worker_dataset(c, ranges, NULL, .dataset = ranges(NULL)));
    expect_error(MU_INVALID_ARGUMENT, "both given");
    assert_null(mu_create_per_worker_dataset(c, .dataset = (const void *)mu_constant(MU_F32, 1)));
    expect_error(MU_INVALID_ARGUMENT, "neither a dataset nor a distributed dataset");
    mu_dataset *batches = mu_dataset_batch(ranges(NULL), 2);
    assert_null(mu_create_per_worker_dataset(c, .dataset = mu_distribute_dataset(mu_mirrored_strategy(), batches)));
    expect_error(MU_INVALID_ARGUMENT, "distributed by another MirroredStrategy");
    mu_pool_close(pool);
}

static mu_dataset *of_a_file(void *arg) { return mu_dataset_tfrecord(arg); }

static void errors_of_elements_name_stage_and_worker(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_coordinator *c = mu_coordinator_new(strategy_on(start_worker("localhost:0")));
    mu_schedule(c, mu_function_new(sum, NULL), mu_create_per_worker_dataset(c, of_a_file, "no/such/file"));
    mu_join(c);
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_NOT_FOUND);
    if (strstr(error.message, "no/such/file") == NULL || strstr(error.message, "the dataset of worker 0") == NULL)
        fail_msg("%s", error.message);
    mu_pool_close(pool);
}

// ---- What cannot be sent --------------------------------------------------------------------------

static mu_value *doubled_here(mu_value *element, void *arg)
{
    ++*(atomic_int *)arg;
    return doubled(element, NULL);
}

static mu_dataset *mapped_here(void *arg)
{
    return mu_dataset_map(mu_dataset_range(0, 3, 1), doubled_here, .arg = arg);
}

static void a_callback_stays_with_the_coordinator(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    static atomic_int calls;
    mu_rpc_server *worker = start_worker("localhost:0");
    mu_coordinator *c = mu_coordinator_new(strategy_on(worker));
    mu_value *data = mu_create_per_worker_dataset(c, mapped_here, &calls);
    mu_function *step = mu_function_new(sum, NULL);
    assert_true(sum_of(c, step, data) == 0 && sum_of(c, step, data) == 2 && sum_of(c, step, data) == 4);
    assert_int_equal(calls, 3);
    assert_int_equal(metrics_of(worker, "muster.input.dataset").ended, 0);
    mu_schedule(c, step, data);
    mu_join(c);
    expect_error(MU_OUT_OF_RANGE, "the dataset of worker 0 has no more elements (end of data)");
    mu_pool_close(pool);
}

static void an_older_worker_is_sent_elements(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    int64_t batch = 10;
    mu_rpc_server *worker = older_worker();
    mu_coordinator *c = mu_coordinator_new(strategy_on(worker));
    mu_value *data = mu_create_per_worker_dataset(c, numbers, &batch);
    assert_true(sum_of(c, mu_function_new(sum, NULL), data) == 90);
    assert_int_equal(metrics_of(worker, "muster.input.dataset").ended, 0);
    mu_pool_close(pool);
}

// ---- Values -------------------------------------------------------------------------------------

enum { LARGE = 100000 };

static mu_value *large(void *arg)
{
    ++*(atomic_int *)arg;
    return mu_list(mu_of(mu_ones(MU_F64, 1, (int64_t[]){LARGE})), mu_of(mu_constant(MU_F64, 2)), MU_END);
}

static mu_value *scaled_sum(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *kept = mu_value_at(arguments, 1);
    return mu_of(mu_multiply(mu_at(arguments, 0), mu_add(mu_reduce_sum(mu_at(kept, 0), MU_ALL_AXES), mu_at(kept, 1))));
}

static mu_value *scaled_sum_of_element(mu_value *arguments, void *arg)
{
    mu_value *element = mu_of(mu_cast(mu_at(arguments, 0), MU_F64));
    return scaled_sum(mu_list(element, mu_value_at(arguments, 1), MU_END), arg);
}

static void values_travel_once(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    static atomic_int made;
    mu_rpc_server *worker = start_worker("localhost:0");
    mu_coordinator *c = mu_coordinator_new(strategy_on(worker));
    mu_value *value = mu_create_per_worker_values(c, large, &made);
    mu_function *step = mu_function_new(scaled_sum, NULL);
    for (int i = 0; i < 5; i++)
        assert_true(sum_of(c, step, mu_list(mu_of(mu_constant(MU_F64, i)), value, MU_END)) == i * (LARGE + 2.0));
    assert_int_equal(made, 1);
    const method_numbers sent = metrics_of(worker, "muster.input.value"),
                         runs = metrics_of(worker, "muster.function.run");
    assert_true(sent.ended == 1 && sent.bytes_in > LARGE * 8 && runs.ended == 5 && runs.bytes_in < 2000);
    mu_pool_close(pool);
}

// In such steps elements belong to their calls and are sent; values belong to the worker.
static void in_synchronous_steps(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    static atomic_int made;
    char text[200];
    mu_rpc_server *worker = start_worker("localhost:0");
    snprintf(text, sizeof text, "{\"worker\": [\"%s\"], \"ps\": [\"%s\"]}", mu_rpc_server_address(worker),
             mu_server_target(mu_server_create_local_server(true)) + strlen("muster://"));
    mu_cluster *cluster = mu_simple_cluster_resolver(mu_cluster_spec_parse(text));
    mu_coordinator *c = mu_coordinator_new(mu_parameter_server_strategy(cluster, .replicas_to_aggregate = 1));
    mu_value *data = mu_create_per_worker_dataset(c, ranges, NULL);
    mu_value *value = mu_create_per_worker_values(c, large, &made);
    mu_function *step = mu_function_new(scaled_sum_of_element, NULL);
    for (int i = 1; i < 4; i++)
        assert_true(sum_of(c, step, mu_list(data, value, MU_END)) == i * (LARGE + 2.0));
    assert_int_equal(metrics_of(worker, "muster.input.dataset").ended, 0);
    assert_int_equal(metrics_of(worker, "muster.input.value").ended, 1);
    mu_pool_close(pool);
}

// ---- The life of an input -------------------------------------------------------------------------

static mu_rpc_client *client_to(mu_rpc_server *worker)
{
    return mu_rpc_client_new("muster", mu_rpc_server_address(worker));
}

static mu_value *int64(int64_t n) { return mu_of(mu_tensor_new(MU_I64, 0, NULL, &n)); }

static void a_worker_that_comes_back_gets_its_inputs(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    static atomic_int made;
    char address[64];
    mu_rpc_server *worker = start_worker("localhost:0");
    snprintf(address, sizeof address, "%s", mu_rpc_server_address(worker));
    mu_coordinator *c = mu_coordinator_new(strategy_on(worker));
    mu_value *data = mu_create_per_worker_dataset(c, ranges, NULL);
    mu_value *value = mu_create_per_worker_values(c, large, &made);
    mu_function *step = mu_function_new(sum, NULL), *scaled = mu_function_new(scaled_sum, NULL);
    assert_true(sum_of(c, step, data) == 1 && sum_of(c, step, data) == 2);
    assert_int_equal(mu_rpc_server_stop(worker), MU_OK);
    worker = start_worker(address);
    assert_true(sum_of(c, step, data) == 1); // from the beginning, as of a new process
    assert_true(sum_of(c, scaled, mu_list(mu_of(mu_constant(MU_F64, 1)), value, MU_END)) == LARGE + 2.0);
    assert_int_equal(made, 2);
    assert_int_equal(metrics_of(worker, "muster.input.dataset").ended, 1);
    mu_pool_close(pool);
}

// Another coordinator comes by mistake and frees the worker's inputs, or the worker has taken this coordinator for
// gone: the worker counts as lost and gets everything again. The program sees no error.
static void a_worker_that_has_freed_everything_gets_it_again(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *worker = start_worker("localhost:0");
    mu_coordinator *c = mu_coordinator_new(strategy_on(worker));
    mu_function *step = mu_function_new(sum, NULL);
    mu_value *data = mu_create_per_worker_dataset(c, ranges, NULL), *three = mu_list(mu_constant(MU_F64, 3), MU_END);
    mu_worker_calls calls = {0};
    assert_true(sum_of(c, step, three) == 3 && sum_of(c, step, data) == 1 && sum_of(c, step, data) == 2);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(mu__remote_variables_clear(client_to(worker)), MU_OK);
        assert_true(sum_of(c, step, i == 1 ? three : data) == (i == 1 ? 3 : 1)); // the dataset begins again
        assert_int_equal(mu_coordinator_worker_calls(c, 0, &calls), MU_OK);
        assert_true(calls.retried == i && calls.failed == 0);
    }
    assert_int_equal(mu_join(c), MU_OK);
    mu_pool_close(pool);
}

// A worker handles the release and the next call on two threads, so the call may come first.
static void expect_freed(mu_rpc_client *client, int64_t number)
{
    mu_rpc_result *result;
    int n = 0;
    while (mu_rpc_result_is_ok(result = mu_rpc_call(client, "muster.input.next", mu_list(int64(number), MU_END))) &&
           n++ < 1000)
        usleep(1000);
    expect_result(result, MU_UNAVAILABLE, "does not have input");
}

static void released_inputs_are_freed(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *worker = start_worker("localhost:0");
    mu_rpc_client *client = client_to(worker);
    mu_remote_input *input = mu__remote_input_dataset(client, "the dataset of worker 0", ranges(NULL));
    const int64_t number = input->number;
    expect_result(mu_rpc_call(client, "muster.input.next", mu_list(int64(number), MU_END)), MU_OK, "");
    mu_release(input);
    expect_freed(client, number);
    input = mu__remote_input_value(client, "the value of worker 0", int64(1));
    assert_int_equal(mu__remote_variables_clear(client), MU_OK); // as the next coordinator does
    expect_result(mu_rpc_call(client, "muster.input.next", mu_list(int64(input->number), MU_END)), MU_UNAVAILABLE, "");
    mu_release(input);
    mu_value *too_large = mu_of(mu_ones(MU_F64, 1, (int64_t[]){1 << 22}));
    assert_null(mu__remote_input_value(client, "the value of worker 3", too_large));
    expect_error(MU_RESOURCE_EXHAUSTED, "the value of worker 3 has 33554432 bytes");
    mu_pool_close(pool);
}

static void hostile_requests_are_refused(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_rpc_client *client = client_to(start_worker("localhost:0"));
    const mu_spec spec = {.dtype = MU_I64, .shape = {0}};
    mu_graph *graph = mu__graph_new("step");
    mu_node *x = mu__graph_input(graph, &spec, "x"), *y = mu__graph_input(graph, &spec, "y");
    mu_node *both = mu__graph_node(graph, &mu_op_add, NULL, 2, (mu_edge[]){{.node = x}, {.node = y}}, 0, NULL);
    assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = both})), MU_OK);
    mu_value *function = int64(mu__remote_function_register(client, graph));
    mu_remote_input *input = mu__remote_input_dataset(client, "the dataset of worker 0", ranges(NULL));
    mu_remote_input *two = mu__remote_input_value(client, "two", mu_list(int64(1), int64(2), MU_END));
    struct {
        mu_value *sent;
        int64_t pairs[4], n;
        mu_status code;
        const char *why;
    } wrong[] = {
        {mu_list(int64(1), MU_END), {0, input->number, 0}, 3, MU_INVALID_ARGUMENT, "two for each"},
        {mu_list(int64(1), MU_END), {0, two->number + 1}, 2, MU_UNAVAILABLE, "does not have input"},
        {mu_list(int64(1), MU_END), {2, input->number}, 2, MU_INVALID_ARGUMENT, "leave other positions"},
        {mu_list(int64(1), MU_END), {-1, input->number}, 2, MU_INVALID_ARGUMENT, "leave other positions"},
        {mu_list(int64(1), int64(1), MU_END), {0, input->number}, 2, MU_INVALID_ARGUMENT, "more were sent"},
        {mu_list(MU_END), {0, input->number}, 2, MU_INVALID_ARGUMENT, "leave other positions"},
        {mu_list(int64(1), MU_END), {1, two->number}, 2, MU_INVALID_ARGUMENT, "more were sent"},
        {mu_list(int64(1), MU_END), {0, input->number, 0, input->number}, 4, MU_INVALID_ARGUMENT, "other positions"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_result(mu_rpc_call(client, "muster.function.run",
                                  mu_list(function, wrong[i].sent,
                                          mu_of(mu_tensor_new(MU_I64, 1, &wrong[i].n, wrong[i].pairs)), MU_END)),
                      wrong[i].code, wrong[i].why);
    mu_value *name = mu__text_value("x");
    expect_result(mu_rpc_call(client, "muster.input.dataset", mu_list(name, int64(1), MU_END)), MU_INVALID_ARGUMENT,
                  "a list of 1 to 1024 stages");
    expect_result(mu_rpc_call(client, "muster.input.dataset", mu_list(name, MU_END)), MU_INVALID_ARGUMENT, "");
    expect_result(mu_rpc_call(client, "muster.input.value"), MU_INVALID_ARGUMENT, "");
    expect_result(mu_rpc_call(client, "muster.input.next"), MU_INVALID_ARGUMENT, "");
    mu_rpc_result *right =
        mu_rpc_call(client, "muster.function.run",
                    mu_list(function, mu_list(int64(10), MU_END),
                            mu_of(mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){1, input->number})), MU_END));
    assert_true(mu_scalar(mu_at(mu_value_at(mu_rpc_result_value(right), 0), 0)) == 11); // no refusal took an element
    mu_release(two);
    mu_release(input);
    mu_release(graph);
    mu_pool_close(pool);
}

int main(void)
{
    setenv("MUSTER_METRICS_PORT", "0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_do_not_travel),
        cmocka_unit_test(elements_of_other_shapes),
        cmocka_unit_test(a_dataset_that_is_named_twice_gives_two_elements),
        cmocka_unit_test(datasets_of_the_program),
        cmocka_unit_test(arguments_that_name_no_dataset),
        cmocka_unit_test(errors_of_elements_name_stage_and_worker),
        cmocka_unit_test(a_callback_stays_with_the_coordinator),
        cmocka_unit_test(an_older_worker_is_sent_elements),
        cmocka_unit_test(values_travel_once),
        cmocka_unit_test(in_synchronous_steps),
        cmocka_unit_test(a_worker_that_comes_back_gets_its_inputs),
        cmocka_unit_test(a_worker_that_has_freed_everything_gets_it_again),
        cmocka_unit_test(released_inputs_are_freed),
        cmocka_unit_test(hostile_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, start_with_key, end_library);
}
