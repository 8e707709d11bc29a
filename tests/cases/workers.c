// The cases of several workers: each is run by as many processes, which `muster launch` starts from this program.
//
// In the process of a worker the case gets the strategy; what it finds wrong is printed and makes its process fail.
#include "cases.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int index_of(const mu_strategy *strategy) { return mu_strategy_worker_index(strategy); }

// ---- Reductions ---------------------------------------------------------------------------------

static mu_value *one(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(scalar(1));
}

static mu_value *two_of(mu_value *value) { return mu_list(value, value, MU_END); }

static void core_049(mu_strategy *strategy)
{
    mu_value *host = mu_of(scalar(1));
    EXPECT(mu_reduce(strategy, MU_SUM, host), 2);
    EXPECT(mu_reduce(strategy, MU_MEAN, host), 1);
    EXPECT(mu_reduce_to(strategy, MU_SUM, host), 2);
    EXPECT(mu_batch_reduce_to(strategy, MU_SUM, two_of(host), NULL), 2, 2);
}

static void core_050(mu_strategy *strategy)
{
    mu_value *v = eager(strategy, one, NULL);
    EXPECT(mu_reduce(strategy, MU_SUM, v), 2);
    EXPECT(mu_batch_reduce_to(strategy, MU_SUM, two_of(v), NULL), 2, 2);
    EXPECT(mu_reduce(strategy, MU_SUM, traced(strategy, one, NULL)), 2);
}

static mu_value *own_rows(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_add(mu_zeros(MU_F32, 1, (int64_t[]){2}), id()));
}

static mu_value *sum_of_ids(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, id()));
}

static mu_value *all_ids(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_gather(mu_reshape(id(), 1, (int64_t[]){1}), 0));
}

// This replica's part of the sum (1 + 2 + 3 + 4) k, for k from 0 to 3, along an axis.
static mu_value *part_of_sum(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *own = mu_multiply(mu_range(MU_F32, 0, 4, 1), mu_add(id(), scalar(1)));
    return mu_of(
        mu_reduce_scatter(arg ? MU_MEAN : MU_SUM, arg ? mu_reshape(own, 2, (int64_t[]){1, 4}) : own, arg ? 1 : 0));
}

static mu_value *part_of_integers(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *own = mu_add(mu_range(MU_I32, 0, 4, 1), mu_replica_id());
    return mu_of(mu_reduce_scatter(MU_MEAN, own, 0));
}

static mu_value *moved_ids(mu_value *arguments, void *arg)
{
    static const mu_replica_pair pairs[] = {{0, 3}, {1, 2}, {3, 0}};
    (void)arguments, (void)arg;
    return mu_of(mu_collective_permute(mu_add(id(), scalar(1)), pairs, 3));
}

static mu_value *stay_here(mu_value *arguments, void *arg)
{
    static const mu_replica_pair pairs[] = {{0, 1}, {3, 3}};
    (void)arguments, (void)arg;
    return mu_of(mu_collective_permute(mu_add(id(), scalar(1)), pairs, 2));
}

// Not in TensorFlow's list: sums whose parts go to the replicas, and pairs of replicas, on 2 x 2 of them.
static void parts_and_pairs(mu_strategy *strategy)
{
    const int w = index_of(strategy);
    static int mean;
    EXPECT(traced(strategy, part_of_sum, NULL), 20 * w, 20 * w + 10);
    EXPECT(eager(strategy, part_of_sum, NULL), 20 * w, 20 * w + 10);
    EXPECT(traced(strategy, part_of_sum, &mean), 5 * w, 5 * w + 2.5);
    EXPECT(eager(strategy, part_of_sum, &mean), 5 * w, 5 * w + 2.5);
    EXPECT(traced(strategy, part_of_integers, NULL), 2 * w + 1.5, 2 * w + 2.5);
    EXPECT(eager(strategy, part_of_integers, NULL), 2 * w + 1.5, 2 * w + 2.5);
    EXPECT(traced(strategy, moved_ids, NULL), w ? 2 : 4, w ? 1 : 0);
    EXPECT(eager(strategy, moved_ids, NULL), w ? 2 : 4, w ? 1 : 0);
    EXPECT(traced(strategy, stay_here, NULL), 0, w ? 4 : 1);
    EXPECT(eager(strategy, stay_here, NULL), 0, w ? 4 : 1);
}

