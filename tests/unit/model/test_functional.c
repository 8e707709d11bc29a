// Functional models: residual connections, shared layers, several inputs and outputs through fit, nested models, masks;
// and refusals.
#include "model/losses/loss.h"
#include "model/training/training.h"
#include "model_test.h"

#include <muster/attention.h>
#include <muster/recurrent.h>

static mu_tensor *need(mu_tensor *tensor)
{
    if (!tensor)
        fail_msg("%s", mu_error_message());
    return tensor;
}

// A residual block: relu(x · kernel + bias) + x.
static mu_model *residual_model(void)
{
    mu_tensor *x = mu_input({4});
    mu_tensor *h = mu_call(mu_dense(4, .activation = "relu"), x);
    mu_tensor *sum = mu_call(mu_add_layer(), .inputs = mu_list(h, x, MU_END));
    mu_model *model = mu_model_new(x, mu_call(mu_dense(3, .name = "head"), sum));
    if (!model)
        fail_msg("%s", mu_error_message());
    return model;
}

static void residual_computes(void **state)
{
    (void)state;
    mu_model *model = residual_model();
    assert_int_equal(mu_model_parameters(model), 4 * 4 + 4 + 4 * 3 + 3);
    mu_tensor *x = numbers(2, (int64_t[]){5, 4}, 1);
    mu_value *weights = mu_model_weights(model);
    mu_tensor *w[4];
    for (int i = 0; i < 4; i++)
        w[i] = mu_variable_read(mu_value_variable(mu_value_at(weights, i)));
    assert_string_equal(mu_variable_name(mu_value_variable(mu_value_at(weights, 0))), "dense/kernel");
    assert_string_equal(mu_variable_name(mu_value_variable(mu_value_at(weights, 3))), "head/bias");
    mu_tensor *h = mu_add(mu_nn_relu(mu_nn_bias_add(mu_matmul(x, w[0]), w[1])), x);
    mu_tensor *wanted = mu_nn_bias_add(mu_matmul(h, w[2]), w[3]);
    assert_near(doubles(need(mu_call(model, x))), doubles(wanted), 15, 1e-14);
}

// The same weights on one device and on several replicas, with batches of odd sizes.
static void residual_trains_alike_on_replicas(void **state)
{
    (void)state;
    double *wanted = NULL;
    for (int replicas = 1; replicas <= 3; replicas++) {
        mu_model *model = NULL;
        mu_strategy *strategy = strategy_of(replicas);
        mu_set_seed(3);
        MU_SCOPE(strategy) {
            model = residual_model();
            mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1), .metrics = MU_METRICS(mu_accuracy()),
                       .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
        }
        mu_history *history = mu_fit(model, rows_and_classes(23, 4, 3, 5), .epochs = 2, .verbose = MU_VERBOSE_SILENT);
        if (!history)
            fail_msg("%s", mu_error_message());
        int64_t n;
        double *weights = weights_of(model, &n);
        if (wanted)
            assert_near(weights, wanted, n, 1e-12);
        else
            wanted = weights, weights = NULL;
        free(weights);
    }
    free(wanted);
}

// A layer called twice has one set of weights, whose gradient is the sum over both calls.
static void layers_are_shared(void **state)
{
    (void)state;
    mu_tensor *a = mu_input({3}), *b = mu_input({3});
    mu_layer *shared = mu_dense(2, .no_bias = true);
    mu_tensor *y = mu_call(mu_concatenate(), .inputs = mu_list(mu_call(shared, a), mu_call(shared, b), MU_END));
    mu_model *model = mu_model_new(.inputs = mu_list(a, b, MU_END), .output = y);
    assert_non_null(model);
    assert_int_equal(mu_value_count(mu_trainable_variables(model)), 1);
    mu_tensor *xa = numbers(2, (int64_t[]){2, 3}, 1), *xb = numbers(2, (int64_t[]){2, 3}, 2);
    mu_tape *tape = mu_tape_open();
    mu_tensor *out = need(mu_call(model, .inputs = mu_list(xa, xb, MU_END)));
    mu_value *gradients = mu_gradients(tape, mu_reduce_sum(out, MU_ALL_AXES), mu_trainable_variables(model));
    const double *slope = doubles(mu_at(gradients, 0)), *pa = doubles(xa), *pb = doubles(xb);
    for (int i = 0; i < 6; i++)
        assert_number(slope[i], pa[i / 2] + pa[3 + i / 2] + pb[i / 2] + pb[3 + i / 2], 1e-14);
}

