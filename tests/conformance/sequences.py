# Layers for sequences in Keras and in Muster: recurrent layers with their cells and wrappers, masks on their way through
# a model.
#
# A row is a layer with options, the shapes of its inputs and what else it is called with. Both sides get the same
# weights under the same names; outputs are compared eagerly and in a traced function, and so is the gradient of a
# weighted sum of all outputs by every weight. Configurations go both ways, and models are trained for 200 steps.
import sys

import numpy as np
import tensorflow as tf
from keras.src import backend

import muster
from defaults import FLOATX, TOLERANCE, compare_parts, off
from report import Report

MU_VERBOSE_SILENT = 1
ROWS, STEPS, FEATURES, UNITS = 5, 7, 3, 4
TRAINING_STEPS, TOLERANCE_F64 = 200, 1e-9
RENAMED = {"target_shape": "shape"}
# Options that say the opposite of Keras's.
OPPOSITES = {"use_bias": "no_bias", "unit_forget_bias": "no_unit_forget_bias", "reset_after": "no_reset_after"}
FUNCTIONS = {"LSTM": "mu_lstm", "GRU": "mu_gru", "SimpleRNN": "mu_simple_rnn", "RNN": "mu_rnn", "LSTMCell": "mu_lstm_cell",
             "GRUCell": "mu_gru_cell", "SimpleRNNCell": "mu_simple_rnn_cell", "StackedRNNCells": "mu_stacked_rnn_cells_of",
             "Bidirectional": "mu_bidirectional", "TimeDistributed": "mu_time_distributed", "Embedding": "mu_embedding",
             "Dense": "mu_dense", "Conv1D": "mu_conv1d", "BatchNormalization": "mu_batch_normalization",
             "Reshape": "mu_reshape_layer", "GlobalAveragePooling1D": "mu_global_average_pool1d",
             "ConvLSTM1D": "mu_conv_lstm1d", "ConvLSTM2D": "mu_conv_lstm2d", "ConvLSTM3D": "mu_conv_lstm3d"}
# The shape of a step, where it is not (FEATURES,).
MAPS = {"ConvLSTM1D": (6, 3), "ConvLSTM2D": (5, 4, 3), "ConvLSTM3D": (4, 3, 5, 2)}


def layer(keras, **options):
    """A layer's description, which either side turns into a layer of its own."""
    return keras, options


ALL = {"activation": "relu", "use_bias": False, "kernel_initializer": "he_normal", "recurrent_initializer": "glorot_uniform",
       "return_sequences": True, "return_state": True, "go_backwards": True}
STACK = layer("StackedRNNCells", cells=[layer("LSTMCell", units=UNITS), layer("GRUCell", units=3)])

# A layer, and how it is called: with a mask, with first states.
ROWS_OF_LAYERS = [(layer(kind, units=UNITS, **options), mask, states)
                  for kind in ("LSTM", "GRU", "SimpleRNN")
                  for options, mask, states in (
                      ({}, False, False), ({"return_sequences": True}, True, False), ({}, True, False),
                      ({"return_sequences": True, "return_state": True}, True, True), (ALL, False, False),
                      ({"go_backwards": True, "return_state": True}, True, True),
                      ({"unroll": True, "return_sequences": True, "go_backwards": True}, True, False),
                      ({"zero_output_for_mask": True, "return_sequences": True}, True, True))]
ROWS_OF_LAYERS += [
    (layer("LSTM", units=UNITS, recurrent_activation="hard_sigmoid", unit_forget_bias=False), False, False),
    (layer("GRU", units=UNITS, recurrent_activation="hard_sigmoid", reset_after=False), False, False),
    (layer("GRU", units=UNITS, reset_after=False, use_bias=False, return_sequences=True), True, True),
    (layer("RNN", cell=layer("GRUCell", units=UNITS), return_sequences=True), True, False),
    (layer("RNN", cell=STACK, return_sequences=True), False, False),
    (layer("RNN", cell=STACK), True, False),
    (layer("RNN", cell=STACK, unroll=True, go_backwards=True, return_sequences=True), True, False),
]
ROWS_OF_LAYERS += [
    (layer("Bidirectional", layer=layer(kind, units=UNITS, **options), merge_mode=mode), mask, states)
    for kind, mode, options, mask, states in (
        ("LSTM", "concat", {}, False, False), ("LSTM", "sum", {"return_sequences": True}, True, False),
        ("GRU", "mul", {"return_sequences": True}, True, False), ("GRU", "ave", {}, True, False),
        ("SimpleRNN", None, {"return_sequences": True}, False, False),
        ("LSTM", None, {"return_sequences": True, "return_state": True}, True, True),
        ("GRU", "concat", {"return_sequences": True, "return_state": True}, True, True))]
