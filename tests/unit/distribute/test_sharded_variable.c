// Sharded variables beyond the numbered cases: layouts, Python's slices against a list, lookups and their gradients,
// scatters against a plain variable, training, checkpoints that re-shard, strategies, refusals, and no memory.
#include "../base/base_test.h"
#include "distribute_test.h"

#include "model/optimizers/optimizer.h"
#include "ops/array/dynamic_partition.h"

#include <muster/checkpoint.h>
#include <muster/sharding.h>

#include <unistd.h>

static mu_tensor *longs(int n, const int64_t *values) { return mu_tensor_new(MU_I64, 1, (int64_t[]){n}, values); }
#define LONGS(...) longs((int)MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

// A table of `rows` rows of two numbers, in `parts` parts; one part is a plain variable.
static mu_variable *table(int64_t rows, int parts, const char *name)
{
    mu_variable *v = mu_sharded_variable_new(numbers(2, (int64_t[]){rows, 2}, 5), name,
                                             .partitioner = mu_fixed_shards_partitioner(parts));
    if (!v)
        fail_msg("%s", mu_error_message());
    return v;
}

static void expect_same(mu_tensor *a, mu_tensor *b)
{
    if (!a || !b)
        fail_msg("%s", mu_error_message());
    const mu_shape x = mu_tensor_shape(a), y = mu_tensor_shape(b);
    assert_true(mu__shape_equal(&x, &y));
    for (int64_t i = 0; i < mu_tensor_elements(a); i++)
        assert_true(fabs(((const double *)mu__host_read(a))[i] - ((const double *)mu__host_read(b))[i]) <= 1e-12);
}

// ---- Layouts and names --------------------------------------------------------------------------

static void expect_layout(int64_t rows, int parts, int n, const int64_t *wanted)
{
    mu_variable *v = table(rows, parts, "t");
    int64_t offset = 0;
    char name[32];
    assert_int_equal(mu_variable_shard_count(v), n);
    for (int i = 0; i < n; i++) {
        mu_variable *part = mu_variable_shard(v, i);
        snprintf(name, sizeof name, "t/part_%d", i);
        assert_string_equal(mu_variable_name(part), name);
        assert_int_equal(mu_variable_shape(part).dims[0], wanted[i]);
        assert_int_equal(mu_variable_shard_offset(v, i), offset);
        offset += wanted[i];
    }
    assert_int_equal(offset, rows);
    expect_same(mu_variable_read(v), numbers(2, (int64_t[]){rows, 2}, 5));
}

static void test_layouts(void **state)
{
    (void)state;
    expect_layout(13, 5, 5, (int64_t[]){3, 3, 3, 2, 2});
    expect_layout(10, 4, 4, (int64_t[]){3, 3, 2, 2});
    expect_layout(3, 4, 3, (int64_t[]){1, 1, 1});
    mu_variable *plain = table(4, 1, "t");
    assert_int_equal(mu_variable_shard_count(plain), 0);
    assert_string_equal(mu_variable_name(plain), "t");
    mu_variable *scalar =
        mu_sharded_variable_new(mu_constant(MU_F64, 2), .partitioner = mu_fixed_shards_partitioner(2));
    assert_true(mu_scalar(mu_variable_read(scalar)) == 2);
    assert_null(mu_variable_shard(plain, 0));
    assert_taken(MU_OUT_OF_RANGE, "0 parts");
}

// ---- Initial values -----------------------------------------------------------------------------

typedef struct making {
    int calls, whole; // how often it was called, and without a part
    bool refuses;     // always makes the whole value
} making;

static mu_tensor *make_value(const mu_partition_info *info, void *arg)
{
    making *m = arg;
    m->calls++;
    m->whole += info == NULL;
    mu_tensor *all = numbers(2, (int64_t[]){5, 2}, 5);
    if (!info || m->refuses)
        return all;
    return mu_slice(all, info->offset, info->shape.dims);
}

