// `muster bench allreduce`: measures all-reduce by message size and prints the columns of nccl-tests.
//
// A single process measures its threads; in a cluster (muster launch, mpirun) it measures all replicas of all
// processes. It joins as a MultiWorkerMirroredStrategy does, so paths, protection and algorithms are those of training.
// The data is in the kind of memory that gradients use; out of place means that it is copied there first. Independent
// of algorithms.
#include "distribute/distribute.h"
#include "kernels/kernels.h"
#include "tools/tools.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>

// The test pattern repeats after PERIOD elements, a prime, so that no slice has a whole number of periods.
enum { PERIOD = 97, NUMBER = 1 };

typedef struct request {
    int64_t min_bytes, max_bytes, step_bytes;
    double factor; // 1: sizes grow by step_bytes instead
    int iterations, warm_ups, threads, per_thread;
    bool check;
    const char *type, *operation; // names of dtype and reduction
    mu_dtype dtype;
    mu_reduction reduction;
    mu_communication_options options;
} request;

// ---- Arguments ----------------------------------------------------------------------------------

enum {
    MIN_BYTES,
    MAX_BYTES,
    STEP_BYTES,
    FACTOR,
    ITERATIONS,
    WARM_UPS,
    THREADS,
    PER_THREAD,
    DATATYPE,
    OPERATION,
    CHECK,
    COMMUNICATION,
    ALGORITHMS,
    DETERMINISTIC
};

// nccl-tests' names of element types and reductions.
static const char *const type_names[] = {"float", "double", "half",  "bfloat16", "int8",
                                         "uint8", "int16",  "int32", "int64",    NULL};
static const mu_dtype types[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I8, MU_U8, MU_I16, MU_I32, MU_I64};
static const char *const reduction_names[] = {"sum", "avg", "min", "max", NULL};
static const mu_reduction reductions[] = {MU_REDUCTION_SUM, MU_REDUCTION_MEAN, MU_REDUCTION_MIN, MU_REDUCTION_MAX};
static const char *const communications[] = {
    [MU_COMM_AUTO] = "AUTO", [MU_COMM_RING] = "RING", [MU_COMM_NCCL] = "NCCL",
    [MU_COMM_MPI] = "MPI",   [MU_COMM_UCX] = "UCX",   [MU_COMM_UCX + 1] = NULL};

// Letters and long names are those of nccl-tests.
static const mu_tool_option options[] = {
    [MIN_BYTES] = {.letter = 'b',
                   .name = "minbytes",
                   .value = "BYTES",
                   .initial = "32M",
                   .text = "smallest message; K, M and G are powers of 1024"},
    [MAX_BYTES] = {.letter = 'e', .name = "maxbytes", .value = "BYTES", .text = "largest message; default: -b or 32M"},
    [STEP_BYTES] = {.letter = 'i',
                    .name = "stepbytes",
                    .value = "BYTES",
                    .initial = "1M",
                    .text = "difference between two sizes, without -f"},
    [FACTOR] = {.letter = 'f',
                .name = "stepfactor",
                .value = "FACTOR",
                .text = "ratio of two sizes, instead of -i; above 1"},
    [ITERATIONS] = {.letter = 'n', .name = "iters", .value = "N", .initial = "20", .text = "measured calls per size"},
    [WARM_UPS] =
        {.letter = 'w', .name = "warmup_iters", .value = "N", .initial = "5", .text = "calls before the measured ones"},
    [THREADS] = {.letter = 't',
                 .name = "nthreads",
                 .value = "N",
                 .text = "threads of each process; default: one per device"},
    [PER_THREAD] = {.letter = 'g', .name = "ngpus", .value = "N", .initial = "1", .text = "replicas of each thread"},
    [DATATYPE] = {.letter = 'd',
                  .name = "datatype",
                  .value = "TYPE",
                  .initial = "float",
                  .choices = type_names,
                  .text = "element type"},
    [OPERATION] = {.letter = 'o',
                   .name = "op",
                   .value = "NAME",
                   .initial = "sum",
                   .choices = reduction_names,
                   .text = "reduction"},
    [CHECK] = {.letter = 'c', .name = "check", .value = "N", .initial = "1", .text = "check the results; 0: do not"},
    [COMMUNICATION] = {.name = "communication",
                       .value = "NAME",
                       .initial = "AUTO",
                       .choices = communications,
                       .text = "implementation"},
    [ALGORITHMS] = {.name = "algorithms",
                    .value = "POLICY",
                    .text = "algorithm by size, such as allreduce:0-16k:slots,16k-:direct"},
    [DETERMINISTIC] = {.name = "deterministic", .text = "add in the order of the replicas"},
    {.text = NULL},
};

