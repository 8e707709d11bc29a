// Models whose build and call are C functions: their layers by attribute, the training mode inside, inputs and outputs
// by name, clones, files, the summary and the picture, steps of the program's own, and the names in errors.
#include "model_test.h"

#include "../scratch.h"

#include <muster/plot.h>
#include <muster/recurrent.h>
#include <muster/saved_model.h>
#include <muster/spatial.h>

// y = dropped(first(x)) · scale, and a loss of half of the sum of y. The layers are not given the mode: they take the
// model's.
static mu_status pair_build(mu_layer *model, int n, const mu_shape *inputs, void *arg)
{
    (void)n, (void)inputs, (void)arg;
    return mu_layer_add_weight(model, "scale", ((mu_shape){1, {3}}), .initializer = "ones") ? MU_OK : mu_error_code();
}

static mu_value *pair_call(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    mu_tensor *h = mu_call(mu_layer_attribute(model, "first"), mu_at(inputs, 0));
    h = mu_multiply(mu_call(mu_layer_attribute(model, "noise"), h), mu_variable_read(mu_layer_weight(model, "scale")));
    return mu_map("whole", h, "half", mu_multiply(mu_reduce_sum(h, -1, .keep_dims = true), mu_constant(MU_F64, .5)),
                  MU_END);
}

static mu_model *pair_model(double rate)
{
    mu_model *model = mu_model_subclass("pair_model", .build = pair_build, .call = pair_call);
    mu_layer_set_attribute(model, "first", mu_dense(3, .name = "entry"));
    return mu_layer_set_attribute(model, "noise", mu_dropout(rate)) == MU_OK ? model : NULL;
}

static mu_tensor *whole_of(mu_value *outputs) { return mu_value_tensor(mu_value_get(outputs, "whole")); }

static void layers_have_the_mode_of_the_model(void **state)
{
    (void)state;
    mu_model *model = pair_model(.9), *around = mu_sequential(mu_dense(2), pair_model(.9));
    mu_tensor *x = numbers(2, (int64_t[]){200, 2}, 1);
    for (int training = 0; training < 2; training++) {
        int zeros = 0, nested = 0;
        const double *y = doubles(whole_of(mu_call_values(model, x, .training = training)));
        const double *z = doubles(whole_of(mu_call_values(around, x, .training = training)));
        for (int i = 0; i < 600; i++) {
            zeros += y[i] == 0;
            nested += z[i] == 0;
        }
        assert_true(training ? zeros > 480 && nested > 480 : zeros == 0 && nested == 0);
    }
}

static void weights_have_paths(void **state)
{
    (void)state;
    static const char *const paths[] = {"scale", "entry/kernel", "entry/bias"};
    mu_model *model = pair_model(0);
    mu_call_values(model, mu_input({2})); // makes the weights
    mu_value *weights = mu_model_weights(model);
    assert_int_equal(mu_value_count(weights), 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(mu_variable_name(mu_value_variable(mu_value_at(weights, i))), paths[i]);
        assert_non_null(mu_model_weight(model, paths[i]));
    }
    assert_non_null(mu_sequential(model));
    assert_string_equal(mu_variable_name(mu_layer_weight(model, "scale")), "pair_model/scale");
    assert_int_equal(mu_model_layer_count(model), 2);
    assert_ptr_equal(mu_model_layer(model, "entry"), mu_layer_attribute(model, "first"));
    assert_ptr_equal(mu_model_layer_at(model, 1), mu_layer_attribute(model, "noise"));
}

