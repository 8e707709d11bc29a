# Trains the same models from the same weights on the same data in TensorFlow and in Muster, step by step, and compares
# losses and weights; on one device and on several replicas.
#
# A case names a model, an optimizer, a global batch and a number of replicas. TensorFlow's side is a Keras model in a
# custom loop; Muster's is mu_fit (losses by its callback) or a traced step of our own (path "step"). Where the batches
# are even the oracle is MirroredStrategy on as many logical CPUs, where they are not it is TensorFlow on one device. For
# the CNN it always is, because that takes longest and replicas make no difference to its layers: any number equals one.
# It must not know how the library gets its results; what may differ and by how much stands in docs/conformance.md.
import ctypes
import dataclasses
import functools
import itertools
import sys

import numpy as np

import muster
from report import Report

sys.path.insert(0, str(muster.ROOT / "bench" / "train"))
from rival_common import read_idx  # noqa: E402  (the folder is known only now)

STEPS, FIRST_STEPS = 200, 15
TOLERANCE_F64, TOLERANCE_FIRST_F32 = 1e-9, 1e-5
MAX_REPLICAS = 4
NUDGES = 6  # runs of TensorFlow from first weights that are one place off, where its own f32 run may have been lucky
WORDS, SENTENCE = 300, 6
MU_VERBOSE_SILENT = 1
FLOATX = {"f64": np.float64, "f32": np.float32}
HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    optimizer: str
    replicas: int
    batch: int
    rows: int = 0         # of the data set, which is repeated; 0: a fresh batch for every step
    path: str = "fit"

    @property
    def even(self):
        return self.batch % self.replicas == 0 and self.rows % self.batch == 0

    @property
    def oracle_replicas(self):
        return self.replicas if self.even and self.model != "cnn" else 1

    def __str__(self):
        shape = f"batch {self.batch}" + ("" if self.even or self.replicas == 1 else " (uneven)")
        return f"{self.model}, {self.optimizer}, {self.replicas} x {shape}, {self.path}"


def single(value):
    """The nearest number that f32 has: Keras rounds its Python numbers to f32, also where it computes in f64."""
    return float(np.float32(value))


ADAM = {"beta_1": single(0.9), "beta_2": single(0.999), "epsilon": single(1e-7)}
OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.05}),
    "momentum": ("sgd", {"learning_rate": 0.01, "momentum": single(0.9)}),
    "nesterov": ("sgd", {"learning_rate": 0.01, "momentum": single(0.9), "nesterov": True}),
    "adam": ("adam", {"learning_rate": 1e-3} | ADAM),
}

CASES = (
    [Case("regression", optimizer, replicas, 10, rows=100) for optimizer in OPTIMIZERS for replicas in (1, 2)]
    + [Case("regression", optimizer, replicas, 12, rows=120) for optimizer in ("sgd", "adam") for replicas in (3, 4)]
    + [Case("regression", "sgd", replicas, 10, rows=96) for replicas in (2, 3, 4)]
    + [Case("norm", optimizer, replicas, 48) for optimizer in OPTIMIZERS for replicas in (1, 2)]
    + [Case("norm", optimizer, replicas, 48) for optimizer in ("sgd", "adam") for replicas in (3, 4)]
    + [Case("sync_norm", "adam", 2, 24), Case("sync_norm", "adam", 3, 25, rows=490)]
    + [Case("pool", optimizer, replicas, 24, path="step") for optimizer in OPTIMIZERS for replicas in (1, 2)]
    + [Case("pool", "adam", 2, 25, rows=490), Case("pool", "momentum", 3, 25, rows=490, path="step")]
    + [Case("cnn", optimizer, replicas, 36) for optimizer in ("sgd", "adam") for replicas in (1, 2, 3, 4)]
    + [Case("cnn", "momentum", 2, 32, path="step")]
    + [Case("words", optimizer, replicas, 24) for optimizer in OPTIMIZERS for replicas in (1, 2, 3, 4)]
    + [Case("words", optimizer, replicas, 25, rows=490, path=path) for optimizer, replicas, path in
       (("sgd", 2, "step"), ("sgd", 4, "fit"), ("adam", 3, "fit"), ("adam", 4, "step"))]
    + [Case("words", optimizer, 2, 240, path="step") for optimizer in ("sgd", "adam")]  # more slices than rows
)


# ---- Data and models ----------------------------------------------------------------------------------

