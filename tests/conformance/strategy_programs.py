# Programs of distributed values for strategies.py: each is a generator over (label, step) that gets a side (strategy_sides.py)
# and a strategy. A step returns what is looked at; the sides must agree on each.
#
# What is meant to differ has its reason beside the program, and a row in docs/conformance.md. It must not know which side
# runs a program.
import collections
import itertools
import re

import ml_dtypes
import numpy as np

from strategy_sides import AGGREGATIONS, MEAN, SUM

PROGRAMS = []
SEVERAL = ("mirrored2", "mirrored3")
ALL = ("mirrored2", "central2", "one")
FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.int64)
NUMBERS = FLOATS + INTEGERS
INTEGER_MEAN = {r"mirrored.* (u?int\d+|bool) .*MEAN|mirrored.*MEAN.* int\d+":
                "an ON_WRITE variable with aggregation MEAN may be an integer"}
SHAPES = ((), (0,), (1,), (3,), (2, 3), (2, 0, 3), (1, 1, 5))


class Program(collections.namedtuple("Program", "name run kinds traced meant")):
    def reason(self, label, kind, traced):
        """Why a difference is meant, or None."""
        text = f"{kind} {'traced' if traced else 'eager'} {label}"
        return next((why for pattern, why in self.meant.items() if re.search(pattern, text)), None)


def program(kinds=ALL, traced=True, meant=None):
    """`traced`: the program has steps of replicas, which run as functions too. `meant`: reasons by patterns of labels."""
    def add(function):
        PROGRAMS.append(Program(function.__name__, function, kinds, traced, meant or {}))
        return function
    return add


def name_of(dtype):
    return np.dtype(dtype).name


def rows(dtype, shape=(2,), n=4):
    """A row for each replica, small whole numbers."""
    size = int(np.prod(shape, dtype=int)) * n
    array = np.arange(size).reshape(n, *shape) * 2 + 3
    return (array % 2 == array % 3).astype(bool) if dtype == np.bool_ else array.astype(dtype)


def spread(s, strategy, arrays):
    """A value that has arrays[r] on replica r."""
    return s.values(strategy, lambda replica, _: s.tensor(arrays[int(replica)]))


# ---- Variables ----------------------------------------------------------------------------------------

@program(meant=INTEGER_MEAN)
def assign_types(s, strategy):
    for dtype, aggregation in itertools.product((*NUMBERS, np.bool_), AGGREGATIONS):
        def step(dtype=dtype, aggregation=aggregation):
            v = s.variable(strategy, np.ones(2, dtype), "ON_WRITE" if aggregation == "SUM" else "AUTO", aggregation)
            for how in ("assign",) if dtype == np.bool_ else ("assign_add", "assign_sub", "assign_add"):
                s.run(strategy, lambda: s.assign(v, how, s.take(rows(dtype), s.replica_id())))
            return s.components(strategy, v)
        yield f"{name_of(dtype)} {aggregation}", step


@program()
def assign_shapes(s, strategy):
    for shape, aggregation in itertools.product(SHAPES, AGGREGATIONS):
        def step(shape=shape, aggregation=aggregation):
            v = s.variable(strategy, np.ones(shape, np.float32), aggregation=aggregation)
            s.run(strategy, lambda: s.assign(v, "assign_add", s.take(rows(np.float32, shape), s.replica_id())))
            return s.components(strategy, v)
        yield f"{list(shape)} {aggregation}", step


@program(meant=INTEGER_MEAN)
def assign_from_outside(s, strategy):
    for dtype, aggregation, how in itertools.product((np.float32, np.int32), AGGREGATIONS, ("assign", "assign_sub")):
        for source in ("captured", "argument", "zero", "per replica argument", "equal per replica argument"):
            def step(dtype=dtype, aggregation=aggregation, how=how, source=source):
                v = s.variable(strategy, np.ones(2, dtype), aggregation=aggregation)
                five = s.tensor(np.full(2, 0 if source == "zero" else 5, dtype))
                own = spread(s, strategy, rows(dtype) if source == "per replica argument" else np.full((4, 2), 5, dtype))
                if source in ("captured", "zero"):
                    s.run(strategy, lambda: s.assign(v, how, five))
                else:
                    s.run(strategy, lambda x: s.assign(v, how, x), five if source == "argument" else own)
                return s.components(strategy, v)
            yield f"{how} {name_of(dtype)} {aggregation} {source}", step