static void test_initial_values(void **state)
{
    (void)state;
    const mu_shape shape = {2, {5, 2}};
    for (int i = 0; i < 3; i++) {
        making m = {.refuses = i == 1};
        mu_variable *v =
            mu_sharded_variable_new(.partitioner = mu_fixed_shards_partitioner(2), .initial_value_fn = make_value,
                                    .arg = &m, .dtype = MU_F64, .shape = i < 2 ? &shape : NULL);
        expect_same(mu_variable_read(v), numbers(2, (int64_t[]){5, 2}, 5));
        assert_int_equal(m.calls, i < 2 ? 2 : 1); // without a shape once, for the whole
        assert_int_equal(m.whole, i < 2 ? 0 : 1);
    }
    assert_null(mu_sharded_variable_new(.name = "none", .partitioner = mu_fixed_shards_partitioner(2)));
    assert_taken(MU_INVALID_ARGUMENT, "'none'");
    making wrong = {.refuses = true};
    assert_null(mu_sharded_variable_new(.name = "w", .partitioner = mu_fixed_shards_partitioner(2), .arg = &wrong,
                                        .initial_value_fn = make_value, .dtype = MU_F64,
                                        .shape = &(mu_shape){2, {6, 2}}));
    assert_taken(MU_INVALID_ARGUMENT, "float64[5, 2] for part 0");
}

// ---- Slices -------------------------------------------------------------------------------------

// Python's v[begin:end:step] by the language's definition, starting from the clamped bounds.
static int python_slice(int64_t rows, int64_t begin, int64_t end, int64_t step, bool open_begin, bool open_end,
                        int64_t *out)
{
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? rows - 1 : rows;
    int n = 0;
    step = MU_MIN(MU_MAX(step, -1000), 1000); // as far as any of these tables
    begin = open_begin ? (step < 0 ? high : low) : MU_MIN(MU_MAX(begin < 0 ? begin + rows : begin, low), high);
    end = open_end ? (step < 0 ? low : high) : MU_MIN(MU_MAX(end < 0 ? end + rows : end, low), high);
    for (int64_t i = begin; step < 0 ? i > end : i < end; i += step)
        out[n++] = i;
    return n;
}

static void check_slice(mu_variable *v, mu_tensor *all, int64_t begin, int64_t end, int64_t step, int masks)
{
    int64_t wanted[64];
    const int n = python_slice(8, begin, end, step, masks & 1, masks & 2, wanted);
    mu_tensor *got = mu_variable_strided_slice(v, (int64_t[]){begin, 0}, (int64_t[]){end, 2}, (int64_t[]){step, 1},
                                               masks & 1, masks >> 1 & 1, 0);
    if (!got || mu_tensor_dim(got, 0) != n)
        fail_msg("[%lld:%lld:%lld] masks %d: %lld rows, expected %d: %s", (long long)begin, (long long)end,
                 (long long)step, masks, got ? (long long)mu_tensor_dim(got, 0) : -1, n, mu_error_message());
    if (n > 0)
        expect_same(got, mu_gather(all, longs(n, wanted), 0, 0));
}

static void test_slices(void **state)
{
    (void)state;
    static const int64_t steps[] = {1, 2, 3, 7, 8, 100, INT64_MAX, -1, -2, -3, -8, -100, INT64_MIN};
    mu_variable *v = table(8, 3, "t");
    mu_tensor *all = mu_variable_read(v);
    for (int64_t begin = -12; begin <= 12; begin += 2)
        for (int64_t end = -11; end <= 12; end += 3)
            for (size_t s = 0; s < MU_COUNT(steps); s++) {
                mu_pool *pool = mu_pool_open();
                check_slice(v, all, begin, end, steps[s], (int)(s + (size_t)(begin + 12)) & 3);
                mu_pool_close(pool);
            }
    assert_null(mu_variable_strided_slice(v, (int64_t[]){0, 0}, (int64_t[]){8, 2}, (int64_t[]){0, 1}, 0, 0, 0));
    assert_taken(MU_INVALID_ARGUMENT, "stride of 0");
}

