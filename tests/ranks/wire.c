// wire NAMESPACE=DEVICE,MTU…: a network in user space between network namespaces, for kernels that cannot delay or lose
// packets themselves. Each namespace gets a TUN device; a packet whose destination ends in 10 + N goes to the N-th.
//
// Lines on standard input set what the way out of a host, or the way in, does to packets: "out|in HOST WORD VALUE" with
// delay (ms), loss (%), reorder (% of packets that come 3 ms late), rate (kbit/s), cut (0, 1); earlier settings of
// other words are kept. Packets are chosen by random numbers with a fixed seed. Prints "ready"; ends at the end of its
// input. Does not look at what the packets carry.
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST = 8,
    MOST_PACKETS = 20000,
    LONGEST = 65536,
    QUEUE = 10000,
    AT_ONCE = 64, // packets of a host, before the others' turn
    FIRST_HOST = 10,
    LATE_NS = 3000000,
    QUEUE_NS = 300000000
};

typedef struct way {
    double delay_ms, loss, reorder, rate_kbit;
    bool cut;
    int64_t free_ns; // when the line has sent all that it has
} way;

typedef struct packet {
    int64_t due_ns, number;
    int to;
    size_t bytes;
    uint8_t *data;
} packet;

typedef struct wire {
    int n, fds[MOST];
    way out[MOST], in[MOST];
    packet heap[MOST_PACKETS];
    int waiting;
    int64_t numbered;
    uint64_t dice;
} wire;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool chance(wire *w, double percent)
{
    w->dice = w->dice * 6364136223846793005u + 1442695040888963407u;
    return (double)(w->dice >> 33) / (double)(1u << 31) * 100 < percent;
}

// ---- Packets that wait, the next one first ------------------------------------------------------

static bool before(const packet *a, const packet *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void swap(packet *a, packet *b)
{
    const packet kept = *a;
    *a = *b;
    *b = kept;
}

static void push(wire *w, const packet *p)
{
    int at = w->waiting++;
    w->heap[at] = *p;
    for (; at > 0 && before(&w->heap[at], &w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&w->heap[at], &w->heap[(at - 1) / 2]);
}

static packet pop(wire *w)
{
    const packet first = w->heap[0];
    w->heap[0] = w->heap[--w->waiting];
    for (int at = 0, least;; at = least) {
        least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < w->waiting; child++)
            if (before(&w->heap[child], &w->heap[least]))
                least = child;
        if (least == at)
            return first;
        swap(&w->heap[at], &w->heap[least]);
    }
}

// ---- What a way does ----------------------------------------------------------------------------

// Returns when a packet that reaches this way at time `at` leaves it; -1: never. If more packets are waiting than can
// be sent within some time, new ones are dropped, as by a switch.
static int64_t pass(wire *w, way *by, size_t bytes, int64_t at)
{
    if (by->cut || chance(w, by->loss))
        return -1;
    if (by->rate_kbit > 0) {
        const int64_t begin = by->free_ns > at ? by->free_ns : at;
        if (begin - at > QUEUE_NS)
            return -1;
        by->free_ns = at = begin + (int64_t)((double)bytes * 8e6 / by->rate_kbit);
    }
    return at + (int64_t)(by->delay_ms * 1e6) + (chance(w, by->reorder) ? LATE_NS : 0);
}

static int destination(const wire *w, const uint8_t *data, size_t bytes)
{
    const bool v4 = bytes >= 20 && data[0] >> 4 == 4, v6 = bytes >= 40 && data[0] >> 4 == 6;
    const int last = v4 ? data[19] : v6 && data[24] != 0xff ? data[39] : 0;
    return last >= FIRST_HOST && last < FIRST_HOST + w->n ? last - FIRST_HOST : -1;
}

static void take(wire *w, int from)
{
    static uint8_t data[LONGEST];
    for (int i = 0; i < AT_ONCE; i++) {
        const ssize_t bytes = read(w->fds[from], data, sizeof data);
        if (bytes <= 0)
            return;
        const int to = destination(w, data, (size_t)bytes);
        if (to < 0 || to == from || w->waiting == MOST_PACKETS)
            continue;
        packet p = {.number = w->numbered++, .to = to, .bytes = (size_t)bytes};
        p.due_ns = pass(w, &w->out[from], p.bytes, now_ns());
        p.due_ns = p.due_ns < 0 ? -1 : pass(w, &w->in[to], p.bytes, p.due_ns);
        p.data = p.due_ns < 0 ? NULL : malloc(p.bytes);
        if (p.data == NULL)
            continue;
        memcpy(p.data, data, p.bytes);
        push(w, &p);
    }
}

// Packets on their way are lost when a cable is cut.
static void deliver(wire *w)
{
    while (w->waiting > 0 && w->heap[0].due_ns <= now_ns()) {
        packet p = pop(w);
        if (!w->in[p.to].cut && write(w->fds[p.to], p.data, p.bytes) < 0 && errno != EAGAIN)
            fprintf(stderr, "wire: a packet of %zu bytes is not taken: %s\n", p.bytes, strerror(errno));
        free(p.data);
    }
}

// ---- Orders -------------------------------------------------------------------------------------

static void obey(wire *w, const char *line)
{
    char side[8], word[16];
    int host;
    double value;
    if (sscanf(line, "%7s %d %15s %lf", side, &host, word, &value) != 4 || host < 0 || host >= w->n) {
        fprintf(stderr, "wire: not understood: %s\n", line);
        return;
    }
    way *by = strcmp(side, "out") == 0 ? &w->out[host] : &w->in[host];
    if (strcmp(word, "delay") == 0)
        by->delay_ms = value;
    else if (strcmp(word, "loss") == 0)
        by->loss = value;
    else if (strcmp(word, "reorder") == 0)
        by->reorder = value;
    else if (strcmp(word, "rate") == 0)
        by->rate_kbit = value;
    else if (strcmp(word, "cut") == 0)
        by->cut = value != 0;
}

// Returns false at the end of the input.
static bool read_orders(wire *w)
{
    static char text[4096];
    static size_t have;
    const ssize_t got = read(STDIN_FILENO, text + have, sizeof text - 1 - have);
    if (got <= 0)
        return false;
    have += (size_t)got;
    text[have] = '\0';
    char *line = text;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        obey(w, line);
    }
    have = strlen(line);
    memmove(text, line, have);
    puts("done");
    fflush(stdout);
    return have < sizeof text - 1;
}