ROWS_OF_LAYERS += [
    (layer("Bidirectional", layer=layer("LSTM", units=UNITS, return_sequences=True),
           backward_layer=layer("GRU", units=3, return_sequences=True, go_backwards=True)), True, False),
    (layer("Bidirectional", layer=layer("GRU", units=UNITS, return_sequences=True, go_backwards=True),
           backward_layer=layer("GRU", units=3, return_sequences=True, name="back")), False, False),
    (layer("TimeDistributed", layer=layer("Dense", units=UNITS, activation="tanh")), True, False),
]
CONV_LSTM = {"filters": 3, "kernel_size": 3, "return_sequences": True}
ROWS_OF_LAYERS += [
    (layer("ConvLSTM1D", **CONV_LSTM, strides=2, activation="relu", use_bias=False, go_backwards=True), True, False),
    (layer("ConvLSTM1D", **CONV_LSTM, padding="same", return_state=True), True, True),
    (layer("ConvLSTM2D", **CONV_LSTM, padding="same", dilation_rate=2, unit_forget_bias=False, return_state=True), True, True),
    (layer("ConvLSTM2D", filters=2, kernel_size=2, recurrent_activation="hard_sigmoid"), False, False),
    (layer("ConvLSTM3D", filters=2, kernel_size=2, padding="same", return_state=True, unroll=True), False, True),
    (layer("Bidirectional", layer=layer("ConvLSTM2D", **CONV_LSTM)), True, False),
]


def is_layer(value):
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)


def in_keras(described):
    name, options = described
    made = {key: in_keras(value) if is_layer(value) else [in_keras(item) for item in value]
            if isinstance(value, list) and is_layer(value[0]) else value for key, value in options.items()}
    return getattr(tf.keras.layers, name)(**made)


def in_muster(mu, described):
    name, options = described
    if "cells" in options:
        return mu.mu_stacked_rnn_cells_of([*(in_muster(mu, cell) for cell in options["cells"]), mu.end])
    made = {}
    if options.get("merge_mode", "") is None:
        options = options | {"merge_mode": "none"}
    for key, value in options.items():
        opposite = OPPOSITES.get(key)
        made[opposite or RENAMED.get(key, key)] = in_muster(mu, value) if is_layer(value) else not value if opposite else value
    return getattr(mu, FUNCTIONS[name])(**made)


def title(described, mask, states):
    name, options = described
    parts = [title(value, False, False) if is_layer(value) else "+".join(title(item, False, False) for item in value)
             if isinstance(value, list) and is_layer(value[0]) else f"{key} {value}"
             for key, value in options.items() if key != "units"]
    return f"{name}({', '.join(parts)}){' masked' * mask}{' from states' * states}"


# ---- One layer ----------------------------------------------------------------------------------------

def random_weights(variables, generator, dtype):
    for variable in variables:
        variable.assign(generator.normal(0, 0.5, tuple(variable.shape)).astype(dtype))


def weights_of(keras_layer):
    """The weights by the names that they have in a model of Muster: without the model's name."""
    return {variable.path: np.asarray(variable.numpy()) for variable in keras_layer.weights}


def flat(value):
    return [part for item in value for part in flat(item)] if isinstance(value, (list, tuple)) else [value]


def arguments_of(row, generator, dtype):
    """The inputs, and the mask (some rows are masked at the start, in the middle, at the end, and throughout)."""
    (name, options), masked, states = row
    both = name == "Bidirectional"
    if both:
        name, options = options["layer"]
    step = MAPS.get(name, (FEATURES,))
    inputs = [generator.normal(size=(ROWS, STEPS, *step)).astype(dtype)]
    if states:
        state = (ROWS, *step[:-1], options.get("units") or options["filters"])
        inputs += [generator.normal(size=state).astype(dtype) for _ in range((1 + ("LSTM" in name)) * (1 + both))]
    mask = generator.random((ROWS, STEPS)) < 0.6 if masked else None
    if masked:
        mask[0], mask[1, :3], mask[2, -3:] = False, False, False
    return inputs, mask


