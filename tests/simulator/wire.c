// The network of the world: listeners and connections between its hosts, as TCP shows them to a program.
//
// What one end sends travels as segments, each with its time of arrival; segments of one direction stay in order. A
// connection that ends with unread input is reset, and so is one whose end that is sent to is closed. An end whose
// bytes are not acknowledged for as long as it has settled gets ETIMEDOUT.
#include "world.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#define REJECTED_NS 100000 // until the firewall's answer is there
enum { MOST_CONNECTIONS = 4096, LEAST_ROOM = 1500, MOST_ROOM = 65536, FIRST_PORT = 40000, PORTS = 20000 };

typedef enum ending { ENDING_NONE, ENDING_CLOSE, ENDING_RESET } ending;

typedef struct segment {
    int64_t sent_ns, arrives_ns, acknowledged_ns;
    uint8_t *data;
    size_t bytes, read;
    ending ending;
} segment;

typedef struct side {
    bool open, ended; // its process has it; it sends no more
    int host, error;
    segment *queue; // what is on its way to this end
    int n, capacity;
    int n_read;        // segments at its front that are read, and wait for their acknowledgement to arrive
    int64_t last_ns;   // arrival of the last segment
    int64_t reset_ns;  // when this end hears that the other one is closed
    double patience_s; // 0: no limit
    mu_endpoint at;
} side;

typedef enum wire_state { WIRE_FREE, WIRE_ASKED, WIRE_KNOCKED, WIRE_ACCEPTED, WIRE_REFUSED } wire_state;

typedef struct connection {
    wire_state state;
    int64_t asked_ns; // when the request arrives
    int64_t opens_ns; // when the opener knows the outcome
    size_t room;      // bytes that may be on their way
    side ends[2];     // the opener's, the listener's
    mu_endpoint to;
} connection;

// Most connections have nothing to do most of the time, so each has a note of the next time at which it has. `moved`:
// it was changed since time last passed. `noted`: due_ns holds.
typedef struct note {
    bool moved, noted;
    int64_t due_ns;
} note;

static connection connections[MOST_CONNECTIONS];
static note notes[MOST_CONNECTIONS];
static int n_connections, n_ports;
static int n_knocked; // connections that nobody has accepted yet

static int next_port(void) { return FIRST_PORT + n_ports++ % PORTS; }

static struct sockaddr_in *v4_of(mu_endpoint *endpoint) { return (void *)&endpoint->address; }

static mu_endpoint address_of(int host, int port)
{
    mu_endpoint endpoint = {.bytes = sizeof(struct sockaddr_in)};
    *v4_of(&endpoint) = (struct sockaddr_in){.sin_family = AF_INET,
                                             .sin_port = htons((uint16_t)port),
                                             .sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)host)};
    return endpoint;
}

// -1: nowhere.
static int host_of(const mu_endpoint *endpoint)
{
    const struct sockaddr_in *v4 = (const void *)&endpoint->address;
    const int64_t host = (int64_t)ntohl(v4->sin_addr.s_addr) - 0x0a000001;
    return v4->sin_family == AF_INET && host >= 0 && host < MOST_HOSTS ? (int)host : -1;
}

static void changes(int i) { notes[i] = (note){.moved = true}; }

static const connection *connection_at(int fd) { return &connections[world_at(fd)->connection]; }
static const side *end_at(const descriptor *at) { return &connections[at->connection].ends[at->end]; }
static const side *other_at(const descriptor *at) { return &connections[at->connection].ends[1 - at->end]; }

// The connection of a descriptor, to be changed.
static connection *changed_at(const descriptor *at)
{
    changes(at->connection);
    return &connections[at->connection];
}

static bool is_open(const descriptor *at)
{
    const connection *c = &connections[at->connection];
    return at->end == 1 || ((c->state == WIRE_KNOCKED || c->state == WIRE_ACCEPTED) && c->opens_ns <= world_now());
}

// ---- Listening ----------------------------------------------------------------------------------

