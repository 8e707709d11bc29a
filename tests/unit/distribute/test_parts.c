// The parts, components and replicas of a call must fit together in types and shapes.
#include "distribute_test.h"

static mu_value *parts_of(int n, mu_tensor *const *tensors)
{
    mu_value *items[DEVICES];
    for (int r = 0; r < n; r++)
        items[r] = mu_of(tensors[r]);
    return mu__give(mu__value_container(MU_VALUE_PER_REPLICA, n, items, NULL));
}

static mu_value *ones_of(int n, const int ranks[], int64_t dims[][2])
{
    mu_tensor *tensors[DEVICES];
    for (int r = 0; r < n; r++)
        tensors[r] = mu_ones(MU_F32, ranks[r], dims[r]);
    return parts_of(n, tensors);
}

static mu_value *scalars(int n)
{
    static const double values[DEVICES] = {1, 2, 3, 4, 5, 6, 7, 8};
    return scalars_of(n, MU_F64, values);
}

static void expect_texts(mu_status code, int n, const char *const *texts)
{
    for (int i = 0; i < n; i++)
        if (!strstr(mu_error_message(), texts[i]))
            fail_msg("\"%s\" is not in: %s", texts[i], mu_error_message());
    expect_error(code, "");
}
#define EXPECT_TEXTS(code, ...) \
    expect_texts(code, (int)MU_COUNT(((const char *[]){__VA_ARGS__})), (const char *[]){__VA_ARGS__})

// ---- Types and shapes ---------------------------------------------------------------------------

static void shapes_that_would_broadcast(void **state)
{
    (void)state;
    static const int ranks[][2] = {{1, 1}, {1, 0}, {2, 1}, {2, 2}, {1, 1}};
    static int64_t dims[][2][2] = {{{1}, {3}}, {{5}, {0}}, {{4, 3}, {3}}, {{2, 1}, {1, 2}}, {{0}, {1}}};
    static const char *const texts[][2] = {
        {"[1]", "[3]"}, {"[5]", "[]"}, {"[4, 3]", "[3]"}, {"[2, 1]", "[1, 2]"}, {"[0]", "[1]"}};
    mu_cross_device_ops *const ways[] = {NULL, mu_hierarchical_copy(2), mu_reduction_to_one_device()};
    for (int w = 0; w < 3; w++)
        for (int i = 0; i < 5; i++) {
            mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2, .cross_device_ops = ways[w]);
            mu_value *value = ones_of(2, ranks[i], dims[i]), *nest = mu_map("loss", value, MU_END);
            const mu_reduce_op op = i % 2 ? MU_MEAN : MU_SUM;
            assert_null(mu_reduce(strategy, op, nest));
            EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_reduce: replica 0 has float32", texts[i][0], "replica 1 has float32",
                         texts[i][1], "'loss'");
            assert_null(mu_reduce_to(strategy, op, value, .like = value));
            EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_reduce_to: replica 0", texts[i][0], texts[i][1]);
            assert_null(mu_batch_reduce_to(strategy, op, mu_list(scalars(2), value, MU_END), NULL));
            EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_batch_reduce_to, value 1: ", texts[i][0], texts[i][1]);
            mu_cross_device_ops *ops = ways[w] ? ways[w] : mu_hierarchical_copy(0);
            assert_null(mu_cross_device_reduce(ops, op, value, value));
            EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_cross_device_reduce: component 0", texts[i][0], texts[i][1]);
            mu_value *both = mu_list(scalars(2), value, MU_END);
            assert_null(mu_cross_device_batch_reduce(ops, op, both, both));
            EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_cross_device_batch_reduce, value 1: ", texts[i][0], texts[i][1]);
        }
}

static void types_that_differ(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_value *value = parts_of(2, (mu_tensor *[]){mu_constant(MU_F32, 1), mu_constant(MU_I32, 1)});
    assert_null(mu_reduce(strategy, MU_SUM, value));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "float32[]", "int32[]");
    int64_t two = 2;
    mu_value *rows = parts_of(2, (mu_tensor *[]){mu_ones(MU_F32, 1, &two), mu_ones(MU_F64, 1, &two)});
    assert_null(mu_reduce(strategy, MU_MEAN, rows, 0));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "float32[2]", "float64[2]");
}

// With an axis sizes along it may differ, as in TensorFlow; all other axes must agree.
static void axes_that_are_reduced(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_value *tall = ones_of(2, (int[]){2, 2}, (int64_t[][2]){{2, 2}, {3, 2}});
    const float *sums = mu_tensor_data(mu_value_tensor(mu_reduce(strategy, MU_SUM, tall, 0)));
    assert_true(sums[0] == 5 && sums[1] == 5);
    assert_null(mu_reduce(strategy, MU_SUM, tall, 1));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_reduce", "[2, 2]", "[3, 2]");
    mu_value *wide = ones_of(2, (int[]){2, 2}, (int64_t[][2]){{2, 1}, {2, 2}});
    assert_null(mu_reduce(strategy, MU_MEAN, wide, 0));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "[2, 1]", "[2, 2]");
    assert_true(mu_scalar(mu_reduce(strategy, MU_SUM, wide, .axes = (int[]){0, 1}, .n_axes = 2)) == 6);
}

