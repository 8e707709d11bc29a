// Dtype policies: which types layers compute in and keep their weights in, training on several replicas, and the scale
// of the loss when the gradients of one replica overflow. The numbers are compared with Keras's in tests/conformance.
#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"
#include "model_test.h"

#include <muster/preprocessing.h>
#include <muster/recurrent.h>
#include <string.h>

#define REFUSED(call, code, part) \
    do {                          \
        assert_null(call);        \
        expect_error(code, part); \
    } while (0)

static int start(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = DEVICES, .seed = 7) != MU_OK;
}

#define PRECISION_TEST(name) cmocka_unit_test_setup_teardown(name, start, end_library)

static mu_tensor *floats(int64_t rows, int64_t columns, uint64_t seed)
{
    return mu_cast(numbers(2, (int64_t[]){rows, columns}, seed), MU_F32);
}

// ---- Types --------------------------------------------------------------------------------------

static void policies_have_keras_names(void **state)
{
    (void)state;
    assert_string_equal(mu_dtype_policy(), "float32");
    assert_int_equal(mu_set_floatx(MU_F64), MU_OK);
    assert_string_equal(mu_dtype_policy(), "float64");
    assert_int_equal(mu_set_dtype_policy("mixed_float16"), MU_OK);
    assert_string_equal(mu_dtype_policy(), "mixed_float16");
    assert_string_equal(mu_layer_dtype_policy(mu_dense(1)), "mixed_float16");
    assert_string_equal(mu_layer_dtype_policy(mu_dense(1, .dtype = "bfloat16")), "bfloat16");
    assert_null(mu_layer_dtype_policy(NULL));
}

static void layers_compute_in_their_type(void **state)
{
    (void)state;
    static const struct {
        const char *policy;
        mu_dtype compute, variable;
    } rows[] = {{"float32", MU_F32, MU_F32},    {"float64", MU_F64, MU_F64},       {"float16", MU_F16, MU_F16},
                {"bfloat16", MU_BF16, MU_BF16}, {"mixed_float16", MU_F16, MU_F32}, {"mixed_bfloat16", MU_BF16, MU_F32}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mu_layer *dense = mu_dense(3, .dtype = rows[i].policy), *norm = mu_layer_normalization(.dtype = rows[i].policy);
        mu_layer *batch = mu_batch_normalization(.dtype = rows[i].policy);
        mu_tensor *y = mu_call(dense, floats(2, 4, 1));
        assert_int_equal(mu_tensor_dtype(y), rows[i].compute);
        assert_int_equal(mu_tensor_dtype(mu_call(norm, y)), rows[i].compute);
        assert_int_equal(mu_tensor_dtype(mu_call(batch, y, .training = true)), rows[i].compute);
        assert_int_equal(mu_variable_dtype(mu_layer_weight(dense, "kernel")), rows[i].variable);
        // Outside of a call a weight has its own type.
        assert_int_equal(mu_tensor_dtype(mu_variable_read(mu_layer_weight(dense, "kernel"))), rows[i].variable);
    }
}

static void gradients_have_the_type_of_weights(void **state)
{
    (void)state;
    mu_layer *dense = mu_dense(3, .dtype = "mixed_bfloat16");
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_reduce_sum(mu_call(dense, floats(2, 4, 1)), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(mu_layer_weight(dense, "kernel"), MU_END));
    mu_tape_close(tape);
    assert_int_equal(mu_tensor_dtype(loss), MU_BF16);
    assert_int_equal(mu_tensor_dtype(mu_at(gradients, 0)), MU_F32);
}

// A cell, and the layers inside of attention, get the policy of the layer that makes them.
static void inner_layers_have_the_policy(void **state)
{
    (void)state;
    mu_layer *lstm = mu_lstm(2, .dtype = "mixed_float16");
    assert_string_equal(mu_layer_dtype_policy(lstm->sublayers.items[0]), "mixed_float16");
    mu_tensor *x = mu_cast(numbers(3, (int64_t[]){2, 3, 4}, 1), MU_F32);
    assert_int_equal(mu_tensor_dtype(mu_call(lstm, x)), MU_F16);
    assert_string_equal(mu_layer_dtype_policy(mu_dense(1)), "float32");
}

