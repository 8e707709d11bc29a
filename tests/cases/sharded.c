// Cases PART and SHARD of the parameter-server list: partitioners and sharded variables.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

static mu_shape shape_of(int rank, const int64_t *dims) { return mu_shape_make(rank, dims); }
#define SHAPE_OF(...) shape_of((int)MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static mu_tensor *matrix(int64_t rows, int64_t columns, const double *values)
{
    return mu_reshape(vector((int)(rows * columns), values), 2, (int64_t[]){rows, columns});
}

static mu_value *value_of(mu_variable *v) { return mu_of(mu_variable_read(v)); }

// A sharded variable of parts with these numbers of rows, numbered from `first` on.
static mu_variable *sharded(int n, const int64_t *rows, int64_t columns, double first)
{
    mu_variable *parts[8];
    for (int i = 0; i < n; i++) {
        const double elements = (double)(rows[i] * columns);
        mu_tensor *x = mu_range(MU_F32, first, first + elements, 1);
        parts[i] = mu_variable_new(mu_reshape(x, 2, (int64_t[]){rows[i], columns}), "part");
        first += elements;
    }
    return mu_sharded_variable_of(n, parts, NULL);
}

// ---- Partitioners -------------------------------------------------------------------------------

static void expect_counts(int line, mu_partitioner *partitioner, mu_shape shape, int64_t first)
{
    int64_t counts[MU_MAX_RANK];
    if (mu_partitioner_call(partitioner, &shape, MU_F32, 0, counts) != 2 || counts[0] != first || counts[1] != 1)
        fail_case(line, "counts [%lld, %lld], expected [%lld, 1]", (long long)counts[0], (long long)counts[1],
                  (long long)first);
}
#define EXPECT_COUNTS(partitioner, first, ...) expect_counts(__LINE__, partitioner, SHAPE_OF(__VA_ARGS__), first)

static void ps_001(void) { EXPECT_COUNTS(mu_fixed_shards_partitioner(.num_shards = 2), 2, 10, 3); }

static void ps_002(void)
{
    EXPECT_COUNTS(mu_min_size_partitioner(.min_shard_bytes = 4, .max_shards = 2), 2, 6, 1);
    EXPECT_COUNTS(mu_min_size_partitioner(.min_shard_bytes = 4, .max_shards = 10), 6, 6, 1);
}

static void ps_004(void)
{
    EXPECT_COUNTS(mu_min_size_partitioner(.min_shard_bytes = 16, .max_shards = 10), 2, 6, 1);
    EXPECT_COUNTS(mu_min_size_partitioner(.min_shard_bytes = 256 << 10, .max_shards = 100), 16, 1024, 1024);
}

static void ps_005(void)
{
    EXPECT_COUNTS(mu_max_size_partitioner(.max_shard_bytes = 30), 5, 10, 3);
    EXPECT_COUNTS(mu_max_size_partitioner(.max_shard_bytes = 11), 10, 10, 3);
}

// What the partitioner of case 13 returns, beginning with how many.
static int listed(const mu_shape *shape, mu_dtype dtype, int64_t counts[MU_MAX_RANK], void *arg)
{
    const int64_t *list = arg;
    (void)shape, (void)dtype;
    for (int i = 0; i < list[0]; i++)
        counts[i] = list[1 + i];
    return (int)list[0];
}