def call_keras(theirs, inputs, mask, factors):
    with tf.GradientTape() as tape:
        tensors = [tf.constant(x) for x in inputs]
        states = {"initial_state": tensors[1:]} if len(tensors) > 1 else {}
        outputs = flat(theirs(tensors[0], mask=None if mask is None else tf.constant(mask), **states))
        loss = sum(tf.reduce_sum(y * factors(i, y.shape)) for i, y in enumerate(outputs))
    return [y.numpy() for y in outputs], [g.numpy() for g in tape.gradient(loss, theirs.trainable_weights)]


def call_muster(mu, ours, inputs, masks, factors, shapes):
    """Outputs and gradients; used eagerly and in a traced function. `masks` are mu_call's arguments."""
    tape = mu.mu_tape_open()
    result = mu.mu_call_values(model=ours, inputs=mu.values(inputs), **masks)
    outputs = [mu.mu_at(result, i) for i in range(len(shapes))]
    losses = [mu.mu_reduce_sum(mu.mu_multiply(y, mu.tensor(factors(i, shapes[i]))), muster.ALL_AXES)
              for i, y in enumerate(outputs)]
    loss = losses[0]
    for other in losses[1:]:
        loss = mu.mu_add(loss, other)
    gradients = mu.mu_gradients(tape, loss, mu.mu_trainable_variables(ours))
    mu.mu_tape_close(tape)
    count = mu.mu_value_count(gradients)
    return outputs + [mu.mu_convert_to_tensor(mu.mu_value_at(gradients, i)) for i in range(count)]


def compare_layer(report, mu, floatx, row):
    described, masked, states = row
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(2)
    inputs, mask = arguments_of(row, generator, dtype)
    theirs = in_keras(described)
    theirs(inputs[0])
    random_weights(theirs.trainable_weights, generator, dtype)

    def factors(i, shape):
        return np.random.default_rng(i).normal(size=tuple(shape)).astype(dtype)

    outputs, gradients = call_keras(theirs, inputs, mask, factors)
    wanted, shapes = outputs + gradients, [y.shape for y in outputs]
    with mu.pool():
        ours = in_muster(mu, described)
        model = mu.model([ours])
        mu.mu_model_build(model, inputs[0].ndim - 1, list(inputs[0].shape[1:]))
        mu.write_weights(model, weights_of(theirs))
        tensors = [mu.tensor(x) for x in inputs] + ([mu.tensor(mask)] if masked else [])
        count = len(inputs)

        def call(given):
            return call_muster(mu, ours, given[:count], {"mask": given[count]} if masked else {}, factors, shapes)

        eager = [mu.array(y) for y in call(tensors)]
        function, _callback = mu.function(
            lambda batch: mu.values(call([mu.mu_at(batch, i) for i in range(len(tensors))])))
        result = mu.mu_run(mu.strategy, function, mu.values(tensors))
        traced = [mu.array(mu.mu_at(result, i)) for i in range(len(wanted))]
    far = [max((off(a, b) for a, b in zip(seen, wanted, strict=True))) for seen in (eager, traced)]
    report.check(f"{title(*row)}, {floatx}", f"outputs and gradients within {far[0]:.1e}, traced {far[1]:.1e}",
                 max(far) <= TOLERANCE[floatx])


# ---- Configurations -----------------------------------------------------------------------------------

def models_for_config():
    return {
        "wrappers": [layer("Bidirectional", layer=layer("LSTM", units=4, return_sequences=True), merge_mode="mul"),
                     layer("TimeDistributed", layer=layer("Dense", units=5, activation="relu")),
                     layer("Bidirectional", layer=layer("GRU", units=2), name="both")],
        "recurrent": [layer("LSTM", units=4, activation="relu", use_bias=False, dropout=0.25, recurrent_dropout=0.5, seed=3,
                            return_sequences=True, go_backwards=True, unroll=True),
                      layer("GRU", units=3, reset_after=False, recurrent_activation="hard_sigmoid", return_sequences=True),
                      layer("RNN", cell=STACK, return_sequences=True), layer("SimpleRNN", units=2)],
        "maps": [layer("Reshape", target_shape=(STEPS, FEATURES, 1)),
                 layer("ConvLSTM1D", filters=2, kernel_size=2, strides=2, return_sequences=True, dropout=0.25, seed=3)],
    }