@program()
def assign_variables(s, strategy):
    for aggregation, how in itertools.product(AGGREGATIONS, ("assign", "assign_add", "assign_sub")):
        for synchronization in ("ON_WRITE", "ON_READ"):
            def make(aggregation=aggregation, synchronization=synchronization):
                return (s.variable(strategy, np.float32(1), "ON_WRITE", aggregation),
                        s.variable(strategy, np.float32(3), synchronization, "MEAN"))

            def outside(how=how, make=make):
                v, w = make()
                s.assign(v, how, s.read(w))
                return s.components(strategy, v)

            def inside(how=how, make=make):
                v, w = make()
                s.run(strategy, lambda: s.assign(v, how, s.read(w)))
                return s.components(strategy, v)
            yield f"{how} {aggregation} from {synchronization} outside", outside
            yield f"{how} {aggregation} from {synchronization} inside", inside


@program(meant=INTEGER_MEAN)
def assign_outside(s, strategy):
    for dtype, aggregation, synchronization in itertools.product((np.float32, np.float16, np.int64), AGGREGATIONS,
                                                                 ("ON_WRITE", "ON_READ")):
        for how in ("assign", "assign_add", "assign_sub"):
            def step(dtype=dtype, aggregation=aggregation, synchronization=synchronization, how=how):
                v = s.variable(strategy, np.full(3, 9, dtype), synchronization, aggregation)
                s.assign(v, how, s.tensor(np.full(3, 7, dtype)))
                return [s.components(strategy, v), s.read(v)]
            yield f"{how} {name_of(dtype)} {synchronization} {aggregation}", step


@program()
def on_read_types(s, strategy):
    for dtype, aggregation in itertools.product((*NUMBERS, np.bool_), AGGREGATIONS):
        def step(dtype=dtype, aggregation=aggregation):
            v = s.variable(strategy, np.ones(2, dtype), "ON_READ", aggregation)
            s.run(strategy, lambda: s.assign(v, "assign", s.take(rows(dtype), s.replica_id())))
            return [s.components(strategy, v), s.read(v)]
        yield f"{name_of(dtype)} {aggregation}", step

        def fresh(dtype=dtype, aggregation=aggregation):
            return s.read(s.variable(strategy, np.ones((2, 0), dtype), "ON_READ", aggregation))
        yield f"fresh {name_of(dtype)} {aggregation}", fresh


@program()
def read_after_write(s, strategy):
    for aggregation, synchronization in itertools.product(AGGREGATIONS, ("ON_WRITE", "ON_READ")):
        def step(aggregation=aggregation, synchronization=synchronization):
            v = s.variable(strategy, np.float32(1), synchronization, aggregation)

            def own():
                seen = [s.read(v) + 0]
                for how in ("assign_add", "assign", "assign_sub"):
                    s.assign(v, how, s.cast(s.replica_id(), np.float32) * 3 + 2)
                    seen.append(s.read(v) + 0)
                return seen
            return [s.local(strategy, s.run(strategy, own)), s.components(strategy, v)]
        yield f"{synchronization} {aggregation}", step


@program()
def sync_on_read(s, strategy):
    for dtype, aggregation in itertools.product((np.float32, np.int32), AGGREGATIONS):
        def step(dtype=dtype, aggregation=aggregation):
            v = s.variable(strategy, np.ones(2, dtype), "ON_READ", aggregation)

            def own():
                s.assign(v, "assign", s.take(rows(dtype), s.replica_id()))
                return s.sync_on_read(lambda: s.converted(v) + 1)
            return s.local(strategy, s.run(strategy, own))
        yield f"{name_of(dtype)} {aggregation}", step


