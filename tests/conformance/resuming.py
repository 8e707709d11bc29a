# What Keras's files leave out of a training that goes on: the state of random numbers.
import sys
import tempfile

import h5py
import keras
import numpy as np
import tensorflow as tf

import muster
from defaults import set_floatx
from report import Report


def compare_random(report, mu):
    """No file of Keras's formats has the state of random numbers, so a loaded model draws from the beginning; in Muster's own it
    continues."""
    layers, x = keras.layers, np.ones((3, 6, 4))
    theirs = keras.Sequential([keras.Input((6, 4)), layers.Dropout(0.5, seed=7), layers.GaussianNoise(0.5, seed=8),
                               layers.LSTM(3, dropout=0.5, seed=9, return_sequences=True), layers.Dense(2, name="last")])
    with tempfile.TemporaryDirectory() as folder, mu.pool():
        theirs.save(f"{folder}/new.keras")
        first, _ = theirs(x, training=True), theirs(x, training=True)
        theirs.save(f"{folder}/theirs.keras"), theirs.save_weights(f"{folder}/theirs.weights.h5")
        tf.train.Checkpoint(model=theirs).write(f"{folder}/theirs")
        names = [name for name, _ in tf.train.list_variables(f"{folder}/theirs")]
        with h5py.File(f"{folder}/theirs.weights.h5") as file:
            file.visit(names.append)
        again = keras.saving.load_model(f"{folder}/theirs.keras")(x, training=True)
        ours = mu.mu_load_model(path=f"{folder}/new.keras")
        draw = lambda model: mu.array(mu.mu_call(model=model, x=mu.tensor(x), training=True))
        drawn = [draw(ours), draw(ours)]
        mu.mu_save_model(ours, f"{folder}/ours.keras")
        mu.mu_checkpoint_save(mu.mu_checkpoint_new(model=ours), f"{folder}/all.safetensors")
        drawn += [draw(ours), draw(mu.mu_load_model(path=f"{folder}/ours.keras"))]
        other = mu.mu_load_model(path=f"{folder}/new.keras")
        mu.mu_checkpoint_restore(mu.mu_checkpoint_new(model=other), f"{folder}/all.safetensors")
        drawn.append(draw(other))
    report.check("random numbers", "none of Keras's files has a state; Keras and Muster begin again",
                 not any("seed" in name for name in names) and np.array_equal(first, again) and np.array_equal(drawn[3], drawn[0]))
    report.check("random numbers", "a checkpoint of Muster's continues",
                 np.array_equal(drawn[4], drawn[2]) and not np.array_equal(drawn[4], drawn[0]))


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("training that goes on from files")
    set_floatx(mu, "f64")
    if only in "random numbers":
        with report.guard("random numbers"):
            compare_random(report, mu)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
