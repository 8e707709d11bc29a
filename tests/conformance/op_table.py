# The table of ops that Muster and TensorFlow both have: for each the two calls and the inputs to try.
#
# A sample is a list of arrays and the options of the call. Samples are made per dtype by a function of a Draw, which
# gives random arrays and the edge values of its type. `ours` and `theirs` take the library, then the inputs, then the
# options by keyword; theirs may be a composition where TensorFlow has the op only as a layer.
# It must not know how samples are run or compared (ops.py).
import dataclasses
import typing

import ml_dtypes
import numpy as np

import muster

ALL = muster.ALL_AXES
FLOATS = ("f64", "f32", "f16", "bf16")
WIDE = ("f64", "f32")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
NUMBERS = FLOATS + INTEGERS
TYPES = NUMBERS + ("bool",)
NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i64": np.int64,
         "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}


class Sample:
    """Inputs and options of one call. The kind says what the values are: "random", "edges" (NaN, infinities, limits) or
    "denormal", which TensorFlow takes for zero, so that it is asked in f64 and its answer rounded."""

    def __init__(self, *arrays, kind="random", **options):
        self.arrays, self.kind, self.options = arrays, kind, options

    @property
    def in_f64(self):
        return self.kind == "denormal"


class Draw:
    """Random arrays and edge values of one dtype."""

    def __init__(self, dtype, seed):
        self.name, self.dtype = dtype, np.dtype(NUMPY[dtype])
        self.generator = np.random.default_rng(seed)

    def __call__(self, *shape, low=-2, high=2):
        if self.name == "bool":
            return self.generator.integers(0, 2, shape).astype(np.bool_)
        if self.name in INTEGERS:
            low = max(int(np.ceil(low)), 0) if self.name == "u8" else int(np.ceil(low))
            return self.generator.integers(low, max(int(high), low + 1) + 1, shape).astype(self.dtype)
        return self.generator.uniform(low, high, shape).astype(self.dtype)

    def indices(self, *shape, n, dtype=np.int32):
        return self.generator.integers(0, n, shape).astype(dtype)

    def distinct(self, *shape, over=1):
        """Numbers of which no two are equal, so that orders have no ties; floats are divided by `over`."""
        n = int(np.prod(shape))
        numbers = self.generator.permutation(n).reshape(shape).astype(self.dtype)
        return numbers if self.name in INTEGERS else numbers / self.dtype.type(over)

    def edges(self):
        if self.name == "bool":
            return np.array([False, True])
        if self.name in INTEGERS:
            info = np.iinfo(self.dtype)
            values = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7} | ({-1, -2, -7} if info.min else set())
            return np.array(sorted(values), self.dtype)
        info = ml_dtypes.finfo(self.dtype)
        largest = float(info.max)
        values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -2.5, 3, 100, -100, largest, -largest,
                  float(info.tiny), float(info.eps)]
        return np.array(values, np.float64).astype(self.dtype)

    def sprinkled(self, sample, values):
        """The sample with NaN and infinities, with zeros and the least numbers, with limits: a few in the first of the inputs
        that `values` marks. (In two inputs they would meet, and infinity times 0 tells nothing.)"""
        if self.name == "bool" or True not in values:
            return
        edges, place = self.edges(), values.index(True)
        for numbers in [edges] if self.name in INTEGERS else [edges[:3], edges[[3, 4, -2, -1]]]:
            arrays = [array.copy() for array in sample.arrays]
            flat = arrays[place].reshape(-1)
            if flat.size:
                flat[np.arange(len(numbers)) * 7 % flat.size] = numbers
                yield Sample(*arrays, kind="edges", **sample.options)

    def denormal_samples(self, arrange):
        """Numbers that TensorFlow takes for zero; it is asked in f64, so f64's own have no oracle."""
        if self.name not in FLOATS or self.name == "f64":
            return
        smallest = float(ml_dtypes.finfo(self.dtype).smallest_subnormal)
        values = np.array([smallest, -smallest, 5 * smallest, 0, 1, -1], np.float64).astype(self.dtype)
        yield Sample(*arrange(values), kind="denormal")


