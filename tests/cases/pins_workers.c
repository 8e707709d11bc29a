// What TensorFlow's tests pin on two workers and no numbered case has.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

#define RUN(i) ((i) ? traced : eager)

static int worker(const mu_strategy *strategy) { return mu_strategy_worker_index(strategy); }

static mu_value *plus_id(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_value_tensor(arguments), id()));
}

static mu_value *run_and_reduce(mu_value *arguments, void *arg)
{
    return mu_reduce(arg, MU_SUM, mu_run(arg, mu_function_new(plus_id, NULL), arguments));
}

static mu_dataset *shares_of_hundred(const mu_input_context *context, void *arg)
{
    (void)arg;
    mu_dataset *twice = mu_dataset_repeat(mu_dataset_range(0, 100, 1), 2);
    mu_dataset *data = mu_dataset_batch(twice, mu_per_replica_batch_size(context, 10));
    return mu_dataset_shard(data, context->num_input_pipelines, context->input_pipeline_id);
}

static mu_dataset *shares_of_fourteen(const mu_input_context *context, void *arg)
{
    (void)arg;
    mu_dataset *data = mu_dataset_batch(mu_dataset_range(0, 14, 1), mu_per_replica_batch_size(context, 8));
    return mu_dataset_shard(data, context->num_input_pipelines, context->input_pipeline_id);
}

static mu_value *give_back(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(mu_value_tensor(arguments), mu_constant(MU_I64, 0)));
}

void pins_of_input(mu_strategy *s)
{
    const int w = worker(s);
    MU_SCOPE(s)
        EXPECT(mu_function_call(mu_function_new(run_and_reduce, s), mu_of(scalar(3))), 7);
    mu_value *first = mu_next(mu_iterate(mu_distribute_datasets_from_function(s, shares_of_hundred, NULL)));
    if (w == 0)
        EXPECT(first, 0, 1, 2, 3, 4);
    else
        EXPECT(first, 5, 6, 7, 8, 9);
    mu_function *f = mu_function_new(give_back, NULL);
    mu_iterator *it = mu_iterate(mu_distribute_dataset(s, mu_dataset_batch(mu_dataset_range(0, 14, 1), 8)));
    mu_value *got = mu_run(s, f, mu_next(it));
    CHECK(got);
    got = mu_run(s, f, mu_next(it));
    if (w == 0)
        EXPECT(got, 8, 9, 10);
    else
        EXPECT(got, 11, 12, 13);
    it = mu_iterate(mu_distribute_datasets_from_function(s, shares_of_fourteen, NULL));
    CHECK(mu_run(s, f, mu_next(it)));
    got = mu_run(s, f, mu_next(it));
    if (w == 0)
        EXPECT(got, 8, 9, 10, 11);
    else
        EXPECT(got, 12, 13);
}

static mu_value *all_reduce_plus_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *leaf = mu_value_at(mu_variables((mu_variable *)arg, MU_END), 0);
    return mu_of(mu_add(mu_value_tensor(mu_all_reduce_value(MU_SUM, leaf)), id()));
}

typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
typedef struct scattering {
    mu_variable *v;
    scatter_fn *scatter;
} scattering;

// Rows id and id + 1 get id + 1 and id + 2.
static mu_value *scatter_rows(mu_value *arguments, void *arg)
{
    (void)arguments;
    const scattering *j = arg;
    mu_tensor *rows = mu_add(INDICES(0, 1), mu_replica_id());
    mu_tensor *values = mu_cast(mu_add(rows, INDICES(1, 1)), mu_variable_dtype(j->v));
    return j->scatter(j->v, rows, values) == MU_OK ? read_of(j->v) : NULL;
}

static mu_value *update_part(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_variable_assign_add(variable, mu_at(arguments, 0)) == MU_OK ? read_of(variable) : NULL;
}

