// Common mistakes of users, one row each: what the message must name (the cause) and what it must advise (the remedy).
// Each message also names the line of this file, and comes before a step has run.
#include "../unit/base/base_test.h"
#include "../unit/model/model_test.h"
#include "model/callbacks/callback_class.h"
#include "model/core/layer.h"

#include <muster.h>

static mu_model *model;
static mu_dataset *rows, *one_hot, *endless;
static int steps;
static const char *folder; // for files of this run

static mu_status count_step(const mu_logs *logs, void *arg)
{
    (void)logs, (void)arg;
    steps++;
    return MU_OK;
}

static mu_callback *counter(void) { return mu_callback_new(.on_batch_end = count_step); }

static mu_model *three_classes(void)
{
    mu_model *made = mu_sequential(mu_dense(3));
    mu_compile(made, .optimizer = "sgd", .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    return made;
}

static void set_up(void)
{
    model = three_classes();
    rows = rows_and_classes(12, 4, 3, 4);
    one_hot = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(numbers(2, (const int64_t[]){12, 4}, 1),
                                                                     numbers(2, (const int64_t[]){12, 3}, 2), MU_END)),
                               4);
    endless = mu_dataset_repeat(rows, -1);
}

static mu_model *compiled(mu_layer *layer, const char *loss)
{
    mu_model *made = mu_sequential(layer);
    mu_compile(made, .optimizer = "sgd", .loss = loss);
    return made;
}

static mu_model *with_metric(const void *metric)
{
    mu_compile(model, .optimizer = "sgd", .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
               .metrics = metric);
    return model;
}

static mu_model *of_width(int64_t width)
{
    mu_tensor *x = mu_input({width}, .name = "x");
    mu_model *made = mu_model_new(x, mu_call(mu_dense(1), x));
    mu_compile(made, .optimizer = "sgd", .loss = "mse");
    return made;
}

static mu_model *two_outputs(mu_items *loss)
{
    mu_tensor *left = mu_input({3}, .name = "left"), *right = mu_input({2}, .name = "right");
    mu_tensor *h = mu_call(mu_concatenate(), .inputs = mu_list(left, right, MU_END));
    mu_model *made = mu_model_new(.inputs = mu_list(left, right, MU_END),
                                  .outputs = mu_list(mu_call(mu_dense(1, .name = "a"), h),
                                                     mu_call(mu_dense(1, .name = "b"), h), MU_END));
    mu_compile(made, .optimizer = "sgd", .loss = loss);
    return made;
}

#define BOTH_LOSSES MU_BY_NAME("a", "mse", "b", "mae")
#define PAIR(first, second)                                                        \
    mu_map(first, numbers(DIMS(6, 3), 1), second, numbers(DIMS(6, 2), 2), MU_END), \
        mu_map("a", numbers(DIMS(6, 1), 3), "b", numbers(DIMS(6, 1), 4), MU_END)

#define FIT(...) mu_fit(__VA_ARGS__, .callbacks = MU_CALLBACKS(counter()), .verbose = MU_VERBOSE_SILENT)

static mu_value *unchanged(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    return inputs;
}

static mu_model *with_own_layer(void)
{
    mu_model *made = mu_sequential(mu_layer_new("mine", .call = unchanged), mu_dense(3));
    mu_compile(made, .optimizer = "sgd", .loss = "mse");
    return made;
}

// ---- The mistakes -------------------------------------------------------------------------------

static mu_value *two_scopes(void)
{
    MU_SCOPE(mu_mirrored_strategy())
        MU_SCOPE(mu_one_device_strategy("CPU:0"))
            mu_variable_new(mu_constant(MU_F64, 1), "v");
    return NULL;
}

static mu_value *square(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_square(mu_value_tensor(arguments)));
}

static mu_checkpoint *same_names(void)
{
    mu_variable *a = mu_variable_new(mu_constant(MU_F64, 1), "v"), *b = mu_variable_new(mu_constant(MU_F64, 2), "v");
    return mu_checkpoint_new(.variables = mu_variables(a, b, MU_END));
}