@dataclasses.dataclass(frozen=True)
class Op:
    name: str
    ours: typing.Callable
    theirs: typing.Callable
    samples: typing.Callable
    dtypes: tuple
    gradient: bool = True
    exact: bool = False    # bits, not numbers: the sign of zero counts
    slack: float = 1       # on the tolerance of the dtype, for sums and for functions that libraries round differently
    sprinkled: bool = True  # also the first sample with edge values strewn into it

    @property
    def function(self):
        """The name without what a row says of its samples."""
        return self.name.split(" (")[0].split(" to ")[0]


TABLE = []


def add(name, theirs, samples, dtypes, ours=None, **more):
    function = "mu_" + name.split(" (")[0]
    ours = ours or (lambda mu, *inputs, **options: getattr(mu, function)(*inputs, *options.values()))
    more.setdefault("sprinkled", not name.startswith("stateless_"))  # what is drawn for NaN need not end
    TABLE.append(Op(name, ours, theirs, samples, dtypes, **more))




# ---- Element by element -------------------------------------------------------------------------------

def one(low=-2, high=2):
    def samples(draw):
        yield Sample(draw(3, 5, low=low, high=high))
        yield Sample(draw(0, 4, low=low, high=high))
        yield Sample(draw(low=low, high=high))
        yield Sample(draw(2, 1, 67, low=low, high=high))
        yield Sample(draw.edges(), kind="edges")
        yield from draw.denormal_samples(lambda x: [x])
    return samples


def two(low=-2, high=2, low_b=None, high_b=None):
    low_b, high_b = low if low_b is None else low_b, high if high_b is None else high_b

    def samples(draw):
        for shape_a, shape_b in (((3, 5), (3, 5)), ((2, 1, 3), (4, 1)), ((), (6,)), ((0, 3), (1, 3)), ((5, 1), (1, 9))):
            yield Sample(draw(*shape_a, low=low, high=high), draw(*shape_b, low=low_b, high=high_b))
        edges = draw.edges()
        yield Sample(edges[:, None], edges[None, :], kind="edges")
        yield from draw.denormal_samples(lambda x: [x[:, None], x[None, :]])
    return samples


def erf(tf, x):
    """TensorFlow's own gives NaN in f64 for infinities and the largest numbers."""
    return tf.where(tf.abs(x) <= 30, tf.math.erf(x), tf.sign(x))


def gelu(tf, x, approximate):
    """TensorFlow's own rounds its constants to f32, also in f64."""
    def constant(value):
        return tf.constant(value, x.dtype)

    if approximate:
        return 0.5 * x * (1 + tf.tanh(constant(np.sqrt(2 / np.pi)) * (x + constant(0.044715) * x * x * x)))
    return 0.5 * x * (1 + erf(tf, x * constant(np.sqrt(0.5))))


