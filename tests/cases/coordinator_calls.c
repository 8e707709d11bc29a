// Cases PSS and COORD of the parameter-server list: calls of functions on workers, which are threads of this process.
#include "cases.h"
#include "coordinator/coordinator.h"

static mu_variable *zero(mu_strategy *strategy)
{
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(scalar(0), "v");
    return v;
}

static double value_of(mu_variable *v) { return mu_scalar(mu_variable_read(v)); }

// ---- What runs on workers -----------------------------------------------------------------------

static mu_value *add_argument(mu_value *arguments, void *arg)
{
    mu_variable_assign_add(arg, mu_cast(mu_at(arguments, 0), MU_F32));
    return NULL;
}

static mu_value *add_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, scalar(1));
    return NULL;
}

static mu_value *add_both(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_at(arguments, 0), mu_at(arguments, 1)));
}

static mu_value *fail_if_negative(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_assert(mu_greater_equal(mu_value_tensor(arguments), scalar(0)), "negative");
    return mu_of(mu_value_tensor(arguments));
}

static mu_value *nested(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_list(scalar(2), mu_list(scalar(3), scalar(4), MU_END), mu_list(scalar(5), MU_END),
                   mu_map("v", scalar(1), MU_END), MU_END);
}

static mu_value *wait_for_gradient(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1));
}

static mu_dataset *twos(void *arg)
{
    (void)arg;
    return mu_dataset_repeat(mu_dataset_from_tensors(mu_of(scalar(2))), 10);
}

static mu_dataset *five_from(void *arg)
{
    const int64_t begin = *(const int64_t *)arg;
    return mu_dataset_range(begin, begin + 5, 1);
}

static mu_dataset *with_variable(void *arg)
{
    (void)arg;
    return mu_dataset_from_tensors(mu_of(mu_variable_read(mu_variable_new(scalar(1)))));
}

static mu_value *no_value(void *arg)
{
    (void)arg;
    mu_fail(MU_NOT_FOUND, "no such file");
    return NULL;
}

static mu_value *own_index(void *arg)
{
    ++*(int *)arg;
    return mu_of(scalar(mu_get_current_worker_index()));
}

// ---- Strategy -----------------------------------------------------------------------------------

static mu_value *assign_rows(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign(arg, VECTOR(10, 1, 2, 3, 4, 5, 6, 7));
    return NULL;
}

static void ps_037(void)
{
    for (int parts = 1; parts <= 2; parts++) {
        mu_strategy *strategy = on_workers(1, 2, mu_fixed_shards_partitioner(parts));
        mu_variable *v = NULL;
        MU_SCOPE(strategy)
            v = mu_variable_new(mu_zeros(MU_F32, 1, (int64_t[]){8}), .aggregation = MU_AGGREGATION_SUM);
        mu_run(strategy, mu_function_new(assign_rows, v), NULL);
        EXPECT(mu_of(mu_variable_read(v)), 10, 1, 2, 3, 4, 5, 6, 7);
        for (int i = 0; i < mu_variable_shard_count(v); i++)
            CHECK(mu_variable_shape(mu_variable_shard(v, i)).dims[0] == 4);
    }
}

static void ps_038(void)
{
    mu_strategy *strategy = on_workers(1, 1, NULL);
    mu_variable *v = NULL;
    double first[2] = {0}, second[2] = {0};
    MU_SCOPE(strategy)
        v = mu_variable_new(scalar(1));
    MU_CACHE_VARIABLE_READS
    {
        first[0] = value_of(v);
        mu_variable_assign(v, scalar(5));
        first[1] = value_of(v);
    }
    mu_variable_assign(v, scalar(2));
    MU_CACHE_VARIABLE_READS
    {
        second[0] = 3 * value_of(v);
        mu_variable_assign(v, scalar(3));
        second[1] = 3 * value_of(v);
        mu_read_cache_guard inner = mu_cache_variable_reads_open();
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        mu_cache_variable_reads_close(&inner);
    }
    CHECK(first[0] == 1 && first[1] == 1 && second[0] == 6 && second[1] == 6 && value_of(v) == 3);
}

static mu_value *read_twice(mu_value *arguments, void *arg)
{
    mu_tensor *last = NULL;
    (void)arguments;
    MU_CACHE_VARIABLE_READS
    {
        (void)mu_variable_read(arg);
        mu_variable_assign(arg, scalar(5));
        last = mu_variable_read(arg);
    }
    return mu_of(last);
}

