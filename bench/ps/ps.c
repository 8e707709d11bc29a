// The coordinator of the bench: what it does with parameter servers, timed. Under `muster launch --workers W --ps P`.
//
//   bench_ps ROWS SECONDS [start | wire BYTES... | rows | steps]
//
// Prints "first step" as soon as a step has been done, then one line of JSON for each number, of which each is the
// best of two forms: from the coordinator, and in steps on the workers. Results are checked before anything is timed.
#include "ids.h"

#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 4, BATCH = 2000 }; // steps for each worker before the coordinator waits

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds;
static mu_strategy *strategy;
static mu_coordinator *coordinator;

static void need(bool good, const char *what)
{
    if (good && mu_error_code() == MU_OK)
        return;
    fprintf(stderr, "bench_ps: %s\n", what);
    mu_exit(false);
    exit(1);
}

// ---- Timing -------------------------------------------------------------------------------------

// Calls fn until the time is over, in pools of its own; returns how often in a second.
static double per_second(void (*fn)(void *arg), void *arg)
{
    long n = 0;
    double begin = 0, took = 0;
    for (; n < 2 || took < seconds; n++) {
        mu_pool *pool = mu_pool_open();
        begin = n == 1 ? now() : begin; // the first is not counted
        fn(arg);
        need(true, "a call failed");
        mu_pool_close(pool);
        took = n > 0 ? now() - begin : 0;
    }
    return (double)(n - 1) / took;
}

static void schedule_all(mu_function *step, mu_value *arguments, int n)
{
    for (int i = 0; i < n; i++) {
        mu_pool *pool = mu_pool_open();
        mu_schedule(coordinator, step, arguments);
        mu_pool_close(pool);
    }
    mu_join(coordinator);
}

struct steps {
    mu_function *step;
    mu_value *arguments;
};

static void steps_once(void *arg)
{
    const struct steps *s = arg;
    schedule_all(s->step, s->arguments, STEPS * mu_strategy_ps_worker_count(strategy));
}

static double in_steps(mu_value *(*fn)(mu_value *, void *), void *arg, mu_value *arguments)
{
    struct steps s = {mu_function_new(fn, arg), arguments};
    return per_second(steps_once, &s) * STEPS * mu_strategy_ps_worker_count(strategy);
}

static double larger(double a, double b) { return a > b ? a : b; }

// ---- Whole variables ----------------------------------------------------------------------------

struct whole {
    mu_variable *variable;
    mu_tensor *value;
};

static void pull(void *arg) { mu_variable_read(((struct whole *)arg)->variable); }

static void push(void *arg)
{
    const struct whole *w = arg;
    mu_variable_assign(w->variable, w->value);
}

static mu_value *pulls(mu_value *arguments, void *arg)
{
    const struct whole *w = arg;
    (void)arguments;
    return mu_of(mu_strided_slice(mu_variable_read(w->variable), (int64_t[]){0}, (int64_t[]){1}, NULL, 0, 0, 0));
}

static void check_whole(const struct whole *w, int64_t n)
{
    mu_pool *pool = mu_pool_open();
    mu_variable_assign(w->variable, w->value);
    mu_tensor *back = mu_variable_read(w->variable);
    need(back && memcmp(mu_tensor_data(back), mu_tensor_data(w->value), (size_t)n * sizeof(float)) == 0,
         "what was pushed is not what is pulled");
    mu_pool_close(pool);
}

static void measure_whole(size_t bytes)
{
    const int64_t n = (int64_t)(bytes / sizeof(float));
    struct whole w = {.value = mu_range(MU_F32, 0, (double)n, 1)};
    MU_SCOPE(strategy)
        w.variable = mu_variable_new(mu_zeros(MU_F32, 1, &n), "whole");
    check_whole(&w, n);
    const double pulled = larger(per_second(pull, &w), in_steps(pulls, &w, NULL));
    const double pushed = per_second(push, &w);
    printf("{\"what\":\"pull\",\"bytes\":%zu,\"value\":%.6g}\n", bytes, pulled * (double)bytes / 1e9);
    printf("{\"what\":\"push\",\"bytes\":%zu,\"value\":%.6g}\n", bytes, pushed * (double)bytes / 1e9);
    fflush(stdout);
}

// ---- Rows of a table ----------------------------------------------------------------------------

struct table {
    mu_variable *variable;
    mu_tensor *ids, *updates;
};

// Every element of row i is i modulo 65536.
static mu_tensor *initial_rows(const mu_partition_info *info, void *arg)
{
    const int64_t first = info->offset[0], n = info->shape.dims[0];
    (void)arg;
    mu_tensor *numbers = mu_range(MU_I64, (double)first, (double)(first + n), 1);
    mu_tensor *column = mu_reshape(mu_cast(mu_mod(numbers, mu_constant(MU_I64, 65536)), MU_F32), 2, (int64_t[]){n, 1});
    return mu_broadcast_to(column, 2, (int64_t[]){n, DIMENSION});
}

static void lookup(void *arg)
{
    const struct table *t = arg;
    mu_nn_embedding_lookup(t->variable, t->ids);
}

static void update(void *arg)
{
    const struct table *t = arg;
    mu_variable_scatter_add(t->variable, t->ids, t->updates);
}