@program()
def wrong_assignments(s, strategy):
    for aggregation, synchronization in itertools.product(AGGREGATIONS, ("ON_WRITE", "ON_READ")):
        for what, value in (("longer", np.ones(3, np.float32)), ("scalar", np.float32(1)), ("row", np.ones((1, 2), np.float32)),
                            ("double", np.ones(2, np.float64)), ("integers", np.ones(2, np.int32))):
            def inside(aggregation=aggregation, synchronization=synchronization, value=value):
                v = s.variable(strategy, np.zeros(2, np.float32), synchronization, aggregation)
                s.run(strategy, lambda: s.assign(v, "assign", s.tensor(value)))
                return s.components(strategy, v)

            def outside(aggregation=aggregation, synchronization=synchronization, value=value):
                v = s.variable(strategy, np.zeros(2, np.float32), synchronization, aggregation)
                s.assign(v, "assign_add", s.tensor(value))
                return s.components(strategy, v)
            yield f"{what} {synchronization} {aggregation} inside", inside
            yield f"{what} {synchronization} {aggregation} outside", outside


# ---- Scatters -----------------------------------------------------------------------------------------

SCATTERS = ("add", "sub", "mul", "div", "min", "max", "update")


@program(kinds=("mirrored2", "mirrored3", "one"), meant=INTEGER_MEAN)
def scatters(s, strategy):
    index_rows = np.array([[0, 2], [2, 1], [3, 3], [0, 0]])
    for how, aggregation, dtype in itertools.product(SCATTERS, AGGREGATIONS, (np.float32, np.int32)):
        for width in ((), (2,)):
            for index_type in (np.int32, np.int64):
                def step(how=how, aggregation=aggregation, dtype=dtype, width=width, index_type=index_type):
                    v = s.variable(strategy, np.full((4, *width), 12, dtype), aggregation=aggregation)
                    s.run(strategy, lambda: s.scatter(v, how, s.take(index_rows.astype(index_type), s.replica_id()),
                                                      s.take(np.full((4, 2, *width), 2, dtype), s.replica_id())))
                    return s.components(strategy, v)
                yield f"{how} {aggregation} {name_of(dtype)} {list(width)} {name_of(index_type)}", step


@program(kinds=("mirrored2", "mirrored3", "one"))
def scatters_outside(s, strategy):
    for how, aggregation, synchronization in itertools.product(SCATTERS, AGGREGATIONS, ("ON_WRITE", "ON_READ")):
        for what, indices in (("two", [1, 1]), ("none", [])):
            def step(how=how, aggregation=aggregation, synchronization=synchronization, indices=indices):
                v = s.variable(strategy, np.full(3, 6, np.float32), synchronization, aggregation)
                s.scatter(v, how, s.tensor(np.array(indices, np.int32)), s.tensor(np.full(len(indices), 2, np.float32)))
                return s.components(strategy, v)
            yield f"{how} {synchronization} {aggregation} {what}", step


@program(kinds=SEVERAL, meant={
        "captured|argument": "slices from outside are one value",
        "ONLY_FIRST_REPLICA different lengths": "the first replica's slices are broadcast"})
def scatters_from_outside(s, strategy):
    for how, aggregation in itertools.product(SCATTERS, AGGREGATIONS):
        for source in ("captured", "argument", "per replica", "different lengths"):
            def step(how=how, aggregation=aggregation, source=source):
                v = s.variable(strategy, np.full(4, 6, np.float32), aggregation=aggregation)
                indices, values = s.tensor(np.array([1, 3], np.int32)), s.tensor(np.array([2, 3], np.float32))
                if source == "captured":
                    s.run(strategy, lambda: s.scatter(v, how, indices, values))
                elif source == "argument":
                    s.run(strategy, lambda i, x: s.scatter(v, how, i, x), indices, values)
                else:
                    n = [2, 2, 2] if source == "per replica" else [1, 3, 0]
                    s.run(strategy, lambda i, x: s.scatter(v, how, i, x),
                          spread(s, strategy, [np.arange(k, dtype=np.int32) for k in n]),
                          spread(s, strategy, [np.full(k, r + 2, np.float32) for r, k in enumerate(n)]))
                return s.components(strategy, v)
            yield f"{how} {aggregation} {source}", step


# ---- Reductions ---------------------------------------------------------------------------------------

@program(traced=False)
def reduce_types(s, strategy):
    for dtype, op, axis in itertools.product((*NUMBERS, np.bool_), (SUM, MEAN), (None, 0, 1, -1, -2, (0, 1), (1,))):
        yield f"{name_of(dtype)} {op} {axis}", lambda dtype=dtype, op=op, axis=axis: s.reduce(
            strategy, op, spread(s, strategy, rows(dtype, (2, 3))), axis)