// Labels and losses under the outputs' names, in another order than that of the map.
static void outputs_are_found_by_name(void **state)
{
    (void)state;
    mu_tensor *x = numbers(2, (int64_t[]){10, 2}, 1), *whole = numbers(2, (int64_t[]){10, 3}, 2),
              *half = numbers(2, (int64_t[]){10, 1}, 3);
    double last[2];
    for (int order = 0; order < 2; order++) {
        mu_model *model = pair_model(0);
        mu_set_seed(3);
        mu_call_values(model, x);
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1),
                   .loss =
                       order ? MU_BY_NAME("half", "mae", "whole", "mse") : MU_BY_NAME("whole", "mse", "half", "mae"),
                   .metrics = MU_BY_NAME("half", "mse"));
        mu_history *history = mu_fit(model, mu_list(x, mu_map("half", half, "whole", whole, MU_END), MU_END),
                                     .epochs = 2, .batch_size = 5, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
        assert_non_null(history);
        last[order] = mu_history_last(history, "whole_loss");
        assert_false(isnan(mu_history_last(history, "half_mse")));
    }
    assert_number(last[1], last[0], 1e-14);
    mu_model *model = pair_model(0);
    mu_compile(model, .optimizer = "sgd", .loss = MU_BY_NAME("whole", "mse", "third", "mae"));
    assert_null(mu_train_on_batch(model, mu_list(x, mu_list(whole, half, MU_END), MU_END)));
    expect_error(MU_INVALID_ARGUMENT,
                 "the model's outputs are a map with the keys 'whole', 'half', which lacks 'third'");
    mu_compile(model, .optimizer = "sgd", .loss = "mse");
    assert_null(mu_train_on_batch(model, mu_list(x, mu_list(whole, half, MU_END), MU_END)));
    expect_error(MU_INVALID_ARGUMENT,
                 "has 2 outputs and was compiled with 1 losses; give mu_compile .loss = MU_LOSSES(");
}

// A step of the program's own on replicas.
static mu_tensor *own_step(mu_model *model, mu_value *batch, void *optimizer)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = whole_of(mu_call_values(model, mu_at(batch, 0), .training = true));
    mu_tensor *errors = mu_reduce_mean(mu_square(mu_subtract(y, mu_at(batch, 1))), 1);
    mu_value *gradients = mu_gradients(tape, mu_compute_average_loss(errors), mu_trainable_variables(model));
    mu_tape_close(tape);
    return mu_apply_gradients(optimizer, gradients) == MU_OK ? mu_reduce_mean(errors, MU_ALL_AXES) : NULL;
}

static void steps_of_ones_own(void **state)
{
    (void)state;
    double losses[2];
    mu_value *data = mu_list(numbers(2, (int64_t[]){12, 2}, 1), numbers(2, (int64_t[]){12, 3}, 2), MU_END);
    for (int k = 0; k < 2; k++)
        MU_SCOPE(strategy_of(k ? 3 : 1)) {
            mu_model *model = pair_model(0);
            mu_set_seed(3);
            mu_compile(model, .train_step = own_step, .step_arg = mu_sgd(.learning_rate = .1));
            mu_history *history =
                mu_fit(model, data, .epochs = 3, .batch_size = 4, .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
            losses[k] = history ? mu_history_last(history, "loss") : NAN;
        }
    assert_number(losses[1], losses[0], 1e-13);
}

// The files have the attributes, safetensors the paths. A clone has the same layers with weights of its own.
static void is_saved_and_cloned(void **state)
{
    (void)state;
    char path[64];
    mu_tensor *x = numbers(2, (int64_t[]){4, 2}, 1);
    mu_model *model = pair_model(0), *clone = mu_clone_model(model);
    assert_non_null(clone);
    mu_tensor *wanted = whole_of(mu_call_values(model, x));
    mu_call_values(clone, x);
    static const char *const endings[] = {"weights.h5", "safetensors", "ckpt", "npz"};
    for (size_t i = 0; i < MU_COUNT(endings); i++) {
        snprintf(path, sizeof path, "model.%s", endings[i]);
        assert_int_equal(mu_save_weights(model, path), MU_OK);
        mu_variable_assign(mu_model_weight(clone, "scale"), mu_zeros(MU_F64, 1, (int64_t[]){3}));
        assert_int_equal(mu_load_weights(clone, path), MU_OK);
        assert_same_weights(clone, model);
    }
    mu_tensor_file *file = mu_tensor_file_open("model.weights.h5");
    assert_true(mu_tensor_file_find(file, "first/vars/0") >= 0 && mu_tensor_file_find(file, "vars/0") >= 0);
    assert_near(doubles(whole_of(mu_call_values(clone, x))), doubles(wanted), 12, 1e-15);
    assert_int_equal(mu_save_model(model, "model.keras"), MU_UNIMPLEMENTED);
    expect_error(MU_UNIMPLEMENTED, "'pair_model' is a model of your own");
}

static mu_value *with_arg(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)model, (void)context, (void)arg;
    return inputs;
}

