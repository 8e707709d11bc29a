# Arguments of compile, fit, evaluate and their relatives in Keras and in Muster: sample and class weights, weighted
# metrics, a share of the rows for validation, validation now and then, one batch at a time, frozen layers, clones; and
# several inputs and outputs, in order and by name; losses that layers add, also in nested models and on several replicas.
#
# Both start with the same weights and see the same rows in the same order; the histories and the weights are compared.
import ctypes
import sys

import numpy as np
import tensorflow as tf

import muster
from defaults import FLOATX, TOLERANCE, named, off, set_floatx
from frozen import CHANGES, compare_frozen, compare_frozen_files
from frozen import FITS as FROZEN
from report import Report
from subclassed import compare_masks_inside, compare_subclassed
from summary import SUMMARIES, compare_summary

MU_VERBOSE_SILENT = 1
CLASSES, ROWS, FEATURES = 3, 40, 5
SETTINGS = {"batch_size": 8, "epochs": 4}


def numbers(floatx):
    generator = np.random.default_rng(8)
    dtype = FLOATX[floatx]
    return {"x": generator.normal(size=(ROWS, FEATURES)).astype(dtype), "y": generator.integers(0, CLASSES, ROWS).astype(np.int64),
            "w": generator.uniform(0.25, 2, ROWS).astype(dtype), "vx": generator.normal(size=(12, FEATURES)).astype(dtype),
            "vy": generator.integers(0, CLASSES, 12).astype(np.int64), "vw": generator.uniform(0, 1, 12).astype(dtype)}


class Pair:
    """A model of each side with the same weights, compiled."""

    def __init__(self, mu, weighted=False, frozen="", eager=False):
        self.mu = mu
        layers = tf.keras.layers
        self.theirs = tf.keras.Sequential([
            tf.keras.Input((FEATURES,)), layers.Dense(6, activation="tanh", name="a", kernel_regularizer="l2"),
            layers.BatchNormalization(name="b"), layers.Dense(CLASSES, name="c")])
        generator = np.random.default_rng(9)
        for _, variable in named(self.theirs):
            variable.assign(generator.uniform(0.25, 1, tuple(variable.shape)))
        self.ours = mu.model([mu.mu_dense(units=6, activation="tanh", name="a", kernel_regularizer="l2"),
                              mu.mu_batch_normalization(name="b"), mu.mu_dense(units=CLASSES, name="c")])
        mu.mu_model_build(self.ours, 1, [FEATURES])
        mu.write_weights(self.ours, {name: variable.numpy() for name, variable in named(self.theirs)})
        self.compile(weighted, frozen, eager)

    def compile(self, weighted, frozen, eager):
        mu = self.mu
        for layer in self.theirs.layers:
            layer.trainable = layer.name not in frozen
        for name in frozen:
            self.ours_layer(name)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        kind = "weighted_metrics" if weighted else "metrics"
        self.theirs.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss=loss, run_eagerly=eager,
                            **{kind: [tf.keras.metrics.SparseCategoricalAccuracy(name="acc")]})
        mu.mu_compile(model=self.ours, optimizer=mu.mu_sgd(learning_rate=0.1), run_eagerly=eager,
                      loss=mu.mu_sparse_categorical_crossentropy_loss(from_logits=True),
                      **{kind: mu.mu_sparse_categorical_accuracy_metric(name="acc")})

    def ours_layer(self, name):
        self.mu.mu_layer_set_trainable(self.mu.mu_model_layer(self.ours, name), False)

    def far(self, ours_history, theirs_history):
        mu = self.mu
        names = [mu.mu_history_name(ours_history, i).decode() for i in range(mu.mu_history_names(ours_history))]
        assert sorted(names) == sorted(theirs_history), f"{names} here, {list(theirs_history)} in Keras"
        epochs = mu.mu_history_epochs(ours_history)
        values = [0.0]
        for name, wanted in theirs_history.items():
            seen = [mu.mu_history_at(ours_history, name, epoch) for epoch in range(epochs)]
            seen = [value for value in seen if not np.isnan(value)]
            values.append(off(seen, np.atleast_1d(wanted)))
        weights = mu.read_weights(self.ours)
        values += [off(weights[name], variable.numpy()) for name, variable in named(self.theirs)]
        return max(values)


