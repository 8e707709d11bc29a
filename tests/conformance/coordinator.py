# ParameterServerStrategy with its coordinator, in TensorFlow and in Muster: two workers, two parameter servers, variables
# divided among them, and one step in flight at a time, so that both have the same updates in the same order.
#
# In float64 what remains is the order of sums; float32 by the rule of docs/conformance.md. All servers and workers have
# sockets, in this process. It must not know how calls reach workers.
import json
import socket
import sys

import numpy as np
import tensorflow as tf

import muster
from report import Report

STEPS, ROWS, TOLERANCE = 200, 8, 1e-9
FIRST_LOSSES, FIRST_TOLERANCE = 15, 1e-5
WORKERS, SERVERS, RATE = 2, 2, 0.05


def starting_point(dtype):
    draw = np.random.default_rng(5)
    return {name: draw.standard_normal(shape).astype(dtype) for name, shape in (("w", (5, 4)), ("b", 4), ("v", (4, 1)))}


def batches(dtype):
    draw = np.random.default_rng(6)
    for _ in range(STEPS):
        x = draw.standard_normal((ROWS, 5))
        yield x.astype(dtype), np.sin(x.sum(axis=1, keepdims=True)).astype(dtype)


# ---- TensorFlow ---------------------------------------------------------------------------------


def local_cluster():
    held = [socket.create_server(("localhost", 0)) for _ in range(WORKERS + SERVERS)]
    addresses = [f"localhost:{s.getsockname()[1]}" for s in held]
    for s in held:
        s.close()
    spec = tf.train.ClusterSpec({"worker": addresses[:WORKERS], "ps": addresses[WORKERS:]})
    servers = [tf.distribute.Server(spec, job_name=job, task_index=i, protocol="grpc")
               for job, n in (("worker", WORKERS), ("ps", SERVERS)) for i in range(n)]
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc"), servers


def tensorflow_coordinator():
    resolver, servers = local_cluster()
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    return tf.distribute.coordinator.ClusterCoordinator(strategy), servers


def in_tensorflow(coordinator, dtype):
    with coordinator.strategy.scope():
        w, b, v = (tf.Variable(value, name=name) for name, value in starting_point(dtype).items())
    parts = [part for variable in (w, b, v) for part in variable.variables]

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.matmul(x, tf.convert_to_tensor(w)) + tf.convert_to_tensor(b))
            loss = tf.reduce_mean(tf.square(tf.matmul(hidden, tf.convert_to_tensor(v)) - y))
        for part, gradient in zip(parts, tape.gradient(loss, parts)):
            part.assign_sub(RATE * gradient)
        return loss

    losses = []
    for x, y in batches(dtype):
        result = coordinator.schedule(step, args=(tf.constant(x), tf.constant(y)))
        coordinator.join()
        losses.append(float(coordinator.fetch(result)))
    places = [part.device for part in parts]
    weights = [np.concatenate([part.numpy() for part in variable.variables]) for variable in (w, b, v)]
    return losses, weights, [int(place.split("task:")[1].split("/")[0]) for place in places]


# ---- Muster -------------------------------------------------------------------------------------


def make_step(mu, variables, dtype):
    w, b, v = variables
    parts = [mu.mu_variable_shard(variable, i) for variable in variables
             for i in range(mu.mu_variable_shard_count(variable))]

    def step(batch):
        x, y = mu.mu_at(batch, 0), mu.mu_at(batch, 1)
        tape = mu.mu_tape_open()
        hidden = mu.mu_tanh(mu.mu_add(mu.mu_matmul(x, mu.mu_variable_read(w)), mu.mu_variable_read(b)))
        error = mu.mu_subtract(mu.mu_matmul(hidden, mu.mu_variable_read(v)), y)
        loss = mu.mu_reduce_mean(mu.mu_square(error), muster.ALL_AXES)
        gradients = mu.mu_gradients(tape, loss, mu.variables(parts))
        mu.mu_tape_close(tape)
        rate = mu.mu_constant(muster.DTYPES[np.dtype(dtype)], RATE)
        for i, part in enumerate(parts):
            mu.mu_variable_assign_sub(part, mu.mu_multiply(rate, mu.mu_at(gradients, i)))
        return mu.mu_of(loss)

    return step, parts


