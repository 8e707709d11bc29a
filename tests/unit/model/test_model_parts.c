// Models made of parts of others: layers by index, inputs and outputs of models and of their layers, and a model from a
// file whose last layers are replaced.
#include "model_test.h"

#include "../scratch.h"
#include "model/training/training.h"

#include <muster/saved_model.h>

static mu_tensor *rows(void) { return numbers(2, (int64_t[]){6, 4}, 3); }

// A residual connection, then two layers.
static mu_model *residual(void)
{
    mu_tensor *x = mu_input({4}, .name = "x");
    mu_tensor *h = mu_call(mu_dense(4, .activation = "tanh", .name = "hidden"), x);
    mu_tensor *sum = mu_call(mu_add_layer(.name = "sum"), .inputs = mu_list(h, x, MU_END));
    mu_tensor *features = mu_call(mu_dense(5, .activation = "relu", .name = "features"), sum);
    return mu_model_new(x, mu_call(mu_dense(3, .name = "head"), features));
}

static mu_model *chain(void)
{
    return mu_sequential(mu_input_layer({4}, .name = "x"), mu_dense(4, .activation = "tanh", .name = "hidden"),
                         mu_flatten(), mu_dense(5, .activation = "relu", .name = "features"),
                         mu_dense(3, .name = "head"));
}

static mu_model *saved(mu_model *(*make)(void))
{
    mu_model *model = make();
    assert_int_equal(mu_save_model(model, "base.keras"), MU_OK);
    mu_model *loaded = mu_load_model("base.keras");
    if (!loaded)
        fail_msg("%s", mu_error_message());
    return loaded;
}

static void layers_have_numbers(void **state)
{
    (void)state;
    mu_model *models[] = {residual(), chain(), saved(residual), saved(chain)};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mu_model_layer_count(models[i]), 4);
        assert_string_equal(mu_layer_name(mu_model_layer_at(models[i], 0)), "hidden");
        assert_string_equal(mu_layer_name(mu_model_layer_at(models[i], -1)), "head");
        assert_ptr_equal(mu_model_layer_at(models[i], 2), mu_model_layer_at(models[i], -2));
        assert_null(mu_model_layer_at(models[i], 4));
        expect_error(MU_OUT_OF_RANGE, "has 4 layers, so there is no layer 4");
        assert_null(mu_model_layer_at(models[i], -5));
        expect_error(MU_OUT_OF_RANGE, "no layer -5");
    }
}

// A model of features shares the weights of the whole: it follows their changes.
static void parts_share_weights(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        mu_model *(*const make)(void) = i % 2 ? chain : residual;
        mu_model *base = i < 2 ? make() : saved(make);
        mu_model *features = mu_model_new(mu_model_input(base, 0), mu_model_layer_output(base, "features", 0));
        mu_model *whole = mu_model_new(mu_model_input(base, 0), mu_model_output(base, 0));
        mu_tensor *x = rows(), *y = mu_call(features, x);
        if (!y || !whole)
            fail_msg("%s", mu_error_message());
        assert_int_equal(mu_tensor_dim(y, 1), 5);
        mu_tensor *out = mu_call(mu_model_layer(base, "head"), y);
        assert_near(doubles(out), doubles(mu_call(base, x)), 18, 1e-12);
        assert_near(doubles(mu_call(whole, x)), doubles(mu_call(base, x)), 18, 1e-12);
        mu_variable *bias = mu_layer_weight(mu_model_layer(base, "features"), "bias");
        assert_int_equal(mu_variable_assign(bias, mu_fill(MU_F64, 1, (int64_t[]){5}, 9)), MU_OK);
        assert_true(mu_scalar(mu_reduce_max(mu_abs(mu_subtract(mu_call(features, x), y)), MU_ALL_AXES)) > 1);
        mu_save_model(features, "features.keras");
        assert_near(doubles(mu_call(mu_load_model("features.keras"), x)), doubles(mu_call(features, x)), 30, 1e-6);
    }
}

// The base of a saved model is frozen, and new last layers are trained.
static void the_end_is_replaced(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        mu_model *base = saved(i ? chain : residual);
        for (int k = 0; k < mu_model_layer_count(base) - 1; k++)
            mu_layer_set_trainable(mu_model_layer_at(base, k), false);
        mu_tensor *frozen = mu_variable_read(mu_layer_weight(mu_model_layer(base, "features"), "kernel"));
        mu_tensor *out = mu_call(mu_dense(1, .name = "new_head"), mu_model_layer_output(base, "features", 0));
        mu_model *tuned = mu_model_new(mu_model_input(base, 0), out);
        assert_int_equal(mu_value_count(mu_trainable_variables(tuned)), 2);
        mu_compile(tuned, .optimizer = mu_adam(.learning_rate = .05), .loss = "mse");
        mu_tensor *y = numbers(2, (int64_t[]){6, 1}, 8);
        mu_history *history = mu_fit(tuned, rows(), y, .epochs = 60, .verbose = MU_VERBOSE_SILENT);
        if (!history)
            fail_msg("%s", mu_error_message());
        assert_true(mu_history_last(history, "loss") < .5 * mu_history_at(history, "loss", 0));
        assert_near(doubles(mu_variable_read(mu_layer_weight(mu_model_layer(tuned, "features"), "kernel"))),
                    doubles(frozen), 20, 0);
    }
}

static void layers_without_the_last(void **state)
{
    (void)state;
    mu_model *base = saved(chain);
    mu_layer *layers[8];
    const int n = mu_model_layer_count(base);
    for (int i = 0; i < n - 1; i++)
        layers[i] = mu_model_layer_at(base, i);
    layers[n - 1] = mu_dense(2);
    layers[n] = (mu_layer *)(uintptr_t)MU_END;
    mu_tensor *y = mu_call(mu_sequential_of(layers), rows());
    assert_int_equal(mu_tensor_dim(y, 1), 2);
}

static mu_value *in_c(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    return inputs;
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    mu_model *base = residual();
    assert_null(mu_model_layer_output(base, "tail", 0));
    expect_error(MU_NOT_FOUND, "there are hidden, sum, features, head");
    assert_null(mu_model_layer_output(base, "head", 1));
    expect_error(MU_OUT_OF_RANGE, "'head' has 1 output, so there is no number 1");
    assert_null(mu_model_input(base, 1));
    expect_error(MU_OUT_OF_RANGE, "has 1 input, so there is no number 1");
    assert_null(mu_model_output(mu_sequential(mu_dense(2)), 0));
    expect_error(MU_FAILED_PRECONDITION, "is not known yet; call mu_model_build");
    assert_null(mu_model_input(mu_dense(2), 0));
    expect_error(MU_INVALID_ARGUMENT, "is a layer, not a model");
    mu_model *own = mu_sequential(mu_layer_new(.call = in_c));
    assert_int_equal(mu_model_build(own, 1, (int64_t[]){3}), MU_OK);
    assert_non_null(mu_model_output(own, 0));
    mu_model *ids = mu_sequential(mu_embedding(9, 2), mu_flatten());
    assert_int_equal(mu_model_build(ids, 1, (int64_t[]){3}), MU_OK);
    assert_int_equal(mu_tensor_dim(mu_model_output(ids, 0), 1), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(layers_have_numbers), MODEL_TEST(parts_share_weights),
                                       MODEL_TEST(the_end_is_replaced), MODEL_TEST(layers_without_the_last),
                                       MODEL_TEST(what_is_not_there_is_named)};
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
