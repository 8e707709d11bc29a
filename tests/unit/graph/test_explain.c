// What users are shown of a function: the log says why it is traced again, and its graph is drawn as a picture.
#include "../model/model_test.h"

#include "../base/base_test.h"

#include <muster/control.h>

static int start_with_log(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = 2, .log = "info") != MU_OK;
}

#define LOG_TEST(name) cmocka_unit_test_setup_teardown(name, start_with_log, end_library)

static mu_value *doubles_first(mu_value *arguments, void *arg)
{
    mu_variable *total = arg;
    mu_tensor *x = mu_at(arguments, 0);
    if (total)
        mu_variable_assign_add(total, mu_constant(MU_F32, 1));
    return mu_of(mu_add(x, x));
}

typedef struct one_call {
    mu_strategy *strategy;
    mu_function *function;
    mu_value *arguments;
} one_call;

static void call(void *arg)
{
    const one_call *c = arg;
    if (!mu_run(c->strategy, c->function, c->arguments))
        fprintf(stderr, "%s", mu_error_message());
}

static void expect_log(mu_strategy *strategy, mu_function *function, mu_value *arguments, const char *wanted)
{
    char text[2000];
    one_call c = {strategy, function, arguments};
    catch_stderr(call, &c, text, sizeof text);
    if (wanted ? !strstr(text, wanted) : strstr(text, "tracing again") != NULL)
        fail_msg("'%s' instead of '%s'", text, wanted ? wanted : "nothing");
}

static mu_value *zeros(mu_dtype dtype, int rank) { return mu_of(mu_zeros(dtype, rank, (int64_t[]){2, 3, 4})); }

static mu_value *two(void) { return mu_list(zeros(MU_F64, 3), zeros(MU_F64, 3), MU_END); }

static mu_value *row_of(int64_t n) { return mu_of(mu_zeros(MU_F32, 2, (int64_t[]){2, n})); }

static void retracing_is_explained(void **state)
{
    (void)state;
    mu_function *f = mu_function_new(doubles_first, NULL);
    expect_log(NULL, f, zeros(MU_F32, 2), NULL);
    expect_log(NULL, f, zeros(MU_F64, 2), "argument 0 has type float64 and had float32 before");
    expect_log(NULL, f, zeros(MU_F64, 3), "argument 0 has rank 3 and had 2 before");
    expect_log(NULL, f, two(), "nested in another way, with 2 tensors instead of 1");
    expect_log(mu_mirrored_strategy(.replicas = 2), f, two(), "strategy in force");
    mu_function *g = mu_function_new(doubles_first, NULL);
    expect_log(NULL, g, row_of(5), NULL);
    expect_log(NULL, g, row_of(6), "axis 1 of argument 0 was 5 before");
    expect_log(NULL, g, row_of(7), NULL);
}

static void a_graph_is_drawn(void **state)
{
    (void)state;
    const char *path = temporary_file("", 0);
    mu_variable *total = mu_variable_new(mu_constant(MU_F32, 0), "a \"name\"\n");
    mu_function *f = mu_function_new(doubles_first, total);
    assert_int_equal(mu_function_dot(f, path), MU_FAILED_PRECONDITION);
    expect_error(MU_FAILED_PRECONDITION, "not been traced");
    assert_non_null(mu_run(NULL, f, zeros(MU_F32, 2)));
    assert_int_equal(mu_function_dot(f, path), MU_OK);
    void *text = NULL;
    size_t bytes = 0;
    assert_int_equal(mu__file_read(path, 10000, &text, &bytes), MU_OK);
    const char *drawn = strchr(text, '{');
    assert_non_null(drawn);
    assert_string_equal(drawn, "{\n  node [shape=box];\n"
                               "  n0 [label=\"input 0\\nfloat32[?, 3]\"];\n"
                               "  n1 [label=\"constant\\nvalue=1\\nfloat32[]\"];\n"
                               "  n2 [label=\"assign_add_variable @a  name  \" style=filled];\n"
                               "  n3 [label=\"add\\nfloat32[?, 3]\"];\n"
                               "  n1 -> n2;\n"
                               "  n0 -> n3;\n"
                               "  n0 -> n3;\n"
                               "  result0 [shape=plaintext];\n"
                               "  n3 -> result0;\n"
                               "}\n");
    mu__free(text);
}

static mu_value *doubled(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_add(mu_at(arguments, 0), mu_at(arguments, 0)), MU_END);
}

static mu_value *doubles_each_row(mu_value *arguments, void *arg) { return mu_map_fn(doubled, arguments, arg); }

