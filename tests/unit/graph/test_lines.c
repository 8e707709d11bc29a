// Source lines in errors: of eager ops, of ops in a trace, of their gradients, of errors while a plan is made or run,
// and of a graph that came over the wire.
#include "../model/model_test.h"

#include "engine/engine.h"

#include <muster.h>

// The line of an op below: set just before the call, compared with the error.
static int wanted_line;
#define HERE (wanted_line = __LINE__)
// A call stands in the line of its HERE.
// clang-format off

static void assert_made_here(void)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "test_lines.c:%d)", wanted_line);
    mu_error error = mu_error_take();
    if (error.code == MU_OK || !strstr(error.message, "(made at ") || !strstr(error.message, wanted))
        fail_msg("'%s' does not say %s", error.message, wanted);
    assert_null(strstr(strstr(error.message, "(made at ") + 1, "(made at "));  // once
}

static mu_tensor *vector_of(int64_t n)
{
    return mu_zeros(MU_F64, 1, &n);
}

static void an_eager_op_names_its_line(void **state)
{
    (void)state;
    mu_tensor *a = vector_of(2), *b = vector_of(3);
    HERE; assert_null(mu_add(a, b));
    assert_made_here();
    // Arguments that are calls of their own, on other lines, do not change it.
    HERE; assert_null(mu_add(mu_neg(vector_of(2)), b));
    assert_made_here();
    mu_tensor *values;
    HERE; assert_int_equal(mu_top_k(a, 9, &values, NULL), MU_INVALID_ARGUMENT);
    assert_made_here();
    HERE; assert_null(mu_nn_max_pool2d(a, {2}));
    assert_made_here();
}

// An earlier failure has no line of an op, and does not get one from the ops that follow.
static void an_older_error_gets_no_line(void **state)
{
    (void)state;
    mu_tensor *a = vector_of(2);
    mu_fail(MU_UNKNOWN, "the well is dry");
    assert_null(mu_neg(a));
    assert_string_equal(mu_error_take().message, "the well is dry");
}

// Other languages call the function itself.
static void without_the_macro_there_is_no_line(void **state)
{
    (void)state;
    mu_tensor *a = vector_of(2), *b = vector_of(3);
    assert_null((mu_add)(a, b));
    assert_null(strstr(mu_error_take().message, "made at"));
}

static mu_tensor *fails_inside(mu_tensor *a)
{
    HERE; return mu_matmul(a, a);
}

static void a_function_that_an_argument_calls_names_its_own(void **state)
{
    (void)state;
    mu_tensor *a = vector_of(2);
    assert_null(mu_add(a, fails_inside(a)));
    assert_made_here();
    assert_int_equal(mu__context()->n_lines, 0);
}

// ---- In functions -------------------------------------------------------------------------------

static mu_value *adds_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *y = mu_at(arguments, 1);
    HERE; mu_tensor *sum = mu_add(x, y);
    return mu_of(mu_neg(sum));
}

static mu_value *pair(int64_t n, int64_t m)
{
    return mu_list(mu_of(vector_of(n)), mu_of(vector_of(m)), MU_END);
}

static void the_trace_fails(void **state)
{
    (void)state;
    mu_function *f = mu_function_new(adds_rows, NULL);
    assert_null(mu_run(mu_default_strategy(), f, pair(2, 3)));
    assert_made_here();
}

static void free_traced(mu_traced *traced)
{
    mu_release(traced->graph);
    mu_release(traced->inputs);
    mu_release(traced->outputs);
}

// The batch axes are unknown in the trace; only the plan finds that they differ.
static void the_plan_fails(void **state)
{
    (void)state;
    mu_value *arguments = pair(4, 6);
    mu_spec specs[2] = {{.dtype = MU_F64, .shape = {.rank = 1, .dims = {MU_UNKNOWN}}},
                        {.dtype = MU_F64, .shape = {.rank = 1, .dims = {MU_UNKNOWN}}}};
    mu_traced traced;
    assert_int_equal(mu__trace_run("adds_rows", adds_rows, NULL, arguments, specs, true, &traced), MU_OK);
    mu_device *device = mu__device_by_name(mu__runtime(), "CPU:0");
    const mu_spec known[2] = {{.dtype = MU_F64, .shape = {.rank = 1, .dims = {4}}},
                              {.dtype = MU_F64, .shape = {.rank = 1, .dims = {6}}}};
    assert_null(device->engine->compile(device, traced.graph, known, 2));
    assert_made_here();
    free_traced(&traced);
}

