// Variations of the cases PART and SHARD, whose results TensorFlow 2.21 gave: odd shapes and types, rows that occur
// twice, indices that are no rows, slices along two axes, parts of other sizes.
#include "cases.h"

#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 8 };

static mu_variable *divided(mu_strategy *s, mu_tensor *initial)
{
    mu_variable *made = NULL;
    MU_SCOPE(s)
        made = mu_variable_new(initial, "v");
    return made;
}

static mu_strategy *by_three(void) { return on_workers(2, 3, mu_fixed_shards_partitioner(3)); }

// [8, 2], 0 to 15.
static mu_tensor *numbers(void) { return mu_reshape(mu_range(MU_F32, 0, 2 * ROWS, 1), 2, (int64_t[]){ROWS, 2}); }

#define REFUSED(call)                      \
    do {                                   \
        CHECK(!(call));                    \
        EXPECT_ERROR(MU_INVALID_ARGUMENT); \
    } while (0)

// ---- Partitioners -------------------------------------------------------------------------------

// The counts as one number of decimal digits; -1: refused.
static int64_t counts_of(mu_partitioner *partitioner, mu_dtype dtype, int axis, mu_shape shape)
{
    int64_t counts[MU_MAX_RANK], number = 0;
    const int n = mu_partitioner_call(partitioner, &shape, dtype, axis, counts);
    for (int i = 0; i < n; i++)
        number = 10 * number + counts[i];
    return n < 0 ? -1 : number;
}
#define COUNTS(partitioner, dtype, axis, ...) \
    counts_of(partitioner, dtype, axis,       \
              mu_shape_make((int)MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__}))

static void odd_shapes(void)
{
    mu_partitioner *least = mu_min_size_partitioner(7, 5), *most = mu_max_size_partitioner(10);
    CHECK(COUNTS(least, MU_F32, 0, 7, 3) == 51);
    CHECK(COUNTS(least, MU_I8, 0, 1, 9) == 11);
    CHECK(COUNTS(least, MU_F64, 0, 5) == 5);
    CHECK(COUNTS(least, MU_BOOL, 0, 4, 1, 1, 2) == 2111);
    CHECK(COUNTS(least, MU_F32, 0, 3, 0) == 11);
    CHECK(COUNTS(most, MU_F32, 0, 7, 3) == 71);
    CHECK(COUNTS(most, MU_I16, 0, 7, 1) == 21);
    CHECK(COUNTS(most, MU_F64, 0, 5) == 5);
    mu_partitioner *four = mu_fixed_shards_partitioner(4);
    CHECK(COUNTS(four, MU_F32, 0, 7, 3) == 41 && COUNTS(four, MU_F32, 0, 2) == 2);
    CHECK(COUNTS(four, MU_F32, 0, 4, 0) == 41 && COUNTS(four, MU_F32, 0, 0, 3) == 1);
}

