# Rows for what is easily got wrong: nothing to reduce, no axes at all, many axes, ties, NaN in orders, indices outside,
# bounds beyond the ends, masks that hide everything, sums that a short float cannot hold.
#
# A sample that both sides refuse passes: so errors are compared too, as long as the first sample of a row succeeds.
# It must not know how samples are run or compared (ops.py).
import ctypes

import numpy as np

import muster
from op_table import FLOATS, INTEGERS, NUMBERS, NUMPY, TYPES, WIDE, Sample, add

ALL = muster.ALL_AXES
NAN, INF = np.nan, np.inf


def values(draw, *rows):
    """The given numbers in the type of the draw."""
    return np.array(rows[0] if len(rows) == 1 else rows, np.float64).astype(draw.dtype)


def pair(mu, call):
    out = (ctypes.c_void_p * 2)()
    call(ctypes.byref(out, 0), ctypes.byref(out, 8))
    return list(out)


def edge(*arrays, **options):
    return Sample(*arrays, kind="edges", **options)


# ---- Integers -----------------------------------------------------------------------------------------

def add_whole_division():
    """Every quotient of limits, small numbers and their neighbours; the least by -1 overflows in C and traps in TensorFlow."""
    def quotients(draw):
        edges = draw.edges().astype(object)
        pairs = [(a, b) for a in edges for b in edges if b != 0 and not (b == -1 and a == edges[0])]
        yield Sample(*(np.array(column, draw.dtype) for column in zip(*pairs)))
        yield edge(np.array([1, 2], draw.dtype), np.array([1, 0], draw.dtype))

    def powers(draw):
        yield Sample(draw.edges()[:, None], np.array([[0, 1, 2, 3, 7, 31, 33, 64]], draw.dtype))
        yield edge(np.array([2, 2], draw.dtype), np.array([1, -1 if draw.name != "u8" else 1], draw.dtype))

    for name, theirs in (("floor_divide", "floordiv"), ("mod", "floormod")):
        add(f"{name} (limits)", f"math.{theirs}", quotients, INTEGERS, ours=lambda mu, a, b, name=name: getattr(mu, f"mu_{name}")(a, b))
    add("pow (limits)", "pow", powers, INTEGERS, ours=lambda mu, x, y: mu.mu_pow(x, y))


def add_powers():
    def corners(draw):
        numbers = values(draw, [0, -0.0, 1, -1, 2, -2, 0.5, INF, -INF, NAN])
        exponents = values(draw, [0, -0.0, 1, -1, 2, 3, -3, 0.5, -0.5, INF, -INF, NAN])
        yield Sample(numbers[:, None], exponents[None, :])

    add("pow (corners)", "pow", corners, FLOATS, slack=4, ours=lambda mu, x, y: mu.mu_pow(x, y))


def add_casts():
    def beyond(draw):
        yield Sample(values(draw, [0, -0.0, 0.5, -0.5, 0.99, -0.99, 127.5, 100.9, 1.5, 2.5]))
        yield edge(values(draw, [300, -300, 1e5, -1e5, 1e10, -1e10, 1e20, -1e20, INF, -INF, NAN]))

    for target in INTEGERS + ("bool",):
        number = muster.DTYPES[np.dtype(NUMPY[target])]
        add(f"cast to {target} (beyond)", lambda tf, x, target=target: tf.cast(x, NUMPY[target]), beyond, FLOATS, gradient=False,
            ours=lambda mu, x, number=number: mu.mu_cast(x, number))


# ---- Reductions ---------------------------------------------------------------------------------------

def add_reductions():
    def nothing(draw):
        for shape, axes in (((2, 0), (1,)), ((0, 3), (0,)), ((0, 3), (1,)), ((0,), (0,)), ((2, 0, 3), (0, 2)), ((), ()),
                            ((0, 0), (0, 1))):
            yield Sample(draw(*shape), axes=axes, keep=False)

    def many_axes(draw):
        yield Sample(draw(2, 1, 3, 2, 1, 2), axes=(0, 2, 5), keep=True)
        yield Sample(draw(2, 1, 3, 2, 1, 2, 2), axes=(-1, 1, 3), keep=False)
        yield Sample(draw(3, 4), axes=(5,), keep=False)
        yield Sample(draw(3, 4), axes=(0, 0), keep=False)

    def limits(draw):
        yield Sample(np.concatenate([draw.edges()] * 3), axes=(0,), keep=False)
        yield Sample(np.stack([draw.edges()] * 70, 1), axes=(0,), keep=False)
        yield Sample(np.stack([draw.edges()] * 70, 1), axes=(1,), keep=True)

    def long(draw):
        yield edge(draw(3000, low=0.1, high=1), axes=(0,), keep=False)
        yield edge(draw(2, 5000, low=0.1, high=1), axes=(1,), keep=False)
        yield edge(draw(5000, 3, low=0.1, high=1), axes=(0,), keep=False)

    def ties(draw):
        for row in ([1, 3, 3, 0], [2, 2, 2, 2], [-0.0, 0, -0.0, 0]):
            yield Sample(values(draw, row), axes=(0,), keep=False)

    def reduction(name):
        return dict(theirs=lambda tf, x, axes, keep: getattr(tf.math, f"reduce_{name}")(x, axis=list(axes), keepdims=keep),
                    ours=lambda mu, x, axes, keep: getattr(mu, f"mu_reduce_{name}")(
                        x, axes=list(axes), n_axes=len(axes), keep_dims=keep))

    for name in ("sum", "mean", "max", "min", "prod", "any", "all", "logsumexp", "variance", "std"):
        dtypes = ("bool",) if name in ("any", "all") else FLOATS if name in ("logsumexp", "variance", "std") else NUMBERS
        for note, samples in (("nothing", nothing), ("many axes", many_axes)):
            add(f"reduce_{name} ({note})", samples=samples, dtypes=dtypes, slack=16, **reduction(name))
        if name in ("sum", "mean", "max", "min", "prod"):
            add(f"reduce_{name} (limits)", samples=limits, dtypes=INTEGERS, slack=16, **reduction(name))
        if name in ("max", "min"):
            add(f"reduce_{name} (ties)", samples=ties, dtypes=NUMBERS, **reduction(name))
        if name in ("sum", "mean", "logsumexp", "variance", "std"):
            add(f"reduce_{name} (long)", samples=long, dtypes=FLOATS, slack=16, **reduction(name))

    def too_large(draw):
        yield edge(values(draw, [60000] * 4), axes=(0,), keep=False)
        yield edge(values(draw, [40000, 40000, -40000, -40000]), axes=(0,), keep=False)

    for name in ("sum", "mean"):
        add(f"reduce_{name} (too large for f16)", samples=too_large, dtypes=("f16",), **reduction(name))