static void test_single_rows(void **state)
{
    (void)state;
    for (int parts = 1; parts <= 3; parts += 2) {
        mu_variable *v = table(8, parts, "t");
        mu_tensor *all = mu_variable_read(v);
        for (int64_t i = -8; i < 8; i++) {
            const int64_t begin[] = {i, 1}, end[] = {0, 2};
            expect_same(mu_variable_strided_slice(v, begin, end, NULL, 0, 0, 1),
                        mu_strided_slice(all, begin, end, NULL, 0, 0, 1));
        }
        for (int64_t i = -9; i <= 8; i += 17) {
            assert_null(mu_variable_strided_slice(v, (int64_t[]){i, 0}, (int64_t[]){0, 2}, NULL, 0, 0, 1));
            assert_taken(MU_OUT_OF_RANGE, "8 rows");
        }
        // A single row has no stride, whatever the number of parts.
        for (int64_t step = -2; step <= 2; step++) {
            mu_tensor *row =
                mu_variable_strided_slice(v, (int64_t[]){1, 0}, (int64_t[]){2, 2}, (int64_t[]){step, 1}, 0, 0, 1);
            assert_int_equal(row != NULL, step > 0);
            if (!row)
                assert_taken(MU_INVALID_ARGUMENT, "of axis 0, of which one element is taken");
        }
    }
}

// ---- Gathers and lookups ------------------------------------------------------------------------

static mu_variable *uneven_table(void)
{
    static const int64_t rows[] = {1, 0, 4, 3};
    mu_variable *parts[4];
    mu_tensor *all = numbers(2, (int64_t[]){8, 2}, 5);
    for (int64_t i = 0, begin = 0; i < 4; begin += rows[i++])
        parts[i] = mu_variable_new(mu_slice(all, (int64_t[]){begin, 0}, (int64_t[]){rows[i], 2}), "p");
    return mu_sharded_variable_of(4, parts, "uneven");
}

static mu_value *gather_rows(mu_value *arguments, void *arg)
{
    return mu_of(mu_variable_gather(arg, mu_at(arguments, 0)));
}

static void test_gathers(void **state)
{
    (void)state;
    mu_variable *tables[] = {table(8, 3, "t"), uneven_table(), table(8, 1, "t")};
    mu_tensor *all = numbers(2, (int64_t[]){8, 2}, 5), *ids = LONGS(7, 0, 3, 3, 5, 1, 0);
    for (size_t i = 0; i < MU_COUNT(tables); i++) {
        expect_same(mu_variable_gather(tables[i], ids), mu_gather(all, ids, 0, 0));
        mu_function *function = mu_function_new(gather_rows, tables[i]);
        for (int64_t n = 7; n >= 0; n -= 7) { // traced once, also for none
            mu_tensor *some = mu_slice(ids, (int64_t[]){0}, (int64_t[]){n});
            expect_same(mu_value_tensor(mu_function_call(function, mu_list(some, MU_END))), mu_gather(all, some, 0, 0));
        }
        mu_tensor *matrix = mu_reshape(mu_cast(LONGS(6, 2, 2, 4), MU_I32), 2, (int64_t[]){2, 2});
        expect_same(mu_variable_gather(tables[i], matrix), mu_gather(all, matrix, 0, 0));
        assert_null(mu_variable_gather(tables[i], LONGS(1, 8)));
        assert_taken(MU_INVALID_ARGUMENT, "8");
        assert_null(mu_function_call(function, mu_list(LONGS(0, -1), MU_END)));
        assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    }
    // By part, then by place in the list.
    expect_same(mu_variable_sparse_read(tables[0], LONGS(7, 0, 3, 1)), mu_gather(all, LONGS(0, 1, 3, 7), 0, 0));
}