static void other_axes(void)
{
    mu_partitioner *four = mu_fixed_shards_partitioner(4);
    CHECK(COUNTS(four, MU_F32, 1, 3, 9) == 14 && COUNTS(four, MU_F32, -1, 3, 9) == 14);
    CHECK(COUNTS(mu_min_size_partitioner(4, 3), MU_F32, 1, 2, 6) == 13);
    CHECK(COUNTS(mu_max_size_partitioner(4, 3), MU_F32, 1, 2, 6) == 13);
    CHECK(COUNTS(mu_max_size_partitioner(8), MU_F32, 1, 2, 6) == 16);
    mu_partitioner *all[] = {four, mu_min_size_partitioner(4, 3), mu_max_size_partitioner(4)};
    for (int i = 0; i < 3; i++) {
        CHECK(COUNTS(all[i], MU_F32, 2, 2, 6) == -1);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(COUNTS(all[i], MU_F32, 0, MU_UNKNOWN, 3) == -1);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

static void sizes_of_strings(void)
{
    CHECK(COUNTS(mu_min_size_partitioner(20, 9, .bytes_per_string = 5), MU_STRING, 0, 6, 3) == 51);
    CHECK(COUNTS(mu_max_size_partitioner(40), MU_STRING, 0, 6, 1) == 31);
    REFUSED(mu_max_size_partitioner(1, -1));
    REFUSED(mu_max_size_partitioner(1, 1, .bytes_per_string = 0));
    REFUSED(mu_min_size_partitioner(1, 1, .bytes_per_string = 0));
}

// ---- Placement ----------------------------------------------------------------------------------

static int server_of(mu_variable *v)
{
    const char *device = mu_variable_device(v), *task = device ? strstr(device, "task:") : NULL;
    return task ? task[5] - '0' : -1;
}

// One part is no part; two rows make two parts of three; the turn goes on.
static void few_rows(void)
{
    mu_strategy *s = by_three();
    mu_variable *one = divided(s, mu_ones(MU_F32, 2, (int64_t[]){1, 4}));
    CHECK(mu_variable_shard_count(one) == 0 && server_of(one) == 0);
    mu_variable *two = divided(s, mu_ones(MU_F32, 2, (int64_t[]){2, 1}));
    CHECK(mu_variable_shard_count(two) == 2);
    CHECK(server_of(mu_variable_shard(two, 0)) == 1 && server_of(mu_variable_shard(two, 1)) == 2);
    mu_variable *seven = divided(s, mu_ones(MU_F32, 1, (int64_t[]){7}));
    static const int64_t offsets[] = {0, 3, 5};
    for (int i = 0; i < 3; i++)
        CHECK(server_of(mu_variable_shard(seven, i)) == i && mu_variable_shard_offset(seven, i) == offsets[i]);
    REFUSED(divided(s, mu_ones(MU_F32, 2, (int64_t[]){0, 4})));
}

static void other_types(void)
{
    mu_strategy *s = by_three();
    mu_variable *v = divided(s, mu_range(MU_I32, 0, 7, 1));
    CHECK(mu_variable_assign_add(v, mu_ones(MU_I32, 1, (int64_t[]){7})) == MU_OK);
    EXPECT(read_of(mu_variable_shard(v, 0)), 1, 2, 3);
    EXPECT(read_of(mu_variable_shard(v, 2)), 6, 7);
    mu_variable *flags = divided(s, mu_greater(VECTOR(1, 0, 1, 1), scalar(0.5)));
    EXPECT(read_of(mu_variable_shard(flags, 0)), 1, 0);
    EXPECT(read_of(flags), 1, 0, 1, 1);
    CHECK(mu_variable_dtype(flags) == MU_BOOL);
}

// ---- Rows ---------------------------------------------------------------------------------------

static mu_value *slice(mu_variable *v, const int64_t begin[2], const int64_t end[2], const int64_t strides[2],
                       unsigned open, unsigned shrink)
{
    mu_tensor *taken = mu_variable_strided_slice(v, begin, end, strides, open, open, shrink);
    return taken ? mu_of(taken) : NULL;
}

static void slices_along_two_axes(void)
{
    mu_variable *v = divided(by_three(), numbers());
    const int64_t forth[2] = {1, 1}, back[2] = {-1, 1}, by_five[2] = {5, -1};
    EXPECT(slice(v, (int64_t[]){1, 1}, (int64_t[]){4, 2}, forth, 0, 2), 3, 5, 7);
    EXPECT(slice(v, (int64_t[]){0, 0}, (int64_t[]){0, 1}, back, 1, 2), 14, 12, 10, 8, 6, 4, 2, 0);
    EXPECT(slice(v, (int64_t[]){3, 1}, (int64_t[]){4, 2}, forth, 0, 3), 7);
    EXPECT(slice(v, (int64_t[]){-1, 0}, (int64_t[]){0, 0}, forth, 2, 1), 14, 15);
    EXPECT(slice(v, (int64_t[]){-8, 0}, (int64_t[]){0, 0}, forth, 2, 1), 0, 1);
    EXPECT(slice(v, (int64_t[]){0, 0}, (int64_t[]){0, 0}, by_five, 3, 0), 1, 0, 11, 10);
    mu_tensor *none = mu_variable_strided_slice(v, (int64_t[]){7, 0}, (int64_t[]){2, 2}, forth, 0, 0, 0);
    CHECK(none && mu_tensor_dim(none, 0) == 0 && mu_tensor_dim(none, 1) == 2);
    for (int i = 0; i < 2; i++) {
        CHECK(!slice(v, (int64_t[]){i == 0 ? ROWS : -ROWS - 1, 0}, (int64_t[]){0, 0}, forth, 2, 1));
        EXPECT_ERROR(MU_OUT_OF_RANGE);
    }
}

static void rows_and_no_rows(void)
{
    mu_variable *v = divided(by_three(), numbers());
    EXPECT(mu_of(mu_variable_gather(v, INDICES(7, 0, 0, 3))), 14, 15, 0, 1, 0, 1, 6, 7);
    EXPECT(mu_of(mu_nn_embedding_lookup(v, mu_reshape(INDICES(0, 7, 3, 3), 2, (int64_t[]){2, 2}))), 0, 1, 14, 15, 6, 7,
           6, 7);
    EXPECT(mu_of(mu_nn_embedding_lookup(v, INDICES(2, 0), .max_norm = 1)), 0.624695, 0.780869, 0, 1);
    mu_tensor *none = mu_nn_embedding_lookup(v, mu_zeros(MU_I64, 2, (int64_t[]){2, 0}));
    CHECK(none && mu_tensor_rank(none) == 3 && mu_tensor_dim(none, 0) == 2 && mu_tensor_dim(none, 1) == 0);
    for (int i = 0; i < 2; i++) {
        mu_tensor *wrong = INDICES(i == 0 ? ROWS : -1);
        REFUSED(mu_nn_embedding_lookup(v, wrong));
        REFUSED(mu_variable_gather(v, wrong));
    }
    EXPECT(mu_of(mu_variable_boolean_mask(v, mu_greater(mu_variable_read(v), scalar(11)))), 12, 13, 14, 15);
}

static void combined_rows(void)
{
    mu_variable *v = divided(by_three(), numbers());
    mu_tensor *ids = INDICES(1, 7, 3, 2), *rows = INDICES(0, 0, 2, 2), *weights = VECTOR(1, 2, 0.5, -1);
    static const struct {
        const char *combiner;
        bool weighted;
        double wanted[6];
    } table[] = {{"sum", false, {16, 18, 0, 0, 10, 12}},
                 {"sum", true, {30, 33, 0, 0, -1, -1.5}},
                 {"mean", false, {8, 9, 0, 0, 5, 6}},
                 {"mean", true, {10, 11, 0, 0, 2, 3}},
                 {"sqrtn", false, {11.313708, 12.727922, 0, 0, 7.071068, 8.485281}},
                 {"sqrtn", true, {13.416408, 14.758048, 0, 0, -0.894427, -1.341641}}};
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        mu_tensor *out = mu_nn_embedding_lookup_sparse(v, ids, rows, .weights = table[i].weighted ? weights : NULL,
                                                       .n_rows = 3, .combiner = table[i].combiner);
        expect_values(__LINE__, table[i].combiner, mu_of(out), 6, table[i].wanted);
    }
    EXPECT(mu_of(mu_nn_safe_embedding_lookup_sparse(v, ids, rows, .weights = weights, .n_rows = 3)), 10, 11, 0, 0, 6,
           7);
    EXPECT(mu_of(mu_nn_safe_embedding_lookup_sparse(v, ids, rows, .weights = weights, .n_rows = 3, .combiner = "sum",
                                                    .default_id = 4, .has_default_id = true)),
           30, 33, 8, 9, -1, -1.5);
}

typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);

