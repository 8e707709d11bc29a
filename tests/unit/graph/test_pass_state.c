// The pass that makes state into inputs and outputs: what graphs look like before and after it, and that the pure ones
// give the same bits and leave variables as the effects do, through bodies too.
#include "control_test.h"
#include "printed.h"

#include "engine/engine.h"
#include "model/optimizers/optimizer.h"

static mu_variable *v, *w;

// ---- Before and after ---------------------------------------------------------------------------

static mu_graph *graph_of(mu_traceable *fn, void *arg, mu_value *arguments)
{
    mu_concrete *concrete = mu__function_concrete(mu_function_new(fn, arg), arguments, false, NULL);
    if (!concrete)
        fail_msg("%s", mu_error_message());
    return concrete->graph;
}

static mu_graph *pure_of(const mu_graph *graph)
{
    mu_graph *pure = mu__pass_state(graph);
    if (!pure || mu__graph_check(pure) != MU_OK)
        fail_msg("%s", mu_error_message());
    return pure;
}

static mu_value *in_order(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *before = mu_variable_read(v), *most = mu_constant(MU_F64, 100);
    mu_print(before, "before");
    mu_variable_assign_add(v, x);
    mu_tensor *sum = mu_variable_read(v);
    mu_assert(mu_less(sum, most), "too much");
    mu_variable_assign(v, mu_multiply(sum, mu_variable_read(w)));
    return mu_list(mu_sin(before), MU_END);
}

static void start_variables(void)
{
    v = mu_variable_new(mu_constant(MU_F64, .6), "v");
    w = mu_variable_new(mu_constant(MU_F64, -.4), "w");
}

static void effects_become_values(void **state)
{
    (void)state;
    start_variables();
    mu_graph *graph = graph_of(in_order, NULL, mu_list(mu_constant(MU_F64, 2), MU_END));
    assert_printed(graph, "  %0 = input() : float64[]\n"
                          "  %1 = read_variable(@v) : float64[]\n"
                          "  %2 = print(%1) text='before'\n"
                          "  %3 = assign_add_variable(%0, @v)\n"
                          "  %4 = read_variable(@v) : float64[]\n"
                          "  %5 = constant() value=100 : float64[]\n"
                          "  %6 = less(%4, %5) : bool[]\n"
                          "  %7 = assert(%6) text='too much'\n"
                          "  %8 = read_variable(@w) : float64[]\n"
                          "  %9 = multiply(%4, %8) : float64[]\n"
                          "  %10 = assign_variable(%9, @v)\n"
                          "  %11 = sin(%1) : float64[]\n"
                          "  return %11.0\n");
    mu_graph *pure = pure_of(graph);
    assert_printed(pure, "  %0 = input() : float64[]\n"
                         "  %1 = input() : float64[]  # v\n"
                         "  %2 = input() : float64[]  # w\n"
                         "  %3 = print(%1) text='before'\n"
                         "  %4 = add(%1, %0) : float64[]\n"
                         "  %5 = constant() value=100 : float64[]\n"
                         "  %6 = less(%4, %5) : bool[]\n"
                         "  %7 = assert(%6) text='too much'\n"
                         "  %8 = multiply(%4, %2) : float64[]\n"
                         "  %9 = sin(%1) : float64[]\n"
                         "  return %9.0 %8.0 %2.0\n");
    assert_int_equal(pure->resources.n, 2);
    mu_release(pure);
}

// ---- The same results ---------------------------------------------------------------------------

static mu_tensor *total(mu_tensor *x) { return mu_reduce_sum(x, MU_ALL_AXES); }

static mu_tensor *few_iterations(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_add(mu_at(vars, 0), mu_multiply(mu_variable_read(v), mu_constant(MU_F64, .01))),
                   mu_constant(MU_F64, 4));
}

static mu_value *iteration(mu_value *vars, void *arg)
{
    (void)arg;
    mu_tensor *i = mu_at(vars, 0), *x = mu_at(vars, 1), *before = mu_variable_read(v);
    mu_variable_assign(v, mu_tanh(mu_add(before, mu_reduce_mean(x, 0))));
    mu_tensor *next = mu_add(mu_multiply(x, before), mu_variable_read(w));
    return mu_list(mu_add(i, mu_constant(MU_F64, 1)), mu_multiply(next, mu_variable_read(v)), MU_END);
}