static mu_status own_build(mu_layer *layer, int n, const mu_shape *inputs, void *arg)
{
    (void)n, (void)arg;
    const mu_shape shape = {2, {inputs[0].dims[1], 2}};
    return mu_layer_add_weight(layer, "kernel", shape) ? MU_OK : mu_error_code();
}

static mu_value *own_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(mu_matmul(mu_at(inputs, 0), mu_variable_read(mu_layer_weight(layer, "kernel"))));
}

// The call function of a program's layer sees inputs and weights in the type of computation.
static void own_layers_are_converted_too(void **state)
{
    (void)state;
    mu_layer *own = mu_layer_new("own", .build = own_build, .call = own_call, .dtype = "mixed_bfloat16");
    assert_int_equal(mu_tensor_dtype(mu_call(own, floats(2, 4, 1))), MU_BF16);
    assert_int_equal(mu_variable_dtype(mu_layer_weight(own, "kernel")), MU_F32);
}

static void configurations_have_the_policy(void **state)
{
    (void)state;
    const char *text = mu_layer_config(mu_dense(1, .dtype = "mixed_bfloat16"));
    assert_non_null(strstr(text, "mixed_bfloat16"));
    assert_string_equal(mu_layer_dtype_policy(mu_layer_from_config(text)), "mixed_bfloat16");
    static const char keras[] = "{\"class_name\": \"Dense\", \"config\": {\"units\": 1, \"dtype\": {\"class_name\": "
                                "\"DTypePolicy\", \"config\": {\"name\": \"mixed_float16\"}}}}";
    assert_string_equal(mu_layer_dtype_policy(mu_layer_from_config(keras)), "mixed_float16");
    REFUSED(mu_layer_from_config("{\"class_name\": \"Dense\", \"config\": {\"units\": 1, \"dtype\": {\"class_name\": "
                                 "\"QuantizedDTypePolicy\", \"config\": {\"name\": \"int8_from_float32\"}}}}"),
            MU_UNIMPLEMENTED, "QuantizedDTypePolicy");
}

static void mistakes_name_the_policies(void **state)
{
    (void)state;
    REFUSED_STATUS(mu_set_dtype_policy("mixed_bfloat"), MU_INVALID_ARGUMENT, "'mixed_bfloat16'");
    REFUSED(mu_dense(1, .dtype = "half"), MU_INVALID_ARGUMENT, "mu_dense: 'half' is not a dtype policy");
    mu_layer *built = mu_dense(1);
    assert_non_null(mu_call(built, floats(1, 1, 1)));
    REFUSED_STATUS(mu_layer_set_dtype_policy(built, "float64"), MU_FAILED_PRECONDITION, "exist already");
}

// ---- Training -----------------------------------------------------------------------------------

static mu_model *trained(const char *policy, int replicas)
{
    mu_model *model = NULL;
    assert_int_equal(mu_set_dtype_policy(policy), MU_OK);
    MU_SCOPE(strategy_of(replicas)) {
        mu_initializer *first = mu_glorot_uniform_initializer(.seed = 1),
                       *second = mu_glorot_uniform_initializer(.seed = 2);
        model = mu_sequential(mu_dense(8, .activation = "tanh", .kernel_initializer = first),
                              mu_dense(1, .kernel_initializer = second, .dtype = "float32"));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .125), .loss = "mse");
    }
    mu_tensor *x = floats(48, 4, 1), *y = floats(48, 1, 2);
    if (!mu_fit(model, x, y, .batch_size = 12, .epochs = 2, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT))
        fail_msg("%s", mu_error_message());
    return model;
}

// Every replica rounds its own sum of gradients to the half type: after 8 steps of at most 1/8 that amounts to a few
// roundings.
static void replicas_train_like_one(void **state)
{
    (void)state;
    static const struct {
        const char *policy;
        double bound;
    } rows[] = {{"mixed_bfloat16", 0x1p-9}, {"mixed_float16", 0x1p-12}};
    for (int i = 0; i < 2; i++) {
        int64_t n;
        double *wanted = weights_of(trained(rows[i].policy, 1), &n);
        for (int replicas = 2; replicas <= 3; replicas++) {
            double *weights = weights_of(trained(rows[i].policy, replicas), &n);
            for (int64_t k = 0; k < n; k++)
                assert_number(weights[k], wanted[k], rows[i].bound);
            free(weights);
        }
        free(wanted);
    }
}

