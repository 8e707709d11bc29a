// Every algorithm × ranks × sizes × element types × reductions, twice: simulated in one thread (1 to 17
// ranks on one to many hosts, with stages and without, random interleavings) and by real threads (1 to 8 ranks).
// Elements are small integers, so every order of adding gives the same exact answer; a last test looks at the bits of
// fractions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_RANKS = 17, PERIOD = 5 };

static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8};

// ---- A problem of all ranks and its right answer ------------------------------------------------

typedef struct world {
    mu_collective_kind kind;
    int ranks, root, per_host;
    mu_dtype dtype;
    mu_reduction reduction;
    int64_t count;              // of one rank, before unevenness
    int64_t counts[MAX_RANKS];  // all-gather
    int64_t sources[MAX_RANKS]; // permute
    int first[MAX_RANKS + 1];   // of each host; per_host 0: one host
    void *data[MAX_RANKS], *input[MAX_RANKS];
} world;

static double element(int rank, int64_t i) { return (double)((rank * 7 + i * 3) % PERIOD + 1); }

static int64_t gathered(const world *w)
{
    int64_t total = 0;
    for (int r = 0; r < w->ranks; r++)
        total += w->counts[r];
    return total;
}

static int64_t data_count(const world *w)
{
    if (w->kind == MU_KIND_ALL_GATHER)
        return gathered(w);
    if (w->kind == MU_KIND_BARRIER)
        return 0;
    return w->kind == MU_KIND_ALL_TO_ALL ? w->count * w->ranks : w->count;
}

// Hosts are uneven: the last one has the remaining ranks.
static int hosts_of(const world *w) { return w->per_host == 0 ? 1 : (w->ranks + w->per_host - 1) / w->per_host; }

static int64_t input_count(const world *w, int rank)
{
    if (w->kind == MU_KIND_REDUCE_SCATTER)
        return w->count * w->ranks;
    return w->kind == MU_KIND_ALL_GATHER ? w->counts[rank] : data_count(w);
}

// Elements repeat after PERIOD: the first ones are written one by one, the rest copied from them, doubling each time.
static void *filled(const world *w, int rank, int64_t n, bool zero)
{
    const size_t bytes = mu_dtype_bytes(w->dtype);
    char *block = calloc((size_t)n + 1, bytes);
    assert_non_null(block);
    for (int64_t i = 0; !zero && i < MU_MIN(n, PERIOD); i++)
        mu__write_element(w->dtype, block, i, element(rank, i));
    for (int64_t i = PERIOD; !zero && i < n; i *= 2)
        memcpy(block + (size_t)i * bytes, block, (size_t)MU_MIN(i, n - i) * bytes);
    return block;
}

static world world_new(world w)
{
    for (int r = 0; r < w.ranks; r++)
        w.counts[r] = (w.count + r) % (w.count + 2); // uneven, with an empty one now and then
    for (int r = 0; r < w.ranks; r++)
        w.sources[r] = r % 3 == 1 ? -1 : (r + w.ranks / 2) % w.ranks; // some have none, some are no source
    for (int host = 0; host <= hosts_of(&w); host++)
        w.first[host] = MU_MIN(host * w.per_host, w.ranks);
    const bool in_place = w.kind == MU_KIND_ALL_REDUCE || w.kind == MU_KIND_BROADCAST;
    for (int r = 0; r < w.ranks; r++) {
        w.data[r] = filled(&w, r, data_count(&w), !in_place);
        w.input[r] = in_place ? w.data[r] : filled(&w, r, input_count(&w, r), false);
    }
    return w;
}

static void world_free(world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        if (w->input[r] != w->data[r])
            free(w->input[r]);
        free(w->data[r]);
    }
}

static double reduced(const world *w, int64_t i)
{
    double value = element(0, i);
    for (int r = 1; r < w->ranks; r++) {
        const double x = element(r, i);
        if (w->reduction == MU_REDUCTION_MIN)
            value = MU_MIN(value, x);
        else if (w->reduction == MU_REDUCTION_MAX)
            value = MU_MAX(value, x);
        else
            value += x;
    }
    if (w->reduction != MU_REDUCTION_MEAN)
        return value;
    return mu__dtype_is_float(w->dtype) ? value / w->ranks : (double)((int64_t)value / w->ranks);
}