def add_unary():
    for name, theirs, dtypes, exact in (
            ("abs", "abs", NUMBERS, True), ("neg", "negative", NUMBERS, True), ("sign", "sign", NUMBERS, False),
            ("square", "square", NUMBERS, True), ("floor", "floor", FLOATS, True), ("ceil", "math.ceil", FLOATS, True),
            ("round", "round", NUMBERS, False), ("identity", "identity", TYPES, True),
            ("stop_gradient", "stop_gradient", TYPES, True), ("zeros_like", "zeros_like", TYPES, True),
            ("ones_like", "ones_like", TYPES, True)):
        add(name, theirs, one(), dtypes, exact=exact)
    for name, low, high in (
            ("exp", -2, 2), ("sin", -3, 3), ("cos", -3, 3), ("tan", -1.3, 1.3), ("atan", -3, 3),
            ("sinh", -2, 2), ("cosh", -2, 2), ("tanh", -3, 3), ("asinh", -3, 3), ("sigmoid", -3, 3),
            ("asin", -0.9, 0.9), ("acos", -0.9, 0.9), ("acosh", 1.1, 3), ("atanh", -0.9, 0.9)):
        add(name, name, one(low, high), FLOATS, slack=4)
    for name, low, high in (("log", 0.1, 3), ("expm1", -2, 2), ("log1p", -0.5, 3), ("sqrt", 0.1, 3), ("rsqrt", 0.2, 3),
                            ("reciprocal", 0.2, 3),
                            ("erfc", -2, 2), ("lgamma", 0.3, 5), ("digamma", 0.3, 5)):
        add(name, f"math.{name}", one(low, high), FLOATS, slack=4)
    for order in (0, 1, 2):  # beyond, TensorFlow loses digits where terms cancel each other
        add(f"polygamma ({order})", lambda tf, x, order=order: tf.math.polygamma(tf.constant(order, x.dtype), x),
            one(0.3, 5), ("f64", "f32"), slack=8, ours=lambda mu, x, order=order: mu.mu_polygamma(order, x))
    add("erf", erf, one(), FLOATS, slack=4)
    add("check_numerics", lambda tf, x: tf.debugging.check_numerics(x, "bad"), one(), FLOATS, exact=True,
        ours=lambda mu, x: mu.mu_check_numerics(x, "bad"))
    for name in ("is_nan", "is_inf", "is_finite"):
        add(name, f"math.{name}", one(), FLOATS, gradient=False)
    add("logical_not", "logical_not", one(), ("bool",), gradient=False)
    for name in ("relu", "relu6", "elu", "selu", "silu", "softplus", "softsign"):
        add(f"nn_{name}", f"nn.{name}", one(-8, 8), NUMBERS if name in ("relu", "relu6") else FLOATS, slack=8)
    add("nn_log_sigmoid", "math.log_sigmoid", one(-8, 8), FLOATS, slack=8)
    add("nn_mish", "keras.activations.mish", one(-8, 8), FLOATS, slack=8)
    add("nn_hard_sigmoid", "keras.activations.hard_sigmoid", one(-8, 8), FLOATS, slack=8)
    for approximate in (False, True):
        add(f"nn_gelu ({'tanh' if approximate else 'exact'})",
            lambda tf, x, approximate=approximate: gelu(tf, x, approximate), one(-4, 4), FLOATS, slack=8,
            ours=lambda mu, x, approximate=approximate: mu.mu_nn_gelu(x, approximate))
    add("nn_leaky_relu", lambda tf, x: tf.nn.leaky_relu(x, 0.25), one(-8, 8), NUMBERS,
        ours=lambda mu, x: mu.mu_nn_leaky_relu(x, 0.25), slack=8)


def add_binary():
    for name, exact in (("add", True), ("subtract", True), ("multiply", True), ("squared_difference", False),
                        ("maximum", False), ("minimum", False)):
        add(name, name if name != "squared_difference" else "math.squared_difference", two(), NUMBERS, exact=exact)
    add("divide", "divide", two(-2, 2, 1, 3), NUMBERS)
    add("divide_no_nan", "math.divide_no_nan", two(), NUMBERS)
    add("floor_divide", "math.floordiv", two(-7, 7, 1, 3), NUMBERS)
    add("mod", "math.floormod", two(-7, 7, 1, 3), NUMBERS)
    add("pow", "pow", two(0.2, 2, -2, 2), FLOATS, slack=16)
    add("pow (integers)", "pow", two(-3, 3, 0, 4), ("i64", "i32"), ours=lambda mu, x, y: mu.mu_pow(x, y))
    add("atan2", "atan2", two(0.2, 2), FLOATS, slack=4)
    for name in ("equal", "not_equal"):
        add(name, name, two(), TYPES, gradient=False)
    for name in ("less", "less_equal", "greater", "greater_equal"):
        add(name, name, two(), NUMBERS, gradient=False)
    for name in ("logical_and", "logical_or", "math.logical_xor"):
        add(name.removeprefix("math."), name, two(), ("bool",), gradient=False)


def add_choice():
    def where(draw):
        condition = draw.generator.integers(0, 2, (3, 5)).astype(bool)
        yield Sample(condition, draw(3, 5), draw(3, 5))
        yield Sample(condition[:1], draw(3, 1), draw())
        edges = draw.edges()
        yield Sample(np.arange(len(edges)) % 2 == 0, edges, edges[::-1].copy(), kind="edges")

    def clip(draw):
        yield Sample(draw(3, 5, low=0, high=9), draw(low=2, high=3), draw(low=5, high=6))
        yield Sample(draw(4, 5, low=0, high=9), draw(1, 5, low=2, high=3), draw(5, low=5, high=6))

    add("where", "where", where, TYPES, exact=True)
    add("clip_by_value", "clip_by_value", clip, NUMBERS)
    for target in TYPES:
        def cast(draw, whole=target in INTEGERS):
            yield Sample(draw(3, 5, low=0, high=9))
            yield Sample(draw(2, 0))
            if not (whole and draw.name in FLOATS):  # what C leaves undefined has no oracle
                yield Sample(draw.edges(), kind="edges")

        number = muster.DTYPES[np.dtype(NUMPY[target])]
        add(f"cast to {target}", lambda tf, x, target=target: tf.cast(x, NUMPY[target]), cast, TYPES, exact=True,
            gradient=target in FLOATS, ours=lambda mu, x, number=number: mu.mu_cast(x, number))


