# Keras's callbacks and Muster's side by side: what each does to the same training, the files that it writes, and the
# order of the hooks. It must not know how the library calls them.
import contextlib
import ctypes
import io
import itertools
import os
import pathlib
import sys
import tempfile
import zipfile

import h5py
import numpy as np
import tensorflow as tf
from tensorflow.python.summary import summary_iterator

import muster
from classes import MU_VERBOSE_SILENT, ROWS, snake
from defaults import FLOATX, TOLERANCE, compare_parts, off
from report import Report

SCHEDULE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int, ctypes.c_double, ctypes.c_void_p)
# What each callback is asked to do, in Keras's words. "rate" is a learning rate at which the loss soon rises again.
CALLBACKS = [
    ("EarlyStopping", {"monitor": "loss", "patience": 2, "restore_best_weights": True}, 0.05),
    ("EarlyStopping", {"monitor": "val_loss", "patience": 1, "restore_best_weights": True, "start_from_epoch": 2}, 1.6),
    ("EarlyStopping", {"monitor": "val_loss", "patience": 2, "baseline": 1e-9, "min_delta": 0.125}, 0.05),
    ("EarlyStopping", {"monitor": "loss", "mode": "max", "patience": 3, "restore_best_weights": True}, 0.05),
    ("ReduceLROnPlateau", {"monitor": "val_loss", "factor": 0.5, "patience": 1, "min_delta": 0.5, "cooldown": 1}, 0.4),
    ("ReduceLROnPlateau", {"monitor": "loss", "factor": 0.25, "patience": 2, "min_delta": 10, "min_lr": 0.01}, 0.4),
    # "validation_freq" is fit's: after the other epochs val_loss is not there.
    ("EarlyStopping", {"monitor": "val_loss", "patience": 2, "validation_freq": 3}, 0.05),
    ("EarlyStopping", {"monitor": "val_loss", "patience": 1, "validation_freq": 2, "restore_best_weights": True}, 1.6),
    ("ReduceLROnPlateau", {"monitor": "val_loss", "patience": 1, "min_delta": 0.5, "cooldown": 1, "validation_freq": 2}, 0.4),
    ("LearningRateScheduler", {}, 0.4), ("CSVLogger", {"separator": ";"}, 0.05), ("CSVLogger", {"append": True}, 0.05),
    ("TerminateOnNaN", {}, 1e200), ("SwapEMAWeights", {}, 0.1), ("SwapEMAWeights", {"swap_on_epoch": True}, 0.1),
]


def halve(epoch, rate):
    return rate / 2 if epoch % 3 == 2 else rate


# What callbacks say, with "verbose", in ten epochs.
SAYING = [
    ("LearningRateScheduler", {"schedule": halve}),
    ("EarlyStopping", {"monitor": "loss", "patience": 2, "restore_best_weights": True, "mode": "max"}),
    ("EarlyStopping", {"monitor": "val_loss", "patience": 3, "restore_best_weights": True}),
    ("ReduceLROnPlateau", {"monitor": "loss", "factor": 0.3, "patience": 1, "min_delta": 10, "min_lr": 0.01}),
    ("ModelCheckpoint", {"filepath": "w{epoch}.weights.h5", "save_weights_only": True}),
    ("ModelCheckpoint", {"filepath": "w.keras", "save_best_only": True}),
    ("ModelCheckpoint", {"filepath": "w.keras", "save_best_only": True, "initial_value_threshold": 3.0}),
    ("ModelCheckpoint", {"filepath": "w{epoch}-{batch}.weights.h5", "save_weights_only": True, "save_freq": 7}),
]
# Without options: epochs, the learning rate, and the weight at which the validation loss is least. 2.0 is never passed,
# so that only .min_delta (1e-4) ends the improvements; 2.02 is, so that "val_loss" is told from "loss".
DEFAULTS = [("EarlyStopping", 40, 0.0256, 2.02), ("ReduceLROnPlateau", 40, 0.0256, 2.0), ("ReduceLROnPlateau", 40, 0.0256, 2.02)]


def callback_of(mu, name, options, folder, kept):
    """Keras's callback and ours; CSV files lie in the folder."""
    if name == "LearningRateScheduler":
        kept.append(SCHEDULE(lambda epoch, rate, _: halve(epoch, rate)))
        pointer = ctypes.cast(kept[-1], ctypes.c_void_p)
        return tf.keras.callbacks.LearningRateScheduler(halve), mu.mu_learning_rate_scheduler(schedule=pointer)
    theirs, ours = dict(options), dict(options)
    if name == "CSVLogger":
        theirs["filename"], ours["filename"] = f"{folder}/theirs.csv", f"{folder}/ours.csv"
    function = {"ReduceLROnPlateau": "reduce_lr_on_plateau", "CSVLogger": "csv_logger",
                "TerminateOnNaN": "terminate_on_nan", "SwapEMAWeights": "swap_ema_weights"}.get(name) or snake(name)
    return getattr(tf.keras.callbacks, name)(**theirs), getattr(mu, f"mu_{function}")(**ours)


