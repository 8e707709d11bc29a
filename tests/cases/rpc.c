// Cases RPC of the parameter-server list: methods, their results and errors, on a server in this process.
#include "cases.h"

#include <pthread.h>
#include <unistd.h>

static mu_value *number(int value) { return mu_of(mu_constant(MU_I32, value)); }

static mu_value *multiply(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(arguments, 0), mu_at(arguments, 1)));
}

static mu_value *as_map(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_map("key", mu_value_at(arguments, 0), MU_END);
}

static mu_value *as_nest(mu_value *arguments, void *arg)
{
    mu_value *v = mu_value_at(arguments, 0);
    (void)arg;
    return mu_map("test", mu_list(v, mu_list(v, v, MU_END), MU_END), "test1", mu_list(v, MU_END), MU_END);
}

static mu_value *as_nothing(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_list(MU_END);
}

static mu_value *add_to_state(mu_value *arguments, void *arg)
{
    mu_variable_assign_add(arg, mu_at(arguments, 0));
    return mu_of(mu_variable_read(arg));
}

// A server with the methods of the cases, started.
static mu_rpc_server *serve(const char *address, mu_variable *captured)
{
    mu_rpc_server *server = mu_rpc_server_new("muster", address);
    mu_rpc_server_register(server, "multiply", .fn = multiply, .input_signature = "(int32[], int32[])",
                           .output_signature = "int32[]");
    mu_rpc_server_register(server, "as_map", .fn = as_map);
    mu_rpc_server_register(server, "as_nest", .fn = as_nest);
    mu_rpc_server_register(server, "as_nothing", .fn = as_nothing);
    if (captured)
        mu_rpc_server_register(server, "assign_add", .function = mu_function_new(add_to_state, captured),
                               .input_signature = "(int32[])");
    CHECK(mu_rpc_server_start(server) == MU_OK);
    return server;
}

static mu_rpc_client *client_of(mu_rpc_server *server)
{
    return mu_rpc_client_new("muster", mu_rpc_server_address(server), .timeout_in_ms = 60000);
}

static mu_value *call(mu_rpc_client *client, const char *method, mu_value *arguments)
{
    return mu_rpc_result_value(mu_rpc_call(client, method, arguments));
}

static void ps_073(void)
{
    mu_rpc_client *client = client_of(serve("localhost:0", NULL));
    mu_rpc_result *result = mu_rpc_call(client, "multiply", mu_list(number(2), number(3), MU_END));
    CHECK(mu_rpc_result_is_ok(result));
    EXPECT(mu_rpc_result_value(result), 6);
    const char *const *methods = mu_rpc_client_methods(client);
    CHECK(methods && strcmp(methods[0], "multiply") == 0);
    EXPECT(call(client, methods[0], mu_list(number(2), number(3), MU_END)), 6);
}

static void ps_074(void)
{
    mu_rpc_client *client = client_of(serve("localhost:0", NULL));
    mu_value *two = mu_list(number(2), MU_END);
    EXPECT(mu_value_get(call(client, "as_map", two), "key"), 2);
    mu_value *nest = call(client, "as_nest", two);
    EXPECT(mu_value_get(nest, "test"), 2, 2, 2);
    CHECK(mu_value_count(mu_value_at(mu_value_get(nest, "test"), 1)) == 2);
    EXPECT(mu_value_get(nest, "test1"), 2);
    CHECK(mu_value_count(call(client, "as_nothing", two)) == 0);
}

typedef struct late_server {
    pthread_t thread;
    char address[64];
    mu_rpc_server *server; // retained
} late_server;

static void *start_late(void *argument)
{
    late_server *late = argument;
    mu_pool *pool = mu_pool_open();
    sleep(1);
    late->server = mu_retain(serve(late->address, NULL));
    mu_pool_close(pool);
    return NULL;
}

// A port that was free a moment ago.
static void free_address(char *text, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    mu_rpc_server *server = mu_rpc_server_new("muster", "127.0.0.1:0");
    mu_rpc_server_start(server);
    snprintf(text, bytes, "%s", mu_rpc_server_address(server));
    mu_pool_close(pool);
}

static void ps_076(void)
{
    late_server late = {0};
    free_address(late.address, sizeof late.address);
    mu_rpc_client *early = mu_rpc_client_new("muster", late.address);
    CHECK(!mu_rpc_client_new("muster", late.address, .list_registered_methods = true, .timeout_in_ms = 1));
    EXPECT_ERROR(MU_DEADLINE_EXCEEDED);
    pthread_create(&late.thread, NULL, start_late, &late);
    mu_rpc_client *listing = mu_rpc_client_new("muster", late.address, .list_registered_methods = true);
    CHECK(listing && mu_rpc_client_signature(listing, "multiply"));
    EXPECT(call(early, "multiply", mu_list(number(2), number(3), MU_END)), 6);
    pthread_join(late.thread, NULL);
    mu_release(late.server);
}

static void ps_077(void)
{
    mu_rpc_server *server = serve("localhost:0", NULL);
    CHECK(mu_rpc_server_register(server, "late", .fn = multiply) != MU_OK);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    mu_rpc_server *other = mu_rpc_server_new("muster", "localhost:0");
    CHECK(mu_rpc_server_register(other, "twice", .fn = multiply) == MU_OK);
    CHECK(mu_rpc_server_register(other, "twice", .fn = multiply) != MU_OK);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void ps_079(void)
{
    mu_variable *state = mu_variable_new(mu_constant(MU_I32, 0), "state");
    mu_rpc_client *client = client_of(serve("localhost:0", state));
    mu_rpc_result *results[10];
    for (int i = 0; i < 10; i++)
        results[i] = mu_rpc_call(client, "assign_add", mu_list(number(2), MU_END));
    for (int i = 0; i < 10; i++)
        CHECK(mu_rpc_result_is_ok(results[i]));
    EXPECT(read_of(state), 20);
}

static void ps_080(void)
{
    mu_variable *state = mu_variable_new(mu_constant(MU_I32, 0), "state");
    mu_rpc_client *client = client_of(serve("localhost:0", state));
    mu_rpc_result *results[] = {mu_rpc_call(client, "assign_add"), mu_rpc_call(client, "no_such_method")};
    for (int i = 0; i < 2; i++) {
        CHECK(!mu_rpc_result_is_ok(results[i]));
        CHECK(mu_rpc_result_error(results[i]).code == MU_INVALID_ARGUMENT);
    }
}

const one_case rpc_cases[] = {
    {"ps-073", ps_073, NULL},
    {"ps-074", ps_074, NULL},
    {"ps-076", ps_076, NULL},
    {"ps-077", ps_077, NULL},
    {"ps-079", ps_079, NULL},
    {"ps-080", ps_080, NULL},
    {0},
};
