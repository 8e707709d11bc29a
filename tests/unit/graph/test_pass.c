// Passes: the graph before and after each one. A second application changes nothing, and results keep their bits, NaN
// and -0 included.
#include "../model/model_test.h"
#include "printed.h"

#include "engine/engine.h"
#include "ops/core/attrs.h"

// ---- Graphs made by hand ------------------------------------------------------------------------

static mu_edge input(mu_graph *graph, mu_dtype dtype, int rank, const int64_t *dims)
{
    mu_spec spec = {.dtype = dtype, .shape = mu_shape_make(rank, dims)};
    return (mu_edge){.node = mu__graph_input(graph, &spec, NULL)};
}

static mu_edge scalar(mu_graph *graph, mu_dtype dtype, double value)
{
    return (mu_edge){.node = mu__graph_constant(graph, mu_constant(dtype, value))};
}

static mu_edge apply(const mu_op *op, const void *attrs, mu_edge a, mu_edge b)
{
    mu_edge in[] = {a, b};
    mu_node *node = mu__graph_node(a.node->graph, op, attrs, b.node ? 2 : 1, in, 0, NULL);
    if (!node)
        fail_msg("%s", mu_error_message());
    return (mu_edge){.node = node};
}

static mu_edge apply1(const mu_op *op, const void *attrs, mu_edge a) { return apply(op, attrs, a, (mu_edge){0}); }

static void result(mu_edge edge)
{
    mu_graph *graph = edge.node->graph;
    assert_int_equal(MU_PUSH(&graph->outputs, edge), MU_OK);
}

typedef mu_status pass(mu_graph *graph);

// The graph before the pass, after the pass and pruning, and after both again.
static void assert_pass(pass *run, mu_graph *graph, const char *before, const char *after)
{
    assert_printed(graph, before);
    for (int iteration = 0; iteration < 2; iteration++) {
        assert_int_equal(run(graph), MU_OK);
        assert_int_equal(mu__pass_prune(graph), MU_OK);
        if (mu__graph_check(graph) != MU_OK)
            fail_msg("%s", mu_error_message());
        assert_printed(graph, after);
    }
    mu_release(graph);
}

// ---- Algebra ------------------------------------------------------------------------------------

static void neutral_elements_go(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F32, 2, (int64_t[]){-1, 3});
    mu_edge y = apply(&mu_op_multiply, NULL, scalar(graph, MU_F32, 1), x);
    y = apply(&mu_op_add, NULL, y, scalar(graph, MU_F32, -0.0));
    y = apply(&mu_op_subtract, NULL, y, scalar(graph, MU_F32, 0));
    y = apply(&mu_op_divide, NULL, y, scalar(graph, MU_F32, 1));
    result(apply1(&mu_op_neg, NULL, apply1(&mu_op_neg, NULL, y)));
    assert_pass(mu__pass_algebra, graph,
                "  %0 = input() : float32[?, 3]\n"
                "  %1 = constant() value=1 : float32[]\n"
                "  %2 = multiply(%1, %0) : float32[?, 3]\n"
                "  %3 = constant() value=-0 : float32[]\n"
                "  %4 = add(%2, %3) : float32[?, 3]\n"
                "  %5 = constant() value=0 : float32[]\n"
                "  %6 = subtract(%4, %5) : float32[?, 3]\n"
                "  %7 = constant() value=1 : float32[]\n"
                "  %8 = divide(%6, %7) : float32[?, 3]\n"
                "  %9 = neg(%8) : float32[?, 3]\n"
                "  %10 = neg(%9) : float32[?, 3]\n"
                "  return %10.0\n",
                "  %0 = input() : float32[?, 3]\n"
                "  return %0.0\n");
}

