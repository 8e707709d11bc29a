# Trains on two local workers: TensorFlow's MultiWorkerMirroredStrategy against Muster's, the same models from the same
# weights on the same data, and compares losses and weights as training.py does for one process.
#
# Each side runs as two processes under `muster launch`, which sets TF_CONFIG for both; their chiefs write what came
# out. It must not know how either side gets its results.
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import muster
import training
from report import Report
from training import Case

WORKERS = 2
CASES = ([Case("regression", optimizer, WORKERS, 10, rows=100) for optimizer in ("sgd", "adam")]
         + [Case("norm", "momentum", WORKERS, 48), Case("pool", "adam", WORKERS, 24, path="step")]
         + [Case("cnn", optimizer, WORKERS, 36) for optimizer in ("sgd", "adam")])


# ---- In a worker --------------------------------------------------------------------------------------

def tensorflow_runs(folder, chosen):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    for number, case in chosen:
        for floatx in training.FLOATX:
            losses, weights, first = training.train_tensorflow(tf, case, floatx, strategy)
            keep(folder, f"tensorflow{worker}", number, floatx, losses, weights)
            if worker == 0:
                keep(folder, "first", number, floatx, losses, first)


def muster_runs(folder, chosen, library):
    mu = muster.Library(library)
    strategy = mu.mu_multi_worker_mirrored_strategy()
    for number, case in chosen:
        for floatx in training.FLOATX:
            _, first = load(folder, "first", number, "f64")
            losses, weights = training.train_muster(mu, case, floatx, first, strategy)
            if mu.mu_strategy_should_checkpoint(strategy):
                keep(folder, "muster", number, floatx, losses, weights)


def path_of(folder, side, number, floatx):
    return pathlib.Path(folder) / f"{side}-{number}-{floatx}.npz"


def keep(folder, side, number, floatx, losses, weights):
    np.savez(path_of(folder, side, number, floatx), losses=losses, **{f"w:{name}": value for name, value in weights.items()})


def load(folder, side, number, floatx):
    with np.load(path_of(folder, side, number, floatx)) as kept:
        return kept["losses"], {name[2:]: kept[name] for name in kept.files if name.startswith("w:")}


def tensorflow_result(folder, number, floatx):
    """Keras lets each worker move its own statistics of batches, where Muster keeps their mean."""
    losses, weights = zip(*(load(folder, f"tensorflow{worker}", number, floatx) for worker in range(WORKERS)))
    return losses[0], {name: np.mean([each[name] for each in weights], axis=0, dtype=value.dtype)
                       for name, value in weights[0].items()}


# ---- In the process that compares ---------------------------------------------------------------------

def launch(library, folder, side, only):
    """Runs one side as workers; what it says goes to this process's standard error."""
    command = pathlib.Path(library).parent / "tools" / "muster"
    subprocess.run([command, "launch", "-n", str(WORKERS), "--replicas", "1", "--timeout", "1800", "--", sys.executable,
                    __file__, library, only, side, folder], check=True, stdout=sys.stderr)


def compare(report, library, only, chosen):
    with tempfile.TemporaryDirectory() as folder:
        for side in ("tensorflow", "muster"):
            launch(library, folder, side, only)
        for number, case in chosen:
            with report.guard(str(case)):
                training.check(report, case, {floatx: tensorflow_result(folder, number, floatx) for floatx in training.FLOATX},
                               {floatx: load(folder, "muster", number, floatx) for floatx in training.FLOATX})


def main(library, only="", side="", folder=""):
    chosen = [(number, case) for number, case in enumerate(CASES) if only in str(case)]
    if side == "tensorflow":
        tensorflow_runs(folder, chosen)
    elif side == "muster":
        muster_runs(folder, chosen, library)
    if side:
        sys.exit(0)
    report = Report("workers")
    with report.guard("two workers"):
        compare(report, library, only, chosen)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
