// run, regroup and select, split: cases 016 to 031, failing replicas, uneven and empty parts.
#include "distribute_test.h"

static mu_value *id_plus_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    return mu_of(mu_add(mu_cast(mu_replica_id(), MU_F64), mu_constant(MU_F64, 1)));
}

static mu_value *double_and_square(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    return mu_map("a", mu_add(x, x), "b", mu_multiply(x, x), MU_END);
}

static mu_value *combine(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *a = mu_value_tensor(mu_value_get(arguments, "a")), *b = mu_value_tensor(mu_value_get(arguments, "b"));
    return mu_of(mu_add(mu_add(a, mu_add(b, b)), mu_constant(MU_F64, 2)));
}

// Case 016.
static void results_travel_per_replica(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    mu_value *first = mu_run(strategy, mu_function_new(id_plus_one, NULL), NULL);
    mu_value *second = mu_run(strategy, mu_function_new(double_and_square, NULL), first);
    mu_value *third = mu_run(strategy, mu_function_new(combine, NULL), second);
    static const double wanted[][4] = {{1, 2, 1, 6}, {2, 4, 4, 14}};
    for (int r = 0; r < 2; r++) {
        assert_true(on_replica(strategy, first, r) == wanted[r][0]);
        assert_true(on_replica(strategy, mu_value_get(second, "a"), r) == wanted[r][1]);
        assert_true(on_replica(strategy, mu_value_get(second, "b"), r) == wanted[r][2]);
        assert_true(on_replica(strategy, third, r) == wanted[r][3]);
    }
}

// Case 017.
static void one_replica_wraps_nothing(void **state)
{
    (void)state;
    for (int kind = -1; kind <= 1; kind++) {
        mu_strategy *strategy = strategy_of(kind);
        mu_value *second = mu_run(strategy, mu_function_new(double_and_square, NULL), mu_of(mu_constant(MU_F64, 4)));
        assert_int_equal(mu_value_kind_of(second), MU_VALUE_MAP);
        assert_int_equal(mu_value_kind_of(mu_value_get(second, "a")), MU_VALUE_TENSOR);
        mu_value *third = mu_run(strategy, mu_function_new(combine, NULL), second);
        assert_true(mu_scalar(third) == 42);
        assert_int_equal(mu_value_count(mu_local_results(strategy, third)), 1);
    }
}

// Case 029 and 031.
static void every_replica_runs_once(void **state)
{
    (void)state;
    for (int n = 1; n <= DEVICES; n++) {
        mu_strategy *strategy = strategy_of(n);
        mu_value *ids = mu_run(strategy, mu_function_new(id_plus_one, NULL), NULL);
        mu_value *plain = mu_run(strategy, mu_function_new(double_and_square, NULL), mu_of(mu_constant(MU_F64, 2)));
        for (int r = 0; r < n; r++) {
            assert_true(on_replica(strategy, ids, r) == r + 1);
            assert_true(on_replica(strategy, mu_value_get(plain, "b"), r) == 4);
        }
    }
}

static mu_value *nest(double tag)
{
    mu_value *inner = mu_map("c", mu_constant(MU_F64, tag + 3), "f", mu_constant(MU_F64, tag + 4), MU_END);
    mu_value *middle = mu_list(mu_constant(MU_F64, tag + 2), inner, mu_constant(MU_F64, tag + 5), MU_END);
    return mu_list(mu_constant(MU_F64, tag + 1), middle, mu_constant(MU_F64, tag + 6), MU_END);
}

