// What compiling says when it goes wrong: a deadline, XLA's own words with the user's op and variable in front, and a
// program that does not fit into the device's memory, which is refused before it is launched.
#include "changed_table.h"
#include "skip.h"

#include "engine/pjrt/plan.h"

#include <muster.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct {
    const pj_api *own;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, broken;          // compilations wait; programs lose an operation's name
    int waiting, launched, destroyed, closed;
    int64_t memory;             // of each device; 0: what the plugin says
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

// An operation that no dialect has, of the same length.
static void break_text(char *text)
{
    char *multiply = strstr(text, "stablehlo.multiply");
    assert_non_null(multiply);
    memcpy(multiply, "stablehlo.multiplx", strlen("stablehlo.multiply"));
}

static pj_error *compile(void *args)
{
    wait_while_held();
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
    static const changed_function changed[] = {{PJ_CLIENT_COMPILE, compile}, {PJ_LOADED_EXECUTE, execute},
                                               {PJ_LOADED_DESTROY, destroy}, {PJ_CLIENT_DESTROY, close_client},
                                               {PJ_DEVICE_MEMORY_STATS, memory_stats}};
    mu_init(.cpu_devices = 1, .seed = 3);
    mu_pjrt_client *client = mu__device_by_name(mu__runtime(), "XLA_CPU:0")->engine_client;
    plugin.held = plugin.broken = false;
    plugin.launched = plugin.destroyed = plugin.closed = 0;
    plugin.memory = 0;
    *state = change_table(client, MU_COUNT(changed), changed, &plugin.own);
    return 0;
}

// A compilation that was given up may be the last to let go of the client.
static int end(void **state)
{
    mu_exit(true);
    wait_for(&plugin.closed);
    free(*state);
    unsetenv("MUSTER_COMPILE_TIMEOUT");
    return 0;
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

// The compiler is held until the caller has given up; what it then makes is dropped.
static void test_compiling_has_a_deadline(void **state)
{
    (void)state;
    static const char *const words[] = {"scale", "XLA_CPU's compiler has not finished after 0 s",
                                        "MUSTER_COMPILE_TIMEOUT", "MUSTER_DUMP_STABLEHLO"};
    mu_function *function;
    plugin.held = true;
    assert_null(run(&function));
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
    plugin.broken = false;  // the function can be tried again
    assert_non_null(run(&function));
}

// The need is what the compiled program itself says; what the device has is the test's.
static void test_memory_is_checked_before_the_launch(void **state)
{
    (void)state;
    static const char *const words[] = {"needs ", " MB of memory on each device, and XLA_CPU:0 has 0.0 MB",
                                        "mu_recompute_grad"};
    static const char *const largest[] = {"the largest values of 'scale' are 0.4 MB: float32[300, 300] of ",
                                          "(", "test_compile.c:"};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_compiling_has_a_deadline, start_in_a_hurry, end),
        cmocka_unit_test_setup_teardown(test_errors_of_the_compiler_name_the_op, start, end),
        cmocka_unit_test_setup_teardown(test_memory_is_checked_before_the_launch, start, end),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
