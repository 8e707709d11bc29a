# Defaults of layers, optimizers, losses and metrics in Keras and in Muster: every option that has a default is left out
# on both sides, so one that differs shows.
#
# Layers are compared by what they compute while training and after it, by the weights that training leaves (moving
# statistics), and by their first weights: constants exactly, random ones by range and spread; layers that draw numbers
# or take images alone by their configurations. Optimizers get gradients from 1e-7 to 1, so that an epsilon shows; losses
# and metrics probabilities that are 0 and 1. It must not give an option that has a default.
import json
import sys

import numpy as np
import tensorflow as tf

import muster
from report import Report

STEPS = 30
# Keras rounds its Python numbers to float32, also where it computes in float64, and takes powers of Adam's betas in the
# type of the weights, which in float32 makes its steps 7e-6 smaller than PyTorch's and Muster's.
TOLERANCE = {"f64": 1e-5, "f32": 1e-5}
FLOATX = {"f64": np.float64, "f32": np.float32}
MU_VERBOSE_SILENT = 1

# Keras's class, Muster's function, what has no default, the shape of a sample, whole numbers below (0: floats).
LAYERS = [
    ("Dense", "mu_dense", {"units": 40}, (30,), 0),
    ("Conv2D", "mu_conv2d", {"filters": 12, "kernel_size": 3}, (9, 8, 5), 0),
    ("MaxPooling2D", "mu_max_pool2d", {}, (7, 6, 3), 0),
    ("AveragePooling2D", "mu_average_pool2d", {"pool_size": 2}, (7, 6, 3), 0),
    ("BatchNormalization", "mu_batch_normalization", {}, (6,), 0),
    ("Embedding", "mu_embedding", {"input_dim": 50, "output_dim": 20}, (4,), 50),
    ("ReversibleEmbedding", "mu_reversible_embedding", {"input_dim": 50, "output_dim": 20}, (4,), 50),
    ("Conv1D", "mu_conv1d", {"filters": 12, "kernel_size": 3}, (9, 20), 0),
    ("DepthwiseConv2D", "mu_depthwise_conv2d", {"kernel_size": 3}, (9, 8, 40), 0),
    ("LeakyReLU", "mu_leaky_relu", {}, (6,), 0),
    ("ELU", "mu_elu", {}, (6,), 0),
    ("Softmax", "mu_softmax", {}, (6,), 0),
    ("GlobalMaxPooling2D", "mu_global_max_pool2d", {}, (7, 6, 3), 0),
    ("GlobalAveragePooling2D", "mu_global_average_pool2d", {}, (7, 6, 3), 0),
    ("GlobalAveragePooling1D", "mu_global_average_pool1d", {}, (7, 6), 0),
    ("UpSampling2D", "mu_up_sampling2d", {}, (4, 3, 2), 0),
    ("ZeroPadding2D", "mu_zero_padding2d", {}, (4, 3, 2), 0),
    ("RepeatVector", "mu_repeat_vector", {"n": 3}, (5,), 0),
    ("LayerNormalization", "mu_layer_normalization", {}, (6,), 0),
    ("RMSNormalization", "mu_rms_normalization", {}, (6,), 0),
    ("GroupNormalization", "mu_group_normalization", {}, (5, 4, 64), 0),
    ("Conv3D", "mu_conv3d", {"filters": 12, "kernel_size": 3}, (5, 4, 6, 3), 0),
    ("Conv1DTranspose", "mu_conv1d_transpose", {"filters": 12, "kernel_size": 3}, (9, 20), 0),
    ("Conv2DTranspose", "mu_conv2d_transpose", {"filters": 12, "kernel_size": 3}, (5, 4, 9), 0),
    ("Conv3DTranspose", "mu_conv3d_transpose", {"filters": 6, "kernel_size": 3}, (4, 3, 5, 3), 0),
    ("DepthwiseConv1D", "mu_depthwise_conv1d", {"kernel_size": 5}, (9, 60), 0),
    ("SeparableConv1D", "mu_separable_conv1d", {"filters": 30, "kernel_size": 5}, (9, 60), 0),
    ("SeparableConv2D", "mu_separable_conv2d", {"filters": 30, "kernel_size": 3}, (9, 8, 40), 0),
    ("MaxPooling1D", "mu_max_pool1d", {}, (7, 3), 0),
    ("AveragePooling1D", "mu_average_pool1d", {"pool_size": 2}, (7, 3), 0),
    ("MaxPooling3D", "mu_max_pool3d", {}, (5, 7, 4, 3), 0),
    ("AveragePooling3D", "mu_average_pool3d", {"pool_size": 2}, (5, 7, 4, 3), 0),
    ("GlobalMaxPooling1D", "mu_global_max_pool1d", {}, (7, 6), 0),
    ("GlobalMaxPooling3D", "mu_global_max_pool3d", {}, (5, 7, 6, 3), 0),
    ("GlobalAveragePooling3D", "mu_global_average_pool3d", {}, (5, 7, 6, 3), 0),
    ("AdaptiveMaxPooling2D", "mu_adaptive_max_pool2d", {"output_size": 3}, (7, 6, 3), 0),
    ("AdaptiveAveragePooling2D", "mu_adaptive_average_pool2d", {"output_size": 3}, (7, 6, 3), 0),
    ("UpSampling1D", "mu_up_sampling1d", {}, (4, 2), 0),
    ("UpSampling3D", "mu_up_sampling3d", {}, (4, 3, 5, 2), 0),
    ("ZeroPadding1D", "mu_zero_padding1d", {}, (4, 2), 0),
    ("ZeroPadding3D", "mu_zero_padding3d", {}, (4, 3, 5, 2), 0),
    ("Cropping1D", "mu_cropping1d", {}, (4, 2), 0),
    ("Cropping2D", "mu_cropping2d", {}, (4, 3, 2), 0),
    ("Cropping3D", "mu_cropping3d", {}, (4, 3, 5, 2), 0),
    ("ReLU", "mu_relu_layer", {}, (6,), 0),
    ("PReLU", "mu_prelu", {}, (4, 6), 0),
    ("Identity", "mu_identity_layer", {}, (6,), 0),
    ("UnitNormalization", "mu_unit_normalization", {}, (6,), 0),
    ("ConvLSTM1D", "mu_conv_lstm1d", {"filters": 12, "kernel_size": 3}, (5, 9, 20), 0),
    ("ConvLSTM2D", "mu_conv_lstm2d", {"filters": 8, "kernel_size": 3}, (3, 5, 4, 6), 0),
    ("ConvLSTM3D", "mu_conv_lstm3d", {"filters": 4, "kernel_size": 3}, (2, 4, 3, 5, 3), 0),
]
# Layers whose results are random, or need other numbers than those above: their configurations are compared. Keras's
# class, Muster's function, what has no default.
SPAN = {"factor": (0.25, 0.5)}
CONFIGURED = [
    ("RandomHue", "mu_random_hue", SPAN), ("RandomSaturation", "mu_random_saturation", SPAN),
    ("RandomColorJitter", "mu_random_color_jitter", {}), ("RandomPosterization", "mu_random_posterization", {"factor": (3, 5)}),
    ("RandomSharpness", "mu_random_sharpness", SPAN), ("RandomGaussianBlur", "mu_random_gaussian_blur", {}),
    ("RandomErasing", "mu_random_erasing", {}), ("RandomPerspective", "mu_random_perspective", {}),
    ("Equalization", "mu_equalization", {}), ("AutoContrast", "mu_auto_contrast", {}), ("Solarization", "mu_solarization", {}),
    ("RandomInvert", "mu_random_invert", {}), ("RandomColorDegeneration", "mu_random_color_degeneration", SPAN),
    ("RandomGrayscale", "mu_random_grayscale", {}), ("RandomShear", "mu_random_shear", {}),
    ("RandomBrightness", "mu_random_brightness", SPAN), ("RandomContrast", "mu_random_contrast", SPAN),
    ("RandomRotation", "mu_random_rotation", SPAN), ("RandomZoom", "mu_random_zoom", {"height_factor": (-0.25, 0.5)}),
    ("RandomTranslation", "mu_random_translation", {"height_factor": (-0.25, 0.5), "width_factor": (-0.5, 0.25)}),
    ("RandAugment", "mu_rand_augment", {}), ("MixUp", "mu_mix_up", {}), ("CutMix", "mu_cut_mix", {}),
    ("RandomFlip", "mu_random_flip", {}), ("RandomCrop", "mu_random_crop", {"height": 3, "width": 4}),
    ("CenterCrop", "mu_center_crop", {"height": 3, "width": 4}), ("Resizing", "mu_resizing", {"height": 3, "width": 4}),
    ("Dropout", "mu_dropout", {"rate": 0.5}), ("GaussianNoise", "mu_gaussian_noise", {"stddev": 0.5}),
]
# TensorFlow has no pooling of volumes in f64.
F32_ONLY = ("mu_max_pool3d", "mu_average_pool3d", "mu_adaptive_max_pool3d", "mu_adaptive_average_pool3d",
            "mu_random_rotation", "mu_random_zoom", "mu_random_translation", "mu_random_shear", "mu_random_crop", "mu_random_perspective")
