// Answers GET /metrics on the loopback: a few connections at a time, each with a deadline and a bounded request. Where
// there are more, the one that has waited longest without a whole request is closed, so that none keeps others out.
//
// Any process that reaches the loopback may read the numbers; nothing can be changed here, and no request has a body.
#include "rpc/server/call_metrics.h"

#include "base/system.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>

#define REQUEST_SECONDS 2.0
#define IDLE_SECONDS    0.2

enum { MOST_CONNECTIONS = 16, LISTENER = MOST_CONNECTIONS };

typedef struct connection {
    int fd; // -1: none
    int64_t deadline_ns;
    size_t n;
    char bytes[MU_HTTP_MOST]; // of the request, so far
} connection;

struct mu_metrics_http {
    int listener, poller, port;
    connection connections[MOST_CONNECTIONS];
    mu_metrics_writer *writer;
    void *arg;
    atomic_bool ending;
    mu_worker *thread;
};

// ---- Requests -----------------------------------------------------------------------------------

static bool begins(const char *bytes, size_t n, const char *text)
{
    return n >= strlen(text) && memcmp(bytes, text, strlen(text)) == 0;
}

mu_http mu__http_read(const char *bytes, size_t n)
{
    const char *line_end = memchr(bytes, '\n', n);
    if (memchr(bytes, '\0', n) != NULL)
        return MU_HTTP_BAD;
    if (line_end == NULL)
        return n < MU_HTTP_MOST ? MU_HTTP_MORE : MU_HTTP_BAD;
    const size_t line = (size_t)(line_end - bytes);
    const char *path = memchr(bytes, ' ', line), *version = NULL;
    if (path != NULL)
        version = memchr(path + 1, ' ', line - (size_t)(path + 1 - bytes));
    if (version == NULL || !begins(version + 1, line - (size_t)(version + 1 - bytes), "HTTP/1."))
        return MU_HTTP_BAD;
    if (memmem(bytes, n, "\r\n\r\n", 4) == NULL && memmem(bytes, n, "\n\n", 2) == NULL)
        return n < MU_HTTP_MOST ? MU_HTTP_MORE : MU_HTTP_BAD;
    if (!begins(bytes, n, "GET "))
        return MU_HTTP_NO_METHOD;
    const size_t length = (size_t)(version - path - 1);
    return length == 8 && memcmp(path + 1, "/metrics", 8) == 0 ? MU_HTTP_METRICS : MU_HTTP_NOT_FOUND;
}

// ---- Connections --------------------------------------------------------------------------------

static void drop(connection *c)
{
    if (c->fd >= 0)
        mu__system->close(c->fd);
    c->fd = -1;
}

// Reads what has come. False: the other end has gone.
static bool receive(connection *c, mu_http *asked)
{
    *asked = MU_HTTP_MORE;
    while (*asked == MU_HTTP_MORE) {
        const ssize_t more = mu__system->recv(c->fd, c->bytes + c->n, sizeof c->bytes - c->n);
        if (more <= 0)
            return more < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        c->n += (size_t)more;
        *asked = mu__http_read(c->bytes, c->n);
    }
    return true;
}

static void send_all(int fd, const char *bytes, size_t n, int64_t deadline_ns)
{
    while (n > 0 && mu__now_ns() < deadline_ns) {
        const struct iovec rest = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
        const ssize_t sent = mu__system->send(fd, &rest, 1);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return;
        if (sent < 0)
            mu__system->wait(fd, POLLOUT, deadline_ns);
        else {
            bytes += sent;
            n -= (size_t)sent;
        }
    }
}

static void answer(const mu_metrics_http *http, int fd, mu_http asked)
{
    static const char *const statuses[] = {[MU_HTTP_METRICS] = "200 OK",
                                           [MU_HTTP_NOT_FOUND] = "404 Not Found",
                                           [MU_HTTP_NO_METHOD] = "405 Method Not Allowed",
                                           [MU_HTTP_BAD] = "400 Bad Request"};
    const int64_t deadline_ns = mu__deadline_ns(REQUEST_SECONDS);
    mu_text body = {0}, head = {0};
    mu_error_value ignored;
    bool good = asked != MU_HTTP_METRICS || http->writer(http->arg, &body) == MU_OK;
    good = good && mu__text_put(&head,
                                "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: "
                                "%zu\r\nConnection: close\r\n\r\n",
                                statuses[asked], body.n) == MU_OK;
    mu__error_move(&ignored);
    if (good) {
        send_all(fd, head.items, head.n, deadline_ns);
        send_all(fd, body.items, body.n, deadline_ns);
        mu__system->end_output(fd);
    }
    mu__free(head.items);
    mu__free(body.items);
}

