// Counts calls and writes the counts as Prometheus reads them.
#include "rpc/server/call_metrics.h"

#include "rpc/channel.h"

#include <stdarg.h>

#define FIRST_SECONDS 10e-6
enum { LABEL_BYTES = 5 * MU_RPC_NAME + 16 }; // a byte of a name may become five

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

// Bytes of the UTF-8 character at the beginning of a text; 0: it does not begin with one (RFC 3629, section 4).
static int character_bytes(const char *text)
{
    static const struct {
        uint8_t first, last, second_first, second_last, bytes;
    } forms[] = {{0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                 {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
                 {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    const uint8_t *at = (const uint8_t *)text;
    size_t form = 0;
    while (form < MU_COUNT(forms) && (at[0] < forms[form].first || at[0] > forms[form].last))
        form++;
    const int n = form < MU_COUNT(forms) ? forms[form].bytes : 0;
    if (n > 1 && (at[1] < forms[form].second_first || at[1] > forms[form].second_last))
        return 0;
    for (int i = 2; i < n; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

// A label's value: quotes, backslashes and ends of lines are escaped. Readers refuse a page that is not UTF-8, so other
// bytes are written as numbers.
static const char *label(const char *method, char out[LABEL_BYTES])
{
    size_t n = 0;
    out[0] = '\0';
    while (*method != '\0' && n + sizeof "\\\\xNN" < LABEL_BYTES) {
        const int bytes = character_bytes(method);
        if (bytes == 0)
            n += (size_t)snprintf(out + n, LABEL_BYTES - n, "\\\\x%02x", (unsigned char)*method);
        else if (*method == '"' || *method == '\\' || *method == '\n')
            n += (size_t)snprintf(out + n, LABEL_BYTES - n, "\\%c", *method == '\n' ? 'n' : *method);
        else
            n += (size_t)snprintf(out + n, LABEL_BYTES - n, "%.*s", bytes, method);
        method += bytes > 0 ? bytes : 1;
    }
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
    MU_TRY(mu__text_put(text, "muster_call_seconds_sum{method=\"%s\"} %.17g\n", name, metrics->seconds));
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
    char name[LABEL_BYTES];
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
