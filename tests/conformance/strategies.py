# Programs of distributed values, run by TensorFlow's tf.distribute and by Muster: what comes out must be the same, in value,
# type and shape, or fail with the same code. Each program runs under several strategies, in Muster eagerly and traced.
#
# It must not know how either side gets its results (strategy_sides.py), nor what the programs do (strategy_programs.py).
import sys

import numpy as np

import muster
import strategy_sides
from report import Report
from strategy_programs import PROGRAMS
from strategy_sides import Error, Muster, TensorFlow

TOLERANCE = {"float64": 1e-12, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def outcomes(side, program, kind):
    """Label and outcome of each step of a program."""
    return [(label, side.attempt(lambda: side.look(thunk()))) for label, thunk in program(side, side.strategy(kind))]


def same(ours, theirs):
    if isinstance(ours, Error) or isinstance(theirs, Error):
        return isinstance(ours, Error) and isinstance(theirs, Error) and ours.code == theirs.code
    if isinstance(theirs, (list, tuple)):
        return isinstance(ours, (list, tuple)) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in theirs)
    if theirs is None or isinstance(theirs, (bool, int, str)):
        return ours == theirs
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.dtype.kind == theirs.dtype.kind == "O":
        return ours.shape == theirs.shape and (ours == theirs).all()
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    bound = TOLERANCE.get(ours.dtype.name, 0)
    wide = np.float64 if bound else ours.dtype
    return bool(np.allclose(ours.astype(wide), theirs.astype(wide), rtol=bound, atol=bound, equal_nan=bool(bound)))


def short(outcome):
    if isinstance(outcome, Error):
        return repr(outcome)
    if isinstance(outcome, (list, tuple)):
        return "[" + ", ".join(map(short, outcome)) + "]"
    if isinstance(outcome, dict):
        return "{" + ", ".join(f"{key}: {short(item)}" for key, item in outcome.items()) + "}"
    if hasattr(outcome, "dtype"):
        return f"{outcome.dtype.name}{list(outcome.shape)} {np.asarray(outcome).ravel().tolist()[:8]}"
    return repr(outcome)


def compare(mu, program, kind):
    """What agrees, failures and differences that are meant. TensorFlow runs eagerly, Muster also traced."""
    passed, failures, known = 0, [], []
    theirs = outcomes(TensorFlow(False), program.run, kind)
    for traced in (False, True) if program.traced else (False,):
        with mu.pool():
            ours = outcomes(Muster(traced, mu), program.run, kind)
        for (label, own), (_, rival) in zip(ours, theirs, strict=True):
            text = f"{kind} {'traced' if traced else 'eager'} {label}: {short(own)}; TensorFlow {short(rival)}"
            reason = program.reason(label, kind, traced)
            if same(own, rival):
                passed += 1
            elif reason:
                known.append(f"{text}: {reason}")
            else:
                failures.append(text)
    return passed, failures, known


def main(library, text=""):
    TensorFlow.start()
    mu = muster.Library(library, cpu_devices=strategy_sides.CPUS)
    report = Report("strategies")
    for program in PROGRAMS:
        if text not in program.name:
            continue
        with report.guard(program.name):
            passed, failures, known = zip(*(compare(mu, program, kind) for kind in program.kinds))
            report.row(program.name, " ".join(program.kinds), sum(passed), sum(failures, []), sum(known, []))
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
