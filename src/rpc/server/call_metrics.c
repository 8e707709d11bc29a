// Counts calls and writes the counts as Prometheus reads them.
#include "rpc/server/call_metrics.h"

#include <stdarg.h>

#define FIRST_SECONDS 10e-6

static double bound_of(int bucket)
{
    double seconds = FIRST_SECONDS;
    for (int i = 0; i < bucket; i++)
        seconds *= 4;
    return seconds;
}

void mu__metrics_count(mu_method_metrics *metrics, int64_t took_ns, bool failed, size_t bytes_in, size_t bytes_out)
{
    const double seconds = (double)took_ns / 1e9;
    int bucket = 0;
    while (bucket < MU_LATENCY_BUCKETS && seconds > bound_of(bucket))
        bucket++;
    metrics->buckets[bucket]++;
    metrics->seconds += seconds;
    metrics->ended++;
    metrics->failed += failed;
    metrics->bytes_in += bytes_in;
    metrics->bytes_out += bytes_out;
}

mu_status mu__text_put(mu_text *text, const char *format, ...)
{
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    const int n = vsnprintf(NULL, 0, format, values);
    va_end(values);
    mu_status status = n >= 0 ? mu__grow((void **)&text->items, &text->capacity, text->n + (size_t)n + 1, 1)
                              : mu__error(MU_INTERNAL, "a line of the metrics cannot be written");
    if (status == MU_OK)
        text->n += (size_t)vsnprintf(text->items + text->n, (size_t)n + 1, format, again);
    va_end(again);
    return status;
}

// Quotes and backslashes are escaped in the value of a label.
static const char *label(const char *method, char out[512])
{
    size_t n = 0;
    for (; *method != '\0' && n < 500; method++) {
        if (*method == '"' || *method == '\\')
            out[n++] = '\\';
        out[n++] = (unsigned char)*method < 0x20 ? ' ' : *method;
    }
    out[n] = '\0';
    return out;
}

static mu_status put_latencies(mu_text *text, const char *name, const mu_method_metrics *metrics)
{
    uint64_t so_far = 0;
    for (int i = 0; i <= MU_LATENCY_BUCKETS; i++) {
        char bound[32] = "+Inf";
        so_far += metrics->buckets[i];
        if (i < MU_LATENCY_BUCKETS)
            snprintf(bound, sizeof bound, "%g", bound_of(i));
        MU_TRY(mu__text_put(text, "muster_call_seconds_bucket{method=\"%s\",le=\"%s\"} %llu\n", name, bound,
                            (unsigned long long)so_far));
    }
    MU_TRY(mu__text_put(text, "muster_call_seconds_sum{method=\"%s\"} %g\n", name, metrics->seconds));
    return mu__text_put(text, "muster_call_seconds_count{method=\"%s\"} %llu\n", name, (unsigned long long)so_far);
}

mu_status mu__metrics_begin(mu_text *text, int family)
{
    static const char *const types[MU_METRIC_FAMILIES] = {
        "muster_calls_total counter", "muster_calls_failed_total counter", "muster_received_bytes_total counter",
        "muster_sent_bytes_total counter", "muster_call_seconds histogram"};
    return mu__text_put(text, "# TYPE %s\n", types[family]);
}

mu_status mu__metrics_put(mu_text *text, int family, const char *method, const mu_method_metrics *metrics)
{
    static const char *const names[] = {"calls", "calls_failed", "received_bytes", "sent_bytes"};
    const uint64_t values[] = {metrics->ended, metrics->failed, metrics->bytes_in, metrics->bytes_out};
    char name[512];
    label(method, name);
    if (family == (int)MU_COUNT(names))
        return put_latencies(text, name, metrics);
    return mu__text_put(text, "muster_%s_total{method=\"%s\"} %llu\n", names[family], name,
                        (unsigned long long)values[family]);
}

mu_status mu__metrics_gauge(mu_text *text, const char *name, double value)
{
    return mu__text_put(text, "# TYPE muster_%s gauge\nmuster_%s %.17g\n", name, name, value);
}
