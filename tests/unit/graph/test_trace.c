// Traces and passes: what a trace records, which nodes remain after sharing and pruning, and which tensors may not
// enter another trace.
#include "../model/model_test.h"

static mu_tensor *escaped;
static mu_variable *variable;

static mu_traced trace(mu_traceable *fn, void *arg, int rank)
{
    mu_traced traced;
    mu_spec spec = {.dtype = MU_F64, .shape = {.rank = rank, .dims = {MU_UNKNOWN, 3}}};
    mu_status status = mu__trace_run("test", fn, arg, mu_of(mu_constant(MU_F64, 0)), &spec, true, &traced);
    if (status != MU_OK)
        fail_msg("%s", mu_error_message());
    return traced;
}

static void free_traced(mu_traced *traced)
{
    mu_release(traced->graph);
    mu_release(traced->inputs);
    mu_release(traced->outputs);
}

static int count(const mu_graph *graph, const mu_op *op)
{
    int n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        n += graph->nodes.items[i]->op == op;
    return n;
}

static mu_value *repeat_itself(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *two = mu_constant(MU_F64, 2), *again = mu_constant(MU_F64, 2);
    mu_tensor *a = mu_multiply(mu_exp(x), two), *b = mu_multiply(mu_exp(x), again);
    mu_tensor *unused = mu_sin(mu_cos(x));
    assert_non_null(unused);
    return mu_of(mu_add(a, b));
}

static void passes_share_and_prune(void **state)
{
    (void)state;
    mu_traced traced = trace(repeat_itself, NULL, 2);
    assert_int_equal(count(traced.graph, &mu_op_exp), 1);
    assert_int_equal(count(traced.graph, &mu_op_multiply), 1);
    assert_int_equal(count(traced.graph, &mu_op_constant), 1);
    assert_int_equal(count(traced.graph, &mu_op_sin) + count(traced.graph, &mu_op_cos), 0);
    for (size_t i = 0; i < traced.graph->nodes.n; i++) {
        const mu_node *node = traced.graph->nodes.items[i];
        assert_int_equal(node->id, i);
        for (int k = 0; k < node->n_in; k++)
            assert_true(node->in[k].node->id < node->id);
    }
    mu_shape shape = mu_tensor_shape(mu_value_tensor(traced.outputs));
    assert_int_equal(shape.dims[0], MU_UNKNOWN);
    assert_int_equal(shape.dims[1], 3);
    free_traced(&traced);
}

static mu_value *read_and_write(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *before = mu_add(mu_variable_read(variable), mu_variable_read(variable));
    mu_variable_assign_add(variable, mu_reduce_sum(mu_at(arguments, 0), MU_ALL_AXES));
    mu_variable_read(variable); // unused
    return mu_of(mu_subtract(mu_variable_read(variable), before));
}

// Reads are shared between writes, but not across them; writes are kept even if nothing uses them.
static void effects_keep_their_order(void **state)
{
    (void)state;
    variable = mu_variable_new(mu_constant(MU_F64, 10), "v");
    mu_traced traced = trace(read_and_write, NULL, 1);
    assert_int_equal(count(traced.graph, &mu_op_read_variable), 2);
    assert_int_equal(count(traced.graph, &mu_op_assign_add_variable), 1);
    assert_int_equal(traced.graph->resources.n, 1);
    free_traced(&traced);
    mu_function *function = mu_function_new(read_and_write, NULL);
    mu_value *result = mu_run(NULL, function, mu_of(vector(2, (double[]){1, 2})));
    assert_true(mu_scalar(result) == 13 - 20);
    assert_true(mu_scalar(mu_variable_read(variable)) == 13);
}

static void clones_are_equal(void **state)
{
    (void)state;
    char text[2][4096];
    variable = mu_variable_new(mu_constant(MU_F64, 1), "v");
    mu_traced traced = trace(read_and_write, NULL, 1);
    mu_graph *graphs[] = {traced.graph, mu__graph_clone(traced.graph)};
    for (int i = 0; i < 2; i++) {
        FILE *out = tmpfile();
        mu__graph_print(graphs[i], out);
        rewind(out);
        text[i][fread(text[i], 1, sizeof text[i] - 1, out)] = 0;
        fclose(out);
    }
    assert_string_equal(text[0], text[1]);
    assert_non_null(strstr(text[0], "@v"));
    mu_release(graphs[1]);
    free_traced(&traced);
}

// ---- Tensors that may not cross -----------------------------------------------------------------

static mu_value *let_escape(mu_value *arguments, void *arg)
{
    (void)arg;
    escaped = mu_retain(mu_exp(mu_at(arguments, 0)));
    return mu_of(escaped);
}

static mu_value *use_escaped(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_at(arguments, 0), escaped));
}

static void symbolic_tensors_stay_inside(void **state)
{
    (void)state;
    mu_value *x = mu_of(vector(1, (double[]){1}));
    assert_non_null(mu_run(NULL, mu_function_new(let_escape, NULL), x));
    assert_true(mu_tensor_is_symbolic(escaped));
    assert_null(mu_tensor_data(escaped));
    expect_error(MU_FAILED_PRECONDITION, "symbolic");
    assert_null(mu_exp(escaped));
    expect_error(MU_FAILED_PRECONDITION, "trace has ended");
    assert_null(mu_run(NULL, mu_function_new(use_escaped, NULL), x));
    expect_error(MU_FAILED_PRECONDITION, "is used in the trace of");
    assert_null(mu_run(NULL, mu_function_new(repeat_itself, NULL), mu_of(escaped)));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_release(escaped);
}

static mu_value *look_inside(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_constant(MU_F64, mu_scalar(arguments)));
}

static mu_value *variable_from_argument(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_new(mu_at(arguments, 0), "late");
    return NULL;
}

static void values_are_not_known_while_tracing(void **state)
{
    (void)state;
    mu_value *x = mu_of(mu_constant(MU_F64, 1));
    assert_null(mu_run(NULL, mu_function_new(look_inside, NULL), x));
    expect_error(MU_FAILED_PRECONDITION, "while tracing");
    assert_null(mu_run(NULL, mu_function_new(variable_from_argument, NULL), x));
    expect_error(MU_FAILED_PRECONDITION, "'late'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(passes_share_and_prune),
        MODEL_TEST(effects_keep_their_order),
        MODEL_TEST(clones_are_equal),
        MODEL_TEST(symbolic_tensors_stay_inside),
        MODEL_TEST(values_are_not_known_while_tracing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