def data_of(case, dtype):
    """Inputs and labels of the whole data set, in file order."""
    rows = case.rows or STEPS * case.batch
    if case.model == "regression":
        return np.ones((rows, 1), dtype), np.ones((rows, 1), dtype)
    if case.model == "words":  # small numbers come more often, as words do
        generator = np.random.default_rng(11)
        words = (generator.random((rows, SENTENCE)) ** 2 * WORDS).astype(np.int32)
        return words, (words.sum(1) % 5).astype(np.int32)
    stride = 1 if case.model == "cnn" else 2
    images = read_idx("train-images-idx3-ubyte.gz")[:rows, ::stride, ::stride, None]
    labels = read_idx("train-labels-idx1-ubyte.gz")[:rows].astype(np.int32)
    return (images / 255).astype(dtype), labels


def batches_of(case, x, y):
    """The batches of all steps: in order, the last of the data set possibly short, then from the start."""
    starts = range(0, len(x), case.batch)
    for step in range(STEPS):
        start = starts[step % len(starts)]
        yield x[start:start + case.batch], y[start:start + case.batch]


# A layer is a Keras class, Muster's function and the options, which have the same names in both.
LAYERS = {
    "conv": ("Conv2D", "mu_conv2d"), "dense": ("Dense", "mu_dense"), "flatten": ("Flatten", "mu_flatten"),
    "max": ("MaxPooling2D", "mu_max_pool2d"), "average": ("AveragePooling2D", "mu_average_pool2d"),
    "norm": ("BatchNormalization", "mu_batch_normalization"), "embedding": ("Embedding", "mu_embedding"),
}
NORM = {"momentum": single(0.99), "epsilon": single(1e-3)}
MODELS = {
    "regression": [("dense", {"units": 1, "kernel_regularizer": single(1e-4)})],
    "cnn": [("conv", {"filters": 32, "kernel_size": 3, "activation": "relu"}), ("max", {"pool_size": 2}),
            ("conv", {"filters": 64, "kernel_size": 3, "activation": "relu"}), ("max", {"pool_size": 2}),
            ("flatten", {}), ("dense", {"units": 128, "activation": "relu"}), ("dense", {"units": 10})],
    "norm": [("conv", {"filters": 8, "kernel_size": 3, "padding": "same", "strides": 2}),
             ("norm", NORM | {"momentum": single(0.9)}), ("flatten", {}), ("dense", {"units": 16, "activation": "tanh"}),
             ("norm", NORM), ("dense", {"units": 10})],
    "pool": [("conv", {"filters": 8, "kernel_size": 3, "activation": "sigmoid"}), ("average", {"pool_size": 3, "strides": 2}),
             ("conv", {"filters": 8, "kernel_size": 3, "activation": "tanh"}), ("max", {"pool_size": 2, "padding": "same"}),
             ("flatten", {}), ("dense", {"units": 10})],
}
MODELS["words"] = [("embedding", {"input_dim": WORDS, "output_dim": 8}), ("flatten", {}),
                   ("dense", {"units": 16, "activation": "tanh"}), ("dense", {"units": 5})]
MODELS["sync_norm"] = [(kind, options | {"synchronized": True} if kind == "norm" else options)
                       for kind, options in MODELS["norm"]]


def first_weights(keras_model):
    """Glorot's uniform kernels and small biases from one fixed generator, as float64, for both sides."""
    generator = np.random.default_rng(7)
    weights = {}
    for name, variable in named(keras_model):
        shape, kind = tuple(variable.shape), name.rpartition("/")[2]
        if kind == "kernel":
            area = int(np.prod(shape[:-2]))
            limit = np.sqrt(6 / (area * (shape[-2] + shape[-1])))
            weights[name] = generator.uniform(-limit, limit, shape)
        elif kind in ("gamma", "moving_variance"):
            weights[name] = generator.uniform(0.5, 1.5, shape)
        else:
            weights[name] = generator.uniform(-0.1, 0.1, shape)
    return weights


def nudged(weights, seed):
    """The weights in f32, each moved to the next number above or below by chance."""
    generator = np.random.default_rng(seed)
    return {name: np.nextafter(value.astype(np.float32), np.where(generator.random(value.shape) < 0.5, -np.inf, np.inf)
                               .astype(np.float32)) for name, value in weights.items()}


def named(keras_model):
    return [("/".join(variable.path.split("/")[-2:]), variable) for variable in keras_model.weights]


# ---- TensorFlow ---------------------------------------------------------------------------------------

def import_tensorflow():
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * MAX_REPLICAS)
    return tf


@functools.cache
def keras_strategy(tf, replicas):
    """Gradients are added up on one device: the collectives of two strategies in one process disturb each other."""
    if replicas == 1:
        return tf.distribute.get_strategy()
    devices = [f"/cpu:{i}" for i in range(replicas)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())