// The listener of a host at an endpoint; NULL: nobody listens there.
static const descriptor *listener_at(int host, const mu_endpoint *to)
{
    for (int fd = FIRST_FD; fd < FIRST_FD + world_descriptors(); fd++) {
        const descriptor *at = world_at(fd);
        if (at->kind == KIND_LISTENER && at->host == host && mu__endpoint_port(&at->at) == mu__endpoint_port(to))
            return at;
    }
    return NULL;
}

int wire_listen(const mu_endpoint *at, bool both_families)
{
    const int port = mu__endpoint_port(at);
    if (!both_families && host_of(at) != world_host()) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    if (port != 0 && listener_at(world_host(), at) != NULL) {
        errno = EADDRINUSE;
        return -1;
    }
    const int fd = world_open(KIND_LISTENER);
    if (fd >= 0)
        world_at(fd)->at = address_of(world_host(), port != 0 ? port : next_port());
    return fd;
}

static bool waits_for(const connection *c, const descriptor *listener)
{
    return c->state == WIRE_KNOCKED && c->ends[1].host == listener->host &&
           mu__endpoint_port(&c->to) == mu__endpoint_port(&listener->at);
}

bool wire_pending(const descriptor *listener)
{
    for (int i = 0; n_knocked > 0 && i < n_connections; i++)
        if (waits_for(&connections[i], listener))
            return true;
    return false;
}

int wire_accept(int listener)
{
    const descriptor *from = world_at(listener);
    int first = -1;
    for (int i = 0; i < n_connections; i++)
        if (waits_for(&connections[i], from) && (first < 0 || connections[i].asked_ns < connections[first].asked_ns))
            first = i;
    const int fd = first >= 0 ? world_open(KIND_STREAM) : -1;
    if (first < 0)
        errno = EAGAIN;
    if (fd < 0)
        return -1;
    world_at(fd)->connection = first;
    world_at(fd)->end = 1;
    connections[first].state = WIRE_ACCEPTED;
    changes(first);
    n_knocked--;
    world_note("accepts connection %d", first);
    return fd;
}

// ---- Connecting ---------------------------------------------------------------------------------

int wire_connect(const mu_endpoint *to, const mu_endpoints *own)
{
    (void)own;
    const int host = host_of(to), fd = host >= 0 ? world_open(KIND_STREAM) : -1;
    int i = 0;
    while (i < n_connections && connections[i].state != WIRE_FREE)
        i++;
    if (fd < 0 || i == MOST_CONNECTIONS) {
        errno = host < 0 ? EHOSTUNREACH : EMFILE;
        return -1;
    }
    n_connections = MU_MAX(n_connections, i + 1);
    connection *c = &connections[i];
    changes(i);
    *c = (connection){.state = WIRE_ASKED, .to = *to, .opens_ns = MU_FOREVER};
    c->asked_ns = world_travel(world_host(), host);
    if (world_rejects(world_host(), host)) {
        c->state = WIRE_REFUSED;
        c->opens_ns = world_now() + REJECTED_NS;
    }
    c->room = LEAST_ROOM + world_draw(world_chance(0.3) ? LEAST_ROOM : MOST_ROOM);
    c->ends[0] = (side){.open = true, .host = world_host(), .at = address_of(world_host(), next_port())};
    c->ends[1] = (side){.open = true, .host = host, .at = *to};
    world_at(fd)->connection = i;
    world_note("connects to host %d port %d as connection %d", host, mu__endpoint_port(to), i);
    return fd;
}

int wire_connect_result(int fd)
{
    const connection *c = connection_at(fd);
    if (c->opens_ns > world_now())
        return EINPROGRESS;
    return c->state == WIRE_REFUSED ? ECONNREFUSED : c->ends[0].error;
}

bool wire_endpoint(int fd, bool there, mu_endpoint *out)
{
    const descriptor *at = world_at(fd);
    if (at->kind == KIND_LISTENER) {
        *out = at->at;
        return true;
    }
    *out = there ? other_at(at)->at : end_at(at)->at;
    errno = ENOTCONN;
    return !there || is_open(at);
}

