# Options of a layer's weights in Keras and in Muster: initializers with a seed, regularizers of weights and of outputs,
# constraints; by name and as objects, what they compute, what training makes of them, and their JSON both ways.
import json
import sys

import numpy as np
import tensorflow as tf

import muster
from defaults import FLOATX, TOLERANCE, named, off, set_floatx
from report import Report

MU_VERBOSE_SILENT = 1
STEPS = 8

# Keras's class, Muster's function, arguments that both have.
INITIALIZERS = [
    ("Constant", "mu_constant_initializer", {"value": 0.75}),
    ("Identity", "mu_identity_initializer", {"gain": 2.5}),
    ("Orthogonal", "mu_orthogonal_initializer", {"gain": 0.5, "seed": 4}),
    ("RandomNormal", "mu_random_normal_initializer", {"mean": 0.5, "stddev": 0.125, "seed": 5}),
    ("TruncatedNormal", "mu_truncated_normal_initializer", {"mean": -0.5, "stddev": 0.25, "seed": 6}),
    ("RandomUniform", "mu_random_uniform_initializer", {"minval": -0.5, "maxval": 1.5, "seed": 7}),
    *(("VarianceScaling", "mu_variance_scaling_initializer",
       {"scale": 3.0, "mode": mode, "distribution": distribution, "seed": 8})
      for mode in ("fan_in", "fan_out", "fan_avg")
      for distribution in ("truncated_normal", "untruncated_normal", "uniform")),
    ("VarianceScaling", "mu_variance_scaling_initializer", {"seed": 9}),
    *((name, f"mu_{ours}_initializer", {"seed": 10})
      for name, ours in (("GlorotUniform", "glorot_uniform"), ("GlorotNormal", "glorot_normal"), ("HeUniform", "he_uniform"),
                         ("HeNormal", "he_normal"), ("LecunUniform", "lecun_uniform"), ("LecunNormal", "lecun_normal"))),
]
SHAPES = {"Identity": [(4, 6)], "Orthogonal": [(9, 5), (4, 7)]}
ANY_SHAPES = [(7, 5), (3, 2, 4, 6)]

CONSTRAINTS = [
    ("NonNeg", "mu_non_neg", {}, {}),
    ("MaxNorm", "mu_max_norm", {"max_value": 0.5}, {}),
    ("MaxNorm", "mu_max_norm", {}, {}),
    ("MaxNorm", "mu_max_norm", {"max_value": 0.75, "axis": [0, 1]}, {"axes": [0, 1], "n_axes": 2}),
    ("MaxNorm", "mu_max_norm", {"max_value": 0.75, "axis": 1}, {"axes": [1], "n_axes": 1}),
    ("UnitNorm", "mu_unit_norm", {}, {}),
    ("UnitNorm", "mu_unit_norm", {"axis": -1}, {"axes": [-1], "n_axes": 1}),
    ("MinMaxNorm", "mu_min_max_norm", {}, {}),
    ("MinMaxNorm", "mu_min_max_norm", {"min_value": 0.5, "max_value": 0.625, "rate": 0.25}, {}),
]
REGULARIZERS = [("l1", lambda mu: mu.mu_l1(0.25), tf.keras.regularizers.L1(0.25)),
                ("l2", lambda mu: mu.mu_l2(0.5), tf.keras.regularizers.L2(0.5)),
                ("l1_l2", lambda mu: mu.mu_l1_l2(0.25, 0.5), tf.keras.regularizers.L1L2(0.25, 0.5)),
                ("orthogonal", lambda mu: mu.mu_orthogonal_regularizer(2.0, "columns"),
                 tf.keras.regularizers.OrthogonalRegularizer(2.0, "columns")),
                ("name l1", lambda mu: "l1", "l1"), ("name l2", lambda mu: "l2", "l2"),
                ("name l1_l2", lambda mu: "l1_l2", "l1l2"),  # as Keras 3 spells it
                ("name orthogonal", lambda mu: "orthogonal_regularizer", "orthogonal_regularizer")]


def constraint(mu, name, options, ours):
    given = {key: value for key, value in options.items() if key != "axis"}
    return getattr(mu, name)(**given, **ours) if name != "mu_non_neg" else mu.mu_non_neg()


