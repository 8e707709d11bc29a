# What parameter servers are made of, in TensorFlow and in Muster: partitioners, conditional accumulators, embedding
# tables and the device assignments of TPUs.
#
# Shapes, sequences of calls and meshes are drawn with a fixed seed. Both sides must agree exactly: the counts, what is
# taken, the number accumulated after every call, and the coordinates of every core. It must not know the formulas.
import ctypes
import sys

import numpy as np
import tensorflow as tf

import muster
from report import Report

SEQUENCES, CALLS = 12, 25
SHAPES, MESHES = 400, 300
FLOATS = (np.float16, np.float32, np.float64)


def shape_of(mu, dims):
    shape = mu.declared.structs["mu_shape"]()
    shape.rank = len(dims)
    for i, size in enumerate(dims):
        shape.dims[i] = -1 if size is None else size
    return shape


# ---- Partitioners -------------------------------------------------------------------------------

PARTITIONERS = [
    ("fixed_shards", lambda draw: {"num_shards": int(draw.integers(1, 20))}),
    ("min_size", lambda draw: {"min_shard_bytes": int(draw.integers(1, 2000)), "max_shards": int(draw.integers(1, 40))}),
    ("max_size", lambda draw: {"max_shard_bytes": int(draw.integers(1, 2000))}),
    ("max_size", lambda draw: {"max_shard_bytes": int(draw.integers(1, 500)), "max_shards": int(draw.integers(1, 10))}),
]


def compare_partitioners(report, mu):
    theirs = tf.distribute.experimental.partitioners
    classes = {"fixed_shards": theirs.FixedShardsPartitioner, "min_size": theirs.MinSizePartitioner,
               "max_size": theirs.MaxSizePartitioner}
    draw = np.random.default_rng(1)
    for name, options in PARTITIONERS:
        wrong = []
        for _ in range(SHAPES):
            chosen, dims = options(draw), [int(size) for size in draw.integers(1, 60, draw.integers(1, 4))]
            dtype, axis = FLOATS[draw.integers(3)], int(draw.integers(-len(dims), len(dims)))
            wanted = list(classes[name](**chosen)(tf.TensorShape(dims), tf.as_dtype(dtype), axis))
            counts = (ctypes.c_int64 * 8)()
            with mu.pool():
                made = getattr(mu, f"mu_{name}_partitioner")(**chosen)
                n = mu.mu_partitioner_call(made, ctypes.byref(shape_of(mu, dims)), muster.DTYPES[np.dtype(dtype)], axis, counts)
            if list(counts[:n]) != wanted:
                wrong.append(f"{chosen} of {dims} along axis {axis}: {list(counts[:n])}, TensorFlow {wanted}")
        report.row(f"{name} ({', '.join(chosen)})", f"{SHAPES} shapes", SHAPES - len(wrong), wrong[:5])


# ---- Accumulators -------------------------------------------------------------------------------


def calls_of(draw, sparse, dtype):
    """Calls that never wait: ("apply", step, gradient), ("take", least), ("step", number)."""
    step = accumulated = 0
    for _ in range(CALLS):
        kind = draw.choice(["apply", "apply", "apply", "take", "step"])
        if kind == "take" and accumulated:
            yield "take", int(draw.integers(1, accumulated + 1))
            step, accumulated = step + 1, 0
        elif kind == "step":
            step = int(draw.integers(max(step - 1, 0), step + 2))
            yield "step", step
        else:
            local = int(draw.integers(max(step - 1, 0), step + 2))
            accumulated += local >= step
            rows = np.flatnonzero(draw.random(5) < 0.5).astype(np.int64) if sparse else np.arange(5)
            yield "apply", local, rows, draw.standard_normal((len(rows), 2)).astype(dtype)


def in_tensorflow(calls, sparse, dtype, reduction):
    results = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        kind = tf.compat.v1.SparseConditionalAccumulator if sparse else tf.compat.v1.ConditionalAccumulator
        accumulator = kind(tf.as_dtype(dtype), shape=[None, 2], reduction_type=reduction)
        for call in calls:
            if call[0] == "step":
                session.run(accumulator.set_global_step(call[1]))
            elif call[0] == "take":
                results.append([np.asarray(part) for part in tf.nest.flatten(session.run(accumulator.take_grad(call[1])))])
            elif sparse:
                session.run(accumulator.apply_grad(call[2], call[3], local_step=call[1]))
            else:
                session.run(accumulator.apply_grad(tf.constant(call[3]), local_step=call[1]))
            results.append([session.run(accumulator.num_accumulated())])
    return results