// Two inputs and two outputs with a loss each, through fit, evaluate and predict of one output.
static void several_inputs_and_outputs_are_fitted(void **state)
{
    (void)state;
    mu_tensor *a = mu_input({3}, .name = "a"), *b = mu_input({2}, .name = "b");
    mu_tensor *h = mu_call(mu_concatenate(), .inputs = mu_list(mu_call(mu_dense(4), a), b, MU_END));
    mu_value *outputs = mu_list(mu_call(mu_dense(1), h), mu_call(mu_dense(3), h), MU_END);
    mu_model *model = mu_model_new(.inputs = mu_list(a, b, MU_END), .outputs = outputs);
    assert_non_null(model);
    mu_loss *classes_loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true);
    assert_int_equal(mu_compile(model, .optimizer = mu_adam(.learning_rate = .01),
                                .loss = MU_LOSSES(mu_mean_squared_error_loss(), classes_loss),
                                .loss_weights = (double[]){.5, 2}, .n_loss_weights = 2,
                                .metrics = MU_METRICS(mu_accuracy()), .metric_outputs = (int[]){1},
                                .n_metric_outputs = 1),
                     MU_OK);
    mu_value *x = mu_list(numbers(2, (int64_t[]){20, 3}, 1), numbers(2, (int64_t[]){20, 2}, 2), MU_END);
    mu_value *y = mu_list(numbers(2, (int64_t[]){20, 1}, 3), classes(20, 3, 4), MU_END);
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, y, MU_END)), 5);
    mu_history *history = mu_fit(model, data, .epochs = 8, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s", mu_error_message());
    assert_true(mu_history_last(history, "loss") < mu_history_at(history, "loss", 0));
    mu_history *measured = mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT);
    mu_value *guess = mu_call_values(model, .inputs = x);
    mu_tensor *squares = mu_loss_call(mu_mean_squared_error_loss(), mu_at(y, 0), mu_at(guess, 0));
    mu_tensor *entropy = mu_loss_call(classes_loss, mu_at(y, 1), mu_at(guess, 1));
    const double wanted =
        .5 * mu_scalar(mu_reduce_mean(squares, MU_ALL_AXES)) + 2 * mu_scalar(mu_reduce_mean(entropy, MU_ALL_AXES));
    assert_number(mu_history_last(measured, "loss"), wanted, 1e-12);
    assert_true(mu_history_last(measured, "dense_2_accuracy") >= 0);
}

// A model is a layer of another one; its weights' names say where they are.
static void models_nest(void **state)
{
    (void)state;
    mu_model *inner = mu_sequential(mu_dense(3, .activation = "tanh"), mu_dense(2));
    mu_model *outer = mu_sequential(inner, mu_dense(1));
    assert_int_equal(mu_model_build(outer, 1, (int64_t[]){4}), MU_OK);
    mu_value *weights = mu_model_weights(outer);
    assert_int_equal(mu_value_count(weights), 6);
    assert_string_equal(mu_variable_name(mu_value_variable(mu_value_at(weights, 0))), "sequential/dense/kernel");
    assert_string_equal(mu_variable_name(mu_value_variable(mu_value_at(weights, 4))), "dense/kernel");
    mu_tensor *x = mu_input({4});
    mu_model *around = mu_model_new(x, mu_call(mu_dense(1), mu_call(inner, x)));
    assert_int_equal(mu_model_parameters(around), mu_model_parameters(outer));
    mu_model *known = mu_sequential(mu_input_layer({4}), mu_dense(2));
    assert_int_equal(mu_model_parameters(known), 10);
}

