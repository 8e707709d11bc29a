// One task of a cluster speaks the version of the wire before this one, as during an upgrade: functions on workers,
// variables, accumulators and tables in stores, copies, a failover and synchronous steps work whichever task it is; the
// mark of an error that is the program's fault is left out. All servers are in this process.
#include "rpc/client/client.h"

#include "accumulators_test.h"

enum { N_PS = 2, WORKER = N_PS, COORDINATOR, N_TASKS, STEPS = 5, KEYS = 20, DIMENSION = 4 };

typedef struct cluster {
    mu_server *servers[N_PS + 1]; // the parameter servers, then the worker
    mu_strategy *strategy;
    mu_coordinator *coordinator;
    mu_variable *v[N_PS]; // one on each server
    mu_embedding_table *table;
    mu_accumulator *sums[N_PS];
    mu_optimizer *optimizer;
    int calls; // that make a step; 0: steps are not synchronous
} cluster;

// Runs as a process that speaks the older version, if `older`.
static mu_runtime *begin_as(bool older)
{
    char version[16];
    snprintf(version, sizeof version, "%d", MU_WIRE_VERSION - 1);
    if (older)
        setenv("MUSTER_WIRE_VERSION", version, 1);
    mu_runtime *runtime = mu_runtime_new(.cpu_devices = 1);
    unsetenv("MUSTER_WIRE_VERSION");
    return mu_runtime_use(runtime);
}

static mu_server *start_server(bool older)
{
    mu_runtime *before = begin_as(older);
    mu_server *server = mu_server_create_local_server(true);
    mu_runtime_use(before);
    return server;
}

static mu_strategy *strategy_of(const cluster *c, bool older)
{
    const char *at[N_PS + 1];
    char text[300];
    for (int i = 0; i <= N_PS; i++)
        at[i] = mu_server_target(c->servers[i]) + strlen("muster://");
    snprintf(text, sizeof text, "{\"ps\": [\"%s\", \"%s\"], \"worker\": [\"%s\"]}", at[0], at[1], at[2]);
    mu_runtime *before = begin_as(older);
    mu_cluster *resolver = mu_simple_cluster_resolver(mu_cluster_spec_parse(text));
    mu_strategy *strategy =
        c->calls > 0 ? mu_parameter_server_strategy(resolver, .replicas = 1, .replicas_to_aggregate = c->calls)
                     : mu_parameter_server_strategy(resolver, .replicas = 1);
    mu_runtime_use(before);
    if (strategy == NULL)
        fail_msg("%s", mu_error_message());
    return strategy;
}

// The version that a client of this build speaks with each server.
static void expect_versions(const cluster *c, int older)
{
    for (int i = 0; i <= N_PS; i++) {
        mu_rpc_client *client = mu_rpc_client_new("muster", mu_server_target(c->servers[i]) + strlen("muster://"));
        assert_non_null(mu_rpc_client_methods(client));
        pthread_mutex_lock(&client->lock);
        assert_int_equal(client->member.session.version, MU_WIRE_VERSION - (older == i));
        pthread_mutex_unlock(&client->lock);
    }
}

static cluster make(int older, int calls)
{
    cluster c = {.calls = calls};
    for (int i = 0; i <= N_PS; i++)
        c.servers[i] = start_server(older == i);
    c.strategy = strategy_of(&c, older == COORDINATOR);
    c.coordinator = mu_coordinator_new(c.strategy);
    MU_SCOPE(c.strategy) {
        for (int i = 0; i < N_PS; i++)
            c.v[i] = mu_variable_new(mu_constant(MU_F32, 0), "v");
        for (int i = 0; i < N_PS; i++)
            c.sums[i] = mu_conditional_accumulator(MU_F64, .shape = &two);
        c.optimizer = mu_sgd(.learning_rate = 1);
        c.table = mu_embedding_table_new(DIMENSION, .optimizer = "sgd", .learning_rate = 1, .initializer = "zeros");
    }
    if (c.table == NULL)
        fail_msg("%s", mu_error_message());
    return c;
}

static mu_value *add_to_both(mu_value *arguments, void *arg)
{
    const cluster *c = arg;
    for (int i = 0; i < N_PS; i++)
        mu_variable_assign_add(c->v[i], mu_at(arguments, 0));
    return mu_of(mu_variable_read(c->v[0]));
}

// The gradient of both variables is the argument.
static mu_value *descend(mu_value *arguments, void *arg)
{
    const cluster *c = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *sum = mu_add(mu_variable_read(c->v[0]), mu_variable_read(c->v[1]));
    mu_tensor *loss = mu_neg(mu_multiply(sum, mu_at(arguments, 0)));
    mu_apply_gradients(c->optimizer, mu_gradients(tape, loss, mu_variables(c->v[0], c->v[1], MU_END)));
    return mu_of(loss);
}