static double expected(const world *w, int rank, int64_t i)
{
    if (w->kind == MU_KIND_BROADCAST)
        return element(w->root, i);
    if (w->kind == MU_KIND_ALL_TO_ALL)
        return element((int)(i / w->count), rank * w->count + i % w->count);
    if (w->kind == MU_KIND_ALL_REDUCE)
        return reduced(w, i);
    if (w->kind == MU_KIND_REDUCE_SCATTER)
        return reduced(w, rank * w->count + i);
    if (w->kind == MU_KIND_PERMUTE)
        return w->sources[rank] < 0 ? 0 : element((int)w->sources[rank], i);
    int from = 0;
    for (; i >= w->counts[from]; from++)
        i -= w->counts[from];
    return element(from, i);
}

// If elements that should repeat after PERIOD do, checking the first period is enough.
static void check_run(const world *w, int rank, const char *algorithm, int64_t first, int64_t n)
{
    const size_t bytes = mu_dtype_bytes(w->dtype);
    const char *data = w->data[rank], *run = data + (size_t)first * bytes;
    int64_t one_by_one = n;
    if (n > PERIOD && memcmp(run, run + PERIOD * bytes, (size_t)(n - PERIOD) * bytes) == 0)
        one_by_one = PERIOD;
    for (int64_t i = first; i < first + one_by_one; i++) {
        const double value = expected(w, rank, i);
        double wanted[1] = {0};
        mu__write_element(w->dtype, wanted, 0, w->dtype == MU_F64 ? value : (double)(float)value);
        if (memcmp(wanted, data + (size_t)i * bytes, bytes) != 0)
            fail_msg("%s %s %s, %d ranks, %lld elements, reduction %d: rank %d has %g at %lld, not %g",
                     mu__kind_name(w->kind), algorithm, mu_dtype_name(w->dtype), w->ranks, (long long)w->count,
                     (int)w->reduction, rank, mu__read_element(w->dtype, data, i), (long long)i, value);
    }
}

// The elements from one rank are one run; those of a reduction or a broadcast are all one.
static void check_rank(const world *w, int rank, const char *algorithm)
{
    const int64_t n = data_count(w);
    int64_t first = 0, run = 0;
    for (int from = 0; first < n; first += run, from++) {
        run = w->kind == MU_KIND_ALL_GATHER ? w->counts[from] : w->kind == MU_KIND_ALL_TO_ALL ? w->count : n;
        check_run(w, rank, algorithm, first, run);
    }
}

// If all ranks must have the same result, each is compared with the first.
static void world_check(const world *w, const char *algorithm)
{
    const size_t bytes = (size_t)data_count(w) * mu_dtype_bytes(w->dtype);
    for (int rank = 0; rank < w->ranks; rank++)
        if (rank == 0 || w->kind == MU_KIND_ALL_TO_ALL || w->kind == MU_KIND_REDUCE_SCATTER ||
            w->kind == MU_KIND_PERMUTE || memcmp(w->data[rank], w->data[0], bytes) != 0)
            check_rank(w, rank, algorithm);
}

// ---- Simulated ----------------------------------------------------------------------------------

static mu_problem problem_of(const world *w, int rank)
{
    const bool gather = w->kind == MU_KIND_ALL_GATHER;
    return (mu_problem){.kind = w->kind,
                        .rank = rank,
                        .ranks = w->ranks,
                        .root = w->root,
                        .hosts = hosts_of(w),
                        .first = w->per_host == 0 ? NULL : w->first,
                        .count = gather ? w->counts[rank] : w->count,
                        .element = mu_dtype_bytes(w->dtype),
                        .width = mu__reduce_width(w->dtype),
                        .counts = gather ? w->counts : NULL,
                        .sources = w->kind == MU_KIND_PERMUTE ? w->sources : NULL};
}

