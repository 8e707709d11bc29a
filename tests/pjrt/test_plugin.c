// Finding and opening plugins: every error is one clear sentence, and no mistake ends the process.
//
// Also the error of a function that the plugin cannot run, after which variables are unchanged.
#include "../unit/assert_taken.h"
#include "skip.h"

#include "engine/engine.h"
#include "engine/pjrt/pjrt.h"
#include "ops/nn/nn.h"

#include <muster.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_unknown_plugins_are_named(void **state)
{
    (void)state;
    assert_null(mu__device_by_name(mu__runtime(), "NOSUCH:0"));
    assert_taken(MU_INVALID_ARGUMENT, "'NOSUCH:0'; there is CPU:0");
    assert_null(mu__device_by_name(mu__runtime(), "CPU:99"));
    assert_taken(MU_INVALID_ARGUMENT, "CPU:99");
    assert_null(mu__device_by_name(mu__runtime(), "XLA_CPU"));
    assert_taken(MU_INVALID_ARGUMENT, "'XLA_CPU'");
    assert_null(mu__device_by_name(mu__runtime(), "XLA_CPU:-1"));
    assert_taken(MU_INVALID_ARGUMENT, "XLA_CPU:-1");
    assert_null(mu__device_by_name(mu__runtime(), "XLA_CPU:7"));
    assert_taken(MU_INVALID_ARGUMENT, "XLA_CPU:0 to XLA_CPU:0");
    assert_non_null(mu__device_by_name(mu__runtime(), "XLA_CPU:0"));
}

// Devices by type; the plugin for processors also stands in for one for GPUs.
static void test_devices_of_a_type(void **state)
{
    (void)state;
    enum { MOST = 16 };
    const char *names[MOST + 1] = {NULL};
    assert_int_equal(mu_list_physical_devices("cpu", names, 2), mu_device_count());
    assert_string_equal(names[0], "CPU:0");
    assert_int_equal(mu_list_physical_devices("XLA_CPU", names, 1), 1);
    assert_string_equal(names[0], "XLA_CPU:0");
    assert_int_equal(mu_list_physical_devices("GPU", NULL, 0), 0);
    assert_null(mu__device_by_name(mu__runtime(), "GPU:0"));
    assert_taken(MU_INVALID_ARGUMENT, "muster plugin install cuda13");
    char *before = strdup(getenv("PJRT_NAMES_AND_LIBRARY_PATHS"));
    setenv("PJRT_NAMES_AND_LIBRARY_PATHS", "xla_cpu:" MU_TEST_PLUGIN ",cuda13:" MU_TEST_PLUGIN, 1);
    const int n = mu_list_physical_devices("GPU", names, MOST);
    assert_true(n > mu_device_count()); // a strategy may have more of them than there are processors
    assert_int_equal(mu_num_replicas_in_sync(mu_mirrored_strategy(.devices = names)), n);
    assert_string_equal(names[0], "GPU:0");
    assert_ptr_equal(mu__device_by_name(mu__runtime(), "/gpu:0")->name, names[0]);
    setenv("PJRT_NAMES_AND_LIBRARY_PATHS", before, 1);
    free(before);
    assert_int_equal(mu_list_physical_devices(NULL, NULL, 0), -1);
    assert_taken(MU_INVALID_ARGUMENT, "type of device");
}

static void test_files_that_are_no_plugins(void **state)
{
    (void)state;
    assert_null(mu__pjrt_plugin("/nowhere/plugin.so"));
    assert_taken(MU_NOT_FOUND, "/nowhere/plugin.so: there is no such file");
}

// The same file under another path, which is opened anew.
static const char another_path[] = "/." MU_TEST_PLUGIN, *const file_of_options = "./options";

static void write_options(void)
{
    FILE *options = fopen(file_of_options, "w");
    assert_non_null(options);
    fputs("--xla_cpu_enable_fast_math=false\n--xla_nothing\n", options);
    fclose(options);
}