// Not in TensorFlow's list: what is reduced, gathered and exchanged on 2 x 2 replicas.
static void two_by_two(mu_strategy *strategy)
{
    mu_value *rows = traced(strategy, own_rows, NULL);
    EXPECT(mu_strategy_gather(strategy, rows, 0), 0, 0, 1, 1, 2, 2, 3, 3);
    EXPECT(mu_reduce(strategy, MU_MEAN, rows), 1.5, 1.5);
    EXPECT(mu_reduce(strategy, MU_SUM, rows, 0), 12);
    EXPECT(mu_reduce(strategy, MU_MEAN, rows, 0), 1.5);
    EXPECT(mu_strategy_gather(strategy, mu_of(VECTOR(index_of(strategy))), 0), 0, 1);
    EXPECT(traced(strategy, sum_of_ids, NULL), 6, 6);
    EXPECT(eager(strategy, sum_of_ids, NULL), 6, 6);
    EXPECT(traced(strategy, all_ids, NULL), 0, 1, 2, 3, 0, 1, 2, 3);
    EXPECT(eager(strategy, all_ids, NULL), 0, 1, 2, 3, 0, 1, 2, 3);
}

static mu_tensor *ones_of(int64_t size) { return mu_ones(MU_F32, 1, &size); }

static mu_value *rows_of_replica(const mu_value_context *context, void *arg)
{
    (void)arg;
    return mu_of(ones_of(context->replica_id + 1));
}

static mu_value *rows_of_worker(const mu_value_context *context, void *arg)
{
    (void)arg;
    return mu_of(ones_of(context->replica_id / 2 + 1));
}

