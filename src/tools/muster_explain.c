// `muster explain FILE`: shows where a traced run spent its time, from the timeline that MUSTER_TRACE writes.
//
// For each replica, the time between its first and last span is split into kernels, collectives (including waits for
// slower replicas), waiting for input, and the rest (overhead between kernels). Then follow the share of gradient
// reductions that overlapped with other work, and the kernels that took longest, over all replicas. The file is in
// Chrome's trace format; files of other programs are accepted too.
#include "tools/tools.h"

#include <jansson.h>
#include <stdlib.h>

#define TRACE_LIMIT ((size_t)1 << 30)

// All spans of one name, over all replicas.
typedef struct kernel_row {
    const char *name; // borrowed from the JSON
    int64_t count;
    double us;
} kernel_row;

typedef struct interval {
    double begin, end;
} interval;

typedef struct intervals {
    interval *items;
    size_t n, capacity;
} intervals;

typedef struct replica_row {
    int64_t id;
    double first, last; // microseconds of the trace's clock
    double kernels, collectives, input;
    intervals under_way, waits; // reductions that run during the replica's work, and its own time in collectives
} replica_row;

typedef struct explained {
    struct {
        kernel_row *items;
        size_t n, capacity;
    } kernels;
    struct {
        replica_row *items;
        size_t n, capacity;
    } replicas;
} explained;

static replica_row *replica_of(explained *e, int64_t id, double begin)
{
    for (size_t i = 0; i < e->replicas.n; i++)
        if (e->replicas.items[i].id == id)
            return &e->replicas.items[i];
    const replica_row fresh = {.id = id, .first = begin, .last = begin};
    return MU_PUSH(&e->replicas, fresh) == MU_OK ? &e->replicas.items[e->replicas.n - 1] : NULL;
}

static mu_status add_kernel(explained *e, const char *name, double us)
{
    for (size_t i = 0; i < e->kernels.n; i++)
        if (strcmp(e->kernels.items[i].name, name) == 0) {
            e->kernels.items[i].count++;
            e->kernels.items[i].us += us;
            return MU_OK;
        }
    const kernel_row fresh = {.name = name, .count = 1, .us = us};
    return MU_PUSH(&e->kernels, fresh);
}

static mu_status add_interval(intervals *list, double begin, double us)
{
    const interval one = {.begin = begin, .end = begin + us};
    return MU_PUSH(list, one);
}

// A reduction that runs during the replica's work: two events, of which the first has the duration.
static mu_status add_reduction(explained *e, const json_t *event)
{
    const double begin = json_number_value(json_object_get(event, "ts"));
    const double us = json_number_value(json_object_get(json_object_get(event, "args"), "dur"));
    replica_row *replica = replica_of(e, json_integer_value(json_object_get(event, "tid")), begin);
    return replica ? add_interval(&replica->under_way, begin, us) : MU_RESOURCE_EXHAUSTED;
}

static mu_status add_span(explained *e, const json_t *event)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    const char *name = json_string_value(json_object_get(event, "name"));
    const char *category = json_string_value(json_object_get(event, "cat"));
    if (!phase || !name || !category)
        return MU_OK;
    if (strcmp(phase, "b") == 0 && strcmp(category, MU_SPAN_BESIDE) == 0)
        return add_reduction(e, event);
    if (strcmp(phase, "X") != 0)
        return MU_OK;
    const double begin = json_number_value(json_object_get(event, "ts"));
    const double us = json_number_value(json_object_get(event, "dur"));
    replica_row *replica = replica_of(e, json_integer_value(json_object_get(event, "tid")), begin);
    if (!replica)
        return MU_RESOURCE_EXHAUSTED;
    replica->first = MU_MIN(replica->first, begin);
    replica->last = MU_MAX(replica->last, begin + us);
    if (strcmp(category, "collective") == 0) {
        replica->collectives += us;
        MU_TRY(add_interval(&replica->waits, begin, us));
    }
    if (strcmp(category, "input") == 0)
        replica->input += us;
    if (strcmp(category, "op") != 0)
        return MU_OK;
    replica->kernels += us;
    return add_kernel(e, name, us);
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const kernel_row *)a)->us, y = ((const kernel_row *)b)->us;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = ((const replica_row *)a)->id, y = ((const replica_row *)b)->id;
    return x < y ? -1 : x > y;
}

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static void print_replicas(const explained *e)
{
    printf("%-8s %12s %9s %12s %11s %10s\n", "replica", "time", "kernels", "collectives", "input wait", "the rest");
    for (size_t i = 0; i < e->replicas.n; i++) {
        const replica_row *r = &e->replicas.items[i];
        const double whole = r->last - r->first;
        printf("%-8lld %9.3f s  %7.1f%% %11.1f%% %10.1f%% %9.1f%%\n", (long long)r->id, whole / 1e6,
               share(r->kernels, whole), share(r->collectives, whole), share(r->input, whole),
               share(whole - r->kernels - r->collectives - r->input, whole));
    }
}