// A layer that two nested models share counts once: in the penalties, their gradient, and the number of parameters.
static void models_share_a_model(void **state)
{
    (void)state;
    mu_tensor *x = mu_input({3});
    mu_model *shared = mu_sequential(mu_dense(4, .kernel_initializer = "ones", .kernel_regularizer = mu_l2(.5)));
    mu_tensor *a = mu_call(mu_sequential(shared, mu_dense(1)), x), *b = mu_call(mu_sequential(shared, mu_dense(2)), x);
    mu_model *model = mu_model_new(x, .outputs = mu_list(need(a), need(b), MU_END));
    assert_non_null(model);
    assert_int_equal(mu_model_parameters(model), (3 * 4 + 4) + (4 + 1) + (4 * 2 + 2));
    mu_variable *kernel = mu_value_variable(mu_value_at(mu_model_weights(model), 0));
    mu_tape *tape = mu_tape_open();
    mu_value *losses = mu_model_losses(model);
    assert_int_equal(mu_value_count(losses), 1);
    assert_number(mu_scalar(mu_at(losses, 0)), .5 * 12, 1e-14);
    mu_value *gradients = mu_gradients(tape, mu_at(losses, 0), mu_variables_of(1, &kernel));
    for (int i = 0; i < 12; i++)
        assert_number(doubles(mu_at(gradients, 0))[i], 1, 1e-14);
}

enum { STEPS = 100 };

static mu_value *unstack_steps(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    mu_value *steps[STEPS];
    for (int i = 0; i < STEPS; i++)
        steps[i] = mu_of(mu_gather(mu_at(inputs, 0), mu_constant(MU_I32, i), 1, 0));
    return mu_list_of(STEPS, steps);
}

// More outputs than a model may have inputs: each one can be reached.
static void a_layer_has_many_outputs(void **state)
{
    (void)state;
    mu_tensor *x = mu_input({STEPS, 2});
    mu_layer *unstack = mu_layer_new(.call = unstack_steps);
    mu_value *steps = mu_call_values(unstack, x);
    assert_int_equal(mu_value_count(steps), STEPS);
    mu_model *model = mu_model_new(x, .outputs = mu_list(mu_at(steps, 99), mu_at(steps, 70), mu_at(steps, 3), MU_END));
    assert_non_null(model);
    mu_tensor *data = numbers(3, (int64_t[]){2, STEPS, 2}, 4);
    mu_value *seen = mu_call_values(model, data);
    assert_int_equal(mu_value_count(seen), 3);
    for (int i = 0; i < 3; i++)
        for (int row = 0; row < 2; row++)
            assert_memory_equal(doubles(mu_at(seen, i)) + 2 * row,
                                doubles(data) + 2 * (row * STEPS + (int[]){99, 70, 3}[i]), 2 * sizeof(double));
}

// ---- Masks --------------------------------------------------------------------------------------

static void masks_reach_layers_and_losses(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_embedding(5, 2, .mask_zero = true), mu_global_average_pool1d());
    const int64_t words[] = {1, 2, 0, 3, 0, 0};
    mu_tensor *x = mu_tensor_new(MU_I64, 2, (int64_t[]){2, 3}, words);
    const double *seen = doubles(need(mu_call(model, x)));
    mu_tensor *table = mu_variable_read(
        mu_layer_weight(mu_value_count(mu_model_weights(model)) == 1 ? model->sublayers.items[0] : NULL, "embeddings"));
    const double *rows = doubles(table);
    const double wanted[] = {(rows[2] + rows[4]) / 2, (rows[3] + rows[5]) / 2, rows[6], rows[7]};
    assert_near(seen, wanted, 4, 1e-14);
    // A loss per step averages over the steps that exist.
    mu_model *steps = mu_sequential(mu_embedding(5, 2, .mask_zero = true), mu_dense(1));
    mu_compile(steps, .loss = mu_mean_squared_error_loss());
    mu_tensor *y = numbers(3, (int64_t[]){2, 3, 1}, 5);
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, y, MU_END)), 2);
    mu_history *measured = mu_evaluate(steps, data, .verbose = MU_VERBOSE_SILENT);
    assert_non_null(measured);
    const double *guess = doubles(need(mu_call(steps, x))), *labels = doubles(y);
    double sum = 0;
    for (int i = 0; i < 6; i++)
        sum += words[i] ? (guess[i] - labels[i]) * (guess[i] - labels[i]) : 0;
    assert_number(mu_history_last(measured, "loss"), sum / 3, 1e-12);
}