static void test_mod_lookups(void **state)
{
    (void)state;
    // Part i holds ids i, i + 3, …: of eight rows three, three and two.
    mu_variable *v = table(8, 3, "t");
    mu_tensor *all = mu_variable_read(v);
    expect_same(mu_nn_embedding_lookup(v, LONGS(0, 1, 2, 3, 4, 5, 6, 7), .partition_strategy = "mod"),
                mu_gather(all, LONGS(0, 3, 6, 1, 4, 7, 2, 5), 0, 0));
    assert_null(mu_nn_embedding_lookup(uneven_table(), LONGS(0), .partition_strategy = "mod"));
    assert_taken(MU_INVALID_ARGUMENT, "with .partition_strategy \"mod\" it must have 2");
    assert_null(mu_nn_embedding_lookup(v, LONGS(0), .partition_strategy = "hash"));
    assert_taken(MU_INVALID_ARGUMENT, "hash");
}

// A table whose rows are [3, 4], [0, 0], [6, 8] in two parts: norms 5, 0, 10.
static mu_variable *norms(void)
{
    mu_tensor *rows = mu_tensor_new(MU_F64, 2, (int64_t[]){3, 2}, (double[]){3, 4, 0, 0, 6, 8});
    return mu_sharded_variable_new(rows, "norms", .partitioner = mu_fixed_shards_partitioner(2));
}

static void expect_rows(mu_tensor *got, int n, const double *wanted)
{
    if (!got)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_tensor_elements(got), n);
    for (int i = 0; i < n; i++)
        assert_true(fabs(((const double *)mu__host_read(got))[i] - wanted[i]) <= 1e-12);
}
#define EXPECT_ROWS(got, ...) expect_rows(got, (int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static void test_combined_lookups(void **state)
{
    (void)state;
    mu_variable *v = norms();
    mu_tensor *ids = LONGS(0, 2, 0), *rows = LONGS(0, 0, 2), *weights = vector(3, (double[]){1, 3, 2});
    EXPECT_ROWS(mu_nn_embedding_lookup(v, LONGS(2, 1, 0), .max_norm = 5), 3, 4, 0, 0, 3, 4);
    EXPECT_ROWS(mu_nn_embedding_lookup_sparse(v, ids, rows), 4.5, 6, 0, 0, 3, 4);
    EXPECT_ROWS(mu_nn_embedding_lookup_sparse(v, ids, rows, .combiner = "sum"), 9, 12, 0, 0, 3, 4);
    EXPECT_ROWS(mu_nn_embedding_lookup_sparse(v, ids, rows, .combiner = "sum", .max_norm = 5), 6, 8, 0, 0, 3, 4);
    EXPECT_ROWS(mu_nn_embedding_lookup_sparse(v, ids, rows, .weights = weights), 5.25, 7, 0, 0, 3, 4);
    EXPECT_ROWS(mu_nn_embedding_lookup_sparse(v, ids, rows, .weights = weights, .combiner = "sqrtn", .n_rows = 4),
                21 / sqrt(10), 28 / sqrt(10), 0, 0, 3, 4, 0, 0);
    assert_null(mu_nn_embedding_lookup_sparse(v, ids, LONGS(0, 1)));
    assert_taken(MU_INVALID_ARGUMENT, "vectors of one length");
    assert_null(mu_nn_embedding_lookup_sparse(v, ids, rows, .combiner = "max"));
    assert_taken(MU_INVALID_ARGUMENT, "\"max\"");
}

static void test_safe_lookups(void **state)
{
    (void)state;
    mu_variable *v = norms();
    mu_tensor *ids = LONGS(0, -1, 2, -5), *rows = LONGS(0, 0, 1, 3);
    mu_tensor *weights = vector(4, (double[]){1, 1, -1, 1});
    EXPECT_ROWS(mu_nn_safe_embedding_lookup_sparse(v, ids, rows, .n_rows = 4), 3, 4, 6, 8, 0, 0, 0, 0);
    EXPECT_ROWS(mu_nn_safe_embedding_lookup_sparse(v, ids, rows, .n_rows = 4, .default_id = 2, .has_default_id = true),
                3, 4, 6, 8, 6, 8, 6, 8);
    EXPECT_ROWS(mu_nn_safe_embedding_lookup_sparse(v, ids, rows, .n_rows = 4, .weights = weights), 3, 4, 0, 0, 0, 0, 0,
                0);
    EXPECT_ROWS(mu_nn_safe_embedding_lookup_sparse(v, ids, rows, .n_rows = 4, .weights = weights, .combiner = "sum"), 3,
                4, -6, -8, 0, 0, 0, 0);
    assert_null(mu_nn_safe_embedding_lookup_sparse(v, ids, rows));
    assert_taken(MU_INVALID_ARGUMENT, ".n_rows is not given");
}