@program(traced=False)
def reduce_shapes(s, strategy):
    for shape, op, axis in itertools.product(SHAPES, (SUM, MEAN), (None, 0, 1, -1, 3, -4, (0, 0), (0, -1))):
        yield f"{list(shape)} {op} {axis}", lambda shape=shape, op=op, axis=axis: s.reduce(
            strategy, op, spread(s, strategy, rows(np.float32, shape)), axis)


DIFFERENT = {"rows": [(2, 2), (1, 2), (0, 2)], "columns": [(2, 1), (2, 3), (2, 0)], "ranks": [(2,), (2, 2), (1, 2, 2)],
             "scalars": [(), (1,), (2,)], "vectors": [(3,), (1,), (0,)]}


@program(kinds=SEVERAL, traced=False)
def reduce_different(s, strategy):
    for (what, shapes), op, axis in itertools.product(DIFFERENT.items(), (SUM, MEAN), (None, 0, 1, -1, (0, 1))):
        yield f"{what} {op} {axis}", lambda shapes=shapes, op=op, axis=axis: s.reduce(
            strategy, op, spread(s, strategy, [np.full(shape, r + 1, np.float32) for r, shape in enumerate(shapes)]), axis)


@program(traced=False, meant={"zero SUM": "a zero is the sum of zeros"})
def reduce_plain(s, strategy):
    for dtype, op, axis in itertools.product((np.float32, np.int32, np.int64, np.bool_), (SUM, MEAN), (None, 0, -1, 1)):
        for what, value in (("zero", 0), ("five", 5), ("vector", [1, 2]), ("empty", [])):
            yield f"{name_of(dtype)} {what} {op} {axis}", lambda dtype=dtype, op=op, axis=axis, value=value: s.reduce(
                strategy, op, s.tensor(np.array(value, dtype)), axis)


@program(traced=False)
def reduce_variables(s, strategy):
    for aggregation, synchronization, op, axis in itertools.product(AGGREGATIONS, ("ON_WRITE", "ON_READ"), (SUM, MEAN),
                                                                    (None, 0)):
        def step(aggregation=aggregation, synchronization=synchronization, op=op, axis=axis):
            v = s.variable(strategy, np.array([1, 2], np.float32), synchronization, aggregation)
            return s.reduce(strategy, op, v, axis)
        yield f"{synchronization} {aggregation} {op} {axis}", step


@program(traced=False, meant={" [01]$|central": "nests are reduced leaf by leaf, along an axis too, under every strategy"})
def reduce_nests(s, strategy):
    for op, axis in itertools.product((SUM, MEAN), (None, 0)):
        yield f"{op} {axis}", lambda op=op, axis=axis: s.reduce(strategy, op, s.values(strategy, lambda r, n: {
            "a": s.tensor(np.float32([r, n])), "b": [s.tensor(np.int32([r, 7])), {"c": s.tensor(np.float64([[r]]))}]}), axis)


@program(traced=False)
def reduce_results(s, strategy):
    for op, axis in itertools.product((SUM, MEAN), (None, 0, 1)):
        yield f"results {op} {axis}", lambda op=op, axis=axis: s.reduce(strategy, op, s.run(
            strategy, lambda: s.take(rows(np.float32, (3, 2)), s.replica_id())), axis)
        yield f"equal results {op} {axis}", lambda op=op, axis=axis: s.reduce(strategy, op, s.run(
            strategy, lambda: s.tensor(np.ones((3, 2), np.float32))), axis)


@program(traced=False)
def reduce_to_devices(s, strategy):
    for dtype, op, like in itertools.product((np.float32, np.int32, np.bool_, np.float16), (SUM, MEAN),
                                             ("variable", "value", "tensor")):
        def step(dtype=dtype, op=op, like=like):
            value = spread(s, strategy, rows(dtype))
            target = {"variable": lambda: s.variable(strategy, np.float32(1)), "value": lambda: value,
                      "tensor": lambda: s.tensor(np.float32(1))}[like]()
            return s.local(strategy, s.reduce_to(strategy, op, value, target))
        yield f"{name_of(dtype)} {op} {like}", step


