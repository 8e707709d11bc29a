# A case of the op benchmark, and helpers for writing cases: sizes, inputs that several families use, and how to add a
# case.
#
# A case states its name in Muster's table (calls*.c), its inputs, the same computation in PyTorch and in TensorFlow
# (expressions over the inputs' names), and how it is judged: `memory` against the bytes that must move, `math` only
# against the other frameworks, `product` among matrix products and convolutions. Inputs are made per size: a square
# matrix of float32 has SIZE bytes, so its side is 16, 128, 1024 or 4096.
import dataclasses

SIZES = {"1k": 1 << 10, "64k": 1 << 16, "4m": 1 << 22, "64m": 1 << 26}
SIDES = {"1k": 16, "64k": 128, "4m": 1024, "64m": 4096}
IMAGES = {"1k": (1, 8, 8, 4), "64k": (4, 16, 16, 16), "4m": (16, 32, 32, 64), "64m": (64, 64, 64, 64)}


@dataclasses.dataclass(frozen=True)
class Input:
    """`shape` from the size's name; elements uniform between low and high (booleans, integers: high not included)."""
    dtype: str
    shape: object
    low: float = -3.0
    high: float = 3.0
    made: str = ""  # sorted; diagonal: matrices whose diagonal outweighs their rows


def square(size):
    return (SIDES[size], SIDES[size])


def of(*axes):
    """A shape from letters: d is the side, i the image axes, h half the side, t twice the side; numbers stand for themselves."""
    def shape(size):
        side, image = SIDES[size], IMAGES[size]
        named = {"d": side, "h": side // 2, "t": 2 * side, "q": side // 4, "n": side * side, "c": image[3],
                 "b": max(1, side // 64), "s": min(side, 64), "p": side * side // (max(1, side // 64) * min(side, 64))}
        return tuple(named.get(axis, axis) for axis in axes)
    return shape


def image(size):
    return IMAGES[size]


INPUTS = {
    "a": Input("float32", square), "b": Input("float32", square),
    "p": Input("float32", square, 0.1, 4), "q": Input("float32", square, 0.1, 4),
    "u": Input("float32", square, -0.95, 0.95), "g": Input("float32", square, 1.1, 4),
    "near1": Input("float32", square, 0.99, 1.01),
    "s": Input("float32", of()), "low": Input("float32", of(), -1, -0.5), "high": Input("float32", of(), 0.5, 1),
    "row": Input("float32", of("d")), "row2": Input("float32", of("d")), "col": Input("float32", of("d", 1)),
    "c1": Input("float32", of("d", 1, "d")),
    "i": Input("int32", square, -100, 100), "j": Input("int32", square, 1, 20),
    "l": Input("int64", of("d", "h"), -100, 100), "l2": Input("int64", of("d", "h"), 1, 20),
    "by": Input("uint8", of("d", "d"), 0, 256),
    "m": Input("bool", square, 0, 2), "m2": Input("bool", square, 0, 2),
    "ones": Input("bool", square, 1, 2), "zeros": Input("bool", square, 0, 1),
    "e": Input("float64", of("d", "h")), "e2": Input("float64", of("d", "h")),
    "ep": Input("float64", of("d", "h"), 0.1, 4),
    "f": Input("float16", of("d", "t")), "f2": Input("float16", of("d", "t")),
    "bf": Input("bfloat16", of("d", "t")), "bf2": Input("bfloat16", of("d", "t")),
    "k": Input("int64", of("d"), 0, "d"), "kk": Input("int64", square, 0, "d"), "k32": Input("int32", of("d"), 0, "d"),
    "knd": Input("int64", of("n", 2), 0, "d"), "kr": Input("int64", of("d", 1), 0, "d"),
    "many": Input("int64", of("n"), 0, 1000), "seed": Input("int64", of(2), 1, 1000),
    "sorted": Input("float32", of("n"), made="sorted"), "flat": Input("float32", of("n")),
    "prob": Input("float32", square, 0, 1),
    "x": Input("float32", image), "w": Input("float32", of(3, 3, "c", "c"), -0.1, 0.1),
    "w1": Input("float32", of(1, 1, "c", "c"), -0.1, 0.1), "wg": Input("float32", lambda size: (3, 3, IMAGES[size][3] // 4, IMAGES[size][3])),
    "wd": Input("float32", of(3, 3, "c", 1)), "ch": Input("float32", of("c")), "ch2": Input("float32", of("c"), 0.5, 2),
    "ch3": Input("float32", of("c")), "ch4": Input("float32", of("c"), 0.5, 2),
    "x1": Input("float32", lambda size: (IMAGES[size][0], IMAGES[size][1] * IMAGES[size][2], IMAGES[size][3])),
    "v1": Input("float32", of(3, "c", "c"), -0.1, 0.1),
    "bm": Input("float32", of("p", "s", "b")), "qu": Input("float32", lambda size: heads(size)),
    "ke": Input("float32", lambda size: heads(size)), "va": Input("float32", lambda size: heads(size)),
    "ba": Input("float32", lambda size: batched(size)), "bb": Input("float32", lambda size: batched(size)),
    "vec": Input("float32", of("d", 1)),
}


def heads(size):
    """Attention's [batch, heads, length, width]."""
    return {"1k": (1, 1, 16, 16), "64k": (1, 2, 128, 64), "4m": (2, 8, 1024, 64), "64m": (16, 16, 1024, 64)}[size]


def batched(size):
    return {"1k": (4, 8, 8), "64k": (16, 32, 32), "4m": (256, 64, 64), "64m": (1024, 128, 128)}[size]


@dataclasses.dataclass(frozen=True)
class Case:
    name: str        # unique; Muster's row is `call` or this
    inputs: tuple
    torch: str       # "" where there is no such function
    tf: str
    kind: str
    call: str
    out: bool        # PyTorch's function takes out=
    tolerance: float
    setup: str       # PyTorch: statements run once on its inputs
    tf_setup: str    # TensorFlow: the same
    after: str       # PyTorch: how the result `y` becomes Muster's layout; not timed
    compared: bool   # whether results are compared element by element
    unread: bool     # whether its inputs give nothing but a shape, so that their bytes do not count
    largest: str     # the largest size that is run


CASES = []


# Tolerances only tell a wrong computation from a right one. They are a few times the differences seen between the
# programs at all sizes: 2e-5 for float32 unless the case sets another, since sums in another order differ (4e-5 for a
# sum of 16 million numbers, 6e-5 for as many products). 16-bit floats may differ by an ulp or two, 2e-3 and 1.6e-2,
# where one program rounds between steps. The conformance tests check the accuracy of the ops.
def case(name, inputs, torch, tf, kind="memory", call=None, out=True, tolerance=2e-5, setup="", tf_setup="", after="y",
         compared=True, unread=False, largest="64m"):
    if any(each.name == name for each in CASES):
        raise ValueError(f"two cases of the bench of ops are called {name}")
    inputs = tuple(inputs.split())
    CASES.append(Case(name, inputs, torch, tf, kind, call or name, out and "(" in torch, tolerance, setup, tf_setup, after,
                      compared, unread, largest))
