// Models that hold look-ups: strings are inputs of fit, evaluate and predict, on one device and on several, and the
// model is saved and loaded with its vocabularies. Keras's own models are compared in tests/conformance/files.py.
#include "model_test.h"

#include "../scratch.h"
#include "io/io.h"
#include "model/layers/token_lookup.h"
#include "model/training/training.h"

#include <muster/plot.h>
#include <muster/saved_model.h>
#include <muster/text.h>

enum { ROWS = 12 };

static const char *const names[] = {"ann", "bob", "cy"};
static const char *const words[] = {"cat", "dog", "sat"};
static const int64_t movies[] = {5, 7, 9};

static const char *const visits[ROWS] = {"ann", "bob", "eve", "cy", "ann", "", "cy", "bob", "dan", "ann", "cy", "bob"};

static mu_tensor *users(void) { return mu_tensor_strings(1, (int64_t[]){ROWS}, visits); }

static mu_tensor *users_in_a_column(void) { return mu_tensor_strings(2, (int64_t[]){ROWS, 1}, visits); }

static mu_tensor *titles(void)
{
    static const char *const list[ROWS] = {"The cat", "dog", "sat: sat", "",    "a cat sat", "x",
                                           "dog dog", "cat", "dog",      "sat", "cat dog",   "dog sat"};
    return mu_tensor_strings(1, (int64_t[]){ROWS}, list);
}

static mu_tensor *seen(void)
{
    int64_t numbers[2 * ROWS];
    for (int i = 0; i < 2 * ROWS; i++)
        numbers[i] = i % 5 + 5;
    return mu_tensor_new(MU_I64, 2, (int64_t[]){ROWS, 2}, numbers);
}

static mu_tensor *scores(void) { return numbers(2, (int64_t[]){ROWS, 1}, 3); }

// A recommender: a tower that begins with a look-up, movies by their numbers, and titles as counts of words.
static mu_model *recommender(void)
{
    mu_tensor *user = mu_input({0}, .dtype = MU_STRING, .name = "user");
    mu_tensor *movie = mu_input({2}, .dtype = MU_I64, .name = "movies");
    mu_tensor *title = mu_input({0}, .dtype = MU_STRING, .name = "title");
    mu_model *tower = mu_sequential(mu_string_lookup(.vocabulary = names, .n_vocabulary = 3), mu_embedding(4, 3));
    mu_tensor *a = mu_call(tower, user);
    mu_tensor *indices = mu_call(mu_integer_lookup(.vocabulary = movies, .n_vocabulary = 3), movie);
    mu_tensor *b = mu_call(mu_flatten(), mu_call(mu_embedding(4, 3), indices));
    mu_layer *text = mu_text_vectorization(.vocabulary = words, .n_vocabulary = 3, .output_mode = "tf_idf",
                                           .idf_weights = (double[]){.5, 1, 2}, .n_idf_weights = 3);
    mu_tensor *c = mu_call(mu_dense(3), mu_call(text, title));
    mu_tensor *all = mu_call(mu_concatenate(), .inputs = mu_list(a, b, c, MU_END));
    return mu_model_new(.inputs = mu_list(user, movie, title, MU_END), .output = mu_call(mu_dense(1), all));
}

static mu_value *inputs(void) { return mu_list(users(), seen(), titles(), MU_END); }
static mu_value *samples(void) { return mu_list(inputs(), scores(), MU_END); }

static void compile(mu_model *model, bool eagerly)
{
    if (mu_compile(model, .optimizer = mu_adam(.learning_rate = .02), .loss = "mse",
                   .metrics = MU_METRICS(mu_accuracy()), .run_eagerly = eagerly) != MU_OK)
        fail_msg("%s", mu_error_message());
}

static double last_loss(mu_history *history)
{
    if (!history)
        fail_msg("%s", mu_error_message());
    return mu_history_last(history, "loss");
}

static mu_tensor *call_on(mu_model *model)
{
    mu_tensor *y = mu_value_tensor(mu_call_values(model, .inputs = inputs()));
    if (!y)
        fail_msg("%s", mu_error_message());
    return y;
}

static double apart(mu_tensor *a, mu_tensor *b)
{
    mu_tensor *most = mu_reduce_max(mu_abs(mu_subtract(a, b)), MU_ALL_AXES);
    if (!most)
        fail_msg("%s", mu_error_message());
    return mu_scalar(most);
}

