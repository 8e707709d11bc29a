// How the processes of joined_plugin pass the arguments of a launch to each other: as files, one from each node to each
// other node, which the receiver removes.
#include "joined_plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MICROSECONDS = 200, LONGEST_PATH = 300 };

void joined_pack(joined_parcel *parcel, const void *data, size_t bytes)
{
    if (parcel->bytes + bytes > parcel->capacity) {
        parcel->capacity = 2 * (parcel->bytes + bytes);
        parcel->data = realloc(parcel->data, parcel->capacity);
        if (!parcel->data)
            abort();
    }
    memcpy(parcel->data + parcel->bytes, data, bytes);
    parcel->bytes += bytes;
}

static void path_of(const joined_world *world, int launch, int from, int to, const char *end, char path[LONGEST_PATH])
{
    snprintf(path, LONGEST_PATH, "%s/%d.%d.%d%s", world->folder, launch, from, to, end);
}

static void fail(const char *what, const char *path)
{
    fprintf(stderr, "joined_plugin: cannot %s %s\n", what, path);
    abort();
}

// A file gets its name once it is complete. A process that has ended has removed the empty folder: this process then
// waits for a file that never comes, as it does for every process that is gone.
void joined_send(const joined_world *world, int launch, const joined_parcel *parcel)
{
    for (int to = 0; to < world->nodes; to++) {
        char part[LONGEST_PATH], whole[LONGEST_PATH];
        if (to == world->node)
            continue;
        path_of(world, launch, world->node, to, ".part", part);
        path_of(world, launch, world->node, to, "", whole);
        FILE *file = fopen(part, "wb");
        if (!file && errno == ENOENT)
            return;
        if (!file || fwrite(parcel->data, 1, parcel->bytes, file) != parcel->bytes || fclose(file) != 0 ||
            rename(part, whole) != 0)
            fail("write", whole);
    }
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

joined_parcel joined_receive(const joined_world *world, int launch, int node)
{
    char path[LONGEST_PATH], block[65536];
    joined_parcel parcel = {0};
    const char *most = getenv("MU_PLUGIN_LATE_SECONDS");
    const double begin = now(), seconds = most ? atof(most) : 20;
    FILE *file;
    size_t n;
    path_of(world, launch, node, world->node, "", path);
    while (!(file = fopen(path, "rb"))) {
        if (now() - begin > seconds) {
            fprintf(stderr, "joined_plugin: process %d of %d is %g s late for launch %d: termination timeout\n", node,
                    world->nodes, seconds, launch);
            abort();
        }
        usleep(POLL_MICROSECONDS);
    }
    while ((n = fread(block, 1, sizeof block, file)) > 0)
        joined_pack(&parcel, block, n);
    fclose(file);
    unlink(path);
    return parcel;
}
