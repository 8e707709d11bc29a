// Answers GET /metrics on the loopback: one connection after the other, each with a deadline and a bounded request.
//
// Any process that reaches the loopback may read the numbers; nothing can be changed here, and no request has a body.
#include "rpc/server/call_metrics.h"

#include "base/system.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>

#define REQUEST_SECONDS 2.0
#define IDLE_SECONDS    0.2

struct mu_metrics_http {
    int listener, port;
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

static mu_http receive(int fd, int64_t deadline_ns)
{
    char bytes[MU_HTTP_MOST];
    size_t n = 0;
    mu_http asked = MU_HTTP_MORE;
    while (asked == MU_HTTP_MORE && mu__now_ns() < deadline_ns) {
        const ssize_t more = mu__system->recv(fd, bytes + n, sizeof bytes - n);
        if (more == 0 || (more < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
            return MU_HTTP_MORE;
        if (more < 0) {
            mu__system->wait(fd, POLLIN, deadline_ns);
            continue;
        }
        n += (size_t)more;
        asked = mu__http_read(bytes, n);
    }
    return asked;
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

static void answer(const mu_metrics_http *http, int fd)
{
    static const char *const statuses[] = {[MU_HTTP_METRICS] = "200 OK", [MU_HTTP_NOT_FOUND] = "404 Not Found",
                                           [MU_HTTP_NO_METHOD] = "405 Method Not Allowed",
                                           [MU_HTTP_BAD] = "400 Bad Request"};
    const int64_t deadline_ns = mu__deadline_ns(REQUEST_SECONDS);
    const mu_http asked = receive(fd, deadline_ns);
    mu_text body = {0}, head = {0};
    mu_error_value ignored;
    if (asked == MU_HTTP_MORE)
        return; // it has gone, or is too slow
    bool good = asked != MU_HTTP_METRICS || http->writer(http->arg, &body) == MU_OK;
    good = good && mu__text_put(&head, "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: "
                                "%zu\r\nConnection: close\r\n\r\n", statuses[asked], body.n) == MU_OK;
    mu__error_move(&ignored);
    if (good) {
        send_all(fd, head.items, head.n, deadline_ns);
        send_all(fd, body.items, body.n, deadline_ns);
        mu__system->end_output(fd);
    }
    mu__free(head.items);
    mu__free(body.items);
}

static void serve(void *arg)
{
    mu_metrics_http *http = arg;
    while (!atomic_load(&http->ending)) {
        const int fd = mu__system->accept(http->listener);
        if (fd < 0) {
            // If descriptors are short, the connection stays in the backlog until one is free.
            const short events = errno == EAGAIN || errno == EWOULDBLOCK ? POLLIN : 0;
            mu__system->wait(http->listener, events, mu__deadline_ns(IDLE_SECONDS));
            continue;
        }
        answer(http, fd);
        mu__system->close(fd);
    }
}

// ---- Beginning and end --------------------------------------------------------------------------

static mu_status begin(mu_metrics_http *http, int port, mu_runtime *runtime)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    mu_endpoint at = {.bytes = sizeof address};
    memcpy(&at.address, &address, sizeof address);
    http->listener = mu__system->listen(&at, false);
    if (http->listener < 0 || !mu__system->endpoint(http->listener, false, &at))
        return mu__error(errno == EADDRINUSE ? MU_ALREADY_EXISTS : mu__errno_code(errno), "metrics cannot be served at "
                         "127.0.0.1:%d (MUSTER_METRICS_PORT): %s", port, strerror(errno));
    http->port = mu__endpoint_port(&at);
    http->thread = mu__worker_new("metrics", NULL, 1, runtime);
    return http->thread != NULL ? mu__worker_post(http->thread, serve, http) : mu_error_code();
}

mu_metrics_http *mu__metrics_http_new(int port, mu_metrics_writer *writer, void *arg, mu_runtime *runtime)
{
    mu_metrics_http *http = mu__calloc(1, sizeof *http);
    if (http == NULL)
        return NULL;
    *http = (mu_metrics_http){.listener = -1, .writer = writer, .arg = arg};
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
    if (http->listener >= 0)
        mu__system->close(http->listener);
    mu__free(http);
}
