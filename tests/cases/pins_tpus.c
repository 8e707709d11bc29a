// What TensorFlow's tests of TPUStrategy pin and no numbered case has: runs of several strategies on cores, input,
// reductions and their gradients, variables from elsewhere, logical devices, checkpoints.
#include "cases.h"

#include <muster/tpu_strategy.h>
#include <stdlib.h>
#include <unistd.h>

static const int first_cores[] = {0, 0, 0, 0, 0, 0, 0, 1};

// A strategy on the first two cores: one replica on each, or one replica on both.
static mu_strategy *on_two_cores(mu_tpu_topology *topology, int replicas)
{
    return mu_tpu_strategy(.device_assignment =
                               mu_tpu_device_assignment_new(topology, replicas, 2 / replicas, first_cores));
}

static mu_value *id_and_one(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_add(id(), scalar(1)));
}

static mu_value *double_and_square(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_value_tensor(arguments);
    return mu_map("a", mu_multiply(x, scalar(2)), "b", mu_square(x), MU_END);
}

static mu_value *a_and_twice_b(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *a = mu_value_tensor(mu_value_get(arguments, "a")), *b = mu_value_tensor(mu_value_get(arguments, "b"));
    return mu_of(mu_add(mu_add(a, mu_multiply(scalar(2), b)), scalar(2)));
}

static mu_value *gradient_of_reduced(mu_value *arguments, void *arg)
{
    mu_tensor *x = scalar(42);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_multiply(mu_all_reduce(*(mu_reduce_op *)arg, x), mu_value_tensor(arguments));
    return mu_gradients(tape, y, mu_of(x));
}

// test_run, test_all_reduce_sum_gradient_tape, test_all_reduce_mean_gradient_tape.
static void chains_of_runs(void)
{
    mu_reduce_op sum = MU_SUM, mean = MU_MEAN;
    mu_strategy *all[] = {on_two_cores(mu_tpu_initialize(NULL), 2), mirrored(2),
                          mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 3; i++) {
        mu_value *first = mu_run(all[i], mu_function_new(id_and_one, NULL), NULL);
        EXPECT(mu_local_results(all[i], first), 1, 2);
        mu_value *both = mu_run(all[i], mu_function_new(double_and_square, NULL), first);
        EXPECT(mu_local_results(all[i], mu_value_get(both, "a")), 2, 4);
        EXPECT(mu_local_results(all[i], mu_value_get(both, "b")), 1, 4);
        EXPECT(mu_local_results(all[i], mu_run(all[i], mu_function_new(a_and_twice_b, NULL), both)), 6, 14);
        mu_function *of_sum = mu_function_new(gradient_of_reduced, &sum);
        EXPECT(mu_run(all[i], of_sum, PER_REPLICA(1, 3)), 4, 4);
        mu_function *of_mean = mu_function_new(gradient_of_reduced, &mean);
        EXPECT(mu_run(all[i], of_mean, PER_REPLICA(1, 3)), 2, 2);
    }
    mu_tpu_shutdown(NULL);
}

static mu_dataset *ten_numbers(const mu_input_context *context, void *arg)
{
    (void)arg;
    CHECK(context->num_replicas_in_sync == 2 && context->num_input_pipelines == 1 && context->input_pipeline_id == 0);
    return mu_dataset_range(0, 10, 1);
}

// test_make_input_fn_iterable: also once more from the beginning.
static void input_of_cores(void)
{
    mu_strategy *s = on_two_cores(mu_tpu_initialize(NULL), 2);
    mu_distributed_dataset *data = mu_distribute_datasets_from_function(s, ten_numbers, NULL);
    for (int turn = 0; turn < 2; turn++) {
        int next = 0;
        MU_EACH(x, data) {
            EXPECT(mu_local_results(s, x), next, next + 1);
            next += 2;
        }
        CHECK(next == 10);
    }
    mu_tpu_shutdown(NULL);
}