static void sample_weights_count(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_dense(1));
    mu_compile(model, .loss = mu_mean_squared_error_loss());
    mu_tensor *x = numbers(2, (int64_t[]){4, 2}, 1), *y = numbers(2, (int64_t[]){4, 1}, 2);
    mu_value *all = mu_list(x, y, vector(4, (double[]){1, 0, 3, .5}), MU_END);
    mu_history *measured =
        mu_evaluate(model, mu_dataset_batch(mu_dataset_from_tensor_slices(all), 4), .verbose = MU_VERBOSE_SILENT);
    assert_non_null(measured);
    const double *guess = doubles(need(mu_call(model, x))), *labels = doubles(y), weights[] = {1, 0, 3, .5};
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += weights[i] * (guess[i] - labels[i]) * (guess[i] - labels[i]);
    assert_number(mu_history_last(measured, "loss"), sum / 4, 1e-12);
}

// ---- Configuration ------------------------------------------------------------------------------

static void configurations_come_back(void **state)
{
    (void)state;
    mu_model *model =
        mu_sequential(mu_input_layer({8, 8, 3}),
                      mu_conv2d(4, .kernel_size_per_axis = {3, 1}, .padding = "same", .activation = "gelu"),
                      mu_batch_normalization(.momentum = .8, .no_scale = true), mu_max_pool2d(3, .strides = 2),
                      mu_flatten(), mu_dropout(.25, .seed = 7),
                      mu_dense(2, .no_bias = true, .kernel_regularizer = mu_l1_l2(.1, .2),
                               .kernel_initializer = "he_normal", .name = "head"));
    const char *text = mu_layer_config(model);
    assert_non_null(text);
    mu_layer *again = mu_layer_from_config(text);
    if (!again)
        fail_msg("%s", mu_error_message());
    assert_string_equal(mu_layer_config(again), text);
    assert_int_equal(mu_model_parameters(again), mu_model_parameters(model));
    assert_non_null(strstr(text, "\"kernel_size\":[3,1]"));
    static const struct {
        const char *text;
        mu_status code;
        const char *part;
    } wrong[] = {
        {"{", MU_INVALID_ARGUMENT, "not JSON"},
        {"{\"class_name\": \"Dense\"}", MU_INVALID_ARGUMENT, "expected"},
        {"{\"class_name\": \"MelSpectrogram\", \"config\": {}}", MU_UNIMPLEMENTED, "'MelSpectrogram'"},
        {"{\"class_name\": \"Dense\", \"config\": {\"units\": 2, \"lora_rank\": 3}}", MU_UNIMPLEMENTED, "'lora_rank'"},
        {"{\"class_name\": \"Dense\", \"config\": {\"units\": \"two\"}}", MU_INVALID_ARGUMENT, "'units'"},
        {"{\"class_name\": \"Dense\", \"config\": {\"units\": 0}}", MU_INVALID_ARGUMENT, "units is 0"},
        {"{\"class_name\": \"Dense\", \"config\": {\"units\": 1, \"activation\": \"rellu\"}}", MU_INVALID_ARGUMENT,
         "'rellu'"},
    };
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        assert_null(mu_layer_from_config(wrong[i].text));
        expect_error(wrong[i].code, wrong[i].part);
    }
}

static void wrong_models_are_refused(void **state)
{
    (void)state;
    mu_tensor *a = mu_input({3}), *b = mu_input({3});
    mu_tensor *y = mu_call(mu_add_layer(), .inputs = mu_list(a, b, MU_END));
    assert_null(mu_model_new(a, y));
    expect_error(MU_INVALID_ARGUMENT, "not among the model's inputs");
    assert_null(mu_model_new(a, vector(1, (double[]){1})));
    expect_error(MU_INVALID_ARGUMENT, "element 0 of the outputs");
    assert_null(mu_call(mu_add_layer(), a));
    expect_error(MU_INVALID_ARGUMENT, "2 or more tensors");
    assert_null(mu_nn_relu(a));
    expect_error(MU_FAILED_PRECONDITION, "symbolic");
    assert_null(mu_fit(mu_dense(1), rows_and_classes(4, 3, 2, 2)));
    expect_error(MU_INVALID_ARGUMENT, "'dense' is a layer, not a model");
    mu_model *model = mu_model_new(.inputs = mu_list(a, b, MU_END), .output = y);
    assert_null(mu_call(model, numbers(2, (int64_t[]){2, 3}, 1)));
    expect_error(MU_INVALID_ARGUMENT, "2 inputs and was given 1");
    mu_compile(model, .loss = MU_LOSSES("mse", "least_cubes"));
    expect_error(MU_INVALID_ARGUMENT, "least_cubes");
}

