# Mixed precision in Keras and in Muster: layers and training under "mixed_bfloat16" and "mixed_float16".
#
# Both get the same input and weights (float32). Half types round every operation, and the two sides round in other places
# (sums in another order, a fused bias), so results are compared in units of the type's rounding at the largest number:
# LAYER_UNITS of them in one layer, and one for each of STEPS steps of training, whose gradients are rounded. The scale of
# the loss is compared bit for bit. Which kernels TensorFlow has for half types depends on the processor, and some of them
# round sums as they grow: 12 steps in bfloat16 without oneDNN's end 28 units from those with them, and 2.21's einsum of
# float16 is wrong on a processor with AVX512-FP16 (by 4.5 where numbers are below 5). So where the two are further apart,
# Muster has to be within the same bound of Keras in float32, whose rounding is nothing beside a half type's.
# It must not compare random layers in training, which draw other numbers in half types than Keras does.
import functools
import json
import sys

import ml_dtypes
import numpy as np
import tensorflow as tf

import layers
import muster
from defaults import named, off
from report import Report

POLICIES = {"mixed_bfloat16": ml_dtypes.bfloat16, "mixed_float16": np.float16, "float32": np.float32, "float64": np.float64}
MIXED = ("mixed_bfloat16", "mixed_float16")
LAYER_UNITS, STEPS = 4, 12
MU_VERBOSE_SILENT = 1
# TensorFlow has no kernel for these in the half types.
NO_KERNEL = {"mixed_float16": ("MaxPooling3D", "AveragePooling3D", "AdaptiveMaxPooling3D", "AdaptiveAveragePooling3D"),
             "mixed_bfloat16": ()}
NO_BINCOUNT = ("multi_hot", "count")  # of Discretization
# The size that Keras's CenterCrop has to enlarge an image for makes its output float32, whatever its policy says.
TYPE_BY_CHANCE = ("CenterCrop",)
# Keras computes where a pixel comes from in the half type, and so takes other pixels; here that is done in float32.
MOVES_PIXELS = ("RandomRotation", "RandomZoom", "RandomTranslation", "RandomShear")
# These round seven operations one after the other, and a dozen.
UNITS = {"AutoContrast": 8, "RandomColorJitter": 8, "RandomHue": 16}
SEQUENCES = [
    ("Dense", "mu_dense", {"units": 5, "activation": "gelu"}, {}, (7,)),
    ("Embedding", "mu_embedding", {"input_dim": 9, "output_dim": 5}, {}, (4,), 9),
    ("Flatten", "mu_flatten", {}, {}, (4, 3)),
    ("LSTM", "mu_lstm", {"units": 4, "return_sequences": True}, {}, (6, 3)),
    ("GRU", "mu_gru", {"units": 4}, {}, (6, 3)),
    ("SimpleRNN", "mu_simple_rnn", {"units": 4}, {}, (6, 3)),
]


def set_policy(mu, policy):
    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx("float32")
    mu.mu_set_floatx(muster.DTYPES[np.dtype(np.float32)])
    tf.keras.config.set_dtype_policy(policy)
    mu.mu_set_dtype_policy(policy)


def unit(policy):
    """The rounding of the type that is computed in."""
    return float(ml_dtypes.finfo(POLICIES[policy]).eps) / 2


def compare_units(ours, keras, limit, policy, in_float32):
    """Arrays of either side in units: how far they are apart at most, and in words. Beyond the limit Keras in float32 counts."""
    def units(some, others):
        return float(np.max([off(one, other) for one, other in zip(some, others)])) / unit(policy)  # NaN stays NaN
    far = units(ours, keras)
    if far <= limit:
        return far, f"within {far:.1f} units"
    exact = in_float32()
    return (units(ours, exact), f"{far:.1f} units apart, but within {units(ours, exact):.1f} of Keras in float32, from which Keras is "
            f"{units(keras, exact):.1f}")


def random_weights(layer):
    """Gives a layer other weights than the first ones; returns them by name."""
    generator, weights = np.random.default_rng(3), {}
    for variable in layer.weights:
        if variable.dtype == "float32":
            variable.assign(generator.uniform(0.25, 0.75, tuple(variable.shape)))
        weights[f"{layer.name}/{variable.path.split(layer.name + '/', 1)[1]}"] = np.asarray(variable.numpy())
    return weights


