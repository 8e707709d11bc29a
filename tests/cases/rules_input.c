// Rules of the guide to TensorFlow's input (parameter-server guide, section 6) that no numbered case covers, as one
// process sees them: rebatching, sharding, pipelines, options, the end of data, what a step gets.
#include "cases.h"

static mu_dataset *range(int n) { return mu_dataset_range(0, n, 1); }

static mu_dataset *batches(int n, int size) { return mu_dataset_batch(range(n), size); }

// Sizes and sum of everything that an iteration gives, part by part.
typedef struct seen {
    int n, steps, sizes[64];
    double sum, last;
} seen;

static seen see(void *dataset)
{
    seen s = {0};
    MU_EACH(batch, (mu_dataset *)dataset) {
        const int parts = mu_value_kind_of(batch) == MU_VALUE_PER_REPLICA ? mu_value_count(batch) : 1;
        for (int r = 0; r < parts; r++) {
            const mu_tensor *tensor = mu_value_tensor(parts > 1 ? mu_value_at(batch, r) : batch);
            const int64_t rows = tensor ? mu_tensor_elements(tensor) : 0;
            for (int64_t i = 0; i < rows; i++)
                s.sum += s.last = mu__read_element(tensor->dtype, mu__host_read(tensor), i);
            if (s.n < 64)
                s.sizes[s.n++] = (int)rows;
        }
        s.steps++;
    }
    return s;
}

static void check_sizes(int line, seen s, int n, const int *sizes, double sum)
{
    if (s.n != n || s.sum != sum)
        fail_case(line, "%d parts with sum %g, expected %d with %g", s.n, s.sum, n, sum);
    for (int i = 0; i < n && i < s.n; i++)
        if (s.sizes[i] != sizes[i])
            fail_case(line, "part %d has %d rows, expected %d", i, s.sizes[i], sizes[i]);
}

#define SIZES(dataset, sum, ...) \
    check_sizes(__LINE__, see(dataset), (int)MU_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__}, sum)

static bool compat(void) { return mu__setting_bool(MU_SETTING_TF_COMPAT); }

// ---- 6.1: batches cut anew ----------------------------------------------------------------------

static void rebatch_sizes(void)
{
    for (int batch = 0; batch < 24; batch++)
        for (int workers = 1; workers <= 4; workers++)
            for (int replicas = 1; replicas <= 3; replicas++) {
                const int n = workers * replicas;
                int64_t first[12] = {0};
                for (int w = 0; w < workers; w++) {
                    int64_t total = 0, *sizes = mu__rebatch_sizes(batch, workers, w, replicas);
                    for (int i = 0; i < n; i++) {
                        total += sizes[i];
                        first[i / replicas] += sizes[i];
                        CHECK(sizes[i] == batch / n || sizes[i] == batch / n + 1);
                    }
                    CHECK(total == batch);
                    mu__free(sizes);
                }
                for (int step = 0; step < workers; step++) // every step of all workers has one batch
                    CHECK(first[step] == batch);
            }
}

static void rebatch(void)
{
    const int64_t two[] = {2, 2}, uneven[] = {3, 1}, none[] = {0}, wrong[] = {-1};
    SIZES(mu_dataset_rebatch(batches(10, 4), 2, two, false), 45, 2, 2, 2, 2, 2);
    SIZES(mu_dataset_rebatch(batches(9, 4), 2, two, false), 36, 2, 2, 2, 2, 1);
    SIZES(mu_dataset_rebatch(batches(9, 4), 2, two, true), 28, 2, 2, 2, 2);
    SIZES(mu_dataset_rebatch(batches(9, 2), 2, uneven, false), 36, 3, 1, 3, 1, 1);
    CHECK(see(mu_dataset_rebatch(batches(0, 4), 2, two, false)).n == 0);
    CHECK(!mu_dataset_rebatch(batches(4, 2), 1, wrong, false));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_dataset_rebatch(batches(4, 2), 0, none, false));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    see(mu_dataset_rebatch(range(4), 2, two, false));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    mu_tensor *long_one = mu_zeros(MU_F32, 1, (int64_t[]){3}), *short_one = mu_zeros(MU_F32, 1, (int64_t[]){2});
    see(mu_dataset_rebatch(mu_dataset_from_tensors(mu_list(long_one, short_one, MU_END)), 2, two, false));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *keep_element(mu_value *element, void *arg)
{
    (void)arg;
    return element;
}