static mu_value *assign_rows(mu_value *arguments, void *arg)
{
    return mu_variable_assign(arg, mu_at(arguments, 0)) == MU_OK ? mu_list(MU_END) : NULL;
}

static void assigned_values(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_variable *variable = NULL;
    MU_SCOPE(strategy) {
        variable = mu_variable_new(mu_zeros(MU_F32, 1, (int64_t[]){3}), "total", .aggregation = MU_AGGREGATION_SUM);
    }
    mu_value *rows = ones_of(2, (int[]){1, 1}, (int64_t[][2]){{1}, {3}});
    assert_null(mu_run_callback(strategy, assign_rows, variable, mu_list(rows, MU_END)));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "variable 'total'", "float32[1]", "float32[3]");
    assert_true(mu_scalar(mu_reduce_sum(mu_variable_read(variable), MU_ALL_AXES)) == 0);
}

static mu_value *slices_of(int64_t rows)
{
    return mu_indexed_slices(mu_ones(MU_F32, 2, (int64_t[]){1, 2}), mu_tensor_new(MU_I32, 1, (int64_t[]){1}, NULL), 2,
                             (int64_t[]){rows, 2});
}

static void slices_of_other_tensors(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_value *items[] = {slices_of(3), slices_of(4)};
    mu_value *value = mu__give(mu__value_container(MU_VALUE_PER_REPLICA, 2, items, NULL));
    assert_null(mu_reduce(strategy, MU_SUM, value));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "[3, 2]", "[4, 2]");
    assert_null(mu_cross_device_reduce(mu_hierarchical_copy(0), MU_SUM, value, value));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "[3, 2]", "[4, 2]");
    assert_null(mu_reduce(strategy, MU_SUM, items[0]));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "not per replica");
}

static mu_value *mean_of_slices(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *mean = mu_all_reduce_value(MU_MEAN, mu_value_at(arguments, 0));
    assert_true(mu_scalar(mu_reduce_sum(mu_at(mean, 0), MU_ALL_AXES)) == 1.5);
    return mean;
}

// The mean of integers is a float64, also of slices: 1 and 2 on each of two replicas are halved, not truncated.
static void means_of_integer_slices(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_tensor *row = mu_tensor_new(MU_I32, 1, (int64_t[]){1}, NULL);
    mu_value *items[2];
    for (int i = 0; i < 2; i++)
        items[i] = mu_indexed_slices(mu_tensor_new(MU_I32, 1, (int64_t[]){1}, &(int){i + 1}), row, 1, (int64_t[]){4});
    mu_value *value = mu__give(mu__value_container(MU_VALUE_PER_REPLICA, 2, items, NULL));
    assert_near(doubles(mu_at(mu_reduce(strategy, MU_MEAN, value), 0)), (double[]){.5, 1}, 2, 0);
    mu_value *mean = mu_cross_device_reduce(mu_hierarchical_copy(0), MU_MEAN, value, mu_of(row));
    assert_near(doubles(mu_at(mean, 0)), (double[]){.5, 1}, 2, 0);
    assert_non_null(mu_run_callback(strategy, mean_of_slices, NULL, mu_list(value, MU_END)));
}

static void slices_that_do_not_fit_themselves(void **state)
{
    (void)state;
    mu_tensor *indices = mu_tensor_new(MU_I32, 1, (int64_t[]){2}, NULL);
    assert_null(mu_indexed_slices(mu_ones(MU_F32, 2, (int64_t[]){1, 2}), indices, 2, (int64_t[]){5, 2}));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "[1, 2]", "[2, 2]");
    assert_null(mu_indexed_slices(mu_ones(MU_F32, 2, (int64_t[]){2, 3}), indices, 2, (int64_t[]){5, 2}));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "[2, 3]", "[2, 2]");
}

// ---- A user's own reduction ---------------------------------------------------------------------

typedef enum answer { NOTHING, TOO_SHORT, OTHER_TYPE, FAILURE } answer;

static mu_tensor *answer_with(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    (void)op, (void)n;
    switch (*(const answer *)arg) {
    case TOO_SHORT: return mu_slice(parts[0], (int64_t[]){0}, (int64_t[]){1});
    case OTHER_TYPE: return mu_cast(parts[0], MU_I32);
    case FAILURE: mu_fail(MU_ABORTED, "the link is down"); return NULL;
    case NOTHING: break;
    }
    return NULL;
}