// Row 7 occurs twice, with 2 and 4; rows 0 and 3 have 3 and 5.
static void scatters_of_rows_twice(void)
{
    static const struct {
        scatter_fn *scatter;
        double rows[3]; // 0, 3 and 7
    } table[] = {{mu_variable_scatter_add, {4, 9, 14}},  {mu_variable_scatter_sub, {-2, -1, 2}},
                 {mu_variable_scatter_mul, {3, 20, 64}}, {mu_variable_scatter_div, {1.0 / 3, 0.8, 1}},
                 {mu_variable_scatter_min, {1, 4, 2}},   {mu_variable_scatter_max, {3, 5, 8}},
                 {mu_variable_scatter_update, {3, 5, 4}}};
    mu_strategy *s = by_three();
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        mu_variable *v = divided(s, mu_range(MU_F32, 1, ROWS + 1, 1));
        const double *r = table[i].rows;
        CHECK(table[i].scatter(v, INDICES(7, 0, 7, 3), VECTOR(2, 3, 4, 5)) == MU_OK);
        EXPECT(read_of(v), r[0], 2, 3, r[1], 5, 6, 7, r[2]);
        REFUSED(table[i].scatter(v, INDICES(ROWS), VECTOR(1)) == MU_OK);
        REFUSED(table[i].scatter(v, INDICES(0, -1), VECTOR(1, 1)) == MU_OK);
        REFUSED(table[i].scatter(v, mu_reshape(INDICES(1), 2, (int64_t[]){1, 1}), VECTOR(1)) == MU_OK);
        CHECK(table[i].scatter(v, mu_zeros(MU_I32, 1, (int64_t[]){0}), mu_zeros(MU_F32, 1, (int64_t[]){0})) == MU_OK);
        EXPECT(read_of(v), r[0], 2, 3, r[1], 5, 6, 7, r[2]);
    }
}

