// Spans for MUSTER_TRACE: a ring buffer per runtime, written at the runtime's end as Chrome/Perfetto JSON.
//
// When off, a span costs one atomic load. When on, it takes a lock: spans last microseconds, and two writers must not
// mix in one entry when the ring wraps around.
#include "base/private.h"

#include <stdlib.h>
#include <unistd.h>

enum { MOST_SPANS = 1 << 20, MOST_REPLICAS_NAMED = 1024, MOST_NAMES = 4096 };

struct span {
    const char *category, *name;
    int64_t begin_ns, end_ns;
    int replica;
    uint64_t request; // 0: none
};

struct mu_timeline {
    pthread_mutex_t lock;
    struct span *ring;
    uint64_t n;              // spans recorded so far; the ring keeps the last MOST_SPANS
    char *names[MOST_NAMES]; // copies of names that do not live as long as the runtime
    int n_names;
};

static atomic_int n_timelines;

bool mu__trace_on(void)
{
    if (atomic_load_explicit(&n_timelines, memory_order_relaxed) == 0)
        return false;
    const mu_runtime *runtime = mu__runtime_present();
    return runtime != NULL && runtime->timeline != NULL;
}

void mu__span(const char *category, const char *name, int replica, int64_t begin_ns, int64_t end_ns)
{
    if (!mu__trace_on())
        return;
    struct mu_timeline *timeline = mu__runtime_present()->timeline;
    pthread_mutex_lock(&timeline->lock);
    timeline->ring[timeline->n++ % MOST_SPANS] =
        (struct span){.category = category, .name = name, .begin_ns = begin_ns, .end_ns = end_ns, .replica = replica};
    pthread_mutex_unlock(&timeline->lock);
}

// With the lock held. Methods of a program may have any number of names; those beyond the limit share one.
static const char *kept_name(struct mu_timeline *timeline, const char *name)
{
    for (int i = 0; i < timeline->n_names; i++)
        if (strcmp(timeline->names[i], name) == 0)
            return timeline->names[i];
    mu_error_value before, ignored;
    mu__error_move(&before);
    char *copy = timeline->n_names < MOST_NAMES ? mu__strdup(name) : NULL;
    mu__error_move(&ignored);
    mu__error_raise(&before);
    return copy != NULL ? (timeline->names[timeline->n_names++] = copy) : "request";
}

void mu__span_request(const char *category, const char *name, uint64_t request, int64_t begin_ns, int64_t end_ns)
{
    if (!mu__trace_on())
        return;
    struct mu_timeline *timeline = mu__runtime_present()->timeline;
    pthread_mutex_lock(&timeline->lock);
    timeline->ring[timeline->n++ % MOST_SPANS] = (struct span){.category = category,
                                                               .name = kept_name(timeline, name),
                                                               .begin_ns = begin_ns,
                                                               .end_ns = end_ns,
                                                               .replica = -1,
                                                               .request = request};
    pthread_mutex_unlock(&timeline->lock);
}

struct mu_timeline *mu__timeline_new(void)
{
    struct mu_timeline *timeline = mu__calloc(1, sizeof *timeline);
    if (timeline == NULL)
        return NULL;
    // Mapped, so that only used pages take memory.
    timeline->ring = mu__alloc_data(MOST_SPANS * sizeof(struct span));
    if (timeline->ring == NULL) {
        mu__free(timeline);
        return NULL;
    }
    pthread_mutex_init(&timeline->lock, NULL);
    atomic_fetch_add(&n_timelines, 1);
    return timeline;
}

void mu__timeline_drop(mu_runtime *runtime)
{
    struct mu_timeline *timeline = runtime->timeline;
    if (timeline == NULL)
        return;
    runtime->timeline = NULL;
    atomic_fetch_sub(&n_timelines, 1);
    mu__free_data(timeline->ring, MOST_SPANS * sizeof(struct span));
    for (int i = 0; i < timeline->n_names; i++)
        mu__free(timeline->names[i]);
    pthread_mutex_destroy(&timeline->lock);
    mu__free(timeline);
}

// ---- Writing ------------------------------------------------------------------------------------

// MUSTER_TRACE with %p replaced by the process number; further runtimes of the process append their own number, so
// that no two write the same file.
static char *file_name(const mu_runtime *runtime)
{
    const char *pattern = runtime->settings.values[MU_SETTING_TRACE].text;
    const char *process = strstr(pattern, "%p");
    char *name = process != NULL
                     ? mu__sprintf("%.*s%ld%s", (int)(process - pattern), pattern, (long)getpid(), process + 2)
                     : mu__strdup(pattern);
    if (name == NULL || runtime->number == 0)
        return name;
    char *numbered = mu__sprintf("%s.%d", name, runtime->number);
    mu__free(name);
    return numbered;
}

static void escape(char *out, size_t capacity, const char *text)
{
    size_t n = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0' && n + 7 < capacity; at++) {
        if (*at == '"' || *at == '\\')
            out[n++] = '\\';
        if (*at >= 0x20)
            out[n++] = (char)*at;
        else
            n += (size_t)snprintf(out + n, 7, "\\u%04x", *at);
    }
    out[n] = '\0';
}