// Options with which XLA would end the process, and what the refusal says of each; NULL: XLA takes it.
static const struct {
    const char *flags, *error;
} options[] = {
    {"--xla_cpu_enable_fast_math=false --xla_no_such_option=1", "the option '--xla_no_such_option=1', which "},
    {" --xla_dump_to='/tmp/a b' --xla_gpu_nothing", "'--xla_gpu_nothing'"},
    {"--xla_dump_to=/tmp word", "XLA_FLAGS has 'word', which is not an option"},
    {"--=1", "'--=1'"},
    {"--", "'--'"},
    {"/nowhere/options", "/nowhere/options"},
    {"--xla_cpu_enable_fast_math", NULL},
    {"  ", NULL},
    {"--xla_dump_to='/tmp/a b' --xla_cpu_enable_fast_math=\"true\"", NULL},
    {"--xla_cpu_enable_fast_math=maybe", "'--xla_cpu_enable_fast_math=maybe', whose value must be true or false"},
    {"--xla_cpu_enable_fast_math=", "true or false"},
    {"--xla_cpu_enable_fast_math=True", NULL},
    {"--xla_force_host_platform_device_count=many", "a whole number of 32 bits"},
    {"--xla_force_host_platform_device_count=3x", "a whole number"},
    {"--xla_force_host_platform_device_count", "a whole number"},
    {"--xla_force_host_platform_device_count=99999999999", "of 32 bits"},
    {"--xla_force_host_platform_device_count=-1", "0 or more"},
    {"--xla_force_host_platform_device_count=0", NULL},
    {"--xla_cpu_prefer_vector_width=-1", NULL},
    {"--xla_gpu_autotune_gemm_rtol=small", "a number"},
    {"--xla_gpu_autotune_gemm_rtol=1e-3", NULL},
    {"--xla_gpu_shape_checks=perhaps", "must be one of IGNORE, RUNTIME, COMPILE_TIME;"},
    {"--xla_gpu_shape_checks=COMPILE_TIME", NULL},
    {"--xla_gpu_shape_checks=compile_time", "COMPILE_TIME"},
    {"--xla_gpu_shape_checks", "COMPILE_TIME"},
    {"--xla_gpu_shape_checks=", "COMPILE_TIME"},
    {"--xla_gpu_shape_checks=+RUNTIME", "COMPILE_TIME"},
    {"--xla_gpu_shape_checks=FUSION", "COMPILE_TIME"},
    {"--xla_gpu_shape_checks=RUNTIME,RUNTIME", "COMPILE_TIME"},
    {"--xla_gpu_detect_nan=none", NULL},
    {"--xla_gpu_detect_nan=NONE", "one of none, warning, fail;"},
    {"--xla_gpu_detect_nan=DETECTION_MODE_NONE", "one of none, warning, fail;"},
    {"--xla_gpu_enable_while_loop_unrolling=while_loop_unrolling_no_unroll", NULL},
    {"--xla_gpu_enable_while_loop_unrolling=no_unroll", "WHILE_LOOP_UNROLLING_NO_UNROLL"},
    {"--xla_cpu_experimental_onednn_fusion_type=dot,LIBRARY_FUSION_TYPE_ELTWISE", NULL},
    {"--xla_cpu_experimental_onednn_fusion_type=fusion", "LIBRARY_FUSION_TYPE_DOT"},
    {"--xla_gpu_enable_command_buffer=FUSION,perhaps", "FUSION, CUBLAS"},
    {"--xla_gpu_enable_command_buffer=FUSION,", NULL},
    {"--xla_gpu_disable_async_collectives=NOOP,", "ALLREDUCE"},
    {"--xla_gpu_enable_command_buffer=FUSION,-CUBLAS", "FUSION, CUBLAS"},
    {"--xla_gpu_enable_command_buffer=+FUSION,-cublas", NULL},
    {"--xla_gpu_enable_command_buffer=", NULL},
    {"--xla_gpu_disable_async_collectives=allreduce,ALLGATHER", NULL},
    {"--xla_gpu_disable_async_collectives=+ALLREDUCE", "ALLREDUCE"},
    {"--xla_gpu_disable_async_collectives=", "ALLREDUCE"},
    {"--xla_backend_extra_options=-inline-threshold=50,--time-passes,xla_cpu_anything", NULL},
    {"--xla_backend_extra_options=", NULL},
    {"--xla_backend_extra_options", "a text"},
    {"--xla_backend_extra_options=-no-such-option=1", "'-no-such-option=1' in --xla_backend_extra_options"},
    {"--xla_backend_extra_options=-time-passes,inline-threshold=50", "'inline-threshold=50' in"},
    {"--xla_dump_to", "a text"},
    {"--xla_disable_hlo_passes=", NULL}};