def compare_initializer(report, mu, floatx, row):
    """The values for a seed, two draws of which are alike, and the configuration both ways."""
    keras_name, name, options = row
    set_floatx(mu, floatx)
    dtype = np.dtype(FLOATX[floatx])
    theirs = getattr(tf.keras.initializers, keras_name)(**options)
    far = []
    with mu.pool():
        ours = getattr(mu, name)(**options)
        for shape in SHAPES.get(keras_name, ANY_SHAPES):
            wanted = np.asarray(theirs(shape, dtype=dtype.name))
            for _ in range(2):
                drawn = mu.mu_initializer_call(ours, muster.DTYPES[dtype], mu.mu_shape_make(len(shape), list(shape)))
                far.append(off(mu.array(drawn), wanted))
        layer = mu.mu_dense(units=5, kernel_initializer=ours)
        read = tf.keras.layers.deserialize(json.loads(mu.mu_layer_config(layer).decode())).kernel_initializer
        back = mu.mu_layer_from_config(json.dumps(tf.keras.layers.serialize(
            tf.keras.layers.Dense(5, kernel_initializer=theirs))))
        ours_config, back_config = (json.loads(mu.mu_layer_config(each).decode())["config"]["kernel_initializer"]
                                    for each in (layer, back))
        forgets = not set(options) <= set(theirs.get_config())  # Keras's Identity does not write its gain
        same = read.get_config() == theirs.get_config() and (forgets or ours_config == back_config)
    report.check(f"{name} {options}, {floatx}", f"values within {max(far):.1e}, configuration {'alike' if same else 'differs'}",
                 same and max(far) <= TOLERANCE[floatx])


def compare_constraint(report, mu, floatx, row):
    keras_name, name, options, ours_options = row
    set_floatx(mu, floatx)
    theirs = getattr(tf.keras.constraints, keras_name)(**options)
    w = np.random.default_rng(4).normal(0, 0.3, (6, 5)).astype(FLOATX[floatx])
    with mu.pool():
        ours = constraint(mu, name, options, ours_options)
        far = off(mu.array(mu.mu_constraint_call(ours, mu.tensor(w))), np.asarray(theirs(w)))
        layer = mu.mu_dense(units=5, kernel_constraint=ours)
        read = tf.keras.layers.deserialize(json.loads(mu.mu_layer_config(layer).decode())).kernel_constraint
        back = mu.mu_layer_from_config(json.dumps(tf.keras.layers.serialize(
            tf.keras.layers.Dense(5, kernel_constraint=theirs))))
        again = tf.keras.layers.deserialize(json.loads(mu.mu_layer_config(back).decode())).kernel_constraint
        same = read.get_config() == theirs.get_config() == again.get_config()
    report.check(f"{name} {options}, {floatx}", f"values within {far:.1e}, configuration {'alike' if same else 'differs'}",
                 same and far <= TOLERANCE[floatx])


def compare_training(report, mu, floatx, row):
    """Steps of fit with SGD: the weights, and the loss of each epoch."""
    title, theirs_options, ours_options = row
    set_floatx(mu, floatx)
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(6)
    x, y = generator.normal(size=(24, 6)).astype(dtype), generator.normal(size=(24, 4)).astype(dtype)
    theirs = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(5, name="a", activation="tanh",
                                                                               **theirs_options),
                                  tf.keras.layers.Dense(4, name="b")])
    for _, variable in named(theirs):
        variable.assign(generator.normal(0, 0.7, tuple(variable.shape)))
    first = {name: variable.numpy() for name, variable in named(theirs)}
    theirs.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    wanted = theirs.fit(x, y, batch_size=8, epochs=STEPS, shuffle=False, verbose=0).history["loss"]
    with mu.pool():
        ours = mu.model([mu.mu_dense(units=5, name="a", activation="tanh", **ours_options(mu)),
                         mu.mu_dense(units=4, name="b")])
        mu.mu_model_build(ours, 1, [6])
        mu.write_weights(ours, first)
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.1), loss="mse")
        history = mu.mu_fit(model=ours, x=mu.tensor(x), y=mu.tensor(y), batch_size=8, epochs=STEPS, no_shuffle=True,
                            verbose=MU_VERBOSE_SILENT)
        losses = [mu.mu_history_at(history, "loss", epoch) for epoch in range(STEPS)]
        weights = mu.read_weights(ours)
    far = max(off(weights[name], variable.numpy()) for name, variable in named(theirs))
    loss_far = off(losses, wanted)
    report.check(f"{title}, {floatx}", f"weights within {far:.1e} after {3 * STEPS} steps, losses within {loss_far:.1e}",
                 max(far, loss_far) <= TOLERANCE[floatx])