// Changes that would alter a bit or a shape are not made.
static void what_is_not_exact_stays(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F32, 1, (int64_t[]){-1});
    result(apply(&mu_op_add, NULL, x, scalar(graph, MU_F32, 0)));
    result(apply(&mu_op_subtract, NULL, scalar(graph, MU_F32, 0), x));
    result(apply(&mu_op_multiply, NULL, x, scalar(graph, MU_F32, 0)));
    result(apply(&mu_op_multiply, NULL, x, // rank 2 makes the result larger than x
                 (mu_edge){.node = mu__graph_constant(graph, mu_ones(MU_F32, 2, (int64_t[]){1, 1}))}));
    const mu_cast_attrs to_i64 = {MU_I64}, to_f32 = {MU_F32}, to_f64 = {MU_F64};
    result(apply1(&mu_op_cast, &to_f32, apply1(&mu_op_cast, &to_i64, x)));
    result(apply1(&mu_op_cast, &to_i64, apply1(&mu_op_cast, &to_f64, x)));
    const char *same = "  %0 = input() : float32[?]\n"
                       "  %1 = constant() value=0 : float32[]\n"
                       "  %2 = add(%0, %1) : float32[?]\n"
                       "  %3 = constant() value=0 : float32[]\n"
                       "  %4 = subtract(%3, %0) : float32[?]\n"
                       "  %5 = constant() value=0 : float32[]\n"
                       "  %6 = multiply(%0, %5) : float32[?]\n"
                       "  %7 = constant() value=[1] : float32[1, 1]\n"
                       "  %8 = multiply(%0, %7) : float32[1, ?]\n"
                       "  %9 = cast(%0) dtype=int64 : int64[?]\n"
                       "  %10 = cast(%9) dtype=float32 : float32[?]\n"
                       "  %11 = cast(%0) dtype=float64 : float64[?]\n"
                       "  %12 = cast(%11) dtype=int64 : int64[?]\n"
                       "  return %2.0 %4.0 %6.0 %8.0 %10.0 %12.0\n";
    assert_pass(mu__pass_algebra, graph, same, same);
}

static void signs_join_sums(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F64, 0, NULL), y = input(graph, MU_F64, 0, NULL);
    result(apply(&mu_op_add, NULL, apply1(&mu_op_neg, NULL, x), y));
    result(apply(&mu_op_subtract, NULL, x, apply1(&mu_op_neg, NULL, y)));
    assert_pass(mu__pass_algebra, graph,
                "  %0 = input() : float64[]\n"
                "  %1 = input() : float64[]\n"
                "  %2 = neg(%0) : float64[]\n"
                "  %3 = add(%2, %1) : float64[]\n"
                "  %4 = neg(%1) : float64[]\n"
                "  %5 = subtract(%0, %4) : float64[]\n"
                "  return %3.0 %5.0\n",
                "  %0 = input() : float64[]\n"
                "  %1 = input() : float64[]\n"
                "  %2 = subtract(%1, %0) : float64[]\n"
                "  %3 = add(%0, %1) : float64[]\n"
                "  return %2.0 %3.0\n");
}