OPTIMIZERS = [("SGD", "mu_sgd", {}), ("SGD", "mu_sgd", {"momentum": 0.9}), ("Adam", "mu_adam", {})]


def set_floatx(mu, floatx):
    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx(np.dtype(FLOATX[floatx]).name)
    mu.mu_set_floatx(muster.DTYPES[np.dtype(FLOATX[floatx])])


def compare_parts(report, mu, floatx, parts, only):
    """Runs those of the parts (function, argument, name) whose name has the text `only`, with this type of floats."""
    for compare, row, name in parts:
        if only in name:
            with report.guard(f"{name}, {floatx}"):
                set_floatx(mu, floatx)
                compare(report, mu, floatx, row)


def named(keras_model):
    """The weights by their paths within the model. A Sequential's name begins those of its layers, a functional model's not."""
    return [(variable.path.removeprefix(f"{keras_model.name}/"), variable) for variable in keras_model.weights]


def off(ours, theirs):
    """The largest difference, relative to the largest finite number; equal infinities do not differ."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        return np.inf
    apart = np.abs(np.subtract(ours, theirs, out=np.zeros_like(theirs), where=ours != theirs))
    return float(apart.max() / max(np.abs(theirs[np.isfinite(theirs)]).max(initial=0), 1e-300))


def random_model(model):
    """Weights other than the first ones, by name, in the model's own type."""
    generator = np.random.default_rng(3)
    for _, variable in named(model):
        variable.assign(generator.uniform(0.5, 1.5, tuple(variable.shape)).astype(variable.dtype))
    return {name: np.asarray(variable.numpy()) for name, variable in named(model)}


