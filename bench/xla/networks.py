"""The networks of networks.c in JAX: the same formulas."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import data
from sizes import GPTS


def cross_entropy(labels, logits):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]


def pool_by_windows(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def pool_by_slices(x):
    height, width = (size // 2 * 2 for size in x.shape[1:3])
    quarters = [x[:, i:height:2, j:width:2] for i in range(2) for j in range(2)]
    return functools.reduce(jnp.maximum, quarters)


def cnn_loss(w, x, y, pool=pool_by_windows):
    for i in range(2):
        x = lax.conv_general_dilated(x, w[2 * i], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = pool(jax.nn.relu(x + w[2 * i + 1]))
    x = jax.nn.relu(x.reshape(-1, 1600) @ w[4] + w[5])
    return cross_entropy(y, x @ w[6] + w[7])


def normal(x, w):
    x32 = x.astype(jnp.float32)
    centred = x32 - jnp.mean(x32, -1, keepdims=True)
    return (centred * lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5)).astype(x.dtype) * w[0] + w[1]


def attention(size, x, w, mask):
    q, k, v = (part.reshape(-1, size.length, size.heads, size.width // size.heads).transpose(0, 2, 1, 3)
               for part in jnp.split(x @ w[0] + w[1], 3, -1))
    scale = np.asarray((size.width / size.heads) ** -0.5, x.dtype)
    scores = q @ k.transpose(0, 1, 3, 2) * scale + mask
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(-1, size.length, size.width)
    return mixed @ w[2] + w[3]


def gpt_loss(size, w, x, y):
    w = [weight.astype(size.dtype) for weight in w]
    mask = jnp.asarray(np.triu(np.full((size.length, size.length), -1e9, np.float32), 1)).astype(size.dtype)
    h = w[0][x] + w[1]
    for i in range(size.layers):
        layer = w[2 + i * data.PER_LAYER:2 + (i + 1) * data.PER_LAYER]
        h = h + attention(size, normal(h, layer), layer[2:], mask)
        h = h + jax.nn.gelu(normal(h, layer[6:]) @ layer[8] + layer[9], approximate=True) @ layer[10] + layer[11]
    logits = (normal(h, w[-2:]).reshape(-1, size.width) @ w[0].T).astype(jnp.float32)
    return cross_entropy(y.reshape(-1), logits).reshape(-1, size.length).mean(1)


def losses(name):
    """The ways to write a network's loss of each sample; the bench takes the fastest."""
    if name == "cnn":
        return [cnn_loss, functools.partial(cnn_loss, pool=pool_by_slices)]
    return [functools.partial(gpt_loss, GPTS[name])]
