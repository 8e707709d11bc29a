// Tests of what MUSTER_LOG=info says about strategies and about the all-reduces of a traced step.
#include "distribute_test.h"
#include "log_text.h"

static int start_info(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = DEVICES, .seed = 7, .log = "info") != MU_OK;
}

static int start_warning(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = DEVICES, .seed = 7, .log = "warning") != MU_OK;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

static void expect_once(void (*fn)(void), const char *line)
{
    char *text = log_of(fn);
    if (count_of(text, line) != 1)
        fail_msg("\"%s\" is not once in: %s", line, text);
    free(text);
}

// Four gradients (two kernels, two biases) of one type; the replicas are threads of one process.
static void train(void)
{
    mu_model *model = NULL;
    MU_SCOPE(mu_mirrored_strategy(.replicas = 2)) {
        model = mu_sequential(mu_dense(3), mu_dense(1));
        mu_compile(model, .optimizer = mu_sgd(), .loss = mu_mean_squared_error_loss());
    }
    mu_tensor *x = mu_tensor_new(MU_F32, 2, (int64_t[]){8, 4}, NULL);
    mu_tensor *y = mu_tensor_new(MU_F32, 2, (int64_t[]){8, 1}, NULL);
    assert_non_null(mu_fit(model, x, y, .batch_size = 4, .epochs = 2, .verbose = MU_VERBOSE_SILENT));
}

static void make_mirrored(void) { assert_non_null(mu_mirrored_strategy(.replicas = 2)); }
static void make_one_device(void) { assert_non_null(mu_one_device_strategy("CPU:1")); }
static void make_central(void) { assert_non_null(mu_central_storage_strategy(.replicas = 2)); }
static void make_workers(void) { assert_non_null(mu_multi_worker_mirrored_strategy()); }
static void make_many(void)
{
    const char *names[DEVICES + 1] = {"CPU:7", "CPU:0"};
    assert_non_null(mu_mirrored_strategy(.devices = names));
}

static void strategies_name_devices_and_communication(void **state)
{
    (void)state;
    expect_once(make_mirrored, "Using MirroredStrategy with devices CPU:0, CPU:1; communication: threads\n");
    expect_once(make_many, "Using MirroredStrategy with devices CPU:7, CPU:0; communication: threads\n");
    expect_once(make_one_device, "Using OneDeviceStrategy with devices CPU:1; communication: none, one replica\n");
    expect_once(make_central,
                "Using CentralStorageStrategy with devices CPU:0, CPU:1, variables on CPU:0; communication: threads\n");
    expect_once(make_workers, "Using MultiWorkerMirroredStrategy with devices CPU:0, CPU:1, CPU:2");
}

static void a_traced_step_names_its_reductions(void **state)
{
    (void)state;
    char *text = log_of(train);
    if (count_of(text, "batch_all_reduce: 4 all-reduces with algorithm = slots, num_packs = 1\n") != 1)
        fail_msg("not one batch of 4 all-reduces in: %s", text);
    free(text);
}

static void nothing_is_said_at_warning(void **state)
{
    (void)state;
    char *text = log_of(train);
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(strategies_name_devices_and_communication, start_info, end_library),
        cmocka_unit_test_setup_teardown(a_traced_step_names_its_reductions, start_info, end_library),
        cmocka_unit_test_setup_teardown(nothing_is_said_at_warning, start_warning, end_library),
    };
    unsetenv("TF_CONFIG");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