def fit_both(mu, data, theirs_options, ours_options, **pair):
    both = Pair(mu, **pair)
    theirs = both.theirs.fit(data["x"], data["y"], shuffle=False, verbose=0, **SETTINGS, **theirs_options).history
    ours = mu.mu_fit(model=both.ours, x=mu.tensor(data["x"]), y=mu.tensor(data["y"]), no_shuffle=True,
                     verbose=MU_VERBOSE_SILENT, **SETTINGS, **ours_options)
    return both.far(ours, theirs)


def weights_of_classes(mu):
    return {"class_weight": (muster.ctypes.c_double * 2)(0.5, 3.0), "n_class_weight": 2}


FITS = {
    "plain": lambda mu, d: ({}, {}, {}),
    "sample_weight": lambda mu, d: ({"sample_weight": d["w"]}, {"sample_weight": mu.tensor(d["w"])}, {}),
    "sample_weight and weighted_metrics": lambda mu, d: ({"sample_weight": d["w"]}, {"sample_weight": mu.tensor(d["w"])},
                                                         {"weighted": True}),
    "class_weight": lambda mu, d: ({"class_weight": {0: 0.5, 1: 3.0}}, weights_of_classes(mu), {"weighted": True}),
    "validation_split": lambda mu, d: ({"validation_split": 0.3}, {"validation_split": 0.3}, {}),
    "validation_split of weighted rows": lambda mu, d: (
        {"validation_split": 0.25, "sample_weight": d["w"]}, {"validation_split": 0.25, "sample_weight": mu.tensor(d["w"])},
        {"weighted": True}),
    "validation_freq": lambda mu, d: (
        {"validation_data": (d["vx"], d["vy"]), "validation_freq": 2, "validation_batch_size": 5},
        {"validation_data": mu.values([mu.tensor(d["vx"]), mu.tensor(d["vy"])]), "validation_freq": 2,
         "validation_batch_size": 5}, {}),
    "validation_freq, a list": lambda mu, d: (
        {"validation_data": (d["vx"], d["vy"]), "validation_freq": [1, 3]},
        {"validation_data": mu.values([mu.tensor(d["vx"]), mu.tensor(d["vy"])]), "validation_epochs": [1, 3, 0]}, {}),
    "validation_data with weights": lambda mu, d: (
        {"validation_data": (d["vx"], d["vy"], d["vw"])},
        {"validation_data": mu.values([mu.tensor(d["vx"]), mu.tensor(d["vy"]), mu.tensor(d["vw"])])}, {"weighted": True}),
    "a frozen dense layer": lambda mu, d: ({}, {}, {"frozen": "a"}),
    "frozen batch normalization": lambda mu, d: ({}, {}, {"frozen": "b"}),
    "run_eagerly": lambda mu, d: ({}, {}, {"eager": True}),
    "steps_per_epoch that are not all of the data": lambda mu, d: ({"steps_per_epoch": 3}, {"steps_per_epoch": 3}, {}),
    "steps_per_epoch that are more than the data": lambda mu, d: ({"steps_per_epoch": 50}, {"steps_per_epoch": 50}, {}),
    "initial_epoch": lambda mu, d: ({"initial_epoch": 2}, {"initial_epoch": 2}, {}),
}


def compare_fit(report, mu, floatx, name):
    set_floatx(mu, floatx)
    data = numbers(floatx)
    with mu.pool():
        theirs, ours, pair = FITS[name](mu, data)
        far = fit_both(mu, data, theirs, ours, **pair)
    report.check(f"fit, {name}, {floatx}", f"history and weights within {far:.1e}", far <= TOLERANCE[floatx])


