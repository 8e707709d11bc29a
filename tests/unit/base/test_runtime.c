// Tests of mu_init and mu_exit with its exit codes, further runtimes, slots and seeds.
#include "base_test.h"

static int clean(void **state)
{
    (void)state;
    mu_error_take();
    mu_exit(true);
    assert_int_equal(mu__live_objects(NULL), 0);
    return 0;
}

static void test_version(void **state)
{
    (void)state;
    int major, minor, patch;
    assert_int_equal(sscanf(mu_version(), "%d.%d.%d", &major, &minor, &patch), 3);
    assert_int_equal(major, MU_VERSION_MAJOR);
    assert_int_equal(patch, MU_VERSION_PATCH);
}

static void test_init_twice_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(mu_init(.threads = 1), MU_OK);
    assert_int_equal(mu__runtime_threads(mu__runtime()), 1);
    assert_int_equal(mu_init(), MU_FAILED_PRECONDITION);
    assert_taken(MU_FAILED_PRECONDITION, "mu_init");
    assert_int_equal(mu_exit(true), 0);
    assert_int_equal(mu_init(), MU_OK);
    assert_int_equal(mu_exit(false), 1);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    assert_int_equal(mu_init(.threads = -3), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, ".threads is -3");
    assert_int_equal(mu_init(.cpu_devices = 100000), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, ".cpu_devices");
    assert_int_equal(mu_init(.log = "loud"), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "debug");
    assert_null(mu__runtime_present());
}

static void test_default_runtime_comes_by_itself(void **state)
{
    (void)state;
    assert_null(mu__runtime_present());
    mu_runtime *runtime = mu__runtime();
    assert_non_null(runtime);
    assert_ptr_equal(mu__runtime(), runtime);
    assert_true(mu__runtime_threads(runtime) >= 1);
    assert_true(mu__runtime_cpu(runtime, 0) >= 0);
    assert_int_equal(mu__runtime_cpu(runtime, runtime->n_cpus), mu__runtime_cpu(runtime, 0));
}

static void test_null_runtime_is_accepted(void **state)
{
    (void)state;
    assert_int_equal(mu__runtime_threads(NULL), 1);
    assert_int_equal(mu__runtime_cpu(NULL, 3), 0);
    assert_int_equal(mu__runtime_seed(NULL), 0);
    assert_int_equal(mu__runtime_next_seed(NULL), 0);
    assert_null(mu__runtime_slot(NULL, MU_SLOT_ENGINE, NULL, NULL));
}

static void test_runtimes_side_by_side(void **state)
{
    (void)state;
    mu_init();
    mu_runtime *standard = mu__runtime();
    mu_runtime *second = mu_runtime_new(.threads = 1, .seed = 5);
    assert_non_null(second);
    assert_null(mu_runtime_use(second));
    assert_ptr_equal(mu__runtime(), second);
    assert_int_equal(mu__setting_int(MU_SETTING_THREADS), 1);
    assert_ptr_equal(mu_runtime_use(NULL), second);
    assert_ptr_equal(mu__runtime(), standard);
    // One that is freed while it is used leaves the default one.
    mu_runtime_use(second);
    assert_int_equal(mu_exit(true), 0);
    assert_null(mu__runtime_present());
}

static mu_type thing_type = {.name = "thing"};

static void test_using_something_else_is_an_error(void **state)
{
    (void)state;
    void *thing = mu__give(mu__new(&thing_type, sizeof(mu_object)));
    mu_runtime_use(thing);
    assert_taken(MU_INVALID_ARGUMENT, "thing");
}

static char order[100];
static int n_created;

static void end_slot(void *value) { strcat(order, value); }

static void *create_inner(mu_runtime *runtime)
{
    (void)runtime;
    n_created++;
    return "inner ";
}

static void *create_outer(mu_runtime *runtime)
{
    n_created++;
    assert_non_null(mu__runtime_slot(runtime, MU_SLOT_CLUSTER, create_inner, end_slot));
    return "outer ";
}

static void *create_nothing(mu_runtime *runtime)
{
    (void)runtime;
    mu__error(MU_UNAVAILABLE, "cannot");
    return NULL;
}

static void test_slots_end_in_reverse_order(void **state)
{
    (void)state;
    order[0] = '\0';
    n_created = 0;
    mu_init();
    for (int i = 0; i < 3; i++)
        assert_string_equal(mu__runtime_slot(mu__runtime(), MU_SLOT_ENGINE, create_outer, end_slot), "outer ");
    assert_int_equal(n_created, 2);
    assert_null(mu__runtime_slot(mu__runtime(), MU_SLOT_MODEL, create_nothing, end_slot));
    assert_taken(MU_UNAVAILABLE, "cannot");
    mu_exit(true);
    assert_string_equal(order, "outer inner ");
}

