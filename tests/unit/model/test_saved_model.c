// Whole models in files: models saved by Keras predict the same here, saved models are loaded with their optimizer and
// continue bit for bit, and configurations that try to execute code or are damaged are refused.
#include "../scratch.h"
#include "model/models/functional.h"
#include "model/files/keras_names.h"
#include "model/training/training.h"

#include <muster.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GOLDEN MU_TEST_GOLDEN "/"

static int start(void **state)
{
    return scratch_enter(state) == 0 && mu_init(.threads = 1, .seed = 3) == MU_OK ? 0 : -1;
}

static int finish(void **state)
{
    return mu_exit(true) == 0 && mu__live_objects(stderr) == 0 ? scratch_leave(state) : -1;
}

static double largest_difference(mu_tensor *a, mu_tensor *b)
{
    mu_tensor *apart = mu_reduce_max(mu_abs(mu_subtract(a, b)), MU_ALL_AXES);
    if (mu_error_code())
        fail_msg("%s", mu_error_message());
    return mu_scalar(apart);
}

static mu_value *golden_inputs(const mu_value *arrays)
{
    return mu_list(mu_value_get(arrays, "words"), mu_value_get(arrays, "x"), MU_END);
}

static void assert_predicts(mu_model *model, const mu_value *arrays)
{
    mu_value *seen = mu_call_values(model, .inputs = golden_inputs(arrays));
    if (!seen)
        fail_msg("%s", mu_error_message());
    assert_true(largest_difference(mu_at(seen, 0), mu_value_tensor(mu_value_get(arrays, "first"))) < 1e-5);
    assert_true(largest_difference(mu_at(seen, 1), mu_value_tensor(mu_value_get(arrays, "score"))) < 1e-5);
}

static void loads_keras(void **state)
{
    (void)state;
    mu_value *arrays = mu_load_tensors(GOLDEN "python_keras.npz");
    mu_model *model = mu_load_model(GOLDEN "python.keras");
    if (!model)
        fail_msg("%s", mu_error_message());
    assert_string_equal(mu_layer_name(model), "golden");
    assert_predicts(model, arrays);
    assert_int_equal(model->trainer->n_losses, 2);
    assert_float_equal(model->trainer->loss_weights[1], .25, 0);
    assert_int_equal(model->trainer->n_metrics, 4); // the loss, the loss of each output, and compiled metrics
    assert_float_equal(mu_scalar(mu_variable_read(mu_optimizer_iterations(model->trainer->optimizer))), 3, 0);
    // Written and read again, the model is the same.
    assert_int_equal(mu_save_model(model, "again.keras"), MU_OK);
    assert_predicts(mu_load_model("again.keras", .no_compile = true), arrays);
    mu_model *without = mu_load_model(GOLDEN "python.keras", .no_compile = true);
    assert_int_equal(without->trainer->n_losses, 0);
}

// Weights in every format, under that format's names, are loaded into the model.
static void weights_in_every_format(void **state)
{
    (void)state;
    static const char *const paths[] = {"w.safetensors", "w.npz", "w.weights.h5", "w.ckpt"};
    mu_value *arrays = mu_load_tensors(GOLDEN "python_keras.npz");
    mu_model *model = mu_load_model(GOLDEN "python.keras");
    for (size_t i = 0; i < MU_COUNT(paths); i++) {
        if (mu_save_weights(model, paths[i]) != MU_OK)
            fail_msg("%s: %s", paths[i], mu_error_message());
        mu_model *other = mu_load_model(GOLDEN "python.keras", .no_compile = true);
        for (size_t k = 0; k < other->sublayers.n; k++)
            for (size_t w = 0; w < other->sublayers.items[k]->weights.n; w++) {
                mu_variable *variable = other->sublayers.items[k]->weights.items[w].variable;
                mu_variable_assign(variable, mu_zeros_like(mu_variable_read(variable)));
            }
        if (mu_load_weights(other, paths[i]) != MU_OK)
            fail_msg("%s: %s", paths[i], mu_error_message());
        assert_predicts(other, arrays);
    }
    // The names of one format are kept in another one.
    assert_int_equal(mu_save_tensors("renamed.npz", mu_load_tensors("w.weights.h5")), MU_OK);
    assert_int_equal(mu_load_weights(model, "renamed.npz"), MU_OK);
    assert_predicts(model, arrays);
}