static void test_wrong_options_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(options); i++) {
        setenv("XLA_FLAGS", options[i].flags, 1);
        const bool refused = mu__pjrt_check_flags(MU_TEST_PLUGIN) != MU_OK;
        const mu_error error = mu_error_take();
        if (refused != (options[i].error != NULL) || (refused && !strstr(error.message, options[i].error)))
            fail_msg("%s: %s", options[i].flags, error.message);
    }
    assert_false(mu__pjrt_flags_have("xla_cpu_enable_fast_math"));
    write_options();
    setenv("XLA_FLAGS", file_of_options, 1);
    assert_true(mu__pjrt_flags_have("xla_cpu_enable_fast_math"));
    assert_false(mu__pjrt_flags_have("xla_cpu_use_xnnpack"));
    assert_null(mu__pjrt_plugin(another_path));
    assert_taken(MU_INVALID_ARGUMENT, "options has the option '--xla_nothing'");
    remove(file_of_options);
    unsetenv("XLA_FLAGS");
    write_options();
    assert_null(mu__pjrt_plugin(file_of_options));
    assert_taken(MU_NOT_FOUND, "; the file is damaged; install the plugin anew");
    remove(file_of_options);
}

// With this LLVM would end the process when it compiles the first program. LLVM's options are tried in a process of
// their own, before the plugin is loaded here. A program that ignores SIGCHLD cannot see how such a process ended.
static void test_values_of_llvms_options_are_tried(void **state)
{
    (void)state;
    static const struct {
        const char *flags, *error;
        bool ignored;
    } cases[] = {
        {"--xla_backend_extra_options=-inline-threshold=abc", "'abc' value invalid", false},
        {"--xla_cpu_enable_fast_math=false --xla_backend_extra_options=-inline-threshold=50,-time-passes=perhaps",
         "'perhaps' is invalid value", true},
        {"--xla_backend_extra_options=-inline-threshold=50", NULL, true}};
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        setenv("XLA_FLAGS", cases[i].flags, 1);
        signal(SIGCHLD, cases[i].ignored ? SIG_IGN : SIG_DFL);
        const bool opened = mu__pjrt_plugin(MU_TEST_PLUGIN) != NULL;
        signal(SIGCHLD, SIG_DFL);
        if (opened != !cases[i].error)
            fail_msg("%s: %s", cases[i].flags, mu_error_message());
        if (cases[i].error)
            assert_taken(MU_INVALID_ARGUMENT, cases[i].error);
    }
    unsetenv("XLA_FLAGS");
}

// The plugin's own words, and the remedy.
static void test_advice(void **state)
{
    (void)state;
    static const struct {
        const char *words, *cure;
    } cases[] = {
        {"libnccl.so.2: cannot open shared object file: No such file or directory", "; the plugin needs that library"},
        {"No visible GPU devices", "; check that nvidia-smi lists a GPU, that CUDA_VISIBLE_DEVICES"},
        {"No jellyfish device found", "; this machine has no TPU"},
        {"version `GLIBC_2.99' not found", "; the plugin was built for a newer system"}};
    for (size_t i = 0; i < MU_COUNT(cases); i++) {
        mu__error(MU_NOT_FOUND, "plugin x: %s", cases[i].words);
        mu__pjrt_advise();
        const mu_error error = mu_error_take();
        const char *own = strstr(error.message, cases[i].words), *cure = strstr(error.message, cases[i].cure);
        assert_true(own && cure && own < cure && !strchr(error.message, '\n'));
    }
    mu__error(MU_NOT_FOUND, "something else");
    mu__pjrt_advise();
    assert_string_equal(mu_error_take().message, "something else");
}