def compare_batches(report, mu, floatx, _):
    """train_on_batch and test_on_batch in turn, with and without weights, and after reset_metrics."""
    set_floatx(mu, floatx)
    data, far = numbers(floatx), []
    with mu.pool():
        both = Pair(mu, weighted=True)
        for i in range(5):
            part = slice(8 * i, 8 * i + 8)
            x, y, w = data["x"][part], data["y"][part], data["w"][part]
            given, ours_given = ({}, {}) if i % 2 else ({"sample_weight": w}, {"sample_weight": mu.tensor(w)})
            theirs = both.theirs.train_on_batch(x, y, return_dict=True, **given)
            ours = mu.mu_train_on_batch(model=both.ours, x=mu.tensor(x), y=mu.tensor(y), **ours_given)
            far.append(both.far(ours, theirs))
        theirs = both.theirs.test_on_batch(data["vx"], data["vy"], sample_weight=data["vw"], return_dict=True)
        ours = mu.mu_test_on_batch(model=both.ours, x=mu.tensor(data["vx"]), y=mu.tensor(data["vy"]),
                                   sample_weight=mu.tensor(data["vw"]))
        far.append(both.far(ours, theirs))
        far.append(both.far(mu.mu_metrics_result(both.ours), theirs))
        both.theirs.reset_metrics()
        mu.mu_reset_metrics(both.ours)
        theirs = both.theirs.test_on_batch(x, y, return_dict=True)
        far.append(both.far(mu.mu_test_on_batch(model=both.ours, x=mu.tensor(x), y=mu.tensor(y)), theirs))
    report.check(f"train_on_batch, test_on_batch, {floatx}", f"values and weights within {max(far):.1e}",
                 max(far) <= TOLERANCE[floatx])


def compare_evaluate(report, mu, floatx, _):
    set_floatx(mu, floatx)
    data = numbers(floatx)
    with mu.pool():
        both = Pair(mu, weighted=True)
        theirs = both.theirs.evaluate(data["x"], data["y"], sample_weight=data["w"], batch_size=7, verbose=0, return_dict=True)
        ours = mu.mu_evaluate(model=both.ours, x=mu.tensor(data["x"]), y=mu.tensor(data["y"]), batch_size=7,
                              sample_weight=mu.tensor(data["w"]), verbose=MU_VERBOSE_SILENT)
        far = both.far(ours, theirs)
    report.check(f"evaluate, sample_weight, {floatx}", f"values within {far:.1e}", far <= TOLERANCE[floatx])


def compare_clone(report, mu, floatx, _):
    """A clone has the same configuration and weights of its own."""
    set_floatx(mu, floatx)
    with mu.pool():
        both = Pair(mu, frozen="a")
        clone = mu.mu_clone_model(both.ours)
        same = mu.mu_layer_config(clone) == mu.mu_layer_config(both.ours)
        mu.mu_model_build(clone, 1, [FEATURES])
        first, other = mu.read_weights(both.ours), mu.read_weights(clone)
        apart = list(first) == list(other) and any(not np.array_equal(first[name], other[name]) for name in first)
    report.check(f"clone_model, {floatx}", f"configuration {'alike' if same else 'differs'}, weights of its own: {apart}",
                 same and apart)


def compare_rates(report, mu, floatx, _):
    """A layer with an eighth of the rate: Keras needs an optimizer for each rate. Weight decay follows the rate in both."""
    set_floatx(mu, floatx)
    data = numbers(floatx)
    optimizers = tf.keras.optimizers
    slow, fast = (optimizers.AdamW(rate, weight_decay=0.125) for rate in (2**-7, 2**-4))
    by_name = optimizers.OptimizerMap(fast, {"(.*/)?a/(kernel|bias)": slow})
    with mu.pool():
        both = Pair(mu)
        both.theirs.compile(optimizer=optimizers.MultiOptimizer(by_name), loss=both.theirs.loss, metrics=["accuracy"])
        mu.mu_layer_set_learning_rate_multiplier(mu.mu_model_layer(both.ours, "a"), 0.125)
        mu.mu_compile(model=both.ours, optimizer=mu.mu_adamw(learning_rate=2**-4, weight_decay=0.125),
                      loss=mu.mu_sparse_categorical_crossentropy_loss(from_logits=True), metrics="accuracy")
        theirs = both.theirs.fit(data["x"], data["y"], shuffle=False, verbose=0, **SETTINGS).history
        ours = mu.mu_fit(model=both.ours, x=mu.tensor(data["x"]), y=mu.tensor(data["y"]), no_shuffle=True,
                         verbose=MU_VERBOSE_SILENT, **SETTINGS)
        far = both.far(ours, theirs)
    report.check(f"MultiOptimizer of two rates, {floatx}", f"history and weights within {far:.1e}", far <= TOLERANCE[floatx])