# ---- Layers -------------------------------------------------------------------------------------------

def first_weights_alike(ours, theirs):
    """Constants are equal; random weights have the same bounds and spread within what chance makes of hundreds.

    Those of the recurrent kernels, which are orthogonal, have no bound.
    """
    for name, theirs_value in theirs.items():
        value = ours[name]
        if theirs_value.std() == 0:
            if not np.array_equal(value, theirs_value):
                return f"{name} starts with {value.flat[0]}, Keras's with {theirs_value.flat[0]}"
        elif not ((name.endswith("recurrent_kernel") or abs(np.abs(value).max() / np.abs(theirs_value).max() - 1) < 0.05)
                  and abs(value.std() / theirs_value.std() - 1) < 0.15):
            return f"{name} is within {np.abs(value).max():.4f} and spreads {value.std():.4f}, Keras's " \
                   f"{np.abs(theirs_value).max():.4f} and {theirs_value.std():.4f}"
    return ""


def compare_layer(report, mu, floatx, row):
    keras_name, name, options, shape, whole = row
    set_floatx(mu, floatx)
    generator = np.random.default_rng(5)
    x = generator.integers(0, whole, (16, *shape)).astype(np.int32) if whole else \
        generator.normal(1, 2, (16, *shape)).astype(FLOATX[floatx])
    theirs = tf.keras.Sequential([tf.keras.Input(shape, dtype="int32" if whole else None),
                                  getattr(tf.keras.layers, keras_name)(**options)])
    with mu.pool():
        ours = mu.model([getattr(mu, name)(**options)])
        mu.mu_model_build(ours, len(shape), list(shape))
        first = {key: variable.numpy() for key, variable in named(theirs)}
        wrong = first_weights_alike(mu.read_weights(ours), first) if first else ""
        if first:
            mu.write_weights(ours, random_model(theirs))
        results = []
        for training in (True, True, False):
            result = mu.array(mu.mu_call(model=ours, x=mu.tensor(x), training=training))
            results.append(off(result, theirs(x, training=training).numpy()))
        after = mu.read_weights(ours) if first else {}
        moved = max([off(after[key], variable.numpy()) for key, variable in named(theirs)], default=0.0)
    text = wrong or f"results within {max(results):.1e}, weights after it within {moved:.1e}"
    report.check(f"{name}, {floatx}", text, not wrong and max(*results, moved) <= TOLERANCE[floatx])