// Both have the variables dense/kernel and dense/bias.
static mu_checkpoint *two_models(void)
{
    mu_model *other = three_classes();
    mu_model_build(model, 1, (const int64_t[]){4});
    mu_model_build(other, 1, (const int64_t[]){2});
    mu_value *both[] = {mu_model_weights(model), mu_model_weights(other)};
    return mu_checkpoint_new(.variables = mu_list_of(2, both));
}

static mu_model *one_layer_twice(void)
{
    mu_layer *layer = mu_dense(3);
    return mu_sequential(layer, layer);
}

static mu_model *built(void)
{
    mu_model_build(model, 1, (const int64_t[]){4});
    return model;
}

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static mu_status other_weights(void)
{
    mu_model *other = mu_sequential(mu_dense(5));
    mu_model_build(other, 1, (const int64_t[]){4});
    built();
    mu_save_weights(other, path_of("other.safetensors"));
    return mu_load_weights(model, path_of("other.safetensors"));
}

static mu_status no_weights_file(void)
{
    FILE *file = fopen(path_of("notes.txt"), "w");
    fputs("these are no weights", file);
    fclose(file);
    return mu_load_weights(built(), path_of("notes.txt"));
}

static const char *csv_with_header(void)
{
    FILE *file = fopen(path_of("header.csv"), "w");
    fputs("a,b\n1,2\n", file);
    fclose(file);
    return path_of("header.csv");
}

#define DIMS(...) \
    (int)MU_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]) { __VA_ARGS__ }
#define IMAGE DIMS(2, 8, 8, 1)

typedef struct mistake {
    const char *name, *cause, *cure;
} mistake;