# ---- Several inputs and outputs -------------------------------------------------------------------


def items(mu, given):
    """A dict as MU_BY_NAME, a list as MU_LOSSES or MU_METRICS; anything else is itself."""
    if not isinstance(given, (dict, list)):
        return given
    texts, flat = [], []
    for item in [part for pair in given.items() for part in pair] if isinstance(given, dict) else given:
        if isinstance(item, str):
            texts.append(muster.ctypes.create_string_buffer(item.encode()))
            item = muster.ctypes.addressof(texts[-1])
        flat.append(items(mu, item))
    return (mu.mu_named_items_of if isinstance(given, dict) else mu.mu_items_of)([*flat, mu.end])


def nest(mu, given):
    """Arrays in a dict, a list or alone as a mu_value."""
    if isinstance(given, dict):
        return mu.mu_map_of(len(given), list(given), [nest(mu, item) for item in given.values()])
    if isinstance(given, (list, tuple)):
        return mu.mu_list_of(len(given), [nest(mu, item) for item in given])
    return mu.mu_of(mu.tensor(given))


class Outputs(Pair):
    """A model of each side with two inputs and two outputs: a number, and a class of three."""

    def __init__(self, mu, keyed):
        self.mu = mu
        left, right = tf.keras.Input((3,), name="left"), tf.keras.Input((2,), name="right")
        dense = tf.keras.layers.Dense
        h = dense(4, activation="tanh", name="h")(tf.keras.layers.Concatenate(name="both")([left, right]))
        out = {"a": dense(1, name="a")(h), "b": dense(CLASSES, activation="softmax", name="b")(h)}
        keys = {"number": "a", "kind": "b"}
        self.theirs = tf.keras.Model([left, right], {key: out[name] for key, name in keys.items()} if keyed else list(out.values()))
        generator = np.random.default_rng(9)
        for _, variable in named(self.theirs):
            variable.assign(generator.uniform(-1, 1, tuple(variable.shape)))
        left, right = (mu.mu_input(shape=[n], name=name) for n, name in ((3, "left"), (2, "right")))
        joined = mu.mu_call(model=mu.mu_concatenate(name="both"), inputs=mu.values([left, right]))
        h = mu.mu_call(model=mu.mu_dense(units=4, activation="tanh", name="h"), x=joined)
        ours = [mu.mu_of(mu.mu_call(model=mu.mu_dense(units=1, name="a"), x=h)),
                mu.mu_of(mu.mu_call(model=mu.mu_dense(units=CLASSES, activation="softmax", name="b"), x=h))]
        self.ours = mu.mu_model_new(inputs=mu.values([left, right]),
                                    outputs=mu.mu_map_of(2, list(keys), ours) if keyed else mu.mu_list_of(2, ours))
        mu.write_weights(self.ours, {name: variable.numpy() for name, variable in named(self.theirs)})

    def compile_all(self, theirs, ours):
        """With decay: of an output without a loss it must leave the weights alone."""
        decay = {"learning_rate": 0.1, "weight_decay": 0.125}
        self.theirs.compile(optimizer=tf.keras.optimizers.SGD(**decay), **theirs)
        self.mu.mu_compile(model=self.ours, optimizer=self.mu.mu_sgd(**decay),
                           **{key: items(self.mu, given) for key, given in ours.items()})


def doubles(*values):
    return (muster.ctypes.c_double * len(values))(*values)


