// An engine of the test's own that interprets graphs and whose buffers are in a memory space of their own
// (own_memory_space.h): code that takes its handles for host addresses reads wrong numbers. Variables stay in that
// memory space between steps.
#include "../model/model_test.h"
#include "../tensor/own_memory_space.h"
#include "distribute/distribute.h"

enum { MOST = 32 };
static own_memory_space own = OWN_MEMORY_SPACE("OWN:0");

static mu_tensor *tensor_at(mu_buffer *owned, const mu_spec *spec)
{
    return mu__give(owned) ? mu__give(mu__tensor_view(owned, 0, spec->dtype, &spec->shape)) : NULL;
}

// The engine makes the graph pure: variables become inputs and outputs after the function's own.
static mu_plan *own_compile(mu_device *device, mu_graph *graph, const mu_spec *inputs, int n_inputs)
{
    return (void)device, (void)inputs, (void)n_inputs, mu_retain(graph);
}
static mu_status own_run(mu_plan *plan, const mu_run_args *run)
{
    const mu_graph *graph = (const mu_graph *)plan;
    const size_t n = graph->resources.n, n_in = graph->inputs.n - n, n_out = graph->outputs.n - n;
    mu_tensor *values[MOST] = {NULL}, *in[4];
    for (size_t i = 0; i < graph->inputs.n; i++) {
        mu_resource *state = i < n_in ? NULL : graph->resources.items[i - n_in];
        mu_buffer *held = NULL;
        if (state)
            MU_TRY(state->kind->acquire(state, run->replica, &own.memory_space, MU_ACCESS_READ_WRITE, &held));
        values[graph->inputs.items[i]->id] = state ? tensor_at(held, &state->spec) : run->in[i];
    }
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int k = 0; k < node->n_in; k++)
            in[k] = values[node->in[k].node->id];
        if (node->op == &mu_op_constant)
            values[i] = ((const mu_constant_attrs *)node->attrs)->tensor;
        else if (node->op != &mu_op_input)
            MU_TRY(mu__apply(node->op, node->attrs, node->n_in, in, 0, NULL, &values[i]));
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        mu_resource *state = i < n_out ? NULL : graph->resources.items[i - n_out];
        const mu_tensor *value = values[graph->outputs.items[i].node->id];
        const mu_spec spec = mu__spec_of(value);
        mu_tensor *moved = tensor_at(mu__buffer_at(&own.memory_space, &spec), &spec);
        MU_TRY(moved ? mu__buffer_from_host(moved->buffer, mu__host_read(value)) : mu_error_code());
        if (state)
            MU_TRY(state->kind->commit(state, run->replica, MU_ACCESS_READ_WRITE, moved->buffer));
        else
            run->out[i] = mu_retain(moved);
    }
    return MU_OK;
}
static void own_free_plan(mu_plan *plan) { mu_release(plan); }
static const mu_engine own_engine = {"own", mu__pass_state, own_compile, own_run, own_free_plan, NULL};

static mu_value *add_twice(mu_value *arguments, void *arg)
{
    mu_variable_assign_add(arg, mu_multiply(mu_at(arguments, 0), mu_constant(MU_F64, 2)));
    return mu_of(mu_subtract(mu_variable_read(arg), mu_at(arguments, 0)));
}
static void variables_stay_in_the_engines_memory(void **state)
{
    (void)state;
    static mu_device device = {
        .engine = &own_engine, .name = "OWN:0", .memory_space = &own.memory_space, .n_cpus = 1, .team = {1}};
    mu_strategy *strategy = mu_one_device_strategy("CPU:0");
    strategy->devices[0] = &device;
    mu_variable *total = mu_variable_new(mu_constant(MU_F64, 100), "total");
    mu_function *function = mu_function_new(add_twice, total);
    for (int step = 1; step <= 3; step++) {
        mu_tensor *x = mu_constant(MU_F64, step);
        mu_tensor *result = mu_value_tensor(mu_run(strategy, function, mu_list(mu_of(x), MU_END)));
        assert_true(result && result->buffer->memory_space == &own.memory_space &&
                    mu_scalar(result) == 100 + step * step);
    }
    assert_true(*(const double *)mu__host_read(total->components[0]) == 100); // it has not been fetched
    assert_true(mu_scalar(mu_variable_read(total)) == 112);
    mu_variable_assign(total, mu_constant(MU_F64, 1)); // the copy in the engine's memory is old now
    assert_true(mu_scalar(mu_run(strategy, function, mu_list(mu_of(mu_constant(MU_F64, 5)), MU_END))) == 6);
    assert_true(mu_scalar(mu_variable_read(total)) == 11);
    mu__worker_free(device.worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(variables_stay_in_the_engines_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
