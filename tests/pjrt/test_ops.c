// Every op that has a StableHLO lowering, against its own plain loops.
//
// Each sample of an op is compiled as a node by the plugin in every element type that the op has, and run; its outputs,
// hidden ones included, must equal those of the reference kernel. Ops that work element by element also get every
// combination of odd numbers. Effects on variables are in test_lowering. An op without a lowering must give a reason.
// Arguments name the ops to check; none: all.
#include "../tables/asked_ops.h"
#include "skip.h"

#include "engine/engine.h"
#include "ops/core/plain.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MOST_INPUTS = 6, MOST_OUTPUTS = 16, MOST_CASES = 20 };

static const mu_team alone = {.n_threads = 1};

// One sample of an op with one type: inputs drawn, reference outputs computed.
typedef struct op_case {
    const mu_op *op;
    const mu_sample *sample;
    mu_dtype dtype;
    int number, n_out;
    bool odd; // the inputs are odd numbers, in place of the sample's
    mu_spec in[MOST_INPUTS];
    mu_tensor *inputs[MOST_INPUTS], *expected[MOST_OUTPUTS];
} op_case;

// ---- Inputs and reference -----------------------------------------------------------------------

// Numbers that follow from the seed, spread over the sample's range.
static mu_tensor *drawn(const mu_spec *spec, uint32_t seed, double low, double high)
{
    mu_tensor *tensor = mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL);
    const bool whole = !mu__dtype_is_float(spec->dtype);
    if (low == 0 && high == 0) {
        low = spec->dtype == MU_U8 ? 0 : -2;
        high = 2;
    }
    for (int64_t i = 0; i < mu__elements(&spec->shape); i++) {
        seed = seed * 1664525u + 1013904223u;
        const double u = (seed >> 8) * 0x1p-24, value = low + u * (high - low);
        mu__write_element(spec->dtype, mu__host_write(tensor), i,
                          spec->dtype == MU_BOOL ? u < 0.5
                          : whole                ? floor(value)
                                                 : value);
    }
    return tensor;
}

// Floats at which formulas go wrong. The results of two of the extremes may be denormal numbers, which XLA takes for 0,
// so only ops of one input get them.
enum { ODD_FLOATS = 46, ODD_INTEGERS = 16, EXTREMES = 3 };
static const double odd_floats[ODD_FLOATS] = {
    0,    -0.0, 1,     -1,   INFINITY, -INFINITY, NAN,    0.5,  -0.5,  2,    -2,    3,    -3,    1.5,      -1.5, 2.5,
    -2.5, 1e-4, -1e-4, 1e-8, -1e-8,    10,        -10.25, 20,   -20,   88,   -88,   89,   -89,   710,      -710, 100,
    -100, 1000, -1000, 3e4,  -3e4,     1e6,       -1e6,   1e10, -1e10, 1e20, -1e20, 1e37, -1e37, 0x1p-126,
};
static const int64_t odd_integers[ODD_INTEGERS] = {
    0, 1, -1, 2, -2, 3, -7, 64, 100, 127, -128, 255, 32767, INT32_MAX, INT64_MAX, INT64_MIN,
};

// Input `i` of the op has each odd number along axis `i`, of as many axes as there are inputs, so that broadcasting
// makes all combinations. Elements of a second input that can be wrong (divisors, exponents) are positive.
static mu_spec odd_spec(const op_case *c, int i, mu_dtype dtype)
{
    mu_spec spec = {dtype, {.rank = c->sample->n_in}};
    for (int k = 0; k < spec.shape.rank; k++)
        spec.shape.dims[k] = 1;
    spec.shape.dims[i] = dtype == MU_BOOL             ? 2
                         : !mu__dtype_is_float(dtype) ? ODD_INTEGERS
                                                      : ODD_FLOATS - (c->sample->n_in > 1 ? EXTREMES : 0);
    return spec;
}

static mu_tensor *odd_numbers(const op_case *c, int i)
{
    const mu_spec *spec = &c->in[i];
    mu_tensor *tensor = mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL);
    const mu_view view = {spec->dtype, spec->shape, mu__host_write(tensor)};
    for (int64_t k = 0; k < mu_tensor_elements(tensor); k++) {
        if (mu__dtype_is_float(spec->dtype)) {
            mu__write_real(&view, k, odd_floats[k]);
            continue;
        }
        mu__write_whole(&view, k, spec->dtype == MU_BOOL ? k : odd_integers[k]);
        if (i == 1 && c->op->fails_for && mu__read_whole(&view, k) <= 0)
            mu__write_whole(&view, k, 5);
    }
    return tensor;
}

