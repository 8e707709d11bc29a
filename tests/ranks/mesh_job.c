// mesh_job RANK SECONDS ADDRESS…: one process of a job that only exchanges a few bytes, over and over, for some
// seconds. Prints "up" when it has joined and "well" at the end, or the error; the exit codes are those of
// docs/exit-codes.md.
#include "comm/mesh/mesh.h"

#include <stdlib.h>
#include <time.h>

enum { MOST = 16 };

static mu_status run(mu_mesh *mesh, double seconds)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    const int64_t end = mu__deadline_ns(seconds);
    for (bool go_on = true; go_on;) {
        const uint8_t own = mu__now_ns() < end;
        mu_blocks blocks;
        MU_TRY(mu__mesh_exchange(mesh, "a turn", &own, 1, &blocks));
        go_on = *(uint8_t *)blocks.data[0] != 0; // rank 0 decides
        mu__blocks_free(&blocks);
        nanosleep(&pause, NULL);
    }
    return MU_OK;
}

int main(int argc, char **argv)
{
    mu_mesh_peer peers[MOST];
    char names[MOST][40], *key = NULL;
    const int ranks = argc - 3;
    if (ranks < 1 || ranks > MOST)
        return 64;
    for (int i = 0; i < ranks; i++) {
        snprintf(names[i], sizeof names[i], "/job:worker/task:%d", i);
        peers[i] = (mu_mesh_peer){.name = names[i], .address = argv[3 + i]};
    }
    if (mu_init() != MU_OK || mu__mesh_key(&key) != MU_OK)
        return mu_exit(false);
    const mu_mesh_options options = {
        .rank = atoi(argv[1]), .ranks = ranks, .peers = peers, .key = key, .join_seconds = 60, .greeting = "mesh_job"};
    mu_mesh *mesh = mu__mesh_join(&options);
    mu__free(key);
    bool good = mesh != NULL;
    if (good) {
        printf("up, %s host with rank 0\n", mu__mesh_same_host(mesh, 0) ? "same" : "another");
        fflush(stdout);
        mu__mesh_doing(mesh, "exchanging", -1, NULL);
        good = run(mesh, atof(argv[2])) == MU_OK;
    }
    mu_release(mesh);
    if (good)
        puts("well");
    return mu_exit(good);
}