static mu_model *small_model(void)
{
    mu_tensor *in = mu_input({3}, .name = "in"), *x = mu_call(mu_dense(4, .activation = "tanh"), in);
    mu_layer *shared = mu_dense(4);
    x = mu_call(shared, mu_call(mu_batch_normalization(), mu_call(shared, x)));
    mu_model *inner = mu_sequential(mu_dense(5, .activation = "relu"), mu_dense(2));
    return mu_model_new(in, mu_call(inner, x));
}

static mu_value *small_batch(void)
{
    mu_tensor *x = mu_reshape(mu_range(MU_F32, 0, 24, 1), 2, (int64_t[]){8, 3});
    return mu_list(mu_of(mu_sin(x)), mu_of(mu_cos(mu_slice(x, (int64_t[]){0, 0}, (int64_t[]){8, 2}))), MU_END);
}

static void train(mu_model *model, int epochs)
{
    if (!mu_fit(model, small_batch(), .batch_size = 8, .no_shuffle = true, .epochs = epochs,
                .verbose = MU_VERBOSE_SILENT))
        fail_msg("%s", mu_error_message());
}

// A loaded model continues to train as an uninterrupted one, bit for bit.
static void goes_on(void **state)
{
    (void)state;
    mu_model *model = small_model();
    assert_int_equal(mu_compile(model, .optimizer = mu_adam(.learning_rate = .01, .use_ema = true),
                                .loss = mu_log_cosh_loss(), .metrics = MU_METRICS("mae", "accuracy")),
                     MU_OK);
    train(model, 3);
    assert_int_equal(mu_save_model(model, "half.keras"), MU_OK);
    mu_model *other = mu_load_model("half.keras");
    if (!other)
        fail_msg("%s", mu_error_message());
    mu_tensor *x = mu_at(small_batch(), 0);
    assert_float_equal(largest_difference(mu_call(model, x), mu_call(other, x)), 0, 0);
    train(model, 3);
    train(other, 3);
    assert_float_equal(largest_difference(mu_call(model, x), mu_call(other, x)), 0, 0);
}

static mu_tensor *own_loss(mu_tensor *y_true, mu_tensor *y_pred, void *arg)
{
    (void)arg;
    return mu_reduce_mean(mu_abs(mu_subtract(y_true, y_pred)), -1);
}

// What a model is compiled with keeps its options and its names: metrics that are losses with options, the steps of a
// run, a loss by the name that fits the shapes.
static void keeps_what_it_is_compiled_with(void **state)
{
    (void)state;
    mu_loss *logits = mu_binary_crossentropy_loss(.from_logits = true, .label_smoothing = .25, .name = "smooth");
    mu_metric *of_logits = mu_loss_metric(logits), *huber = mu_loss_metric(mu_huber_loss(.delta = .5));
    mu_model *model = small_model();
    assert_int_equal(mu_compile(model, .loss = "ce", .steps_per_execution = 3,
                                .metrics = MU_METRICS(of_logits, huber, "mse", "rmse"), .run_eagerly = true),
                     MU_OK);
    assert_int_equal(mu_save_model(model, "compiled.keras"), MU_OK);
    mu_model *other = mu_load_model("compiled.keras");
    if (!other)
        fail_msg("%s", mu_error_message());
    assert_int_equal(other->trainer->steps_per_execution, 3);
    assert_true(other->trainer->run_eagerly);
    static const char *const names[] = {"loss", "smooth", "huber", "mse", "rmse"};
    mu_history *before = mu_evaluate(model, small_batch(), .verbose = MU_VERBOSE_SILENT);
    mu_history *after = mu_evaluate(other, small_batch(), .verbose = MU_VERBOSE_SILENT);
    for (size_t i = 0; i < MU_COUNT(names); i++)
        assert_true(mu_history_last(after, names[i]) == mu_history_last(before, names[i])); // of a lost name: NaN
    mu_loss *mine = mu_loss_new(.call = own_loss, .name = "mine");
    assert_int_equal(mu_compile(model, .loss = "mse", .metrics = MU_METRICS(mu_loss_metric(mine))), MU_OK);
    assert_int_equal(mu_save_model(model, "compiled.keras"), MU_UNIMPLEMENTED);
    assert_non_null(strstr(mu_error_message(), "one of the program's own, which the configuration cannot hold"));
    mu_error_take();
}

