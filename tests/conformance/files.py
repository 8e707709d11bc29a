# Models that move between Python and C in files.
#
# Each model is made by Keras and trained a little, so that the optimizer has state; saved as .keras; loaded by Muster,
# which must predict the same; trained there for 50 steps; saved as .keras, as .weights.h5 and as a TensorFlow
# checkpoint; and each of these, loaded by Keras, must predict what Muster predicts. Then both train one more step from
# the saved state. Configurations that Muster must refuse are in REFUSED.
import os
import sys
import tempfile

import numpy as np

from muster import MusterError
from report import Report

STEPS = 50
LIMIT = 1e-5  # of what both predict from the same weights
MU_VERBOSE_SILENT = 1
ROWS = 16


def import_keras():
    import keras
    import tensorflow as tf

    return keras, tf


def resnet(keras):
    L = keras.layers
    x = inputs = keras.Input((12, 12, 3), name="image")
    x = L.Conv2D(8, 3, padding="same", use_bias=False)(x)
    for filters, strides in ((8, 1), (16, 2)):
        y = L.Conv2D(filters, 3, strides=strides, padding="same", kernel_regularizer="l2")(x)
        y = L.BatchNormalization()(y)
        y = L.Activation("relu")(y)
        y = L.Conv2D(filters, 3, padding="same")(y)
        if strides > 1:
            x = L.Conv2D(filters, 1, strides=strides)(x)
        x = L.ReLU()(L.Add()([x, y]))
    x = L.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, L.Dense(4, name="logits")(x), name="resnet")
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def transformer(keras):
    L = keras.layers
    inputs = keras.Input((10,), dtype="int32", name="tokens")
    x = L.Embedding(20, 8, mask_zero=True)(inputs)
    y = L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = L.LayerNormalization()(L.Add()([x, y]))
    y = L.Dense(16, activation="gelu")(x)
    x = L.LayerNormalization()(L.Add()([x, L.Dense(8)(y)]))
    model = keras.Model(inputs, L.Dense(4)(L.GlobalAveragePooling1D()(x)), name="transformer")
    model.compile(keras.optimizers.AdamW(0.003, weight_decay=0.01), "mse")
    return model


def masked_attention(keras):
    L = keras.layers
    x, memory = keras.Input((6, 8), name="x"), keras.Input((7, 8), name="memory")
    mask = keras.Input((6, 7), dtype="int32", name="mask")
    y = L.MultiHeadAttention(2, 4)(x, memory, attention_mask=mask)
    y = L.GroupQueryAttention(4, 4, 2)(y, memory)
    y = L.Attention(use_scale=True)([y, memory])
    z = L.AdditiveAttention()([y, x])
    model = keras.Model([x, memory, mask], L.Flatten()(L.Concatenate()([y, z])), name="masked")
    model.compile(keras.optimizers.Adam(0.003, amsgrad=True), "mae")
    return model


def lstm(keras):
    L = keras.layers
    model = keras.Sequential([
        keras.Input((9, 5)), L.Masking(), L.Bidirectional(L.LSTM(6, return_sequences=True)),
        L.TimeDistributed(L.Dense(4, activation="tanh")), L.RNN([L.GRUCell(3), L.SimpleRNNCell(4)], return_sequences=True),
        L.Bidirectional(L.GRU(3), merge_mode="sum"), L.Dense(1)], name="lstm")
    model.compile(keras.optimizers.RMSprop(0.002, momentum=0.5, centered=True), keras.losses.Huber(), metrics=["mae"])
    return model


def recommender(keras):
    L = keras.layers
    user, item = keras.Input((), dtype="int32", name="user"), keras.Input((4,), dtype="int32", name="items")
    tower = keras.Sequential([keras.Input((6,)), L.Dense(8, activation="relu"), L.Dense(5)], name="tower")
    a, b = keras.Input((5,)), keras.Input((5,))
    match = keras.Model([a, b], L.Dense(1, name="score")(L.Multiply()([a, b])), name="match")
    u = tower(L.Embedding(30, 6, name="users")(user))
    i = tower(L.GlobalMaxPooling1D()(L.Embedding(40, 6, name="items_table")(item)))
    model = keras.Model([user, item], [match([u, i]), L.Dot(1, normalize=True, name="cosine")([u, i])], name="recommender")
    model.compile(keras.optimizers.Adagrad(0.01), ["binary_crossentropy", "mse"], loss_weights=[1.0, 0.5])
    return model


def mlp(keras):
    L = keras.layers
    model = keras.Sequential([L.Dense(7, activation="relu"), L.BatchNormalization(), L.Dense(3)], name="mlp")
    model.build((None, 5))
    model.compile(keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9), use_ema=True), "mse")
    return model


def scaled(keras):
    """An optimizer inside of another, whose state Keras's own formats have twice; the scale grows within the steps."""
    L = keras.layers
    model = keras.Sequential([keras.Input((5,)), L.Dense(7, activation="tanh"), L.Dense(3)], name="scaled")
    inner = keras.optimizers.RMSprop(0.01, momentum=0.5)
    model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=64.0, dynamic_growth_steps=20), "mse")
    return model


def shared(keras):
    L = keras.layers
    x = inputs = keras.Input((4,))
    d = L.Dense(4, activation="elu", name="shared")
    for _ in range(3):
        x = L.Average()([x, d(x)])
    model = keras.Model(inputs, {"a": L.Dense(1, name="a")(x), "b": L.Dense(2, name="b")(x)})
    model.compile("lion", {"a": "mse", "b": "mae"}, metrics={"a": ["mae"], "b": ["mse"]})
    return model


def spectral(keras):
    """Layers whose training changes weights without gradients, and losses of activities."""
    L = keras.layers
    model = keras.Sequential([
        keras.Input((6, 6, 2)), L.SpectralNormalization(L.Conv2D(3, 3, activation="tanh"), power_iterations=2),
        L.ActivityRegularization(l1=0.01, l2=0.02), L.Flatten(), L.SpectralNormalization(L.Dense(4)), L.Dense(2)],
        name="spectral")
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


NAMES = ["ann", "bob", "cy", "dora"]
TITLES = ["The cat sat.", "a dog", "dog, dog!", "zebra", "sat"]