# ---- Reductions ---------------------------------------------------------------------------------------

def add_reductions():
    def samples(low, high):
        def make(draw):
            for axes in ((0,), (1,), (-1,), (0, 2), (0, 1, 2), ()):
                yield Sample(draw(3, 4, 5, low=low, high=high), axes=axes, keep=len(axes) == 1)
            yield Sample(draw(1, 4, low=low, high=high), axes=(0,), keep=False)
            yield Sample(draw(7, 33, low=low, high=high), axes=(1,), keep=False)
            if draw.name in FLOATS:
                for value in (np.nan, np.inf, -np.inf, -0.0):
                    x = draw(3, 4, low=low, high=high)
                    x[1, 2] = value
                    yield Sample(x, axes=(1,), keep=False, kind="edges")
        return make

    for name in ("sum", "mean", "max", "min", "prod", "any", "all", "logsumexp", "variance", "std"):
        low, high = (0.7, 1.3) if name == "prod" else (0.5, 2)
        dtypes = ("bool",) if name in ("any", "all") else FLOATS if name in ("logsumexp", "variance", "std") else NUMBERS
        add(f"reduce_{name}",
            lambda tf, x, axes, keep, name=name: getattr(tf.math, f"reduce_{name}")(x, axis=list(axes), keepdims=keep),
            samples(low, high), dtypes, slack=16,
            ours=lambda mu, x, axes, keep, name=name: getattr(mu, f"mu_reduce_{name}")(
                x, axes=list(axes), n_axes=len(axes), keep_dims=keep))
        add(f"reduce_{name} (one axis)", lambda tf, x, axes, keep, name=name: getattr(tf.math, f"reduce_{name}")(x, axis=axes[0]),
            lambda draw, low=low, high=high: [Sample(draw(3, 4, low=low, high=high), axes=[1], keep=False)], dtypes, slack=16,
            ours=lambda mu, x, axes, keep, name=name: getattr(mu, f"mu_reduce_{name}")(x, axes[0]))
    for name in ("argmax", "argmin"):
        def extreme(draw):
            for axis in (0, 1, -1):
                yield Sample(draw(3, 4, 5), axis=axis)
        add(name, lambda tf, x, axis, name=name: getattr(tf, name)(x, axis), extreme, TYPES, gradient=False)
    for name in ("cumsum", "cumprod"):
        def running(draw):
            for exclusive in (False, True):
                for reverse in (False, True):
                    yield Sample(draw(3, 6, low=0.5, high=2), axis=1, exclusive=exclusive, reverse=reverse)
            yield Sample(draw(3, 6, low=0.5, high=2), axis=0, exclusive=False, reverse=False)
        add(name, lambda tf, x, name=name, **options: getattr(tf.math, name)(x, **options), running, NUMBERS, slack=8)


# ---- Shapes -------------------------------------------------------------------------------------------