def table_of(path):
    lines = pathlib.Path(path).read_bytes().decode().split("\r\n")
    separator = ";" if ";" in lines[0] else ","
    rows = [line.split(separator) for line in lines]
    return rows[0], np.array([[float(item.replace("NA", "nan")) for item in row] for row in rows[1:] if row != [""]])


def compare_callback(report, mu, floatx, row):
    """The same regression with each callback: epochs, losses, weights, learning rate, and the files."""
    name, options, rate = row
    options = dict(options)
    freq = options.pop("validation_freq", 1)
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(8)
    x, kernel = generator.normal(size=(ROWS, 4)).astype(dtype), generator.normal(size=(4, 2)).astype(dtype)
    y = (x @ kernel + generator.normal(size=(ROWS, 2))).astype(dtype)
    weights = {"dense/kernel": np.zeros((4, 2), dtype), "dense/bias": np.zeros(2, dtype)}
    theirs = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2, name="dense")])
    average = {"use_ema": True, "ema_momentum": 0.75} if name == "SwapEMAWeights" else {}
    theirs.compile(tf.keras.optimizers.SGD(rate, **average), "mse")
    theirs.set_weights(list(weights.values()))
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        kept = []
        callback, built = callback_of(mu, name, options, folder, kept)
        ours = mu.model([mu.mu_input_layer(shape=[4]), mu.mu_dense(units=2, name="dense")])
        mu.write_weights(ours, weights)
        optimizer = mu.mu_sgd(learning_rate=rate, **average)
        mu.mu_compile(model=ours, optimizer=optimizer, loss=mu.mu_mean_squared_error_loss())
        data = mu.values([mu.tensor(x[:16]), mu.tensor(y[:16])])
        history = mu.mu_fit(model=ours, x=data, validation_data=mu.values([mu.tensor(x[16:]), mu.tensor(y[16:])]),
                            batch_size=8, epochs=9, no_shuffle=True, callbacks=built, verbose=MU_VERBOSE_SILENT,
                            validation_freq=freq)
        seen = theirs.fit(x[:16], y[:16], batch_size=8, epochs=9, shuffle=False, validation_data=(x[16:], y[16:]),
                          validation_freq=freq, callbacks=[callback], verbose=0).history
        epochs = mu.mu_history_epochs(history)
        far = 0.0
        if name != "TerminateOnNaN":
            losses, validated = ([mu.mu_history_at(history, key, i) for i in range(epochs)] for key in ("loss", "val_loss"))
            far = max(off(losses, seen["loss"]), off(validated[freq - 1::freq], seen["val_loss"]),
                      off(mu.read_weights(ours)["dense/kernel"], theirs.get_weights()[0]),
                      off(mu.array(mu.mu_variable_read(mu.mu_optimizer_learning_rate(optimizer))),
                          theirs.optimizer.learning_rate.numpy()))
        logged = sorted(mu.mu_history_name(history, i).decode() for i in range(mu.mu_history_names(history)))
        if "learning_rate" in logged and "learning_rate" in seen:
            far = max(far, off([mu.mu_history_at(history, "learning_rate", i) for i in range(epochs)], seen["learning_rate"]))
        if name == "CSVLogger":
            (names, values), (wanted_names, wanted) = table_of(f"{folder}/ours.csv"), table_of(f"{folder}/theirs.csv")
            far = max(far, off(values, wanted) if names == wanted_names else np.inf)
    report.check(f"callback {name} {row[1]}, {floatx}", f"{epochs} epochs of {', '.join(logged)} as in Keras, within {far:.1e}",
                 epochs == len(seen["loss"]) and logged == sorted(seen) and far <= TOLERANCE[floatx])