// A model whose last input is a mask that the program gives to an LSTM, and to the query and the key of an attention
// layer.
static mu_model *given_masks_model(void)
{
    mu_tensor *x = mu_input({5, 3}, .name = "x"), *mask = mu_input({5}, .dtype = MU_BOOL, .name = "kept");
    mu_tensor *last = mu_call(mu_lstm(2, .name = "reader"), x, .mask = mask);
    mu_value *none = mu_list_of(0, NULL);
    mu_tensor *seen = mu_call(mu_multi_head_attention(1, 2, .name = "attention"), .inputs = mu_list(x, x, x, MU_END),
                              .masks = mu_list(mask, none, mask, MU_END));
    mu_model *model = mu_model_new(.inputs = mu_list(x, mask, MU_END), .outputs = mu_list(last, seen, MU_END));
    if (!model)
        fail_msg("%s", mu_error_message());
    return model;
}

static void assert_outputs(mu_model *model, mu_value *inputs, mu_tensor *const wanted[2])
{
    mu_value *seen = mu_call_values(model, .inputs = inputs);
    if (!seen)
        fail_msg("%s", mu_error_message());
    assert_near(doubles(mu_at(seen, 0)), doubles(wanted[0]), 2 * 2, 1e-14);
    assert_near(doubles(mu_at(seen, 1)), doubles(wanted[1]), 2 * 5 * 3, 1e-14);
}

// Keras numbers the calls of a nested model from 0 if a layer takes the output, and from 1 if the model returns it.
static void calls_of_nested_models_are_counted_as_in_keras(void **state)
{
    (void)state;
    mu_tensor *in = mu_input({3}, .name = "in"), *left = mu_input({3}, .name = "left"),
              *right = mu_input({3}, .name = "right");
    mu_model *inner = mu_model_new(in, mu_call(mu_dense(2, .name = "inside"), in), .name = "inner");
    mu_tensor *first = mu_call(inner, left), *second = mu_call(inner, right);
    mu_tensor *sum = mu_call(mu_add_layer(.name = "sum"), .inputs = mu_list(first, second, MU_END));
    mu_model *model = mu_model_new(.inputs = mu_list(left, right, MU_END), .outputs = mu_list(sum, second, MU_END));
    const char *text = mu_layer_config(model);
    assert_non_null(strstr(text, "\"keras_history\":[\"inner\",0,0]"));
    assert_non_null(strstr(text, "\"keras_history\":[\"inner\",1,0]"));
    assert_non_null(strstr(text, "[\"inner\",2,0]]"));
    mu_model *again = mu_layer_from_config(text);
    assert_string_equal(mu_layer_config(again), text);
    mu_value *inputs = mu_list(numbers(2, (int64_t[]){4, 3}, 1), numbers(2, (int64_t[]){4, 3}, 2), MU_END);
    mu_value *wanted = mu_call_values(model, .inputs = inputs);
    mu_variable_assign(mu_model_weight(again, "inner/inside/kernel"),
                       mu_variable_read(mu_model_weight(model, "inner/inside/kernel")));
    mu_value *seen = mu_call_values(again, .inputs = inputs), *predicted = mu_predict_values(again, inputs);
    for (int i = 0; i < 2; i++) {
        assert_near(doubles(mu_at(seen, i)), doubles(mu_at(wanted, i)), 8, 0);
        // Two arrays are two inputs. In one program a device may round a product and the sum behind it once.
        assert_near(doubles(mu_at(predicted, i)), doubles(mu_at(wanted, i)), 8, 1e-15);
    }
}

// Masks given to calls are used in each run, also after the model was rebuilt from its configuration.
static void given_masks_are_kept(void **state)
{
    (void)state;
    mu_model *model = given_masks_model();
    mu_tensor *x = numbers(3, (int64_t[]){2, 5, 3}, 1);
    mu_tensor *mask = mu_tensor_new(MU_BOOL, 2, (int64_t[]){2, 5}, (bool[]){1, 1, 0, 1, 0, 1, 0, 0, 0, 0});
    mu_value *inputs = mu_list(x, mask, MU_END), *none = mu_list_of(0, NULL);
    mu_tensor *wanted[] = {need(mu_call(mu_model_layer(model, "reader"), x, .mask = mask)),
                           need(mu_call(mu_model_layer(model, "attention"), .inputs = mu_list(x, x, x, MU_END),
                                        .masks = mu_list(mask, none, mask, MU_END)))};
    assert_outputs(model, inputs, wanted);
    mu_model *again = mu_layer_from_config(mu_layer_config(model));
    if (!again)
        fail_msg("%s", mu_error_message());
    mu_value *weights = mu_model_weights(model), *copies = mu_model_weights(again);
    assert_int_equal(mu_value_count(weights), mu_value_count(copies));
    for (int i = 0; i < mu_value_count(weights); i++)
        assert_int_equal(mu_variable_assign(mu_value_variable(mu_value_at(copies, i)),
                                            mu_variable_read(mu_value_variable(mu_value_at(weights, i)))),
                         MU_OK);
    assert_outputs(again, inputs, wanted);
}

