// The world: its clock, its chance, its hosts and names, and the descriptors of its processes.
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>

enum { FIRST_PID = 5000 };
#define SECOND_NS 1000000000

static struct {
    bool print;
    int64_t now_ns;
    uint64_t chance, hash;
    int process, host;
    double least_s, most_s;                     // delays of packets
    int64_t cut_ns[MOST_HOSTS][MOST_HOSTS];     // until when
    int64_t rejects_ns[MOST_HOSTS][MOST_HOSTS]; // likewise
    bool dark[MOST_HOSTS];
    double lookup_s;
    int64_t found_ns;
    int64_t full_ns; // until when disks are full
    descriptor descriptors[MOST_DESCRIPTORS];
    int n_descriptors;
} world;

// ---- Chance and the trace -----------------------------------------------------------------------

// SplitMix64.
static uint64_t draw(void)
{
    uint64_t x = world.chance += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t world_draw(uint64_t below) { return below > 1 ? draw() % below : 0; }

int64_t world_draw_ns(double from_s, double to_s)
{
    return (int64_t)(from_s * 1e9) + (int64_t)world_draw((uint64_t)((to_s - from_s) * 1e9) + 1);
}

bool world_chance(double probability) { return (double)(draw() >> 11) / 9007199254740992.0 < probability; }

// FNV-1a.
void world_fold(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        world.hash = (world.hash ^ at[i]) * UINT64_C(0x100000001b3);
}

void world_note(const char *format, ...)
{
    char text[1400];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    world_fold(&world.now_ns, sizeof world.now_ns);
    world_fold(text, strlen(text));
    if (world.print)
        printf("%12.6f %3d %s\n", (double)(world.now_ns - SECOND_NS) / 1e9, world.process, text);
}

int64_t world_now(void) { return world.now_ns; }
uint64_t world_hash(void) { return world.hash; }
int world_process(void) { return world.process; }
int world_host(void) { return world.host; }

static int64_t now_ns(void) { return world.now_ns; }

// Only a blocking call sleeps, and a task of the simulator makes none.
static void sleep_ns(int64_t ns)
{
    fprintf(stderr, "simulator: a task sleeps for %lld ns; a protocol must not block\n", (long long)ns);
    abort();
}

static bool wait_fd(int fd, short events, int64_t deadline_ns)
{
    (void)fd;
    (void)events;
    sleep_ns(deadline_ns - world.now_ns);
    return false;
}

static bool random_bytes(void *out, size_t bytes)
{
    uint8_t *at = out;
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)draw();
    return true;
}

static uint32_t process(void) { return (uint32_t)(FIRST_PID + world.process); }

static bool memory_domain(char *text, size_t bytes)
{
    snprintf(text, bytes, "host %d", world.host);
    return true;
}

static mu_status read_file(const char *path, size_t limit, void **data, size_t *bytes)
{
    (void)limit;
    *data = NULL;
    *bytes = 0;
    return mu__error(MU_NOT_FOUND, "cannot open %s: the simulated hosts have no files", path);
}

static void port_holder(int port, char *text, size_t bytes) { snprintf(text, bytes, "the process at port %d", port); }

// ---- Hosts and names ----------------------------------------------------------------------------

int64_t world_travel(int from, int to)
{
    if (world.dark[from] || world.dark[to])
        return MU_FOREVER;
    const int64_t arrival = world.now_ns + world_draw_ns(world.least_s, world.most_s);
    if (world.now_ns >= world.cut_ns[from][to] || from == to)
        return arrival;
    const int64_t again = world.cut_ns[from][to] + world_draw_ns(world.least_s, 1);
    return MU_MAX(arrival, again);
}

void world_delays(double least_s, double most_s)
{
    world.least_s = least_s;
    world.most_s = most_s;
}

void world_cut(int from, int to, int64_t until_ns)
{
    world_note("cut from host %d to host %d until %.6f", from, to, (double)(until_ns - SECOND_NS) / 1e9);
    world.cut_ns[from][to] = MU_MAX(world.cut_ns[from][to], until_ns);
}

void world_darken(int host)
{
    world_note("host %d goes dark", host);
    world.dark[host] = true;
}