static void is_summarised_and_drawn(void **state)
{
    (void)state;
    char text[4096] = "";
    mu_model *model = pair_model(0);
    mu_call_values(model, mu_input({2}));
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_int_equal(mu_summary(model, out), MU_OK);
    fclose(out);
    assert_non_null(strstr(text, "Model: \"pair_model\""));
    assert_non_null(strstr(text, "entry (Dense)"));
    assert_non_null(strstr(text, "Total params: 12 "));
    assert_int_equal(mu_plot_model(model, "model.svg"), MU_OK);
}

// ---- Errors -------------------------------------------------------------------------------------

static mu_value *call_nothing(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)model, (void)inputs, (void)context, (void)arg;
    return NULL;
}

static mu_status build_nothing(mu_layer *model, int n, const mu_shape *inputs, void *arg)
{
    (void)model, (void)n, (void)inputs, (void)arg;
    return MU_ABORTED;
}

static mu_value *call_unknown(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(mu_call(mu_layer_attribute(model, "encoder"), mu_at(inputs, 0)));
}

// Makes its layer when it is built, and fails for inputs of three axes.
static mu_status build_late(mu_layer *model, int n, const mu_shape *inputs, void *arg)
{
    (void)n, (void)arg;
    mu_layer_set_attribute(model, "late", mu_dense(2));
    return inputs[0].rank == 2 ? mu_error_code() : mu_fail(MU_INVALID_ARGUMENT, "give two axes");
}

static mu_value *call_late(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(mu_call(mu_layer_attribute(model, "late"), mu_at(inputs, 0)));
}

static void errors_name_the_model_and_its_function(void **state)
{
    (void)state;
    mu_tensor *x = numbers(2, (int64_t[]){4, 2}, 1), *cube = numbers(3, (int64_t[]){4, 2, 2}, 1);
    assert_null(mu_model_subclass("a"));
    expect_error(MU_INVALID_ARGUMENT, "mu_model_subclass: .call is NULL");
    assert_null(mu_call(mu_model_subclass("a", .call = call_nothing), x));
    expect_error(MU_INVALID_ARGUMENT, "model 'a': its call function returned NULL without an error");
    assert_null(mu_call(mu_model_subclass("a", .build = build_nothing, .call = call_nothing), x));
    expect_error(MU_ABORTED, "model 'a': its build function returned");
    mu_model *model = mu_model_subclass("a", .call = call_unknown);
    mu_layer_set_attribute(model, "decoder", mu_dense(2));
    assert_null(mu_call(model, x));
    expect_error(MU_NOT_FOUND, "'a' has no attribute 'encoder'; mu_layer_set_attribute has set decoder");
    REFUSED_STATUS(mu_layer_set_attribute(model, "decoder", mu_dense(2)), MU_ALREADY_EXISTS, "attribute 'decoder'");
    REFUSED_STATUS(mu_layer_set_attribute(model, "b", mu_layer_attribute(model, "decoder")), MU_INVALID_ARGUMENT,
                   "set each layer once");
    REFUSED_STATUS(mu_layer_set_attribute(model, "b", model), MU_INVALID_ARGUMENT, "is itself");
    REFUSED_STATUS(mu_layer_set_attribute(model, "layers", mu_dense(2)), MU_INVALID_ARGUMENT, "Keras reserves");
    REFUSED_STATUS(mu_layer_set_attribute(model, "a/b", mu_dense(2)), MU_INVALID_ARGUMENT, "'a/b'");
    REFUSED_STATUS(mu_layer_set_attribute(mu_dense(1), "b", mu_dense(2)), MU_INVALID_ARGUMENT, "'dense' is a Dense");
    assert_null(mu_model_input(model, 0));
    expect_error(MU_INVALID_ARGUMENT, "the calls of 'a' are made in C");
    assert_null(mu_clone_model(mu_model_subclass("b", .call = with_arg, .arg = &model)));
    expect_error(
        MU_UNIMPLEMENTED,
        "'b' is a model of your own with an .arg, which may refer to other layers; give mu_model_subclass a .clone");
    // Objects that a failed build has made are freed, so that the next build can make them.
    mu_model *late = mu_model_subclass("late", .build = build_late, .call = call_late);
    assert_null(mu_call(late, cube));
    expect_error(MU_INVALID_ARGUMENT, "give two axes");
    assert_non_null(mu_call(late, x));
    mu_model *clone = mu_clone_model(late); // whose build makes the layer
    assert_non_null(mu_call(clone, x));
}