def compare_defaults(report, mu, floatx, row):
    """A callback without options: one weight, whose validation loss falls ever slower and then rises."""
    name, epochs, rate, truth = row
    dtype = FLOATX[floatx]
    x = np.ones((1, 1), dtype)
    theirs = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, use_bias=False, name="dense")])
    theirs.compile(tf.keras.optimizers.SGD(rate), "mse")
    theirs.set_weights([2.03125 * x])
    with mu.pool():
        ours = mu.model([mu.mu_input_layer(shape=[1]), mu.mu_dense(units=1, no_bias=True, name="dense")])
        mu.write_weights(ours, {"dense/kernel": 2.03125 * x})
        optimizer = mu.mu_sgd(learning_rate=rate)
        mu.mu_compile(model=ours, optimizer=optimizer, loss=mu.mu_mean_squared_error_loss())
        callback, built = callback_of(mu, name, {}, None, [])
        history = mu.mu_fit(model=ours, x=mu.values([mu.tensor(x), mu.tensor(2 * x)]), callbacks=built, epochs=epochs,
                            validation_data=mu.values([mu.tensor(x), mu.tensor(truth * x)]), verbose=MU_VERBOSE_SILENT)
        seen = theirs.fit(x, 2 * x, epochs=epochs, validation_data=(x, truth * x), callbacks=[callback], verbose=0).history
        far = max(off(mu.read_weights(ours)["dense/kernel"], theirs.get_weights()[0]),
                  off(mu.array(mu.mu_variable_read(mu.mu_optimizer_learning_rate(optimizer))),
                      theirs.optimizer.learning_rate.numpy()))
        ended = mu.mu_history_epochs(history)
    changed = len(seen["loss"]) < epochs or theirs.optimizer.learning_rate.numpy() < rate / 2
    report.check(f"callback {name} without options, {floatx}", f"{ended} epochs as in Keras, within {far:.1e}",
                 changed and ended == len(seen["loss"]) and far <= TOLERANCE[floatx])


# Values of validation, epoch by epoch: some are just min_delta better than the best, which the type of floats decides. In
# f32 alone: Keras compares in f32 also where its floats are f64.
SCRIPTED = [
    ("EarlyStopping", {"mode": "max", "patience": 2, "min_delta": 0.1, "restore_best_weights": True}, [0.7, 0.8, 0.75, 0.5, 0.25]),
    ("EarlyStopping", {"patience": 1, "min_delta": 0.02, "baseline": 0.9}, [0.98, 0.96, 0.97, 0.875, 0.855, 0.9]),
    ("ReduceLROnPlateau", {"mode": "max", "patience": 3, "min_delta": 0.1, "cooldown": 3}, [0.25, 0.7, 0.8, 0.7, 0.7, 0.25]),
]


def compare_scripted(report, mu, floatx, row):
    """A weight that another callback sets: the epochs, the weight at the end, and the learning rate of each epoch."""
    name, options, script = row
    dtype = FLOATX[floatx]
    one, kept, left = np.ones((1, 1), dtype), [], list(script)
    theirs = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, use_bias=False, name="dense")])
    theirs.compile(tf.keras.optimizers.SGD(0.5), "mae")
    sets = tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: theirs.set_weights([script[epoch] * one]))
    with mu.pool():
        callback, built = callback_of(mu, name, options, None, kept)
        ours = mu.model([mu.mu_input_layer(shape=[1]), mu.mu_dense(units=1, no_bias=True, name="dense")])
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.5), loss="mae")
        weight = mu.mu_model_weight(ours, "dense/kernel")
        kept.append(HOOK(lambda logs, arg: mu.call_back(
            lambda: mu.mu_variable_assign(weight, mu.tensor(left.pop(0) * one)), 1)))
        history = mu.mu_fit(model=ours, x=mu.values([mu.tensor(0 * one), mu.tensor(0 * one)]), epochs=len(script),
                            validation_data=mu.values([mu.tensor(one), mu.tensor(0 * one)]), verbose=MU_VERBOSE_SILENT,
                            callbacks=mu.mu_items_of([mu.mu_callback_new(on_epoch_begin=kept[-1]), built, mu.end]))
        seen = theirs.fit(0 * one, 0 * one, epochs=len(script), validation_data=(one, 0 * one), verbose=0,
                          callbacks=[sets, callback]).history
        epochs = mu.mu_history_epochs(history)
        far = off(mu.read_weights(ours)["dense/kernel"], theirs.get_weights()[0])
        for key in seen:
            far = max(far, off([mu.mu_history_at(history, key, i) for i in range(epochs)], seen[key])
                      if epochs == len(seen[key]) else np.inf)
    report.check(f"callback {name} {options} of {script}, {floatx}", f"{epochs} epochs as in Keras, within {far:.1e}",
                 far <= TOLERANCE[floatx])


CHECKPOINTS = [  # options of ModelCheckpoint, with fit's "validation_freq"; "w" becomes the file in the folder
    {"filepath": "w{epoch:02d}-{val_loss:.3f}.keras"}, {"filepath": "w.keras", "save_best_only": True},
    {"filepath": "w{epoch}.keras", "save_best_only": True, "mode": "max", "monitor": "loss"},
    {"filepath": "w{epoch}.weights.h5", "save_weights_only": True, "save_best_only": True, "initial_value_threshold": 2.6},
    {"filepath": "w{epoch}-{batch}.keras", "save_freq": 3}, {"filepath": "deep/er/w{epoch}-{batch}.weights.h5", "save_weights_only": True, "save_freq": 5},
    {"filepath": "w{epoch:03d}-{loss:8.2e}.weights.h5", "save_weights_only": True, "save_freq": 2},
    {"filepath": "w{epoch:*^5}-{val_loss:<8.3f}-{loss:~=+9.2f}.weights.h5", "save_weights_only": True},
    {"filepath": "w{epoch:#06x}-{val_loss:+012,.3f}-{loss:_.1%}-{loss:#.0f}.weights.h5", "save_weights_only": True},
]


