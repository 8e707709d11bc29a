// The options of a compilation: a serialised CompileOptionsProto.
//
// The plugin reads absent numbers as 0 and may abort the process for them, so that all are written: device_ordinal as
// unset (-1), the numbers of replicas and partitions, and the assignment of both to devices, or that the program is
// portable. Fields have the numbers of XLA's compile_options.proto and xla_data.proto.
#include "engine/pjrt/pjrt_plan.h"

enum { VARINT = 0, MESSAGE = 2 }; // wire types

static const char *const names[MU_PJRT_SWITCHES] = {"xla_cpu_use_xnnpack", "xla_cpu_enable_fast_min_max",
                                                    "xla_cpu_enable_concurrency_optimized_scheduler"};

typedef struct bytes {
    char *at;
    size_t n;
} bytes;

static void put(bytes *to, char byte) { to->at[to->n++] = byte; }

static void put_varint(bytes *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put(to, (char)(value | 0x80));
    put(to, (char)value);
}

static void put_number(bytes *to, int field, int64_t value)
{
    put_varint(to, (uint64_t)(field << 3 | VARINT));
    put_varint(to, (uint64_t)value);
}

static void put_message(bytes *to, int field, const bytes *message)
{
    put_varint(to, (uint64_t)(field << 3 | MESSAGE));
    put_varint(to, message->n);
    memcpy(to->at + to->n, message->at, message->n);
    to->n += message->n;
}

// DeviceAssignmentProto: replica_count, computation_count (the partitions), and for each partition the devices of all
// replicas. It is a message of the options, field 9.
static void put_assignment(bytes *to, int n, int partitions, const int64_t *ids, char *const scratch[3])
{
    bytes assignment = {.at = scratch[0]};
    put_number(&assignment, 1, n);
    put_number(&assignment, 2, partitions);
    for (int p = 0; p < partitions; p++) {
        bytes devices = {.at = scratch[1]}, computation = {.at = scratch[2]};
        for (int i = 0; i < n; i++)
            put_varint(&devices, (uint64_t)ids[i * partitions + p]);
        put_message(&computation, 1, &devices);
        put_message(&assignment, 3, &computation);
    }
    put_message(to, 9, &assignment);
}

// An entry of the map env_option_overrides, field 7: the name of a field of DebugOptions, and an OptionOverrideProto
// whose bool_field is false.
static void put_off(bytes *to, const char *name)
{
    char space[2][64];
    bytes value = {.at = space[0]}, entry = {.at = space[1]};
    put_number(&value, 2, 0);
    put_message(&entry, 1, &(bytes){.at = (char *)name, .n = strlen(name)});
    put_message(&entry, 2, &value);
    put_message(to, 7, &entry);
}

unsigned mu__pjrt_switches(const char *plugin, unsigned wanted)
{
    unsigned open = 0;
    for (int i = 0; i < MU_PJRT_SWITCHES; i++)
        if (wanted >> i & 1 && !mu__pjrt_flags_have(names[i]) && mu__pjrt_plugin_has(plugin, names[i]))
            open |= 1u << i;
    return open;
}

size_t mu__pjrt_compile_options(int n, int partitions, const int64_t *ids, unsigned off,
                                char out[MU_PJRT_OPTIONS_BYTES])
{
    char space[4][MU_PJRT_OPTIONS_BYTES];
    bytes all = {.at = out}, build = {.at = space[0]};
    put_number(&build, 1, -1);
    put_number(&build, 4, n);
    put_number(&build, 5, partitions);
    if (partitions > 1)
        put_number(&build, 6, 1); // use_spmd_partitioning
    if (ids)
        put_assignment(&build, n, partitions, ids, (char *const[]){space[1], space[2], space[3]});
    put_message(&all, 3, &build);
    if (!ids)
        put_number(&all, 4, 1);
    for (int i = 0; i < MU_PJRT_SWITCHES; i++)
        if (off >> i & 1)
            put_off(&all, names[i]);
    return all.n;
}