static void scatters_of_whole_rows(void)
{
    mu_variable *v = divided(by_three(), numbers());
    mu_tensor *two = mu_reshape(VECTOR(1, 2, 3, 4), 2, (int64_t[]){2, 2});
    CHECK(mu_variable_scatter_add(v, INDICES(3, 3), two) == MU_OK);
    EXPECT(mu_of(mu_variable_gather(v, INDICES(3))), 10, 13);
    REFUSED(mu_variable_scatter_add(v, INDICES(3), VECTOR(1)) == MU_OK);
}

static void assignments_of_other_shapes(void)
{
    mu_variable *v = divided(by_three(), numbers());
    mu_tensor *wrong[] = {mu_ones(MU_F32, 2, (int64_t[]){7, 2}), mu_ones(MU_F32, 2, (int64_t[]){9, 2}),
                          mu_ones(MU_F32, 2, (int64_t[]){ROWS, 3}), scalar(1),
                          mu_ones(MU_F64, 2, (int64_t[]){ROWS, 2})};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        REFUSED(mu_variable_assign(v, wrong[i]) == MU_OK);
        REFUSED(mu_variable_assign_add(v, wrong[i]) == MU_OK);
    }
    EXPECT(mu_of(mu_variable_gather(v, INDICES(0, 7))), 0, 1, 14, 15);
}

static mu_tensor *loss_of(mu_variable *v)
{
    return mu_reduce_sum(mu_multiply(mu_nn_embedding_lookup(v, INDICES(0, 7, 7)), scalar(3)));
}

// A part of which no row was asked for has slices without rows.
static void gradients_of_parts(void)
{
    mu_variable *v = divided(by_three(), numbers());
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = loss_of(v);
    mu_value *gradients = mu_value_at(mu_gradients(tape, loss, mu_variables(v, MU_END)), 0);
    CHECK(gradients && mu_value_count(gradients) == 3);
    for (int i = 0; i < 3; i++)
        CHECK(mu_value_kind_of(mu_value_at(gradients, i)) == MU_VALUE_SLICES);
    EXPECT(mu_value_at(gradients, 0), 3, 3, 0, 3, 2);
    EXPECT(mu_value_at(gradients, 1), 3, 2);
    EXPECT(mu_value_at(gradients, 2), 3, 3, 3, 3, 1, 1, 2, 2);
}

// Parts of 1, 3 and 2 rows, which are no even division.
static void parts_of_any_size(void)
{
    mu_variable *parts[3];
    static const int64_t n[] = {1, 3, 2};
    for (int i = 0; i < 3; i++)
        parts[i] = mu_variable_new(mu_multiply(mu_ones(MU_F32, 2, (int64_t[]){n[i], 2}), scalar(i + 1)), "part");
    mu_variable *v = mu_sharded_variable_of(3, parts, "w");
    CHECK(mu_variable_scatter_add(v, INDICES(3), mu_ones(MU_F32, 2, (int64_t[]){1, 2})) != MU_OK);
    EXPECT_ERROR(MU_UNIMPLEMENTED);
    EXPECT(slice(v, (int64_t[]){2, 0}, (int64_t[]){5, 2}, (int64_t[]){1, 1}, 0, 0), 2, 2, 2, 2, 3, 3);
    CHECK(mu_variable_assign(v, mu_reshape(mu_range(MU_F32, 0, 12, 1), 2, (int64_t[]){6, 2})) == MU_OK);
    EXPECT(read_of(parts[1]), 2, 3, 4, 5, 6, 7);
    EXPECT(read_of(parts[2]), 8, 9, 10, 11);
}

// ---- On workers ---------------------------------------------------------------------------------

