// `muster doctor`: run in every process of a cluster, it checks that they reach each other, and how fast.
//
// The processes join as a strategy's would, with the same key, and measure all pairs; pairs without a common process
// run at the same time. Rank 0 prints one table, or JSON, and names outliers. A missing or silent process is an error
// that names it. Does not depend on how training uses the network.
#include "cluster/cluster.h"
#include "kernels/kernels.h"
#include "tools/doctor.h"
#include "tools/tools.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

// A rank is an outlier if its median is worse than that of the other pairs by this factor, and round trips also by
// SLOW_LEAST_US.
#define SLOW_FACTOR   3.0
#define SLOW_LEAST_US 200 // on one host a smaller difference only shows which ranks share a core
#define LOST_LEAST    0.7 // percent; more than about two of a pair's messages
#define CLOCK_LIMIT   1.0
enum { MOST_RANKS = 512, MOST_TEXT = 500 };

typedef struct request {
    bool json;
    double seconds; // longest wait, in seconds
} request;

// What a process reports about itself.
typedef struct self {
    char host[64], version[32], kernels[16];
    int32_t cores, process;
} self;

typedef struct report {
    mu_mesh *mesh;
    int ranks, n_pairs;
    double join_seconds;
    const char *protection;
    self *selves;
    const char **addresses;
    mu_doctor_pair *pairs;
} report;

// ---- Members ------------------------------------------------------------------------------------

// Ranks are ordered: the chief, the workers, then the other jobs by name.
static int job_order(const char *job) { return strcmp(job, "chief") == 0 ? 0 : strcmp(job, "worker") == 0 ? 1 : 2; }

static mu_status list_tasks(const mu_cluster_spec *spec, mu_mesh_peer *peers, int *n, const char *type, int id,
                            int *rank)
{
    for (int order = 0; order < 3; order++)
        for (int j = 0; j < mu_cluster_spec_job_count(spec); j++) {
            const char *job = mu_cluster_spec_job(spec, j);
            for (int i = 0; job_order(job) == order && i < mu_cluster_spec_num_tasks(spec, job); i++) {
                if (*n == MOST_RANKS)
                    return mu__error(MU_INVALID_ARGUMENT, "the cluster has more than %d tasks; check a part of it",
                                     MOST_RANKS);
                const int index = mu_cluster_spec_task_index(spec, job, i);
                char name[MU_MAX_NAME + 40];
                snprintf(name, sizeof name, "/job:%s/task:%d", job, index);
                peers[*n].name = mu__text_give(name);
                peers[*n].address = mu_cluster_spec_task_address(spec, job, index);
                if (peers[*n].name == NULL || peers[*n].address == NULL)
                    return mu_error_code();
                if (type != NULL && strcmp(job, type) == 0 && index == id)
                    *rank = *n;
                ++*n;
            }
        }
    return MU_OK;
}

static mu_status find_task(mu_mesh_peer *peers, int *n, int *rank)
{
    mu_cluster *cluster = mu_cluster_from_environment();
    mu_cluster_spec *spec = cluster != NULL ? mu_cluster_get_spec(cluster) : NULL;
    if (spec == NULL)
        return mu_error_code();
    const char *type = mu_cluster_task_type(cluster);
    *rank = -1;
    MU_TRY(mu_error_code());
    MU_TRY(list_tasks(spec, peers, n, type, mu_cluster_task_id(cluster), rank));
    if (*n > 1 && *rank < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s names a cluster of %d tasks, but not which of them this process is; start `muster doctor` "
                         "in each of them",
                         mu_cluster_source(cluster), *n);
    return MU_OK;
}

static mu_status join(const mu_mesh_peer *peers, int n, int rank, double seconds, report *out)
{
    char *key = NULL;
    MU_TRY(mu__mesh_key(&key));
    const bool plain = !mu__setting_bool(MU_SETTING_ENCRYPT);
    const mu_mesh_options options = {.rank = rank,
                                     .ranks = n,
                                     .peers = peers,
                                     .key = key,
                                     .plain = plain,
                                     .join_seconds = seconds,
                                     .greeting = "muster doctor"};
    out->protection = key == NULL ? "not protected: no key"
                      : plain     ? "key proven, not encrypted"
                                  : "encrypted, TLS 1.3";
    const int64_t begin = mu__now_ns();
    out->mesh = mu__mesh_join(&options);
    out->join_seconds = (double)(mu__now_ns() - begin) / 1e9;
    mu__free(key);
    return out->mesh != NULL ? MU_OK : mu_error_code();
}

// ---- Measuring ----------------------------------------------------------------------------------

