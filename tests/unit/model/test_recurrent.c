// Recurrent layers: first weights, traces of any length, replicas, states, dropout, cells of the program's own, and
// refusals. Their results are compared with Keras's in tests/conformance/sequences.py.
#include "../scratch.h"
#include "model/core/layer.h"
#include "model_test.h"

#include <muster/checkpoint.h>
#include <muster/control.h>
#include <muster/preprocessing.h>
#include <muster/recurrent.h>

static mu_tensor *sequences(int64_t batch, int64_t steps, int64_t features, uint64_t seed)
{
    return numbers(3, (int64_t[]){batch, steps, features}, seed);
}

static mu_tensor *called(mu_layer *layer, mu_tensor *x, bool training)
{
    mu_tensor *y = mu_call(layer, x, .training = training);
    if (!y)
        fail_msg("%s", mu_error_message());
    return y;
}

static mu_tensor *weight(mu_model *model, int i)
{
    return mu_variable_read((mu_variable *)mu_value_at(mu_model_weights(model), i)->leaf);
}

// ---- First weights ------------------------------------------------------------------------------

// The rows of a matrix with more columns than rows, or the columns, are orthonormal.
static void assert_orthonormal(const double *at, int64_t rows, int64_t columns)
{
    const int64_t n = MU_MIN(rows, columns), m = MU_MAX(rows, columns);
    const int64_t next = rows < columns ? columns : 1, along = rows < columns ? 1 : columns;
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b <= a; b++) {
            double product = 0;
            for (int64_t i = 0; i < m; i++)
                product += at[a * next + i * along] * at[b * next + i * along];
            assert_number(product, a == b, 1e-13);
        }
}

static void first_weights(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_lstm(50));
    assert_int_equal(mu_model_build(model, 2, (int64_t[]){MU_UNKNOWN, 3}), MU_OK);
    assert_int_equal(mu_model_parameters(model), 4 * 50 * (3 + 50 + 1));
    assert_string_equal(mu_variable_name((mu_variable *)mu_value_at(mu_model_weights(model), 1)->leaf),
                        "lstm/lstm_cell/recurrent_kernel");
    assert_orthonormal(doubles(weight(model, 1)), 50, 200);
    const double *bias = doubles(weight(model, 2));
    for (int i = 0; i < 200; i++)
        assert_number(bias[i], i / 50 == 1, 0);
    const mu_shape tall = {.rank = 3, .dims = {3, 5, 4}}, square = {.rank = 2, .dims = {128, 128}};
    assert_orthonormal(doubles(initial("orthogonal", MU_F64, tall)), 15, 4);
    assert_orthonormal(doubles(initial("orthogonal", MU_F64, square)), 128, 128);
    assert_null(mu_call(mu_dense(2, .bias_initializer = "orthogonal"), sequences(1, 1, 2, 1)));
    expect_error(MU_INVALID_ARGUMENT, "'orthogonal' makes matrices, and a weight has 1 axis");
}

// ---- Traces and replicas ------------------------------------------------------------------------

static mu_value *trace_model(mu_value *arguments, void *arg) { return mu_of(mu_call(arg, mu_at(arguments, 0))); }

// One trace serves every length and batch, and one step alone.
static void any_length(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_gru(4, .return_sequences = true, .go_backwards = true), mu_lstm(3));
    mu_tensor *x = sequences(2, 5, 3, 1);
    called(model, x, false);
    mu_function *function = mu_function_new(trace_model, model);
    const int64_t sizes[][2] = {{2, 5}, {3, 9}, {1, 1}};
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        x = sequences(sizes[i][0], sizes[i][1], 3, i);
        mu_tensor *wanted = called(model, x, false);
        mu_tensor *seen = mu_value_tensor(mu_run(NULL, function, mu_of(x)));
        assert_near(doubles(seen), doubles(wanted), mu_tensor_elements(wanted), 1e-14);
    }
}

