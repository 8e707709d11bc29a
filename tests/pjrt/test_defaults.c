// Devices that nobody names: which plugin provides them, and the effect of a plugin that does not start.
//
// The CPU plugin is called cuda12 or cuda13 here, so that its devices are GPUs; a plugin that can be opened but not
// started takes the place of one that does not fit the machine.
#include "skip.h"

#include "distribute/distribute.h"

#include <muster.h>
#include <muster/tpu_strategy.h>

#include <dlfcn.h>
#include <sys/stat.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FAILING MU_TEST_VERSIONED_PLUGIN

static int *starts; // of the failing plugin

// A fresh runtime with these plugins and 3 CPU devices; preferred: MUSTER_PJRT.
static void begin(const char *plugins, const char *preferred)
{
    mu_exit(true);
    setenv("PJRT_NAMES_AND_LIBRARY_PATHS", plugins, 1);
    if (preferred)
        setenv("MUSTER_PJRT", preferred, 1);
    else
        unsetenv("MUSTER_PJRT");
    mu_init(.cpu_devices = 3);
    *starts = 0;
}

static void expect_error(mu_status code, const char *part)
{
    const mu_error error = mu_error_take();
    if (error.code != code || !strstr(error.message, part))
        fail_msg("got %s: %s\nwanted \"%s\"", mu_status_name(error.code), error.message, part);
}

static void expect_devices(mu_strategy *strategy, const char *kind, int n)
{
    if (!strategy)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_num_replicas_in_sync(strategy), n);
    for (int i = 0; i < n; i++)
        if (!strstr(mu_strategy_device(strategy, i), kind))
            fail_msg("replica %d is on %s, not on a %s", i, mu_strategy_device(strategy, i), kind);
}

enum { GPUS = 4 }; // which the CPU plugin makes when it is not told a number

static void test_all_gpus_are_the_default(void **state)
{
    (void)state;
    begin("cuda13:" MU_TEST_PLUGIN, NULL);
    expect_devices(mu_mirrored_strategy(), "GPU:", GPUS);
    expect_devices(mu_mirrored_strategy(.replicas = 2), "GPU:", 2);
    assert_null(mu_mirrored_strategy(.replicas = GPUS + 1));
    expect_error(MU_INVALID_ARGUMENT, "5 replicas are requested, but there are 4 devices (GPU:0");
    expect_devices(mu_central_storage_strategy(), "GPU:", GPUS);
    expect_devices(mu_central_storage_strategy(.replicas = 1), "GPU:", 1);
    expect_devices(mu_multi_worker_mirrored_strategy(), "GPU:", GPUS);
    assert_int_equal(mu_device_count(), 3); // names decide elsewhere
    expect_devices(mu_one_device_strategy("CPU:1"), "CPU:1", 1);
}

static void test_processors_without_gpus(void **state)
{
    (void)state;
    begin("xla_cpu:" MU_TEST_PLUGIN, NULL);
    expect_devices(mu_mirrored_strategy(), "CPU:", 3);
    assert_null(strstr(mu_strategy_device(mu_mirrored_strategy(), 0), "XLA_CPU"));
    expect_devices(mu_central_storage_strategy(), "CPU:", 1);
    expect_devices(mu_multi_worker_mirrored_strategy(), "CPU:", 3);
    begin("cuda13:" MU_TEST_PLUGIN ",xla_cpu:" MU_TEST_PLUGIN, "xla_cpu");
    expect_devices(mu_mirrored_strategy(), "XLA_CPU:", 3);
    expect_devices(mu_central_storage_strategy(), "XLA_CPU:", 3);
}

// The plugin for another driver version is installed too, and comes first.
static void test_the_first_plugin_that_starts(void **state)
{
    (void)state;
    const char *names[GPUS];
    begin("cuda13:" FAILING ",cuda12:" MU_TEST_PLUGIN, NULL);
    assert_int_equal(mu_list_physical_devices("GPU", names, GPUS), GPUS);
    assert_string_equal(names[0], "GPU:0");
    assert_non_null(mu__device_by_name(mu__runtime(), "GPU:1"));
    expect_devices(mu_mirrored_strategy(), "GPU:", GPUS);
    assert_int_equal(*starts, 1);
    begin("cuda13:" FAILING, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mu_list_physical_devices("GPU", NULL, 0), 0);
    expect_devices(mu_mirrored_strategy(), "CPU:", 3);
    assert_null(mu__device_by_name(mu__runtime(), "GPU:0"));
    expect_error(MU_INVALID_ARGUMENT, "The plugin cuda13 cannot be used: GPU: the plugin says: no");
    assert_int_equal(*starts, 1);
    begin("cuda13:" FAILING, "cuda13"); // named on purpose
    assert_null(mu_mirrored_strategy());
    expect_error(MU_UNIMPLEMENTED, "the plugin says: no");
}

// ---- How sets of devices reduce -----------------------------------------------------------------

static mu_value *all_reduced(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_at(arguments, 0)));
}

static void expect_sum(mu_strategy *strategy, mu_dtype dtype, bool inside)
{
    mu_value *x = mu_list(mu_of(mu_constant(dtype, 3)), MU_END);
    mu_value *sums = strategy ? mu_run(strategy, mu_function_new(all_reduced, NULL), x) : NULL;
    if (!sums)
        fail_msg("%s", mu_error_message());
    const int n = mu_num_replicas_in_sync(strategy);
    for (int r = 0; r < n; r++)
        assert_true(mu_scalar(mu_value_tensor(mu_value_at(mu_local_results(strategy, sums), r))) == 3 * n);
    assert_int_equal(mu__strategy_launches(strategy), inside);
}