static void test_seeds(void **state)
{
    (void)state;
    mu_init(.seed = 42);
    mu_runtime *runtime = mu__runtime();
    assert_int_equal(mu__runtime_seed(runtime), 42);
    const uint64_t first = mu__runtime_next_seed(runtime), second = mu__runtime_next_seed(runtime);
    assert_true(first != second);
    const uint64_t epoch = mu__runtime_seed_epoch(runtime);
    mu_set_seed(42);
    assert_int_equal(mu__runtime_seed_epoch(runtime), epoch + 1);
    assert_true(mu__runtime_next_seed(runtime) == first);
    assert_true(mu__runtime_next_seed(runtime) == second);
    mu_set_seed(43);
    assert_true(mu__runtime_next_seed(runtime) != first);
}

static void test_seed_zero(void **state)
{
    (void)state;
    mu_init(.seed = 0);
    assert_int_equal(mu__runtime_seed(mu__runtime()), 0);
    mu_exit(true);
    mu_init();
    const uint64_t drawn = mu__runtime_seed(mu__runtime());
    mu_exit(true);
    mu_init();
    assert_true(mu__runtime_seed(mu__runtime()) != drawn);
}

struct expected {
    mu_status code;
    int exit_code;
};

static void exit_with_error(void *arg)
{
    const struct expected *expected = arg;
    mu_fail_at(expected->code, "some/where/file.c", 12, "the reason\x1b[2J");
    mu__error_context("while testing");
    assert_int_equal(mu_exit(true), expected->exit_code);
}

static void test_exit_codes(void **state)
{
    (void)state;
    static const struct expected table[] = {
        {MU_INVALID_ARGUMENT, 64},  {MU_DATA_LOSS, 65},       {MU_NOT_FOUND, 66},           {MU_UNAVAILABLE, 69},
        {MU_DEADLINE_EXCEEDED, 69}, {MU_INTERNAL, 70},        {MU_UNKNOWN_ERROR, 70},       {MU_RESOURCE_EXHAUSTED, 74},
        {MU_PERMISSION_DENIED, 77}, {MU_UNAUTHENTICATED, 77}, {MU_FAILED_PRECONDITION, 78}, {MU_UNIMPLEMENTED, 78},
        {MU_CANCELLED, 1},          {MU_ABORTED, 1},          {MU_OUT_OF_RANGE, 1},         {MU_ALREADY_EXISTS, 1},
    };
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        char text[500], wanted[500];
        struct expected expected = table[i];
        catch_stderr(exit_with_error, &expected, text, sizeof text);
        snprintf(wanted, sizeof wanted, "muster: error: the reason?[2J [%s at file.c:12]\n  while testing\n",
                 mu_status_name(expected.code));
        assert_string_equal(text, wanted);
        assert_false(mu__pending());
    }
}

static void record_at_end(void *object)
{
    (void)object;
    mu__error(MU_FAILED_PRECONDITION, "left open");
}

static mu_type forgotten_type = {.name = "forgotten", .destroy = record_at_end};

static void exit_with_forgotten(void *arg)
{
    (void)arg;
    mu_init();
    assert_non_null(mu__give(mu__new(&forgotten_type, sizeof(mu_object))));
    assert_int_equal(mu_exit(true), 78);
}

static void test_errors_while_closing_count(void **state)
{
    (void)state;
    char text[500];
    catch_stderr(exit_with_forgotten, NULL, text, sizeof text);
    assert_non_null(strstr(text, "left open"));
}

static bool init_and_exit(void *arg)
{
    (void)arg;
    const mu_status status = mu_init(.threads = 1);
    mu_error_value error;
    mu__error_move(&error);
    mu_exit(true);
    mu__error_raise(&error);
    return status == MU_OK;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    with_failing_allocations(init_and_exit, NULL);
}

// Files that the library opens never get the numbers of the standard streams, even if those were closed before.
static void test_closed_standard_streams(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        for (int fd = 0; fd <= 2; fd++)
            close(fd);
        _exit(mu_init() == MU_OK && open("/dev/null", O_RDONLY) > 2 && mu_exit(true) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_version, clean),
        cmocka_unit_test_teardown(test_init_twice_is_an_error, clean),
        cmocka_unit_test_teardown(test_bad_arguments, clean),
        cmocka_unit_test_teardown(test_default_runtime_comes_by_itself, clean),
        cmocka_unit_test_teardown(test_null_runtime_is_accepted, clean),
        cmocka_unit_test_teardown(test_runtimes_side_by_side, clean),
        cmocka_unit_test_teardown(test_using_something_else_is_an_error, clean),
        cmocka_unit_test_teardown(test_slots_end_in_reverse_order, clean),
        cmocka_unit_test_teardown(test_seeds, clean),
        cmocka_unit_test_teardown(test_seed_zero, clean),
        cmocka_unit_test_teardown(test_exit_codes, clean),
        cmocka_unit_test_teardown(test_closed_standard_streams, clean),
        cmocka_unit_test_teardown(test_errors_while_closing_count, clean),
        cmocka_unit_test_teardown(test_failing_allocations, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