// In a checkpoint the operations that compute masks have numbers among the layers, as in Keras: input, embedding,
// NotEqual, LSTM. Where the numbers depend on the order of calls, nothing is written.
static void numbers_masks(void **state)
{
    (void)state;
    mu_tensor *x = mu_input({6}, .dtype = MU_I32), *y = mu_call(mu_embedding(5, 2, .mask_zero = true), x);
    mu_model *model = mu_model_new(x, mu_call(mu_lstm(2), y));
    assert_int_equal(mu_save_weights(model, "masked.ckpt"), MU_OK);
    mu_value *tensors = mu_load_tensors("masked.ckpt");
    bool found = false;
    for (int i = 0; i < mu_value_count(tensors); i++)
        found |= strstr(mu_value_key(tensors, i), "_operations/3/cell/kernel") != NULL;
    assert_true(found);
    model = mu_model_new(x, mu_call(mu_multi_head_attention(1, 2), .inputs = mu_list(y, y, MU_END)));
    assert_int_equal(mu_save_weights(model, "heads.ckpt"), MU_UNIMPLEMENTED);
    assert_non_null(strstr(mu_error_take().message, "multi-head attention"));
}

// ---- Refusals -----------------------------------------------------------------------------------

static void assert_refused(const char *json, mu_status code, const char *words)
{
    assert_null(mu_layer_from_config(json));
    const mu_error error = mu_error_take();
    if (error.code != code || !strstr(error.message, words))
        fail_msg("wanted %s with '%s', got %s: %s", mu_status_name(code), words, mu_status_name(error.code),
                 error.message);
}

#define TENSOR(name) "{\"class_name\":\"__keras_tensor__\",\"config\":{\"keras_history\":[\"" name "\",0,0]}}"
#define INPUT(name)                                                                                     \
    "{\"module\":\"keras.layers\",\"class_name\":\"InputLayer\",\"config\":{\"batch_shape\":[null,4]}," \
    "\"name\":\"" name "\",\"inbound_nodes\":[]}"
#define OPERATION(module, class_name, name, args, kwargs) \
    CONFIGURED(module, class_name, name, ",\"units\":2", args, kwargs)
#define CONFIGURED(module, class_name, name, options, args, kwargs)                                          \
    "{\"module\":\"" module "\",\"class_name\":\"" class_name "\",\"config\":{\"name\":\"" name "\"" options \
    "},\"name\":\"" name "\",\"inbound_nodes\":[{\"args\":[" args "],\"kwargs\":{" kwargs "}}]}"
#define MODEL(layers, output) MODEL_OF(layers, output, "0")
#define MODEL_OF(layers, output, call)                                                                   \
    "{\"module\":\"keras\",\"class_name\":\"Functional\",\"config\":{\"name\":\"m\",\"layers\":[" layers \
    "],\"input_layers\":[\"a\",0,0],\"output_layers\":[\"" output "\"," call ",0]}}"

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        mu_status code;
        const char *words;
    } lies[] = {
        {"{\"module\":\"keras.layers\",\"class_name\":\"Lambda\",\"config\":{\"name\":\"sly\",\"function\":\"4wE=\"}}",
         MU_UNIMPLEMENTED, "'sly' is a Lambda layer"},
        {"{\"module\":\"os\",\"class_name\":\"Dense\",\"config\":{\"name\":\"d\",\"units\":2}}", MU_UNIMPLEMENTED,
         "not one of Keras's layers"},
        {"{\"module\":\"keras.layers\",\"class_name\":\"Dense\",\"registered_name\":\"my>Dense\",\"config\":{}}",
         MU_UNIMPLEMENTED, "my>Dense"},
        {MODEL(INPUT("a") "," OPERATION("keras.layers", "Dense", "d", TENSOR("b"), ""), "d"), MU_INVALID_ARGUMENT,
         "'b' that does not exist"},
        {MODEL(INPUT("a") "," OPERATION("keras.layers", "Dense", "d", TENSOR("d"), ""), "d"), MU_INVALID_ARGUMENT,
         "wait for each other"},
        {MODEL("{\"module\":\"keras.layers\",\"class_name\":\"InputLayer\",\"name\":\"a\",\"inbound_nodes\":[],"
               "\"config\":{\"name\":\"a\",\"batch_shape\":[null,0,3]}}",
               "a"),
         MU_INVALID_ARGUMENT, "the size 0 in axis 1 of its batch_shape"},
        {MODEL(INPUT("a") "," INPUT("a"), "a"), MU_INVALID_ARGUMENT, "two layers of one name"},
        {MODEL(INPUT("a") "," OPERATION("keras.layers", "Dense", "d", TENSOR("a"), "\"mask\":5"), "d"),
         MU_UNIMPLEMENTED, "'mask'"},
        {MODEL(INPUT("a") "," OPERATION("keras.layers", "Dense", "d", TENSOR("a") "," TENSOR("a"), ""), "d"),
         MU_UNIMPLEMENTED, "2 arguments"},
        {MODEL(INPUT("a") "," CONFIGURED("keras.src.ops.numpy", "Sort", "s", "", TENSOR("a"), ""), "s"),
         MU_UNIMPLEMENTED, "the operation Sort of keras.ops"},
        {MODEL(INPUT("a") "," OPERATION("keras.src.ops.numpy", "Exp", "e", TENSOR("a"), ""), "e"), MU_UNIMPLEMENTED,
         "the option 'units'"},
        {MODEL_OF(INPUT("a"), "a", "5"), MU_INVALID_ARGUMENT, "an input or output that does not exist"},
    };
    for (size_t i = 0; i < MU_COUNT(lies); i++)
        assert_refused(lies[i].json, lies[i].code, lies[i].words);
}