def add_shapes():
    def case(*shape, **options):
        return lambda draw: [Sample(draw(*shape), **options)]

    def several(*cases):
        return lambda draw: [Sample(draw(*shape), **options) for shape, options in cases]

    exact = {"exact": True}
    add("reshape", lambda tf, x, dims: tf.reshape(x, dims), several(((3, 4), {"dims": [2, -1]}), ((0, 3), {"dims": [3, 0]})),
        TYPES, ours=lambda mu, x, dims: mu.mu_reshape(x, len(dims), dims), **exact)
    add("transpose", lambda tf, x, axes: tf.transpose(x, axes),
        several(((2, 3, 4), {"axes": [2, 0, 1]}), ((5, 2), {"axes": None}), ((2, 3, 4, 5), {"axes": [0, 2, 1, 3]})), TYPES,
        **exact)
    add("expand_dims", lambda tf, x, axis: tf.expand_dims(x, axis), several(((3, 2), {"axis": -1}), ((3, 2), {"axis": 1})),
        TYPES, **exact)
    add("squeeze", lambda tf, x, axis: tf.squeeze(x, None if axis == ALL else axis),
        several(((3, 1, 2), {"axis": 1}), ((1, 3, 1), {"axis": ALL})), TYPES, **exact)
    add("slice", lambda tf, x, begin, size: tf.slice(x, begin, size), case(4, 5, begin=[1, 0], size=[2, -1]), TYPES, **exact)
    add("tile", lambda tf, x, multiples: tf.tile(x, multiples), case(2, 3, multiples=[2, 3]), TYPES)
    add("repeat", lambda tf, x, times, axis: tf.repeat(x, times, axis), case(2, 3, times=3, axis=1), TYPES)
    add("reverse", lambda tf, x, axis: tf.reverse(x, [axis]), case(3, 4, axis=-1), TYPES, **exact)
    add("roll", lambda tf, x, shift, axis: tf.roll(x, shift, axis),
        several(((3, 4), {"shift": 3, "axis": 1}), ((5,), {"shift": -7, "axis": 0})), TYPES, **exact)
    add("broadcast_to", lambda tf, x, dims: tf.broadcast_to(x, dims), case(3, 1, dims=[2, 3, 4]), TYPES,
        ours=lambda mu, x, dims: mu.mu_broadcast_to(x, len(dims), dims))
    add_slices_and_pads()
    add_joins()


def add_slices_and_pads():
    def strided(draw):
        for begin, end, strides, masks in (([1, 0], [4, 5], [2, 1], (0, 0, 0)), ([-1, 4], [0, 0], [-2, -1], (0, 0, 0)),
                                           ([3, 0], [0, 0], [-1, 2], (1, 3, 0)), ([2, 1], [3, 3], [1, 1], (0, 0, 1))):
            yield Sample(draw(5, 6), begin=begin, end=end, strides=strides, begin_mask=masks[0], end_mask=masks[1],
                         shrink_axis_mask=masks[2])

    def pads(draw):
        for mode in ("constant", "reflect", "symmetric"):
            yield Sample(draw(3, 4), before=[1, 2], after=[0, 2], mode=mode, value=3 if mode == "constant" else 0)

    add("strided_slice", lambda tf, x, **options: tf.strided_slice(x, **options), strided, TYPES, exact=True)
    add("pad", lambda tf, x, before, after, mode, value: tf.pad(x, list(zip(before, after)), mode.upper(), value), pads, NUMBERS)


def add_joins():
    import ctypes

    def parts_of(mu, call, n):
        out = (ctypes.c_void_p * n)()
        call(out)
        return list(out)

    def join(draw):
        yield Sample(draw(2, 3), draw(2, 3), draw(2, 3), axis=0)
        yield Sample(draw(2, 3), draw(2, 3), axis=-1)

    for name in ("concat", "stack"):
        add(name, lambda tf, *inputs, axis, name=name: getattr(tf, name)(inputs, axis), join, TYPES, exact=True,
            ours=lambda mu, *inputs, axis, name=name: getattr(mu, f"mu_{name}")(len(inputs), list(inputs), axis))
    add("split", lambda tf, x, n, axis: tf.split(x, n, axis), lambda draw: [Sample(draw(4, 6), n=3, axis=1)], TYPES, exact=True,
        ours=lambda mu, x, n, axis: parts_of(mu, lambda out: mu.mu_split(x, n, axis, out), n))
    add("split_sizes", lambda tf, x, sizes, axis: tf.split(x, sizes, axis),
        lambda draw: [Sample(draw(4, 6), sizes=[1, -1, 2], axis=1)], TYPES, exact=True,
        ours=lambda mu, x, sizes, axis: parts_of(mu, lambda out: mu.mu_split_sizes(x, len(sizes), sizes, axis, out), len(sizes)))
    add("unstack", lambda tf, x, n, axis: tf.unstack(x, n, axis), lambda draw: [Sample(draw(3, 4), n=3, axis=0)], TYPES,
        exact=True, ours=lambda mu, x, n, axis: parts_of(mu, lambda out: mu.mu_unstack(x, n, axis, out), n))


# ---- Indices, constants, random numbers ---------------------------------------------------------------