static mu_value *all_reduce_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_at(arguments, 0)));
}

static void own_reductions(void **state)
{
    (void)state;
    static const struct {
        answer answer;
        mu_status code;
        const char *text;
    } rows[] = {{NOTHING, MU_INVALID_ARGUMENT, "mu_cross_device_ops_new returned NULL"},
                {TOO_SHORT, MU_INVALID_ARGUMENT, "mu_cross_device_ops_new returned float32[1] for parts of float32[4]"},
                {OTHER_TYPE, MU_INVALID_ARGUMENT, "returned int32[4] for parts of float32[4]"},
                {FAILURE, MU_ABORTED, "the link is down"}};
    for (int i = 0; i < 4; i++) {
        answer given = rows[i].answer;
        mu_cross_device_ops *ops = mu_cross_device_ops_new(answer_with, &given);
        mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2, .cross_device_ops = ops);
        mu_value *value = ones_of(2, (int[]){1, 1}, (int64_t[][2]){{4}, {4}}), *list = mu_list(value, MU_END);
        assert_null(mu_reduce(strategy, MU_SUM, value));
        expect_error(rows[i].code, rows[i].text);
        assert_null(mu_batch_reduce_to(strategy, MU_SUM, list, NULL));
        expect_error(rows[i].code, rows[i].text);
        assert_null(mu_cross_device_reduce(ops, MU_SUM, value, value));
        expect_error(rows[i].code, rows[i].text);
        assert_null(mu_run_callback(strategy, all_reduce_rows, NULL, list));
        expect_error(rows[i].code, rows[i].text);
        assert_null(mu_run(strategy, mu_function_new(all_reduce_rows, NULL), list));
        expect_error(rows[i].code, rows[i].text);
    }
}

// ---- Components and replicas --------------------------------------------------------------------

static mu_value *first_argument(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_at(arguments, 0));
}

// A value from outside, which the function captures.
static mu_value *captured(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *own = mu_value_tensor(arg);
    return own ? mu_of(own) : NULL;
}

static mu_value *give_back(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments;
    return arg;
}

static mu_value *merge_result(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_merge_call(give_back, arg, NULL);
}

static mu_value *keep(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_variable_assign(variable, mu_value_tensor(arguments)) == MU_OK ? mu_list(MU_END) : NULL;
}

static mu_value *take(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static mu_value *give_to(mu_strategy *strategy, mu_variable *variable, mu_value *value, int way)
{
    mu_value *list = mu_list(value, MU_END);
    switch (way) {
    case 0: return mu_run(strategy, mu_function_new(first_argument, NULL), list);
    case 1: return mu_run_callback(strategy, first_argument, NULL, list);
    case 2: return mu_strategy_gather(strategy, mu_map("x", value, MU_END), 0);
    case 3: return mu_update_variable(strategy, variable, keep, NULL, value);
    case 4: return mu_update_non_slot(strategy, take, NULL, value);
    case 5: return mu_run_callback(strategy, merge_result, value, NULL);
    case 6: return mu_local_results(strategy, list);
    case 7: return mu_reduce(strategy, MU_SUM, list);
    case 8: return mu_reduce(strategy, MU_MEAN, value, 0);
    case 9: return mu_reduce_to(strategy, MU_SUM, value);
    case 10: return mu_batch_reduce_to(strategy, MU_SUM, list, NULL);
    default: return mu_run_callback(strategy, captured, value, NULL);
    }
}

static void components_and_replicas(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= 3; replicas++)
        for (int components = 2; components <= 4; components++) {
            if (components == replicas)
                continue;
            mu_strategy *strategy = strategy_of(replicas);
            mu_variable *variable = NULL;
            MU_SCOPE(strategy) {
                variable = mu_variable_new(mu_constant(MU_F64, 0), "v");
            }
            char seen[40], wanted[40];
            snprintf(seen, sizeof seen, "%d components", components);
            snprintf(wanted, sizeof wanted, "%d replica", replicas);
            for (int way = 0; way < 12; way++) {
                if (way == 5 && replicas == 1) // with one replica the merge's result is returned as it is
                    continue;
                if (give_to(strategy, variable, scalars(components), way))
                    fail_msg("way %d: %d components on %d replicas", way, components, replicas);
                EXPECT_TEXTS(MU_INVALID_ARGUMENT, seen, wanted);
            }
        }
}