def values_of(tree):
    """Every data set of a file of Keras's by its path."""
    values = {}
    tree.visititems(lambda name, item: values.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return values


def saved(path):
    """The values in a file of weights or of a whole model, which includes the optimizer's."""
    if path.suffix != ".keras":
        with h5py.File(path) as file:
            return values_of(file)
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        return values_of(file)


def compare_checkpoints(report, mu, floatx, options):
    """The files that ModelCheckpoint writes: their names, and in each of them the values that Keras's has."""
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(11)
    x, y = generator.normal(size=(ROWS, 4)).astype(dtype), generator.normal(size=(ROWS, 2)).astype(dtype)
    layers = [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2, kernel_initializer="zeros", name="dense")]
    theirs = tf.keras.Sequential(layers)
    theirs.compile(tf.keras.optimizers.SGD(0.7, momentum=0.5), "mse")
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        wanted, seen = pathlib.Path(folder, "theirs"), pathlib.Path(folder, "ours")
        path, here = options["filepath"], {key: value for key, value in options.items() if key != "filepath"}
        theirs.fit(x[:16], y[:16], batch_size=4, epochs=4, shuffle=False, validation_data=(x[16:], y[16:]), verbose=0,
                   callbacks=[tf.keras.callbacks.ModelCheckpoint(**options | {"filepath": f"{wanted}/{path}"})])
        ours = mu.model([mu.mu_input_layer(shape=[4]), mu.mu_dense(units=2, kernel_initializer="zeros", name="dense")])
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.7, momentum=0.5), loss="mse")
        mu.mu_fit(model=ours, x=mu.tensor(x[:16]), y=mu.tensor(y[:16]), batch_size=4, epochs=4, no_shuffle=True,
                  validation_data=mu.values([mu.tensor(x[16:]), mu.tensor(y[16:])]), verbose=MU_VERBOSE_SILENT,
                  callbacks=mu.mu_model_checkpoint(path=f"{seen}/{path}", **here))
        names, wanted_names = ([str(file.relative_to(root)) for file in sorted(root.rglob("*")) if file.is_file()]
                               for root in (seen, wanted))
        far = np.inf
        if names == wanted_names:
            pairs = [(saved(seen / name), saved(wanted / name)) for name in names]
            same = all(a.keys() == b.keys() for a, b in pairs)
            far = max(off(a[key], b[key]) for a, b in pairs for key in b) if same else np.inf
    report.check(f"callback ModelCheckpoint {options}, {floatx}", f"{len(wanted_names)} files as Keras's, within {far:.1e}",
                 len(wanted_names) > 0 and far <= TOLERANCE[floatx])


@contextlib.contextmanager
def printed(library, lines):
    """Appends what a library of C prints, without empty lines."""
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        try:
            os.dup2(file.fileno(), 1)
            yield
            library.fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        lines += [line for line in file.read().decode().split("\n") if line]


def compare_saying(report, mu, floatx, row):
    """What a callback prints with "verbose"."""
    name, options = row
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(12)
    x, y = generator.normal(size=(ROWS, 4)).astype(dtype), generator.normal(size=(ROWS, 2)).astype(dtype)
    function = {"ReduceLROnPlateau": "reduce_lr_on_plateau"}.get(name) or snake(name)
    theirs = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2, kernel_initializer="zeros", name="dense")])
    theirs.compile(tf.keras.optimizers.SGD(0.5, momentum=0.5), "mse")
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        given = {key: f"{folder}/{value}" if key == "filepath" else value for key, value in options.items()}
        wanted, seen = io.StringIO(), []
        with contextlib.redirect_stdout(wanted):
            theirs.fit(x[:16], y[:16], batch_size=4, epochs=10, shuffle=False, validation_data=(x[16:], y[16:]), verbose=0,
                       callbacks=[getattr(tf.keras.callbacks, name)(**given, verbose=1)])
        ours = mu.model([mu.mu_input_layer(shape=[4]), mu.mu_dense(units=2, kernel_initializer="zeros", name="dense")])
        mu.mu_compile(model=ours, optimizer=mu.mu_sgd(learning_rate=0.5, momentum=0.5), loss="mse")
        kept = SCHEDULE(lambda epoch, rate, _: halve(epoch, rate))
        given = {"path" if key == "filepath" else key: ctypes.cast(kept, ctypes.c_void_p) if key == "schedule" else value
                 for key, value in given.items()}
        with printed(ctypes.CDLL(None), seen):
            mu.mu_fit(model=ours, x=mu.tensor(x[:16]), y=mu.tensor(y[:16]), batch_size=4, epochs=10, no_shuffle=True,
                      validation_data=mu.values([mu.tensor(x[16:]), mu.tensor(y[16:])]), verbose=MU_VERBOSE_SILENT,
                      callbacks=getattr(mu, f"mu_{function}")(**given, verbose=True))
        wanted = [line for line in wanted.getvalue().split("\n") if line]
    wrong = [f"{a!r}, not {b!r}" for a, b in itertools.zip_longest(seen, wanted) if a != b]
    report.row(f"callback {name} {options} says, {floatx}", f"{len(wanted)} lines as Keras's", passed=bool(wanted) and not wrong,
               failures=wrong)