def add_indices():
    import ctypes

    def gather(draw):
        for dtype in (np.int32, np.int64, np.int16):
            yield Sample(draw(5, 3), draw.indices(4, n=5, dtype=dtype), axis=0, batch_dims=0)
        yield Sample(draw(2, 5, 3), draw.indices(2, 4, n=5), axis=1, batch_dims=1)
        yield Sample(draw(5, 3), draw.indices(2, 2, n=3), axis=-1, batch_dims=0)

    def scatter(draw):
        rows = draw.generator.permutation(5)[:3].astype(np.int32)[:, None]
        yield Sample(draw(5, 2), rows, draw(3, 2))

    def pair(mu, call, both=True):
        out = (ctypes.c_void_p * 2)()
        call(ctypes.byref(out, 0), ctypes.byref(out, 8))
        return list(out)

    add("gather", lambda tf, x, i, axis, batch_dims: tf.gather(x, i, axis=axis, batch_dims=batch_dims), gather, TYPES)
    add("convert_to_tensor", lambda tf, values, indices: tf.convert_to_tensor(tf.IndexedSlices(values, indices, [5, 3])),
        lambda draw: [Sample(draw(4, 3), draw.indices(4, n=5)), Sample(draw(0, 3), draw.indices(0, n=5))], NUMBERS, slack=4,
        ours=lambda mu, values, indices: mu.mu_convert_to_tensor(mu.mu_indexed_slices(values, indices, 2, [5, 3])))
    add("gather_nd", "gather_nd", lambda draw: [Sample(draw(4, 3, 2), draw.indices(5, 2, n=3))], TYPES)
    add("gather_nd (16-bit indices)", "gather_nd", lambda draw: [Sample(draw(4, 3, 2), draw.indices(5, 2, n=3, dtype=np.int16))], TYPES, gradient=False)
    add("scatter_nd", lambda tf, i, u, dims: tf.scatter_nd(i, u, dims),
        lambda draw: [Sample(draw.indices(4, 1, n=3), draw(4, 2), dims=[3, 2])], NUMBERS, slack=4,
        ours=lambda mu, i, u, dims: mu.mu_scatter_nd(i, u, len(dims), dims))
    for name in ("update", "add", "min", "max"):
        add(f"tensor_scatter_{name}", f"tensor_scatter_nd_{name}", scatter, NUMBERS, slack=4)
    add("one_hot", lambda tf, i, depth, dtype: tf.one_hot(i, depth, dtype=dtype),
        lambda draw: [Sample(np.array([0, 3, -1, 9], of), depth=4, dtype=int(muster.DTYPES[draw.dtype])) for of in (np.int64, np.int8)], TYPES)
    add("top_k", lambda tf, x, k: list(tf.math.top_k(x, k)), lambda draw: [Sample(draw.distinct(3, 7), k=3)], NUMBERS,
        ours=lambda mu, x, k: pair(mu, lambda a, b: mu.mu_top_k(x, k, a, b)))
    for descending in (False, True):
        direction = "DESCENDING" if descending else "ASCENDING"
        add("sort", lambda tf, x, direction=direction: tf.sort(x, -1, direction), lambda draw: [Sample(draw.distinct(3, 7))],
            NUMBERS, ours=lambda mu, x, descending=descending: mu.mu_sort(x, -1, descending))
        add("argsort", lambda tf, x, direction=direction: tf.argsort(x, 0, direction, stable=True),
            lambda draw: [Sample(draw.distinct(7, 3))], NUMBERS, gradient=False,
            ours=lambda mu, x, descending=descending: mu.mu_argsort(x, 0, descending))
    add("unique", lambda tf, x: list(tf.unique(x)), lambda draw: [Sample(draw(12, low=0, high=4).round() if draw.name != "bool" else draw(12))], TYPES,
        gradient=False, ours=lambda mu, x: pair(mu, lambda a, b: mu.mu_unique(x, a, b)))
    for right in (False, True):
        add("searchsorted", lambda tf, s, v, right=right: tf.searchsorted(s, v, "right" if right else "left"),
            lambda draw: [Sample(np.sort(draw(2, 6), -1), draw(2, 4))], WIDE + ("i64", "i32"), gradient=False, sprinkled=False,
            ours=lambda mu, s, v, right=right: mu.mu_searchsorted(s, v, right))
    add("batch_gather", lambda tf, x, i: tf.gather(x, i, axis=i.ndim - 1, batch_dims=i.ndim - 1),
        lambda draw: [Sample(draw(2, 3, 5, 2), draw.indices(2, 3, 4, n=5)), Sample(draw(5, 2), draw.indices(3, n=5, dtype=np.int16))], TYPES)