void wire_settle(int fd, double seconds)
{
    const descriptor *at = world_at(fd);
    changed_at(at)->ends[at->end].patience_s = seconds;
}

// ---- Bytes --------------------------------------------------------------------------------------

static void push(const side *from, side *to, const void *data, size_t bytes, ending how)
{
    if (to->n == to->capacity) {
        to->capacity = to->capacity > 0 ? 2 * to->capacity : 8;
        to->queue = realloc(to->queue, (size_t)to->capacity * sizeof *to->queue);
    }
    segment *s = &to->queue[to->n++];
    const int64_t back_ns = world_travel(to->host, from->host), there_ns = world_travel(from->host, to->host);
    *s = (segment){.sent_ns = world_now(), .bytes = bytes, .ending = how};
    s->arrives_ns = MU_MAX(there_ns, to->last_ns);
    s->acknowledged_ns =
        back_ns == MU_FOREVER || s->arrives_ns == MU_FOREVER ? MU_FOREVER : s->arrives_ns + back_ns - world_now();
    to->last_ns = s->arrives_ns;
    s->data = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0)
        memcpy(s->data, data, bytes);
}

static size_t on_the_way(const side *to)
{
    size_t bytes = 0;
    for (int i = 0; i < to->n; i++)
        bytes += to->queue[i].bytes - to->queue[i].read;
    return bytes;
}

static size_t gather(const struct iovec *extents, int n, uint8_t *out, size_t room)
{
    size_t used = 0;
    for (int i = 0; i < n && used < room; i++) {
        const size_t bytes = MU_MIN(extents[i].iov_len, room - used);
        memcpy(out + used, extents[i].iov_base, bytes);
        used += bytes;
    }
    return used;
}

ssize_t wire_send(int fd, const struct iovec *extents, int n)
{
    const descriptor *at = world_at(fd);
    connection *c = changed_at(at);
    side *end = &c->ends[at->end], *other = &c->ends[1 - at->end];
    static uint8_t buffer[LEAST_ROOM + MOST_ROOM];
    const size_t room = c->room, used = on_the_way(other);
    if (!is_open(at) || end->ended || end->error != 0 || used >= room) {
        errno = !is_open(at) ? ENOTCONN : end->ended ? EPIPE : end->error != 0 ? end->error : EAGAIN;
        return -1;
    }
    const size_t bytes = gather(extents, n, buffer, room - used);
    push(end, other, buffer, bytes, ENDING_NONE);
    world_fold(buffer, bytes);
    world_note("sends %zu bytes on connection %d", bytes, at->connection);
    return (ssize_t)bytes;
}

static bool is_read(const segment *s) { return s->read == s->bytes && s->ending == ENDING_NONE; }

static void count_read(side *end)
{
    while (end->n_read < end->n && is_read(&end->queue[end->n_read]))
        end->n_read++;
}

// The first segment that has arrived and is not read; NULL: there is none.
static segment *first_unread(const side *end)
{
    for (int i = end->n_read; i < end->n; i++) {
        segment *s = &end->queue[i];
        if (s->arrives_ns > world_now())
            return NULL;
        if (!is_read(s))
            return s;
    }
    return NULL;
}

ssize_t wire_recv(int fd, void *data, size_t bytes)
{
    const descriptor *at = world_at(fd);
    side *end = &changed_at(at)->ends[at->end];
    segment *s = first_unread(end);
    if (s == NULL || s->ending == ENDING_RESET) {
        errno = s != NULL ? ECONNRESET : end->error != 0 ? end->error : EAGAIN;
        return -1;
    }
    if (s->ending == ENDING_CLOSE)
        return 0;
    size_t moved = MU_MIN(bytes, s->bytes - s->read);
    if (moved > 1 && world_chance(0.1))
        moved = 1 + world_draw(moved - 1);
    memcpy(data, s->data + s->read, moved);
    s->read += moved;
    count_read(end);
    return (ssize_t)moved;
}