def look_ups(keras):
    """A recommender whose inputs are names, numbers and titles, with the vocabularies that its layers were given."""
    L = keras.layers
    user, title = keras.Input((), dtype="string", name="user"), keras.Input((), dtype="string", name="title")
    seen, tags = keras.Input((3,), dtype="int64", name="seen"), keras.Input((2,), dtype="string", name="tags")
    tower = keras.Sequential([L.StringLookup(vocabulary=NAMES[:3], num_oov_indices=2), L.Embedding(5, 6)], name="tower")
    numbers = L.IntegerLookup(vocabulary=[5, 7, 9], mask_token=0)(seen)
    words = L.TextVectorization(vocabulary=["cat", "dog", "sat"], output_sequence_length=4)(title)
    tagged = L.StringLookup(vocabulary=NAMES, output_mode="multi_hot", name="tagged")(tags)
    parts = [tower(user), L.GlobalAveragePooling1D()(L.Embedding(5, 6)(numbers)),
             L.GlobalAveragePooling1D()(L.Embedding(5, 6, mask_zero=True)(words)), L.Dense(6)(tagged),
             L.Embedding(8, 6)(L.HashedCrossing(8)((user, title)))]
    x = L.Dense(8, activation="relu")(L.Concatenate()(parts))
    model = keras.Model([user, title, seen, tags], L.Dense(1, name="score")(x), name="look_ups")
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def adapted(keras):
    """What adapt has learned, which Keras keeps in the configuration, among the weights or among the assets."""
    L = keras.layers
    user, title = keras.Input((1,), dtype="string", name="user"), keras.Input((), dtype="string", name="title")
    seen, x = keras.Input((3,), dtype="int64", name="seen"), keras.Input((4,), name="x")
    layers = [L.StringLookup(output_mode="one_hot"), L.TextVectorization(output_mode="tf_idf", ngrams=2),
              L.IntegerLookup(mask_token=0), L.Normalization(), L.Discretization(num_bins=4, output_mode="multi_hot")]
    numbers = np.random.default_rng(3).standard_normal((50, 4)).astype(np.float32)
    for layer, data in zip(layers, (NAMES[:3] + NAMES[:2], TITLES, np.int64([5, 5, 7, 9, 9, 9]), numbers, numbers), strict=True):
        layer.adapt(np.array(data))
    second = L.StringLookup(output_mode="tf_idf")  # the second of its class
    second.adapt(np.array([["ann", "bob"], ["ann", "cy"]]))
    parts = [layer(value) for layer, value in zip([*layers, second], (user, title, seen, x, x, user), strict=True)]
    parts[2] = L.Flatten()(L.Embedding(6, 2)(parts[2]))
    model = keras.Model([user, title, seen, x], L.Dense(1)(L.Concatenate()([L.Dense(3)(part) for part in parts])), name="adapted")
    model.compile(keras.optimizers.SGD(0.01, momentum=0.5), "mae")
    return model


def language(keras):
    """Embeddings whose tables, or tables beside them, project back to the vocabulary."""
    L = keras.layers
    tokens = keras.Input((7,), dtype="int32", name="tokens")
    tied = L.ReversibleEmbedding(20, 6, mask_zero=True, name="tied")
    apart = L.ReversibleEmbedding(20, 6, tie_weights=False, logit_soft_cap=3.0, reverse_dtype="float32", name="apart")
    h = L.Dense(6, activation="tanh")(L.Add()([tied(tokens), apart(tokens)]))
    model = keras.Model(tokens, [tied(h, reverse=True), apart(h, reverse=True)], name="language")
    model.compile(keras.optimizers.Adam(0.003), ["mse", "mae"])
    return model


def operators(keras):
    """What Python's operators and keras.ops leave in a model: sums, parts, constants and results of several operations."""
    L, ops = keras.layers, keras.ops
    steps, row = keras.Input((6, 4), name="steps"), keras.Input((4,), name="row")
    x = L.Dense(4, name="first")(steps) + steps * 0.5 - 1
    x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 3)(x, x))
    first, others = x[:, 0], x[:, 1:, ::2]
    gate = ops.sigmoid(row) * ops.relu(1 - row) + np.linspace(0, 1, 4, dtype=np.float32)
    joined = ops.concatenate([first, ops.mean(others, axis=1) / 2.0, gate, ops.abs(-row) ** 2], axis=-1)
    parts = ops.split(joined, 2, axis=-1)
    y = ops.maximum(parts[0], parts[1]) + ops.expand_dims(ops.sum(row, axis=-1), -1)
    flat = ops.reshape(ops.transpose(steps, (0, 2, 1)), (-1, 24))
    z = ops.where(flat > 0, ops.gelu(flat), ops.square(flat) * 0.1)
    model = keras.Model([steps, row], [L.Dense(2)(y), L.Dense(1)(ops.squeeze(z[..., None], -1))], name="operators")
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def masked_operators(keras):
    """Operations drop masks, and a mask may be made by one."""
    L, ops = keras.layers, keras.ops
    tokens = keras.Input((10,), dtype="int32", name="tokens")
    x = L.LSTM(5, return_sequences=True)(L.Embedding(20, 4, mask_zero=True)(tokens))
    pooled = L.GlobalAveragePooling1D()(x + x, mask=ops.not_equal(tokens, 3))
    last = L.GRU(3)(L.Embedding(20, 4, mask_zero=True)(tokens) * 2.0)
    model = keras.Model(tokens, L.Dense(2)(ops.concatenate([pooled, last], axis=1)), name="masked_operators")
    model.compile("sgd", "mse")
    return model


def nested(keras):
    """Models in models whose outputs other layers take: a backbone, called twice, and one inside of another, by name."""
    L = keras.layers
    image, parts = keras.Input((6, 6, 2), name="image"), {"a": keras.Input((4,), name="a"), "b": keras.Input((4,), name="b")}
    x = L.Conv2D(3, 3, activation="relu", name="conv")(image)
    backbone = keras.Model(image, [L.Flatten()(x), L.GlobalAveragePooling2D()(x)], name="backbone")
    pair = keras.Model(parts, L.Dense(3, name="joined")(L.Concatenate()([parts["a"], parts["b"]])), name="pair")
    left, right = keras.Input((6, 6, 2), name="left"), keras.Input((6, 6, 2), name="right")
    seen = [L.Dense(4, name="head")(wide) for wide, _ in [backbone(left)]]
    (wide, _), (_, mean) = backbone(right), backbone(right + left)
    both = L.Add()([L.Dense(4, name="wide")(wide), L.Dense(4, name="mean")(mean)])
    inner = keras.Model([left, right], pair({"a": seen[0], "b": both}), name="inner")
    again = [keras.Input((6, 6, 2), name=f"again_{i}") for i in range(2)]
    rows = keras.Sequential([keras.Input((3,)), L.Dense(2, activation="tanh")], name="rows")
    model = keras.Model(again, [L.Dense(1, name="last")(rows(inner(again))), inner(again[::-1])], name="nested")
    model.compile(keras.optimizers.Adam(0.01), ["mse", "mae"])
    return model