def training_rows():
    for keras_name, name, options, ours in CONSTRAINTS:
        yield (f"fit with {name} {options}", {"kernel_constraint": getattr(tf.keras.constraints, keras_name)(**options)},
               lambda mu, name=name, options=options, ours=ours: {"kernel_constraint": constraint(mu, name, options, ours)})
    for constraint_name in ("non_neg", "max_norm", "unit_norm", "min_max_norm"):
        yield (f"fit with the constraint '{constraint_name}'", {"bias_constraint": constraint_name},
               lambda mu, word=constraint_name: {"bias_constraint": word})
    for title, ours, theirs in REGULARIZERS:
        yield (f"fit with {title} of the output", {"activity_regularizer": theirs},
               lambda mu, ours=ours: {"activity_regularizer": ours(mu)})
        yield (f"fit with {title} of the kernel", {"kernel_regularizer": theirs},
               lambda mu, ours=ours: {"kernel_regularizer": ours(mu)})


def compare_left_out(report, mu):
    """Regularizers and constraints from a configuration without their numbers get Keras's defaults."""
    modules = {"kernel_regularizer": (tf.keras.regularizers, ("L1", "L2", "L1L2", "OrthogonalRegularizer")),
               "kernel_constraint": (tf.keras.constraints, ("MaxNorm", "UnitNorm", "MinMaxNorm"))}
    for option, (module, classes) in modules.items():
        for name in classes:
            config = tf.keras.layers.serialize(tf.keras.layers.Dense(5, **{option: getattr(module, name)()}))
            config["config"][option]["config"] = {}
            ours = json.loads(mu.mu_layer_config(mu.mu_layer_from_config(json.dumps(config))).decode())
            read, wanted = (getattr(tf.keras.layers.deserialize(each), option).get_config() for each in (ours, config))
            report.check(f"{name} without numbers", f"{read}", read == wanted and len(wanted) > 0)


def compare_names(report, mu):
    """Every name that Keras takes for such an option, from the installed Keras."""
    modules = {"kernel_initializer": tf.keras.initializers, "kernel_regularizer": tf.keras.regularizers,
               "kernel_constraint": tf.keras.constraints}
    skipped = ("STFT", "Initializer", "Regularizer", "Constraint")
    wrong, n = [], 0
    for option, module in modules.items():
        source = sys.modules[module.get.__module__]
        for word in source.ALL_OBJECTS_DICT:
            if word.startswith(("STFT", "stft")) or word in skipped or word in ("initializer", "regularizer", "constraint"):
                continue
            n += 1
            try:
                with mu.pool():
                    mu.mu_dense(units=1, **{option: word})
            except muster.MusterError as error:
                wrong.append(f"{word}: {error}")
    report.check("names", f"{n} of Keras's names" + (f"; not taken: {'; '.join(wrong)}" if wrong else ""), not wrong)


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("weights")
    rows = [(compare_initializer, row, f"{row[1]} {row[2]}") for row in INITIALIZERS]
    rows += [(compare_constraint, row, f"{row[1]} {row[2]}") for row in CONSTRAINTS]
    rows += [(compare_training, row, row[0]) for row in training_rows()]
    for floatx in FLOATX:
        for compare, row, name in rows:
            if only in name and (floatx == "f32" or "orthogonal of" not in name):  # Keras's is of f32 only
                with report.guard(f"{name}, {floatx}"):
                    compare(report, mu, floatx, row)
    if only in "names":
        compare_names(report, mu)
    if only in "without numbers":
        with report.guard("without numbers"), mu.pool():
            compare_left_out(report, mu)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