static mu_status share_selves(report *r)
{
    self own = {.cores = mu__runtime_threads(mu__runtime()), .process = (int32_t)getpid()};
    mu_blocks blocks;
    if (gethostname(own.host, sizeof own.host - 1) != 0)
        own.host[0] = '?';
    snprintf(own.version, sizeof own.version, "%s", mu_version());
    snprintf(own.kernels, sizeof own.kernels, "%s", mu__kernels()->isa);
    MU_TRY(mu__mesh_exchange(r->mesh, "doctor: who I am", &own, sizeof own, &blocks));
    mu_status status = MU_OK;
    for (int rank = 0; rank < r->ranks && status == MU_OK; rank++) {
        if (blocks.bytes[rank] != sizeof own)
            status =
                mu__error(MU_FAILED_PRECONDITION, "%s runs another build of the doctor", mu__mesh_name(r->mesh, rank));
        else
            memcpy(&r->selves[rank], blocks.data[rank], sizeof own);
        r->selves[rank].host[sizeof own.host - 1] = r->selves[rank].version[sizeof own.version - 1] = '\0';
        r->selves[rank].kernels[sizeof own.kernels - 1] = '\0';
    }
    mu__blocks_free(&blocks);
    return status;
}

// Whether a received measurement is plausible: made by its sender, with another process, and finite.
static bool can_be(const mu_doctor_pair *pair, int from, int ranks)
{
    return pair->from == from && pair->to >= 0 && pair->to < ranks && pair->to != from &&
           isfinite(pair->round_trip_us) && isfinite(pair->slowest_us) && isfinite(pair->out_mb_s) &&
           isfinite(pair->in_mb_s) && isfinite(pair->resent) && isfinite(pair->clock_s);
}

// Sends the measurements of one round to all processes.
static mu_status share_pair(report *r, const mu_doctor_pair *own)
{
    mu_blocks blocks;
    const bool mine = own->from != own->to && own->from == mu__mesh_rank(r->mesh);
    MU_TRY(mu__mesh_exchange(r->mesh, "doctor: a round", own, mine ? sizeof *own : 0, &blocks));
    for (int rank = 0; rank < r->ranks; rank++)
        if (blocks.bytes[rank] == sizeof *own) {
            memcpy(&r->pairs[r->n_pairs], blocks.data[rank], sizeof *own);
            r->n_pairs += can_be(&r->pairs[r->n_pairs], rank, r->ranks);
        }
    mu__blocks_free(&blocks);
    return MU_OK;
}

static mu_status measure_all(report *r, double seconds)
{
    const int rank = mu__mesh_rank(r->mesh), rounds = r->ranks + r->ranks % 2 - 1;
    MU_TRY(share_selves(r));
    for (int round = 0; round < rounds; round++) {
        const int peer = mu__mesh_partner(rank, round, r->ranks);
        mu_doctor_pair own = {.from = rank, .to = rank};
        if (peer < r->ranks)
            MU_TRY(mu__doctor_measure(r->mesh, peer, seconds, &own));
        mu__mesh_doing(r->mesh, "waiting for the other pairs", -1, NULL);
        MU_TRY(share_pair(r, &own));
    }
    return MU_OK;
}

// ---- Outliers -----------------------------------------------------------------------------------

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// A property of a pair.
typedef double measure(const mu_doctor_pair *pair);
static double round_trip(const mu_doctor_pair *pair) { return pair->round_trip_us; }
static double lower_flow(const mu_doctor_pair *pair) { return fmin(pair->out_mb_s, pair->in_mb_s); }
static double resent(const mu_doctor_pair *pair) { return 100 * pair->resent; }

// Median over one rank's pairs, or over all others. With few processes, half of all pairs may involve one slow process,
// so its pairs are excluded there.
static double median(const report *r, int rank, bool own, measure *of, double *scratch)
{
    int n = 0;
    for (int i = 0; i < r->n_pairs; i++)
        if (own == (r->pairs[i].from == rank || r->pairs[i].to == rank))
            scratch[n++] = of(&r->pairs[i]);
    qsort(scratch, (size_t)n, sizeof *scratch, by_size);
    return n > 0 ? scratch[n / 2] : 0;
}

// How far a rank's clock is ahead of rank 0's.
static double clock_of(const report *r, int rank)
{
    for (int i = 0; i < r->n_pairs; i++)
        if (r->pairs[i].from == 0 && r->pairs[i].to == rank)
            return r->pairs[i].clock_s;
    return 0;
}

// Processes of one host share its cores, so bandwidth between them says little about a network.
static bool all_on_one_host(const report *r)
{
    for (int rank = 0; rank < r->ranks; rank++)
        if (!mu__mesh_same_host(r->mesh, rank))
            return false;
    return true;
}

static void add_worry(char *text, size_t bytes, const char *format, ...) MU_PRINTF(3, 4);
static void add_worry(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    const int n = used > 0 ? snprintf(text + used, bytes - used, "; ") : 0;
    vsnprintf(text + used + n, bytes - used - (size_t)n, format, values);
    va_end(values);
}

