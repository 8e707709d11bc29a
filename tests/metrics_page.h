// What a test reads over HTTP from the loopback, such as the numbers of a server.
#ifndef MU_TESTS_METRICS_PAGE_H
#define MU_TESTS_METRICS_PAGE_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// http_ask sends a request to a port of the loopback and writes all of the answer, as text. False: nobody listens.
static inline bool http_ask(int port, const char *request, char *out, size_t bytes)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = 0;
    const bool sent = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
                      send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request);
    ssize_t got = sent;
    while (got > 0 && n < bytes - 1) {
        got = recv(fd, out + n, bytes - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
    }
    out[n] = '\0';
    if (fd >= 0)
        close(fd);
    return sent;
}

// metrics_page reads all numbers of a process; NULL: nobody listens. The text stays until the next call.
static inline const char *metrics_page(int port)
{
    static char text[1 << 17];
    return http_ask(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", text, sizeof text) ? text : NULL;
}

// metrics_number returns one number of a process; -1: it has none of this name, or nobody listens.
static inline double metrics_number(int port, const char *name)
{
    char line[100];
    const char *page = metrics_page(port);
    snprintf(line, sizeof line, "\nmuster_%s ", name);
    const char *at = page ? strstr(page, line) : NULL;
    return at ? strtod(at + strlen(line), NULL) : -1;
}

#endif