static void compile_scales_the_loss_of_mixed_float16(void **state)
{
    (void)state;
    assert_int_equal(mu_set_dtype_policy("mixed_float16"), MU_OK);
    mu_model *model = mu_sequential(mu_dense(1));
    mu_compile(model, .optimizer = "adam", .loss = "mse");
    assert_non_null(mu_model_optimizer(model)->inner);
    mu_compile(model, .optimizer = "adam", .loss = "mse", .no_auto_scale_loss = true);
    assert_null(mu_model_optimizer(model)->inner);
    mu_optimizer *own = mu_loss_scale_optimizer(mu_sgd());
    mu_compile(model, .optimizer = own, .loss = "mse");
    assert_ptr_equal(mu_model_optimizer(model), own);
    REFUSED(mu_model_optimizer(mu_sequential(mu_dense(1))), MU_FAILED_PRECONDITION, "has no optimizer");
}

// One replica of three gets a number whose gradient overflows: no replica takes the step, and the scale is halved once.
static void an_overflow_on_one_replica_stops_all(void **state)
{
    (void)state;
    assert_int_equal(mu_set_dtype_policy("mixed_float16"), MU_OK);
    mu_model *model = NULL;
    MU_SCOPE(strategy_of(3)) {
        model = mu_sequential(mu_dense(1, .kernel_initializer = "ones"));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .25), .loss = "mse");
    }
    const float rows[2][3] = {{1, 1, 40000}, {1, 1, 1}};
    const int64_t dims[] = {3, 1};
    for (int i = 0; i < 2; i++) {
        mu_tensor *x = mu_tensor_new(MU_F32, 2, dims, rows[i]), *y = mu_zeros(MU_F32, 2, dims);
        if (!mu_train_on_batch(model, x, y))
            fail_msg("%s", mu_error_message());
        const mu_optimizer *optimizer = mu_model_optimizer(model);
        int64_t n;
        double *weights = weights_of(model, &n);
        assert_number(mu_scalar(mu_variable_read(optimizer->scalars[1])), 0x1p14, 0);
        assert_number(mu_scalar(mu_variable_read(optimizer->scalars[0])), i, 0);
        assert_number(weights[0], i ? .5 : 1, 0x1p-11); // thirds are rounded to float16
        free(weights);
    }
}

// Coordinates are computed in float32: in a half type, pixels would be taken from other places.
static void images_move_as_in_float32(void **state)
{
    (void)state;
    static const char *const policies[] = {"float32", "mixed_bfloat16", "mixed_float16"};
    mu_tensor *x = mu_reshape(floats(1, 256, 2), 4, (int64_t[]){1, 16, 16, 1}), *moved[3];
    for (int i = 0; i < 3; i++) {
        mu_layer *turn = mu_random_rotation({.2, .2}, .interpolation = "nearest", .seed = 3, .dtype = policies[i]);
        moved[i] = mu_cast(mu_call(turn, x, .training = true), MU_F32);
    }
    for (int i = 1; i < 3; i++)
        assert_true(mu_scalar(mu_reduce_max(mu_abs(mu_subtract(moved[i], moved[0])))) < 0x1p-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PRECISION_TEST(policies_have_keras_names),
        PRECISION_TEST(layers_compute_in_their_type),
        PRECISION_TEST(gradients_have_the_type_of_weights),
        PRECISION_TEST(inner_layers_have_the_policy),
        PRECISION_TEST(own_layers_are_converted_too),
        PRECISION_TEST(configurations_have_the_policy),
        PRECISION_TEST(mistakes_name_the_policies),
        PRECISION_TEST(replicas_train_like_one),
        PRECISION_TEST(compile_scales_the_loss_of_mixed_float16),
        PRECISION_TEST(an_overflow_on_one_replica_stops_all),
        PRECISION_TEST(images_move_as_in_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
