// Chains: which ops become one, and that they give the bits of the ops one by one, for every way in which inputs
// broadcast, for types that change on the way, on several threads, and where an op fails.
#include "../model/model_test.h"

#include "engine/cpu/fusion.h"
#include "engine/engine.h"
#include "ops/core/attrs.h"

static mu_edge apply2(const mu_op *op, mu_edge a, mu_edge b)
{
    mu_edge in[] = {a, b};
    mu_node *node = mu__graph_node(a.node->graph, op, NULL, b.node ? 2 : 1, in, 0, NULL);
    if (!node)
        fail_msg("%s", mu_error_message());
    return (mu_edge){.node = node};
}

static mu_edge apply1(const mu_op *op, mu_edge a) { return apply2(op, a, (mu_edge){0}); }

static mu_edge cast_to(mu_edge a, mu_dtype dtype)
{
    const mu_cast_attrs attrs = {dtype};
    return (mu_edge){.node = mu__graph_node(a.node->graph, &mu_op_cast, &attrs, 1, &a, 0, NULL)};
}

static mu_edge input(mu_graph *graph, mu_dtype dtype, const mu_shape *shape)
{
    const mu_spec spec = {.dtype = dtype, .shape = *shape};
    return (mu_edge){.node = mu__graph_input(graph, &spec, NULL)};
}

static void result(mu_edge edge) { assert_int_equal(MU_PUSH(&edge.node->graph->outputs, edge), MU_OK); }

// A dump without the bodies of fused ops, which are indented further.
static void read_dump(const mu_graph *graph, char *text, size_t capacity)
{
    char line[200];
    FILE *file = tmpfile();
    mu__graph_print(graph, file);
    rewind(file);
    text[0] = 0;
    for (int n = 0; fgets(line, sizeof line, file); n++)
        if (n > 0 && strncmp(line, "      ", 6) != 0)
            strncat(text, line, capacity - strlen(text) - 1);
    fclose(file);
}

static void values_used_elsewhere_are_further_results(void **state)
{
    (void)state;
    const mu_shape open = {.rank = 1, .dims = {MU_UNKNOWN}};
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F32, &open), y = input(graph, MU_F32, &open);
    mu_edge kept = apply1(&mu_op_exp, apply2(&mu_op_multiply, x, y)); // a result of the graph, and used by the next op
    mu_edge a = apply1(&mu_op_tanh, kept), b = apply2(&mu_op_add, a, x);
    mu_edge c = apply2(&mu_op_multiply, b, apply2(&mu_op_subtract, a, b)); // a and b are used twice, inside
    result(kept);
    result(apply1(&mu_op_neg, c));
    mu__graph_constant(graph, mu_constant(MU_F32, 1));
    assert_int_equal(mu__fusion_fuse(graph), MU_OK);
    assert_int_equal(mu__graph_check(graph), MU_OK);
    char text[1000];
    for (int turn = 0; turn < 2; turn++) { // a second time finds nothing
        read_dump(graph, text, sizeof text);
        assert_string_equal(text, "  %0 = input() : float32[?]\n"
                                  "  %1 = input() : float32[?]\n"
                                  "  %2 = chain(%0, %1) n_variables=0 : float32[?], float32[?]"
                                  "  # multiply exp tanh add subtract multiply neg\n"
                                  "  return %2.1 %2.0\n");
        assert_int_equal(mu__fusion_fuse(graph), MU_OK);
    }
    mu_release(graph);
}

// An op that needs a member's result before the last member can run stays outside, and so does that member.
static void ops_on_the_way_are_left_out(void **state)
{
    (void)state;
    const mu_shape shape = MU_DIMS(4);
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F32, &shape), a = apply1(&mu_op_exp, x), sum;
    mu_reduce_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    sum.node = mu__graph_node(graph, &mu_op_reduce_sum, &attrs, 1, &a, 0, NULL);
    sum.output = 0;
    assert_non_null(sum.node);
    result(apply1(&mu_op_neg, apply2(&mu_op_multiply, a, sum)));
    assert_int_equal(mu__fusion_fuse(graph), MU_OK);
    assert_int_equal(mu__graph_check(graph), MU_OK);
    assert_int_equal(graph->nodes.n, 4);
    assert_ptr_equal(graph->nodes.items[1]->op, &mu_op_exp);
    mu_release(graph);
}

// ---- Updates ------------------------------------------------------------------------------------

