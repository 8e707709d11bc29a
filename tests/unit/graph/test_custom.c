// Ops of the program's own: eagerly, differentiated, in traces, on several replicas, over the wire; and every way in
// which a definition can be wrong.
#include "../model/model_test.h"

#include <muster/custom.h>

static int64_t count_of(const mu_array *array) { return mu__elements(&array->shape); }

// y0 = a * b^2, y1 = its sign as int32.
static mu_status weigh_kernel(const mu_array *in, const mu_array *out, void *arg)
{
    const double *a = in[0].data, *b = in[1].data;
    double *y = out[0].data;
    int32_t *sign = out[1].data;
    atomic_fetch_add((atomic_int *)arg, 1);
    for (int64_t i = 0; i < count_of(&in[0]); i++) {
        if (a[i] == 99)
            return mu_fail(MU_OUT_OF_RANGE, "element %d is 99", (int)i);
        y[i] = a[i] * b[i] * b[i];
        sign[i] = (y[i] > 0) - (y[i] < 0);
    }
    return MU_OK;
}

static mu_status weigh_infer(const mu_array *in, mu_array *out, void *arg)
{
    (void)arg;
    if (!mu__shape_compatible(&in[0].shape, &in[1].shape))
        return mu_fail(MU_INVALID_ARGUMENT, "both need one shape");
    out[1].dtype = MU_I32;
    return MU_OK;
}

static mu_status weigh_gradient(mu_tensor *const *x, mu_tensor *const *y, mu_tensor *const *dy, mu_tensor **dx,
                                void *arg)
{
    (void)y, (void)arg;
    dx[0] = mu_multiply(dy[0], mu_square(x[1]));
    dx[1] = mu_multiply(dy[0], mu_multiply(mu_constant(MU_F64, 2), mu_multiply(x[0], x[1])));
    return mu_error_code();
}

static atomic_int calls;

static void register_weigh(void)
{
    assert_int_equal(mu_register_op("weigh", 2, 2, .kernel = weigh_kernel, .infer = weigh_infer,
                                    .gradient = weigh_gradient, .arg = &calls),
                     MU_OK);
}

static mu_tensor *weigh(mu_tensor *a, mu_tensor *b)
{
    mu_tensor *in[] = {a, b}, *out[2] = {NULL};
    return mu_call_op("weigh", 2, in, out) == MU_OK ? out[0] : NULL;
}

static void it_works_eagerly(void **state)
{
    (void)state;
    register_weigh();
    register_weigh(); // the same again is not an error
    mu_tensor *in[] = {vector(2, (double[]){3, -1}), vector(2, (double[]){2, 5})}, *out[2];
    mu_tape *tape = mu_tape_open();
    assert_int_equal(mu_call_op("weigh", 2, in, out), MU_OK);
    const double wanted[] = {12, -25};
    const int32_t signs[] = {1, -1};
    assert_memory_equal(mu_tensor_data(out[0]), wanted, sizeof wanted);
    assert_memory_equal(mu_tensor_data(out[1]), signs, sizeof signs);
    mu_value *of_first = mu_gradients(tape, mu_reduce_sum(out[0], 0), mu_list(in[0], MU_END));
    assert_non_null(of_first);
    mu_tape_close(tape);
}

static mu_value *gradients_of(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *a = mu_at(arguments, 0), *b = mu_at(arguments, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_reduce_sum(mu_tanh(weigh(a, b)), 0);
    return mu_gradients(tape, y, mu_list(a, b, MU_END));
}

static double value_of(double a, double b) { return tanh(a * b * b); }

static void gradients_are_right_on_every_replica(void **state)
{
    (void)state;
    register_weigh();
    atomic_store(&calls, 0);
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 3);
    mu_function *f = mu_function_new(gradients_of, NULL);
    const double a = .3, b = -.7, h = 1e-6;
    mu_value *arguments = mu_list(vector(1, &a), vector(1, &b), MU_END);
    mu_value *result = mu_run(strategy, f, arguments);
    if (!result)
        fail_msg("%s", mu_error_message());
    assert_int_equal(atomic_load(&calls), 3);
    mu_value *of_a = mu_local_results(strategy, mu_value_at(result, 0)),
             *of_b = mu_local_results(strategy, mu_value_at(result, 1));
    for (int r = 0; r < 3; r++) {
        assert_number(mu_scalar(mu_value_at(of_a, r)), (value_of(a + h, b) - value_of(a - h, b)) / (2 * h), 1e-8);
        assert_number(mu_scalar(mu_value_at(of_b, r)), (value_of(a, b + h) - value_of(a, b - h)) / (2 * h), 1e-8);
    }
}