def mixed_masks(keras):
    """Attention whose query carries a mask and whose value is given one, and the other way round."""
    L = keras.layers
    tokens, memory, given = keras.Input((6,), dtype="int32", name="tokens"), keras.Input((7, 8), name="memory"), keras.Input((7,), name="given")
    few = keras.Input((6,), name="few")
    x = L.Embedding(20, 8, mask_zero=True)(tokens)
    first = L.MultiHeadAttention(2, 4)(x, memory, value_mask=given > 0.1)
    second = L.GroupQueryAttention(4, 4, 2)(L.Dense(8)(x), memory, value_mask=given)
    third = L.GroupQueryAttention(4, 4, 2)(memory, L.Dense(8)(x), query_mask=given)
    fourth = L.MultiHeadAttention(2, 4)(L.Dense(8)(x), memory, query_mask=few)  # which Keras ignores
    pooled = [L.GlobalAveragePooling1D()(y) for y in (first, second, third, fourth)]
    model = keras.Model([tokens, memory, given, few], L.Dense(3)(L.Concatenate()(pooled)), name="mixed_masks")
    model.compile(keras.optimizers.Adam(0.003), "mse")
    return model


MODELS = (nested, mixed_masks, resnet, transformer, masked_attention, lstm, recommender, mlp, scaled, shared, spectral, look_ups, adapted, language, operators,
          masked_operators)


def data_of(model, seed):
    """Arrays of every input and, in the order of the outputs, of every output."""
    random = np.random.default_rng(seed)
    x = []
    for tensor in model.inputs:
        shape = (ROWS, *tensor.shape[1:])
        if tensor.dtype == "string":
            words = TITLES if tensor.name == "title" else NAMES
            x.append(np.vectorize(str.encode, otypes=[object])(random.choice(words, shape)))
        elif tensor.dtype == "int64":
            x.append(random.choice(np.int64([0, 5, 7, 9, 11]), shape))
        elif tensor.dtype == "int32":
            x.append(random.integers(0, 2 if tensor.name == "mask" else 20, shape).astype(np.int32))
        else:
            x.append(random.standard_normal(shape).astype(np.float32))
    if model.name == "masked":
        x[-1][:, :, 0] = 1  # no query without a key
    y = []
    for tensor in model.outputs:
        shape = (ROWS, *tensor.shape[1:])
        if model.name == "resnet":
            y.append(random.integers(0, 4, ROWS).astype(np.int32))
        else:
            y.append(random.random(shape).astype(np.float32))
    return x, y


def tensors(x):
    """Keras takes arrays of strings only as tensors, and then all of them."""
    import tensorflow as tf

    return [tf.constant(array) for array in x] if any(array.dtype == object for array in x) else x


def for_keras(model, x, y):
    x, y = (both := tensors([*x, *y]))[:len(x)], both[len(x):]
    names = getattr(model, "_outputs_struct", None)
    if isinstance(names, dict):
        y = dict(zip(names, y))
    return (x if len(x) > 1 else x[0]), (y if isinstance(y, dict) or len(y) > 1 else y[0])


def keras_predict(model, x):
    x = tensors(x)
    result = model(x if len(x) > 1 else x[0], training=False)
    values = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else [result]
    return [np.asarray(value) for value in values]


def muster_predict(mu, model, x):
    inputs = mu.values([mu.any_tensor(array) for array in x])
    result = mu.mu_call_values(model=model, inputs=inputs) if len(x) > 1 else \
        mu.mu_call_values(model=model, x=mu.any_tensor(x[0]))
    n = mu.mu_value_count(result)
    if not n:
        return [mu.array(mu.mu_value_tensor(result))]
    return [mu.array(mu.mu_at(result, i)) for i in range(n)]


def muster_fit(mu, model, x, y, epochs):
    def nest(arrays):
        return mu.values([mu.any_tensor(a) for a in arrays]) if len(arrays) > 1 else mu.mu_of(mu.tensor(arrays[0]))

    batch = mu.mu_list_of(2, [nest(x), nest(y)])
    mu.mu_fit(model=model, x=batch, batch_size=ROWS, epochs=epochs, verbose=MU_VERBOSE_SILENT, no_shuffle=True)


def apart(a, b):
    return max(float(np.abs(p - q).max()) for p, q in zip(a, b, strict=True))


def check_json(report, mu, keras, build, model, theirs, other, trained, x, folder):
    """The configuration as JSON and the weights in a file of their own, both ways."""
    made = keras.models.model_from_json(mu.mu_layer_config(model))
    made.load_weights(folder + "/ours.weights.h5")
    seen = apart(keras_predict(made, x), trained)
    report.check(build.__name__, f"JSON and weights to Keras: apart by {seen:.1e}", seen < LIMIT)
    if build in WITHOUT_JSON:
        return
    other.save_weights(folder + "/json.weights.h5")
    made = mu.mu_layer_from_config(theirs.to_json())
    mu.mu_load_weights(made, folder + "/json.weights.h5")
    seen = apart(muster_predict(mu, made, x), trained)
    report.check(build.__name__, f"JSON and weights to Muster: apart by {seen:.1e}", seen < LIMIT)


def check_files(report, mu, keras, tf, build, model, theirs, trained, x, folder):
    """What Keras reads of Muster's files predicts what Muster predicts."""
    mu.mu_save_model(model, folder + "/ours.keras")
    mu.mu_save_weights(model, folder + "/ours.weights.h5")
    numbered = build not in WITHOUT_CHECKPOINT
    if numbered:
        mu.mu_save_weights(model, folder + "/ours.ckpt")
    name = build.__name__
    loaded = keras.saving.load_model(folder + "/ours.keras")
    report.check(name, f".keras to Keras: apart by {apart(keras_predict(loaded, x), trained):.1e}",
                 apart(keras_predict(loaded, x), trained) < LIMIT)
    other = build(keras)
    other.load_weights(folder + "/ours.weights.h5")
    report.check(name, f".weights.h5 to Keras: apart by {apart(keras_predict(other, x), trained):.1e}",
                 apart(keras_predict(other, x), trained) < LIMIT)
    if numbered:
        restored = build(keras)
        tf.train.Checkpoint(model=restored).restore(folder + "/ours.ckpt").assert_existing_objects_matched()
        report.check(name, f"checkpoint to TensorFlow: apart by {apart(keras_predict(restored, x), trained):.1e}",
                     apart(keras_predict(restored, x), trained) < LIMIT)
    check_json(report, mu, keras, build, model, theirs, other, trained, x, folder)
    other.save_weights(folder + "/theirs.weights.h5")
    tf.train.Checkpoint(model=other).write(folder + "/theirs")
    for path in ("theirs.weights.h5", "theirs", "ours.ckpt")[:3 if numbered else 1]:
        again = mu.mu_load_model(path=folder + "/theirs.keras")
        mu.mu_load_weights(again, folder + "/" + path)
        report.check(name, f"{path} to Muster: apart by {apart(muster_predict(mu, again, x), trained):.1e}",
                     apart(muster_predict(mu, again, x), trained) < LIMIT)
    return loaded