// A mirrored value has as many copies as were asked for; a run refuses it if that is not the number of replicas.
static void mirrored_components(void **state)
{
    (void)state;
    static const char *const two[] = {"CPU:0", "CPU:1", NULL};
    mu_strategy *strategy = strategy_of(3);
    mu_value *copies = mu_reduce_to(strategy, MU_SUM, scalars(3), .devices = two);
    assert_int_equal(mu_value_count(mu_local_results(strategy, copies)), 2);
    assert_true(mu_scalar(mu_reduce(strategy_of(2), MU_MEAN, copies)) == 6);
    assert_null(mu_run_callback(strategy, first_argument, NULL, mu_list(copies, MU_END)));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "a mirrored value has 2 components", "3 replicas");
}

// ---- What goes where ----------------------------------------------------------------------------

static mu_value *reduce_like(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)arg;
    mu_value *own = mu_value_at(arguments, 0);
    return mu_list(mu_reduce_to(strategy, MU_SUM, own, .like = own),
                   mu_value_at(mu_batch_reduce_to(strategy, MU_SUM, mu_list(own, MU_END), NULL), 0), MU_END);
}

static mu_value *merge_reduced(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *own = mu_cast(mu_add(mu_replica_id(), mu_constant(MU_I32, 1)), MU_F64);
    return mu_merge_call(reduce_like, NULL, mu_list(own, MU_END));
}

// Each replica gets its own copy, so a function that returns its argument returns a per-replica value, as in
// TensorFlow.
static void reductions_to_replicas(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_value *results[] = {mu_run_callback(strategy, merge_reduced, NULL, NULL),
                           mu_run(strategy, mu_function_new(merge_reduced, NULL), NULL)};
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < 2; i++) {
            if (!results[way])
                fail_msg("%s", mu_error_message());
            mu_value *sum = mu_value_at(results[way], i);
            assert_int_equal(mu_value_kind_of(sum), MU_VALUE_PER_REPLICA);
            for (int r = 0; r < 3; r++)
                assert_number(on_replica(strategy, sum, r), 6, 0);
            assert_number(mu_scalar(mu_reduce(strategy, MU_MEAN, sum)), 6, 0);
        }
}

static mu_value *update_here(mu_value *arguments, void *arg) { return mu_update_non_slot(arg, take, NULL, arguments); }

static void updates_without_a_variable(void **state)
{
    (void)state;
    for (int kind = -1; kind <= 3; kind += 2) {
        mu_strategy *strategy = strategy_of(kind);
        assert_null(mu_run_callback(strategy, update_here, strategy, NULL));
        expect_error(MU_FAILED_PRECONDITION, "mu_update_non_slot");
        assert_null(mu_run(strategy, mu_function_new(update_here, strategy), NULL));
        expect_error(MU_FAILED_PRECONDITION, "mu_update_non_slot");
        assert_non_null(mu_update_non_slot(strategy, take, NULL, NULL));
    }
}

static void operations_are_checked(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    assert_null(mu_batch_reduce_to(strategy, (mu_reduce_op)7, mu_list(scalars(2), MU_END), NULL));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_batch_reduce_to", "7");
    assert_null(mu_batch_reduce_to(strategy_of(-1), (mu_reduce_op)7, mu_list(mu_constant(MU_F64, 1), MU_END), NULL));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "mu_batch_reduce_to", "7");
    assert_null(mu_batch_reduce_to(strategy, MU_SUM, mu_list(MU_END), mu_list(scalars(2), MU_END)));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "as many destinations");
}

static void broadcasts_of_one_value(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    assert_null(mu_broadcast_to_devices(strategy, scalars(2), scalars(2)));
    EXPECT_TEXTS(MU_INVALID_ARGUMENT, "reduce it first");
    mu_value *copies = mu_broadcast_to_devices(strategy, mu_of(mu_constant(MU_F64, 3)), scalars(2));
    mu_value *again = mu_broadcast_to_devices(strategy, copies, scalars(2));
    assert_int_equal(mu_value_kind_of(mu_value_at(again, 1)), MU_VALUE_TENSOR);
    assert_ptr_not_equal(mu_value_tensor(mu_value_at(again, 0)), mu_value_tensor(mu_value_at(again, 1)));
    assert_ptr_equal(mu_tensor_data(mu_value_tensor(mu_value_at(again, 0))),
                     mu_tensor_data(mu_value_tensor(mu_value_at(again, 1))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(shapes_that_would_broadcast),
        MODEL_TEST(types_that_differ),
        MODEL_TEST(axes_that_are_reduced),
        MODEL_TEST(assigned_values),
        MODEL_TEST(slices_of_other_tensors),
        MODEL_TEST(means_of_integer_slices),
        MODEL_TEST(slices_that_do_not_fit_themselves),
        MODEL_TEST(own_reductions),
        MODEL_TEST(components_and_replicas),
        MODEL_TEST(mirrored_components),
        MODEL_TEST(reductions_to_replicas),
        MODEL_TEST(updates_without_a_variable),
        MODEL_TEST(operations_are_checked),
        MODEL_TEST(broadcasts_of_one_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