void pins_of_variables(mu_strategy *s)
{
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    const int w = worker(s);
    for (int i = 0; i < 48; i++) {
        const int a = i / 12, k = i / 4 % 3, how = i % 4;
        if (a == MU_AGGREGATION_SUM && how < 2)
            continue;
        assignment j = {.variable = on_write(s, 0, (mu_variable_aggregation)a),
                        .assign = assigns[k],
                        .value = scalar(k == 2 ? -1 : 1)};
        if (how < 2)
            CHECK(RUN(how)(s, assign_on_replica, &j));
        else
            CHECK(j.assign(j.variable, j.value) == MU_OK);
        EXPECT(components(j.variable), 1);
        EXPECT(RUN(how % 2)(s, read_on_replica, j.variable), 1);
    }
    mu_variable *v = on_write(s, 2, MU_AGGREGATION_MEAN);
    EXPECT(eager(s, all_reduce_plus_id, v), 4 + w);
    EXPECT(traced(s, all_reduce_plus_id, v), 4 + w);
    for (int i = 0; i < 2; i++) {
        const mu_variable_synchronization how = MU_SYNCHRONIZATION_ON_WRITE;
        mu_variable *x = variable(s, VECTOR(0, 0, 0), how, MU_AGGREGATION_MEAN);
        mu_variable *y = variable(s, INDICES(0, 0, 0), how, MU_AGGREGATION_SUM);
        mu_variable *z = variable(s, VECTOR(1, 6, 1), how, MU_AGGREGATION_SUM);
        EXPECT(RUN(i)(s, scatter_rows, &(scattering){x, mu_variable_scatter_sub}), -.5, -2, -1.5);
        EXPECT(RUN(i)(s, scatter_rows, &(scattering){y, mu_variable_scatter_add}), 1, 4, 3);
        EXPECT(RUN(i)(s, scatter_rows, &(scattering){z, mu_variable_scatter_div}), 1, 1.5, 1.0 / 3);
    }
    mu_variable *n = on_write(s, 0, MU_AGGREGATION_NONE);
    EXPECT(mu_update_variable(s, n, update_part, NULL, mu_list(scalar(w + 1), MU_END)), w + 1);
    EXPECT(components(n), w + 1);
}

static mu_value *four_minus_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign(arg, mu_subtract(scalar(4), id())) == MU_OK ? mu_list(MU_END) : NULL;
}

static mu_status file_of(mu_variable *v, const char *path, bool restore)
{
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    return restore ? mu_checkpoint_restore(checkpoint, path) : mu_checkpoint_save(checkpoint, path);
}

void pins_of_files(mu_strategy *s)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/muster-pin-%d", (int)getppid());
    for (int a = MU_AGGREGATION_SUM; a <= MU_AGGREGATION_MEAN; a++) {
        mu_variable *v = on_read(s, 1, (mu_variable_aggregation)a);
        CHECK(traced(s, four_minus_id, v));
        EXPECT(components(v), 4 - worker(s));
        CHECK(file_of(v, path, false) == MU_OK && file_of(v, path, true) == MU_OK);
        EXPECT(components(v), 3.5);
        EXPECT(read_of(v), a == MU_AGGREGATION_SUM ? 7 : 3.5);
        mu_variable *plain = mu_variable_new(scalar(0), "v");
        CHECK(file_of(plain, path, true) == MU_OK);
        EXPECT(read_of(plain), a == MU_AGGREGATION_SUM ? 7 : 3.5);
    }
    EXPECT(mu_reduce(s, MU_SUM, mu_of(scalar(1))), 2);
    if (worker(s) == 0)
        unlink(path);
}

static mu_value *rows_of_id(const mu_value_context *context, void *arg)
{
    const int64_t size = context->replica_id + 1;
    return mu_of(mu_ones(MU_F32, 2, arg ? (int64_t[]){1, size} : (int64_t[]){size, 1}));
}

static mu_value *gather_nest(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *second = mu_reshape(VECTOR(1, 2, 1, 2), 3, (int64_t[]){1, 2, 2});
    return mu_all_gather_value(mu_list(mu_value_at(arguments, 0), second, MU_END), 1);
}

static mu_value *gather_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_gather(mu_at(arguments, 0), 0));
}