static mu_model *two_recurrent_layers(void)
{
    mu_model *model = mu_sequential(mu_lstm(4, .return_sequences = true), mu_simple_rnn(3), mu_dense(2));
    mu_model_build(model, 2, (int64_t[]){4, 3});
    return model;
}

static void replicas_train_alike(void **state)
{
    (void)state;
    mu_value *all = mu_list(sequences(14, 4, 3, 3), classes(14, 2, 5), MU_END);
    check_replicas_train_alike(two_recurrent_layers, mu_dataset_batch(mu_dataset_from_tensor_slices(all), 5));
}

// ---- States and dropout -------------------------------------------------------------------------

// The second half of a sequence, started from the states of the first half, ends like the whole sequence.
static void continues_from_states(void **state)
{
    (void)state;
    mu_layer *layer = mu_lstm(3, .return_state = true);
    mu_tensor *x = sequences(2, 6, 2, 1), *halves[2];
    assert_int_equal(mu_split(x, 2, 1, halves), MU_OK);
    mu_value *whole = mu_call_values(layer, x), *first = mu_call_values(layer, halves[0]);
    assert_int_equal(mu_value_count(whole), 3);
    mu_value *second = mu_call_values(layer, .inputs = mu_list(halves[1], mu_at(first, 1), mu_at(first, 2), MU_END));
    for (int i = 0; i < 3; i++)
        assert_near(doubles(mu_at(second, i)), doubles(mu_at(whole, i)), 6, 1e-15);
}

// A functional model takes states as inputs.
static void states_are_inputs(void **state)
{
    (void)state;
    mu_tensor *x = mu_input({4, 2}), *h = mu_input({3});
    mu_model *model =
        mu_model_new(.inputs = mu_list(x, h, MU_END), .output = mu_call(mu_gru(3), .inputs = mu_list(x, h, MU_END)));
    mu_value *given = mu_list(sequences(5, 4, 2, 1), numbers(2, (int64_t[]){5, 3}, 2), MU_END);
    assert_int_equal(mu_tensor_dim(mu_call(model, .inputs = given), 1), 3);
}

// A layer that sums its features shows that the same features are dropped in all steps.
static void drops_alike_in_all_steps(void **state)
{
    (void)state;
    mu_layer *layer = mu_simple_rnn(40, .activation = "linear", .kernel_initializer = "ones", .dropout = .5, .seed = 3,
                                    .recurrent_initializer = "zeros", .return_sequences = true);
    mu_tensor *x = mu_ones(MU_F64, 3, (int64_t[]){3, 6, 20});
    const double *y = doubles(called(layer, x, true));
    for (int row = 0; row < 3; row++) {
        assert_true(y[row * 240] > 0 && y[row * 240] < 40 && fmod(y[row * 240], 2) == 0);
        for (int i = 0; i < 240; i++)
            assert_number(y[row * 240 + i], y[row * 240], 0);
    }
    assert_number(doubles(called(layer, x, false))[0], 20, 0);
    assert_int_equal(mu_value_count(mu_model_weights(layer)), 3); // Keras does not count the generator
}

// Each gate drops different elements of the state and of the input, as in Keras where the state is dropped.
static void gates_drop_differently(void **state)
{
    (void)state;
    static const char *const kinds[] = {"lstm", "gru", "gru before"};
    for (int kind = 0; kind < 3; kind++) {
        mu_layer *layer = kind == 0 ? mu_lstm(20, .dropout = .25, .recurrent_dropout = .5, .seed = 5)
                                    : mu_gru(20, .dropout = .25, .recurrent_dropout = .5, .no_reset_after = kind == 2);
        mu_tensor *x = sequences(4, 5, 30, 2);
        mu_tensor *first = called(layer, x, true), *second = called(layer, x, true);
        mu_function *function = mu_function_new(trace_model, layer);
        mu_tensor *calm = called(layer, x, false);
        assert_memory_not_equal(doubles(first), doubles(second), 80 * sizeof(double));
        mu_tensor *traced = mu_value_tensor(mu_run(NULL, function, mu_of(x)));
        if (!traced)
            fail_msg("%s: %s", kinds[kind], mu_error_message());
        assert_near(doubles(traced), doubles(calm), 80, 1e-14);
    }
}