def has_kernel(policy, row):
    return row[0] not in NO_KERNEL[policy] + MOVES_PIXELS and (row[0] != "Discretization" or row[2]["output_mode"] not in NO_BINCOUNT)


def in_float32(row, theirs, x, training):
    """What the layer of Keras gives under the policy float32, with the same weights."""
    tf.keras.config.set_dtype_policy("float32")
    layer = getattr(tf.keras.layers, row[0])(**row[2])
    plain = tf.keras.Sequential([tf.keras.Input(x.shape[1:], dtype=x.dtype.name), layer])
    plain.set_weights(theirs.get_weights())
    return plain(x, training=training).numpy()


def compare_layer(report, mu, policy, row):
    """The output and its type; the policy in the JSON of either side is read by the other."""
    keras_name, name, options, different, shape, whole = (*row, 0)[:6]
    set_policy(mu, policy)
    generator = np.random.default_rng(5)
    x = generator.integers(0, whole, (6, *shape)).astype(np.int32) if whole else \
        generator.normal(0, 1, (6, *shape)).astype(np.float32)
    layer, training = getattr(tf.keras.layers, keras_name)(**options), name in layers.NO_CHOICE
    theirs = tf.keras.Sequential([tf.keras.Input(shape, dtype=x.dtype.name), layer])
    weights = random_weights(layer)
    layers.settle(layer)
    wanted = theirs(x, training=training).numpy()
    with mu.pool():
        own = getattr(mu, name)
        ours = mu.model([own(**layers.ours_of(options, different))])
        seen = layers.compute(mu, ours, weights, x, training)
        written = json.loads(mu.mu_layer_config(ours))["config"]["layers"][-1]
        read = tf.keras.layers.deserialize(written).dtype_policy.name
        mu.mu_set_dtype_policy("float32")
        tf.keras.config.set_dtype_policy("float32")
        text = tf.keras.layers.serialize(layer)
        again = mu.mu_layer_dtype_policy(mu.mu_layer_from_config(json.dumps(text))).decode()
        # Some of Keras's layers write "float32" whatever they have, or have an integer type.
        expected = tf.keras.layers.deserialize(text).dtype_policy.name
    policies = read == policy and again == (expected if expected in POLICIES else "float32")
    types, limit = keras_name in TYPE_BY_CHANCE or seen.dtype == wanted.dtype, UNITS.get(keras_name, LAYER_UNITS)
    far, words = compare_units([seen], [wanted], limit, policy, lambda: [in_float32(row, theirs, x, training)])
    report.check(f"{name}{''.join(f', {key} {value}' for key, value in options.items())}, {policy}",
                 f"{seen.dtype} (Keras: {wanted.dtype}) {words}, read by Keras as {read}, from Keras as "
                 f"{again}", types and far <= limit and policies)


# ---- Training -----------------------------------------------------------------------------------------

def keras_model():
    """A convolutional model; its last layer computes in float32, as Keras's guide says."""
    kinds = tf.keras.layers
    model = tf.keras.Sequential([
        tf.keras.Input((8, 8, 2)), kinds.Conv2D(4, 3, use_bias=False, name="a"), kinds.BatchNormalization(name="b"),
        kinds.Flatten(), kinds.Dense(6, activation="tanh", name="c"), kinds.LayerNormalization(name="d"),
        kinds.Dense(3, dtype="float32", name="e")])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.25, momentum=0.5),
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def own_model(mu, weights):
    ours = mu.model([mu.mu_conv2d(filters=4, kernel_size=3, no_bias=True, name="a"), mu.mu_batch_normalization(name="b"),
                     mu.mu_flatten(), mu.mu_dense(units=6, activation="tanh", name="c"), mu.mu_layer_normalization(name="d"),
                     mu.mu_dense(units=3, dtype="float32", name="e")])
    mu.mu_model_build(ours, 3, [8, 8, 2])
    mu.write_weights(ours, weights)
    mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.25, momentum=0.5),
                  loss=mu.mu_sparse_categorical_crossentropy_loss(from_logits=True), metrics="accuracy")
    return ours


def weights_of(model):
    return {name: variable.numpy() for name, variable in named(model)}