static void simulate(const mu_algorithm *algorithm, const world *w, bool staged, uint64_t seed, mu_cost *cost)
{
    mu_steps lists[MAX_RANKS] = {0};
    mu_schedule schedules[MAX_RANKS] = {0};
    void *pointers[2 * MAX_RANKS + 1];
    const mu_problem whole = problem_of(w, 0);
    for (int r = 0; r < w->ranks; r++) {
        const mu_problem problem = problem_of(w, r);
        assert_int_equal(mu__algorithm_build(algorithm, &problem, staged, &lists[r]), MU_OK);
        schedules[r] =
            (mu_schedule){.dtype = w->dtype,
                          .reduction = w->reduction,
                          .pointers = pointers,
                          .areas = {w->data[r], w->input[r], malloc(MU_WINDOW_BYTES), malloc(MU_STAGING_BYTES),
                                    malloc((size_t)lists[r].scratch * mu_dtype_bytes(w->dtype) + 1)}};
    }
    const mu_status status = mu__schedule_simulate(lists, &whole, schedules, seed, cost);
    if (status != MU_OK)
        fail_msg("%s %s%s, %d ranks on %d hosts, %lld elements: %s", mu__kind_name(w->kind), algorithm->name,
                 staged ? " staged" : "", w->ranks, whole.hosts, (long long)w->count, mu_error_message());
    for (int r = 0; r < w->ranks; r++) {
        if (w->kind == MU_KIND_PERMUTE && w->sources[r] < 0) // what the call itself does
            memset(w->data[r], 0, (size_t)w->count * mu_dtype_bytes(w->dtype));
        free(schedules[r].areas[MU_AREA_WINDOW]);
        free(schedules[r].areas[MU_AREA_STAGING]);
        free(schedules[r].areas[MU_AREA_SCRATCH]);
        mu__steps_free(&lists[r]);
    }
}

static const unsigned everything = MU_NEEDS_WINDOW | MU_NEEDS_PEERS | MU_NEEDS_MESSAGES;

static void simulate_one(const mu_algorithm *algorithm, world like, uint64_t seed)
{
    for (int staged = 0; staged <= ((algorithm->needs & MU_NEEDS_PEERS) != 0); staged++) {
        world w = world_new(like);
        const mu_problem problem = problem_of(&w, 0);
        mu_cost cost;
        if (mu__algorithm_fits(algorithm, &problem, everything)) {
            simulate(algorithm, &w, staged == 1, seed, &cost);
            world_check(&w, algorithm->name);
        }
        world_free(&w);
    }
}

// Algorithms for one host are not simulated on several.
static int some_hosts(const mu_algorithm *algorithm, int per_host)
{
    return algorithm->needs & MU_NEEDS_ONE_HOST ? 0 : per_host;
}

// Sanitizers take many times as long: then only every second number of ranks is tested, odd ones for one algorithm and
// even ones for the next.
static int next_ranks(int ranks) { return ranks + (MU_TEST_SLOWNESS > 1 ? 2 : 1); }
static int first_ranks(int algorithm) { return MU_TEST_SLOWNESS > 1 ? 1 + algorithm % 2 : 1; }

static void test_simulated_sizes(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 17, 257, 3001};
    const mu_algorithm *algorithm;
    (void)state;
    for (int a = 0; (algorithm = mu__algorithm_at(a)) != NULL; a++)
        for (int ranks = first_ranks(a); ranks <= MAX_RANKS; ranks = next_ranks(ranks))
            for (size_t s = 0; s < MU_COUNT(sizes); s++)
                simulate_one(algorithm,
                             (world){.kind = algorithm->kind,
                                     .ranks = ranks,
                                     .root = ranks / 2,
                                     .dtype = MU_I32,
                                     .per_host = some_hosts(algorithm, (a + (int)s) % 5),
                                     .count = sizes[s]},
                             s);
}

static void test_simulated_types(void **state)
{
    const mu_algorithm *algorithm;
    (void)state;
    for (int a = 0; (algorithm = mu__algorithm_at(a)) != NULL; a++)
        for (int ranks = first_ranks(a); ranks <= 8; ranks = next_ranks(ranks))
            for (size_t d = 0; d < MU_COUNT(dtypes); d++)
                for (int reduction = MU_REDUCTION_SUM; reduction <= MU_REDUCTION_MAX; reduction++)
                    simulate_one(algorithm,
                                 (world){.kind = algorithm->kind,
                                         .ranks = ranks,
                                         .dtype = dtypes[d],
                                         .per_host = some_hosts(algorithm, 3),
                                         .reduction = (mu_reduction)reduction,
                                         .count = 101},
                                 (uint64_t)d);
}

