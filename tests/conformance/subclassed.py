# A subclass of keras.Model and the same model of mu_model_subclass: two inputs and two outputs in maps, layers in
# attributes, a layer within a layer, a weight, a loss and a metric of the model's own, and layers that are told the mode.
# Trained 20 steps from the same weights; then names, weights, logs, files both ways and the summary's text. And a model
# whose layers, losses and metrics find the masks of what they are given. A part of fitting.py.
import contextlib
import ctypes
import tempfile

import keras
import numpy as np
import tensorflow as tf

import muster
from defaults import FLOATX, named, off, set_floatx
from summary import our_text, their_text

MU_VERBOSE_SILENT = 1
USERS, ITEMS, WIDTH, CLASSES, ROWS = 7, 5, 4, 3, 30
# Numbers that f32 has: Keras rounds Python's numbers to f32, also where it computes in f64.
EPSILON = 2.0 ** -10
ADAM = {"learning_rate": 2.0 ** -7, "beta_1": 0.875, "beta_2": 0.984375, "epsilon": 2.0 ** -20}
SETTINGS = {"batch_size": 6, "epochs": 4}  # 20 steps
LIMIT = {"f64": 1e-9, "f32": 1e-5}
CALL = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 5)
BUILD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Tower(keras.layers.Layer):
    """A layer with a layer inside."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner = keras.layers.Dense(WIDTH, activation="tanh", name="inner_dense")

    def call(self, x):
        return self.inner(x)


class Ranker(keras.Model):
    def __init__(self):
        super().__init__(name="ranker")
        self.user_table = keras.layers.Embedding(USERS, WIDTH, name="users")
        self.tower = Tower(name="a_tower")
        self.norm = keras.layers.BatchNormalization(momentum=0.5, epsilon=EPSILON, synchronized=True)
        self.classes = keras.layers.Dense(CLASSES)
        self.size = keras.metrics.Mean(name="size")

    def build(self, _):
        self.scale = self.add_weight(name="scale", shape=(WIDTH,), initializer="ones")

    def call(self, x, training=False):
        joined = self.tower(x["item"]) * self.user_table(x["user"])
        joined = self.norm(joined) * self.scale
        self.add_loss(0.25 * tf.reduce_mean(tf.square(joined)))
        self.size.update_state(tf.abs(joined))
        return {"score": tf.reduce_sum(joined, -1, keepdims=True), "class": self.classes(joined)}


class Ours:
    """The functions of the model here, and what must live as long as they do."""

    def __init__(self, mu):
        self.mu, self.kept = mu, []
        tower = mu.mu_layer_new(class_name="tower", call=self.function(CALL, self.call_tower), name="a_tower")
        mu.mu_layer_set_attribute(tower, "inner", mu.mu_dense(units=WIDTH, activation="tanh", name="inner_dense"))
        self.size = mu.mu_mean_metric("size")
        self.model = mu.mu_model_subclass(class_name="ranker", build=self.function(BUILD, self.build),
                                          call=self.function(CALL, self.call))
        for name, layer in (("user_table", mu.mu_embedding(input_dim=USERS, output_dim=WIDTH, name="users")),
                            ("tower", tower), ("norm", mu.mu_batch_normalization(momentum=0.5, epsilon=EPSILON, synchronized=True)),
                            ("classes", mu.mu_dense(units=CLASSES))):
            mu.mu_layer_set_attribute(self.model, name, layer)
        mu.mu_layer_add_metric(self.model, self.size)

    def function(self, kind, function):
        failed = 13 if kind is BUILD else None
        self.kept.append(kind(lambda *arguments: self.mu.call_back(lambda: function(*arguments), failed)))
        return self.kept[-1]

    def apply(self, layer, name, x):
        return self.mu.mu_call(model=self.mu.mu_layer_attribute(layer, name), x=x)

    def call_tower(self, layer, inputs, _context, _arg):
        return self.mu.mu_of(self.apply(layer, "inner", self.mu.mu_at(inputs, 0)))

    def build(self, model, _n, _shapes, _arg):
        shape = self.mu.declared.structs["mu_shape"](1, (WIDTH,))
        self.mu.mu_layer_add_weight(layer=model, name="scale", shape=shape, initializer="ones")
        return 0

    def call(self, model, inputs, _context, _arg):
        mu = self.mu
        user, item = (mu.mu_value_tensor(mu.mu_value_get(inputs, name)) for name in ("user", "item"))
        joined = mu.mu_multiply(self.apply(model, "tower", item), self.apply(model, "user_table", user))
        joined = mu.mu_multiply(self.apply(model, "norm", joined), mu.mu_variable_read(mu.mu_layer_weight(model, "scale")))
        kind = mu.mu_tensor_dtype(joined)
        quarter = mu.mu_cast(mu.tensor(np.float32(0.25)), kind)
        mu.mu_layer_add_loss(model, mu.mu_multiply(mu.mu_reduce_mean(mu.mu_square(joined), muster.ALL_AXES), quarter))
        mu.mu_metric_update(self.size, mu.mu_abs(joined), None)
        score = mu.mu_reduce_sum(joined, -1, keep_dims=True)
        classes = self.apply(model, "classes", joined)
        return mu.mu_map_of(2, ["class", "score"], [mu.mu_of(classes), mu.mu_of(score)])


def mapping(mu, arrays):
    return mu.mu_map_of(len(arrays), list(arrays), [mu.mu_of(mu.tensor(array)) for array in arrays.values()])


def data_of(dtype):
    generator = np.random.default_rng(12)
    x = {"user": generator.integers(0, USERS, ROWS).astype(np.int32), "item": generator.normal(size=(ROWS, ITEMS)).astype(dtype)}
    y = {"score": generator.normal(size=(ROWS, 1)).astype(dtype), "class": generator.integers(0, CLASSES, ROWS).astype(np.int64)}
    return x, y


def train_theirs(x, y):
    model = Ranker()
    model(x)
    generator = np.random.default_rng(13)
    for variable in model.weights:
        variable.assign(generator.uniform(0.25, 1, tuple(variable.shape)))
    first = {name: variable.numpy() for name, variable in named(model)}
    model.compile(keras.optimizers.Adam(**ADAM), metrics={"class": ["accuracy"]},
                  loss={"score": "mse", "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True)})
    logs = model.fit(x, y, shuffle=False, verbose=0, **SETTINGS).history
    return model, first, logs


def train_ours(mu, x, y, first, strategy):
    with mu.scope(strategy) if strategy else contextlib.nullcontext():
        ours = Ours(mu)
        losses = [mu.mu_mean_squared_error_loss(), mu.mu_sparse_categorical_crossentropy_loss(from_logits=True)]
        mu.mu_compile(model=ours.model, optimizer=mu.mu_adam(**ADAM), loss=by_name(mu, ["score", "class"], losses),
                      metrics=by_name(mu, ["class"], [mu.mu_sparse_categorical_accuracy_metric(name="accuracy")]))
        mu.mu_call_values(model=ours.model, inputs=mapping(mu, x))
        mu.write_weights(ours.model, first)
        data = mu.mu_list_of(2, [mapping(mu, x), mapping(mu, y)])
        history = mu.mu_fit(model=ours.model, x=data, no_shuffle=True, verbose=MU_VERBOSE_SILENT, **SETTINGS)
    return ours, history


def by_name(mu, names, objects):
    texts = [ctypes.create_string_buffer(name.encode()) for name in names]
    return mu.mu_named_items_of([part for pair in zip(map(ctypes.addressof, texts), objects) for part in pair] + [mu.end])


def logs_off(mu, history, logs):
    ours = [mu.mu_history_name(history, i).decode() for i in range(mu.mu_history_names(history))]
    assert sorted(ours) == sorted(logs), f"{ours} here, {list(logs)} in Keras"
    epochs = range(SETTINGS["epochs"])
    return max(off([mu.mu_history_at(history, name, epoch) for epoch in epochs], wanted) for name, wanted in logs.items())


def predictions(mu, model, x):
    outputs = mu.mu_predict_values(model=model, x=mu.mu_list_of(1, [mapping(mu, x)]), verbose=MU_VERBOSE_SILENT)
    return {name: mu.array(mu.mu_value_tensor(mu.mu_value_get(outputs, name))) for name in ("score", "class")}


def predictions_off(seen, wanted):
    return max(off(seen[name], wanted[name]) for name in ("score", "class"))


def compare_files(report, mu, floatx, ours, theirs, x, wanted):
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_weights(f"{folder}/theirs.weights.h5")
        mu.mu_save_weights(ours.model, f"{folder}/ours.weights.h5")
        mu.mu_save_weights(ours.model, f"{folder}/ours.ckpt")
        tf.train.Checkpoint(model=theirs).write(f"{folder}/theirs")
        far = []
        for here, there in (("ours.weights.h5", "theirs.weights.h5"), ("ours.ckpt", "theirs")):
            other, again = Ranker(), Ours(mu)
            other(x)
            mu.mu_call_values(model=again.model, inputs=mapping(mu, x))
            if here.endswith("h5"):
                other.load_weights(f"{folder}/{here}")
            else:
                tf.train.Checkpoint(model=other).restore(f"{folder}/{here}").expect_partial()
            mu.mu_load_weights(again.model, f"{folder}/{there}")
            far += [predictions_off(other.predict(x, verbose=0), wanted),
                    predictions_off(predictions(mu, again.model, x), wanted)]
    report.check(f"subclassed, files, {floatx}", ".weights.h5 to Keras {:.1e}, from Keras {:.1e}; checkpoint to TensorFlow "
                 "{:.1e}, from TensorFlow {:.1e}".format(*far), max(far) <= LIMIT["f32"])


def without_shape(line):
    """A line of a summary without its second column, in small letters: Keras shows the rows of the first batch, and of a
    layer of the program's own a question mark; class names here are in snake case."""
    cells = line.lower().rstrip().split("│")
    return cells[:2] + cells[3:]


