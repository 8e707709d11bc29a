// A stretch of network in a test: a port of the loopback whose connections are forwarded to another one, and which can
// be cut in one direction or both. What is sent into a cut is not lost but late, as with TCP's retransmission: it
// arrives when the cut ends. One thread forwards everything.
#ifndef MU_TESTS_FORWARDER_H
#define MU_TESTS_FORWARDER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_FORWARDED = 64, FORWARD_BYTES = 1 << 16 };

typedef struct forwarded {
    int fds[2]; // 0: of whoever connects, 1: of the target; -1: this entry is free
    struct {
        char bytes[FORWARD_BYTES];
        size_t n, done;
        bool ended; // nothing more comes from this end
    } from[2];
} forwarded;

typedef struct forwarder {
    int listener, port, target;
    atomic_bool cut[2]; // from whoever connects; from the target
    atomic_bool ending;
    pthread_t thread;
    forwarded all[MOST_FORWARDED];
} forwarder;

static inline struct sockaddr_in loopback_port(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline void forward_close(forwarded *f)
{
    for (int i = 0; i < 2; i++) {
        if (f->fds[i] >= 0)
            close(f->fds[i]);
        f->fds[i] = -1;
        f->from[i].n = f->from[i].done = 0;
        f->from[i].ended = false;
    }
}

static inline void forward_accept(forwarder *f)
{
    const struct sockaddr_in to = loopback_port(f->target);
    const int fd = accept(f->listener, NULL, NULL), out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int i = 0;
    while (i < MOST_FORWARDED && f->all[i].fds[0] >= 0)
        i++;
    if (fd < 0 || i == MOST_FORWARDED || connect(out, (const struct sockaddr *)&to, sizeof to) != 0) {
        if (fd >= 0)
            close(fd);
        close(out);
        return;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(out, F_SETFL, O_NONBLOCK);
    f->all[i].fds[0] = fd;
    f->all[i].fds[1] = out;
}

// Moves what it can in one direction; false: the connection has broken.
static inline bool forward_some(forwarded *f, int from)
{
    const int to = 1 - from;
    if (f->from[from].done == f->from[from].n && !f->from[from].ended) {
        const ssize_t got = recv(f->fds[from], f->from[from].bytes, FORWARD_BYTES, 0);
        if (got < 0)
            return errno == EAGAIN;
        f->from[from].n = (size_t)got;
        f->from[from].done = 0;
        f->from[from].ended = got == 0;
        if (got == 0)
            shutdown(f->fds[to], SHUT_WR);
    }
    while (f->from[from].done < f->from[from].n) {
        const ssize_t sent = send(f->fds[to], f->from[from].bytes + f->from[from].done,
                                  f->from[from].n - f->from[from].done, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN;
        f->from[from].done += (size_t)sent;
    }
    return !f->from[0].ended || !f->from[1].ended;
}

// What to wait for at one end of a connection: bytes from it, or room for those that it is to get.
static inline short forward_events(forwarder *f, const forwarded *c, int end)
{
    const int other = 1 - end;
    const bool reads = !atomic_load(&f->cut[end]) && c->from[end].done == c->from[end].n && !c->from[end].ended;
    const bool writes = !atomic_load(&f->cut[other]) && c->from[other].done < c->from[other].n;
    return (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
}

static inline void *forward_main(void *arg)
{
    forwarder *f = arg;
    while (!atomic_load(&f->ending)) {
        struct pollfd fds[1 + 2 * MOST_FORWARDED] = {{.fd = f->listener, .events = POLLIN}};
        for (int i = 0; i < 2 * MOST_FORWARDED; i++) {
            const forwarded *c = &f->all[i / 2];
            const short events = c->fds[0] >= 0 ? forward_events(f, c, i % 2) : 0;
            fds[1 + i] = (struct pollfd){.fd = events != 0 ? c->fds[i % 2] : -1, .events = events};
        }
        poll(fds, 1 + 2 * MOST_FORWARDED, 10);
        for (int i = 0; i < MOST_FORWARDED; i++)
            for (int from = 0; from < 2 && f->all[i].fds[0] >= 0; from++)
                if (!atomic_load(&f->cut[from]) && !forward_some(&f->all[i], from))
                    forward_close(&f->all[i]);
        if (fds[0].revents != 0)
            forward_accept(f);
    }
    for (int i = 0; i < MOST_FORWARDED; i++)
        forward_close(&f->all[i]);
    close(f->listener);
    return NULL;
}

// forwarder_start forwards a port that the system chooses, f->port, to `target`; false: it cannot. `f` is zeroed.
static inline bool forwarder_start(forwarder *f, int target)
{
    struct sockaddr_in own = loopback_port(0);
    socklen_t bytes = sizeof own;
    for (int i = 0; i < MOST_FORWARDED; i++)
        f->all[i].fds[0] = f->all[i].fds[1] = -1;
    f->target = target;
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->listener < 0 || bind(f->listener, (struct sockaddr *)&own, sizeof own) != 0 ||
        listen(f->listener, MOST_FORWARDED) != 0 || getsockname(f->listener, (struct sockaddr *)&own, &bytes) != 0)
        return false;
    f->port = ntohs(own.sin_port);
    return pthread_create(&f->thread, NULL, forward_main, f) == 0;
}

// forwarder_cut stops what whoever connects sends, and what the target sends, or lets it through again.
static inline void forwarder_cut(forwarder *f, bool to_target, bool from_target)
{
    atomic_store(&f->cut[0], to_target);
    atomic_store(&f->cut[1], from_target);
}

static inline void forwarder_end(forwarder *f)
{
    atomic_store(&f->ending, true);
    pthread_join(f->thread, NULL);
}

#endif
