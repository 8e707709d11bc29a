// Cases TPU of the parameter-server list: where the cores of replicas lie on a mesh, and TPUStrategy on such cores.
#include "cases.h"

#include <muster/tpu_strategy.h>

// The mesh 2 x 2 x 1 x 2 on one task, devices in row-major order.
static mu_tpu_topology *small_mesh(void)
{
    int at[8][MU_TPU_RANK];
    for (int i = 0; i < 8; i++) {
        const int place[] = {i / 4, i / 2 % 2, 0, i % 2};
        memcpy(at[i], place, sizeof place);
    }
    return mu_tpu_topology_new(.mesh_shape = {2, 2, 1, 2}, .num_tasks = 1, .num_tpu_devices_per_task = 8,
                               .device_coordinates = &at[0][0], .n_device_coordinates = 8 * MU_TPU_RANK);
}

static void expect_cores(int line, mu_tpu_device_assignment *build, int n, const int (*wanted)[MU_TPU_RANK])
{
    const int cores = mu_tpu_device_assignment_num_cores_per_replica(build);
    if (!build || mu_tpu_device_assignment_num_replicas(build) * cores != n) {
        fail_case(line, "no assignment of %d cores: %s", n, mu_error_message());
        return;
    }
    for (int i = 0; i < n; i++) {
        int at[MU_TPU_RANK];
        mu_tpu_device_assignment_coordinates(build, i / cores, i % cores, at);
        if (memcmp(at, wanted[i], sizeof at) != 0)
            fail_case(line, "core %d is at [%d, %d, %d, %d]", i, at[0], at[1], at[2], at[3]);
    }
}
#define EXPECT_CORES(assignment, ...)                                                      \
    expect_cores(__LINE__, assignment, (int)MU_COUNT(((int[][MU_TPU_RANK]){__VA_ARGS__})), \
                 (const int[][MU_TPU_RANK]){__VA_ARGS__})

static void ps_101(void)
{
    EXPECT_CORES(mu_tpu_device_assignment_build(small_mesh(), .num_replicas = 8), {0, 0, 0, 0}, {0, 0, 0, 1},
                 {1, 0, 0, 0}, {1, 0, 0, 1}, {0, 1, 0, 0}, {0, 1, 0, 1}, {1, 1, 0, 0}, {1, 1, 0, 1});
}

static void ps_103(void)
{
    EXPECT_CORES(mu_tpu_device_assignment_build(small_mesh(), .computation_shape = {2, 2, 1, 2}), {0, 0, 0, 0},
                 {0, 0, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1}, {1, 1, 0, 0}, {1, 1, 0, 1}, {0, 1, 0, 0}, {0, 1, 0, 1});
}

static void ps_104(void)
{
    EXPECT_CORES(mu_tpu_device_assignment_build(small_mesh(), .num_replicas = 4), {0, 0, 0, 0}, {0, 0, 0, 1},
                 {1, 0, 0, 0}, {1, 0, 0, 1});
}

// ---- TPUStrategy --------------------------------------------------------------------------------

// A one-replica strategy on one core, from an assignment of that core.
static mu_strategy *on_core(mu_tpu_topology *topology, int core)
{
    const int place[] = {core / 2, 0, 0, core % 2};
    return mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_new(topology, 1, 1, place));
}

static mu_value *one_more(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_add(mu_variable_read(arg), scalar(1)));
}

static bool ends_with(const char *text, const char *end)
{
    return text && strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

// Two strategies on a core each: their devices, and what a function of theirs gives.
static void ps_106(void)
{
    mu_tpu_topology *topology = mu_tpu_initialize(NULL);
    mu_tensor *results[2] = {NULL, NULL};
    for (int core = 0; core < 2; core++) {
        mu_strategy *strategy = on_core(topology, core);
        mu_variable *v = NULL;
        CHECK(mu_strategy_device_count(strategy) == 1);
        CHECK(ends_with(mu_strategy_device(strategy, 0), core == 0 ? "TPU:0" : "TPU:1"));
        MU_SCOPE(strategy)
            v = mu_variable_new(scalar(0), "v", .aggregation = MU_AGGREGATION_MEAN);
        results[core] = mu_value_tensor(mu_run(strategy, mu_function_new(one_more, v), NULL));
    }
    EXPECT(mu_of(mu_add(results[0], results[1])), 2);
    mu_tpu_shutdown(NULL);
}

static mu_value *square(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_value_tensor(arguments);
    return mu_of(mu_multiply(x, x));
}

static void ps_107(void)
{
    mu_tpu_topology *topology = mu_tpu_initialize(NULL);
    const int places[] = {0, 0, 0, 0, 0, 0, 0, 1};
    mu_strategy *two = mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_new(topology, 2, 1, places));
    mu_strategy *one = on_core(topology, 0);
    mu_function *function = mu_function_new(square, NULL);
    mu_value *squares = mu_local_results(two, mu_run(two, function, mu_of(VECTOR(2, 2))));
    CHECK(mu_value_count(squares) == 2);
    EXPECT(mu_run(one, function, mu_value_at(squares, 0)), 16, 16);
    mu_tpu_shutdown(NULL);
}

static void ps_109(void)
{
    const int whole[] = {1, 4}, square_parts[] = {2, 2};
    mu_tpu_topology *topology = mu_tpu_initialize(NULL);
    mu_strategy *strategy = mu_tpu_strategy(.device_assignment = mu_tpu_device_assignment_build(
                                                topology, .computation_shape = {2, 1, 1, 2}));
    CHECK(mu_num_replicas_in_sync(strategy) == 1);
    CHECK(mu_run_callback(strategy, square, NULL, mu_of(scalar(2))) == NULL);
    EXPECT_ERROR(MU_UNIMPLEMENTED);
    mu_tensor *matrix = mu_zeros(MU_F32, 2, (const int64_t[]){4, 6});
    CHECK(mu_split_to_logical_devices(strategy, matrix, 2, whole) == NULL);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(mu_split_to_logical_devices(strategy, mu_zeros(MU_F32, 3, (const int64_t[]){2, 2, 2}), 2, square_parts) ==
          NULL);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(mu_split_to_logical_devices(strategy, matrix, 2, square_parts) == matrix);
    mu_tpu_shutdown(NULL);
}

const one_case tpu_cases[] = {
    {"ps-101", ps_101, NULL},
    {"ps-103", ps_103, NULL},
    {"ps-104", ps_104, NULL},
    {"ps-106", ps_106, NULL},
    {"ps-107", ps_107, NULL},
    {"ps-109", ps_109, NULL},
    {0},
};