def compare_subclassed(report, mu, floatx, replicas):
    set_floatx(mu, floatx)
    keras.backend.clear_session()
    x, y = data_of(FLOATX[floatx])
    theirs, first, logs = train_theirs(x, y)
    with mu.pool():
        ours, history = train_ours(mu, x, y, first, mu.mirrored(replicas) if replicas > 1 else None)
        seen = mu.read_weights(ours.model)
        wanted = dict((name, variable.numpy()) for name, variable in named(theirs))
        assert list(seen) == list(wanted), f"weights {list(seen)} here, {list(wanted)} in Keras"
        far = max(off(seen[name], value) for name, value in wanted.items())
        far_logs, outputs = logs_off(mu, history, logs), theirs.predict(x, verbose=0)
        far_outputs = predictions_off(predictions(mu, ours.model, x), outputs)
        report.check(f"subclassed, {replicas} replicas, {floatx}",
                     f"{len(wanted)} weights within {far:.1e}, logs {far_logs:.1e}, outputs {far_outputs:.1e}",
                     max(far, far_logs, far_outputs) <= LIMIT[floatx])
        if replicas > 1:
            return
        compare_files(report, mu, floatx, ours, theirs, x, outputs)
        with tempfile.TemporaryDirectory() as folder:
            texts = [text.strip().splitlines() for text in (our_text(mu, ours.model, {}, folder), their_text(theirs, {}))]
        same = [[without_shape(line) for line in text] for text in texts]
        different = [pair for pair in zip(*same) if pair[0] != pair[1]]
        report.check(f"subclassed, summary, {floatx}", f"{len(same[0])} lines, {len(same[1])} in Keras{different[:2] or ''}",
                     same[0] == same[1])