class Interrupted(Exception):
    pass


class StopsIn(tf.keras.callbacks.Callback):
    """Ends training with an exception in an epoch, after its first step."""

    def __init__(self, epoch):
        super().__init__()
        self.left = epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.left -= 1

    def on_train_batch_end(self, batch, logs=None):
        if self.left < 0:
            raise Interrupted


def stops_in(mu, epoch, kept):
    left = [epoch]

    def begin():
        left[0] -= 1
        return 0

    def end():
        if left[0] < 0:
            raise Interrupted
        return 0
    hooks = {"on_epoch_begin": begin, "on_batch_end": end}
    kept += [HOOK(lambda logs, arg, hook=hook: mu.call_back(hook, 1)) for hook in hooks.values()]
    return mu.mu_callback_new(**dict(zip(hooks, kept[-2:])))


SGD = {"learning_rate": 0.1, "momentum": 0.5}
# Numbers that f32 has: Keras in f64 computes with 0.9, 0.999 and 1e-7 as f32 has them (docs/conformance.md).
ADAM = {"learning_rate": 0.125, "beta_1": 0.875, "beta_2": 0.96875, "epsilon": 2.0**-20}
# Callbacks beside BackupAndRestore, which change the rate before and after the interruption; the optimizer with options.
BESIDE = [(None, {}, "SGD", {}), ("ReduceLROnPlateau", {"monitor": "loss", "factor": 0.5, "patience": 1, "min_delta": 10}, "SGD", {}),
          ("LearningRateScheduler", {}, "SGD", {}), (None, {}, "SGD", {"use_ema": True, "ema_momentum": 0.75}),
          ("LearningRateScheduler", {}, "SGD", {"gradient_accumulation_steps": 4}), (None, {}, "Adam", {}),
          (None, {}, "Adam", {"amsgrad": True}), ("LearningRateScheduler", {}, "Nadam", {}), (None, {}, "Adamax", {})]


def interrupted_theirs(x, y, folder, row, mu, kept):
    """The losses of the second run, the weights and the rate at its end."""
    name, options, optimizer, of_optimizer = row
    for run in range(2):
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2, kernel_initializer="zeros")])
        numbers = SGD if optimizer == "SGD" else ADAM
        model.compile(getattr(tf.keras.optimizers, optimizer)(**numbers, **of_optimizer), "mse")
        callbacks = [tf.keras.callbacks.BackupAndRestore(folder)] + ([StopsIn(2)] if run == 0 else [])
        callbacks += [callback_of(mu, name, options, folder, kept)[0]] if name else []
        with contextlib.suppress(Interrupted):
            history = model.fit(x, y, batch_size=8, epochs=6, shuffle=False, verbose=0, callbacks=callbacks).history
    return history["loss"], model.get_weights()[0], float(model.optimizer.learning_rate.numpy())


def interrupted_here(x, y, folder, row, mu, kept):
    name, options, of_class, of_optimizer = row
    for run in range(2):
        model = mu.model([mu.mu_input_layer(shape=[4]), mu.mu_dense(units=2, kernel_initializer="zeros", name="dense")])
        numbers = SGD if of_class == "SGD" else ADAM
        optimizer = getattr(mu, f"mu_{of_class.lower()}")(**numbers, **of_optimizer)
        mu.mu_compile(model=model, optimizer=optimizer, loss="mse")
        callbacks = [mu.mu_backup_and_restore(backup_dir=folder)] + ([stops_in(mu, 2, kept)] if run == 0 else [])
        callbacks += [callback_of(mu, name, options, folder, kept)[1]] if name else []
        with contextlib.suppress(Interrupted):
            history = mu.mu_fit(model=model, x=mu.tensor(x), y=mu.tensor(y), batch_size=8, epochs=6, no_shuffle=True,
                                verbose=MU_VERBOSE_SILENT, callbacks=mu.mu_items_of([*callbacks, mu.end]))
    losses = [mu.mu_history_at(history, "loss", i) for i in range(mu.mu_history_epochs(history))]
    return losses, mu.read_weights(model)["dense/kernel"], mu.mu_scalar(mu.mu_variable_read(mu.mu_optimizer_learning_rate(optimizer)))