typedef struct updated {
    mu_variable *x, *slot, *swapped;
} updated;

// The formula of an optimizer: it uses the slot's new value after its assignment, and the old value of `x` before the
// assignment of `x`.
static mu_value *update(mu_value *arguments, void *arg)
{
    updated *v = arg;
    mu_tensor *g = mu_at(arguments, 0), *old = mu_variable_read(v->slot), *before = mu_variable_read(v->x);
    mu_tensor *next = mu_add(old, mu_multiply(mu_subtract(g, old), mu_constant(MU_F64, .1)));
    mu_variable_assign(v->slot, next);
    mu_variable_assign_sub(v->x, mu_divide(mu_add(next, mu_multiply(before, g)), mu_add(mu_sqrt(mu_abs(next)), g)));
    mu_tensor *a = mu_neg(mu_variable_read(v->slot)), *b = mu_neg(mu_variable_read(v->swapped));
    mu_variable_assign(v->slot, b); // two variables change places
    mu_variable_assign(v->swapped, a);
    return mu_list(before, next, mu_multiply(next, g), MU_END);
}

static updated variables_of(int64_t n)
{
    return (updated){mu_variable_new(numbers(1, &n, 1), "x"), mu_variable_new(numbers(1, &n, 2), "slot"),
                     mu_variable_new(numbers(1, &n, 3), "swapped")};
}

static void same_values(mu_variable *a, mu_variable *b, int64_t n)
{
    assert_memory_equal(doubles(mu_variable_read(a)), doubles(mu_variable_read(b)), (size_t)n * sizeof(double));
}

// One pass over a variable and its slots gives the bits of the separate ops, whatever each of them reads and writes.
static void updates_give_the_bits_of_their_ops(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 7, 40000, 70001};
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        mu_pool *pool = mu_pool_open();
        updated eager = variables_of(sizes[i]), traced = variables_of(sizes[i]);
        mu_function *function = mu_function_new(update, &traced);
        for (int turn = 0; turn < 3; turn++) {
            mu_value *in = mu_list(mu_add(mu_abs(numbers(1, &sizes[i], 9)), mu_constant(MU_F64, turn + 1)), MU_END);
            mu_value *wanted = update(in, &eager), *seen = mu_run(NULL, function, in);
            for (int k = 0; k < 3; k++)
                assert_memory_equal(doubles(mu_at(seen, k)), doubles(mu_at(wanted, k)),
                                    (size_t)sizes[i] * sizeof(double));
            same_values(eager.x, traced.x, sizes[i]);
            same_values(eager.slot, traced.slot, sizes[i]);
            same_values(eager.swapped, traced.swapped, sizes[i]);
        }
        mu_pool_close(pool);
    }
}

// The assignments of a slot and of the variable are one node, which reads their old values itself.
static void a_formula_is_one_node(void **state)
{
    (void)state;
    const mu_shape shape = MU_DIMS(5);
    const int64_t n = 5;
    mu_variable *x = mu_variable_new(numbers(1, &n, 1), "x"), *slot = mu_variable_new(numbers(1, &n, 2), "slot");
    mu_resource *resources[] = {&x->resource, &slot->resource};
    mu_graph *graph = mu__graph_new("g");
    mu_edge g = input(graph, MU_F64, &shape), old = {0};
    old.node = mu__graph_node(graph, &mu_op_read_variable, NULL, 0, NULL, 1, &resources[1]);
    mu_edge next = apply2(&mu_op_add, old, g);
    assert_non_null(mu__graph_node(graph, &mu_op_assign_variable, NULL, 1, &next, 1, &resources[1]));
    mu_edge step = apply1(&mu_op_sqrt, next);
    assert_non_null(mu__graph_node(graph, &mu_op_assign_sub_variable, NULL, 1, &step, 1, &resources[0]));
    assert_int_equal(mu__fusion_fuse(graph), MU_OK);
    assert_int_equal(mu__graph_check(graph), MU_OK);
    char text[1000];
    read_dump(graph, text, sizeof text);
    assert_string_equal(text, "  %0 = input() : float64[5]\n"
                              "  %1 = chain_update(%0, @x, @slot) n_variables=2"
                              "  # add assign_variable sqrt assign_sub_variable\n"
                              "  return\n");
    mu_release(graph);
}

// ---- Bits ---------------------------------------------------------------------------------------

static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

enum { INPUTS = 6, RESULTS = 3 };