def compare_configuration(report, mu, floatx, row):
    """Keras's JSON is read here and gives the same outputs; ours is read by Keras and gives the same model."""
    name, layers = row
    dtype = FLOATX[floatx]
    theirs = tf.keras.Sequential([tf.keras.Input((STEPS, FEATURES)), *map(in_keras, layers)])
    generator = np.random.default_rng(5)
    x = generator.normal(size=(ROWS, STEPS, FEATURES)).astype(dtype)
    random_weights(theirs.trainable_weights, generator, dtype)
    weights = {variable.path.partition("/")[2]: variable.numpy() for variable in theirs.weights}
    with mu.pool():
        ours = mu.mu_layer_from_config(theirs.to_json())
        mu.write_weights(ours, weights)
        seen = mu.array(mu.mu_call(model=ours, x=mu.tensor(x)))
        text = mu.mu_layer_config(ours)
    far = off(seen, theirs(x).numpy())
    report.check(f"configuration {name}: Keras's read here, {floatx}", f"outputs within {far:.1e}", far <= TOLERANCE[floatx])
    again = tf.keras.models.model_from_json(text.decode() if isinstance(text, bytes) else text)
    again.set_weights(theirs.get_weights())
    far = off(again(x).numpy(), theirs(x).numpy())
    same = again.to_json() == theirs.to_json().replace(theirs.name, again.name)
    report.check(f"configuration {name}: ours read by Keras, {floatx}", f"outputs within {far:.1e}",
                 same and far <= TOLERANCE[floatx])


# ---- States that stay ---------------------------------------------------------------------------------

STATEFUL = {
    "LSTM, GRU": [layer("LSTM", units=UNITS, stateful=True, return_sequences=True), layer("GRU", units=3, stateful=True)],
    "bidirectional": [layer("Bidirectional", layer=layer("SimpleRNN", units=UNITS, stateful=True))],
    "stacked cells": [layer("RNN", cell=STACK, stateful=True)],
    "each step of a sequence": [layer("Reshape", target_shape=[STEPS, FEATURES, 1]),
                                layer("TimeDistributed", layer=layer("GRU", units=UNITS, stateful=True)),
                                layer("GlobalAveragePooling1D")],
}


def reset(keras_layer):
    for inner in keras_layer._flatten_layers(include_self=False, recursive=False):
        reset(inner)
    for state in tf.nest.flatten(getattr(keras_layer, "states", None) or []):  # reset_state fails for stacked cells
        state.assign(tf.zeros_like(state))


def train_stateful(mu, model, x, y, built):
    """Losses of three epochs, the states reset after each; then predictions from no states, and from the last ones."""
    mu.mu_compile(model=model, optimizer=mu.mu_sgd(learning_rate=0.125), loss=mu.mu_mean_squared_error_loss())
    losses = []
    for _ in range(3):
        seen = mu.mu_fit(model=model, x=mu.values([mu.tensor(x), mu.tensor(y)]), batch_size=ROWS - 1, no_shuffle=True,
                         verbose=MU_VERBOSE_SILENT)
        losses.append(mu.mu_history_last(seen, "loss"))
        mu.mu_layer_reset_states(model)
    one = mu.tensor(x[:ROWS - 1])
    predictions = [mu.array(mu.mu_predict(model=model, x=one, batch_size=ROWS - 1, verbose=MU_VERBOSE_SILENT))
                   for _ in range(2)]
    return [np.array(losses), *predictions, *(mu.read_weights(model)[name] for name in built)]


def compare_stateful(report, mu, floatx, row):
    """Stateful layers in fit and predict: made here, read from Keras's JSON, on one replica and on three."""
    name, layers = row
    dtype, batch = FLOATX[floatx], ROWS - 1
    generator = np.random.default_rng(7)
    x, y = generator.normal(size=(batch * 5, STEPS, FEATURES)).astype(dtype), generator.normal(size=(batch * 5, 2)).astype(dtype)
    theirs = tf.keras.Sequential([tf.keras.Input(batch_shape=(batch, STEPS, FEATURES)), *map(in_keras, layers),
                                  tf.keras.layers.Dense(2)])
    random_weights(theirs.trainable_weights, generator, dtype)
    first = {variable.path.partition("/")[2]: variable.numpy() for variable in theirs.weights}
    text = theirs.to_json()  # without how it is compiled
    theirs.compile(tf.keras.optimizers.SGD(0.125), "mse")
    wanted = [[]]
    for _ in range(3):
        wanted[0] += theirs.fit(x, y, batch_size=batch, shuffle=False, verbose=0).history["loss"]
        reset(theirs)
    wanted += [theirs.predict(x[:batch], batch_size=batch, verbose=0) for _ in range(2)]
    wanted += [variable.numpy() for variable in theirs.weights]
    far = []
    for replicas, from_json in ((1, False), (1, True), (3, False)):
        with mu.pool(), mu.scope(mu.mirrored(replicas)):
            ours = mu.mu_layer_from_config(theirs.to_json()) if from_json else \
                mu.model([mu.mu_input_layer(shape=[STEPS, FEATURES], batch_size=batch),
                          *(in_muster(mu, item) for item in layers), mu.mu_dense(units=2)])
            mu.write_weights(ours, first)
            seen = train_stateful(mu, ours, x, y, first)
            far.append(max(off(a, b) for a, b in zip(seen, wanted, strict=True)))
            again = tf.keras.models.model_from_json(mu.mu_layer_config(ours).decode())
            far.append(0 if again.to_json() == text.replace(theirs.name, again.name) else np.inf)
    report.check(f"stateful {name}, {floatx}", f"losses, predictions and weights within {max(far):.1e}",
                 max(far) <= TOLERANCE[floatx])