def add_places():
    def orders(draw):
        yield Sample(values(draw, [[1, 3, 3, 0], [2, 2, 2, 2], [-1, -0.0, 0, -7]]), axis=1)
        yield Sample(draw(2, 3, 1), axis=-1)
        yield Sample(draw(0, 3), axis=1)
        yield Sample(draw(2, 3, 2, 1, 2, 2), axis=2)
        yield Sample(draw(2, 0), axis=1)
        yield Sample(draw(3, 2), axis=2)

    def odd(draw):
        yield edge(values(draw, [[1, NAN, 3, NAN], [NAN, NAN, NAN, NAN], [INF, NAN, -INF, 0], [-INF, -INF, INF, INF]]), axis=1)
        yield edge(values(draw, [[1, NAN, 3, NAN], [NAN, NAN, NAN, NAN], [INF, NAN, -INF, 0], [-INF, -INF, INF, INF]]), axis=0)

    for name in ("argmax", "argmin"):
        row = dict(theirs=lambda tf, x, axis, name=name: getattr(tf, name)(x, axis), gradient=False,
                   ours=lambda mu, x, axis, name=name: getattr(mu, f"mu_{name}")(x, axis))
        add(f"{name} (ties, nothing)", samples=orders, dtypes=NUMBERS, **row)
        add(f"{name} (NaN)", samples=odd, dtypes=FLOATS, **row)


def add_running():
    def samples(draw):
        for exclusive in (False, True):
            for reverse in (False, True):
                for shape, axis in (((3, 1), 1), ((0,), 0), ((3, 0, 2), 1), ((0, 3), -1), ((2, 1, 3, 2, 1, 2), 2)):
                    yield Sample(draw(*shape, low=0.5, high=2), axis=axis, exclusive=exclusive, reverse=reverse)
        yield Sample(draw(3), axis=1, exclusive=False, reverse=False)

    def odd(draw):
        for exclusive in (False, True):
            for reverse in (False, True):
                for row in ([1, INF, 2, -INF, 3], [0, 2, 0, 3, 4], [1, NAN, 0, 2, INF], [-0.0, -0.0, 1, -0.0, 0]):
                    yield edge(values(draw, row), axis=0, exclusive=exclusive, reverse=reverse)

    def limits(draw):
        yield Sample(draw.edges(), axis=0, exclusive=False, reverse=False)
        yield Sample(draw.edges(), axis=0, exclusive=True, reverse=True)

    for name in ("cumsum", "cumprod"):
        row = dict(theirs=lambda tf, x, name=name, **options: getattr(tf.math, name)(x, **options), slack=8,
                   ours=lambda mu, x, name=name, **options: getattr(mu, f"mu_{name}")(x, *options.values()))
        add(f"{name} (nothing)", samples=samples, dtypes=NUMBERS, **row)
        add(f"{name} (zeros, infinities)", samples=odd, dtypes=FLOATS, **row)
        add(f"{name} (limits)", samples=limits, dtypes=INTEGERS, **row)


# ---- Orders -------------------------------------------------------------------------------------------

def add_orders():
    def rows(draw):
        yield Sample(draw.distinct(2, 5))
        yield Sample(draw.distinct(1, 1))
        yield Sample(draw(3, 0))
        yield Sample(draw(0, 3))
        yield Sample(np.stack([draw.edges()[3 if draw.name in FLOATS else 0:]] * 2))
        yield Sample(values(draw, [[2, 1, 2, 1, 0], [0, 0, 0, 0, 0]]))

    def odd(draw):
        yield edge(values(draw, [[1, NAN, 3, -INF, INF], [0, -0.0, 0, -0.0, 1], [NAN, 2, NAN, 1, NAN]]))

    def top(draw):
        for k in (0, 1, 4):
            yield Sample(values(draw, [[1, 3, 3, 0, 3], [2, 2, 2, 2, 2]]), k=k)
        yield Sample(draw(0, 3), k=2)
        yield Sample(draw.edges(), k=3) if draw.name not in FLOATS else Sample(draw(7), k=7)
        yield Sample(draw(3), k=4)
        yield Sample(draw(), k=1)

    def top_odd(draw):
        for k in (1, 3, 5):
            yield edge(values(draw, [[1, NAN, 3, -INF, INF], [0, -0.0, 0, -0.0, 1], [NAN, 2, NAN, 1, NAN]]), k=k)

    for descending in (False, True):
        direction = "DESCENDING" if descending else "ASCENDING"
        note = direction.lower()
        for kind, samples in (("corners", rows), ("NaN", odd)):
            dtypes = NUMBERS if kind == "corners" else FLOATS
            add(f"sort ({kind}, {note})", lambda tf, x, direction=direction: tf.sort(x, -1, direction), samples, dtypes,
                gradient=False, ours=lambda mu, x, descending=descending: mu.mu_sort(x, -1, descending))
            add(f"argsort ({kind}, {note})", lambda tf, x, direction=direction: tf.argsort(x, -1, direction, stable=True), samples,
                dtypes, gradient=False, ours=lambda mu, x, descending=descending: mu.mu_argsort(x, -1, descending))
    for kind, samples in (("corners", top), ("NaN", top_odd)):
        add(f"top_k ({kind})", lambda tf, x, k: list(tf.math.top_k(x, k)), samples, NUMBERS if kind == "corners" else FLOATS,
            ours=lambda mu, x, k: pair(mu, lambda a, b: mu.mu_top_k(x, k, a, b)))
    for kind in ("corners", "NaN"):
        def unique(draw, kind=kind):
            yield Sample(draw(1))
            yield Sample(draw(0))
            yield edge(np.concatenate([draw.edges()[5 if kind == "corners" else 0:]] * 2))
            yield edge(values(draw, [0, -0.0, 1, -0.0, 1]) if kind == "corners" else values(draw, [NAN, 1, NAN, INF, INF, -INF]))
            yield Sample(draw(2, 2))
        add(f"unique ({kind})", lambda tf, x: list(tf.unique(x)), unique, NUMBERS if kind == "corners" else FLOATS, gradient=False,
            ours=lambda mu, x: pair(mu, lambda a, b: mu.mu_unique(x, a, b)))
    for right in (False, True):
        def placed(draw):
            yield Sample(values(draw, [[1, 2, 2, 5]]), values(draw, [[0, 1, 2, 5, 6, 3]]))
            yield Sample(draw(2, 0), draw(2, 3))
            yield Sample(draw(2, 3), draw(2, 0))
            yield Sample(np.sort(draw.edges()), draw.edges()) if draw.name in INTEGERS else edge(
                values(draw, [-INF, 0, 1, INF]), values(draw, [NAN, -INF, INF, 0.5, -0.0]))
            if draw.name in FLOATS:
                yield edge(values(draw, [0, 1, NAN]), values(draw, [NAN, INF, 2]))
            yield Sample(draw(2, 3), draw(3, 3))
        add(f"searchsorted (corners, {'right' if right else 'left'})",
            lambda tf, s, v, right=right: tf.searchsorted(s, v, "right" if right else "left"), placed, NUMBERS, gradient=False, sprinkled=False,
            ours=lambda mu, s, v, right=right: mu.mu_searchsorted(s, v, right))