static mu_value *loop(mu_value *arguments, void *arg)
{
    mu_value *vars = mu_list(mu_constant(MU_F64, 0), mu_at(arguments, 0), MU_END);
    mu_value *out = mu_while_loop(few_iterations, iteration, vars, arg);
    return mu_list(mu_at(out, 0), mu_at(out, 1), mu_variable_read(v), MU_END);
}

static mu_value *writes_v(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign(v, total(mu_at(arguments, 0)));
    return mu_list(mu_multiply(mu_at(arguments, 0), mu_variable_read(v)), MU_END);
}

static mu_value *writes_w(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_sub(w, total(mu_at(arguments, 0)));
    return mu_list(mu_multiply(mu_at(arguments, 0), mu_variable_read(v)), MU_END);
}

static mu_value *branches(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_value *first = mu_cond(mu_less(total(x), mu_constant(MU_F64, 0)), writes_v, writes_w, mu_list(x, MU_END), NULL);
    mu_value *second = mu_cond(mu_less(total(x), mu_constant(MU_F64, 9)), writes_v, writes_w, first, NULL);
    return mu_list(mu_at(second, 0), mu_variable_read(w), MU_END);
}

static mu_value *step(mu_value *vars, mu_value *element, void *arg)
{
    (void)arg;
    mu_tensor *e = mu_at(element, 0), *h = mu_multiply(mu_at(vars, 0), mu_variable_read(v));
    mu_value *bent = mu_cond(mu_less(e, mu_constant(MU_F64, 0)), writes_v, writes_w,
                             mu_list(mu_stack(2, (mu_tensor *[]){h, e}, 0), MU_END), NULL);
    return mu_list(total(mu_at(bent, 0)), MU_END);
}

static mu_value *scan(mu_value *arguments, void *arg)
{
    mu_value *start = mu_list(mu_constant(MU_F64, .5), MU_END);
    mu_value *states = mu_scan(step, mu_list(mu_at(arguments, 0), MU_END), start, arg);
    return mu_list(mu_at(states, 0), mu_variable_read(v), MU_END);
}

static mu_value *gradients(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_value *again = mu_recompute_grad(writes_w, mu_list(mu_sin(x), MU_END), NULL);
    mu_tensor *y = mu_add(total(mu_at(scan(again, arg), 0)), total(mu_at(branches(arguments, arg), 0)));
    mu_value *found = mu_gradients(tape, y, mu_list(x, mu_variables(v, w, MU_END), MU_END));
    mu_variable_assign_sub(v, mu_at(mu_value_at(found, 1), 0));
    return mu_list(y, mu_at(found, 0), mu_at(mu_value_at(found, 1), 1), MU_END);
}

typedef struct training {
    mu_model *model;
    mu_optimizer *optimizer;
} training;

static mu_value *train(mu_value *arguments, void *arg)
{
    training *job = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_cast(mu_greater(mu_at(arguments, 0), mu_constant(MU_F64, 0)), MU_I64);
    mu_tensor *loss = total(mu_square(mu_call(job->model, rows, .training = true)));
    mu_apply_gradients(job->optimizer, mu_gradients(tape, loss, mu_trainable_variables(job->model)));
    return mu_list(loss, MU_END);
}

// One run of a graph on a device of its own; results are owned by the caller.
static void run_graph(mu_graph *graph, mu_tensor *const *in, mu_tensor **out)
{
    mu_device device = {.engine = &mu__engine_cpu, .name = "test", .team = {.n_threads = 1}};
    mu_spec specs[64];
    assert_true(graph->inputs.n < MU_COUNT(specs));
    for (size_t i = 0; i < graph->inputs.n; i++)
        specs[i] = mu__spec_of(in[i]);
    mu_graph *lowered = device.engine->lower ? device.engine->lower(graph) : mu_retain(graph);
    mu_plan *plan = lowered ? device.engine->compile(&device, lowered, specs, (int)graph->inputs.n) : NULL;
    const mu_run_args args = {.in = in, .out = out};
    if (!plan || device.engine->run(plan, &args) != MU_OK)
        fail_msg("%s", mu_error_message());
    device.engine->free(plan);
    device.engine->close_device(&device);
    mu_release(lowered);
}

static void expect_pure(const mu_graph *graph)
{
    mu_graph *body;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        assert_int_equal(graph->nodes.items[i]->n_resources, 0);
        assert_int_equal(graph->nodes.items[i]->flags & (MU_OP_READS | MU_OP_WRITES), 0);
        for (int b = 0; (body = mu__node_body(graph->nodes.items[i], b)); b++)
            expect_pure(body);
    }
}

