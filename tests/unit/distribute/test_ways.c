// Ways of reducing give the same order of addition eagerly, outside of functions and in compiled ones, on any number of
// devices.
#include "../base/base_test.h"
#include "distribute_test.h"

enum { MOST = 9, WIDTH = 5 };

static int start_nine(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = MOST, .seed = 7) != MU_OK;
}

#define WAYS_TEST(name) cmocka_unit_test_setup_teardown(name, start_nine, end_library)

// Numbers whose sum in float32 depends on the order.
static float number(int replica, int i)
{
    static const float numbers[MOST] = {1e8f, 1, -1e8f, 3.5f, 1e-3f, 7e7f, -7e7f, 2, 1e6f};
    return numbers[(replica + i) % MOST] + (float)i;
}

static mu_tensor *own_numbers(int replica)
{
    float all[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        all[i] = number(replica, i);
    return mu_tensor_new(MU_F32, 1, (int64_t[]){WIDTH}, all);
}

static mu_value *numbers_per_replica(int n)
{
    mu_value *parts[MOST];
    for (int r = 0; r < n; r++)
        parts[r] = mu_of(own_numbers(r));
    return n == 1 ? parts[0] : mu__give(mu__value_container(MU_VALUE_PER_REPLICA, n, parts, NULL));
}

static mu_value *reduce_own(mu_value *arguments, void *arg)
{
    return mu_of(mu_all_reduce(*(mu_reduce_op *)arg, mu_at(arguments, 0)));
}

static float in_order(int from, int to, int i)
{
    float sum = number(from, i);
    for (int r = from + 1; r < to; r++)
        sum += number(r, i);
    return sum;
}

static void assert_floats(const mu_value *value, const float *wanted)
{
    if (!value)
        fail_msg("%s", mu_error_message());
    assert_memory_equal(mu_tensor_data(mu_value_tensor(value)), wanted, sizeof(float) * WIDTH);
}

static void check(int n, mu_cross_device_ops *ops, mu_reduce_op op, const float *wanted)
{
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = n, .cross_device_ops = ops);
    mu_value *parts = numbers_per_replica(n),
             *batch = n > 1 ? mu_batch_reduce_to(strategy, op, mu_list(parts, MU_END), NULL) : NULL;
    mu_value *traced = mu_run(strategy, mu_function_new(reduce_own, &op), parts);
    mu_value *eager = mu_run_callback(strategy, reduce_own, &op, parts);
    if (n > 1)
        assert_floats(mu_reduce(strategy, op, parts), wanted);
    for (int r = 0; r < n; r++) {
        assert_floats(mu_value_at(mu_local_results(strategy, traced), r), wanted);
        assert_floats(mu_value_at(mu_local_results(strategy, eager), r), wanted);
        if (batch)
            assert_floats(mu_value_at(mu_local_results(strategy, batch), r), wanted);
    }
}

static void halves_on_any_number_of_devices(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++)
        for (int packs = 0; packs <= WIDTH + 2; packs++)
            for (mu_reduce_op op = MU_SUM; op <= MU_MEAN; op++) {
                float wanted[WIDTH];
                mu_pool *pool = mu_pool_open();
                for (int i = 0; i < WIDTH; i++) {
                    wanted[i] = n == 1 ? number(0, i) : in_order(0, n / 2, i) + in_order(n / 2, n, i);
                    wanted[i] = op == MU_MEAN ? wanted[i] / (float)n : wanted[i];
                }
                check(n, mu_hierarchical_copy(packs), op, wanted);
                mu_pool_close(pool);
            }
}

static void one_after_the_other(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        float wanted[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            wanted[i] = in_order(0, n, i);
        check(n, mu_reduction_to_one_device(), MU_SUM, wanted);
        check(n, NULL, MU_SUM, wanted);
    }
}

// ---- A user's own -------------------------------------------------------------------------------

static mu_tensor *largest(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    (void)op, (void)arg;
    mu_tensor *most = parts[0];
    for (int i = 1; i < n; i++)
        most = mu_maximum(most, parts[i]);
    return most;
}

static mu_tensor *too_short(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    (void)op, (void)n, (void)arg;
    return mu_slice(parts[0], (int64_t[]){0}, (int64_t[]){1});
}

static void own_ways_are_asked(void **state)
{
    (void)state;
    float wanted[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        wanted[i] = number(0, i);
        for (int r = 1; r < 4; r++)
            wanted[i] = fmaxf(wanted[i], number(r, i));
    }
    check(4, mu_cross_device_ops_new(largest, NULL), MU_SUM, wanted);
}

static mu_value *reduce_integers(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_add(mu_replica_id(), mu_constant(MU_I32, 1))));
}

static void integers_are_exact_anyway(void **state)
{
    (void)state;
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 3, .cross_device_ops = mu_hierarchical_copy(2));
    mu_value *sums = mu_run(strategy, mu_function_new(reduce_integers, NULL), NULL);
    for (int r = 0; r < 3; r++)
        assert_number(on_replica(strategy, sums, r), 6, 0);
}

static void failures_reach_the_caller(void **state)
{
    (void)state;
    mu_reduce_op op = MU_SUM;
    mu_strategy *strategy =
        mu_mirrored_strategy(.replicas = 2, .cross_device_ops = mu_cross_device_ops_new(too_short, NULL));
    assert_null(mu_run(strategy, mu_function_new(reduce_own, &op), numbers_per_replica(2)));
    expect_error(MU_INVALID_ARGUMENT, "returned float32[1] for parts of float32[5]");
    assert_null(mu_run_callback(strategy, reduce_own, &op, numbers_per_replica(2)));
    expect_error(MU_INVALID_ARGUMENT, "returned float32[1] for parts of float32[5]");
}

static void reduce_by_nccl(void *arg)
{
    (void)arg;
    mu_strategy *strategy = mu_mirrored_strategy(.replicas = 2, .cross_device_ops = mu_nccl_all_reduce(1));
    for (int i = 0; i < 3; i++)
        assert_non_null(mu_reduce(strategy, MU_SUM, numbers_per_replica(2)));
    mu_value *value = mu_of(own_numbers(0));
    assert_non_null(mu_cross_device_reduce(mu_nccl_all_reduce(2), MU_MEAN, value, value));
}

// Must run first: a process logs this only once.
static void a_way_for_other_devices_warns_once(void **state)
{
    char text[4000];
    (void)state;
    catch_stderr(reduce_by_nccl, NULL, text, sizeof text);
    const char *warning = strstr(text, "warning: mu_nccl_all_reduce works in functions that replicas on GPU");
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "warning"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WAYS_TEST(a_way_for_other_devices_warns_once),
        WAYS_TEST(halves_on_any_number_of_devices),
        WAYS_TEST(one_after_the_other),
        WAYS_TEST(own_ways_are_asked),
        WAYS_TEST(integers_are_exact_anyway),
        WAYS_TEST(failures_reach_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