# ---- Masks --------------------------------------------------------------------------------------------

WORDS, STEPS = 6, 5


class Reader(keras.layers.Layer):
    """A layer with a layer inside, which returns what that one returned."""

    def __init__(self, **options):
        super().__init__(**options)
        self.steps = keras.layers.LSTM(WIDTH, return_sequences=True, name="steps")

    def call(self, x):
        return self.steps(x)


class Tagger(keras.Model):
    """A number for each word, one for the sentence, and one of what a layer made that is told no mask."""

    def __init__(self):
        super().__init__(name="tagger")
        self.table = keras.layers.Embedding(WORDS, WIDTH, mask_zero=True, name="table")
        self.reader = Reader(name="reader")
        self.norm = keras.layers.BatchNormalization(momentum=0.5, epsilon=EPSILON, name="norm")
        self.mean = keras.layers.GlobalAveragePooling1D()
        self.tags = keras.layers.Dense(1, name="tags")
        self.whole = keras.layers.Dense(1, name="whole")

    def call(self, x, training=False):
        h = self.norm(self.reader(self.table(x)))
        return [self.tags(h), self.whole(self.mean(h)), self.whole(self.mean(h + 1))]


class OurTagger(Ours):
    def __init__(self, mu):  # pylint: disable=super-init-not-called
        self.mu, self.kept = mu, []
        reader = mu.mu_layer_new(class_name="reader", call=self.function(CALL, self.call_reader), name="reader")
        mu.mu_layer_set_attribute(reader, "steps", mu.mu_lstm(units=WIDTH, return_sequences=True, name="steps"))
        self.model = mu.mu_model_subclass(class_name="tagger", call=self.function(CALL, self.call))
        for name, layer in (("table", mu.mu_embedding(input_dim=WORDS, output_dim=WIDTH, mask_zero=True, name="table")),
                            ("reader", reader), ("norm", mu.mu_batch_normalization(momentum=0.5, epsilon=EPSILON, name="norm")),
                            ("mean", mu.mu_global_average_pool1d()), ("tags", mu.mu_dense(units=1, name="tags")),
                            ("whole", mu.mu_dense(units=1, name="whole"))):
            mu.mu_layer_set_attribute(self.model, name, layer)

    def call_reader(self, layer, inputs, _context, _arg):
        return self.mu.mu_of(self.apply(layer, "steps", self.mu.mu_at(inputs, 0)))

    def call(self, model, inputs, _context, _arg):
        h = self.mu.mu_at(inputs, 0)
        for name in ("table", "reader", "norm"):
            h = self.apply(model, name, h)
        plain = self.mu.mu_add(h, self.mu.mu_ones_like(h))
        return self.mu.values([self.apply(model, "tags", h)] + [
            self.apply(model, "whole", self.apply(model, "mean", x)) for x in (h, plain)])