// ---- The reverse of an embedding ----------------------------------------------------------------

// Computes logits from indices with one and the same layer.
static mu_model *language_model(mu_layer *embedding)
{
    mu_tensor *ids = mu_input({2}, .dtype = MU_I32);
    mu_tensor *h = mu_call(mu_dense(3, .activation = "tanh"), mu_call(embedding, ids));
    return mu_model_new(ids, mu_call(embedding, h, .reverse = true));
}

// Gradients through both uses of the table; written to JSON and read back, also with two tables.
static void embeddings_are_reversed(void **state)
{
    (void)state;
    mu_tensor *ids = mu_tensor_new(MU_I32, 2, (int64_t[]){3, 2}, (int32_t[]){1, 0, 4, 1, 2, 1});
    for (int apart = 0; apart < 2; apart++) {
        mu_layer *embedding = mu_reversible_embedding(5, 3, .no_tie_weights = apart, .logit_soft_cap = 2);
        mu_model *model = language_model(embedding), *again;
        if (!model)
            fail_msg("%s", mu_error_message());
        assert_int_equal(mu_value_count(mu_model_weights(model)), 3 + apart);
        if (!apart) // else the gradient of the first table is slices
            check_gradients(model, ids);
        const mu_shape shape = mu_tensor_shape(mu_call(model, ids));
        assert_true(shape.rank == 3 && shape.dims[0] == 3 && shape.dims[1] == 2 && shape.dims[2] == 5);
        const char *text = mu_layer_config(model);
        if (!text || !(again = mu_layer_from_config(text)))
            fail_msg("%s", mu_error_message());
        assert_string_equal(mu_layer_config(again), text);
    }
    assert_null(mu_call(mu_dense(2, .name = "d"), numbers(2, (int64_t[]){2, 3}, 1), .reverse = true));
    expect_error(MU_INVALID_ARGUMENT, "layer 'd' is called with .reverse, but a Dense has no reverse");
    assert_null(
        mu_call(mu_reversible_embedding(5, 3, .name = "e"), mu_ones(MU_I64, 2, (int64_t[]){2, 3}), .reverse = true));
    expect_error(MU_INVALID_ARGUMENT, "layer 'e' is called with .reverse on int64; it must be a float type");
    assert_null(mu_reversible_embedding(5, 3, .reverse_dtype = "int32"));
    expect_error(MU_INVALID_ARGUMENT, "reverse_dtype is 'int32'");
}

// Keras walks back from outputs in a map in the order of their keys, and files number the layers in the order of that
// walk.
static void outputs_in_a_map_are_met_by_key(void **state)
{
    (void)state;
    mu_tensor *x = mu_input({3});
    mu_model *model = mu_model_new(x, .outputs = mu_map("score", mu_call(mu_dense(1, .name = "first"), x), "class",
                                                        mu_call(mu_dense(4, .name = "second"), x), MU_END));
    assert_string_equal(mu_layer_name(mu_model_layer_at(model, 0)), "second");
    assert_string_equal(mu_layer_name(mu_model_layer_at(model, 1)), "first");
    assert_string_equal(mu_model_output_name(model, 0), "score");
    assert_null(mu_model_new((mu_tensor *)mu_list(x, MU_END), mu_call(mu_dense(1), x)));
    expect_error(MU_INVALID_ARGUMENT, "a list or map is given in the place of one tensor; give several as .inputs");
}