# What Keras keeps of a look-up in a checkpoint: of each adapted one tables of counts, which are empty after adapt, and with
# idf weights these and a number of documents, which is 0. The vocabulary is in none of them.
IN_CHECKPOINTS = {"token_counts/table-keys", "token_counts/table-values", "token_document_counts/table-keys", "idf_weights/VARIABLE_VALUE",
                  "token_document_counts/table-values", "num_documents/VARIABLE_VALUE"}


def weighing(model):
    """The look-ups with idf weights; a text vectorisation has one inside."""
    inner = [getattr(layer, "_lookup_layer", layer) for layer in model.layers]
    return [layer for layer in inner if getattr(layer, "output_mode", "") == "tf_idf"]


def check_idf(report, mu, keras, tf):
    """idf weights that differ from those of the configuration move as weights do, in both directions."""
    keras.utils.set_random_seed(3)
    theirs, other = adapted(keras), adapted(keras)
    x, _ = data_of(theirs, 1)
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        other.save(folder + "/other.keras")
        for layer in weighing(theirs):
            layer.idf_weights.assign(3 * layer.idf_weights)
            layer.idf_weights_const = layer.idf_weights.value()
        theirs.save_weights(folder + "/theirs.weights.h5")
        tf.train.Checkpoint(model=theirs).write(folder + "/theirs")
        names = [name.replace(".ATTRIBUTES/", "") for name, _ in tf.train.list_variables(folder + "/theirs")]
        seen = {"/".join(name.split("/")[-2:]) for name in names if "idf" in name or "documents" in name or "token" in name}
        empty = all(tf.train.load_variable(folder + "/theirs", name).size == 0 for name, _ in tf.train.list_variables(folder + "/theirs") if "table-" in name)
        report.check("idf weights", f"Keras's checkpoint has {', '.join(sorted(seen))}; the tables are empty", seen == IN_CHECKPOINTS and empty)
        wanted = keras_predict(theirs, x)
        for path in ("theirs.weights.h5", "theirs"):
            ours = mu.mu_load_model(path=folder + "/other.keras")
            before = apart(muster_predict(mu, ours, x), wanted)
            mu.mu_load_weights(ours, folder + "/" + path)
            seen = apart(muster_predict(mu, ours, x), wanted)
            report.check("idf weights", f"{path} to Muster: apart by {before:.1e}, then {seen:.1e}", seen < LIMIT < before)
        mu.mu_save_weights(ours, folder + "/ours.weights.h5")
        mu.mu_save_weights(ours, folder + "/ours.ckpt")
        other.load_weights(folder + "/ours.weights.h5")
        seen = apart(keras_predict(other, x), wanted)
        report.check("idf weights", f".weights.h5 to Keras: apart by {seen:.1e}", seen < LIMIT)
        restored = adapted(keras)
        tf.train.Checkpoint(model=restored).restore(folder + "/ours.ckpt").expect_partial()
        far = [np.abs(a.idf_weights.numpy() - b.idf_weights.numpy()).max() for a, b in zip(weighing(restored), weighing(theirs))]
        report.check("idf weights", f"checkpoint to TensorFlow: {len(far)} variables apart by {max(far):.1e}", len(far) == 2 and max(far) < LIMIT)


def check_model(report, mu, keras, tf, build):
    keras.utils.set_random_seed(3)
    theirs = build(keras)
    x, y = data_of(theirs, 1)
    keras_x, keras_y = for_keras(theirs, x, y)
    theirs.fit(keras_x, keras_y, batch_size=ROWS, epochs=3, shuffle=False, verbose=0)
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        theirs.save(folder + "/theirs.keras")
        model = mu.mu_load_model(path=folder + "/theirs.keras")
        seen = apart(keras_predict(theirs, x), muster_predict(mu, model, x))
        report.check(build.__name__, f".keras to Muster: apart by {seen:.1e}", seen < LIMIT)
        muster_fit(mu, model, x, y, STEPS)
        trained = muster_predict(mu, model, x)
        loaded = check_files(report, mu, keras, tf, build, model, theirs, trained, x, folder)
        # Both continue from Muster's file: the optimizer's state is there.
        muster_fit(mu, model, x, y, 1)
        loaded.fit(keras_x, keras_y, batch_size=ROWS, epochs=1, shuffle=False, verbose=0)
        seen, moved = apart(keras_predict(loaded, x), muster_predict(mu, model, x)), apart(trained, keras_predict(loaded, x))
        report.check(build.__name__, f"the next step: apart by {seen:.1e}, moved by {moved:.1e}",
                     seen < 1e-4 and seen < 0.2 * moved)


# Keras keeps no weights of stacked cells in checkpoints, and in those of adapted layers the tables with which it counted.
WITHOUT_CHECKPOINT = (lstm, adapted)
# Keras's JSON has no vocabularies that adapt made.
WITHOUT_JSON = (adapted,)


# Models with masks made here, whose layers need Keras's numbers in a checkpoint; Keras makes the same.
def masks_keras(keras):
    L = keras.layers
    a, b = keras.Input((6,), dtype="int32"), keras.Input((6,), dtype="int32")
    plain, given = keras.Input((6, 3)), keras.Input((6,), dtype="bool")
    table = L.Embedding(20, 3, mask_zero=True)
    x, y = table(a), table(b)
    z = L.Masking()(plain)
    outputs = [L.LSTM(2)(L.Dropout(0.5)(L.Add()([x, y, z]))), L.GRU(2)(L.Add()([x, plain])),
               L.GlobalAveragePooling1D()(L.Attention()([L.Dense(3)(y), x])), L.Dense(2)(z), L.LSTM(2)(plain, mask=given),
               L.GRU(2)(L.Bidirectional(L.GRU(2, return_sequences=True))(y)),
               keras.Sequential([keras.Input((6, 3)), L.Masking(), L.LSTM(2), L.Dense(2)])(x)]
    return keras.Model([a, b, plain, given], outputs)