bool wire_readable(const descriptor *at)
{
    return is_open(at) && (first_unread(end_at(at)) != NULL || end_at(at)->error != 0);
}

bool wire_writable(const descriptor *at)
{
    const connection *c = &connections[at->connection];
    if (at->end == 0 && !is_open(at))
        return c->state == WIRE_REFUSED && c->opens_ns <= world_now();
    return end_at(at)->error != 0 || on_the_way(other_at(at)) < c->room;
}

void wire_end_output(int fd)
{
    const descriptor *at = world_at(fd);
    connection *c = changed_at(at);
    side *end = &c->ends[at->end];
    if (!end->ended && is_open(at))
        push(end, &c->ends[1 - at->end], NULL, 0, ENDING_CLOSE);
    end->ended = true;
}

bool wire_all_received(int fd)
{
    const side *other = other_at(world_at(fd));
    for (int i = 0; i < other->n; i++)
        if (other->queue[i].acknowledged_ns > world_now())
            return false;
    return true;
}

// ---- Closing ------------------------------------------------------------------------------------

static void free_connection(connection *c)
{
    n_knocked -= c->state == WIRE_KNOCKED;
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < c->ends[e].n; i++)
            free(c->ends[e].queue[i].data);
        free(c->ends[e].queue);
    }
    *c = (connection){.state = WIRE_FREE};
}

static void close_end(connection *c, int which)
{
    changes((int)(c - connections));
    side *end = &c->ends[which], *other = &c->ends[1 - which];
    const segment *unread = first_unread(end);
    if (!end->ended && other->open)
        push(end, other, NULL, 0, unread != NULL && unread->ending == ENDING_NONE ? ENDING_RESET : ENDING_CLOSE);
    end->open = false;
    end->ended = true;
    if (!other->open || (which == 0 && (c->state == WIRE_ASKED || c->state == WIRE_REFUSED)))
        free_connection(c);
}

void wire_close(descriptor *at)
{
    if (at->kind == KIND_STREAM) {
        world_note("closes connection %d", at->connection);
        close_end(&connections[at->connection], at->end);
    }
    for (int i = 0; at->kind == KIND_LISTENER && i < n_connections; i++)
        if (waits_for(&connections[i], at))
            close_end(&connections[i], 1);
}

// The end that a killed process still holds belongs to a connection of its own, which nobody has the other end of.
void wire_kill(descriptor *at)
{
    wire_close(at);
    int i = 0;
    while (i < n_connections && connections[i].state != WIRE_FREE)
        i++;
    n_connections = MU_MAX(n_connections, i + 1);
    changes(i);
    connections[i] = (connection){.state = WIRE_ACCEPTED, .opens_ns = MU_FOREVER, .asked_ns = MU_FOREVER};
    connections[i].ends[1] = (side){.open = true, .ended = true, .error = EPIPE};
    at->kind = KIND_STREAM;
    at->connection = i;
    at->end = 1;
}

static void reset_end(side *end)
{
    int kept = 0;
    for (int i = 0; i < end->n; i++)
        if (end->queue[i].arrives_ns <= world_now())
            end->queue[kept++] = end->queue[i];
        else
            free(end->queue[i].data);
    end->n = kept;
    end->error = end->open && end->error == 0 ? ECONNRESET : end->error;
}

void wire_break(int a, int b, bool only_there)
{
    for (int i = 0; i < n_connections; i++) {
        connection *c = &connections[i];
        const int from = c->ends[0].host, to = c->ends[1].host;
        if (c->state != WIRE_ACCEPTED || c->opens_ns > world_now() ||
            !((from == a && to == b) || (from == b && to == a)))
            continue;
        changes(i);
        for (int k = 0; k < 2; k++)
            if (!only_there || c->ends[k].host == b)
                reset_end(&c->ends[k]);
    }
}

// ---- Time ---------------------------------------------------------------------------------------

