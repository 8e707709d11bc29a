// Cases TPU of the parameter-server list: where the cores of replicas lie on a mesh. Running on them needs TPUStrategy.
#include "cases.h"

#include <muster/tpu.h>

// The mesh 2 x 2 x 1 x 2 on one task, devices in row-major order.
static mu_tpu_topology *small_mesh(void)
{
    int at[8][MU_TPU_RANK];
    for (int i = 0; i < 8; i++) {
        const int place[] = {i / 4, i / 2 % 2, 0, i % 2};
        memcpy(at[i], place, sizeof place);
    }
    return mu_tpu_topology_new(.mesh_shape = {2, 2, 1, 2}, .num_tasks = 1, .num_tpu_devices_per_task = 8,
                               .device_coordinates = &at[0][0]);
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
#define EXPECT_CORES(assignment, ...)                                                           \
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

const one_case tpu_cases[] = {
    {"ps-101", ps_101, NULL},
    {"ps-103", ps_103, NULL},
    {"ps-104", ps_104, NULL},
    {"ps-106", NULL, "needs TPUStrategy"},
    {"ps-107", NULL, "needs TPUStrategy"},
    {"ps-109", NULL, "needs TPUStrategy"},
    {0},
};