static mu_model *trained(int kind, bool eagerly)
{
    mu_model *model = NULL;
    MU_SCOPE(strategy_of(kind)) {
        mu_set_seed(5);
        model = recommender();
        compile(model, eagerly);
    }
    last_loss(mu_fit(model, samples(), .batch_size = 5, .epochs = 4, .verbose = MU_VERBOSE_SILENT, .no_shuffle = true));
    return model;
}

static void trains_on_strings(void **state)
{
    (void)state;
    mu_model *one = trained(-1, false);
    mu_tensor *whole = call_on(one);
    const double first = last_loss(mu_evaluate(one, samples(), .batch_size = 5, .verbose = MU_VERBOSE_SILENT));
    assert_true(apart(mu_predict(one, mu_list(inputs(), MU_END), .batch_size = 5), whole) < 1e-12);
    last_loss(mu_fit(one, samples(), .batch_size = 5, .epochs = 20, .validation_data = samples(),
                     .verbose = MU_VERBOSE_SILENT));
    last_loss(mu_fit(one, samples(), .validation_split = .25, .verbose = MU_VERBOSE_SILENT));
    assert_true(last_loss(mu_evaluate(one, samples(), .verbose = MU_VERBOSE_SILENT)) < .8 * first);
    assert_true(apart(mu_value_tensor(mu_predict_on_batch(one, inputs())), call_on(one)) < 1e-12);
    last_loss(mu_train_on_batch(one, inputs(), scores()));
    last_loss(mu_test_on_batch(one, inputs(), scores()));
    for (int i = 0; i < 3; i++) { // eager steps, two replicas, a parameter server
        mu_model *other = trained((int[]){-1, 2, SERVED + 1}[i], i == 0);
        assert_true(apart(call_on(other), whole) < 1e-9);
        assert_true(apart(mu_predict(other, mu_list(inputs(), MU_END), .batch_size = 5), whole) < 1e-9);
    }
}

static mu_dataset *create(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_dataset_batch(mu_dataset_from_tensor_slices(samples()), 5);
}

static mu_dataset *create_endless(const mu_input_context *context, void *arg)
{
    return mu_dataset_repeat(create(context, arg), -1);
}

static mu_value *by_name(mu_value *element, void *arg)
{
    (void)arg;
    mu_value *x = mu_value_at(element, 0);
    return mu_list(mu_map("title", mu_at(x, 2), "user", mu_at(x, 0), "movies", mu_at(x, 1), MU_END), mu_at(element, 1),
                   MU_END);
}

static void takes_data_in_every_form(void **state)
{
    (void)state;
    mu_tensor *whole = call_on(trained(-1, false));
    for (int i = 0; i < 2; i++) { // elements by name, a creator
        mu_set_seed(5);
        mu_model *model = recommender();
        compile(model, false);
        if (i == 0)
            last_loss(mu_fit(model, mu_dataset_map(create(NULL, NULL), by_name, NULL), .epochs = 4,
                             .verbose = MU_VERBOSE_SILENT));
        else
            last_loss(mu_fit(model, mu_dataset_creator_new(create_endless, NULL), .epochs = 4, .steps_per_epoch = 3,
                             .verbose = MU_VERBOSE_SILENT));
        assert_true(apart(call_on(model), whole) < 1e-12);
    }
}

static void models_in_models(void **state)
{
    (void)state;
    mu_layer *shared = mu_string_lookup(.vocabulary = names, .n_vocabulary = 3, .output_mode = "one_hot");
    mu_tensor *inner = mu_input({0}, .dtype = MU_STRING), *a = mu_input({0}, .dtype = MU_STRING);
    mu_tensor *b = mu_input({0}, .dtype = MU_STRING);
    mu_model *tower = mu_model_new(inner, mu_call(mu_dense(2), mu_call(shared, inner)));
    mu_tensor *bins = mu_call(mu_hashed_crossing(7, .output_mode = "one_hot"), .inputs = mu_list(a, b, MU_END));
    mu_tensor *direct = mu_call(mu_dense(2), mu_call(shared, b));
    mu_value *parts = mu_list(mu_call(tower, a), mu_call(tower, b), direct, bins, MU_END);
    mu_tensor *all = mu_call(mu_concatenate(), .inputs = parts);
    mu_model *model = mu_model_new(.inputs = mu_list(a, b, MU_END), .output = mu_call(mu_dense(1), all));
    compile(model, false);
    mu_value *x = mu_list(users(), titles(), MU_END);
    last_loss(mu_fit(model, mu_list(x, scores(), MU_END), .epochs = 2, .verbose = MU_VERBOSE_SILENT));
    mu_tensor *y = mu_value_tensor(mu_call_values(model, .inputs = x));
    assert_true(apart(mu_predict(model, mu_list(x, MU_END)), y) < 1e-12);
    assert_string_equal(mu_dtype_name(mu_tensor_dtype(bins)), "float64");
    assert_int_equal(mu_tensor_dim(bins, 1), 7);
    assert_int_equal(mu_plot_model(model, "plot.svg", .show_shapes = true, .expand_nested = true), MU_OK);
    mu_model *again = mu_clone_model(model);
    if (!again)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_model_parameters(again), mu_model_parameters(model));
}