// Where TensorFlow knows the size of batches it cuts across their borders, elsewhere each for itself.
static void known_sizes(void)
{
    if (!compat())
        return;
    mu_strategy *s = mirrored(2);
    mu_dataset *odd = batches(9, 4), *both = mu_dataset_concatenate(odd, odd);
    mu_dataset *known[] = {odd, mu_dataset_prefetch(mu_dataset_shuffle(odd, 1), 1), mu_dataset_take(odd, -1), both},
               *unknown[] = {mu_dataset_map(odd, keep_element, NULL), mu_dataset_concatenate(odd, batches(9, 3))};
    for (int i = 0; i < 4; i++) {
        mu_dataset *data = mu_dataset_options(known[i], .auto_shard_policy = MU_AUTO_SHARD_OFF);
        const seen parts = see(shard_plan(s, data).dataset);
        CHECK(parts.sum == (i == 3 ? 72 : 36) && parts.sizes[4] == (i == 3 ? 2 : 1) && parts.n == (i == 3 ? 9 : 5));
    }
    for (int i = 0; i < 2; i++) {
        mu_dataset *data = mu_dataset_options(unknown[i], .auto_shard_policy = MU_AUTO_SHARD_OFF);
        const seen parts = see(shard_plan(s, data).dataset);
        CHECK(parts.sizes[4] == 1 && parts.sizes[5] == 0);
    }
}

