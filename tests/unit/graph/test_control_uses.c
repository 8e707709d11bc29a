// Control flow in use: an LSTM and a loop against TensorFlow's numbers, collectives in branches, shapes that depend on
// elements, graphs sent to another process, memory that recomputation saves, nested functions, and functions called
// from several threads.
#include "control_test.h"
#include "printed.h"
#include "engine/cpu/plan.h"

#include <muster/nn.h>
#include <pthread.h>

static mu_tensor *wave(int rank, const int64_t *dims, double scale, double frequency, double phase)
{
    mu_tensor *tensor = mu_tensor_new(MU_F64, rank, dims, NULL);
    double *data = mu__host_write(tensor);
    for (int64_t i = 0; i < mu_tensor_elements(tensor); i++)
        data[i] = scale * sin(frequency * (double)i + phase);
    return tensor;
}

// ---- Against TensorFlow -------------------------------------------------------------------------

enum { STEPS = 5, BATCH = 2, WIDTH = 3, UNITS = 4 };

static mu_value *lstm_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor **weights = arg, *parts[4];
    mu_tensor *h = mu_at(state, 0), *c = mu_at(state, 1);
    mu_tensor *z = mu_add(mu_matmul(mu_concat(2, (mu_tensor *[]){mu_at(element, 0), h}, 1), weights[0]), weights[1]);
    if (mu_split(z, 4, 1, parts) != MU_OK)
        return NULL;
    mu_tensor *forget = mu_multiply(mu_sigmoid(parts[1]), c);
    mu_tensor *next = mu_add(forget, mu_multiply(mu_sigmoid(parts[0]), mu_tanh(parts[2])));
    return mu_list(mu_multiply(mu_sigmoid(parts[3]), mu_tanh(next)), next, MU_END);
}

static mu_value *lstm(mu_value *arguments, void *arg)
{
    (void)arg;
    const int64_t start[] = {BATCH, UNITS}, whole[] = {STEPS, BATCH, UNITS}, in[] = {STEPS, BATCH, WIDTH};
    mu_tensor *x = mu_reshape(mu_at(arguments, 0), 3, in), *weights[] = {mu_at(arguments, 1), mu_at(arguments, 2)};
    weights[0] = mu_reshape(weights[0], 2, (int64_t[]){WIDTH + UNITS, 4 * UNITS});
    weights[1] = mu_reshape(weights[1], 1, (int64_t[]){4 * UNITS});
    mu_tape *tape = mu_tape_open();
    mu_value *zeros = mu_list(mu_zeros(MU_F64, 2, start), mu_zeros(MU_F64, 2, start), MU_END);
    mu_value *states = mu_scan(lstm_step, mu_list(x, MU_END), zeros, weights);
    mu_tensor *loss = mu_reduce_sum(mu_multiply(mu_at(states, 0), wave(3, whole, 1, .1, 0)), MU_ALL_AXES);
    mu_value *found = mu_gradients(tape, loss, mu_list(x, weights[0], weights[1], MU_END));
    return found ? mu_list(mu_at(found, 0), mu_at(found, 1), mu_at(found, 2), loss, MU_END) : NULL;
}

static double sum(const double *at, int64_t n, bool absolute)
{
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += absolute ? fabs(at[i]) : at[i];
    return total;
}

// The numbers come from tf.scan and tf.GradientTape (TensorFlow 2.21, float64) on the same weights and inputs.
static void lstm_matches_tensorflow(void **state)
{
    (void)state;
    const int64_t in[] = {STEPS, BATCH, WIDTH}, w[] = {WIDTH + UNITS, 4 * UNITS}, b[] = {4 * UNITS};
    mu_tensor *bias = mu_tensor_new(MU_F64, 1, b, NULL);
    for (int i = 0; i < 4 * UNITS; i++)
        ((double *)mu__host_write(bias))[i] = .05 * i;
    mu_value *arguments = mu_list(wave(3, in, 1, 1, 0), wave(2, w, .3, .37, acos(-1) / 2), bias, MU_END);
    mu_value *seen = both_ways(lstm, NULL, arguments, 1e-13);
    const double *dx = doubles(mu_at(seen, 0)), *dw = doubles(mu_at(seen, 1)), *db = doubles(mu_at(seen, 2));
    assert_number(mu_scalar(mu_at(seen, 3)), 2.8903052073891202, 1e-12);
    assert_number(sum(dx, 30, false), -4.041056650365489, 1e-12);
    assert_number(dx[0], -0.28734512634915604, 1e-12);
    assert_number(dx[29], 0.17056775651838155, 1e-12);
    assert_number(sum(dw, 112, true), 12.129842553648617, 1e-12);
    assert_number(dw[111], 0.03013737916428793, 1e-12);
    assert_number(sum(db, 16, false), 8.965987679238347, 1e-12);
    assert_number(db[7], 0.018182402420010506, 1e-12);
}