static void ps_013(void)
{
    static int64_t wrong[][4] = {{-1}, {0}, {3, 0, 1, 1}, {3, 2, 2, 1}};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        mu_partitioner *partitioner = mu_partitioner_new(listed, wrong[i]);
        CHECK(!mu_sharded_variable_new(mu_zeros(MU_F32, 3, (int64_t[]){2, 2, 2}), "v", .partitioner = partitioner));
        CHECK(strstr(mu_error_message(), "partitioner"));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

// Rows of the identity matrix that a part has; only for a part.
static mu_tensor *identity_rows(const mu_partition_info *info, void *arg)
{
    float rows[16] = {0};
    ++*(int *)arg;
    for (int64_t i = 0; i < info->shape.dims[0]; i++)
        rows[i * info->shape.dims[1] + info->offset[0] + i] = 1;
    return mu_tensor_new(MU_F32, 2, info->shape.dims, rows);
}

static void ps_014(void)
{
    int calls = 0;
    mu_variable *v = mu_sharded_variable_new(.name = "v", .partitioner = mu_fixed_shards_partitioner(2),
                                             .initial_value_fn = identity_rows, .arg = &calls,
                                             .shape = &(mu_shape){2, {4, 4}}, .dtype = MU_F32);
    CHECK(calls == 2 && mu_variable_shard_count(v) == 2);
    EXPECT(value_of(mu_variable_shard(v, 0)), 1, 0, 0, 0, 0, 1, 0, 0);
    EXPECT(value_of(mu_variable_shard(v, 1)), 0, 0, 1, 0, 0, 0, 0, 1);
}

// ---- Whole variables ----------------------------------------------------------------------------

// [[0,0]], [[1,1],[2,2]], [[3,3]]
static mu_variable *zero_to_three(void)
{
    static const double values[] = {0, 0, 1, 1, 2, 2, 3, 3};
    mu_variable *parts[] = {mu_variable_new(matrix(1, 2, values), "v0"),
                            mu_variable_new(matrix(2, 2, values + 2), "v1"),
                            mu_variable_new(matrix(1, 2, values + 6), "v2")};
    return mu_sharded_variable_of(3, parts, "v");
}

static void ps_016(void)
{
    mu_variable *v = zero_to_three();
    CHECK(mu_variable_assign(v, matrix(4, 2, (double[]){4, 4, 5, 5, 6, 6, 7, 7})) == MU_OK);
    EXPECT(value_of(mu_variable_shard(v, 0)), 4, 4);
    EXPECT(value_of(mu_variable_shard(v, 1)), 5, 5, 6, 6);
    EXPECT(value_of(mu_variable_shard(v, 2)), 7, 7);
}

static void ps_017(void)
{
    mu_variable *v = zero_to_three();
    CHECK(mu_variable_assign_add(v, matrix(4, 2, (double[]){1, 1, 1, 1, 2, 2, 2, 2})) == MU_OK);
    EXPECT(value_of(mu_variable_shard(v, 0)), 1, 1);
    EXPECT(value_of(mu_variable_shard(v, 1)), 2, 2, 4, 4);
    EXPECT(value_of(mu_variable_shard(v, 2)), 5, 5);
}

static void ps_019(void) { EXPECT(value_of(zero_to_three()), 0, 0, 1, 1, 2, 2, 3, 3); }

static void ps_020(void)
{
    mu_variable *v = mu_sharded_variable_new(mu_zeros(MU_F32, 2, (int64_t[]){32, 1}), "v",
                                             .partitioner = mu_fixed_shards_partitioner(3));
    static const int64_t rows[] = {11, 11, 10}, ids[] = {0, 10, 11, 12, 30, 31};
    for (int i = 0; i < 3; i++)
        CHECK(mu_variable_shape(mu_variable_shard(v, i)).dims[0] == rows[i]);
    for (int times = 1; times <= 2; times++) {
        CHECK(mu_variable_scatter_add(v, INDICES(0, 10, 11, 12, 30, 31), matrix(6, 1, (double[]){0, 1, 2, 3, 4, 5})) ==
              MU_OK);
        double wanted[32] = {0};
        for (int i = 0; i < 6; i++)
            wanted[ids[i]] = i * times;
        expect_values(__LINE__, "v", value_of(v), 32, wanted);
    }
}

// ---- Lookups ------------------------------------------------------------------------------------

// [1,2],[3,4] / [5,6],[7,8] / [9,10]
static mu_variable *one_to_ten(void) { return sharded(3, (int64_t[]){2, 2, 1}, 2, 1); }

static mu_value *look_up(mu_value *arguments, void *arg)
{
    return mu_of(mu_nn_embedding_lookup(arg, mu_at(arguments, 0)));
}

static void ps_022(void)
{
    mu_variable *v = one_to_ten();
    mu_tensor *ids = mu_cast(VECTOR(0, 3, 4), MU_I64);
    EXPECT(look_up(mu_list(ids, MU_END), v), 1, 2, 7, 8, 9, 10);
    // In the graph, one gather for each part reads it, and nothing has the table's five rows.
    mu_function *function = mu_function_new(look_up, v);
    EXPECT(mu_function_call(function, mu_list(ids, MU_END)), 1, 2, 7, 8, 9, 10);
    const mu_concrete *traced = mu__function_concrete(function, mu_list(ids, MU_END), MU_BATCH_PREFERRED, NULL);
    int gathers = 0;
    for (size_t i = 0; traced && i < traced->graph->nodes.n; i++) {
        const mu_node *node = traced->graph->nodes.items[i];
        gathers += node->op == &mu_op_gather && node->in[0].node->op == &mu_op_read_variable;
        for (int k = 0; k < node->n_out; k++)
            CHECK(node->out[k].shape.rank != 2 || node->out[k].shape.dims[0] != 5);
    }
    CHECK(gathers == 3);
}

static void ps_023(void)
{
    mu_tensor *ids = mu_cast(VECTOR(0, 3, 4, 1), MU_I64), *rows = mu_cast(VECTOR(0, 0, 1, 2), MU_I64);
    EXPECT(mu_of(mu_nn_embedding_lookup_sparse(one_to_ten(), ids, rows)), 4, 5, 9, 10, 3, 4);
}

// ---- Slices -------------------------------------------------------------------------------------

enum { OPEN = 1000 }; // no bound

// v[begin:end:step], of which only the row numbers are compared: row i is 2i + 1, 2i + 2.
static void expect_slice(int line, mu_variable *v, int64_t begin, int64_t end, int64_t step, int n,
                         const double *wanted)
{
    double elements[32];
    for (int i = 0; i < n; i++) {
        elements[2 * i] = 2 * wanted[i] + 1;
        elements[2 * i + 1] = 2 * wanted[i] + 2;
    }
    mu_tensor *rows = mu_variable_strided_slice(v, (int64_t[]){begin, 0}, (int64_t[]){end, 0}, (int64_t[]){step, 1},
                                                2u | (begin == OPEN), 2u | (end == OPEN), 0);
    expect_values(line, "slice", mu_of(rows), 2 * n, elements);
}
#define EXPECT_SLICE(begin, end, step, ...) \
    expect_slice(__LINE__, v, begin, end, step, (int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static mu_variable *one_to_sixteen(void) { return sharded(3, (int64_t[]){3, 3, 2}, 2, 1); }

static void ps_025(void)
{
    mu_variable *v = one_to_sixteen();
    EXPECT_SLICE(OPEN, 2, 1, 0, 1);
    EXPECT_SLICE(-10, 2, 1, 0, 1);
    EXPECT_SLICE(5, -1, 1, 5, 6);
    EXPECT_SLICE(OPEN, OPEN, 3, 0, 3, 6);
    EXPECT_SLICE(1, OPEN, 6, 1, 7);
    EXPECT_SLICE(2, 7, 2, 2, 4, 6);
}

static void ps_026(void)
{
    mu_variable *v = one_to_sixteen();
    EXPECT_SLICE(OPEN, OPEN, -1, 7, 6, 5, 4, 3, 2, 1, 0);
    EXPECT_SLICE(2, -8, -1, 2, 1);
    EXPECT_SLICE(2, -10, -1, 2, 1, 0);
    EXPECT_SLICE(-1, -3, -1, 7, 6);
    EXPECT_SLICE(OPEN, OPEN, -5, 7, 2);
    EXPECT_SLICE(6, 5, -6, 6);
    EXPECT_SLICE(7, 1, -4, 7, 3);
}

// A tensor as an index is not expressible: bounds are numbers.
static void ps_028(void)
{
    mu_variable *v = one_to_sixteen();
    EXPECT(mu_of(mu_variable_boolean_mask(v, mu_greater(mu_variable_read(v), scalar(10)))), 11, 12, 13, 14, 15, 16);
}

// ---- Checkpoints and refusals -------------------------------------------------------------------

static mu_variable *rows_sharded(const double *values, int parts)
{
    return mu_sharded_variable_new(vector(4, values), "model", .partitioner = mu_fixed_shards_partitioner(parts));
}

static mu_checkpoint *checkpoint_of(mu_variable *v) { return mu_checkpoint_new(.variables = mu_variables(v, MU_END)); }

static void ps_029(void)
{
    char path[] = "/tmp/muster-case-XXXXXX";
    const int file = mkstemp(path);
    mu_variable *four = rows_sharded((double[]){0, 1, 2, 3}, 4), *one = rows_sharded((double[4]){0}, 1);
    CHECK(file >= 0 && mu_variable_shard_count(four) == 4 && mu_variable_shard_count(one) == 0);
    CHECK(mu_checkpoint_save(checkpoint_of(four), path) == MU_OK);
    CHECK(mu_checkpoint_restore(checkpoint_of(one), path) == MU_OK);
    EXPECT(value_of(one), 0, 1, 2, 3);
    CHECK(mu_variable_assign(one, VECTOR(5, 10, 15, 20)) == MU_OK);
    CHECK(mu_checkpoint_save(checkpoint_of(one), path) == MU_OK);
    CHECK(mu_checkpoint_restore(checkpoint_of(four), path) == MU_OK);
    for (int i = 0; i < 4; i++)
        EXPECT(value_of(mu_variable_shard(four, i)), 5 * (i + 1));
    close(file);
    unlink(path);
}

static mu_model *four_weights(int parts)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"a:1\"], \"ps\": [\"a:2\", \"a:3\"]}");
    mu_strategy *servers = mu_parameter_server_strategy(mu_simple_cluster_resolver(spec),
                                                        mu_fixed_shards_partitioner(parts), .in_process = true);
    mu_model *model = NULL;
    MU_SCOPE(servers)
        model = mu_sequential(mu_dense(1, .no_bias = true, .name = "w"));
    return model;
}

static void expect_weights(mu_model *model, int parts, const double *values)
{
    mu_value *shards = mu_value_at(mu_model_weights(model), 0);
    CHECK(mu_value_count(shards) == parts);
    for (int i = 0; i < parts; i++)
        EXPECT(value_of(mu_value_variable(mu_value_at(shards, i))), values[i]);
}

// Deferred: the model has no weights when the file is read.
static void ps_031(void)
{
    char path[] = "/tmp/muster-case-XXXXXX";
    const int file = mkstemp(path);
    mu_model *two = four_weights(2), *built = four_weights(4), *deferred = four_weights(4);
    CHECK(file >= 0 && mu_model_build(two, 1, (int64_t[]){4}) == MU_OK);
    CHECK(mu_model_build(built, 1, (int64_t[]){4}) == MU_OK);
    mu_value *shards = mu_value_at(mu_model_weights(two), 0);
    for (int i = 0; i < 2; i++)
        CHECK(mu_variable_assign(mu_value_variable(mu_value_at(shards, i)),
                                 matrix(2, 1, (double[]){2 * i + 1, 2 * i + 2})) == MU_OK);
    CHECK(mu_checkpoint_save(mu_checkpoint_new(.model = two), path) == MU_OK);
    CHECK(mu_checkpoint_restore(mu_checkpoint_new(.model = built), path) == MU_OK);
    CHECK(mu_checkpoint_restore(mu_checkpoint_new(.model = deferred), path) == MU_OK);
    expect_weights(built, 4, (double[]){1, 2, 3, 4});
    expect_weights(deferred, 4, (double[]){1, 2, 3, 4});
    close(file);
    unlink(path);
}

static void ps_032(void)
{
    mu_variable *whole = mu_variable_new(mu_zeros(MU_I64, 1, (int64_t[]){2}), "a");
    mu_variable *other = mu_variable_new(mu_zeros(MU_I32, 1, (int64_t[]){2}), "b");
    mu_variable *wide[] = {mu_variable_new(mu_zeros(MU_F32, 2, (int64_t[]){5, 10}), "c"),
                           mu_variable_new(mu_zeros(MU_F32, 2, (int64_t[]){5, 20}), "d")};
    CHECK(!mu_sharded_variable_of(1, NULL, "v"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_sharded_variable_of(0, &whole, "v"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_sharded_variable_of(2, (mu_variable *[]){whole, (mu_variable *)scalar(1)}, "v"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_sharded_variable_of(2, (mu_variable *[]){whole, other}, "v"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_sharded_variable_of(2, wide, "v"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- On parameter servers -----------------------------------------------------------------------

static bool is_on(const mu_variable *variable, int server)
{
    char name[64];
    const char *device = mu_variable_device(variable);
    snprintf(name, sizeof name, "/job:ps/replica:0/task:%d/device:CPU:0", server);
    return device && strcmp(device, name) == 0;
}

static void ps_007(void)
{
    mu_strategy *strategy = on_workers(1, 3, NULL);
    mu_variable *v[4] = {NULL};
    MU_SCOPE(strategy) {
        mu_set_device("CPU:1"); // not inside of a scope; around one it is ignored
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        v[0] = mu_variable_new(scalar(0));
        v[1] = mu_variable_new(scalar(1));
    }
    mu_set_device("CPU:1");
    MU_SCOPE(strategy) {
        v[2] = mu_variable_new(scalar(2));
        v[3] = mu_variable_new(scalar(3));
    }
    mu_set_device(NULL);
    CHECK(is_on(v[0], 0) && is_on(v[1], 1) && is_on(v[2], 2) && is_on(v[3], 0));
    mu_variable *beside = NULL;
    MU_SCOPE(strategy) {
        MU_COLOCATE(strategy, v[2])
            beside = mu_variable_new(scalar(4));
        v[0] = mu_variable_new(scalar(5));
    }
    CHECK(is_on(beside, 2) && is_on(v[0], 1));
    CHECK(!mu_variable_device(mu_variable_new(scalar(6))));
}

// A variable 0, 1, 2, … of `rows` rows under a strategy in scope.
static mu_variable *counted(mu_strategy *strategy, mu_dtype dtype, int64_t rows, int64_t columns)
{
    mu_variable *v = NULL;
    mu_tensor *whole = mu_reshape(mu_range(dtype, 0, (double)(rows * columns), 1), 2, (int64_t[]){rows, columns});
    MU_SCOPE(strategy)
        v = mu_variable_new(whole, "v");
    return v;
}

static void ps_008(void)
{
    mu_strategy *strategy = on_workers(1, 2, mu_fixed_shards_partitioner(2));
    mu_variable *a = counted(strategy, MU_I64, 5, 2), *b = counted(strategy, MU_I64, 6, 1);
    CHECK(mu_variable_shard_count(a) == 2 && mu_variable_shard_count(b) == 2);
    EXPECT(value_of(mu_variable_shard(a, 0)), 0, 1, 2, 3, 4, 5);
    EXPECT(value_of(mu_variable_shard(a, 1)), 6, 7, 8, 9);
    EXPECT(value_of(mu_variable_shard(b, 0)), 0, 1, 2);
    EXPECT(value_of(mu_variable_shard(b, 1)), 3, 4, 5);
    for (int i = 0; i < 2; i++)
        CHECK(is_on(mu_variable_shard(a, i), i) && is_on(mu_variable_shard(b, i), i));
    CHECK(strcmp(mu_variable_name(mu_variable_shard(a, 1)), "v/part_1") == 0);
}

static void ps_010(void)
{
    mu_variable *v = NULL;
    mu_strategy *strategy = on_workers(1, 2, mu_fixed_shards_partitioner(4));
    MU_SCOPE(strategy)
        v = mu_variable_new(VECTOR(0, 1, 2), "v");
    CHECK(mu_variable_shard_count(v) == 3);
    for (int i = 0; i < 3; i++) {
        EXPECT(value_of(mu_variable_shard(v, i)), i);
        CHECK(is_on(mu_variable_shard(v, i), i % 2));
    }
}

static void ps_011(void)
{
    mu_variable *v[2] = {NULL};
    mu_strategy *strategy = on_workers(1, 2, mu_min_size_partitioner(.min_shard_bytes = 64 << 20, .max_shards = 2));
    MU_SCOPE(strategy)
        for (int i = 0; i < 2; i++)
            v[i] = mu_variable_new(mu_range(MU_F32, 0, 10, 1), "v");
    CHECK(mu_variable_shard_count(v[0]) == 0 && mu_variable_shard_count(v[1]) == 0);
    CHECK(is_on(v[0], 0) && is_on(v[1], 1));
}

const one_case sharded_cases[] = {
    {"ps-001", ps_001, NULL},
    {"ps-002", ps_002, NULL},
    {"ps-004", ps_004, NULL},
    {"ps-005", ps_005, NULL},
    {"ps-007", ps_007, NULL},
    {"ps-008", ps_008, NULL},
    {"ps-010", ps_010, NULL},
    {"ps-011", ps_011, NULL},
    {"ps-013", ps_013, NULL},
    {"ps-014", ps_014, NULL},
    {"ps-016", ps_016, NULL},
    {"ps-017", ps_017, NULL},
    {"ps-019", ps_019, NULL},
    {"ps-020", ps_020, NULL},
    {"ps-022", ps_022, NULL},
    {"ps-023", ps_023, NULL},
    {"ps-025", ps_025, NULL},
    {"ps-026", ps_026, NULL},
    {"ps-028", ps_028, NULL},
    {"ps-028", NULL, "a tensor as an index: slices take whole numbers, so the compiler refuses it"},
    {"ps-029", ps_029, NULL},
    {"ps-031", ps_031, NULL},
    {"ps-032", ps_032, NULL},
    {0},
};
