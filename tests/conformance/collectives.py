# Collectives that TensorFlow's replicas do not have, against JAX's on as many devices: mu_reduce_scatter against
# psum_scatter and mu_collective_permute against ppermute; values and gradients, eager and as traced functions.
#
# Elements are small whole numbers, so sums and means of four are exact in every type, and results must be equal.
# It must not know how either side moves its data.
import ctypes
import os
import sys

REPLICAS = 4
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={REPLICAS}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import muster
from report import JAX, Report

jax.config.update("jax_enable_x64", True)
TYPES = [np.float32, np.float64, ml_dtypes.bfloat16, np.int32]
CALL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
RING, SOME = [(0, 1), (1, 2), (2, 3), (3, 0)], [(3, 0), (0, 3), (2, 2)]


def draw(seed, shape, dtype):
    return np.random.default_rng(seed).integers(-8, 9, (REPLICAS, *shape)).astype(dtype)


def scatter_cases():
    for op, name in ((0, "sum"), (1, "mean")):
        for shape, axis in (((8,), 0), ((3, 8), 1), ((2, 4, 3), -2)):
            yield (f"reduce_scatter {name} {list(shape)}, {axis}", shape,
                   lambda mu, x, op=op, axis=axis: mu.mu_reduce_scatter(op, x, axis),
                   lambda x, op=op, axis=axis: jax.lax.psum_scatter(
                       x, "replica", scatter_dimension=axis % x.ndim, tiled=True) / (REPLICAS if op else 1))


def permute_cases():
    for name, pairs in (("ring", RING), ("some", SOME), ("none", [])):
        def ours(mu, x, pairs=pairs):
            array = (mu.declared.structs["mu_replica_pair"] * max(len(pairs), 1))(*pairs)
            return mu.mu_collective_permute(x, ctypes.addressof(array), len(pairs))

        yield f"collective_permute {name}", (3, 2), ours, lambda x, pairs=pairs: jax.lax.ppermute(x, "replica", pairs)


def theirs(function, x, weights):
    """Results on all replicas and, of floats, what comes back for the weights."""
    if weights is None:
        return [np.asarray(jax.pmap(function, axis_name="replica")(x))]

    def both(own, weight):
        result, back = jax.vjp(function, own)
        return result, back(weight)[0]

    return [np.asarray(found) for found in jax.pmap(both, axis_name="replica")(x, weights)]


def ours(mu, strategy, function, x, weights, traced):
    def step(arguments):
        own, tape = mu.mu_at(arguments, 0), mu.mu_tape_open() if weights is not None else None
        results = [function(mu, own)]
        if tape:
            loss = mu.mu_reduce_sum(mu.mu_multiply(results[0], mu.mu_at(arguments, 1)), muster.ALL_AXES)
            results.append(mu.mu_at(mu.mu_gradients(tape, loss, mu.values([own])), 0))
            mu.mu_tape_close(tape)
        return mu.values(results)

    def spread(arrays):
        return mu.mu_per_replica_of(strategy, REPLICAS, [mu.mu_of(mu.tensor(array)) for array in arrays])

    arguments = [spread(arrays) for arrays in (x, weights) if arrays is not None]
    arguments = mu.mu_list_of(len(arguments), arguments)
    if traced:
        made, _kept = mu.function(step)
        found = mu.mu_run(strategy, made, arguments)
    else:
        callback = CALL(lambda own, _: mu.call_back(lambda: step(own), None))
        found = mu.mu_run_callback(strategy, callback, None, arguments)
    replicas = [mu.mu_value_at(mu.mu_local_results(strategy, found), r) for r in range(REPLICAS)]
    return [np.stack([mu.array(mu.mu_at(own, i)) for own in replicas]) for i in range(2 if weights is not None else 1)]


def compare(mu, strategy, name, shape, function, rival, dtype):
    x = draw(len(name), shape, dtype)
    wanted, weights = theirs(rival, x, None), None
    if jnp.issubdtype(dtype, jnp.floating):
        weights = draw(7, wanted[0].shape[1:], dtype)
        wanted = theirs(rival, x, weights)
    failures = []
    for traced in (False, True):
        with mu.pool():
            seen = ours(mu, strategy, function, x, weights, traced)
        failures += [f"{np.dtype(dtype).name} {'traced' if traced else 'eager'} {what}"
                     for what, a, b in zip(("values", "gradient"), seen, wanted) if a.shape != b.shape or (a != b).any()]
    return failures


def main():
    library, text = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    mu = muster.Library(library, cpu_devices=REPLICAS)
    report = Report("Collectives: values and gradients on four replicas, against JAX", JAX)
    strategy = mu.mirrored(REPLICAS)
    for name, shape, function, rival in [*scatter_cases(), *permute_cases()]:
        if text not in name:
            continue
        with report.guard(name):
            failures = [failure for dtype in TYPES
                        for failure in compare(mu, strategy, name, shape, function, rival, dtype)]
            report.row(name, f"{len(TYPES)} types", 2 * len(TYPES) - len(failures), failures)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