static void step(mu_metrics_http *http, connection *c)
{
    mu_http asked = MU_HTTP_MORE;
    const bool there = receive(c, &asked);
    if (there && asked != MU_HTTP_MORE)
        answer(http, c->fd, asked);
    if (!there || asked != MU_HTTP_MORE)
        drop(c);
}

// A free place, or that of the connection whose deadline comes first.
static int place(mu_metrics_http *http)
{
    int oldest = 0;
    for (int i = 0; i < MOST_CONNECTIONS; i++) {
        if (http->connections[i].fd < 0)
            return i;
        if (http->connections[i].deadline_ns < http->connections[oldest].deadline_ns)
            oldest = i;
    }
    step(http, &http->connections[oldest]); // its request may have come
    drop(&http->connections[oldest]);
    return oldest;
}

static void accept_all(mu_metrics_http *http)
{
    int fd;
    while (!atomic_load(&http->ending) && (fd = mu__system->accept(http->listener)) >= 0) {
        const int i = place(http);
        http->connections[i].fd = fd;
        http->connections[i].n = 0;
        http->connections[i].deadline_ns = mu__deadline_ns(REQUEST_SECONDS);
        if (!mu__system->poller_set(http->poller, fd, POLLIN, (uint64_t)i))
            drop(&http->connections[i]);
    }
    // If descriptors are short, the connection stays in the backlog until one is free.
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        mu__system->wait(http->listener, 0, mu__deadline_ns(IDLE_SECONDS));
}

static void serve(void *arg)
{
    mu_metrics_http *http = arg;
    mu_ready ready[MOST_CONNECTIONS + 1];
    while (!atomic_load(&http->ending)) {
        const int n = mu__system->poller_wait(http->poller, ready, (int)MU_COUNT(ready), mu__deadline_ns(IDLE_SECONDS));
        bool more = false;
        for (int i = 0; i < n; i++) {
            more |= ready[i].tag == LISTENER;
            if (ready[i].tag < LISTENER && http->connections[ready[i].tag].fd >= 0)
                step(http, &http->connections[ready[i].tag]);
        }
        for (int i = 0; i < MOST_CONNECTIONS; i++)
            if (http->connections[i].fd >= 0 && mu__now_ns() >= http->connections[i].deadline_ns)
                drop(&http->connections[i]);
        if (more)
            accept_all(http);
    }
}

// ---- Beginning and end --------------------------------------------------------------------------

static mu_status begin(mu_metrics_http *http, int port, mu_runtime *runtime)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    mu_endpoint at = {.bytes = sizeof address};
    memcpy(&at.address, &address, sizeof address);
    http->listener = mu__system->listen(&at, false);
    if (http->listener < 0 || !mu__system->endpoint(http->listener, false, &at))
        return mu__error(errno == EADDRINUSE ? MU_ALREADY_EXISTS : mu__errno_code(errno),
                         "metrics cannot be served at 127.0.0.1:%d (MUSTER_METRICS_PORT): %s", port, strerror(errno));
    http->port = mu__endpoint_port(&at);
    http->poller = mu__system->poller_new();
    if (http->poller < 0 || !mu__system->poller_set(http->poller, http->listener, POLLIN, LISTENER))
        return mu__error(mu__errno_code(errno), "metrics cannot be served (MUSTER_METRICS_PORT): %s", strerror(errno));
    http->thread = mu__worker_new("metrics", NULL, 1, runtime);
    return http->thread != NULL ? mu__worker_post(http->thread, serve, http) : mu_error_code();
}

mu_metrics_http *mu__metrics_http_new(int port, mu_metrics_writer *writer, void *arg, mu_runtime *runtime)
{
    mu_metrics_http *http = mu__calloc(1, sizeof *http);
    if (http == NULL)
        return NULL;
    http->listener = http->poller = -1;
    http->writer = writer;
    http->arg = arg;
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        http->connections[i].fd = -1;
    if (begin(http, port, runtime) == MU_OK)
        return http;
    mu__metrics_http_free(http);
    return NULL;
}

int mu__metrics_http_port(const mu_metrics_http *http) { return http->port; }

void mu__metrics_http_free(mu_metrics_http *http)
{
    if (http == NULL)
        return;
    atomic_store(&http->ending, true);
    mu__worker_free(http->thread);
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        drop(&http->connections[i]);
    if (http->poller >= 0)
        mu__system->close(http->poller);
    if (http->listener >= 0)
        mu__system->close(http->listener);
    mu__free(http);
}