static void sequential_models_begin_with_strings(void **state)
{
    (void)state;
    mu_model *models[] = {
        mu_sequential(mu_input_layer({0}, .dtype = MU_STRING), mu_hashing(6, .output_mode = "one_hot"), mu_dense(1)),
        mu_sequential(mu_text_vectorization(.vocabulary = words, .n_vocabulary = 3, .output_sequence_length = 2),
                      mu_embedding(5, 2), mu_flatten(), mu_dense(1)),
        mu_sequential(mu_string_lookup(.vocabulary = names, .n_vocabulary = 3), mu_embedding(4, 2), mu_dense(1))};
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            assert_int_equal(mu_model_build(models[i], 0, NULL), MU_OK);
        compile(models[i], false);
        last_loss(mu_fit(models[i], mu_list(titles(), scores(), MU_END), .epochs = 2, .verbose = MU_VERBOSE_SILENT));
        assert_int_equal(mu_save_model(models[i], "seq.keras"), MU_OK);
        mu_model *loaded = mu_load_model("seq.keras");
        if (!loaded)
            fail_msg("%s", mu_error_message());
        assert_true(apart(mu_predict(loaded, titles()), mu_call(models[i], titles())) < 1e-6);
    }
}

// Strings get a last axis of size 1, or lose it, if the model's input has it or lacks it.
static void strings_fit_their_input(void **state)
{
    (void)state;
    mu_tensor *rows = users(), *column = users_in_a_column();
    for (int i = 0; i < 4; i++) {
        const bool wide = i % 2 == 1;
        mu_tensor *x = mu_input({wide}, .dtype = MU_STRING), *given = wide ? rows : column;
        mu_layer *lookup = mu_string_lookup(.vocabulary = names, .n_vocabulary = 3, .output_mode = "one_hot");
        mu_model *model = i < 2 ? mu_model_new(x, mu_call(mu_dense(1), mu_call(lookup, x)))
                                : mu_sequential(mu_input_layer({wide}, .dtype = MU_STRING), lookup, mu_dense(1));
        compile(model, false);
        last_loss(mu_fit(model, mu_list(given, scores(), MU_END), .epochs = 1, .verbose = MU_VERBOSE_SILENT));
        mu_tensor *y = mu_call(model, given);
        assert_non_null(y);
        assert_true(apart(y, mu_call(model, wide ? column : rows)) == 0);
        assert_true(apart(mu_predict(model, given), y) < 1e-12);
        assert_null(mu_call(model, mu_tensor_strings(2, (int64_t[]){ROWS / 2, 2}, visits)));
        expect_error(MU_INVALID_ARGUMENT, "and was given");
    }
}

// The same holds if a functional or sequential model is called on another model's input: the trace that finds the
// shapes has no strings either.
static void strings_fit_the_input_of_a_model_inside(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool wide = i % 2 == 1;
        mu_tensor *x = mu_input({wide}, .dtype = MU_STRING), *given = wide ? users_in_a_column() : users();
        mu_layer *lookup = mu_string_lookup(.vocabulary = names, .n_vocabulary = 3, .output_mode = "one_hot");
        mu_tensor *inner_x = mu_input({!wide}, .dtype = MU_STRING);
        mu_model *inner = i < 2 ? mu_model_new(inner_x, mu_call(lookup, inner_x))
                                : mu_sequential(mu_input_layer({!wide}, .dtype = MU_STRING), lookup);
        mu_tensor *found = mu_call(inner, x);
        assert_non_null(found);
        assert_int_equal(mu_tensor_rank(found), 2);
        mu_model *model = mu_model_new(x, mu_call(mu_dense(1), found));
        compile(model, false);
        last_loss(mu_fit(model, mu_list(given, scores(), MU_END), .epochs = 1, .verbose = MU_VERBOSE_SILENT));
        assert_true(apart(mu_predict(model, given), mu_call(model, given)) < 1e-12);
        assert_true(apart(mu_call(inner, users()), mu_call(inner, users_in_a_column())) == 0);
    }
}