static mu_value *plus_variable(mu_value *arguments, void *arg)
{
    mu_tensor *x = arguments && mu_value_kind_of(arguments) == MU_VALUE_TENSOR ? mu_value_tensor(arguments) : scalar(1);
    return mu_of(mu_add(x, mu_variable_read(arg)));
}

static mu_value *shapes_that_differ(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_matmul(mu_zeros(MU_F32, 2, (int64_t[]){2, 3}), mu_zeros(MU_F32, 2, (int64_t[]){2, 3})));
}

// test_using_external_variable_inside_tf_function, test_function_compile_with_xla, test_tpu_return_int32,
// test_recover_from_compilation_failures.
static void variables_from_elsewhere(void)
{
    mu_strategy *s = on_two_cores(mu_tpu_initialize(NULL), 2);
    mu_variable *plain = mu_variable_new(scalar(2), "v"), *own = on_write(s, 1, MU_AGGREGATION_NONE);
    CHECK(!mu_run(s, mu_function_new(shapes_that_differ, NULL), NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    EXPECT(mu_local_results(s, mu_run(s, mu_function_new(plus_variable, plain), PER_REPLICA(0, 1))), 2, 3);
    static const char *const devices[] = {"TPU:0", "TPU:1", "CPU:0"};
    for (int i = 0; i < 3; i++) {
        CHECK(mu_set_device(devices[i]) == MU_OK);
        EXPECT(mu_function_call(mu_function_new(plus_variable, own), NULL), 2);
        EXPECT(mu_function_call(mu_function_new(plus_variable, plain), NULL), 3);
    }
    CHECK(mu_set_device(NULL) == MU_OK);
    mu_tpu_shutdown(NULL);
}

typedef struct factors {
    mu_variable *v, *w;
} factors;

static mu_value *product(mu_value *arguments, void *arg)
{
    const factors *f = arg;
    mu_strategy *s = mu_get_strategy();
    mu_tensor *y = mu_multiply(mu_variable_read(f->v), mu_value_tensor(arguments));
    y = mu_assign_to_logical_device(s, y, 0);
    return mu_of(mu_assign_to_logical_device(s, mu_multiply(mu_variable_read(f->w), y), 1));
}

// test_model_parallelism, test_model_parallelism_checkpointing.
static void logical_devices(void)
{
    char path[] = "/tmp/muster-pin-XXXXXX";
    const int file = mkstemp(path);
    mu_strategy *s = on_two_cores(mu_tpu_initialize(NULL), 1);
    factors of = {0};
    MU_SCOPE(s)
        of = (factors){.v = mu_variable_new(scalar(2), "v"), .w = mu_variable_new(scalar(3), "w")};
    CHECK(mu_num_replicas_in_sync(s) == 1 && mu_value_count(components(of.v)) == 1);
    mu_function *f = mu_function_new(product, &of);
    EXPECT(mu_run(s, f, mu_of(scalar(5))), 30);
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(of.v, of.w, MU_END));
    CHECK(mu_checkpoint_save(checkpoint, path) == MU_OK);
    CHECK(mu_variable_assign(of.v, scalar(1)) == MU_OK && mu_variable_assign(of.w, scalar(4)) == MU_OK);
    EXPECT(mu_run(s, f, mu_of(scalar(5))), 20);
    CHECK(mu_checkpoint_restore(checkpoint, path) == MU_OK);
    EXPECT(mu_run(s, f, mu_of(scalar(5))), 30);
    mu_tpu_shutdown(NULL);
    close(file);
    unlink(path);
}

const one_case pin_tpu_cases[] = {
    {"pin_chains_of_runs", chains_of_runs, NULL},
    {"pin_input_of_cores", input_of_cores, NULL},
    {"pin_variables_from_elsewhere", variables_from_elsewhere, NULL},
    {"pin_logical_devices", logical_devices, NULL},
    {0},
};