SPARSE, ACC = "sparse_categorical_crossentropy", "sparse_categorical_accuracy"
# Whether the outputs are a map; what both compile; what only Keras compiles; what only Muster does; which of the data.
OUTPUTS = {
    "by name": (False, {"loss": {"b": SPARSE, "a": "mse"}, "metrics": {"b": [ACC]}, "weighted_metrics": {"a": ["mae"], "b": [ACC]}},
                {"loss_weights": {"b": 2.0, "a": 0.5}}, {"loss_weights": doubles(2, 0.5)}, ("x", "yw", "w")),
    "in order": (False, {"loss": ["mse", SPARSE], "metrics": [["mae", "mse"], [ACC]]}, {"loss_weights": [0.5, 2.0]},
                 {"loss_weights": doubles(0.5, 2)}, ("xs", "ys", "ws")),
    "a metric for each": (False, {"loss": ["mse", SPARSE], "metrics": ["mae", ACC]}, {}, {}, ("x", "ys", None)),
    "outputs in a map": (True, {"loss": {"number": "mse", "kind": SPARSE}, "metrics": {"kind": [ACC], "number": ["mae"]}},
                         {}, {}, ("x", "keyed", "keyed_w")),
    "one loss for all": (False, {"loss": "mse", "metrics": {"b": ["mae"]}}, {}, {}, ("xs", "numbers", None)),
    "an output without a loss": (False, {"loss": {"a": None, "b": SPARSE}, "metrics": {"b": [ACC]}}, {}, {}, ("x", "y", None)),
}


def output_numbers(floatx):
    """Keras takes no sample weights by name for outputs in a list, so what is "there" goes to it in order."""
    generator = np.random.default_rng(12)
    dtype = FLOATX[floatx]
    x = {"left": generator.normal(size=(ROWS, 3)).astype(dtype), "right": generator.normal(size=(ROWS, 2)).astype(dtype)}
    y = {"a": generator.normal(size=(ROWS, 1)).astype(dtype), "b": generator.integers(0, CLASSES, (ROWS, 1)).astype(np.int64)}
    w = {key: generator.uniform(0.25, 2, ROWS).astype(dtype) for key in y}
    return {"x": x, "xs": list(x.values()), "y": y, "ys": list(y.values()), "yw": y, "yw there": list(y.values()),
            "w": w, "w there": list(w.values()), "ws": list(w.values()),
            "keyed": {"number": y["a"], "kind": y["b"]}, "keyed_w": {"number": w["a"], "kind": w["b"]},
            "numbers": [y["a"], generator.uniform(size=(ROWS, CLASSES)).astype(dtype)]}


def compare_outputs(report, mu, floatx, name):
    """Fits, evaluates and predicts with two outputs. All batches are of one size: in Keras's mean of an output's loss a
    smaller batch counts as much as the others, while each sample counts once in Muster, as it does in both for "loss"."""
    set_floatx(mu, floatx)
    keyed, both, theirs, ours, (x, y, w) = OUTPUTS[name]
    data = output_numbers(floatx)
    there = data | {key: data[f"{key} there"] for key in (y, w) if f"{key} there" in data}
    weights, ours_weights = ({}, {}) if w is None else ({"sample_weight": there[w]}, {"sample_weight": nest(mu, data[w])})
    with mu.pool():
        pair = Outputs(mu, keyed)
        pair.compile_all(both | theirs, both | ours)
        history = pair.theirs.fit(there[x], there[y], shuffle=False, verbose=0, validation_split=0.2, **SETTINGS, **weights).history
        seen = mu.mu_fit(model=pair.ours, x=nest(mu, data[x]), y=nest(mu, data[y]), no_shuffle=True, validation_split=0.2,
                         verbose=MU_VERBOSE_SILENT, **SETTINGS, **ours_weights)
        far = [pair.far(seen, history)]
        wanted = pair.theirs.evaluate(there[x], there[y], verbose=0, batch_size=20, return_dict=True, **weights)
        far.append(pair.far(mu.mu_evaluate(model=pair.ours, x=nest(mu, data[x]), y=nest(mu, data[y]), batch_size=20,
                                           verbose=MU_VERBOSE_SILENT, **ours_weights), wanted))
        wanted = pair.theirs.predict(data["x"], verbose=0, batch_size=7)
        seen = mu.mu_predict_values(model=pair.ours, x=nest(mu, data["x"]), batch_size=7)
        at_once = mu.mu_predict_on_batch(model=pair.ours, x=nest(mu, data["xs"]))
        for i, key in enumerate(["number", "kind"] if keyed else [0, 1]):
            far += [off(mu.array(mu.mu_at(outputs, i)), wanted[key]) for outputs in (seen, at_once)]
            assert not keyed or mu.mu_value_key(seen, i).decode() == key
    report.check(f"outputs, {name}, {floatx}", f"history, weights and predictions within {max(far):.1e}",
                 max(far) <= TOLERANCE[floatx])


