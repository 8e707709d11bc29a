// Eager ops under an XLA device: each is compiled once, runs there, and leaves its results there; the host computes the
// ops that a device program cannot.
#include "changed_table.h"
#include "skip.h"

#include "engine/engine.h"

#include <muster.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const pj_api *own;
static mu_device *device;
static atomic_int compiled, launched, sent, destroyed;

static pj_error *count_compile(void *args)
{
    compiled++;
    return own->functions[PJ_CLIENT_COMPILE](args);
}
static pj_error *count_execute(void *args)
{
    launched++;
    return own->functions[PJ_LOADED_EXECUTE](args);
}
static pj_error *count_send(void *args)
{
    sent++;
    return own->functions[PJ_CLIENT_BUFFER_FROM_HOST_BUFFER](args);
}
static pj_error *count_destroy(void *args)
{
    destroyed++;
    return own->functions[PJ_LOADED_DESTROY](args);
}

static int begin(void **state)
{
    static const changed_function changed[] = {{PJ_CLIENT_COMPILE, count_compile},
                                               {PJ_LOADED_EXECUTE, count_execute},
                                               {PJ_CLIENT_BUFFER_FROM_HOST_BUFFER, count_send},
                                               {PJ_LOADED_DESTROY, count_destroy}};
    mu_init(.cpu_devices = 2);
    device = mu__device_by_name(mu__runtime(), "XLA_CPU:0");
    if (!device)
        return -1;
    *state = change_table(device->engine_client, MU_COUNT(changed), changed, &own);
    compiled = launched = sent = destroyed = 0;
    return 0;
}

static void expect_counts(int compiles, int launches, int sends)
{
    if (compiled != compiles || launched != launches || sent != sends)
        fail_msg("%d compiled, %d launched, %d sent; expected %d, %d, %d", (int)compiled, (int)launched, (int)sent,
                 compiles, launches, sends);
    compiled = launched = sent = 0;
}

static void expect_elements(mu_tensor *tensor, int n, const double *wanted)
{
    if (!tensor)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_tensor_elements(tensor), n);
    const void *data = mu_tensor_data(tensor);
    for (int i = 0; i < n; i++)
        if (fabs(mu__read_element(tensor->dtype, data, i) - wanted[i]) > 1e-6)
            fail_msg("element %d is %g, not %g", i, mu__read_element(tensor->dtype, data, i), wanted[i]);
}

static mu_tensor *row(float a, float b, float c) { return mu_vector_f32(3, (float[]){a, b, c}); }

static void test_ops_run_on_the_device_that_is_set(void **state)
{
    (void)state;
    assert_int_equal(mu_set_device("XLA_CPU:0"), MU_OK);
    mu_tensor *x = row(1, 2, 3), *y = mu_multiply(mu_add(x, x), x);
    assert_ptr_equal(y->buffer->memory_space, device->memory_space);
    expect_counts(2, 2, 3);
    mu_tensor *z = mu_reshape(mu_add(y, y), 2, (const int64_t[]){3, 1}); // compiled before; on the device already
    expect_counts(1, 2, 0);
    expect_elements(z, 3, (const double[]){4, 16, 36});
    mu_tensor *wide = mu_vector_f32(4, (float[]){1, 1, 1, 1});
    expect_elements(mu_add(wide, wide), 4, (const double[]){2, 2, 2, 2}); // another shape
    assert_int_equal(compiled, 1);
    assert_int_equal(mu_set_device(NULL), MU_OK);
    assert_ptr_equal(mu_add(x, x)->buffer->memory_space, &mu__host_memory);
}

static void test_a_scope_of_one_device(void **state)
{
    (void)state;
    mu_tensor *x = row(1, 2, 3), *y = NULL, *z = NULL;
    MU_SCOPE(mu_one_device_strategy("XLA_CPU:0"))
        y = mu_exp(x);
    assert_ptr_equal(y->buffer->memory_space, device->memory_space);
    MU_SCOPE(mu_one_device_strategy("CPU:1"))
        z = mu_exp(x);
    assert_ptr_equal(z->buffer->memory_space, &mu__host_memory);
    expect_elements(y, 3, (const double[]){exp(1), exp(2), exp(3)});
    MU_SCOPE(mu_mirrored_strategy(.devices = (const char *[]){"XLA_CPU:0", "XLA_CPU:1", NULL}))
        z = mu_exp(x);
    assert_ptr_equal(z->buffer->memory_space, &mu__host_memory);
}