def keras_model(tf, case, shape):
    layers = [tf.keras.Input(shape, dtype="int32" if case.model == "words" else None)]
    for kind, options in MODELS[case.model]:
        options = dict(options)
        if "kernel_regularizer" in options:
            options["kernel_regularizer"] = tf.keras.regularizers.L2(options["kernel_regularizer"])
        layers.append(getattr(tf.keras.layers, LAYERS[kind][0])(**options))
    return tf.keras.Sequential(layers)


def keras_step(tf, case, strategy, model, optimizer, compiled):
    replicas = strategy.num_replicas_in_sync

    def on_replica(x, y, global_batch):
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            if case.model == "regression":
                losses = tf.reduce_mean(tf.math.squared_difference(predicted, y), -1)
            else:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, predicted)
            loss = tf.reduce_sum(losses) / tf.cast(global_batch, losses.dtype)
            if model.losses:
                loss += tf.add_n(model.losses) / replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function(jit_compile=compiled or None)
    def step(x, y, global_batch):
        return strategy.reduce("SUM", strategy.run(on_replica, (x, y, global_batch)), axis=None)

    return step


def train_tensorflow(tf, case, floatx, strategy=None, nudge=None, compiled=False):
    """Losses of all steps, the last weights, and the first ones; on a strategy of its own unless one is given. With a
    nudge (a seed) the first weights are one place off. `compiled`: XLA compiles the step."""
    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx(np.dtype(FLOATX[floatx]).name)
    x, y = data_of(case, FLOATX[floatx])
    strategy = strategy or keras_strategy(tf, case.oracle_replicas)
    n = strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras_model(tf, case, x.shape[1:])
        name, options = OPTIMIZERS[case.optimizer]
        optimizer = {"sgd": tf.keras.optimizers.SGD, "adam": tf.keras.optimizers.Adam}[name](**options)
        optimizer.build(model.trainable_variables)
        first = first_weights(model)
        if nudge is not None:
            first = nudged(first, nudge)
        for weight_name, variable in named(model):
            variable.assign(first[weight_name].astype(FLOATX[floatx]))
    step = keras_step(tf, case, strategy, model, optimizer, compiled)
    losses = []
    for batch_x, batch_y in batches_of(case, x, y):
        def part(array):
            size = len(array) // n
            return strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(array[size * context.replica_id_in_sync_group:][:size]))

        losses.append(float(step(part(batch_x), part(batch_y), tf.constant(len(batch_x)))))
    return np.array(losses), {name: over_replicas(variable.value) for name, variable in named(model)}, first


@functools.cache
def oracle(tf, case, floatx, nudge=None, compiled=False):
    return train_tensorflow(tf, case, floatx, nudge=nudge, compiled=compiled)


def over_replicas(variable):
    """The mean of a variable's copies: Keras lets each replica move its own statistics, where Muster keeps their mean."""
    copies = getattr(variable, "values", [variable])
    return np.mean([copy.numpy() for copy in copies], axis=0, dtype=copies[0].dtype.as_numpy_dtype)


# ---- Muster -------------------------------------------------------------------------------------------

def muster_model(mu, case):
    layers = []
    for kind, options in MODELS[case.model]:
        options = dict(options)
        if "kernel_regularizer" in options:
            options["kernel_regularizer"] = mu.mu_l2(options["kernel_regularizer"])
        layers.append(getattr(mu, LAYERS[kind][1])(**options))
    return mu.model(layers)


def muster_loss(mu, case):
    if case.model == "regression":
        return mu.mu_mean_squared_error_loss()
    return mu.mu_sparse_categorical_crossentropy_loss(from_logits=True)


def fit(mu, case, model, optimizer, dataset):
    """mu_fit with epochs of one step, so that the loss that its callback is told is that step's."""
    losses = []
    logs_type = mu.declared.structs["mu_logs"]

    def on_batch_end(logs, _):
        logs = ctypes.cast(logs, ctypes.POINTER(logs_type)).contents
        losses.append(ctypes.cast(logs.values, ctypes.POINTER(ctypes.c_double))[0])
        return 0

    hook = HOOK(lambda logs, arg: mu.call_back(lambda: on_batch_end(logs, arg), 13))
    mu.mu_compile(model=model, optimizer=optimizer, loss=muster_loss(mu, case))
    mu.mu_fit(model=model, x=dataset, epochs=STEPS, steps_per_epoch=1, verbose=MU_VERBOSE_SILENT,
              callbacks=mu.mu_callback_new(on_batch_end=hook))
    return losses