// Returns false if the op does not take this type, or its reference refuses the sample.
static bool set_up(op_case *c)
{
    const mu_sample *sample = c->sample;
    mu_spec out[MOST_OUTPUTS] = {0};
    mu_view in_views[MOST_INPUTS], out_views[MOST_OUTPUTS];
    c->n_out = mu__op_outputs(c->op, sample->attrs, sample->n_in);
    for (int i = 0; i < sample->n_in; i++)
        c->in[i] = (mu_spec){sample->dtypes[i] ? sample->dtypes[i] : c->dtype, sample->in[i]};
    for (int i = 0; c->odd && i < sample->n_in; i++)
        c->in[i] = odd_spec(c, i, c->in[i].dtype);
    if (c->op->dtypes && !(c->op->dtypes & MU_DTYPE_BIT(c->in[0].dtype)))
        return false;
    mu_infer infer = {
        .op = c->op, .attrs = sample->attrs, .n_in = sample->n_in, .n_out = c->n_out, .in = c->in, .out = out};
    bool ok = mu__infer_call(&infer) == MU_OK;
    for (int i = 0; ok && i < sample->n_in; i++) {
        const uint32_t seed = (uint32_t)(c->number * 10 + i + 1);
        c->inputs[i] = c->odd ? odd_numbers(c, i) : drawn(&c->in[i], seed, sample->low[i], sample->high[i]);
        in_views[i] = (mu_view){c->in[i].dtype, c->in[i].shape, mu__host_write(c->inputs[i])};
    }
    for (int i = 0; ok && i < c->n_out; i++) {
        c->expected[i] = mu_tensor_new(out[i].dtype, out[i].shape.rank, out[i].shape.dims, NULL);
        out_views[i] = (mu_view){out[i].dtype, out[i].shape, mu__host_write(c->expected[i])};
    }
    const mu_kernel kernel = {.op = c->op,
                              .attrs = sample->attrs,
                              .n_in = sample->n_in,
                              .n_out = c->n_out,
                              .in = in_views,
                              .out = out_views,
                              .team = &alone};
    ok = ok && c->op->ref(&kernel) == MU_OK;
    mu_error_take();
    return ok;
}

// ---- The same by the plugin ---------------------------------------------------------------------

// One program for several cases, because compiling takes most of the time.
typedef struct batch {
    op_case cases[MOST_CASES];
    int n, n_in, n_out;
    mu_spec in[MOST_CASES * MOST_INPUTS];
    mu_tensor *inputs[MOST_CASES * MOST_INPUTS], *outputs[MOST_CASES * MOST_OUTPUTS];
} batch;

static void add_case(mu_graph *graph, batch *b, const op_case *c)
{
    mu_edge in[MOST_INPUTS];
    for (int i = 0; i < c->sample->n_in; i++) {
        in[i] = (mu_edge){.node = mu__graph_input(graph, &c->in[i], "x")};
        b->in[b->n_in] = c->in[i];
        b->inputs[b->n_in++] = c->inputs[i];
    }
    mu_node *node = mu__graph_node(graph, c->op, c->sample->attrs, c->sample->n_in, in, 0, NULL);
    for (int i = 0; node && i < c->n_out; i++) {
        const mu_edge edge = {.node = node, .output = i};
        assert_int_equal(MU_PUSH(&graph->outputs, edge), MU_OK);
    }
}

static double tolerance_of(mu_dtype dtype)
{
    return dtype == MU_F64 ? 1e-11 : dtype == MU_F32 ? 1e-4 : mu__dtype_is_float(dtype) ? 2e-2 : 0;
}

static void print_difference(const op_case *c, int output, int64_t k, double seen, double wanted)
{
    const mu_shape *shape = &c->expected[output]->shape;
    print_message("%s, sample %d, %s: output %d, element %lld is %.9g, the plain loops have %.9g", c->op->name,
                  c->number, mu_dtype_name(c->dtype), output, (long long)k, seen, wanted);
    for (int i = 0; c->odd && i < c->sample->n_in; i++) {
        const int64_t at = mu__broadcast_at(shape, &c->in[i].shape, k);
        print_message("%s %.9g", i ? "," : " of", mu__read_element(c->in[i].dtype, mu__host_read(c->inputs[i]), at));
    }
    print_message("\n");
}

static bool same(const op_case *c, mu_tensor *const *outputs)
{
    for (int i = 0; i < c->n_out; i++)
        for (int64_t k = 0; k < mu_tensor_elements(c->expected[i]); k++) {
            const double a = mu__read_element(outputs[i]->dtype, mu__host_read(outputs[i]), k);
            const double b = mu__read_element(c->expected[i]->dtype, mu__host_read(c->expected[i]), k);
            const double tolerance = tolerance_of(outputs[i]->dtype);
            if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(b)))) {
                print_difference(c, i, k, a, b);
                return false;
            }
        }
    return true;
}