// Sublayers are a tree: a layer that contains another one, at any depth, cannot be its sublayer.
static void cycles_are_refused(void **state)
{
    (void)state;
    mu_model *a = mu_model_subclass("a", .call = with_arg), *b = mu_model_subclass("b", .call = with_arg),
             *c = mu_model_subclass("c", .call = with_arg);
    assert_int_equal(mu_layer_set_attribute(a, "x", b), MU_OK);
    assert_int_equal(mu_layer_set_attribute(b, "y", c), MU_OK);
    static const char part[] = "'c' is inside of 'a'";
    REFUSED_STATUS(mu_layer_set_attribute(c, "z", a), MU_INVALID_ARGUMENT, part);
    REFUSED_STATUS(mu_layer_add_sublayer(c, a), MU_INVALID_ARGUMENT, part);
    REFUSED_STATUS(mu_layer_add_sublayer(c, c), MU_INVALID_ARGUMENT, "is itself");
    assert_int_equal(mu_model_layer_count(c), 0);
}

// Two layers of one name: the second is refused and does not become a sublayer.
static void refused_layers_leave_nothing(void **state)
{
    (void)state;
    mu_model *model = mu_model_subclass("a", .call = with_arg);
    assert_int_equal(mu_layer_set_attribute(model, "first", mu_dense(2, .name = "same")), MU_OK);
    REFUSED_STATUS(mu_layer_set_attribute(model, "second", mu_dense(2, .name = "same")), MU_INVALID_ARGUMENT,
                   "both named 'same'");
    REFUSED_STATUS(mu_layer_add_sublayer(model, mu_dense(2, .name = "same")), MU_INVALID_ARGUMENT, "both named 'same'");
    assert_null(mu_layer_attribute(model, "second"));
    expect_error(MU_NOT_FOUND, "'second'");
    assert_int_equal(mu_layer_set_attribute(model, "second", mu_dense(2, .name = "other")), MU_OK);
    assert_int_equal(mu_model_layer_count(model), 2);
}

// ---- Masks --------------------------------------------------------------------------------------

enum { TOKENS = 9, SENTENCES = 12, STEPS = 5 };

// A layer inside of the model that returns the value of its own inner layer.
static mu_value *tower_call(mu_layer *tower, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_call_values(mu_layer_attribute(tower, "steps"), mu_at(inputs, 0));
}

// A class for each step and one for the whole sentence. The functions do not mention masks.
static mu_value *tagger_call(mu_layer *model, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    mu_tensor *h = mu_call(mu_layer_attribute(model, "table"), mu_at(inputs, 0));
    h = mu_call(mu_layer_attribute(model, "tower"), h);
    mu_tensor *mean = mu_call(mu_layer_attribute(model, "mean"), h);
    return mu_list(mu_call(mu_layer_attribute(model, "tags"), h), mu_call(mu_layer_attribute(model, "whole"), mean),
                   MU_END);
}