// Cases 019 and 022.
static void regroup_and_select_are_inverse(void **state)
{
    (void)state;
    mu_value *values[] = {nest(10), nest(20)};
    mu_value *grouped = mu__give(mu__regroup(2, values));
    assert_int_equal(mu_value_kind_of(grouped), MU_VALUE_LIST);
    assert_int_equal(mu_value_kind_of(mu_value_at(grouped, 0)), MU_VALUE_PER_REPLICA);
    mu_object *seen[8], *wanted[8];
    for (int r = 0; r < 2; r++) {
        mu_value *selected = mu__give(mu__select(grouped, r));
        assert_true(mu__value_same_structure(selected, values[r]));
        assert_int_equal(mu__value_flatten(selected, seen, 8), 6);
        assert_int_equal(mu__value_flatten(values[r], wanted, 8), 6);
        assert_memory_equal(seen, wanted, 6 * sizeof *seen);
    }
    assert_ptr_equal(mu__give(mu__regroup(1, values)), values[0]);
    mu_value *shared[] = {values[0], values[0]};
    assert_ptr_equal(mu__give(mu__regroup(2, shared)), values[0]);
    mu_value *unlike[] = {values[0], mu_list(mu_constant(MU_F64, 1), MU_END)};
    assert_null(mu__regroup(2, unlike));
    expect_error(MU_INVALID_ARGUMENT, "different structure");
}