static int check_batch(batch *b, mu_device *device)
{
    mu_graph *graph = mu__graph_new(b->cases[0].op->name);
    for (int i = 0; i < b->n; i++)
        add_case(graph, b, &b->cases[i]);
    mu_plan *plan = device->engine->compile(device, graph, b->in, b->n_in);
    const mu_run_args args = {.in = b->inputs, .out = b->outputs};
    const bool ran = plan && device->engine->run(plan, &args) == MU_OK;
    int wrong = ran ? 0 : b->n;
    if (!ran)
        print_message("%s, sample %d: %s\n", b->cases[0].op->name, b->cases[0].number, mu_error_message());
    mu_error_take();
    for (int i = 0; ran && i < b->n; b->n_out += b->cases[i++].n_out)
        wrong += !same(&b->cases[i], b->outputs + b->n_out);
    for (int i = 0; ran && i < b->n_out; i++)
        mu_release(b->outputs[i]);
    device->engine->free(plan);
    mu_release(graph);
    return wrong;
}

// Returns whether the sample fixes every type, so that the type under test has no effect.
static bool has_types(const mu_sample *sample)
{
    for (int i = 0; i < sample->n_in; i++)
        if (!sample->dtypes[i])
            return false;
    return true;
}

// With a sanitizer the plugin takes several times as long to compile, so each sample is tested with a quarter of the
// types, in turn: there the test is about Muster's memory, and builds without a sanitizer compare all results.
static bool has_turn(const mu_sample *sample, int number, size_t type)
{
    return MU_TEST_SLOWNESS == 1 || has_types(sample) || ((size_t)number + type) % 4 == 0;
}

// Returns whether a sample is the first with its attributes and types: odd numbers take the place of all else.
static bool asks_something_new(const mu_op *op, int number)
{
    const mu_sample *samples = op->samples, *new = &samples[number];
    for (int i = 0; i < number; i++)
        if (samples[i].attrs == new->attrs &&
            samples[i].n_in == new->n_in &&memcmp(samples[i].dtypes, new->dtypes, sizeof new->dtypes) == 0)
            return false;
    return true;
}

static void add_to_batch(batch *b, op_case c)
{
    b->cases[b->n] = c;
    b->n += set_up(&b->cases[b->n]);
}

static int check_op(const mu_op *op, mu_device *device, int *cases)
{
    static const mu_dtype dtypes[] = {
#define MU_DTYPE(id, name, type, number, hlo, safetensors, kind) MU_##id,
#include "tensor/dtype.def"
#undef MU_DTYPE
    };
    int wrong = 0;
    for (int number = 0; op->samples[number].n_in; number++) {
        static batch b;
        mu_pool *pool = mu_pool_open();
        memset(&b, 0, sizeof b);
        for (size_t d = 0; d < (has_types(&op->samples[number]) ? 1 : MU_COUNT(dtypes)); d++) {
            if (!has_turn(&op->samples[number], number, d))
                continue;
            op_case c = {.op = op, .sample = &op->samples[number], .dtype = dtypes[d], .number = number};
            add_to_batch(&b, c);
            c.odd = true;
            if ((op->flags & MU_OP_ELEMENTWISE) && asks_something_new(op, number))
                add_to_batch(&b, c);
        }
        wrong += b.n > 0 ? check_batch(&b, device) : 0;
        *cases += b.n;
        mu_pool_close(pool);
    }
    return wrong;
}

static void test_lowerings_agree_with_plain_loops(void **state)
{
    (void)state;
    int rows = 0, cases = 0, wrong = 0;
    mu_device *device = mu__device_by_name(mu__runtime(), "XLA_CPU:0");
    assert_non_null(device);
    for (int i = 0; i < mu__op_count(); i++) {
        const mu_op *op = mu__op_at(i);
        if (!(op->hlo || op->lower) || !op->samples || !asked_for(op))
            continue;
        rows++;
        wrong += check_op(op, device, &cases);
    }
    print_message("%d rows, %d cases, %d wrong\n", rows, cases, wrong);
    assert_true(rows > 60 || n_asked > 0);
    assert_int_equal(wrong, 0);
}

// `input` is the argument of a function, which the engine writes itself.
static void test_every_op_has_a_lowering_or_a_reason(void **state)
{
    (void)state;
    int without = 0;
    for (int i = 0; i < mu__op_count(); i++) {
        const mu_op *op = mu__op_at(i);
        const bool lowers = op->hlo || op->lower;
        if (lowers == (op->no_lowering != NULL) && op != &mu_op_input) {
            print_message("%s has %s\n", op->name,
                          lowers ? "a lowering, and a reason why it has none" : "neither a lowering nor a reason");
            without++;
        }
    }
    assert_int_equal(without, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lowerings_agree_with_plain_loops),
                                       cmocka_unit_test(test_every_op_has_a_lowering_or_a_reason)};
    n_asked = argc - 1;
    asked = argv + 1;
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
