// A million tiny steps on two replicas, some of which fail: before the collective, after a write, in a callback, with
// unequal numbers of merge calls, while tracing. Every run ends, gives its error, leaves the variable unchanged or
// poisoned, and the memory does not grow. Usage: stress [STEPS [KIB [SECONDS]]]; KIB: how much the memory may grow;
// SECONDS: when to end with fewer steps, but at least a fifth. Each step waits for the scheduler several times, so that
// a step of 0.4 ms takes 6 ms beside other work.
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPLICAS = 2, KINDS = 8 };

typedef enum kind {
    WELL,
    FAIL_BEFORE,
    FAIL_AFTER,
    FAIL_CALLBACK,
    FAIL_IN_MERGE,
    UNEQUAL_MERGES,
    FAIL_TRACE,
    CALLBACK_WELL
} kind;

typedef struct stress {
    mu_strategy *strategy;
    mu_variable *count;
    mu_function *step;
    mu_tensor *before[2], *after[2]; // inputs of the assertions: bad and good
    double wanted;                   // the count
    int64_t seen[KINDS];
    kind now; // of the callbacks
    int bad;  // replica
} stress;

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

// Nothing is written before the replicas have met; after that one of them may fail following its write.
static mu_value *step(mu_value *arguments, void *arg)
{
    stress *s = arg;
    mu_assert(mu_at(arguments, 0), "bad before");
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_constant(MU_F64, 0.5));
    mu_variable_assign_add(s->count, sum);
    mu_assert(mu_at(arguments, 1), "bad after");
    return mu_of(sum);
}

static mu_value *merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    const stress *s = arg;
    if (s->now == FAIL_IN_MERGE)
        mu_fail(MU_INTERNAL, "bad merge");
    return mu_reduce(strategy, MU_SUM, arguments);
}

static mu_value *callback(mu_value *arguments, void *arg)
{
    const stress *s = arg;
    (void)arguments;
    const int replica = (int)mu_scalar(mu_replica_id());
    if (s->now == FAIL_CALLBACK && replica == s->bad) {
        mu_fail(MU_ABORTED, "bad callback");
        return NULL;
    }
    if (s->now == UNEQUAL_MERGES && replica == s->bad)
        return mu_of(mu_constant(MU_F64, 0));
    return mu_merge_call(merge, arg, mu_of(mu_constant(MU_F64, 1)));
}

static mu_value *bad_shapes(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    return mu_of(mu_add(mu_zeros(MU_F64, 1, (int64_t[]){2}), mu_zeros(MU_F64, 1, (int64_t[]){3})));
}

static mu_value *flags(mu_tensor *const choice[2], int bad)
{
    mu_value *items[REPLICAS];
    for (int r = 0; r < REPLICAS; r++)
        items[r] = mu_of(choice[r != bad]);
    return mu_list_of(REPLICAS, items);
}

static mu_value *flag_of(const mu_value_context *context, void *arg) { return mu_value_at(arg, context->replica_id); }

static mu_value *run_step(const stress *s)
{
    mu_value *first = flags(s->before, s->now == FAIL_BEFORE ? s->bad : -1);
    mu_value *second = flags(s->after, s->now == FAIL_AFTER ? s->bad : -1);
    mu_value *arguments = mu_list(mu_distribute_values(s->strategy, flag_of, first),
                                  mu_distribute_values(s->strategy, flag_of, second), MU_END);
    return mu_run(s->strategy, s->step, arguments);
}

static mu_value *run(stress *s)
{
    switch (s->now) {
    case WELL:
    case FAIL_BEFORE:
    case FAIL_AFTER: return run_step(s);
    case FAIL_TRACE: return mu_run(s->strategy, mu_function_new(bad_shapes, NULL), NULL);
    default: return mu_run_callback(s->strategy, callback, s, NULL);
    }
}

static bool complain(const stress *s, const char *what)
{
    fprintf(stderr, "stress: kind %d, replica %d: %s: %s\n", s->now, s->bad, what, mu_error_message());
    return false;
}

// After a failed step the variable has its old value, or refuses to be read until it is assigned.
static bool check_variable(stress *s, bool ran)
{
    s->wanted += s->now == WELL && ran;
    const double value = mu_scalar(mu_variable_read(s->count));
    if (mu_error_code() == MU_OK)
        return value == s->wanted || complain(s, "the variable has another value");
    if (s->now != FAIL_AFTER)
        return complain(s, "the variable cannot be read");
    mu_error_take();
    MU_SCOPE(s->strategy)
        mu_variable_assign(s->count, mu_constant(MU_F64, s->wanted));
    return mu_error_code() == MU_OK || complain(s, "the variable cannot be assigned");
}

static bool turn(stress *s, uint64_t *random)
{
    const uint64_t dice = next_random(random) % 1000;
    s->now = dice < 960 ? WELL : (kind)(1 + dice % (KINDS - 1));
    s->bad = (int)(next_random(random) % REPLICAS);
    s->seen[s->now]++;
    mu_pool *pool = mu_pool_open();
    const bool ran = run(s) != NULL, well = s->now == WELL || s->now == CALLBACK_WELL;
    bool ok = ran == well || complain(s, ran ? "a failing step went well" : "a good step failed");
    mu_error_take();
    ok = ok && check_variable(s, ran);
    mu_pool_close(pool);
    return ok;
}

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * 4;
}

static double now_seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    const int64_t steps = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000000;
    const long allowed = argc > 2 ? strtol(argv[2], NULL, 10) : 2048;
    const double seconds = argc > 3 ? strtod(argv[3], NULL) : 1e9, began = now_seconds();
    mu_init(.cpu_devices = REPLICAS);
    stress s = {.strategy = mu_mirrored_strategy()};
    MU_SCOPE(s.strategy)
        s.count = mu_variable_new(mu_constant(MU_F64, 0), "count");
    s.step = mu_function_new(step, &s);
    for (int good = 0; good < 2; good++)
        s.before[good] = s.after[good] = mu_tensor_new(MU_BOOL, 0, NULL, &(bool){good});
    uint64_t random = 1;
    long at_first = 0;
    bool ok = mu_error_code() == MU_OK;
    int64_t done = 0;
    for (; ok && done < steps && (done < steps / 5 || now_seconds() < began + seconds); done++) {
        ok = turn(&s, &random);
        if (done == steps / 10)
            at_first = resident_kib();
    }
    const long grown = resident_kib() - at_first;
    printf("%lld of %lld steps, of each kind:", (long long)done, (long long)steps);
    for (int k = 0; k < KINDS; k++)
        printf(" %lld", (long long)s.seen[k]);
    printf("; count %.0f; memory grew by %ld KiB after the first tenth\n", s.wanted, grown);
    return mu_exit(ok && grown < allowed);
}