def add_segments():
    def unsorted(draw):
        yield Sample(draw(6, 2, low=1), draw.indices(6, n=4), n=4)
        yield Sample(draw(2, 3, low=1), np.array([[0, -1, 2], [2, 0, 5]], np.int64), n=6)

    def ascending(draw):
        yield Sample(draw(6, 2, low=1), np.array([0, 0, 1, 3, 3, 3], np.int32))
        yield Sample(draw(3, low=1), np.array([2, 2, 2], np.int64))

    def zeros(draw):
        yield Sample(np.array([2, 0, 3, 0, 0, 4], draw.dtype), np.array([0, 0, 0, 1, 1, 2], np.int32), n=3)

    for name in ("sum", "prod", "max", "min", "mean", "sqrt_n"):
        dtypes = FLOATS if name == "sqrt_n" else NUMBERS
        add(f"unsorted_segment_{name}", lambda tf, x, i, n, name=name: getattr(tf.math, f"unsorted_segment_{name}")(x, i, n), unsorted, dtypes, slack=8,
            ours=lambda mu, x, i, n, name=name: getattr(mu, f"mu_unsorted_segment_{name}")(x, i, n))
        if name != "sqrt_n":
            add(f"segment_{name}", f"math.segment_{name}", ascending, dtypes, slack=8)
    for name in ("sum", "mean", "sqrt_n"):
        add(f"unsorted_segment_{name} (16-bit numbers)", lambda tf, x, i, n, name=name: getattr(tf.math, f"unsorted_segment_{name}")(x, i, n),
            lambda draw: [Sample(draw(6, 2, low=1), draw.indices(6, n=4, dtype=np.int16), n=4)], FLOATS, slack=8,
            ours=lambda mu, x, i, n, name=name: getattr(mu, f"mu_unsorted_segment_{name}")(x, i, n))
    add("unsorted_segment_prod (zeros)", lambda tf, x, i, n: tf.math.unsorted_segment_prod(x, i, n), zeros, FLOATS, slack=8,
        ours=lambda mu, x, i, n: mu.mu_unsorted_segment_prod(x, i, n))


def add_likes():
    """Shapes that follow another tensor's at run time; TensorFlow has them as compositions."""
    def pair(draw):
        yield Sample(draw(3, 1), draw(2, 3, 4))

    def same_size(draw):
        yield Sample(draw(3, 4), draw(2, 6))

    def wide(draw):
        yield Sample(draw(2, 3, 4), draw(3, 1))

    add("broadcast_like", lambda tf, x, like: tf.broadcast_to(x, tf.shape(like)), pair, TYPES)
    add("reshape_like", lambda tf, x, like: tf.reshape(x, tf.shape(like)), same_size, TYPES)
    add("sum_to_like", lambda tf, x, like: tf.reduce_sum(tf.reduce_sum(x, 0), 1, keepdims=True), wide, NUMBERS, slack=16)
    add("dim_size", lambda tf, x: tf.constant(4, tf.int64), lambda draw: [Sample(draw(2, 3, 4))], TYPES, gradient=False,
        ours=lambda mu, x: mu.mu_dim_size(x, -1))


def add_constants():
    def typed(draw, **options):
        return [Sample(dtype=int(muster.DTYPES[draw.dtype]), **options)]

    none = {"gradient": False}
    for name in ("zeros", "ones"):
        add(name, lambda tf, dtype, name=name: getattr(tf, name)([2, 3], dtype), typed, TYPES, **none,
            ours=lambda mu, dtype, name=name: getattr(mu, f"mu_{name}")(dtype, 2, [2, 3]))
    add("fill", lambda tf, dtype: tf.fill([2, 3], tf.constant(5, dtype)), typed, NUMBERS, **none,
        ours=lambda mu, dtype: mu.mu_fill(dtype, 2, [2, 3], 5))
    add("eye", lambda tf, dtype: tf.eye(3, 4, dtype=dtype), typed, TYPES, **none, ours=lambda mu, dtype: mu.mu_eye(dtype, 3, 4))
    add("range", lambda tf, dtype: tf.range(2, 11, 3, dtype=dtype), typed, FLOATS + ("i64", "i32"), **none,
        ours=lambda mu, dtype: mu.mu_range(dtype, 2, 11, 3))
    add("linspace", lambda tf, dtype: tf.linspace(tf.constant(-1, dtype), tf.constant(2, dtype), 7), typed, FLOATS, **none,
        ours=lambda mu, dtype: mu.mu_linspace(dtype, -1, 2, 7))