def masks_muster(mu):
    def call(layer, *inputs, **options):
        return mu.mu_call(model=layer, inputs=mu.values(inputs), **options) if len(inputs) > 1 else \
            mu.mu_call(model=layer, x=inputs[0], **options)

    kinds = mu.declared.constants
    a, b = (mu.mu_input(shape=[6], dtype=kinds["MU_I32"]) for _ in range(2))
    plain, given = mu.mu_input(shape=[6, 3]), mu.mu_input(shape=[6], dtype=kinds["MU_BOOL"])
    table = mu.mu_embedding(input_dim=20, output_dim=3, mask_zero=True)
    x, y = call(table, a), call(table, b)
    z = call(mu.mu_masking(), plain)
    both = mu.mu_bidirectional(layer=mu.mu_gru(units=2, return_sequences=True))
    inner = mu.model([mu.mu_input_layer(shape=[6, 3]), mu.mu_masking(), mu.mu_lstm(units=2), mu.mu_dense(units=2)])
    outputs = [call(mu.mu_lstm(units=2), call(mu.mu_dropout(rate=0.5), call(mu.mu_add_layer(), x, y, z))),
               call(mu.mu_gru(units=2), call(mu.mu_add_layer(), x, plain)),
               call(mu.mu_global_average_pool1d(), call(mu.mu_attention(), call(mu.mu_dense(units=3), y), x)),
               call(mu.mu_dense(units=2), z), call(mu.mu_lstm(units=2), plain, mask=given),
               call(mu.mu_gru(units=2), call(both, y)), call(inner, x)]
    return mu.mu_model_new(inputs=mu.values([a, b, plain, given]), outputs=mu.values(outputs))


def check_masks(report, mu, keras, tf):
    random = np.random.default_rng(2)
    x = [random.integers(0, 4, (ROWS, 6)).astype(np.int32) for _ in range(2)]
    x += [random.standard_normal((ROWS, 6, 3)).astype(np.float32), random.random((ROWS, 6)) < 0.6]
    theirs = masks_keras(keras)
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        ours = masks_muster(mu)
        mu.mu_save_weights(ours, folder + "/ours.ckpt")
        tf.train.Checkpoint(model=theirs).restore(folder + "/ours.ckpt").assert_existing_objects_matched()
        seen = apart(keras_predict(theirs, x), muster_predict(mu, ours, x))
    report.check("masks", f"checkpoint of a model made here, to TensorFlow: apart by {seen:.1e}", seen < LIMIT)


def tables_keras(keras, tf):
    layers, inputs = keras.layers, [keras.Input((3,), dtype="string"), keras.Input((2,), dtype="int64"), keras.Input((), dtype="string")]
    words = layers.StringLookup(output_mode="multi_hot", name="words")
    numbers = layers.IntegerLookup(output_mode="multi_hot", name="numbers")
    texts = layers.TextVectorization(output_mode="tf_idf", name="texts")
    words.adapt(tf.constant([["a", "b", "c"]])), numbers.adapt(np.array([[1, 2]])), texts.adapt(tf.constant(["a b", "b c"]))
    joined = layers.concatenate([layer(x) for layer, x in zip((words, numbers, texts), inputs)])
    return keras.Model(inputs, layers.Dense(2, name="last")(joined))


def tables_muster(mu):
    kinds, strings = mu.declared.constants, lambda rows: mu.any_tensor(np.array(rows, object))
    inputs = [mu.mu_input(shape=[3], dtype=kinds["MU_STRING"]), mu.mu_input(shape=[2], dtype=kinds["MU_I64"]),
              mu.mu_input(shape=[], dtype=kinds["MU_STRING"])]
    made = [mu.mu_string_lookup(output_mode="multi_hot", name="words"), mu.mu_integer_lookup(output_mode="multi_hot", name="numbers"),
            mu.mu_text_vectorization(output_mode="tf_idf", name="texts")]
    for layer, data in zip(made, (strings([[b"a", b"b", b"c"]]), mu.tensor(np.array([[1, 2]])), strings([b"a b", b"b c"]))):
        mu.mu_adapt(layer, data)
    joined = mu.mu_call(model=mu.mu_concatenate(), inputs=mu.values([mu.mu_call(model=layer, x=x) for layer, x in zip(made, inputs)]))
    return mu.mu_model_new(inputs=mu.values(inputs), output=mu.mu_call(model=mu.mu_dense(units=2, name="last"), x=joined))


def check_tables(report, mu, keras, tf):
    """Look-ups that were adapted, on both sides: a checkpoint has their tables, which are empty, and every object of the
    other side finds its values."""
    theirs = tables_keras(keras, tf)
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        tf.train.Checkpoint(model=theirs).write(folder + "/theirs")
        ours = tables_muster(mu)
        mu.mu_save_weights(ours, folder + "/ours.ckpt")
        seen, wanted = ({name: shape for name, shape in tf.train.list_variables(folder + path) if "table-" in name or "documents" in name}
                        for path in ("/ours.ckpt", "/theirs"))
        tf.train.Checkpoint(model=theirs).restore(folder + "/ours.ckpt").assert_existing_objects_matched()
        far = apart(theirs.get_layer("last").get_weights()[0], mu.read_weights(ours)["last/kernel"])
        theirs.layers[-1].set_weights([2 * weight for weight in theirs.layers[-1].get_weights()])
        tf.train.Checkpoint(model=theirs).write(folder + "/theirs")
        mu.mu_load_weights(ours, folder + "/theirs")
        back = apart(theirs.get_layer("last").get_weights()[0], mu.read_weights(ours)["last/kernel"])
    report.check("tables", f"{len(seen)} tensors of look-ups; kernel to TensorFlow apart by {far:.1e}, back {back:.1e}",
                 seen == wanted and max(far, back) < LIMIT)