static mu_tensor *value_of(mu_resource *resource)
{
    mu_buffer *held = NULL;
    assert_int_equal(resource->kind->acquire(resource, 0, &mu__host_memory, MU_ACCESS_READ, &held), MU_OK);
    mu_tensor *value =
        mu_tensor_new(resource->spec.dtype, resource->spec.shape.rank, resource->spec.shape.dims, held->data);
    mu_release(held);
    return value;
}

static void expect_same(const mu_tensor *seen, const mu_tensor *wanted, const char *name, size_t i)
{
    const mu_spec spec = mu__spec_of(wanted);
    if (seen->dtype != wanted->dtype || !mu__shape_equal(&seen->shape, &wanted->shape) ||
        memcmp(mu__host_read(seen), mu__host_read(wanted), mu__spec_bytes(&spec)) != 0)
        fail_msg("%s: output %zu of the pure graph differs", name, i);
}

static void compare(const char *name, mu_traceable *fn, void *arg, mu_tensor *x)
{
    mu_tensor *in[64] = {x}, *out[64] = {NULL};
    mu_function *function = mu_function_new(fn, arg);
    mu_value *arguments = mu_list(x, MU_END);
    mu_concrete *concrete = mu__function_concrete(function, arguments, false, mu_default_strategy());
    if (!concrete)
        fail_msg("%s: %s", name, mu_error_message());
    mu_graph *pure = pure_of(concrete->graph);
    expect_pure(pure);
    const size_t n = concrete->graph->outputs.n, n_states = pure->resources.n;
    assert_int_equal(pure->outputs.n, n + n_states);
    for (size_t i = 0; i < n_states; i++)
        in[1 + i] = value_of(pure->resources.items[i]);
    mu_value *wanted = mu_run(NULL, function, arguments);
    if (!wanted)
        fail_msg("%s: %s", name, mu_error_message());
    run_graph(pure, in, out);
    for (size_t i = 0; i < n + n_states; i++) {
        expect_same(out[i], i < n ? mu_at(wanted, (int)i) : value_of(pure->resources.items[i - n]), name, i);
        mu_release(out[i]);
    }
    mu_release(pure);
}

static void results_keep_their_bits(void **state)
{
    (void)state;
    start_variables();
    mu_tensor *x = vector(5, (double[]){.3, -.7, 1.1, .2, -.1});
    compare("in order", in_order, NULL, mu_constant(MU_F64, 2));
    compare("loop", loop, NULL, x);
    compare("branches", branches, NULL, x);
    compare("scan", scan, NULL, x);
    compare("gradients", gradients, NULL, x);
}

static void training_keeps_its_bits(void **state)
{
    (void)state;
    mu_optimizer *optimizers[] = {mu_adam(.learning_rate = .1), mu_sgd(.learning_rate = .1, .momentum = .5)};
    for (int i = 0; i < 2; i++) {
        training job = {.optimizer = optimizers[i],
                        .model = mu_sequential(mu_embedding(7, 4), mu_dropout(.2), mu_dense(3))};
        compare(i ? "momentum" : "adam", train, &job, vector(5, (double[]){.3, -.7, 1.1, .2, -.1}));
    }
}

// ---- What it refuses ----------------------------------------------------------------------------

static mu_tensor *writing_condition(mu_value *vars, void *arg)
{
    (void)arg;
    mu_variable_assign_add(v, mu_constant(MU_F64, 1));
    return mu_less(mu_at(vars, 0), mu_variable_read(v));
}

static mu_value *doubled(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_list(mu_multiply(mu_at(vars, 0), mu_constant(MU_F64, 2)), MU_END);
}

static mu_value *odd_loop(mu_value *arguments, void *arg)
{
    return mu_while_loop(writing_condition, doubled, arguments, arg);
}

static void a_condition_that_writes_is_named(void **state)
{
    (void)state;
    start_variables();
    mu_graph *graph = graph_of(odd_loop, NULL, mu_list(mu_constant(MU_F64, 2), MU_END));
    assert_null(mu__pass_state(graph));
    assert_int_equal(mu_error_code(), MU_UNIMPLEMENTED);
    assert_non_null(strstr(mu_error_message(), "'v'"));
    mu_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(effects_become_values),
        MODEL_TEST(results_keep_their_bits),
        MODEL_TEST(training_keeps_its_bits),
        MODEL_TEST(a_condition_that_writes_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