def muster_strategy(mu):
    servers = [mu.mu_server_create_local_server(True) for _ in range(WORKERS + SERVERS)]
    addresses = [mu.mu_server_target(server).decode().removeprefix("muster://") for server in servers]
    spec = mu.mu_cluster_spec_parse(json.dumps({"worker": addresses[:WORKERS], "ps": addresses[WORKERS:]}))
    return mu.mu_parameter_server_strategy(cluster_resolver=mu.mu_simple_cluster_resolver(cluster_spec=spec),
                                           partitioner=mu.mu_fixed_shards_partitioner(num_shards=2))


def in_muster(mu, dtype):
    strategy = muster_strategy(mu)
    coordinator = mu.mu_coordinator_new(strategy=strategy)
    with mu.scope(strategy):
        variables = [mu.mu_variable_new(initial_value=mu.tensor(value), name=name)
                     for name, value in starting_point(dtype).items()]
    step, parts = make_step(mu, variables, dtype)
    function, _kept = mu.function(step)
    losses = []
    for x, y in batches(dtype):
        with mu.pool():
            result = mu.mu_schedule(coordinator=coordinator, function=function,
                                    arguments=mu.values([mu.tensor(x), mu.tensor(y)]))
            mu.mu_join(coordinator=coordinator)
            losses.append(float(mu.array(mu.mu_value_tensor(mu.mu_fetch(result)))))
    places = [int(mu.mu_variable_device(part).decode().split("task:")[1].split("/")[0]) for part in parts]
    return losses, [mu.array(mu.mu_variable_read(variable)) for variable in variables], places


# ---- Side by side -------------------------------------------------------------------------------


def compare_f64(report, theirs, ours):
    losses, weights, places = theirs
    our_losses, our_weights, our_places = ours
    far = max(abs(a - b) for a, b in zip(our_losses, losses, strict=True))
    report.check("losses", f"{STEPS} steps in float64, largest difference {far:.1e}, from {losses[0]:.3f} to {losses[-1]:.3f}",
                 far <= TOLERANCE)
    far = max(np.abs(a - b).max() for a, b in zip(our_weights, weights, strict=True))
    report.check("weights", f"largest difference {far:.1e}", far <= TOLERANCE)
    report.check("places", f"parts on servers {our_places}, TensorFlow {places}", our_places == places)


def compare_f32(report, exact, theirs, ours):
    def off(losses):
        return max(abs(a - b) for a, b in zip(losses[:FIRST_LOSSES], exact[0], strict=False))

    def apart(weights):
        return np.sqrt(sum(np.square(a - b).sum() for a, b in zip(weights, exact[1], strict=True)))

    near = max(abs(a - b) for a, b in zip(ours[0][:FIRST_LOSSES], theirs[0], strict=False))
    report.check("losses in float32", f"first {FIRST_LOSSES} within {near:.1e}",
                 near <= FIRST_TOLERANCE or off(ours[0]) <= 2 * off(theirs[0]))
    report.check("weights in float32", f"{apart(ours[1]):.1e} from TensorFlow's float64 run, its own float32 run "
                 f"{apart(theirs[1]):.1e}", apart(ours[1]) <= 2 * apart(theirs[1]))


def compare_training(report, mu):
    coordinator, _servers = tensorflow_coordinator()
    theirs = {dtype: in_tensorflow(coordinator, dtype) for dtype in (np.float64, np.float32)}
    ours = {}
    for dtype in theirs:
        with mu.pool():
            ours[dtype] = in_muster(mu, dtype)
    compare_f64(report, theirs[np.float64], ours[np.float64])
    compare_f32(report, theirs[np.float64], theirs[np.float32], ours[np.float32])


def main(library, only=""):
    mu = muster.Library(library, cpu_devices=2)
    report = Report("coordinator")
    if only in compare_training.__name__:
        with report.guard(compare_training.__name__):
            compare_training(report, mu)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