static void knock(connection *c)
{
    const int64_t back_ns = world_travel(c->ends[1].host, c->ends[0].host);
    c->asked_ns = back_ns == MU_FOREVER ? MU_FOREVER : c->asked_ns;
    if (back_ns == MU_FOREVER)
        return;
    c->state = listener_at(c->ends[1].host, &c->to) != NULL ? WIRE_KNOCKED : WIRE_REFUSED;
    n_knocked += c->state == WIRE_KNOCKED;
    c->opens_ns = c->ends[0].last_ns = back_ns;
}

// What arrives at a closed end is answered with a reset.
static void answer_strays(connection *c, int which)
{
    const side *end = &c->ends[which];
    side *other = &c->ends[1 - which];
    for (int i = 0; !end->open && other->reset_ns == 0 && i < end->n; i++)
        if (end->queue[i].arrives_ns <= world_now() && end->queue[i].bytes > end->queue[i].read)
            other->reset_ns = world_travel(end->host, other->host);
    if (other->reset_ns != 0 && other->reset_ns <= world_now() && other->error == 0)
        other->error = ECONNRESET;
}

// When this end gives up because the other does not acknowledge.
static int64_t gives_up_ns(const side *end, const side *other)
{
    for (int i = 0; end->patience_s > 0 && i < other->n; i++) {
        const segment *s = &other->queue[i];
        const int64_t last_ns = s->sent_ns + (int64_t)(end->patience_s * 1e9);
        if (s->acknowledged_ns > last_ns)
            return last_ns;
    }
    return MU_FOREVER;
}

// An acknowledgement is one of all that was sent before, too.
static void acknowledge_before(side *end)
{
    for (int i = end->n - 1; i > 0; i--)
        end->queue[i - 1].acknowledged_ns = MU_MIN(end->queue[i - 1].acknowledged_ns, end->queue[i].acknowledged_ns);
}

static void forget_read(side *end)
{
    int kept = 0;
    acknowledge_before(end);
    for (int i = 0; i < end->n; i++) {
        segment *s = &end->queue[i];
        if (is_read(s) && s->acknowledged_ns <= world_now())
            free(s->data);
        else
            end->queue[kept++] = *s;
    }
    end->n = kept;
    end->n_read = 0;
    count_read(end);
}

static void advance(connection *c)
{
    if (c->state == WIRE_ASKED && c->asked_ns <= world_now())
        knock(c);
    for (int e = 0; c->state != WIRE_FREE && e < 2; e++) {
        side *end = &c->ends[e];
        answer_strays(c, e);
        if (end->open && end->error == 0 && gives_up_ns(end, &c->ends[1 - e]) <= world_now())
            end->error = ETIMEDOUT;
        forget_read(end);
    }
}

void wire_advance(void)
{
    for (int i = 0; i < n_connections; i++) {
        if (!notes[i].moved && notes[i].noted && notes[i].due_ns > world_now())
            continue;
        advance(&connections[i]);
        notes[i] = (note){0};
    }
}

static int64_t later(int64_t best, int64_t at) { return at > world_now() ? MU_MIN(best, at) : best; }

static int64_t due_ns(const connection *c)
{
    if (c->state == WIRE_FREE)
        return MU_FOREVER;
    int64_t next = later(later(MU_FOREVER, c->asked_ns), c->opens_ns);
    for (int e = 0; e < 2; e++) {
        const side *end = &c->ends[e];
        next = later(later(next, end->reset_ns), gives_up_ns(end, &c->ends[1 - e]));
        for (int s = 0; s < end->n; s++)
            next = later(next, end->queue[s].arrives_ns);
    }
    return next;
}

int64_t wire_next(void)
{
    int64_t next = MU_FOREVER;
    for (int i = 0; i < n_connections; i++) {
        if (!notes[i].noted)
            notes[i] = (note){.moved = notes[i].moved, .noted = true, .due_ns = due_ns(&connections[i])};
        next = MU_MIN(next, notes[i].due_ns);
    }
    return next;
}

void wire_begin(void) { n_connections = n_ports = n_knocked = 0; }

void wire_end(void)
{
    for (int i = 0; i < n_connections; i++)
        free_connection(&connections[i]);
    n_connections = 0;
}
