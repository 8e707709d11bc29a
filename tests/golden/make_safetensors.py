#!/usr/bin/env python3
# Makes python.safetensors, a file as Python's safetensors package writes it (numpy and safetensors needed):
# `make_safetensors.py FOLDER`. With `--check FILE` it opens a file that Muster wrote and compares it.
import sys

import numpy
import safetensors
import safetensors.numpy

TENSORS = {
    "conv2d/kernel": numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4) / 4,
    "conv2d/bias": numpy.array([-1.5, 0, 2], dtype=numpy.float64),
    "step": numpy.array(7, dtype=numpy.int64),
    "mask": numpy.array([True, False, True]),
    "empty": numpy.zeros((0, 5), dtype=numpy.int32),
    "bytes": numpy.array([0, 127, 255], dtype=numpy.uint8),
    "half": numpy.array([1, -2], dtype=numpy.float16),
}
METADATA = {"made by": "golden"}


def check(path):
    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == METADATA, file.metadata()
        assert set(file.keys()) == set(TENSORS), file.keys()
        for name, wanted in TENSORS.items():
            seen = file.get_tensor(name)
            assert seen.dtype == wanted.dtype and seen.shape == wanted.shape, (name, seen.dtype, seen.shape)
            assert (seen == wanted).all(), (name, seen)
    print(f"{path}: {len(TENSORS)} tensors as wanted")


if sys.argv[1] == "--check":
    check(sys.argv[2])
else:
    safetensors.numpy.save_file(TENSORS, sys.argv[1] + "/python.safetensors", METADATA)
