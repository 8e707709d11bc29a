// Numbers about a server: counted where calls end, written as text in Prometheus's format, read over HTTP.
#ifndef MU_SRC_RPC_METRICS_H
#define MU_SRC_RPC_METRICS_H

#include "base/base.h"

enum { MU_LATENCY_BUCKETS = 12 };

// Of one method; under the server's lock.
typedef struct mu_method_metrics {
    uint64_t ended, failed, bytes_in, bytes_out;
    uint64_t buckets[MU_LATENCY_BUCKETS + 1]; // calls that took at most 4^i times 10 us; the last: longer
    double seconds;
} mu_method_metrics;

// mu__metrics_count adds a call that has ended.
void mu__metrics_count(mu_method_metrics *metrics, int64_t took_ns, bool failed, size_t bytes_in, size_t bytes_out);
// A growing text, whose owner frees `items`. Errors of what appends to it: RESOURCE_EXHAUSTED.
typedef struct mu_text {
    char *items;
    size_t n, capacity;
} mu_text;
mu_status mu__text_put(mu_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
// For each family in turn: mu__metrics_begin, then mu__metrics_put for each method. mu__metrics_gauge appends one
// number.
enum { MU_METRIC_FAMILIES = 5 };
mu_status mu__metrics_begin(mu_text *text, int family);
mu_status mu__metrics_put(mu_text *text, int family, const char *method, const mu_method_metrics *metrics);
mu_status mu__metrics_gauge(mu_text *text, const char *name, double value);

// ---- Over HTTP (metrics_http.c) -----------------------------------------------------------------

// What a request asks for, as far as its bytes have come.
typedef enum mu_http { MU_HTTP_MORE, MU_HTTP_METRICS, MU_HTTP_NOT_FOUND, MU_HTTP_NO_METHOD, MU_HTTP_BAD } mu_http;
enum { MU_HTTP_MOST = 8192 }; // bytes of a request
// mu__http_read judges the bytes of a request, which are hostile: it never looks beyond `n`.
mu_http mu__http_read(const char *bytes, size_t n);

// A listener on the loopback that answers GET /metrics, with a thread of its own.
typedef struct mu_metrics_http mu_metrics_http;
// Writes the text of an answer; called on the listener's thread.
typedef mu_status mu_metrics_writer(void *arg, mu_text *out);
// mu__metrics_http_new listens at a port, 0: one that the system chooses. Errors: ALREADY_EXISTS, the system's.
mu_metrics_http *mu__metrics_http_new(int port, mu_metrics_writer *writer, void *arg, mu_runtime *runtime);
int mu__metrics_http_port(const mu_metrics_http *http);
void mu__metrics_http_free(mu_metrics_http *http); // NULL accepted

#endif
