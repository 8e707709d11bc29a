# JAX's part in the training bench: the same model and a hand-written Adam as one jitted step whose state is donated,
# on one device with XLA's own threads, or by pmap over one CPU device per core.
# How it is timed and what a setting's options mean to others lies in rival_common.py.
import functools

import models
import rival_common as common

arguments = common.enter("jax")
options = arguments.options

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

DEVICES = arguments.threads if options.get("pmap") else 1


def pool(kind, x):
    largest = kind == "max_pool"
    if options.get("pool_slices"):
        quarters = [x[:, i, j] for i, j in common.strided_quarters(*x.shape[1:3])]
        return functools.reduce(jnp.maximum, quarters) if largest else sum(quarters) / len(quarters)
    windows = ((1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return lax.reduce_window(x, -jnp.inf, lax.max, *windows) if largest else lax.reduce_window(x, 0.0, lax.add, *windows) / 4


def conv(x, kernel, padding):
    return lax.conv_general_dilated(x, kernel, (1, 1), padding.upper(), dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normalise(x, name, weights, moving):
    """Normalises by the batch statistics and updates the moving ones."""
    mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
    for part, now in (("moving_mean", mean), ("moving_variance", variance)):
        old = moving[f"{name}/{part}"]
        moving[f"{name}/{part}"] = old + (lax.stop_gradient(now) - old) * (1 - common.NORM_MOMENTUM)
    scale = weights[f"{name}/gamma"] * lax.rsqrt(variance + common.NORM_EPSILON)
    return x * scale + (weights[f"{name}/beta"] - mean * scale)


def apply_layer(placed, x, weights, moving):
    layer, name = placed.layer, placed.name
    if layer.kind == "conv":
        x = conv(x, weights[f"{name}/kernel"], layer.padding)
    elif layer.kind == "dense":
        x = x @ weights[f"{name}/kernel"]
    elif layer.kind == "norm":
        x = normalise(x, name, weights, moving)
    elif layer.kind == "flatten":
        x = x.reshape(-1, *placed.after)
    elif layer.kind.endswith("pool"):
        x = pool(layer.kind, x)
    if layer.kind in ("conv", "dense") and layer.bias:
        x = x + weights[f"{name}/bias"]
    return jax.nn.relu(x) if layer.relu or layer.kind == "relu" else x


def loss_of(weights, moving, images, labels):
    """The loss and the updated moving statistics."""
    x, moving = images[..., None].astype(jnp.float32) / 255, dict(moving)
    for placed in models.place(arguments.model):
        x = apply_layer(placed, x, weights, moving)
    scores = jax.nn.log_softmax(x)
    return -jnp.sum(jnp.take_along_axis(scores, labels[:, None].astype(jnp.int32), 1)) / common.BATCH, moving


def adam(state, gradients):
    n_steps, weights, firsts, seconds, moving = state
    n_steps = n_steps + 1
    rate = common.LEARNING_RATE * jnp.sqrt(1 - common.BETA_2 ** n_steps) / (1 - common.BETA_1 ** n_steps)
    firsts = {name: m + (gradients[name] - m) * (1 - common.BETA_1) for name, m in firsts.items()}
    seconds = {name: v + (gradients[name] ** 2 - v) * (1 - common.BETA_2) for name, v in seconds.items()}
    weights = {name: w - rate * firsts[name] / (jnp.sqrt(seconds[name]) + common.EPSILON) for name, w in weights.items()}
    return n_steps, weights, firsts, seconds, moving


def step(state, images, labels):
    (loss, moving), gradients = jax.value_and_grad(loss_of, has_aux=True)(state[1], state[4], images, labels)
    if DEVICES > 1:
        loss, gradients = lax.psum((loss, gradients), "replica")
    return adam((*state[:4], moving), gradients), loss


def first_state():
    read = common.read_weights(arguments.weights, arguments.model)
    weights = {name: jnp.asarray(read[name]) for name in models.trainable(arguments.model)}
    moving = {name: jnp.asarray(value) for name, value in read.items() if name not in weights}
    zeros = [{name: jnp.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
    return jnp.float32(0), weights, *zeros, moving


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