@program(traced=False)
def batch_reduce(s, strategy):
    for op in (SUM, MEAN):
        for what, kinds in (("floats", (np.float32, np.float32)), ("mixed", (np.float32, np.float64)),
                            ("halves", (np.float16, ml_dtypes.bfloat16))):
            def step(op=op, kinds=kinds):
                return [s.local(strategy, one) for one in s.batch_reduce_to(
                    strategy, op, [spread(s, strategy, rows(dtype, (2, i + 1))) for i, dtype in enumerate(kinds)])]
            yield f"{what} {op}", step


@program(kinds=SEVERAL, traced=False)
def reduce_slices(s, strategy):
    for op, shape in itertools.product((SUM, MEAN), ((5, 2), (5,))):
        def slices(r, _, shape=shape):
            n = r + 1
            return s.slices(s.tensor(np.full((n, *shape[1:]), r + 2, np.float32)),
                            s.tensor(np.arange(n, dtype=np.int64) * 2 % 5), shape)
        yield f"reduce {op} {shape}", lambda op=op, slices=slices: s.dense(s.local(strategy, s.reduce(
            strategy, op, s.values(strategy, slices)))[0])
        yield f"all_reduce {op} {shape}", lambda op=op, slices=slices: [s.dense(x) for x in s.local(strategy, s.run(
            strategy, lambda x: s.all_reduce(op, x), s.values(strategy, slices)))]


# ---- Gathers ------------------------------------------------------------------------------------------

@program(traced=False)
def gather_types(s, strategy):
    for dtype, axis in itertools.product((*NUMBERS, np.bool_), (0, 1, 2, -1, -2, -3)):
        yield f"{name_of(dtype)} {axis}", lambda dtype=dtype, axis=axis: s.gather(
            strategy, spread(s, strategy, rows(dtype, (2, 3))), axis)


@program(traced=False, meant={"gather": "strings stay on their replica"})
def gather_strings(s, strategy):
    texts = np.array([[b"a", b"bc"], [b"", b"d\0e"], [b"f", b"g"], [b"h", b"i"]], object)
    for axis in (0, 1):
        yield f"gather {axis}", lambda axis=axis: s.gather(strategy, spread(s, strategy, texts), axis)
    yield "local results", lambda: s.local(strategy, spread(s, strategy, texts))
    for op in (SUM, MEAN):
        yield f"reduce {op}", lambda op=op: s.reduce(strategy, op, spread(s, strategy, texts))


@program(traced=False)
def gather_shapes(s, strategy):
    for shape, axis in itertools.product(SHAPES, (0, 1, 2)):
        yield f"{list(shape)} {axis}", lambda shape=shape, axis=axis: s.gather(
            strategy, spread(s, strategy, rows(np.float32, shape)), axis)


@program(kinds=SEVERAL)
def gather_different(s, strategy):
    for (what, shapes), axis in itertools.product(DIFFERENT.items(), (0, 1)):
        arrays = [np.full(shape, r + 1, np.float32) for r, shape in enumerate(shapes)]
        yield f"gather {what} {axis}", lambda arrays=arrays, axis=axis: s.gather(strategy, spread(s, strategy, arrays), axis)
        yield f"all_gather {what} {axis}", lambda arrays=arrays, axis=axis: s.local(strategy, s.run(
            strategy, lambda x: s.all_gather(x, axis), spread(s, strategy, arrays)))


@program(traced=False)
def gather_plain(s, strategy):
    for dtype, shape, axis in itertools.product((np.float32, np.int64), ((), (2,), (2, 3)), (0, 1, 5, -1)):
        yield f"{name_of(dtype)} {shape} {axis}", lambda dtype=dtype, shape=shape, axis=axis: s.gather(
            strategy, s.tensor(np.ones(shape, dtype)), axis)
    for synchronization in ("ON_WRITE", "ON_READ"):
        yield f"variable {synchronization}", lambda synchronization=synchronization: s.gather(
            strategy, s.variable(strategy, np.ones(2, np.float32), synchronization, "SUM"), 0)


# ---- Collectives --------------------------------------------------------------------------------------