def check_parts(report, mu, keras):
    """The features of a model of Keras's: input to the output of each of its layers, as models of their own."""
    theirs = resnet(keras)
    x, _ = data_of(theirs, 1)
    far, read = [], []
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        theirs.save(folder + "/theirs.keras")
        base = mu.mu_load_model(path=folder + "/theirs.keras")
        for layer in theirs.layers[1:]:
            wanted = keras_predict(keras.Model(theirs.input, layer.output), x)
            part = mu.mu_model_new(inputs=mu.values([mu.mu_model_input(base, 0)]),
                                   outputs=mu.values([mu.mu_model_layer_output(base, layer.name, 0)]))
            far.append(apart(muster_predict(mu, part, x), wanted))
        mu.mu_save_model(part, folder + "/part.keras")
        read = keras_predict(keras.saving.load_model(folder + "/part.keras"), x)
        same = mu.mu_model_layer_count(base) == len(theirs.layers) - 1
        same &= [mu.mu_layer_name(mu.mu_model_layer_at(base, i)).decode() for i in range(len(far))] == [layer.name for layer in theirs.layers[1:]]
    report.check("parts", f"outputs of {len(far)} layers apart by {max(far):.1e}, the last read by Keras {apart(read, wanted):.1e}; the order of the layers",
                 max(far) < LIMIT and apart(read, wanted) < LIMIT and same)