// ---- Devices ------------------------------------------------------------------------------------

static int open_device(const char *argument)
{
    char name[64], device[IFNAMSIZ], path[128];
    unsigned mtu;
    if (sscanf(argument, "%63[^=]=%15[^,],%u", name, device, &mtu) != 3)
        return -1;
    snprintf(path, sizeof path, "/run/netns/%s", name);
    const int there = open(path, O_RDONLY | O_CLOEXEC);
    if (there < 0 || setns(there, CLONE_NEWNET) != 0)
        return -1;
    close(there);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && control >= 0 && ioctl(fd, TUNSETIFF, &request) == 0;
    request.ifr_mtu = (int)mtu;
    good = good && ioctl(control, SIOCSIFMTU, &request) == 0;
    request.ifr_qlen = QUEUE; // nothing is to be lost on the way into the wire
    good = good && ioctl(control, SIOCSIFTXQLEN, &request) == 0;
    if (control >= 0)
        close(control);
    return good ? fd : -1;
}

static bool turn(wire *w)
{
    struct pollfd fds[MOST + 1] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    for (int i = 0; i < w->n; i++)
        fds[i + 1] = (struct pollfd){.fd = w->fds[i], .events = POLLIN};
    const int64_t left = w->waiting > 0 ? w->heap[0].due_ns - now_ns() : 1000000000;
    const struct timespec most = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    ppoll(fds, (nfds_t)w->n + 1,
          &(struct timespec){.tv_sec = left > 0 ? most.tv_sec : 0, .tv_nsec = left > 0 ? most.tv_nsec : 0}, NULL);
    deliver(w);
    for (int i = 0; i < w->n; i++)
        if (fds[i + 1].revents != 0)
            take(w, i);
    return fds[0].revents == 0 || read_orders(w);
}

int main(int argc, char **argv)
{
    wire *w = calloc(1, sizeof *w);
    if (w == NULL || argc < 2 || argc - 1 > MOST)
        return 64;
    w->dice = 20261121;
    for (; w->n < argc - 1; w->n++) {
        w->fds[w->n] = open_device(argv[w->n + 1]);
        if (w->fds[w->n] < 0) {
            fprintf(stderr, "wire: no device %s: %s\n", argv[w->n + 1], strerror(errno));
            return 71;
        }
    }
    puts("ready");
    fflush(stdout);
    while (turn(w))
        ;
    free(w);
    return 0;
}
