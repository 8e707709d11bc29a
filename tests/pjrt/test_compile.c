// Errors and messages of compilation: a deadline, XLA's own words after the user's op and variable, and a program that
// does not fit into the device's memory, which is refused before it is launched. Also the messages while it lasts, the
// text files that it writes, and how many programs are kept.
#include "changed_table.h"
#include "skip.h"

#include "engine/pjrt/pjrt_plan.h"

#include <muster.h>

#include <setjmp.h>
#include <stdarg.h>
#include <glob.h>
#include <unistd.h>
#include <cmocka.h>

static struct {
    const pj_api *own;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, broken; // compilations wait; programs lose an operation's name
    int waiting, compiled, launched, destroyed, closed;
    int64_t memory; // of each device; 0: as the plugin reports
} plugin = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

// ---- The plugin, changed ------------------------------------------------------------------------

static void wait_while_held(void)
{
    pthread_mutex_lock(&plugin.lock);
    plugin.waiting++;
    pthread_cond_broadcast(&plugin.changed);
    while (plugin.held)
        pthread_cond_wait(&plugin.changed, &plugin.lock);
    plugin.waiting--;
    pthread_mutex_unlock(&plugin.lock);
}

// An operation that exists in no dialect, of the same length.
static void break_text(char *text)
{
    char *multiply = strstr(text, "stablehlo.multiply");
    assert_non_null(multiply);
    memcpy(multiply, "stablehlo.multiplx", strlen("stablehlo.multiply"));
}

static pj_error *compile(void *args)
{
    wait_while_held();
    plugin.compiled++;
    if (plugin.broken)
        break_text(((pj_compile_args *)args)->program->code);
    return plugin.own->functions[PJ_CLIENT_COMPILE](args);
}

static pj_error *execute(void *args)
{
    plugin.launched++;
    return plugin.own->functions[PJ_LOADED_EXECUTE](args);
}

static pj_error *counted(pj_function function, void *args, int *count)
{
    pj_error *error = plugin.own->functions[function](args);
    pthread_mutex_lock(&plugin.lock);
    ++*count;
    pthread_cond_broadcast(&plugin.changed);
    pthread_mutex_unlock(&plugin.lock);
    return error;
}

static pj_error *destroy(void *args) { return counted(PJ_LOADED_DESTROY, args, &plugin.destroyed); }
static pj_error *close_client(void *args) { return counted(PJ_CLIENT_DESTROY, args, &plugin.closed); }

static void wait_for(const int *count)
{
    pthread_mutex_lock(&plugin.lock);
    while (*count == 0)
        pthread_cond_wait(&plugin.changed, &plugin.lock);
    pthread_mutex_unlock(&plugin.lock);
}

static pj_error *memory_stats(void *args)
{
    if (plugin.memory == 0)
        return plugin.own->functions[PJ_DEVICE_MEMORY_STATS](args);
    ((pj_memory_stats_args *)args)->bytes_limit = (pj_stat){plugin.memory, true};
    return NULL;
}

static int start(void **state)
{
    static const changed_function changed[] = {{PJ_CLIENT_COMPILE, compile},
                                               {PJ_LOADED_EXECUTE, execute},
                                               {PJ_LOADED_DESTROY, destroy},
                                               {PJ_CLIENT_DESTROY, close_client},
                                               {PJ_DEVICE_MEMORY_STATS, memory_stats}};
    mu_init(.cpu_devices = 1, .seed = 3);
    mu_pjrt_client *client = mu__device_by_name(mu__runtime(), "XLA_CPU:0")->engine_client;
    plugin.held = plugin.broken = false;
    plugin.compiled = plugin.launched = plugin.destroyed = plugin.closed = 0;
    plugin.memory = 0;
    *state = change_table(client, MU_COUNT(changed), changed, &plugin.own);
    return 0;
}

// A compilation that was given up may be the last one to release the client.
static int end(void **state)
{
    mu_exit(true);
    wait_for(&plugin.closed);
    free(*state);
    unsetenv("MUSTER_COMPILE_TIMEOUT");
    unsetenv("MUSTER_PLAN_CACHE");
    unsetenv("MUSTER_DUMP_STABLEHLO");
    unsetenv("MUSTER_LOG");
    return 0;
}

// ---- What is said -------------------------------------------------------------------------------

// Catches standard error between listen and heard, which returns it.
static struct {
    FILE *file;
    int own;
    char text[16384];
} ear;

static void listen(void)
{
    fflush(stderr);
    assert_non_null(ear.file = tmpfile());
    ear.own = dup(STDERR_FILENO);
    assert_true(dup2(fileno(ear.file), STDERR_FILENO) >= 0);
}

static const char *heard(void)
{
    fflush(stderr);
    dup2(ear.own, STDERR_FILENO);
    close(ear.own);
    rewind(ear.file);
    ear.text[fread(ear.text, 1, sizeof ear.text - 1, ear.file)] = '\0';
    fclose(ear.file);
    return ear.text;
}

// ---- A function ---------------------------------------------------------------------------------

static mu_variable *kernel;