static void vocabularies_are_saved(void **state)
{
    (void)state;
    mu_model *model = trained(-1, false);
    mu_tensor *whole = call_on(model);
    assert_int_equal(mu_save_model(model, "m.keras"), MU_OK);
    mu_model *loaded = mu_load_model("m.keras");
    if (!loaded)
        fail_msg("%s", mu_error_message());
    assert_true(apart(call_on(loaded), whole) < 1e-12);
    last_loss(mu_fit(loaded, samples(), .epochs = 1, .verbose = MU_VERBOSE_SILENT));
    mu_model *read = mu_layer_from_config(mu_layer_config(model));
    static const char *const files[] = {"m.safetensors", "m.weights.h5", "m.ckpt"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mu_save_weights(model, files[i]), MU_OK);
        assert_int_equal(mu_load_weights(read, files[i]), MU_OK);
        assert_true(apart(call_on(read), whole) < 1e-12);
    }
}

// Writes a .keras file as Keras does after adapt: the vocabulary is among the assets, not in the configuration.
static void write_adapted(const char *class_name, const char *size, const char *mode, const char *asset, int n_idf)
{
    char config[600];
    const char *const metadata[] = {"config.json",
                                    config,
                                    "metadata.json",
                                    "{}",
                                    "assets/layers/string_lookup/vocabulary.txt",
                                    asset,
                                    "assets/layers/integer_lookup/vocabulary.txt",
                                    asset,
                                    NULL};
    const char *const weights[] = {"layers/string_lookup/vars/idf_weights"};
    mu_tensor *idf = mu_range(MU_F32, 1, 1 + n_idf, 1);
    snprintf(config, sizeof config,
             "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"s\", \"layers\": ["
             "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"x\", \"dtype\": \"%s\", \"batch_shape\": "
             "[null, 2]}}, {\"class_name\": \"%s\", \"config\": {\"name\": \"l\", \"output_mode\": \"%s\", "
             "\"vocabulary\": null, \"vocabulary_size\": %s}}]}}",
             strcmp(class_name, "StringLookup") == 0 ? "string" : "int64", class_name, mode, size);
    const mu_tensors all = {.n = n_idf > 0, .names = weights, .tensors = &idf, .metadata = metadata};
    if (!idf || mu__tensors_save_as(&mu__keras_format, "a.keras", &all) != MU_OK)
        fail_msg("%s", mu_error_message());
}

static void assert_tokens(const char *class_name, const char *size, const char *asset, const char *wanted)
{
    write_adapted(class_name, size, "int", asset, 0);
    mu_model *model = mu_load_model("a.keras");
    if (!model)
        fail_msg("%s", mu_error_message());
    mu_tensor *tokens = mu_vocabulary(mu_model_layer(model, "l"));
    char text[200] = "";
    for (int64_t i = 0; i < mu_tensor_elements(tokens); i++) {
        const size_t used = strlen(text);
        if (mu__has_strings(tokens))
            snprintf(text + used, sizeof text - used, "%s,", mu_tensor_string(tokens, i).bytes);
        else
            snprintf(text + used, sizeof text - used, "%lld,", (long long)mu_tensor_item_int(tokens, i));
    }
    assert_string_equal(text, wanted);
}

static void refuse_asset(const char *class_name, const char *size, const char *asset, const char *part)
{
    write_adapted(class_name, size, "int", asset, 0);
    assert_null(mu_load_model("a.keras"));
    expect_error(MU_DATA_LOSS, part);
}