static mu_tensor *sum_below_ten(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_reduce_sum(mu_at(vars, 1), MU_ALL_AXES), mu_constant(MU_F64, 10));
}

static mu_value *grow(mu_value *vars, void *arg)
{
    mu_tensor *a = mu_at(vars, 1), *v = arg;
    return mu_list(mu_add(mu_at(vars, 0), mu_constant(MU_I32, 1)), mu_add(mu_multiply(a, v), mu_sin(a)), MU_END);
}

static mu_value *loop(mu_value *arguments, void *arg)
{
    mu_tensor *v = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_value *vars = mu_while_loop(sum_below_ten, grow, mu_list(mu_constant(MU_I32, 0), v, MU_END), v,
                                   .maximum_iterations = *(int *)arg);
    mu_tensor *y = mu_reduce_sum(mu_square(mu_at(vars, 1)), MU_ALL_AXES);
    return mu_list(mu_at(mu_gradients(tape, y, mu_list(v, MU_END)), 0), y, mu_cast(mu_at(vars, 0), MU_F64), MU_END);
}

// The same from tf.while_loop, with and without a bound.
static void loop_matches_tensorflow(void **state)
{
    (void)state;
    const double wanted[] = {16.78880872898364, 24.514725860678155, 54.27392236990583};
    for (int bound = 0; bound <= 20; bound += 20) {
        mu_value *seen = both_ways(loop, &bound, mu_list(vector(3, (double[]){.9, 1.1, 1.3}), MU_END), 1e-13);
        assert_near(doubles(mu_at(seen, 0)), wanted, 3, 1e-12);
        assert_number(mu_scalar(mu_at(seen, 1)), 39.33174823192971, 1e-12);
        assert_true(mu_scalar(mu_at(seen, 2)) == 3);
    }
}

// ---- Replicas -----------------------------------------------------------------------------------

static mu_value *reduce_then(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_all_reduce(MU_SUM, mu_at(arguments, 0)), MU_END);
}

static mu_value *leave_alone(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_at(arguments, 0), MU_END);
}

static mu_value *reduce_if(mu_value *arguments, void *arg)
{
    return mu_cond(mu_greater(mu_at(arguments, 1), mu_constant(MU_F64, 0)), reduce_then, leave_alone, arguments, arg);
}

static void branches_reduce_over_replicas(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 4);
    mu_function *function = mu_function_new(reduce_if, NULL);
    for (int taken = 0; taken < 2; taken++) {
        mu_value *seen =
            mu_run(strategy, function, mu_list(mu_constant(MU_F64, 3), mu_constant(MU_F64, taken), MU_END));
        if (!seen)
            fail_msg("%s", mu_error_message());
        assert_true(mu_scalar(mu_value_at(mu_value_at(seen, 0), 1)) == (taken ? 12 : 3));
    }
}

static mu_value *reduce_and_fail(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_matmul(mu_all_reduce(MU_SUM, mu_at(arguments, 0)), mu_constant(MU_F64, 1)), MU_END);
}

static mu_value *fail_in_branch(mu_value *arguments, void *arg)
{
    return mu_cond(mu_greater(mu_at(arguments, 1), mu_constant(MU_F64, 0)), leave_alone, reduce_and_fail, arguments,
                   arg);
}

static mu_tensor *below_three(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_less(mu_at(arguments, 1), mu_constant(MU_F64, 3));
}

static mu_value *fail_in_loop(mu_value *arguments, void *arg)
{
    return mu_while_loop(below_three, fail_in_branch, arguments, arg);
}

static mu_value *fail_before(mu_value *arguments, void *arg)
{
    mu_matmul(mu_at(arguments, 0), mu_constant(MU_F64, 1));
    return fail_in_loop(arguments, arg);
}