// ---- Updates ------------------------------------------------------------------------------------

static void test_scatters(void **state)
{
    (void)state;
    static mu_status (*const scatters[])(mu_variable *, mu_tensor *, mu_tensor *) = {
        mu_variable_scatter_add, mu_variable_scatter_sub, mu_variable_scatter_mul,   mu_variable_scatter_div,
        mu_variable_scatter_min, mu_variable_scatter_max, mu_variable_scatter_update};
    mu_tensor *ids = LONGS(6, 0, 6, 3), *values = numbers(2, (int64_t[]){4, 2}, 9);
    for (size_t i = 0; i < MU_COUNT(scatters); i++) {
        mu_variable *v = table(7, 3, "t"), *plain = table(7, 1, "t");
        assert_int_equal(scatters[i](v, ids, values), MU_OK);
        assert_int_equal(scatters[i](plain, ids, values), MU_OK);
        expect_same(mu_variable_read(v), mu_variable_read(plain));
        assert_int_equal(scatters[i](uneven_table(), ids, values), MU_UNIMPLEMENTED);
        assert_taken(MU_UNIMPLEMENTED, "part 1 begins at row 1");
        assert_int_equal(scatters[i](v, mu_reshape(ids, 2, (int64_t[]){2, 2}), values), MU_INVALID_ARGUMENT);
        assert_taken(MU_INVALID_ARGUMENT, "vector");
        assert_int_equal(scatters[i](v, LONGS(7), numbers(2, (int64_t[]){1, 2}, 9)), MU_INVALID_ARGUMENT);
        assert_taken(MU_INVALID_ARGUMENT, "index 7");
    }
}

static void test_assignments(void **state)
{
    (void)state;
    mu_variable *v = table(5, 2, "t");
    mu_tensor *before = mu_variable_read(v), *x = numbers(2, (int64_t[]){5, 2}, 8);
    assert_int_equal(mu_variable_assign_sub(v, x), MU_OK);
    expect_same(mu_variable_read(v), mu_subtract(before, x));
    assert_int_equal(mu_variable_assign(v, mu_slice(x, (int64_t[]){0, 0}, (int64_t[]){4, 2})), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "'t' is float64[5, 2]");
    // No op reaches past the parts.
    mu_resource *resource = &v->resource;
    mu_tensor *out = NULL;
    assert_int_equal(mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &resource, &out), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "sharded_variable");
}

// ---- Training -----------------------------------------------------------------------------------

typedef struct training {
    mu_variable *table;
    mu_optimizer *optimizer;
} training;

static mu_value *train_step(mu_value *arguments, void *arg)
{
    training *t = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_nn_embedding_lookup(t->table, mu_at(arguments, 0), .max_norm = 0.5);
    mu_tensor *loss = mu_reduce_sum(mu_square(mu_subtract(rows, mu_constant(MU_F64, 1))), MU_ALL_AXES);
    mu_apply_gradients(t->optimizer, mu_gradients(tape, loss, mu_variables(t->table, MU_END)));
    return mu_of(loss);
}

static training trained(int parts, int steps)
{
    training t = {.table = table(8, parts, "t"), .optimizer = mu_adam(.learning_rate = 0.1)};
    mu_function *step = mu_function_new(train_step, &t);
    for (int i = 0; i < steps; i++)
        if (!mu_function_call(step, mu_list(i % 2 ? LONGS(1, 6, 6) : LONGS(0, 3, 7), MU_END)))
            fail_msg("%s", mu_error_message());
    return t;
}