def compare_masks_inside(report, mu, floatx, _):
    set_floatx(mu, floatx)
    keras.backend.clear_session()
    generator = np.random.default_rng(14)
    x = generator.integers(1, WORDS, (ROWS, STEPS)).astype(np.int32)
    x[np.arange(STEPS) >= generator.integers(1, STEPS + 1, (ROWS, 1))] = 0
    y = [generator.normal(size=(ROWS, STEPS, 1)), *(generator.normal(size=(ROWS, 1)) for _ in range(2))]
    y = [part.astype(FLOATX[floatx]) for part in y]
    theirs = Tagger()
    theirs(x)
    for variable in theirs.trainable_weights:
        variable.assign(generator.uniform(0.25, 1, tuple(variable.shape)))
    first = {name: variable.numpy() for name, variable in named(theirs)}
    theirs.compile(keras.optimizers.Adam(**ADAM), loss=["mse"] * 3, metrics=[["mae"], [], []])
    logs = theirs.fit(x, y, shuffle=False, verbose=0, **SETTINGS).history
    with mu.pool():
        ours = OurTagger(mu)
        mu.mu_compile(model=ours.model, optimizer=mu.mu_adam(**ADAM),
                      loss=mu.mu_items_of([*(mu.mu_mean_squared_error_loss() for _ in y), mu.end]),
                      metrics=mu.mu_items_of([mu.mu_loss_metric(mu.mu_mean_absolute_error_loss(name="mae")), mu.end]))
        mu.mu_call_values(model=ours.model, x=mu.tensor(x))
        mu.write_weights(ours.model, first)
        data = mu.mu_list_of(2, [mu.mu_of(mu.tensor(x)), mu.values([mu.tensor(part) for part in y])])
        history = mu.mu_fit(model=ours.model, x=data, no_shuffle=True, verbose=MU_VERBOSE_SILENT, **SETTINGS)
        epochs, seen = range(SETTINGS["epochs"]), mu.read_weights(ours.model)
        names = [mu.mu_history_name(history, i).decode() for i in range(mu.mu_history_names(history))]
        far = max(off(seen[name], variable.numpy()) for name, variable in named(theirs))
        mae = next(name for name in names if name.endswith("mae")), next(name for name in logs if name.endswith("mae"))
        far_logs = max(off([mu.mu_history_at(history, here, epoch) for epoch in epochs], logs[there])
                       for here, there in (("loss", "loss"), mae))
    report.check(f"subclassed, masks, {floatx}", f"{len(seen)} weights within {far:.1e}, losses and errors {far_logs:.1e}",
                 max(far, far_logs) <= LIMIT[floatx])