# ---- Shapes -------------------------------------------------------------------------------------------

def add_shapes():
    def strided(draw):
        for begin, end, strides, masks in (
                ([1, 0], [4, 5], [2, 1], (0, 0, 0)), ([9, 0], [-9, 99], [-1, 1], (0, 0, 0)), ([-99, 5], [99, -99], [1, -2], (0, 0, 0)),
                ([3, 0], [1, 5], [1, 1], (0, 0, 0)), ([0, 3], [5, 3], [1, 1], (0, 0, 0)), ([4, 0], [-6, 6], [-3, 4], (0, 0, 0)),
                ([0, 0], [0, 0], [-1, -1], (3, 3, 0)), ([-1, -6], [0, 0], [1, 1], (0, 2, 1)), ([2, 1], [0, 0], [1, -1], (0, 2, 0)),
                ([0, 0], [5, 6], [7, 9], (0, 0, 0)), ([5, 0], [6, 6], [1, 1], (0, 0, 1)), ([-6, 0], [0, 6], [1, 1], (0, 0, 1)),
                ([0, 0], [5, 6], [0, 1], (0, 0, 0))):
            yield Sample(draw(5, 6), begin=begin, end=end, strides=strides, begin_mask=masks[0], end_mask=masks[1],
                         shrink_axis_mask=masks[2])
        yield Sample(draw(0, 3), begin=[0, 0], end=[2, 3], strides=[1, 2], begin_mask=0, end_mask=0, shrink_axis_mask=0)
        yield Sample(draw(0, 3), begin=[-1, 2], end=[-5, -9], strides=[-1, -1], begin_mask=0, end_mask=0, shrink_axis_mask=0)
        yield Sample(draw(2, 1, 3, 2, 1, 2), begin=[0, 0, 2, 1, 0, 0], end=[2, 1, 0, 0, 1, 2], strides=[1, 1, -1, -1, 1, 1],
                     begin_mask=0, end_mask=0, shrink_axis_mask=1)

    def case(*cases):
        return lambda draw: [Sample(draw(*shape), **options) for shape, options in cases]

    exact = {"exact": True}
    add("strided_slice (corners)", lambda tf, x, **options: tf.strided_slice(x, **options), strided, TYPES,
        ours=lambda mu, x, **options: mu.mu_strided_slice(x, *options.values()), **exact)
    add("slice (corners)", lambda tf, x, begin, size: tf.slice(x, begin, size),
        case(((4, 5), dict(begin=[4, 0], size=[0, 5])), ((0, 3), dict(begin=[0, 1], size=[-1, -1])), ((4,), dict(begin=[1], size=[4])),
             ((4,), dict(begin=[5], size=[0])), ((4,), dict(begin=[-1], size=[1]))), TYPES,
        ours=lambda mu, x, begin, size: mu.mu_slice(x, begin, size), **exact)
    add("reshape (corners)", lambda tf, x, dims: tf.reshape(x, dims),
        case(((1,), dict(dims=[])), ((), dict(dims=[1, 1])), ((0, 3), dict(dims=[0, 7])), ((0, 3), dict(dims=[-1, 5])),
             ((2, 3), dict(dims=[4, 2])), ((2, 3), dict(dims=[-1, -1])), ((2, 3), dict(dims=[-1, 4])),
             ((2, 3), dict(dims=[1, 2, 1, 3, 1, 1, 1]))), TYPES,
        ours=lambda mu, x, dims: mu.mu_reshape(x, len(dims), dims), **exact)
    add("transpose (corners)", lambda tf, x, axes: tf.transpose(x, axes),
        case(((2, 3, 1, 2, 2, 1), dict(axes=[5, 3, 1, 0, 2, 4])), ((), dict(axes=[])), ((0, 3), dict(axes=[1, 0])),
             ((2, 1, 2, 3, 1, 2, 2), dict(axes=None)), ((2, 3), dict(axes=[0, 0]))), TYPES,
        ours=lambda mu, x, axes: mu.mu_transpose(x, axes), **exact)
    add("expand_dims (corners)", lambda tf, x, axis: tf.expand_dims(x, axis),
        case(((), dict(axis=0)), ((), dict(axis=-1)), ((0,), dict(axis=1)), ((2, 3), dict(axis=-3)), ((2, 3), dict(axis=3)),
             ((2, 3), dict(axis=-4))), TYPES, ours=lambda mu, x, axis: mu.mu_expand_dims(x, axis), **exact)
    add("squeeze (corners)", lambda tf, x, axis: tf.squeeze(x, None if axis == ALL else axis),
        case(((1, 1), dict(axis=ALL)), ((), dict(axis=ALL)), ((0, 1), dict(axis=1)), ((2, 1), dict(axis=-1)), ((2, 1), dict(axis=0))),
        TYPES, ours=lambda mu, x, axis: mu.mu_squeeze(x, axis), **exact)
    add("tile (corners)", lambda tf, x, multiples: tf.tile(x, multiples),
        case(((2, 3), dict(multiples=[0, 2])), ((0, 3), dict(multiples=[2, 1])), ((), dict(multiples=[])),
             ((1, 2, 1, 2, 1, 2), dict(multiples=[2, 1, 3, 1, 1, 2])), ((2,), dict(multiples=[-1]))), TYPES,
        ours=lambda mu, x, multiples: mu.mu_tile(x, multiples))
    add("repeat (corners)", lambda tf, x, times, axis: tf.repeat(x, times, axis),
        case(((2, 3), dict(times=0, axis=1)), ((0, 3), dict(times=2, axis=0)), ((2, 1, 2), dict(times=3, axis=-2))), TYPES,
        ours=lambda mu, x, times, axis: mu.mu_repeat(x, times, axis))
    add("reverse (corners)", lambda tf, x, axis: tf.reverse(x, [axis]),
        case(((0, 3), dict(axis=1)), ((3, 0), dict(axis=1)), ((2, 1, 2, 2, 1, 3), dict(axis=-1)), ((3,), dict(axis=1))), TYPES,
        ours=lambda mu, x, axis: mu.mu_reverse(x, axis), **exact)
    add("roll (corners)", lambda tf, x, shift, axis: tf.roll(x, shift, axis),
        case(((3, 4), dict(shift=-9, axis=0)), ((0, 3), dict(shift=2, axis=0)), ((3, 0), dict(shift=2, axis=0)), ((4,), dict(shift=4, axis=-1)),
             ((4,), dict(shift=0, axis=0)), ((4,), dict(shift=10**9 + 1, axis=0))), TYPES,
        ours=lambda mu, x, shift, axis: mu.mu_roll(x, shift, axis), **exact)
    add("broadcast_to (corners)", lambda tf, x, dims: tf.broadcast_to(x, dims),
        case(((1,), dict(dims=[0])), ((), dict(dims=[2, 0])), ((), dict(dims=[])), ((3, 1), dict(dims=[2, 1, 2, 2, 3, 1])),
             ((3,), dict(dims=[2, 1])), ((0,), dict(dims=[3])), ((2, 3), dict(dims=[3]))), TYPES,
        ours=lambda mu, x, dims: mu.mu_broadcast_to(x, len(dims), dims))

    def pads(draw):
        yield Sample(draw(0, 2), before=[0, 1], after=[0, 0], mode="constant", value=0)
        for mode in ("constant", "reflect", "symmetric"):
            yield Sample(draw(3, 2), before=[2, 0], after=[2, 1], mode=mode, value=0)
            yield Sample(draw(), before=[], after=[], mode=mode, value=0)
            yield Sample(draw(3), before=[3], after=[3], mode=mode, value=0)
            yield Sample(draw(3), before=[4], after=[0], mode=mode, value=0)
            yield Sample(draw(0, 2), before=[1, 0], after=[1, 0], mode=mode, value=0)
            yield Sample(draw(1), before=[1], after=[0], mode=mode, value=0)
            yield Sample(draw(2, 1, 2, 1, 2), before=[1, 0, 0, 0, 1], after=[0, 0, 1, 0, 1], mode=mode, value=0)
        yield Sample(draw(3), before=[-1], after=[0], mode="constant", value=0)

    add("pad (corners)", lambda tf, x, before, after, mode, value: tf.pad(x, [list(p) for p in zip(before, after)] or np.zeros((0, 2), int),
        mode.upper(), value), pads, TYPES, ours=lambda mu, x, *_, **options: mu.mu_pad(x, *options.values()))