// Parses "8", "128M", "1G": bytes, where K, M and G are powers of 1024.
static mu_status read_bytes(const mu_tool_arguments *a, int option, int64_t *out)
{
    const char *text = a->values[option];
    char *end = NULL;
    const double value = strtod(text, &end);
    const char *const units = "kmg", *unit = *end ? strchr(units, *end | 0x20) : NULL;
    const double bytes = unit ? value * (double)(1 << 10 * (unit - units + 1)) : value;
    if (end == text || (*end && (!unit || end[1])) || !(bytes >= 1 && bytes <= (double)((int64_t)1 << 40)))
        return mu__tool_wrong(a, option, "a number of bytes from 1 to 1024G, such as 8, 64K or 128M");
    *out = (int64_t)bytes;
    return MU_OK;
}

static mu_status read_sizes(const mu_tool_arguments *a, request *out)
{
    const int64_t element = (int64_t)mu_dtype_bytes(out->dtype);
    char *end = NULL;
    MU_TRY(read_bytes(a, MIN_BYTES, &out->min_bytes));
    MU_TRY(read_bytes(a, STEP_BYTES, &out->step_bytes));
    out->min_bytes = MU_MAX(out->min_bytes, element);
    out->max_bytes = MU_MAX(out->min_bytes, (int64_t)32 << 20);
    if (a->values[MAX_BYTES])
        MU_TRY(read_bytes(a, MAX_BYTES, &out->max_bytes));
    if (out->max_bytes < out->min_bytes)
        return mu__error(MU_INVALID_ARGUMENT, "muster bench: -e is %lld, less than -b with %lld bytes",
                         (long long)out->max_bytes, (long long)out->min_bytes);
    out->factor = a->values[FACTOR] ? strtod(a->values[FACTOR], &end) : 1;
    if (a->values[FACTOR] && (end == a->values[FACTOR] || *end || !(out->factor > 1 && out->factor <= 1e6)))
        return mu__tool_wrong(a, FACTOR, "a number above 1");
    return MU_OK;
}

static mu_status read_choices(const mu_tool_arguments *a, request *out)
{
    const int type = mu__tool_choice(a, DATATYPE), reduction = mu__tool_choice(a, OPERATION),
              communication = mu__tool_choice(a, COMMUNICATION);
    if (type < 0 || reduction < 0 || communication < 0)
        return mu_error_code();
    out->type = type_names[type];
    out->dtype = types[type];
    out->operation = reduction_names[reduction];
    out->reduction = reductions[reduction];
    out->options = (mu_communication_options){.size = sizeof out->options,
                                              .implementation = (mu_communication)communication,
                                              .algorithms = a->values[ALGORITHMS],
                                              .deterministic = a->values[DETERMINISTIC] != NULL};
    return MU_OK;
}

static mu_status read_request(const mu_tool_arguments *a, request *out)
{
    int check = 1;
    *out = (request){0};
    if (strcmp(a->operands[0], "allreduce") != 0)
        return mu__error(MU_INVALID_ARGUMENT, "muster bench: '%s' cannot be measured; usage: muster bench %s",
                         a->operands[0], a->command->usage);
    MU_TRY(read_choices(a, out));
    MU_TRY(read_sizes(a, out));
    MU_TRY(mu__tool_whole(a, ITERATIONS, 1, 1000000000, &out->iterations));
    MU_TRY(mu__tool_whole(a, WARM_UPS, 0, 1000000000, &out->warm_ups));
    if (a->values[THREADS])
        MU_TRY(mu__tool_whole(a, THREADS, 1, MU_MAX_REPLICAS, &out->threads));
    MU_TRY(mu__tool_whole(a, PER_THREAD, 1, MU_MAX_REPLICAS, &out->per_thread));
    MU_TRY(mu__tool_whole(a, CHECK, 0, 1000, &check));
    out->check = check != 0;
    return MU_OK;
}