// Values of one shape, made of inputs that broadcast to it.
static mu_graph *random_graph(unsigned seed, const mu_shape *shapes)
{
    static const mu_op *const binary[] = {&mu_op_add,     &mu_op_subtract, &mu_op_multiply,
                                          &mu_op_maximum, &mu_op_atan2,    &mu_op_squared_difference};
    static const mu_op *const unary[] = {&mu_op_neg, &mu_op_tanh, &mu_op_sigmoid, &mu_op_abs, &mu_op_sin, &mu_op_relu};
    mu_graph *graph = mu__graph_new("random");
    mu_edge values[30];
    for (int i = 0; i < INPUTS; i++)
        values[i] = input(graph, MU_F32, &shapes[i]);
    int n = INPUTS;
    values[n++] = apply2(&mu_op_add, values[0], values[1]);
    while (n < 30) {
        mu_edge a = values[draw(&seed, (unsigned)n)], b = values[n - 1 - (int)draw(&seed, MU_MIN(n - INPUTS, 2))];
        const unsigned kind = draw(&seed, 10);
        if (kind < 5)
            values[n++] = apply2(binary[draw(&seed, MU_COUNT(binary))], b, a);
        else if (kind < 8)
            values[n++] = apply1(unary[draw(&seed, MU_COUNT(unary))], b);
        else if (kind == 8)
            values[n++] = cast_to(cast_to(b, MU_F64), MU_F32);
        else
            values[n++] = cast_to(apply2(&mu_op_less, b, a), MU_F32);
    }
    for (int i = 0; i < RESULTS; i++)
        result(values[29 - i * 5]);
    return graph;
}

static void run_graph(mu_device *device, mu_graph *graph, mu_tensor *const *in, mu_tensor **out)
{
    mu_spec specs[INPUTS];
    for (int i = 0; i < INPUTS; i++)
        specs[i] = mu__spec_of(in[i]);
    mu_plan *plan = device->engine->compile(device, graph, specs, INPUTS);
    const mu_run_args args = {.in = in, .out = out};
    if (!plan || device->engine->run(plan, &args) != MU_OK)
        fail_msg("%s", mu_error_message());
    device->engine->free(plan);
}

static int count_fusions(const mu_graph *graph)
{
    int n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        n += graph->nodes.items[i]->op == &mu__op_fusion;
    return n;
}

static void compare(mu_device *device, unsigned seed, const mu_shape *shapes)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[INPUTS], *plain[RESULTS], *fused[RESULTS];
    for (int i = 0; i < INPUTS; i++)
        in[i] = mu_cast(numbers(shapes[i].rank, shapes[i].dims, seed + (unsigned)i), MU_F32);
    mu_graph *graph = random_graph(seed, shapes), *chained = mu__graph_clone(graph);
    assert_int_equal(mu__pass_prune(graph), MU_OK);
    assert_int_equal(mu__fusion_fuse(chained), MU_OK);
    assert_true(count_fusions(chained) > 0);
    run_graph(device, graph, in, plain);
    run_graph(device, chained, in, fused);
    for (int i = 0; i < RESULTS; i++) {
        const mu_spec spec = mu__spec_of(plain[i]);
        if (memcmp(mu__host_read(plain[i]), mu__host_read(fused[i]), mu__spec_bytes(&spec)) != 0)
            fail_msg("seed %u: result %d differs", seed, i);
        mu_release(plain[i]);
        mu_release(fused[i]);
    }
    mu_release(graph);
    mu_release(chained);
    mu_pool_close(pool);
}