def add_random():
    def seeds(draw):
        for seed in ([1, 2], [-5, 2**40], [0, 0]):
            for dims in ([3], [4, 25], [0]):
                yield Sample(np.array(seed, np.int64), dims=dims, dtype=int(muster.DTYPES[draw.dtype]))

    for name, theirs in (("stateless_random_uniform", "stateless_uniform"), ("stateless_random_normal", "stateless_normal"),
                         ("stateless_truncated_normal", "stateless_truncated_normal")):
        add(name, lambda tf, seed, dims, dtype, theirs=theirs: getattr(tf.random, theirs)(dims, seed, dtype=dtype),
            seeds, FLOATS, gradient=False, exact=theirs == "stateless_uniform", slack=4,
            ours=lambda mu, seed, dims, dtype, name=name: getattr(mu, f"mu_{name}")(seed, dtype, len(dims), dims))
    add("stateless_random_uniform_int",
        lambda tf, seed, dims, dtype: tf.random.stateless_uniform(dims, seed, minval=-7, maxval=1000, dtype=dtype),
        seeds, ("i32", "i64"), gradient=False,
        ours=lambda mu, seed, dims, dtype: mu.mu_stateless_random_uniform_int(seed, dtype, len(dims), dims, -7, 1000))


def add_draws():
    """Drawn by rejection, from the same numbers in the same order; a few of them may be accepted on one side alone."""
    def seeds(parameters):
        def make(draw):
            for seed in ([1, 2], [-5, 2**40], [0, 0]):
                for dims, values in (([50, len(parameters)], parameters), ([7], parameters[0])):
                    yield Sample(np.array(seed, np.int64), np.array(values, draw.dtype), dims=dims)
        return make

    def scaled(draw):
        yield Sample(np.array([3, 4], np.int64), np.array([[0.5], [3]], draw.dtype), np.array([1, 0.25, 4], draw.dtype), dims=[9, 2, 3])

    add("stateless_random_gamma", lambda tf, seed, alpha, *beta, dims:
        tf.random.stateless_gamma(dims, seed, alpha, *beta, dtype=alpha.dtype), seeds([0.3, 1, 2.5, 40]), ("f64", "f32", "f16"),
        slack=8, ours=lambda mu, seed, alpha, dims: mu.mu_stateless_random_gamma(seed, alpha, None, len(dims), dims))
    add("stateless_random_gamma (rate)", lambda tf, seed, alpha, beta, dims:
        tf.random.stateless_gamma(dims, seed, alpha, beta, dtype=alpha.dtype), scaled, ("f64", "f32"), slack=8,
        ours=lambda mu, seed, alpha, beta, dims: mu.mu_stateless_random_gamma(seed, alpha, beta, len(dims), dims))
    add("stateless_random_poisson (whole rates)", lambda tf, seed, rate, dims: tf.random.stateless_poisson(dims, seed, rate, rate.dtype),
        seeds([1, 3, 10, 25, 400]), ("i64", "i32"), gradient=False, ours=lambda mu, seed, rate, dims:
        mu.mu_stateless_random_poisson(seed, rate, mu.mu_tensor_dtype(rate), len(dims), dims))
    for name, target in (("", None), (" to i32", "i32"), (" to i64", "i64")):
        add(f"stateless_random_poisson{name}", lambda tf, seed, rate, dims, target=target:
            tf.random.stateless_poisson(dims, seed, rate, NUMPY[target] if target else rate.dtype), seeds([0.5, 3, 10, 25, 400]),
            ("f64", "f32", "f16") if target is None else ("f32",), gradient=False,
            ours=lambda mu, seed, rate, dims, target=target:
            mu.mu_stateless_random_poisson(seed, rate, muster.DTYPES[np.dtype(NUMPY[target])] if target else mu.mu_tensor_dtype(rate),
                                           len(dims), dims))


add_unary()
add_binary()
add_choice()
add_reductions()
add_shapes()
add_indices()
add_segments()
add_likes()
add_constants()
add_random()
add_draws()