static mu_value *square(mu_value *arguments, void *arg)
{
    mu_tensor **seen = arg;
    mu_tensor *x = mu_at(arguments, 0);
    *seen = mu_multiply(x, x);
    return mu_of(*seen);
}

static void test_a_callback_runs_there(void **state)
{
    (void)state;
    mu_tensor *seen = NULL;
    mu_value *out =
        mu_run_callback(mu_one_device_strategy("XLA_CPU:1"), square, &seen, mu_list(mu_of(row(1, 2, 3)), MU_END));
    assert_non_null(out);
    assert_ptr_equal(seen->buffer->memory_space, mu__device_by_name(mu__runtime(), "XLA_CPU:1")->memory_space);
    expect_elements(mu_value_tensor(out), 3, (const double[]){1, 4, 9});
}

static void test_gradients(void **state)
{
    (void)state;
    mu_set_device("XLA_CPU:0");
    mu_tensor *x = row(1, 2, 3);
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_reduce_sum(mu_multiply(mu_multiply(x, x), x), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, mu_list(mu_of(x), MU_END));
    mu_tensor *dx = gradients ? mu_at(gradients, 0) : NULL;
    mu_tape_close(tape);
    if (!dx)
        fail_msg("%s", mu_error_message());
    assert_ptr_equal(dx->buffer->memory_space, device->memory_space);
    expect_elements(dx, 3, (const double[]){3, 12, 27});
    const double h = 1e-2; // numerically, by float32 on the host
    mu_set_device(NULL);
    for (int i = 0; i < 3; i++) {
        const double at = i + 1, up = pow(at + h, 3), down = pow(at - h, 3);
        assert_true(fabs((up - down) / (2 * h) - mu__read_element(MU_F32, mu_tensor_data(dx), i)) < 1e-3);
    }
}

static void test_variables(void **state)
{
    (void)state;
    mu_variable *v = mu_variable_new(.initial_value = row(1, 2, 3), .name = "v");
    mu_set_device("XLA_CPU:0");
    mu_tensor *before = mu_variable_read(v);
    assert_ptr_equal(before->buffer->memory_space, device->memory_space);
    mu_variable_assign_add(v, row(1, 1, 1));
    mu_variable_assign_sub(v, mu_add(before, before));
    assert_ptr_equal(mu_variable_read(v)->buffer->memory_space, device->memory_space);
    expect_elements(before, 3, (const double[]){1, 2, 3}); // as it was when it was read
    expect_elements(mu_variable_read(v), 3, (const double[]){0, -1, -2});
    mu_tensor *column = mu_reshape(mu_add(row(1, 2, 3), row(3, 3, 3)), 2, (const int64_t[]){3, 1});
    mu_set_device(NULL);
    mu_tensor *view = mu_reshape(column, 1, (const int64_t[]){3}); // the device's elements with another shape
    mu_set_device("XLA_CPU:0");
    mu_variable_assign(v, view);
    expect_elements(mu_add(mu_variable_read(v), row(0, 0, 0)), 3, (const double[]){4, 5, 6});
    mu_variable_assign_add(v, row(1, 1, 1));
    expect_elements(mu_variable_read(v), 3, (const double[]){5, 6, 7});
    mu_variable_assign(v, row(7, 8, 9));
    assert_ptr_equal(mu_variable_read(v)->buffer->memory_space, device->memory_space);
    mu_set_device(NULL);
    expect_elements(mu_variable_read(v), 3, (const double[]){7, 8, 9});
    assert_int_equal(mu_error_code(), MU_OK);
}

