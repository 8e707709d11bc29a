# Models of keras.applications whose layers have classes of their own: LayerScale and StochasticDepth of ConvNeXt, and
# CustomScaleLayer of InceptionResNetV2. Functions registered with mu_register_layer make these layers here.
#
# Each model is made and trained a little by Keras and saved as .keras; loaded by Muster, which must predict the same;
# trained there for some steps; saved as .keras and .weights.h5; loaded by Keras, which must predict what Muster
# predicts. Where nothing is random, both take the same next step from Muster's file. The same for a clone made here.
import ctypes
import json
import os
import sys
import tempfile

import numpy as np

from files import LIMIT, ROWS, apart, keras_predict, muster_fit, muster_predict
from muster import Library, MusterError
from report import Report

EPOCHS = 10
MU_UNKNOWN = -1
NEXT_STEP = 1e-4  # as in files.py
CALL = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 5)
BUILD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
FROM_CONFIG = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Classes:
    """The functions of the classes, which live as long as the library knows them."""

    def __init__(self, mu):
        self.mu, self.kept, self.made = mu, [], {}

    def function(self, kind, function, failed=None):
        self.kept.append(kind(lambda *arguments: self.mu.call_back(lambda: function(*arguments), failed)))
        return self.kept[-1]

    def register(self, name, from_config):
        """from_config(config) returns the options of mu_layer_new."""
        def make(text, _arg):
            self.made[name] = self.made.get(name, 0) + 1
            return from_config(json.loads(text))

        self.mu.mu_register_layer(name, self.function(FROM_CONFIG, make), None)

    def layer_scale(self, config):
        mu, n = self.mu, config["projection_dim"]

        def build(layer, _n, _shapes, _arg):
            first = mu.mu_constant_initializer(value=config["init_values"])
            mu.mu_layer_add_weight(layer=layer, name="gamma", shape=mu.mu_shape_make(1, [n]), initializer=first)
            return 0

        def call(layer, inputs, _context, _arg):
            gamma = mu.mu_variable_read(mu.mu_layer_weight(layer, "gamma"))
            return mu.mu_of(mu.mu_multiply(mu.mu_at(inputs, 0), gamma))

        return mu.mu_layer_new(class_name="layer_scale", build=self.function(BUILD, build, 13), call=self.function(CALL, call))

    def stochastic_depth(self, config):
        """Dropout with one draw for each row; it is told the mode as a sublayer."""
        mu = self.mu
        drop = mu.mu_dropout(rate=config["drop_path_rate"], noise_shape=[MU_UNKNOWN, 1, 1, 1])

        def call(_layer, inputs, _context, _arg):
            return mu.mu_of(mu.mu_call(model=drop, x=mu.mu_at(inputs, 0)))

        layer = mu.mu_layer_new(class_name="stochastic_depth", call=self.function(CALL, call))
        mu.mu_layer_add_sublayer(layer, drop)
        return layer

    def custom_scale(self, config):
        mu = self.mu

        def call(_layer, inputs, _context, _arg):
            x, y = mu.mu_at(inputs, 0), mu.mu_at(inputs, 1)
            return mu.mu_of(mu.mu_add(x, mu.mu_multiply(y, mu.mu_constant(mu.mu_tensor_dtype(y), config["scale"]))))

        return mu.mu_layer_new(class_name="custom_scale_layer", call=self.function(CALL, call))


def convnext(keras, drop_path_rate):
    from keras.src.applications.convnext import ConvNeXt

    model = ConvNeXt([1, 2, 1, 1], [4, 6, 8, 10], drop_path_rate, 0.5, input_shape=(32, 32, 3), classes=4, name="convnext")
    model.compile(keras.optimizers.AdamW(0.002, weight_decay=0.01), "categorical_crossentropy", metrics=["accuracy"])
    return model


def convnext_that_drops(keras):
    return convnext(keras, 0.5)


def convnext_that_keeps(keras):
    """Layers that drop nothing in f32: what they do in training is known."""
    return convnext(keras, 1e-12)


def inception_block(keras):
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    L = keras.layers
    inputs = keras.Input((32, 32, 3))
    x = L.Conv2D(6, 3, strides=4, activation="relu")(inputs)
    y = L.Conv2D(6, 1)(L.Conv2D(4, 3, padding="same", activation="relu")(x))
    x = L.GlobalAveragePooling2D()(L.Activation("relu")(CustomScaleLayer(0.25, name="scaled")([x, y])))
    model = keras.Model(inputs, L.Dense(4, activation="softmax")(x), name="inception")
    model.compile(keras.optimizers.RMSprop(0.002), "categorical_crossentropy")
    return model


MODELS = {convnext_that_drops: ("LayerScale", "StochasticDepth"), convnext_that_keeps: ("LayerScale", "StochasticDepth"),
          inception_block: ("CustomScaleLayer",)}
RANDOM = (convnext_that_drops,)


def data():
    random = np.random.default_rng(1)
    x = random.uniform(0, 255, (ROWS, 32, 32, 3)).astype(np.float32)
    return [x], [np.eye(4, dtype=np.float32)[random.integers(0, 4, ROWS)]]


def custom_objects():
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    return {layer.__name__: layer for layer in (LayerScale, StochasticDepth, CustomScaleLayer)}