def run_steps(mu, strategy, model, optimizer, dataset):
    """A custom loop: a traced step on every replica, each with its part of a distributed batch."""
    def step(batch):
        tape = mu.mu_tape_open()
        logits = mu.mu_call(model=model, x=mu.mu_at(batch, 0), training=True)
        losses = mu.mu_nn_sparse_softmax_cross_entropy(mu.mu_at(batch, 1), logits)
        loss = mu.mu_compute_average_loss(losses=losses)
        gradients = mu.mu_gradients(tape, loss, mu.mu_trainable_variables(model))
        mu.mu_tape_close(tape)
        mu.mu_apply_gradients(optimizer=optimizer, gradients=gradients)
        return mu.mu_of(loss)

    function, _callback = mu.function(step)
    iterator = mu.mu_iterate(mu.mu_distribute_dataset(strategy, dataset))
    losses = []
    for _ in range(STEPS):
        with mu.pool():
            result = mu.mu_run(strategy, function, mu.mu_next(iterator))
            losses.append(mu.mu_scalar(mu.mu_reduce(strategy, mu.declared.constants["MU_SUM"], result)))
    return losses


def train_muster(mu, case, floatx, first, strategy=None):
    """Losses of all steps and the last weights."""
    x, y = data_of(case, FLOATX[floatx])
    with mu.pool():
        mu.mu_set_floatx(muster.DTYPES[np.dtype(FLOATX[floatx])])
        if not strategy:
            strategy = mu.mirrored(case.replicas) if case.replicas > 1 else mu.mu_one_device_strategy(mu.device or "CPU:0")
        dataset = mu.mu_dataset_from_tensor_slices(mu.values([mu.tensor(x), mu.tensor(y)]))
        dataset = mu.mu_dataset_repeat(mu.mu_dataset_batch(dataset=dataset, batch_size=case.batch), -1)
        with mu.scope(strategy):
            model = muster_model(mu, case)
            mu.mu_model_build(model, x.ndim - 1, list(x.shape[1:]))
            name, options = OPTIMIZERS[case.optimizer]
            optimizer = getattr(mu, f"mu_{name}")(**options)
            mu.write_weights(model, {name: value.astype(FLOATX[floatx]) for name, value in first.items()})
            if case.path == "fit":
                losses = fit(mu, case, model, optimizer, dataset)
        if case.path == "step":
            losses = run_steps(mu, strategy, model, optimizer, dataset)
        return np.array(losses), mu.read_weights(model)


# ---- Comparing ----------------------------------------------------------------------------------------

def largest(a, b):
    return max(float(np.abs(a[name].astype(np.float64) - b[name]).max()) for name in b)


def distance(a, b):
    return float(np.sqrt(sum(np.square(a[name].astype(np.float64) - b[name]).sum() for name in b)))


def compare(report, tf, mu, case):
    same = dataclasses.replace(case, replicas=case.oracle_replicas, path="fit")  # for TensorFlow, as other cases are
    theirs, their_weights, first = oracle(tf, same, "f64")
    ours, our_weights = train_muster(mu, case, "f64", first)
    theirs_32, their_weights_32, _ = oracle(tf, same, "f32")
    ours_32, our_weights_32 = train_muster(mu, case, "f32", first)
    check(report, case, {"f64": (theirs, their_weights), "f32": (theirs_32, their_weights_32)},
          {"f64": (ours, our_weights), "f32": (ours_32, our_weights_32)},
          lambda seed: oracle(tf, same, "f32", seed)[:2], functools.partial(off_compiled, tf, same) if mu.device else None)


def off_compiled(tf, case):
    """How far TensorFlow's f32 run on one device lies from its f64 run where XLA compiles it, which adds up row after row."""
    alone = dataclasses.replace(case, replicas=1)
    return distance(oracle(tf, alone, "f32", compiled=True)[1], oracle(tf, alone, "f64")[1])


def widest(off_ours, distances):
    """How far TensorFlow's f32 runs come to lie from its f64 run: the first of `distances`, and where ours is further than
    twice that, those from weights one place off, until one is as far or all have been tried. A maximum or a ReLU that the
    last place decides makes another path of it, in one program's run by chance and not in the other's."""
    far = 0.0
    for off_theirs in distances:
        far = max(far, off_theirs)
        if off_ours <= 2 * far:
            break
    return far