def fit_keras(model, x, y):
    """The last loss and the weights."""
    history = model.fit(x, y, batch_size=8, shuffle=False, verbose=0).history
    return [history["loss"][-1]], weights_of(model)


def fit_keras_in_float32(weights, x, y):
    tf.keras.config.set_dtype_policy("float32")
    model = keras_model()
    model.set_weights(weights)
    return fit_keras(model, x, y)


def compare_training(report, mu, policy, _):
    """fit with the policy of the program, and a last layer of a policy of its own."""
    set_policy(mu, policy)
    tf.keras.utils.set_random_seed(3)
    generator = np.random.default_rng(6)
    x = generator.normal(size=(8 * STEPS, 8, 8, 2)).astype(np.float32)
    y = generator.integers(0, 3, 8 * STEPS)
    theirs = keras_model()
    start, before = theirs.get_weights(), weights_of(theirs)
    keras_loss, keras_weights = fit_keras(theirs, x, y)
    with mu.pool():
        ours = own_model(mu, before)
        history = mu.mu_fit(model=ours, x=mu.tensor(x), y=mu.tensor(y), batch_size=8, no_shuffle=True, verbose=MU_VERBOSE_SILENT)
        loss, weights = [mu.mu_history_last(history, "loss")], mu.read_weights(ours)
    def in_order(all_weights):
        return [all_weights[name] for name in before]
    exact = functools.cache(lambda: fit_keras_in_float32(start, x, y))
    loss_far, loss_words = compare_units(loss, keras_loss, STEPS, policy, lambda: exact()[0])
    far, words = compare_units(in_order(weights), in_order(keras_weights), STEPS, policy, lambda: in_order(exact()[1]))
    moved = min(off(before[name], keras_weights[name]) for name in before) / unit(policy)
    types = {str(value.dtype) for value in weights.values()}
    report.check(f"fit, {STEPS} steps, {policy}", f"loss {loss_words}, weights ({', '.join(types)}) {words}, which moved by "
                 f"{moved:.0f} or more", np.max([loss_far, far]) <= STEPS < moved and types == {"float32"})


def compare_scale(report, mu, policy, _):
    """compile's loss scale: batches that overflow halve it and change no weight; it doubles after 2000 good steps."""
    set_policy(mu, "mixed_float16")
    x = np.full((1, 1), 1, np.float32)
    batches = [np.full((1, 1), 40000 if i in (0, 3, 4) else 1, np.float32) for i in range(8)]
    with mu.pool():
        theirs = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="ones")])
        theirs.compile(optimizer=tf.keras.optimizers.SGD(0.25), loss="mse")
        ours = mu.model([mu.mu_dense(units=1, kernel_initializer="ones")])
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.25), loss="mse")
        optimizer = mu.mu_model_optimizer(ours)
        seen, wanted = [], []
        for batch in batches:
            theirs.train_on_batch(batch, x)
            mu.mu_train_on_batch(model=ours, x=mu.tensor(batch), y=mu.tensor(x))
            state = mu.read_state(optimizer)
            scale = next(value for name, value in state.items() if name.endswith("dynamic_scale"))
            seen.append((float(scale), *(float(value.squeeze()) for value in mu.read_weights(ours).values())))
            wanted.append((float(theirs.optimizer.dynamic_scale.numpy()),
                           *(float(np.squeeze(variable.numpy())) for variable in theirs.trainable_variables)))
    course = " ".join(f"2^{np.log2(row[0]):.0f}" for row in seen)
    scales = [row[0] for row in seen] == [row[0] for row in wanted]
    far = off([row[1:] for row in seen], [row[1:] for row in wanted]) / unit("mixed_float16")
    report.check("compile's loss scale, mixed_float16", f"{course}, {'bit for bit' if scales else 'Keras: ' + str(wanted)}; "
                 f"weights within {far:.1f} units", scales and far <= STEPS)


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("precision")
    for policy in MIXED:
        for row in layers.LAYERS + SEQUENCES:
            if only in row[1] and has_kernel(policy, row):
                with report.guard(f"{row[1]}, {policy}"):
                    compare_layer(report, mu, policy, row)
        for compare, name in ((compare_training, "training"), (compare_scale, "scale")):
            if only in name and (name == "training" or policy == "mixed_float16"):
                with report.guard(f"{name}, {policy}"):
                    compare(report, mu, policy, None)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
