#!/usr/bin/env python3
"""TensorFlow's parameter servers, doing what bench_ps does: the cluster's processes on the loopback, and the coordinator.

    rival.py ROWS SECONDS WORKERS SERVERS start|all [BYTES...]

Prints "first step", then one line of JSON for each number: the best of two forms, from the coordinator and in steps on
the workers, where a step does the same several times. Results are checked before anything is timed.
"""
import json
import os
import socket
import subprocess
import sys
import time

DIMENSION, N_IDS, UNROLLED, STEPS, BATCH = 64, 65536, 8, 4, 400


def server(cluster, job, task):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf.distribute.Server(cluster, job_name=job, task_index=task, protocol="grpc", start=True).join()


def start_cluster(workers, servers):
    kept = [socket.socket() for _ in range(workers + servers)]
    for one in kept:
        one.bind(("127.0.0.1", 0))
    at = [f"127.0.0.1:{one.getsockname()[1]}" for one in kept]
    for one in kept:
        one.close()
    cluster = {"worker": at[:workers], "ps": at[workers:]}
    processes = [subprocess.Popen([sys.executable, __file__, "server", json.dumps(cluster), job, str(i)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                 for job in cluster for i in range(len(cluster[job]))]
    return cluster, processes


def ids_of(n, rows, zipf):
    """As ids.c."""
    import numpy as np
    with np.errstate(over="ignore"):
        x = (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        u = ((x ^ x >> np.uint64(31)) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53
    if not zipf:
        return (u * rows).astype(np.int64)
    rank = np.power(float(rows), u).astype(np.int64) - 1
    return rank * 2654435761 % rows


class Bench:
    def __init__(self, cluster, seconds):
        import tensorflow as tf
        self.tf, self.seconds = tf, seconds
        self.workers = len(cluster["worker"])
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        self.strategy = tf.distribute.ParameterServerStrategy(
            resolver, variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2))
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def per_second(self, fn, finish=lambda: None):
        """finish waits for what fn has begun."""
        fn()
        finish()
        n, begin = 0, time.perf_counter()
        while n < 1 or time.perf_counter() - begin < self.seconds:
            fn()
            n += 1
        finish()
        return n / (time.perf_counter() - begin)

    def in_steps(self, function, *arguments):
        """Calls of the function's body in a second, of which each step has UNROLLED."""
        def once():
            for _ in range(STEPS * self.workers):
                self.coordinator.schedule(function, args=tuple(map(self.fresh, arguments)))
            self.coordinator.join()
        return self.per_second(once) * STEPS * self.workers * UNROLLED

    def fresh(self, value):
        """The same value as a tensor that no other process has: TensorFlow keeps what it has sent of a tensor."""
        return self.tf.reshape(value, value.shape)

    def say(self, what, value, **more):
        print(json.dumps({"what": what, **more, "value": value}), flush=True)

    def unrolled(self, body):
        """A traced function that does something UNROLLED times, one after the other."""
        tf = self.tf

        @tf.function
        def function(*arguments):
            total, last = tf.constant(0.0), []
            for _ in range(UNROLLED):
                with tf.control_dependencies(last):
                    done = body(*arguments)
                last = [done]
                total += tf.reshape(done, [-1])[0] if done is not None else 0
            return total
        return function

    def first_step(self):
        step = self.tf.function(lambda: self.tf.constant(1.0))
        assert self.coordinator.fetch(self.coordinator.schedule(step)) == 1
        print("first step", flush=True)

    def whole(self, size):
        import numpy as np
        tf = self.tf
        value = np.arange(size // 4, dtype=np.float32)
        with tf.device("/job:ps/task:0/device:CPU:0"):
            variable = tf.Variable(tf.zeros([size // 4]))
        variable.assign(value)
        assert np.array_equal(variable.numpy(), value), "what was pushed is not what is pulled"

        def pull():
            return variable.read_value()

        sent = tf.constant(value)
        pulled = max(self.per_second(lambda: variable.read_value().numpy()), self.in_steps(self.unrolled(pull)))

        @tf.function
        def pushes(local):
            for i in range(UNROLLED):
                variable.assign(local + float(i))  # another value each time: one value is sent once
        one = tf.function(lambda: variable.read_value()[:1])
        pushed = max(self.per_second(lambda: variable.assign(self.fresh(sent)), lambda: one().numpy()),
                     self.in_steps(pushes, sent))
        self.say("pull", pulled * size / 1e9, bytes=size)
        self.say("push", pushed * size / 1e9, bytes=size)

    def rows(self, rows):
        import numpy as np
        tf = self.tf

        def initial(shape, dtype, partition_offset=(0, 0), partition_shape=None):
            n = (partition_shape or shape)[0]
            numbers = tf.range(partition_offset[0], partition_offset[0] + n, dtype=tf.int64) % 65536
            return tf.broadcast_to(tf.cast(numbers, dtype)[:, None], [n, DIMENSION])
        with self.strategy.scope():
            table = tf.Variable(lambda *a, **k: initial((rows, DIMENSION), tf.float32, *a, **k),
                                shape=(rows, DIMENSION), dtype=tf.float32, name="table")
        zeros = tf.zeros([N_IDS, DIMENSION])
        for zipf in (False, True):
            name, numbers = "zipf" if zipf else "uniform", ids_of(N_IDS, rows, zipf)
            ids = tf.constant(numbers)

            def look(ids):
                return tf.nn.embedding_lookup(table, ids)

            @tf.function
            def updates(ids, values):
                for _ in range(UNROLLED):
                    table.scatter_add(tf.IndexedSlices(values, ids))

            def update():
                table.scatter_add(tf.IndexedSlices(self.fresh(zeros), self.fresh(ids)))

            def finish():
                look(ids[:1]).numpy()

            def check():
                assert np.array_equal(look(ids).numpy()[:, 0], numbers % 65536), "a lookup returns another row"
            check()
            looked = max(self.per_second(lambda: look(self.fresh(ids)).numpy()), self.in_steps(self.unrolled(look), ids))
            updated = max(self.per_second(update, finish), self.in_steps(updates, ids, zeros))
            check()
            self.say("lookup", looked * N_IDS, ids=name)
            self.say("update", updated * N_IDS, ids=name)

    def steps(self):
        step = self.tf.function(lambda: self.tf.constant(1.0))

        def batch():
            for _ in range(BATCH):
                self.coordinator.schedule(step)
            self.coordinator.join()
        self.say("steps", self.per_second(batch) * BATCH)


def main():
    if sys.argv[1] == "server":
        return server(json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    rows, seconds, workers, servers, what = int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:5]), sys.argv[5]
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    cluster, processes = start_cluster(workers, servers)
    try:
        bench = Bench(cluster, seconds)
        bench.first_step()
        if what == "all":
            for size in map(int, sys.argv[6:]):
                bench.whole(size)
            bench.rows(rows)
            bench.steps()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    sys.stdout.flush()
    os._exit(0)  # the coordinator's threads would try to reach the servers


if __name__ == "__main__":
    main()