// A mask that the program computes is read as an operation and a given mask, and written as both again.
static void keeps_computed_masks(void **state)
{
    (void)state;
    mu_layer *model = mu_layer_from_config(
        MODEL(INPUT("a") "," CONFIGURED("keras.src.ops.numpy", "NotEqual", "n", "", TENSOR("a") ",5", "") "," OPERATION(
                  "keras.layers", "Dense", "d", TENSOR("a"), "\"mask\":" TENSOR("n")),
              "d"));
    if (!model)
        fail_msg("%s", mu_error_message());
    const char *config = mu_layer_config(model);
    assert_non_null(strstr(config, "\"NotEqual\""));
    assert_non_null(strstr(config, "\"mask\""));
}

#define EMBEDDING(name, of)                                                                                           \
    CONFIGURED("keras.layers", "Embedding", name, ",\"input_dim\":9,\"output_dim\":2,\"mask_zero\":true", TENSOR(of), \
               "")
#define UNEQUAL(name, of)                         OF_NUMPY("NotEqual", name, "", TENSOR(of) ",0")
#define OF_NUMPY(class_name, name, options, args) CONFIGURED("keras.src.ops.numpy", class_name, name, options, args, "")
#define POOLING(of, mask) \
    CONFIGURED("keras.layers", "GlobalAveragePooling1D", "p", "", TENSOR(of), "\"mask\":" TENSOR(mask))

// Loads a model; `kept`: whether its configuration still has the NotEqual. The results for two samples differ by the
// factor.
static void assert_pooled(const char *json, bool kept, const float *first, const float *second, double factor)
{
    mu_model *model = mu_layer_from_config(json);
    mu_tensor *a = model ? mu_call(model, mu_tensor_new(MU_F32, 2, (int64_t[]){1, 4}, first)) : NULL;
    mu_tensor *b = a ? mu_call(model, mu_tensor_new(MU_F32, 2, (int64_t[]){1, 4}, second)) : NULL;
    if (!b)
        fail_msg("%s", mu_error_message());
    assert_int_equal(strstr(mu_layer_config(model), "\"NotEqual\"") != NULL, kept);
    assert_true(largest_difference(a, mu_multiply(b, mu_constant(MU_F32, factor))) < 1e-6);
}