def check(report, case, tensorflow, muster_runs, nudged_run=None, off_compiled_run=None):
    """Both sides' losses and last weights, by type; nudged_run(seed) is TensorFlow's in f32 from weights one place off,
    off_compiled_run() how far its run lies off where XLA compiles it: for runs on an XLA device."""
    (theirs, their_weights), (theirs_32, their_weights_32) = tensorflow["f64"], tensorflow["f32"]
    (ours, our_weights), (ours_32, our_weights_32) = muster_runs["f64"], muster_runs["f32"]
    off_loss, off_weight = float(np.abs(ours - theirs).max()), largest(our_weights, their_weights)
    report.check(f"{case} | f64", f"losses within {off_loss:.1e}, weights within {off_weight:.1e}",
               off_loss <= TOLERANCE_F64 and off_weight <= TOLERANCE_F64)
    nudged = functools.lru_cache(None)(nudged_run) if nudged_run else None
    seeds = range(1, NUDGES + 1) if nudged else ()
    off_first, off_f64 = first_losses_off(ours_32, theirs_32), first_losses_off(ours_32, theirs)
    note, near = "", off_first <= TOLERANCE_FIRST_F32
    if not near:
        far = widest(off_f64, itertools.chain([first_losses_off(theirs_32, theirs)],
                                              (first_losses_off(nudged(seed)[0], theirs) for seed in seeds)))
        note, near = f" (off f64 by {off_f64:.1e}, TensorFlow's by {far:.1e})", off_f64 <= 2 * far
    off_ours, off_theirs = distance(our_weights_32, their_weights), distance(their_weights_32, their_weights)
    # Where TensorFlow's own run is exact by luck, the last place of the weights is what may differ.
    last_place = np.finfo(np.float32).eps * distance(their_weights, {name: 0 * w for name, w in their_weights.items()})
    compiled = (run() for run in (off_compiled_run,) if run)
    far = off_theirs if off_ours <= last_place else widest(
        off_ours, itertools.chain([off_theirs], compiled, (distance(nudged(seed)[1], their_weights) for seed in seeds)))
    reason = "compiled by XLA or from weights one place off" if off_compiled_run else "from weights one place off"
    note_far = f", {far:.1e} {reason}" if far > off_theirs else ""
    report.check(f"{case} | f32", f"first {FIRST_STEPS} losses within {off_first:.1e}{note}; weights off f64 by {off_ours:.1e}, "
               f"TensorFlow's by {off_theirs:.1e}{note_far}", near and off_ours <= max(2 * far, last_place))


def first_losses_off(a, b):
    return float(np.abs(a - b)[:FIRST_STEPS].max())


def evaluate(report, tf, mu, replicas):
    """Loss and accuracy over a data set whose last batch is short: every sample counts once, on any number of replicas."""
    case = Case("pool", "sgd", replicas, 32, rows=1000)
    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx("float64")
    x, y = data_of(case, np.float64)
    model = keras_model(tf, case, x.shape[1:])
    first = first_weights(model)
    for name, variable in named(model):
        variable.assign(first[name])
    logits = model(x)
    loss = float(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)))
    accuracy = float(np.mean(np.argmax(logits, -1) == y))
    with mu.pool():
        mu.mu_set_floatx(muster.DTYPES[np.dtype(np.float64)])
        dataset = mu.mu_dataset_from_tensor_slices(mu.values([mu.tensor(x), mu.tensor(y)]))
        dataset = mu.mu_dataset_batch(dataset=dataset, batch_size=case.batch)
        with mu.scope(mu.mirrored(replicas)):
            model = muster_model(mu, case)
            mu.mu_model_build(model, 3, list(x.shape[1:]))
            mu.write_weights(model, first)
            mu.mu_compile(model=model, loss=muster_loss(mu, case), metrics=mu.mu_accuracy())
            history = mu.mu_evaluate(model=model, x=dataset, verbose=MU_VERBOSE_SILENT)
        ours = [mu.mu_history_last(history, name) for name in ("loss", "accuracy")]
        samples = mu.mu_history_samples(history)
    off = abs(ours[0] - loss)
    report.check(f"evaluate, {replicas} x batch 32 of 1000 rows", f"loss within {off:.1e}, accuracy {ours[1]}, {samples} samples",
                 off <= TOLERANCE_F64 and abs(ours[1] - accuracy) < 1e-12 and samples == len(x))


def main(library, only=""):
    tf = import_tensorflow()
    mu = muster.Library(library, cpu_devices=MAX_REPLICAS)
    report = Report("training")
    for case in CASES:
        if only in str(case):
            with report.guard(str(case)):
                compare(report, tf, mu, case)
    for replicas in range(1, MAX_REPLICAS + 1):
        if only in "evaluate":
            with report.guard(f"evaluate on {replicas}"):
                evaluate(report, tf, mu, replicas)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