// ---- One replica --------------------------------------------------------------------------------

typedef struct table {
    const request *request;
    mu_group *group;
    mu_latch done;
    double bus_sum; // over all rows
    int64_t bus_rows, wrong;
} table;

typedef struct member {
    table *table;
    mu_collective *collective;
    mu_buffer *shared; // owner of `data`; NULL: `data` is ordinary memory
    void *data, *input;
    double expected[PERIOD];
    mu_status status;
    mu_error_value error;
} member;

// The result of one mode (in place or out of place), over all replicas.
typedef struct result {
    double microseconds;
    int64_t wrong;
} result;

static double value_of(const member *s, int rank, int64_t i)
{
    const int values = s->collective->size <= 60 ? 3 : 2; // small enough that every type can hold the sum
    return (double)((rank * 5 + i) % PERIOD % values);
}

// The value after rounding to the type that is reduced.
static double rounded(mu_dtype dtype, double value)
{
    uint64_t element;
    mu__write_element(dtype, &element, 0, value);
    return mu__read_element(dtype, &element, 0);
}

static void expect(member *s)
{
    const request *r = s->table->request;
    for (int64_t i = 0; i < PERIOD; i++) {
        double sum = 0, low = INFINITY, high = -INFINITY;
        for (int rank = 0; rank < s->collective->size; rank++) {
            const double value = value_of(s, rank, i);
            sum += value;
            low = fmin(low, value);
            high = fmax(high, value);
        }
        double out = r->reduction == MU_REDUCTION_MIN ? low : r->reduction == MU_REDUCTION_MAX ? high : sum;
        if (r->reduction == MU_REDUCTION_MEAN)
            out = mu__dtype_is_integer(r->dtype) ? floor(sum / s->collective->size) : sum / s->collective->size;
        s->expected[i] = rounded(r->dtype, out);
    }
}

static mu_status reduce(member *s, int64_t count)
{
    const request *r = s->table->request;
    return s->collective->all_reduce(s->collective, NUMBER, "bench", r->reduction, r->dtype, s->data, count);
}

static mu_status repeat(member *s, int64_t count, bool in_place, int times)
{
    const size_t bytes = (size_t)count * mu_dtype_bytes(s->table->request->dtype);
    for (int i = 0; i < times; i++) {
        if (!in_place)
            memcpy(s->data, s->input, bytes);
        MU_TRY(reduce(s, count));
    }
    return MU_OK;
}

static mu_status add_up(member *s, mu_reduction reduction, mu_dtype dtype, void *number)
{
    return s->collective->all_reduce(s->collective, NUMBER, "bench's result", reduction, dtype, number, 1);
}

static mu_status check(member *s, int64_t count, bool in_place, int64_t *wrong_ones)
{
    const mu_dtype dtype = s->table->request->dtype;
    void *to = in_place ? s->data : s->input;
    *wrong_ones = 0;
    if (!s->table->request->check)
        return MU_OK;
    for (int64_t i = 0; i < count; i++)
        mu__write_element(dtype, to, i, value_of(s, s->collective->rank, i));
    MU_TRY(repeat(s, count, in_place, 1));
    for (int64_t i = 0; i < count; i++)
        *wrong_ones += mu__read_element(dtype, s->data, i) != s->expected[i % PERIOD];
    return add_up(s, MU_REDUCTION_SUM, MU_I64, wrong_ones);
}

// The time is the mean over all replicas, as in nccl-tests.
static mu_status measure(member *s, int64_t count, bool in_place, result *out)
{
    const request *r = s->table->request;
    const size_t bytes = (size_t)count * mu_dtype_bytes(r->dtype);
    MU_TRY(check(s, count, in_place, &out->wrong));
    memset(s->data, 0, bytes);
    memset(s->input, 0, bytes);
    MU_TRY(repeat(s, count, in_place, r->warm_ups));
    MU_TRY(mu__collective_barrier(s->collective, NUMBER, "bench begins"));
    const int64_t begin = mu__now_ns();
    MU_TRY(repeat(s, count, in_place, r->iterations));
    out->microseconds = (double)(mu__now_ns() - begin) / 1e3 / r->iterations;
    return add_up(s, MU_REDUCTION_MEAN, MU_F64, &out->microseconds);
}

// ---- The table ----------------------------------------------------------------------------------

