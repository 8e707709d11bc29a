# The two sides on which a program of distributed values runs: TensorFlow's tf.distribute and Muster, behind one interface.
#
# A program gets a side and uses its methods: strategies, variables, `run` with a function for replicas, collectives, merges,
# updates, reductions. Nests are Python's lists and dicts; `look` makes what comes out comparable, `attempt` makes of an
# error its code, as the last tables of docs/conformance.md map Python's errors. It must not know what programs do.
import ctypes

import numpy as np

import muster

SUM, MEAN = "SUM", "MEAN"
AGGREGATIONS = ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
CPUS = 4
CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
         "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
         "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED")
MERGE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
CALL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Error:
    """What a call failed with: the code counts, the message is for people."""

    def __init__(self, code, message):
        self.code, self.message = code, message

    def __repr__(self):
        return f"{self.code}: {' '.join(self.message.split())[:100]}"


def map_nest(function, nest):
    if isinstance(nest, (list, tuple)):
        return [map_nest(function, item) for item in nest]
    if isinstance(nest, dict):
        return {key: map_nest(function, item) for key, item in nest.items()}
    return function(nest)


# ---- TensorFlow ---------------------------------------------------------------------------------------

class TensorFlow:
    name = "TensorFlow"

    def __init__(self, traced, strategy=None):
        import tensorflow as tf

        self.tf, self.traced, self.workers = tf, traced, strategy

    @staticmethod
    def start():
        import tensorflow as tf

        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                                   [tf.config.LogicalDeviceConfiguration()] * CPUS)

    def strategy(self, kind):
        tf = self.tf
        devices = [f"CPU:{i}" for i in range(int(kind[-1]))] if kind[-1].isdigit() else None
        if kind.startswith("mirrored"):
            return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())
        if kind.startswith("central"):
            return tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0")
        if kind == "one":
            return tf.distribute.OneDeviceStrategy("CPU:0")
        return self.workers if kind == "workers" else tf.distribute.get_strategy()

    def scope(self, strategy):
        return strategy.scope()

    def tensor(self, array):
        return self.tf.constant(array)

    def variable(self, strategy, initial, synchronization="AUTO", aggregation="NONE", **options):
        tf = self.tf
        with strategy.scope():
            return tf.Variable(initial, name="v", synchronization=tf.VariableSynchronization[synchronization],
                               aggregation=tf.VariableAggregation[aggregation], **options)

    def run(self, strategy, function, *arguments):
        # Replicas share one function: what comes from outside is one object for all.
        if not self.traced:
            return strategy.run(function, arguments)
        return self.tf.function(lambda *own: strategy.run(function, own), autograph=False)(*arguments)

    def replica_id(self):
        return self.tf.convert_to_tensor(self.tf.distribute.get_replica_context().replica_id_in_sync_group)

    def cast(self, x, dtype):
        return self.tf.cast(x, self.tf.as_dtype(np.dtype(dtype)))

    def take(self, array, index):
        """Row `index` of an array from outside, as a tensor of the replica's own."""
        return self.tf.gather(self.tf.constant(array), index)

    def first(self, x, n):
        return x[:n]

    def all_reduce(self, op, nest):
        return self.tf.distribute.get_replica_context().all_reduce(op, nest)

    def all_gather(self, nest, axis):
        return self.tf.distribute.get_replica_context().all_gather(nest, axis)

    def merge(self, function, *arguments):
        return self.tf.distribute.get_replica_context().merge_call(function, arguments)

    def assign(self, variable, how, value):
        getattr(variable, how)(value, read_value=False)

    def scatter(self, variable, how, indices, values):
        getattr(variable, f"scatter_{how}")(self.slices(values, indices, variable.shape))

    def slices(self, values, indices, shape):
        return self.tf.IndexedSlices(values, indices, self.tf.constant(list(shape)))

    def dense(self, slices):
        return self.tf.convert_to_tensor(slices)

    def read(self, variable):
        return variable.read_value()

    def converted(self, variable):
        return self.tf.convert_to_tensor(variable)

    def reduce(self, strategy, op, value, axis=None):
        return strategy.reduce(op, value, axis=axis)

    def reduce_to(self, strategy, op, value, like):
        return strategy.extended.reduce_to(self.tf.distribute.ReduceOp[op], value, like)

    def batch_reduce_to(self, strategy, op, values):
        return strategy.extended.batch_reduce_to(self.tf.distribute.ReduceOp[op], [(value, value) for value in values])

    def broadcast_to(self, strategy, tensor, like):
        return strategy.extended.broadcast_to(tensor, like)

    def gather(self, strategy, value, axis):
        return strategy.gather(value, axis)

    def update(self, strategy, variable, function, *arguments):
        return strategy.extended.update(variable, function, arguments, group=False)

    def values(self, strategy, function):
        """experimental_distribute_values_from_function; of id and number of replicas."""
        return strategy.experimental_distribute_values_from_function(
            lambda context: function(context.replica_id_in_sync_group, context.num_replicas_in_sync))

    def local(self, strategy, value):
        return list(strategy.experimental_local_results(value))

    def components(self, strategy, variable):
        return [self.tf.identity(component.read_value()) for component in self.local(strategy, variable)]

    def sync_on_read(self, function):
        from tensorflow.python.distribute import distribute_lib  # not public

        with distribute_lib.variable_sync_on_read_context():
            return function()

    def dataset(self, nest, batch, drop_remainder=False):
        dataset = self.tf.data.Dataset.from_tensor_slices(nest)
        return dataset.batch(batch, drop_remainder=drop_remainder) if batch else dataset

    def steps(self, strategy, dataset, most=20):
        """What each step of a distributed dataset gives, as local results."""
        return self._steps(strategy, strategy.experimental_distribute_dataset(dataset), most)

    def steps_of_function(self, strategy, function, most=20):
        def made(context):
            return function(context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync)

        return self._steps(strategy, strategy.distribute_datasets_from_function(made), most)

    def _steps(self, strategy, distributed, most):
        return [self.local(strategy, element) for _, element in zip(range(most), distributed)]

    def gradients(self, function, sources):
        with self.tf.GradientTape() as tape:
            tape.watch(sources)
            loss = function()
        return tape.gradient(loss, sources)

    def sum(self, x):
        return self.tf.reduce_sum(x)

    def state(self):
        tf = self.tf.distribute
        return [tf.has_strategy(), tf.in_cross_replica_context()]

    def look(self, value):
        return map_nest(self.look_at_leaf, value)

    def look_at_leaf(self, leaf):
        if isinstance(leaf, self.tf.IndexedSlices):
            return ["slices", leaf.indices.numpy(), leaf.values.numpy()]
        return leaf.numpy() if hasattr(leaf, "numpy") else leaf

    def attempt(self, thunk):
        try:
            return thunk()
        except self.tf.errors.OpError as error:
            return Error(CODES[error.error_code], str(error))
        except (ValueError, TypeError, AssertionError) as error:
            return Error("INVALID_ARGUMENT", f"{type(error).__name__} {error}")
        except NotImplementedError as error:
            return Error("UNIMPLEMENTED", str(error))
        except RuntimeError as error:
            return Error("FAILED_PRECONDITION", str(error))
        except (AttributeError, IndexError) as error:  # mistakes of TensorFlow's own
            return Error("UNKNOWN", str(error))