# Every class of keras.ops that is read (docs/porting.md), as what makes a model have it: x are floats, n integers.
OPERATIONS = {
    "Absolute": lambda ops, x, n: ops.abs(x), "Add": lambda ops, x, n: ops.add(x, n), "All": lambda ops, x, n: ops.all(x > -1, axis=1),
    "Amax": lambda ops, x, n: ops.amax(x, axis=1), "Amin": lambda ops, x, n: ops.amin(x, axis=(1, 2), keepdims=True),
    "Any": lambda ops, x, n: ops.any(x > 1.5, axis=-1), "Arccos": lambda ops, x, n: ops.arccos(x / 4), "Arcsin": lambda ops, x, n: ops.arcsin(x / 4),
    "Arctan": lambda ops, x, n: ops.arctan(x), "Arctan2": lambda ops, x, n: ops.arctan2(x, n), "Argmax": lambda ops, x, n: ops.argmax(x, axis=1),
    "Argmin": lambda ops, x, n: ops.argmin(x, axis=-1, keepdims=True), "Cast": lambda ops, x, n: ops.cast(x, "int32"), "Ceil": lambda ops, x, n: ops.ceil(x),
    "Celu": lambda ops, x, n: ops.celu(x), "Clip": lambda ops, x, n: ops.clip(x, -0.5, 1), "Concatenate": lambda ops, x, n: ops.concatenate([x, n], axis=1),
    "Copy": lambda ops, x, n: ops.copy(x), "Cos": lambda ops, x, n: ops.cos(x), "Cosh": lambda ops, x, n: ops.cosh(x),
    "Cumsum": lambda ops, x, n: ops.cumsum(x, axis=1), "Divide": lambda ops, x, n: ops.divide(n, 3), "DivideNoNan": lambda ops, x, n: ops.divide_no_nan(x, n),
    "Einsum": lambda ops, x, n: ops.einsum("bij,bkj->bik", x, x), "Elu": lambda ops, x, n: ops.elu(x), "Equal": lambda ops, x, n: ops.equal(n, 1),
    "Erf": lambda ops, x, n: ops.erf(x), "Exp": lambda ops, x, n: ops.exp(n), "ExpandDims": lambda ops, x, n: ops.expand_dims(x, 1),
    "Expm1": lambda ops, x, n: ops.expm1(x), "Flip": lambda ops, x, n: ops.flip(x, axis=1), "Floor": lambda ops, x, n: ops.floor(x),
    "FloorDivide": lambda ops, x, n: ops.floor_divide(n, -2), "Gelu": lambda ops, x, n: ops.gelu(x), "GetItem": lambda ops, x, n: x[:, ::-2, None, 1],
    "Glu": lambda ops, x, n: ops.glu(x), "Greater": lambda ops, x, n: ops.greater(x, n), "GreaterEqual": lambda ops, x, n: ops.greater_equal(n, 0),
    "HardSigmoid": lambda ops, x, n: ops.hard_sigmoid(x), "HardSilu": lambda ops, x, n: ops.hard_silu(3 * x), "HardTanh": lambda ops, x, n: ops.hard_tanh(x),
    "Isfinite": lambda ops, x, n: ops.isfinite(x / (n * 1.0)), "Isinf": lambda ops, x, n: ops.isinf(x / (n * 1.0)),
    "Isnan": lambda ops, x, n: ops.isnan(ops.sqrt(x)), "LeakyRelu": lambda ops, x, n: ops.leaky_relu(x, 0.3), "Less": lambda ops, x, n: ops.less(x, n),
    "LessEqual": lambda ops, x, n: ops.less_equal(n, 0), "Log": lambda ops, x, n: ops.log(ops.abs(x)), "Log1p": lambda ops, x, n: ops.log1p(ops.abs(x)),
    "LogSigmoid": lambda ops, x, n: ops.log_sigmoid(x), "LogSoftmax": lambda ops, x, n: ops.log_softmax(x, axis=1),
    "LogicalAnd": lambda ops, x, n: ops.logical_and(x > 0, n), "LogicalNot": lambda ops, x, n: ops.logical_not(n),
    "LogicalOr": lambda ops, x, n: ops.logical_or(x > 0, n), "LogicalXor": lambda ops, x, n: ops.logical_xor(x, n > 0),
    "Logsumexp": lambda ops, x, n: ops.logsumexp(x, axis=1, keepdims=True), "Matmul": lambda ops, x, n: ops.matmul(x, ops.transpose(x, (0, 2, 1))),
    "Max": lambda ops, x, n: ops.max(n, axis=1), "Maximum": lambda ops, x, n: ops.maximum(x, n), "Mean": lambda ops, x, n: ops.mean(n, axis=-1),
    "Min": lambda ops, x, n: ops.min(x, axis=-1), "Minimum": lambda ops, x, n: ops.minimum(x, 0.5), "Mod": lambda ops, x, n: ops.mod(n, -3),
    "Multiply": lambda ops, x, n: ops.multiply(x, n), "Negative": lambda ops, x, n: ops.negative(n), "Normalize": lambda ops, x, n: ops.normalize(x, axis=1),
    "NotEqual": lambda ops, x, n: ops.not_equal(n, 2), "OneHot": lambda ops, x, n: ops.one_hot(n, 3), "OnesLike": lambda ops, x, n: ops.ones_like(x, dtype="int32"),
    "Pad": lambda ops, x, n: ops.pad(x, ((0, 0), (1, 2), (0, 3)), mode="reflect"), "Power": lambda ops, x, n: ops.power(x, 2),
    "Prod": lambda ops, x, n: ops.prod(x, axis=1), "Reciprocal": lambda ops, x, n: ops.reciprocal(x), "Relu": lambda ops, x, n: ops.relu(n),
    "Relu6": lambda ops, x, n: ops.relu6(4 * x), "Repeat": lambda ops, x, n: ops.repeat(x, 2, axis=1), "Reshape": lambda ops, x, n: ops.reshape(x, (-1, 2, 6)),
    "Round": lambda ops, x, n: ops.round(2 * x), "Rsqrt": lambda ops, x, n: ops.rsqrt(ops.abs(x)), "Selu": lambda ops, x, n: ops.selu(x),
    "Sigmoid": lambda ops, x, n: ops.sigmoid(x), "Sign": lambda ops, x, n: ops.sign(n), "Silu": lambda ops, x, n: ops.silu(x), "Sin": lambda ops, x, n: ops.sin(x),
    "Sinh": lambda ops, x, n: ops.sinh(x), "Softmax": lambda ops, x, n: ops.softmax(x, axis=1), "Softplus": lambda ops, x, n: ops.softplus(x),
    "Softsign": lambda ops, x, n: ops.softsign(x), "Split": lambda ops, x, n: ops.split(x, [1, 3], axis=-1)[1], "Sqrt": lambda ops, x, n: ops.sqrt(ops.abs(x)),
    "Square": lambda ops, x, n: ops.square(n), "Squeeze": lambda ops, x, n: ops.squeeze(x[:, :1], axis=1), "Stack": lambda ops, x, n: ops.stack([x, n], axis=-1),
    "Std": lambda ops, x, n: ops.std(x, axis=1), "StopGradient": lambda ops, x, n: ops.stop_gradient(x), "Subtract": lambda ops, x, n: ops.subtract(1.5, x),
    "Sum": lambda ops, x, n: ops.sum(x > 0, axis=1), "Swapaxes": lambda ops, x, n: ops.swapaxes(x, 1, -1),
    "Take": lambda ops, x, n: ops.take(x, np.array([[-1, 0], [2, -3]]), axis=1), "Tan": lambda ops, x, n: ops.tan(x), "Tanh": lambda ops, x, n: ops.tanh(x),
    "TanhShrink": lambda ops, x, n: ops.tanh_shrink(x), "Tile": lambda ops, x, n: ops.tile(x, (1, 2, 3)), "Transpose": lambda ops, x, n: ops.transpose(x, (0, 2, 1)),
    "TrueDivide": lambda ops, x, n: ops.true_divide(n, 4), "Var": lambda ops, x, n: ops.var(x, axis=(1, 2)), "Where": lambda ops, x, n: ops.where(n, x, -1),
    "ZerosLike": lambda ops, x, n: ops.zeros_like(n),
}
# Other ways to call them, and options that are legal in Python but seldom seen.
CALLS = {
    "Gelu, 0": lambda ops, x, n: ops.gelu(x, approximate=0), "Gelu, 1": lambda ops, x, n: ops.gelu(x, approximate=1),
    "Sum, keepdims=1": lambda ops, x, n: ops.sum(x, axis=1, keepdims=1), "Argmax, keepdims=1": lambda ops, x, n: ops.argmax(x, axis=1, keepdims=1),
    "Clip, no lower bound": lambda ops, x, n: ops.maximum(ops.clip(x, -9, 0.25), 0), "Arctan2 of integers": lambda ops, x, n: ops.arctan2(n, n + 2),
    "Take of one": lambda ops, x, n: ops.take(x, -1, axis=1), "Take of a list": lambda ops, x, n: ops.take(x, [-1, 0, 1], axis=2),
    "Take of a list of one": lambda ops, x, n: ops.take(x, [-2], axis=1), "Take of integers": lambda ops, x, n: ops.take(x, n - 2, axis=2),
    "Take along the batch": lambda ops, x, n: ops.take(x, [-1, 0], axis=0), "Tile, fewer": lambda ops, x, n: ops.tile(x, (2,)),
    "Transpose, no axes": lambda ops, x, n: ops.transpose(ops.transpose(x)), "Squeeze, no axis": lambda ops, x, n: ops.squeeze(x[:, :1, :1]),
    "Argmax, no axis": lambda ops, x, n: ops.argmax(x), "Argmin, no axis, keepdims": lambda ops, x, n: ops.argmin(x, keepdims=True),
    "Cumsum, no axis": lambda ops, x, n: ops.cumsum(x), "Repeat, no axis": lambda ops, x, n: ops.repeat(x, 2),
    "Take, no axis": lambda ops, x, n: ops.take(x, n - 2), "Where of two numbers": lambda ops, x, n: ops.where(x, 1, 0),
    "Where of a number": lambda ops, x, n: ops.where(x, n, 0), "Where, the number first": lambda ops, x, n: ops.where(n > 1, 2.5, n),
    "Where of floats": lambda ops, x, n: ops.where(n, 2, x),
}
# On values of every type.
ON_TYPES = {
    "Sum": lambda ops, x: ops.sum(x, axis=1), "Prod": lambda ops, x: ops.prod(x, axis=0), "Any": lambda ops, x: ops.any(x, axis=1),
    "All": lambda ops, x: ops.all(x, axis=1), "Max": lambda ops, x: ops.max(x, axis=1), "Amin": lambda ops, x: ops.amin(x, axis=1),
    "Mean": lambda ops, x: ops.mean(x, axis=1), "LogicalNot": lambda ops, x: ops.logical_not(x), "LogicalAnd": lambda ops, x: ops.logical_and(x, x),
    "Floor": lambda ops, x: ops.floor(x), "Ceil": lambda ops, x: ops.ceil(x), "Square": lambda ops, x: ops.square(x), "Clip": lambda ops, x: ops.clip(x, 0, 3),
    "Cumsum": lambda ops, x: ops.cumsum(x, axis=1), "Absolute": lambda ops, x: ops.abs(x), "Mod": lambda ops, x: ops.mod(x, 7),
    "Relu": lambda ops, x: ops.relu(x), "Relu6": lambda ops, x: ops.relu6(x), "Sqrt": lambda ops, x: ops.sqrt(ops.abs(x)),
    "TrueDivide": lambda ops, x: ops.true_divide(x, 7), "Divide": lambda ops, x: ops.divide(x, 2 * ops.cast(x, "int32") + 1),
    "Less": lambda ops, x: ops.less(x, 256), "NotEqual": lambda ops, x: ops.not_equal(x, -1), "GreaterEqual": lambda ops, x: ops.greater_equal(7, x),
    "Isnan": lambda ops, x: ops.isnan(x), "Isinf": lambda ops, x: ops.isinf(x), "Isfinite": lambda ops, x: ops.isfinite(x),
    "Equal": lambda ops, x: ops.equal(ops.ones_like(x) * 0.1, 0.1), "Arctan2": lambda ops, x: ops.arctan2(x, 2.5),
}
TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
WITHOUT_TYPES = {"Relu": ("bool",), "Relu6": ("bool",)}  # TensorFlow has none of these
HELD_AS = {"uint32": "int64"}  # the type here that has all its values