// The replica that waits least in collectives is the one that the others wait for.
static void print_cause(const explained *e)
{
    const replica_row *least = &e->replicas.items[0], *most = least;
    for (size_t i = 1; i < e->replicas.n; i++) {
        const replica_row *r = &e->replicas.items[i];
        least = r->collectives < least->collectives ? r : least;
        most = r->collectives > most->collectives ? r : most;
    }
    const double whole = most->last - most->first, waited = share(most->collectives - least->collectives, whole);
    const double input = share(most->input, whole),
                 outside = share(whole - most->kernels - most->collectives - most->input, whole);
    if (e->replicas.n > 1 && waited > 5)
        printf("\nreplica %lld waits %.0f%% of its time for replica %lld, which is slower\n", (long long)most->id,
               waited, (long long)least->id);
    if (input > 5)
        printf("\n%.0f%% of the time replica %lld waits for input: prefetch it (mu_dataset_prefetch), cache it, or map "
               "in parallel\n",
               input, (long long)most->id);
    if (outside > 20)
        printf(
            "\n%.0f%% of the time no kernel ran: steps are very short, or the program does other work between them\n",
            outside);
}

// ---- Overlap ------------------------------------------------------------------------------------

static int by_begin(const void *a, const void *b)
{
    const double x = ((const interval *)a)->begin, y = ((const interval *)b)->begin;
    return x < y ? -1 : x > y;
}

// Sorts intervals and merges those that touch; returns their total time.
static double join_intervals(intervals *list)
{
    size_t n = 0;
    double all = 0;
    if (list->n > 0)
        qsort(list->items, list->n, sizeof *list->items, by_begin);
    for (size_t i = 0; i < list->n; i++)
        if (n > 0 && list->items[i].begin <= list->items[n - 1].end)
            list->items[n - 1].end = MU_MAX(list->items[n - 1].end, list->items[i].end);
        else
            list->items[n++] = list->items[i];
    list->n = n;
    for (size_t i = 0; i < n; i++)
        all += list->items[i].end - list->items[i].begin;
    return all;
}

static double time_in_both(const intervals *a, const intervals *b)
{
    double both = 0;
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        both += MU_MAX(MU_MIN(a->items[i].end, b->items[k].end) - MU_MAX(a->items[i].begin, b->items[k].begin), 0);
        if (a->items[i].end < b->items[k].end)
            i++;
        else
            k++;
    }
    return both;
}

static void print_hidden(explained *e)
{
    for (size_t i = 0; i < e->replicas.n; i++) {
        replica_row *r = &e->replicas.items[i];
        const double under_way = join_intervals(&r->under_way);
        join_intervals(&r->waits);
        if (under_way > 0)
            printf("%sreplica %lld: gradients were being reduced for %.3f s, %.0f%% of it hidden behind its own work\n",
                   i == 0 ? "\n" : "", (long long)r->id, under_way / 1e6,
                   100 - share(time_in_both(&r->under_way, &r->waits), under_way));
    }
}

static void print_kernels(const explained *e)
{
    double all = 0;
    for (size_t i = 0; i < e->kernels.n; i++)
        all += e->kernels.items[i].us;
    printf("\n%-32s %10s %12s %10s\n", "kernel", "count", "mean", "share");
    for (size_t i = 0; i < e->kernels.n && i < 15; i++) {
        const kernel_row *k = &e->kernels.items[i];
        mu__tool_print_name(k->name, 32);
        printf(" %10lld %9.1f us %9.1f%%\n", (long long)k->count, k->us / (double)k->count, share(k->us, all));
    }
}

static mu_status collect(const json_t *root, const char *path, explained *e)
{
    const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents"), *event;
    size_t i;
    if (!json_is_array(events))
        return mu__error(MU_DATA_LOSS,
                         "'%s' has no list \"traceEvents\"; it is not a timeline as MUSTER_TRACE writes it", path);
    json_array_foreach(events, i, event) MU_TRY(add_span(e, event));
    if (e->replicas.n == 0)
        return mu__error(MU_DATA_LOSS, "'%s' has no spans: did the program run a traced function?", path);
    qsort(e->kernels.items, e->kernels.n, sizeof *e->kernels.items, by_time);
    qsort(e->replicas.items, e->replicas.n, sizeof *e->replicas.items, by_id);
    return MU_OK;
}

static bool run(const mu_tool_arguments *a)
{
    void *text = NULL;
    size_t bytes = 0;
    json_error_t problem;
    explained e = {0};
    const char *path = a->operands[0];
    if (mu__file_read(path, TRACE_LIMIT, &text, &bytes) != MU_OK)
        return false;
    json_t *root = json_loadb(text, bytes, 0, &problem);
    mu__free(text);
    if (!root)
        mu__error(MU_DATA_LOSS, "'%s' is not JSON: line %d, %s", path, problem.line, problem.text);
    else if (collect(root, path, &e) == MU_OK) {
        print_replicas(&e);
        print_cause(&e);
        print_hidden(&e);
        print_kernels(&e);
    }
    for (size_t i = 0; i < e.replicas.n; i++) {
        mu__free(e.replicas.items[i].under_way.items);
        mu__free(e.replicas.items[i].waits.items);
    }
    mu__free(e.kernels.items);
    mu__free(e.replicas.items);
    json_decref(root);
    return !mu__pending();
}

const mu_tool_command mu__tool_explain = {
    .name = "muster explain",
    .usage = "FILE",
    .summary = "show where the time went, from the timeline that MUSTER_TRACE=FILE writes",
    .description = "Reads a timeline that a program wrote because MUSTER_TRACE was set, and prints for each replica "
                   "the share of its time in kernels, in collectives (including waits for slower replicas), in waits "
                   "for input, and in the rest. Then it names what slows the run down, prints the share of gradient "
                   "reductions that overlapped with other work, and lists the kernels that took longest.",
    .example = "MUSTER_TRACE=trace.json ./program\nmuster explain trace.json\n",
    .needs = "it needs the name of one file, a timeline written with MUSTER_TRACE=FILE",
    .fewest = 1,
    .most = 1,
    .run = run,
};