// Other workers wait in a collective of a body whether or not the body can be traced.
static void failed_bodies_tell_of_collectives(void **state)
{
    (void)state;
    static const struct {
        mu_value *(*step)(mu_value *, void *);
        bool collective;
    } cases[] = {{fail_in_branch, true}, {fail_in_loop, true}, {fail_before, false}};
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2);
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        mu_function *function = mu_function_new(cases[i].step, NULL);
        assert_null(mu_run(strategy, function, mu_list(mu_constant(MU_F64, 3), mu_constant(MU_F64, 0), MU_END)));
        expect_error(MU_INVALID_ARGUMENT, "matmul");
        assert_int_equal(mu__function_is_collective(function, strategy), cases[i].collective);
    }
}

// ---- Shapes that depend on elements -------------------------------------------------------------

static mu_variable *calls;

static mu_value *distinct(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *values, *positions, *x = mu_tanh(mu_at(arguments, 0));
    mu_variable_assign_add(calls, mu_constant(MU_F64, 1));
    if (mu_unique(x, &values, &positions) != MU_OK)
        return NULL;
    mu_variable_assign_add(calls, mu_cast(mu_dim_size(values, 0), MU_F64));
    return mu_list(mu_square(values), mu_gather(values, positions, 0, 0), mu_variable_read(calls), x, MU_END);
}

static void plans_break_where_elements_decide(void **state)
{
    (void)state;
    calls = mu_variable_new(mu_constant(MU_F64, 0), "calls");
    mu_function *function = mu_function_new(distinct, NULL);
    const double rows[][4] = {{1, 2, 1, 2}, {3, 3, 3, 3}, {1, 2, 3, 4}, {5, 6, 5, 6}};
    const int counts[] = {2, 1, 4, 2};
    double total = 0;
    for (int i = 0; i < 4; i++) {
        mu_value *seen = mu_run(NULL, function, mu_list(vector(4, rows[i]), MU_END));
        if (!seen)
            fail_msg("%s", mu_error_message());
        total += 1 + counts[i];
        assert_int_equal(mu_tensor_dim(mu_at(seen, 0), 0), counts[i]);
        assert_near(doubles(mu_at(seen, 1)), doubles(mu_at(seen, 3)), 4, 0);
        assert_true(mu_scalar(mu_at(seen, 2)) == total);
    }
}

// ---- Graphs that travel -------------------------------------------------------------------------

static mu_resource *no_resource(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)arg, (void)kind, (void)name, (void)spec;
    return NULL;
}

static mu_traced trace(mu_traceable *fn, void *arg, mu_value *like, int n, const mu_spec *specs)
{
    mu_traced made;
    (void)n;
    if (mu__trace_run("test", fn, arg, like, specs, true, &made) != MU_OK)
        fail_msg("%s", mu_error_message());
    return made;
}

static void free_traced(mu_traced *made)
{
    mu_release(made->graph);
    mu_release(made->inputs);
    mu_release(made->outputs);
}

static void bodies_travel(void **state)
{
    (void)state;
    int bound = 20;
    void *bytes;
    size_t size;
    const mu_spec spec = {.dtype = MU_F64, .shape = {.rank = 1, .dims = {3}}};
    mu_traced made = trace(loop, &bound, mu_of(vector(3, NULL)), 1, &spec);
    assert_int_equal(mu__graph_write(made.graph, &bytes, &size), MU_OK);
    mu_graph *read = mu__graph_read(bytes, size, no_resource, NULL);
    if (!read)
        fail_msg("%s", mu_error_message());
    char *before = printed(made.graph), *after = printed(read);
    assert_string_equal(before, after);
    assert_non_null(strstr(before, "graph gradient of while_loop"));
    free(before);
    free(after);
    mu_release(read);
    for (size_t at = 0; at < size; at += 7) { // damaged ones are refused or are graphs, but never harm
        unsigned char *damaged = malloc(size);
        memcpy(damaged, bytes, size);
        damaged[at] ^= (unsigned char)(1u << at % 8);
        mu_release(mu__graph_read(damaged, size, no_resource, NULL));
        mu_error_take();
        free(damaged);
    }
    mu__free(bytes);
    free_traced(&made);
}

// ---- Memory -------------------------------------------------------------------------------------

static mu_value *layer(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    for (int i = 0; i < 6; i++)
        x = mu_tanh(mu_multiply(mu_sin(x), mu_exp(x)));
    return mu_list(x, MU_END);
}

static mu_value *deep(mu_value *arguments, void *arg)
{
    const bool again = *(bool *)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_value *last = mu_list(x, MU_END);
    for (int i = 0; i < 8; i++)
        last = again ? mu_recompute_grad(layer, last, NULL) : layer(last, NULL);
    mu_tensor *y = mu_reduce_sum(mu_at(last, 0), MU_ALL_AXES);
    return mu_list(mu_at(mu_gradients(tape, y, mu_list(x, MU_END)), 0), MU_END);
}