static void reads_vocabularies_of_assets(void **state)
{
    (void)state;
    assert_tokens("StringLookup", "3", "[UNK]\nb\na", "[UNK],b,a,");
    assert_tokens("StringLookup", "4", "[UNK]\nb\xc2\x85x\na\n", "[UNK],b\xc2\x85x,a,,"); // the last token is empty
    assert_tokens("StringLookup", "null", "[UNK]\nb\na\n\n", "[UNK],b,a,");
    assert_tokens("IntegerLookup", "4", "-1\n-9223372036854775808\n7\n0", "-1,-9223372036854775808,7,0,");
    refuse_asset("StringLookup", "3", "[UNK]\nb", "has 2 tokens, and the configuration of the layer says 3");
    refuse_asset("StringLookup", "2", "[UNK]\nb\nc", "a token with a line feed cannot be kept");
    refuse_asset("StringLookup", "3", "[UNK]\n\xff\nc",
                 "line 2 of 'assets/layers/string_lookup/vocabulary.txt' is not UTF-8");
    refuse_asset("IntegerLookup", "3", "-1\n5x\n7",
                 "line 2 of 'assets/layers/integer_lookup/vocabulary.txt' is not an integer");
    refuse_asset("IntegerLookup", "2", "-1\n9223372036854775808", "is not an integer of 64 bits");
    write_adapted("StringLookup", "3", "int", "[UNK]\na\na", 0);
    assert_null(mu_load_model("a.keras"));
    expect_error(MU_INVALID_ARGUMENT, "vocabulary[2] is the same as token 0");
    write_adapted("StringLookup", "3", "tf_idf", "[UNK]\na\nb", 3);
    mu_model *model = mu_load_model("a.keras");
    if (!model)
        fail_msg("%s", mu_error_message());
    mu_tensor *y = mu_call(model, mu_tensor_strings(2, (int64_t[]){1, 2}, (const char *const[]){"b", "b"}));
    assert_true(y && mu_tensor_item(y, 2) == 6);
    write_adapted("StringLookup", "3", "tf_idf", "[UNK]\na\nb", 2);
    assert_null(mu_load_model("a.keras"));
    expect_error(MU_DATA_LOSS, "are not a number for each of the 3 tokens");
}

// A model whose look-ups weigh tokens, with weights that are `times` as large.
static mu_model *weighing(double times)
{
    const double idf[] = {.5 * times, times, 2 * times}, with_special[] = {3 * times, times, 2 * times, 6 * times};
    static const char *const special[] = {"[UNK]", "ann", "bob", "cy"};
    mu_tensor *user = mu_input({2}, .dtype = MU_STRING), *title = mu_input({0}, .dtype = MU_STRING);
    mu_layer *names_of = mu_string_lookup(.vocabulary = special, .n_vocabulary = 4, .output_mode = "tf_idf",
                                          .idf_weights = with_special, .n_idf_weights = 4);
    mu_layer *text =
        mu_text_vectorization(.vocabulary = words, .n_vocabulary = 3, .output_mode = "tf_idf", .idf_weights = idf,
                              .n_idf_weights = 3, .max_tokens = 6, .pad_to_max_tokens = true);
    mu_value *both = mu_list(mu_call(names_of, user), mu_call(text, title), MU_END);
    mu_tensor *out = mu_call(mu_dense(2, .kernel_initializer = "ones"), mu_call(mu_concatenate(), .inputs = both));
    return mu_model_new(.inputs = mu_list(user, title, MU_END), .output = out);
}

static mu_value *weighed_inputs(void)
{
    mu_tensor *pairs = mu_tensor_strings(2, (int64_t[]){2, 2}, (const char *const[]){"ann", "cy", "bob", "x"});
    mu_tensor *texts = mu_tensor_strings(1, (int64_t[]){2}, (const char *const[]){"cat sat", "dog y"});
    return mu_list(pairs, texts, MU_END);
}

static mu_tensor *weighed(mu_model *model)
{
    mu_tensor *y = mu_value_tensor(mu_call_values(model, .inputs = weighed_inputs()));
    if (!y)
        fail_msg("%s", mu_error_message());
    return y;
}