void world_break(int a, int b)
{
    world_note("the connections between host %d and host %d break", a, b);
    wire_break(a, b, false);
}

void world_reject(int a, int b, int64_t until_ns)
{
    world_cut(a, b, until_ns);
    world_cut(b, a, until_ns);
    world_note("connections of host %d with host %d are reset", b, a);
    wire_break(a, b, true);
    world.rejects_ns[a][b] = world.rejects_ns[b][a] = until_ns;
}

bool world_rejects(int from, int to) { return world.now_ns < world.rejects_ns[from][to]; }

void world_names(double most_s, int64_t found_ns)
{
    world.lookup_s = most_s;
    world.found_ns = found_ns;
}

struct mu_lookup {
    int64_t done_ns;
    mu_endpoints found;
};

// "host3", or an IPv4 address.
static mu_lookup *lookup_start(const char *host, int port)
{
    mu_lookup *lookup = mu__calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return NULL;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const bool numeric = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    if (!numeric)
        v4.sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)atoi(host + strlen("host")));
    lookup->done_ns = numeric ? world.now_ns : world.now_ns + world_draw_ns(0, world.lookup_s);
    if (numeric || lookup->done_ns >= world.found_ns) {
        lookup->found.n = 1;
        lookup->found.items[0].bytes = sizeof v4;
        memcpy(&lookup->found.items[0].address, &v4, sizeof v4);
    }
    return lookup;
}

static bool lookup_done(const mu_lookup *lookup, mu_endpoints *out, const char **reason)
{
    if (world.now_ns < lookup->done_ns)
        return false;
    *out = lookup->found;
    *reason = "name not found";
    return true;
}

static void lookup_drop(mu_lookup *lookup) { mu__free(lookup); }

// ---- Descriptors --------------------------------------------------------------------------------

int world_open(kind what)
{
    int i = 0;
    while (i < world.n_descriptors && world.descriptors[i].kind != KIND_FREE)
        i++;
    if (i == MOST_DESCRIPTORS) {
        errno = EMFILE;
        return -1;
    }
    world.n_descriptors = MU_MAX(world.n_descriptors, i + 1);
    world.descriptors[i] =
        (descriptor){.kind = what, .process = world.process, .host = world.host, .connection = -1, .poller = -1};
    return FIRST_FD + i;
}

int world_descriptors(void) { return world.n_descriptors; }

descriptor *world_at(int fd) { return &world.descriptors[fd - FIRST_FD]; }

static void close_fd(int fd)
{
    descriptor *at = world_at(fd);
    if (at->kind == KIND_FREE) {
        fprintf(stderr, "simulator: descriptor %d is closed twice\n", fd);
        abort();
    }
    wire_close(at);
    *at = (descriptor){.kind = KIND_FREE};
}

void world_kill(int number)
{
    for (int i = 0; i < world.n_descriptors; i++) {
        descriptor *at = &world.descriptors[i];
        if (at->process != number || (at->kind != KIND_STREAM && at->kind != KIND_LISTENER))
            continue;
        at->poller = -1;
        wire_kill(at);
    }
}

void world_fill_disks(int64_t until_ns)
{
    world_note("disks are full until %.6f", (double)(until_ns - SECOND_NS) / 1e9);
    world.full_ns = until_ns;
}

// Files are real ones, in a folder of the run's own.
static ssize_t write_file(int fd, const void *data, size_t bytes)
{
    if (world.now_ns >= world.full_ns)
        return mu__linux.write_file(fd, data, bytes);
    errno = ENOSPC;
    return -1;
}

void world_enter(int number, int host)
{
    world.process = number;
    world.host = host;
}

int world_count_open(int number)
{
    int n = 0;
    for (int i = 0; i < world.n_descriptors; i++)
        n += world.descriptors[i].kind != KIND_FREE && world.descriptors[i].process == number;
    return n;
}

static bool is_ready(const descriptor *at)
{
    switch (at->kind) {
    case KIND_WAKER: return at->awake;
    case KIND_LISTENER: return wire_pending(at);
    case KIND_STREAM:
        return ((at->events & POLLIN) != 0 && wire_readable(at)) || ((at->events & POLLOUT) != 0 && wire_writable(at));
    default: return false;
    }
}