@program()
def all_reduce_types(s, strategy):
    for dtype, op, shape in itertools.product((*NUMBERS, np.bool_), (SUM, MEAN), ((2,), (), (0,), (1, 3))):
        yield f"{name_of(dtype)} {op} {list(shape)}", lambda dtype=dtype, op=op, shape=shape: s.local(strategy, s.run(
            strategy, lambda: s.all_reduce(op, s.take(rows(dtype, shape), s.replica_id()))))


@program(meant={
        "outside SUM|central.*variable.* SUM$": "each replica brings what comes from outside"})
def all_reduce_nests(s, strategy):
    for op in (SUM, MEAN):
        yield f"list {op}", lambda op=op: s.local(strategy, s.run(strategy, lambda: s.all_reduce(op, [
            s.take(rows(np.float32), s.replica_id()), s.take(rows(np.float64, (1, 2)), s.replica_id()),
            s.tensor(np.float32(2))])))
        yield f"map {op}", lambda op=op: s.local(strategy, s.run(strategy, lambda: s.all_reduce(op, {
            "x": s.take(rows(np.float32), s.replica_id()), "y": [s.cast(s.replica_id(), np.float32)]})))
        five = s.tensor(np.float32(5))
        yield f"outside {op}", lambda op=op, five=five: s.local(strategy, s.run(strategy, lambda: s.all_reduce(op, five)))
        for synchronization, aggregation in itertools.product(("ON_WRITE", "ON_READ"), AGGREGATIONS):
            def variable(op=op, synchronization=synchronization, aggregation=aggregation):
                v = s.variable(strategy, np.float32(3), synchronization, aggregation)
                return s.local(strategy, s.run(strategy, lambda: s.all_reduce(op, v)))
            yield f"variable {synchronization} {aggregation} {op}", variable


@program()
def all_gather_types(s, strategy):
    for dtype, axis in itertools.product((*NUMBERS, np.bool_), (0, 1, 2, -1)):
        yield f"{name_of(dtype)} {axis}", lambda dtype=dtype, axis=axis: s.local(strategy, s.run(
            strategy, lambda: s.all_gather(s.take(rows(dtype, (2, 1)), s.replica_id()), axis)))
    for shape in SHAPES:
        yield f"{shape}", lambda shape=shape: s.local(strategy, s.run(
            strategy, lambda: s.all_gather(s.take(rows(np.float32, shape), s.replica_id()), 0)))
    yield "nest", lambda: s.local(strategy, s.run(strategy, lambda: s.all_gather(
        {"a": s.take(rows(np.float32), s.replica_id()), "b": [s.take(rows(np.int32, (1, 2)), s.replica_id())]}, 0)))


@program()
def gradients_through(s, strategy):
    factors = np.arange(1, 13, dtype=np.float32)
    for op in (SUM, MEAN):
        def reduced(op=op):
            def own():
                x = s.take(rows(np.float32), s.replica_id())
                return s.gradients(lambda: s.sum(s.all_reduce(op, x) * (s.take(factors, s.replica_id()))), [x])
            return s.local(strategy, s.run(strategy, own))
        yield f"all_reduce {op}", reduced
    for axis in (0, 1):
        def gathered(axis=axis):
            def own():
                x = s.take(rows(np.float32, (1, 2)), s.replica_id())
                return s.gradients(lambda: s.sum(s.all_gather(x, axis) * s.all_gather(x, axis)
                                                 * s.take(factors, s.replica_id())), [x])
            return s.local(strategy, s.run(strategy, own))
        yield f"all_gather {axis}", gathered


# ---- Merges, updates ----------------------------------------------------------------------------------