static mu_value *lookups(mu_value *arguments, void *arg)
{
    const struct table *t = arg;
    mu_tensor *rows = mu_nn_embedding_lookup(t->variable, mu_at(arguments, 0));
    return mu_of(mu_strided_slice(rows, (int64_t[]){0, 0}, (int64_t[]){1, 1}, NULL, 0, 0, 0));
}

static mu_value *updates(mu_value *arguments, void *arg)
{
    const struct table *t = arg;
    mu_variable_scatter_add(t->variable, mu_at(arguments, 0), mu_at(arguments, 1));
    return NULL;
}

static void check_rows(const struct table *t, const int64_t *ids, double more)
{
    mu_pool *pool = mu_pool_open();
    mu_tensor *rows = mu_nn_embedding_lookup(t->variable, t->ids);
    const float *data = rows ? mu_tensor_data(rows) : NULL;
    need(data != NULL, "a lookup failed");
    for (int64_t i = 0; i < N_IDS * DIMENSION; i++)
        need(data[i] == (float)((double)(ids[i / DIMENSION] % 65536) + more), "a lookup returns another row");
    mu_pool_close(pool);
}

// Each row once: adds 1, looks, and takes it away again.
static void check_updates(struct table t)
{
    int64_t *ids = malloc(N_IDS * sizeof *ids);
    need(ids != NULL, "no memory");
    for (int64_t i = 0; i < N_IDS; i++)
        ids[i] = (i * 7919) % 1048576;
    t.ids = mu_tensor_new(MU_I64, 1, (int64_t[]){N_IDS}, ids);
    t.updates = mu_ones(MU_F32, 2, (int64_t[]){N_IDS, DIMENSION});
    update(&t);
    check_rows(&t, ids, 1);
    mu_variable_scatter_sub(t.variable, t.ids, t.updates);
    check_rows(&t, ids, 0);
    free(ids);
}

static void measure_rows(int64_t rows)
{
    const mu_shape shape = {.rank = 2, .dims = {rows, DIMENSION}};
    struct table t = {.updates = mu_zeros(MU_F32, 2, (int64_t[]){N_IDS, DIMENSION})};
    int64_t *ids = malloc(N_IDS * sizeof *ids);
    need(ids != NULL, "no memory");
    MU_SCOPE(strategy)
        t.variable = mu_sharded_variable_new(.name = "table", .partitioner = mu_fixed_shards_partitioner(2),
                                             .initial_value_fn = initial_rows, .shape = &shape, .dtype = MU_F32);
    check_updates(t);
    for (int zipf = 0; zipf < 2; zipf++) {
        const char *name = zipf ? "zipf" : "uniform";
        ids_fill(ids, N_IDS, rows, zipf);
        t.ids = mu_tensor_new(MU_I64, 1, (int64_t[]){N_IDS}, ids);
        check_rows(&t, ids, 0);
        const double looked = larger(per_second(lookup, &t), in_steps(lookups, &t, mu_list(t.ids, MU_END)));
        printf("{\"what\":\"lookup\",\"ids\":\"%s\",\"value\":%.6g}\n", name, looked * N_IDS);
        const double updated = larger(per_second(update, &t), in_steps(updates, &t, mu_list(t.ids, t.updates, MU_END)));
        printf("{\"what\":\"update\",\"ids\":\"%s\",\"value\":%.6g}\n", name, updated * N_IDS);
        check_rows(&t, ids, 0);
        fflush(stdout);
    }
    free(ids);
}

// ---- Empty steps --------------------------------------------------------------------------------

static mu_value *empty(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_constant(MU_F32, 1));
}

static void measure_steps(void)
{
    mu_function *step = mu_function_new(empty, NULL);
    schedule_all(step, NULL, BATCH);
    const double begin = now();
    int n = 0;
    for (double end = begin; end - begin < 2 * seconds; end = now(), n += BATCH)
        schedule_all(step, NULL, BATCH);
    printf("{\"what\":\"steps\",\"value\":%.6g}\n", n / (now() - begin));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int64_t rows = argc > 1 ? atoll(argv[1]) : 0;
    seconds = argc > 2 ? atof(argv[2]) : 0;
    const char *what = argc > 3 ? argv[3] : "";
    if (rows < 1048576 || seconds <= 0 || argc < 4) {
        fprintf(stderr, "usage: bench_ps ROWS SECONDS start|wire BYTES...|rows|steps\n");
        return 2;
    }
    mu_init(.cpu_devices = 1);
    strategy = mu_parameter_server_strategy(mu_cluster_from_environment());
    coordinator = mu_coordinator_new(strategy);
    mu_function *first = mu_function_new(empty, NULL);
    need(mu_scalar(mu_fetch(mu_schedule(coordinator, first))) == 1, "the first step failed");
    printf("first step\n");
    fflush(stdout);
    for (int i = 4; strcmp(what, "wire") == 0 && i < argc; i++) {
        mu_pool *pool = mu_pool_open();
        measure_whole(strtoull(argv[i], NULL, 10));
        mu_pool_close(pool);
    }
    if (strcmp(what, "rows") == 0)
        measure_rows(rows);
    if (strcmp(what, "steps") == 0)
        measure_steps();
    return mu_exit(true);
}