static mu_model *tagger(void)
{
    mu_model *model = mu_model_subclass("tagger", .call = tagger_call);
    mu_layer *tower = mu_layer_new("tower", .call = tower_call);
    mu_layer_set_attribute(model, "table", mu_embedding(TOKENS, 3, .mask_zero = true));
    mu_layer_set_attribute(tower, "steps", mu_lstm(4, .return_sequences = true));
    mu_layer_set_attribute(model, "tower", tower);
    mu_layer_set_attribute(model, "mean", mu_global_average_pool1d());
    mu_layer_set_attribute(model, "tags", mu_dense(1));
    return mu_layer_set_attribute(model, "whole", mu_dense(1)) == MU_OK ? model : NULL;
}

// The same in a functional model, whose layers get their masks from it.
static mu_model *tagger_of_calls(void)
{
    mu_tensor *x = mu_input({STEPS});
    mu_tensor *h = mu_call(mu_embedding(TOKENS, 3, .mask_zero = true), x);
    h = mu_call(mu_lstm(4, .return_sequences = true), h);
    mu_tensor *whole = mu_call(mu_global_average_pool1d(), h);
    return mu_model_new(x, .outputs = mu_list(mu_call(mu_dense(1), h), mu_call(mu_dense(1), whole), MU_END));
}

static mu_tensor *sentences(void)
{
    mu_tensor *x = classes(SENTENCES * STEPS, TOKENS, 5);
    int64_t *tokens = mu__host_write(x);
    for (int i = 0; i < SENTENCES * STEPS; i++)
        if (i % STEPS > 1 + i / STEPS % 4)
            tokens[i] = 0;
    return mu_reshape(x, 2, (int64_t[]){SENTENCES, STEPS});
}

static void copy_weights(mu_model *to, mu_model *from)
{
    mu_value *a = mu_model_weights(to), *b = mu_model_weights(from);
    assert_int_equal(mu_value_count(a), mu_value_count(b));
    for (int i = 0; i < mu_value_count(a); i++)
        assert_int_equal(mu_variable_assign(mu_value_variable(mu_value_at(a, i)),
                                            mu_variable_read(mu_value_variable(mu_value_at(b, i)))),
                         MU_OK);
}

static mu_history *train_tagger(mu_model *model, mu_model *first)
{
    mu_tensor *x = sentences();
    mu_value *y =
        mu_list(numbers(3, (int64_t[]){SENTENCES, STEPS, 1}, 2), numbers(2, (int64_t[]){SENTENCES, 1}, 3), MU_END);
    mu_call_values(model, x);
    copy_weights(model, first);
    mu_compile(model, .optimizer = mu_sgd(.learning_rate = .1), .loss = MU_LOSSES("mse", "mse"), .metrics = "mae",
               .metric_outputs = (int[]){0}, .n_metric_outputs = 1);
    return mu_fit(model, mu_list(x, y, MU_END), .epochs = 2, .batch_size = 6, .no_shuffle = true,
                  .verbose = MU_VERBOSE_SILENT);
}

// Layers, losses and metrics get the masks that they get in a functional model, on every kind of strategy.
static void masks_travel_with_tensors(void **state)
{
    (void)state;
    static const int kinds[] = {0, -1, 3, CENTRAL + 2, SERVED + 2};
    mu_model *first = tagger_of_calls(), *plain = tagger_of_calls();
    mu_history *wanted = train_tagger(plain, first);
    for (size_t k = 0; k < MU_COUNT(kinds); k++)
        MU_SCOPE(strategy_of(kinds[k])) {
            mu_history *history = train_tagger(tagger(), first);
            assert_non_null(history);
            assert_int_equal(mu_history_names(history), mu_history_names(wanted));
            for (int i = 0; i < mu_history_names(wanted); i++)
                assert_number(mu_history_last(history, mu_history_name(history, i)),
                              mu_history_last(wanted, mu_history_name(wanted, i)), 1e-13);
        }
}