static void idf_weights_are_loaded(void **state)
{
    (void)state;
    static const char *const files[] = {"idf.weights.h5", "idf.ckpt", "idf.keras"};
    mu_model *model = weighing(2);
    for (int i = 0; i < 3; i++) {
        mu_model *other = weighing(1);
        assert_true(apart(weighed(other), weighed(model)) > 1);
        assert_int_equal(i == 2 ? mu_save_model(model, files[i]) : mu_save_weights(model, files[i]), MU_OK);
        if (mu_load_weights(other, files[i]) != MU_OK)
            fail_msg("%s", mu_error_message());
        assert_true(apart(weighed(other), weighed(model)) < 1e-12);
        mu_model *read = mu_layer_from_config(mu_layer_config(other)); // the configuration has them too
        assert_true(apart(weighed(read), weighed(model)) < 1e-12);
    }
    mu_model *unpadded = mu_sequential(mu_string_lookup(.vocabulary = names, .n_vocabulary = 3, .output_mode = "tf_idf",
                                                        .idf_weights = (double[]){1, 2, 3}, .n_idf_weights = 3),
                                       mu_dense(1));
    mu_model *shorter = mu_sequential(mu_string_lookup(.vocabulary = names, .n_vocabulary = 2, .output_mode = "tf_idf",
                                                       .idf_weights = (double[]){1, 2}, .n_idf_weights = 2),
                                      mu_dense(1));
    assert_int_equal(mu_model_build(unpadded, 2, (int64_t[]){MU_UNKNOWN, 2}), MU_OK);
    assert_int_equal(mu_model_build(shorter, 2, (int64_t[]){MU_UNKNOWN, 2}), MU_OK);
    assert_int_equal(mu_save_weights(unpadded, "long.weights.h5"), MU_OK);
    assert_int_equal(mu_load_weights(shorter, "long.weights.h5"), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "has 3 indices; give it the vocabulary that it had when the file was saved");
    assert_int_equal(mu_load_weights(shorter, "long.weights.h5", .skip_mismatch = true), MU_OK);
}

// ---- Steps of the program's own -----------------------------------------------------------------

// The tensors that a step calls the model on.
typedef enum step_inputs { WHOLE, ORDERED, TWICE, ALONE, SWAPPED, CHANGED } step_inputs;

static mu_tensor *predicted(mu_model *model, mu_value *x, step_inputs which)
{
    if (which == ORDERED)
        x = mu_list(mu_value_get(x, "user"), mu_value_get(x, "movies"), mu_value_get(x, "title"), MU_END);
    if (which == SWAPPED)
        x = mu_list(mu_at(x, 2), mu_at(x, 1), mu_at(x, 0), MU_END);
    if (which == CHANGED)
        x = mu_list(mu_at(x, 0), mu_add(mu_at(x, 1), mu_constant(MU_I64, 1)), mu_at(x, 2), MU_END);
    mu_tensor *y = mu_value_tensor(mu_call_values(model, .inputs = x, .training = true));
    mu_tensor *again = which == TWICE ? mu_value_tensor(mu_call_values(model, .inputs = x)) : NULL;
    return again ? mu_multiply(mu_add(y, again), mu_constant(MU_F64, .5)) : y;
}

// The step of fit with the sum of squares as its loss.
static mu_tensor *own_train(mu_model *model, mu_value *batch, void *arg)
{
    const step_inputs which = *(const step_inputs *)arg;
    mu_value *x = which == ALONE ? batch : mu_value_at(batch, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = predicted(model, x, which);
    mu_tensor *squares = y ? mu_square(which == ALONE ? y : mu_subtract(y, mu_at(batch, 1))) : NULL;
    mu_tensor *loss = squares ? mu_reduce_sum(squares, MU_ALL_AXES) : NULL;
    mu_value *gradients = mu_gradients(tape, loss, mu_trainable_variables(model));
    mu_tape_close(tape);
    return mu_apply_gradients(mu_model_optimizer(model), gradients) == MU_OK ? mu_reduce_mean(squares, MU_ALL_AXES)
                                                                             : NULL;
}

static mu_tensor *own_test(mu_model *model, mu_value *batch, void *arg)
{
    mu_tensor *y = predicted(model, mu_value_at(batch, 0), *(const step_inputs *)arg);
    return y ? mu_reduce_mean(mu_square(mu_subtract(y, mu_at(batch, 1))), MU_ALL_AXES) : NULL;
}

static void compile_own(mu_model *model, step_inputs *which, bool eagerly)
{
    if (mu_compile(model, .optimizer = mu_sgd(.learning_rate = .01), .train_step = own_train, .test_step = own_test,
                   .step_arg = which, .run_eagerly = eagerly) != MU_OK)
        fail_msg("%s", mu_error_message());
}

// Returns the model trained under the strategy `kind` by fit's own step or, if `which` is given, by the program's.
static mu_model *stepped(int kind, step_inputs *which, bool eagerly)
{
    mu_model *model = NULL;
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(samples()), 5);
    MU_SCOPE(strategy_of(kind)) {
        mu_set_seed(5);
        model = recommender();
        if (which)
            compile_own(model, which, eagerly);
        else if (mu_compile(model, .optimizer = mu_sgd(.learning_rate = .01),
                            .loss = mu_mean_squared_error_loss(.reduction = "sum")) != MU_OK)
            fail_msg("%s", mu_error_message());
    }
    last_loss(mu_fit(model, which && *which == ORDERED ? mu_dataset_map(data, by_name, NULL) : data, .epochs = 4,
                     .verbose = MU_VERBOSE_SILENT));
    return model;
}

