// The options of a compilation: a serialised CompileOptionsProto.
//
// The plugin reads absent numbers as 0 and may abort the process for them, so that all are written: device_ordinal as
// unset (-1), the numbers of replicas and partitions, and the assignment of replicas to devices, or that the program is
// portable. Fields have the numbers of XLA's compile_options.proto and xla_data.proto.
#include "engine/pjrt/plan.h"

enum { VARINT = 0, MESSAGE = 2 };  // wire types

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

// DeviceAssignmentProto: replica_count, computation_count, and the device of each replica in the only computation.
static void put_assignment(bytes *to, int n, const int64_t *ids, char *scratch)
{
    bytes devices = {.at = scratch}, computation = {.at = scratch + MU_PJRT_OPTIONS_BYTES};
    for (int i = 0; i < n; i++)
        put_varint(&devices, (uint64_t)ids[i]);
    put_message(&computation, 1, &devices);
    put_number(to, 1, n);
    put_number(to, 2, 1);
    put_message(to, 3, &computation);
}

size_t mu__pjrt_compile_options(int n, const int64_t *ids, char out[MU_PJRT_OPTIONS_BYTES])
{
    char space[4][MU_PJRT_OPTIONS_BYTES];
    bytes all = {.at = out}, build = {.at = space[0]}, assignment = {.at = space[1]};
    put_number(&build, 1, -1);
    put_number(&build, 4, n);
    put_number(&build, 5, 1);
    if (ids) {
        put_assignment(&assignment, n, ids, space[2]);
        put_message(&build, 9, &assignment);
    }
    put_message(&all, 3, &build);
    if (!ids)
        put_number(&all, 4, 1);
    return all.n;
}