# ---- Muster -------------------------------------------------------------------------------------------

class Handle:
    """A tensor, a value or a variable of Muster's; a tensor has arithmetic."""

    def __init__(self, side, kind, handle):
        self.side, self.kind, self.handle = side, kind, handle

    def _with(self, other, name):
        mu, own = self.side.mu, self.side.as_tensor(self)
        if isinstance(other, Handle):
            other = self.side.as_tensor(other)
        else:
            other = mu.mu_constant(mu.mu_tensor_dtype(own), float(other))
        return Handle(self.side, "tensor", getattr(mu, name)(own, other))

    def __add__(self, other):
        return self._with(other, "mu_add")

    def __sub__(self, other):
        return self._with(other, "mu_subtract")

    def __mul__(self, other):
        return self._with(other, "mu_multiply")


class Muster:
    name = "Muster"

    def __init__(self, traced, mu, strategy=None):
        self.traced, self.mu, self.workers, self.kept = traced, mu, strategy, []

    def strategy(self, kind):
        mu, n = self.mu, int(kind[-1]) if kind[-1].isdigit() else 0
        if kind.startswith("mirrored"):
            return mu.mirrored(n)
        if kind.startswith("central"):
            return mu.mu_central_storage_strategy(replicas=n)
        if kind == "one":
            return mu.mu_one_device_strategy("CPU:0")
        return self.workers if kind == "workers" else mu.mu_default_strategy()

    def scope(self, strategy):
        return self.mu.scope(strategy)

    # ---- Between Python's nests and values

    def value(self, nest):
        mu = self.mu
        if isinstance(nest, (list, tuple)):
            items = [self.value(item) for item in nest]
            return mu.mu_list_of(len(items), items)
        if isinstance(nest, dict):
            items = [self.value(item) for item in nest.values()]
            return mu.mu_map_of(len(items), (ctypes.c_char_p * max(1, len(nest)))(*(key.encode() for key in nest)),
                                (ctypes.c_void_p * max(1, len(items)))(*items))
        if nest is None:
            return mu.mu_list_of(0, [])
        if not isinstance(nest, Handle):
            return mu.mu_of(mu.any_tensor(np.asarray(nest)))
        if nest.kind == "tensor":
            return mu.mu_of(nest.handle)
        return mu.mu_value_at(mu.variables([nest.handle]), 0) if nest.kind == "variable" else nest.handle

    def nest(self, value):
        mu = self.mu
        kind = mu.mu_value_kind_of(value)
        if kind == mu.declared.constants.get("MU_VALUE_TENSOR", 0):
            return Handle(self, "tensor", mu.mu_value_tensor(value))
        if kind == 1:
            return Handle(self, "variable", mu.mu_value_variable(value))
        if kind == 2:
            return [self.nest(mu.mu_value_at(value, i)) for i in range(mu.mu_value_count(value))]
        if kind == 3:
            return {mu.mu_value_key(value, i).decode(): self.nest(mu.mu_value_at(value, i))
                    for i in range(mu.mu_value_count(value))}
        return Handle(self, "value", value)

    def as_tensor(self, handle):
        if handle.kind == "tensor":
            return handle.handle
        if handle.kind == "variable":
            return self.mu.mu_variable_read(handle.handle)
        return self.mu.mu_value_tensor(handle.handle)

    def tensor(self, array):
        return Handle(self, "tensor", self.mu.any_tensor(np.asarray(array)))

    def handle_of(self, x):
        return self.as_tensor(x if isinstance(x, Handle) else self.tensor(x))

    def variable(self, strategy, initial, synchronization="AUTO", aggregation="NONE", **options):
        mu = self.mu
        if "trainable" in options and not options["trainable"]:
            options = {"not_trainable": True}
        with self.scope(strategy):
            return Handle(self, "variable", mu.mu_variable_new(
                initial_value=self.handle_of(initial), name="v",
                synchronization=mu.mu_variable_synchronization_from_name(synchronization),
                aggregation=mu.mu_variable_aggregation_from_name(aggregation), **options))

    def run(self, strategy, function, *arguments):
        mu = self.mu

        def on_replica(own):
            made = function(*(self.nest(mu.mu_value_at(own, i)) for i in range(mu.mu_value_count(own)))) if own else function()
            return self.value(made)

        own = self.value(list(arguments)) if arguments else None
        if self.traced:
            made, kept = mu.function(on_replica)
            self.kept.append(kept)
            return self.nest(mu.mu_run(strategy, made, own))
        callback = CALL(lambda own, _: mu.call_back(lambda: on_replica(own), None))
        return self.nest(mu.mu_run_callback(strategy, callback, None, own))

    def replica_id(self):
        return Handle(self, "tensor", self.mu.mu_replica_id())

    def cast(self, x, dtype):
        return Handle(self, "tensor", self.mu.mu_cast(self.handle_of(x), muster.DTYPES[np.dtype(dtype)]))

    def take(self, array, index):
        return Handle(self, "tensor", self.mu.mu_gather(self.mu.any_tensor(array), self.as_tensor(index), 0, 0))

    def first(self, x, n):
        rank = self.mu.mu_tensor_rank(x.handle)
        sizes = [n] + [self.mu.mu_tensor_dim(x.handle, i) for i in range(1, rank)]
        return Handle(self, "tensor", self.mu.mu_slice(x.handle, [0] * rank, sizes))

    def op(self, op):
        return self.mu.mu_reduce_op_from_name(op)

    def all_reduce(self, op, nest):
        return self.nest(self.mu.mu_all_reduce_value(self.op(op), self.value(nest)))

    def all_gather(self, nest, axis):
        return self.nest(self.mu.mu_all_gather_value(self.value(nest), axis))

    def merge(self, function, *arguments):
        mu = self.mu

        def merged(strategy, own, _):
            return mu.call_back(lambda: self.value(function(
                strategy, *(self.nest(mu.mu_value_at(own, i)) for i in range(len(arguments))))), None)

        callback = MERGE(merged)
        self.kept.append(callback)
        return self.nest(mu.mu_merge_call(callback, None, self.value(list(arguments))))

    def assign(self, variable, how, value):
        getattr(self.mu, f"mu_variable_{how}")(variable.handle, self.handle_of(value))

    def scatter(self, variable, how, indices, values):
        getattr(self.mu, f"mu_variable_scatter_{how}")(variable.handle, self.handle_of(indices), self.handle_of(values))

    def slices(self, values, indices, shape):
        return Handle(self, "value", self.mu.mu_indexed_slices(self.handle_of(values), self.handle_of(indices), len(shape),
                                                              list(shape)))

    def dense(self, slices):
        return Handle(self, "tensor", self.mu.mu_convert_to_tensor(slices.handle))

    def read(self, variable):
        return Handle(self, "tensor", self.mu.mu_variable_read(variable.handle))

    converted = read

    def reduce(self, strategy, op, value, axis=None):
        options = {} if axis is None else {"axis": axis} if isinstance(axis, int) else {"axes": list(axis)}
        return self.nest(self.mu.mu_reduce(strategy, self.op(op), self.value(value), **options))

    def reduce_to(self, strategy, op, value, like):
        return self.nest(self.mu.mu_reduce_to(strategy, self.op(op), self.value(value), like=self.value(like)))

    def batch_reduce_to(self, strategy, op, values):
        return self.nest(self.mu.mu_batch_reduce_to(strategy, self.op(op), self.value(list(values)), None))

    def broadcast_to(self, strategy, tensor, like):
        return self.nest(self.mu.mu_broadcast_to_devices(strategy, self.value(tensor), self.value(like)))

    def gather(self, strategy, value, axis):
        return self.nest(self.mu.mu_strategy_gather(strategy, self.value(value), axis))

    def update(self, strategy, variable, function, *arguments):
        mu = self.mu

        def updated(_variable, own, _):
            return mu.call_back(lambda: self.value(function(
                variable, *(self.nest(mu.mu_value_at(own, i)) for i in range(len(arguments))))), None)

        callback = MERGE(updated)
        self.kept.append(callback)
        return self.nest(mu.mu_update_variable(strategy, variable.handle, callback, None, self.value(list(arguments)),
                                               local_results=True))

    def values(self, strategy, function):
        mu = self.mu
        context = mu.declared.structs["mu_value_context"]

        def made(own, _):
            own = ctypes.cast(own, ctypes.POINTER(context)).contents
            return mu.call_back(lambda: self.value(function(own.replica_id, own.num_replicas)), None)

        callback = CALL(made)
        return self.nest(mu.mu_distribute_values(strategy, callback, None))

    def local(self, strategy, value):
        return self.nest(self.mu.mu_local_results(strategy, self.value(value)))

    def components(self, strategy, variable):
        return self.local(strategy, variable)

    def sync_on_read(self, function):
        self.mu.mu_sync_on_read(True)
        try:
            return function()
        finally:
            self.mu.mu_sync_on_read(False)

    def dataset(self, nest, batch, drop_remainder=False):
        dataset = self.mu.mu_dataset_from_tensor_slices(self.value(map_nest(self.tensor, nest)))
        return self.mu.mu_dataset_batch(dataset, batch, drop_remainder=drop_remainder) if batch else dataset

    def steps(self, strategy, dataset, most=20):
        return self._steps(strategy, self.mu.mu_distribute_dataset(strategy, dataset), most)

    def steps_of_function(self, strategy, function, most=20):
        mu = self.mu
        context = mu.declared.structs["mu_input_context"]

        def made(own, _):
            own = ctypes.cast(own, ctypes.POINTER(context)).contents
            return mu.call_back(lambda: function(own.num_input_pipelines, own.input_pipeline_id,
                                                 own.num_replicas_in_sync), None)

        callback = CALL(made)
        self.kept.append(callback)
        return self._steps(strategy, mu.mu_distribute_datasets_from_function(strategy, callback, None), most)

    def _steps(self, strategy, distributed, most):
        iterator, found = self.mu.mu_iterate(distributed), []
        while len(found) < most and (element := self.mu.mu_next(iterator)):
            found.append(self.local(strategy, self.nest(element)))
        return found

    def gradients(self, function, sources):
        mu = self.mu
        tape = mu.mu_tape_open()
        loss = function()
        found = self.nest(mu.mu_gradients(tape, self.as_tensor(loss), self.value(sources)))
        mu.mu_tape_close(tape)
        return found

    def sum(self, x):
        return Handle(self, "tensor", self.mu.mu_reduce_sum(self.as_tensor(x), muster.ALL_AXES))

    def state(self):
        return [bool(self.mu.mu_has_strategy()), bool(self.mu.mu_in_cross_replica_context())]

    def look(self, value):
        return map_nest(self.look_at_leaf, value)

    def look_at_leaf(self, leaf):
        if not isinstance(leaf, Handle):
            return leaf
        if leaf.kind == "value" and self.mu.mu_value_kind_of(leaf.handle) == 6:
            parts = [self.mu.array(self.mu.mu_at(leaf.handle, i)) for i in range(2)]
            return ["slices", parts[1], parts[0]]
        return self.mu.array(self.as_tensor(leaf))

    def attempt(self, thunk):
        try:
            return thunk()
        except muster.MusterError as error:
            return Error(CODES[error.code], str(error))