# ---- Training -----------------------------------------------------------------------------------------

WORDS, SENTENCE = 40, 6
MODELS = {
    "LSTM": [layer("Embedding", input_dim=WORDS, output_dim=6, mask_zero=True), layer("LSTM", units=8, return_sequences=True),
             layer("LSTM", units=5), layer("Dense", units=3)],
    "bidirectional LSTM": [
        layer("Embedding", input_dim=WORDS, output_dim=6, mask_zero=True),
        layer("Bidirectional", layer=layer("LSTM", units=6, return_sequences=True)),
        layer("TimeDistributed", layer=layer("Dense", units=5, activation="tanh")),
        layer("Bidirectional", layer=layer("GRU", units=4), merge_mode="sum", name="second"),
        layer("Dense", units=3, name="head")],
    "GRU": [layer("Embedding", input_dim=WORDS, output_dim=6, mask_zero=True), layer("GRU", units=8), layer("Dense", units=3)],
    "steps normalized": [
        layer("Embedding", input_dim=WORDS, output_dim=6, mask_zero=True),
        layer("TimeDistributed", layer=layer("BatchNormalization", momentum=0.5)), layer("LSTM", units=5), layer("Dense", units=3)],
    "simple RNN, a label for each step": [
        layer("Embedding", input_dim=WORDS, output_dim=6, mask_zero=True),
        layer("SimpleRNN", units=8, return_sequences=True), layer("Dense", units=3)],
}


def compare_training(report, mu, floatx, row):
    """Losses and weights of 200 steps of SGD with momentum on sentences of different lengths."""
    name, layers = row
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(4)
    x = generator.integers(1, WORDS, (ROWS * 4, SENTENCE)).astype(np.int32)
    x[np.arange(SENTENCE)[None] >= generator.integers(1, SENTENCE + 1, len(x))[:, None]] = 0
    each_step = "each step" in name
    y = (x % 3 if each_step else x.sum(1) % 3).astype(np.int32)
    theirs = tf.keras.Sequential([tf.keras.Input((SENTENCE,), dtype="int32"), *map(in_keras, layers)])
    random_weights(theirs.trainable_weights, generator, dtype)
    weights = {variable.path.partition("/")[2]: variable.numpy() for variable in theirs.weights}
    momentum = float(np.float32(0.9))
    theirs.compile(tf.keras.optimizers.SGD(0.0625, momentum=momentum),
                   tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    history = theirs.fit(x, y, batch_size=len(x), epochs=TRAINING_STEPS, shuffle=False, verbose=0).history
    with mu.pool():
        ours = mu.model([in_muster(mu, item) for item in layers])
        mu.mu_model_build(ours, 1, [SENTENCE])
        mu.write_weights(ours, weights)
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.0625, momentum=momentum),
                      loss=mu.mu_sparse_categorical_crossentropy_loss(from_logits=True), metrics=mu.mu_accuracy())
        seen = mu.mu_fit(model=ours, x=mu.values([mu.tensor(x), mu.tensor(y)]), batch_size=len(x), epochs=TRAINING_STEPS,
                         no_shuffle=True, verbose=MU_VERBOSE_SILENT)
        last = {key: mu.mu_history_last(seen, key) for key in ("loss", "accuracy")}
        after = mu.read_weights(ours)
    far = max(off(after[variable.path.partition("/")[2]], variable.numpy()) for variable in theirs.weights)
    far_loss = max(off(last[key], history[key][-1]) for key in last)
    report.check(f"training {name}, {floatx}", f"after {TRAINING_STEPS} steps weights within {far:.1e}, loss and accuracy "
                 f"within {far_loss:.1e}", far <= TOLERANCE_F64 and far_loss <= 1e-6)