def compare_configuration(report, mu, _, row):
    """Muster's configuration, read by Keras, says what Keras's own defaults say."""
    keras_name, name, options = row
    layer_class = getattr(tf.keras.layers, keras_name)
    theirs = json.loads(json.dumps(layer_class(**options).get_config()))
    with mu.pool():
        text = mu.mu_layer_config(getattr(mu, name)(**options))
    read = json.loads(json.dumps(layer_class.from_config(json.loads(text)["config"]).get_config()))
    different = [f"{key} is {read.get(key)}, Keras's {value}" for key, value in theirs.items()
                 if key not in ("name", "seed") and read.get(key) != value]
    report.check(f"{name}, configuration", "; ".join(different) or f"{len(theirs)} options alike", not different)


# ---- Optimizers ---------------------------------------------------------------------------------------

def compare_optimizer(report, mu, floatx, row):
    """The gradient of sum(x w c) by w is the product of x and c; x has every size from 1e-7 to 1."""
    keras_name, name, options = row
    set_floatx(mu, floatx)
    dtype = FLOATX[floatx]
    x = (10.0 ** -np.arange(8)).reshape(1, 8).astype(dtype)
    factors = np.random.default_rng(7).normal(size=(STEPS, 1, 3)).astype(dtype)
    theirs = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(3, use_bias=False)])
    theirs.weights[0].assign(np.zeros((8, 3), dtype))
    optimizer = getattr(tf.keras.optimizers, keras_name)(**options)
    for factor in factors:
        optimizer.apply_gradients([(tf.constant(x.T @ factor), theirs.weights[0])])
    with mu.pool():
        ours = mu.model([mu.mu_dense(units=3, no_bias=True)])
        mu.mu_model_build(ours, 1, [8])
        mu.write_weights(ours, {"dense/kernel": np.zeros((8, 3), dtype)})
        our_optimizer = getattr(mu, name)(**options)

        def step(batch):
            tape = mu.mu_tape_open()
            y = mu.mu_call(model=ours, x=mu.mu_at(batch, 0), training=True)
            loss = mu.mu_reduce_sum(mu.mu_multiply(y, mu.mu_at(batch, 1)), muster.ALL_AXES)
            gradients = mu.mu_gradients(tape, loss, mu.mu_trainable_variables(ours))
            mu.mu_tape_close(tape)
            mu.mu_apply_gradients(optimizer=our_optimizer, gradients=gradients)
            return mu.mu_of(loss)

        function, _callback = mu.function(step)
        for factor in factors:
            mu.mu_run(mu.strategy, function, mu.values([mu.tensor(x), mu.tensor(factor)]))
        weights = mu.read_weights(ours)["dense/kernel"]
    rows = [off(weights[i], theirs.weights[0].numpy()[i]) for i in range(8)]
    given = "".join(f", {key} {value}" for key, value in options.items())
    report.check(f"{name}{given}, {floatx}", f"weights within {max(rows):.1e} after {STEPS} steps",
                 max(rows) <= TOLERANCE[floatx])