static void failures_name_the_op(void **state)
{
    (void)state;
    register_weigh();
    mu_tensor *a = vector(2, (double[]){1, 99});
    assert_null(weigh(a, vector(3, (double[]){1, 2, 3})));
    expect_error(MU_INVALID_ARGUMENT, "one shape");
    assert_null(weigh(a, a));
    expect_error(MU_OUT_OF_RANGE, "element 1");
    assert_null(weigh(a, a));
    expect_error(MU_OUT_OF_RANGE, "\nin the kernel of custom/weigh");
    assert_null(mu_call_op1("weigh", 2, (mu_tensor *[]){a, a}));
    expect_error(MU_INVALID_ARGUMENT, "has 2 outputs");
    assert_null(mu_call_op1("nobody", 1, &a));
    expect_error(MU_NOT_FOUND, "'nobody'");
    mu_tensor *out[2];
    assert_int_equal(mu_call_op("weigh", 1, &a, out), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "custom/weigh: 1 inputs given");
}

static mu_status says_nothing(const mu_array *in, const mu_array *out, void *arg)
{
    (void)in, (void)out, (void)arg;
    return MU_INTERNAL;
}

static mu_status wrong_gradient(mu_tensor *const *x, mu_tensor *const *y, mu_tensor *const *dy, mu_tensor **dx,
                                void *arg)
{
    (void)x, (void)y, (void)dy, (void)arg;
    dx[0] = mu_constant(MU_F32, 1);
    return MU_OK;
}

static mu_status copies(const mu_array *in, const mu_array *out, void *arg)
{
    (void)arg;
    memcpy(out[0].data, in[0].data, (size_t)count_of(&in[0]) * sizeof(double));
    return MU_OK;
}

static void wrong_ops_are_refused(void **state)
{
    (void)state;
    register_weigh();
    assert_int_equal(mu_register_op("weigh", 1, 1, .kernel = says_nothing), MU_ALREADY_EXISTS);
    mu_error_take();
    assert_int_equal(mu_register_op("a name", 1, 1, .kernel = says_nothing), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_register_op("many", 8, 1, .kernel = says_nothing), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_register_op("empty", 1, 1), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_register_op("silent", 1, 1, .kernel = says_nothing), MU_OK);
    assert_int_equal(mu_register_op("skewed", 1, 1, .kernel = copies, .gradient = wrong_gradient), MU_OK);
    mu_tensor *x = vector(2, (double[]){1, 2});
    assert_null(mu_call_op1("silent", 1, &x));
    expect_error(MU_INTERNAL, "custom/silent: its kernel failed");
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_call_op1("skewed", 1, &x);
    assert_null(mu_gradients(tape, mu_reduce_sum(y, 0), mu_of(x)));
    expect_error(MU_INVALID_ARGUMENT, "it must be float64[2]");
    assert_int_equal(mu_register_op("plain", 1, 1, .kernel = copies), MU_OK);
    mu_tensor *z = mu_call_op1("plain", 1, &x);
    assert_null(mu_gradients(tape, mu_reduce_sum(mu_multiply(z, x), 0), mu_of(x)));
    expect_error(MU_UNIMPLEMENTED, "without a gradient");
    mu_tape_close(tape);
}

// ---- Over the wire ------------------------------------------------------------------------------

static mu_value *uses_weigh(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(weigh(mu_at(arguments, 0), mu_at(arguments, 0)));
}

static void only_the_name_travels(void **state)
{
    (void)state;
    register_weigh();
    const mu_spec spec = {.dtype = MU_F64, .shape = {.rank = 1, .dims = {MU_UNKNOWN}}};
    mu_traced traced;
    void *bytes;
    size_t size;
    assert_int_equal(mu__trace_run("f", uses_weigh, NULL, mu_of(vector(1, (double[]){1})), &spec, true, &traced),
                     MU_OK);
    assert_int_equal(mu__graph_write(traced.graph, &bytes, &size), MU_OK);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    mu_graph *graph = mu__graph_read(bytes, size, NULL, NULL);
    assert_non_null(graph);
    mu_release(graph);
    // The graph as seen by a process that has not registered the op.
    char *name = memmem(bytes, size, "custom/weigh", 12);
    assert_non_null(name);
    memcpy(name, "custom/wough", 12);
    assert_null(mu__graph_read(bytes, size, NULL, NULL));
    expect_error(MU_NOT_FOUND, "'custom/wough', which this process has not registered");
    mu__free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(it_works_eagerly),      MODEL_TEST(gradients_are_right_on_every_replica),
        MODEL_TEST(failures_name_the_op),  MODEL_TEST(wrong_ops_are_refused),
        MODEL_TEST(only_the_name_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