@program()
def merges(s, strategy):
    for op in (SUM, MEAN):
        yield f"reduce {op}", lambda op=op: s.local(strategy, s.run(strategy, lambda: s.merge(
            lambda own, x: s.reduce(own, op, x), s.take(rows(np.float32), s.replica_id()))))
        yield f"reduce_to {op}", lambda op=op: s.local(strategy, s.run(strategy, lambda: s.merge(
            lambda own, x: s.reduce_to(own, op, x, x), s.take(rows(np.float32), s.replica_id()))))
        yield f"batch {op}", lambda op=op: s.local(strategy, s.run(strategy, lambda: s.merge(
            lambda own, x, y: s.batch_reduce_to(own, op, [x, y]), s.take(rows(np.float32), s.replica_id()),
            s.cast(s.replica_id(), np.float32))))
    yield "gather", lambda: s.local(strategy, s.run(strategy, lambda: s.merge(
        lambda own, x: s.gather(own, x, 0), s.take(rows(np.float32), s.replica_id()))))
    yield "identity", lambda: s.local(strategy, s.run(strategy, lambda: s.merge(
        lambda own, x, y: [y, {"x": x}], s.take(rows(np.float32), s.replica_id()), s.replica_id())))
    yield "swap", lambda: s.local(strategy, s.run(strategy, lambda: s.merge(
        lambda own, x: s.local(own, x)[-1], s.cast(s.replica_id(), np.float32)) + 1))
    yield "nothing", lambda: s.local(strategy, s.run(strategy, lambda: [s.merge(lambda own: None), s.replica_id()][1]))
    yield "states", lambda: s.local(strategy, s.run(strategy, lambda: [
        s.merge(lambda own: seen.append(s.state())), s.replica_id()][1])) if not (seen := []) else seen


@program()
def updates(s, strategy):
    for synchronization, aggregation, how in itertools.product(("ON_WRITE", "ON_READ"), AGGREGATIONS,
                                                               ("assign", "assign_add", "assign_sub")):
        def make(synchronization=synchronization, aggregation=aggregation):
            return s.variable(strategy, np.float32([1, 2]), synchronization, aggregation)

        def outside(how=how, make=make):
            v = make()
            s.update(strategy, v, lambda own, x: s.assign(own, how, x), s.tensor(np.float32([3, 4])))
            return s.components(strategy, v)

        def apart(how=how, make=make):
            v = make()
            s.update(strategy, v, lambda own, x: s.assign(own, how, x), spread(s, strategy, rows(np.float32)))
            return s.components(strategy, v)

        def merged(how=how, make=make):
            v = make()
            s.run(strategy, lambda: s.merge(lambda own, x: [s.update(own, v, lambda one, y: s.assign(one, how, y), x), None][1],
                                            s.take(rows(np.float32), s.replica_id())))
            return s.components(strategy, v)
        yield f"outside {synchronization} {aggregation} {how}", outside
        yield f"apart {synchronization} {aggregation} {how}", apart
        yield f"merged {synchronization} {aggregation} {how}", merged


@program(traced=False, meant={"nests": "a list with one nest for each copy"})
def update_results(s, strategy):
    def other():
        v = s.variable(strategy, np.float32(1), "ON_READ", "SUM")
        w = s.variable(strategy, np.float32(0), aggregation="SUM")
        s.run(strategy, lambda: s.assign(v, "assign", s.cast(s.replica_id(), np.float32) + 4))
        s.update(strategy, w, lambda own: s.assign(own, "assign", s.read(v)))
        return [s.components(strategy, w), s.components(strategy, v)]
    yield "other variable", other
    yield "results", lambda: s.update(strategy, s.variable(strategy, np.float32(3)), lambda own, x: s.read(own) + 1,
                                      s.tensor(np.float32(1)))
    yield "nests", lambda: s.update(strategy, s.variable(strategy, np.float32(3)), lambda own, x: [s.read(own) + 1, {"k": x}],
                                    s.tensor(np.float32(1)))
    def states():
        seen = []
        s.update(strategy, s.variable(strategy, np.float32(3)), lambda own: seen.append(s.state()))
        return seen
    yield "states", states


@program(kinds=SEVERAL, traced=False)
def under_another(s, strategy):
    other, v = s.strategy("mirrored2"), s.variable(strategy, np.float32(1))
    one = s.tensor(np.float32(1))
    yield "update", lambda: s.run(other, lambda: [
        s.update(strategy, v, lambda own: s.assign(own, "assign_add", one)), s.replica_id()][1])

    def in_scope(step):
        with s.scope(other):
            return step()
    yield "input", lambda: in_scope(lambda: s.steps(strategy, s.dataset(np.arange(6, dtype=np.float32), 3)))
    yield "assignment", lambda: in_scope(lambda: s.assign(v, "assign", one))
    yield "components", lambda: s.components(strategy, v)


# ---- Values -------------------------------------------------------------------------------------------