static void test_training(void **state)
{
    (void)state;
    expect_same(mu_variable_read(trained(3, 6).table), mu_variable_read(trained(1, 6).table));
}

// The parts of x have the weights 1, 2 and 3, so the gradient of the sum of their cubes is 3 w x², and the gradient of
// that is 6 w x.
static void test_gradients_of_parts(void **state)
{
    (void)state;
    static const int64_t sizes[] = {5, 1, 0};
    static const int32_t places[] = {2, 0, 2, 1, 0};
    for (size_t s = 0; s < MU_COUNT(sizes); s++) {
        mu_tensor *x = numbers(2, (int64_t[]){sizes[s], 3}, 4), *parts[3], *total = NULL;
        mu_tensor *where = mu_tensor_new(MU_I32, 1, &sizes[s], places);
        mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
        assert_int_equal(mu__dynamic_partition(x, where, 3, parts), MU_OK);
        for (int p = 0; p < 3; p++) {
            mu_tensor *cubes = mu_multiply(mu_square(parts[p]), mu_multiply(parts[p], mu_constant(MU_F64, p + 1)));
            mu_tensor *sum = mu_reduce_sum(cubes, MU_ALL_AXES);
            total = total ? mu_add(total, sum) : sum;
        }
        mu_tensor *weights = mu_expand_dims(mu_cast(mu_add(where, mu_constant(MU_I32, 1)), MU_F64), -1);
        mu_tensor *first = mu_value_tensor(mu_gradients(inner, total, mu_of(x)));
        expect_same(first, mu_multiply(mu_multiply(mu_square(x), weights), mu_constant(MU_F64, 3)));
        mu_tensor *second = mu_value_tensor(mu_gradients(outer, mu_reduce_sum(first, MU_ALL_AXES), mu_of(x)));
        expect_same(second, mu_multiply(mu_multiply(x, weights), mu_constant(MU_F64, 6)));
        mu_tape_close(outer);
    }
    mu_tensor *parts[2];
    assert_int_equal(mu__dynamic_partition(numbers(1, sizes, 4), mu_tensor_new(MU_I32, 1, sizes, places), 2, parts),
                     MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "row 0 goes to part 2");
}

// ---- Checkpoints --------------------------------------------------------------------------------

static const char *scratch_file(void)
{
    static char path[] = "/tmp/muster-sharded-XXXXXX";
    if (strstr(path, "XXXXXX"))
        close(mkstemp(path));
    return path;
}

static mu_checkpoint *checkpoint_of(const training *t)
{
    return mu_checkpoint_new(.optimizer = t->optimizer, .variables = mu_variables(t->table, MU_END));
}

// Table and slots from any number of parts to any other: training continues as if nothing had happened.
static void test_checkpoints(void **state)
{
    (void)state;
    static const int parts[][2] = {{2, 4}, {4, 2}, {4, 1}, {1, 4}, {3, 3}, {3, 5}};
    mu_tensor *wanted = mu_variable_read(trained(1, 6).table);
    for (size_t i = 0; i < MU_COUNT(parts); i++) {
        training saved = trained(parts[i][0], 4), restored = trained(parts[i][1], 2);
        assert_int_equal(mu_checkpoint_save(checkpoint_of(&saved), scratch_file()), MU_OK);
        if (mu_checkpoint_restore(checkpoint_of(&restored), scratch_file()) != MU_OK)
            fail_msg("%d to %d parts: %s", parts[i][0], parts[i][1], mu_error_message());
        mu_function *step = mu_function_new(train_step, &restored);
        mu_function_call(step, mu_list(LONGS(0, 3, 7), MU_END));
        mu_function_call(step, mu_list(LONGS(1, 6, 6), MU_END));
        expect_same(mu_variable_read(restored.table), wanted);
    }
    mu_tensor_file *file = mu_tensor_file_open(scratch_file());
    const int at = mu_tensor_file_find(file, "t"), slot = mu_tensor_file_find(file, "adam/t/momentum");
    assert_true(at >= 0 && slot >= 0 && mu_tensor_file_find(file, "t/part_0") < 0);
    assert_int_equal(mu_tensor_file_shape(file, slot).dims[0], 8);
    unlink(scratch_file());
}