#define MISTAKES(ROW)                                                                                                  \
    ROW(loss_name, mu_compile(model, .loss = "mse_loss"), "no loss is named 'mse_loss'", "mean_squared_error")         \
    ROW(optimizer_name, mu_compile(model, .loss = "mse", .optimizer = "addam"), "'addam'", "sgd, adam")                \
    ROW(metric_name, mu_compile(model, .loss = "mse", .metrics = "acuracy"), "'acuracy'", "one of accuracy")           \
    ROW(activation_name, mu_dense(3, .activation = "rellu"), "'rellu'", "relu")                                        \
    ROW(initializer_name, mu_dense(3, .kernel_initializer = "glorot"), "'glorot'", "glorot_uniform")                   \
    ROW(padding_name, mu_conv2d(3, 3, .padding = "full"), "padding is 'full'", "'same'")                               \
    ROW(no_units, mu_dense(), "units is 0", "1 or more")                                                               \
    ROW(dropout_in_percent, mu_dropout(20), "rate is 20", "from 0 to below 1")                                         \
    ROW(negative_rate, mu_adam(.learning_rate = -0.1), "learning_rate is -0.1", "0 or more")                           \
    ROW(momentum_above_one, mu_sgd(.momentum = 9), "momentum is 9", "below 1")                                         \
    ROW(no_decay_steps, mu_exponential_decay(0.1, 0, 0.9), "decay_steps is 0", "1 or more")                            \
    ROW(not_compiled, mu_fit(mu_sequential(mu_dense(3)), rows), "not compiled", "call mu_compile")                     \
    ROW(no_loss, mu_compile(model), "mu_compile", "give a loss")                                                       \
    ROW(no_batches, FIT(model, mu_dataset_unbatch(rows)), "given [?]", "mu_dataset_batch")                             \
    ROW(no_labels, FIT(model, mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(numbers(DIMS(8, 4), 1))), 4)),      \
        "1 part", "a list of inputs and labels")                                                                       \
    ROW(one_hot_labels, FIT(model, one_hot), "got float64", "categorical cross-entropy")                               \
    ROW(endless_data, FIT(model, endless), "repeats for ever", ".steps_per_epoch")                                     \
    ROW(endless_validation, FIT(model, rows, .validation_data = endless), "repeats for ever", ".validation_steps")     \
    ROW(no_data, FIT(model, mu_dataset_take(rows, 0)), "no batch", "take, filter")                                     \
    ROW(other_columns, (FIT(model, rows, .epochs = 1), FIT(model, rows_and_classes(8, 5, 3, 4))), "5 and 4",           \
        "in layer 'dense'")                                                                                            \
    ROW(label_out_of_range, FIT(model, rows_and_classes(8, 4, 9, 4)), "label", "as many units as there are classes")   \
    ROW(inputs_and_labels_differ, FIT(model, numbers(DIMS(8, 4), 1), classes(7, 3, 1)), "7 rows", "the same number")   \
    ROW(negative_batch, FIT(model, numbers(DIMS(8, 4), 1), classes(8, 3, 1), .batch_size = -1),                        \
        "batch size is negative", "leave it out for 32")                                                               \
    ROW(negative_epochs, FIT(model, rows, .epochs = -3), "epochs -3", "none may be negative")                          \
    ROW(stopping_without_validation,                                                                                   \
        mu_fit(model, rows, .callbacks = MU_CALLBACKS(mu_early_stopping(.monitor = "val_loss"), counter())),           \
        "'val_loss'", "give that to mu_fit")                                                                           \
    ROW(monitor_misspelt,                                                                                              \
        mu_fit(model, rows, .callbacks = MU_CALLBACKS(mu_reduce_lr_on_plateau(.monitor = "los"), counter())), "'los'", \
        "logged are 'loss'")                                                                                           \
    ROW(path_with_unknown_name,                                                                                        \
        mu_fit(model, rows, .callbacks = MU_CALLBACKS(mu_model_checkpoint("w{val_acc:.2f}.x"), counter())),            \
        "{val_acc}", "'epoch'")                                                                                        \
    ROW(checkpoint_of_a_model_with_an_own_layer,                                                                       \
        mu_fit(with_own_layer(), numbers(DIMS(4, 3), 1), numbers(DIMS(4, 3), 2),                                       \
               .callbacks = MU_CALLBACKS(mu_model_checkpoint("best.keras"), counter())),                               \
        "'mine'", "mu_save_weights")                                                                                   \
    ROW(weights_alone_in_a_file_of_models, mu_model_checkpoint("best.keras", .save_weights_only = true),               \
        "'best.keras'", ".weights.h5")                                                                                 \
    ROW(kernel_larger_than_image, mu_call(mu_conv2d(2, 9), mu_ones(MU_F64, IMAGE)), "a window that spans 9",           \
        "an extent of 8")                                                                                              \
    ROW(image_without_channels, mu_call(mu_conv2d(2, 3), mu_ones(MU_F64, DIMS(2, 8, 8))), "[?, 8, 8]", "rank 4")       \
    ROW(sequence_without_features, mu_call(mu_lstm(4), mu_ones(MU_F64, DIMS(2, 8))), "[?, 8]", "rank 3")               \
    ROW(id_out_of_range, mu_call(mu_embedding(10, 4), mu_fill(MU_I64, DIMS(2, 3), 10)), "index 10", "0 to 9")          \
    ROW(plugin_that_is_not_there, mu_one_device_strategy("TPU:0"),                                                     \
        "The plugin tpu cannot be used: plugin /nowhere.so", "there are CPU:0")                                        \
    ROW(layer_used_twice_in_a_row, one_layer_twice(), "layers 0 and 1", "the same object")                             \
    ROW(shapes_that_do_not_fit, mu_matmul(numbers(DIMS(2, 3), 1), numbers(DIMS(2, 3), 1)), "3 and 2", "must be equal") \
    ROW(types_that_do_not_fit, mu_add(mu_constant(MU_F32, 1), mu_constant(MU_I32, 1)), "float32 and int32", "mu_cast") \
    ROW(reshape_of_other_size, mu_reshape(numbers(DIMS(2, 3), 1), DIMS(4, 2)), "[2, 3] cannot become [4, 2]",          \
        "numbers of elements")                                                                                         \
    ROW(index_out_of_range, mu_gather(mu_ones(MU_F64, DIMS(3)), mu_constant(MU_I32, 3), 0, 0), "index 3", "0 to 2")    \
    ROW(variable_for_a_tensor,                                                                                         \
        mu_add((mu_tensor *)(void *)mu_variable_new(mu_constant(MU_F64, 1), "v"), mu_constant(MU_F64, 1)),             \
        "kind variable", "mu_variable_read")                                                                           \
    ROW(device_that_is_not_there, mu_one_device_strategy("GPU:0"), "'GPU:0'", "muster plugin install")                 \
    ROW(too_many_replicas, mu_mirrored_strategy(.replicas = 99), "99 replicas", "MUSTER_CPU_DEVICES")                  \
    ROW(strategies_mixed, two_scopes(), "inside a scope of MirroredStrategy", "may not be mixed")                      \
    ROW(components_for_other_replicas,                                                                                 \
        mu_run(mu_mirrored_strategy(.replicas = 3), mu_function_new(square, NULL),                                     \
               mu_per_replica(mu_mirrored_strategy(.replicas = 2), mu_constant(MU_F64, 1), mu_constant(MU_F64, 2),     \
                              MU_END)),                                                                                \
        "2 components", "one component for each replica")                                                              \
    ROW(function_that_is_null, mu_run(mu_default_strategy(), NULL, NULL), "mu_run", "the function is NULL")            \
    ROW(model_without_weights, mu_load_weights(model, "nowhere.safetensors"), "no weights yet", "mu_model_build")      \
    ROW(weights_that_are_not_there, mu_load_weights(built(), "nowhere.safetensors"), "nowhere.safetensors",            \
        "No such file")                                                                                                \
    ROW(weights_of_another_model, other_weights(), "float64[4, 5]", "the model's is float64[4, 3]")                    \
    ROW(file_without_weights, no_weights_file(), "notes.txt", "muster convert --help")                                 \
    ROW(names_twice_in_a_checkpoint, same_names(), "named 'v'", "another name")                                        \
    ROW(two_models_in_a_checkpoint, two_models(), "named 'dense/kernel'", "give the objects names in .objects")        \
    ROW(loss_of_another_output, two_outputs(MU_BY_NAME("a", "mse", "c", "mae")), "'c'", "its outputs are 'a', 'b'")    \
    ROW(output_without_a_loss, two_outputs(MU_BY_NAME("a", "mse")), "1 of the outputs 'a', 'b'", "NULL")               \
    ROW(metric_of_another_output,                                                                                      \
        mu_compile(two_outputs(BOTH_LOSSES), .loss = "mse", .metrics = MU_BY_NAME("bb", "mae")), "'bb'",               \
        "its outputs are 'a', 'b'")                                                                                    \
    ROW(metrics_without_outputs, mu_compile(two_outputs(BOTH_LOSSES), .loss = "mse", .metrics = "mae"),                \
        "1 metrics for a model with the outputs 'a', 'b'", "MU_BY_NAME")                                               \
    ROW(input_misspelt, FIT(two_outputs(BOTH_LOSSES), PAIR("left", "rihgt")), "lacks 'right'", "'left', 'right'")      \
    ROW(labels_misspelt,                                                                                               \
        FIT(two_outputs(BOTH_LOSSES), mu_list(numbers(DIMS(6, 3), 1), numbers(DIMS(6, 2), 2), MU_END),                 \
            mu_map("a", numbers(DIMS(6, 1), 3), "B", numbers(DIMS(6, 1), 4), MU_END)),                                 \
        "key 'B'", "its outputs are 'a', 'b'")                                                                         \
    ROW(objects_without_names, mu_checkpoint_new(.objects = MU_ITEMS(model)), "no names", "MU_BY_NAME")                \
    ROW(option_misspelt_in_json, mu_layer_from_config("{\"class_name\": \"Dense\", \"config\": {\"unit\": 3}}"),       \
        "no option 'unit'", "The options are units, activation")                                                       \
    ROW(class_numbers_for_one_hot_labels,                                                                              \
        FIT(compiled(mu_dense(3), "categorical_crossentropy"), numbers(DIMS(8, 4), 1), classes(8, 3, 1)),              \
        "shape [8] and the predictions [8, 3]", "sparse_categorical_crossentropy")                                     \
    ROW(a_label_for_two_outputs, FIT(compiled(mu_dense(2), "bce"), numbers(DIMS(8, 4), 1), numbers(DIMS(8, 1), 2)),    \
        "shape [8, 1] and the predictions [8, 2]", "as many units")                                                    \
    ROW(flatten_forgotten,                                                                                             \
        FIT(compiled(mu_conv2d(3, 3), "sparse_categorical_crossentropy"), mu_ones(MU_F64, IMAGE), classes(2, 3, 1)),   \
        "predictions [2, 6, 6, 3]", "mu_flatten")                                                                      \
    ROW(steps_forgotten,                                                                                               \
        FIT(compiled(mu_sequential(mu_lstm(4), mu_lstm(4)), "mse"), numbers(DIMS(4, 8, 2), 1),                         \
            numbers(DIMS(4, 1), 2)),                                                                                   \
        "layer 'lstm_1'", ".return_sequences = true")                                                                  \
    ROW(a_weight_for_each_feature,                                                                                     \
        FIT(model, numbers(DIMS(8, 4), 1), classes(8, 3, 1), .sample_weight = mu_ones(MU_F64, DIMS(8, 4))),            \
        "weights of samples have shape [8, 4]", "[batch]")                                                             \
    ROW(op_on_an_input, mu_nn_relu(mu_input({3})), "input 0 is symbolic", "call a layer on it")                        \
    ROW(data_of_another_width, FIT(of_width(3), numbers(DIMS(8, 4), 1), numbers(DIMS(8, 1), 2)),                       \
        "input 'x' has shape [?, 3] and was given [8, 4]", "MU_UNKNOWN")                                               \
    ROW(data_of_another_width_in_a_row,                                                                                \
        FIT(compiled(mu_sequential(mu_input_layer({3}, .name = "x"), mu_dense(1)), "mse"), numbers(DIMS(8, 4), 1),     \
            numbers(DIMS(8, 1), 2)),                                                                                   \
        "input 'x' has shape [?, 3] and was given [8, 4]", "MU_UNKNOWN")                                               \
    ROW(rate_beside_a_schedule, mu_adam(.learning_rate = .1, .schedule = mu_exponential_decay(.1, 10, .9)),            \
        ".learning_rate and .schedule are both given", "give one of them")                                             \
    ROW(areas_of_class_numbers, FIT(with_metric("auc"), numbers(DIMS(8, 4), 1), classes(8, 3, 1)),                     \
        "metric 'auc': the labels have shape [8], the predictions [8, 3]", "mu_one_hot")                               \
    ROW(unions_of_probabilities, FIT(with_metric(mu_mean_iou_metric(3)), numbers(DIMS(8, 4), 1), classes(8, 3, 1)),    \
        "of predictions [8, 3]", ".dense_y_pred")                                                                      \
    ROW(value_of_another_type, mu_variable_assign(mu_model_weight(built(), "dense/bias"), mu_ones(MU_F32, DIMS(3))),   \
        "the value is float32[3], but variable 'dense/bias' is float64[3]", "mu_cast")                                 \
    ROW(numbers_of_an_input, mu_tensor_data(mu_input({3})), "symbolic and has no elements", "mu_model_new")            \
    ROW(mask_of_features, mu_call(mu_lstm(2), numbers(DIMS(2, 3, 4), 1), .mask = mu_ones(MU_BOOL, DIMS(2, 3, 4))),     \
        "its mask has shape [2, 3, 4]", "the first 2 axes of the input")                                               \
    ROW(arrays_without_labels, FIT(model, numbers(DIMS(8, 4), 1)), "1 part", "give the labels as y")                   \
    ROW(weights_without_a_length,                                                                                      \
        mu_compile(two_outputs(BOTH_LOSSES), .loss = BOTH_LOSSES, .loss_weights = &(double){1}),                       \
        ".loss_weights has 0 elements", "give 2, one for each loss")                                                   \
    ROW(metric_as_loss, mu_compile(model, .loss = mu_mean_metric("a")), "the loss is of type metric",                  \
        "expected loss or a name")                                                                                     \
    ROW(loss_as_metric, mu_compile(model, .loss = "mse", .metrics = mu_mean_squared_error_loss()),                     \
        "the metric is of type loss", "expected metric or a name")                                                     \
    ROW(file_as_data, FIT(model, "train.csv"), "x is of type text", "expected a dataset")                              \
    ROW(split_of_a_dataset, FIT(model, rows, .validation_split = .2), "validation_split takes rows of arrays",         \
        "mu_dataset_take")                                                                                             \
    ROW(validation_of_another_width, FIT(model, rows, .validation_data = rows_and_classes(8, 5, 3, 4)), "5 and 4",     \
        "in the validation data")                                                                                      \
    ROW(validation_of_another_width_for_known_inputs,                                                                  \
        FIT(of_width(4), numbers(DIMS(8, 4), 1), numbers(DIMS(8, 1), 2),                                               \
            .validation_data = mu_list(numbers(DIMS(8, 5), 1), numbers(DIMS(8, 1), 2), MU_END)),                       \
        "'x'", "before the first epoch")                                                                               \
    ROW(validation_without_labels, FIT(model, rows, .validation_data = numbers(DIMS(8, 4), 1)), "1 part",              \
        "in the validation data")                                                                                      \
    ROW(validation_labels_of_other_outputs,                                                                            \
        FIT(two_outputs(BOTH_LOSSES), PAIR("left", "right"),                                                           \
            .validation_data =                                                                                         \
                mu_list(mu_map("left", numbers(DIMS(6, 3), 1), "right", numbers(DIMS(6, 2), 2), MU_END),               \
                        numbers(DIMS(6, 1), 3), MU_END)),                                                              \
        "1 label for 2 outputs", "in the order of the outputs")                                                        \
    ROW(validation_of_words,                                                                                           \
        FIT(of_width(2), numbers(DIMS(2, 2), 1), numbers(DIMS(2, 1), 2),                                               \
            .validation_data = mu_list(mu_tensor_strings(DIMS(2, 2), (const char *const[]){"a", "b", "c", "d"}),       \
                                       numbers(DIMS(2, 1), 2), MU_END)),                                               \
        "string", "in the validation data")                                                                            \
    ROW(two_inputs_of_a_chain,                                                                                         \
        FIT(model, mu_list(numbers(DIMS(8, 4), 1), numbers(DIMS(8, 4), 2), MU_END), classes(8, 3, 1)),                 \
        "'dense' (Dense) takes one tensor; it was given 2", "mu_model_new")                                            \
    ROW(two_inputs_of_a_model_of_one,                                                                                  \
        FIT(of_width(4), mu_list(numbers(DIMS(8, 4), 1), numbers(DIMS(8, 4), 2), MU_END), numbers(DIMS(8, 1), 2)),     \
        "was given 2 tensors", "the order of .inputs")                                                                 \
    ROW(two_labels_of_one_output,                                                                                      \
        FIT(model, numbers(DIMS(8, 4), 1), mu_list(classes(8, 3, 1), classes(8, 3, 2), MU_END)),                       \
        "2 labels for 1 output", "the order of the outputs")                                                           \
    ROW(two_weights_of_one_output,                                                                                     \
        FIT(model, numbers(DIMS(8, 4), 1), classes(8, 3, 1),                                                           \
            .sample_weight = mu_list(numbers(DIMS(8), 1), numbers(DIMS(8), 2), MU_END)),                               \
        "2 tensors of sample weights for 1 output", "one for all")                                                     \
    ROW(split_in_percent, FIT(model, numbers(DIMS(8, 4), 1), classes(8, 3, 1), .validation_split = 20),                \
        "validation_split is 20", "below 1")                                                                           \
    ROW(batch_size_of_batches, FIT(model, rows, .batch_size = 16), "has its batches already", "leave out .batch_size") \
    ROW(weights_in_a_file_of_models, mu_save_weights(built(), path_of("m.keras")), "not weights alone",                \
        "use mu_save_model")                                                                                           \
    ROW(model_in_a_file_of_weights,                                                                                    \
        (mu_save_weights(built(), path_of("w.safetensors")), mu_load_model(path_of("w.safetensors"))),                 \
        "holds no model", "mu_load_weights")                                                                           \
    ROW(attention_of_one, mu_call(mu_multi_head_attention(2, 3), numbers(DIMS(2, 3, 4), 1)), "it was given 1 tensor",  \
        "mu_list(query, value, MU_END)")                                                                               \
    ROW(sum_of_one, mu_call(mu_add_layer(), numbers(DIMS(2, 3), 1)), "combines 2 or more tensors",                     \
        "mu_list(a, b, MU_END)")                                                                                       \
    ROW(input_left_out, mu_model_new(mu_input({3}), mu_call(mu_dense(1), mu_input({3}, .name = "other"))),             \
        "the input 'other'", "add it to .inputs")                                                                      \
    ROW(class_weights_without_a_length,                                                                                \
        FIT(model, numbers(DIMS(8, 4), 1), classes(8, 3, 1), .class_weight = (double[]){1, 2, 3}),                     \
        "n_class_weight is 0", "its length")                                                                           \
    ROW(optimizer_with_arguments, mu_compile(model, .loss = "mse", .optimizer = "Adam(0.1)"), "'Adam(0.1)'",           \
        "expected an object or one of")                                                                                \
    ROW(callback_by_name, mu_fit(model, rows, .callbacks = "early_stopping"), "'early_stopping'", "give an object")    \
    ROW(metric_twice, mu_compile(model, .loss = "mse", .metrics = MU_METRICS("mae", "mae")), "logged as 'mae'",        \
        "different names")                                                                                             \
    ROW(labels_from_minus_one, FIT(model, numbers(DIMS(8, 4), 1), mu_fill(MU_I64, DIMS(8), -1)), "label -1",           \
        "Count labels from 0")                                                                                         \
    ROW(header_read_as_numbers, mu_next(mu_iterate(mu_dataset_csv(csv_with_header(), .columns = 2))),                  \
        "column 1: \"a\"", ".skip_lines = 1")