def in_muster(mu, calls, sparse, dtype, reduction):
    results = []
    shape = shape_of(mu, [None, 2])
    make = mu.mu_sparse_conditional_accumulator if sparse else mu.mu_conditional_accumulator
    accumulator = make(dtype=muster.DTYPES[np.dtype(dtype)], shape=ctypes.addressof(shape), reduction_type=reduction)
    for call in calls:
        if call[0] == "step":
            mu.mu_accumulator_set_global_step(accumulator, call[1])
        elif call[0] == "take" and sparse:
            taken = mu.mu_sparse_accumulator_take_grad(accumulator=accumulator, num_required=call[1])
            results.append([mu.array(mu.mu_at(taken, i)) for i in range(3)])
        elif call[0] == "take":
            results.append([mu.array(mu.mu_accumulator_take_grad(accumulator=accumulator, num_required=call[1]))])
        elif sparse:
            mu.mu_sparse_accumulator_apply_grad(accumulator, mu.tensor(call[2]), mu.tensor(call[3]), None, call[1])
        else:
            mu.mu_accumulator_apply_grad(accumulator, mu.tensor(call[3]), call[1])
        results.append([mu.array(mu.mu_accumulator_num_accumulated(accumulator))])
    return results


def same(ours, theirs):
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b)) for a, b in zip(ours, theirs))


def compare_accumulators(report, mu):
    for sparse in (False, True):
        for dtype in FLOATS:
            for reduction in ("MEAN", "SUM"):
                wrong = []
                for seed in range(SEQUENCES):
                    calls = list(calls_of(np.random.default_rng(seed), sparse, dtype))
                    with mu.pool():
                        ours = in_muster(mu, calls, sparse, dtype, reduction)
                    if not same(ours, in_tensorflow(calls, sparse, dtype, reduction)):
                        wrong.append(f"the sequence of seed {seed}")
                name = f"{'sparse' if sparse else 'dense'} accumulator, {np.dtype(dtype).name}, {reduction}"
                report.row(name, f"{SEQUENCES} sequences of {CALLS} calls", SEQUENCES - len(wrong), wrong)


# ---- Device assignments -------------------------------------------------------------------------