# ---- Masks --------------------------------------------------------------------------------------------

def masked_keras():
    """Masks of one input and of several, beside inputs without one, up to the losses of some outputs. Keras drops the
    mask of a recurrent layer that is called with states, unless it is given."""
    layers = tf.keras.layers
    first, second = layers.Input((SENTENCE,), dtype="int32"), layers.Input((SENTENCE,), dtype="int32")
    plain, state = layers.Input((SENTENCE, 4)), layers.Input((4,))
    table = layers.Embedding(WORDS, 4, mask_zero=True, name="table")
    a, b = table(first), table(second)
    outputs = [layers.LSTM(3, name="either")(layers.Add()([a, b])),
               layers.GRU(3, name="unmasked")(layers.Add()([a, plain])),
               layers.GRU(3, return_sequences=True, name="joined")(layers.Concatenate()([a, plain])),
               layers.GRU(3, name="steps")(layers.Concatenate(axis=1)([a, b])),
               layers.GRU(4, return_sequences=True, name="begun")(a, state, mask=table.compute_mask(first)),
               layers.LSTM(3, name="values")(layers.Masking()(plain))]
    return tf.keras.Model([first, second, plain, state], outputs)


def masked_muster(mu):
    def call(made, *inputs):
        return mu.mu_call(model=made, inputs=mu.values(inputs)) if len(inputs) > 1 else mu.mu_call(model=made, x=inputs[0])

    whole = mu.declared.constants["MU_I32"]
    first, second = (mu.mu_input(shape=[SENTENCE], dtype=whole) for _ in range(2))
    plain, state = mu.mu_input(shape=[SENTENCE, 4]), mu.mu_input(shape=[4])
    table = mu.mu_embedding(input_dim=WORDS, output_dim=4, mask_zero=True, name="table")
    a, b = call(table, first), call(table, second)
    outputs = [call(mu.mu_lstm(units=3, name="either"), call(mu.mu_add_layer(), a, b)),
               call(mu.mu_gru(units=3, name="unmasked"), call(mu.mu_add_layer(), a, plain)),
               call(mu.mu_gru(units=3, return_sequences=True, name="joined"), call(mu.mu_concatenate(), a, plain)),
               call(mu.mu_gru(units=3, name="steps"), call(mu.mu_concatenate(axis=1), a, b)),
               call(mu.mu_gru(units=4, return_sequences=True, name="begun"), a, state),
               call(mu.mu_lstm(units=3, name="values"), call(mu.mu_masking(), plain))]
    return mu.mu_model_new(inputs=mu.values([first, second, plain, state]), outputs=mu.values(outputs))


def compare_masks(report, mu, floatx, _):
    """Outputs, and the loss of every output, of a functional model with masks."""
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(8)
    words = [generator.integers(0, 3, (ROWS * 2, SENTENCE)).astype(np.int32) for _ in range(2)]
    plain = generator.normal(size=(ROWS * 2, SENTENCE, 4)).astype(dtype)
    plain[generator.random((ROWS * 2, SENTENCE)) < 0.4] = 0
    x = [*words, plain, generator.normal(size=(ROWS * 2, 4)).astype(dtype)]
    theirs = masked_keras()
    random_weights(theirs.trainable_weights, generator, dtype)
    wanted = [y.numpy() for y in theirs(x)]
    labels = [generator.normal(size=y.shape).astype(dtype) for y in wanted]
    theirs.compile(loss="mse")
    loss = theirs.evaluate(x, labels, batch_size=len(plain), verbose=0)
    with mu.pool():
        ours = masked_muster(mu)
        mu.write_weights(ours, weights_of(theirs))
        tensors = mu.values([mu.tensor(part) for part in x])
        seen = mu.mu_call_values(model=ours, inputs=tensors)
        far = [off(mu.array(mu.mu_at(seen, i)), y) for i, y in enumerate(wanted)]
        mu.mu_compile(model=ours, loss=mu.mu_items_of([*(mu.mu_mean_squared_error_loss() for _ in wanted), mu.end]))
        data = mu.mu_list_of(2, [tensors, mu.values([mu.tensor(y) for y in labels])])
        history = mu.mu_evaluate(model=ours, x=data, batch_size=len(plain), verbose=MU_VERBOSE_SILENT)
        far_loss = off(mu.mu_history_last(history, "loss"), loss if np.isscalar(loss) else loss[0])
    report.check(f"masks, {floatx}", f"outputs within {max(far):.1e}, the sum of their losses within {far_loss:.1e}",
                 max(*far, far_loss) <= TOLERANCE[floatx])