// Many interleavings; then one with data large enough for several segments of a ring at once.
static void test_simulated_interleavings(void **state)
{
    const mu_algorithm *algorithm;
    (void)state;
    for (int a = 0; (algorithm = mu__algorithm_at(a)) != NULL; a++) {
        world w = {.kind = algorithm->kind, .dtype = MU_U8, .per_host = some_hosts(algorithm, 2), .count = 500};
        for (uint64_t seed = 1; seed <= 30; seed++) {
            w.ranks = 2 + (int)seed % 4;
            simulate_one(algorithm, w, seed * 7919);
        }
        w.count = 2400000;
        w.ranks = 3;
        if (w.kind != MU_KIND_BARRIER)
            simulate_one(algorithm, w, 1);
    }
}

// The costs that the algorithms promise: a ring sends 2 (n - 1) / n of the data per rank, doubling log2 n times all of
// it.
static void test_costs(void **state)
{
    (void)state;
    mu_cost cost;
    world w = world_new((world){.kind = MU_KIND_ALL_REDUCE, .ranks = 8, .dtype = MU_I32, .count = 8000});
    simulate(mu__algorithm(MU_KIND_ALL_REDUCE, "ring"), &w, false, 1, &cost);
    assert_int_equal(cost.max_bytes, 2 * 7 * 4000);
    assert_int_equal(cost.messages, 2 * 7 * 8);
    assert_int_equal(cost.rounds, 1 + 2 * 7);
    simulate(mu__algorithm(MU_KIND_ALL_REDUCE, "doubling"), &w, false, 1, &cost);
    assert_int_equal(cost.max_bytes, 3 * 32000);
    assert_int_equal(cost.rounds, 1 + 3);
    simulate(mu__algorithm(MU_KIND_ALL_REDUCE, "slots"),
             &(world){.kind = MU_KIND_ALL_REDUCE,
                      .ranks = 1,
                      .dtype = MU_I32,
                      .count = 10,
                      .data = {w.data[0]},
                      .input = {w.data[0]}},
             false, 1, &cost);
    assert_int_equal(cost.messages, 0);
    world_free(&w);
}

static mu_cost cost_of(const char *name, world like)
{
    mu_cost cost;
    world w = world_new(like);
    simulate(mu__algorithm(like.kind, name), &w, false, 1, &cost);
    world_free(&w);
    return cost;
}

// A reduce-scatter sends half of what an all-reduce of the same data does: (n - 1) / n of it from each rank, and from
// the first rank of each of h hosts (h - 1) / h of it.
static void test_costs_of_parts(void **state)
{
    (void)state;
    const world flat = {.kind = MU_KIND_REDUCE_SCATTER, .ranks = 8, .dtype = MU_I32, .count = 1000};
    world all = {.kind = MU_KIND_ALL_REDUCE, .ranks = 8, .dtype = MU_I32, .count = 8000}, hosts = flat;
    const mu_cost ring = cost_of("ring", flat);
    assert_int_equal(ring.max_bytes, 7 * 4000);
    assert_int_equal(ring.messages, 7 * 8);
    assert_int_equal(cost_of("pairwise", flat).max_bytes, 7 * 4000);
    assert_int_equal(cost_of("ring", all).max_bytes, 2 * 7 * 4000);
    hosts.per_host = all.per_host = 4;
    assert_int_equal(cost_of("hierarchical", hosts).max_bytes, 4 * 4000);
    assert_int_equal(cost_of("hierarchical", all).max_bytes, 8 * 4000);
    assert_int_equal(cost_of("chain", hosts).max_bytes, 8 * 4000); // from the first host; 4 come back
    assert_int_equal(cost_of("chain", hosts).messages, 8 + 4);
    // Ranks 1, 4 and 7 have no source: of the other five, ranks 0 to 3 are the sources of 5 and 6, on the other host.
    hosts.kind = MU_KIND_PERMUTE;
    assert_int_equal(cost_of("pairwise", hosts).max_bytes, 4000);
    assert_int_equal(cost_of("pairwise", hosts).messages, 5);
    assert_int_equal(cost_of("hierarchical", hosts).messages, 5);
}