// Steps on the worker, and as many updates of the table and of accumulators from here.
static void train(cluster *c)
{
    mu_function *step = mu_function_new(c->calls > 0 ? descend : add_to_both, c);
    mu_tensor *keys = mu_range(MU_I64, 0, KEYS, 1), *gradients = mu_fill(MU_F32, 2, (int64_t[]){KEYS, DIMENSION}, -1);
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < MU_MAX(c->calls, 1); k++)
            mu_schedule(c->coordinator, step, mu_of(mu_constant(MU_F32, 1.0 / MU_MAX(c->calls, 1))));
        for (int k = 0; k < N_PS; k++)
            assert_int_equal(mu_accumulator_apply_grad(c->sums[k], row(1, 2), 0), MU_OK);
        assert_int_equal(mu_embedding_table_apply_gradients(c->table, keys, gradients), MU_OK);
    }
    if (mu_join(c->coordinator) != MU_OK)
        fail_msg("%s", mu_error_message());
}

static void expect_steps(const cluster *c, int n)
{
    for (int i = 0; i < N_PS; i++)
        assert_true(mu_scalar(mu_variable_read(c->v[i])) == n && counted(c->sums[i]) == n);
    mu_tensor *rows = mu_embedding_table_lookup(c->table, mu_range(MU_I64, 0, KEYS, 1), .read_only = true);
    assert_non_null(rows);
    for (int i = 0; i < KEYS * DIMENSION; i++)
        assert_true(mu_tensor_item(rows, i) == n);
}

static void expect_each_may_be_older(int calls)
{
    for (int older = 0; older < N_TASKS; older++) {
        mu_pool *pool = mu_pool_open();
        cluster c = make(older, calls);
        train(&c);
        expect_versions(&c, older);
        expect_steps(&c, STEPS);
        wait_for_copies(c.strategy);
        assert_int_equal(mu_server_stop(c.servers[older == 1]), MU_OK); // the older server, if it is one
        expect_steps(&c, STEPS);
        train(&c);
        expect_steps(&c, 2 * STEPS);
        assert_int_equal(recovery_of(c.strategy).failovers, 1);
        mu_pool_close(pool);
    }
}

static void test_each_task_may_be_older(void **state)
{
    (void)state;
    expect_each_may_be_older(0);
}

static void test_synchronous_steps(void **state)
{
    (void)state;
    expect_each_may_be_older(2);
}

// The older server takes over the newer one's variables.
static void test_an_older_server_takes_over(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    cluster c = make(0, 0);
    train(&c);
    wait_for_copies(c.strategy);
    assert_int_equal(mu_server_stop(c.servers[1]), MU_OK);
    train(&c);
    expect_steps(&c, 2 * STEPS);
    assert_int_equal(recovery_of(c.strategy).failovers, 1);
    mu_pool_close(pool);
}

// As replicas that reduce values of different types.
static mu_status fault(const mu_array *in, const mu_array *out, void *arg)
{
    (void)in, (void)out, (void)arg;
    const mu_status status = mu_fail(MU_INTERNAL, "the types differ");
    mu__error_of_caller();
    return status;
}

static mu_value *wrong_step(mu_value *arguments, void *arg)
{
    mu_tensor *in[] = {mu_at(arguments, 0)};
    (void)arg;
    return mu_of(mu_call_op1("version_fault", 1, in));
}

// Exit code 64 instead of 70, if the worker and the coordinator speak this version.
static void test_a_fault_of_the_program_stays_one(void **state)
{
    static const int older[] = {N_TASKS, 0, WORKER, COORDINATOR};
    (void)state;
    assert_int_equal(mu_register_op("version_fault", 1, 1, .kernel = fault, .has_effect = true), MU_OK);
    for (size_t i = 0; i < MU_COUNT(older); i++) {
        mu_pool *pool = mu_pool_open();
        mu_error_value error;
        cluster c = make(older[i], 0);
        mu_schedule(c.coordinator, mu_function_new(wrong_step, NULL), mu_of(mu_constant(MU_F32, 1)));
        assert_int_equal(mu_join(c.coordinator), MU_INTERNAL);
        mu__error_move(&error);
        assert_non_null(strstr(error.message, "the types differ"));
        assert_int_equal(error.of_caller, older[i] != WORKER && older[i] != COORDINATOR);
        mu_pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_task_may_be_older),
        cmocka_unit_test(test_synchronous_steps),
        cmocka_unit_test(test_an_older_server_takes_over),
        cmocka_unit_test(test_a_fault_of_the_program_stays_one),
    };
    setenv("MUSTER_HEARTBEAT", "2", 1);
    return cmocka_run_group_tests_name("coordinator/versions", tests, start_with_key, end_library);
}