static void print_head(const member *s, const mu_strategy *strategy)
{
    const request *r = s->table->request;
    const char *protection = mu_strategy_worker_count(strategy) < 2                ? ""
                             : !mu__setting_bool(MU_SETTING_ENCRYPT)               ? ", not encrypted"
                             : strcmp(mu__group_path(s->table->group), "tcp") == 0 ? ", encrypted where there is a key"
                                                                                   : "";
    printf("# ranks: %d, %d in each of %d processes, through %s%s; kernels %s\n", s->collective->size,
           strategy->n_local, mu_strategy_worker_count(strategy), mu__group_path(s->table->group), protection,
           mu__kernels()->isa);
    printf("# minBytes %lld maxBytes %lld step: %.4g(%s) warmup iters: %d iters: %d validation: %d\n#\n",
           (long long)r->min_bytes, (long long)r->max_bytes, r->factor > 1 ? r->factor : (double)r->step_bytes,
           r->factor > 1 ? "factor" : "bytes", r->warm_ups, r->iterations, r->check);
    printf("#%65sout-of-place%23sin-place\n", "", "");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s\n", "size", "count", "type", "redop",
           "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s\n", "(B)", "(elements)", "", "", "", "(us)",
           "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)");
    fflush(stdout);
}

static void print_result(member *s, int64_t bytes, const result *one)
{
    const int n = s->collective->size;
    const double speed = (double)bytes / one->microseconds / 1e3, bus = speed * 2 * (n - 1) / n;
    const int digits = one->microseconds >= 10000 ? 0 : one->microseconds >= 100 ? 1 : 2;
    printf("  %7.*f  %6.2f  %6.2f ", digits, one->microseconds, speed, bus);
    if (s->table->request->check)
        printf("%6lld", (long long)one->wrong);
    else
        printf("%6s", "N/A");
    s->table->bus_sum += bus;
    s->table->bus_rows++;
    s->table->wrong += one->wrong;
}

static mu_status one_size(member *s, int64_t bytes)
{
    const request *r = s->table->request;
    const int64_t count = bytes / (int64_t)mu_dtype_bytes(r->dtype), whole = count * (int64_t)mu_dtype_bytes(r->dtype);
    result apart, in_place;
    MU_TRY(measure(s, count, false, &apart));
    MU_TRY(measure(s, count, true, &in_place));
    if (s->collective->rank != 0)
        return MU_OK;
    printf("%12lld  %12lld  %8s  %6s  %6d", (long long)whole, (long long)count, r->type, r->operation, -1);
    print_result(s, whole, &apart);
    print_result(s, whole, &in_place);
    putchar('\n');
    fflush(stdout);
    return MU_OK;
}

static mu_status all_sizes(member *s)
{
    const request *r = s->table->request;
    const size_t most = (size_t)r->max_bytes;
    s->shared = s->collective->memory != NULL ? s->collective->memory(s->collective, most) : NULL;
    s->data = s->shared != NULL ? s->shared->data : mu__alloc_data(most);
    s->input = mu__alloc_data(most);
    mu_status status = s->data != NULL && s->input != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    expect(s);
    double bytes = (double)r->min_bytes;
    while (status == MU_OK && bytes <= (double)r->max_bytes) {
        status = one_size(s, (int64_t)bytes);
        bytes = r->factor > 1 ? bytes * r->factor : bytes + (double)r->step_bytes;
    }
    // Other replicas may still read the shared memory.
    if (status == MU_OK)
        status = mu__collective_barrier(s->collective, NUMBER, "bench ends");
    mu_release(s->shared);
    if (s->shared == NULL && s->data != NULL)
        mu__free_data(s->data, most);
    if (s->input != NULL)
        mu__free_data(s->input, most);
    return status;
}

static void run_member(void *arg)
{
    member *s = arg;
    mu_context context = {0};
    s->status = mu__context_enter(&context, mu__context());
    if (s->status != MU_OK) {
        mu__error_move(&s->error);
    } else {
        s->status = all_sizes(s);
        mu__context_leave(&context, NULL, &s->error);
    }
    if (s->status != MU_OK)
        mu__group_abort(s->table->group, &s->error);
    mu__latch_arrive(&s->table->done);
}

// ---- The command --------------------------------------------------------------------------------