LAYER_CALL = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 5)


class AddsSquares(tf.keras.layers.Layer):
    """Leaves its input as it is, and adds a share of the mean of its squares to the loss."""

    def call(self, x):
        self.add_loss(0.25 * tf.reduce_mean(tf.square(x)))
        return x


def adds_squares(mu, kept):
    def call(layer, inputs, _context, _arg):
        squares = mu.mu_reduce_mean(mu.mu_square(mu.mu_at(inputs, 0)), muster.ALL_AXES)
        return None if mu.mu_layer_add_loss(layer, mu.mu_multiply(squares, mu.mu_cast(mu.tensor(np.float32(0.25)),
                                                                                     mu.mu_tensor_dtype(squares)))) else inputs
    kept.append(LAYER_CALL(lambda *arguments: mu.call_back(lambda: call(*arguments), None)))
    return mu.mu_layer_new(call=kept[-1])


def compare_added_losses(report, mu, floatx, replicas):
    """add_loss of two layers, of which one is in a model within the model; 10 rows in batches of 4 on uneven replicas."""
    set_floatx(mu, floatx)
    generator, dtype, kept = np.random.default_rng(10), FLOATX[floatx], []
    x, y = generator.normal(size=(10, 3)).astype(dtype), generator.normal(size=(10, 2)).astype(dtype)
    layers = tf.keras.layers
    inner = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(2, name="b"), AddsSquares()], name="inner")
    given = tf.keras.Input((3,))
    theirs = tf.keras.Model(given, inner(AddsSquares()(layers.Dense(4, name="a")(given))))
    weights = {"/".join(variable.path.split("/")[-2:]): variable for variable in theirs.weights}
    for variable in weights.values():
        variable.assign(generator.uniform(-1, 1, tuple(variable.shape)))
    with mu.pool(), mu.scope(mu.mirrored(replicas)):
        p = mu.mu_input(shape=[3])
        h = mu.mu_call(model=adds_squares(mu, kept), x=mu.mu_call(model=mu.mu_dense(units=4, name="a"), x=p))
        ours_inner = mu.model([mu.mu_dense(units=2, name="b"), adds_squares(mu, kept)])
        ours = mu.mu_model_new(inputs=mu.mu_of(p), output=mu.mu_call(model=ours_inner, x=h))
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.1), loss="mse")
        paths = {"/".join(path.split("/")[-2:]): path for path in mu.read_weights(ours)}
        mu.write_weights(ours, {paths[name]: value.numpy() for name, value in weights.items()})
        theirs.compile(tf.keras.optimizers.SGD(0.1), "mse")
        wanted = theirs.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]
        history = mu.mu_fit(model=ours, x=mu.tensor(x), y=mu.tensor(y), batch_size=4, epochs=3, no_shuffle=True,
                            verbose=MU_VERBOSE_SILENT)
        after = mu.read_weights(ours)
        far = max(off([mu.mu_history_at(history, "loss", i) for i in range(3)], wanted),
                  *(off(after[paths[name]], value.numpy()) for name, value in weights.items()))
    report.check(f"added losses, {replicas} replicas, {floatx}", f"losses and weights within {far:.1e}", far <= TOLERANCE[floatx])