@program(traced=False)
def values_and_results(s, strategy):
    one = s.tensor(np.float32(1))
    yield "same object", lambda: s.local(strategy, s.values(strategy, lambda r, n: one))
    yield "numbers", lambda: s.local(strategy, s.values(strategy, lambda r, n: s.tensor(np.int64([r, n]))))
    yield "nest", lambda: s.local(strategy, s.values(strategy, lambda r, n: [s.tensor(np.float32(r)), {"a": one, "b": []}]))
    yield "mixed nest", lambda: s.local(strategy, [spread(s, strategy, rows(np.int8)), one])
    yield "plain", lambda: s.local(strategy, one)
    yield "list of plain", lambda: s.local(strategy, [one, one])
    yield "empty list", lambda: s.local(strategy, [])
    yield "variable", lambda: s.local(strategy, [s.variable(strategy, np.float32(2)), one])


@program()
def results_of_run(s, strategy):
    one = s.tensor(np.float32(1))
    yield "captured", lambda: s.local(strategy, s.run(strategy, lambda: one))
    yield "captured in a nest", lambda: s.local(strategy, s.run(strategy, lambda: [one, s.replica_id()]))
    yield "argument", lambda: s.local(strategy, s.run(strategy, lambda x: x, one))
    yield "arguments", lambda: s.local(strategy, s.run(strategy, lambda x, y: [y, x], one, spread(s, strategy, rows(np.int64))))
    yield "nest", lambda: s.local(strategy, s.run(strategy, lambda x: {"a": x["b"][0] + 1, "c": x["b"]},
                                                  {"b": [spread(s, strategy, rows(np.float64))]}))
    yield "variable", lambda: s.local(strategy, s.run(strategy, lambda v: s.read(v) + 1, s.variable(strategy, np.float32(2))))
    yield "kinds", lambda: s.local(strategy, s.run(strategy, lambda: [
        s.cast(s.replica_id(), dtype) for dtype in (*NUMBERS, np.bool_)]))


@program(kinds=SEVERAL, meant={"traced (ranks|scalars)": "one program is compiled for all replicas"})
def arguments_that_differ(s, strategy):
    for what, shapes in DIFFERENT.items():
        arrays = [np.full(shape, r + 1, np.float32) for r, shape in enumerate(shapes)]
        yield what, lambda arrays=arrays: s.local(strategy, s.run(strategy, lambda x: x * 2, spread(s, strategy, arrays)))


@program(traced=False)
def broadcasts(s, strategy):
    for dtype in (np.float32, np.int64, np.bool_):
        yield name_of(dtype), lambda dtype=dtype: s.local(strategy, s.broadcast_to(
            strategy, s.tensor(np.ones((2, 1), dtype)), s.variable(strategy, np.float32(0))))


# ---- Input --------------------------------------------------------------------------------------------

@program(traced=False)
def input_batches(s, strategy):
    for n, batch, drop in itertools.product((0, 1, 5, 7), (1, 2, 4), (False, True)):
        yield f"{n} in {batch} {drop}", lambda n=n, batch=batch, drop=drop: s.steps(
            strategy, s.dataset(np.arange(n, dtype=np.int64), batch, drop))
    yield "nest", lambda: s.steps(strategy, s.dataset(
        {"x": np.arange(12, dtype=np.float32).reshape(6, 2), "y": {"z": np.arange(6, dtype=np.uint8)}}, 4))
    yield "strings", lambda: s.steps(strategy, s.dataset(np.array([b"a", b"", b"c\0d", b"e", b"f"], object), 2))
    yield "rows without a batch", lambda: s.steps(strategy, s.dataset(np.arange(12, dtype=np.float32).reshape(4, 3), 0))


@program(traced=False, meant={"central2 .* (1|5) in|scalars": "no element is dropped"})
def input_functions(s, strategy):
    for n, batch in itertools.product((0, 1, 5), (1, 2)):
        seen = []

        def made(pipelines, own, replicas, n=n, batch=batch, seen=seen):
            seen[:] = [pipelines, own, replicas]
            return s.dataset(np.arange(n, dtype=np.float32), batch)
        yield f"{n} in {batch}", lambda made=made, seen=seen: [s.steps_of_function(strategy, made), seen]
    yield "scalars", lambda: s.steps_of_function(strategy, lambda *_: s.dataset(np.arange(5, dtype=np.int32), 0))
