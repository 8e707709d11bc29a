// What the tests of network modules share: messages of awkward sizes go through streams in both directions, and the
// receiver asks for other pieces than those that were sent.
#ifndef MU_TESTS_NETWORK_TEST_H
#define MU_TESTS_NETWORK_TEST_H

#include "comm/comm.h"
#include "mesh_test.h"

#include <pthread.h>
#include <sched.h>

static const size_t message_sizes[] = {1, 7, 8192, 8193, 40, 1 << 20, 3, 300001};
enum { MESSAGES = sizeof message_sizes / sizeof *message_sizes };

static inline unsigned char byte_of(size_t at, int rank)
{
    return (unsigned char)(at * 2654435761u >> 13 ^ (size_t)rank * 91);
}

typedef struct traffic {
    mu_stream *stream;
    size_t begin, left; // position of the bytes on their way within all bytes of one direction
    int turn;
    unsigned char *data;
} traffic;

static inline size_t whole_traffic(void)
{
    size_t all = 0;
    for (int i = 0; i < MESSAGES; i++)
        all += message_sizes[i];
    return all;
}

// Sends the messages one after the other and sets `over` after the last. Returns false if the stream failed.
static inline bool send_some(traffic *t, bool *over)
{
    size_t moved = 0;
    *over = t->turn == MESSAGES;
    if (*over)
        return true;
    if (t->left == 0)
        t->left = message_sizes[t->turn];
    if (mu__stream_send(t->stream, t->data + t->begin, t->left, &moved) != MU_OK)
        return false;
    t->begin += moved;
    t->left -= moved;
    t->turn += t->left == 0;
    return true;
}

// Asks for pieces of 100,000 bytes, whatever was sent.
static inline bool take_some(traffic *t, size_t all, bool *over)
{
    size_t moved = 0;
    *over = t->begin == all;
    if (*over)
        return true;
    if (mu__stream_recv(t->stream, t->data + t->begin, MU_MIN(all - t->begin, (size_t)100000), &moved) != MU_OK)
        return false;
    t->begin += moved;
    return true;
}

// Exchanges the messages with a peer, and checks each byte. Returns 0 if all went well.
static inline int exchange_messages(mu_stream *stream, int rank, int peer)
{
    const size_t all = whole_traffic();
    traffic out = {.stream = stream, .data = malloc(all)}, in = {.stream = stream, .data = malloc(all)};
    for (size_t i = 0; i < all; i++)
        out.data[i] = byte_of(i, rank);
    const double deadline = seconds_now() + 60;
    for (bool sent = false, taken = false; !sent || !taken;) {
        CHECK(send_some(&out, &sent) && take_some(&in, all, &taken));
        CHECK(seconds_now() < deadline);
        sched_yield();
    }
    for (size_t i = 0; i < all; i++)
        CHECK(in.data[i] == byte_of(i, peer));
    free(out.data);
    free(in.data);
    return 0;
}

// A replica of each process takes part in a sum over the network. It runs on a thread of its own while this one serves
// the network.
typedef struct addition {
    mu_collective *collective;
    int64_t n;
    atomic_int result; // -1: not yet
} addition;

static inline int add_numbers(const addition *a)
{
    double *data = malloc(sizeof *data * (size_t)a->n);
    for (int64_t i = 0; i < a->n; i++)
        data[i] = a->collective->rank + 1;
    const mu_status status =
        a->collective->all_reduce(a->collective, 1, "numbers", MU_REDUCTION_SUM, MU_F64, data, a->n);
    CHECK(status == MU_OK);
    for (int64_t i = 0; i < a->n; i++)
        CHECK(data[i] == test_ranks * (test_ranks + 1) / 2);
    free(data);
    return 0;
}

static inline void *add_on_thread(void *arg)
{
    addition *a = arg;
    atomic_store(&a->result, add_numbers(a));
    return NULL;
}

// MUSTER_SHARED_MEMORY must be 0: processes of one host would not use the network.
static inline int group_adds(mu_mesh *mesh, mu_communication implementation, const char *path)
{
    const mu_communication_options options = {.implementation = implementation};
    mu_group *group = mu__group_join(mesh, 1, "additions", &options);
    CHECK(group && strcmp(mu__group_path(group), path) == 0);
    static const int64_t counts[] = {1, 1000, 300001};
    for (size_t i = 0; i < MU_COUNT(counts); i++) {
        addition a = {.collective = mu__group_member(group, 0), .n = counts[i], .result = -1};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, add_on_thread, &a) == 0);
        while (atomic_load(&a.result) < 0) {
            mu__group_serve(group);
            sched_yield();
        }
        pthread_join(thread, NULL);
        CHECK(a.result == 0);
    }
    mu_release(group);
    return 0;
}

#endif