void world_ready(bool *ready, int n)
{
    memset(ready, 0, (size_t)n * sizeof *ready);
    for (int i = 0; i < world.n_descriptors; i++) {
        const descriptor *at = &world.descriptors[i];
        if (at->kind != KIND_FREE && at->poller >= 0 && !ready[at->process] && is_ready(at))
            ready[at->process] = true;
    }
}

void world_ready_pollers(bool ready[MOST_DESCRIPTORS])
{
    memset(ready, 0, (size_t)world.n_descriptors * sizeof *ready);
    for (int i = 0; i < world.n_descriptors; i++) {
        const descriptor *at = &world.descriptors[i];
        if (at->kind != KIND_FREE && at->poller >= FIRST_FD && is_ready(at))
            ready[at->poller - FIRST_FD] = true;
    }
}

static int poller_new(void) { return world_open(KIND_POLLER); }

static bool poller_set(int poller, int fd, short events, uint64_t tag)
{
    descriptor *at = world_at(fd);
    at->poller = poller;
    at->events = events;
    at->tag = tag;
    return true;
}

static void poller_unset(int poller, int fd)
{
    if (world_at(fd)->poller == poller)
        world_at(fd)->poller = -1;
}

// Reports in an order of chance; what does not fit is reported by the next call.
static int poller_wait(int poller, mu_ready *out, int most, int64_t deadline_ns)
{
    (void)deadline_ns;
    static mu_ready ready[MOST_DESCRIPTORS];
    int n = 0;
    for (int i = 0; i < world.n_descriptors; i++) {
        const descriptor *at = &world.descriptors[i];
        if (at->kind != KIND_FREE && at->poller == poller && is_ready(at))
            ready[n++].tag = at->tag;
    }
    for (int i = 0; i < MU_MIN(n, most); i++) {
        const int other = i + (int)world_draw((uint64_t)(n - i));
        out[i] = ready[other];
        ready[other] = ready[i];
    }
    return MU_MIN(n, most);
}

static int waker_new(void) { return world_open(KIND_WAKER); }
static void waker_wake(int waker) { world_at(waker)->awake = true; }
static void waker_clear(int waker) { world_at(waker)->awake = false; }

// ---- The world ----------------------------------------------------------------------------------

int64_t world_next(void) { return wire_next(); }

void world_advance(int64_t until_ns)
{
    world.now_ns = MU_MAX(world.now_ns, until_ns);
    wire_advance();
}

static const mu_system virtual_system = {
    .name = "virtual",
    .now_ns = now_ns,
    .sleep_ns = sleep_ns,
    .random = random_bytes,
    .process = process,
    .memory_domain = memory_domain,
    .read_file = read_file,
    .write_file = write_file,
    .lookup_start = lookup_start,
    .lookup_done = lookup_done,
    .lookup_drop = lookup_drop,
    .listen = wire_listen,
    .accept = wire_accept,
    .port_holder = port_holder,
    .connect = wire_connect,
    .connect_result = wire_connect_result,
    .endpoint = wire_endpoint,
    .settle = wire_settle,
    .send = wire_send,
    .recv = wire_recv,
    .end_output = wire_end_output,
    .all_received = wire_all_received,
    .close = close_fd,
    .wait = wait_fd,
    .poller_new = poller_new,
    .poller_set = poller_set,
    .poller_unset = poller_unset,
    .poller_wait = poller_wait,
    .waker_new = waker_new,
    .waker_wake = waker_wake,
    .waker_clear = waker_clear,
};

void world_begin(uint64_t seed, bool print)
{
    memset(&world, 0, sizeof world);
    world.print = print;
    world.now_ns = SECOND_NS;
    world.chance = seed;
    world.hash = UINT64_C(0xcbf29ce484222325);
    world.least_s = 0.0001;
    world.most_s = 0.001;
    wire_begin();
    mu__system = &virtual_system;
}

void world_end(void)
{
    wire_end();
    mu__system = &mu__linux;
}