// ---- What the simulation finds ------------------------------------------------------------------

static mu_status simulate_lists(mu_step *one, mu_step *two, size_t n)
{
    int32_t data[2] = {1, 2}, scratch[2][2];
    void *pointers[5];
    const mu_problem problem = {.ranks = 2, .element = sizeof data[0]};
    const mu_steps lists[2] = {{.items = one, .n = n}, {.items = two, .n = n}};
    const mu_schedule schedules[2] = {
        {.dtype = MU_I32, .pointers = pointers, .areas = {[MU_AREA_DATA] = &data[0], [MU_AREA_SCRATCH] = scratch[0]}},
        {.dtype = MU_I32, .pointers = pointers, .areas = {[MU_AREA_DATA] = &data[1], [MU_AREA_SCRATCH] = scratch[1]}},
    };
    return mu__schedule_simulate(lists, &problem, schedules, 1, NULL);
}

static mu_error expect_error(mu_status status, mu_status wanted, const char *words)
{
    assert_int_equal(status, wanted);
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, wanted);
    if (strstr(error.message, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    return error;
}

static void test_simulation_finds_faults(void **state)
{
    const mu_step send = {.kind = MU_STEP_SEND, .peer = 1, .from = MU_AREA_DATA, .count = 1};
    const mu_step recv = {.kind = MU_STEP_RECV, .peer = 1, .to = MU_AREA_SCRATCH, .count = 1};
    mu_step recv_0 = recv, recv_two = recv, meet = {.kind = MU_STEP_RENDEZVOUS}, a = recv, b = send;
    (void)state;
    recv_0.peer = recv_two.peer = 0;
    recv_0.owner = recv_two.owner = 1;
    recv_two.count = 2;
    expect_error(simulate_lists(&a, &recv_0, 1), MU_INTERNAL, "no rank can continue");
    expect_error(simulate_lists(&b, &recv_two, 1), MU_INTERNAL, "both lists must agree");
    expect_error(simulate_lists(&b, &b, 1), MU_INTERNAL, "nobody receives");
    expect_error(simulate_lists(&b, &meet, 1), MU_INTERNAL, "no rank can continue: rank 1");
}

// ---- By threads ---------------------------------------------------------------------------------

typedef struct job {
    world *w;
    mu_group *group;
    int rank;
    mu_status status;
} job;

static void *run_rank(void *arg)
{
    job *j = arg;
    world *w = j->w;
    mu_collective *c = mu__group_member(j->group, j->rank);
    if (w->kind == MU_KIND_ALL_REDUCE)
        j->status = c->all_reduce(c, 1, "table", w->reduction, w->dtype, w->data[j->rank], w->count);
    else if (w->kind == MU_KIND_ALL_GATHER)
        j->status =
            c->all_gather(c, 1, "table", w->dtype, w->input[j->rank], w->counts[j->rank], w->data[j->rank], w->counts);
    else if (w->kind == MU_KIND_BROADCAST)
        j->status = c->broadcast(c, 1, "table", w->dtype, w->data[j->rank], w->count, w->root);
    else if (w->kind == MU_KIND_REDUCE_SCATTER)
        j->status =
            c->reduce_scatter(c, 1, "table", w->reduction, w->dtype, w->input[j->rank], w->data[j->rank], w->count);
    else if (w->kind == MU_KIND_ALL_TO_ALL)
        j->status = mu__collective_all_to_all(c, 1, "table", w->dtype, w->input[j->rank], w->data[j->rank], w->count);
    else if (w->kind == MU_KIND_PERMUTE)
        j->status = c->permute(c, 1, "table", w->dtype, w->input[j->rank], w->data[j->rank], w->count, w->sources);
    else
        j->status = mu__collective_barrier(c, 1, "table");
    return NULL;
}

static void run_threads(mu_group *group, world *w, const char *algorithm)
{
    pthread_t threads[MAX_RANKS];
    job jobs[MAX_RANKS];
    for (int r = 0; r < w->ranks; r++) {
        jobs[r] = (job){.w = w, .group = group, .rank = r};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &jobs[r]), 0);
    }
    for (int r = 0; r < w->ranks; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(jobs[r].status, MU_OK);
    }
    world_check(w, algorithm);
}