static void unbatched(void)
{
    SIZES(mu_distribute_dataset(mirrored(1), range(3)), 3, 1, 1, 1);
    SIZES(mu_distribute_dataset(mu_one_device_strategy("CPU:0"), range(3)), 3, 1, 1, 1);
    SIZES(mu_distribute_dataset(mu_default_strategy(), range(3)), 3, 1, 1, 1);
    SIZES(mu_distribute_dataset(mirrored(1), batches(3, 2)), 3, 2, 1);
    see(mu_distribute_dataset(mu_central_storage_strategy(.replicas = 2), range(3)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void every_strategy(void)
{
    mu_strategy *all[] = {mirrored(2), mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 2; i++) {
        SIZES(mu_distribute_dataset(all[i], batches(10, 4)), 45, 2, 2, 2, 2, 1, 1);
        SIZES(mu_distribute_dataset(all[i], mu_dataset_batch(range(10), 4, .drop_remainder = true)), 28, 2, 2, 2, 2);
        SIZES(mu_distribute_dataset(all[i], batches(9, 8)), 36, 4, 4, 1, 0);
    }
    mu_dataset *endless = mu_dataset_repeat(batches(2, 2), MU_INFINITE);
    SIZES(mu_distribute_dataset(mirrored(2), mu_dataset_take(endless, 3)), 3, 1, 1, 1, 1, 1, 1);
}

// ---- 6.1: shards --------------------------------------------------------------------------------

static mu_strategy *as_worker(int w, int workers)
{
    mu_strategy *strategy = mirrored(1);
    strategy->ops = workers > 1 ? &mu__multi_worker_ops : &mu__single_worker_ops;
    strategy->n_workers = strategy->n_replicas = workers;
    strategy->worker = strategy->first_replica = w;
    return strategy;
}

static void policies(void)
{
    for (int w = 0; w < 2; w++) {
        mu_dataset *data = batches(8, 2);
        mu_dataset *files = mu_dataset_options(data, .auto_shard_policy = MU_AUTO_SHARD_FILE);
        CHECK(!shard_plan(as_worker(w, 2), files).dataset);
        EXPECT_ERROR(MU_NOT_FOUND);
        mu_dataset *off = mu_dataset_options(data, .auto_shard_policy = MU_AUTO_SHARD_OFF);
        CHECK(see(shard_plan(as_worker(w, 2), off).dataset).sum == 28);
        mu_dataset *marked = mu_dataset_batch(mu_dataset_shard(range(8), MU_SHARD_HINT, MU_SHARD_HINT), 2);
        marked = mu_dataset_options(marked, .auto_shard_policy = MU_AUTO_SHARD_HINT);
        CHECK(see(shard_plan(as_worker(w, 2), marked).dataset).sum == (w ? 16 : 12));
    }
    see(mu_dataset_shard(range(8), MU_SHARD_HINT, MU_SHARD_HINT));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    mu_dataset *file = mu_dataset_options(batches(8, 2), .auto_shard_policy = MU_AUTO_SHARD_FILE);
    CHECK(see(shard_plan(as_worker(0, 1), file).dataset).sum == 28); // one worker: no change
    CHECK(!mu_dataset_options(batches(8, 2), .auto_shard_policy = (mu_auto_shard_policy)9));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void wrong_shards(void)
{
    static const int64_t wrong[][2] = {{0, 0}, {2, 2}, {2, -2}, {-3, 0}};
    for (int i = 0; i < 4; i++) {
        CHECK(!mu_dataset_shard(range(4), wrong[i][0], wrong[i][1]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    SIZES(mu_dataset_shard(range(5), 3, 1), 5, 1, 1);
    CHECK(see(mu__dataset_share(range(5), 5, 4)).sum == 4);
    see(mu__dataset_share(range(5), 6, 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(see(mu__dataset_share(range(5), 6, 5)).n == 0);
}

// ---- 6.2 and 6.3: pipelines from a function -----------------------------------------------------

typedef struct pipelines {
    int calls;
    mu_input_context seen[4];
} pipelines;

static mu_dataset *note_context(const mu_input_context *context, void *arg)
{
    pipelines *p = arg;
    p->seen[p->calls++ % 4] = *context;
    return batches(3 + context->input_pipeline_id, 2);
}

static bool had(const mu_input_context *context, int n, int id, int replicas)
{
    return context->num_input_pipelines == n && context->input_pipeline_id == id &&
           context->num_replicas_in_sync == replicas;
}

static void contexts(void)
{
    pipelines p = {0};
    SIZES(mu_distribute_datasets_from_function(mirrored(2), note_context, &p), 3, 2, 1);
    CHECK(p.calls == 1 && had(&p.seen[0], 1, 0, 2));
    SIZES(mu_distribute_datasets_from_function(mu_default_strategy(), note_context, &p), 3, 2, 1);
    CHECK(p.calls == 2 && had(&p.seen[1], 1, 0, 1));
    SIZES(mu_distribute_datasets_from_function(mu_one_device_strategy("CPU:0"), note_context, &p), 3, 2, 1);
    CHECK(p.calls == 3 && had(&p.seen[2], 1, 0, 1));
    const mu_input_context none = {0};
    CHECK(mu_per_replica_batch_size(&none, 12) == 12 && mu_per_replica_batch_size(NULL, 5) == 5);
    const mu_input_context wrong = {.num_replicas_in_sync = -1};
    CHECK(mu_per_replica_batch_size(&wrong, 12) == -1);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_dataset *no_dataset(const mu_input_context *context, void *arg)
{
    (void)context;
    if (arg)
        mu_fail(MU_ABORTED, "as planned");
    return NULL;
}

static void functions_that_fail(void)
{
    CHECK(!mu_distribute_datasets_from_function(mirrored(2), no_dataset, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_distribute_datasets_from_function(mirrored(2), no_dataset, &(int){1}));
    EXPECT_ERROR(MU_ABORTED);
    CHECK(!mu_distribute_datasets_from_function(mirrored(2), NULL, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_distribute_dataset(mirrored(2), NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// A pipeline for each replica; TensorFlow 2.21 gives the same parts.
static void per_replica_pipelines(void)
{
    pipelines p = {0};
    const mu_input_options *each = MU_INPUT_OPTIONS(.replication_mode = MU_PER_REPLICA);
    const mu_input_options *placed = MU_INPUT_OPTIONS(.replication_mode = MU_PER_REPLICA, .no_fetch_to_device = true,
                                                      .place_dataset_on_device = true);
    SIZES(mu_distribute_datasets_from_function_options(mirrored(2), note_context, &p, each), 9, 2, 2, 1, 2);
    CHECK(p.calls == 2 && had(&p.seen[0], 2, 0, 2) && had(&p.seen[1], 2, 1, 2));
    mu_distributed_dataset *three = mu_distribute_datasets_from_function_options(mirrored(3), note_context, &p, placed);
    SIZES(three, 19, 2, 2, 2, 1, 2, 2, 0, 0, 1);
}

static void options(void)
{
    pipelines p = {0};
    const mu_input_options *each = MU_INPUT_OPTIONS(.replication_mode = MU_PER_REPLICA);
    const mu_input_options *plain = MU_INPUT_OPTIONS(.per_replica_buffer_size = 4);
    const mu_input_options *wrong[] = {
        MU_INPUT_OPTIONS(.place_dataset_on_device = true),
        MU_INPUT_OPTIONS(.place_dataset_on_device = true, .no_fetch_to_device = true),
        MU_INPUT_OPTIONS(.place_dataset_on_device = true, .replication_mode = MU_PER_REPLICA),
        MU_INPUT_OPTIONS(.replication_mode = (mu_input_replication_mode)2),
        MU_INPUT_OPTIONS(.per_replica_buffer_size = -1)};
    for (int i = 0; i < 5; i++) {
        CHECK(!mu_distribute_datasets_from_function_options(mirrored(2), note_context, &p, wrong[i]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    mu_strategy *others[] = {mu_central_storage_strategy(.replicas = 2), mu_one_device_strategy("CPU:0")};
    for (int i = 0; i < 2; i++) {
        CHECK(!mu_distribute_datasets_from_function_options(others[i], note_context, &p, each));
        EXPECT_ERROR(MU_UNIMPLEMENTED);
        CHECK(!mu_distribute_dataset_options(others[i], batches(4, 2), each));
        EXPECT_ERROR(MU_UNIMPLEMENTED);
    }
    CHECK(!mu_distribute_dataset_options(mirrored(2), batches(4, 2), each) && p.calls == 0);
    EXPECT_ERROR(MU_UNIMPLEMENTED);
    SIZES(mu_distribute_dataset_options(mirrored(2), batches(4, 2), plain), 6, 1, 1, 1, 1);
}

// ---- 6.4: iteration -----------------------------------------------------------------------------

static void the_end(void)
{
    mu_distributed_dataset *data = mu_distribute_dataset(mirrored(2), batches(4, 2));
    mu_iterator *iterator = mu_iterate(data), *again = mu_iterate(data);
    for (int i = 0; i < 2; i++)
        CHECK(mu_next(iterator));
    for (int i = 0; i < 3; i++)
        CHECK(!mu_next(iterator) && mu_error_code() == MU_OK);
    CHECK(mu_next(again)); // a new iterator begins anew
    CHECK(see(data).sum == 6 && see(data).sum == 6);
    CHECK(see(mu_distribute_dataset(mirrored(2), batches(0, 2))).n == 0);
    CHECK(!mu_next(mu_iterate(mu_distribute_dataset(mirrored(2), batches(0, 2)))) && mu_error_code() == MU_OK);
}

static mu_value *next_inside(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_next(arg);
}

static void next_in_replica(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 2; i++) {
        mu_iterator *iterator = mu_iterate(mu_distribute_dataset(s, batches(8, 4)));
        CHECK(!(i ? traced : eager)(s, next_inside, iterator));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(mu_next(iterator)); // nothing was taken
    }
}

static mu_value *sum_of_batch(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_cast(mu_value_tensor(arguments), MU_F32), 0));
}

// Steps on uneven and empty parts, and what a plain strategy gives.
static void steps(void)
{
    mu_strategy *s = mirrored(3);
    double total = 0;
    MU_EACH(batch, mu_distribute_dataset(s, batches(10, 4))) {
        CHECK(mu_value_kind_of(batch) == MU_VALUE_PER_REPLICA && mu_value_count(batch) == 3);
        mu_value *sums = mu_run(s, mu_function_new(sum_of_batch, NULL), batch);
        total += mu_scalar(mu_reduce(s, MU_SUM, sums));
    }
    CHECK(total == 45);
    MU_EACH(batch, mu_distribute_dataset(mu_one_device_strategy("CPU:0"), batches(10, 4)))
        CHECK(mu_value_kind_of(batch) == MU_VALUE_TENSOR);
}

static void failing_input(void)
{
    mu_strategy *s = mirrored(2);
    mu_dataset *bad = mu_dataset_concatenate(batches(4, 2), range(1));
    mu_iterator *iterator = mu_iterate(mu_distribute_dataset(s, bad));
    CHECK(mu_next(iterator) && mu_next(iterator) && !mu_next(iterator));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static bool has_shape(const mu_value *spec, mu_dtype dtype, int rank, int64_t rows)
{
    const mu_tensor *leaf = mu_value_tensor(spec);
    const mu_shape shape = leaf ? mu_tensor_shape(leaf) : (mu_shape){.rank = -1};
    return leaf && mu_tensor_dtype(leaf) == dtype && shape.rank == rank && (rank == 0 || shape.dims[0] == rows);
}

static void element_specs(void)
{
    mu_dataset *whole = mu_dataset_batch(range(9), 4, .drop_remainder = true), *odd = batches(9, 4);
    CHECK(has_shape(mu_dataset_element_spec(range(9)), MU_I64, 0, 0));
    CHECK(has_shape(mu_dataset_element_spec(odd), MU_I64, 1, MU_UNKNOWN));
    CHECK(has_shape(mu_dataset_element_spec(whole), MU_I64, 1, 4));
    mu_value *spec = mu_distributed_element_spec(mu_distribute_dataset(mirrored(2), odd));
    CHECK(mu_value_kind_of(spec) == MU_VALUE_PER_REPLICA && mu_value_count(spec) == 2);
    CHECK(has_shape(mu_value_at(spec, 1), MU_I64, 1, MU_UNKNOWN));
    spec = mu_distributed_element_spec(mu_distribute_dataset(mirrored(2), whole));
    CHECK(has_shape(mu_value_at(spec, 0), MU_I64, 1, compat() ? MU_UNKNOWN : 2));
    spec = mu_distributed_element_spec(mu_distribute_dataset(mirrored(3), whole));
    CHECK(has_shape(mu_value_at(spec, 0), MU_I64, 1, MU_UNKNOWN));
    spec = mu_distributed_element_spec(mu_distribute_dataset(mu_one_device_strategy("CPU:0"), whole));
    CHECK(mu_value_kind_of(spec) == MU_VALUE_TENSOR && has_shape(spec, MU_I64, 1, 4));
    mu_dataset *mapped = mu_dataset_map(odd, keep_element, NULL);
    CHECK(!mu_dataset_element_spec(mapped));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(!mu_distributed_element_spec(mu_distribute_dataset(mirrored(2), mapped)));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(!mu_distributed_element_spec(NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_dataset_element_spec(NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_dataset *full_batches(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_dataset_batch(range(6), 2, .drop_remainder = true);
}

// Three batches for two replicas: the last step has an empty one, which the spec says, or TensorFlow leaves it out.
static void last_batches(void)
{
    mu_strategy *all[] = {mirrored(2), mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 2; i++) {
        mu_distributed_dataset *data = mu_distribute_datasets_from_function(all[i], full_batches, NULL);
        CHECK(has_shape(mu_value_at(mu_distributed_element_spec(data), 1), MU_I64, 1, compat() ? 2 : MU_UNKNOWN));
        if (compat())
            SIZES(data, 6, 2, 2);
        else
            SIZES(data, 15, 2, 2, 2, 0);
    }
    mu_dataset *file = mu_dataset_options(batches(5, 4), .auto_shard_policy = MU_AUTO_SHARD_OFF);
    if (compat())
        SIZES(mu_distribute_dataset(all[1], file), 6, 2, 2);
    mu_tensor *five = mu_zeros(MU_F32, 1, (int64_t[]){5});
    mu_dataset *whole =
        mu_dataset_options(mu_dataset_from_tensors(mu_of(five)), .auto_shard_policy = MU_AUTO_SHARD_OFF);
    SIZES(mu_distribute_dataset(mirrored(4), whole), 0, 2, 1, 1, 1);
}

const one_case rule_input_cases[] = {
    {"rule_input_6_1_sizes", rebatch_sizes, NULL},
    {"rule_input_6_1_rebatch", rebatch, NULL},
    {"rule_input_6_1_known_sizes", known_sizes, NULL},
    {"rule_input_6_1_unbatched", unbatched, NULL},
    {"rule_input_6_1_every_strategy", every_strategy, NULL},
    {"rule_input_6_1_policies", policies, NULL},
    {"rule_input_6_1_shards", wrong_shards, NULL},
    {"rule_input_6_2_contexts", contexts, NULL},
    {"rule_input_6_2_failures", functions_that_fail, NULL},
    {"rule_input_6_3_per_replica", per_replica_pipelines, NULL},
    {"rule_input_6_3_options", options, NULL},
    {"rule_input_6_4_end", the_end, NULL},
    {"rule_input_6_4_next_in_replica", next_in_replica, NULL},
    {"rule_input_6_4_steps", steps, NULL},
    {"rule_input_6_4_failures", failing_input, NULL},
    {"rule_input_6_4_element_spec", element_specs, NULL},
    {"rule_input_6_4_last_batches", last_batches, NULL},
    {0},
};