// In a training loop of the program's own a mask lives as long as the pool, with the tensor that a layer returned and
// with no other.
static void masks_are_asked_for(void **state)
{
    (void)state;
    mu_layer *table = mu_embedding(TOKENS, 3, .mask_zero = true),
             *half = mu_lstm(2, .return_sequences = true, .dtype = "mixed_bfloat16");
    mu_tensor *x = sentences(), *h = mu_call(table, x), *kept = NULL;
    const bool *mask = mu_tensor_data(mu_mask_of(h));
    for (int i = 0; i < SENTENCES * STEPS; i++)
        assert_int_equal(mask[i], ((const int64_t *)mu_tensor_data(x))[i] != 0);
    assert_ptr_equal(mu_mask_of(mu_call(half, h)), mu_mask_of(h)); // of a copy in another type
    assert_null(mu_mask_of(x));
    assert_null(mu_mask_of(mu_add(h, h)));
    assert_null(mu_mask_of(mu_call(mu_lstm(2), h)));
    mu_pool *pool = mu_pool_open();
    kept = mu_retain(mu_call(table, x));
    assert_non_null(mu_mask_of(kept));
    mu_pool_close(pool);
    assert_null(mu_mask_of(kept));
    assert_null(mu_mask_of(NULL));
    assert_int_equal(mu_error_code(), MU_OK);
    mu_release(kept);
}

// A layer that declares the masks of its outputs: those of its inputs, or of the inner layer.
typedef struct saying {
    mu_layer *inner;
    mu_tensor *mask; // NULL: no mask
} saying;

static mu_value *says_masks(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer;
    const saying *says = arg;
    mu_value *outputs = says->inner ? mu_of(mu_call(says->inner, mu_at(inputs, 0))) : inputs;
    mu_call_set_mask(context, says->mask ? mu_of(says->mask) : says->inner ? mu_list_of(0, NULL) : NULL);
    return outputs;
}

static mu_layer *sayer(saying *says)
{
    mu_layer *layer = mu_layer_new(.call = says_masks, .arg = says);
    if (says->inner)
        mu_layer_add_sublayer(layer, says->inner);
    return layer;
}

// mu_call_set_mask replaces the masks of the inner layers' results, and not those of the layer's own inputs.
static void layers_say_their_masks(void **state)
{
    (void)state;
    mu_tensor *h = mu_call(mu_embedding(TOKENS, 3, .mask_zero = true), sentences()), *steps = mu_mask_of(h);
    mu_tensor *all = mu_ones(MU_BOOL, 2, (int64_t[]){SENTENCES, STEPS});
    for (int i = 0; i < 4; i++) {
        saying says = {.inner = i % 2 ? mu_lstm(2, .return_sequences = true) : NULL, .mask = i < 2 ? NULL : all};
        mu_tensor *y = mu_call(sayer(&says), h);
        assert_non_null(y);
        assert_ptr_equal(mu_mask_of(y), says.mask);
        assert_ptr_equal(mu_mask_of(h), steps);
    }
    saying none = {0};
    mu_tensor *x = mu_input({STEPS}, .dtype = MU_I64), *last[2];
    mu_layer *table = mu_embedding(TOKENS, 3, .mask_zero = true), *reader = mu_lstm(2);
    for (int masked = 0; masked < 2; masked++) {
        mu_tensor *embedded = mu_call(table, x);
        last[masked] = mu_call(reader, masked ? embedded : mu_call(sayer(&none), embedded));
    }
    mu_model *model = mu_model_new(.inputs = mu_of(x), .outputs = mu_list(last[0], last[1], MU_END));
    mu_value *seen = mu_call_values(model, sentences());
    mu_tensor *rows = mu_call(table, sentences()), *unmasked = mu_call(reader, rows, .masks = mu_list_of(0, NULL));
    assert_non_null(seen);
    assert_near(doubles(mu_at(seen, 0)), doubles(unmasked), SENTENCES * 2, 0);
    assert_near(doubles(mu_at(seen, 1)), doubles(mu_call(reader, rows)), SENTENCES * 2, 0);
}