# ---- Losses and metrics -------------------------------------------------------------------------------

def probabilities(generator, shape, dtype):
    """Rows that add up to 1; the first two are certain, one of them wrongly."""
    p = generator.uniform(0.05, 1, shape)
    p /= p.sum(-1, keepdims=True)
    p[0], p[1] = np.eye(shape[-1])[0], np.eye(shape[-1])[1]
    return p.astype(dtype)


def loss_cases(dtype):
    generator = np.random.default_rng(9)
    classes = np.array([0, 2, 1, 0, 2, 1, 1, 0, 2, 1], np.int32)
    p, column = probabilities(generator, (10, 3), dtype), generator.uniform(0, 1, (10, 1)).astype(dtype)
    column[3] = 0.5
    sigmoid = generator.integers(0, 2, 10).astype(dtype)
    hot = np.eye(3, dtype=dtype)[classes]
    return [("sparse classes", "sparse_categorical_crossentropy", classes, p),
            ("a column of classes", "sparse_categorical_crossentropy", classes[:, None], p),
            ("labels of one column", "mean_squared_error", sigmoid, column),
            ("a column of labels", "mean_squared_error", sigmoid[:, None], column),
            ("one-hot labels", "mean_squared_error", hot, p)]


def compare_loss(report, mu, floatx, case):
    """Loss and "accuracy" of a model that hands on what it is given."""
    title, loss, y, p = case
    set_floatx(mu, floatx)
    theirs = tf.keras.Sequential([tf.keras.Input(p.shape[1:]), tf.keras.layers.Flatten()])
    theirs.compile(loss=loss, metrics=["accuracy"])
    wanted = theirs.evaluate(p, y, verbose=0, return_dict=True)
    with mu.pool():
        ours = mu.model([mu.mu_flatten()])
        mu.mu_compile(model=ours, loss=getattr(mu, f"mu_{loss}_loss")(), metrics=mu.mu_accuracy())
        history = mu.mu_evaluate(model=ours, x=mu.values([mu.tensor(p), mu.tensor(y)]), verbose=MU_VERBOSE_SILENT)
        seen = {name: mu.mu_history_last(history, name) for name in wanted}
    far = {name: off(seen[name], wanted[name]) for name in wanted}
    report.check(f"{loss}, {title}, {floatx}", ", ".join(f"{name} within {value:.1e}" for name, value in far.items()),
                 max(far.values()) <= TOLERANCE[floatx])


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("defaults")
    for floatx in FLOATX:
        parts = [(compare_layer, row, row[1]) for row in LAYERS] + [(compare_optimizer, row, row[1]) for row in OPTIMIZERS]
        parts += [(compare_loss, case, case[1]) for case in loss_cases(FLOATX[floatx])]
        for compare, row, name in parts:
            if only in name and (floatx == "f32" or name not in F32_ONLY):
                with report.guard(f"{name}, {floatx}"):
                    compare(report, mu, floatx, row)
    for row in CONFIGURED:
        if only in row[1]:
            with report.guard(f"{row[1]}, configuration"):
                compare_configuration(report, mu, "f32", row)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