def add_joins():
    def joins(draw):
        yield Sample(draw(2, 3), draw(2, 0), draw(2, 1), axis=1)
        yield Sample(draw(0, 3), draw(0, 3), axis=0)
        yield Sample(draw(1), axis=0)
        yield Sample(draw(2, 1, 2, 1, 2, 2), draw(2, 1, 2, 3, 2, 2), axis=-3)
        yield Sample(draw(2, 3), draw(3, 3), axis=1)
        yield Sample(draw(), draw(), axis=0)
        yield Sample(draw(2), draw(2), axis=1)

    def stacks(draw):
        yield Sample(draw(), draw(), axis=0)
        yield Sample(draw(0, 3), draw(0, 3), axis=-1)
        yield Sample(draw(2, 3), axis=2)
        yield Sample(draw(2, 3), draw(2, 1), axis=0)
        yield Sample(draw(2, 3), draw(2, 3), axis=3)

    for name, samples in (("concat", joins), ("stack", stacks)):
        add(f"{name} (corners)", lambda tf, *inputs, axis, name=name: getattr(tf, name)(inputs, axis), samples, TYPES, exact=True,
            ours=lambda mu, *inputs, axis, name=name: getattr(mu, f"mu_{name}")(len(inputs), list(inputs), axis))

    def parts(mu, call, n):
        out = (ctypes.c_void_p * n)()
        call(out)
        return list(out)

    add("split_sizes (corners)", lambda tf, x, sizes, axis: tf.split(x, sizes, axis),
        lambda draw: [Sample(draw(4, 6), sizes=sizes, axis=1) for sizes in ([0, 6, 0], [6], [-1, 6], [2, 2], [3, -1, -1], [7, -1])] +
        [Sample(draw(0, 3), sizes=[1, 2], axis=-1), Sample(draw(0, 3), sizes=[0, 0], axis=0)], TYPES, exact=True,
        ours=lambda mu, x, sizes, axis: parts(mu, lambda out: mu.mu_split_sizes(x, len(sizes), sizes, axis, out), len(sizes)))
    add("split (corners)", lambda tf, x, n, axis: tf.split(x, n, axis),
        lambda draw: [Sample(draw(4, 6), n=1, axis=0), Sample(draw(0, 3), n=2, axis=0), Sample(draw(4, 6), n=4, axis=1)], TYPES, exact=True,
        ours=lambda mu, x, n, axis: parts(mu, lambda out: mu.mu_split(x, n, axis, out), n))
    add("unstack (corners)", lambda tf, x, n, axis: tf.unstack(x, n, axis),
        lambda draw: [Sample(draw(1), n=1, axis=0), Sample(draw(2, 0), n=2, axis=0), Sample(draw(2, 3), n=2, axis=1)], TYPES, exact=True,
        ours=lambda mu, x, n, axis: parts(mu, lambda out: mu.mu_unstack(x, n, axis, out), n))


# ---- Indices ------------------------------------------------------------------------------------------