def compare_backup(report, mu, floatx, row):
    """Training that ends within its third epoch, and a second run of the same program, which BackupAndRestore lets continue
    with that epoch: the losses of the epochs that it runs, the weights, the rate, and the folder that is gone at the end."""
    dtype, kept = FLOATX[floatx], []
    generator = np.random.default_rng(13)
    x, y = generator.normal(size=(ROWS, 4)).astype(dtype), generator.normal(size=(ROWS, 2)).astype(dtype)
    with tempfile.TemporaryDirectory() as root, mu.pool():
        wanted = interrupted_theirs(x, y, f"{root}/theirs", row, mu, kept)
        seen = interrupted_here(x, y, f"{root}/ours", row, mu, kept)
        far = max(off(ours, theirs) for ours, theirs in zip(seen, wanted))
        left = [path.name for path in pathlib.Path(root).iterdir()]
    name = " ".join(["callback BackupAndRestore", *filter(None, [row[0]]), row[2], *row[3]])
    report.check(f"{name}, {floatx}", f"{len(seen[0])} epochs in the second run, within {far:.1e}",
                 len(seen[0]) == 4 and far <= TOLERANCE[floatx] and not left)


def events_of(folder):
    """{(tag, step): value} of a folder's one event file, which TensorFlow reads and whose checksums it checks."""
    (path,) = pathlib.Path(folder).glob("events.out.tfevents.*.v2")
    events = list(summary_iterator.summary_iterator(str(path)))
    assert events[0].file_version == "brain.Event:2" and events[0].wall_time > 1.7e9
    values = {}
    for event in events[1:]:
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars" and value.metadata.data_class == 1
            values[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    return values


def compare_tensorboard(report, mu, floatx, _):
    """Tags, steps and values by the rules of Keras's callback; the values are those of the history."""
    dtype = FLOATX[floatx]
    generator = np.random.default_rng(9)
    x, y = generator.normal(size=(ROWS, 3)).astype(dtype), generator.normal(size=(ROWS, 1)).astype(dtype)
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        model = mu.model([mu.mu_dense(units=1)])
        rate = mu.mu_exponential_decay(initial_learning_rate=0.125, decay_steps=6, decay_rate=0.5)
        mu.mu_compile(model=model, optimizer=mu.mu_sgd(schedule=rate), loss=mu.mu_mean_squared_error_loss(),
                      metrics=mu.mu_metric_named("mae"))
        data = mu.values([mu.tensor(x), mu.tensor(y)])
        history = mu.mu_fit(model=model, x=data, validation_data=data, batch_size=8, epochs=3, verbose=MU_VERBOSE_SILENT,
                            callbacks=mu.mu_tensorboard(log_dir=f"{folder}/run", update_freq=2, write_steps_per_second=True))
        names = ("loss", "mean_absolute_error")
        train = {(f"epoch_{name}", i): mu.mu_history_at(history, name, i) for name in names for i in range(3)}
        train |= {("epoch_learning_rate", i): 0.125 * 0.5 ** ((i + 1) * 3 / 6) for i in range(3)}
        other = {(f"epoch_{name}", i): mu.mu_history_at(history, f"val_{name}", i) for name in names for i in range(3)}
        other |= {(f"evaluation_{name}_vs_iterations", 3 * (i + 1)): mu.mu_history_at(history, f"val_{name}", i)
                  for name in names for i in range(3)}
        seen, validation = events_of(f"{folder}/run/train"), events_of(f"{folder}/run/validation")
        speeds = {key: seen.pop(key) for key in list(seen) if key[0].endswith("_steps_per_second")}
        batches = {key for key in seen if key[0].startswith("batch_")}
    right = batches == {(f"batch_{name}", step) for name in names for step in (2, 4, 6, 8)}
    right &= speeds.keys() == {("epoch_steps_per_second", i) for i in range(3)} | {("batch_steps_per_second", i) for i in (2, 4, 6, 8)}
    right &= all(speed > 0 for speed in speeds.values())
    right &= seen.keys() - batches == train.keys() and validation.keys() == other.keys()
    far = max(abs(both[key] - value) for both, wanted in ((seen, train), (validation, other))
              for key, value in wanted.items()) if right else np.inf
    report.check(f"TensorBoard's events, {floatx}", f"{len(seen) + len(validation)} read by TensorFlow, within {far:.1e}",
                 right and far <= TOLERANCE[floatx])


def buckets_of(data, n):
    """TensorBoard's histogram of several values, with TensorFlow's ops (its plugin's summary_v2)."""
    data = tf.reshape(tf.cast(data, tf.float64), [-1])
    least, most = tf.reduce_min(data), tf.reduce_max(data)
    places = tf.cast(tf.floor((data - least) / ((most - least) / n)), tf.int32)
    counts = tf.math.bincount(tf.minimum(places, n - 1), minlength=n, dtype=tf.float64)
    edges = tf.linspace(least, most, n + 1)
    return tf.stack([edges[:-1], edges[1:], counts], axis=1)


def compare_summaries(report, mu, floatx, _):
    """What a loop of one's own records: histograms, images that TensorFlow decodes, a number, a text."""
    generator = np.random.default_rng(4)
    data = generator.normal(size=(40, 50)).astype(FLOATX[floatx])
    images = generator.uniform(-0.2, 1.2, size=(3, 5, 4, 3)).astype(FLOATX[floatx])
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        writer = mu.mu_summary_writer_new(f"{folder}/own")
        mu.mu_summary_scalar(writer, "rate", 0.5, 3)
        mu.mu_summary_text(writer, "note", "**begun**", 4)
        mu.mu_summary_histogram(writer=writer, name="data", data=mu.tensor(data), step=5, buckets=12)
        mu.mu_summary_image(writer=writer, name="images", data=mu.tensor(images), step=6, max_outputs=2)
        mu.mu_summary_flush(writer)
        (path,) = pathlib.Path(folder, "own").glob("events.out.tfevents.*.v2")
        seen = {value.tag: (event.step, value.metadata.plugin_data.plugin_name, value.metadata.data_class,
                            tf.make_ndarray(value.tensor))
                for event in summary_iterator.summary_iterator(str(path)) for value in event.summary.value}
    right = {tag: parts[:3] for tag, parts in seen.items()} == {
        "rate": (3, "scalars", 1), "note": (4, "text", 2), "data": (5, "histograms", 2), "images": (6, "images", 3)}
    right = right and seen["rate"][3] == 0.5 and seen["note"][3].item() == b"**begun**"
    width, height, *pictures = seen["images"][3]
    wanted = tf.image.convert_image_dtype(images, tf.uint8, saturate=True).numpy()
    right = right and (width, height, len(pictures)) == (b"4", b"5", 2)
    right = right and all((tf.io.decode_png(png).numpy() == image).all() for png, image in zip(pictures, wanted))
    far = np.abs(seen["data"][3] - buckets_of(data, 12).numpy()).max()
    report.check(f"summaries, {floatx}", f"4 plugins read by TensorFlow, buckets within {far:.1e}", right and far <= 1e-12)


def recorded(folder):
    """Tag, step and value of each summary of a folder's one event file, in order."""
    (path,) = pathlib.Path(folder).glob("events.out.tfevents.*.v2")
    return [(value.tag, event.step, tf.make_ndarray(value.tensor))
            for event in summary_iterator.summary_iterator(str(path)) for value in event.summary.value]


def compare_traced_summaries(report, mu, floatx, _):
    """A function that is traced once and run three times, here and as a tf.function, with what tf.summary.scalar and
    histogram write (they belong to TensorBoard's package)."""
    x = np.random.default_rng(5).normal(size=(3, 40)).astype(FLOATX[floatx])
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        theirs, step = tf.summary.create_file_writer(f"{folder}/theirs"), tf.Variable(5, dtype=tf.int64)

        @tf.function
        def run(row):
            with theirs.as_default():
                tf.summary.write("mean", tf.cast(tf.reduce_mean(row), tf.float32), step=step)
                tf.summary.write("constant", 0.5, step=2)
                tf.summary.write("row", buckets_of(row, 6), step=step)
            step.assign_add(2)

        writer = mu.mu_summary_writer_new(f"{folder}/ours")
        steps = mu.mu_variable_new(initial_value=mu.tensor(np.int64(5)), name="steps")

        def traced(arguments):
            row, at = mu.mu_at(arguments, 0), mu.mu_variable_read(steps)
            mu.mu_summary_scalar_tensor(writer, "mean", mu.mu_reduce_mean(row, muster.ALL_AXES), at)
            mu.mu_summary_scalar(writer, "constant", 0.5, 2)
            mu.mu_summary_histogram(writer=writer, name="row", data=row, step_tensor=at, buckets=6)
            mu.mu_variable_assign_add(steps, mu.tensor(np.int64(2)))
            return mu.mu_of(row)

        function, _callback = mu.function(traced)
        for row in x:
            run(tf.constant(row))
            mu.mu_run(mu.strategy, function, mu.values([mu.tensor(row)]))
        theirs.flush()
        mu.mu_summary_flush(writer)
        ours, wanted = recorded(f"{folder}/ours"), recorded(f"{folder}/theirs")
    alike = [entry[:2] for entry in ours] == [entry[:2] for entry in wanted]
    far = max(np.abs(a[2] - b[2]).max() for a, b in zip(ours, wanted)) if alike else np.inf
    report.check(f"traced summaries, {floatx}", f"{len(wanted)} as of a tf.function, within {far:.1e}",
                 len(wanted) == 9 and far <= 1e-6)


# Keras's hooks by the names that ours have.
HOOKS = {"on_train_begin": "on_train_begin", "on_train_end": "on_train_end", "on_epoch_begin": "on_epoch_begin",
         "on_epoch_end": "on_epoch_end", "on_train_batch_begin": "on_batch_begin", "on_train_batch_end": "on_batch_end"}
HOOKS |= {name: name for part in ("test", "predict") for name in (
    f"on_{part}_begin", f"on_{part}_end", f"on_{part}_batch_begin", f"on_{part}_batch_end")}
HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Logs(ctypes.Structure):
    """mu_logs, which ctypes reads from the address that a hook gets."""
    _fields_ = [("model", ctypes.c_void_p), ("epoch", ctypes.c_int), ("step", ctypes.c_int64), ("n", ctypes.c_int),
                ("names", ctypes.POINTER(ctypes.c_char_p)), ("values", ctypes.POINTER(ctypes.c_double))]


def recorder_of_keras(calls):
    def note(name):
        def hook(self, *arguments, logs=None):
            *number, logs = arguments if logs is None else (*arguments, logs)
            if name.startswith("on_epoch"):
                number = [int(number[0])]
            elif number:  # ours is the number of steps that are done
                number = [int(number[0]) + name.endswith("batch_end")]
            calls.append((name, number, sorted(set(logs or {}) - {"outputs"})))
        return hook
    return type("Recorder", (tf.keras.callbacks.Callback,), {name: note(ours) for name, ours in HOOKS.items()})()


def compare_hooks(report, mu, floatx, _):
    """The hooks of fit with validation, evaluate and predict: their order, numbers, and the names of the values. Of a
    prediction's batches Keras gives the outputs too."""
    dtype = FLOATX[floatx]
    x, y = np.ones((ROWS, 3), dtype), np.ones((ROWS, 1), dtype)
    wanted, seen = [], []
    theirs = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    theirs.compile("sgd", "mse")
    recorder = recorder_of_keras(wanted)
    theirs.fit(x, y, batch_size=12, epochs=2, validation_data=(x, y), validation_batch_size=12, callbacks=[recorder], verbose=0)
    theirs.evaluate(x, y, batch_size=12, callbacks=[recorder], verbose=0)
    theirs.predict(x, batch_size=12, callbacks=[recorder], verbose=0)
    with mu.pool():
        def note(name, address):
            logs = ctypes.cast(address, ctypes.POINTER(Logs))[0]
            number = [logs.epoch] if name.startswith("on_epoch") else [logs.step] if "batch" in name else []
            seen.append((name, number, sorted(logs.names[i].decode() for i in range(logs.n))))
            return 0
        kept = {name: HOOK(lambda logs, arg, name=name: note(name, logs)) for name in HOOKS.values()}
        ours = mu.mu_callback_new(**kept)
        model = mu.model([mu.mu_dense(units=1)])
        mu.mu_compile(model=model, optimizer=mu.mu_sgd(), loss=mu.mu_mean_squared_error_loss())
        data = mu.values([mu.tensor(x), mu.tensor(y)])
        options = {"model": model, "x": data, "batch_size": 12, "callbacks": ours, "verbose": MU_VERBOSE_SILENT}
        mu.mu_fit(epochs=2, validation_data=data, **options)
        mu.mu_evaluate(**options)
        mu.mu_predict(**options | {"x": mu.tensor(x)})
    called = {call[0] for call in seen}
    report.check(f"order of hooks, {floatx}", f"{len(seen)} calls, {len(called)} hooks",
                 seen == wanted and called == set(HOOKS.values()))


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("callbacks")
    for floatx in FLOATX:
        parts = [(compare_callback, row, row[0]) for row in CALLBACKS]
        if floatx == "f32":
            parts += [(compare_scripted, row, f"{row[0]} of {row[2]}") for row in SCRIPTED]
        parts += [(compare_defaults, row, f"{row[0]} without options") for row in DEFAULTS]
        if floatx == "f64":  # which files are written does not depend on the type
            parts += [(compare_checkpoints, options, "ModelCheckpoint") for options in CHECKPOINTS]
            parts += [(compare_saying, row, f"{row[0]} says") for row in SAYING]
        parts += [(compare_backup, row, "BackupAndRestore") for row in BESIDE]
        parts += [(compare_tensorboard, None, "TensorBoard"), (compare_summaries, None, "summaries"),
                  (compare_traced_summaries, None, "traced summaries"),
                  (compare_hooks, None, "hooks")]
        compare_parts(report, mu, floatx, parts, only)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