static void thread_worlds(const mu_algorithm *algorithm, int ranks, const world *like, size_t n)
{
    static const char *const words[] = {"allreduce",     "allgather", "broadcast", "alltoall",
                                        "reducescatter", "",          "permute"};
    char policy[64];
    mu_group *group = mu__group_new(ranks, "table");
    assert_non_null(group);
    if (algorithm->kind != MU_KIND_BARRIER) {
        snprintf(policy, sizeof policy, "%s:%s", words[algorithm->kind], algorithm->name);
        assert_int_equal(mu__group_set_policy(group, policy), MU_OK);
    }
    for (size_t i = 0; i < n; i++) {
        world w = like[i];
        w.kind = algorithm->kind;
        w.ranks = ranks;
        w.root = ranks - 1;
        w = world_new(w);
        run_threads(group, &w, algorithm->name);
        world_free(&w);
    }
    mu_release(group);
}

static void test_threads_sizes(void **state)
{
    static const world worlds[] = {
        {.dtype = MU_F32, .count = 0},    {.dtype = MU_F32, .count = 1},    {.dtype = MU_F32, .count = 2},
        {.dtype = MU_F32, .count = 3},    {.dtype = MU_F32, .count = 1023}, {.dtype = MU_F32, .count = 1024},
        {.dtype = MU_F32, .count = 4096}, {.dtype = MU_F32, .count = 4097}, {.dtype = MU_U8, .count = 1048577},
    };
    const mu_algorithm *algorithm;
    (void)state;
    for (int a = 0; (algorithm = mu__algorithm_at(a)) != NULL; a++)
        for (int ranks = 1; ranks <= 8; ranks += ranks == 4 ? 3 : 1)
            thread_worlds(algorithm, ranks, worlds, MU_COUNT(worlds));
}

static void test_threads_types(void **state)
{
    world worlds[MU_COUNT(dtypes) * 4];
    size_t n = 0;
    (void)state;
    for (size_t d = 0; d < MU_COUNT(dtypes); d++)
        for (int reduction = MU_REDUCTION_SUM; reduction <= MU_REDUCTION_MAX; reduction++)
            worlds[n++] = (world){.dtype = dtypes[d], .reduction = (mu_reduction)reduction, .count = 777};
    for (int ranks = 1; ranks <= 8; ranks += ranks < 4 ? 1 : 2) {
        thread_worlds(mu__algorithm(MU_KIND_ALL_REDUCE, "direct"), ranks, worlds, n);
        thread_worlds(mu__algorithm(MU_KIND_ALL_REDUCE, "slots"), ranks, worlds, n);
        thread_worlds(mu__algorithm(MU_KIND_ALL_REDUCE, "ring"), ranks, worlds, n);
    }
}

// ---- Bits ---------------------------------------------------------------------------------------

static void fill_fractions(world *w)
{
    srand(11);
    for (int r = 0; r < w->ranks; r++)
        for (int64_t i = 0; i < w->count; i++)
            ((float *)w->data[r])[i] = (float)rand() / 1e6f - 1000.0f;
}

// The bits of one all-reduce of fractions: all ranks have the same; they are written to `first` or compared with it.
static void bits_of(const mu_algorithm *algorithm, world w, bool staged, bool compare, float *first)
{
    w = world_new(w);
    fill_fractions(&w);
    simulate(algorithm, &w, staged, (uint64_t)w.ranks, NULL);
    for (int r = 1; r < w.ranks; r++)
        assert_memory_equal(w.data[r], w.data[0], (size_t)w.count * sizeof(float));
    if (!compare)
        memcpy(first, w.data[0], (size_t)w.count * sizeof(float));
    else if (algorithm->rank_order && memcmp(w.data[0], first, (size_t)w.count * sizeof(float)) != 0)
        fail_msg("%s, %d ranks, %d per host: not the bits of one host", algorithm->name, w.ranks, w.per_host);
    world_free(&w);
}