static mu_value *scale(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *scaled = mu_multiply(mu_at(arguments, 0), mu_variable_read(kernel));
    return mu_of(mu_matmul(scaled, scaled));
}

enum { SIDE = 300 };

static mu_value *run(mu_function **function)
{
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    MU_SCOPE(strategy)
        kernel = mu_variable_new(.initial_value = mu_fill(MU_F32, 1, (int64_t[]){SIDE}, 1), .name = "kernel");
    *function = mu_function_new(scale, NULL);
    return mu_run(strategy, *function, mu_list(mu_of(mu_zeros(MU_F32, 2, (int64_t[]){SIDE, SIDE})), MU_END));
}

static void expect_words(const mu_error *error, mu_status code, int n, const char *const *words)
{
    assert_int_equal(error->code, code);
    const char *at = error->message;
    for (int i = 0; i < n; i++) {
        at = at ? strstr(at, words[i]) : NULL;
        if (!at)
            fail_msg("'%s' lacks \"%s\", or has it before what must come first", error->message, words[i]);
    }
}

// ---- Tests --------------------------------------------------------------------------------------

static int start_in_a_hurry(void **state)
{
    setenv("MUSTER_COMPILE_TIMEOUT", "0.05", 1);
    return start(state);
}

// The compiler is delayed until the caller has given up; the program that it then makes is dropped.
static void test_compiling_has_a_deadline(void **state)
{
    (void)state;
    static const char *const words[] = {"scale", "XLA_CPU's compiler has not finished after 0 s",
                                        "MUSTER_COMPILE_TIMEOUT", "MUSTER_DUMP_STABLEHLO"};
    mu_function *function;
    plugin.held = true;
    listen();
    mu_value *result = run(&function);
    const char *said = heard();
    assert_null(result);
    assert_non_null(strstr(said, "compiling 'scale' for XLA_CPU: 0 s so far")); // at the default level of the log
    const mu_error error = mu_error_take();
    expect_words(&error, MU_DEADLINE_EXCEEDED, MU_COUNT(words), words);
    assert_int_equal(plugin.launched, 0);
    wait_for(&plugin.waiting);
    pthread_mutex_lock(&plugin.lock);
    plugin.held = false;
    pthread_cond_broadcast(&plugin.changed);
    pthread_mutex_unlock(&plugin.lock);
    wait_for(&plugin.destroyed);
}

static void test_errors_of_the_compiler_name_the_op(void **state)
{
    (void)state;
    static const char *const words[] = {"op multiply (", "test_compile.c:", "of 'kernel': ", "the plugin says",
                                        "stablehlo.multiplx"};
    mu_function *function;
    plugin.broken = true;
    assert_null(run(&function));
    mu_error error = mu_error_take();
    expect_words(&error, error.code, MU_COUNT(words), words);
    plugin.broken = false; // the function can be tried again
    assert_non_null(run(&function));
}

// Passes over a program that has been read name a line in another way.
static void test_errors_of_passes_name_the_op(void **state)
{
    (void)state;
    static char text[] = "module {\n    // matmul (dense_1, train.c:42)\n    %v2 = 1\n    // tanh (train.c:43)\n}\n";
    static const char *const words[] = {"op matmul (dense_1, train.c:42): ", "%all-to-all"};
    mu__error(MU_INTERNAL, "RET_CHECK failure (hlo_verifier.cc:426) %%all-to-all, metadata={source_file=\"-\" "
                           "source_line=3 source_end_line=3}");
    mu__pjrt_add_error_origin(&(mu_pjrt_text){.items = text, .n = sizeof text - 1});
    const mu_error error = mu_error_take();
    expect_words(&error, MU_INTERNAL, MU_COUNT(words), words);
}

// The memory needed is what the compiled program reports; the memory of the device is set by the test.
static void test_memory_is_checked_before_the_launch(void **state)
{
    (void)state;
    static const char *const words[] = {"needs ", " MB of memory on each device, and XLA_CPU:0 has 0.0 MB",
                                        "mu_recompute_grad"};
    static const char *const largest[] = {"the largest values of 'scale' are 0.4 MB: float32[300, 300] of ", "(",
                                          "test_compile.c:"};
    mu_function *function;
    plugin.memory = 1000;
    assert_null(run(&function));
    mu_error error = mu_error_take();
    expect_words(&error, MU_RESOURCE_EXHAUSTED, MU_COUNT(words), words);
    expect_words(&error, MU_RESOURCE_EXHAUSTED, MU_COUNT(largest), largest);
    assert_int_equal(plugin.launched, 0);
    plugin.memory = (int64_t)1 << 40;
    assert_non_null(run(&function));
    assert_int_equal(plugin.launched, 1);
}

static int start_talking(void **state)
{
    setenv("MUSTER_LOG", "info", 1);
    return start(state);
}

// Must run first: no product may have been lowered before it.
static void test_the_precision_is_said_once(void **state)
{
    (void)state;
    static const char words[] = "products and convolutions on XLA devices have the precision \"";
    mu_function *function;
    listen();
    mu_value *first = run(&function), *second = run(&function);
    const char *said = strstr(heard(), words);
    assert_true(first && second && plugin.compiled == 2);
    assert_non_null(said);
    assert_null(strstr(said + 1, words));
}