static void shapes_and_types_are_changed_once(void **state)
{
    (void)state;
    static const mu_axes_attrs iteration = {{3, {1, 2, 0}}}, back = {{3, {2, 0, 1}}};
    static const mu_shape_attrs flat = {MU_DIMS(-1, 6)}, rows = {MU_DIMS(-1, 2)}, any = {MU_DIMS(-1, 5)};
    const mu_cast_attrs to_f16 = {MU_F16}, to_f64 = {MU_F64}, to_f32 = {MU_F32};
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F16, 3, (int64_t[]){-1, 2, 3});
    mu_edge y = apply1(&mu_op_transpose, &iteration, apply1(&mu_op_transpose, &iteration, x)); // as back does
    result(apply1(&mu_op_transpose, &iteration, y));
    result(apply1(&mu_op_transpose, &back, apply1(&mu_op_transpose, &back, x)));
    result(apply1(&mu_op_reshape, &rows, apply1(&mu_op_reshape, &flat, x)));
    result(apply1(&mu_op_reshape, &rows, apply1(&mu_op_reshape, &any, x))); // refuses what is not a multiple of 5
    result(apply1(&mu_op_cast, &to_f16, apply1(&mu_op_cast, &to_f64, x)));
    result(apply1(&mu_op_cast, &to_f32, apply1(&mu_op_cast, &to_f64, x)));
    assert_pass(mu__pass_algebra, graph,
                "  %0 = input() : float16[?, 2, 3]\n"
                "  %1 = transpose(%0) axes=[1, 2, 0] : float16[2, 3, ?]\n"
                "  %2 = transpose(%1) axes=[1, 2, 0] : float16[3, ?, 2]\n"
                "  %3 = transpose(%2) axes=[1, 2, 0] : float16[?, 2, 3]\n"
                "  %4 = transpose(%0) axes=[2, 0, 1] : float16[3, ?, 2]\n"
                "  %5 = transpose(%4) axes=[2, 0, 1] : float16[2, 3, ?]\n"
                "  %6 = reshape(%0) shape=[?, 6] : float16[?, 6]\n"
                "  %7 = reshape(%6) shape=[?, 2] : float16[?, 2]\n"
                "  %8 = reshape(%0) shape=[?, 5] : float16[?, 5]\n"
                "  %9 = reshape(%8) shape=[?, 2] : float16[?, 2]\n"
                "  %10 = cast(%0) dtype=float64 : float64[?, 2, 3]\n"
                "  %11 = cast(%10) dtype=float16 : float16[?, 2, 3]\n"
                "  %12 = cast(%0) dtype=float64 : float64[?, 2, 3]\n"
                "  %13 = cast(%12) dtype=float32 : float32[?, 2, 3]\n"
                "  return %3.0 %5.0 %7.0 %9.0 %11.0 %13.0\n",
                "  %0 = input() : float16[?, 2, 3]\n"
                "  %1 = transpose(%0) axes=[1, 2, 0] : float16[2, 3, ?]\n"
                "  %2 = reshape(%0) shape=[?, 2] : float16[?, 2]\n"
                "  %3 = reshape(%0) shape=[?, 5] : float16[?, 5]\n"
                "  %4 = reshape(%3) shape=[?, 2] : float16[?, 2]\n"
                "  %5 = cast(%0) dtype=float32 : float32[?, 2, 3]\n"
                "  return %0.0 %1.0 %2.0 %4.0 %0.0 %5.0\n");
}

static void what_arithmetic_broadcasts_is_not_written_out(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F32, 2, (int64_t[]){-1, 3}), s = input(graph, MU_F32, 0, NULL);
    mu_edge other = input(graph, MU_F32, 2, (int64_t[]){-1, 3}), known = input(graph, MU_F32, 1, (int64_t[]){3});
    result(apply(&mu_op_multiply, NULL, apply(&mu_op_broadcast_like, NULL, s, x), x));
    result(apply(&mu_op_multiply, NULL, apply(&mu_op_broadcast_like, NULL, s, x), other)); // x may have more rows
    result(apply(&mu_op_sum_to_like, NULL, known, known));
    assert_pass(mu__pass_algebra, graph,
                "  %0 = input() : float32[?, 3]\n"
                "  %1 = input() : float32[]\n"
                "  %2 = input() : float32[?, 3]\n"
                "  %3 = input() : float32[3]\n"
                "  %4 = broadcast_like(%1, %0) : float32[?, 3]\n"
                "  %5 = multiply(%4, %0) : float32[?, 3]\n"
                "  %6 = broadcast_like(%1, %0) : float32[?, 3]\n"
                "  %7 = multiply(%6, %2) : float32[?, 3]\n"
                "  %8 = sum_to_like(%3, %3) : float32[3]\n"
                "  return %5.0 %7.0 %8.0\n",
                "  %0 = input() : float32[?, 3]\n"
                "  %1 = input() : float32[]\n"
                "  %2 = input() : float32[?, 3]\n"
                "  %3 = input() : float32[3]\n"
                "  %4 = multiply(%1, %0) : float32[?, 3]\n"
                "  %5 = broadcast_like(%1, %0) : float32[?, 3]\n"
                "  %6 = multiply(%5, %2) : float32[?, 3]\n"
                "  return %4.0 %6.0 %3.0\n");
}