// ---- Cells --------------------------------------------------------------------------------------

// Counts its steps, and returns the sum of x and the count.
static mu_value *counting_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    mu_tensor *count = mu_add(mu_at(inputs, 1), mu_ones_like(mu_at(inputs, 1)));
    return mu_list(mu_add(mu_at(inputs, 0), count), count, MU_END);
}

static void cell_of_ones_own(void **state)
{
    (void)state;
    mu_layer *layer = mu_rnn(mu_layer_new("counter", .call = counting_call), .state_size = {1}, .output_size = 2,
                             .return_sequences = true);
    mu_tensor *x = mu_zeros(MU_F64, 3, (int64_t[]){1, 4, 2});
    const double wanted[] = {1, 1, 2, 2, 3, 3, 4, 4}, masked[] = {0, 0, 1, 1, 1, 1, 2, 2};
    assert_near(doubles(called(layer, x, false)), wanted, 8, 0);
    mu_function *function = mu_function_new(trace_model, layer);
    assert_near(doubles(mu_value_tensor(mu_run(NULL, function, mu_of(x)))), wanted, 8, 0);
    const bool steps[] = {false, true, false, true};
    mu_tensor *mask = mu_tensor_new(MU_BOOL, 2, (int64_t[]){1, 4}, steps);
    assert_near(doubles(mu_call(layer, x, .mask = mask)), masked, 8, 0);
}

static void cells_compute_one_step(void **state)
{
    (void)state;
    mu_layer *cell = mu_lstm_cell(3), *layer = mu_rnn(cell, .return_state = true);
    mu_tensor *x = sequences(2, 1, 4, 1), *zero = mu_zeros(MU_F64, 2, (int64_t[]){2, 3});
    mu_value *wanted = mu_call_values(layer, x);
    mu_value *seen = mu_call_values(cell, .inputs = mu_list(mu_squeeze(x, 1), zero, zero, MU_END));
    assert_int_equal(mu_value_count(seen), 3);
    for (int i = 0; i < 3; i++)
        assert_near(doubles(mu_at(seen, i)), doubles(mu_at(wanted, i)), 6, 1e-15);
    assert_null(mu_call_values(cell, mu_squeeze(x, 1)));
    expect_error(MU_INVALID_ARGUMENT, "called with a list of x and 2 states; it was given 1 tensors");
}

// ---- Wrappers -----------------------------------------------------------------------------------

static void wrapper_names(void **state)
{
    (void)state;
    mu_layer *layer = mu_bidirectional(mu_lstm(2, .name = "words"), .name = "both");
    mu_call(layer, sequences(1, 2, 3, 1));
    static const char *const names[] = {"both/forward_words/lstm_cell/kernel", "both/backward_words/lstm_cell/kernel"};
    for (int i = 0; i < 2; i++) {
        const mu_variable *kernel = (mu_variable *)mu_value_at(mu_model_weights(layer), 3 * i)->leaf;
        assert_string_equal(mu_variable_name(kernel), names[i]);
    }
}

// Calling the layer on each step alone gives the same as on all steps, whatever is known of the shape.
static void time_distributed_steps(void **state)
{
    (void)state;
    mu_tensor *x = numbers(4, (int64_t[]){2, 3, 4, 2}, 1), *parts[3];
    mu_layer *inner = mu_conv1d(3, 2), *layer = mu_time_distributed(inner);
    const double *y = doubles(called(layer, x, false));
    assert_int_equal(mu_unstack(x, 3, 1, parts), MU_OK);
    for (int t = 0; t < 3; t++) {
        const double *step = doubles(called(inner, parts[t], false));
        for (int row = 0; row < 2; row++)
            assert_near(y + (row * 3 + t) * 9, step + row * 9, 9, 0);
    }
    mu_tensor *input = mu_input({MU_UNKNOWN, 4, 2});
    mu_model *model = mu_model_new(input, mu_call(layer, input));
    assert_near(doubles(called(model, x, false)), y, 54, 0);
    mu_tensor *words = mu_input({MU_UNKNOWN, 5}, .dtype = MU_I64);
    mu_model *table = mu_model_new(words, mu_call(mu_time_distributed(mu_embedding(9, 2)), words));
    mu_tensor *index = mu_reshape(classes(2 * 3 * 5, 9, 1), 3, (int64_t[]){2, 3, 5});
    assert_int_equal(mu_tensor_elements(called(table, index, false)), 60);
}

