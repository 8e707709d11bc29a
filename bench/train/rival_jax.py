# JAX's part in the training bench: the same CNN and a hand-written Adam as one jitted step whose state is donated,
# on one device with XLA's own threads, or by pmap over one CPU device per core.
# How it is timed and what a setting's options mean to others lies in rival_common.py.
import functools

import rival_common as common

arguments = common.enter("jax")
options = arguments.options

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

DEVICES = arguments.threads if options.get("pmap") else 1


def pool(x):
    if options.get("pool_slices"):
        return functools.reduce(jnp.maximum, [x[:, i, j] for i, j in common.strided_quarters(*x.shape[1:3])])
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def conv(x, kernel, bias):
    return lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias


def loss_of(weights, images, labels):
    k1, b1, k2, b2, k3, b3, k4, b4 = weights
    x = images[..., None].astype(jnp.float32) / 255
    x = pool(jax.nn.relu(conv(x, k1, b1)))
    x = pool(jax.nn.relu(conv(x, k2, b2)))
    x = jax.nn.relu(x.reshape(-1, 1600) @ k3 + b3)
    scores = jax.nn.log_softmax(x @ k4 + b4)
    return -jnp.sum(jnp.take_along_axis(scores, labels[:, None].astype(jnp.int32), 1)) / common.BATCH


def adam(state, gradients):
    n_steps, weights, firsts, seconds = state
    n_steps = n_steps + 1
    rate = common.LEARNING_RATE * jnp.sqrt(1 - common.BETA_2 ** n_steps) / (1 - common.BETA_1 ** n_steps)
    firsts = [m + (g - m) * (1 - common.BETA_1) for m, g in zip(firsts, gradients)]
    seconds = [v + (g * g - v) * (1 - common.BETA_2) for v, g in zip(seconds, gradients)]
    weights = [w - rate * m / (jnp.sqrt(v) + common.EPSILON) for w, m, v in zip(weights, firsts, seconds)]
    return n_steps, weights, firsts, seconds


def step(state, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(state[1], images, labels)
    if DEVICES > 1:
        loss, gradients = lax.psum((loss, gradients), "replica")
    return adam(state, gradients), loss


def first_state():
    read = common.read_weights(arguments.weights)
    weights = [jnp.asarray(read[name]) for name in common.SHAPES]
    return jnp.float32(0), weights, [jnp.zeros_like(w) for w in weights], [jnp.zeros_like(w) for w in weights]


def make_train_on():
    state = first_state()
    if DEVICES > 1:
        compiled = jax.pmap(step, "replica", donate_argnums=0)
        state = jax.tree.map(lambda leaf: jnp.stack([leaf] * DEVICES), state)
    else:
        compiled = jax.jit(step, donate_argnums=0)

    def train_on(images, labels):
        nonlocal state
        if DEVICES > 1:
            images, labels = (a.reshape(DEVICES, -1, *a.shape[1:]) for a in (images, labels))
        state, loss = compiled(state, images, labels)
        return loss[0] if DEVICES > 1 else loss

    return train_on


def main():
    jax.config.update("jax_num_cpu_devices", DEVICES)
    common.report(common.measure(arguments, make_train_on(), common.Batches()))


main()