// Case core-122: GPUs reduce inside of their program, whatever the type, as NCCL does there; CPUs, and GPUs with a
// reduction that the program names, reduce on the host.
static void test_device_sets_choose_a_reduction(void **state)
{
    (void)state;
    begin("cuda13:" MU_TEST_PLUGIN, NULL);
    static const char *const cpus[] = {"CPU:0", "CPU:1", NULL}, *const gpus[] = {"GPU:0", "GPU:1", NULL};
    expect_sum(mu_mirrored_strategy(.devices = gpus), MU_F32, true);
    expect_sum(mu_mirrored_strategy(.devices = gpus), MU_I32, true);
    expect_sum(mu_mirrored_strategy(.devices = gpus, .cross_device_ops = mu_nccl_all_reduce(1)), MU_F32, true);
    expect_sum(mu_mirrored_strategy(.devices = gpus, .cross_device_ops = mu_reduction_to_one_device()), MU_F32, false);
    expect_sum(mu_mirrored_strategy(.devices = cpus), MU_F32, false);
    expect_sum(mu_mirrored_strategy(.devices = cpus), MU_I32, false);
}

// CPUs and GPUs together, which core-122 also asks for, are refused before anything is made for them.
static void test_devices_of_two_kinds_are_refused(void **state)
{
    (void)state;
    begin("cuda13:" MU_TEST_PLUGIN ",xla_cpu:" MU_TEST_PLUGIN, NULL);
    static const char *const sets[][3] = {{"CPU:0", "GPU:1"}, {"GPU:0", "CPU:1"}, {"GPU:0", "XLA_CPU:0"}};
    for (size_t i = 0; i < MU_COUNT(sets); i++) {
        assert_null(mu_mirrored_strategy(.devices = sets[i]));
        expect_error(MU_INVALID_ARGUMENT, "are devices of two kinds, which cannot share a step");
        assert_null(mu_central_storage_strategy(.compute_devices = sets[i]));
        expect_error(MU_INVALID_ARGUMENT, "mu_central_storage_strategy: '");
    }
    expect_devices(mu_central_storage_strategy(.compute_devices = (const char *[]){"GPU:0", "GPU:1", NULL},
                                               .parameter_device = "CPU:0"),
                   "GPU:", 2);
}

// ---- TPUs ---------------------------------------------------------------------------------------

static void expect_cores(const char *plugins, const char *preferred, const char *core)
{
    begin(plugins, preferred);
    if (!mu_tpu_initialize(NULL))
        fail_msg("%s: %s", plugins, mu_error_message());
    assert_string_equal(mu__tpu_core(mu__runtime(), 0)->name, core);
    assert_non_null(mu_tpu_strategy());
    mu_tpu_shutdown(NULL);
}

static void test_cores_of_a_tpu(void **state)
{
    (void)state;
    expect_cores("xla_cpu:" MU_TEST_PLUGIN ",tpu:" MU_TEST_PLUGIN, NULL, "TPU:0");
    expect_cores("xla_cpu:" MU_TEST_PLUGIN ",tpu:" MU_TEST_PLUGIN, "xla_cpu", "XLA_CPU:0");
    expect_cores("tpu:" FAILING ",xla_cpu:" MU_TEST_PLUGIN, NULL, "XLA_CPU:0");
    assert_int_equal(*starts, 1);
    expect_cores("tpu:" FAILING, NULL, "CPU:0");
    begin("xla_cpu:" MU_TEST_PLUGIN ",tpu:" FAILING, "tpu");
    assert_null(mu_tpu_initialize(NULL));
    expect_error(MU_UNIMPLEMENTED, "the plugin says: no");
}

// A plugin that is only installed comes after those that the environment names.
static void test_installed_plugins_come_last(void **state)
{
    (void)state;
    char *before = strdup(getenv("MUSTER_PJRT_PATH")), folder[] = "/tmp/muster-plugins-XXXXXX", path[100];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tpu", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/tpu/libtpu.so", folder);
    assert_int_equal(symlink(FAILING, path), 0);
    setenv("MUSTER_PJRT_PATH", folder, 1);
    expect_cores("xla_cpu:" MU_TEST_PLUGIN, NULL, "XLA_CPU:0");
    assert_int_equal(*starts, 0);
    expect_cores("", NULL, "CPU:0");
    unlink(path);
    snprintf(path, sizeof path, "%s/tpu", folder);
    rmdir(path);
    rmdir(folder);
    setenv("MUSTER_PJRT_PATH", before, 1);
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_gpus_are_the_default),       cmocka_unit_test(test_processors_without_gpus),
        cmocka_unit_test(test_the_first_plugin_that_starts),   cmocka_unit_test(test_cores_of_a_tpu),
        cmocka_unit_test(test_device_sets_choose_a_reduction), cmocka_unit_test(test_devices_of_two_kinds_are_refused),
        cmocka_unit_test(test_installed_plugins_come_last),
    };
    if (plugin_missing())
        return SKIPPED;
    setenv("MU_PLUGIN_MINOR", "81", 1);
    void *library = dlopen(FAILING, RTLD_NOW);
    starts = library ? dlsym(library, "versioned_plugin_starts") : NULL;
    if (!starts)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