static size_t arena_of(bool again)
{
    const mu_spec spec = {.dtype = MU_F64, .shape = {.rank = 1, .dims = {4096}}};
    mu_traced made = trace(deep, &again, mu_of(vector(1, (double[]){0})), 1, &spec);
    mu_graph *lowered = mu__cpu_lower(made.graph);
    mu_plan *plan = mu__cpu_compile(mu__device_at(mu__runtime(), 0), lowered, &spec, 1);
    if (!plan)
        fail_msg("%s", mu_error_message());
    const size_t bytes = mu__cpu_bytes(plan);
    mu__cpu_free(plan);
    mu_release(lowered);
    free_traced(&made);
    return bytes;
}

static void recomputing_saves_memory(void **state)
{
    (void)state;
    bool no = false, yes = true;
    mu_value *x = mu_list(numbers(1, (int64_t[]){4096}, 3), MU_END);
    mu_value *kept = traced(deep, &no, x), *again = traced(deep, &yes, x);
    assert_near(doubles(mu_at(again, 0)), doubles(mu_at(kept, 0)), 4096, 1e-12);
    const size_t all = arena_of(false), few = arena_of(true);
    if (few * 3 > all)
        fail_msg("with recomputing the plan takes %zu bytes, without it %zu", few, all);
}

static mu_value *cubed(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_pow(mu_at(arguments, 0), mu_constant(MU_F64, 3)), MU_END);
}

static mu_value *cube_derivative(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    (void)results;
    (void)arg;
    return mu_list(mu_multiply(mu_at(gradients, 0), mu_square(mu_at(arguments, 0))), MU_END);
}

static mu_value *custom(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_value *y = mu_custom_gradient(cubed, cube_derivative, arguments, arg);
    return mu_list(mu_at(mu_gradients(tape, mu_at(y, 0), arguments), 0), mu_at(y, 0), MU_END);
}

static int calls_in(const mu_graph *graph)
{
    int n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        n += graph->nodes.items[i]->op == &mu_op_call;
    return n;
}

// Calls for recomputation must stay separate nodes; all others have been inlined in the engine's graph.
static void calls_are_put_in_place(void **state)
{
    (void)state;
    bool again = true;
    const mu_spec spec = {.dtype = MU_F64, .shape = {.rank = 1, .dims = {64}}};
    mu_traced kept = trace(deep, &again, mu_of(vector(1, (double[]){0})), 1, &spec);
    mu_traced plain = trace(custom, NULL, mu_list(vector(1, (double[]){0}), MU_END), 1, &spec);
    mu_graph *lowered[] = {mu__cpu_lower(kept.graph), mu__graph_inline(kept.graph, true), mu__cpu_lower(plain.graph)};
    assert_int_equal(calls_in(lowered[0]), 15); // the last one forward has no use
    assert_int_equal(calls_in(lowered[1]), 0);
    assert_true(calls_in(plain.graph) > 0);
    assert_int_equal(calls_in(lowered[2]), 0);
    for (int i = 0; i < 3; i++)
        mu_release(lowered[i]);
    free_traced(&kept);
    free_traced(&plain);
}

// ---- Functions in functions, and threads --------------------------------------------------------

static mu_variable *scale;

static mu_value *scaled(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_multiply(mu_square(mu_at(arguments, 0)), mu_variable_read(scale)), MU_END);
}

static mu_value *derivative_of_scaled(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_at(mu_function_call(arg, arguments), 0);
    mu_value *found = mu_gradients(tape, y, mu_list(mu_at(arguments, 0), mu_variables(scale, MU_END), MU_END));
    return mu_list(mu_at(found, 0), mu_value_at(found, 1), y, MU_END);
}

static void functions_call_functions(void **state)
{
    (void)state;
    scale = mu_variable_new(mu_constant(MU_F64, 4), "scale");
    mu_function *inner = mu_function_new(scaled, NULL), *outer = mu_function_new(derivative_of_scaled, inner);
    mu_value *x = mu_list(mu_constant(MU_F64, 3), MU_END);
    assert_true(mu_scalar(mu_at(mu_function_call(inner, x), 0)) == 36);
    mu_value *seen = mu_run(NULL, outer, x);
    if (!seen)
        fail_msg("%s", mu_error_message());
    assert_true(mu_scalar(mu_at(seen, 0)) == 24 && mu_scalar(mu_value_at(seen, 1)) == 9 &&
                mu_scalar(mu_at(seen, 2)) == 36);
}