def add_indices():
    def gathers(draw):
        yield Sample(draw(5, 3), np.array(2, np.int32), axis=0, batch_dims=0)
        yield Sample(draw(5, 3), np.zeros((0,), np.int32), axis=1, batch_dims=0)
        yield Sample(draw(0, 3), np.zeros((0, 2), np.int64), axis=0, batch_dims=0)
        yield Sample(draw(0, 3), np.array([2, 0], np.int64), axis=1, batch_dims=0)
        yield Sample(draw(5, 3), np.array([0, 5], np.int32), axis=0, batch_dims=0)
        yield Sample(draw(5, 3), np.array([0, -1], np.int32), axis=0, batch_dims=0)
        yield Sample(draw(5, 3), np.array([2, 2, 2], np.int64), axis=-2, batch_dims=0)
        yield Sample(draw(0, 3), np.array([0], np.int32), axis=0, batch_dims=0)
        yield Sample(draw(2, 3, 4), draw.indices(2, 3, 2, n=4), axis=2, batch_dims=2)
        yield Sample(draw(2, 3, 4), draw.indices(2, 3, n=4), axis=2, batch_dims=1)
        yield Sample(draw(2, 1, 2, 3, 1, 2), draw.indices(2, 2, n=3), axis=3, batch_dims=0)

    def gathers_nd(draw):
        yield Sample(draw(4, 3), np.array([3, 2], np.int32))
        yield Sample(draw(4, 3), np.zeros((2, 0), np.int32))
        yield Sample(draw(4, 3), np.zeros((0, 2), np.int64))
        yield Sample(draw(4, 0), np.zeros((0, 1), np.int64))
        yield Sample(draw(4, 3), np.array([[4, 0]], np.int32))
        yield Sample(draw(4, 3), np.array([[0, -1]], np.int32))
        yield Sample(draw(0, 3), np.array([[0, 0]], np.int32))

    def scatters(draw):
        yield Sample(np.array([[1], [1], [0]], np.int32), draw(3, 2), dims=[3, 2])
        yield Sample(np.zeros((0, 1), np.int32), draw(0, 2), dims=[3, 2])
        yield Sample(np.array([[0, 1], [0, 1]], np.int64), draw(2), dims=[2, 2])
        yield Sample(np.array([[3]], np.int32), draw(1, 2), dims=[3, 2])
        yield Sample(np.array([[-1]], np.int32), draw(1, 2), dims=[3, 2])
        yield Sample(np.array([[0]], np.int32), draw(1, 3), dims=[3, 2])

    def updates(draw):
        yield Sample(draw(5, 2), np.array([[1], [1], [4]], np.int32), draw(3, 2))
        yield Sample(draw(5, 2), np.zeros((0, 1), np.int32), draw(0, 2))
        yield Sample(draw(2, 2), np.array([[0, 1], [0, 1], [1, 0]], np.int64), draw(3))
        yield Sample(draw(0, 2), np.zeros((0, 1), np.int32), draw(0, 2))
        yield Sample(draw(5, 2), np.array([[5]], np.int32), draw(1, 2))
        yield Sample(draw(5, 2), np.array([[-1]], np.int32), draw(1, 2))

    def odd_updates(draw):
        x, y = values(draw, [1, NAN, 3, -INF, 0]), values(draw, [NAN, 2, INF, 5, -0.0])
        yield edge(x, np.arange(5, dtype=np.int32)[:, None], y)

    add("gather (corners)", lambda tf, x, i, axis, batch_dims: tf.gather(x, i, axis=axis, batch_dims=batch_dims), gathers, TYPES,
        slack=4, ours=lambda mu, x, i, axis, batch_dims: mu.mu_gather(x, i, axis, batch_dims))
    add("gather_nd (corners)", "gather_nd", gathers_nd, TYPES, slack=4, ours=lambda mu, x, i: mu.mu_gather_nd(x, i))
    add("scatter_nd (corners)", lambda tf, i, u, dims: tf.scatter_nd(i, u, dims), scatters, TYPES, slack=4,
        ours=lambda mu, i, u, dims: mu.mu_scatter_nd(i, u, len(dims), dims))
    for name in ("update", "add", "min", "max"):
        row = dict(theirs=f"tensor_scatter_nd_{name}", slack=4,
                   ours=lambda mu, *inputs, name=name: getattr(mu, f"mu_tensor_scatter_{name}")(*inputs))
        add(f"tensor_scatter_{name} (corners)", samples=updates, dtypes=TYPES if name == "update" else NUMBERS,
            **row)
        add(f"tensor_scatter_{name} (NaN)", samples=odd_updates, dtypes=FLOATS, **row)
    add("one_hot (corners)", lambda tf, i, depth, dtype: tf.one_hot(i, depth, dtype=dtype),
        lambda draw: [Sample(i, depth=depth, dtype=int(muster.DTYPES[draw.dtype])) for i, depth in (
            (np.array(1, np.int32), 3), (np.zeros((0, 2), np.int64), 3), (np.array([[0, 7], [-3, 2]], np.int32), 3), (np.array([0, 1], np.int64), 0),
            (np.array([2**40, -2**40, 1], np.int64), 2))], TYPES, gradient=False,
        ours=lambda mu, i, depth, dtype: mu.mu_one_hot(i, depth, dtype))


def add_segments():
    def unsorted(draw):
        yield Sample(draw(4), np.array([-1, -2, 0, 2], np.int32), n=4)
        yield Sample(draw(0, 2), np.zeros((0,), np.int64), n=3)
        yield Sample(draw(3, 0), np.array([1, 1, 0], np.int32), n=2)
        yield Sample(draw(2), np.array([-1, -1], np.int32), n=0)
        yield Sample(draw(2), np.array([0, 3], np.int32), n=3)
        yield Sample(draw(2, 3), np.array([1, 0], np.int32), n=2)
        yield Sample(draw(), np.array(1, np.int32), n=2)

    def ascending(draw):
        yield Sample(draw(3, 2), np.array([0, 2, 2], np.int32))
        yield Sample(draw(0, 2), np.zeros((0,), np.int32))
        yield Sample(draw(3, 0), np.array([0, 0, 1], np.int64))
        yield Sample(draw(3), np.array([1, 0, 2], np.int32))
        yield Sample(draw(3), np.array([-1, 0, 1], np.int32))
        yield Sample(draw(3), np.array([0, 1], np.int32))

    def odd(draw):
        yield edge(values(draw, [1, NAN, INF, -INF, 2, 3]), np.array([0, 0, 1, 1, 2, 2], np.int32))

    for name in ("sum", "prod", "max", "min", "mean", "sqrt_n"):
        dtypes = FLOATS if name == "sqrt_n" else NUMBERS
        add(f"unsorted_segment_{name} (corners)",
            lambda tf, x, i, n, name=name: getattr(tf.math, f"unsorted_segment_{name}")(x, i, n), unsorted, dtypes, slack=8,
            ours=lambda mu, x, i, n, name=name: getattr(mu, f"mu_unsorted_segment_{name}")(x, i, n))
        if name != "sqrt_n":
            row = dict(theirs=f"math.segment_{name}", slack=8, ours=lambda mu, x, i, name=name: getattr(mu, f"mu_segment_{name}")(x, i))
            add(f"segment_{name} (corners)", samples=ascending, dtypes=dtypes, **row)
            add(f"segment_{name} (NaN)", samples=odd, dtypes=FLOATS, **row)