static void batches_are_split_evenly(void **state)
{
    (void)state;
    double numbers_[20];
    for (int i = 0; i < 20; i++)
        numbers_[i] = i;
    for (int n = 2; n <= DEVICES; n++)
        for (int64_t rows = 0; rows <= 20; rows++) {
            mu_pool *pool = mu_pool_open();
            mu_value *parts = mu__give(mu__split_batch(strategy_of(n), mu_list(vector(rows, numbers_), MU_END)));
            mu_value *column = mu_value_at(parts, 0);
            int64_t at = 0;
            for (int r = 0; r < n; r++) {
                mu_tensor *part = mu_value_tensor(mu_value_at(column, r));
                int64_t size = mu_tensor_dim(part, 0);
                assert_in_range(size, rows / n, rows / n + 1);
                assert_near(doubles(part), numbers_ + at, size, 0);
                at += size;
            }
            assert_int_equal(at, rows);
            mu_pool_close(pool);
        }
    assert_null(mu__split_batch(strategy_of(2), mu_list(mu_constant(MU_F64, 1), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "scalar");
    assert_null(mu__split_batch(strategy_of(2), mu_list(vector(2, numbers_), vector(3, numbers_), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "2 and 3 rows");
}

static mu_value *fail_on_negative(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_assert(mu_greater_equal(x, mu_zeros_like(x)), "x is negative");
    return mu_of(mu_all_reduce(MU_SUM, x));
}

// Case 028: the error of one replica is raised, the others are released, and the strategy works afterwards.
static void failing_replicas_release_the_others(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        mu_strategy *strategy = strategy_of(n);
        mu_function *function = mu_function_new(fail_on_negative, NULL);
        for (int bad = 0; bad < n; bad++) {
            double values[DEVICES] = {1, 1, 1, 1, 1, 1, 1, 1};
            mu_value *good = scalars_of(n, MU_F64, values);
            values[bad] = -1;
            assert_null(mu_run(strategy, function, scalars_of(n, MU_F64, values)));
            expect_error(MU_INVALID_ARGUMENT, "x is negative");
            for (int r = 0; r < n; r++)
                assert_true(on_replica(strategy, mu_run(strategy, function, good), r) == n);
        }
    }
}

// Several runs are in progress when one fails: each ends, and later ones work.
static void runs_behind_a_failed_one_end(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(3);
    mu_function *function = mu_function_new(fail_on_negative, NULL);
    mu_value *good = scalars_of(3, MU_F64, (double[]){1, 2, 3}), *bad = scalars_of(3, MU_F64, (double[]){1, -2, 3});
    for (int turn = 0; turn < 200; turn++) {
        mu_pool *pool = mu_pool_open();
        mu_running *first = mu__run_start(strategy, function, bad), *second = mu__run_start(strategy, function, good);
        assert_null(mu__run_wait(first));
        expect_error(MU_INVALID_ARGUMENT, "x is negative");
        mu__run_wait(second);
        mu_error_take();
        assert_true(on_replica(strategy, mu_run(strategy, function, good), 1) == 6);
        mu_pool_close(pool);
    }
}

// Each thread of the program may have its own strategy. The strategies share devices, and no thread waits for ever for
// another.
typedef struct user {
    pthread_t thread;
    int replicas;
    bool ok;
} user;

static mu_value *sum_of_ids(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_add(mu_cast(mu_replica_id(), MU_F64), mu_at(arguments, 0))));
}

static void *use_strategy(void *arg)
{
    user *u = arg;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = strategy_of(u->replicas);
    mu_function *function = mu_function_new(sum_of_ids, NULL);
    u->ok = true;
    for (int i = 0; i < 200 && u->ok; i++) {
        mu_pool *step = mu_pool_open();
        mu_value *result = mu_run(strategy, function, mu_of(mu_constant(MU_F64, i)));
        int n = u->replicas;
        u->ok = result && mu_scalar(mu_at(mu_local_results(strategy, result), n - 1)) == n * (n - 1) / 2 + n * i;
        mu_pool_close(step);
    }
    u->ok &= mu_error_take().code == MU_OK;
    mu_pool_close(pool);
    return NULL;
}

static void threads_share_devices(void **state)
{
    (void)state;
    user users[4] = {{.replicas = 2}, {.replicas = 3}, {.replicas = 4}, {.replicas = 2}};
    for (size_t i = 0; i < MU_COUNT(users); i++)
        assert_int_equal(pthread_create(&users[i].thread, NULL, use_strategy, &users[i]), 0);
    for (size_t i = 0; i < MU_COUNT(users); i++)
        pthread_join(users[i].thread, NULL);
    for (size_t i = 0; i < MU_COUNT(users); i++)
        assert_true(users[i].ok);
}

static mu_value *fail_to_trace(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    mu_fail(MU_OUT_OF_RANGE, "no more");
    return NULL;
}

static void errors_of_traces_surface(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    assert_null(mu_run(strategy, mu_function_new(fail_to_trace, NULL), NULL));
    expect_error(MU_OUT_OF_RANGE, "no more");
    assert_null(mu_run(strategy, NULL, NULL));
    expect_error(MU_INVALID_ARGUMENT, "function is NULL");
    assert_non_null(mu_run(strategy, mu_function_new(id_plus_one, NULL), NULL));
}

static mu_value *nothing(mu_value *arguments, void *arg)
{
    (void)arguments;
    (void)arg;
    return NULL;
}

static mu_value *gradient_through(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *factor =
        mu_add(mu_multiply(mu_cast(mu_replica_id(), MU_F64), mu_constant(MU_F64, 2)), mu_constant(MU_F64, 1));
    mu_tensor *y = mu_multiply(mu_all_reduce(*(mu_reduce_op *)arg, x), factor);
    return mu_of(mu_at(mu_gradients(tape, y, mu_list(x, MU_END)), 0));
}

// Case 053: c is 1 and 3.
static void gradients_are_reduced_alike(void **state)
{
    (void)state;
    mu_strategy *strategy = strategy_of(2);
    for (mu_reduce_op op = MU_SUM; op <= MU_MEAN; op++) {
        mu_value *derivative = mu_run(strategy, mu_function_new(gradient_through, &op), mu_of(mu_constant(MU_F64, 42)));
        for (int r = 0; r < 2; r++)
            assert_true(on_replica(strategy, derivative, r) == (op == MU_SUM ? 4 : 2));
    }
    assert_non_null(mu_run(strategy, mu_function_new(nothing, NULL), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(results_travel_per_replica),   MODEL_TEST(one_replica_wraps_nothing),
        MODEL_TEST(every_replica_runs_once),      MODEL_TEST(regroup_and_select_are_inverse),
        MODEL_TEST(batches_are_split_evenly),     MODEL_TEST(failing_replicas_release_the_others),
        MODEL_TEST(runs_behind_a_failed_one_end), MODEL_TEST(threads_share_devices),
        MODEL_TEST(errors_of_traces_surface),     MODEL_TEST(gradients_are_reduced_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