static void test_one_table_per_plugin(void **state)
{
    (void)state;
    const pj_api *api = mu__pjrt_plugin("xla_cpu");
    assert_non_null(api);
    assert_ptr_equal(api, mu__pjrt_plugin("xla_cpu"));
    assert_ptr_equal(api, mu__pjrt_plugin(MU_TEST_PLUGIN));
    assert_int_equal(api->version.major, 0);
}

// A plugin with an older table: functions that it lacks are refused, not called.
static void test_missing_functions_are_refused(void **state)
{
    (void)state;
    const pj_api *api = mu__pjrt_plugin("xla_cpu");
    const size_t bytes = offsetof(pj_api, functions) + sizeof(pj_call *) * PJ_CLIENT_CREATE;
    pj_api *older = malloc(bytes);
    memcpy(older, api, bytes);
    older->size = bytes;
    pj_client_create_args args = PJ_ARGS(pj_client_create_args, .options = NULL);
    assert_int_equal(mu__pjrt_call(older, PJ_CLIENT_CREATE, &args, "old"), MU_UNIMPLEMENTED);
    assert_taken(MU_UNIMPLEMENTED, "lacks function 10");
    free(older);
}

// ---- Functions ----------------------------------------------------------------------------------

static mu_variable *counter;

static mu_value *count_and_print(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_add(counter, mu_constant(MU_F32, 1));
    mu_print(mu_at(arguments, 0), "x");
    return mu_of(mu_at(arguments, 0));
}

static mu_value *count_and_double(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_add(counter, mu_constant(MU_F32, 1));
    return mu_of(mu_add(mu_at(arguments, 0), mu_at(arguments, 0)));
}

static void test_rows_without_lowering_are_named(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    MU_SCOPE(strategy)
        counter = mu_variable_new(.initial_value = mu_constant(MU_F32, 5), .name = "counter");
    mu_value *x = mu_list(mu_of(mu_vector_f32(3, (float[]){3, 1, 2})), MU_END);
    assert_null(mu_run(strategy, mu_function_new(count_and_print, NULL), x));
    assert_taken(MU_UNIMPLEMENTED, "op print has no StableHLO lowering: a device program cannot write");
    assert_true(mu_scalar(mu_variable_read(counter)) == 5);
    mu_value *doubled = mu_run(strategy, mu_function_new(count_and_double, NULL), x);
    assert_non_null(doubled);
    assert_true(((const float *)mu_tensor_data(mu_value_tensor(doubled)))[0] == 6);
    assert_true(mu_scalar(mu_variable_read(counter)) == 6);
}

// ---- Programs -----------------------------------------------------------------------------------

// One graph with an input, a captured tensor and two outputs.
static mu_graph *small_graph(mu_spec *input)
{
    mu_graph *graph = mu__graph_new("small");
    *input = (mu_spec){.dtype = MU_F32, .shape = MU_SHAPE(2, 3)};
    mu_node *x = mu__graph_input(graph, input, "x");
    mu_node *captured = mu__graph_constant(graph, mu_vector_f32(3, (float[]){1, 2, 3}));
    mu_node *sum = mu__graph_node(graph, &mu_op_add, NULL, 2, (mu_edge[]){{.node = x}, {.node = captured}}, 0, NULL);
    mu_node *relu = mu__graph_node(graph, &mu_op_relu, NULL, 1, (mu_edge[]){{.node = sum}}, 0, NULL);
    assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = sum})), MU_OK);
    assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = relu})), MU_OK);
    return graph;
}