// The replicas run on their devices' threads, pinned as in training.
static mu_status run_all(table *t, member *members, const mu_strategy *strategy)
{
    pthread_mutex_t *devices = mu__device_order(strategy->runtime);
    mu_status status = MU_OK;
    for (int i = 0; i < strategy->n_local; i++)
        members[i] = (member){.table = t, .collective = mu__group_member(t->group, i)};
    if (members[0].collective->rank == 0)
        print_head(&members[0], strategy);
    MU_TRY(mu__latch_init(&t->done, strategy->n_local));
    pthread_mutex_lock(devices);
    for (int i = 0; i < strategy->n_local; i++) {
        mu_worker *worker = status == MU_OK ? mu__device_worker(strategy->devices[i]) : NULL;
        if (status == MU_OK)
            status = worker != NULL ? mu__worker_post(worker, run_member, &members[i]) : mu_error_code();
        if (status != MU_OK)
            mu__latch_arrive(&t->done);
    }
    pthread_mutex_unlock(devices);
    mu_error_value cause;
    mu__error_move(&cause);
    if (status != MU_OK)
        mu__group_abort(t->group, &cause);
    while (!mu__latch_done(&t->done) && mu__group_needs_service(t->group)) {
        mu__group_serve(t->group);
        sched_yield();
    }
    const mu_status waited = mu__latch_wait(&t->done, MU_FOREVER, "the replicas of muster bench");
    mu__latch_free(&t->done);
    return status != MU_OK ? mu__error_raise(&cause) : waited;
}

static mu_status verdict(const table *t, const member *members, int n)
{
    mu_error_value cause;
    if (mu__group_failed(t->group, &cause))
        return mu__error_raise(&cause);
    for (int i = 0; i < n; i++)
        if (members[i].status != MU_OK)
            return mu__error_raise(&members[i].error);
    if (members[0].collective->rank != 0)
        return MU_OK;
    printf("# Out of bounds values : %lld %s\n# Avg bus bandwidth    : %g\n#\n", (long long)t->wrong,
           t->wrong == 0 ? "OK" : "FAILED", t->bus_rows > 0 ? t->bus_sum / (double)t->bus_rows : 0);
    return t->wrong == 0 ? MU_OK
                         : mu__error(MU_INTERNAL, "muster bench allreduce: %lld elements have a wrong result",
                                     (long long)t->wrong);
}

static mu_status bench_on(const mu_strategy *strategy, const request *r)
{
    table t = {.request = r, .group = mu_retain(strategy->group)};
    member *members = mu__calloc((size_t)strategy->n_local, sizeof *members);
    if (t.group == NULL)
        t.group = mu__group_new(1, "bench"); // a strategy of one replica has no group
    mu_status status = members != NULL && t.group != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = run_all(&t, members, strategy);
    if (status == MU_OK)
        status = verdict(&t, members, strategy->n_local);
    mu_release(t.group);
    mu__free(members);
    return status;
}

static int bench_main(const mu_tool_arguments *a)
{
    request r;
    const bool read = read_request(a, &r) == MU_OK;
    const int replicas = read ? MU_MAX(r.threads, r.threads > 0 || r.per_thread > 1) * r.per_thread : 0;
    if (!read || mu_init(.cpu_devices = replicas) != MU_OK)
        return mu_exit(false);
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy(.communication_options = &r.options);
    const bool good = strategy != NULL && bench_on(strategy, &r) == MU_OK;
    const bool written = mu__tool_flush();
    return mu_exit(good && written);
}

const mu_tool_command mu__tool_bench = {
    .name = "muster bench",
    .usage = "allreduce [OPTION]...",
    .summary = "measure what an all-reduce costs, by size, in the columns of nccl-tests",
    .description = "Measures all-reduce by message size and prints the columns of nccl-tests: time, bandwidth of the "
                   "algorithm, bandwidth of the bus, and the number of wrong elements, out of place and in place. A "
                   "single process measures its threads; under muster launch or mpirun, all replicas of all processes. "
                   "Paths, protection and algorithms are those of training.",
    .example = "muster bench allreduce -b 8 -e 128M -f 2\nmuster launch -n 2 -- muster bench allreduce -t 1\n",
    .options = options,
    .needs = "it needs the name of what to measure, allreduce",
    .fewest = 1,
    .most = 1,
    .main = bench_main,
};
