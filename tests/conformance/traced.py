# Runs every sample of the op tables in Muster at once and as a compiled function, forward and backward, and compares.
#
# The function is traced with the first axis of every argument unknown, so it is another program: other kernels, fused
# and folded. What it must give is what eager execution gives, which ops.py compares with TensorFlow. A trace may refuse
# what hangs on a size that it does not know (a kernel's height, the number of parts of a split): that is counted.
# It must not know TensorFlow.
import re
import sys

import numpy as np

import muster
import op_table
import op_table_corners  # noqa: F401  (these add their rows to the table)
import op_table_nn  # noqa: F401
from ops import Ours, aslist, difference, is_float, values_of, weights_like
from report import COMPILED, Report

# By function: differences that are meant.
KNOWN = {"squeeze": "an axis of unknown size stays, as ranks are known in traces"}
ROOT_OF_SQUARE = "XLA takes the root of a square as the absolute value, so that no square is too small for its type"


def samples_of(op, dtype):
    draw = op_table.Draw(dtype, seed=len(op.name))
    samples = list(op.samples(draw))
    if op.sprinkled and samples[0].arrays:
        samples += draw.sprinkled(samples[0], values_of(op))
    return [sample for sample in samples if sample.arrays]


def results_of(mu, op, sample, inputs, weights):
    """Outputs and, where there are weights for them, gradients of the float inputs."""
    tape = mu.mu_tape_open() if weights else None
    outputs = aslist(op.ours(mu, *inputs, **sample.options))
    if not weights:
        return outputs
    sources = [tensor for tensor, array in zip(inputs, sample.arrays) if is_float(array)]
    terms = [mu.mu_reduce_sum(mu.mu_multiply(output, mu.tensor(weight)), muster.ALL_AXES)
             for output, weight in zip(outputs, weights) if weight is not None]
    loss = terms[0]
    for term in terms[1:]:
        loss = mu.mu_add(loss, term)
    found = mu.mu_gradients(tape, loss, mu.values(sources))
    mu.mu_tape_close(tape)
    return outputs + [mu.mu_at(found, i) for i in range(len(sources))]


def run_compiled(mu, op, sample, weights):
    with mu.pool():
        def step(arguments):
            inputs = [mu.mu_at(arguments, i) for i in range(len(sample.arrays))]
            return mu.values(results_of(mu, op, sample, inputs, weights))

        function, _callback = mu.function(step)
        found = mu.mu_run(mu.strategy, function, mu.values([mu.tensor(array) for array in sample.arrays]))
        return [mu.array(mu.mu_at(found, i)) for i in range(mu.mu_value_count(found))]


def compare_sample(mu, op, sample, backward):
    """What differs, as text; None if eager execution or the trace refuses the sample."""
    try:
        outputs, gradients = Ours(mu).run(op, sample, weights_like if backward else None)
        weights = [weights_like(array) if is_float(array) else None for array in outputs] if backward else None
        compiled = run_compiled(mu, op, sample, weights)
    except muster.MusterError:
        return None
    wanted = outputs + (gradients or [])
    texts = (difference(found, array, False, op.slack * (1 if i < len(outputs) else 2))
             for i, (found, array) in enumerate(zip(compiled, wanted, strict=True)))
    return next(filter(None, texts), "")


def has_small_square(sample):
    """Whether a square underflows, in a type that NumPy knows."""
    x = sample.arrays[0]
    sizes = np.abs(x[np.isfinite(x)]) if x.dtype.kind == "f" else np.zeros(0)
    return bool(np.any((sizes > 0) & (sizes < np.sqrt(np.finfo(x.dtype).tiny)))) if sizes.size else False


def meaning_of(mu, op, sample):
    """Why a difference is meant; None: it is not."""
    if mu.device and op.function == "norm" and has_small_square(sample):
        return ROOT_OF_SQUARE
    return KNOWN.get(op.function)


def compare(report, mu, op):
    passed, refused, failures, meant = 0, 0, [], []
    for dtype in op.dtypes:
        for number, sample in enumerate(samples_of(op, dtype)):
            text = compare_sample(mu, op, sample, op.gradient and dtype in op_table.FLOATS)
            if text is None:
                refused += 1
            elif not text:
                passed += 1
            elif meaning_of(mu, op, sample):
                meant.append(f"{dtype}, sample {number}: {meaning_of(mu, op, sample)}")
            else:
                failures.append(f"{dtype}, sample {number} {[list(array.shape) for array in sample.arrays]}: {text}")
    report.row(op.name, f"{passed} samples" + (f", {refused} refused" if refused else ""), passed, failures[:3], meant[:1])


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("traced", COMPILED)
    for op in op_table.TABLE:
        if re.search(only, op.name):
            compare(report, mu, op)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