// As in Keras, samples may lack an axis of size 1 at the end, or have one more.
static void a_last_axis_of_one_is_fitted(void **state)
{
    (void)state;
    mu_tensor *x = mu_input({4, 1}, .name = "x"), *flat = numbers(2, (int64_t[]){2, 4}, 1);
    mu_layer *layer = mu_dense(2), *width = mu_dense(3);
    mu_model *model = mu_model_new(x, mu_call(layer, x));
    mu_model *row = mu_sequential(mu_input_layer({4}, .name = "row"), width);
    mu_tensor *whole = mu_expand_dims(flat, -1);
    assert_near(doubles(mu_call(model, flat)), doubles(mu_call(layer, whole)), 16, 0);
    assert_near(doubles(mu_call(row, whole)), doubles(mu_call(width, flat)), 6, 0);
    assert_null(mu_call(model, numbers(3, (int64_t[]){2, 4, 2}, 1)));
    expect_error(MU_INVALID_ARGUMENT, "the model's input 'x' has shape [?, 4, 1] and was given [2, 4, 2]");
    assert_null(mu_call(row, numbers(1, (int64_t[]){4}, 1)));
    expect_error(MU_INVALID_ARGUMENT, "the model's input 'row' has shape [?, 4] and was given [4]");
}

static bool all_kept(const mu_tensor *y)
{
    const double *at = doubles(y);
    for (int64_t i = 0; i < mu_tensor_elements(y); i++)
        if (at[i] != 1)
            return false;
    return true;
}

// x behind a dropout that is called with .training = true, and one with nothing said.
static mu_model *always_drops(void)
{
    mu_tensor *x = mu_input({40});
    mu_tensor *dropped = mu_call(mu_dropout(.5, .name = "always"), x, .training = true);
    mu_model *model = mu_model_new(x, mu_call(mu_dropout(.5, .name = "sometimes"), dropped));
    if (!model)
        fail_msg("%s", mu_error_message());
    return model;
}

// A call that says a mode has it in runs that say none. Those of predict say one, and so may mu_call; it counts.
static void calls_keep_their_mode(void **state)
{
    (void)state;
    mu_tensor *ones = mu_ones(mu__floatx(), 2, (int64_t[]){8, 40});
    mu_model *model = always_drops();
    for (int read = 0; read < 3; read++) {
        const double *once = doubles(need(mu_call(model, ones)));
        bool twofold = true; // what one dropout keeps is doubled, two would have left zeros and fours
        for (int i = 0; i < 320; i++)
            twofold &= once[i] == 0 || once[i] == 2;
        assert_true(twofold);
        assert_false(all_kept(mu_call(model, ones)));
        assert_true(all_kept(need(mu_call(model, ones, .training = false))));
        assert_true(all_kept(need(mu_predict(model, ones, .verbose = MU_VERBOSE_SILENT))));
        assert_false(all_kept(need(mu_call(mu_sequential(model), ones))));
        assert_true(all_kept(need(mu_call(mu_sequential(model), ones, .training = false))));
        const char *text = mu_layer_config(model);
        assert_non_null(strstr(text, "\"kwargs\":{\"training\":true}"));
        model = read == 0 ? mu_layer_from_config(text) : mu_clone_model(model);
        if (!model)
            fail_msg("%s", mu_error_message());
    }
}

static mu_value *call_attribute(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_call_values(mu_layer_attribute(layer, "inside"), .inputs = inputs);
}

// The same in a layer around the model, which is given no mode either.
static void wrapped_calls_keep_their_mode(void **state)
{
    (void)state;
    mu_tensor *ones = mu_ones(mu__floatx(), 2, (int64_t[]){8, 40}),
              *steps = mu_ones(mu__floatx(), 3, (int64_t[]){8, 2, 40});
    mu_layer *own = mu_layer_new("own", .call = call_attribute);
    mu_model *subclassed = mu_model_subclass("subclassed", .call = call_attribute);
    assert_int_equal(mu_layer_set_attribute(own, "inside", always_drops()), MU_OK);
    assert_int_equal(mu_layer_set_attribute(subclassed, "inside", always_drops()), MU_OK);
    mu_layer *const layers[] = {mu_time_distributed(always_drops()), own, subclassed};
    for (size_t i = 0; i < MU_COUNT(layers); i++) {
        mu_tensor *x = i == 0 ? steps : ones;
        assert_false(all_kept(need(mu_call(layers[i], x))));
        assert_true(all_kept(need(mu_call(layers[i], x, .training = false))));
        assert_false(all_kept(need(mu_call(mu_sequential(layers[i]), x))));
    }
}

