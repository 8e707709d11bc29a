"""The networks of networks.c in JAX: the same weights, batches and formulas."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, PER_LAYER = 1024, 64, 256, 8, 4, 12
CNN_WEIGHTS = [((3, 3, 1, 32), 0.3, 0), ((32,), 0, 0), ((3, 3, 32, 64), 0.08, 0), ((64,), 0, 0),
               ((1600, 128), 0.05, 0), ((128,), 0, 0), ((128, 10), 0.15, 0), ((10,), 0, 0)]
GPT_LAYER = [((WIDTH,), 0, 1), ((WIDTH,), 0, 0), ((WIDTH, 3 * WIDTH), 0.03, 0), ((3 * WIDTH,), 0, 0),
             ((WIDTH, WIDTH), 0.03, 0), ((WIDTH,), 0, 0), ((WIDTH,), 0, 1), ((WIDTH,), 0, 0),
             ((WIDTH, 4 * WIDTH), 0.03, 0), ((4 * WIDTH,), 0, 0), ((4 * WIDTH, WIDTH), 0.03, 0), ((WIDTH,), 0, 0)]
GPT_WEIGHTS = [((VOCABULARY, WIDTH), 0.03, 0), ((LENGTH, WIDTH), 0.03, 0), *GPT_LAYER * LAYERS,
               ((WIDTH,), 0, 1), ((WIDTH,), 0, 0)]


def mix(n, stream):
    u = np.arange(n, dtype=np.uint32) * np.uint32(1664525) + np.uint32((stream * 1013904223 + 12345) % 2**32)
    u = (u ^ u >> 16) * np.uint32(0x45d9f3b)
    return u ^ u >> 16


def numbers(shape, stream, scale, offset):
    unit = (mix(int(np.prod(shape)), stream) >> 8).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return (unit * np.float32(scale) + np.float32(offset)).reshape(shape)


def integers(shape, stream, below):
    return (mix(int(np.prod(shape)), stream) % np.uint32(below)).astype(np.int32).reshape(shape)


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
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5) * w[0] + w[1]


def attention(x, w, mask):
    q, k, v = (part.reshape(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
               for part in jnp.split(x @ w[0] + w[1], 3, -1))
    scores = q @ k.transpose(0, 1, 3, 2) * 0.17677669529663687 + mask
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(-1, LENGTH, WIDTH)
    return mixed @ w[2] + w[3]


def gpt_loss(w, x, y):
    mask = jnp.asarray(np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1))
    h = w[0][x] + w[1]
    for i in range(LAYERS):
        layer = w[2 + i * PER_LAYER:2 + (i + 1) * PER_LAYER]
        h = h + attention(normal(h, layer), layer[2:], mask)
        h = h + jax.nn.gelu(normal(h, layer[6:]) @ layer[8] + layer[9], approximate=True) @ layer[10] + layer[11]
    logits = normal(h, w[-2:]).reshape(-1, WIDTH) @ w[0].T
    return cross_entropy(y.reshape(-1), logits).reshape(-1, LENGTH).mean(1)


def cnn_batch(samples):
    return numbers((samples, 28, 28, 1), 1000, 1, 0), integers((samples,), 1001, 10)


def gpt_batch(samples):
    return integers((samples, LENGTH), 1002, VOCABULARY), integers((samples, LENGTH), 1003, VOCABULARY)


# name: weights, ways to write the loss of each sample (the bench takes the fastest), batch, samples
NETWORKS = {
    "cnn": (CNN_WEIGHTS, [cnn_loss, functools.partial(cnn_loss, pool=pool_by_slices)], cnn_batch, 128),
    "gpt": (GPT_WEIGHTS, [gpt_loss], gpt_batch, 8),
}