def mesh_of(draw):
    """A mesh, its devices in random order, and the options of an assignment that may or may not be possible."""
    mesh = [int(size) for size in draw.choice([1, 2, 2, 3, 4], 3)] + [int(draw.integers(1, 3))]
    places = np.array(list(np.ndindex(*mesh)), np.int32)
    shape = [int(draw.choice([1, 1, size])) for size in mesh]
    stride = [int(draw.choice([1, 1, 1, 2])) for _ in mesh]
    most = np.prod([size // (a * b) * b for size, a, b in zip(mesh, shape, stride)])
    replicas = int(draw.choice([1, max(most, 1), draw.integers(1, max(most, 1) + 2)]))
    return mesh, draw.permutation(places)[None], shape, stride, replicas, int(draw.integers(3))


def their_cores(mesh, places, shape, stride, replicas, order):
    topology = tf.tpu.experimental.Topology(mesh_shape=mesh, device_coordinates=places)
    modes = tf.tpu.experimental.DeviceOrderMode
    mode = (modes.AUTO, modes.RING, modes.MESH)[order]
    try:
        made = tf.tpu.experimental.DeviceAssignment.build(topology, shape, stride, replicas, device_order_mode=mode)
    except ValueError:
        return None
    return made.core_assignment


def our_cores(mu, mesh, places, shape, stride, replicas, order):
    flat = [int(number) for number in places.flatten()]
    coordinates = (ctypes.c_int * len(flat))(*flat)
    topology = mu.mu_tpu_topology_new(mesh_shape=mesh, num_tasks=1, num_tpu_devices_per_task=places.shape[1],
                                      device_coordinates=coordinates)
    try:
        made = mu.mu_tpu_device_assignment_build(topology=topology, computation_shape=shape, computation_stride=stride,
                                                 num_replicas=replicas, device_order_mode=order)
    except muster.MusterError:
        return None
    cores = np.empty((replicas, mu.mu_tpu_device_assignment_num_cores_per_replica(made), 4), np.int32)
    for at in np.ndindex(*cores.shape[:2]):
        place = (ctypes.c_int * 4)()
        mu.mu_tpu_device_assignment_coordinates(made, *at, place)
        cores[at] = list(place)
    return cores


def compare_assignments(report, mu):
    draw = np.random.default_rng(3)
    wrong, refused = [], 0
    for _ in range(MESHES):
        case = mesh_of(draw)
        theirs = their_cores(*case)
        with mu.pool():
            ours = our_cores(mu, *case)
        refused += theirs is None
        if (ours is None) != (theirs is None) or (ours is not None and not np.array_equal(ours, theirs)):
            wrong.append(f"mesh {case[0]}, shape {case[2]}, stride {case[3]}, {case[4]} replicas, order {case[5]}")
    report.row("TPU device assignments", f"{MESHES} meshes, {refused} refused by both", MESHES - len(wrong), wrong[:5])


# ---- Embedding tables ---------------------------------------------------------------------------

# Keras's optimizers on one variable per key: a step gives the keys of its batch the sum of their gradients, and leaves
# the others alone. Row-wise Adagrad is Keras's Adagrad whose accumulator gets the mean of the squares.
TABLE_KEYS, TABLE_STEPS, TABLE_BATCH, TABLE_WIDTH = 12, 60, 9, 8
TABLE_OPTIMIZERS = [
    ("sgd", tf.keras.optimizers.SGD, {"learning_rate": 0.1}),
    ("adagrad", tf.keras.optimizers.Adagrad, {"learning_rate": 0.3, "initial_accumulator_value": 0.2, "epsilon": 1e-5}),
    ("rowwise_adagrad", None, {"learning_rate": 0.3, "initial_accumulator_value": 0.2, "epsilon": 1e-5}),
    ("adam", tf.keras.optimizers.Adam, {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-6}),
]


def batches_of_keys():
    draw = np.random.default_rng(4)
    return [(draw.integers(0, TABLE_KEYS, TABLE_BATCH), draw.normal(size=(TABLE_BATCH, TABLE_WIDTH)).astype(np.float32))
            for _ in range(TABLE_STEPS)]


def their_rows(first, maker, options):
    rows = [tf.Variable(row) for row in first]
    makers = [maker(**options) for _ in rows] if maker else []
    sums = [tf.Variable(options.get("initial_accumulator_value", 0.0)) for _ in rows]
    for keys, gradients in batches_of_keys():
        for key in np.unique(keys):
            gradient = tf.reduce_sum(tf.constant(gradients[keys == key]), 0)
            if maker:
                makers[key].apply_gradients([(gradient, rows[key])])
                continue
            sums[key].assign_add(tf.reduce_mean(tf.square(gradient)))
            rows[key].assign_sub(options["learning_rate"] * gradient / tf.sqrt(sums[key] + options["epsilon"]))
    return np.stack([row.numpy() for row in rows])


def compare_tables(report, mu):
    for name, maker, options in TABLE_OPTIMIZERS:
        with mu.pool():
            table = mu.mu_embedding_table_new(dimension=TABLE_WIDTH, optimizer=name, name=name, scale=0.5, **options)
            every = mu.tensor(np.arange(TABLE_KEYS, dtype=np.int64))
            first = np.array(mu.array(mu.mu_embedding_table_lookup(table=table, keys=every)))
            for keys, gradients in batches_of_keys():
                mu.mu_embedding_table_apply_gradients(table=table, keys=mu.tensor(keys), gradients=mu.tensor(gradients))
            last = np.array(mu.array(mu.mu_embedding_table_lookup(table=table, keys=every)))
        far = float(np.abs(last - their_rows(first, maker, options)).max())
        report.check(f"embedding table, {name}", f"{TABLE_STEPS} steps on {TABLE_KEYS} keys: {far:.1e}", far <= 5e-6)


def main(library, only=""):
    mu = muster.Library(library)
    report = Report("servers")
    for compare in (compare_partitioners, compare_accumulators, compare_assignments, compare_tables):
        if only in compare.__name__:
            with report.guard(compare.__name__):
                compare(report, mu)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