// The first input has the shape of the results; the others are it, a row, a column, one element, or broadcast in
// a way that no table of rows has.
static void fusions_give_the_bits_of_their_ops(void **state)
{
    (void)state;
    static const mu_shape cases[][INPUTS] = {
        {MU_DIMS(7), MU_DIMS(7), MU_DIMS(1), MU_NO_DIMS, MU_DIMS(7), MU_DIMS(7)},
        {MU_DIMS(300, 130), MU_DIMS(300, 130), MU_DIMS(130), MU_NO_DIMS, MU_DIMS(1, 1), MU_DIMS(1, 130)},
        {MU_DIMS(300, 130), MU_DIMS(300, 130), MU_DIMS(130), MU_DIMS(300, 1), MU_DIMS(300, 130), MU_DIMS(1)},
        {MU_DIMS(9, 5, 3), MU_DIMS(9, 5, 3), MU_DIMS(5, 3), MU_DIMS(9, 1, 1), MU_DIMS(9, 5, 3), MU_DIMS(1, 5, 3)},
        {MU_DIMS(9, 5, 3), MU_DIMS(9, 5, 3), MU_DIMS(5, 1), MU_DIMS(9, 1, 3), MU_DIMS(9, 5, 3), MU_DIMS(3)},
        {MU_DIMS(70000), MU_DIMS(70000), MU_NO_DIMS, MU_DIMS(70000), MU_DIMS(1), MU_DIMS(70000)},
        {MU_DIMS(2, 40000), MU_DIMS(2, 40000), MU_DIMS(40000), MU_DIMS(2, 1), MU_DIMS(2, 40000), MU_NO_DIMS},
        {MU_DIMS(0, 5), MU_DIMS(0, 5), MU_DIMS(5), MU_DIMS(0, 1), MU_DIMS(0, 5), MU_NO_DIMS},
    };
    mu_device *device = mu__device_by_name(mu__runtime(), "CPU:0");
    const mu_team team = device->team;
    for (int threads = 1; threads <= 3; threads++) {
        device->team.n_threads = threads;
        for (size_t i = 0; i < MU_COUNT(cases); i++)
            for (unsigned seed = 0; seed < 20; seed++)
                compare(device, seed, cases[i]);
    }
    device->team = team;
}

// A dimension that is unknown in the graph may be 1 for one input: then the ops have different shapes.
static void unknown_dimensions_may_broadcast(void **state)
{
    (void)state;
    const mu_shape open = {.rank = 1, .dims = {MU_UNKNOWN}};
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_F64, &open), y = input(graph, MU_F64, &open);
    result(apply2(&mu_op_add, apply1(&mu_op_square, x), y));
    assert_int_equal(mu__fusion_fuse(graph), MU_OK);
    assert_int_equal(count_fusions(graph), 1);
    mu_device *device = mu__device_by_name(mu__runtime(), "CPU:0");
    mu_tensor *in[2] = {vector(1, (double[]){3}), vector(3, (double[]){1, 2, 4})}, *out = NULL;
    const mu_spec specs[2] = {mu__spec_of(in[0]), mu__spec_of(in[1])};
    mu_plan *plan = device->engine->compile(device, graph, specs, 2);
    const mu_run_args args = {.in = in, .out = &out};
    assert_int_equal(device->engine->run(plan, &args), MU_OK);
    const double wanted[] = {10, 11, 13};
    assert_memory_equal(mu_tensor_data(out), wanted, sizeof wanted);
    mu_release(out);
    device->engine->free(plan);
    mu_release(graph);
}

// On a thread of the team, too: the error and its line reach the caller.
static void a_member_that_fails_is_named(void **state)
{
    (void)state;
    const mu_shape many = {.rank = 1, .dims = {200000}};
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph, MU_I32, &many), y = input(graph, MU_I32, &many);
    mu_edge quotient = apply2(&mu_op_floor_divide, x, y);
    assert_int_equal(mu__node_set_site(quotient.node, (mu_site){"train.c", 42}), MU_OK);
    result(apply1(&mu_op_neg, quotient));
    assert_int_equal(mu__fusion_fuse(graph), MU_OK);
    assert_int_equal(count_fusions(graph), 1);
    mu_device *device = mu__device_by_name(mu__runtime(), "CPU:0");
    const mu_team team = device->team;
    device->team.n_threads = 3;
    mu_tensor *in[2] = {mu_ones(MU_I32, 1, many.dims), mu_ones(MU_I32, 1, many.dims)}, *out = NULL;
    ((int32_t *)mu__host_write(in[1]))[199999] = 0;
    const mu_spec specs[2] = {mu__spec_of(in[0]), mu__spec_of(in[1])};
    mu_plan *plan = device->engine->compile(device, graph, specs, 2);
    const mu_run_args args = {.in = in, .out = &out};
    assert_int_equal(device->engine->run(plan, &args), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "(made at train.c:42)");
    device->engine->free(plan);
    device->team = team;
    mu_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(values_used_elsewhere_are_further_results),
        MODEL_TEST(ops_on_the_way_are_left_out),
        MODEL_TEST(updates_give_the_bits_of_their_ops),
        MODEL_TEST(a_formula_is_one_node),
        MODEL_TEST(fusions_give_the_bits_of_their_ops),
        MODEL_TEST(unknown_dimensions_may_broadcast),
        MODEL_TEST(a_member_that_fails_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