static void test_text_of_a_program(void **state)
{
    (void)state;
    mu_spec input, specs[8];
    mu_graph *graph = small_graph(&input);
    mu_arena arena = {0};
    mu_pjrt_parts passed;
    mu_pjrt_text text;
    mu_pjrt_faults faults = {0};
    assert_int_equal(mu__pjrt_parts_of(graph, false, &arena, &passed), MU_OK);
    assert_int_equal(passed.n_parts, 1);
    assert_int_equal(passed.parts[0].n_taken, 1);
    assert_int_equal(passed.parts[0].n_left, 2);
    assert_int_equal(mu__pjrt_emit(graph, &input, &passed, 1, 1, &text, specs, &faults), MU_OK);
    assert_non_null(
        strstr(text.items, "func.func public @main(%v0: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)"));
    assert_non_null(strstr(text.items, "dense<\"0x0000803F0000004000004040\">"));
    assert_int_equal(strlen(text.items), text.n);
    mu__free(text.items);
    mu__arena_free(&arena);
    mu_release(graph);
}

// Returns whether the text of a product has these words when the setting is `precision` (NULL: unset).
static bool product_has(const char *precision, const char *words)
{
    mu_exit(true);
    if (precision)
        setenv("MUSTER_XLA_PRECISION", precision, 1);
    else
        unsetenv("MUSTER_XLA_PRECISION");
    mu_init(.cpu_devices = 1);
    mu_spec input = {.dtype = MU_F32, .shape = MU_SHAPE(3, 3)}, specs[4];
    mu_graph *graph = mu__graph_new("product");
    const mu_edge x = {.node = mu__graph_input(graph, &input, "x")};
    const mu_matmul_attrs attrs = {.transpose_b = true};
    const mu_edge y = {.node = mu__graph_node(graph, &mu_op_matmul, &attrs, 2, (mu_edge[]){x, x}, 0, NULL)};
    mu_arena arena = {0};
    mu_pjrt_parts parts;
    mu_pjrt_text text;
    mu_pjrt_faults faults = {0};
    assert_int_equal(MU_PUSH(&graph->outputs, y), MU_OK);
    assert_int_equal(mu__pjrt_parts_of(graph, false, &arena, &parts), MU_OK);
    assert_int_equal(mu__pjrt_emit(graph, &input, &parts, 1, 1, &text, specs, &faults), MU_OK);
    const bool has = strstr(text.items, words) != NULL;
    mu__free(text.items);
    mu__arena_free(&arena);
    mu_release(graph);
    return has;
}

static void test_precision_is_a_setting(void **state)
{
    (void)state;
    assert_true(product_has(NULL, "<precision DEFAULT>"));
    assert_true(product_has("high", "<precision HIGH>"));
    assert_true(product_has("highest", "<precision HIGHEST>"));
}

// Whichever allocation fails while a plan is made, the error says so and nothing remains of the plan.
static void test_plans_without_memory(void **state)
{
    (void)state;
    mu_spec input;
    mu_graph *graph = small_graph(&input);
    mu_device *device = mu__device_by_name(mu__runtime(), "XLA_CPU:0");
    mu_plan *plan = NULL;
    int failures = 0;
    for (; !plan && failures < 1000; failures++) {
        mu__alloc_fail_at(failures + 1);
        plan = device->engine->compile(device, graph, &input, 1);
        mu__alloc_fail_at(0);
        if (!plan)
            assert_taken(MU_RESOURCE_EXHAUSTED, "");
    }
    assert_true(failures > 2); // programs are made when a run first needs them
    assert_non_null(plan);
    device->engine->free(plan);
    mu_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_llvms_options_are_tried),
        cmocka_unit_test(test_unknown_plugins_are_named),
        cmocka_unit_test(test_files_that_are_no_plugins),
        cmocka_unit_test(test_wrong_options_are_refused),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_devices_of_a_type),
        cmocka_unit_test(test_one_table_per_plugin),
        cmocka_unit_test(test_missing_functions_are_refused),
        cmocka_unit_test(test_rows_without_lowering_are_named),
        cmocka_unit_test(test_text_of_a_program),
        cmocka_unit_test(test_plans_without_memory),
        cmocka_unit_test(test_precision_is_a_setting),
    };
    if (plugin_missing())
        return SKIPPED;
    mu_init(.cpu_devices = 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