def check_refused(report, mu, keras, build):
    """Before anything is registered, the message names what to register."""
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        build(keras).save(folder + "/m.keras")
        names = [f'mu_register_layer("{name}"' for name in MODELS[build]]
        try:
            mu.mu_load_model(path=folder + "/m.keras")
            report.check(build.__name__, "loads without registered classes", False)
        except MusterError as error:
            report.check(build.__name__, f"refused: {str(error)[:90]}", any(name in str(error) for name in names))


def check_back(report, mu, keras, name, model, build, x, folder):
    """What Keras reads of Muster's files predicts what Muster predicts; the model of the .keras file."""
    trained = muster_predict(mu, model, x)
    mu.mu_save_model(model, folder + "/ours.keras")
    mu.mu_save_weights(model, folder + "/ours.weights.h5")
    loaded, other = keras.saving.load_model(folder + "/ours.keras", custom_objects=custom_objects()), build(keras)
    other.load_weights(folder + "/ours.weights.h5")
    for path, theirs in ((".keras", loaded), (".weights.h5", other)):
        seen = apart(keras_predict(theirs, x), trained)
        report.check(name, f"{path} to Keras: apart by {seen:.1e}", seen < LIMIT)
    return loaded


def check_next_step(report, mu, name, model, loaded, x, y):
    before = muster_predict(mu, model, x)
    muster_fit(mu, model, x, y, 1)
    loaded.fit(x[0], y[0], batch_size=ROWS, epochs=1, shuffle=False, verbose=0)
    seen, moved = apart(keras_predict(loaded, x), muster_predict(mu, model, x)), apart(before, keras_predict(loaded, x))
    report.check(name, f"the next step: apart by {seen:.1e}, moved by {moved:.1e}", seen < NEXT_STEP and seen < 0.2 * moved)


def check_model(report, mu, keras, classes, build):
    keras.utils.set_random_seed(3)
    theirs, (x, y), name = build(keras), data(), build.__name__
    theirs.fit(x[0], y[0], batch_size=ROWS, epochs=3, shuffle=False, verbose=0)
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        theirs.save(folder + "/theirs.keras")
        classes.made = {}
        model = mu.mu_load_model(path=folder + "/theirs.keras")
        wanted = {kind: sum(type(layer).__name__ == kind for layer in theirs.layers) for kind in MODELS[build]}
        report.check(name, f"made here: {classes.made}", classes.made == wanted and min(wanted.values()) > 0)
        seen = apart(muster_predict(mu, model, x), keras_predict(theirs, x))
        report.check(name, f".keras to Muster: apart by {seen:.1e}", seen < LIMIT)
        muster_fit(mu, model, x, y, EPOCHS)
        moved = apart(muster_predict(mu, model, x), keras_predict(theirs, x))
        report.check(name, f"{EPOCHS} steps here move the predictions by {moved:.1e}", moved > 100 * LIMIT)
        loaded = check_back(report, mu, keras, name, model, build, x, folder)
        if build not in RANDOM:
            check_next_step(report, mu, name, model, loaded, x, y)


def check_clone(report, mu, keras, build):
    """Clones and JSON are made by the registered functions too: the values that weights begin with are those of the file."""
    keras.utils.set_random_seed(4)
    theirs, (x, _), name = build(keras), data(), build.__name__
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        made = mu.mu_layer_from_config(theirs.to_json())
        theirs.save_weights(folder + "/theirs.weights.h5")
        first = {path: value for path, value in mu.read_weights(made).items() if path.endswith("gamma") and "scale" in path}
        clone = mu.mu_clone_model(made)
        mu.mu_load_weights(clone, folder + "/theirs.weights.h5")
        seen = apart(muster_predict(mu, clone, x), keras_predict(theirs, x))
        n = MODELS[build].count("LayerScale") and sum("LayerScale" in type(layer).__name__ for layer in theirs.layers)
    report.check(name, f"JSON, cloned, with Keras's weights: apart by {seen:.1e}; {len(first)} scales begin with 0.5",
                 seen < LIMIT and len(first) == n and all((value == 0.5).all() for value in first.values()))


def check_drops(report, mu, classes):
    """In training each row is dropped or scaled, about half of them; in inference all stay."""
    with mu.pool():
        layer = classes.stochastic_depth({"drop_path_rate": 0.5})
        x = mu.tensor(np.ones((1000, 2, 3, 4), np.float32))
        seen = mu.array(mu.mu_call(model=layer, x=x, training=True)).reshape(1000, -1)
        rows, still = seen[:, 0], mu.array(mu.mu_call(model=layer, x=x, training=False))
    whole = (seen == rows[:, None]).all() and set(np.unique(rows)) == {0, 2}
    report.check("StochasticDepth", f"{(rows == 0).sum()} of 1000 rows are dropped", whole and 400 < (rows == 0).sum() < 600 and (still == 1).all())


def main(library, only=""):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    mu = Library(library)
    report = Report("models with layers that the program registers")
    chosen = [build for build in MODELS if only in build.__name__]
    classes = Classes(mu)
    for build in chosen:
        with report.guard(build.__name__):
            check_refused(report, mu, keras, build)
    classes.register("LayerScale", classes.layer_scale)
    classes.register("StochasticDepth", classes.stochastic_depth)
    classes.register("CustomScaleLayer", classes.custom_scale)
    for build in chosen:
        with report.guard(build.__name__):
            check_model(report, mu, keras, classes, build)
            check_clone(report, mu, keras, build)
    with report.guard("StochasticDepth"):
        check_drops(report, mu, classes)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