static void test_checkpoints_refuse(void **state)
{
    (void)state;
    mu_variable *v = table(8, 3, "t"), *same = table(8, 3, "t"), *short_one = table(7, 3, "t");
    mu_value *some = mu_variables(mu_variable_shard(v, 0), mu_variable_shard(v, 2), MU_END);
    assert_int_equal(mu_checkpoint_save(mu_checkpoint_new(.variables = some), scratch_file()), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "the part of 't' that begins at row 3");
    assert_null(mu_checkpoint_new(.variables = mu_variables(v, same, MU_END)));
    assert_taken(MU_INVALID_ARGUMENT, "named 't'");
    mu_checkpoint *whole = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    assert_int_equal(mu_checkpoint_save(whole, scratch_file()), MU_OK);
    assert_int_equal(
        mu_checkpoint_restore(mu_checkpoint_new(.variables = mu_variables(short_one, MU_END)), scratch_file()),
        MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "float64[8, 2]; the variable is float64[7, 2]");
    unlink(scratch_file());
}

// ---- Strategies ---------------------------------------------------------------------------------

static mu_value *add_id(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *x = mu_broadcast_like(mu_cast(mu_replica_id(), MU_F64), mu_variable_read(arg));
    mu_variable_assign_add(arg, x);
    return mu_of(mu_variable_read(arg));
}

static void test_strategies(void **state)
{
    (void)state;
    for (int kind = 2; kind <= CENTRAL + 2; kind += CENTRAL) {
        mu_strategy *strategy = strategy_of(kind);
        mu_variable *v = NULL;
        MU_SCOPE(strategy) {
            v = mu_sharded_variable_new(numbers(2, (int64_t[]){5, 2}, 5), "t",
                                        .partitioner = mu_fixed_shards_partitioner(2),
                                        .aggregation = MU_AGGREGATION_SUM);
        }
        if (!mu_run(strategy, mu_function_new(add_id, v), NULL))
            fail_msg("%s", mu_error_message());
        expect_same(mu_variable_read(v), mu_add(numbers(2, (int64_t[]){5, 2}, 5), mu_constant(MU_F64, 1)));
        assert_ptr_equal(mu_variable_strategy(v), strategy);
    }
}

// ---- No memory ----------------------------------------------------------------------------------

static void test_no_memory(void **state)
{
    (void)state;
    mu_partitioner *two = mu_fixed_shards_partitioner(2);
    mu_tensor *x = numbers(2, (int64_t[]){5, 2}, 5), *ids = LONGS(4, 0, 4);
    bool reached = true;
    for (long k = 1; reached; k++) {
        mu_pool *pool = mu_pool_open();
        mu__alloc_fail_at(k);
        mu_variable *v = mu_sharded_variable_new(x, "t", .partitioner = two);
        mu_tensor *rows = v ? mu_variable_gather(v, ids) : NULL;
        mu_status status = rows ? mu_variable_scatter_add(v, ids, rows) : mu_error_code();
        reached = mu__alloc_fail_at(0) >= k;
        assert_int_equal(status, mu_error_take().code);
        assert_true(status == MU_RESOURCE_EXHAUSTED || (status == MU_OK && !reached));
        mu_pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(test_layouts),          MODEL_TEST(test_initial_values),
        MODEL_TEST(test_slices),           MODEL_TEST(test_single_rows),
        MODEL_TEST(test_gathers),          MODEL_TEST(test_mod_lookups),
        MODEL_TEST(test_combined_lookups), MODEL_TEST(test_safe_lookups),
        MODEL_TEST(test_scatters),         MODEL_TEST(test_assignments),
        MODEL_TEST(test_training),         MODEL_TEST(test_gradients_of_parts),
        MODEL_TEST(test_checkpoints),      MODEL_TEST(test_checkpoints_refuse),
        MODEL_TEST(test_strategies),       MODEL_TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