void pins_of_gathers(mu_strategy *s)
{
    static int wide;
    mu_value *tall = mu_distribute_values(s, rows_of_id, NULL), *flat = mu_distribute_values(s, rows_of_id, &wide);
    EXPECT(mu_strategy_gather(s, tall, 0), 1, 1, 1);
    EXPECT(mu_strategy_gather(s, flat, 1), 1, 1, 1);
    EXPECT(mu_run_callback(s, gather_rows, NULL, mu_list(tall, MU_END)), 1, 1, 1);
    EXPECT(mu_run(s, mu_function_new(gather_rows, NULL), mu_list(tall, MU_END)), 1, 1, 1);
    EXPECT(mu_run(s, mu_function_new(gather_nest, NULL), mu_list(flat, MU_END)), 1, 1, 1, 1, 2, 1, 2, 1, 2, 1, 2);
    EXPECT(mu_run_callback(s, gather_nest, NULL, mu_list(flat, MU_END)), 1, 1, 1, 1, 2, 1, 2, 1, 2, 1, 2);
    CHECK(!mu_strategy_gather(s, flat, 0));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static mu_value *sums_of_two(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *ones = mu_ones(MU_F32, 2, (int64_t[]){64, 64});
    return mu_all_reduce_value(MU_SUM, mu_list(ones, ones, MU_END));
}

// test_quick_recover: a worker that dies between two steps and comes back before the next one is not taken for the
// same worker; the launcher starts both again.
void pins_of_restarts(mu_strategy *s)
{
    const char *mark = getenv("CASE_MARK");
    for (int step = 0; step < 2; step++) {
        mu_value *sums = traced(s, sums_of_two, NULL);
        for (int i = 0; i < 2; i++)
            EXPECT(mu_of(mu_reduce_mean(mu_value_tensor(mu_value_at(sums, i)))), 2);
        if (step == 0 && worker(s) == 1 && access(mark, F_OK) != 0) {
            fclose(fopen(mark, "w"));
            _exit(3);
        }
    }
}

enum { RECORDS = 10 };

static mu_value *as_floats(mu_value *element, void *arg)
{
    (void)arg;
    return mu_of(mu_cast(mu_value_tensor(element), MU_F32));
}

static void write_records(const char *path)
{
    mu_tfrecord_writer *file = mu_tfrecord_writer_new(path);
    for (int i = 0; i < RECORDS; i++)
        CHECK(mu_tfrecord_write(file, mu_tensor_new(MU_U8, 1, (int64_t[]){1}, (uint8_t[]){(uint8_t)i})) == MU_OK);
    CHECK(mu_tfrecord_writer_close(file) == MU_OK);
}

// test_predict_on_dataset_shard_options_file_multi_worker_mirrored: one file for two workers, which is not enough where
// files are divided as TensorFlow divides them.
void pins_of_shards(mu_strategy *s)
{
    char path[600];
    snprintf(path, sizeof path, "%s.records", getenv("CASE_MARK"));
    if (worker(s) == 0)
        write_records(path);
    EXPECT(mu_reduce(s, MU_SUM, mu_of(VECTOR(1))), 2);
    mu_model *m = NULL;
    MU_SCOPE(s)
        m = mu_sequential(mu_input_layer({1}), mu_dense(1, .kernel_initializer = "ones"));
    mu_dataset *data = mu_dataset_batch(mu_dataset_map(mu_dataset_tfrecord(path), as_floats, NULL), 4);
    const bool compat = mu__setting_bool(MU_SETTING_TF_COMPAT);
    for (int policy = compat ? MU_AUTO_SHARD_DATA : MU_AUTO_SHARD_AUTO; policy <= MU_AUTO_SHARD_DATA; policy++) {
        mu_dataset *divided = mu_dataset_options(data, .auto_shard_policy = (mu_auto_shard_policy)policy);
        mu_tensor *all = mu_predict(m, divided, .verbose = MU_VERBOSE_SILENT);
        EXPECT(all ? mu_of(all) : NULL, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    }
    EXPECT(mu_reduce(s, MU_SUM, mu_of(VECTOR(1))), 2);
    if (worker(s) == 0)
        unlink(path);
}

// ---- The first replica --------------------------------------------------------------------------

static mu_value *read_merged(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments;
    return read_of(arg);
}

static mu_value *part_and_merge(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign(arg, mu_add(id(), scalar(4)));
    mu_value *merged = mu_merge_call(read_merged, arg, NULL);
    mu_sync_on_read(true);
    mu_value *in_sync = read_of(arg);
    mu_sync_on_read(false);
    return mu_list(merged, in_sync, MU_END);
}

// An ON_READ variable with aggregation ONLY_FIRST_REPLICA reads as the first replica of the worker has it: outside of
// replicas, in merges, traced or not, and in sync-on-read contexts.
void pins_of_first_replicas(mu_strategy *s)
{
    const double first = 4 + worker(s) * mu_num_replicas_in_sync(s) / 2;
    for (int i = 0; i < 2; i++) {
        mu_variable *v = on_read(s, 1, MU_AGGREGATION_ONLY_FIRST_REPLICA);
        mu_value *all = mu_local_results(s, RUN(i)(s, part_and_merge, v));
        for (int r = 0; r < mu_value_count(all); r++)
            EXPECT(mu_value_at(all, r), first, first);
        EXPECT(read_of(v), first);
        MU_SCOPE(s)
            EXPECT(read_of(v), first);
        mu_variable *w = on_write(s, 0, MU_AGGREGATION_NONE);
        CHECK(mu_variable_assign(w, mu_variable_read(v)) == MU_OK);
        EXPECT(read_of(w), first);
    }
}