static void steps_of_the_programs_own(void **state)
{
    (void)state;
    mu_tensor *whole = call_on(stepped(-1, NULL, false));
    static const struct {
        int kind;
        step_inputs which;
        bool eagerly;
    } rows[] = {{-1, WHOLE, false}, {-1, WHOLE, true},           {0, ORDERED, false},
                {-1, TWICE, false}, {2, WHOLE, false},           {2, ORDERED, true},
                {3, TWICE, false},  {CENTRAL + 2, WHOLE, false}, {SERVED + 1, WHOLE, false}};
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        step_inputs which = rows[i].which;
        mu_model *model = stepped(rows[i].kind, &which, rows[i].eagerly);
        const double far = apart(call_on(model), whole);
        if (!(far < 1e-9))
            fail_msg("row %zu: apart by %g", i, far);
        if (which == ORDERED)
            continue;
        mu_tensor *squares = mu_square(mu_subtract(call_on(model), scores()));
        assert_number(last_loss(mu_evaluate(model, samples(), .batch_size = 5, .verbose = MU_VERBOSE_SILENT)),
                      mu_scalar(mu_reduce_mean(squares, MU_ALL_AXES)), 1e-9);
        last_loss(mu_train_on_batch(model, inputs(), scores()));
    }
}

static void steps_take_inputs_alone(void **state)
{
    (void)state;
    step_inputs which = ALONE;
    mu_model *model = recommender();
    compile_own(model, &which, false);
    const double first = mu_scalar(mu_reduce_mean(mu_square(call_on(model)), MU_ALL_AXES));
    mu_value *x = mu_map("user", users(), "title", titles(), "movies", seen(), MU_END);
    last_loss(mu_fit(model, x, .epochs = 10, .verbose = MU_VERBOSE_SILENT));
    assert_true(mu_scalar(mu_reduce_mean(mu_square(call_on(model)), MU_ALL_AXES)) < .5 * first);
}

static void steps_cannot_change_what_was_looked_up(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        step_inputs which = i % 2 ? CHANGED : SWAPPED;
        mu_model *model = recommender();
        compile_own(model, &which, i > 1);
        assert_null(mu_fit(model, samples(), .verbose = MU_VERBOSE_SILENT));
        expect_error(MU_INVALID_ARGUMENT, i % 2 ? "not those of the step's batch: input movies"
                                                : "not those of the step's batch: input user");
    }
}