#define RUN(name, call, cause, cure) \
    static void run_##name(void) { (void)(call); }
MISTAKES(RUN)

static const struct {
    const char *name;
    void (*run)(void);
    const char *cause, *cure;
} mistakes[] = {
#define LIST(name, call, cause, cure) {#name, run_##name, cause, cure},
    MISTAKES(LIST)};

// ---- The table ----------------------------------------------------------------------------------

static int complain(const char *name, const char *what, const char *part, const char *message)
{
    print_error("%s: the message lacks the %s \"%s\": %s\n", name, what, part, message);
    return 1;
}

static int check(int i)
{
    mu_pool *pool = mu_pool_open();
    set_up();
    steps = 0;
    mistakes[i].run();
    const mu_error error = mu_error_take();
    mu_pool_close(pool);
    const char *name = mistakes[i].name;
    if (error.code == MU_OK)
        return complain(name, "error", "any", "none");
    if (steps > 0 && strcmp(name, "other_columns") != 0) // which trains once, with the right ones
        return complain(name, "time", "before a step", error.message);
    return (!strstr(error.message, mistakes[i].cause) && complain(name, "cause", mistakes[i].cause, error.message)) ||
           (!strstr(error.message, mistakes[i].cure) && complain(name, "cure", mistakes[i].cure, error.message)) ||
           (!strstr(error.message, "test_mistakes.c:") && complain(name, "line", "test_mistakes.c", error.message));
}

static void messages_name_cause_and_cure(void **state)
{
    (void)state;
    int wrong = 0;
    folder = temporary_folder();
    for (size_t i = 0; i < MU_COUNT(mistakes); i++)
        wrong += check((int)i);
    remove_folder(folder);
    print_message("%d mistakes, %d messages lack something\n", (int)MU_COUNT(mistakes), wrong);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    setenv("PJRT_NAMES_AND_LIBRARY_PATHS", "tpu:/nowhere.so", 1);
    const struct CMUnitTest tests[] = {MODEL_TEST(messages_name_cause_and_cure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
