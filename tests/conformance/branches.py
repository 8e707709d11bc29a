# Trains each layer class that has weights, beyond those of training.py and sequences.py, for 200 steps in TensorFlow and in
# Muster: from the same weights on the same batches, in f64 and f32, by the bounds of training.py.
#
# All layers are branches of one functional model, each with an input of its kind, a head and a loss of its own, so that
# one step trains them all and no branch sees another: the gradient of the sum is that of each branch alone.
import sys

import numpy as np
import tensorflow as tf

import muster
import training
from report import Report
from training import FLOATX, STEPS, nudged

RATE, BATCH, ROWS = 2.0 ** -5, 8, 80
LINE, IMAGE, VOLUME, LINES, VOLUMES, TOKENS = (6, 4), (5, 4, 3), (3, 4, 3, 2), (3, 6, 2), (2, 3, 3, 2, 2), (5,)
TOKEN_NUMBERS = 9

# Name, Keras's class, Muster's function, Keras's options, those that Muster writes differently, the shape of a sample, and
# how many times the input is given (attention). Heads have 4 elements: Keras rounds 1 / sqrt(key_dim) to f32.
EPSILON = {"epsilon": 2.0 ** -10}
BRANCHES = [
    ("conv1d", "Conv1D", "mu_conv1d", {"filters": 3, "kernel_size": 3, "activation": "tanh"}, {}, LINE, 1),
    ("conv3d", "Conv3D", "mu_conv3d", {"filters": 3, "kernel_size": 2, "activation": "tanh"}, {}, VOLUME, 1),
    ("conv1d_transpose", "Conv1DTranspose", "mu_conv1d_transpose", {"filters": 3, "kernel_size": 3, "strides": 2}, {}, LINE, 1),
    ("conv2d_transpose", "Conv2DTranspose", "mu_conv2d_transpose", {"filters": 3, "kernel_size": 2, "strides": 2}, {}, IMAGE, 1),
    ("conv3d_transpose", "Conv3DTranspose", "mu_conv3d_transpose", {"filters": 2, "kernel_size": 2}, {}, VOLUME, 1),
    ("depthwise1d", "DepthwiseConv1D", "mu_depthwise_conv1d", {"kernel_size": 3, "depth_multiplier": 2}, {}, LINE, 1),
    ("depthwise2d", "DepthwiseConv2D", "mu_depthwise_conv2d", {"kernel_size": 2, "activation": "tanh"}, {}, IMAGE, 1),
    ("separable1d", "SeparableConv1D", "mu_separable_conv1d", {"filters": 3, "kernel_size": 3}, {}, LINE, 1),
    ("separable2d", "SeparableConv2D", "mu_separable_conv2d", {"filters": 3, "kernel_size": 2}, {}, IMAGE, 1),
    ("einsum", "EinsumDense", "mu_einsum_dense", {"equation": "abc,cd->abd", "output_shape": (6, 5), "bias_axes": "d",
                                                  "activation": "tanh"}, {"output_shape": [6, 5, 0, 0, 0, 0, 0]}, LINE, 1),
    ("reversible", "ReversibleEmbedding", "mu_reversible_embedding", {"input_dim": TOKEN_NUMBERS, "output_dim": 4}, {}, TOKENS, 1),
    ("prelu", "PReLU", "mu_prelu", {"shared_axes": [1]}, {"shared_axes": [1, 0, 0, 0, 0, 0, 0]}, LINE, 1),
    ("batch_axis", "BatchNormalization", "mu_batch_normalization", {"axis": 1, "momentum": 0.875, **EPSILON}, {}, IMAGE, 1),
    ("layer_norm", "LayerNormalization", "mu_layer_normalization", EPSILON, {}, LINE, 1),
    ("layer_axes", "LayerNormalization", "mu_layer_normalization", {"axis": [1, 2], **EPSILON},
     {"axis": None, "axes": [1, 2], "n_axes": 2}, IMAGE, 1),
    ("rms", "RMSNormalization", "mu_rms_normalization", EPSILON, {}, LINE, 1),
    ("group_norm", "GroupNormalization", "mu_group_normalization", {"groups": 2, **EPSILON}, {}, LINE, 1),
    ("group_axis", "GroupNormalization", "mu_group_normalization", {"groups": 5, "axis": 1, **EPSILON}, {}, IMAGE, 1),
    ("conv_lstm1d", "ConvLSTM1D", "mu_conv_lstm1d", {"filters": 2, "kernel_size": 3}, {}, LINES, 1),
    ("conv_lstm2d", "ConvLSTM2D", "mu_conv_lstm2d", {"filters": 2, "kernel_size": 2}, {}, VOLUME, 1),
    ("conv_lstm3d", "ConvLSTM3D", "mu_conv_lstm3d", {"filters": 2, "kernel_size": 2}, {}, VOLUMES, 1),
    ("heads", "MultiHeadAttention", "mu_multi_head_attention", {"num_heads": 2, "key_dim": 4}, {}, LINE, 2),
    ("grouped_heads", "GroupQueryAttention", "mu_grouped_query_attention",
     {"head_dim": 4, "num_query_heads": 4, "num_key_value_heads": 2}, {}, LINE, 2),
    ("dots", "Attention", "mu_attention", {"use_scale": True}, {}, LINE, 2),
    ("additive", "AdditiveAttention", "mu_additive_attention", {}, {}, LINE, 2),
]
KINDS = list(dict.fromkeys(branch[5] for branch in BRANCHES))