// Compares a rank's pairs with all others. With two processes there is nothing to compare.
static void judge_network(const report *r, int rank, double *scratch, char *text, size_t bytes)
{
    const double trip = median(r, rank, true, round_trip, scratch), trips = median(r, rank, false, round_trip, scratch);
    const double flow = median(r, rank, true, lower_flow, scratch), flows = median(r, rank, false, lower_flow, scratch);
    const double lost = median(r, rank, true, resent, scratch), losses = median(r, rank, false, resent, scratch);
    if (trip > SLOW_FACTOR * trips && trip > trips + SLOW_LEAST_US)
        add_worry(text, bytes, "slow to answer: %.0f us; the median of the other pairs is %.0f us", trip, trips);
    if (all_on_one_host(r))
        return;
    if (flow * SLOW_FACTOR < flows)
        add_worry(text, bytes, "slow network: %.3g MB/s; the median of the other pairs is %.3g MB/s", flow, flows);
    if (lost > SLOW_FACTOR * losses && lost > LOST_LEAST)
        add_worry(text, bytes,
                  "its network loses packets: %.1f %% are sent again; the median of the other pairs is %.1f %%", lost,
                  losses);
}

// Writes why a rank is an outlier; "" if it is not.
static void judge(const report *r, int rank, double *scratch, char *text, size_t bytes)
{
    text[0] = '\0';
    if (r->ranks > 2)
        judge_network(r, rank, scratch, text, bytes);
    if (fabs(clock_of(r, rank)) > CLOCK_LIMIT)
        add_worry(text, bytes, "its clock is %.1f s off rank 0's; run a time service on all hosts", clock_of(r, rank));
    if (strcmp(r->selves[rank].kernels, r->selves[0].kernels) != 0)
        add_worry(text, bytes,
                  "other kernels than rank 0 (%s, %s): results differ in the last bits; MUSTER_ISA sets both",
                  r->selves[rank].kernels, r->selves[0].kernels);
}

// ---- Printing -----------------------------------------------------------------------------------

static void print_table(const report *r, double *scratch)
{
    printf("%d processes joined in %.2f s (%s)\n\n", r->ranks, r->join_seconds, r->protection);
    printf("%-5s %-24s %-24s %-16s %-8s %-7s %5s %11s\n", "rank", "task", "address", "host", "version", "kernels",
           "cores", "clock, ms");
    for (int rank = 0; rank < r->ranks; rank++) {
        const self *s = &r->selves[rank];
        printf("%-5d ", rank);
        mu__tool_print_name(mu__mesh_name(r->mesh, rank), 24);
        putchar(' ');
        mu__tool_print_name(r->addresses[rank][0] != '\0' ? r->addresses[rank] : "(told when joining)", 24);
        putchar(' ');
        mu__tool_print_name(s->host, 16);
        printf(" %-8s %-7s %5d %+11.3f\n", s->version, s->kernels, s->cores, 1e3 * clock_of(r, rank));
    }
    printf("\n%-12s %16s %16s %16s %16s %16s\n", "pair", "round trip, us", "slowest, us", "there, MB/s", "back, MB/s",
           "sent again, %");
    for (int i = 0; i < r->n_pairs; i++) {
        const mu_doctor_pair *p = &r->pairs[i];
        char name[32];
        snprintf(name, sizeof name, "%d - %d", p->from, p->to);
        printf("%-12s %16.1f %16.1f %16.0f %16.0f %16.2f\n", name, p->round_trip_us, p->slowest_us, p->out_mb_s,
               p->in_mb_s, 100 * p->resent);
    }
    int worries = 0;
    putchar('\n');
    for (int rank = 0; rank < r->ranks; rank++) {
        char text[MOST_TEXT];
        judge(r, rank, scratch, text, sizeof text);
        if (text[0] != '\0')
            printf("rank %d, %s: %s\n", rank, mu__mesh_name(r->mesh, rank), text);
        worries += text[0] != '\0';
    }
    if (worries == 0)
        puts("Nothing stands out.");
}

