// What the tests of network modules share: messages of awkward sizes through streams, both ways and asked for in
// other pieces than they were sent in.
#ifndef MU_TESTS_NETWORK_TEST_H
#define MU_TESTS_NETWORK_TEST_H

#include "comm/network.h"
#include "mesh_test.h"

#include <sched.h>

static const size_t message_sizes[] = {1, 7, 8192, 8193, 40, 1 << 20, 3, 300001};
enum { MESSAGES = sizeof message_sizes / sizeof *message_sizes };

static inline unsigned char byte_of(size_t at, int rank) { return (unsigned char)(at * 2654435761u >> 13 ^ (size_t)rank * 91); }

typedef struct traffic {
    mu_stream *stream;
    size_t begin, left; // of what is under way, in the whole of what goes one way
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

// Sends the messages one after the other; false: the stream failed. `over` when all have gone.
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

#endif