// Bodies are boxes of their own.
static void bodies_are_drawn(void **state)
{
    (void)state;
    const char *path = temporary_file("", 0);
    mu_function *f = mu_function_new(doubles_each_row, NULL);
    assert_non_null(mu_run(NULL, f, zeros(MU_F32, 1)));
    assert_int_equal(mu_function_dot(f, path), MU_OK);
    void *text = NULL;
    size_t bytes = 0;
    assert_int_equal(mu__file_read(path, 10000, &text, &bytes), MU_OK);
    assert_string_equal(strchr(text, '{'), "{\n  node [shape=box];\n"
                                           "  n0 [label=\"input 0\\nfloat32[?]\"];\n"
                                           "  n1 [label=\"dim_size\\naxes=[0]\\nint64[]\"];\n"
                                           "  n2 [label=\"while_loop\\nn_carried=0\\nn_slices=1\\nrows=-1\\n"
                                           "reverse=false\\nint64[]\\nfloat32[?]\"];\n"
                                           "  n0 -> n1;\n"
                                           "  n1 -> n2;\n"
                                           "  n0 -> n2;\n"
                                           "  subgraph cluster_n2_0_ {\n  label=\"map_fn\";\n"
                                           "  n2_0_0 [label=\"input 0\\nfloat32[]\"];\n"
                                           "  n2_0_1 [label=\"add\\nfloat32[]\"];\n"
                                           "  n2_0_0 -> n2_0_1;\n"
                                           "  n2_0_0 -> n2_0_1;\n"
                                           "  }\n"
                                           "  n2_0_1 -> n2 [style=dashed];\n"
                                           "  result0 [shape=plaintext];\n"
                                           "  n2 -> result0 [label=1];\n"
                                           "}\n");
    mu__free(text);
}

// A convolution, and other ops with attributes of every kind.
static mu_value *with_attributes(mu_value *arguments, void *arg)
{
    mu_tensor *kernel = mu_ones(MU_F32, 4, (int64_t[]){2, 2, 1, 2});
    mu_variable_assign_add(arg, mu_constant(MU_F32, 1));
    mu_tensor *y = mu_nn_conv2d(mu_at(arguments, 0), kernel, .strides = {2, 1}, .padding = "same");
    mu_print(mu_reduce_sum(y, 1), "a \"label\"\033[2J ");
    return mu_of(mu_nn_leaky_relu(mu_cast(mu_reshape(y, 2, (int64_t[]){-1, 2}), MU_F16), 0.25));
}

static void trace_with_attributes(void *arg)
{
    assert_non_null(mu_run(NULL, arg, mu_of(mu_ones(MU_F32, 4, (int64_t[]){1, 4, 2, 1}))));
}

static int start_with_debug(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = 1, .log = "debug") != MU_OK;
}

#define DEBUG_TEST(name) cmocka_unit_test_setup_teardown(name, start_with_debug, end_library)

// The dump and the picture say what a node does, and no name can control a terminal.
static void attributes_are_shown(void **state)
{
    (void)state;
    static const char *const dumped[] = {
        "assign_add_variable(%1, @evil?[31m name)\n",
        "constant() value=[1, 1, 1, 1, ...] : float32[2, 2, 1, 2]",
        "conv2d(%0, %3) strides=[2, 1] dilations=[1, 1] padding='same' groups=1 : float32[?, 2, 2, 2]",
        "reduce_sum(%4) axes=[1] keep_dims=false : float32[?, 2, 2]",
        "print(%5) text='a \"label\"?[2J '\n",
        "reshape(%4) shape=[?, 2] : float32[?, 2]",
        "cast(%7) dtype=float16 : float16[?, 2]",
        "leaky_relu(%8) alpha=0.25 : float16[?, 2]",
    };
    static const char *const drawn[] = {
        "[label=\"conv2d\\nstrides=[2, 1]\\ndilations=[1, 1]\\npadding='same'\\ngroups=1\\nfloat32[?, 2, 2, 2]\"",
        "[label=\"print\\ntext='a  label ?[2J '\" style=filled]",
    };
    char text[8000];
    mu_function *f = mu_function_new(with_attributes, mu_variable_new(mu_constant(MU_F32, 0), "evil\033[31m name"));
    catch_stderr(trace_with_attributes, f, text, sizeof text);
    for (size_t i = 0; i < MU_COUNT(dumped); i++)
        if (!strstr(text, dumped[i]))
            fail_msg("no '%s' in:\n%s", dumped[i], text);
    assert_null(strchr(text, '\033'));
    const char *path = temporary_file("", 0);
    void *picture = NULL;
    size_t bytes = 0;
    assert_int_equal(mu_function_dot(f, path), MU_OK);
    assert_int_equal(mu__file_read(path, 10000, &picture, &bytes), MU_OK);
    for (size_t i = 0; i < MU_COUNT(drawn); i++)
        if (!strstr(picture, drawn[i]))
            fail_msg("no '%s' in:\n%s", drawn[i], (char *)picture);
    mu__free(picture);
}

static void print_twice(void *arg)
{
    mu_print(arg, "x");
    mu_print(arg, "y = ");
    mu_print(arg, "");
}

static void a_label_is_told_from_its_tensor(void **state)
{
    (void)state;
    char text[200];
    catch_stderr(print_twice, mu_constant(MU_F32, 1), text, sizeof text);
    assert_string_equal(text, "x 1.0\ny = 1.0\n1.0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {LOG_TEST(retracing_is_explained), LOG_TEST(a_graph_is_drawn),
                                       LOG_TEST(bodies_are_drawn), LOG_TEST(a_label_is_told_from_its_tensor),
                                       DEBUG_TEST(attributes_are_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
