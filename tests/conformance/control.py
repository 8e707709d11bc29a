# Control flow in TensorFlow and in Muster: values and gradients of scans, loops, branches and maps, in float64, eager
# and as traced functions.
#
# Each case is written twice, once with each library's ops, over the same random inputs; callbacks reach the library as
# C function pointers. It must not know how graphs are made or run.
import ctypes
import sys

import numpy as np
import tensorflow as tf

import muster
from report import Report

TOLERANCE = 1e-12
SCAN_STEP = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Control:
    """What the cases need of the library: callbacks over lists of tensors, kept alive as long as this is."""

    def __init__(self, mu):
        self.mu, self.kept = mu, []

    def body(self, function):
        mu = self.mu
        callback = muster.STEP(lambda value, _: mu.call_back(lambda: mu.values(function(*self.parts(value))), None))
        self.kept.append(callback)
        return callback

    def condition(self, function):
        callback = muster.STEP(lambda value, _: self.mu.call_back(lambda: function(*self.parts(value)), None))
        self.kept.append(callback)
        return callback

    def step(self, function):
        mu = self.mu
        callback = SCAN_STEP(lambda state, element, _: mu.call_back(
            lambda: mu.values(function(self.parts(state), self.parts(element))), None))
        self.kept.append(callback)
        return callback

    def parts(self, value):
        return [self.mu.mu_at(value, i) for i in range(self.mu.mu_value_count(value))]

    def total(self, x):
        return self.mu.mu_reduce_sum(x, muster.ALL_AXES)

    def number(self, value):
        return self.mu.mu_constant(muster.DTYPES[np.dtype(np.float64)], value)


def scan_of_cells(c, x, w, b):
    def step(state, element):
        z = c.mu.mu_add(c.mu.mu_matmul(c.mu.mu_concat(2, [element[0], state[0]], 1), w), b)
        return [c.mu.mu_tanh(z)]

    start = c.mu.mu_zeros(muster.DTYPES[np.dtype(np.float64)], 2, [2, 4])
    states = c.mu.mu_scan(fn=c.step(step), elems=c.mu.values([x]), initializer=c.mu.values([start]))
    return c.total(c.mu.mu_square(c.mu.mu_at(states, 0)))


def scan_of_cells_tf(x, w, b):
    states = tf.scan(lambda h, e: tf.tanh(tf.matmul(tf.concat([e, h], 1), w) + b), x, tf.zeros([2, 4], tf.float64))
    return tf.reduce_sum(tf.square(states))


def loop(c, x, s, bound=0):
    done = c.mu.mu_while_loop(condition=c.condition(lambda a: c.mu.mu_less(c.total(a), c.number(20))), loop_vars=c.mu.values([x]),
                              body=c.body(lambda a: [c.mu.mu_add(c.mu.mu_multiply(a, s), c.mu.mu_sin(a))]), maximum_iterations=bound)
    return c.total(c.mu.mu_square(c.mu.mu_at(done, 0)))


def loop_tf(x, s, bound=None):
    done = tf.while_loop(lambda a: tf.reduce_sum(a) < 20, lambda a: [a * s + tf.sin(a)], [x], maximum_iterations=bound)
    return tf.reduce_sum(tf.square(done[0]))


def branch(c, x, s):
    positive = c.mu.mu_greater(c.total(x), c.number(0))
    picked = c.mu.mu_cond(positive, c.body(lambda a, b: [c.mu.mu_multiply(c.mu.mu_exp(a), b)]),
                          c.body(lambda a, b: [c.mu.mu_multiply(c.mu.mu_square(a), a)]), c.mu.values([x, s]), None)
    return c.total(c.mu.mu_at(picked, 0))


def branch_tf(x, s):
    return tf.reduce_sum(tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x) * s, lambda: tf.square(x) * x))


def rows(c, x, w):
    mapped = c.mu.mu_vectorized_map(c.body(lambda a: [c.mu.mu_matmul(c.mu.mu_expand_dims(a, 0), w)]), c.mu.values([x]), None)
    return c.total(c.mu.mu_tanh(c.mu.mu_at(mapped, 0)))


def rows_tf(x, w):
    return tf.reduce_sum(tf.tanh(tf.vectorized_map(lambda a: tf.matmul(a[None], w), x)))


CASES = [
    ("scan of a recurrent cell", scan_of_cells, scan_of_cells_tf, [(5, 2, 3), (7, 4), (4,)], 0),
    ("while_loop", loop, loop_tf, [(4,), (4,)], 1),
    ("while_loop, maximum_iterations 9", lambda c, x, s: loop(c, x, s, 9), lambda x, s: loop_tf(x, s, 9), [(4,), (4,)], 1),
    ("cond, true", branch, branch_tf, [(6,), (6,)], 1),
    ("cond, false", branch, branch_tf, [(6,), (6,)], -1),
    ("vectorized_map", rows, rows_tf, [(5, 3), (3, 2)], 0),
]


def ours(c, function, inputs, traced):
    mu, n = c.mu, len(inputs)

    def step(batch):
        # A traced function does not know its first axes; these cases need them.
        xs = [mu.mu_reshape(mu.mu_at(batch, i), inputs[i].ndim, list(inputs[i].shape)) for i in range(n)]
        tape = mu.mu_tape_open()
        y = function(c, *xs)
        slopes = mu.mu_gradients(tape, y, mu.values(xs))
        return mu.values([y, *(mu.mu_at(slopes, i) for i in range(n))])

    batch = mu.values([mu.tensor(array) for array in inputs])
    if traced:
        made, callback = mu.function(step)
        c.kept.append(callback)
        result = mu.mu_run(mu.strategy, made, batch)
    else:
        result = step(batch)
    return [mu.array(mu.mu_at(result, i)) for i in range(n + 1)]


def theirs(function, inputs):
    @tf.function
    def run(*xs):
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = function(*xs)
        return y, *tape.gradient(y, xs, unconnected_gradients="zero")

    return [value.numpy() for value in run(*(tf.constant(array) for array in inputs))]


def refused(c, function, inputs):
    """Whether the device refuses: the gradient of a loop without a bound keeps a value of every round, so no size is known."""
    try:
        ours(c, function, inputs, True)
    except muster.MusterError as error:
        return "known only at run time" in str(error)
    return False


def main():
    mu = muster.Library(sys.argv[1])
    report = Report("Control flow: values and gradients, float64")
    text = sys.argv[2] if len(sys.argv) > 2 else ""
    for name, function, oracle, shapes, sign in CASES:
        if text not in name:
            continue
        random = np.random.default_rng(11)
        inputs = [random.standard_normal(shape) if sign == 0 else sign * (0.5 + random.random(shape)) for shape in shapes]
        for traced in (False, True):
            with report.guard(name), mu.pool():
                if mu.device and traced and name == "while_loop":
                    report.check(f"{name}, traced", "refused by name", refused(Control(mu), function, inputs))
                    continue
                found, wanted = ours(Control(mu), function, inputs, traced), theirs(oracle, inputs)
                off = max(float(np.max(np.abs(a - b) / (1 + np.abs(b)))) for a, b in zip(found, wanted, strict=True))
                report.check(f"{name}, {'traced' if traced else 'eager'}", f"off by {off:.1e}", off <= TOLERANCE)
    return report.finish()


sys.exit(main())
