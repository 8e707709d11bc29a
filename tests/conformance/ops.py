# Runs every op of the tables in TensorFlow and in Muster on the same inputs, forward and backward, and compares.
#
# A check is one op, one dtype, one direction, over all samples. Integers, bools and what only moves numbers must agree in
# every bit; floats within the tolerance of their type. A dtype that TensorFlow does not have is named, not counted; one
# that Muster alone refuses fails, unless known.py lists it (LACKING), and so does what is listed but no longer refused.
# It must not know any op: what to call, and with which arguments, is in op_table.py and op_table_nn.py.
import operator
import re
import sys

import numpy as np

import muster
import op_table
import op_table_corners  # noqa: F401  (these add their rows to the table)
import op_table_nn  # noqa: F401
from known import KNOWN, LACKING, NOT_COMPARED, NOT_COMPARED_TYPES
from report import Report

TOLERANCE = {"f64": 2e-14, "f32": 1e-6, "f16": 2e-3, "bf16": 1.6e-2}


class NotInTensorFlow(Exception):
    """TensorFlow does not have the op for this dtype."""


class Refused(Exception):
    """Muster alone refuses the first sample of this dtype."""


def aslist(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


class Ours:
    def __init__(self, mu):
        self.mu = mu

    def run(self, op, sample, weights_of):
        """Outputs and, where asked for, the gradients of the float inputs."""
        mu = self.mu
        with mu.pool():
            inputs = [mu.tensor(array) for array in sample.arrays]
            sources = [tensor for tensor, array in zip(inputs, sample.arrays) if is_float(array)]
            tape = mu.mu_tape_open() if weights_of else None
            outputs = aslist(op.ours(mu, *inputs, **sample.options))
            arrays = [mu.array(output) for output in outputs]
            gradients = None
            if weights_of:
                terms = [mu.mu_reduce_sum(mu.mu_multiply(output, mu.tensor(weights_of(array))), muster.ALL_AXES)
                         for output, array in zip(outputs, arrays) if is_float(array)]
                loss = terms[0]
                for term in terms[1:]:
                    loss = mu.mu_add(loss, term)
                found = mu.mu_gradients(tape, loss, mu.values(sources))
                gradients = [mu.array(mu.mu_at(found, i)) for i in range(len(sources))]
                mu.mu_tape_close(tape)
            return arrays, gradients


class Theirs:
    def __init__(self, tf):
        self.tf = tf

    def call(self, op, inputs, options):
        if isinstance(op.theirs, str):
            return operator.attrgetter(op.theirs)(self.tf)(*inputs, **options)
        return op.theirs(self.tf, *inputs, **options)

    def run(self, op, sample, weights_of):
        tf = self.tf
        inputs = [tf.constant(array.astype(np.float64) if sample.in_f64 else array) for array in sample.arrays]
        sources = [tensor for tensor, array in zip(inputs, sample.arrays) if is_float(array)]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = [tf.convert_to_tensor(output) for output in aslist(self.call(op, inputs, sample.options))]
        arrays = [output.numpy() for output in outputs]
        if sample.in_f64:
            with np.errstate(all="ignore"):
                arrays = [array.astype(sample.arrays[0].dtype) if array.dtype == np.float64 else array for array in arrays]
        gradients = None
        if weights_of:
            kept = [(output, tf.constant(weights_of(array))) for output, array in zip(outputs, arrays) if is_float(array)]
            found = tape.gradient([output for output, _ in kept], sources, [weights for _, weights in kept])
            gradients = [tf.zeros_like(source).numpy() if gradient is None else tf.convert_to_tensor(gradient).numpy()
                         for source, gradient in zip(sources, found)]
        return arrays, gradients


def is_float(array):
    return array.dtype.kind == "f" or array.dtype == op_table.NUMPY["bf16"]


def weights_like(array):
    """Numbers that follow from the shape alone, as the gradient that comes in."""
    return (0.5 + (np.arange(array.size) * 7 % 11) / 8).reshape(array.shape).astype(array.dtype)


# ---- Comparing ----------------------------------------------------------------------------------------

def difference(ours, theirs, exact, slack):
    """What differs, as text; empty if nothing does."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    if not is_float(ours):
        bad = ours != theirs
    else:
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        name = next(name for name, dtype in op_table.NUMPY.items() if dtype == ours.dtype)
        tolerance = 0 if exact else TOLERANCE[name] * slack
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= tolerance * (1 + np.abs(b))
        tiny = float(op_table.ml_dtypes.finfo(ours.dtype).tiny)
        flushed = (np.abs(a) < tiny) & (b == 0)  # TensorFlow takes and gives denormal numbers as zero
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if exact:
            same &= np.isnan(a) | (np.signbit(a) == np.signbit(b))
        bad = ~(same | flushed | (np.isfinite(a) & np.isfinite(b) & near))
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} elements, first at {list(place)}: {ours[place]!r} instead of {theirs[place]!r}"


def attempt(side, op, sample, weights_of):
    """The result, or the exception that the side raised."""
    try:
        return side.run(op, sample, weights_of)
    except Exception as error:
        return error


def check(sides, op, dtype, backward):
    """What differs, as pairs of the kind of sample and a text. Raises where a side has no such op."""
    draw = op_table.Draw(dtype, seed=len(op.name))
    samples = list(op.samples(draw))
    if op.sprinkled:
        samples += draw.sprinkled(samples[0], values_of(op))
    found = []
    for number, sample in enumerate(samples):
        if backward and sample.in_f64:
            continue
        ours, theirs = (attempt(side, op, sample, weights_like if backward else None) for side in sides)
        if number == 0 and isinstance(theirs, Exception):
            raise NotInTensorFlow
        if number == 0 and isinstance(ours, Exception):
            raise Refused(first_line(ours))
        if isinstance(ours, Exception) and isinstance(theirs, Exception):
            continue
        text = differences(op, sample, ours, theirs, backward)
        if text:
            shapes = [list(array.shape) for array in sample.arrays]
            found.append((sample.kind, f"sample {number} {shapes} {sample.options or ''}: {text}{describe(sample)}"))
    return found


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def values_of(op):
    """Which inputs of the first sample are values: those that follow the type asked for. The others are indices."""
    probe = op_table.Draw("f16", seed=1)
    return [array.dtype == probe.dtype for array in next(iter(op.samples(probe))).arrays]


def differences(op, sample, ours, theirs, backward):
    """The first difference of one sample's results; empty if there is none."""
    for side, result in (("Muster", ours), ("TensorFlow", theirs)):
        if isinstance(result, Exception):
            return f"{side} alone fails: {first_line(result)}"
    for ours_array, theirs_array in zip(ours[backward], theirs[backward], strict=True):
        text = difference(ours_array, theirs_array, op.exact and not backward, op.slack * (2 if backward else 1))
        if text:
            return text
    return ""


def describe(sample):
    if not all(array.size <= 24 for array in sample.arrays):
        return ""
    return "; inputs " + ", ".join(np.array2string(array, separator=",").replace("\n", "") for array in sample.arrays)


def reason(op, direction, kind):
    """Why this row, or all rows of its function, differ there; None if nothing is known of it."""
    return next((KNOWN[name, direction, kind] for name in (op.name, op.name.split(" (")[0], op.function) if (name, direction, kind) in KNOWN), None)


def compare(report, sides, op):
    done, absent, failures, meant = {False: [], True: []}, [], [], []
    for backward in (False, True) if op.gradient else (False,):
        direction = "gradient" if backward else "forward"
        for dtype in op.dtypes:
            if backward and dtype not in op_table.FLOATS:
                continue
            try:
                found = check(sides, op, dtype, backward)
            except NotInTensorFlow:
                absent.append(dtype)
                continue
            except Refused as refusal:
                why = LACKING.get((op.function, dtype))
                (meant if why else failures).append(f"{direction} {dtype}: Muster alone refuses it: {why or refusal}")
                continue
            known = [(kind, text) for kind, text in found if reason(op, direction, kind)]
            meant += [f"{direction} {dtype}, {kind}: {reason(op, direction, kind)}" for kind, _ in known]
            if not found:
                done[backward].append(dtype)
            elif len(found) > len(known):
                failures.append(f"{direction} {dtype}: " + next(text for pair in found if pair not in known for text in pair[1:]))
    text = " ".join(done[False]) + (" | gradient " + " ".join(done[True]) if done[True] else "")
    text += f" | not in TensorFlow: {' '.join(dict.fromkeys(absent))}" if absent else ""
    report.row(op.name, text, passed=len(done[False]) + len(done[True]), failures=failures, known=meant)


def main(library, only=""):
    import tensorflow as tf

    sides = Ours(muster.Library(library)), Theirs(tf)
    report = Report("ops")
    for op in op_table.TABLE:
        if re.search(only, op.name):
            compare(report, sides, op)
    if not only:
        compare_types(report, sides)
        for name in sorted(uncovered(sides[0].mu)):
            report.row(name, "", passed=0, failures=["the table has no row for it, and known.py gives no reason"])
    return report


def compare_types(report, sides):
    """Types, forward, that no row of the function compares: TensorFlow must refuse them too, or LACKING name them."""
    compared = {}
    for op in op_table.TABLE:
        compared.setdefault(op.function, set()).update(op.dtypes)
    refused = set()
    for op in {op.function: op for op in reversed(op_table.TABLE)}.values():
        missing, failures = [], []
        for dtype in op_table.TYPES:
            if (op.function, dtype) in NOT_COMPARED_TYPES:
                continue
            ours = muster_where_tensorflow_takes(sides, op, dtype)
            if isinstance(ours, Exception):
                refused.add((op.function, dtype))
                if (op.function, dtype) not in LACKING and dtype not in compared[op.function]:
                    failures.append(f"{dtype}: Muster alone refuses it, and LACKING does not name it: {first_line(ours)}")
            elif ours and dtype not in compared[op.function]:
                missing.append(dtype)
        if missing:
            failures.append(f"both have it for {' '.join(missing)}, and no row compares that")
        if failures:
            report.row(op.function, "", passed=0, failures=failures)
    for function, dtype in sorted(set(LACKING) - refused):
        report.row(function, "", passed=0, failures=[f"LACKING names {dtype}, which Muster does not refuse alone; take it out"])


def muster_where_tensorflow_takes(sides, op, dtype):
    """Muster's result or refusal of a type that TensorFlow takes; None if TensorFlow refuses it or no input is of it."""
    draw = op_table.Draw(dtype, seed=1)
    try:
        sample = next(iter(op.samples(draw)))
    except Exception:  # the row's numbers do not exist in this type
        return None
    if sample.arrays and not any(array.dtype == draw.dtype for array in sample.arrays):
        return None  # NumPy made another type of them
    ours, theirs = (attempt(side, op, sample, None) for side in sides)
    return None if isinstance(theirs, Exception) else ours


def uncovered(mu):
    """Functions of the op headers that no row has called."""
    text = "".join(re.sub("//.*", "", (muster.ROOT / "include" / "muster" / name).read_text()) for name in ("ops.h", "nn.h"))
    declared = {name.removesuffix("_with") for name in re.findall(r"MU_API [^;(]*?\b(mu_\w+)\(", text)}
    return declared - set(mu.cached) - set(NOT_COMPARED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