def given_keras():
    """Masks that the calls are given: one for a sequence, one of an operand, a list. (Keras's MultiHeadAttention replaces a
    query_mask that it is given by the query's own.)"""
    layers = tf.keras.layers
    x, values = layers.Input((STEPS, 4), name="x"), layers.Input((STEPS, 4), name="values")
    a, b = (layers.Input((STEPS,), dtype="bool", name=name) for name in ("a", "b"))
    _, *states = layers.LSTM(3, return_state=True, name="encoder")(x)
    outputs = [layers.LSTM(3, name="last")(x, mask=a), layers.LSTM(3, name="decoder")(values, states, mask=b),
               layers.Bidirectional(layers.GRU(3, return_sequences=True, name="gru"), name="both")(x, mask=b),
               layers.MultiHeadAttention(2, 3, name="heads")(x, values, value_mask=b),
               layers.Attention(name="dots")([x, values], mask=[None, b]),
               layers.GlobalAveragePooling1D(name="mean")(values, mask=b)]
    return tf.keras.Model([x, values, a, b], outputs)


def given_muster(mu):
    boolean = mu.declared.constants["MU_BOOL"]
    x, values = (mu.mu_input(shape=[STEPS, 4], name=name) for name in ("x", "values"))
    a, b = (mu.mu_input(shape=[STEPS], dtype=boolean, name=name) for name in ("a", "b"))
    pair, second = mu.values([x, values]), mu.mu_list_of(2, [mu.mu_list_of(0, None), mu.mu_of(b)])
    encoded = mu.mu_call_values(model=mu.mu_lstm(units=3, return_state=True, name="encoder"), x=x)
    begun = mu.values([values, mu.mu_at(encoded, 1), mu.mu_at(encoded, 2)])
    outputs = [mu.mu_call(model=mu.mu_lstm(units=3, name="last"), x=x, mask=a),
               mu.mu_call(model=mu.mu_lstm(units=3, name="decoder"), inputs=begun, mask=b),
               mu.mu_call(model=mu.mu_bidirectional(layer=mu.mu_gru(units=3, return_sequences=True, name="gru"),
                                                    name="both"), x=x, mask=b),
               mu.mu_call(model=mu.mu_multi_head_attention(num_heads=2, key_dim=3, name="heads"), inputs=pair,
                          masks=second),
               mu.mu_call(model=mu.mu_attention(name="dots"), inputs=pair, masks=second),
               mu.mu_call(model=mu.mu_global_average_pool1d(name="mean"), x=values, mask=b)]
    return mu.mu_model_new(inputs=mu.values([x, values, a, b]), outputs=mu.values(outputs))


def compare_given_masks(report, mu, floatx, _):
    """A functional model whose calls are given masks, made here, read from Keras's JSON, and ours read by Keras."""
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(9)
    x = [generator.normal(size=(ROWS, STEPS, 4)).astype(dtype) for _ in range(2)]
    x += [generator.random((ROWS, STEPS)) < 0.6 for _ in range(2)]
    theirs = given_keras()
    random_weights(theirs.trainable_weights, generator, dtype)
    wanted = [y.numpy() for y in theirs(x)]
    with mu.pool():
        far = []
        for ours in (given_muster(mu), mu.mu_layer_from_config(theirs.to_json())):
            mu.write_weights(ours, weights_of(theirs))
            seen = mu.mu_call_values(model=ours, inputs=mu.values([mu.tensor(part) for part in x]))
            far.append(max(off(mu.array(mu.mu_at(seen, i)), y) for i, y in enumerate(wanted)))
            back = tf.keras.models.model_from_json(mu.mu_layer_config(ours).decode())
            back.set_weights(theirs.get_weights())
            far.append(max(off(y.numpy(), z) for y, z in zip(back(x), wanted)))
    report.check(f"given masks, {floatx}", "results within {:.1e}, read by Keras {:.1e}, read from Keras {:.1e}, and back "
                 "{:.1e}".format(*far), max(far) <= TOLERANCE[floatx])