# ---- Constants ----------------------------------------------------------------------------------------

def add_constants():
    def typed(*cases):
        return lambda draw: [Sample(dtype=int(muster.DTYPES[draw.dtype]), **case) for case in cases]

    def ranges(draw):
        # A sample for numbers alone; those of a type without sign have no way down.
        for start, stop, step in ((0, 5, 1), (5, 5, 1), (0, 7, 3), (5, 0, 1), (0, 5, 0)) + (
                () if draw.name == "u8" else ((5, 0, -1), (5, -1, -4), (0, 5, -1), (-3, 3, 2))) + (
                ((0, 1, 0.1), (0, 1, 0.25), (1, 0, -0.3)) if draw.name in FLOATS else ()):
            yield Sample(dtype=int(muster.DTYPES[draw.dtype]), start=start, stop=stop, step=step)

    none = {"gradient": False}
    add("range (corners)", lambda tf, dtype, start, stop, step: tf.range(start, stop, step, dtype=dtype), ranges, WIDE + ("i64", "i32"),
        ours=lambda mu, dtype, start, stop, step: mu.mu_range(dtype, start, stop, step), **none)
    add("linspace (corners)", lambda tf, dtype, start, stop, n: tf.linspace(tf.constant(start, dtype), tf.constant(stop, dtype), n),
        typed(*(dict(start=start, stop=stop, n=n) for start, stop, n in ((1, 5, 1), (1, 5, 2), (5, 1, 4), (2, 2, 3), (0, 1, 10), (1, 5, 0)))),
        WIDE, ours=lambda mu, dtype, start, stop, n: mu.mu_linspace(dtype, start, stop, n), **none)
    add("eye (corners)", lambda tf, dtype, rows, columns: tf.eye(rows, columns, dtype=dtype),
        typed(dict(rows=1, columns=1), dict(rows=0, columns=3), dict(rows=3, columns=0), dict(rows=4, columns=2)), NUMBERS,
        ours=lambda mu, dtype, rows, columns: mu.mu_eye(dtype, rows, columns), **none)


# ---- Networks -----------------------------------------------------------------------------------------

def add_products():
    def nothing(draw):
        for a, b in (((3, 0), (0, 2)), ((0, 3), (3, 0)), ((2, 0, 3), (3, 2)), ((1, 1), (1, 1)), ((0, 2, 3), (0, 3, 1)),
                     ((2, 1, 1, 1, 2, 3), (1, 2, 1, 2, 3, 1)), ((3,), (3,)), ((2, 3), (4, 2)), ((0, 2, 3), (1, 3, 2))):
            yield Sample(draw(*a), draw(*b))

    def long(draw):
        yield edge(draw(3, 4000, low=0, high=1), draw(4000, 2, low=0, high=1))

    def odd(draw):
        yield edge(values(draw, [[1, NAN], [INF, 2], [0, 1]]), values(draw, [[1, 0, -1], [2, 3, 0]]))

    for note, samples, dtypes in (("nothing", nothing, FLOATS + ("i64", "i32")), ("long", long, FLOATS), ("NaN", odd, FLOATS)):
        add(f"matmul ({note})", "matmul", samples, dtypes, slack=32, ours=lambda mu, a, b: mu.mu_matmul(a, b))

    equations = (("ii->i", ((3, 3),)), ("ii", ((0, 0),)), ("iij->ji", ((2, 2, 3),)), ("iii->i", ((2, 2, 2),)), ("...ii->...i", ((2, 1, 3, 3),)),
                 ("...ii->...", ((2, 3, 3),)), ("ij,ij->", ((2, 3), (2, 3))), (",->", ((), ())), ("i,->i", ((3,), ())), ("ij->", ((0, 3),)),
                 ("...i,i...->...", ((2, 3), (3, 2))), ("...,...->...", ((3, 1), (1, 4))), ("a...b,b...->a...", ((2, 3, 4), (4, 3))),
                 ("iij,jk->ik", ((2, 2, 3), (3, 4))), ("ii,jj->ij", ((2, 2), (3, 3))), ("ij,jk->ik", ((2, 1), (3, 4))),
                 ("ii->i", ((2, 3),)), ("ij->ijj", ((2, 3),)), ("abcdef,fedcba->ace", ((1, 2, 2, 1, 2, 1), (1, 2, 1, 2, 2, 1))))

    def einsums(draw):
        for equation, shapes in equations:
            yield Sample(*(draw(*shape) for shape in shapes), equation=equation)

    add("einsum (corners)", lambda tf, *inputs, equation: tf.einsum(equation, *inputs), einsums, FLOATS + ("i64", "i32"), slack=32,
        ours=lambda mu, *inputs, equation: mu.mu_einsum(equation, len(inputs), list(inputs)))
    add("tensordot (corners)", lambda tf, a, b, n: tf.tensordot(a, b, n), lambda draw: [
        Sample(draw(2, 3), draw(4), n=0), Sample(draw(3), draw(3), n=1), Sample(draw(2, 0), draw(0, 3), n=1), Sample(draw(2, 3), draw(2, 3), n=1),
        Sample(draw(), draw(), n=0)], FLOATS + ("i64", "i32"), slack=32, ours=lambda mu, a, b, n: mu.mu_tensordot(a, b, n))

    def norms(draw):
        for order in ("euclidean", 1, INF):
            yield Sample(draw(3, 1), order=order, axes=[1])
            if order != INF:
                yield Sample(draw(0), order=order, axes=None)
                yield Sample(draw(2, 0), order=order, axes=[1])
            yield Sample(draw(0, 3), order=order, axes=[1])
            yield Sample(np.zeros((2, 3), draw.dtype), order=order, axes=[1])
            yield edge(values(draw, [[1, NAN], [INF, 2], [-INF, INF]]), order=order, axes=[1])

    add("norm (corners)", lambda tf, x, order, axes: tf.norm(x, order, axes[0] if axes else None), norms, FLOATS, slack=16,
        ours=lambda mu, x, order, axes: mu.mu_norm(x, 0.0 if order == "euclidean" else float(order),
                                                   **({"axis": axes[0]} if axes else {})))
    add("cholesky (corners)", "linalg.cholesky", lambda draw: [Sample(values(draw, [[4]])), Sample(draw(0, 0)), Sample(draw(0, 3, 3)),
        Sample(draw(2, 0, 0)), Sample(values(draw, [[1, 9], [2, 8]]))], WIDE, slack=64,
        ours=lambda mu, x: mu.mu_cholesky(x))
    add("triangular_solve (corners)", "linalg.triangular_solve", lambda draw: [Sample(values(draw, [[4]]), draw(1, 2)),
        Sample(draw(0, 0), draw(0, 2)), Sample(draw(2, 2) + 2 * np.eye(2, dtype=draw.dtype), draw(2, 0)), Sample(draw(0, 2, 2), draw(0, 2, 1)),
        Sample(draw(2, 2), draw(3, 1))], WIDE, slack=64, ours=lambda mu, a, b: mu.mu_triangular_solve(a, b, True, False))