// ---- Constants ----------------------------------------------------------------------------------

static void constants_are_computed_once(void **state)
{
    (void)state;
    static const mu_shape_attrs large = {MU_DIMS(1000, 1000)};
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F32, 2, (int64_t[]){4, 3}), open = input(graph, MU_F32, 1, (int64_t[]){-1});
    mu_edge two = scalar(graph, MU_F32, 2);
    result(apply1(&mu_op_sqrt, NULL, apply(&mu_op_multiply, NULL, two, two)));
    result(apply(&mu_op_broadcast_like, NULL, two, x));
    result(apply(&mu_op_broadcast_like, NULL, two, open));
    result(apply1(&mu_op_broadcast_to, &large, two));
    mu_edge zero = scalar(graph, MU_I32, 0);
    result(apply(&mu_op_floor_divide, NULL, zero, zero)); // fails when the function runs
    assert_pass(mu__pass_fold, graph,
                "  %0 = input() : float32[4, 3]\n"
                "  %1 = input() : float32[?]\n"
                "  %2 = constant() value=2 : float32[]\n"
                "  %3 = multiply(%2, %2) : float32[]\n"
                "  %4 = sqrt(%3) : float32[]\n"
                "  %5 = broadcast_like(%2, %0) : float32[4, 3]\n"
                "  %6 = broadcast_like(%2, %1) : float32[?]\n"
                "  %7 = broadcast_to(%2) shape=[1000, 1000] : float32[1000, 1000]\n"
                "  %8 = constant() value=0 : int32[]\n"
                "  %9 = floor_divide(%8, %8) : int32[]\n"
                "  return %4.0 %5.0 %6.0 %7.0 %9.0\n",
                "  %0 = input() : float32[4, 3]\n"
                "  %1 = input() : float32[?]\n"
                "  %2 = constant() value=2 : float32[]\n"
                "  %3 = constant() value=2 : float32[]\n"
                "  %4 = constant() value=[2, 2, 2, 2, ...] : float32[4, 3]\n"
                "  %5 = broadcast_like(%2, %1) : float32[?]\n"
                "  %6 = broadcast_to(%2) shape=[1000, 1000] : float32[1000, 1000]\n"
                "  %7 = constant() value=0 : int32[]\n"
                "  %8 = floor_divide(%7, %7) : int32[]\n"
                "  return %3.0 %4.0 %5.0 %6.0 %8.0\n");
    assert_int_equal(mu_error_code(), MU_OK);
}

// ---- Bits ---------------------------------------------------------------------------------------

// A random graph over x, built from ops that the passes change.
static mu_graph *random_graph(unsigned seed)
{
    mu_graph *graph = mu__graph_new("random");
    mu_edge values[40] = {input(graph, MU_F32, 1, (int64_t[]){-1}), input(graph, MU_F32, 1, (int64_t[]){-1})};
    static const double constants[] = {1, 0, -0.0, 2, -1};
    const mu_cast_attrs to_f64 = {MU_F64}, to_f32 = {MU_F32};
    int n = 2;
    while (n < 40) {
        seed = seed * 1664525u + 1013904223u;
        mu_edge a = values[(seed >> 8) % (unsigned)n], b = values[n - 1 - (int)((seed >> 14) % 2)];
        mu_edge c = scalar(graph, MU_F32, constants[(seed >> 16) % MU_COUNT(constants)]);
        switch ((seed >> 20) % 9) {
        case 0: values[n++] = apply(&mu_op_multiply, NULL, a, c); break;
        case 1: values[n++] = apply(&mu_op_add, NULL, a, c); break;
        case 2: values[n++] = apply(&mu_op_subtract, NULL, b, c); break;
        case 3: values[n++] = apply(&mu_op_divide, NULL, a, c); break;
        case 4: values[n++] = apply1(&mu_op_neg, NULL, b); break;
        case 5: values[n++] = apply(&mu_op_add, NULL, a, b); break;
        case 6: values[n++] = apply(&mu_op_multiply, NULL, apply(&mu_op_broadcast_like, NULL, c, b), b); break;
        case 7: values[n++] = apply1(&mu_op_cast, &to_f32, apply1(&mu_op_cast, &to_f64, b)); break;
        case 8: values[n++] = apply(&mu_op_subtract, NULL, a, b); break;
        }
    }
    for (int i = 30; i < 40; i++)
        result(values[i]);
    return graph;
}