def operation_difference(mu, model, x):
    """What differs between a model's results there and here, empty if nothing does."""
    wanted = keras_predict(model, x)
    with mu.pool():
        seen = muster_predict(mu, mu.mu_layer_from_config(model.to_json()), x)
    for a, b in zip(seen, wanted, strict=True):
        if a.dtype != HELD_AS.get(b.dtype.name, b.dtype.name) or a.shape != b.shape:
            return f"{a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        if not np.allclose(a.astype(np.float64), b.astype(np.float64), 1e-5 if b.dtype != np.float16 else 2e-3, 1e-6, equal_nan=True):
            return f"apart by {np.nanmax(np.abs(a.astype(np.float64) - b)):.1e}"
    return ""


def operation_case(mu, keras, make, *x):
    inputs = [keras.Input(array.shape[1:], dtype=array.dtype.name) for array in x]
    try:
        model = keras.Model(inputs, make(keras.ops, *inputs))
        return operation_difference(mu, model, list(x)), {layer.__class__.__name__ for layer in model.operations}
    except MusterError as error:
        return str(error), set()


def check_operations(report, mu, keras):
    """Every class of keras.ops that is read: values, shapes and types."""
    random = np.random.default_rng(4)
    x, n = random.uniform(-2, 2, (5, 3, 4)).astype(np.float32), random.integers(0, 4, (5, 3, 4)).astype(np.int32)
    failures = []
    for name, make in (*OPERATIONS.items(), *CALLS.items()):
        difference, seen = operation_case(mu, keras, make, x, n)
        if not difference and name.split(",")[0].split(" ")[0] not in seen:
            difference = f"the model has {', '.join(sorted(seen))}"
        failures += [f"{name}: {difference}"] if difference else []
    with open(os.path.join(os.path.dirname(__file__), "../../docs/porting.md")) as page:
        listed = page.read().split("## Operations in models")[1].split("write them again: ")[1].split(". Others")[0]
    listed = {name.strip("` ") for name in listed.replace("\n", " ").split(",")}
    failures += [f"{name}: listed in one of docs/porting.md and this table" for name in sorted(listed ^ set(OPERATIONS))]
    n_cases = len(OPERATIONS) + len(CALLS)
    report.row("operations", f"{len(OPERATIONS)} classes in {n_cases} calls", n_cases - len(failures), failures)


def check_operation_types(report, mu, keras):
    """Operations of values of every type, of which some become another."""
    random = np.random.default_rng(5)
    for name, make in ON_TYPES.items():
        types, failures = [t for t in TYPES if t not in WITHOUT_TYPES.get(name, ())], []
        for dtype in types:
            low, high = {"b": (0, 2), "u": (0, 256)}.get(np.dtype(dtype).kind, (-100, 100))
            x = random.integers(low, high, (4, 5)).astype(dtype)
            difference, _ = operation_case(mu, keras, make, x)
            failures += [f"{name} of {dtype}: {difference}"] if difference else []
        report.row(f"types of {name}", f"{len(types)} types", len(types) - len(failures), failures)


def check_applications(report, mu, keras):
    """A network of keras.applications that is full of operators, as Python saves it, with random weights."""
    keras.utils.set_random_seed(1)
    theirs = keras.applications.MobileNetV3Small((32, 32, 3), weights=None, include_top=False, pooling="avg")
    for layer in theirs.layers:  # whose outputs would be near 0 behind so many layers
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_variance.assign(0.01 * layer.moving_variance)
    x = [np.random.default_rng(1).uniform(0, 255, (2, 32, 32, 3)).astype(np.float32)]
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        theirs.save(folder + "/theirs.keras")
        ours = mu.mu_load_model(path=folder + "/theirs.keras")
        wanted = keras_predict(theirs, x)
        size = float(np.abs(wanted[0]).max())
        seen = apart(muster_predict(mu, ours, x), wanted) / size
        mu.mu_save_model(ours, folder + "/ours.keras")
        back = apart(keras_predict(keras.saving.load_model(folder + "/ours.keras"), x), wanted) / size
    report.check("MobileNetV3Small", f".keras to Muster: apart by {seen:.1e} of {size:.1e}, and back {back:.1e}",
                 max(seen, back) < LIMIT and size > 1e-3)


def refused(keras):
    L = keras.layers
    inputs = keras.Input((4,))

    @keras.saving.register_keras_serializable("conformance")
    class Own(L.Layer):
        def call(self, x):
            return x

    return {
        "Lambda layer": (keras.Model(inputs, L.Lambda(lambda x: x, name="sly")(inputs)), "'sly' is a Lambda"),
        "custom layer": (keras.Sequential([inputs, Own(name="mine")]), "'mine' is of the class Own"),
        "operation": (keras.Model(inputs, keras.ops.sort(inputs)), "is the operation Sort of keras.ops"),
    }


def check_refusals(report, mu, keras):
    for name, (model, words) in refused(keras).items():
        with tempfile.TemporaryDirectory() as folder, mu.pool():
            model.save(folder + "/m.keras")
            try:
                mu.mu_load_model(path=folder + "/m.keras")
                report.check(name, "loads", False)
            except MusterError as error:
                report.check(name, str(error)[:110], words in str(error))


def main(library, only=""):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from muster import Library

    keras, tf = import_keras()
    mu = Library(library)
    report = Report("models in files: Keras's .keras and .weights.h5, TensorFlow's checkpoints")
    for build in MODELS:
        if only in build.__name__:
            with report.guard(build.__name__):
                check_model(report, mu, keras, tf, build)
    if only in "masks":
        with report.guard("masks"):
            check_masks(report, mu, keras, tf)
    if only in "idf":
        with report.guard("idf"):
            check_idf(report, mu, keras, tf)
    if only in "tables":
        with report.guard("tables"):
            check_tables(report, mu, keras, tf)
    if only in "parts":
        with report.guard("parts"):
            check_parts(report, mu, keras)
    if only in "operations":
        with report.guard("operations"):
            check_operations(report, mu, keras)
    if only in "types":
        with report.guard("types"):
            check_operation_types(report, mu, keras)
    if only in "applications":
        with report.guard("applications"):
            check_applications(report, mu, keras)
    if only in "refused":
        with report.guard("refused"):
            check_refusals(report, mu, keras)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