def compare_lora(report, mu, floatx, row):
    """What docs/porting.md has for LoRA, a frozen layer and two small ones beside it, trains as Keras's layer does."""
    data, rank = numbers(floatx), 2
    alpha, activation = row
    theirs = tf.keras.Sequential([tf.keras.Input((FEATURES,)), tf.keras.layers.Dense(CLASSES, activation=activation, name="d")])
    layer = theirs.get_layer("d")
    layer.enable_lora(rank, lora_alpha=alpha)  # which the layer's own argument lora_alpha does not reach
    theirs.compile(tf.keras.optimizers.SGD(0.25), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    first = {"frozen/kernel": layer._kernel.numpy(), "frozen/bias": layer.bias.numpy(), "a/kernel": layer.lora_kernel_a.numpy(),
             "b/kernel": layer.lora_kernel_b.numpy(), "b/bias": layer.bias.numpy()}
    wanted = theirs.fit(data["x"], data["y"], shuffle=False, verbose=0, **SETTINGS).history["loss"]
    x = mu.mu_input(shape=[FEATURES])
    frozen = mu.mu_dense(units=CLASSES, name="frozen")
    small = mu.mu_call(model=mu.mu_dense(units=rank, no_bias=True, kernel_initializer="he_uniform", name="a"), x=x)
    scaled = mu.mu_call(model=mu.mu_rescaling(scale=alpha / rank), x=small)
    parts = [mu.mu_call(model=frozen, x=x), mu.mu_call(model=mu.mu_dense(units=CLASSES, kernel_initializer="zeros", name="b"), x=scaled)]
    both = mu.mu_call(model=mu.mu_add_layer(), inputs=mu.values(parts))
    ours = mu.mu_model_new(input=x, output=mu.mu_call(model=mu.mu_activation(activation=activation), x=both))
    mu.mu_layer_set_trainable(frozen, False)
    mu.write_weights(ours, first)
    mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.25),
                  loss=mu.mu_sparse_categorical_crossentropy_loss(from_logits=True))
    history = mu.mu_fit(model=ours, x=mu.tensor(data["x"]), y=mu.tensor(data["y"]), no_shuffle=True, verbose=MU_VERBOSE_SILENT,
                        **SETTINGS)
    after = mu.read_weights(ours)
    seen = [mu.mu_history_at(history, "loss", i) for i in range(mu.mu_history_epochs(history))]
    far = max(off(seen, wanted), off(after["a/kernel"], layer.lora_kernel_a.numpy()), off(after["b/kernel"], layer.lora_kernel_b.numpy()),
              off(after["frozen/bias"] + after["b/bias"], layer.bias.numpy()), off(after["frozen/kernel"], first["frozen/kernel"]))
    moved = np.abs(after["b/kernel"]).max() > 1e-3
    report.check(f"LoRA of layers, alpha {alpha}, {activation}, {floatx}", f"losses and weights within {far:.1e}", moved and far <= TOLERANCE[floatx])


def main(library, only=""):
    mu = muster.Library(library, cpu_devices=3)
    report = Report("fitting")
    for floatx in FLOATX:
        rows = [(compare_fit, name, name) for name in FITS]
        rows += [(compare_outputs, name, f"outputs, {name}") for name in OUTPUTS if floatx == "f64" or name == "by name"]
        rows += [(compare_batches, None, "batches"), (compare_evaluate, None, "evaluate"), (compare_clone, None, "clone"),
                 (compare_rates, None, "rates of layers")]
        rows += [(compare_added_losses, replicas, f"added losses, {replicas}") for replicas in (1, 3)]
        rows += [(compare_subclassed, replicas, f"subclassed, {replicas}") for replicas in (1, 3)[:2 if floatx == "f64" else 1]]
        rows += [(compare_masks_inside, None, "subclassed, masks")]
        rows += [(compare_frozen, row, f"frozen: {row[0]}") for row in FROZEN] if floatx == "f64" else []
        rows += [(compare_frozen_files, name, f"frozen in files: {name}") for name in CHANGES] if floatx == "f32" else []
        rows += [(compare_lora, row, "LoRA") for row in ((2, "linear"), (5, "tanh"))] if floatx == "f32" else []  # Keras's matrices are always float32
        for compare, row, name in rows:
            if only in name:
                with report.guard(f"{name}, {floatx}"):
                    compare(report, mu, floatx, row)
    for name, make, options in SUMMARIES:
        if only in f"summary, {name}":
            with report.guard(f"summary, {name}"):
                compare_summary(report, mu, name, make, options)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