// Under a tape of the caller's the function runs eagerly and can be differentiated twice; tapes inside of it end with
// it.
static void gradients_pass_through_called_functions(void **state)
{
    (void)state;
    scale = mu_variable_new(mu_constant(MU_F64, 4), "scale");
    mu_function *inner = mu_function_new(scaled, NULL), *derivative = mu_function_new(derivative_of_scaled, inner);
    mu_value *x = mu_list(mu_constant(MU_F64, 3), MU_END);
    mu_value *both = mu_list(mu_at(x, 0), mu_variables(scale, MU_END), MU_END);
    for (int way = 0; way < 2; way++) {
        mu_tape *outer = mu_tape_open(), *tape = mu_tape_open();
        mu_tensor *y = mu_at(way ? mu_run(NULL, inner, x) : mu_function_call(inner, x), 0);
        mu_value *first = mu_gradients(tape, y, both);
        assert_true(mu_scalar(mu_at(first, 0)) == 24 && mu_scalar(mu_value_at(first, 1)) == 9);
        assert_true(mu_scalar(mu_at(mu_gradients(outer, mu_at(first, 0), x), 0)) == 8);
        mu_tensor *found = mu_at(mu_run(NULL, derivative, x), 0);
        assert_true(mu_scalar(mu_at(mu_gradients(outer, found, x), 0)) == 8);
        assert_ptr_equal(mu__context()->tape, tape);
        mu_tape_close(tape);
        mu_tape_close(outer);
    }
    assert_int_equal(mu_function_trace_count(inner), 0);
}

static mu_value *calls_itself(mu_value *arguments, void *arg)
{
    return mu_function_call(*(mu_function **)arg, arguments);
}

// Halves its argument until one element is left: the shape ends the recursion, and a trace knows the shape.
static mu_value *halves(mu_value *arguments, void *arg)
{
    mu_tensor *parts[2], *x = mu_at(arguments, 0);
    if (mu_tensor_dim(x, 1) == 1)
        return mu_list(x, MU_END);
    mu_split(x, 2, 1, parts);
    return mu_function_call(*(mu_function **)arg, mu_list(mu_add(parts[0], parts[1]), MU_END));
}

static void recursion_must_end(void **state)
{
    (void)state;
    mu_function *function = mu_function_new(calls_itself, &function);
    mu_value *x = mu_list(numbers(2, (int64_t[]){3, 8}, 1), MU_END);
    assert_null(mu_run(NULL, function, x));
    assert_non_null(strstr(mu_error_message(), "mu_while_loop"));
    assert_int_equal(mu_error_take().code, MU_FAILED_PRECONDITION);
    function = mu_function_new(halves, &function);
    mu_value *sums = mu_run(NULL, function, x);
    assert_non_null(sums);
    assert_int_equal(mu_tensor_dim(mu_at(sums, 0), 1), 1);
}

static void *call_often(void *arg)
{
    intptr_t wrong = 0;
    for (int i = 0; i < 50; i++) {
        mu_pool *pool = mu_pool_open();
        mu_value *seen = mu_function_call(arg, mu_list(mu_constant(MU_F64, i), MU_END));
        wrong += !seen || mu_scalar(mu_at(seen, 0)) != 4.0 * i * i;
        mu_pool_close(pool);
    }
    return (void *)wrong;
}

static void threads_share_a_function(void **state)
{
    (void)state;
    pthread_t threads[4];
    scale = mu_variable_new(mu_constant(MU_F64, 4), "scale");
    mu_function *function = mu_function_new(scaled, NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, function), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(mu_function_trace_count(function), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(lstm_matches_tensorflow),
        MODEL_TEST(loop_matches_tensorflow),
        MODEL_TEST(branches_reduce_over_replicas),
        MODEL_TEST(failed_bodies_tell_of_collectives),
        MODEL_TEST(plans_break_where_elements_decide),
        MODEL_TEST(bodies_travel),
        MODEL_TEST(recomputing_saves_memory),
        MODEL_TEST(calls_are_put_in_place),
        MODEL_TEST(functions_call_functions),
        MODEL_TEST(gradients_pass_through_called_functions),
        MODEL_TEST(recursion_must_end),
        MODEL_TEST(threads_share_a_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