def add_windows():
    def images(draw):
        yield Sample(draw(1, 1, 1, 1), draw(1, 1, 1, 1), strides=(1, 1), padding="same")
        yield Sample(draw(2, 3, 3, 2), draw(3, 3, 2, 1), strides=(1, 1), padding="valid")
        yield Sample(draw(1, 2, 2, 1), draw(5, 5, 1, 2), strides=(1, 1), padding="same")
        yield Sample(draw(1, 3, 4, 2), draw(1, 1, 2, 2), strides=(3, 2), padding="valid")
        yield Sample(draw(1, 3, 3, 2), draw(2, 2, 3, 1), strides=(1, 1), padding="valid")

    def odd_images(draw):
        x = draw(1, 6, 5, 2)
        x[0, 2, 3, 1], x[0, 0, 0, 0] = NAN, INF
        yield edge(x, draw(3, 3, 2, 3), strides=(1, 1), padding="same")

    for note, samples in (("corners", images), ("NaN", odd_images)):
        add(f"nn_conv2d ({note})", lambda tf, x, kernel, strides, padding: tf.nn.conv2d(x, kernel, strides, padding.upper()), samples,
            FLOATS, slack=64, ours=lambda mu, x, kernel, **options: mu.mu_nn_conv2d(x=x, kernel=kernel, **options))

    def pools(draw):
        yield Sample(draw(1, 1, 1, 1), window=(1, 1), strides=(1, 1), padding="valid")
        yield Sample(draw(1, 2, 2, 3), window=(3, 3), strides=(1, 1), padding="same")
        yield Sample(draw(1, 3, 3, 1), window=(2, 2), strides=(3, 3), padding="valid")
        yield Sample(draw(0, 4, 4, 2), window=(2, 2), strides=(2, 2), padding="valid")
        yield Sample(np.ones((1, 4, 4, 1), draw.dtype), window=(2, 2), strides=(1, 1), padding="same")

    def odd_pools(draw):
        for value in (NAN, -INF, INF):
            x = draw(1, 4, 4, 1)
            x[0, 1, 1, 0] = value
            yield edge(x, window=(2, 2), strides=(2, 2), padding="valid")
            x = np.full((1, 3, 3, 1), value, draw.dtype)
            yield edge(x, window=(2, 2), strides=(1, 1), padding="same")

    for name in ("max_pool2d", "avg_pool2d"):
        for note, samples in (("corners", pools), ("NaN", odd_pools)):
            add(f"nn_{name} ({note})", lambda tf, x, window, strides, padding, name=name:
                getattr(tf.nn, name)(x, window, strides, padding.upper()), samples, FLOATS, slack=4,
                ours=lambda mu, x, name=name, **options: getattr(mu, f"mu_nn_{name}")(x=x, **options))

    def sizes(draw):
        for height, width in ((1, 1), (2, 3), (7, 5), (20, 1)):
            yield Sample(draw(1, 3, 4, 2), height=height, width=width)
        yield Sample(draw(1, 1, 1, 1), height=3, width=2)
        yield Sample(draw(0, 3, 4, 2), height=2, width=5)
        yield Sample(draw(1, 3, 4, 1), height=0, width=5)

    for method, note, dtypes in ((0, "bilinear", ("f32",) + INTEGERS), (1, "nearest", NUMBERS)):
        add(f"image_resize (corners, {note})", lambda tf, x, height, width, method=method:
            tf.image.resize(x, [height, width], "nearest" if method else "bilinear"), sizes, dtypes, slack=8,
            ours=lambda mu, x, height, width, method=method: mu.mu_image_resize(x, height, width, method))