// The statistics of a batch normalization move with one step after the other.
static void time_distributed_effects(void **state)
{
    (void)state;
    mu_layer *layer = mu_time_distributed(mu_batch_normalization(.momentum = .5));
    mu_tensor *x = mu_tensor_new(MU_F64, 3, (int64_t[]){2, 2, 1}, (double[]){1, 10, 3, 30});
    called(layer, x, true);
    assert_number(doubles(weight(layer, 2))[0], .5 * (.5 * 2) + .5 * 20, 1e-14);
    assert_null(mu_call(mu_time_distributed(mu_batch_normalization()), mu_input({MU_UNKNOWN, 4}), .training = true));
    expect_error(MU_INVALID_ARGUMENT, "has weights that its calls change, so the number of steps must be known");
    assert_null(mu_call(mu_time_distributed(mu_lstm(2, .stateful = true)), mu_input({MU_UNKNOWN, 3, 4})));
    expect_error(MU_INVALID_ARGUMENT, "has states that go on from step to step, so the number of steps must be known");
    // Frozen layers have no effects, unless they are as in spectral normalization.
    mu_layer *frozen[] = {mu_dense(2), mu_batch_normalization(), mu_spectral_normalization(mu_dense(2))};
    for (int i = 0; i < 3; i++) {
        mu_layer_set_trainable(frozen[i], false);
        mu_tensor *y = mu_call(mu_time_distributed(frozen[i]), mu_input({MU_UNKNOWN, 4}), .training = true);
        assert_int_equal(y != NULL, i < 2);
    }
    expect_error(MU_INVALID_ARGUMENT, "has weights that its calls change, so the number of steps must be known");
}

// A model inside whose call of the normalization was given the training mode, which counts in runs that are given none.
static void time_distributed_effects_of_kept_modes(void **state)
{
    (void)state;
    mu_tensor *start = mu_input({1});
    mu_model *inner = mu_model_new(start, mu_call(mu_batch_normalization(.momentum = .5), start, .training = true));
    mu_layer *layer = mu_time_distributed(inner);
    mu_tensor *x = mu_tensor_new(MU_F64, 3, (int64_t[]){2, 2, 1}, (double[]){1, 10, 3, 30});
    mu_tensor *y = mu_call(layer, x);
    assert_near(doubles(y), (double[]){-1, -1, 1, 1}, 4, 1e-3);
    mu_layer *normalization = mu_model_layer_at(inner, 0);
    const double moved = .5 * (.5 * 2) + .5 * 20;
    assert_number(doubles(mu_variable_read(mu_layer_weight(normalization, "moving_mean")))[0], moved, 1e-14);
    mu_call(layer, x, .training = false);
    assert_number(doubles(mu_variable_read(mu_layer_weight(normalization, "moving_mean")))[0], moved, 1e-14);
}

// Calls its layer "used", and leaves "unused" alone; counts its calls and adds a loss in each.
static mu_value *sparing_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *calls)
{
    (void)context;
    ++*(int *)calls;
    mu_tensor *y = mu_call(mu_layer_attribute(layer, "used"), mu_at(inputs, 0));
    return mu_layer_add_loss(layer, mu_reduce_sum(y)) == MU_OK ? mu_of(y) : NULL;
}

static mu_layer *sparing_layer(mu_layer *used, int *calls)
{
    mu_layer *layer = mu_layer_new("sparing", .call = sparing_call, .arg = calls);
    mu_layer_set_attribute(layer, "used", used);
    mu_layer_set_attribute(layer, "unused", mu_batch_normalization());
    return layer;
}