static mu_status print_json(const report *r, double *scratch)
{
    json_t *tasks = json_array(), *pairs = json_array();
    for (int rank = 0; rank < r->ranks; rank++) {
        const self *s = &r->selves[rank];
        char text[MOST_TEXT];
        judge(r, rank, scratch, text, sizeof text);
        json_array_append_new(tasks, json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:i,s:f,s:s}", "rank", rank, "task",
                                               mu__mesh_name(r->mesh, rank), "address", r->addresses[rank], "host",
                                               s->host, "version", s->version, "kernels", s->kernels, "cores",
                                               (int)s->cores, "clock_seconds", clock_of(r, rank), "worry", text));
    }
    for (int i = 0; i < r->n_pairs; i++) {
        const mu_doctor_pair *p = &r->pairs[i];
        json_array_append_new(pairs, json_pack("{s:i,s:i,s:f,s:f,s:f,s:f,s:f,s:f}", "from", (int)p->from, "to",
                                               (int)p->to, "round_trip_us", p->round_trip_us, "slowest_us",
                                               p->slowest_us, "out_mb_s", p->out_mb_s, "in_mb_s", p->in_mb_s, "resent",
                                               p->resent, "clock_seconds", p->clock_s));
    }
    json_t *all = json_pack("{s:i,s:f,s:s,s:o,s:o}", "processes", r->ranks, "join_seconds", r->join_seconds,
                            "protection", r->protection, "tasks", tasks, "pairs", pairs);
    const bool good = all != NULL && json_dumpf(all, stdout, JSON_COMPACT) == 0;
    putchar('\n');
    json_decref(all);
    return good ? MU_OK : mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the report");
}

static int by_ranks(const void *a, const void *b)
{
    const mu_doctor_pair *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static mu_status print_report(const report *r, const request *wanted)
{
    if (mu__mesh_rank(r->mesh) != 0)
        return MU_OK;
    double *scratch = mu__calloc((size_t)r->n_pairs + 1, sizeof *scratch);
    if (scratch == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = MU_OK;
    qsort(r->pairs, (size_t)r->n_pairs, sizeof *r->pairs, by_ranks);
    if (wanted->json)
        status = print_json(r, scratch);
    else
        print_table(r, scratch);
    mu__free(scratch);
    return status;
}

// ---- The command --------------------------------------------------------------------------------

enum { JSON, TIMEOUT };

static const mu_tool_option options[] = {
    [JSON] = {.name = "json", .text = "print JSON instead of a table"},
    [TIMEOUT] = {.name = "timeout",
                 .value = "SECONDS",
                 .initial = "30",
                 .text = "longest wait for the other processes"},
    {.text = NULL},
};

static mu_status read_arguments(const mu_tool_arguments *a, request *out)
{
    out->json = a->values[JSON] != NULL;
    return mu__tool_number(a, TIMEOUT, "seconds", 1, 1e6, &out->seconds);
}

static mu_status examine(const mu_mesh_peer *peers, int n, int rank, const request *wanted)
{
    report r = {.ranks = n};
    const size_t most_pairs = (size_t)n * (size_t)n; // each process contributes one pair per round
    r.selves = mu__calloc((size_t)n, sizeof *r.selves);
    r.pairs = mu__calloc(most_pairs, sizeof *r.pairs);
    r.addresses = mu__calloc((size_t)n, sizeof *r.addresses);
    mu_status status = r.selves != NULL && r.pairs != NULL && r.addresses != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n && status == MU_OK; i++)
        r.addresses[i] = peers[i].address;
    if (status == MU_OK)
        status = join(peers, n, rank, wanted->seconds, &r);
    if (status == MU_OK)
        status = measure_all(&r, wanted->seconds);
    if (status == MU_OK)
        status = print_report(&r, wanted);
    mu_release(r.mesh);
    mu__free(r.selves);
    mu__free(r.pairs);
    mu__free(r.addresses);
    return status;
}

static bool run(const mu_tool_arguments *a)
{
    request wanted;
    mu_mesh_peer *peers = mu__calloc(MOST_RANKS, sizeof *peers);
    int tasks = 0, rank = -1;
    bool good = peers != NULL && read_arguments(a, &wanted) == MU_OK && find_task(peers, &tasks, &rank) == MU_OK;
    if (good && tasks < 2) {
        puts(wanted.json ? "{\"processes\":1,\"tasks\":[],\"pairs\":[]}"
                         : "This process is alone: no cluster is set (MUSTER_CLUSTER, TF_CONFIG, RANK, MPI, Slurm), so "
                           "there is nothing to check.\nTry `muster launch -n 4 -- muster doctor`.");
    } else if (good) {
        good = examine(peers, tasks, rank, &wanted) == MU_OK;
    }
    mu__free(peers);
    return good;
}

const mu_tool_command mu__tool_doctor = {
    .name = "muster doctor",
    .usage = "[--json] [--timeout SECONDS]",
    .summary = "check in each process of a cluster whether all reach each other, and how fast",
    .description =
        "Run in each process of a cluster, in place of the program. The processes join as a strategy's would, with the "
        "same key, and measure the network between each pair. Rank 0 prints one table: hosts, versions, cores and "
        "clocks, then round trips and bandwidth, then what stands out: a slow or lossy network, a clock that is off, "
        "kernels that differ. A process that is missing or silent is an error that names it.",
    .example = "muster launch -n 4 -- muster doctor\n",
    .options = options,
    .run = run,
};