// Ops without a form for the device, shapes that depend on elements, and mistakes.
static void test_the_host_does_the_rest(void **state)
{
    (void)state;
    mu_set_device("XLA_CPU:0");
    mu_tensor *x = mu_add(row(3, 1, 3), row(0, 0, 0));
    const int launches = launched;
    mu_tensor *values = NULL, *indices = NULL;
    assert_int_equal(mu_unique(x, &values, &indices), MU_OK);
    expect_elements(values, 2, (const double[]){3, 1});
    assert_non_null(mu_check_numerics(x, "x"));
    assert_int_equal(launched, launches);
    mu_tensor *image = mu_ones(MU_F32, 4, (const int64_t[]){1, 20, 20, 1});
    for (int i = 0; i < 2; i++) { // a window beyond the limit of the lowering
        mu_tensor *most = mu_nn_max_pool2d(image, {20, 20});
        expect_elements(most, 1, (const double[]){1});
        assert_ptr_equal(most->buffer->memory_space, &mu__host_memory);
    }
    assert_int_equal(mu_error_code(), MU_OK);
    assert_null(mu_add(x, mu_vector_f32(2, (float[]){1, 2})));
    const mu_error error = mu_error_take();
    mu_set_device(NULL);
    assert_null(mu_add(row(3, 1, 3), mu_vector_f32(2, (float[]){1, 2})));
    assert_string_equal(error.message, mu_error_take().message);
}

static int few_programs(void **state)
{
    setenv("MUSTER_EAGER_PROGRAMS", "2", 1);
    return begin(state);
}

static void test_few_programs_are_kept(void **state)
{
    (void)state;
    mu_set_device("XLA_CPU:0");
    mu_tensor *x = row(1, 2, 3);
    for (int i = 0; i < 3; i++)
        mu_neg(mu_exp(x));
    assert_int_equal(compiled, 2);
    mu_abs(x); // exp goes
    assert_int_equal(destroyed, 1);
    mu_neg(x);
    assert_int_equal(compiled, 3);
    mu_exp(x);
    assert_int_equal(compiled, 4);
    assert_int_equal(destroyed, 2);
}

static int many_again(void **state)
{
    unsetenv("MUSTER_EAGER_PROGRAMS");
    return exit_and_free_table(state);
}

#define EAGER_TEST(test) cmocka_unit_test_setup_teardown(test, begin, exit_and_free_table)

static mu_value *plus_one(mu_value *element, void *arg)
{
    mu_tensor *x = mu_value_tensor(element), *y = mu_add(x, mu_constant(x->dtype, 1));
    *(const mu_memory_space **)arg = y->buffer->memory_space;
    return mu_of(y);
}

// Pipelines and initial values of weights are computed on the host, wherever the program's own ops run.
static void test_pipelines_and_weights(void **state)
{
    (void)state;
    const mu_memory_space *space = NULL;
    mu_set_device("XLA_CPU:0");
    mu_dataset *set = mu_dataset_map(mu_dataset_from_tensor_slices(mu_of(row(1, 2, 3))), plus_one, &space);
    MU_EACH(element, set)
        assert_ptr_equal(mu_value_tensor(element)->buffer->memory_space, &mu__host_memory);
    assert_ptr_equal(space, &mu__host_memory);
    mu_model *model = mu_sequential(mu_dense(4), mu_dense(2));
    mu_model_build(model, 1, (const int64_t[]){3});
    assert_int_equal(compiled, 0);
    mu_tensor *x = mu_reshape(row(1, 2, 3), 2, (const int64_t[]){1, 3});
    mu_tensor *y = mu_call(model, x);
    if (!y)
        fail_msg("%s", mu_error_message());
    assert_ptr_equal(y->buffer->memory_space, device->memory_space);
    mu_set_device(NULL);
    mu_tensor *again = mu_call(model, x);
    for (int i = 0; i < 2; i++)
        assert_true(fabsf(((const float *)mu_tensor_data(again))[i] - ((const float *)mu_tensor_data(y))[i]) < 1e-5F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EAGER_TEST(test_ops_run_on_the_device_that_is_set),
        EAGER_TEST(test_a_scope_of_one_device),
        EAGER_TEST(test_a_callback_runs_there),
        EAGER_TEST(test_gradients),
        EAGER_TEST(test_variables),
        EAGER_TEST(test_the_host_does_the_rest),
        EAGER_TEST(test_pipelines_and_weights),
        cmocka_unit_test_setup_teardown(test_few_programs_are_kept, few_programs, many_again),
    };
    if (plugin_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