static mu_value *asserts_positive(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    HERE; mu_assert(mu_greater(x, mu_constant(MU_F64, 0)), "x must be positive");
    return mu_of(mu_sqrt(x));
}

static void the_run_fails(void **state)
{
    (void)state;
    mu_function *f = mu_function_new(asserts_positive, NULL);
    const double data[2] = {1, -1};
    assert_null(mu_run(mu_default_strategy(), f, mu_of(mu_tensor_new(MU_F64, 1, (int64_t[]){2}, data))));
    assert_made_here();
}

// The gradient of check_numerics is checked too, and made where the op was made.
static mu_value *gradient_is_infinite(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_at(arguments, 0);
    HERE; mu_tensor *checked = mu_check_numerics(x, "the gradient");
    mu_tensor *y = mu_multiply(checked, mu_constant(MU_F64, 1e300));
    mu_tensor *z = mu_reduce_sum(mu_multiply(y, mu_constant(MU_F64, 1e300)), 0);
    return mu_gradients(tape, z, mu_of(x));
}

static void a_gradient_op_names_the_forward_line(void **state)
{
    (void)state;
    mu_function *f = mu_function_new(gradient_is_infinite, NULL);
    assert_null(mu_run(mu_default_strategy(), f, mu_of(vector_of(2))));
    assert_made_here();
}

// ---- Over the wire ------------------------------------------------------------------------------

// A mean of segments consists of sums and quotients: if one of those fails when it runs, the error has its line and the
// function's name.
static mu_value *mean_of_segments(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *segments = mu_at(arguments, 1);
    HERE; mu_tensor *means = mu_unsorted_segment_mean(mu_neg(x), segments, 2);
    return mu_of(mu_gather(means, segments, 0, 0));
}

static mu_value *gather_of_segments(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *segments = mu_at(arguments, 1);
    mu_tensor *means = mu_unsorted_segment_mean(x, mu_zeros_like(segments), 2);
    HERE; return mu_of(mu_gather(means, segments, 0, 0));
}

static void the_run_names_the_function_that_was_called(void **state)
{
    (void)state;
    mu_value *arguments = mu_list(vector_of(2), mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){0, 7}), MU_END);
    mu_function *f = mu_function_new(mean_of_segments, NULL);
    assert_null(mu_run(mu_default_strategy(), f, arguments));
    assert_non_null(strstr(mu_error_message(), "unsorted_segment_sum: "));
    assert_non_null(strstr(mu_error_message(), "\nin unsorted_segment_mean"));
    assert_made_here();
    // Ops that use its result are not part of it.
    f = mu_function_new(gather_of_segments, NULL);
    assert_null(mu_run(mu_default_strategy(), f, arguments));
    assert_null(strstr(mu_error_message(), "segment_mean"));
    assert_made_here();
}

static void lines_travel(void **state)
{
    (void)state;
    mu_spec spec = {.dtype = MU_F64, .shape = {.rank = 1, .dims = {2}}};
    mu_traced traced;
    void *bytes;
    size_t size;
    assert_int_equal(mu__trace_run("f", asserts_positive, NULL, mu_of(vector_of(2)), &spec, true, &traced), MU_OK);
    assert_int_equal(mu__graph_write(traced.graph, &bytes, &size), MU_OK);
    free_traced(&traced);
    mu_graph *graph = mu__graph_read(bytes, size, NULL, NULL);
    mu__free(bytes);
    assert_non_null(graph);
    mu_device *device = mu__device_by_name(mu__runtime(), "CPU:0");
    mu_plan *plan = device->engine->compile(device, graph, &spec, 1);
    mu_tensor *in = vector_of(2), *out = NULL;
    const mu_run_args args = {.in = &in, .out = &out};
    assert_int_equal(device->engine->run(plan, &args), MU_INVALID_ARGUMENT);
    assert_made_here();
    device->engine->free(plan);
    mu_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(an_eager_op_names_its_line),
        MODEL_TEST(an_older_error_gets_no_line),
        MODEL_TEST(without_the_macro_there_is_no_line),
        MODEL_TEST(a_function_that_an_argument_calls_names_its_own),
        MODEL_TEST(the_trace_fails),
        MODEL_TEST(the_plan_fails),
        MODEL_TEST(the_run_fails),
        MODEL_TEST(a_gradient_op_names_the_forward_line),
        MODEL_TEST(the_run_names_the_function_that_was_called),
        MODEL_TEST(lines_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