// The mask of a call is Keras's own only if the tensor that it is for carries it. An operation drops it, and the mask
// of another layer's input belongs to the program too. Operations of Keras that compute masks are kept if the program
// uses their results.
static void tells_given_masks(void **state)
{
    (void)state;
    const float padded[] = {1, 2, 0, 0}, twice[] = {1, 1, 2, 2}, early[] = {2, 3, 1, 1}, early_twice[] = {2, 2, 3, 3};
    assert_pooled(MODEL(INPUT("a") "," EMBEDDING("e", "a") "," UNEQUAL("n", "a") "," CONFIGURED(
                            "keras.layers", "Dropout", "d", ",\"rate\":0.5", TENSOR("e"), "") "," POOLING("d", "n"),
                        "p"),
                  false, padded, twice, 1);
    assert_pooled(MODEL(INPUT("a") "," EMBEDDING("e", "a") "," UNEQUAL("n", "a") "," OF_NUMPY(
                            "ConvertToTensor", "c", "", TENSOR("n")) "," POOLING("e", "c"),
                        "p"),
                  false, padded, twice, 1);
    assert_pooled(MODEL(INPUT("a") "," EMBEDDING("e", "a") "," UNEQUAL("n", "a") "," OF_NUMPY(
                            "Multiply", "h", "", TENSOR("e") ",2.0") "," POOLING("h", "n"),
                        "p"),
                  true, padded, twice, 1);
    assert_pooled(
        MODEL(INPUT("a") "," EMBEDDING("e", "a") "," OF_NUMPY("Subtract", "s", "", TENSOR("a") ",1") "," EMBEDDING(
                  "f", "s") "," UNEQUAL("n", "s") "," POOLING("e", "n"),
              "p"),
        true, early, early_twice, 1);
    assert_pooled(
        MODEL(INPUT("a") "," EMBEDDING("e", "a") "," UNEQUAL("n", "a") "," OF_NUMPY(
                  "Cast", "c", ",\"dtype\":\"float32\"",
                  TENSOR("n")) "," OF_NUMPY("ExpandDims", "m", ",\"axis\":-1",
                                            TENSOR("c")) "," OF_NUMPY("Multiply", "h", "",
                                                                      TENSOR("e") "," TENSOR(
                                                                          "m")) "," OF_NUMPY("Mean", "p", ",\"axis\":1",
                                                                                             TENSOR("h")),
              "p"),
        true, padded, twice, .5);
    mu_model *model = mu_layer_from_config(MODEL(INPUT("a") "," EMBEDDING("e", "a") "," UNEQUAL("n", "a"), "n"));
    mu_tensor *mask = model ? mu_call(model, mu_tensor_new(MU_F32, 2, (int64_t[]){1, 4}, padded)) : NULL;
    if (!mask)
        fail_msg("%s", mu_error_message());
    assert_true(mu_tensor_item(mask, 1) == 1 && mu_tensor_item(mask, 2) == 0);
}

// A very deep nest of models gives an error instead of a stack overflow.
static void refuses_depth(void **state)
{
    (void)state;
    enum { DEPTH = 2000 };
    static const char open[] = "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[";
    char *json = calloc(DEPTH, sizeof open + 4);
    assert_non_null(json);
    for (int i = 0; i < DEPTH; i++)
        strcat(json + (size_t)i * (sizeof open - 1), open);
    char *end = json + strlen(json);
    for (int i = 0; i < DEPTH; i++, end += 3)
        memcpy(end, "]}}", 3);
    assert_null(mu_layer_from_config(json));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    free(json);
}

static void refuses_damage(void **state)
{
    (void)state;
    void *data;
    size_t bytes;
    assert_int_equal(mu__file_read(GOLDEN "python.keras", 1 << 20, &data, &bytes), MU_OK);
    for (size_t cut = 0; cut < bytes; cut += 997) {
        FILE *file = fopen("cut.keras", "wb");
        assert_int_equal(fwrite(data, 1, cut, file), cut);
        fclose(file);
        assert_null(mu_load_model("cut.keras"));
        assert_int_equal(mu_error_take().code, MU_DATA_LOSS);
    }
    mu__free(data);
    assert_null(mu_load_model(GOLDEN "python.npz"));
    assert_non_null(strstr(mu_error_message(), "holds no model"));
    mu_error_take();
    assert_int_equal(mu_save_model(small_model(), "model.safetensors"), MU_INVALID_ARGUMENT);
    mu_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_keras),       cmocka_unit_test(weights_in_every_format),
        cmocka_unit_test(goes_on),           cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_depth),     cmocka_unit_test(refuses_damage),
        cmocka_unit_test(numbers_masks),     cmocka_unit_test(keeps_computed_masks),
        cmocka_unit_test(tells_given_masks), cmocka_unit_test(keeps_what_it_is_compiled_with),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