static mu_value *same_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    return inputs;
}

// A mask that a call is given also counts for the inner layers, instead of the one that the tensor carries; an empty
// list of masks removes it.
static void given_masks_reach_layers_inside(void **state)
{
    (void)state;
    mu_layer *tower = mu_layer_new("tower", .call = tower_call), *lstm = mu_lstm(4, .return_sequences = true);
    mu_layer_set_attribute(tower, "steps", lstm);
    mu_tensor *h = mu_call(mu_embedding(TOKENS, 3, .mask_zero = true), sentences()), *steps = mu_mask_of(h);
    mu_tensor *others = mu_logical_not(steps);
    mu_tensor *same = mu_call(mu_layer_new("same", .call = same_call), h, .mask = others);
    mu_tensor *seen = mu_call(tower, h, .mask = others), *bare = mu_call(tower, h, .masks = mu_list_of(0, NULL));
    const int64_t n = SENTENCES * STEPS * 4;
    assert_near(doubles(seen), doubles(mu_call(lstm, h, .mask = others)), n, 0);
    assert_near(doubles(bare), doubles(mu_call(lstm, h, .masks = mu_list_of(0, NULL))), n, 0);
    assert_near(doubles(mu_call(tower, h)), doubles(mu_call(lstm, h)), n, 0);
    assert_ptr_equal(mu_mask_of(seen), others);
    assert_ptr_equal(mu_mask_of(same), others);
    assert_null(mu_mask_of(bare));
    assert_ptr_equal(mu_mask_of(h), steps);
    mu_tensor *x = mu_input({STEPS, 3}), *given = mu_input({STEPS}, .dtype = MU_BOOL);
    mu_model *model = mu_model_new(.inputs = mu_list(x, given, MU_END), .output = mu_call(tower, x, .mask = given));
    assert_near(doubles(mu_call(model, .inputs = mu_list(h, others, MU_END))), doubles(seen), n, 0);
}

// Returns the mean that a batch normalization has seen last, in a layer that is called on each step of two sequences.
// In the second step the first sequence is excluded.
static double last_mean(mu_layer *inner, mu_layer *normalization)
{
    mu_tensor *x = mu_tensor_new(MU_F64, 3, (int64_t[]){2, 2, 1}, (double[]){1, 8, 3, 5});
    mu_tensor *mask = mu_tensor_new(MU_BOOL, 2, (int64_t[]){2, 2}, (bool[]){true, false, true, true});
    assert_non_null(mu_call(mu_time_distributed(inner), x, .mask = mask, .training = true));
    return doubles(mu_variable_read(mu_layer_weight(normalization, "moving_mean")))[0];
}

static void steps_have_their_rows_of_a_mask(void **state)
{
    (void)state;
    mu_layer *plain = mu_batch_normalization(.momentum = 0), *last = mu_batch_normalization(.momentum = 0),
             *inside = mu_batch_normalization(.momentum = 0), *tower = mu_layer_new("tower", .call = tower_call);
    mu_layer_set_attribute(tower, "steps", inside);
    assert_number(last_mean(plain, plain), 5, 1e-6);
    assert_number(last_mean(mu_sequential(mu_activation("linear"), last), last), 5, 1e-6);
    assert_number(last_mean(tower, inside), 5, 1e-6);
    mu_tensor *x = numbers(3, (int64_t[]){2, 2, 1}, 1), *row = mu_ones(MU_BOOL, 1, (int64_t[]){2});
    mu_tensor *deep = mu_ones(MU_BOOL, 3, (int64_t[]){2, 2, 1});
    assert_null(mu_call(mu_time_distributed(mu_dense(1)), x, .mask = row));
    expect_error(MU_INVALID_ARGUMENT, "its mask has shape [2] and its input [2, 2, 1]; the mask must have the first 2");
    assert_null(mu_call(mu_lstm(1), x, .mask = deep));
    expect_error(MU_INVALID_ARGUMENT, "layer 'lstm': its mask has shape [2, 2, 1]");
    assert_null(mu_call(mu_global_average_pool1d(), x, .mask = row));
    expect_error(MU_INVALID_ARGUMENT, "its mask has shape [2] and");
}