static int start_with_two_plans(void **state)
{
    setenv("MUSTER_PLAN_CACHE", "2", 1);
    return start(state);
}

static mu_value *add_up(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_at(arguments, 0), MU_ALL_AXES));
}

static void test_few_programs_are_kept(void **state)
{
    (void)state;
    static const struct {
        int64_t rows;
        int compiled, destroyed;
    } runs[] = {{1, 1, 0}, {2, 2, 0}, {1, 2, 0}, {3, 3, 1}, {1, 3, 1}, {2, 4, 2}, {1, 4, 2}, {3, 5, 3}};
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    mu_function *function = mu_function_new(add_up, NULL);
    for (size_t i = 0; i < MU_COUNT(runs); i++) {
        mu_tensor *x = mu_ones(MU_F32, 2, (int64_t[]){runs[i].rows, 2});
        mu_value *sum = mu_run(strategy, function, mu_list(mu_of(x), MU_END));
        assert_true(sum && mu_scalar(mu_value_tensor(sum)) == (double)runs[i].rows * 2);
        assert_int_equal(plugin.compiled, runs[i].compiled);
        assert_int_equal(plugin.destroyed, runs[i].destroyed); // the one that was not used for longest
    }
}

static char folder[] = P_tmpdir "/muster-dump-XXXXXX";

// Into a folder that is missing, in one that is missing too.
static int start_dumping(void **state)
{
    char inner[sizeof folder + 16];
    if (!mkdtemp(folder))
        return -1;
    snprintf(inner, sizeof inner, "%s/of/programs", folder);
    setenv("MUSTER_DUMP_STABLEHLO", inner, 1);
    return start(state);
}

static void remove_folders(void)
{
    static const char *const inside[] = {"/of/programs", "/of", ""};
    for (size_t i = 0; i < MU_COUNT(inside); i++) {
        char path[sizeof folder + 16];
        snprintf(path, sizeof path, "%s%s", folder, inside[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

static void test_programs_are_dumped(void **state)
{
    (void)state;
    char pattern[64], text[16384] = "";
    glob_t found;
    mu_function *function;
    assert_non_null(run(&function));
    snprintf(pattern, sizeof pattern, "%s/of/programs/scale.%ld.*.mlir", folder, (long)getpid());
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    FILE *file = fopen(found.gl_pathv[0], "r");
    assert_true(file && fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_memory_equal(text, "module @muster {\n  func.func public @main(", 41);
    assert_non_null(strstr(text, "// multiply ("));
    assert_non_null(strstr(text, " of 'kernel'\n"));
    assert_non_null(strstr(text, "\"stablehlo.dot_general\""));
    remove(found.gl_pathv[0]);
    globfree(&found);
    remove_folders();
}

static int start_dumping_nowhere(void **state)
{
    setenv("MUSTER_DUMP_STABLEHLO", "/dev/null/folder", 1);
    return start(state);
}

static void test_a_folder_that_cannot_be_made(void **state)
{
    (void)state;
    mu_function *function;
    listen();
    mu_value *result = run(&function);
    const char *said = heard();
    assert_non_null(result);
    assert_non_null(strstr(said, "the folder '/dev/null/folder' cannot be made: Not a directory"));
}

enum { WIDE = 512, BRANCHES = 8 };

static mu_value *add_branches(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *sum = mu_constant(MU_F32, 0);
    for (int i = 0; i < BRANCHES; i++) {
        mu_tensor *shifted = mu_add(x, mu_constant(MU_F32, i));
        sum = mu_add(sum, mu_reduce_sum(mu_tanh(mu_matmul(shifted, x)), MU_ALL_AXES));
    }
    return mu_of(sum);
}

// What one branch needs is free when the next one begins (decision 147).
static void test_branches_follow_one_another(void **state)
{
    (void)state;
    plugin.memory = (int64_t)(BRANCHES * WIDE * WIDE * sizeof(float));
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    mu_value *x = mu_list(mu_of(mu_ones(MU_F32, 2, (int64_t[]){WIDE, WIDE})), MU_END);
    if (!mu_run(strategy, mu_function_new(add_branches, NULL), x))
        fail_msg("%s", mu_error_message());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_precision_is_said_once, start_talking, end),
        cmocka_unit_test_setup_teardown(test_few_programs_are_kept, start_with_two_plans, end),
        cmocka_unit_test_setup_teardown(test_programs_are_dumped, start_dumping, end),
        cmocka_unit_test_setup_teardown(test_a_folder_that_cannot_be_made, start_dumping_nowhere, end),
        cmocka_unit_test_setup_teardown(test_compiling_has_a_deadline, start_in_a_hurry, end),
        cmocka_unit_test_setup_teardown(test_errors_of_the_compiler_name_the_op, start, end),
        cmocka_unit_test(test_errors_of_passes_name_the_op),
        cmocka_unit_test_setup_teardown(test_memory_is_checked_before_the_launch, start, end),
        cmocka_unit_test_setup_teardown(test_branches_follow_one_another, start, end),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