#define TENSOR_OF(name) "{\"class_name\": \"__keras_tensor__\", \"config\": {\"keras_history\": [\"" name "\", 0, 0]}}"
#define INPUT_OF(name, steps)                                                                        \
    "{\"module\": \"keras.layers\", \"class_name\": \"InputLayer\", \"config\": {\"batch_shape\": [" \
    "null, " #steps ", 3], \"name\": \"" name "\"}, \"name\": \"" name "\", \"inbound_nodes\": []}"

// A model of Keras in which attention has `args` and `kwargs`; all of its kernels are ones.
static mu_model *attention_called_with(const char *args, const char *kwargs)
{
    char text[4096];
    const int n = snprintf(
        text, sizeof text,
        "{\"module\": \"keras.src.models.functional\", \"class_name\": \"Functional\", \"config\": {\"name\": \"m\", "
        "\"layers\": [" INPUT_OF("x", 4) ", " INPUT_OF(
            "y", 5) ", {\"module\": \"keras.layers\", \"class_name\": "
                    "\"MultiHeadAttention\", \"config\": {\"num_heads\": 1, \"key_dim\": 2, \"kernel_initializer\": "
                    "\"ones\", "
                    "\"name\": \"mha\"}, \"name\": \"mha\", \"inbound_nodes\": [{\"args\": [%s], \"kwargs\": {%s}}]}], "
                    "\"input_layers\": [[\"x\", 0, 0], [\"y\", 0, 0]], \"output_layers\": [[\"mha\", 0, 0]]}}",
        args, kwargs);
    assert_in_range(n, 0, sizeof text - 1);
    return mu_layer_from_config(text);
}

// In Keras every operand of attention may be given by its name, in any order.
static void operands_are_given_by_name(void **state)
{
    (void)state;
    static const char *const calls[][2] = {
        {TENSOR_OF("x") ", " TENSOR_OF("y"), ""},
        {TENSOR_OF("x"), "\"value\": " TENSOR_OF("y")},
        {"", "\"query\": " TENSOR_OF("x") ", \"value\": " TENSOR_OF("y")},
        {"", "\"key\": " TENSOR_OF("y") ", \"value\": " TENSOR_OF("y") ", \"query\": " TENSOR_OF("x")}};
    mu_tensor *x = numbers(3, (int64_t[]){2, 4, 3}, 1), *y = numbers(3, (int64_t[]){2, 5, 3}, 2);
    const double *expected = NULL;
    for (size_t i = 0; i < MU_COUNT(calls); i++) {
        mu_model *model = attention_called_with(calls[i][0], calls[i][1]);
        if (!model)
            fail_msg("call %zu: %s", i, mu_error_message());
        mu_value *z = mu_call_values(model, .inputs = mu_list(mu_of(x), mu_of(y), MU_END));
        const double *seen = doubles(need(mu_value_tensor(z)));
        expected = expected ? expected : seen;
        assert_near(seen, expected, 24, 0);
    }
    assert_null(attention_called_with(TENSOR_OF("x") ", " TENSOR_OF("y"), "\"question\": " TENSOR_OF("x")));
    expect_error(MU_UNIMPLEMENTED, "is called with 'question' in this configuration");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(residual_computes),
        MODEL_TEST(calls_keep_their_mode),
        MODEL_TEST(wrapped_calls_keep_their_mode),
        MODEL_TEST(embeddings_are_reversed),
        MODEL_TEST(residual_trains_alike_on_replicas),
        MODEL_TEST(layers_are_shared),
        MODEL_TEST(several_inputs_and_outputs_are_fitted),
        MODEL_TEST(models_nest),
        MODEL_TEST(models_share_a_model),
        MODEL_TEST(a_layer_has_many_outputs),
        MODEL_TEST(masks_reach_layers_and_losses),
        MODEL_TEST(a_last_axis_of_one_is_fitted),
        MODEL_TEST(given_masks_are_kept),
        MODEL_TEST(operands_are_given_by_name),
        MODEL_TEST(sample_weights_count),
        MODEL_TEST(configurations_come_back),
        MODEL_TEST(calls_of_nested_models_are_counted_as_in_keras),
        MODEL_TEST(wrong_models_are_refused),
        MODEL_TEST(outputs_in_a_map_are_met_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