// Every algorithm gives all ranks the same bits; all algorithms that add in rank order give the same bits for any
// hosts.
static void test_bits(void **state)
{
    const mu_algorithm *algorithm;
    float first[999];
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks++)
        for (int a = 0; (algorithm = mu__algorithm_at(a)) != NULL && algorithm->kind == MU_KIND_ALL_REDUCE; a++)
            for (int per_host = 0; per_host < 5; per_host++) {
                const world w = {.kind = MU_KIND_ALL_REDUCE,
                                 .ranks = ranks,
                                 .dtype = MU_F32,
                                 .per_host = some_hosts(algorithm, per_host),
                                 .reduction = MU_REDUCTION_MEAN,
                                 .count = 999};
                bits_of(algorithm, w, false, a + per_host > 0, first);
                if (algorithm->needs & MU_NEEDS_PEERS)
                    bits_of(algorithm, w, true, true, first);
            }
}

// The blocks of one reduce-scatter of fractions, one after the other: those of an all-reduce in rank order.
static void check_bits_of_parts(const mu_algorithm *algorithm, world w, bool staged, const float *wanted)
{
    w = world_new(w);
    srand(11);
    for (int r = 0; r < w.ranks; r++)
        for (int64_t i = 0; i < w.count * w.ranks; i++)
            ((float *)w.input[r])[i] = (float)rand() / 1e6f - 1000.0f;
    simulate(algorithm, &w, staged, (uint64_t)w.ranks, NULL);
    for (int r = 0; r < w.ranks; r++)
        if (memcmp(w.data[r], wanted + r * w.count, (size_t)w.count * sizeof(float)) != 0)
            fail_msg("%s, %d ranks, %d per host: not the bits of one host", algorithm->name, w.ranks, w.per_host);
    world_free(&w);
}

static void test_bits_of_parts(void **state)
{
    enum { BLOCK = 99 };
    const mu_algorithm *algorithm;
    float wanted[7 * BLOCK];
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks++) {
        const world whole = {.kind = MU_KIND_ALL_REDUCE, .ranks = ranks, .dtype = MU_F32, .count = ranks * BLOCK};
        bits_of(mu__algorithm(MU_KIND_ALL_REDUCE, "pairwise"), whole, false, false, wanted);
        for (int a = 0; (algorithm = mu__algorithm_at(a)) != NULL; a++)
            for (int i = 0; algorithm->kind == MU_KIND_REDUCE_SCATTER && algorithm->rank_order && i < 10; i++) {
                const world w = {.kind = MU_KIND_REDUCE_SCATTER,
                                 .ranks = ranks,
                                 .dtype = MU_F32,
                                 .count = BLOCK,
                                 .per_host = some_hosts(algorithm, i / 2)};
                check_bits_of_parts(algorithm, w, i % 2 && (algorithm->needs & MU_NEEDS_PEERS), wanted);
            }
    }
}

// Half floats are rounded once: a chain passes on its sums in float32.
static void test_half_bits(void **state)
{
    static const char *const names[] = {"slots", "pairwise", "chain"};
    uint16_t first[500];
    (void)state;
    for (size_t i = 0; i < MU_COUNT(names); i++) {
        world w = world_new(
            (world){.kind = MU_KIND_ALL_REDUCE, .ranks = 6, .dtype = MU_F16, .per_host = i == 2 ? 2 : 0, .count = 500});
        for (int r = 0; r < w.ranks; r++)
            for (int64_t k = 0; k < w.count; k++)
                mu__write_element(MU_F16, w.data[r], k, r == 0 ? 1.0 : 0.0003 * (double)(1 + k % 7));
        simulate(mu__algorithm(MU_KIND_ALL_REDUCE, names[i]), &w, false, 1, NULL);
        if (i == 0)
            memcpy(first, w.data[0], sizeof first);
        for (int r = 0; r < w.ranks; r++)
            assert_memory_equal(w.data[r], first, sizeof first);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulated_sizes),
        cmocka_unit_test(test_simulated_types),
        cmocka_unit_test(test_simulated_interleavings),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_costs_of_parts),
        cmocka_unit_test(test_simulation_finds_faults),
        cmocka_unit_test(test_threads_sizes),
        cmocka_unit_test(test_threads_types),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_bits_of_parts),
        cmocka_unit_test(test_half_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