# Layers that are called with a mask: Keras's name, its options, Muster's function, and options there that differ. The
# mask is one of steps, or of elements.
ELEMENTS = ("Softmax",)
MASKED = [("Dense", {"units": 3}, "mu_dense", {}), ("Conv1D", {"filters": 3, "kernel_size": 3, "padding": "same"}, "mu_conv1d", {}),
          ("BatchNormalization", {"momentum": 0.5, "epsilon": 0.125}, "mu_batch_normalization", {}),
          ("BatchNormalization", {"momentum": 0.5, "epsilon": 0.125, "axis": 1}, "mu_batch_normalization", {}),
          ("LayerNormalization", {"epsilon": 0.125}, "mu_layer_normalization", {}),
          ("GroupNormalization", {"groups": 2, "epsilon": 0.125}, "mu_group_normalization", {}),
          ("UnitNormalization", {}, "mu_unit_normalization", {}), ("Softmax", {}, "mu_softmax", {}),
          ("Softmax", {"axis": 1}, "mu_softmax", {}), ("Activation", {"activation": "tanh"}, "mu_activation", {}),
          ("ReLU", {}, "mu_relu_layer", {}), ("ELU", {}, "mu_elu", {}), ("LeakyReLU", {"negative_slope": 0.25}, "mu_leaky_relu", {}),
          ("PReLU", {}, "mu_prelu", {}), ("Identity", {}, "mu_identity_layer", {}), ("Dropout", {"rate": 0.0}, "mu_dropout", {}),
          ("SpatialDropout1D", {"rate": 0.0}, "mu_spatial_dropout1d", {}), ("Rescaling", {"scale": 0.5}, "mu_rescaling", {}),
          ("ActivityRegularization", {"l2": 0.5}, "mu_activity_regularization", {}), ("Flatten", {}, "mu_flatten", {}),
          ("Permute", {"dims": (2, 1)}, "mu_permute", {}), ("Reshape", {"target_shape": (14, 2)}, "mu_reshape_layer",
                                                            {"shape": (14, 2), "target_shape": None}),
          ("ZeroPadding1D", {}, "mu_zero_padding1d", {}), ("UpSampling1D", {}, "mu_up_sampling1d", {"factor": 2}),
          ("MaxPooling1D", {}, "mu_max_pool1d", {}), ("GlobalAveragePooling1D", {}, "mu_global_average_pool1d", {})]


def compare_masked_layer(report, mu, floatx, row):
    """Output in training, weights after it, and whether the output has a mask."""
    name, options, function, different = row
    dtype, generator = FLOATX[floatx], np.random.default_rng(10)
    x = generator.normal(size=(ROWS, STEPS, 4)).astype(dtype)
    mask = generator.random(x.shape if name in ELEMENTS else x.shape[:2]) < 0.6
    theirs = getattr(tf.keras.layers, name)(**options, name="layer")
    theirs.build(x.shape)
    random_weights(theirs.trainable_weights, generator, dtype)
    first = weights_of(theirs)
    given = tf.constant(x)
    backend.set_keras_mask(given, tf.constant(mask))
    wanted = theirs(given, training=True)
    kept, after = backend.get_keras_mask(wanted), weights_of(theirs)
    with mu.pool():
        mine = {key: value for key, value in (options | different).items() if value is not None}
        ours = getattr(mu, function)(**mine, name="layer")
        model = mu.model([ours])
        mu.mu_model_build(model, 2, list(x.shape[1:]))
        mu.write_weights(model, first)
        y = mu.mu_call(model=ours, x=mu.tensor(x), mask=mu.tensor(mask), training=True)
        passed, weights = mu.mu_mask_of(y), mu.read_weights(model)
        far = max([off(mu.array(y), wanted.numpy())] + [off(weights[key], value) for key, value in after.items()])
        same = bool(passed) == (kept is not None) and (not passed or np.array_equal(mu.array(passed), kept.numpy()))
    report.check(f"masked {name} {options}, {floatx}", f"output and weights within {far:.1e}; has {'a' if passed else 'no'} mask, in "
                 f"Keras {'no' if kept is None else 'a'}", far <= TOLERANCE[floatx] and same)


def main(library, only=""):
    mu = muster.Library(library, cpu_devices=3)
    report = Report("sequences")
    for floatx in FLOATX:
        parts = [(compare_layer, row, title(*row)) for row in ROWS_OF_LAYERS]
        parts += [(compare_configuration, row, f"configuration {row[0]}") for row in models_for_config().items()]
        parts += [(compare_masks, None, "masks"), (compare_given_masks, None, "given masks")]
        parts += [(compare_masked_layer, row, f"masked {row[0]}") for row in MASKED]
        if floatx == "f64":
            parts += [(compare_stateful, row, f"stateful {row[0]}") for row in STATEFUL.items()]
            parts += [(compare_training, row, f"training {row[0]}") for row in MODELS.items()]
        compare_parts(report, mu, floatx, parts, only)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
