// Tests of the timeline: off by default, valid JSON with spans and names, the ring buffer, a file that cannot be
// written.
#include "base_test.h"

#include <jansson.h>
#include <sys/wait.h>

static const char *folder;

static int start(void **state)
{
    (void)state;
    folder = temporary_folder();
    return 0;
}

static int end(void **state)
{
    (void)state;
    remove_folder(folder);
    unsetenv("MUSTER_TRACE");
    return 0;
}

static void set_trace(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    setenv("MUSTER_TRACE", path, 1);
}

static json_t *load(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static void test_off(void **state)
{
    (void)state;
    mu_init();
    assert_false(mu__trace_on());
    mu__span("op", "nothing", 0, 1, 2);
    assert_int_equal(mu__trace_write(), MU_OK);
    mu_exit(true);
}

static void test_spans(void **state)
{
    (void)state;
    set_trace("trace.json");
    mu_init();
    assert_true(mu__trace_on());
    mu__span("op", "conv \"2d\"\\\n", 1, 1234567, 2000000);
    mu__span("step", "train", -1, 0, 3000000);
    assert_int_equal(mu_exit(true), 0);
    assert_false(mu__trace_on());
    json_t *root = load("trace.json"), *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), 4);
    json_t *name = json_array_get(events, 0), *span = json_array_get(events, 1);
    assert_string_equal(json_string_value(json_object_get(name, "ph")), "M");
    assert_string_equal(json_string_value(json_object_get(json_object_get(name, "args"), "name")), "replica 1");
    assert_string_equal(json_string_value(json_object_get(span, "name")), "conv \"2d\"\\\n");
    assert_string_equal(json_string_value(json_object_get(span, "ph")), "X");
    assert_int_equal(json_integer_value(json_object_get(span, "tid")), 1);
    assert_true(json_number_value(json_object_get(span, "ts")) == 1234.567);
    assert_true(json_number_value(json_object_get(span, "dur")) == 765.433);
    json_decref(root);
}

static void test_no_spans(void **state)
{
    (void)state;
    set_trace("trace.json");
    mu_init();
    assert_int_equal(mu_exit(true), 0);
    json_t *root = load("trace.json");
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 0);
    json_decref(root);
}

static void overflow_ring(void *arg)
{
    (void)arg;
    for (int i = 0; i < (1 << 20) + 10; i++)
        mu__span("op", "x", 0, i, i + 1);
    assert_int_equal(mu__trace_write(), MU_OK);
}

static void test_ring(void **state)
{
    (void)state;
    char text[500];
    set_trace("trace.json");
    mu_init();
    catch_stderr(overflow_ring, NULL, text, sizeof text);
    assert_non_null(strstr(text, "keeps the last 1048576 of 1048586 spans"));
    catch_stderr(overflow_ring, NULL, text, sizeof text);
    unsetenv("MUSTER_TRACE");
    mu_exit(true);
}

static void test_names_of_processes_and_runtimes(void **state)
{
    (void)state;
    set_trace("trace-%p.json");
    mu_init();
    mu_runtime *second = mu_runtime_new();
    assert_non_null(second);
    mu_exit(true);
    char name[100];
    snprintf(name, sizeof name, "trace-%ld.json", (long)getpid());
    json_decref(load(name));
    snprintf(name, sizeof name, "trace-%ld.json.%d", (long)getpid(), 1);
    json_decref(load(name));
}

// The timeline is also written when the runtime is kept for a thread that does not end. This runs in a child process,
// because the runtime is never freed.
static void test_a_runtime_that_is_kept(void **state)
{
    (void)state;
    set_trace("trace.json");
    const pid_t child = fork();
    if (child == 0) {
        mu_init();
        mu__span("op", "last", 0, 1, 2);
        mu__runtime_keep(mu__runtime());
        _exit(mu_exit(true));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    json_t *root = load("trace.json");
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 2);
    json_decref(root);
}

static void exit_without_folder(void *arg)
{
    (void)arg;
    mu_init();
    assert_int_equal(mu_exit(true), 66);
}

static void test_file_that_cannot_be(void **state)
{
    (void)state;
    char text[500];
    set_trace("none/trace.json");
    catch_stderr(exit_without_folder, NULL, text, sizeof text);
    assert_non_null(strstr(text, "none/trace.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_off, start, end),
        cmocka_unit_test_setup_teardown(test_spans, start, end),
        cmocka_unit_test_setup_teardown(test_no_spans, start, end),
        cmocka_unit_test_setup_teardown(test_ring, start, end),
        cmocka_unit_test_setup_teardown(test_names_of_processes_and_runtimes, start, end),
        cmocka_unit_test_setup_teardown(test_a_runtime_that_is_kept, start, end),
        cmocka_unit_test_setup_teardown(test_file_that_cannot_be, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