def add_losses():
    def rows(draw):
        yield Sample(draw(1, 1))
        yield Sample(draw(0, 3))
        yield Sample(draw(3, 0))
        yield Sample(draw(2, 1, 2, 1, 4))
        yield Sample(values(draw, [[1000, 1001, 999], [-1000, 0, 1000], [30000, -30000, 0]]))
        yield edge(values(draw, [[-INF, 0, 1], [-INF, -INF, -INF], [INF, 0, 1], [NAN, 0, 1], [INF, INF, 0], [INF, -INF, 0]]))

    for name in ("softmax", "log_softmax"):
        add(f"nn_{name} (corners)", f"nn.{name}", rows, FLOATS, slack=16, ours=lambda mu, x, name=name: getattr(mu, f"mu_nn_{name}")(x, -1))

    def sparse(draw):
        yield Sample(np.array([0], np.int32), draw(1, 1))
        yield Sample(np.zeros(0, np.int64), draw(0, 3))
        yield Sample(np.array([0, 3], np.int32), draw(2, 3))
        yield Sample(np.array([0, -1], np.int32), draw(2, 3))
        yield Sample(np.array([[0, 1], [2, 2]], np.int64), draw(2, 2, 3))
        yield Sample(np.array(1, np.int64), draw(3))
        yield edge(np.array([0, 1, 1, 1], np.int64), values(draw, [[-INF, 0, 1], [-INF, 2, 1], [INF, 0, 1], [NAN, 0, 1]]))

    def dense(draw):
        yield Sample(values(draw, [[1, 0, 0], [0, 0, 0], [0.5, 0.25, 0.25]]), draw(3, 3))
        yield Sample(draw(0, 3), draw(0, 3))
        yield edge(values(draw, [[1, 0, 0], [1, 0, 0], [0, 1, 0]]), values(draw, [[1000, 0, 1], [-INF, 0, 1], [INF, 0, 1]]))

    def binary(draw):
        yield Sample(values(draw, [0, 1, 0, 1, 0.5]), values(draw, [1000, 1000, -1000, -1000, 0]))
        yield Sample(draw(0, 3), draw(0, 3))
        yield edge(values(draw, [0, 1, 0, 1, 0.5]), values(draw, [INF, INF, -INF, -INF, NAN]))

    add("nn_sparse_softmax_cross_entropy (corners)", "nn.sparse_softmax_cross_entropy_with_logits", sparse, FLOATS, slack=16,
        ours=lambda mu, labels, logits: mu.mu_nn_sparse_softmax_cross_entropy(labels, logits))
    add("nn_softmax_cross_entropy (corners)", "nn.softmax_cross_entropy_with_logits", dense, FLOATS, slack=16,
        ours=lambda mu, labels, logits: mu.mu_nn_softmax_cross_entropy(labels, logits))
    add("nn_sigmoid_cross_entropy (corners)", lambda tf, labels, logits:
        tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits), binary, FLOATS, slack=8,
        ours=lambda mu, labels, logits: mu.mu_nn_sigmoid_cross_entropy(labels, logits))


def add_clips():
    def corners(draw):
        yield Sample(values(draw, [1, 2, 3, 4]), values(draw, 3), values(draw, 2))
        yield Sample(values(draw, [1, 2, 3, 4]), values(draw, 2), values(draw, 3))
        yield Sample(draw(0, 2), values(draw, 0), values(draw, 1))
        yield Sample(draw.edges(), values(draw, 1), values(draw, 3)) if draw.name in INTEGERS else edge(
            values(draw, [NAN, INF, -INF, -0.0, 1]), values(draw, 0), values(draw, 1))
        if draw.name in FLOATS:
            yield edge(values(draw, [1, 2]), values(draw, NAN), values(draw, 3))

    def choices(draw):
        yield Sample(np.array(True), draw(2, 3), draw(2, 3))
        yield Sample(np.zeros((0, 3), bool), draw(1, 3), draw())
        yield Sample(np.array([True, False]), draw(3, 1), draw(1, 2))
        yield Sample(np.zeros((2, 1, 2, 1, 2, 1), bool), draw(1, 2, 1, 2, 1, 2), draw(2))
        yield Sample(np.array([True, False]), draw(3), draw(2))

    add("clip_by_value (corners)", "clip_by_value", corners, NUMBERS, ours=lambda mu, *inputs: mu.mu_clip_by_value(*inputs))
    add("where (corners)", "where", choices, TYPES, exact=True, ours=lambda mu, *inputs: mu.mu_where(*inputs))


def add_shapes_of_two():
    def shapes(draw):
        for a, b in (((2, 1, 2, 1, 3, 1), (1, 2, 1, 2, 1, 2)), ((0, 1), (1, 3)), ((2, 0), (1,)), ((), ()), ((1, 0), (0, 1)), ((2,), (0,)),
                     ((2, 3), (2,)), ((2, 1, 1, 1, 1, 1, 2), (2, 1))):
            yield Sample(draw(*a, low=1), draw(*b, low=1))

    for name, theirs, dtypes in (("add", "add", NUMBERS), ("multiply", "multiply", NUMBERS), ("divide", "divide", NUMBERS),
                                 ("maximum", "maximum", NUMBERS), ("pow", "pow", FLOATS), ("equal", "equal", TYPES), ("less", "less", NUMBERS),
                                 ("mod", "math.floormod", NUMBERS), ("squared_difference", "math.squared_difference", NUMBERS),
                                 ("logical_and", "logical_and", ("bool",))):
        add(f"{name} (shapes)", theirs, shapes, dtypes, gradient=name not in ("equal", "less", "logical_and"), slack=16,
            ours=lambda mu, a, b, name=name: getattr(mu, f"mu_{name}")(a, b))


def add_norms_of_nothing():
    def attention(tf, query, key, value, mask):
        # A row that sees nothing: the mean of all values, as Keras's layers give it.
        scores = tf.matmul(query, key, transpose_b=True) * tf.cast(query.shape[-1], query.dtype) ** -0.5
        return tf.matmul(tf.nn.softmax(tf.where(mask, scores, tf.constant(-3e4, scores.dtype))), value)

    def masked(draw):
        mask = np.ones((3, 4), bool)
        mask[1] = False
        yield Sample(draw(2, 3, 2), draw(2, 4, 2), draw(2, 4, 3), mask)
        yield Sample(draw(0, 3, 2), draw(0, 4, 2), draw(0, 4, 3), np.ones((3, 4), bool))
        yield Sample(draw(1, 0, 2), draw(1, 4, 2), draw(1, 4, 3), np.ones((0, 4), bool))
        yield Sample(draw(1, 1, 1), draw(1, 1, 1), draw(1, 1, 1), np.ones((1, 1), bool))

    add("nn_attention (masked rows)", attention, masked, FLOATS, slack=32, sprinkled=False, ours=lambda mu, q, k, v, mask:
        mu.mu_nn_attention(query=q, key=k, value=v, mask=mask))

    def layer(tf, x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 2.0**-10)

    add("nn_layer_normalization (corners)", layer, lambda draw: [Sample(draw(3, 1)), Sample(draw(0, 3)), Sample(np.full((2, 4), 3, draw.dtype)),
        Sample(draw(2, 1, 2, 1, 5)), edge(values(draw, [[1, NAN, 2], [INF, 0, 1]]))], FLOATS, slack=32,
        ours=lambda mu, x: mu.mu_nn_layer_normalization(x, None, None, 2.0**-10))


add_whole_division()
add_powers()
add_casts()
add_reductions()
add_places()
add_running()
add_orders()
add_shapes()
add_joins()
add_indices()
add_segments()
add_constants()
add_products()
add_windows()
add_losses()
add_clips()
add_shapes_of_two()
add_norms_of_nothing()
