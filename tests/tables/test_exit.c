// mu_exit inside of a callback of the library: refused, whichever function calls back, since the running call still
// uses what mu_exit frees. The call fails with that refusal, and the library can be used further.
//
// A row passes a callback that calls mu_exit to one of the library's functions. Rows run in processes of their own, so
// that a missing refusal is one row's failure.
#include <muster.h>

#include "../unit/base/base_test.h"

static const char *row_name;

// The body of every callback of the rows.
static void try_to_exit(void)
{
    if (mu_exit(true) == 78)
        return;
    printf("mu_exit is not refused in %s\n", row_name);
    fflush(stdout);
    _exit(1);
}

static mu_tensor *one(void) { return mu_ones(MU_F32, 1, (int64_t[]){1}); }
static mu_value *no_arguments(void) { return mu_list(MU_END); }

// ---- The callbacks ------------------------------------------------------------------------------

#define EXITS(result, name, parameters) \
    static result name parameters       \
    {                                   \
        try_to_exit();                  \
        return 0;                       \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
EXITS(mu_value *, in_body, (mu_value * arguments, void *arg))
EXITS(mu_tensor *, in_condition, (mu_value * arguments, void *arg))
EXITS(mu_value *, in_merge, (mu_strategy * strategy, mu_value *arguments, void *arg))
EXITS(mu_value *, in_update, (mu_variable * variable, mu_value *arguments, void *arg))
EXITS(mu_value *, in_values, (const mu_value_context *context, void *arg))
EXITS(mu_dataset *, in_input, (const mu_input_context *context, void *arg))
EXITS(mu_tensor *, in_reduction, (mu_reduce_op op, int n, mu_tensor *const *parts, void *arg))
EXITS(mu_value *, in_step, (mu_value * state, mu_value *element, void *arg))
EXITS(mu_value *, in_backward, (mu_value * arguments, mu_value *results, mu_value *gradients, void *arg))
EXITS(mu_tensor *, in_initial_value, (void *arg))
EXITS(mu_tensor *, in_loss, (mu_tensor * y_true, mu_tensor *y_pred, void *arg))
EXITS(mu_status, in_metric, (mu_metric * metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, void *arg))
EXITS(double, in_result, (const double *sums, void *arg))
EXITS(mu_tensor *, in_draw, (mu_dtype dtype, const mu_shape *shape, void *arg))
EXITS(mu_value *, in_call, (mu_layer * layer, mu_value *inputs, const mu_call_context *context, void *arg))
EXITS(mu_status, in_kernel, (const mu_array *in, const mu_array *out, void *arg))
EXITS(int, in_partitioner, (const mu_shape *shape, mu_dtype dtype, int64_t parts[MU_MAX_RANK], void *arg))
#undef EXITS
#pragma GCC diagnostic pop

static mu_value *echo(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static mu_value *merging(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_merge_call(in_merge, NULL, arguments);
}

static mu_status adding(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, void *arg)
{
    (void)y_true, (void)y_pred, (void)weights, (void)arg;
    return mu_metric_add(metric, 0, mu_constant(MU_F32, 1));
}

// ---- The rows -----------------------------------------------------------------------------------

static mu_strategy *two(void) { return mu_mirrored_strategy(.replicas = 2); }

static void merge_alone(void) { mu_merge_call(in_merge, NULL, NULL); }
static void merge_eager(void) { mu_run_callback(two(), merging, NULL, no_arguments()); }
static void merge_traced(void) { mu_run(two(), mu_function_new(merging, NULL), no_arguments()); }
static void replicas(void) { mu_run_callback(two(), in_body, NULL, no_arguments()); }
static void replica_alone(void) { mu_run_callback(mu_default_strategy(), in_body, NULL, no_arguments()); }
static void called_in_scope(void)
{
    MU_SCOPE(two())
        mu_function_call(mu_function_new(in_body, NULL), no_arguments());
}
static void traced(void) { mu_run(two(), mu_function_new(in_body, NULL), no_arguments()); }
static void non_slot(void) { mu_update_non_slot(two(), in_body, NULL, NULL); }
static void non_slot_default(void) { mu_update_non_slot(NULL, in_body, NULL, NULL); }

static void update(void)
{
    mu_strategy *strategy = two();
    mu_variable *variable = NULL;
    MU_SCOPE(strategy)
        variable = mu_variable_new(one(), "v");
    mu_update_variable(strategy, variable, in_update);
}

static void values(void) { mu_distribute_values(two(), in_values, NULL); }
static void datasets(void) { mu_distribute_datasets_from_function(two(), in_input, NULL); }

static void reduction(void)
{
    mu_value *value = mu_of(one());
    mu_cross_device_reduce(mu_cross_device_ops_new(in_reduction, NULL), MU_SUM, value, value);
}

static void initial_value(void) { mu_variable_new(.initial_value_fn = in_initial_value); }

static void partitioner(void)
{
    const mu_shape shape = mu_shape_make(1, (int64_t[]){4});
    int64_t parts[MU_MAX_RANK];
    mu_partitioner_call(mu_partitioner_new(in_partitioner, NULL), &shape, MU_F32, 0, parts);
}

static void branch(void) { mu_cond(mu_constant(MU_BOOL, 1), in_body, in_body, no_arguments(), NULL); }
static void loop_condition(void) { mu_while_loop(in_condition, echo, mu_of(one()), NULL); }
static void scan(void) { mu_scan(in_step, mu_of(one()), mu_of(one()), .arg = NULL); }
static void map_rows(void) { mu_map_fn(in_body, mu_of(one()), NULL); }
static void map_vectorized(void) { mu_vectorized_map(in_body, mu_of(one()), NULL); }
static void recompute(void) { mu_recompute_grad(in_body, mu_of(one()), NULL); }
static void custom_forward(void) { mu_custom_gradient(in_body, in_backward, mu_of(one()), NULL); }

static void custom_backward(void)
{
    mu_variable *variable = mu_variable_new(one(), "v");
    mu_tape *tape = mu_tape_open();
    mu_value *result = mu_custom_gradient(echo, in_backward, mu_list(mu_variable_read(variable), MU_END), NULL);
    mu_gradients(tape, mu_at(result, 0), mu_variables(variable, MU_END));
}

static void own_loss(void) { mu_loss_call(mu_loss_new(.name = "exits", .call = in_loss), one(), one()); }

static void own_metric(mu_status (*fn)(mu_metric *, mu_tensor *, mu_tensor *, mu_tensor *, void *))
{
    static const mu_metric_state states[] = {{.name = "total"}};
    mu_metric *metric =
        mu_metric_new(.name = "exits", .update = fn, .result = in_result, .states = states, .n_states = 1);
    mu_metric_update(metric, one(), one());
    mu_metric_result(metric);
}

static void metric_update(void) { own_metric(in_metric); }
static void metric_result(void) { own_metric(adding); }
static void layer(void) { mu_call(mu_layer_new(.call = in_call), one()); }

static void initializer(void)
{
    mu_model_build(mu_sequential(mu_dense(1, .kernel_initializer = mu_initializer_new(in_draw))), 1, (int64_t[]){3});
}

static void dataset_map(void) { mu_next(mu_iterate(mu_dataset_map(mu_dataset_range(0, 3, 1), in_body))); }

static void kernel(void)
{
    mu_tensor *x = one();
    mu_register_op("exits", 1, 1, .kernel = in_kernel);
    mu_call_op1("exits", 1, &x);
}

typedef struct row {
    const char *name;
    void (*run)(void);
} row;

static const row rows[] = {
#define ROW(name)   \
    {               \
#name, name \
    }
    ROW(merge_alone),      ROW(merge_eager),    ROW(merge_traced),    ROW(replicas),
    ROW(replica_alone),    ROW(traced),         ROW(called_in_scope), ROW(non_slot),
    ROW(non_slot_default), ROW(update),         ROW(values),          ROW(datasets),
    ROW(reduction),        ROW(initial_value),  ROW(partitioner),     ROW(branch),
    ROW(loop_condition),   ROW(scan),           ROW(map_rows),        ROW(map_vectorized),
    ROW(recompute),        ROW(custom_forward), ROW(custom_backward), ROW(own_loss),
    ROW(metric_update),    ROW(metric_result),  ROW(layer),           ROW(initializer),
    ROW(dataset_map),      ROW(kernel),
#undef ROW
};

static int run_row(const row *r)
{
    row_name = r->name;
    if (mu_init(.cpu_devices = 2, .threads = 2, .log = "error") != MU_OK)
        return 2;
    mu_pool *pool = mu_pool_open();
    r->run();
    const mu_error error = mu_error_take();
    mu_pool_close(pool);
    if (error.code != MU_FAILED_PRECONDITION || strstr(error.message, "mu_exit is called inside") == NULL) {
        printf("%s: [%s] %s\n", r->name, mu_status_name(error.code), error.message);
        fflush(stdout);
        return 1;
    }
    return mu_exit(true);
}

static void exit_is_refused(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        int status;
        fflush(stdout);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(run_row(&rows[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0)
            printf("%s: the process ended with %#x\n", rows[i].name, status);
        failures += status != 0;
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exit_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