// An inner layer that no call ever builds does not force the steps to run one by one: a first call in training is
// traced once to find out what it builds, and the losses added in that trace are dropped.
// A penalty on outputs is that of all steps, whether the steps are computed at once or one after the other.
static void time_distributed_penalties(void **state)
{
    (void)state;
    mu_tensor *x = sequences(6, 5, 3, 7), *y = mu_zeros(MU_F64, 3, (int64_t[]){6, 5, 2});
    double losses[6];
    for (int i = 0; i < 3; i++) {
        mu_layer *dense = mu_dense(2, .kernel_initializer = "ones", .activity_regularizer = mu_l2(1));
        mu_layer *inner = i == 0 ? dense : mu_sequential(mu_input_layer({3}), dense);
        if (i == 2)
            inner = mu_sequential(mu_input_layer({3}), dense, mu_batch_normalization());
        mu_model *model =
            mu_sequential(mu_input_layer({5, 3}), i == 0 ? inner : mu_time_distributed(inner), mu_rescaling(0));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0), .loss = "mse");
        losses[2 * i] =
            mu_history_last(mu_evaluate(model, x, y, .batch_size = 4, .verbose = MU_VERBOSE_SILENT), "loss");
        losses[2 * i + 1] = mu_history_last(mu_fit(model, x, y, .batch_size = 4, .verbose = MU_VERBOSE_SILENT), "loss");
        assert_near(losses + 2 * i, (double[]){losses[0], losses[0]}, 2, 1e-12);
    }
    assert_true(losses[0] > 1);
}

static void layers_that_are_never_called(void **state)
{
    (void)state;
    int calls = 0;
    mu_layer *layer = mu_time_distributed(sparing_layer(mu_dense(2), &calls));
    mu_model *model = mu_sequential(layer);
    mu_tensor *x = sequences(2, 5, 3, 1), *y = called(model, x, true);
    assert_int_equal(calls, 2);
    assert_int_equal(mu_value_count(mu_model_losses(model)), 1);
    assert_near(doubles(called(model, x, true)), doubles(y), 20, 0);
    assert_int_equal(calls, 3);
    mu_compile(model, .optimizer = "sgd", .loss = "mse");
    mu_value *data = mu_list(x, numbers(3, (int64_t[]){2, 5, 2}, 2), MU_END);
    assert_non_null(mu_fit(model, data, .epochs = 3, .verbose = MU_VERBOSE_SILENT));
    assert_int_equal(calls, 4);
}

// The trace also shows whether the order matters before a step has run: the statistics are those of steps one by one.
static void first_calls_keep_the_order_of_steps(void **state)
{
    (void)state;
    mu_tensor *x = mu_tensor_new(MU_F64, 3, (int64_t[]){2, 2, 1}, (double[]){1, 10, 3, 30});
    int calls = 0;
    mu_layer *normalization = mu_batch_normalization(.momentum = .5);
    mu_layer *layer = mu_time_distributed(sparing_layer(normalization, &calls));
    called(layer, x, true);
    assert_int_equal(calls, 3);
    assert_number(doubles(mu_variable_read(mu_layer_weight(normalization, "moving_mean")))[0], .5 * (.5 * 2) + .5 * 20,
                  1e-14);
}

static void wrappers_refuse(void **state)
{
    (void)state;
    assert_null(mu_bidirectional(mu_dense(3)));
    expect_error(MU_INVALID_ARGUMENT, "layer 'dense' is not a recurrent layer");
    assert_null(mu_bidirectional(mu_lstm(3), .merge_mode = "add"));
    expect_error(MU_INVALID_ARGUMENT, "merge_mode is 'add'; it must be one of 'concat', 'sum', 'mul', 'ave', 'none'");
    assert_null(mu_bidirectional(mu_lstm(3), .backward_layer = mu_lstm(3)));
    expect_error(MU_INVALID_ARGUMENT, "go in the same direction; set go_backwards of one of them");
    mu_layer *all_steps = mu_gru(3, .go_backwards = true, .return_sequences = true);
    assert_null(mu_bidirectional(mu_lstm(3), .backward_layer = all_steps));
    expect_error(MU_INVALID_ARGUMENT, "differ in return_sequences");
    mu_layer *own = mu_rnn(mu_layer_new("counter", .call = counting_call), .state_size = {1});
    assert_null(mu_bidirectional(own));
    expect_error(MU_UNIMPLEMENTED, "whose functions no configuration holds");
    assert_null(mu_call(mu_time_distributed(mu_dense(2)), mu_input({3, MU_UNKNOWN})));
    expect_error(MU_INVALID_ARGUMENT, "needs known dimensions after the steps");
}

