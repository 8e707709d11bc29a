// Compiles programs for devices that are not there. Prints for each the processor time of the compiler, in seconds, and
// the memory that the program needs on each device.
//
// Usage: compile_for PLUGIN TOPOLOGY REPLICAS[xPARTITIONS] FILE.mlir… The topology is a TPU's (v5e:2x2), or a file
// TARGET.txtpb with XLA's GpuTargetConfigProto of a GPU as text. The programs are compiled with the options that Muster
// compiles with.
#include "topology_api.h"

#include "engine/pjrt/pjrt_plan.h"

#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TEXT = 64 << 20 };

static void stop_unless(mu_status status, const char *what)
{
    if (status == MU_OK)
        return;
    fprintf(stderr, "compile_for: %s: %s\n", what, mu_error_message());
    exit(1);
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(MOST_TEXT);
    *bytes = file && text ? fread(text, 1, MOST_TEXT - 1, file) : 0;
    if (*bytes == 0) {
        fprintf(stderr, "compile_for: %s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    text[*bytes] = '\0';
    return text;
}

static pj_topology *make_topology(const pj_api *api, const char *name, int replicas)
{
    char devices[32];
    size_t bytes = 0;
    const size_t length = strlen(name);
    const bool gpu = length > 6 && strcmp(name + length - 6, ".txtpb") == 0;
    char *target = gpu ? read_file(name, &bytes) : NULL;
    snprintf(devices, sizeof devices, "1x1x%d", replicas);
    const pj_named_value options[] = {
        PJ_ARGS(pj_named_value, .name = "target_config", .name_bytes = 13, .type = PJ_VALUE_TEXT,
                .value = {.text = target}, .value_size = bytes),
        PJ_ARGS(pj_named_value, .name = "topology", .name_bytes = 8, .type = PJ_VALUE_TEXT, .value = {.text = devices},
                .value_size = strlen(devices)),
    };
    pj_topology_create_args args =
        PJ_ARGS(pj_topology_create_args, .name = gpu ? "" : name, .name_bytes = gpu ? 0 : length, .options = options,
                .n_options = gpu ? 2 : 0);
    stop_unless(mu__pjrt_call(api, (pj_function)PJ_TOPOLOGY_CREATE, &args, name), "the topology");
    free(target);
    return args.topology;
}

static void first_ids(const pj_api *api, pj_topology *topology, int replicas, int64_t *ids)
{
    pj_topology_descriptions_args all = PJ_ARGS(pj_topology_descriptions_args, .topology = topology);
    stop_unless(mu__pjrt_call(api, (pj_function)PJ_TOPOLOGY_DESCRIPTIONS, &all, "topology"), "its devices");
    if (all.n < (size_t)replicas) {
        fprintf(stderr, "compile_for: the topology has %zu devices; expected at least %d\n", all.n, replicas);
        exit(1);
    }
    for (int i = 0; i < replicas; i++) {
        pj_description_id_args id = PJ_ARGS(pj_description_id_args, .description = all.descriptions[i]);
        stop_unless(mu__pjrt_call(api, PJ_DEVICE_DESCRIPTION_ID, &id, "topology"), "a device's number");
        ids[i] = id.id;
    }
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void compile(const pj_api *api, const pj_topology *topology, int replicas, int partitions, const int64_t *ids,
                    const char *path)
{
    static const char format[] = "mlir";
    char options[MU_PJRT_OPTIONS_BYTES];
    size_t bytes;
    char *text = read_file(path, &bytes);
    const pj_program program =
        PJ_ARGS(pj_program, .code = text, .code_bytes = bytes, .format = format, .format_bytes = sizeof format - 1);
    pj_compile_for_args args =
        PJ_ARGS(pj_compile_for_args, .topology = topology, .program = &program, .options = options,
                .options_bytes = mu__pjrt_compile_options(replicas, partitions, ids, false, options));
    const double begin = processor_seconds();
    stop_unless(mu__pjrt_call(api, (pj_function)PJ_COMPILE, &args, path), "compiling");
    const double seconds = processor_seconds() - begin;
    pj_program_memory_args need = PJ_ARGS(pj_program_memory_args, .executable = args.executable);
    stop_unless(mu__pjrt_call(api, PJ_EXECUTABLE_MEMORY_STATS, &need, path), "its memory");
    const char *base = strrchr(path, '/');
    printf("%-40s %6.1f s %8.2f MB\n", base ? base + 1 : path, seconds,
           (double)(need.arguments + need.outputs + need.temporaries - need.aliased) / 1e6);
    fflush(stdout);
    free(text);
}

int main(int argc, char **argv)
{
    int64_t ids[MU_PJRT_MOST_REPLICAS];
    const int replicas = argc > 4 ? atoi(argv[3]) : 0;
    const char *by = argc > 4 ? strchr(argv[3], 'x') : NULL;
    const int partitions = by ? atoi(by + 1) : 1, devices = replicas * partitions;
    if (replicas < 1 || partitions < 1 || devices > MU_PJRT_MOST_REPLICAS) {
        fprintf(stderr, "usage: compile_for PLUGIN TOPOLOGY REPLICAS[xPARTITIONS] FILE.mlir...\n");
        return 2;
    }
    mu_init(.cpu_devices = 1);
    const pj_api *api = mu__pjrt_plugin(argv[1]);
    stop_unless(api ? MU_OK : mu_error_code(), argv[1]);
    printf("%s: PJRT %d.%d, %s, %d replica%s of %d logical device%s\n", argv[1], api->version.major, api->version.minor,
           argv[2], replicas, replicas == 1 ? "" : "s", partitions, partitions == 1 ? "" : "s");
    pj_topology *topology = make_topology(api, argv[2], devices);
    first_ids(api, topology, devices, ids);
    for (int i = 4; i < argc; i++)
        compile(api, topology, replicas, partitions, ids, argv[i]);
    fflush(stdout);
    _Exit(0); // plugins without a device do not end well
}