def data_of(dtype):
    """An input of each kind and the labels of each branch, for all rows."""
    generator = np.random.default_rng(21)
    x = [generator.integers(0, TOKEN_NUMBERS, (ROWS, *kind)).astype(np.int32) if kind is TOKENS
         else generator.normal(size=(ROWS, *kind)).astype(dtype) for kind in KINDS]
    return x, [generator.normal(size=(ROWS, 2)).astype(dtype) for _ in BRANCHES]


def batch_of(arrays, step):
    start = step * BATCH % ROWS
    return [array[start:start + BATCH] for array in arrays]


# ---- TensorFlow ---------------------------------------------------------------------------------------

def keras_model():
    layers = tf.keras.layers
    inputs = {kind: tf.keras.Input(kind, dtype="int32" if kind is TOKENS else None) for kind in KINDS}
    outputs = []
    for name, keras_class, _, options, _, kind, times in BRANCHES:
        made, x = getattr(layers, keras_class)(**options, name=name), inputs[kind]
        y = made(x) if times == 1 else made(x, x) if "head" in name else made([x, x])
        outputs.append(layers.Dense(2, name=f"{name}_head")(layers.Flatten()(y)))
    return tf.keras.Model(list(inputs.values()), outputs)


def first_weights(model):
    """Small numbers for all weights, and positive ones for variances."""
    generator = np.random.default_rng(22)
    return {variable.path: generator.uniform(0.5, 1.5, variable.shape) if variable.path.endswith("variance")
            else generator.uniform(-0.5, 0.5, variable.shape) for variable in model.weights}


def train_tensorflow(floatx, nudge=None):
    """Losses [step, branch], the last weights, and the first ones."""
    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx(np.dtype(FLOATX[floatx]).name)
    model = keras_model()
    first = first_weights(model)
    if nudge is not None:
        first = nudged(first, nudge)
    for variable in model.weights:
        variable.assign(first[variable.path].astype(FLOATX[floatx]))
    x, y = data_of(FLOATX[floatx])

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            losses = [tf.reduce_mean(tf.square(output - label)) for output, label in zip(model(x, training=True), y)]
            total = tf.add_n(losses)
        for variable, gradient in zip(model.trainable_variables, tape.gradient(total, model.trainable_variables)):
            variable.assign_sub(RATE * tf.convert_to_tensor(gradient))
        return tf.stack(losses)

    losses = [step(batch_of(x, i), batch_of(y, i)).numpy() for i in range(STEPS)]
    return np.array(losses), {variable.path: variable.numpy() for variable in model.weights}, first


# ---- Muster -------------------------------------------------------------------------------------------

def muster_model(mu):
    whole = mu.declared.constants["MU_I32"]
    inputs = {kind: mu.mu_input(shape=list(kind), **({"dtype": whole} if kind is TOKENS else {})) for kind in KINDS}
    outputs = []
    for name, _, function, options, different, kind, times in BRANCHES:
        given = {key: value for key, value in options.items() if key not in different} | \
                {key: value for key, value in different.items() if value is not None}
        made, x = getattr(mu, function)(**given, name=name), inputs[kind]
        y = mu.mu_call(model=made, inputs=mu.values([x] * times)) if times > 1 else mu.mu_call(model=made, x=x)
        outputs.append(mu.mu_call(model=mu.mu_dense(units=2, name=f"{name}_head"), x=mu.mu_call(model=mu.mu_flatten(), x=y)))
    return mu.mu_model_new(inputs=mu.values(list(inputs.values())), outputs=mu.values(outputs))


def train_muster(mu, floatx, first):
    mu.mu_set_floatx(muster.DTYPES[np.dtype(FLOATX[floatx])])
    x, y = data_of(FLOATX[floatx])
    with mu.pool():
        model = muster_model(mu)
        mu.write_weights(model, {name: value.astype(FLOATX[floatx]) for name, value in first.items()})
        mu.mu_compile(model=model, optimizer=mu.mu_sgd(learning_rate=RATE),
                      loss=mu.mu_items_of([*(mu.mu_mean_squared_error_loss() for _ in BRANCHES), mu.end]))
        losses = []
        for i in range(STEPS):
            with mu.pool():
                batch = mu.mu_list_of(2, [mu.values([mu.tensor(part) for part in batch_of(arrays, i)]) for arrays in (x, y)])
                history = mu.mu_train_on_batch(model=model, x=batch)
                losses.append([mu.mu_history_last(history, f"{branch[0]}_head_loss") for branch in BRANCHES])
        return np.array(losses), mu.read_weights(model)


# ---- Comparing ----------------------------------------------------------------------------------------

def of_branch(run, i):
    """The losses and weights of one branch."""
    losses, weights = run[:2]
    name = BRANCHES[i][0]
    return losses[:, i], {path: value for path, value in weights.items() if path.split("/")[0] in (name, f"{name}_head")}


def main(library, only=""):
    mu = muster.Library(library)
    report, theirs, ours, again = Report("branches"), {}, {}, {}

    def nudged_run(seed):
        if seed not in again:
            again[seed] = train_tensorflow("f32", seed)
        return again[seed]

    with report.guard("all branches"):
        for floatx in FLOATX:
            *theirs[floatx], first = train_tensorflow(floatx)
            ours[floatx] = train_muster(mu, floatx, first)
        for i, branch in enumerate(BRANCHES):
            if only in branch[0]:
                training.check(report, f"{branch[1]}, {branch[0]}", {key: of_branch(run, i) for key, run in theirs.items()},
                               {key: of_branch(run, i) for key, run in ours.items()},
                               lambda seed, i=i: of_branch(nudged_run(seed), i))
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