static void ps_040(void)
{
    mu_strategy *strategy = on_workers(1, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(scalar(1));
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(read_twice, v))), 1);
    CHECK(mu_join(c) == MU_OK && value_of(v) == 5);
    mu_variable_assign(v, scalar(4));
    CHECK(value_of(v) == 4);
}

static mu_value *assign_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign(arg, mu_add(id(), scalar(1)));
    return NULL;
}

static void ps_041(void)
{
    mu_strategy *strategy = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(scalar(5), .aggregation = MU_AGGREGATION_SUM);
    mu_schedule(c, mu_function_new(assign_id, v));
    CHECK(mu_join(c) == MU_OK);
    CHECK(value_of(v) == 1);
}

// ---- Calls --------------------------------------------------------------------------------------

static void ps_052(void)
{
    mu_coordinator *c = mu_coordinator_new(on_workers(2, 1, NULL));
    mu_value *result = mu_schedule(c, mu_function_new(nested, NULL));
    EXPECT(mu_fetch(result), 2, 3, 4, 5, 1);
    mu_value *both = mu_fetch(mu_list(result, scalar(9), MU_END));
    CHECK(mu_value_count(both) == 2 && mu_value_count(mu_value_at(both, 0)) == 4);
    CHECK(mu_scalar(mu_value_get(mu_value_at(mu_value_at(both, 0), 3), "v")) == 1);
    EXPECT(both, 2, 3, 4, 5, 1, 9);
}

static void ps_053(void)
{
    mu_strategy *strategy = on_workers(5, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = zero(strategy);
    mu_function *step = mu_function_new(add_argument, v);
    mu_value *data = mu_create_per_worker_dataset(c, twos, NULL);
    bool done = false;
    CHECK(mu_join(c) == MU_OK && value_of(v) == 0);
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < 5; i++)
            mu_schedule(c, step, data);
        for (int i = 0; i < (round == 1 ? 1 : 3); i++)
            CHECK(mu_join(c) == MU_OK);
        CHECK(value_of(v) == 10 * round);
    }
    CHECK(mu_done(c, &done) == MU_OK && done);
    CHECK(mu_coordinator_new(strategy) == c);
}

