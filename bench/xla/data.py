"""The first weights and the batches of networks.c, in NumPy."""
import numpy as np

from sizes import GPTS

PER_LAYER = 12
CNN_WEIGHTS = [((3, 3, 1, 32), 0.3, 0), ((32,), 0, 0), ((3, 3, 32, 64), 0.08, 0), ((64,), 0, 0),
               ((1600, 128), 0.05, 0), ((128,), 0, 0), ((128, 10), 0.15, 0), ((10,), 0, 0)]


def gpt_weights(size):
    w = size.width
    layer = [((w,), 0, 1), ((w,), 0, 0), ((w, 3 * w), 0.03, 0), ((3 * w,), 0, 0), ((w, w), 0.03, 0), ((w,), 0, 0),
             ((w,), 0, 1), ((w,), 0, 0), ((w, 4 * w), 0.03, 0), ((4 * w,), 0, 0), ((4 * w, w), 0.03, 0), ((w,), 0, 0)]
    return [((size.vocabulary, w), 0.03, 0), ((size.length, w), 0.03, 0), *layer * size.layers,
            ((w,), 0, 1), ((w,), 0, 0)]


def mix(n, stream):
    u = np.arange(n, dtype=np.uint32) * np.uint32(1664525) + np.uint32((stream * 1013904223 + 12345) % 2**32)
    u = (u ^ u >> 16) * np.uint32(0x45d9f3b)
    return u ^ u >> 16


def numbers(shape, stream, scale, offset):
    unit = (mix(int(np.prod(shape)), stream) >> 8).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return (unit * np.float32(scale) + np.float32(offset)).reshape(shape)


def integers(shape, stream, below):
    return (mix(int(np.prod(shape)), stream) % np.uint32(below)).astype(np.int32).reshape(shape)


def weights(name):
    specs = CNN_WEIGHTS if name == "cnn" else gpt_weights(GPTS[name])
    return [numbers(shape, i, scale, offset) for i, (shape, scale, offset) in enumerate(specs)]


def samples(name):
    return 128 if name == "cnn" else GPTS[name].samples


def batch(name):
    if name == "cnn":
        return numbers((128, 28, 28, 1), 1000, 1, 0), integers((128,), 1001, 10)
    shape, below = (GPTS[name].samples, GPTS[name].length), GPTS[name].vocabulary
    return integers(shape, 1002, below), integers(shape, 1003, below)