// An excluded step does not contribute to the mean, whatever number in the mask marks the others.
static void means_are_of_steps_that_count(void **state)
{
    (void)state;
    mu_tensor *x = mu_tensor_new(MU_F64, 3, (int64_t[]){1, 3, 1}, (double[]){1, NAN, 4});
    mu_tensor *mask = mu_tensor_new(MU_I32, 2, (int64_t[]){1, 3}, (int32_t[]){2, 0, 1});
    assert_near(doubles(mu_call(mu_global_average_pool1d(), x, .mask = mask)), (double[]){2.5}, 1, 0);
    mu_tensor *plain = mu_tensor_new(MU_F64, 3, (int64_t[]){1, 3, 1}, (double[]){1, 2, 6});
    mu_tensor *all = mu_call(mu_global_average_pool1d(), plain, .masks = mu_list_of(0, NULL));
    assert_near(doubles(all), (double[]){3}, 1, 0);
}

// A call that runs out of memory leaves no mask on the tensors that it was given.
static void failed_calls_leave_no_masks(void **state)
{
    (void)state;
    mu_tensor *a = mu_input({STEPS, 3}), *b = mu_input({STEPS, 3}), *masks = mu_ones(MU_BOOL, 2, (int64_t[]){2, STEPS});
    mu_tensor *sum = mu_call(mu_add_layer(), .inputs = mu_list(a, b, MU_END));
    mu_model *model = mu_model_new(.inputs = mu_list(a, b, MU_END), .outputs = mu_of(sum));
    mu_tensor *x = numbers(3, (int64_t[]){2, STEPS, 3}, 1), *y = numbers(3, (int64_t[]){2, STEPS, 3}, 2);
    mu_value *inputs = mu_list(x, y, MU_END), *given = mu_list(masks, masks, MU_END);
    assert_non_null(mu_call(model, .inputs = inputs, .masks = given));
    int code = MU_RESOURCE_EXHAUSTED;
    for (long n = 1; code == MU_RESOURCE_EXHAUSTED; n++) {
        mu__alloc_fail_at(n);
        mu_call(model, .inputs = inputs, .masks = given);
        mu__alloc_fail_at(0);
        code = mu_error_take().code;
        assert_null(mu_mask_of(x));
        assert_null(mu_mask_of(y));
    }
    assert_int_equal(code, MU_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(layers_have_the_mode_of_the_model),
                                       MODEL_TEST(weights_have_paths),
                                       MODEL_TEST(outputs_are_found_by_name),
                                       MODEL_TEST(steps_of_ones_own),
                                       MODEL_TEST(is_saved_and_cloned),
                                       MODEL_TEST(is_summarised_and_drawn),
                                       MODEL_TEST(errors_name_the_model_and_its_function),
                                       MODEL_TEST(cycles_are_refused),
                                       MODEL_TEST(refused_layers_leave_nothing),
                                       MODEL_TEST(masks_travel_with_tensors),
                                       MODEL_TEST(masks_are_asked_for),
                                       MODEL_TEST(layers_say_their_masks),
                                       MODEL_TEST(given_masks_reach_layers_inside),
                                       MODEL_TEST(steps_have_their_rows_of_a_mask),
                                       MODEL_TEST(means_are_of_steps_that_count),
                                       MODEL_TEST(failed_calls_leave_no_masks)};
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