static void ps_056(void)
{
    mu_strategy *strategy = on_workers(2, 1, NULL);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_function *step = mu_function_new(add_argument, zero(strategy));
    CHECK(!mu_schedule(c, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    mu_value *result = mu_schedule(c, step, mu_of(scalar(1)));
    CHECK(!mu_schedule(c, step, mu_list(result, MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    mu_schedule(c, step, mu_create_per_worker_dataset(c, with_variable, NULL));
    CHECK(mu_join(c) != MU_OK);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_coordinator_new(mirrored(2)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void ps_058(void)
{
    static int64_t zero_on = 0, five_on = 5;
    mu_coordinator *c = mu_coordinator_new(on_workers(1, 1, NULL));
    mu_function *add = mu_function_new(add_both, NULL);
    for (int i = 0; i < 2; i++) {
        mu_value *iterators = mu_list(mu_create_per_worker_dataset(c, five_from, &zero_on),
                                      mu_create_per_worker_dataset(c, five_from, &five_on), MU_END);
        EXPECT(mu_fetch(mu_schedule(c, add, iterators)), 5);
        EXPECT(mu_fetch(mu_schedule(c, add, iterators)), 7);
    }
    CHECK(mu_join(c) == MU_OK);
}

static void ps_059(void)
{
    mu_coordinator *c = mu_coordinator_new(on_workers(3, 1, NULL));
    mu_function *step = mu_function_new(fail_if_negative, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4 && !mu_error_code(); i++)
            mu_schedule(c, step, mu_of(scalar(i < 3 ? i : -1)));
        mu_join(c);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(mu_join(c) == MU_OK);
}

static void ps_061(void)
{
    mu_coordinator *c = mu_coordinator_new(on_workers(2, 1, NULL));
    mu_accumulator *never = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){.rank = 0});
    mu_function *check = mu_function_new(fail_if_negative, NULL);
    mu_value *slow = mu_schedule(c, mu_function_new(wait_for_gradient, never));
    mu_value *bad = mu_schedule(c, check, mu_of(scalar(-1)));
    CHECK(mu_join(c) == MU_INVALID_ARGUMENT);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_fetch(slow));
    EXPECT_ERROR(MU_CANCELLED);
    CHECK(!mu_fetch(bad));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    for (int i = 0; i < 3; i++)
        mu_schedule(c, check, mu_of(scalar(i)));
    CHECK(mu_join(c) == MU_OK);
}

static void ps_062(void)
{
    int calls = 0;
    mu_coordinator *c = mu_coordinator_new(on_workers(2, 1, NULL));
    mu_function *check = mu_function_new(fail_if_negative, NULL);
    mu_value *bad = mu_create_per_worker_values(c, no_value, NULL);
    CHECK(mu_join(c) == MU_OK);
    mu_value *result = mu_schedule(c, check, bad);
    CHECK(mu_join(c) != MU_OK && strstr(mu_error_message(), "input error") && strstr(mu_error_message(), "no such"));
    EXPECT_ERROR(MU_NOT_FOUND);
    CHECK(!mu_fetch(result));
    EXPECT_ERROR(MU_NOT_FOUND);
    mu_value *indices = mu_create_per_worker_values(c, own_index, &calls);
    const double index = mu_scalar(mu_fetch(mu_schedule(c, check, indices)));
    CHECK((index == 0 || index == 1) && mu_get_current_worker_index() == -1);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(mu_join(c) == MU_OK);
}

// ---- Servers that are not reached ---------------------------------------------------------------

typedef struct flaky_task {
    mu_task task;
    atomic_int *left; // calls that will not reach server 0
} flaky_task;

static mu_value *flaky_call(mu_task *task, mu_function *function, mu_value *arguments, mu_task_failure *failure)
{
    if (atomic_fetch_sub(((flaky_task *)task)->left, 1) <= 0)
        return mu__served_call(task->strategy, task->worker, function, arguments);
    *failure = (mu_task_failure){.blame = MU_BLAME_SERVER};
    mu_fail(MU_UNAVAILABLE, "parameter server 0 is not reachable");
    return NULL;
}

static void flaky_free(mu_task *task) { mu__free(task); }

static mu_task *flaky(mu_strategy *strategy, int worker, void *arg)
{
    static const mu_task_ops ops = {.name = "flaky", .call = flaky_call, .free = flaky_free};
    flaky_task *made = mu__calloc(1, sizeof *made);
    *made = (flaky_task){.task = {.ops = &ops, .strategy = strategy, .worker = worker}, .left = arg};
    return &made->task;
}

// The status of a join after so many failures, and how often the call was tried again.
static mu_status after_failures(const mu_coordinator_args *args, int n, int64_t *retried)
{
    atomic_int left = n;
    mu_coordinator *c = mu__give(mu__coordinator_new(args, flaky, &left));
    mu_worker_calls calls = {0};
    mu_variable *v = zero(args->strategy);
    mu_schedule(c, mu_function_new(add_one, v));
    const mu_status status = mu_join(c);
    mu_error_take();
    mu_coordinator_worker_calls(c, 0, &calls);
    *retried = calls.retried;
    CHECK(calls.done == (status == MU_OK) && calls.failed == (status != MU_OK) && calls.in_flight == 0);
    CHECK(value_of(v) == (status == MU_OK));
    return status;
}

static void ps_070(void)
{
    int64_t retried = -1;
    mu_coordinator_args args = {.size = sizeof args, .strategy = on_workers(1, 1, NULL)};
    CHECK(after_failures(&args, 2, &retried) == MU_OK && retried == 2);
    CHECK(after_failures(&args, 3, &retried) == MU_UNAVAILABLE && retried == 2);
    args.given = ".ignore_transient_ps_failures = 0";
    CHECK(after_failures(&args, 1, &retried) == MU_UNAVAILABLE && retried == 0);
}

const one_case coordinator_call_cases[] = {
    {"ps-037", ps_037, NULL},
    {"ps-037", NULL, "several replicas in a worker: a worker of this strategy is one, so nothing is aggregated"},
    {"ps-038", ps_038, NULL},
    {"ps-040", ps_040, NULL},
    {"ps-041", ps_041, NULL},
    {"ps-052", ps_052, NULL},
    {"ps-053", ps_053, NULL},
    {"ps-056", ps_056, NULL},
    {"ps-058", ps_058, NULL},
    {"ps-059", ps_059, NULL},
    {"ps-061", ps_061, NULL},
    {"ps-062", ps_062, NULL},
    {"ps-070", ps_070, NULL},
    {NULL, NULL, NULL},
};