static void refused(mu_strategy *strategy, mu_value *value, const char *first, const char *other)
{
    for (int way = 0; way < 4; way++) {
        mu_value *list = mu_list(value, MU_END);
        CHECK(!(way == 0   ? mu_reduce(strategy, MU_SUM, value)
                : way == 1 ? mu_reduce(strategy, MU_MEAN, list)
                : way == 2 ? mu_reduce_to(strategy, MU_SUM, value)
                           : mu_batch_reduce_to(strategy, MU_SUM, list, NULL)));
        CHECK(strstr(mu_error_message(), first) && strstr(mu_error_message(), other));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

// Shapes that differ between replicas, here and on the other worker: refused on both, which continue.
static void parts_that_differ(mu_strategy *strategy)
{
    mu_value *rows = mu_distribute_values(strategy, rows_of_replica, NULL);
    refused(strategy, rows, "replica 0 has float32[1]", "replica 1 has float32[2]");
    EXPECT(mu_reduce(strategy, MU_SUM, rows, 0), 10);
    mu_value *here = mu_distribute_values(strategy, rows_of_worker, NULL);
    refused(strategy, here, "replica 0 has float32[1]", "replica 2 has float32[2]");
    refused(strategy, mu_of(ones_of(index_of(strategy) + 1)), "worker 0 has float32[1]", "worker 1 has float32[2]");
    refused(strategy, mu_of(ones_of((1 << 20) + index_of(strategy))), "float32[1048576]", "float32[1048577]");
    refused(strategy, mu_of(mu_constant(index_of(strategy) ? MU_F64 : MU_F32, 1)), "float32[]", "float64[]");
    mu_tensor *wide = mu_ones(MU_F32, 2, (int64_t[]){2, index_of(strategy) + 1});
    CHECK(!mu_reduce(strategy, MU_SUM, mu_of(wide), 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_reduce(strategy, MU_SUM, mu_of(scalar(1))), 2);
}

// ---- What a strategy is -------------------------------------------------------------------------

static void core_139(mu_strategy *strategy)
{
    CHECK(mu_num_replicas_in_sync(strategy) == 6);
    CHECK(mu_strategy_worker_count(strategy) == 3 && mu_strategy_device_count(strategy) == 2);
}

// The launcher's four workers as a chief and three workers.
static void core_139_chief(mu_strategy *strategy)
{
    CHECK(mu_num_replicas_in_sync(strategy) == 4);
    CHECK(mu_strategy_should_checkpoint(strategy) == (index_of(strategy) == 0));
}

static mu_value *give_id(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(id());
}

static mu_value *context_id(const mu_value_context *context, void *arg)
{
    (void)arg;
    CHECK(context->num_replicas == 4);
    return mu_of(scalar(context->replica_id));
}

static void core_143(mu_strategy *strategy)
{
    const double first = 2 * index_of(strategy);
    EXPECT(eager(strategy, give_id, NULL), first, first + 1);
    EXPECT(traced(strategy, give_id, NULL), first, first + 1);
    EXPECT(mu_distribute_values(strategy, context_id, NULL), first, first + 1);
    EXPECT(mu_local_results(strategy, traced(strategy, give_id, NULL)), first, first + 1);
}

// ---- Variables ----------------------------------------------------------------------------------

static mu_value *read_own(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_variable_read(arg));
}

static void core_142(mu_strategy *strategy)
{
    mu_variable *v = on_write(strategy, 3 + index_of(strategy), MU_AGGREGATION_MEAN);
    EXPECT(read_of(v), 3);
    EXPECT(mu_reduce(strategy, MU_MEAN, traced(strategy, read_own, v)), 3);
}

// Not in TensorFlow's list: assignments put together between workers, ON_READ variables, a table for each worker.
static void assignments(mu_strategy *strategy)
{
    mu_variable *sum = on_write(strategy, 1, MU_AGGREGATION_SUM), *mean = on_write(strategy, 1, MU_AGGREGATION_MEAN);
    mu_variable *count = on_read(strategy, 0, MU_AGGREGATION_SUM);
    assignment a = {.variable = sum, .assign = mu_variable_assign, .scale = 1, .offset = 1};
    EXPECT(traced(strategy, assign_on_replica, &a), 10, 10);
    EXPECT(eager(strategy, assign_on_replica, &a), 10, 10);
    a.variable = mean;
    EXPECT(traced(strategy, assign_on_replica, &a), 2.5, 2.5);
    EXPECT(eager(strategy, assign_on_replica, &a), 2.5, 2.5);
    a = (assignment){.variable = count, .assign = mu_variable_assign_add, .scale = 1, .offset = 1};
    const double first = 2 * index_of(strategy) + 1;
    EXPECT(traced(strategy, assign_on_replica, &a), first, first + 1);
    EXPECT(read_of(count), 10);
    mu_variable_assign(count, scalar(8));
    EXPECT(components(count), 2, 2);
    MU_SCOPE(strategy) {
        CHECK(!mu_embedding_table_new(4, .name = "users"));
        CHECK(strstr(mu_error_message(), "'users' would be another table on each of the 2 workers"));
        EXPECT_ERROR(MU_UNIMPLEMENTED);
    }
}

// ---- Input --------------------------------------------------------------------------------------

// What this worker's replicas get, step by step: the values of all parts of all steps, and the number of steps.
static void check_input(int line, mu_distributed_dataset *data, int steps, int n, const double *wanted)
{
    int seen = 0, step = 0;
    MU_EACH(batch, data) {
        mu_object *leaves[8];
        const int parts = mu__value_flatten(batch, leaves, 8);
        for (int r = 0; r < parts; r++) {
            const mu_tensor *part = (const mu_tensor *)leaves[r];
            for (int64_t i = 0; i < mu__elements(&part->shape); i++, seen++)
                if (seen < n && mu__read_element(part->dtype, mu__host_read(part), i) != wanted[seen])
                    fail_case(line, "element %d is %g, expected %g", seen,
                              mu__read_element(part->dtype, mu__host_read(part), i), wanted[seen]);
        }
        step++;
    }
    if (step != steps || seen != n)
        fail_case(line, "%d steps and %d elements, expected %d and %d", step, seen, steps, n);
}

#define INPUT(data, steps, ...) \
    check_input(__LINE__, data, steps, (int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static mu_dataset *batches_of(int rows, int size) { return mu_dataset_batch(mu_dataset_range(0, rows, 1), size); }

// TensorFlow's test distributes without cutting batches again; so the function shards where its does.
static mu_dataset *four_alone(const mu_input_context *context, void *arg)
{
    mu_dataset *data = mu_dataset_range(0, 4, 1);
    return arg ? mu_dataset_shard(data, context->num_input_pipelines, context->input_pipeline_id) : data;
}

static void ps_128(mu_strategy *strategy)
{
    const int w = index_of(strategy);
    INPUT(mu_distribute_datasets_from_function(strategy, four_alone, strategy), 2, w, w + 2);
    INPUT(mu_distribute_datasets_from_function(strategy, four_alone, NULL), 4, 0, 1, 2, 3);
}

static mu_dataset *nine(const mu_input_context *context, void *arg)
{
    CHECK(context->num_replicas_in_sync == 4);
    mu_dataset *data = batches_of(9, 2);
    return arg ? mu_dataset_shard(data, context->num_input_pipelines, context->input_pipeline_id) : data;
}

static void ps_130(mu_strategy *strategy)
{
    if (index_of(strategy) == 0)
        INPUT(mu_distribute_datasets_from_function(strategy, nine, strategy), 2, 0, 1, 4, 5, 8);
    else
        INPUT(mu_distribute_datasets_from_function(strategy, nine, strategy), 2, 2, 3, 6, 7);
    INPUT(mu_distribute_datasets_from_function(strategy, nine, NULL), 3, 0, 1, 2, 3, 4, 5, 6, 7, 8);
}

static mu_dataset *eight_or_nine(const mu_input_context *context, void *arg)
{
    (void)arg;
    return batches_of(8 + context->input_pipeline_id, 2);
}

static void ps_131(mu_strategy *strategy)
{
    if (index_of(strategy) == 0)
        INPUT(mu_distribute_datasets_from_function(strategy, eight_or_nine, NULL), 3, 0, 1, 2, 3, 4, 5, 6, 7);
    else
        INPUT(mu_distribute_datasets_from_function(strategy, eight_or_nine, NULL), 3, 0, 1, 2, 3, 4, 5, 6, 7, 8);
}

// A worker without any data learns from another what its empty batches look like.
static mu_value *double_it(mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(mu_of(mu_multiply(mu_value_tensor(element), mu_value_tensor(element))), element, MU_END);
}

static mu_dataset *only_the_last(const mu_input_context *context, void *arg)
{
    (void)arg;
    return mu_dataset_map(batches_of(context->input_pipeline_id == 1 ? 5 : 0, 2), double_it, NULL);
}

static void empty_share(mu_strategy *strategy)
{
    int steps = 0, rows = 0;
    MU_EACH(batch, mu_distribute_datasets_from_function(strategy, only_the_last, NULL)) {
        const mu_tensor *square = mu_at(batch, 0), *plain = mu_at(batch, 1);
        CHECK(square && plain && square->dtype == MU_I64 && square->shape.rank == 1);
        rows += square ? (int)square->shape.dims[0] : 0;
        steps++;
    }
    CHECK(steps == 3 && rows == (index_of(strategy) == 1 ? 5 : 0));
}

// Every worker's own unseeded shuffle is the chief's: together they see each row once.
static void one_order(mu_strategy *strategy)
{
    mu_set_seed(7 + (uint64_t)index_of(strategy));
    mu_dataset *data = mu_dataset_batch(mu_dataset_shuffle(mu_dataset_range(0, 40, 1), 40), 8);
    double seen[40] = {0};
    MU_EACH(batch, mu_distribute_dataset(strategy, data)) {
        const mu_tensor *part = mu_value_tensor(batch);
        for (int64_t i = 0; part && i < part->shape.dims[0]; i++)
            seen[(int)mu__read_element(part->dtype, mu__host_read(part), i)]++;
    }
    mu_value *all = mu_reduce(strategy, MU_SUM, mu_of(vector(40, seen)));
    for (int i = 0; all && i < 40; i++)
        CHECK(mu__read_element(MU_F32, mu__host_read(mu_value_tensor(all)), i) == 1);
}

// ---- Rules of the guide -------------------------------------------------------------------------

// Values that are the same everywhere, and those that each worker has for itself.
static void rule_values(mu_strategy *strategy)
{
    const double w = index_of(strategy);
    mu_variable *v = variable(strategy, VECTOR(1, 2), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_SUM);
    mu_value *leaf = mu_value_at(mu_variables(v, MU_END), 0);
    mu_value *copies = mu_broadcast_to_devices(strategy, mu_of(VECTOR(1, 2)), leaf);
    mu_value *both[] = {leaf, copies};
    for (int i = 0; i < 2; i++) {
        EXPECT(mu_reduce(strategy, MU_MEAN, both[i]), 1, 2);
        CHECK(!mu_reduce(strategy, MU_SUM, both[i]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        EXPECT(mu_reduce(strategy, MU_SUM, both[i], 0), 12);
        EXPECT(mu_strategy_gather(strategy, both[i], 0), 1, 2, 1, 2, 1, 2, 1, 2);
    }
    EXPECT(mu_reduce(strategy, MU_SUM, mu_of(VECTOR(w, 1)), 0), 6); // every replica reduces its worker's
    EXPECT(mu_reduce(strategy, MU_MEAN, mu_of(scalar(w))), .5);
    EXPECT(mu_local_results(strategy, mu_list(scalar(w), MU_END)), w, w);
}

static mu_value *count_merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy;
    ++*(int *)arg;
    return mu_local_results(strategy, arguments);
}

static mu_value *merge_own(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *own = mu_merge_call(count_merge, arg, mu_of(id()));
    return own ? mu_of(mu_at(own, 0)) : NULL;
}

// A merge is of a worker's own replicas, and its function runs once on each worker.
static void rule_merge(mu_strategy *strategy)
{
    int calls = 0;
    const double first = 2 * index_of(strategy);
    EXPECT(eager(strategy, merge_own, &calls), first);
    CHECK(calls == 1);
    CHECK(mu_strategy_between_graph(strategy) && mu_strategy_worker_count(strategy) == 2);
    CHECK(mu_strategy_should_save_summary(strategy) == (index_of(strategy) == 0));
}

// Only the chief's first values count; ON_READ variables are put together over all replicas.
static void rule_variables(mu_strategy *strategy)
{
    const double w = index_of(strategy);
    mu_variable *v = variable(strategy, VECTOR(w, 5), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_MEAN);
    EXPECT(components(v), 0, 5, 0, 5);
    for (int a = MU_AGGREGATION_SUM; a <= MU_AGGREGATION_MEAN; a++) {
        mu_variable *r = on_read(strategy, 0, (mu_variable_aggregation)a);
        assignment job = {.variable = r, .assign = mu_variable_assign, .scale = 1};
        EXPECT(eager(strategy, assign_on_replica, &job), 2 * w, 2 * w + 1);
        EXPECT(read_of(r), a == MU_AGGREGATION_SUM ? 6 : 1.5);
        CHECK(mu_variable_assign(r, scalar(8)) == MU_OK);
        EXPECT(read_of(r), 8);
    }
}

// ---- Failures -----------------------------------------------------------------------------------

// After worker 1 has gone the other must hear of it, and who it was.
static void expect_gone(void)
{
    const mu_error error = mu_error_take();
    if (error.code != MU_UNAVAILABLE && error.code != MU_DEADLINE_EXCEEDED)
        fail_case(__LINE__, "UNAVAILABLE wanted, got %s: %s", mu_status_name(error.code), error.message);
    if (!strstr(error.message, "/job:worker/task:1"))
        fail_case(__LINE__, "the message does not name /job:worker/task:1: %s", error.message);
}

static void core_145(mu_strategy *strategy)
{
    EXPECT(mu_reduce(strategy, MU_SUM, mu_of(VECTOR(1))), 2);
    if (index_of(strategy) == 1)
        _exit(0);
    mu_reduce(strategy, MU_SUM, mu_of(VECTOR(1)));
    expect_gone();
}

static void ps_155(mu_strategy *strategy)
{
    on_write(strategy, 1, MU_AGGREGATION_MEAN);
    if (index_of(strategy) == 1)
        _exit(0);
    on_write(strategy, 2, MU_AGGREGATION_MEAN);
    expect_gone();
}

static mu_value *fails_on_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    if (index_of(arg) == 1)
        mu_fail(MU_RESOURCE_EXHAUSTED, "no room for the %s", "third pancake");
    return mu_of(mu_all_reduce(MU_SUM, scalar(1)));
}

static void ps_157(mu_strategy *strategy)
{
    CHECK(!eager(strategy, fails_on_one, strategy));
    const mu_error error = mu_error_take();
    if (error.code != MU_RESOURCE_EXHAUSTED || !strstr(error.message, "third pancake"))
        fail_case(__LINE__, "RESOURCE_EXHAUSTED wanted, got %s: %s", mu_status_name(error.code), error.message);
}

// Killed in the middle of steps, without a word: the other knows within 5 s, and which one it was.
static void killed(mu_strategy *strategy)
{
    EXPECT(mu_reduce(strategy, MU_SUM, traced(strategy, one, NULL)), 2);
    int64_t begin = mu__now_ns();
    for (int step = 0; mu_error_code() == MU_OK; step++) {
        mu_pool *pool = mu_pool_open();
        begin = mu__now_ns();
        traced(strategy, sum_of_ids, NULL);
        if (step == 20 && index_of(strategy) == 1)
            raise(SIGKILL);
        mu_pool_close(pool);
    }
    expect_gone();
    CHECK(mu__now_ns() - begin < 5000000000);
}

// The launcher starts both again after the first life of worker 1 has failed.
static void core_146(mu_strategy *strategy)
{
    const char *mark = getenv("CASE_MARK");
    EXPECT(mu_reduce(strategy, MU_SUM, mu_of(VECTOR(1))), 2);
    if (index_of(strategy) == 1 && access(mark, F_OK) != 0) {
        fclose(fopen(mark, "w"));
        _exit(3);
    }
    EXPECT(mu_reduce(strategy, MU_SUM, mu_of(VECTOR(1))), 2);
    EXPECT(read_of(on_write(strategy, 5 + index_of(strategy), MU_AGGREGATION_MEAN)), 5);
}

// ---- Workers that do not do the same ------------------------------------------------------------

// The pending error must have this in its message; it is taken. Both workers say the same of both.
static void expect_said(int line, const char *words)
{
    const mu_error error = mu_error_take();
    if (error.code == MU_OK || !strstr(error.message, words))
        fail_case(line, "wanted \"%s\", got %s: %s", words, mu_status_name(error.code), error.message);
}

static void other_pipeline(mu_strategy *strategy)
{
    mu_dataset *data = mu_dataset_range(0, 8, 1);
    data = mu_dataset_batch(index_of(strategy) == 1 ? mu_dataset_shuffle(data, 8, .seed = 1) : data, 2);
    for (int steps = 0; mu_error_code() == MU_OK && steps < 2; steps++)
        MU_EACH(batch, mu_distribute_dataset(strategy, data))
            mu_reduce(strategy, MU_SUM, traced(strategy, one, NULL));
    expect_said(__LINE__, "at different places of the program");
}

static void other_shape(mu_strategy *strategy)
{
    CHECK(!mu_reduce(strategy, MU_SUM, mu_of(mu_zeros(MU_F32, 1, (int64_t[]){2 + index_of(strategy)}))));
    expect_said(__LINE__, "[3]");
}

static void other_variable(mu_strategy *strategy)
{
    MU_SCOPE(strategy)
        CHECK(!mu_variable_new(mu_zeros(MU_F32, 1, (int64_t[]){2 + index_of(strategy)}), "w"));
    expect_said(__LINE__, "/job:worker/task:1");
}

static mu_value *names_differ(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_all_reduce(index_of(arg) == 1 ? MU_MEAN : MU_SUM, scalar(1)));
}

static void other_step(mu_strategy *strategy)
{
    CHECK(!traced(strategy, names_differ, strategy));
    expect_said(__LINE__, "rank 1 of /job:worker/task:1");
}

static void other_call(mu_strategy *strategy)
{
    if (index_of(strategy) == 1)
        on_write(strategy, 1, MU_AGGREGATION_MEAN);
    else
        mu_reduce(strategy, MU_SUM, mu_of(VECTOR(1)));
    expect_said(__LINE__, "/job:worker/task:1");
}

const one_case worker_cases[] = {
    {"core-049", .on_workers = core_049, .workers = 2, .replicas = 1},
    {"core-050", .on_workers = core_050, .workers = 2, .replicas = 1},
    {"core-139", .on_workers = core_139, .workers = 3, .replicas = 2},
    {"core-139-chief", .on_workers = core_139_chief, .workers = 4, .replicas = 1},
    {"core-142", .on_workers = core_142, .workers = 2, .replicas = 2},
    {"core-143", .on_workers = core_143, .workers = 2, .replicas = 2},
    {"core-145", .on_workers = core_145, .workers = 2, .replicas = 1},
    {"core-146", .on_workers = core_146, .workers = 2, .replicas = 1, .options = "--max-restarts 1"},
    {"two-by-two", .on_workers = two_by_two, .workers = 2, .replicas = 2},
    {"parts-and-pairs", .on_workers = parts_and_pairs, .workers = 2, .replicas = 2},
    {"parts", .on_workers = parts_that_differ, .workers = 2, .replicas = 2},
    {"assignments", .on_workers = assignments, .workers = 2, .replicas = 2},
    {"killed", .on_workers = killed, .workers = 2, .replicas = 1},
    {"ps-128", .on_workers = ps_128, .workers = 2, .replicas = 1},
    {"ps-130", .on_workers = ps_130, .workers = 2, .replicas = 2},
    {"ps-131", .on_workers = ps_131, .workers = 2, .replicas = 2},
    {"empty-share", .on_workers = empty_share, .workers = 2, .replicas = 1},
    {"one-order", .on_workers = one_order, .workers = 3, .replicas = 1},
    {"ps-155", .on_workers = ps_155, .workers = 2, .replicas = 1},
    {"ps-157", .on_workers = ps_157, .workers = 2, .replicas = 1},
    {"ps-158", .on_workers = ps_158, .workers = 2, .replicas = 2, .first_code = 42},
    {"ps-160", .on_workers = ps_158, .first_code = 42},
    {"ps-161", .on_workers = ps_161, .workers = 2, .replicas = 1, .first_code = 42},
    {"ps-163", .on_workers = ps_163, .workers = 2, .replicas = 1},
    {"other-pipeline", .on_workers = other_pipeline, .workers = 2, .replicas = 1},
    {"other-shape", .on_workers = other_shape, .workers = 2, .replicas = 1},
    {"other-variable", .on_workers = other_variable, .workers = 2, .replicas = 1},
    {"other-step", .on_workers = other_step, .workers = 2, .replicas = 1},
    {"other-call", .on_workers = other_call, .workers = 2, .replicas = 1},
    {"per-replica-2x2", .on_workers = per_replica_on_workers, .workers = 2, .replicas = 2},
    {"per-replica-2x1", .on_workers = per_replica_on_workers, .workers = 2, .replicas = 1},
    {"literal-2x2", .on_workers = literal_on_workers, .workers = 2, .replicas = 2},
    {"literal-2x1", .on_workers = literal_on_workers, .workers = 2, .replicas = 1},
    {"literal-slices-2x2", .on_workers = literal_slices_on_workers, .workers = 2, .replicas = 2},
    {"integer-mean-2x2", .on_workers = integer_mean_on_workers, .workers = 2, .replicas = 2},
    {"uneven-axes-2x2", .on_workers = uneven_on_workers, .workers = 2, .replicas = 2},
    {"uneven-axes-3x1", .on_workers = uneven_on_workers, .workers = 3, .replicas = 1},
    {"uneven-axes-in-turn-2x2", .on_workers = uneven_in_turn, .workers = 2, .replicas = 2},
    {"uneven-axes-in-turn-2x1", .on_workers = uneven_in_turn, .workers = 2, .replicas = 1},
    {"rule_workers_values", .on_workers = rule_values, .workers = 2, .replicas = 2},
    {"rule_workers_merge", .on_workers = rule_merge, .workers = 2, .replicas = 2},
    {"rule_workers_variables", .on_workers = rule_variables, .workers = 2, .replicas = 2},
    {"pin_workers_input", .on_workers = pins_of_input, .workers = 2, .replicas = 1},
    {"pin_workers_variables", .on_workers = pins_of_variables, .workers = 2, .replicas = 1},
    {"pin_workers_files", .on_workers = pins_of_files, .workers = 2, .replicas = 1},
    {"pin_workers_gathers", .on_workers = pins_of_gathers, .workers = 2, .replicas = 1},
    {"pin_workers_restarts", .on_workers = pins_of_restarts, .workers = 2, .replicas = 1,
     .options = "--max-restarts 1"},
    {"pin_workers_shards", .on_workers = pins_of_shards, .workers = 2, .replicas = 1},
    {"pin_workers_first_replicas", .on_workers = pins_of_first_replicas, .workers = 2, .replicas = 1},
    {"pin_workers_first_of_four", .on_workers = pins_of_first_replicas, .workers = 2, .replicas = 2},
    {0},
};

// ---- In a worker's process ----------------------------------------------------------------------

// The launcher's workers, the first of them as chief.
static mu_cluster *with_a_chief(void)
{
    mu_cluster *cluster = mu_cluster_from_environment();
    mu_cluster_spec *spec = mu_cluster_get_spec(cluster), *other = mu_cluster_spec_parse(NULL);
    const int id = mu_cluster_task_id(cluster), n = mu_cluster_spec_num_tasks(spec, "worker");
    for (int i = 0; i < n; i++)
        mu_cluster_spec_add(other, i == 0 ? "chief" : "worker", -1, mu_cluster_spec_task_address(spec, "worker", i));
    return mu_simple_cluster_resolver(other, .task_type = id == 0 ? "chief" : "worker",
                                      .task_id = id == 0 ? 0 : id - 1);
}

// The launcher would end the others; so what is killed is not what it has started.
static void hide_from_launcher(void)
{
    const pid_t child = fork();
    if (child > 0) {
        waitpid(child, NULL, 0);
        _exit(0);
    }
}

int run_worker(const char *name)
{
    const one_case *c = worker_cases;
    while (strcmp(c->name, name) != 0)
        c++;
    if (c->on_workers == killed && mu_cluster_task_id(mu_cluster_from_environment()) == 1)
        hide_from_launcher();
    mu_cluster *cluster = strstr(name, "chief") ? with_a_chief() : NULL;
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy(cluster);
    if (strategy)
        c->on_workers(strategy);
    if (mu_error_code() != MU_OK)
        fail_case(__LINE__, "left an error: %s", mu_error_take().message);
    const char *failure = first_failure();
    if (failure[0])
        printf("%s\n", failure);
    return failure[0] ? 1 : 0;
}

// ---- In the process of the cases ----------------------------------------------------------------

// Without workers the program runs by itself, as a process without a cluster.
static void expect_exit(const one_case *c, int wanted)
{
    char self[512], start[600] = "", command[1600], line[512], words[512] = "nothing";
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    if (c->workers > 0)
        snprintf(start, sizeof start, "'%s' launch -n %d --replicas %d --timeout 300 %s -- ", MUSTER_COMMAND,
                 c->workers, c->replicas, c->options ? c->options : "");
    snprintf(command, sizeof command, "%s'%s' --worker %s 2>&1", start, self, c->name);
    FILE *output = popen(command, "r");
    while (output && fgets(line, sizeof line, output))
        if (line[0] == '[' || c->workers == 0)
            snprintf(words, sizeof words, "%.*s", (int)strcspn(line, "\n"), line);
    const int status = output ? pclose(output) : -1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted)
        fail_case(__LINE__, "exit code %d, not %d; %s", WIFEXITED(status) ? WEXITSTATUS(status) : -1, wanted, words);
}

void run_on_workers(const one_case *c)
{
    char folder[64], mark[80], command[80];
    snprintf(folder, sizeof folder, "/tmp/muster-case-XXXXXX");
    if (!mkdtemp(folder)) {
        fail_case(__LINE__, "no folder can be made in /tmp");
        return;
    }
    snprintf(mark, sizeof mark, "%s/mark", folder);
    setenv("CASE_MARK", mark, 1);
    if (c->first_code != 0)
        expect_exit(c, c->first_code);
    expect_exit(c, 0);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    CHECK(system(command) == 0);
}