static void run_graph(mu_graph *graph, mu_tensor *const *in, mu_tensor **out)
{
    mu_device *device = mu__device_by_name(mu__runtime(), "CPU:0");
    mu_spec specs[2] = {mu__spec_of(in[0]), mu__spec_of(in[1])};
    mu_plan *plan = device->engine->compile(device, graph, specs, 2);
    const mu_run_args args = {.in = in, .out = out};
    if (!plan || device->engine->run(plan, &args) != MU_OK)
        fail_msg("%s", mu_error_message());
    device->engine->free(plan);
}

static bool same_bits(const mu_tensor *a, const mu_tensor *b)
{
    const float *x = mu_tensor_data(a), *y = mu_tensor_data(b);
    for (int64_t i = 0; i < mu_tensor_elements(a); i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0 && !(isnan(x[i]) && isnan(y[i])))
            return false;
    return true;
}

static void results_keep_their_bits(void **state)
{
    (void)state;
    const float odd[2][8] = {{0, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 3, -7.5f},
                             {-0.0f, -0.0f, 1, INFINITY, 2, -1e-40f, 1e38f, 0}};
    mu_tensor *in[2] = {mu_vector_f32(8, odd[0]), mu_vector_f32(8, odd[1])}, *before[10], *after[10];
    int smaller = 0;
    for (unsigned seed = 0; seed < 200; seed++) {
        mu_graph *graph = random_graph(seed);
        mu_graph *optimized = mu__graph_clone(graph);
        assert_int_equal(mu__graph_optimize(optimized), MU_OK);
        assert_int_equal(mu__graph_check(optimized), MU_OK);
        smaller += optimized->nodes.n < graph->nodes.n;
        run_graph(graph, in, before);
        run_graph(optimized, in, after);
        for (int i = 0; i < 10; i++) {
            if (!same_bits(before[i], after[i]))
                fail_msg("graph %u: result %d differs", seed, i);
            mu_release(before[i]);
            mu_release(after[i]);
        }
        mu_release(graph);
        mu_release(optimized);
    }
    assert_int_equal(smaller, 200);
}

static void a_damaged_graph_is_seen(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F32, 1, (int64_t[]){3});
    mu_edge y = apply1(&mu_op_neg, NULL, x);
    result(y);
    assert_int_equal(mu__graph_check(graph), MU_OK);
    y.node->out[0].dtype = MU_F64;
    assert_int_equal(mu__graph_check(graph), MU_INTERNAL);
    mu_error_take();
    y.node->out[0].dtype = MU_F32;
    y.node->in[0].node = y.node;
    assert_int_equal(mu__graph_check(graph), MU_INTERNAL);
    mu_error_take();
    mu_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(neutral_elements_go),
        MODEL_TEST(what_is_not_exact_stays),
        MODEL_TEST(signs_join_sums),
        MODEL_TEST(shapes_and_types_are_changed_once),
        MODEL_TEST(what_arithmetic_broadcasts_is_not_written_out),
        MODEL_TEST(constants_are_computed_once),
        MODEL_TEST(results_keep_their_bits),
        MODEL_TEST(a_damaged_graph_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