// Microseconds with nanoseconds after the point, independent of the locale.
static void microseconds(char out[32], int64_t ns)
{
    const int64_t positive = MU_MAX(ns, 0);
    snprintf(out, 32, "%lld.%03d", (long long)(positive / 1000), (int)(positive % 1000));
}

static mu_status write_span(mu_file_writer *file, const struct span *span, bool last)
{
    char name[256], category[64], begin[32], duration[32], line[512];
    escape(name, sizeof name, span->name);
    escape(category, sizeof category, span->category);
    microseconds(begin, span->begin_ns);
    microseconds(duration, span->end_ns - span->begin_ns);
    const int n =
        snprintf(line, sizeof line,
                 "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%ld,\"tid\":%d,\"ts\":%s,\"dur\":%s}%s\n", name,
                 category, (long)getpid(), span->replica, begin, duration, last ? "" : ",");
    return mu__file_write(file, line, (size_t)n);
}

// Spans that overlap others of their replica, and may begin before another ends, are written as separate begin and
// end events.
static mu_status write_beside(mu_file_writer *file, const struct span *span, uint64_t id, bool last)
{
    char begin[32], end[32], duration[32], request[48] = "", name[256], line[1200];
    const long process = (long)getpid();
    escape(name, sizeof name, span->name);
    if (span->request != 0)
        snprintf(request, sizeof request, ",\"request\":\"0x%llx\"", (unsigned long long)span->request);
    microseconds(begin, span->begin_ns);
    microseconds(end, span->end_ns);
    microseconds(duration, span->end_ns - span->begin_ns);
    const int n =
        snprintf(line, sizeof line,
                 "{\"ph\":\"b\",\"name\":\"%s\",\"cat\":\"%s\",\"id\":%llu,\"pid\":%ld,\"tid\":%d,\"ts\":%s,"
                 "\"args\":{\"dur\":%s%s}},\n"
                 "{\"ph\":\"e\",\"name\":\"%s\",\"cat\":\"%s\",\"id\":%llu,\"pid\":%ld,\"tid\":%d,"
                 "\"ts\":%s}%s\n",
                 name, span->category, (unsigned long long)id, process, span->replica, begin, duration, request, name,
                 span->category, (unsigned long long)id, process, span->replica, end, last ? "" : ",");
    return mu__file_write(file, line, (size_t)n);
}

static mu_status write_thread_name(mu_file_writer *file, int replica)
{
    char line[200], name[40];
    if (replica < 0)
        snprintf(name, sizeof name, "host");
    else
        snprintf(name, sizeof name, "replica %d", replica);
    const int n =
        snprintf(line, sizeof line,
                 "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%ld,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
                 (long)getpid(), replica, name);
    return mu__file_write(file, line, (size_t)n);
}

static mu_status write_all(mu_file_writer *file, const struct mu_timeline *timeline)
{
    static const char head[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", tail[] = "]}\n";
    bool named[MOST_REPLICAS_NAMED + 1] = {false};
    MU_TRY(mu__file_write(file, head, sizeof head - 1));
    const uint64_t first = timeline->n > MOST_SPANS ? timeline->n - MOST_SPANS : 0;
    for (uint64_t i = first; i < timeline->n; i++) {
        const struct span *span = &timeline->ring[i % MOST_SPANS];
        if (span->replica >= -1 && span->replica < MOST_REPLICAS_NAMED && !named[span->replica + 1]) {
            named[span->replica + 1] = true;
            MU_TRY(write_thread_name(file, span->replica));
        }
        const bool beside = span->request != 0 || strcmp(span->category, MU_SPAN_BESIDE) == 0;
        const bool end = i + 1 == timeline->n;
        MU_TRY(beside ? write_beside(file, span, i, end) : write_span(file, span, end));
    }
    return mu__file_write(file, tail, sizeof tail - 1);
}

mu_status mu__timeline_write(const mu_runtime *runtime)
{
    struct mu_timeline *timeline = runtime->timeline;
    if (timeline == NULL)
        return MU_OK;
    char *name = file_name(runtime);
    mu_file_writer *file = name != NULL ? mu__file_create(name) : NULL;
    mu__free(name);
    if (file == NULL)
        return mu_error_code();
    pthread_mutex_lock(&timeline->lock);
    const mu_status status = write_all(file, timeline);
    if (timeline->n > MOST_SPANS)
        mu__log(MU_LOG_WARNING, "the timeline keeps the last %d of %llu spans", MOST_SPANS,
                (unsigned long long)timeline->n);
    pthread_mutex_unlock(&timeline->lock);
    if (status == MU_OK)
        return mu__file_commit(file);
    mu__file_abandon(file);
    return status;
}

mu_status mu__trace_write(void)
{
    const mu_runtime *runtime = mu__runtime_present();
    return runtime != NULL ? mu__timeline_write(runtime) : MU_OK;
}