static void refuses_by_name(void **state)
{
    (void)state;
    mu_tensor *user = mu_input({0}, .dtype = MU_STRING, .name = "user"), *x = mu_input({2});
    assert_null(mu_call(mu_string_lookup(.vocabulary = names, .n_vocabulary = 3), x));
    expect_error(MU_INVALID_ARGUMENT, "looks up strings; the input is float64");
    assert_null(mu_call(mu_dense(2), user));
    expect_error(MU_INVALID_ARGUMENT, "holds strings");
    mu_model *late = mu_model_new(
        x, mu_call(mu_dense(1), mu_call(mu_discretization(.bin_boundaries = (double[]){0}, .n_bin_boundaries = 1), x)));
    assert_non_null(late);
    mu_tensor *bins =
        mu_call(mu_discretization(.bin_boundaries = (double[]){0}, .n_bin_boundaries = 1), mu_call(mu_dense(2), x));
    mu_tensor *out = mu_call(mu_dense(1), mu_call(mu_hashing(3, .output_mode = "multi_hot"), bins));
    late = mu_model_new(x, out);
    compile(late, false);
    mu_tensor *row = numbers(2, (int64_t[]){4, 2}, 1), *y = numbers(2, (int64_t[]){4, 1}, 1);
    assert_null(mu_fit(late, mu_list(row, y, MU_END), .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_FAILED_PRECONDITION, "a layer that looks values up follows layer 'dense");
    late = mu_sequential(mu_dense(2), mu_integer_lookup(.vocabulary = movies, .n_vocabulary = 3));
    compile(late, false);
    assert_null(mu_fit(late, mu_list(row, y, MU_END), .verbose = MU_VERBOSE_SILENT));
    expect_error(MU_FAILED_PRECONDITION, "or is not built (mu_model_build)");
    mu_layer *bytes = mu_string_lookup(.vocabulary = (const char *const[]){"a", "\xff"}, .n_vocabulary = 2);
    assert_null(mu_layer_config(bytes));
    expect_error(MU_INVALID_ARGUMENT, "vocabulary[1] is not UTF-8");
    mu_string zero = {"a\0b", 3};
    mu_tensor *data = mu_tensor_byte_strings(1, (int64_t[]){1}, &zero);
    mu_layer *weighted = mu_string_lookup(.output_mode = "tf_idf");
    for (int adapted = 0; adapted < 2; adapted++) { // earlier weights are kept
        assert_int_equal(mu_adapt(weighted, mu_dataset_from_tensors(mu_of(data))), MU_INVALID_ARGUMENT);
        expect_error(MU_INVALID_ARGUMENT, "has a byte 0");
        assert_true((mu_vocabulary(weighted) != NULL) == adapted);
        mu_error_take();
        mu_tensor *weights = NULL;
        assert_int_equal(mu__lookup_weights(weighted, &weights), MU_OK);
        assert_true((weights != NULL) == adapted);
        assert_int_equal(mu_adapt(weighted, mu_dataset_from_tensors(mu_of(mu_string_scalar("a")))), MU_OK);
    }
    mu_model *model = recommender();
    assert_null(mu_call_values(model, .inputs = mu_list(seen(), seen(), titles(), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "input 'user' takes string; it was given int64");
    assert_null(mu_call_values(model, .inputs = mu_list(users(), users(), titles(), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "input 'movies' takes int64; it was given string");
}

// Checkpoints contain the empty tables that Keras keeps of adapted look-ups; those of look-ups that were not adapted
// have none.
static void checkpoints_have_empty_tables(void **state)
{
    (void)state;
    for (int adapted = 0; adapted < 2; adapted++) {
        mu_layer *words_of = adapted
                                 ? mu_string_lookup(.output_mode = "multi_hot")
                                 : mu_string_lookup(.output_mode = "multi_hot", .vocabulary = names, .n_vocabulary = 3);
        if (adapted)
            assert_int_equal(mu_adapt(words_of, users()), MU_OK);
        mu_tensor *x = mu_input({1}, .dtype = MU_STRING);
        mu_model *model = mu_model_new(x, mu_call(mu_dense(2), mu_call(words_of, x)));
        assert_int_equal(mu_save_weights(model, "tables.ckpt"), MU_OK);
        mu_tensor_file *file = mu_tensor_file_open("tables.ckpt");
        assert_non_null(file);
        const int at = mu_tensor_file_find(file, "model/_operations/1/token_counts/.ATTRIBUTES/table-values");
        assert_int_equal(at >= 0, adapted);
        assert_int_equal(adapted ? mu_tensor_file_shape(file, at).dims[0] : 0, 0);
        assert_int_equal(mu_load_weights(model, "tables.ckpt"), MU_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(trains_on_strings),
        MODEL_TEST(takes_data_in_every_form),
        MODEL_TEST(models_in_models),
        MODEL_TEST(sequential_models_begin_with_strings),
        MODEL_TEST(strings_fit_their_input),
        MODEL_TEST(strings_fit_the_input_of_a_model_inside),
        MODEL_TEST(vocabularies_are_saved),
        MODEL_TEST(reads_vocabularies_of_assets),
        MODEL_TEST(idf_weights_are_loaded),
        MODEL_TEST(checkpoints_have_empty_tables),
        MODEL_TEST(steps_of_the_programs_own),
        MODEL_TEST(steps_take_inputs_alone),
        MODEL_TEST(steps_cannot_change_what_was_looked_up),
        MODEL_TEST(refuses_by_name),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