static mu_value *scatter_and_slice(mu_value *arguments, void *arg)
{
    (void)arguments;
    const int64_t begin = 5, end = 0, one = 1;
    if (mu_variable_scatter_add(arg, INDICES(6, 0), VECTOR(1, 2)) != MU_OK)
        return NULL;
    return mu_of(mu_variable_strided_slice(arg, &begin, &end, &one, 0, 1, 0));
}

static mu_value *sum_of_parts(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_value_tensor(arguments)));
}

static mu_value *add_range(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign_add(arg, mu_range(MU_F32, 0, 7, 1)) == MU_OK ? read_of(arg) : NULL;
}

static mu_value *add_on_replica(mu_value *arguments, void *arg)
{
    return mu_run(mu_variable_strategy(arg), mu_function_new(add_range, arg), arguments);
}

static void parts_in_calls(void)
{
    mu_strategy *s = by_three();
    mu_coordinator *c = mu_coordinator_new(s);
    mu_variable *v = divided(s, mu_zeros(MU_F32, 1, (int64_t[]){7}));
    mu_function *f = mu_function_new(scatter_and_slice, v);
    for (int i = 1; i <= 2; i++)
        EXPECT(mu_fetch(mu_schedule(c, f)), 0, i);
    EXPECT(read_of(v), 4, 0, 0, 0, 0, 0, 2);
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(add_on_replica, v))), 4, 1, 2, 3, 4, 5, 8);
    EXPECT(mu_fetch(mu_schedule(c, mu_function_new(sum_of_parts, NULL), mu_of(mu_variable_read(v)))), 27);
    CHECK(mu_join(c) == MU_OK);
}

static void files_of_parts(void)
{
    char path[] = "/tmp/muster-vary-XXXXXX";
    close(mkstemp(path));
    mu_strategy *s = by_three();
    mu_variable *from = divided(s, mu_range(MU_F32, 0, 7, 1));
    mu_variable *plain = mu_variable_new(mu_zeros(MU_F32, 1, (int64_t[]){7}), "v");
    CHECK(mu_checkpoint_save(mu_checkpoint_new(.variables = mu_variables(from, MU_END)), path) == MU_OK);
    CHECK(mu_checkpoint_restore(mu_checkpoint_new(.variables = mu_variables(plain, MU_END)), path) == MU_OK);
    EXPECT(read_of(plain), 0, 1, 2, 3, 4, 5, 6);
    mu_strategy *other = on_workers(1, 2, mu_fixed_shards_partitioner(2));
    mu_variable *two = divided(other, mu_zeros(MU_F32, 1, (int64_t[]){7}));
    CHECK(mu_checkpoint_restore(mu_checkpoint_new(.variables = mu_variables(two, MU_END)), path) == MU_OK);
    EXPECT(read_of(mu_variable_shard(two, 1)), 4, 5, 6);
    mu_variable *longer = divided(other, mu_zeros(MU_F32, 1, (int64_t[]){8}));
    CHECK(mu_checkpoint_restore(mu_checkpoint_new(.variables = mu_variables(longer, MU_END)), path) != MU_OK);
    mu_error_take();
    unlink(path);
}

const one_case variation_part_cases[] = {
    {"vary_partitions_of_odd_shapes", odd_shapes, NULL},
    {"vary_partitions_of_other_axes", other_axes, NULL},
    {"vary_partitions_of_strings", sizes_of_strings, NULL},
    {"vary_parts_of_few_rows", few_rows, NULL},
    {"vary_parts_of_other_types", other_types, NULL},
    {"vary_slices_along_two_axes", slices_along_two_axes, NULL},
    {"vary_rows_and_no_rows", rows_and_no_rows, NULL},
    {"vary_combined_rows", combined_rows, NULL},
    {"vary_scatters_of_rows_twice", scatters_of_rows_twice, NULL},
    {"vary_scatters_of_whole_rows", scatters_of_whole_rows, NULL},
    {"vary_assignments_of_other_shapes", assignments_of_other_shapes, NULL},
    {"vary_gradients_of_parts", gradients_of_parts, NULL},
    {"vary_parts_of_any_size", parts_of_any_size, NULL},
    {"vary_parts_in_calls", parts_in_calls, NULL},
    {"vary_files_of_parts", files_of_parts, NULL},
    {0},
};