// ---- What is refused ----------------------------------------------------------------------------

static void refuses(void **state)
{
    (void)state;
    mu_tensor *x = sequences(2, 3, 4, 1), *h = mu_zeros(MU_F64, 2, (int64_t[]){2, 3});
    assert_null(mu_lstm(0));
    expect_error(MU_INVALID_ARGUMENT, "mu_lstm: units is 0; it must be 1 or more");
    assert_null(mu_gru(3, .recurrent_activation = "sigmoidal"));
    expect_error(MU_INVALID_ARGUMENT, "no activation is named 'sigmoidal'");
    assert_null(mu_gru(3, .dropout = 1));
    expect_error(MU_INVALID_ARGUMENT, "dropout is 1; it must be from 0 to below 1");
    assert_null(mu_call(mu_lstm(3), numbers(2, (int64_t[]){2, 3}, 1)));
    expect_error(MU_INVALID_ARGUMENT, "takes inputs of rank 3");
    assert_null(mu_call(mu_lstm(3), .inputs = mu_list(x, h, MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "a sequence and 2 states; it was given 2 tensors");
    assert_null(mu_rnn(NULL));
    expect_error(MU_INVALID_ARGUMENT, "mu_rnn: the cell is NULL");
    assert_null(mu_rnn(mu_dense(3)));
    expect_error(MU_INVALID_ARGUMENT, "give the sizes of its states as .state_size");
    assert_null(mu_stacked_rnn_cells(mu_lstm_cell(2), mu_dense(3)));
    expect_error(MU_INVALID_ARGUMENT, "layer 1 is dense; give cells such as mu_lstm_cell");
    assert_null(mu_call(mu_rnn(mu_dense(3), .state_size = {3}), x));
    expect_error(MU_INVALID_ARGUMENT, "a cell with 1 states takes a list of its input and the states");
    mu_layer *unrolled = mu_gru(3, .unroll = true);
    assert_null(mu_call(unrolled, mu_input({MU_UNKNOWN, 4})));
    expect_error(MU_INVALID_ARGUMENT, "unroll needs a known number of steps");
}

// ---- States that stay ---------------------------------------------------------------------------

// A checkpoint has the states, which are not among the weights; a model of the same layers continues from them.
static void checkpoints_have_states(void **state)
{
    (void)state;
    mu_model *models[2];
    for (int i = 0; i < 2; i++)
        models[i] = mu_sequential(mu_input_layer({5, 3}, .batch_size = 4), mu_lstm(2, .stateful = true, .seed = 1));
    assert_int_equal(mu_value_count(mu_model_weights(models[0])), 3);
    assert_int_equal(mu_model_parameters(models[0]), 4 * 2 * (3 + 2 + 1));
    mu_tensor *x = sequences(4, 5, 3, 7), *first = called(models[0], x, false);
    assert_int_equal(mu_checkpoint_save(mu_checkpoint_new(.model = models[0]), "states.ckpt"), MU_OK);
    assert_int_equal(mu_checkpoint_restore(mu_checkpoint_new(.model = models[1]), "states.ckpt"), MU_OK);
    mu_tensor *second = called(models[0], x, false), *other = called(models[1], x, false);
    assert_memory_equal(doubles(second), doubles(other), 8 * sizeof(double));
    assert_memory_not_equal(doubles(first), doubles(second), 8 * sizeof(double));
    assert_int_equal(mu_layer_reset_states(models[0]), MU_OK);
    assert_memory_equal(doubles(called(models[0], x, false)), doubles(first), 8 * sizeof(double));
}

static void stateful_layers_need_one_batch_size(void **state)
{
    (void)state;
    mu_layer *layer = mu_gru(2, .stateful = true);
    assert_int_equal(mu_layer_reset_states(layer), MU_OK);
    called(layer, sequences(4, 5, 3, 7), false);
    assert_null(mu_call(layer, sequences(3, 5, 3, 7)));
    expect_error(MU_INVALID_ARGUMENT, "keeps the states of 4 sequences");
    assert_null(mu_call(layer, sequences(3, 5, 3, 7)));
    expect_error(MU_INVALID_ARGUMENT, "number of sequences in this batch is 3");
    assert_null(mu_sequential(mu_input_layer({5, 3}), mu_gru(2, .stateful = true)));
    expect_error(MU_INVALID_ARGUMENT, "give it .batch_size");
}

// Rows that leave a short last batch: each call says how many sequences it had and what to do, on any number of
// replicas, and also where the step was traced before for any number of rows.
static void short_batches_say_how_many(void **state)
{
    (void)state;
    mu_tensor *x = sequences(10, 5, 3, 7), *y = mu_zeros(MU_F64, 2, (int64_t[]){10, 2});
    for (int replicas = 1; replicas < 3; replicas++)
        MU_SCOPE(strategy_of(replicas)) {
            mu_model *model = mu_sequential(mu_input_layer({5, 3}, .batch_size = 4), mu_lstm(2, .stateful = true));
            mu_compile(model, .optimizer = "sgd", .loss = "mse");
            assert_null(mu_fit(model, x, y, .batch_size = 4, .verbose = MU_VERBOSE_SILENT));
            expect_error(MU_INVALID_ARGUMENT, "keeps the states of 4 sequences");
            assert_null(mu_fit(model, x, y, .batch_size = 4, .verbose = MU_VERBOSE_SILENT));
            expect_error(MU_INVALID_ARGUMENT, ".drop_remainder = true), or a number of rows that 4 divides");
            assert_null(mu_evaluate(model, x, y, .batch_size = 4, .verbose = MU_VERBOSE_SILENT));
            expect_error(MU_INVALID_ARGUMENT, "this batch is 2");
            assert_null(mu_predict(model, x, .batch_size = 5, .verbose = MU_VERBOSE_SILENT));
            expect_error(MU_INVALID_ARGUMENT, "this batch is 5");
            assert_null(mu_predict_on_batch(model, x));
            expect_error(MU_INVALID_ARGUMENT, "this batch is 10");
            mu_dataset *rows = mu_dataset_from_tensor_slices(mu_list(x, y, MU_END));
            mu_dataset *whole = mu_dataset_batch(rows, 4, .drop_remainder = true);
            assert_non_null(mu_fit(model, whole, .verbose = MU_VERBOSE_SILENT));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(first_weights),
        MODEL_TEST(any_length),
        MODEL_TEST(replicas_train_alike),
        MODEL_TEST(continues_from_states),
        MODEL_TEST(states_are_inputs),
        MODEL_TEST(drops_alike_in_all_steps),
        MODEL_TEST(gates_drop_differently),
        MODEL_TEST(cell_of_ones_own),
        MODEL_TEST(cells_compute_one_step),
        MODEL_TEST(wrapper_names),
        MODEL_TEST(time_distributed_steps),
        MODEL_TEST(time_distributed_effects),
        MODEL_TEST(time_distributed_effects_of_kept_modes),
        MODEL_TEST(time_distributed_penalties),
        MODEL_TEST(layers_that_are_never_called),
        MODEL_TEST(first_calls_keep_the_order_of_steps),
        MODEL_TEST(wrappers_refuse),
        MODEL_TEST(refuses),
        MODEL_TEST(checkpoints_have_states),
        MODEL_TEST(stateful_layers_need_one_batch_size),
        MODEL_TEST(short_batches_say_how_many),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
