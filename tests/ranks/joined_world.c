// joined_world: one process of several that run one program on the devices of all, with joined_plugin (tests/pjrt) and
// direct calls of the plugin's functions. Three launches follow each other, each taking the results of the previous one
// before they have been computed.
#include "engine/pjrt/pjrt_plan.h"
#include "pjrt/joined_plugin.h"

#include <muster.h>

#include <dlfcn.h>
#include <unistd.h>

enum { EACH = 2, NUMBERS = 3, LAUNCHES = 3 };

static const char program[] =
    "module @sums {\n"
    "  func.func public @main(%%x: tensor<3xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<3xf32>, tensor<ui32>) {\n"
    "    %%s = \"stablehlo.all_reduce\"(%%x) ({\n"
    "    ^bb0(%%a: tensor<f32>, %%b: tensor<f32>):\n"
    "      %%t = \"stablehlo.add\"(%%a, %%b) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
    "      \"stablehlo.return\"(%%t) : (tensor<f32>) -> ()\n"
    "    }) {replica_groups = dense<[[%s]]> : tensor<1x%dxi64>} : (tensor<3xf32>) -> tensor<3xf32>\n"
    "    %%r = \"stablehlo.replica_id\"() : () -> tensor<ui32>\n"
    "    return %%s, %%r : tensor<3xf32>, tensor<ui32>\n"
    "  }\n"
    "}\n";

static int complain(const char *what)
{
    fprintf(stderr, "joined_world: %s; error: %s\n", what, mu_error_message());
    return 1;
}

static pj_loaded *compile(mu_pjrt_client *client, int n)
{
    char groups[200] = "0", text[2000], options[MU_PJRT_OPTIONS_BYTES];
    int64_t ids[64] = {0};
    for (int i = 1; i < n; i++) {
        ids[i] = i;
        snprintf(groups + strlen(groups), sizeof groups - strlen(groups), ", %d", i);
    }
    snprintf(text, sizeof text, program, groups, n);
    const size_t bytes = mu__pjrt_compile_options(n, 1, ids, false, options);
    pj_loaded *loaded = NULL;
    const mu_pjrt_text code = {.items = text, .n = strlen(text)};
    return mu__pjrt_compile_text(client, "sums", &code, options, bytes, &loaded) == MU_OK ? loaded : NULL;
}

// The first arguments of replica r: r, 10 r, 1.
static int upload(mu_pjrt_client *client, pj_buffer **arguments)
{
    for (int i = 0; i < EACH; i++) {
        const float r = (float)(EACH * client->process + i);
        float values[NUMBERS] = {r, 10 * r, 1};
        const mu_view view = {.dtype = MU_F32, .shape = {.rank = 1, .dims = {NUMBERS}}, .data = values};
        if (mu__pjrt_upload(&client->memory_spaces[i], &view, "argument", &arguments[i]) != MU_OK)
            return complain("there is no argument");
    }
    return 0;
}

static int launch(const mu_pjrt_client *client, pj_loaded *loaded, int id, pj_buffer **arguments, pj_buffer **numbers)
{
    pj_buffer *const *lists[EACH] = {&arguments[0], &arguments[1]};
    pj_buffer *results[EACH][2] = {{NULL}}, **outputs[EACH] = {results[0], results[1]};
    pj_event *complete[EACH] = {NULL};
    pj_execute_options options = PJ_ARGS(pj_execute_options, .launch_id = id);
    pj_execute_args args = PJ_ARGS(pj_execute_args, .loaded = loaded, .options = &options, .arguments = lists,
                                   .n_devices = EACH, .n_arguments = 1, .outputs = outputs, .complete = complete);
    if (mu__pjrt_call(client->api, PJ_LOADED_EXECUTE, &args, "sums") != MU_OK)
        return complain("the launch failed");
    for (int i = 0; i < EACH; i++) {
        mu__pjrt_drop(client, &arguments[i]);
        mu__pjrt_drop(client, &numbers[i]);
        arguments[i] = results[i][0];
        numbers[i] = results[i][1];
        mu__pjrt_destroy(client->api, PJ_EVENT_DESTROY, &PJ_ARGS(pj_event_args, .event = complete[i]));
    }
    return 0;
}

// The sum of all replicas, and after each further launch n times that.
static int check(mu_pjrt_client *client, int n, pj_buffer **sums, pj_buffer **numbers)
{
    const double pairs = n * (n - 1) / 2.0, times = (double)n * n;
    for (int i = 0; i < EACH; i++) {
        float seen[NUMBERS];
        int32_t number;
        const mu_view sum = {.dtype = MU_F32, .shape = {.rank = 1, .dims = {NUMBERS}}, .data = seen};
        if (mu__pjrt_download(client, sums[i], &sum, "sum") != MU_OK ||
            mu__pjrt_download(client, numbers[i], &(mu_view){.dtype = MU_I32, .data = &number}, "number") != MU_OK)
            return complain("a result cannot be read");
        if (seen[0] != pairs * times || seen[1] != 10 * pairs * times || seen[2] != n * times ||
            number != EACH * client->process + i)
            return complain("a result is wrong");
    }
    return 0;
}

static int check_counts(void)
{
    const int wanted[JOINED_COUNTS] = {[JOINED_COMPILED] = 1, [JOINED_LAUNCHED] = LAUNCHES};
    void *library = dlopen(MU_TEST_JOINED_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
    const int *counts = library ? dlsym(library, "joined_plugin_counts") : NULL;
    return counts && memcmp(counts, wanted, sizeof wanted) == 0 ? 0 : complain("the counts are wrong");
}

static int run(mu_pjrt_client *client, int n)
{
    pj_buffer *values[EACH] = {NULL}, *numbers[EACH] = {NULL};
    pj_loaded *loaded = compile(client, n);
    if (!loaded)
        return complain("the program does not compile");
    int failed = upload(client, values);
    for (int i = 0; !failed && i < LAUNCHES; i++)
        failed = launch(client, loaded, i + 1, values, numbers);
    if (!failed)
        failed = check(client, n, values, numbers) || check_counts();
    for (int i = 0; i < EACH; i++) {
        mu__pjrt_drop(client, &values[i]);
        mu__pjrt_drop(client, &numbers[i]);
    }
    mu__pjrt_destroy(client->api, PJ_LOADED_DESTROY, &PJ_ARGS(pj_loaded_args, .loaded = loaded));
    return failed;
}

int main(void)
{
    if (access(MU_TEST_PLUGIN, R_OK) != 0) {
        printf("SKIPPED: %s is missing (pjrt/fetch makes it)\n", MU_TEST_PLUGIN);
        return 0;
    }
    mu_init();
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    if (!strategy)
        return complain("there is no strategy");
    mu_pjrt_client *client = mu__device_at(mu__runtime(), 0)->engine_client;
    int failed = client->n_all == EACH * mu_strategy_worker_count(strategy) && client->n_devices == EACH
                     ? run(client, client->n_all)
                     : complain("the numbers of devices are wrong");
    const int ended = mu_exit(true);
    return failed || ended;
}
